//! Standalone figures as SVG: panels side by side with titles and legends.
//!
//! The background is opaque, so that a figure reads the same on light and dark pages.

use super::axis::width;
use super::{Drawing, Frame};
use crate::output::format::escape;
use fgrpo_eval::figure::{Colour, Curve, Figure, Key, Legend, Panel};
use fgrpo_eval::io::files::write_whole;
use std::fmt::Write;
use std::path::Path;

const PANEL: (f64, f64) = (430.0, 360.0);
const FRAME: Frame = Frame { left: 56.0, right: 408.0, top: 60.0, bottom: 314.0 };

const STYLE: &str = "text{fill:#40464f;font-family:sans-serif;font-size:12px}.title{fill:#16191f;font-size:15px}\
.end{text-anchor:end}.mid{text-anchor:middle}.direct{fill:currentColor}.background{fill:#fff}.zone{fill:#fadebe}\
.grid{stroke:#e4e4e4}.mark,.base{stroke:#5d6673}.curve{fill:none;stroke:currentColor;stroke-width:1.8;stroke-linejoin:round}\
.dash{stroke-dasharray:5 3.5}.faint{stroke-width:1;stroke-opacity:.35}.band{fill:currentColor;fill-opacity:.16}\
.whisker{stroke:currentColor;stroke-width:1.4}.cell,.dot{fill:currentColor}.star{fill:currentColor;stroke:#282828;stroke-width:.6}\
.box{fill:#fff;fill-opacity:.85;stroke:#cdcdcd}";

/// Colours that colour-blind readers can distinguish: the palette of Okabe and Ito, and an additional colour.
const SERIES: [(u8, u8, u8); 8] = [
    (0, 114, 178),
    (213, 94, 0),
    (0, 158, 115),
    (204, 121, 167),
    (230, 159, 0),
    (86, 180, 233),
    (0, 0, 0),
    (120, 94, 240),
];

/// Colour scale from dark violet over green to yellow-orange.
const PATH: [(u8, u8, u8); 5] = [(68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (240, 170, 20)];

fn paint(colour: Colour) -> String {
    let (r, g, b) = match colour {
        Colour::Series(i) | Colour::Group(i) => SERIES[i % SERIES.len()],
        Colour::Muted => (90, 90, 90),
        Colour::Ordered(share) => {
            let x = share.clamp(0.0, 1.0) * (PATH.len() - 1) as f64;
            let low = (x as usize).min(PATH.len() - 2);
            let (a, b) = (PATH[low], PATH[low + 1]);
            let mix = |a: u8, b: u8| {
                (f64::from(a) + (f64::from(b) - f64::from(a)) * (x - low as f64)).round() as u8
            };
            (mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
        }
    };
    format!("color=\"#{r:02x}{g:02x}{b:02x}\"")
}

/// Returns an error if the file name doesn't end in `.svg`. Commands call this before long work.
pub(crate) fn check_name(path: &Path) -> anyhow::Result<()> {
    let svg = path.with_extension("svg");
    match path.extension().and_then(|e| e.to_str()) {
        Some("svg") => Ok(()),
        Some("png") => bad_input!(
            "{0}: figures are written as .svg, which every browser shows; for a PNG, write {1} and convert it: rsvg-convert -z 2 -o {0} {1}, or inkscape --export-filename={0} {1}",
            path.display(),
            svg.display()
        ),
        _ => bad_input!("{}: expected a file name ending in .svg", path.display()),
    }
}

/// Writes a figure as SVG.
pub(crate) fn write(figure: &Figure, path: &Path) -> anyhow::Result<()> {
    check_name(path)?;
    write_whole(path, svg(figure).as_bytes())
}

pub(crate) fn svg(figure: &Figure) -> String {
    let (width, height) = (PANEL.0 * figure.panels.len() as f64, PANEL.1);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n<style>{STYLE}</style>\n<rect class=\"background\" width=\"{width}\" height=\"{height}\"/>\n"
    );
    for (i, panel) in figure.panels.iter().enumerate() {
        let _ =
            writeln!(svg, "<g transform=\"translate({},0)\">{}</g>", PANEL.0 * i as f64, panel_svg(panel));
    }
    svg + "</svg>\n"
}

fn panel_svg(panel: &Panel) -> String {
    let ends = direct_labels(panel);
    let right = match &ends {
        Some(ends) => PANEL.0 - 12.0 - ends.iter().map(|e| width(&e.name, 12.0)).fold(0.0, f64::max),
        None => FRAME.right,
    };
    let drawing = Drawing { panel, frame: Frame { right, ..FRAME }, paint };
    let title = format!(
        "<text class=\"title mid\" x=\"{:.1}\" y=\"24\">{}</text>",
        (FRAME.left + right) / 2.0,
        escape(&panel.title)
    );
    let curves = || panel.curves.iter().filter(|c| c.name.is_some());
    let names = match ends {
        Some(ends) => write_ends(&drawing, &ends),
        None if curves().all(|c| c.points.len() == 1) && panel.keys.is_empty() => write_points(&drawing),
        None => legend(&drawing),
    };
    title + &drawing.draw() + &names
}

/// Height of a line in a legend and among labels at the ends of curves.
const ROW: f64 = 15.0;

/// Returns the curves to label at their ends instead of in a legend, or `None` unless they are few, have short names
/// and reach the right edge, and nothing else needs a legend.
fn direct_labels(panel: &Panel) -> Option<Vec<Key>> {
    let named: Vec<&Curve> = panel.curves.iter().filter(|c| c.name.is_some()).collect();
    let reaches = |c: &&Curve| last(panel, c).is_some_and(|p| panel.x.share(p.0) > 0.9);
    let few = (1..=4).contains(&named.len()) && panel.keys.is_empty() && panel.zone.is_none();
    let fits = few && panel.legend == Legend::Free && named.iter().all(reaches);
    let keys = panel.entries();
    (fits && keys.iter().all(|k| width(&k.name, 12.0) < 110.0)).then_some(keys)
}

/// Returns the last point of a curve that can be drawn.
fn last(panel: &Panel, curve: &Curve) -> Option<(f64, f64)> {
    let placed = |p: &&(f64, f64)| panel.x.place(p.0).is_finite() && panel.y.place(p.1).is_finite();
    curve.points.iter().rev().find(placed).copied()
}

fn write_ends(drawing: &Drawing<'_>, keys: &[Key]) -> String {
    let named = drawing.panel.curves.iter().filter(|c| c.name.is_some());
    let height = |c: &Curve| last(drawing.panel, c).map_or(0.0, |p| drawing.at(p).1);
    let mut ends: Vec<(f64, &Key)> = named.map(height).zip(keys).collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Moves labels that overlap, in their order and within the panel.
    let mut lowest = FRAME.top + 4.0;
    for (y, _) in &mut ends {
        *y = y.max(lowest);
        lowest = *y + ROW;
    }
    let mut highest = FRAME.bottom;
    for (y, _) in ends.iter_mut().rev() {
        *y = y.min(highest);
        highest = *y - ROW;
    }
    let text = |(y, key): &(f64, &Key)| {
        let at = (drawing.frame.right + 6.0, y + 4.0);
        super::text(&drawing.class("direct", key.colour), at, &key.name)
    };
    ends.iter().map(text).collect()
}

/// Possible position of a name next to its point.
#[derive(Clone, Copy)]
struct Place {
    from: f64,
    to: f64,
    y: f64,
    /// Number of rows below the point.
    row: i32,
    /// Whether the name is to the right of the point.
    after: bool,
}

impl Place {
    fn covers(&self, (x, y): (f64, f64)) -> bool {
        (self.from - 3.0..self.to + 3.0).contains(&x) && (y - self.y).abs() < ROW / 2.0
    }

    /// Returns points along the line from `point` to the name. Empty if the name is in the row of its point.
    fn line(&self, point: (f64, f64)) -> impl Iterator<Item = (f64, f64)> {
        let end = (if self.after { self.from - 2.0 } else { self.to + 2.0 }, self.y);
        along(point, end).chain([end]).filter(move |_| self.row != 0)
    }
}

/// Labels single points, where names cover as little as possible. A line connects a point with a name in another row.
fn write_points(drawing: &Drawing<'_>) -> String {
    let mut ink = ink(drawing);
    let Frame { left, right, top, bottom } = drawing.frame;
    let mut labels: Vec<Place> = Vec::new();
    let mut svg = String::new();
    for curve in drawing.panel.curves.iter().filter(|c| c.name.is_some()) {
        let (Some(name), Some(point)) = (&curve.name, last(drawing.panel, curve)) else { continue };
        let at = drawing.at(point);
        let long = width(name, 12.0);
        let places = (-6..=6).flat_map(|row| [true, false].map(|after| (row, after)));
        let placed = places.map(|(row, after)| {
            let from = if after { at.0 + 8.0 } else { at.0 - 8.0 - long };
            Place { from, to: from + long, y: at.1 + ROW * f64::from(row), row, after }
        });
        let cost = |p: &Place| {
            let points = ink.iter().filter(|&&i| p.covers(i)).count();
            let meets = |t: &Place| t.from < p.to && p.from < t.to && (t.y - p.y).abs() < ROW;
            let hits = |t: &&Place| meets(t) || p.line(at).any(|i| t.covers(i));
            let names = labels.iter().filter(hits).count();
            let outside = p.from < left || p.to > right || !(top..bottom).contains(&p.y);
            let far = p.row.unsigned_abs() as usize;
            1000 * usize::from(outside) + 20 * names + 2 * points + 2 * far + usize::from(!p.after)
        };
        let Some(place) = placed.min_by_key(cost) else { continue };
        labels.push(place);
        ink.extend(place.line(at));
        if let Some((x, y)) = place.line(at).last() {
            let _ = write!(
                svg,
                "<path{} style=\"stroke-width:0.7\" d=\"M{:.1} {:.1}L{x:.1} {y:.1}\"/>",
                drawing.class("curve", curve.colour),
                at.0,
                at.1
            );
        }
        svg += &super::text(&drawing.class("direct", curve.colour), (place.from, place.y + 4.0), name);
    }
    svg
}

/// Candidate positions of a legend, in order of preference.
const PLACES: [Legend; 5] =
    [Legend::UpperRight, Legend::LowerRight, Legend::UpperLeft, Legend::LowerLeft, Legend::Left];

fn legend(drawing: &Drawing<'_>) -> String {
    let entries = drawing.panel.entries();
    if entries.is_empty() {
        return String::new();
    }
    const SAMPLE: f64 = 24.0;
    let Frame { left, right, top, bottom } = drawing.frame;
    let top = if drawing.panel.zone.is_some() { top + 20.0 } else { top };
    let widest = entries.iter().map(|e| width(&e.name, 12.0)).fold(0.0, f64::max);
    let size = (SAMPLE + 20.0 + widest, ROW * entries.len() as f64 + 6.0);
    let place = |legend: Legend| {
        let x = match legend {
            Legend::UpperLeft | Legend::LowerLeft | Legend::Left => left + 7.0,
            Legend::Upper => (left + right - size.0) / 2.0,
            Legend::UpperRight | Legend::LowerRight | Legend::Free => right - size.0 - 7.0,
        };
        let y = match legend {
            Legend::LowerLeft | Legend::LowerRight => bottom - size.1 - 7.0,
            Legend::Left => (top + bottom - size.1) / 2.0,
            Legend::UpperLeft | Legend::Upper | Legend::UpperRight | Legend::Free => top + 7.0,
        };
        (x, y)
    };
    let (x, y) = match drawing.panel.legend {
        Legend::Free => {
            let ink = ink(drawing);
            let covered = |(x, y): &(f64, f64)| {
                ink.iter()
                    .filter(|p| (*x..*x + size.0).contains(&p.0) && (*y..*y + size.1).contains(&p.1))
                    .count()
            };
            PLACES.into_iter().map(place).min_by_key(covered).unwrap_or_default()
        }
        fixed => place(fixed),
    };
    let mut svg = format!(
        "<rect class=\"box\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
        size.0, size.1
    );
    for (i, key) in entries.iter().enumerate() {
        let middle = y + 3.0 + ROW * (i as f64 + 0.5);
        let class = if key.dashed { "curve dash" } else { "curve" };
        let _ = write!(
            svg,
            "<path{} d=\"M{:.1} {middle:.1}h{SAMPLE}\"/>{}",
            drawing.class(class, key.colour),
            x + 6.0,
            super::text("", (x + SAMPLE + 12.0, middle + 4.0), &key.name)
        );
    }
    svg
}

/// Returns points on the line between two points.
fn along(from: (f64, f64), to: (f64, f64)) -> impl Iterator<Item = (f64, f64)> {
    const STEPS: i32 = 24;
    let part = |i| f64::from(i) / f64::from(STEPS);
    (0..STEPS).map(move |i| (from.0 + (to.0 - from.0) * part(i), from.1 + (to.1 - from.1) * part(i)))
}

/// Returns points along the curves and the edges of their bands.
fn ink(drawing: &Drawing<'_>) -> Vec<(f64, f64)> {
    let mut ink = Vec::new();
    for curve in &drawing.panel.curves {
        let edge = |bound: fn(&(f64, f64)) -> f64| -> Vec<(f64, f64)> {
            curve.points.iter().zip(&curve.band).map(|(p, b)| (p.0, bound(b))).collect()
        };
        for line in [curve.points.clone(), edge(|b| b.0), edge(|b| b.1)] {
            let placed = line.into_iter().map(|p| drawing.at(p));
            let line: Vec<(f64, f64)> = placed.filter(|p| p.0.is_finite() && p.1.is_finite()).collect();
            ink.extend(line.windows(2).flat_map(|pair| along(pair[0], pair[1])).chain(line.last().copied()));
        }
    }
    ink
}

#[cfg(test)]
mod tests {
    use super::*;
    use fgrpo_eval::figure::{Axis, PALETTE, Scale, Zone};

    fn figure() -> Figure {
        let mut curve = Curve::new("curve", PALETTE[0], (1..=10).map(|i| (f64::from(i), 0.1)).collect());
        curve.star = Some((5.0, 0.1));
        curve.dashed = true;
        let panel = Panel {
            zone: Some(Zone { range: (4.0, 64.0), names: ["I", "II", "III"].map(str::to_owned) }),
            keys: vec![Key::new("solid", PALETTE[1], false)],
            legend: Legend::UpperRight,
            ..Panel::new(
                "Title <&>",
                Axis::new("Group size N", Scale::Log2, 1.0, 1024.0),
                Axis::new("Probability", Scale::Linear, 0.0, 1.0),
                vec![curve],
            )
        };
        Figure { panels: vec![panel.clone(), panel] }
    }

    #[test]
    fn svg_has_the_figures_size_and_escaped_names() {
        let svg = svg(&figure());
        assert!(svg.contains("width=\"860\" height=\"360\" viewBox=\"0 0 860 360\""), "{}", &svg[..120]);
        for text in ["Title &lt;&amp;&gt;", "Group size N", "III", "class=\"background\""] {
            assert!(svg.contains(text), "{text}");
        }
    }

    fn placed(points: Vec<(f64, f64)>, keys: Vec<Key>) -> (f64, f64) {
        let axis = || Axis::new("", Scale::Linear, 0.0, 1.0);
        let curves = vec![Curve::new("curve", PALETTE[0], points)];
        let panel = Panel { keys, ..Panel::new("", axis(), axis(), curves) };
        let svg = svg(&Figure { panels: vec![panel] });
        text_at(&svg, "curve")
    }

    /// Returns the position at which a text begins.
    fn text_at(svg: &str, text: &str) -> (f64, f64) {
        let text = svg.split("<text").find(|t| t.contains(&format!(">{text}<"))).unwrap();
        let number = |key: &str| -> f64 {
            let (_, after) = text.split_once(&format!(" {key}=\"")).unwrap();
            after.split_once('"').unwrap().0.parse().unwrap()
        };
        (number("x"), number("y"))
    }

    #[test]
    fn a_free_legend_stands_where_no_curve_is() {
        let other = || vec![Key::new("other", PALETTE[1], false)];
        let quarter = |points| {
            let (x, y) = placed(points, other());
            (x > 215.0, y > 180.0)
        };
        let (right, low) = (true, true);
        assert_eq!(quarter(vec![(0.0, 1.0), (0.5, 0.1), (1.0, 0.1)]), (right, !low));
        assert_eq!(quarter(vec![(0.0, 0.0), (0.5, 0.9), (1.0, 0.95)]), (right, low));
        assert_eq!(quarter(vec![(0.5, 0.07), (0.9, 0.07), (0.9, 0.93), (0.05, 0.93)]), (!right, low));
    }

    #[test]
    fn few_curves_are_named_at_their_ends() {
        let (x, y) = placed(vec![(0.0, 0.0), (1.0, 0.5)], vec![]);
        assert!(x > 370.0 && (y - 191.0).abs() < 1.0, "{x} {y}");
    }

    #[test]
    fn a_line_to_a_name_crosses_no_other_name() {
        // Points from the arena's mazes. The name `grpo-kl` doesn't fit next to its point.
        let xs = [
            286, 290, 278, 288, 281, 315, 300, 285, 305, 318, 288, 305, 308, 307, 307, 292, 302, 323, 282,
            284, 311, 320,
        ];
        let ys = [68, 68, 68, 68, 65, 64, 61, 61, 59, 59, 58, 56, 55, 55, 53, 50, 42, 38, 36, 36, 31, 17];
        let dot = |name: Option<&str>, at: (i32, i32)| Curve {
            name: name.map(str::to_owned),
            ..Curve::new("", PALETTE[0], vec![(f64::from(at.0), f64::from(at.1))])
        };
        let named = [("f-grpo", (296, 129)), ("grpo-kl", (328, 68)), ("grpo", (318, 55))];
        let named = named.map(|(name, at)| dot(Some(name), at));
        let front = Curve { name: None, ..Curve::new("", PALETTE[0], vec![(296.0, 129.0), (328.0, 68.0)]) };
        let others = xs.into_iter().zip(ys).map(|at| dot(None, at));
        let curves = others.chain([front]).chain(named).collect();
        let (x, y) = (Axis::new("", Scale::Linear, 0.0, 352.0), Axis::new("", Scale::Linear, 0.0, 254.0));
        let svg = svg(&Figure { panels: vec![Panel::new("", x, y, curves)] });
        let (from, y) = text_at(&svg, "grpo");
        let grpo = Place { from, to: from + width("grpo", 12.0), y: y - 4.0, row: 0, after: true };
        let lines = svg.split("stroke-width:0.7\" d=\"M").skip(1).map(|line| {
            let line = line.split_once('"').unwrap().0.split(['L', ' ']).map(|n| n.parse::<f64>().unwrap());
            <[f64; 4]>::try_from(line.collect::<Vec<_>>()).unwrap()
        });
        // The line of a name ends next to it.
        let crossed =
            |[x, y, to_x, to_y]: [f64; 4]| along((x, y), (to_x, to_y)).any(|point| grpo.covers(point));
        let lines: Vec<[f64; 4]> = lines.filter(|line| line[3] != grpo.y).collect();
        assert!(!lines.is_empty() && !lines.iter().any(|&line| crossed(line)), "{svg}");
    }
}
