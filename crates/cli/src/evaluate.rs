//! Evaluation while training: samples of held-out problems, pass@k with problem-bootstrap intervals.

use crate::config::EvalConfig;
use crate::rollout::{grade, sample};
use crate::task::{Split, Task};
use fgrpo_core::rng::Key;
use fgrpo_core::stats::bootstrap::{Simulated, resampled_mean};
use fgrpo_nn::{Engine, Sampling};
use fgrpo_verify::verdict::Verdict;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One line of `eval.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// After this RL step; 0 is before the first.
    pub step: u64,
    /// Which problems.
    pub set: String,
    /// Problems evaluated.
    pub problems: usize,
    /// Samples per problem.
    pub samples: usize,
    /// Unbiased pass@k, mean over problems, fractions.
    pub pass_at_k: BTreeMap<usize, f64>,
    /// 95 % problem-bootstrap intervals of the same.
    pub interval: BTreeMap<usize, [f64; 2]>,
    /// Correct samples of each problem.
    pub per_problem: Vec<usize>,
    /// Mean completion length in tokens.
    pub completion_length_mean: f64,
    /// Samples that no verifier could score; they shrink their problem's sample count.
    pub unscorable: usize,
    /// A few completions of the first problems, as text, for the report.
    pub examples: Vec<Example>,
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

/// Samples sampled at a time, which bounds the memory that waits for its grade.
const SAMPLES_AT_ONCE: usize = 1 << 16;
const RESAMPLES: u64 = 2_000;

/// Samples `eval.samples` completions of each held-out problem and reports pass@k. `None` when
/// `go_on` said stop.
///
/// # Errors
/// What the engine reports.
pub fn evaluate(
    engine: &mut Engine,
    task: &dyn Task,
    eval: &EvalConfig,
    sampling: &Sampling,
    keys: (Key, Key),
    step: u64,
    mut go_on: impl FnMut() -> bool,
) -> anyhow::Result<Option<Evaluation>> {
    let (key, bootstrap) = keys;
    let problems = task.len(Split::HeldOut).min(eval.problems.map_or(u64::MAX, |p| p as u64));
    let at_once = (SAMPLES_AT_ONCE / eval.samples).max(1) as u64;
    let (mut correct, mut scored) = (Vec::new(), Vec::new());
    let (mut tokens, mut completions, mut examples) = (0usize, 0usize, Vec::new());
    let mut first = 0;
    while first < problems {
        let last = (first + at_once).min(problems);
        let prompts = (first..last).map(|id| task.prompt(Split::HeldOut, id)).collect();
        let Some(rollouts) = sample(engine, prompts, eval.samples, sampling, key, |_| go_on())? else {
            return Ok(None);
        };
        for (r, grades) in rollouts.iter().zip(grade(task, Split::HeldOut, &rollouts)) {
            correct.push(grades.iter().filter(|g| g.verdict == Verdict::Correct).count());
            scored.push(grades.iter().filter(|g| g.verdict != Verdict::Unscorable).count());
            tokens += r.completions.iter().map(|c| c.tokens.len()).sum::<usize>();
            completions += r.completions.len();
            if examples.len() < 8 {
                examples.push(Example {
                    problem: r.prompt.id,
                    completion: task.text(&r.completions[0].tokens),
                    target: task.target(Split::HeldOut, r.prompt.id),
                    correct: grades[0].verdict == Verdict::Correct,
                });
            }
        }
        first = last;
    }
    let mut pass_at_k = BTreeMap::new();
    let mut interval = BTreeMap::new();
    for &k in &eval.k {
        // A problem with fewer scored samples than k can't be estimated without bias.
        let per_problem: Vec<f64> = correct
            .iter()
            .zip(&scored)
            .filter(|&(_, &n)| n >= k)
            .map(|(&c, &n)| fgrpo_core::stats::pass_at_k::pass_at_k(n, c, k))
            .collect();
        if per_problem.is_empty() {
            continue;
        }
        // An empty sum of floats is -0.
        pass_at_k.insert(k, per_problem.iter().fold(0.0, |a, p| a + p) / per_problem.len() as f64);
        interval.insert(k, mean_interval(&per_problem, RESAMPLES, bootstrap.with(k as u64)));
    }
    Ok(Some(Evaluation {
        step,
        set: "held-out".to_owned(),
        problems: problems as usize,
        samples: eval.samples,
        pass_at_k,
        interval,
        unscorable: completions - scored.iter().sum::<usize>(),
        per_problem: correct,
        completion_length_mean: tokens as f64 / completions.max(1) as f64,
        examples,
    }))
}

/// The 95 % percentile-bootstrap interval of the mean of `values`.
fn mean_interval(values: &[f64], resamples: u64, key: Key) -> [f64; 2] {
    let means = (0..resamples).map(|i| resampled_mean(values, key, i)).collect();
    let (low, high) = Simulated::new(means).interval(0.95);
    [low, high]
}

/// What training changed, in words: pass@k before and after, and the paired difference of pass@1
/// over problems with its 95 % bootstrap interval.
pub fn summary(first: &Evaluation, last: &Evaluation, key: Key) -> String {
    use std::fmt::Write;
    let mut text = format!("held-out, {} problems x {} samples\n", last.problems, last.samples);
    let _ = writeln!(
        text,
        "{:>9} {:>12} {:>12}",
        "",
        format!("step {}", first.step),
        format!("step {}", last.step)
    );
    for (k, after) in &last.pass_at_k {
        let before = first.pass_at_k.get(k).map_or("-".to_owned(), |p| format!("{:.1} %", 100.0 * p));
        let _ = writeln!(
            text,
            "{:>9} {before:>12} {:>12}",
            format!("pass@{k}"),
            format!("{:.1} %", 100.0 * after)
        );
    }
    if first.per_problem.len() == last.per_problem.len() && first.samples == last.samples {
        let gains: Vec<f64> = first
            .per_problem
            .iter()
            .zip(&last.per_problem)
            .map(|(&a, &b)| (b as f64 - a as f64) / last.samples as f64)
            .collect();
        let [low, high] = mean_interval(&gains, RESAMPLES, key);
        let gain = gains.iter().sum::<f64>() / gains.len() as f64;
        let _ = write!(
            text,
            "pass@1 changed by {:+.1} points, 95 % interval over problems [{:+.1}, {:+.1}]",
            100.0 * gain,
            100.0 * low,
            100.0 * high
        );
    }
    text
}
