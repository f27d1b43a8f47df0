//! Exact arithmetic for strict mode: `+ - * / // % **` over rational numbers, with bounded work.

use dashu_base::BitTest;
use dashu_int::IBig;
use dashu_ratio::RBig;

use super::python::{EvalError, MAX_BITS};

type Result<T> = std::result::Result<T, EvalError>;

/// The value, if it is within the budget.
fn bounded(value: RBig) -> Result<RBig> {
    let bits = value.numerator().bit_len().max(value.denominator().bit_len());
    if bits > MAX_BITS / 16 { Err(EvalError::Budget) } else { Ok(value) }
}

fn operate(op: &str, a: &RBig, b: &RBig) -> Result<RBig> {
    match op {
        "+" => bounded(a + b),
        "-" => bounded(a - b),
        "*" => bounded(a * b),
        "/" | "//" | "%" if b.is_zero() => Err(EvalError::Raised),
        "/" => bounded(a / b),
        "//" => Ok(operate("/", a, b)?.floor().into()),
        "%" => operate("-", a, &operate("*", &operate("//", a, b)?, b)?),
        _ if !b.is_int() => Err(EvalError::Raised),
        _ => {
            let exponent = i32::try_from(b.numerator()).map_err(|_| EvalError::Budget)? as isize;
            let bits = a.numerator().bit_len().max(a.denominator().bit_len());
            if bits.checked_mul(exponent.unsigned_abs()).is_none_or(|b| b > MAX_BITS / 16) {
                return Err(EvalError::Budget);
            }
            if exponent < 0 && a.is_zero() { Err(EvalError::Raised) } else { bounded(a.pow(exponent)) }
        }
    }
}

const MAX_DEPTH: usize = 200;
const MAX_STEPS: usize = 2000;

/// The exact value of an expression of decimal integers, operators and parentheses.
/// Fails if the text is not such an expression, divides by zero, or is beyond the budget.
pub fn evaluate(text: &str) -> Result<RBig> {
    let mut parser = Parser { text: text.as_bytes(), at: 0, depth: 0, steps: MAX_STEPS };
    let value = parser.sum()?;
    if parser.peek().is_some() { Err(EvalError::Syntax) } else { Ok(value) }
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
    steps: usize,
}

impl Parser<'_> {
    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at).is_some_and(|c| b" \t\n\r".contains(c)) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn operator(&mut self) -> Option<&'static str> {
        let first = self.peek()?;
        let double = self.text.get(self.at + 1) == Some(&first);
        Some(match (first, double) {
            (b'*', true) => "**",
            (b'/', true) => "//",
            (b'*', _) => "*",
            (b'/', _) => "/",
            (b'%', _) => "%",
            (b'+', _) => "+",
            (b'-', _) => "-",
            _ => return None,
        })
    }

    fn step(&mut self) -> Result<()> {
        self.steps = self.steps.checked_sub(1).ok_or(EvalError::Budget)?;
        Ok(())
    }

    fn sum(&mut self) -> Result<RBig> {
        let mut value = self.product()?;
        while let Some(op @ ("+" | "-")) = self.operator() {
            self.at += 1;
            self.step()?;
            value = operate(op, &value, &self.product()?)?;
        }
        Ok(value)
    }

    fn product(&mut self) -> Result<RBig> {
        let mut value = self.signed()?;
        while let Some(op @ ("*" | "/" | "//" | "%")) = self.operator() {
            self.at += op.len();
            self.step()?;
            value = operate(op, &value, &self.signed()?)?;
        }
        Ok(value)
    }

    fn signed(&mut self) -> Result<RBig> {
        let mut negative = false;
        while let Some(op @ ("+" | "-")) = self.operator() {
            self.at += 1;
            self.step()?;
            negative ^= op == "-";
        }
        let value = self.powered()?;
        Ok(if negative { -value } else { value })
    }

    fn powered(&mut self) -> Result<RBig> {
        let base = self.atom()?;
        if self.operator() != Some("**") {
            return Ok(base);
        }
        self.at += 2;
        self.step()?;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(EvalError::Budget);
        }
        let exponent = self.signed()?;
        self.depth -= 1;
        operate("**", &base, &exponent)
    }

    fn atom(&mut self) -> Result<RBig> {
        match self.peek() {
            Some(b'(') => {
                self.at += 1;
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return Err(EvalError::Syntax);
                }
                let value = self.sum()?;
                self.depth -= 1;
                if self.peek() != Some(b')') {
                    return Err(EvalError::Syntax);
                }
                self.at += 1;
                Ok(value)
            }
            Some(c) if c.is_ascii_digit() => {
                let start = self.at;
                while self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
                    self.at += 1;
                }
                if self.at - start > 1000 {
                    return Err(EvalError::Budget);
                }
                let digits = self.text[start..self.at].iter().map(|c| char::from(*c)).collect::<String>();
                digits.parse::<IBig>().map(RBig::from).map_err(|_| EvalError::Syntax)
            }
            _ => Err(EvalError::Syntax),
        }
    }
}
