//! The categorical simulation without optimizations: every action in every step, directly from the formulas.

use fgrpo_core::rng::Stream;
use fgrpo_core::sim::{Metrics, Optimizer, Setup, Surrogate};

/// A policy in training. Actions are numbered in the order: anchors, other correct ones, wrong ones.
pub(crate) struct Plain {
    setup: Setup,
    gamma: f64,
    step: i32,
    pub(crate) z: Vec<f64>,
    m: Vec<f64>,
    v: Vec<f64>,
    start: Vec<f64>,
}

impl Plain {
    pub(crate) fn new(setup: &Setup, gamma: f64) -> Self {
        let z: Vec<f64> = (0..setup.actions)
            .map(|i| match i {
                i if i < setup.anchors => setup.anchor_logit,
                i if i < setup.correct => setup.correct_logit,
                _ => setup.wrong_logit,
            })
            .collect();
        let zeros = vec![0.0; z.len()];
        Self { setup: setup.clone(), gamma, step: 0, m: zeros.clone(), v: zeros, start: softmax(&z), z }
    }

    /// Draws `n` actions one by one.
    #[allow(dead_code, reason = "the benchmarks and the tests use different parts")]
    pub(crate) fn sample(&self, n: u64, stream: &mut Stream) -> Vec<(usize, u32)> {
        let mut sum = 0.0;
        let cumulative: Vec<f64> = softmax(&self.z)
            .iter()
            .map(|p| {
                sum += p;
                sum
            })
            .collect();
        let last = self.z.len() - 1;
        let mut counts = vec![0; self.z.len()];
        for _ in 0..n {
            let x = stream.uniform() * sum;
            counts[cumulative.partition_point(|&c| c <= x).min(last)] += 1;
        }
        counts.into_iter().enumerate().filter(|&(_, c)| c > 0).collect()
    }

    /// One step after the draws, given as (action, count).
    pub(crate) fn update(&mut self, draws: &[(usize, u32)]) {
        let setup = &self.setup;
        let p = softmax(&self.z);
        let reward = |i: usize| if i < setup.correct { setup.reward_correct } else { setup.reward_wrong };
        let n: f64 = draws.iter().map(|&(_, c)| f64::from(c)).sum();
        let mean = draws.iter().map(|&(i, c)| f64::from(c) * reward(i)).sum::<f64>() / n;
        let correct: f64 =
            draws.iter().filter(|&&(i, _)| i < setup.correct).map(|&(_, c)| f64::from(c)).sum();
        let focal = (1.0 - correct / n).powf(self.gamma);
        // d p_j / d z_i = p_j (1[i = j] - p_i), divided by p_j in the ratio surrogate.
        let per_draw = |j: usize| match setup.surrogate {
            Surrogate::Ratio => reward(j) - mean,
            Surrogate::Probability => (reward(j) - mean) * p[j],
        };
        let all: f64 = draws.iter().map(|&(j, c)| f64::from(c) * per_draw(j)).sum();
        let mut gradient: Vec<f64> = p.iter().map(|p| -p * all * focal / n).collect();
        for &(j, c) in draws {
            gradient[j] += f64::from(c) * per_draw(j) * focal / n;
        }
        self.step += 1;
        for (i, g) in gradient.into_iter().enumerate() {
            self.z[i] *= 1.0 - setup.lr * setup.weight_decay;
            self.z[i] += setup.lr
                * match setup.optimizer {
                    Optimizer::Sgd => g,
                    Optimizer::AdamW => {
                        let Setup { beta1, beta2, eps, .. } = *setup;
                        self.m[i] = beta1 * self.m[i] + (1.0 - beta1) * g;
                        self.v[i] = beta2 * self.v[i] + (1.0 - beta2) * g * g;
                        let mean = self.m[i] / (1.0 - beta1.powi(self.step));
                        let square = self.v[i] / (1.0 - beta2.powi(self.step));
                        mean / (square.sqrt() + eps)
                    }
                };
        }
    }

    pub(crate) fn metrics(&self) -> Metrics {
        let p = softmax(&self.z);
        let correct = self.setup.correct;
        let lost: f64 = p[..correct].iter().zip(&self.start).map(|(p, start)| (start - p).max(0.0)).sum();
        Metrics {
            q_pos: p[..correct].iter().sum(),
            retained: 1.0 - lost / self.start[..correct].iter().sum::<f64>(),
            entropy: -p.iter().filter(|&&p| p > 0.0).map(|p| p * p.ln()).sum::<f64>(),
        }
    }
}

fn softmax(z: &[f64]) -> Vec<f64> {
    let top = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let w: Vec<f64> = z.iter().map(|z| (z - top).exp()).collect();
    let total: f64 = w.iter().sum();
    w.into_iter().map(|w| w / total).collect()
}
