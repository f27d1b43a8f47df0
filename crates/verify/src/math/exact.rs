//! Exact evaluation in the rationals, with bounded size.

use dashu_base::{BitTest, Gcd, Sign, SquareRoot, UnsignedAbs};
use dashu_int::{IBig, UBig};
use dashu_ratio::RBig;

use super::budget::{Exhausted, Fuel, MAX_BITS, NoValue, known};
use super::canonical;
use super::expr::{Expr, Fold, Function};

/// Returns the exact value if it follows from rational operations, otherwise `None`.
pub(super) fn rational(expr: &Expr, fuel: &mut Fuel) -> Result<Option<RBig>, Exhausted> {
    rational_with(expr, &mut Vec::new(), fuel)
}

/// Values of symbols, innermost last.
pub(super) type Bindings = Vec<(Box<str>, RBig)>;

/// Evaluates like [`rational`], with values for some symbols.
pub(super) fn rational_with(
    expr: &Expr,
    bindings: &mut Bindings,
    fuel: &mut Fuel,
) -> Result<Option<RBig>, Exhausted> {
    known(value(expr, bindings, fuel))
}

fn value(expr: &Expr, bindings: &mut Bindings, fuel: &mut Fuel) -> Result<RBig, NoValue> {
    fuel.spend(1)?;
    match expr {
        Expr::Number(value) | Expr::Decimal(value, _) => Ok(value.clone()),
        Expr::Percent(inner) => Ok(value(inner, bindings, fuel)? / RBig::from(100)),
        Expr::Symbol(name) => {
            let bound = bindings.iter().rev().find(|(bound, _)| bound == name);
            bound.map(|(_, value)| value.clone()).ok_or(NoValue::Undefined)
        }
        Expr::Add(terms) => {
            let mut total = RBig::ZERO;
            for term in terms {
                total += value(term, bindings, fuel)?;
            }
            sized(total, fuel)
        }
        Expr::Mul(factors) => {
            let mut total = RBig::ONE;
            for factor in factors {
                total *= value(factor, bindings, fuel)?;
                fuel.spend(bits(&total) as u32 / 1024)?;
                if bits(&total) > MAX_BITS {
                    return Err(NoValue::Exhausted);
                }
            }
            Ok(total)
        }
        Expr::Pow(pair) => {
            let base = value(&pair[0], bindings, fuel)?;
            let exponent = value(&pair[1], bindings, fuel)?;
            power(&base, &exponent, fuel)
        }
        Expr::Call(function, arguments) => {
            let values: Vec<RBig> =
                arguments.iter().map(|a| value(a, bindings, fuel)).collect::<Result<_, _>>()?;
            call(*function, &values, fuel)
        }
        Expr::Fold(Fold::Integral, body, variable, Some(ends)) => {
            let (from, to) = (value(&ends[0], bindings, fuel)?, value(&ends[1], bindings, fuel)?);
            let mut total = RBig::ZERO;
            for (exponent, coefficient) in canonical::coefficients(body, variable, fuel)? {
                let above = RBig::from(exponent + 1);
                let (high, low) = (power(&to, &above, fuel)?, power(&from, &above, fuel)?);
                total += coefficient * (high - low) / above;
            }
            sized(total, fuel)
        }
        Expr::Fold(kind @ (Fold::Sum | Fold::Product), body, variable, Some(ends)) => {
            let (from, to) = (value(&ends[0], bindings, fuel)?, value(&ends[1], bindings, fuel)?);
            let (from, to) = integer(&from).zip(integer(&to)).ok_or(NoValue::Undefined)?;
            let mut total = if *kind == Fold::Sum { RBig::ZERO } else { RBig::ONE };
            let (Ok(from), Ok(to)) = (i64::try_from(from), i64::try_from(to)) else {
                return Err(NoValue::Exhausted);
            };
            if to.checked_sub(from).is_none_or(|count| count > 4_000) {
                return Err(NoValue::Exhausted);
            }
            for index in from..=to {
                bindings.push((variable.clone(), RBig::from(index)));
                let term = value(body, bindings, fuel);
                bindings.pop();
                if *kind == Fold::Sum {
                    total += term?
                } else {
                    total *= term?
                }
                fuel.spend(1 + bits(&total) as u32 / 512)?;
            }
            sized(total, fuel)
        }
        _ => Err(NoValue::Undefined),
    }
}

/// Returns the numerator of a rational that is an integer.
fn integer(value: &RBig) -> Option<&IBig> {
    value.is_int().then(|| value.numerator())
}

fn bits(value: &RBig) -> usize {
    value.numerator().bit_len() + value.denominator().bit_len()
}

fn sized(value: RBig, fuel: &mut Fuel) -> Result<RBig, NoValue> {
    let size = bits(&value);
    if size > MAX_BITS {
        return Err(NoValue::Exhausted);
    }
    fuel.spend(size as u32 / 1024)?;
    Ok(value)
}

/// Returns `base^exponent` if it is rational.
fn power(base: &RBig, exponent: &RBig, fuel: &mut Fuel) -> Result<RBig, NoValue> {
    if exponent.is_zero() || *base == RBig::ONE {
        return Ok(RBig::ONE);
    }
    if base.is_zero() {
        return if exponent.sign() == Sign::Positive { Ok(RBig::ZERO) } else { Err(NoValue::Undefined) };
    }
    let Some(whole) = integer(exponent) else {
        return root_power(base, exponent, fuel);
    };
    if *base == -RBig::ONE {
        return Ok(if whole.bit(0) { -RBig::ONE } else { RBig::ONE });
    }
    let count = isize::try_from(whole).map_err(|_| NoValue::Exhausted)?;
    if bits(base).saturating_sub(1).saturating_mul(count.unsigned_abs()) > MAX_BITS {
        return Err(NoValue::Exhausted);
    }
    let power = base.pow(count);
    fuel.spend(bits(&power) as u32 / 256)?;
    Ok(power)
}

/// Returns a rational power of a positive rational that is a perfect power.
fn root_power(base: &RBig, exponent: &RBig, fuel: &mut Fuel) -> Result<RBig, NoValue> {
    let index = usize::try_from(exponent.denominator().clone()).map_err(|_| NoValue::Undefined)?;
    if base.sign() == Sign::Negative || index > 64 || bits(base) > 4096 {
        return Err(NoValue::Undefined);
    }
    fuel.spend(4 + bits(base) as u32 / 64)?;
    let numerator = exact_root(&base.numerator().clone().unsigned_abs(), index);
    let denominator = exact_root(base.denominator(), index);
    let (numerator, denominator) = numerator.zip(denominator).ok_or(NoValue::Undefined)?;
    let root = RBig::from_parts(numerator.into(), denominator);
    power(&root, &RBig::from(exponent.numerator().clone()), fuel)
}

fn exact_root(value: &UBig, index: usize) -> Option<UBig> {
    let root = if index == 2 { value.sqrt() } else { value.nth_root(index) };
    (root.pow(index) == *value).then_some(root)
}

fn call(function: Function, values: &[RBig], fuel: &mut Fuel) -> Result<RBig, NoValue> {
    let natural = |value: &RBig| integer(value).and_then(|whole| u64::try_from(whole.clone()).ok());
    let value = match (function, values) {
        (Function::Abs, [value]) => {
            Some(if value.sign() == Sign::Negative { -value.clone() } else { value.clone() })
        }
        (Function::Floor, [value]) => Some(RBig::from(value.floor())),
        (Function::Ceiling, [value]) => Some(RBig::from(value.ceil())),
        (Function::Factorial, [value]) => match (natural(value), integer(value)) {
            (Some(count), _) => Some(RBig::from(IBig::from(factorial(count, fuel)?))),
            (None, Some(whole)) if whole.sign() == Sign::Positive => return Err(NoValue::Exhausted),
            _ => None,
        },
        (Function::Gamma, [value]) => match natural(value) {
            Some(count) if count > 0 => Some(RBig::from(IBig::from(factorial(count - 1, fuel)?))),
            _ => None,
        },
        (Function::Binomial, [upper, lower]) => match natural(lower) {
            Some(count) if count <= 600 => {
                let mut total = RBig::ONE;
                for step in 0..count {
                    total *= (upper - RBig::from(step)) / RBig::from(step + 1);
                    fuel.spend(1 + bits(&total) as u32 / 1024)?;
                    if bits(&total) > MAX_BITS {
                        return Err(NoValue::Exhausted);
                    }
                }
                Some(total)
            }
            // C(n, k) = C(n, n - k), and n - k is small.
            Some(count) => match natural(upper) {
                Some(total) if total >= count && total - count <= 600 => {
                    return call(function, &[upper.clone(), RBig::from(total - count)], fuel);
                }
                Some(total) if total < count => Some(RBig::ZERO),
                _ => return Err(NoValue::Exhausted),
            },
            None => None,
        },
        (Function::Mod, [value, modulus]) if !modulus.is_zero() => {
            let quotient = RBig::from((value / modulus).floor());
            Some(value - quotient * modulus)
        }
        (Function::Gcd, values) => {
            fold_integers(values, |a, b| if a.is_zero() && b.is_zero() { UBig::ZERO } else { a.gcd(b) })
        }
        (Function::Lcm, values) => fold_integers(values, |a, b| {
            if a.is_zero() || b.is_zero() { UBig::ZERO } else { &a / a.clone().gcd(b.clone()) * b }
        }),
        (Function::Max, values) => values.iter().max().cloned(),
        (Function::Min, values) => values.iter().min().cloned(),
        (Function::Log, [value, base]) => integer_logarithm(value, base),
        _ => None,
    };
    value.ok_or(NoValue::Undefined)
}

/// Folds the absolute values of integers with `join`. Returns `None` if a value isn't an integer.
fn fold_integers(values: &[RBig], join: impl Fn(UBig, UBig) -> UBig) -> Option<RBig> {
    let mut whole = values.iter().map(|value| integer(value).map(|whole| whole.clone().unsigned_abs()));
    let mut total = whole.next()??;
    for next in whole {
        total = join(total, next?);
    }
    Some(RBig::from(IBig::from(total)))
}

/// Returns the logarithm of `value` to `base` if it is a small integer.
fn integer_logarithm(value: &RBig, base: &RBig) -> Option<RBig> {
    if base.sign() == Sign::Negative || value.sign() == Sign::Negative || base.is_zero() || *base == RBig::ONE
    {
        return None;
    }
    if *value == RBig::ONE {
        return Some(RBig::ZERO);
    }
    if bits(value) > 4096 {
        return None;
    }
    let (inverted, start) = match (value > &RBig::ONE) == (base > &RBig::ONE) {
        true => (false, value.clone()),
        false if !value.is_zero() => (true, RBig::ONE / value.clone()),
        false => return None,
    };
    let mut power = RBig::ONE;
    for count in 1..=64i64 {
        power *= base;
        if power == start {
            return Some(RBig::from(if inverted { -count } else { count }));
        }
        if bits(&power) > bits(&start) + 64 {
            return None;
        }
    }
    None
}

/// Returns `count!`. Multiplies two halves, each computed recursively.
fn factorial(count: u64, fuel: &mut Fuel) -> Result<UBig, Exhausted> {
    if count > 8_000 {
        return Err(Exhausted);
    }
    fuel.spend(1 + count as u32 / 4)?;
    Ok(product(1, count.max(1)))
}

fn product(from: u64, to: u64) -> UBig {
    if to - from < 16 {
        let mut total = UBig::ONE;
        let mut small = 1u64;
        for factor in from..=to {
            match small.checked_mul(factor) {
                Some(value) => small = value,
                None => {
                    total *= small;
                    small = factor;
                }
            }
        }
        return total * small;
    }
    let middle = from + (to - from) / 2;
    product(from, middle) * product(middle + 1, to)
}

/// Returns the determinant of a small square matrix of rationals.
pub(super) fn determinant(columns: usize, entries: &[Expr]) -> Option<Expr> {
    if entries.len() != columns * columns || columns > 8 {
        return None;
    }
    let mut fuel = Fuel::new();
    let mut rows: Vec<Vec<RBig>> = Vec::with_capacity(columns);
    for row in entries.chunks(columns) {
        let values: Option<Vec<RBig>> =
            row.iter().map(|entry| rational(entry, &mut fuel).ok().flatten()).collect();
        match values {
            Some(values) => rows.push(values),
            None => return expanded_determinant(columns, entries),
        }
    }
    let mut total = RBig::ONE;
    for at in 0..columns {
        let Some(pivot) = (at..columns).find(|row| !rows[*row][at].is_zero()) else {
            return Some(Expr::Number(RBig::ZERO));
        };
        if pivot != at {
            rows.swap(pivot, at);
            total = -total;
        }
        total *= &rows[at][at];
        let leading = rows[at].clone();
        for row in rows.iter_mut().skip(at + 1) {
            let factor = &row[at] / &leading[at];
            for (value, pivot) in row.iter_mut().zip(&leading).skip(at) {
                *value -= &factor * pivot;
            }
        }
    }
    Some(Expr::Number(total))
}

/// Returns the determinant of a symbolic matrix, up to three columns.
fn expanded_determinant(columns: usize, entries: &[Expr]) -> Option<Expr> {
    let permutations: &[(&[usize], bool)] = match columns {
        1 => &[(&[0], false)],
        2 => &[(&[0, 1], false), (&[1, 0], true)],
        3 => &[
            (&[0, 1, 2], false),
            (&[1, 2, 0], false),
            (&[2, 0, 1], false),
            (&[0, 2, 1], true),
            (&[1, 0, 2], true),
            (&[2, 1, 0], true),
        ],
        _ => return None,
    };
    let terms = permutations.iter().map(|(places, odd)| {
        let factors = places.iter().enumerate().map(|(row, column)| entries[row * columns + column].clone());
        let term = Expr::Mul(factors.collect());
        if *odd { term.negated() } else { term }
    });
    Some(Expr::Add(terms.collect()))
}

/// Computes a sum, multiple or product of explicit matrices: columns and entries. `None` for other expressions.
pub(super) fn matrix(expr: &Expr) -> Option<(usize, Vec<Expr>)> {
    match expr {
        Expr::Matrix(columns, entries) => Some((*columns, entries.clone())),
        Expr::Add(terms) => {
            let mut terms = terms.iter().map(matrix);
            let (columns, first) = terms.next()??;
            let mut sums: Vec<Vec<Expr>> = first.into_iter().map(|entry| vec![entry]).collect();
            for term in terms {
                let (width, entries) = term?;
                if width != columns || entries.len() != sums.len() {
                    return None;
                }
                for (sum, entry) in sums.iter_mut().zip(entries) {
                    sum.push(entry);
                }
            }
            Some((columns, sums.into_iter().map(Expr::Add).collect()))
        }
        Expr::Mul(factors) => {
            let mut scale: Vec<Expr> = Vec::new();
            let mut total: Option<(usize, Vec<Expr>)> = None;
            for factor in factors {
                match (matrix(factor), total.take()) {
                    (None, before) => {
                        scale.push(factor.clone());
                        total = before;
                    }
                    (Some(next), None) => total = Some(next),
                    (Some(next), Some(before)) => total = Some(matrix_product(&before, &next)?),
                }
            }
            let (columns, mut entries) = total?;
            if !scale.is_empty() {
                for entry in &mut entries {
                    let mut factors = scale.clone();
                    factors.push(entry.clone());
                    *entry = Expr::Mul(factors);
                }
            }
            Some((columns, entries))
        }
        Expr::Pow(pair) => {
            let (columns, entries) = matrix(&pair[0])?;
            let count = u32::try_from(pair[1].as_integer()?.clone()).ok()?;
            if entries.len() != columns * columns || !(1..=4).contains(&count) || columns > 4 {
                return None;
            }
            let base = (columns, entries);
            let mut total = base.clone();
            for _ in 1..count {
                total = matrix_product(&total, &base)?;
            }
            Some(total)
        }
        _ => None,
    }
}

fn matrix_product(left: &(usize, Vec<Expr>), right: &(usize, Vec<Expr>)) -> Option<(usize, Vec<Expr>)> {
    let (inner, columns) = (left.0, right.0);
    if right.1.len() != inner * columns || left.1.len() * columns > 400 {
        return None;
    }
    let mut entries = Vec::new();
    for row in left.1.chunks(inner) {
        for column in 0..columns {
            let terms = row
                .iter()
                .enumerate()
                .map(|(at, entry)| Expr::Mul(vec![entry.clone(), right.1[at * columns + column].clone()]));
            entries.push(Expr::Add(terms.collect()));
        }
    }
    Some((columns, entries))
}
