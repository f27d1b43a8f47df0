//! Layer checks, a debugging mode: the result of every operation is searched for values that are not finite. The first such value ends the pass with an error
//! that names the layer, operation and row.
//!
//! If checks are off, they cost one branch per operation. If they are on, the host waits for every operation and decoding steps are not
//! captured as CUDA graphs, but results have the same bits.

use super::{Holds, Memory, Phase, Place, Subset};
use crate::error::Error;
use crate::layout::{Layout, Span};
use crate::segments::Chunk;

/// Environment variable that enables layer checks.
pub const CHECK_LAYERS: &str = "FGRPO_CHECK_LAYERS";

/// Wraps an executor and checks its results if checks are enabled.
///
/// Operations don't return a status. The first failure is stored, and the next call that waits for results returns it.
pub(crate) struct Checked<'a, X> {
    pub(super) inner: &'a mut X,
    /// Layout that names the tensors, or `None` if checks are disabled.
    pub(super) layout: Option<&'a Layout>,
    pub(super) place: Place,
    failure: Option<Error>,
}

/// A result to check: its number of rows, and the (name, width) of each operation whose outputs make up a row.
pub(super) struct CheckedResult {
    rows: usize,
    names: Vec<(String, usize)>,
}

impl<'a, X: Memory> Checked<'a, X> {
    /// Wraps `inner`. If `layout` is given, results are searched for values that are not finite.
    pub(crate) fn new(inner: &'a mut X, layout: Option<&'a Layout>) -> Checked<'a, X> {
        let place = Place { phase: Phase::Forward, layer: None, rows: 0, needed: 0 };
        Checked { inner, layout, place, failure: None }
    }

    /// Describes a result whose columns are computed from the tensors in these spans. `note` is appended to each name.
    pub(super) fn tensors(
        &self,
        spans: impl IntoIterator<Item = Span>,
        rows: usize,
        note: &str,
    ) -> CheckedResult {
        let all = self.layout.map_or(&[][..], |layout| &layout.tensors);
        let name = |name: &str| format!("{}{note}", name.trim_end_matches(".weight"));
        let within = |span: Span| {
            all.iter().filter_map(move |t| {
                let len = t.span.intersection(span)?.len;
                Some((name(&t.name), t.shape[0] * len / t.span.len))
            })
        };
        let names = spans.into_iter().flat_map(within).collect();
        CheckedResult { rows, names }
    }

    /// Describes a result of `width` columns that are computed from all tensors in a span together.
    pub(super) fn tensor(&self, span: Span, rows: usize, width: usize) -> CheckedResult {
        let names: Vec<String> =
            self.tensors([span], rows, "").names.into_iter().map(|name| name.0).collect();
        CheckedResult { rows, names: vec![(names.join(" and "), width)] }
    }

    /// Describes a result of a layer's operations that don't use a tensor.
    pub(super) fn named(&self, rows: usize, names: &[(&str, usize)]) -> CheckedResult {
        let module = self.place.layer.map_or_else(String::new, |layer| format!("model.layers.{layer}."));
        let names = names.iter().map(|(name, width)| (format!("{module}{name}"), *width)).collect();
        CheckedResult { rows, names }
    }

    pub(super) fn rows_of(&self, rows: Subset) -> usize {
        if rows == Subset::All { self.place.rows } else { self.place.needed }
    }

    /// Stores an error if a value of `x` is not finite.
    pub(super) fn check(&mut self, CheckedResult { rows, names }: CheckedResult, x: &X::Buffer) {
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
        let side = if self.place.phase == Phase::Backward { "input gradient" } else { "output" };
        let predicting = self.place.needed < self.place.rows && rows == self.place.needed;
        let kind = if predicting { "predicting row" } else { "row" };
        let what = format!("{side} of {name}, {kind} {row} of {rows}, column {column}");
        self.failure = Some(error(self.place, what, found));
    }

    /// Adds the phase to an error of the vocabulary head.
    pub(super) fn at_head(&self, error_of_head: Error) -> Error {
        match error_of_head {
            Error::NonFinite { what, found, .. } if self.layout.is_some() => {
                error(Place { layer: None, ..self.place }, what, found)
            }
            other => other,
        }
    }
}

/// Returns the error for a value that is not finite, without the advice that the engine adds.
fn error(Place { phase, layer, .. }: Place, what: String, found: f32) -> Error {
    let phase = match phase {
        Phase::Forward => "forward pass",
        Phase::Prompts => "forward pass over prompts",
        Phase::Decoding => "decoding step",
        Phase::Backward => "backward pass",
    };
    let layer = layer.map_or_else(String::new, |layer| format!(", layer {layer}"));
    Error::NonFinite { what: format!("{phase}{layer}: {what}"), found, remedy: String::new() }
}

impl<X: Memory> Memory for Checked<'_, X> {
    type Buffer = X::Buffer;
    type Weights = X::Weights;
    type Gradient = X::Gradient;
    type Lists = X::Lists;
    type Decoding = X::Decoding;

    fn reserve(&mut self, buffer: &mut X::Buffer, holds: Holds, len: usize) {
        self.inner.reserve(buffer, holds, len);
    }

    fn extend(&mut self, buffer: &mut X::Buffer, holds: Holds, len: usize, most: usize) {
        self.inner.extend(buffer, holds, len, most);
    }

    fn bytes(buffer: &X::Buffer) -> usize {
        X::bytes(buffer)
    }

    fn upload(&mut self, chunk: &Chunk, slots: &[u32], lists: &mut X::Lists) {
        self.inner.upload(chunk, slots, lists);
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

/// Returns an error if a derivative of the loss is not finite. `picks` are the indices of the predictions.
pub(crate) fn finite_loss(picks: &[usize], dlogp: &[f32], dentropy: &[f32]) -> Result<(), Error> {
    for (name, values) in [("log-probability", dlogp), ("entropy", dentropy)] {
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            let what =
                format!("derivative of the loss with respect to the {name} of prediction {}", picks[at]);
            let place = Place { phase: Phase::Backward, layer: None, rows: 0, needed: 0 };
            return Err(error(place, what, values[at]));
        }
    }
    Ok(())
}

/// Returns an error if a score is not finite. `rows` are the predicting rows of the scores.
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

/// Returns the error for a row whose softmax is not finite.
pub(crate) fn non_finite(found: f32, row: usize) -> Error {
    Error::NonFinite {
        what: format!("lm_head: log-probabilities of predicting row {row}"),
        found,
        remedy: format!(
            "the weights have diverged or are damaged: return to an earlier checkpoint and lower the learning rate. To find the layer, run again with {CHECK_LAYERS}=on"
        ),
    }
}
