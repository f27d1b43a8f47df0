//! The first section of the page: final pass@k of every run, differences and warnings.

use super::difference::{Difference, at_end, since_start};
use super::findings;
use super::input::Run;
use super::runs::{Group, Runs, differing, is_setting};
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
    /// Whether a group has several seeds.
    seeds: bool,
    differences: Vec<Differences<'a>>,
}

/// A group's final pass@k.
#[derive(Debug, Serialize)]
struct Row<'a> {
    group: &'a Group,
    /// Settings that differ from the other groups.
    settings: Vec<String>,
    step: u64,
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
    rows: Vec<(&'a Group, Vec<Option<Difference>>)>,
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

/// States the result in one sentence: the differences from the first group, or the changes by training if there is only one
/// group.
fn result(runs: &Runs) -> Option<String> {
    runs.sets().into_iter().find_map(|set| {
        let evaluated = |g: &&Group| runs.of(g).all(|run| run.evals_of(set).next().is_some());
        let here: Vec<&Group> = runs.groups.iter().filter(evaluated).collect();
        let ks = runs.shared_ks(set);
        let ends: Vec<usize> =
            ks.first().into_iter().chain(ks.last().filter(|_| ks.len() > 1)).copied().collect();
        // "pass@1 is 3.1 points higher (...) and pass@64 is ...", or `None` if a difference is unknown.
        let phrase = |is: &str, difference: &dyn Fn(usize) -> Option<Difference>| {
            let parts = ends.iter().map(|&k| Some(format!("pass@{k} {is}{}", difference(k)?.words())));
            Some(parts.collect::<Option<Vec<_>>>()?.join(" and "))
        };
        match here.as_slice() {
            [] => None,
            [only] => {
                let run = runs.first(only);
                let (first, last) = (run.evals_of(set).next()?, run.end_of(set)?);
                let changes = phrase("is ", &|k| since_start(runs, only, set, k))?;
                Some(format!("After step {} on {set}, {changes} than at step {}.", last.step, first.step))
            }
            [base, others @ ..] => {
                let sentence = |group: &&Group| {
                    let differences = phrase("", &|k| at_end(runs, base, group, set, k))?;
                    Some(format!("{} ends with {differences}", group.name))
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
        let (Some(first), Some(last)) = (run.evals_of(set).next(), run.end_of(set)) else {
            continue;
        };
        let ks: Vec<&usize> = last.all.pass_at_k.keys().collect();
        let ends = [ks.first(), ks.last().filter(|_| ks.len() > 1)];
        for k in ends.into_iter().flatten() {
            let (Some(from), Some(to)) = (first.pass_at(**k), last.pass_at(**k)) else { continue };
            let left_out = match [first, last].map(|e| e.all.left_out(**k)) {
                [0, 0] if first.step < last.step && first.is_comparable(last) => {
                    format!(", from {}", percent(from))
                }
                [_, 0] => String::new(),
                [_, few] => format!(", {few} problems left out"),
            };
            tiles.push((percent(to), format!("pass@{k} on {set}{left_out}")));
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
    let evaluated = |g: &&Group| runs.of(g).any(|run| run.evals_of(set).next().is_some());
    let groups: Vec<&Group> = runs.groups.iter().filter(evaluated).collect();
    let mut rows: Vec<Row<'_>> =
        groups.iter().filter_map(|group| row(runs, &groups, group, set, &ks)).collect();
    for column in 0..ks.len() {
        let cells = || rows.iter().filter_map(|r| r.cells[column].as_ref());
        let whole = cells().all(|c| c.left_out == 0);
        let best = cells().map(|c| c.pass_at_k).fold(f64::NEG_INFINITY, f64::max);
        for cell in rows.iter_mut().filter_map(|r| r.cells[column].as_mut()) {
            cell.best = whole && groups.len() > 1 && (cell.pass_at_k - best).abs() < 1e-12;
        }
    }
    let step = runs.all.iter().find_map(|run| run.evals_of(set).next()).map_or(0, |e| e.step);
    let mut tables = vec![(
        format!("Change since step {step}"),
        differences(&groups, &ks, |g, k| since_start(runs, g, set, k)),
    )];
    if let [base, others @ ..] = groups.as_slice() {
        let rows = differences(others, &ks, |g, k| at_end(runs, base, g, set, k));
        tables.push((format!("Difference to {}", base.name), rows));
    }
    let tables = tables.into_iter().filter(|(_, rows)| !rows.is_empty());
    Set {
        name: set,
        seeds: groups.iter().any(|g| g.runs.len() > 1),
        differences: tables.map(|(title, rows)| Differences { title, rows }).collect(),
        ks,
        rows,
    }
}

fn row<'a>(runs: &Runs, groups: &[&Group], group: &'a Group, set: &str, ks: &[usize]) -> Option<Row<'a>> {
    let run = runs.first(group);
    let last = run.end_of(set)?;
    let cell = |&k: &usize| {
        let ends = || runs.of(group).filter_map(|run| run.end_of(set));
        let finals: Vec<f64> = ends().filter_map(|e| e.pass_at(k)).collect();
        let (pass_at_k, deviation) = mean_and_deviation(&finals);
        let interval = last.all.interval.get(&k).copied().filter(|_| finals.len() == 1);
        (!finals.is_empty()).then_some(Final {
            pass_at_k,
            best: false,
            deviation,
            interval,
            left_out: ends().map(|e| e.all.left_out(k)).sum(),
        })
    };
    let setting = |key: String| {
        let value = run.setting(&key).unwrap_or("\u{2013}");
        format!("{} {value}", key.rsplit('.').next().unwrap_or(&key))
    };
    let firsts: Vec<&Run> = groups.iter().map(|g| runs.first(g)).collect();
    let keys = differing(&firsts).into_iter().filter(|k| is_setting(k));
    Some(Row {
        group,
        settings: keys.take(6).map(setting).collect(),
        step: last.step,
        cells: ks.iter().map(cell).collect(),
    })
}

/// Returns the differences of each group, one per k, for the groups with at least one. `difference` computes one of them.
fn differences<'a>(
    groups: &[&'a Group],
    ks: &[usize],
    difference: impl Fn(&Group, usize) -> Option<Difference>,
) -> Vec<(&'a Group, Vec<Option<Difference>>)> {
    let row = |&group: &&'a Group| (group, ks.iter().map(|&k| difference(group, k)).collect::<Vec<_>>());
    groups.iter().map(row).filter(|(_, cells)| cells.iter().any(Option::is_some)).collect()
}
