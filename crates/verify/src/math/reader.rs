//! Strict mode's reader, which converts the characters of an answer to tokens in one pass.
//!
//! Colours, bold type, sizes, spaces, lead-ins and delimiters are dropped. Words after a value become its unit, number
//! words and "percent" become values, and connectives become separators. Everything unknown is [`Token::Unknown`], which
//! the parser rejects.

use std::collections::HashMap;
use std::sync::LazyLock;

use dashu_int::IBig;

use super::Mode;
use super::budget::{MAX_TOKENS, ParseError};
use super::expr::{Function, NumberSet};
use super::lexer::{self, Token};
use super::units;
use super::words::{NUMBERS, SCALES, TENS, Words, base, is_scale, listed, number_in_words, section, spoken};
use crate::python_text::regex;

const SUPERSCRIPTS: &str = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻";
const SUBSCRIPTS: &str = "₀₁₂₃₄₅₆₇₈₉₋";

/// Commands without effect on the value. Line `n`, from 0, lists the commands that are dropped with the `n` groups
/// after them. A further group, such as the text of a colour, stays.
static DROPPED: LazyLock<Vec<&str>> = LazyLock::new(|| section("dropped commands").lines().collect());

/// Commands whose group is text.
static TEXTS: Words = LazyLock::new(|| listed("text commands"));

/// Commands, each followed by its replacement: a simpler spelling, or the name by which the parser knows its meaning.
static SPELLINGS: Spellings = LazyLock::new(|| pairs("spellings of commands"));

/// Characters, each before its spelling in LaTeX.
static CHARACTERS: Spellings = LazyLock::new(|| pairs("spellings of characters"));

/// Names of functions and constants that may be written without a backslash.
static FUNCTIONS: Words = LazyLock::new(|| listed("names without a backslash"));

/// Words that only introduce the answer.
static LEADING: Words = LazyLock::new(|| listed("words that introduce an answer"));

/// Verbs after a subject. Both are dropped, as in `the number of ways is 8`.
const VERBS: &[&str] = &["is", "are", "equals", "be"];

/// Short words that are answers by themselves, or begin one.
const ANSWERS: &[&str] = &["yes", "no", "true", "false", "none", "even", "odd", "dne", "undefined", "all"];

/// Prepositions and other short words that can follow a value.
const SHORT: &[&str] = &["per", "in", "for", "each", "out", "all", "by"];

/// Environments whose rows are statements, not rows of a matrix.
static STATEMENTS: Words = LazyLock::new(|| listed("environments of statements"));

const CURRENCIES: &[(char, &str)] =
    &[('€', "euro"), ('£', "sterling"), ('¥', "yen"), ('₹', "rupee"), ('¢', "cent")];

/// The replacement of each command or character.
type Spellings = LazyLock<HashMap<&'static str, &'static str>>;

/// Reads a section of pairs: a command or character, and its replacement.
fn pairs(name: &str) -> HashMap<&'static str, &'static str> {
    let mut words = section(name).split_whitespace();
    std::iter::from_fn(|| words.next().zip(words.next())).collect()
}

/// Converts an answer to tokens, without the parts that don't affect its value.
pub(super) fn tokens(raw: &str) -> Result<Vec<Token>, ParseError> {
    if !raw.is_empty() && raw.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(vec![lexer::number(raw, 0, Mode::Strict)?.0]);
    }
    // Digits beyond nine have no case: `2F_{16}`, `0x2f`.
    const HEXADECIMAL: &str = concat!(
        r"^\s*(?:0x([0-9A-Fa-f]+)|(?:\\(?:text|mathrm|texttt)\{)?([0-9][0-9A-Fa-f]*[A-Fa-f][0-9A-Fa-f]*|[A-F][0-9A-F]+)\}?",
        r"_\s*\{?\(?16\)?\}?)\s*$"
    );
    if (raw.contains("16") || raw.contains("0x"))
        && let Some(found) = regex!(HEXADECIMAL).captures(raw)
    {
        let digits = found.get(1).or(found.get(2)).map_or("", |digits| digits.as_str());
        return Ok(vec![Token::Text(format!("base 16 {}", digits.to_ascii_lowercase()).into())]);
    }
    // A decimal comma, because thousands never begin with a zero.
    if let Some(decimals) = raw
        .strip_prefix("0,")
        .filter(|digits| digits.parse().is_ok_and(|value: u16| (1..1000).contains(&value)))
    {
        return Ok(vec![lexer::number(&format!("0.{decimals}"), 0, Mode::Strict)?.0]);
    }
    let raw = without_domain(raw.trim_start().strip_prefix('=').unwrap_or(raw));
    let mut reader = Reader {
        thousands: separates_thousands(raw),
        congruent: raw.contains("\\equiv") || raw.contains('≡'),
        ..Reader::default()
    };
    reader.text(without_delimiters(raw), 0);
    reader.flush("");
    if reader.excludes {
        reader.push(Token::CloseSet);
    }
    if let Some(unit) = reader.currency.filter(|_| !reader.has_unit) {
        reader.push(Token::Text(unit.into()));
    }
    if reader.over_budget { Err(ParseError::Budget) } else { Ok(trimmed(reader.tokens)) }
}

/// Removes punctuation, and braces around all of the tokens.
fn trimmed(mut tokens: Vec<Token>) -> Vec<Token> {
    loop {
        match &tokens[..] {
            // The condition of a set of reals: `\{x : 0<x<1\}`.
            [
                Token::OpenSet,
                Token::Letter(_),
                Token::Bar | Token::Colon,
                condition @ ..,
                Token::CloseSet,
            ]
            | [
                Token::OpenSet,
                Token::Letter(_),
                Token::Element,
                Token::NumberSet(NumberSet::Reals) | Token::Letter('R'),
                Token::Bar | Token::Colon,
                condition @ ..,
                Token::CloseSet,
            ] if condition.iter().any(|token| matches!(token, Token::Relation(_) | Token::Element)) => {
                tokens = condition.to_vec();
            }
            // `\{2k\pi: k\in\mathbb{Z}\}`
            [
                Token::OpenSet,
                ..,
                Token::Bar | Token::Colon,
                Token::Letter(_),
                Token::Element,
                Token::NumberSet(_),
                Token::CloseSet,
            ] => {
                tokens.pop();
                tokens.remove(0);
                let bar = tokens.len() - 4;
                tokens[bar] = Token::Comma;
            }
            [.., Token::Comma | Token::Semicolon | Token::Colon] => tokens.truncate(tokens.len() - 1),
            // An exclamation mark after a word isn't a factorial.
            [.., Token::Text(word), Token::Bang] if word.len() > 1 => tokens.truncate(tokens.len() - 1),
            // `A)`
            [Token::Letter(_), Token::CloseParen] => tokens.truncate(1),
            // `{n \choose k}` needs its braces.
            [Token::OpenBrace, inner @ .., Token::CloseBrace]
                if is_balanced(inner) && !inner.contains(&Token::Choose) =>
            {
                tokens = inner.to_vec();
            }
            [Token::Integer(_) | Token::Decimal(..), Token::Caret, Token::Circle]
            | [
                Token::Integer(_) | Token::Decimal(..),
                Token::Caret,
                Token::OpenBrace,
                Token::Circle,
                Token::CloseBrace,
            ] => {
                tokens.truncate(1);
                tokens.push(Token::Text("degree".into()));
            }
            _ => break,
        }
    }
    // `]0,1[` is an open interval: its brackets are turned outwards.
    let turned = tokens.first() == Some(&Token::CloseBracket) || tokens.last() == Some(&Token::OpenBracket);
    if turned && !tokens.iter().any(|token| matches!(token, Token::OpenParen | Token::CloseParen)) {
        let mut opens = false;
        for token in &mut tokens {
            if matches!(token, Token::OpenBracket | Token::CloseBracket) {
                opens = !opens;
                match (&*token, opens) {
                    (Token::CloseBracket, true) => *token = Token::OpenParen,
                    (Token::OpenBracket, false) => *token = Token::CloseParen,
                    _ => {}
                }
            }
        }
    }
    tokens
}

/// Returns whether every brace in the tokens has a partner in them.
fn is_balanced(tokens: &[Token]) -> bool {
    let mut depth = 0usize;
    for token in tokens {
        match token {
            Token::OpenBrace => depth += 1,
            Token::CloseBrace if depth == 0 => return false,
            Token::CloseBrace => depth -= 1,
            _ => {}
        }
    }
    depth == 0
}

/// Finds the modulus of a congruence at the start of a string, in any of its spellings.
fn modulus(text: &str) -> Option<regex::Captures<'_>> {
    const SPACES: &str = r"(?:\\[;,:! ]|[\s~{])*";
    const MOD: &str = r"(?:\\[bp]?mod|\\(?:text|mathrm|mbox|operatorname)\{\s*mod\b\s*\}?|\bmod\b)";
    const NUMBER: &str = r"([0-9]+|[A-Za-z])\s*\}?";
    regex!(&format!(
        r"^(?:(?:\(|\\left\(){SPACES}{MOD}{SPACES}{NUMBER}\s*(?:\)|\\right\))|{MOD}{SPACES}{NUMBER})"
    ))
    .captures(text)
}

/// Removes the words at the end of an answer about a variable's domain: `for all real t`, `where C is a constant`.
fn without_domain(text: &str) -> &str {
    const DOMAIN: &str = concat!(
        r"(?:[,;\s~]|\\[,;: ]|\\q?quad\b|\\text\{|[{(])*(?:\b(?:for (?:all|any|every|each|some|arbitrary|integers?)|where|with|as)\b|\\forall\b)",
        r"(?:[\s$,}{~\\]|(?:\\geq?|\\leq?|[<>≥≤])\s*[0-9]+|\b(?:positive|negative|natural|text|mathbb|in|an|and|is|are|real|reals|complex|numbers?|integers?|constants?|arbitrary|any|all|some|",
        r"of|integration|values?|the|choices?|[a-zA-Z](?:_\{?[0-9]\}?)?)\b)*[.)}\s$]*$"
    );
    // `x^3+C, C\in\mathbb{R}`
    const CONSTANT: &str =
        r"(?:[,;\s~]|\\[,;: ]|\\q?quad\b)+([CcKk])\s*(?:\\in|∈)\s*(?:\\mathbb\s*\{?R\}?|ℝ)\s*$";
    if let Some(found) = regex!(CONSTANT).captures(text)
        && text[..text.len() - found[0].len()].contains(&found[1])
    {
        return &text[..text.len() - found[0].len()];
    }
    if !["for", "where", "with", "as", "\\forall"].iter().any(|word| text.contains(word)) {
        return text;
    }
    match regex!(DOMAIN).find(text) {
        Some(found) if !text[..found.start()].trim().is_empty() => {
            // The braces of the words stay in balance.
            let (head, tail) = text.split_at(found.start());
            let count = |mark: char| tail.matches(mark).count();
            if count('{') == count('}') && count('(') == count(')') { head } else { text }
        }
        _ => text,
    }
}

/// Returns whether every comma in a string separates thousands, and the string isn't a tuple, interval or set.
fn separates_thousands(text: &str) -> bool {
    if !text.contains(',') || text.contains(['(', '[', ';']) || text.contains("\\{") {
        return false;
    }
    let is_grouped = |number: &str| regex!(r"^[1-9][0-9]{0,2}(?:,[0-9]{3})+$").is_match(number);
    regex!(r"[0-9]*(?:,[0-9]*)+").find_iter(text).all(|number| is_grouped(number.as_str()))
}

/// Removes delimiters, Markdown, quotes and a period around the whole text.
fn without_delimiters(raw: &str) -> &str {
    let mut text = raw;
    for _ in 0..64 {
        let inner = without_stop(text.trim());
        let inner = ["$$", "$", "**", "__", "`", "\"", "“”", "*", "_", "'", "‘’", "«»"]
            .iter()
            .find_map(|marks| {
                let (open, close) =
                    if marks.is_ascii() { (*marks, *marks) } else { marks.split_at(marks.len() / 2) };
                inner.strip_prefix(open)?.strip_suffix(close).filter(|inside| !inside.contains(open))
            })
            .or_else(|| inner.strip_prefix("\\(")?.strip_suffix("\\)"))
            .or_else(|| inner.strip_prefix("\\[")?.strip_suffix("\\]"))
            .unwrap_or(inner);
        if inner.len() == text.len() {
            break;
        }
        text = inner;
    }
    text
}

/// Removes the period, comma or semicolon that ends a text. Dots and `\\,` stay.
fn without_stop(text: &str) -> &str {
    match text.strip_suffix(['.', ',', ';']) {
        Some(head)
            if !head.ends_with(['.', '\\']) && !head.ends_with("\\right") && !head.ends_with("\\left") =>
        {
            head.trim_end()
        }
        _ => text,
    }
}

/// Returns the end of the brace group that starts the text.
fn group_end(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'{' => depth += 1,
            b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

#[derive(Default)]
struct Reader {
    tokens: Vec<Token>,
    /// Whether a space follows the last token.
    spaced: bool,
    /// Words that haven't been read as tokens yet.
    words: String,
    /// Number of open environments of statements, and (`matrices`) of matrices.
    statements: usize,
    matrices: usize,
    /// Whether the answer's commas separate thousands.
    thousands: bool,
    /// Whether the answer is a congruence, in which `mod 5` is the modulus.
    congruent: bool,
    currency: Option<&'static str>,
    has_unit: bool,
    /// Whether a set of excluded numbers is open and must be closed at the end: `all real numbers except 2`.
    excludes: bool,
    over_budget: bool,
}

impl Reader {
    /// Returns whether a value has just been read.
    fn after_value(&self) -> bool {
        self.tokens.last().is_some_and(|token| {
            token.is_atom()
                || matches!(
                    token,
                    Token::Differential(_)
                        | Token::EulerE
                        | Token::Infinity
                        | Token::EmptySet
                        | Token::NumberSet(_)
                        | Token::Percent
                        | Token::Bang
                        | Token::Circle
                        | Token::CloseParen
                        | Token::CloseBracket
                        | Token::CloseBrace
                        | Token::CloseSet
                        | Token::Bar
                        | Token::CloseBar
                        | Token::CloseFloor
                        | Token::CloseCeiling
                        | Token::End(_)
                )
        })
    }

    fn at_start(&self) -> bool {
        matches!(
            self.tokens.last(),
            None | Some(Token::Comma | Token::Semicolon | Token::And | Token::Or | Token::Vee | Token::Wedge)
        )
    }

    fn after_degrees(&self) -> bool {
        matches!(self.tokens[..], [.., Token::Caret, Token::Circle])
    }

    /// Returns the last token, if it is a whole number.
    fn last_integer(&self) -> Option<&IBig> {
        if let Some(Token::Integer(value)) = self.tokens.last() { Some(value) } else { None }
    }

    fn push(&mut self, token: Token) {
        self.over_budget |= self.tokens.len() > MAX_TOKENS;
        self.spaced = false;
        self.tokens.push(token);
    }

    fn push_text(&mut self, words: &str) {
        self.push(Token::Text(words.into()));
    }

    fn unknown(&mut self, what: &str) {
        self.push(Token::Unknown(what.into()));
    }

    /// Reads the token at the start of a string. Returns the rest.
    fn token<'a>(&mut self, text: &'a str) -> &'a str {
        match lexer::token_at(text, 0, Mode::Strict) {
            Ok((Some(token), end)) => {
                self.push(token);
                &text[end..]
            }
            Ok((None, end)) => {
                self.spaced = true;
                &text[end..]
            }
            Err(error) => {
                self.over_budget |= error == ParseError::Budget;
                // A command, a backslash with the character after it, or a character.
                let mut length = text.chars().next().map_or(0, char::len_utf8);
                if let Some(name) = text.strip_prefix('\\') {
                    let letters = name.bytes().take_while(u8::is_ascii_alphabetic).count();
                    length += letters.max(name.chars().next().map_or(0, char::len_utf8));
                }
                self.unknown(&text[..length]);
                &text[length..]
            }
        }
    }

    /// Reads LaTeX that replaces a word or character.
    fn latex(&mut self, mut text: &str) {
        while !text.is_empty() {
            text = self.token(text);
        }
    }

    fn space(&mut self) {
        if self.words.is_empty() { self.spaced = true } else { self.words.push(' ') }
    }

    /// Reads a string that is inside `depth` text commands.
    fn text(&mut self, text: &str, depth: usize) {
        let mut rest = text;
        while let Some(c) = rest.chars().next()
            && !self.over_budget
        {
            if self.congruent
                && matches!(c, '(' | '\\' | 'm')
                && let Some(found) = modulus(rest)
            {
                self.flush(rest);
                let modulus = found.get(1).or(found.get(2)).map_or("", |number| number.as_str());
                self.push_text(&format!("mod {modulus}"));
                rest = &rest[found[0].len()..];
                continue;
            }
            rest = match c {
                '\\' => self.command(rest, depth),
                '0'..='9' | '.' => self.number(rest),
                'a'..='z' | 'A'..='Z' => self.letters(rest),
                _ => self.sign(c, rest),
            };
        }
    }

    fn sign<'a>(&mut self, c: char, rest: &'a str) -> &'a str {
        let after = &rest[c.len_utf8()..];
        if c.is_whitespace() || c == '~' {
            self.space();
            return after;
        }
        if matches!(c, '"' | '“' | '”' | '$') {
            return after;
        }
        // `aren't`
        if matches!(c, '\'' | '’') && after.starts_with('t') && self.words.ends_with('n') {
            self.words.pop();
            self.words.push_str(" not");
            return &after[1..];
        }
        if let Some((_, unit)) = CURRENCIES.iter().find(|(sign, _)| *sign == c) {
            self.currency = Some(unit);
            return after;
        }
        // A unit in parentheses: `12(\text{cm})`.
        if c == '('
            && matches!(self.tokens.last(), Some(Token::Integer(_) | Token::Decimal(..) | Token::CloseBrace))
            && let Some(found) =
                regex!(r"^\(\s*\\(?:text|mathrm|rm)\s*\{([^{}]*)\}\s*\)\s*\.?$").captures(rest)
        {
            self.text_group("text", &found[1], 0);
            return "";
        }
        // Words in parentheses after a value, and the hyphen of a number in words.
        if c == '('
            && self.after_value()
            && self.words.trim().is_empty()
            && let Some(found) =
                regex!(r"^\(\s*([A-Za-z]{3,}(?:[ -][A-Za-z]+)*(?: [0-9]+)?)\s*\)\s*\.?$").captures(rest)
        {
            self.words = found.get(1).map_or("", |words| words.as_str()).to_owned();
            return "";
        }
        // The domain of an integer: `x=k\pi\ (k\in\mathbb{Z})`.
        const DOMAIN: &str = r"^\(\s*([A-Za-z]\s*(?:\\in|∈)\s*(?:\\mathbb\s*\{?[NZ]\}?|ℤ|ℕ))\s*\)\s*$";
        if c == '('
            && let Some(found) = regex!(DOMAIN).captures(rest)
        {
            self.flush(rest);
            self.domain(found.get(1).map_or("", |domain| domain.as_str()));
            return "";
        }
        // A number that repeats the number in words before it.
        if c == '('
            && let Some(number) = number_in_words(&self.words).filter(|_| self.at_start())
            && let Some(found) = regex!(r"^\(\s*([0-9]+)\s*\)").captures(rest)
        {
            self.words.clear();
            if found[1] == *number.to_string() {
                self.latex(&found[1])
            } else {
                self.unknown("|")
            }
            return &rest[found[0].len()..];
        }
        if c == '-' && TENS.iter().any(|tens| self.words.to_ascii_lowercase().ends_with(tens)) {
            self.words.push('-');
            return after;
        }
        if matches!(c, '.' | ':') && !self.words.is_empty() && self.at_start() {
            self.words.push(' ');
            return after;
        }
        self.flush(rest);
        match c {
            // Python's power.
            '*' if after.starts_with('*') => {
                let exponent = after[1..].trim_start();
                if self.after_value()
                    && exponent.starts_with(|c: char| c.is_ascii_digit() || "-(".contains(c))
                {
                    self.push(Token::Caret);
                }
                exponent
            }
            '\'' | '’' | '′' => {
                let more = after.len() - after.trim_start_matches(c).len();
                let letter = matches!(self.tokens.last(), Some(Token::Letter(_)));
                self.latex(if letter { "_{" } else { "^{" });
                for _ in 0..=(more / c.len_utf8()).min(3) {
                    self.latex("\\prime");
                }
                self.push(Token::CloseBrace);
                &after[more..]
            }
            '″' => {
                self.sign('\'', "''");
                after
            }
            // Only a set is subtracted from a set.
            '-' | '−' | '–' if is_set(after) && !self.tokens.is_empty() => {
                self.push(Token::SetMinus);
                after
            }
            '&' if self.statements > 0 && self.matrices == 0 => {
                self.spaced = true;
                after
            }
            '⇒' | '⟹' => {
                self.push(Token::Implies);
                after
            }
            '⇔' | '⟺' | '↔' => {
                self.push(Token::Equivalent);
                after
            }
            '{' if after.starts_with("-}") || after.starts_with(":}") => {
                self.latex(&after[..1]);
                &after[2..]
            }
            '\u{200b}' => after,
            _ => match CHARACTERS.get(&*c.encode_utf8(&mut [0; 4])).copied() {
                Some(spelling) => {
                    self.latex(spelling);
                    after
                }
                None => self.script(rest),
            },
        }
    }

    /// Reads the statement about a symbol's domain after a comma.
    fn domain(&mut self, domain: &str) {
        if !self.at_start() {
            self.push(Token::Comma);
        }
        self.text(domain, 0);
    }

    /// Reads one token. Consecutive Unicode superscript or subscript digits form one exponent or subscript.
    fn script<'a>(&mut self, rest: &'a str) -> &'a str {
        for (digits, mark) in [(SUPERSCRIPTS, '^'), (SUBSCRIPTS, '_')] {
            let value = |c: char| match digits.chars().position(|known| known == c) {
                Some(10) => Some("-".to_owned()),
                digit => digit.map(|digit| digit.to_string()),
            };
            let script: String = rest.chars().map_while(value).collect();
            if !script.is_empty() {
                self.latex(&format!("{mark}{{{script}}}"));
                return rest.trim_start_matches(|c| value(c).is_some());
            }
        }
        self.token(rest)
    }

    fn command<'a>(&mut self, rest: &'a str, depth: usize) -> &'a str {
        let body = &rest[1..];
        let length = body.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (name, after) = body.split_at(length);
        if name.is_empty() {
            return self.symbol(rest, body);
        }
        if let Some((content, after)) = text_command(rest) {
            const STATED: &str = r"^[\s,]*(?:for|where|with)(?: all| any| some| every)?\s*$";
            const DOMAIN: &str = r"^\s*[A-Za-z]\s*\\in\s*\\mathbb\s*\{?[NZ]\}?\s*$";
            if regex!(STATED).is_match(content) && regex!(DOMAIN).is_match(after) {
                self.flush(rest);
                self.domain(after);
                return "";
            }
            self.text_group(name, content, depth);
            return after;
        }
        if name == "begin" || name == "end" {
            return self.environment(name, rest, after);
        }
        if name == "pmod" {
            // A value in a ring of remainders.
            let (modulus, after) = group(after).unwrap_or_else(|| {
                let after = after.trim_start();
                after.split_at(after.bytes().take_while(u8::is_ascii_digit).count())
            });
            if !modulus.is_empty() && modulus.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
                self.flush(rest);
                self.push_text(&format!("mod {modulus}"));
                return after;
            }
        }
        if matches!(name, "textdollar" | "mathdollar") {
            self.currency = Some("dollar");
            return after;
        }
        if matches!(name, "quad" | "qquad") {
            self.separator(after);
            return after;
        }
        if let Some(groups) =
            DROPPED.iter().position(|names| names.split_whitespace().any(|known| known == name))
        {
            return self.dropped(name, groups, after);
        }
        self.flush(rest);
        if matches!(name, "Rightarrow" | "implies" | "Longrightarrow") {
            self.push(Token::Implies);
            return after;
        }
        if matches!(name, "iff" | "Leftrightarrow" | "Longleftrightarrow" | "leftrightarrow") {
            self.push(Token::Equivalent);
            return after;
        }
        if matches!(name, "neg" | "lnot") {
            self.unknown("\\neg");
            return after;
        }
        // Not of many sets: `\bigcup_{k}`.
        if matches!(name, "bigcup" | "bigcap") && !after.trim_start().starts_with('_') {
            self.push(if name == "bigcup" { Token::Union } else { Token::Intersection });
            return after;
        }
        // A negated relation.
        if name == "not" {
            const NEGATED: &[(&str, &str)] =
                &[("=", "\\neq"), ("\\equiv", "\\neq"), ("\\in", "\\notin"), ("<", "\\geq"), (">", "\\leq")];
            let related = after.trim_start();
            let found = NEGATED.iter().find_map(|(sign, negated)| {
                Some((related.strip_prefix(sign)?, negated)).filter(|(rest, _)| {
                    !sign.starts_with('\\') || !rest.starts_with(|c: char| c.is_alphabetic())
                })
            });
            let Some((rest, negated)) = found else {
                self.unknown("\\not");
                return after;
            };
            self.latex(negated);
            return rest;
        }
        match SPELLINGS.get(name).copied() {
            // A decimal with further digits.
            Some("\\ldots") if self.ends_in_decimal() => {}
            Some(spelling) => self.latex(spelling),
            None => return self.token(rest),
        }
        after
    }

    /// Skips a command without effect on the value, and its arguments: the next `groups` groups. Returns the rest.
    fn dropped<'a>(&mut self, name: &str, groups: usize, after: &'a str) -> &'a str {
        let mut after = after;
        if matches!(name, "left" | "right") {
            after = after.trim_start().strip_prefix('.').unwrap_or(after);
            if name == "left"
                && let Some(inside) = after.trim_start().strip_prefix("\\{")
                && ["\\begin{array}", "\\begin{aligned}", "\\begin{matrix}"]
                    .iter()
                    .any(|open| inside.trim_start().starts_with(open))
                && after.contains("\\right.")
            {
                // A system of equations.
                self.statements += 1;
                return inside.trim_start();
            }
        }
        for _ in 0..groups {
            let trimmed = after.trim_start();
            // A model of colours.
            let trimmed = trimmed
                .strip_prefix('[')
                .and_then(|inside| Some(&inside[inside.find(']')? + 1..]))
                .unwrap_or(trimmed);
            after = match trimmed.starts_with('{').then(|| group_end(trimmed)).flatten() {
                Some(end) => &trimmed[end..],
                None => trimmed,
            };
        }
        if !self.words.is_empty() {
            self.words.push(' ');
        }
        after
    }

    fn ends_in_decimal(&self) -> bool {
        matches!(self.tokens.last(), Some(Token::Decimal(..)))
    }

    /// Reads a backslash that isn't followed by a letter.
    fn symbol<'a>(&mut self, rest: &'a str, body: &'a str) -> &'a str {
        // The end of a space at the end.
        let Some(c) = body.chars().next() else { return body };
        let after = &body[c.len_utf8()..];
        match c {
            ',' | ';' | ':' | '!' | ' ' | '\n' | '/' => self.space(),
            '(' | ')' | '[' | ']' => self.spaced = true,
            '$' => self.currency = Some("dollar"),
            '\\' if self.matrices > 0 => {
                self.flush(rest);
                self.push(Token::RowEnd);
            }
            '\\' => {
                // Escaped twice, or the end of a row.
                let length = after.bytes().take_while(u8::is_ascii_alphabetic).count();
                if self.statements == 0
                    && ["frac", "dfrac", "sqrt", "text", "pi", "left", "boxed", "cdot", "times", "circ"]
                        .contains(&&after[..length])
                {
                    return &rest[1..];
                }
                self.separator(after);
            }
            _ => {
                self.flush(rest);
                return self.token(rest);
            }
        }
        after
    }

    /// Reads a wide space or the end of a row: a comma if it is between two values, otherwise a space.
    fn separator(&mut self, after: &str) {
        self.flush(after);
        let next = after.trim_start();
        const OTHER: [&str; 6] = ["\\text", "\\math", "\\end", "\\quad", "\\\\", "\\right"];
        let value = next
            .starts_with(|c: char| c.is_alphanumeric() || matches!(c, '(' | '[' | '{' | '-' | '|'))
            || next.starts_with('\\') && !OTHER.iter().any(|other| next.starts_with(other));
        if value && self.after_value() {
            self.push(Token::Comma);
        }
        self.spaced = true;
    }

    fn environment<'a>(&mut self, name: &str, rest: &'a str, after: &'a str) -> &'a str {
        let Some((kind, tail)) =
            after.trim_start().strip_prefix('{').and_then(|inside| inside.split_once('}'))
        else {
            self.unknown(name);
            return after;
        };
        self.flush(rest);
        let opens = name == "begin";
        let system = self.statements > 0 && matches!(kind, "array" | "matrix");
        // The position and the columns of an array.
        let columns = regex!(r"^\s*(?:\[[a-z]\]\s*)?").find(tail).map_or(0, |found| found.end());
        let columns =
            group_end(&tail[columns..]).filter(|_| opens && kind == "array").map(|end| columns + end);
        let tail = columns.map_or(tail, |end| &tail[end..]);
        let count = match (STATEMENTS.contains(&kind) || system, opens) {
            (true, true) if system => return tail,
            (true, _) => &mut self.statements,
            (false, _) => &mut self.matrices,
        };
        *count = if opens { *count + 1 } else { count.saturating_sub(1) };
        if !STATEMENTS.contains(&kind) && !system {
            self.push(if opens { Token::Begin(kind.into()) } else { Token::End(kind.into()) });
        }
        tail
    }

    /// Reads the group of a text command.
    fn text_group(&mut self, name: &str, content: &str, depth: usize) {
        let inside = content.trim().strip_prefix('(').and_then(|inside| inside.strip_suffix(')'));
        let content =
            inside.filter(|inside| self.after_value() && !inside.contains(['(', ')'])).unwrap_or(content);
        let trimmed = content.trim().trim_matches(['(', ')', '.', ':', ' ']);
        let mut letters = trimmed.chars();
        if let (Some(letter), None) = (letters.next(), letters.next())
            && letter.is_ascii_alphabetic()
        {
            // One letter: a constant, a unit after a value, or a name.
            let unit = (self.after_value() || self.tokens.last() == Some(&Token::OpenBrace))
                && !matches!(letter, 'e' | 'i' | 'd' | 'x' | 'y' | 'z')
                && units::canonical(&letter.to_ascii_lowercase().to_string()).is_some();
            if unit {
                self.words.push(letter);
            } else {
                self.flush(trimmed);
                self.push(Token::Letter(letter));
            }
            return;
        }
        if depth > 4 {
            self.flush(content);
            return self.latex(content);
        }
        if let Some(unit) = unit_text(content).filter(|_| self.after_value()) {
            self.words.push(' ');
            self.words.push_str(&unit);
            return;
        }
        let symbols = ['\\', '{', '^', '=', '<', '>', '+'];
        let mathematics = content.contains(symbols)
            || name.starts_with("math") && content.contains(|c: char| c.is_ascii_digit());
        if trimmed == "abs" && name != "text" {
            return self.push(Token::Function(Function::Abs));
        }
        if let Some(function) =
            SPELLINGS.get(trimmed).filter(|_| name == "operatorname" && trimmed.ends_with("tg"))
        {
            self.flush(content);
            return self.latex(function);
        }
        if mathematics || name == "operatorname" && FUNCTIONS.contains(&trimmed) {
            self.flush(content);
            self.push(Token::OpenBrace);
            self.text(content, depth + 1);
            self.flush("");
            self.push(Token::CloseBrace);
            return;
        }
        // Plain words, with numbers or signs among them.
        let digits = content.contains(|c: char| c.is_ascii_digit());
        let mut rest = content;
        while let Some(c) = rest.chars().next() {
            let numbered = |rest: &str| rest[1..].starts_with(|c: char| c.is_ascii_digit());
            if c.is_alphabetic() || (c == '-' && !self.words.is_empty()) {
                let length = rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len()).max(1);
                if !self.words.is_empty() && !self.words.ends_with([' ', '/', '-']) {
                    self.words.push(' ');
                }
                self.words.push_str(&rest[..length]);
                rest = &rest[length..];
            } else if c.is_ascii_digit() || c == '.' && numbered(rest) {
                rest = self.number(rest);
            } else if c == ':' && self.after_value() && self.words.is_empty() && numbered(rest) {
                self.push(Token::Colon);
                rest = &rest[1..];
            } else if match c {
                '(' | ')' => !digits,
                '\'' => !rest.starts_with("'t"),
                _ => matches!(c, '.' | ':' | '!' | '~' | '"' | '`'),
            } {
                if !self.words.is_empty() {
                    self.words.push(' ');
                }
                rest = &rest[c.len_utf8()..];
            } else {
                rest = self.sign(c, rest);
            }
        }
        self.words.push(' ');
        if self.words.trim().is_empty() {
            self.words.clear();
            self.spaced = true;
        }
    }

    /// Reads consecutive letters, which are a function, words, or variables.
    fn letters<'a>(&mut self, rest: &'a str) -> &'a str {
        let length = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (run, after) = rest.split_at(length);
        let lower = run.to_ascii_lowercase();
        let value = self.after_value();
        let glued = !self.spaced
            && matches!(self.tokens.last(), Some(Token::Letter(_) | Token::Underscore | Token::Text(_)));
        if FUNCTIONS.contains(&run) && !after.starts_with('_') && self.words.is_empty() {
            self.latex(&format!("\\{run}"));
            return after;
        }
        let scale = SCALES.iter().any(|(word, _)| *word == lower.trim_end_matches('s'));
        let connective = matches!(lower.as_str(), "and" | "or");
        let unit = value
            && (units::is_unit(run)
                || after.starts_with(['²', '³']) && units::canonical(&lower).is_some()
                || scale
                || matches!(lower.as_str(), "percent" | "percentage" | "pct" | "base"));
        // A temperature: `20°C`.
        if matches!(run, "C" | "F") && self.words.is_empty() && self.after_degrees() {
            self.words.push_str(run);
            return after;
        }
        let spelled = run[1..].bytes().all(|byte| byte.is_ascii_lowercase());
        let long = (length > 4 || length == 4 && spelled && (!value || self.spaced))
            && lower.bytes().any(|byte| b"aeiou".contains(&byte));
        let short = value && self.spaced && after.starts_with(' ') && SHORT.contains(&run)
            || self.at_start() && NUMBERS.contains(&lower.as_str());
        let known = short
            || self.at_start() && units::currency(&lower).is_some()
            || LEADING.contains(&lower.as_str()) && length > 1 && !after.starts_with('^')
            || ANSWERS.contains(&lower.as_str());
        let goes_on = !self.words.is_empty() && length > 1 || self.is_article(run, after);
        if !glued && (connective || unit || long || known || goes_on) && !after.starts_with('_') {
            if !self.words.is_empty() && !self.words.ends_with(' ') {
                self.words.push(' ');
            }
            self.words.push_str(run);
            return after;
        }
        self.flush(rest);
        let mut rest = rest;
        while rest.len() > after.len() {
            rest = self.token(rest);
        }
        rest
    }

    /// Returns whether a letter is an article before a word, as in `a Wednesday`.
    fn is_article(&self, letter: &str, after: &str) -> bool {
        const JOINS: &[&str] = &["times", "plus", "minus", "over", "with", "where", "equals", "divided"];
        let next = after.strip_prefix(' ').unwrap_or_default();
        let next = &next[..next.bytes().take_while(u8::is_ascii_alphabetic).count()];
        matches!(letter, "a" | "A")
            && next.len() > 3
            && !JOINS.contains(&next)
            && (!self.after_value() || !self.words.is_empty())
    }

    /// Converts the collected words to a unit, a separator or a value. `next` is the text after the words.
    fn flush(&mut self, next: &str) {
        if self.words.is_empty() {
            return;
        }
        let words = std::mem::take(&mut self.words);
        let words = words.trim().trim_matches(['.', ':', '!', '"', '\'']).trim();
        self.place(words, next.trim_start());
    }

    fn place(&mut self, written: &str, next: &str) {
        if written.is_empty() {
            self.spaced = true;
            return;
        }
        let lower = written.to_ascii_lowercase();
        let words = &lower[..];
        // The same words as they are written.
        let as_written = |rest: &str| &written[written.len() - rest.len()..];
        for (word, sign) in [("and", Token::And), ("or", Token::Or)] {
            if let Some(rest) =
                words.strip_prefix(word).filter(|rest| rest.is_empty() || rest.starts_with(' '))
            {
                self.push(sign);
                return self.place(as_written(rest.trim_start()), next);
            }
        }
        // The connective before the next value.
        for word in [" and", " or"] {
            if let Some(head) = words.strip_suffix(word) {
                self.place(&written[..head.trim_end().len()], "");
                return self.place(word.trim_start(), next);
            }
        }
        let ends = next.is_empty() || next.starts_with([',', ';', ')', ']']);
        if self.at_start() && ends {
            let bare =
                regex!(r"^(?:there (?:is|are) |the )").find(words).map_or(words, |lead| &words[lead.end()..]);
            // Words that lead to a number in words.
            let lead = bare.split_inclusive(' ').take_while(|word| LEADING.contains(&word.trim_end()));
            let bare = &bare[lead.map(str::len).sum::<usize>()..];
            if let Some(value) = bare.strip_prefix("minus ").or_else(|| bare.strip_prefix("negative "))
                && spoken(value).is_some()
            {
                self.push(Token::Minus);
                return self.place_number(value, written, next);
            }
            if spoken(bare).is_some() {
                return self.place_number(bare, written, next);
            }
            let mut sets = section("sets in words").lines().filter_map(|line| line.split_once(" => "));
            if let Some((_, symbol)) = sets.find(|(phrase, _)| *phrase == bare) {
                return self.latex(symbol);
            }
        }
        if self.at_start() && matches!(words, "minus" | "negative") && !ends {
            return self.push(Token::Minus);
        }
        if let Some(unit) = units::currency(words).filter(|_| self.at_start() && !ends) {
            self.currency = Some(unit);
            return;
        }
        if self.at_start()
            && !ends
            && regex!(r"^all real(?: number)?s (?:except|other than)(?: for)?$").is_match(words)
        {
            self.excludes = true;
            return self.latex("\\mathbb{R}\\setminus\\{");
        }
        // The direction of a change counts as the unit of its amount: `increases by 20%`.
        if let Some(found) =
            regex!(r"^(?:(?:it|an?|the \w+) )?(increase|decrease)[sd]?(?: of| by)$").captures(words)
            && self.at_start()
            && !ends
        {
            self.currency = Some(if &found[1] == "increase" { "increase" } else { "decrease" });
            return;
        }
        if self.at_start() {
            // If these words deny or guess what follows, the answer can't be read.
            const DOUBTS: [&str; 6] = ["not", "never", "possibly", "probably", "maybe", "perhaps"];
            if !ends && words.split(' ').any(|word| DOUBTS.contains(&word)) {
                return self.unknown("|");
            }
            let named = next.starts_with(['=', '<', '>', '_', '≤', '≥', '≠', '≈'])
                || ["\\approx", "\\in", "\\le", "\\ge", "\\ne"].iter().any(|sign| next.starts_with(sign));
            let word = |word: &str| word.trim_matches([':', '.', ',']).to_owned();
            let leading = words.split(' ').all(|found| LEADING.contains(&&*word(found)))
                || words.rsplit(' ').next().is_some_and(|last| VERBS.contains(&&*word(last)))
                    && !words.split(' ').any(|found| units::changes(&word(found)));
            if ends || named || !leading {
                self.push_text(&without_articles(written));
            }
            return;
        }
        if !self.after_value() {
            self.push_text(&without_articles(written));
            return;
        }
        // `to` joins the terms of a ratio, and a number in words must repeat the value before it.
        if words == "to" && next.starts_with(|c: char| c.is_ascii_digit()) {
            return self.push(Token::Colon);
        }
        if let Some((value, "")) = spoken(words) {
            if self.last_integer() != Some(&value.into()) {
                self.unknown("|");
            }
            return;
        }
        let (first, rest) = words.split_once(' ').unwrap_or((words, ""));
        // Dozens are multiplied here: a product of two plain numbers would be left to the reader.
        if let ("dozen" | "dozens", Some(Token::Integer(count))) = (first, self.tokens.last_mut()) {
            *count *= 12;
            return self.place(as_written(rest), next);
        }
        if let Some((_, factor)) = SCALES.iter().find(|(word, _)| *word == first.trim_end_matches('s')) {
            self.latex(factor);
            self.place(as_written(rest), next);
            return;
        }
        for percent in ["percentage", "percent", "pct", "per cent"] {
            if let Some(rest) =
                words.strip_prefix(percent).filter(|rest| rest.is_empty() || rest.starts_with(' '))
            {
                self.push(Token::Percent);
                return self.place(as_written(rest.trim_start()), next);
            }
        }
        let in_base = words.strip_prefix("in ").unwrap_or(words);
        if let Some(base) = in_base.strip_prefix("base ").and_then(base) {
            return self.latex(&format!("_{{{base}}}"));
        }
        self.has_unit = true;
        self.push_text(written);
    }

    /// Reads a number in words. `written` contains all collected words as they are written.
    fn place_number(&mut self, words: &str, written: &str, next: &str) {
        let Some((number, rest)) = spoken(words) else { return };
        if let Some(denominator) = units::denominator(rest) {
            return self.latex(&format!("\\frac{{{number}}}{{{denominator}}}"));
        }
        // Any other word behind a number makes it a statement in words.
        let joined = rest.starts_with("and ") || rest.starts_with("or ");
        let ordinal = rest == "second" && number != 1;
        let unit = |word: &str| {
            !ordinal && units::canonical(word).is_some() || matches!(word, "percent" | "square" | "dozen")
        };
        // One plural counts: `four ways`.
        let counted = !rest.contains(' ')
            && rest
                .strip_suffix('s')
                .is_some_and(|stem| stem.len() > 2 && spoken(stem).is_none() && !is_scale(stem))
            && !units::changes(rest);
        if joined || counted || rest.split_whitespace().all(unit) {
            self.push(Token::Integer(number.into()));
            self.place(&written[written.len() - rest.len()..], next);
        } else {
            self.push_text(written);
        }
    }

    /// Reads a number literal with its separators, repeating block and exponent.
    fn number<'a>(&mut self, rest: &'a str) -> &'a str {
        if let Some(after) = rest.strip_prefix("...") {
            self.flush(rest);
            if !self.ends_in_decimal() {
                self.latex("\\ldots");
            }
            return after;
        }
        // The base of the digits before it: `101 in base 2`.
        if self.after_value() && self.words.trim().ends_with("base") {
            let length = rest.bytes().take_while(u8::is_ascii_digit).count();
            self.words.push_str(&format!(" {}", &rest[..length]));
            self.flush(&rest[length..]);
            return if length > 0 { &rest[length..] } else { &rest[1..] };
        }
        // Words between two values: the first one's unit, or a lead-in.
        self.flush(rest);
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let mut literal = rest[..digits(rest)].to_owned();
        let mut after = &rest[literal.len()..];
        let grouped = (1..=3).contains(&literal.len());
        if grouped {
            let mut separator = None;
            while let Some((found, tail)) =
                SEPARATORS.iter().find_map(|mark| Some((*mark, after.strip_prefix(mark)?)))
                && separator.is_none_or(|mark| mark == found)
                && digits(tail) == 3
                && !literal.starts_with('0')
            {
                separator = Some(found);
                literal.push_str(&tail[..3]);
                after = &tail[3..];
            }
        }
        // Commas between thousands, where there are no others.
        if grouped && self.thousands {
            while let Some(tail) = after.strip_prefix(',').filter(|tail| digits(tail) == 3) {
                literal.push_str(&tail[..3]);
                after = &tail[3..];
            }
        }
        // A decimal comma or point in braces.
        let braced = ["{,}", "{.}"].iter().find_map(|mark| after.strip_prefix(mark));
        let braced = braced.filter(|tail| digits(tail) > 0 && !literal.is_empty());
        let point = after.strip_prefix('.').filter(|tail| !tail.starts_with('.')).or(braced);
        let joined: String;
        let mut fraction = "";
        if let Some(tail) = point {
            fraction = &tail[..digits(tail)];
            after = &tail[fraction.len()..];
            // Decimals in groups of three.
            let mut groups = fraction.to_owned();
            while groups.len().is_multiple_of(3)
                && !groups.is_empty()
                && let Some(tail) = after.strip_prefix("\\,").filter(|tail| (1..=3).contains(&digits(tail)))
            {
                groups.push_str(&tail[..digits(tail)]);
                after = &tail[digits(tail)..];
            }
            joined = groups;
            fraction = &joined;
            if let Some((period, tail)) = period(after) {
                self.periodic(&literal, fraction, period);
                return tail;
            }
            if let Some((tail, (head, block))) = dots(after).zip(repeated(fraction)) {
                self.periodic(&literal, head, block);
                return tail;
            }
        }
        if literal.is_empty() && fraction.is_empty() {
            // A period that ends a sentence, or the first of two.
            return after.strip_prefix('.').filter(|_| point.is_none()).unwrap_or(after);
        }
        if literal.is_empty() {
            literal.push('0');
        }
        if !fraction.is_empty() {
            literal.push('.');
            literal.push_str(fraction);
        }
        let exponent = regex!(r"^[eE]([+-]?[0-9]+)(?:[^.A-Za-z0-9]|$)").captures(after);
        let exponent = exponent.and_then(|found| found.get(1)).map_or("", |found| found.as_str());
        // `2e-3` is a difference.
        if !exponent.is_empty()
            && (point.is_some() || !exponent.starts_with(['+', '-']) || exponent.len() > 2)
        {
            literal.push('E');
            literal.push_str(exponent);
            after = &after[1 + exponent.len()..];
        }
        match (self.tokens.last(), literal.as_bytes()) {
            // The zero in `8:05` tells a time from a ratio.
            (Some(Token::Colon), [b'0', digit @ b'1'..=b'9']) => {
                self.push(Token::Decimal((digit - b'0').into(), 0));
            }
            _ => {
                self.token(&literal);
            }
        }
        after
    }

    /// Reads a decimal with a repeating block (`period`) as a fraction.
    fn periodic(&mut self, whole: &str, fraction: &str, period: &str) {
        let head = format!("{whole}{fraction}");
        let head = head.trim_start_matches('0');
        let all = format!("{whole}{fraction}{period}");
        let nines = format!("{}{}", "9".repeat(period.len()), "0".repeat(fraction.len()));
        match (IBig::from_str_radix(&all, 10), IBig::from_str_radix(&format!("0{head}"), 10)) {
            (Ok(all), Ok(head)) => self.latex(&format!("\\frac{{{}}}{{{nines}}}", all - head)),
            _ => self.latex("\\ldots"),
        }
    }
}

/// Returns the words of an answer without articles and without introductory words such as "it is".
fn without_articles(words: &str) -> String {
    const LEAD: &[&str] = &["it", "s", "is", "are", "they", "on"];
    let all: Vec<&str> = words.split_whitespace().collect();
    let named = |at: usize| all.get(at + 1).is_some_and(|next| next.len() > 2);
    let article = |at: usize, word: &str| match word {
        "a" => named(at),
        "A" => at == 0 && named(at),
        word => matches!(word, "an" | "the" | "An" | "The"),
    };
    let kept = all.iter().enumerate().filter(|(at, word)| !article(*at, word));
    let mut kept: Vec<&str> = kept.map(|(_, word)| *word).collect();
    let lead = kept.iter().take_while(|word| LEAD.contains(&&*word.to_lowercase())).count();
    if lead < kept.len() {
        kept.drain(..lead);
    }
    if kept.is_empty() { words.to_owned() } else { kept.join(" ") }
}

/// Marks between thousands.
const SEPARATORS: &[&str] =
    &["\\,", "{,}", "{\\,}", ",\\!", "\\ ", "~", "\u{a0}", "\u{202f}", "\u{2009}", "\\;", "\\:", " "];

/// Splits off a decimal's repeating block at the start of a string, `\overline{3}`, `\dot{3}` or `(3)`. Returns its
/// digits and the rest.
fn period(text: &str) -> Option<(&str, &str)> {
    let found = regex!(r"^(?:\\(?:overline|bar|dot)(?:\{([0-9]{1,64})\}|\s*([0-9]))|\(([0-9]{1,64})\))")
        .captures(text)?;
    let digits = found.get(1).or(found.get(2)).or(found.get(3))?;
    Some((digits.as_str(), &text[found.get(0)?.end()..]))
}

/// Returns whether a string begins with a set in braces.
fn is_set(text: &str) -> bool {
    let text = text.trim_start();
    text.strip_prefix("\\left").map_or(text, str::trim_start).starts_with("\\{")
}

/// Splits the digits of a decimal such as `0.1333...` into the digits before the repeating block, and the block. It
/// must be at the end three times, or twice in a short decimal.
fn repeated(fraction: &str) -> Option<(&str, &str)> {
    (1..=fraction.len() / 2).find_map(|length| {
        let block = &fraction[fraction.len() - length..];
        let head = fraction.trim_end_matches(block);
        let times = (fraction.len() - head.len()) / length;
        (times > 2 || times == 2 && length > 1 && fraction.len() < 6).then_some((head, block))
    })
}

/// Returns the text after an ellipsis at the start of a string, or `None` without an ellipsis.
fn dots(text: &str) -> Option<&str> {
    let after =
        ["...", "…", "\\ldots", "\\dots", "\\cdots"].iter().find_map(|dots| text.strip_prefix(dots))?;
    (!after.starts_with(|c: char| c.is_alphanumeric())).then_some(after)
}

/// Returns the content of a group without formatting, if it consists only of units and exponents, as in `m/s^2`.
fn unit_text(content: &str) -> Option<String> {
    let spaced = content.replace("\\,", " ").replace('~', " ");
    let mut words = spaced.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty()).peekable();
    let plain = spaced.chars().all(|c| c.is_alphanumeric() || c.is_whitespace() || "{}$^/-.\\".contains(c));
    let starts = spaced.trim_start().starts_with(|c: char| c.is_alphabetic());
    let units = plain
        && starts
        && words.peek().is_some()
        && words.all(|word| units::canonical(&word.to_lowercase()).is_some());
    units.then(|| spaced.trim().chars().filter(|c| !matches!(c, '{' | '}' | '$' | '\\')).collect())
}

/// Returns the content of the text command at the start of a string, and the text after the command.
fn text_command(text: &str) -> Option<(&str, &str)> {
    let body = text.strip_prefix('\\')?;
    let (name, after) = body.split_at(body.bytes().take_while(u8::is_ascii_alphabetic).count());
    // `\mathrm m`
    let single = || {
        after
            .trim_start()
            .starts_with(|c: char| c.is_ascii_alphabetic())
            .then(|| after.trim_start().split_at(1))
    };
    if TEXTS.contains(&name) || name == "operatorname" { group(after).or_else(single) } else { None }
}

/// Returns the content of a brace group at the start of a string, and the text after the group.
fn group(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let end = group_end(text).filter(|_| text.starts_with('{'))?;
    Some((&text[1..end - 1], &text[end..]))
}
