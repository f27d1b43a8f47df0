//! The problems that have a demonstration, and their order.

use crate::policy::Sequence;
use crate::problem::{Split, Task};
use fgrpo_core::rng::Key;
use rayon::prelude::*;
use std::collections::BTreeMap;

/// The problems of a split that have a demonstration. Problems whose prompt and demonstration are longer than the
/// model's positions are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demonstrations {
    split: Split,
    /// Indices of these problems, or `None` if no problem is left out.
    indices: Option<Vec<u64>>,
    problems: u64,
    /// Maximum number of tokens of a prompt with its demonstration.
    positions: usize,
    /// Number of problems that are left out, and the row of the first one, indexed by the reason.
    left_out: BTreeMap<Reason, (u64, usize)>,
}

/// Reason for leaving a problem out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    Missing,
    NotText,
    Untokenized,
    TooLong,
}

impl Reason {
    /// Returns the reason for leaving a problem out, or `None` if the problem has a usable demonstration. Solutions of
    /// problems with an environment aren't used. Generated mazes aren't checked, because there may be any number of them.
    fn of(task: &Task, split: Split, id: u64, positions: usize) -> Option<Self> {
        let prompt = task.listed(split, id)?;
        let problem = &prompt.problem;
        if problem.solution.is_none() || task.set(&prompt).grader.environment().is_some() {
            return Some(if problem.solution_is_not_text { Self::NotText } else { Self::Missing });
        }
        match task.demonstration(&prompt) {
            Some(tokens) if prompt.tokens.len() + tokens.len() > positions => Some(Self::TooLong),
            Some(tokens) if !tokens.is_empty() => None,
            _ => Some(Self::Untokenized),
        }
    }
}

impl Demonstrations {
    /// Finds the demonstrations in a split that fit into the model's positions.
    /// Fails if the split is the training problems and none has such a demonstration.
    pub fn of(task: &Task, split: Split, positions: usize) -> anyhow::Result<Self> {
        let problems = task.len(split);
        let reasons = (0..problems).into_par_iter().map(|id| Reason::of(task, split, id, positions));
        let reasons: Vec<Option<Reason>> = reasons.collect();
        let mut left_out = BTreeMap::new();
        for (id, reason) in (0..).zip(&reasons) {
            if let Some(reason) = *reason {
                left_out.entry(reason).or_insert_with(|| (0, task.prompt(split, id).problem.row)).0 += 1;
            }
        }
        let with = (0..).zip(&reasons).filter(|(_, reason)| reason.is_none()).map(|(id, _)| id);
        let indices = (!left_out.is_empty()).then(|| with.collect());
        let found = Self { split, indices, problems, positions, left_out };
        if found.is_empty() && split == Split::Train {
            bad_input!(
                "sft: none of the {problems} training problems has a demonstration that can be used ({}); add a column `solution` with a worked answer (task.columns can name another column), or remove [sft]",
                found.left_out().unwrap_or_default()
            );
        }
        Ok(found)
    }

    /// Returns the number of demonstrations.
    pub fn len(&self) -> u64 {
        self.indices.as_ref().map_or(self.problems, |indices| indices.len() as u64)
    }

    /// Returns whether the number of demonstrations is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counts the problems that are left out by reason, in words. Returns `None` if no problem is left out.
    pub fn left_out(&self) -> Option<String> {
        let count = |(reason, (count, row)): (&Reason, &(u64, usize))| {
            let reason = match reason {
                Reason::Missing => return format!("{count} without a solution"),
                Reason::NotText => "with a solution that isn't text".to_owned(),
                Reason::Untokenized => "with a solution that can't be tokenized".to_owned(),
                Reason::TooLong => format!("longer than the model's {} positions", self.positions),
            };
            format!("{count} {reason} (row {row}{})", if *count > 1 { " and others" } else { "" })
        };
        let counts: Vec<String> = self.left_out.iter().map(count).collect();
        (!counts.is_empty()).then(|| counts.join(", "))
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
    /// Fails if a generated maze and its path are longer than the model's positions.
    pub fn sequences(
        &self,
        task: &Task,
        problems: impl Iterator<Item = u64>,
    ) -> anyhow::Result<Vec<Sequence>> {
        let sequence = |id| {
            let prompt = task.prompt(self.split, id);
            let completion = task.demonstration(&prompt).unwrap_or_default();
            let (length, positions) = (prompt.tokens.len() + completion.len(), self.positions);
            if length > positions {
                bad_input!(
                    "sft: maze {} and its path have {length} tokens, but the model has only {positions} positions; use smaller mazes (task.size) or a model with more positions",
                    prompt.number
                );
            }
            Ok(Sequence::completion(&prompt.tokens, &completion))
        };
        problems.map(sequence).collect()
    }
}
