//! Ticks: round values whose labels don't overlap.

use crate::output::format::{number, percent};
use fgrpo_eval::figure::{Axis, Notation, Scale};

/// Direction of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Along {
    Width,
    Height,
}

/// Returns the approximate width of a string in a sans-serif font of this size.
pub(super) fn width(text: &str, size: f64) -> f64 {
    let share = |c: char| match c {
        'i' | 'j' | 'l' | 't' | 'f' | 'r' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | '(' | ')'
        | ' ' => 0.32,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.88,
        c if c.is_uppercase() => 0.68,
        _ => 0.57,
    };
    size * text.chars().map(share).sum::<f64>()
}

/// Returns values and labels of the ticks of an axis of this length.
pub(super) fn ticks(axis: &Axis, length: f64, along: Along) -> Vec<(f64, String)> {
    if !axis.bins.is_empty() {
        return Vec::new();
    }
    let limit = if along == Along::Width { 6 } else { 5 };
    let fits = |ticks: &[(f64, String)]| {
        let size = |label: &str| if along == Along::Width { width(label, 12.0) + 8.0 } else { 14.0 };
        ticks.windows(2).all(|pair| {
            let distance = (axis.share(pair[1].0) - axis.share(pair[0].0)) * length;
            distance >= (size(&pair[0].1) + size(&pair[1].1)) / 2.0
        })
    };
    // Steps are whole numbers.
    let counts = axis.label.ends_with("step");
    let labels = |count: usize| {
        let mut ticks = values(axis, count);
        ticks.retain(|tick| !counts || tick.fract() == 0.0);
        labelled(&ticks, axis.format)
    };
    (1..=limit).rev().map(labels).find(|ticks| fits(ticks)).unwrap_or_default()
}

fn values(axis: &Axis, count: usize) -> Vec<f64> {
    let (from, to) = axis.range;
    match axis.scale {
        Scale::Linear => linear(from, to, count),
        Scale::Log2 => powers(2.0, from, to, 2 * count),
        Scale::Log10 => {
            // Powers of ten if at least two fit, or else 1, 2 and 5 times powers of ten, or else evenly spaced values.
            let candidates = [powers(10.0, from, to, count), decades(from, to)];
            candidates.into_iter().find(|ticks| ticks.len() > 1).unwrap_or_else(|| linear(from, to, count))
        }
    }
}

fn linear(from: f64, to: f64, count: usize) -> Vec<f64> {
    let rough = (to - from) / count.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|m| m * power)
        .find(|s| *s >= rough * 0.85)
        .unwrap_or(power * 10.0);
    let (first, last) = ((from / step - 1e-9).ceil() as i64, (to / step + 1e-9).floor() as i64);
    (first..=last).map(|i| i as f64 * step).collect()
}

fn powers(base: f64, from: f64, to: f64, count: usize) -> Vec<f64> {
    let exponent = |x: f64| x.ln() / base.ln();
    let (first, last) = ((exponent(from) - 1e-9).ceil() as i32, (exponent(to) + 1e-9).floor() as i32);
    let every = ((last - first).max(0) as usize / count.max(1) + 1) as i32;
    (first..=last).filter(|i| (i - first) % every == 0).map(|i| base.powi(i)).collect()
}

/// Returns 1, 2 and 5 times powers of ten in the range.
fn decades(from: f64, to: f64) -> Vec<f64> {
    let exponents = from.log10().floor() as i32..=to.log10().ceil() as i32;
    let all = exponents.flat_map(|e| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(e)));
    all.filter(|t| (from * (1.0 - 1e-9)..=to * (1.0 + 1e-9)).contains(t)).collect()
}

/// Labels ticks, with enough digits that all labels differ.
fn labelled(ticks: &[f64], format: Notation) -> Vec<(f64, String)> {
    let text = match format {
        Notation::Number => number,
        Notation::Percent => percent,
    };
    let short: Vec<String> = ticks.iter().map(|&t| text(t)).collect();
    let ambiguous = short.windows(2).any(|w| w[0] == w[1]);
    let gap = ticks.windows(2).map(|w| (w[1] - w[0]).abs()).fold(f64::INFINITY, f64::min);
    let digits = if gap > 0.0 { (-(gap * 1.000_001).log10().floor()).clamp(0.0, 9.0) as usize } else { 0 };
    let long = |t: f64| match format {
        Notation::Number => format!("{t:.digits$}").replace('-', "\u{2212}"),
        Notation::Percent => {
            format!("{:.1$}\u{a0}%", 100.0 * t, digits.saturating_sub(2)).replace('-', "\u{2212}")
        }
    };
    ticks.iter().zip(short).map(|(&t, short)| (t, if ambiguous { long(t) } else { short })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside_the_axis() {
        assert_eq!(linear(0.0, 1.0, 5), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(linear(3.0, 97.0, 5), [20.0, 40.0, 60.0, 80.0]);
        assert_eq!(powers(2.0, 1.0, 64.0, 12), [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]);
        assert_eq!(powers(10.0, 0.05, 200.0, 5), [0.1, 1.0, 10.0, 100.0]);
        assert_eq!(decades(0.15, 3.0), [0.2, 0.5, 1.0, 2.0]);
    }

    #[test]
    fn ticks_that_would_read_alike_get_more_digits() {
        let words =
            |ticks: &[f64]| labelled(ticks, Notation::Number).into_iter().map(|l| l.1).collect::<Vec<_>>();
        assert_eq!(words(&[1.0, 1.001, 1.002]), ["1.000", "1.001", "1.002"]);
        assert_eq!(words(&[0.5, 1.0, 1.5]), ["0.5", "1", "1.5"]);
    }

    #[test]
    fn labels_have_room_on_an_axis_of_any_length() {
        for (scale, from, to) in
            [(Scale::Linear, 0.0, 123_456.0), (Scale::Log2, 1.0, 1e6), (Scale::Log10, 1e-6, 1e6)]
        {
            for length in [40.0, 120.0, 300.0, 500.0] {
                let axis = Axis::new("", scale, from, to);
                let ticks = ticks(&axis, length, Along::Width);
                let places: Vec<f64> = ticks.iter().map(|t| axis.share(t.0) * length).collect();
                for (i, pair) in places.windows(2).enumerate() {
                    let need = (width(&ticks[i].1, 12.0) + width(&ticks[i + 1].1, 12.0)) / 2.0;
                    assert!(pair[1] - pair[0] > need, "{scale:?} {length}: {ticks:?}");
                }
                assert!(length < 300.0 || ticks.len() > 2, "{scale:?} {length}: {ticks:?}");
            }
        }
    }
}
