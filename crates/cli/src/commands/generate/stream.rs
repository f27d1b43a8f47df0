//! Prints the text of tokens on standard output while they are sampled.

use crate::output::streams;
use fgrpo_eval::io::harmless::harmless;
use fgrpo_train::language::Language;
use std::io::IsTerminal;
use std::sync::Mutex;

/// Printer of a completion that is still being sampled.
pub(super) struct Stream<'a> {
    language: &'a Language,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Text printed so far.
    text: String,
    /// Whether stdout was closed.
    closed: bool,
}

impl<'a> Stream<'a> {
    pub(super) fn new(language: &'a Language) -> Self {
        Self { language, state: Mutex::default() }
    }

    /// Prints the new part of the text. Returns `false` if the output was closed.
    pub(super) fn show(&self, tokens: &[u32]) -> bool {
        self.print(&tokens[..self.language.settled(tokens)], true)
    }

    /// Prints the rest of a finished completion, and a line end.
    pub(super) fn end(&self, tokens: &[u32]) {
        self.print(tokens, false);
    }

    fn print(&self, tokens: &[u32], growing: bool) -> bool {
        let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        let mut new = state.grown(self.language, tokens, growing);
        if !growing {
            new.push('\n');
        }
        if !state.closed && !new.is_empty() {
            let terminal = std::io::stdout().is_terminal();
            state.closed = !streams::stream(&if terminal { new } else { harmless(&new) });
        }
        !state.closed
    }
}

impl State {
    /// Returns the part of the tokens' text that hasn't been printed. If `growing`, the part leaves out an incomplete last
    /// character and a possible beginning of a stop string.
    fn grown(&mut self, language: &Language, tokens: &[u32], growing: bool) -> String {
        let all = language.answer(tokens).unwrap_or_default();
        let mut end = all.len();
        if growing {
            let begins = |at: &usize| {
                let tail = &all[*at..];
                tail.starts_with('\u{fffd}')
                    || language.stop_texts().texts().iter().any(|t| t.starts_with(tail))
            };
            let places = all.char_indices().map(|(at, _)| at);
            let longest = language.stop_texts().texts().iter().map(String::len).max().unwrap_or(0);
            let near = all.len().saturating_sub(longest.max(4));
            end = places.filter(|at| *at >= near).find(begins).unwrap_or(end);
        }
        let new = all[..end].strip_prefix(&self.text).unwrap_or_default().to_owned();
        self.text.push_str(&new);
        new
    }
}
