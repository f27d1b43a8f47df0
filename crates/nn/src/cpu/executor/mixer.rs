//! Gates, and gated DeltaNet: a causal convolution, then a state per head that each token decays, corrects and reads. Both go along the paths of a forest: a stretch
//! of rows begins with the state after the one it continues, and in the backward pass that one's gets the sum of the derivatives.
//!
//! A pass takes states from stretch to stretch ([`delta_rule`]), decoding from token to token; one head per thread at a time. The backward pass computes the states after
//! stretches that others continue again.

use std::ops::Range;

use super::super::delta_rule::{self, DeltaRule};
use super::super::simd::{self, Token};
use super::{Buffer, Cache, CpuExecutor, Decoding, Lists, Scratch, Shared, Weights, part};
use crate::config::GatedDeltaNet;
use crate::executor::{Gate, HeadRows, Mixer, MixerOps};
use crate::segments::Stretch;

/// Added to the square of the length that queries and keys are divided by.
const EPS: f32 = 1e-6;

/// What the delta rule reads, and reuses.
#[derive(Default)]
pub(super) struct MixerScratch {
    /// By row: how much each head writes, then what it keeps of its state.
    gates: Buffer,
    /// By row: what each head's query and key were multiplied by.
    lengths: Buffer,
    derivative: Buffer,
    /// `[kernel, channels]`, and its derivative.
    filter: [Buffer; 2],
}

#[derive(Clone, Copy)]
struct Inputs<'a> {
    sizes: GatedDeltaNet,
    mixed: &'a [f32],
    gates: &'a [f32],
}

impl<'a> Inputs<'a> {
    /// The columns of a value head's query, key and value.
    fn columns(&self, head: usize) -> [Range<usize>; 3] {
        let GatedDeltaNet { linear_key_head_dim: k, linear_value_head_dim: v, .. } = self.sizes;
        let own = head / (self.sizes.linear_num_value_heads / self.sizes.linear_num_key_heads);
        let (keys, values) = (self.sizes.key_width(), 2 * self.sizes.key_width());
        [
            own * k..(own + 1) * k,
            keys + own * k..keys + (own + 1) * k,
            values + head * v..values + (head + 1) * v,
        ]
    }

    fn token(&self, row: usize, head: usize) -> Token<'a> {
        let heads = self.sizes.linear_num_value_heads;
        let mixed = &self.mixed[row * self.sizes.channels()..][..self.sizes.channels()];
        let [q, k, v] = self.columns(head).map(|columns| &mixed[columns]);
        let gates = &self.gates[row * 2 * heads..][..2 * heads];
        Token { q, k, v, write: gates[head], keep: gates[heads + head] }
    }

    /// Numbers of a key, and of a value.
    fn of_head(&self) -> [usize; 2] {
        [self.sizes.linear_key_head_dim, self.sizes.linear_value_head_dim]
    }

    /// Takes a head's state through a tree, with those after stretches that others continue in `kept`, and after the last stretches if `to_end`.
    /// `visit` gets each stretch when its errors are known, with the state before it.
    fn advance(
        &self,
        stretches: &[Stretch],
        (tree, head, to_end): (Range<usize>, usize, bool),
        (rule, state, kept): (&mut DeltaRule, &mut [f32], &mut [f32]),
        mut visit: impl FnMut(&Stretch, &mut DeltaRule, &[f32]),
    ) {
        let numbers = state.len();
        for index in tree {
            let stretch = &stretches[index];
            match place_before(stretches, stretch, numbers) {
                None => state.fill(0.0),
                // Unless what it continues was last.
                Some(place) if stretch.parent != Some(index - 1) => state.copy_from_slice(&kept[place]),
                Some(_) => {}
            }
            rule.load(self.of_head(), stretch.rows.clone().map(|row| self.token(row, head)));
            rule.errors(state);
            visit(stretch, rule, state);
            if to_end || stretch.kept.is_some() {
                rule.advance(state);
            }
            if let Some(slot) = stretch.kept {
                kept[slot * numbers..][..numbers].copy_from_slice(state);
            }
        }
    }
}

/// `ln(1 + e^x)`, as PyTorch computes it.
fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// Rows of a path that end with one, the latest first.
fn path(lists: &Lists, row: usize) -> impl Iterator<Item = usize> + '_ {
    let before =
        |&row: &usize| Some(lists.previous[row]).filter(|&row| row != u32::MAX).map(|row| row as usize);
    std::iter::successors(Some(row), before)
}

fn trees(stretches: &[Stretch]) -> impl Iterator<Item = Range<usize>> + '_ {
    let roots = (0..stretches.len()).filter(|&index| stretches[index].parent.is_none());
    roots.map(|root| {
        let rest = stretches[root + 1..].iter().position(|stretch| stretch.parent.is_none());
        root..rest.map_or(stretches.len(), |rest| root + 1 + rest)
    })
}

/// Where the state that a stretch begins with stands among those of `numbers` that are kept; `None` at a root, which begins with zeros.
fn place_before(stretches: &[Stretch], stretch: &Stretch, numbers: usize) -> Option<Range<usize>> {
    let slot = stretches[stretch.parent?].kept.expect("it is continued");
    Some(slot * numbers..(slot + 1) * numbers)
}

/// The number of states of a tree that others continue.
fn slots(stretches: &[Stretch]) -> usize {
    stretches.iter().filter_map(|stretch| stretch.kept).max().map_or(0, |last| last + 1)
}

/// Numbers of a thread's scratch where so many states of a tree are continued.
pub(crate) fn scratch_len(sizes: &GatedDeltaNet, slots: usize, backward: bool) -> usize {
    let states = if backward { 2 * slots + 2 } else { slots + 1 };
    let of_head = [sizes.linear_key_head_dim, sizes.linear_value_head_dim];
    states * sizes.head_state() + delta_rule::scratch_len(of_head, backward)
}

impl CpuExecutor {
    /// The convolution's weights by place, in `mixer.filter[0]`.
    fn transpose_filter(&mut self, of: &Mixer<'_, Weights, Lists>) {
        let (channels, kernel) = (of.layout.of.channels(), of.layout.of.linear_conv_kernel_dim);
        let filter = &mut self.mixer.filter[0];
        filter.reserve(channels * kernel);
        for (channel, weights) in part(of.weights, of.layout.filter).chunks_exact(kernel).enumerate() {
            weights.iter().enumerate().for_each(|(at, &weight)| filter[at * channels + channel] = weight);
        }
    }

    /// Normalises queries and keys in place, and computes the gates.
    fn prepare(&mut self, of: &Mixer<'_, Weights, Lists>, rows: usize, x: &[f32], mixed: &mut [f32]) {
        let sizes = of.layout.of;
        let (heads, keys, size) =
            (sizes.linear_num_value_heads, sizes.linear_num_key_heads, sizes.linear_key_head_dim);
        let (channels, stride) = (sizes.channels(), sizes.input_width());
        let (a_log, dt_bias) = (part(of.weights, of.layout.a_log), part(of.weights, of.layout.dt_bias));
        let MixerScratch { gates, lengths, .. } = &mut self.mixer;
        let [mut gates, mut lengths] = [gates, lengths].map(std::mem::take);
        gates.reserve(rows * 2 * heads);
        lengths.reserve(rows * 2 * keys);
        let outputs = [(&mut gates[..], 2 * heads), (&mut lengths[..], 2 * keys), (mixed, channels)];
        self.rows(rows, channels, outputs, |own, [gates, lengths, mixed]| {
            let rows = gates.chunks_exact_mut(2 * heads).zip(lengths.chunks_exact_mut(2 * keys));
            for (row, ((gates, lengths), mixed)) in own.zip(rows.zip(mixed.chunks_exact_mut(channels))) {
                let x = &x[row * stride + channels..][..2 * heads];
                for head in 0..heads {
                    gates[head] = sigmoid(x[head]);
                    gates[heads + head] =
                        (-a_log[head].exp() * softplus(x[heads + head] + dt_bias[head])).exp();
                }
                for (at, (head, length)) in mixed.chunks_exact_mut(size).zip(lengths).enumerate() {
                    *length = 1.0 / (simd::dot(head, head) + EPS).sqrt();
                    let factor = if at < keys { *length / (size as f32).sqrt() } else { *length };
                    simd::scale(head, factor);
                }
            }
        });
        (self.mixer.gates, self.mixer.lengths) = (gates, lengths);
    }
}

impl MixerOps for CpuExecutor {
    fn split_heads(&mut self, heads: HeadRows, x: &Buffer, first: &mut Buffer, second: &mut Buffer) {
        let HeadRows { rows, stride, count, size, .. } = heads;
        let (width, rest) = (count * size, stride - 2 * count * size);
        self.rows(rows, stride, [(first, width + rest), (second, width)], |own, [first, second]| {
            let outputs = first.chunks_exact_mut(width + rest).zip(second.chunks_exact_mut(width));
            for (row, (first, second)) in own.zip(outputs) {
                let (pairs, after) = x[row * stride..][..stride].split_at(2 * width);
                for (head, pair) in pairs.chunks_exact(2 * size).enumerate() {
                    first[head * size..][..size].copy_from_slice(&pair[..size]);
                    second[head * size..][..size].copy_from_slice(&pair[size..]);
                }
                first[width..].copy_from_slice(after);
            }
        });
    }

    fn join_heads(&mut self, heads: HeadRows, first: &Buffer, second: &Buffer, x: &mut Buffer) {
        let HeadRows { rows, count, size, .. } = heads;
        let width = count * size;
        self.rows(rows, 2 * width, [(x, 2 * width)], |own, [x]| {
            for (row, pairs) in own.zip(x.chunks_exact_mut(2 * width)) {
                for (head, pair) in pairs.chunks_exact_mut(2 * size).enumerate() {
                    pair[..size].copy_from_slice(&first[row * width + head * size..][..size]);
                    pair[size..].copy_from_slice(&second[row * width + head * size..][..size]);
                }
            }
        });
    }

    fn gate(&mut self, kind: Gate, len: usize, gate: &Buffer, x: &Buffer, y: &mut Buffer) {
        let function = match kind {
            Gate::Sigmoid => simd::sigmoid_gate,
            Gate::Silu => simd::swiglu,
        };
        self.rows(len, 3, [(&mut y[..len], 1)], |own, [y]| function(&gate[own.clone()], &x[own], y));
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
        let backward = match kind {
            Gate::Sigmoid => simd::sigmoid_gate_backward,
            Gate::Silu => simd::swiglu_backward,
        };
        // In the form of the MLP's gate: `x` becomes its derivative, and `dy` becomes `y`.
        y[..len].copy_from_slice(&x[..len]);
        let outputs = [(&mut gate[..len], 1), (&mut y[..len], 1), (&mut dy[..len], 1)];
        self.rows(len, 3, outputs, |_, [gate, dx, to]| backward(gate, dx, to));
        std::mem::swap(y, dy);
    }

    fn convolve(
        &mut self,
        of: Mixer<'_, Weights, Lists>,
        cache: Option<&mut Cache>,
        x: &Buffer,
        y: &mut Buffer,
    ) {
        let lists = of.lists;
        self.transpose_filter(&of);
        let sizes = of.layout.of;
        let (channels, kernel, stride) =
            (sizes.channels(), sizes.linear_conv_kernel_dim, sizes.input_width());
        let filter = &self.mixer.filter[0];
        self.rows(lists.tokens.len(), kernel * channels, [(y, channels)], |own, [y]| {
            for (row, y) in own.zip(y.chunks_exact_mut(channels)) {
                y.fill(0.0);
                for (from, at) in path(lists, row).zip((0..kernel).rev()) {
                    simd::multiply_add(
                        &filter[at * channels..][..channels],
                        &x[from * stride..][..channels],
                        y,
                    );
                }
                simd::silu(y);
            }
        });
        let Some(cache) = cache else { return };
        let (state, states) = (sizes.state(), &mut cache.states[of.place]);
        let ends = trees(&lists.stretches).map(|tree| lists.stretches[tree.end - 1].rows.end - 1);
        for (end, &node) in ends.zip(&lists.nodes) {
            let inputs = &mut states[(node + 1) * state - (kernel - 1) * channels..(node + 1) * state];
            inputs.fill(0.0);
            for (input, from) in inputs.chunks_exact_mut(channels).zip(path(lists, end)) {
                input.copy_from_slice(&x[from * stride..][..channels]);
            }
        }
    }

    fn convolve_backward(
        &mut self,
        of: Mixer<'_, Weights, Lists>,
        gradient: Option<&mut [f32]>,
        x: &Buffer,
        dy: &mut Buffer,
        dx: &mut Buffer,
    ) {
        let lists = of.lists;
        let sizes = of.layout.of;
        let (channels, kernel, stride) =
            (sizes.channels(), sizes.linear_conv_kernel_dim, sizes.input_width());
        let rows = lists.tokens.len();
        self.transpose_filter(&of);
        let [filter, mut derivative] = std::mem::take(&mut self.mixer.filter);
        derivative.reserve(kernel * channels);
        derivative[..kernel * channels].fill(0.0);
        let outputs = [(&mut derivative[..], channels), (dy, channels), (dx, stride)];
        let work = rows * kernel * channels;
        self.team.split_columns(channels, 16, work, outputs, |_, own, [mut dfilter, mut dy, mut dx]| {
            let mut sum = vec![0.0; own.len()];
            for row in 0..rows {
                dx.row(row).fill(0.0);
            }
            for row in 0..rows {
                sum.fill(0.0);
                let weights = |at: usize| &filter[at * channels..][own.clone()];
                for (from, at) in path(lists, row).zip((0..kernel).rev()) {
                    simd::multiply_add(weights(at), &x[from * stride..][own.clone()], &mut sum);
                }
                let dy = dy.row(row);
                simd::silu_backward(&sum, dy);
                for (from, at) in path(lists, row).zip((0..kernel).rev()) {
                    simd::multiply_add(weights(at), dy, dx.row(from));
                    simd::multiply_add(&x[from * stride..][own.clone()], dy, dfilter.row(at));
                }
            }
        });
        if let Some(gradient) = gradient {
            let to = super::part_mut(gradient, of.layout.filter);
            for (channel, weights) in to.chunks_exact_mut(kernel).enumerate() {
                weights.iter_mut().enumerate().for_each(|(at, d)| *d += derivative[at * channels + channel]);
            }
        }
        self.mixer.filter = [filter, derivative];
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
        let (sizes, count) = (of.layout.of, lists.tokens.len());
        self.prepare(&of, count, x, mixed);
        let (queries, stretches) = (&lists.plan(rows).rows, &lists.stretches);
        let (heads, size, numbers) =
            (sizes.linear_num_value_heads, sizes.linear_value_head_dim, sizes.head_state());
        let slots = slots(stretches);
        let inputs = Inputs { sizes, mixed, gates: &self.mixer.gates };
        let outputs = [(&mut out[..], heads * size)];
        let states = cache.map(|cache| Shared::new(&mut cache.states[of.place]));
        let work = count * heads * numbers;
        self.team.split_columns(heads * size, size, work, outputs, |part, own, [mut out]| {
            let Scratch { states: scratch, rule, .. } = &mut *self.scratch(part);
            scratch.reserve((slots + 1) * numbers);
            let (state, kept) = scratch.split_at_mut(numbers);
            for head in own.start / size..own.end / size {
                let mut next = 0;
                for (tree, own) in trees(stretches).enumerate() {
                    let whole = (own, head, states.is_some());
                    inputs.advance(stretches, whole, (rule, state, kept), |stretch, rule, state| {
                        let Range { start, end } = stretch.rows;
                        let wanted = queries[next..].partition_point(|&row| (row as usize) < end);
                        if wanted == 0 {
                            return;
                        }
                        let results = rule.out(state);
                        for (at, &row) in queries.iter().enumerate().skip(next).take(wanted) {
                            let to = out.part(at, head * size..(head + 1) * size);
                            to.copy_from_slice(&results[(row as usize - start) * size..][..size]);
                        }
                        next += wanted;
                    });
                    if let (Some(states), Some(node)) = (&states, lists.nodes.get(tree)) {
                        let at = node * sizes.state() + head * numbers;
                        // SAFETY: each head is one thread's.
                        unsafe { states.part(at..at + numbers) }.copy_from_slice(state);
                    }
                }
            }
        });
    }

    fn delta_rule_backward(
        &mut self,
        of: Mixer<'_, Weights, Lists>,
        gradient: Option<&mut [f32]>,
        x: &Buffer,
        dout: &Buffer,
        mixed: &mut Buffer,
        dx: &mut Buffer,
    ) {
        let (lists, rows) = (of.lists, of.rows);
        let (sizes, count) = (of.layout.of, lists.tokens.len());
        self.prepare(&of, count, x, mixed);
        let (queries, stretches) = (&lists.plan(rows).rows, &lists.stretches);
        let (heads, keys) = (sizes.linear_num_value_heads, sizes.linear_num_key_heads);
        let (key_size, size, numbers) =
            (sizes.linear_key_head_dim, sizes.linear_value_head_dim, sizes.head_state());
        let (channels, stride) = (sizes.channels(), sizes.input_width());
        let (a_log, dt_bias) = (part(of.weights, of.layout.a_log), part(of.weights, of.layout.dt_bias));
        let slots = slots(stretches);
        let mut derivative = std::mem::take(&mut self.mixer.derivative);
        derivative.reserve(count * channels);
        let inputs = Inputs { sizes, mixed, gates: &self.mixer.gates };
        let lengths = &self.mixer.lengths;
        let (dmixed, dx) = (Shared::new(&mut derivative), Shared::new(dx));
        let gradient = gradient.map(Shared::new);
        self.team.split(keys, 1, count * heads * numbers, |part, own| {
            let Scratch { states: scratch, rule, dout: of_rows, .. } = &mut *self.scratch(part);
            scratch.reserve((2 * slots + 2) * numbers);
            let (kept, rest) = scratch.split_at_mut(slots * numbers);
            let (dkept, rest) = rest.split_at_mut(slots * numbers);
            let (dstate, rest) = rest.split_at_mut(numbers);
            let state = &mut rest[..numbers];
            for key in own {
                let of_head = |row: usize, columns: &Range<usize>| {
                    // SAFETY: each key head, and each of its value heads, is one thread's.
                    unsafe { dmixed.part(row * channels + columns.start..row * channels + columns.end) }
                };
                let group = key * heads / keys..(key + 1) * heads / keys;
                let [q_columns, k_columns, _] = inputs.columns(group.start);
                for row in 0..count {
                    of_head(row, &q_columns).fill(0.0);
                    of_head(row, &k_columns).fill(0.0);
                }
                for head in group {
                    let [.., v_columns] = inputs.columns(head);
                    let rate = -a_log[head].exp();
                    let (mut da_log, mut ddt_bias) = (0.0f64, 0.0f64);
                    for tree in trees(stretches) {
                        // The errors meanwhile lie where the derivatives of values will.
                        let whole = (tree.clone(), head, false);
                        inputs.advance(stretches, whole, (rule, state, kept), |stretch, rule, _| {
                            for (row, error) in stretch.rows.clone().zip(rule.errors.chunks_exact(size)) {
                                of_head(row, &v_columns).copy_from_slice(error);
                            }
                        });
                        state.fill(0.0);
                        dkept.fill(0.0);
                        for index in tree.rev() {
                            let stretch = &stretches[index];
                            let rows = stretch.rows.clone();
                            let before = place_before(stretches, stretch, numbers);
                            match stretch.kept {
                                None => dstate.fill(0.0),
                                Some(slot) => dstate.copy_from_slice(&dkept[slot * numbers..][..numbers]),
                            }
                            of_rows.clear();
                            for row in rows.clone() {
                                match queries.binary_search(&(row as u32)) {
                                    Ok(at) => {
                                        of_rows.extend_from_slice(&dout[(at * heads + head) * size..][..size])
                                    }
                                    Err(_) => of_rows.resize(of_rows.len() + size, 0.0),
                                }
                            }
                            let token =
                                |row| Token { v: of_head(row, &v_columns), ..inputs.token(row, head) };
                            rule.load(inputs.of_head(), rows.clone().map(token));
                            let state = before.clone().map_or(&*state, |place| &kept[place]);
                            rule.backward(state, of_rows, dstate);
                            for (at, row) in rows.enumerate() {
                                simd::add(&rule.dq[at * key_size..][..key_size], of_head(row, &q_columns));
                                simd::add(&rule.dk[at * key_size..][..key_size], of_head(row, &k_columns));
                                of_head(row, &v_columns).copy_from_slice(&rule.dv[at * size..][..size]);
                                let b = row * stride + channels + head;
                                let a = b + heads;
                                // What is kept has for logarithm a rate times a softplus.
                                let step = x[a] + dt_bias[head];
                                let da = rule.dkeep[at] * rate * sigmoid(step);
                                // SAFETY: each head is one thread's.
                                unsafe {
                                    dx.part(b..b + 1)[0] = rule.dwrite[at];
                                    dx.part(a..a + 1)[0] = da;
                                }
                                ddt_bias += f64::from(da);
                                da_log += f64::from(rule.dkeep[at] * rate * softplus(step));
                            }
                            if let Some(slot) = before {
                                simd::add(dstate, &mut dkept[slot]);
                            }
                        }
                    }
                    if let Some(gradient) = &gradient {
                        for (span, sum) in [(of.layout.a_log, da_log), (of.layout.dt_bias, ddt_bias)] {
                            let at = span.offset + head;
                            // SAFETY: each head is one thread's.
                            unsafe { gradient.part(at..at + 1)[0] += sum as f32 };
                        }
                    }
                }
                // Through the normalisation of the head's queries and keys.
                for row in 0..count {
                    let mixed = &inputs.mixed[row * channels..][..channels];
                    let own = &lengths[row * 2 * keys..][..2 * keys];
                    let root = (key_size as f32).sqrt();
                    for (columns, length, factor) in
                        [(&q_columns, own[key], 1.0 / root), (&k_columns, own[keys + key], 1.0)]
                    {
                        let (y, d) = (&mixed[columns.clone()], of_head(row, columns));
                        // `y` is a unit vector times the factor.
                        let along = simd::dot(y, d) / factor;
                        for (d, y) in d.iter_mut().zip(y) {
                            *d = length * (factor * *d - y * along);
                        }
                    }
                }
            }
        });
        self.mixer.derivative = derivative;
        std::mem::swap(mixed, &mut self.mixer.derivative);
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
        let (sizes, nodes) = (of.layout.of, &decoding.step.states);
        let (channels, kernel, stride) =
            (sizes.channels(), sizes.linear_conv_kernel_dim, sizes.input_width());
        let (state, rows) = (sizes.state(), nodes.len());
        self.transpose_filter(&of);
        let filter = &self.mixer.filter[0];
        let states = Shared::new(&mut cache.states[of.place]);
        self.columns(rows, channels, mixed, |own, mut y| {
            for (row, &[from, to]) in nodes.iter().enumerate() {
                // The input so many tokens before.
                let input = |node: usize, back: usize| {
                    let at = (node + 1) * state - (kernel - back) * channels;
                    // SAFETY: each channel is one thread's, and no two of these are used that are the same.
                    unsafe { states.part(at + own.start..at + own.end) }
                };
                let y = y.row(row);
                let x = &x[row * stride..][own.clone()];
                y.fill(0.0);
                let weights = |at: usize| &filter[at * channels..][own.clone()];
                simd::multiply_add(weights(kernel - 1), x, y);
                for back in 1..kernel {
                    simd::multiply_add(weights(kernel - 1 - back), input(from, back), y);
                }
                simd::silu(y);
                for back in (2..kernel).rev() {
                    input(to, back).copy_from_slice(input(from, back - 1));
                }
                if kernel > 1 {
                    input(to, 1).copy_from_slice(x);
                }
            }
        });
        self.prepare(&of, rows, x, mixed);
        let (heads, size, numbers) =
            (sizes.linear_num_value_heads, sizes.linear_value_head_dim, sizes.head_state());
        let inputs = Inputs { sizes, mixed, gates: &self.mixer.gates };
        let (work, outputs) = (rows * heads * numbers, [(&mut out[..], heads * size)]);
        self.team.split_columns(heads * size, size, work, outputs, |part, own, [mut out]| {
            let error = &mut self.scratch(part).states;
            error.reserve(size);
            for head in own.start / size..own.end / size {
                for (row, &[from, to]) in nodes.iter().enumerate() {
                    let at = |node: usize| node * state + head * numbers..node * state + (head + 1) * numbers;
                    // SAFETY: each head is one thread's; a row's state and the one that it continues are the same or apart.
                    let state = unsafe {
                        let own = states.part(at(to));
                        if from != to {
                            own.copy_from_slice(states.part(at(from)));
                        }
                        own
                    };
                    let out = out.part(row, head * size..(head + 1) * size);
                    simd::delta_step(inputs.token(row, head), state, &mut error[..size], out);
                }
            }
        });
    }

    fn grow_states(&mut self, states: &mut dyn Iterator<Item = usize>, cache: &mut Cache, nodes: usize) {
        for (place, state) in states.enumerate() {
            if place == cache.states.len() {
                cache.states.push(Buffer::default());
            }
            cache.states[place].extend_by_eighths(nodes * state);
        }
    }
}
