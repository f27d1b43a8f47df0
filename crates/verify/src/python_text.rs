//! Text functions as in Python's `str` and `re`: white space, stripping, splitting, digits of any script.
//!
//! The reference verifiers are Python programs, so Python defines what is blank and what is a digit.

use dashu_int::IBig;
use regex::Regex;

/// Maximum number of digits of an integer that Python parses.
pub(crate) const MAX_DIGITS: usize = 4300;

/// Returns whether Python's `str.isspace` holds: Rust's white space and the four separators U+001C to U+001F.
pub(crate) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Like Python's `str.strip()`.
pub(crate) fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// Like Python's `str.split()`.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(is_space).filter(|w| !w.is_empty())
}

/// Returns the value of a decimal digit of any script (Unicode category Nd, as `str.isdecimal`).
pub(crate) fn decimal(c: char) -> Option<u32> {
    const ZEROS: [u32; 46] = [
        0x30, 0x660, 0x6F0, 0x7C0, 0x966, 0x9E6, 0xA66, 0xAE6, 0xB66, 0xBE6, 0xC66, 0xCE6, 0xD66, 0xDE6,
        0xE50, 0xED0, 0xF20, 0x1040, 0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0, 0x1A80, 0x1A90, 0x1B50, 0x1BB0,
        0x1C40, 0x1C50, 0xA620, 0xA8D0, 0xA900, 0xA9D0, 0xA9F0, 0xAA50, 0xABF0, 0xFF10, 0x1_04A0, 0x1_0D30,
        0x1_1066, 0x1_10F0, 0x1_D7CE, 0x1_D7D8, 0x1_D7E2, 0x1_D7EC, 0x1_D7F6,
    ];
    let code = u32::from(c);
    if code < 0x80 {
        return c.to_digit(10);
    }
    let at = ZEROS.partition_point(|zero| *zero <= code).checked_sub(1)?;
    Some(code - ZEROS[at]).filter(|d| *d < 10)
}

/// Parses in strict mode a whole number without leading zeros, underscores, inner white space or digits of other
/// scripts.
pub(crate) fn plain_int(text: &str) -> Option<IBig> {
    let text = strip(text);
    let digits = text.strip_prefix(['-', '+', '−']).unwrap_or(text);
    let leading_zero = digits.len() > 1 && digits.starts_with('0');
    if leading_zero || digits.len() > MAX_DIGITS || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let magnitude: IBig = digits.parse().ok()?;
    Some(if text.starts_with(['-', '−']) { -magnitude } else { magnitude })
}

/// Like Python's `str.isdigit`: decimal digits, and circled, superscript or subscript digits, for which `int` fails.
pub(crate) fn is_digit(c: char) -> bool {
    decimal(c).is_some()
        || matches!(u32::from(c),
            0xB2 | 0xB3 | 0xB9 | 0x1369..=0x1371 | 0x19DA | 0x2070 | 0x2074..=0x2079 | 0x2080..=0x2089 | 0x2460..=0x2468
            | 0x2474..=0x247C | 0x2488..=0x2490 | 0x24EA | 0x24F5..=0x24FD | 0x24FF | 0x2776..=0x277E | 0x2780..=0x2788
            | 0x278A..=0x2792 | 0x1_0A40..=0x1_0A43 | 0x1_0E60..=0x1_0E68 | 0x1_1052..=0x1_105A | 0x1_F100..=0x1_F10A)
}

/// Compiles a pattern of a reference verifier so that `\s` has Python's meaning.
///
/// # Panics
/// If the pattern is not a regular expression: patterns are constants, and a test compiles each.
pub(crate) fn pattern(source: &str) -> Regex {
    let source = source.replace(r"\s", r"[\s\x1c-\x1f]");
    match Regex::new(&source) {
        Ok(regex) => regex,
        Err(error) => panic!("pattern {source}: {error}"),
    }
}

/// Returns a compiled pattern that is stored in a static.
macro_rules! regex {
    ($source:expr) => {{
        static PATTERN: std::sync::LazyLock<regex::Regex> =
            std::sync::LazyLock::new(|| $crate::python_text::pattern($source));
        &*PATTERN
    }};
}
pub(crate) use regex;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_of_other_scripts_have_values() {
        assert_eq!(decimal('7'), Some(7));
        assert_eq!(decimal('٣'), Some(3));
        assert_eq!(decimal('９'), Some(9));
        assert_eq!(decimal('𝟙'), Some(1));
        assert_eq!(decimal('²'), None);
        assert_eq!(decimal('x'), None);
    }

    #[test]
    fn separators_are_blank_as_in_python() {
        assert_eq!(strip("\u{1c} a\u{a0}b \u{1f}"), "a\u{a0}b");
        assert_eq!(words("a\u{1d}b\u{3000}c").count(), 3);
        assert!(regex!(r"^a\sb[^\s]$").is_match("a\u{1e}bc"));
    }
}
