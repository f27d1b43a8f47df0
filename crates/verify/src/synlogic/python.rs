//! Python expressions: literals as in `ast.literal_eval`, and arithmetic as in `eval`, with bounded work.
//!
//! An expression is evaluated during parsing. There is no tree, and a sum of ten thousand terms needs no recursion.
//! Brackets nest at most 200 deep (as in CPython); other nesting is limited to [`MAX_DEPTH`]. Integers are exact up to
//! [`MAX_BITS`]; beyond, and beyond [`WORK`] in total, the answer is [`EvalError::Budget`]. Names, calls, slices,
//! attributes, comprehensions and lambdas are not evaluated: puzzle answers don't need them.

use dashu_base::{Abs, BitTest, Sign, Signed};
use dashu_int::IBig;

use super::value::{DictBuilder, Value, float_to_int};
use crate::python_text::MAX_DIGITS;

mod lexer;
mod operations;

use lexer::{Lexer, Token};
pub use operations::floor_division;
use operations::{compare, complex, finite, float, negate, subscript, true_division, weight};

/// Maximum nesting of brackets, as in CPython's tokenizer.
const MAX_BRACKETS: usize = 200;
/// Maximum nesting of unary operators, powers and conditionals, in addition to brackets.
pub const MAX_DEPTH: usize = 400;
/// Maximum length of an integer, in bits.
pub const MAX_BITS: usize = 1 << 16;
/// Maximum work of one evaluation: the total size in bits of all intermediate results. An element of a repeated list
/// counts 64.
pub const WORK: usize = 1 << 20;

/// Reason why an expression can't be evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvalError {
    /// Not an expression, or one outside the supported part of the language.
    Syntax,
    /// Python would raise an exception, for example because of a division by zero, an unknown name, operands of the
    /// wrong type or an overflow.
    Raised,
    /// The work or a value exceeds the budget.
    Budget,
}

type Result<T> = std::result::Result<T, EvalError>;

/// Parses a literal: numbers, strings, `True`, `False`, `None`, lists, tuples, sets and dictionaries of them.
/// Fails if `ast.literal_eval` would raise.
pub fn literal(source: &str) -> Result<Value> {
    run(source, Dialect::Literal)
}

/// Parses a literal of plainly written parts: decimal numbers without leading zeros, underscores, exponents or plus
/// signs, text, and lists, tuples, sets and dictionaries of them, whose keys differ.
/// Fails if the text is anything else.
pub fn plain(source: &str) -> Result<Value> {
    run(source, Dialect::Plain)
}

/// Computes an expression of literals, arithmetic, comparisons and boolean operators.
/// Fails if `eval` would raise, or the work is beyond the budget.
pub fn evaluate(source: &str) -> Result<Value> {
    run(source, Dialect::Expression)
}

/// The part of the language that is accepted.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Dialect {
    Expression,
    Literal,
    Plain,
}

fn run(source: &str, dialect: Dialect) -> Result<Value> {
    let source = source.trim_start_matches([' ', '\t']);
    if source.contains('\0') {
        return Err(EvalError::Syntax);
    }
    let mut p = Parser {
        lexer: Lexer { text: source, at: 0, brackets: 0, plain: dialect == Dialect::Plain },
        token: Token::End,
        literal: dialect >= Dialect::Literal,
        depth: 0,
        work: WORK,
    };
    p.lexer.skip_empty_lines()?;
    p.advance()?;
    let value = p.tuple_or_expression(true)?;
    while p.token == Token::Newline {
        p.advance()?;
    }
    if p.token == Token::End { Ok(value) } else { Err(EvalError::Syntax) }
}

/// Returns the precedence of a binary operator. Comparisons and boolean operators are handled separately.
fn power(op: &str) -> Option<u8> {
    Some(match op {
        "|" => 4,
        "^" => 5,
        "&" => 6,
        "<<" | ">>" => 7,
        "+" | "-" => 8,
        "*" | "/" | "//" | "%" | "@" => 9,
        "**" => 11,
        _ => return None,
    })
}
const UNARY: u8 = 10;

struct Parser<'a> {
    lexer: Lexer<'a>,
    token: Token,
    literal: bool,
    depth: usize,
    work: usize,
}

impl Parser<'_> {
    fn advance(&mut self) -> Result<Token> {
        let next = self.lexer.next()?;
        Ok(std::mem::replace(&mut self.token, next))
    }

    fn eat(&mut self, op: &str) -> Result<bool> {
        self.eat_if(matches!(&self.token, Token::Op(o) if *o == op))
    }

    fn eat_word(&mut self, word: &str) -> Result<bool> {
        self.eat_if(matches!(&self.token, Token::Name(w) if *w == word))
    }

    fn eat_if(&mut self, found: bool) -> Result<bool> {
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn expect(&mut self, op: &str) -> Result<()> {
        if self.eat(op)? { Ok(()) } else { Err(EvalError::Syntax) }
    }

    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(EvalError::Syntax);
        }
        let value = parse(self);
        self.depth -= 1;
        value
    }

    fn starts_expression(&self) -> bool {
        match &self.token {
            Token::Value(_) | Token::OtherName => true,
            Token::Name(w) => matches!(*w, "True" | "False" | "None" | "not" | "lambda"),
            Token::Op(o) => matches!(*o, "(" | "[" | "{" | "+" | "-" | "~" | "..." | "*"),
            Token::Newline | Token::End => false,
        }
    }

    /// Parses `a` or a tuple `a, b`, either at the top level or inside brackets.
    fn tuple_or_expression(&mut self, live: bool) -> Result<Value> {
        let unpacked = matches!(self.token, Token::Op("*"));
        let mut items = Vec::new();
        self.element(live, &mut items)?;
        if !self.eat(",")? {
            // `*` may occur only inside a tuple.
            return if unpacked { Err(EvalError::Syntax) } else { items.pop().ok_or(EvalError::Syntax) };
        }
        while self.starts_expression() {
            self.element(live, &mut items)?;
            if !self.eat(",")? {
                break;
            }
        }
        Ok(Value::Tuple(items))
    }

    /// Parses an element of a list or tuple, or `*value`, whose elements are added, into `items`.
    fn element(&mut self, live: bool, items: &mut Vec<Value>) -> Result<()> {
        if !self.eat("*")? {
            items.push(self.expression(live)?);
            return Ok(());
        }
        self.computed()?;
        let value = self.binary(4, live)?;
        if !live {
            return Ok(());
        }
        self.spend(weight(&value))?;
        match value {
            Value::List(v) | Value::Tuple(v) | Value::Set(v) => items.extend(v),
            Value::Dict(d) => items.extend(d.into_iter().map(|(k, _)| k)),
            Value::Str(s) => items.extend(s.chars().map(|c| Value::Str(c.to_string()))),
            _ => return Err(EvalError::Raised),
        }
        Ok(())
    }

    fn expression(&mut self, live: bool) -> Result<Value> {
        self.deeper(|p| {
            let value = p.or(live)?;
            if !matches!(p.token, Token::Name("if")) {
                return Ok(value);
            }
            p.computed()?;
            p.advance()?;
            // The first branch precedes the condition and is evaluated even if the condition is false, so that an error in it ends
            // the evaluation. Python would not evaluate it.
            let condition = p.or(live)?.truthy();
            if !p.eat_word("else")? {
                return Err(EvalError::Syntax);
            }
            let other = p.expression(live && !condition)?;
            Ok(if condition { value } else { other })
        })
    }

    /// Returns an error if only literals are allowed, so that an operator isn't.
    fn computed(&self) -> Result<()> {
        if self.literal { Err(EvalError::Syntax) } else { Ok(()) }
    }

    fn or(&mut self, live: bool) -> Result<Value> {
        self.joined("or", true, live, |p, live| p.joined("and", false, live, Self::not))
    }

    /// Parses operands with `and` or `or` between them. Returns the first operand whose truth value is `decisive`, or
    /// else the last operand.
    fn joined(
        &mut self,
        word: &str,
        decisive: bool,
        live: bool,
        operand: fn(&mut Self, bool) -> Result<Value>,
    ) -> Result<Value> {
        let mut value = operand(self, live)?;
        while self.eat_word(word)? {
            self.computed()?;
            let keep = value.truthy() == decisive;
            let right = operand(self, live && !keep)?;
            if !keep {
                value = right;
            }
        }
        Ok(value)
    }

    fn not(&mut self, live: bool) -> Result<Value> {
        let mut count = 0_usize;
        while self.eat_word("not")? {
            self.computed()?;
            count += 1;
        }
        let value = self.comparison(live)?;
        Ok(if count == 0 { value } else { Value::Bool(value.truthy() == (count.is_multiple_of(2))) })
    }

    fn comparison(&mut self, live: bool) -> Result<Value> {
        let mut left = self.binary(4, live)?;
        let mut result: Option<bool> = None;
        loop {
            let op = match &self.token {
                Token::Op(o @ ("<" | ">" | "<=" | ">=" | "==" | "!=")) => *o,
                Token::Name("in") => "in",
                Token::Name("is") => "is",
                Token::Name("not") => "not",
                _ => break,
            };
            self.computed()?;
            self.advance()?;
            let op = match op {
                "not" => {
                    if !self.eat_word("in")? {
                        return Err(EvalError::Syntax);
                    }
                    "not in"
                }
                "is" if self.eat_word("not")? => "is not",
                op => op,
            };
            let live = live && result != Some(false);
            let right = self.binary(4, live)?;
            if live {
                result = Some(compare(op, &left, &right)?);
            }
            left = right;
        }
        Ok(result.map_or(left, Value::Bool))
    }

    fn binary(&mut self, least: u8, live: bool) -> Result<Value> {
        self.deeper(|p| {
            let mut left = p.unary(live)?;
            while let Token::Op(op) = p.token {
                let Some(binding) = power(op).filter(|b| *b >= least) else { break };
                p.advance()?;
                // `**` binds to the right, and its right side may carry a sign.
                let right = p.binary(if op == "**" { UNARY } else { binding + 1 }, live)?;
                if p.literal
                    && !matches!(
                        (op, &left, &right),
                        ("+" | "-", Value::Int(_) | Value::Float(_), Value::Complex(..))
                    )
                {
                    return Err(EvalError::Syntax);
                }
                if live {
                    left = p.operate(op, left, right)?;
                }
            }
            Ok(left)
        })
    }

    fn unary(&mut self, live: bool) -> Result<Value> {
        let mut ops = Vec::new();
        while let Token::Op(op @ ("+" | "-" | "~")) = self.token {
            ops.push(op);
            if ops.len() > MAX_DEPTH {
                return Err(EvalError::Syntax);
            }
            self.advance()?;
        }
        if ops.is_empty() {
            return self.atom(live);
        }
        // A sign binds looser than `**`: -2**2 is -(2**2).
        let mut value = self.binary(UNARY + 1, live)?;
        if self.literal
            && (ops.len() > 1
                || ops[0] == "~"
                || (self.lexer.plain && ops[0] == "+")
                || matches!(value, Value::Bool(_)))
        {
            return Err(EvalError::Syntax);
        }
        if live {
            while let Some(op) = ops.pop() {
                value = negate(op, value)?;
            }
        }
        Ok(value)
    }

    fn atom(&mut self, live: bool) -> Result<Value> {
        let value = match self.advance()? {
            Token::Value(Value::Str(mut text)) => {
                while let Token::Value(Value::Str(_)) = self.token {
                    if let Token::Value(Value::Str(more)) = self.advance()? {
                        text += &more;
                    }
                }
                Value::Str(text)
            }
            Token::Value(value) => value,
            Token::Name(_) | Token::Op("...") if self.lexer.plain => return Err(EvalError::Syntax),
            Token::Name("True") => Value::Bool(true),
            Token::Name("False") => Value::Bool(false),
            Token::Name("None") => Value::None,
            Token::Op("...") => Value::Ellipsis,
            Token::Op("(") => {
                if self.eat(")")? {
                    Value::Tuple(Vec::new())
                } else {
                    let value = self.deeper(|p| p.tuple_or_expression(live))?;
                    self.expect(")")?;
                    value
                }
            }
            Token::Op("[") => Value::List(self.items("]", live)?),
            Token::Op("{") => self.dict_or_set(live)?,
            Token::OtherName => return Err(EvalError::Raised),
            _ => return Err(EvalError::Syntax),
        };
        self.subscripts(value, live)
    }

    /// Parses indices or keys after a value, such as `[0][-1]`. A slice is an error.
    fn subscripts(&mut self, mut value: Value, live: bool) -> Result<Value> {
        while matches!(self.token, Token::Op("[")) {
            self.computed()?;
            self.advance()?;
            let index = self.deeper(|p| p.tuple_or_expression(live))?;
            self.expect("]")?;
            if live {
                value = subscript(value, &index)?;
            }
        }
        // A bracket after a value is a call, and a second value is a syntax error.
        match self.token {
            Token::Op("(" | "{") | Token::Value(_) | Token::OtherName => Err(EvalError::Syntax),
            _ => Ok(value),
        }
    }

    fn items(&mut self, close: &'static str, live: bool) -> Result<Vec<Value>> {
        let mut items = Vec::new();
        while !self.eat(close)? {
            self.element(live, &mut items)?;
            if !self.eat(",")? {
                self.expect(close)?;
                break;
            }
        }
        Ok(items)
    }

    /// Parses a dictionary or a set. A set is built as a dictionary without values.
    fn dict_or_set(&mut self, live: bool) -> Result<Value> {
        let mut dict = DictBuilder::default();
        let mut has_values = None;
        while !self.eat("}")? {
            let key = self.expression(live)?;
            let has_value = self.eat(":")?;
            if *has_values.get_or_insert(has_value) != has_value {
                return Err(EvalError::Syntax);
            }
            let value = if has_value { self.expression(live)? } else { Value::None };
            if !dict.insert(key, value) {
                return Err(EvalError::Raised);
            }
            if !self.eat(",")? {
                self.expect("}")?;
                break;
            }
        }
        if self.lexer.plain && dict.repeats {
            return Err(EvalError::Syntax);
        }
        Ok(if has_values == Some(false) { dict.keys() } else { dict.finish() })
    }

    fn spend(&mut self, work: usize) -> Result<()> {
        self.work = self.work.checked_sub(work).ok_or(EvalError::Budget)?;
        Ok(())
    }

    fn operate(&mut self, op: &str, a: Value, b: Value) -> Result<Value> {
        self.spend(16)?;
        match (op, a, b) {
            ("+", Value::Str(a), Value::Str(b)) => {
                self.spend(8 * (a.len() + b.len()))?;
                Ok(Value::Str(a + &b))
            }
            ("+", Value::List(mut a), Value::List(b)) => {
                self.spend(64 * b.len())?;
                a.extend(b);
                Ok(Value::List(a))
            }
            ("+", Value::Tuple(mut a), Value::Tuple(b)) => {
                self.spend(64 * b.len())?;
                a.extend(b);
                Ok(Value::Tuple(a))
            }
            (
                "*",
                items @ (Value::Str(_) | Value::List(_) | Value::Tuple(_)),
                times @ (Value::Int(_) | Value::Bool(_)),
            )
            | (
                "*",
                times @ (Value::Int(_) | Value::Bool(_)),
                items @ (Value::Str(_) | Value::List(_) | Value::Tuple(_)),
            ) => self.repeat(items, &times),
            (op, a @ Value::Complex(..), b) | (op, a, b @ Value::Complex(..)) => complex(op, &a, &b),
            (op, a, b) if matches!(a, Value::Float(_)) || matches!(b, Value::Float(_)) => {
                let (Some(x), Some(y)) = (finite(&a)?, finite(&b)?) else { return Err(EvalError::Raised) };
                float(op, x, y)
            }
            (op, a, b) => {
                let (Some(x), Some(y)) = (a.as_int(), b.as_int()) else { return Err(EvalError::Raised) };
                self.integers(op, x, y)
            }
        }
    }

    fn repeat(&mut self, items: Value, times: &Value) -> Result<Value> {
        let times = match times {
            Value::Int(n) if n.is_negative() => 0,
            times => {
                usize::try_from(times.as_i64().ok_or(EvalError::Budget)?).map_err(|_| EvalError::Budget)?
            }
        };
        let size = |v: &[Value]| v.iter().map(weight).sum::<usize>();
        let weight = match &items {
            Value::Str(s) => 8 * s.len(),
            Value::List(v) | Value::Tuple(v) => size(v),
            _ => 0,
        };
        self.spend(weight.checked_mul(times).ok_or(EvalError::Budget)?)?;
        let cycle = |v: Vec<Value>| {
            let total = v.len() * times;
            v.into_iter().cycle().take(total).collect()
        };
        Ok(match items {
            Value::Str(s) => Value::Str(s.repeat(times)),
            Value::List(v) => Value::List(cycle(v)),
            Value::Tuple(v) => Value::Tuple(cycle(v)),
            other => other,
        })
    }

    fn integers(&mut self, op: &str, a: IBig, b: IBig) -> Result<Value> {
        let bits = |n: &IBig| n.bit_len();
        if matches!(op, "//" | "%" | "/") && b.is_zero() {
            return Err(EvalError::Raised);
        }
        self.spend(match op {
            "*" => bits(&a) + bits(&b),
            _ => bits(&a).max(bits(&b)),
        })?;
        let result = match op {
            "+" => a + b,
            "-" => a - b,
            "*" => a * b,
            "/" => return true_division(&a, &b),
            "//" | "%" => {
                let (quotient, remainder) = floor_division(&a, &b);
                if op == "%" { remainder } else { quotient }
            }
            "**" => return self.power(&a, &b),
            "<<" | ">>" => {
                let shift = usize::try_from(&b)
                    .map_err(|_| if b.is_negative() { EvalError::Raised } else { EvalError::Budget })?;
                if op == ">>" {
                    if shift > MAX_BITS * 2 {
                        IBig::from(if a.is_negative() { -1 } else { 0 })
                    } else {
                        a >> shift
                    }
                } else if a.is_zero() {
                    a
                } else if shift.saturating_add(bits(&a)) > MAX_BITS {
                    return Err(EvalError::Budget);
                } else {
                    a << shift
                }
            }
            "&" => a & b,
            "|" => a | b,
            "^" => a ^ b,
            _ => return Err(EvalError::Raised),
        };
        if bits(&result) > MAX_BITS { Err(EvalError::Budget) } else { Ok(Value::Int(result)) }
    }

    fn power(&mut self, base: &IBig, exponent: &IBig) -> Result<Value> {
        if exponent.is_negative() {
            if base.is_zero() {
                return Err(EvalError::Raised);
            }
            let (Some(x), Some(y)) =
                (finite(&Value::Int(base.clone()))?, finite(&Value::Int(exponent.clone()))?)
            else {
                return Err(EvalError::Raised);
            };
            return float("**", x, y);
        }
        if exponent.is_zero() || base.is_one() {
            return Ok(Value::Int(IBig::from(1)));
        }
        if base.is_zero() {
            return Ok(Value::Int(IBig::from(0)));
        }
        if base.clone().abs().is_one() {
            let even = exponent.trailing_zeros() != Some(0);
            return Ok(Value::Int(if even { IBig::from(1) } else { base.clone() }));
        }
        let exponent = usize::try_from(exponent).map_err(|_| EvalError::Budget)?;
        let bits =
            base.bit_len().checked_mul(exponent).filter(|b| *b <= MAX_BITS).ok_or(EvalError::Budget)?;
        self.spend(bits)?;
        Ok(Value::Int(base.pow(exponent)))
    }
}

/// Like Python's `int(text)`: accepts white space around the number, a sign, digits of any script, and single
/// underscores between digits.
pub fn int(text: &str) -> Option<IBig> {
    let text = crate::python_text::strip(text);
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (Sign::Negative, rest),
        None => (Sign::Positive, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut plain = String::with_capacity(digits.len());
    let mut after_digit = false;
    for c in digits.chars() {
        if c == '_' && after_digit {
            after_digit = false;
            continue;
        }
        plain.push(char::from_digit(crate::python_text::decimal(c)?, 10)?);
        after_digit = true;
        if plain.len() > MAX_DIGITS {
            return None;
        }
    }
    if !after_digit {
        return None;
    }
    let magnitude: IBig = plain.parse().ok()?;
    Some(if sign == Sign::Negative { -magnitude } else { magnitude })
}

/// Returns the value as an integer, if it is an integer or a double that equals one.
pub fn whole(v: &Value) -> Option<IBig> {
    match v {
        Value::Float(x) => float_to_int(*x),
        v => v.as_int(),
    }
}
