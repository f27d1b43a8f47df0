//! The paired subsampling test and the problem bootstrap, for each benchmark and for averages over benchmarks.

use super::pairing::Matched;
use crate::analysis::benchmarks::Average;
use crate::analysis::pass_at_k::choose_ks;
use clap::ValueEnum;
use fgrpo_core::rng::Key;
use fgrpo_core::stats::bootstrap::{Simulated, resampled_mean};
use fgrpo_core::stats::holm::holm;
use fgrpo_core::stats::paired::{self, Difference, Pair, Subsampler};
use fgrpo_train::bad_input;
use fgrpo_train::evaluation::estimate::Tables;
use rayon::prelude::*;

/// Significance level of the paper and of this command.
pub const LEVEL: f64 = 0.05;

/// How the distribution of the difference is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Method {
    /// By convolution; what rounding can change is stated.
    Exact,
    /// By simulation, as the paper does.
    MonteCarlo,
}

/// The comparison of one benchmark, or of an average, at one k.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Benchmark or average.
    pub name: String,
    /// Members, if it's an average.
    pub average_of: Vec<String>,
    /// k of pass@k.
    pub k: u64,
    /// Size of a subsample.
    pub m: u64,
    /// Number of problems.
    pub problems: usize,
    /// Unbiased pass@k of A and B, fractions.
    pub values: (f64, f64),
    /// p-value of the paired subsampling test.
    pub p_value: f64,
    /// p-value after Holm's correction over the benchmarks at this k.
    pub holm: f64,
    /// Percentile interval of the difference, at the plan's level.
    pub interval: (f64, f64),
    /// Bounds of the exact p-value; none for a simulation.
    pub p_bounds: Option<(f64, f64)>,
    /// p-value and interval of the problem bootstrap.
    pub bootstrap: (f64, (f64, f64)),
    /// Problems that B solves at least once and A never.
    pub gained: Vec<String>,
    /// Problems that A solves at least once and B never.
    pub lost: Vec<String>,
}

impl Comparison {
    /// B - A.
    pub fn difference(&self) -> f64 {
        self.values.1 - self.values.0
    }

    /// Whether all subsamples are the same, so that the subsampling test has nothing to say.
    pub(super) fn fixed(&self) -> bool {
        self.interval.0 == self.interval.1
    }
}

/// What a comparison needs besides the samples.
pub struct Plan {
    /// Values of k.
    pub ks: Vec<u64>,
    /// Size of a subsample.
    pub m: u64,
    /// How the test is computed.
    pub method: Method,
    /// Iterations of a simulation.
    pub iterations: u64,
    /// Resamples of the bootstrap.
    pub resamples: u64,
    /// Seed of both.
    pub seed: u64,
    /// Share of the distribution that the intervals hold, such as 0.95.
    pub level: f64,
}

/// The subsample's size and the values of k, checked against the samples.
///
/// # Errors
/// Bad input: k > m, m > n.
pub fn plan_sizes(pairs: &[Matched], m: Option<u64>, ks: &[u64]) -> anyhow::Result<(u64, Vec<u64>)> {
    for p in pairs {
        p.a.require_scored()?;
        p.b.require_scored()?;
    }
    let fewest = pairs.iter().map(|p| p.a.fewest().min(p.b.fewest())).min().unwrap_or(0);
    let most_k = ks.iter().copied().max().unwrap_or(1);
    for &k in ks {
        for p in pairs {
            p.a.require_samples(k)?;
            p.b.require_samples(k)?;
        }
    }
    let m = match m {
        Some(m) => m,
        None if fewest >= 512 => most_k.max(256),
        None => most_k.max(fewest / 4).max(1),
    };
    if m == 0 || m > fewest {
        bad_input!(
            "--m: a subsample of {m} needs 1 <= m <= {fewest}, the fewest scored samples of a problem"
        );
    }
    let ks = if ks.is_empty() {
        let largest = (0..9).map(|i| 1 << i).filter(|&k| k <= m).max().unwrap_or(1);
        choose_ks(&[1, largest], fewest)?
    } else {
        choose_ks(ks, fewest)?
    };
    if let Some(k) = ks.iter().find(|&&k| k > m) {
        bad_input!("-k: pass@{k} cannot be formed from subsamples of --m {m}; wanted k <= m");
    }
    if m == fewest {
        say!(
            "note: subsamples of m = {m} take every sample of a problem, so they don't vary; take more samples or a smaller --m"
        );
    }
    Ok((m, ks))
}

/// A comparison with the distributions it came from: the test's and the bootstrap's.
type Evidence = (Comparison, Found, Vec<f64>);

/// One benchmark's distribution of the difference at one k, in whichever form.
enum Found {
    Exact(Difference),
    Simulated(Vec<f64>),
}

/// Compares every benchmark at every k, then the averages whose benchmarks are all there.
pub fn compare_all(pairs: &[Matched], plan: &Plan, averages: &[Average]) -> Vec<Comparison> {
    let mut out: Vec<Comparison> = Vec::new();
    for &k in &plan.ks {
        let results: Vec<Evidence> =
            pairs.iter().enumerate().map(|(i, pair)| compare_one(pair, k, plan, i as u64)).collect();
        let names: Vec<&str> = pairs.iter().map(|p| p.name.as_str()).collect();
        let adjusted = holm(&results.iter().map(|r| r.0.p_value).collect::<Vec<_>>());
        let averaged: Vec<Comparison> = averages
            .iter()
            .filter_map(|a| {
                let members: Vec<&Evidence> = a.among(&names)?.iter().map(|&i| &results[i]).collect();
                Some(average(&members, a.name.clone(), plan.level))
            })
            .collect();
        for ((mut c, _, _), p) in results.into_iter().zip(adjusted) {
            c.holm = p;
            out.push(c);
        }
        out.extend(averaged);
    }
    out
}

fn compare_one(pair: &Matched, k: u64, plan: &Plan, index: u64) -> Evidence {
    let mut tables = Tables::default();
    let both = || pair.a.problems.iter().zip(&pair.b.problems);
    let each: Vec<(f64, f64)> = both().map(|(a, b)| (tables.of(a, k), tables.of(b, k))).collect();
    let count = each.len() as f64;
    let differences: Vec<f64> = each.iter().map(|(a, b)| b - a).collect();
    let counts: Vec<Pair> = both().map(|(a, b)| Pair { a: a.counts(), b: b.counts() }).collect();
    let key = Key::new(plan.seed).with(index).with(k);
    let found = match plan.method {
        Method::Exact => Found::Exact(paired::exact(&counts, plan.m, k)),
        Method::MonteCarlo => {
            let sampler = Subsampler::new(&counts, plan.m, k);
            let key = key.with(0);
            Found::Simulated((0..plan.iterations).into_par_iter().map(|i| sampler.draw(key, i)).collect())
        }
    };
    // The same problems are drawn at every k, so that curves of k move together.
    let bootstrap_key = Key::new(plan.seed).with(index).with(u64::MAX);
    let resampled: Vec<f64> =
        (0..plan.resamples).into_par_iter().map(|i| resampled_mean(&differences, bootstrap_key, i)).collect();
    let only = |has: fn(u64, u64) -> bool| -> Vec<String> {
        both().filter(|(a, b)| has(a.correct, b.correct)).map(|(a, _)| a.id.clone()).collect()
    };
    let comparison = Comparison {
        name: pair.name.clone(),
        average_of: Vec::new(),
        k,
        m: plan.m,
        problems: each.len(),
        values: (
            each.iter().map(|e| e.0).sum::<f64>() / count,
            each.iter().map(|e| e.1).sum::<f64>() / count,
        ),
        gained: only(|a, b| a == 0 && b > 0),
        lost: only(|a, b| a > 0 && b == 0),
        ..summary(&found, &resampled, plan.level)
    };
    (comparison, found, resampled)
}

/// The parts of a comparison that come from distributions; the rest is left empty.
fn summary(found: &Found, resampled: &[f64], level: f64) -> Comparison {
    let (p_value, interval, p_bounds) = match found {
        Found::Exact(d) => (d.two_sided_p(), d.interval(level), Some(d.p_bounds())),
        Found::Simulated(values) => {
            let s = Simulated::new(values.clone());
            (s.two_sided_p(), s.interval(level), None)
        }
    };
    let bootstrap = Simulated::new(resampled.to_vec());
    Comparison {
        name: String::new(),
        average_of: Vec::new(),
        k: 0,
        m: 0,
        problems: 0,
        values: (0.0, 0.0),
        p_value,
        holm: p_value,
        interval,
        p_bounds,
        bootstrap: (bootstrap.two_sided_p(), bootstrap.interval(level)),
        gained: Vec::new(),
        lost: Vec::new(),
    }
}

fn average(parts: &[&Evidence], label: String, level: f64) -> Comparison {
    let count = parts.len() as f64;
    let mean = |of: &dyn Fn(&Evidence) -> f64| parts.iter().map(|p| of(p)).sum::<f64>() / count;
    let laws: Vec<Difference> = parts
        .iter()
        .filter_map(|p| match &p.1 {
            Found::Exact(d) => Some(d.clone()),
            Found::Simulated(_) => None,
        })
        .collect();
    let found = if laws.len() == parts.len() {
        Found::Exact(paired::average(&laws))
    } else {
        let simulated: Vec<&Vec<f64>> = parts
            .iter()
            .filter_map(|p| match &p.1 {
                Found::Simulated(v) => Some(v),
                Found::Exact(_) => None,
            })
            .collect();
        let iterations = simulated.first().map_or(0, |v| v.len());
        Found::Simulated(
            (0..iterations).map(|i| simulated.iter().map(|v| v[i]).sum::<f64>() / count).collect(),
        )
    };
    let resampled: Vec<f64> =
        (0..parts[0].2.len()).map(|i| parts.iter().map(|p| p.2[i]).sum::<f64>() / count).collect();
    Comparison {
        name: label,
        average_of: parts.iter().map(|p| p.0.name.clone()).collect(),
        k: parts[0].0.k,
        m: parts[0].0.m,
        problems: parts.iter().map(|p| p.0.problems).sum(),
        values: (mean(&|p| p.0.values.0), mean(&|p| p.0.values.1)),
        ..summary(&found, &resampled, level)
    }
}
