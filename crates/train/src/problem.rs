//! What a policy is trained on: prompts, demonstrations and grades. The one trait of the binary.

pub mod dataset;

pub mod arithmetic;
pub mod held_out;
pub mod kind;
pub mod maze;
pub mod mix;
pub mod row;
pub mod text;

use crate::config::{Config, TaskConfig};
pub use crate::grade::Graded;
use crate::language::Language;
use crate::problem::dataset::Problem;
use fgrpo_core::rng::Key;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Which problems: those trained on, or those kept apart for evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// Training problems.
    Train,
    /// Held-out problems.
    HeldOut,
}

/// One problem as the policy sees it.
#[derive(Debug, Clone)]
pub struct Prompt {
    /// Index in its split.
    pub id: u64,
    /// Token ids.
    pub tokens: Vec<u32>,
}

/// A source of problems that knows how to grade their answers.
pub trait Task: Send + Sync {
    /// Number of problems of a split.
    fn len(&self, split: Split) -> u64;

    /// Whether a split has no problem.
    fn is_empty(&self, split: Split) -> bool {
        self.len(split) == 0
    }

    /// Problem `id` of a split.
    fn prompt(&self, split: Split, id: u64) -> Prompt;

    /// The training problems at some positions of the endless sequence of prompts, a function of `order`
    /// and the position alone. Each pass over the problems is an order of its own.
    fn training(&self, order: Key, positions: Range<u64>) -> Vec<u64> {
        let n = self.len(Split::Train);
        positions.map(|p| order.with(p / n).permute(p % n, n)).collect()
    }

    /// The held-out problems with all that asks and grades them, one part for each source that has any.
    ///
    /// # Errors
    /// Reference answers that are no JSON.
    fn held_out(&self) -> anyhow::Result<Vec<held_out::Part>>;

    /// The source that a problem comes from, where there are several.
    fn part(&self, _split: Split, _id: u64) -> Option<&str> {
        None
    }

    /// The number under which logs and reports know a problem.
    fn number(&self, _split: Split, id: u64) -> u64 {
        id
    }

    /// A completion to imitate, with its end token; `None` where the problem has none.
    fn demonstration(&self, split: Split, id: u64) -> Option<Vec<u32>>;

    /// Whether a problem has a demonstration.
    fn demonstrates(&self, split: Split, id: u64) -> bool {
        self.demonstration(split, id).is_some()
    }

    /// Grades a completion (token ids, the stop token included where there is one).
    fn grade(&self, split: Split, id: u64, completion: &[u32], truncated: bool) -> Graded;

    /// Tokens that end a completion.
    fn stop_tokens(&self) -> &[u32];

    /// Texts that end a completion, wherever token boundaries fall.
    fn stop_texts(&self) -> &[String] {
        &[]
    }

    /// Whether the last token of a completion brought one of these texts to its end.
    fn ended(&self, _completion: &[u32]) -> bool {
        false
    }

    /// The longest completion worth sampling.
    fn max_new_tokens(&self) -> usize;

    /// Size of the vocabulary, for a model made new.
    fn vocab_size(&self) -> usize;

    /// The longest sequence a model made new must hold, prompt and completion.
    fn context(&self) -> usize;

    /// The problem as its file has it, where problems come from files.
    fn source(&self, _split: Split, _id: u64) -> Option<&Problem> {
        None
    }

    /// The token that begins a prompt, where there is one.
    fn bos_token(&self) -> Option<u32>;

    /// The token for padding in other programs, where there is one.
    fn pad_token(&self) -> Option<u32>;

    /// Token ids as text, for logs and reports.
    fn text(&self, tokens: &[u32]) -> String;

    /// What puts problems to the model and ends completions; mazes have a vocabulary of their own.
    fn language(&self) -> Option<&Language> {
        None
    }

    /// A text as token ids; `None` where the task has no tokenizer.
    fn tokens(&self, _text: &str) -> Option<Vec<u32>> {
        None
    }

    /// The reference answer as text, where there is one.
    fn target(&self, split: Split, id: u64) -> Option<String>;

    /// Writes the tokenizer's files beside a checkpoint.
    ///
    /// # Errors
    /// Naming the file that couldn't be written.
    fn write_tokenizer(&self, folder: &Path) -> anyhow::Result<()>;

    /// What identifies the demonstrations: equal strings, equal demonstrations.
    fn fingerprint(&self) -> String;
}

/// The tokenizer that a task's problems are put to the model with. `model` is the policy's folder. Mazes have none.
///
/// # Errors
/// Bad input naming the folder: no tokenizer, no template.
pub fn language(task: &TaskConfig, model: Option<&PathBuf>) -> anyhow::Result<Option<Language>> {
    match task {
        TaskConfig::Maze(_) => Ok(None),
        TaskConfig::Arithmetic(a) => arithmetic::language(a, &[]).map(Some),
        TaskConfig::Mix(m) => mix::language(m, model).map(Some),
        from_file => {
            let (_, text) = from_file.text().expect("every other task reads its problems from files");
            Language::open(&text.tokenizer_folder(model)?, &text.stop).map(Some)
        }
    }
}

/// Opens the configured task.
///
/// # Errors
/// For data that can't be read.
pub fn open(config: &Config) -> anyhow::Result<Box<dyn Task>> {
    match &config.task {
        TaskConfig::Maze(m) => Ok(Box::new(maze::MazeTask::new(m.clone())?)),
        TaskConfig::Arithmetic(a) => Ok(Box::new(arithmetic::open(a)?)),
        TaskConfig::Mix(m) => Ok(Box::new(mix::open(m, config.model.path.as_ref())?)),
        from_file => {
            let (kind, text) = from_file.text().expect("every other task reads its problems from files");
            Ok(Box::new(text::open(kind, text, config.model.path.as_ref())?))
        }
    }
}
