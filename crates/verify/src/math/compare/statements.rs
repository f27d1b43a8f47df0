//! Strict mode's rules for whole answers: units, equations for a value, conditions, values in order.

use super::values::is_open;
use super::{
    Answer, Compared, Comparer, EXACTLY_DIFFERENT, Evidence, is_collection, is_equation, names_a_value,
};
use crate::math::budget::Exhausted;
use crate::math::expr::{Constant, Expr, Relation};
use crate::math::region;
use dashu_int::IBig;

impl Comparer<'_> {
    /// The verdict of these rules, if one of them is about this pair. The rules are symmetric.
    pub(super) fn strictly(&mut self, gold: &Expr, answer: &Expr) -> Result<Option<Answer>, Exhausted> {
        match (gold, answer) {
            (Expr::Quantity(first, unit), Expr::Quantity(second, other)) => {
                return if unit.agrees(other) {
                    self.answers(first, second).map(Some)
                } else {
                    Ok(Some(EXACTLY_DIFFERENT))
                };
            }
            (Expr::Quantity(value, unit), other) | (other, Expr::Quantity(value, unit))
                if !(is_equation(other) || is_collection(other) && other.any(&is_quantity)) =>
            {
                if unit.changes() {
                    return Ok(Some(EXACTLY_DIFFERENT));
                }
                // Letters are variables on the other side: `5m`, `5m/s`.
                let letters = unit.letters();
                if !letters.is_empty() && letters.iter().all(|(name, _)| other.symbols().contains(&&**name)) {
                    let power = |(name, exponent): &(Box<str>, i32)| match exponent {
                        1 => Expr::symbol(name),
                        _ => Expr::pow(Expr::symbol(name), Expr::integer(i64::from(*exponent))),
                    };
                    let factors = std::iter::once((**value).clone()).chain(letters.iter().map(power));
                    return self.answers(&Expr::Mul(factors.collect()), other).map(Some);
                }
                return self.answers(value, other).map(Some);
            }
            _ => {}
        }
        // A ratio equals a proportional one; a time of day only the same one.
        match (gold, answer) {
            (Expr::Ratio(gold), Expr::Ratio(answer)) => {
                if gold.len() != answer.len() || is_time(gold) && gold != answer {
                    return Ok(Some(EXACTLY_DIFFERENT));
                }
                let (mut first, mut second) = (Vec::new(), Vec::new());
                for (a, b) in gold[1..].iter().zip(&answer[1..]) {
                    first.push(Expr::Mul(vec![a.clone(), answer[0].clone()]));
                    second.push(Expr::Mul(vec![b.clone(), gold[0].clone()]));
                }
                return self.tuples(&first, &second).map(Some);
            }
            (Expr::Ratio(terms), other) | (other, Expr::Ratio(terms)) if terms.len() == 2 => {
                let whole =
                    other.as_integer().is_some() || !terms.iter().all(|term| term.as_integer().is_some());
                if !whole && !other.is_relation() && !is_collection(other) {
                    let quotient = Expr::Mul(vec![terms[0].clone(), terms[1].clone().inverse()]);
                    return self.values(&quotient, other).map(Some);
                }
            }
            _ => {}
        }
        // Where an integer runs, `k \in \mathbb{Z}`, goes without saying.
        let (first, second) = (without_domains(gold), without_domains(answer));
        if first.is_some() || second.is_some() {
            let side = |found: Option<Expr>, whole: &Expr| found.unwrap_or_else(|| whole.clone());
            return self.answers(&side(first, gold), &side(second, answer)).map(Some);
        }
        for (equation, other) in [(gold, answer), (answer, gold)] {
            if !is_equation(equation) {
                continue;
            }
            let constant = !equation.has_unknowns();
            // An equation without unknowns says its value, on both sides of the comparison.
            if !other.is_relation() || constant {
                if equation.any(&|node| matches!(node, Expr::Set(_))) && !constant && is_collection(other) {
                    // A name for a set; lists of equations have their own rules.
                    break;
                }
                return Ok(Some(match self.stated_value(equation)? {
                    Some(value) => self.answers(value, other)?,
                    None => EXACTLY_DIFFERENT,
                }));
            }
        }
        if is_condition(gold) || is_condition(answer) {
            let about_points = |side: &Expr| is_condition(side) || side.is_set();
            if about_points(gold)
                && about_points(answer)
                && (is_joined(gold) || is_joined(answer) || gold.is_set() || answer.is_set())
            {
                return self.conditions(gold, answer).map(Some);
            }
        }
        Ok(None)
    }

    /// The value that an equation states: that of its side which is no name. All other sides have to be names of it
    /// or equal to it; `3=5` and `x^2=25` state nothing.
    fn stated_value<'e>(&mut self, equation: &'e Expr) -> Result<Option<&'e Expr>, Exhausted> {
        let sides = sides_of(equation);
        let Some(value) = value_side(equation) else { return Ok(None) };
        if value.is_relation() {
            return Ok(None);
        }
        for side in sides {
            if std::ptr::eq(side, value) {
                continue;
            }
            if is_name(side) {
                // One word is not another: `No = Yes`.
                if is_word(side) && is_word(value) {
                    return Ok(None);
                }
                continue;
            }
            if side.is_relation() {
                return Ok(None);
            }
            match self.answers(value, side) {
                Ok(result) if result.equal => {}
                // A derivative, integral or limit that is not computed is another name of the value.
                Err(Exhausted) if is_open(side) && !value.any(&is_open) => {}
                other => return other.map(|_| None),
            }
        }
        Ok(Some(value))
    }

    fn conditions(&mut self, gold: &Expr, answer: &Expr) -> Compared {
        if let (Expr::Union(first), Expr::Union(second))
        | (Expr::Intersection(first), Expr::Intersection(second)) = (gold, answer)
        {
            let matched = self.matched(first, second)?;
            if matched.equal {
                return Ok(matched);
            }
        }
        // Conditions in a list, without a word between them, are the same as with one.
        if let (Expr::Set(first), Expr::Union(second) | Expr::Intersection(second))
        | (Expr::Union(second) | Expr::Intersection(second), Expr::Set(first)) = (gold, answer)
            && first.iter().any(Expr::is_relation)
        {
            return self.matched(first, second);
        }
        match region::same_solutions(gold, answer, &mut self.fuel)? {
            Some(equal) => Ok(Answer { equal, evidence: Evidence::Probabilistic }),
            None => Ok(EXACTLY_DIFFERENT),
        }
    }

    /// Values in order: tuples, vectors, lists of assignments. Braces or none, they are compared place by place.
    pub(super) fn in_order(&mut self, gold: &Expr, answer: &Expr) -> Result<Option<Answer>, Exhausted> {
        if let (Expr::Set(values), single) | (single, Expr::Set(values)) = (gold, answer)
            && values.len() > 1
            && !is_collection(single)
        {
            // One value in several forms. What has no unit agrees with every unit, so they are also compared with each other.
            for (at, value) in values.iter().enumerate() {
                if !is_quantity(value) && values[..at].contains(value) {
                    return Ok(Some(EXACTLY_DIFFERENT));
                }
                if !self.answers(single, value)?.equal || !self.answers(&values[0], value)?.equal {
                    return Ok(Some(EXACTLY_DIFFERENT));
                }
            }
            return Ok(Some(Answer { equal: true, evidence: Evidence::Exact }));
        }
        let (first, second) = (ordered(gold), ordered(answer));
        let both_matrices = matches!((gold, answer), (Expr::Matrix(..), Expr::Matrix(..)));
        let both_intervals = matches!((gold, answer), (Expr::Interval(..), Expr::Interval(..)));
        let (Some(first), Some(second)) = (
            first.or_else(|| listed(gold)).filter(|_| !both_matrices && !both_intervals),
            second.or_else(|| listed(answer)),
        ) else {
            return Ok(None);
        };
        if matches!((gold, answer), (Expr::Set(_), Expr::Set(_)))
            && (named(gold).is_some() == named(answer).is_some())
        {
            return Ok(None);
        }
        self.tuples(&first, &second).map(Some)
    }
}

fn is_quantity(expr: &Expr) -> bool {
    matches!(expr, Expr::Quantity(..))
}

/// A list without statements about the domain of a symbol of its other values.
fn without_domains(list: &Expr) -> Option<Expr> {
    let Expr::Set(values) = list else { return None };
    let domain_of = |value: &Expr| match value {
        Expr::Relation(Relation::Equal, pair) => match (&pair[0], &pair[1]) {
            (Expr::Symbol(name), Expr::NumberSet(_)) => Some(name.clone()),
            _ => None,
        },
        _ => None,
    };
    let (domains, mut kept): (Vec<&Expr>, Vec<&Expr>) =
        values.iter().partition(|value| domain_of(value).is_some());
    let needed = |name: Box<str>| kept.iter().any(|value| value.symbols().contains(&&*name));
    if domains.is_empty() || !domains.iter().filter_map(|value| domain_of(value)).all(needed) {
        return None;
    }
    Some(if kept.len() == 1 {
        kept.remove(0).clone()
    } else {
        Expr::Set(kept.into_iter().cloned().collect())
    })
}

/// The values of a tuple, of a vector, or of two values in parentheses.
fn ordered(expr: &Expr) -> Option<Vec<Expr>> {
    match expr {
        Expr::Tuple(values) => Some(values.clone()),
        Expr::Interval(ends, true, true) if !ends.iter().any(is_infinite) => Some(ends.to_vec()),
        Expr::Matrix(columns, entries) if *columns == 1 || *columns == entries.len() => Some(entries.clone()),
        _ => None,
    }
}

fn is_infinite(end: &Expr) -> bool {
    matches!(end, Expr::Constant(Constant::Infinity | Constant::NegativeInfinity))
}

/// Whether two numbers with a colon between them may be hours and minutes.
fn is_time(terms: &[Expr]) -> bool {
    let within = |term: &Expr, least: u8, most: u8| {
        term.as_integer().is_some_and(|value| *value >= IBig::from(least) && *value <= IBig::from(most))
    };
    matches!(terms, [hours, minutes]
        if within(hours, 0, 24) && (within(minutes, 10, 59) || within(minutes, 0, 0)))
}

/// The values of a list: as written, or by name.
fn listed(expr: &Expr) -> Option<Vec<Expr>> {
    if let Expr::Set(values) = expr { Some(named(expr).unwrap_or_else(|| values.clone())) } else { None }
}

/// The values of assignments to different names: coordinates in their order, others as written.
fn named(expr: &Expr) -> Option<Vec<Expr>> {
    let Expr::Set(values) = expr else { return None };
    let mut pairs = Vec::with_capacity(values.len());
    for value in values {
        let Expr::Relation(Relation::Equal, pair) = value else { return None };
        let Expr::Symbol(name) = &pair[0] else { return None };
        if pairs.iter().any(|(known, _)| *known == name) {
            return None;
        }
        pairs.push((name, pair[1].clone()));
    }
    if pairs.iter().all(|(name, _)| matches!(&***name, "x" | "y" | "z" | "w")) {
        pairs.sort_by_key(|(name, _)| (&***name == "w", (*name).clone()));
    }
    (pairs.len() > 1).then(|| pairs.into_iter().map(|(_, value)| value).collect())
}

/// The side of an equation that is its value: a number if there is one, otherwise the last one that is neither a name
/// nor left uncomputed. Beside a derivative or an integral, a formula of names is a value too: `\frac{dy}{dx}=xy`.
pub(super) fn value_side(equation: &Expr) -> Option<&Expr> {
    let sides = sides_of(equation);
    let number = |side: &Expr| match side {
        Expr::Quantity(value, _) => value.is_number(),
        side => side.is_number(),
    };
    let computed = |side: &Expr| !is_name(side) && !is_open(side);
    let beside_open = sides.iter().any(|side| is_open(side));
    let bare = |side: &Expr| matches!(side, Expr::Apply(..)) || side.children().is_empty();
    let formula = |side: &Expr| beside_open && !is_open(side) && !bare(side);
    let last = |found: &dyn Fn(&Expr) -> bool| sides.iter().rev().find(|side| found(side));
    last(&number).or_else(|| last(&computed)).or_else(|| last(&formula)).or(sides.last()).copied()
}

/// Adds the values of an answer: those of a list, and of equations the sides that say them. Returns whether that is all
/// the answer says: there are no conditions, and equations are about names alone.
pub(super) fn values<'e>(answer: &'e Expr, found: &mut Vec<&'e Expr>) -> bool {
    match answer {
        Expr::Quantity(value, _) => values(value, found),
        _ if is_equation(answer) => {
            let Some(value) = value_side(answer) else { return false };
            let named = |side: &&Expr| {
                std::ptr::eq(*side, value)
                    || matches!(side, Expr::Symbol(_) | Expr::Apply(..))
                    || is_point(side)
            };
            let plain = values(value, found);
            plain && sides_of(answer).iter().all(named)
        }
        _ if answer.is_relation() => false,
        _ if is_collection(answer) => {
            // All of them, also behind one that says more.
            answer.children().into_iter().filter(|part| !values(part, found)).count() == 0
        }
        value => {
            found.push(value);
            true
        }
    }
}

/// The coordinates of a point: `(x,y)`.
fn is_point(side: &Expr) -> bool {
    ordered(side).is_some_and(|names| names.iter().all(|name| matches!(name, Expr::Symbol(_))))
}

fn sides_of(equation: &Expr) -> Vec<&Expr> {
    match equation {
        Expr::Relation(_, pair) => pair.iter().collect(),
        Expr::Chain(links) => {
            let mut sides: Vec<&Expr> = Vec::with_capacity(links.len() + 1);
            for link in links {
                if let Expr::Relation(_, pair) = link {
                    if sides.is_empty() {
                        sides.push(&pair[0]);
                    }
                    sides.push(&pair[1]);
                }
            }
            sides
        }
        _ => Vec::new(),
    }
}

/// What may name a value: symbols, functions at any place, and sums and products of them.
fn is_name(side: &Expr) -> bool {
    let renamed = side.replaced(&mut |node| match node {
        Expr::Apply(name, _) if !name.starts_with("base ") => Some(Expr::symbol(name)),
        _ => None,
    });
    // `I = (0,1)`
    renamed == Expr::Constant(Constant::ImaginaryUnit)
        || names_a_value(&renamed) && !renamed.symbols().is_empty()
}

/// A name of several letters, as `yes`.
fn is_word(expr: &Expr) -> bool {
    matches!(expr, Expr::Symbol(name) if name.len() > 1 && name.bytes().all(|byte| byte.is_ascii_lowercase()))
}

/// Relations that are no equations, alone or joined.
fn is_condition(expr: &Expr) -> bool {
    match expr {
        Expr::Relation(kind, _) => *kind != Relation::Equal,
        Expr::Chain(links) => links.iter().any(is_condition),
        other => is_joined(other),
    }
}

fn is_joined(expr: &Expr) -> bool {
    matches!(expr, Expr::Union(parts) | Expr::Intersection(parts) if parts.iter().any(Expr::is_relation))
}
