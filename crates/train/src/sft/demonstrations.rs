//! Which problems have a demonstration, and in which order they are used.

use crate::policy::Sequence;
use crate::problem::{Split, Task};
use fgrpo_core::rng::Key;

/// The problems of a split with a demonstration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demonstrations {
    split: Split,
    /// The indices of these problems; `None` if all problems have one.
    those: Option<Vec<u64>>,
    problems: u64,
}

impl Demonstrations {
    /// Finds the demonstrations in a split.
    /// Fails if no training problem has a demonstration.
    pub fn of(task: &Task, split: Split) -> anyhow::Result<Self> {
        let problems = task.len(split);
        let those: Vec<u64> = (0..problems).filter(|&id| task.demonstrates(split, id)).collect();
        if those.is_empty() && split == Split::Train {
            bad_input!(
                "sft: none of the {problems} training problems has a demonstration; wanted a column `solution` with a worked answer (task.columns names another), or no [sft]"
            );
        }
        let all = those.len() as u64 == problems;
        Ok(Self { split, those: (!all).then_some(those), problems })
    }

    /// Number of demonstrations.
    pub fn len(&self) -> u64 {
        self.those.as_ref().map_or(self.problems, |those| those.len() as u64)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of problems without one.
    pub fn missing(&self) -> u64 {
        self.problems - self.len()
    }

    /// The problem of the demonstration at an index, from 0.
    pub fn problem(&self, place: u64) -> u64 {
        self.those.as_ref().map_or(place, |those| those[place as usize])
    }

    /// The problem at a position of the training order; each pass has its own order.
    pub fn problem_at(&self, order: Key, position: u64) -> u64 {
        let n = self.len();
        self.problem(order.with(position / n).permute(position % n, n))
    }

    /// The prompts and demonstrations of some problems; the demonstrations' tokens are the targets.
    /// The error names a problem whose demonstration can't be tokenized or is empty.
    pub fn sequences(
        &self,
        task: &Task,
        problems: impl Iterator<Item = u64>,
    ) -> anyhow::Result<Vec<Sequence>> {
        let of_problem = |id| {
            let prompt = task.prompt(self.split, id);
            let Some(completion) = task.demonstration(&prompt).filter(|c| !c.is_empty()) else {
                bad_input!("sft: the demonstration of problem {id} can't be tokenized");
            };
            Ok(Sequence::completion(&prompt.tokens, &completion))
        };
        problems.map(of_problem).collect()
    }
}
