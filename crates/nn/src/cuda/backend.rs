//! The GPU backend: the parameters in GPU memory, their gradient and moments, and the executor.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use fgrpo_cuda::{Command, Driver, Memory, Product, Shape, Values, kernels};

use super::buffer::Buffer;
use super::executor::{CudaExecutor, numbers};
use super::graphs::{self, Graphs};
use super::moments::Moments;
use super::needs::{self, ROPES, rope_tables};
use super::stream::{Purpose, Stream};
use super::weights::Weights;
use crate::adamw::AdamWStep;
use crate::backend::{Backend, ExecutorAccess, ExecutorBackend, FillFn, GraphCounts, Store, Work};
use crate::cache::{PAGE, numbers_per_token, state_pages};
use crate::config::Config;
use crate::decoder::Decoder;
use crate::error::Error;
use crate::layout::Span;
use crate::lora::AdapterLayout;
use crate::numbers::Precision;
use crate::quantized::Quantized;
use crate::rope::Rope;
use crate::sampling::Rollout;

/// Minimum number of positions in the tables of rotary angles.
pub(crate) const POSITIONS: usize = 512;
/// Maximum number of blocks that sum squares.
pub(crate) const NORM_BLOCKS: usize = 1024;
/// Threads per block that sums squares.
const NORM_THREADS: u32 = 256;

/// LoRA's factors, and the concatenated base weights of the adapted matrices if they are merged.
struct Adapters {
    values: Weights,
    base: Option<Weights>,
}

pub(crate) struct CudaBackend {
    decoder: Decoder,
    /// Number of positions in the tables of rotary angles.
    positions: usize,
    precision: Precision,
    exact: bool,
    stream: Arc<Stream>,
    executor: CudaExecutor,
    weights: Weights,
    /// Memory of quantized matrices, and of the largest dequantized matrix.
    quantized_bytes: u64,
    adapters: Option<Adapters>,
    /// Gradient of the trained parameters. Empty until needed.
    gradient: Buffer,
    /// Whether the gradient may be nonzero.
    accumulated: bool,
    moments: Moments,
    partials: Memory<f64>,
}

/// Returns the tables of rotary angles for [`ROPES`]: for each position cosines, then sines.
fn angles(config: &Config, positions: usize) -> [Vec<f32>; 3] {
    let (rope, half) = (Rope::new(config, positions), config.rotary_dim() / 2);
    let (one, zero) = (vec![1.0; half], vec![0.0; half]);
    let mut tables = rope_tables(config).into_iter();
    ROPES.map(|theta| {
        let positions = if tables.next() == Some(true) { positions } else { 0 };
        let row = |position| {
            let (cos, sin) = theta.map_or((&one[..], &zero[..]), |theta| rope.at(theta, position));
            cos.iter().chain(sin).copied()
        };
        (0..positions).flat_map(row).collect()
    })
}

impl CudaBackend {
    /// Creates a backend with weights of 0, and moments of type `moments`. `exact`: decoding equals passes bit for bit.
    /// Returns an error if the model doesn't fit in memory.
    pub(crate) fn new(
        decoder: &Decoder,
        precision: Precision,
        moments: Precision,
        exact: bool,
        driver: Arc<dyn Driver>,
    ) -> Result<CudaBackend, Error> {
        let Decoder { config, layout, .. } = decoder;
        let graphs = Graphs::new(graphs::enabled()?);
        let (positions, stream) = (POSITIONS, Arc::new(Stream::new(driver)));
        let rows = angles(config, positions);
        let executor = CudaExecutor::new(Arc::clone(&stream), config, precision, exact, &rows, graphs);
        let partials = stream.allocate(NORM_BLOCKS, Purpose::Model);
        let weights = match layout.base {
            None => Weights::zeros(&stream, precision, layout.len),
            // Only factors are trained.
            Some(_) => Weights::frozen(&stream, precision, layout.len),
        };
        stream.check()?;
        Ok(CudaBackend {
            decoder: decoder.clone(),
            positions,
            precision,
            exact,
            stream,
            executor,
            weights,
            quantized_bytes: needs::quantized_bytes(layout, precision),
            adapters: None,
            gradient: Buffer::default(),
            accumulated: false,
            moments: Moments::new(moments),
            partials: partials.expect("allocated, or the check above failed"),
        })
    }

    /// Returns the trained parameters: LoRA's factors if there are any, otherwise all weights.
    fn trained(&self) -> &Weights {
        self.adapters.as_ref().map_or(&self.weights, |adapters| &adapters.values)
    }

    fn parameters(&self, store: Store) -> &Weights {
        match store {
            Store::Factors => &self.adapters.as_ref().expect("an engine with adapters").values,
            _ => &self.weights,
        }
    }

    /// Allocates a store of zeros, unless it exists.
    fn make(&mut self, store: Store) {
        let trained = self.trained().len();
        match store {
            Store::Gradient if self.gradient.is_empty() => {
                self.gradient = Buffer::zeros(&self.stream, Precision::F32, trained, Purpose::Model);
            }
            Store::FirstMoment => self.moments.make(&self.stream, 0, trained),
            Store::SecondMoment => self.moments.make(&self.stream, 1, trained),
            _ => {}
        }
    }

    /// Drops gradient and moments, because other parameters are trained from now on.
    fn forget_update(&mut self) {
        self.moments.forget();
        self.gradient = Buffer::default();
        self.accumulated = false;
    }

    /// Returns the bytes available to a rollout if the gradient and the buffers of passes are freed. It doesn't depend
    /// on temporary allocations, so a resumed run has the same limit on its cache.
    fn room(&self) -> u64 {
        let Some(memory) = self.stream.memory() else { return 0 };
        let factors = self
            .adapters
            .as_ref()
            .map_or(0, |adapters| adapters.values.bytes() + adapters.base.as_ref().map_or(0, Weights::bytes));
        let weights = self.weights.bytes() + self.quantized_bytes as usize;
        let used = weights
            + factors
            + 4 * self.executor.tables_len()
            + self.moments.bytes_on_device(self.trained().len())
            + 8 * NORM_BLOCKS;
        let by_others = memory.total.saturating_sub(memory.free + memory.allocated);
        let reserved = needs::reserved(memory.total as u64, by_others as u64);
        (memory.total as u64).saturating_sub(reserved + used as u64)
    }

    /// Panics if the device has failed, because wrong values could end up in a checkpoint.
    fn assert_working(&self) {
        if let Err(error) = self.check() {
            panic!("{error}");
        }
    }
}

impl Backend for CudaBackend {
    fn executors(&self) -> Vec<usize> {
        vec![1]
    }

    fn passes_need_cache(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), Error> {
        self.stream.check()
    }

    fn state_pages(&self) -> usize {
        state_pages(&self.decoder.config, self.precision)
    }

    fn cached_tokens(&self, _: usize, rollout: &Rollout) -> usize {
        PAGE * needs::cached_pages(&self.decoder, self.precision, self.exact, rollout, self.room())
    }

    fn fits(&self, rollout: &Rollout) -> bool {
        let Rollout { samples, cached_tokens, .. } = *rollout;
        let rollout = Rollout { samples: samples.min(cached_tokens / PAGE), ..*rollout };
        let pages = needs::pages_with_states(
            &self.decoder.config,
            self.precision,
            &rollout,
            cached_tokens.div_ceil(PAGE),
        );
        let cached = needs::bytes_of(self.precision, pages * PAGE * numbers_per_token(&self.decoder.config));
        let needed = cached + needs::rollout_bytes(&self.decoder, self.precision, self.exact, &rollout);
        // Leave a little for the driver and its libraries.
        let free = |memory: fgrpo_cuda::DeviceMemory| memory.free.saturating_sub(memory.total / 64) as u64;
        needed <= self.stream.memory().map_or(0, free)
    }

    fn free_update(&mut self) {
        if !self.accumulated {
            self.gradient = Buffer::default();
            self.executor.free_buffers();
        }
    }

    fn has_gradient(&self) -> bool {
        !self.gradient.is_empty()
    }

    fn reach(&mut self, positions: usize) {
        if positions > self.positions {
            let positions = positions.next_power_of_two();
            self.executor.set_angles(&angles(&self.decoder.config, positions));
            if self.check().is_ok() {
                self.positions = positions;
            }
        }
    }

    fn set_graphs(&mut self, enabled: bool) {
        self.executor.graphs.set(enabled);
    }

    fn graph_counts(&self) -> GraphCounts {
        self.executor.graphs.counts
    }

    fn set_optimizer_offload(&mut self, enabled: bool) {
        self.moments.set_offload(&self.stream, enabled);
    }

    fn write(&mut self, store: Store, span: Span, values: &[f32]) {
        self.make(store);
        match store {
            Store::Weights | Store::Factors => {
                self.parameters(store).write(&self.stream, span.offset, values);
            }
            Store::Gradient => {
                self.accumulated = true;
                self.gradient.write(&self.stream, span.offset, values);
            }
            Store::FirstMoment => self.moments.write(&self.stream, 0, span.offset, values),
            Store::SecondMoment => self.moments.write(&self.stream, 1, span.offset, values),
        }
    }

    fn read(&self, store: Store, span: Span) -> Cow<'_, [f32]> {
        let (stream, all) = (&*self.stream, span.offset..span.offset + span.len);
        let mut values = vec![0.0; span.len];
        match store {
            Store::FirstMoment => values = self.moments.read(stream, 0, all),
            Store::SecondMoment => values = self.moments.read(stream, 1, all),
            // Zeros if nothing has been accumulated.
            Store::Gradient => self.gradient.read(stream, span.offset, &mut values),
            Store::Weights | Store::Factors => self.parameters(store).read(stream, span.offset, &mut values),
        }
        self.assert_working();
        Cow::Owned(values)
    }

    fn fill(&mut self, store: Store, span: Span, fill: &mut FillFn<'_>) -> Result<(), Error> {
        let mut values = vec![0.0; span.len];
        fill(&mut values)?;
        self.write(store, span, &values);
        self.check()
    }

    fn put_quantized(&mut self, span: Span, matrix: Quantized) {
        self.weights.quantized.put(&self.stream, span, &matrix);
    }

    fn quantized(&self, span: Span) -> Cow<'_, Quantized> {
        let matrix = self.weights.quantized.read(&self.stream, span);
        self.assert_working();
        Cow::Owned(matrix.expect("stored, or the device has failed"))
    }

    fn forget_moments(&mut self) {
        self.moments.forget();
    }

    fn adapt(&mut self, layout: &AdapterLayout) {
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
        self.forget_update();
    }

    fn remove_adapters(&mut self) {
        self.adapters = None;
        self.forget_update();
    }

    fn merge(&mut self, layout: &AdapterLayout, applied: bool) {
        let Adapters { values, base } = self.adapters.as_ref().expect("an engine with adapters");
        let base = base.as_ref().expect("merged adapters");
        let mut at = 0;
        for adapted in &layout.adapted {
            let Span { offset, len } = adapted.weight;
            base.copy(&self.stream, at, &self.weights, offset, len);
            at += len;
            if applied {
                // The sum is rounded to the network's precision; base and factors are exact.
                self.weights.forget_rest(&self.stream, offset, len);
                let [a, b] = [(adapted.a, adapted.inputs), (adapted.b, adapted.rank)]
                    .map(|(span, stride)| values.rows(span.offset, stride));
                let to = self.weights.rows(offset, adapted.inputs);
                let product = Product::new(adapted.sizes(), b, a, to, numbers(self.precision));
                self.stream.submit_or_record(Command::Product(Product {
                    alpha: layout.scale,
                    onto: Some(to.at),
                    ..product
                }));
            }
        }
    }

    fn gradient_norm(&self) -> f64 {
        let len = self.gradient.len();
        if len == 0 {
            return 0.0;
        }
        let blocks = len.div_ceil(4 * NORM_THREADS as usize).min(NORM_BLOCKS);
        let (x, partial, count) = (self.gradient.full(0), self.partials.pointer(0), len as u64);
        let shape = Shape::of(blocks, NORM_THREADS, NORM_THREADS as usize * 8);
        self.stream.launch(shape, kernels::SquareSum { x, partial, count });
        let mut sums = vec![f64::NAN; blocks];
        self.stream.read(&self.partials, 0, &mut sums);
        sums.into_iter().sum::<f64>().sqrt()
    }

    fn zero_gradient(&mut self) {
        self.stream.zero(self.gradient.at(0), self.gradient.len());
        self.accumulated = false;
    }

    fn adamw(&mut self, runs: &[(usize, usize, bool)], step: &AdamWStep) {
        for store in [Store::Gradient, Store::FirstMoment, Store::SecondMoment] {
            self.make(store);
        }
        self.accumulated = false;
        let CudaBackend { stream, weights, adapters, gradient, moments, .. } = self;
        let values = adapters.as_ref().map_or(&*weights, |adapters| &adapters.values);
        let AdamWStep { number, clip, take1, beta2, take2, eps, decay, rate, root } = *step;
        moments.step(stream, values.len(), |part: Range<usize>, moments| {
            for &(offset, len, decays) in runs {
                let (first, last) = (offset.max(part.start), (offset + len).min(part.end));
                if first >= last {
                    continue;
                }
                let decay = if decays { decay } else { 1.0 };
                let (weight, halves, gradient) =
                    (values.at(first), values.halves(first), gradient.full(first));
                let moments = moments.map(|moment| moment.plus(first - part.start));
                let (shape, count) = (Shape::covering(last - first, 256), (last - first) as u64);
                // Seeds of the stochastic rounding.
                let (step, first) = (number, first as u64);
                macro_rules! launch {
                    ($kernel:ident, $($field:ident),+) => {
                        stream.launch(shape, kernels::$kernel {
                            $($field,)+ gradient, clip, take1, beta2, take2, eps, decay, rate, root, count,
                        })
                    };
                }
                match (weight, halves, moments) {
                    (Values::F32(w), None, [Values::F32(m), Values::F32(v)]) => launch!(AdamwF32, w, m, v),
                    (_, Some((high, low)), [Values::F32(m), Values::F32(v)]) => {
                        launch!(AdamwBf16, high, low, m, v);
                    }
                    (Values::F32(w), None, [Values::Bf16(m), Values::Bf16(v)]) => {
                        launch!(AdamwRoundedF32, w, m, v, step, first);
                    }
                    (_, Some((high, low)), [Values::Bf16(m), Values::Bf16(v)]) => {
                        launch!(AdamwRoundedBf16, high, low, m, v, step, first);
                    }
                    other => unreachable!("number types {other:?}"),
                }
            }
        });
    }
}

impl ExecutorBackend for CudaBackend {
    type Executor = CudaExecutor;

    fn run<T: Send>(
        &mut self,
        work: Work,
        tasks: &mut [T],
        body: &(dyn Fn(ExecutorAccess<'_, CudaExecutor>, &mut T) + Sync),
        meanwhile: &mut dyn FnMut(),
    ) {
        assert!(tasks.len() <= 1, "{} tasks", tasks.len());
        if work == Work::Accumulate {
            self.make(Store::Gradient);
            self.accumulated = true;
        }
        let access = ExecutorAccess {
            executor: &mut self.executor,
            weights: &self.weights,
            factors: self.adapters.as_ref().map(|adapters| &adapters.values),
            gradient: (work == Work::Accumulate).then_some(&mut self.gradient),
        };
        std::thread::scope(|scope| {
            if let Some(task) = tasks.first_mut() {
                scope.spawn(move || body(access, task));
            }
            meanwhile();
        });
    }
}
