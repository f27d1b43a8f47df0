//! Expressions written without LaTeX: digits, points, the four operations, powers and parentheses.

use dashu_int::IBig;
use dashu_ratio::RBig;

use super::budget::{Exhausted, Fuel, MAX_DEPTH, MAX_DIGITS, ParseError};
use super::exact;
use super::expr::{Expr, Function};
use super::lexer::scaled;

/// Parses an expression without LaTeX.
pub(super) fn parse(text: &str) -> Result<Expr, ParseError> {
    read(text, false)
}

/// Computes the exact value of arithmetic as Python writes it: whole numbers, parentheses and `+ - * / // % **`, where
/// exponents are whole. `None` if it is undefined.
pub(crate) fn exact_value(text: &str) -> Result<Option<RBig>, ParseError> {
    if text.contains(['^', '.']) {
        return Err(ParseError::Syntax);
    }
    value_of(&read(text, true)?)
}

fn value_of(expr: &Expr) -> Result<Option<RBig>, ParseError> {
    exact::rational(expr, &mut Fuel::new()).map_err(|Exhausted| ParseError::Budget)
}

fn read(text: &str, python: bool) -> Result<Expr, ParseError> {
    let mut parser = Plain { bytes: text.as_bytes(), at: 0, depth: 0, python };
    let value = parser.sum()?;
    parser.skip();
    if parser.at == parser.bytes.len() { Ok(value) } else { Err(ParseError::Syntax) }
}

/// Parses the digits of a number, from which thousands separators or a decimal comma were removed.
pub(super) fn number(whole: &str, fraction: &str) -> Result<Expr, ParseError> {
    if whole.len() + fraction.len() > MAX_DIGITS {
        return Err(ParseError::Budget);
    }
    let number = literal(whole.strip_prefix('-').unwrap_or(whole), Some(fraction).filter(|f| !f.is_empty()))?;
    Ok(if whole.starts_with('-') { number.negated() } else { number })
}

/// Returns the number with these digits. It is a decimal if `fraction` is given, even if empty.
fn literal(whole: &str, fraction: Option<&str>) -> Result<Expr, ParseError> {
    let digits: String =
        "0".chars().chain(whole.chars()).chain(fraction.unwrap_or_default().chars()).collect();
    let mantissa = IBig::from_str_radix(&digits, 10).map_err(|_| ParseError::Syntax)?;
    Ok(match fraction {
        Some(fraction) => Expr::Decimal(scaled(mantissa, -(fraction.len() as i64)), 0),
        None => Expr::Number(RBig::from(mantissa)),
    })
}

struct Plain<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    /// Whether `//` and `%` are operators and exponents must be whole.
    python: bool,
}

impl<'a> Plain<'a> {
    fn skip(&mut self) {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    fn peek(&mut self) -> Option<u8> {
        self.skip();
        self.bytes.get(self.at).copied()
    }

    fn accept(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn nested<T>(
        &mut self,
        inside: impl FnOnce(&mut Self) -> Result<T, ParseError>,
    ) -> Result<T, ParseError> {
        if self.depth >= MAX_DEPTH {
            return Err(ParseError::Budget);
        }
        self.depth += 1;
        let result = inside(self);
        self.depth -= 1;
        result
    }

    fn sum(&mut self) -> Result<Expr, ParseError> {
        let first = self.product()?;
        let mut terms = vec![first];
        loop {
            if self.accept(b'+') {
                terms.push(self.product()?);
            } else if self.accept(b'-') {
                terms.push(Expr::Mul(vec![Expr::integer(-1), self.product()?]));
            } else {
                break;
            }
            if terms.len() > 4096 {
                return Err(ParseError::Budget);
            }
        }
        Ok(if terms.len() == 1 { terms.swap_remove(0) } else { Expr::Add(terms) })
    }

    fn product(&mut self) -> Result<Expr, ParseError> {
        let mut factors = vec![self.unary()?];
        let joined = |mut all: Vec<Expr>| if all.len() == 1 { all.swap_remove(0) } else { Expr::Mul(all) };
        loop {
            let (operator, next) = (self.peek(), self.bytes.get(self.at + 1).copied());
            match (operator, next == operator) {
                (Some(b'*'), false) => {
                    self.at += 1;
                    factors.push(self.unary()?);
                }
                (Some(b'/'), false) => {
                    self.at += 1;
                    factors.push(self.unary()?.inverse());
                }
                (Some(operator @ (b'/' | b'%')), doubled) if self.python => {
                    self.at += if operator == b'/' { 1 + usize::from(doubled) } else { 1 };
                    // Each operator adds a level to the tree.
                    self.depth += 1;
                    let (value, divisor) = (joined(factors), self.unary()?);
                    factors = vec![match operator {
                        b'%' => Expr::Call(Function::Mod, vec![value, divisor]),
                        _ => Expr::Call(Function::Floor, vec![Expr::Mul(vec![value, divisor.inverse()])]),
                    }];
                }
                (Some(b'/'), true) => return Err(ParseError::Syntax),
                _ => return Ok(joined(factors)),
            }
        }
    }

    fn unary(&mut self) -> Result<Expr, ParseError> {
        self.nested(|parser| {
            if parser.accept(b'-') {
                return Ok(parser.unary()?.negated());
            }
            if parser.accept(b'+') {
                return parser.unary();
            }
            let base = parser.atom()?;
            let doubled = parser.peek() == Some(b'*') && parser.bytes.get(parser.at + 1) == Some(&b'*');
            if doubled {
                parser.at += 2;
            } else if !parser.accept(b'^') {
                return Ok(base);
            }
            let exponent = parser.unary()?;
            let whole = !parser.python || value_of(&exponent)?.is_some_and(|exponent| exponent.is_int());
            if whole { Ok(Expr::pow(base, exponent)) } else { Err(ParseError::Syntax) }
        })
    }

    fn atom(&mut self) -> Result<Expr, ParseError> {
        if self.accept(b'(') {
            let value = self.nested(Self::sum)?;
            return if self.accept(b')') { Ok(value) } else { Err(ParseError::Syntax) };
        }
        self.skip();
        let whole = self.digits();
        let fraction = if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            Some(self.digits())
        } else {
            None
        };
        let length = whole.len() + fraction.map_or(0, str::len);
        if length == 0 || length > MAX_DIGITS { Err(ParseError::Syntax) } else { literal(whole, fraction) }
    }

    fn digits(&mut self) -> &'a str {
        let rest = &self.bytes[self.at..];
        let digits = &rest[..rest.iter().take_while(|b| b.is_ascii_digit()).count()];
        self.at += digits.len();
        std::str::from_utf8(digits).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_follow_their_precedence() {
        for (text, numerator, denominator) in [
            ("1+2*3", 7, 1u8),
            ("-(1+2)*3", -9, 1),
            ("2^3^2", 512, 1),
            ("2**-1", 1, 2),
            ("1/2/3", 1, 6),
            ("-2^2", -4, 1),
            ("1.5 - .5", 1, 1),
            ("1/-2", -1, 2),
        ] {
            let value = exact::rational(&parse(text).unwrap(), &mut Fuel::new()).unwrap();
            assert_eq!(value, Some(RBig::from_parts(numerator.into(), denominator.into())), "{text}");
        }
        for text in ["1 2", "(1)(2)", "5**", "5×6", "", "(", "1//2"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
