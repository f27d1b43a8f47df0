//! Sets of real numbers: unions of intervals and points, and the solutions of inequalities in one unknown.

use dashu_base::Sign;
use dashu_ratio::RBig;
use std::cmp::Ordering;

use super::ball::{Ball, Complex, Precision};
use super::budget::{Exhausted, Fuel, NoValue, known};
use super::canonical;
use super::expr::{Constant, Expr, Function, NumberSet, Relation};
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

    /// Compares two ends. They are equal if their balls overlap, or if they differ by less than 5e-10.
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
        let before = |order: Ordering, open: bool| order.is_lt() || order.is_eq() && !open;
        before(self.low.compare(at), self.low_open) && before(at.compare(&self.high), self.high_open)
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
    // An end that isn't known to many digits can't be compared.
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

/// Sorts ends and removes duplicates.
fn sorted(mut ends: Vec<End>) -> Vec<End> {
    ends.sort_by(|a, b| a.value().total_cmp(&b.value()));
    ends.dedup_by(|b, a| a.compare(b) == Ordering::Equal);
    ends
}

/// Returns the finite values among ordered ends.
fn finite(ends: &[End]) -> Vec<f64> {
    ends.iter().map(End::value).filter(|value| value.is_finite()).collect()
}

/// Returns whether a value equals `at` approximately, to about seven digits.
fn near(at: f64, value: f64) -> bool {
    (value - at).abs() <= 1e-7 * (1.0 + at.abs())
}

/// Returns test points: inside each gap between the ordered values, below the first and above the last.
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

/// Returns whether two sets of reals are the same; `None` if one is not a union of real intervals and points.
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

/// One side of a comparison: a set of reals, or a condition on one unknown (relations joined by `or` and `and`).
enum Side<'a> {
    Region(Region),
    Condition(&'a Expr),
}

/// A relation in a condition, with the zeros and poles of left side minus right side, if they are known.
struct Link<'a> {
    relation: &'a Expr,
    breaks: Option<(Vec<f64>, Vec<f64>)>,
}

/// Returns whether two conditions in one unknown, or a condition and a set, have the same solutions, or `None`.
pub(super) fn same_solutions(
    first: &Expr,
    second: &Expr,
    fuel: &mut Fuel,
) -> Result<Option<bool>, Exhausted> {
    let (first, second) = (&unknown_as_symbol(first), &unknown_as_symbol(second));
    let mut symbols = first.symbols();
    for name in second.symbols() {
        if !symbols.contains(&name) {
            symbols.push(name);
        }
    }
    let [name] = symbols[..] else { return Ok(None) };
    let mut sides = Vec::with_capacity(2);
    let mut links = Vec::new();
    let mut ends = Vec::new();
    for side in [first, second] {
        if side.any(&Expr::is_relation) {
            if !collect_links(side, name, &mut links, fuel)? {
                return Ok(None);
            }
            sides.push(Side::Condition(side));
        } else {
            let Some(region) = region(side, fuel)? else { return Ok(None) };
            region.ends(&mut ends);
            sides.push(Side::Region(region));
        }
    }
    let ends = sorted(ends);
    // At the ends, and between them.
    let mut decided = false;
    for place in &ends {
        let End::At(ball, _) = place else { continue };
        let point = || Point::at(name, ball.clone());
        let [a, b] = [&sides[0], &sides[1]].map(|side| side.holds(place, point, fuel));
        match (a?, b?) {
            (Some(a), Some(b)) if a != b => return Ok(Some(false)),
            (None, Some(true)) | (Some(true), None) => return Ok(Some(false)),
            _ => {}
        }
    }
    // The bounds of the conditions divide the line too, because a set without ends gives no points at which to compare.
    let mut parts = finite(&ends);
    let breaks = links.iter().flat_map(|link| &link.breaks);
    parts.extend(breaks.flat_map(|(zeros, poles)| zeros.iter().chain(poles)));
    parts.sort_by(f64::total_cmp);
    parts.dedup_by(|b, a| near(*a, *b));
    for value in probes(&parts) {
        let place = probe_end(&value);
        let point = || Point::at_rational(name, value.clone());
        let [a, b] = [&sides[0], &sides[1]].map(|side| side.holds(&place, point, fuel));
        let known = |side: &Side, held: Option<bool>| matches!(side, Side::Condition(_)) && held.is_some();
        let (a, b) = (a?, b?);
        decided |= known(&sides[0], a) || known(&sides[1], b);
        if a.unwrap_or(false) != b.unwrap_or(false) {
            return Ok(Some(false));
        }
    }
    if !decided {
        return Ok(None);
    }
    // Single points may be missing between the probes.
    for link in &links {
        if link.breaks.is_some() {
            continue;
        }
        let Expr::Relation(_, pair) = link.relation else { return Ok(None) };
        // Another relation without finite ends isn't decided: it may hold everywhere or nowhere.
        let bounded = ends.iter().any(|end| end.value().is_finite());
        if !bounded && pair.iter().all(|side| infinite(side).is_none()) {
            return Ok(None);
        }
    }
    for at in parts {
        let Ok(value) = RBig::try_from(at) else { continue };
        // Ends were compared above.
        if ends.iter().any(|end| near(at, end.value())) {
            continue;
        }
        let mut held = [false; 2];
        for (side, held) in sides.iter().zip(&mut held) {
            *held = match side {
                Side::Region(region) => region.contains(&probe_end(&value)),
                Side::Condition(condition) => {
                    holds_at(condition, at, &value, name, &links, fuel)?.unwrap_or(false)
                }
            };
        }
        if held[0] != held[1] {
            return Ok(Some(false));
        }
    }
    Ok(Some(true))
}

impl Side<'_> {
    fn holds(
        &self,
        place: &End,
        point: impl Fn() -> Point,
        fuel: &mut Fuel,
    ) -> Result<Option<bool>, Exhausted> {
        match self {
            Self::Region(region) => Ok(Some(region.contains(place))),
            Self::Condition(condition) => holds(condition, &mut point(), fuel),
        }
    }
}

/// Collects the relations of a condition. Returns whether the condition consists only of relations.
fn collect_links<'a>(
    condition: &'a Expr,
    name: &str,
    links: &mut Vec<Link<'a>>,
    fuel: &mut Fuel,
) -> Result<bool, Exhausted> {
    match condition {
        Expr::Chain(parts) | Expr::Union(parts) | Expr::Intersection(parts) => {
            for part in parts {
                if !collect_links(part, name, links, fuel)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Expr::Relation(_, pair) => {
            let difference = pair[0].clone().minus(pair[1].clone());
            let breaks = known(zeros_and_poles(&difference, name, fuel))?;
            links.push(Link { relation: condition, breaks });
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Returns the zeros and the poles of an expression. An absolute value is replaced by its content with either sign.
fn zeros_and_poles(expr: &Expr, name: &str, fuel: &mut Fuel) -> Result<(Vec<f64>, Vec<f64>), NoValue> {
    let mut inside = None;
    let mut with = |sign: i64| {
        expr.replaced(&mut |node| match node {
            Expr::Call(Function::Abs, value) if inside.as_ref().is_none_or(|known| known == value) => {
                inside = Some(value.clone());
                Some(Expr::Mul(vec![Expr::integer(sign), value[0].clone()]))
            }
            _ => None,
        })
    };
    let (plus, minus) = (with(1), with(-1));
    if inside.is_none() {
        return canonical::zeros_and_poles(expr, name, fuel);
    }
    let (mut zeros, mut poles) = zeros_and_poles(&plus, name, fuel)?;
    let (others, more) = zeros_and_poles(&minus, name, fuel)?;
    poles.extend(more);
    for zero in std::mem::take(&mut zeros).into_iter().chain(others) {
        let Ok(value) = RBig::try_from(zero) else { continue };
        let mut point = Point::at_rational(name, value);
        let value = numeric::evaluate(expr, &mut point, Precision::level(0), fuel)?;
        zeros.extend(value.filter(|value| value.re.to_f64().abs() < 1e-6).map(|_| zero));
    }
    Ok((zeros, poles))
}

/// Returns whether a condition holds at a value that is near a zero or a pole of some of its relations.
fn holds_at(
    condition: &Expr,
    at: f64,
    value: &RBig,
    name: &str,
    links: &[Link],
    fuel: &mut Fuel,
) -> Result<Option<bool>, Exhausted> {
    if let Expr::Relation(kind, _) = condition {
        let breaks = links
            .iter()
            .find(|link| std::ptr::eq(link.relation, condition))
            .and_then(|link| link.breaks.as_ref());
        if let Some((zeros, poles)) = breaks {
            if poles.iter().any(|pole| near(at, *pole)) {
                return Ok(Some(false));
            }
            if zeros.iter().any(|zero| near(at, *zero)) {
                return Ok(Some(matches!(
                    kind,
                    Relation::Equal | Relation::LessEqual | Relation::GreaterEqual
                )));
            }
        }
        return holds(condition, &mut Point::at_rational(name, value.clone()), fuel);
    }
    combined(condition, &mut |part| holds_at(part, at, value, name, links, fuel))
}

/// Combines the truth of a condition's parts, which `truth` returns, to the truth of the condition.
fn combined(
    condition: &Expr,
    truth: &mut dyn FnMut(&Expr) -> Result<Option<bool>, Exhausted>,
) -> Result<Option<bool>, Exhausted> {
    let (parts, any) = match condition {
        Expr::Chain(parts) | Expr::Intersection(parts) => (parts, false),
        Expr::Union(parts) => (parts, true),
        _ => return Ok(None),
    };
    let mut result = Some(!any);
    for part in parts {
        match truth(part)? {
            Some(held) if held == any => result = result.and(Some(any)),
            Some(_) => {}
            None => result = None,
        }
    }
    Ok(result)
}

/// Replaces an unknown function on a side of a relation by a symbol: `f(x) < 2` is read like `y < 2`.
fn unknown_as_symbol(relation: &Expr) -> Expr {
    let side = |side: &Expr| match side {
        Expr::Apply(name, _) => Expr::symbol(&format!("{name}()")),
        other => other.clone(),
    };
    relation.replaced(&mut |node| match node {
        Expr::Relation(kind, pair) => Some(Expr::relation(*kind, side(&pair[0]), side(&pair[1]))),
        _ => None,
    })
}

fn holds(relation: &Expr, point: &mut Point, fuel: &mut Fuel) -> Result<Option<bool>, Exhausted> {
    match relation {
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
        _ => combined(relation, &mut |part| holds(part, point, fuel)),
    }
}

/// Returns the sign of an infinity, or `None` for other expressions.
fn infinite(expr: &Expr) -> Option<Sign> {
    match expr {
        Expr::Constant(Constant::Infinity) => Some(Sign::Positive),
        Expr::Constant(Constant::NegativeInfinity) => Some(Sign::Negative),
        _ => None,
    }
}

/// Returns whether an inequality with one infinite side holds, or `None` for other inequalities.
fn infinite_side(kind: Relation, pair: &[Expr; 2]) -> Option<bool> {
    let less = matches!(kind, Relation::Less | Relation::LessEqual);
    match (infinite(&pair[0]), infinite(&pair[1])) {
        (Some(Sign::Negative), None) | (None, Some(Sign::Positive)) => Some(less),
        (Some(Sign::Positive), None) | (None, Some(Sign::Negative)) => Some(!less),
        _ => None,
    }
}
