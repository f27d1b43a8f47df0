//! Equations for a quantity in a notation that the parser doesn't read: `P(X=2)=\frac12`, `\|v\|=5`, `\det A=-2`.
//!
//! Only a single application is read as the name of a value. Other unreadable notation stays unreadable.

use super::expr::Function;
use super::lexer::Token;

/// Splits an equation at its equals sign, if the first side is a single application.
pub(super) fn stated(tokens: &[Token]) -> Option<(&[Token], &[Token])> {
    let equal = Token::Relation(super::expr::Relation::Equal);
    let ends = (1..tokens.len()).filter(|at| tokens[*at] == equal);
    let end = ends.into_iter().find(|at| is_application(&tokens[..*at]))?;
    Some((&tokens[..end], &tokens[end + 1..]))
}

/// Returns whether the tokens are an operator or a name, each with its scripts, and one argument, or a norm.
fn is_application(tokens: &[Token]) -> bool {
    let unknown =
        |token: &Token, names: &[&str]| matches!(token, Token::Unknown(name) if names.contains(&&**name));
    let bar = |token: &Token| {
        matches!(token, Token::Bar | Token::OpenBar | Token::CloseBar)
            || unknown(token, &["\\|", "\\lVert", "\\rVert"])
    };
    if let [first, inside @ .., last] = tokens
        && bar(first)
        && bar(last)
    {
        return !inside.is_empty() && !inside.iter().any(bar);
    }
    let operator = |token: &Token| {
        matches!(token, Token::Function(Function::Max | Function::Min))
            || unknown(token, &["\\det", "\\dim", "\\deg", "\\sup", "\\Pr"])
    };
    let operated = tokens.first().is_some_and(operator);
    let rest = without_scripts(&tokens[usize::from(operated)..]);
    if operated && (is_argument(rest) || matches!(rest, [Token::Letter(_) | Token::Greek(_)])) {
        return true;
    }
    let name = match rest {
        [Token::Text(_) | Token::Greek(_) | Token::NumberSet(_), ..] => 1,
        [first, ..] if *first == Token::Accent("math") || unknown(first, &["\\mathbb"]) => {
            1 + group(&rest[1..], &Token::OpenBrace, &Token::CloseBrace).unwrap_or(0)
        }
        [Token::OpenParen, ..] => group(rest, &Token::OpenParen, &Token::CloseParen).unwrap_or(0),
        _ => rest.iter().take_while(|token| matches!(token, Token::Letter(_))).count(),
    };
    name > 0 && is_argument(without_scripts(&rest[name..]))
}

/// Returns the tokens after the subscripts and exponents at the beginning.
fn without_scripts(tokens: &[Token]) -> &[Token] {
    match tokens {
        [Token::Underscore | Token::Caret, rest @ ..] => {
            let length = group(rest, &Token::OpenBrace, &Token::CloseBrace).unwrap_or(1);
            without_scripts(rest.get(length..).unwrap_or_default())
        }
        other => other,
    }
}

/// Returns whether one pair of parentheses or brackets is around all of the tokens.
fn is_argument(tokens: &[Token]) -> bool {
    [(Token::OpenParen, Token::CloseParen), (Token::OpenBracket, Token::CloseBracket)]
        .iter()
        .any(|(open, close)| group(tokens, open, close) == Some(tokens.len()))
}

/// Returns the length of the bracketed group with which the tokens begin.
fn group(tokens: &[Token], open: &Token, close: &Token) -> Option<usize> {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate() {
        depth += usize::from(token == open);
        if token == close {
            depth = depth.checked_sub(1)?;
        }
        if depth == 0 {
            return (at > 0).then_some(at + 1);
        }
    }
    None
}
