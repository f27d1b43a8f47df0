//! Reads and grades the logic tasks of SynLogic.

use super::math;
use crate::graded::{Graded, Response};
use crate::row::{Table, Unusable, shown, value};
use crate::verifier::{Beside, Grading, Mode, Reader, Reference, Settings, Unreadable, Verifier};
use fgrpo_verify::synlogic;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A puzzle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// Name of the SynLogic task, such as `sudoku`.
    pub task: String,
    /// The puzzle's data as JSON.
    pub game_data_str: String,
}

impl Reference for Truth {
    fn verifier(&self, grading: &Grading) -> Result<Box<dyn Verifier>, Unreadable> {
        let puzzle = self.task.parse().and_then(|task| synlogic::Verifier::parse(task, &self.game_data_str));
        let Settings { format_gate, .. } = grading.settings;
        let options = synlogic::Options { mode: math::mode(&grading.settings), format_gate };
        match puzzle {
            Ok(puzzle) => Ok(Box::new(Prepared { puzzle, options })),
            Err(error) => Err(Unreadable::new("bad_puzzle", error)),
        }
    }

    fn read_as(&self) -> Option<String> {
        Some(format!("a puzzle of {}, {} bytes of data", self.task, self.game_data_str.len()))
    }

    fn vote(&self, completion: &str) -> Option<Option<String>> {
        math::vote(math::tagged(completion).or_else(|| math::boxed(completion)))
    }

    fn graded_part<'a>(&self, completion: &'a str, settings: &Settings) -> &'a str {
        // In strict mode, the verifier itself searches for the tags.
        let parity = settings.mode == Mode::Parity;
        let tagged = parity && !settings.format_gate && completion.contains("<answer>");
        if tagged { synlogic::extract::answer_text(completion) } else { completion }
    }
}

struct Prepared {
    puzzle: synlogic::Verifier,
    options: synlogic::Options,
}

impl Verifier for Prepared {
    fn check(&self, response: Response<'_>) -> Graded {
        self.puzzle.check_answer(response.text, response.answer, &self.options).into()
    }
}

/// Finds the columns of the task and the puzzle.
pub fn reader(table: &Table<'_>, _: &Beside<'_>) -> anyhow::Result<Reader<Truth>> {
    let need = |what, usual: &[&str]| table.require(what, table.first_of(usual), usual);
    let game = need("the puzzle", &["extra_info.game_data_str", "game_data_str"])?;
    let task = need("the task", &["data_source", "task"])?;
    Ok(Box::new(move |cells| {
        let no_puzzle = || Unusable::new("no puzzle", shown(cells.row, &game));
        let game_data_str = match value(cells.row, &game).ok_or_else(no_puzzle)? {
            Value::String(text) if !text.trim().is_empty() => text.clone(),
            object @ Value::Object(_) => object.to_string(),
            _ => return Err(no_puzzle()),
        };
        let task = value(cells.row, &task)
            .and_then(Value::as_str)
            .ok_or_else(|| Unusable::new("no task", shown(cells.row, &task)))?;
        // The task may follow the name of a split: `val/sudoku`.
        let task = task.rsplit('/').next().unwrap_or(task).to_owned();
        Ok(Truth { task, game_data_str })
    }))
}
