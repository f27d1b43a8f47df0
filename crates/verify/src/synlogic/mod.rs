//! SynLogic: 35 logic tasks, their verifiers and, for all but three, their generators.
//!
//! A problem is a task and its `game_data_str` (JSON with question, answer, difficulty and metadata). [`Verifier`] decodes
//! it once and checks any number of responses; [`check`] does both. `Mode::Parity` gives the verdicts of the Python
//! reference (MiniMax-AI/SynLogic, commit 6794f97), including its quirks; each quirk is documented at its verifier.
//! `Mode::Strict` follows the rules of the puzzle.
//!
//! The reference runs `eval` on responses. Here [`python`] evaluates the expressions that answers need, with bounded
//! work; an answer beyond the budget is wrong, with reason `budget`. Names, calls, slices and comprehensions are not
//! evaluated and count as unreadable.
//!
//! Not included: the `bbh_*` and `bbeh_*` verifiers of the same repository, which are not SynLogic tasks.

mod arithmetic;
mod boxed;
mod brackets;
mod external;
pub mod extract;
mod fill;
mod game;
pub mod generate;
pub mod json;
mod latin;
mod placement;
pub mod python;
pub mod rational;
mod stories;
pub mod value;

use std::fmt;
use std::str::FromStr;

pub use crate::math::Mode;
pub use generate::{GenerateError, Generated, generate, has_generator};

use crate::finder::Reason;
use crate::verdict::{Outcome, Verdict};

/// Settings of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Whether the verdicts follow the Python reference or the rules of the puzzle.
    pub mode: Mode,
    /// Whether the response must have the form `<think>...</think>...<answer>...</answer>`. Without the gate, parity
    /// mode reads the whole answer, and strict mode the content of answer tags, if any.
    pub format_gate: bool,
}

/// Reason why a problem can't be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The task is unknown.
    #[error("task: expected one of {tasks}, found `{0}`", tasks = Task::ALL.map(Task::name).join(", "))]
    UnknownTask(String),
    /// The problem's data is not a JSON object.
    #[error("{0}: game_data_str: not a JSON object with question, answer, difficulty and metadata")]
    NotJson(Task),
    /// A field of the problem's data is missing or of the wrong kind.
    #[error("{task}: game_data_str: {field}: expected {wanted}")]
    Field {
        /// The task.
        task: Task,
        /// Name of the field, in the object or in its metadata.
        field: &'static str,
        /// Description of the expected content.
        wanted: &'static str,
    },
}

/// Function that checks an answer to one problem.
type Rules =
    Box<dyn Fn(&str, Mode) -> Checked + Send + Sync + std::panic::UnwindSafe + std::panic::RefUnwindSafe>;

/// Declares each task with the modules of its rules and of its generator. Both modules have a function with the
/// task's name.
macro_rules! tasks {
    ($($variant:ident $rules:ident::$name:ident $(, $maker:ident)?: $doc:literal,)*) => {
        /// A SynLogic task.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Task {
            $(#[doc = $doc] $variant,)*
        }

        impl Task {
            /// Every task, in alphabetical order.
            pub const ALL: [Task; [$(stringify!($name)),*].len()] = [$(Task::$variant),*];

            /// Returns the name in data files.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Task::$variant => stringify!($name),)*
                }
            }

            /// Decodes a problem's data.
            fn rules(self, game: &game::Game) -> Result<Rules, Error> {
                match self {
                    $(Task::$variant => $rules::$name(game),)*
                }
            }

            /// Returns the generator of the task, or `None` for tasks whose problems are external.
            fn maker(self) -> Option<generate::Maker> {
                match self {
                    $(Task::$variant => None$(.or(Some(generate::$maker::$name as generate::Maker)))?,)*
                }
            }
        }
    };
}

tasks! {
    ArcAgi external::arc_agi: "Transform a grid of colours as shown. Also `arc_agi_2`.",
    ArrowMaze fill::arrow_maze, fill: "Fill a grid with arrows so that rays from numbers have their length.",
    BooleanExpressions boxed::boolean_expressions, stories: "Name the true expressions.",
    BuggyTables arithmetic::buggy_tables, tables: "Compute a value of a table whose errors are described.",
    Calcudoko latin::calcudoko, latin: "A latin square with cages.",
    Campsite placement::campsite, placement: "Tents beside trees.",
    Cipher external::cipher: "Encode or decode a text.",
    Cryptarithm arithmetic::cryptarithm, arithmetic: "Digits for letters in an equation.",
    DyckLanguage brackets::dyck_language, brackets: "Close all brackets.",
    DyckLanguageErrors brackets::dyck_language_errors, brackets: "Find the first wrong bracket.",
    DyckLanguageReasoningErrors brackets::dyck_language_reasoning_errors, brackets: "Find the wrong steps of a stack trace.",
    Futoshiki latin::futoshiki, latin: "A latin square with signs of inequality.",
    GameOf24 arithmetic::game_of_24, arithmetic: "Make a number from numbers. In the reference's dispatch: `mathador`.",
    GoodsExchange stories::goods_exchange, stories: "Who owns what after some exchanges.",
    GpqaDiamond boxed::gpqa_diamond: "Multiple choice, by the reference's loose comparison. Not one of the 35.",
    Kukurasu placement::kukurasu, placement: "Ones with weights.",
    MathPath arithmetic::math_path, arithmetic: "Restore the digits of an equation.",
    Minesweeper placement::minesweeper, placement: "Name the cells that must be mines.",
    Norinori placement::norinori, regions: "Dominoes, two cells of each region.",
    NumberWall fill::number_wall, fill: "Islands of a number's size between walls.",
    Numbrix fill::numbrix, fill: "A path of consecutive numbers.",
    ObjectCounting boxed::object_counting, stories: "Count things in a story.",
    ObjectProperties boxed::object_properties, stories: "Count things by their properties after changes.",
    Operation arithmetic::operation, arithmetic: "Evaluate an expression with newly defined operators.",
    SkyscraperPuzzle latin::skyscraper_puzzle, latin: "A latin square with numbers of buildings seen.",
    SpaceReasoning boxed::space_reasoning, space: "Follow a walk on a map.",
    SpaceReasoningTree boxed::space_reasoning_tree, space: "Relations in a tree.",
    StarPlacementPuzzle placement::star_placement_puzzle, regions: "Stars in rows, columns and regions.",
    Sudoku latin::sudoku, latin: "Sudoku.",
    Survo fill::survo, fill: "A matrix with row and column sums.",
    TimeSequence stories::time_sequence, tables: "The longest common meeting.",
    WebOfLies stories::web_of_lies, stories: "Who tells the truth.",
    WordSorting boxed::word_sorting, sorting: "Sort words by an unusual alphabet.",
    WordSortingMistake boxed::word_sorting_mistake, sorting: "Find the wrong step of a sort.",
    Wordscapes stories::wordscapes, words: "Words crossing on a grid.",
    ZebraPuzzle external::zebra_puzzle: "Who owns the zebra.",
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Task {
    type Err = Error;

    /// Parses a task's name or an alias in SynLogic's data, with or without a split (`val/sudoku`).
    fn from_str(text: &str) -> Result<Self, Error> {
        let name = text.rsplit('/').next().unwrap_or(text);
        let name = match name {
            "mathador" => "game_of_24",
            "arc_agi_2" => "arc_agi",
            name => name,
        };
        let found = Self::ALL.into_iter().find(|task| task.name() == name);
        found.ok_or_else(|| Error::UnknownTask(text.to_owned()))
    }
}

/// The verifier of one problem: its decoded data, which can check any number of responses.
pub struct Verifier {
    task: Task,
    rules: Rules,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("task", &self.task).finish_non_exhaustive()
    }
}

impl Verifier {
    /// Decodes a problem's stored data.
    /// Fails if the data is not JSON or lacks a field of the task's verifier; the message names the field.
    pub fn parse(task: Task, game_data_str: &str) -> Result<Self, Error> {
        Ok(Self { task, rules: task.rules(&game::Game::parse(task, game_data_str)?)? })
    }

    /// Returns the task.
    pub fn task(&self) -> Task {
        self.task
    }

    /// Checks a response. Without the format gate, its thoughts (`<think>...</think>`) should have been removed. To
    /// pass the answer separately, use [`Self::check_answer`].
    pub fn check(&self, response: &str, options: &Options) -> Outcome {
        self.check_answer(response, response, options)
    }

    /// Checks `answer`, the part of `response` after its thoughts. Only the format gate reads the whole `response`.
    pub fn check_answer(&self, response: &str, answer: &str, options: &Options) -> Outcome {
        let mode = options.mode;
        if options.format_gate && !extract::passes_format_gate(response, mode) {
            return wrong("format");
        }
        let check = |text| (self.rules)(text, mode).unwrap_or_else(|outcome| outcome);
        match mode {
            Mode::Parity if options.format_gate => check(extract::answer_text(answer)),
            Mode::Parity => check(answer),
            Mode::Strict => match extract::stated(answer) {
                Err(outcome) => outcome,
                Ok((text, behind)) => {
                    let outcome = check(text);
                    let another = || extract::may_state(behind) && is_another(&check(behind));
                    if outcome.is_correct() && another() { Reason::Several.into() } else { outcome }
                }
            },
        }
    }
}

/// Checks one response to one problem. To check several, parse the [`Verifier`] once.
/// Fails if the task is unknown or the problem's data can't be parsed. The caller must report it and not treat it as a
/// verdict.
pub fn check(task: &str, game_data_str: &str, response: &str, options: &Options) -> Result<Outcome, Error> {
    Ok(Verifier::parse(task.parse()?, game_data_str)?.check(response, options))
}

/// The outcome of a check. `Err` is an outcome too: it ends the check early.
type Checked = Result<Outcome, Outcome>;

/// Returns whether the outcome for the text after the answer tags means that this text states another, wrong answer.
fn is_another(outcome: &Outcome) -> bool {
    outcome.verdict == Verdict::Wrong && *outcome != Reason::Denied.into()
}

/// Returns the outcome of a comparison with the stored answer.
const fn exact(same: bool) -> Outcome {
    if same { correct("exact") } else { wrong("mismatch") }
}

const fn correct(reason: &'static str) -> Outcome {
    Outcome::new(Verdict::Correct, reason)
}

const fn wrong(reason: &'static str) -> Outcome {
    Outcome::new(Verdict::Wrong, reason)
}

const fn unparsed(reason: &'static str) -> Outcome {
    Outcome::new(Verdict::Unparsed, reason)
}

const fn unscorable(reason: &'static str) -> Outcome {
    Outcome::new(Verdict::Unscorable, reason)
}
