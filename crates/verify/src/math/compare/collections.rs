//! Compares sets, tuples, intervals, unions and matrices.

use super::{
    Answer, Compared, Comparer, EXACTLY_DIFFERENT, EXACTLY_EQUAL, Evidence, first_side, is_assignment,
    is_collection, is_equation,
};
use crate::math::exact;
use crate::math::expr::Expr;
use crate::math::region;

impl Comparer<'_> {
    /// Returns whether the solutions of a relation in one unknown are the elements of a set.
    pub(super) fn solutions(&mut self, relation: &Expr, set: &Expr) -> Compared {
        match region::same_solutions(relation, set, &mut self.fuel)? {
            Some(equal) => Ok(Answer { equal, evidence: Evidence::Probabilistic }),
            None => Ok(EXACTLY_DIFFERENT),
        }
    }

    pub(super) fn collections(&mut self, gold: &Expr, answer: &Expr) -> Compared {
        match (gold, answer) {
            (Expr::Matrix(..), _) | (_, Expr::Matrix(..))
                if exact::matrix(gold).is_some() && exact::matrix(answer).is_some() =>
            {
                return self.matrices(gold, answer);
            }
            _ => {}
        }
        // In strict mode, braces around a set are a group.
        if !self.parity() {
            let inner = |side: &Expr, other: &Expr| match side {
                // A set of one set differs from that set, and a set of one tuple differs from the set of its members.
                Expr::Set(values)
                    if values.len() == 1
                        && is_collection(&values[0])
                        && !values[0].children().is_empty()
                        && !matches!(values[0], Expr::Set(_))
                        && !matches!(other, Expr::Set(_)) =>
                {
                    Some(values[0].clone())
                }
                _ => None,
            };
            let (first, second) = (inner(gold, answer), inner(answer, gold));
            if first.is_some() != second.is_some() {
                return self.answers(
                    &first.unwrap_or_else(|| gold.clone()),
                    &second.unwrap_or_else(|| answer.clone()),
                );
            }
        }
        if !self.parity()
            && let Some(result) = self.in_order(gold, answer)?
        {
            return Ok(result);
        }
        // A set of one value is that value.
        if let Expr::Set(values) = gold {
            if values.len() == 1 && !is_collection(answer) && (self.parity() || !is_set(&values[0])) {
                return self.answers(&values[0], answer);
            }
            if values.len() == 1 && exact::matrix(answer).is_some() && exact::matrix(&values[0]).is_some() {
                return self.matrices(&values[0], answer);
            }
        }
        if let Expr::Set(values) = answer {
            if values.len() == 1 && !is_collection(gold) && (self.parity() || !is_set(&values[0])) {
                return self.answers(gold, &values[0]);
            }
            if values.len() == 1 && exact::matrix(gold).is_some() && exact::matrix(&values[0]).is_some() {
                return self.matrices(gold, &values[0]);
            }
        }
        match (gold, answer) {
            (Expr::Set(gold), Expr::Set(answer)) => self.finite_sets(gold, answer),
            (Expr::Tuple(gold), Expr::Tuple(answer)) => self.tuples(gold, answer),
            (Expr::Tuple(gold), Expr::Set(answer)) if gold.len() == answer.len() => self.tuples(gold, answer),
            (Expr::Set(gold), Expr::Tuple(answer)) => self.finite_sets(gold, answer),
            (Expr::Interval(first, left, right), Expr::Interval(second, open_left, open_right)) => {
                if left != open_left || right != open_right {
                    return Ok(EXACTLY_DIFFERENT);
                }
                self.tuples(&first[..], &second[..])
            }
            // Two values in parentheses are an open interval and also a pair.
            (Expr::Interval(ends, true, true), Expr::Set(answer)) if self.parity() => {
                self.tuples(&ends[..], answer)
            }
            (Expr::Set(gold), Expr::Interval(ends, true, true)) if self.parity() => {
                self.finite_sets(gold, &ends[..])
            }
            (Expr::Interval(ends, true, true), Expr::Tuple(answer)) => self.tuples(&ends[..], answer),
            (Expr::Tuple(gold), Expr::Interval(ends, true, true)) => self.tuples(gold, &ends[..]),
            _ if gold.is_set() && answer.is_set() => {
                if let (Expr::Intersection(first), Expr::Intersection(second)) = (gold, answer)
                    && self.matched(first, second)?.equal
                {
                    return Ok(EXACTLY_EQUAL);
                }
                if let (Expr::Union(first), Expr::Union(second)) = (gold, answer) {
                    let (first, second) = (flat_union(first), flat_union(second));
                    let matched = self.matched(&first, &second)?;
                    if matched.equal {
                        return Ok(matched);
                    }
                }
                match region::same_set(gold, answer, &mut self.fuel)? {
                    Some(equal) => Ok(Answer { equal, evidence: Evidence::Certified }),
                    None => Ok(EXACTLY_DIFFERENT),
                }
            }
            _ => Ok(EXACTLY_DIFFERENT),
        }
    }

    pub(super) fn tuples(&mut self, gold: &[Expr], answer: &[Expr]) -> Compared {
        if gold.len() != answer.len() {
            return Ok(EXACTLY_DIFFERENT);
        }
        let mut evidence = Evidence::Exact;
        for (gold, answer) in gold.iter().zip(answer) {
            let result = self.elements(gold, answer)?;
            if !result.equal {
                return Ok(result);
            }
            evidence = evidence.max(result.evidence);
        }
        Ok(Answer { equal: true, evidence })
    }

    /// Compares elements of sets and tuples. An assignment counts as its value, on either side. Other equations in unknowns
    /// don't count as values.
    fn elements(&mut self, gold: &Expr, answer: &Expr) -> Compared {
        if is_equation(answer)
            && !gold.is_relation()
            && !is_assignment(answer)
            && first_side(answer).has_unknowns()
        {
            return Ok(EXACTLY_DIFFERENT);
        }
        // In strict mode, a set of one value is a different element than the value.
        if !self.parity() && is_set(gold) != is_set(answer) && !gold.is_relation() && !answer.is_relation() {
            return Ok(EXACTLY_DIFFERENT);
        }
        self.answers(gold, answer)
    }

    fn finite_sets(&mut self, gold: &[Expr], answer: &[Expr]) -> Compared {
        // Answers to several questions are in the order of the questions.
        const TRUTHS: [&str; 8] = ["yes", "no", "true", "false", "T", "F", "even", "odd"];
        let is_truth = |value: &Expr| matches!(value, Expr::Symbol(name) if TRUTHS.contains(&&**name));
        if !self.parity() && gold.iter().all(is_truth) {
            self.tuples(gold, answer)
        } else {
            self.matched(gold, answer)
        }
    }

    /// Returns whether the gold's elements can be paired with the answer's so that the elements of each pair are equal.
    pub(super) fn matched(&mut self, gold: &[Expr], answer: &[Expr]) -> Compared {
        if gold.len() != answer.len() {
            return Ok(EXACTLY_DIFFERENT);
        }
        let mut used = vec![false; answer.len()];
        let mut evidence = Evidence::Exact;
        for (at, gold) in gold.iter().enumerate() {
            let mut found = false;
            // The element at the same position is the likeliest match, so it is tried first.
            let order = std::iter::once(at).chain((0..answer.len()).filter(|place| *place != at));
            for place in order {
                if used[place] {
                    continue;
                }
                let result = self.elements(gold, &answer[place])?;
                if result.equal {
                    used[place] = true;
                    evidence = evidence.max(result.evidence);
                    found = true;
                    break;
                }
            }
            if !found {
                return Ok(EXACTLY_DIFFERENT);
            }
        }
        Ok(Answer { equal: true, evidence })
    }

    pub(super) fn matrices(&mut self, gold: &Expr, answer: &Expr) -> Compared {
        match (exact::matrix(gold), exact::matrix(answer)) {
            (Some((gold_columns, gold)), Some((columns, answer))) if gold_columns == columns => {
                self.tuples(&gold, &answer)
            }
            _ => Ok(EXACTLY_DIFFERENT),
        }
    }
}

fn is_set(side: &Expr) -> bool {
    matches!(side, Expr::Set(_))
}

fn flat_union(parts: &[Expr]) -> Vec<Expr> {
    parts
        .iter()
        .flat_map(|part| match part {
            Expr::Union(inner) => flat_union(inner),
            other => vec![other.clone()],
        })
        .collect()
}
