//! Strict mode's rules for whole answers: units, equations that state a value, conditions, and ordered values.

use super::values::is_open;
use super::{
    Answer, Compared, Comparer, EXACTLY_DIFFERENT, EXACTLY_EQUAL, Evidence, is_collection, is_equation,
    names_a_value,
};
use crate::math::budget::Exhausted;
use crate::math::expr::{Constant, Expr, Function, NumberSet, Relation};
use crate::math::region;
use dashu_int::IBig;

impl Comparer<'_> {
    /// Compares the pair by the rules of this module. Returns `None` if none of the rules applies. The verdict doesn't
    /// depend on which of the two is the gold.
    pub(super) fn strictly(&mut self, gold: &Expr, answer: &Expr) -> Result<Option<Answer>, Exhausted> {
        if let Some((first, second)) = cases(gold).zip(cases(answer))
            && self.same_cases(&first, &second)?
        {
            return Ok(Some(Answer { equal: true, evidence: Evidence::Probabilistic }));
        }
        if let (Some(first), Some(second)) = (minutes(gold), minutes(answer)) {
            return Ok(Some(if first == second { EXACTLY_EQUAL } else { EXACTLY_DIFFERENT }));
        }
        match (gold, answer) {
            (Expr::Quantity(first, unit), Expr::Quantity(second, other)) => {
                if let Some((scale, other_scale)) = unit.cents().zip(other.cents()).filter(|(a, b)| a != b) {
                    let cents = |value: &Expr, scale| Expr::Mul(vec![value.clone(), Expr::integer(scale)]);
                    return self.answers(&cents(first, scale), &cents(second, other_scale)).map(Some);
                }
                return if unit.agrees(other) {
                    self.answers(first, second).map(Some)
                } else {
                    Ok(Some(EXACTLY_DIFFERENT))
                };
            }
            (Expr::Quantity(value, unit), other) | (other, Expr::Quantity(value, unit))
                if !(is_equation(other) || is_collection(other) && other.any(&is_quantity)) =>
            {
                if unit.changes() || unit.half_day().is_some() {
                    return Ok(Some(EXACTLY_DIFFERENT));
                }
                // The angle in radians.
                if unit.is_degree() && other.any(&|node| *node == Expr::Constant(Constant::Pi)) {
                    let radian = Expr::Mul(vec![Expr::Constant(Constant::Pi), Expr::integer(180).inverse()]);
                    return self.answers(&Expr::Mul(vec![(**value).clone(), radian]), other).map(Some);
                }
                // The unit's letters are variables on the other side: `5m`, `5m/s`.
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
        // A function is the same with another letter, `f(t)=t^2`, and `y(x)` is also `y`.
        if let (Expr::Relation(Relation::Equal, first), Expr::Relation(Relation::Equal, second)) =
            (gold, answer)
        {
            let letter = |values: &'_ [Expr]| match values {
                [Expr::Symbol(letter)] => Some(letter.clone()),
                _ => None,
            };
            match (&first[0], &second[0]) {
                (Expr::Apply(name, values), Expr::Apply(other, others)) if name == other => {
                    if let (Some(wanted), Some(found)) = (letter(values), letter(others))
                        && wanted != found
                        && !second[1].symbols().contains(&&*wanted)
                    {
                        let renamed = answer.replaced(&mut |node| {
                            (*node == Expr::Symbol(found.clone())).then(|| Expr::Symbol(wanted.clone()))
                        });
                        return self.answers(gold, &renamed).map(Some);
                    }
                }
                (Expr::Apply(name, values), Expr::Symbol(other))
                | (Expr::Symbol(other), Expr::Apply(name, values))
                    if name == other && letter(values).is_some() =>
                {
                    let named = |side: &[Expr; 2]| {
                        Expr::relation(Relation::Equal, Expr::Symbol(other.clone()), side[1].clone())
                    };
                    return self.answers(&named(first), &named(second)).map(Some);
                }
                _ => {}
            }
        }
        // Both sides of a congruence or of an equation with units state the unit.
        if let (Expr::Relation(Relation::Equal, first), Expr::Relation(Relation::Equal, second)) =
            (gold, answer)
            && let (Expr::Quantity(value, unit), Expr::Quantity(other, other_unit)) = (&first[1], &second[1])
        {
            if !unit.agrees(other_unit) {
                return Ok(Some(EXACTLY_DIFFERENT));
            }
            let modulus = unit.modulus().filter(|modulus| other_unit.modulus() == Some(modulus));
            if let (Some(modulus), Some(value), Some(other)) =
                (modulus, value.as_integer(), other.as_integer())
            {
                let modulus = IBig::from_str_radix(modulus, 10).ok().filter(|modulus| *modulus > IBig::ZERO);
                let same = modulus.map_or(value == other, |modulus| ((value - other) % modulus).is_zero());
                let left = self.answers(&first[0], &second[0])?;
                return Ok(Some(Answer { equal: same && left.equal, ..left }));
            }
        }
        // A point by its name, `A(1,-2)`, and a binomial coefficient, `C(10,3)`.
        if let (Expr::Apply(name, values), other) | (other, Expr::Apply(name, values)) = (gold, answer)
            && !matches!(other, Expr::Apply(..))
            && name.len() == 1
            && name.starts_with(|c: char| c.is_ascii_uppercase())
        {
            if ordered(other).is_some_and(|others| others.len() == values.len()) && values.len() > 1 {
                return self.answers(&Expr::Tuple(values.clone()), other).map(Some);
            }
            let counts =
                |node: &Expr| matches!(node, Expr::Call(Function::Factorial | Function::Binomial, _));
            if &**name == "C"
                && values.len() == 2
                && (values.iter().all(|value| value.as_integer().is_some()) || other.any(&counts))
            {
                return self.answers(&Expr::Call(Function::Binomial, values.clone()), other).map(Some);
            }
        }
        // A ratio equals a proportional ratio, but a time of day equals only itself.
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
                if is_time(terms) && !other.is_relation() && !is_collection(other) {
                    return Ok(Some(EXACTLY_DIFFERENT));
                }
                let whole =
                    other.as_integer().is_some() || !terms.iter().all(|term| term.as_integer().is_some());
                if !whole && !other.is_relation() && !is_collection(other) {
                    let quotient = Expr::Mul(vec![terms[0].clone(), terms[1].clone().inverse()]);
                    return self.values(&quotient, other).map(Some);
                }
            }
            _ => {}
        }
        // The domain of an integer parameter, `k \in \mathbb{Z}`, may be left out.
        match (without_domains(gold), without_domains(answer)) {
            (Some((first, domains)), Some((second, others))) => {
                let sets = |domains: &[(Box<str>, NumberSet)]| {
                    domains.iter().map(|(_, set)| *set).collect::<Vec<_>>()
                };
                if sets(&domains) != sets(&others) {
                    return Ok(Some(EXACTLY_DIFFERENT));
                }
                // The parameter may have another name.
                let renamed = with_names(&second, &others, &domains, &first);
                return self.answers(&first, &renamed).map(Some);
            }
            (Some((stated, domains)), None) if domains.iter().all(is_integral) => {
                return self.answers(&stated, &with_parameter(answer, &stated, &domains)).map(Some);
            }
            (None, Some((stated, domains))) if domains.iter().all(is_integral) => {
                return self.answers(&with_parameter(gold, &stated, &domains), &stated).map(Some);
            }
            _ => {}
        }
        for (equation, other) in [(gold, answer), (answer, gold)] {
            if !is_equation(equation) {
                continue;
            }
            let constant = !equation.has_unknowns();
            // An equation without unknowns states its value, on both sides of the comparison.
            if !other.is_relation() || constant {
                if equation.any(&|node| matches!(node, Expr::Set(_))) && !constant && is_collection(other) {
                    // This names a set, and lists of equations have separate rules.
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
                && (is_joined(gold)
                    || is_joined(answer)
                    || gold.is_set()
                    || answer.is_set()
                    || matches!(gold, Expr::Chain(_)) != matches!(answer, Expr::Chain(_))
                    || gold.any(&is_size) != answer.any(&is_size))
            {
                return self.conditions(gold, answer).map(Some);
            }
        }
        Ok(None)
    }

    /// Returns whether two piecewise functions of one unknown have the same values under the same conditions.
    fn same_cases(&mut self, gold: &[Case], answer: &[Case]) -> Result<bool, Exhausted> {
        for (value, _) in gold.iter().chain(answer) {
            let mut joined = [Vec::new(), Vec::new()];
            for (cases, conditions) in [gold, answer].into_iter().zip(&mut joined) {
                for (other, condition) in cases {
                    if self.answers(value, other)?.equal {
                        conditions.push(condition.clone());
                    }
                }
            }
            let [first, second] = joined.map(Expr::Union);
            if region::same_solutions(&first, &second, &mut self.fuel)? != Some(true) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the value that an equation states, which is the side that isn't a name. All other sides must be names of the
    /// value or equal to it, so `3=5` and `x^2=25` don't state a value.
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
                // Different words are never equal: `No = Yes`.
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
        // Conditions in a list equal the same conditions joined by a word. Equations in a list hold together.
        if let (Expr::Set(first), Expr::Union(second) | Expr::Intersection(second))
        | (Expr::Union(second) | Expr::Intersection(second), Expr::Set(first)) = (gold, answer)
            && first.iter().any(is_condition)
            // Listed conditions of several unknowns hold together.
            && (matches!((gold, answer), (Expr::Intersection(_), _) | (_, Expr::Intersection(_)))
                || Expr::Set(first.clone()).symbols().len() < 2)
        {
            return self.matched(first, second);
        }
        match region::same_solutions(gold, answer, &mut self.fuel)? {
            Some(equal) => Ok(Answer { equal, evidence: Evidence::Probabilistic }),
            None => Ok(EXACTLY_DIFFERENT),
        }
    }

    /// Compares ordered values (tuples, vectors, lists of assignments) position by position.
    pub(super) fn in_order(&mut self, gold: &Expr, answer: &Expr) -> Result<Option<Answer>, Exhausted> {
        if let (Expr::Set(values), single) | (single, Expr::Set(values)) = (gold, answer)
            && values.len() > 1
            && !is_collection(single)
        {
            // One value in several forms. A form without a unit agrees with every unit, so the forms are also compared
            // with each other.
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

/// A case of a piecewise function: a value and its condition.
type Case = (Expr, Expr);

/// Returns the cases of a piecewise function, with a condition for "otherwise". `None` for other expressions.
fn cases(expr: &Expr) -> Option<Vec<Case>> {
    let Expr::Set(rows) = expr else { return None };
    let case = |row: &Expr| match row {
        Expr::Tuple(pair) if pair.len() == 2 => Some((pair[0].clone(), pair[1].clone())),
        _ => None,
    };
    let mut cases: Vec<Case> = rows.iter().map(case).collect::<Option<_>>()?;
    let (rest, stated): (Vec<_>, Vec<_>) =
        cases.iter_mut().partition(|(_, condition)| *condition == Expr::symbol("otherwise"));
    let others: Vec<Expr> = stated.iter().map(|(_, condition)| negation(condition)).collect::<Option<_>>()?;
    for (_, condition) in rest {
        *condition = Expr::Intersection(others.clone());
    }
    (!others.is_empty()).then_some(cases)
}

/// Returns the negation of a condition, or `None` if the condition has other parts than relations.
fn negation(condition: &Expr) -> Option<Expr> {
    let negated = |parts: &[Expr]| parts.iter().map(negation).collect::<Option<Vec<_>>>();
    Some(match condition {
        Expr::Relation(kind, pair) => Expr::Relation(kind.negated(), pair.clone()),
        Expr::Chain(parts) | Expr::Intersection(parts) => Expr::Union(negated(parts)?),
        Expr::Union(parts) => Expr::Intersection(negated(parts)?),
        _ => return None,
    })
}

fn is_quantity(expr: &Expr) -> bool {
    matches!(expr, Expr::Quantity(..))
}

/// A symbol and the set of numbers that are its values, from a statement such as `k \in \mathbb{Z}`.
type Domain = (Box<str>, NumberSet);

/// Splits a list into its values and the statements about the domains of their symbols. Returns `None` without such
/// statements.
pub(in crate::math) fn without_domains(list: &Expr) -> Option<(Expr, Vec<Domain>)> {
    let Expr::Set(values) = list else { return None };
    let domain_of = |value: &Expr| match value {
        Expr::Relation(Relation::Equal, pair) => match (&pair[0], &pair[1]) {
            (Expr::Symbol(name), Expr::NumberSet(set)) => Some((name.clone(), *set)),
            _ => None,
        },
        _ => None,
    };
    let domains: Vec<Domain> = values.iter().filter_map(domain_of).collect();
    let mut kept: Vec<Expr> = values.iter().filter(|value| domain_of(value).is_none()).cloned().collect();
    let needed = |(name, _): &Domain| kept.iter().any(|value| value.symbols().contains(&&**name));
    if domains.is_empty() || !domains.iter().all(needed) {
        return None;
    }
    // The statement that a solution is real may be left out.
    let solved = |(name, set): &Domain| {
        let side = |side: &&Expr| matches!(side, Expr::Symbol(side) if side == name);
        *set == NumberSet::Reals
            && kept.iter().any(|value| value.is_relation() && value.children().iter().any(side))
    };
    let domains = domains.into_iter().filter(|domain| !solved(domain)).collect();
    Some((if kept.len() == 1 { kept.swap_remove(0) } else { Expr::Set(kept) }, domains))
}

pub(in crate::math) fn is_integral(domain: &Domain) -> bool {
    domain.1 == NumberSet::Integers
}

/// Renames the symbols of `from` to those of `to` in `expr`, unless a new name is in `expr` or an old name in `other`.
fn with_names(expr: &Expr, from: &[Domain], to: &[Domain], other: &Expr) -> Expr {
    let (inside, outside) = (expr.symbols(), other.symbols());
    let clash = from
        .iter()
        .zip(to)
        .any(|((old, _), (new, _))| old != new && (inside.contains(&&**new) || outside.contains(&&**old)));
    if clash {
        return expr.clone();
    }
    expr.replaced(&mut |node| match node {
        Expr::Symbol(name) => {
            let at = from.iter().position(|(old, _)| old == name)?;
            Some(Expr::Symbol(to[at].0.clone()))
        }
        _ => None,
    })
}

/// Renames the only parameter (k, l, m or n) of `expr` to the symbol in `domains`, which are the other side's. Returns
/// `expr` unchanged unless each has exactly one.
fn with_parameter(expr: &Expr, other: &Expr, domains: &[Domain]) -> Expr {
    let symbols = expr.symbols();
    let mut letters = symbols.iter().filter(|name| matches!(**name, "k" | "l" | "m" | "n"));
    match (letters.next(), letters.next(), domains) {
        (Some(name), None, [_]) => with_names(expr, &[((*name).into(), NumberSet::Integers)], domains, other),
        _ => expr.clone(),
    }
}

/// Returns the values of a tuple or a vector, or two values in parentheses.
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

/// Returns whether two numbers with a colon between them may be hours and minutes.
fn is_time(terms: &[Expr]) -> bool {
    // Minutes below ten have a zero before them, which makes them a decimal.
    let minutes = |term: &Expr| {
        matches!((whole(term), term), (Some(0 | 10..=59), _) | (Some(1..=9), Expr::Decimal(..)))
    };
    matches!(terms, [hours, rest] if whole(hours).is_some_and(|hours| (0..=24).contains(&hours)) && minutes(rest))
}

fn whole(value: &Expr) -> Option<i64> {
    match value {
        Expr::Number(value) | Expr::Decimal(value, 0) if value.is_int() => value.numerator().try_into().ok(),
        _ => None,
    }
}

/// Returns the minutes since midnight of a time of day. Without `am` or `pm`, the clock has 24 hours.
fn minutes(time: &Expr) -> Option<i64> {
    let (value, half) = match time {
        Expr::Quantity(value, unit) => (&**value, Some(unit.half_day()?)),
        other => (other, None),
    };
    let (hours, minutes) = match value {
        Expr::Ratio(terms) if is_time(terms) => (whole(&terms[0])?, whole(&terms[1])?),
        value => (whole(value).filter(|hours| half.is_some() && (1..=12).contains(hours))?, 0),
    };
    // `19:45 pm` is the evening, but `19:45 am` isn't a time.
    if half == Some(false) && hours > 12 {
        return None;
    }
    Some(60 * half.map_or(hours, |second| hours % 12 + 12 * i64::from(second)) + minutes)
}

/// Returns the values of a list, which may be a list of assignments.
fn listed(expr: &Expr) -> Option<Vec<Expr>> {
    if let Expr::Set(values) = expr { Some(named(expr).unwrap_or_else(|| values.clone())) } else { None }
}

/// Returns the values of a list of two or more assignments to different names, such as `x=1, y=2`, or `None`
/// for another expression. Values of x, y, z and w are sorted by name, and others stay in their order.
pub(in crate::math) fn named(expr: &Expr) -> Option<Vec<Expr>> {
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

/// Returns the side of an equation that is its value: a number, or else the last side that is neither a name nor a sum,
/// limit, integral or derivative. Next to such a side, a formula of names is a value too: `\frac{dy}{dx}=xy`.
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

/// Appends an answer's values to `found`: the items of a list, and the side of an equation that states the value. Returns
/// whether the answer consists only of values: it lacks conditions, and the other sides of its equations are names.
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
            // Visits all parts, even after a part that doesn't consist only of values.
            answer.children().into_iter().filter(|part| !values(part, found)).count() == 0
        }
        value => {
            found.push(value);
            true
        }
    }
}

/// Whether an expression is the name of a point by coordinates, as in `(x,y)`.
pub(in crate::math) fn is_point(side: &Expr) -> bool {
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

/// Whether an expression can name a value: `I`, or symbols, applied functions such as `f(2)`, and their sums and products.
fn is_name(side: &Expr) -> bool {
    let renamed = side.replaced(&mut |node| match node {
        Expr::Apply(name, _) if !name.starts_with("base ") => Some(Expr::symbol(name)),
        _ => None,
    });
    // `I = (0,1)`
    renamed == Expr::Constant(Constant::ImaginaryUnit)
        || names_a_value(&renamed) && !renamed.symbols().is_empty()
}

/// Returns whether an expression is a name of several letters, such as `yes`.
fn is_word(expr: &Expr) -> bool {
    matches!(expr, Expr::Symbol(name) if name.len() > 1 && name.bytes().all(|byte| byte.is_ascii_lowercase()))
}

/// Returns whether an expression is a relation other than an equation, or several such relations joined.
fn is_condition(expr: &Expr) -> bool {
    match expr {
        Expr::Relation(kind, _) => *kind != Relation::Equal,
        Expr::Chain(links) => links.iter().any(is_condition),
        other => is_joined(other),
    }
}

fn is_size(node: &Expr) -> bool {
    matches!(node, Expr::Call(Function::Abs, _))
}

fn is_joined(expr: &Expr) -> bool {
    matches!(expr, Expr::Union(parts) | Expr::Intersection(parts) if parts.iter().any(Expr::is_relation))
}
