//! Equations for a quantity in a notation that the parser doesn't read: `P(X=2)=\frac12`, `\|v\|=5`, `\det A=-2`.
//!
//! Only one application is a name here; what else can't be read stays unread.

/// Operators of which the argument may stand without parentheses.
const OPERATORS: &[&str] = &["det", "dim", "deg", "max", "min", "sup", "inf", "Pr"];

/// Commands whose group is a name.
const NAMES: &[&str] = &["text", "operatorname", "mathbb", "mathcal", "mathrm"];

/// The first side of an equation and the rest of it, if the first is one application.
pub(super) fn stated(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0usize;
    let at = text.bytes().position(|byte| {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        byte == b'=' && depth == 0
    })?;
    let left = text[..at].trim();
    is_application(left).then_some((left, &text[at + 1..]))
}

fn is_application(text: &str) -> bool {
    let norms = [("\\|", "\\|"), ("|", "|"), ("\\lvert", "\\rvert"), ("\\lVert", "\\rVert")];
    let inside = |(open, close): (&str, &str)| text.strip_prefix(open)?.strip_suffix(close);
    if norms.into_iter().filter_map(inside).any(|inside| !inside.is_empty() && !inside.contains('|')) {
        return true;
    }
    let operator = OPERATORS.iter().find_map(|name| {
        let after = text.strip_prefix('\\')?.strip_prefix(name)?;
        (!after.starts_with(|c: char| c.is_ascii_alphabetic())).then(|| after_scripts(after))
    });
    match operator {
        Some(argument) => argument.chars().count() == 1 || is_group(argument) || is_applied_name(argument),
        None => is_applied_name(text),
    }
}

/// A name, or a composition in parentheses, with its argument.
fn is_applied_name(text: &str) -> bool {
    let letters = text.bytes().take_while(u8::is_ascii_alphabetic).count();
    let command =
        |name: &&str| text.strip_prefix('\\')?.strip_prefix(*name).filter(|rest| rest.starts_with('{'));
    let after = match NAMES.iter().find_map(command) {
        Some(group) => after_group(group),
        None if text.starts_with('(') => after_group(text),
        None => Some(&text[letters..]).filter(|_| letters > 0),
    };
    after.is_some_and(|after| is_group(after_scripts(after)))
}

/// Returns the rest of a string after the indices, exponents and primes at its start.
fn after_scripts(text: &str) -> &str {
    let mut rest = text.trim_start();
    while let Some(script) = rest.strip_prefix(['_', '^']) {
        let after = match script.starts_with('{') {
            true => after_group(script),
            false => script.chars().next().map(|c| &script[c.len_utf8()..]),
        };
        rest = after.unwrap_or_default().trim_start();
    }
    rest
}

fn is_group(text: &str) -> bool {
    text.starts_with(['(', '[']) && after_group(text) == Some("")
}

/// Returns the rest of a string after the group in parentheses, brackets or braces at its start.
fn after_group(text: &str) -> Option<&str> {
    let mut depth = 0usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(&text[at + 1..]);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_application_names_a_value() {
        for (text, wanted) in [
            ("P(X=2)=5", Some(("P(X=2)", "5"))),
            ("\\mathbb{E}[X^2]=5", Some(("\\mathbb{E}[X^2]", "5"))),
            ("\\text{area}(ABC) = 5", Some(("\\text{area}(ABC)", " 5"))),
            ("\\det A=-2", Some(("\\det A", "-2"))),
            ("\\det(A)=-2", Some(("\\det(A)", "-2"))),
            ("\\max_{x} f(x)=5", Some(("\\max_{x} f(x)", "5"))),
            ("\\|v\\|=5", Some(("\\|v\\|", "5"))),
            ("|A \\cup B|=5", Some(("|A \\cup B|", "5"))),
            ("(f \\circ g)(2)=4", Some(("(f \\circ g)(2)", "4"))),
            ("[K:\\mathbb{Q}]=5", None),
            ("P(A)+P(B)=5", None),
            ("P(A)P(B)=5", None),
            ("|A|+|B|=5", None),
            ("2(X=2)=5", None),
            ("x=5", None),
            ("P(X=2)=\\frac24=\\frac12", Some(("P(X=2)", "\\frac24=\\frac12"))),
            ("P(A)=1, P(B=2)=5", Some(("P(A)", "1, P(B=2)=5"))),
            ("\\sqrt(x)=5", None),
            ("(A=2)=5", None),
            ("P(X=2)", None),
            ("=5", None),
        ] {
            assert_eq!(stated(text), wanted, "{text}");
        }
    }
}
