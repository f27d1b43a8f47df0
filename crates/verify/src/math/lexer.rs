//! Splits a normalised LaTeX answer into tokens.
//!
//! A command is the longest known name, as in math-verify: `\cosx` is `\cos` and `x`.

use dashu_base::UnsignedAbs;
use dashu_int::IBig;
use dashu_ratio::RBig;
use std::sync::LazyLock;

use super::Mode;
use super::budget::{MAX_DIGITS, MAX_TOKENS, ParseError};
use super::expr::{Function, NumberSet, Relation};
use crate::python_text::regex;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// Digits without a point.
    Integer(IBig),
    /// Digits with a point or an exponent, and the exponent of the last digit. See [`super::expr::Expr::Decimal`].
    Decimal(RBig, i64),
    Letter(char),
    /// `d` and the letter or greek letter after it.
    Differential(Box<str>),
    Greek(&'static str),
    /// Content of `\text{..}`: its letters in lower case without spaces or, in strict mode, the words as written.
    Text(Box<str>),
    /// Accents such as `\bar` and `\vec`, with the name in the command.
    Accent(&'static str),
    Function(Function),
    /// `\ln`, `\log`, `\exp`.
    Ln,
    Log,
    Exp,
    Operatorname,
    Frac,
    Binom,
    Choose,
    Over,
    Sqrt,
    Sum,
    Product,
    Integral,
    Limit,
    Approaches,
    Infinity,
    Pi,
    EulerE,
    EmptySet,
    NumberSet(NumberSet),
    Relation(Relation),
    Approximately,
    Element,
    NotElement,
    SubsetEq,
    SupersetEq,
    Union,
    Intersection,
    SetMinus,
    Plus,
    Minus,
    PlusMinus,
    MinusPlus,
    Times,
    Divide,
    Modulo,
    Caret,
    Underscore,
    Bang,
    Percent,
    Circle,
    Comma,
    Semicolon,
    /// `\lor` and `\land`, which only strict mode reads.
    Or,
    And,
    /// `\vee` and `\wedge` between propositions, and the sign of a ratio, which only strict mode reads.
    Vee,
    Wedge,
    Colon,
    Ampersand,
    RowEnd,
    OpenParen,
    CloseParen,
    OpenBracket,
    CloseBracket,
    OpenBrace,
    CloseBrace,
    /// `\{`
    OpenSet,
    CloseSet,
    /// A brace that only groups.
    OpenGroup,
    CloseGroup,
    Bar,
    OpenBar,
    CloseBar,
    OpenFloor,
    CloseFloor,
    OpenCeiling,
    CloseCeiling,
    Begin(Box<str>),
    End(Box<str>),
    /// `\boxed` and other commands that only wrap a group.
    Wrapper,
    /// `\partial`, as in a partial derivative.
    Partial,
    /// An arrow from one statement to the next, which only strict mode reads.
    Implies,
    /// An arrow in both directions, which only strict mode reads.
    Equivalent,
    /// A character or command without a meaning, which only strict mode keeps.
    Unknown(Box<str>),
}

impl Token {
    /// Returns whether the token is a number or a name.
    pub(super) fn is_atom(&self) -> bool {
        matches!(
            self,
            Self::Integer(_)
                | Self::Decimal(..)
                | Self::Letter(_)
                | Self::Greek(_)
                | Self::Text(_)
                | Self::Pi
        )
    }
}

/// A token with its start and end in the text.
#[derive(Debug, Clone)]
pub(super) struct Spanned {
    pub(super) token: Token,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Greek letters, each followed by its command.
const GREEK: &str = "\
    α alpha β beta γ gamma Γ Gamma δ delta Δ Delta ε epsilon ϵ varepsilon ζ zeta η eta θ theta Θ Theta \
    ϑ vartheta ι iota κ kappa λ lambda Λ Lambda μ mu ν nu ξ xi Ξ Xi ο omicron π pi Π Pi ϖ varpi ρ rho \
    ϱ varrho σ sigma Σ Sigma ς varsigma τ tau υ upsilon Υ Upsilon φ phi Φ Phi ϕ varphi χ chi ψ psi Ψ Psi \
    ω omega Ω Omega";

/// Commands that are names by themselves. Only strict mode keeps the dots.
const NAMED: &str = "varnothing ldots nabla prime angle triangle hbar ell";
/// Commands of accents that have only one name.
const ACCENTS: &str = "boldsymbol acute breve check grave ddot dot";

macro_rules! table {
    ($kind:ident: $($name:ident $(($inner:expr))? $commands:literal,)*) => {
        &[$(($kind::$name$(($inner))?, $commands)),*]
    };
}

/// Functions, each followed by its commands.
const FUNCTIONS: &[(Function, &str)] = table! {
    Function:
    Asinh "arcsinh arsinh", Acosh "arccosh arcosh", Atanh "arctanh artanh", Asin "arcsin", Acos "arccos", Atan "arctan",
    Acsc "arccsc", Asec "arcsec", Acot "arccot", Sinh "sinh", Cosh "cosh", Tanh "tanh", Sin "sin", Cos "cos", Tan "tan",
    Csc "csc", Sec "sec", Cot "cot", Floor "floor", Ceiling "ceil", Max "max", Min "min", Gcd "gcd", Lcm "lcm",
};

/// Other tokens, each followed by its commands.
const COMMANDS: &[(Token, &str)] = table! {
    Token:
    Approaches "longrightarrow Longrightarrow rightarrow Rightarrow to", EulerE "exponentialE",
    Operatorname "operatorname", Greek("re") "Re", Greek("im") "Im", Log "log", Ln "ln", Exp "exp",
    Frac "frac", Binom "dbinom tbinom binom", Choose "choose", Over "over", Sqrt "sqrt", Sum "sum",
    Product "prod", Integral "int", Limit "lim", Infinity "infty", EmptySet "emptyset",
    Relation(Relation::LessEqual) "leqslant leqq leq le",
    Relation(Relation::GreaterEqual) "geqslant geqq geq ge", Relation(Relation::NotEqual) "neq ne",
    Relation(Relation::Equal) "equiv", Approximately "approx", SubsetEq "subseteq", SupersetEq "supseteq",
    NotElement "notin", Union "cup", Intersection "cap", SetMinus "setminus", And "land", Or "lor",
    Times "times cdot", Divide "div", Modulo "mod", Circle "circ degree", OpenFloor "lfloor llcorner",
    CloseFloor "rfloor lrcorner", OpenCeiling "lceil ulcorner", CloseCeiling "rceil urcorner",
    OpenBar "lvert", CloseBar "rvert", Bar "vert", OpenSet "lbrace", CloseSet "rbrace", OpenParen "lgroup",
    CloseParen "rgroup", OpenBracket "lbrack", CloseBracket "rbrack", Wrapper "boxed fbox",
    Accent("vec") "overrightarrow vec", Accent("bar") "overline bar",
    Accent("math") "mathcal mathscr mathfrak mathring mathop mathsf mathtt", Accent("hat") "widehat hat",
    Accent("tilde") "widetilde tilde", Partial "partial", PlusMinus "pm", MinusPlus "mp", Vee "vee", Wedge "wedge", Relation(Relation::Less) "lt",
    Relation(Relation::Greater) "gt", Element "in",
};

/// Commands that are white space.
const SPACES: &str = "mleft mright left right qquad quad limits";

/// The tokens of commands, and the commands of Greek letters.
struct Names {
    tokens: Vec<(&'static str, Option<Token>)>,
    letters: Vec<(char, &'static str)>,
}

static NAMES: LazyLock<Names> = LazyLock::new(|| {
    let greek: Vec<&str> = GREEK.split(' ').collect();
    let letters = greek.chunks(2).filter_map(|pair| Some((pair[0].chars().next()?, pair[1])));
    let letters: Vec<(char, &str)> = letters.collect();
    let token = |command: &'static str| match command {
        "pi" | "Pi" => Token::Pi,
        "Gamma" => Token::Greek("Gamma"),
        // A capital letter has the name of the small letter, which comes first in the list.
        _ => Token::Greek(
            letters.iter().find(|(_, small)| small.eq_ignore_ascii_case(command)).map_or(command, |l| l.1),
        ),
    };
    let of_letters = letters.iter().map(|(_, command)| (*command, Some(token(command))));
    let mut tokens: Vec<(&str, Option<Token>)> = of_letters.collect();
    let mut add = |names: &'static str, token: &dyn Fn(&'static str) -> Option<Token>| {
        tokens.extend(names.split(' ').map(|name| (name, token(name))));
    };
    add(NAMED, &|name| Some(Token::Greek(name)));
    add(ACCENTS, &|name| Some(Token::Accent(name)));
    add(SPACES, &|_| None);
    FUNCTIONS.iter().for_each(|(function, names)| add(names, &|_| Some(Token::Function(*function))));
    COMMANDS.iter().for_each(|(token, names)| add(names, &|_| Some(token.clone())));
    Names { tokens, letters }
});

/// Returns the command for a Greek letter.
fn greek(letter: char) -> Option<&'static str> {
    NAMES.letters.iter().find(|(known, _)| *known == letter).map(|(_, command)| *command)
}

/// Sizes of brackets, which math-verify can't read.
const SIZES: &[&str] = &[
    "biggl", "biggr", "Biggl", "Biggr", "bigg", "Bigg", "bigl", "bigr", "Bigl", "Bigr", "bigm", "big", "Big",
];

/// Splits a normalised answer into tokens, as math-verify does.
pub(super) fn tokenize(text: &str) -> Result<Vec<Spanned>, ParseError> {
    let mut tokens: Vec<Spanned> = Vec::new();
    let mut start = 0;
    while start < text.len() {
        if tokens.len() > MAX_TOKENS {
            return Err(ParseError::Budget);
        }
        let (token, end) = token_at(text, start, Mode::Parity)?;
        tokens.extend(token.map(|token| Spanned { token, start, end }));
        start = end;
    }
    Ok(tokens)
}

/// Returns the token that starts at a position, or `None` for white space, and the position after it.
pub(super) fn token_at(text: &str, start: usize, mode: Mode) -> Result<(Option<Token>, usize), ParseError> {
    let bytes = text.as_bytes();
    let mut at = start;
    let byte = bytes[at];
    let token = match byte {
        b' ' | b'\t' | b'\n' | b'\r' => return Ok((None, at + 1)),
        b'0'..=b'9' | b'.' => return number(text, at, mode).map(|(token, end)| (Some(token), end)),
        b'\\' => return command(text, at, mode),
        // math-verify reads a trace here, and fails because a matrix doesn't follow.
        b't' if mode == Mode::Parity && bytes.get(at + 1) == Some(&b'r') => return Err(ParseError::Syntax),
        b'a'..=b'z' | b'A'..=b'Z' => {
            at += 1;
            match differential(text, at, mode).filter(|_| byte == b'd') {
                Some((name, end)) => {
                    at = end;
                    Token::Differential(name)
                }
                None => Token::Letter(byte as char),
            }
        }
        b'<' | b'>' | b'=' | b'!' => {
            let wide = bytes.get(at + 1) == Some(&b'=');
            let token = match (byte, wide) {
                (b'<', true) => Token::Relation(Relation::LessEqual),
                (b'<', false) => Token::Relation(Relation::Less),
                (b'>', true) => Token::Relation(Relation::GreaterEqual),
                (b'>', false) => Token::Relation(Relation::Greater),
                (b'!', true) => Token::Relation(Relation::NotEqual),
                (b'!', false) => Token::Bang,
                _ => Token::Relation(Relation::Equal),
            };
            at += 1 + usize::from(wide);
            token
        }
        b'+' => single(&mut at, Token::Plus),
        b'-' => single(&mut at, Token::Minus),
        b'*' => single(&mut at, Token::Times),
        b':' if mode == Mode::Strict => single(&mut at, Token::Colon),
        b'/' | b':' => single(&mut at, Token::Divide),
        b'^' => single(&mut at, Token::Caret),
        b'_' => single(&mut at, Token::Underscore),
        b'%' => single(&mut at, Token::Percent),
        b',' => single(&mut at, Token::Comma),
        b';' => single(&mut at, Token::Semicolon),
        b'&' => single(&mut at, Token::Ampersand),
        b'(' => single(&mut at, Token::OpenParen),
        b')' => single(&mut at, Token::CloseParen),
        b'[' => single(&mut at, Token::OpenBracket),
        b']' => single(&mut at, Token::CloseBracket),
        b'{' => single(&mut at, Token::OpenBrace),
        b'}' => single(&mut at, Token::CloseBrace),
        b'|' => single(&mut at, Token::Bar),
        _ => {
            let c = text[at..].chars().next().ok_or(ParseError::Syntax)?;
            at += c.len_utf8();
            if c.is_whitespace() {
                return Ok((None, at));
            }
            unicode(c, mode)?
        }
    };
    Ok((Some(token), at))
}

fn single(at: &mut usize, token: Token) -> Token {
    *at += 1;
    token
}

fn unicode(c: char, mode: Mode) -> Result<Token, ParseError> {
    let greek = greek(c).and_then(|name| NAMES.tokens.iter().find(|(command, _)| *command == name));
    if let Some((command, token)) = greek {
        return cased(command, token.clone(), mode).ok_or(ParseError::Syntax);
    }
    Ok(match c {
        '≤' => Token::Relation(Relation::LessEqual),
        '≥' => Token::Relation(Relation::GreaterEqual),
        '≠' => Token::Relation(Relation::NotEqual),
        '×' => Token::Times,
        '÷' => Token::Divide,
        '−' => Token::Minus,
        '±' => Token::PlusMinus,
        '∪' => Token::Union,
        '∩' => Token::Intersection,
        '∖' => Token::SetMinus,
        '∅' => Token::EmptySet,
        _ => return Err(ParseError::Syntax),
    })
}

pub(super) fn number(text: &str, start: usize, mode: Mode) -> Result<(Token, usize), ParseError> {
    let literal = regex!(r"^([0-9]*)(?:\.([0-9]*))?(?:E([+-]?[0-9]+))?").captures(&text[start..]);
    let literal = literal.ok_or(ParseError::Syntax)?;
    let whole = &literal[1];
    let [fraction, exponent] = [2, 3].map(|group| literal.get(group).map(|part| part.as_str()));
    if fraction == Some("") {
        return Err(ParseError::Syntax);
    }
    let end = start + literal[0].len();
    let shift: i64 = exponent.unwrap_or("0").parse().map_err(|_| ParseError::Budget)?;
    let digits = format!("{whole}{}", fraction.unwrap_or_default());
    if digits.len().max(shift.unsigned_abs() as usize) > MAX_DIGITS {
        return Err(ParseError::Budget);
    }
    let value = IBig::from_str_radix(&digits, 10).map_err(|_| ParseError::Syntax)?;
    if fraction.is_none() && exponent.is_none() {
        return Ok((Token::Integer(value), end));
    }
    let last = shift - fraction.map_or(0, str::len) as i64;
    Ok((Token::Decimal(scaled(value, last), if mode == Mode::Parity { 0 } else { last }), end))
}

/// Returns `mantissa * 10^exponent`.
pub(super) fn scaled(mantissa: IBig, exponent: i64) -> RBig {
    let power = IBig::from(10).pow(exponent.unsigned_abs() as usize);
    if exponent >= 0 {
        RBig::from(mantissa * power)
    } else {
        RBig::from_parts(mantissa, power.unsigned_abs())
    }
}

/// Spells tokens as a name, without spaces.
pub(super) fn spelled<'t>(tokens: impl IntoIterator<Item = &'t Token>) -> String {
    let mut name = String::new();
    for token in tokens {
        match token {
            Token::Letter(letter) => name.push(*letter),
            Token::Integer(value) => name.push_str(&value.to_string()),
            Token::Text(words) => name.extend(words.split_whitespace()),
            Token::Differential(variable) => name.extend(["d", variable]),
            Token::Greek(letter) => name.extend(["\\", letter]),
            Token::Comma => name.push(','),
            Token::OpenParen => name.push('('),
            Token::CloseParen => name.push(')'),
            Token::OpenBrace => name.push('{'),
            Token::CloseBrace => name.push('}'),
            other => name.push_str(&format!("{other:?}")),
        }
    }
    name
}

/// Returns the variable of a differential whose `d` is before `at`, and the position after the variable.
fn differential(text: &str, at: usize, mode: Mode) -> Option<(Box<str>, usize)> {
    let rest = &text[at..];
    let trimmed = rest.trim_start();
    let skipped = rest.len() - trimmed.len();
    let first = trimmed.chars().next()?;
    if first.is_ascii_alphabetic() {
        return Some((letter_name(first, mode), at + skipped + 1));
    }
    let name = trimmed.strip_prefix('\\')?;
    let (greek, length) = NAMES.tokens.iter().find_map(|(command, token)| match token {
        Some(Token::Greek(greek)) if name.starts_with(command) => Some((*greek, command.len())),
        _ => None,
    })?;
    Some((greek.into(), at + skipped + 1 + length))
}

/// Returns the name of a letter. math-verify has the same name for both cases.
pub(super) fn letter_name(letter: char, mode: Mode) -> Box<str> {
    let letter = if mode == Mode::Parity { letter.to_ascii_lowercase() } else { letter };
    letter.to_string().into()
}

fn command(text: &str, start: usize, mode: Mode) -> Result<(Option<Token>, usize), ParseError> {
    let rest = &text[start + 1..];
    let after = start + 2;
    match rest.as_bytes().first() {
        Some(b'{') => return Ok((Some(Token::OpenSet), after)),
        Some(b'}') => return Ok((Some(Token::CloseSet), after)),
        Some(b'|') => return Err(ParseError::Syntax),
        Some(b'%') => return Ok((Some(Token::Percent), after)),
        Some(b'\\') => return Ok((Some(Token::RowEnd), after)),
        Some(b',' | b';' | b':' | b'!' | b' ' | b'$') => return Ok((None, after)),
        Some(_) => {}
        None => return Err(ParseError::Syntax),
    }
    for (wrapper, kind) in [("text", 't'), ("mbox", 't'), ("begin", 'b'), ("end", 'e'), ("mathbb", 'm')] {
        let Some(tail) = rest.strip_prefix(wrapper) else { continue };
        let inside = tail.trim_start();
        // `\mathbb R`
        if kind == 'm' && mode == Mode::Strict && inside.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Ok((Some(number_set(&inside[..1])?), text.len() - inside.len() + 1));
        }
        let Some(inside) = inside.strip_prefix('{') else { continue };
        let Some(close) = inside.find('}') else { return Err(ParseError::Syntax) };
        let content = &inside[..close];
        let end = text.len() - (inside.len() - close - 1);
        let token = match kind {
            't' if mode == Mode::Parity => Token::Text(text_name(content, mode)?),
            't' => Token::Text(content.into()),
            'b' => Token::Begin(content.into()),
            'e' => Token::End(content.into()),
            _ => number_set(content.trim())?,
        };
        return Ok((Some(token), end));
    }
    let named = NAMES.tokens.iter().filter(|(name, _)| rest.starts_with(name));
    let found = named.max_by_key(|(name, _)| name.len());
    let strict = mode == Mode::Strict;
    match found {
        // math-verify reads them as a division and as parentheses.
        Some(("over", _)) if !strict => Ok((Some(Token::Divide), start + 5)),
        Some(("vee" | "wedge", _)) if !strict => Err(ParseError::Syntax),
        Some(("lbrace", _)) if !strict => Ok((Some(Token::OpenGroup), start + 7)),
        Some(("rbrace", _)) if !strict => Ok((Some(Token::CloseGroup), start + 7)),
        Some((name, token)) => Ok((cased(name, token.clone(), mode), start + 1 + name.len())),
        None => match SIZES.iter().find(|size| strict && rest.starts_with(**size)) {
            Some(size) => Ok((None, start + 1 + size.len())),
            None => Err(ParseError::Syntax),
        },
    }
}

/// Returns the token of a command or letter. In strict mode, a capital Greek letter is a different name than the small
/// letter.
fn cased(command: &'static str, token: Option<Token>, mode: Mode) -> Option<Token> {
    match token {
        Some(Token::MinusPlus) if mode == Mode::Parity => Some(Token::PlusMinus),
        Some(Token::Greek(_) | Token::Pi)
            if mode == Mode::Strict && command.starts_with(|c: char| c.is_ascii_uppercase()) =>
        {
            Some(Token::Greek(command))
        }
        token => token,
    }
}

/// Converts a word to lower case. A symbol such as `CO` is unchanged.
pub(super) fn folded(word: &str) -> String {
    const ANSWERS: [&str; 6] = ["yes", "no", "true", "none", "even", "odd"];
    let lower = word.to_lowercase();
    let symbol = (2..=4).contains(&word.len()) && word.chars().skip(1).any(char::is_uppercase);
    if symbol && !ANSWERS.contains(&&*lower) { word.to_owned() } else { lower }
}

/// Returns the name of words: their letters without spaces, in lower case. In strict mode, a single letter keeps its case.
pub(super) fn text_name(content: &str, mode: Mode) -> Result<Box<str>, ParseError> {
    if content.contains('{') {
        return Err(ParseError::Syntax);
    }
    let mut name: String = content.chars().filter(|c| !c.is_whitespace()).collect();
    // The command of a single letter is its name.
    if let Some(inside) = name.strip_prefix('\\') {
        name = inside.to_owned();
    }
    if mode == Mode::Parity {
        name.make_ascii_lowercase();
    } else if name.chars().filter(|c| c.is_alphabetic()).count() > 1 {
        name = folded(&name);
    }
    while let Some(inside) = name.strip_prefix('(').and_then(|n| n.strip_suffix(')')) {
        name = inside.to_owned();
    }
    let mut letters = name.chars();
    if let (Some(name), None) = (letters.next().and_then(greek), letters.next()) {
        return Ok(if mode == Mode::Parity { name.to_ascii_lowercase().into() } else { name.into() });
    }
    if name.is_empty() { Err(ParseError::Syntax) } else { Ok(name.into()) }
}

fn number_set(name: &str) -> Result<Token, ParseError> {
    Ok(Token::NumberSet(match name {
        "N" => NumberSet::Naturals,
        "Z" => NumberSet::Integers,
        "Q" => NumberSet::Rationals,
        "R" => NumberSet::Reals,
        "C" => NumberSet::Complexes,
        _ => return Err(ParseError::Syntax),
    }))
}
