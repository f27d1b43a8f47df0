//! The first thing on the page: final pass@k of every run, differences, and findings.

use super::chart::{Format, number};
use super::findings;
use super::input::{Eval, Run};
use super::page::{Group, escape, groups, is_setting};
use fgrpo_train::evaluation::estimate::{RESAMPLES, change};
use std::collections::BTreeSet;
use std::fmt::Write;

/// The section; `apart` says which runs can't be compared.
pub(super) fn section(runs: &[Run], apart: &[String]) -> String {
    let groups = groups(runs);
    let mut html = String::new();
    for sentence in apart.iter().cloned().chain(lead(runs, &groups)) {
        let _ = write!(html, "<p class=\"lead\">{}</p>", escape(&sentence));
    }
    if let [run] = runs {
        html.push_str(&tiles(run));
    }
    for set in sets(runs) {
        let groups: Vec<Group> = groups
            .iter()
            .filter(|g| g.runs.iter().any(|&i| runs[i].evals_of(set).next().is_some()))
            .cloned()
            .collect();
        html.push_str(&table(runs, &groups, set));
        html.push_str(&differences(runs, &groups, set));
    }
    let mut list = String::new();
    for run in runs {
        for finding in findings::of(run) {
            let who = if runs.len() > 1 { format!("<b>{}</b> ", escape(&run.name)) } else { String::new() };
            let _ = write!(list, "<li>{who}{}</li>", escape(&finding));
        }
    }
    let count = list.matches("<li").count();
    let list = format!("<ul class=\"findings\">{list}</ul>");
    match count {
        0 => {}
        1..=4 => html.push_str(&list),
        _ => {
            let _ = write!(html, "<details><summary>{count} remarks on the runs</summary>{list}</details>");
        }
    }
    html
}

/// Groups that the opening sentence names.
const NAMED: usize = 3;

/// What the page shows, in one sentence: how the groups differ from the first, or else what training changed.
fn lead(runs: &[Run], groups: &[Group]) -> Option<String> {
    for set in sets(runs) {
        let has = |g: &&Group| g.runs.iter().all(|&i| runs[i].evals_of(set).next().is_some());
        let here: Vec<&Group> = groups.iter().filter(has).collect();
        let ks = shared_ks(runs, set);
        let ends: Vec<usize> =
            ks.first().into_iter().chain(ks.last().filter(|_| ks.len() > 1)).copied().collect();
        let end = |group: &Group, k| per_problem(runs, group, k, |r| r.evals_of(set).next_back());
        if let [base, others @ ..] = here.as_slice()
            && !others.is_empty()
        {
            let of = |group: &Group| -> Option<String> {
                let parts = ends.iter().map(|&k| {
                    let d = paired(end(base, k), end(group, k))?;
                    Some(format!("pass@{k} {}", d.words()))
                });
                Some(format!("{} ends with {}", group.name, parts.collect::<Option<Vec<_>>>()?.join(" and ")))
            };
            let told: Vec<String> = others.iter().take(NAMED).filter_map(|g| of(g)).collect();
            if told.is_empty() {
                continue;
            }
            let more = match others.len() - told.len() {
                0 => String::new(),
                n => format!("; {n} more in the tables below"),
            };
            return Some(format!("Against {} on {set}, {}{more}.", base.name, told.join("; ")));
        }
        let [only] = here.as_slice() else { continue };
        let run = &runs[only.runs[0]];
        let (first, last) = (run.evals_of(set).next()?, run.evals_of(set).next_back()?);
        let start = |k| per_problem(runs, only, k, |r| r.evals_of(set).next());
        if first.step < last.step {
            let parts = ends.iter().map(|&k| {
                let d = paired(start(k), end(only, k))?;
                Some(format!("pass@{k} is {}", d.words()))
            });
            if let Some(parts) = parts.collect::<Option<Vec<_>>>() {
                return Some(format!(
                    "After step {} on {set}, {} than at step {}.",
                    last.step,
                    parts.join(" and "),
                    first.step
                ));
            }
        }
    }
    None
}

/// The sets that any run was evaluated on.
pub(super) fn sets(runs: &[Run]) -> Vec<&str> {
    let mut sets: Vec<&str> = Vec::new();
    for set in runs.iter().flat_map(Run::sets) {
        if !sets.contains(&set) {
            sets.push(set);
        }
    }
    sets
}

/// The ks that every last evaluation of a set has.
pub(super) fn shared_ks(runs: &[Run], set: &str) -> Vec<usize> {
    let mut last = runs.iter().filter_map(|r| r.evals_of(set).next_back()).map(Eval::ks);
    let first: BTreeSet<usize> = last.next().unwrap_or_default().into_iter().collect();
    last.fold(first, |all, ks| all.into_iter().filter(|k| ks.contains(k)).collect()).into_iter().collect()
}

/// At most five of the ks for a table: both ends and what lies evenly between.
fn shown_ks(ks: &[usize]) -> Vec<usize> {
    if ks.len() <= 5 {
        return ks.to_vec();
    }
    (0..5).map(|i| ks[i * (ks.len() - 1) / 4]).collect()
}

fn tiles(run: &Run) -> String {
    let mut tiles: Vec<(String, String)> = Vec::new();
    let percent = |x| Format::Percent.text(x);
    for set in run.sets().into_iter().take(2) {
        let (Some(first), Some(last)) = (run.evals_of(set).next(), run.evals_of(set).next_back()) else {
            continue;
        };
        let ks = last.ks();
        let ends = [ks.first(), ks.last().filter(|_| ks.len() > 1)];
        for k in ends.into_iter().flatten() {
            let (Some(from), Some(to)) = (first.pass_at(*k), last.pass_at(*k)) else { continue };
            let start =
                if first.step < last.step { format!(", from {}", percent(from)) } else { String::new() };
            tiles.push((percent(to), format!("pass@{k} on {set}{start}")));
        }
    }
    if let Some(last) = run.metrics.last() {
        tiles.push((last.step.to_string(), "steps".into()));
        let recent: Vec<f64> = run.metrics.iter().rev().take(20).filter_map(|m| m.reward_mean).collect();
        if !recent.is_empty() {
            let mean = recent.iter().sum::<f64>() / recent.len() as f64;
            tiles.push((number(mean), format!("mean reward, last {} steps", recent.len())));
        }
    }
    if run.metrics.is_empty()
        && let Some(last) = run.sft.last()
    {
        tiles.push((last.step.to_string(), "steps on demonstrations".into()));
        tiles.extend(last.loss.map(|l| (number(l), "loss, last step".into())));
        let held_out = run.sft.iter().rev().find_map(|s| s.held_out_loss);
        tiles.extend(held_out.map(|l| (number(l), "loss on held-out demonstrations".into())));
    }
    let seconds = super::timing::total_seconds(run);
    if seconds > 0.0 {
        tiles.push((super::timing::duration(seconds), "in RL steps".into()));
    }
    let mut html = String::new();
    let only_demonstrations = run.metrics.is_empty() && !run.sft.is_empty();
    if let Some(method) = run.method().filter(|_| !only_demonstrations) {
        let _ = write!(html, "<p class=\"soft\">{}</p>", escape(&method));
    }
    html.push_str("<div class=\"tiles\">");
    for (value, name) in tiles {
        let _ =
            write!(html, "<div class=\"tile\"><b>{}</b><span>{}</span></div>", escape(&value), escape(&name));
    }
    html + "</div>"
}

/// The last value of each run of a group.
fn finals(runs: &[Run], group: &Group, set: &str, k: usize) -> Vec<f64> {
    group.runs.iter().filter_map(|&i| runs[i].evals_of(set).next_back()?.pass_at(k)).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn table(runs: &[Run], groups: &[Group], set: &str) -> String {
    let ks = shown_ks(&shared_ks(runs, set));
    if ks.is_empty() {
        return String::new();
    }
    let mut html = format!(
        "<h3>Final pass@k on {}</h3><div class=\"card scroll\"><table><thead><tr><th>run</th><th>step</th>",
        escape(set)
    );
    for k in &ks {
        let _ = write!(html, "<th>pass@{k}</th>");
    }
    html.push_str("</tr></thead><tbody>");
    let value = |g: &Group, k| Some(finals(runs, g, set, k)).filter(|v| !v.is_empty()).map(|v| mean(&v));
    let best: Vec<f64> = ks
        .iter()
        .map(|&k| groups.iter().filter_map(|g| value(g, k)).fold(f64::NEG_INFINITY, f64::max))
        .collect();
    for group in groups {
        let first = &runs[group.runs[0]];
        let Some(last) = first.evals_of(set).next_back() else { continue };
        let _ = write!(
            html,
            "<tr class=\"g{}\"><td><span class=\"{}\"><i class=\"key\"></i></span>{}<small>{}</small></td><td>{}</td>",
            group.colour,
            group.key(),
            escape(&group.name),
            chips(runs, groups, group),
            last.step
        );
        for (k, best) in ks.iter().zip(&best) {
            let finals = finals(runs, group, set, *k);
            if finals.is_empty() {
                html.push_str("<td>\u{2013}</td>");
                continue;
            }
            let here = mean(&finals);
            let class = if groups.len() > 1 && (here - best).abs() < 1e-12 { "best" } else { "" };
            let spread = match (finals.len(), last.interval_at(*k)) {
                (1, Some([low, high])) => format!("{} to {}", points(low), points(high)),
                (1, None) => String::new(),
                (n, _) => {
                    let squares: f64 = finals.iter().map(|v| (v - here).powi(2)).sum();
                    format!("\u{b1} {}", points((squares / (n - 1) as f64).sqrt()))
                }
            };
            let _ = write!(html, "<td class=\"{class}\">{}<small>{spread}</small></td>", points(here));
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div>");
    let spread = if groups.iter().any(|g| g.runs.len() > 1) {
        "mean and standard deviation over seeds"
    } else {
        "95 % interval over problems"
    };
    let _ = write!(
        html,
        "<p><small>Percent; below each value the {spread}.{}</small></p>",
        if groups.len() > 1 { " Bold: best of the column." } else { "" }
    );
    html
}

fn points(fraction: f64) -> String {
    format!("{:.1}", 100.0 * fraction).replace('-', "\u{2212}")
}

/// What sets a group apart from the others.
fn chips(runs: &[Run], groups: &[Group], group: &Group) -> String {
    let firsts: Vec<&Run> = groups.iter().map(|g| &runs[g.runs[0]]).collect();
    let differing = super::configuration::differing(&firsts);
    let run = &runs[group.runs[0]];
    let mut html = String::new();
    for key in differing.iter().filter(|k| is_setting(k)).take(6) {
        let short = key.rsplit('.').next().unwrap_or(key);
        let _ = write!(
            html,
            "<span class=\"chip\">{} {}</span>",
            escape(short),
            escape(run.setting(key).unwrap_or("\u{2013}"))
        );
    }
    html
}

/// pass@k of each problem at one evaluation of each run, meaned over a group's seeds; none for a problem that one run
/// has too few scored samples of.
fn per_problem<'a>(
    runs: &'a [Run],
    group: &Group,
    k: usize,
    which: impl Fn(&'a Run) -> Option<&'a Eval>,
) -> Option<Vec<Option<f64>>> {
    let evals: Vec<&Eval> = group.runs.iter().map(|&i| which(&runs[i])).collect::<Option<_>>()?;
    let values: Vec<Vec<Option<f64>>> = evals.iter().map(|e| e.problems_at(k)).collect::<Option<_>>()?;
    let count = values[0].len();
    if values.iter().any(|v| v.len() != count) {
        return None;
    }
    let mean = |p: usize| Some(values.iter().map(|v| v[p]).sum::<Option<f64>>()? / values.len() as f64);
    Some((0..count).map(mean).collect())
}

/// A mean difference with its 95 % interval over problems.
#[derive(Debug, Clone, Copy)]
pub(super) struct Difference {
    mean: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Difference {
    /// "3.1 points higher (95 % interval +1.0 to +5.2, beyond chance)".
    fn words(self) -> String {
        let direction = if self.mean >= 0.0 { "higher" } else { "lower" };
        let chance = if self.low > 0.0 || self.high < 0.0 { "beyond chance" } else { "within chance" };
        format!(
            "{} points {direction} (95 % interval {} to {}, {chance})",
            points(self.mean.abs()),
            signed(self.low),
            signed(self.high)
        )
    }
}

/// `b - a`, paired by problem, over the problems that both have. The caller knows that the problems are the same:
/// evaluations of one set are (see `input::tell_sets_apart`).
pub(super) fn paired(a: Option<Vec<Option<f64>>>, b: Option<Vec<Option<f64>>>) -> Option<Difference> {
    let (a, b) = a.zip(b).filter(|(a, b)| a.len() == b.len())?;
    let difference: Vec<f64> = b.iter().zip(&a).filter_map(|(b, a)| Some((*b)? - (*a)?)).collect();
    let (mean, [low, high]) = change(&[difference])?;
    Some(Difference { mean, low, high })
}

/// Each group's change since its first evaluation, and its difference to the first group.
fn differences(runs: &[Run], groups: &[Group], set: &str) -> String {
    let ks = shown_ks(&shared_ks(runs, set));
    let first = |run: &'_ Run| -> Option<usize> { run.evals_of(set).next().map(|e| e.step as usize) };
    let moved = |run: &Run| run.evals_of(set).count() > 1;
    let start =
        |group: &Group, k| per_problem(runs, group, k, |r| r.evals_of(set).next().filter(|_| moved(r)));
    let end = |group: &Group, k| per_problem(runs, group, k, |r| r.evals_of(set).next_back());
    let change = rows(groups, &ks, |g, k| paired(start(g, k), end(g, k)));
    let mut html = String::new();
    let step = runs.iter().find_map(first).unwrap_or(0);
    html.push_str(&difference_table(&format!("Change since step {step}"), &ks, &change));
    if let [base, others @ ..] = groups {
        let rows = rows(others, &ks, |g, k| paired(end(base, k), end(g, k)));
        html.push_str(&difference_table(&format!("Difference to {}", base.name), &ks, &rows));
    }
    if !html.is_empty() {
        let _ = write!(
            html,
            "<p><small>Percentage points; 95 % interval of a paired bootstrap over problems ({RESAMPLES} resamples). \
             Bold and coloured: the interval excludes 0. It covers the choice of problems, not the choice of seed.</small></p>"
        );
    }
    html
}

fn rows(groups: &[Group], ks: &[usize], difference: impl Fn(&Group, usize) -> Option<Difference>) -> String {
    let mut rows = String::new();
    for group in groups {
        let cells: Vec<Option<Difference>> = ks.iter().map(|&k| difference(group, k)).collect();
        if cells.iter().all(Option::is_none) {
            continue;
        }
        let _ = write!(
            rows,
            "<tr class=\"g{}\"><td><span class=\"{}\"><i class=\"key\"></i></span>{}</td>",
            group.colour,
            group.key(),
            escape(&group.name)
        );
        for cell in cells {
            let Some(d) = cell else {
                rows.push_str("<td>\u{2013}</td>");
                continue;
            };
            let class = if d.low > 0.0 {
                "up best"
            } else if d.high < 0.0 {
                "down best"
            } else {
                ""
            };
            let _ = write!(
                rows,
                "<td class=\"{class}\">{}<small>{} to {}</small></td>",
                signed(d.mean),
                signed(d.low),
                signed(d.high)
            );
        }
        rows.push_str("</tr>");
    }
    rows
}

fn difference_table(title: &str, ks: &[usize], rows: &str) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut html =
        format!("<h3>{}</h3><div class=\"card scroll\"><table><thead><tr><th>run</th>", escape(title));
    for k in ks {
        let _ = write!(html, "<th>pass@{k}</th>");
    }
    let _ = write!(html, "</tr></thead><tbody>{rows}</tbody></table></div>");
    html
}

/// Percentage points with their sign.
fn signed(fraction: f64) -> String {
    let text = points(fraction);
    if fraction > 0.0 && text != "0.0" { format!("+{text}") } else { text }
}
