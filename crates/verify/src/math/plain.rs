//! Expressions written without LaTeX: digits, points, the four operations, powers and parentheses.

use dashu_int::IBig;
use dashu_ratio::RBig;

use super::budget::{MAX_DEPTH, MAX_DIGITS, ParseError};
use super::expr::Expr;
use super::lexer::scaled;

/// Parses such an expression.
pub(super) fn parse(text: &str) -> Result<Expr, ParseError> {
    let mut parser = Plain { bytes: text.as_bytes(), at: 0, depth: 0 };
    let value = parser.sum()?;
    parser.skip();
    if parser.at == parser.bytes.len() { Ok(value) } else { Err(ParseError::Syntax) }
}

/// A number with thousands separators removed already, or with a decimal comma.
pub(super) fn number(whole: &str, fraction: &str) -> Result<Expr, ParseError> {
    if whole.len() + fraction.len() > MAX_DIGITS {
        return Err(ParseError::Budget);
    }
    let (negative, digits) = match whole.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, whole),
    };
    let literal: String = std::iter::once('0')
        .chain(digits.chars().filter(char::is_ascii_digit))
        .chain(fraction.chars())
        .collect();
    let mantissa = IBig::from_str_radix(&literal, 10).map_err(|_| ParseError::Syntax)?;
    let mantissa = if negative { -mantissa } else { mantissa };
    Ok(if fraction.is_empty() {
        Expr::Number(RBig::from(mantissa))
    } else {
        Expr::Decimal(scaled(mantissa, -(fraction.len() as i64)), 0)
    })
}

struct Plain<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
}

impl Plain<'_> {
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
        loop {
            let doubled = self.peek() == Some(b'*') && self.bytes.get(self.at + 1) == Some(&b'*');
            if !doubled && self.accept(b'*') {
                factors.push(self.unary()?);
            } else if self.accept(b'/') {
                if self.peek() == Some(b'/') {
                    return Err(ParseError::Syntax);
                }
                factors.push(self.unary()?.inverse());
            } else {
                return Ok(if factors.len() == 1 { factors.swap_remove(0) } else { Expr::Mul(factors) });
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
            Ok(Expr::pow(base, parser.unary()?))
        })
    }

    fn atom(&mut self) -> Result<Expr, ParseError> {
        if self.accept(b'(') {
            let value = self.nested(Self::sum)?;
            return if self.accept(b')') { Ok(value) } else { Err(ParseError::Syntax) };
        }
        self.skip();
        let digits = |from: usize| self.bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
        let whole = digits(self.at);
        let mut end = self.at + whole;
        let mut fraction = 0;
        let point = self.bytes.get(end) == Some(&b'.');
        if point {
            fraction = digits(end + 1);
            end += 1 + fraction;
        }
        if whole + fraction == 0 || whole + fraction > MAX_DIGITS {
            return Err(ParseError::Syntax);
        }
        let literal: String =
            self.bytes[self.at..end].iter().filter(|b| **b != b'.').map(|b| char::from(*b)).collect();
        self.at = end;
        let mantissa = IBig::from_str_radix(&literal, 10).map_err(|_| ParseError::Syntax)?;
        Ok(if point {
            Expr::Decimal(scaled(mantissa, -(fraction as i64)), 0)
        } else {
            Expr::Number(RBig::from(mantissa))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::budget::Fuel;
    use crate::math::exact;

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
