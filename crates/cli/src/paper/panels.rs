//! Curves, panels and axes of the figures of trained models.

use super::measured::Resampled;
use crate::output::plot::{Axis, Curve, Legend, Panel, Scale};
use plotters::style::RGBColor;

/// Values by x with their band.
pub(super) fn banded(name: impl Into<String>, colour: RGBColor, points: &[(f64, Resampled)]) -> Curve {
    Curve {
        dots: true,
        band: points.iter().map(|(_, r)| r.interval()).collect(),
        ..Curve::new(name, colour, points.iter().map(|(x, r)| (*x, r.value)).collect())
    }
}

/// A panel without a zone.
pub(super) fn panel(title: impl Into<String>, x: Axis, y: Axis, curves: Vec<Curve>, legend: Legend) -> Panel {
    Panel { title: title.into(), x, y, curves, zone: None, styles: vec![], legend }
}

/// The axis of group sizes, in powers of two.
pub(super) fn sizes_axis(sizes: &[f64]) -> Axis {
    let low = sizes.iter().copied().fold(f64::INFINITY, f64::min);
    let high = sizes.iter().copied().fold(2.0, f64::max);
    Axis::new("Group size N", Scale::Log2, low.min(high) / 1.19, high * 1.19)
}

/// An axis that holds every point and band of the curves with some room.
pub(super) fn around(label: impl Into<String>, curves: &[Curve], at_most: f64) -> Axis {
    let bands = curves.iter().flat_map(|c| &c.band).flat_map(|b| [b.0, b.1]);
    let all: Vec<f64> =
        curves.iter().flat_map(|c| &c.points).map(|p| p.1).chain(bands).filter(|v| v.is_finite()).collect();
    let low = all.iter().copied().fold(f64::INFINITY, f64::min);
    let high = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let room = 0.08 * (high - low).max(1e-3);
    Axis::new(label, Scale::Linear, (low - room).max(0.0), (high + room).min(at_most))
}
