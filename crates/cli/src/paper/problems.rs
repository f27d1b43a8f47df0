//! Values on different problems are not compared: neither rows with one another nor a row with the paper.

use super::measured::Resampled;
use super::numbers::Setting;
use super::settings::name;
use std::collections::{BTreeMap, BTreeSet};

/// What was not compared, and why.
pub(super) struct Problems<'a> {
    settings: &'a [Setting],
    /// By two rows: benchmarks whose problems differ.
    unlike: BTreeMap<(usize, usize), BTreeSet<String>>,
    /// By row: benchmarks with another number of problems than in the paper.
    of_other_size: BTreeMap<usize, BTreeSet<String>>,
}

impl<'a> Problems<'a> {
    pub(super) fn new(settings: &'a [Setting]) -> Self {
        Self { settings, unlike: BTreeMap::new(), of_other_size: BTreeMap::new() }
    }

    fn at(&self, setting: &Setting) -> usize {
        self.settings.iter().position(|s| s == setting).unwrap_or_default()
    }

    /// Whether two rows' values are on the same problems.
    pub(super) fn are_same(&mut self, a: (&Setting, &Resampled), b: (&Setting, &Resampled)) -> bool {
        let (i, j) = (self.at(a.0), self.at(b.0));
        // In the table's order, so that each pair is said once.
        let unlike = if i <= j { a.1.unlike(b.1) } else { b.1.unlike(a.1) };
        if unlike.is_empty() {
            return true;
        }
        self.unlike.entry((i.min(j), i.max(j))).or_default().extend(unlike);
        false
    }

    /// Whether a row's value is on as many problems as the paper's.
    pub(super) fn are_the_papers(&mut self, setting: &Setting, value: &Resampled) -> bool {
        let other = value.of_other_size();
        if other.is_empty() {
            return true;
        }
        let at = self.at(setting);
        self.of_other_size.entry(at).or_default().extend(other);
        false
    }

    /// Sentences for the reader.
    pub(super) fn notes(&self) -> Vec<String> {
        let joined = |all: &BTreeSet<String>| all.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let row = |at: usize| self.settings.get(at).map_or_else(String::new, |s| name(s, self.settings));
        let mut notes: Vec<String> = Vec::new();
        for ((a, b), of) in &self.unlike {
            notes.push(format!(
                "{} and {} are not compared where their problems differ: {}",
                row(*a),
                row(*b),
                joined(of)
            ));
        }
        let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (at, of) in &self.of_other_size {
            rows.entry(joined(of)).or_default().push(row(*at));
        }
        notes.extend(rows.into_iter().map(|(of, rows)| {
            format!(
                "not compared with the paper's values, which are on other problems: {of} of {}",
                rows.join(", ")
            )
        }));
        notes
    }
}
