//! The simulation's three panels and its tail-miss curve.

use super::Sweep;
use super::config::Config;
use super::finals::{Final, Spread};
use super::folder::Line;
use crate::theory::tail_miss_curve;
use fgrpo_core::theory::tail_miss::{active_probability, tail_miss_probability};
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::figure::{
    Axis, Colour, Curve, Figure, Key, Legend, PALETTE, Panel, Scale, Zone, ordered_colour,
};
use std::path::PathBuf;

/// Curves by step are drawn for at most this many group sizes.
const SHOWN: usize = 7;

/// Retained mass below which a group size belongs to the concentration zone.
const COLLAPSED: f64 = 0.5;

/// (a) correct mass and (b) retained mass by step, (c) both at the end by group size.
pub(super) fn panels(config: &Config, lines: &[Line], finals: &[Final]) -> Figure {
    let by_step = |title: &str, label: &str, value: fn(&Line) -> f64, legend| Panel {
        title: title.to_owned(),
        x: Axis::new("Step", Scale::Linear, 0.0, config.steps as f64),
        y: Axis::new(label, Scale::Linear, 0.0, 1.02),
        curves: curves_by_step(config, lines, value),
        keys: keys(config),
        legend,
        ..Panel::default()
    };
    Figure {
        panels: vec![
            by_step("(a) Total correct mass", "Q_pos", |l| l.q_pos, Legend::LowerRight),
            by_step("(b) Retained positive mass", "M_ret", |l| l.retained, Legend::Left),
            by_group_size(config, finals),
        ],
    }
}

fn keys(config: &Config) -> Vec<Key> {
    let gammas = config.gammas.iter().enumerate();
    gammas.map(|(i, g)| Key::new(format!("\u{3b3} = {g}"), PALETTE[6], i > 0)).collect()
}

fn curves_by_step(config: &Config, lines: &[Line], value: fn(&Line) -> f64) -> Vec<Curve> {
    let mut sizes = config.group_sizes.clone();
    sizes.sort_unstable();
    if sizes.len() > SHOWN {
        let last = sizes.len() - 1;
        sizes = (0..SHOWN).map(|i| sizes[(i * last + (SHOWN - 1) / 2) / (SHOWN - 1)]).collect();
    }
    let mut curves = Vec::new();
    for (i, &n) in sizes.iter().enumerate() {
        for (j, &gamma) in config.gammas.iter().enumerate() {
            let mut own: Vec<&Line> = lines.iter().filter(|l| (l.n, l.gamma) == (n, gamma)).collect();
            own.sort_by_key(|l| l.step);
            let points: Vec<(f64, Spread)> = own
                .chunk_by(|a, b| a.step == b.step)
                .map(|seeds| {
                    let values: Vec<f64> = seeds.iter().map(|l| value(l)).collect();
                    (seeds[0].step as f64, Spread::of(&values))
                })
                .collect();
            let name = (j == 0).then(|| format!("N = {n}"));
            curves.push(spread_curve(name, &points, ordered_colour(i, sizes.len()), j > 0));
        }
    }
    curves
}

fn spread_curve(name: Option<String>, points: &[(f64, Spread)], colour: Colour, dashed: bool) -> Curve {
    // Every metric drawn lies in [0, 1].
    let band = |s: &Spread| ((s.mean - s.deviation).max(0.0), (s.mean + s.deviation).min(1.0));
    let band = points.iter().map(|(_, s)| band(s)).collect();
    Curve { name, dashed, band, ..Curve::new("", colour, points.iter().map(|(x, s)| (*x, s.mean)).collect()) }
}

fn axis_of_group_sizes(config: &Config) -> Axis {
    let low = config.group_sizes.iter().min().copied().unwrap_or(1) as f64;
    let high = config.group_sizes.iter().max().copied().unwrap_or(2) as f64;
    Axis::new("Group size N", Scale::Log2, low / 1.19, high * 1.19)
}

/// A final value by group size, a curve for each gamma; the first one has the name.
fn curves_by_size(
    config: &Config,
    finals: &[Final],
    value: fn(&Final) -> Spread,
    name: Option<String>,
    colour: Colour,
) -> Vec<Curve> {
    let curve = |(j, &gamma): (usize, &f64)| {
        let mut own: Vec<&Final> = finals.iter().filter(|f| f.gamma == gamma).collect();
        own.sort_by_key(|f| f.n);
        let points: Vec<_> = own.into_iter().map(|f| (f.n as f64, value(f))).collect();
        let curve = spread_curve(name.clone().filter(|_| j == 0), &points, colour, j > 0);
        Curve { dots: true, ..curve }
    };
    config.gammas.iter().enumerate().map(curve).collect()
}

fn by_group_size(config: &Config, finals: &[Final]) -> Panel {
    let mut curves = curves_by_size(config, finals, |f| f.q_pos, Some("Q_pos".to_owned()), PALETTE[0]);
    curves.extend(curves_by_size(config, finals, |f| f.retained, Some("M_ret".to_owned()), PALETTE[1]));
    Panel {
        title: format!("(c) After {} steps", config.steps),
        x: axis_of_group_sizes(config),
        y: Axis::new("Q_pos, M_ret", Scale::Linear, 0.0, 1.12),
        curves,
        zone: concentration_zone(config, finals),
        keys: keys(config),
        legend: Legend::LowerLeft,
        ..Panel::default()
    }
}

/// The final values of several sweeps by group size, one colour each, named after their folders.
pub fn beside(sweeps: &[(PathBuf, Sweep)]) -> Figure {
    let widest = sweeps.iter().map(|s| &s.1.config).max_by_key(|config| config.group_sizes.iter().max());
    let panel = |title: &str, label: &str, value: fn(&Final) -> Spread, named: bool| {
        let mut curves = Vec::new();
        for (i, (path, Sweep { config, finals, .. })) in sweeps.iter().enumerate() {
            let name = path.file_name().unwrap_or(path.as_os_str()).display().to_string();
            let (name, colour) = (named.then_some(name), PALETTE[i % PALETTE.len()]);
            curves.extend(curves_by_size(config, finals, value, name, colour));
        }
        Panel {
            title: title.to_owned(),
            x: widest.map_or(Axis::new("", Scale::Log2, 1.0, 2.0), axis_of_group_sizes),
            y: Axis::new(label, Scale::Linear, 0.0, 1.05),
            curves,
            keys: widest.filter(|_| named).map_or(vec![], keys),
            legend: Legend::LowerRight,
            ..Panel::default()
        }
    };
    Figure {
        panels: vec![
            panel("Total correct mass at the end", "Q_pos", |f| f.q_pos, true),
            panel("Retained positive mass at the end", "M_ret", |f| f.retained, false),
        ],
    }
}

/// From the first to the last group size that has lost half of the retained mass without focal weight. Edges lie halfway to
/// the neighbours.
fn concentration_zone(config: &Config, finals: &[Final]) -> Option<Zone> {
    let mut own: Vec<&Final> = finals.iter().filter(|f| f.gamma == config.gammas[0]).collect();
    own.sort_by_key(|f| f.n);
    let collapsed = |f: &&&Final| f.retained.mean < COLLAPSED;
    let first = own.iter().position(|f| collapsed(&f))?;
    let last = own.len() - 1 - own.iter().rev().position(|f| collapsed(&f))?;
    let size = |i: usize| own[i].n as f64;
    let from = if first > 0 { (size(first - 1) * size(first)).sqrt() } else { size(first) };
    let to = if last + 1 < own.len() { (size(last) * size(last + 1)).sqrt() } else { size(last) };
    let name = |shown: bool, name: &str| if shown { name.to_owned() } else { String::new() };
    Some(Zone {
        range: (from, to),
        names: [name(first > 0, "I"), "II".to_owned(), name(last + 1 < own.len(), "III")],
    })
}

/// Tail-miss probability of one correct action that is no anchor, under the start policy, on the sweep's
/// axis of group sizes: the figure, and its values at the sweep's sizes as CSV.
pub(super) fn tail_miss(config: &Config) -> anyhow::Result<(Figure, String)> {
    let start = config.setup.start();
    let (mu, tau) = (start.q_pos.min(1.0), start.correct.min(start.q_pos));
    let mut figure = tail_miss_curve(mu, tau)?;
    let panel = &mut figure.panels[0];
    panel.title = format!("\u{3bc} = {mu:.3}, \u{3c4} = {tau:.1e}");
    panel.x = axis_of_group_sizes(config);
    for curve in &mut panel.curves {
        let (from, to) = panel.x.range;
        curve.points.retain(|p| (from..=to).contains(&p.0));
        curve.star = curve.star.filter(|p| (from..=to).contains(&p.0));
    }
    let mut values = "n,active,tail_miss\n".to_owned();
    for &n in &config.group_sizes {
        let active = active_probability(mu, n).or_bad_input()?;
        values += &format!("{n},{active},{}\n", tail_miss_probability(mu, tau, n).or_bad_input()?);
    }
    Ok((figure, values))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finals(retained: &[f64]) -> Vec<Final> {
        let spread = |mean| Spread { mean, deviation: 0.0, seeds: 1 };
        let make = |(i, &r): (usize, &f64)| Final {
            n: 2 << i,
            gamma: 0.0,
            q_pos: spread(0.9),
            retained: spread(r),
            entropy: spread(1.0),
        };
        retained.iter().enumerate().map(make).collect()
    }

    #[test]
    fn the_concentration_zone_spans_the_collapsed_group_sizes() {
        let config = Config::default();
        let zone = concentration_zone(&config, &finals(&[1.0, 0.9, 0.3, 0.1, 0.6, 0.9])).unwrap();
        assert!((zone.range.0 - 32f64.sqrt()).abs() < 1e-12 && (zone.range.1 - 512f64.sqrt()).abs() < 1e-12);
        assert_eq!(zone.names, ["I", "II", "III"]);
        assert!(concentration_zone(&config, &finals(&[1.0, 0.9])).is_none());
        let open = concentration_zone(&config, &finals(&[0.1, 0.9])).unwrap();
        assert_eq!(open.names, ["", "II", "III"]);
    }
}
