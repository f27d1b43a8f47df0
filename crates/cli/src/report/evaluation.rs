//! Plots of pass@k during and after training.

use super::input::Run;
use super::runs::{Group, Runs};
use crate::chart::page::{Labels, Lines, Plot, success_rates};
use fgrpo_core::stats::pass_at_k::powers_of_two_up_to;
use fgrpo_eval::exact::Exact;
use fgrpo_eval::figure::{Colour, Curve, Key, Notation, Scale};
use fgrpo_eval::record::Evaluation;
use serde::Serialize;

/// Data of `evaluation.html`.
#[derive(Debug, Serialize)]
pub(super) struct Evaluations<'a> {
    sets: Vec<Set<'a>>,
}

/// The plots of one evaluated set.
#[derive(Debug, Serialize)]
struct Set<'a> {
    name: &'a str,
    /// Number of problems, or 0 if the files don't state it.
    problems: usize,
    samples: usize,
    plots: Vec<Plot>,
    /// Tables of the problems that training, or another setting, gained and lost.
    moves: Vec<Moves<'a>>,
}

/// A table of problems gained and lost.
#[derive(Debug, Serialize)]
struct Moves<'a> {
    title: String,
    /// Column title of the number of problems solved before.
    before: String,
    rows: Vec<(&'a Group, Moved)>,
}

/// Problems with a correct sample in only one of two evaluations.
#[derive(Debug, Serialize)]
struct Moved {
    /// Number of problems with a correct sample, before and after.
    solved: (usize, usize),
    /// Problems solved only after: the index and the number of correct samples in the later evaluation.
    gained: Vec<(usize, usize)>,
    /// Problems solved only before: the index and the number of correct samples in the earlier evaluation.
    lost: Vec<(usize, usize)>,
}

impl Moved {
    /// Compares each problem's numbers of correct samples, before and after, if it has a scored sample on both sides.
    fn of(before: &[Option<usize>], after: &[Option<usize>]) -> Option<Self> {
        if before.is_empty() || before.len() != after.len() {
            return None;
        }
        let pair =
            |(problem, (a, b)): (usize, (&Option<usize>, &Option<usize>))| Some((problem, (*a)?, (*b)?));
        let pairs: Vec<(usize, usize, usize)> =
            before.iter().zip(after).enumerate().filter_map(pair).collect();
        Some(Self {
            solved: (
                pairs.iter().filter(|(_, before, _)| *before > 0).count(),
                pairs.iter().filter(|(_, _, after)| *after > 0).count(),
            ),
            gained: pairs.iter().filter(|(_, a, b)| *a == 0 && *b > 0).map(|&(p, _, b)| (p, b)).collect(),
            lost: pairs.iter().filter(|(_, a, b)| *a > 0 && *b == 0).map(|&(p, a, _)| (p, a)).collect(),
        })
    }
}

/// Returns the section, or `None` if no run was evaluated.
pub(super) fn section(runs: &Runs) -> Option<Evaluations<'_>> {
    let sets: Vec<Set<'_>> = runs.sets().into_iter().filter_map(|set| of_set(runs, set)).collect();
    (!sets.is_empty()).then_some(Evaluations { sets })
}

fn of_set<'a>(runs: &'a Runs, set: &'a str) -> Option<Set<'a>> {
    let ks = runs.shared_ks(set);
    let ends = ks.first().into_iter().chain(ks.last().filter(|k| ks.len() > 1 && **k > 1));
    let mut plots: Vec<Plot> = ends.filter_map(|&k| through_training(runs, set, k)).collect();
    let note = "Exact: the probability that one sample is correct.";
    plots.extend(exact(runs, set, "Mass on all solutions", note, |e| Some(e.mass)));
    let note = "Exact: fraction of the solutions' mass before RL that they retain.";
    plots.extend(exact(runs, set, "Retained mass", note, |e| e.retained));
    plots.extend(final_curve(runs, set, &ks, false));
    plots.extend(final_curve(runs, set, &ks, true));
    plots.extend(problems(runs, set));
    let last = runs.all.iter().find_map(|r| r.end_of(set))?;
    (!plots.is_empty()).then_some(Set {
        name: set,
        problems: last.all.per_problem.len(),
        samples: last.samples,
        plots,
        moves: moves(runs, set),
    })
}

/// Returns the problems that each group gained and lost since its first evaluation, and in comparison with the first
/// group. Samples of several seeds are added up.
fn moves<'a>(runs: &'a Runs, set: &str) -> Vec<Moves<'a>> {
    let counts = |group: &Group, which: fn(&Run, &str) -> Option<Vec<Option<usize>>>| {
        let mut seeds = runs.of(group).map(|run| which(run, set));
        let first = seeds.next()??;
        seeds.try_fold(first, |sum, counts| {
            let counts = counts.filter(|counts| counts.len() == sum.len())?;
            let added = |(a, b): (Option<usize>, Option<usize>)| a.zip(b).map(|(a, b)| a + b).or(a).or(b);
            Some(sum.into_iter().zip(counts).map(added).collect())
        })
    };
    let first = |run: &Run, set: &str| Some(correct(run.start_of(set)?));
    let last = |run: &Run, set: &str| Some(correct(run.end_of(set)?));
    let row = |group: &'a Group, before: Option<Vec<Option<usize>>>| {
        Some((group, Moved::of(&before?, &counts(group, last)?)?))
    };
    let since_start = runs.groups.iter().filter_map(|group| row(group, counts(group, first)));
    let mut tables = vec![Moves {
        title: "since the first evaluation".into(),
        before: "solved at first".into(),
        rows: since_start.collect(),
    }];
    if let [base, others @ ..] = runs.groups.as_slice() {
        let same_seeds = |group: &&Group| group.runs.len() == base.runs.len();
        let rows = others.iter().filter(same_seeds).filter_map(|group| row(group, counts(base, last)));
        tables.push(Moves {
            title: format!("against {}", base.name),
            before: format!("solved by {}", base.name),
            rows: rows.collect(),
        });
    }
    tables.retain(|table| !table.rows.is_empty());
    tables
}

/// Returns the number of correct samples of each problem, or `None` for a problem without a scored sample.
fn correct(eval: &Evaluation) -> Vec<Option<usize>> {
    let scored = eval.by_problem(1).into_iter();
    scored.zip(&eval.all.per_problem).map(|(rate, correct)| rate.map(|_| *correct)).collect()
}

fn through_training(runs: &Runs, set: &str, k: usize) -> Option<Plot> {
    let mut curves =
        runs.curves(|run| run.evals_of(set).filter_map(|e| Some((e.step as f64, e.pass_at(k)?))).collect());
    for curve in curves.iter_mut().filter(|c| !c.faint) {
        curve.dots = true;
        let alone = runs.groups.iter().find(|g| g.colour() == curve.colour).filter(|g| g.runs.len() == 1);
        if let Some(group) = alone {
            let interval = |e: &Evaluation| {
                e.all.interval.get(&k).map_or((f64::NAN, f64::NAN), |&[low, high]| (low, high))
            };
            let evaluations = runs.first(group).evals_of(set).filter(|e| e.pass_at(k).is_some());
            curve.band = evaluations.map(interval).collect();
        }
    }
    let note =
        if k == 1 { "How often one sample is correct." } else { "How many problems are still within reach." };
    let labels = Labels::new(format!("pass@{k} through training"), note, "step", format!("pass@{k}"));
    let drawable = curves.iter().any(|c| c.points.len() > 1);
    drawable.then(|| Lines { labels, curves, format: Notation::Percent, ..Lines::default() }.draw())?
}

/// Plots an exact measure through training, or returns `None` if every curve has fewer than two points.
fn exact(runs: &Runs, set: &str, title: &str, note: &str, value: fn(&Exact) -> Option<f64>) -> Option<Plot> {
    let point = |e: &Evaluation| Some((e.step as f64, value(e.exact.as_ref()?)?));
    let mut curves = runs.curves(|run| run.evals_of(set).filter_map(point).collect());
    curves.iter_mut().for_each(|curve| curve.dots = !curve.faint);
    let labels = Labels::new(title, note, "step", "mass");
    let drawable = curves.iter().any(|c| c.points.len() > 1);
    drawable.then(|| Lines { labels, curves, format: Notation::Percent, ..Lines::default() }.draw())?
}

/// Returns the ks of a curve: all powers of two if there are counts per problem, otherwise the recorded ks.
fn curve_ks(eval: &Evaluation, recorded: &[usize]) -> Vec<usize> {
    if eval.by_problem(1).is_empty() { recorded.to_vec() } else { powers_of_two_up_to(eval.samples) }
}

fn final_curve(runs: &Runs, set: &str, ks: &[usize], minus_log: bool) -> Option<Plot> {
    let value = |p: f64| if minus_log { -p.ln() } else { p };
    let read = |eval: &Evaluation| -> Vec<(f64, f64)> {
        let point = |k: usize| Some((k as f64, value(eval.pass_at(k)?)));
        curve_ks(eval, ks).into_iter().filter_map(point).collect()
    };
    let mut curves = runs.curves(|run| run.end_of(set).map(read).unwrap_or_default());
    for curve in curves.iter_mut().filter(|c| !c.faint) {
        curve.dots = true;
    }
    // Draws a single curve for the start if all runs share it, otherwise one for each group.
    let start = |run: &Run| run.start_of(set).map(read);
    let starts: Vec<(Colour, Vec<(f64, f64)>)> =
        runs.groups.iter().filter_map(|g| Some((g.colour(), start(runs.first(g))?))).collect();
    let shared = starts.windows(2).all(|w| w[0].1 == w[1].1);
    let mut labels = if minus_log {
        let note = "Lower is better; differences near pass@k = 1 stay visible.";
        Labels::new("\u{2212}log pass@k at the end", note, "k", "\u{2212}log pass@k")
    } else {
        Labels::new("pass@k at the end", "Dashed: at the first evaluation.", "k", "pass@k")
    };
    for (group_colour, points) in starts.into_iter().take(if shared { 1 } else { usize::MAX }) {
        let colour = if shared { Colour::Muted } else { group_colour };
        if shared {
            labels.legend.push(Key::new("start", colour, true));
        }
        curves.push(Curve { dashed: true, ..Curve::new("start", colour, points) });
    }
    let (y, format) =
        if minus_log { (Scale::Log10, Notation::Number) } else { (Scale::Linear, Notation::Percent) };
    let drawable = curves.iter().any(|c| c.points.len() > 1);
    drawable.then(|| Lines { labels, curves, x: Scale::Log2, y, format, ..Lines::default() }.draw())?
}

/// Plots the distribution of problems over success rates.
fn problems(runs: &Runs, set: &str) -> Option<Plot> {
    let rates = |eval: &Evaluation| -> Vec<f64> { eval.by_problem(1).into_iter().flatten().collect() };
    let mut bars: Vec<(String, Colour, Vec<f64>)> = Vec::new();
    let mut labels = Labels::new(
        "Problems by success rate at the end",
        "Sharpening moves problems from the middle to both ends: never solved or always solved.",
        "correct samples of a problem, %",
        "problems",
    );
    let starts: Vec<&Evaluation> = runs.firsts().into_iter().filter_map(|run| run.start_of(set)).collect();
    if let Some(first) =
        starts.first().filter(|f| starts.iter().all(|s| s.all.per_problem == f.all.per_problem))
    {
        bars.push(("start".into(), Colour::Muted, rates(first)));
        labels.legend.push(Key::new("start", Colour::Muted, false));
    }
    for group in &runs.groups {
        let ends = runs.of(group).filter_map(|run| run.end_of(set));
        bars.push((group.name.clone(), group.colour(), ends.flat_map(rates).collect()));
    }
    success_rates(labels, &bars)
}
