//! The paper's figures of its theory.

use fgrpo_core::theory::mass::Step;
use fgrpo_core::theory::sampled::SampledMass;
use fgrpo_core::theory::{advantage, tail_miss};
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::figure::{Axis, Curve, Figure, Key, Legend, PALETTE, Panel, Scale, Tile, ordered_colour};

/// A panel with nothing but curves and a legend.
pub(super) fn panel(title: impl Into<String>, x: Axis, y: Axis, curves: Vec<Curve>, legend: Legend) -> Panel {
    Panel { legend, ..Panel::new(title, x, y, curves) }
}

fn alone(panel: Panel) -> Figure {
    Figure { panels: vec![panel] }
}

fn unnamed(colour: usize, points: Vec<(f64, f64)>) -> Curve {
    Curve { name: None, ..Curve::new("", PALETTE[colour], points) }
}

fn linear(label: &str, from: f64, to: f64) -> Axis {
    Axis::new(label, Scale::Linear, from, to)
}

/// Group sizes from 1 to 2^`log2`.
fn size_axis(log2: f64) -> Axis {
    Axis::new("Group size N", Scale::Log2, 1.0, log2.exp2())
}

/// A value at the group sizes from 1 to 2^`log2`, sixteen to the octave where integers allow.
fn by_size<E: Into<anyhow::Error>>(
    log2: f64,
    value: impl Fn(u64) -> Result<f64, E>,
) -> anyhow::Result<Vec<(f64, f64)>> {
    let mut sizes: Vec<u64> =
        (0..=(log2 * 16.0) as u64).map(|i| (i as f64 / 16.0).exp2().round() as u64).collect();
    sizes.dedup();
    sizes.into_iter().map(|n| Ok((n as f64, value(n).or_bad_input()?))).collect()
}

/// The octave by which a tail of `tau` is sampled almost surely.
fn covered(tau: f64) -> f64 {
    (12.0 / tau).log2().ceil().clamp(4.0, 53.0)
}

/// One panel per `mu`, one curve per `rho = tau / mu`, a star at each peak.
pub fn tail_miss_panels(mu: &[f64], rho: &[f64]) -> anyhow::Result<Figure> {
    if mu.len() > 6 || rho.is_empty() {
        bad_input!(
            "found {} values of --mu and {} of --rho, wanted 1 to 6 and at least 1",
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

/// The tail-miss probability of one subset by group size, with the active probability and a star at the
/// peak.
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

/// The active probability by group size.
pub fn active_curve(mu: f64) -> anyhow::Result<Figure> {
    let largest = covered(mu.min(1.0 - mu).max(1e-9));
    let curves = vec![unnamed(0, by_size(largest, |n| tail_miss::active_probability(mu, n))?)];
    let y = linear("Active probability", 0.0, 1.05);
    Ok(alone(panel(format!("\u{3bc} = {mu}"), size_axis(largest), y, curves, Legend::LowerRight)))
}

/// Advantage magnitude by success rate: solid for correct completions, dashed for wrong ones.
pub fn advantage_magnitude(gammas: &[f64], group_size: Option<u64>) -> anyhow::Result<Figure> {
    let points = group_size.unwrap_or(400);
    let of = |rate: f64, gamma: f64| match group_size {
        Some(n) => advantage::group_advantage(rate, n, gamma),
        None => advantage::population_advantage(rate, gamma),
    };
    let mut curves = Vec::new();
    for (i, &gamma) in gammas.iter().enumerate() {
        let all = (1..points)
            .step_by((points / 400).max(1) as usize)
            .map(|i| i as f64 / points as f64)
            .map(|rate| Ok((rate, of(rate, gamma).or_bad_input()?)))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let magnitude = |value: fn(&advantage::ScaledAdvantage) -> f64| {
            // Cut at the axis, so that no curve runs out of the panel.
            all.iter().map(|(r, a)| (*r, value(a))).filter(|p| p.1 <= 3.0).collect::<Vec<_>>()
        };
        let colour = i % PALETTE.len();
        curves.push(Curve::new(format!("\u{3b3} = {gamma}"), PALETTE[colour], magnitude(|a| a.correct)));
        curves.push(Curve { dashed: true, ..unnamed(colour, magnitude(|a| -a.wrong)) });
    }
    let (x, y) = (linear("Success probability \u{3bc}", 0.0, 1.0), linear("g |A|", 0.0, 3.0));
    let keys = vec![Key::new("correct", PALETTE[6], false), Key::new("incorrect", PALETTE[6], true)];
    let drawn = panel("Focal-weighted advantage", x, y, curves, Legend::Upper);
    Ok(alone(Panel { keys, ..drawn }))
}

/// The learning rate's multiplier by focal exponent.
pub fn low_lr(gammas: &[f64]) -> anyhow::Result<Figure> {
    let last = gammas.iter().copied().fold(3.0, f64::max);
    let points = (0..=300)
        .map(|i| f64::from(i) / 300.0 * last)
        .map(|gamma| Ok((gamma, advantage::low_lr_multiplier(gamma).or_bad_input()?)))
        .collect::<anyhow::Result<_>>()?;
    let (x, y) = (linear("\u{3b3}", 0.0, last), linear("Multiplier", 0.0, 1.0));
    let title = "Learning rate of the same average size";
    Ok(alone(panel(title, x, y, vec![unnamed(0, points)], Legend::UpperRight)))
}

/// The terms of both balances as bars, each on the sum of those before it, and their total from 0.
pub fn mass_terms(step: &Step) -> anyhow::Result<Figure> {
    let (b, u) = (step.mass_balance(), step.unsampled_correct());
    let bars = |title: &str, label: &str, terms: &[(&str, f64)]| {
        let bar = |place: usize, name: &str, colour, from: f64, to: f64| Tile {
            x: (place as f64 + 0.12, place as f64 + 0.88),
            y: (from.min(to), from.max(to)),
            colour,
            opacity: 0.85,
            title: name.to_owned(),
        };
        let (mut sum, mut tiles) = (0.0f64, Vec::new());
        for (i, (name, term)) in terms.iter().enumerate() {
            tiles.push(bar(i, name, PALETTE[i], sum, sum + term));
            sum += term;
        }
        tiles.push(bar(terms.len(), "total", PALETTE[6], 0.0, sum));
        let low = tiles.iter().fold(0.0, |low, t| t.y.0.min(low));
        let high = tiles.iter().fold(0.0, |high, t| t.y.1.max(high));
        let places = terms.len() as f64 + 1.0;
        let curves = vec![unnamed(6, vec![(0.0, 0.0), (places, 0.0)])];
        let keys = tiles.iter().map(|t| Key::new(&t.title, t.colour, false)).collect();
        let room = ((high - low) * 0.08).max(1e-300);
        let x = linear("Terms one after another, then their total", 0.0, places);
        let legend = if sum >= 0.0 { Legend::UpperLeft } else { Legend::LowerLeft };
        let y = linear(label, low - room, high + room);
        Panel { tiles, keys, ..panel(title, x, y, curves, legend) }
    };
    let of_all = [("promotion", b.promotion), ("demotion", b.demotion), ("coupling", b.coupling)];
    let of_the_rest = [
        ("direct drift", u.direct_drift),
        ("from promotion", u.from_promotion),
        ("from demotion", u.from_demotion),
        ("from baseline", u.from_baseline),
    ];
    Ok(Figure {
        panels: vec![
            bars("Correct mass", "\u{394}Q_pos", &of_all),
            bars("Correct mass not drawn", "\u{394}Q_u,pos", &of_the_rest),
        ],
    })
}

/// The expected distinct mass by number of correct completions.
pub fn sampled_mass(rows: &[(u64, SampledMass)]) -> anyhow::Result<Figure> {
    let line = |name: &str, i: usize, value: fn(&SampledMass) -> f64| {
        let points = rows.iter().map(|(k, m)| (*k as f64, value(m))).collect();
        Curve { dots: rows.len() <= 40, ..Curve::new(name, ordered_colour(i, 4), points) }
    };
    let curves = vec![
        line("E[P_pos | X = k]", 0, |m| m.correct),
        line("E[P_neg | X = k]", 2, |m| m.wrong),
        Curve { dashed: true, ..line("E[S_R | X = k]", 3, |m| m.baseline) },
    ];
    let values = || curves.iter().flat_map(|c| &c.points).map(|p| p.1);
    let (low, high) = (values().fold(0.0, f64::min), values().fold(0.0, f64::max));
    let (first, last) = (rows.first().map_or(0, |r| r.0), rows.last().map_or(0, |r| r.0));
    let x = linear("Correct completions k", first as f64, last.max(first + 1) as f64);
    let y = linear("Expected mass", low * 1.05, (high * 1.25).max(1e-12));
    Ok(alone(panel("Distinct mass sampled", x, y, curves, Legend::UpperLeft)))
}
