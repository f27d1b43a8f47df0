//! Decides whether the sentence around a value states the value as the answer, for every kind of problem.
//!
//! [`lead`] reads the sign in front of the value. Only known forms state an answer. The value is alone, or follows an equals
//! sign, a colon or a stating word (`is`, `gives`, `a total of`), and precedes a counted noun, a reason or the end of the
//! sentence ([`is_ended`]). If anything else is directly beside the value, the text doesn't state an answer.
//!
//! [`is_denied_before`] is true if the text denies the value, supposes it or attributes it to somebody else, in its sentence or
//! in the line above.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::forms::{self, form};
use crate::languages;
use crate::math::units;
use crate::math::words::{SCALES, number_in_words};
use crate::python_text::regex;

/// Roles of words in a statement, as a set of bits.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Roles(u16);

impl Roles {
    /// Can precede a value directly: `is 8`, `we get 8`.
    const STATES: Self = Self(1);
    /// Is neutral, so that the words before it decide.
    const FILLS: Self = Self(1 << 1);
    /// Denies, supposes or disowns what is stated after it.
    const DENIES: Self = Self(1 << 2);
    /// Describes the response's own answer, as in `my final answer`.
    const OWNS: Self = Self(1 << 3);
    /// Can precede a comma and the value: `Hence, 8`.
    const LEADS: Self = Self(1 << 4);
    /// Begins a clause after a value: `8, since ..`, `8 for all ..`.
    const GOES_ON: Self = Self(1 << 5);
    /// Names the answer after a value: `8 is the answer`.
    const PRAISES: Self = Self(1 << 6);
    /// Reports an opinion, which is the response's own if `I` or `we` precedes the word.
    const THINKS: Self = Self(1 << 7);
    /// Lets a following `of` or `to` precede a value directly: `a total of 8`, `sums to 8`.
    const JOINS: Self = Self(1 << 8);
    /// Changes the value before it, or shows that this value isn't an answer: `8 etc`.
    const CHANGES: Self = Self(1 << 9);
    /// Chooses a value if `I` or `we` precedes the word: `I'd answer 8`, `we go with 8`.
    const CHOOSES: Self = Self(1 << 10);
    /// Can occur in a label before a colon: `Here's the completed grid: ..`.
    const LABELS: Self = Self(1 << 11);

    const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the role with this name in the data.
    fn named(name: &str) -> Self {
        const NAMES: &str =
            "states fills denies owns leads goes_on praises thinks joins changes chooses labels";
        Self(NAMES.split(' ').position(|known| known == name).map_or(0, |at| 1 << at))
    }

    fn of(word: &str) -> Self {
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
fn uncontracted(word: &str) -> &str {
    let ends = ["'d", "'ll", "'m", "'re", "'s", "'ve"];
    ends.iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Word,
    Number,
    Sign,
    Command,
}

/// A piece of the text around a value. Delimiters, fonts, sizes, spaces and Markdown's marks are left out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece<'a> {
    kind: Kind,
    text: &'a str,
    /// Whether the piece is part of a formula, but not of text within a formula.
    formula: bool,
    /// Whether white space or a delimiter precedes the piece.
    spaced: bool,
}

impl Piece<'_> {
    fn is(&self, sign: &str) -> bool {
        self.kind != Kind::Word && self.text == sign
    }

    fn roles(&self) -> Roles {
        if self.kind == Kind::Word { Roles::of(self.text) } else { Roles::default() }
    }

    fn is_word(&self, role: Roles) -> bool {
        self.roles().has(role)
    }
}

/// Pieces of a string, in order.
pub(crate) struct Pieces<'a> {
    all: Vec<Piece<'a>>,
    /// Whether the text read so far ends with white space or a delimiter.
    gap: bool,
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
        const PIECE: &str = r"^(?:\\[A-Za-z]+|\\.|[0-9]+|\pL+(?:['’-]\pL+)*|!=|<=|>=|=+>|-+>|\.\.+|.)";
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

    /// Whether a mark is Markdown's or a space of LaTeX: emphasis touches what it emphasises on one side only.
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

/// Whether a sentence is in another language than English.
fn is_foreign(words: &[Piece<'_>]) -> bool {
    let mut words = words.iter().filter(|piece| piece.kind == Kind::Word && !piece.formula);
    words.any(|piece| languages::is_foreign(&piece.text.to_lowercase()))
}

/// Maximum distance in bytes from a value at which its sentence or formula begins or ends.
pub(crate) const FAR: usize = 600;

/// Returns the start of the last [`FAR`] bytes of a string.
pub(crate) fn low_end(text: &str) -> usize {
    (text.len().saturating_sub(FAR)..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len())
}

/// Returns the last sentence or line of a string.
pub(crate) fn sentence(text: &str) -> &str {
    let ends = regex!(r"(?i)(\b(?:e\.g|i\.e|cf|vs|resp|mrs?|dr|no|eq))?(?:[.!?]\s|\n)").captures_iter(text);
    let end = ends.filter(|end| end.get(1).is_none() || end[0].ends_with('\n')).last();
    &text[end.and_then(|end| end.get(0)).map_or(0, |end| end.end())..]
}

/// Returns the words that introduce a value: those before it in its sentence, or else the line above unless that line ends a
/// sentence.
fn introduction(before: &str) -> &str {
    let same_line = sentence(before);
    if same_line.contains(char::is_alphanumeric) {
        return same_line;
    }
    let above = before.trim_end_matches(|c: char| c.is_whitespace() || "*_`$\"“([{>\\".contains(c));
    // A list or a table introduces nothing.
    let closed = regex!(r"(?:</\w+>\s*|\n\s*(?:[-*•|]|\d+[.)])\s[^\n:]*\n\W*)$").is_match(before);
    if closed || above.ends_with(['.', '!', '?', '。']) { "" } else { sentence(above) }
}

/// Whether the text before a value denies the value, supposes it, or attributes it to somebody else.
pub(crate) fn is_denied_before(before: &str) -> bool {
    let before = &before[low_end(before)..];
    let bare = regex!(r"\s*```[a-z]*\s*$").find(before).map_or(before, |fence| &before[..fence.start()]);
    // `It is not:`, and on the next line `The answer is`.
    let announced = regex!(r"(?i)(^|[:：]|\n)\W*(?:(?:the|my|final) )*answer(?: is)?\W*$").captures(bare);
    let above = announced.and_then(|announced| announced.get(1)).map(|mark| &bare[..mark.end()]);
    // `No doubt about it: the answer is` isn't a denial.
    const IDIOM: &str = r"(?i)\b(?:no doubt|no (?:\w+ )?(?:option|choice|question|need)|nothing (?:more|else)|without (?:an? |any )?(?:doubt|question|further))\b";
    let above = above.filter(|above| !regex!(IDIOM).is_match(sentence(above)));
    let texts = [Some(bare), above];
    let above = bare.trim_end().trim_end_matches(['.', '!', ' ']);
    let same_line = sentence(bare).contains(char::is_alphanumeric);
    is_struck(before)
        || !same_line && is_deferral(&sentence(above).to_lowercase())
        || texts.into_iter().flatten().any(|text| {
            let pieces = Pieces::new().read(introduction(text), false);
            // All of the last clause of a line above introduces the value.
            let above = !same_line && pieces.all.last().is_some_and(|last| last.is(":"));
            let mut clauses = pieces.all.rsplit(|piece| matches!(piece.text, "," | ";" | "but" | "so"));
            let clause = clauses.next().unwrap_or_default();
            let denied = above && clause.iter().any(|piece| piece.is_word(Roles::DENIES));
            denied || denies(&pieces.all) || is_disowned(&pieces.all)
        })
}

/// Whether the text before a value strikes the value out or begins a comment.
pub(crate) fn is_struck(before: &str) -> bool {
    regex!(r"(?:<!--|<(?:s|del|strike)>|~~)[^\w<~\n]*(?:```[a-z]*\s*)?[^\w<~\n]*$")
        .is_match(&before[low_end(before)..])
}

/// Reads the pieces before a value in its sentence. Returns the sign or currency attached to the value (`"-"`, a currency
/// or `""`), or `None` if the value isn't stated as an answer.
pub(crate) fn lead(before: &Pieces<'_>, value: &str) -> Option<&'static str> {
    let depth = before.all.iter().filter(|piece| piece.formula).fold(0, |depth: i32, piece| {
        depth + i32::from(matches!(piece.text, "(" | "[" | "\\{"))
            - i32::from(matches!(piece.text, ")" | "]" | "\\}"))
    });
    if depth > 0 || is_disowned(&before.all) { None } else { sign(&before.all, before.gap, value) }
}

/// Words that make a value a trial or an accident, anywhere in its clause: `by mistake I wrote`, `for practice`,
/// `(random pick)`.
const TRIALS: &str = "practi[cs]e|practi[cs]ing|testing|jokes?|joking|jest|illustrations?|demo|demonstrations?|placeholders?|stopgaps?|fillers?|guess(?:es|ing|work)?|hunch|random(?:ly)?|luck|accident(?:ally)?|mistake|error|oversight|typo|drafts?|sketch|template|dummy|trial|examples?|hypothes[ie]s|conjecture|fiction|show|stage|dream";

/// Returns the part of a sentence behind its last contrast.
fn contrasted(said: &str) -> &str {
    regex!(r"(?i)^.*\b(?:but|however|yet)\b").find(said).map_or(said, |turn| said[turn.end()..].trim_start())
}

/// Whether the writer doesn't know the answer: `I don't know`, `without having checked`. A contrast behind it states an answer.
fn is_ignorant(said: &str) -> bool {
    form!("ignorant").is_match(contrasted(said))
}

/// Words of a clause that attributes the rest of its sentence to somebody else.
const DISOWNED_SOURCES: &str = r"(?i)\b(?:wrote|reports|argues|insists|believes|heard|told|read|wikipedia|google|internet|textbook|book|website|chatgpt|forum)\b";

/// Joins the words of a sentence by spaces, with `#` in place of each formula.
fn phrase(pieces: &[Piece<'_>]) -> String {
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

/// Whether the sentence before a value attributes it to somebody else, supposes it, or doesn't state the answer itself.
fn is_disowned(before: &[Piece<'_>]) -> bool {
    if before.is_empty() {
        return false;
    }
    let said = phrase(before);
    const ADJUNCT: &str = r"(?i)^(?:(?:so|well|ok|okay|and) ,? ?)?(?:as|for|in|by|at|on|with|through|just|only|picking|choosing|guessing)\b(?: \S+){0,4}? ";
    const CLOSED: &str = r"(?: (?:\w+ )?,| (?:i|we|you|it|it's|this|that|the)\b| :|$)";
    if is_ignorant(&said)
        || form!("omitted").is_match(contrasted(&said))
        || regex!(&format!(r"{ADJUNCT}(?:{TRIALS}|fun)\b{CLOSED}")).is_match(&said)
    {
        return true;
    }
    // What a contrast or a conclusion states is separate: `Bob says 9, but the answer is`.
    const TURNS: &str = r"(?i)(?:\b(?:but|however|yet|so|thus|hence|therefore)\b(?: [,:])?|;(?: \w+ ,)?)( (?:the|it|this|my|our|we|its|that)\b|$)";
    const EXCEPT: &str = r"(?i)\b(?:(?:any|every)thing|all|nothing) (?:but|except)(?: \S+){0,2}$";
    let turn = regex!(TURNS).captures_iter(&said).last().and_then(|turn| turn.get(1));
    let excepted = regex!(EXCEPT).is_match(&said);
    let said = turn.map_or(&*said, |turn| said[turn.start()..].trim_start());
    // The clause before the main one, as in `though I doubted it, the answer is`, unless it is a condition or a source.
    const MAIN: &str = r"(?i)^(.*?) , ((?:(?:so|then|and|now|thus) )?(?:(?:the|my|our) (?:\S+ ){0,2}?(?:answer|result|solution|value)|it|it's|this|that|that's|we|i [a-z]|i'd|i'll|you|one)\b.*)$";
    const POLITE: &str = r"(?i)^(?:\w+ ,? ?)?(?:if (?:i'm|i am|we're|we are|you|my|our|everything|all|i remember|i had to|i did|we did|we do)\b|unless (?:i|we)\b|having said)";
    let main =
        regex!(MAIN).captures(said).and_then(|main| Some((main.get(1)?.as_str(), main.get(2)?.as_str())));
    let dismissed = |clause: &str| {
        regex!(POLITE).is_match(clause)
            && !regex!(r"(?i)\b(?:were|had been|lied|wrong about)\b").is_match(clause)
            || !form!("condition").is_match(clause) && !regex!(DISOWNED_SOURCES).is_match(clause)
    };
    let said = main.filter(|(clause, _)| dismissed(clause)).map_or(said, |(_, main)| main);
    // `I am confident the answer is` has the answer as its own.
    const SURE: &str = r"(?i)^(?:.* )?(?:i am|i'm|we are|we're) (?:(?:now|very|quite|fairly|absolutely|completely) )?(?:confident|certain|sure|positive|convinced)(?: that)?\b";
    let said = regex!(SURE).find(said).map_or(said, |sure| said[sure.end()..].trim_start());
    if excepted
        || form!("disowned").is_match(said)
        || is_foreign(before) && languages::doubts(said)
        || cites(said)
    {
        return true;
    }
    let Some(answer) = regex!(r"(?i)^(.*)\b(?:answers?|ans)\b(.*)$").captures(said) else { return false };
    // `the square of the answer`
    let owner = answer[1]
        .split(' ')
        .rev()
        .filter(|word| !word.is_empty())
        .find(|word| !is_article(word))
        .unwrap_or_default();
    // `I would answer with`
    if is_auxiliary(owner) && regex!(r"(?i)\b(?:i|we) \w+ $").is_match(&answer[1]) {
        return false;
    }
    let leads =
        regex!(r"(?i)\b(?:leads?|led|comes?|gets?|going|have|had) (?:us |me )?to\b").is_match(&answer[1]);
    if owner == "to" && !leads
        || matches!(owner, "of" | "about" | "on" | "for" | "by" | "in" | "at" | "as" | "with" | "without")
        || owner.starts_with(char::is_alphabetic)
            && !is_neutral(owner)
            && !Roles::of(owner).has(Roles::THINKS.with(Roles::LABELS).with(Roles::CHOOSES).with(Roles::OWNS))
    {
        return true;
    }
    // `the answer of Bob`, `the answer to another problem`, `the answer minus one`
    let tail = answer[2].split(':').next().unwrap_or_default();
    let tail =
        regex!(r"^ (?:is|are) not \S+ ,? ?but").find(tail).map_or(tail, |denied| &tail[denied.end()..]);
    let value = regex!(
        r"^(?: (?:is|should be|must be|will be))(?: (?:simply|just|therefore|thus|then|now))* the (\w+)"
    )
    .captures(tail);
    if value.is_some_and(|found| Roles::of(&found[1]).has(Roles::JOINS.with(Roles::PRAISES))) {
        return false;
    }
    let denied = |text: &str| text.split(' ').any(|word| Roles::of(word).has(Roles::DENIES));
    let aside = form!("aside").is_match(tail) && !denied(tail) && !regex!(DISOWNED_SOURCES).is_match(tail);
    !aside && !tail.split(' ').all(is_about_answer)
}

/// Whether a word can occur in front of `answer`, as in `The final answer`.
fn is_article(word: &str) -> bool {
    const ARTICLES: &str = "the a an final correct right best my our this new exact numerical numeric required desired simplified overall only your \
        total actual complete maximum minimum concise boxed short full last";
    ARTICLES.split_whitespace().any(|known| word.eq_ignore_ascii_case(known))
}

/// Whether a word can occur between `answer` and its verb, as in `The answer to the given problem is`.
fn is_about_answer(word: &str) -> bool {
    const ABOUT: &str = "out up ends ended end being turns after checking requested required tags box question thing problem exercise task puzzle original given whole entire part simplest lowest reduced form format terms notation \
        interval scientific decimal decimals place places fraction rounded nearest integer number tenth hundredth cent unit units for as by \
        at comes works evaluates simplifies mixed percent percentage expressed written both all value values set following below above boxed \
        option choice letter am certain sure confident shown";
    let lower = word.to_lowercase();
    !word.starts_with(char::is_alphabetic)
        || !matches!(&*lower, "he" | "she" | "they" | "his" | "her" | "their")
            && (Roles::of(word).has(Roles::FILLS.with(Roles::LEADS))
                || ABOUT.split(' ').any(|known| known == lower)
                || units::canonical(&lower).is_some())
}

/// Whether a sentence cites a source that isn't the problem or mathematics: `according to Bob`.
fn cites(said: &str) -> bool {
    regex!(r"(?i)\baccording to (.*)$").captures(said).is_some_and(|found| {
        !form!("sources").is_match(&found[1])
            || regex!(r"(?i)\b(?:wrong|false|incorrect)\b").is_match(&found[1])
    })
}

/// Whether all words of a string lack content, as in `the final`.
pub(crate) fn is_introduction(said: &str) -> bool {
    let words = |c: char| c.is_alphabetic() || c.is_whitespace() || "*:".contains(c);
    said.chars().all(words)
        && said.split(|c: char| !c.is_alphabetic()).all(|word| word.is_empty() || is_neutral(word))
}

/// Whether a word lacks content, so that a sentence of such words and a number states the number.
pub(crate) fn is_neutral(word: &str) -> bool {
    Roles::of(word).has(Roles::FILLS.with(Roles::LEADS))
}

/// Whether a predicate names the answer: `the answer to the problem`, `the smallest such number`.
pub(crate) fn praises(predicate: &str) -> bool {
    form!("praised").is_match(predicate)
        && !form!("unpraised").is_match(predicate)
        && predicate.chars().any(char::is_alphabetic)
}

/// Whether the words after a value relate it to another value, another problem or another person.
pub(crate) fn is_redirected(after: &Pieces<'_>) -> bool {
    let after = &*phrase(&after.all);
    let number = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_digit()) || number_in_words(&word.to_lowercase()).is_some()
    };
    let mut others =
        form!("another number").captures_iter(after).filter_map(|found| found.get(1).or(found.get(2)));
    const REMARKS: &str = r"(?i)^(?:means|simplifies|satisfies|matches|corresponds|agrees|represents|leads|works|fits|checks|follows|completes|reduces|rounds|confirms|shows|was)$";
    let which = regex!(r"(?i)\bwhich (\w+)").captures(after);
    // A role that isn't the answer's, as in `as a warm-up`.
    const ANSWERS: &str = "final result answer solution consequence conclusion fraction decimal percentage percent mixed reduced simplified whole integer number single \
        unique common simple function sum product power ratio direct proper";
    let role = regex!(r"(?i)^as an? (\w+)").captures(after);
    let role = role.is_some_and(|found| !ANSWERS.split(' ').any(|word| word.eq_ignore_ascii_case(&found[1])));
    // A purpose, as in `for practice`, or one person or case, as in `for Bob`.
    const EVERY: &str =
        "sure certain short all each both everything everyone everybody us you me it this that";
    let purpose = regex!(r"(?i)^for (\w+)(?: only| purposes?)?\W*$").captures(after);
    let purpose = purpose.is_some_and(|found| {
        !EVERY.split(' ').any(|word| word.eq_ignore_ascii_case(&found[1]))
            && !found[1].starts_with(|c: char| c.is_ascii_digit())
    });
    purpose
        || role
        || form!("redirected").is_match(after)
        || others.any(|word| number(word.as_str()))
        || cites(after)
        || which.is_some_and(|found| !is_neutral(&found[1]) && !regex!(REMARKS).is_match(&found[1]))
}

fn sign(before: &[Piece<'_>], gap: bool, value: &str) -> Option<&'static str> {
    let Some((last, head)) = before.split_last() else { return Some("") };
    let stated = || sign(head, last.spaced, value).filter(|sign| sign.is_empty());
    let unless_denied = |words: &[Piece<'_>]| if denies(words) { None } else { Some("") };
    match (last.kind, last.text) {
        (Kind::Word, word) if matches!(&*word.to_lowercase(), "minus" | "negative") => {
            stated().and(Some("-"))
        }
        (Kind::Word, word) if units::currency(word).is_some() => {
            let signs = [("dollar", "\\$"), ("euro", "€"), ("sterling", "£"), ("yen", "¥"), ("rupee", "₹")];
            let sign = signs.into_iter().find(|(name, _)| units::currency(word) == Some(name));
            stated().and(sign.map(|(_, sign)| sign))
        }
        (Kind::Word, word) => {
            let before_last = |at: usize| head.len().checked_sub(at).map_or("", |at| head[at].text);
            let join = head.last().filter(|word| word.is_word(Roles::JOINS));
            match &*word.to_lowercase() {
                "us" | "him" | "her" | "them" | "me" | "you" => stated(),
                // `is at`, `is therefore at`, `intersect at`
                "at" if head.last().is_some_and(|word| {
                    word.is_word(Roles::STATES) || form!("places").is_match(word.text)
                }) =>
                {
                    unless_denied(head)
                }
                "it" if matches!(before_last(1), "make" | "makes" | "making") => unless_denied(head),
                "with" if matches!(before_last(1), "left" | "up" | "us") => unless_denied(head),
                "with" | "for" | "on" | "in" | "at" | "as" | "to" if chooses(head) => unless_denied(head),
                _ if chooses(before) || acts(before) => unless_denied(before),
                "on" | "with" | "for" | "at" if acts(head) => unless_denied(head),
                "like" if matches!(before_last(1), "looks" | "Looks" | "seems" | "Seems") => {
                    unless_denied(&head[..head.len() - 1])
                }
                "to" | "as" | "at"
                    if matches!(before_last(1), "out" | "us" | "down" | "points" | "lead" | "it") =>
                {
                    unless_denied(head)
                }
                "to" if before_last(1) == "up" && before_last(2).starts_with("add") => Some(""),
                // A verb after an auxiliary verb: `must score 8`.
                _ if matches!(before_last(1), "will" | "can" | "must" | "should" | "to")
                    && !matches!(word, "exceed" | "avoid") =>
                {
                    unless_denied(head)
                }
                "of" if join.is_some_and(|word| !word.text.starts_with("sum")) => unless_denied(before),
                "to" | "by" | "at" | "as" | "in" if join.is_some() => unless_denied(before),
                // The sentence denies another value, but states this one.
                "but" if head.iter().any(|word| word.is_word(Roles::DENIES)) => Some(""),
                _ if last.is_word(Roles::STATES) || is_foreign(before) => unless_denied(before),
                _ => None,
            }
        }
        (Kind::Number, _) => None,
        (Kind::Command, "\\$") => stated().and(Some("\\$")),
        (Kind::Sign, "€" | "£" | "¥" | "₹") => {
            stated().and(["€", "£", "¥", "₹"].into_iter().find(|sign| *sign == last.text))
        }
        (
            Kind::Command,
            "\\Rightarrow" | "\\implies" | "\\Longrightarrow" | "\\iff" | "\\approx" | "\\therefore"
            | "\\equiv",
        ) => unless_denied(head),
        (Kind::Command, "\\in") if value.starts_with(['(', '[', '\\']) => unless_denied(head),
        (_, "=" | "≈" | "→" | "⇒" | "⟹" | "∴" | "≡") => unless_denied(head),
        (Kind::Sign, arrow) if arrow.len() > 1 && arrow.bytes().all(|byte| b"=->".contains(&byte)) => {
            unless_denied(head)
        }
        (_, ":") => {
            let ratio = head.last().is_some_and(|piece| piece.kind == Kind::Number) && (last.formula || !gap);
            if ratio || !is_label(head) && !is_foreign(head) { None } else { unless_denied(head) }
        }
        (_, "," | ";") if last.formula => None,
        (_, "," | ";") => {
            let clause =
                head.rsplit(|piece| matches!(piece.text, "," | ";" | ".")).next().unwrap_or_default();
            let idiom = |piece: &Piece<'_>| {
                piece.is_word(Roles::FILLS.with(Roles::LEADS).with(Roles::LABELS))
                    && !piece.is_word(Roles::DENIES)
            };
            (head.last().is_none_or(|word| word.is_word(Roles::LEADS) || word.is("."))
                || clause.iter().all(idiom))
            .then_some("")
        }
        // The value repeats the number in words before it: `nine (9)`.
        (_, "(" | "[") => {
            let words = head.iter().rev().take_while(|piece| piece.kind == Kind::Word).count();
            for from in head.len() - words..head.len() {
                let said: Vec<&str> = head[from..].iter().map(|piece| piece.text).collect();
                if let Some(number) = number_in_words(&said.join(" ")) {
                    let same = number.to_string() == value;
                    return sign(&head[..from], true, value).filter(|_| same);
                }
            }
            stated()
        }
        // The label of an item or option: `(b)`, `2)`.
        (_, ")") => match head {
            [_] => Some(""),
            [head @ .., Piece { text: "(", .. }, mark] if mark.text.len() == 1 => {
                sign(head, true, value).filter(|sign| sign.is_empty())
            }
            _ => None,
        },
        (_, "-" | "−" | "–" | "—" | "+") => {
            let sign = if last.text == "+" { "" } else { "-" };
            let dash = !last.formula && gap && last.spaced;
            match head.last() {
                None if gap && !last.formula => Some(""),
                None => Some(sign),
                Some(piece) if piece.kind == Kind::Word && !piece.formula => {
                    if last.spaced || dash {
                        stated().map(|_| if dash { "" } else { sign })
                    } else {
                        None
                    }
                }
                Some(piece) if piece.kind == Kind::Number => None,
                Some(piece) if piece.is(")") || piece.is("]") || piece.is("}") => None,
                Some(_) => stated().and(Some(sign)),
            }
        }
        (
            _,
            ">" | "|" | "•" | "·" | "◦" | "‣" | "▪" | "'" | "‘" | "«" | "✅" | "✓" | "✔" | "👉" | "➡" | "➜"
            | "📌" | "🎉",
        ) if !last.formula && head.is_empty() => Some(""),
        (_, "'" | "‘" | "«") => stated(),
        _ => None,
    }
}

/// Whether the words end with a verb by which the writer chooses a value: `I'd answer`, `let's go`.
fn chooses(words: &[Piece<'_>]) -> bool {
    let Some((verb, head)) = words.split_last() else { return false };
    let neutral = |piece: &&Piece<'_>| piece.is_word(Roles::FILLS.with(Roles::LEADS).with(Roles::CHOOSES));
    verb.is_word(Roles::CHOOSES) && head.iter().rev().take_while(neutral).any(|piece| is_writer(piece.text))
}

/// Whether the words end with another verb of the writer, as in `I hereby submit`, unless the verb reports, doubts or computes.
fn acts(words: &[Piece<'_>]) -> bool {
    const OTHERS: &str = r"(?i)^(?:add|subtract|multipl|divid|doubl|halv|squar|cub|negat|cop[iy]|wrote|heard|hear|remember|recall|saw|tr[iy]|test|need|wish|hop|bet|fear|doubt|reject|refus|exclud|eliminat|disagree|hat|skip|avoid|consider|compar|cross|typ|borrow|stole|steal|invent|was|were|had|used|did|lik|lov|dread|imagin|pictur|start|begin|began|replac|substitut|plug|chang|swap|flip|guess|forg|miss|los|round|cancel|delet|drop|ignor|omit|am|are|can|will|would|could|do|of|about|from|if|or|and|than|not)";
    let Some((verb, head)) = words.split_last() else { return false };
    let adverb = |piece: &&Piece<'_>| {
        piece.is_word(Roles::FILLS.with(Roles::LEADS))
            || piece.kind == Kind::Word && piece.text.ends_with("by")
    };
    verb.kind == Kind::Word
        && !verb.formula
        && !regex!(OTHERS).is_match(verb.text)
        && !verb.is_word(Roles::DENIES)
        && head
            .iter()
            .rev()
            .take_while(adverb)
            .take(4)
            .any(|piece| matches!(uncontracted(&piece.text.to_lowercase().replace('’', "'")), "i" | "we"))
}

/// Whether a word names the writer of the response.
fn is_writer(word: &str) -> bool {
    matches!(uncontracted(&word.to_lowercase().replace('’', "'")), "i" | "we" | "let" | "you" | "one")
}

/// Whether the words before a colon name an answer. Known words do, a clause of the writer (`now we add them`), a quantity
/// (`number of coins`) and a symbol. Any other label, such as `a common error`, doesn't.
fn is_label(head: &[Piece<'_>]) -> bool {
    let label = head.rsplit(|piece| matches!(piece.text, ":" | ";" | ".")).next().unwrap_or_default();
    let words = || label.iter().filter(|piece| piece.kind == Kind::Word && !piece.formula);
    const KNOWN: Roles = Roles::STATES
        .with(Roles::FILLS)
        .with(Roles::OWNS)
        .with(Roles::LEADS)
        .with(Roles::PRAISES)
        .with(Roles::JOINS)
        .with(Roles::LABELS);
    const VERBS: [&str; 14] = [
        "is", "are", "was", "be", "get", "gets", "have", "has", "give", "gives", "find", "obtain", "becomes",
        "equals",
    ];
    let is_verb = |piece: &Piece<'_>| VERBS.contains(&piece.text);
    words().all(|piece| piece.is_word(KNOWN) || units::is_unit(piece.text))
        || words().any(|piece| {
            let quantity = regex!(r"(?i)^(?:left|remaining|needed|required|sold|spent|earned|many|matrix|grid|set|interval|vector|points?|roots?|function|polynomial)$").is_match(piece.text);
            quantity
                || piece.is_word(Roles::JOINS) && !piece.text.eq_ignore_ascii_case("given")
                || is_writer(piece.text)
        })
        || words().next_back().is_some_and(is_verb)
}

/// Whether the words before a value deny it, suppose it or attribute it to somebody else. Neutral words are skipped.
pub(crate) fn denies(words: &[Piece<'_>]) -> bool {
    let mut next_text = "";
    // Whether the subject of a verb of thinking is looked for.
    let mut thinks = false;
    // `No: 8`
    if let [.., no, mark] = words
        && no.text.eq_ignore_ascii_case("no")
        && mark.kind == Kind::Sign
        && matches!(mark.text, "," | ":" | ";")
    {
        return false;
    }
    for (at, piece) in words.iter().enumerate().rev() {
        if piece.is(".")
            || piece.kind == Kind::Sign && matches!(piece.text, "," | ";" | ":") && !next_text.is_empty()
        {
            return false;
        }
        if piece.kind != Kind::Word || piece.formula {
            // `half of 18` is a separate value.
            if next_text == "is" && piece.kind == Kind::Number {
                return false;
            }
            continue;
        }
        let roles = piece.roles();
        let lower = next_text.to_lowercase();
        let answer = matches!(&*lower, "answer" | "answers");
        let own = roles.has(Roles::OWNS) || is_article(piece.text);
        let earlier = words[..at].last().map_or("", |piece| piece.text);
        // `Without a doubt, it is 8.`
        if piece.text == "doubt" && matches!(&*earlier.to_lowercase(), "no" | "a" | "without" | "any") {
            return false;
        }
        if roles.has(Roles::DENIES)
            || answer && !own && !(is_auxiliary(piece.text) && is_writer(earlier))
            || thinks
                && !is_writer(piece.text)
                && !roles.has(Roles::LEADS.with(Roles::THINKS))
                && !is_auxiliary(piece.text)
        {
            return true;
        }
        thinks = roles.has(Roles::THINKS) || thinks && !is_writer(piece.text);
        if !roles.has(Roles::FILLS.with(Roles::OWNS)) {
            return false;
        }
        next_text = piece.text;
    }
    // `Say it is 8.`
    thinks
}

/// Whether a word can be between the writer and a verb: `I would say`.
fn is_auxiliary(word: &str) -> bool {
    matches!(
        word,
        "would" | "will" | "can" | "do" | "must" | "should" | "have" | "to" | "also" | "going" | "still"
    )
}

/// Whether the text between two boxes lists both: it doesn't deny either box, compute with them or compare them.
pub(crate) fn lists(between: &Pieces<'_>) -> bool {
    if matches!(&between.all[..], [word] if word.text == "to") {
        return false;
    }
    between.all.iter().all(|piece| match piece.kind {
        Kind::Word => {
            (!piece.is_word(Roles::DENIES) || matches!(piece.text, "or" | "either"))
                && !matches!(
                    &*piece.text.to_lowercase(),
                    "but" | "minus" | "plus" | "times" | "from" | "over" | "by" | "mod"
                )
        }
        Kind::Sign => !"<>+-−*/^×÷≤≥≠~".contains(piece.text.chars().next().unwrap_or(' ')),
        Kind::Command => {
            !regex!(r"^\\(?:leq?|geq?|neq?|cdot|times|pm|mp|cup|cap|div|to|lt|gt|sim)$").is_match(piece.text)
        }
        Kind::Number => true,
    })
}

/// Whether a value is still an answer with the text that follows it on its line: a counted noun, a reason, or the end of the
/// sentence. `words` is the number of following words that were already read as a unit. `worded` is whether words precede the
/// value, in which case an exclamation mark isn't a factorial.
pub(crate) fn is_ended(after: &Pieces<'_>, words: usize, value: &str, worded: bool) -> bool {
    let doubted = || is_foreign(&after.all) && languages::doubts(&phrase(&after.all));
    ends(&after.all, words, value, worded) && !is_redirected(after) && !doubted()
}

fn ends(after: &[Piece<'_>], mut words: usize, value: &str, worded: bool) -> bool {
    let mut at = 0;
    while let Some(piece) = after.get(at) {
        let rest = &after[at + 1..];
        let next = rest.first();
        at += 1;
        let lower = piece.text.to_lowercase();
        match piece.kind {
            Kind::Number => return words > 2 && piece.spaced,
            Kind::Command => return false,
            // A formula that describes the counted things: `8 pairs $(a,b)$`.
            Kind::Word if piece.formula && words > 0 => return true,
            Kind::Word if piece.formula || words == 0 && at == 1 && !piece.spaced => return false,
            Kind::Word => {
                let number = next
                    .is_some_and(|next| next.kind != Kind::Word && !next.is(".") || spelled(next).is_some());
                // `So 8 it is.`
                let closes = lower == "it"
                    && next.is_some_and(|next| next.text == "is")
                    && rest.get(1).is_none_or(|end| end.kind == Kind::Sign);
                match &*lower {
                    _ if closes => return true,
                    // `8 must be the answer.`
                    "must" | "has" | "would" | "should" | "will" if words == 0 => {
                        let said = phrase(rest);
                        let named = regex!(r"(?i)^(?:to )?be (.*)$").captures(&said);
                        return named.is_some_and(|named| praises(&named[1])) && !offers(rest);
                    }
                    "and" if next.is_some_and(|next| next.text == "not") => {
                        return rest.get(1).is_some_and(|other| other.kind == Kind::Number);
                    }
                    "and" => return continues(next, rest.get(1)) && !taken_back(rest),
                    "or" => {
                        let equal = |piece: &Piece<'_>| {
                            piece.text == value
                                || spelled(piece).is_some_and(|number| number.to_string() == value)
                        };
                        return next.is_some_and(|next| next.text == "equivalently")
                            && rest.get(1).is_some_and(equal);
                    }
                    "of" if words == 0 && number => return false,
                    "not" => return next.is_some_and(|next| next.kind == Kind::Number),
                    "times" if next.is_none_or(|next| next.kind == Kind::Sign && !next.formula) => {}
                    "to" => return !number && next.is_some_and(|next| !matches!(next.text, "the" | "a")),
                    "more" | "fewer" | "less"
                        if words == 0
                            && !number
                            && next.is_some_and(|next| next.kind == Kind::Word && next.text != "than") => {}
                    "than" if words > 1 => return !number,
                    "is" | "are" | "was" | "were" | "equals" => {
                        if words > 0 {
                            return !taken_back(rest);
                        }
                        return praises(&phrase(rest)) && !offers(rest);
                    }
                    _ if piece.is_word(Roles::GOES_ON) => {
                        let reason = matches!(&*lower, "since" | "because" | "so" | "where" | "when" | "as");
                        let numbered = words == 0
                            && number
                            && matches!(&*lower, "by" | "at" | "per" | "in" | "with" | "on");
                        let based = next.is_some_and(|next| next.text == "base");
                        return !numbered
                            && !based
                            && next.is_none_or(|next| next.text != "if")
                            && (reason && !offers(rest) || !taken_back(rest));
                    }
                    word if is_changing(word) => return false,
                    _ => {}
                }
                words += 1;
            }
            Kind::Sign => match piece.text {
                "." | "。" | "!" if next.is_none_or(|next| next.spaced) => {
                    let last = piece.text != "!" || worded || words > 0 || piece.spaced;
                    // A number alone is another answer.
                    return last
                        && !(next.is_some_and(|next| next.kind == Kind::Number || next.is("-"))
                            && rest.len() < 4);
                }
                "." => {
                    return next.is_some_and(|next| {
                        next.kind == Kind::Word || matches!(next.text, ")" | "]" | "'" | "’" | "»")
                    });
                }
                "," | ";" | ":" | "-" | "–" | "—" => {
                    let dash = !matches!(piece.text, "," | ";" | ":");
                    if dash && !(piece.spaced && next.is_some_and(|next| next.spaced)) {
                        return false;
                    }
                    if piece.text == ":" && words > 0 {
                        return true;
                    }
                    return match next {
                        None => !dash,
                        Some(next) if next.kind == Kind::Word && !next.formula => {
                            let and = next.text == "and" && continues(rest.get(1), rest.get(2));
                            let on = next.is_word(Roles::GOES_ON) || matches!(next.text, "not" | "none");
                            // `I believe`, `no question`, `final answer`
                            let sure = regex!(
                                r"(?i)^(?:and )?(?:(?:i|we)(?:'m| am| are|'re|'ve| have)? (?:believe|think|(?:absolutely |quite |very |pretty |fairly )?(?:sure|certain|confident)|(?:double[ -]?)?checked)|if (?:i'm|i am|we)\b|as far as (?:i|we)|no (?:more|less|question|doubt)|(?:my )?final answer|done|that's it|without (?:an? |any )?(?:question|doubt)|for (?:sure|certain)|hands down|(?:complet|conclud|finish|end|solv|answer)ing (?:the|this|our|my)\b.*|as (?:required|requested|desired|wanted|claimed|expected))\b|^(?:of course|clearly|obviously|certainly|definitely|thanks?(?: you)?) ?(?:[.!].*)?$"
                            );
                            (and || on) && !taken_back(&rest[1..])
                                || sure.is_match(&phrase(rest)) && !offers(rest)
                        }
                        // The mark that closes the formula or the quotation may follow the comma.
                        Some(next) => {
                            next.kind == Kind::Sign && rest.len() == 1 && matches!(next.text, ")" | "]" | "'")
                        }
                    };
                }
                "(" if piece.formula && words > 0 => return true,
                "^" if words > 0 && next.is_some_and(|next| matches!(next.text, "2" | "3")) => at += 1,
                "(" | "[" | "{" => {
                    let length = rest
                        .iter()
                        .position(|piece| matches!(piece.text, ")" | "]" | "}"))
                        .unwrap_or(rest.len());
                    let inside = &rest[..length];
                    let said: Vec<&str> = inside.iter().map(|piece| piece.text).collect();
                    let said = said.join(" ");
                    let remark = said.to_lowercase();
                    let same = regex!(
                        r"^(?:(?:double|re) ?-? ?)?(?:verified|checked|confirmed|exact|exactly|final)$"
                    )
                    .is_match(&remark)
                        || said == value
                        || number_in_words(&said).is_some_and(|number| number.to_string() == value);
                    if !same
                        && (piece.formula
                            || !inside.first().is_some_and(|word| is_writer(word.text))
                                && !ends(inside, 1, value, true)
                            || is_correction(&remark))
                    {
                        return false;
                    }
                    at += length;
                    words += 1;
                }
                // Decoration, unless it marks an error.
                mark if mark.chars().all(is_decoration) => {}
                // The end of a cell.
                "|" if !piece.formula && next.is_none() => {}
                ")" | "]" | "’" | "»" | "}" => {}
                "'" if !piece.formula => {}
                _ => return false,
            },
        }
    }
    true
}

/// Whether a remark in lower case corrects the answer before it, doubts it or orders another step.
pub(crate) fn is_correction(words: &str) -> bool {
    const ONLY: &str =
        "just|only|merely|an?|my|the|at|by|for|as|picked|chosen|this (?:is|was)|that (?:is|was)";
    let trial = regex!(&format!(r"^(?:(?:{ONLY}) )*(?:{TRIALS})(?: \w+)?$"));
    is_ignorant(words) || form!("corrects").is_match(words) || trial.is_match(words) || is_deferral(words)
}

/// Whether a sentence in lower case announces the answer for later.
fn is_deferral(words: &str) -> bool {
    form!("defers").is_match(words)
}

/// Whether a sign is a check mark or a picture that doesn't mark an error or a doubt.
pub(crate) fn is_decoration(sign: char) -> bool {
    const ERRORS: &str = "✕✖✗✘❌❎❓❔👎🚫⛔🛑🙅🤔🤷🤥🤡😜🃏";
    (sign >= '\u{1f000}' || matches!(sign, '∎' | '\u{2500}'..='\u{27bf}' | '\u{fe0f}'))
        && !ERRORS.contains(sign)
}

/// Whether the words after an "and" continue the statement about the value and don't offer another value.
fn continues(word: Option<&Piece<'_>>, next: Option<&Piece<'_>>) -> bool {
    let on = next.is_some_and(|next| next.text == "on");
    word.is_some_and(|word| {
        (word.is_word(Roles::GOES_ON) || matches!(word.text, "indeed" | "nothing")) && !on
    })
}

/// Whether a clause offers another value, which is a number after a comma or a connective, outside of a formula.
fn offers(clause: &[Piece<'_>]) -> bool {
    let joins = |piece: &Piece<'_>| {
        !piece.formula && matches!(piece.text, "," | ";" | "and" | "or" | "else" | "otherwise")
    };
    clause.windows(2).any(|pair| joins(&pair[0]) && pair[1].kind == Kind::Number && !pair[1].formula)
}

/// Returns the value of a piece that is a number in one word.
fn spelled(piece: &Piece<'_>) -> Option<u64> {
    Some(piece).filter(|piece| piece.kind == Kind::Word).and_then(|piece| number_in_words(piece.text))
}

/// Whether a word after a value changes the value, or shows that it isn't an answer.
fn is_changing(word: &str) -> bool {
    let name = word.chars().count() < 3 && !matches!(word, "a" | "an" | "of" | "sq" | "cu");
    let abbreviation = !word.contains(|c: char| !c.is_ascii() || "aeiouy".contains(c))
        && units::canonical(word).is_none()
        && !matches!(word, "sq" | "cu");
    const PARTICIPLES: [&str; 6] = ["needed", "required", "used", "expected", "colored", "red"];
    name && !units::is_unit(word)
        || abbreviation
        || units::changes(word)
        || units::denominator(word).is_some()
        || SCALES.iter().any(|(scale, _)| *scale == word.trim_end_matches('s'))
        || number_in_words(word).is_some()
        || word.ends_with("n't")
        || word.ends_with("n’t")
        || word.ends_with("ed") && !PARTICIPLES.contains(&word)
        || Roles::of(word).has(Roles::CHANGES)
}

/// Whether a clause after a value calls the value wrong or offers another value.
fn taken_back(clause: &[Piece<'_>]) -> bool {
    let wrong = |piece: &Piece<'_>| {
        let word = piece.text.to_lowercase();
        matches!(&*word, "not" | "never" | "wrong" | "incorrect" | "false" | "mistaken")
            || word.ends_with("n't")
            || word.ends_with("n’t")
    };
    offers(clause) || clause.iter().take(8).any(wrong)
}
