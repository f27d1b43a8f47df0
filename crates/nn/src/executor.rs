//! The device interface, part 1: an executor runs operations in order. On the CPU it is a team of threads, on a GPU a stream. The decoder
//! (forward and backward passes) and the generation scheduler use this interface.
//!
//! An executor's memory consists of buffers (activations and statistics, which grow and are reused), a cache of keys and values, the lists of
//! a batch, and the decoding state. The lists are transferred once per pass, so no operation needs data from the host. Scores are read by one
//! call, the only point of a pass at which the host waits. A buffer may be longer than the part that an operation uses. Operations that
//! compute parameter gradients add to the gradient, or skip that work if a gradient isn't passed.

pub(crate) mod checks;
mod counter;
mod operations;

pub(crate) use counter::Counter;
pub(crate) use operations::{
    AttentionOps, ConvolutionOps, DecodeOps, Executor, HeadOps, LinearOps, MixerOps, NormOps, RowOps,
};

use crate::error::Error;
use crate::families::{Layer, Theta};
use crate::layout::{Layout, MixerLayout, Span};
use crate::lora::Adapted;
use crate::sampling::Draw;
use crate::segments::Chunk;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Heads {
    /// `H`, the number of query heads.
    pub(crate) queries: usize,
    /// `K`, the number of key/value heads.
    pub(crate) keys: usize,
    /// `E`, the size of a head.
    pub(crate) size: usize,
    pub(crate) scale: f32,
}

impl Heads {
    /// Returns the width of a row of queries, which equals the width of attention's output.
    pub(crate) fn query_width(&self) -> usize {
        self.queries * self.size
    }

    /// Returns the width of a row of keys and values together.
    pub(crate) fn key_width(&self) -> usize {
        2 * self.keys * self.size
    }
}

/// Heads inside wider rows: `count` heads from column `first` of rows with `stride` values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeadRows {
    pub(crate) rows: usize,
    pub(crate) first: usize,
    pub(crate) stride: usize,
    pub(crate) count: usize,
    pub(crate) size: usize,
}

/// Columns from `first` on of rows with `stride` values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strip {
    pub(crate) stride: usize,
    pub(crate) first: usize,
}

/// LoRA factors of a matrix, applied to rows.
pub(crate) struct LowRank<'a, W: ?Sized> {
    pub(crate) factors: &'a W,
    pub(crate) adapted: Adapted,
    pub(crate) scale: f32,
    pub(crate) rows: usize,
}

/// An RMSNorm of rows, or of heads within rows.
pub(crate) struct Norm<'a, W: ?Sized> {
    pub(crate) weights: &'a W,
    pub(crate) weight: Span,
    /// Offset that is added to the weight.
    pub(crate) offset: f32,
    pub(crate) eps: f32,
    pub(crate) rows: usize,
}

/// Attention of the queries in `rows`, in a pass over `keys` rows.
pub(crate) struct Attention<'a, L> {
    pub(crate) heads: Heads,
    pub(crate) lists: &'a L,
    pub(crate) rows: Subset,
    pub(crate) keys: usize,
    /// Number of latest tokens that a query sees, including its own, or `None` if it sees all.
    pub(crate) window: Option<usize>,
}

/// Inputs of attention's backward pass: values saved by the forward pass, and the derivative with respect to its output.
pub(crate) struct AttentionInputs<'a, B> {
    pub(crate) q: &'a B,
    /// Keys and values.
    pub(crate) kv: &'a B,
    pub(crate) out: &'a B,
    /// Log-sum-exp of each head's scores.
    pub(crate) lse: &'a B,
    pub(crate) dout: &'a B,
}

/// Inputs of the head's backward pass: values saved by the forward pass, and the derivatives with respect to its scores.
pub(crate) struct HeadInputs<'a, B> {
    pub(crate) x: &'a B,
    /// The two values per row that the forward pass saved.
    pub(crate) saved: &'a B,
    /// Derivatives with respect to the log-probability of each pick, then with respect to the entropy of each pick's row.
    pub(crate) derivatives: &'a B,
}

/// Attention in a layer of a decoding step, including the norms of each head's query and key and the rotary embedding, if the layer has them.
pub(crate) struct StepAttention<'a, W: ?Sized> {
    pub(crate) weights: &'a W,
    pub(crate) q_norm: Option<Span>,
    pub(crate) k_norm: Option<Span>,
    /// Zeros, to which the norm of values adds 1. `None` if the layer has no norm of values.
    pub(crate) v_norm: Option<Span>,
    pub(crate) offset: f32,
    pub(crate) eps: f32,
    pub(crate) heads: Heads,
    /// If the layer borrows keys and values, a row of the input only has queries.
    pub(crate) spec: Layer,
    /// Index of the layer in the cache.
    pub(crate) layer: usize,
}

/// A layer's recurrent mixer in a pass, with its layout `M`.
pub(crate) struct Mixer<'a, W: ?Sized, L, M = MixerLayout> {
    pub(crate) weights: &'a W,
    pub(crate) layout: M,
    /// Index among the recurrent layers.
    pub(crate) index: usize,
    pub(crate) lists: &'a L,
    /// Rows whose results are needed.
    pub(crate) rows: Subset,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    Sigmoid,
    Silu,
}

/// The vocabulary head in a pass.
pub(crate) struct HeadPass<'a, W: ?Sized, L> {
    pub(crate) weights: &'a W,
    pub(crate) head: Head,
    pub(crate) temperature: f32,
    pub(crate) rows: usize,
    pub(crate) lists: &'a L,
    /// Whether the forward pass stores the logits for the backward pass.
    pub(crate) keeps_logits: bool,
}

/// The vocabulary head `logits = cap(x Wᵀ) / temperature` with `W`: `[vocabulary, width]`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) weight: Span,
    pub(crate) vocabulary: usize,
    pub(crate) width: usize,
    /// `cap(z) = softcap * tanh(z / softcap)`, or `cap(z) = z` if `None`.
    pub(crate) softcap: Option<f32>,
}

/// A rotary embedding. `sign` is 1, or -1 for the inverse rotation in the backward pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rotation {
    pub(crate) theta: Theta,
    pub(crate) sign: f32,
}

/// Content of a buffer, which determines its number type on devices with several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holds {
    /// Activations and their derivatives.
    Activations,
    /// Scales of norms, log-sum-exps, logits and scores; always f32.
    Statistics,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Subset {
    #[default]
    All,
    /// The rows that predict. For other rows, the last layer computes only keys and values.
    Predicting,
}

/// A change of the token sequences in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeChange {
    /// Starts a sequence that continues its parent's, with `stored` tokens already in the cache. The node's index may have been used before.
    Begin { node: usize, parent: Option<usize>, stored: usize },
    /// Appends a page to a sequence.
    Page { node: usize, page: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DecodeRow {
    /// Node of the sequence that the token continues.
    pub(crate) node: usize,
    pub(crate) position: u32,
    /// Node whose recurrent state the row reads, and node whose state the row writes; unused in models without states. Rows of one sequence are in the
    /// order of their tokens.
    pub(crate) states: [usize; 2],
}

/// Tokens of a step's rows. Their keys and values are not stored yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StepTokens {
    Known(Vec<u32>),
    /// Indices of draws of the previous step. The step's tokens are the results of these draws, which the host hasn't read yet.
    Sampled(Vec<u32>),
}

impl Default for StepTokens {
    fn default() -> Self {
        StepTokens::Known(Vec::new())
    }
}

/// Changes that the host makes before a decoding step.
#[derive(Debug, Default)]
pub(crate) struct DecodeChanges {
    /// Changes of sequences, in order.
    pub(crate) nodes: Vec<NodeChange>,
    pub(crate) rows: Vec<DecodeRow>,
    pub(crate) tokens: StepTokens,
    /// Draws of the step, in the order of their rows.
    pub(crate) draws: Vec<Draw>,
}

impl DecodeChanges {
    pub(crate) fn clear(&mut self) {
        self.nodes.clear();
        self.rows.clear();
        self.draws.clear();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Forward,
    /// Forward pass whose keys and values are cached.
    Prompts,
    Decoding,
    Backward,
}

/// Part of a pass: a layer, or the operations outside of the layers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) phase: Phase,
    pub(crate) layer: Option<usize>,
    pub(crate) rows: usize,
    /// Number of rows whose results are needed: all rows, or the predicting rows.
    pub(crate) needed: usize,
}

/// The cache of keys, values and recurrent states.
#[derive(Default)]
pub(crate) struct Cache<B> {
    /// For each layer that computes keys, rows of keys and values by slot, as the key/value projection computes them.
    pub(crate) layers: Vec<B>,
    /// For each recurrent layer, f32 states by node: the states of all heads, then the latest inputs of the convolution, newest first.
    pub(crate) states: Vec<B>,
}

impl<B: Default> Cache<B> {
    /// Grows the cache to `slots` tokens and the states of `nodes` nodes, and retains its content. `limit` is the maximum number of slots that the
    /// request can need, the same in all calls for a request.
    pub(crate) fn grow<X: Memory<Buffer = B>>(
        &mut self,
        ops: &mut X,
        layout: &Layout,
        [slots, limit]: [usize; 2],
        nodes: usize,
    ) {
        self.layers.resize_with(layout.cached().count(), B::default);
        for (layer, width) in self.layers.iter_mut().zip(layout.cached()) {
            ops.extend(layer, Holds::Activations, slots * width, limit * width);
        }
        self.states.resize_with(layout.states().count(), B::default);
        for (states, size) in self.states.iter_mut().zip(layout.states()) {
            ops.extend(states, Holds::Statistics, nodes * size, usize::MAX);
        }
    }

    /// Frees the cache if it is larger than `bytes`.
    pub(crate) fn shrink<X: Memory<Buffer = B>>(&mut self, bytes: usize) {
        if self.layers.iter().chain(&self.states).map(X::bytes).sum::<usize>() > bytes {
            *self = Cache::default();
        }
    }
}

pub(crate) trait Memory: Send {
    /// A block of the executor's memory.
    type Buffer: Default + Send + Sync;
    type Weights: ?Sized + Sync;
    type Gradient: ?Sized;
    /// Lists of one pass: tokens, positions, the attention plan, picks, slots in the cache.
    type Lists: Default + Send + Sync;
    /// Decoding state: token sequences and their pages, rows, sampled tokens.
    type Decoding: Default + Send + Sync;

    /// Grows `buffer` to at least `len`; its content is unspecified afterwards.
    fn reserve(&mut self, buffer: &mut Self::Buffer, holds: Holds, len: usize);

    /// Grows a buffer of the cache to at least `len` values, and retains its content. The buffer never needs more than `most` values.
    fn extend(&mut self, buffer: &mut Self::Buffer, holds: Holds, len: usize, most: usize);

    fn bytes(buffer: &Self::Buffer) -> usize;

    /// Transfers the lists of a pass to the device. `slots` are the cache slots of its rows, or empty if they aren't cached.
    fn upload(&mut self, chunk: &Chunk, slots: &[u32], lists: &mut Self::Lists);

    /// Returns the index and value of the first of `len` values that is not finite, or `None` if all are finite or the device has failed. Waits
    /// for the device. For debugging.
    fn first_non_finite(&mut self, len: usize, x: &Self::Buffer) -> Option<(usize, f32)>;

    /// Sets the part of the pass that layer checks report.
    fn enter(&mut self, _: Place) {}

    /// Returns an error if layer checks have found a value that is not finite.
    fn checked(&mut self) -> Result<(), Error> {
        Ok(())
    }
}
