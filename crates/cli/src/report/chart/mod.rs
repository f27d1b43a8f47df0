//! Plots as SVG inside a page: frame, axes and number formats; one file per kind of plot.
//!
//! Colours are classes of the page's style (`c0` to `c7`), so that light and dark pages share one plot. The page's
//! script reads values back off the paths by the frame's attributes; without the script a plot is still whole.

pub(super) mod bars;
pub(super) mod heat;
pub(super) mod lines;
pub(super) mod maze;
pub(super) mod stack;

use super::format::{escape, number, percent};
use super::templates::Markup;
use serde::Serialize;
use std::fmt::Write;

/// Width of a plot's drawing in its own units.
const WIDTH: f64 = 560.0;
/// Its height.
const HEIGHT: f64 = 290.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 42.0;

/// How an axis maps values to places.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Scale {
    #[default]
    Linear,
    /// Logarithmic with ticks at powers of two.
    Log2,
    /// Logarithmic with ticks at powers of ten.
    Log10,
    /// A list of bins, which are named where they are drawn: without ticks.
    Bins,
}

/// How values read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Format {
    /// Three or four digits.
    #[default]
    Number,
    /// A fraction as a percentage.
    Percent,
}

impl Format {
    pub(super) fn text(self, value: f64) -> String {
        match self {
            Self::Number => number(value),
            Self::Percent => percent(value),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::Percent => "percent",
        }
    }
}

/// One axis: its range of values on a range of places.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    pub(super) scale: Scale,
    pub(super) from: f64,
    pub(super) to: f64,
    start: f64,
    end: f64,
}

impl Axis {
    fn x(scale: Scale, from: f64, to: f64) -> Self {
        Self { scale, from, to, start: LEFT, end: WIDTH - RIGHT }
    }

    fn y(scale: Scale, from: f64, to: f64) -> Self {
        Self { scale, from, to, start: HEIGHT - BOTTOM, end: TOP }
    }

    fn inner(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear | Scale::Bins => value,
            Scale::Log2 | Scale::Log10 => value.log2(),
        }
    }

    /// The place of a value.
    fn at(&self, value: f64) -> f64 {
        let (from, to) = (self.inner(self.from), self.inner(self.to));
        self.start + (self.inner(value) - from) / (to - from) * (self.end - self.start)
    }

    /// Where ticks stand.
    fn ticks(&self, wanted: usize) -> Vec<f64> {
        match self.scale {
            Scale::Linear => linear_ticks(self.from, self.to, wanted),
            Scale::Log2 => power_ticks(2.0, self.from, self.to, 2 * wanted),
            Scale::Log10 => {
                let powers = power_ticks(10.0, self.from, self.to, wanted);
                // With fewer than two powers of ten, 1, 2 and 5 times them; with fewer than two of those, even steps.
                [powers, decade_ticks(self.from, self.to)]
                    .into_iter()
                    .find(|ticks| ticks.len() > 1)
                    .unwrap_or_else(|| linear_ticks(self.from, self.to, wanted))
            }
            Scale::Bins => Vec::new(),
        }
    }

    fn attributes(&self, axis: char) -> String {
        let kind = if matches!(self.scale, Scale::Log2 | Scale::Log10) { "log" } else { "linear" };
        format!("data-{axis}=\"{kind} {} {} {} {}\"", self.from, self.to, self.start, self.end)
    }
}

fn linear_ticks(from: f64, to: f64, wanted: usize) -> Vec<f64> {
    let rough = (to - from) / wanted.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|m| m * power)
        .find(|s| *s >= rough * 0.999)
        .unwrap_or(power * 10.0);
    let (first, last) = ((from / step - 1e-9).ceil() as i64, (to / step + 1e-9).floor() as i64);
    (first..=last).map(|i| i as f64 * step).collect()
}

fn power_ticks(base: f64, from: f64, to: f64, wanted: usize) -> Vec<f64> {
    let exponent = |x: f64| x.ln() / base.ln();
    let (first, last) = ((exponent(from) - 1e-9).ceil() as i32, (exponent(to) + 1e-9).floor() as i32);
    let every = ((last - first).max(0) as usize / wanted.max(1) + 1) as i32;
    (first..=last).filter(|i| (i - first) % every == 0).map(|i| base.powi(i)).collect()
}

/// 1, 2 and 5 times powers of ten.
fn decade_ticks(from: f64, to: f64) -> Vec<f64> {
    let exponents = from.log10().floor() as i32..=to.log10().ceil() as i32;
    let all = exponents.flat_map(|e| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(e)));
    all.filter(|t| (from * (1.0 - 1e-9)..=to * (1.0 + 1e-9)).contains(t)).collect()
}

/// What stands around a plot's drawing.
#[derive(Debug, Clone, Default)]
pub(super) struct Labels {
    pub(super) title: String,
    /// One sentence under the title: what is shown, and what to look for.
    pub(super) note: String,
    /// The name of the horizontal axis.
    pub(super) x: String,
    /// The name of the vertical axis.
    pub(super) y: String,
    pub(super) legend: Vec<Key>,
}

impl Labels {
    /// Labels without a legend.
    pub(super) fn new(
        title: impl Into<String>,
        note: impl Into<String>,
        x: impl Into<String>,
        y: impl Into<String>,
    ) -> Self {
        Self { title: title.into(), note: note.into(), x: x.into(), y: y.into(), legend: Vec::new() }
    }
}

/// An entry of a legend.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Key {
    /// Colour class.
    pub(super) class: String,
    pub(super) name: String,
    pub(super) dashed: bool,
}

/// A plot as the page shows it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Figure {
    title: String,
    note: String,
    legend: Vec<Key>,
    /// The class by which the page hides the plot with its group of runs; empty for a plot of all groups.
    class: String,
    svg: Markup,
}

impl Figure {
    /// A plot of one group of runs, by its colour.
    pub(super) fn of_group(self, colour: usize) -> Self {
        Self { class: format!("g{colour}"), ..self }
    }
}

/// A plot with its title, legend, axes and what `draw` puts between them.
fn figure(labels: Labels, x: Axis, y: Axis, format: Format, draw: impl FnOnce(&mut String)) -> Figure {
    let mut svg = String::new();
    let (left, right, top, bottom) = (LEFT, WIDTH - RIGHT, TOP, HEIGHT - BOTTOM);
    let _ = write!(
        svg,
        "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\" {} {} data-format=\"{}\" data-xname=\"{}\">",
        escape(&labels.title),
        x.attributes('x'),
        y.attributes('y'),
        format.name(),
        escape(&labels.x),
    );
    for (value, label) in labelled(&y.ticks(5), format) {
        let at = y.at(value);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text class=\"tick end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            left - 7.0,
            at + 4.0,
            label,
        );
    }
    for value in x.ticks(6) {
        let at = x.at(value);
        let _ = write!(
            svg,
            "<line class=\"mark\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{bottom}\" y2=\"{:.1}\"/><text class=\"tick mid\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>",
            bottom + 4.0,
            bottom + 17.0,
            number(value),
        );
    }
    let _ = write!(
        svg,
        "<text class=\"axis mid\" x=\"{:.1}\" y=\"{:.1}\">{}</text><text class=\"axis\" x=\"2\" y=\"{:.1}\">{}</text>",
        (left + right) / 2.0,
        HEIGHT - 4.0,
        escape(&labels.x),
        top - 11.0,
        escape(&labels.y),
    );
    draw(&mut svg);
    let _ = write!(
        svg,
        "<line class=\"base\" x1=\"{left}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/></svg>"
    );
    let Labels { title, note, legend, .. } = labels;
    Figure { title, note, legend, class: String::new(), svg: Markup(svg) }
}

/// Ticks with their labels; where short ones read alike, with as many digits as tell them apart.
fn labelled(ticks: &[f64], format: Format) -> Vec<(f64, String)> {
    let short: Vec<String> = ticks.iter().map(|&t| format.text(t)).collect();
    let alike = short.windows(2).any(|w| w[0] == w[1]);
    let digits = ticks.windows(2).map(|w| (w[1] - w[0]).abs()).fold(f64::INFINITY, f64::min);
    let digits =
        if digits > 0.0 { (-(digits * 1.000_001).log10().floor()).clamp(0.0, 9.0) as usize } else { 0 };
    let long = |t: f64| match format {
        Format::Number => format!("{t:.digits$}").replace('-', "\u{2212}"),
        Format::Percent => {
            format!("{:.1$}\u{a0}%", 100.0 * t, digits.saturating_sub(2)).replace('-', "\u{2212}")
        }
    };
    ticks.iter().zip(short).map(|(&t, short)| (t, if alike { long(t) } else { short })).collect()
}

/// The range of values, nothing if there is none that is finite.
fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|v| v.is_finite()).fold(None, |range, v| match range {
        None => Some((v, v)),
        Some((low, high)) => Some((low.min(v), high.max(v))),
    })
}

/// A range with some air around it, and with some height where all values are one.
fn padded((low, high): (f64, f64)) -> (f64, f64) {
    if high > low {
        let air = 0.06 * (high - low);
        // Zero is a floor, not a value to leave air under.
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

    #[test]
    fn ticks_are_round_and_inside_the_axis() {
        assert_eq!(linear_ticks(0.0, 1.0, 5), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(linear_ticks(3.0, 97.0, 5), [20.0, 40.0, 60.0, 80.0]);
        assert_eq!(power_ticks(2.0, 1.0, 64.0, 12), [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]);
        assert_eq!(power_ticks(10.0, 0.05, 200.0, 5), [0.1, 1.0, 10.0, 100.0]);
        assert_eq!(decade_ticks(0.15, 3.0), [0.2, 0.5, 1.0, 2.0]);
    }

    #[test]
    fn ticks_that_would_read_alike_get_more_digits() {
        let words =
            |ticks: &[f64]| labelled(ticks, Format::Number).into_iter().map(|l| l.1).collect::<Vec<_>>();
        assert_eq!(words(&[1.0, 1.001, 1.002]), ["1.000", "1.001", "1.002"]);
        assert_eq!(words(&[0.5, 1.0, 1.5]), ["0.5", "1", "1.5"]);
    }

    #[test]
    fn equal_values_still_have_an_axis_with_height() {
        for value in [0.0, 5.0, -2.0] {
            let (low, high) = padded((value, value));
            assert!(low < high && low <= value && value <= high);
        }
    }
}
