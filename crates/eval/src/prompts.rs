//! Stores the prompt of each problem in an evaluation folder.

use super::folder::{Folder, PROMPTS};
use crate::dataset::{Message, Problem};
use crate::io::lines;
use crate::kind::TaskKind;
use crate::problems::ProblemSet;
use crate::samples::{Benchmark, SCORED};
use std::collections::HashMap;
use std::path::Path;

/// The prompt of a problem, a line of `prompts.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PromptRecord {
    /// Name of the data set.
    pub benchmark: String,
    /// Hash of the problem.
    pub problem: String,
    /// The kind of task.
    pub task: TaskKind,
    /// The conversation up to the completion.
    pub messages: Vec<Message>,
    /// `enable_thinking` of the chat template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<bool>,
}

impl ProblemSet {
    /// Returns the prompt of one of this set's problems.
    pub fn record(&self, problem: &Problem) -> PromptRecord {
        PromptRecord {
            benchmark: self.name.clone(),
            problem: problem.id.clone(),
            task: self.kind(),
            messages: self.conversation(problem),
            thinking: self.prompt.thinking,
        }
    }
}

/// Reads the prompts from a folder's file. The list is empty if the file doesn't exist.
pub fn read(path: &Path) -> anyhow::Result<Vec<PromptRecord>> {
    lines::read(path)
}

/// Writes the prompts of these sets to the folder's file, and keeps the prompts of other data sets.
pub fn record(parts: &[ProblemSet], folder: &Folder) -> anyhow::Result<()> {
    let path = folder.file(PROMPTS);
    let ours = |name: &str| parts.iter().any(|p| p.name == name);
    let mut records = read(&path)?;
    records.retain(|r| !ours(&r.benchmark));
    records.extend(parts.iter().flat_map(|part| part.problems.iter().map(|p| part.record(p))));
    folder.write(PROMPTS, &lines::to_bytes(&records)?)
}

/// Adds the questions of an evaluation folder's problems to their counts, if the prompts can be read.
pub fn add_questions(benchmarks: &mut [Benchmark]) {
    for benchmark in benchmarks.iter_mut().filter(|b| b.path.ends_with(SCORED)) {
        let records = read(&benchmark.path.with_file_name(PROMPTS)).unwrap_or_default();
        let question = |record: PromptRecord| {
            let user = record.messages.into_iter().rfind(|message| message.role == "user")?;
            Some((record.problem, user.content))
        };
        let mut questions: HashMap<String, String> = records.into_iter().filter_map(question).collect();
        for problem in &mut benchmark.problems {
            problem.question = questions.remove(&problem.id);
        }
    }
}

/// Returns the index of the longest question that a prompt contains, or `None` if the prompt contains none or several
/// of the greatest length.
pub(crate) fn asked<'a>(prompt: &str, questions: impl Iterator<Item = (usize, &'a str)>) -> Option<usize> {
    let mut longest: Option<(usize, Option<usize>)> = None;
    for (at, question) in questions.filter(|(_, question)| !question.trim().is_empty()) {
        let length = longest.map_or(0, |(length, _)| length);
        if question.len() >= length && prompt.contains(question.trim()) {
            longest = Some((question.len(), (question.len() > length).then_some(at)));
        }
    }
    longest?.1
}
