//! Gates, and recurrent mixers with their states.

use super::super::needs::mixer_heads;
use super::{
    Buffer, Cache, CudaExecutor, Decoding, FULL, Lists, Pointer, Purpose, Shape, THREADS, Values, Weights,
    kernels, warp_shape,
};
use crate::config::GatedDeltaNet;
use crate::executor::{Gate, HeadRows, Mixer, MixerOps, Subset};
use crate::layout::Span;
use crate::segments::STRETCH;

/// Bytes of shared memory of a delta rule block: eight queries and keys.
const SHARED: usize = 4 * 2 * 8 * 128;
/// Bytes of shared memory of a block of the backward pass: five times the rows of a stretch, two square matrices of a stretch, three values per row,
/// and one per warp.
const SHARED_BACKWARD: usize = 4 * (5 * STRETCH * 132 + 2 * STRETCH * (STRETCH + 1) + 3 * STRETCH + 8);
/// Number of value columns per block of the delta rule.
const COLUMNS: usize = 32;

/// Scratch memory of mixers.
#[derive(Default)]
pub(super) struct MixerScratch {
    /// For each row, the write strength of each head, then the logarithm of the decay of each head's state.
    gates: Buffer,
    dgates: Buffer,
    /// For each row, the factors (inverse lengths) that normalise each head's query and key.
    lengths: Buffer,
    /// The derivative of `mixed`.
    derivative: Buffer,
    /// Recurrent states after the runs of rows that other runs continue, or after every stretch of rows.
    states: Buffer,
    /// Derivatives with respect to the recurrent states before each run, in two copies, one of which is transposed.
    dstates: Buffer,
    /// The correction that each row writes to the state.
    errors: Buffer,
}

fn is_silu(kind: Gate) -> usize {
    usize::from(kind == Gate::Silu)
}

/// Returns the number of channels of the convolution, its kernel size, and the width of an input row.
fn widths(sizes: GatedDeltaNet) -> [usize; 3] {
    [sizes.channels(), sizes.linear_conv_kernel_dim, sizes.input_width()]
}

/// Returns the launch shape with one warp per row and query or key head, and one warp per 32 gates of a row.
fn by_unit(sizes: GatedDeltaNet, rows: usize) -> Shape {
    warp_shape(rows * (2 * sizes.linear_num_key_heads + sizes.linear_num_value_heads.div_ceil(32)))
}

/// Returns the parameters of the gates: `A_log` and `dt_bias`.
fn gate_parameters(mixer: &Mixer<'_, Weights, Lists>) -> [Values; 2] {
    [mixer.layout.a_log, mixer.layout.dt_bias].map(|span| mixer.weights.at(span.offset))
}

/// Returns the arguments of the delta rule's kernel for all heads, without states, a cache and errors.
fn delta_rule(
    sizes: GatedDeltaNet,
    mixed: &Buffer,
    gates: &Buffer,
    runs: Pointer<u32>,
    out: Values,
) -> kernels::DeltaRule {
    kernels::DeltaRule {
        mixed: mixed.at(0),
        gates: gates.full(0),
        groups: Pointer::NULL,
        runs,
        places: Pointer::NULL,
        states: Pointer::NULL,
        slot: 0,
        cache: Pointer::NULL,
        node: 0,
        out,
        errors: Pointer::NULL,
        every: 0,
        heads: sizes.linear_num_value_heads,
        key_heads: sizes.linear_num_key_heads,
        key_size: sizes.linear_key_head_dim,
        value_size: sizes.linear_value_head_dim,
        first: 0,
        step: 1,
    }
}

/// Returns the indices of the predicting rows, or null if all rows predict.
fn predicting(lists: &Lists, rows: Subset) -> Pointer<u32> {
    if rows == Subset::All { Pointer::NULL } else { lists.words.at(lists.paths.predicting, 0) }
}

/// Returns the launch shape with one block per run, head, and group of value columns.
fn delta_shape(runs: usize, heads: usize, values: usize) -> Shape {
    let grid = [runs as u32, heads as u32, values.div_ceil(COLUMNS) as u32];
    Shape { grid, threads: 4 * COLUMNS as u32, shared: SHARED as u32 }
}

impl CudaExecutor {
    fn part_heads(
        &self,
        heads: HeadRows,
        stride: usize,
        x: &Buffer,
        first: &Buffer,
        second: &Buffer,
        join: bool,
    ) {
        let HeadRows { rows, count: heads, size, .. } = heads;
        let (x, first, second, join) = (x.at(0), first.at(0), second.at(0), usize::from(join));
        let kernel =
            kernels::SplitHeads { x, first, second, heads, size, stride, join, count: rows * stride };
        self.stream.launch(Shape::covering(rows * stride, THREADS), kernel);
    }

    /// Normalises queries and keys in place, and computes the gates.
    fn prepare(&mut self, mixer: &Mixer<'_, Weights, Lists>, rows: usize, x: &Buffer, mixed: &Buffer) {
        let sizes = mixer.layout.sizes;
        let (heads, keys) = (sizes.linear_num_value_heads, sizes.linear_num_key_heads);
        let MixerScratch { gates, lengths, .. } = &mut self.mixer;
        gates.reserve(&self.stream, FULL, rows * 2 * heads, Purpose::Pass);
        lengths.reserve(&self.stream, FULL, rows * 2 * keys, Purpose::Pass);
        let [a_log, dt_bias] = gate_parameters(mixer);
        let kernel = kernels::MixerPrepare {
            x: x.at(0),
            a_log,
            dt_bias,
            mixed: mixed.at(0),
            lengths: lengths.full(0),
            gates: gates.full(0),
            heads,
            key_heads: keys,
            key_size: sizes.linear_key_head_dim,
            channels: sizes.channels(),
            rows,
        };
        self.stream.launch(by_unit(sizes, rows), kernel);
    }
}

impl MixerOps for CudaExecutor {
    fn split_heads(&mut self, heads: HeadRows, x: &Buffer, first: &mut Buffer, second: &mut Buffer) {
        self.part_heads(heads, heads.stride, x, first, second, false);
    }

    fn join_heads(&mut self, heads: HeadRows, first: &Buffer, second: &Buffer, x: &mut Buffer) {
        self.part_heads(heads, 2 * heads.count * heads.size, x, first, second, true);
    }

    fn gate(&mut self, kind: Gate, len: usize, gate: &Buffer, x: &Buffer, y: &mut Buffer) {
        let (gates, x, y, silu) = (gate.at(0), x.at(0), y.at(0), is_silu(kind));
        let kernel = kernels::Gate { gates, x, y, silu, count: len };
        self.stream.launch(Shape::covering(len, THREADS), kernel);
    }

    fn gate_backward(
        &mut self,
        kind: Gate,
        len: usize,
        gate: &mut Buffer,
        x: &Buffer,
        dy: &mut Buffer,
        y: &mut Buffer,
    ) {
        let (gates, x, dy, y, silu) = (gate.at(0), x.at(0), dy.at(0), y.at(0), is_silu(kind));
        let kernel = kernels::GateBackward { gates, x, dy, y, silu, count: len };
        self.stream.launch(Shape::covering(len, THREADS), kernel);
    }

    fn convolve(
        &mut self,
        mixer: Mixer<'_, Weights, Lists>,
        cache: Option<&mut Cache>,
        x: &Buffer,
        y: &mut Buffer,
    ) {
        let lists = mixer.lists;
        let sizes = mixer.layout.sizes;
        let (filter, previous) =
            (mixer.weights.at(mixer.layout.filter.offset), lists.words.at(lists.paths.previous, 0));
        let count = lists.tokens.len * sizes.channels();
        let [channels, taps, stride] = widths(sizes);
        let (x, y) = (x.at(0), y.at(0));
        let kernel = kernels::Convolve { filter, x, previous, y, channels, taps, stride, count };
        self.stream.launch(Shape::covering(count, THREADS), kernel);
        let Some(cache) = cache else { return };
        let (count, ends) = (lists.paths.ends.len / 2 * channels, lists.words.at(lists.paths.ends, 0));
        let (states, state) = (cache.states[mixer.index].full(0), sizes.state() as u64);
        let kernel =
            kernels::ConvolveKeep { x, previous, ends, states, channels, taps, stride, state, count };
        self.stream.launch(Shape::covering(count, THREADS), kernel);
    }

    fn convolve_backward(
        &mut self,
        mixer: Mixer<'_, Weights, Lists>,
        gradient: Option<&mut Buffer>,
        x: &Buffer,
        dy: &mut Buffer,
        dx: &mut Buffer,
    ) {
        let lists = mixer.lists;
        let (sizes, rows) = (mixer.layout.sizes, lists.tokens.len);
        let filter = mixer.weights.at(mixer.layout.filter.offset);
        let [previous, first, later] = [lists.paths.previous, lists.paths.later_first, lists.paths.later]
            .map(|list| lists.words.at(list, 0));
        let count = rows * sizes.channels();
        let shape = Shape::covering(count, THREADS);
        let [channels, taps, stride] = widths(sizes);
        let (x, dy, dx) = (x.at(0), dy.at(0), dx.at(0));
        let kernel = kernels::ConvolveSiluBackward { filter, x, previous, dy, channels, taps, stride, count };
        self.stream.launch(shape, kernel);
        let kernel =
            kernels::ConvolveBackward { filter, dy, first, later, dx, channels, taps, stride, count };
        self.stream.launch(shape, kernel);
        if let Some(gradient) = gradient {
            let Span { offset, len } = mixer.layout.filter;
            self.sum_columns([rows, len], gradient.full(offset), |partial, rows_per_block| {
                kernels::ConvolveWeight {
                    x,
                    previous,
                    dy,
                    partial,
                    channels,
                    taps,
                    stride,
                    rows,
                    rows_per_block,
                }
            });
        }
    }

    fn delta_rule(
        &mut self,
        mixer: Mixer<'_, Weights, Lists>,
        cache: Option<&mut Cache>,
        x: &Buffer,
        mixed: &mut Buffer,
        out: &mut Buffer,
    ) {
        let (lists, rows) = (mixer.lists, mixer.rows);
        self.prepare(&mixer, lists.tokens.len, x, mixed);
        let (sizes, paths) = (mixer.layout.sizes, &lists.paths);
        let (all, numbers) = (sizes.linear_num_value_heads, sizes.head_state());
        let at_once = mixer_heads(all, paths.slots[0] * numbers);
        let MixerScratch { gates, states, .. } = &mut self.mixer;
        states.reserve(&self.stream, FULL, paths.slots[0] * at_once * numbers, Purpose::Pass);
        let places = predicting(lists, rows);
        let (states, cache) =
            (states.full(0), cache.map_or(Pointer::NULL, |cache| cache.states[mixer.index].full(0)));
        for first in (0..all).step_by(at_once) {
            let count = at_once.min(all - first);
            let slot = (count * numbers) as u64;
            for wave in &paths.waves {
                let runs = lists.words.at(paths.runs[0], 5 * wave.start);
                let node = sizes.state() as u64;
                let base = delta_rule(sizes, mixed, gates, runs, out.at(0));
                let kernel = kernels::DeltaRule { places, states, slot, cache, node, first, ..base };
                let shape = delta_shape(wave.len(), count, sizes.linear_value_head_dim);
                self.stream.launch(shape, kernel);
            }
        }
    }

    fn delta_rule_backward(
        &mut self,
        mixer: Mixer<'_, Weights, Lists>,
        gradient: Option<&mut Buffer>,
        x: &Buffer,
        dout: &Buffer,
        mixed: &mut Buffer,
        dx: &mut Buffer,
    ) {
        let (lists, rows) = (mixer.lists, mixer.rows);
        let (sizes, count, paths) = (mixer.layout.sizes, lists.tokens.len, &lists.paths);
        self.prepare(&mixer, count, x, mixed);
        let GatedDeltaNet {
            linear_num_value_heads: all,
            linear_num_key_heads: keys,
            linear_value_head_dim: values,
            ..
        } = sizes;
        let (numbers, channels, group) = (sizes.head_state(), sizes.channels(), all / keys);
        let runs = paths.waves.last().map_or(0, |wave| wave.end);
        let at_once = mixer_heads(keys, numbers * (paths.slots[1] + 2 * runs) + count * values);
        let (stream, full, pass) = (&self.stream, FULL, Purpose::Pass);
        let MixerScratch { gates, dgates, lengths, derivative, states, dstates, errors } = &mut self.mixer;
        dgates.reserve(stream, full, 2 * count * all, pass);
        self.shares.reserve(stream, full, 2 * count * all, pass);
        derivative.reserve(stream, self.precision, count * channels, pass);
        states.reserve(stream, full, paths.slots[1] * at_once * numbers, pass);
        dstates.reserve(stream, full, 2 * runs * at_once * numbers, pass);
        errors.reserve(stream, full, count * at_once * values, pass);
        let (dgates, lengths, dmixed) = (dgates.full(0), lengths.full(0), derivative.at(0));
        let (states, dstates, errors) = (states.full(0), dstates.full(0), errors.full(0));
        let (runs, none) = (|run: usize| lists.words.at(paths.runs[1], 5 * run), Values::F32(Pointer::NULL));
        // Value heads that share a query and a key add to their derivatives, one after another.
        for member in 0..group {
            for first in (0..keys).step_by(at_once) {
                let n = at_once.min(keys - first);
                let (slot, first, step) = ((n * numbers) as u64, first * group + member, group);
                for wave in &paths.waves {
                    let base = delta_rule(sizes, mixed, gates, runs(wave.start), none);
                    let every = STRETCH;
                    let kernel = kernels::DeltaRule { states, slot, errors, every, first, step, ..base };
                    stream.launch(delta_shape(wave.len(), n, values), kernel);
                }
                for wave in paths.waves.iter().rev() {
                    let kernel = kernels::DeltaRuleBackward {
                        mixed: mixed.at(0),
                        gates: gates.full(0),
                        runs: runs(0),
                        children: lists.words.at(paths.children, 0),
                        places: predicting(lists, rows),
                        states,
                        slot,
                        dstates,
                        errors,
                        dout: dout.at(0),
                        dmixed,
                        dgates,
                        run_index: wave.start,
                        add: usize::from(member > 0),
                        heads: all,
                        key_heads: keys,
                        key_size: sizes.linear_key_head_dim,
                        value_size: values,
                        first,
                        step,
                    };
                    let grid = [wave.len() as u32, n as u32, 1];
                    stream.launch(Shape { grid, threads: 256, shared: SHARED_BACKWARD as u32 }, kernel);
                }
            }
        }
        let [a_log, dt_bias] = gate_parameters(&mixer);
        let kernel = kernels::MixerPrepareBackward {
            x: x.at(0),
            a_log,
            dt_bias,
            mixed: mixed.at(0),
            lengths,
            dmixed,
            dgates,
            shares: self.shares.full(0),
            dx: dx.at(0),
            heads: all,
            key_heads: keys,
            key_size: sizes.linear_key_head_dim,
            channels,
            rows: count,
        };
        stream.launch(by_unit(sizes, count), kernel);
        std::mem::swap(mixed, derivative);
        if let Some(gradient) = gradient {
            for (index, span) in [mixer.layout.a_log, mixer.layout.dt_bias].into_iter().enumerate() {
                let shares = self.shares.at(index * count * all);
                self.add_columns([count, all], shares, gradient.full(span.offset));
            }
        }
    }

    fn step_mixer(
        &mut self,
        mixer: Mixer<'_, Weights, Lists>,
        decoding: &Decoding,
        cache: &mut Cache,
        x: &Buffer,
        mixed: &mut Buffer,
        out: &mut Buffer,
    ) {
        let (sizes, lists, rows) = (mixer.layout.sizes, &decoding.lists, decoding.bucket.rows);
        let [groups, runs] = [lists.paths.groups, lists.paths.runs[0]].map(|list| lists.words.at(list, 0));
        let (states, state) = (cache.states[mixer.index].full(0), sizes.state() as u64);
        let count = rows * sizes.channels();
        let [channels, taps, stride] = widths(sizes);
        let filter = mixer.weights.at(mixer.layout.filter.offset);
        let kernel = kernels::ConvolveStep {
            filter,
            x: x.at(0),
            groups,
            runs,
            states,
            y: mixed.at(0),
            channels,
            taps,
            stride,
            state,
            count,
        };
        self.stream.launch(Shape::covering(count, THREADS), kernel);
        self.prepare(&mixer, rows, x, mixed);
        let base = delta_rule(sizes, mixed, &self.mixer.gates, runs, out.at(0));
        let kernel = kernels::DeltaRule { groups, states, slot: state, ..base };
        let shape = delta_shape(rows, sizes.linear_num_value_heads, sizes.linear_value_head_dim);
        self.stream.launch(shape, kernel);
    }
}
