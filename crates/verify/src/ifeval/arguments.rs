//! The arguments of an instruction and the response, as checks take them.

use super::Error;
use super::pattern::{Pattern, PatternError};
use serde_json::{Map, Value};
use std::cell::OnceCell;
use std::sync::Arc;

/// Function that returns whether a response follows an instruction. The response isn't blank.
pub(super) type Check = Arc<dyn Fn(&Response<'_>) -> Result<bool, PatternError> + Send + Sync>;

/// A response in the forms that the checks need, each computed once on first use.
pub(super) struct Response<'a> {
    pub(super) text: &'a str,
    chars: OnceCell<Vec<char>>,
    lower: OnceCell<String>,
}

impl<'a> Response<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, chars: OnceCell::new(), lower: OnceCell::new() }
    }

    pub(super) fn chars(&self) -> &[char] {
        self.chars.get_or_init(|| self.text.chars().collect())
    }

    pub(super) fn lower(&self) -> &str {
        self.lower.get_or_init(|| self.text.to_lowercase())
    }
}

/// Condition on a count: less than, or at least, a threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Bound {
    LessThan(f64),
    AtLeast(f64),
}

impl Bound {
    pub(super) fn holds(self, count: usize) -> bool {
        match self {
            Self::LessThan(n) => (count as f64) < n,
            Self::AtLeast(n) => count as f64 >= n,
        }
    }

    /// Returns the count up to which [`Bound::holds`] can change. Counting may stop there.
    pub(super) fn most(self) -> usize {
        let (Self::LessThan(n) | Self::AtLeast(n)) = self;
        n.ceil() as usize
    }
}

/// The arguments of one instruction, with IFEval's rules: values that are false in Python count as absent.
pub(super) struct Arguments<'a> {
    pub(super) instruction: &'a str,
    pub(super) given: &'a Map<String, Value>,
}

impl Arguments<'_> {
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        let falsy = |value: &Value| match value {
            Value::Null => true,
            Value::Bool(b) => !b,
            Value::Number(n) => n.as_f64() == Some(0.0),
            Value::String(s) => s.is_empty(),
            Value::Array(a) => a.is_empty(),
            Value::Object(o) => o.is_empty(),
        };
        self.given.get(name).filter(|value| !falsy(value))
    }

    pub(super) fn error(&self, argument: &'static str, wanted: &'static str) -> Error {
        Error::Argument {
            instruction: self.instruction.to_owned(),
            argument,
            found: self.given.get(argument).map_or_else(|| "nothing".to_owned(), Value::to_string),
            wanted,
        }
    }

    pub(super) fn text(&self, name: &'static str) -> Result<&str, Error> {
        self.get(name).and_then(Value::as_str).ok_or_else(|| self.error(name, "a string"))
    }

    /// Returns a positive threshold. If it is absent or negative, IFEval's code draws a random one; here it is an
    /// error.
    pub(super) fn count(&self, name: &'static str) -> Result<f64, Error> {
        self.get(name)
            .and_then(Value::as_f64)
            .filter(|&n| n > 0.0)
            .ok_or_else(|| self.error(name, "a positive number"))
    }

    /// Returns a number of at least 0.
    pub(super) fn number(&self, name: &'static str) -> Result<f64, Error> {
        let number = self.given.get(name).and_then(Value::as_f64);
        number.filter(|&n| n >= 0.0).ok_or_else(|| self.error(name, "a number of at least 0"))
    }

    pub(super) fn bound(&self, count: &'static str, relation: &'static str) -> Result<Bound, Error> {
        let n = self.count(count)?;
        match self.get(relation).and_then(Value::as_str) {
            Some("less than") => Ok(Bound::LessThan(n)),
            Some("at least") => Ok(Bound::AtLeast(n)),
            _ => Err(self.error(relation, "\"less than\" or \"at least\"")),
        }
    }

    pub(super) fn pattern(&self, pattern: &str, ignore_case: bool) -> Result<Pattern, Error> {
        Pattern::new(pattern, ignore_case).map_err(|error| Error::Keyword {
            instruction: self.instruction.to_owned(),
            keyword: pattern.to_owned(),
            why: error.to_string(),
        })
    }

    /// Compiles each keyword as a pattern, with the pattern `edge` before and after it. A single string counts as the
    /// list of its characters, as in Python's iteration.
    pub(super) fn patterns(&self, name: &'static str, edge: &str) -> Result<Vec<Pattern>, Error> {
        let keywords: Option<Vec<String>> = match self.get(name) {
            Some(Value::String(text)) => Some(text.chars().map(String::from).collect()),
            Some(Value::Array(list)) => list.iter().map(|v| v.as_str().map(str::to_owned)).collect(),
            _ => None,
        };
        let keywords = keywords.ok_or_else(|| self.error(name, "a list of strings"))?;
        keywords.iter().map(|keyword| self.pattern(&format!("{edge}{keyword}{edge}"), true)).collect()
    }
}
