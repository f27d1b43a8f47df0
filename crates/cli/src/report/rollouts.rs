//! Sampled completions worth reading: that is where reward hacking is found.

use super::chart::number;
use super::input::Run;
use super::mazes::{called, drawing, maze_of, said};
use super::page::{Group, escape, groups};
use fgrpo_core::maze::tokens;
use fgrpo_train::run::rollouts::RolloutLine;
use fgrpo_verify::verdict::Verdict;
use std::cmp::Ordering;
use std::fmt::Write;

/// Completions shown of each kind.
const SHOWN: usize = 4;

/// Runs shown.
const SINGLE: usize = 4;

/// (title, note, which, how they compare: the first is shown first)
type Kind =
    (&'static str, &'static str, fn(&RolloutLine) -> bool, fn(&RolloutLine, &RolloutLine) -> Ordering);

const KINDS: [Kind; 4] = [
    (
        "Best",
        "Highest reward, then largest advantage.",
        |r| r.reward.is_some(),
        |a, b| descending(a.reward, b.reward).then(descending(a.advantage, b.advantage)),
    ),
    (
        "Worst",
        "Lowest reward, then most negative advantage.",
        |r| r.reward.is_some(),
        |a, b| descending(b.reward, a.reward).then(descending(b.advantage, a.advantage)),
    ),
    (
        "Most surprising: correct and unlikely",
        "Correct completions that the policy thought least likely, per token.",
        |r| r.is_correct() && r.old_logp_mean.is_some(),
        |a, b| descending(b.old_logp_mean, a.old_logp_mean),
    ),
    (
        "Most surprising: wrong and likely",
        "Completions not counted as correct that the policy was surest of: its habits, and the verifier's errors.",
        |r| !r.is_correct() && r.old_logp_mean.is_some(),
        |a, b| descending(a.old_logp_mean, b.old_logp_mean),
    ),
];

fn descending(a: Option<f64>, b: Option<f64>) -> Ordering {
    b.unwrap_or(f64::NEG_INFINITY).total_cmp(&a.unwrap_or(f64::NEG_INFINITY))
}

/// The section; empty when no run kept completions.
pub(super) fn section(runs: &[Run]) -> String {
    let groups = groups(runs);
    let mut html = String::new();
    for group in groups.iter().take(SINGLE) {
        let run = &runs[group.runs[0]];
        // Evaluated mazes are drawn in a section of their own.
        let examples: Vec<&RolloutLine> = run.examples.iter().filter(|e| maze_of(run, e).is_none()).collect();
        if run.rollouts.is_empty() && examples.is_empty() {
            continue;
        }
        let from = recent_from(run);
        let _ = write!(html, "<div class=\"g{}\">", group.colour);
        if groups.len() > 1 {
            let _ = write!(html, "<h3>{}</h3>", escape(&run.name));
        }
        if !run.rollouts.is_empty() {
            let recent = run.rollouts.iter().filter(|r| r.step >= from).count();
            let _ = write!(
                html,
                "<p class=\"soft\">From the {recent} completions kept of steps {from} and later.</p>"
            );
            for kind in &KINDS {
                html.push_str(&of_kind(run, group, from, kind, groups.len() <= 2));
            }
        }
        if !examples.is_empty() {
            html.push_str(
                "<details><summary><b>From the last evaluation</b></summary><div class=\"rollouts\">",
            );
            html.extend(examples.into_iter().map(|e| card(run, group, e)));
            html.push_str("</div></details>");
        }
        html.push_str("</div>");
    }
    let left = groups.len().saturating_sub(SINGLE);
    if left > 0 && !html.is_empty() {
        let _ = write!(html, "<p class=\"soft\">{left} more runs are left out here.</p>");
    }
    html
}

/// The step from which the last third of the kept completions begins.
fn recent_from(run: &Run) -> u64 {
    let (first, last) = run.rollouts.iter().fold((u64::MAX, 0), |(a, b), r| (a.min(r.step), b.max(r.step)));
    last - last.saturating_sub(first) / 3
}

fn of_kind(run: &Run, group: &Group, from: u64, kind: &Kind, open: bool) -> String {
    let (title, note, which, compare) = *kind;
    let mut found: Vec<&RolloutLine> = run.rollouts.iter().filter(|r| r.step >= from && which(r)).collect();
    found.sort_by(|a, b| compare(a, b));
    let mut shown: Vec<&RolloutLine> = Vec::new();
    for rollout in found {
        // The same answer to the same prompt teaches the reader nothing twice.
        if !shown.iter().any(|s| s.prompt_id == rollout.prompt_id) {
            shown.push(rollout);
        }
        if shown.len() == SHOWN {
            break;
        }
    }
    if shown.is_empty() {
        return String::new();
    }
    let open = if open { " open" } else { "" };
    let mut html = format!(
        "<details{open}><summary><b>{title}</b> <small>{note}</small></summary><div class=\"rollouts\">"
    );
    for rollout in shown {
        html.push_str(&card(run, group, rollout));
    }
    html + "</div></details>"
}

fn card(run: &Run, group: &Group, rollout: &RolloutLine) -> String {
    let fact = |name: &str, value: Option<f64>| {
        value.map_or_else(String::new, |v| format!("<span>{name} <b>{}</b></span>", number(v)))
    };
    let class = match rollout.verdict {
        Verdict::Correct => "good",
        Verdict::Unscorable => "muted",
        Verdict::Wrong | Verdict::Unparsed => "bad",
    };
    let maze = maze_of(run, rollout);
    let mut html = format!(
        "<article class=\"card rollout\"><div class=\"facts\"><span class=\"verdict {class}\">{}</span>{}{}{}{}{}<span>step {}</span><span>{}</span></div>",
        escape(rollout.verdict.name()),
        if rollout.reason.is_empty() || rollout.reason == rollout.verdict.name() {
            String::new()
        } else {
            format!("<span>{}</span>", escape(&said(rollout)))
        },
        fact("reward", rollout.reward),
        fact("advantage", rollout.advantage),
        fact("mean logp", rollout.old_logp_mean),
        fact("tokens", rollout.length.map(|l| l as f64)),
        rollout.step,
        escape(&if maze.is_some() {
            format!("maze {}", called(rollout))
        } else {
            format!("prompt {}", rollout.prompt_id)
        }),
    );
    html.push_str("<div>");
    let _ = write!(html, "<pre>{}</pre>", escape(&rollout.completion));
    if let Some(target) = &rollout.target {
        let _ = write!(
            html,
            "<details><summary><small>target</small></summary><pre>{}</pre></details>",
            escape(target)
        );
    }
    if !rollout.prompt.is_empty() {
        let _ = write!(
            html,
            "<details><summary><small>prompt</small></summary><pre>{}</pre></details>",
            escape(&rollout.prompt)
        );
    }
    html.push_str("</div>");
    if let Some(maze) = maze {
        let moves = tokens::moves(&tokens::read(&rollout.completion));
        let _ = write!(html, "<div class=\"maze {}\">{}</div>", group.key(), drawing(&maze, &moves));
    }
    html + "</article>"
}
