//! Counts of problems by their success rate, run beside run.

use super::{Axis, Figure, Format, Labels, Scale, escape, figure};
use std::fmt::Write;

/// Names of the bins of a success rate in percent: never, four quarters, always.
const BINS: [&str; 6] = ["0", "\u{2264} 25", "\u{2264} 50", "\u{2264} 75", "< 100", "100"];

/// One run's share of problems in each bin.
#[derive(Debug, Clone)]
pub(in super::super) struct Set {
    pub(in super::super) name: String,
    pub(in super::super) class: String,
    shares: [f64; BINS.len()],
}

impl Set {
    /// From the success rate of each problem.
    pub(in super::super) fn new(name: &str, class: String, rates: &[f64]) -> Self {
        let mut shares = [0.0; BINS.len()];
        for &rate in rates {
            let bin = match rate {
                r if r <= 0.0 => 0,
                r if r >= 1.0 => 5,
                r => (4.0 * r).ceil() as usize,
            };
            shares[bin] += 1.0 / rates.len() as f64;
        }
        Self { name: name.to_owned(), class, shares }
    }
}

/// The plot; none without problems. A set without problems is left out.
pub(in super::super) fn draw(labels: Labels, sets: &[Set]) -> Option<Figure> {
    let sets: Vec<&Set> = sets.iter().filter(|s| s.shares.iter().any(|share| *share > 0.0)).collect();
    let top = sets.iter().flat_map(|s| &s.shares).copied().fold(0.0, f64::max);
    if top <= 0.0 {
        return None;
    }
    let bins = BINS.len() as f64;
    let (x, y) = (Axis::x(Scale::Bins, 0.0, bins), Axis::y(Scale::Linear, 0.0, (top * 1.06).min(1.0)));
    Some(figure(labels, x, y, Format::Percent, |svg| {
        let width = 0.8 / sets.len() as f64;
        for (s, set) in sets.iter().enumerate() {
            for (b, share) in set.shares.iter().enumerate() {
                let left = x.at(b as f64 + 0.1 + s as f64 * width);
                let right = x.at(b as f64 + 0.1 + (s + 1) as f64 * width);
                let _ = write!(
                    svg,
                    "<rect class=\"{} fill\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}: {} of problems, success rate {} %</title></rect>",
                    set.class,
                    y.at(*share),
                    (right - left - 1.0).max(0.5),
                    y.at(0.0) - y.at(*share),
                    escape(&set.name),
                    Format::Percent.text(*share),
                    escape(BINS[b]),
                );
            }
        }
        for (b, label) in BINS.iter().enumerate() {
            let _ = write!(
                svg,
                "<text class=\"tick mid label\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                x.at(b as f64 + 0.5),
                y.at(0.0) + 17.0,
                escape(label)
            );
        }
    }))
}
