//! Layer checks, a mode for debugging: the result of every operation is searched for numbers that are not finite, and the first one ends the pass with
//! its layer, operation and row.
//!
//! Turned off, a check is one branch. Turned on, the host waits for every operation, and decoding steps are not recorded as CUDA graphs; results are the
//! same bits.

use std::ops::Range;

use crate::error::Error;
use crate::executor::{
    Attention, AttentionOps, DecodeChanges, DecodeOps, Executor, Gate, Head, HeadOps, HeadPass, HeadRows,
    Heads, Holds, LinearOps, LowRank, Map, Memory, Mixer, MixerOps, Norm, NormOps, Place, Rotation, RowOps,
    Rows, Stage, StepAttention,
};
use crate::families::Activation;
use crate::layout::{Layout, Linear, Span, Write};
use crate::sampling::{Draw, Drawn, Sampling};
use crate::segments::Chunk;

/// The environment variable that turns layer checks on.
pub const CHECK_LAYERS: &str = "FGRPO_CHECK_LAYERS";

/// An executor whose results are checked, if checks are on.
///
/// Operations return no status, so the first failure is stored; the next call that waits for results returns it.
pub(crate) struct Checked<'a, X> {
    inner: &'a mut X,
    /// Names of the tensors, or `None` if checks are off.
    layout: Option<&'a Layout>,
    place: Place,
    failure: Option<Error>,
}

/// Rows of a result, and the names of the operations that computed its columns, with the number of columns of each.
struct Computed {
    rows: usize,
    columns: Vec<(String, usize)>,
}

impl<'a, X: Executor> Checked<'a, X> {
    /// Checks operations of `inner` if `layout` is given, which names the tensors.
    pub(crate) fn new(inner: &'a mut X, layout: Option<&'a Layout>) -> Checked<'a, X> {
        let place = Place { stage: Stage::Forward, layer: None, rows: 0, own: 0 };
        Checked { inner, layout, place, failure: None }
    }

    /// The tensors in these spans of the store, with their rows, and the same `note` on each.
    fn tensors(&self, spans: impl IntoIterator<Item = Span>, rows: usize, note: &str) -> Computed {
        let all = self.layout.map_or(&[][..], |layout| &layout.tensors);
        let within =
            |of: Span| all.iter().filter(move |t| (of.offset..of.offset + of.len).contains(&t.span.offset));
        let name = |name: &str| format!("{}{note}", name.trim_end_matches(".weight"));
        let columns = spans.into_iter().flat_map(within).map(|t| (name(&t.name), t.shape[0])).collect();
        Computed { rows, columns }
    }

    /// One tensor, with another number of columns than it has rows.
    fn tensor(&self, span: Span, rows: usize, width: usize) -> Computed {
        let names: Vec<String> =
            self.tensors([span], rows, "").columns.into_iter().map(|column| column.0).collect();
        Computed { rows, columns: vec![(names.join(" and "), width)] }
    }

    /// Results of operations of the layer without a tensor of their own.
    fn named(&self, rows: usize, columns: &[(&str, usize)]) -> Computed {
        let module = self.place.layer.map_or_else(String::new, |layer| format!("model.layers.{layer}."));
        Computed {
            rows,
            columns: columns.iter().map(|(name, width)| (format!("{module}{name}"), *width)).collect(),
        }
    }

    fn rows_of(&self, rows: Rows) -> usize {
        if rows == Rows::All { self.place.rows } else { self.place.own }
    }

    /// Stores a failure if a number of `x` is not finite.
    fn check(&mut self, Computed { rows, columns }: Computed, x: &X::Buffer) {
        let width: usize = columns.iter().map(|column| column.1).sum();
        if self.failure.is_some() {
            return;
        }
        let Some((index, found)) = self.inner.first_non_finite(rows * width, x) else { return };
        let (row, mut column) = (index / width, index % width);
        let mut names = columns.iter();
        let name = loop {
            let (name, own) = names.next().expect("the column of one of them");
            match column.checked_sub(*own) {
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

    /// The error of the vocabulary head, whose input was checked, with its stage.
    fn at_head(&self, error_of_head: Error) -> Error {
        match error_of_head {
            Error::NonFinite { what, found, .. } if self.layout.is_some() => {
                error(Place { layer: None, ..self.place }, what, found)
            }
            other => other,
        }
    }
}

/// The error for a number that is not finite; the engine adds the advice.
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

type BufferOf<X> = <X as Memory>::Buffer;

/// Operations of the inner executor. After `=>`, results to check, each with its rows and names.
macro_rules! operations {
    ($ops:ident { $(fn $name:ident($me:ident $(, $arg:ident: $type:ty)*) $(=> $($out:ident: $computed:expr),+)?;)* } $($rest:tt)*) => {
        impl<X: Executor> $ops for Checked<'_, X> {
            $(fn $name(&mut $me $(, $arg: $type)*) {
                $(let computed = $me.layout.map(|_| [$($computed),+]);)?
                $me.inner.$name($($arg),*);
                $(if let Some(computed) = computed {
                    for (computed, x) in computed.into_iter().zip([$(&*$out),+]) {
                        $me.check(computed, x);
                    }
                })?
            })*
            $($rest)*
        }
    };
}

impl<X: Executor> Memory for Checked<'_, X> {
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

operations! { RowOps {
    fn gather(self, width: usize, lists: &X::Lists, x: &BufferOf<X>, y: &mut BufferOf<X>);
    fn take_row(self, width: usize, row: usize, x: &BufferOf<X>, y: &mut BufferOf<X>);
    fn scatter_add(self, width: usize, lists: &X::Lists, x: &BufferOf<X>, y: &mut BufferOf<X>);
    fn scatter(self, width: usize, lists: &X::Lists, x: &BufferOf<X>, count: usize, y: &mut BufferOf<X>);
    fn zero(self, len: usize, y: &mut BufferOf<X>);
    fn add(self, len: usize, x: &BufferOf<X>, y: &mut BufferOf<X>);
    fn keep_rows(self, width: usize, ranges: &[Range<usize>], x: &mut BufferOf<X>);
    fn embed(self, weights: &X::Weights, table: Span, width: usize, lists: &X::Lists, x: &mut BufferOf<X>)
        => x: self.tensor(table, self.place.rows, width);
    fn embed_backward(self, gradient: &mut X::Gradient, table: Span, width: usize, lists: &X::Lists, dx: &BufferOf<X>);
    fn rotate(self, rotation: Rotation, heads: HeadRows, lists: &X::Lists, rows: Rows, x: &mut BufferOf<X>)
        => x: self.named(heads.rows, &[("self_attn (rotary embedding)", heads.stride)]);
    fn scale(self, len: usize, factor: f32, y: &mut BufferOf<X>)
        => y: self.named(self.place.rows, &[("model.embed_tokens (scaled)", len / self.place.rows.max(1))]);
    fn gated(self, kind: Activation, rows: usize, width: usize, gate_up: &BufferOf<X>, act: &mut BufferOf<X>)
        => act: self.named(rows, &[("mlp (activation)", width)]);
    fn gated_backward(self, kind: Activation, rows: usize, width: usize, gate_up: &mut BufferOf<X>, dact: &mut BufferOf<X>)
        => gate_up: self.named(rows, &[("mlp (activation)", 2 * width)]);
} }

operations! { NormOps {
    fn rms_norm(self, norm: Norm<'_, X::Weights>, x: &BufferOf<X>, y: &mut BufferOf<X>, scale: &mut BufferOf<X>)
        => y: self.tensors([norm.weight], norm.rows, "");
    fn rms_norm_again(self, norm: Norm<'_, X::Weights>, x: &BufferOf<X>, scale: &BufferOf<X>, y: &mut BufferOf<X>);
    fn rms_norm_backward(self, norm: Norm<'_, X::Weights>, gradient: Option<&mut X::Gradient>, x: &BufferOf<X>, scale: &BufferOf<X>, dy: &BufferOf<X>, dx: &mut BufferOf<X>)
        => dx: self.tensors([norm.weight], norm.rows, "");
    fn head_norm(self, norm: Norm<'_, X::Weights>, heads: HeadRows, x: &mut BufferOf<X>, raw: &mut BufferOf<X>, scale: &mut BufferOf<X>)
        => x: self.tensor(norm.weight, heads.rows, heads.stride);
    fn head_norm_backward(self, norm: Norm<'_, X::Weights>, gradient: Option<&mut X::Gradient>, heads: HeadRows, raw: &BufferOf<X>, scale: &BufferOf<X>, dx: &mut BufferOf<X>)
        => dx: self.tensor(norm.weight, heads.rows, heads.stride);
} }

operations! { LinearOps {
    fn linear(self, map: Map<'_, X::Weights>, x: &BufferOf<X>, onto: Option<&BufferOf<X>>, y: &mut BufferOf<X>)
        => y: self.tensors([map.linear.weight], map.rows, if onto.is_some() { " (with the residual)" } else { "" });
    fn linears(self, weights: &X::Weights, linears: &[Linear], rows: usize, x: &BufferOf<X>, y: &mut BufferOf<X>)
        => y: self.tensors(linears.iter().map(|linear| linear.weight), rows, "");
    fn linear_backward_input(self, map: Map<'_, X::Weights>, dy: &BufferOf<X>, write: Write, dx: &mut BufferOf<X>)
        => dx: self.tensor(map.linear.weight, map.rows, map.linear.inputs);
    fn linear_backward_weight(self, gradient: &mut X::Gradient, linear: Linear, rows: usize, dy: &BufferOf<X>, x: &BufferOf<X>);
    fn low_rank(self, of: LowRank<'_, X::Weights>, x: &BufferOf<X>, y: &mut BufferOf<X>)
        => y: self.tensor(of.adapted.weight, of.rows, of.adapted.stride);
    fn low_rank_backward_input(self, of: LowRank<'_, X::Weights>, dy: &BufferOf<X>, dx: &mut BufferOf<X>)
        => dx: self.tensor(of.adapted.weight, of.rows, of.adapted.inputs);
    fn low_rank_backward(self, of: LowRank<'_, X::Weights>, gradient: &mut X::Gradient, dy: &BufferOf<X>, x: &BufferOf<X>);
} }

operations! { AttentionOps {
    fn attention(self, of: Attention<'_, X::Lists>, q: &BufferOf<X>, kv: &BufferOf<X>, out: &mut BufferOf<X>, lse: &mut BufferOf<X>)
        => out: self.named(self.rows_of(of.rows), &[("self_attn (attention)", of.heads.query_width())]);
    fn attention_backward(self, of: Attention<'_, X::Lists>, from: [&BufferOf<X>; 5], dq: &mut BufferOf<X>, dkv: &mut BufferOf<X>)
        => dq: self.named(self.rows_of(of.rows), &[("self_attn (attention, queries)", of.heads.query_width())]),
           dkv: self.named(of.keys, &[("self_attn (attention, keys)", of.heads.key_width() / 2), ("self_attn (attention, values)", of.heads.key_width() / 2)]);
    fn grow_cache(self, heads: Heads, layers: usize, cache: &mut X::Cache, slots: usize, most: usize);
    fn shrink_cache(self, cache: &mut X::Cache, bytes: usize);
    fn store_cache(self, heads: Heads, cache: &mut X::Cache, layer: usize, lists: &X::Lists, kv: &BufferOf<X>);
} }

/// Name of a gate in an error.
fn gate_name(kind: Gate) -> &'static str {
    if kind == Gate::Sigmoid { "self_attn (output gate)" } else { "linear_attn (gate)" }
}

operations! { MixerOps {
    fn split_heads(self, heads: HeadRows, x: &BufferOf<X>, first: &mut BufferOf<X>, second: &mut BufferOf<X>);
    fn join_heads(self, heads: HeadRows, first: &BufferOf<X>, second: &BufferOf<X>, x: &mut BufferOf<X>);
    fn gate(self, kind: Gate, len: usize, gate: &BufferOf<X>, x: &BufferOf<X>, y: &mut BufferOf<X>)
        => y: self.named(self.place.own, &[(gate_name(kind), len / self.place.own.max(1))]);
    fn gate_backward(self, kind: Gate, len: usize, gate: &mut BufferOf<X>, x: &BufferOf<X>, dy: &mut BufferOf<X>, y: &mut BufferOf<X>)
        => dy: self.named(self.place.own, &[(gate_name(kind), len / self.place.own.max(1))]);
    fn convolve(self, of: Mixer<'_, X::Weights, X::Lists>, cache: Option<&mut X::Cache>, x: &BufferOf<X>, y: &mut BufferOf<X>)
        => y: self.named(self.place.rows, &[("linear_attn.conv1d", of.layout.of.channels())]);
    fn convolve_backward(self, of: Mixer<'_, X::Weights, X::Lists>, gradient: Option<&mut X::Gradient>, x: &BufferOf<X>, dy: &mut BufferOf<X>, dx: &mut BufferOf<X>)
        => dx: self.named(self.place.rows, &[("linear_attn.conv1d", of.layout.of.input_width())]);
    fn delta_rule(self, of: Mixer<'_, X::Weights, X::Lists>, cache: Option<&mut X::Cache>, x: &BufferOf<X>, mixed: &mut BufferOf<X>, out: &mut BufferOf<X>)
        => out: self.named(self.rows_of(of.rows), &[("linear_attn (gated delta rule)", of.layout.of.value_width())]);
    fn delta_rule_backward(self, of: Mixer<'_, X::Weights, X::Lists>, gradient: Option<&mut X::Gradient>, x: &BufferOf<X>, dout: &BufferOf<X>, mixed: &mut BufferOf<X>, dx: &mut BufferOf<X>)
        => mixed: self.named(self.place.rows, &[("linear_attn (gated delta rule)", of.layout.of.channels())]);
    fn step_mixer(self, of: Mixer<'_, X::Weights, X::Lists>, decoding: &X::Decoding, cache: &mut X::Cache, x: &BufferOf<X>, mixed: &mut BufferOf<X>, out: &mut BufferOf<X>)
        => mixed: self.named(self.place.rows, &[("linear_attn.conv1d", of.layout.of.channels())]),
           out: self.named(self.place.rows, &[("linear_attn (gated delta rule)", of.layout.of.value_width())]);
    fn grow_states(self, states: &mut dyn Iterator<Item = usize>, cache: &mut X::Cache, nodes: usize);
} }

operations! { HeadOps {
    fn head(self, of: HeadPass<'_, X::Weights, X::Lists>, x: &BufferOf<X>, logits: &mut BufferOf<X>, saved: &mut BufferOf<X>, scores: &mut BufferOf<X>);
    fn derivatives(self, dlogp: &[f32], dentropy: &[f32], to: &mut BufferOf<X>);
    fn head_backward(self, of: HeadPass<'_, X::Weights, X::Lists>, gradient: Option<&mut X::Gradient>, from: [&BufferOf<X>; 3], logits: &mut BufferOf<X>, dx: &mut BufferOf<X>)
        => dx: self.named(of.rows, &[("lm_head", of.head.width)]);
    fn logits(self, weights: &X::Weights, head: Head, rows: usize, x: &BufferOf<X>, logits: &mut Vec<f32>);
}
    fn keeps_logits(&self, head: Head, rows: usize) -> bool {
        self.inner.keeps_logits(head, rows)
    }

    fn scores(&mut self, lists: &X::Lists, scores: &BufferOf<X>, logp: &mut [f32], entropy: &mut [f32]) -> Result<(), Error> {
        self.checked()?;
        self.inner.scores(lists, scores, logp, entropy).map_err(|error| self.at_head(error))
    }
}

operations! { DecodeOps {
    fn begin_step(self, changes: &DecodeChanges, decoding: &mut X::Decoding);
    fn step_attention(self, of: StepAttention<'_, X::Weights>, decoding: &X::Decoding, cache: &mut X::Cache, qkv: &BufferOf<X>, out: &mut BufferOf<X>)
        => out: self.named(self.place.rows, &[("self_attn (norms, rotary embedding and attention)", of.heads.query_width())]);
    fn stage_draws(self, rows: usize, draws: &[Draw], decoding: &mut X::Decoding);
    fn sample(self, weights: &X::Weights, head: Head, sampling: &Sampling, rows: usize, x: &BufferOf<X>, decoding: &mut X::Decoding);
    fn end_step(self, decoding: &mut X::Decoding);
}
    const RUNS_AHEAD: bool = X::RUNS_AHEAD;

    fn step_rows(decoding: &X::Decoding) -> usize {
        X::step_rows(decoding)
    }

    fn step_lists(decoding: &X::Decoding) -> &X::Lists {
        X::step_lists(decoding)
    }

    fn drawn(&mut self, decoding: &mut X::Decoding, drawn: &mut Vec<Drawn>) -> Result<(), Error> {
        self.checked()?;
        self.inner.drawn(decoding, drawn).map_err(|error| self.at_head(error))
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
