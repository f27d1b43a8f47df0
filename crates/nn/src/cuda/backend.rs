//! The GPUs of an engine, each with a replica of the weights and an executor.
//!
//! With several, each replica has the gradient of its own share of a batch. At an update each sums and updates one slice of the parameters, whose
//! moments only it has, and sends it to the others.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use fgrpo_cuda::Driver;
use rayon::prelude::*;

use super::exchange::{others, share_parameters, sum_gradients};
use super::executor::CudaExecutor;
use super::needs;
use super::needs::{ROPES, rope_tables};
use super::replica::Replica;
use super::weights::Weights;
use crate::adamw::AdamWStep;
use crate::backend::{Backend, FillFn, GraphCounts, Lane, NormalFn, Rollout, Store, Work};
use crate::cache::{PAGE, numbers_per_token, state_pages};
use crate::config::Config;
use crate::engine::Precision;
use crate::error::Error;
use crate::layout::{Layout, Span};
use crate::lora::AdapterLayout;
use crate::quantized::Quantized;
use crate::rope::Rope;

/// Numbers that are transferred through host memory at a time.
const STAGED: usize = 1 << 22;
/// The least number of positions in the tables of angles.
pub(crate) const POSITIONS: usize = 512;

/// The GPUs.
pub(crate) struct CudaBackend {
    config: Config,
    /// Number of positions in the tables of angles.
    positions: usize,
    precision: Precision,
    exact: bool,
    /// In the order of the GPUs' numbers.
    replicas: Vec<Replica>,
    /// Whether the gradient may be other than 0.
    accumulated: bool,
}

/// The tables of angles for [`ROPES`]: by position, cosines and then sines.
fn angles(config: &Config, positions: usize) -> [Vec<f32>; 3] {
    let (rope, half) = (Rope::new(config, positions), config.rotary_dim() / 2);
    let (one, zero) = (vec![1.0; half], vec![0.0; half]);
    let mut tables = rope_tables(config).into_iter();
    ROPES.map(|of| {
        let positions = if tables.next() == Some(true) { positions } else { 0 };
        let row = |position| {
            let (cos, sin) = of.map_or((&one[..], &zero[..]), |theta| rope.at(theta, position));
            cos.iter().chain(sin).copied()
        };
        (0..positions).flat_map(row).collect()
    })
}

/// The moment of a store, if it is one.
fn moment_of(store: Store) -> Option<usize> {
    match store {
        Store::FirstMoment => Some(0),
        Store::SecondMoment => Some(1),
        Store::Weights | Store::Factors | Store::Gradient => None,
    }
}

impl CudaBackend {
    /// A device of GPUs, by number and in this order, with weights of 0. `moments`: the number type of AdamW's moments; `exact`: whether decoding and
    /// passes compute in the same bits.
    /// Fails if the model doesn't fit.
    pub(crate) fn new(
        config: &Config,
        layout: &Layout,
        precision: Precision,
        moments: Precision,
        exact: bool,
        gpus: Vec<(usize, Arc<dyn Driver>)>,
    ) -> Result<CudaBackend, Error> {
        let positions = POSITIONS;
        let (rows, count) = (angles(config, positions), gpus.len());
        let replica = |(place, (number, driver))| {
            let named = (count > 1).then_some(number);
            Replica::new(driver, named, (place, count), config, layout, precision, moments, exact, &rows)
        };
        let replicas = gpus.into_iter().enumerate().map(replica).collect::<Result<_, _>>()?;
        Ok(CudaBackend { config: config.clone(), positions, precision, exact, replicas, accumulated: false })
    }

    fn make(&mut self, store: Store) {
        self.replicas.iter_mut().for_each(|replica| replica.make(store));
    }

    /// The parts of trained parameters by the replica that updates them.
    fn owners(&self, range: Range<usize>) -> Vec<(usize, Range<usize>)> {
        let part = |(place, slice): (usize, Range<usize>)| {
            let part = range.start.max(slice.start)..range.end.min(slice.end);
            (!part.is_empty()).then_some((place, part))
        };
        self.replicas.iter().map(Replica::slice).enumerate().filter_map(part).collect()
    }

    /// The sum over all replicas, in the order of [`sum_gradients`].
    fn read_gradient(&self, range: Range<usize>) -> Vec<f32> {
        let mut values = vec![0.0; range.len()];
        for (place, part) in self.owners(range.clone()) {
            let read = |replica: &Replica, to: &mut [f32]| {
                // Zeros if there is none yet.
                replica.gradient.read(&replica.stream, part.start, to);
            };
            let own = &mut values[part.start - range.start..part.end - range.start];
            read(&self.replicas[place], own);
            if self.replicas.len() > 1 {
                let [mut sum, mut one] = [0; 2].map(|_| vec![0.0; part.len()]);
                for other in others(place, self.replicas.len()) {
                    read(&self.replicas[other], &mut one);
                    sum.iter_mut().zip(&one).for_each(|(sum, x)| *sum += x);
                }
                own.iter_mut().zip(&sum).for_each(|(own, sum)| *own += sum);
            }
        }
        values
    }

    /// Whether all replicas have the same parameters, bit for bit.
    pub(crate) fn replicas_are_equal(&self) -> bool {
        let bits = |replica: &Replica| {
            let read = |weights: &Weights| {
                let mut values = vec![0.0; weights.len()];
                weights.read(&replica.stream, 0, &mut values);
                values.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            };
            [replica.parameters(Store::Weights), replica.trained_weights()].map(read)
        };
        let first = bits(&self.replicas[0]);
        self.replicas[1..].iter().all(|replica| bits(replica) == first)
    }

    /// Panics if the device has failed, because the values could end up in a checkpoint.
    fn demand(&self) {
        if let Err(error) = self.check() {
            panic!("{error}");
        }
    }
}

impl Backend for CudaBackend {
    type Executor = CudaExecutor;

    fn executors(&self) -> Vec<usize> {
        vec![1; self.replicas.len()]
    }

    fn passes_need_cache(&self) -> bool {
        true
    }

    fn run<T: Send>(
        &mut self,
        work: Work,
        tasks: &mut [T],
        body: &(dyn Fn(Lane<'_, CudaExecutor>, &mut T) + Sync),
        meanwhile: &mut dyn FnMut(),
    ) {
        assert!(tasks.len() <= self.replicas.len(), "{} tasks", tasks.len());
        if work == Work::Accumulate {
            self.make(Store::Gradient);
            self.accumulated = true;
        }
        std::thread::scope(|scope| {
            for (replica, task) in self.replicas.iter_mut().zip(tasks) {
                let lane = replica.lane(work);
                scope.spawn(move || body(lane, task));
            }
            meanwhile();
        });
    }

    fn check(&self) -> Result<(), Error> {
        self.replicas.iter().try_for_each(|replica| replica.stream.check())
    }

    fn state_pages(&self) -> usize {
        state_pages(&self.config, self.precision)
    }

    fn cached_tokens(&self, executors: usize, rollout: &Rollout) -> usize {
        let room = self.replicas[..executors].iter().map(Replica::room).min().unwrap_or(0);
        PAGE * needs::cached_pages(&self.config, self.precision, self.exact, rollout, room)
    }

    fn fits(&self, executors: usize, rollout: &Rollout) -> bool {
        let Rollout { samples, cached_tokens, .. } = *rollout;
        let rollout = Rollout { samples: samples.min(cached_tokens / PAGE), ..*rollout };
        let pages =
            needs::pages_with_states(&self.config, self.precision, &rollout, cached_tokens.div_ceil(PAGE));
        let cached = needs::bytes_of(self.precision, pages * PAGE * numbers_per_token(&self.config));
        let wanted = cached + needs::rollout_bytes(&self.config, self.precision, self.exact, &rollout);
        self.replicas[..executors].iter().all(|replica| wanted <= replica.free_bytes())
    }

    fn free_update(&mut self) {
        if !self.accumulated {
            self.replicas.iter_mut().for_each(Replica::free_update);
        }
    }

    fn has_gradient(&self) -> bool {
        !self.replicas[0].gradient.is_empty()
    }

    fn reach(&mut self, positions: usize) {
        if positions > self.positions {
            let positions = positions.next_power_of_two();
            let rows = angles(&self.config, positions);
            if self.replicas.iter_mut().all(|replica| replica.set_angles(&rows)) {
                self.positions = positions;
            }
        }
    }

    fn set_decode_copies(&mut self, _: bool) {}

    fn set_graphs(&mut self, wanted: bool) {
        self.replicas.iter_mut().for_each(|replica| replica.set_graphs(wanted));
    }

    fn graph_counts(&self) -> GraphCounts {
        self.replicas.iter().map(Replica::graph_counts).fold(GraphCounts::default(), GraphCounts::plus)
    }

    fn set_optimizer_offload(&mut self, wanted: bool) {
        self.replicas.iter_mut().for_each(|replica| replica.set_offload(wanted));
    }

    fn write(&mut self, store: Store, span: Span, values: &[f32]) {
        self.make(store);
        let Span { offset, len } = span;
        match (store, moment_of(store)) {
            (_, Some(moment)) => {
                for (place, part) in self.owners(offset..offset + len) {
                    let own = &values[part.start - offset..part.end - offset];
                    self.replicas[place].write_moment(moment, part, own);
                }
            }
            (Store::Gradient, _) => {
                self.accumulated = true;
                for (place, Replica { stream, gradient, .. }) in self.replicas.iter().enumerate() {
                    match place {
                        0 => gradient.write(stream, offset, values),
                        _ => stream.zero(gradient.at(offset), gradient.bytes(len)),
                    }
                }
            }
            _ => {
                for replica in &self.replicas {
                    replica.parameters(store).write(&replica.stream, offset, values);
                }
            }
        }
    }

    fn read(&self, store: Store, span: Span) -> Cow<'_, [f32]> {
        let range = span.offset..span.offset + span.len;
        let found = match (store, moment_of(store)) {
            (_, Some(moment)) => {
                let part = |(place, part): (usize, _)| self.replicas[place].read_moment(moment, part);
                let mut parts: Vec<Cow<'_, [f32]>> = self.owners(range).into_iter().map(part).collect();
                match parts.len() {
                    1 => parts.remove(0),
                    _ => Cow::Owned(parts.concat()),
                }
            }
            (Store::Gradient, _) => Cow::Owned(self.read_gradient(range)),
            _ => {
                let mut values = vec![0.0; span.len];
                let first = &self.replicas[0];
                first.parameters(store).read(&first.stream, span.offset, &mut values);
                Cow::Owned(values)
            }
        };
        self.demand();
        found
    }

    fn fill(&mut self, store: Store, span: Span, fill: &mut FillFn<'_>) -> Result<(), Error> {
        let mut values = vec![0.0; span.len];
        fill(&mut values)?;
        self.write(store, span, &values);
        self.check()
    }

    fn put_quantized(&mut self, span: Span, matrix: Quantized) {
        self.replicas.iter_mut().for_each(|replica| replica.put_quantized(span, &matrix));
    }

    fn quantized(&self, span: Span) -> Cow<'_, Quantized> {
        let found = self.replicas[0].quantized(span);
        self.demand();
        Cow::Owned(found.expect("a matrix, or a failure"))
    }

    fn normal(&mut self, span: Span, std: f32, normal: &NormalFn<'_>, first: u64) {
        for start in (0..span.len).step_by(STAGED) {
            let end = span.len.min(start + STAGED);
            let number = |index: usize| (normal(first + index as u64) * f64::from(std)) as f32;
            let values: Vec<f32> = (start..end).into_par_iter().map(number).collect();
            self.write(Store::Weights, Span { offset: span.offset + start, len: values.len() }, &values);
        }
    }

    fn forget_moments(&mut self) {
        self.replicas.iter_mut().for_each(Replica::forget_moments);
    }

    fn adapt(&mut self, layout: &AdapterLayout) {
        self.accumulated = false;
        self.replicas.iter_mut().for_each(|replica| replica.adapt(layout));
    }

    fn remove_adapters(&mut self) {
        self.accumulated = false;
        self.replicas.iter_mut().for_each(Replica::remove_adapters);
    }

    fn merge(&mut self, layout: &AdapterLayout, applied: bool) {
        self.replicas.iter().for_each(|replica| replica.merge(layout, applied));
    }

    fn gradient_norm(&self) -> f64 {
        if self.replicas[0].gradient.is_empty() {
            return 0.0;
        }
        sum_gradients(&self.replicas);
        let blocks: Vec<usize> = self.replicas.iter().map(Replica::square).collect();
        let sums = self.replicas.iter().zip(blocks).flat_map(|(replica, blocks)| replica.squares(blocks));
        sums.sum::<f64>().sqrt()
    }

    fn zero_gradient(&mut self) {
        self.replicas.iter().for_each(Replica::zero_gradient);
        self.accumulated = false;
    }

    fn reduce(&mut self) -> f64 {
        self.gradient_norm()
    }

    fn adamw(&mut self, runs: &[(usize, usize, bool)], step: &AdamWStep) {
        for store in [Store::Gradient, Store::FirstMoment, Store::SecondMoment] {
            self.make(store);
        }
        self.replicas.iter_mut().for_each(|replica| replica.adamw(runs, step));
        self.accumulated = false;
        share_parameters(&self.replicas);
    }
}
