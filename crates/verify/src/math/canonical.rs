//! Canonical forms: quotients of expanded polynomials with rational coefficients, in symbols and opaque parts.
//!
//! Two rational functions are equal exactly when their cross products expand to the same polynomial. Anything that is
//! not a rational operation (a root, a sine, a symbolic power) is an opaque part and is compared at random points.

use std::collections::BTreeMap;

use dashu_base::BitTest;
use dashu_ratio::RBig;

use super::budget::{Exhausted, Fuel};
use super::expr::Expr;

/// Largest number of terms of an expanded polynomial.
const MAX_TERMS: usize = 160;
/// Largest total degree.
const MAX_DEGREE: u32 = 40;

/// Exponents of the symbols, by their number.
type Monomial = Vec<u32>;
type Polynomial = BTreeMap<Monomial, RBig>;

struct Fraction {
    numerator: Polynomial,
    denominator: Polynomial,
}

/// Whether two expressions are the same rational function; `None` if they are not rational functions within the limits.
pub(super) fn equal(first: &Expr, second: &Expr, fuel: &mut Fuel) -> Result<Option<bool>, Exhausted> {
    let Some((a, b)) = both(first, second, fuel)? else { return Ok(None) };
    let left = multiply(&a.numerator, &b.denominator, fuel)?;
    let right = multiply(&b.numerator, &a.denominator, fuel)?;
    Ok(left.zip(right).map(|(left, right)| left == right))
}

/// The exponents and coefficients of a polynomial in one variable.
pub(super) fn coefficients(
    expr: &Expr,
    variable: &str,
    fuel: &mut Fuel,
) -> Result<Option<Vec<(u32, RBig)>>, Exhausted> {
    let mut names: Vec<Box<str>> = Vec::new();
    let Some(parts) = fraction(expr, &mut names, fuel)? else {
        return Ok(None);
    };
    let scale = match parts.denominator.first_key_value() {
        Some((monomial, scale)) if parts.denominator.len() == 1 && monomial.iter().all(|e| *e == 0) => scale,
        _ => return Ok(None),
    };
    if names.iter().any(|name| **name != *variable) {
        return Ok(None);
    }
    let terms = parts.numerator.iter();
    Ok(Some(terms.map(|(monomial, value)| (monomial.iter().sum(), value / scale)).collect()))
}

/// Zeros, then poles.
type ZerosAndPoles = (Vec<f64>, Vec<f64>);

/// Real zeros and poles of a rational function of one variable, in double precision; `None` if it is not such a
/// function, is zero everywhere, or has a high degree.
pub(super) fn zeros_and_poles(
    expr: &Expr,
    variable: &str,
    fuel: &mut Fuel,
) -> Result<Option<ZerosAndPoles>, Exhausted> {
    let mut names: Vec<Box<str>> = Vec::new();
    let Some(parts) = fraction(expr, &mut names, fuel)? else { return Ok(None) };
    if names.iter().any(|name| **name != *variable) {
        return Ok(None);
    }
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
    let (Some(numerator), Some(denominator)) = (dense(&parts.numerator), dense(&parts.denominator)) else {
        return Ok(None);
    };
    fuel.spend(8 * (numerator.len() * numerator.len() + denominator.len()) as u32)?;
    Ok(Some((real_zeros(&numerator), real_zeros(&denominator))))
}

/// Real zeros of a polynomial given by its coefficients, the constant first: between two extrema (zeros of the
/// derivative) its sign changes at most once. An extremum that is nearly zero is a zero.
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

/// Whether two rational functions have the same zeros because their numerators are proportional.
pub(super) fn same_zeros(first: &Expr, second: &Expr, fuel: &mut Fuel) -> Result<Option<bool>, Exhausted> {
    let Some((a, b)) = both(first, second, fuel)? else { return Ok(None) };
    Ok(proportional(&a.numerator, &b.numerator).then_some(true))
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

fn both(first: &Expr, second: &Expr, fuel: &mut Fuel) -> Result<Option<(Fraction, Fraction)>, Exhausted> {
    let mut names: Vec<Box<str>> = Vec::new();
    let Some(a) = fraction(first, &mut names, fuel)? else { return Ok(None) };
    let Some(b) = fraction(second, &mut names, fuel)? else { return Ok(None) };
    Ok(Some((a, b)))
}

fn constant(value: RBig) -> Polynomial {
    let mut polynomial = Polynomial::new();
    if !value.is_zero() {
        polynomial.insert(Monomial::new(), value);
    }
    polynomial
}

fn fraction(expr: &Expr, names: &mut Vec<Box<str>>, fuel: &mut Fuel) -> Result<Option<Fraction>, Exhausted> {
    fuel.spend(1)?;
    let whole = |numerator: Polynomial| Some(Fraction { numerator, denominator: constant(RBig::ONE) });
    macro_rules! part {
        ($inner:expr) => {
            match fraction($inner, names, fuel)? {
                Some(part) => part,
                None => return Ok(None),
            }
        };
    }
    macro_rules! product {
        ($a:expr, $b:expr) => {
            match multiply($a, $b, fuel)? {
                Some(product) => product,
                None => return Ok(None),
            }
        };
    }
    Ok(match expr {
        Expr::Number(value) | Expr::Decimal(value) => whole(constant(value.clone())),
        Expr::Percent(inner) => match &**inner {
            Expr::Number(value) | Expr::Decimal(value) => whole(constant(value / RBig::from(100))),
            _ => None,
        },
        Expr::Symbol(name) => {
            let place = match names.iter().position(|known| known == name) {
                Some(place) => place,
                None => {
                    names.push(name.clone());
                    names.len() - 1
                }
            };
            let mut monomial = vec![0; place + 1];
            monomial[place] = 1;
            let mut polynomial = Polynomial::new();
            polynomial.insert(monomial, RBig::ONE);
            whole(polynomial)
        }
        Expr::Add(terms) => {
            let mut total = Fraction { numerator: Polynomial::new(), denominator: constant(RBig::ONE) };
            for term in terms {
                let part = part!(term);
                if part.denominator == total.denominator {
                    add_into(&mut total.numerator, part.numerator);
                } else {
                    let mut numerator = product!(&total.numerator, &part.denominator);
                    add_into(&mut numerator, product!(&part.numerator, &total.denominator));
                    total =
                        Fraction { numerator, denominator: product!(&total.denominator, &part.denominator) };
                }
                if total.numerator.len() > MAX_TERMS {
                    return Ok(None);
                }
            }
            Some(total)
        }
        Expr::Mul(factors) => {
            let mut total = Fraction { numerator: constant(RBig::ONE), denominator: constant(RBig::ONE) };
            for factor in factors {
                let part = part!(factor);
                total = Fraction {
                    numerator: product!(&total.numerator, &part.numerator),
                    denominator: product!(&total.denominator, &part.denominator),
                };
            }
            Some(total)
        }
        Expr::Pow(pair) => {
            let Some(exponent) = pair[1].as_integer() else { return Ok(None) };
            let Ok(exponent) = i32::try_from(exponent.clone()) else { return Ok(None) };
            if exponent.unsigned_abs() > MAX_DEGREE {
                return Ok(None);
            }
            let base = part!(&pair[0]);
            let mut total = Fraction { numerator: constant(RBig::ONE), denominator: constant(RBig::ONE) };
            for _ in 0..exponent.unsigned_abs() {
                total = Fraction {
                    numerator: product!(&total.numerator, &base.numerator),
                    denominator: product!(&total.denominator, &base.denominator),
                };
            }
            if exponent < 0 {
                if total.numerator.is_empty() {
                    return Ok(None);
                }
                std::mem::swap(&mut total.numerator, &mut total.denominator);
            }
            Some(total)
        }
        _ => None,
    })
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

fn multiply(a: &Polynomial, b: &Polynomial, fuel: &mut Fuel) -> Result<Option<Polynomial>, Exhausted> {
    if a.len() * b.len() > 6_000 {
        return Ok(None);
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
            if monomial.iter().sum::<u32>() > MAX_DEGREE {
                return Ok(None);
            }
            let coefficient = x * y;
            if coefficient.numerator().bit_len() + coefficient.denominator().bit_len() > 8192 {
                return Ok(None);
            }
            add_term(&mut total, monomial, coefficient);
        }
    }
    Ok((total.len() <= MAX_TERMS).then_some(total))
}

/// Whether two trees are the same up to the order of sums and products.
pub(super) fn alike(first: &Expr, second: &Expr) -> bool {
    match (first, second) {
        (Expr::Add(a), Expr::Add(b)) => same_parts(&flat(a, true), &flat(b, true)),
        (Expr::Mul(a), Expr::Mul(b)) => same_parts(&flat(a, false), &flat(b, false)),
        (Expr::Number(a) | Expr::Decimal(a), Expr::Number(b) | Expr::Decimal(b)) => a == b,
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
