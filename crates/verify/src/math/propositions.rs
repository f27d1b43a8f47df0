//! Formulas of propositions, which are equal if they are true in the same cases.

use super::expr::Expr;
use super::lexer::{Token, spelled};

/// Maximum number of letters in a formula.
const MOST: usize = 6;

/// Parses a formula of letters and connectives. The result names the cases in which the formula is true.
pub(super) fn read(tokens: &[Token]) -> Option<Expr> {
    let connects = |token: &Token| precedence(token).is_some() || is_negation(token);
    if !tokens.iter().any(connects) || tokens.len() > 64 {
        return None;
    }
    let letter = |token: &Token| matches!(token, Token::Letter(_) | Token::Greek(_));
    let mut letters: Vec<String> =
        tokens.iter().filter(|token| letter(token)).map(|token| spelled([token])).collect();
    letters.sort();
    letters.dedup();
    if letters.is_empty() || letters.len() > MOST {
        return None;
    }
    let mut formula = Formula { tokens, letters: &letters, at: 0 };
    let cases = formula.joined(0)?;
    if formula.at < tokens.len() {
        return None;
    }
    let symbols = letters.iter().map(|letter| Expr::symbol(letter)).collect();
    Some(Expr::Apply(format!("true in {cases:b}").into(), symbols))
}

/// Returns the precedence of a connective: a higher one binds more tightly.
fn precedence(token: &Token) -> Option<u8> {
    match token {
        Token::Equivalent => Some(0),
        Token::Implies | Token::Approaches => Some(1),
        Token::Vee => Some(2),
        Token::Wedge => Some(3),
        _ => None,
    }
}

fn is_negation(token: &Token) -> bool {
    matches!(token, Token::Unknown(sign) if matches!(&**sign, "\\neg" | "\\sim" | "¬"))
}

struct Formula<'a> {
    tokens: &'a [Token],
    letters: &'a [String],
    at: usize,
}

/// The cases in which a formula is true: one bit for each assignment of truth values to the letters.
type Cases = u64;

impl Formula<'_> {
    /// Returns all cases.
    fn all(&self) -> Cases {
        Cases::MAX >> (64 - (1u32 << self.letters.len()))
    }

    /// Parses a formula of connectives with at least the precedence `least`.
    fn joined(&mut self, least: u8) -> Option<Cases> {
        let mut left = self.single()?;
        while let Some(sign) = self.tokens.get(self.at)
            && let Some(close) = precedence(sign).filter(|close| *close >= least)
        {
            self.at += 1;
            // An implication joins from the right.
            let right = self.joined(close + u8::from(close != 1))?;
            left = match close {
                0 => !(left ^ right),
                1 => !left | right,
                2 => left | right,
                _ => left & right,
            } & self.all();
        }
        Some(left)
    }

    fn single(&mut self) -> Option<Cases> {
        let token = self.tokens.get(self.at)?;
        self.at += 1;
        match token {
            token if is_negation(token) => Some(!self.single()? & self.all()),
            Token::OpenParen | Token::OpenBracket => {
                let inside = self.joined(0)?;
                let close = self.tokens.get(self.at)?;
                self.at += 1;
                matches!(close, Token::CloseParen | Token::CloseBracket).then_some(inside)
            }
            token => {
                let name = spelled([token]);
                let place = self.letters.iter().position(|letter| *letter == name)?;
                let cases = (0..1u32 << self.letters.len()).filter(|case| case >> place & 1 == 1);
                Some(cases.fold(0, |all, case| all | 1 << case))
            }
        }
    }
}
