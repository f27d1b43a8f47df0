//! Figures as data: panels of curves and tiles on two axes. The binary draws them.

/// A colour by its meaning. The renderer chooses the shade.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Colour {
    /// The `i`-th of several distinguishable colours.
    Series(usize),
    /// The colour of the `i`-th compared run, whose curves a page can hide together.
    Group(usize),
    /// A position from 0 to 1 on a colour gradient, for ordered curves.
    Ordered(f64),
    /// Grey, for references.
    Muted,
}

/// Colours that colour-blind readers can distinguish.
pub const PALETTE: [Colour; 7] = [
    Colour::Series(0),
    Colour::Series(1),
    Colour::Series(2),
    Colour::Series(3),
    Colour::Series(4),
    Colour::Series(5),
    Colour::Muted,
];

/// Returns the `i`-th of `n` ordered colours.
pub fn ordered_colour(i: usize, n: usize) -> Colour {
    Colour::Ordered(i as f64 / (n.max(2) - 1) as f64)
}

/// Scale of an axis.
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

/// Number format of an axis.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Notation {
    /// Three or four digits.
    #[default]
    Number,
    /// A fraction as a percentage.
    Percent,
}

/// An axis of a panel.
#[derive(Debug, Clone, Default)]
pub struct Axis {
    /// Label of the axis.
    pub label: String,
    /// First and last value of the axis.
    pub range: (f64, f64),
    /// Linear or logarithmic.
    pub scale: Scale,
    /// Format of the tick labels.
    pub format: Notation,
    /// Names of bins of width 1 that start at 0, shown in place of ticks.
    pub bins: Vec<String>,
}

impl Axis {
    /// Creates an axis from one value to another.
    pub fn new(label: impl Into<String>, scale: Scale, from: f64, to: f64) -> Self {
        Self { label: label.into(), range: (from, to), scale, ..Self::default() }
    }

    /// Transforms a value to a linear scale.
    pub fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value,
            Scale::Log2 | Scale::Log10 => value.log2(),
        }
    }

    /// Returns the position of a value between the ends of the axis, from 0 to 1.
    pub fn share(&self, value: f64) -> f64 {
        let (from, to) = (self.place(self.range.0), self.place(self.range.1));
        (self.place(value) - from) / (to - from)
    }
}

/// A curve of a panel.
#[derive(Debug, Clone)]
pub struct Curve {
    /// Name in the legend. If `None`, the legend leaves the curve out.
    pub name: Option<String>,
    /// Points in order of x. A point that isn't finite is a gap.
    pub points: Vec<(f64, f64)>,
    /// Lower and upper edge of a band, one pair per point. If empty, a band isn't drawn.
    pub band: Vec<(f64, f64)>,
    /// Colour of the line.
    pub colour: Colour,
    /// Whether the line is dashed, for a second quantity or a reference.
    pub dashed: bool,
    /// Whether the line is faint, for the raw values of a smoothed curve or for one of several seeds.
    pub faint: bool,
    /// Whether points are marked by dots.
    pub dots: bool,
    /// Position of the star that marks the peak.
    pub star: Option<(f64, f64)>,
}

impl Curve {
    /// Creates a solid curve without markers.
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

/// A filled rectangle: a bar, a part of a stacked bar, or a cell of a heat map.
#[derive(Debug, Clone)]
pub struct Tile {
    /// Edges on the horizontal axis.
    pub x: (f64, f64),
    /// Edges on the vertical axis.
    pub y: (f64, f64),
    /// Fill colour.
    pub colour: Colour,
    /// Opacity, 0 to 1.
    pub opacity: f64,
    /// Tooltip: a description of the value that the tile shows.
    pub title: String,
}

/// A shaded section of the horizontal axis.
#[derive(Debug, Clone)]
pub struct Zone {
    /// Edges of the section.
    pub range: (f64, f64),
    /// Labels at the top: left of the section, inside it, and right of it.
    pub names: [String; 3],
}

/// Position of the legend in a panel.
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
    /// At the ends of the curves if there are few curves, and otherwise at the position that covers the least of them.
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
    /// Whether the line sample is dashed.
    pub dashed: bool,
}

impl Key {
    /// Creates an entry with this name.
    pub fn new(name: impl Into<String>, colour: Colour, dashed: bool) -> Self {
        Self { name: name.into(), colour, dashed }
    }
}

/// A panel of a figure.
#[derive(Debug, Clone, Default)]
pub struct Panel {
    /// Title above the panel.
    pub title: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Rectangles, below the curves.
    pub tiles: Vec<Tile>,
    /// Curves, drawn in order.
    pub curves: Vec<Curve>,
    /// Shaded section of the horizontal axis.
    pub zone: Option<Zone>,
    /// Legend entries without a curve.
    pub keys: Vec<Key>,
    /// Position of the legend.
    pub legend: Legend,
}

impl Panel {
    /// Creates a panel with these curves.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis, curves: Vec<Curve>) -> Self {
        Self { title: title.into(), x, y, curves, ..Self::default() }
    }

    /// Returns all entries of the legend.
    pub fn entries(&self) -> Vec<Key> {
        let named = self.curves.iter().filter_map(|c| Some(Key::new(c.name.clone()?, c.colour, c.dashed)));
        named.chain(self.keys.iter().cloned()).collect()
    }
}

/// A figure: panels side by side.
#[derive(Debug, Clone, Default)]
pub struct Figure {
    /// The panels, left to right.
    pub panels: Vec<Panel>,
}

/// Weight of the newest value in a smoothed reward, as in the paper's plots.
const EMA: f64 = 0.08;

/// Returns the exponential moving average `y = 0.08 x + 0.92 y`, starting at the first value. Leaves out points that aren't finite.
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
        let smooth = smoothed(&[(1.0, 1.0), (2.0, 0.0), (3.0, f64::NAN), (4.0, 1.0)]);
        assert_eq!(smooth.iter().map(|p| p.0).collect::<Vec<_>>(), [1.0, 2.0, 4.0]);
        for (point, mean) in smooth.iter().zip([1.0, 0.92, 0.08 + 0.92 * 0.92]) {
            assert!((point.1 - mean).abs() < 1e-15);
        }
    }
}
