//! An episode of `fgrpo.play`: the same loop as in `fgrpo train`, but Python samples the turns and calls the
//! environment.

use crate::engine::{Engine, raised};
use fgrpo_eval::io::json;
use fgrpo_nn::{Completion, Finish};
use fgrpo_train::episode::{Game, Rules};
use fgrpo_train::language::Language;
use fgrpo_train::language::calls::Call;
use pyo3::prelude::*;
use std::sync::Arc;

#[pyclass(module = "fgrpo._native")]
pub(crate) struct Episode {
    language: Arc<Language>,
    thinking: Option<bool>,
    positions: usize,
    game: Game,
    /// Tool calls of the last turn, which the environment is answering.
    calls: Option<Vec<Call>>,
}

impl Episode {
    fn change<T>(&mut self, change: impl FnOnce(&mut Game, &Rules<'_>) -> anyhow::Result<T>) -> PyResult<T> {
        let rules = Rules::new(&self.language, self.thinking);
        rules.and_then(|rules| change(&mut self.game, &rules)).map_err(|error| raised(&error))
    }
}

/// An episode for Python. The environment's messages are passed as strings of JSON.
#[pymethods]
impl Episode {
    #[new]
    fn begin(engine: &Engine, begun: &str, thinking: Option<bool>) -> PyResult<Self> {
        let (language, positions) = (Arc::clone(&engine.language), engine.positions);
        let mut new = Self { language, thinking, positions, game: Game::default(), calls: None };
        new.change(|game, rules| {
            *game = Game::begin(rules, json::parse(begun.as_bytes())?)?;
            Ok(())
        })?;
        Ok(new)
    }

    fn prompt(&mut self) -> Option<Vec<u32>> {
        self.game.prompt(self.positions).map(<[u32]>::to_vec)
    }

    /// Returns the tool calls of a turn as JSON, or `None` if the turn ends the episode.
    fn hear(&mut self, tokens: Vec<u32>, logp: Vec<f32>, cut: bool, last: bool) -> PyResult<Option<String>> {
        let finish = if cut { Finish::Length } else { Finish::Stop };
        let turn = Completion { tokens, logp, finish, ..Completion::default() };
        self.calls = self.change(|game, rules| game.hear(rules, turn, last))?;
        Ok(self.calls.as_ref().map(|calls| serde_json::json!(calls).to_string()))
    }

    fn go_on(&mut self, results: Vec<String>) -> PyResult<()> {
        let calls = self.calls.take().unwrap_or_default();
        self.change(|game, rules| game.go_on(rules, &calls, &results))
    }

    /// Returns the conversation as JSON, the number of turns, the reason why the episode ended, the tokens of each sequence
    /// with the indices of the sampled ones, and the log-probabilities of all sampled tokens.
    #[expect(clippy::type_complexity, reason = "Python takes it apart")]
    fn end(&self) -> (String, u64, &'static str, Vec<(Vec<u32>, Vec<usize>)>, Vec<f32>) {
        let Game { messages, parts, completion, turns, out_of_turns, .. } = self.game.clone();
        let parts = parts.into_iter().map(|part| (part.tokens, part.sampled)).collect();
        let finish = if out_of_turns {
            "turns"
        } else if completion.finish == Finish::Length {
            "length"
        } else {
            "stop"
        };
        (serde_json::Value::from(messages).to_string(), turns, finish, parts, completion.logp)
    }
}
