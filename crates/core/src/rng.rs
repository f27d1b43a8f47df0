//! Counter-based random numbers: each is a function of a key and a counter.
//!
//! A generator doesn't have state to save. A key is derived from the run's seed and coordinates such as step, prompt and
//! sample, and the counter is the position in the key's sequence. So a sample doesn't depend on its batch, on the number
//! of threads, or on earlier draws.
//!
//! The mixing function is SplitMix64's finaliser applied twice over a Weyl sequence, with the key
//! folded in on both rounds (after Steele, Lea and Flood, "Fast splittable pseudorandom number
//! generators", OOPSLA 2014). It is not cryptographic.

const WEYL: u64 = 0x9e37_79b9_7f4a_7c15;

const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Key of a sequence of random numbers. A key and a counter determine a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(u64, u64);

impl Key {
    /// Creates the key from which a run's other keys are derived.
    pub const fn new(seed: u64) -> Self {
        Self(mix(seed.wrapping_add(WEYL)), mix(seed ^ 0x6a09_e667_f3bc_c909))
    }

    /// Returns the key of the sub-family `x`, as in `key.with(step).with(prompt)`.
    #[must_use]
    pub const fn with(self, x: u64) -> Self {
        let a = mix(self.0 ^ mix(x.wrapping_add(WEYL)));
        let b = mix(self.1.wrapping_add(a).wrapping_add(x.wrapping_mul(WEYL)));
        Self(a, b)
    }

    /// Returns the 64 random bits of draw `counter`.
    pub const fn bits(self, counter: u64) -> u64 {
        let x = mix(self.0.wrapping_add(counter.wrapping_mul(WEYL)));
        mix(x ^ self.1)
    }

    /// Returns a uniform number in `[0, 1)` with 53 random bits.
    pub fn uniform(self, counter: u64) -> f64 {
        (self.bits(counter) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Returns a uniform integer in `0..n`, without bias.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn below(self, counter: u64, n: u64) -> u64 {
        assert!(n > 0, "below: n must be at least 1");
        // Lemire's multiply-and-reject. Rejected draws continue in a sub-family of this counter.
        let mut bits = self.bits(counter);
        let mut retry = 0;
        loop {
            let wide = u128::from(bits) * u128::from(n);
            if (wide as u64) >= n.wrapping_neg() % n {
                return (wide >> 64) as u64;
            }
            retry += 1;
            bits = self.with(counter).bits(retry);
        }
    }

    /// Returns a standard normal number (Box-Muller, from two draws of this counter).
    pub fn normal(self, counter: u64) -> f64 {
        let radius = (-2.0 * (-self.uniform(2 * counter)).ln_1p()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform(2 * counter + 1)).cos()
    }

    /// Returns the standard normal number that this key's [`Stream::normal`] returns after `i` numbers of any kind.
    pub fn nth_normal(self, i: u64) -> f64 {
        // A normal number takes two draws. The sub-family keeps these draws separate from the uniform ones.
        self.with(u64::MAX).normal(i)
    }

    /// Returns element `i` of a pseudo-random permutation of `0..n`, which isn't stored. The permutation is a four-round
    /// Feistel network on the next power of four, iterated until the result is in range
    /// (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).
    ///
    /// # Panics
    /// If `i` is not below `n`.
    pub fn permute(self, i: u64, n: u64) -> u64 {
        assert!(i < n, "permute: {i} is not below {n}");
        let half = (u64::BITS - (n - 1).leading_zeros()).div_ceil(2).max(1);
        let mask = (1u64 << half) - 1;
        let mut x = i;
        loop {
            let (mut left, mut right) = (x >> half, x & mask);
            for round in 0..4 {
                (left, right) = (right, left ^ (self.with(round).bits(right) & mask));
            }
            x = (left << half) | right;
            if x < n {
                return x;
            }
        }
    }

    /// Creates a stream of this key's numbers, in the order of the counter.
    pub const fn stream(self) -> Stream {
        Stream { key: self, counter: 0 }
    }
}

/// A key with a running counter, for code that needs one number after another.
#[derive(Debug, Clone)]
pub struct Stream {
    key: Key,
    counter: u64,
}

impl Stream {
    fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter - 1
    }

    /// Returns the next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let c = self.next();
        self.key.bits(c)
    }

    /// Returns the next uniform number in `[0, 1)`.
    pub fn uniform(&mut self) -> f64 {
        let c = self.next();
        self.key.uniform(c)
    }

    /// Returns the next uniform integer in `0..n`.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        let c = self.next();
        self.key.below(c, n)
    }

    /// Returns the next standard normal number.
    pub fn normal(&mut self) -> f64 {
        let c = self.next();
        self.key.nth_normal(c)
    }

    /// Permutes `items` uniformly (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = self.below(i as u64 + 1) as usize;
            items.swap(i, j);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_depends_on_key_and_counter_alone() {
        let key = Key::new(7).with(3).with(1);
        let late = key.bits(1_000);
        let mut stream = key.stream();
        let in_order: Vec<u64> = (0..1_001).map(|_| stream.bits()).collect();
        assert_eq!(in_order[1_000], late);
        assert_ne!(Key::new(7).with(1).with(3).bits(0), key.bits(0), "order of coordinates matters");
    }

    #[test]
    fn uniform_numbers_fill_the_unit_interval_evenly() {
        let mut bins = [0u32; 64];
        for i in 0..640 {
            for c in 0..1_000 {
                bins[(Key::new(5).with(i).uniform(c) * 64.0) as usize] += 1;
            }
        }
        // 640,000 draws, 10,000 a bin: chi-square with 63 degrees of freedom, 99.99 % below 116.
        let chi: f64 = bins.iter().map(|&b| (f64::from(b) - 1e4).powi(2) / 1e4).sum();
        assert!(chi < 116.0, "chi-square {chi}");
    }

    #[test]
    fn neighbouring_keys_and_counters_are_uncorrelated() {
        let draw = |k: u64, c: u64| Key::new(1).with(k).uniform(c) - 0.5;
        let n = 200_000u64;
        for (dk, dc) in [(0, 1), (1, 0), (1, 1)] {
            let r: f64 =
                (0..n).map(|i| draw(i, i % 7) * draw(i + dk, i % 7 + dc)).sum::<f64>() * 12.0 / n as f64;
            assert!(r.abs() < 5.0 / (n as f64).sqrt(), "correlation {r} at lag ({dk}, {dc})");
        }
    }

    #[test]
    fn below_is_uniform_for_sizes_that_do_not_divide_two_to_the_64() {
        let mut counts = [0u32; 6];
        for c in 0..60_000 {
            counts[Key::new(2).below(c, 6) as usize] += 1;
        }
        let chi: f64 = counts.iter().map(|&b| (f64::from(b) - 1e4).powi(2) / 1e4).sum();
        assert!(chi < 30.0, "chi-square {chi}");
    }

    #[test]
    fn normal_has_mean_zero_and_variance_one() {
        let n = 200_000u64;
        let x: Vec<f64> = (0..n).map(|c| Key::new(3).normal(c)).collect();
        let mean = x.iter().sum::<f64>() / n as f64;
        let variance = x.iter().map(|v| v * v).sum::<f64>() / n as f64;
        assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.02, "mean {mean}, variance {variance}");
    }

    #[test]
    fn permutation_gives_every_element_once_in_no_simple_order() {
        for n in [1, 2, 3, 17, 1_000, 4_097] {
            let mut seen: Vec<u64> = (0..n).map(|i| Key::new(4).permute(i, n)).collect();
            if n > 100 {
                let ascents = seen.windows(2).filter(|w| w[0] < w[1]).count() as f64 / n as f64;
                assert!((0.4..0.6).contains(&ascents), "{ascents} of neighbours ascend");
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..n).collect::<Vec<_>>());
        }
    }

    #[test]
    fn shuffle_keeps_every_element() {
        let mut items: Vec<u32> = (0..100).collect();
        Key::new(9).stream().shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
