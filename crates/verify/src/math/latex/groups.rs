//! Parses bracketed values: groups, tuples, intervals, sets and matrices.

use super::super::budget::ParseError;
use super::super::exact;
use super::super::expr::{Constant, Expr};
use super::super::finished::Open;
use super::super::lexer::Token;
use super::super::numeric;
use super::statements::{push_values, set_of, ungrouped};
use super::{Items, Operand, Parsed, Parser, arithmetic};

impl Parser<'_> {
    /// Parses the values up to the closing bracket. In strict mode, a plus-minus sign gives two values only in a set.
    pub(super) fn items(&mut self, set: bool) -> Parsed<Items> {
        self.enclosed(|parser| {
            let mut items = Items { values: Vec::new(), semicolons: 0 };
            loop {
                let value = parser.statement()?;
                let both = std::mem::take(&mut parser.plus_minus);
                if both && !set && !parser.parity {
                    return Err(ParseError::Syntax);
                }
                push_values(&mut items.values, value, both);
                match parser.peek() {
                    Some(Token::Comma) => parser.at += 1,
                    Some(Token::Semicolon) => {
                        items.semicolons += usize::from(parser.parity);
                        parser.at += 1;
                    }
                    Some(Token::Or | Token::Vee) if !parser.parity && !set => return Err(ParseError::Syntax),
                    Some(Token::And | Token::Or | Token::Wedge | Token::Vee) if !parser.parity => {}
                    _ => return Ok(items),
                }
                parser.connectives();
            }
        })
    }

    /// Parses a group, a tuple or an interval.
    pub(super) fn parentheses(&mut self, round: bool) -> Parsed<Expr> {
        let mut items = self.items(false)?;
        let closed_round = match self.next()? {
            Token::CloseParen => true,
            Token::CloseBracket => false,
            _ => return Err(ParseError::Syntax),
        };
        if items.values.len() == 1 {
            if round != closed_round {
                return Err(ParseError::Syntax);
            }
            // Square brackets do not group sets.
            if !round && items.values[0].is_set() {
                return Err(ParseError::Syntax);
            }
            return items.values.pop().ok_or(ParseError::Syntax);
        }
        if items.values.len() == 2 && items.semicolons == 0 {
            items.values = items.values.into_iter().map(ungrouped).collect();
        }
        let plain = items.values.iter().all(|value| !value.is_set() && !value.is_relation());
        if items.values.len() == 2 && items.semicolons == 0 && plain {
            let (low, high) = (&items.values[0], &items.values[1]);
            let order = interval_order(low, high);
            let is_infinite =
                |end: &Expr| matches!(end, Expr::Constant(Constant::Infinity | Constant::NegativeInfinity));
            // An interval never contains infinity. math-verify reads a closed infinite end as open.
            if !self.parity && (!round && is_infinite(low) || !closed_round && is_infinite(high)) {
                return Err(ParseError::Syntax);
            }
            let upper = items.values.pop().ok_or(ParseError::Syntax)?;
            let lower = items.values.pop().ok_or(ParseError::Syntax)?;
            return Ok(match order {
                Order::Increasing => {
                    let (low_open, high_open) =
                        (round || is_infinite(&lower), closed_round || is_infinite(&upper));
                    Expr::Interval(Box::new([lower, upper]), low_open, high_open)
                }
                Order::Equal if !round && !closed_round => Expr::Set(vec![lower]),
                _ if round == closed_round => Expr::Tuple(vec![lower, upper]),
                _ => Expr::Set(Vec::new()),
            });
        }
        if round != closed_round {
            return Err(ParseError::Syntax);
        }
        Ok(Expr::Tuple(items.values))
    }

    /// Parses `{..}` or `\{..\}`, which is a set, a group, or a binomial coefficient.
    pub(super) fn braces(&mut self, escaped: bool) -> Parsed<Operand> {
        let close = if escaped { Token::CloseSet } else { Token::CloseBrace };
        if escaped && self.accept(&close) {
            return Ok(Expr::Set(Vec::new()).into());
        }
        let items = self.items(true)?;
        if !escaped && items.values.len() == 1 && self.accept(&Token::Choose) {
            let upper = items.values.into_iter().next().ok_or(ParseError::Syntax)?;
            let lower = arithmetic(self.enclosed(|parser| parser.additive())?)?;
            self.expect(&Token::CloseBrace)?;
            return Ok(self.choose(upper, lower).into());
        }
        // A set may be closed by the other spelling of the brace, `}` or `\}`.
        let closed = self.next()?;
        if closed != close {
            return Err(ParseError::Syntax);
        }
        let mut values = items.values;
        if values.len() == 1 {
            let expr = values.swap_remove(0);
            // In strict mode, braces without a backslash only group.
            return Ok(Operand { expr, braced: escaped || self.parity });
        }
        Ok(set_of(values).into())
    }

    pub(super) fn matrix(&mut self, environment: &str) -> Parsed<Expr> {
        if !matches!(environment, "matrix" | "pmatrix" | "bmatrix" | "array" | "vmatrix" | "smallmatrix") {
            return Err(ParseError::Syntax);
        }
        if environment == "array" && self.parity {
            if self.peek() == Some(&Token::OpenBracket) {
                self.at += 3;
            }
            self.raw_group()?;
        }
        let mut entries = Vec::new();
        let mut columns = None;
        let mut width = 0;
        loop {
            if matches!(self.peek(), Some(Token::End(_))) && width == 0 {
                break;
            }
            let entry = self.enclosed(|parser| parser.additive())?;
            entries.push(arithmetic(entry)?);
            width += 1;
            match self.peek() {
                Some(Token::Ampersand) => {
                    self.at += 1;
                    continue;
                }
                Some(Token::RowEnd) => {
                    self.at += 1;
                }
                Some(Token::End(_)) => {}
                _ => return Err(ParseError::Syntax),
            }
            if *columns.get_or_insert(width) != width {
                return Err(ParseError::Syntax);
            }
            width = 0;
        }
        match self.next()? {
            Token::End(name) if *name == *environment => {}
            _ => return Err(ParseError::Syntax),
        }
        let columns = columns.ok_or(ParseError::Syntax)?;
        if environment == "vmatrix" {
            self.done = self.done.with(Open::DETERMINANT);
            return exact::determinant(columns, &entries).ok_or(ParseError::Syntax);
        }
        Ok(Expr::Matrix(columns, entries))
    }
}

/// Compares two values that may be the ends of an interval.
fn interval_order(low: &Expr, high: &Expr) -> Order {
    if low == high {
        return Order::Equal;
    }
    if let (Expr::Number(low) | Expr::Decimal(low, _), Expr::Number(high) | Expr::Decimal(high, _)) =
        (low, high)
    {
        return match low.cmp(high) {
            std::cmp::Ordering::Less => Order::Increasing,
            std::cmp::Ordering::Equal => Order::Equal,
            std::cmp::Ordering::Greater => Order::Decreasing,
        };
    }
    match (numeric::approximate(low), numeric::approximate(high)) {
        (Some(low), Some(high)) if low < high => Order::Increasing,
        // Values beyond the range of doubles can't be distinguished.
        (Some(low), Some(high)) if low == high && low.is_finite() => Order::Equal,
        (Some(low), Some(high)) if low > high => Order::Decreasing,
        _ => Order::Increasing,
    }
}

enum Order {
    Increasing,
    Equal,
    Decreasing,
}
