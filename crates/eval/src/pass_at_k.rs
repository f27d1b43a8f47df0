//! Unbiased pass@k of scored samples, with bootstrap intervals over problems.

use crate::benchmarks::Averages;
use crate::estimate::{Curve, measure_of_each, resamples, resamples_of_all};
use crate::graded::FollowedShares;
use crate::samples::{Benchmark, ProblemCounts};
use crate::table::percent;
use fgrpo_core::rng::Key;
use fgrpo_core::stats::majority::{Votes, majority_at_k};
use fgrpo_core::stats::measure::Measure;
use fgrpo_core::stats::pass_at_k::pass_hat_k;
use rayon::prelude::*;
use serde::Serialize;
use serde::ser::SerializeMap;
use std::collections::BTreeMap;

/// Number of random orders over which maj@k is averaged.
const ORDERINGS: u64 = 1024;

/// Settings of the estimates.
pub struct Settings {
    /// Values of k. If empty, the powers of two up to 256 and up to the number of samples are used.
    pub ks: Vec<u64>,
    /// Number of resamples of the bootstrap over problems.
    pub resamples: u64,
    /// Seed of the bootstrap and of the random orders for maj@k.
    pub seed: u64,
    /// Averages over benchmarks.
    pub averages: Averages,
    /// Whether to estimate pass^k too.
    pub hat: bool,
    /// Success rates in percent at which cover@tau is estimated. If empty, it isn't estimated.
    pub cover: Vec<u64>,
}

/// pass@k of several benchmarks.
#[derive(Debug, Clone, Serialize)]
pub struct PassAtK {
    /// All problems of all benchmarks pooled, or `None` for a single benchmark.
    #[serde(flatten)]
    pub pooled: Option<Curve>,
    /// One report for each benchmark.
    pub benchmarks: Vec<Report>,
    /// Averages over benchmarks.
    #[serde(serialize_with = "by_name")]
    pub averages: Vec<Curve>,
}

/// Estimates for one benchmark.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Name of the benchmark.
    pub benchmark: String,
    /// pass@k over all problems of the benchmark.
    #[serde(flatten)]
    pub all: Curve,
    /// pass^k over all problems, if requested: the probability that k samples are all correct.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "values")]
    pub pass_hat_k: Option<Curve>,
    /// cover@tau by tau in percent, if requested: the fraction of problems with at least this success rate.
    #[serde(flatten, serialize_with = "cover")]
    pub cover: Option<Curve>,
    /// Number of clusters, if the bootstrap draws clusters of problems.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clusters: Option<usize>,
    /// Number of problems that have no sample yet and are left out of every value. Only an unfinished evaluation has any.
    #[serde(skip_serializing_if = "is_zero")]
    pub problems_without_samples: usize,
    /// Number of samples, scored or unscorable.
    pub samples: u64,
    /// Number of samples that could not be scored.
    pub unscorable: u64,
    /// maj@k, if every wrong sample has an answer field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maj_at_k: Option<BTreeMap<u64, f64>>,
    /// Mean reward over problems, if every scored sample has a graded reward.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_reward: Option<f64>,
    /// Accuracies of IFEval and IFBench, if an evaluation graded instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<FollowedShares>,
    /// Fraction of the samples that end at the length limit, if the samples have a finish reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated: Option<f64>,
    /// Mean number of tokens per problem, if every sample reports its tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_problem: Option<f64>,
    /// pass@k by subject, if the samples name one.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "by_name")]
    pub subjects: Vec<Curve>,
    /// pass@k of each problem.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_problem: Vec<ProblemReport>,
}

/// pass@k of one problem.
#[derive(Debug, Clone, Serialize)]
pub struct ProblemReport {
    /// Id of the problem.
    pub problem: String,
    /// Number of scored samples.
    pub n: u64,
    /// Number of correct samples.
    pub c: u64,
    /// pass@k by k.
    pub pass_at_k: BTreeMap<u64, f64>,
}

fn values<S: serde::Serializer>(curve: &Option<Curve>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(curve.iter().flat_map(|c| &c.points).map(|(k, m)| (k, m.value)))
}

/// Serializes the values and intervals of cover@tau under two keys, or writes no keys if cover@tau wasn't requested.
fn cover<S: serde::Serializer>(curve: &Option<Curve>, serializer: S) -> Result<S::Ok, S::Error> {
    let points = || curve.iter().flat_map(|c| &c.points);
    let mut map = serializer.serialize_map(None)?;
    if curve.is_some() {
        map.serialize_entry("cover", &points().map(|(tau, m)| (tau, m.value)).collect::<BTreeMap<_, _>>())?;
        let intervals: BTreeMap<_, _> = points().map(|(tau, m)| (tau, m.interval)).collect();
        map.serialize_entry("cover_interval", &intervals)?;
    }
    map.end()
}

fn by_name<S: serde::Serializer>(curves: &[Curve], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(curves.iter().map(|curve| (&curve.name, curve)))
}

impl Report {
    /// Estimates one benchmark: pass@k for these values of k, and cover@tau for these percentages. `index` selects the
    /// random stream, which differs between benchmarks.
    ///
    /// Returns an error if a k exceeds the number of scored samples of a problem.
    pub fn of(
        benchmark: &Benchmark,
        ks: &[u64],
        percents: &[u64],
        draws: u64,
        seed: u64,
        index: u64,
    ) -> anyhow::Result<Self> {
        ks.iter().try_for_each(|&k| benchmark.require_samples(k))?;
        let key = Key::new(seed).with(index);
        let problems = &benchmark.problems;
        let subject = |(i, (name, problems)): (usize, (&&str, &Vec<&ProblemCounts>))| {
            Curve::of(name, problems.iter().copied(), ks, draws, key.with(1).with(i as u64))
        };
        let by_k = ks.iter().map(|&k| (k, measure_of_each(&benchmark.problems, Measure::PassAtK(k))));
        let by_k: Vec<(u64, Vec<Option<f64>>)> = by_k.collect();
        let by_problem = problems.iter().enumerate().map(|(i, p)| ProblemReport {
            problem: p.id.clone(),
            n: p.samples,
            c: p.correct,
            pass_at_k: by_k.iter().filter_map(|(k, of_k)| Some((*k, of_k[i]?))).collect(),
        });
        Ok(Self {
            benchmark: benchmark.name.clone(),
            by_problem: by_problem.collect(),
            all: Curve::of(&benchmark.name, problems, ks, draws, resamples(seed, index)),
            pass_hat_k: None,
            cover: (!percents.is_empty()).then(|| {
                let covered = |p: &ProblemCounts, percent| Measure::Cover(percent).of(p.samples, p.correct);
                Curve::of_each(&benchmark.name, problems, percents, draws, resamples(seed, index), covered)
            }),
            clusters: benchmark.clusters(),
            problems_without_samples: 0,
            samples: problems.iter().map(|p| p.planned()).sum(),
            unscorable: problems.iter().map(|p| p.unscorable).sum(),
            maj_at_k: majority(&benchmark.problems, ks, key.with(2)),
            mean_reward: benchmark.mean_reward(),
            instructions: None,
            truncated: benchmark.truncated_share(),
            tokens_per_problem: benchmark.tokens_per_problem(),
            subjects: benchmark.subjects().iter().enumerate().map(subject).collect(),
        })
    }
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Estimates several benchmarks and the averages over them. Unscorable samples and incomplete averages are logged.
pub fn of(benchmarks: &[Benchmark], settings: &Settings) -> anyhow::Result<PassAtK> {
    benchmarks.iter().try_for_each(Benchmark::require_scored)?;
    let fewest = benchmarks.iter().map(Benchmark::fewest).min().unwrap_or(0);
    let ks = choose_ks(&settings.ks, fewest)?;
    if ks.is_empty() {
        bad_input!("the samples contain no problem");
    }
    let Settings { resamples: draws, seed, averages, .. } = settings;
    let report = |(i, b): (usize, &Benchmark)| Report::of(b, &ks, &settings.cover, *draws, *seed, i as u64);
    let mut reports = benchmarks.iter().enumerate().map(report).collect::<anyhow::Result<Vec<_>>>()?;
    for (i, (report, Benchmark { name, problems, .. })) in reports.iter_mut().zip(benchmarks).enumerate() {
        let hat = |p: &ProblemCounts, k| pass_hat_k(p.samples as usize, p.correct as usize, k as usize);
        let key = resamples(*seed, i as u64);
        report.pass_hat_k = settings.hat.then(|| Curve::of_each(name, problems, &ks, *draws, key, hat));
    }
    let names: Vec<&str> = benchmarks.iter().map(|b| b.name.as_str()).collect();
    let averages = averages.over(&names)?.into_iter().map(|(name, members)| {
        Curve::mean(&name, &members.iter().map(|&i| &reports[i].all).collect::<Vec<_>>())
    });
    let averages = averages.collect();
    note_unscorable(benchmarks);
    let pooled = (benchmarks.len() > 1)
        .then(|| Curve::pooled("all", benchmarks, &ks, *draws, resamples_of_all(*seed)));
    Ok(PassAtK { pooled, benchmarks: reports, averages })
}

/// Lists the powers of two up to 256 and up to `limit`.
pub fn powers_of_two(limit: u64) -> Vec<u64> {
    (0..9).map(|i| 1 << i).filter(|&k| k <= limit).collect()
}

/// Returns the requested values of k, or the default ones for `fewest` samples, sorted and without duplicates.
///
/// Returns an error if a k is 0.
pub fn choose_ks(user_ks: &[u64], fewest: u64) -> anyhow::Result<Vec<u64>> {
    let mut ks = if user_ks.is_empty() { powers_of_two(fewest) } else { user_ks.to_vec() };
    if ks.contains(&0) {
        bad_input!("-k: expected at least 1, found 0");
    }
    ks.sort_unstable();
    ks.dedup();
    Ok(ks)
}

/// Computes maj@k by k. Returns `None` if a wrong sample lacks the answer field.
fn majority(problems: &[ProblemCounts], ks: &[u64], key: Key) -> Option<BTreeMap<u64, f64>> {
    let votes: Vec<Votes> = problems.iter().map(ProblemCounts::votes).collect::<Option<_>>()?;
    // If no sample has an extracted answer, a majority isn't defined.
    votes.iter().find(|v| v.samples() > v.silent)?;
    let sizes: Vec<usize> = ks.iter().map(|&k| k as usize).collect();
    let majority = |(i, v): (usize, &_)| majority_at_k(v, &sizes, ORDERINGS, key.with(i as u64));
    let by_problem: Vec<Vec<f64>> = votes.par_iter().enumerate().map(majority).collect();
    let mean =
        |(j, &k): (usize, &u64)| (k, by_problem.iter().map(|e| e[j]).sum::<f64>() / by_problem.len() as f64);
    Some(ks.iter().enumerate().map(mean).collect())
}

/// Logs the fraction of each benchmark's samples that is left out because it is unscorable.
pub fn note_unscorable(benchmarks: &[Benchmark]) {
    for b in benchmarks.iter().filter(|b| b.unscorable_share() > 0.0) {
        let share = percent(b.unscorable_share());
        tracing::info!("{}: {share} % of the samples are unscorable and left out", b.name);
    }
}
