//! Gates, and recurrent mixers with their states.

use super::super::needs::mixer_heads;
use super::{
    Address, Argument, Buffer, Cache, CudaExecutor, Decoding, FULL, Lists, Purpose, Shape, THREADS, Weights,
    args, kernel, warp_shape,
};
use crate::config::GatedDeltaNet;
use crate::executor::{Gate, HeadRows, Mixer, MixerOps, Rows};
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
    /// For each row, the factors that normalise each head's query and key.
    lengths: Buffer,
    /// The derivative of `mixed`.
    derivative: Buffer,
    /// States after runs that others continue, or after each stretch.
    states: Buffer,
    /// Derivatives of the states before each run; two copies, as the kernels need them.
    dstates: Buffer,
    /// The correction that each row writes to the state.
    errors: Buffer,
}

fn is_silu(kind: Gate) -> u32 {
    u32::from(kind == Gate::Silu)
}

/// Channels of the convolution, its kernel size, and the width of an input row.
fn widths(sizes: GatedDeltaNet) -> [usize; 3] {
    [sizes.channels(), sizes.linear_conv_kernel_dim, sizes.input_width()]
}

/// Trailing arguments that select the heads of a launch: every `step`th from `first` on.
fn heads(sizes: GatedDeltaNet, first: usize, step: usize) -> [Argument; 6] {
    let (values, keys) = (sizes.linear_num_value_heads, sizes.linear_num_key_heads);
    [values, keys, sizes.linear_key_head_dim, sizes.linear_value_head_dim, first, step].map(Argument::from)
}

/// Launch with one warp per row and query or key head, and one per 32 gates of a row: the shape, the gates' parameters, and the trailing size arguments.
fn by_unit(mixer: &Mixer<'_, Weights, Lists>, rows: usize) -> (Shape, [Address; 2], [Argument; 5]) {
    let sizes = mixer.layout.sizes;
    let (heads, keys) = (sizes.linear_num_value_heads, sizes.linear_num_key_heads);
    let parameters = [mixer.layout.a_log, mixer.layout.dt_bias].map(|span| mixer.weights.at(span.offset));
    let last = [heads, keys, sizes.linear_key_head_dim, sizes.channels(), rows];
    let shape = warp_shape(rows * (2 * keys + heads.div_ceil(32)));
    (shape, parameters, last.map(Argument::from))
}

/// One block per run, head, and group of value columns.
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
        let HeadRows { rows, count, size, .. } = heads;
        let all = rows * stride;
        let arguments = args![x, first, second, count, size, stride, u32::from(join), all];
        let shape = Shape::covering(all, THREADS);
        self.stream.launch(kernel!(self.precision, "split_heads"), shape, arguments);
    }

    /// Normalises queries and keys in place, and computes the gates.
    fn prepare(&mut self, mixer: &Mixer<'_, Weights, Lists>, rows: usize, x: &Buffer, mixed: &Buffer) {
        let sizes = mixer.layout.sizes;
        let (heads, keys) = (sizes.linear_num_value_heads, sizes.linear_num_key_heads);
        let MixerScratch { gates, lengths, .. } = &mut self.mixer;
        gates.reserve(&self.stream, FULL, rows * 2 * heads, Purpose::Pass);
        lengths.reserve(&self.stream, FULL, rows * 2 * keys, Purpose::Pass);
        let (shape, [a_log, dt_bias], last) = by_unit(mixer, rows);
        let arguments = args![x, a_log, dt_bias, mixed, &*lengths, &*gates];
        let arguments = [arguments, &last[..]].concat();
        self.stream.launch(kernel!(self.precision, "mixer_prepare"), shape, &arguments);
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
        let arguments = args![gate, x, &*y, is_silu(kind), len];
        self.stream.launch(kernel!(self.precision, "gate"), Shape::covering(len, THREADS), arguments);
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
        let arguments = args![&*gate, x, &*dy, &*y, is_silu(kind), len];
        let shape = Shape::covering(len, THREADS);
        self.stream.launch(kernel!(self.precision, "gate_backward"), shape, arguments);
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
        let arguments = args![filter, x, previous, &*y, channels, taps, stride, count];
        self.stream.launch(kernel!(self.precision, "convolve"), Shape::covering(count, THREADS), arguments);
        let Some(cache) = cache else { return };
        let (ends, states) = (lists.paths.ends, &cache.states[mixer.index]);
        let count = ends.len / 2 * sizes.channels();
        let (at, state) = (lists.words.at(ends, 0), sizes.state() as u64);
        let arguments = args![x, previous, at, states, channels, taps, stride, state, count];
        let shape = Shape::covering(count, THREADS);
        self.stream.launch(kernel!(self.precision, "convolve_keep"), shape, arguments);
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
        let arguments = args![filter, x, previous, &*dy, channels, taps, stride, count];
        self.stream.launch(kernel!(self.precision, "convolve_silu_backward"), shape, arguments);
        let arguments = args![filter, &*dy, first, later, &*dx, channels, taps, stride, count];
        self.stream.launch(kernel!(self.precision, "convolve_backward"), shape, arguments);
        if let Some(gradient) = gradient {
            let (to, width) = (gradient.at(mixer.layout.filter.offset), mixer.layout.filter.len);
            let (kernel, sizes) =
                (kernel!(self.precision, "convolve_weight"), [channels, taps, stride, rows]);
            self.sum_columns(kernel, args![x, previous, &*dy], &sizes, [rows, width], to);
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
        let (state, none) = (sizes.state() as u64, Address(0));
        let predicting = if rows == Rows::All { none } else { lists.words.at(paths.predicting, 0) };
        let nodes = cache.map_or(none, |cache| cache.states[mixer.index].at(0));
        let (mixed, gates, states, out) = (&*mixed, &*gates, &*states, &*out);
        for first in (0..all).step_by(at_once) {
            let count = at_once.min(all - first);
            let slot = (count * numbers) as u64;
            for wave in &paths.waves {
                let runs = lists.words.at(paths.runs[0], 5 * wave.start);
                let arguments =
                    args![mixed, gates, none, runs, predicting, states, slot, nodes, state, out, none, 0u32];
                let arguments = [arguments, &heads(sizes, first, 1)[..]].concat();
                let shape = delta_shape(wave.len(), count, sizes.linear_value_head_dim);
                self.stream.launch(kernel!(self.precision, "delta_rule"), shape, &arguments);
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
        let mut shares = std::mem::take(&mut self.shares);
        shares.reserve(stream, full, 2 * count * all, pass);
        derivative.reserve(stream, self.precision, count * channels, pass);
        states.reserve(stream, full, paths.slots[1] * at_once * numbers, pass);
        dstates.reserve(stream, full, 2 * runs * at_once * numbers, pass);
        errors.reserve(stream, full, count * at_once * values, pass);
        let (gates, dgates, lengths, dmixed) = (&*gates, &*dgates, &*lengths, &*derivative);
        let (states, dstates, errors, none) = (&*states, &*dstates, &*errors, Address(0));
        let from = mixed.at(0);
        let predicting = if rows == Rows::All { none } else { lists.words.at(paths.predicting, 0) };
        let (runs, children) =
            (|run: usize| lists.words.at(paths.runs[1], 5 * run), lists.words.at(paths.children, 0));
        // Value heads that share a query and a key add to their derivatives, one after another.
        for member in 0..group {
            for first in (0..keys).step_by(at_once) {
                let n = at_once.min(keys - first);
                let (slot, heads) = ((n * numbers) as u64, heads(sizes, first * group + member, group));
                for wave in &paths.waves {
                    let (runs, every) = (runs(wave.start), STRETCH);
                    let arguments =
                        args![from, gates, none, runs, none, states, slot, none, 0u64, none, errors, every];
                    let shape = delta_shape(wave.len(), n, values);
                    let arguments = [arguments, &heads[..]].concat();
                    stream.launch(kernel!(self.precision, "delta_rule"), shape, &arguments);
                }
                for wave in paths.waves.iter().rev() {
                    let (run, add, runs) = (wave.start, u32::from(member > 0), runs(0));
                    let arguments = args![
                        from, gates, runs, children, predicting, states, slot, dstates, errors, dout, dmixed,
                        dgates, run, add
                    ];
                    let grid = [wave.len() as u32, n as u32, 1];
                    let shape = Shape { grid, threads: 256, shared: SHARED_BACKWARD as u32 };
                    let arguments = [arguments, &heads[..]].concat();
                    stream.launch(kernel!(self.precision, "delta_rule_backward"), shape, &arguments);
                }
            }
        }
        let (shape, [a_log, dt_bias], last) = by_unit(&mixer, count);
        let arguments = args![x, a_log, dt_bias, from, lengths, dmixed, dgates, &shares, &*dx];
        let arguments = [arguments, &last[..]].concat();
        stream.launch(kernel!(self.precision, "mixer_prepare_backward"), shape, &arguments);
        std::mem::swap(mixed, derivative);
        if let Some(gradient) = gradient {
            for (index, span) in [mixer.layout.a_log, mixer.layout.dt_bias].into_iter().enumerate() {
                let (from, to) = (shares.at(index * count * all), gradient.at(span.offset));
                self.sum_columns("column_partials_f32", args![from], &[count, all], [count, all], to);
            }
        }
        self.shares = shares;
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
        let (states, state) = (&cache.states[mixer.index], sizes.state() as u64);
        let count = rows * sizes.channels();
        let [channels, taps, stride] = widths(sizes);
        let filter = mixer.weights.at(mixer.layout.filter.offset);
        let arguments = args![filter, x, groups, runs, states, &*mixed, channels, taps, stride, state, count];
        let shape = Shape::covering(count, THREADS);
        self.stream.launch(kernel!(self.precision, "convolve_step"), shape, arguments);
        self.prepare(&mixer, rows, x, mixed);
        let (mixed, gates, none) = (&*mixed, &self.mixer.gates, Address(0));
        let arguments = args![mixed, gates, groups, runs, none, states, state, none, 0u64, &*out, none, 0u32];
        let arguments = [arguments, &heads(sizes, 0, 1)[..]].concat();
        let shape = delta_shape(rows, sizes.linear_num_value_heads, sizes.linear_value_head_dim);
        self.stream.launch(kernel!(self.precision, "delta_rule"), shape, &arguments);
    }

    fn grow_states(&mut self, states: &mut dyn Iterator<Item = usize>, cache: &mut Cache, nodes: usize) {
        for (layer, state) in states.enumerate() {
            if layer == cache.states.len() {
                cache.states.push(Buffer::default());
            }
            // Grow by at least an eighth, to bound both the cost of copies and the unused memory.
            let (nodes_before, states) = (cache.states[layer].len() / state, &mut cache.states[layer]);
            if nodes > nodes_before {
                let nodes = nodes.max(nodes_before + nodes_before / 8);
                states.extend(&self.stream, FULL, nodes * state, Purpose::Cache);
            }
        }
    }
}
