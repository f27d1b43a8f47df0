//! The legend of a panel: what it names, and where it stands.

use super::{Axis, DASH, Panel, pixels, stroke, text};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Where the legend stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Legend {
    /// In the upper left corner of the panel.
    UpperLeft,
    /// In the middle of the upper edge.
    Upper,
    /// In the upper right corner.
    UpperRight,
    /// In the lower left corner.
    LowerLeft,
    /// In the lower right corner.
    LowerRight,
    /// In the middle of the left edge.
    Left,
    /// In the middle of the right edge.
    Right,
    /// In the corner, or at the edge, where it covers least of the curves.
    Free,
}

/// Where a legend may stand that is placed by what it covers, the preferred place first.
const PLACES: [Legend; 6] = [
    Legend::UpperRight,
    Legend::LowerRight,
    Legend::UpperLeft,
    Legend::LowerLeft,
    Legend::Right,
    Legend::Left,
];

/// Points looked at between two neighbours of a curve.
const STEPS: i32 = 24;

impl Panel {
    pub(super) fn draw_legend<DB: DrawingBackend>(
        &self,
        plot: &DrawingArea<DB, Shift>,
        (width, height): (i32, i32),
    ) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
        let curves = self.curves.iter().filter_map(|c| Some((c.name.clone()?, c.colour, c.dashed)));
        let entries: Vec<_> = curves.chain(self.styles.iter().cloned()).collect();
        let (row, sample, gap) = (pixels(16.0), pixels(24.0), pixels(6.0));
        let mut widest = 0;
        for (name, ..) in &entries {
            widest = widest.max(plot.estimate_text_size(name, &text(12.5))?.0 as i32);
        }
        let size = (sample + 3 * gap + widest, row * entries.len() as i32 + gap);
        if entries.is_empty() {
            return Ok(());
        }
        let margin = pixels(7.0);
        let below_names = if self.zone.is_some() { pixels(20.0) } else { 0 };
        let place = |legend: Legend| {
            let x = match legend {
                Legend::UpperLeft | Legend::LowerLeft | Legend::Left => margin,
                Legend::UpperRight | Legend::LowerRight | Legend::Right | Legend::Free => {
                    width - size.0 - margin
                }
                Legend::Upper => (width - size.0) / 2,
            };
            let y = match legend {
                Legend::UpperLeft | Legend::Upper | Legend::UpperRight | Legend::Free => margin + below_names,
                Legend::LowerLeft | Legend::LowerRight => height - size.1 - margin,
                Legend::Left | Legend::Right => (height - size.1) / 2,
            };
            (x, y)
        };
        let (x, y) = match self.legend {
            Legend::Free => {
                let ink = self.ink((width, height));
                let covered = |(x, y): &(i32, i32)| {
                    let under = |p: &&(i32, i32)| {
                        (*x..*x + size.0).contains(&p.0) && (*y..*y + size.1).contains(&p.1)
                    };
                    ink.iter().filter(under).count()
                };
                PLACES.into_iter().map(place).min_by_key(covered).unwrap_or_default()
            }
            fixed => place(fixed),
        };
        let corners = [(x, y), (x + size.0, y + size.1)];
        plot.draw(&Rectangle::new(corners, WHITE.mix(0.85).filled()))?;
        plot.draw(&Rectangle::new(corners, stroke(RGBColor(205, 205, 205), 0.75)))?;
        for (i, (name, colour, dashed)) in entries.into_iter().enumerate() {
            let middle = y + gap / 2 + row * i as i32 + row / 2;
            let (from, to) = (x + gap, x + gap + sample);
            let (dash, space) = if dashed { (pixels(DASH.0), pixels(DASH.1)) } else { (sample, 1) };
            let mut at = from;
            while at < to {
                let end = (at + dash).min(to);
                plot.draw(&PathElement::new([(at, middle), (end, middle)], stroke(colour, 1.8)))?;
                at = end + space;
            }
            let style = text(12.5).pos(Pos::new(HPos::Left, VPos::Center));
            plot.draw(&Text::new(name, (to + gap, middle), style))?;
        }
        Ok(())
    }

    /// Points along the curves, and along the edges of their bands, in pixels of the plot.
    fn ink(&self, (width, height): (i32, i32)) -> Vec<(i32, i32)> {
        let share = |axis: &Axis, value: f64| {
            let (low, high) = (axis.place(axis.range.0), axis.place(axis.range.1));
            (axis.place(value) - low) / (high - low)
        };
        let at = |(x, y): (f64, f64)| {
            (share(&self.x, x) * f64::from(width), (1.0 - share(&self.y, y)) * f64::from(height))
        };
        let mut ink = Vec::new();
        for curve in &self.curves {
            let edge = |of: fn(&(f64, f64)) -> f64| -> Vec<(f64, f64)> {
                curve.points.iter().zip(&curve.band).map(|(p, b)| (p.0, of(b))).collect()
            };
            for line in [curve.points.clone(), edge(|b| b.0), edge(|b| b.1)] {
                let line: Vec<(f64, f64)> =
                    line.into_iter().map(at).filter(|p| p.0.is_finite() && p.1.is_finite()).collect();
                let between = |pair: &[(f64, f64)]| {
                    let [from, to] = [pair[0], pair[1]];
                    (0..STEPS).map(move |i| {
                        let part = f64::from(i) / f64::from(STEPS);
                        (from.0 + (to.0 - from.0) * part, from.1 + (to.1 - from.1) * part)
                    })
                };
                ink.extend(line.windows(2).flat_map(between).chain(line.last().copied()));
            }
        }
        ink.into_iter().map(|(x, y)| (x as i32, y as i32)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::*;

    #[test]
    fn a_free_legend_stands_where_no_curve_is() {
        let placed = |points: Vec<(f64, f64)>| {
            let panel = Panel {
                title: String::new(),
                x: Axis::new("", Scale::Linear, 0.0, 1.0),
                y: Axis::new("", Scale::Linear, 0.0, 1.0),
                curves: vec![Curve::new("curve", PALETTE[0], points)],
                zone: None,
                styles: vec![],
                legend: Legend::Free,
            };
            let svg = Figure { panels: vec![panel] }.svg().unwrap();
            let name = svg.split("<text").find(|t| t.contains("curve")).unwrap().to_owned();
            let number = |key: &str| -> f64 {
                let (_, after) = name.split_once(&format!(" {key}=\"")).unwrap();
                after.split_once('"').unwrap().0.parse().unwrap()
            };
            (number("x") > 430.0 * 2.0, number("y") > 360.0 * 2.0)
        };
        let (right, low) = (true, true);
        assert_eq!(placed(vec![(0.0, 1.0), (0.5, 0.1), (1.0, 0.1)]), (right, !low));
        assert_eq!(placed(vec![(0.0, 0.0), (0.5, 0.9), (1.0, 0.95)]), (right, low));
        let falls = vec![(0.5, 0.07), (0.9, 0.07), (0.9, 0.93), (0.05, 0.93)];
        assert_eq!(placed(falls), (!right, low));
    }
}
