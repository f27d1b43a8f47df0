//! Grades completions by whether they solve the maze.

use super::{Maze, Token, tokens};

/// The rule for a correct completion.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Scoring {
    /// The completion must consist of the moves of a shortest path and DONE. This is the paper's rule, whose mazes have one
    /// shortest path.
    #[default]
    Exact,
    /// The moves up to DONE must not enter a wall and must touch the goal. This is MaxRL's rule.
    ReachesGoal,
}

/// The verdict on one completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Grade {
    /// The completion solves the maze.
    Correct,
    /// A move leads into a wall.
    HitsWall,
    /// No move leads into a wall, but the walk does not touch the goal.
    MissesGoal,
    /// The walk touches the goal but is not a shortest path (only with [`Scoring::Exact`]).
    Detour,
    /// A token before DONE is not a move.
    NotAMove,
    /// The completion ends without DONE.
    NoDone,
}

impl Grade {
    /// Returns whether the completion is correct.
    pub const fn correct(self) -> bool {
        matches!(self, Self::Correct)
    }

    /// Returns whether the completion has the form of an answer: moves and DONE.
    pub const fn parsed(self) -> bool {
        !matches!(self, Self::NotAMove | Self::NoDone)
    }

    /// Returns the name of the grade in metrics.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Correct => "correct",
            Self::HitsWall => "hits_wall",
            Self::MissesGoal => "misses_goal",
            Self::Detour => "detour",
            Self::NotAMove => "not_a_move",
            Self::NoDone => "no_done",
        }
    }
}

/// Grades a completion, given as the tokens sampled after the prompt, including DONE. Tokens after DONE don't count.
pub fn grade(maze: &Maze, completion: &[u32], scoring: Scoring) -> Grade {
    let moves = tokens::moves(completion);
    match completion.get(moves.len()) {
        Some(&t) if t == Token::Done as u32 => {}
        None => return Grade::NoDone,
        Some(&t) if t == Token::Eos as u32 => return Grade::NoDone,
        Some(_) => return Grade::NotAMove,
    }
    let walk = maze.walk(&moves);
    if walk.len() <= moves.len() {
        return Grade::HitsWall;
    }
    if !walk.contains(&maze.goal()) {
        return Grade::MissesGoal;
    }
    match scoring {
        Scoring::ReachesGoal => Grade::Correct,
        // The walk touches the goal, so it can't be shorter than the shortest path, and if it is as long, it ends there.
        Scoring::Exact if maze.shortest() == Some(moves.len()) => Grade::Correct,
        Scoring::Exact => Grade::Detour,
    }
}
