//! One GPU of an engine: all parameters, their gradient from its own share of a batch, and the moments of the slice that it updates.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use fgrpo_cuda::{Argument, Driver, Memory, Product, Shape};

use super::buffer::Buffer;
use super::executor::{CudaExecutor, numbers};
use super::graphs::{self, Graphs};
use super::launches::{args, kernel};
use super::moments::Moments;
use super::needs;
use super::slices::{inbox_len, slice_len};
use super::stream::{Purpose, Stream};
use super::weights::Weights;
use crate::adamw::AdamWStep;
use crate::backend::{GraphCounts, Lane, Store, Work};
use crate::config::Config;
use crate::engine::Precision;
use crate::error::Error;
use crate::layout::{Layout, Span};
use crate::lora::AdapterLayout;
use crate::quantized::Quantized;

/// Number of blocks that sum squares.
pub(crate) const NORM_BLOCKS: usize = 1024;
/// Threads per such block.
const NORM_THREADS: u32 = 256;

/// LoRA's factors, and the base weights of the adapted matrices, one after another, if they are merged.
struct Adapters {
    values: Weights,
    base: Option<Weights>,
}

/// A GPU with its replica.
pub(super) struct Replica {
    pub(super) stream: Arc<Stream>,
    /// Its place among all replicas, and how many there are.
    place: usize,
    replicas: usize,
    executor: CudaExecutor,
    precision: Precision,
    weights: Weights,
    /// Of quantized matrices, and of the values of the largest.
    quantized_bytes: u64,
    adapters: Option<Adapters>,
    /// Empty until needed.
    pub(super) gradient: Buffer,
    /// What the other replicas' gradients are copied to.
    pub(super) inbox: Buffer,
    /// Of the slice.
    moments: Moments,
    partials: Memory<f64>,
}

impl Replica {
    /// The replica at a place among so many, with weights of 0. `gpu` is its number where messages should name it; `moments` the number type of AdamW's
    /// moments; `exact` whether decoding and passes compute in the same bits; `angles` the tables of angles.
    pub(super) fn new(
        driver: Arc<dyn Driver>,
        gpu: Option<usize>,
        (place, replicas): (usize, usize),
        config: &Config,
        layout: &Layout,
        precision: Precision,
        moments: Precision,
        exact: bool,
        angles: &[Vec<f32>; 3],
    ) -> Result<Replica, Error> {
        let graphs = Graphs::new(graphs::wanted()?);
        let stream = Arc::new(Stream::new(driver, gpu));
        let executor = CudaExecutor::new(Arc::clone(&stream), config, precision, exact, angles, graphs);
        let partials = stream.allocate(NORM_BLOCKS, Purpose::Model);
        let weights = match layout.base {
            None => Weights::zeros(&stream, precision, layout.len),
            // Only factors are trained.
            Some(_) => Weights::frozen(&stream, precision, layout.len),
        };
        stream.check()?;
        let partials = partials.expect("memory, or a failure");
        Ok(Replica {
            stream,
            place,
            replicas,
            executor,
            precision,
            weights,
            quantized_bytes: needs::quantized_bytes(layout, precision),
            adapters: None,
            gradient: Buffer::default(),
            inbox: Buffer::default(),
            moments: Moments::new(moments),
            partials,
        })
    }

    /// Number of trained parameters.
    pub(super) fn trained(&self) -> usize {
        self.trained_weights().len()
    }

    /// The trained parameters: all, or LoRA's factors.
    pub(super) fn trained_weights(&self) -> &Weights {
        self.adapters.as_ref().map_or(&self.weights, |adapters| &adapters.values)
    }

    /// The parameters that it updates.
    pub(super) fn slice(&self) -> Range<usize> {
        let (trained, len) = (self.trained(), slice_len(self.trained(), self.replicas));
        (self.place * len).min(trained)..((self.place + 1) * len).min(trained)
    }

    /// The parameters of a store: all, or LoRA's factors.
    pub(super) fn parameters(&self, store: Store) -> &Weights {
        match store {
            Store::Factors => &self.adapters.as_ref().expect("an engine with adapters").values,
            _ => &self.weights,
        }
    }

    /// Stores a quantized matrix.
    pub(super) fn put_quantized(&mut self, span: Span, matrix: &Quantized) {
        self.weights.quantized.put(&self.stream, span, matrix);
    }

    /// A quantized matrix; `None` if there was no memory for it.
    pub(super) fn quantized(&self, span: Span) -> Option<Quantized> {
        self.weights.quantized.read(&self.stream, span)
    }

    /// What the executor works with.
    pub(super) fn lane(&mut self, work: Work) -> Lane<'_, CudaExecutor> {
        Lane {
            executor: &mut self.executor,
            weights: &self.weights,
            factors: self.adapters.as_ref().map(|adapters| &adapters.values),
            gradient: (work == Work::Accumulate).then_some(&mut self.gradient),
        }
    }

    /// Allocates a store of zeros if there is none yet.
    pub(super) fn make(&mut self, store: Store) {
        let (trained, slice) = (self.trained(), self.slice().len());
        match store {
            Store::Gradient if self.gradient.is_empty() => {
                self.gradient = Buffer::zeros(&self.stream, Precision::F32, trained, Purpose::Model);
                let len = inbox_len(trained, self.replicas);
                self.inbox.reserve(&self.stream, Precision::F32, len, Purpose::Model);
            }
            Store::FirstMoment if slice > 0 => self.moments.make(&self.stream, 0, slice),
            Store::SecondMoment if slice > 0 => self.moments.make(&self.stream, 1, slice),
            _ => {}
        }
    }

    pub(super) fn set_graphs(&mut self, wanted: bool) {
        self.executor.graphs.set(wanted);
    }

    pub(super) fn graph_counts(&self) -> GraphCounts {
        self.executor.graphs.counts
    }

    /// Bytes for a rollout if everything goes that a rollout doesn't use: gradient and buffers of passes. It depends on nothing that is there only
    /// at times, so that a resumed run has the same bound on its cache.
    pub(super) fn room(&self) -> u64 {
        let Some(memory) = self.stream.memory() else { return 0 };
        let factors = self
            .adapters
            .as_ref()
            .map_or(0, |adapters| adapters.values.bytes() + adapters.base.as_ref().map_or(0, Weights::bytes));
        let weights = self.weights.bytes() + self.quantized_bytes as usize;
        let used = weights
            + factors
            + 4 * self.executor.tables_len()
            + self.moments.bytes_on_device(self.slice().len())
            + 8 * NORM_BLOCKS;
        let by_others = memory.total.saturating_sub(memory.free + memory.allocated);
        let reserved = needs::reserved(memory.total as u64, by_others as u64);
        (memory.total as u64).saturating_sub(reserved + used as u64)
    }

    /// Free bytes, without a small rest for the driver and its libraries.
    pub(super) fn free_bytes(&self) -> u64 {
        self.stream.memory().map_or(0, |memory| memory.free.saturating_sub(memory.total / 64) as u64)
    }

    /// Frees the gradient's memory and the executor's buffers.
    pub(super) fn free_update(&mut self) {
        self.gradient = Buffer::default();
        self.inbox = Buffer::default();
        self.executor.free_buffers();
    }

    /// Replaces the tables of angles; returns whether there was memory for them.
    pub(super) fn set_angles(&mut self, angles: &[Vec<f32>; 3]) -> bool {
        self.executor.set_angles(angles);
        self.stream.check().is_ok()
    }

    pub(super) fn set_offload(&mut self, wanted: bool) {
        self.moments.set_offload(&self.stream, wanted);
    }

    pub(super) fn forget_moments(&mut self) {
        self.moments.forget();
    }

    /// Overwrites a part of its slice of a moment that was made.
    pub(super) fn write_moment(&mut self, moment: usize, part: Range<usize>, values: &[f32]) {
        let first = part.start - self.slice().start;
        self.moments.write(&self.stream, moment, first, values);
    }

    /// Reads a part of its slice of a moment.
    pub(super) fn read_moment(&self, moment: usize, part: Range<usize>) -> Cow<'_, [f32]> {
        let start = self.slice().start;
        self.moments.read(&self.stream, moment, part.start - start..part.end - start)
    }

    pub(super) fn adapt(&mut self, layout: &AdapterLayout) {
        let stream = &self.stream;
        let base = layout.merged.then(|| {
            let len = layout.adapted.iter().map(|adapted| adapted.weight.len).sum();
            let base = Weights::zeros(stream, self.precision, len);
            let mut at = 0;
            for adapted in &layout.adapted {
                self.weights.copy(stream, adapted.weight.offset, &base, at, adapted.weight.len);
                at += adapted.weight.len;
            }
            base
        });
        self.adapters = Some(Adapters { values: Weights::zeros(stream, self.precision, layout.len), base });
        self.moments.forget();
        self.gradient = Buffer::default();
        self.inbox = Buffer::default();
    }

    pub(super) fn remove_adapters(&mut self) {
        self.adapters = None;
        self.moments.forget();
        self.gradient = Buffer::default();
        self.inbox = Buffer::default();
    }

    pub(super) fn merge(&self, layout: &AdapterLayout, applied: bool) {
        let Adapters { values, base } = self.adapters.as_ref().expect("an engine with adapters");
        let base = base.as_ref().expect("adapters that are merged");
        let mut at = 0;
        for adapted in &layout.adapted {
            let Span { offset, len } = adapted.weight;
            base.copy(&self.stream, at, &self.weights, offset, len);
            at += len;
            if applied {
                // The sum is rounded to what the network reads; base and factors are exact.
                self.weights.forget_rest(&self.stream, offset, len);
                self.stream.product(&Product {
                    m: adapted.outputs,
                    n: adapted.inputs,
                    k: adapted.rank,
                    a: values.rows(adapted.b.offset, adapted.rank),
                    b: values.rows(adapted.a.offset, adapted.inputs),
                    c: self.weights.at(offset),
                    c_stride: adapted.inputs,
                    alpha: layout.scale,
                    onto: Some(self.weights.at(offset)),
                    bias: None,
                    numbers: numbers(self.precision),
                    exact: false,
                });
            }
        }
    }

    pub(super) fn zero_gradient(&self) {
        self.stream.zero(self.gradient.at(0), 4 * self.gradient.len());
    }

    /// Submits the sums of squares of its slice of the gradient; returns how many there are.
    pub(super) fn square(&self) -> usize {
        let slice = self.slice();
        let blocks = slice.len().div_ceil(4 * NORM_THREADS as usize).min(NORM_BLOCKS);
        self.stream.launch(
            "square_sum",
            Shape::of(blocks, NORM_THREADS, NORM_THREADS as usize * 8),
            args![self.gradient.at(slice.start), &self.partials, slice.len() as u64],
        );
        blocks
    }

    /// Reads so many of these sums.
    pub(super) fn squares(&self, blocks: usize) -> Vec<f64> {
        let mut sums = vec![f64::NAN; blocks];
        self.stream.read(&self.partials, 0, &mut sums);
        sums
    }

    /// One step of AdamW on its slice; resets that part of the gradient.
    pub(super) fn adamw(&mut self, runs: &[(usize, usize, bool)], step: &AdamWStep) {
        let slice = self.slice();
        let Replica { stream, precision, weights, adapters, gradient, moments, .. } = self;
        let values = adapters.as_ref().map_or(&*weights, |adapters| &adapters.values);
        let AdamWStep { number, clip, take1, beta2, take2, eps, decay, rate, root } = *step;
        let of_moments = moments.precision();
        moments.step(stream, slice.len(), |part, moments| {
            let part = slice.start + part.start..slice.start + part.end;
            for &(offset, len, decays) in runs {
                let (first, last) = (offset.max(part.start), (offset + len).min(part.end));
                if first >= last {
                    continue;
                }
                let decay = if decays { decay } else { 1.0 };
                let mut arguments = vec![values.at(first).into()];
                if *precision == Precision::Bf16 {
                    arguments.push(values.rest_at(first).into());
                }
                arguments.push(gradient.at(first).into());
                let before = of_moments.bytes() * (first - part.start);
                arguments.extend(moments.map(|moment| Argument::from(moment.plus(before))));
                arguments.extend([clip, take1, beta2, take2, eps, decay, rate, root].map(Argument::F32));
                arguments.push(((last - first) as u64).into());
                let kernel = match of_moments {
                    Precision::F32 => kernel!(*precision, "adamw"),
                    Precision::Bf16 => {
                        // How they are rounded.
                        arguments.extend([number, first as u64].map(Argument::U64));
                        kernel!(*precision, "adamw_rounded")
                    }
                };
                stream.launch(kernel, Shape::covering(last - first, 256), &arguments);
            }
        });
    }
}
