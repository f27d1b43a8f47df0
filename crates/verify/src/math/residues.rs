//! Residue classes, written as a congruence or by a parameter: `x\equiv 2\pmod 5` and `x=5k+2`.

use dashu_ratio::RBig;

use super::budget::Fuel;
use super::compare::{is_integral, without_domains};
use super::exact;
use super::expr::{Expr, Relation};

/// Returns whether a congruence and the values of a linear formula for all integers are the same class. Returns `None` for other answers.
pub(super) fn same_class(first: &Expr, second: &Expr) -> Option<bool> {
    let ((name, modulus, residue), formula) =
        congruence(first).zip(Some(second)).or_else(|| congruence(second).zip(Some(first)))?;
    let formula = match without_domains(formula) {
        Some((formula, domains)) => Some(formula).filter(|_| domains.iter().all(is_integral))?,
        None => formula.clone(),
    };
    let values = match &formula {
        Expr::Relation(Relation::Equal, sides) if sides[0] == *name => &sides[1],
        Expr::Relation(..) => return None,
        values => values,
    };
    let [parameter @ ("k" | "l" | "m" | "n" | "t")] = values.symbols()[..] else { return None };
    let at = |value: i64| {
        let mut bindings = vec![(parameter.into(), RBig::from(value))];
        exact::rational_with(values, &mut bindings, &mut Fuel::new()).ok().flatten()
    };
    let (start, next) = (at(0)?, at(1)?);
    let step = next - &start;
    for value in [-7, -1, 2, 3, 1_000] {
        if at(value)? != &start + &step * RBig::from(value) {
            return None;
        }
    }
    let apart = (start - residue) / &modulus;
    Some((step == modulus || step == -modulus) && apart.is_int())
}

/// Returns the name, the modulus and the residue of a congruence.
fn congruence(expr: &Expr) -> Option<(&Expr, RBig, RBig)> {
    let Expr::Relation(Relation::Equal, sides) = expr else { return None };
    let Expr::Quantity(residue, unit) = &sides[1] else { return None };
    let modulus: u32 = unit.modulus()?.parse().ok()?;
    let residue = RBig::from(residue.as_integer()?.clone());
    (modulus > 0 && matches!(sides[0], Expr::Symbol(_))).then(|| (&sides[0], modulus.into(), residue))
}
