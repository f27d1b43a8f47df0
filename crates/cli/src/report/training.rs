//! Plots of the training metrics at each step.

use super::input::{Metrics, Run, Sft};
use super::runs::{Group, Runs};
use crate::chart::page::{Labels, Lines, Part, Plot as Chart, heat, stack};
use crate::output::format::{number, percent};
use fgrpo_eval::figure::{Colour, Curve, Notation, Scale};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of groups of runs that get a separate heat map and stacked chart.
const SINGLE: usize = 6;

/// Data of `training.html`.
#[derive(Debug, Serialize)]
pub(super) struct Training {
    plots: Vec<Chart>,
    /// Distributions, with a plot for each group if several groups are compared.
    distributions: Vec<Distribution>,
    /// Quantities that are 0 up to rounding, each with its largest magnitude.
    rounding: Vec<String>,
    /// Quantities that never change, with their value.
    constant: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Distribution {
    title: &'static str,
    plots: Vec<Chart>,
}

type Field = fn(&Metrics) -> Option<f64>;

/// A plot of one quantity.
struct Plot {
    title: &'static str,
    note: &'static str,
    /// Name of the vertical axis.
    y: &'static str,
    format: Notation,
    /// Values that the vertical axis always includes.
    show: &'static [f64],
    /// Maximum magnitude of rounding errors. Smaller quantities are mentioned in a sentence instead of a plot.
    rounding: f64,
    field: Field,
}

const fn plot(title: &'static str, note: &'static str, y: &'static str, field: Field) -> Plot {
    Plot { title, note, y, format: Notation::Number, show: &[0.0], rounding: 0.0, field }
}

const PLOTS: [Plot; 13] = [
    Plot {
        format: Notation::Percent,
        ..plot(
            "Active groups",
            "Groups whose rewards differ. With most estimators the others give no gradient.",
            "share of groups",
            |m| m.active_fraction.0,
        )
    },
    Plot {
        show: &[1.0],
        ..plot("Focal weight", "Mean over active groups; 1 without focal weighting.", "mean weight", |m| {
            m.focal_weight_mean.0
        })
    },
    plot("Advantage", "Mean size over completions, focal weight included.", "mean |advantage|", |m| {
        m.advantage_abs_mean.0
    }),
    plot("Entropy", "Mean per token of the policy that sampled.", "nats", |m| m.entropy.0),
    Plot {
        format: Notation::Percent,
        ..plot("Distinct completions", "Different completions among all of a step.", "share", |m| {
            m.distinct_fraction.0
        })
    },
    Plot { show: &[], ..plot("Gradient norm", "Before clipping.", "norm", |m| m.gradient_norm.0) },
    plot("Policy loss", "After aggregation, without entropy and KL terms.", "loss", |m| m.policy_loss.0),
    Plot {
        show: &[],
        rounding: 1e-5,
        ..plot(
            "KL to the sampling policy",
            "How far the updates of a step moved the policy that sampled it.",
            "nats per token",
            |m| m.kl_to_sampler.0,
        )
    },
    Plot {
        show: &[],
        rounding: 1e-3,
        ..plot(
            "Largest importance ratio minus 1",
            "0 up to rounding on the first update.",
            "ratio \u{2212} 1",
            |m| m.ratio_max.0.map(|r| r - 1.0),
        )
    },
    Plot {
        show: &[],
        rounding: 1e-3,
        ..plot(
            "Sampler against learner",
            "Largest |logp \u{2212} old_logp| on the first update: the weights are the same, so only rounding is left.",
            "nats",
            |m| m.logp_difference_max.0,
        )
    },
    Plot {
        format: Notation::Percent,
        ..plot("Truncated completions", "Stopped by the length limit.", "share", |m| m.truncated_fraction.0)
    },
    plot("Turns", "Mean number of the policy's turns in an episode.", "turns", |m| m.turns_mean?.0),
    plot("Learning rate", "", "lr", |m| m.lr.0),
];

/// Returns the section, or `None` if no run has RL steps or supervised steps.
pub(super) fn section(runs: &Runs) -> Option<Training> {
    let mut plots: Vec<Chart> = reward(runs).into_iter().collect();
    let (mut rounding, mut constant): (Vec<String>, Vec<String>) = Default::default();
    for plot in &PLOTS {
        let values = || runs.all.iter().flat_map(|r| &r.files.metrics).map(plot.field);
        let largest = values().flatten().filter(|v| v.is_finite()).map(f64::abs).fold(0.0, f64::max);
        let first = values().flatten().next();
        if let Some(value) =
            first.filter(|&v| v != 0.0 && values().count() > 1 && values().flatten().all(|other| other == v))
        {
            let value = if plot.format == Notation::Percent { percent(value) } else { number(value) };
            constant.push(format!("{} ({value})", plot.title));
            continue;
        }
        // A quantity that is always zero isn't plotted.
        if largest > plot.rounding || matches!(plot.title, "Active groups" | "Entropy") {
            plots.extend(line(runs, plot));
        } else if largest > 0.0 {
            rounding.push(format!("{} (at most {})", plot.title, number(largest)));
        }
    }
    plots.extend([clipping(runs), length(runs), demonstrations(runs)].into_iter().flatten());
    let mut distributions = Vec::new();
    for (title, draw) in [
        ("Success rates of groups", success_rates as fn(&Run, &Group, &str) -> Option<Chart>),
        ("Verdicts by reason", reasons),
    ] {
        let chart = |g: &Group| draw(runs.first(g), g, if runs.several() { &g.name } else { title });
        let charts: Vec<Chart> = runs.groups.iter().take(SINGLE).filter_map(chart).collect();
        // The distributions of a single group are shown with its other plots. Those of several groups have separate
        // rows.
        if !runs.several() {
            plots.extend(charts);
        } else if !charts.is_empty() {
            distributions.push(Distribution { title, plots: charts });
        }
    }
    let any = !plots.is_empty() || !distributions.is_empty();
    any.then_some(Training { plots, distributions, rounding, constant })
}

fn points(run: &Run, field: Field) -> Vec<(f64, f64)> {
    let all: Vec<_> =
        run.files.metrics.iter().map(|m| (m.step as f64, field(m).unwrap_or(f64::NAN))).collect();
    if all.iter().all(|p| p.1.is_nan()) { Vec::new() } else { all }
}

fn line(runs: &Runs, plot: &Plot) -> Option<Chart> {
    let curves = runs.curves(|run| points(run, plot.field));
    let values = || curves.iter().flat_map(|c| &c.points).map(|p| p.1).filter(|v| v.is_finite());
    let smallest = values().fold(f64::INFINITY, f64::min);
    let widest = values().fold(0.0, f64::max) / smallest;
    // Spikes of a norm or a KL flatten all other values on a linear axis.
    let log = plot.show.is_empty() && smallest > 0.0 && widest > 50.0;
    let labels = Labels::new(plot.title, plot.note, "step", plot.y);
    let y = if log { Scale::Log10 } else { Scale::Linear };
    Lines { labels, curves, y, format: plot.format, show: plot.show.to_vec(), ..Lines::default() }.draw()
}

/// Returns the window of the smoothed reward in steps, for a run of `steps` steps: a tenth of them, and at most 25.
fn window(steps: usize) -> usize {
    2 * (steps / 20).min(12) + 1
}

/// Averages the points around each point, without the lag of a trailing mean. Gaps are skipped.
fn around(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let half = window(points.len()) / 2;
    let finite: Vec<(f64, f64)> = points.iter().copied().filter(|p| p.1.is_finite()).collect();
    let mean = |i: usize| {
        // The window is symmetric and narrower at the ends.
        let half = half.min(i).min(finite.len() - 1 - i);
        let part = &finite[i - half..=i + half];
        (finite[i].0, part.iter().map(|p| p.1).sum::<f64>() / part.len() as f64)
    };
    (0..finite.len()).map(mean).collect()
}

fn reward(runs: &Runs) -> Option<Chart> {
    let width = runs.all.iter().map(|run| window(run.files.metrics.len())).max().unwrap_or(1);
    let mut curves = runs.curves(|run| around(&points(run, |m| m.reward_mean.0)));
    for group in runs.groups.iter().filter(|g| g.runs.len() == 1 && width > 1) {
        let raw = points(runs.first(group), |m| m.reward_mean.0);
        let name = format!("{} raw", group.name);
        curves.push(Curve { faint: true, ..Curve::new(name, group.colour(), raw) });
    }
    let note = match width {
        1 => "Mean of a step's completions.".to_owned(),
        _ => format!("Mean of a step's completions: raw, and the mean of up to {width} steps around each."),
    };
    let labels = Labels::new("Reward", note, "step", "mean reward");
    Lines { labels, curves, ..Lines::default() }.draw()
}

/// Plots two quantities for each group of runs, one solid and one dashed.
fn pair(
    runs: &Runs,
    labels: Labels,
    format: Notation,
    (solid, solid_name): (Field, &str),
    (dashed, dashed_name): (Field, &str),
) -> Option<Chart> {
    let mut curves = runs.curves(|run| points(run, solid));
    for curve in &mut curves {
        curve.name = curve.name.as_ref().map(|name| format!("{name} {solid_name}"));
    }
    curves.extend(second(runs.curves(|run| points(run, dashed)), dashed_name));
    Lines { labels, curves, format, show: vec![0.0], ..Lines::default() }.draw()
}

/// Makes the main curves dashed, and appends `what` to their names.
fn second(curves: Vec<Curve>, what: &str) -> impl Iterator<Item = Curve> {
    let suffix = move |name: String| format!("{name} {what}");
    curves.into_iter().filter(|c| !c.faint).map(move |c| Curve {
        dashed: true,
        name: c.name.map(suffix),
        ..c
    })
}

fn clipping(runs: &Runs) -> Option<Chart> {
    let clipped = |m: &Metrics| {
        m.clip_fraction_low.0.unwrap_or(0.0) > 0.0 || m.clip_fraction_high.0.unwrap_or(0.0) > 0.0
    };
    let labels =
        Labels::new("Clipped tokens", "Solid: upper clip; dashed: lower clip.", "step", "share of tokens");
    let (high, low): (Field, Field) = (|m| m.clip_fraction_high.0, |m| m.clip_fraction_low.0);
    let any = runs.all.iter().flat_map(|r| &r.files.metrics).any(clipped);
    any.then(|| pair(runs, labels, Notation::Percent, (high, "upper"), (low, "lower")))?
}

fn length(runs: &Runs) -> Option<Chart> {
    let labels = Labels::new("Completion length", "Solid: mean; dashed: longest.", "step", "tokens");
    let (mean, longest): (Field, Field) =
        (|m| m.completion_length_mean.0, |m| Some(m.completion_length_max as f64));
    pair(runs, labels, Notation::Number, (mean, "mean"), (longest, "longest"))
}

fn demonstrations(runs: &Runs) -> Option<Chart> {
    let loss_curves = |loss: fn(&Sft) -> Option<f64>| {
        runs.curves(|run| run.files.sft.iter().filter_map(|s| Some((s.step as f64, loss(s)?))).collect())
    };
    let mut curves = loss_curves(|s| s.loss.0);
    let held_out = loss_curves(|s| s.held_out_loss);
    let mut note = "Loss per completion token.".to_owned();
    if !held_out.is_empty() {
        note.push_str(" Dashed: the same of held-out demonstrations.");
    }
    curves.extend(second(held_out, "held-out"));
    let positive = curves.iter().flat_map(|c| &c.points).all(|p| p.1 > 0.0);
    let y = if positive { Scale::Log10 } else { Scale::Linear };
    Lines {
        labels: Labels::new("Demonstrations (SFT)", note, "SFT step", "loss"),
        curves,
        y,
        ..Lines::default()
    }
    .draw()
}

fn success_rates(run: &Run, group: &Group, title: &str) -> Option<Chart> {
    let histograms = run.files.metrics.iter().filter(|m| !m.success_rate_histogram.is_empty());
    let rows: Vec<(f64, &[u64])> =
        histograms.map(|m| (m.step as f64, &m.success_rate_histogram[..])).collect();
    let note =
        "Each column is one stretch of steps; darker: more groups with that share of correct completions.";
    let labels = Labels::new(title, note, "step", "correct completions of a group");
    Some(heat(labels, group.colour(), &rows)?.of_group(group.colour))
}

fn reasons(run: &Run, group: &Group, title: &str) -> Option<Chart> {
    let count = |counts: &BTreeMap<String, u64>, name: &str| counts.get(name).copied().unwrap_or(0) as f64;
    // Older files don't tell which reasons correct completions had, except the reason "correct".
    let known = |m: &Metrics| !m.correct_reasons.is_empty() || count(&m.verdicts, "correct") == 0.0;
    let known = run.files.metrics.iter().all(known);
    let value = |m: &Metrics, name: &str| match name {
        "correct" if known => count(&m.verdicts, name),
        _ => count(&m.reasons, name) - count(&m.correct_reasons, name),
    };
    let mut totals: BTreeMap<&str, f64> = BTreeMap::new();
    for m in &run.files.metrics {
        for name in m.reasons.keys().map(String::as_str).chain(["correct"]).collect::<BTreeSet<_>>() {
            *totals.entry(name).or_default() += value(m, name);
        }
    }
    let mut names: Vec<&str> = totals.iter().filter(|t| *t.1 > 0.0).map(|t| *t.0).collect();
    // "correct" is at the bottom, so that its share can be read off the axis.
    names.sort_by(|a, b| (*b == "correct").cmp(&(*a == "correct")).then(totals[b].total_cmp(&totals[a])));
    let (top, rest) = names.split_at(names.len().min(7));
    let mut parts: Vec<Part> = top
        .iter()
        .enumerate()
        .map(|(i, name)| Part {
            name: match *name {
                "correct" => "correct".to_owned(),
                // The name "exact" alone would suggest a correct completion.
                other if known => format!("not correct: {}", other.replace('_', " ")),
                other => format!("reason: {}", other.replace('_', " ")),
            },
            colour: match *name {
                "correct" => Colour::Series(2),
                // Green is reserved for correct completions.
                _ => Colour::Series([1, 3, 4, 5, 6, 0, 7][i % 7]),
            },
            values: run.files.metrics.iter().map(|m| value(m, name)).collect(),
        })
        .collect();
    if !rest.is_empty() {
        let values = run.files.metrics.iter().map(|m| rest.iter().map(|n| value(m, n)).sum()).collect();
        parts.push(Part { name: "other".into(), colour: Colour::Muted, values });
    }
    let steps: Vec<f64> = run.files.metrics.iter().map(|m| m.step as f64).collect();
    let labels = Labels::new(title, "", "step", "share of completions");
    Some(stack(labels, &steps, &parts, true)?.of_group(group.colour))
}
