//! Which problems training loses, by group size, beside the theory's tail misses at the success rates that training began with.

use super::measured::{Resampled, pass_at_k};
use super::panels::{banded, panel, sizes_axis};
use super::sources::{Source, Sources, counted};
use crate::output::plot::{Axis, Curve, Legend, PALETTE, Panel, Scale};
use crate::output::table::Table;
use fgrpo_core::theory::tail_miss;
use fgrpo_train::evaluation::samples::{Benchmark, Problem};
use std::collections::{BTreeMap, BTreeSet};

/// The tail of a problem's correct mass, as `fgrpo plan` takes it.
const TAIL: f64 = 0.1;

/// Runs of GRPO without a focal weight by group size.
fn by_size(sources: &Sources) -> BTreeMap<u64, Vec<&Source>> {
    let mut sizes: BTreeMap<u64, Vec<&Source>> = BTreeMap::new();
    for source in &sources.all {
        if let Some(run) = &source.run
            && run.setting.method == "GRPO"
            && run.setting.gamma == 0.0
        {
            sizes.entry(run.setting.n).or_default().push(source);
        }
    }
    sizes
}

/// A run's evaluation before its first step.
fn start(source: &Source) -> Option<Benchmark> {
    let first = source.run.as_ref()?.evaluations.first().filter(|e| e.step == 0)?;
    Some(counted(&source.benchmarks[0].name, &source.path, first))
}

/// Percent of the problems that every run solved at its start and no sample solves at the end, by group size; and the mean
/// probability that a group of N is active and misses the tail, over the problems at their starting success rates.
///
/// None unless every run evaluated its start, there are two group sizes, and every start solves some problem.
pub(super) fn lost(sources: &Sources, rows: &mut Table) -> Option<Panel> {
    let sizes = by_size(sources);
    let starts: Vec<Benchmark> = sizes.values().flatten().filter_map(|s| start(s)).collect();
    if sizes.len() < 2 || starts.len() < sizes.values().flatten().count() {
        return None;
    }
    let solved = |b: &Benchmark| -> BTreeSet<String> {
        b.problems.iter().filter(|p| p.correct > 0).map(|p| p.id.clone()).collect()
    };
    let in_all = starts.iter().map(solved).reduce(|a, b| &a & &b).filter(|all| !all.is_empty())?;
    let mut points: Vec<(f64, Resampled)> = Vec::new();
    for (n, seeds) in &sizes {
        let of_solved = |source: &&Source| {
            let all = &source.benchmarks[0];
            let problems = all.problems.iter().filter(|p| in_all.contains(&p.id)).cloned().collect();
            Benchmark { problems, ..all.clone() }
        };
        let ends: Vec<Benchmark> = seeds.iter().map(of_solved).collect();
        let samples = ends.iter().map(Benchmark::fewest).min()?;
        let kept = pass_at_k(&ends.iter().collect::<Vec<_>>(), samples).ok()?;
        let lost = kept.lost();
        let (low, high) = lost.interval();
        rows.push([
            "lost of the start".to_owned(),
            format!("GRPO N={n}"),
            samples.to_string(),
            format!("{:.3}", lost.value),
            format!("{low:.3}"),
            format!("{high:.3}"),
            String::new(),
        ]);
        points.push((*n as f64, lost));
    }
    // The same problem under several starts counts once for each.
    let rates: Vec<f64> = starts.iter().flat_map(|b| &b.problems).filter_map(rate).collect();
    let mut theory = Vec::new();
    let (smallest, largest) = (*sizes.keys().next()?, *sizes.keys().next_back()?);
    for n in (0..=20).map(|i| 1u64 << i).filter(|n| (smallest.max(2)..=largest).contains(n)) {
        let misses = rates.iter().map(|&mu| tail_miss::tail_miss_probability(mu, TAIL * mu, n));
        let sum: f64 = misses.sum::<Result<f64, _>>().ok()?;
        theory.push((n as f64, 100.0 * sum / rates.len() as f64));
    }
    let xs: Vec<f64> = points.iter().map(|p| p.0).collect();
    let curves = vec![
        banded("lost by GRPO", PALETTE[1], &points),
        Curve { dashed: true, dots: true, ..Curve::new("tail miss, theory", PALETTE[6], theory) },
    ];
    let highest = curves.iter().flat_map(|c| c.points.iter().map(|p| p.1).chain(c.band.iter().map(|b| b.1)));
    let y = Axis::new("%", Scale::Linear, 0.0, (1.1 * highest.fold(1.0, f64::max)).min(105.0));
    let title = format!("(c) lost of {} problems solved at the start", in_all.len());
    Some(panel(title, sizes_axis(&xs), y, curves, Legend::UpperRight))
}

/// The success rate of a problem that is neither always nor never solved; the others are never active.
fn rate(problem: &Problem) -> Option<f64> {
    let rate = problem.correct as f64 / (problem.samples as f64).max(1.0);
    (rate > 0.0 && rate < 1.0).then_some(rate)
}
