//! Maze problems, written as the text of the maze's tokens. Mazes are generated and aren't read from a data set.

use crate::graded::{Graded, Response};
use crate::row::Table;
use crate::verifier::{Beside, Grading, Reader, Reference, Unreadable, Verifier};
use fgrpo_core::maze::{self, Maze, Scoring, tokens};
use fgrpo_verify::verdict::Verdict;
use serde::{Deserialize, Serialize};

/// The maze.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Truth {
    /// The maze.
    pub maze: Maze,
}

impl From<Truth> for String {
    fn from(truth: Truth) -> Self {
        truth.maze.ascii(&[])
    }
}

impl TryFrom<String> for Truth {
    type Error = &'static str;

    fn try_from(drawing: String) -> Result<Self, Self::Error> {
        Maze::from_ascii(&drawing).map(|maze| Self { maze }).ok_or("found no drawing of a maze")
    }
}

impl Reference for Truth {
    fn verifier(&self, grading: &Grading) -> Result<Box<dyn Verifier>, Unreadable> {
        Ok(Box::new(Prepared { maze: self.maze.clone(), scoring: grading.settings.maze }))
    }

    fn read_as(&self) -> Option<String> {
        None
    }

    /// Returns a shortest path.
    fn gold(&self) -> Option<String> {
        self.maze.solve().map(|moves| tokens::spell(&tokens::completion(&moves)))
    }

    fn vote(&self, completion: &str) -> Option<Option<String>> {
        Some(Some(completion.trim().to_owned()))
    }
}

struct Prepared {
    maze: Maze,
    scoring: Scoring,
}

impl Verifier for Prepared {
    fn check(&self, response: Response<'_>) -> Graded {
        let grade = maze::grade(&self.maze, &tokens::read(response.answer), self.scoring);
        let verdict = match grade {
            g if g.correct() => Verdict::Correct,
            g if g.parsed() => Verdict::Wrong,
            _ => Verdict::Unparsed,
        };
        Graded::new(verdict, grade.reason())
    }
}

/// Always fails, because mazes are generated and never read from a data set.
pub fn reader(_: &Table<'_>, _: &Beside<'_>) -> anyhow::Result<Reader<Truth>> {
    bad_input!("mazes are generated; a file of mazes can't be read")
}
