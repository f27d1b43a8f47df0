//! Tokens as text on standard output, as they are drawn.

use crate::output::streams;
use fgrpo_eval::io::harmless::harmless;
use fgrpo_train::language::Language;
use std::io::IsTerminal;
use std::sync::Mutex;

/// The printed text of a completion while it grows.
pub(super) struct Stream<'a> {
    language: &'a Language,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Tokens before this one are printed and no longer needed for decoding.
    from: usize,
    /// Tokens before this one are printed.
    shown: usize,
    /// The text printed so far, if texts can end an answer.
    text: String,
    /// The output was closed.
    closed: bool,
}

impl<'a> Stream<'a> {
    pub(super) fn new(language: &'a Language) -> Self {
        Self { language, state: Mutex::default() }
    }

    /// Prints the new part of the text. Returns `false` if the output was closed.
    pub(super) fn show(&self, tokens: &[u32]) -> bool {
        let tokens = &tokens[..self.language.settled(tokens)];
        let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        let new = match self.language.stop_texts().is_empty() {
            true => state.grown(self.language, tokens),
            // A possible beginning of a text that ends the answer waits for the rest.
            false => state.whole(self.language, tokens, true),
        };
        state.print(&new);
        !state.closed
    }

    /// Prints the rest of a finished completion, and a line end.
    pub(super) fn end(&self, tokens: &[u32]) {
        let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        let new = match self.language.stop_texts().is_empty() {
            true => {
                let text = |range: &[u32]| self.language.answer(range).unwrap_or_default();
                let old = text(&tokens[state.from..state.shown.min(tokens.len())]);
                text(&tokens[state.from..]).strip_prefix(&old).unwrap_or_default().to_owned()
            }
            false => state.whole(self.language, tokens, false),
        };
        state.print(&new);
        state.print("\n");
    }
}

impl State {
    /// The text of the tokens after those printed; `None` while its last character is incomplete.
    fn grown(&mut self, language: &Language, tokens: &[u32]) -> String {
        let text = |range: &[u32]| language.answer(range).unwrap_or_default();
        // A token's text may depend on the one before it, so the last printed tokens are decoded too.
        let old = text(&tokens[self.from..self.shown]);
        let all = text(&tokens[self.from..]);
        match all.strip_prefix(&old) {
            Some(new) if !new.is_empty() && !new.ends_with('\u{fffd}') => {
                (self.from, self.shown) = (self.shown, tokens.len());
                new.to_owned()
            }
            _ => String::new(),
        }
    }

    /// The same, decoded from all tokens, up to a text that ends the answer.
    fn whole(&mut self, language: &Language, tokens: &[u32], growing: bool) -> String {
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
        match all[..end].strip_prefix(&self.text) {
            Some(new) => {
                let new = new.to_owned();
                self.text.push_str(&new);
                new
            }
            None => String::new(),
        }
    }

    fn print(&mut self, text: &str) {
        if self.closed || text.is_empty() {
            return;
        }
        self.closed = !match std::io::stdout().is_terminal() {
            true => streams::stream(&harmless(text)),
            false => streams::stream(text),
        };
    }
}
