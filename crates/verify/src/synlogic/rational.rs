//! Exact arithmetic for strict mode: `+ - * / // % **` over rational numbers, with bounded work.

use dashu_base::{Abs, BitTest, Signed};
use dashu_int::IBig;

use super::python::{EvalError, MAX_BITS, floor_division};

/// A reduced fraction with a positive denominator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rational {
    numerator: IBig,
    denominator: IBig,
}

impl From<IBig> for Rational {
    fn from(numerator: IBig) -> Self {
        Self { numerator, denominator: IBig::from(1) }
    }
}

fn gcd(a: &IBig, b: &IBig) -> IBig {
    use dashu_base::Gcd;
    IBig::from(a.clone().abs().gcd(b.clone().abs()))
}

impl Rational {
    fn new(numerator: IBig, denominator: IBig) -> Result<Self, EvalError> {
        if denominator.is_zero() {
            return Err(EvalError::Raised);
        }
        let divisor = gcd(&numerator, &denominator);
        let (mut n, mut d) = (numerator / &divisor, denominator / divisor);
        if d.is_negative() {
            (n, d) = (-n, -d);
        }
        if n.bit_len() > MAX_BITS / 16 || d.bit_len() > MAX_BITS / 16 {
            return Err(EvalError::Budget);
        }
        Ok(Self { numerator: n, denominator: d })
    }

    /// The integer, if it is one.
    pub fn to_integer(&self) -> Option<IBig> {
        self.denominator.is_one().then(|| self.numerator.clone())
    }

    fn floor(&self) -> IBig {
        floor_division(&self.numerator, &self.denominator).0
    }

    fn operate(op: &str, a: &Self, b: &Self) -> Result<Self, EvalError> {
        let (an, ad, bn, bd) = (&a.numerator, &a.denominator, &b.numerator, &b.denominator);
        match op {
            "+" => Self::new(an * bd + bn * ad, ad * bd),
            "-" => Self::new(an * bd - bn * ad, ad * bd),
            "*" => Self::new(an * bn, ad * bd),
            "/" => Self::new(an * bd, ad * bn),
            "//" => Ok(Self::from(Self::operate("/", a, b)?.floor())),
            "%" => {
                let whole = Self::operate("//", a, b)?;
                Self::operate("-", a, &Self::operate("*", &whole, b)?)
            }
            _ => {
                if !bd.is_one() {
                    return Err(EvalError::Raised);
                }
                let exponent = i32::try_from(bn).map_err(|_| EvalError::Budget)?;
                let power = exponent.unsigned_abs() as usize;
                let bits = an.bit_len().max(ad.bit_len());
                if bits.checked_mul(power).is_none_or(|b| b > MAX_BITS / 16) {
                    return Err(EvalError::Budget);
                }
                let (n, d) = (an.pow(power), ad.pow(power));
                if exponent < 0 { Self::new(d, n) } else { Self::new(n, d) }
            }
        }
    }
}

const MAX_DEPTH: usize = 200;
const MAX_STEPS: usize = 2000;

/// The exact value of an expression of decimal integers, operators and parentheses.
///
/// # Errors
/// If the text is not such an expression, divides by zero, or is beyond the budget.
pub fn evaluate(text: &str) -> Result<Rational, EvalError> {
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

    fn step(&mut self) -> Result<(), EvalError> {
        self.steps = self.steps.checked_sub(1).ok_or(EvalError::Budget)?;
        Ok(())
    }

    fn sum(&mut self) -> Result<Rational, EvalError> {
        let mut value = self.product()?;
        while let Some(op @ ("+" | "-")) = self.operator() {
            self.at += 1;
            self.step()?;
            value = Rational::operate(op, &value, &self.product()?)?;
        }
        Ok(value)
    }

    fn product(&mut self) -> Result<Rational, EvalError> {
        let mut value = self.signed()?;
        while let Some(op @ ("*" | "/" | "//" | "%")) = self.operator() {
            self.at += op.len();
            self.step()?;
            value = Rational::operate(op, &value, &self.signed()?)?;
        }
        Ok(value)
    }

    fn signed(&mut self) -> Result<Rational, EvalError> {
        let mut negative = false;
        while let Some(op @ ("+" | "-")) = self.operator() {
            self.at += 1;
            self.step()?;
            negative ^= op == "-";
        }
        let value = self.powered()?;
        Ok(if negative { Rational { numerator: -value.numerator, ..value } } else { value })
    }

    fn powered(&mut self) -> Result<Rational, EvalError> {
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
        Rational::operate("**", &base, &exponent)
    }

    fn atom(&mut self) -> Result<Rational, EvalError> {
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
                digits.parse::<IBig>().map(Rational::from).map_err(|_| EvalError::Syntax)
            }
            _ => Err(EvalError::Syntax),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn int(n: i64) -> Rational {
        Rational::from(IBig::from(n))
    }

    #[test]
    fn fractions_are_exact() {
        for (text, wanted) in [
            ("8 / (3 - 8 / 3)", 24),
            ("(2 - 7) % (2 - 7) * 6 / 3", 0),
            ("-7 // 2", -4),
            ("-2 ** 2", -4),
            ("2 ** 3 ** 2", 512),
            ("--5", 5),
        ] {
            assert_eq!(evaluate(text), Ok(int(wanted)), "{text}");
        }
    }

    #[test]
    fn mistakes_and_monsters_are_refused() {
        for text in ["", "1 +", "(1", "1 / (2 - 2)", "1 2", "a", "2 ** (1 / 2)"] {
            assert!(evaluate(text).is_err(), "{text}");
        }
        assert_eq!(evaluate("9**9**9**9"), Err(EvalError::Budget));
        assert_eq!(evaluate(&"(".repeat(1 << 20)), Err(EvalError::Syntax));
        assert_eq!(evaluate(&"-".repeat(1 << 20)), Err(EvalError::Budget));
        assert_eq!(evaluate(&"2**".repeat(1 << 18)), Err(EvalError::Budget));
    }

    proptest! {
        #[test]
        fn never_panics(text in "[0-9+*/%() -]{0,60}") {
            let _ = evaluate(&text);
        }
    }
}
