//! Keeps numbers in JSON exact: a number that neither a 64-bit integer nor a double can represent becomes a marked string.

use crate::io::json;
use serde_json::Value;
use std::borrow::Cow;
use std::cmp::Ordering;

/// Prefix of a string that represents a number, also defined in `code.py`. Valid text never contains its first character.
pub(super) const MARK: &str = "\u{fdd0}number:";

/// Returns whether a JSON text contains the first character of [`MARK`], escaped or not.
pub(super) fn has_mark(text: &str) -> bool {
    text.contains('\u{fdd0}') || text.contains("\\u") && text.to_ascii_lowercase().contains("\\ufdd0")
}

/// Replaces each number of a JSON text that would lose digits by a marked string.
pub(super) fn marked(text: &[u8]) -> Cow<'_, [u8]> {
    json::with_tokens(text, |token| {
        let token = std::str::from_utf8(token).ok().filter(|token| loses_digits(token))?;
        Some(format!("\"{MARK}{token}\"").into_bytes())
    })
}

/// Parses a string that contains JSON or a Python literal, and marks its long numbers. Other values are returned unchanged.
pub(super) fn structured(value: &Value) -> Value {
    let text = value.as_str().filter(|text| text.trim_start().starts_with(['[', '{']));
    let parsed = text.and_then(|text| serde_json::from_slice(&marked(text.as_bytes())).ok());
    parsed.unwrap_or_else(|| crate::row::structured(value))
}

/// Returns whether a number is an integer that doesn't fit in 64 bits, or a decimal that differs from the nearest double.
fn loses_digits(token: &str) -> bool {
    if !token.contains(['.', 'e', 'E']) {
        return token.parse::<u64>().is_err()
            && token.parse::<i64>().is_err()
            && token.starts_with(|c: char| c == '-' || c.is_ascii_digit());
    }
    let Ok(nearest) = token.parse::<f64>() else { return false };
    Decimal::parse(token).is_some_and(|exact| Some(exact) != Decimal::parse(&nearest.to_string()))
}

/// A decimal number of any length: `0.digits * 10^exponent`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decimal {
    negative: bool,
    /// Digits without leading and trailing zeros. The string is empty for the number 0.
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// Returns the value of a JSON number, marked or not.
    pub(super) fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Number(number) => Self::parse(&number.to_string()),
            Value::String(text) => Self::parse(text.strip_prefix(MARK)?),
            _ => None,
        }
    }

    fn parse(token: &str) -> Option<Self> {
        let (negative, token) = token.strip_prefix('-').map_or((false, token), |rest| (true, rest));
        let (mantissa, exponent) = token.split_once(['e', 'E']).unwrap_or((token, "0"));
        let (whole, decimals) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = [whole, decimals].concat();
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let significant = digits.trim_start_matches('0');
        let zeros = (digits.len() - significant.len()) as i64;
        let digits = significant.trim_end_matches('0').to_owned();
        let exponent = if digits.is_empty() {
            0
        } else {
            exponent.parse::<i64>().ok()?.saturating_add(whole.len() as i64 - zeros)
        };
        Some(Self { negative: negative && !digits.is_empty(), digits, exponent })
    }

    /// Returns whether the number is an integer.
    pub(super) fn is_whole(&self) -> bool {
        self.digits.len() as i64 <= self.exponent || self.digits.is_empty()
    }

    /// Whether the number is an integer multiple of the divisor. A divisor of more than 19 digits divides only zero.
    pub(super) fn is_multiple_of(&self, divisor: &Self) -> bool {
        let Ok(by) = divisor.digits.parse::<u64>().map(u128::from) else { return self.digits.is_empty() };
        let last = |number: &Self| number.exponent - number.digits.len() as i64;
        // As the last digit isn't zero, a divisor whose last digit has a higher place doesn't divide.
        let zeros = last(self) - last(divisor);
        if self.digits.is_empty() || by == 0 || zeros < 0 {
            return self.digits.is_empty();
        }
        let rest = self.digits.bytes().fold(0, |rest, digit| (10 * rest + u128::from(digit - b'0')) % by);
        // 10^64 contains every power of 2 and 5 that can divide a 64-bit number.
        (0..zeros.min(64)).fold(rest, |rest, _| 10 * rest % by) == 0
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        let sign = |x: &Self| if x.digits.is_empty() { 0 } else { 1 - 2 * i8::from(x.negative) };
        let size = (self.exponent, &self.digits).cmp(&(other.exponent, &other.digits));
        sign(self).cmp(&sign(other)).then(if self.negative { size.reverse() } else { size })
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_ordered_by_their_values() {
        let decimal = |token: &str| Decimal::parse(token).unwrap();
        let ascending = [
            "-1e400",
            "-18446744073709551619",
            "-2",
            "-1.5",
            "-0.1",
            "0",
            "1e-400",
            "0.09",
            "0.1",
            "0.10000000000000000001",
            "1",
            "1.5",
            "2",
            "10",
            "18446744073709551618",
            "18446744073709551619",
            "1e20",
            "1e400",
        ];
        for pair in ascending.windows(2) {
            assert!(decimal(pair[0]) < decimal(pair[1]), "{pair:?}");
        }
        for (one, two) in [("100", "1e2"), ("1.50", "15E-1"), ("-0", "0.0"), ("0e9", "0"), ("1e+2", "100.0")]
        {
            assert_eq!(decimal(one), decimal(two));
        }
        for (number, divisor, expected) in [
            ("100000000000000000000000010", "10", true),
            ("100000000000000000000000011", "10", false),
            ("1e400", "8", true),
            ("0.3", "0.1", true),
            ("0.35", "0.1", false),
            ("0", "7", true),
            ("7.5", "2.5", true),
            ("10", "4", false),
        ] {
            assert_eq!(decimal(number).is_multiple_of(&decimal(divisor)), expected, "{number} {divisor}");
        }
        assert!(
            decimal("1e2").is_whole()
                && decimal("1.0").is_whole()
                && !decimal("1.5").is_whole()
                && decimal("0").is_whole()
        );
    }

    #[test]
    fn numbers_that_lose_digits_are_marked() {
        for token in [
            "18446744073709551616",
            "-9223372036854775809",
            "100000000000000000000",
            "1e400",
            "0.1000000000000000000001",
            "1.00000000000000000001",
        ] {
            assert!(loses_digits(token), "{token}");
        }
        for token in [
            "18446744073709551615",
            "-9223372036854775808",
            "1e20",
            "0.1",
            "0.30000000000000004",
            "1e-7",
            "-0.0",
        ] {
            assert!(!loses_digits(token), "{token}");
        }
    }
}
