//! The first section of the page: final pass@k of every run, differences and warnings.

use super::difference::{Difference, between, since_start};
use super::findings;
use super::input::Run;
use super::runs::{End, Group, Runs, Seed, differing, is_setting};
use super::time::{origin, total_seconds};
use crate::output::format::{number, percent};
use fgrpo_eval::amounts::duration;
use fgrpo_eval::estimate::{RESAMPLES, mean_and_deviation};
use serde::Serialize;

/// Data of `summary.html`.
#[derive(Debug, Serialize)]
pub(super) struct Summary<'a> {
    /// Opening sentences.
    lead: Vec<String>,
    /// Method of the run. `method`, `origin` and `tiles` are only set if there is a single run.
    method: Option<String>,
    origin: Option<String>,
    tiles: Vec<(String, String)>,
    sets: Vec<Set<'a>>,
    findings: Vec<Finding<'a>>,
    several_runs: bool,
    /// Number of resamples of each interval.
    resamples: u64,
}

/// The tables of one evaluated set.
#[derive(Debug, Serialize)]
struct Set<'a> {
    name: &'a str,
    ks: Vec<usize>,
    rows: Vec<Row<'a>>,
    /// Whether a value has a deviation over seeds.
    seeds: bool,
    /// Whether the best value of a column is bold.
    ranked: bool,
    differences: Vec<Differences<'a>>,
}

/// A group's final pass@k.
#[derive(Debug, Serialize)]
struct Row<'a> {
    group: &'a Group,
    /// Settings that differ from the other groups.
    settings: Vec<String>,
    step: u64,
    /// Configured number of steps, if a run isn't finished.
    unfinished: Option<u64>,
    cells: Vec<Option<Final>>,
}

/// Final pass@k, a mean over seeds.
#[derive(Debug, Serialize)]
struct Final {
    pass_at_k: f64,
    /// Whether the value is the best of several groups.
    best: bool,
    /// Standard deviation over seeds, if there are several.
    deviation: Option<f64>,
    /// Interval over problems, for a single seed.
    interval: Option<[f64; 2]>,
    /// Number of problems that the value leaves out, summed over seeds.
    left_out: usize,
}

#[derive(Debug, Serialize)]
struct Differences<'a> {
    title: String,
    /// Rows with the step or steps that are compared.
    rows: Vec<(&'a Group, String, Vec<Option<Difference>>)>,
}

/// Warning about a run.
#[derive(Debug, Serialize)]
struct Finding<'a> {
    run: &'a str,
    text: String,
}

pub(super) fn section(runs: &Runs) -> Summary<'_> {
    let alone = match runs.all.as_slice() {
        [run] => Some(run),
        _ => None,
    };
    let only_demonstrations = |run: &Run| run.files.metrics.is_empty() && !run.files.sft.is_empty();
    let findings = runs
        .all
        .iter()
        .flat_map(|run| findings::of(run).into_iter().map(move |text| Finding { run: &run.name, text }));
    Summary {
        lead: lead(runs),
        method: alone.filter(|run| !only_demonstrations(run)).and_then(Run::method),
        origin: alone.and_then(origin),
        tiles: alone.map(tiles).unwrap_or_default(),
        sets: runs.sets().into_iter().map(|set| of_set(runs, set)).collect(),
        findings: findings.collect(),
        several_runs: alone.is_none(),
        resamples: RESAMPLES,
    }
}

/// Maximum number of groups named in the opening sentence.
const NAMED: usize = 3;

/// Returns the opening sentences: the caveats, and the result.
pub(super) fn lead(runs: &Runs) -> Vec<String> {
    runs.caveats.iter().cloned().chain(result(runs)).collect()
}

/// Returns the steps of two groups' evaluations, or `None` if a group lacks evaluations.
fn steps(compared: &[Vec<Seed<'_>>; 2]) -> Option<[u64; 2]> {
    let [base, group] = compared.each_ref().map(|seeds| Some(seeds.first()?.1.step));
    Some([base?, group?])
}

/// Returns two groups' steps in words: "6", or "6 against 4".
fn in_words([base, group]: [u64; 2]) -> String {
    if base == group { group.to_string() } else { format!("{group} against {base}") }
}

/// States the result in one sentence: the differences from the first group, or the changes by training if there is only one
/// group.
fn result(runs: &Runs) -> Option<String> {
    runs.sets().into_iter().find_map(|set| {
        let here = runs.ends(set);
        let ks = runs.shared_ks(set);
        let ends: Vec<usize> =
            ks.first().into_iter().chain(ks.last().filter(|_| ks.len() > 1)).copied().collect();
        // "pass@1 is 3.1 points higher (...) and pass@64 is ...", or `None` if no difference is known.
        let phrase = |is: &str, difference: &dyn Fn(usize) -> Option<Difference>| {
            let parts = ends.iter().filter_map(|&k| Some(format!("pass@{k} {is}{}", difference(k)?.words())));
            let parts: Vec<String> = parts.collect();
            (!parts.is_empty()).then(|| parts.join(" and "))
        };
        match here.as_slice() {
            [] => None,
            [(_, end)] => {
                let (run, last) = end[0];
                let changes = phrase("is ", &|k| since_start(end, k))?;
                let first = run.start_of(last)?;
                Some(format!("After step {} on {set}, {changes} than at step {}.", last.step, first.step))
            }
            [(base, _), others @ ..] => {
                let sentence = |(group, _): &End<'_>| {
                    let compared = runs.compared(base, group, set);
                    let is_finished = |(run, _): &Seed<'_>| run.unfinished().is_none();
                    let differences = phrase("", &|k| between(&compared, k))?;
                    let steps = steps(&compared)?;
                    let verb = if steps == [0, 0] {
                        return None;
                    } else if !compared.iter().flatten().all(is_finished) {
                        format!("has at step {}", in_words(steps))
                    } else if steps[0] != steps[1] {
                        format!("ends at step {} with", in_words(steps))
                    } else {
                        "ends with".to_owned()
                    };
                    Some(format!("{} {verb} {differences}", group.name))
                };
                let sentences: Vec<String> = others.iter().take(NAMED).filter_map(sentence).collect();
                let more = match others.len() - sentences.len() {
                    0 => String::new(),
                    n => format!("; {n} more in the tables below"),
                };
                (!sentences.is_empty())
                    .then(|| format!("Against {} on {set}, {}{more}.", base.name, sentences.join("; ")))
            }
        }
    })
}

/// Chooses at most five evenly spaced ks for a table, including both ends.
fn shown_ks(ks: &[usize]) -> Vec<usize> {
    if ks.len() <= 5 {
        return ks.to_vec();
    }
    (0..5).map(|i| ks[i * (ks.len() - 1) / 4]).collect()
}

/// Returns the key figures of a single run, each with its name.
fn tiles(run: &Run) -> Vec<(String, String)> {
    let mut tiles: Vec<(String, String)> = Vec::new();
    for set in run.sets().into_iter().take(2) {
        let Some(last) = run.evals_of(set).next_back() else { continue };
        let first = run.start_of(last);
        let trained = run.files.metrics.last().map_or(last.step, |line| line.step);
        let step = if last.step < trained { format!(" at step {}", last.step) } else { String::new() };
        let ks: Vec<&usize> = last.all.pass_at_k.keys().collect();
        let ends = [ks.first(), ks.last().filter(|_| ks.len() > 1)];
        for k in ends.into_iter().flatten() {
            let Some(to) = last.pass_at(**k) else { continue };
            let from =
                first.filter(|first| first.all.left_out(**k) == 0).and_then(|first| first.pass_at(**k));
            let change = match (last.all.left_out(**k), from) {
                (0, Some(from)) => format!(", from {}", percent(from)),
                (0, None) => String::new(),
                (few, _) => format!(", {few} problems left out"),
            };
            tiles.push((percent(to), format!("pass@{k} on {set}{step}{change}")));
        }
    }
    if let Some(last) = run.files.metrics.last() {
        tiles.push((last.step.to_string(), "steps".into()));
        let recent: Vec<f64> =
            run.files.metrics.iter().rev().take(20).filter_map(|m| m.reward_mean.0).collect();
        if !recent.is_empty() {
            tiles.push((
                number(mean_and_deviation(&recent).0),
                format!("mean reward, last {} steps", recent.len()),
            ));
        }
    } else if let Some(last) = run.files.sft.last() {
        tiles.push((last.step.to_string(), "steps on demonstrations".into()));
        tiles.extend(last.loss.0.map(|l| (number(l), "loss, last step".into())));
        let held_out = run.files.sft.iter().rev().find_map(|s| s.held_out_loss);
        tiles.extend(held_out.map(|l| (number(l), "loss on held-out demonstrations".into())));
    }
    let seconds = total_seconds(run);
    if seconds > 0.0 {
        tiles.push((duration(seconds), "in RL steps".into()));
    }
    tiles
}

fn of_set<'a>(runs: &'a Runs, set: &'a str) -> Set<'a> {
    let ks = shown_ks(&runs.shared_ks(set));
    let ends = runs.ends(set);
    let firsts: Vec<&Run> = ends.iter().map(|(group, _)| runs.first(group)).collect();
    let mut rows: Vec<Row<'_>> = ends.iter().map(|end| row(end, &firsts, &ks)).collect();
    // Values of an unfinished run at an earlier step aren't ranked.
    let is_one_step = rows.windows(2).all(|w| w[0].step == w[1].step);
    let ranked = rows.len() > 1 && (is_one_step || rows.iter().all(|row| row.unfinished.is_none()));
    for column in 0..ks.len() {
        let cells = || rows.iter().filter_map(|r| r.cells[column].as_ref());
        let whole = ranked && cells().all(|c| c.left_out == 0);
        let best = cells().map(|c| c.pass_at_k).fold(f64::NEG_INFINITY, f64::max);
        for cell in rows.iter_mut().filter_map(|r| r.cells[column].as_mut()) {
            cell.best = whole && (cell.pass_at_k - best).abs() < 1e-12;
        }
    }
    let step = runs.all.iter().find_map(|run| run.evals_of(set).next()).map_or(0, |e| e.step);
    let row_of = |group, step, difference: &dyn Fn(usize) -> Option<Difference>| {
        let cells: Vec<_> = ks.iter().map(|&k| difference(k)).collect();
        cells.iter().any(Option::is_some).then_some((group, step, cells))
    };
    let since = |(group, end): &End<'a>| row_of(*group, end[0].1.step.to_string(), &|k| since_start(end, k));
    let mut tables = vec![Differences {
        title: format!("Change since step {step}"),
        rows: ends.iter().filter_map(since).collect(),
    }];
    if let [(base, _), others @ ..] = ends.as_slice() {
        let difference = |(group, _): &End<'a>| {
            let compared = runs.compared(base, group, set);
            row_of(*group, in_words(steps(&compared)?), &|k| between(&compared, k))
        };
        tables.push(Differences {
            title: format!("Difference to {}", base.name),
            rows: others.iter().filter_map(difference).collect(),
        });
    }
    tables.retain(|table| !table.rows.is_empty());
    Set {
        name: set,
        seeds: rows.iter().flat_map(|r| &r.cells).flatten().any(|cell| cell.deviation.is_some()),
        differences: tables,
        ranked,
        ks,
        rows,
    }
}

/// Returns the row of a group. `firsts` are the first runs of all groups.
fn row<'a>((group, end): &End<'a>, firsts: &[&Run], ks: &[usize]) -> Row<'a> {
    let (run, last) = end[0];
    let cell = |&k: &usize| {
        // A k that a seed lacks isn't the mean of the other seeds.
        let finals: Vec<f64> = end.iter().map(|(_, e)| e.pass_at(k)).collect::<Option<_>>()?;
        let (pass_at_k, deviation) = mean_and_deviation(&finals);
        let interval = last.all.interval.get(&k).copied().filter(|_| finals.len() == 1);
        let left_out = end.iter().map(|(_, e)| e.all.left_out(k)).sum();
        Some(Final { pass_at_k, best: false, deviation, interval, left_out })
    };
    let keys = differing(firsts).into_iter().filter(|k| is_setting(k));
    Row {
        group,
        settings: keys.take(6).map(|key| run.named_setting(&key)).collect(),
        step: last.step,
        unfinished: end.iter().find_map(|(run, _)| run.unfinished()),
        cells: ks.iter().map(cell).collect(),
    }
}
