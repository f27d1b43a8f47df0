//! Parses whole answers: lists of statements, chains of relations, plus-minus, and operations on sets.

use super::{Operand, Parsed, Parser, arithmetic, with_unit};
use crate::math::budget::ParseError;
use crate::math::expr::{Constant, Expr, NumberSet, Relation};
use crate::math::lexer::Token;
use crate::math::numeric;
use dashu_ratio::RBig;

impl Parser<'_> {
    /// Parses a whole answer, which is statements separated by commas and semicolons.
    pub(super) fn list(&mut self) -> Parsed<Expr> {
        let mut rows: Vec<Vec<Expr>> = vec![Vec::new()];
        let mut commas = false;
        let mut first_both = None;
        // In strict mode: the numbers of statements joined by `and` and by `or`, and how many of them are joined by a sign.
        let mut joined = [0; 2];
        let mut signs = 0;
        // The places of the statements with plus-minus.
        let mut signed = Vec::new();
        loop {
            let value = self.statement()?;
            let both = std::mem::take(&mut self.plus_minus);
            first_both.get_or_insert(both);
            let row = rows.last_mut().ok_or(ParseError::Syntax)?;
            let first = row.len();
            push_values(row, value, both);
            if both && !self.parity {
                signed.push(first);
            }
            match self.peek() {
                Some(Token::Comma) => {
                    commas = true;
                    self.at += 1;
                }
                Some(Token::Semicolon) => {
                    if self.parity {
                        rows.push(Vec::new());
                    }
                    commas |= !self.parity;
                    self.at += 1;
                }
                Some(Token::And | Token::Or | Token::Wedge | Token::Vee) if !self.parity => commas = true,
                _ => break,
            }
            signs += usize::from(matches!(self.peek(), Some(Token::Wedge | Token::Vee)));
            let found = self.connectives();
            joined = [joined[0] + found[0], joined[1] + found[1]];
        }
        if rows.len() == 1 {
            let mut row = rows.swap_remove(0);
            if !commas {
                return Ok(collapse(row));
            }
            // In a list about one name, `x=\pm3` states two values.
            let left = |value: &Expr| match value {
                Expr::Relation(Relation::Equal, pair) => Some(pair[0].clone()),
                _ => None,
            };
            let one = row
                .windows(2)
                .all(|pair| left(&pair[0]).zip(left(&pair[1])).is_none_or(|(first, second)| first == second));
            for place in signed.into_iter().filter(|_| one).rev() {
                if let Some(Expr::Relation(Relation::Equal, pair)) = row.get(place)
                    && let [name @ Expr::Symbol(_), Expr::Set(values)] = &**pair
                {
                    let stated = |value: &Expr| Expr::relation(Relation::Equal, name.clone(), value.clone());
                    let both: Vec<Expr> = values.iter().map(stated).collect();
                    row.splice(place..=place, both);
                }
            }
            let list = |row| if self.parity { set_of(row) } else { Expr::Set(row) };
            // A sign between names joins propositions, which aren't read here.
            if signs > 0 && row.iter().any(|value| !value.is_relation() && value.has_unknowns()) {
                return Err(ParseError::Syntax);
            }
            // Conditions hold together, or one of them does.
            if row.len() > 1 && row.iter().all(is_condition) {
                match joined.map(|count| count + 1 == row.len()) {
                    [true, _] => return Ok(Expr::Intersection(row)),
                    [_, true] => return Ok(Expr::Union(row)),
                    _ => {}
                }
            }
            // `x = 1` or `y = 2`: at least one of the names has its value.
            let named = |value: &Expr| match value {
                Expr::Relation(Relation::Equal, pair) => Some(pair[0].clone()),
                _ => None,
            };
            let names: Vec<Option<Expr>> = row.iter().map(named).collect();
            if joined[1] > 0
                && joined[1] + 1 == row.len()
                && !names.contains(&None)
                && names.iter().any(|name| *name != names[0])
            {
                return Ok(Expr::Union(row));
            }
            // `x = 1, 2` gives x both values.
            let assigns = match &row[0] {
                Expr::Relation(Relation::Equal, pair) if self.parity => {
                    is_atom(&pair[0]) && !pair[1].is_relation()
                }
                Expr::Relation(Relation::Equal, pair) => names_list(&pair[0]) && !pair[1].is_set(),
                _ => false,
            };
            if assigns
                && row.len() > 1
                && row[1..].iter().all(|value| !value.is_relation())
                && let Expr::Relation(kind, pair) = row.remove(0)
            {
                let [left, first] = *pair;
                let mut values = Vec::new();
                push_values(&mut values, first, self.parity && first_both == Some(true));
                values.extend(row);
                return Ok(Expr::relation(kind, left, list(values)));
            }
            // For math-verify, a relation in a list is between values.
            let about_sets = matches!(&row[0], Expr::Relation(_, pair)
                if is_collection(&pair[1]) || pair[1].is_relation());
            if self.parity && row.len() > 1 && (self.membership || about_sets) {
                return Err(ParseError::Syntax);
            }
            return Ok(list(row));
        }
        if commas {
            let rows =
                rows.into_iter().map(|row| if row.len() == 1 { collapse(row) } else { Expr::Tuple(row) });
            return Ok(set_of(rows.collect()));
        }
        Ok(set_of(rows.into_iter().flatten().collect()))
    }

    /// Skips connectives in strict mode. Returns the number of words `and` and of words `or`.
    pub(super) fn connectives(&mut self) -> [usize; 2] {
        let mut found = [0; 2];
        while !self.parity
            && let Some(place) = match self.peek() {
                Some(Token::And | Token::Wedge) => Some(0),
                Some(Token::Or | Token::Vee) => Some(1),
                _ => None,
            }
        {
            found[place] += 1;
            self.at += 1;
        }
        found
    }

    /// Parses a value or a chain of relations.
    pub(super) fn statement(&mut self) -> Parsed<Expr> {
        self.plus_minus = false;
        let start = self.at;
        let mut sides = vec![self.side(false)?];
        let mut kinds = Vec::new();
        loop {
            let (kind, negated) = match self.peek() {
                Some(Token::Relation(kind)) => (*kind, false),
                Some(Token::Element) => (Relation::Equal, false),
                Some(Token::NotElement) => (Relation::Equal, true),
                _ => break,
            };
            let element = !matches!(self.peek(), Some(Token::Relation(_)));
            self.at += 1;
            // In a chain of relations, names aren't replaced.
            let right = self.side(!kinds.is_empty())?;
            if element && sides[sides.len() - 1].is_number() {
                return Err(ParseError::Syntax);
            }
            self.membership |= element;
            if self.parity && element && (start > 0 || !sides.iter().all(is_atom)) {
                return Err(ParseError::Syntax);
            }
            // A name on the right is a set, and the sides have an order.
            let right = match right {
                Expr::Symbol(name) if !self.parity && element => match number_set(&name) {
                    Some(set) => Expr::NumberSet(set),
                    None => {
                        let left = sides.pop().filter(|_| kinds.is_empty()).ok_or(ParseError::Syntax)?;
                        let is_element = Expr::Apply("\\in".into(), vec![left, Expr::Symbol(name)]);
                        return Ok(if negated { Expr::Not(Box::new(is_element)) } else { is_element });
                    }
                },
                right => right,
            };
            if negated {
                let left = sides.pop().ok_or(ParseError::Syntax)?;
                return Ok(Expr::Not(Box::new(Expr::relation(Relation::Equal, left, right))));
            }
            // In strict mode, an element of an interval is between its ends.
            if let (false, true, [name], Expr::Interval(ends, low_open, high_open)) =
                (self.parity, element && kinds.is_empty(), &sides[..], &right)
                && let Some(between) = between(name, ends, *low_open, *high_open)
            {
                return Ok(between);
            }
            kinds.push(kind);
            sides.push(right);
        }
        if !kinds.is_empty() {
            let alone = start == 0 && self.peek().is_none();
            sides = self.settled(sides, &kinds, start == 0, alone)?;
        }
        match kinds.len() {
            0 => Ok(sides.swap_remove(0)),
            1 => {
                let right = sides.pop().ok_or(ParseError::Syntax)?;
                let left = sides.pop().ok_or(ParseError::Syntax)?;
                // That a set equals itself doesn't state anything.
                if left == right && (left.is_set() || matches!(left, Expr::Tuple(_))) {
                    return Err(ParseError::Syntax);
                }
                Ok(Expr::relation(kinds[0], left, right))
            }
            _ => {
                let last = &sides[sides.len() - 1];
                let of_relations = matches!(last, Expr::Set(values) if values.iter().any(Expr::is_relation));
                if self.plus_minus || of_relations {
                    return Err(ParseError::Syntax);
                }
                if last.is_set() || matches!(last, Expr::Tuple(_)) {
                    // A chain that ends in a set nests.
                    let mut value = sides.pop().ok_or(ParseError::Syntax)?;
                    while let (Some(side), Some(kind)) = (sides.pop(), kinds.pop()) {
                        value = Expr::relation(kind, side, value);
                    }
                    return Ok(value);
                }
                // A chain that returns to an earlier side isn't an answer.
                let turns_back = sides.windows(3).any(|sides| sides[0] == sides[2] && sides[0] != sides[1]);
                if turns_back && kinds.windows(2).any(|kinds| kinds == [Relation::Equal; 2]) {
                    return Err(ParseError::Syntax);
                }
                let links = kinds.iter().zip(sides.windows(2));
                Ok(Expr::Chain(
                    links
                        .map(|(kind, pair)| Expr::relation(*kind, pair[0].clone(), pair[1].clone()))
                        .collect(),
                ))
            }
        }
    }

    /// Returns the sides of a relation. Braces around a single value only group it.
    ///
    /// In math-verify, they are a set if the whole answer is `x = {..}`. Only names can be equal to a set.
    fn settled(&self, sides: Vec<Expr>, kinds: &[Relation], first: bool, alone: bool) -> Parsed<Vec<Expr>> {
        let (last, left) = sides.split_last().ok_or(ParseError::Syntax)?;
        let names = kinds.iter().all(|kind| *kind == Relation::Equal) && left.iter().all(is_atom);
        if self.parity && alone && names && left.len() == 1 && is_collection(last) {
            return Ok(sides);
        }
        let sides: Vec<Expr> = sides.into_iter().map(ungrouped).collect();
        let (last, left) = sides.split_last().ok_or(ParseError::Syntax)?;
        let about_sets = is_collection(last) || (!names && left.iter().any(is_collection));
        if self.parity && about_sets && !(first && names) {
            return Err(ParseError::Syntax);
        }
        Ok(sides)
    }

    /// Parses one side of a relation. Resolves plus-minus, and drops approximations after `\approx`. A name is replaced
    /// by its approximation, unless `keeps_name` is true.
    pub(super) fn side(&mut self, keeps_name: bool) -> Parsed<Expr> {
        let rounded = !self.parity && self.accept(&Token::Approximately);
        let mut value = self.plus_minus()?;
        let number = matches!(&value, Expr::Quantity(number, _) if number.is_number()) || value.is_number();
        // A value that is marked as rounded.
        if rounded && !number {
            return Err(ParseError::Syntax);
        }
        if self.peek() == Some(&Token::Colon) {
            value = self.ratio(value)?;
        }
        while self.accept(&Token::Approximately) {
            let right = self.plus_minus()?;
            let right = if self.parity { ungrouped(right) } else { right };
            if is_collection(&value) || (self.parity && is_collection(&right)) {
                return Err(ParseError::Syntax);
            }
            let is_name = if self.parity { value.names_only() } else { names_unknown(&value) };
            if is_name && !keeps_name {
                value = right;
            } else if !self.parity && !approximates(&value, &right) {
                return Err(ParseError::Syntax);
            }
        }
        Ok(value)
    }

    /// Parses the terms of a ratio, or the hours and minutes of a time: `2:3`, `7:30\text{ am}`.
    fn ratio(&mut self, first: Expr) -> Parsed<Expr> {
        let mut terms = vec![first];
        while self.accept(&Token::Colon) {
            terms.push(arithmetic(self.additive()?)?);
        }
        Ok(with_unit(terms, Expr::Ratio))
    }

    pub(super) fn plus_minus(&mut self) -> Parsed<Expr> {
        if self.accept(&Token::PlusMinus) {
            let value = self.additive()?.expr;
            self.plus_minus = true;
            return Ok(Expr::Set(vec![value.clone(), value.negated()]));
        }
        let operand = self.sets()?;
        if !self.accept(&Token::PlusMinus) {
            return Ok(if operand.braced { set_of(vec![operand.expr]) } else { operand.expr });
        }
        let left = operand.expr;
        let right = self.additive()?.expr;
        self.plus_minus = true;
        Ok(set_of(vec![
            Expr::Add(vec![left.clone(), right.clone()]),
            Expr::Add(vec![left, Expr::Mul(vec![Expr::integer(-1), right])]),
        ]))
    }

    /// Parses unions, intersections and differences of sets, whose operands are sums.
    pub(super) fn sets(&mut self) -> Parsed<Operand> {
        let mut left = self.additive()?;
        loop {
            let operator = match self.peek() {
                Some(token @ (Token::Union | Token::Intersection | Token::SetMinus)) => token.clone(),
                _ => return Ok(left),
            };
            self.at += 1;
            let first = as_set(left, self.parity)?;
            let mut second = as_set(self.additive()?, self.parity)?;
            // `all real numbers except x=2`
            if let (Expr::Set(values), Token::SetMinus, false) = (&mut second, &operator, self.parity) {
                for value in values {
                    if let Expr::Relation(Relation::Equal, pair) = value {
                        *value = pair[1].clone();
                    }
                }
            }
            left = Operand::from(match operator {
                Token::Union => Expr::Union(vec![first, second]),
                Token::Intersection => Expr::Intersection(vec![first, second]),
                _ => Expr::Difference(Box::new([first, second])),
            });
        }
    }
}

/// Returns whether a value is a relation other than an equation, or a chain that contains one.
fn is_condition(value: &Expr) -> bool {
    match value {
        Expr::Relation(kind, _) => *kind != Relation::Equal,
        Expr::Chain(links) => links.iter().any(is_condition),
        _ => false,
    }
}

/// Converts `name \in interval` to an inequality. Returns `None` if `name` isn't a symbol, an end has unknowns, or both
/// ends are infinite.
fn between(name: &Expr, ends: &[Expr; 2], low_open: bool, high_open: bool) -> Option<Expr> {
    let infinite =
        |end: &Expr| matches!(end, Expr::Constant(Constant::Infinity | Constant::NegativeInfinity));
    if !matches!(name, Expr::Symbol(_)) || ends.iter().any(Expr::has_unknowns) {
        return None;
    }
    let kind = |open: bool| if open { Relation::Less } else { Relation::LessEqual };
    let low = Expr::relation(kind(low_open), ends[0].clone(), name.clone());
    let high = Expr::relation(kind(high_open), name.clone(), ends[1].clone());
    match (infinite(&ends[0]), infinite(&ends[1])) {
        (true, true) => None,
        (true, false) => Some(high),
        (false, true) => Some(low),
        (false, false) => Some(Expr::Chain(vec![low, high])),
    }
}

/// Returns whether a value is a name for an unknown. A word such as `yes` is a value.
fn names_unknown(value: &Expr) -> bool {
    match value {
        Expr::Symbol(name) => name.chars().count() == 1 || name.contains('_') || name.contains('{'),
        other => other.names_only(),
    }
}

/// Returns whether a value differs from the number after it by less than a unit of the number's last digit, or by 1 %.
fn approximates(value: &Expr, rounded: &Expr) -> bool {
    let (Some(exact), Some(rough)) = (numeric::approximate(value), numeric::approximate(rounded)) else {
        return value == rounded;
    };
    let unit = match rounded {
        Expr::Decimal(digits, _) => {
            let places = (0..18).find(|places| (digits * RBig::from(10u64.pow(*places))).is_int());
            10f64.powi(-(places.unwrap_or(18) as i32))
        }
        Expr::Number(_) => 1.0,
        _ => 1e-2 * rough.abs(),
    };
    (exact - rough).abs() < unit || exact == rough
}

/// Returns the set of numbers that a capital letter names.
fn number_set(name: &str) -> Option<NumberSet> {
    Some(match name {
        "N" => NumberSet::Naturals,
        "Z" => NumberSet::Integers,
        "Q" => NumberSet::Rationals,
        "R" => NumberSet::Reals,
        _ => return None,
    })
}

fn as_set(operand: Operand, parity: bool) -> Parsed<Expr> {
    if operand.braced {
        return Ok(set_of(vec![operand.expr]));
    }
    match operand.expr {
        Expr::Tuple(values) => Ok(Expr::Tuple(values)),
        other if other.is_set() || !parity && matches!(other, Expr::Symbol(_)) => Ok(other),
        _ => Err(ParseError::Syntax),
    }
}

/// Whether an expression can be the left side of a list of values: a name, a function of names, or a power of a name.
fn names_list(left: &Expr) -> bool {
    match left {
        Expr::Symbol(_) | Expr::Apply(..) => true,
        Expr::Pow(pair) => matches!(pair[0], Expr::Symbol(_)) && pair[1].is_number(),
        _ => false,
    }
}

/// Returns whether math-verify reads an expression as a name: a letter, a power of one, or several in parentheses.
fn is_atom(left: &Expr) -> bool {
    match left {
        Expr::Symbol(_) => true,
        Expr::Constant(Constant::Pi | Constant::ImaginaryUnit | Constant::EulerGamma) => true,
        Expr::Pow(pair) => matches!(pair[0], Expr::Symbol(_)),
        Expr::Tuple(parts) => parts.iter().all(is_atom),
        Expr::Interval(ends, true, true) => ends.iter().all(is_atom),
        _ => false,
    }
}

fn is_collection(value: &Expr) -> bool {
    value.is_set() || matches!(value, Expr::Tuple(_))
}

/// Removes the braces around a single value. Other values are unchanged.
pub(super) fn ungrouped(value: Expr) -> Expr {
    match value {
        Expr::Set(mut values)
            if values.len() == 1 && !is_collection(&values[0]) && !values[0].is_relation() =>
        {
            values.swap_remove(0)
        }
        other => other,
    }
}

fn collapse(mut row: Vec<Expr>) -> Expr {
    if row.len() == 1 { row.swap_remove(0) } else { set_of(row) }
}

/// Appends a value to a list. If `both` is true and the value is a set, as from a plus-minus, appends its elements.
pub(super) fn push_values(row: &mut Vec<Expr>, value: Expr, both: bool) {
    match value {
        Expr::Set(values) if both => row.extend(values),
        other => row.push(other),
    }
}

/// Builds a finite set, which keeps the order of the text and drops repeats.
pub(super) fn set_of(values: Vec<Expr>) -> Expr {
    let mut kept: Vec<Expr> = Vec::with_capacity(values.len());
    for value in values {
        if kept.len() > 64 || !kept.contains(&value) {
            kept.push(value);
        }
    }
    Expr::Set(kept)
}
