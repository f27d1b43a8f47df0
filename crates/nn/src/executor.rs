//! The device interface, part 1: an executor runs operations in order. On the CPU it is a team of threads, on a GPU a stream. The decoder (forward
//! and backward) and the generation scheduler use this interface.
//!
//! An executor's memory: buffers (activations and statistics, which grow and keep their allocation), a cache of keys and values, the lists of one batch, and
//! the state of decoding. The lists are transferred once per pass, so no operation needs data from the host. Scores are read by one call, the only
//! point of a pass at which the host waits. A buffer may be longer than the part that an operation uses. Operations that produce parameter gradients
//! add to the gradient, or skip the work if there is none.

pub(crate) mod checks;
mod operations;

pub(crate) use operations::{
    AttentionOps, DecodeOps, Executor, HeadOps, LinearOps, MixerOps, NormOps, RowOps,
};

use crate::error::Error;
use crate::families::Theta;
use crate::layout::{Linear, MixerLayout, Span};
use crate::lora::Adapted;
use crate::sampling::Draw;
use crate::segments::Chunk;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Heads {
    /// `H`.
    pub(crate) queries: usize,
    /// `K`.
    pub(crate) keys: usize,
    /// `E`.
    pub(crate) size: usize,
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

/// Values that attention kept in the forward pass, and the derivative by its result.
pub(crate) struct AttentionKept<'a, B> {
    pub(crate) q: &'a B,
    /// Keys and values.
    pub(crate) kv: &'a B,
    pub(crate) out: &'a B,
    /// log Σ exp of each head's scores.
    pub(crate) lse: &'a B,
    pub(crate) dout: &'a B,
}

/// Values that the head kept in the forward pass, and the derivatives by its scores.
pub(crate) struct HeadKept<'a, B> {
    pub(crate) x: &'a B,
    /// Two values per row.
    pub(crate) saved: &'a B,
    /// Derivatives by the log-probability of each pick, then by the entropy of each pick's row.
    pub(crate) derivatives: &'a B,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DecodeRow {
    /// The node whose sequence its token continues.
    pub(crate) node: usize,
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
    pub(crate) rows: Vec<DecodeRow>,
    pub(crate) tokens: StepTokens,
    /// The step's draws, in the order of their rows.
    pub(crate) draws: Vec<Draw>,
}

impl DecodeChanges {
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
    type Buffer: Default + Send + Sync;
    type Weights: ?Sized + Sync;
    /// Their gradient.
    type Gradient: ?Sized;
    /// Keys and values of all layers, by slot.
    type Cache: Default + Send + Sync;
    /// The lists of one pass: tokens, positions, attention's plan, picks, slots in the cache.
    type Lists: Default + Send + Sync;
    /// The state of decoding: token sequences and their pages, rows, sampled tokens.
    type Decoding: Default + Send + Sync;

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
