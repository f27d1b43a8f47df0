//! Computes the difference of two values with enough precision to distinguish zero from a small value.

use super::Comparer;
use crate::math::ball::{Complex, Precision};
use crate::math::budget::Exhausted;
use crate::math::expr::{Expr, Fold, Function};
use crate::math::numeric::{self, Field, Point};

/// The result of computing a difference.
pub(super) enum Difference {
    /// A side is undefined at the point.
    Undefined,
    /// The difference is below the margin.
    Zero,
    /// The difference isn't zero. Binary logarithms of upper bounds of the difference and of the gold's value.
    Apart { size: f64, scale: f64 },
    /// Undecided, because a decision needs more digits than are computed.
    Unresolved,
}

/// Point at which values are compared, with the precision.
pub(super) struct Place {
    pub(super) field: Field,
    pub(super) seed: u64,
    /// The first level of precision tried, and the last one.
    pub(super) levels: (usize, usize),
    /// Number of bits that must agree: bits after the binary point or, if these are fewer, leading bits of the value.
    pub(super) margin: f64,
}

impl Comparer<'_> {
    /// Computes the difference of two expressions at a point, with increasing precision.
    ///
    /// A ball that contains zero proves little: the ball of `2^1006 sqrt(2^2010+2) - 2^2011` contains every small
    /// number. So the ball must also be small relative to one and to the values. Products, powers and functions don't lose
    /// digits by cancellation, so their leading digits are enough, no matter how large they are.
    pub(super) fn difference(
        &mut self,
        gold: &Expr,
        answer: &Expr,
        place: &Place,
    ) -> Result<Difference, Exhausted> {
        let (mut level, last) = place.levels;
        loop {
            let precision = Precision::level(level);
            let mut point = Point::new(place.field, place.seed, self.imaginary());
            let Some(a) = numeric::evaluate(gold, &mut point, precision, &mut self.fuel)? else {
                return Ok(Difference::Undefined);
            };
            let Some(b) = numeric::evaluate(answer, &mut point, precision, &mut self.fuel)? else {
                return Ok(Difference::Undefined);
            };
            let value = a.subtract(&b, precision);
            let size = value.log2_bound();
            if !value.holds_zero() {
                return Ok(Difference::Apart { size, scale: a.log2_bound() });
            }
            let scale = known_size(&a).max(known_size(&b));
            let cancels = || [gold, answer].iter().any(|side| side.any(&adds));
            let unit = match scale {
                f64::NEG_INFINITY => 0.0,
                scale if scale > 0.0 && cancels() => 0.0,
                scale => scale,
            };
            let wanted = unit - place.margin;
            if size < wanted {
                return Ok(Difference::Zero);
            }
            let needed = precision.bits() as f64 + size - wanted;
            let next = (level + 1..=last).find(|next| Precision::level(*next).bits() as f64 >= needed);
            match next {
                Some(next) => level = next,
                None => return Ok(Difference::Unresolved),
            }
        }
    }
}

/// Returns the binary logarithm of a value that is certainly not zero, and minus infinity for any other value.
fn known_size(value: &Complex) -> f64 {
    if value.holds_zero() { f64::NEG_INFINITY } else { value.log2_bound() }
}

/// Returns whether an expression has a sum, in which digits can cancel.
fn adds(node: &Expr) -> bool {
    match node {
        Expr::Add(_) | Expr::Fold(Fold::Sum | Fold::Integral, ..) => true,
        Expr::Call(function, _) => is_stepped(*function),
        _ => false,
    }
}

/// Returns whether a function is piecewise, so that agreement on one piece says nothing about another.
pub(super) fn is_stepped(function: Function) -> bool {
    matches!(
        function,
        Function::Floor
            | Function::Ceiling
            | Function::Abs
            | Function::Max
            | Function::Min
            | Function::Mod
            | Function::Gcd
            | Function::Lcm
    )
}
