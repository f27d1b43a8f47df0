//! Ranks training methods on the same problems: pass@1 and pass@k over seeds and problems, paired differences from a
//! baseline, and the methods that another one dominates.

use crate::estimate::{Measured, RESAMPLES, bootstrap, measure_of_each, resamples};
use crate::record::Evaluation;
use fgrpo_core::stats::holm::holm;
use fgrpo_core::stats::measure::Measure;
use std::collections::BTreeMap;

/// A finished run of a method.
#[derive(Debug, Clone)]
pub struct TrainedRun {
    /// Name of the method.
    pub method: String,
    /// Seed of the run.
    pub seed: u64,
    /// The evaluation before training.
    pub start: Evaluation,
    /// Evaluation after training, on the same problems in the same order.
    pub end: Evaluation,
    /// Entropy of the sampled tokens' distributions in the last step, in nats.
    pub entropy: f64,
    /// Duration of all steps in seconds.
    pub seconds: f64,
}

impl TrainedRun {
    /// Returns the number of problems that the run solved before training but not after it.
    fn lost(&self) -> usize {
        let pairs = self.start.all.per_problem.iter().zip(&self.end.all.per_problem);
        pairs.filter(|(start, end)| **start > 0 && **end == 0).count()
    }
}

/// Difference between a method and the baseline, over their common seeds.
#[derive(Debug, Clone)]
pub struct Paired {
    /// Method minus baseline, with an interval.
    pub difference: Measured,
    /// Two-sided p-value of the bootstrap over problems and, with several seeds, over seeds. It is at least 2 in
    /// 10,000, the resolution of the resamples.
    pub p_value: f64,
    /// p-value after Holm's correction over the methods, at this k.
    pub holm_p_value: f64,
    /// Number of seeds that the method and the baseline have in common.
    pub seeds: usize,
}

/// A method in the ranking.
#[derive(Debug, Clone)]
pub struct Ranked {
    /// Name of the method.
    pub name: String,
    /// Number of runs of the method.
    pub seeds: usize,
    /// pass@k by k.
    pub pass_at_k: BTreeMap<u64, Measured>,
    /// Differences from the baseline by k. The map is empty for the baseline, and for a method without a common seed.
    pub paired: BTreeMap<u64, Paired>,
    /// Number of problems solved at least once before training and never after it, averaged over runs.
    pub lost: f64,
    /// Entropy in the last step in nats, averaged over runs.
    pub entropy: f64,
    /// Duration of all steps in seconds, averaged over runs.
    pub seconds: f64,
    /// The first method that dominates this one, which means that its pass@k is higher at some k and never lower. `None` if
    /// no method dominates this one.
    pub dominated_by: Option<String>,
}

/// pass@k of a run's problems: a list for each k.
type OfRun = Vec<Vec<f64>>;

/// Ranks methods by pass@k at the largest of `ks`, best first. The runs must have the same problems.
///
/// An interval covers other problems of the same kind and, with several seeds, other seeds. With one seed, it doesn't
/// cover another run of the method.
///
/// # Panics
/// If the numbers of problems differ, or a problem has fewer than k samples.
pub fn rank(runs: &[TrainedRun], baseline: &str, ks: &[u64]) -> Vec<Ranked> {
    let summary = |run: &TrainedRun| -> OfRun {
        let counts = run.end.counts();
        let pass_at_k = |&k: &u64| {
            let values = measure_of_each(&counts, Measure::PassAtK(k)).into_iter();
            values.map(|p| p.expect("every problem has k scored samples")).collect()
        };
        ks.iter().map(pass_at_k).collect()
    };
    // Methods in the order of their first runs.
    let mut methods: Vec<(&str, BTreeMap<u64, OfRun>)> = Vec::new();
    for run in runs {
        match methods.iter_mut().find(|(name, _)| *name == run.method) {
            Some((_, seeds)) => drop(seeds.insert(run.seed, summary(run))),
            None => methods.push((&run.method, BTreeMap::from([(run.seed, summary(run))]))),
        }
    }
    let base = methods.iter().find(|(name, _)| *name == baseline).map(|(_, seeds)| seeds);
    let key = resamples(0, 0);
    let mut ranked: Vec<Ranked> = methods
        .iter()
        .map(|(name, seeds)| {
            let values = |j: usize| seeds.values().map(|of_k| of_k[j].clone()).collect::<Vec<_>>();
            let quantities: Vec<Vec<Vec<f64>>> = (0..ks.len()).map(values).collect();
            let pass_at_k = ks.iter().copied().zip(bootstrap(&quantities, None, RESAMPLES, key)).collect();
            let paired = match base {
                Some(base) if *name != baseline => paired(seeds, base, ks),
                _ => BTreeMap::new(),
            };
            let mean = |field: fn(&TrainedRun) -> f64| {
                let values: Vec<f64> = runs.iter().filter(|run| run.method == *name).map(field).collect();
                values.iter().sum::<f64>() / values.len() as f64
            };
            Ranked {
                name: (*name).to_owned(),
                seeds: seeds.len(),
                pass_at_k,
                paired,
                lost: mean(|run| run.lost() as f64),
                entropy: mean(|run| run.entropy),
                seconds: mean(|run| run.seconds),
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
    let dominators: Vec<Option<String>> = ranked
        .iter()
        .map(|r| ranked.iter().find(|other| dominates(other, r)).map(|other| other.name.clone()))
        .collect();
    ranked.iter_mut().zip(dominators).for_each(|(r, dominator)| r.dominated_by = dominator);
    if let Some(k) = ks.iter().max() {
        ranked.sort_by(|a, b| value(b, k).total_cmp(&value(a, k)));
    }
    ranked
}

/// Computes method minus baseline, seed by seed and problem by problem.
fn paired(method: &BTreeMap<u64, OfRun>, base: &BTreeMap<u64, OfRun>, ks: &[u64]) -> BTreeMap<u64, Paired> {
    let common: Vec<u64> = method.keys().filter(|seed| base.contains_key(seed)).copied().collect();
    if common.is_empty() {
        return BTreeMap::new();
    }
    let difference = |j: usize| {
        let differences =
            |seed: &u64| method[seed][j].iter().zip(&base[seed][j]).map(|(a, b)| a - b).collect();
        common.iter().map(differences).collect::<Vec<Vec<f64>>>()
    };
    let quantities: Vec<Vec<Vec<f64>>> = (0..ks.len()).map(difference).collect();
    let measured = bootstrap(&quantities, None, RESAMPLES, resamples(0, 0));
    let paired = |(k, difference): (&u64, Measured)| {
        let p_value = difference.p_value();
        (*k, Paired { difference, p_value, holm_p_value: p_value, seeds: common.len() })
    };
    ks.iter().zip(measured).map(paired).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Counted;

    fn evaluation(correct: &[usize]) -> Evaluation {
        let all = Counted { per_problem: correct.to_vec(), ..Counted::default() };
        Evaluation { samples: 4, all, ..Evaluation::default() }
    }

    fn method(name: &str, runs: &[(u64, &[usize])]) -> Vec<TrainedRun> {
        let run = |&(seed, end): &(u64, &[usize])| TrainedRun {
            method: name.to_owned(),
            seed,
            start: evaluation(&[2, 2, 1, 0]),
            end: evaluation(end),
            entropy: 0.0,
            seconds: 0.0,
        };
        runs.iter().map(run).collect()
    }

    fn place<'a>(ranked: &'a [Ranked], name: &str) -> &'a Ranked {
        ranked.iter().find(|r| r.name == name).unwrap()
    }

    #[test]
    fn values_differences_and_losses_match_values_worked_by_hand() {
        let methods = [
            method("base", &[(1, &[4, 4, 0, 0]), (2, &[4, 0, 0, 0])]),
            method("wide", &[(2, &[2, 2, 1, 1]), (3, &[4, 4, 4, 4])]),
        ]
        .concat();
        let ranking = rank(&methods, "base", &[1, 4]);
        let (base, wide) = (place(&ranking, "base"), place(&ranking, "wide"));
        assert!((base.pass_at_k[&1].value - 0.375).abs() < 1e-15);
        assert!((wide.pass_at_k[&1].value - (0.375 + 1.0) / 2.0).abs() < 1e-15);
        assert_eq!((base.lost, wide.lost), (1.5, 0.0));
        // Only seed 2 is common: 0.375 - 0.25 at k = 1, 1 - 0.25 at k = 4.
        assert_eq!(wide.paired[&1].seeds, 1);
        assert!((wide.paired[&1].difference.value - 0.125).abs() < 1e-15);
        assert!((wide.paired[&4].difference.value - 0.75).abs() < 1e-15);
        assert!(base.paired.is_empty());
        assert_eq!(ranking[0].name, "wide");
        assert_eq!(base.dominated_by.as_deref(), Some("wide"));
        assert_eq!(wide.dominated_by, None);
    }

    #[test]
    fn holms_correction_is_over_the_methods() {
        let flat = [1; 4];
        let better: &[usize] = &[2, 2, 2, 2];
        let methods = [
            method("base", &[(1, &flat)]),
            method("a", &[(1, better)]),
            method("b", &[(1, better)]),
            method("same", &[(1, &flat)]),
        ]
        .concat();
        let ranking = rank(&methods, "base", &[1]);
        let raw: Vec<f64> = ["a", "b", "same"].map(|n| place(&ranking, n).paired[&1].p_value).to_vec();
        let adjusted: Vec<f64> =
            ["a", "b", "same"].map(|n| place(&ranking, n).paired[&1].holm_p_value).to_vec();
        assert_eq!(adjusted, holm(&raw));
        // Four problems are all better by chance once in eight times.
        assert_eq!((raw[0], raw[2]), (0.125, 1.0));
        assert!(place(&ranking, "a").dominated_by.is_none(), "an equal method dominates nothing");
    }

    #[test]
    fn a_trade_of_pass_at_1_for_pass_at_k_dominates_nothing() {
        let methods =
            [method("sharp", &[(1, &[4, 4, 0, 0])]), method("wide", &[(1, &[1, 1, 1, 1])])].concat();
        let ranking = rank(&methods, "sharp", &[1, 4]);
        assert!(ranking.iter().all(|r| r.dominated_by.is_none()));
        assert_eq!(ranking[0].name, "wide");
    }
}
