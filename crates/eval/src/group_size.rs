//! Compares group sizes on a set of problems under a model, by the fraction of groups that are active and by the fraction
//! of groups that miss the rare tail of the correct completions.

use crate::estimate::note_unscorable;
use crate::samples::{Benchmark, ProblemCounts};
use fgrpo_core::stats::hypergeometric::{Counts, subsample_distribution};
use fgrpo_core::theory::tail_miss;
use serde::Serialize;

/// Estimates for one group size on a set of problems.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Outlook {
    /// Group size N.
    pub group_size: u64,
    /// Fraction of groups with both correct and wrong completions. Other groups give no gradient.
    pub active: f64,
    /// Mean probability that a group is active and doesn't contain a completion of the rare tail.
    pub tail_miss: f64,
    /// Fraction of the active groups that miss the tail.
    pub missing_share: f64,
    /// Whether a problem has fewer than N samples, so that `active` is only a lower bound.
    pub at_least: bool,
}

/// Computes the estimates for one group size. `tail` is the rare fraction of each problem's correct probability mass.
///
/// For a problem with at least N samples, both probabilities are unbiased: N samples are drawn without replacement, and
/// each correct sample is in the tail with probability `tail`. With fewer than N samples, an unbiased estimate doesn't
/// exist. Such a problem counts as active, since its samples are already a mixed group and a larger group contains them.
/// The fraction of its active groups that miss the tail is computed by theory at the success rate c/n. So the active
/// fraction never decreases with N, as in theory.
pub fn outlook(problems: &[&ProblemCounts], group_size: u64, tail: f64) -> anyhow::Result<Outlook> {
    let (mut active, mut tail_miss) = (0.0, 0.0);
    for p in problems {
        let (n, c) = (p.samples, p.correct);
        if c == 0 || c == n {
            continue;
        }
        if n < group_size {
            let mu = c as f64 / n as f64;
            let missing = tail_miss::tail_miss_probability(mu, tail * mu, group_size)?;
            active += 1.0;
            tail_miss += missing / tail_miss::active_probability(mu, group_size)?;
            continue;
        }
        let law = subsample_distribution(Counts { samples: n, correct: c }, group_size);
        for (x, chance) in (law.first..).zip(&law.mass) {
            if x > 0 && x < group_size as i64 {
                active += chance;
                tail_miss += chance * (1.0 - tail).powi(x as i32);
            }
        }
    }
    let count = problems.len() as f64;
    let (active, tail_miss) = (active / count, tail_miss / count);
    Ok(Outlook {
        group_size,
        active,
        tail_miss,
        missing_share: if active > 0.0 { (tail_miss / active).min(1.0) } else { 0.0 },
        at_least: problems.iter().any(|p| p.samples < group_size),
    })
}

/// A suggested setting, by a rule of thumb.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Suggested {
    /// Group size N.
    pub group_size: u64,
    /// Focal gamma.
    pub focal_gamma: f64,
}

/// Suggests the smallest group size whose active fraction is at least 90 % of the best. Gamma is 1 if more than half of
/// the active groups miss the tail, 0 if fewer than 5 % do, and otherwise 0.5, the paper's starting value. Returns `None`
/// if no group is active.
pub fn suggest(outlooks: &[Outlook]) -> Option<Suggested> {
    let highest = outlooks.iter().map(|o| o.active).fold(0.0, f64::max);
    if highest <= 0.0 {
        return None;
    }
    let choice = outlooks.iter().filter(|o| o.active >= 0.9 * highest).min_by_key(|o| o.group_size)?;
    let focal_gamma = match choice.missing_share {
        share if share > 0.5 => 1.0,
        share if share < 0.05 => 0.0,
        _ => 0.5,
    };
    Some(Suggested { group_size: choice.group_size, focal_gamma })
}

/// Comparison of group sizes on a set of problems.
#[derive(Debug, Clone, Serialize)]
pub struct GroupSizes {
    /// Number of problems with a scored sample.
    pub problems: usize,
    /// Number of problems without a correct sample.
    pub never_solved: usize,
    /// Number of problems without a wrong sample.
    pub always_solved: usize,
    /// Rare fraction of each problem's correct probability mass.
    pub tail: f64,
    /// Estimates for each group size.
    pub group_sizes: Vec<Outlook>,
    /// The suggestion, or `None` if no group is active.
    pub suggested: Option<Suggested>,
    /// Smallest number of scored samples of a problem.
    #[serde(skip)]
    pub fewest_samples: u64,
}

/// Returns an error if a setting is out of range.
pub fn check(group_sizes: &[u64], tail: f64) -> anyhow::Result<()> {
    if !(tail > 0.0 && tail <= 1.0) {
        bad_input!("tail: expected a fraction above 0 and at most 1, found {tail}");
    }
    if let Some(n) = group_sizes.iter().find(|&&n| n < 2) {
        bad_input!("group sizes: expected at least 2, found {n}");
    }
    Ok(())
}

/// Compares group sizes on the problems of several benchmarks. Problems and samples that are left out are logged.
pub fn compare(benchmarks: &[Benchmark], group_sizes: &[u64], tail: f64) -> anyhow::Result<GroupSizes> {
    check(group_sizes, tail)?;
    let problems: Vec<&ProblemCounts> =
        benchmarks.iter().flat_map(|b| &b.problems).filter(|p| p.samples > 0).collect();
    if problems.is_empty() {
        bad_input!("no problem has a scored sample");
    }
    note_unscorable(benchmarks);
    for b in benchmarks {
        let unscored = b.problems.iter().filter(|p| p.samples == 0).count();
        if unscored > 0 {
            let all = b.problems.len();
            tracing::info!("{}: {unscored} of {all} problems have no scored sample and are left out", b.name);
        }
    }
    let mut sizes = group_sizes.to_vec();
    sizes.sort_unstable();
    sizes.dedup();
    let outlooks = sizes.iter().map(|&n| outlook(&problems, n, tail)).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(GroupSizes {
        problems: problems.len(),
        never_solved: problems.iter().filter(|p| p.correct == 0).count(),
        always_solved: problems.iter().filter(|p| p.correct == p.samples).count(),
        tail,
        suggested: suggest(&outlooks),
        group_sizes: outlooks,
        fewest_samples: problems.iter().map(|p| p.samples).min().unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(n: u64, c: u64) -> ProblemCounts {
        ProblemCounts::counted(String::new(), n, c)
    }

    #[test]
    fn active_share_is_the_share_of_mixed_subsets() {
        // Of the 6 subsets of 2 of 4 samples with 1 correct, 3 are mixed.
        let p = problem(4, 1);
        let o = outlook(&[&p], 2, 0.5).unwrap();
        assert!((o.active - 0.5).abs() < 1e-15, "{o:?}");
        // The one correct sample is in the tail half of the time.
        assert!((o.tail_miss - 0.25).abs() < 1e-15 && !o.at_least, "{o:?}");
        // A problem that is never or always solved isn't active.
        let (never, always) = (problem(8, 0), problem(8, 8));
        let o = outlook(&[&never, &always], 4, 0.5).unwrap();
        assert_eq!((o.active, o.tail_miss), (0.0, 0.0));
        assert_eq!(suggest(&[o]), None);
    }

    #[test]
    fn active_share_never_falls_with_the_group_size_and_bounds_the_tail_misses() {
        use fgrpo_core::rng::Key;
        for case in 0..60 {
            let key = Key::new(case);
            // Problems with fewer and with more samples than the group size.
            let problems: Vec<ProblemCounts> = (0..1 + key.below(0, 12))
                .map(|i| {
                    let n = 1 + key.with(i).below(1, 70);
                    problem(n, key.with(i).below(2, n + 1))
                })
                .collect();
            let problems: Vec<&ProblemCounts> = problems.iter().collect();
            let tail = [0.01, 0.1, 0.7, 1.0][key.below(3, 4) as usize];
            let all: Vec<Outlook> = (2..=140).map(|size| outlook(&problems, size, tail).unwrap()).collect();
            for pair in all.windows(2) {
                assert!(pair[0].active <= pair[1].active + 1e-12, "case {case}: {pair:?}");
            }
            assert!(all.iter().all(|o| (0.0..=o.active + 1e-12).contains(&o.tail_miss)), "case {case}");
        }
    }

    #[test]
    fn estimates_are_the_theorys_on_average() {
        // All sets of 6 samples at a success rate of 0.3, weighted by their probability.
        let (mu, n, tail) = (0.3f64, 6u64, 0.25);
        for size in 2..=n {
            let (mut active, mut missing) = (0.0, 0.0);
            for bits in 0..1u64 << n {
                let c = u64::from(bits.count_ones());
                let weight = mu.powi(c as i32) * (1.0 - mu).powi((n - c) as i32);
                let o = outlook(&[&problem(n, c)], size, tail).unwrap();
                active += weight * o.active;
                missing += weight * o.tail_miss;
            }
            let expected = tail_miss::active_probability(mu, size).unwrap();
            assert!((active - expected).abs() < 1e-12, "N = {size}: {active} {expected}");
            let expected = tail_miss::tail_miss_probability(mu, tail * mu, size).unwrap();
            assert!((missing - expected).abs() < 1e-12, "N = {size}: {missing} {expected}");
        }
    }

    #[test]
    fn suggestion_takes_the_smallest_group_that_is_active_enough() {
        let at = |group_size, active, tail_miss: f64| Outlook {
            group_size,
            active,
            tail_miss,
            missing_share: tail_miss / active,
            at_least: false,
        };
        let suggested = |outlooks: &[Outlook]| suggest(outlooks).map(|s| (s.group_size, s.focal_gamma));
        assert_eq!(suggested(&[at(2, 0.3, 0.28), at(8, 0.6, 0.4), at(64, 0.65, 0.1)]), Some((8, 1.0)));
        assert_eq!(suggested(&[at(2, 0.3, 0.1), at(8, 0.32, 0.0)]), Some((2, 0.5)));
        assert_eq!(suggested(&[at(8, 0.32, 0.0)]), Some((8, 0.0)));
    }
}
