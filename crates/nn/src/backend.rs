//! The device interface, part 2: a device's memory and its executors.
//!
//! A backend owns the parameters, their gradient, the optimizer's moments, and LoRA's factors and base weights. It implements the operations on all
//! parameters at once. The engine addresses them by [`Store`] and span, one tensor at a time, so that reading and writing never need a copy of the
//! whole.

use std::borrow::Cow;

use crate::adamw::AdamWStep;
use crate::error::Error;
use crate::executor::Executor;
use crate::layout::Span;
use crate::lora::AdapterLayout;
use crate::quantized::Quantized;
use crate::sampling::Rollout;

/// One of the stores with the layout of the parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    /// The parameters but for quantized matrices; with LoRA, base and update together.
    Weights,
    /// LoRA's factors, in their own layout.
    Factors,
    /// The gradient of the trained parameters; reading sums it over the executors.
    Gradient,
    /// AdamW's first moment of the trained parameters.
    FirstMoment,
    /// AdamW's second moment of the trained parameters.
    SecondMoment,
}

/// The memory that one executor works with.
pub(crate) struct Lane<'a, X: Executor> {
    pub(crate) executor: &'a mut X,
    pub(crate) weights: &'a X::Weights,
    pub(crate) factors: Option<&'a X::Weights>,
    /// The destination of this executor's gradient, if one is computed.
    pub(crate) gradient: Option<&'a mut X::Gradient>,
}

/// The next kind of work of the executors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Score,
    Accumulate,
    Generate,
}

/// How decoding steps were submitted to a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GraphCounts {
    /// All steps.
    pub steps: u64,
    /// Graphs that were captured.
    pub captured: u64,
    /// Steps that were submitted as a graph.
    pub replayed: u64,
    /// Steps that were submitted before the tokens of the step before were read.
    pub ahead: u64,
    /// Launches, products, copies and zeros of the largest step that was recorded.
    pub nodes: usize,
}

/// What writes the numbers of a tensor.
pub(crate) type FillFn<'a> = dyn FnMut(&mut [f32]) -> Result<(), Error> + 'a;

/// A standard normal number by its index.
pub(crate) type NormalFn<'a> = dyn Fn(u64) -> f64 + Sync + 'a;

/// Distributes work over executors of these speeds: the most expensive first, each to the executor that would finish first.
pub(crate) fn deal<T>(mut work: Vec<T>, speeds: &[usize], cost: impl Fn(&T) -> u64) -> Vec<Vec<T>> {
    work.sort_by_key(|part| std::cmp::Reverse(cost(part)));
    let mut shares: Vec<Vec<T>> = speeds.iter().map(|_| Vec::new()).collect();
    let mut loads = vec![0u64; speeds.len()];
    for part in work {
        let time = |&executor: &usize| u128::from(loads[executor]) * 1000 / speeds[executor] as u128;
        let least = (0..speeds.len()).min_by_key(time).expect("there is an executor");
        loads[least] += cost(&part);
        shares[least].push(part);
    }
    shares
}

/// A device, whatever its executors are.
pub(crate) trait Backend: Send + Sync {
    /// Executors, and the relative speed of each.
    fn executors(&self) -> Vec<usize>;

    /// Executors for a generation with a feed: prompts that come while it runs find earlier ones in the cache of their executor alone.
    fn fed_executors(&self) -> usize {
        self.executors().len()
    }

    /// Whether scores and gradients may need the memory of the cache.
    fn passes_need_cache(&self) -> bool {
        false
    }

    /// Returns the first failure on the device so far. Operations themselves return no status, because a device reports failures late.
    fn check(&self) -> Result<(), Error>;

    /// As many pages of keys and values as a sequence's recurrent states take the memory of.
    fn state_pages(&self) -> usize;

    /// Tokens whose keys and values each of so many executors has memory for, if a request sets no limit.
    fn cached_tokens(&self, executors: usize, rollout: &Rollout) -> usize;

    /// Whether a rollout fits beside the gradient and the buffers of passes.
    fn fits(&self, _rollout: &Rollout) -> bool {
        true
    }

    /// Frees the gradient, if nothing has been accumulated, and buffers of passes, until they are needed again.
    fn free_update(&mut self) {}

    /// Whether memory for the gradient is allocated.
    fn has_gradient(&self) -> bool {
        true
    }

    /// Extends the rotary tables to positions below `positions`.
    fn reach(&mut self, positions: usize);

    /// Whether generation may copy the weights into another layout.
    fn set_decode_copies(&mut self, wanted: bool);

    /// Whether decoding steps may be submitted as graphs; a device without them ignores it.
    fn set_graphs(&mut self, _: bool) {}

    /// How decoding steps were submitted, since [`Backend::set_graphs`].
    fn graph_counts(&self) -> GraphCounts {
        GraphCounts::default()
    }

    /// Whether the moments are kept in host memory.
    fn set_optimizer_offload(&mut self, wanted: bool);

    fn write(&mut self, store: Store, span: Span, values: &[f32]);

    /// Reads a tensor. Moments are zero before the first update, and the gradient is zero before anything is accumulated.
    ///
    /// # Panics
    /// If the device has failed, because the values would be wrong.
    fn read(&self, store: Store, span: Span) -> Cow<'_, [f32]>;

    /// Lets `fill` write a tensor in place, or in host memory that is then copied.
    fn fill(&mut self, store: Store, span: Span, fill: &mut FillFn<'_>) -> Result<(), Error>;

    /// Stores a matrix that is apart from the other weights.
    fn put_quantized(&mut self, span: Span, matrix: Quantized);

    /// Such a matrix.
    ///
    /// # Panics
    /// If there is none, or the device has failed.
    fn quantized(&self, span: Span) -> Cow<'_, Quantized>;

    /// Fills a tensor with `std` times the normal numbers from index `first` on.
    fn normal(&mut self, span: Span, std: f32, normal: &NormalFn<'_>, first: u64);

    fn forget_moments(&mut self);

    /// Adds LoRA's factors, all 0, and keeps the base weights of the adapted matrices if they are to be merged. Resets gradient and moments.
    fn adapt(&mut self, layout: &AdapterLayout);

    /// Forgets factors and base weights, gradient and moments; the weights stay as they are.
    fn remove_adapters(&mut self);

    /// Computes the adapted matrices from base and factors, or from the base only.
    fn merge(&mut self, layout: &AdapterLayout, applied: bool);

    fn gradient_norm(&self) -> f64;

    fn zero_gradient(&mut self);

    /// Sums the gradient over the executors and returns its norm.
    fn reduce(&mut self) -> f64 {
        self.gradient_norm()
    }

    /// One step of AdamW on the trained parameters, after [`Backend::reduce`]; resets the gradient. `runs` are (offset, length, whether weights
    /// decay).
    fn adamw(&mut self, runs: &[(usize, usize, bool)], step: &AdamWStep);
}

/// A device with its type of executor.
pub(crate) trait Executors: Backend {
    type Executor: Executor;

    /// Calls `body` once per task, concurrently, on as many executors; a single task gets the whole device. `meanwhile` runs on the caller's thread.
    fn run<T: Send>(
        &mut self,
        work: Work,
        tasks: &mut [T],
        body: &(dyn Fn(Lane<'_, Self::Executor>, &mut T) + Sync),
        meanwhile: &mut dyn FnMut(),
    );
}
