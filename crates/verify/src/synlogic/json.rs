//! JSON as in Python's `json.loads`: `NaN` and infinities are numbers, integers are exact, and the last of equal keys
//! wins.

use dashu_int::IBig;

use super::value::{DictBuilder, Value};
use crate::python_text::MAX_DIGITS;

/// Deepest nesting of brackets; deeper ones are beyond Python's own limit.
const MAX_DEPTH: usize = 990;

/// Parses one JSON value with only blanks around it. `None` if it is not JSON or nests too deep.
pub fn parse(text: &str) -> Option<Value> {
    let mut p = Parser::new(text);
    p.blanks();
    let value = p.value(0)?;
    p.blanks();
    p.is_at_end().then_some(value)
}

/// A place in a text, and what is read from there on.
struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn is_at_end(&self) -> bool {
        self.at == self.text.len()
    }

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
        if depth > MAX_DEPTH {
            return None;
        }
        match self.peek()? {
            b'[' => self.list(depth),
            b'{' => self.dict(depth),
            _ => self.scalar(),
        }
    }

    /// A text, a number or a named constant.
    fn scalar(&mut self) -> Option<Value> {
        match self.peek()? {
            b'"' => self.string().map(Value::Str),
            b'n' => self.word("null").then_some(Value::None),
            b't' => self.word("true").then_some(Value::Bool(true)),
            b'f' => self.word("false").then_some(Value::Bool(false)),
            b'N' => self.word("NaN").then_some(Value::Float(f64::NAN)),
            b'I' => self.word("Infinity").then_some(Value::Float(f64::INFINITY)),
            b'-' if self.text.as_bytes()[self.at..].starts_with(b"-I") => {
                self.word("-Infinity").then_some(Value::Float(f64::NEG_INFINITY))
            }
            b'-' | b'0'..=b'9' => self.number(),
            _ => None,
        }
    }

    fn list(&mut self, depth: usize) -> Option<Value> {
        self.at += 1;
        let mut items = Vec::new();
        self.blanks();
        if self.word("]") {
            return Some(Value::List(items));
        }
        loop {
            self.blanks();
            items.push(self.value(depth + 1)?);
            self.blanks();
            if self.word("]") {
                return Some(Value::List(items));
            }
            if !self.word(",") {
                return None;
            }
        }
    }

    fn dict(&mut self, depth: usize) -> Option<Value> {
        self.at += 1;
        let mut entries = DictBuilder::default();
        self.blanks();
        if self.word("}") {
            return Some(entries.finish());
        }
        loop {
            let key = self.key()?;
            self.blanks();
            let value = self.value(depth + 1)?;
            entries.insert(Value::Str(key), value);
            self.blanks();
            if self.word("}") {
                return Some(entries.finish());
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

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.peek().is_some_and(|c| c.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> Option<Value> {
        let start = self.at;
        self.word("-");
        let whole = if self.word("0") { 1 } else { self.digits() };
        if whole == 0 {
            return None;
        }
        let integer_end = self.at;
        let mut real = false;
        if self.peek() == Some(b'.') {
            self.at += 1;
            if self.digits() == 0 {
                self.at = integer_end;
            } else {
                real = true;
            }
        }
        let mantissa_end = self.at;
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if self.digits() == 0 {
                self.at = mantissa_end;
            } else {
                real = true;
            }
        }
        let text = &self.text[start..self.at];
        if real {
            text.parse().ok().map(Value::Float)
        } else if whole > MAX_DIGITS {
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
