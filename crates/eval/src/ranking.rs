//! Training methods ranked on the same problems: pass@1 and pass@k over seeds and problems, paired with a baseline, and
//! the methods that another one dominates.

use crate::estimate::{Measured, RESAMPLES, Tables, bootstrap, resamples};
use crate::samples::ProblemCounts;
use fgrpo_core::stats::holm::holm;
use std::collections::BTreeMap;

/// A run of a method: what its policy solved before and after training.
#[derive(Debug, Clone)]
pub struct TrainedRun {
    /// Seed of the run.
    pub seed: u64,
    /// The problems before training.
    pub start: Vec<ProblemCounts>,
    /// The same problems after training, in the same order.
    pub end: Vec<ProblemCounts>,
}

/// The runs of a method.
#[derive(Debug, Clone)]
pub struct Method {
    /// Its name.
    pub name: String,
    /// Its runs, one for each seed.
    pub runs: Vec<TrainedRun>,
}

/// The difference between a method and the baseline, over the seeds that both have.
#[derive(Debug, Clone)]
pub struct Paired {
    /// Method minus baseline, with its interval.
    pub difference: Measured,
    /// Two-sided p-value of the bootstrap over problems and, with several seeds, over seeds. At least 2 in 10,000, the
    /// resolution of its resamples.
    pub p_value: f64,
    /// The same after Holm's correction over the methods, at this k.
    pub holm_p_value: f64,
    /// Seeds that both have.
    pub seeds: usize,
}

/// A method's place.
#[derive(Debug, Clone)]
pub struct Ranked {
    /// Its name.
    pub name: String,
    /// Number of its runs.
    pub seeds: usize,
    /// pass@k by k.
    pub pass_at_k: BTreeMap<u64, Measured>,
    /// Differences from the baseline by k; empty for the baseline, and without a common seed.
    pub paired: BTreeMap<u64, Paired>,
    /// Problems solved at least once before training and never after it, mean over runs.
    pub lost: f64,
    /// The first method that dominates this one: its pass@k is nowhere lower and somewhere higher. `None` on the front.
    pub dominated_by: Option<String>,
}

/// Ranks methods by pass@k at the largest of `ks`, best first. The runs must have the same problems.
///
/// An interval covers other problems of the kind and, with several seeds, other seeds. With one seed it says nothing about
/// another run of the method.
///
/// # Panics
/// If a method has no run, numbers of problems differ, or a problem has fewer than k samples.
pub fn rank(methods: &[Method], baseline: &str, ks: &[u64]) -> Vec<Ranked> {
    let mut tables = Tables::default();
    // By method and seed: pass@k of each problem, for each k.
    let each: Vec<BTreeMap<u64, Vec<Vec<f64>>>> = methods
        .iter()
        .map(|m| {
            let of_run = |run: &TrainedRun, tables: &mut Tables| {
                let problems: Vec<&ProblemCounts> = run.end.iter().collect();
                ks.iter().map(|&k| tables.each(&problems, k)).collect()
            };
            m.runs.iter().map(|run| (run.seed, of_run(run, &mut tables))).collect()
        })
        .collect();
    let base = methods.iter().position(|m| m.name == baseline).map(|i| &each[i]);
    let key = resamples(0, 0);
    let mut ranked: Vec<Ranked> = methods
        .iter()
        .zip(&each)
        .map(|(method, own)| {
            let values = |j: usize| own.values().map(|of_k| of_k[j].clone()).collect::<Vec<_>>();
            let quantities: Vec<Vec<Vec<f64>>> = (0..ks.len()).map(values).collect();
            let pass_at_k = ks.iter().copied().zip(bootstrap(&quantities, None, RESAMPLES, key)).collect();
            let paired = match base {
                Some(base) if method.name != baseline => paired(own, base, ks),
                _ => BTreeMap::new(),
            };
            let lost: usize = method.runs.iter().map(lost).sum();
            Ranked {
                name: method.name.clone(),
                seeds: method.runs.len(),
                pass_at_k,
                paired,
                lost: lost as f64 / method.runs.len() as f64,
                dominated_by: None,
            }
        })
        .collect();
    for k in ks {
        let all = || (0..ranked.len()).filter(|&i| ranked[i].paired.contains_key(k));
        let places: Vec<usize> = all().collect();
        let adjusted = holm(&places.iter().map(|&i| ranked[i].paired[k].p_value).collect::<Vec<_>>());
        for (i, p) in places.into_iter().zip(adjusted) {
            ranked[i].paired.get_mut(k).expect("it has this k").holm_p_value = p;
        }
    }
    let value = |r: &Ranked, k: &u64| r.pass_at_k[k].value;
    let dominates = |a: &Ranked, b: &Ranked| {
        ks.iter().all(|k| value(a, k) >= value(b, k)) && ks.iter().any(|k| value(a, k) > value(b, k))
    };
    let by: Vec<Option<String>> = ranked
        .iter()
        .map(|r| ranked.iter().find(|other| dominates(other, r)).map(|other| other.name.clone()))
        .collect();
    ranked.iter_mut().zip(by).for_each(|(r, by)| r.dominated_by = by);
    if let Some(k) = ks.iter().max() {
        ranked.sort_by(|a, b| value(b, k).total_cmp(&value(a, k)));
    }
    ranked
}

/// Method minus baseline, seed by seed and problem by problem.
fn paired(
    own: &BTreeMap<u64, Vec<Vec<f64>>>,
    base: &BTreeMap<u64, Vec<Vec<f64>>>,
    ks: &[u64],
) -> BTreeMap<u64, Paired> {
    let common: Vec<u64> = own.keys().filter(|seed| base.contains_key(seed)).copied().collect();
    if common.is_empty() {
        return BTreeMap::new();
    }
    let difference = |j: usize| {
        let of_seed = |seed: &u64| own[seed][j].iter().zip(&base[seed][j]).map(|(a, b)| a - b).collect();
        common.iter().map(of_seed).collect::<Vec<Vec<f64>>>()
    };
    let quantities: Vec<Vec<Vec<f64>>> = (0..ks.len()).map(difference).collect();
    let measured = bootstrap(&quantities, None, RESAMPLES, resamples(0, 0));
    let of = |(k, difference): (&u64, Measured)| {
        let p_value = difference.p_value();
        (*k, Paired { difference, p_value, holm_p_value: p_value, seeds: common.len() })
    };
    ks.iter().zip(measured).map(of).collect()
}

/// Problems that a run solved before training and not after it.
fn lost(run: &TrainedRun) -> usize {
    run.start.iter().zip(&run.end).filter(|(start, end)| start.correct > 0 && end.correct == 0).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(correct: &[u64]) -> Vec<ProblemCounts> {
        let of = |(i, &c): (usize, &u64)| ProblemCounts::counted(i.to_string(), 4, c);
        correct.iter().enumerate().map(of).collect()
    }

    fn method(name: &str, runs: &[(u64, &[u64])]) -> Method {
        let start = || problems(&[2, 2, 1, 0]);
        let run = |&(seed, end): &(u64, &[u64])| TrainedRun { seed, start: start(), end: problems(end) };
        Method { name: name.to_owned(), runs: runs.iter().map(run).collect() }
    }

    fn place<'a>(ranked: &'a [Ranked], name: &str) -> &'a Ranked {
        ranked.iter().find(|r| r.name == name).unwrap()
    }

    #[test]
    fn values_differences_and_losses_match_values_worked_by_hand() {
        let methods = [
            method("base", &[(1, &[4, 4, 0, 0]), (2, &[4, 0, 0, 0])]),
            method("wide", &[(2, &[2, 2, 1, 1]), (3, &[4, 4, 4, 4])]),
        ];
        let ranked = rank(&methods, "base", &[1, 4]);
        let (base, wide) = (place(&ranked, "base"), place(&ranked, "wide"));
        assert!((base.pass_at_k[&1].value - 0.375).abs() < 1e-15);
        assert!((wide.pass_at_k[&1].value - (0.375 + 1.0) / 2.0).abs() < 1e-15);
        assert_eq!((base.lost, wide.lost), (1.5, 0.0));
        // Seed 2 alone is common: 0.375 - 0.25 at k = 1, 1 - 0.25 at k = 4.
        assert_eq!(wide.paired[&1].seeds, 1);
        assert!((wide.paired[&1].difference.value - 0.125).abs() < 1e-15);
        assert!((wide.paired[&4].difference.value - 0.75).abs() < 1e-15);
        assert!(base.paired.is_empty());
        assert_eq!(ranked[0].name, "wide");
        assert_eq!(base.dominated_by.as_deref(), Some("wide"));
        assert_eq!(wide.dominated_by, None);
    }

    #[test]
    fn holms_correction_is_over_the_methods() {
        let flat = [1u64; 4];
        let better: &[u64] = &[2, 2, 2, 2];
        let methods = [
            method("base", &[(1, &flat)]),
            method("a", &[(1, better)]),
            method("b", &[(1, better)]),
            method("same", &[(1, &flat)]),
        ];
        let ranked = rank(&methods, "base", &[1]);
        let raw: Vec<f64> = ["a", "b", "same"].map(|n| place(&ranked, n).paired[&1].p_value).to_vec();
        let adjusted: Vec<f64> =
            ["a", "b", "same"].map(|n| place(&ranked, n).paired[&1].holm_p_value).to_vec();
        assert_eq!(adjusted, holm(&raw));
        // Four problems that are all better are so by chance once in eight times.
        assert_eq!((raw[0], raw[2]), (0.125, 1.0));
        assert!(place(&ranked, "a").dominated_by.is_none(), "an equal method dominates nothing");
    }

    #[test]
    fn a_trade_of_pass_at_1_for_pass_at_k_dominates_nothing() {
        let methods = [method("sharp", &[(1, &[4, 4, 0, 0])]), method("wide", &[(1, &[1, 1, 1, 1])])];
        let ranked = rank(&methods, "sharp", &[1, 4]);
        assert!(ranked.iter().all(|r| r.dominated_by.is_none()));
        assert_eq!(ranked[0].name, "wide");
    }
}
