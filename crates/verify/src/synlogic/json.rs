//! JSON as in Python's `json.loads`: `NaN` and infinities are numbers, integers are exact, and the last of equal keys
//! wins.

use dashu_int::IBig;

use super::value::{DictBuilder, Value};
use crate::python_text::{MAX_DIGITS, regex};

/// Deepest nesting of brackets; deeper ones are beyond Python's own limit.
const MAX_DEPTH: usize = 990;

/// Parses one JSON value with only blanks around it. `None` if it is not JSON or nests too deep.
pub fn parse(text: &str) -> Option<Value> {
    let mut p = Parser { text, at: 0 };
    p.blanks();
    let value = p.value(0)?;
    p.blanks();
    (p.at == text.len()).then_some(value)
}

/// A place in a string, and what is read from there on.
struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Passes over blanks.
    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Passes over a word, if it is there.
    fn word(&mut self, word: &str) -> bool {
        let found = self.text.as_bytes()[self.at..].starts_with(word.as_bytes());
        if found {
            self.at += word.len();
        }
        found
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        const NAMES: [(&str, Value); 6] = [
            ("null", Value::None),
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
            ("NaN", Value::Float(f64::NAN)),
            ("Infinity", Value::Float(f64::INFINITY)),
            ("-Infinity", Value::Float(f64::NEG_INFINITY)),
        ];
        if depth > MAX_DEPTH {
            return None;
        }
        match self.peek()? {
            b'"' => self.string().map(Value::Str),
            b'[' => {
                let mut items = Vec::new();
                self.sequence("]", |p| p.value(depth + 1).map(|item| items.push(item)))?;
                Some(Value::List(items))
            }
            b'{' => {
                let mut entries = DictBuilder::default();
                self.sequence("}", |p| {
                    let key = p.key()?;
                    p.blanks();
                    entries.insert(Value::Str(key), p.value(depth + 1)?);
                    Some(())
                })?;
                Some(entries.finish())
            }
            _ => match NAMES.into_iter().find(|(name, _)| self.word(name)) {
                Some((_, value)) => Some(value),
                None => self.number(),
            },
        }
    }

    /// Reads the items between brackets, of which the opening one comes next.
    fn sequence(&mut self, close: &str, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.at += 1;
        self.blanks();
        if self.word(close) {
            return Some(());
        }
        loop {
            self.blanks();
            item(self)?;
            self.blanks();
            if self.word(close) {
                return Some(());
            }
            if !self.word(",") {
                return None;
            }
        }
    }

    /// A key and its colon.
    fn key(&mut self) -> Option<String> {
        self.blanks();
        let key = if self.peek() == Some(b'"') { self.string()? } else { return None };
        self.blanks();
        self.word(":").then_some(key)
    }

    fn number(&mut self) -> Option<Value> {
        let pattern = regex!(r"^-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?");
        let found = pattern.captures(&self.text[self.at..])?;
        let text = &found[0];
        self.at += text.len();
        if found.get(1).or(found.get(2)).is_some() {
            text.parse().ok().map(Value::Float)
        } else if text.trim_start_matches('-').len() > MAX_DIGITS {
            None
        } else {
            text.parse::<IBig>().ok().map(Value::Int)
        }
    }

    fn hex4(&mut self) -> Option<u32> {
        let hex = self.text.as_bytes().get(self.at..self.at + 4)?;
        let code = hex.iter().try_fold(0, |n, c| Some(n * 16 + char::from(*c).to_digit(16)?))?;
        self.at += 4;
        Some(code)
    }

    fn string(&mut self) -> Option<String> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let stop = rest.find(|c: char| c == '"' || c == '\\' || c < ' ')?;
            out.push_str(&rest[..stop]);
            self.at += stop;
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Some(out);
                }
                b'\\' => {
                    self.at += 1;
                    let c = self.peek()?;
                    self.at += 1;
                    match c {
                        b'"' | b'\\' | b'/' => out.push(char::from(c)),
                        b'b' => out.push('\u{8}'),
                        b'f' => out.push('\u{c}'),
                        b'n' => out.push('\n'),
                        b'r' => out.push('\r'),
                        b't' => out.push('\t'),
                        b'u' => {
                            let high = self.hex4()?;
                            let mut code = high;
                            if (0xD800..0xDC00).contains(&high) && self.text[self.at..].starts_with("\\u") {
                                let back = self.at;
                                self.at += 2;
                                match self.hex4() {
                                    Some(low) if (0xDC00..0xE000).contains(&low) => {
                                        code = 0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00);
                                    }
                                    Some(_) => self.at = back,
                                    None => return None,
                                }
                            }
                            // A lone surrogate is text to Python but not to Rust; no answer holds one.
                            out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                        }
                        _ => return None,
                    }
                }
                _ => return None,
            }
        }
    }
}
