//! JSON as in Python's `json.loads`: `NaN` and infinities are numbers, integers are exact, and the last of equal keys
//! wins.

use dashu_int::IBig;

use super::value::{DictBuilder, Value};
use crate::python_text::{MAX_DIGITS, regex};

/// Maximum nesting of brackets. Deeper nesting exceeds Python's recursion limit.
const MAX_DEPTH: usize = 990;

/// Parses one JSON value with only white space around it. `None` if it isn't JSON or its nesting is too deep.
pub fn parse(text: &str) -> Option<Value> {
    parsed(text, false)
}

/// Like [`parse`], but `None` if an object has a key twice.
pub(crate) fn parse_unique(text: &str) -> Option<Value> {
    parsed(text, true)
}

fn parsed(text: &str, unique: bool) -> Option<Value> {
    let mut p = Parser { text, at: 0, unique };
    p.blanks();
    let value = p.value(0)?;
    p.blanks();
    (p.at == text.len()).then_some(value)
}

/// A string and the byte position at which parsing continues.
struct Parser<'a> {
    text: &'a str,
    at: usize,
    /// Whether the keys of an object must differ.
    unique: bool,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Skips white space.
    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Skips a word if it comes next. Returns whether it was skipped.
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
                (!(self.unique && entries.repeats)).then(|| entries.finish())
            }
            _ => match NAMES.into_iter().find(|(name, _)| self.word(name)) {
                Some((_, value)) => Some(value),
                None => self.number(),
            },
        }
    }

    /// Reads the items between brackets. The opening bracket comes next.
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

    /// Reads a key and its colon.
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

    fn string(&mut self) -> Option<String> {
        let literal = regex!(r#"(?s)^"(?:[^"\\]|\\.)*""#).find(&self.text[self.at..])?.as_str();
        self.at += literal.len();
        // Python's strings can contain a lone surrogate, Rust's can't. No answer contains one.
        let surrogates = regex!(r"(?i)\\\\|\\u(d[89ab]..\\ud[cdef]..|d[89abcdef]..)");
        let whole = surrogates.replace_all(literal, |found: &regex::Captures<'_>| {
            let lone = found.get(1).is_some_and(|code| code.len() == 4);
            if lone { r"\ufffd" } else { &found[0] }.to_owned()
        });
        serde_json::from_str(&whole).ok()
    }
}
