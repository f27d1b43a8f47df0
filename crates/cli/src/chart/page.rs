//! Plots for pages: curves, bars, stacks and heat maps, with ranges that contain the data.

use super::{Drawing, Frame};
use crate::output::format::{Markup, escape, number, percent};
use fgrpo_eval::figure::{Axis, Colour, Curve, Key, Notation, Panel, Scale, Tile};
use serde::Serialize;

/// Size of a plot in SVG units.
const SIZE: (f64, f64) = (560.0, 290.0);
const FRAME: Frame = Frame { left: 58.0, right: 546.0, top: 26.0, bottom: 248.0 };

/// Returns the CSS class of a colour.
pub(crate) fn class(colour: Colour) -> String {
    match colour {
        Colour::Series(i) => format!("c{i}"),
        Colour::Group(i) => format!("c{i} g{i}"),
        Colour::Ordered(_) | Colour::Muted => "muted".to_owned(),
    }
}

/// Titles and legend of a plot.
#[derive(Debug, Clone, Default)]
pub(crate) struct Labels {
    pub(crate) title: String,
    /// Sentence under the title.
    pub(crate) note: String,
    pub(crate) x: String,
    pub(crate) y: String,
    pub(crate) legend: Vec<Key>,
}

impl Labels {
    pub(crate) fn new(
        title: impl Into<String>,
        note: impl Into<String>,
        x: impl Into<String>,
        y: impl Into<String>,
    ) -> Self {
        Self { title: title.into(), note: note.into(), x: x.into(), y: y.into(), legend: Vec::new() }
    }
}

#[derive(Debug, Clone, Serialize)]
struct Entry {
    class: String,
    name: String,
    dashed: bool,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Plot {
    title: String,
    note: String,
    legend: Vec<Entry>,
    /// CSS class of a group of runs: the page hides the plot together with the group. Empty for a plot of all groups.
    class: String,
    svg: Markup,
}

impl Plot {
    /// Marks the plot as belonging to the group of runs with this colour.
    pub(crate) fn of_group(self, colour: usize) -> Self {
        Self { class: format!("g{colour}"), ..self }
    }

    fn new(labels: Labels, x: Axis, y: Axis, curves: Vec<Curve>, tiles: Vec<Tile>) -> Self {
        let Labels { title, note, legend, x: x_label, y: y_label } = labels;
        let (x, y) = (Axis { label: x_label, ..x }, Axis { label: y_label, ..y });
        let panel = Panel { tiles, ..Panel::new(title, x, y, curves) };
        let attribute = |axis: &Axis, (start, end): (f64, f64)| {
            let kind = if axis.scale == Scale::Linear { "linear" } else { "log" };
            format!("{kind} {} {} {start} {end}", axis.range.0, axis.range.1)
        };
        let svg = format!(
            "<svg class=\"plot\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\" data-x=\"{}\" data-y=\"{}\" data-format=\"{}\" data-xname=\"{}\">{}</svg>",
            SIZE.0,
            SIZE.1,
            escape(&panel.title),
            attribute(&panel.x, (FRAME.left, FRAME.right)),
            attribute(&panel.y, (FRAME.bottom, FRAME.top)),
            if panel.y.format == Notation::Percent { "percent" } else { "number" },
            escape(&panel.x.label),
            Drawing { panel: &panel, frame: FRAME, paint: class }.draw(),
        );
        let entry = |k: Key| Entry { class: class(k.colour), name: k.name, dashed: k.dashed };
        let legend = legend.into_iter().map(entry).collect();
        Self { title: panel.title, note, legend, class: String::new(), svg: Markup(svg) }
    }
}

/// Curves over steps or over k.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lines {
    pub(crate) labels: Labels,
    pub(crate) curves: Vec<Curve>,
    pub(crate) x: Scale,
    pub(crate) y: Scale,
    pub(crate) format: Notation,
    /// Values that the vertical axis always includes, such as 0.
    pub(crate) show: Vec<f64>,
}

impl Lines {
    /// Returns the plot, or `None` if no point can be drawn.
    pub(crate) fn draw(self) -> Option<Plot> {
        let has_place = |scale: Scale, v: f64| v.is_finite() && (scale == Scale::Linear || v > 0.0);
        let drawable = |p: &(f64, f64)| has_place(self.x, p.0) && has_place(self.y, p.1);
        let points = || self.curves.iter().flat_map(|c| &c.points).copied().filter(drawable);
        let xs = range(points().map(|p| p.0))?;
        let bands = self.curves.iter().flat_map(|c| &c.band).flat_map(|b| [b.0, b.1]);
        let ys = points().map(|p| p.1).chain(self.show.iter().copied()).chain(bands);
        let ys = range(ys.filter(|&y| has_place(self.y, y)))?;
        let xs = match (self.x, xs.1 > xs.0) {
            (_, true) => xs,
            (Scale::Linear, false) => (xs.0 - 1.0, xs.1 + 1.0),
            (_, false) => (xs.0 / 2.0, xs.1 * 2.0),
        };
        let ys = match self.y {
            Scale::Linear if self.format == Notation::Percent => {
                let (low, high) = padded(ys);
                (low.max(ys.0.min(0.0)), high.min(ys.1.max(1.0)))
            }
            Scale::Linear => padded(ys),
            _ if ys.1 > ys.0 * 1.01 => (ys.0 / 1.15, ys.1 * 1.15),
            _ => (ys.0 / 2.0, ys.1 * 2.0),
        };
        let (x, y) = (Axis::new("", self.x, xs.0, xs.1), Axis::new("", self.y, ys.0, ys.1));
        let mut labels = self.labels;
        for same in identical(&self.curves) {
            let space = if labels.note.is_empty() { "" } else { " " };
            labels.note.push_str(&format!("{space}Equal everywhere: {}.", same.join(", ")));
        }
        Some(Plot::new(labels, x, Axis { format: self.format, ..y }, self.curves, Vec::new()))
    }
}

/// Returns the names of main curves that have the same points and so hide each other.
fn identical(curves: &[Curve]) -> Vec<Vec<&str>> {
    let mut sets: Vec<Vec<&Curve>> = Vec::new();
    let read = |curve: &&Curve| !curve.faint && curve.name.is_some() && !curve.points.is_empty();
    for curve in curves.iter().filter(read) {
        match sets.iter_mut().find(|set| set[0].points == curve.points) {
            Some(set) => set.push(curve),
            None => sets.push(vec![curve]),
        }
    }
    sets.retain(|set| set.len() > 1);
    sets.iter().map(|set| set.iter().filter_map(|curve| curve.name.as_deref()).collect()).collect()
}

/// Names of the bins of a success rate in percent.
const BINS: [&str; 6] = ["0", "\u{2264} 25", "\u{2264} 50", "\u{2264} 75", "< 100", "100"];

/// Plots the fractions of problems by success rate, with bars side by side for the sets. Each set has a name, a colour
/// and the success rates of its problems. Sets without problems are left out. Returns `None` if all sets are empty.
pub(crate) fn success_rates(labels: Labels, sets: &[(String, Colour, Vec<f64>)]) -> Option<Plot> {
    let shares = |rates: &[f64]| {
        let mut shares = [0.0; BINS.len()];
        for &rate in rates {
            let bin = match rate {
                r if r <= 0.0 => 0,
                r if r >= 1.0 => 5,
                r => (4.0 * r).ceil() as usize,
            };
            shares[bin] += 1.0 / rates.len() as f64;
        }
        shares
    };
    let sets: Vec<_> = sets.iter().filter(|s| !s.2.is_empty()).map(|s| (s, shares(&s.2))).collect();
    let top = sets.iter().flat_map(|s| s.1).fold(0.0, f64::max);
    if top <= 0.0 {
        return None;
    }
    let width = 0.8 / sets.len() as f64;
    let tiles = sets.iter().enumerate().flat_map(|(s, ((name, colour, _), shares))| {
        shares.iter().enumerate().map(move |(b, &share)| {
            let left = b as f64 + 0.1 + s as f64 * width;
            Tile {
                x: (left, left + 0.97 * width),
                y: (0.0, share),
                colour: *colour,
                opacity: 0.85,
                title: format!("{name}: {} of problems, success rate {} %", percent(share), BINS[b]),
            }
        })
    });
    let bins = BINS.map(str::to_owned).to_vec();
    let x = Axis { bins, ..Axis::new("", Scale::Linear, 0.0, BINS.len() as f64) };
    Some(Plot::new(labels, x, percentages(0.0, (top * 1.06).min(1.0)), Vec::new(), tiles.collect()))
}

/// Maximum number of columns in a distribution over steps. If there are more steps, neighbouring steps are averaged.
const COLUMNS: usize = 100;

/// Draws a heat map of `rows`, each a step and the counts of the bins from 0 to 1. Returns `None` if there are no rows.
pub(crate) fn heat(labels: Labels, colour: Colour, rows: &[(f64, &[u64])]) -> Option<Plot> {
    let (first, last) = range(rows.iter().map(|r| r.0))?;
    let bins = rows.iter().map(|r| r.1.len()).max().unwrap_or(0);
    if bins < 2 {
        return None;
    }
    let columns: Vec<(f64, f64, Vec<f64>)> = rows
        .chunks(rows.len().div_ceil(COLUMNS))
        .map(|part| {
            let mut shares = vec![0.0; bins];
            for (_, counts) in part {
                shares.iter_mut().zip(*counts).for_each(|(share, count)| *share += *count as f64);
            }
            let total: f64 = shares.iter().sum();
            shares.iter_mut().for_each(|s| *s /= total.max(f64::MIN_POSITIVE));
            (part[0].0, part[part.len() - 1].0, shares)
        })
        .collect();
    // Small groups can't reach all bins, so used bins extend halfway to their used neighbours.
    let used: Vec<usize> = (0..bins).filter(|&b| columns.iter().any(|c| c.2[b] > 0.0)).collect();
    let half = 0.5 * (last - first).max(1.0) / (columns.len().max(2) - 1) as f64;
    let bin = 1.0 / (bins - 1) as f64;
    let edge = |i: usize| match i {
        0 => first - half,
        i if i == columns.len() => last + half,
        i => 0.5 * (columns[i - 1].1 + columns[i].0),
    };
    let mut tiles = Vec::new();
    for (i, (from, to, shares)) in columns.iter().enumerate() {
        let steps = if from == to { format!("step {from}") } else { format!("steps {from} to {to}") };
        for (u, &b) in used.iter().enumerate().filter(|u| shares[*u.1] > 0.0) {
            let between = |a: usize, b: usize| 0.5 * (a + b) as f64 * bin;
            let low = if u == 0 { (b as f64 - 0.5) * bin } else { between(used[u - 1], b) };
            let high = if u + 1 == used.len() { (b as f64 + 0.5) * bin } else { between(b, used[u + 1]) };
            let (share, rate) = (percent(shares[b]), percent(b as f64 * bin));
            tiles.push(Tile {
                x: (edge(i), edge(i + 1)),
                y: (low, high),
                colour,
                // The square root makes small shares visible.
                opacity: shares[b].sqrt(),
                title: format!("{steps}: {share} of groups near {rate} correct"),
            });
        }
    }
    let x = Axis::new("", Scale::Linear, first - half, last + half);
    Some(Plot::new(labels, x, percentages(-bin / 2.0, 1.0 + bin / 2.0), Vec::new(), tiles))
}

/// Part of a stack: name, colour and value at each step.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) colour: Colour,
    pub(crate) values: Vec<f64>,
}

/// Draws stacked bars of the parts' mean values over ranges of steps. If `shares`, each bar is divided by its height.
/// Returns `None` if no value is above 0.
pub(crate) fn stack(labels: Labels, steps: &[f64], parts: &[Part], shares: bool) -> Option<Plot> {
    if steps.is_empty() || parts.iter().all(|p| p.values.iter().all(|v| *v <= 0.0)) {
        return None;
    }
    let stretch = steps.len().div_ceil(COLUMNS);
    let mean = |values: &[f64]| values.iter().map(|v| v.max(0.0)).sum::<f64>() / values.len() as f64;
    let half = 0.5 * (steps[steps.len() - 1] - steps[0]).max(1.0) / (steps.len().max(2) - 1) as f64;
    let (mut tiles, mut top) = (Vec::new(), 0f64);
    for from in (0..steps.len()).step_by(stretch) {
        let end = (from + stretch).min(steps.len());
        let means: Vec<f64> = parts.iter().map(|p| mean(&p.values[from..end])).collect();
        let total = if shares { means.iter().sum::<f64>().max(f64::MIN_POSITIVE) } else { 1.0 };
        let mut below = 0.0;
        for (part, value) in parts.iter().zip(means).filter(|p| p.1 > 0.0) {
            let high = below + value / total;
            let label = if shares { percent(value / total) } else { number(value) };
            tiles.push(Tile {
                x: (steps[from] - half, steps[end - 1] + half),
                y: (below, high),
                colour: part.colour,
                opacity: 0.85,
                title: format!("{}: {label} (steps {} to {})", part.name, steps[from], steps[end - 1]),
            });
            below = high;
        }
        top = top.max(below);
    }
    let x = Axis::new("", Scale::Linear, steps[0] - half, steps[steps.len() - 1] + half);
    let y = if shares { percentages(0.0, 1.0) } else { Axis::new("", Scale::Linear, 0.0, top * 1.04) };
    let legend = parts.iter().map(|p| Key::new(&p.name, p.colour, false)).collect();
    Some(Plot::new(Labels { legend, ..labels }, x, y, Vec::new(), tiles))
}

fn percentages(from: f64, to: f64) -> Axis {
    Axis { format: Notation::Percent, ..Axis::new("", Scale::Linear, from, to) }
}

/// Returns the range of the finite values, or `None` if no value is finite.
fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|v| v.is_finite()).fold(None, |range, v| match range {
        None => Some((v, v)),
        Some((low, high)) => Some((low.min(v), high.max(v))),
    })
}

/// Adds a margin to a range, even if the range contains a single value.
fn padded((low, high): (f64, f64)) -> (f64, f64) {
    if high > low {
        let air = 0.06 * (high - low);
        // There is no margin below 0.
        return (if low >= 0.0 && low - air < 0.0 { 0.0 } else { low - air }, high + air);
    }
    match low {
        0.0 => (0.0, 1.0),
        v => (v - 0.1 * v.abs(), v + 0.1 * v.abs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: Vec<(f64, f64)>, y: Scale) -> String {
        let curves = vec![Curve::new("a <b>", Colour::Series(0), points)];
        Lines { curves, y, ..Lines::default() }.draw().map_or_else(String::new, |f| f.svg.0)
    }

    #[test]
    fn nothing_to_draw_makes_no_plot() {
        assert_eq!(plot(vec![], Scale::Linear), "");
        assert_eq!(plot(vec![(1.0, f64::NAN)], Scale::Linear), "");
        assert_eq!(plot(vec![(1.0, 0.0)], Scale::Log10), "", "zero has no logarithm");
    }

    #[test]
    fn missing_values_break_the_curve() {
        let html = plot(vec![(0.0, 1.0), (1.0, f64::NAN), (2.0, 2.0), (3.0, 1.0)], Scale::Linear);
        let d = html.split(" d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(d.matches('M').count(), 2, "{d}");
        assert!(html.contains("a &lt;b&gt;") && !html.contains("NaN"));
        assert!(html.contains("class=\"c0 curve solid\""), "the script reads colours off the first class");
    }

    #[test]
    fn equal_values_still_have_an_axis_with_height() {
        for value in [0.0, 5.0, -2.0] {
            let (low, high) = padded((value, value));
            assert!(low < high && low <= value && value <= high);
        }
    }
}
