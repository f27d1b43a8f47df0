//! Figures as data: panels of curves and tiles on two axes. Drawing them is the binary's.

/// A colour by its meaning; the drawing chooses its shade.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Colour {
    /// The `i`-th of colours that stay apart.
    Series(usize),
    /// The same colour for the `i`-th of compared runs, which a page can hide.
    Group(usize),
    /// A place from 0 to 1 on a path of colours, for ordered curves.
    Ordered(f64),
    /// Grey, for references.
    Muted,
}

/// The colours that stay apart for colour-blind readers.
pub const PALETTE: [Colour; 7] = [
    Colour::Series(0),
    Colour::Series(1),
    Colour::Series(2),
    Colour::Series(3),
    Colour::Series(4),
    Colour::Series(5),
    Colour::Muted,
];

/// The `i`-th of `n` ordered colours.
pub fn ordered_colour(i: usize, n: usize) -> Colour {
    Colour::Ordered(i as f64 / (n.max(2) - 1) as f64)
}

/// The scale of an axis.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scale {
    /// Linear.
    #[default]
    Linear,
    /// Logarithmic, with ticks at powers of two.
    Log2,
    /// Logarithmic, with ticks at powers of ten.
    Log10,
}

/// How the values of an axis read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Notation {
    /// Three or four digits.
    #[default]
    Number,
    /// A fraction as a percentage.
    Percent,
}

/// One axis.
#[derive(Debug, Clone, Default)]
pub struct Axis {
    /// Its label.
    pub label: String,
    /// The first and the last value.
    pub range: (f64, f64),
    /// Its scale.
    pub scale: Scale,
    /// How its values read.
    pub format: Notation,
    /// Names of bins of width 1 from 0 on, in place of ticks.
    pub bins: Vec<String>,
}

impl Axis {
    /// An axis.
    pub fn new(label: impl Into<String>, scale: Scale, from: f64, to: f64) -> Self {
        Self { label: label.into(), range: (from, to), scale, ..Self::default() }
    }

    /// A value on a linear scale.
    pub fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value,
            Scale::Log2 | Scale::Log10 => value.log2(),
        }
    }

    /// The place of a value between the ends of the axis, 0 to 1.
    pub fn share(&self, value: f64) -> f64 {
        let (from, to) = (self.place(self.range.0), self.place(self.range.1));
        (self.place(value) - from) / (to - from)
    }
}

/// One curve.
#[derive(Debug, Clone)]
pub struct Curve {
    /// Its name; `None` leaves it out of the legend.
    pub name: Option<String>,
    /// Its points in order of x. A point that isn't finite is a gap.
    pub points: Vec<(f64, f64)>,
    /// Lower and upper edge of a band, point for point; may be empty.
    pub band: Vec<(f64, f64)>,
    /// Its colour.
    pub colour: Colour,
    /// Dashed: a second quantity or a reference.
    pub dashed: bool,
    /// Faint: raw values behind a smoothed curve, or one seed of several.
    pub faint: bool,
    /// Points marked by a dot.
    pub dots: bool,
    /// Where a star marks its peak.
    pub star: Option<(f64, f64)>,
}

impl Curve {
    /// A solid curve.
    pub fn new(name: impl Into<String>, colour: Colour, points: Vec<(f64, f64)>) -> Self {
        Self {
            name: Some(name.into()),
            points,
            band: Vec::new(),
            colour,
            dashed: false,
            faint: false,
            dots: false,
            star: None,
        }
    }
}

/// A filled rectangle: a bar, a part of a stack, a cell of a heat map.
#[derive(Debug, Clone)]
pub struct Tile {
    /// Its edges on the horizontal axis.
    pub x: (f64, f64),
    /// Its edges on the vertical axis.
    pub y: (f64, f64),
    /// Its colour.
    pub colour: Colour,
    /// Opacity, 0 to 1.
    pub opacity: f64,
    /// What it shows, in words.
    pub title: String,
}

/// A shaded stretch of the horizontal axis.
#[derive(Debug, Clone)]
pub struct Zone {
    /// Its edges.
    pub range: (f64, f64),
    /// Names at the top: left of it, inside, right of it.
    pub names: [String; 3],
}

/// Where the legend stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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
    /// At the ends of the curves if they are few, else where it covers least of them.
    #[default]
    Free,
}

/// An entry of a legend.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// The name.
    pub name: String,
    /// The colour.
    pub colour: Colour,
    /// Whether its sample is dashed.
    pub dashed: bool,
}

impl Key {
    /// An entry.
    pub fn new(name: impl Into<String>, colour: Colour, dashed: bool) -> Self {
        Self { name: name.into(), colour, dashed }
    }
}

/// One panel.
#[derive(Debug, Clone, Default)]
pub struct Panel {
    /// Its title.
    pub title: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Rectangles, below the curves.
    pub tiles: Vec<Tile>,
    /// Curves, drawn in order.
    pub curves: Vec<Curve>,
    /// Shaded stretch.
    pub zone: Option<Zone>,
    /// Legend entries without a curve.
    pub keys: Vec<Key>,
    /// Where the legend stands.
    pub legend: Legend,
}

impl Panel {
    /// A panel of curves.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis, curves: Vec<Curve>) -> Self {
        Self { title: title.into(), x, y, curves, ..Self::default() }
    }

    /// Every entry of the legend.
    pub fn entries(&self) -> Vec<Key> {
        let named = self.curves.iter().filter_map(|c| Some(Key::new(c.name.clone()?, c.colour, c.dashed)));
        named.chain(self.keys.iter().cloned()).collect()
    }
}

/// Panels side by side.
#[derive(Debug, Clone, Default)]
pub struct Figure {
    /// The panels, left to right.
    pub panels: Vec<Panel>,
}

/// Weight of the newest value in a smoothed reward, as in the paper's plots.
pub const EMA: f64 = 0.08;

/// Exponential moving average `y = 0.08 x + 0.92 y`, from the first value; gaps are stepped over.
pub fn smoothed(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut mean: Option<f64> = None;
    let mut smooth = Vec::with_capacity(points.len());
    for &(x, value) in points.iter().filter(|p| p.1.is_finite()) {
        let next = mean.map_or(value, |m| EMA * value + (1.0 - EMA) * m);
        mean = Some(next);
        smooth.push((x, next));
    }
    smooth
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reward_is_smoothed_as_in_the_papers_plots() {
        let found = smoothed(&[(1.0, 1.0), (2.0, 0.0), (3.0, f64::NAN), (4.0, 1.0)]);
        assert_eq!(found.iter().map(|p| p.0).collect::<Vec<_>>(), [1.0, 2.0, 4.0]);
        for (found, wanted) in found.iter().zip([1.0, 0.92, 0.08 + 0.92 * 0.92]) {
            assert!((found.1 - wanted).abs() < 1e-15);
        }
    }
}
