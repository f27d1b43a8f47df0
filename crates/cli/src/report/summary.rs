//! The first thing on the page: final pass@k of every run, differences, and findings.

use super::chart::{Format, number};
use super::findings;
use super::input::{Eval, Run};
use super::page::{Group, escape, groups};
use fgrpo_core::rng::Key;
use fgrpo_core::stats::bootstrap::{Simulated, resampled_mean};
use fgrpo_core::stats::pass_at_k::mean_pass_at_k;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Resamples of the problems behind an interval of a difference.
const RESAMPLES: u64 = 4_000;

/// The section.
pub(super) fn section(runs: &[Run]) -> String {
    let groups = groups(runs);
    let mut html = String::new();
    if let [run] = runs {
        html.push_str(&tiles(run));
    }
    for set in sets(runs) {
        html.push_str(&table(runs, &groups, set));
        html.push_str(&differences(runs, &groups, set));
    }
    let mut list = String::new();
    for run in runs {
        for finding in findings::of(run) {
            let class = if finding.worry { "" } else { " class=\"fine\"" };
            let who = if runs.len() > 1 { format!("<b>{}</b> ", escape(&run.name)) } else { String::new() };
            let _ = write!(list, "<li{class}>{who}{}</li>", escape(&finding.text));
        }
    }
    if !list.is_empty() {
        let _ = write!(html, "<ul class=\"findings\">{list}</ul>");
    }
    html
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
    let seconds = super::timing::total_seconds(run);
    if seconds > 0.0 {
        tiles.push((super::timing::duration(seconds), "in RL steps".into()));
    }
    let mut html = String::new();
    if let Some(method) = run.method() {
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
            "<tr class=\"g{}\"><td><span class=\"c{}\"><i class=\"key\"></i></span>{}<small>{}</small></td><td>{}</td>",
            group.colour,
            group.colour % 8,
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
    for key in differing.iter().filter(|k| !k.ends_with("seed") && *k != "out").take(6) {
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

/// pass@k of each problem, meaned over a group's seeds.
fn per_problem(runs: &[Run], group: &Group, set: &str, k: usize) -> Option<Vec<f64>> {
    let mut sum: Vec<f64> = Vec::new();
    for &i in &group.runs {
        let eval = runs[i].evals_of(set).next_back()?;
        let values: Vec<f64> = eval
            .per_problem
            .iter()
            .map(|&c| mean_pass_at_k(&[(eval.samples, c.min(eval.samples))], k))
            .collect::<Option<_>>()?;
        if sum.is_empty() {
            sum = vec![0.0; values.len()];
        }
        if values.is_empty() || values.len() != sum.len() {
            return None;
        }
        sum.iter_mut().zip(values).for_each(|(s, v)| *s += v / group.runs.len() as f64);
    }
    Some(sum)
}

/// Differences of every group to the first, paired by problem.
fn differences(runs: &[Run], groups: &[Group], set: &str) -> String {
    let ks = shown_ks(&shared_ks(runs, set));
    let [base, others @ ..] = groups else { return String::new() };
    let mut rows = String::new();
    for group in others {
        let mut cells = String::new();
        for &k in &ks {
            let pair = per_problem(runs, base, set, k).zip(per_problem(runs, group, set, k));
            let Some((a, b)) = pair.filter(|(a, b)| a.len() == b.len()) else {
                cells.push_str("<td>\u{2013}</td>");
                continue;
            };
            let difference: Vec<f64> = b.iter().zip(&a).map(|(b, a)| b - a).collect();
            let key = Key::new(k as u64);
            let drawn = Simulated::new((0..RESAMPLES).map(|i| resampled_mean(&difference, key, i)).collect());
            let (low, high) = drawn.interval(0.95);
            let class = if low > 0.0 {
                "up best"
            } else if high < 0.0 {
                "down best"
            } else {
                ""
            };
            let sign = |x: f64| if x > 0.0 { format!("+{}", points(x)) } else { points(x) };
            let _ = write!(
                cells,
                "<td class=\"{class}\">{}<small>{} to {}</small></td>",
                sign(mean(&difference)),
                sign(low),
                sign(high)
            );
        }
        let _ = write!(
            rows,
            "<tr class=\"g{}\"><td><span class=\"c{}\"><i class=\"key\"></i></span>{}</td>{cells}</tr>",
            group.colour,
            group.colour % 8,
            escape(&group.name)
        );
    }
    if rows.is_empty() || !rows.contains("<small>") {
        return String::new();
    }
    let mut html = format!(
        "<h3>Difference to {}</h3><div class=\"card scroll\"><table><thead><tr><th>run</th>",
        escape(&base.name)
    );
    for k in &ks {
        let _ = write!(html, "<th>pass@{k}</th>");
    }
    let _ = write!(
        html,
        "</tr></thead><tbody>{rows}</tbody></table></div><p><small>Percentage points; 95 % interval of a paired bootstrap over problems ({RESAMPLES} resamples). \
         Bold and coloured: the interval excludes 0. It covers the choice of problems, not the choice of seed.</small></p>"
    );
    html
}
