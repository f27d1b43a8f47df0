//! Whether Python's `json.loads` accepts a text, of any depth: no value is built and no recursion is used.

use crate::synlogic::json::Parser;

/// Whether `json.loads` accepts the text.
pub(crate) fn is_json(text: &str) -> bool {
    is_value(&mut Parser::new(text)).is_some()
}

fn is_value(text: &mut Parser<'_>) -> Option<()> {
    // The ends of the open containers.
    let mut open: Vec<&str> = Vec::new();
    loop {
        // A value begins here.
        text.blanks();
        let mut closed = true;
        if text.word("{") {
            text.blanks();
            if !text.word("}") {
                open.push("}");
                text.key()?;
                closed = false;
            }
        } else if text.word("[") {
            text.blanks();
            if !text.word("]") {
                open.push("]");
                closed = false;
            }
        } else {
            text.scalar()?;
        }
        // What follows a finished value.
        while closed {
            text.blanks();
            let Some(end) = open.last() else { return text.is_at_end().then_some(()) };
            if text.word(",") {
                if *end == "}" {
                    text.key()?;
                }
                closed = false;
            } else if text.word(end) {
                open.pop();
            } else {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_json;

    #[test]
    fn what_python_reads_is_json() {
        for text in [
            "{}",
            "[]",
            " {\"a\": [1, -0, 2.5e-3, 1E400, true, false, null]} \n",
            "\"a\\u00e9\\ud800\"",
            "NaN",
            "[-Infinity, Infinity]",
            "0",
            "\"\u{7f}\"",
            "{\"a\":{\"b\":[]}}",
        ] {
            assert!(is_json(text), "{text}");
        }
    }

    #[test]
    fn what_python_refuses_is_not() {
        for text in [
            "", " ", "{", "[1,]", "{\"a\":1,}", "{a:1}", "{'a':1}", "01", "1.", ".5", "+1", "-", "1 2",
            "\"a\nb\"", "\"\\x\"", "\"\\u12\"", "nul", "[1", "\"", "{\"a\"}", "{\"a\":}", "\u{feff}{}",
            "[1 2]", "{\"a\":1]", "1e", "\u{a0}1",
        ] {
            assert!(!is_json(text), "{text}");
        }
        assert!(!is_json(&"9".repeat(4301)));
        assert!(is_json(&"9".repeat(4300)));
    }

    #[test]
    fn a_megabyte_of_brackets_needs_no_stack() {
        assert!(!is_json(&"[".repeat(1 << 20)));
        assert!(is_json(&format!("{}{}", "[".repeat(1 << 19), "]".repeat(1 << 19))));
    }
}
