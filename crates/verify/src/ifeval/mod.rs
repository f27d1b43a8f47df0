//! Instruction following, with the verdicts of Google's `instruction_following_eval` (the checkers in lm-eval): 25
//! instruction types, strict and loose; and the 58 of its successor IFBench.
//!
//! Departures: if the reference would draw a missing argument at random or raise an exception (an unknown instruction,
//! a keyword that is not a regular expression), the problem is refused with [`enum@Error`], because a verdict must not
//! depend on chance. A letter outside of a to z is counted, whereas the reference replaces it by a random letter.

mod arguments;
mod characters;
mod ifbench;
mod instruction;
mod language;
pub mod pattern;
mod punkt;
mod treebank;

use crate::python_text::strip;
use crate::verdict::{Outcome, Verdict};
use arguments::{Check, Response};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;
use thiserror::Error;

/// Reason why a problem's instructions can't be checked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// The instruction is unknown.
    #[error(
        "instruction_id_list: expected one of IFEval's 25 or IFBench's 58 instruction types, found {0:?}"
    )]
    Unknown(String),
    /// An argument is missing or of the wrong kind.
    #[error("kwargs of {instruction}: {argument}: expected {wanted}, found {found}")]
    Argument {
        /// The instruction's name.
        instruction: String,
        /// The argument's name.
        argument: &'static str,
        /// The value, or `nothing`.
        found: String,
        /// Description of the expected value.
        wanted: &'static str,
    },
    /// A keyword isn't a regular expression that Python's `re` compiles, or uses a feature that isn't supported here.
    #[error("kwargs of {instruction}: {keyword:?}: {why}")]
    Keyword {
        /// The instruction's name.
        instruction: String,
        /// The keyword.
        keyword: String,
        /// Reason why the keyword isn't a regular expression.
        why: String,
    },
    /// The lists of instructions and of their arguments differ in length.
    #[error("kwargs: expected {wanted} entries, one for each instruction, found {found}")]
    Length {
        /// The number of argument objects.
        found: usize,
        /// The number of instructions.
        wanted: usize,
    },
}

impl Error {
    /// Returns the reason code of the unscorable outcome for this error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "unknown_instruction",
            Self::Argument { .. } | Self::Length { .. } => "bad_arguments",
            Self::Keyword { .. } => "bad_keyword",
        }
    }
}

/// The result for one response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Correct when every instruction is followed strictly. The reason is `followed`, the name of the first instruction
    /// that is not followed, or `budget` if the match of a keyword exceeded its budget.
    pub outcome: Outcome,
    /// For each instruction, whether the response follows it.
    pub strict: Vec<bool>,
    /// For each instruction, whether any of eight forms of the response follows it: with or
    /// without its asterisks, its first line, its last line.
    pub loose: Vec<bool>,
}

/// The verifier of one prompt: its parsed instructions, which can check any number of responses.
#[derive(Clone)]
pub struct Verifier {
    ids: Vec<String>,
    instructions: Vec<Check>,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("ids", &self.ids).finish_non_exhaustive()
    }
}

impl Verifier {
    /// Parses the instructions and their arguments. Arguments that are null, zero or empty count as absent; arguments
    /// that no instruction uses are ignored.
    pub fn new<S: AsRef<str>>(ids: &[S], kwargs: &[Value]) -> Result<Self, Error> {
        if ids.len() != kwargs.len() {
            return Err(Error::Length { found: kwargs.len(), wanted: ids.len() });
        }
        let check = |(id, given): (&S, &Value)| match given {
            Value::Object(given) => instruction::parse(id.as_ref(), given),
            Value::Null => instruction::parse(id.as_ref(), &Map::new()),
            other => Err(Error::Argument {
                instruction: id.as_ref().to_owned(),
                argument: "all of them",
                found: other.to_string(),
                wanted: "an object",
            }),
        };
        let instructions = ids.iter().zip(kwargs).map(check).collect::<Result<_, _>>()?;
        Ok(Self { ids: ids.iter().map(|id| id.as_ref().to_owned()).collect(), instructions })
    }

    /// Checks a response only strictly, which is enough for a reward.
    pub fn check(&self, response: &str) -> Outcome {
        match self.strict(response) {
            Ok(strict) => self.outcome(&strict),
            Err(_) => Outcome::new(Verdict::Wrong, "budget"),
        }
    }

    /// Checks a response strictly and loosely.
    pub fn check_both(&self, response: &str) -> Checked {
        let both = self.strict(response).and_then(|strict| {
            let loose = self.loose(response, &strict)?;
            Ok((strict, loose))
        });
        match both {
            Ok((strict, loose)) => Checked { outcome: self.outcome(&strict), strict, loose },
            // An instruction whose check exceeds the budget counts as not followed.
            Err(_) => Checked {
                outcome: Outcome::new(Verdict::Wrong, "budget"),
                strict: vec![false; self.instructions.len()],
                loose: vec![false; self.instructions.len()],
            },
        }
    }

    fn outcome(&self, strict: &[bool]) -> Outcome {
        match strict.iter().position(|followed| !followed) {
            None => Outcome::new(Verdict::Correct, "followed"),
            Some(i) => Outcome { verdict: Verdict::Wrong, reason: Cow::Owned(self.ids[i].clone()) },
        }
    }

    fn strict(&self, response: &str) -> Result<Vec<bool>, pattern::PatternError> {
        if strip(response).is_empty() {
            return Ok(vec![false; self.instructions.len()]);
        }
        let response = Response::new(response);
        self.instructions.iter().map(|i| i(&response)).collect()
    }

    fn loose(&self, response: &str, strict: &[bool]) -> Result<Vec<bool>, pattern::PatternError> {
        let mut loose = strict.to_vec();
        if loose.iter().all(|&followed| followed) {
            return Ok(loose);
        }
        let forms = forms(response);
        let forms: Vec<Response<'_>> =
            forms.iter().filter(|form| !strip(form).is_empty()).map(|form| Response::new(form)).collect();
        for (followed, instruction) in loose.iter_mut().zip(&self.instructions) {
            for form in &forms {
                if *followed {
                    break;
                }
                *followed = instruction(form)?;
            }
        }
        Ok(loose)
    }
}

/// Returns the other forms of a response that count for the loose label, each once.
fn forms(response: &str) -> Vec<String> {
    let after_first = response.split_once('\n').map_or("", |(_, rest)| rest);
    let before_last = response.rsplit_once('\n').map_or("", |(rest, _)| rest);
    let inner = after_first.rsplit_once('\n').map_or("", |(rest, _)| rest);
    let cut = [after_first, before_last, inner].map(strip);
    let mut forms: Vec<String> = Vec::new();
    let plain = cut.iter().map(|text| (*text).to_owned());
    let starless = std::iter::once(response).chain(cut).map(|text| text.replace('*', ""));
    for form in plain.chain(starless) {
        if form != response && !forms.contains(&form) {
            forms.push(form);
        }
    }
    forms
}
