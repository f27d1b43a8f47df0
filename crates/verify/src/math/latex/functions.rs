//! Parses fractions, roots, functions and logarithms with their arguments, sums, integrals and limits.

use dashu_int::IBig;
use dashu_ratio::RBig;

use super::super::budget::{Fuel, ParseError};
use super::super::exact;
use super::super::expr::{Constant, Expr, Fold, Function, Relation};
use super::super::finished::Open;
use super::super::lexer::{Token, letter_name};
use super::{Parsed, Parser, arithmetic};

impl Parser<'_> {
    pub(super) fn fraction(&mut self) -> Parsed<Expr> {
        if let Some(derivative) = self.derivative()? {
            return Ok(derivative);
        }
        let numerator = self.bare(false)?;
        let denominator = self.bare(true)?;
        Ok(self.divided(numerator, denominator))
    }

    /// Builds a quotient. If a number is divided by another and one is a fraction, records the product as carried out.
    pub(super) fn divided(&mut self, numerator: Expr, denominator: Expr) -> Expr {
        if let (Expr::Number(a), Expr::Number(b)) = (&numerator, &denominator)
            && !(a.is_int() && b.is_int() || *b == RBig::ONE)
        {
            self.done = self.done.with(Open::PRODUCT);
        }
        quotient(numerator, denominator)
    }

    /// Builds a binomial coefficient. Operations inside it are carried out too.
    pub(super) fn choose(&mut self, upper: Expr, lower: Expr) -> Expr {
        let inside = Open::of(&upper, true).with(Open::of(&lower, true));
        let value = binomial(upper, lower);
        if value.is_number() {
            self.done = self.done.with(inside);
        }
        value
    }

    /// Parses `\frac{d}{dx} f` and `\frac{dy}{dx}`.
    pub(super) fn derivative(&mut self) -> Parsed<Option<Expr>> {
        if self.integrals > 0 {
            return Ok(None);
        }
        let start = self.at;
        let Some(operand) = self.derivative_head() else {
            self.at = start;
            return Ok(None);
        };
        let (function, variable) = operand;
        let body = match function {
            Some(name) => Expr::Symbol(name),
            None => arithmetic(self.nested(|parser| parser.product(false))?)?,
        };
        Ok(Some(Expr::Derivative(Box::new(body), variable)))
    }

    pub(super) fn derivative_head(&mut self) -> Option<(Option<Box<str>>, Box<str>)> {
        if !self.accept(&Token::OpenBrace) {
            return None;
        }
        let function = match self.next().ok()? {
            Token::Letter('d') => None,
            Token::Differential(name) => Some(name),
            Token::Partial => match self.peek()? {
                Token::CloseBrace => None,
                Token::Letter(letter) => {
                    let name = letter_name(*letter, self.mode);
                    self.at += 1;
                    Some(name)
                }
                _ => return None,
            },
            _ => return None,
        };
        if !self.accept(&Token::CloseBrace) || !self.accept(&Token::OpenBrace) {
            return None;
        }
        let variable = match self.next().ok()? {
            Token::Differential(name) => name,
            Token::Partial => match self.next().ok()? {
                Token::Letter(letter) => letter_name(letter, self.mode),
                _ => return None,
            },
            _ => return None,
        };
        self.accept(&Token::CloseBrace).then_some((function, variable))
    }

    /// Parses the exponent between a function's name and its argument.
    pub(super) fn function_power(&mut self) -> Parsed<Option<Expr>> {
        if self.accept(&Token::Caret) { Ok(Some(self.script()?)) } else { Ok(None) }
    }

    /// Parses a function's argument, which is in parentheses or is the product that follows.
    pub(super) fn argument(&mut self) -> Parsed<Expr> {
        if self.peek() == Some(&Token::OpenParen) {
            return self.parenthesized();
        }
        arithmetic(self.nested(|parser| parser.product(true))?)
    }

    pub(super) fn parenthesized(&mut self) -> Parsed<Expr> {
        self.expect(&Token::OpenParen)?;
        self.closed(&Token::CloseParen)
    }

    pub(super) fn function(&mut self, function: Function) -> Parsed<Expr> {
        match function {
            Function::Max | Function::Min | Function::Gcd | Function::Lcm => {
                let arguments = self.argument_list()?;
                if arguments.len() == 1 && matches!(function, Function::Max | Function::Min) {
                    return arguments.into_iter().next().ok_or(ParseError::Syntax);
                }
                return Ok(Expr::Call(function, arguments));
            }
            Function::Floor | Function::Ceiling => {
                return Ok(Expr::Call(function, vec![self.parenthesized()?]));
            }
            _ => {}
        }
        let power = self.function_power()?;
        use Function::{Cos, Cot, Csc, Sec, Sin, Tan};
        let angle = !self.parity && matches!(function, Sin | Cos | Tan | Cot | Sec | Csc);
        let around = std::mem::replace(&mut self.angle, angle);
        let argument = self.argument();
        self.angle = around;
        let argument = argument?;
        let minus_one = Expr::integer(-1);
        match (power, inverse(function)) {
            (Some(power), Some(inverse)) if power == minus_one => Ok(Expr::Call(inverse, vec![argument])),
            (power, _) => Ok(raised(Expr::Call(function, vec![argument]), power)),
        }
    }

    pub(super) fn argument_list(&mut self) -> Parsed<Vec<Expr>> {
        self.expect(&Token::OpenParen)?;
        let mut arguments = Vec::new();
        loop {
            let argument = self.enclosed(|parser| parser.additive())?;
            arguments.push(arithmetic(argument)?);
            if self.accept(&Token::Comma) {
                continue;
            }
            self.expect(&Token::CloseParen)?;
            return Ok(arguments);
        }
    }

    pub(super) fn operator_name(&mut self) -> Parsed<Expr> {
        let name = self.raw_group()?;
        let function = match name.trim() {
            "arcsinh" | "arsinh" | "asinh" => Function::Asinh,
            "arccosh" | "arcosh" | "acosh" => Function::Acosh,
            "arctanh" | "artanh" | "atanh" => Function::Atanh,
            "gcd" => Function::Gcd,
            "lcm" => Function::Lcm,
            "floor" => Function::Floor,
            "ceil" => Function::Ceiling,
            _ => return Err(ParseError::Syntax),
        };
        self.function(function)
    }

    pub(super) fn logarithm(&mut self, base: Option<Expr>) -> Parsed<Expr> {
        let mut base = base;
        let mut power = None;
        loop {
            if power.is_none() && self.peek() == Some(&Token::Caret) {
                power = self.function_power()?;
            } else if base.is_none() && self.accept(&Token::Underscore) {
                // math-verify's grammar allows `e` here only in braces.
                if self.parity && self.peek() == Some(&Token::Letter('e')) {
                    return Err(ParseError::Syntax);
                }
                base = Some(if self.parity { self.script()? } else { self.bare(false)? });
            } else {
                break;
            }
        }
        let base = base.unwrap_or_else(|| Expr::integer(10));
        let argument = self.argument()?;
        Ok(raised(Expr::Call(Function::Log, vec![argument, base]), power))
    }

    /// Parses a sum or product after its command, such as `_{k=1}^{n} k^2`.
    pub(super) fn fold(&mut self, kind: Fold) -> Parsed<Expr> {
        let mut lower = None;
        let mut upper = None;
        for _ in 0..2 {
            if self.accept(&Token::Underscore) {
                self.expect(&Token::OpenBrace)?;
                let variable = match self.primary()?.expr {
                    Expr::Symbol(name) => name,
                    _ => return Err(ParseError::Syntax),
                };
                self.expect(&Token::Relation(Relation::Equal))?;
                lower = Some((variable, self.closed(&Token::CloseBrace)?));
            } else if self.accept(&Token::Caret) {
                upper = Some(self.script()?);
            }
        }
        let ((variable, from), to) = lower.zip(upper).ok_or(ParseError::Syntax)?;
        let body = arithmetic(self.nested(|parser| parser.product(false))?)?;
        Ok(Expr::Fold(kind, Box::new(body), variable, Some(Box::new([from, to]))))
    }

    pub(super) fn integral(&mut self) -> Parsed<Expr> {
        let mut lower = None;
        let mut upper = None;
        for _ in 0..2 {
            let target = match self.peek() {
                Some(Token::Underscore) => &mut lower,
                Some(Token::Caret) => &mut upper,
                _ => break,
            };
            self.at += 1;
            if self.peek() == Some(&Token::OpenBrace) && self.peek_at(1) == Some(&Token::CloseBrace) {
                self.at += 2;
                continue;
            }
            let value = self.script()?;
            *target = Some(value);
        }
        let outer = self.differential.take();
        self.integrals += 1;
        let body = if matches!(self.peek(), Some(Token::Differential(_))) {
            Ok(Expr::integer(1))
        } else {
            self.nested(|parser| parser.additive()).and_then(arithmetic)
        };
        self.integrals -= 1;
        let body = body?;
        let variable = match self.peek() {
            Some(Token::Differential(name)) => {
                let name = name.clone();
                self.at += 1;
                name
            }
            _ => self.differential.take().unwrap_or_else(|| "x".into()),
        };
        self.differential = outer;
        let ends = lower.zip(upper).map(|(from, to)| Box::new([from, to]));
        Ok(Expr::Fold(Fold::Integral, Box::new(body), variable, ends))
    }

    pub(super) fn limit(&mut self) -> Parsed<Expr> {
        self.expect(&Token::Underscore)?;
        self.expect(&Token::OpenBrace)?;
        let variable = match self.primary()?.expr {
            Expr::Symbol(name) => name,
            _ => return Err(ParseError::Syntax),
        };
        self.expect(&Token::Approaches)?;
        let mut from_left = false;
        let point = self.enclosed(|parser| parser.unary(false).map_err(|_| ParseError::Syntax))?;
        let point = arithmetic(point)?;
        // A one-sided limit: `3^{-}`.
        if self.accept(&Token::Caret) {
            self.expect(&Token::OpenBrace)?;
            from_left = self.accept(&Token::Minus);
            if !from_left {
                self.expect(&Token::Plus)?;
            }
            self.expect(&Token::CloseBrace)?;
        }
        self.expect(&Token::CloseBrace)?;
        let body = arithmetic(self.nested(|parser| parser.product(false))?)?;
        Ok(Expr::Limit(Box::new([body, point]), variable, from_left))
    }

    pub(super) fn delimited(&mut self, function: Function, close: &Token) -> Parsed<Expr> {
        Ok(Expr::Call(function, vec![self.closed(close)?]))
    }
}

/// Builds the quotient, which is a number if both parts are exact numbers.
fn quotient(numerator: Expr, denominator: Expr) -> Expr {
    match (numerator, denominator) {
        (Expr::Number(_), Expr::Number(b)) if b.is_zero() => Expr::Constant(Constant::ComplexInfinity),
        (Expr::Number(a), Expr::Number(b)) => Expr::Number(a / b),
        (numerator, denominator) => Expr::Mul(vec![numerator, denominator.inverse()]),
    }
}

pub(super) fn root(radicand: Expr, index: Option<Expr>) -> Expr {
    let exponent = match index {
        None => Expr::Number(RBig::from_parts(IBig::ONE, 2u8.into())),
        Some(Expr::Number(index)) if !index.is_zero() => Expr::Number(RBig::ONE / index),
        Some(index) => index.inverse(),
    };
    Expr::pow(radicand, exponent)
}

pub(super) fn raised(value: Expr, power: Option<Expr>) -> Expr {
    if let Some(power) = power { Expr::pow(value, power) } else { value }
}

fn binomial(upper: Expr, lower: Expr) -> Expr {
    let call = Expr::Call(Function::Binomial, vec![upper, lower]);
    if let Ok(Some(value)) = exact::rational(&call, &mut Fuel::new()) { Expr::Number(value) } else { call }
}

pub(super) fn inverse(function: Function) -> Option<Function> {
    Some(match function {
        Function::Sin => Function::Asin,
        Function::Cos => Function::Acos,
        Function::Tan => Function::Atan,
        Function::Csc => Function::Acsc,
        Function::Sec => Function::Asec,
        Function::Cot => Function::Acot,
        Function::Sinh => Function::Asinh,
        Function::Cosh => Function::Acosh,
        Function::Tanh => Function::Atanh,
        _ => return None,
    })
}
