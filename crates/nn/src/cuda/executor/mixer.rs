//! Gates, and recurrent mixers with their states.

use super::super::needs::mixer_heads;
use super::{
    Address, Argument, Buffer, Cache, Columns, CudaExecutor, Decoding, FULL, Lists, Purpose, Shape, THREADS,
    Weights, args, kernel, warp_shape,
};
use crate::config::GatedDeltaNet;
use crate::executor::{Gate, HeadRows, Mixer, MixerOps, Rows};
use crate::segments::STRETCH;

/// Bytes of shared memory of a block of the delta rule: eight queries and keys; and of its backward pass: five times a stretch's rows, two squares of a stretch,
/// three numbers a row, and one per warp.
const SHARED: usize = 4 * 2 * 8 * 128;
const SHARED_BACKWARD: usize = 4 * (5 * STRETCH * 132 + 2 * STRETCH * (STRETCH + 1) + 3 * STRETCH + 8);
/// Columns of values that a block of the delta rule has.
const COLUMNS: usize = 32;

/// What the delta rule reads, and reuses.
#[derive(Default)]
pub(super) struct MixerScratch {
    /// By row: how much each head writes, then the logarithm of what it keeps of its state; and their derivatives.
    gates: Buffer,
    dgates: Buffer,
    /// By row: what each head's query and key were multiplied by.
    lengths: Buffer,
    /// The derivative of `mixed`.
    derivative: Buffer,
    /// States that others continue, or after each stretch; derivatives by a run's first, twice, as kernels need them.
    states: Buffer,
    dstates: Buffer,
    /// What each row writes.
    errors: Buffer,
}

fn is_silu(kind: Gate) -> u32 {
    u32::from(kind == Gate::Silu)
}

/// Channels of the convolution, inputs that it sees, and the width of a row with them.
fn widths(of: GatedDeltaNet) -> [usize; 3] {
    [of.channels(), of.linear_conv_kernel_dim, of.input_width()]
}

/// The heads of a launch, as its last arguments: `count` heads, every `step`th from `first` on.
fn heads(of: GatedDeltaNet, first: usize, step: usize) -> [Argument; 6] {
    let (values, keys) = (of.linear_num_value_heads, of.linear_num_key_heads);
    [values, keys, of.linear_key_head_dim, of.linear_value_head_dim, first, step].map(Argument::from)
}

/// A warp per row and head of queries or keys, or per 32 gates; the parameters of the gates; and the sizes, as the last arguments.
fn by_unit(of: &Mixer<'_, Weights, Lists>, rows: usize) -> (Shape, [Address; 2], [Argument; 5]) {
    let sizes = of.layout.of;
    let (heads, keys) = (sizes.linear_num_value_heads, sizes.linear_num_key_heads);
    let parameters = [of.layout.a_log, of.layout.dt_bias].map(|span| of.weights.at(span.offset));
    let last = [heads, keys, sizes.linear_key_head_dim, sizes.channels(), rows];
    let shape = warp_shape(rows * (2 * keys + heads.div_ceil(32)));
    (shape, parameters, last.map(Argument::from))
}

/// A block per run, head and columns of values.
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
    fn prepare(&mut self, of: &Mixer<'_, Weights, Lists>, rows: usize, x: &Buffer, mixed: &Buffer) {
        let sizes = of.layout.of;
        let (heads, keys) = (sizes.linear_num_value_heads, sizes.linear_num_key_heads);
        let MixerScratch { gates, lengths, .. } = &mut self.mixer;
        gates.reserve(&self.stream, FULL, rows * 2 * heads, Purpose::Pass);
        lengths.reserve(&self.stream, FULL, rows * 2 * keys, Purpose::Pass);
        let (shape, [a_log, dt_bias], last) = by_unit(of, rows);
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
        of: Mixer<'_, Weights, Lists>,
        cache: Option<&mut Cache>,
        x: &Buffer,
        y: &mut Buffer,
    ) {
        let lists = of.lists;
        let sizes = of.layout.of;
        let (filter, previous) =
            (of.weights.at(of.layout.filter.offset), lists.words.at(lists.paths.previous, 0));
        let count = lists.tokens.len * sizes.channels();
        let [channels, taps, stride] = widths(sizes);
        let arguments = args![filter, x, previous, &*y, channels, taps, stride, count];
        self.stream.launch(kernel!(self.precision, "convolve"), Shape::covering(count, THREADS), arguments);
        let Some(cache) = cache else { return };
        let (ends, states) = (lists.paths.ends, &cache.states[of.place]);
        let count = ends.len / 2 * sizes.channels();
        let (at, state) = (lists.words.at(ends, 0), sizes.state() as u64);
        let arguments = args![x, previous, at, states, channels, taps, stride, state, count];
        let shape = Shape::covering(count, THREADS);
        self.stream.launch(kernel!(self.precision, "convolve_keep"), shape, arguments);
    }

    fn convolve_backward(
        &mut self,
        of: Mixer<'_, Weights, Lists>,
        gradient: Option<&mut Buffer>,
        x: &Buffer,
        dy: &mut Buffer,
        dx: &mut Buffer,
    ) {
        let lists = of.lists;
        let (sizes, rows) = (of.layout.of, lists.tokens.len);
        let filter = of.weights.at(of.layout.filter.offset);
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
            let (to, width) = (gradient.at(of.layout.filter.offset).into(), of.layout.filter.len);
            let columns = Columns::Filter { x, previous, dy, sizes: [channels, taps, stride] };
            self.sum_columns(columns, rows, width, to);
        }
    }

    fn delta_rule(
        &mut self,
        of: Mixer<'_, Weights, Lists>,
        cache: Option<&mut Cache>,
        x: &Buffer,
        mixed: &mut Buffer,
        out: &mut Buffer,
    ) {
        let (lists, rows) = (of.lists, of.rows);
        self.prepare(&of, lists.tokens.len, x, mixed);
        let (sizes, paths) = (of.layout.of, &lists.paths);
        let (all, numbers) = (sizes.linear_num_value_heads, sizes.head_state());
        let at_once = mixer_heads(all, paths.slots[0] * numbers);
        let MixerScratch { gates, states, .. } = &mut self.mixer;
        states.reserve(&self.stream, FULL, paths.slots[0] * at_once * numbers, Purpose::Pass);
        let (state, none) = (sizes.state() as u64, Address(0));
        let places = if rows == Rows::All { none } else { lists.words.at(paths.places, 0) };
        let nodes = cache.map_or(none, |cache| cache.states[of.place].at(0));
        let (mixed, gates, states, out) = (&*mixed, &*gates, &*states, &*out);
        for first in (0..all).step_by(at_once) {
            let count = at_once.min(all - first);
            let slot = (count * numbers) as u64;
            for wave in &paths.waves {
                let runs = lists.words.at(paths.runs[0], 5 * wave.start);
                let arguments =
                    args![mixed, gates, none, runs, places, states, slot, nodes, state, out, none, 0u32];
                let arguments = [arguments, &heads(sizes, first, 1)[..]].concat();
                let shape = delta_shape(wave.len(), count, sizes.linear_value_head_dim);
                self.stream.launch(kernel!(self.precision, "delta_rule"), shape, &arguments);
            }
        }
    }

    fn delta_rule_backward(
        &mut self,
        of: Mixer<'_, Weights, Lists>,
        gradient: Option<&mut Buffer>,
        x: &Buffer,
        dout: &Buffer,
        mixed: &mut Buffer,
        dx: &mut Buffer,
    ) {
        let (lists, rows) = (of.lists, of.rows);
        let (sizes, count, paths) = (of.layout.of, lists.tokens.len, &lists.paths);
        self.prepare(&of, count, x, mixed);
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
        let places = if rows == Rows::All { none } else { lists.words.at(paths.places, 0) };
        let (runs, children) =
            (|run: usize| lists.words.at(paths.runs[1], 5 * run), lists.words.at(paths.children, 0));
        // Heads with a query and a key in common add to their derivatives, one after another.
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
                        from, gates, runs, children, places, states, slot, dstates, errors, dout, dmixed,
                        dgates, run, add
                    ];
                    let grid = [wave.len() as u32, n as u32, 1];
                    let shape = Shape { grid, threads: 256, shared: SHARED_BACKWARD as u32 };
                    let arguments = [arguments, &heads[..]].concat();
                    stream.launch(kernel!(self.precision, "delta_rule_backward"), shape, &arguments);
                }
            }
        }
        let (shape, [a_log, dt_bias], last) = by_unit(&of, count);
        let arguments = args![x, a_log, dt_bias, from, lengths, dmixed, dgates, &shares, &*dx];
        let arguments = [arguments, &last[..]].concat();
        stream.launch(kernel!(self.precision, "mixer_prepare_backward"), shape, &arguments);
        std::mem::swap(mixed, derivative);
        if let Some(gradient) = gradient {
            for (place, span) in [of.layout.a_log, of.layout.dt_bias].into_iter().enumerate() {
                let own = Columns::Full(shares.at(place * count * all));
                self.sum_columns(own, count, all, gradient.at(span.offset).into());
            }
        }
        self.shares = shares;
    }

    fn step_mixer(
        &mut self,
        of: Mixer<'_, Weights, Lists>,
        decoding: &Decoding,
        cache: &mut Cache,
        x: &Buffer,
        mixed: &mut Buffer,
        out: &mut Buffer,
    ) {
        let (sizes, lists, rows) = (of.layout.of, &decoding.lists, decoding.bucket.rows);
        let [groups, runs] = [lists.paths.groups, lists.paths.runs[0]].map(|list| lists.words.at(list, 0));
        let (states, state) = (&cache.states[of.place], sizes.state() as u64);
        let count = rows * sizes.channels();
        let [channels, taps, stride] = widths(sizes);
        let filter = of.weights.at(of.layout.filter.offset);
        let arguments = args![filter, x, groups, runs, states, &*mixed, channels, taps, stride, state, count];
        let shape = Shape::covering(count, THREADS);
        self.stream.launch(kernel!(self.precision, "convolve_step"), shape, arguments);
        self.prepare(&of, rows, x, mixed);
        let (mixed, gates, none) = (&*mixed, &self.mixer.gates, Address(0));
        let arguments = args![mixed, gates, groups, runs, none, states, state, none, 0u64, &*out, none, 0u32];
        let arguments = [arguments, &heads(sizes, 0, 1)[..]].concat();
        let shape = delta_shape(rows, sizes.linear_num_value_heads, sizes.linear_value_head_dim);
        self.stream.launch(kernel!(self.precision, "delta_rule"), shape, &arguments);
    }

    fn grow_states(&mut self, states: &mut dyn Iterator<Item = usize>, cache: &mut Cache, nodes: usize) {
        for (place, state) in states.enumerate() {
            if place == cache.states.len() {
                cache.states.push(Buffer::default());
            }
            // By an eighth at least, so that growing costs little in all and wastes little.
            let (have, of) = (cache.states[place].len() / state, &mut cache.states[place]);
            if nodes > have {
                of.extend(&self.stream, FULL, nodes.max(have + have / 8) * state, Purpose::Cache);
            }
        }
    }
}
