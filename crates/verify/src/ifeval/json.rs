//! Whether Python's `json.loads` accepts a text: `NaN` and the infinities are values, control characters in strings are
//! not, lone surrogates are allowed, an integer of more than 4,300 digits is refused. No value is built and no
//! recursion is used.

/// CPython's limit on the digits of an integer read from a string.
const MOST_DIGITS: usize = 4300;

/// Whether `json.loads` accepts the text.
pub(crate) fn is_json(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    // One entry for each open container: true for an object.
    let mut open: Vec<bool> = Vec::new();
    loop {
        // A value begins here.
        white(bytes, &mut at);
        let mut closed = match bytes.get(at) {
            Some(b'{') => {
                at += 1;
                white(bytes, &mut at);
                if bytes.get(at) == Some(&b'}') {
                    at += 1;
                    true
                } else {
                    open.push(true);
                    if !key(bytes, &mut at) {
                        return false;
                    }
                    false
                }
            }
            Some(b'[') => {
                at += 1;
                white(bytes, &mut at);
                if bytes.get(at) == Some(&b']') {
                    at += 1;
                    true
                } else {
                    open.push(false);
                    false
                }
            }
            Some(b'"') => {
                if !string(bytes, &mut at) {
                    return false;
                }
                true
            }
            Some(_) => {
                if !scalar(bytes, &mut at) {
                    return false;
                }
                true
            }
            None => return false,
        };
        // What follows a finished value.
        while closed {
            white(bytes, &mut at);
            let Some(&object) = open.last() else { return at == bytes.len() };
            match (bytes.get(at), object) {
                (Some(b','), true) => {
                    at += 1;
                    white(bytes, &mut at);
                    if !key(bytes, &mut at) {
                        return false;
                    }
                    closed = false;
                }
                (Some(b','), false) => {
                    at += 1;
                    closed = false;
                }
                (Some(b'}'), true) | (Some(b']'), false) => {
                    at += 1;
                    open.pop();
                }
                _ => return false,
            }
        }
    }
}

fn white(bytes: &[u8], at: &mut usize) {
    while matches!(bytes.get(*at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
        *at += 1;
    }
}

/// A key and its colon.
fn key(bytes: &[u8], at: &mut usize) -> bool {
    if bytes.get(*at) != Some(&b'"') || !string(bytes, at) {
        return false;
    }
    white(bytes, at);
    let colon = bytes.get(*at) == Some(&b':');
    *at += 1;
    colon
}

/// A string, from its opening quote.
fn string(bytes: &[u8], at: &mut usize) -> bool {
    *at += 1;
    while let Some(&b) = bytes.get(*at) {
        *at += 1;
        match b {
            b'"' => return true,
            b'\\' => {
                let escape = bytes.get(*at).copied();
                *at += 1;
                match escape {
                    Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {}
                    Some(b'u') => {
                        let hex = bytes.get(*at..*at + 4);
                        if !hex.is_some_and(|h| h.iter().all(u8::is_ascii_hexdigit)) {
                            return false;
                        }
                        *at += 4;
                    }
                    _ => return false,
                }
            }
            0..=0x1f => return false,
            _ => {}
        }
    }
    false
}

/// A number or a named constant.
fn scalar(bytes: &[u8], at: &mut usize) -> bool {
    for name in ["null", "true", "false", "NaN", "Infinity", "-Infinity"] {
        if bytes[*at..].starts_with(name.as_bytes()) {
            *at += name.len();
            return true;
        }
    }
    let digits = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let mut end = *at + usize::from(bytes[*at] == b'-');
    let whole = match bytes.get(end) {
        Some(b'0') => 1,
        Some(b'1'..=b'9') => digits(end),
        _ => return false,
    };
    end += whole;
    let mut integer = true;
    if bytes.get(end) == Some(&b'.') && digits(end + 1) > 0 {
        end += 1 + digits(end + 1);
        integer = false;
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = bytes.get(end + 1 + sign).map_or(0, |_| digits(end + 1 + sign));
        if exponent > 0 {
            end += 1 + sign + exponent;
            integer = false;
        }
    }
    *at = end;
    !(integer && whole > MOST_DIGITS)
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
            "",
            " ",
            "{",
            "[1,]",
            "{\"a\":1,}",
            "{a:1}",
            "{'a':1}",
            "01",
            "1.",
            ".5",
            "+1",
            "-",
            "1 2",
            "\"a\nb\"",
            "\"\\x\"",
            "\"\\u12\"",
            "nul",
            "[1",
            "\"",
            "{\"a\"}",
            "{\"a\":}",
            "\u{feff}{}",
            "[1 2]",
            "{\"a\":1]",
            "1e",
            "\u{a0}1",
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
