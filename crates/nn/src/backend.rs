//! The device interface, part 2: a device's memory and its executors.
//!
//! A backend owns the parameters, their gradient, the optimizer's moments, and LoRA's factors and base weights, and implements the operations on
//! all parameters at once. The engine addresses tensors by [`Store`] and span, one at a time, so reading and writing never copies a whole store.

use std::borrow::Cow;

use crate::adamw::AdamWStep;
use crate::error::Error;
use crate::executor::Executor;
use crate::layout::Span;
use crate::lora::AdapterLayout;
use crate::quantized::Quantized;
use crate::sampling::Rollout;

/// A store with the layout of the parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    /// All parameters except quantized matrices. With LoRA, the sum of base and update.
    Weights,
    /// LoRA's factors, in a separate layout.
    Factors,
    /// Gradient of the trained parameters. Reading it sums over the executors.
    Gradient,
    /// AdamW's first moment of the trained parameters.
    FirstMoment,
    /// AdamW's second moment of the trained parameters.
    SecondMoment,
}

/// An executor with the weights that it reads and the gradient that it writes.
pub(crate) struct ExecutorAccess<'a, X: Executor> {
    pub(crate) executor: &'a mut X,
    pub(crate) weights: &'a X::Weights,
    pub(crate) factors: Option<&'a X::Weights>,
    /// Destination of this executor's gradient, or `None` if none is computed.
    pub(crate) gradient: Option<&'a mut X::Gradient>,
}

/// Kind of work that the executors run next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Score,
    Accumulate,
    Generate,
}

/// Counts of decoding steps, by the way in which they were submitted to the device, and of CUDA graphs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GraphCounts {
    /// Number of steps.
    pub steps: u64,
    /// Number of graphs that were captured.
    pub captured: u64,
    /// Number of steps that were submitted as a graph.
    pub replayed: u64,
    /// Number of steps that were submitted before the previous step's tokens were read.
    pub ahead: u64,
    /// Number of nodes (launches, products, copies and fills) in the largest step.
    pub nodes: usize,
}

/// Function that writes the values of a tensor into the slice.
pub(crate) type FillFn<'a> = dyn FnMut(&mut [f32]) -> Result<(), Error> + 'a;

/// Distributes `work` over executors with relative `speeds`: expensive items first, each to the first to finish it.
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

/// Interface of a device that doesn't depend on the type of its executors.
pub(crate) trait Backend: Send + Sync {
    /// Returns the relative speed of each executor, and so also their number.
    fn executors(&self) -> Vec<usize>;

    /// Returns the number of executors for a generation whose prompts come from a queue. Prompts that arrive while it runs share prefixes only
    /// within their executor's cache.
    fn executors_with_queue(&self) -> usize {
        self.executors().len()
    }

    /// Returns whether passes for scores and gradients may need the memory of the key/value cache.
    fn passes_need_cache(&self) -> bool {
        false
    }

    /// Returns the first error of the device so far. Other operations don't return errors, because a device reports them late.
    fn check(&self) -> Result<(), Error>;

    /// Returns the number of cache pages that take as much memory as a sequence's recurrent states.
    fn state_pages(&self) -> usize;

    /// Returns the number of tokens that each of `executors` executors can cache if the request sets no limit.
    fn cached_tokens(&self, executors: usize, rollout: &Rollout) -> usize;

    /// Returns whether a rollout fits in memory beside the gradient and the buffers of passes.
    fn fits(&self, _rollout: &Rollout) -> bool {
        true
    }

    /// Frees the buffers of passes, and the gradient if nothing has been accumulated, until they are needed again.
    fn free_update(&mut self) {}

    /// Returns whether memory for the gradient is allocated.
    fn has_gradient(&self) -> bool {
        true
    }

    /// Extends the tables of rotary angles to the positions `0..positions`.
    fn reach(&mut self, positions: usize);

    /// Sets whether decoding steps may be submitted as graphs. Devices without graphs ignore it.
    fn set_graphs(&mut self, _: bool) {}

    /// Returns the counts since the last call of [`Backend::set_graphs`].
    fn graph_counts(&self) -> GraphCounts {
        GraphCounts::default()
    }

    /// Sets whether the moments are stored in host memory.
    fn set_optimizer_offload(&mut self, enabled: bool);

    fn write(&mut self, store: Store, span: Span, values: &[f32]);

    /// Reads a tensor. Moments are zero before the first update, and the gradient is zero before anything is accumulated.
    ///
    /// # Panics
    /// If the device has failed, because the values would be wrong.
    fn read(&self, store: Store, span: Span) -> Cow<'_, [f32]>;

    /// Lets `fill` write a tensor in place, or in host memory that is then copied.
    fn fill(&mut self, store: Store, span: Span, fill: &mut FillFn<'_>) -> Result<(), Error>;

    /// Stores a quantized matrix, outside of the weight store.
    fn put_quantized(&mut self, span: Span, matrix: Quantized);

    /// Reads a quantized matrix.
    ///
    /// # Panics
    /// If the matrix doesn't exist or the device has failed.
    fn quantized(&self, span: Span) -> Cow<'_, Quantized>;

    fn forget_moments(&mut self);

    /// Adds LoRA's factors, all 0, and stores the base weights of the adapted matrices if they are to be merged. Resets gradient and moments.
    fn adapt(&mut self, layout: &AdapterLayout);

    /// Removes LoRA's factors, the stored base weights, the gradient and the moments. The weights that passes use don't change.
    fn remove_adapters(&mut self);

    /// Sets the adapted matrices to their base weights, plus the LoRA update if `applied`.
    fn merge(&mut self, layout: &AdapterLayout, applied: bool);

    fn gradient_norm(&self) -> f64;

    fn zero_gradient(&mut self);

    /// Sums the gradient over the executors and returns its norm.
    fn reduce(&mut self) -> f64 {
        self.gradient_norm()
    }

    /// Runs a step of AdamW on the trained parameters, after [`Backend::reduce`], and resets the gradient. `runs` are (offset, length, whether
    /// the weights decay).
    fn adamw(&mut self, runs: &[(usize, usize, bool)], step: &AdamWStep);
}

/// A backend that runs tasks on executors.
pub(crate) trait ExecutorBackend: Backend {
    type Executor: Executor;

    /// Calls `body` once per task, concurrently, on as many executors; a single task gets the whole device. `meanwhile` runs on the calling thread.
    fn run<T: Send>(
        &mut self,
        work: Work,
        tasks: &mut [T],
        body: &(dyn Fn(ExecutorAccess<'_, Self::Executor>, &mut T) + Sync),
        meanwhile: &mut dyn FnMut(),
    );
}
