//! The drawn actions of a class in arrays of whole blocks, and sampling among them by weight.
//!
//! The arrays end in padding: slots with a logit of minus infinity, weight 0 and moments 0. Padding is never drawn, and
//! steps don't change it.

use super::arithmetic::{Arrays, BLOCK, State};
use super::binomial::binomial;
use crate::rng::Stream;

/// Marks a slot without an action.
const NOBODY: u32 = u32::MAX;

/// Number of draws per slot of a block above which one binomial per slot is cheaper than one search per draw.
const DRAWS_PER_SLOT: u64 = 16;

/// Minimum number of draws in a block for which [`draw_within`] splits the weights, because that is faster.
const DRAWS_TO_CUT: u64 = 24;

const PADDING: State = State { z: f64::NEG_INFINITY, m: 0.0, s: 0.0, w: 0.0 };

/// Arrays with each action's state, its number of draws in this step, and its index in the class.
#[derive(Debug, Default)]
pub(super) struct Slots {
    len: usize,
    pub(super) z: Vec<f64>,
    m: Vec<f64>,
    s: Vec<f64>,
    pub(super) w: Vec<f64>,
    pub(super) count: Vec<u32>,
    member: Vec<u32>,
    /// For each block, a bit mask of the slots that may have been drawn in this step.
    drawn: Vec<u64>,
    /// Sum of the weights of each block, valid after [`Slots::sum_blocks`] or a step.
    block: Vec<f64>,
}

impl Slots {
    /// Returns the number of slots in use, including gaps.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn state(&self, i: usize) -> State {
        State { z: self.z[i], m: self.m[i], s: self.s[i], w: self.w[i] }
    }

    fn set(&mut self, i: usize, state: State, member: u32, count: u32) {
        (self.z[i], self.m[i], self.s[i], self.w[i]) = (state.z, state.m, state.s, state.w);
        (self.member[i], self.count[i]) = (member, count);
        self.drawn[i / BLOCK] |= u64::from(count > 0) << (i % BLOCK);
    }

    pub(super) fn clear_draws(&mut self) {
        for (drawn, count) in self.drawn.iter_mut().zip(self.count.as_chunks_mut::<BLOCK>().0) {
            if *drawn != 0 {
                *count = [0; BLOCK];
                *drawn = 0;
            }
        }
    }

    pub(super) fn draw_slot(&mut self, i: usize) {
        self.count[i] += 1;
        self.drawn[i / BLOCK] |= 1 << (i % BLOCK);
    }

    /// Returns the class's index of the action in slot `i`, or `None` for a gap. Actions are numbered by their first draw.
    pub(super) fn member(&self, i: usize) -> Option<u32> {
        Some(self.member[i]).filter(|&m| m != NOBODY)
    }

    /// Adds a slot. The sum of the slot's block is stale until [`Slots::sum_blocks`] or a step.
    pub(super) fn push(&mut self, state: State, member: u32, count: u32) {
        if self.len == self.z.len() {
            let size = self.len + BLOCK;
            for x in [&mut self.m, &mut self.s, &mut self.w] {
                x.resize(size, 0.0);
            }
            self.z.resize(size, PADDING.z);
            self.count.resize(size, 0);
            self.member.resize(size, NOBODY);
            self.block.push(0.0);
            self.drawn.push(0);
        }
        self.set(self.len, state, member, count);
        self.len += 1;
    }

    pub(super) fn clear(&mut self, i: usize) {
        self.set(i, PADDING, NOBODY, 0);
        let b = i / BLOCK;
        self.block[b] = self.w[b * BLOCK..(b + 1) * BLOCK].iter().sum();
    }

    pub(super) fn still(&self, limit: f64) -> usize {
        let pairs = self.m.iter().zip(&self.s).take(self.len);
        pairs.map(|(m, s)| usize::from(m.abs() <= limit * s)).sum()
    }

    /// Keeps the slots for which `keep` returns true, in order. Removes gaps and clears draws.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(usize, State, u32) -> bool) {
        self.clear_draws();
        let mut to = 0;
        for from in 0..self.len {
            let (state, member) = (self.state(from), self.member[from]);
            if member != NOBODY && keep(from, state, member) {
                self.set(to, state, member, 0);
                to += 1;
            }
        }
        self.len = to;
        let size = to.next_multiple_of(BLOCK);
        for x in [&mut self.z, &mut self.m, &mut self.s, &mut self.w] {
            x.truncate(size);
        }
        self.count.truncate(size);
        self.member.truncate(size);
        self.block.truncate(size / BLOCK);
        self.drawn.truncate(size / BLOCK);
        for i in to..size {
            self.set(i, PADDING, NOBODY, 0);
        }
        self.sum_blocks();
    }

    pub(super) fn sum_blocks(&mut self) {
        for (sum, w) in self.block.iter_mut().zip(self.w.as_chunks::<BLOCK>().0) {
            *sum = w.iter().sum();
        }
    }

    pub(super) fn reweigh(&mut self, weight: impl Fn(f64) -> f64) {
        for (w, &z) in self.w.iter_mut().zip(&self.z) {
            *w = weight(z);
        }
        self.sum_blocks();
    }

    pub(super) fn total(&self) -> f64 {
        self.block.iter().sum()
    }

    pub(super) fn arrays(&mut self) -> Arrays<'_> {
        Arrays {
            z: &mut self.z,
            m: &mut self.m,
            s: &mut self.s,
            w: &mut self.w,
            count: &self.count,
            block: &mut self.block,
            drawn: &self.drawn,
        }
    }

    /// Draws `k` times with replacement, each slot with a probability proportional to its weight, and adds the draws to
    /// the slots' counts. `scratch` is working memory.
    pub(super) fn draw(&mut self, k: u64, scratch: &mut Vec<f64>, stream: &mut Stream) {
        if k == 0 {
            return;
        }
        if (k as usize) < self.block.len() / 4 {
            self.draw_one_by_one(k, scratch, stream);
        } else {
            self.draw_by_block(k, scratch, stream);
        }
    }

    /// Searches the block and then the slot of each draw. Fast for few draws.
    fn draw_one_by_one(&mut self, k: u64, scratch: &mut Vec<f64>, stream: &mut Stream) {
        scratch.clear();
        let mut sum = 0.0;
        scratch.extend(self.block.iter().map(|b| {
            sum += b;
            sum
        }));
        for _ in 0..k {
            let x = below(stream.uniform(), sum);
            let b = scratch.partition_point(|&c| c <= x);
            let in_block = Cumulative::of(self.w[b * BLOCK..].first_chunk().expect("whole blocks"));
            let before = if b == 0 { 0.0 } else { scratch[b - 1] };
            let i = in_block.slot((x - before).min(in_block.total.next_down()));
            self.draw_slot(b * BLOCK + i);
        }
    }

    /// Draws the number of draws of each block from a binomial distribution. Fast for many draws.
    fn draw_by_block(&mut self, k: u64, scratch: &mut Vec<f64>, stream: &mut Stream) {
        suffix_sums(&self.block, scratch);
        let mut remaining = k;
        let blocks = self.w.as_chunks::<BLOCK>().0.iter().zip(self.count.as_chunks_mut::<BLOCK>().0);
        let blocks = blocks.zip(&mut self.drawn);
        for ((((w, count), drawn), &sum), &rest) in blocks.zip(&self.block).zip(&*scratch) {
            let here = binomial(remaining, sum / rest, stream);
            remaining -= here;
            if here > DRAWS_PER_SLOT * BLOCK as u64 {
                draw_by_slot(w, here, count, stream);
                *drawn = u64::MAX;
            } else if here > 0 {
                *drawn |= draw_within(w, here, count, stream);
            }
            if remaining == 0 {
                break;
            }
        }
    }
}

/// Returns `u * total`, but less than `total` even if the product rounds up.
fn below(u: f64, total: f64) -> f64 {
    (u * total).min(total.next_down())
}

/// Computes `suffix[i] = x[i] + x[i + 1] + ...`, so that `x[i] / suffix[i]` is exactly 1 at the last positive `x`.
fn suffix_sums(x: &[f64], suffix: &mut Vec<f64>) {
    suffix.clear();
    suffix.resize(x.len(), 0.0);
    let mut sum = 0.0;
    for (s, x) in suffix.iter_mut().zip(x).rev() {
        sum += x;
        *s = sum;
    }
}

/// Draws `k` times within a block. For many draws, each weight is split into the smallest weight and the rest. A draw
/// from the equal parts needs only six random bits, and any other draw searches the rests. Returns a bit mask of the
/// slots that may have been drawn.
fn draw_within(w: &[f64; BLOCK], k: u64, count: &mut [u32; BLOCK], stream: &mut Stream) -> u64 {
    let floor = if k < DRAWS_TO_CUT { 0.0 } else { w.iter().copied().fold(f64::INFINITY, f64::min) };
    let above = Cumulative::of(&w.map(|w| w - floor));
    let mut flat = 0;
    if floor > 0.0 {
        let below = BLOCK as f64 * floor;
        flat = binomial(k, below / (below + above.total), stream);
        let mut remaining = flat;
        while remaining > 0 {
            let mut bits = stream.bits();
            for _ in 0..remaining.min(10) {
                count[(bits % BLOCK as u64) as usize] += 1;
                bits /= BLOCK as u64;
            }
            remaining -= remaining.min(10);
        }
    }
    let mut drawn = if flat > 0 { u64::MAX } else { 0 };
    for _ in flat..k {
        let i = above.slot(below(stream.uniform(), above.total));
        count[i] += 1;
        drawn |= 1 << i;
    }
    drawn
}

fn draw_by_slot(w: &[f64; BLOCK], k: u64, count: &mut [u32; BLOCK], stream: &mut Stream) {
    let mut rest = *w;
    for i in (0..BLOCK - 1).rev() {
        rest[i] += rest[i + 1];
    }
    let mut remaining = k;
    for i in 0..BLOCK {
        if remaining == 0 {
            break;
        }
        let here = binomial(remaining, w[i] / rest[i], stream);
        count[i] += here as u32;
        remaining -= here;
    }
}

/// Cumulative weights of a block, column by column of an 8x8 layout, so that all columns can be summed in parallel.
struct Cumulative {
    sums: [f64; BLOCK],
    total: f64,
}

impl Cumulative {
    #[inline(always)]
    fn of(w: &[f64; BLOCK]) -> Self {
        let mut sums = *w;
        for i in 8..BLOCK {
            sums[i] += sums[i - 8];
        }
        let mut before = [0.0; 8];
        for column in 1..8 {
            before[column] = before[column - 1] + sums[56 + column - 1];
        }
        for row in sums.as_chunks_mut::<8>().0 {
            for (s, b) in row.iter_mut().zip(before) {
                *s += b;
            }
        }
        Self { total: sums[BLOCK - 1], sums }
    }

    /// Returns the first slot in this order whose cumulative weight exceeds `x`, which must be below the total.
    #[inline(always)]
    fn slot(&self, x: f64) -> usize {
        let index = |rank: usize| (rank & 7) * 8 + (rank >> 3 & 7);
        let mut rank = 0;
        for step in [32, 16, 8, 4, 2, 1] {
            rank += step * usize::from(self.sums[index(rank + step - 1)] <= x);
        }
        index(rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Key;

    fn filled(weights: &[f64]) -> Slots {
        let mut slots = Slots::default();
        for (i, &w) in weights.iter().enumerate() {
            slots.push(State { z: w.ln(), m: 0.0, s: 0.0, w }, i as u32, 0);
        }
        slots.sum_blocks();
        slots
    }

    /// Returns the chi-square of the counts against the weights, in standard deviations above its mean.
    fn excess(counts: &[u64], weights: &[f64]) -> f64 {
        let (n, total) = (counts.iter().sum::<u64>() as f64, weights.iter().sum::<f64>());
        let chi: f64 = counts
            .iter()
            .zip(weights)
            .map(|(&c, w)| {
                let expected = n * w / total;
                (c as f64 - expected).powi(2) / expected
            })
            .sum();
        let freedom = counts.len() as f64 - 1.0;
        (chi - freedom) / (2.0 * freedom).sqrt()
    }

    #[test]
    fn draws_follow_the_weights_on_every_path() {
        // 2,000 slots (32 blocks), the last block partly padding. Few draws: one by one; more: by block;
        // more still: blocks cut at their smallest weight; very many: by slot.
        let weights: Vec<f64> = (0..2_000).map(|i| 0.2 + (f64::from(i) * 0.7).sin().powi(2)).collect();
        for (case, (k, rounds)) in
            [(3, 20_000), (500, 200), (10_000, 20), (3_000_000, 1)].into_iter().enumerate()
        {
            let mut stream = Key::new(5).with(case as u64).stream();
            let mut slots = filled(&weights);
            for _ in 0..rounds {
                slots.draw(k, &mut Vec::new(), &mut stream);
            }
            let counts: Vec<u64> = slots.count[..2_000].iter().map(|&c| c.into()).collect();
            assert_eq!(counts.iter().sum::<u64>(), k * rounds);
            let z = excess(&counts, &weights);
            assert!(z.abs() < 4.5, "{k} draws at a time: chi-square {z} deviations off");
        }
    }

    #[test]
    fn draws_within_a_group_are_independent() {
        // Multinomial covariance -n p q between two slots in different blocks.
        let mut stream = Key::new(6).stream();
        let weights: Vec<f64> = (0..128).map(|i| if i == 3 || i == 100 { 40.0 } else { 1.0 }).collect();
        let mut slots = filled(&weights);
        let (n, rounds, total) = (50.0, 40_000, weights.iter().sum::<f64>());
        let p = 40.0 / total;
        let (mut product, mut square) = (0.0, 0.0);
        for _ in 0..rounds {
            slots.clear_draws();
            slots.draw(50, &mut Vec::new(), &mut stream);
            let [a, b] = [3, 100].map(|i| f64::from(slots.count[i]) - n * p);
            product += a * b;
            square += a * a;
        }
        let (covariance, variance) = (product / f64::from(rounds), square / f64::from(rounds));
        assert!((covariance / (-n * p * p) - 1.0).abs() < 0.08, "covariance {covariance}");
        assert!((variance / (n * p * (1.0 - p)) - 1.0).abs() < 0.04, "variance {variance}");
    }

    #[test]
    fn no_draw_falls_into_padding_or_a_gap() {
        let mut slots = filled(&[1e-300, 2.0, 3.0]);
        slots.clear(1);
        for k in [1, 100, 10_000] {
            slots.draw(k, &mut Vec::new(), &mut Key::new(k).stream());
        }
        assert_eq!(slots.count.iter().sum::<u32>(), 10_101);
        assert_eq!(slots.count[2], 10_101);
    }

    #[test]
    fn a_cumulative_search_ends_in_the_slot_that_covers_the_point() {
        let w: [f64; BLOCK] = std::array::from_fn(|i| if i % 5 == 0 { 0.0 } else { i as f64 });
        let c = Cumulative::of(&w);
        let mut shares = [0.0; BLOCK];
        let steps = 20_160;
        for i in 0..steps {
            shares[c.slot((f64::from(i) + 0.5) / f64::from(steps) * c.total)] += c.total / f64::from(steps);
        }
        for (i, (share, w)) in shares.iter().zip(w).enumerate() {
            assert!((share - w).abs() <= 2.0 * c.total / f64::from(steps), "slot {i}: {share} of {w}");
        }
    }

    #[test]
    fn retain_keeps_order_and_drops_gaps() {
        let mut slots = filled(&(1..=200).map(f64::from).collect::<Vec<_>>());
        slots.clear(10);
        slots.retain(|_, s, _| s.w > 5.0);
        assert_eq!(slots.len(), 194);
        assert_eq!(slots.member(0), Some(5));
        assert_eq!(slots.member(5), Some(11));
        assert_eq!(slots.total(), (1..=200).sum::<i32>() as f64 - 15.0 - 11.0);
        assert_eq!(slots.member(194), None);
    }
}
