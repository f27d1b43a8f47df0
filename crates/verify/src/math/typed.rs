//! Strict mode's answers. Each answer is read once and gets a type, which decides the types that can equal it.

use std::borrow::Cow;

use super::budget::{MAX_ANSWER, ParseError};
use super::compare::{self, Subject};
use super::expr::{Expr, Relation};
use super::finished::Open;
use super::lexer::{Token, folded, spelled};
use super::{
    MatchTypes, Options, answer, application, judge_values, latex, phrases, propositions, reader, residues,
    unread, vectors,
};
use crate::boxed;
use crate::finder::Reason;
use crate::python_text::regex;
use crate::statement;
use crate::verdict::{Outcome, Verdict};

/// Type of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number,
    Percentage,
    /// A value with its unit, or with the name of the counted things.
    Quantity,
    /// A name or a word.
    Name,
    Expression,
    /// A ratio or a time of day.
    Ratio,
    Equation,
    /// Inequalities, alone or joined.
    Condition,
    /// An interval or an expression of sets.
    Region,
    /// Two values in parentheses: a point or an open interval.
    Pair,
    Tuple,
    /// Values without braces, repeats included, or a single value in braces.
    List,
    /// Several values in braces, or alternatives joined by "or".
    Set,
    Matrix,
}

impl Kind {
    fn of(expr: &Expr, braced: bool) -> Self {
        match expr {
            Expr::Number(_) | Expr::Decimal(..) => Self::Number,
            Expr::Percent(_) => Self::Percentage,
            Expr::Quantity(..) => Self::Quantity,
            Expr::Symbol(_) => Self::Name,
            Expr::Ratio(_) => Self::Ratio,
            Expr::Matrix(..) => Self::Matrix,
            Expr::Tuple(_) => Self::Tuple,
            Expr::Interval(_, true, true) => Self::Pair,
            // Coordinates by their letters: `x=1, y=2`.
            Expr::Set(_)
                if !braced
                    && compare::named(expr).is_some()
                    && expr.symbols().iter().all(|name| name.len() == 1) =>
            {
                Self::Tuple
            }
            Expr::Set(_) => {
                if braced {
                    Self::Set
                } else {
                    Self::List
                }
            }
            Expr::Relation(Relation::Equal, pair) if braced && matches!(pair[1], Expr::Set(_)) => Self::Set,
            // A point by its coordinates or its name.
            Expr::Relation(Relation::Equal, pair)
                if matches!(pair[1], Expr::Tuple(_) | Expr::Interval(_, true, true))
                    && (compare::is_point(&pair[0])
                        || matches!(&pair[0], Expr::Symbol(name) if matches!(&**name, "P" | "Q"))) =>
            {
                Self::Tuple
            }
            Expr::Relation(Relation::Equal, _) => Self::Equation,
            Expr::Chain(links) if links.iter().all(|link| Self::of(link, false) == Self::Equation) => {
                Self::Equation
            }
            other if other.is_relation() || other.is_set() && other.any(&Expr::is_relation) => {
                Self::Condition
            }
            other if other.is_set() => Self::Region,
            _ => Self::Expression,
        }
    }

    /// Returns whether answers of these two types can be equal.
    fn can_equal(self, other: Self) -> bool {
        use Kind::{
            Condition, Equation, Expression, List, Matrix, Name, Number, Pair, Percentage, Quantity, Ratio,
            Region, Set, Tuple,
        };
        let listed = |first, second| match first {
            // An equation states a value, a quantity has one, and a list may give one value in several forms.
            Equation | Quantity | List => true,
            Expression => matches!(second, Number | Percentage | Name | Ratio | Matrix | Tuple | Pair),
            Number => matches!(second, Percentage | Ratio),
            Percentage => second == Ratio,
            Pair => matches!(second, Tuple | Matrix | Region | Condition),
            Tuple => second == Matrix,
            Region => matches!(second, Condition | Set),
            Condition => second == Set,
            Name | Ratio | Set | Matrix => false,
        };
        self == other || listed(self, other) || listed(other, self)
    }
}

/// An answer that was read.
#[derive(Debug, Clone, Default)]
pub(super) struct Answer {
    /// The tokens of its parts, with commas between them; equal tokens are equal answers.
    pub(super) tokens: Vec<Token>,
    /// The value, or `None` if the answer is only text.
    pub(super) subject: Option<Subject>,
    /// Whether a part exceeds the budget.
    pub(super) over_budget: bool,
    /// Reason why an answer wasn't found in the response, or `None` if one was found.
    fault: Option<Reason>,
    /// Whether the order doesn't count: a list in braces, or alternatives.
    braced: bool,
    /// The letter of the option before the value, as in `\textbf{(D)}\ 45`.
    letter: Option<char>,
}

impl Answer {
    /// Reads a gold. The whole gold is the answer, unless `types` names the notations to search for in it.
    pub(super) fn of_gold(gold: &str, types: Option<MatchTypes>) -> Self {
        let gold = &*boxed::halfwidth(gold);
        let gold = &*regex!(r"\\tag\*?\{[^{}]*\}").replace_all(gold, "");
        let Some(types) = types else { return Self::read(&[gold.into()]) };
        // The author of a gold states it, in any words.
        let any = |_| vec![boxed::last_closed(gold).unwrap_or(gold).into()];
        Self::read(&answer::find(gold, types.latex, types.expr).unwrap_or_else(any))
    }

    /// Finds the answer of a completion and reads it.
    pub(super) fn of_response(response: &str, types: MatchTypes) -> Self {
        // Markdown's bold italics are bold to the patterns of plain answers.
        let mut response = boxed::halfwidth(response).replace("***", "**");
        if response.contains('`') {
            response = regex!(r"(^|[^`])`([^`\n]+)`").replace_all(&response, "$1$2").into_owned();
        }
        if response.contains('*') {
            const ITALICS: &str = r"(^|[\s(])\*([^*\s]+)\*([\s.,;:!?)]|$)";
            response = regex!(ITALICS).replace_all(&response, "$1$2$3").into_owned();
        }
        let response = answer::prepared(&response);
        let marks = |c: char| c.is_whitespace() || statement::is_decoration(c);
        match answer::find(response.trim_end_matches(marks), types.latex, types.expr) {
            Ok(parts) => Self::read(&parts),
            Err(reason) => Self { fault: Some(reason), ..Self::default() },
        }
    }

    /// Reads the parts of an answer. Several parts are a list.
    pub(super) fn read(stated: &[Cow<'_, str>]) -> Self {
        let mut answer = Self::default();
        let mut values: Vec<Expr> = Vec::new();
        let mut open = Open::default();
        let mut rounded = false;
        let mut parts: Vec<Vec<Token>> = Vec::new();
        for part in stated {
            if part.len() > MAX_ANSWER {
                return Self { over_budget: true, ..Self::default() };
            }
            let (letter, part) =
                lettered(part).map_or((None, &**part), |(letter, rest)| (Some(letter), rest));
            answer.letter = answer.letter.or(letter);
            let part = &*phrases::standard(part);
            let vector = vector(part);
            let Ok(tokens) =
                vector.as_ref().map_or_else(|| reader::tokens(part), |(tokens, _)| Ok(tokens.clone()))
            else {
                return Self { over_budget: true, ..Self::default() };
            };
            // One answer that is stated twice.
            if parts.contains(&tokens) {
                continue;
            }
            rounded |= tokens.contains(&Token::Approximately);
            let parsed = vector
                .map(|(_, value)| Ok(value))
                .or_else(|| piecewise(part))
                .unwrap_or_else(|| parse(&tokens));
            if !tokens.is_empty() {
                parts.push(tokens);
            }
            match parsed {
                Ok((expr, done)) => {
                    open = open.with(done);
                    let inner = match expr {
                        Expr::Set(inner) if stated.len() > 1 => inner,
                        // Brackets that are turned outwards are around an interval and nothing else.
                        Expr::Interval(..) if regex!(r"^[\s$]*(?:\\left\s*)?\]").is_match(part) => {
                            vec![Expr::Union(vec![expr])]
                        }
                        other => vec![other],
                    };
                    values.extend(inner);
                }
                Err(error) => {
                    answer.over_budget |= error == ParseError::Budget;
                    values.clear();
                    break;
                }
            }
        }
        if let [tokens] = &parts[..] {
            let bracketed = matches!(tokens[..], [Token::OpenSet, .., Token::CloseSet]);
            answer.braced = bracketed
                && values.iter().all(
                    |value| matches!(value, Expr::Set(inner) if inner.len() > 1 && !inner.iter().any(Expr::is_set)),
                );
            // Alternatives have no order either.
            answer.braced |= tokens.iter().any(|token| matches!(token, Token::Or | Token::Vee))
                && match &values[..] {
                    [Expr::Relation(Relation::Equal, pair)] => matches!(pair[1], Expr::Set(_)),
                    values => matches!(values, [Expr::Set(_)]),
                };
            let element = tokens.windows(2).any(|pair| *pair == [Token::Element, Token::OpenSet]);
            answer.braced |= element && tokens.last() == Some(&Token::CloseSet);
        }
        answer.tokens = parts.join(&Token::Comma);
        answer.subject = match values.len() {
            0 => None,
            1 => values.pop(),
            _ => Some(Expr::Set(values)),
        }
        .map(|expr| Subject { expr, complex: false, rounded, open });
        answer
    }

    /// Returns whether more than the two values decides the verdict: the answer's braces, equal tokens, or `5=5`.
    pub(super) fn decides_alone(&self, answer: &Self) -> bool {
        answer.braced || self.same_words(answer) || answer.is_empty_equation()
    }

    /// Returns whether the tokens are the same. Case and braces don't count if neither answer has a value.
    fn same_words(&self, answer: &Self) -> bool {
        !self.tokens.is_empty()
            && (self.tokens == answer.tokens
                || self.subject.is_none() && answer.subject.is_none() && self.folded() == answer.folded())
    }

    /// Returns the words for a comparison. Single letters and symbols keep their case, and numbers stay separate.
    fn folded(&self) -> String {
        let mut words = String::new();
        let is_letter = |token: &Token| matches!(token, Token::Letter(_));
        for tokens in self.tokens.chunk_by(|first, second| is_letter(first) && is_letter(second)) {
            let word = match &tokens[0] {
                Token::OpenBrace | Token::CloseBrace => continue,
                Token::Text(text) => {
                    text.split_whitespace().map(|word| folded(&word.replace('.', ""))).collect()
                }
                Token::Letter(_) if tokens.len() > 2 => folded(&spelled(tokens)),
                _ => spelled(tokens),
            };
            if matches!(tokens[0], Token::Integer(_)) && words.ends_with(|c: char| c.is_ascii_digit()) {
                words.push(' ');
            }
            words.push_str(&word);
        }
        words
    }

    /// Returns whether the answer is an equation of two identical sides, such as `5=5`.
    fn is_empty_equation(&self) -> bool {
        let equal = self.tokens.iter().position(|token| *token == Token::Relation(Relation::Equal));
        equal.is_some_and(|at| self.tokens[..at] == self.tokens[at + 1..])
    }

    /// Compares an answer with this gold.
    pub(super) fn judge(&self, answer: &Self, options: &Options) -> Outcome {
        if self.subject.is_none() && self.tokens.is_empty() {
            return Outcome::new(Verdict::Unscorable, "gold");
        }
        if let Some(reason) = answer.fault {
            return reason.into();
        }
        // The letter of an option stands for its value.
        if let Some(letter) = self.letter {
            let bare = |token: &&Token| !matches!(token, Token::OpenParen | Token::CloseParen);
            let same = answer.tokens.iter().filter(bare).eq([&Token::Letter(letter)]);
            let other = answer.letter.is_some_and(|other| other != letter);
            if other || same {
                let verdict = if other { Verdict::Wrong } else { Verdict::Correct };
                return Outcome::new(verdict, "exact");
            }
        }
        if self.same_words(answer) {
            return Outcome::new(Verdict::Correct, "exact");
        }
        let (Some(gold), Some(subject)) = (&self.subject, &answer.subject) else {
            return unread(self.subject.is_some(), !answer.tokens.is_empty(), answer.over_budget);
        };
        // A residue is a remainder only below its modulus.
        let integer = |value: &Expr| matches!(value, Expr::Number(number) if number.is_int());
        if integer(&gold.expr) && !is_remainder(&subject.expr)
            || integer(&subject.expr) && !is_remainder(&gold.expr)
        {
            return Outcome::new(Verdict::Wrong, "exact");
        }
        // What is only nearly equal isn't a formula or an exact integer.
        let stated = match &gold.expr {
            Expr::Relation(Relation::Equal, pair) => &pair[1],
            other => other,
        };
        if subject.rounded && !gold.rounded && (integer(stated) || stated.has_unknowns()) {
            return Outcome::new(Verdict::Wrong, "exact");
        }
        if let Some(equal) = residues::same_class(&gold.expr, &subject.expr) {
            return Outcome::new(if equal { Verdict::Correct } else { Verdict::Wrong }, "exact");
        }
        let kinds = [Kind::of(&gold.expr, self.braced), Kind::of(&subject.expr, answer.braced)];
        if answer.is_empty_equation() || !kinds[0].can_equal(kinds[1]) {
            return Outcome::new(Verdict::Wrong, "exact");
        }
        judge_values(gold, subject, options)
    }
}

/// Returns whether a value is at least 0 and less than its modulus, if it has one.
fn is_remainder(value: &Expr) -> bool {
    let Expr::Quantity(value, unit) = value else { return true };
    let modulus = unit.modulus().and_then(|modulus| modulus.parse::<i64>().ok());
    let value = value.as_integer().and_then(|value| i64::try_from(value).ok());
    modulus.zip(value).is_none_or(|(modulus, value)| (0..modulus).contains(&value))
}

/// Returns the letter of an option and the value after it: `\textbf{(D)}\ 45`, `(D) 45`.
fn lettered(text: &str) -> Option<(char, &str)> {
    const COMMAND: &str = concat!(
        r"(?s)^[\s$]*(?:\\(?:textbf|mathbf|text|textrm|mathrm|bf)\s*\{\s*\(?([A-E])\s*[).:]+\s*\}(?:\\[ ,;:!]|\\q?quad\b|[~\s:])*|",
        r"\(?([A-E])\)(?:\\[ ,;:!]|\\q?quad\b|[~\s])+)(\S*\w.*)$"
    );
    let inside = regex!(r"^[\s$]*\\text(?:bf)?\s*\{\s*(\(?[A-E]\)\s[^{}]*)\}[\s$]*$").captures(text);
    let text = inside.and_then(|found| found.get(1)).map_or(text, |inside| inside.as_str());
    let found = regex!(COMMAND).captures(text)?;
    let letter = found.get(1).or(found.get(2))?.as_str().chars().next()?;
    Some((letter, found.get(3)?.as_str()))
}

/// Reads a piecewise function as a set of pairs, each a value and its condition. `None` for a system of equations.
fn piecewise(text: &str) -> Option<Result<(Expr, Open), ParseError>> {
    let (head, rest) = text.split_once("\\begin{cases}")?;
    let (body, tail) = rest.split_once("\\end{cases}")?;
    if tail.contains(|c: char| c.is_alphanumeric()) {
        return None;
    }
    let mut open = Open::default();
    let mut read = |text: &str| {
        let text = text.trim_matches(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | '.' | '&'));
        let (value, done) = parse(&reader::tokens(text)?)?;
        open = open.with(done);
        Ok(value)
    };
    const CONDITION: &str = r"&|,?\s*(?:\\(?:text|mbox|textrm|mathrm)\{[\s,]*)?\b(?:if|for|when|otherwise|else)\b|\\(?:text|mbox)\{[\s,]*(?:if|for|when|otherwise|else)\b";
    const WORD: &str = r"^[\s&,]*(?:\\(?:text|mbox|textrm|mathrm)\{)?[\s,]*(?:if|for|when)?\b\s*\}?";
    let mut rows = Vec::new();
    for row in body.split("\\\\").filter(|row| !row.trim().is_empty()) {
        let (start, bare) = match (regex!(CONDITION).find(row), row.rsplit_once(',')) {
            (Some(found), _) => (found.start(), false),
            (None, Some((value, _))) => (value.len(), true),
            _ => return None,
        };
        let (value, condition) = row.split_at(start);
        let condition = regex!(WORD).replace(&condition[usize::from(bare)..], "");
        if value.trim().is_empty() || condition.trim().is_empty() && !row.contains("otherwise") {
            return None;
        }
        // A system of equations.
        if value.contains('=') || condition.trim_start().starts_with('=') {
            return None;
        }
        let condition = if condition.contains("otherwise") || condition.contains("else") {
            Ok(Expr::symbol("otherwise"))
        } else {
            read(&condition)
        };
        match (read(value), condition) {
            (Ok(value), Ok(condition)) => rows.push(Expr::Tuple(vec![value, condition])),
            (Err(error), _) | (_, Err(error)) => return Some(Err(error)),
        }
    }
    let cases = Expr::Set(rows);
    let head = head.trim().trim_start_matches('$').trim();
    let Some(name) = head.strip_suffix('=') else {
        return head.is_empty().then_some(Ok((cases, open)));
    };
    Some(read(name).map(|name| (Expr::relation(Relation::Equal, name, cases), open)))
}

/// Returns the tokens of a sum of multiples of unit vectors, and the tuple of components. `None` for other answers.
fn vector(text: &str) -> Option<(Vec<Token>, (Expr, Open))> {
    let named = vectors::with_units(text);
    let plain = named.is_none();
    if plain && !(text.contains('j') && text.contains(['i', 'k'])) {
        return None;
    }
    let tokens = reader::tokens(named.as_deref().unwrap_or(text)).ok()?;
    let (value, open) = parse(&tokens).ok()?;
    Some((tokens, (vectors::components(&value, plain)?, open)))
}

/// Parses one part of an answer: all of it, the text after its last arrow, or an equation as in [`application`].
fn parse(tokens: &[Token]) -> Result<(Expr, Open), ParseError> {
    if let Some(formula) = propositions::read(tokens) {
        return Ok((formula, Open::default()));
    }
    let whole = latex::parse_strictly(tokens);
    if whole != Err(ParseError::Syntax) {
        return whole;
    }
    // `2x=6 \Rightarrow x=3` states `x=3`.
    let is_arrow = |token: &Token| matches!(token, Token::Implies | Token::Equivalent);
    let arrow = tokens.iter().rposition(is_arrow);
    if let Some(arrow) = arrow {
        let from = tokens[..arrow].iter().rposition(is_arrow).map_or(0, |at| at + 1);
        let before = &tokens[from..arrow];
        let before = before.strip_suffix(&[Token::Comma]).unwrap_or(before);
        if latex::parse_strictly(before).is_ok_and(|(given, _)| given.is_relation()) {
            return latex::parse_strictly(&tokens[arrow + 1..]);
        }
    }
    let Some((name, rest)) = application::stated(tokens) else { return whole };
    let (said, done) = latex::parse_strictly(rest)?;
    let equal = |value: Expr| Expr::relation(Relation::Equal, Expr::symbol(&spelled(name)), value);
    match said {
        Expr::Relation(Relation::Equal, ref sides) => {
            Ok((Expr::Chain(vec![equal(sides[0].clone()), said]), done))
        }
        value if !value.is_relation() => Ok((equal(value), done)),
        _ => whole,
    }
}
