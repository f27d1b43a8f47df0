//! The task operation: a number, compared as mathematics.

use super::game::Game;
use super::text::{regex, strip};
use super::{Error, Mode, correct, unparsed, wrong};
use crate::verdict::Outcome;

/// The value of the expression.
pub(crate) struct Operation(f64);

impl Operation {
    pub(crate) fn parse(game: &Game) -> Result<Self, Error> {
        let value = match &game.answer {
            super::value::Value::Str(s) => strip(s).parse().ok(),
            v => v.as_f64(),
        };
        value.map(Self).ok_or_else(|| game.error("answer", "a number"))
    }

    /// The last number of the text that no quote or bracket opens, equal to six decimals.
    pub(crate) fn check(&self, text: &str, _mode: Mode) -> Outcome {
        let number = regex!(r"(?:^|[^\[\d.'\x22-])(-?\d+(?:\.\d+)?)");
        let found = number.captures_iter(text).last().and_then(|c| c[1].parse::<f64>().ok());
        match found {
            None => unparsed("no_number"),
            Some(x) if (x - self.0).abs() < 1e-6 => correct("numeric"),
            Some(_) => wrong("mismatch"),
        }
    }
}
