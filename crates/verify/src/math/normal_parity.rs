//! Normalisation of a LaTeX answer before it is parsed: equivalent notations are unified, decorations are dropped, and
//! units at the end are removed.
//!
//! This module works on text, not on tokens: whether something is a unit or a decoration depends on the spelling, and
//! only the preceding text distinguishes a one-letter unit from a variable.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use crate::boxed::closing;
use crate::python_text::regex;

/// Replaces all matches of a constant pattern in a string.
macro_rules! replaced {
    ($text:expr, $pattern:literal, $with:expr) => {{
        static PATTERN: LazyLock<Regex> = LazyLock::new(|| Regex::new($pattern).expect("a constant pattern"));
        PATTERN.replace_all(&$text, $with).into_owned()
    }};
}

/// Units and unit-like words that may end an answer. The longest match is removed, with or without a plural `s`.
const UNITS: &[&str] = &[
    "ab", "acre", "am", "apple", "bc", "by", "c", "cent", "cm", "coin", "cubic", "cube", "d", "day", "deg",
    "degree", "digit", "dm", "east", "edge", "excess", "feet", "ft", "g", "gain", "gal", "gallon", "gm", "h",
    "hour", "hr", "inch", "inches", "kg", "km", "kmh", "kmph", "l", "lb", "liter", "litre", "lt", "m",
    "mark", "men", "meter", "metre", "mile", "min", "minute", "minw", "mm", "monkey", "month", "mph", "noon",
    "no change", "number", "o", "ohm", "per", "pie", "pm", "pound", "prime", "profit", "profit of rs",
    "ratio", "rd", "rise", "rs", "rupee", "s", "sec", "second", "soldier", "sq", "square", "st", "student",
    "t", "th", "tile", "toy", "unit", "way", "west", "women", "yard", "year", "yr", "m square", "sq m",
    "cubic cm", "π r 2", "° f",
];

/// Text commands that all mean `\text`.
const TEXT_COMMANDS: &[&str] = &["mathrm", "mathbf", "textbf", "textit", "textrm", "textnormal", "mathit"];

/// Returns the answer's text in normal form.
pub(super) fn normalize(raw: &str) -> String {
    let text = raw.trim();
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.to_owned();
    }
    let text = latex_spelling(text);
    // Empty `\text{}`, dollar signs and quotes are removed.
    let text = replaced!(text, r#"\\text\s*\{\s*\}|\\\$|[$"']"#, "");
    // A comma in braces separates thousands.
    let text = replaced!(text, r"\s*\{\s*,\s*\}", ",");
    // `and` and `or` become commas, with the `\text` around them and a comma before them.
    let text = replaced!(text, r",?\s*\\text\{\s*(?:and|or)\s*\}", ",");
    let text = replaced!(text, r"(?:,\s*)?([A-Za-z\\_]+)", |found: &Captures<'_>| {
        if matches!(&found[1], "and" | "or") { "," } else { &found[0] }.to_owned()
    });
    // Where it isn't the beginning of a command.
    let text = replaced!(text, r"\\inf|inf(?:inity)?", |found: &Captures<'_>| {
        if found[0].starts_with('\\') { "\\inf" } else { "\\infty" }
    });
    let text = replaced!(text, r"(\S)\s+(?:percentage|percent|pct)\b", r"$1\%");
    // A point without a digit before it gets a zero.
    let text = replaced!(text, r"(^|[ {])\.", "${1}0.");
    let text = missing_braces(without_units(without_text(text.trim())));
    match text.as_str() {
        "0.5" => "\\frac{1}{2}".to_owned(),
        _ => replaced!(text, r"^(-?[0-9]+)/([0-9]+)$", r"\frac{$1}{$2}"),
    }
}

/// Unifies commands that differ only in looks.
fn latex_spelling(text: &str) -> String {
    // A doubled backslash before a letter is one that was escaped twice. A thin negative space takes the space after it
    // along.
    let text = replaced!(text, r"\\{1,2}([A-Za-z]+)(\{~|\{d\})?|\\\\|\\!\s*|\\ ", |found: &Captures<'_>| {
        let Some(name) = found.get(1).map(|name| name.as_str()) else {
            return match &found[0] {
                r"\\" => r"\\",
                r"\ " => " ",
                _ => "",
            }
            .to_owned();
        };
        let group = found.get(2).map_or("", |group| group.as_str());
        match name {
            "left" | "right" | "displaystyle" => group.to_owned(),
            "infinity" => format!("\\infty{group}"),
            "mathrm" if group == "{d}" => "d".to_owned(),
            _ if TEXT_COMMANDS.contains(&name) => format!("\\text{}", group.replace('~', " ")),
            _ => {
                let fraction = name.strip_prefix(['d', 't', 'c']).filter(|tail| tail.starts_with("frac"));
                format!("\\{}{group}", fraction.unwrap_or(name))
            }
        }
    });
    // Dots go with the comma before them.
    replaced!(text, r"\s*,*\s*\\ldots([^A-Za-z]|$)", " $1")
}

/// Removes a `\text{..}` at the end of the answer, with the exponent after it, unless the answer consists of nothing else.
fn without_text(text: &str) -> &str {
    let last = regex!(r"(?s)\\(?:text|mbox)\{.*\}(?:\^[0-9])?$").find(text);
    let before = last.map_or("", |found| text[..found.start()].trim_end());
    if before.is_empty() { text } else { before }
}

/// Removes up to two units at the end of the answer. A unit is in [`UNITS`], or an abbreviation such as `p . m`, in which
/// any character may replace the period.
fn without_units(text: &str) -> &str {
    let pattern = regex!(&format!(
        r"(?s)^(.*?(?:[0-9}}]|\S\s))\s*(?:(?:{})(?:\s*s)?|(?:p|a|sq|cu) . m|[a-hqs] .)$",
        UNITS.join("|")
    ));
    let value = |text: &str| pattern.captures(text).map_or(text.len(), |found| found[1].trim_end().len());
    let text = text.trim_end();
    let text = &text[..value(text)];
    &text[..value(text)]
}

/// Inserts omitted braces: `\frac12`, `\sqrt3`, `\log_28`, `sqrt(3)`.
fn missing_braces(text: &str) -> String {
    let text = replaced!(text, r"sqrt\s*\(([^)]*)\)", "\\sqrt{$1}");
    let text = bare_fractions(&text);
    let text = replaced!(text, r"\\sqrt\s+", "\\sqrt");
    let text = replaced!(text, r"\\sqrt([\p{Alphabetic}\p{N}])", "\\sqrt{$1}");
    // `\log_28` is the logarithm of 8 to base 2.
    replaced!(text, r"\\log_([0-9])\s*([0-9]+)", "\\log_{$1}{$2}")
}

fn bare_fractions(text: &str) -> String {
    // The denominator: a group, a command, a letter, or the digits that follow.
    let text =
        replaced!(text, r"\\frac\s*([\p{Alphabetic}\p{N}])\s*([0-9]+|[^{\\])?", |found: &Captures<'_>| {
            let denominator = found.get(2).map(|found| format!("{{{}}}", found.as_str()));
            format!("\\frac{{{}}}{}", &found[1], denominator.unwrap_or_default())
        });
    // A numerator in braces and one digit after it.
    let mut parts = text.split("\\frac");
    let before = parts.next().unwrap_or_default().to_owned();
    parts.fold(before, |before, part| {
        let part = part.trim_start();
        let close = part.starts_with('{').then(|| closing(part, 0, b"{}")).flatten();
        let end = close.map_or(0, |close| close + 1);
        let denominator = replaced!(&part[end..], r"^\s*([0-9])", "{$1}");
        format!("{before}\\frac{}{denominator}", &part[..end])
    })
}

#[cfg(test)]
mod tests {
    use super::normalize;

    #[test]
    fn units_decorations_and_connectives_are_normalised() {
        for (raw, wanted) in [
            ("3 cm", "3"),
            ("3cm", "3"),
            ("3 square meters", "3"),
            ("xt", "xt"),
            ("x+m", "x+m"),
            ("\\sqrt{2}m", "\\sqrt{2}"),
            ("3 cm cm cm", "3 cm"),
            ("2 a z", "2"),
            ("2 profit of rs", "2"),
            ("m", "m"),
            ("12 \\text{ cm}^2", "12"),
            ("x_{\\text{max}}", "x_{"),
            ("\\text{B, E, G}", "\\text{B, E, G}"),
            ("5 \\text{ (units)}", "5"),
            ("7 \\text{ or } 8", "7, 8"),
            ("1and2", "1,2"),
            ("1orW", "1orW"),
            ("band", "band"),
            ("1, and 2", "1, 2"),
            ("\\dfrac12", "\\frac{1}{2}"),
            ("\\frac34x", "\\frac{3}{4}x"),
            ("\\frac{x}23", "\\frac{x}{2}3"),
            ("\\frac1{72}", "\\frac{1}{72}"),
            ("\\sqrt3x", "\\sqrt{3}x"),
            ("sqrt(3)", "\\sqrt{3}"),
            ("\\log_2 16", "\\log_{2}{16}"),
            (".5", "\\frac{1}{2}"),
            ("-1/2", "\\frac{-1}{2}"),
            ("3 percent", "3\\%"),
            ("\\$3.54", "3.54"),
            ("34,\\!650", "34,650"),
            ("14{,}916", "14,916"),
            ("[0,inf)", "[0,\\infty)"),
            ("\\left(1,2\\right)", "(1,2)"),
            ("\\leftarrow", "\\leftarrow"),
            ("x\\\\y", "x\\y"),
            ("5 \\mathrm{~cm}", "5"),
            ("\\text{ }1917\\text{ cm}", "1917"),
            ("\\text{}5\\text{ }", "5"),
            ("x\\,\\mathrm{d}x", "x\\,dx"),
        ] {
            assert_eq!(normalize(raw), wanted, "{raw}");
        }
    }
}
