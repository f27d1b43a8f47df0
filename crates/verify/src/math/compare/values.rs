//! Single values: constants by exact and ball arithmetic, expressions by polynomials and points.

use dashu::rational::RBig;

use super::{Answer, Compared, Comparer, EXACTLY_DIFFERENT, EXACTLY_EQUAL, Evidence};
use crate::math::Mode;
use crate::math::ball::Precision;
use crate::math::budget::Exhausted;
use crate::math::canonical;
use crate::math::exact;
use crate::math::expr::{Constant, Expr, Function};
use crate::math::numeric::{self, Field, Point};

impl Comparer<'_> {
    pub(super) fn values(&mut self, gold: &Expr, answer: &Expr) -> Compared {
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
