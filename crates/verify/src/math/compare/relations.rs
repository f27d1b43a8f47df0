//! Compares relations: equations, inequations, inequalities and chains of them.

use super::{Answer, Compared, Comparer, EXACTLY_DIFFERENT, EXACTLY_EQUAL, Evidence, is_collection};
use crate::math::ball::{Complex, Precision};
use crate::math::budget::{Exhausted, known};
use crate::math::canonical;
use crate::math::expr::{Constant, Expr, NumberSet, Relation};
use crate::math::numeric::{self, Field, NATURAL_POINTS, POINTS, Point};
use dashu_base::Sign;
use std::collections::BTreeSet;

impl Comparer<'_> {
    pub(super) fn relations(&mut self, gold: &Expr, answer: &Expr) -> Compared {
        match (gold, answer) {
            (Expr::Not(gold), Expr::Not(answer)) => self.relations(gold, answer),
            (Expr::Chain(gold), Expr::Chain(answer)) if gold.len() == answer.len() => {
                if gold.iter().all(is_equal) && answer.iter().all(is_equal) {
                    return match (first_to_last(gold), first_to_last(answer)) {
                        (Some(gold), Some(answer)) => self.relations(&gold, &answer),
                        _ => Ok(EXACTLY_DIFFERENT),
                    };
                }
                let in_order = self.all_relations(gold.iter().zip(answer))?;
                if in_order.equal || self.parity() {
                    return Ok(in_order);
                }
                self.all_relations(gold.iter().zip(answer.iter().rev()))
            }
            (Expr::Chain(gold), _) if gold.iter().all(is_equal) => {
                // Only the first and the last side of a chain of equations count.
                let Some(shortened) = first_to_last(gold) else { return Ok(EXACTLY_DIFFERENT) };
                if !self.parity() && !self.holds_together(gold)? {
                    return Ok(EXACTLY_DIFFERENT);
                }
                self.relations(&shortened, answer)
            }
            (_, Expr::Chain(answer)) if answer.iter().all(is_equal) => {
                let Some(shortened) = first_to_last(answer) else { return Ok(EXACTLY_DIFFERENT) };
                if !self.parity() && !self.holds_together(answer)? {
                    return Ok(EXACTLY_DIFFERENT);
                }
                self.relations(gold, &shortened)
            }
            (Expr::Relation(gold_kind, sides), Expr::Relation(kind, others)) => {
                // In strict mode, derivatives and integrals that occur in both count as the same unknowns.
                let named = if self.parity() { None } else { self.with_open_named(gold, answer) };
                match &named {
                    Some((Expr::Relation(_, sides), Expr::Relation(_, others))) => {
                        self.relation_pair(*gold_kind, sides, *kind, others)
                    }
                    _ => self.relation_pair(*gold_kind, sides, *kind, others),
                }
            }
            _ => Ok(EXACTLY_DIFFERENT),
        }
    }

    fn all_relations<'e>(&mut self, pairs: impl Iterator<Item = (&'e Expr, &'e Expr)>) -> Compared {
        let mut evidence = Evidence::Exact;
        for (gold, answer) in pairs {
            let answer = self.relations(gold, answer)?;
            if !answer.equal {
                return Ok(answer);
            }
            evidence = evidence.max(answer.evidence);
        }
        Ok(Answer { equal: true, evidence })
    }

    fn relation_pair(
        &mut self,
        gold_kind: Relation,
        gold: &[Expr; 2],
        kind: Relation,
        answer: &[Expr; 2],
    ) -> Compared {
        let plain = gold.iter().chain(answer).all(is_scalar);
        if !plain {
            if gold_kind != kind {
                return Ok(EXACTLY_DIFFERENT);
            }
            // math-verify doesn't compare sets inside equations, except as they are written.
            if self.parity() {
                let equal = gold.iter().zip(answer).all(|(gold, answer)| same_writing(gold, answer));
                return Ok(Answer { equal, evidence: Evidence::Exact });
            }
            let left = self.answers(&gold[0], &answer[0])?;
            if !left.equal {
                return Ok(left);
            }
            let right = self.answers(&gold[1], &answer[1])?;
            return Ok(Answer { equal: right.equal, evidence: right.evidence.max(left.evidence) });
        }
        if self.parity() && gold_kind == Relation::NotEqual && kind == Relation::NotEqual {
            // In math-verify, the left sides must agree, and the differences of the sides too.
            let left = self.values(&gold[0], &answer[0])?;
            if !left.equal {
                return Ok(left);
            }
        }
        let wanted = gold[0].clone().minus(gold[1].clone());
        let same = gold_kind == kind;
        let flipped = gold_kind.flipped() == kind && (gold_kind != Relation::NotEqual || !self.parity());
        if same {
            let found = answer[0].clone().minus(answer[1].clone());
            let result = self.values(&wanted, &found)?;
            if result.equal {
                // In strict mode, an identity equals only the same identity.
                if !self.parity() && gold_kind == Relation::Equal && self.vanishes(&wanted)? {
                    return self.same_sides(gold, answer);
                }
                return Ok(result);
            }
        }
        if flipped {
            let found = answer[1].clone().minus(answer[0].clone());
            let result = self.values(&wanted, &found)?;
            if result.equal {
                return Ok(result);
            }
        }
        // Equations may differ by a factor, but not by one that adds solutions.
        if same && gold_kind == Relation::Equal {
            let unknowns = Expr::Tuple(gold.to_vec()).symbols().len();
            if unknowns > 1 || !self.parity() {
                let found = answer[0].clone().minus(answer[1].clone());
                // An identity holds everywhere. It equals only an identity, which was checked above.
                if self.vanishes(&found)? || self.vanishes(&wanted)? {
                    return Ok(EXACTLY_DIFFERENT);
                }
                return self.proportional(&wanted, &found, gold, answer);
            }
        }
        // In strict mode, an inequality may be scaled by a positive factor.
        if !self.parity() && (same || flipped) && gold_kind.is_inequality() {
            let found = answer[0].clone().minus(answer[1].clone());
            return self.scaled_inequality(&wanted, &found, flipped && !same);
        }
        Ok(EXACTLY_DIFFERENT)
    }

    /// Returns whether two equations have the same unknowns and equal sides, which may be exchanged.
    fn same_sides(&mut self, gold: &[Expr; 2], answer: &[Expr; 2]) -> Compared {
        let names = |side: &Expr| side.symbols().into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
        for [first, second] in [[0, 1], [1, 0]] {
            let mut equal = true;
            for (gold, answer) in gold.iter().zip([&answer[first], &answer[second]]) {
                equal &= names(gold) == names(answer) && self.values(gold, answer)?.equal;
            }
            if equal {
                return Ok(Answer { equal, evidence: Evidence::Probabilistic });
            }
        }
        Ok(EXACTLY_DIFFERENT)
    }

    /// Whether each inner side of a chain of equations is a name, isn't a scalar, or equals the first or last side.
    fn holds_together(&mut self, links: &[Expr]) -> Result<bool, Exhausted> {
        let (Some(Expr::Relation(_, first)), Some(Expr::Relation(_, last))) = (links.first(), links.last())
        else {
            return Ok(false);
        };
        for link in &links[1..] {
            let Expr::Relation(_, pair) = link else { return Ok(false) };
            let side = &pair[0];
            let named = match side {
                Expr::Symbol(name) => !last[1].symbols().contains(&&**name),
                side => matches!(side, Expr::Apply(..) | Expr::Derivative(..)),
            };
            let holds = named
                || !is_scalar(side)
                || self.values(&last[1], side)?.equal
                || self.values(&first[0], side)?.equal;
            if !holds {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether an expression is zero everywhere.
    fn vanishes(&mut self, expr: &Expr) -> Result<bool, Exhausted> {
        Ok(self.values(&Expr::integer(0), expr)?.equal)
    }

    /// Whether `wanted = 0` and `found = 0` have the same solutions: their ratio is constant or clears a denominator.
    fn proportional(
        &mut self,
        wanted: &Expr,
        found: &Expr,
        gold: &[Expr; 2],
        answer: &[Expr; 2],
    ) -> Compared {
        if self.estranged {
            return Ok(EXACTLY_DIFFERENT);
        }
        if self.constant_ratio(wanted, found)?.is_some() {
            return Ok(Answer { equal: true, evidence: Evidence::Probabilistic });
        }
        if known(canonical::same_zeros(wanted, found, &mut self.fuel))? == Some(true) {
            return Ok(EXACTLY_EQUAL);
        }
        // An equation solved for a symbol that does not occur on its other side.
        for (solved, other) in [(answer, wanted), (gold, found)] {
            for (side, value) in [(&solved[0], &solved[1]), (&solved[1], &solved[0])] {
                let Expr::Symbol(name) = side else { continue };
                if value.symbols().contains(&&**name)
                    || !other.symbols().contains(&&**name)
                    || !linear_in(other, name)
                {
                    continue;
                }
                if !self.vanishes(&substitute(other, name, value))? {
                    continue;
                }
                // The symbol's coefficient must not add solutions: it is constant, or a denominator that was cleared.
                let coefficient = substitute(other, name, &value.clone().plus(Expr::integer(1)));
                let cleared = value.any(&is_reciprocal);
                if cleared || self.constant_ratio(&coefficient, &Expr::integer(1))?.is_some() {
                    return Ok(Answer { equal: true, evidence: Evidence::Probabilistic });
                }
            }
        }
        Ok(EXACTLY_DIFFERENT)
    }

    /// Returns the sign of the ratio of two expressions, if the ratio is constant.
    fn constant_ratio(&mut self, wanted: &Expr, found: &Expr) -> Result<Option<bool>, Exhausted> {
        let precision = Precision::level(1);
        let field = self.field(&[wanted, found]);
        let mut ratio: Option<Complex> = None;
        let mut agreed = 0;
        for seed in 0..if field == Field::Natural { NATURAL_POINTS } else { POINTS } {
            let mut point = Point::new(field, seed, self.imaginary());
            let mut value = |side: &Expr| match numeric::evaluate(side, &mut point, precision, &mut self.fuel)
            {
                Err(Exhausted) if !self.fuel.is_empty() => Ok(None),
                other => other,
            };
            let (Some(a), Some(b)) = (value(wanted)?, value(found)?) else { continue };
            if a.holds_zero() || b.holds_zero() {
                // A ball counts as zero only if it is small.
                let known = |value: &Complex| !value.holds_zero() || value.log2_bound() < -60.0;
                if known(&a) && known(&b) && a.holds_zero() != b.holds_zero() {
                    return Ok(None);
                }
                continue;
            }
            let Some(next) = a.divide(&b, precision) else { continue };
            match &ratio {
                None => ratio = Some(next),
                Some(first) => {
                    let apart = first.subtract(&next, precision);
                    if !apart.holds_zero() {
                        return Ok(None);
                    }
                    agreed += u32::from(apart.log2_bound() < next.log2_bound() - 60.0);
                }
            }
        }
        Ok(ratio.filter(|_| agreed >= 3).and_then(|ratio| {
            let sign = ratio.re.sign()?;
            ratio.is_real().then_some(sign == std::cmp::Ordering::Greater)
        }))
    }

    fn scaled_inequality(&mut self, wanted: &Expr, found: &Expr, flipped: bool) -> Compared {
        match self.constant_ratio(wanted, found)? {
            Some(positive) => Ok(Answer { equal: positive != flipped, evidence: Evidence::Probabilistic }),
            None => Ok(EXACTLY_DIFFERENT),
        }
    }
}

pub(super) fn is_equal(expr: &Expr) -> bool {
    matches!(expr, Expr::Relation(Relation::Equal, _))
}

fn first_to_last(links: &[Expr]) -> Option<Expr> {
    match (links.first(), links.last()) {
        (Some(Expr::Relation(_, first)), Some(Expr::Relation(_, last))) => {
            Some(Expr::relation(Relation::Equal, first[0].clone(), last[1].clone()))
        }
        _ => None,
    }
}

/// Returns whether two values are written identically, except for the order in sets.
fn same_writing(first: &Expr, second: &Expr) -> bool {
    match (first, second) {
        (Expr::Set(a), Expr::Set(b)) | (Expr::Union(a), Expr::Union(b)) => {
            a.len() == b.len() && a.iter().all(|part| b.iter().any(|other| same_writing(part, other)))
        }
        (Expr::NumberSet(NumberSet::Reals), Expr::Interval(ends, ..))
        | (Expr::Interval(ends, ..), Expr::NumberSet(NumberSet::Reals)) => {
            **ends == [Constant::NegativeInfinity, Constant::Infinity].map(Expr::Constant)
        }
        _ => first == second,
    }
}

fn is_scalar(expr: &Expr) -> bool {
    !is_collection(expr) && !expr.is_relation()
}

/// Returns whether the expression is a polynomial of degree one in the symbol, judging by its form.
fn linear_in(expr: &Expr, name: &str) -> bool {
    let occurs = |expr: &Expr| expr.any(&|node| matches!(node, Expr::Symbol(symbol) if &**symbol == name));
    match expr {
        Expr::Symbol(_) => true,
        Expr::Add(terms) => terms.iter().all(|term| linear_in(term, name)),
        Expr::Mul(factors) => {
            let mut with = factors.iter().filter(|factor| occurs(factor));
            match (with.next(), with.next()) {
                (None, _) => true,
                (Some(factor), None) => linear_in(factor, name),
                _ => false,
            }
        }
        other => !occurs(other),
    }
}

fn is_reciprocal(node: &Expr) -> bool {
    match node {
        Expr::Pow(pair) => matches!(&pair[1], Expr::Number(exponent) if exponent.sign() == Sign::Negative),
        _ => false,
    }
}

fn substitute(expr: &Expr, name: &str, value: &Expr) -> Expr {
    expr.replaced(&mut |node| {
        matches!(node, Expr::Symbol(symbol) if &**symbol == name).then(|| value.clone())
    })
}
