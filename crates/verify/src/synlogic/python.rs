//! Python expressions: literals as `ast.literal_eval` reads them, and arithmetic as `eval` computes it, with bounded work.
//!
//! An expression is evaluated while it is parsed, so that no tree exists and a sum of ten thousand terms needs no
//! recursion. Brackets nest at most 200 deep (as in CPython), other nesting is cut at [`MAX_DEPTH`]. Integers are exact up to
//! [`MAX_BITS`]; beyond, and beyond [`WORK`] in total, the answer is [`EvalError::Budget`]. Names, calls, slices,
//! attributes, comprehensions and lambdas are not evaluated: puzzle answers don't need them.

use dashu::base::{Abs, BitTest, DivEuclid, Sign, Signed};
use dashu::integer::IBig;

use super::json::MAX_DIGITS;
use super::value::{DictBuilder, Value, compare_numbers, float_to_int, int_to_f64};

/// How deep brackets may nest, as in CPython's tokenizer.
const MAX_BRACKETS: usize = 200;
/// How deep unary operators, powers and conditionals may nest beside brackets.
pub const MAX_DEPTH: usize = 400;
/// The longest integer, in bits.
pub const MAX_BITS: usize = 1 << 16;
/// The work of one evaluation, in bits of all results together (an element of a repeated list counts 64).
pub const WORK: usize = 1 << 20;

/// Why an expression has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvalError {
    /// Not an expression, or one outside the supported part of the language.
    Syntax,
    /// Python would raise: a division by zero, an unknown name, operands of the wrong type, an overflow.
    Raised,
    /// The value is too large to compute here.
    Budget,
}

type Result<T> = std::result::Result<T, EvalError>;

/// Reads a literal: numbers, strings, `True`, `False`, `None`, lists, tuples, sets and dictionaries of them.
///
/// # Errors
/// Where `ast.literal_eval` would raise.
pub fn literal(source: &str) -> Result<Value> {
    run(source, true)
}

/// Computes an expression of literals, arithmetic, comparisons and boolean operators.
///
/// # Errors
/// Where `eval` would raise, or the work is beyond the budget.
pub fn evaluate(source: &str) -> Result<Value> {
    run(source, false)
}

fn run(source: &str, literal: bool) -> Result<Value> {
    let source = source.trim_start_matches([' ', '\t']);
    if source.contains('\0') {
        return Err(EvalError::Syntax);
    }
    let mut p = Parser {
        lexer: Lexer { text: source, at: 0, brackets: 0 },
        token: Token::End,
        literal,
        depth: 0,
        work: WORK,
    };
    // Blank lines may stand before the expression; an indented first line may not, and neither occurs in answers.
    while p.lexer.text[p.lexer.at..].starts_with(['\n', '\r']) {
        p.lexer.at += 1;
    }
    p.advance()?;
    let value = p.tuple_or_expression(true)?;
    while p.token == Token::Newline {
        p.advance()?;
    }
    if p.token == Token::End { Ok(value) } else { Err(EvalError::Syntax) }
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Value(Value),
    Name(&'static str),
    OtherName,
    Op(&'static str),
    Newline,
    End,
}

/// The words that mean something here; every other name is unknown.
const WORDS: [&str; 11] = ["True", "False", "None", "and", "or", "not", "if", "else", "in", "is", "lambda"];
/// Operators, longer ones first.
const OPERATORS: [&str; 40] = [
    "...", "**=", "//=", "<<=", ">>=", "**", "//", "<<", ">>", "<=", ">=", "==", "!=", "->", ":=", "+=",
    "-=", "*=", "/=", "%=", "+", "-", "*", "/", "%", "@", "&", "|", "^", "~", "<", ">", "(", ")", "[", "]",
    "{", "}", ",", ":",
];

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    brackets: usize,
}

impl Lexer<'_> {
    fn next(&mut self) -> Result<Token> {
        loop {
            let rest = &self.text[self.at..];
            let Some(c) = rest.chars().next() else { return Ok(Token::End) };
            match c {
                ' ' | '\t' | '\u{c}' => self.at += 1,
                '\n' | '\r' => {
                    self.at += 1;
                    if self.brackets == 0 {
                        return Ok(Token::Newline);
                    }
                }
                '#' => self.at += rest.find('\n').unwrap_or(rest.len()),
                '\\' => {
                    let step = if rest.starts_with("\\\n") {
                        2
                    } else if rest.starts_with("\\\r\n") {
                        3
                    } else {
                        return Err(EvalError::Syntax);
                    };
                    self.at += step;
                }
                '\'' | '"' => return self.string("").map(Token::Value),
                '0'..='9' => return self.number().map(Token::Value),
                '.' if rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit) => {
                    return self.number().map(Token::Value);
                }
                c if c == '_' || c.is_alphabetic() => return self.name(),
                _ => {
                    let op = OPERATORS.iter().find(|op| rest.starts_with(**op)).ok_or(EvalError::Syntax)?;
                    self.at += op.len();
                    match *op {
                        "(" | "[" | "{" => {
                            self.brackets += 1;
                            if self.brackets > MAX_BRACKETS {
                                return Err(EvalError::Syntax);
                            }
                        }
                        ")" | "]" | "}" => self.brackets = self.brackets.saturating_sub(1),
                        _ => {}
                    }
                    return Ok(Token::Op(op));
                }
            }
        }
    }

    fn name(&mut self) -> Result<Token> {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !(c == '_' || c.is_alphanumeric())).unwrap_or(rest.len());
        let word = &rest[..end];
        if word.len() <= 2 && rest[end..].starts_with(['\'', '"']) {
            let prefix = word.to_ascii_lowercase();
            if ["r", "b", "u", "f", "rb", "br", "rf", "fr"].contains(&prefix.as_str()) {
                self.at += end;
                return self.string(&prefix).map(Token::Value);
            }
        }
        self.at += end;
        Ok(WORDS.iter().find(|w| **w == word).map_or(Token::OtherName, |w| Token::Name(w)))
    }

    /// Reads digits with single underscores between them, returns them bare.
    fn digits(&mut self, base: u32) -> String {
        let mut out = String::new();
        let bytes = self.text.as_bytes();
        let digit = |at: usize| bytes.get(at).is_some_and(|c| char::from(*c).is_digit(base));
        while digit(self.at) || (!out.is_empty() && bytes.get(self.at) == Some(&b'_') && digit(self.at + 1)) {
            if bytes[self.at] != b'_' {
                out.push(char::from(bytes[self.at]));
            }
            self.at += 1;
        }
        out
    }

    fn number(&mut self) -> Result<Value> {
        let bytes = self.text.as_bytes();
        if bytes[self.at] == b'0' {
            let base = match bytes.get(self.at + 1) {
                Some(b'x' | b'X') => 16,
                Some(b'o' | b'O') => 8,
                Some(b'b' | b'B') => 2,
                _ => 0,
            };
            if base != 0 {
                self.at += 2;
                if bytes.get(self.at) == Some(&b'_') {
                    self.at += 1;
                }
                let digits = self.digits(base);
                if digits.len() * 4 > MAX_BITS {
                    return Err(EvalError::Budget);
                }
                return IBig::from_str_radix(&digits, base).map(Value::Int).map_err(|_| EvalError::Syntax);
            }
        }
        let mut text = self.digits(10);
        let mut real = false;
        if bytes.get(self.at) == Some(&b'.') {
            real = true;
            self.at += 1;
            text.push('.');
            text += &self.digits(10);
        }
        if matches!(bytes.get(self.at), Some(b'e' | b'E')) {
            let back = self.at;
            self.at += 1;
            let mut exponent = String::from("e");
            if let Some(sign @ (b'+' | b'-')) = bytes.get(self.at) {
                exponent.push(char::from(*sign));
                self.at += 1;
            }
            let digits = self.digits(10);
            if digits.is_empty() {
                self.at = back;
            } else {
                real = true;
                text += &exponent;
                text += &digits;
            }
        }
        let imaginary = matches!(bytes.get(self.at), Some(b'j' | b'J'));
        if imaginary {
            self.at += 1;
        }
        if real || imaginary {
            let x: f64 = text.parse().map_err(|_| EvalError::Syntax)?;
            return Ok(if imaginary { Value::Complex(0.0, x) } else { Value::Float(x) });
        }
        let significant = text.trim_start_matches('0');
        // Leading zeros are an error except in zero itself.
        if (significant.len() < text.len() && !significant.is_empty()) || text.len() > MAX_DIGITS {
            return Err(EvalError::Syntax);
        }
        text.parse::<IBig>().map(Value::Int).map_err(|_| EvalError::Syntax)
    }

    fn string(&mut self, prefix: &str) -> Result<Value> {
        let raw = prefix.contains('r');
        let bytes = prefix.contains('b');
        let rest = &self.text[self.at..];
        let quote = &rest[..1];
        let triple = quote.repeat(3);
        let close = if rest.starts_with(&triple) { triple.as_str() } else { quote };
        self.at += close.len();
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            if rest.starts_with(close) {
                self.at += close.len();
                break;
            }
            let c = rest.chars().next().ok_or(EvalError::Syntax)?;
            self.at += c.len_utf8();
            match c {
                '\n' | '\r' if close.len() == 1 => return Err(EvalError::Syntax),
                '\\' => {
                    let escaped = rest[1..].chars().next().ok_or(EvalError::Syntax)?;
                    self.at += escaped.len_utf8();
                    if raw {
                        out.push('\\');
                        out.push(escaped);
                    } else {
                        self.escape(escaped, bytes, &mut out)?;
                    }
                }
                '{' | '}' if prefix.contains('f') => return Err(EvalError::Syntax),
                c => out.push(c),
            }
        }
        if !bytes {
            return Ok(Value::Str(out));
        }
        let bytes: Option<Vec<u8>> = out.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
        bytes.map(Value::Bytes).ok_or(EvalError::Syntax)
    }

    fn escape(&mut self, c: char, bytes: bool, out: &mut String) -> Result<()> {
        let simple = match c {
            '\n' => return Ok(()),
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'v' => '\u{b}',
            '\\' | '\'' | '"' => c,
            '0'..='7' => {
                let mut code = c.to_digit(8).unwrap_or(0);
                for _ in 0..2 {
                    let next = self.text.as_bytes().get(self.at).and_then(|d| char::from(*d).to_digit(8));
                    let Some(d) = next else { break };
                    code = code * 8 + d;
                    self.at += 1;
                }
                char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            'x' => self.hex(2)?,
            'u' if !bytes => self.hex(4)?,
            'U' if !bytes => self.hex(8)?,
            'N' if !bytes => return Err(EvalError::Syntax),
            other => {
                out.push('\\');
                other
            }
        };
        out.push(simple);
        Ok(())
    }

    fn hex(&mut self, length: usize) -> Result<char> {
        let digits = self.text.as_bytes().get(self.at..self.at + length).ok_or(EvalError::Syntax)?;
        let code = digits
            .iter()
            .try_fold(0_u32, |n, d| n.checked_mul(16)?.checked_add(char::from(*d).to_digit(16)?))
            .ok_or(EvalError::Syntax)?;
        self.at += length;
        if code > 0x10_FFFF {
            return Err(EvalError::Syntax);
        }
        Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER))
    }
}

/// Binding power of a binary operator: higher binds tighter. Comparisons and boolean operators stand apart.
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
        let found = matches!(&self.token, Token::Op(o) if *o == op);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn eat_word(&mut self, word: &str) -> Result<bool> {
        let found = matches!(&self.token, Token::Name(w) if *w == word);
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

    /// `a` or `a, b,`: without brackets at the top, inside brackets elsewhere.
    fn tuple_or_expression(&mut self, live: bool) -> Result<Value> {
        let unpacked = matches!(self.token, Token::Op("*"));
        let mut items = Vec::new();
        self.element(live, &mut items)?;
        if !self.eat(",")? {
            // Only inside a tuple may something be unpacked.
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

    /// An element of a list or tuple, or `*` and a value whose elements are meant.
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
            // The condition comes after its first branch, which is only kept, its errors included, if it holds;
            // an error in it ends the evaluation here either way, as it does for every answer seen.
            let condition = p.or(live)?.truthy();
            if !p.eat_word("else")? {
                return Err(EvalError::Syntax);
            }
            let other = p.expression(live && !condition)?;
            Ok(if condition { value } else { other })
        })
    }

    /// Refuses an operator where only literals may stand.
    fn computed(&self) -> Result<()> {
        if self.literal { Err(EvalError::Syntax) } else { Ok(()) }
    }

    fn or(&mut self, live: bool) -> Result<Value> {
        let mut value = self.and(live)?;
        while self.eat_word("or")? {
            self.computed()?;
            let keep = value.truthy();
            let right = self.and(live && !keep)?;
            if !keep {
                value = right;
            }
        }
        Ok(value)
    }

    fn and(&mut self, live: bool) -> Result<Value> {
        let mut value = self.not(live)?;
        while self.eat_word("and")? {
            self.computed()?;
            let keep = !value.truthy();
            let right = self.not(live && !keep)?;
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
        if self.literal && (ops.len() > 1 || ops[0] == "~" || matches!(value, Value::Bool(_))) {
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

    /// `value[0][-1]`: an index or a key, no slices.
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
        // A value followed by another bracket is a call, followed by a value a mistake.
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

    fn dict_or_set(&mut self, live: bool) -> Result<Value> {
        let mut dict = DictBuilder::default();
        if self.eat("}")? {
            return Ok(dict.finish());
        }
        let first = self.expression(live)?;
        if !self.eat(":")? {
            let mut seen = std::collections::HashSet::new();
            let mut items = Vec::new();
            let mut next = Some(first);
            while let Some(item) = next.take() {
                let key = item.key().ok_or(EvalError::Raised)?;
                if seen.insert(key) {
                    items.push(item);
                }
                if self.eat(",")? && !matches!(self.token, Token::Op("}")) {
                    next = Some(self.expression(live)?);
                }
            }
            self.expect("}")?;
            return Ok(Value::Set(items));
        }
        let mut key = first;
        loop {
            let value = self.expression(live)?;
            if !dict.insert(key, value) {
                return Err(EvalError::Raised);
            }
            if !self.eat(",")? || matches!(self.token, Token::Op("}")) {
                break;
            }
            key = self.expression(live)?;
            self.expect(":")?;
        }
        self.expect("}")?;
        Ok(dict.finish())
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
                let (Some(x), Some(y)) = (integer(&a), integer(&b)) else { return Err(EvalError::Raised) };
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

fn subscript(value: Value, index: &Value) -> Result<Value> {
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

/// What repeating a value costs, about its size in bits.
fn weight(value: &Value) -> usize {
    64 + match value {
        Value::Str(s) => 8 * s.len(),
        Value::Bytes(b) => 8 * b.len(),
        Value::Int(n) => n.bit_len(),
        Value::List(v) | Value::Tuple(v) | Value::Set(v) => v.iter().map(weight).sum(),
        Value::Dict(d) => d.iter().map(|(k, v)| weight(k) + weight(v)).sum(),
        _ => 0,
    }
}

fn integer(v: &Value) -> Option<IBig> {
    match v {
        Value::Bool(b) => Some(IBig::from(*b)),
        Value::Int(n) => Some(n.clone()),
        _ => None,
    }
}

/// A real number as a double; an integer beyond the doubles raises, another type is `None`.
fn finite(v: &Value) -> Result<Option<f64>> {
    match v {
        Value::Int(n) => {
            let x = int_to_f64(n);
            if x.is_finite() { Ok(Some(x)) } else { Err(EvalError::Raised) }
        }
        v => Ok(v.as_f64()),
    }
}

/// Python's `divmod` for integers: the remainder has the divisor's sign.
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

/// Python's `/` for integers: the nearest double of the exact quotient.
fn true_division(a: &IBig, b: &IBig) -> Result<Value> {
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

/// `x * 2^exponent`, in steps that neither overflow nor lose early.
fn scale(mut x: f64, mut exponent: i64) -> f64 {
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

/// Python's `%` and `//` for doubles.
fn float_divmod(x: f64, y: f64) -> (f64, f64) {
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

fn float(op: &str, x: f64, y: f64) -> Result<Value> {
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

fn complex(op: &str, a: &Value, b: &Value) -> Result<Value> {
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

fn negate(op: &str, v: Value) -> Result<Value> {
    Ok(match (op, v) {
        ("~", v) => Value::Int(-integer(&v).ok_or(EvalError::Raised)? - IBig::from(1)),
        ("-", Value::Float(x)) => Value::Float(-x),
        ("-", Value::Complex(re, im)) => Value::Complex(-re, -im),
        ("-", v) => Value::Int(-integer(&v).ok_or(EvalError::Raised)?),
        (_, v @ (Value::Int(_) | Value::Float(_) | Value::Complex(..))) => v,
        (_, v) => Value::Int(integer(&v).ok_or(EvalError::Raised)?),
    })
}

fn compare(op: &str, a: &Value, b: &Value) -> Result<bool> {
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
        // Identity of literals is an accident of the interpreter; equality of equal types is what it shows.
        "is" => Ok(std::mem::discriminant(a) == std::mem::discriminant(b) && a == b),
        _ => Ok(std::mem::discriminant(a) != std::mem::discriminant(b) || a != b),
    }
}

/// Python's ordering; `None` where NaN is involved.
fn order(a: &Value, b: &Value, depth: usize) -> Result<Option<std::cmp::Ordering>> {
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

/// Python's `int(text)`: blanks around, a sign, digits of any script, single underscores between them.
pub fn int(text: &str) -> Option<IBig> {
    let text = super::text::strip(text);
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
        plain.push(char::from_digit(super::text::decimal(c)?, 10)?);
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

/// The integer a value is, or a whole double stands for.
pub fn whole(v: &Value) -> Option<IBig> {
    match v {
        Value::Float(x) => float_to_int(*x),
        v => integer(v),
    }
}

#[cfg(test)]
mod tests;
