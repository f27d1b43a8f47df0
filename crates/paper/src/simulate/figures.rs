//! The simulation's three panels and its tail-miss curve.

use super::config::Config;
use super::points::{Point, Spread};
use crate::theory::tail_miss_curve;
use fgrpo_core::theory::tail_miss::{active_probability, tail_miss_probability};
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::figure::{
    Axis, Colour, Curve, Figure, Key, Legend, PALETTE, Panel, Scale, Zone, ordered_colour,
};

/// Maximum number of group sizes that have curves by step.
const SHOWN: usize = 7;

/// Retained mass below which a group size belongs to the concentration zone.
const COLLAPSED: f64 = 0.5;

/// Function that selects the metric that a panel shows.
type Value = fn(&Point) -> Spread;

/// Draws (a) correct mass and (b) retained mass by step, and (c) both at the end by group size.
pub(super) fn panels(config: &Config, points: &[Point], finals: &[Point]) -> Figure {
    let by_step = |title: &str, label: &str, value: Value, legend| Panel {
        title: title.to_owned(),
        x: Axis::new("Step", Scale::Linear, 0.0, config.steps as f64),
        y: Axis::new(label, Scale::Linear, 0.0, 1.02),
        curves: curves_by_step(config, points, value),
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

fn curves_by_step(config: &Config, points: &[Point], value: Value) -> Vec<Curve> {
    let mut sizes = config.group_sizes.clone();
    sizes.sort_unstable();
    if sizes.len() > SHOWN {
        let last = sizes.len() - 1;
        sizes = (0..SHOWN).map(|i| sizes[(i * last + (SHOWN - 1) / 2) / (SHOWN - 1)]).collect();
    }
    let mut curves = Vec::new();
    for (i, &n) in sizes.iter().enumerate() {
        for (j, &gamma) in config.gammas.iter().enumerate() {
            let points = points.iter().filter(|p| (p.n, p.gamma) == (n, gamma));
            let by_step: Vec<(f64, Spread)> = points.map(|p| (p.step as f64, value(p))).collect();
            let name = (j == 0).then(|| format!("N = {n}"));
            curves.push(spread_curve(name, &by_step, ordered_colour(i, sizes.len()), j > 0));
        }
    }
    curves
}

fn spread_curve(name: Option<String>, points: &[(f64, Spread)], colour: Colour, dashed: bool) -> Curve {
    // Every drawn metric is in [0, 1].
    let band = |s: &Spread| ((s.mean - s.deviation).max(0.0), (s.mean + s.deviation).min(1.0));
    let band = points.iter().map(|(_, s)| band(s)).collect();
    Curve { name, dashed, band, ..Curve::new("", colour, points.iter().map(|(x, s)| (*x, s.mean)).collect()) }
}

fn axis_of_group_sizes(config: &Config) -> Axis {
    let low = config.group_sizes.iter().min().copied().unwrap_or(1) as f64;
    let high = config.group_sizes.iter().max().copied().unwrap_or(2) as f64;
    Axis::new("Group size N", Scale::Log2, low / 1.19, high * 1.19)
}

fn by_group_size(config: &Config, finals: &[Point]) -> Panel {
    let mut curves = Vec::new();
    let values: [(&str, Value); 2] = [("Q_pos", |f| f.q_pos), ("M_ret", |f| f.retained)];
    for (colour, (name, value)) in PALETTE.into_iter().zip(values) {
        for (j, &gamma) in config.gammas.iter().enumerate() {
            let mut by_size: Vec<&Point> = finals.iter().filter(|f| f.gamma == gamma).collect();
            by_size.sort_by_key(|f| f.n);
            let points: Vec<_> = by_size.into_iter().map(|f| (f.n as f64, value(f))).collect();
            let name = (j == 0).then(|| name.to_owned());
            curves.push(Curve { dots: true, ..spread_curve(name, &points, colour, j > 0) });
        }
    }
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

/// Returns the zone from the first to the last group size whose retained mass without focal weight is below one half. The
/// edges are halfway to the neighbours.
fn concentration_zone(config: &Config, finals: &[Point]) -> Option<Zone> {
    let mut by_size: Vec<&Point> = finals.iter().filter(|f| f.gamma == config.gammas[0]).collect();
    by_size.sort_by_key(|f| f.n);
    let collapsed = |f: &&&Point| f.retained.mean < COLLAPSED;
    let first = by_size.iter().position(|f| collapsed(&f))?;
    let last = by_size.len() - 1 - by_size.iter().rev().position(|f| collapsed(&f))?;
    let size = |i: usize| by_size[i].n as f64;
    let from = if first > 0 { (size(first - 1) * size(first)).sqrt() } else { size(first) };
    let to = if last + 1 < by_size.len() { (size(last) * size(last + 1)).sqrt() } else { size(last) };
    let name = |present: bool, name: &str| if present { name.to_owned() } else { String::new() };
    Some(Zone {
        range: (from, to),
        names: [name(first > 0, "I"), "II".to_owned(), name(last + 1 < by_size.len(), "III")],
    })
}

/// Returns a figure of the tail-miss probability, and its values at the sweep's group sizes as CSV. The target is one correct
/// action other than an anchor, under the initial policy.
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

    fn finals(retained: &[f64]) -> Vec<Point> {
        let spread = |mean| Spread { mean, deviation: 0.0, seeds: 1 };
        let make = |(i, &r): (usize, &f64)| Point {
            n: 2 << i,
            gamma: 0.0,
            step: 1,
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
