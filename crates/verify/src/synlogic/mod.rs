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
mod operation;
mod placement;
pub mod python;
pub mod rational;
mod stories;
mod text;
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
    #[error("task: found `{found}`, wanted one of {}", Task::ALL.map(Task::name).join(", "))]
    UnknownTask {
        /// The name.
        found: String,
    },
    /// The problem's data is not a JSON object.
    #[error("{task}: game_data_str: not a JSON object with question, answer, difficulty and metadata")]
    NotJson {
        /// The task.
        task: Task,
    },
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

macro_rules! tasks {
    ($($variant:ident $name:literal $doc:literal,)*) => {
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
        }
    };
}

tasks! {
    ArcAgi "arc_agi" "Transform a grid of colours as shown. Also `arc_agi_2`.",
    ArrowMaze "arrow_maze" "Fill a grid with arrows so that rays from numbers have their length.",
    BooleanExpressions "boolean_expressions" "Name the true expressions.",
    BuggyTables "buggy_tables" "Compute from a table whose damage is described.",
    Calcudoko "calcudoko" "A latin square with cages.",
    Campsite "campsite" "Tents beside trees.",
    Cipher "cipher" "Encode or decode a text.",
    Cryptarithm "cryptarithm" "Digits for letters in an equation.",
    DyckLanguage "dyck_language" "Close all brackets.",
    DyckLanguageErrors "dyck_language_errors" "Find the first wrong bracket.",
    DyckLanguageReasoningErrors "dyck_language_reasoning_errors" "Find the wrong steps of a stack trace.",
    Futoshiki "futoshiki" "A latin square with signs of inequality.",
    GameOf24 "game_of_24" "Make a number from numbers. In the reference's dispatch: `mathador`.",
    GoodsExchange "goods_exchange" "Who owns what after some exchanges.",
    GpqaDiamond "gpqa_diamond" "Multiple choice, by the reference's loose comparison. Not one of the 35.",
    Kukurasu "kukurasu" "Ones with weights.",
    MathPath "math_path" "Restore the digits of an equation.",
    Minesweeper "minesweeper" "Name the cells that must be mines.",
    Norinori "norinori" "Dominoes, two cells of each region.",
    NumberWall "number_wall" "Islands of a number's size between walls.",
    Numbrix "numbrix" "A path of consecutive numbers.",
    ObjectCounting "object_counting" "Count things told of in a story.",
    ObjectProperties "object_properties" "Count things by their properties after changes.",
    Operation "operation" "Evaluate an expression with newly defined operators.",
    SkyscraperPuzzle "skyscraper_puzzle" "A latin square with numbers of buildings seen.",
    SpaceReasoning "space_reasoning" "Follow a walk on a map.",
    SpaceReasoningTree "space_reasoning_tree" "Relations in a tree.",
    StarPlacementPuzzle "star_placement_puzzle" "Stars in rows, columns and regions.",
    Sudoku "sudoku" "Sudoku.",
    Survo "survo" "A matrix with row and column sums.",
    TimeSequence "time_sequence" "The longest common meeting.",
    WebOfLies "web_of_lies" "Who tells the truth.",
    WordSorting "word_sorting" "Sort words by an unusual alphabet.",
    WordSortingMistake "word_sorting_mistake" "Find the wrong step of a sort.",
    Wordscapes "wordscapes" "Words crossing on a grid.",
    ZebraPuzzle "zebra_puzzle" "Who owns the zebra.",
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
        found.ok_or_else(|| Error::UnknownTask { found: text.to_owned() })
    }
}

enum Rules {
    ArcAgi(external::ArcAgi),
    ArrowMaze(fill::ArrowMaze),
    BooleanExpressions(boxed::BooleanExpressions),
    BuggyTables(arithmetic::BuggyTables),
    Calcudoko(latin::Calcudoko),
    Campsite(placement::Campsite),
    Cipher(external::Cipher),
    Count(boxed::Count),
    Cryptarithm(arithmetic::Cryptarithm),
    DyckErrors(brackets::DyckErrors),
    DyckLanguage(brackets::DyckLanguage),
    DyckReasoningErrors(brackets::DyckReasoningErrors),
    Futoshiki(latin::Futoshiki),
    GameOf24(arithmetic::GameOf24),
    GoodsExchange(stories::GoodsExchange),
    Gpqa(boxed::Gpqa),
    Kukurasu(placement::Kukurasu),
    MathPath(arithmetic::MathPath),
    Minesweeper(placement::Minesweeper),
    Norinori(placement::Norinori),
    NumberWall(fill::NumberWall),
    Numbrix(fill::Numbrix),
    Operation(operation::Operation),
    Skyscraper(latin::Skyscraper),
    SpaceReasoning(boxed::SpaceReasoning),
    SpaceReasoningTree(boxed::SpaceReasoningTree),
    StarPlacement(placement::StarPlacement),
    Sudoku(latin::Sudoku),
    Survo(fill::Survo),
    TimeSequence(stories::TimeSequence),
    WebOfLies(stories::WebOfLies),
    WordSorting(boxed::WordSorting),
    WordSortingMistake(boxed::WordSortingMistake),
    Wordscapes(stories::Wordscapes),
    ZebraPuzzle(external::ZebraPuzzle),
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
    ///
    /// # Errors
    /// If the data is not JSON or lacks a field of the task's verifier; the message names the field.
    pub fn parse(task: Task, game_data_str: &str) -> Result<Self, Error> {
        let game = &game::Game::parse(task, game_data_str)?;
        let rules = match task {
            Task::ArcAgi => Rules::ArcAgi(external::ArcAgi::parse(game)?),
            Task::ArrowMaze => Rules::ArrowMaze(fill::ArrowMaze::parse(game)?),
            Task::BooleanExpressions => Rules::BooleanExpressions(boxed::BooleanExpressions::parse(game)?),
            Task::BuggyTables => Rules::BuggyTables(arithmetic::BuggyTables::parse(game)?),
            Task::Calcudoko => Rules::Calcudoko(latin::Calcudoko::parse(game)?),
            Task::Campsite => Rules::Campsite(placement::Campsite::parse(game)?),
            Task::Cipher => Rules::Cipher(external::Cipher::parse(game)?),
            Task::Cryptarithm => Rules::Cryptarithm(arithmetic::Cryptarithm::parse(game)?),
            Task::DyckLanguage => Rules::DyckLanguage(brackets::DyckLanguage::parse(game)?),
            Task::DyckLanguageErrors => Rules::DyckErrors(brackets::DyckErrors::parse(game)?),
            Task::DyckLanguageReasoningErrors => {
                Rules::DyckReasoningErrors(brackets::DyckReasoningErrors::parse(game)?)
            }
            Task::Futoshiki => Rules::Futoshiki(latin::Futoshiki::parse(game)?),
            Task::GameOf24 => Rules::GameOf24(arithmetic::GameOf24::parse(game)?),
            Task::GoodsExchange => Rules::GoodsExchange(stories::GoodsExchange::parse(game)?),
            Task::GpqaDiamond => Rules::Gpqa(boxed::Gpqa::parse(game)?),
            Task::Kukurasu => Rules::Kukurasu(placement::Kukurasu::parse(game)?),
            Task::MathPath => Rules::MathPath(arithmetic::MathPath::parse(game)?),
            Task::Minesweeper => Rules::Minesweeper(placement::Minesweeper::parse(game)?),
            Task::Norinori => Rules::Norinori(placement::Norinori::parse(game)?),
            Task::NumberWall => Rules::NumberWall(fill::NumberWall::parse(game)?),
            Task::Numbrix => Rules::Numbrix(fill::Numbrix::parse(game)?),
            Task::ObjectCounting | Task::ObjectProperties => Rules::Count(boxed::Count::parse(game)?),
            Task::Operation => Rules::Operation(operation::Operation::parse(game)?),
            Task::SkyscraperPuzzle => Rules::Skyscraper(latin::Skyscraper::parse(game)?),
            Task::SpaceReasoning => Rules::SpaceReasoning(boxed::SpaceReasoning::parse(game)?),
            Task::SpaceReasoningTree => Rules::SpaceReasoningTree(boxed::SpaceReasoningTree::parse(game)?),
            Task::StarPlacementPuzzle => Rules::StarPlacement(placement::StarPlacement::parse(game)?),
            Task::Sudoku => Rules::Sudoku(latin::Sudoku::parse(game)?),
            Task::Survo => Rules::Survo(fill::Survo::parse(game)?),
            Task::TimeSequence => Rules::TimeSequence(stories::TimeSequence::parse(game)?),
            Task::WebOfLies => Rules::WebOfLies(stories::WebOfLies::parse(game)?),
            Task::WordSorting => Rules::WordSorting(boxed::WordSorting::parse(game)?),
            Task::WordSortingMistake => Rules::WordSortingMistake(boxed::WordSortingMistake::parse(game)?),
            Task::Wordscapes => Rules::Wordscapes(stories::Wordscapes::parse(game)?),
            Task::ZebraPuzzle => Rules::ZebraPuzzle(external::ZebraPuzzle::parse(game)?),
        };
        Ok(Self { task, rules })
    }

    /// The task.
    pub fn task(&self) -> Task {
        self.task
    }

    /// Checks a response.
    pub fn check(&self, response: &str, options: &Options) -> Outcome {
        let text = if options.format_gate {
            if !extract::passes_format_gate(response) {
                return wrong("format");
            }
            extract::answer_text(response)
        } else {
            response
        };
        let mode = options.mode;
        match &self.rules {
            Rules::ArcAgi(r) => r.check(text, mode),
            Rules::ArrowMaze(r) => r.check(text, mode),
            Rules::BooleanExpressions(r) => r.check(text, mode),
            Rules::BuggyTables(r) => r.check(text, mode),
            Rules::Calcudoko(r) => r.check(text, mode),
            Rules::Campsite(r) => r.check(text, mode),
            Rules::Cipher(r) => r.check(text, mode),
            Rules::Count(r) => r.check(text, mode),
            Rules::Cryptarithm(r) => r.check(text, mode),
            Rules::DyckErrors(r) => r.check(text, mode),
            Rules::DyckLanguage(r) => r.check(text, mode),
            Rules::DyckReasoningErrors(r) => r.check(text, mode),
            Rules::Futoshiki(r) => r.check(text, mode),
            Rules::GameOf24(r) => r.check(text, mode),
            Rules::GoodsExchange(r) => r.check(text, mode),
            Rules::Gpqa(r) => r.check(text, mode),
            Rules::Kukurasu(r) => r.check(text, mode),
            Rules::MathPath(r) => r.check(text, mode),
            Rules::Minesweeper(r) => r.check(text, mode),
            Rules::Norinori(r) => r.check(text, mode),
            Rules::NumberWall(r) => r.check(text, mode),
            Rules::Numbrix(r) => r.check(text, mode),
            Rules::Operation(r) => r.check(text, mode),
            Rules::Skyscraper(r) => r.check(text, mode),
            Rules::SpaceReasoning(r) => r.check(text, mode),
            Rules::SpaceReasoningTree(r) => r.check(text, mode),
            Rules::StarPlacement(r) => r.check(text, mode),
            Rules::Sudoku(r) => r.check(text, mode),
            Rules::Survo(r) => r.check(text, mode),
            Rules::TimeSequence(r) => r.check(text, mode),
            Rules::WebOfLies(r) => r.check(text, mode),
            Rules::WordSorting(r) => r.check(text, mode),
            Rules::WordSortingMistake(r) => r.check(text, mode),
            Rules::Wordscapes(r) => r.check(text, mode),
            Rules::ZebraPuzzle(r) => r.check(text, mode),
        }
    }
}

/// Checks one response to one problem. To check several, parse the [`Verifier`] once.
///
/// # Errors
/// If the task is unknown or the problem's data can't be parsed. The caller must report it and not treat it as a
/// verdict.
pub fn check(task: &str, game_data_str: &str, response: &str, options: &Options) -> Result<Outcome, Error> {
    Ok(Verifier::parse(task.parse()?, game_data_str)?.check(response, options))
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

#[cfg(test)]
mod tests;
