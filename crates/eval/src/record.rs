//! Records the result of a run's evaluation as a line of `eval.jsonl`: pass@k over held-out problems with bootstrap
//! intervals over problems. The estimator is the same as in every command.

use super::compare::LEVEL;
use super::estimate::{
    Curve, Measured, RESAMPLES, change, mean_pass_at_k, measure_of_each, resamples, resamples_of_all,
};
use super::exact::Exact;
use super::plan::Plan;
use super::problems::ProblemSet;
use super::samples::{Benchmark, ProblemCounts};
use fgrpo_core::stats::measure::Measure;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Name of the problem set in a run's evaluations.
pub const USUAL: &str = "held-out";

/// Name of the problem set in a run's full evaluations (`[eval.full]`).
pub const FULL: &str = "held-out in full";

/// Returns whether two evaluations have the same graders. An evaluation that doesn't name its graders agrees with any.
pub fn same_graders(a: &[String], b: &[String]) -> bool {
    a.is_empty() || b.is_empty() || a == b
}

/// Whether a metric ranks above another. Each comes with the number of problems that it leaves out. The smaller number
/// ranks above, because leaving out hard problems raises the metric. If equal, the larger value does.
pub fn ranks_above((left_out, value): (usize, f64), (other_left_out, other): (usize, f64)) -> bool {
    (other_left_out, value) > (left_out, other)
}

/// Whether an evaluation's mean is over problems or over parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Average {
    /// All problems, with equal weights.
    #[default]
    Problems,
    /// The means of the parts, with equal weights.
    Parts,
}

impl Average {
    /// Returns whether the mean is over problems, which is the default.
    pub fn is_over_problems(&self) -> bool {
        *self == Self::Problems
    }
}

/// An evaluation: one line of `eval.jsonl`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Line")]
pub struct Evaluation {
    /// RL step after which the policy was evaluated, or 0 before the first step.
    pub step: u64,
    /// Name of the problem set.
    pub set: String,
    /// Number of samples per problem.
    pub samples: usize,
    /// Whether `pass_at_k` is a mean over problems or over parts.
    #[serde(default, skip_serializing_if = "Average::is_over_problems")]
    pub average: Average,
    /// Hash of the problems' prompts and reference answers. Evaluations are compared problem by problem only if they
    /// have the same hash.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub problem_set: String,
    /// Grader of each part. The list is empty in older files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub graders: Vec<String>,
    /// Sampling settings, in words. Empty in older files.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sampling: String,
    /// Counts of all problems. `pass_at_k` is a mean over the parts if `average` is [`Average::Parts`].
    #[serde(flatten)]
    pub all: Counted,
    /// Mean completion length in tokens.
    pub completion_length_mean: f64,
    /// A few completions of the first problems, for the report.
    pub examples: Vec<Example>,
    /// Counts by part, if the problems come from several parts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, Counted>,
    /// Exact measures, if `eval.exact` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact: Option<Exact>,
}

/// Counts of a set of problems, with pass@k computed from them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// Number of problems evaluated.
    pub problems: usize,
    /// Unbiased pass@k as fractions, averaged over the problems.
    pub pass_at_k: BTreeMap<usize, f64>,
    /// 95 % bootstrap intervals of `pass_at_k` over problems.
    pub interval: BTreeMap<usize, [f64; 2]>,
    /// Number of correct samples of each problem. The list is empty for a part in older files.
    #[serde(default)]
    pub per_problem: Vec<usize>,
    /// Number of scored samples of each problem. The list is empty if every sample was scored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scored_per_problem: Vec<usize>,
    /// Number of samples that couldn't be scored.
    pub unscorable: usize,
    /// Number of problems that pass@k leaves out because they have fewer than k scored samples, by k.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out: BTreeMap<usize, usize>,
}

/// Fields of a line, as it is read. No field is a flattened struct, because serde's errors wouldn't name its fields.
#[derive(Deserialize)]
struct Line {
    step: u64,
    set: String,
    samples: usize,
    #[serde(default)]
    average: Average,
    #[serde(default)]
    problem_set: String,
    #[serde(default)]
    graders: Vec<String>,
    #[serde(default)]
    sampling: String,
    problems: usize,
    pass_at_k: BTreeMap<usize, f64>,
    interval: BTreeMap<usize, [f64; 2]>,
    #[serde(default)]
    per_problem: Vec<usize>,
    #[serde(default)]
    scored_per_problem: Vec<usize>,
    unscorable: usize,
    #[serde(default)]
    left_out: BTreeMap<usize, usize>,
    completion_length_mean: f64,
    examples: Vec<Example>,
    #[serde(default)]
    parts: BTreeMap<String, Counted>,
    #[serde(default)]
    exact: Option<Exact>,
}

impl From<Line> for Evaluation {
    fn from(line: Line) -> Self {
        Self {
            step: line.step,
            set: line.set,
            samples: line.samples,
            average: line.average,
            problem_set: line.problem_set,
            graders: line.graders,
            sampling: line.sampling,
            all: Counted {
                problems: line.problems,
                pass_at_k: line.pass_at_k,
                interval: line.interval,
                per_problem: line.per_problem,
                scored_per_problem: line.scored_per_problem,
                unscorable: line.unscorable,
                left_out: line.left_out,
            },
            completion_length_mean: line.completion_length_mean,
            examples: line.examples,
            parts: line.parts,
            exact: line.exact,
        }
    }
}

/// A problem with one of its completions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Example {
    /// Index among the held-out problems.
    pub problem: u64,
    /// Text of the completion.
    pub completion: String,
    /// The reference answer.
    pub target: Option<String>,
    /// Whether the completion is correct, or `None` if it couldn't be scored.
    pub correct: Option<bool>,
}

impl Counted {
    fn of(problems: &[&ProblemCounts], plan: &Plan, curve: &Curve) -> Self {
        let all_scored = problems.iter().all(|p| p.samples == plan.n);
        let few = |k: u64| problems.iter().filter(|p| p.samples < k).count();
        Self {
            problems: problems.len(),
            pass_at_k: curve.points.iter().map(|(k, m)| (*k as usize, m.value)).collect(),
            interval: curve.points.iter().map(|(k, m)| (*k as usize, m.interval)).collect(),
            per_problem: problems.iter().map(|p| p.correct as usize).collect(),
            scored_per_problem: if all_scored {
                Vec::new()
            } else {
                problems.iter().map(|p| p.samples as usize).collect()
            },
            unscorable: problems.iter().map(|p| p.unscorable as usize).sum(),
            left_out: plan.ks.iter().map(|&k| (k as usize, few(k))).filter(|(_, n)| *n > 0).collect(),
        }
    }
}

impl Evaluation {
    /// Creates an evaluation of this plan, without results.
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
            sampling: plan.sampling_in_words(),
            ..Self::default()
        }
    }

    /// Counts the samples of a plan's problems. If `mixed`, problems are also counted by part.
    pub fn of(step: u64, plan: &Plan, counted: &[Benchmark], average: Average, mixed: bool) -> Self {
        let part_problems = |name: &str| -> Vec<&ProblemCounts> {
            counted.iter().filter(|b| b.name == name).flat_map(|b| &b.problems).collect()
        };
        let parts: Vec<Vec<&ProblemCounts>> = plan.parts.iter().map(|p| part_problems(&p.name)).collect();
        let all = parts.concat();
        let curve = |problems: &[&ProblemCounts], key| {
            Curve::of("", problems.iter().copied(), &plan.ks, RESAMPLES, key)
        };
        let part_curves: Vec<Curve> = if mixed {
            parts.iter().enumerate().map(|(i, p)| curve(p, resamples(0, i as u64))).collect()
        } else {
            Vec::new()
        };
        let together = match average {
            Average::Parts if mixed => Curve::mean("", &part_curves.iter().collect::<Vec<_>>()),
            _ if mixed => curve(&all, resamples_of_all(0)),
            _ => curve(&all, resamples(0, 0)),
        };
        let tokens = all
            .iter()
            .map(|p| p.tokens)
            .fold((0, 0), |(t, n), (tokens, reported)| (t + tokens, n + reported));
        let part = |((set, problems), curve): ((&ProblemSet, &Vec<&ProblemCounts>), &Curve)| {
            (set.name.clone(), Counted::of(problems, plan, curve))
        };
        Self {
            step,
            set: USUAL.to_owned(),
            all: Counted::of(&all, plan, &together),
            completion_length_mean: tokens.0 as f64 / (tokens.1 as f64).max(1.0),
            parts: plan.parts.iter().zip(&parts).zip(&part_curves).map(part).collect(),
            ..Self::planned(plan, average)
        }
    }

    /// Returns the reason why the results of two policies can't be compared (different problems or different graders), or
    /// `None` if they can.
    pub fn unlike(&self, other: &Self) -> Option<String> {
        let other_problems = self.problem_set != other.problem_set;
        let problems = other_problems.then(|| "they were evaluated on different problems".to_owned());
        problems.or_else(|| self.other_graders(other))
    }

    /// Names the graders of both evaluations if both are known and differ.
    pub fn other_graders(&self, other: &Self) -> Option<String> {
        let [a, b] = [self, other].map(|e| e.graders.join(", "));
        (!same_graders(&self.graders, &other.graders))
            .then(|| format!("they were graded by different graders, {a} and {b}"))
    }

    /// Whether pass@1 of both evaluations is the same measure, so that one policy can be called better than the other:
    /// same problems, mean and number of samples, and same graders and sampling settings if both evaluations name them.
    pub fn is_comparable(&self, other: &Self) -> bool {
        let [a, b] = [self, other].map(|e| &e.sampling);
        self.unlike(other).is_none()
            && (self.samples, self.average) == (other.samples, other.average)
            && (a.is_empty() || b.is_empty() || a == b)
    }

    /// Returns this evaluation, followed by each of its parts as an evaluation of the set `SET, PART`.
    pub fn with_parts(self) -> Vec<Self> {
        let part = |(name, counted): (&String, &Counted)| Self {
            set: format!("{}, {name}", self.set),
            average: Average::Problems,
            all: counted.clone(),
            examples: Vec::new(),
            parts: BTreeMap::new(),
            exact: None,
            ..self.clone()
        };
        let parts: Vec<Self> = self.parts.iter().map(part).collect();
        [self].into_iter().chain(parts).collect()
    }

    /// Returns the counts of each problem. A problem is named by the hash of the problem set and the problem's index.
    pub fn counts(&self) -> Vec<ProblemCounts> {
        self.counts_of(&self.all)
    }

    fn counts_of(&self, counted: &Counted) -> Vec<ProblemCounts> {
        let problem = |(i, &correct): (usize, &usize)| {
            let scored = counted.scored_per_problem.get(i).copied().unwrap_or(self.samples);
            let id = format!("{}:{i:06}", self.problem_set);
            let mut counts = ProblemCounts::counted(id, scored as u64, correct as u64);
            counts.unscorable = self.samples.saturating_sub(scored) as u64;
            counts
        };
        counted.per_problem.iter().enumerate().map(problem).collect()
    }

    /// Returns whether `pass_at_k` is a mean over parts, which can't be computed from a single list of problems.
    fn is_mean_over_parts(&self) -> bool {
        self.average == Average::Parts && !self.parts.is_empty()
    }

    /// Returns pass@1, or `None` if no sample could be scored.
    pub fn pass_at_1(&self) -> Option<f64> {
        self.all.pass_at_k.get(&1).copied()
    }

    /// Returns pass@k as recorded, or else computed from the counts of the problems, or `None` if neither is possible.
    pub fn pass_at(&self, k: usize) -> Option<f64> {
        let from_counts = || mean_pass_at_k(&self.counts(), k as u64).filter(|_| !self.is_mean_over_parts());
        self.all.pass_at_k.get(&k).copied().or_else(from_counts)
    }

    /// Computes pass@k of each problem, or `None` for a problem with fewer than k scored samples. The list is empty if
    /// `pass_at_k` is a mean over parts, or if the problems' counts are unknown.
    pub fn by_problem(&self, k: usize) -> Vec<Option<f64>> {
        if self.is_mean_over_parts() {
            Vec::new()
        } else {
            measure_of_each(&self.counts(), Measure::PassAtK(k as u64))
        }
    }

    /// Computes pass@1 of each problem: one list for each part if `pass_at_k` is a mean over parts, otherwise one list.
    fn rates(&self) -> Vec<Vec<Option<f64>>> {
        let sets: Vec<&Counted> =
            if self.is_mean_over_parts() { self.parts.values().collect() } else { vec![&self.all] };
        sets.into_iter().map(|set| measure_of_each(&self.counts_of(set), Measure::PassAtK(1))).collect()
    }
}

impl Evaluation {
    /// Lists each pass@k with its name in TensorBoard.
    pub fn scalars(&self) -> Vec<(String, f64)> {
        let parts = self.parts.iter().map(|(name, part)| (name.as_str(), &part.pass_at_k));
        std::iter::once((self.set.as_str(), &self.all.pass_at_k))
            .chain(parts)
            .flat_map(|(name, curve)| curve.iter().map(move |(k, p)| (format!("{name}/pass@{k}"), *p)))
            .chain(self.exact.iter().flat_map(|exact| exact.scalars(&self.set)))
            .collect()
    }

    /// Formats pass@k for the smallest and the largest k, so that the line fits in a terminal, followed by the numbers of
    /// unscorable samples and of problems left out.
    pub fn in_short(&self) -> String {
        let Counted { problems, pass_at_k, unscorable, left_out, .. } = &self.all;
        let percent = |name: &str, (k, p): (&usize, &f64)| format!("{name}pass@{k} {:.1} %", 100.0 * p);
        let (first, last) = (pass_at_k.first_key_value(), pass_at_k.last_key_value());
        let mut words: Vec<String> = first.map(|end| percent("", end)).into_iter().collect();
        words.extend(last.filter(|_| first != last).map(|end| percent("", end)));
        words.extend(self.parts.iter().filter_map(|(name, part)| {
            Some(percent(&format!("{name} "), part.pass_at_k.first_key_value()?))
        }));
        if pass_at_k.is_empty() {
            let all = problems * self.samples;
            words.push(format!("no pass@k, since {unscorable} of {all} samples could not be graded"));
        }
        words.extend(self.exact.as_ref().map(Exact::in_short));
        words.extend(left_out.iter().map(|(k, few)| {
            format!("{few} of {problems} problems left out of pass@{k}, with fewer scored samples")
        }));
        words.join(", ")
    }

    /// Describes the samples that couldn't be scored and the problems that are left out because of them.
    pub fn warning(&self) -> Option<String> {
        let (all, unscorable) = (self.all.problems * self.samples, self.all.unscorable);
        let parts = self.parts.iter().map(|(name, part)| part.left_out_words(&format!("{name}: ")));
        let text =
            format!("{unscorable} of {all} samples could not be scored{}", self.all.left_out_words(""));
        (unscorable > 0).then(|| text + &parts.collect::<String>())
    }
}

/// Formats a count: "a scored sample", "8 scored samples".
fn scored(count: usize) -> String {
    match count {
        1 => "a scored sample".to_owned(),
        _ => format!("{count} scored samples"),
    }
}

impl Counted {
    /// Returns the number of problems that pass@k leaves out. Values that leave out different problems can't be
    /// ranked.
    pub fn left_out(&self, k: usize) -> usize {
        self.left_out.get(&k).copied().unwrap_or(0)
    }

    /// Describes the problems that pass@k leaves out, preceded by the name of the set.
    fn left_out_words(&self, name: &str) -> String {
        let words = |(&k, few): (&usize, &usize)| match (self.problems - few, scored(k)) {
            (0, scored) => format!("; {name}no pass@{k}: no problem has {scored}"),
            // An average over parts needs a value for each part.
            (_, scored) if !self.pass_at_k.contains_key(&k) => {
                format!("; {name}no pass@{k}: no problem of a part has {scored}")
            }
            (rest, scored) => {
                format!("; {name}pass@{k} is over the {rest} of {} problems with {scored}", self.problems)
            }
        };
        self.left_out.iter().map(words).collect()
    }
}

/// Describes the effect of training: pass@k before and after, and the paired difference of pass@1 over problems with a
/// 95 % bootstrap interval, if both are the same measure.
pub fn summary(first: &Evaluation, last: &Evaluation) -> String {
    let percent = |p: Option<&f64>| p.map_or("-".to_owned(), |p| format!("{:.1} %", 100.0 * p));
    let row = |name: &str, before: String, after: String| format!("{name:>9} {before:>12} {after:>12}");
    let mut lines = vec![
        format!("{}, {} problems x {} samples", last.set, last.all.problems, last.samples),
        row("", format!("step {}", first.step), format!("step {}", last.step)),
    ];
    for (k, after) in &last.all.pass_at_k {
        lines.push(row(&format!("pass@{k}"), percent(first.all.pass_at_k.get(k)), percent(Some(after))));
    }
    for (name, after) in &last.parts {
        let (Some((k, p)), Some(before)) = (after.pass_at_k.first_key_value(), first.parts.get(name)) else {
            continue;
        };
        let row = row(&format!("pass@{k}"), percent(before.pass_at_k.get(k)), percent(Some(p)));
        lines.push(format!("{row}  {name}, {} problems", after.problems));
    }
    for (k, few) in &last.all.left_out {
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
    if same && let Some(gain) = change(&gains) {
        let Measured { value, interval: [low, high], problems, .. } = gain;
        let common = if problems < sizes(&before).iter().sum() {
            format!(" on the {problems} problems that both evaluations scored")
        } else {
            String::new()
        };
        let limit = match gain.p_value() {
            _ if gain.is_one() => "; one problem says nothing about others".to_owned(),
            p if p >= LEVEL && (low > 0.0 || high < 0.0) => format!("; too few problems, p = {p:.2}"),
            _ => String::new(),
        };
        lines.push(format!(
            "pass@1 changed by {:+.1} points{common}, 95 % interval over problems [{:+.1}, {:+.1}]{limit}",
            100.0 * value,
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
        let (plan, problems) = (plan(4, &[1, 2, 4, 5]), problems.each_ref());
        let curve = Curve::of("", problems, &plan.ks, 10, resamples(0, 0));
        let all = Counted { unscorable: 4, ..Counted::of(&problems, &plan, &curve) };
        assert_eq!(all.left_out, BTreeMap::from([(2, 1), (4, 2), (5, 4)]));
        assert_eq!(all.pass_at_k.keys().collect::<Vec<_>>(), [&1, &2, &4]);
        let mut evaluation = Evaluation { samples: 4, all, ..Evaluation::default() };
        let warning = evaluation.warning().unwrap();
        for part in [
            "4 of 16 samples could not be scored",
            "pass@2 is over the 3 of 4 problems",
            "pass@4 is over the 2 of 4 problems",
            "no pass@5",
        ] {
            assert!(warning.contains(part), "{warning}");
        }
        evaluation.all.unscorable = 0;
        assert_eq!(evaluation.warning(), None);
    }

    #[test]
    fn a_change_is_that_of_the_mean_that_is_shown() {
        let counted = |correct: &[usize]| Counted { per_problem: correct.to_vec(), ..Counted::default() };
        let evaluation = |step, correct: [usize; 4], average| Evaluation {
            step,
            samples: 4,
            average,
            all: counted(&correct),
            parts: [("a", &correct[..3]), ("b", &correct[3..])]
                .map(|(name, part)| (name.to_owned(), counted(part)))
                .into(),
            ..Evaluation::default()
        };
        let sentence = |average| {
            let (first, last) = (evaluation(0, [0; 4], average), evaluation(1, [4, 4, 4, 0], average));
            summary(&first, &last)
        };
        assert!(
            sentence(Average::Problems).contains("changed by +75.0 points"),
            "{}",
            sentence(Average::Problems)
        );
        let parts = sentence(Average::Parts);
        assert!(parts.contains("changed by +50.0 points") && parts.contains("[+50.0, +50.0]"), "{parts}");
        assert!(parts.contains("one problem says nothing about others"), "{parts}");
    }

    #[test]
    fn a_change_over_few_or_common_problems_says_so() {
        let evaluation = |step, correct: &[usize], scored: &[usize]| Evaluation {
            step,
            samples: 4,
            all: Counted {
                problems: correct.len(),
                per_problem: correct.to_vec(),
                scored_per_problem: scored.to_vec(),
                ..Counted::default()
            },
            ..Evaluation::default()
        };
        let few = summary(&evaluation(0, &[0; 3], &[]), &evaluation(1, &[1; 3], &[]));
        assert!(few.contains("[+25.0, +25.0]; too few problems, p = 0.25"), "{few}");
        let (first, last) = (evaluation(0, &[0; 8], &[]), evaluation(1, &[1; 8], &[4, 4, 4, 4, 4, 4, 4, 0]));
        let common = summary(&first, &last);
        assert!(common.contains("+25.0 points on the 7 problems that both evaluations scored"), "{common}");
        let whole = summary(&first, &evaluation(1, &[1; 8], &[]));
        assert!(whole.ends_with("+25.0 points, 95 % interval over problems [+25.0, +25.0]"), "{whole}");
    }

    #[test]
    fn evaluations_with_other_sampling_settings_are_not_comparable() {
        let sampled = |sampling: &str| Evaluation { sampling: sampling.into(), ..Evaluation::default() };
        let [warm, cold, unknown] = ["temperature 1.0", "temperature 0.5", ""].map(sampled);
        assert!(!warm.is_comparable(&cold) && warm.is_comparable(&warm));
        assert!(warm.is_comparable(&unknown) && unknown.is_comparable(&cold));
    }

    #[test]
    fn what_a_part_leaves_out_is_said() {
        let (left_out, pass_at_k) = (BTreeMap::from([(2, 1), (4, 2)]), BTreeMap::from([(2, 0.5)]));
        let words =
            Counted { problems: 3, left_out, pass_at_k, ..Counted::default() }.left_out_words("sums: ");
        assert!(words.contains("; sums: pass@2 is over the 2 of 3 problems"), "{words}");
        assert!(words.contains("; sums: no pass@4: no problem of a part has 4"), "{words}");
    }

    #[test]
    fn an_average_over_parts_weighs_them_alike_and_draws_problems_within_each() {
        let count = |correct| ProblemCounts::counted(String::new(), 4, correct);
        let (solved, missed) = ([count(4), count(4), count(4)], [count(0)]);
        let all: Vec<&ProblemCounts> = solved.iter().chain(&missed).collect();
        let estimated = |sets: &[&[&ProblemCounts]]| {
            let curve = |(i, set): (usize, &&[&ProblemCounts])| {
                Curve::of("", set.iter().copied(), &[2], RESAMPLES, resamples(0, i as u64))
            };
            let curves: Vec<Curve> = sets.iter().enumerate().map(curve).collect();
            let mean = Curve::mean("", &curves.iter().collect::<Vec<_>>());
            mean.points.get(&2).map(|m| (m.value, m.interval))
        };
        let (pooled, [low, high]) = estimated(&[&all]).unwrap();
        assert!(pooled == 0.75 && low < 0.5 && high == 1.0, "{pooled} [{low}, {high}]");
        // All problems of a part are equal, so resampling has no effect.
        assert_eq!(estimated(&[&all[..3], &all[3..]]), Some((0.5, [0.5, 0.5])));
        let few = ProblemCounts::counted(String::new(), 1, 1);
        assert_eq!(estimated(&[&all[..3], &[&few]]), None, "no problem of a part has two scored samples");
    }
}
