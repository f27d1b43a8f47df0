//! The operations of the CPU, each run by one team of threads.

mod attention;
mod convolution;
mod decoding;
mod head;
mod linear;
mod mixer;
mod norms;
mod rows;

pub(crate) use head::{KEPT_LOGITS, LOGITS_SCRATCH};
pub(crate) use linear::tile_rows;
pub(crate) use mixer::scratch_len;

use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::attention::Scratch as AttentionScratch;
use super::buffer::Buffer;
use super::decoding::Decoding;
use super::delta_rule::DeltaRule;
use super::lists::Lists;
use super::packed_weights::PackedWeights;
use super::product::View;
use super::team::{ColumnsMut, RowsMut, Shared, Team};
use super::weights::Weights;
use super::{sampler, simd};
use crate::error::Error;
use crate::executor::{self, Holds, Memory};
use crate::layout::Span;
use crate::numbers::ProductFormat;
use crate::rope::Rope;
use crate::sampling::Drawn;
use crate::segments::Chunk;

#[derive(Default)]
struct Scratch {
    attention: AttentionScratch,
    sampler: sampler::Scratch,
    drawn: Vec<Drawn>,
    /// Error of sampling.
    failed: Option<Error>,
    /// States of a recurrent mixer's head.
    states: Buffer,
    rule: DeltaRule,
    dout: Vec<f32>,
}

/// A team of threads and its memory.
pub(crate) struct CpuExecutor {
    pub(super) team: Team,
    /// Number format of the products in linear maps and the head.
    pub(super) products: ProductFormat,
    pub(super) rope: Arc<Rope>,
    /// Packed weights that linear maps read instead of the matrices: in a generation (`Work::Generate`).
    pub(super) packed: Option<Arc<PackedWeights>>,
    /// Scratch memory, one for each part of an operation, so that no two threads share it.
    scratch: Vec<Mutex<Scratch>>,
    head: head::HeadScratch,
    logits: Vec<f32>,
    /// Queries of a decoding step.
    queries: Buffer,
    lse: Buffer,
    delta: Buffer,
    /// Intermediate result between LoRA's factors: `[rows, rank]`.
    low_rank: Buffer,
    /// Dequantized rows of a matrix.
    tile: Buffer,
    mixer: mixer::MixerScratch,
}

impl CpuExecutor {
    /// Creates an executor for teams of up to `largest` threads.
    pub(super) fn new(team: Team, largest: usize, products: ProductFormat, rope: Arc<Rope>) -> CpuExecutor {
        CpuExecutor {
            team,
            products,
            rope,
            packed: None,
            scratch: (0..largest).map(|_| Mutex::default()).collect(),
            head: head::HeadScratch::default(),
            logits: Vec::new(),
            queries: Buffer::default(),
            lse: Buffer::default(),
            delta: Buffer::default(),
            low_rank: Buffer::default(),
            tile: Buffer::default(),
            mixer: mixer::MixerScratch::default(),
        }
    }

    /// Like [`Team::split_rows`], but `body` gets no part index, and a row accesses about `width` values.
    fn rows<const N: usize>(
        &self,
        rows: usize,
        width: usize,
        outputs: [RowsMut<'_>; N],
        body: impl Fn(Range<usize>, [&mut [f32]; N]) + Sync,
    ) {
        self.team.split_rows(rows, rows * width, outputs, |_, range, outputs| body(range, outputs));
    }

    /// Like [`Team::split_columns`], for one output of `rows` rows and `width` columns, split at cache lines.
    fn columns(
        &self,
        rows: usize,
        width: usize,
        output: &mut [f32],
        body: impl Fn(Range<usize>, ColumnsMut<'_>) + Sync,
    ) {
        let outputs = [(output, width)];
        self.team.split_columns(width, 16, rows * width, outputs, |_, range, [output]| body(range, output));
    }

    /// Returns the scratch memory for part `part` of an operation.
    fn scratch(&self, part: usize) -> std::sync::MutexGuard<'_, Scratch> {
        self.scratch[part].lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

pub(crate) type Cache = executor::Cache<Buffer>;

fn part(store: &[f32], span: Span) -> &[f32] {
    &store[span.offset..span.offset + span.len]
}

fn part_mut(store: &mut [f32], span: Span) -> &mut [f32] {
    &mut store[span.offset..span.offset + span.len]
}

/// Returns the number of rows of logits that sampling holds at a time.
pub(crate) fn rows_at_a_time(vocabulary: usize) -> usize {
    ((1 << 22) / vocabulary).clamp(1, 256)
}

impl Memory for CpuExecutor {
    type Buffer = Buffer;
    type Weights = Weights;
    type Gradient = [f32];
    type Lists = Lists;
    type Decoding = Decoding;

    fn reserve(&mut self, buffer: &mut Buffer, _: Holds, len: usize) {
        buffer.reserve(len);
    }

    fn extend(&mut self, buffer: &mut Buffer, _: Holds, len: usize, _: usize) {
        buffer.extend_by_eighths(len);
    }

    fn bytes(buffer: &Buffer) -> usize {
        4 * buffer.len()
    }

    fn upload(&mut self, chunk: &Chunk, slots: &[u32], lists: &mut Lists) {
        lists.tokens.clone_from(&chunk.tokens);
        lists.positions.clone_from(&chunk.positions);
        lists.all.clone_from(&chunk.all);
        lists.predicting.clone_from(&chunk.predicting);
        lists.picks.clone_from(&chunk.picks);
        lists.stretches.clone_from(&chunk.stretches);
        lists.nodes.clone_from(&chunk.nodes);
        lists.previous.clear();
        lists.previous.extend(chunk.previous());
        lists.query_positions.clear();
        let positions = chunk.predicting.rows.iter().map(|&row| chunk.positions[row as usize]);
        lists.query_positions.extend(positions);
        lists.slots.clear();
        lists.slots.extend_from_slice(slots);
    }

    fn first_non_finite(&mut self, len: usize, x: &Buffer) -> Option<(usize, f32)> {
        let index = x[..len].iter().position(|value| !value.is_finite())?;
        Some((index, x[index]))
    }
}
