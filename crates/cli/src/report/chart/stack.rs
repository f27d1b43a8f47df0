//! Parts of a whole over time, stacked.

use super::{Axis, Figure, Format, Key, Labels, Scale, escape, figure};
use std::fmt::Write;

/// Columns that a plot shows at most; more steps are averaged.
const COLUMNS: usize = 90;

/// A part: its name, colour class and value at each step.
#[derive(Debug, Clone)]
pub(in super::super) struct Part {
    pub(in super::super) name: String,
    pub(in super::super) class: String,
    pub(in super::super) values: Vec<f64>,
}

/// Bars of the parts' mean values over stretches of steps. With `shares` each bar is divided by its height.
/// None when nothing is above 0.
pub(in super::super) fn draw(labels: Labels, steps: &[f64], parts: &[Part], shares: bool) -> Option<Figure> {
    if steps.is_empty() || parts.iter().all(|p| p.values.iter().all(|v| *v <= 0.0)) {
        return None;
    }
    let stretch = steps.len().div_ceil(COLUMNS);
    let mean = |values: &[f64]| values.iter().map(|v| v.max(0.0)).sum::<f64>() / values.len() as f64;
    let mut columns: Vec<Vec<f64>> = (0..steps.len())
        .step_by(stretch)
        .map(|s| parts.iter().map(|p| mean(&p.values[s..(s + stretch).min(steps.len())])).collect())
        .collect();
    if shares {
        for column in &mut columns {
            let total: f64 = column.iter().sum();
            column.iter_mut().for_each(|v| *v /= total.max(f64::MIN_POSITIVE));
        }
    }
    let top = columns.iter().map(|c| c.iter().sum::<f64>()).fold(0.0, f64::max);
    let (first, last) = (steps[0], steps[steps.len() - 1]);
    let half = 0.5 * (last - first).max(1.0) / (steps.len().max(2) - 1) as f64;
    let x = Axis::x(Scale::Linear, first - half, last + half);
    let y = Axis::y(Scale::Linear, 0.0, if shares { 1.0 } else { top * 1.04 });
    let format = if shares { Format::Percent } else { Format::Number };
    let key = |p: &Part| Key { class: p.class.clone(), name: p.name.clone(), dashed: false };
    let labels = Labels { legend: parts.iter().map(key).collect(), ..labels };
    Some(figure(labels, x, y, format, |svg| {
        for (i, column) in columns.iter().enumerate() {
            let (from, to) = (steps[i * stretch], steps[((i + 1) * stretch).min(steps.len()) - 1]);
            let (left, right) = (x.at(from - half), x.at(to + half));
            let mut below = 0.0;
            for (part, value) in parts.iter().zip(column).filter(|p| *p.1 > 0.0) {
                let (low, high) = (y.at(below), y.at(below + value));
                below += value;
                let _ = write!(
                    svg,
                    "<rect class=\"{} fill\" x=\"{left:.1}\" y=\"{high:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}: {} (steps {from} to {to})</title></rect>",
                    part.class,
                    right - left + 0.2,
                    low - high,
                    escape(&part.name),
                    format.text(*value),
                );
            }
        }
    }))
}
