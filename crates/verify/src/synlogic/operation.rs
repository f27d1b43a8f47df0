//! The task `operation`: a number, compared by the math verifier.

use super::extract::{only_statement, undressed};
use super::game::Game;
use super::{Checked, Error, Mode, unparsed, wrong};
use crate::math::{self, MatchTypes};
use crate::python_text::regex;
use crate::verdict::Verdict;

/// The value of the expression.
pub(crate) struct Operation {
    answer: String,
    strict: math::Verifier,
}

impl Operation {
    pub(crate) fn parse(game: &Game) -> Result<Self, Error> {
        let answer = match &game.answer {
            super::value::Value::Int(n) => n.to_string(),
            super::value::Value::Float(x) => x.to_string(),
            _ => game.answer_text()?,
        };
        let options = math::Options { mode: math::Mode::Strict, ..math::Options::default() };
        let strict = math::Verifier::new(&answer, &options);
        Ok(Self { answer, strict })
    }

    /// Quirk: in parity mode the response and the stored answer are swapped in the comparison, as in the reference;
    /// both are parsed in either notation.
    pub(crate) fn check(&self, text: &str, mode: Mode) -> Checked {
        Ok(match mode {
            Mode::Parity => {
                let types = MatchTypes { latex: true, expr: true };
                let options = math::Options { match_types: Some(types), ..math::Options::default() };
                let swapped = math::Verifier::new(text, &options).check(&self.answer);
                match swapped.verdict {
                    // The response stands in the gold's place: that it can't be read or computed is its own fault.
                    Verdict::Unscorable if swapped.reason == "gold" => unparsed("no_answer"),
                    Verdict::Unscorable => wrong("budget"),
                    _ => swapped,
                }
            }
            Mode::Strict => {
                let answer = undressed(only_statement(text)?);
                let boxed = format!("\\boxed{{{answer}}}");
                if regex!(r"(?:^|[^\w.,])0\d|\d_\d|[\d&&[^0-9]]|[-+−]\s*[-+−]").is_match(&answer) {
                    return Err(wrong("not_plain"));
                }
                // A number alone is the answer, wherever it stands; the math verifier finds others.
                let alone = regex!(r"^[-+−]?\d[\d.,]*$").is_match(&answer);
                self.strict.check(if alone { &boxed } else { text })
            }
        })
    }
}
