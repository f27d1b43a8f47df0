//! Draws a maze.

use crate::output::format::Markup;
use fgrpo_core::maze::{Maze, Move, Position};
use std::fmt::Write;

/// Draws a maze with its target path and a sampled path, as SVG.
pub(super) fn drawing(maze: &Maze, moves: &[Move]) -> Markup {
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
    Markup(svg + "</svg>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use fgrpo_core::maze::generate;

    #[test]
    fn a_move_into_a_wall_ends_the_walk_with_a_cross() {
        let maze = generate(9, 3, 5);
        let target = maze.solve().unwrap();
        assert!(!drawing(&maze, &target).0.contains("stop"));
        assert!(drawing(&maze, &[Move::Up, Move::Down]).0.contains("stop"));
    }
}
