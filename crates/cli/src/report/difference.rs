//! Differences of pass@k between evaluations, paired by problem.

use super::input::Run;
use super::runs::{Group, Runs};
use crate::output::format::{points, signed};
use fgrpo_eval::estimate::{Measured, change};
use serde::Serialize;

/// A mean difference with its 95 % interval over problems.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Difference {
    mean: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Difference {
    /// "3.1 points higher (95 % interval +1.0 to +5.2, beyond chance)".
    pub(super) fn words(self) -> String {
        let direction = if self.mean >= 0.0 { "higher" } else { "lower" };
        let chance = if self.low > 0.0 || self.high < 0.0 { "beyond chance" } else { "within chance" };
        format!(
            "{} points {direction} (95 % interval {} to {}, {chance})",
            points(self.mean.abs()),
            signed(self.low),
            signed(self.high)
        )
    }
}

/// `b - a`, paired by problem, over the problems that both have. The caller knows that the problems are the same:
/// evaluations of one set are (see [`Runs::new`]).
pub(super) fn paired(a: Option<Vec<Option<f64>>>, b: Option<Vec<Option<f64>>>) -> Option<Difference> {
    let (a, b) = a.zip(b).filter(|(a, b)| a.len() == b.len())?;
    let difference: Vec<f64> = b.iter().zip(&a).filter_map(|(b, a)| Some((*b)? - (*a)?)).collect();
    let Measured { value: mean, interval: [low, high], .. } = change(&[difference])?;
    Some(Difference { mean, low, high })
}

/// pass@k of each problem at the evaluation that `of` picks of each run, meaned over a group's seeds; none for a problem that
/// one run has too few scored samples of.
fn per_problem(
    runs: &Runs,
    group: &Group,
    of: impl Fn(&Run) -> Option<Vec<Option<f64>>>,
) -> Option<Vec<Option<f64>>> {
    let values: Vec<Vec<Option<f64>>> = runs.of(group).map(of).collect::<Option<_>>()?;
    let count = values[0].len();
    if values.iter().any(|v| v.len() != count) {
        return None;
    }
    let mean = |p: usize| Some(values.iter().map(|v| v[p]).sum::<Option<f64>>()? / values.len() as f64);
    Some((0..count).map(mean).collect())
}

/// How a group's pass@k changed from its first to its last evaluation; none where a run has only one, or other problems or
/// graders at its end.
pub(super) fn since_start(runs: &Runs, group: &Group, set: &str, k: usize) -> Option<Difference> {
    let trained = runs.of(group).all(|run| run.start_of(set).is_some());
    let first = per_problem(runs, group, |run| run.evals_of(set).next()?.problems_at(k));
    let last = per_problem(runs, group, |run| run.evals_of(set).next_back()?.problems_at(k));
    paired(first.filter(|_| trained), last)
}

/// How a group's last pass@k differs from that of `base`.
pub(super) fn at_end(runs: &Runs, base: &Group, group: &Group, set: &str, k: usize) -> Option<Difference> {
    let last = |group| per_problem(runs, group, |run| run.evals_of(set).next_back()?.problems_at(k));
    paired(last(base), last(group))
}
