//! Sets of real numbers: unions of intervals and points, and the solutions of inequalities in one unknown.

use dashu_base::Sign;
use dashu_ratio::RBig;
use std::cmp::Ordering;

use super::ball::{Ball, Complex, Precision};
use super::budget::{Exhausted, Fuel};
use super::canonical;
use super::expr::{Constant, Expr, NumberSet, Relation};
use super::numeric::{self, Field, Point};

/// A real end of an interval.
#[derive(Debug, Clone)]
enum End {
    Below,
    At(Ball, f64),
    Above,
}

impl End {
    fn value(&self) -> f64 {
        match self {
            Self::Below => f64::NEG_INFINITY,
            Self::At(_, value) => *value,
            Self::Above => f64::INFINITY,
        }
    }

    /// Order of two ends; equal if the balls overlap, or agree to six decimals.
    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::At(a, x), Self::At(b, y)) => {
                let difference = a.subtract(b, Precision::level(1));
                if difference.holds_zero() || (x - y).abs() < 5e-7 * 1e-3 {
                    Ordering::Equal
                } else {
                    x.total_cmp(y)
                }
            }
            _ => self.value().total_cmp(&other.value()),
        }
    }
}

/// An interval, or a point if both ends are equal and closed.
#[derive(Debug, Clone)]
struct Piece {
    low: End,
    high: End,
    low_open: bool,
    high_open: bool,
}

impl Piece {
    fn contains(&self, at: &End) -> bool {
        let above = match self.low.compare(at) {
            Ordering::Less => true,
            Ordering::Equal => !self.low_open,
            Ordering::Greater => false,
        };
        let below = match at.compare(&self.high) {
            Ordering::Less => true,
            Ordering::Equal => !self.high_open,
            Ordering::Greater => false,
        };
        above && below
    }
}

/// A set expression as a tree of pieces.
enum Region {
    Pieces(Vec<Piece>),
    Union(Vec<Region>),
    Intersection(Vec<Region>),
    Difference(Box<[Region; 2]>),
}

impl Region {
    fn contains(&self, at: &End) -> bool {
        match self {
            Self::Pieces(pieces) => pieces.iter().any(|piece| piece.contains(at)),
            Self::Union(parts) => parts.iter().any(|part| part.contains(at)),
            Self::Intersection(parts) => parts.iter().all(|part| part.contains(at)),
            Self::Difference(pair) => pair[0].contains(at) && !pair[1].contains(at),
        }
    }

    fn ends(&self, ends: &mut Vec<End>) {
        match self {
            Self::Pieces(pieces) => {
                for piece in pieces {
                    ends.push(piece.low.clone());
                    ends.push(piece.high.clone());
                }
            }
            Self::Union(parts) | Self::Intersection(parts) => {
                for part in parts {
                    part.ends(ends);
                }
            }
            Self::Difference(pair) => {
                pair[0].ends(ends);
                pair[1].ends(ends);
            }
        }
    }
}

fn end(expr: &Expr, fuel: &mut Fuel) -> Result<Option<End>, Exhausted> {
    match expr {
        Expr::Constant(Constant::Infinity) => return Ok(Some(End::Above)),
        Expr::Constant(Constant::NegativeInfinity) => return Ok(Some(End::Below)),
        _ => {}
    }
    if expr.has_unknowns() {
        return Ok(None);
    }
    let mut point = Point::new(Field::None, 0, false);
    let value = numeric::evaluate(expr, &mut point, Precision::level(1), fuel)?;
    // An end that is not known to many digits is none.
    let known = |value: &Complex| value.is_real() && value.re.error_bound() < 1e-20;
    Ok(value.filter(known).map(|value| {
        let rough = value.re.to_f64();
        End::At(value.re, rough)
    }))
}

fn region(expr: &Expr, fuel: &mut Fuel) -> Result<Option<Region>, Exhausted> {
    fuel.spend(1)?;
    Ok(match expr {
        Expr::Interval(ends, low_open, high_open) => {
            let (Some(low), Some(high)) = (end(&ends[0], fuel)?, end(&ends[1], fuel)?) else {
                return Ok(None);
            };
            Some(Region::Pieces(vec![Piece { low, high, low_open: *low_open, high_open: *high_open }]))
        }
        Expr::Set(values) => {
            let mut pieces = Vec::with_capacity(values.len());
            for value in values {
                let Some(at) = end(value, fuel)? else { return Ok(None) };
                pieces.push(Piece { low: at.clone(), high: at, low_open: false, high_open: false });
            }
            Some(Region::Pieces(pieces))
        }
        Expr::NumberSet(NumberSet::Reals) => Some(Region::Pieces(vec![Piece {
            low: End::Below,
            high: End::Above,
            low_open: true,
            high_open: true,
        }])),
        Expr::Union(parts) => regions(parts, fuel)?.map(Region::Union),
        Expr::Intersection(parts) => regions(parts, fuel)?.map(Region::Intersection),
        Expr::Difference(pair) => {
            let (Some(first), Some(second)) = (region(&pair[0], fuel)?, region(&pair[1], fuel)?) else {
                return Ok(None);
            };
            Some(Region::Difference(Box::new([first, second])))
        }
        _ => None,
    })
}

fn regions(parts: &[Expr], fuel: &mut Fuel) -> Result<Option<Vec<Region>>, Exhausted> {
    let mut regions = Vec::with_capacity(parts.len());
    for part in parts {
        match region(part, fuel)? {
            Some(region) => regions.push(region),
            None => return Ok(None),
        }
    }
    Ok(Some(regions))
}

/// Distinct ends in order.
fn sorted(mut ends: Vec<End>) -> Vec<End> {
    ends.sort_by(|a, b| a.value().total_cmp(&b.value()));
    ends.dedup_by(|b, a| a.compare(b) == Ordering::Equal);
    ends
}

/// The finite ones among ends, in order.
fn finite(ends: &[End]) -> Vec<f64> {
    ends.iter().map(End::value).filter(|value| value.is_finite()).collect()
}

/// Whether an approximate value is this end.
fn near(at: f64, value: f64) -> bool {
    (value - at).abs() <= 1e-7 * (1.0 + at.abs())
}

/// Points inside each gap between these ordered values, and beyond them.
fn probes(finite: &[f64]) -> Vec<RBig> {
    let mut probes = Vec::new();
    let mut push = |value: f64| {
        if let Ok(value) = RBig::try_from(value) {
            probes.push(value);
        }
    };
    match (finite.first(), finite.last()) {
        (Some(first), Some(last)) => {
            for (part, whole) in [(0.37, 1.0), (1.93, 3.0), (57.3, 40.0)] {
                push(first - part - part * (last - first) / whole);
                push(last + part + part * (last - first) / whole);
            }
        }
        _ => {
            for value in [-31.7, -1.3, -0.2, 0.0, 0.3, 1.7, 29.3] {
                push(value);
            }
        }
    }
    for pair in finite.windows(2) {
        for share in [0.07, 0.41, 0.87] {
            push(pair[0] + share * (pair[1] - pair[0]));
        }
    }
    probes
}

fn probe_end(value: &RBig) -> End {
    End::At(Ball::from_rational(value, Precision::level(1)), value.to_f64().value())
}

/// Whether two sets of reals are the same; `None` if one is not a union of real intervals and points.
pub(super) fn same_set(first: &Expr, second: &Expr, fuel: &mut Fuel) -> Result<Option<bool>, Exhausted> {
    let (Some(a), Some(b)) = (region(first, fuel)?, region(second, fuel)?) else { return Ok(None) };
    let mut ends = Vec::new();
    a.ends(&mut ends);
    b.ends(&mut ends);
    let ends = sorted(ends);
    fuel.spend(ends.len() as u32 * 16)?;
    let inner = probes(&finite(&ends));
    let places =
        ends.iter().filter(|end| end.value().is_finite()).cloned().chain(inner.iter().map(probe_end));
    for place in places {
        if a.contains(&place) != b.contains(&place) {
            return Ok(Some(false));
        }
    }
    Ok(Some(true))
}

/// Whether the solutions of a relation in one unknown are the set; `None` if it can't be decided.
pub(super) fn solutions_are(relation: &Expr, set: &Expr, fuel: &mut Fuel) -> Result<Option<bool>, Exhausted> {
    let relation = &unknown_as_symbol(relation);
    let symbols = relation.symbols();
    let [name] = symbols[..] else { return Ok(None) };
    let Some(region) = region(set, fuel)? else { return Ok(None) };
    let mut ends = Vec::new();
    region.ends(&mut ends);
    let ends = sorted(ends);
    for place in &ends {
        let End::At(ball, _) = place else { continue };
        let mut point = Point::at(name, ball.clone());
        match holds(relation, &mut point, fuel)? {
            Some(holds) if holds != region.contains(place) => return Ok(Some(false)),
            Some(_) => {}
            None if region.contains(place) => return Ok(Some(false)),
            None => {}
        }
    }
    let links = match relation {
        Expr::Chain(links) => &links[..],
        other => std::slice::from_ref(other),
    };
    // Where a side changes its sign or is not defined; none where that isn't known.
    let mut breaks = Vec::with_capacity(links.len());
    for link in links {
        let Expr::Relation(_, pair) = link else { return Ok(None) };
        let difference = pair[0].clone().minus(pair[1].clone());
        breaks.push(canonical::zeros_and_poles(&difference, name, fuel)?);
    }
    // The relation's own bounds part the line too: a set without ends says nothing about where to look.
    let mut parts = finite(&ends);
    parts.extend(breaks.iter().flatten().flat_map(|(zeros, poles)| zeros.iter().chain(poles)));
    parts.sort_by(f64::total_cmp);
    parts.dedup_by(|b, a| near(*a, *b));
    let mut decided = false;
    for value in probes(&parts) {
        let place = probe_end(&value);
        let mut point = Point::at_rational(name, value);
        let holds = holds(relation, &mut point, fuel)?;
        decided |= holds.is_some();
        if holds.unwrap_or(false) != region.contains(&place) {
            return Ok(Some(false));
        }
    }
    if !decided {
        return Ok(None);
    }
    // Single points may be missing between the probes.
    for (link, breaks) in links.iter().zip(breaks) {
        let Expr::Relation(kind, pair) = link else { return Ok(None) };
        let Some((zeros, poles)) = breaks else {
            if pair.iter().any(|side| infinite(side).is_some()) {
                continue;
            }
            // Of other relations it can't be told that they hold everywhere, or nowhere.
            if ends.iter().any(|end| end.value().is_finite()) {
                continue;
            }
            return Ok(None);
        };
        let at_zero = matches!(kind, Relation::Equal | Relation::LessEqual | Relation::GreaterEqual);
        let places = zeros.iter().map(|zero| (*zero, at_zero)).chain(poles.iter().map(|pole| (*pole, false)));
        for (at, link_holds) in places {
            let Ok(value) = RBig::try_from(at) else { continue };
            // Ends were compared above.
            if ends.iter().any(|end| near(at, end.value())) {
                continue;
            }
            let mut all = link_holds;
            for other in links.iter().filter(|other| !std::ptr::eq(*other, link)) {
                let mut point = Point::at_rational(name, value.clone());
                all &= holds(other, &mut point, fuel)?.unwrap_or(false);
            }
            if all != region.contains(&probe_end(&value)) {
                return Ok(Some(false));
            }
        }
    }
    Ok(Some(true))
}

/// An unknown function of an unknown, alone in a relation, counts as the unknown.
fn unknown_as_symbol(relation: &Expr) -> Expr {
    match relation {
        Expr::Chain(links) => Expr::Chain(links.iter().map(unknown_as_symbol).collect()),
        Expr::Relation(kind, pair) => {
            Expr::relation(*kind, unknown_side_as_symbol(&pair[0]), unknown_side_as_symbol(&pair[1]))
        }
        other => other.clone(),
    }
}

fn unknown_side_as_symbol(side: &Expr) -> Expr {
    match side {
        Expr::Apply(name, _) => Expr::symbol(&format!("{name}()")),
        other => other.clone(),
    }
}

fn holds(relation: &Expr, point: &mut Point, fuel: &mut Fuel) -> Result<Option<bool>, Exhausted> {
    match relation {
        Expr::Chain(links) => {
            let mut all = true;
            for link in links {
                match holds(link, point, fuel)? {
                    Some(held) => all &= held,
                    None => return Ok(None),
                }
            }
            Ok(Some(all))
        }
        Expr::Relation(kind, pair) => {
            let precision = Precision::level(1);
            let (Some(left), Some(right)) = (
                numeric::evaluate(&pair[0], point, precision, fuel)?,
                numeric::evaluate(&pair[1], point, precision, fuel)?,
            ) else {
                return Ok(infinite_side(*kind, pair));
            };
            let difference = left.subtract(&right, precision);
            if !difference.is_real() && !difference.im.holds_zero() {
                return Ok(None);
            }
            // Zero inside a small ball is zero.
            if difference.re.holds_zero() && difference.re.log2_bound() > -40.0 {
                return Ok(None);
            }
            let order = difference.re.sign().unwrap_or(Ordering::Equal);
            Ok(Some(match kind {
                Relation::Equal => order.is_eq(),
                Relation::NotEqual => order.is_ne(),
                Relation::Less => order.is_lt(),
                Relation::LessEqual => order.is_le(),
                Relation::Greater => order.is_gt(),
                Relation::GreaterEqual => order.is_ge(),
            }))
        }
        _ => Ok(None),
    }
}

/// The sign of an infinity.
fn infinite(expr: &Expr) -> Option<Sign> {
    match expr {
        Expr::Constant(Constant::Infinity) => Some(Sign::Positive),
        Expr::Constant(Constant::NegativeInfinity) => Some(Sign::Negative),
        _ => None,
    }
}

/// A bound at infinity always holds.
fn infinite_side(kind: Relation, pair: &[Expr; 2]) -> Option<bool> {
    let less = matches!(kind, Relation::Less | Relation::LessEqual);
    match (infinite(&pair[0]), infinite(&pair[1])) {
        (Some(Sign::Negative), None) | (None, Some(Sign::Positive)) => Some(less),
        (Some(Sign::Positive), None) | (None, Some(Sign::Negative)) => Some(!less),
        _ => None,
    }
}
