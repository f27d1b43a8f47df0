//! The device interface, part 1: an executor runs operations in order. On the CPU it is a team of threads, on a GPU a stream. The decoder (forward
//! and backward) and the generation scheduler use this interface.
//!
//! An executor's memory: buffers (activations and statistics, which grow and keep their allocation), a cache of keys and values, the lists of one batch, and
//! the state of decoding. The lists are transferred once per pass, so no operation needs data from the host. Scores are read by one call, the only
//! point of a pass at which the host waits. A buffer may be longer than the part that an operation uses. Operations that produce parameter gradients
//! add to the gradient, or skip the work if there is none.

use std::ops::Range;

use crate::error::Error;
use crate::families::{Activation, Theta};
use crate::layout::{Linear, MixerLayout, Span, Write};
use crate::lora::Adapted;
use crate::sampling::{Draw, Drawn, Sampling};
use crate::segments::Chunk;

/// Sizes of attention.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heads {
    /// `H`.
    pub(crate) queries: usize,
    /// `K`.
    pub(crate) keys: usize,
    /// `E`.
    pub(crate) size: usize,
    /// Factor of the scores.
    pub(crate) scale: f32,
}

impl Heads {
    /// Width of a row of queries, and of attention's output.
    pub(crate) fn query_width(&self) -> usize {
        self.queries * self.size
    }

    /// Width of a row of keys and values.
    pub(crate) fn key_width(&self) -> usize {
        2 * self.keys * self.size
    }
}

/// Heads inside a wider row: `count` heads from column `first` of rows of `stride` numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeadRows {
    pub(crate) rows: usize,
    pub(crate) first: usize,
    pub(crate) stride: usize,
    pub(crate) count: usize,
    pub(crate) size: usize,
}

/// A linear map of rows.
pub(crate) struct Map<'a, W: ?Sized> {
    pub(crate) weights: &'a W,
    pub(crate) linear: Linear,
    pub(crate) rows: usize,
}

/// A matrix's factors, applied to rows.
pub(crate) struct LowRank<'a, W: ?Sized> {
    pub(crate) factors: &'a W,
    pub(crate) adapted: Adapted,
    pub(crate) scale: f32,
    pub(crate) rows: usize,
}

/// A norm of rows, or of heads in them.
pub(crate) struct Norm<'a, W: ?Sized> {
    pub(crate) weights: &'a W,
    pub(crate) weight: Span,
    /// What is added to the weight.
    pub(crate) offset: f32,
    pub(crate) eps: f32,
    pub(crate) rows: usize,
}

/// Attention of these rows of a pass over `keys` rows.
pub(crate) struct Attention<'a, L> {
    pub(crate) heads: Heads,
    pub(crate) lists: &'a L,
    pub(crate) rows: Rows,
    pub(crate) keys: usize,
    /// Latest tokens that a query sees, its own among them, if not all.
    pub(crate) window: Option<usize>,
}

/// Attention of a decoding step in a layer: the norms of each head's query and key, if the layer has them, and whether they are rotated.
pub(crate) struct StepAttention<'a, W: ?Sized> {
    pub(crate) weights: &'a W,
    pub(crate) q_norm: Option<Span>,
    pub(crate) k_norm: Option<Span>,
    pub(crate) offset: f32,
    pub(crate) eps: f32,
    pub(crate) rope: Option<Theta>,
    pub(crate) heads: Heads,
    pub(crate) window: Option<usize>,
    pub(crate) layer: usize,
}

/// A recurrent mixer of a layer in a pass.
pub(crate) struct Mixer<'a, W: ?Sized, L> {
    pub(crate) weights: &'a W,
    pub(crate) layout: MixerLayout,
    /// Index of the layer among those with a mixer.
    pub(crate) place: usize,
    pub(crate) lists: &'a L,
    /// Rows whose results are needed.
    pub(crate) rows: Rows,
}

/// The function of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    Sigmoid,
    Silu,
}

/// The head of a pass, whose logits may be `kept` from the forward to the backward pass.
pub(crate) struct HeadPass<'a, W: ?Sized, L> {
    pub(crate) weights: &'a W,
    pub(crate) head: Head,
    pub(crate) temperature: f32,
    pub(crate) rows: usize,
    pub(crate) lists: &'a L,
    pub(crate) kept: bool,
}

/// The vocabulary head: `logits = x Wᵀ / temperature`, `W`: `[vocabulary, width]`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) weight: Span,
    pub(crate) vocabulary: usize,
    pub(crate) width: usize,
}

/// The rotation by these frequencies. Its sign is 1, or -1 for the inverse in the backward pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rotation {
    pub(crate) theta: Theta,
    pub(crate) sign: f32,
}

/// The content of a buffer, which determines its number type if a device has several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holds {
    /// Activations and their derivatives.
    Activations,
    /// Scales of norms, log Σ exp, logits, scores: always f32.
    Statistics,
}

/// Rows of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    All,
    /// Rows that predict; the last layer needs only these.
    Predicting,
}

/// A change of the token sequences in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeChange {
    /// Starts a sequence that continues its parent's; this many of its tokens are already stored. Its number may be reused.
    Begin { node: usize, parent: Option<usize>, stored: usize },
    /// Appends a page to a sequence.
    Page { node: usize, page: u32 },
}

/// A row of a decoding step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DecodeRow {
    /// The node whose sequence its token continues.
    pub(crate) node: usize,
    /// Its position.
    pub(crate) position: u32,
    /// The node whose state it continues, and the one whose state it makes, where layers have a state. Rows come in the order of their tokens.
    pub(crate) states: [usize; 2],
}

/// The tokens of a step's rows, whose keys are not stored yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StepTokens {
    Known(Vec<u32>),
    /// Those that these draws of the last step sample. The host has not read them: it runs ahead.
    Sampled(Vec<u32>),
}

impl Default for StepTokens {
    fn default() -> Self {
        StepTokens::Known(Vec::new())
    }
}

/// The changes of the host before a decoding step.
#[derive(Debug, Default)]
pub(crate) struct DecodeChanges {
    /// In order.
    pub(crate) nodes: Vec<NodeChange>,
    /// The rows of the step.
    pub(crate) rows: Vec<DecodeRow>,
    pub(crate) tokens: StepTokens,
    /// The step's draws, in the order of their rows.
    pub(crate) draws: Vec<Draw>,
}

impl DecodeChanges {
    /// Nothing.
    pub(crate) fn clear(&mut self) {
        self.nodes.clear();
        self.rows.clear();
        self.draws.clear();
    }
}

/// A kind of pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Forward,
    /// Forward pass whose keys and values are cached.
    Prompts,
    Decoding,
    Backward,
}

/// A part of a pass: a layer, or the parts before and after the layers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) stage: Stage,
    pub(crate) layer: Option<usize>,
    /// Number of all rows.
    pub(crate) rows: usize,
    /// Number of the rows whose results are needed: all, or those that predict.
    pub(crate) own: usize,
}

/// The memory of an executor.
pub(crate) trait Memory: Send {
    /// A block of the executor's memory.
    type Buffer: Default + Send;
    /// Parameters.
    type Weights: ?Sized + Sync;
    /// Their gradient.
    type Gradient: ?Sized;
    /// Keys and values of all layers, by slot.
    type Cache: Default + Send;
    /// The lists of one pass: tokens, positions, attention's plan, picks, slots in the cache.
    type Lists: Default + Send;
    /// The state of decoding: token sequences and their pages, rows, sampled tokens.
    type Decoding: Default + Send;

    /// Grows `buffer` to at least `len`; its content is unspecified afterwards.
    fn reserve(&mut self, buffer: &mut Self::Buffer, holds: Holds, len: usize);

    /// Transfers the lists of a pass to the device; `slots` are the slots of its rows in the cache, if they are stored.
    fn stage(&mut self, chunk: &Chunk, slots: &[u32], lists: &mut Self::Lists);

    /// Index and value of the first of `len` numbers that is not finite; also `None` if the device has failed. Waits for the work so far. For
    /// debugging.
    fn first_non_finite(&mut self, len: usize, x: &Self::Buffer) -> Option<(usize, f32)>;

    /// Tells checks which part of a pass follows.
    fn enter(&mut self, _: Place) {}

    /// Returns the first number that checks found to be not finite, as an error.
    fn checked(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// Operations on rows: copies, the embedding, rotation, the activation.
pub(crate) trait RowOps: Memory {
    /// The predicting rows of `x`, of `width`.
    fn gather(&mut self, width: usize, lists: &Self::Lists, x: &Self::Buffer, y: &mut Self::Buffer);

    /// `y` is row `row` of `x`, of `width`.
    fn take_row(&mut self, width: usize, row: usize, x: &Self::Buffer, y: &mut Self::Buffer);

    /// Adds `x` to the predicting rows of `y`.
    fn scatter_add(&mut self, width: usize, lists: &Self::Lists, x: &Self::Buffer, y: &mut Self::Buffer);

    /// `y` has `count` rows of `width`: zero but for the predicting ones, which are those of `x`.
    fn scatter(
        &mut self,
        width: usize,
        lists: &Self::Lists,
        x: &Self::Buffer,
        count: usize,
        y: &mut Self::Buffer,
    );

    /// `y[..len] = 0`.
    fn zero(&mut self, len: usize, y: &mut Self::Buffer);

    /// `y[..len] += x`.
    fn add(&mut self, len: usize, x: &Self::Buffer, y: &mut Self::Buffer);

    /// Keeps the rows of `width` in `ranges` (ascending), moved to the front.
    fn keep_rows(&mut self, width: usize, ranges: &[Range<usize>], x: &mut Self::Buffer);

    /// `x[t] = table[tokens[t]]`, table rows of `width`.
    fn embed(
        &mut self,
        weights: &Self::Weights,
        table: Span,
        width: usize,
        lists: &Self::Lists,
        x: &mut Self::Buffer,
    );

    /// `gradient[table][tokens[t]] += dx[t]`.
    fn embed_backward(
        &mut self,
        gradient: &mut Self::Gradient,
        table: Span,
        width: usize,
        lists: &Self::Lists,
        dx: &Self::Buffer,
    );

    /// Rotary embedding in place, at the positions of `rows`.
    fn rotate(
        &mut self,
        rotation: Rotation,
        heads: HeadRows,
        lists: &Self::Lists,
        rows: Rows,
        x: &mut Self::Buffer,
    );

    /// `y[..len] *= factor`.
    fn scale(&mut self, len: usize, factor: f32, y: &mut Self::Buffer);

    /// `act = activation(gate) * up`; rows of `gate_up` are the gate's `width` numbers, then up's.
    fn gated(
        &mut self,
        kind: Activation,
        rows: usize,
        width: usize,
        gate_up: &Self::Buffer,
        act: &mut Self::Buffer,
    );

    /// In place: `gate_up` becomes its derivative, and `dact` becomes `act`.
    fn gated_backward(
        &mut self,
        kind: Activation,
        rows: usize,
        width: usize,
        gate_up: &mut Self::Buffer,
        dact: &mut Self::Buffer,
    );
}

/// RMSNorm, of rows and of heads.
pub(crate) trait NormOps: Memory {
    /// `y = x / rms(x) * weight`; `scale` keeps `1 / rms` of each row.
    fn rms_norm(
        &mut self,
        norm: Norm<'_, Self::Weights>,
        x: &Self::Buffer,
        y: &mut Self::Buffer,
        scale: &mut Self::Buffer,
    );

    /// `y` again, from what the forward pass kept.
    fn rms_norm_again(
        &mut self,
        norm: Norm<'_, Self::Weights>,
        x: &Self::Buffer,
        scale: &Self::Buffer,
        y: &mut Self::Buffer,
    );

    /// `dx += d loss / dx`, from `dy`.
    fn rms_norm_backward(
        &mut self,
        norm: Norm<'_, Self::Weights>,
        gradient: Option<&mut Self::Gradient>,
        x: &Self::Buffer,
        scale: &Self::Buffer,
        dy: &Self::Buffer,
        dx: &mut Self::Buffer,
    );

    /// RMSNorm of each head in place; `raw` keeps the packed input, and `scale` keeps `1 / rms` of each head.
    fn head_norm(
        &mut self,
        norm: Norm<'_, Self::Weights>,
        heads: HeadRows,
        x: &mut Self::Buffer,
        raw: &mut Self::Buffer,
        scale: &mut Self::Buffer,
    );

    /// In place: `dx` from the derivative of the result to that of `raw`.
    fn head_norm_backward(
        &mut self,
        norm: Norm<'_, Self::Weights>,
        gradient: Option<&mut Self::Gradient>,
        heads: HeadRows,
        raw: &Self::Buffer,
        scale: &Self::Buffer,
        dx: &mut Self::Buffer,
    );
}

/// Linear maps, in full and through LoRA's factors.
pub(crate) trait LinearOps: Memory {
    /// `y = x Wᵀ + b`, and `onto` added, which is another buffer.
    fn linear(
        &mut self,
        map: Map<'_, Self::Weights>,
        x: &Self::Buffer,
        onto: Option<&Self::Buffer>,
        y: &mut Self::Buffer,
    );

    /// A row of `y` has the results of all these maps of `x`, side by side.
    fn linears(
        &mut self,
        weights: &Self::Weights,
        linears: &[Linear],
        rows: usize,
        x: &Self::Buffer,
        y: &mut Self::Buffer,
    );

    /// `dx = dy W`, or added to `dx`.
    fn linear_backward_input(
        &mut self,
        map: Map<'_, Self::Weights>,
        dy: &Self::Buffer,
        write: Write,
        dx: &mut Self::Buffer,
    );

    /// `dW += dyᵀ x`, `db += Σ dy`.
    fn linear_backward_weight(
        &mut self,
        gradient: &mut Self::Gradient,
        linear: Linear,
        rows: usize,
        dy: &Self::Buffer,
        x: &Self::Buffer,
    );

    /// `y += scale · (x Aᵀ) Bᵀ`, for a matrix whose factors aren't merged; `y` is that of the whole linear map.
    fn low_rank(&mut self, of: LowRank<'_, Self::Weights>, x: &Self::Buffer, y: &mut Self::Buffer);

    /// `dx += scale · (dy B) A`, likewise.
    fn low_rank_backward_input(
        &mut self,
        of: LowRank<'_, Self::Weights>,
        dy: &Self::Buffer,
        dx: &mut Self::Buffer,
    );

    /// For a matrix with factors, `W = W0 + scale · B A`: `dA += scale · (dy B)ᵀ x`, `dB += scale · dyᵀ (x Aᵀ)`. `dy` is that of the whole linear map.
    fn low_rank_backward(
        &mut self,
        of: LowRank<'_, Self::Weights>,
        gradient: &mut Self::Gradient,
        dy: &Self::Buffer,
        x: &Self::Buffer,
    );
}

/// Attention of a pass, and the cache of keys and values.
pub(crate) trait AttentionOps: Memory {
    /// `out[query]` = attention of each of the rows over its pieces of the rows of `kv`; `lse` keeps log Σ exp, `[queries, H]`.
    fn attention(
        &mut self,
        of: Attention<'_, Self::Lists>,
        q: &Self::Buffer,
        kv: &Self::Buffer,
        out: &mut Self::Buffer,
        lse: &mut Self::Buffer,
    );

    /// `dq` and `dkv` (replaced) from `[q, kv, out, lse, dout]`.
    fn attention_backward(
        &mut self,
        of: Attention<'_, Self::Lists>,
        from: [&Self::Buffer; 5],
        dq: &mut Self::Buffer,
        dkv: &mut Self::Buffer,
    );

    /// Makes room in the cache for `slots` tokens of `layers` layers; its content of this request stays. `most` are the slots that the request can
    /// need, the same for all its calls.
    fn grow_cache(&mut self, heads: Heads, layers: usize, cache: &mut Self::Cache, slots: usize, most: usize);

    /// Frees the cache if it is larger than `bytes`.
    fn shrink_cache(&mut self, cache: &mut Self::Cache, bytes: usize);

    /// Stores each row of `kv` of `layer` in its slot.
    fn store_cache(
        &mut self,
        heads: Heads,
        cache: &mut Self::Cache,
        layer: usize,
        lists: &Self::Lists,
        kv: &Self::Buffer,
    );
}

/// Gates, and recurrent mixers with their states.
pub(crate) trait MixerOps: Memory {
    /// Divides rows that begin with heads of twice `size`: rows of `first` have the first halves and what follows the heads, those of `second` the second halves.
    fn split_heads(
        &mut self,
        heads: HeadRows,
        x: &Self::Buffer,
        first: &mut Self::Buffer,
        second: &mut Self::Buffer,
    );

    /// The opposite, where nothing follows the heads.
    fn join_heads(
        &mut self,
        heads: HeadRows,
        first: &Self::Buffer,
        second: &Self::Buffer,
        x: &mut Self::Buffer,
    );

    /// `y[..len] = kind(gate) * x`.
    fn gate(&mut self, kind: Gate, len: usize, gate: &Self::Buffer, x: &Self::Buffer, y: &mut Self::Buffer);

    /// In place: `gate` becomes its derivative, `dy` that of `x`; `y` is computed again.
    fn gate_backward(
        &mut self,
        kind: Gate,
        len: usize,
        gate: &mut Self::Buffer,
        x: &Self::Buffer,
        dy: &mut Self::Buffer,
        y: &mut Self::Buffer,
    );

    /// A causal convolution of the first columns of rows of `x` over their paths, and SiLU, in rows of `y`.
    /// A cache gets the latest inputs of each tree whose node the lists have.
    fn convolve(
        &mut self,
        of: Mixer<'_, Self::Weights, Self::Lists>,
        cache: Option<&mut Self::Cache>,
        x: &Self::Buffer,
        y: &mut Self::Buffer,
    );

    /// The first columns of `dx` (replaced) from the derivative `dy` of the result, which is overwritten.
    fn convolve_backward(
        &mut self,
        of: Mixer<'_, Self::Weights, Self::Lists>,
        gradient: Option<&mut Self::Gradient>,
        x: &Self::Buffer,
        dy: &mut Self::Buffer,
        dx: &mut Self::Buffer,
    );

    /// The gated delta rule along paths: `out` of the rows of `of` from `mixed`, the convolution's result, and the last columns of `x`, `b` and `a` of each head.
    /// Queries and keys in `mixed` are normalised in place. A cache gets the last state of each tree whose node the lists have.
    fn delta_rule(
        &mut self,
        of: Mixer<'_, Self::Weights, Self::Lists>,
        cache: Option<&mut Self::Cache>,
        x: &Self::Buffer,
        mixed: &mut Self::Buffer,
        out: &mut Self::Buffer,
    );

    /// In place: `mixed`, as the convolution leaves it, becomes its derivative; the last columns of `dx` (replaced) are that of `x`.
    fn delta_rule_backward(
        &mut self,
        of: Mixer<'_, Self::Weights, Self::Lists>,
        gradient: Option<&mut Self::Gradient>,
        x: &Self::Buffer,
        dout: &Self::Buffer,
        mixed: &mut Self::Buffer,
        dx: &mut Self::Buffer,
    );

    /// Convolution and delta rule of a decoding step's rows, whose states they change.
    fn step_mixer(
        &mut self,
        of: Mixer<'_, Self::Weights, Self::Lists>,
        decoding: &Self::Decoding,
        cache: &mut Self::Cache,
        x: &Self::Buffer,
        mixed: &mut Self::Buffer,
        out: &mut Self::Buffer,
    );

    /// Makes room for the states of `nodes` nodes, of such lengths by layer with a state; their content stays.
    fn grow_states(&mut self, states: &mut dyn Iterator<Item = usize>, cache: &mut Self::Cache, nodes: usize);
}

/// The vocabulary head of a pass.
pub(crate) trait HeadOps: Memory {
    /// Whether `rows` rows of logits are few enough to be kept from the forward to the backward pass.
    fn keeps_logits(&self, head: Head, rows: usize) -> bool;

    /// Log-probability of each pick and entropy of its row, of softmax(logits / temperature), into `scores`: all of the former, then all of the
    /// latter. `saved` keeps two numbers per row, and `logits` all logits, if they are kept.
    fn head(
        &mut self,
        of: HeadPass<'_, Self::Weights, Self::Lists>,
        x: &Self::Buffer,
        logits: &mut Self::Buffer,
        saved: &mut Self::Buffer,
        scores: &mut Self::Buffer,
    );

    /// Waits for the pass and reads the results of [`HeadOps::head`].
    fn scores(
        &mut self,
        lists: &Self::Lists,
        scores: &Self::Buffer,
        logp: &mut [f32],
        entropy: &mut [f32],
    ) -> Result<(), Error>;

    /// Transfers the derivatives of the scores to the device, in the order of `scores`.
    fn derivatives(&mut self, dlogp: &[f32], dentropy: &[f32], to: &mut Self::Buffer);

    /// `dx` (replaced) and the head's gradient from `[x, saved, derivatives]`, the last those of each pick's log-probability and entropy; kept logits
    /// are overwritten.
    fn head_backward(
        &mut self,
        of: HeadPass<'_, Self::Weights, Self::Lists>,
        gradient: Option<&mut Self::Gradient>,
        from: [&Self::Buffer; 3],
        logits: &mut Self::Buffer,
        dx: &mut Self::Buffer,
    );

    /// The logits themselves, `[rows, vocabulary]`, untempered. Waits for them.
    fn logits(
        &mut self,
        weights: &Self::Weights,
        head: Head,
        rows: usize,
        x: &Self::Buffer,
        logits: &mut Vec<f32>,
    );
}

/// Steps of decoding.
pub(crate) trait DecodeOps: Memory {
    /// Whether the host may submit a step before it has read what the last one sampled.
    const RUNS_AHEAD: bool;

    /// Applies the host's changes, builds the next decoding step and transfers its lists and draws to the device. Its operations follow, up to
    /// [`DecodeOps::end_step`]; they must not need the host.
    fn begin_step(&mut self, changes: &DecodeChanges, decoding: &mut Self::Decoding);

    /// The number of rows to compute in that step: its own, and those that a device adds to them.
    fn step_rows(decoding: &Self::Decoding) -> usize;

    /// The lists of that step.
    fn step_lists(decoding: &Self::Decoding) -> &Self::Lists;

    /// Attention of the step's rows over their sequences in the cache. A row of `qkv` has its queries, keys and values, as the linear maps make them. Queries
    /// and keys get the norm of their heads, if there is one, and the rotary embedding; keys and values are stored in the row's slot before it attends.
    fn step_attention(
        &mut self,
        of: StepAttention<'_, Self::Weights>,
        decoding: &Self::Decoding,
        cache: &mut Self::Cache,
        qkv: &Self::Buffer,
        out: &mut Self::Buffer,
    );

    /// Transfers draws from `rows` rows to the device, in the order of their rows: those of rows that are no decoding step.
    fn stage_draws(&mut self, rows: usize, draws: &[Draw], decoding: &mut Self::Decoding);

    /// Samples tokens from rows of `x`, by the draws transferred last.
    fn sample(
        &mut self,
        weights: &Self::Weights,
        head: Head,
        sampling: &Sampling,
        rows: usize,
        x: &Self::Buffer,
        decoding: &mut Self::Decoding,
    );

    /// Ends the operations of a decoding step, or of other draws. What they sample can be read from now on.
    fn end_step(&mut self, decoding: &mut Self::Decoding);

    /// Waits for what was sampled, and reads it: once for each [`DecodeOps::end_step`], in their order.
    /// Fails if a row's logits are not finite.
    fn drawn(&mut self, decoding: &mut Self::Decoding, drawn: &mut Vec<Drawn>) -> Result<(), Error>;
}

/// An executor: all operations.
pub(crate) trait Executor:
    RowOps + NormOps + LinearOps + AttentionOps + MixerOps + HeadOps + DecodeOps
{
}

impl<X: RowOps + NormOps + LinearOps + AttentionOps + MixerOps + HeadOps + DecodeOps> Executor for X {}
