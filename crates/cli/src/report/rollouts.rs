//! Chooses sampled completions that are worth reading, for example to detect reward hacking.

use super::card::Card;
use super::input::Run;
use super::maze::drawing;
use super::mazes::{maze_of, name, verdict_or_reason};
use super::runs::{Group, Runs};
use fgrpo_core::maze::tokens;
use fgrpo_train::run::rollouts::RolloutLine;
use serde::Serialize;
use std::cmp::Ordering;

const SHOWN: usize = 4;

const SINGLE: usize = 4;

/// Title, note, filter and order of a kind of completions.
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
        "Correct completions that the policy found least likely, per token.",
        |r| r.is_correct() && r.old_logp_mean.is_some(),
        |a, b| descending(b.old_logp_mean, a.old_logp_mean),
    ),
    (
        "Most surprising: wrong and likely",
        "Completions not graded correct that the policy found most likely: its habits, or errors of the verifier.",
        |r| !r.is_correct() && r.old_logp_mean.is_some(),
        |a, b| descending(a.old_logp_mean, b.old_logp_mean),
    ),
];

fn descending(a: Option<f64>, b: Option<f64>) -> Ordering {
    b.unwrap_or(f64::NEG_INFINITY).total_cmp(&a.unwrap_or(f64::NEG_INFINITY))
}

/// Data of `rollouts.html`.
#[derive(Debug, Serialize)]
pub(super) struct Rollouts<'a> {
    groups: Vec<OfGroup<'a>>,
    several: bool,
    /// Number of groups that aren't shown.
    left_out: usize,
}

/// Shown completions of a group of runs, all from the group's first run.
#[derive(Debug, Serialize)]
struct OfGroup<'a> {
    group: &'a Group,
    run: &'a str,
    /// First step of the completions below.
    from: u64,
    /// Number of stored completions from that step on.
    recent: usize,
    kinds: Vec<Shown>,
    /// Completions of the last evaluation.
    examples: Vec<Card>,
}

/// Completions of one kind.
#[derive(Debug, Serialize)]
struct Shown {
    title: &'static str,
    note: &'static str,
    open: bool,
    cards: Vec<Card>,
}

/// Returns the section, or `None` if no run stored completions.
pub(super) fn section(runs: &Runs) -> Option<Rollouts<'_>> {
    let groups: Vec<OfGroup<'_>> =
        runs.groups.iter().take(SINGLE).filter_map(|g| of_group(runs, g)).collect();
    let left_out = runs.groups.len().saturating_sub(SINGLE);
    (!groups.is_empty()).then_some(Rollouts { groups, several: runs.several(), left_out })
}

fn of_group<'a>(runs: &'a Runs, group: &'a Group) -> Option<OfGroup<'a>> {
    let run = runs.first(group);
    let from = recent_from(run);
    let recent: Vec<&RolloutLine> = run.rollouts.iter().filter(|r| r.step >= from).collect();
    // Mazes have a separate section.
    let examples = run.examples.iter().filter(|e| maze_of(run, e).is_none());
    // A completion of several kinds is shown once.
    let mut selection: Vec<&RolloutLine> = Vec::new();
    let mut pick = |kind: &Kind| {
        let rollouts = of_kind(&recent, &selection, kind);
        selection.extend(&rollouts);
        rollouts
    };
    let of_group = OfGroup {
        group,
        run: &run.name,
        from,
        recent: recent.len(),
        kinds: KINDS
            .iter()
            .map(|kind| Shown {
                title: kind.0,
                note: kind.1,
                open: runs.groups.len() <= 2,
                cards: pick(kind).into_iter().map(|r| card(run, group, r)).collect(),
            })
            .filter(|kind| !kind.cards.is_empty())
            .collect(),
        examples: examples.map(|e| card(run, group, e)).collect(),
    };
    (of_group.recent > 0 || !of_group.examples.is_empty()).then_some(of_group)
}

/// Returns the step at which the last third of the recorded steps begins.
fn recent_from(run: &Run) -> u64 {
    let (first, last) = run.rollouts.iter().fold((u64::MAX, 0), |(a, b), r| (a.min(r.step), b.max(r.step)));
    last - last.saturating_sub(first) / 3
}

/// Returns the first completions of a kind that aren't in `before`, at most one for each prompt.
fn of_kind<'a>(
    recent: &[&'a RolloutLine],
    before: &[&RolloutLine],
    &(_, _, which, compare): &Kind,
) -> Vec<&'a RolloutLine> {
    let is_new = |r: &RolloutLine| !before.iter().any(|other| std::ptr::eq(*other, r));
    let mut matches: Vec<&RolloutLine> = recent.iter().copied().filter(|r| which(r) && is_new(r)).collect();
    matches.sort_by(|a, b| compare(a, b));
    let mut selection: Vec<&RolloutLine> = Vec::new();
    for rollout in matches {
        if selection.len() < SHOWN && !selection.iter().any(|s| s.prompt_id == rollout.prompt_id) {
            selection.push(rollout);
        }
    }
    selection
}

fn card(run: &Run, group: &Group, rollout: &RolloutLine) -> Card {
    let maze = maze_of(run, rollout);
    let picture = maze.as_ref().map(|m| drawing(m, &tokens::moves(&tokens::read(&rollout.completion))));
    let prompt = match maze {
        Some(_) => format!("maze {}", name(rollout)),
        None => format!("prompt {}", rollout.prompt_id),
    };
    let mut card = Card::new(rollout.verdict, &rollout.completion);
    if !["", rollout.verdict.name()].contains(&rollout.reason.as_str()) {
        card = card.fact(verdict_or_reason(rollout));
    }
    card.number("reward", rollout.reward)
        .number("advantage", rollout.advantage)
        .number("mean logp", rollout.old_logp_mean)
        .number("tokens", rollout.length.map(|l| l as f64))
        .fact(format!("step {}", rollout.step))
        .fact(prompt)
        .folded("target", rollout.target.as_deref().unwrap_or_default())
        .folded("prompt", &rollout.prompt)
        .maze(group, picture)
}
