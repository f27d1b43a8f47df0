//! Vectors as sums of multiples of the unit vectors i, j and k.

use super::expr::{Expr, Relation};
use crate::python_text::regex;

/// Replaces unit vectors in bold or with an accent by `\hat{i}` and so on, which aren't read as the imaginary unit.
pub(super) fn with_units(text: &str) -> Option<String> {
    const MARK: &str = r"\\(?:mathbf|boldsymbol|bm|vec|hat|widehat|overrightarrow)";
    const UNIT: &str = r"(?:\s*\{\s*(?:([ijk])|\\([ij])math)\s*\}|\s*\\([ij])math\b|\s+([ijk])\b)";
    let marked = regex!(&format!("{MARK}{UNIT}"));
    let named = marked.replace_all(text, r"\hat{$1$2$3$4}");
    let named = regex!(&format!(r"{MARK}\s*\{{\s*\\hat\{{([ijk])\}}\s*\}}")).replace_all(&named, r"\hat{$1}");
    marked.is_match(text).then(|| named.into_owned())
}

/// Converts a sum of multiples of unit vectors to a tuple of its components: two if no term has k, otherwise three. If
/// `plain`, the plain letters i, j and k are unit vectors. Of an equation, converts the right side.
pub(super) fn components(expr: &Expr, plain: bool) -> Option<Expr> {
    if let Expr::Relation(Relation::Equal, sides) = expr {
        // `i=j+k` is an equation of three unknowns.
        if plain && sides[0].symbols().iter().any(|name| matches!(*name, "i" | "j" | "k")) {
            return None;
        }
        return Some(Expr::relation(Relation::Equal, sides[0].clone(), components(&sides[1], plain)?));
    }
    // `\mathbf{i}` alone may be the imaginary unit.
    if matches!(expr, Expr::Symbol(_)) {
        return None;
    }
    let mut terms: [Vec<Expr>; 3] = Default::default();
    collect(expr, &[], plain, &mut terms)?;
    let few = terms.iter().filter(|terms| !terms.is_empty()).count() < 2;
    let count = if terms[2].is_empty() { 2 } else { 3 };
    let component = |mut terms: Vec<Expr>| match terms.len() {
        0 => Expr::integer(0),
        1 => terms.remove(0),
        _ => Expr::Add(terms),
    };
    (!(plain && few)).then(|| Expr::Tuple(terms.into_iter().take(count).map(component).collect()))
}

/// Adds the multiples of each unit vector in `expr` times `factors` to `terms`. `None` if a term isn't such a multiple.
fn collect(expr: &Expr, factors: &[Expr], plain: bool, terms: &mut [Vec<Expr>; 3]) -> Option<()> {
    let unit = |expr: &Expr| match expr {
        Expr::Symbol(name) if plain => ["i", "j", "k"].iter().position(|unit| **unit == **name),
        Expr::Symbol(name) => ["hat{i}", "hat{j}", "hat{k}"].iter().position(|unit| **unit == **name),
        _ => None,
    };
    let has_unit = |part: &&Expr| part.any(&|node| unit(node).is_some());
    match expr {
        Expr::Symbol(_) => {
            let product = match factors {
                [] => Expr::integer(1),
                [one] => one.clone(),
                more => Expr::Mul(more.to_vec()),
            };
            terms[unit(expr)?].push(product);
        }
        Expr::Add(parts) => parts.iter().try_for_each(|part| collect(part, factors, plain, terms))?,
        Expr::Mul(parts) => {
            let (with, without): (Vec<&Expr>, Vec<&Expr>) = parts.iter().partition(|part| has_unit(part));
            let [vector] = with[..] else { return None };
            let factors: Vec<Expr> = factors.iter().chain(without).cloned().collect();
            collect(vector, &factors, plain, terms)?;
        }
        _ => return None,
    }
    Some(())
}
