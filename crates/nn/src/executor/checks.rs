//! Layer checks, a mode for debugging: the result of every operation is searched for values that are not finite, and the first one ends the pass with
//! its layer, operation and row.
//!
//! With checks off, an operation costs one branch more. With checks on, the host waits for every operation, and decoding steps are not recorded as CUDA
//! graphs; results are the same bits.

use super::{Holds, Memory, Place, Rows, Stage};
use crate::error::Error;
use crate::layout::{Layout, Span};
use crate::segments::Chunk;

/// The environment variable that turns layer checks on.
pub const CHECK_LAYERS: &str = "FGRPO_CHECK_LAYERS";

/// An executor whose results are checked, if checks are on.
///
/// Operations return no status, so the first failure is stored, and returned by the next call that waits for results.
pub(crate) struct Checked<'a, X> {
    pub(super) inner: &'a mut X,
    /// Names of the tensors, or `None` if checks are off.
    pub(super) layout: Option<&'a Layout>,
    pub(super) place: Place,
    failure: Option<Error>,
}

/// Rows of a result, and the operations that computed its columns: the name of each, with the number of its columns.
pub(super) struct Columns {
    rows: usize,
    names: Vec<(String, usize)>,
}

impl<'a, X: Memory> Checked<'a, X> {
    /// Checks operations of `inner` if `layout` is given, which names the tensors.
    pub(crate) fn new(inner: &'a mut X, layout: Option<&'a Layout>) -> Checked<'a, X> {
        let place = Place { stage: Stage::Forward, layer: None, rows: 0, own: 0 };
        Checked { inner, layout, place, failure: None }
    }

    /// Columns that the tensors in these spans computed, with the same `note` on each name.
    pub(super) fn tensors(&self, spans: impl IntoIterator<Item = Span>, rows: usize, note: &str) -> Columns {
        let all = self.layout.map_or(&[][..], |layout| &layout.tensors);
        let within =
            |of: Span| all.iter().filter(move |t| (of.offset..of.offset + of.len).contains(&t.span.offset));
        let name = |name: &str| format!("{}{note}", name.trim_end_matches(".weight"));
        let names = spans.into_iter().flat_map(within).map(|t| (name(&t.name), t.shape[0])).collect();
        Columns { rows, names }
    }

    /// `width` columns that the tensors in one span computed together.
    pub(super) fn tensor(&self, span: Span, rows: usize, width: usize) -> Columns {
        let names: Vec<String> =
            self.tensors([span], rows, "").names.into_iter().map(|name| name.0).collect();
        Columns { rows, names: vec![(names.join(" and "), width)] }
    }

    /// Columns of operations of the layer that have no tensor.
    pub(super) fn named(&self, rows: usize, names: &[(&str, usize)]) -> Columns {
        let module = self.place.layer.map_or_else(String::new, |layer| format!("model.layers.{layer}."));
        let names = names.iter().map(|(name, width)| (format!("{module}{name}"), *width)).collect();
        Columns { rows, names }
    }

    pub(super) fn rows_of(&self, rows: Rows) -> usize {
        if rows == Rows::All { self.place.rows } else { self.place.own }
    }

    /// Stores a failure if a value of `x` is not finite.
    pub(super) fn check(&mut self, Columns { rows, names }: Columns, x: &X::Buffer) {
        let width: usize = names.iter().map(|name| name.1).sum();
        if self.failure.is_some() {
            return;
        }
        let Some((index, found)) = self.inner.first_non_finite(rows * width, x) else { return };
        let (row, mut column) = (index / width, index % width);
        let mut names = names.iter();
        let name = loop {
            let (name, count) = names.next().expect("the column has an operation");
            match column.checked_sub(*count) {
                Some(rest) => column = rest,
                None => break name,
            }
        };
        let side = if self.place.stage == Stage::Backward { "derivative by the input" } else { "output" };
        let predicting = self.place.own < self.place.rows && rows == self.place.own;
        let kind = if predicting { "predicting row" } else { "row" };
        let what = format!("{side} of {name}, {kind} {row} of {rows}, column {column}");
        self.failure = Some(error(self.place, what, found));
    }

    /// Adds the stage to an error of the vocabulary head, whose input has been checked.
    pub(super) fn at_head(&self, error_of_head: Error) -> Error {
        match error_of_head {
            Error::NonFinite { what, found, .. } if self.layout.is_some() => {
                error(Place { layer: None, ..self.place }, what, found)
            }
            other => other,
        }
    }
}

/// The error for a value that is not finite; the engine adds the advice.
fn error(Place { stage, layer, .. }: Place, what: String, found: f32) -> Error {
    let stage = match stage {
        Stage::Forward => "forward pass",
        Stage::Prompts => "forward pass over prompts",
        Stage::Decoding => "decoding step",
        Stage::Backward => "backward pass",
    };
    let layer = layer.map_or_else(String::new, |layer| format!(", layer {layer}"));
    Error::NonFinite { what: format!("{stage}{layer}: {what}"), found, remedy: String::new() }
}

impl<X: Memory> Memory for Checked<'_, X> {
    type Buffer = X::Buffer;
    type Weights = X::Weights;
    type Gradient = X::Gradient;
    type Cache = X::Cache;
    type Lists = X::Lists;
    type Decoding = X::Decoding;

    fn reserve(&mut self, buffer: &mut X::Buffer, holds: Holds, len: usize) {
        self.inner.reserve(buffer, holds, len);
    }

    fn stage(&mut self, chunk: &Chunk, slots: &[u32], lists: &mut X::Lists) {
        self.inner.stage(chunk, slots, lists);
    }

    fn first_non_finite(&mut self, len: usize, x: &X::Buffer) -> Option<(usize, f32)> {
        self.inner.first_non_finite(len, x)
    }

    fn enter(&mut self, place: Place) {
        self.place = place;
    }

    fn checked(&mut self) -> Result<(), Error> {
        self.failure.take().map_or(Ok(()), Err)
    }
}

/// Returns an error if a derivative of the loss is not finite; `picks` are the indices of the predictions.
pub(crate) fn finite_loss(picks: &[usize], dlogp: &[f32], dentropy: &[f32]) -> Result<(), Error> {
    for (name, values) in [("log-probability", dlogp), ("entropy", dentropy)] {
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            let what = format!("derivative of the loss by the {name} of prediction {}", picks[at]);
            let place = Place { stage: Stage::Backward, layer: None, rows: 0, own: 0 };
            return Err(error(place, what, values[at]));
        }
    }
    Ok(())
}

/// Returns an error if a score is not finite; `rows` are the predicting rows of the scores.
pub(crate) fn check_scores(
    logp: &[f32],
    entropy: &[f32],
    rows: impl IntoIterator<Item = u32>,
) -> Result<(), Error> {
    for ((&logp, &entropy), row) in logp.iter().zip(entropy).zip(rows) {
        if let Some(found) = [logp, entropy].into_iter().find(|score| !score.is_finite()) {
            return Err(non_finite(found, row as usize));
        }
    }
    Ok(())
}

/// The error for a row whose softmax is invalid.
pub(crate) fn non_finite(found: f32, row: usize) -> Error {
    Error::NonFinite {
        what: format!("lm_head: log-probabilities of predicting row {row}"),
        found,
        remedy: format!(
            "the weights have diverged or are damaged: go back to an earlier checkpoint, and lower the learning rate. To find the layer, run again with {CHECK_LAYERS}=on"
        ),
    }
}
