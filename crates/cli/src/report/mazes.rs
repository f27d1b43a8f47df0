//! Mazes with the target and a sampled path, for runs on the maze task.

use super::input::Run;
use super::page::{Group, escape, groups};
use fgrpo_core::maze::{Maze, Move, Position, Scoring, Split, generate, grade, tokens, valid_size};
use fgrpo_train::run::rollouts::RolloutLine;
use std::collections::HashSet;
use std::fmt::Write;

/// Mazes shown of a run alone.
const SHOWN: usize = 10;

/// So many mazes in common, and compared runs are shown on those.
const ENOUGH_SHARED: usize = 3;

/// Runs shown.
const SINGLE: usize = 6;

/// The section; empty unless a run is on the maze task and has kept completions.
pub(super) fn section(runs: &[Run]) -> String {
    let groups = groups(runs);
    let shown: Vec<(&Group, &Run)> = groups.iter().take(SINGLE).map(|g| (g, &runs[g.runs[0]])).collect();
    let candidates: Vec<Vec<&RolloutLine>> = shown.iter().map(|s| latest_of_each(s.1)).collect();
    let shared = shared(&candidates);
    let mut html = String::new();
    for ((group, run), mut rollouts) in shown.into_iter().zip(candidates) {
        if shared.len() >= ENOUGH_SHARED {
            rollouts = shared
                .iter()
                .filter_map(|id| rollouts.iter().find(|r| r.prompt_id == *id).copied())
                .collect();
        } else {
            balance(&mut rollouts, if groups.len() > 1 { SHOWN / 2 + 1 } else { SHOWN });
        }
        html.push_str(&of_run(run, group, &rollouts));
    }
    if html.is_empty() {
        return html;
    }
    format!(
        "<p class=\"soft\">Wide: the one shortest path. Narrow: what the policy sampled, at the latest step kept. A cross marks a move into a wall.</p>{html}"
    )
}

/// The latest completion of each maze, latest first; of held-out mazes alone where there are any.
fn latest_of_each(run: &Run) -> Vec<&RolloutLine> {
    let held_out = |r: &RolloutLine| Split::of(r.prompt_id) == Split::HeldOut;
    let only_held_out = run.rollouts.iter().chain(&run.examples).any(held_out);
    let mut seen = HashSet::new();
    let latest = run.examples.iter().chain(run.rollouts.iter().rev());
    let kept = latest.filter(|r| !only_held_out || held_out(r));
    kept.filter(|r| seen.insert(r.prompt_id)).take(4 * SHOWN * SHOWN).collect()
}

/// The mazes that all runs have, when several are compared: at most six, those first on which the runs disagree.
fn shared(candidates: &[Vec<&RolloutLine>]) -> Vec<u64> {
    let [first, others @ ..] = candidates else { return Vec::new() };
    if others.is_empty() {
        return Vec::new();
    }
    let mut shared: Vec<(bool, u64)> = Vec::new();
    for rollout in first {
        let found: Vec<_> =
            others.iter().filter_map(|o| o.iter().find(|r| r.prompt_id == rollout.prompt_id)).collect();
        if found.len() == others.len() {
            shared.push((found.iter().all(|r| r.is_correct() == rollout.is_correct()), rollout.prompt_id));
        }
    }
    shared.sort_by_key(|s| s.0);
    shared.into_iter().take(6).map(|s| s.1).collect()
}

/// Keeps `shown` completions, half of them wrong as far as there are, the correct ones first.
fn balance(rollouts: &mut Vec<&RolloutLine>, shown: usize) {
    let (mut good, mut bad): (Vec<&RolloutLine>, Vec<&RolloutLine>) =
        rollouts.iter().partition(|r| r.is_correct());
    bad.truncate((shown / 2).max(shown.saturating_sub(good.len())));
    good.truncate(shown - bad.len());
    good.append(&mut bad);
    *rollouts = good;
}

fn of_run(run: &Run, group: &Group, rollouts: &[&RolloutLine]) -> String {
    let held_out = |r: &&RolloutLine| Split::of(r.prompt_id) == Split::HeldOut;
    let what = if rollouts.iter().any(held_out) { "held-out mazes" } else { "training mazes" };
    let scoring = match run.setting("task.reward") {
        Some("reaches_goal") => Scoring::ReachesGoal,
        _ => Scoring::Exact,
    };
    let mut figures = String::new();
    for rollout in rollouts {
        let Some(maze) = maze_of(run, rollout) else { continue };
        let completion = tokens::read(&rollout.completion);
        let reason = if rollout.reason.is_empty() {
            grade(&maze, &completion, scoring).reason().replace('_', " ")
        } else {
            said(rollout)
        };
        let _ = write!(
            figures,
            "<figure class=\"maze {}\">{}<figcaption><span class=\"verdict {}\">{}</span><small>{}, step {}</small></figcaption></figure>",
            group.key(),
            drawing(&maze, &tokens::moves(&completion)),
            if rollout.is_correct() { "good" } else { "bad" },
            escape(&reason),
            escape(&called(rollout)),
            rollout.step
        );
    }
    if figures.is_empty() {
        return figures;
    }
    format!(
        "<div class=\"g{}\"><h3>{}: {what}</h3><div class=\"maze-list\">{figures}</div></div>",
        group.colour,
        escape(&group.name)
    )
}

/// The maze's name: its place in its split.
pub(super) fn called(rollout: &RolloutLine) -> String {
    match (rollout.prompt_id, Split::of(rollout.prompt_id)) {
        (index, Split::HeldOut) => format!("held-out {}", index - Split::LEN),
        (index, Split::Train) => format!("training {index}"),
    }
}

/// The verdict in words: the reason, where there is one.
pub(super) fn said(rollout: &RolloutLine) -> String {
    let word = if rollout.reason.is_empty() { rollout.verdict.name() } else { &rollout.reason };
    word.replace('_', " ")
}

/// The maze of a rollout: read from its prompt, or made again from the task's seed.
pub(super) fn maze_of(run: &Run, rollout: &RolloutLine) -> Option<Maze> {
    if run.setting("task.kind") != Some("maze") {
        return None;
    }
    if let Some(maze) = read(&rollout.prompt) {
        return Some(maze);
    }
    let size: usize = run.setting("task.size")?.parse().ok().filter(|&s| valid_size(s))?;
    let seed: u64 = run.setting("task.seed").or(run.setting("seed"))?.parse().ok()?;
    Some(generate(size, seed, rollout.prompt_id))
}

/// A maze from its prompt's words.
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

/// A maze with its target and a walk, as SVG.
pub(super) fn drawing(maze: &Maze, moves: &[Move]) -> String {
    let size = maze.size();
    let mut svg = format!(
        "<svg viewBox=\"0 0 {0} {0}\" role=\"img\" aria-label=\"maze\"><rect class=\"wall\" width=\"{0}\" height=\"{0}\"/><path class=\"floor\" d=\"",
        size * 10
    );
    for row in 0..size {
        let mut column = 0;
        while column < size {
            let run = (column..size).take_while(|&c| maze.is_open((row, c))).count();
            if run > 0 {
                let _ = write!(svg, "M{} {}h{}v10h-{}z", column * 10, row * 10, run * 10, run * 10);
            }
            column += run.max(1);
        }
    }
    svg.push_str("\"/>");
    let line = |cells: &[Position]| {
        cells.iter().map(|&(r, c)| format!("{} {}", c * 10 + 5, r * 10 + 5)).collect::<Vec<_>>().join("L")
    };
    if let Some(target) = maze.solve() {
        let _ =
            write!(svg, "<path class=\"target\" stroke-width=\"7\" d=\"M{}\"/>", line(&maze.walk(&target)));
    }
    let walk = maze.walk(moves);
    if walk.len() > 1 {
        let _ = write!(svg, "<path class=\"sampled\" stroke-width=\"2.4\" d=\"M{}\"/>", line(&walk));
    }
    let dot = |svg: &mut String, class: &str, (r, c): Position| {
        let _ =
            write!(svg, "<circle class=\"{class}\" cx=\"{}\" cy=\"{}\" r=\"3\"/>", c * 10 + 5, r * 10 + 5);
    };
    dot(&mut svg, "spot", maze.start());
    dot(&mut svg, "goal", maze.goal());
    if let Some(step) = moves.get(walk.len() - 1)
        && let Some((r, c)) = step.from(walk[walk.len() - 1], 1)
    {
        let (x, y) = (c * 10 + 5, r * 10 + 5);
        let _ = write!(
            svg,
            "<path class=\"stop\" stroke-width=\"2.4\" d=\"M{} {}l6 6m0 -6l-6 6\"/>",
            x.saturating_sub(3),
            y.saturating_sub(3)
        );
    }
    svg + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maze_reads_back_from_its_prompt() {
        let maze = generate(9, 3, 5);
        assert_eq!(read(&tokens::spell(&tokens::prompt(&maze))), Some(maze));
        assert_eq!(read("<bos> GRID_START WALL DOOR GRID_END PATH_START"), None);
    }

    #[test]
    fn a_move_into_a_wall_ends_the_walk_with_a_cross() {
        let maze = generate(9, 3, 5);
        let target = maze.solve().unwrap();
        assert!(!drawing(&maze, &target).contains("stop"));
        assert!(drawing(&maze, &[Move::Up, Move::Down]).contains("stop"));
    }
}
