//! The parser of LaTeX answers: precedence climbing over the tokens of a normalised answer.
//!
//! Departures from ordinary notation follow math-verify: an integer followed by a fraction or an integer is a sum
//! (`3 1/2`, also `3(4)`), a function without parentheses takes the whole product after it, two ends in increasing
//! order are an interval and otherwise a tuple.

use dashu_base::Sign;
use dashu_int::IBig;
use dashu_ratio::RBig;

use super::Mode;
use super::budget::{MAX_DEPTH, MAX_POSTFIXES, ParseError};
use super::expr::{Constant, Expr, Fold, Function};
use super::finished::Open;
use super::lexer::{Spanned, Token, letter_name, scaled, spelled, tokenize};
use crate::python_text::regex;

mod functions;
mod groups;
mod names;
mod statements;

use functions::{raised, root};

type Parsed<T> = Result<T, ParseError>;

/// Parses a normalised LaTeX answer as math-verify does. Also returns the operations that the parser has carried out.
pub(super) fn parse(text: &str) -> Parsed<(Expr, Open)> {
    match separated_number(text) {
        Some(number) => Ok((number, Open::default())),
        None => parse_tokens(text, tokenize(text)?, Mode::Parity),
    }
}

/// Parses the tokens of an answer in strict mode. Also returns the operations that the parser has carried out.
pub(super) fn parse_strictly(tokens: &[Token]) -> Parsed<(Expr, Open)> {
    let read = |tokens: &[Token]| {
        let spanned = tokens.iter().map(|token| Spanned { token: token.clone(), start: 0, end: 0 });
        parse_tokens("", spanned.collect(), Mode::Strict)
    };
    let both = tokens.iter().any(|token| matches!(token, Token::PlusMinus | Token::MinusPlus));
    match read(tokens) {
        Err(ParseError::Syntax) if both => {}
        result => return result,
    }
    // A plus-minus inside a value gives two values: one with the upper signs, and one with the lower signs.
    let mut values: Vec<Expr> = Vec::new();
    let mut open = Open::default();
    for [upper, lower] in [[Token::Plus, Token::Minus], [Token::Minus, Token::Plus]] {
        let signed: Vec<Token> = tokens
            .iter()
            .map(|token| match token {
                Token::PlusMinus => upper.clone(),
                Token::MinusPlus => lower.clone(),
                other => other.clone(),
            })
            .collect();
        let (value, done) = read(&signed)?;
        open = open.with(done);
        let list = if let Expr::Set(list) = value { list } else { vec![value] };
        // A value without a plus-minus is the same with both signs.
        values.extend(list.into_iter().filter(|value| !values.contains(value)).collect::<Vec<_>>());
    }
    Ok((if values.len() == 1 { values.swap_remove(0) } else { Expr::Set(values) }, open))
}

fn parse_tokens(text: &str, tokens: Vec<Spanned>, mode: Mode) -> Parsed<(Expr, Open)> {
    if tokens.is_empty() {
        return Err(ParseError::Syntax);
    }
    let mut bars = vec![0usize; tokens.len() + 1];
    for at in (0..tokens.len()).rev() {
        bars[at] = bars[at + 1] + usize::from(tokens[at].token == Token::Bar);
    }
    let mut parser = Parser {
        text,
        parity: mode == Mode::Parity,
        mode,
        angle: false,
        tokens,
        bars,
        at: 0,
        depth: 0,
        open_bars: 0,
        integrals: 0,
        modulos: 0,
        lists_tried: 0,
        plus_minus: false,
        membership: false,
        differential: None,
        done: Open::default(),
    };
    let expr = parser.list()?;
    if parser.at < parser.tokens.len() {
        return Err(ParseError::Syntax);
    }
    Ok((expr, parser.done))
}

/// Parses a whole answer that is one number with thousands separators.
fn separated_number(text: &str) -> Option<Expr> {
    let found = regex!(r"^(-?)([0-9]{1,3}(?:,[0-9]{3})+)(?:\.([0-9]*))?$").captures(text)?;
    let (whole, fraction) = (&found[2], found.get(3).map(|fraction| fraction.as_str()));
    if whole.len() > 64 || fraction.is_some_and(|fraction| fraction.len() > 64) {
        return None;
    }
    let decimals = match fraction {
        // `0,500` has a decimal comma, because thousands never begin with a zero.
        None if whole.starts_with('0') && whole.matches(',').count() == 1 => Some(3),
        _ if whole.starts_with('0') => return None,
        fraction => fraction.map(|fraction| fraction.len() as i64),
    };
    let digits = format!("{}{}{}", &found[1], whole.replace(',', ""), fraction.unwrap_or_default());
    let value = scaled(IBig::from_str_radix(&digits, 10).ok()?, -decimals.unwrap_or(0));
    Some(match decimals {
        Some(_) => Expr::Decimal(value, 0),
        None => Expr::Number(value),
    })
}

struct Parser<'a> {
    /// The text of the tokens, which only parity mode reads.
    text: &'a str,
    /// Whether to parse as math-verify does.
    parity: bool,
    mode: Mode,
    /// Whether a degree sign means an angle: in strict mode, only in the argument of a trigonometric function.
    angle: bool,
    tokens: Vec<Spanned>,
    /// For each token, the number of `|` tokens from that token on.
    bars: Vec<usize>,
    at: usize,
    depth: usize,
    open_bars: usize,
    integrals: usize,
    /// Number of `mod` operators so far. Each adds a level to the tree.
    modulos: usize,
    /// Number of argument lists tried after names so far. They are limited, because each may be parsed twice.
    lists_tried: usize,
    /// Whether the last value came from a plus-minus sign.
    plus_minus: bool,
    /// Whether a statement says that a value is an element of a set.
    membership: bool,
    /// The variable of integration found inside the integrand.
    differential: Option<Box<str>>,
    /// Operations that the answer leaves to the reader but the parser carries out.
    done: Open,
}

/// A value, and whether it is a single group in braces, which is a set if nothing else follows.
struct Operand {
    expr: Expr,
    braced: bool,
}

impl From<Expr> for Operand {
    fn from(expr: Expr) -> Self {
        Self { expr, braced: false }
    }
}

/// Values of a group and how they were separated.
struct Items {
    values: Vec<Expr>,
    semicolons: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|spanned| &spanned.token)
    }

    fn peek_at(&self, ahead: usize) -> Option<&Token> {
        self.tokens.get(self.at + ahead).map(|spanned| &spanned.token)
    }

    fn next(&mut self) -> Parsed<Token> {
        let token = self.tokens.get(self.at).ok_or(ParseError::Syntax)?.token.clone();
        self.at += 1;
        Ok(token)
    }

    fn accept(&mut self, token: &Token) -> bool {
        let found = self.peek() == Some(token);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, token: &Token) -> Parsed<()> {
        if self.accept(token) { Ok(()) } else { Err(ParseError::Syntax) }
    }

    fn nested<T>(&mut self, inside: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= MAX_DEPTH {
            return Err(ParseError::Budget);
        }
        self.depth += 1;
        let result = inside(self);
        self.depth -= 1;
        result
    }

    /// Calls `inside` one level deeper, where an absolute value that was opened outside doesn't count as open.
    fn enclosed<T>(&mut self, inside: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        let bars = std::mem::take(&mut self.open_bars);
        let result = self.nested(inside);
        self.open_bars = bars;
        result
    }

    fn additive(&mut self) -> Parsed<Operand> {
        self.nested(|parser| {
            let sum = parser.sum()?;
            // Plain TeX's `\over` takes everything on either side.
            if !parser.accept(&Token::Over) {
                return Ok(sum);
            }
            let denominator = arithmetic(parser.sum()?)?;
            let numerator = arithmetic(sum)?;
            Ok(parser.divided(numerator, denominator).into())
        })
    }

    fn sum(&mut self) -> Parsed<Operand> {
        let parser = self;
        let first = parser.product(false)?;
        if !matches!(parser.peek(), Some(Token::Plus | Token::Minus)) {
            return Ok(first);
        }
        let mut terms = vec![arithmetic(first)?];
        loop {
            let negative = match parser.peek() {
                Some(Token::Plus) => false,
                Some(Token::Minus) => true,
                _ => break,
            };
            parser.at += 1;
            let term = arithmetic(parser.product(false)?)?;
            terms.push(if negative { term.negated() } else { term });
        }
        Ok(with_unit(terms, Expr::Add).into())
    }

    /// Parses explicit products, quotients and remainders. `argument` is whether they are a function's argument without parentheses.
    fn product(&mut self, argument: bool) -> Parsed<Operand> {
        let first = self.unary(argument)?;
        if !matches!(self.peek(), Some(Token::Times | Token::Divide | Token::Modulo)) {
            return Ok(first);
        }
        // Keeps the factors flat, so that a long product isn't a deep tree.
        let mut factors = vec![arithmetic(first)?];
        loop {
            let operator = match self.peek() {
                Some(token @ (Token::Times | Token::Divide | Token::Modulo)) => token.clone(),
                _ if factors.len() == 1 => return Ok(factors.swap_remove(0).into()),
                _ => return Ok(with_unit(factors, Expr::Mul).into()),
            };
            self.at += 1;
            let right = arithmetic(self.unary(argument)?)?;
            match (operator, factors.len()) {
                (Token::Times, _) => factors.push(right),
                (Token::Divide, 1) => match self.divided(factors.swap_remove(0), right) {
                    Expr::Mul(parts) => factors = parts,
                    other => factors.push(other),
                },
                (Token::Divide, _) => factors.push(right.inverse()),
                (_, count) => {
                    let value = match count {
                        1 => factors.swap_remove(0),
                        _ => Expr::Mul(std::mem::take(&mut factors)),
                    };
                    factors.push(Expr::Call(Function::Mod, vec![value, right]));
                    self.modulos += 1;
                    if self.modulos > MAX_POSTFIXES {
                        return Err(ParseError::Budget);
                    }
                }
            }
        }
    }

    fn unary(&mut self, argument: bool) -> Parsed<Operand> {
        let mut negative = false;
        let mut signed = false;
        loop {
            match self.peek() {
                Some(Token::Plus) => {}
                Some(Token::Minus) => negative = !negative,
                _ => break,
            }
            signed = true;
            self.at += 1;
        }
        let operand = self.sequence(argument)?;
        if !signed {
            return Ok(operand);
        }
        let value = arithmetic(operand)?;
        Ok(if negative { value.negated() } else { value }.into())
    }

    /// Parses factors without an operator between them.
    fn sequence(&mut self, argument: bool) -> Parsed<Operand> {
        let first = self.power()?;
        let mut factors = Vec::new();
        let mut braced = first.braced;
        factors.push(first.expr);
        while self.starts_factor(argument) {
            if !self.parity && self.unit_follows() {
                // Two statements in words: `\\text{Yes} \\text{No}`.
                if matches!(&factors[..], [Expr::Symbol(name)] if is_word(name)) {
                    return Err(ParseError::Syntax);
                }
                let value = if factors.len() == 1 { factors.swap_remove(0) } else { Expr::Mul(factors) };
                return Ok(Expr::Quantity(Box::new(value), self.unit()?).into());
            }
            if factors.len() == 1 && (factors[0].is_set() || matches!(factors[0], Expr::Tuple(_))) && !braced
            {
                return Err(ParseError::Syntax);
            }
            braced = false;
            // A number behind a word is another statement: `\\text{No.}1`.
            if !self.parity
                && matches!(&factors[..], [Expr::Symbol(name)] if is_word(name))
                && matches!(self.peek(), Some(Token::Integer(_) | Token::Decimal(..)))
            {
                return Err(ParseError::Syntax);
            }
            if !self.parity && self.number_follows_number() {
                factors.push(self.written_fraction()?);
                let percent = self.accept(&Token::Percent);
                return match &factors[..] {
                    [Expr::Number(whole), Expr::Number(part)] => {
                        let value = Expr::Number(whole + part);
                        Ok(if percent { Expr::Percent(Box::new(value)) } else { value }.into())
                    }
                    _ => Err(ParseError::Syntax),
                };
            }
            let fraction = self.peek() == Some(&Token::Frac) && self.after_integer();
            let next = arithmetic(self.power()?)?;
            // In strict mode, a mixed number consists of digits and a proper fraction.
            if let (false, true, [Expr::Number(whole)], Expr::Number(part)) =
                (self.parity, fraction, &factors[..], &next)
                && part.sign() == Sign::Positive
                && *part < RBig::ONE
            {
                factors[0] = Expr::Number(whole + part);
                continue;
            }
            if let (false, true, [Expr::Number(whole)], Expr::Percent(part)) =
                (self.parity, fraction, &factors[..], &next)
                && let Expr::Number(part) = &**part
                && part.sign() == Sign::Positive
                && *part < RBig::ONE
            {
                factors[0] = Expr::Percent(Box::new(Expr::Number(whole + part)));
                continue;
            }
            factors.push(next);
        }
        if factors.len() == 1 {
            return Ok(Operand { expr: factors.swap_remove(0), braced });
        }
        Ok(if self.parity { mixed_number(&factors) } else { None }.unwrap_or(Expr::Mul(factors)).into())
    }

    fn starts_factor(&self, argument: bool) -> bool {
        let Some(token) = self.peek() else { return false };
        match token {
            token if token.is_atom() => true,
            Token::Function(_) | Token::Ln | Token::Log | Token::Exp | Token::Operatorname => !argument,
            Token::Sum | Token::Product | Token::Integral | Token::Limit => !argument,
            // After an integrand, a differential ends the integrand.
            Token::Differential(_) => self.integrals == 0,
            Token::Bar => self.bar_opens(),
            Token::Accent(_)
            | Token::Frac
            | Token::Binom
            | Token::Sqrt
            | Token::Infinity
            | Token::EulerE
            | Token::OpenParen
            | Token::OpenBracket
            | Token::OpenBrace
            | Token::OpenSet
            | Token::OpenGroup
            | Token::OpenBar
            | Token::OpenFloor
            | Token::OpenCeiling
            | Token::Wrapper
            | Token::Begin(_) => true,
            _ => false,
        }
    }

    /// Returns whether a bar in place of an operand opens an absolute value. Inside an absolute value, it does only if
    /// enough bars follow to close all of them and the next token can begin a value.
    fn bar_opens(&self) -> bool {
        if self.open_bars == 0 {
            return true;
        }
        let left = self.bars[self.at + 1];
        left > self.open_bars
            && !matches!(
                self.peek_at(1),
                None | Some(
                    Token::Bar
                        | Token::Plus
                        | Token::Minus
                        | Token::Times
                        | Token::Divide
                        | Token::Caret
                        | Token::Comma
                        | Token::Relation(_)
                        | Token::CloseBrace
                        | Token::CloseParen
                        | Token::CloseBracket
                        | Token::CloseSet
                )
            )
    }

    /// Parses a primary with its exponents, factorials, degrees and percent signs.
    fn power(&mut self) -> Parsed<Operand> {
        let start = self.at;
        let base = self.primary()?;
        let mut braced = base.braced;
        let mut value = base.expr;
        let mut postfix = false;
        let mut raised = false;
        let mut postfixes = 0;
        loop {
            // Each postfix adds a level to the tree.
            postfixes += 1;
            if postfixes > MAX_POSTFIXES {
                return Err(ParseError::Budget);
            }
            match self.peek() {
                // Only degrees follow a factorial or a percent sign.
                Some(Token::Caret) if !self.parity && is_factorial(&value) => {
                    self.at += 1;
                    value = Expr::pow(value, self.script()?);
                    raised = true;
                }
                Some(Token::Caret) if postfix => {
                    self.at += 1;
                    if !self.accept(&Token::Circle) {
                        return Err(ParseError::Syntax);
                    }
                }
                // math-verify transposes everything, even numbers.
                Some(Token::Caret)
                    if self.transposed() > 0
                        && !matches!(value, Expr::Matrix(..))
                        && arithmetical(&value) =>
                {
                    self.at += self.transposed();
                    braced = false;
                    postfix = true;
                }
                Some(Token::Caret) => {
                    braced = false;
                    raised = true;
                    self.at += 1;
                    value = self.exponent(value, start)?;
                }
                // `(1011)_2`
                Some(Token::Underscore) if !self.parity && value.as_integer().is_some() => {
                    braced = false;
                    value = self.based(value)?;
                }
                Some(Token::Bang) => {
                    braced = false;
                    postfix = true;
                    self.at += 1;
                    value = Expr::Call(Function::Factorial, vec![value]);
                }
                Some(Token::Percent) => {
                    let literal = matches!(
                        self.tokens[start].token,
                        Token::Integer(_) | Token::Decimal(..) | Token::Frac | Token::Infinity
                    ) || !self.parity && self.tokens[start].token == Token::OpenBrace;
                    let apart = self.parity && self.gap(self.at).contains('\\');
                    if apart
                        || raised
                        || !literal
                        || !value.is_number() && value != Expr::Constant(Constant::Infinity)
                    {
                        return Err(ParseError::Syntax);
                    }
                    braced = false;
                    postfix = true;
                    self.at += 1;
                    if value.is_number() {
                        value = Expr::Percent(Box::new(value));
                    }
                }
                _ => break,
            }
        }
        Ok(Operand { expr: value, braced })
    }

    /// Parses the exponent after a caret.
    fn exponent(&mut self, base: Expr, start: usize) -> Parsed<Expr> {
        // Degrees are dropped, but in strict mode not in a function of an angle. math-verify reads them as one token.
        let braced = self.peek() == Some(&Token::OpenBrace);
        if self.peek_at(usize::from(braced)) == Some(&Token::Circle) {
            let first = self.at;
            self.at += 1 + usize::from(braced);
            if braced {
                self.expect(&Token::CloseBrace)?;
            }
            let spaced = (first..self.at).any(|at| !self.gap(at).is_empty());
            return if (self.parity && spaced) || !arithmetical(&base) {
                Err(ParseError::Syntax)
            } else if self.angle {
                let radian = self.divided(Expr::Constant(Constant::Pi), Expr::integer(180));
                Ok(Expr::Mul(vec![base, radian]))
            } else {
                Ok(base)
            };
        }
        let row = match &base {
            Expr::Tuple(values) => values.clone(),
            Expr::Interval(ends, true, true) => ends.to_vec(),
            _ => Vec::new(),
        };
        if !self.parity
            && !row.is_empty()
            && let Some(transposed) = self.transposition(row.len(), &row)
        {
            return Ok(transposed);
        }
        if matches!(
            base,
            Expr::Set(_) | Expr::Interval(..) | Expr::Tuple(_) | Expr::NumberSet(_) | Expr::Union(_)
        ) {
            return Err(ParseError::Syntax);
        }
        if let Expr::Matrix(columns, entries) = &base
            && let Some(transposed) = self.transposition(*columns, entries)
        {
            return Ok(transposed);
        }
        let exponent = self.script()?;
        // `x^2_2` and `f^2(x)`.
        let base = match base {
            Expr::Symbol(name) if self.peek() == Some(&Token::Underscore) && !name.contains('_') => {
                Expr::Symbol(self.subscripted(&name)?)
            }
            other => other,
        };
        let base = match base {
            Expr::Symbol(name) => {
                let written = self.function_name(start, &name);
                match self.application()? {
                    Some(arguments) => Expr::Apply(written, arguments),
                    // `C_{10}^3` is a binomial coefficient.
                    None => match (name.strip_prefix("C_"), &exponent) {
                        (Some(upper), Expr::Number(_) | Expr::Symbol(_)) if !self.parity => {
                            let upper = upper.trim_matches(['{', '}']);
                            match upper.parse::<u32>() {
                                Ok(upper) => return Ok(self.choose(Expr::integer(upper.into()), exponent)),
                                // `C_n^k`
                                Err(_) if matches!(upper, "n" | "m") && exponent.has_unknowns() => {
                                    return Ok(self.choose(Expr::symbol(upper), exponent));
                                }
                                Err(_) => Expr::Symbol(name),
                            }
                        }
                        _ => Expr::Symbol(name),
                    },
                }
            }
            other => other,
        };
        Ok(Expr::pow(base, exponent))
    }

    /// Returns the text between a token and the token before it.
    fn gap(&self, at: usize) -> &str {
        &self.text[self.tokens[at - 1].end..self.tokens[at].start]
    }

    /// Counts the tokens of `^T` or `^{T}`, which math-verify reads as one token if it is written without spaces.
    fn transposed(&self) -> usize {
        let capital = Token::Letter('T');
        let length = match (self.peek_at(1), self.peek_at(2), self.peek_at(3)) {
            (Some(token), ..) if *token == capital => 2,
            (Some(Token::OpenBrace), Some(token), Some(Token::CloseBrace)) if *token == capital => 4,
            _ => return 0,
        };
        let written = (self.at + 1..self.at + length).all(|at| self.gap(at).is_empty());
        if self.parity && written { length } else { 0 }
    }

    fn transposition(&mut self, columns: usize, entries: &[Expr]) -> Option<Expr> {
        let (skip, letter) = match (self.peek(), self.peek_at(1), self.peek_at(2)) {
            (Some(Token::Letter(letter)), ..) => (1, *letter),
            (Some(Token::OpenBrace), Some(Token::Letter(letter)), Some(Token::CloseBrace)) => (3, *letter),
            _ => return None,
        };
        if letter != 'T' {
            return None;
        }
        self.at += skip;
        let rows = entries.len() / columns;
        let mut transposed = Vec::with_capacity(entries.len());
        for column in 0..columns {
            for row in 0..rows {
                transposed.push(entries[row * columns + column].clone());
            }
        }
        Some(Expr::Matrix(rows, transposed))
    }

    /// Parses a group in braces or one atom, as in exponents and limits.
    fn script(&mut self) -> Parsed<Expr> {
        match self.peek() {
            Some(Token::OpenBrace) => self.group(),
            Some(
                Token::EulerE
                | Token::Infinity
                | Token::Differential(_)
                | Token::Accent(_)
                | Token::OpenParen,
            ) => Ok(self.primary()?.expr),
            Some(token) if token.is_atom() => Ok(self.primary()?.expr),
            Some(Token::Frac | Token::Binom | Token::Sqrt) if !self.parity => Ok(self.primary()?.expr),
            Some(Token::Minus) if !self.parity => {
                self.at += 1;
                self.nested(|parser| Ok(parser.script()?.negated()))
            }
            _ => Err(ParseError::Syntax),
        }
    }

    /// Parses an argument of a command: a group or, in strict mode, also one digit, name or command. If `whole` is
    /// true, all digits of a number are the argument.
    fn bare(&mut self, whole: bool) -> Parsed<Expr> {
        if self.parity || self.peek() == Some(&Token::OpenBrace) {
            return self.group();
        }
        if !whole {
            self.split_digit();
        }
        self.nested(|parser| match parser.peek() {
            Some(Token::Minus | Token::OpenParen) | None => Err(ParseError::Syntax),
            _ => parser.script(),
        })
    }

    /// Splits the first digit of the next number off as a separate token.
    fn split_digit(&mut self) {
        let Some(Spanned { token: Token::Integer(value), start, end }) = self.tokens.get(self.at).cloned()
        else {
            return;
        };
        let digits = value.to_string();
        let (first, rest) = digits.split_at(1.min(digits.len()));
        if let (Ok(first), Ok(rest)) = (IBig::from_str_radix(first, 10), IBig::from_str_radix(rest, 10)) {
            self.tokens[self.at] = Spanned { token: Token::Integer(first), start, end };
            self.tokens.insert(self.at + 1, Spanned { token: Token::Integer(rest), start, end });
            self.bars.insert(self.at + 1, self.bars[self.at]);
        }
    }

    /// Parses `{` expression `}`.
    fn group(&mut self) -> Parsed<Expr> {
        self.expect(&Token::OpenBrace)?;
        self.closed(&Token::CloseBrace)
    }

    /// Parses a value and the token that closes its group.
    fn closed(&mut self, close: &Token) -> Parsed<Expr> {
        let value = self.enclosed(|parser| parser.additive())?;
        self.expect(close)?;
        arithmetic(value)
    }

    fn primary(&mut self) -> Parsed<Operand> {
        let start = self.at;
        let token = self.next()?;
        Ok(match token {
            // `{}_{10}C_3` and `^{10}C_3` are binomial coefficients.
            Token::OpenBrace if !self.parity && self.accept(&Token::CloseBrace) => {
                return self.primary();
            }
            Token::Underscore | Token::Caret if !self.parity => {
                let upper = self.script()?;
                self.expect(&Token::Letter('C'))?;
                self.expect(&Token::Underscore)?;
                let lower = self.script()?;
                self.choose(upper, lower).into()
            }
            Token::Integer(value) => {
                if self.parity {
                    self.skip_base()?;
                }
                Expr::Number(RBig::from(value)).into()
            }
            Token::Decimal(value, last) => {
                if self.parity {
                    self.skip_base()?;
                }
                Expr::Decimal(value, last).into()
            }
            // `I(x)` is a function, as with any letter.
            Token::Letter('I') if self.parity && self.peek() != Some(&Token::Underscore) => {
                match self.application()? {
                    Some(arguments) => Expr::Apply("I".into(), arguments).into(),
                    None => Expr::Constant(Constant::ImaginaryUnit).into(),
                }
            }
            Token::Letter('e') if self.peek() != Some(&Token::Underscore) => {
                Expr::Constant(Constant::E).into()
            }
            Token::EulerE => Expr::Constant(Constant::E).into(),
            Token::Letter(letter) => self.named(start, letter_name(letter, self.mode))?,
            Token::Differential(name) => {
                if self.integrals > 0 {
                    self.differential = Some(name);
                    return Ok(Expr::integer(1).into());
                }
                let name = format!("d{name}");
                self.named(start, name.into())?
            }
            Token::Greek("gamma") if self.peek() != Some(&Token::Underscore) => {
                Expr::Constant(Constant::EulerGamma).into()
            }
            Token::Greek("Gamma") if self.peek() == Some(&Token::OpenParen) => {
                let argument = self.parenthesized()?;
                Expr::Call(Function::Gamma, vec![argument]).into()
            }
            Token::Greek("Gamma") if self.parity && self.peek() != Some(&Token::Underscore) => {
                Expr::Constant(Constant::EulerGamma).into()
            }
            Token::Greek(name) => self.named(start, name.into())?,
            Token::Text(words) => {
                let name = self.text_name(words)?;
                match &*name {
                    _ if self.peek() == Some(&Token::Underscore) => self.named(start, name)?,
                    "pi" => Expr::Constant(Constant::Pi).into(),
                    "gamma" => Expr::Constant(Constant::EulerGamma).into(),
                    _ => self.named(start, name)?,
                }
            }
            Token::Pi => {
                let behind = self.at;
                match self.application()? {
                    // In strict mode, it is a function only if its value is stated: `\pi(10)=4`.
                    Some(arguments) if self.parity || matches!(self.peek(), Some(Token::Relation(_))) => {
                        Expr::Apply("\\pi".into(), arguments).into()
                    }
                    _ => {
                        self.at = behind;
                        Expr::Constant(Constant::Pi).into()
                    }
                }
            }
            Token::Infinity => Expr::Constant(Constant::Infinity).into(),
            Token::EmptySet => Expr::Set(Vec::new()).into(),
            Token::NumberSet(set) => Expr::NumberSet(set).into(),
            Token::Accent(accent) => {
                let content = match self.peek() {
                    Some(token) if !self.parity && token.is_atom() => {
                        self.split_digit();
                        self.at += 1;
                        spelled([&self.tokens[self.at - 1].token])
                    }
                    _ => self.raw_group()?,
                };
                // Names can't contain groups.
                if content.contains('{') {
                    return Err(ParseError::Syntax);
                }
                let content = if self.parity { content.to_lowercase() } else { content };
                self.named(start, format!("{accent}{{{content}}}").into())?
            }
            Token::Frac => self.fraction()?.into(),
            Token::Binom => {
                let upper = self.bare(false)?;
                let lower = self.bare(false)?;
                self.choose(upper, lower).into()
            }
            Token::Sqrt => {
                let indexed = self.accept(&Token::OpenBracket);
                let index = if indexed { Some(self.closed(&Token::CloseBracket)?) } else { None };
                let parentheses = !self.parity && self.peek() == Some(&Token::OpenParen);
                let radicand = if parentheses { self.parenthesized()? } else { self.bare(true)? };
                root(radicand, index).into()
            }
            Token::Function(function) => self.function(function)?.into(),
            Token::Ln => self.logarithm(Some(Expr::Constant(Constant::E)))?.into(),
            Token::Log => self.logarithm(None)?.into(),
            Token::Exp => {
                let power = self.function_power()?;
                let argument = self.argument()?;
                raised(Expr::pow(Expr::Constant(Constant::E), argument), power).into()
            }
            Token::Operatorname => self.operator_name()?.into(),
            Token::Sum => self.fold(Fold::Sum)?.into(),
            Token::Product => self.fold(Fold::Product)?.into(),
            Token::Integral => self.integral()?.into(),
            Token::Limit => self.limit()?.into(),
            Token::Bar => {
                self.open_bars += 1;
                let inside = self.nested(|parser| parser.additive());
                self.open_bars -= 1;
                let inside = arithmetic(inside?)?;
                self.expect(&Token::Bar)?;
                Expr::Call(Function::Abs, vec![inside]).into()
            }
            Token::OpenBar => self.delimited(Function::Abs, &Token::CloseBar)?.into(),
            Token::OpenFloor => self.delimited(Function::Floor, &Token::CloseFloor)?.into(),
            Token::OpenCeiling => self.delimited(Function::Ceiling, &Token::CloseCeiling)?.into(),
            Token::Wrapper => {
                self.expect(&Token::OpenBrace)?;
                let value = self.enclosed(|parser| parser.list())?;
                self.expect(&Token::CloseBrace)?;
                value.into()
            }
            Token::OpenGroup => self.closed(&Token::CloseGroup)?.into(),
            Token::OpenParen | Token::OpenBracket => self.parentheses(token == Token::OpenParen)?.into(),
            Token::OpenBrace | Token::OpenSet => self.braces(token == Token::OpenSet)?,
            Token::Begin(environment) => self.matrix(&environment)?.into(),
            _ => return Err(ParseError::Syntax),
        })
    }
}

/// Joins parts to a sum, product or ratio. The unit after the last part becomes the unit of the whole.
fn with_unit(mut parts: Vec<Expr>, joined: impl Fn(Vec<Expr>) -> Expr) -> Expr {
    match parts.pop() {
        Some(Expr::Quantity(value, unit)) => {
            parts.push(*value);
            Expr::Quantity(Box::new(joined(parts)), unit)
        }
        last => {
            parts.extend(last);
            joined(parts)
        }
    }
}

/// Returns whether a name has several letters, like a word.
fn is_word(name: &str) -> bool {
    name.len() > 1 && name.bytes().all(|byte| byte.is_ascii_lowercase())
}

fn is_factorial(value: &Expr) -> bool {
    matches!(value, Expr::Call(Function::Factorial, _))
}

/// Returns an operand of arithmetic, or an error if the operand is a set.
fn arithmetic(operand: Operand) -> Parsed<Expr> {
    if arithmetical(&operand.expr) { Ok(operand.expr) } else { Err(ParseError::Syntax) }
}

fn arithmetical(expr: &Expr) -> bool {
    !expr.is_set() && !expr.is_relation() && !matches!(expr, Expr::Tuple(_) | Expr::Ratio(_))
}

/// Reads factors as a mixed number: integers, then an integer or fraction that isn't zero. None is negative.
fn mixed_number(factors: &[Expr]) -> Option<Expr> {
    let mut total = RBig::ZERO;
    for (place, factor) in factors.iter().enumerate() {
        let Expr::Number(value) = factor else { return None };
        let last = place + 1 == factors.len();
        if (last && value.is_zero()) || value.sign() == Sign::Negative || (!last && !value.is_int()) {
            return None;
        }
        total += value;
    }
    Some(Expr::Number(total))
}
