//! The figures of the paper's theory.

use fgrpo_core::theory::{advantage, tail_miss};
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::figure::{Axis, Curve, Figure, Key, Legend, PALETTE, Panel, Scale};

/// Returns a panel with curves and a legend.
pub(super) fn panel(title: impl Into<String>, x: Axis, y: Axis, curves: Vec<Curve>, legend: Legend) -> Panel {
    Panel { legend, ..Panel::new(title, x, y, curves) }
}

fn alone(panel: Panel) -> Figure {
    Figure { panels: vec![panel] }
}

fn linear(label: &str, from: f64, to: f64) -> Axis {
    Axis::new(label, Scale::Linear, from, to)
}

/// Returns an axis of group sizes from 1 to 2^`log2`.
fn size_axis(log2: f64) -> Axis {
    Axis::new("Group size N", Scale::Log2, 1.0, log2.exp2())
}

/// Returns points (N, `value(N)`) for group sizes N from 1 to 2^`log2`, at most 16 in each octave.
fn by_size<E: Into<anyhow::Error>>(
    log2: f64,
    value: impl Fn(u64) -> Result<f64, E>,
) -> anyhow::Result<Vec<(f64, f64)>> {
    let mut sizes: Vec<u64> =
        (0..=(log2 * 16.0) as u64).map(|i| (i as f64 / 16.0).exp2().round() as u64).collect();
    sizes.dedup();
    sizes.into_iter().map(|n| Ok((n as f64, value(n).or_bad_input()?))).collect()
}

/// Returns log2 of a group size that almost surely samples a tail of probability `tau`, rounded up, from 4 to 53.
fn covered(tau: f64) -> f64 {
    (12.0 / tau).log2().ceil().clamp(4.0, 53.0)
}

/// Draws the tail-miss probability by group size: one panel per `mu`, one curve per `rho = tau / mu`, a star at each peak.
pub fn tail_miss_panels(mu: &[f64], rho: &[f64]) -> anyhow::Result<Figure> {
    if mu.len() > 6 || rho.is_empty() {
        bad_input!(
            "expected 1 to 6 values of mu and at least one of rho, found {} and {}",
            mu.len(),
            rho.len()
        );
    }
    let largest = mu.iter().flat_map(|m| rho.iter().map(move |r| covered(m * r))).fold(4.0, f64::max);
    let one = |&mu: &f64| {
        let mut curves = Vec::new();
        for (i, &rho) in rho.iter().enumerate() {
            let tau = mu * rho;
            let points = by_size(largest, |n| tail_miss::tail_miss_probability(mu, tau, n))?;
            let peak = tail_miss::peak(mu, tau).or_bad_input()?;
            let star = Some((peak.n as f64, peak.tail_miss));
            let curve = Curve::new(format!("\u{3c1} = {rho}"), PALETTE[i % PALETTE.len()], points);
            curves.push(Curve { star, ..curve });
        }
        let y = linear("Tail-miss probability", 0.0, 1.05);
        Ok(panel(format!("\u{3bc} = {mu}"), size_axis(largest), y, curves, Legend::UpperRight))
    };
    Ok(Figure { panels: mu.iter().map(one).collect::<anyhow::Result<_>>()? })
}

/// Draws the tail-miss probability of one subset by group size, with the active probability and a star at the peak.
pub fn tail_miss_curve(mu: f64, tau: f64) -> anyhow::Result<Figure> {
    let largest = if tau > 0.0 { covered(tau).max(17.0) } else { 17.0 };
    let active = by_size(largest, |n| tail_miss::active_probability(mu, n))?;
    let miss = by_size(largest, |n| tail_miss::tail_miss_probability(mu, tau, n))?;
    let star = tail_miss::peak(mu, tau).ok().map(|p| (p.n as f64, p.tail_miss));
    let curves = vec![
        Curve { dashed: true, ..Curve::new("active", PALETTE[6], active) },
        Curve { star, ..Curve::new("tail miss", PALETTE[1], miss) },
    ];
    let title = format!("\u{3bc} = {mu}, \u{3c4} = {tau:e}");
    let y = linear("Probability", 0.0, 1.05);
    Ok(alone(panel(title, size_axis(largest), y, curves, Legend::LowerLeft)))
}

/// Draws the advantage magnitude by success rate: solid for correct completions, dashed for wrong ones.
pub fn advantage_magnitude(gammas: &[f64], group_size: Option<u64>) -> anyhow::Result<Figure> {
    let points = group_size.unwrap_or(400);
    let advantage = |rate: f64, gamma: f64| match group_size {
        Some(n) => advantage::group_advantage(rate, n, gamma),
        None => advantage::population_advantage(rate, gamma),
    };
    let mut curves = Vec::new();
    for (i, &gamma) in gammas.iter().enumerate() {
        let all = (1..points)
            .step_by((points / 400).max(1) as usize)
            .map(|i| i as f64 / points as f64)
            .map(|rate| Ok((rate, advantage(rate, gamma).or_bad_input()?)))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let magnitude = |value: fn(&advantage::ScaledAdvantage) -> f64| {
            // Points above the axis are left out.
            all.iter().map(|(r, a)| (*r, value(a))).filter(|p| p.1 <= 3.0).collect::<Vec<_>>()
        };
        let colour = i % PALETTE.len();
        curves.push(Curve::new(format!("\u{3b3} = {gamma}"), PALETTE[colour], magnitude(|a| a.correct)));
        let wrong = Curve::new("", PALETTE[colour], magnitude(|a| -a.wrong));
        curves.push(Curve { name: None, dashed: true, ..wrong });
    }
    let (x, y) = (linear("Success probability \u{3bc}", 0.0, 1.0), linear("g |A|", 0.0, 3.0));
    let keys = vec![Key::new("correct", PALETTE[6], false), Key::new("incorrect", PALETTE[6], true)];
    let panel = panel("Focal-weighted advantage", x, y, curves, Legend::Upper);
    Ok(alone(Panel { keys, ..panel }))
}
