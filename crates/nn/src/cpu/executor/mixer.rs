//! Gates, and gated DeltaNet: a causal convolution, and then a state per head that each token decays, corrects and reads. Both follow the paths of a forest:
//! a stretch begins with the state after its parent stretch, and the derivative of that state is summed over the parent's children.
//!
//! A pass computes states stretch by stretch ([`delta_rule`]), and decoding token by token. Each head is computed by one thread. The backward pass
//! recomputes the states after stretches that others continue.

use std::ops::Range;

use super::super::convolution::{Convolution, trees};
use super::super::delta_rule::{self, DeltaRule};
use super::super::simd::{self, Token};
use super::{Buffer, Cache, CpuExecutor, Decoding, Lists, Scratch, Shared, Weights, part, part_mut};
use crate::config::GatedDeltaNet;
use crate::executor::{Gate, HeadRows, Mixer, MixerOps};
use crate::layout::{MixerLayout, Span};
use crate::segments::Stretch;

/// Constant added to the squared length by which queries and keys are normalised.
const EPS: f32 = 1e-6;

/// Scratch memory of mixers.
#[derive(Default)]
pub(super) struct MixerScratch {
    /// For each row, the write strength of each head, then the decay of each head's state. In a gated short convolution, the inputs of the convolution.
    pub(super) gates: Buffer,
    /// For each row, the factors (inverse lengths) that normalise each head's query and key.
    lengths: Buffer,
    derivative: Buffer,
    /// The filter, `[kernel, channels]`, and its derivative.
    pub(super) filter: [Buffer; 2],
}

#[derive(Clone, Copy)]
struct Inputs<'a> {
    sizes: GatedDeltaNet,
    mixed: &'a [f32],
    gates: &'a [f32],
}

impl<'a> Inputs<'a> {
    /// Returns the columns of the query, key and value of a value head.
    fn columns(&self, head: usize) -> [Range<usize>; 3] {
        let GatedDeltaNet { linear_key_head_dim: k, linear_value_head_dim: v, .. } = self.sizes;
        let key = head / (self.sizes.linear_num_value_heads / self.sizes.linear_num_key_heads);
        let (keys, values) = (self.sizes.key_width(), 2 * self.sizes.key_width());
        [
            key * k..(key + 1) * k,
            keys + key * k..keys + (key + 1) * k,
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

    fn head_sizes(&self) -> [usize; 2] {
        [self.sizes.linear_key_head_dim, self.sizes.linear_value_head_dim]
    }

    /// Advances a head's state through a tree of stretches of rows. `saved` receives the state after each stretch that has children. The final state is
    /// computed only if `to_end`. `visit` is called for each stretch with the state before it, once the delta rule's errors of its rows are computed.
    fn advance(
        &self,
        stretches: &[Stretch],
        (tree, head, to_end): (Range<usize>, usize, bool),
        (rule, state, saved): (&mut DeltaRule, &mut [f32], &mut [f32]),
        mut visit: impl FnMut(&Stretch, &mut DeltaRule, &[f32]),
    ) {
        let numbers = state.len();
        for index in tree {
            let stretch = &stretches[index];
            match state_before(stretches, stretch, numbers) {
                None => state.fill(0.0),
                // If the stretch continues the previous one, the state is already there.
                Some(range) if stretch.parent != Some(index - 1) => state.copy_from_slice(&saved[range]),
                Some(_) => {}
            }
            rule.load(self.head_sizes(), stretch.rows.clone().map(|row| self.token(row, head)));
            rule.errors(state);
            visit(stretch, rule, state);
            if to_end || stretch.state_slot.is_some() {
                rule.advance(state);
            }
            if let Some(slot) = stretch.state_slot {
                saved[slot * numbers..][..numbers].copy_from_slice(state);
            }
        }
    }
}

/// Returns `ln(1 + e^x)`, and `x` above PyTorch's threshold.
fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// Returns the range of the state before a stretch in a list of saved states of `numbers` values each. `None` for a root, whose state is zero.
fn state_before(stretches: &[Stretch], stretch: &Stretch, numbers: usize) -> Option<Range<usize>> {
    let slot = stretches[stretch.parent?].state_slot.expect("it is continued");
    Some(slot * numbers..(slot + 1) * numbers)
}

/// Returns the number of states that a tree has to save.
fn slots(stretches: &[Stretch]) -> usize {
    stretches.iter().filter_map(|stretch| stretch.state_slot).max().map_or(0, |last| last + 1)
}

/// Returns the number of values in a thread's scratch memory for trees with `slots` saved states.
pub(crate) fn scratch_len(sizes: &GatedDeltaNet, slots: usize, backward: bool) -> usize {
    let states = if backward { 2 * slots + 2 } else { slots + 1 };
    let head_sizes = [sizes.linear_key_head_dim, sizes.linear_value_head_dim];
    states * sizes.head_state() + delta_rule::scratch_len(head_sizes, backward)
}

impl CpuExecutor {
    /// Stores a filter as `[kernel, channels]` in `mixer.filter[0]`, and reserves as much for its derivative.
    pub(super) fn transpose_filter(&mut self, weights: &Weights, span: Span, channels: usize) {
        let kernel = span.len / channels;
        self.mixer.filter.iter_mut().for_each(|filter| filter.reserve(span.len));
        let filter = &mut self.mixer.filter[0];
        for (channel, weights) in part(weights, span).chunks_exact(kernel).enumerate() {
            weights.iter().enumerate().for_each(|(at, &weight)| filter[at * channels + channel] = weight);
        }
    }

    /// Adds a filter's derivative, `[kernel, channels]`, to the gradient, if given, and returns its memory.
    pub(super) fn add_filter(
        &mut self,
        gradient: Option<&mut [f32]>,
        span: Span,
        channels: usize,
        derivative: Buffer,
    ) {
        if let Some(gradient) = gradient {
            let kernel = span.len / channels;
            for (channel, weights) in part_mut(gradient, span).chunks_exact_mut(kernel).enumerate() {
                weights.iter_mut().enumerate().for_each(|(at, d)| *d += derivative[at * channels + channel]);
            }
        }
        self.mixer.filter[1] = derivative;
    }

    /// Returns the convolution of a mixer's inputs `x`, after [`CpuExecutor::transpose_filter`].
    fn convolution<'a>(&'a self, layout: MixerLayout, x: &'a [f32]) -> Convolution<'a> {
        let (channels, stride) = (layout.sizes.channels(), layout.sizes.input_width());
        Convolution { filter: &self.mixer.filter[0][..layout.filter.len], channels, stride, x }
    }

    /// Normalises queries and keys in place, and computes the gates.
    fn prepare(&mut self, mixer: &Mixer<'_, Weights, Lists>, rows: usize, x: &[f32], mixed: &mut [f32]) {
        let sizes = mixer.layout.sizes;
        let (heads, keys, size) =
            (sizes.linear_num_value_heads, sizes.linear_num_key_heads, sizes.linear_key_head_dim);
        let (channels, stride) = (sizes.channels(), sizes.input_width());
        let (a_log, dt_bias) =
            (part(mixer.weights, mixer.layout.a_log), part(mixer.weights, mixer.layout.dt_bias));
        let MixerScratch { gates, lengths, .. } = &mut self.mixer;
        let [mut gates, mut lengths] = [gates, lengths].map(std::mem::take);
        gates.reserve(rows * 2 * heads);
        lengths.reserve(rows * 2 * keys);
        let outputs = [(&mut gates[..], 2 * heads), (&mut lengths[..], 2 * keys), (mixed, channels)];
        self.rows(rows, channels, outputs, |range, [gates, lengths, mixed]| {
            let rows = gates.chunks_exact_mut(2 * heads).zip(lengths.chunks_exact_mut(2 * keys));
            for (row, ((gates, lengths), mixed)) in range.zip(rows.zip(mixed.chunks_exact_mut(channels))) {
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
        self.rows(rows, stride, [(first, width + rest), (second, width)], |range, [first, second]| {
            let outputs = first.chunks_exact_mut(width + rest).zip(second.chunks_exact_mut(width));
            for (row, (first, second)) in range.zip(outputs) {
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
        self.rows(rows, 2 * width, [(x, 2 * width)], |range, [x]| {
            for (row, pairs) in range.zip(x.chunks_exact_mut(2 * width)) {
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
        self.rows(len, 3, [(&mut y[..len], 1)], |range, [y]| function(&gate[range.clone()], &x[range], y));
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
        // In terms of the MLP's gate, `x` is replaced by its derivative and `dy` by `y`.
        y[..len].copy_from_slice(&x[..len]);
        let outputs = [(&mut gate[..len], 1), (&mut y[..len], 1), (&mut dy[..len], 1)];
        self.rows(len, 3, outputs, |_, [gate, dx, to]| backward(gate, dx, to));
        std::mem::swap(y, dy);
    }

    fn convolve(
        &mut self,
        mixer: Mixer<'_, Weights, Lists>,
        cache: Option<&mut Cache>,
        x: &Buffer,
        y: &mut Buffer,
    ) {
        let (lists, channels) = (mixer.lists, mixer.layout.sizes.channels());
        self.transpose_filter(mixer.weights, mixer.layout.filter, channels);
        let convolution = self.convolution(mixer.layout, x);
        let work = mixer.layout.filter.len;
        self.rows(lists.tokens.len(), work, [(y, channels)], |range, [y]| {
            for (row, y) in range.zip(y.chunks_exact_mut(channels)) {
                convolution.row(lists, row, &(0..channels), y);
                simd::silu(y);
            }
        });
        if let Some(cache) = cache {
            convolution.store(lists, mixer.layout.sizes.state(), &mut cache.states[mixer.index]);
        }
    }

    fn convolve_backward(
        &mut self,
        mixer: Mixer<'_, Weights, Lists>,
        gradient: Option<&mut [f32]>,
        x: &Buffer,
        dy: &mut Buffer,
        dx: &mut Buffer,
    ) {
        let (lists, rows) = (mixer.lists, mixer.lists.tokens.len());
        let (channels, len) = (mixer.layout.sizes.channels(), mixer.layout.filter.len);
        self.transpose_filter(mixer.weights, mixer.layout.filter, channels);
        let mut derivative = std::mem::take(&mut self.mixer.filter[1]);
        derivative[..len].fill(0.0);
        let convolution = self.convolution(mixer.layout, x);
        let outputs = [(&mut derivative[..], channels), (dy, channels), (dx, convolution.stride)];
        self.team.split_columns(
            channels,
            16,
            rows * len,
            outputs,
            |_, range, [mut dfilter, mut dy, mut dx]| {
                let mut sum = vec![0.0; range.len()];
                for row in 0..rows {
                    dx.row(row).fill(0.0);
                }
                for row in 0..rows {
                    convolution.row(lists, row, &range, &mut sum);
                    let dy = dy.row(row);
                    simd::silu_backward(&sum, dy);
                    for (from, at) in convolution.seen(lists, row) {
                        simd::multiply_add(convolution.weights(at, &range), dy, dx.row(from));
                        simd::multiply_add(convolution.input(from, &range), dy, dfilter.row(at));
                    }
                }
            },
        );
        self.add_filter(gradient, mixer.layout.filter, channels, derivative);
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
        let (sizes, count) = (mixer.layout.sizes, lists.tokens.len());
        self.prepare(&mixer, count, x, mixed);
        let (queries, stretches) = (&lists.plan(rows).rows, &lists.stretches);
        let (heads, size, numbers) =
            (sizes.linear_num_value_heads, sizes.linear_value_head_dim, sizes.head_state());
        let slots = slots(stretches);
        let inputs = Inputs { sizes, mixed, gates: &self.mixer.gates };
        let outputs = [(&mut out[..], heads * size)];
        let states = cache.map(|cache| Shared::new(&mut cache.states[mixer.index]));
        let work = count * heads * numbers;
        self.team.split_columns(heads * size, size, work, outputs, |part, range, [mut out]| {
            let Scratch { states: scratch, rule, .. } = &mut *self.scratch(part);
            scratch.reserve((slots + 1) * numbers);
            let (state, saved) = scratch.split_at_mut(numbers);
            for head in range.start / size..range.end / size {
                let mut next = 0;
                for (tree, stretch_range) in trees(stretches).enumerate() {
                    let whole = (stretch_range, head, states.is_some());
                    inputs.advance(stretches, whole, (rule, state, saved), |stretch, rule, state| {
                        let Range { start, end } = stretch.rows;
                        let needed = queries[next..].partition_point(|&row| (row as usize) < end);
                        if needed == 0 {
                            return;
                        }
                        let results = rule.out(state);
                        for (at, &row) in queries.iter().enumerate().skip(next).take(needed) {
                            let to = out.part(at, head * size..(head + 1) * size);
                            to.copy_from_slice(&results[(row as usize - start) * size..][..size]);
                        }
                        next += needed;
                    });
                    if let (Some(states), Some(node)) = (&states, lists.nodes.get(tree)) {
                        let at = node * sizes.state() + head * numbers;
                        // SAFETY: each head belongs to one thread.
                        unsafe { states.part(at..at + numbers) }.copy_from_slice(state);
                    }
                }
            }
        });
    }

    fn delta_rule_backward(
        &mut self,
        mixer: Mixer<'_, Weights, Lists>,
        gradient: Option<&mut [f32]>,
        x: &Buffer,
        dout: &Buffer,
        mixed: &mut Buffer,
        dx: &mut Buffer,
    ) {
        let (lists, rows) = (mixer.lists, mixer.rows);
        let (sizes, count) = (mixer.layout.sizes, lists.tokens.len());
        self.prepare(&mixer, count, x, mixed);
        let (queries, stretches) = (&lists.plan(rows).rows, &lists.stretches);
        let (heads, keys) = (sizes.linear_num_value_heads, sizes.linear_num_key_heads);
        let (key_size, size, numbers) =
            (sizes.linear_key_head_dim, sizes.linear_value_head_dim, sizes.head_state());
        let (channels, stride) = (sizes.channels(), sizes.input_width());
        let (a_log, dt_bias) =
            (part(mixer.weights, mixer.layout.a_log), part(mixer.weights, mixer.layout.dt_bias));
        let slots = slots(stretches);
        let mut derivative = std::mem::take(&mut self.mixer.derivative);
        derivative.reserve(count * channels);
        let inputs = Inputs { sizes, mixed, gates: &self.mixer.gates };
        let lengths = &self.mixer.lengths;
        let (dmixed, dx) = (Shared::new(&mut derivative), Shared::new(dx));
        let gradient = gradient.map(Shared::new);
        self.team.split(keys, 1, count * heads * numbers, |part, range| {
            let Scratch { states: scratch, rule, dout: stretch_dout, .. } = &mut *self.scratch(part);
            scratch.reserve((2 * slots + 2) * numbers);
            let (saved, rest) = scratch.split_at_mut(slots * numbers);
            let (dsaved, rest) = rest.split_at_mut(slots * numbers);
            let (dstate, rest) = rest.split_at_mut(numbers);
            let state = &mut rest[..numbers];
            for key in range {
                let derivative = |row: usize, columns: &Range<usize>| {
                    // SAFETY: each key head, with its value heads, belongs to one thread.
                    unsafe { dmixed.part(row * channels + columns.start..row * channels + columns.end) }
                };
                let group = key * heads / keys..(key + 1) * heads / keys;
                let [q_columns, k_columns, _] = inputs.columns(group.start);
                for row in 0..count {
                    derivative(row, &q_columns).fill(0.0);
                    derivative(row, &k_columns).fill(0.0);
                }
                for head in group {
                    let [.., v_columns] = inputs.columns(head);
                    let rate = -a_log[head].exp();
                    let (mut da_log, mut ddt_bias) = (0.0f64, 0.0f64);
                    for tree in trees(stretches) {
                        // The errors are stored where the derivatives of values will be.
                        let whole = (tree.clone(), head, false);
                        inputs.advance(stretches, whole, (rule, state, saved), |stretch, rule, _| {
                            for (row, error) in stretch.rows.clone().zip(rule.errors.chunks_exact(size)) {
                                derivative(row, &v_columns).copy_from_slice(error);
                            }
                        });
                        state.fill(0.0);
                        dsaved.fill(0.0);
                        for index in tree.rev() {
                            let stretch = &stretches[index];
                            let rows = stretch.rows.clone();
                            let before = state_before(stretches, stretch, numbers);
                            match stretch.state_slot {
                                None => dstate.fill(0.0),
                                Some(slot) => dstate.copy_from_slice(&dsaved[slot * numbers..][..numbers]),
                            }
                            stretch_dout.clear();
                            for row in rows.clone() {
                                match queries.binary_search(&(row as u32)) {
                                    Ok(at) => stretch_dout
                                        .extend_from_slice(&dout[(at * heads + head) * size..][..size]),
                                    Err(_) => stretch_dout.resize(stretch_dout.len() + size, 0.0),
                                }
                            }
                            let token =
                                |row| Token { v: derivative(row, &v_columns), ..inputs.token(row, head) };
                            rule.load(inputs.head_sizes(), rows.clone().map(token));
                            let state = before.clone().map_or(&*state, |range| &saved[range]);
                            rule.backward(state, stretch_dout, dstate);
                            for (at, row) in rows.enumerate() {
                                simd::add(&rule.dq[at * key_size..][..key_size], derivative(row, &q_columns));
                                simd::add(&rule.dk[at * key_size..][..key_size], derivative(row, &k_columns));
                                derivative(row, &v_columns).copy_from_slice(&rule.dv[at * size..][..size]);
                                let b = row * stride + channels + head;
                                let a = b + heads;
                                // log keep = rate · softplus(step)
                                let step = x[a] + dt_bias[head];
                                let da = rule.dkeep[at] * rate * sigmoid(step);
                                // SAFETY: each head belongs to one thread.
                                unsafe {
                                    dx.part(b..b + 1)[0] = rule.dwrite[at];
                                    dx.part(a..a + 1)[0] = da;
                                }
                                ddt_bias += f64::from(da);
                                da_log += f64::from(rule.dkeep[at] * rate * softplus(step));
                            }
                            if let Some(slot) = before {
                                simd::add(dstate, &mut dsaved[slot]);
                            }
                        }
                    }
                    if let Some(gradient) = &gradient {
                        for (span, sum) in [(mixer.layout.a_log, da_log), (mixer.layout.dt_bias, ddt_bias)] {
                            let at = span.offset + head;
                            // SAFETY: each head belongs to one thread.
                            unsafe { gradient.part(at..at + 1)[0] += sum as f32 };
                        }
                    }
                }
                // Derivatives through the normalisation of the head's queries and keys.
                for row in 0..count {
                    let mixed = &inputs.mixed[row * channels..][..channels];
                    let lengths = &lengths[row * 2 * keys..][..2 * keys];
                    let root = (key_size as f32).sqrt();
                    for (columns, length, factor) in
                        [(&q_columns, lengths[key], 1.0 / root), (&k_columns, lengths[keys + key], 1.0)]
                    {
                        let (y, d) = (&mixed[columns.clone()], derivative(row, columns));
                        // `y` is a unit vector multiplied by the factor.
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
        mixer: Mixer<'_, Weights, Lists>,
        decoding: &Decoding,
        cache: &mut Cache,
        x: &Buffer,
        mixed: &mut Buffer,
        out: &mut Buffer,
    ) {
        let (sizes, nodes) = (mixer.layout.sizes, &decoding.step.states);
        let (channels, state, rows) = (sizes.channels(), sizes.state(), nodes.len());
        self.transpose_filter(mixer.weights, mixer.layout.filter, channels);
        let convolution = self.convolution(mixer.layout, x);
        let states = Shared::new(&mut cache.states[mixer.index]);
        self.columns(rows, channels, mixed, |range, mut y| {
            for (row, &nodes) in nodes.iter().enumerate() {
                let y = y.row(row);
                // SAFETY: each channel belongs to one thread.
                unsafe {
                    convolution.step((&states, state, nodes), &range, convolution.input(row, &range), y)
                };
                simd::silu(y);
            }
        });
        self.prepare(&mixer, rows, x, mixed);
        let (heads, size, numbers) =
            (sizes.linear_num_value_heads, sizes.linear_value_head_dim, sizes.head_state());
        let inputs = Inputs { sizes, mixed, gates: &self.mixer.gates };
        let (work, outputs) = (rows * heads * numbers, [(&mut out[..], heads * size)]);
        self.team.split_columns(heads * size, size, work, outputs, |part, range, [mut out]| {
            let error = &mut self.scratch(part).states;
            error.reserve(size);
            for head in range.start / size..range.end / size {
                for (row, &[from, to]) in nodes.iter().enumerate() {
                    let at = |node: usize| node * state + head * numbers..node * state + (head + 1) * numbers;
                    // SAFETY: each head belongs to one thread, and the states of `from` and `to` are identical or disjoint.
                    let state = unsafe {
                        let state = states.part(at(to));
                        if from != to {
                            state.copy_from_slice(states.part(at(from)));
                        }
                        state
                    };
                    let out = out.part(row, head * size..(head + 1) * size);
                    simd::delta_step(inputs.token(row, head), state, &mut error[..size], out);
                }
            }
        });
    }
}
