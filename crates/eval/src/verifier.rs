//! Reference answers of problems, their verifiers, and the settings that verifiers share.

use crate::graded::{Graded, Response, guarded};
use crate::io::json;
use crate::program::{self, Program};
use crate::row::{Row, Unusable};
use fgrpo_core::maze::Scoring;
use fgrpo_verify::choice;
use fgrpo_verify::thoughts::Tags;
use fgrpo_verify::verdict::Verdict;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::str::FromStr;
use std::sync::Arc;

named! {
    /// Rules of the math and SynLogic verifiers.
    #[derive(Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "lowercase")]
    pub enum Mode {
        // Published results were computed with these rules.
        Parity = "parity": "as the reference implementation does, quirks included",
        Strict = "strict": "what is mathematically right, or right by the rules of the puzzle",
    }
}

impl Mode {
    /// Default for training, and for evaluations by a training configuration, where rewards should follow mathematics.
    pub const TRAINING: Self = Self::Strict;
    /// Default for comparisons with published results: `fgrpo verify`, and evaluations without a configuration.
    pub const REFERENCE: Self = Self::Parity;
}

/// Treatment of the reasoning before an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Reasoning {
    /// Grades only the text after the reasoning. The reasoning tags come from the model's template, or else are `<think>`
    /// and `</think>`.
    Strip,
    /// Grades the reasoning together with the answer.
    Keep,
    /// Grades only the text after the reasoning between these tags.
    Between(Tags),
}

impl FromStr for Reasoning {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "strip" => Ok(Self::Strip),
            "keep" => Ok(Self::Keep),
            tags => Tags::parse(tags).map(Self::Between).map_err(|why| format!("{why}, or strip or keep")),
        }
    }
}

impl TryFrom<String> for Reasoning {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Reasoning> for String {
    fn from(reasoning: Reasoning) -> Self {
        match reasoning {
            Reasoning::Strip => "strip".to_owned(),
            Reasoning::Keep => "keep".to_owned(),
            Reasoning::Between(tags) => format!("{},{}", tags.open, tags.close),
        }
    }
}

/// Resource limits of a program that is graded by tests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// `code`: processor time of a program per test, in seconds. All tests of a program together have ten times as
    /// much.
    pub timeout_s: f64,
    /// `code`: address space of a program, in MB.
    pub memory_mb: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { timeout_s: 6.0, memory_mb: 1024 }
    }
}

impl Limits {
    /// Returns whether all limits have their defaults.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Settings for grading.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// `strict` follows mathematics and the rules of the puzzle; `parity` follows the reference implementation, as in
    /// the paper's configurations.
    pub mode: Mode,
    /// `synlogic`: whether a response must have the form `<think>...</think>...<answer>...</answer>`. Otherwise the
    /// content of answer tags is graded, if there are any.
    pub format_gate: bool,
    /// `math` in mode `strict`: whether `35\%` also equals 35, as it does in mode `parity`.
    pub percent_as_number: bool,
    /// `math` in mode `strict`: whether an expression that isn't evaluated is accepted as an answer, such as `12+17`
    /// for 29.
    pub accept_unfinished: bool,
    /// `choice`: an answer is the option's `letter`; with `letter-or-content` the option's text is accepted too.
    pub choice: choice::Match,
    /// `command`: the program that grades, as a string, a list or a table.
    #[serde(deserialize_with = "program::Settings::read_command")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "program::schema::command"))]
    pub command: Option<program::Settings>,
    /// `code`: resource limits of a program.
    #[serde(skip_serializing_if = "Limits::is_default")]
    pub code: Limits,
    /// Mazes: condition for a correct answer. In a configuration this is `task.reward`.
    #[serde(skip)]
    pub maze: Scoring,
    /// Treatment of reasoning. If `None`, it is graded in mode `parity` and stripped in mode `strict`. In a
    /// configuration this is `task.reasoning`.
    #[serde(skip)]
    pub reasoning: Option<Reasoning>,
    /// Maximum number of the policy's turns in an episode with an environment. In a configuration this is
    /// `task.max_turns`.
    #[serde(skip)]
    pub max_turns: usize,
    /// Reasoning tags of the model's template.
    #[serde(skip)]
    pub template_tags: Option<Tags>,
}

/// The defaults for training.
impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::TRAINING,
            format_gate: true,
            percent_as_number: false,
            accept_unfinished: false,
            choice: choice::Match::Letter,
            command: None,
            code: Limits::default(),
            maze: Scoring::Exact,
            reasoning: None,
            max_turns: 1,
            template_tags: None,
        }
    }
}

impl Settings {
    /// Returns the tags of the reasoning that isn't graded, or `None` if the whole completion is graded.
    pub fn thoughts(&self) -> Option<Tags> {
        let template = self.template_tags.clone();
        match &self.reasoning {
            Some(Reasoning::Keep) => None,
            None if self.mode == Mode::Parity => None,
            Some(Reasoning::Between(tags)) => {
                let opened = template.is_some_and(|t| t.opened && t.open == tags.open);
                Some(Tags { opened, ..tags.clone() })
            }
            None | Some(Reasoning::Strip) => Some(template.unwrap_or_default()),
        }
    }
}

/// Settings and resources that the verifiers of all problems share.
#[derive(Debug, Clone)]
pub struct Grading {
    /// The settings.
    pub settings: Settings,
    /// Program that grades, for kinds of task that need one.
    pub program: Option<Arc<Program>>,
    /// Tags of the reasoning that isn't graded.
    thoughts: Option<Tags>,
}

impl Grading {
    /// Combines the settings with the program.
    pub fn new(settings: Settings, program: Option<Program>) -> Self {
        let thoughts = settings.thoughts();
        Self { settings, program: program.map(Arc::new), thoughts }
    }

    /// Returns the part of a completion that is graded, or `None` if its reasoning doesn't end.
    pub fn answer<'a>(&self, completion: &'a str) -> Option<&'a str> {
        self.thoughts.as_ref().map_or(Some(completion), |tags| tags.answer(completion))
    }

    /// Grades a completion with `check`. It is unparsed if its reasoning doesn't end, and unscorable if `check` panics.
    pub fn grade(&self, completion: &str, check: impl FnOnce(Response<'_>) -> Graded) -> Graded {
        match self.answer(completion) {
            Some(answer) => guarded(|| check(Response { text: completion, answer })),
            None => Graded::new(Verdict::Unparsed, "unfinished_thoughts"),
        }
    }

    /// Creates a verifier that sends a problem to the user's program. `without` is the error if the program isn't set.
    pub(crate) fn by_program(
        &self,
        problem: Value,
        without: Unreadable,
    ) -> Result<Box<dyn Verifier>, Unreadable> {
        let program = self.program.clone().ok_or(without)?;
        Ok(Box::new(ByProgram { problem, program }))
    }
}

/// Verifier of one problem, prepared once for all its completions.
pub trait Verifier: Send + Sync {
    /// Grades a completion.
    fn check(&self, response: Response<'_>) -> Graded;

    /// Grades a completion with the details that `fgrpo verify` prints.
    fn explain(&self, response: Response<'_>) -> Graded {
        self.check(response)
    }

    /// Returns a reason to doubt the verdicts because of the reference answer, if there is one.
    fn doubt(&self) -> Option<&'static str> {
        None
    }

    /// Tries the program that grades, if the verifier has one, before any other work is done.
    fn check_start(&self) -> anyhow::Result<()> {
        Ok(())
    }
}

struct ByProgram {
    problem: Value,
    program: Arc<Program>,
}

impl Verifier for ByProgram {
    fn check(&self, response: Response<'_>) -> Graded {
        self.program.grade_response(&self.problem, response)
    }

    fn check_start(&self) -> anyhow::Result<()> {
        self.program.check(&self.problem)
    }
}

/// Reference answer of a problem, with the functions of its kind. Each file of `kind/` implements this trait for its
/// `Truth`.
pub trait Reference {
    /// Creates the verifier of this problem.
    ///
    /// Returns an error if the data is invalid, so that answers can't be compared with it.
    fn verifier(&self, grading: &Grading) -> Result<Box<dyn Verifier>, Unreadable>;

    /// Describes how the verifier reads the reference answer.
    fn read_as(&self) -> Option<String>;

    /// Returns the reference answer if it is a string.
    fn gold(&self) -> Option<String> {
        None
    }

    /// Returns the text that a model must see below the question, such as options, or `None` if the question is complete.
    fn shown_below(&self, _question: &str) -> Option<String> {
        None
    }

    /// Returns the answer in a completion as a string, for majority votes. Returns `None` if this kind of problem doesn't
    /// support votes, and `Some(None)` if the completion lacks an answer.
    ///
    /// Verifiers decide whether an answer is correct. The vote only distinguishes wrong answers. Two spellings of the
    /// same wrong answer count as different if they differ by more than spaces, dollar signs and sizing commands.
    fn vote(&self, _completion: &str) -> Option<Option<String>> {
        None
    }

    /// Returns the part of a completion that the verifier receives.
    fn graded_part<'a>(&self, completion: &'a str, _settings: &Settings) -> &'a str {
        completion
    }

    /// Returns the settings of the program that grades this kind of problem, or `None` if the kind doesn't need a program.
    ///
    /// Returns an error if the kind needs a program and the settings don't name one.
    fn program(_settings: &Settings) -> anyhow::Result<Option<program::Settings>>
    where
        Self: Sized,
    {
        Ok(None)
    }

    /// Creates the verifier for an input line of `fgrpo verify`, which has the fields of the reference answer.
    fn verifier_of_line(line: &[u8], grading: &Grading) -> Result<Box<dyn Verifier>, String>
    where
        Self: DeserializeOwned + Sized,
    {
        let truth: Self = json::parse(line).map_err(|why| why.to_string())?;
        truth.verifier(grading).map_err(|unreadable| unreadable.message)
    }
}

/// Reason why a verifier can't be created for a problem, so that all its completions are unscorable.
#[derive(Debug)]
pub struct Unreadable {
    /// Short reason code.
    pub code: &'static str,
    /// Description of the error.
    pub message: String,
}

impl Unreadable {
    /// Combines an error with its code.
    pub fn new(code: &'static str, error: impl ToString) -> Self {
        Self { code, message: error.to_string() }
    }
}

/// Facts about a data set's columns that don't depend on the kind of task.
pub struct Beside<'a> {
    /// The answer column named by the user.
    pub answer: Option<&'a str>,
    /// Column of the prompt.
    pub prompt: &'a str,
    /// Whether rows have a worked solution, or end with an assistant message.
    pub worked: bool,
}

/// A row of a data set, with values that were already read from it.
pub struct Cells<'a> {
    /// The row.
    pub row: &'a Row,
    /// The question.
    pub question: &'a str,
    /// The worked solution.
    pub worked: Option<&'a str>,
}

/// Function that reads the reference answer of a row. It is created after the columns are determined.
pub type Reader<T> = Box<dyn Fn(&Cells<'_>) -> Result<T, Unusable>>;
