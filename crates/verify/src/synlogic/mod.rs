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

use serde::{Deserialize, Serialize};

pub use generate::{GenerateError, Generated, generate, has_generator};

use crate::verdict::{Outcome, Verdict};

/// Whose rules decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The reference's, including its quirks.
    #[default]
    Parity,
    /// The puzzle's rules.
    Strict,
}

/// How to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Whose rules decide.
    pub mode: Mode,
    /// Whether the response must have the form `<think>...</think>...<answer>...</answer>`. Without the gate, the
    /// answer is the text between the answer tags.
    pub format_gate: bool,
}

/// Why a problem can't be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no task of this name.
    #[error("task: found `{0}`, wanted one of {tasks}", tasks = Task::ALL.map(Task::name).join(", "))]
    UnknownTask(String),
    /// The problem's data is not a JSON object.
    #[error("{0}: game_data_str: not a JSON object with question, answer, difficulty and metadata")]
    NotJson(Task),
    /// A field of the problem's data is missing or of the wrong kind.
    #[error("{task}: game_data_str: {field}: wanted {wanted}")]
    Field {
        /// The task.
        task: Task,
        /// The field, of the object or its metadata.
        field: &'static str,
        /// The expected content.
        wanted: &'static str,
    },
}

/// Checks an answer to one problem.
type Rules =
    Box<dyn Fn(&str, Mode) -> Checked + Send + Sync + std::panic::UnwindSafe + std::panic::RefUnwindSafe>;

macro_rules! tasks {
    ($($variant:ident $name:literal $rules:path $(, $maker:path)?: $doc:literal,)*) => {
        /// A SynLogic task.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Task {
            $(#[doc = $doc] $variant,)*
        }

        impl Task {
            /// Every task, in alphabetical order.
            pub const ALL: [Task; [$($name),*].len()] = [$(Task::$variant),*];

            /// The name in data files.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Task::$variant => $name,)*
                }
            }

            /// Decodes a problem's data.
            fn rules(self, game: &game::Game) -> Result<Rules, Error> {
                match self {
                    $(Task::$variant => $rules(game),)*
                }
            }

            /// Its generator, if it has one.
            fn maker(self) -> Option<generate::Maker> {
                match self {
                    $(Task::$variant => None$(.or(Some($maker as generate::Maker)))?,)*
                }
            }
        }
    };
}

tasks! {
    ArcAgi "arc_agi" external::arc_agi:
        "Transform a grid of colours as shown. Also `arc_agi_2`.",
    ArrowMaze "arrow_maze" fill::arrow_maze, generate::fill::arrow_maze:
        "Fill a grid with arrows so that rays from numbers have their length.",
    BooleanExpressions "boolean_expressions" boxed::boolean_expressions, generate::stories::boolean_expressions:
        "Name the true expressions.",
    BuggyTables "buggy_tables" arithmetic::buggy_tables, generate::tables::buggy_tables:
        "Compute from a table whose damage is described.",
    Calcudoko "calcudoko" latin::calcudoko, generate::latin::calcudoko:
        "A latin square with cages.",
    Campsite "campsite" placement::campsite, generate::placement::campsite:
        "Tents beside trees.",
    Cipher "cipher" external::cipher:
        "Encode or decode a text.",
    Cryptarithm "cryptarithm" arithmetic::cryptarithm, generate::arithmetic::cryptarithm:
        "Digits for letters in an equation.",
    DyckLanguage "dyck_language" brackets::dyck_language, generate::brackets::dyck_language:
        "Close all brackets.",
    DyckLanguageErrors "dyck_language_errors" brackets::dyck_errors, generate::brackets::dyck_language_errors:
        "Find the first wrong bracket.",
    DyckLanguageReasoningErrors "dyck_language_reasoning_errors" brackets::dyck_reasoning_errors, generate::brackets::dyck_language_reasoning_errors:
        "Find the wrong steps of a stack trace.",
    Futoshiki "futoshiki" latin::futoshiki, generate::latin::futoshiki:
        "A latin square with signs of inequality.",
    GameOf24 "game_of_24" arithmetic::game_of_2_4, generate::arithmetic::game_of_24:
        "Make a number from numbers. In the reference's dispatch: `mathador`.",
    GoodsExchange "goods_exchange" stories::goods_exchange, generate::stories::goods_exchange:
        "Who owns what after some exchanges.",
    GpqaDiamond "gpqa_diamond" boxed::gpqa:
        "Multiple choice, by the reference's loose comparison. Not one of the 35.",
    Kukurasu "kukurasu" placement::kukurasu, generate::placement::kukurasu:
        "Ones with weights.",
    MathPath "math_path" arithmetic::math_path, generate::arithmetic::math_path:
        "Restore the digits of an equation.",
    Minesweeper "minesweeper" placement::minesweeper, generate::placement::minesweeper:
        "Name the cells that must be mines.",
    Norinori "norinori" placement::norinori, generate::regions::norinori:
        "Dominoes, two cells of each region.",
    NumberWall "number_wall" fill::number_wall, generate::fill::number_wall:
        "Islands of a number's size between walls.",
    Numbrix "numbrix" fill::numbrix, generate::fill::numbrix:
        "A path of consecutive numbers.",
    ObjectCounting "object_counting" boxed::count, generate::stories::object_counting:
        "Count things told of in a story.",
    ObjectProperties "object_properties" boxed::count, generate::stories::object_properties:
        "Count things by their properties after changes.",
    Operation "operation" arithmetic::operation, generate::arithmetic::operation:
        "Evaluate an expression with newly defined operators.",
    SkyscraperPuzzle "skyscraper_puzzle" latin::skyscraper, generate::latin::skyscraper_puzzle:
        "A latin square with numbers of buildings seen.",
    SpaceReasoning "space_reasoning" boxed::space_reasoning, generate::space::space_reasoning:
        "Follow a walk on a map.",
    SpaceReasoningTree "space_reasoning_tree" boxed::space_reasoning_tree, generate::space::space_reasoning_tree:
        "Relations in a tree.",
    StarPlacementPuzzle "star_placement_puzzle" placement::star_placement, generate::regions::star_placement_puzzle:
        "Stars in rows, columns and regions.",
    Sudoku "sudoku" latin::sudoku, generate::latin::sudoku:
        "Sudoku.",
    Survo "survo" fill::survo, generate::fill::survo:
        "A matrix with row and column sums.",
    TimeSequence "time_sequence" stories::time_sequence, generate::tables::time_sequence:
        "The longest common meeting.",
    WebOfLies "web_of_lies" stories::web_of_lies, generate::stories::web_of_lies:
        "Who tells the truth.",
    WordSorting "word_sorting" boxed::word_sorting, generate::sorting::word_sorting:
        "Sort words by an unusual alphabet.",
    WordSortingMistake "word_sorting_mistake" boxed::word_sorting_mistake, generate::sorting::word_sorting_mistake:
        "Find the wrong step of a sort.",
    Wordscapes "wordscapes" stories::wordscapes, generate::words::wordscapes:
        "Words crossing on a grid.",
    ZebraPuzzle "zebra_puzzle" external::zebra_puzzle:
        "Who owns the zebra.",
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Task {
    type Err = Error;

    /// Parses a task's name or an alias of the reference, with or without a split (`val/sudoku`).
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

    /// The task.
    pub fn task(&self) -> Task {
        self.task
    }

    /// Checks a response without thoughts, or with those that the reference strips itself.
    pub fn check(&self, response: &str, options: &Options) -> Outcome {
        self.check_answer(response, response, options)
    }

    /// Checks the answer after the thoughts of a response. The format gate is about the whole response.
    pub fn check_answer(&self, response: &str, answer: &str, options: &Options) -> Outcome {
        let mode = options.mode;
        if options.format_gate && !extract::passes_format_gate(response, mode) {
            return wrong("format");
        }
        let text = match mode {
            Mode::Strict => extract::stated(answer),
            Mode::Parity if options.format_gate => Ok(extract::answer_text(answer)),
            Mode::Parity => Ok(answer),
        };
        text.and_then(|text| (self.rules)(text, mode)).unwrap_or_else(|outcome| outcome)
    }
}

/// Checks one response to one problem. To check several, parse the [`Verifier`] once.
/// Fails if the task is unknown or the problem's data can't be parsed. The caller must report it and not treat it as a
/// verdict.
pub fn check(task: &str, game_data_str: &str, response: &str, options: &Options) -> Result<Outcome, Error> {
    Ok(Verifier::parse(task.parse()?, game_data_str)?.check(response, options))
}

/// The outcome of a check; also an error if the check ends early.
type Checked = Result<Outcome, Outcome>;

/// The outcome of a comparison with the stored answer.
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
