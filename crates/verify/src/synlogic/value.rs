//! A value of the Python data model, as far as puzzle answers need it, with Python's equality.
//!
//! Answers are Python literals or JSON and are compared as in Python: `1 == 1.0 == True`, a list never equals a
//! tuple, dictionaries and sets ignore order. Depth is bounded by the parsers ([`super::python`], [`super::json`]), so
//! recursion here is bounded too.

use std::collections::{HashMap, HashSet};

use dashu_base::Sign;
use dashu_int::IBig;

/// A Python value.
#[derive(Debug, Clone)]
pub enum Value {
    /// `None`, or JSON's `null`.
    None,
    /// `...`
    Ellipsis,
    /// `True`, `False`. An integer to Python: `True == 1`.
    Bool(bool),
    /// An integer of any size the parser's budget allows.
    Int(IBig),
    /// A double.
    Float(f64),
    /// A complex number: real and imaginary part.
    Complex(f64, f64),
    /// Text.
    Str(String),
    /// A bytes literal.
    Bytes(Vec<u8>),
    /// `[...]`
    List(Vec<Value>),
    /// `(...)`
    Tuple(Vec<Value>),
    /// `{k: v}`, keys distinct, in the order of first insertion.
    Dict(Vec<(Value, Value)>),
    /// `{...}`, elements distinct.
    Set(Vec<Value>),
}

impl Value {
    /// Returns the integer if Python's `isinstance(x, int)` holds (booleans are integers too) and it fits into 64 bits.
    pub fn as_i64(&self) -> Option<i64> {
        i64::try_from(self.as_int()?).ok()
    }

    /// Returns the integer if Python's `isinstance(x, int)` holds (booleans are integers too).
    pub(super) fn as_int(&self) -> Option<IBig> {
        match self {
            Self::Bool(b) => Some(IBig::from(*b)),
            Self::Int(n) => Some(n.clone()),
            _ => None,
        }
    }

    /// Returns the number in a cell in strict mode: an integer that isn't a boolean, or a string of its digits.
    pub(crate) fn number(&self) -> Option<i64> {
        match self {
            Self::Int(n) => i64::try_from(n).ok(),
            Self::Str(text) => i64::try_from(crate::python_text::plain_int(text)?).ok(),
            _ => None,
        }
    }

    /// Returns the text of a string.
    pub fn as_str(&self) -> Option<&str> {
        if let Self::Str(s) = self { Some(s) } else { None }
    }

    /// Returns the elements of a list.
    pub fn as_list(&self) -> Option<&[Value]> {
        if let Self::List(v) = self { Some(v) } else { None }
    }

    /// Returns the elements of a list or a tuple.
    pub fn as_sequence(&self) -> Option<&[Value]> {
        if let Self::List(v) | Self::Tuple(v) = self { Some(v) } else { None }
    }

    /// Returns the value of a string key, if this is a dictionary that contains the key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        match self {
            Self::Dict(entries) => entries.iter().find(|(k, _)| k.as_str() == Some(key)).map(|(_, v)| v),
            _ => None,
        }
    }

    /// Returns the value as a double, if it is an integer, a boolean or a double.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Bool(b) => Some(f64::from(u8::from(*b))),
            Self::Int(n) => Some(int_to_f64(n)),
            Self::Float(x) => Some(*x),
            _ => None,
        }
    }

    /// Returns Python's truth value.
    pub fn truthy(&self) -> bool {
        match self {
            Self::None => false,
            Self::Ellipsis => true,
            Self::Bool(b) => *b,
            Self::Int(n) => !n.is_zero(),
            Self::Float(x) => *x != 0.0,
            Self::Complex(re, im) => *re != 0.0 || *im != 0.0,
            Self::Str(s) => !s.is_empty(),
            Self::Bytes(b) => !b.is_empty(),
            Self::List(v) | Self::Tuple(v) | Self::Set(v) => !v.is_empty(),
            Self::Dict(d) => !d.is_empty(),
        }
    }

    /// Returns bytes that are equal if and only if the values are equal in Python. `None` if the value can't be a
    /// dictionary key.
    pub fn key(&self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        self.write_key(&mut out).then_some(out)
    }

    fn write_key(&self, out: &mut Vec<u8>) -> bool {
        fn long(kind: u8, bytes: &[u8], out: &mut Vec<u8>) {
            out.push(kind);
            out.extend((bytes.len() as u64).to_le_bytes());
            out.extend(bytes);
        }
        let int = |n: &IBig, out: &mut Vec<u8>| {
            let (sign, magnitude) = n.clone().into_parts();
            long(if sign == Sign::Negative { b'-' } else { b'+' }, &magnitude.to_le_bytes(), out);
        };
        match self {
            Self::None => out.push(b'n'),
            Self::Ellipsis => out.push(b'e'),
            Self::Bool(b) => int(&IBig::from(*b), out),
            Self::Int(n) => int(n, out),
            Self::Float(x) => match float_to_int(*x) {
                Some(n) => int(&n, out),
                None => {
                    out.push(b'f');
                    out.extend(x.to_bits().to_le_bytes());
                }
            },
            Self::Complex(re, im) => {
                if *im == 0.0 {
                    return Self::Float(*re).write_key(out);
                }
                out.push(b'c');
                out.extend(re.to_bits().to_le_bytes());
                out.extend(im.to_bits().to_le_bytes());
            }
            Self::Str(s) => long(b's', s.as_bytes(), out),
            Self::Bytes(b) => long(b'b', b, out),
            Self::Tuple(v) => {
                out.push(b't');
                out.extend((v.len() as u64).to_le_bytes());
                return v.iter().all(|x| x.write_key(out));
            }
            Self::List(_) | Self::Dict(_) | Self::Set(_) => return false,
        }
        true
    }
}

/// Returns a dictionary's values, by [`Value::key`] of their keys.
pub(super) fn entries(dict: &[(Value, Value)]) -> HashMap<Option<Vec<u8>>, &Value> {
    dict.iter().map(|(key, value)| (key.key(), value)).collect()
}

impl PartialEq for Value {
    /// Compares two values like Python's `==`.
    fn eq(&self, other: &Self) -> bool {
        use Value::{Bool, Bytes, Complex, Dict, Ellipsis, Float, Int, List, None, Set, Str, Tuple};
        match (self, other) {
            (None, None) | (Ellipsis, Ellipsis) => true,
            (Str(a), Str(b)) => a == b,
            (Bytes(a), Bytes(b)) => a == b,
            (List(a), List(b)) | (Tuple(a), Tuple(b)) => a == b,
            (Set(a), Set(b)) => {
                let keys = |set: &[Value]| set.iter().map(Value::key).collect::<HashSet<_>>();
                keys(a) == keys(b)
            }
            (Dict(a), Dict(b)) => entries(a) == entries(b),
            (Complex(re, im), x) | (x, Complex(re, im)) => match x {
                Complex(a, b) => a == re && b == im,
                x => *im == 0.0 && *x == Float(*re),
            },
            (Bool(_) | Int(_) | Float(_), Bool(_) | Int(_) | Float(_)) => {
                compare_numbers(self, other) == Some(std::cmp::Ordering::Equal)
            }
            _ => false,
        }
    }
}

/// Compares two real numbers exactly. `None` if one is not a real number, or is NaN.
pub fn compare_numbers(a: &Value, b: &Value) -> Option<std::cmp::Ordering> {
    fn against_float(n: &IBig, x: f64) -> Option<std::cmp::Ordering> {
        use std::cmp::Ordering::{Equal, Greater, Less};
        if x.is_nan() {
            return None;
        }
        if x.is_infinite() {
            return Some(if x > 0.0 { Less } else { Greater });
        }
        let whole = float_to_int(x.trunc())?;
        Some(match n.cmp(&whole) {
            Equal if x.fract() > 0.0 => Less,
            Equal if x.fract() < 0.0 => Greater,
            other => other,
        })
    }
    match (a, b) {
        (Value::Float(x), Value::Float(y)) => x.partial_cmp(y),
        (Value::Float(x), b) => against_float(&b.as_int()?, *x).map(std::cmp::Ordering::reverse),
        (a, Value::Float(y)) => against_float(&a.as_int()?, *y),
        (a, b) => Some(a.as_int()?.cmp(&b.as_int()?)),
    }
}

/// Returns the integer that equals a double, or `None` if the double isn't an integer.
pub fn float_to_int(x: f64) -> Option<IBig> {
    (x.is_finite() && x.fract() == 0.0).then(|| IBig::try_from(x).ok()).flatten()
}

/// Returns the double nearest to an integer. It is infinite if the integer is beyond the range of doubles.
pub fn int_to_f64(n: &IBig) -> f64 {
    n.to_f64().value()
}

/// A dictionary's entries under construction: a repeated key keeps its position and takes the later value, as in
/// Python.
#[derive(Default)]
pub(crate) struct DictBuilder {
    entries: Vec<(Value, Value)>,
    index: HashMap<Vec<u8>, usize>,
    /// Whether a key was added more than once.
    pub(crate) repeats: bool,
}

impl DictBuilder {
    /// Adds an entry. Returns `false` if the value `key` can't be a dictionary key.
    pub(crate) fn insert(&mut self, key: Value, value: Value) -> bool {
        let Some(bytes) = key.key() else { return false };
        if let Some(&at) = self.index.get(&bytes) {
            self.entries[at].1 = value;
            self.repeats = true;
        } else {
            self.index.insert(bytes, self.entries.len());
            self.entries.push((key, value));
        }
        true
    }

    pub(crate) fn finish(self) -> Value {
        Value::Dict(self.entries)
    }

    /// Returns the set of the keys.
    pub(crate) fn keys(self) -> Value {
        Value::Set(self.entries.into_iter().map(|(key, _)| key).collect())
    }
}

/// Reads a list of lists of cells.
pub(super) fn rows<T>(value: &Value, cell: impl Fn(&Value) -> Option<T>) -> Option<Vec<Vec<T>>> {
    value.as_list()?.iter().map(|row| row.as_list()?.iter().map(&cell).collect()).collect()
}

/// Reads a list or tuple of lists or tuples of cells.
pub(super) fn sequences<T>(value: &Value, cell: impl Fn(&Value) -> Option<T>) -> Option<Vec<Vec<T>>> {
    value.as_sequence()?.iter().map(|row| row.as_sequence()?.iter().map(&cell).collect()).collect()
}
