//! Whether an answer equals the gold: the rules by kind of answer.
//!
//! In parity mode the rules are the reference's, quirks included: a literal decimal is compared after rounding, a
//! percentage of a whole number also equals that number, differences below a sixteenth decimal are no difference.
//! In strict mode only what is mathematically right is accepted.

use dashu::rational::RBig;

use super::ball::{Complex, Precision};
use super::budget::{Exhausted, Fuel};
use super::canonical;
use super::exact;
use super::expr::{Constant, Expr, Function, Relation};
use super::numeric::{self, Field, Point};
use super::region;
use super::{Mode, Options};

/// How an equality was established.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Evidence {
    /// By exact arithmetic or structure.
    Exact,
    /// By ball arithmetic.
    Certified,
    /// At random points or to many digits.
    Probabilistic,
}

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) equal: bool,
    pub(super) evidence: Evidence,
}

const EXACTLY_EQUAL: Answer = Answer { equal: true, evidence: Evidence::Exact };
const EXACTLY_DIFFERENT: Answer = Answer { equal: false, evidence: Evidence::Exact };

type Compared = Result<Answer, Exhausted>;

/// A parsed answer as the comparison sees it.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    pub(super) expr: Expr,
    /// The letter `i` stands alone in it, and so its symbols are complex.
    pub(super) complex: bool,
}

pub(super) struct Comparer<'a> {
    options: &'a Options,
    /// Symbols of the two sides are real on one and complex on the other: no symbol equals another.
    estranged: bool,
    complex: bool,
    fuel: Fuel,
}

/// Compares the gold with a prediction.
pub(super) fn compare(gold: &Subject, answer: &Subject, options: &Options) -> Compared {
    let parity = options.mode == Mode::Parity;
    let mut comparer = Comparer {
        options,
        estranged: parity && gold.complex != answer.complex,
        complex: gold.complex || answer.complex,
        fuel: Fuel::new(),
    };
    if !options.strict
        && let Some(renamed) = renamed(&gold.expr, &answer.expr)
    {
        return comparer.answers(&gold.expr, &renamed);
    }
    comparer.answers(&gold.expr, &answer.expr)
}

/// The answer with its variables named as the gold's, for comparisons that ignore names.
fn renamed(gold: &Expr, answer: &Expr) -> Option<Expr> {
    let (wanted, found) = (gold.symbols(), answer.symbols());
    if wanted.len() != found.len() || wanted.is_empty() {
        return None;
    }
    let names: Vec<(&str, &str)> = found.iter().copied().zip(wanted.iter().copied()).collect();
    Some(rename(answer, &names))
}

fn rename(expr: &Expr, names: &[(&str, &str)]) -> Expr {
    let all = |items: &[Expr]| items.iter().map(|item| rename(item, names)).collect::<Vec<_>>();
    let pair = |items: &[Expr; 2]| Box::new([rename(&items[0], names), rename(&items[1], names)]);
    match expr {
        Expr::Symbol(name) => match names.iter().find(|(from, _)| *from == &**name) {
            Some((_, to)) => Expr::symbol(to),
            None => expr.clone(),
        },
        Expr::Percent(inner) => Expr::Percent(Box::new(rename(inner, names))),
        Expr::Not(inner) => Expr::Not(Box::new(rename(inner, names))),
        Expr::Add(items) => Expr::Add(all(items)),
        Expr::Mul(items) => Expr::Mul(all(items)),
        Expr::Call(function, items) => Expr::Call(*function, all(items)),
        Expr::Apply(name, items) => Expr::Apply(name.clone(), all(items)),
        Expr::Chain(items) => Expr::Chain(all(items)),
        Expr::Tuple(items) => Expr::Tuple(all(items)),
        Expr::Set(items) => Expr::Set(all(items)),
        Expr::Union(items) => Expr::Union(all(items)),
        Expr::Intersection(items) => Expr::Intersection(all(items)),
        Expr::Matrix(columns, items) => Expr::Matrix(*columns, all(items)),
        Expr::Pow(items) => Expr::Pow(pair(items)),
        Expr::Relation(kind, items) => Expr::Relation(*kind, pair(items)),
        Expr::Interval(items, left, right) => Expr::Interval(pair(items), *left, *right),
        Expr::Difference(items) => Expr::Difference(pair(items)),
        other => other.clone(),
    }
}

impl Comparer<'_> {
    fn parity(&self) -> bool {
        self.options.mode == Mode::Parity
    }

    /// The order of the rules: assignments unwrapped, then relations, sets, matrices, values.
    fn answers(&mut self, gold: &Expr, answer: &Expr) -> Compared {
        self.fuel.spend(1)?;
        if *gold == Expr::Constant(Constant::ComplexInfinity) {
            return Ok(EXACTLY_DIFFERENT);
        }
        if !self.estranged && gold == answer {
            return Ok(EXACTLY_EQUAL);
        }
        let gold_is_equation = is_equation(gold);
        let answer_is_equation = is_equation(answer);
        if gold_is_equation && !answer_is_equation && is_assignment(gold) {
            // One step only: an equation of an equation has no value.
            let value = last_side(gold);
            return if value.is_relation() { Ok(EXACTLY_DIFFERENT) } else { self.answers(value, answer) };
        }
        if answer_is_equation && !gold_is_equation && !gold.is_relation() {
            let value = last_side(answer);
            return if value.is_relation() { Ok(EXACTLY_DIFFERENT) } else { self.answers(gold, value) };
        }
        // A set of one relation is that relation, on the gold's side.
        if let Expr::Set(values) = gold
            && values.len() == 1
            && values[0].is_relation()
            && answer.is_relation()
        {
            return self.answers(&values[0], answer);
        }
        if let Expr::Set(values) = answer
            && values.len() == 1
            && is_equation(gold)
            && is_equation(&values[0])
        {
            return self.relations(gold, &values[0]);
        }
        // An inequality answers with its solutions.
        if gold.is_relation() && !gold_is_equation {
            let set = match answer {
                Expr::Relation(Relation::Equal, pair) if pair[1].is_set() => Some(&pair[1]),
                other if other.is_set() => Some(other),
                _ => None,
            };
            if let Some(set) = set {
                return self.solutions(gold, set);
            }
        }
        if self.options.allow_set_relation_comp && answer.is_relation() {
            let set = match gold {
                Expr::Relation(Relation::Equal, pair) if pair[1].is_set() => Some(&pair[1]),
                other if other.is_set() => Some(other),
                _ => None,
            };
            if let Some(set) = set {
                return self.solutions(answer, set);
            }
        }
        match (gold.is_relation(), answer.is_relation()) {
            (true, true) => return self.relations(gold, answer),
            (true, false) => {
                // A single value may stand in a set of one.
                return Ok(EXACTLY_DIFFERENT);
            }
            (false, true) => return Ok(EXACTLY_DIFFERENT),
            _ => {}
        }
        if is_collection(gold) || is_collection(answer) {
            return self.collections(gold, answer);
        }
        self.values(gold, answer)
    }

    // ---- relations ----

    fn relations(&mut self, gold: &Expr, answer: &Expr) -> Compared {
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
                self.relations(&shortened, answer)
            }
            (_, Expr::Chain(answer)) if answer.iter().all(is_equal) => {
                let Some(shortened) = first_to_last(answer) else { return Ok(EXACTLY_DIFFERENT) };
                self.relations(gold, &shortened)
            }
            (Expr::Relation(gold_kind, gold), Expr::Relation(kind, answer)) => {
                self.relation_pair(*gold_kind, gold, *kind, answer)
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
            let left = self.answers(&gold[0], &answer[0])?;
            if !left.equal {
                return Ok(left);
            }
            let right = self.answers(&gold[1], &answer[1])?;
            return Ok(Answer { equal: right.equal, evidence: right.evidence.max(left.evidence) });
        }
        if self.parity() && gold_kind == Relation::NotEqual && kind == Relation::NotEqual {
            // The left sides have to agree there, and the differences too.
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
        // Equations may differ by a factor: any where there are several unknowns, none that vanishes elsewhere.
        if same && gold_kind == Relation::Equal {
            let unknowns = Expr::Tuple(gold.to_vec()).symbols().len();
            if unknowns > 1 || !self.parity() {
                return self.proportional(&wanted, &answer[0].clone().minus(answer[1].clone()), gold, answer);
            }
        }
        // Strictly, an inequality may be scaled by a positive factor.
        if !self.parity() && (same || flipped) && gold_kind.is_inequality() {
            let found = answer[0].clone().minus(answer[1].clone());
            return self.scaled_inequality(&wanted, &found, flipped && !same);
        }
        Ok(EXACTLY_DIFFERENT)
    }

    /// Whether two differences vanish together: a constant ratio, or one that comes from clearing denominators.
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
        if let Some(equal) = canonical::same_zeros(wanted, found, &mut self.fuel)? {
            return Ok(Answer { equal, evidence: Evidence::Exact });
        }
        // An equation solved for a symbol that does not occur on its other side.
        for (solved, other) in [(answer, wanted), (gold, found)] {
            for (side, value) in [(&solved[0], &solved[1]), (&solved[1], &solved[0])] {
                let Expr::Symbol(name) = side else { continue };
                if value.symbols().contains(&&**name) || !linear_in(other, name) {
                    continue;
                }
                let substituted = substitute(other, name, value);
                let result = self.values(&Expr::integer(0), &substituted)?;
                if result.equal {
                    return Ok(result);
                }
            }
        }
        Ok(EXACTLY_DIFFERENT)
    }

    /// The sign of a constant ratio of two expressions, if it is constant.
    fn constant_ratio(&mut self, wanted: &Expr, found: &Expr) -> Result<Option<bool>, Exhausted> {
        let precision = Precision::level(0);
        let field = self.field(&[wanted, found]);
        let mut ratio: Option<Complex> = None;
        let mut agreed = 0;
        for seed in 0..5 {
            let mut point = Point::new(field, seed, self.imaginary());
            let (Some(a), Some(b)) = (
                numeric::evaluate(wanted, &mut point, precision, &mut self.fuel)?,
                numeric::evaluate(found, &mut point, precision, &mut self.fuel)?,
            ) else {
                continue;
            };
            if a.holds_zero() || b.holds_zero() {
                if a.holds_zero() != b.holds_zero() {
                    return Ok(None);
                }
                continue;
            }
            let Some(next) = a.divide(&b, precision) else { continue };
            match &ratio {
                None => ratio = Some(next),
                Some(first) if !first.subtract(&next, precision).holds_zero() => return Ok(None),
                Some(_) => agreed += 1,
            }
        }
        Ok(ratio.filter(|_| agreed > 0).and_then(|ratio| {
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

    // ---- sets ----

    /// Whether the solutions of a relation in one unknown are a set.
    fn solutions(&mut self, relation: &Expr, set: &Expr) -> Compared {
        match region::solutions_are(relation, set, &mut self.fuel)? {
            Some(equal) => Ok(Answer { equal, evidence: Evidence::Probabilistic }),
            None => Ok(EXACTLY_DIFFERENT),
        }
    }

    fn collections(&mut self, gold: &Expr, answer: &Expr) -> Compared {
        match (gold, answer) {
            (Expr::Matrix(..), _) | (_, Expr::Matrix(..))
                if exact::matrix(gold).is_some() && exact::matrix(answer).is_some() =>
            {
                return self.matrices(gold, answer);
            }
            _ => {}
        }
        // A set of one value is that value.
        if let Expr::Set(values) = gold {
            if values.len() == 1 && !is_collection(answer) {
                return self.answers(&values[0], answer);
            }
            if values.len() == 1 && exact::matrix(answer).is_some() && exact::matrix(&values[0]).is_some() {
                return self.matrices(&values[0], answer);
            }
        }
        if let Expr::Set(values) = answer {
            if values.len() == 1 && !is_collection(gold) {
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
            (Expr::Interval(ends, true, true), Expr::Set(answer)) => self.tuples(&ends[..], answer),
            (Expr::Set(gold), Expr::Interval(ends, true, true)) => self.finite_sets(gold, &ends[..]),
            (Expr::Interval(ends, true, true), Expr::Tuple(answer)) => self.tuples(&ends[..], answer),
            (Expr::Tuple(gold), Expr::Interval(ends, true, true)) => self.tuples(gold, &ends[..]),
            _ if gold.is_set() && answer.is_set() => {
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

    fn tuples(&mut self, gold: &[Expr], answer: &[Expr]) -> Compared {
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

    /// Elements of sets and tuples: an assignment counts as its value on either side.
    fn elements(&mut self, gold: &Expr, answer: &Expr) -> Compared {
        self.answers(gold, answer)
    }

    fn finite_sets(&mut self, gold: &[Expr], answer: &[Expr]) -> Compared {
        if gold.len() != answer.len() {
            // Strictly, equal values count once.
            return Ok(EXACTLY_DIFFERENT);
        }
        self.matched(gold, answer)
    }

    /// Whether the elements can be paired.
    fn matched(&mut self, gold: &[Expr], answer: &[Expr]) -> Compared {
        if gold.len() != answer.len() {
            return Ok(EXACTLY_DIFFERENT);
        }
        let mut used = vec![false; answer.len()];
        let mut evidence = Evidence::Exact;
        for (at, gold) in gold.iter().enumerate() {
            let mut found = false;
            // The element at the same place is the likeliest.
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

    fn matrices(&mut self, gold: &Expr, answer: &Expr) -> Compared {
        match (exact::matrix(gold), exact::matrix(answer)) {
            (Some((gold_columns, gold)), Some((columns, answer))) if gold_columns == columns => {
                self.tuples(&gold, &answer)
            }
            _ => Ok(EXACTLY_DIFFERENT),
        }
    }

    // ---- values ----

    fn values(&mut self, gold: &Expr, answer: &Expr) -> Compared {
        if !self.estranged && gold == answer {
            return Ok(EXACTLY_EQUAL);
        }
        if let (Expr::Number(gold), Expr::Number(answer)) = (gold, answer) {
            return Ok(Answer { equal: gold == answer, evidence: Evidence::Exact });
        }
        if matches!(gold, Expr::Symbol(_)) || matches!(answer, Expr::Symbol(_)) {
            if let (Some(first), Some(second)) = (spelled(gold), spelled(answer))
                && first.eq_ignore_ascii_case(&second)
            {
                return Ok(EXACTLY_EQUAL);
            }
            // A name equals nothing but itself.
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
            self.symbolic(gold, answer)
        } else {
            self.constants(gold, answer)
        }
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
            // A literal decimal stands for what it rounds.
            if matches!(gold, Expr::Decimal(_)) || matches!(answer, Expr::Decimal(_)) {
                return Ok(Answer {
                    equal: self.rounds_equal(gold, first, answer, second),
                    evidence: Evidence::Exact,
                });
            }
            return Ok(EXACTLY_DIFFERENT);
        }
        if matches!(gold, Expr::Decimal(_)) || matches!(answer, Expr::Decimal(_)) {
            return self.rounded(gold, answer);
        }
        self.by_balls(gold, answer)
    }

    fn constants_by_parity(
        &mut self,
        gold: &Expr,
        first: Option<RBig>,
        answer: &Expr,
        second: Option<RBig>,
    ) -> Compared {
        let decimal = |expr: &Expr| match expr {
            Expr::Decimal(_) => true,
            Expr::Percent(inner) => matches!(**inner, Expr::Decimal(_)),
            _ => false,
        };
        let literal = |expr: &Expr| expr.is_number() || matches!(expr, Expr::Percent(_));
        if let (Some(first), Some(second)) = (&first, &second) {
            if first == second {
                return Ok(EXACTLY_EQUAL);
            }
            if let Some(equal) = percent_rule(gold, answer)
                && equal
            {
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
        let precision = Precision::level(1);
        let mut point = Point::new(Field::None, 0, self.imaginary());
        let a = numeric::evaluate(gold, &mut point, precision, &mut self.fuel)?;
        let b = numeric::evaluate(answer, &mut point, precision, &mut self.fuel)?;
        let (Some(a), Some(b)) = (a, b) else { return self.opaque(gold, answer) };
        let difference = a.subtract(&b, precision);
        if !difference.holds_zero() {
            let chop = if literal(gold) || literal(answer) { -180.0 } else { -53.0 };
            let size = difference.re.log2_bound().max(difference.im.log2_bound());
            return Ok(Answer { equal: size < chop, evidence: Evidence::Certified });
        }
        Ok(Answer { equal: true, evidence: Evidence::Probabilistic })
    }

    /// Rational values of which one is written as a decimal.
    fn rounds_equal(&self, gold: &Expr, first: &RBig, answer: &Expr, second: &RBig) -> bool {
        let whole =
            |expr: &Expr, value: &RBig| value.is_int() && !expr.any(&|node| matches!(node, Expr::Decimal(_)));
        if whole(gold, first) || whole(answer, second) {
            return false;
        }
        let digits = self.options.precision.min(30);
        round(first, digits) == round(second, digits)
    }

    /// A decimal against an irrational constant.
    fn rounded(&mut self, gold: &Expr, answer: &Expr) -> Compared {
        let precision = Precision::level(1);
        let mut point = Point::new(Field::None, 0, self.imaginary());
        let a = numeric::evaluate(gold, &mut point, precision, &mut self.fuel)?;
        let b = numeric::evaluate(answer, &mut point, precision, &mut self.fuel)?;
        let (Some(a), Some(b)) = (a, b) else { return self.opaque(gold, answer) };
        if a.is_real() && b.is_real() {
            let digits = self.options.precision.min(30);
            let unit = 10f64.powi(digits as i32);
            let difference = a.subtract(&b, precision).re.to_f64().abs() * unit;
            let (x, y) = (a.re.to_f64() * unit, b.re.to_f64() * unit);
            let equal = difference < 1.01 && x.round_ties_even() == y.round_ties_even();
            return Ok(Answer { equal, evidence: Evidence::Certified });
        }
        let difference = a.subtract(&b, precision);
        let size = difference.re.log2_bound().max(difference.im.log2_bound());
        Ok(Answer { equal: size < -53.0, evidence: Evidence::Certified })
    }

    /// Rising precision: a ball without zero proves a difference.
    fn by_balls(&mut self, gold: &Expr, answer: &Expr) -> Compared {
        for level in 0..3 {
            let precision = Precision::level(level);
            let mut point = Point::new(Field::None, 0, self.imaginary());
            let a = numeric::evaluate(gold, &mut point, precision, &mut self.fuel)?;
            let b = numeric::evaluate(answer, &mut point, precision, &mut self.fuel)?;
            let (Some(a), Some(b)) = (a, b) else { return self.opaque(gold, answer) };
            if !a.subtract(&b, precision).holds_zero() {
                return Ok(Answer { equal: false, evidence: Evidence::Certified });
            }
        }
        Ok(Answer { equal: true, evidence: Evidence::Probabilistic })
    }

    /// Expressions that have no value here compare by structure.
    fn opaque(&mut self, gold: &Expr, answer: &Expr) -> Compared {
        if self.estranged {
            return Ok(EXACTLY_DIFFERENT);
        }
        let equal = canonical::alike(gold, answer);
        // What would have to be summed, integrated or taken to a limit is not called wrong.
        let open = |node: &Expr| matches!(node, Expr::Fold(..) | Expr::Limit(..) | Expr::Derivative(..));
        if !equal && (gold.any(&open) || answer.any(&open)) {
            return Err(Exhausted);
        }
        Ok(Answer { equal, evidence: Evidence::Exact })
    }

    fn imaginary(&self) -> bool {
        self.options.mode == Mode::Strict
    }

    fn field(&self, sides: &[&Expr]) -> Field {
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

    fn symbolic(&mut self, gold: &Expr, answer: &Expr) -> Compared {
        if self.estranged {
            // Only what does not depend on a symbol can agree.
            return Ok(EXACTLY_DIFFERENT);
        }
        let noisy = [gold, answer].iter().any(|side| side.any(&|node| matches!(node, Expr::Decimal(_))));
        let exactly = canonical::equal(gold, answer, &mut self.fuel)?;
        // The reference computes with decimals in floating point; a difference may be its noise.
        if let Some(equal) = exactly.filter(|equal| *equal || !noisy || !self.parity()) {
            return Ok(Answer { equal, evidence: Evidence::Exact });
        }
        if canonical::alike(gold, answer) {
            return Ok(EXACTLY_EQUAL);
        }
        let field = self.field(&[gold, answer]);
        let mut agreed = 0;
        for seed in 0..5 {
            let precision = Precision::level(0);
            let mut point = Point::new(field, seed, self.imaginary());
            let a = numeric::evaluate(gold, &mut point, precision, &mut self.fuel)?;
            let b = numeric::evaluate(answer, &mut point, precision, &mut self.fuel)?;
            let (Some(a), Some(b)) = (a, b) else { continue };
            let difference = a.subtract(&b, precision);
            if !difference.holds_zero() {
                let size = difference.re.log2_bound().max(difference.im.log2_bound());
                let scale = a.re.log2_bound().max(a.im.log2_bound());
                if !(noisy && self.parity() && size < scale - 52.5) {
                    return Ok(Answer { equal: false, evidence: Evidence::Certified });
                }
            }
            agreed += 1;
        }
        if agreed == 0 {
            return self.opaque(gold, answer);
        }
        Ok(Answer { equal: true, evidence: Evidence::Probabilistic })
    }
}

/// The sign of an infinity, scaled or not.
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

/// A percentage of an exact number also equals that number, written as such.
fn percent_rule(gold: &Expr, answer: &Expr) -> Option<bool> {
    match (gold, answer) {
        (Expr::Percent(inner), other) | (other, Expr::Percent(inner)) => match (&**inner, other) {
            (Expr::Number(value), Expr::Number(other)) => Some(value.is_int() && value == other),
            _ => None,
        },
        _ => None,
    }
}

/// Half-even rounding to a number of decimals.
fn round(value: &RBig, digits: usize) -> dashu::integer::IBig {
    let scaled = value * RBig::from(dashu::integer::IBig::from(10).pow(digits));
    let floor = scaled.floor();
    let rest = scaled - RBig::from(floor.clone());
    let half = RBig::from_parts(1.into(), 2u8.into());
    let odd = dashu::base::BitTest::bit(&floor, 0);
    if rest > half || (rest == half && odd) { floor + dashu::integer::IBig::ONE } else { floor }
}

/// A difference that fifteen digits do not show.
fn below_chop(difference: &RBig) -> bool {
    difference.to_f64().value().abs() < 1e-16
}

fn is_equation(expr: &Expr) -> bool {
    match expr {
        Expr::Relation(Relation::Equal, _) => true,
        Expr::Chain(links) => links.iter().all(is_equal),
        _ => false,
    }
}

fn is_equal(expr: &Expr) -> bool {
    matches!(expr, Expr::Relation(Relation::Equal, _))
}

/// An equation that names a value: its left side is a symbol, a function or a measured quantity.
fn is_assignment(expr: &Expr) -> bool {
    match expr {
        Expr::Relation(Relation::Equal, pair) => names_a_value(&pair[0]),
        Expr::Chain(links) => match links.first() {
            Some(Expr::Relation(Relation::Equal, pair)) => names_a_value(&pair[0]) || pair[0].is_number(),
            _ => false,
        },
        _ => false,
    }
}

fn names_a_value(left: &Expr) -> bool {
    left.names_only() || matches!(left, Expr::Tuple(_) | Expr::Interval(..))
}

fn last_side(expr: &Expr) -> &Expr {
    match expr {
        Expr::Relation(_, pair) => &pair[1],
        Expr::Chain(links) => last_of(links),
        other => other,
    }
}

fn last_of(links: &[Expr]) -> &Expr {
    match links.last() {
        Some(Expr::Relation(_, pair)) => &pair[1],
        _ => &links[0],
    }
}

fn first_to_last(links: &[Expr]) -> Option<Expr> {
    match (links.first(), links.last()) {
        (Some(Expr::Relation(_, first)), Some(Expr::Relation(_, last))) => {
            Some(Expr::relation(Relation::Equal, first[0].clone(), last[1].clone()))
        }
        _ => None,
    }
}

fn is_scalar(expr: &Expr) -> bool {
    !is_collection(expr) && !expr.is_relation()
}

fn is_collection(expr: &Expr) -> bool {
    expr.is_set() || matches!(expr, Expr::Tuple(_) | Expr::Matrix(..))
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

/// The letters of a symbol or of a product of symbols, and the digits of a number.
fn spelled(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Symbol(name) => Some(name.to_string()),
        Expr::Number(value) => Some(value.to_string()),
        Expr::Constant(Constant::E) => Some("e".to_owned()),
        Expr::Constant(Constant::Pi) => Some("pi".to_owned()),
        Expr::Constant(Constant::Infinity) => Some("oo".to_owned()),
        Expr::Constant(Constant::ImaginaryUnit) => Some("i".to_owned()),
        Expr::Mul(factors) => {
            // A quotient is spelled with a slash.
            if let [first, Expr::Pow(pair)] = &factors[..]
                && pair[1] == Expr::integer(-1)
                && matches!(first, Expr::Symbol(_))
            {
                return match &pair[0] {
                    below @ (Expr::Symbol(_) | Expr::Number(_)) => {
                        Some(format!("{}/{}", spelled(first)?, spelled(below)?))
                    }
                    _ => None,
                };
            }
            let letter = |factor: &Expr| match factor {
                Expr::Symbol(name) => Some(name.to_string()),
                Expr::Constant(Constant::E) => Some("e".to_owned()),
                Expr::Constant(Constant::ImaginaryUnit) => Some("i".to_owned()),
                _ => None,
            };
            factors.iter().map(letter).collect()
        }
        _ => None,
    }
}

/// Whether the expression is a polynomial of degree one in the symbol, as far as its shape tells.
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

fn substitute(expr: &Expr, name: &str, value: &Expr) -> Expr {
    match expr {
        Expr::Symbol(symbol) if &**symbol == name => value.clone(),
        Expr::Add(terms) => Expr::Add(terms.iter().map(|term| substitute(term, name, value)).collect()),
        Expr::Mul(factors) => {
            Expr::Mul(factors.iter().map(|factor| substitute(factor, name, value)).collect())
        }
        other => other.clone(),
    }
}
