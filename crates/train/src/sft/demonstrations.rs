//! The problems that have a demonstration, and their order.

use crate::policy::Sequence;
use crate::problem::{Split, Task};
use fgrpo_core::rng::Key;

/// The problems of a split that have a demonstration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demonstrations {
    split: Split,
    /// Indices of these problems, or `None` if all problems have a demonstration.
    indices: Option<Vec<u64>>,
    problems: u64,
}

impl Demonstrations {
    /// Finds the demonstrations in a split.
    /// Fails if no training problem has a demonstration.
    pub fn of(task: &Task, split: Split) -> anyhow::Result<Self> {
        let problems = task.len(split);
        let indices: Vec<u64> = (0..problems).filter(|&id| task.demonstrates(split, id)).collect();
        if indices.is_empty() && split == Split::Train {
            bad_input!(
                "sft: none of the {problems} training problems has a demonstration; add a column `solution` with a worked answer (task.columns can name another column), or remove [sft]"
            );
        }
        let all = indices.len() as u64 == problems;
        Ok(Self { split, indices: (!all).then_some(indices), problems })
    }

    /// Returns the number of demonstrations.
    pub fn len(&self) -> u64 {
        self.indices.as_ref().map_or(self.problems, |indices| indices.len() as u64)
    }

    /// Returns whether the number of demonstrations is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of problems without a demonstration.
    pub fn missing(&self) -> u64 {
        self.problems - self.len()
    }

    /// Returns the problem of the demonstration at an index.
    pub fn problem(&self, index: u64) -> u64 {
        self.indices.as_ref().map_or(index, |indices| indices[index as usize])
    }

    /// Returns the problem at a position of the training order. Each pass over the demonstrations has a separate order.
    pub fn problem_at(&self, order: Key, position: u64) -> u64 {
        let n = self.len();
        self.problem(order.with(position / n).permute(position % n, n))
    }

    /// Returns the prompts and demonstrations of problems as sequences whose targets are the tokens of the
    /// demonstrations.
    /// Fails if a demonstration is empty or can't be tokenized.
    pub fn sequences(
        &self,
        task: &Task,
        problems: impl Iterator<Item = u64>,
    ) -> anyhow::Result<Vec<Sequence>> {
        let sequence = |id| {
            let prompt = task.prompt(self.split, id);
            let Some(completion) = task.demonstration(&prompt).filter(|c| !c.is_empty()) else {
                bad_input!(
                    "sft: the demonstration of problem {id} is empty or can't be tokenized; correct or remove its row"
                );
            };
            Ok(Sequence::completion(&prompt.tokens, &completion))
        };
        problems.map(sequence).collect()
    }
}
