//! The CPU's memory and executors: two teams of threads with separate gradients, or one team of all threads.
//!
//! With more than two threads, a gradient per thread would take too much memory for the time it saves, so the threads of a team share one.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use rayon::prelude::*;

use super::buffer::Buffer;
use super::executor::CpuExecutor;
use super::lora::add_update;
use super::memory;
use super::packed_weights::PackedWeights;
use super::simd;
use super::team::Team;
use super::weights::Weights;
use crate::adamw::AdamWStep;
use crate::backend::{Backend, ExecutorAccess, ExecutorBackend, FillFn, Store, Work};
use crate::cache::{numbers_per_token, state_pages};
use crate::config::Config;
use crate::error::Error;
use crate::executor::Head;
use crate::layout::{Layout, Span};
use crate::lora::AdapterLayout;
use crate::numbers::{Precision, ProductFormat};
use crate::quantized::Quantized;
use crate::rope::Rope;
use crate::sampling::Rollout;

/// Number of values per block in loops over all parameters.
const BLOCK: usize = 1 << 16;
/// Maximum size of packed weights that are retained during an update; larger ones are freed before it.
const KEPT_PACKED_BYTES: usize = 64 << 20;

pub(crate) fn executors(threads: usize) -> usize {
    threads.min(2)
}

/// Base weights of an adapted matrix.
enum Base {
    /// Upper 16 bits of each f32 value. The lower 16 bits are all zero.
    Half(Vec<u16>),
    Full(Vec<f32>),
}

impl Base {
    fn new(w: &[f32]) -> Base {
        if w.iter().all(|x| x.to_bits() & 0xffff == 0) {
            Base::Half(w.iter().map(|x| (x.to_bits() >> 16) as u16).collect())
        } else {
            Base::Full(w.to_vec())
        }
    }

    fn write(&self, w: &mut [f32]) {
        match self {
            Base::Half(bits) => {
                w.iter_mut().zip(bits).for_each(|(w, &bits)| *w = f32::from_bits(u32::from(bits) << 16));
            }
            Base::Full(values) => w.copy_from_slice(values),
        }
    }
}

/// LoRA's factors, and the base weights of the adapted matrices if they are merged.
struct Adapters {
    values: Weights,
    base: Vec<Base>,
}

/// Weights packed into panels for generation.
struct Packed {
    layout: Layout,
    head: Head,
    made: Option<PackedWeights>,
    /// Whether the panels match the current weights.
    fresh: bool,
}

pub(crate) struct CpuBackend {
    config: Config,
    products: ProductFormat,
    teams: Vec<Team>,
    whole: Team,
    executors: Vec<CpuExecutor>,
    rope: Arc<Rope>,
    weights: Weights,
    adapters: Option<Adapters>,
    /// Gradient of each executor. Empty until needed.
    gradients: Vec<Buffer>,
    /// AdamW's two moments, both empty before the first update.
    moments: [Buffer; 2],
    packed: Packed,
}

impl CpuBackend {
    /// Creates a CPU backend with `threads` threads, weights of 0, and the given number format of products.
    pub(crate) fn new(
        config: &Config,
        layout: &Layout,
        head: Head,
        threads: usize,
        products: ProductFormat,
    ) -> Result<CpuBackend, Error> {
        products.check()?;
        let count = executors(threads);
        let teams: Vec<Team> =
            (0..count).map(|i| Team::new((threads + count - 1 - i) / count)).collect::<Result<_, _>>()?;
        let whole = teams[1..].iter().fold(teams[0].clone(), |all, team| all.and(team));
        let rope = Arc::new(Rope::new(config, 512));
        let executors = teams
            .iter()
            .enumerate()
            .map(|(i, team)| {
                // Only the first executor ever leads all threads.
                let largest = if i == 0 { threads } else { team.size() };
                CpuExecutor::new(team.clone(), largest, products, Arc::clone(&rope))
            })
            .collect();
        Ok(CpuBackend {
            config: config.clone(),
            products,
            whole,
            executors,
            rope,
            weights: Weights::zeros(layout.len),
            adapters: None,
            gradients: teams.iter().map(|_| Buffer::default()).collect(),
            teams,
            moments: Default::default(),
            packed: Packed { layout: layout.clone(), head, made: None, fresh: false },
        })
    }

    fn trained(&self) -> usize {
        self.adapters.as_ref().map_or(self.weights.len(), |adapters| adapters.values.len())
    }

    fn store(&self, store: Store) -> &[f32] {
        match store {
            Store::Weights => &self.weights,
            Store::Factors => &self.adapters.as_ref().expect("an engine with adapters").values,
            Store::FirstMoment => &self.moments[0],
            Store::SecondMoment => &self.moments[1],
            Store::Gradient => unreachable!("the gradient is a sum over executors"),
        }
    }

    fn store_mut(&mut self, store: Store) -> &mut [f32] {
        let trained = self.trained();
        match store {
            Store::Weights => {
                self.packed.fresh = false;
                &mut self.weights
            }
            Store::Factors => &mut self.adapters.as_mut().expect("an engine with adapters").values,
            Store::FirstMoment | Store::SecondMoment => {
                let moment = &mut self.moments[usize::from(store == Store::SecondMoment)];
                moment.reserve(trained);
                moment
            }
            Store::Gradient => unreachable!("the gradient is a sum over executors"),
        }
    }

    fn filled_gradients(&self) -> Vec<&[f32]> {
        self.gradients.iter().filter(|gradient| !gradient.is_empty()).map(|gradient| &gradient[..]).collect()
    }

    /// Takes the packed form of the current weights, and packs them if necessary.
    fn take_packed(&mut self) -> Arc<PackedWeights> {
        let Packed { layout, head, made, fresh } = &mut self.packed;
        let made = match made.take() {
            Some(made) if *fresh => made,
            old => PackedWeights::new(self.products, layout, *head, &self.weights, old, &self.whole),
        };
        *fresh = true;
        Arc::new(made)
    }
}

/// Divides `0..len` into blocks, and calls `body(block, outputs)` on a team, with the block of each output.
fn blocks<T: Send, const N: usize>(
    team: &Team,
    len: usize,
    outputs: [&mut [f32]; N],
    body: impl Fn(Range<usize>, [&mut [f32]; N]) -> T + Sync,
) -> Vec<T> {
    let count = len.div_ceil(BLOCK);
    let parts: Vec<Mutex<Vec<T>>> = (0..team.size()).map(|_| Mutex::default()).collect();
    let outputs = outputs.map(|output| (&mut output[..len], BLOCK));
    team.split_rows(count, len, outputs, |part, blocks, mut outputs| {
        let results = blocks.map(|block| {
            let range = block * BLOCK..((block + 1) * BLOCK).min(len);
            let outputs =
                outputs.each_mut().map(|rest| rest.split_off_mut(..range.len()).expect("the block's values"));
            body(range, outputs)
        });
        *parts[part].lock().expect("no panic") = results.collect();
    });
    parts.into_iter().flat_map(|part| part.into_inner().expect("no panic")).collect()
}

impl Backend for CpuBackend {
    fn executors(&self) -> Vec<usize> {
        self.teams.iter().map(Team::size).collect()
    }

    fn executors_with_queue(&self) -> usize {
        1
    }

    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    fn state_pages(&self) -> usize {
        state_pages(&self.config, Precision::F32)
    }

    fn cached_tokens(&self, executors: usize, _: &Rollout) -> usize {
        memory::cache_bytes(self.weights.len()) / executors / (4 * numbers_per_token(&self.config))
    }

    fn reach(&mut self, positions: usize) {
        if positions > self.rope.positions() {
            self.rope = Arc::new(Rope::new(&self.config, positions.next_power_of_two()));
            for executor in &mut self.executors {
                executor.rope = Arc::clone(&self.rope);
            }
        }
    }

    fn set_optimizer_offload(&mut self, _: bool) {}

    fn write(&mut self, store: Store, span: Span, values: &[f32]) {
        let range = span.offset..span.offset + span.len;
        if store == Store::Gradient {
            let trained = self.trained();
            self.gradients[0].reserve(trained);
            self.gradients[0][range.clone()].copy_from_slice(values);
            let others = self.gradients[1..].iter_mut().filter(|gradient| !gradient.is_empty());
            others.for_each(|gradient| gradient[range.clone()].fill(0.0));
            return;
        }
        self.store_mut(store)[range].copy_from_slice(values);
    }

    fn read(&self, store: Store, span: Span) -> Cow<'_, [f32]> {
        let range = span.offset..span.offset + span.len;
        if store == Store::Gradient {
            let mut sum = vec![0.0; span.len];
            for gradient in self.filled_gradients() {
                simd::add(&gradient[range.clone()], &mut sum);
            }
            return Cow::Owned(sum);
        }
        match self.store(store) {
            [] => Cow::Owned(vec![0.0; span.len]),
            numbers => Cow::Borrowed(&numbers[range]),
        }
    }

    fn fill(&mut self, store: Store, span: Span, fill: &mut FillFn<'_>) -> Result<(), Error> {
        fill(&mut self.store_mut(store)[span.offset..span.offset + span.len])
    }

    fn put_quantized(&mut self, span: Span, matrix: Quantized) {
        self.weights.quantized.put(span, matrix);
    }

    fn quantized(&self, span: Span) -> Cow<'_, Quantized> {
        Cow::Borrowed(self.weights.quantized.at(span))
    }

    fn forget_moments(&mut self) {
        self.moments = Default::default();
    }

    fn adapt(&mut self, layout: &AdapterLayout) {
        let weights = &self.weights;
        let merged = if layout.merged { &layout.adapted[..] } else { &[] };
        let base = self.whole.leader().install(|| {
            merged.par_iter().map(|a| Base::new(&weights[a.weight.offset..][..a.weight.len])).collect()
        });
        self.adapters = Some(Adapters { values: Weights::zeros(layout.len), base });
        self.moments = Default::default();
        self.gradients.fill_with(Buffer::default);
    }

    fn remove_adapters(&mut self) {
        self.adapters = None;
        self.moments = Default::default();
        self.gradients.fill_with(Buffer::default);
    }

    fn merge(&mut self, layout: &AdapterLayout, applied: bool) {
        let adapters = self.adapters.as_ref().expect("an engine with adapters");
        self.packed.fresh = false;
        let mut parts = Vec::with_capacity(adapters.base.len());
        let (mut rest, mut reached) = (&mut self.weights[..], 0);
        for (adapted, base) in layout.adapted.iter().zip(&adapters.base) {
            let (part, others) = rest[adapted.weight.offset - reached..].split_at_mut(adapted.weight.len);
            (rest, reached) = (others, adapted.weight.offset + adapted.weight.len);
            parts.push(Mutex::new((adapted, base, part)));
        }
        let (values, scale) = (&adapters.values, layout.scale);
        self.whole.split(parts.len(), 1, usize::MAX / 2, |_, range| {
            for part in &parts[range] {
                let (adapted, base, w) = &mut *part.lock().expect("no panic");
                base.write(w);
                if !applied {
                    continue;
                }
                let [a, b] = [adapted.a, adapted.b].map(|span| &values[span.offset..][..span.len]);
                add_update(adapted.sizes(), [a, b], scale, w);
            }
        });
    }

    fn gradient_norm(&self) -> f64 {
        let gradients = self.filled_gradients();
        let sums = blocks(&self.whole, self.trained(), [], |block, []| {
            let mut sum = vec![0.0f32; block.len()];
            for gradient in &gradients {
                simd::add(&gradient[block.clone()], &mut sum);
            }
            simd::square_sum(&sum)
        });
        sums.iter().sum::<f64>().sqrt()
    }

    fn zero_gradient(&mut self) {
        for gradient in &mut self.gradients {
            blocks(&self.whole, gradient.len(), [gradient], |_, [gradient]| gradient.fill(0.0));
        }
    }

    fn reduce(&mut self) -> f64 {
        let trained = self.trained();
        self.gradients[0].reserve(trained);
        let sums = match &mut self.gradients[..] {
            [sum, other] if !other.is_empty() => {
                blocks(&self.whole, trained, [sum, other], |_, [sum, other]| {
                    simd::add(other, sum);
                    other.fill(0.0);
                    simd::square_sum(sum)
                })
            }
            gradients => blocks(&self.whole, trained, [&mut gradients[0]], |_, [sum]| simd::square_sum(sum)),
        };
        sums.iter().sum::<f64>().sqrt()
    }

    fn adamw(&mut self, runs: &[(usize, usize, bool)], step: &AdamWStep) {
        let trained = self.trained();
        self.moments.iter_mut().for_each(|moment| moment.reserve(trained));
        self.gradients[0].reserve(trained);
        self.packed.fresh = false;
        let CpuBackend { whole, weights, adapters, gradients, moments: [m, v], .. } = self;
        let values = adapters.as_mut().map_or(weights, |adapters| &mut adapters.values);
        let mut all = [&mut values[..], &mut gradients[0][..], &mut m[..], &mut v[..]];
        for &(offset, len, decays) in runs {
            let step = AdamWStep { decay: if decays { step.decay } else { 1.0 }, ..*step };
            let run = all.each_mut().map(|values| &mut values[offset..offset + len]);
            blocks(whole, len, run, |_, [w, g, m, v]| simd::adamw(w, g, m, v, &step));
        }
    }
}

impl ExecutorBackend for CpuBackend {
    type Executor = CpuExecutor;

    fn run<T: Send>(
        &mut self,
        work: Work,
        tasks: &mut [T],
        body: &(dyn Fn(ExecutorAccess<'_, CpuExecutor>, &mut T) + Sync),
        meanwhile: &mut dyn FnMut(),
    ) {
        assert!(tasks.len() <= self.executors.len(), "{} tasks", tasks.len());
        let trained = self.trained();
        if work == Work::Accumulate {
            if self.packed.made.as_ref().is_some_and(|made| made.bytes() > KEPT_PACKED_BYTES) {
                self.packed.made = None;
            }
            for gradient in &mut self.gradients[..tasks.len()] {
                gradient.reserve(trained);
            }
        }
        let packed = (work == Work::Generate).then(|| self.take_packed());
        for (executor, team) in self.executors.iter_mut().zip(&self.teams) {
            executor.team = if tasks.len() == 1 { self.whole.clone() } else { team.clone() };
            executor.packed.clone_from(&packed);
            executor.products = match self.products {
                ProductFormat::Blas if work != Work::Accumulate => ProductFormat::F32,
                products => products,
            };
        }
        let (weights, factors) = (&self.weights, self.adapters.as_ref().map(|a| &a.values));
        let mut accesses = self.executors.iter_mut().zip(&mut self.gradients).zip(tasks).map(
            |((executor, gradient), task)| {
                let gradient = (work == Work::Accumulate).then_some(&mut gradient[..]);
                (ExecutorAccess { executor, weights, factors, gradient }, task)
            },
        );
        match (accesses.next(), accesses.next()) {
            (Some(first), None) => self.whole.leader().in_place_scope(|scope| {
                scope.spawn(|_| body(first.0, first.1));
                meanwhile();
            }),
            (Some(first), Some(second)) => self.teams[0].leader().in_place_scope(|scope| {
                scope.spawn(|_| body(first.0, first.1));
                self.teams[1].leader().in_place_scope(|scope| {
                    scope.spawn(|_| body(second.0, second.1));
                    meanwhile();
                });
            }),
            _ => meanwhile(),
        }
        for executor in &mut self.executors {
            executor.packed = None;
        }
        if let Some(packed) = packed {
            self.packed.made = Arc::into_inner(packed);
        }
    }
}
