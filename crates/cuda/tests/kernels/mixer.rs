//! Gates, the convolution along paths, and the gated delta rule with its derivatives.

use super::numbers as numbers_of;
use super::*;

const NONE: u32 = u32::MAX;

/// Sizes of the delta rule, and its runs of five words each. The second run continues the first, and so does the third.
struct Case {
    heads: usize,
    key_heads: usize,
    key: usize,
    value: usize,
}

const ROWS: usize = 80;
const RUNS: [[u32; 5]; 3] = [[0, 40, NONE, 0, NONE], [40, 75, 0, NONE, NONE], [75, 80, 0, NONE, 1]];
/// The same with a slot after each stretch of 32.
const STRETCHES: [[u32; 5]; 3] = [[0, 40, NONE, 0, NONE], [40, 75, 1, 2, NONE], [75, 80, 1, 4, NONE]];
/// Rows whose results are requested, and their positions in the output.
const SKIPPED: usize = 3;

/// The results of the definition, and the derivatives of the sum of results times `dout`.
struct Reference {
    out: Vec<f64>,
    last: Vec<f64>,
    dmixed: Vec<f64>,
    dgates: Vec<f64>,
}

impl Case {
    fn channels(&self) -> usize {
        2 * self.key_heads * self.key + self.heads * self.value
    }

    fn places(&self) -> Vec<u32> {
        (0..ROWS as u32).map(|row| if row < SKIPPED as u32 { NONE } else { row - SKIPPED as u32 }).collect()
    }

    /// Computes token by token, and back.
    fn reference(&self, mixed: &[f32], gates: &[f32], dout: &[f32]) -> Reference {
        let Case { heads, key_heads, key, value } = *self;
        let (channels, numbers) = (self.channels(), key * value);
        let mut found = Reference {
            out: vec![0.0; ROWS * heads * value],
            last: vec![0.0; heads * numbers],
            dmixed: vec![0.0; ROWS * channels],
            dgates: vec![0.0; ROWS * 2 * heads],
        };
        let mixed: Vec<f64> = wide(mixed);
        let previous = |row: usize| match row {
            0 => None,
            40 | 75 => Some(39),
            _ => Some(row - 1),
        };
        for head in 0..heads {
            let q = head / (heads / key_heads) * key;
            let (k, v) = (key_heads * key + q, 2 * key_heads * key + head * value);
            let gate = |row: usize| {
                let own = &gates[row * 2 * heads..];
                (f64::from(own[head]), f64::from(own[heads + head]).exp())
            };
            // States after each row, [value, key].
            let mut states: Vec<Vec<f64>> = Vec::new();
            let mut errors = Vec::new();
            for row in 0..ROWS {
                let (write, keep) = gate(row);
                let x = &mixed[row * channels..][..channels];
                let before = previous(row).map_or_else(|| vec![0.0; numbers], |row| states[row].clone());
                let mut state: Vec<f64> = before.iter().map(|s| s * keep).collect();
                let error: Vec<f64> = (0..value)
                    .map(|j| {
                        write * (x[v + j] - (0..key).map(|i| state[j * key + i] * x[k + i]).sum::<f64>())
                    })
                    .collect();
                for j in 0..value {
                    (0..key).for_each(|i| state[j * key + i] += x[k + i] * error[j]);
                    found.out[(row * heads + head) * value + j] =
                        (0..key).map(|i| state[j * key + i] * x[q + i]).sum();
                }
                states.push(state);
                errors.push(error);
            }
            found.last[head * numbers..][..numbers].copy_from_slice(&states[ROWS - 1]);
            let mut dstates = vec![vec![0.0; numbers]; ROWS];
            for row in (0..ROWS).rev() {
                let (write, keep) = gate(row);
                let x = &mixed[row * channels..][..channels];
                let zeros = vec![0.0; numbers];
                let before = previous(row).map_or(&zeros, |row| &states[row]);
                let mut d = std::mem::take(&mut dstates[row]);
                let dx = &mut found.dmixed[row * channels..][..channels];
                for j in 0..value {
                    if let Some(place) = row.checked_sub(SKIPPED) {
                        let dout = f64::from(dout[(place * heads + head) * value + j]);
                        for i in 0..key {
                            dx[q + i] += states[row][j * key + i] * dout;
                            d[j * key + i] += x[q + i] * dout;
                        }
                    }
                    let derror: f64 = (0..key).map(|i| d[j * key + i] * x[k + i]).sum();
                    let read: f64 = (0..key).map(|i| keep * before[j * key + i] * x[k + i]).sum();
                    dx[v + j] += write * derror;
                    // With respect to b, through the sigmoid.
                    found.dgates[row * 2 * heads + head] +=
                        derror * (x[v + j] - read) * write * (1.0 - write);
                    for i in 0..key {
                        let at = j * key + i;
                        dx[k + i] += d[at] * errors[row][j] - write * derror * keep * before[at];
                        d[at] -= write * derror * x[k + i];
                        // With respect to the logarithm of the decay.
                        found.dgates[row * 2 * heads + heads + head] += d[at] * keep * before[at];
                        d[at] *= keep;
                    }
                }
                if let Some(before) = previous(row) {
                    dstates[before].iter_mut().zip(&d).for_each(|(to, d)| *to += d);
                }
            }
        }
        found
    }

    fn arguments(&self, first: usize, step: usize) -> [Argument; 6] {
        [self.heads, self.key_heads, self.key, self.value, first, step].map(|n| Argument::U32(n as u32))
    }

    fn shape(&self, runs: usize, heads: usize) -> Shape {
        let grid = [runs as u32, heads as u32, self.value.div_ceil(32) as u32];
        Shape { grid, threads: 128, shared: 4 * 2 * 8 * 128 }
    }
}

#[test]
fn the_delta_rule_and_its_derivatives_are_by_definition() {
    let whole = Case { heads: 2, key_heads: 1, key: 128, value: 128 };
    for case in [whole, Case { heads: 3, key_heads: 3, key: 20, value: 36 }] {
        let Case { heads, key_heads, key, value } = case;
        let (channels, numbers) = (case.channels(), key * value);
        // Queries and keys have about unit length, because they are normalised.
        let long = (key as f32 / 3.0).sqrt();
        let mixed: Vec<f32> = numbers_of(70, ROWS * channels).into_iter().map(|v| v / long).collect();
        let gates: Vec<f32> = numbers_of(71, ROWS * 2 * heads)
            .into_iter()
            .enumerate()
            .map(|(i, v)| if i / heads % 2 == 0 { 0.5 + 0.4 * v } else { -0.2 - 0.2 * v })
            .collect();
        let dout = numbers_of(72, (ROWS - SKIPPED) * heads * value);
        let wanted = case.reference(&mixed, &gates, &dout);
        let (out, cached, dmixed, dgates) = in_every_order(|d| {
            let [mixed, gates, dout] = [&mixed, &gates, &dout].map(|v| memory(d, v));
            let [runs, stretches] = [RUNS, STRETCHES].map(|runs| memory(d, &runs));
            let (places, children) = (memory(d, &case.places()), memory(d, &[1u32, 3, 0, 0, 0, 0]));
            let none = Argument::U64(0);
            let zeros = |len: usize| Memory::<f32>::new(d, len).unwrap();
            let (out, cache) = (zeros((ROWS - SKIPPED) * heads * value), zeros(2 * heads * numbers));
            let states = zeros(5 * heads * numbers);
            let slot = Argument::U64((heads * numbers) as u64);
            for (first, count) in [(0u64, 1), (1, 2)] {
                let Argument::Address(at) = Argument::from(&runs) else { unreachable!() };
                let arguments: [Argument; 12] = [
                    (&mixed).into(),
                    (&gates).into(),
                    none,
                    Argument::U64(at.0 + 20 * first),
                    (&places).into(),
                    (&states).into(),
                    slot,
                    (&cache).into(),
                    slot,
                    (&out).into(),
                    none,
                    0u32.into(),
                ];
                let shape = case.shape(count, heads);
                launch(d, "delta_rule_f32", shape, &[&arguments[..], &case.arguments(0, 1)].concat());
            }
            let (dmixed, dgates) = (zeros(ROWS * channels), zeros(ROWS * 2 * heads));
            let (dstates, errors) = (zeros(3 * 2 * key_heads * numbers), zeros(ROWS * key_heads * value));
            let (group, slot) = (heads / key_heads, Argument::U64((key_heads * numbers) as u64));
            for member in 0..group {
                let own = case.arguments(member, group);
                for (first, count) in [(0u64, 1), (1, 2)] {
                    let Argument::Address(at) = Argument::from(&stretches) else { unreachable!() };
                    let arguments: [Argument; 12] = [
                        (&mixed).into(),
                        (&gates).into(),
                        none,
                        Argument::U64(at.0 + 20 * first),
                        none,
                        (&states).into(),
                        slot,
                        none,
                        Argument::U64(0),
                        none,
                        (&errors).into(),
                        32u32.into(),
                    ];
                    let shape = case.shape(count, key_heads);
                    launch(d, "delta_rule_f32", shape, &[&arguments[..], &own].concat());
                }
                for (first, count) in [(1u32, 2u32), (0, 1)] {
                    let arguments: [Argument; 14] = [
                        (&mixed).into(),
                        (&gates).into(),
                        (&stretches).into(),
                        (&children).into(),
                        (&places).into(),
                        (&states).into(),
                        slot,
                        (&dstates).into(),
                        (&errors).into(),
                        (&dout).into(),
                        (&dmixed).into(),
                        (&dgates).into(),
                        first.into(),
                        u32::from(member > 0).into(),
                    ];
                    let shape = Shape {
                        grid: [count, key_heads as u32, 1],
                        threads: 256,
                        shared: 4 * (5 * 32 * 132 + 2 * 32 * 33 + 3 * 32 + 8),
                    };
                    launch(d, "delta_rule_backward_f32", shape, &[&arguments[..], &own].concat());
                }
            }
            let cached = cache.read().unwrap()[heads * numbers..].to_vec();
            (out.read().unwrap(), cached, dmixed.read().unwrap(), dgates.read().unwrap())
        });
        close(&out, &wanted.out[SKIPPED * heads * value..], 1e-5, "results");
        close(&cached, &wanted.last, 1e-5, "the last state");
        close(&dmixed, &wanted.dmixed, 2e-5, "derivatives by queries, keys and values");
        close(&dgates, &wanted.dgates, 2e-5, "derivatives by gates");
    }
}

#[test]
fn gates_and_their_derivatives_are_by_definition() {
    let sigmoid = |g: f64| 1.0 / (1.0 + (-g).exp());
    let functions: [&dyn Fn(f64) -> f64; 2] = [&sigmoid, &|g| g * sigmoid(g)];
    let [gate, x, dy] = [80, 81, 82].map(|seed| numbers_of(seed, 100));
    for (silu, function) in functions.into_iter().enumerate() {
        let (y, again, dgate, dx) = in_every_order(|d| {
            let [gates, x, dy, y, again] = [&gate, &x, &dy, &dy, &dy].map(|v| memory(d, v));
            let last = [Argument::U32(silu as u32), Argument::U32(100)];
            let forward = [(&gates).into(), (&x).into(), (&y).into(), last[0], last[1]];
            launch(d, "gate_f32", Shape::covering(100, 64), &forward);
            let backward = [(&gates).into(), (&x).into(), (&dy).into(), (&again).into(), last[0], last[1]];
            launch(d, "gate_backward_f32", Shape::covering(100, 64), &backward);
            let [y, again, gates, dy] = [&y, &again, &gates, &dy].map(|memory| memory.read().unwrap());
            (y, again, gates, dy)
        });
        assert_eq!(y, again);
        for i in 0..100 {
            let [g, v, up] = [gate[i], x[i], dy[i]].map(f64::from);
            let slope = (function(g + 1e-5) - function(g - 1e-5)) / 2e-5;
            close(
                &[y[i], dx[i], dgate[i]],
                &[function(g) * v, up * function(g), up * v * slope],
                1e-6,
                "gate",
            );
        }
    }
}
