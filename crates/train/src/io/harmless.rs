//! Makes text from other programs safe to print in a terminal.

/// Escapes control characters except line ends and tabs, so that the text can't clear, rename or recolour the
/// terminal.
pub fn harmless(text: &str) -> String {
    let shown = |c: char| match c {
        '\n' | '\t' => c.to_string(),
        c if c.is_control() => c.escape_default().collect(),
        c => c.to_string(),
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_for_terminals_are_shown_and_lines_stay() {
        assert_eq!(harmless("a\tb\n\u{1b}[2J\r\u{9b}é"), "a\tb\n\\u{1b}[2J\\r\\u{9b}é");
    }
}
