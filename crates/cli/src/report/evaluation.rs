//! Plots of pass@k during and after training.

use super::runs::{End, Group, Runs, Seed, mean_curve};
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
    /// Step of each group's last evaluation, in words.
    ends: String,
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
    /// Rows with the step of the later evaluations.
    rows: Vec<(&'a Group, u64, Moved)>,
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
    let shown = ks.first().into_iter().chain(ks.last().filter(|k| ks.len() > 1 && **k > 1));
    let mut plots: Vec<Plot> = shown.filter_map(|&k| through_training(runs, set, k)).collect();
    let note = "Exact: the probability that one sample is correct.";
    plots.extend(exact(runs, set, "Mass on all solutions", note, |e| Some(e.mass)));
    let note = "Exact: fraction of the solutions' mass before RL that they retain.";
    plots.extend(exact(runs, set, "Retained mass", note, |e| e.retained));
    let ends = runs.ends(set);
    plots.extend(final_curve(runs, &ends, &ks, false));
    plots.extend(final_curve(runs, &ends, &ks, true));
    plots.extend(problems(&ends));
    let (_, last) = ends.first()?.1[0];
    let is_one_step = ends.iter().all(|(_, end)| end[0].1.step == last.step);
    let steps = ends.iter().map(|(group, end)| format!("step {} ({})", end[0].1.step, group.name));
    (!plots.is_empty()).then_some(Set {
        name: set,
        problems: last.all.per_problem.len(),
        samples: last.samples,
        ends: if is_one_step { format!("step {}", last.step) } else { steps.collect::<Vec<_>>().join(", ") },
        plots,
        moves: moves(runs, &ends, set),
    })
}

/// Returns the problems that each group gained and lost since its first evaluation, and in comparison with the first
/// group. Samples of several seeds are added up.
fn moves<'a>(runs: &'a Runs, ends: &[End<'a>], set: &'a str) -> Vec<Moves<'a>> {
    let row = |group: &'a Group, before: Vec<&Evaluation>, after: &[Seed<'_>]| {
        let (_, last) = after.first()?;
        let after: Vec<&Evaluation> = after.iter().map(|(_, eval)| *eval).collect();
        // More seeds solve more problems.
        let moved = Moved::of(&counts(&before)?, &counts(&after)?).filter(|_| before.len() == after.len())?;
        Some((group, last.step, moved))
    };
    let since_start = |(group, end): &End<'a>| {
        row(group, end.iter().filter_map(|(run, end)| run.start_of(end)).collect(), end)
    };
    let mut tables = vec![Moves {
        title: "since the first evaluation".into(),
        before: "solved at first".into(),
        rows: ends.iter().filter_map(since_start).collect(),
    }];
    if let [(base, _), others @ ..] = ends {
        let against_base = |(group, _): &End<'a>| {
            let [before, after] = runs.compared(base, group, set);
            row(group, before.into_iter().map(|(_, eval)| eval).collect(), &after)
        };
        tables.push(Moves {
            title: format!("against {}", base.name),
            before: format!("solved by {}", base.name),
            rows: others.iter().filter_map(against_base).collect(),
        });
    }
    tables.retain(|table| !table.rows.is_empty());
    tables
}

/// Adds up each problem's numbers of correct samples, or returns `None` if the evaluations have different problems. The sum is
/// `None` for a problem without a scored sample.
fn counts(evals: &[&Evaluation]) -> Option<Vec<Option<usize>>> {
    let added = |(a, b): (Option<usize>, Option<usize>)| a.zip(b).map(|(a, b)| a + b).or(a).or(b);
    let mut counts = evals.iter().map(|eval| correct(eval));
    let first = counts.next()?;
    counts.try_fold(first, |sum, counts| {
        (counts.len() == sum.len()).then(|| sum.into_iter().zip(counts).map(added).collect())
    })
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

fn final_curve(runs: &Runs, ends: &[End<'_>], ks: &[usize], minus_log: bool) -> Option<Plot> {
    let value = |p: f64| if minus_log { -p.ln() } else { p };
    let read = |eval: &Evaluation| -> Vec<(f64, f64)> {
        let point = |k: usize| Some((k as f64, value(eval.pass_at(k)?)));
        curve_ks(eval, ks).into_iter().filter_map(point).collect()
    };
    let mut curves = runs.curves(|run| {
        let end = ends.iter().flat_map(|(_, end)| end).find(|(seed, _)| std::ptr::eq(*seed, run));
        end.map(|(_, end)| read(end)).unwrap_or_default()
    });
    for curve in curves.iter_mut().filter(|c| !c.faint) {
        curve.dots = true;
    }
    // Draws a single curve for the start if all groups share it, otherwise one for each group.
    let start = |(group, end): &End<'_>| {
        let seeds: Vec<_> = end.iter().filter_map(|(run, end)| run.start_of(end)).map(read).collect();
        Some((group.colour(), mean_curve(&seeds))).filter(|(_, points)| !points.is_empty())
    };
    let starts: Vec<(Colour, Vec<(f64, f64)>)> = ends.iter().filter_map(start).collect();
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
fn problems(ends: &[End<'_>]) -> Option<Plot> {
    let rates = |eval: &Evaluation| -> Vec<f64> { eval.by_problem(1).into_iter().flatten().collect() };
    let mut bars: Vec<(String, Colour, Vec<f64>)> = Vec::new();
    let mut labels = Labels::new(
        "Problems by success rate at the end",
        "Sharpening moves problems from the middle to both ends: never solved or always solved.",
        "correct samples of a problem, %",
        "problems",
    );
    let start = |(_, end): &End<'_>| -> Vec<f64> {
        end.iter().filter_map(|(run, end)| run.start_of(end)).flat_map(rates).collect()
    };
    let starts: Vec<Vec<f64>> = ends.iter().map(start).filter(|rates| !rates.is_empty()).collect();
    if let Some(first) = starts.first().filter(|first| starts.iter().all(|start| start == *first)) {
        bars.push(("start".into(), Colour::Muted, first.clone()));
        labels.legend.push(Key::new("start", Colour::Muted, false));
    }
    for (group, end) in ends {
        let rates = end.iter().flat_map(|(_, end)| rates(end)).collect();
        bars.push((group.name.clone(), group.colour(), rates));
    }
    success_rates(labels, &bars)
}
