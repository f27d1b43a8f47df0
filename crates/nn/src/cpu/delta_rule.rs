//! The gated delta rule for a stretch of rows, forward and backward, by products of small matrices (the chunked form of Yang et al., "Gated Delta
//! Networks", 2024).
//!
//! Row by row, as decoding computes it with [`simd::delta_step`], a state `S`: `[keys, values]` follows
//! `e_t = write_t (v_t - keep_t k_t S)`, `S = keep_t S + k_tᵀ e_t`, `out_t = q_t S`. For a stretch that begins with state `S`, let `D_ti` be the
//! product of `keep` over the rows after `i` up to `t`, and `G_t` its product over all rows up to `t`. Then
//!
//! ```text
//! (I + A) E = write (V - G K S)     A_ti = write_t D_ti k_t·k_i   for i < t
//! out = G Q S + B E                 B_ti = D_ti q_t·k_i           for i <= t
//! after = G_n S + Kᵀ (D_n E)
//! ```
//!
//! `D` and `G` are products of values up to 1 and may underflow, so nothing is divided by them. The derivative with respect to `log keep_t` is the
//! sum of the terms of all pairs (of two rows, or of a row and a state) that `keep_t` lies between; it is not computed as a difference of large sums.

use super::product::{View, product};
use super::simd::{self, Token};
use crate::layout::Write::{Add, Replace};
use crate::segments::STRETCH;

/// A stretch of `n` rows of one head, with one thread's scratch memory.
#[derive(Default)]
pub(crate) struct DeltaRule {
    /// Size of a key, and of a value.
    sizes: [usize; 2],
    /// `q` and `k`, the queries and keys of the rows: `[n, keys]` each.
    q: Vec<f32>,
    k: Vec<f32>,
    /// The rows' values before [`DeltaRule::errors`], and their errors `E` after it: `[n, values]`.
    pub(crate) errors: Vec<f32>,
    write: Vec<f32>,
    /// Decays `D` between rows, with 0 for `i > t`: `[n, n]`.
    decay: Vec<f32>,
    /// Decay `G` from the start of the stretch to each row: `[n]`.
    gate: Vec<f32>,
    /// `-A`, with 0 for `i >= t`, and `B`, as in the module's equations: `[n, n]` each.
    minus_a: Vec<f32>,
    b: Vec<f32>,
    /// The results `out`, and the errors decayed to the end of the stretch, `D_n E`: `[n, values]` each.
    out: Vec<f32>,
    scaled: Vec<f32>,
    /// Scratch memory: `[n, keys]`.
    part: Vec<f32>,
    /// Derivatives with respect to `A` and `B`: `[n, n]`.
    da: Vec<f32>,
    db: Vec<f32>,
    /// Results of [`DeltaRule::backward`]: `dq` and `dk` are `[n, keys]`, and `dv` is `[n, values]`.
    pub(crate) dq: Vec<f32>,
    pub(crate) dk: Vec<f32>,
    pub(crate) dv: Vec<f32>,
    /// Derivative with respect to the logit of `write`: `[n]`.
    pub(crate) dwrite: Vec<f32>,
    /// Derivative with respect to the logarithm of `keep`: `[n]`.
    pub(crate) dkeep: Vec<f32>,
}

/// Returns the number of values that a [`DeltaRule`] allocates, with or without a backward pass, including `dout`.
pub(crate) fn scratch_len([keys, values]: [usize; 2], backward: bool) -> usize {
    let [by_key, by_value, pairs] = if backward { [5, 5, 5] } else { [2, 3, 3] };
    STRETCH * (by_key * keys + by_value * values + pairs * STRETCH)
}

/// Sets `y` to the rows of `x`, each multiplied by its factor.
fn scale_rows(width: usize, factors: impl Iterator<Item = f32>, x: &[f32], y: &mut Vec<f32>) {
    y.clear();
    y.extend_from_slice(x);
    y.chunks_exact_mut(width).zip(factors).for_each(|(row, factor)| simd::scale(row, factor));
}

/// Adds the dot products of corresponding rows to `sums`.
fn add_dots(width: usize, x: &[f32], y: &[f32], sums: &mut [f32]) {
    let rows = x.chunks_exact(width).zip(y.chunks_exact(width));
    sums.iter_mut().zip(rows).for_each(|(sum, (x, y))| *sum += simd::dot(x, y));
}

impl DeltaRule {
    /// Loads the rows of a stretch. `sizes` are the sizes of a key and of a value.
    pub(crate) fn load<'a>(&mut self, sizes: [usize; 2], tokens: impl ExactSizeIterator<Item = Token<'a>>) {
        let n = tokens.len();
        self.sizes = sizes;
        for list in [&mut self.q, &mut self.k, &mut self.errors, &mut self.write, &mut self.gate] {
            list.clear();
        }
        self.decay.clear();
        self.decay.resize(n * n, 0.0);
        for (t, Token { q, k, v, write, keep }) in tokens.enumerate() {
            self.q.extend_from_slice(q);
            self.k.extend_from_slice(k);
            self.errors.extend_from_slice(v);
            self.write.push(write);
            self.gate.push(keep * self.gate.last().unwrap_or(&1.0));
            let (before, row) = self.decay.split_at_mut(t * n);
            let before = &before[t.saturating_sub(1) * n..];
            row.iter_mut().zip(before).take(t).for_each(|(decay, before)| *decay = keep * before);
            row[t] = 1.0;
        }
    }

    fn corrections(&mut self) {
        let (n, k) = (self.write.len(), View::rows(0, self.sizes[0]));
        self.minus_a.resize(n * n, 0.0);
        let to = View::rows(0, n).to(Replace, &mut self.minus_a);
        product([n, n, self.sizes[0]], k.of(&self.k), k.transposed().of(&self.k), to);
        let rows = self.minus_a.chunks_exact_mut(n).zip(self.decay.chunks_exact(n));
        for (t, ((row, decay), write)) in rows.zip(&self.write).enumerate() {
            row.iter_mut().zip(decay).for_each(|(a, decay)| *a *= -write * decay);
            row[t..].fill(0.0);
        }
    }

    fn reads(&mut self) {
        let (n, k) = (self.write.len(), View::rows(0, self.sizes[0]));
        self.b.resize(n * n, 0.0);
        let to = View::rows(0, n).to(Replace, &mut self.b);
        product([n, n, self.sizes[0]], k.of(&self.q), k.transposed().of(&self.k), to);
        self.b.iter_mut().zip(&self.decay).for_each(|(b, decay)| *b *= decay);
    }

    /// Computes the errors `E`. `state` is the state before the stretch.
    pub(crate) fn errors(&mut self, state: &[f32]) {
        let (n, [keys, values]) = (self.write.len(), self.sizes);
        let row = View::rows(0, values);
        self.corrections();
        self.scaled.resize(n * values, 0.0);
        let predicted = row.to(Replace, &mut self.scaled);
        product([n, values, keys], View::rows(0, keys).of(&self.k), row.of(state), predicted);
        let rows = self.errors.chunks_exact_mut(values).zip(self.scaled.chunks_exact(values));
        for ((errors, predicted), (write, gate)) in rows.zip(self.write.iter().zip(&self.gate)) {
            errors
                .iter_mut()
                .zip(predicted)
                .for_each(|(error, predicted)| *error = write * (*error - gate * predicted));
        }
        for t in 1..n {
            let (before, row_t) = self.errors.split_at_mut(t * values);
            let a = View::rows(t * n, n).of(&self.minus_a);
            product([1, values, t], a, row.of(before), row.to(Add, row_t));
        }
    }

    /// Computes the results of all rows, after [`DeltaRule::errors`] with the same state.
    pub(crate) fn out(&mut self, state: &[f32]) -> &[f32] {
        let (n, [keys, values]) = (self.write.len(), self.sizes);
        let row = View::rows(0, values);
        self.reads();
        self.out.resize(n * values, 0.0);
        let to = row.to(Replace, &mut self.out);
        product([n, values, keys], View::rows(0, keys).of(&self.q), row.of(state), to);
        let rows = self.out.chunks_exact_mut(values).zip(&self.gate);
        rows.for_each(|(out, &gate)| simd::scale(out, gate));
        let to = row.to(Add, &mut self.out);
        product([n, values, n], View::rows(0, n).of(&self.b), row.of(&self.errors), to);
        &self.out
    }

    /// Computes `scaled = D_n E`.
    fn scale_errors(&mut self) {
        let n = self.write.len();
        scale_rows(self.sizes[1], self.decay[(n - 1) * n..].iter().copied(), &self.errors, &mut self.scaled);
    }

    /// Computes `state += xᵀ scaled`, where `x` has rows of the size of keys.
    fn add_outer(x: &[f32], scaled: &[f32], [keys, values]: [usize; 2], state: &mut [f32]) {
        let row = View::rows(0, values);
        let x_t = View::rows(0, keys).transposed().of(x);
        product([keys, values, x.len() / keys], x_t, row.of(scaled), row.to(Add, state));
    }

    /// Replaces the state before the stretch by the state after it.
    pub(crate) fn advance(&mut self, state: &mut [f32]) {
        self.scale_errors();
        simd::scale(state, self.gate[self.write.len() - 1]);
        Self::add_outer(&self.k, &self.scaled, self.sizes, state);
    }

    /// Computes the derivatives from rows loaded with `E` as values, the `state` before the rows, and `dout`, the
    /// derivative of their results. Replaces `dstate`, the derivative of the state after the rows, by `state`'s.
    pub(crate) fn backward(&mut self, state: &[f32], dout: &[f32], dstate: &mut [f32]) {
        let (n, [keys, values]) = (self.write.len(), self.sizes);
        let (key, value, pair) = (View::rows(0, keys), View::rows(0, values), View::rows(0, n));
        let by_state = |rows: &[f32], state: &[f32], to: &mut Vec<f32>| {
            to.resize(n * keys, 0.0);
            let state = value.transposed().of(state);
            product([n, keys, values], value.of(rows), state, key.to(Replace, to));
        };
        self.corrections();
        self.reads();
        // The derivative of E, and then of the right side of (I + A) E.
        let dr = &mut self.dv;
        dr.resize(n * values, 0.0);
        product([n, values, keys], key.of(&self.k), value.of(dstate), value.to(Replace, dr));
        let last = &self.decay[(n - 1) * n..];
        dr.chunks_exact_mut(values).zip(last).for_each(|(row, &decay)| simd::scale(row, decay));
        product([n, values, n], pair.transposed().of(&self.b), value.of(dout), value.to(Add, dr));
        for t in (0..n - 1).rev() {
            let (before, after) = dr.split_at_mut((t + 1) * values);
            let a = View::rows((t + 1) * n + t, n).transposed().of(&self.minus_a);
            product(
                [1, values, n - 1 - t],
                a,
                value.of(after),
                View::rows(t * values, values).to(Add, before),
            );
        }
        self.dwrite.clear();
        self.dwrite.resize(n, 0.0);
        add_dots(values, &self.dv, &self.errors, &mut self.dwrite);
        self.dwrite.iter_mut().zip(&self.write).for_each(|(d, write)| *d *= 1.0 - write);

        // The derivatives of B and -A.
        for (rows, to) in [(dout, &mut self.db), (&self.dv, &mut self.da)] {
            to.resize(n * n, 0.0);
            let errors = value.transposed().of(&self.errors);
            product([n, n, values], value.of(rows), errors, pair.to(Replace, to));
        }
        // From here on, `db` and `da` are the derivatives of the products of rows; `da` is made symmetric.
        let all = simd::dot(state, dstate) * self.gate[n - 1];
        self.dkeep.clear();
        self.dkeep.resize(n, all);
        for t in 0..n {
            let mut sum = 0.0;
            for i in 0..t {
                let at = t * n + i;
                sum += self.db[at] * self.b[at] + self.da[at] * self.minus_a[at];
                self.dkeep[i + 1] += sum;
                let d = -self.da[at] * self.write[t] * self.decay[at];
                (self.da[at], self.da[i * n + t]) = (d, d);
            }
            self.da[t * n + t] = 0.0;
        }
        self.db.iter_mut().zip(&self.decay).for_each(|(d, decay)| *d *= decay);

        // Derivatives of queries and keys: through the state after the rows, through the state before them, and through the products of rows.
        self.scale_errors();
        by_state(&self.scaled, dstate, &mut self.dk);
        let mut sum = 0.0;
        for (t, (k, d)) in self.k.chunks_exact(keys).zip(self.dk.chunks_exact(keys)).enumerate() {
            self.dkeep[t] += sum;
            sum += simd::dot(k, d);
        }
        simd::scale(dstate, self.gate[n - 1]);
        scale_rows(values, self.gate.iter().copied(), dout, &mut self.scaled);
        by_state(&self.scaled, state, &mut self.dq);
        Self::add_outer(&self.q, &self.scaled, self.sizes, dstate);
        let factors = self.write.iter().zip(&self.gate).map(|(write, gate)| -write * gate);
        scale_rows(values, factors, &self.dv, &mut self.scaled);
        by_state(&self.scaled, state, &mut self.part);
        Self::add_outer(&self.k, &self.scaled, self.sizes, dstate);
        simd::add(&self.part, &mut self.dk);
        let mut sum = 0.0;
        for t in (0..n).rev() {
            let row = t * keys..(t + 1) * keys;
            sum += simd::dot(&self.q[row.clone()], &self.dq[row.clone()]);
            sum += simd::dot(&self.k[row.clone()], &self.part[row]);
            self.dkeep[t] += sum;
        }
        let (da, db) = (pair.of(&self.da), pair.of(&self.db));
        product([n, keys, n], db, key.of(&self.k), key.to(Add, &mut self.dq));
        product([n, keys, n], db.transposed(), key.of(&self.q), key.to(Add, &mut self.dk));
        product([n, keys, n], da, key.of(&self.k), key.to(Add, &mut self.dk));
        let rows = self.dv.chunks_exact_mut(values).zip(&self.write);
        rows.for_each(|(row, &write)| simd::scale(row, write));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stretch with random values: `q`, `k` of length 1, `v`, `write`, the logarithm of `keep`, and the state before.
    struct Case {
        sizes: [usize; 2],
        rows: usize,
        lists: [Vec<f64>; 6],
    }

    const NAMES: [&str; 6] = ["q", "k", "v", "write", "keep", "state"];

    /// Returns pseudo-random values in (-1, 1).
    fn numbers(seed: usize, count: usize) -> Vec<f64> {
        let number = |i: usize| ((i + 1) * (2 * seed + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        (0..count).map(|i| number(i) as f64 / (1 << 23) as f64 - 1.0).collect()
    }

    /// Makes a case. `rate` is the largest decay of a row, as a logarithm. With `similar`, keys are nearly equal.
    fn case(sizes: [usize; 2], rows: usize, rate: f64, similar: bool) -> Case {
        let [keys, values] = sizes;
        let unit = |seed: usize, similar: bool| {
            let mut x = numbers(seed, rows * keys);
            for row in x.chunks_exact_mut(keys) {
                row.iter_mut().for_each(|x| *x = if similar { 1.0 + 0.1 * *x } else { *x });
                let length = row.iter().map(|x| x * x).sum::<f64>().sqrt();
                row.iter_mut().for_each(|x| *x /= length);
            }
            x
        };
        let write = numbers(4, rows).iter().map(|x| 0.5 + 0.5 * x).collect();
        let keep = numbers(5, rows).iter().map(|x| -rate * (0.5 + 0.5 * x).powi(4)).collect();
        let (v, state) = (numbers(3, rows * values), numbers(6, keys * values));
        Case { sizes, rows, lists: [unit(1, false), unit(2, similar), v, write, keep, state] }
    }

    impl Case {
        /// Returns the results and the state after the rows, computed row by row in f64.
        fn exact(&self) -> [Vec<f64>; 2] {
            let ([keys, values], [q, k, v, write, keep, state]) = (self.sizes, &self.lists);
            let (mut state, mut out) = (state.clone(), Vec::new());
            for t in 0..self.rows {
                let (q, k) = (&q[t * keys..][..keys], &k[t * keys..][..keys]);
                let read = |state: &[f64], by: &[f64], j: usize| -> f64 {
                    by.iter().enumerate().map(|(i, x)| x * state[i * values + j]).sum()
                };
                state.iter_mut().for_each(|x| *x *= keep[t].exp());
                for j in 0..values {
                    let error = write[t] * (v[t * values + j] - read(&state, k, j));
                    k.iter().enumerate().for_each(|(i, k)| state[i * values + j] += k * error);
                    out.push(read(&state, q, j));
                }
            }
            [out, state]
        }

        fn singles(&self) -> [Vec<f32>; 6] {
            let mut lists = self.lists.clone();
            lists[4].iter_mut().for_each(|x| *x = x.exp());
            lists.map(|list| list.iter().map(|&x| x as f32).collect())
        }

        fn load(&self, rule: &mut DeltaRule, [q, k, _, write, keep, _]: &[Vec<f32>; 6], v: &[f32]) {
            let [keys, values] = self.sizes;
            let token = |t: usize| {
                let (q, k) = (&q[t * keys..][..keys], &k[t * keys..][..keys]);
                Token { q, k, v: &v[t * values..][..values], write: write[t], keep: keep[t] }
            };
            rule.load(self.sizes, (0..self.rows).map(token));
        }
    }

    fn cases() -> impl Iterator<Item = Case> {
        let sizes = [([1, 1], 1), ([9, 7], 1), ([9, 7], 2), ([8, 24], 17), ([40, 24], STRETCH)];
        let all = sizes.into_iter().flat_map(|sizes| [1e-3, 0.5, 30.0].map(|rate| (sizes, rate)));
        all.flat_map(|((sizes, rows), rate)| [false, true].map(|similar| case(sizes, rows, rate, similar)))
    }

    /// Returns the relative distance between two lists, in the L2 norm.
    fn relative_error(computed: &[f32], exact: &[f64]) -> f64 {
        assert_eq!(computed.len(), exact.len());
        let square = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>();
        let errors = square(&mut computed.iter().zip(exact).map(|(&x, exact)| f64::from(x) - exact));
        (errors / square(&mut exact.iter().copied()).max(1e-30)).sqrt()
    }

    #[test]
    fn stretches_and_single_steps_give_the_same_results_and_state() {
        let mut rule = DeltaRule::default();
        for case in cases() {
            let lists = case.singles();
            let [q, k, v, write, keep, before] = &lists;
            let (mut state, [keys, values]) = (before.clone(), case.sizes);
            case.load(&mut rule, &lists, v);
            rule.errors(&state);
            let out = rule.out(&state).to_vec();
            rule.advance(&mut state);
            let (mut stepped, mut error, mut results) =
                (before.clone(), vec![0.0; values], vec![0.0; v.len()]);
            for (t, result) in results.chunks_exact_mut(values).enumerate() {
                let [q, k] = [q, k].map(|x| &x[t * keys..][..keys]);
                let v = &v[t * values..][..values];
                let token = Token { q, k, v, write: write[t], keep: keep[t] };
                simd::delta_step(token, &mut stepped, &mut error, result);
            }
            for (name, computed, stepped, exact) in
                [("out", &out, &results, &case.exact()[0]), ("state", &state, &stepped, &case.exact()[1])]
            {
                let errors = [relative_error(computed, exact), relative_error(stepped, exact)];
                assert!(
                    errors.iter().all(|&error| error < 5e-6),
                    "{name} of {:?}: {errors:?}",
                    (case.sizes, case.rows)
                );
            }
        }
    }

    #[test]
    fn derivatives_of_a_stretch_match_finite_differences_of_single_steps() {
        let mut rule = DeltaRule::default();
        for mut case in cases() {
            let weights = [7, 8].map(|seed| numbers(seed, case.exact()[seed - 7].len()));
            let loss = |case: &Case| -> f64 {
                let pairs = case.exact().into_iter().flatten().zip(weights.iter().flatten());
                pairs.map(|(x, weight)| x * weight).sum()
            };
            let lists = case.singles();
            let [dout, mut dstate] =
                weights.clone().map(|list| list.iter().map(|&x| x as f32).collect::<Vec<_>>());
            case.load(&mut rule, &lists, &lists[2]);
            rule.errors(&lists[5]);
            let errors = rule.errors.clone();
            case.load(&mut rule, &lists, &errors);
            rule.backward(&lists[5], &dout, &mut dstate);
            let (DeltaRule { dq, dk, dv, dwrite, dkeep, .. }, mut results) = (&rule, Vec::new());
            for (list, derivatives) in [dq, dk, dv, dwrite, dkeep, &dstate].into_iter().enumerate() {
                let (mut exact, mut sample) = (Vec::new(), Vec::new());
                for at in (0..derivatives.len()).step_by(1 + derivatives.len() / 60) {
                    sample.push(derivatives[at]);
                    let middle = case.lists[list][at];
                    let mut with = |step: f64| {
                        case.lists[list][at] = middle + step;
                        loss(&case)
                    };
                    let slope = (with(1e-5) - with(-1e-5)) / 2e-5;
                    // For `write`, the derivative with respect to its logit.
                    exact.push(if list == 3 { slope * middle * (1.0 - middle) } else { slope });
                    case.lists[list][at] = middle;
                }
                results.push((NAMES[list], relative_error(&sample, &exact)));
            }
            assert!(
                results.iter().all(|(_, error)| *error < 2e-5),
                "{:?}: {results:?}",
                (case.sizes, case.rows)
            );
        }
    }
}
