//! Normalisation of a LaTeX answer before it is parsed: equivalent notations are unified, decorations are dropped, and
//! units at the end are removed.
//!
//! It works on text, not on tokens: whether something is a unit or a decoration depends on the spelling, and only the
//! preceding text distinguishes a one-letter unit from a variable.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use crate::boxed::closing_brace;

/// A text with all matches of a constant pattern replaced.
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

/// Letters that form a unit with any one character after a space (`a .`, `q .` in the wild).
const LETTER_UNITS: &[u8] = b"abcdefghqs";

/// The same with a letter, any character, and `m`.
const DOTTED_METRES: &[&str] = &["p", "a", "sq", "cu"];

/// Text commands that all mean `\text`.
const TEXT_COMMANDS: &[&str] = &["mathrm", "mathbf", "textbf", "textit", "textrm", "textnormal", "mathit"];

/// The answer's text in normal form.
pub(super) fn normalize(raw: &str) -> String {
    let mut text = raw.trim().to_owned();
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text;
    }
    if text.contains('\\') {
        text = latex_spelling(&text);
        // A text without letters is dropped.
        text = replaced!(text, r"\\text\s*\{\s*\}", "");
        if text.contains("\\$") {
            text = text.replace("\\$", "");
        }
    }
    if text.contains('{') && text.contains(',') {
        // A comma in braces separates thousands.
        text = replaced!(text, r"\s*\{\s*,\s*\}", ",");
    }
    if text.contains(['$', '"', '\'']) {
        text.retain(|c| !matches!(c, '$' | '"' | '\''));
    }
    text = connectives(text);
    if text.contains("inf") {
        // Where it isn't the beginning of a command.
        text = replaced!(text, r"\\inf|inf(?:inity)?", |found: &Captures<'_>| {
            if found[0].starts_with('\\') { "\\inf" } else { "\\infty" }
        });
    }
    if text.contains("percent") || text.contains("pct") {
        text = percents(&text);
    }
    text = leading_points(text);
    text = trailing_text(text.trim());
    let units = strip_units(&text).len();
    text.truncate(units);
    if text.contains("sqrt") || text.contains("\\frac") || text.contains("\\log_") {
        text = missing_braces(&text);
    }
    match text.as_str() {
        "0.5" => "\\frac{1}{2}".to_owned(),
        _ => integer_ratio(&text).unwrap_or(text),
    }
}

/// One spelling for commands that differ only in looks.
fn latex_spelling(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        // A doubled backslash before a letter is one that was escaped twice.
        if let Some(after) = rest.strip_prefix('\\') {
            if after.starts_with(|c: char| c.is_ascii_alphabetic()) {
                rest = after;
            } else {
                out.push_str("\\\\");
                rest = after;
                continue;
            }
        }
        let length = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (name, after) = rest.split_at(length);
        if name.is_empty() {
            match after.as_bytes().first() {
                // A thin negative space takes the space after it along.
                Some(b'!') => rest = after[1..].trim_start(),
                Some(b' ') => {
                    out.push(' ');
                    rest = &after[1..];
                }
                _ => {
                    out.push('\\');
                    rest = after;
                    let next = rest.chars().next().map_or(0, char::len_utf8);
                    out.push_str(&rest[..next]);
                    rest = &rest[next..];
                }
            }
            continue;
        }
        rest = after;
        match name {
            "left" | "right" | "displaystyle" => {}
            "ldots" => {
                let kept = out.trim_end().trim_end_matches(',').trim_end().len();
                out.truncate(kept);
                out.push(' ');
            }
            "infinity" => out.push_str("\\infty"),
            "mathrm" if after.starts_with("{d}") => {
                out.push('d');
                rest = &after[3..];
            }
            _ if TEXT_COMMANDS.contains(&name) => {
                out.push_str("\\text");
                // `~` after the brace is a space.
                if let Some(inside) = after.strip_prefix("{~") {
                    out.push_str("{ ");
                    rest = inside;
                }
            }
            _ => {
                out.push('\\');
                match name.strip_prefix(['d', 't', 'c']) {
                    Some(tail) if tail.starts_with("frac") => out.push_str(tail),
                    _ => out.push_str(name),
                }
            }
        }
    }
    out.push_str(rest);
    out
}

/// `and` and `or` become commas, with the `\text` around them and a comma before them.
fn connectives(text: String) -> String {
    if !text.contains("and") && !text.contains("or") {
        return text;
    }
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    let mut at = 0;
    while at < bytes.len() {
        let length = if text.as_bytes()[at..].starts_with(b"and") {
            3
        } else if text.as_bytes()[at..].starts_with(b"or") {
            2
        } else {
            at += 1;
            continue;
        };
        let (start, end) = (at, at + length);
        at = end;
        let is_letter =
            |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphabetic() || *b == b'\\' || *b == b'_');
        if is_letter(start.checked_sub(1).and_then(|i| bytes.get(i))) || is_letter(bytes.get(end)) {
            continue;
        }
        let head = text[copied..start].trim_end();
        let tail = text[end..].trim_start();
        let (head, resume) = match (head.strip_suffix("\\text{"), tail.strip_prefix('}')) {
            (Some(head), Some(tail)) => (head.trim_end(), text.len() - tail.len()),
            _ => (&text[copied..start], end),
        };
        match head.trim_end().strip_suffix(',') {
            Some(head) => out.push_str(head),
            None => out.push_str(head),
        }
        out.push(',');
        copied = resume;
        at = at.max(resume);
    }
    out.push_str(&text[copied..]);
    out
}

/// The words for percent, after a space.
fn percents(text: &str) -> String {
    let mut text = text.to_owned();
    for word in ["percentage", "percent", "pct"] {
        let mut from = 0;
        while let Some(found) = text[from..].find(word) {
            let (start, end) = (from + found, from + found + word.len());
            let head = text[..start].trim_end().len();
            let ends_here = !text[end..].starts_with(|c: char| c.is_ascii_alphanumeric());
            if head < start && head > 0 && ends_here {
                text.replace_range(head..end, "\\%");
                from = head;
            } else {
                from = end;
            }
        }
    }
    text
}

/// A point without a digit before it gets a zero, at the start, after a space and after a brace.
fn leading_points(text: String) -> String {
    let mut text = text;
    for opening in [" ", "{"] {
        let from = format!("{opening}.");
        if text.contains(&from) {
            text = text.replace(&from, &format!("{opening}0."));
        }
    }
    if text.starts_with('.') {
        text.insert(0, '0');
    }
    text
}

/// Drops a `\text{..}` that ends the answer, together with an exponent after it.
fn trailing_text(text: &str) -> String {
    let Some(tail) = text_tail(text) else { return text.to_owned() };
    for (at, _) in text.match_indices('\\') {
        if text[at..].starts_with("\\text{") || text[at..].starts_with("\\mbox{") {
            // A text that starts the answer is the answer.
            if text[..at].trim().is_empty() || tail < at {
                break;
            }
            return text[..at].trim_end().to_owned();
        }
    }
    text.to_owned()
}

/// The position of the closing brace that ends the answer, if there is one, ignoring an exponent of one digit.
fn text_tail(text: &str) -> Option<usize> {
    let trimmed = text.trim_end();
    if trimmed.ends_with('}') {
        return Some(trimmed.len() - 1);
    }
    let bytes = trimmed.as_bytes();
    match bytes {
        [.., b'}', b'^', digit] if digit.is_ascii_digit() => Some(trimmed.len() - 3),
        _ => None,
    }
}

/// The answer without the units that end it; two at most.
fn strip_units(text: &str) -> &str {
    let mut text = text.trim_end();
    for _ in 0..2 {
        match strip_unit(text) {
            Some(shorter) => text = shorter.trim_end(),
            None => break,
        }
    }
    text
}

fn strip_unit(text: &str) -> Option<&str> {
    let last = text.chars().next_back()?;
    let mut best: Option<&str> = None;
    let mut consider = |head: Option<&'_ str>| {
        if let Some(head) = head.filter(|head| may_precede_unit(head)) {
            let length = head.trim_end().len();
            if best.is_none_or(|current| length < current.len()) {
                best = Some(&text[..length]);
            }
        }
    };
    if last.is_ascii_alphanumeric() {
        for unit in UNITS {
            consider(text.strip_suffix(unit));
            if let Some(singular) = text.strip_suffix('s') {
                consider(singular.trim_end().strip_suffix(unit));
            }
        }
        for letters in DOTTED_METRES {
            consider(dotted_metre(text, letters));
        }
    }
    // A letter, a space, and any one character.
    let without_last = &text[..text.len() - last.len_utf8()];
    if let Some(head) = without_last.strip_suffix(' ')
        && head.as_bytes().last().is_some_and(|letter| LETTER_UNITS.contains(letter))
    {
        consider(head.get(..head.len() - 1));
    }
    best
}

fn dotted_metre<'a>(text: &'a str, letters: &str) -> Option<&'a str> {
    let head = text.strip_suffix(" m")?;
    let last = head.chars().next_back()?;
    head[..head.len() - last.len_utf8()].strip_suffix(' ')?.strip_suffix(letters)
}

fn may_precede_unit(head: &str) -> bool {
    head.chars().next_back().is_some_and(|c| c.is_ascii_digit() || c == '}' || c.is_whitespace())
        && !head.trim().is_empty()
}

/// Inserts omitted braces: `\frac12`, `\sqrt3`, `\log_28`, `sqrt(3)`.
pub(super) fn missing_braces(text: &str) -> String {
    let mut text = text.to_owned();
    if text.contains("sqrt(") || text.contains("sqrt (") {
        text = replaced!(text, r"sqrt\s*\(([^)]*)\)", "\\sqrt{$1}");
    }
    if text.contains("\\frac") {
        text = bare_fractions(&text);
    }
    if text.contains("\\sqrt") {
        text = replaced!(text, r"\\sqrt\s*([\p{Alphabetic}\p{N}])?", |found: &Captures<'_>| {
            found.get(1).map_or("\\sqrt".to_owned(), |first| format!("\\sqrt{{{}}}", first.as_str()))
        });
    }
    if text.contains("\\log_") {
        // `\log_28` is the logarithm of 8 to base 2.
        text = replaced!(text, r"\\log_([0-9])\s*([0-9]+)", "\\log_{$1}{$2}");
    }
    text
}

fn bare_fractions(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let mut parts = text.split("\\frac");
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        out.push_str("\\frac");
        let body = part.trim_start();
        let mut rest = body;
        if !rest.starts_with('{') {
            let Some(first) = rest.chars().next() else { continue };
            if !first.is_alphanumeric() {
                out.push_str(part);
                continue;
            }
            out.push('{');
            out.push(first);
            out.push('}');
            rest = &rest[first.len_utf8()..];
            // The denominator: a group, a letter, or the digits that follow.
            let denominator = rest.trim_start();
            if denominator.starts_with('{') || denominator.is_empty() || denominator.starts_with('\\') {
                out.push_str(denominator);
                continue;
            }
            let digits = denominator.bytes().take_while(u8::is_ascii_digit).count();
            let length = digits.max(denominator.chars().next().map_or(0, char::len_utf8));
            out.push('{');
            out.push_str(&denominator[..length]);
            out.push('}');
            out.push_str(&denominator[length..]);
            continue;
        }
        // A numerator in braces and one digit after it.
        match closing_brace(rest, 0).map(|close| close + 1) {
            Some(end) => {
                let denominator = rest[end..].trim_start();
                if denominator.as_bytes().first().is_some_and(u8::is_ascii_digit) {
                    out.push_str(&rest[..end]);
                    out.push('{');
                    out.push_str(&denominator[..1]);
                    out.push('}');
                    out.push_str(&denominator[1..]);
                } else {
                    out.push_str(rest);
                }
            }
            None => out.push_str(rest),
        }
    }
    out
}

/// `a/b` of two integers is a fraction.
fn integer_ratio(text: &str) -> Option<String> {
    let (numerator, denominator) = text.split_once('/')?;
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let unsigned = numerator.strip_prefix('-').unwrap_or(numerator);
    (digits(unsigned) && digits(denominator)).then(|| format!("\\frac{{{numerator}}}{{{denominator}}}"))
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
