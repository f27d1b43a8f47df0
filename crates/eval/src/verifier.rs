//! What a kind of problem brings: a reference answer and its verifier; and the settings that verifiers share.

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
    /// Which rules the math and SynLogic verifiers follow.
    #[derive(Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "lowercase")]
    pub enum Mode {
        // Published figures were made with these.
        Parity = "parity": "as the reference implementation, quirks included",
        Strict = "strict": "what is mathematically right, or right by the rules of the puzzle",
    }
}

impl Mode {
    /// The default of training, and of evaluations by a training configuration: a reward is given for what is right.
    pub const TRAINING: Self = Self::Strict;
    /// The default where verdicts are compared with published ones: `fgrpo verify`, and evaluations without a
    /// configuration.
    pub const REFERENCE: Self = Self::Parity;
}

/// What becomes of the thoughts before an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Reasoning {
    /// What follows them is graded; the tags are those of the model's template, else `<think>` and `</think>`.
    Strip,
    /// They are graded with the answer.
    Keep,
    /// What follows these tags is graded.
    Between(Tags),
}

impl FromStr for Reasoning {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "strip" => Ok(Self::Strip),
            "keep" => Ok(Self::Keep),
            tags => Tags::parse(tags)
                .map(Self::Between)
                .map_err(|why| why.replace("wanted ", "wanted strip, keep or ")),
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

/// What a program that is judged by tests may use.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// `code`: processor seconds of a program for a test; all its tests have ten times as much.
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
    /// Whether nothing was set.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Settings for grading.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// `strict` decides as mathematics or the puzzle's rules require; `parity` as the reference implementation, as in
    /// the paper's configurations.
    pub mode: Mode,
    /// `synlogic`: whether a response must have the form `<think>...</think>...<answer>...</answer>`. Otherwise the
    /// content of answer tags is graded, if there are any.
    pub format_gate: bool,
    /// `math` in mode `strict`: whether `35\%` also equals 35, as it does in mode `parity`.
    pub percent_as_number: bool,
    /// `math` in mode `strict`: whether an operation that is not carried out is an answer, as `12+17` for 29.
    pub accept_unfinished: bool,
    /// `choice`: an answer is the option's `letter`, or with `letter-or-content` also its words.
    pub choice: choice::Match,
    /// `command`: the program that grades, as a text, a list or a table.
    #[serde(deserialize_with = "program::Settings::read_command")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "program::schema::command"))]
    pub command: Option<program::Settings>,
    /// `code`: what a program may use.
    #[serde(skip_serializing_if = "Limits::is_default")]
    pub code: Limits,
    /// Mazes: when an answer is correct. In a configuration this is `task.reward`.
    #[serde(skip)]
    pub maze: Scoring,
    /// What becomes of thoughts; by default they are kept in mode `parity` and stripped in mode `strict`. In a
    /// configuration this is `task.reasoning`.
    #[serde(skip)]
    pub reasoning: Option<Reasoning>,
    /// Most turns of the policy in an episode with an environment. In a configuration this is `task.max_turns`.
    #[serde(skip)]
    pub max_turns: usize,
    /// The tags of thoughts in the model's template.
    #[serde(skip)]
    pub template_tags: Option<Tags>,
}

/// The settings of training.
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
    /// The tags of the thoughts that aren't graded; `None` where the whole completion is.
    pub fn thoughts(&self) -> Option<Tags> {
        let template = self.template_tags.clone();
        match &self.reasoning {
            Some(Reasoning::Keep) => None,
            None if self.mode == Mode::Parity => None,
            Some(Reasoning::Between(tags)) => {
                let opened = template.is_some_and(|of| of.opened && of.open == tags.open);
                Some(Tags { opened, ..tags.clone() })
            }
            None | Some(Reasoning::Strip) => Some(template.unwrap_or_default()),
        }
    }
}

/// What the verifiers of all problems share.
#[derive(Debug, Clone)]
pub struct Grading {
    /// The settings.
    pub settings: Settings,
    /// The program that grades, for kinds that need one.
    pub program: Option<Arc<Program>>,
    /// The tags of the thoughts that aren't graded.
    thoughts: Option<Tags>,
}

impl Grading {
    /// What verifiers with these settings share.
    pub fn new(settings: Settings, program: Option<Program>) -> Self {
        let thoughts = settings.thoughts();
        Self { settings, program: program.map(Arc::new), thoughts }
    }

    /// The part of a completion that is graded; `None` for thoughts that don't end.
    pub fn answer<'a>(&self, completion: &'a str) -> Option<&'a str> {
        self.thoughts.as_ref().map_or(Some(completion), |tags| tags.answer(completion))
    }

    /// Grades the answer of a completion by `check`. If that panics, the completion is unscorable.
    pub fn grade(&self, completion: &str, check: impl FnOnce(Response<'_>) -> Graded) -> Graded {
        match self.answer(completion) {
            Some(answer) => guarded(|| check(Response { text: completion, answer })),
            None => Graded::new(Verdict::Unparsed, "unfinished_thoughts"),
        }
    }

    /// The verifier that hands a problem to the user's program; `without` is the reason if there is no program.
    pub(crate) fn by_program(
        &self,
        problem: Value,
        without: Unreadable,
    ) -> Result<Box<dyn Verifier>, Unreadable> {
        let program = self.program.clone().ok_or(without)?;
        Ok(Box::new(ByProgram { problem, program }))
    }
}

/// The verifier of one problem, prepared once for all its completions.
pub trait Verifier: Send + Sync {
    /// Grades a completion.
    fn check(&self, response: Response<'_>) -> Graded;

    /// [`Verifier::check`] with the details that `fgrpo verify` prints.
    fn explain(&self, response: Response<'_>) -> Graded {
        self.check(response)
    }

    /// What makes verdicts doubtful, about the reference answer.
    fn doubt(&self) -> Option<&'static str> {
        None
    }

    /// Tries whatever program does the grading, before any other work is done.
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

/// The reference answer of a problem, with what its kind can do. Each file of `kind/` implements it for its `Truth`.
pub trait Reference {
    /// The verifier of this problem.
    /// Fails on data that no answer can be compared with.
    fn verifier(&self, grading: &Grading) -> Result<Box<dyn Verifier>, Unreadable>;

    /// How the verifier reads the reference answer, for people.
    fn read_as(&self) -> Option<String>;

    /// The reference answer, if it is text.
    fn gold(&self) -> Option<String> {
        None
    }

    /// The question as shown to a model, if parts of the reference answer must be shown with it, such as options.
    fn shown_below(&self, _question: &str) -> Option<String> {
        None
    }

    /// The answer in a completion as text, for majority votes. `None` if this kind of problem has no votes,
    /// `Some(None)` if the completion has no answer.
    ///
    /// Verifiers decide what is correct; this only distinguishes wrong answers from each other. Two spellings of the
    /// same wrong answer count as two votes if they differ by more than spaces, dollar signs and sizing commands.
    fn vote(&self, _completion: &str) -> Option<Option<String>> {
        None
    }

    /// The part of a completion that the verifier is given.
    fn graded_part<'a>(&self, completion: &'a str, _settings: &Settings) -> &'a str {
        completion
    }

    /// The program that must run to grade this kind of problem.
    /// Fails if the settings name none of them.
    fn program(_settings: &Settings) -> anyhow::Result<Option<program::Settings>>
    where
        Self: Sized,
    {
        Ok(None)
    }

    /// The verifier for a line of `fgrpo verify`, which has the fields of the reference answer.
    fn verifier_of_line(line: &[u8], grading: &Grading) -> Result<Box<dyn Verifier>, String>
    where
        Self: DeserializeOwned + Sized,
    {
        let truth: Self = json::parse(line).map_err(|why| why.to_string())?;
        truth.verifier(grading).map_err(|unreadable| unreadable.message)
    }
}

/// Why a problem has no verifier. All its completions are unscorable.
#[derive(Debug)]
pub struct Unreadable {
    /// A short code.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
}

impl Unreadable {
    /// An error with its code.
    pub fn new(code: &'static str, error: impl ToString) -> Self {
        Self { code, message: error.to_string() }
    }
}

/// Columns of a data set besides those of its kind.
pub struct Beside<'a> {
    /// The answer column named by the user.
    pub answer: Option<&'a str>,
    /// The column of the prompt.
    pub prompt: &'a str,
    /// Whether rows have a worked solution, or end with an assistant message.
    pub worked: bool,
}

/// A row of a data set, with what was already read from it.
pub struct Cells<'a> {
    /// The row.
    pub row: &'a Row,
    /// The question.
    pub question: &'a str,
    /// The worked solution.
    pub worked: Option<&'a str>,
}

/// Reads the reference answers of a file's rows, after its columns were found.
pub type Reader<T> = Box<dyn Fn(&Cells<'_>) -> Result<T, Unusable>>;
