//! Formats text and numbers for an HTML page.

use minijinja::value::Value;
use serde::{Serialize, Serializer};

/// HTML or SVG that needs no escaping.
#[derive(Debug, Clone, Default)]
pub(crate) struct Markup(pub(crate) String);

impl Serialize for Markup {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Value::from_safe_string(self.0.clone()).serialize(serializer)
    }
}

/// Escapes text for HTML. Control characters, which HTML doesn't allow, become U+FFFD.
pub(crate) fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c if c.is_control() && c != '\n' && c != '\t' => html.push('\u{fffd}'),
            c => html.push(c),
        }
    }
    html
}

/// Formats a number with up to four digits and no trailing zeros, with k and M for thousands and millions.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return value.to_string();
    }
    if size == 0.0 {
        return "0".into();
    }
    let trimmed = |x: f64, digits: usize| {
        let text = format!("{x:.digits$}");
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
    };
    match size {
        s if s >= 1e7 => format!("{}M", trimmed(value / 1e6, 0)),
        s if s >= 1e6 => format!("{}M", trimmed(value / 1e6, 1)),
        s if s >= 1e5 => format!("{}k", trimmed(value / 1e3, 0)),
        s if s >= 1e4 => format!("{}k", trimmed(value / 1e3, 1)),
        s if s >= 100.0 => trimmed(value, 0),
        s if s >= 10.0 => trimmed(value, 1),
        s if s >= 1.0 => trimmed(value, 2),
        s if s >= 1e-3 => trimmed(value, (2.0 - s.log10().floor()) as usize),
        _ => format!("{value:.1e}").replace(".0e", "e"),
    }
    .replace('-', "\u{2212}")
}

/// Formats a fraction as a percentage. From 1 % on it is rounded to 0.1 %, because samples don't resolve more.
pub(crate) fn percent(fraction: f64) -> String {
    let percent = 100.0 * fraction;
    let value = if fraction.abs() >= 0.01 { (10.0 * percent).round() / 10.0 } else { percent };
    format!("{}\u{a0}%", number(value))
}

/// Formats a fraction in percentage points, with one decimal.
pub(crate) fn points(fraction: f64) -> String {
    format!("{:.1}", 100.0 * fraction).replace('-', "\u{2212}")
}

/// Like [`points`], with a sign for positive values too.
pub(crate) fn signed(fraction: f64) -> String {
    let text = points(fraction);
    if fraction > 0.0 && text != "0.0" { format!("+{text}") } else { text }
}

/// Formats a time in seconds since 1970, for example as "2026-11-24 22:50 UTC".
pub(crate) fn date(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|s| chrono::DateTime::from_timestamp(s, 0));
    time.map_or_else(
        || format!("second {seconds} since 1970"),
        |t| t.format("%Y-%m-%d %H:%M UTC").to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_short() {
        let table = [
            (0.0, "0"),
            (1.0, "1"),
            (0.5, "0.5"),
            (12.345, "12.3"),
            (123.45, "123"),
            (1234.5, "1234"),
            (12_345.0, "12.3k"),
            (2_500_000.0, "2.5M"),
            (0.01234, "0.0123"),
            (0.000_001, "1e\u{2212}6"),
            (-0.25, "\u{2212}0.25"),
        ];
        for (value, expected) in table {
            assert_eq!(number(value), expected);
        }
    }

    #[test]
    fn fractions_read_as_percentages_and_points() {
        let words: Vec<String> = [0.0758, 0.5, 1.0, 0.000_25].into_iter().map(percent).collect();
        assert_eq!(words, ["7.6\u{a0}%", "50\u{a0}%", "100\u{a0}%", "0.025\u{a0}%"]);
        assert_eq!([signed(0.031), signed(-0.031), signed(0.0001)], ["+3.1", "\u{2212}3.1", "0.0"]);
    }

    #[test]
    fn escaped_text_has_no_markup_and_no_control_characters() {
        assert_eq!(escape("<a b='\"&'>\u{1b}[0m\n"), "&lt;a b=&#39;&quot;&amp;&#39;&gt;\u{fffd}[0m\n");
    }
}
