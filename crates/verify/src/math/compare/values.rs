//! Compares single values: constants by exact and ball arithmetic, and other expressions as polynomials and at points.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use dashu_base::{BitTest, Sign, UnsignedAbs};
use dashu_int::{IBig, UBig};
use dashu_ratio::RBig;

use super::difference::{Difference, Place, is_stepped};
use super::floating;
use super::{Answer, Compared, Comparer, EXACTLY_DIFFERENT, EXACTLY_EQUAL, Evidence, SURELY_DIFFERENT};
use crate::math::Mode;
use crate::math::ball::{Complex, Precision};
use crate::math::budget::{Exhausted, MAX_DIGITS, MAX_STEPS, known};
use crate::math::canonical;
use crate::math::exact;
use crate::math::expr::{Constant, Expr, Function};
use crate::math::lexer::scaled;
use crate::math::numeric::{self, FAR_POINTS, Field, NATURAL_POINTS, POINTS, Point};

impl Comparer<'_> {
    pub(super) fn values(&mut self, gold: &Expr, answer: &Expr) -> Compared {
        if !self.estranged && gold == answer {
            return Ok(EXACTLY_EQUAL);
        }
        if let (Expr::Number(gold), Expr::Number(answer)) = (gold, answer) {
            return Ok(Answer { equal: gold == answer, evidence: Evidence::Exact });
        }
        if matches!(gold, Expr::Symbol(_)) || matches!(answer, Expr::Symbol(_)) {
            let unit = |side: &Expr| *side == Expr::Constant(Constant::ImaginaryUnit);
            if !(self.parity() && (unit(gold) || unit(answer)))
                && let (Some(first), Some(second)) = (spelled(gold), spelled(answer))
                && (first == second || self.folds_case(gold, answer) && first.eq_ignore_ascii_case(&second))
            {
                return Ok(EXACTLY_EQUAL);
            }
            // A name equals only itself.
            if self.parity() {
                return Ok(EXACTLY_DIFFERENT);
            }
        }
        let infinite = |expr: &Expr| {
            matches!(
                expr,
                Expr::Constant(Constant::Infinity | Constant::NegativeInfinity | Constant::ComplexInfinity)
            )
        };
        if infinite(gold) || infinite(answer) {
            let signs = signed_infinity(gold).zip(signed_infinity(answer));
            let equal = signs.is_some_and(|(first, second)| first == second);
            return Ok(Answer { equal, evidence: Evidence::Exact });
        }
        if exact::matrix(gold).is_some() && exact::matrix(answer).is_some() {
            return self.matrices(gold, answer);
        }
        if gold.has_unknowns() || answer.has_unknowns() {
            if let (false, Some((gold, answer))) = (self.parity(), with_factors(gold, answer)) {
                return self.symbolic(&gold, &answer);
            }
            self.symbolic(gold, answer)
        } else {
            self.constants(gold, answer)
        }
    }

    /// Returns whether names are compared without case. Strict mode does so only for a word and a product of its
    /// letters: `\text{AB}` and `AB`.
    fn folds_case(&self, first: &Expr, second: &Expr) -> bool {
        self.parity()
            || matches!((first, second), (Expr::Symbol(_), Expr::Mul(_)) | (Expr::Mul(_), Expr::Symbol(_)))
    }

    fn constants(&mut self, gold: &Expr, answer: &Expr) -> Compared {
        let first = exact::rational(gold, &mut self.fuel)?;
        let second = exact::rational(answer, &mut self.fuel)?;
        if self.parity() {
            return self.constants_by_parity(gold, first, answer, second);
        }
        if let (Some(first), Some(second)) = (&first, &second) {
            if first == second {
                return Ok(EXACTLY_EQUAL);
            }
            if self.options.percent_as_number
                && let (Expr::Percent(inner), other) | (other, Expr::Percent(inner)) = (gold, answer)
                && let (
                    Expr::Number(inner) | Expr::Decimal(inner, _),
                    Expr::Number(other) | Expr::Decimal(other, _),
                ) = (&**inner, other)
                && inner == other
            {
                return Ok(EXACTLY_EQUAL);
            }
            let equal = self.rounds(&Written::of(gold), first, &Written::of(answer), second);
            return Ok(Answer { equal, evidence: Evidence::Exact });
        }
        match (Written::of(gold), Written::of(answer)) {
            (Written::Exact, Written::Exact) => self.by_balls(gold, answer),
            _ => self.rounded_strictly(gold, answer),
        }
    }

    /// Returns whether two rational values agree to the digits of the coarser one. A number not written as a decimal is
    /// exact: a decimal agrees with it if it is the exact value, rounded or, for an endless decimal, cut.
    fn rounds(&self, gold: &Written, first: &RBig, answer: &Written, second: &RBig) -> bool {
        let whole = |written: &Written, value: &RBig| matches!(written, Written::Exact) && value.is_int();
        if whole(gold, first) || whole(answer, second) || first.is_zero() || second.is_zero() {
            return false;
        }
        let exact = match (gold, answer) {
            (Written::Exact, _) => Some((first, second)),
            (_, Written::Exact) => Some((second, first)),
            _ => None,
        };
        let endless = exact.is_some_and(|(exact, _)| !is_finite_decimal(exact));
        let Some(place) = self.last_place(gold, answer, endless) else { return false };
        let size = |value: RBig| if value.sign() == Sign::Negative { -value } else { value };
        // The difference is at most half a unit of the last digit.
        let unit = scaled(IBig::ONE, place);
        size(first - second) * RBig::from(2) <= unit
            || endless
                && exact.is_some_and(|(exact, decimal)| {
                    let rest = size(exact.clone()) - size(decimal.clone());
                    exact.sign() == decimal.sign() && rest.sign() == Sign::Positive && rest < unit
                })
    }

    /// Returns the power of ten of the last digit that is compared: the last of the coarser decimal, but at least its
    /// third. Trailing zeros are digits. A value without a last digit is compared to at most 15 digits.
    fn last_place(&self, gold: &Written, answer: &Written, endless: bool) -> Option<i64> {
        const DOUBLE: i64 = 15;
        const CENTS: i64 = -2;
        let precision = self.options.precision as i64;
        // A gold that is marked as rounded has as many digits as are written, at least three.
        const LEAST: i64 = 3;
        if let (true, Written::Digits { first, last, .. }) = (self.rounded, gold) {
            let own = first - (first - last + 1).max(LEAST) + 1;
            let other = if let Written::Digits { last, .. } = answer { *last } else { own };
            return Some(own.max(other)).filter(|_| other <= own);
        }
        if !endless {
            // Two decimals are compared to the digits that a double prints.
            let lasts = [gold, answer].map(|written| match written {
                Written::Digits { first, count, .. } => Some((*count > DOUBLE).then_some(first - DOUBLE + 1)),
                Written::Exact => None,
            });
            return lasts.into_iter().collect::<Option<Vec<_>>>()?.into_iter().flatten().max();
        }
        match (gold, answer) {
            (Written::Exact, Written::Exact) => None,
            (Written::Digits { first, last, .. }, Written::Exact)
            | (Written::Exact, Written::Digits { first, last, .. }) => {
                if self.money && *last == CENTS {
                    return Some(CENTS);
                }
                let written = first - last + 1;
                (written >= precision).then_some(first - written.min(DOUBLE.max(precision)) + 1)
            }
            (Written::Digits { .. }, Written::Digits { .. }) => None,
        }
    }

    /// Compares a decimal with an irrational constant in strict mode: the decimal must be the constant, rounded to its digits.
    fn rounded_strictly(&mut self, gold: &Expr, answer: &Expr) -> Compared {
        let (first, second) = (Written::of(gold), Written::of(answer));
        let Some(place) = self.last_place(&first, &second, true) else { return Ok(EXACTLY_DIFFERENT) };
        let unit = place as f64 * std::f64::consts::LOG2_10;
        let of_gold = matches!(first, Written::Exact);
        self.until_decided(gold, answer, 0, |[gold, answer, difference]| {
            let bound = difference.log2_bound();
            let known = !difference.holds_zero() || bound < unit - 21.0;
            let exact = if of_gold { gold.re.sign() } else { answer.re.sign().map(Ordering::reverse) };
            // Cut: the rest has the sign of the exact value.
            let cut = bound < unit && exact.is_some() && exact == difference.re.sign();
            known.then(|| (bound <= unit - 1.0 || cut) && difference.is_real())
        })
    }

    /// Evaluates both sides and their difference with increasing precision, until it is clear whether the sides are equal.
    fn until_decided(
        &mut self,
        gold: &Expr,
        answer: &Expr,
        first_level: usize,
        decide: impl Fn([&Complex; 3]) -> Option<bool>,
    ) -> Compared {
        for level in first_level..Precision::LEVELS {
            let precision = Precision::level(level);
            let mut point = Point::new(Field::None, 0, self.imaginary());
            let a = numeric::evaluate(gold, &mut point, precision, &mut self.fuel)?;
            let b = numeric::evaluate(answer, &mut point, precision, &mut self.fuel)?;
            let (Some(a), Some(b)) = (a, b) else { return self.opaque(gold, answer) };
            let difference = a.subtract(&b, precision);
            if let Some(equal) = decide([&a, &b, &difference]) {
                return Ok(Answer { equal, evidence: Evidence::Certified });
            }
        }
        self.unresolved(gold, answer)
    }

    fn constants_by_parity(
        &mut self,
        gold: &Expr,
        first: Option<RBig>,
        answer: &Expr,
        second: Option<RBig>,
    ) -> Compared {
        let decimal = |expr: &Expr| match expr {
            Expr::Decimal(..) => true,
            Expr::Percent(inner) => matches!(**inner, Expr::Decimal(..)),
            _ => false,
        };
        let literal = |expr: &Expr| expr.is_number() || matches!(expr, Expr::Percent(_));
        if let (Some(first), Some(second)) = (&first, &second) {
            // An exact number equals computed decimals only without their noise, a formula only with little of it.
            let exact = |expr: &Expr| matches!(expr, Expr::Number(_));
            let computed = |expr: &Expr| expr.any(&|node| matches!(node, Expr::Decimal(..)));
            let neither_literal = [gold, answer].iter().all(|side| exact(side) || !literal(side));
            let one_exact = exact(gold) || exact(answer);
            if neither_literal
                && (one_exact || first == second)
                && (computed(gold) || computed(answer))
                && let Some(noise) = floating::difference(gold, answer)
            {
                let equal = noise == 0.0 || (!one_exact && noise.abs() < 1e-16);
                return Ok(Answer { equal, evidence: Evidence::Exact });
            }
            if first == second || percent_rule(gold, answer) {
                return Ok(EXACTLY_EQUAL);
            }
            if decimal(gold) || decimal(answer) {
                let equal = self.rounds_equal(gold, first, answer, second);
                return Ok(Answer { equal, evidence: Evidence::Exact });
            }
            let equal = !literal(gold) && !literal(answer) && below_chop(&(first - second));
            return Ok(Answer { equal, evidence: Evidence::Exact });
        }
        if decimal(gold) || decimal(answer) {
            return self.rounded(gold, answer);
        }
        let place = Place { field: Field::None, seed: 0, levels: (1, 2), margin: 140.0 };
        match self.difference(gold, answer, &place)? {
            Difference::Undefined => self.opaque(gold, answer),
            Difference::Zero => Ok(Answer { equal: true, evidence: Evidence::Probabilistic }),
            Difference::Apart { size, .. } => {
                let chop = if literal(gold) || literal(answer) { -180.0 } else { -53.0 };
                Ok(Answer { equal: size < chop, evidence: Evidence::Certified })
            }
            Difference::Unresolved => self.unresolved(gold, answer),
        }
    }

    /// Compares rational values of which one is written as a decimal.
    fn rounds_equal(&self, gold: &Expr, first: &RBig, answer: &Expr, second: &RBig) -> bool {
        let whole = |expr: &Expr, value: &RBig| {
            value.is_int() && !expr.any(&|node| matches!(node, Expr::Decimal(..)))
        };
        if whole(gold, first) || whole(answer, second) {
            return false;
        }
        let digits = self.options.precision.min(30);
        round(first, digits) == round(second, digits)
    }

    /// Compares a decimal with an irrational constant.
    fn rounded(&mut self, gold: &Expr, answer: &Expr) -> Compared {
        let digits = self.options.precision.min(30);
        let unit = 10f64.powi(digits as i32);
        self.until_decided(gold, answer, 1, |[a, b, difference]| {
            if !a.is_real() || !b.is_real() {
                return Some(difference.log2_bound() < -53.0);
            }
            (difference.re.error_bound() * unit < 1e-6).then(|| {
                let apart = difference.re.to_f64().abs() * unit;
                let (x, y) = (a.re.to_f64() * unit, b.re.to_f64() * unit);
                apart < 1.01 && x.round_ties_even() == y.round_ties_even()
            })
        })
    }

    /// Compares balls of increasing precision. A ball of the difference that doesn't contain zero proves a difference.
    fn by_balls(&mut self, gold: &Expr, answer: &Expr) -> Compared {
        let place = Place { field: Field::None, seed: 0, levels: (0, 2), margin: 340.0 };
        match self.difference(gold, answer, &place)? {
            Difference::Undefined => self.opaque(gold, answer),
            Difference::Zero if self.hides_small(gold)? || self.hides_small(answer)? => {
                self.unresolved(gold, answer)
            }
            Difference::Zero => Ok(Answer { equal: true, evidence: Evidence::Probabilistic }),
            Difference::Apart { .. } => Ok(SURELY_DIFFERENT),
            Difference::Unresolved => self.unresolved(gold, answer),
        }
    }

    /// Returns whether a term, exponent or argument is too small to show in the computed digits, as in `2^{2^{-1000}}`.
    fn hides_small(&mut self, expr: &Expr) -> Result<bool, Exhausted> {
        const SMALL: f64 = -100.0;
        let parts = match expr {
            Expr::Add(parts) | Expr::Call(_, parts) => &parts[..],
            Expr::Pow(pair) => &pair[1..],
            _ => &[],
        };
        for part in parts {
            if part.is_number() && !matches!(part, Expr::Decimal(..)) || part.has_unknowns() {
                continue;
            }
            let mut point = Point::new(Field::None, 0, self.imaginary());
            let value = numeric::evaluate(part, &mut point, Precision::level(0), &mut self.fuel)?;
            let small = value.is_some_and(|value| value.log2_bound() < SMALL);
            if small && !exact::rational(part, &mut self.fuel)?.is_some_and(|value| value.is_zero()) {
                return Ok(true);
            }
        }
        for child in expr.children() {
            if self.hides_small(child)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether a value can't be computed within the budget, or at all.
    pub(super) fn has_no_value(&mut self, value: &Expr) -> bool {
        let open = value.any(&is_open);
        if !value.has_unknowns() {
            match exact::rational(value, &mut self.fuel) {
                Ok(None) => {}
                computed => return computed.is_err(),
            }
        }
        let field = if value.has_unknowns() { self.field(&[value]) } else { Field::None };
        let mut defined = false;
        for seed in 0..if field == Field::None { 1 } else { u64::from(MANY_POINTS) } {
            let mut point = Point::new(field, seed, self.imaginary());
            match numeric::evaluate(value, &mut point, Precision::level(1), &mut self.fuel) {
                Ok(found) => defined |= found.is_some(),
                Err(Exhausted) if field == Field::None || self.fuel.is_empty() => return true,
                Err(Exhausted) => {}
            }
        }
        open && !defined
    }

    /// Compares two values whose difference is too small for the computed digits. They are equal if they are written the same, and otherwise undecided.
    fn unresolved(&mut self, gold: &Expr, answer: &Expr) -> Compared {
        if canonical::alike(gold, answer) { Ok(EXACTLY_EQUAL) } else { Err(Exhausted) }
    }

    /// Compares expressions whose value can't be computed by their structure.
    fn opaque(&mut self, gold: &Expr, answer: &Expr) -> Compared {
        if self.estranged {
            return Ok(EXACTLY_DIFFERENT);
        }
        let equal = canonical::alike(gold, answer);
        if !equal && (gold.any(&is_open) || answer.any(&is_open)) {
            return self.open(gold, answer);
        }
        Ok(Answer { equal, evidence: Evidence::Exact })
    }

    /// Compares unevaluated sums, integrals and limits by structure if both sides have the same ones. Otherwise the answer
    /// counts as beyond the budget.
    fn open(&mut self, gold: &Expr, answer: &Expr) -> Compared {
        if let Some((gold, answer)) = self.with_open_named(gold, answer) {
            let result = self.symbolic(&gold, &answer)?;
            if result.equal {
                return Ok(result);
            }
        }
        // Expressions of different form may have the same value.
        Err(Exhausted)
    }

    /// Replaces sums, integrals, limits and derivatives by symbols. `None` if the answer has one that the gold lacks.
    pub(super) fn with_open_named(&mut self, gold: &Expr, answer: &Expr) -> Option<(Expr, Expr)> {
        let mut known: Vec<Expr> = Vec::new();
        let unknown = |place: usize| Expr::symbol(&format!("#{place}"));
        let gold = gold.replaced(&mut |node| {
            is_open(node).then(|| {
                let place = known.iter().position(|other| other == node).unwrap_or_else(|| {
                    known.push(node.clone());
                    known.len() - 1
                });
                unknown(place)
            })
        });
        let mut strange = known.is_empty() || known.len() > 8;
        let answer = answer.replaced(&mut |node| {
            if strange || !is_open(node) {
                return None;
            }
            for (place, other) in known.iter().enumerate() {
                match self.same_open(other, node) {
                    Ok(true) => return Some(unknown(place)),
                    Ok(false) => {}
                    Err(Exhausted) => break,
                }
            }
            strange = true;
            None
        });
        (!strange).then_some((gold, answer))
    }

    /// Returns whether two sums, integrals, limits or derivatives are identical, except for the form of equal bodies.
    fn same_open(&mut self, first: &Expr, second: &Expr) -> Result<bool, Exhausted> {
        Ok(match (first, second) {
            (Expr::Fold(kind, body, variable, ends), Expr::Fold(other, inner, name, limits)) => {
                let same_ends = match (ends, limits) {
                    (Some(a), Some(b)) => canonical::alike(&a[0], &b[0]) && canonical::alike(&a[1], &b[1]),
                    (None, None) => true,
                    _ => false,
                };
                kind == other && variable == name && same_ends && self.values(body, inner)?.equal
            }
            (Expr::Limit(pair, variable, left), Expr::Limit(other, name, side)) => {
                variable == name
                    && left == side
                    && canonical::alike(&pair[1], &other[1])
                    && self.values(&pair[0], &other[0])?.equal
            }
            (Expr::Derivative(body, variable), Expr::Derivative(inner, name)) => {
                variable == name && self.values(body, inner)?.equal
            }
            _ => false,
        })
    }

    pub(super) fn imaginary(&self) -> bool {
        self.options.mode == Mode::Strict
    }

    pub(super) fn field(&self, sides: &[&Expr]) -> Field {
        let discrete = |node: &Expr| {
            matches!(
                node,
                Expr::Call(
                    Function::Factorial
                        | Function::Gamma
                        | Function::Binomial
                        | Function::Gcd
                        | Function::Lcm
                        | Function::Mod,
                    _
                ) | Expr::Fold(..)
            )
        };
        if sides.iter().any(|side| side.any(&discrete)) {
            Field::Natural
        } else if self.complex && self.parity() {
            Field::Complex
        } else {
            Field::Rational
        }
    }

    /// Whether two expressions with roundings agree if all unknowns have the same value, also at values at which a
    /// rounding may step ([`steps`]). `whole` is whether unknowns are whole numbers. Returns `None` if too few
    /// values are exact, or only one side's.
    fn at_steps(&mut self, gold: &Expr, answer: &Expr, whole: bool) -> Result<Option<bool>, Exhausted> {
        const LEAST: u32 = 14;
        // An algebraic identity holds for any value of these constants.
        let rational = |side: &Expr| {
            side.replaced(&mut |node| match node {
                Expr::Constant(Constant::Pi) => {
                    Some(Expr::Number(RBig::from_parts(355.into(), 113u8.into())))
                }
                Expr::Constant(Constant::E) => {
                    Some(Expr::Number(RBig::from_parts(1264.into(), 465u16.into())))
                }
                Expr::Pow(pair)
                    if !node.has_unknowns() && !matches!(&pair[1], Expr::Number(power) if power.is_int()) =>
                {
                    const PARTS: u32 = 10_007;
                    let count = (numeric::approximate(node)? * f64::from(PARTS)) as i64;
                    Some(Expr::Number(RBig::from_parts(count.into(), PARTS.into())))
                }
                _ => None,
            })
        };
        let written = [gold, answer];
        let (gold, answer) = (&rational(gold), &rational(answer));
        let names: BTreeSet<&str> = gold.symbols().into_iter().chain(answer.symbols()).collect();
        let (mut agreed, mut apart) = (0, false);
        let mut undecided = Vec::new();
        for value in steps(gold, answer) {
            if whole && !value.is_int() {
                continue;
            }
            // The other points need steps too.
            if !self.fuel.holds(MAX_STEPS * 5 / 8) {
                break;
            }
            let mut bindings: exact::Bindings =
                names.iter().map(|name| ((*name).into(), value.clone())).collect();
            let mut exactly = |side: &Expr| match exact::rational_with(side, &mut bindings, &mut self.fuel) {
                Err(Exhausted) if !self.fuel.is_empty() => Ok(None),
                value => value,
            };
            match (exactly(gold)?, exactly(answer)?) {
                (Some(first), Some(second)) if first != second => return Ok(Some(false)),
                (Some(_), Some(_)) => agreed += 1,
                (first, second) => undecided.push((value, first != second)),
            }
        }
        // Steps may run out: first the values at which one side is exact, and small and large ones in turn.
        undecided.sort();
        undecided.dedup();
        let (first, rest): (Vec<_>, Vec<_>) = undecided.into_iter().partition(|(_, differ)| *differ);
        for values in [first, rest] {
            for at in 0..values.len() {
                let (value, differ) = &values[if at % 2 == 0 { at / 2 } else { values.len() - 1 - at / 2 }];
                let known = self.fuel.holds(MAX_STEPS / 4);
                match if known { self.agree_at(written, &names, value)? } else { None } {
                    Some(false) => return Ok(Some(false)),
                    Some(true) => agreed += 1,
                    None => apart |= *differ,
                }
            }
        }
        Ok((agreed >= LEAST && !apart).then_some(true))
    }

    /// Whether two expressions have the same value at a value of their only unknown. Returns `None` if it can't be decided.
    fn agree_at(
        &mut self,
        sides: [&Expr; 2],
        names: &BTreeSet<&str>,
        value: &RBig,
    ) -> Result<Option<bool>, Exhausted> {
        let rounds = |node: &Expr| matches!(node, Expr::Call(Function::Floor | Function::Ceiling, _));
        let Some(name) =
            names.first().filter(|_| names.len() == 1 && sides.iter().any(|side| side.any(&rounds)))
        else {
            return Ok(None);
        };
        let precision = Precision::level(0);
        let mut point = Point::at_rational(name, value.clone());
        let mut number = |side: &Expr| match numeric::evaluate(side, &mut point, precision, &mut self.fuel) {
            Err(Exhausted) if !self.fuel.is_empty() => Ok(None),
            value => value,
        };
        let Some((first, second)) = number(sides[0])?.zip(number(sides[1])?) else { return Ok(None) };
        let difference = first.subtract(&second, precision);
        Ok(match difference.holds_zero() {
            false => Some(false),
            true => (difference.log2_bound() < -40.0).then_some(true),
        })
    }

    /// Returns whether all roots and logarithms of unknowns in an expression are real at a point.
    fn is_real_at(&mut self, expr: &Expr, field: Field, seed: u64) -> Result<bool, Exhausted> {
        if is_branched(expr) {
            let mut point = Point::new(field, seed, self.imaginary());
            let inside = expr.children()[0];
            let value = numeric::evaluate(inside, &mut point, Precision::level(0), &mut self.fuel);
            match value {
                Ok(Some(value)) if value.re.sign() == Some(Ordering::Less) => return Ok(false),
                Err(Exhausted) if self.fuel.is_empty() => return Err(Exhausted),
                _ => {}
            }
        }
        for child in expr.children() {
            if !self.is_real_at(child, field, seed)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn symbolic(&mut self, gold: &Expr, answer: &Expr) -> Compared {
        if self.estranged {
            // Only expressions that don't depend on a symbol can agree.
            return Ok(EXACTLY_DIFFERENT);
        }
        let noisy = [gold, answer].iter().any(|side| side.any(&|node| matches!(node, Expr::Decimal(..))));
        let exactly = known(canonical::equal(gold, answer, &mut self.fuel))?;
        // math-verify computes decimals in floating point, so a difference may be rounding noise.
        if let Some(equal) = exactly.filter(|equal| *equal || !noisy || !self.parity()) {
            return Ok(Answer { equal, evidence: Evidence::Exact });
        }
        if canonical::alike(gold, answer) {
            return Ok(EXACTLY_EQUAL);
        }
        let field = self.field(&[gold, answer]);
        let stepped = |node: &Expr| matches!(node, Expr::Call(function, _) if is_stepped(*function));
        if !self.parity() && (gold.any(&stepped) || answer.any(&stepped)) {
            // Only floors and ceilings, of one variable whose name suggests a whole number.
            let rounds = |node: &Expr| match node {
                Expr::Call(function, _) if is_stepped(*function) => {
                    matches!(function, Function::Floor | Function::Ceiling)
                }
                _ => true,
            };
            let counted = gold.symbols() == answer.symbols()
                && matches!(gold.symbols()[..], ["n" | "m" | "k" | "j"])
                && ![gold, answer].iter().any(|side| side.any(&|node| !rounds(node)));
            match self.at_steps(gold, answer, counted)? {
                Some(true) if counted => {
                    return Ok(Answer { equal: true, evidence: Evidence::Probabilistic });
                }
                Some(false) => return Ok(SURELY_DIFFERENT),
                _ => {}
            }
        }
        // In strict mode, roots and logarithms of unknowns are real.
        let branched = !self.parity()
            && [gold, answer].iter().any(|side| side.any(&is_branched))
            && ![gold, answer].iter().any(|side| side.symbols().contains(&"i"));
        let (mut outside, mut uncovered) = (false, false);
        let points = match field {
            Field::Natural => NATURAL_POINTS,
            _ if gold.any(&stepped) || answer.any(&stepped) => FAR_POINTS,
            _ => POINTS,
        };
        let mut agreed = 0;
        let positive = if branched && field == Field::Rational { REAL_SEEDS } else { 0..0 };
        for seed in (0..points).chain(positive) {
            // Large expressions are not computed to many digits at every point.
            let levels = (0, if self.fuel.is_low() { 0 } else { 2 });
            if branched {
                if !self.is_real_at(gold, field, seed)? {
                    outside = true;
                    continue;
                }
                if !self.is_real_at(answer, field, seed)? {
                    uncovered = true;
                    continue;
                }
            }
            match self.difference(gold, answer, &Place { field, seed, levels, margin: 60.0 }) {
                Ok(Difference::Zero) => agreed += 1,
                // Floating point would not show such a difference.
                Ok(Difference::Apart { size, scale }) if noisy && self.parity() && size < scale - 52.5 => {
                    agreed += 1;
                }
                Ok(Difference::Apart { .. }) => return Ok(SURELY_DIFFERENT),
                Ok(Difference::Undefined | Difference::Unresolved) => {}
                // If this point needs too many steps, other points are tried while steps are left.
                Err(Exhausted) if !self.fuel.is_empty() => {}
                Err(Exhausted) if agreed >= MANY_POINTS => break,
                Err(Exhausted) => return Err(Exhausted),
            }
        }
        // `n!` and `\binom{n}{k}` are defined only at some points, so more points are tried.
        let mut seed = points;
        while field == Field::Natural && agreed < ENOUGH_POINTS && seed < points + MORE_POINTS {
            match self.difference(gold, answer, &Place { field, seed, levels: (0, 2), margin: 60.0 }) {
                Ok(Difference::Zero) => agreed += 1,
                Ok(Difference::Apart { .. }) => return Ok(SURELY_DIFFERENT),
                Err(Exhausted) if self.fuel.is_empty() => return Err(Exhausted),
                _ => {}
            }
            seed += 1;
        }
        // The gold is defined everywhere, but the answer isn't.
        if uncovered && !outside {
            return Ok(SURELY_DIFFERENT);
        }
        if agreed < ENOUGH_POINTS {
            return self.opaque(gold, answer);
        }
        if !self.parity() && (self.hides_small(gold)? || self.hides_small(answer)?) {
            return self.unresolved(gold, answer);
        }
        let seed = if branched && field == Field::Rational { REAL_SEEDS.start } else { 0 };
        let closely = Place { field, seed, levels: (2, 2), margin: 300.0 };
        if !noisy && matches!(self.difference(gold, answer, &closely), Ok(Difference::Apart { .. })) {
            return Ok(SURELY_DIFFERENT);
        }
        Ok(Answer { equal: true, evidence: Evidence::Probabilistic })
    }
}

/// Returns numbers at which expressions with roundings may step: small integers, and multiples and products of the
/// numbers in the expressions, alone or plus or minus another of these numbers.
fn steps(gold: &Expr, answer: &Expr) -> Vec<RBig> {
    const MOST: usize = 6;
    let one = RBig::ONE;
    let mut numbers: Vec<RBig> = Vec::new();
    let mut nodes = vec![gold, answer];
    while let Some(node) = nodes.pop() {
        if let Expr::Number(value) | Expr::Decimal(value, _) = node {
            let size = if value.sign() == Sign::Negative { -value.clone() } else { value.clone() };
            let below = RBig::from(size.denominator().clone());
            numbers.extend([size, below].into_iter().filter(|size| *size > RBig::ONE || !size.is_int()));
        }
        nodes.extend(node.children());
    }
    numbers.sort();
    numbers.dedup();
    let excess = numbers.len().saturating_sub(MOST);
    numbers.drain(..excess);
    let mut multiples: Vec<RBig> = Vec::new();
    for (at, number) in numbers.iter().enumerate() {
        multiples.extend([1, 2, 3].map(|count| number * RBig::from(count)));
        multiples.extend(numbers[at..].iter().map(|other| number * other));
        multiples.push(number * number * number);
    }
    multiples.extend([64, 81, 1_000, 1_000_003].map(RBig::from));
    let mut points = multiples.clone();
    for multiple in &multiples {
        for part in numbers.iter().chain([&one]) {
            points.extend([multiple + part, multiple - part]);
        }
    }
    let largest = numbers.last().map_or(32, |last| last.to_f64().value().min(90.0) as i64);
    points.retain(|point| *point > RBig::from(largest) || !point.is_int() && point.sign() == Sign::Positive);
    (1..=largest.max(12)).map(RBig::from).chain(points).collect()
}

/// Form of a value: exact, or a decimal of `count` significant digits from `10^first` on, and zeros down to `10^last`.
enum Written {
    Exact,
    Digits { first: i64, count: i64, last: i64 },
}

impl Written {
    /// Reads the digits of a decimal, of a percentage, or of a decimal times a power of ten. Any other expression is exact.
    fn of(expr: &Expr) -> Self {
        match expr {
            Expr::Decimal(value, last) => Self::digits(value, *last),
            Expr::Percent(inner) => Self::of(inner).moved(-2),
            Expr::Mul(factors) => {
                let mut written = Self::Exact;
                let mut shift = 0;
                for factor in factors {
                    match factor {
                        Expr::Decimal(value, last) if matches!(written, Self::Exact) => {
                            written = Self::digits(value, *last)
                        }
                        Expr::Number(value) if *value == RBig::from(-1) => {}
                        Expr::Pow(pair) if pair[0] == Expr::integer(10) => {
                            match pair[1].as_integer().and_then(|exponent| i64::try_from(exponent).ok()) {
                                Some(exponent) => shift += exponent,
                                None => return Self::Exact,
                            }
                        }
                        _ => return Self::Exact,
                    }
                }
                written.moved(shift)
            }
            _ => Self::Exact,
        }
    }

    fn moved(self, by: i64) -> Self {
        match self {
            Self::Exact => Self::Exact,
            Self::Digits { first, count, last } => Self::Digits { first: first + by, count, last: last + by },
        }
    }

    /// Returns the form of a decimal whose last written digit is at `10^last`.
    fn digits(value: &RBig, last: i64) -> Self {
        let Some((scaled, places)) = without_point(value, MAX_DIGITS) else { return Self::Exact };
        let digits = scaled.unsigned_abs().to_string();
        let count = digits.trim_end_matches('0').len().max(1) as i64;
        let first = digits.len() as i64 - 1 - places as i64;
        // Zero doesn't have significant digits.
        let end = first - count + 1;
        Self::Digits { first, count, last: if value.is_zero() { end } else { last.min(end) } }
    }
}

/// Returns whether a number is a decimal with at least so many significant digits.
pub(super) fn has_digits(number: &Expr, least: usize) -> bool {
    matches!(number, Expr::Decimal(..))
        && matches!(Written::of(number), Written::Digits { count, .. } if count >= least as i64)
}

/// Returns whether a finite decimal has this value.
fn is_finite_decimal(value: &RBig) -> bool {
    let denominator = value.denominator().clone();
    let odd = &denominator >> denominator.trailing_zeros().unwrap_or(0);
    // If `odd` is a power of five, it divides this power.
    let power = UBig::from(5u8).pow(odd.bit_len() / 2 + 1);
    power % odd == UBig::ZERO
}

/// Returns the digits of a decimal as an integer and the number of digits after the point, or `None` if more than `most`
/// digits follow the point.
pub(in crate::math) fn without_point(value: &RBig, most: usize) -> Option<(IBig, usize)> {
    let mut scaled = value.clone();
    let mut places = 0;
    while !scaled.is_int() {
        scaled *= RBig::from(10);
        places += 1;
        if places > most {
            return None;
        }
    }
    Some((scaled.numerator().clone(), places))
}

/// Returns whether a node is a root or a logarithm of unknowns.
fn is_branched(node: &Expr) -> bool {
    match node {
        Expr::Pow(pair) => {
            matches!(&pair[1], Expr::Number(power) if !power.is_int()) && pair[0].has_unknowns()
        }
        Expr::Call(Function::Log, arguments) => arguments[0].has_unknowns(),
        _ => false,
    }
}

/// Seeds of points at which all unknowns are positive, followed by seeds of points at which only some are.
const REAL_SEEDS: std::ops::Range<u64> = 16..32;
/// Number of points at which equal functions must agree.
const ENOUGH_POINTS: u32 = 4;
/// Number of further points for functions of natural numbers, which are often undefined.
const MORE_POINTS: u64 = 24;
/// Number of points that are enough if no steps are left for more.
const MANY_POINTS: u32 = 5;

/// Returns whether a node is a sum, product, integral, limit or derivative, whose value may not be computed.
pub(super) fn is_open(node: &Expr) -> bool {
    matches!(node, Expr::Fold(..) | Expr::Limit(..) | Expr::Derivative(..))
}

/// Returns the sign of an infinity, which may be scaled.
fn signed_infinity(expr: &Expr) -> Option<bool> {
    match expr {
        Expr::Constant(Constant::Infinity) => Some(true),
        Expr::Constant(Constant::NegativeInfinity) => Some(false),
        Expr::Add(terms) => {
            let mut signs = terms.iter().filter_map(signed_infinity);
            let first = signs.next()?;
            signs.all(|sign| sign == first).then_some(first)
        }
        Expr::Mul(factors) => {
            let mut infinite = None;
            let mut positive = true;
            for factor in factors {
                match signed_infinity(factor) {
                    Some(sign) => infinite = Some(infinite.unwrap_or(true) == sign),
                    None => {
                        let value = numeric::approximate(factor).filter(|value| *value != 0.0)?;
                        positive = positive == (value > 0.0);
                    }
                }
            }
            infinite.map(|sign| sign == positive)
        }
        _ => None,
    }
}

/// Reads `x(e)` on one side as a product if `x` is a variable on the other side.
fn with_factors(gold: &Expr, answer: &Expr) -> Option<(Expr, Expr)> {
    let applies = |node: &Expr| matches!(node, Expr::Apply(..));
    if gold.any(&applies) == answer.any(&applies) {
        return None;
    }
    let product = |side: &Expr, other: &Expr| {
        side.replaced(&mut |node| match node {
            Expr::Apply(name, arguments) if arguments.len() == 1 => {
                let variable = other.symbols().contains(&&**name);
                variable.then(|| Expr::Mul(vec![Expr::symbol(name), arguments[0].clone()]))
            }
            _ => None,
        })
    };
    Some((product(gold, answer), product(answer, gold)))
}

/// Returns whether one side is a percentage such as `35\%` and the other the whole number 35, which counts as equal.
fn percent_rule(gold: &Expr, answer: &Expr) -> bool {
    match (gold, answer) {
        (Expr::Percent(inner), number) | (number, Expr::Percent(inner)) => {
            number.as_integer().is_some() && **inner == *number
        }
        _ => false,
    }
}

/// Rounds to a number of decimals, half to even.
fn round(value: &RBig, digits: usize) -> dashu_int::IBig {
    let scaled = value * RBig::from(dashu_int::IBig::from(10).pow(digits));
    let floor = scaled.floor();
    let rest = scaled - RBig::from(floor.clone());
    let half = RBig::from_parts(1.into(), 2u8.into());
    let odd = dashu_base::BitTest::bit(&floor, 0);
    if rest > half || (rest == half && odd) { floor + dashu_int::IBig::ONE } else { floor }
}

/// Returns whether a difference is below 1e-16, which math-verify treats as 0.
fn below_chop(difference: &RBig) -> bool {
    difference.to_f64().value().abs() < 1e-16
}

/// Formats a decimal like math-verify, with at most fifteen significant digits. The decimal equals the same text in `\text{}`.
fn printed(value: &RBig) -> Option<String> {
    const DIGITS: usize = 15;
    const MOST: usize = 64;
    let (scaled, places) = without_point(value, MOST)?;
    let digits = scaled.to_string();
    let (sign, digits) = digits.strip_prefix('-').map_or(("", &digits[..]), |rest| ("-", rest));
    // math-verify prints smaller decimals with an exponent.
    if digits == "0" || digits.len() + 4 <= places || digits.len() > MOST {
        return None;
    }
    let whole = format!("{digits:0>width$}", width = places + 1);
    let (whole, fraction) = whole.split_at(whole.len() - places);
    let missing = DIGITS.saturating_sub(digits.len());
    Some(format!("{sign}{whole}.{fraction}{}", "0".repeat(missing)))
}

/// Spells symbols, products of symbols, numbers, and multiples and quotients of these as math-verify prints them: `-x`,
/// `2*x`, `pi/2`.
fn spelled(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Symbol(name) => Some(name.to_string()),
        Expr::Number(value) => Some(value.to_string()),
        Expr::Decimal(value, _) => printed(value),
        Expr::Constant(Constant::E) => Some("e".to_owned()),
        Expr::Constant(Constant::Pi) => Some("pi".to_owned()),
        Expr::Constant(Constant::Infinity) => Some("oo".to_owned()),
        Expr::Constant(Constant::ImaginaryUnit) => Some("i".to_owned()),
        Expr::Mul(factors) => {
            let whole = |expr: &Expr| expr.as_integer().is_some();
            let name = |expr: &Expr| matches!(expr, Expr::Symbol(_) | Expr::Constant(Constant::Pi));
            let minus = Expr::integer(-1);
            let negative = |expr: &Expr| match expr {
                Expr::Mul(factors) => matches!(&factors[..], [sign, value] if *sign == minus && name(value)),
                _ => false,
            };
            match &factors[..] {
                [sign, value] if *sign == minus && name(value) => Some(format!("-{}", spelled(value)?)),
                [above, Expr::Pow(pair)] if pair[1] == minus => {
                    let below = &pair[0];
                    let plain = (name(above) || whole(above)) && matches!(below, Expr::Symbol(_));
                    let fits = plain || (name(above) || negative(above)) && whole(below);
                    fits.then(|| Some(format!("{}/{}", spelled(above)?, spelled(below)?)))?
                }
                [number, value] if whole(number) && name(value) => {
                    Some(format!("{}*{}", spelled(number)?, spelled(value)?))
                }
                _ => {
                    let letter = |factor: &Expr| match factor {
                        Expr::Symbol(name) => Some(name.to_string()),
                        Expr::Constant(Constant::E) => Some("e".to_owned()),
                        Expr::Constant(Constant::ImaginaryUnit) => Some("i".to_owned()),
                        _ => None,
                    };
                    factors.iter().map(letter).collect()
                }
            }
        }
        _ => None,
    }
}
