//! Sentence boundaries by Punkt (Kiss and Strunk, 2006) with NLTK's English parameters.
//!
//! Follows NLTK 3.10: curly quotes and guillemets close a sentence like straight quotes. This is only the decision
//! procedure, without training. Positions are indices into characters.

use super::characters::{is_digit, is_unicode_word};
use crate::python_text::{is_space, regex};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::OnceLock;

const MIDDLE_UPPER: u8 = 1 << 2;
const BEGIN_LOWER: u8 = 1 << 4;
const UPPER: u8 = (1 << 1) | MIDDLE_UPPER | (1 << 3);
const LOWER: u8 = BEGIN_LOWER | (1 << 5) | (1 << 6);

/// The trained parameters of one language.
struct Parameters {
    abbreviations: HashSet<&'static str>,
    starters: HashSet<&'static str>,
    collocations: HashSet<(&'static str, &'static str)>,
    contexts: HashMap<&'static str, u8>,
}

fn english() -> &'static Parameters {
    static ENGLISH: OnceLock<Parameters> = OnceLock::new();
    ENGLISH.get_or_init(|| {
        let mut p = Parameters {
            abbreviations: HashSet::new(),
            starters: HashSet::new(),
            collocations: HashSet::new(),
            contexts: HashMap::new(),
        };
        for line in include_str!("../../data/punkt_english.tsv").lines() {
            let mut fields = line.split('\t');
            match (fields.next(), fields.next(), fields.next()) {
                (Some("abbreviation"), Some(a), None) => {
                    p.abbreviations.insert(a);
                }
                (Some("starter"), Some(s), None) => {
                    p.starters.insert(s);
                }
                (Some("collocation"), Some(a), Some(b)) => {
                    p.collocations.insert((a, b));
                }
                (Some("context"), Some(flags), Some(word)) => {
                    p.contexts.insert(word, flags.parse().expect("flags below 128"));
                }
                _ => {}
            }
        }
        p
    })
}

/// Returns whether `\s` of the `regex` module, which NLTK 3.10 uses, matches.
fn is_white(c: char) -> bool {
    c.is_whitespace()
}

fn is_sentence_end(c: char) -> bool {
    matches!(c, '.' | '?' | '!')
}

fn is_curly_quote(c: char) -> bool {
    matches!(c, '\u{2018}' | '\u{2019}' | '\u{201c}' | '\u{201d}' | '\u{ab}' | '\u{bb}')
}

fn is_non_word(c: char) -> bool {
    matches!(c, ')' | '"' | ';' | '}' | ']' | '*' | ':' | '@' | '\'' | '(' | '{' | '[' | '?' | '!')
        || is_curly_quote(c)
}

fn starts_word(c: char) -> bool {
    !matches!(
        c,
        '(' | '"' | '`' | '{' | '[' | ':' | ';' | '&' | '#' | '*' | '@' | ')' | '}' | ']' | '-' | ','
    )
}

/// Returns the length of a dash run, an ellipsis, or a spaced ellipsis at `at`.
fn multi_character(text: &[char], at: usize) -> Option<usize> {
    let run = |c: char| text[at..].iter().take_while(|&&x| x == c).count();
    let dashes = run('-');
    if dashes >= 2 {
        return Some(dashes);
    }
    let dots = run('.');
    if dots >= 2 {
        return Some(dots);
    }
    let mut pairs = 0;
    let mut i = at;
    while text.get(i) == Some(&'.') && text.get(i + 1).is_some_and(|&c| is_white(c)) {
        pairs += 1;
        i += 2;
    }
    if text.get(i) != Some(&'.') {
        // The period of the last pair ends the ellipsis, if at least three pairs were found.
        if pairs < 3 {
            return None;
        }
        i -= 2;
    } else if pairs < 2 {
        return None;
    }
    Some(i + 1 - at)
}

/// Returns whether a dash run or an ellipsis begins at `at`; takes constant time, unlike its length.
fn multi_character_begins(text: &[char], at: usize) -> bool {
    let get = |i: usize| text.get(at + i).copied();
    match get(0) {
        Some('-') => get(1) == Some('-'),
        Some('.') => {
            let white = |i| get(i).is_some_and(is_white);
            get(1) == Some('.') || (white(1) && get(2) == Some('.') && white(3) && get(4) == Some('.'))
        }
        _ => false,
    }
}

/// Returns whether a word may end before position `at`.
fn word_ends(text: &[char], at: usize) -> bool {
    let plain = |at: usize| match text.get(at) {
        None => true,
        Some(&c) => is_white(c) || is_non_word(c) || multi_character_begins(text, at),
    };
    plain(at) || (text[at] == ',' && plain(at + 1))
}

/// One token with the annotations of the two passes.
struct Token {
    text: Vec<char>,
    kind: String,
    sentence_break: bool,
    abbreviation: bool,
    ellipsis: bool,
}

impl Token {
    fn new(text: &[char]) -> Self {
        let lower: String = text.iter().collect::<String>().to_lowercase();
        let numeric = regex!(r"^-?[.,]?\d[\d,.-]*$").is_match(&lower);
        let kind = if numeric { "##number##".to_owned() } else { lower };
        let mut token =
            Self { text: text.to_vec(), kind, sentence_break: false, abbreviation: false, ellipsis: false };
        token.first_pass();
        token
    }

    fn period_final(&self) -> bool {
        self.text.last() == Some(&'.')
    }

    /// Returns the token's type without its final period. A type that is only a period is unchanged.
    fn kind_without_period(&self) -> &str {
        match self.kind.strip_suffix('.') {
            Some(rest) if !rest.is_empty() => rest,
            _ => &self.kind,
        }
    }

    fn kind_without_sentence_period(&self) -> &str {
        if self.sentence_break { self.kind_without_period() } else { &self.kind }
    }

    fn first_upper(&self) -> bool {
        self.text[0].is_uppercase()
    }

    fn first_lower(&self) -> bool {
        self.text[0].is_lowercase()
    }

    /// Returns whether the token is a letter and a period, as in `J. Bach`.
    fn is_initial(&self) -> bool {
        matches!(self.text[..], [c, '.'] if is_unicode_word(c) && !is_digit(c))
    }

    /// Annotates the token without reading its neighbours.
    fn first_pass(&mut self) {
        let n = self.text.len();
        if n == 1 && is_sentence_end(self.text[0]) {
            self.sentence_break = true;
        } else if n >= 2 && self.text.iter().all(|&c| c == '.') {
            self.ellipsis = true;
        } else if self.period_final() && (n < 2 || self.text[n - 2] != '.') {
            let stem = self.text[..n - 1].iter().collect::<String>().to_lowercase();
            let known = |s: &str| english().abbreviations.contains(s);
            if known(&stem) || stem.rsplit('-').next().is_some_and(known) {
                self.abbreviation = true;
            } else {
                self.sentence_break = true;
            }
        }
    }
}

/// Returns whether `token` begins a sentence, according to the spelling of its word in training; `None` if unknown.
fn begins_sentence(token: &Token) -> Option<bool> {
    if let [c] = token.text[..]
        && matches!(c, ';' | ':' | ',' | '.' | '!' | '?')
    {
        return Some(false);
    }
    let context = context_of(token.kind_without_sentence_period());
    if token.first_upper() && context & LOWER != 0 && context & MIDDLE_UPPER == 0 {
        return Some(true);
    }
    if token.first_lower() && (context & UPPER != 0 || context & BEGIN_LOWER == 0) {
        return Some(false);
    }
    None
}

fn context_of(kind: &str) -> u8 {
    english().contexts.get(kind).copied().unwrap_or(0)
}

/// Annotates `token` together with the next token.
fn second_pass(token: &mut Token, next: &Token) {
    if !token.period_final() {
        return;
    }
    let kind = token.kind_without_period();
    let next_kind = next.kind_without_sentence_period();
    let initial = token.is_initial();
    if english().collocations.contains(&(kind, next_kind)) {
        token.sentence_break = false;
        token.abbreviation = true;
        return;
    }
    let number = kind == "##number##";
    if (token.abbreviation || token.ellipsis)
        && !initial
        && (begins_sentence(next) == Some(true)
            || (next.first_upper() && english().starters.contains(next_kind)))
    {
        token.sentence_break = true;
        return;
    }
    if initial || number {
        let begins = begins_sentence(next);
        let always_capital = initial && next.first_upper() && context_of(next_kind) & LOWER == 0;
        if begins == Some(false) || (begins.is_none() && always_capital) {
            token.sentence_break = false;
            token.abbreviation = true;
        }
    }
}

/// Splits the text around a candidate to tokens, which suffice to decide whether a sentence ends there.
fn tokens(context: &[char]) -> Vec<Token> {
    let mut found = Vec::new();
    for line in context.split(|&c| c == '\n') {
        if line.iter().all(|&c| is_space(c)) {
            continue;
        }
        let mut at = 0;
        while at < line.len() {
            let end = if let Some(n) = multi_character(line, at) {
                at + n
            } else if is_white(line[at]) {
                at += 1;
                continue;
            } else if starts_word(line[at]) {
                let mut end = at + 1;
                while !word_ends(line, end) {
                    end += 1;
                }
                end
            } else {
                at + 1
            };
            found.push(Token::new(&line[at..end]));
            at = end;
        }
    }
    found
}

/// Returns whether a sentence ends inside the text around a candidate.
fn holds_break(context: &[char]) -> bool {
    let mut tokens = tokens(context);
    for i in 1..tokens.len() {
        let (before, after) = tokens.split_at_mut(i);
        let token = &mut before[i - 1];
        second_pass(token, &after[0]);
        if token.sentence_break {
            return true;
        }
    }
    false
}

/// A possible end of a sentence: positions of the end character, the text after it, and the next word.
#[derive(Clone)]
struct Candidate {
    at: usize,
    after: Range<usize>,
    next_word: Option<usize>,
}

fn candidates(text: &[char]) -> impl Iterator<Item = Candidate> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < text.len() {
            let i = at;
            at += 1;
            if !is_sentence_end(text[i]) {
                continue;
            }
            let Some(&c) = text.get(i + 1) else { continue };
            if is_non_word(c) {
                return Some(Candidate { at: i, after: i + 1..i + 2, next_word: None });
            }
            if is_white(c) {
                let white = text[i + 1..].iter().take_while(|&&c| is_white(c)).count();
                let start = i + 1 + white;
                let word = text[start..].iter().take_while(|&&c| !is_white(c)).count();
                if word > 0 {
                    return Some(Candidate { at: i, after: i + 1..start + word, next_word: Some(start) });
                }
            }
        }
        None
    })
}

/// Splits text at the ends of sentences. Of overlapping candidates only the last is considered.
fn slices(text: &[char]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut last_break = 0;
    let mut previous: Option<(Candidate, Range<usize>)> = None;
    let mut word = 0..0;
    let mut decide = |candidate: &Candidate, word: &Range<usize>| {
        let mut context = text[word.clone()].to_vec();
        context.push(text[candidate.at]);
        context.extend_from_slice(&text[candidate.after.clone()]);
        if holds_break(&context) {
            found.push(last_break..candidate.at + 1);
            last_break = candidate.next_word.unwrap_or(candidate.at + 1);
        }
    };
    for candidate in candidates(text) {
        // A space at the very start of the gap is ignored, as in the reference.
        let gap = &text[word.end..candidate.at];
        let space = gap.iter().rposition(|&c| matches!(c, ' ' | '\t'..='\r'));
        let start = match space {
            Some(i) if i > 0 => word.end + i + 1,
            _ => word.start,
        };
        let this = start..candidate.at;
        if let Some((before, before_word)) = &previous
            && before_word.end <= this.start
        {
            decide(before, before_word);
        }
        word = this.clone();
        previous = Some((candidate, this));
    }
    if let Some((before, before_word)) = &previous {
        decide(before, before_word);
    }
    let end = text.iter().rposition(|&c| !is_space(c)).map_or(0, |i| i + 1);
    found.push(last_break..end);
    found
}

/// Returns the length of closing punctuation at the start of a sentence that belongs to the previous sentence: (length
/// with the white space after it, length without).
fn closing_punctuation(sentence: &[char]) -> Option<(usize, usize)> {
    let mut n = 0;
    while let Some(&c) = sentence.get(n) {
        if !(matches!(c, '"' | '\'' | ')' | ']' | '}') || is_curly_quote(c)) {
            return None;
        }
        n += 1;
        match sentence.get(n) {
            None => return Some((n, n)),
            Some(&c) if is_white(c) => {
                let white = sentence[n..].iter().take_while(|&&c| is_white(c)).count();
                return Some((n + white, n));
            }
            Some('-') if sentence.get(n + 1) == Some(&'-') => return Some((n, n)),
            Some(_) => {}
        }
    }
    None
}

/// Returns the sentences of a string as ranges of its characters, in order, without the white space between.
pub(crate) fn sentences(text: &[char]) -> Vec<Range<usize>> {
    let slices = slices(text);
    let part = |r: &Range<usize>| text.get(r.clone()).unwrap_or(&[]);
    let mut found = Vec::new();
    let mut realign = 0;
    for (i, slice) in slices.iter().enumerate() {
        let this = slice.start + realign..slice.end;
        let closing = slices.get(i + 1).and_then(|next| closing_punctuation(part(next)));
        if let Some((with_space, without)) = closing {
            found.push(this.start..slices[i + 1].start + without);
            realign = with_space;
        } else {
            realign = 0;
            if !part(&this).is_empty() {
                found.push(this);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<String> {
        let chars: Vec<char> = text.chars().collect();
        sentences(&chars).into_iter().map(|r| chars[r].iter().collect()).collect()
    }

    #[test]
    fn abbreviations_and_initials_do_not_end_sentences() {
        assert_eq!(
            split("Dr. J. Smith met Mr. Jones at 5 p.m. on Monday. They talked."),
            ["Dr. J. Smith met Mr. Jones at 5 p.m. on Monday.", "They talked."]
        );
    }

    #[test]
    fn closing_quotes_and_brackets_stay_with_their_sentence() {
        assert_eq!(split("(Sent one.) Sent two."), ["(Sent one.)", "Sent two."]);
        assert_eq!(
            split("He said \u{201c}Stop.\u{201d} Then he left."),
            ["He said \u{201c}Stop.\u{201d}", "Then he left."]
        );
    }

    #[test]
    fn repeated_end_marks_make_one_boundary() {
        assert_eq!(split("Very bad acting!!! I promise."), ["Very bad acting!!!", "I promise."]);
    }

    #[test]
    fn an_empty_text_has_no_sentence() {
        assert!(split("").is_empty());
        assert!(split(" \n ").is_empty());
    }
}
