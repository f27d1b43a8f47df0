//! Reports on the rows of a data set: how many became problems, and why the others were rejected.

use super::Problem;
use super::rows::FileRows;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Report on the rows of a data set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilterReport {
    /// The data set: a file, or a folder of files.
    pub source: PathBuf,
    /// Number of rows read.
    pub read: usize,
    /// Number of problems kept.
    pub kept: usize,
    /// The rejected rows, in the order in which they were rejected.
    pub rejected: Vec<Rejected>,
    /// Reference answers of math problems that the verifier reads as plain text.
    pub text_golds: Option<TextGolds>,
    /// Reference answers of math problems that are equations, or expressions that aren't evaluated.
    pub unfinished_golds: Option<TextGolds>,
    /// The files, with the number of rows of each.
    files: Vec<FileRows>,
}

/// A row that was rejected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rejected {
    /// File that contains the row.
    pub file: PathBuf,
    /// Row in the file, counted from 1. Header and blank lines don't count.
    pub row: usize,
    /// Reason for the rejection, the same string for all rows with the same reason.
    pub reason: String,
    /// The offending value, shortened.
    pub found: String,
}

/// Count and example of the reference answers of one form, such as plain text, which a completion must repeat to be
/// correct.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TextGolds {
    /// Number of reference answers of the form.
    pub count: usize,
    /// Total number of reference answers.
    pub of: usize,
    /// Row of the first reference answer of the form, counted from 1.
    pub first_row: usize,
    /// The first reference answer of the form.
    pub example: String,
}

/// Maximum number of rows that the one-line report lists for each reason.
const NAMED: usize = 5;

impl FilterReport {
    pub(super) fn new(source: &Path, files: Vec<FileRows>, read: usize) -> Self {
        Self { source: source.to_owned(), read, files, ..Self::default() }
    }

    /// Creates a report of problems that are split off from this report's problems. It has the same files and an empty list
    /// of rejected rows.
    pub fn of_part(&self, problems: usize) -> Self {
        Self { read: problems, kept: problems, ..Self::new(&self.source, self.files.clone(), problems) }
    }

    /// Returns the files.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|(file, _)| file.as_path())
    }

    /// Returns the file of a row and the row's index in that file.
    fn locate(&self, mut row: usize) -> (&Path, usize) {
        for (file, rows) in &self.files {
            if row <= *rows {
                return (file, row);
            }
            row -= rows;
        }
        (&self.source, row)
    }

    /// Names a row, with its file if there are several.
    pub(super) fn place(&self, row: usize) -> String {
        let (file, row) = self.locate(row);
        match self.files.len() {
            0 | 1 => format!("row {row}"),
            _ => format!("row {row} of {}", file.display()),
        }
    }

    /// Adds a rejected row. `row` counts over all files.
    pub fn reject(&mut self, row: usize, reason: &str, value: String) {
        let (file, row) = self.locate(row);
        let file = file.to_owned();
        self.rejected.push(Rejected { file, row, reason: reason.to_owned(), found: value });
    }

    /// Rejects problems for `reason` and updates the number of kept problems. `fault` returns what is wrong with a problem,
    /// or `None`.
    pub fn retain(
        &mut self,
        problems: &mut Vec<Problem>,
        reason: &str,
        mut fault: impl FnMut(&Problem) -> Option<String>,
    ) {
        problems.retain(|problem| match fault(problem) {
            None => true,
            Some(value) => {
                self.reject(problem.row, reason, value);
                false
            }
        });
        self.kept = problems.len();
    }

    /// Groups the rejected rows by reason.
    pub fn by_reason(&self) -> BTreeMap<&str, Vec<&Rejected>> {
        let mut all: BTreeMap<&str, Vec<&Rejected>> = BTreeMap::new();
        for rejected in &self.rejected {
            all.entry(&rejected.reason).or_default().push(rejected);
        }
        all
    }

    /// Formats the first rejected row of each reason, each on a separate line.
    pub(super) fn first_examples(&self) -> String {
        let examples =
            self.by_reason().into_values().map(|rows| format!("\n  row {}: {}", rows[0].row, rows[0].found));
        examples.collect()
    }

    /// Logs the report, with a warning if many reference answers aren't mathematics.
    pub fn log(&self) {
        tracing::info!("{}: {self}", self.source.display());
        if let Some(golds) = &self.text_golds
            && golds.count as f64 >= TEXT_GOLDS_WARNED * golds.of as f64
        {
            tracing::warn!(
                "{}: {golds}. To be correct, a completion must repeat such an answer word for word. Is \
                 the answer in another column (task.columns.answer, --columns answer=NAME), or is it a task of another kind? \
                 `fgrpo data show` prints how each answer is read",
                self.source.display()
            );
        }
        if let Some(golds) = &self.unfinished_golds {
            tracing::info!(
                "{}: {} of {} reference answers are equations or expressions that aren't evaluated; the first in row {}: {:?}. \
                 `fgrpo data show` prints which answers are graded correct",
                self.source.display(),
                golds.count,
                golds.of,
                golds.first_row,
                golds.example
            );
        }
    }
}

/// Minimum fraction of reference answers read as plain text at which a warning is logged. Math data sets have a few such
/// answers, such as names and words.
const TEXT_GOLDS_WARNED: f64 = 0.1;

impl fmt::Display for TextGolds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = 100.0 * self.count as f64 / self.of.max(1) as f64;
        write!(
            f,
            "{} of {} reference answers ({percent:.0} %) are read as plain text, not as mathematics; the first in row {}: {:?}",
            self.count, self.of, self.first_row, self.example
        )
    }
}

impl fmt::Display for FilterReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rows read, {} problems kept", self.read, self.kept)?;
        for (reason, rows) in self.by_reason() {
            let numbers: Vec<String> = rows.iter().take(NAMED).map(|r| r.row.to_string()).collect();
            let more = if rows.len() > NAMED { ", ..." } else { "" };
            write!(f, "; {} rejected: {reason} (rows {}{more})", rows.len(), numbers.join(", "))?;
        }
        Ok(())
    }
}
