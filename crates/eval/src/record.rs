//! The result of a run's evaluation, a line of `eval.jsonl`: pass@k over held-out problems with problem-bootstrap
//! intervals, by the same estimator as in every command.

use super::estimate::{Curve, Measured, RESAMPLES, change, resamples, resamples_of_all};
use super::plan::Plan;
use super::samples::{Benchmark, ProblemCounts};
use crate::io::lines;
use fgrpo_core::rng::Key;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::Path;

/// The name of the problems in a run's evaluations.
pub const USUAL: &str = "held-out";

/// The name of the problems in a run's full evaluations (`[eval.full]`).
pub const FULL: &str = "held-out in full";

/// The evaluations of one set in a run's `eval.jsonl`.
pub fn of_set(path: &Path, set: &str) -> anyhow::Result<Vec<Evaluation>> {
    let mut evaluations: Vec<Evaluation> = lines::read(path)?;
    evaluations.retain(|e| e.set == set);
    Ok(evaluations)
}

/// Whether two evaluations had the same graders. An evaluation that doesn't name its graders agrees with any.
pub fn same_graders(a: &[String], b: &[String]) -> bool {
    a.is_empty() || b.is_empty() || a == b
}

/// What the mean of an evaluation is taken over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Average {
    /// All problems equally.
    #[default]
    Problems,
    /// The means of the parts.
    Parts,
}

impl Average {
    /// Whether it is the default.
    pub fn is_over_problems(&self) -> bool {
        *self == Self::Problems
    }
}

/// One line of `eval.jsonl`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// The RL step; 0 is before the first step.
    pub step: u64,
    /// The name of the problems.
    pub set: String,
    /// Number of problems evaluated.
    pub problems: usize,
    /// Samples per problem.
    pub samples: usize,
    /// What `pass_at_k` is a mean over: problems, or parts.
    #[serde(default, skip_serializing_if = "Average::is_over_problems")]
    pub average: Average,
    /// Unbiased pass@k as fractions: mean over problems, or over the parts if the configuration says so.
    pub pass_at_k: BTreeMap<usize, f64>,
    /// 95 % problem-bootstrap intervals of `pass_at_k`.
    pub interval: BTreeMap<usize, [f64; 2]>,
    /// Identifies the problems: a hash of their texts and answers. Evaluations are compared problem by problem only if
    /// they have the same hash.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub problem_set: String,
    /// The grader of each part; empty in older files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub graders: Vec<String>,
    /// Correct samples of each problem.
    pub per_problem: Vec<usize>,
    /// Scored samples of each problem, if a verifier failed on some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scored_per_problem: Vec<usize>,
    /// Mean completion length in tokens.
    pub completion_length_mean: f64,
    /// Samples that couldn't be scored; they reduce their problem's sample count.
    pub unscorable: usize,
    /// Number of problems excluded from pass@k, by k: those with fewer than k scored samples.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out: BTreeMap<usize, usize>,
    /// A few completions of the first problems, as text, for the report.
    pub examples: Vec<Example>,
    /// Results by part, if the problems come from several parts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, PartEvaluation>,
}

impl Evaluation {
    /// The fraction of correct samples of each problem, by the sets that `pass_at_k` is a mean over; `None` for a
    /// problem without a scored sample.
    fn rates(&self) -> Vec<Vec<Option<f64>>> {
        let of = |correct: &[usize], scored: &[usize]| -> Vec<Option<f64>> {
            let rate = |(i, &correct): (usize, &usize)| {
                let scored = scored.get(i).copied().unwrap_or(self.samples);
                (scored > 0).then(|| correct as f64 / scored as f64)
            };
            correct.iter().enumerate().map(rate).collect()
        };
        match self.average {
            Average::Parts if !self.parts.is_empty() => {
                self.parts.values().map(|part| of(&part.per_problem, &part.scored_per_problem)).collect()
            }
            _ => vec![of(&self.per_problem, &self.scored_per_problem)],
        }
    }

    /// An evaluation by this plan before it has results.
    pub fn planned(plan: &Plan, average: Average) -> Self {
        let mut problem_set = Sha256::new();
        for problem in plan.parts.iter().flat_map(|p| &p.problems) {
            problem_set.update(problem.id.as_bytes());
            problem_set.update(problem.truth.fingerprint().as_bytes());
        }
        Self {
            samples: plan.n as usize,
            average,
            problem_set: problem_set.finalize()[..8].iter().map(|b| format!("{b:02x}")).collect(),
            graders: plan.parts.iter().map(|p| p.grader.identity()).collect(),
            ..Self::default()
        }
    }

    /// Whether pass@1 of both is the same measure, so that one policy can be called better than the other: the same
    /// problems, mean and number of samples, and the same graders where both say which.
    pub fn is_comparable(&self, other: &Self) -> bool {
        self.problem_set == other.problem_set
            && (self.samples, self.average) == (other.samples, other.average)
            && same_graders(&self.graders, &other.graders)
    }

    /// The counted samples of each problem, named by its set and place.
    pub fn counts(&self) -> Vec<ProblemCounts> {
        let of = |(i, &correct): (usize, &usize)| {
            let scored = self.scored_per_problem.get(i).copied().unwrap_or(self.samples);
            let id = format!("{}:{i:06}", self.problem_set);
            let mut counts = ProblemCounts::counted(id, scored as u64, correct as u64);
            counts.unscorable = self.samples.saturating_sub(scored) as u64;
            counts
        };
        self.per_problem.iter().enumerate().map(of).collect()
    }

    /// pass@1; `None` if nothing could be scored.
    pub fn pass_at_1(&self) -> Option<f64> {
        self.pass_at_k.get(&1).copied()
    }
}

/// One part of an evaluation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PartEvaluation {
    /// Number of problems evaluated.
    pub problems: usize,
    /// Unbiased pass@k as fractions: mean over its problems.
    pub pass_at_k: BTreeMap<usize, f64>,
    /// 95 % problem-bootstrap intervals of `pass_at_k`.
    pub interval: BTreeMap<usize, [f64; 2]>,
    /// Correct samples of each of its problems.
    #[serde(default)]
    pub per_problem: Vec<usize>,
    /// Scored samples of each of its problems, if a verifier failed on some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scored_per_problem: Vec<usize>,
    /// Samples that couldn't be scored.
    pub unscorable: usize,
    /// Number of problems excluded from pass@k, by k: those with fewer than k scored samples.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out: BTreeMap<usize, usize>,
}

/// A problem with one of its completions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Example {
    /// Index among the held-out problems.
    pub problem: u64,
    /// The completion, as text.
    pub completion: String,
    /// The reference answer, as text.
    pub target: Option<String>,
    /// Whether it is correct.
    pub correct: bool,
}

/// A part's counted samples; empty if it has none.
type Counts<'a> = Vec<&'a ProblemCounts>;

impl Evaluation {
    /// Counts the samples of a plan's problems. If `mixed`, problems are also counted by part.
    pub fn of(step: u64, plan: &Plan, counted: &[Benchmark], average: Average, mixed: bool) -> Self {
        let of_part = |name: &str| -> Counts<'_> {
            counted.iter().filter(|b| b.name == name).flat_map(|b| &b.problems).collect()
        };
        let parts: Vec<(&str, Counts<'_>)> =
            plan.parts.iter().map(|p| (p.name.as_str(), of_part(&p.name))).collect();
        let all: Counts<'_> = parts.iter().flat_map(|(_, problems)| problems.iter().copied()).collect();
        let own = |i: usize| resamples(0, i as u64);
        let together = if mixed { resamples_of_all(0) } else { own(0) };
        let sets: Vec<(&[&ProblemCounts], Key)> = match average {
            Average::Parts if mixed => parts.iter().enumerate().map(|(i, (_, p))| (&p[..], own(i))).collect(),
            _ => vec![(&all, together)],
        };
        let (pass_at_k, interval) = estimate(&sets, &plan.ks);
        let whole = part(&all, plan, together);
        let tokens =
            all.iter().map(|p| p.tokens).fold((0, 0), |(t, n), (tokens, said)| (t + tokens, n + said));
        Self {
            step,
            set: USUAL.to_owned(),
            problems: whole.problems,
            pass_at_k,
            interval,
            per_problem: whole.per_problem,
            scored_per_problem: whole.scored_per_problem,
            completion_length_mean: tokens.0 as f64 / (tokens.1 as f64).max(1.0),
            unscorable: whole.unscorable,
            left_out: whole.left_out,
            examples: Vec::new(),
            parts: match mixed {
                true => {
                    let each = parts.iter().enumerate();
                    each.map(|(i, (name, p))| ((*name).to_owned(), part(p, plan, own(i)))).collect()
                }
                false => BTreeMap::new(),
            },
            ..Self::planned(plan, average)
        }
    }
}

/// The counts of one set of problems.
fn part(problems: &[&ProblemCounts], plan: &Plan, key: Key) -> PartEvaluation {
    let (pass_at_k, interval) = estimate(&[(problems, key)], &plan.ks);
    let all_scored = problems.iter().all(|p| p.samples == plan.n);
    let few = |k: u64| problems.iter().filter(|p| p.samples < k).count();
    PartEvaluation {
        problems: problems.len(),
        pass_at_k,
        interval,
        per_problem: problems.iter().map(|p| p.correct as usize).collect(),
        scored_per_problem: match all_scored {
            true => Vec::new(),
            false => problems.iter().map(|p| p.samples as usize).collect(),
        },
        unscorable: problems.iter().map(|p| p.unscorable as usize).sum(),
        left_out: plan.ks.iter().map(|&k| (k as usize, few(k))).filter(|(_, n)| *n > 0).collect(),
    }
}

/// pass@k by k, and its 95 % interval.
type Estimate = (BTreeMap<usize, f64>, BTreeMap<usize, [f64; 2]>);

/// pass@k with its interval: the mean over the sets of the mean over each set's problems. Absent if no problem of a
/// set has k scored samples, because then there is no unbiased estimate. The bootstrap resamples problems within each
/// set; the sets are fixed.
fn estimate(sets: &[(&[&ProblemCounts], Key)], ks: &[u64]) -> Estimate {
    let (mut pass_at_k, mut interval) = Estimate::default();
    for &k in ks {
        let measured = sets.iter().map(|(set, key)| {
            let enough: Counts<'_> = set.iter().copied().filter(|p| p.samples >= k).collect();
            (!enough.is_empty()).then(|| Curve::of("", &enough, &[k], RESAMPLES, *key).points.remove(&k))?
        });
        let Some(measured) = measured.collect::<Option<Vec<_>>>() else { continue };
        let mean = Measured::mean(&measured.iter().collect::<Vec<_>>());
        pass_at_k.insert(k as usize, mean.value);
        interval.insert(k as usize, mean.interval);
    }
    (pass_at_k, interval)
}

impl Evaluation {
    /// Each pass@k with its name for TensorBoard.
    pub fn scalars(&self) -> Vec<(String, f64)> {
        let parts = self.parts.iter().map(|(name, part)| (name.as_str(), &part.pass_at_k));
        std::iter::once((self.set.as_str(), &self.pass_at_k))
            .chain(parts)
            .flat_map(|(name, curve)| curve.iter().map(move |(k, p)| (format!("{name}/pass@{k}"), *p)))
            .collect()
    }

    /// The smallest and the largest k, so that a line fits in a terminal, and what couldn't be counted.
    pub fn in_short(&self) -> String {
        let percent = |name: &str, (k, p): (&usize, &f64)| format!("{name}pass@{k} {:.1} %", 100.0 * p);
        let (first, last) = (self.pass_at_k.first_key_value(), self.pass_at_k.last_key_value());
        let mut words: Vec<String> = first.map(|end| percent("", end)).into_iter().collect();
        words.extend(last.filter(|_| first != last).map(|end| percent("", end)));
        words.extend(self.parts.iter().filter_map(|(name, part)| {
            Some(percent(&format!("{name} "), part.pass_at_k.first_key_value()?))
        }));
        if self.pass_at_k.is_empty() {
            words.push(format!(
                "no pass@k, since {} of {} samples could not be graded",
                self.unscorable,
                self.problems * self.samples
            ));
        }
        words.extend(self.left_out.iter().map(|(k, few)| {
            format!("{few} of {} problems left out of pass@{k}, with fewer scored samples", self.problems)
        }));
        words.join(", ")
    }

    /// Describes what is missing from the estimate: samples that couldn't be scored and the problems excluded for it.
    pub fn warning(&self) -> Option<String> {
        if self.unscorable == 0 {
            return None;
        }
        let all = self.problems * self.samples;
        let mut text = format!("{} of {all} samples could not be scored", self.unscorable);
        text += &left_out_words("", self.problems, &self.left_out, &self.pass_at_k);
        for (name, part) in &self.parts {
            text += &left_out_words(&format!("{name}: "), part.problems, &part.left_out, &part.pass_at_k);
        }
        Some(text)
    }
}

/// "a scored sample", "8 scored samples".
fn scored(count: usize) -> String {
    match count {
        1 => "a scored sample".to_owned(),
        _ => format!("{count} scored samples"),
    }
}

/// Describes what is missing from estimates over this number of problems.
fn left_out_words(
    name: &str,
    problems: usize,
    left_out: &BTreeMap<usize, usize>,
    pass_at_k: &BTreeMap<usize, f64>,
) -> String {
    let words = |(&k, few): (&usize, &usize)| match (problems - few, scored(k)) {
        (0, scored) => format!("; {name}no pass@{k}: no problem has {scored}"),
        // An average over parts needs a value for each part.
        (_, scored) if !pass_at_k.contains_key(&k) => {
            format!("; {name}no pass@{k}: no problem of a part has {scored}")
        }
        (rest, scored) => format!("; {name}pass@{k} is over the {rest} of {problems} problems with {scored}"),
    };
    left_out.iter().map(words).collect()
}

/// Describes what training changed: pass@k before and after, and the paired difference of pass@1 over problems with
/// its 95 % bootstrap interval, if both are the same measure.
pub fn summary(first: &Evaluation, last: &Evaluation) -> String {
    let percent = |p: Option<&f64>| p.map_or("-".to_owned(), |p| format!("{:.1} %", 100.0 * p));
    let row = |name: &str, before: String, after: String| format!("{name:>9} {before:>12} {after:>12}");
    let mut lines = vec![
        format!("{}, {} problems x {} samples", last.set, last.problems, last.samples),
        row("", format!("step {}", first.step), format!("step {}", last.step)),
    ];
    for (k, after) in &last.pass_at_k {
        lines.push(row(&format!("pass@{k}"), percent(first.pass_at_k.get(k)), percent(Some(after))));
    }
    for (name, after) in &last.parts {
        let (Some((k, p)), Some(before)) = (after.pass_at_k.first_key_value(), first.parts.get(name)) else {
            continue;
        };
        let row = row(&format!("pass@{k}"), percent(before.pass_at_k.get(k)), percent(Some(p)));
        lines.push(format!("{row}  {name}, {} problems", after.problems));
    }
    for (k, few) in &last.left_out {
        lines.push(format!("pass@{k} leaves out {few} problems without {}", scored(*k)));
    }
    let (before, after) = (first.rates(), last.rates());
    let sizes = |sets: &[Vec<Option<f64>>]| sets.iter().map(Vec::len).collect::<Vec<_>>();
    let same = first.step < last.step && first.is_comparable(last) && sizes(&before) == sizes(&after);
    let gains: Vec<Vec<f64>> = before
        .iter()
        .zip(&after)
        .map(|(a, b)| a.iter().zip(b).filter_map(|(a, b)| Some((*b)? - (*a)?)).collect())
        .collect();
    if same && let Some(Measured { value: gain, interval: [low, high], .. }) = change(&gains) {
        lines.push(format!(
            "pass@1 changed by {:+.1} points, 95 % interval over problems [{:+.1}, {:+.1}]",
            100.0 * gain,
            100.0 * low,
            100.0 * high
        ));
    } else {
        lines.push(String::new());
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::server::sampling::RequestSampling;

    fn plan(n: u64, ks: &[u64]) -> Plan {
        let sampling = RequestSampling { temperature: 1.0, top_p: 1.0, top_k: 0, min_p: 0.0, max_tokens: 1 };
        Plan { parts: Vec::new(), n, ks: ks.to_vec(), sampling, stop: Vec::new(), seed: None, rounding: None }
    }

    #[test]
    fn problems_without_enough_scored_samples_are_counted_and_said() {
        let problems = [4, 4, 3, 1].map(|scored| ProblemCounts::counted(String::new(), scored, 1));
        let left_out = part(&problems.each_ref(), &plan(4, &[1, 2, 4, 5]), resamples(0, 0)).left_out;
        assert_eq!(left_out, BTreeMap::from([(2, 1), (4, 2), (5, 4)]));
        let evaluation = Evaluation {
            step: 1,
            set: "held-out".into(),
            problems: 4,
            samples: 4,
            pass_at_k: BTreeMap::from([(2, 0.5), (4, 0.75)]),
            unscorable: 4,
            left_out,
            ..Evaluation::default()
        };
        let said = evaluation.warning().unwrap();
        for part in [
            "4 of 16 samples could not be scored",
            "pass@2 is over the 3 of 4 problems",
            "pass@4 is over the 2 of 4 problems",
            "no pass@5",
        ] {
            assert!(said.contains(part), "{said}");
        }
        assert_eq!(Evaluation { unscorable: 0, ..evaluation }.warning(), None);
    }

    #[test]
    fn a_change_is_that_of_the_mean_that_is_shown() {
        let evaluation = |step, correct: [usize; 4], average| Evaluation {
            step,
            set: "held-out".into(),
            problems: 4,
            samples: 4,
            average,
            per_problem: correct.to_vec(),
            parts: [("a", &correct[..3]), ("b", &correct[3..])]
                .map(|(name, own)| {
                    (
                        name.to_owned(),
                        PartEvaluation { per_problem: own.to_vec(), ..PartEvaluation::default() },
                    )
                })
                .into(),
            ..Evaluation::default()
        };
        let said = |average| {
            let (first, last) = (evaluation(0, [0; 4], average), evaluation(1, [4, 4, 4, 0], average));
            summary(&first, &last)
        };
        assert!(said(Average::Problems).contains("changed by +75.0 points"), "{}", said(Average::Problems));
        let parts = said(Average::Parts);
        assert!(parts.contains("changed by +50.0 points") && parts.contains("[+50.0, +50.0]"), "{parts}");
    }

    #[test]
    fn what_a_part_leaves_out_is_said() {
        let left_out = BTreeMap::from([(2, 1), (4, 2)]);
        let said = left_out_words("sums: ", 3, &left_out, &BTreeMap::from([(2, 0.5)]));
        assert!(said.contains("; sums: pass@2 is over the 2 of 3 problems"), "{said}");
        assert!(said.contains("; sums: no pass@4: no problem of a part has 4"), "{said}");
    }

    #[test]
    fn an_average_over_parts_weighs_them_alike_and_draws_problems_within_each() {
        let count = |correct| ProblemCounts::counted(String::new(), 4, correct);
        let (solved, missed) = ([count(4), count(4), count(4)], [count(0)]);
        let all: Vec<&ProblemCounts> = solved.iter().chain(&missed).collect();
        let estimated = |sets: &[&[&ProblemCounts]]| {
            let sets: Vec<_> =
                sets.iter().enumerate().map(|(i, set)| (*set, resamples(0, i as u64))).collect();
            let (pass_at_k, interval) = estimate(&sets, &[2]);
            (pass_at_k.get(&2).copied(), interval.get(&2).copied())
        };
        let (pooled, [low, high]) = match estimated(&[&all]) {
            (Some(p), Some(interval)) => (p, interval),
            other => panic!("{other:?}"),
        };
        assert!(pooled == 0.75 && low < 0.5 && high == 1.0, "{pooled} [{low}, {high}]");
        // All problems of a part are equal, so resampling them changes nothing.
        assert_eq!(estimated(&[&all[..3], &all[3..]]), (Some(0.5), Some([0.5, 0.5])));
        let few = ProblemCounts::counted(String::new(), 1, 1);
        assert_eq!(
            estimated(&[&all[..3], &[&few]]),
            (None, None),
            "no problem of a part has two scored samples"
        );
    }
}
