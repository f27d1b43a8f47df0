//! Canonical forms: quotients of expanded polynomials with rational coefficients, in symbols and opaque parts.
//!
//! Two rational functions are equal exactly when their cross products expand to the same polynomial. Anything that is
//! not a rational operation (a root, a sine, a symbolic power) is an opaque part and is compared at random points.

use std::collections::BTreeMap;

use dashu_base::BitTest;
use dashu_ratio::RBig;

use super::budget::{Fuel, NoValue, known};
use super::expr::Expr;

/// Maximum number of terms of an expanded polynomial.
const MAX_TERMS: usize = 160;
/// Maximum total degree.
const MAX_DEGREE: u32 = 40;

/// Exponents of the symbols, indexed by symbol.
type Monomial = Vec<u32>;
type Polynomial = BTreeMap<Monomial, RBig>;

struct Fraction {
    numerator: Polynomial,
    denominator: Polynomial,
}

/// Returns whether two expressions are the same rational function; undefined if they are not rational functions within
/// the limits.
pub(super) fn equal(first: &Expr, second: &Expr, fuel: &mut Fuel) -> Result<bool, NoValue> {
    let (a, b) = both(first, second, fuel)?;
    let left = known(multiply(&a.numerator, &b.denominator, fuel))?;
    let right = known(multiply(&b.numerator, &a.denominator, fuel))?;
    left.zip(right).map(|(left, right)| left == right).ok_or(NoValue::Undefined)
}

/// Returns the exponents and coefficients of a polynomial in one variable.
pub(super) fn coefficients(
    expr: &Expr,
    variable: &str,
    fuel: &mut Fuel,
) -> Result<Vec<(u32, RBig)>, NoValue> {
    let parts = fraction_in(expr, variable, fuel)?;
    let scale = match parts.denominator.first_key_value() {
        Some((monomial, scale)) if parts.denominator.len() == 1 && monomial.iter().all(|e| *e == 0) => scale,
        _ => return Err(NoValue::Undefined),
    };
    let terms = parts.numerator.iter();
    Ok(terms.map(|(monomial, value)| (monomial.iter().sum(), value / scale)).collect())
}

/// Converts an expression to a rational function of one variable.
fn fraction_in(expr: &Expr, variable: &str, fuel: &mut Fuel) -> Result<Fraction, NoValue> {
    let mut names: Vec<Box<str>> = Vec::new();
    let parts = fraction(expr, &mut names, fuel)?;
    let alone = names.iter().all(|name| **name == *variable);
    if alone { Ok(parts) } else { Err(NoValue::Undefined) }
}

/// The zeros, then the poles.
type ZerosAndPoles = (Vec<f64>, Vec<f64>);

/// Returns the real zeros and poles of a rational function of one variable, in double precision; undefined if it is not
/// such a function, is zero everywhere, or has a high degree.
pub(super) fn zeros_and_poles(
    expr: &Expr,
    variable: &str,
    fuel: &mut Fuel,
) -> Result<ZerosAndPoles, NoValue> {
    let parts = fraction_in(expr, variable, fuel)?;
    let dense = |polynomial: &Polynomial| {
        let mut values = vec![0.0; MAX_DEGREE as usize + 1];
        for (monomial, value) in polynomial {
            values[monomial.iter().sum::<u32>() as usize] = value.to_f64().value();
        }
        while values.last() == Some(&0.0) {
            values.pop();
        }
        (1..=20).contains(&values.len()).then_some(values)
    };
    let (numerator, denominator) =
        dense(&parts.numerator).zip(dense(&parts.denominator)).ok_or(NoValue::Undefined)?;
    fuel.spend(8 * (numerator.len() * numerator.len() + denominator.len()) as u32)?;
    Ok((real_zeros(&numerator), real_zeros(&denominator)))
}

/// Returns the real zeros of a polynomial given by its coefficients, the constant first: between two extrema (zeros of
/// the derivative) its sign changes at most once. An extremum that is nearly zero is a zero.
fn real_zeros(coefficients: &[f64]) -> Vec<f64> {
    let degree = coefficients.len() - 1;
    if degree == 0 {
        return Vec::new();
    }
    let value = |x: f64| coefficients.iter().rev().fold(0.0, |total, coefficient| total * x + coefficient);
    let scale = |x: f64| {
        coefficients.iter().rev().fold(0.0, |total, coefficient| total * x.abs() + coefficient.abs())
    };
    let derivative: Vec<f64> =
        coefficients.iter().enumerate().skip(1).map(|(power, value)| value * power as f64).collect();
    let extremes = real_zeros(&derivative);
    let leading = coefficients[degree].abs();
    let bound = 1.0 + coefficients.iter().fold(0.0_f64, |most, value| most.max(value.abs())) / leading;
    let mut zeros = Vec::new();
    let mut ends = vec![-bound];
    ends.extend(extremes.iter().copied().filter(|at| at.abs() < bound));
    ends.push(bound);
    for at in &extremes {
        if value(*at).abs() <= 1e-11 * scale(*at) {
            zeros.push(*at);
        }
    }
    for pair in ends.windows(2) {
        let (mut low, mut high) = (pair[0], pair[1]);
        let rising = value(low) < 0.0;
        if rising == (value(high) < 0.0) {
            continue;
        }
        for _ in 0..100 {
            let middle = 0.5 * (low + high);
            if rising == (value(middle) < 0.0) { low = middle } else { high = middle }
        }
        zeros.push(0.5 * (low + high));
    }
    zeros.sort_by(f64::total_cmp);
    zeros
}

/// Returns whether two rational functions have the same zeros because their numerators are proportional.
pub(super) fn same_zeros(first: &Expr, second: &Expr, fuel: &mut Fuel) -> Result<bool, NoValue> {
    let (a, b) = both(first, second, fuel)?;
    Ok(proportional(&a.numerator, &b.numerator))
}

fn proportional(a: &Polynomial, b: &Polynomial) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut ratio: Option<RBig> = None;
    for ((monomial, x), (other, y)) in a.iter().zip(b) {
        if monomial != other {
            return false;
        }
        let next = x / y;
        match &ratio {
            None => ratio = Some(next),
            Some(ratio) if *ratio != next => return false,
            Some(_) => {}
        }
    }
    true
}

fn both(first: &Expr, second: &Expr, fuel: &mut Fuel) -> Result<(Fraction, Fraction), NoValue> {
    let mut names: Vec<Box<str>> = Vec::new();
    Ok((fraction(first, &mut names, fuel)?, fraction(second, &mut names, fuel)?))
}

fn constant(value: RBig) -> Polynomial {
    if value.is_zero() { Polynomial::new() } else { Polynomial::from([(Monomial::new(), value)]) }
}

impl Fraction {
    fn whole(numerator: Polynomial) -> Self {
        Self { numerator, denominator: constant(RBig::ONE) }
    }

    fn times(&self, other: &Self, fuel: &mut Fuel) -> Result<Self, NoValue> {
        Ok(Self {
            numerator: multiply(&self.numerator, &other.numerator, fuel)?,
            denominator: multiply(&self.denominator, &other.denominator, fuel)?,
        })
    }

    fn plus(mut self, other: Self, fuel: &mut Fuel) -> Result<Self, NoValue> {
        if other.denominator == self.denominator {
            add_into(&mut self.numerator, other.numerator);
        } else {
            let mut numerator = multiply(&self.numerator, &other.denominator, fuel)?;
            add_into(&mut numerator, multiply(&other.numerator, &self.denominator, fuel)?);
            let denominator = multiply(&self.denominator, &other.denominator, fuel)?;
            self = Self { numerator, denominator };
        }
        if self.numerator.len() > MAX_TERMS { Err(NoValue::Undefined) } else { Ok(self) }
    }
}

fn fraction(expr: &Expr, names: &mut Vec<Box<str>>, fuel: &mut Fuel) -> Result<Fraction, NoValue> {
    fuel.spend(1)?;
    match expr {
        Expr::Number(value) | Expr::Decimal(value, _) => Ok(Fraction::whole(constant(value.clone()))),
        Expr::Percent(inner) => match &**inner {
            Expr::Number(value) | Expr::Decimal(value, _) => {
                Ok(Fraction::whole(constant(value / RBig::from(100))))
            }
            _ => Err(NoValue::Undefined),
        },
        Expr::Symbol(name) => {
            let place = names.iter().position(|known| known == name).unwrap_or_else(|| {
                names.push(name.clone());
                names.len() - 1
            });
            let mut monomial = vec![0; place + 1];
            monomial[place] = 1;
            Ok(Fraction::whole(Polynomial::from([(monomial, RBig::ONE)])))
        }
        Expr::Add(terms) => {
            let zero = Fraction::whole(Polynomial::new());
            terms.iter().try_fold(zero, |total, term| total.plus(fraction(term, names, fuel)?, fuel))
        }
        Expr::Mul(factors) => {
            let one = Fraction::whole(constant(RBig::ONE));
            factors.iter().try_fold(one, |total, factor| total.times(&fraction(factor, names, fuel)?, fuel))
        }
        Expr::Pow(pair) => {
            let exponent = pair[1].as_integer().and_then(|exponent| i32::try_from(exponent.clone()).ok());
            let exponent = exponent.filter(|e| e.unsigned_abs() <= MAX_DEGREE).ok_or(NoValue::Undefined)?;
            let base = fraction(&pair[0], names, fuel)?;
            let one = Fraction::whole(constant(RBig::ONE));
            let power = (0..exponent.unsigned_abs()).try_fold(one, |total, _| total.times(&base, fuel))?;
            if exponent >= 0 {
                return Ok(power);
            }
            let Fraction { numerator: denominator, denominator: numerator } = power;
            if denominator.is_empty() {
                return Err(NoValue::Undefined);
            }
            Ok(Fraction { numerator, denominator })
        }
        _ => Err(NoValue::Undefined),
    }
}

fn add_into(total: &mut Polynomial, other: Polynomial) {
    for (monomial, coefficient) in other {
        add_term(total, monomial, coefficient);
    }
}

fn add_term(total: &mut Polynomial, monomial: Monomial, coefficient: RBig) {
    match total.entry(monomial) {
        std::collections::btree_map::Entry::Occupied(mut entry) => {
            let sum = entry.get() + coefficient;
            if sum.is_zero() {
                entry.remove();
            } else {
                *entry.get_mut() = sum;
            }
        }
        std::collections::btree_map::Entry::Vacant(entry) => {
            entry.insert(coefficient);
        }
    }
}

fn multiply(a: &Polynomial, b: &Polynomial, fuel: &mut Fuel) -> Result<Polynomial, NoValue> {
    if a.len() * b.len() > 6_000 {
        return Err(NoValue::Undefined);
    }
    fuel.spend((a.len() * b.len()) as u32 / 2)?;
    let mut total = Polynomial::new();
    for (first, x) in a {
        for (second, y) in b {
            let (long, short) = if first.len() >= second.len() { (first, second) } else { (second, first) };
            let mut monomial = long.clone();
            for (exponent, other) in monomial.iter_mut().zip(short) {
                *exponent += other;
            }
            let coefficient = x * y;
            if monomial.iter().sum::<u32>() > MAX_DEGREE
                || coefficient.numerator().bit_len() + coefficient.denominator().bit_len() > 8192
            {
                return Err(NoValue::Undefined);
            }
            add_term(&mut total, monomial, coefficient);
        }
    }
    if total.len() > MAX_TERMS { Err(NoValue::Undefined) } else { Ok(total) }
}

/// Returns whether two trees are the same up to the order of sums and products.
pub(super) fn alike(first: &Expr, second: &Expr) -> bool {
    match (first, second) {
        (Expr::Add(a), Expr::Add(b)) => same_parts(&flat(a, true), &flat(b, true)),
        (Expr::Mul(a), Expr::Mul(b)) => same_parts(&flat(a, false), &flat(b, false)),
        (Expr::Number(a) | Expr::Decimal(a, _), Expr::Number(b) | Expr::Decimal(b, _)) => a == b,
        _ => {
            if std::mem::discriminant(first) != std::mem::discriminant(second) {
                return false;
            }
            let same_head = match (first, second) {
                (Expr::Call(a, _), Expr::Call(b, _)) => a == b,
                (Expr::Apply(a, _), Expr::Apply(b, _)) => a == b,
                (Expr::Fold(a, _, x, _), Expr::Fold(b, _, y, _)) => a == b && x == y,
                (Expr::Limit(_, x, a), Expr::Limit(_, y, b)) => x == y && a == b,
                (Expr::Derivative(_, x), Expr::Derivative(_, y)) => x == y,
                (Expr::Relation(a, _), Expr::Relation(b, _)) => a == b,
                (Expr::Interval(_, a, b), Expr::Interval(_, c, d)) => a == c && b == d,
                (Expr::Matrix(a, _), Expr::Matrix(b, _)) => a == b,
                _ => true,
            };
            let (parts, others) = (first.children(), second.children());
            if parts.is_empty() {
                return first == second;
            }
            same_head && parts.len() == others.len() && parts.iter().zip(&others).all(|(a, b)| alike(a, b))
        }
    }
}

fn flat(items: &[Expr], sum: bool) -> Vec<&Expr> {
    let mut parts = Vec::new();
    for item in items {
        match item {
            Expr::Add(inner) if sum => parts.extend(flat(inner, true)),
            Expr::Mul(inner) if !sum => parts.extend(flat(inner, false)),
            Expr::Number(value) if !sum && value.is_one() => {}
            Expr::Number(value) if sum && value.is_zero() => {}
            other => parts.push(other),
        }
    }
    parts
}

fn same_parts(first: &[&Expr], second: &[&Expr]) -> bool {
    if first.len() != second.len() || first.len() > 64 {
        return false;
    }
    let mut used = vec![false; second.len()];
    first.iter().all(|part| {
        let found = (0..second.len()).find(|place| !used[*place] && alike(part, second[*place]));
        if let Some(place) = found {
            used[place] = true;
        }
        found.is_some()
    })
}
