//! Curves over steps or over k.

use super::{Axis, Figure, Format, Labels, Scale, escape, figure, padded, range};
use std::fmt::Write;

/// A plot draws at most so many points of a curve; the largest and smallest of each stretch are kept.
const POINTS: usize = 700;

/// How a curve is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Stroke {
    /// The curve to read.
    Solid,
    /// A second quantity or a reference.
    Dashed,
    /// Raw values behind a smoothed curve, or one seed of several.
    Faint,
    /// Few points: drawn with dots.
    Dotted,
}

/// One curve.
#[derive(Debug, Clone)]
pub(in super::super) struct Curve {
    pub(in super::super) name: String,
    /// Colour class, `c0` to `c7` or `muted`.
    pub(in super::super) class: String,
    pub(in super::super) stroke: Stroke,
    /// In order of x.
    pub(in super::super) points: Vec<(f64, f64)>,
    /// (x, low, high) of an interval around the curve.
    pub(in super::super) band: Vec<(f64, f64, f64)>,
}

impl Curve {
    /// A curve without an interval.
    pub(in super::super) fn new(
        name: impl Into<String>,
        class: impl Into<String>,
        stroke: Stroke,
        points: Vec<(f64, f64)>,
    ) -> Self {
        Self { name: name.into(), class: class.into(), stroke, points, band: Vec::new() }
    }
}

/// A plot of curves.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Lines {
    pub(in super::super) labels: Labels,
    pub(in super::super) curves: Vec<Curve>,
    pub(in super::super) x: Scale,
    pub(in super::super) y: Scale,
    pub(in super::super) format: Format,
    /// Values that the vertical axis shows whatever the data, such as 0.
    pub(in super::super) show: Vec<f64>,
}

impl Lines {
    /// The plot; none when there is nothing to draw.
    pub(in super::super) fn draw(&self) -> Option<Figure> {
        let drawable = |&(x, y): &(f64, f64)| {
            x.is_finite()
                && y.is_finite()
                && (self.x == Scale::Linear || x > 0.0)
                && (self.y == Scale::Linear || y > 0.0)
        };
        let points = || self.curves.iter().flat_map(|c| &c.points).copied().filter(|p| drawable(p));
        let xs = range(points().map(|p| p.0))?;
        let bands = self.curves.iter().flat_map(|c| &c.band).flat_map(|b| [b.1, b.2]);
        let ys = points().map(|p| p.1).chain(self.show.iter().copied()).chain(bands);
        let ys = range(ys.filter(|&y| self.y == Scale::Linear || y > 0.0))?;
        let xs = match (self.x, xs.1 > xs.0) {
            (_, true) => xs,
            (Scale::Linear, false) => (xs.0 - 1.0, xs.1 + 1.0),
            (_, false) => (xs.0 / 2.0, xs.1 * 2.0),
        };
        let ys = match self.y {
            Scale::Linear if self.format == Format::Percent => {
                let (low, high) = padded(ys);
                (low.max(ys.0.min(0.0)), high.min(ys.1.max(1.0)))
            }
            Scale::Linear => padded(ys),
            _ if ys.1 > ys.0 * 1.01 => (ys.0 / 1.15, ys.1 * 1.15),
            _ => (ys.0 / 2.0, ys.1 * 2.0),
        };
        let (x, y) = (Axis::x(self.x, xs.0, xs.1), Axis::y(self.y, ys.0, ys.1));
        Some(figure(self.labels.clone(), x, y, self.format, |svg| {
            for curve in &self.curves {
                self.band(svg, curve, x, y);
            }
            // Faint curves lie under the ones to read.
            let (under, over): (Vec<_>, Vec<_>) = self.curves.iter().partition(|c| c.stroke == Stroke::Faint);
            for curve in under.into_iter().chain(over) {
                path(svg, curve, x, y, drawable);
            }
        }))
    }

    fn band(&self, svg: &mut String, curve: &Curve, x: Axis, y: Axis) {
        let band: Vec<_> = curve.band.iter().filter(|b| b.1.is_finite() && b.2.is_finite()).collect();
        if band.len() < 2 {
            for b in band {
                let (at, low, high) = (x.at(b.0), y.at(b.1), y.at(b.2));
                let _ = write!(
                    svg,
                    "<line class=\"{} whisker\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{low:.1}\" y2=\"{high:.1}\"/>",
                    curve.class
                );
            }
            return;
        }
        let floor = |v: f64| if self.y == Scale::Linear { v } else { v.max(y.from) };
        let upper = band.iter().map(|b| (b.0, b.2));
        let lower = band.iter().rev().map(|b| (b.0, b.1));
        let around: Vec<String> =
            upper.chain(lower).map(|(at, v)| format!("{:.1} {:.1}", x.at(at), y.at(floor(v)))).collect();
        let _ = write!(svg, "<path class=\"{} band\" d=\"M{}Z\"/>", curve.class, around.join("L"));
    }
}

fn path(svg: &mut String, curve: &Curve, x: Axis, y: Axis, drawable: impl Fn(&(f64, f64)) -> bool) {
    let points = thinned(&curve.points, POINTS);
    let mut d = String::new();
    let mut pen_down = false;
    for point in &points {
        // A gap in the data is a gap in the curve.
        if !drawable(point) {
            pen_down = false;
            continue;
        }
        let _ = write!(d, "{}{:.1} {:.2}", if pen_down { 'L' } else { 'M' }, x.at(point.0), y.at(point.1));
        pen_down = true;
    }
    let kind = match curve.stroke {
        Stroke::Solid | Stroke::Dotted => "solid",
        Stroke::Dashed => "dash",
        Stroke::Faint => "faint",
    };
    let name = escape(&curve.name);
    let _ = write!(svg, "<path class=\"{} curve {kind}\" data-name=\"{name}\" d=\"{d}\"/>", curve.class);
    let drawn = points.iter().filter(|p| drawable(p)).count();
    if (curve.stroke == Stroke::Dotted || drawn == 1) && drawn <= 60 {
        for point in points.iter().filter(|p| drawable(p)) {
            let _ = write!(
                svg,
                "<circle class=\"{} dot\" cx=\"{:.1}\" cy=\"{:.2}\" r=\"2.6\"/>",
                curve.class,
                x.at(point.0),
                y.at(point.1)
            );
        }
    }
}

/// At most about `limit` points that look like all of them: of every stretch the smallest and the largest.
fn thinned(points: &[(f64, f64)], limit: usize) -> Vec<(f64, f64)> {
    if points.len() <= limit {
        return points.to_vec();
    }
    let stretch = points.len().div_ceil(limit / 2);
    let mut kept = Vec::with_capacity(limit + 2);
    for part in points.chunks(stretch) {
        let ends = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        if let (Some(low), Some(high)) = (part.iter().min_by(ends), part.iter().max_by(ends)) {
            let (first, second) = if low.0 <= high.0 { (low, high) } else { (high, low) };
            kept.push(*first);
            if second.0 > first.0 {
                kept.push(*second);
            }
        }
    }
    if kept.last() != points.last() {
        kept.extend(points.last());
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: Vec<(f64, f64)>, y: Scale) -> String {
        let curves = vec![Curve::new("a <b>", "c0", Stroke::Solid, points)];
        Lines { curves, y, ..Lines::default() }.draw().map_or_else(String::new, |f| f.svg.0)
    }

    #[test]
    fn nothing_to_draw_makes_no_figure() {
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
    }

    #[test]
    fn thinning_keeps_the_spikes_and_the_ends() {
        let mut points: Vec<(f64, f64)> = (0..20_000).map(|i| (f64::from(i), 1.0)).collect();
        points[7_777].1 = 50.0;
        points[12_345].1 = -3.0;
        let kept = thinned(&points, 700);
        assert!(kept.len() <= 702);
        assert!(kept.contains(&(7_777.0, 50.0)) && kept.contains(&(12_345.0, -3.0)));
        assert_eq!((kept[0].0, kept[kept.len() - 1].0), (0.0, 19_999.0));
        assert!(kept.windows(2).all(|w| w[0].0 < w[1].0));
    }
}
