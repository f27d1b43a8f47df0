//! Decides whether an answer is finished or leaves operations to the reader.
//!
//! A problem that is only repeated isn't an answer. So in strict mode, an operation that a reader would still have to carry
//! out is accepted only if the gold is written with it. Fractions, powers, roots, multiples of these and of constants, and
//! factored polynomials are finished.

use dashu_base::Sign;
use dashu_ratio::RBig;

use super::budget::Fuel;
use super::exact;
use super::expr::{Constant, Expr, Fold, Function, Relation};

/// Operations that an answer leaves to the reader, as a set of bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Open(u32);

impl Open {
    const SUM: Self = Self(1);
    pub(super) const PRODUCT: Self = Self(1 << 1);
    const AGGREGATE: Self = Self(1 << 2);
    const INTEGRAL: Self = Self(1 << 3);
    const LIMIT: Self = Self(1 << 4);
    const DERIVATIVE: Self = Self(1 << 5);
    const DIVISIBILITY: Self = Self(1 << 6);
    const EXTREME: Self = Self(1 << 7);
    const MATRIX: Self = Self(1 << 8);
    const TRIGONOMETRY: Self = Self(1 << 9);
    const LOGARITHM: Self = Self(1 << 10);
    const ROUNDING: Self = Self(1 << 11);
    const ABSOLUTE: Self = Self(1 << 12);
    pub(super) const DETERMINANT: Self = Self(1 << 13);
    const SET: Self = Self(1 << 14);
    /// A relation that isn't solved for its only unknown.
    const UNSOLVED: Self = Self(1 << 15);
    /// A complex number in polar form, `e^{i\pi/3}`.
    const POLAR: Self = Self(1 << 16);

    pub(super) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether `other` has all of these operations.
    pub(super) fn within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// Returns the operations in an expression. If its value is rational, all sums and products are operations, because
    /// their terms and factors can be joined.
    pub(super) fn of(expr: &Expr, rational: bool) -> Self {
        // The first equation of a chain names its subject, and the other equations continue with the value.
        if let Expr::Chain(links) = expr
            && let Some((first, rest)) = links.split_first()
            && links.iter().all(|link| matches!(link, Expr::Relation(Relation::Equal, _)))
        {
            let sides = rest.iter().flat_map(Expr::children);
            return sides.fold(Self::of(first, rational), |all, side| all.with(Self::of(side, rational)));
        }
        let inside = (expr.children().into_iter())
            .fold(Self::default(), |all, child| all.with(Self::of(child, rational)));
        inside.with(Self::at(expr, rational))
    }

    /// Returns the operation of a node, without its children.
    fn at(expr: &Expr, rational: bool) -> Self {
        match expr {
            Expr::Add(terms) if terms.iter().any(is_matrix) => Self::MATRIX,
            Expr::Add(terms) if rational && terms.iter().filter(|term| !is_zero(term)).count() > 1 => {
                Self::SUM
            }
            // A sum of sums without unknowns is not added up.
            Expr::Add(terms) if terms.iter().any(is_constant_sum) => Self::SUM,
            Expr::Add(terms) if terms.iter().filter(|term| is_short_rational(term)).count() > 1 => Self::SUM,
            // The parts of a complex number.
            Expr::Add(terms) if terms.iter().filter(|term| is_imaginary(term)).count() > 1 => Self::SUM,
            Expr::Mul(factors) if factors.iter().filter(|factor| is_matrix(factor)).count() > 1 => {
                Self::MATRIX
            }
            Expr::Pow(pair) if is_matrix(&pair[0]) => Self::MATRIX,
            Expr::Pow(pair) if pair[0] == Expr::Constant(Constant::E) && pair[1].any(&is_imaginary) => {
                if rational {
                    Self::TRIGONOMETRY
                } else {
                    Self::POLAR
                }
            }
            Expr::Mul(_) | Expr::Pow(_) if Factors::of(expr, rational).are_open(rational) => Self::PRODUCT,
            Expr::Fold(Fold::Integral, ..) => Self::INTEGRAL,
            Expr::Fold(..) => Self::AGGREGATE,
            Expr::Limit(..) => Self::LIMIT,
            Expr::Derivative(..) => Self::DERIVATIVE,
            Expr::Relation(kind, pair) if !is_solved(*kind, pair) => Self::UNSOLVED,
            Expr::Intersection(parts) if !parts.iter().any(Expr::is_relation) => Self::SET,
            Expr::Call(function, _) => match function {
                Function::Gcd | Function::Lcm | Function::Mod => Self::DIVISIBILITY,
                Function::Max | Function::Min => Self::EXTREME,
                // Applied to an unknown, these are functions and not open operations.
                _ if has_variables(expr) => Self::default(),
                Function::Floor | Function::Ceiling => Self::ROUNDING,
                Function::Abs => Self::ABSOLUTE,
                Function::Log => Self::LOGARITHM,
                Function::Factorial | Function::Gamma | Function::Binomial => Self::default(),
                _ => Self::TRIGONOMETRY,
            },
            _ => Self::default(),
        }
    }
}

/// Returns whether each operation that the answer leaves to the reader is in the gold too.
pub(super) fn is_finished(answer: Open, gold: Open) -> bool {
    // A value of one transcendental function may be written with another.
    let functions = Open::TRIGONOMETRY.with(Open::LOGARITHM);
    let also = if gold.0 & functions.with(Open::POLAR).0 != 0 { functions } else { Open::default() };
    answer.within(gold.with(also).with(Open::POLAR))
}

/// The factors of a product, each with its exponent. A power of a product is expanded to powers of its factors.
struct Factors<'a>(Vec<Factor<'a>>);

type Factor<'a> = (&'a Expr, RBig);

impl<'a> Factors<'a> {
    fn of(expr: &'a Expr, rational: bool) -> Self {
        let mut factors = Self(Vec::new());
        factors.add(expr, RBig::ONE, rational);
        factors
    }

    fn add(&mut self, expr: &'a Expr, exponent: RBig, rational: bool) {
        match expr {
            Expr::Mul(factors) => {
                for factor in factors {
                    self.add(factor, exponent.clone(), rational);
                }
            }
            // Scientific notation.
            Expr::Pow(pair) if pair[0] == Expr::integer(10) && pair[1].as_integer().is_some() => {}
            Expr::Pow(pair) => match exact::rational(&pair[1], &mut Fuel::new()) {
                Ok(Some(power)) => self.add(&pair[0], exponent * power, rational),
                // An exponent without a rational form, such as `\pi/\pi`.
                _ if rational => self.add(&pair[0], exponent, rational),
                _ => self.0.push((expr, exponent)),
            },
            other => self.0.push((other, exponent)),
        }
    }

    /// Returns whether the reader still has to multiply: two factors are numerals, or two are sums.
    fn are_open(&self, rational: bool) -> bool {
        let count = |found: &dyn Fn(&&Factor<'_>) -> bool| self.0.iter().filter(found).count();
        let sums = count(&|(factor, exponent)| {
            is_constant_sum(factor) && exponent.is_int() && exponent.sign() == Sign::Positive
        });
        let quotients = self.quotients_of_factorials();
        let numeral = |factor: &&Factor<'_>| is_numeral_power(factor, rational);
        let numerals = quotients + count(&numeral).max(self.joined().iter().filter(numeral).count());
        let factorials =
            |sign: Sign| count(&|(factor, exponent)| is_factorial(factor) && exponent.sign() == sign);
        let over_factorials = factorials(Sign::Positive) > 0 && factorials(Sign::Negative) > 0;
        numerals > 1 || sums > 1 || rational && numerals > 0 && quotients == 0 && over_factorials
    }

    /// Returns the numerals, each once with the sum of its exponents, so that `123^2/123` is 123.
    fn joined(&self) -> Vec<Factor<'a>> {
        let mut joined: Vec<Factor<'a>> = Vec::new();
        for (factor, exponent) in self.0.iter().filter(|(factor, _)| is_numeral(factor)) {
            match joined.iter_mut().find(|(known, _)| known == factor) {
                Some((_, total)) => *total += exponent,
                None => joined.push((factor, exponent.clone())),
            }
        }
        joined
    }

    /// Counts the quotients of adjacent factorials, such as `123!/122!`, which are a number.
    fn quotients_of_factorials(&self) -> usize {
        let of = |sign: Sign| {
            let of_sign = self.0.iter().filter(move |(_, exponent)| exponent.sign() == sign);
            of_sign.filter_map(|(factor, _)| match factor {
                Expr::Call(_, arguments) if is_factorial(factor) => {
                    exact::rational(&arguments[0], &mut Fuel::new()).ok().flatten()
                }
                _ => None,
            })
        };
        let below: Vec<RBig> = of(Sign::Negative).collect();
        of(Sign::Positive).filter(|above| below.iter().any(|other| *above == other + RBig::ONE)).count()
    }
}

/// Returns whether a factor and its exponent are only another form of a numeral: `123^1`, `1/\frac{1}{123}` or, for a
/// rational value, an exact root such as `\sqrt{123^2}`.
fn is_numeral_power((factor, exponent): &Factor<'_>, rational: bool) -> bool {
    if !is_numeral(factor) {
        return false;
    }
    if *exponent == RBig::ONE {
        return true;
    }
    // Powers are finished, and so is division by anything but a fraction.
    let inverted = exponent.sign() == Sign::Negative;
    let fraction = matches!(factor, Expr::Number(value) if !value.is_int());
    if exponent.is_int() || inverted && !fraction {
        return inverted && fraction;
    }
    let root = Expr::pow((*factor).clone(), Expr::Number(exponent.clone()));
    rational
        && **factor != Expr::integer(1)
        && matches!(exact::rational(&root, &mut Fuel::new()), Ok(Some(_)))
}

fn is_factorial(expr: &Expr) -> bool {
    matches!(expr, Expr::Call(Function::Factorial | Function::Gamma, _))
}

fn is_matrix(expr: &Expr) -> bool {
    match expr {
        Expr::Matrix(..) => true,
        Expr::Mul(factors) => factors.iter().any(is_matrix),
        Expr::Pow(pair) => is_matrix(&pair[0]),
        _ => false,
    }
}

/// Returns whether a relation is solved for its unknown, up to a factor in an inequality. Relations in several unknowns
/// count as solved.
fn is_solved(kind: Relation, pair: &[Expr; 2]) -> bool {
    let names = |side: &Expr| {
        side.symbols().into_iter().filter(|name| *name != "i").map(str::to_owned).collect::<Vec<_>>()
    };
    let (left, right) = (names(&pair[0]), names(&pair[1]));
    let bare = |side: &Expr| match side {
        Expr::Mul(factors) if kind.is_inequality() => {
            factors.iter().all(|factor| factor.is_number() || matches!(factor, Expr::Symbol(_)))
        }
        side => matches!(side, Expr::Symbol(_)),
    };
    match (&left[..], &right[..]) {
        ([_], []) => bare(&pair[0]) || is_applied(&pair[0]),
        ([], [_]) => bare(&pair[1]) || is_applied(&pair[1]),
        ([a], [b]) => a != b,
        _ => true,
    }
}

/// Returns whether a side of an equation is a function of the unknown, such as `f(x)` or `\sin x`. An equation solved
/// for it counts as solved.
fn is_applied(side: &Expr) -> bool {
    matches!(side, Expr::Apply(..) | Expr::Constant(_))
        || matches!(side, Expr::Call(function, _) if !matches!(function, Function::Abs))
}

/// Whether an expression contains variables or applied functions such as `f(x)`. `i` counts as the imaginary unit.
pub(super) fn has_variables(expr: &Expr) -> bool {
    expr.symbols().iter().any(|name| *name != "i") || expr.any(&|node| matches!(node, Expr::Apply(..)))
}

/// Returns whether a value computes with variables other than the letters of the gold's units.
pub(super) fn has_work_on_variables(value: &Expr, gold: &Expr) -> bool {
    let of_unit = |name: &str| {
        gold.any(&|node| match node {
            Expr::Quantity(_, unit) => unit.letters().iter().any(|(letter, _)| &**letter == name),
            _ => false,
        })
    };
    !matches!(value, Expr::Symbol(_) | Expr::Apply(..))
        && has_variables(value)
        && value.symbols().iter().any(|name| *name != "i" && !of_unit(name))
}

/// Whether an expression is a literal number: an integer except -1 (a sign), a decimal, a percentage or a fraction.
fn is_numeral(expr: &Expr) -> bool {
    match expr {
        Expr::Number(value) => *value != RBig::from(-1),
        Expr::Decimal(..) => true,
        Expr::Percent(inner) => is_numeral(inner),
        _ => false,
    }
}

/// Whether an expression is a rational value that a person can compute: numerals, and small powers and factorials of these.
fn is_short_rational(term: &Expr) -> bool {
    const BITS: usize = 50;
    if term.any(&|node| {
        !matches!(
            node,
            Expr::Number(_)
                | Expr::Decimal(..)
                | Expr::Percent(_)
                | Expr::Mul(_)
                | Expr::Pow(_)
                | Expr::Add(_)
                | Expr::Call(..)
        )
    }) {
        return false;
    }
    use dashu_base::BitTest;
    match exact::rational(term, &mut Fuel::new()) {
        Ok(Some(value)) => {
            value.numerator().bit_len() + value.denominator().bit_len() < BITS || term.is_number()
        }
        _ => false,
    }
}

/// Returns whether a term is a multiple of the imaginary unit.
fn is_imaginary(term: &Expr) -> bool {
    let unit = |expr: &Expr| {
        matches!(expr, Expr::Constant(Constant::ImaginaryUnit))
            || matches!(expr, Expr::Symbol(name) if &**name == "i")
    };
    match term {
        Expr::Mul(factors) => {
            factors.iter().any(unit) && factors.iter().all(|factor| unit(factor) || factor.is_number())
        }
        other => unit(other),
    }
}

/// Returns whether a term is zero, as the imaginary part of `5+0i` is.
fn is_zero(term: &Expr) -> bool {
    matches!(term, Expr::Mul(factors) if factors.contains(&Expr::integer(0)))
}

/// Returns whether a factor is a sum without unknowns.
fn is_constant_sum(factor: &Expr) -> bool {
    match factor {
        Expr::Add(_) => !has_variables(factor),
        Expr::Pow(pair) => {
            matches!(pair[0], Expr::Add(_))
                && pair[1].as_integer().is_some()
                && !has_variables(factor)
                && pair[1] != Expr::integer(-1)
        }
        _ => false,
    }
}
