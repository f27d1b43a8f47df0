//! Python's operators on values, without a budget.

use dashu_base::{Abs, BitTest, DivEuclid, Signed};
use dashu_int::IBig;

use super::super::value::{Value, compare_numbers, int_to_f64};
use super::{EvalError, MAX_BRACKETS, Result};

pub(super) fn subscript(value: Value, index: &Value) -> Result<Value> {
    let place = |length: usize| {
        let at = index.as_i64().ok_or(EvalError::Raised)?;
        let at = if at < 0 { at.checked_add(length as i64) } else { Some(at) };
        at.and_then(|at| usize::try_from(at).ok()).filter(|at| *at < length).ok_or(EvalError::Raised)
    };
    match value {
        Value::List(mut items) | Value::Tuple(mut items) => {
            let at = place(items.len())?;
            Ok(items.swap_remove(at))
        }
        Value::Str(s) => {
            let at = place(s.chars().count())?;
            s.chars().nth(at).map(|c| Value::Str(c.to_string())).ok_or(EvalError::Raised)
        }
        Value::Dict(entries) => {
            let found = entries.into_iter().find(|(k, _)| k == index);
            found.map(|(_, v)| v).ok_or(EvalError::Raised)
        }
        _ => Err(EvalError::Raised),
    }
}

/// Returns the cost of repeating a value, about its size in bits.
pub(super) fn weight(value: &Value) -> usize {
    64 + match value {
        Value::Str(s) => 8 * s.len(),
        Value::Bytes(b) => 8 * b.len(),
        Value::Int(n) => n.bit_len(),
        Value::List(v) | Value::Tuple(v) | Value::Set(v) => v.iter().map(weight).sum(),
        Value::Dict(d) => d.iter().map(|(k, v)| weight(k) + weight(v)).sum(),
        _ => 0,
    }
}

/// Converts a real number to a double. Fails for an integer beyond the range of doubles; other types give `None`.
pub(super) fn finite(v: &Value) -> Result<Option<f64>> {
    match v {
        Value::Int(n) => {
            let x = int_to_f64(n);
            if x.is_finite() { Ok(Some(x)) } else { Err(EvalError::Raised) }
        }
        v => Ok(v.as_f64()),
    }
}

/// Computes Python's `divmod` for integers: the remainder has the divisor's sign.
pub fn floor_division(a: &IBig, b: &IBig) -> (IBig, IBig) {
    let quotient = a.div_euclid(b);
    let remainder = a - &quotient * b;
    // Euclid's remainder is never negative; the divisor's sign is wanted.
    if b.is_negative() && !remainder.is_zero() {
        (quotient - IBig::from(1), remainder + b)
    } else {
        (quotient, remainder)
    }
}

/// Computes Python's `/` for integers: the nearest double of the exact quotient.
pub(super) fn true_division(a: &IBig, b: &IBig) -> Result<Value> {
    let (x, y) = (int_to_f64(a), int_to_f64(b));
    let exact = 1_u64 << 53;
    if a.bit_len() <= 53 && b.bit_len() <= 53 {
        debug_assert!(x.abs() <= exact as f64 && y.abs() <= exact as f64);
        return Ok(Value::Float(x / y));
    }
    // Scale to a quotient of at least 66 bits with a sticky last bit, which rounds once, and scale back by a power of two.
    let shift = 66 + b.bit_len() as i64 - a.bit_len() as i64;
    let (n, d) = if shift >= 0 {
        (a.clone().abs() << shift as usize, b.clone().abs())
    } else {
        (a.clone().abs(), b.clone().abs() << (-shift) as usize)
    };
    let (mut quotient, remainder) = floor_division(&n, &d);
    if !remainder.is_zero() {
        quotient |= IBig::from(1);
    }
    let magnitude = scale(int_to_f64(&quotient), -shift);
    if magnitude.is_infinite() {
        return Err(EvalError::Raised);
    }
    Ok(Value::Float(if a.is_negative() == b.is_negative() { magnitude } else { -magnitude }))
}

/// Computes `x * 2^exponent`, in steps that neither overflow nor underflow early.
pub(super) fn scale(mut x: f64, mut exponent: i64) -> f64 {
    while exponent > 0 && x.is_finite() {
        let step = exponent.min(1000);
        x *= 2_f64.powi(step as i32);
        exponent -= step;
    }
    while exponent < 0 && x != 0.0 {
        let step = (-exponent).min(1000);
        x /= 2_f64.powi(step as i32);
        exponent += step;
    }
    x
}

/// Computes Python's `//` and `%` for doubles.
pub(super) fn float_divmod(x: f64, y: f64) -> (f64, f64) {
    let mut remainder = x % y;
    let mut quotient = (x - remainder) / y;
    if remainder != 0.0 {
        if (y < 0.0) != (remainder < 0.0) {
            remainder += y;
            quotient -= 1.0;
        }
    } else {
        remainder = 0.0_f64.copysign(y);
    }
    let floor = if quotient == 0.0 {
        0.0_f64.copysign(x / y)
    } else {
        let floor = quotient.floor();
        if quotient - floor > 0.5 { floor + 1.0 } else { floor }
    };
    (floor, remainder)
}

pub(super) fn float(op: &str, x: f64, y: f64) -> Result<Value> {
    Ok(Value::Float(match op {
        "+" => x + y,
        "-" => x - y,
        "*" => x * y,
        "/" | "//" | "%" if y == 0.0 => return Err(EvalError::Raised),
        "/" => x / y,
        "//" => float_divmod(x, y).0,
        "%" => float_divmod(x, y).1,
        "**" => {
            if x == 0.0 && y < 0.0 {
                return Err(EvalError::Raised);
            }
            if x < 0.0 && x.is_finite() && y.is_finite() && y.fract() != 0.0 {
                return complex("**", &Value::Complex(x, 0.0), &Value::Float(y));
            }
            let result = x.powf(y);
            if result.is_infinite() && x.is_finite() && y.is_finite() {
                return Err(EvalError::Raised);
            }
            result
        }
        _ => return Err(EvalError::Raised),
    }))
}

pub(super) fn complex(op: &str, a: &Value, b: &Value) -> Result<Value> {
    let parts = |v: &Value| match v {
        Value::Complex(re, im) => Ok((*re, *im)),
        v => finite(v)?.map(|x| (x, 0.0)).ok_or(EvalError::Raised),
    };
    let ((ar, ai), (br, bi)) = (parts(a)?, parts(b)?);
    let (re, im) = match op {
        "+" => (ar + br, ai + bi),
        "-" => (ar - br, ai - bi),
        "*" => (ar * br - ai * bi, ar * bi + ai * br),
        "/" => {
            let norm = br * br + bi * bi;
            if norm == 0.0 {
                return Err(EvalError::Raised);
            }
            ((ar * br + ai * bi) / norm, (ai * br - ar * bi) / norm)
        }
        "**" => {
            if br == 0.0 && bi == 0.0 {
                (1.0, 0.0)
            } else if ar == 0.0 && ai == 0.0 {
                if br < 0.0 || bi != 0.0 {
                    return Err(EvalError::Raised);
                }
                (0.0, 0.0)
            } else {
                let (radius, angle) = (ar.hypot(ai), ai.atan2(ar));
                let length = radius.powf(br) * (-bi * angle).exp();
                let phase = br * angle + bi * radius.ln();
                (length * phase.cos(), length * phase.sin())
            }
        }
        _ => return Err(EvalError::Raised),
    };
    if op == "**" && !(re.is_finite() && im.is_finite()) {
        return Err(EvalError::Raised);
    }
    Ok(Value::Complex(re, im))
}

pub(super) fn negate(op: &str, v: Value) -> Result<Value> {
    Ok(match (op, v) {
        ("~", v) => Value::Int(-v.as_int().ok_or(EvalError::Raised)? - IBig::from(1)),
        ("-", Value::Float(x)) => Value::Float(-x),
        ("-", Value::Complex(re, im)) => Value::Complex(-re, -im),
        ("-", v) => Value::Int(-v.as_int().ok_or(EvalError::Raised)?),
        (_, v @ (Value::Int(_) | Value::Float(_) | Value::Complex(..))) => v,
        (_, v) => Value::Int(v.as_int().ok_or(EvalError::Raised)?),
    })
}

pub(super) fn compare(op: &str, a: &Value, b: &Value) -> Result<bool> {
    use std::cmp::Ordering::{Greater, Less};
    let ordered = |found: &dyn Fn(std::cmp::Ordering) -> bool| match order(a, b, 0)? {
        Some(ordering) => Ok(found(ordering)),
        None => Ok(false),
    };
    match op {
        "==" => Ok(a == b),
        "!=" => Ok(a != b),
        "<" => ordered(&|o| o == Less),
        ">" => ordered(&|o| o == Greater),
        "<=" => ordered(&|o| o != Greater),
        ">=" => ordered(&|o| o != Less),
        "in" | "not in" => {
            let found = match (a, b) {
                (a, Value::List(v) | Value::Tuple(v) | Value::Set(v)) => v.iter().any(|x| x == a),
                (a, Value::Dict(d)) => d.iter().any(|(k, _)| k == a),
                (Value::Str(a), Value::Str(b)) => b.contains(a.as_str()),
                _ => return Err(EvalError::Raised),
            };
            Ok(found == (op == "in"))
        }
        // Whether two literals are the same object depends on the interpreter, so `is` tests equality of values of the
        // same type.
        "is" => Ok(std::mem::discriminant(a) == std::mem::discriminant(b) && a == b),
        _ => Ok(std::mem::discriminant(a) != std::mem::discriminant(b) || a != b),
    }
}

/// Compares two values as Python orders them. Returns `None` if NaN is involved.
pub(super) fn order(a: &Value, b: &Value, depth: usize) -> Result<Option<std::cmp::Ordering>> {
    match (a, b) {
        (Value::Str(a), Value::Str(b)) => Ok(Some(a.cmp(b))),
        (Value::Bytes(a), Value::Bytes(b)) => Ok(Some(a.cmp(b))),
        (Value::List(x), Value::List(y)) | (Value::Tuple(x), Value::Tuple(y)) if depth < MAX_BRACKETS => {
            match x.iter().zip(y).find(|(p, q)| p != q) {
                Some((p, q)) => order(p, q, depth + 1),
                None => Ok(Some(x.len().cmp(&y.len()))),
            }
        }
        (
            Value::Bool(_) | Value::Int(_) | Value::Float(_),
            Value::Bool(_) | Value::Int(_) | Value::Float(_),
        ) => Ok(compare_numbers(a, b)),
        _ => Err(EvalError::Raised),
    }
}
