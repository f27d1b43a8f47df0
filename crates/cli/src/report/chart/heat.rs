//! A distribution over time as a heat map.

use super::{Axis, Figure, Format, Labels, Scale, figure};
use std::fmt::Write;

/// Columns that a map shows at most; more steps are averaged.
const COLUMNS: usize = 110;

/// The map of `rows`, each a step and the counts of the bins from 0 to 1. `class` is its colour. None without rows.
pub(in super::super) fn draw(labels: Labels, class: &str, rows: &[(f64, &[u64])]) -> Option<Figure> {
    let (first, last) = super::range(rows.iter().map(|r| r.0))?;
    let bins = rows.iter().map(|r| r.1.len()).max().unwrap_or(0);
    if bins < 2 {
        return None;
    }
    let per_column = rows.len().div_ceil(COLUMNS);
    let columns: Vec<(f64, f64, Vec<f64>)> = rows
        .chunks(per_column)
        .map(|part| {
            let mut shares = vec![0.0; bins];
            for (_, counts) in part {
                for (share, count) in shares.iter_mut().zip(*counts) {
                    *share += *count as f64;
                }
            }
            let total: f64 = shares.iter().sum();
            shares.iter_mut().for_each(|s| *s /= total.max(f64::MIN_POSITIVE));
            (part[0].0, part[part.len() - 1].0, shares)
        })
        .collect();
    // Groups smaller than the bins leave bins that nothing can fall into: their neighbours meet in the middle.
    let used: Vec<usize> = (0..bins).filter(|&b| columns.iter().any(|c| c.2[b] > 0.0)).collect();
    let half = 0.5 * (last - first).max(1.0) / (columns.len().max(2) - 1) as f64;
    let bin = 1.0 / (bins - 1) as f64;
    let x = Axis::x(Scale::Linear, first - half, last + half);
    let y = Axis::y(Scale::Linear, -bin / 2.0, 1.0 + bin / 2.0);
    Some(figure(labels, x, y, Format::Percent, |svg| {
        let edge = |i: usize| match i {
            0 => first - half,
            i if i == columns.len() => last + half,
            i => 0.5 * (columns[i - 1].1 + columns[i].0),
        };
        for (i, (from, to, shares)) in columns.iter().enumerate() {
            let (left, right) = (x.at(edge(i)), x.at(edge(i + 1)));
            for (u, &b) in used.iter().enumerate().filter(|u| shares[*u.1] > 0.0) {
                let share = &shares[b];
                let between = |a: usize, b: usize| 0.5 * (a + b) as f64 * bin;
                let low = if u == 0 { (b as f64 - 0.5) * bin } else { between(used[u - 1], b) };
                let high = if u + 1 == used.len() { (b as f64 + 0.5) * bin } else { between(b, used[u + 1]) };
                let (low, high) = (y.at(low), y.at(high));
                let steps = if from == to { format!("step {from}") } else { format!("steps {from} to {to}") };
                // The eye sees shares by their square root.
                let _ = write!(
                    svg,
                    "<rect class=\"{class} cell\" x=\"{left:.1}\" y=\"{high:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill-opacity=\"{:.2}\"><title>{steps}: {} of groups near {} correct</title></rect>",
                    right - left + 0.3,
                    low - high,
                    share.sqrt(),
                    Format::Percent.text(*share),
                    Format::Percent.text(b as f64 * bin),
                );
            }
        }
    }))
}
