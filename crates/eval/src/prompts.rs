//! Stores the prompt of each problem in an evaluation folder.

use super::folder::{Folder, PROMPTS};
use crate::dataset::{Message, Problem};
use crate::io::lines;
use crate::kind::TaskKind;
use crate::problems::ProblemSet;
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
    /// The prompt of one of this set's problems.
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

/// Reads the prompts from a folder's file. Without a file there are none.
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
