//! Parses names: symbols with their subscripts, and functions named by letters.

use dashu_ratio::RBig;

use super::super::budget::ParseError;
use super::super::expr::{Constant, Expr};
use super::super::lexer::{Spanned, Token, letter_name, spelled};
use super::super::units::Unit;
use super::super::{lexer, units, words};
use super::{Operand, Parsed, Parser};

/// Maximum number of argument lists tried in one answer.
const MAX_LISTS_TRIED: usize = 4;

impl Parser<'_> {
    /// Skips the base after a number, as in `101_2`.
    pub(super) fn skip_base(&mut self) -> Parsed<()> {
        if self.accept(&Token::Underscore) {
            match self.peek() {
                Some(Token::OpenBrace) => {
                    self.raw_group()?;
                }
                Some(Token::Integer(_) | Token::Letter(_)) => self.at += 1,
                _ => return Err(ParseError::Syntax),
            }
        }
        Ok(())
    }

    /// Parses digits in another base for strict mode. The result equals neither the decimal number with these digits
    /// nor the number that they denote, because the conversion may be the problem.
    pub(super) fn based(&mut self, digits: Expr) -> Parsed<Expr> {
        self.expect(&Token::Underscore)?;
        let base = match self.peek() {
            Some(Token::OpenBrace) => words::base(&self.raw_group()?),
            Some(token @ (Token::Integer(_) | Token::Text(_))) => {
                let written = spelled([token]);
                self.at += 1;
                words::base(&written)
            }
            _ => None,
        };
        match base.ok_or(ParseError::Syntax)? {
            10 => Ok(digits),
            base => Ok(Expr::Apply(format!("base {base}").into(), vec![digits])),
        }
    }

    /// Returns whether the next tokens are words that strict mode reads as the unit of the value before them.
    pub(super) fn unit_follows(&self) -> bool {
        let group = matches!(
            (self.peek(), self.peek_at(1), self.peek_at(2)),
            (Some(Token::Frac), Some(Token::OpenBrace), Some(Token::Text(_)))
        );
        group
            || matches!(self.peek(), Some(Token::Text(_)))
                && !matches!(self.peek_at(1), Some(Token::Underscore | Token::OpenParen | Token::Relation(_)))
    }

    /// Parses words and their exponents, quotients and products: `\text{m}/\text{s}^2`.
    pub(super) fn unit(&mut self) -> Parsed<Unit> {
        let mut words = String::new();
        let mut open = 0usize;
        let is_unit = |token: &Token| match token {
            Token::Text(_) => true,
            Token::Letter(letter) => units::canonical(&letter.to_ascii_lowercase().to_string()).is_some(),
            _ => false,
        };
        while let Some(token) = self.peek().cloned() {
            let next = self.peek_at(1);
            match token {
                Token::Text(text) => words.extend([" ", &text]),
                Token::Letter(letter) if words.ends_with('/') => words.push(letter),
                Token::Times if next.is_some_and(is_unit) => {}
                Token::Divide if next.is_some_and(is_unit) => words.push('/'),
                // A fraction of units.
                Token::Frac if next == Some(&Token::OpenBrace) => {}
                Token::OpenBrace if next.is_some_and(is_unit) => open += 1,
                Token::CloseBrace if open > 0 => {
                    open -= 1;
                    if next == Some(&Token::OpenBrace) {
                        words.push('/');
                    }
                }
                Token::Caret => {
                    self.at += 1;
                    let exponent = self.script()?;
                    let power = exponent.as_integer().ok_or(ParseError::Syntax)?;
                    words.push_str(&format!("^{power}"));
                    continue;
                }
                _ => break,
            }
            self.at += 1;
        }
        Ok(Unit::parse(&words))
    }

    /// Returns whether the last token was an integer.
    pub(super) fn after_integer(&self) -> bool {
        matches!(self.tokens[self.at - 1].token, Token::Integer(_))
    }

    /// Returns whether a number directly follows another number.
    pub(super) fn number_follows_number(&self) -> bool {
        let number = |token: Option<&Token>| matches!(token, Some(Token::Integer(_) | Token::Decimal(..)));
        number(self.peek()) && number(Some(&self.tokens[self.at - 1].token))
    }

    /// Parses the proper fraction of a mixed number, such as `1/2` in `2 1/2`.
    pub(super) fn written_fraction(&mut self) -> Parsed<Expr> {
        match (self.next()?, self.next()?, self.next()?) {
            (Token::Integer(a), Token::Divide, Token::Integer(b)) if a < b && !a.is_zero() => {
                Ok(Expr::Number(RBig::from(a) / RBig::from(b)))
            }
            _ => Err(ParseError::Syntax),
        }
    }

    /// Parses a symbol with its subscript, or the application of a function of that name.
    pub(super) fn named(&mut self, start: usize, name: Box<str>) -> Parsed<Operand> {
        let subscripted = self.peek() == Some(&Token::Underscore);
        let name = match &self.tokens[start] {
            // math-verify maps a Greek letter to its name only if it is alone.
            Spanned { start, end, .. }
                if subscripted && self.parity && !self.text[*start..*end].is_ascii() =>
            {
                self.text[*start..*end].to_lowercase().into()
            }
            _ => name,
        };
        let name = if subscripted { self.subscripted(&name)? } else { name };
        let written = self.function_name(start, &name);
        Ok(match self.application()? {
            Some(arguments) => Expr::Apply(written, arguments).into(),
            None => Expr::Symbol(name).into(),
        })
    }

    /// Returns the name that words form.
    pub(super) fn text_name(&self, words: Box<str>) -> Parsed<Box<str>> {
        if self.parity { Ok(words) } else { lexer::text_name(&words, self.mode) }
    }

    /// Returns a function's name, with a capital first letter if the token at `start` is that capital.
    pub(super) fn function_name(&self, start: usize, name: &str) -> Box<str> {
        match self.tokens.get(start).map(|spanned| &spanned.token) {
            Some(Token::Letter(letter)) if letter.is_ascii_uppercase() => {
                format!("{letter}{}", &name[1.min(name.len())..]).into()
            }
            _ => name.into(),
        }
    }

    /// Parses the subscript `_x` or `_{..}` after a name.
    pub(super) fn subscripted(&mut self, name: &str) -> Parsed<Box<str>> {
        self.expect(&Token::Underscore)?;
        let subscript = match self.peek() {
            Some(Token::OpenBrace) => {
                let raw = self.raw_group()?;
                raw.chars().filter(|c| !c.is_whitespace()).collect::<String>()
            }
            Some(Token::Integer(_) | Token::Letter(_) | Token::Greek(_) | Token::Pi | Token::Text(_)) => {
                let spanned = &self.tokens[self.at];
                self.at += 1;
                if self.parity {
                    self.text[spanned.start..spanned.end].to_owned()
                } else {
                    spelled([&spanned.token])
                }
            }
            _ => return Err(ParseError::Syntax),
        };
        let subscript = if self.parity { subscript.to_lowercase() } else { subscript };
        if subscript.is_empty() {
            return Err(ParseError::Syntax);
        }
        Ok(if subscript.chars().count() == 1 {
            format!("{name}_{subscript}").into()
        } else {
            format!("{name}_{{{subscript}}}").into()
        })
    }

    /// Returns the source of a brace group without parsing it. In strict mode, it is the spelling of the tokens.
    pub(super) fn raw_group(&mut self) -> Parsed<String> {
        let open = self.tokens.get(self.at).ok_or(ParseError::Syntax)?;
        if open.token != Token::OpenBrace {
            return Err(ParseError::Syntax);
        }
        let from = open.end;
        let first = self.at + 1;
        let mut depth = 0usize;
        while let Some(spanned) = self.tokens.get(self.at) {
            self.at += 1;
            match spanned.token {
                Token::OpenBrace => depth += 1,
                Token::CloseBrace => {
                    depth -= 1;
                    if depth == 0 {
                        let inside = &self.tokens[first..self.at - 1];
                        return Ok(if self.parity {
                            self.text[from..spanned.start].to_owned()
                        } else {
                            spelled(inside.iter().map(|spanned| &spanned.token))
                        });
                    }
                }
                _ => {}
            }
        }
        Err(ParseError::Syntax)
    }

    /// Parses `(a, b)` after a name, if each argument is one symbol or number, or if there are several.
    pub(super) fn application(&mut self) -> Parsed<Option<Vec<Expr>>> {
        let close = match self.peek() {
            Some(Token::OpenParen) => Token::CloseParen,
            Some(Token::OpenBracket) => Token::CloseBracket,
            _ => return Ok(None),
        };
        let start = self.at;
        self.at += 1;
        let mut arguments = Vec::new();
        loop {
            let first = self.at;
            let argument = match self.peek() {
                Some(Token::Differential(_)) => self.simple_argument(first)?,
                Some(token) if token.is_atom() => self.simple_argument(first)?,
                _ => None,
            };
            let Some(argument) = argument else { break };
            arguments.push(argument);
            if self.accept(&Token::Comma) {
                continue;
            }
            // Two values in brackets are an interval.
            if close == Token::CloseBracket && arguments.len() > 1 && !self.parity {
                break;
            }
            if self.accept(&close) {
                return Ok(Some(arguments));
            }
            break;
        }
        self.at = start;
        // A single argument other than a symbol is a factor in parentheses.
        if close != Token::CloseParen || self.lists_tried == MAX_LISTS_TRIED {
            return Ok(None);
        }
        self.lists_tried += 1;
        self.at += 1;
        if let Ok(items) = self.items(false) {
            let plain =
                |value: &Expr| !value.is_set() && !value.is_relation() && !matches!(value, Expr::Tuple(_));
            let list = items.semicolons == 0 && items.values.len() > 1 && items.values.iter().all(plain);
            if list && self.accept(&close) {
                return Ok(Some(items.values));
            }
        }
        self.at = start;
        Ok(None)
    }

    pub(super) fn simple_argument(&mut self, start: usize) -> Parsed<Option<Expr>> {
        let token = self.next()?;
        let name: Box<str> = match token {
            Token::Integer(value) => return Ok(Some(Expr::Number(RBig::from(value)))),
            Token::Decimal(value, last) => return Ok(Some(Expr::Decimal(value, last))),
            Token::Letter('e') => return Ok(Some(Expr::Constant(Constant::E))),
            Token::Pi => return Ok(Some(Expr::Constant(Constant::Pi))),
            Token::Letter(letter) => letter_name(letter, self.mode),
            Token::Greek(name) => name.into(),
            Token::Text(words) => self.text_name(words)?,
            Token::Differential(name) => format!("d{name}").into(),
            _ => {
                self.at = start;
                return Ok(None);
            }
        };
        Ok(Some(Expr::Symbol(if self.peek() == Some(&Token::Underscore) {
            self.subscripted(&name)?
        } else {
            name
        })))
    }
}
