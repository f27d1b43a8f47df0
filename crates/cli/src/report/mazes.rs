//! Mazes with the target path and a sampled path, for runs on the maze task.

use super::input::Run;
use super::maze::drawing;
use super::runs::{Group, Runs};
use crate::output::format::Markup;
use fgrpo_core::maze::{Maze, Split, grade, tokens};
use fgrpo_train::run::rollouts::RolloutLine;
use serde::Serialize;
use std::collections::HashSet;

const SHOWN: usize = 10;

const SINGLE: usize = 6;

/// Data of `mazes.html`.
#[derive(Debug, Serialize)]
pub(super) struct Mazes<'a> {
    groups: Vec<OfGroup<'a>>,
}

/// Mazes of a group's first run.
#[derive(Debug, Serialize)]
struct OfGroup<'a> {
    group: &'a Group,
    held_out: bool,
    mazes: Vec<Drawn>,
}

#[derive(Debug, Serialize)]
struct Drawn {
    drawing: Markup,
    correct: bool,
    reason: String,
    name: String,
    step: u64,
}

/// Returns the section, or `None` if no run on the maze task has stored completions.
pub(super) fn section(runs: &Runs) -> Option<Mazes<'_>> {
    let mut groups = Vec::new();
    for group in runs.groups.iter().take(SINGLE) {
        let run = runs.first(group);
        let mut rollouts = latest_of_each(run);
        if runs.several() {
            // Compared runs were evaluated on the same mazes.
            rollouts.truncate(SHOWN / 2 + 1);
        } else {
            balance(&mut rollouts);
        }
        let mazes: Vec<Drawn> = rollouts.iter().filter_map(|r| drawn(run, r)).collect();
        if !mazes.is_empty() {
            groups.push(OfGroup { group, held_out: rollouts.iter().any(|r| is_held_out(r)), mazes });
        }
    }
    (!groups.is_empty()).then_some(Mazes { groups })
}

fn is_held_out(rollout: &RolloutLine) -> bool {
    Split::of(rollout.prompt_id) == Split::HeldOut
}

/// Returns the latest completion of each maze, latest first. If there are held-out mazes, training mazes are left out.
fn latest_of_each(run: &Run) -> Vec<&RolloutLine> {
    let only_held_out = run.rollouts.iter().chain(&run.examples).any(is_held_out);
    let mut seen = HashSet::new();
    let latest = run.examples.iter().chain(run.rollouts.iter().rev());
    let rollouts = latest.filter(|r| !only_held_out || is_held_out(r));
    rollouts.filter(|r| seen.insert(r.prompt_id)).take(4 * SHOWN * SHOWN).collect()
}

/// Keeps [`SHOWN`] completions, the correct ones first, and up to half of them wrong.
fn balance(rollouts: &mut Vec<&RolloutLine>) {
    let (mut good, mut bad): (Vec<&RolloutLine>, Vec<&RolloutLine>) =
        rollouts.iter().partition(|r| r.is_correct());
    bad.truncate((SHOWN / 2).max(SHOWN.saturating_sub(good.len())));
    good.truncate(SHOWN - bad.len());
    good.append(&mut bad);
    *rollouts = good;
}

fn drawn(run: &Run, rollout: &RolloutLine) -> Option<Drawn> {
    let maze = maze_of(run, rollout)?;
    let completion = tokens::read(&rollout.completion);
    let reason = if rollout.reason.is_empty() {
        grade(&maze, &completion, run.maze()?.reward).reason().replace('_', " ")
    } else {
        verdict_or_reason(rollout)
    };
    Some(Drawn {
        drawing: drawing(&maze, &tokens::moves(&completion)),
        correct: rollout.is_correct(),
        reason,
        name: name(rollout),
        step: rollout.step,
    })
}

/// Returns the name of a maze: its split and its index in the split.
pub(super) fn name(rollout: &RolloutLine) -> String {
    match (rollout.prompt_id, Split::of(rollout.prompt_id)) {
        (index, Split::HeldOut) => format!("held-out {}", index - Split::LEN),
        (index, Split::Train) => format!("training {index}"),
    }
}

/// Returns the reason of the verdict in words, or the verdict if it has no reason.
pub(super) fn verdict_or_reason(rollout: &RolloutLine) -> String {
    let word = if rollout.reason.is_empty() { rollout.verdict.name() } else { &rollout.reason };
    word.replace('_', " ")
}

/// Returns the maze of a rollout, read from the prompt or generated again.
pub(super) fn maze_of(run: &Run, rollout: &RolloutLine) -> Option<Maze> {
    let task = run.maze()?;
    Some(read(&rollout.prompt).unwrap_or_else(|| task.mazes().maze(rollout.prompt_id)))
}

/// Reads a maze from a prompt.
fn read(prompt: &str) -> Option<Maze> {
    let grid = prompt.split_once("GRID_START")?.1.split_once("GRID_END")?.0;
    let mut drawing = String::new();
    for word in grid.split_whitespace() {
        drawing.push(match word {
            "WALL" => '#',
            "PATH" | "START" | "GOAL" => ' ',
            "NEWLINE" => '\n',
            _ => return None,
        });
    }
    Maze::from_ascii(&drawing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maze_reads_back_from_its_prompt() {
        let maze = fgrpo_core::maze::generate(9, 3, 5);
        assert_eq!(read(&tokens::spell(&tokens::prompt(&maze))), Some(maze));
        assert_eq!(read("<bos> GRID_START WALL DOOR GRID_END PATH_START"), None);
    }
}
