//! math-verify's arithmetic on decimals, which has 53 bits. With it, `2.53 * 10^2` isn't 253, but `1.5 * 10^3` is 1500.

use dashu_ratio::RBig;

use crate::math::expr::Expr;

/// Largest absolute value of an exponent. A larger power isn't computed.
const LARGEST_EXPONENT: isize = 64;

/// A number as math-verify computes it: exact until an operation involves a decimal.
enum Value {
    Exact(RBig),
    Float(f64),
}

impl Value {
    fn float(&self) -> f64 {
        match self {
            Self::Exact(value) => value.to_f64().value(),
            Self::Float(value) => *value,
        }
    }

    fn join(self, other: Self, exact: fn(RBig, RBig) -> RBig, float: fn(f64, f64) -> f64) -> Self {
        match (self, other) {
            (Self::Exact(a), Self::Exact(b)) => Self::Exact(exact(a, b)),
            (a, b) => Self::Float(float(a.float(), b.float())),
        }
    }
}

/// Computes the difference of two sums of products as math-verify does. Returns `None` for other expressions.
///
/// Every result is rounded. The answer is computed first, and then the gold's terms are added to its negative.
pub(super) fn difference(gold: &Expr, answer: &Expr) -> Option<f64> {
    let zero = Value::Exact(RBig::ZERO);
    let plus = |total: Value, term: &Expr| Some(total.join(product(term)?, |a, b| a + b, |a, b| a + b));
    let negative = match terms(answer).try_fold(zero, plus)? {
        Value::Exact(value) => Value::Exact(-value),
        Value::Float(value) => Value::Float(-value),
    };
    terms(gold).try_fold(negative, plus).map(|total| total.float())
}

fn terms(sum: &Expr) -> impl Iterator<Item = &Expr> {
    match sum {
        Expr::Add(terms) => terms.iter(),
        other => std::slice::from_ref(other).iter(),
    }
}

fn product(expr: &Expr) -> Option<Value> {
    match expr {
        Expr::Number(value) => Some(Value::Exact(value.clone())),
        Expr::Decimal(value, _) => Some(Value::Float(value.to_f64().value())),
        Expr::Mul(factors) => {
            let one = Value::Exact(RBig::ONE);
            factors
                .iter()
                .try_fold(one, |total, factor| Some(total.join(product(factor)?, |a, b| a * b, |a, b| a * b)))
        }
        Expr::Pow(pair) => {
            let exponent = isize::try_from(pair[1].as_integer()?).ok()?;
            let base = product(&pair[0])?;
            if exponent.abs() > LARGEST_EXPONENT || base.float() == 0.0 {
                return None;
            }
            Some(match base {
                Value::Exact(value) => Value::Exact(value.pow(exponent)),
                Value::Float(value) => {
                    Value::Float(RBig::try_from(value).ok()?.pow(exponent).to_f64().value())
                }
            })
        }
        _ => None,
    }
}
