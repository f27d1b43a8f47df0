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
