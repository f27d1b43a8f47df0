//! Estimates from counts of samples: pass@k, cover@tau and majority votes of benchmarks. They are means over problems, with
//! intervals from a bootstrap over problems or clusters.

use crate::benchmarks::Averages;
use crate::graded::FollowedShares;
use crate::samples::{Benchmark, ProblemCounts};
use crate::table::percent;
use fgrpo_core::rng::Key;
use fgrpo_core::stats::bootstrap::{Simulated, resample};
use fgrpo_core::stats::majority::{Votes, majority_at_k};
use fgrpo_core::stats::measure::Measure;
use fgrpo_core::stats::pass_at_k::pass_hat_k;
use rayon::prelude::*;
use serde::ser::{Serialize, SerializeMap, SerializeStruct, Serializer};
use std::collections::{BTreeMap, HashMap};

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
#[derive(Debug, Clone, serde::Serialize)]
pub struct PassAtK {
    /// Curve of all benchmarks' problems together, or `None` for a single benchmark.
    #[serde(flatten)]
    pub pooled: Option<Curve>,
    /// One report for each benchmark.
    pub benchmarks: Vec<Report>,
    /// Averages over benchmarks.
    #[serde(serialize_with = "by_name")]
    pub averages: Vec<Curve>,
}

impl PassAtK {
    /// Estimates several benchmarks and the averages over them. Unscorable samples and incomplete averages are logged.
    pub fn of(benchmarks: &[Benchmark], settings: &Settings) -> anyhow::Result<Self> {
        benchmarks.iter().try_for_each(Benchmark::require_scored)?;
        let fewest = benchmarks.iter().map(Benchmark::fewest).min().unwrap_or(0);
        let ks = choose_ks(&settings.ks, fewest)?;
        if ks.is_empty() {
            bad_input!("the samples contain no problem");
        }
        let Settings { resamples: draws, seed, averages, .. } = settings;
        let report =
            |(i, b): (usize, &Benchmark)| Report::of(b, &ks, &settings.cover, *draws, *seed, i as u64);
        let mut reports = benchmarks.iter().enumerate().map(report).collect::<anyhow::Result<Vec<_>>>()?;
        for (i, (report, Benchmark { name, problems, .. })) in reports.iter_mut().zip(benchmarks).enumerate()
        {
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
        Ok(Self { pooled, benchmarks: reports, averages })
    }
}

/// Estimates for one benchmark.
#[derive(Debug, Clone, serde::Serialize)]
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
    /// Number of problems that have no sample yet and are left out of every value. It is 0 unless the evaluation is unfinished.
    #[serde(skip_serializing_if = "is_zero")]
    pub problems_without_samples: usize,
    /// Number of samples, scored or unscorable.
    pub samples: u64,
    /// Number of samples that could not be scored.
    pub unscorable: u64,
    /// maj@k, unless a wrong sample lacks the answer field or too many correct samples have no vote.
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
#[derive(Debug, Clone, serde::Serialize)]
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

fn values<S: Serializer>(curve: &Option<Curve>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(curve.iter().flat_map(|c| &c.points).map(|(k, m)| (k, m.value)))
}

/// Serializes the values and intervals of cover@tau under two keys, or writes no keys if cover@tau wasn't requested.
fn cover<S: Serializer>(curve: &Option<Curve>, serializer: S) -> Result<S::Ok, S::Error> {
    let points = || curve.iter().flat_map(|c| &c.points);
    let mut map = serializer.serialize_map(None)?;
    if curve.is_some() {
        map.serialize_entry("cover", &points().map(|(tau, m)| (tau, m.value)).collect::<BTreeMap<_, _>>())?;
        let intervals: BTreeMap<_, _> = points().map(|(tau, m)| (tau, m.interval)).collect();
        map.serialize_entry("cover_interval", &intervals)?;
    }
    map.end()
}

fn by_name<S: Serializer>(curves: &[Curve], serializer: S) -> Result<S::Ok, S::Error> {
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

/// Computes maj@k by k. Returns `None` if a wrong sample lacks the answer field, or if the verifier reads answers that
/// don't vote, such as the last number of a text: more than 1 % of the correct samples have a null answer.
fn majority(problems: &[ProblemCounts], ks: &[u64], key: Key) -> Option<BTreeMap<u64, f64>> {
    let votes: Vec<Votes> = problems.iter().map(ProblemCounts::votes).collect::<Option<_>>()?;
    // If no sample has an extracted answer, a majority isn't defined.
    votes.iter().find(|v| v.samples() > v.silent)?;
    let correct: u64 = problems.iter().map(|p| p.correct).sum();
    let voting: u64 = votes.iter().map(|v| v.correct as u64).sum();
    if (correct - voting) * 100 > correct {
        return None;
    }
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

/// Default number of bootstrap resamples.
pub const RESAMPLES: u64 = 10_000;

/// Returns the random key of the bootstrap over the problem set with this index. Runs and commands use the same key, so
/// the same samples always give the same interval.
pub fn resamples(seed: u64, index: u64) -> Key {
    Key::new(seed).with(index).with(0)
}

/// Returns the random key of the bootstrap over the problems of all sets together.
pub fn resamples_of_all(seed: u64) -> Key {
    Key::new(seed).with(u64::MAX)
}

/// Computes the mean and the sample standard deviation (divisor n - 1). The deviation is `None` for fewer than two values.
pub fn mean_and_deviation(values: &[f64]) -> (f64, Option<f64>) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (mean, (values.len() > 1).then(|| (squares / (values.len() - 1) as f64).sqrt()))
}

/// A mean over problems with its 95 % interval.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The mean.
    pub value: f64,
    /// 95 % percentile interval of the bootstrap over problems.
    pub interval: [f64; 2],
    /// Number of problems.
    pub problems: usize,
    /// Number of units (problems or clusters) that the bootstrap draws. For a mean over several sets, the smallest set's
    /// number of units.
    units: usize,
    /// The mean on each resample of the problems.
    draws: Vec<f64>,
}

impl Measured {
    fn new(value: f64, problems: usize, units: usize, draws: Vec<f64>) -> Self {
        let (low, high) = Simulated::new(draws.clone()).interval(0.95);
        Self { value, interval: [low, high], problems, units, draws }
    }

    /// Averages several means, whose resamples are independent.
    ///
    /// # Panics
    /// If `parts` is empty or the numbers of resamples differ.
    pub fn mean(parts: &[&Self]) -> Self {
        let count = parts.len() as f64;
        let draws = 0..parts[0].draws.len();
        Self::new(
            parts.iter().map(|p| p.value).sum::<f64>() / count,
            parts.iter().map(|p| p.problems).sum(),
            parts.iter().map(|p| p.units).min().unwrap_or(0),
            draws.map(|i| parts.iter().map(|p| p.draws[i]).sum::<f64>() / count).collect(),
        )
    }

    /// Returns this mean minus another mean, which was measured on the same resamples of the same problems.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        let draws = self.draws.iter().zip(&other.draws).map(|(a, b)| a - b).collect();
        Self::new(self.value - other.value, self.problems, self.units, draws)
    }

    /// Returns the mean on each resample of the problems.
    pub fn draws(&self) -> &[f64] {
        &self.draws
    }

    /// Returns the two-sided p-value of the hypothesis that the mean is 0. It is at least `2 / resamples`, the resolution
    /// of the bootstrap, and at least `2^(1 - units)`, the probability that all units have the same sign.
    pub fn p_value(&self) -> f64 {
        let p_value = Simulated::new(self.draws.clone()).two_sided_p();
        let signs = 0.5f64.powf(self.units as f64 - 1.0);
        p_value.max(2.0 / self.draws.len() as f64).max(signs).min(1.0)
    }

    /// Returns the percentile interval that contains the middle fraction `level` of the resampled means.
    pub fn interval(&self, level: f64) -> (f64, f64) {
        Simulated::new(self.draws.clone()).interval(level)
    }

    /// Returns whether there are fewer than two problems or clusters, so that an interval says nothing about other problems.
    pub fn is_one(&self) -> bool {
        self.units < 2
    }
}

/// Returns the index of each problem's cluster, or `None` if no problem has a cluster. The problems of a cluster come
/// from one source and are drawn together. A problem without a cluster forms a separate cluster.
pub fn clusters(problems: &[&ProblemCounts]) -> Option<Vec<usize>> {
    problems.iter().find(|p| p.cluster.is_some())?;
    let mut by_name: HashMap<&str, usize> = HashMap::new();
    let mut indices: Vec<usize> = Vec::new();
    let mut count = 0;
    for problem in problems {
        let index = problem.cluster.as_deref().map_or(count, |name| *by_name.entry(name).or_insert(count));
        count = count.max(index + 1);
        indices.push(index);
    }
    Some(indices)
}

/// Averages several quantities over the same problems, with a bootstrap that draws the same problems for all of them. A
/// quantity has one list of values per training seed, with one value per problem. Its mean is over problems and seeds,
/// and seeds are resampled too.
///
/// `clusters` has the index of each problem's cluster. If it is given, a resample draws whole clusters with replacement,
/// as many as exist, and takes the mean over the problems drawn.
///
/// # Panics
/// If a quantity lacks seeds, or if lists differ in length.
pub fn bootstrap(
    quantities: &[Vec<Vec<f64>>],
    clusters: Option<&[usize]>,
    draws: u64,
    key: Key,
) -> Vec<Measured> {
    let Some(problems) = quantities.first().map(|seeds| seeds[0].len()) else { return Vec::new() };
    assert!(
        clusters.is_none_or(|c| c.len() == problems),
        "clusters: one index is needed for each of {problems} problems"
    );
    let units = clusters.map_or(problems, |c| c.iter().max().map_or(0, |last| last + 1));
    // All sets of problems are measured on the same models, so every set draws the same seeds.
    let seed_key = Key::new(0).with(u64::MAX).with(0);
    let draw = |seeds: &Vec<Vec<f64>>, times: &[u32], i: u64| {
        let times = || (0..problems).map(|p| times[clusters.map_or(p, |c| c[p])]);
        let count = if clusters.is_some() { times().sum::<u32>() } else { problems as u32 };
        let count = f64::from(count);
        let sum = |values: &Vec<f64>| values.iter().zip(times()).map(|(v, t)| v * f64::from(t)).sum::<f64>();
        if let [only] = seeds.as_slice() {
            return sum(only) / count;
        }
        let mut seed_times = vec![0; seeds.len()];
        resample(seed_key, i, &mut seed_times);
        let total: f64 = seeds.iter().zip(seed_times).map(|(v, t)| sum(v) * f64::from(t)).sum();
        total / (count * seeds.len() as f64)
    };
    let by_draw: Vec<Vec<f64>> = (0..draws)
        .into_par_iter()
        .map_init(
            || vec![0u32; units],
            |times, i| {
                resample(key, i, times);
                quantities.iter().map(|seeds| draw(seeds, times, i)).collect()
            },
        )
        .collect();
    let measured = |(j, seeds): (usize, &Vec<Vec<f64>>)| {
        let means = seeds.iter().map(|values| values.iter().sum::<f64>() / problems as f64);
        let value = means.sum::<f64>() / seeds.len() as f64;
        Measured::new(value, problems, units, by_draw.iter().map(|values| values[j]).collect())
    };
    quantities.iter().enumerate().map(measured).collect()
}

/// Averages each set's mean difference over the sets, with an interval from a bootstrap that resamples problems within
/// each set. Returns `None` if `sets` or a set is empty.
pub fn change(sets: &[Vec<f64>]) -> Option<Measured> {
    if sets.is_empty() || sets.iter().any(Vec::is_empty) {
        return None;
    }
    let measure_set = |(i, set): (usize, &Vec<f64>)| {
        bootstrap(&[vec![set.clone()]], None, RESAMPLES, resamples(0, i as u64)).swap_remove(0)
    };
    let by_set: Vec<Measured> = sets.iter().enumerate().map(measure_set).collect();
    Some(Measured::mean(&by_set.iter().collect::<Vec<_>>()))
}

/// Maximum number of samples per problem for which pass@k is looked up in a table. Few problems have more samples.
const TABULATED: u64 = 1 << 14;

/// Computes the measure of each problem, or `None` for a problem with too few scored samples.
pub fn measure_of_each<'a>(
    problems: impl IntoIterator<Item = &'a ProblemCounts>,
    measure: Measure,
) -> Vec<Option<f64>> {
    let least = measure.fewest_samples();
    let mut tables: HashMap<u64, Vec<f64>> = HashMap::new();
    let mut estimate = |problem: &ProblemCounts| match (problem.samples, problem.correct) {
        (n, c) if least == 0 || n < least || c > n => None,
        (n, c) if n > TABULATED => Some(measure.of(n, c)),
        (n, c) => Some(tables.entry(n).or_insert_with(|| measure.values(n))[c as usize]),
    };
    problems.into_iter().map(&mut estimate).collect()
}

/// Averages pass@k over the problems with at least k scored samples. Returns `None` if no problem has as many.
pub fn mean_pass_at_k(problems: &[ProblemCounts], k: u64) -> Option<f64> {
    let values: Vec<f64> = measure_of_each(problems, Measure::PassAtK(k)).into_iter().flatten().collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// pass@k of a set of problems, by k. As JSON: `{"problems", "pass_at_k": {k: p}, "interval": {k: [low, high]}}`.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Name of the benchmark, average or subject.
    pub name: String,
    /// pass@k as fractions.
    pub points: BTreeMap<u64, Measured>,
}

impl Curve {
    /// Measures pass@k over the problems with at least k scored samples. A k without such problems is left out.
    pub fn of<'a>(
        name: &str,
        problems: impl IntoIterator<Item = &'a ProblemCounts>,
        ks: &[u64],
        draws: u64,
        key: Key,
    ) -> Self {
        let problems: Vec<&ProblemCounts> = problems.into_iter().collect();
        let fewest = problems.iter().map(|p| p.samples).min().unwrap_or(0);
        let (of_all, of_some): (Vec<u64>, Vec<u64>) = ks.iter().partition(|&&k| k <= fewest);
        let mut curve = Self::over_seeds(name, std::slice::from_ref(&problems), &of_all, draws, key);
        for k in of_some {
            let enough: Vec<&ProblemCounts> = problems.iter().copied().filter(|p| p.samples >= k).collect();
            if !enough.is_empty() {
                curve.points.extend(Self::over_seeds(name, &[enough], &[k], draws, key).points);
            }
        }
        curve
    }

    /// Measures pass@k over the problems of several benchmarks together. Clusters with the same name in two benchmarks
    /// are different clusters.
    pub fn pooled<'a>(
        name: &str,
        benchmarks: impl IntoIterator<Item = &'a Benchmark>,
        ks: &[u64],
        draws: u64,
        key: Key,
    ) -> Self {
        let with_cluster = |(i, benchmark): (usize, &'a Benchmark)| {
            benchmark.problems.iter().map(move |problem| {
                let mut problem = problem.clone();
                problem.cluster = problem.cluster.map(|cluster| format!("{i} {cluster}"));
                problem
            })
        };
        let problems: Vec<ProblemCounts> =
            benchmarks.into_iter().enumerate().flat_map(with_cluster).collect();
        Self::of(name, &problems, ks, draws, key)
    }

    /// Measures pass@k of a model that was trained with several seeds, which have the same problems in the same order.
    ///
    /// # Panics
    /// If `seeds` is empty, the numbers of problems differ, or a problem has fewer than k scored samples.
    pub fn over_seeds(name: &str, seeds: &[Vec<&ProblemCounts>], ks: &[u64], draws: u64, key: Key) -> Self {
        let seed_values = |problems: &Vec<&ProblemCounts>, k| -> Vec<f64> {
            let values = measure_of_each(problems.iter().copied(), Measure::PassAtK(k)).into_iter();
            values.map(|p| p.expect("every problem has k scored samples")).collect()
        };
        let k_values = |&k: &u64| seeds.iter().map(|problems| seed_values(problems, k)).collect();
        let quantities: Vec<Vec<Vec<f64>>> = ks.iter().map(k_values).collect();
        let clusters = seeds.first().and_then(|problems| clusters(problems));
        let measured = bootstrap(&quantities, clusters.as_deref(), draws, key);
        Self { name: name.to_owned(), points: ks.iter().copied().zip(measured).collect() }
    }

    /// Measures a quantity of each problem other than pass@k: `quantity(problem, x)`, at each x of `at`.
    pub fn of_each(
        name: &str,
        problems: &[ProblemCounts],
        at: &[u64],
        draws: u64,
        key: Key,
        quantity: impl Fn(&ProblemCounts, u64) -> f64,
    ) -> Self {
        let values = |&x: &u64| vec![problems.iter().map(|p| quantity(p, x)).collect()];
        let quantities: Vec<Vec<Vec<f64>>> = at.iter().map(values).collect();
        let clusters = clusters(&problems.iter().collect::<Vec<_>>());
        let measured = bootstrap(&quantities, clusters.as_deref(), draws, key);
        Self { name: name.to_owned(), points: at.iter().copied().zip(measured).collect() }
    }

    /// Averages over several benchmarks, at the values of k that all benchmarks have.
    ///
    /// # Panics
    /// If `parts` is empty.
    pub fn mean(name: &str, parts: &[&Self]) -> Self {
        let point = |&k: &u64| {
            let values: Option<Vec<&Measured>> = parts.iter().map(|p| p.points.get(&k)).collect();
            Some((k, Measured::mean(&values?)))
        };
        Self { name: name.to_owned(), points: parts[0].points.keys().filter_map(point).collect() }
    }

    /// Returns the number of problems.
    pub fn problems(&self) -> usize {
        self.points.values().map(|m| m.problems).max().unwrap_or(0)
    }
}

impl Serialize for Curve {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut curve = serializer.serialize_struct("Curve", 3)?;
        let by_k = |(k, m): (&u64, &Measured)| ((*k, m.value), (*k, m.interval));
        let (values, intervals): (BTreeMap<u64, f64>, BTreeMap<u64, [f64; 2]>) =
            self.points.iter().map(by_k).unzip();
        curve.serialize_field("problems", &self.problems())?;
        curve.serialize_field("pass_at_k", &values)?;
        curve.serialize_field("interval", &intervals)?;
        curve.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(seeds: &[&[f64]]) -> Measured {
        let quantity: Vec<Vec<f64>> = seeds.iter().map(|v| v.to_vec()).collect();
        bootstrap(&[quantity], None, 2000, resamples(0, 0)).swap_remove(0)
    }

    #[test]
    fn a_mean_is_over_problems_and_seeds_and_seeds_widen_its_interval() {
        let (a, b) = (one(&[&[0.0, 1.0]]), one(&[&[0.0, 1.0], &[0.25, 0.75]]));
        assert_eq!((a.value, b.value, b.problems), (0.5, 0.5, 2));
        assert_eq!(a.interval, [0.0, 1.0]);
        let (equal, different) = (one(&[&[0.5, 0.5]]), one(&[&[0.25, 0.25], &[0.75, 0.75]]));
        assert_eq!((equal.interval, different.interval), ([0.5, 0.5], [0.25, 0.75]));
    }

    #[test]
    fn clusters_are_drawn_whole_and_the_mean_is_over_the_problems_drawn() {
        // Three clusters of sizes 1, 2 and 3: the frequency of each mean, compared with all 27 equally likely draws.
        let values = [0.0, 1.0, 0.5, 0.25, 0.25, 1.0];
        let cluster_of: &[usize] = &[0, 1, 1, 2, 2, 2];
        let mean_of = |drawn: [usize; 3]| {
            let all = drawn.iter().flat_map(|d| (0..6).filter(|&p| cluster_of[p] == *d).map(|p| values[p]));
            let (sum, n) = all.fold((0.0, 0.0), |(s, n), v| (s + v, n + 1.0));
            sum / n
        };
        let mut means: Vec<f64> = (0..27).map(|i| mean_of([i / 9, i / 3 % 3, i % 3])).collect();
        let measured =
            bootstrap(&[vec![values.to_vec()]], Some(cluster_of), 50_000, resamples(0, 0)).swap_remove(0);
        assert_eq!((measured.value, measured.problems), (0.5, 6));
        means.sort_by(f64::total_cmp);
        means.dedup_by(|a, b| (*a - *b).abs() < 1e-9);
        for w in &means {
            let is_close = |v: &f64| (v - w).abs() < 1e-9;
            let share = measured.draws().iter().filter(|v| is_close(v)).count() as f64 / 50_000.0;
            let exact =
                (0..27).filter(|i| is_close(&mean_of([i / 9, i / 3 % 3, i % 3]))).count() as f64 / 27.0;
            assert!((share - exact).abs() < 0.01, "{w}: {share}, not {exact}");
        }
        // Clusters of one problem each give the same resamples as no clusters, to the last bit.
        let single: Vec<usize> = (0..6).collect();
        let draws = |c: Option<&[usize]>| bootstrap(&[vec![values.to_vec()]], c, 500, resamples(3, 1));
        assert_eq!(draws(Some(&single)), draws(None));
    }

    #[test]
    fn a_difference_is_of_the_same_draws() {
        // Every problem is better by the same amount, so the difference has no spread although the values have.
        let (a, b) = (one(&[&[0.0, 0.5, 0.75]]), one(&[&[0.125, 0.625, 0.875]]));
        let difference = b.minus(&a);
        assert!((difference.interval[0] - 0.125).abs() < 1e-12 && (difference.value - 0.125).abs() < 1e-12);
        assert!(a.interval[0] < a.value && a.interval[1] > a.value);
        // Three problems are all better by chance once in four times.
        assert_eq!(difference.p_value(), 0.25);
    }

    #[test]
    fn a_p_value_is_no_smaller_than_problems_and_resamples_can_tell() {
        let better = |problems: usize, clusters: Option<&[usize]>| {
            bootstrap(&[vec![vec![0.5; problems]]], clusters, 2000, resamples(0, 0)).swap_remove(0)
        };
        assert_eq!(better(1, None).p_value(), 1.0);
        assert_eq!(better(6, None).p_value(), 1.0 / 32.0);
        assert_eq!(better(6, Some(&[0; 6])).p_value(), 1.0);
        assert_eq!(better(100, None).p_value(), 1e-3);
        let mean = Measured::mean(&[&better(100, None), &better(1, None)]);
        assert_eq!((mean.p_value(), mean.is_one()), (1.0, true));
    }
}
