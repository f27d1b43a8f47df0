//! Tests whether model B is better than model A on the same problems, by pass@k or cover@tau, for each benchmark and for
//! averages over benchmarks. There are two tests: the paper's paired subsampling test, exact or simulated, and a bootstrap
//! over problems.

mod pairing;
mod verdict;

pub use pairing::{Matched, align, list, matched};

use crate::benchmarks::Average;
use crate::estimate::{Measured, bootstrap, choose_ks, clusters, measure_of_each, powers_of_two};
use crate::samples::{Benchmark, ProblemCounts};
use fgrpo_core::rng::Key;
use fgrpo_core::stats::bootstrap::Simulated;
use fgrpo_core::stats::holm::holm;
use fgrpo_core::stats::measure::Measure;
use fgrpo_core::stats::paired::{self, Difference, Pair, Subsampler};
use rayon::prelude::*;
use serde::Serialize;

/// Significance level of the paper and of this comparison.
pub const LEVEL: f64 = 0.05;

crate::named! {
    /// Method by which the distribution of the difference is computed.
    #[derive(Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Method {
        Exact = "exact": "By convolution, with bounds of the rounding error",
        MonteCarlo = "monte-carlo": "By simulation, as the paper does",
    }
}

/// Settings of a comparison.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Values of k. If empty, 1 and the largest power of two that is at most 256 and at most m are used.
    pub ks: Vec<u64>,
    /// Values of tau in percent for which cover@tau is compared too.
    pub cover: Vec<u64>,
    /// Size m of a subsample. If `None`, m is half of the samples, but at most 256, and it is raised to k for a larger k,
    /// so that the test at one k doesn't depend on the other values of k. At half, the mean of a subsample varies as much
    /// as the mean of all samples does.
    pub m: Option<u64>,
    /// Method by which the test is computed.
    pub method: Method,
    /// Number of iterations of the simulation.
    pub iterations: u64,
    /// Number of resamples of the bootstrap.
    pub resamples: u64,
    /// Seed of the simulation and the bootstrap.
    pub seed: u64,
    /// Coverage of the intervals.
    pub level: f64,
    /// Names of the two models in messages.
    pub labels: [String; 2],
}

impl Settings {
    /// Returns settings for the exact test alone, as for the paper's tables. The bootstrap has few resamples because its
    /// results aren't read.
    pub fn test_alone(ks: Vec<u64>, m: Option<u64>) -> Self {
        let labels = ["A", "B"].map(str::to_owned);
        Self {
            ks,
            cover: Vec::new(),
            m,
            method: Method::Exact,
            iterations: 0,
            resamples: 100,
            seed: 0,
            level: 0.95,
            labels,
        }
    }
}

/// Comparison of one benchmark, or of an average, by one measure.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// Name of the benchmark or average.
    #[serde(rename = "benchmark")]
    pub name: String,
    /// Compared measure. In JSON it is `k` for pass@k, or `cover`, tau in percent, for cover@tau.
    #[serde(flatten)]
    pub measure: Measure,
    /// A's mean of the measure over the problems, as a fraction.
    pub a: f64,
    /// B's mean of the measure over the problems, as a fraction.
    pub b: f64,
    /// The difference `b - a`.
    pub difference: f64,
    /// p-value of the paired subsampling test. `None` if all subsamples have the same difference and it isn't 0.
    pub p_value: Option<f64>,
    /// p-value after Holm's correction over the benchmarks by this measure. An average isn't corrected.
    pub holm_p_value: Option<f64>,
    /// Percentile interval of the difference under subsampling, or `None` if there isn't a p-value.
    pub interval: Option<(f64, f64)>,
    /// Method by which the test was computed.
    pub method: Method,
    /// Size of a subsample.
    pub m: u64,
    /// Number of problems.
    pub problems: usize,
    /// Number of clusters, if the bootstrap draws clusters of problems.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clusters: Option<usize>,
    /// Result of the bootstrap over problems, which estimates the difference on other problems like these.
    pub bootstrap: Bootstrap,
    /// Whether a benchmark has only one problem or cluster.
    #[serde(skip)]
    one: bool,
    /// The finding in words.
    pub verdict: String,
    /// Bounds of the exact p-value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p_bounds: Option<(f64, f64)>,
    /// Number of iterations of the simulation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u64>,
    /// Subject of the comparison: a benchmark or an average.
    #[serde(flatten)]
    pub scope: Scope,
}

/// Result of the bootstrap over problems for a difference.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Bootstrap {
    /// Two-sided p-value.
    pub p_value: f64,
    /// Percentile interval.
    pub interval: (f64, f64),
}

/// Subject of a comparison.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum Scope {
    /// One benchmark.
    Benchmark {
        /// Problems that B solves at least once and A never.
        gained: Vec<String>,
        /// Problems that A solves at least once and B never.
        lost: Vec<String>,
    },
    /// An average over benchmarks.
    Average {
        /// Names of the benchmarks.
        average_of: Vec<String>,
    },
}

impl Scope {
    /// Returns the problems that only B solves and the problems that only A solves, or `None` for an average.
    pub fn solved_by_one(&self) -> Option<(&[String], &[String])> {
        match self {
            Self::Benchmark { gained, lost } => Some((gained, lost)),
            Self::Average { .. } => None,
        }
    }
}

impl Comparison {
    /// Returns whether the subsampling test finds a difference, without correction for the number of benchmarks.
    pub fn significant(&self) -> bool {
        self.p_value.is_some_and(|p| p < LEVEL)
    }
}

/// A test of one measure with subsamples of size m, which is at least k for pass@k.
#[derive(Clone, Copy)]
struct Size {
    measure: Measure,
    m: u64,
}

/// Lists the tests, each a measure and m. Returns an error if a k or m is out of range for the samples.
fn sizes(pairs: &[Matched], Settings { ks, cover, m, .. }: &Settings) -> anyhow::Result<Vec<Size>> {
    for p in pairs {
        p.a.require_scored()?;
        p.b.require_scored()?;
        for &k in ks {
            p.a.require_samples(k)?;
            p.b.require_samples(k)?;
        }
    }
    let fewest = pairs.iter().map(|p| p.a.fewest().min(p.b.fewest())).min().unwrap_or(0);
    let size = m.unwrap_or((fewest / 2).clamp(1, 256));
    if size == 0 || size > fewest {
        bad_input!(
            "m: expected 1 <= m <= {fewest}, the smallest number of scored samples of a problem, found {size}"
        );
    }
    let ks = if ks.is_empty() {
        choose_ks(&[1, powers_of_two(size).pop().unwrap_or(1)], fewest)?
    } else {
        choose_ks(ks, fewest)?
    };
    if m.is_some()
        && let Some(k) = ks.iter().find(|&&k| k > size)
    {
        bad_input!("k: pass@{k} can't be estimated from subsamples of m = {size} samples; choose k <= m");
    }
    let measures = ks.into_iter().map(Measure::PassAtK).chain(cover.iter().copied().map(Measure::Cover));
    let subsample = |measure: Measure| Size { measure, m: size.max(measure.fewest_samples()) };
    let sizes: Vec<Size> = measures.map(subsample).collect();
    let all = |b: &Benchmark| b.problems.iter().all(|p| p.samples == fewest);
    let whole = pairs.iter().all(|p| all(&p.a) && all(&p.b));
    for Size { measure, .. } in sizes.iter().filter(|size| size.m == fewest && whole) {
        tracing::info!(
            "{measure} isn't tested: a subsample of m = {fewest} contains every sample of a problem, so subsamples don't vary; draw more samples, or choose a smaller k or m"
        );
    }
    Ok(sizes)
}

/// A comparison with the distributions of the difference that it is computed from: by subsampling and by the bootstrap.
struct Evidence {
    comparison: Comparison,
    test: Law,
    bootstrap: Measured,
}

/// The distribution of the difference under subsampling.
enum Law {
    Exact(Difference),
    Simulated(Vec<f64>),
}

/// Compares every benchmark by every measure, and then the averages whose benchmarks were all given.
///
/// Returns an error if k > m or m > n.
pub fn compare(
    pairs: &[Matched],
    settings: &Settings,
    averages: &[Average],
) -> anyhow::Result<Vec<Comparison>> {
    let names: Vec<&str> = pairs.iter().map(|p| p.name.as_str()).collect();
    let mut out: Vec<Comparison> = Vec::new();
    for size in sizes(pairs, settings)? {
        let mut results: Vec<Evidence> =
            pairs.iter().enumerate().map(|(i, pair)| of_pair(pair, size, settings, i as u64)).collect();
        // Comparisons that aren't tested don't count in Holm's correction.
        let adjusted = holm(&results.iter().filter_map(|r| r.comparison.p_value).collect::<Vec<_>>());
        let comparisons = results.iter_mut().map(|r| &mut r.comparison).filter(|c| c.p_value.is_some());
        comparisons.zip(adjusted).for_each(|(c, p)| c.holm_p_value = Some(p));
        let averaged: Vec<Comparison> = averages
            .iter()
            .filter_map(|a| {
                let members: Vec<&Evidence> = a.among(&names)?.iter().map(|&i| &results[i]).collect();
                Some(of_average(&members, a.name.clone(), settings))
            })
            .collect();
        out.extend(results.into_iter().map(|r| r.comparison));
        out.extend(averaged);
    }
    for c in &mut out {
        c.verdict = c.in_words(&settings.labels);
    }
    Ok(out)
}

fn of_pair(pair: &Matched, size: Size, settings: &Settings, index: u64) -> Evidence {
    let Size { measure, m } = size;
    let both = || pair.a.problems.iter().zip(&pair.b.problems);
    let [of_a, of_b] = [&pair.a, &pair.b].map(|side| measure_of_each(&side.problems, measure));
    let scores: Vec<(f64, f64)> = of_a.into_iter().zip(of_b).filter_map(|(a, b)| a.zip(b)).collect();
    let count = scores.len() as f64;
    let counts: Vec<Pair> = both().map(|(a, b)| Pair { a: a.counts(), b: b.counts() }).collect();
    let key = Key::new(settings.seed).with(index);
    let test = match settings.method {
        Method::Exact => Law::Exact(paired::exact(&counts, m, measure)),
        Method::MonteCarlo => {
            let sampler = Subsampler::new(&counts, m, measure);
            // cover@tau has a separate random stream, which differs from the stream of every k.
            let stream = match measure {
                Measure::PassAtK(k) => k,
                Measure::Cover(percent) => u64::MAX - 1 - percent,
            };
            let key = key.with(stream).with(0);
            Law::Simulated((0..settings.iterations).into_par_iter().map(|i| sampler.draw(key, i)).collect())
        }
    };
    // The same problems are drawn for every measure, so that the curves over k are correlated.
    let differences = vec![scores.iter().map(|(a, b)| b - a).collect()];
    let clusters = clusters(&pair.a.problems.iter().collect::<Vec<&ProblemCounts>>());
    let resamples = settings.resamples;
    let key = key.with(u64::MAX);
    let bootstrap = bootstrap(&[differences], clusters.as_deref(), resamples, key).swap_remove(0);
    let only = |has: fn(u64, u64) -> bool| -> Vec<String> {
        both().filter(|(a, b)| has(a.correct, b.correct)).map(|(a, _)| a.name().to_owned()).collect()
    };
    let scope = Scope::Benchmark { gained: only(|a, b| a == 0 && b > 0), lost: only(|a, b| a > 0 && b == 0) };
    let values =
        (scores.iter().map(|e| e.0).sum::<f64>() / count, scores.iter().map(|e| e.1).sum::<f64>() / count);
    let mut comparison = stated(pair.name.clone(), scope, size, values, &test, &bootstrap, settings);
    comparison.clusters = pair.a.clusters();
    Evidence { comparison, test, bootstrap }
}

/// Computes the p-values and intervals of a difference from its distributions.
fn stated(
    name: String,
    scope: Scope,
    Size { measure, m }: Size,
    (a, b): (f64, f64),
    test: &Law,
    bootstrap: &Measured,
    settings: &Settings,
) -> Comparison {
    let (p_value, interval, p_bounds, varies) = match test {
        Law::Exact(d) => (d.two_sided_p(), d.interval(settings.level), Some(d.p_bounds()), d.varies()),
        Law::Simulated(values) => {
            let s = Simulated::new(values.clone());
            let varies = values.windows(2).any(|pair| pair[0] != pair[1]);
            // A simulated p-value can't be below the resolution of the iterations.
            let p = s.two_sided_p().max(2.0 / values.len() as f64).min(1.0);
            (p, s.interval(settings.level), None, varies)
        }
    };
    // If all subsamples have the same difference, the test can't tell it from chance, unless the difference is 0.
    let p_value = (varies || p_value >= 1.0).then_some(p_value);
    Comparison {
        name,
        measure,
        a,
        b,
        difference: b - a,
        p_value,
        holm_p_value: p_value,
        interval: p_value.map(|_| interval),
        method: settings.method,
        m,
        problems: bootstrap.problems,
        clusters: None,
        bootstrap: Bootstrap { p_value: bootstrap.p_value(), interval: bootstrap.interval(settings.level) },
        one: bootstrap.is_one(),
        verdict: String::new(),
        p_bounds: p_bounds.filter(|_| p_value.is_some()),
        iterations: p_bounds.is_none().then_some(settings.iterations),
        scope,
    }
}

fn of_average(parts: &[&Evidence], name: String, settings: &Settings) -> Comparison {
    let count = parts.len() as f64;
    let mean =
        |field: fn(&Comparison) -> f64| parts.iter().map(|p| field(&p.comparison)).sum::<f64>() / count;
    let exact = parts.iter().map(|p| match &p.test {
        Law::Exact(d) => Some(d.clone()),
        Law::Simulated(_) => None,
    });
    let test = match exact.collect::<Option<Vec<Difference>>>() {
        Some(laws) => Law::Exact(paired::average(&laws)),
        None => {
            let simulated = parts.iter().filter_map(|p| match &p.test {
                Law::Simulated(values) => Some(values),
                Law::Exact(_) => None,
            });
            let simulated: Vec<&Vec<f64>> = simulated.collect();
            let mean = |i: usize| simulated.iter().map(|v| v[i]).sum::<f64>() / count;
            Law::Simulated((0..settings.iterations as usize).map(mean).collect())
        }
    };
    let bootstrap = Measured::mean(&parts.iter().map(|p| &p.bootstrap).collect::<Vec<_>>());
    let Comparison { measure, m, .. } = parts[0].comparison;
    let scope = Scope::Average { average_of: parts.iter().map(|p| p.comparison.name.clone()).collect() };
    stated(name, scope, Size { measure, m }, (mean(|c| c.a), mean(|c| c.b)), &test, &bootstrap, settings)
}
