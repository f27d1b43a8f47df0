//! Draws charts as SVG, for pages and for standalone figures: axes, tiles and curves.
//!
//! On a page, colours are CSS classes (`c0` to `c7`), so that a plot works in light and dark mode. The page's script reads
//! values from the paths by means of the frame's attributes.

pub(crate) mod alone;
mod axis;
pub(crate) mod page;

use crate::output::format::escape;
use fgrpo_eval::figure::{Colour, Curve, Panel};
use std::fmt::Write;

/// Position of a panel's axes in the drawing.
#[derive(Debug, Clone, Copy)]
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

/// A panel in its frame. `paint` returns the class or attribute that gives an element its colour.
struct Drawing<'a> {
    panel: &'a Panel,
    frame: Frame,
    paint: fn(Colour) -> String,
}

/// Approximate maximum number of points drawn for a curve: see [`thinned`].
const POINTS: usize = 700;

impl Drawing<'_> {
    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let f = self.frame;
        let across = f.left + self.panel.x.share(x) * (f.right - f.left);
        (across, f.bottom - self.panel.y.share(y) * (f.bottom - f.top))
    }

    /// Draws the contents of the panel, with ticks and names of the axes.
    fn draw(&self) -> String {
        let mut svg = self.axes();
        for tile in &self.panel.tiles {
            let (left, high) = self.at((tile.x.0, tile.y.1));
            let (right, low) = self.at((tile.x.1, tile.y.0));
            let _ = write!(
                svg,
                "<rect{} x=\"{left:.1}\" y=\"{high:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill-opacity=\"{:.2}\"><title>{}</title></rect>",
                self.class("cell", tile.colour),
                (right - left).max(0.5),
                low - high,
                tile.opacity,
                escape(&tile.title),
            );
        }
        self.panel.curves.iter().for_each(|curve| self.band(&mut svg, curve));
        // Faint curves are below the main ones.
        for faint in [true, false] {
            self.panel
                .curves
                .iter()
                .filter(|c| c.faint == faint)
                .for_each(|curve| self.curve(&mut svg, curve));
        }
        for curve in &self.panel.curves {
            if let Some(peak) = curve.star {
                let _ =
                    write!(svg, "<path{} d=\"{}\"/>", self.class("star", curve.colour), star(self.at(peak)));
            }
        }
        let Frame { left, right, bottom, .. } = self.frame;
        let _ = write!(
            svg,
            "<line class=\"base\" x1=\"{left}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/>"
        );
        svg
    }

    /// Returns the attributes for the class and colour of an element.
    fn class(&self, class: &str, colour: Colour) -> String {
        match (self.paint)(colour) {
            // The script reads the colour from the first class.
            name if !name.contains('=') => format!(" class=\"{name} {class}\""),
            attribute => format!(" class=\"{class}\" {attribute}"),
        }
    }

    fn axes(&self) -> String {
        let (panel, Frame { left, right, top, bottom }) = (self.panel, self.frame);
        let mut svg = String::new();
        if let Some(zone) = &panel.zone {
            let place = |x: f64| left + panel.x.share(x).clamp(0.0, 1.0) * (right - left);
            let (from, to) = (place(zone.range.0), place(zone.range.1));
            let _ = write!(
                svg,
                "<rect class=\"zone\" x=\"{from:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                to - from,
                bottom - top
            );
            for (name, (a, b)) in zone.names.iter().zip([(left, from), (from, to), (to, right)]) {
                svg += &text(r#" class="tick mid""#, ((a + b) / 2.0, top + 14.0), name);
            }
        }
        for (value, label) in axis::ticks(&panel.y, bottom - top, axis::Along::Height) {
            let y = self.at((panel.x.range.0, value)).1;
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>{}",
                text(r#" class="tick end""#, (left - 7.0, y + 4.0), &label)
            );
        }
        for (value, label) in axis::ticks(&panel.x, right - left, axis::Along::Width) {
            let x = self.at((value, panel.y.range.0)).0;
            let _ = write!(
                svg,
                "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{:.1}\"/>{}",
                bottom + 4.0,
                text(r#" class="tick mid""#, (x, bottom + 17.0), &label)
            );
        }
        for (i, name) in panel.x.bins.iter().enumerate() {
            let x = self.at((i as f64 + 0.5, panel.y.range.0)).0;
            svg += &text(r#" class="tick mid label""#, (x, bottom + 17.0), name);
        }
        for (i, name) in panel.y.bins.iter().enumerate() {
            let y = self.at((panel.x.range.0, i as f64 + 0.5)).1;
            svg += &text(r#" class="tick end""#, (left - 7.0, y + 4.0), name);
        }
        svg += &text(r#" class="axis mid""#, ((left + right) / 2.0, bottom + 38.0), &panel.x.label);
        let above = escape(&panel.y.label);
        svg + &format!("<text class=\"axis\" x=\"2\" y=\"{:.1}\">{above}</text>", top - 11.0)
    }

    /// Returns whether a point can be drawn. 0 can't be drawn on a logarithmic axis.
    fn drawable(&self, (x, y): (f64, f64)) -> bool {
        self.panel.x.place(x).is_finite() && self.panel.y.place(y).is_finite()
    }

    fn band(&self, svg: &mut String, curve: &Curve) {
        let floor = self.panel.y.range.0;
        // On a logarithmic axis a band may reach down to 0.
        let on_axis = |y: f64| if self.panel.y.place(y).is_finite() { y } else { floor };
        let edges = curve.points.iter().zip(&curve.band).filter(|(_, b)| b.0.is_finite() && b.1.is_finite());
        let edges: Vec<((f64, f64), (f64, f64))> =
            edges.map(|(p, b)| (self.at((p.0, on_axis(b.0))), self.at((p.0, on_axis(b.1))))).collect();
        match edges.as_slice() {
            [] => {}
            [((x, low), (_, high))] => {
                let class = self.class("whisker", curve.colour);
                let _ = write!(
                    svg,
                    "<line{class} x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{low:.1}\" y2=\"{high:.1}\"/>"
                );
            }
            several => {
                let around = several.iter().map(|e| e.1).chain(several.iter().rev().map(|e| e.0));
                let around: Vec<String> = around.map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
                let class = self.class("band", curve.colour);
                let _ = write!(svg, "<path{class} d=\"M{}Z\"/>", around.join("L"));
            }
        }
    }

    fn curve(&self, svg: &mut String, curve: &Curve) {
        let points = thinned(&curve.points, POINTS);
        let (mut d, mut pen_down, mut drawn) = (String::new(), false, Vec::new());
        for &point in &points {
            // A gap in the data is a gap in the curve.
            if !self.drawable(point) {
                pen_down = false;
                continue;
            }
            let (x, y) = self.at(point);
            let _ = write!(d, "{}{x:.1} {y:.2}", if pen_down { 'L' } else { 'M' });
            pen_down = true;
            drawn.push((x, y));
        }
        let kind = match curve {
            c if c.faint => "curve faint",
            c if c.dashed => "curve dash",
            _ => "curve solid",
        };
        let name = escape(curve.name.as_deref().unwrap_or_default());
        let _ = write!(svg, "<path{} data-name=\"{name}\" d=\"{d}\"/>", self.class(kind, curve.colour));
        if (curve.dots || drawn.len() == 1) && drawn.len() <= 60 {
            let class = self.class("dot", curve.colour);
            for (x, y) in drawn {
                let _ = write!(svg, "<circle{class} cx=\"{x:.1}\" cy=\"{y:.2}\" r=\"2.6\"/>");
            }
        }
    }
}

fn text(attributes: &str, (x, y): (f64, f64), text: &str) -> String {
    format!("<text{attributes} x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(text))
}

/// Returns the path of a five-pointed star.
fn star((x, y): (f64, f64)) -> String {
    let corner = |i: u32| {
        let angle = f64::from(i) * std::f64::consts::PI / 5.0;
        let radius = if i.is_multiple_of(2) { 7.5 } else { 3.2 };
        format!("{:.1} {:.1}", x + radius * angle.sin(), y - radius * angle.cos())
    };
    format!("M{}Z", (0..10).map(corner).collect::<Vec<_>>().join("L"))
}

/// Reduces points to about `limit` that look the same: the smallest and the largest of every stretch.
fn thinned(points: &[(f64, f64)], limit: usize) -> Vec<(f64, f64)> {
    if points.len() <= limit {
        return points.to_vec();
    }
    let stretch = points.len().div_ceil(limit / 2);
    let mut extremes = Vec::with_capacity(limit + 2);
    for part in points.chunks(stretch) {
        let ends = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        if let (Some(low), Some(high)) = (part.iter().min_by(ends), part.iter().max_by(ends)) {
            let (first, second) = if low.0 <= high.0 { (low, high) } else { (high, low) };
            extremes.push(*first);
            if second.0 > first.0 {
                extremes.push(*second);
            }
        }
    }
    if extremes.last() != points.last() {
        extremes.extend(points.last());
    }
    extremes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_the_spikes_and_the_ends() {
        let mut points: Vec<(f64, f64)> = (0..20_000).map(|i| (f64::from(i), 1.0)).collect();
        points[7_777].1 = 50.0;
        points[12_345].1 = -3.0;
        let subset = thinned(&points, 700);
        assert!(subset.len() <= 702);
        assert!(subset.contains(&(7_777.0, 50.0)) && subset.contains(&(12_345.0, -3.0)));
        assert_eq!((subset[0].0, subset[subset.len() - 1].0), (0.0, 19_999.0));
        assert!(subset.windows(2).all(|w| w[0].0 < w[1].0));
    }
}
