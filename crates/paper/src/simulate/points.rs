//! Metrics of a sweep's policies at the recorded steps, averaged over seeds.

use super::config::Config;
use super::folder::Line;
use fgrpo_eval::estimate::mean_and_deviation;
use serde::Serialize;
use std::collections::BTreeMap;

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

    /// Formats the mean and, with several seeds, the deviation.
    pub fn text(self, digits: usize) -> String {
        if self.seeds < 2 {
            return format!("{:.digits$}", self.mean);
        }
        format!("{:.digits$} \u{b1} {:.digits$}", self.mean, self.deviation)
    }
}

/// Metrics of the policies of one group size and gamma after a step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Point {
    /// Group size.
    pub n: u64,
    /// Focal exponent.
    pub gamma: f64,
    /// Number of steps so far.
    #[serde(skip)]
    pub step: u64,
    /// Total correct mass.
    pub q_pos: Spread,
    /// Retained positive mass.
    pub retained: Spread,
    /// Entropy in nats.
    pub entropy: Spread,
}

/// Averages the metrics over seeds at each recorded step. Sorted by group size, gamma and step.
pub(super) fn points(config: &Config, lines: &[Line]) -> Vec<Point> {
    let mut seeds: BTreeMap<(u64, u64), BTreeMap<u64, Vec<&Line>>> = BTreeMap::new();
    for line in lines {
        seeds.entry((line.n, line.gamma.to_bits())).or_default().entry(line.step).or_default().push(line);
    }
    let mut points = Vec::new();
    for (&n, &gamma) in
        config.group_sizes.iter().flat_map(|n| config.gammas.iter().map(move |gamma| (n, gamma)))
    {
        for (step, lines) in seeds.remove(&(n, gamma.to_bits())).unwrap_or_default() {
            let spread =
                |value: fn(&Line) -> f64| Spread::of(&lines.iter().map(|l| value(l)).collect::<Vec<_>>());
            let (q_pos, retained) = (spread(|l| l.q_pos), spread(|l| l.retained));
            points.push(Point { n, gamma, step, q_pos, retained, entropy: spread(|l| l.entropy) });
        }
    }
    points
}
