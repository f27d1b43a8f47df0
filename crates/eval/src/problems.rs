//! Sets of problems with everything needed to prompt and grade them, as used by the trainer, configurations and files.

use crate::dataset::presets::{Preset, Prompting};
use crate::dataset::{Message, Problem, rows};
use crate::grade::Grader;
use crate::io::lines::Lines;
use crate::kind::{self, TaskKind, Truth, short_hash};
use fgrpo_core::maze::{self, Maze, tokens};
use fgrpo_core::rng::Key;
use serde::Deserialize;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

/// Problems from one source, with everything needed to prompt and grade them.
#[derive(Clone)]
pub struct ProblemSet {
    /// Name of the benchmark in tables.
    pub name: String,
    /// Prompt settings as configured.
    pub prompting: Prompting,
    /// Prompt settings with the preset resolved.
    pub prompt: Preset,
    /// Grader of completions, in training and in evaluations.
    pub grader: Arc<Grader>,
    /// The problems, in order.
    pub problems: Vec<Problem>,
    /// Default limit of the completion length, in tokens.
    pub max_tokens: usize,
}

impl ProblemSet {
    /// Creates a set without problems.
    pub fn new(name: String, prompting: Prompting, grader: Grader, max_tokens: usize) -> Self {
        let prompt = prompting.of(grader.kind());
        Self { name, prompting, prompt, grader: Arc::new(grader), problems: Vec::new(), max_tokens }
    }

    /// Returns the kind of task.
    pub fn kind(&self) -> TaskKind {
        self.grader.kind()
    }

    /// Returns the conversation of a problem up to the completion.
    pub fn conversation(&self, problem: &Problem) -> Vec<Message> {
        problem.conversation(self.prompt.system.as_deref())
    }
}

/// Drops empty sets, keeps the first `limit` problems of the other sets, and makes ids unique, because samples are
/// keyed by problem id. A problem that is in two sets is therefore sampled for each of them.
pub fn keyed(sets: &mut Vec<ProblemSet>, limit: Option<usize>) {
    sets.retain(|set| !set.problems.is_empty());
    let mut seen = HashSet::new();
    for set in sets {
        if let Some(limit) = limit {
            set.problems.truncate(limit);
        }
        for problem in &mut set.problems {
            let mut copy = 1;
            let original = problem.id.clone();
            while !seen.insert(problem.id.clone()) {
                copy += 1;
                problem.id = short_hash(&format!("{original} {copy}"));
            }
        }
    }
}

/// Returns the random key of a problem's draws in an evaluation. Evaluations use the run's seed, so the same command on a
/// checkpoint draws the same samples. The key is the same at every step, which makes steps comparable.
pub fn problem_key(seed: u64, problem: &str) -> Key {
    problem.bytes().fold(Key::new(seed), |key, byte| key.with(u64::from(byte)))
}

/// Converts a maze to a problem. The demonstration is one of the shortest paths, drawn with a random key that
/// depends on the prompt.
pub fn of_maze(maze: Maze) -> Problem {
    let prompt = tokens::spell(&tokens::prompt(&maze));
    let solutions = maze.solutions();
    let index = problem_key(0, &prompt).below(0, solutions.len() as u64);
    // The demonstration excludes the end token, which is appended for every kind of problem.
    let path: Vec<u32> = solutions[index as usize].iter().map(|&m| tokens::Token::from(m) as u32).collect();
    let (id, messages) = (short_hash(&prompt), vec![Message::new("user", prompt)]);
    let truth = Truth::Maze(kind::maze::Truth { maze });
    Problem { solution: Some(tokens::spell(&path)), ..Problem::new(id, messages, truth) }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct MazeLine {
    size: usize,
    seed: u64,
    index: u64,
}

/// Reads mazes from a file of lines such as `{"size": 17, "seed": 0, "index": 3}`.
pub fn mazes_of(path: &Path) -> anyhow::Result<Vec<Problem>> {
    rows::require_lines(path)?;
    let mut mazes = Vec::new();
    let mut seen = HashSet::new();
    let mut lines = Lines::open(path)?;
    while let Some(line) = lines.next_line()? {
        let MazeLine { size, seed, index } = line.parse()?;
        if !maze::valid_size(size) {
            bad_input!("{line}: size: expected {}, found {size}", maze::VALID_SIZES);
        }
        let problem = of_maze(maze::generate(size, seed, index));
        if !seen.insert(problem.id.clone()) {
            bad_input!("{line}: an earlier line has the same maze");
        }
        mazes.push(problem);
    }
    if mazes.is_empty() {
        bad_input!("{}: the file has no mazes", path.display());
    }
    Ok(mazes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verifier::Settings;
    use fgrpo_core::maze::Scoring;

    fn maze(size: usize, index: u64) -> Problem {
        of_maze(maze::generate(size, 3, index))
    }

    #[test]
    fn a_grader_of_other_settings_has_another_tag() {
        let tag = |maze_reward| {
            let settings = Settings { maze: maze_reward, ..Settings::default() };
            Grader::new(TaskKind::Maze, settings).unwrap().tag(&maze(5, 1))
        };
        assert_ne!(tag(Scoring::Exact), tag(Scoring::ReachesGoal));
        assert_eq!(tag(Scoring::Exact), tag(Scoring::Exact));
    }
}
