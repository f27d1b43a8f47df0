//! What happened at each step.

use super::chart::lines::{Curve, Lines, Stroke};
use super::chart::{Format, Scale, Words, heat, number, stack};
use super::input::{Metrics, Run, Sft};
use super::page::{Group, curves, groups};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Weight of the newest value in the smoothed reward, as in the paper's plots.
const EMA: f64 = 0.08;

/// Heat maps and stacks are drawn for so many groups of runs.
const SINGLE: usize = 6;

type Field = fn(&Metrics) -> Option<f64>;

/// A plot of one quantity.
struct Plot {
    title: &'static str,
    note: &'static str,
    /// Name of the vertical axis.
    y: &'static str,
    format: Format,
    /// Values shown whatever the data.
    show: &'static [f64],
    /// Sizes up to this are rounding and told in a sentence, not drawn.
    rounding: f64,
    field: Field,
}

const PLOTS: [Plot; 12] = [
    Plot {
        title: "Active groups",
        note: "Groups with both correct and wrong completions: the ones that teach.",
        y: "share of groups",
        format: Format::Percent,
        show: &[0.0],
        rounding: 0.0,
        field: |m| m.active_fraction,
    },
    Plot {
        title: "Focal weight",
        note: "Mean over groups; 1 without focal weighting.",
        y: "mean weight",
        format: Format::Number,
        show: &[1.0],
        rounding: 0.0,
        field: |m| m.focal_weight_mean,
    },
    Plot {
        title: "Advantage",
        note: "Mean size over completions, focal weight included.",
        y: "mean |advantage|",
        format: Format::Number,
        show: &[0.0],
        rounding: 0.0,
        field: |m| m.advantage_abs_mean,
    },
    Plot {
        title: "Entropy",
        note: "Mean per token of the policy that sampled.",
        y: "nats",
        format: Format::Number,
        show: &[0.0],
        rounding: 0.0,
        field: |m| m.entropy,
    },
    Plot {
        title: "Distinct completions",
        note: "Different completions among all of a step.",
        y: "share",
        format: Format::Percent,
        show: &[0.0],
        rounding: 0.0,
        field: |m| m.distinct_fraction,
    },
    Plot {
        title: "Gradient norm",
        note: "Before clipping.",
        y: "norm",
        format: Format::Number,
        show: &[],
        rounding: 0.0,
        field: |m| m.gradient_norm,
    },
    Plot {
        title: "Policy loss",
        note: "After aggregation, without entropy and KL terms.",
        y: "loss",
        format: Format::Number,
        show: &[0.0],
        rounding: 0.0,
        field: |m| m.policy_loss,
    },
    Plot {
        title: "KL to the sampling policy",
        note: "How far the updates of a step moved the policy that sampled it.",
        y: "nats per token",
        format: Format::Number,
        show: &[],
        rounding: 1e-5,
        field: |m| m.kl_to_sampler,
    },
    Plot {
        title: "Largest importance ratio, less 1",
        note: "0, to rounding, on a first update.",
        y: "ratio \u{2212} 1",
        format: Format::Number,
        show: &[],
        rounding: 1e-3,
        field: |m| m.ratio_max.map(|r| r - 1.0),
    },
    Plot {
        title: "Sampler against learner",
        note: "Largest |logp \u{2212} old_logp| of a first update: the same weights, so rounding alone.",
        y: "nats",
        format: Format::Number,
        show: &[],
        rounding: 1e-3,
        field: |m| m.logp_difference_max,
    },
    Plot {
        title: "Truncated completions",
        note: "Stopped by the length limit.",
        y: "share",
        format: Format::Percent,
        show: &[0.0],
        rounding: 0.0,
        field: |m| m.truncated_fraction,
    },
    Plot {
        title: "Learning rate",
        note: "",
        y: "lr",
        format: Format::Number,
        show: &[0.0],
        rounding: 0.0,
        field: |m| m.lr,
    },
];

/// The section; empty without RL steps and demonstrations.
pub(super) fn section(runs: &[Run]) -> String {
    let groups = groups(runs);
    let mut html = String::from("<div class=\"grid2\">");
    let before = html.len();
    html.push_str(&reward(runs, &groups));
    let mut rounding: Vec<String> = Vec::new();
    for plot in &PLOTS {
        let values = || runs.iter().flat_map(|r| &r.metrics).filter_map(plot.field).filter(|v| v.is_finite());
        let largest = values().map(f64::abs).fold(0.0, f64::max);
        // Zero all the way is a fact, not a plot.
        if largest > plot.rounding || matches!(plot.title, "Active groups" | "Entropy") {
            html.push_str(&line(runs, &groups, plot));
        } else if largest > 0.0 {
            rounding.push(format!("{} (at most {})", plot.title, number(largest)));
        }
    }
    html.push_str(&clipping(runs, &groups));
    html.push_str(&length(runs, &groups));
    html.push_str(&demonstrations(runs, &groups));
    let distributions = [
        ("Success rates of groups", single(runs, &groups, success_rates)),
        ("Verdicts by reason", single(runs, &groups, reasons)),
    ];
    // One run's distributions stand among its other plots; those of several form rows of their own.
    if let [_] = groups.as_slice() {
        html.extend(distributions.iter().map(|d| d.1.as_str()));
    }
    let any = html.len() > before;
    html.push_str("</div>");
    if groups.len() > 1 {
        for (title, maps) in distributions.iter().filter(|d| !d.1.is_empty()) {
            let _ = write!(html, "<h3>{title}</h3><div class=\"grid2\">{maps}</div>");
        }
    }
    if !rounding.is_empty() {
        let _ = write!(html, "<p class=\"soft\">0 but for rounding: {}.</p>", rounding.join("; "));
    }
    if any { html } else { String::new() }
}

/// A plot per group, of its first run.
fn single(runs: &[Run], groups: &[Group], draw: fn(&Run, &Group, bool) -> String) -> String {
    groups.iter().take(SINGLE).map(|g| draw(&runs[g.runs[0]], g, groups.len() > 1)).collect()
}

fn points(run: &Run, field: Field) -> Vec<(f64, f64)> {
    let all: Vec<_> = run.metrics.iter().map(|m| (m.step as f64, field(m).unwrap_or(f64::NAN))).collect();
    if all.iter().all(|p| p.1.is_nan()) { Vec::new() } else { all }
}

fn line(runs: &[Run], groups: &[Group], plot: &Plot) -> String {
    let Plot { title, note, y, format, show, field, .. } = *plot;
    let curves = curves(runs, groups, |run| points(run, field));
    let values: Vec<f64> =
        curves.iter().flat_map(|c| &c.points).map(|p| p.1).filter(|v| v.is_finite()).collect();
    let smallest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let widest = values.iter().copied().fold(0.0, f64::max) / smallest;
    // Spikes of a norm or a KL flatten everything else on a linear axis.
    let scale = if show.is_empty() && smallest > 0.0 && widest > 50.0 { Scale::Log10 } else { Scale::Linear };
    let words =
        Words { title: title.into(), note: note.into(), x: "step".into(), y: y.into(), legend: Vec::new() };
    Lines { words, curves, x: Scale::Linear, y: scale, format, show: show.to_vec() }.html()
}

/// Exponential moving average `y = 0.08 x + 0.92 y`, from the first value; gaps are stepped over.
fn smoothed(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut mean: Option<f64> = None;
    let mut smooth = Vec::with_capacity(points.len());
    for &(x, value) in points.iter().filter(|p| p.1.is_finite()) {
        let next = mean.map_or(value, |m| EMA * value + (1.0 - EMA) * m);
        mean = Some(next);
        smooth.push((x, next));
    }
    smooth
}

fn reward(runs: &[Run], groups: &[Group]) -> String {
    let mut all = curves(runs, groups, |run| smoothed(&points(run, |m| m.reward_mean)));
    for group in groups.iter().filter(|g| g.runs.len() == 1) {
        let points = points(&runs[group.runs[0]], |m| m.reward_mean);
        all.push(Curve {
            name: format!("{} raw", group.name),
            class: group.class(),
            stroke: Stroke::Faint,
            points,
            band: Vec::new(),
        });
    }
    let words = Words {
        title: "Reward".into(),
        note: format!("Mean of a step's completions: raw, and smoothed by y = {EMA} x + {} y.", 1.0 - EMA),
        x: "step".into(),
        y: "mean reward".into(),
        legend: Vec::new(),
    };
    Lines { words, curves: all, x: Scale::Linear, y: Scale::Linear, format: Format::Number, show: Vec::new() }
        .html()
}

/// Two quantities of every group in one plot: solid and dashed.
fn pair(
    runs: &[Run],
    groups: &[Group],
    words: Words,
    format: Format,
    (solid, solid_name): (Field, &str),
    (dashed, dashed_name): (Field, &str),
) -> String {
    let mut all = curves(runs, groups, |run| points(run, solid));
    let mut second = curves(runs, groups, |run| points(run, dashed));
    second.retain(|c| c.stroke == Stroke::Solid);
    for curve in &mut second {
        curve.stroke = Stroke::Dashed;
        curve.name = format!("{} {dashed_name}", curve.name);
    }
    for curve in &mut all {
        curve.name = format!("{} {solid_name}", curve.name);
    }
    all.extend(second);
    Lines { words, curves: all, x: Scale::Linear, y: Scale::Linear, format, show: vec![0.0] }.html()
}

fn clipping(runs: &[Run], groups: &[Group]) -> String {
    let any =
        |m: &Metrics| m.clip_fraction_low.unwrap_or(0.0) > 0.0 || m.clip_fraction_high.unwrap_or(0.0) > 0.0;
    if !runs.iter().flat_map(|r| &r.metrics).any(any) {
        return String::new();
    }
    let words = Words {
        title: "Clipped tokens".into(),
        note: "Solid: upper clip; dashed: lower clip.".into(),
        x: "step".into(),
        y: "share of tokens".into(),
        legend: Vec::new(),
    };
    pair(
        runs,
        groups,
        words,
        Format::Percent,
        (|m| m.clip_fraction_high, "upper"),
        (|m| m.clip_fraction_low, "lower"),
    )
}

fn length(runs: &[Run], groups: &[Group]) -> String {
    let words = Words {
        title: "Completion length".into(),
        note: "Solid: mean; dashed: longest.".into(),
        x: "step".into(),
        y: "tokens".into(),
        legend: Vec::new(),
    };
    pair(
        runs,
        groups,
        words,
        Format::Number,
        (|m| m.completion_length_mean, "mean"),
        (|m| Some(m.completion_length_max as f64), "longest"),
    )
}

fn demonstrations(runs: &[Run], groups: &[Group]) -> String {
    let of = |loss: fn(&Sft) -> Option<f64>| {
        curves(runs, groups, |run| run.sft.iter().filter_map(|s| Some((s.step as f64, loss(s)?))).collect())
    };
    let mut all = of(|s| s.loss);
    let mut held_out = of(|s| s.held_out_loss);
    held_out.retain(|c| c.stroke == Stroke::Solid && !c.points.is_empty());
    let mut note = "Loss per completion token.".to_owned();
    if !held_out.is_empty() {
        note.push_str(" Dashed: the same of held-out demonstrations.");
        for curve in &mut held_out {
            curve.stroke = Stroke::Dashed;
            curve.name = format!("{} held-out", curve.name);
        }
        all.extend(held_out);
    }
    let words = Words {
        title: "Demonstrations (SFT)".into(),
        note,
        x: "SFT step".into(),
        y: "loss".into(),
        legend: Vec::new(),
    };
    let positive = all.iter().flat_map(|c| &c.points).all(|p| p.1 > 0.0);
    let y = if positive { Scale::Log10 } else { Scale::Linear };
    Lines { words, curves: all, x: Scale::Linear, y, format: Format::Number, show: Vec::new() }.html()
}

fn success_rates(run: &Run, group: &Group, several: bool) -> String {
    let histograms = run.metrics.iter().filter(|m| !m.success_rate_histogram.is_empty());
    let rows: Vec<(f64, &[u64])> =
        histograms.map(|m| (m.step as f64, &m.success_rate_histogram[..])).collect();
    let words = Words {
        title: if several { group.name.clone() } else { "Success rates of groups".into() },
        note:
            "Each column is one stretch of steps; darker: more groups with that share of correct completions."
                .into(),
        x: "step".into(),
        y: "correct completions of a group".into(),
        legend: Vec::new(),
    };
    heat::html(&words, &group.class(), &rows)
}

fn reasons(run: &Run, group: &Group, several: bool) -> String {
    let value = |m: &Metrics, name: &str| m.reasons.get(name).copied().unwrap_or(0) as f64;
    let mut totals: BTreeMap<&str, f64> = BTreeMap::new();
    for (name, count) in run.metrics.iter().flat_map(|m| &m.reasons) {
        *totals.entry(name).or_default() += *count as f64;
    }
    let mut names: Vec<&str> = totals.iter().filter(|t| *t.1 > 0.0).map(|t| *t.0).collect();
    // The correct ones at the bottom, where their share is read off the axis.
    names.sort_by(|a, b| (*b == "correct").cmp(&(*a == "correct")).then(totals[b].total_cmp(&totals[a])));
    let (shown, rest) = names.split_at(names.len().min(7));
    let mut parts: Vec<stack::Part> = shown
        .iter()
        .enumerate()
        .map(|(i, name)| stack::Part {
            name: name.replace('_', " "),
            class: match *name {
                "correct" => "c2".into(),
                // No second green beside that of the correct ones.
                _ => format!("c{}", [1, 3, 4, 5, 6, 0, 7][i % 7]),
            },
            values: run.metrics.iter().map(|m| value(m, name)).collect(),
        })
        .collect();
    if !rest.is_empty() {
        let values = run.metrics.iter().map(|m| rest.iter().map(|n| value(m, n)).sum()).collect();
        parts.push(stack::Part { name: "other".into(), class: "muted".into(), values });
    }
    let steps: Vec<f64> = run.metrics.iter().map(|m| m.step as f64).collect();
    let words = Words {
        title: if several { group.name.clone() } else { "Verdicts by reason".into() },
        note: String::new(),
        x: "step".into(),
        y: "share of completions".into(),
        legend: Vec::new(),
    };
    let html = stack::html(&words, &steps, &parts, true);
    if html.is_empty() {
        html
    } else {
        html.replacen("<figure>", &format!("<figure class=\"g{}\">", group.colour), 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reward_is_smoothed_as_in_the_papers_plots() {
        let found = smoothed(&[(1.0, 1.0), (2.0, 0.0), (3.0, f64::NAN), (4.0, 1.0)]);
        assert_eq!(found.iter().map(|p| p.0).collect::<Vec<_>>(), [1.0, 2.0, 4.0]);
        for (found, wanted) in found.iter().zip([1.0, 0.92, 0.08 + 0.92 * 0.92]) {
            assert!((found.1 - wanted).abs() < 1e-15);
        }
    }
}
