//! The order in which the parts of a mix provide prompts.

/// Selects the next part by weight: Tijdeman's rule for the chairman assignment problem. After any number of turns,
/// the number of turns of each part differs from its exact share by less than one.
#[derive(Debug, Clone)]
pub(super) struct Turns {
    shares: Vec<f64>,
    had: Vec<u64>,
}

impl Turns {
    pub(super) fn new(weights: impl Iterator<Item = f64> + Clone) -> Self {
        let sum: f64 = weights.clone().sum();
        let shares: Vec<f64> = weights.map(|w| w / sum).collect();
        Self { had: vec![0; shares.len()], shares }
    }

    /// Returns the next part, and the number of turns that it had before.
    pub(super) fn next(&mut self) -> (usize, u64) {
        let turn = (self.had.iter().sum::<u64>() + 1) as f64;
        let sharing = self.shares.iter().filter(|s| **s > 0.0).count();
        let slack = if sharing > 1 { 1.0 / (2 * sharing - 2) as f64 } else { 0.0 };
        let behind = |i: usize| self.shares[i] * turn - self.had[i] as f64;
        // Among the parts that may take a turn now, choose the one with the earliest deadline.
        let deadline = |i: usize| (1.0 - slack - behind(i)) / self.shares[i];
        let all = || (0..self.shares.len()).filter(|&i| self.shares[i] > 0.0);
        let next = all()
            .filter(|&i| behind(i) >= slack - 1e-9)
            .min_by(|&a, &b| deadline(a).total_cmp(&deadline(b)))
            .or_else(|| all().max_by(|&a, &b| behind(a).total_cmp(&behind(b))))
            .expect("a share is above 0");
        self.had[next] += 1;
        (next, self.had[next] - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn after_any_number_of_turns_each_part_has_its_share_to_within_one(
            weights in prop::collection::vec(0.0f64..10.0, 1..7),
        ) {
            prop_assume!(weights.iter().sum::<f64>() > 0.1);
            let mut turns = Turns::new(weights.iter().copied());
            for turn in 1..500u64 {
                turns.next();
                for (had, share) in turns.had.iter().zip(&turns.shares) {
                    let off = *had as f64 - share * turn as f64;
                    prop_assert!(off.abs() < 1.0 + 1e-6, "turn {turn}: off by {off}");
                }
            }
        }
    }
}
