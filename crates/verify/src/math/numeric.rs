//! Numeric evaluation in balls, with unknowns at pseudo-random points.

use dashu_base::Sign;
use dashu_int::IBig;
use dashu_ratio::RBig;

use super::ball::{Ball, Complex, Precision};
use super::budget::{Exhausted, Fuel, NoValue, known};
use super::exact;
use super::expr::{Constant, Expr, Fold, Function};

/// Set from which values of unknowns are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    /// No values, for expressions without unknowns.
    None,
    /// Rationals and integers of both signs and parities, small and large.
    Rational,
    /// Rational real and imaginary parts.
    Complex,
    /// Small positive integers, for factorials and similar functions.
    Natural,
}

/// Number of points at which two expressions are compared. Integers of both parities, zero, and values from a tenth to a hundred thousand of
/// both signs are among them.
pub(super) const POINTS: u64 = 12;
/// Number of test points for piecewise expressions (roundings, absolute values, extremes), whose pieces may begin far away.
pub(super) const FAR_POINTS: u64 = 15;
/// Number of test points that are natural numbers.
pub(super) const NATURAL_POINTS: u64 = 8;

/// The values of unknowns at one point.
#[derive(Debug)]
pub(super) struct Point {
    field: Field,
    seed: u64,
    /// Whether the letter `i` is the imaginary unit.
    imaginary: bool,
    bound: Vec<(Box<str>, Bound)>,
}

#[derive(Debug, Clone)]
enum Bound {
    Exact(RBig),
    Ball(Complex),
}

impl Point {
    pub(super) fn new(field: Field, seed: u64, imaginary: bool) -> Self {
        Self { field, seed, imaginary, bound: Vec::new() }
    }

    /// Creates a point where one symbol has the given real value.
    pub(super) fn at(name: &str, value: Ball) -> Self {
        let mut point = Self::new(Field::None, 0, false);
        point.bound.push((name.into(), Bound::Ball(value.into())));
        point
    }

    pub(super) fn at_rational(name: &str, value: RBig) -> Self {
        let mut point = Self::new(Field::None, 0, false);
        point.bound.push((name.into(), Bound::Exact(value)));
        point
    }

    fn hash(&self, name: &str, salt: u64) -> u64 {
        let mut state =
            self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ salt.wrapping_mul(0xD6E8_FEB8_6659_FD93);
        for byte in name.bytes() {
            state = (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
            state ^= state >> 29;
        }
        state = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        state ^ (state >> 31)
    }

    fn rational(&self, name: &str, salt: u64) -> RBig {
        let hash = self.hash(name, salt);
        let pick = |least: i64, span: i64| least + (hash >> 16) as i64 % span;
        if self.field == Field::Natural {
            return RBig::from(match self.seed {
                0 => pick(4, 9),
                1 => pick(1, 6),
                2 => pick(13, 18),
                3 => pick(0, 3),
                4 => 2 * pick(1, 7) + 1,
                5 => 2 * pick(1, 8),
                6 => pick(31, 30),
                _ => pick(4, 60),
            });
        }
        let coin = hash & 1 == 1;
        // Whole numbers of one parity at a time, among them zero.
        let whole = match self.seed {
            6 => Some((2 * pick(0, 4), coin)),
            7 => Some((2 * pick(0, 4) + 1, coin)),
            9 => Some((0, false)),
            10 => Some((2 * pick(500, 5_000), false)),
            11 => Some((2 * pick(500, 5_000) + 1, true)),
            14 => Some((2 * pick(500_000_000, 5_000_000_000) + 1, coin)),
            _ => None,
        };
        // Small and large, so that signs and steps change between them.
        let (numerator, negative, denominator) = match (whole, self.seed) {
            (Some((value, negative)), _) => (value, negative, 1),
            (None, 0) => (pick(3, 61), false, 7),
            (None, 1) => (pick(60, 400), true, 11),
            (None, 2) => (pick(1, 6), true, 7),
            (None, 3) => (pick(60, 400), coin, 17),
            (None, 4) => (pick(20_000, 1_000_000), false, 13),
            (None, 5) => (pick(1, 6), false, 13),
            (None, 8) => (pick(20_000, 1_000_000), true, 17),
            (None, 24..) => (pick(1, 90), coin, 7),
            (None, 16..) => (pick(1, 90), false, 7),
            (None, 12) => (pick(1_000_000_000, 10_000_000_000), false, 7),
            (None, _) => (pick(1_000_000_000_000, 1_000_000_000_000), true, 11),
        };
        RBig::from_parts(
            IBig::from(if negative { -numerator } else { numerator }),
            (denominator as u8).into(),
        )
    }

    /// Returns the exact value of a symbol, if it has one.
    fn exact(&self, name: &str) -> Option<RBig> {
        if let Some((_, bound)) = self.bound.iter().rev().find(|(bound, _)| &**bound == name) {
            return match bound {
                Bound::Exact(value) => Some(value.clone()),
                Bound::Ball(_) => None,
            };
        }
        if self.imaginary && name == "i" {
            return None;
        }
        match self.field {
            Field::Rational | Field::Natural => Some(self.rational(name, 0)),
            Field::None | Field::Complex => None,
        }
    }

    fn value(&self, name: &str, precision: &Precision) -> Option<Complex> {
        if let Some((_, Bound::Ball(value))) = self.bound.iter().rev().find(|(bound, _)| &**bound == name) {
            return Some(value.clone());
        }
        if let Some(value) = self.exact(name) {
            return Some(Ball::from_rational(&value, precision).into());
        }
        if self.imaginary && name == "i" {
            return Some(Complex::integer(1).times_i());
        }
        if self.field != Field::Complex {
            return None;
        }
        let part = |salt| Ball::from_rational(&self.rational(name, salt), precision);
        Some(Complex { re: part(0), im: part(1) })
    }
}

/// Returns the value at a point, or `None` if it is undefined or out of range.
pub(super) fn evaluate(
    expr: &Expr,
    point: &mut Point,
    precision: &Precision,
    fuel: &mut Fuel,
) -> Result<Option<Complex>, Exhausted> {
    known(value(expr, point, precision, fuel))
}

fn value(expr: &Expr, point: &mut Point, precision: &Precision, fuel: &mut Fuel) -> Result<Complex, NoValue> {
    fuel.spend(2)?;
    let value = computed(expr, point, precision, fuel)?;
    if value.is_sane() { Ok(value) } else { Err(NoValue::Undefined) }
}

fn computed(
    expr: &Expr,
    point: &mut Point,
    precision: &Precision,
    fuel: &mut Fuel,
) -> Result<Complex, NoValue> {
    let found = match expr {
        Expr::Number(value) | Expr::Decimal(value, _) => Some(Ball::from_rational(value, precision).into()),
        Expr::Percent(inner) => {
            value(inner, point, precision, fuel)?.divide(&Complex::integer(100), precision)
        }
        Expr::Symbol(name) => point.value(name, precision),
        Expr::Apply(name, arguments) => point.value(&format!("{name}{arguments:?}"), precision),
        Expr::Constant(constant) => match constant {
            Constant::E => Ball::integer(1).exp(precision).map(Complex::from),
            Constant::Pi => Some(precision.pi().into()),
            Constant::EulerGamma => {
                let digits = IBig::from(5_772_156_649_015_328_606_065_120_900_824_024_310i128);
                let scale = dashu_int::UBig::from(10u8).pow(37);
                Some(Ball::from_rational(&RBig::from_parts(digits, scale), precision).into())
            }
            Constant::ImaginaryUnit => Some(Complex::integer(1).times_i()),
            Constant::Infinity | Constant::NegativeInfinity | Constant::ComplexInfinity => None,
        },
        Expr::Add(terms) => {
            let mut total = Complex::integer(0);
            for term in terms {
                total = total.add(&value(term, point, precision, fuel)?, precision);
            }
            Some(total)
        }
        Expr::Mul(factors) => {
            let mut total = Complex::integer(1);
            for factor in factors {
                total = total.multiply(&value(factor, point, precision, fuel)?, precision);
            }
            Some(total)
        }
        Expr::Pow(pair) => {
            let base = value(&pair[0], point, precision, fuel)?;
            fuel.spend(8)?;
            return power(&base, &pair[1], point, precision, fuel);
        }
        Expr::Call(function, arguments) => return call(*function, arguments, point, precision, fuel),
        Expr::Fold(kind @ (Fold::Sum | Fold::Product), body, variable, Some(ends)) => {
            let (from, to) = integer_at(&ends[0], point, fuel)?
                .zip(integer_at(&ends[1], point, fuel)?)
                .ok_or(NoValue::Undefined)?;
            if to.checked_sub(from).is_none_or(|count| count > 400) {
                return Err(NoValue::Exhausted);
            }
            let mut total = Complex::integer(i64::from(*kind == Fold::Product));
            for index in from..=to {
                point.bound.push((variable.clone(), Bound::Exact(RBig::from(index))));
                let term = value(body, point, precision, fuel);
                point.bound.pop();
                total = match kind {
                    Fold::Sum => total.add(&term?, precision),
                    _ => total.multiply(&term?, precision),
                };
            }
            Some(total)
        }
        _ => None,
    };
    found.ok_or(NoValue::Undefined)
}

/// Returns the rational value of an expression at the point, or `None` if it isn't known to be rational.
fn exact_at(expr: &Expr, point: &Point, fuel: &mut Fuel) -> Result<Option<RBig>, Exhausted> {
    let bound = |name: &str| Some((name.into(), point.exact(name)?));
    match expr.symbols().into_iter().map(bound).collect::<Option<exact::Bindings>>() {
        Some(mut bindings) => exact::rational_with(expr, &mut bindings, fuel),
        None => Ok(None),
    }
}

fn integer_at(expr: &Expr, point: &Point, fuel: &mut Fuel) -> Result<Option<i64>, Exhausted> {
    match exact_at(expr, point, fuel)? {
        Some(value) if value.is_int() => i64::try_from(value.numerator()).map(Some).map_err(|_| Exhausted),
        _ => Ok(None),
    }
}

fn power(
    base: &Complex,
    exponent: &Expr,
    point: &mut Point,
    precision: &Precision,
    fuel: &mut Fuel,
) -> Result<Complex, NoValue> {
    let is_zero = base.re.is_exact_zero() && base.is_real();
    if let Some(exact) = exact_at(exponent, point, fuel)? {
        if exact.is_int() {
            let whole = i64::try_from(exact.numerator()).map_err(|_| NoValue::Exhausted)?;
            fuel.spend(4 * (64 - whole.unsigned_abs().leading_zeros()))?;
            if is_zero {
                return match whole {
                    0 => Ok(Complex::integer(1)),
                    1.. => Ok(Complex::integer(0)),
                    _ => Err(NoValue::Undefined),
                };
            }
            if base.is_real() || whole.unsigned_abs() < 64 {
                return base.power(whole, precision).ok_or(NoValue::Undefined);
            }
        } else if *exact.denominator() == dashu_int::UBig::from(2u8) {
            let whole = i64::try_from(exact.numerator()).map_err(|_| NoValue::Exhausted)?;
            fuel.spend(8)?;
            let root = base.sqrt(precision).and_then(|root| root.power(whole, precision));
            return root.ok_or(NoValue::Undefined);
        }
        if is_zero {
            let positive = exact.sign() == Sign::Positive;
            return if positive { Ok(Complex::integer(0)) } else { Err(NoValue::Undefined) };
        }
    }
    let exponent = value(exponent, point, precision, fuel)?;
    fuel.spend(40)?;
    let ln = base.ln(precision).ok_or(NoValue::Undefined)?;
    let product = ln.multiply(&exponent, precision);
    // A tower of powers is too large to compute, but not undefined.
    let endless = product.re.log2_bound() > 30.0;
    product.exp(precision).ok_or(if endless { NoValue::Exhausted } else { NoValue::Undefined })
}

fn call(
    function: Function,
    arguments: &[Expr],
    point: &mut Point,
    precision: &Precision,
    fuel: &mut Fuel,
) -> Result<Complex, NoValue> {
    let whole = Expr::Call(function, arguments.to_vec());
    if !matches!(function, Function::Log)
        && let Some(exact) = exact_at(&whole, point, fuel)?
    {
        return Ok(Ball::from_rational(&exact, precision).into());
    }
    let values: Vec<Complex> =
        arguments.iter().map(|a| value(a, point, precision, fuel)).collect::<Result<_, _>>()?;
    fuel.spend(30)?;
    elementary(function, &values, precision).ok_or(NoValue::Undefined)
}

fn elementary(function: Function, values: &[Complex], precision: &Precision) -> Option<Complex> {
    let one = Complex::integer(1);
    let x = values.first()?;
    let halved = |value: Complex| value.divide(&Complex::integer(2), precision);
    match function {
        Function::Sin => Some(x.sin_cos(precision)?.0),
        Function::Cos => Some(x.sin_cos(precision)?.1),
        Function::Tan => {
            let (sine, cosine) = x.sin_cos(precision)?;
            sine.divide(&cosine, precision)
        }
        Function::Cot => {
            let (sine, cosine) = x.sin_cos(precision)?;
            cosine.divide(&sine, precision)
        }
        Function::Sec => one.divide(&x.sin_cos(precision)?.1, precision),
        Function::Csc => one.divide(&x.sin_cos(precision)?.0, precision),
        Function::Sinh | Function::Cosh | Function::Tanh => {
            let forward = x.exp(precision)?;
            let backward = x.negated().exp(precision)?;
            let sine = halved(forward.subtract(&backward, precision))?;
            let cosine = halved(forward.add(&backward, precision))?;
            match function {
                Function::Sinh => Some(sine),
                Function::Cosh => Some(cosine),
                _ => sine.divide(&cosine, precision),
            }
        }
        Function::Atan => {
            if x.is_real() {
                return Some(x.re.atan(precision)?.into());
            }
            // (ln(1 + ix) - ln(1 - ix)) / 2i
            let rotated = x.times_i();
            let plus = one.add(&rotated, precision).ln(precision)?;
            let minus = one.subtract(&rotated, precision).ln(precision)?;
            halved(plus.subtract(&minus, precision).times_i().negated())
        }
        Function::Acot => elementary(Function::Atan, &[one.divide(x, precision)?], precision),
        Function::Asin => {
            // -i ln(ix + sqrt(1 - x^2))
            let root = one.subtract(&x.multiply(x, precision), precision);
            if x.is_real() && root.re.sign() == Some(std::cmp::Ordering::Greater) {
                let ratio = x.re.divide(&root.re.sqrt(precision)?, precision)?;
                return Some(ratio.atan(precision)?.into());
            }
            let inside = x.times_i().add(&root.sqrt(precision)?, precision);
            Some(inside.ln(precision)?.times_i().negated())
        }
        Function::Acos => {
            let half = Complex::from(precision.pi()).divide(&Complex::integer(2), precision)?;
            Some(half.subtract(&elementary(Function::Asin, values, precision)?, precision))
        }
        Function::Asec => elementary(Function::Acos, &[one.divide(x, precision)?], precision),
        Function::Acsc => elementary(Function::Asin, &[one.divide(x, precision)?], precision),
        Function::Asinh => {
            let root = x.multiply(x, precision).add(&one, precision).sqrt(precision)?;
            x.add(&root, precision).ln(precision)
        }
        Function::Acosh => {
            let below = x.subtract(&one, precision).sqrt(precision)?;
            let above = x.add(&one, precision).sqrt(precision)?;
            x.add(&below.multiply(&above, precision), precision).ln(precision)
        }
        Function::Atanh => {
            let plus = one.add(x, precision).ln(precision)?;
            let minus = one.subtract(x, precision).ln(precision)?;
            halved(plus.subtract(&minus, precision))
        }
        Function::Log => {
            let value = x.ln(precision)?;
            let base = values.get(1)?.ln(precision)?;
            value.divide(&base, precision)
        }
        Function::Abs => Some(x.size(precision)?.into()),
        Function::Floor | Function::Ceiling => {
            let size = x.re.to_f64();
            let rounded = if function == Function::Floor { size.floor() } else { size.ceil() };
            // No integer is within the error of the value or of its double.
            let error = x.re.error_bound() + 1e-9_f64.max(size.abs() * 1e-15);
            let far = (size - size.round()).abs() > error;
            (x.is_real() && far && rounded.abs() < 1e14).then(|| Complex::integer(rounded as i64))
        }
        Function::Max | Function::Min => {
            let mut best = x.clone();
            for value in &values[1..] {
                let greater = value.subtract(&best, precision).re.sign()? == std::cmp::Ordering::Greater;
                if greater == (function == Function::Max) {
                    best = value.clone();
                }
            }
            Some(best)
        }
        Function::Mod => {
            let modulus = values.get(1)?;
            let count = elementary(Function::Floor, &[x.divide(modulus, precision)?], precision)?;
            Some(x.subtract(&count.multiply(modulus, precision), precision))
        }
        Function::Factorial | Function::Gamma | Function::Binomial | Function::Gcd | Function::Lcm => None,
    }
}

/// Returns an approximate value of a real constant, including infinities.
pub(super) fn approximate(expr: &Expr) -> Option<f64> {
    match expr {
        Expr::Constant(Constant::Infinity) => Some(f64::INFINITY),
        Expr::Constant(Constant::NegativeInfinity) => Some(f64::NEG_INFINITY),
        _ => {
            let mut point = Point::new(Field::None, 0, false);
            let value = evaluate(expr, &mut point, Precision::level(0), &mut Fuel::new()).ok()??;
            value.is_real().then(|| value.re.to_f64())
        }
    }
}
