//! A card that shows a completion with its verdict, values and prompt.

use super::runs::Group;
use crate::output::format::Markup;
use crate::output::format::number;
use fgrpo_verify::verdict::Verdict;
use serde::Serialize;

/// Data of the macro in `card.html`.
#[derive(Debug, Serialize)]
pub(crate) struct Card {
    /// Colour class of the verdict.
    class: &'static str,
    verdict: &'static str,
    facts: Vec<Fact>,
    text: String,
    /// Collapsed texts, each with its name.
    folded: Vec<(&'static str, String)>,
    /// Drawing next to the text, with the colour of its group.
    maze: Option<(usize, Markup)>,
}

/// A sentence, or a name with a value.
#[derive(Debug, Serialize)]
struct Fact {
    name: String,
    value: Option<String>,
}

impl Card {
    pub(crate) fn new(verdict: Verdict, text: &str) -> Self {
        let class = match verdict {
            Verdict::Correct => "good",
            Verdict::Wrong | Verdict::Unparsed => "bad",
            Verdict::Unscorable => "muted",
        };
        let (facts, folded) = (Vec::new(), Vec::new());
        Self { class, verdict: verdict.name(), facts, text: text.to_owned(), folded, maze: None }
    }

    pub(crate) fn fact(mut self, words: impl Into<String>) -> Self {
        self.facts.push(Fact { name: words.into(), value: None });
        self
    }

    /// Adds a named value, unless it is `None`.
    pub(crate) fn value(mut self, name: &str, value: Option<impl Into<String>>) -> Self {
        self.facts.extend(value.map(|v| Fact { name: name.to_owned(), value: Some(v.into()) }));
        self
    }

    pub(super) fn number(self, name: &str, value: Option<f64>) -> Self {
        self.value(name, value.map(number))
    }

    /// Adds a collapsed text, unless it is empty.
    pub(crate) fn folded(mut self, name: &'static str, text: &str) -> Self {
        if !text.is_empty() {
            self.folded.push((name, text.to_owned()));
        }
        self
    }

    /// Puts the drawing of a maze next to the text.
    pub(super) fn maze(self, group: &Group, drawing: Option<Markup>) -> Self {
        Self { maze: drawing.map(|d| (group.colour, d)), ..self }
    }
}
