//! Words as in NLTK's `word_tokenize`: Punkt sentences, then the Treebank substitutions.
//!
//! Each substitution of the reference is one pass over the characters, in the same order: a later rule sees the spaces
//! that an earlier one inserted.

use super::punkt;
use super::python_text::{is_digit, is_space, is_unicode_word, is_word};

/// The words of a text.
pub(crate) fn words(text: &[char]) -> Vec<String> {
    let mut found = Vec::new();
    for sentence in punkt::sentences(text) {
        // A boundary that was realigned past the sentence's own end leaves nothing.
        let Some(sentence) = text.get(sentence) else { continue };
        let tokens = substitute(sentence);
        found.extend(
            tokens
                .split(|&c| is_space(c))
                .filter(|word| !word.is_empty())
                .map(|word| word.iter().collect::<String>()),
        );
    }
    found
}

/// Inserts a space on both sides of every character in `pad`.
fn pad(text: Vec<char>, pad: impl Fn(char) -> bool) -> Vec<char> {
    if !text.iter().any(|&c| pad(c)) {
        return text;
    }
    let mut out = Vec::with_capacity(text.len() + 16);
    for c in text {
        if pad(c) {
            out.extend([' ', c, ' ']);
        } else {
            out.push(c);
        }
    }
    out
}

/// Inserts a space on both sides of every run of `mark` with at least `least` characters; with `each > 0`, around every
/// `each` characters of a run.
fn pad_runs(text: Vec<char>, mark: char, least: usize, each: usize) -> Vec<char> {
    if !text.contains(&mark) {
        return text;
    }
    let mut out = Vec::with_capacity(text.len() + 16);
    let mut at = 0;
    while at < text.len() {
        let run = text[at..].iter().take_while(|&&c| c == mark).count();
        if run == 0 {
            out.push(text[at]);
            at += 1;
            continue;
        }
        let piece = if each == 0 { run } else { each };
        let mut left = run;
        while left >= piece.max(least) {
            out.push(' ');
            out.extend(std::iter::repeat_n(mark, piece));
            out.push(' ');
            left -= piece;
        }
        out.extend(std::iter::repeat_n(mark, left));
        at += run;
    }
    out
}

fn starting_quotes(text: &[char]) -> Vec<char> {
    let text = pad(text.to_vec(), |c| matches!(c, '«' | '“' | '‘' | '„'));
    let text = pad_runs(text, '`', 1, 0);
    let mut out = Vec::with_capacity(text.len() + 16);
    let body = match text.first() {
        Some('"') => {
            out.extend(['`', '`']);
            &text[1..]
        }
        _ => &text[..],
    };
    out.extend_from_slice(body);
    let text = pad_runs(out, '`', 2, 2);
    let mut out = Vec::with_capacity(text.len() + 16);
    let mut at = 0;
    while at < text.len() {
        let c = text[at];
        out.push(c);
        at += 1;
        if matches!(c, ' ' | '(' | '[' | '{' | '<') {
            let quote = match (text.get(at), text.get(at + 1)) {
                (Some('"'), _) => 1,
                (Some('\''), Some('\'')) => 2,
                _ => continue,
            };
            out.extend([' ', '`', '`', ' ']);
            at += quote;
        }
    }
    opening_apostrophes(&out)
}

/// Separates an apostrophe from the word that it opens, unless that word is a clitic such as `'re`.
fn opening_apostrophes(text: &[char]) -> Vec<char> {
    let mut out = Vec::with_capacity(text.len() + 16);
    for (at, &c) in text.iter().enumerate() {
        out.push(c);
        if c != '\'' || (at > 0 && is_unicode_word(text[at - 1])) {
            continue;
        }
        let rest = &text[at + 1..];
        let word: Vec<char> = rest.iter().take(4).take_while(|&&c| is_unicode_word(c)).copied().collect();
        let lower: String = word.iter().map(char::to_ascii_lowercase).collect();
        let clitic = matches!(lower.as_str(), "re" | "ve" | "ll" | "m" | "t" | "s" | "d" | "n");
        if !word.is_empty() && !clitic {
            out.push(' ');
        }
    }
    out
}

/// The final period and the closing marks after it: (its position, the end of the marks).
fn final_period(text: &[char], closes: impl Fn(char) -> bool) -> Option<(usize, usize)> {
    let dot = text.iter().rposition(|&c| c == '.')?;
    if dot == 0 || text[dot - 1] == '.' {
        return None;
    }
    let marks = text[dot + 1..].iter().take_while(|&&c| closes(c)).count();
    let end = dot + 1 + marks;
    text[end..].iter().all(|&c| c.is_whitespace()).then_some((dot, end))
}

fn punctuation(text: Vec<char>) -> Vec<char> {
    let bracket = |c: char| matches!(c, ']' | ')' | '}' | '>' | '"' | '\'');
    let mut text = text;
    if let Some((dot, end)) = final_period(&text, |c| bracket(c) || matches!(c, '»' | '”' | '’' | ' ')) {
        let marks = text[dot + 1..end].to_vec();
        text.truncate(dot);
        text.extend([' ', '.', ' ']);
        text.extend(marks);
        text.push(' ');
    }
    let mut out = Vec::with_capacity(text.len() + 16);
    let mut at = 0;
    while at < text.len() {
        let c = text[at];
        at += 1;
        match text.get(at) {
            Some(&next) if matches!(c, ':' | ',') && !is_digit(next) => {
                out.extend([' ', c, ' ', next]);
                at += 1;
            }
            _ => out.push(c),
        }
    }
    // `$` also matches before a last line feed.
    let before = out.len() - usize::from(out.last() == Some(&'\n'));
    if let Some(i) = [out.len(), before]
        .into_iter()
        .filter_map(|end| end.checked_sub(1))
        .find(|&i| matches!(out[i], ':' | ','))
    {
        let mark = out[i];
        out.splice(i..=i, [' ', mark, ' ']);
    }
    let text = pad_runs(out, '.', 2, 0);
    let text = pad(text, |c| matches!(c, ';' | '@' | '#' | '$' | '%' | '&'));
    let mut text = pad(text, |c| ('\u{2012}'..='\u{2015}').contains(&c));
    if let Some((dot, end)) = final_period(&text, bracket) {
        let marks = text[dot + 1..end].to_vec();
        text.truncate(dot);
        text.extend([' ', '.']);
        text.extend(marks);
        text.push(' ');
    }
    let text = pad(text, |c| matches!(c, '?' | '!'));
    let mut out = Vec::with_capacity(text.len() + 16);
    let mut at = 0;
    while at < text.len() {
        if text[at] != '\'' && text[at + 1..].starts_with(&['\'', ' ']) {
            out.extend([text[at], ' ', '\'', ' ']);
            at += 3;
        } else {
            out.push(text[at]);
            at += 1;
        }
    }
    pad(out, |c| c == '*')
}

fn ending_quotes(text: Vec<char>) -> Vec<char> {
    let text = pad(text, |c| matches!(c, '»' | '”' | '’'));
    let text = pad_runs(text, '\'', 2, 2);
    let mut spaced = Vec::with_capacity(text.len() + 16);
    for c in text {
        if c == '"' {
            spaced.extend([' ', '\'', '\'', ' ']);
        } else {
            spaced.push(c);
        }
    }
    let mut text: Vec<char> = Vec::with_capacity(spaced.len());
    for c in spaced {
        if !c.is_whitespace() {
            text.push(c);
        } else if text.last() != Some(&' ') {
            text.push(' ');
        }
    }
    let text = clitics(text, &["'s", "'S", "'m", "'M", "'d", "'D", "'"]);
    clitics(text, &["'ll", "'LL", "'re", "'RE", "'ve", "'VE", "n't", "N'T"])
}

/// Separates an ending from its word: `([^' ])(ending) ` becomes `\1 \2 `.
fn clitics(text: Vec<char>, endings: &[&str]) -> Vec<char> {
    if !text.contains(&'\'') {
        return text;
    }
    let mut out = Vec::with_capacity(text.len() + 16);
    let mut at = 0;
    while at < text.len() {
        let c = text[at];
        out.push(c);
        at += 1;
        if matches!(c, '\'' | ' ') {
            continue;
        }
        let ending = endings.iter().find_map(|ending| {
            let n = ending.chars().count();
            let here = text.get(at..at + n)?;
            (here.iter().copied().eq(ending.chars()) && text.get(at + n) == Some(&' ')).then_some(n)
        });
        if let Some(n) = ending {
            out.push(' ');
            out.extend_from_slice(&text[at..=at + n]);
            at += n + 1;
        }
    }
    out
}

/// Joined words that count as two: (first part, second part, needs a space after).
const CONTRACTIONS: [(&str, &str, bool); 8] = [
    ("can", "not", false),
    ("d", "'ye", false),
    ("gim", "me", false),
    ("gon", "na", false),
    ("got", "ta", false),
    ("lem", "me", false),
    ("more", "'n", false),
    ("wan", "na", true),
];

fn contractions(text: Vec<char>) -> Vec<char> {
    let same = |here: &[char], word: &str| {
        here.len() == word.len() && here.iter().zip(word.chars()).all(|(a, b)| a.eq_ignore_ascii_case(&b))
    };
    let boundary = |text: &[char], at: usize| {
        let before = at > 0 && is_word(text[at - 1]);
        let after = text.get(at).is_some_and(|&c| is_word(c));
        before != after
    };
    let mut text = text;
    for (first, second, space_after) in CONTRACTIONS {
        let mut out = Vec::with_capacity(text.len() + 16);
        let mut at = 0;
        while at < text.len() {
            let middle = at + first.len();
            let end = middle + second.len();
            let found = text.get(at..middle).is_some_and(|here| same(here, first))
                && text.get(middle..end).is_some_and(|here| same(here, second))
                && boundary(&text, at)
                && if space_after {
                    text.get(end).is_some_and(|&c| is_space(c))
                } else {
                    boundary(&text, end)
                };
            if found {
                out.push(' ');
                out.extend_from_slice(&text[at..middle]);
                out.push(' ');
                out.extend_from_slice(&text[middle..end]);
                out.push(' ');
                at = end;
            } else {
                out.push(text[at]);
                at += 1;
            }
        }
        text = out;
    }
    for second in ["is", "was"] {
        let mut out = Vec::with_capacity(text.len() + 16);
        let mut at = 0;
        while at < text.len() {
            let end = at + 3 + second.len();
            let found = text.get(at..at + 3).is_some_and(|here| same(here, " 't"))
                && text.get(at + 3..end).is_some_and(|here| same(here, second))
                && boundary(&text, end);
            if found {
                out.push(' ');
                out.extend_from_slice(&text[at + 1..at + 3]);
                out.push(' ');
                out.extend_from_slice(&text[at + 3..end]);
                out.push(' ');
                at = end;
            } else {
                out.push(text[at]);
                at += 1;
            }
        }
        text = out;
    }
    text
}

fn substitute(sentence: &[char]) -> Vec<char> {
    let text = starting_quotes(sentence);
    let text = punctuation(text);
    let text = pad(text, |c| matches!(c, ']' | '[' | '(' | ')' | '{' | '}' | '<' | '>'));
    let text = pad_runs(text, '-', 2, 2);
    let mut spaced = Vec::with_capacity(text.len() + 2);
    spaced.push(' ');
    spaced.extend(text);
    spaced.push(' ');
    contractions(ending_quotes(spaced))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str) -> Vec<String> {
        words(&text.chars().collect::<Vec<_>>())
    }

    #[test]
    fn clitics_and_negations_are_words_of_their_own() {
        assert_eq!(cut("I can't WON'T they'll"), ["I", "ca", "n't", "WO", "N'T", "they", "'ll"]);
        assert_eq!(cut("You cannot."), ["You", "can", "not", "."]);
    }

    #[test]
    fn quotes_brackets_and_dashes_part_words() {
        assert_eq!(
            cut("\"Hi,\" she said -- (NASA)."),
            ["``", "Hi", ",", "''", "she", "said", "--", "(", "NASA", ")", "."]
        );
    }

    #[test]
    fn numbers_keep_their_commas() {
        assert_eq!(cut("costs $3,500.75: ok"), ["costs", "$", "3,500.75", ":", "ok"]);
    }
}
