//! Exact arithmetic for strict mode: `+ - * / // % **` over rational numbers, with bounded work.

use dashu_ratio::RBig;

use super::python::EvalError;
use crate::math::{ParseError, exact_value};

/// Computes the exact value of an expression of decimal integers, operators and parentheses.
/// Fails if the text is not such an expression, divides by zero, or is beyond the budget.
pub fn evaluate(text: &str) -> Result<RBig, EvalError> {
    match exact_value(text) {
        Ok(value) => value.ok_or(EvalError::Raised),
        Err(ParseError::Budget) => Err(EvalError::Budget),
        Err(ParseError::Syntax) => Err(EvalError::Syntax),
    }
}
