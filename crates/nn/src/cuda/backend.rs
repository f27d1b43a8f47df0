//! The device's memory (parameters, gradient, moments, adapters) and its single executor.

use std::borrow::Cow;
use std::sync::Arc;

use fgrpo_cuda::{Argument, Driver, Memory, Numbers, Product, Shape};
use rayon::prelude::*;

use super::buffer::Buffer;
use super::executor::CudaExecutor;
use super::launches::{args, kernel};
use super::moments::Moments;
use super::stream::{Purpose, Stream};
use super::weights::Weights;
use crate::adamw::AdamWStep;
use crate::backend::{Backend, Lane, NormalFn, Store, Work};
use crate::config::Config;
use crate::cpu::rope::Rope;
use crate::engine::Precision;
use crate::error::Error;
use crate::layout::{Layout, Span};
use crate::lora::AdapterLayout;

/// Number of blocks that sum squares.
const NORM_BLOCKS: usize = 1024;
/// Threads per such block.
const NORM_THREADS: u32 = 256;
/// Numbers that are transferred through host memory at a time.
const STAGED: usize = 1 << 22;
/// The largest head size of the attention kernels.
const LARGEST_HEAD: usize = 256;

/// LoRA's factors, and the base weights of the adapted matrices, one after another.
struct Adapters {
    values: Weights,
    base: Weights,
}

/// A GPU.
pub(crate) struct CudaBackend {
    config: Config,
    stream: Arc<Stream>,
    executor: CudaExecutor,
    /// Number of positions in the table of angles.
    positions: usize,
    precision: Precision,
    weights: Weights,
    adapters: Option<Adapters>,
    /// Empty until needed.
    gradient: Buffer,
    moments: Moments,
    partials: Memory<f64>,
}

/// The table of angles: by position, cosines and then sines.
fn angles(stream: &Stream, config: &Config, positions: usize) -> Option<Arc<Memory<f32>>> {
    let rope = Rope::new(config, positions);
    let rows = (0..positions).flat_map(|position| {
        let (cos, sin) = rope.at(position);
        cos.iter().chain(sin)
    });
    let rows: Vec<f32> = rows.copied().collect();
    let memory = stream.allocate(rows.len(), Purpose::Model)?;
    stream.write(&memory, 0, &rows);
    Some(Arc::new(memory))
}

impl CudaBackend {
    /// A device with weights of 0.
    ///
    /// # Errors
    /// If the model doesn't fit, or its heads are too large for the kernels.
    pub(crate) fn new(
        config: &Config,
        layout: &Layout,
        precision: Precision,
        driver: Arc<dyn Driver>,
    ) -> Result<CudaBackend, Error> {
        if config.head_dim > LARGEST_HEAD {
            return Err(Error::Config {
                place: "configuration".into(),
                field: "head_dim".into(),
                found: config.head_dim.to_string(),
                wanted: format!("at most {LARGEST_HEAD} on a GPU"),
            });
        }
        let stream = Arc::new(Stream::new(driver));
        let positions = 512;
        let table = angles(&stream, config, positions);
        let partials = stream.allocate(NORM_BLOCKS, Purpose::Model);
        let weights = Weights::zeros(&stream, precision, layout.len);
        stream.check()?;
        let (table, partials) = table.zip(partials).expect("memory, or a failure");
        let executor = CudaExecutor::new(Arc::clone(&stream), precision, table);
        Ok(CudaBackend {
            config: config.clone(),
            stream,
            executor,
            positions,
            precision,
            weights,
            adapters: None,
            gradient: Buffer::default(),
            moments: Moments::default(),
            partials,
        })
    }

    /// Number of trained parameters.
    fn trained(&self) -> usize {
        self.adapters.as_ref().map_or(self.weights.len(), |adapters| adapters.values.len())
    }

    /// The parameters of a store: all, or LoRA's factors.
    fn parameters(&self, store: Store) -> &Weights {
        match store {
            Store::Factors => &self.adapters.as_ref().expect("an engine with adapters").values,
            _ => &self.weights,
        }
    }

    /// Allocates a store of zeros if there is none yet.
    fn make(&mut self, store: Store) {
        let trained = self.trained();
        match store {
            Store::Gradient if self.gradient.is_empty() => {
                self.gradient = Buffer::zeros(&self.stream, Precision::F32, trained, Purpose::Model);
            }
            Store::FirstMoment => self.moments.make(&self.stream, 0, trained),
            Store::SecondMoment => self.moments.make(&self.stream, 1, trained),
            Store::Gradient | Store::Weights | Store::Factors => {}
        }
    }

    /// Panics if the device has failed, because the values could end up in a checkpoint.
    fn demand(&self) {
        if let Err(error) = self.stream.check() {
            panic!("{error}");
        }
    }
}

impl Backend for CudaBackend {
    type Executor = CudaExecutor;

    fn executors(&self) -> Vec<usize> {
        vec![1]
    }

    fn run<T: Send>(
        &mut self,
        work: Work,
        tasks: &mut [T],
        body: &(dyn Fn(Lane<'_, CudaExecutor>, &mut T) + Sync),
        meanwhile: &mut dyn FnMut(),
    ) {
        assert!(tasks.len() <= 1, "{} tasks", tasks.len());
        if work == Work::Accumulate {
            self.make(Store::Gradient);
        }
        let Some(task) = tasks.first_mut() else { return meanwhile() };
        let lane = Lane {
            executor: &mut self.executor,
            weights: &self.weights,
            factors: self.adapters.as_ref().map(|adapters| &adapters.values),
            gradient: (work == Work::Accumulate).then_some(&mut self.gradient),
        };
        std::thread::scope(|scope| {
            scope.spawn(|| body(lane, task));
            meanwhile();
        });
    }

    fn check(&self) -> Result<(), Error> {
        self.stream.check()
    }

    fn cache_bytes(&self) -> usize {
        // Half of what is left beside what training takes.
        let trained = self.trained();
        let gradient = if self.gradient.is_empty() { 4 * trained } else { 0 };
        let missing = gradient + self.moments.missing_bytes(trained);
        self.stream.free_bytes().saturating_sub(missing) / 2
    }

    fn reach(&mut self, positions: usize) {
        if positions > self.positions {
            let positions = positions.next_power_of_two();
            if let Some(table) = angles(&self.stream, &self.config, positions) {
                self.positions = positions;
                self.executor.set_angles(table);
            }
        }
    }

    fn set_decode_copies(&mut self, _: bool) {}

    fn set_optimizer_offload(&mut self, wanted: bool) {
        self.moments.set_offload(&self.stream, wanted);
    }

    fn write(&mut self, store: Store, span: Span, values: &[f32]) {
        self.make(store);
        let stream = &self.stream;
        match store {
            Store::Gradient => self.gradient.write(stream, span.offset, values),
            Store::FirstMoment => self.moments.write(stream, 0, span.offset, values),
            Store::SecondMoment => self.moments.write(stream, 1, span.offset, values),
            Store::Weights | Store::Factors => self.parameters(store).write(stream, span.offset, values),
        }
    }

    fn read(&self, store: Store, span: Span) -> Cow<'_, [f32]> {
        let mut values = vec![0.0; span.len];
        let range = span.offset..span.offset + span.len;
        let found = match store {
            Store::FirstMoment => self.moments.read(&self.stream, 0, range),
            Store::SecondMoment => self.moments.read(&self.stream, 1, range),
            _ => {
                match store {
                    // Zeros if there is none yet.
                    Store::Gradient => self.gradient.read(&self.stream, span.offset, &mut values),
                    _ => self.parameters(store).read(&self.stream, span.offset, &mut values),
                }
                Cow::Owned(values)
            }
        };
        self.demand();
        found
    }

    fn fill(
        &mut self,
        store: Store,
        span: Span,
        fill: &mut dyn FnMut(&mut [f32]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut values = vec![0.0; span.len];
        fill(&mut values)?;
        self.write(store, span, &values);
        self.stream.check()
    }

    fn normal(&mut self, span: Span, std: f32, normal: &NormalFn<'_>, first: u64) {
        for start in (0..span.len).step_by(STAGED) {
            let end = span.len.min(start + STAGED);
            let number = |index: usize| (normal(first + index as u64) * f64::from(std)) as f32;
            let values: Vec<f32> = (start..end).into_par_iter().map(number).collect();
            self.weights.write(&self.stream, span.offset + start, &values);
        }
    }

    fn forget_moments(&mut self) {
        self.moments.forget();
    }

    fn adapt(&mut self, layout: &AdapterLayout) {
        let stream = &self.stream;
        let base = Weights::zeros(stream, self.precision, layout.adapted.iter().map(|a| a.weight.len).sum());
        let mut at = 0;
        for adapted in &layout.adapted {
            self.weights.copy(stream, adapted.weight.offset, &base, at, adapted.weight.len);
            at += adapted.weight.len;
        }
        self.adapters = Some(Adapters { values: Weights::zeros(stream, self.precision, layout.len), base });
        self.moments.forget();
        self.gradient = Buffer::default();
    }

    fn merge(&mut self, layout: &AdapterLayout, applied: bool) {
        let Adapters { values, base } = self.adapters.as_ref().expect("an engine with adapters");
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
                    add: true,
                    numbers: match self.precision {
                        Precision::F32 => Numbers::F32,
                        Precision::Bf16 => Numbers::Bf16,
                    },
                });
            }
        }
    }

    fn gradient_norm(&self) -> f64 {
        let len = self.gradient.len();
        if len == 0 {
            return 0.0;
        }
        let blocks = len.div_ceil(4 * NORM_THREADS as usize).min(NORM_BLOCKS);
        self.stream.launch(
            "square_sum",
            Shape::of(blocks, NORM_THREADS, NORM_THREADS as usize * 8),
            args![&self.gradient, &self.partials, len as u64],
        );
        let mut sums = vec![f64::NAN; blocks];
        self.stream.read(&self.partials, 0, &mut sums);
        sums.iter().sum::<f64>().sqrt()
    }

    fn zero_gradient(&mut self) {
        self.stream.zero(self.gradient.at(0), 4 * self.gradient.len());
    }

    fn reduce(&mut self) -> f64 {
        self.gradient_norm()
    }

    fn adamw(&mut self, runs: &[(usize, usize, bool)], step: &AdamWStep) {
        for store in [Store::Gradient, Store::FirstMoment, Store::SecondMoment] {
            self.make(store);
        }
        let trained = self.trained();
        let CudaBackend { stream, precision, weights, adapters, gradient, moments, .. } = self;
        let values = adapters.as_ref().map_or(&*weights, |adapters| &adapters.values);
        let AdamWStep { clip, take1, beta2, take2, eps, decay, rate, root } = *step;
        moments.step(stream, trained, |part, moments| {
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
                arguments.extend(moments.map(|moment| Argument::from(moment.plus(4 * (first - part.start)))));
                arguments.extend([clip, take1, beta2, take2, eps, decay, rate, root].map(Argument::F32));
                arguments.push(((last - first) as u64).into());
                stream.launch(kernel!(*precision, "adamw"), Shape::covering(last - first, 256), &arguments);
            }
        });
    }
}
