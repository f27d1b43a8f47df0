//! The words and signs around a value, and the roles of words in a statement.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::forms;
use crate::languages;
use crate::math::words::number_in_words;
use crate::python_text::regex;

/// Roles of words in a statement, as a set of bits.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Roles(u16);

impl Roles {
    /// Can precede a value directly: `is 8`, `we get 8`.
    pub(super) const STATES: Self = Self(1);
    /// Is neutral: the words before it decide.
    pub(super) const FILLS: Self = Self(1 << 1);
    /// Denies, supposes or disowns what is stated after it.
    pub(super) const DENIES: Self = Self(1 << 2);
    /// Describes the response's own answer, as in `my final answer`.
    pub(super) const OWNS: Self = Self(1 << 3);
    /// Can precede a comma and the value: `Hence, 8`.
    pub(super) const LEADS: Self = Self(1 << 4);
    /// Begins a clause after a value: `8, since ..`, `8 for all ..`.
    pub(super) const GOES_ON: Self = Self(1 << 5);
    /// Names the answer after a value: `8 is the answer`.
    pub(super) const PRAISES: Self = Self(1 << 6);
    /// Reports an opinion, which is the response's own if `I` or `we` precedes the word.
    pub(super) const THINKS: Self = Self(1 << 7);
    /// Precedes `of` or `to` and a value: `a total of 8`, `sums to 8`.
    pub(super) const JOINS: Self = Self(1 << 8);
    /// Changes the value before it, or shows that this value isn't an answer: `8 etc`.
    pub(super) const CHANGES: Self = Self(1 << 9);
    /// Chooses a value if `I` or `we` precedes the word: `I'd answer 8`, `we go with 8`.
    pub(super) const CHOOSES: Self = Self(1 << 10);
    /// Can occur in a label before a colon: `Here's the completed grid: ..`.
    pub(super) const LABELS: Self = Self(1 << 11);
    /// Can precede `answer`, as in `the final answer`.
    pub(super) const QUALIFIES: Self = Self(1 << 12);
    /// Can be between `answer` and its verb, as in `the answer to the given problem is`.
    pub(super) const DESCRIBES: Self = Self(1 << 13);

    pub(super) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the role with this name in the data.
    fn named(name: &str) -> Self {
        const NAMES: &str = "states fills denies owns leads goes_on praises thinks joins changes chooses labels qualifies \
             describes";
        Self(NAMES.split(' ').position(|known| known == name).map_or(0, |at| 1 << at))
    }

    pub(super) fn of(word: &str) -> Self {
        static ROLES: LazyLock<HashMap<&str, Roles>> = LazyLock::new(|| {
            let mut roles = HashMap::new();
            let mut row = Roles::default();
            for line in forms::section(forms::SENTENCES, "roles of words").lines() {
                // A row begins with its roles, and goes on in the lines that are indented.
                let words = line.split_once(": ").map_or(line, |(names, words)| {
                    row = names.split(' ').map(Roles::named).fold(Roles::default(), Roles::with);
                    words
                });
                for word in words.split_whitespace() {
                    let known: &mut Roles = roles.entry(word).or_default();
                    *known = known.with(row);
                }
            }
            roles
        });
        let word = word.to_lowercase().replace('’', "'");
        match ROLES.get(&*word).or_else(|| ROLES.get(uncontracted(&word))) {
            Some(roles) => *roles,
            None if languages::means_answer(&word) => ROLES["answer"],
            None if word.ends_with("n't") => Self::DENIES,
            None if word.chars().count() == 1 => Self::FILLS,
            None => Self::default(),
        }
    }
}

/// Returns the first word of a contraction, as in `I'd`, and other words unchanged.
pub(super) fn uncontracted(word: &str) -> &str {
    let ends = ["'d", "'ll", "'m", "'re", "'s", "'ve"];
    ends.iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Word,
    Number,
    Sign,
    Command,
}

/// A word, number, sign or command in the text around a value. Formatting, delimiters and spaces are skipped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece<'a> {
    pub(super) kind: Kind,
    pub(super) text: &'a str,
    /// Whether the piece is part of a formula, but not of text within a formula.
    pub(super) formula: bool,
    /// Whether white space or a delimiter precedes the piece.
    pub(super) spaced: bool,
}

impl Piece<'_> {
    pub(super) fn is(&self, sign: &str) -> bool {
        self.kind != Kind::Word && self.text == sign
    }

    pub(super) fn roles(&self) -> Roles {
        if self.kind == Kind::Word { Roles::of(self.text) } else { Roles::default() }
    }

    pub(super) fn is_word(&self, role: Roles) -> bool {
        self.roles().has(role)
    }
}

/// Pieces of a string, in order.
pub(crate) struct Pieces<'a> {
    pub(super) all: Vec<Piece<'a>>,
    /// Whether the text read so far ends with white space or a delimiter.
    pub(super) gap: bool,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new() -> Self {
        Self { all: Vec::new(), gap: false }
    }

    /// Adds the pieces of `text`. `formula` is whether the text begins inside a formula.
    pub(crate) fn read(mut self, text: &'a str, mut formula: bool) -> Self {
        const DRESS: &str = concat!(
            r"^(?:\\(?:[,;:! ]|(?:q?quad|displaystyle|textstyle|[lL]arge|LARGE|[hH]uge|left|right|bf|hline|blacksquare|square|",
            r"checkmark|qed|nonumber|notag|Box)\b|color\s*\{[^{}]*\}|(?:begin|end)\{[a-z]+\*?\}(?:\{[lcr|]*\})?|",
            r"(?:tag|label|hspace|vspace|phantom)\*?\s*\{[^{}]*\})|<[^<>]{1,40}>)"
        );
        const WRAPPER: &str = concat!(
            r"^\\(?:(text(?:bf|it|rm|sf|tt|normal|up)?|[mh]box)|math(?:bf|it|rm|sf|tt|normal)|boldsymbol|bm|bold|emph|underline|",
            r"ensuremath|boxed|fbox|(?:textcolor|colorbox)\{[^{}]*\})\s*\{"
        );
        const PIECE: &str =
            r"^(?:\\[A-Za-z]+|\\.|[0-9]+|\pL[\pL\pM]*(?:['’-]\pL[\pL\pM]*)*|!=|<=|>=|=+>|-+>|\.\.+|.)";
        // Open braces: whether each belongs to a formula and isn't only formatting, and whether the formula
        // continues after it.
        let mut open: Vec<(bool, bool)> = Vec::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let formula_here = formula;
            if c.is_whitespace()
                || c == '\u{fe0f}'
                || matches!(c, '*' | '_' | '`' | '"' | '“' | '”' | '#' | '&' | '~')
                    && self.is_dress(c, rest, formula)
            {
                self.gap |= c.is_whitespace() || formula;
                rest =
                    if matches!(c, '*' | '_') { rest.trim_start_matches(c) } else { &rest[c.len_utf8()..] };
            } else if c == '$' || ["\\(", "\\)", "\\[", "\\]"].iter().any(|mark| rest.starts_with(mark)) {
                let length = if c == '$' { 1 + usize::from(rest.starts_with("$$")) } else { 2 };
                formula = if c == '$' { !formula } else { matches!(rest.as_bytes()[1], b'(' | b'[') };
                self.gap = true;
                rest = &rest[length..];
            } else if let Some(struck) = regex!(r"^<(?:s|del|strike)>").find(rest) {
                self.push(Kind::Sign, struck.as_str(), formula);
                rest = &rest[struck.end()..];
            } else if let Some(found) =
                Some(c).filter(|c| matches!(c, '\\' | '<')).and(regex!(DRESS).find(rest))
            {
                self.gap = true;
                rest = &rest[found.end()..];
            } else if let Some(found) = Some(c).filter(|c| *c == '\\').and(regex!(WRAPPER).captures(rest)) {
                open.push((false, formula));
                formula &= found.get(1).is_none();
                rest = &rest[found.get(0).map_or(0, |all| all.end())..];
            } else if c == '{'
                && self.all.last().is_none_or(|last| last.kind == Kind::Sign && !"^_}".contains(last.text))
            {
                open.push((false, formula));
                rest = &rest[1..];
            } else if c == '}' {
                let (part, outer) = open.pop().unwrap_or((false, formula_here));
                formula = outer;
                if part {
                    self.push(Kind::Sign, &rest[..1], formula);
                }
                rest = &rest[1..];
            } else {
                let Some(found) = regex!(PIECE).find(rest) else { break };
                let (piece, after) = rest.split_at(found.end());
                let kind = match c {
                    '\\' => Kind::Command,
                    _ if c.is_numeric() => Kind::Number,
                    _ if c.is_alphabetic() => Kind::Word,
                    _ => Kind::Sign,
                };
                if c == '{' {
                    open.push((true, formula));
                }
                if piece == "\\\\" {
                    // A separate row.
                    self.all.clear();
                } else {
                    self.push(kind, piece, formula);
                }
                rest = after;
            }
        }
        // An open brace makes what follows a part of a formula.
        if open.iter().any(|(part, _)| *part) {
            self.push(Kind::Sign, "{", true);
        }
        self
    }

    fn push(&mut self, kind: Kind, text: &'a str, formula: bool) {
        self.all.push(Piece { kind, text, formula, spaced: std::mem::take(&mut self.gap) });
    }

    /// Whether a mark is Markdown emphasis, which touches a word on one side only, or a space of LaTeX.
    fn is_dress(&self, mark: char, rest: &str, formula: bool) -> bool {
        let after = rest.trim_start_matches(mark);
        match mark {
            '~' | '&' => formula,
            '*' | '_' if formula => rest.len() - after.len() > 1,
            '*' | '_' => {
                let opens = self.all.is_empty() || self.gap;
                let bold = rest.len() - after.len() > 1;
                let closes = !after.starts_with(|c: char| {
                    c.is_alphanumeric() || c == '\\' || bold && matches!(c, '$' | '€' | '£' | '¥' | '₹')
                });
                opens != closes || self.all.is_empty() || after.is_empty()
            }
            _ => true,
        }
    }
}

/// Joins the words of a sentence by spaces, with `#` in place of each formula.
pub(super) fn phrase(pieces: &[Piece<'_>]) -> String {
    let mut phrase = String::new();
    for piece in pieces {
        let text = if piece.formula { "#" } else { piece.text };
        if text != "#" || !phrase.ends_with('#') {
            phrase.push_str(if phrase.is_empty() { "" } else { " " });
            phrase.push_str(text);
        }
    }
    phrase.replace('’', "'")
}

/// Returns the value of a piece that is a number in one word.
pub(super) fn spelled(piece: &Piece<'_>) -> Option<u64> {
    Some(piece).filter(|piece| piece.kind == Kind::Word).and_then(|piece| number_in_words(piece.text))
}

/// Whether a sentence is in another language than English.
pub(super) fn is_foreign(words: &[Piece<'_>]) -> bool {
    let mut words = words.iter().filter(|piece| piece.kind == Kind::Word && !piece.formula);
    words.any(|piece| languages::is_foreign(&piece.text.to_lowercase()))
}

/// Whether a word names the writer of the response: "I", "we", "you" and "one", or "let" as in "let's".
pub(super) fn is_writer(word: &str) -> bool {
    matches!(uncontracted(&word.to_lowercase().replace('’', "'")), "i" | "we" | "let" | "you" | "one")
}

/// Whether a word lacks content, so that a sentence of such words and a number states the number.
pub(crate) fn is_neutral(word: &str) -> bool {
    Roles::of(word).has(Roles::FILLS.with(Roles::LEADS))
}

/// Whether a sign is a check mark or an emoji, but not one that marks an error or a doubt.
pub(crate) fn is_decoration(sign: char) -> bool {
    const ERRORS: &str = "✕✖✗✘❌❎❓❔👎🚫⛔🛑🙅🤔🤷🤥🤡😜🃏";
    (sign >= '\u{1f000}' || matches!(sign, '∎' | '\u{2500}'..='\u{27bf}' | '\u{fe0f}'))
        && !ERRORS.contains(sign)
}
