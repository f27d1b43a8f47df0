//! Mazes with the target and a sampled path, for runs on the maze task.

use super::input::{Rollout, Run};
use super::page::{Group, escape, groups};
use fgrpo_core::maze::{Maze, Move, Position, Split, generate, tokens, valid_size};
use std::fmt::Write;

/// Mazes shown of a run; fewer when several runs are compared.
const SHOWN: usize = 10;

/// Runs shown.
const SINGLE: usize = 6;

/// The section; empty unless a run is on the maze task and has kept completions.
pub(super) fn section(runs: &[Run]) -> String {
    let groups = groups(runs);
    let mut html = String::new();
    for group in groups.iter().take(SINGLE) {
        html.push_str(&of_run(&runs[group.runs[0]], group, groups.len()));
    }
    if html.is_empty() {
        return html;
    }
    format!(
        "<p class=\"soft\">Wide: the one shortest path. Narrow: what the policy sampled, at the latest step kept. A cross marks a move into a wall.</p>{html}"
    )
}

fn of_run(run: &Run, group: &Group, groups: usize) -> String {
    let mut chosen: Vec<(&Rollout, Maze)> = Vec::new();
    let held_out = |r: &&Rollout| r.prompt_number().is_some_and(|i| Split::of(i) == Split::HeldOut);
    let any_held_out = run.rollouts.iter().any(|r| held_out(&r));
    // The latest completions first; of one maze only one, so that the eye sees different mazes.
    for rollout in run.rollouts.iter().rev().filter(|r| !any_held_out || held_out(r)) {
        let seen = chosen.iter().any(|c| c.0.prompt_id == rollout.prompt_id);
        // As many wrong as correct ones, as far as there are.
        let alike = chosen.iter().filter(|c| c.0.correct() == rollout.correct()).count();
        if seen || alike >= SHOWN {
            continue;
        }
        if let Some(maze) = maze_of(run, rollout) {
            chosen.push((rollout, maze));
        }
        if chosen.len() >= 2 * SHOWN {
            break;
        }
    }
    let shown = if groups > 1 { SHOWN / 2 + 1 } else { SHOWN };
    let (mut good, mut bad): (Vec<_>, Vec<_>) = chosen.into_iter().partition(|c| c.0.correct());
    let bad_shown = bad.len().min((shown / 2).max(shown.saturating_sub(good.len())));
    bad.truncate(bad_shown);
    good.truncate(shown - bad.len());
    if good.is_empty() && bad.is_empty() {
        return String::new();
    }
    let what = if any_held_out { "held-out mazes" } else { "training mazes" };
    let mut html = format!(
        "<div class=\"g{}\"><h3>{}: {what}</h3><div class=\"maze-list\">",
        group.colour,
        escape(&group.name)
    );
    for (rollout, maze) in good.into_iter().chain(bad) {
        let _ = write!(
            html,
            "<figure class=\"maze c{}\">{}<figcaption><span class=\"verdict {}\">{}</span><small>{}, step {}</small></figcaption></figure>",
            group.colour % 8,
            drawing(&maze, &tokens::moves(&tokens::read(&rollout.completion))),
            if rollout.correct() { "good" } else { "bad" },
            escape(&said(rollout)),
            escape(&called(rollout)),
            rollout.step
        );
    }
    html + "</div></div>"
}

/// The maze's name: its place in its split.
pub(super) fn called(rollout: &Rollout) -> String {
    match rollout.prompt_number().map(|i| (i, Split::of(i))) {
        Some((index, Split::HeldOut)) => format!("held-out {}", index - Split::LEN),
        Some((index, Split::Train)) => format!("training {index}"),
        None => rollout.prompt_name(),
    }
}

/// The verdict in words: the reason, where there is one.
pub(super) fn said(rollout: &Rollout) -> String {
    let word = if rollout.reason.is_empty() { &rollout.verdict } else { &rollout.reason };
    word.replace('_', " ")
}

/// The maze of a rollout: read from its prompt, or made again from the task's seed.
pub(super) fn maze_of(run: &Run, rollout: &Rollout) -> Option<Maze> {
    if run.setting("task.kind") != Some("maze") {
        return None;
    }
    if let Some(maze) = read(&rollout.prompt) {
        return Some(maze);
    }
    let size: usize = run.setting("task.size")?.parse().ok().filter(|&s| valid_size(s))?;
    let seed: u64 = run.setting("task.seed").or(run.setting("seed"))?.parse().ok()?;
    Some(generate(size, seed, rollout.prompt_number()?))
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
