//! The policies at the end of a sweep, over their seeds.

use super::config::Config;
use super::folder::Line;
use fgrpo_eval::estimate::mean_and_deviation;
use serde::Serialize;

/// Mean and standard deviation over the seeds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The standard deviation, 0 for a single seed.
    #[serde(rename = "sd")]
    pub deviation: f64,
    /// Number of seeds.
    #[serde(skip)]
    pub seeds: usize,
}

impl Spread {
    pub(super) fn of(values: &[f64]) -> Self {
        let (mean, deviation) = mean_and_deviation(values);
        Self { mean, deviation: deviation.unwrap_or(0.0), seeds: values.len() }
    }

    /// Both with some decimals; a single seed has no deviation.
    pub fn text(self, digits: usize) -> String {
        if self.seeds < 2 {
            return format!("{:.digits$}", self.mean);
        }
        format!("{:.digits$} \u{b1} {:.digits$}", self.mean, self.deviation)
    }
}

/// The policies of one group size and gamma after the last step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Final {
    /// Group size.
    pub n: u64,
    /// Focal exponent.
    pub gamma: f64,
    /// Total correct mass.
    pub q_pos: Spread,
    /// Retained positive mass.
    pub retained: Spread,
    /// Entropy in nats.
    pub entropy: Spread,
}

/// The policies after the last step, by group size and gamma.
pub(super) fn final_values(config: &Config, lines: &[Line]) -> Vec<Final> {
    let ends: Vec<&Line> = lines.iter().filter(|l| l.step == config.steps).collect();
    let mut finals = Vec::new();
    for &n in &config.group_sizes {
        for &gamma in &config.gammas {
            let seeds = || ends.iter().filter(|l| (l.n, l.gamma) == (n, gamma));
            let spread = |value: fn(&Line) -> f64| Spread::of(&seeds().map(|l| value(l)).collect::<Vec<_>>());
            finals.push(Final {
                n,
                gamma,
                q_pos: spread(|l| l.q_pos),
                retained: spread(|l| l.retained),
                entropy: spread(|l| l.entropy),
            });
        }
    }
    finals
}
