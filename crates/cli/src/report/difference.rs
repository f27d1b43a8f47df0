//! Differences of pass@k between evaluations, paired by problem.

use super::runs::Seed;
use crate::output::format::{points, signed};
use fgrpo_eval::compare::LEVEL;
use fgrpo_eval::estimate::{Measured, change};
use fgrpo_eval::record::Evaluation;
use serde::Serialize;

/// A mean difference with its 95 % interval over problems.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Difference {
    mean: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    /// Number of problems, and number of problems that are left out because they lack scored samples.
    problems: usize,
    left_out: usize,
    /// Whether no problem is left out, the interval excludes 0, and the p-value is below [`LEVEL`].
    pub(super) significant: bool,
}

impl Difference {
    /// Describes the difference: "3.1 points higher (95 % interval +1.0 to +5.2, beyond chance)".
    pub(super) fn words(self) -> String {
        if [self.mean, self.low, self.high].iter().all(|value| points(value.abs()) == points(0.0)) {
            return "less than 0.1 points higher or lower".to_owned();
        }
        let direction = if self.mean >= 0.0 { "higher" } else { "lower" };
        let excludes_0 = self.low > 0.0 || self.high < 0.0;
        let chance = match self.problems {
            1 => "one problem says nothing about others".to_owned(),
            _ if self.significant => "beyond chance".to_owned(),
            few if self.left_out > 0 => {
                format!("on {few} problems; {} without enough scored samples are left out", self.left_out)
            }
            few if excludes_0 => format!("{few} problems are too few"),
            _ => "within chance".to_owned(),
        };
        format!(
            "{} points {direction} (95 % interval {} to {}, {chance})",
            points(self.mean.abs()),
            signed(self.low),
            signed(self.high)
        )
    }
}

/// Returns the mean of `b - a`, paired by problem, over the problems with a value on both sides. Returns `None` if no
/// problem has both values, or the numbers of problems differ. Both must be evaluations of one set, which have the same
/// problems (see [`Runs::new`](super::runs::Runs::new)).
pub(super) fn paired(a: &[Option<f64>], b: &[Option<f64>]) -> Option<Difference> {
    let difference: Vec<f64> = b.iter().zip(a).filter_map(|(b, a)| Some((*b)? - (*a)?)).collect();
    let measured = change(&[difference]).filter(|_| a.len() == b.len())?;
    let Measured { value: mean, interval: [low, high], problems, .. } = measured;
    let left_out = a.len() - problems;
    let significant = left_out == 0 && measured.p_value() < LEVEL && (low > 0.0 || high < 0.0);
    Some(Difference { mean, low, high, problems, left_out, significant })
}

/// Returns pass@k of each problem, averaged over evaluations of a group's seeds. The value is `None` if an evaluation has too few
/// scored samples of the problem. Empty if the evaluations have different problems.
fn per_problem<'a>(evals: impl Iterator<Item = &'a Evaluation>, k: usize) -> Vec<Option<f64>> {
    let values: Vec<Vec<Option<f64>>> = evals.map(|e| e.by_problem(k)).collect();
    let count = values.first().map_or(0, Vec::len);
    if values.iter().any(|v| v.len() != count) {
        return Vec::new();
    }
    let mean = |p: usize| Some(values.iter().map(|v| v[p]).sum::<Option<f64>>()? / values.len() as f64);
    (0..count).map(mean).collect()
}

/// Returns the change of a group's pass@k from the first evaluation to `end`, or `None` if a run has only one evaluation or if its
/// problems or graders changed.
pub(super) fn since_start(end: &[Seed<'_>], k: usize) -> Option<Difference> {
    let first: Option<Vec<&Evaluation>> = end.iter().map(|(run, end)| run.start_of(end)).collect();
    paired(&per_problem(first?.into_iter(), k), &per_problem(end.iter().map(|(_, end)| *end), k))
}

/// Returns the difference of pass@k between a group and `base`.
pub(super) fn between([base, group]: &[Vec<Seed<'_>>; 2], k: usize) -> Option<Difference> {
    let [base, group] = [base, group].map(|seeds| per_problem(seeds.iter().map(|(_, eval)| *eval), k));
    paired(&base, &group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_or_left_out_problems_are_not_beyond_chance() {
        let words = |b: &[Option<f64>]| paired(&vec![Some(0.0); b.len()], b).unwrap().words();
        assert!(words(&[Some(0.5); 8]).ends_with("+50.0, beyond chance)"), "{}", words(&[Some(0.5); 8]));
        assert!(words(&[Some(0.5)]).ends_with("one problem says nothing about others)"));
        assert!(words(&[Some(0.5); 3]).ends_with("3 problems are too few)"));
        let left_out = words(&[&[Some(0.5); 8][..], &[None; 2]].concat());
        assert!(
            left_out.ends_with("on 8 problems; 2 without enough scored samples are left out)"),
            "{left_out}"
        );
        assert!(words(&[Some(0.5), Some(-0.5)]).ends_with("within chance)"));
    }
}
