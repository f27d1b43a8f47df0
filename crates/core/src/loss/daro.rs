//! DARO's learned weights (arXiv 2510.09001), one of the paper's controls.
//!
//! The mini-batch's loss is the sum of `w_mu L_mu - ln w_mu` over the success rates `mu` in {1/G, ..., (G-1)/G} that occur.
//! `L_mu` is the token-mean loss of the groups with success rate `mu`, and `w_mu = softplus(raw) + 1e-8` is a learned weight
//! that starts at 1. At the optimum, `w_mu = 1 / L_mu`. The DARO paper
//! doesn't state the learning rate of the weights. Here it is a setting, for plain gradient descent.

/// The learned weights, one per success rate strictly between 0 and 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Daro {
    /// Parameters before softplus, which checkpoints save. `raw[c - 1]` is for groups with `c` correct completions of G.
    pub raw: Vec<f64>,
}

impl Daro {
    /// Returns weights of 1 for groups of `group_size`.
    ///
    /// # Panics
    /// If `group_size` is below 2.
    pub fn new(group_size: usize) -> Self {
        assert!(group_size >= 2, "group_size {group_size}: a group of 1 has no mixed success rate");
        // softplus(raw) + 1e-8 = 1
        Self { raw: vec![(1.0f64 - 1e-8).exp_m1().ln(); group_size - 1] }
    }

    /// Returns the index of a success rate's level, or `None` if all completions are correct or all are wrong. A group with
    /// unscorable completions belongs to the nearest level.
    ///
    /// # Panics
    /// If the success rate is outside `[0, 1]`.
    pub fn level(&self, success_rate: f64) -> Option<usize> {
        assert!((0.0..=1.0).contains(&success_rate), "success_rate {success_rate} is outside [0, 1]");
        let levels = self.raw.len();
        (success_rate > 0.0 && success_rate < 1.0)
            .then(|| ((success_rate * (levels + 1) as f64).round() as usize).clamp(1, levels) - 1)
    }

    /// Returns the weight of a level.
    pub fn weight(&self, level: usize) -> f64 {
        let raw = self.raw[level];
        raw.max(0.0) + (-raw.abs()).exp().ln_1p() + 1e-8
    }

    /// Returns the factor of a token's loss in the total loss: the level's weight divided by the level's number of tokens
    /// in the mini-batch.
    pub fn token_weight(&self, level: usize, tokens: usize) -> f64 {
        self.weight(level) / tokens as f64
    }

    /// Takes one step of gradient descent on the weights of the levels that occur in a mini-batch, given the sum of the
    /// token losses and the number of tokens of each level.
    ///
    /// # Panics
    /// If the slices don't have a value for each level.
    pub fn step(&mut self, losses: &[f64], tokens: &[usize], lr: f64) {
        assert!(losses.len() == self.raw.len() && tokens.len() == self.raw.len());
        for i in (0..losses.len()).filter(|&i| tokens[i] > 0) {
            self.raw[i] -= lr * self.draw(i, losses[i] / tokens[i] as f64);
        }
    }

    /// Returns the derivative of the loss with respect to `raw[level]`, at the level's mean loss `mean`.
    fn draw(&self, level: usize, mean: f64) -> f64 {
        (mean - 1.0 / self.weight(level)) / (1.0 + (-self.raw[level]).exp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_start_at_one_and_levels_are_the_mixed_success_rates() {
        let daro = Daro::new(8);
        assert!((0..7).all(|l| (daro.weight(l) - 1.0).abs() < 1e-12));
        let levels: Vec<_> = (0..=8).map(|c| daro.level(f64::from(c) / 8.0)).collect();
        assert_eq!(levels[0], None);
        assert_eq!(levels[8], None);
        assert_eq!(levels[1..8], (0..7).map(Some).collect::<Vec<_>>());
        assert_eq!((daro.level(0.01), daro.level(0.99)), (Some(0), Some(6)));
    }

    #[test]
    fn weight_derivative_matches_finite_differences() {
        let base = Daro { raw: vec![-0.3, 0.5, 1.7] };
        let h = 1e-6;
        for (i, mean) in [(0, 1.5), (2, 0.25)] {
            // The level's term of the total loss.
            let at = |x: f64| {
                let mut copy = base.clone();
                copy.raw[i] += x;
                copy.weight(i) * mean - copy.weight(i).ln()
            };
            let expected = (at(h) - at(-h)) / (2.0 * h);
            assert!((base.draw(i, mean) - expected).abs() < 1e-8);
        }
        let mut stepped = base.clone();
        stepped.step(&[3.0, 0.0, 1.0], &[2, 0, 4], 0.1);
        assert_eq!(stepped.raw[1], base.raw[1], "an absent level keeps its weight");
    }

    #[test]
    fn weights_settle_at_the_inverse_of_the_loss() {
        let mut daro = Daro::new(3);
        for _ in 0..20_000 {
            daro.step(&[8.0, 1.0], &[4, 4], 0.05);
        }
        assert!((daro.weight(0) - 0.5).abs() < 1e-6 && (daro.weight(1) - 4.0).abs() < 1e-6);
    }
}
