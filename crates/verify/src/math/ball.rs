//! Real and complex ball arithmetic: a number is a midpoint with a radius that bounds all errors so far.
//!
//! Mantissas are integers of a chosen number of bits. A ball that excludes zero proves a difference; a ball that
//! contains zero proves nothing. All functions use principal branches.

use dashu_base::{BitTest, DivRemEuclid, Sign, SquareRoot, UnsignedAbs};
use dashu_int::IBig;
use dashu_ratio::RBig;
use std::sync::OnceLock;

/// Larger exponents are refused.
const MAX_EXPONENT: i64 = 1 << 40;

/// `(mantissa ± radius) * 2^exponent`.
#[derive(Debug, Clone)]
pub(super) struct Ball {
    mantissa: IBig,
    radius: f64,
    exponent: i64,
}

/// Working precision and its constants.
#[derive(Debug)]
pub(super) struct Precision {
    bits: usize,
    /// Bits of the fixed-point numbers inside elementary functions.
    fixed: usize,
    pi: IBig,
    ln2: IBig,
}

impl Precision {
    /// Number of levels of precision.
    pub(super) const LEVELS: usize = 3;

    /// Returns the precision of a result in bits.
    pub(super) fn bits(&self) -> usize {
        self.bits
    }

    /// Returns the precision of a level. Levels above the last one count as the last.
    pub(super) fn level(level: usize) -> &'static Self {
        static LEVELS: [OnceLock<Precision>; Precision::LEVELS] = [const { OnceLock::new() }; 3];
        let level = level.min(Self::LEVELS - 1);
        LEVELS[level].get_or_init(|| {
            let bits = [80, 200, 420][level];
            let fixed = bits + 40;
            // More bits than are kept, for the errors of the series.
            const GUARD: usize = 32;
            let wide = fixed + GUARD;
            let series = |inverse: i64, alternating| {
                odd_powers((IBig::ONE << wide) / IBig::from(inverse), wide, alternating).0
            };
            let pi: IBig = ((series(5, true) * 4 - series(239, true)) * 4) >> GUARD;
            let ln2: IBig = (series(3, false) * 2) >> GUARD;
            Self { bits, fixed, pi, ln2 }
        })
    }

    pub(super) fn pi(&self) -> Ball {
        self.of_fixed(self.pi.clone(), 4.0)
    }

    fn of_fixed(&self, value: IBig, error: f64) -> Ball {
        Ball { mantissa: value, radius: error, exponent: -(self.fixed as i64) }.rounded(self.bits)
    }
}

fn magnitude(value: &IBig) -> f64 {
    let size = value.to_f64().value().abs();
    size * (1.0 + 1e-15)
}

/// Returns `value * 2^shift`, rounded towards minus infinity.
fn shifted(value: &IBig, shift: i64) -> IBig {
    if shift >= 0 { value << shift as usize } else { value >> (-shift) as usize }
}

impl Ball {
    pub(super) fn integer(value: i64) -> Self {
        Self { mantissa: IBig::from(value), radius: 0.0, exponent: 0 }
    }

    pub(super) fn from_rational(value: &RBig, precision: &Precision) -> Self {
        let numerator = value.numerator();
        if value.is_int() {
            return Self { mantissa: numerator.clone(), radius: 0.0, exponent: 0 }.rounded(precision.bits);
        }
        let denominator = IBig::from(value.denominator().clone());
        let shift = (precision.bits + denominator.bit_len() + 2).saturating_sub(numerator.bit_len());
        let mantissa = (numerator << shift) / denominator;
        Self { mantissa, radius: 1.0, exponent: -(shift as i64) }.rounded(precision.bits)
    }

    fn rounded(mut self, bits: usize) -> Self {
        let length = self.mantissa.bit_len();
        if length > bits {
            let drop = length - bits;
            self.mantissa >>= drop;
            self.exponent += drop as i64;
            self.radius =
                if drop > 1000 { self.radius * 1e-290 } else { self.radius * (-(drop as f64)).exp2() } + 1.0;
        }
        self
    }

    pub(super) fn is_exact_zero(&self) -> bool {
        self.radius == 0.0 && self.mantissa.is_zero()
    }

    /// Returns whether the ball contains zero.
    pub(super) fn holds_zero(&self) -> bool {
        !self.radius.is_finite() || magnitude(&self.mantissa) * (1.0 - 1e-14) <= self.radius
    }

    /// Returns the sign, or `None` if the ball contains zero.
    pub(super) fn sign(&self) -> Option<std::cmp::Ordering> {
        if self.is_exact_zero() {
            return Some(std::cmp::Ordering::Equal);
        }
        if self.holds_zero() {
            return None;
        }
        Some(match self.mantissa.sign() {
            Sign::Positive => std::cmp::Ordering::Greater,
            Sign::Negative => std::cmp::Ordering::Less,
        })
    }

    pub(super) fn is_sane(&self) -> bool {
        self.radius.is_finite() && self.exponent.abs() < MAX_EXPONENT && self.radius < 1e60
    }

    pub(super) fn to_f64(&self) -> f64 {
        let drop = self.mantissa.bit_len().saturating_sub(64);
        let head = (&self.mantissa >> drop).to_f64().value();
        let exponent = (self.exponent + drop as i64).clamp(-2000, 2000) as i32;
        // In two steps, so that subnormal results are reached.
        head * f64::from(exponent / 2).exp2() * f64::from(exponent - exponent / 2).exp2()
    }

    /// Returns the binary logarithm of an upper bound of the absolute value.
    pub(super) fn log2_bound(&self) -> f64 {
        let size = magnitude(&self.mantissa) + self.radius;
        if size == 0.0 { f64::NEG_INFINITY } else { size.log2() + self.exponent as f64 }
    }

    /// Returns an upper bound of the distance between the midpoint and any value inside.
    pub(super) fn error_bound(&self) -> f64 {
        if self.radius == 0.0 {
            0.0
        } else {
            (self.radius.log2() + self.exponent as f64).exp2() * (1.0 + 1e-9)
        }
    }

    pub(super) fn negated(&self) -> Self {
        Self { mantissa: -&self.mantissa, radius: self.radius, exponent: self.exponent }
    }

    pub(super) fn add(&self, other: &Self, precision: &Precision) -> Self {
        if self.is_exact_zero() {
            return other.clone();
        }
        if other.is_exact_zero() {
            return self.clone();
        }
        let (high, low) = if self.exponent >= other.exponent { (self, other) } else { (other, self) };
        let gap = high.exponent - low.exponent;
        let low_bits = low.mantissa.bit_len() as i64;
        if gap > low_bits + 4 && gap > 3 * precision.bits as i64 {
            // The smaller one is below the last bit of the larger.
            let tail = if low.radius > 1.0 { low.log2_bound() - high.exponent as f64 } else { 0.0 };
            let mut sum = high.clone();
            if high.mantissa.bit_len() < precision.bits {
                let grow = precision.bits - high.mantissa.bit_len();
                sum.mantissa <<= grow;
                sum.exponent -= grow as i64;
                sum.radius *= (grow as f64).exp2();
                let tail = low.log2_bound() - sum.exponent as f64;
                sum.radius += tail.exp2().max(1e-9);
            } else {
                sum.radius += tail.max(0.0).exp2();
            }
            return sum.rounded(precision.bits);
        }
        let scale = (gap as f64).exp2();
        Self {
            mantissa: (&high.mantissa << gap as usize) + &low.mantissa,
            radius: if high.radius == 0.0 { low.radius } else { high.radius * scale + low.radius },
            exponent: low.exponent,
        }
        .rounded(precision.bits)
    }

    pub(super) fn subtract(&self, other: &Self, precision: &Precision) -> Self {
        self.add(&other.negated(), precision)
    }

    pub(super) fn multiply(&self, other: &Self, precision: &Precision) -> Self {
        if self.is_exact_zero() || other.is_exact_zero() {
            return Self::integer(0);
        }
        let radius = if self.radius == 0.0 && other.radius == 0.0 {
            0.0
        } else {
            (magnitude(&self.mantissa) * other.radius
                + magnitude(&other.mantissa) * self.radius
                + self.radius * other.radius)
                * (1.0 + 1e-14)
        };
        Self { mantissa: &self.mantissa * &other.mantissa, radius, exponent: self.exponent + other.exponent }
            .rounded(precision.bits)
    }

    fn halved(&self, precision: &Precision) -> Self {
        self.multiply(&Self { mantissa: IBig::ONE, radius: 0.0, exponent: -1 }, precision)
    }

    pub(super) fn divide(&self, other: &Self, precision: &Precision) -> Option<Self> {
        if other.holds_zero() {
            return None;
        }
        if self.is_exact_zero() {
            return Some(self.clone());
        }
        let shift = (precision.bits + other.mantissa.bit_len() + 2).saturating_sub(self.mantissa.bit_len());
        let mantissa: IBig = (&self.mantissa << shift) / &other.mantissa;
        let smallest = magnitude(&other.mantissa) * (1.0 - 1e-14) - other.radius;
        let radius = 1.0
            + (self.radius * (shift as f64).exp2() + (magnitude(&mantissa) + 1.0) * other.radius) / smallest
                * (1.0 + 1e-13);
        let exponent = self.exponent - other.exponent - shift as i64;
        Some(Self { mantissa, radius, exponent }.rounded(precision.bits))
    }

    /// Returns the square root of a positive ball, or of exact zero.
    pub(super) fn sqrt(&self, precision: &Precision) -> Option<Self> {
        if self.is_exact_zero() {
            return Some(self.clone());
        }
        if self.holds_zero() || self.mantissa.sign() == Sign::Negative {
            return None;
        }
        let mut shift = (2 * precision.bits + 4).saturating_sub(self.mantissa.bit_len()) as i64;
        if (self.exponent - shift) % 2 != 0 {
            shift += 1;
        }
        let scaled = (&self.mantissa << shift as usize).unsigned_abs();
        let root = IBig::from(scaled.sqrt());
        let smallest = (magnitude(&self.mantissa) - self.radius).max(f64::MIN_POSITIVE) * 0.999;
        // d sqrt(m 2^s) = 2^(s/2) dm / (2 sqrt(m))
        let radius = 1.0 + self.radius * (shift as f64 / 2.0).exp2() / smallest.sqrt();
        Some(Self { mantissa: root, radius, exponent: (self.exponent - shift) / 2 }.rounded(precision.bits))
    }

    /// Returns the fixed-point value, and the error in units of its last place.
    fn to_fixed(&self, precision: &Precision) -> Option<(IBig, f64)> {
        let shift = self.exponent + precision.fixed as i64;
        if self.mantissa.bit_len() as i64 + shift > precision.fixed as i64 + 64 {
            return None;
        }
        let radius = self.radius * (shift as f64).exp2() + 1.0;
        Some((shifted(&self.mantissa, shift.max(-100_000)), radius))
    }

    /// Returns the exponential, or `None` if it is out of range.
    pub(super) fn exp(&self, precision: &Precision) -> Option<Self> {
        if self.is_exact_zero() {
            return Some(Self::integer(1));
        }
        let (value, error) = self.to_fixed(precision)?;
        let one: IBig = IBig::ONE << precision.fixed;
        let (count, rest) = (&value).div_rem_euclid(&precision.ln2);
        let count = i64::try_from(count).ok().filter(|count| count.abs() < MAX_EXPONENT / 2)?;
        const HALVINGS: usize = 8;
        let reduced = IBig::from(rest >> HALVINGS);
        let mut term = one.clone();
        let mut total = one.clone();
        let mut index = 1u32;
        loop {
            term = (term * &reduced) >> precision.fixed;
            term /= IBig::from(index);
            if term.is_zero() {
                break;
            }
            total += &term;
            index += 1;
        }
        for _ in 0..HALVINGS {
            total = (&total * &total) >> precision.fixed;
        }
        // Rounding of the series doubled per squaring, the multiple of ln 2, and the argument's own error.
        let own = error * (-(precision.fixed as f64)).exp2();
        if own > 0.5 {
            return None;
        }
        let radius = 4096.0 * (f64::from(index) + 4.0) + (count.unsigned_abs() as f64 + error * 4.0) * 4.0;
        let mut result = precision.of_fixed(total, radius);
        result.exponent += count;
        Some(result)
    }

    /// Returns the natural logarithm of a positive ball.
    pub(super) fn ln(&self, precision: &Precision) -> Option<Self> {
        if self.holds_zero() || self.mantissa.sign() == Sign::Negative {
            return None;
        }
        let length = self.mantissa.bit_len() as i64;
        // x = u * 2^count with u in [1/2, 1)
        let count = length + self.exponent;
        let unit = shifted(&self.mantissa, precision.fixed as i64 - length);
        let relative = self.radius / (magnitude(&self.mantissa) - self.radius).max(f64::MIN_POSITIVE);
        // ln u = 2 artanh((u - 1) / (u + 1)), after square roots that bring u near 1.
        const ROOTS: usize = 6;
        let one: IBig = IBig::ONE << precision.fixed;
        let mut near = unit;
        for _ in 0..ROOTS {
            near = IBig::from((near << precision.fixed).unsigned_abs().sqrt());
        }
        let ratio: IBig = ((&near - &one) << precision.fixed) / (&near + &one);
        let (total, index) = odd_powers(ratio, precision.fixed, false);
        let total = (total << (ROOTS + 1)) + &precision.ln2 * IBig::from(count);
        let radius = 256.0 * (index as f64 + 16.0)
            + count.unsigned_abs() as f64 * 4.0
            + relative * (precision.fixed as f64).exp2() * 1.01;
        Some(precision.of_fixed(total, radius))
    }

    /// Returns the sine and the cosine, or `None` if the number is at least about 2^64.
    pub(super) fn sin_cos(&self, precision: &Precision) -> Option<(Self, Self)> {
        if self.is_exact_zero() {
            return Some((Self::integer(0), Self::integer(1)));
        }
        let (value, error) = self.to_fixed(precision)?;
        let half_pi: IBig = precision.pi.clone() >> 1;
        let (quadrant, rest) = (&value).div_rem_euclid(&half_pi);
        let rest = IBig::from(rest);
        let one: IBig = IBig::ONE << precision.fixed;
        let series = |start: IBig, first: i64| {
            let mut term = start.clone();
            let mut total = start;
            let square: IBig = (&rest * &rest) >> precision.fixed;
            let mut index = first;
            loop {
                term = (term * &square) >> precision.fixed;
                term = -(term / IBig::from(index * (index + 1)));
                if term.is_zero() {
                    return total;
                }
                total += &term;
                index += 2;
                if index > 2_000 {
                    return total;
                }
            }
        };
        let sine = series(rest.clone(), 2);
        let cosine = series(one, 1);
        let quadrant = i64::try_from(quadrant % IBig::from(4)).unwrap_or(0).rem_euclid(4);
        let turns = (magnitude(&value) * (-(precision.fixed as f64)).exp2()).max(1.0);
        let radius = error + 512.0 + turns * 8.0;
        let (sine, cosine) = match quadrant {
            0 => (sine, cosine),
            1 => (cosine, -sine),
            2 => (-sine, -cosine),
            _ => (-cosine, sine),
        };
        Some((precision.of_fixed(sine, radius), precision.of_fixed(cosine, radius)))
    }

    /// Returns the arc tangent.
    pub(super) fn atan(&self, precision: &Precision) -> Option<Self> {
        if self.is_exact_zero() {
            return Some(self.clone());
        }
        let large = self.mantissa.bit_len() as i64 + self.exponent > 1;
        if large {
            let inverse = Self::integer(1).divide(self, precision)?;
            let half = precision.of_fixed(precision.pi.clone() >> 1, 4.0);
            let rest = inverse.atan(precision)?;
            let signed = if self.mantissa.sign() == Sign::Negative { half.negated() } else { half };
            return Some(signed.subtract(&rest, precision));
        }
        let (mut value, error) = self.to_fixed(precision)?;
        let one: IBig = IBig::ONE << precision.fixed;
        // atan x = 2 atan(x / (1 + sqrt(1 + x^2)))
        const HALVINGS: usize = 4;
        for _ in 0..HALVINGS {
            let hypotenuse =
                IBig::from(((&value * &value) + (&one << precision.fixed)).unsigned_abs().sqrt());
            value = (value << precision.fixed) / (&one + hypotenuse);
        }
        let (total, index) = odd_powers(value, precision.fixed, true);
        Some(precision.of_fixed(total << HALVINGS, error + 64.0 * (index as f64 + 8.0)))
    }
}

/// Returns the sum of `x^n / n` over odd n, with alternating signs if `alternating`, and the first n that the sum
/// leaves out.
fn odd_powers(value: IBig, fixed: usize, alternating: bool) -> (IBig, i64) {
    let square: IBig = (&value * &value) >> fixed;
    let mut power = value.clone();
    let mut total = value;
    let mut index = 3i64;
    while !power.is_zero() && power != IBig::NEG_ONE {
        power = (power * &square) >> fixed;
        let term = &power / IBig::from(index);
        if alternating && index % 4 == 3 {
            total -= term;
        } else {
            total += term;
        }
        index += 2;
    }
    (total, index)
}

/// A complex ball. Exact zeros stay exact, so real values stay real.
#[derive(Debug, Clone)]
pub(super) struct Complex {
    pub(super) re: Ball,
    pub(super) im: Ball,
}

impl From<Ball> for Complex {
    fn from(re: Ball) -> Self {
        Self { re, im: Ball::integer(0) }
    }
}

impl Complex {
    pub(super) fn integer(value: i64) -> Self {
        Ball::integer(value).into()
    }

    pub(super) fn is_real(&self) -> bool {
        self.im.is_exact_zero()
    }

    pub(super) fn is_sane(&self) -> bool {
        self.re.is_sane() && self.im.is_sane()
    }

    pub(super) fn holds_zero(&self) -> bool {
        self.re.holds_zero() && self.im.holds_zero()
    }

    /// Returns the binary logarithm of an upper bound of the larger of both parts.
    pub(super) fn log2_bound(&self) -> f64 {
        self.re.log2_bound().max(self.im.log2_bound())
    }

    pub(super) fn add(&self, other: &Self, precision: &Precision) -> Self {
        Self { re: self.re.add(&other.re, precision), im: self.im.add(&other.im, precision) }
    }

    pub(super) fn subtract(&self, other: &Self, precision: &Precision) -> Self {
        Self { re: self.re.subtract(&other.re, precision), im: self.im.subtract(&other.im, precision) }
    }

    pub(super) fn negated(&self) -> Self {
        Self { re: self.re.negated(), im: self.im.negated() }
    }

    pub(super) fn times_i(&self) -> Self {
        Self { re: self.im.negated(), im: self.re.clone() }
    }

    pub(super) fn multiply(&self, other: &Self, precision: &Precision) -> Self {
        if self.is_real() && other.is_real() {
            return self.re.multiply(&other.re, precision).into();
        }
        let product = |a: &Ball, b: &Ball| a.multiply(b, precision);
        Self {
            re: product(&self.re, &other.re).subtract(&product(&self.im, &other.im), precision),
            im: product(&self.re, &other.im).add(&product(&self.im, &other.re), precision),
        }
    }

    pub(super) fn divide(&self, other: &Self, precision: &Precision) -> Option<Self> {
        if other.is_real() {
            return Some(Self {
                re: self.re.divide(&other.re, precision)?,
                im: self.im.divide(&other.re, precision)?,
            });
        }
        let conjugate = Self { re: other.re.clone(), im: other.im.negated() };
        let size = other.squared_size(precision);
        let product = self.multiply(&conjugate, precision);
        Some(Self { re: product.re.divide(&size, precision)?, im: product.im.divide(&size, precision)? })
    }

    fn halved(&self, precision: &Precision) -> Self {
        Self { re: self.re.halved(precision), im: self.im.halved(precision) }
    }

    fn squared_size(&self, precision: &Precision) -> Ball {
        self.re.multiply(&self.re, precision).add(&self.im.multiply(&self.im, precision), precision)
    }

    pub(super) fn size(&self, precision: &Precision) -> Option<Ball> {
        if self.is_real() {
            return match self.re.sign()? {
                std::cmp::Ordering::Less => Some(self.re.negated()),
                _ => Some(self.re.clone()),
            };
        }
        self.squared_size(precision).sqrt(precision)
    }

    /// Returns the principal argument, in (-pi, pi].
    fn argument(&self, precision: &Precision) -> Option<Ball> {
        use std::cmp::Ordering;
        let im_sign = if self.im.is_exact_zero() { Some(Ordering::Equal) } else { self.im.sign() };
        match self.re.sign() {
            Some(Ordering::Greater) => self.im.divide(&self.re, precision)?.atan(precision),
            Some(Ordering::Less) => {
                let base = self.im.divide(&self.re, precision)?.atan(precision)?;
                let pi = precision.pi();
                Some(match im_sign? {
                    Ordering::Less => base.subtract(&pi, precision),
                    _ => base.add(&pi, precision),
                })
            }
            _ => {
                let rest = self.re.divide(&self.im, precision)?.atan(precision)?;
                let half = precision.pi().halved(precision);
                Some(match im_sign? {
                    Ordering::Greater => half.subtract(&rest, precision),
                    Ordering::Less => half.negated().subtract(&rest, precision),
                    Ordering::Equal => return None,
                })
            }
        }
    }

    pub(super) fn exp(&self, precision: &Precision) -> Option<Self> {
        let size = self.re.exp(precision)?;
        if self.is_real() {
            return Some(size.into());
        }
        let (sine, cosine) = self.im.sin_cos(precision)?;
        Some(Self { re: size.multiply(&cosine, precision), im: size.multiply(&sine, precision) })
    }

    pub(super) fn ln(&self, precision: &Precision) -> Option<Self> {
        if self.is_real() && self.re.sign()? == std::cmp::Ordering::Greater {
            return Some(self.re.ln(precision)?.into());
        }
        Some(Self { re: self.size(precision)?.ln(precision)?, im: self.argument(precision)? })
    }

    pub(super) fn sqrt(&self, precision: &Precision) -> Option<Self> {
        if self.is_real() {
            return match self.re.sign()? {
                std::cmp::Ordering::Less => Some(Complex::from(self.re.negated().sqrt(precision)?).times_i()),
                _ => Some(self.re.sqrt(precision)?.into()),
            };
        }
        self.ln(precision)?.halved(precision).exp(precision)
    }

    /// Returns an integer power.
    pub(super) fn power(&self, exponent: i64, precision: &Precision) -> Option<Self> {
        let mut total = Self::integer(1);
        let mut square = self.clone();
        let mut left = exponent.unsigned_abs();
        while left > 0 {
            if left & 1 == 1 {
                total = total.multiply(&square, precision);
            }
            left >>= 1;
            if left > 0 {
                square = square.multiply(&square, precision);
            }
            if !total.is_sane() || !square.is_sane() {
                return None;
            }
        }
        if exponent < 0 { Self::integer(1).divide(&total, precision) } else { Some(total) }
    }

    pub(super) fn sin_cos(&self, precision: &Precision) -> Option<(Self, Self)> {
        if self.is_real() {
            let (sine, cosine) = self.re.sin_cos(precision)?;
            return Some((sine.into(), cosine.into()));
        }
        let rotated = self.times_i();
        let forward = rotated.exp(precision)?;
        let backward = rotated.negated().exp(precision)?;
        let cosine = forward.add(&backward, precision).halved(precision);
        let sine = forward.subtract(&backward, precision).halved(precision).times_i().negated();
        Some((sine, cosine))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ball(numerator: i64, denominator: u32, precision: &Precision) -> Ball {
        Ball::from_rational(&RBig::from_parts(numerator.into(), denominator.into()), precision)
    }

    fn assert_close(ball: &Ball, wanted: f64) {
        let found = ball.to_f64();
        assert!((found - wanted).abs() <= wanted.abs() * 4e-16 + 1e-300, "{found} is not {wanted}");
        assert!(ball.is_sane() && ball.radius < 1e9, "radius {}", ball.radius);
    }

    #[test]
    fn elementary_functions_agree_with_the_standard_library_at_every_precision() {
        for level in 0..3 {
            let precision = Precision::level(level);
            for numerator in [-700i64, -33, -3, -1, 1, 2, 5, 9, 40, 500] {
                for denominator in [1u32, 3, 7, 64] {
                    let x = ball(numerator, denominator, precision);
                    let value = numerator as f64 / f64::from(denominator);
                    assert_close(&x.exp(precision).unwrap(), exp_of_ratio(numerator, denominator));
                    let (sine, cosine) = x.sin_cos(precision).unwrap();
                    if value.abs() < 100.0 {
                        assert!((sine.to_f64() - value.sin()).abs() < 1e-13);
                        assert!((cosine.to_f64() - value.cos()).abs() < 1e-13);
                    }
                    assert_close(&x.atan(precision).unwrap(), value.atan());
                    if value > 0.0 {
                        assert!((x.ln(precision).unwrap().to_f64() - value.ln()).abs() < 1e-15 * 16.0);
                        assert_close(&x.sqrt(precision).unwrap(), value.sqrt());
                    }
                }
            }
            assert_close(&precision.pi(), std::f64::consts::PI);
        }
    }

    /// Returns `exp` of a ratio. Corrects, to first order, that the nearest double loses digits of a large ratio.
    fn exp_of_ratio(numerator: i64, denominator: u32) -> f64 {
        let value = numerator as f64 / f64::from(denominator);
        let rest = (-value).mul_add(f64::from(denominator), numerator as f64) / f64::from(denominator);
        value.exp() * (1.0 + rest)
    }

    #[test]
    fn a_ball_of_a_true_identity_holds_zero_and_of_a_false_one_does_not() {
        for level in 0..3 {
            let precision = Precision::level(level);
            let root = |n: i64| Ball::integer(n).sqrt(precision).unwrap();
            // sqrt 2 + sqrt 3 = sqrt(5 + 2 sqrt 6)
            let left = root(2).add(&root(3), precision);
            let twice = Ball::integer(2).multiply(&root(6), precision);
            let right = Ball::integer(5).add(&twice, precision).sqrt(precision).unwrap();
            let difference = left.subtract(&right, precision);
            assert!(difference.holds_zero());
            assert!(difference.log2_bound() < -(precision.bits as f64) + 8.0);
            assert!(!left.subtract(&root(10), precision).holds_zero());
        }
    }

    #[test]
    fn powers_and_roots_of_negative_numbers_take_the_principal_branch() {
        let precision = Precision::level(1);
        let root = Complex::integer(-4).sqrt(precision).unwrap();
        assert!(root.re.is_exact_zero());
        assert_close(&root.im, 2.0);
        let ln = Complex::integer(-1).ln(precision).unwrap();
        assert_close(&ln.im, std::f64::consts::PI);
    }
}
