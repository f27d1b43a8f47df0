//! Makes strings from files and other programs safe and short enough for messages.

/// Escapes control characters except newlines and tabs, so that the string can't control the terminal.
pub fn harmless(text: &str) -> String {
    let shown = |c: char| match c {
        '\n' | '\t' => c.to_string(),
        c if c.is_control() => c.escape_default().collect(),
        c => c.to_string(),
    };
    text.chars().map(shown).collect()
}

/// Returns the first `length` characters of a string, followed by an ellipsis if the string is longer.
pub fn shortened(text: &str, length: usize) -> String {
    match text.char_indices().nth(length) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_shown_lines_stay_and_long_texts_are_cut() {
        assert_eq!(shortened("é12", 3), "é12");
        assert_eq!(shortened("é123", 3), "é12…");
        assert_eq!(harmless("a\tb\n\u{1b}[2J\r\u{9b}é"), "a\tb\n\\u{1b}[2J\\r\\u{9b}é");
    }
}
