//! Problems for training and evaluation: prompts as tokens, demonstrations and grading.

mod arithmetic;
pub mod generated;
mod puzzles;
pub mod source;
pub mod text;
mod turns;
pub mod words;

pub use fgrpo_core::maze::Split;

use crate::config::{Config, TaskConfig};
use crate::language::Language;
use fgrpo_core::rng::Key;
use fgrpo_eval::dataset::columns::Columns;
use fgrpo_eval::dataset::{self, FilterReport, Problem};
use fgrpo_eval::grade::Grader;
use fgrpo_eval::graded::Graded;
use fgrpo_eval::problems::{ProblemSet, keyed};
use sha2::{Digest, Sha256};
use source::{Elsewhere, Part, Source};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use turns::Turns;

/// A problem and its prompt.
#[derive(Debug, Clone)]
pub struct Prompt {
    /// Index in its split.
    pub id: u64,
    /// Index of the problem in logs and reports: the index of a maze, otherwise `id`.
    pub number: u64,
    /// Index of the problem's source.
    part: usize,
    /// Messages of the prompt, and the data that grades completions.
    pub problem: Problem,
    /// Token ids of the prompt.
    pub tokens: Vec<u32>,
}

/// The problems of a run, from one or more sources, with one tokenizer.
pub struct Task {
    /// Tokenizer, chat template and end tokens.
    pub language: Arc<Language>,
    parts: Vec<Part>,
    /// Whether the problems are a mix, in which case logs have the names of the sources.
    mixed: bool,
}

/// Returns the tokenizer, chat template and end tokens of a task. `model` is the policy's folder.
///
/// # Errors
/// Bad input that names the folder: no tokenizer, or no template.
pub fn language(task: &TaskConfig, model: Option<&PathBuf>) -> anyhow::Result<Language> {
    if let Some(generator) = generated::generator(task) {
        return generated::language(generator, &[]);
    }
    if let TaskConfig::Maze(_) = task {
        return Ok(Language::mazes());
    }
    let stop = task.stop();
    if let Some(folder) = task.tokenizer().or(model) {
        return Language::open(folder, stop);
    }
    // Otherwise the tokenizer of a part with generated problems is used.
    match Source::all(task).into_iter().find_map(|source| generated::generator(source.task)) {
        Some(generator) => generated::language(generator, stop),
        None => bad_input!(
            "task.tokenizer: this key is missing; set the folder of tokenizer.json and the chat template, or set model.path"
        ),
    }
}

/// Reports on the rows of each source whose files all exist. The reports don't include the filter by length, which
/// needs a tokenizer.
///
/// # Errors
/// The data can't be read.
pub fn reports(task: &TaskConfig) -> anyhow::Result<Vec<FilterReport>> {
    let mut reports = Vec::new();
    for text in Source::all(task).iter().filter_map(|source| source.task.text()) {
        if !text.owns_data()
            && std::iter::once(&text.data).chain(&text.held_out).all(|path| dataset::exists(path))
        {
            let text::Files { held_out, train } = text::files(text, true)?;
            reports.extend(std::iter::once(held_out).chain(train).map(|(_, report)| report));
        }
    }
    Ok(reports)
}

/// Returns the held-out problems of a task, for evaluations outside a run. `language` has the tokenizer that measures
/// the length of prompts and demonstrations; if `None`, the length isn't checked. If `train` is `false`, the task isn't
/// trained on and all problems of its data are held out. At most the first `limit` problems of each part are used.
///
/// # Errors
/// Bad input for invalid data and settings; a command that can't be started.
pub fn held_out(
    task: &TaskConfig,
    language: Option<&Language>,
    train: bool,
    limit: Option<usize>,
    elsewhere: &Elsewhere<'_>,
) -> anyhow::Result<Vec<ProblemSet>> {
    let mut sets = Vec::new();
    for source in Source::all(task) {
        sets.push(source.open(language, train, Some(elsewhere))?.held_out());
    }
    keyed(&mut sets, limit);
    for set in &sets {
        set.grader.check_start(&set.problems[0])?;
    }
    if sets.is_empty() {
        bad_input!("there are no held-out problems to evaluate on");
    }
    Ok(sets)
}

/// Returns the graders and column names of a task with problems from files, indexed by the name of the part. A task
/// that isn't a mix has one part, named like its kind. `language` has the chat template's tags around thoughts; if
/// `None`, they are `<think>` and `</think>`.
///
/// Fails for mazes and generated problems, and if a program that grades can't be started.
pub fn graders(
    task: &TaskConfig,
    language: Option<&Language>,
) -> anyhow::Result<BTreeMap<String, (Grader, Columns)>> {
    let template = language.and_then(Language::template);
    Source::all(task).iter().map(|source| source.grader(template)).collect()
}

#[cfg(test)]
impl Prompt {
    /// Makes a prompt with these tokens and an arbitrary problem.
    pub(crate) fn of_tokens(id: u64, tokens: &[u32]) -> Self {
        let maze = fgrpo_core::maze::generate(5, 0, id);
        Self {
            id,
            number: id,
            part: 0,
            problem: fgrpo_eval::problems::of_maze(maze),
            tokens: tokens.to_vec(),
        }
    }
}

impl Task {
    /// Opens the configured task and logs rejected rows of its files. A problem that one part of a mix holds out
    /// isn't used for training in any part.
    ///
    /// # Errors
    /// Bad input that names the file, column or folder: no data, no usable row, no tokenizer or template.
    pub fn open(config: &Config) -> anyhow::Result<Self> {
        let mut language = language(&config.task, config.model.path.as_ref())?;
        if config.sft.is_some() {
            language.end_with_turn()?;
        }
        let language = Arc::new(language);
        let mixed = matches!(config.task, TaskConfig::Mix(_));
        let sources = Source::all(&config.task);
        let mut parts = sources
            .iter()
            .map(|s| s.open(Some(&language), true, None))
            .collect::<anyhow::Result<Vec<_>>>()?;
        if mixed {
            let held_out: HashSet<String> =
                parts.iter().flat_map(|p| p.held_out_ids().map(str::to_owned)).collect();
            for part in &mut parts {
                part.leave_out(&held_out)?;
            }
        }
        Ok(Self { language, parts, mixed })
    }

    /// Returns the number of problems in a split.
    pub fn len(&self, split: Split) -> u64 {
        self.parts.iter().map(|p| p.len(split)).sum()
    }

    /// Returns whether a split is empty.
    pub fn is_empty(&self, split: Split) -> bool {
        self.len(split) == 0
    }

    /// Returns problem `id` of a split. In a mix, the ids of each part continue after the ids of the part before it.
    pub fn prompt(&self, split: Split, id: u64) -> Prompt {
        let (part, index) = self.locate(split, id);
        let (number, problem, tokens) = self.parts[part].problem(split, index, &self.language);
        Prompt { id, number: number.unwrap_or(id), part, problem, tokens }
    }

    fn locate(&self, split: Split, id: u64) -> (usize, u64) {
        let mut index = id;
        for (at, part) in self.parts.iter().enumerate() {
            let n = part.len(split);
            if index < n {
                return (at, index);
            }
            index -= n;
        }
        panic!("problem {id} of {}", self.len(split));
    }

    /// Returns the training problems at `positions` of the endless sequence of prompts. The problems depend only on
    /// `order` and the positions. Each pass over the problems has a separate order.
    ///
    /// In a mix, the part at every position is chosen by weight, so that the number of prompts from each part always
    /// differs from its exact share by less than one. Each part goes through its problems in epochs of its own.
    pub fn training(&self, order: Key, positions: Range<u64>) -> Vec<u64> {
        let at = |order: Key, position: u64, n: u64| order.with(position / n).permute(position % n, n);
        if !self.mixed {
            let n = self.len(Split::Train);
            return positions.map(|position| at(order, position, n)).collect();
        }
        let mut turns = Turns::new(self.parts.iter().map(|p| p.weight));
        for _ in 0..positions.start {
            turns.next();
        }
        let first = |part: usize| self.parts[..part].iter().map(|p| p.len(Split::Train)).sum::<u64>();
        positions
            .map(|_| {
                let (part, position) = turns.next();
                let n = self.parts[part].len(Split::Train);
                first(part) + at(order.with(part as u64), position, n)
            })
            .collect()
    }

    /// Returns the held-out problems of each source, with everything needed to prompt and grade them.
    pub fn held_out(&self) -> Vec<ProblemSet> {
        self.parts.iter().map(Part::held_out).collect()
    }

    /// Returns the settings for prompting and grading a problem.
    pub fn set(&self, prompt: &Prompt) -> &ProblemSet {
        &self.parts[prompt.part].set
    }

    /// Returns the maximum number of turns in an episode, or 1 without an environment.
    pub fn max_turns(&self) -> usize {
        let turns = |part: &Part| part.set.grader.environment().map_or(1, |(_, turns)| turns);
        self.parts.iter().map(turns).max().unwrap_or(1)
    }

    /// Returns the name of a problem's source, if there are several sources.
    pub fn part(&self, prompt: &Prompt) -> Option<&str> {
        self.mixed.then(|| self.parts[prompt.part].set.name.as_str())
    }

    /// Returns the token ids of a problem's prompt with `hint` added to the last user message.
    ///
    /// # Errors
    /// Bad input: the conversation lacks a user message, or the chat template rejects the conversation.
    pub fn hinted(&self, prompt: &Prompt, hint: &str) -> anyhow::Result<Vec<u32>> {
        let preset = &self.set(prompt).prompt;
        let mut messages = prompt.problem.conversation(preset.system.as_deref());
        let Some(message) = messages.iter_mut().rev().find(|message| message.role == "user") else {
            bad_input!(
                "teacher.hint: problem {} has no user message, to which the hint is added",
                prompt.problem.id
            )
        };
        message.content.push_str(hint);
        self.language.prompt(&messages, preset.thinking)
    }

    /// Returns the demonstration of a problem, including the end token, or `None` if the problem doesn't have one.
    pub fn demonstration(&self, prompt: &Prompt) -> Option<Vec<u32>> {
        self.language.demonstration(prompt.problem.solution.as_deref()?).ok()
    }

    /// Returns problem `id` of a split, or `None` for a maze that is generated on demand.
    pub fn listed(&self, split: Split, id: u64) -> Option<Prompt> {
        let (part, _) = self.locate(split, id);
        (!self.parts[part].generates(split)).then(|| self.prompt(split, id))
    }

    /// Grades a completion, given as token ids with or without the end token.
    pub fn grade(&self, prompt: &Prompt, completion: &[u32]) -> Graded {
        match self.language.answer(completion) {
            Ok(text) => self.set(prompt).grader.grade(&prompt.problem, &text),
            Err(_) => Graded::unscorable("undecodable"),
        }
    }

    /// Returns the default limit on completion length, in tokens.
    pub fn max_new_tokens(&self) -> usize {
        self.parts.iter().map(|part| part.set.max_tokens).max().unwrap_or(1)
    }

    /// Returns the length of the longest prompt, in tokens.
    pub fn longest_prompt(&self) -> usize {
        self.parts.iter().map(Part::longest_prompt).max().unwrap_or(0)
    }

    /// Returns the maximum length of a prompt and its completion, for which a new model needs positions.
    pub fn context(&self) -> usize {
        self.parts.iter().map(|p| p.longest_prompt() + p.set.max_tokens).max().unwrap_or(1)
    }

    /// Reports on the rows of the task's files, one for each file and split.
    pub fn reports(&self) -> Vec<&FilterReport> {
        self.parts.iter().flat_map(Part::reports).collect()
    }

    /// Returns an identifier of each part's grader.
    pub fn graders(&self) -> Vec<String> {
        self.parts.iter().map(|part| part.set.grader.identity()).collect()
    }

    /// Returns an identifier of all training and held-out problems, with their answers and solutions.
    pub fn problem_set(&self) -> String {
        let mut hash = Sha256::new();
        for part in &self.parts {
            part.hash_problems(&mut hash);
        }
        hash.finalize()[..8].iter().map(|b| format!("{b:02x}")).collect()
    }

    /// Returns an identifier of the demonstrations: equal strings mean equal demonstrations.
    pub fn fingerprint(&self) -> String {
        let parts: Vec<String> = self.parts.iter().map(|p| p.fingerprint(&self.language)).collect();
        let parts = parts.join(", ");
        if self.mixed { format!("mix {parts}") } else { parts }
    }
}

#[cfg(test)]
mod tests;
