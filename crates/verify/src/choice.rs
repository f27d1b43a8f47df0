//! Multiple choice: a letter in a box, or (as a setting) a letter or the option's own words.
//!
//! The display order of the options depends only on a hash of the question, so it is the same in every run and on every
//! machine. It is also stored with the problem.

use crate::boxed;
use crate::verdict::{Outcome, Verdict};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Largest number of options: one for each capital letter.
pub const MOST_OPTIONS: usize = 26;

/// How the answer is compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Match {
    /// The last box contains only the letter. `(B)` and `\text{B}` are the letter B.
    #[default]
    Letter,
    /// Also accepts `b`, `B.`, `B) Paris`, `option B` and the option's own words in the box; without a box, the text
    /// after the last "answer is" or "answer:".
    LetterOrContent,
}

/// Why a question cannot be checked or shown.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// The gold is not the letter of an option.
    #[error("gold: found {found:?}, wanted one capital letter from A to {last}")]
    Gold {
        /// The reference answer.
        found: String,
        /// The last letter that has an option.
        last: char,
    },
    /// A question needs between 2 and 26 options.
    #[error("options: found {found}, wanted 2 to {MOST_OPTIONS}")]
    Count {
        /// The number of options.
        found: usize,
    },
}

/// The letter of an option by its index.
///
/// # Panics
/// If `index` is not below [`MOST_OPTIONS`].
pub fn letter(index: usize) -> char {
    assert!(index < MOST_OPTIONS, "option {index} has no letter");
    char::from(b'A' + index as u8)
}

/// Options in display order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// The options as shown, A first.
    pub options: Vec<String>,
    /// `order[i]` is the index, in the given list, of the option shown at position `i`.
    pub order: Vec<usize>,
    /// The letter of the correct option.
    pub gold: char,
}

/// Shuffles options by a hash of the question. `options[0]` is the correct one.
///
/// # Errors
/// If there are fewer than 2 or more than 26 options.
pub fn show(question: &str, options: &[&str]) -> Result<Shown, Error> {
    if !(2..=MOST_OPTIONS).contains(&options.len()) {
        return Err(Error::Count { found: options.len() });
    }
    // FNV-1a over the question seeds a SplitMix64 sequence that drives a Fisher-Yates shuffle.
    let mut state = question
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let mut draw = move |below: usize| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        ((u128::from(z) * below as u128) >> 64) as usize
    };
    let mut order: Vec<usize> = (0..options.len()).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, draw(i + 1));
    }
    let correct = order.iter().position(|&i| i == 0).unwrap_or(0);
    Ok(Shown {
        options: order.iter().map(|&i| options[i].to_owned()).collect(),
        order,
        gold: letter(correct),
    })
}

/// The verifier of one question: its reference answer, ready to check responses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verifier {
    gold: char,
    /// The options as shown, in the form for comparison; empty if not known.
    options: Vec<String>,
    compare: Match,
}

impl Verifier {
    /// Parses the gold. `options` are the options as shown; without them only letters are recognised.
    ///
    /// # Errors
    /// If the gold is not the letter of an option.
    pub fn new(gold: &str, options: &[String], compare: Match) -> Result<Self, Error> {
        let last = match options.len() {
            0 => 'Z',
            n if n <= MOST_OPTIONS => letter(n - 1),
            n => return Err(Error::Count { found: n }),
        };
        let mut chars = undress(gold).chars();
        match (chars.next(), chars.next()) {
            (Some(c), None) if ('A'..=last).contains(&c) => {
                Ok(Self { gold: c, options: options.iter().map(|o| essence(o)).collect(), compare })
            }
            _ => Err(Error::Gold { found: gold.to_owned(), last }),
        }
    }

    /// Checks a response. Reasons: `letter`, `content`, `not_a_letter`, `several_letters`, `no_box`, `empty_box`.
    pub fn check(&self, response: &str) -> Outcome {
        let judge = |found: char, how: &'static str| {
            let verdict = if found == self.gold { Verdict::Correct } else { Verdict::Wrong };
            Outcome::new(verdict, how)
        };
        let said = match (boxed::last_closed(response, &["\\boxed{", "\\fbox{"]), self.compare) {
            (Some(inside), _) => inside,
            (None, Match::Letter) => return Outcome::new(Verdict::Unparsed, "no_box"),
            (None, Match::LetterOrContent) => match after_answer(response) {
                Some(said) => said,
                None => return Outcome::new(Verdict::Unparsed, "no_box"),
            },
        };
        let plain = undress(said);
        if plain.is_empty() {
            return Outcome::new(Verdict::Unparsed, "empty_box");
        }
        let mut chars = plain.chars();
        if let (Some(c @ 'A'..='Z'), None) = (chars.next(), chars.next()) {
            return judge(c, "letter");
        }
        if self.compare == Match::LetterOrContent {
            if let Some(found) = self.option_of(plain) {
                return judge(found, "content");
            }
            if let Some((found, rest)) = leading_letter(plain) {
                // `A, B, C, D` names several options, and so none.
                if self.names_another(found, rest) {
                    return Outcome::new(Verdict::Wrong, "several_letters");
                }
                return judge(found, "letter");
            }
        }
        Outcome::new(Verdict::Wrong, "not_a_letter")
    }

    /// Whether the text after a letter begins with the letter of another option and is not the letter's own option.
    fn names_another(&self, found: char, rest: &str) -> bool {
        let own = self.options.get((found as u8 - b'A') as usize);
        if own.is_some_and(|own| *own == essence(rest)) {
            return false;
        }
        let mut words =
            rest.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).skip_while(|word| {
                ["and", "or", "option", "choice"].iter().any(|w| word.eq_ignore_ascii_case(w))
            });
        let options = if self.options.is_empty() { MOST_OPTIONS } else { self.options.len() };
        match words.next().map(str::as_bytes) {
            Some([letter]) => {
                let place = letter.to_ascii_uppercase().wrapping_sub(b'A') as usize;
                place < options && (found as u8 - b'A') as usize != place
            }
            _ => false,
        }
    }

    /// The letter of the only option with these words.
    fn option_of(&self, said: &str) -> Option<char> {
        let said = essence(said);
        let mut same = (0..self.options.len()).filter(|&i| self.options[i] == said);
        match (same.next(), same.next()) {
            (Some(i), None) => Some(letter(i)),
            _ => None,
        }
    }
}

/// A letter without surrounding LaTeX or brackets.
fn undress(text: &str) -> &str {
    let mut text = text.trim();
    // Each round takes a layer off; more than a few layers are no dress.
    for _ in 0..4 {
        let before = text;
        for command in ["\\text{", "\\textbf{", "\\mathrm{", "\\mathbf{", "\\textit{", "{"] {
            if let Some(inside) = text.strip_prefix(command).and_then(|t| t.strip_suffix('}'))
                && !inside.contains(['{', '}'])
            {
                text = inside.trim();
            }
        }
        for (open, close) in [("(", ")"), ("$", "$"), ("**", "**")] {
            if let Some(inside) = text.strip_prefix(open).and_then(|t| t.strip_suffix(close))
                && !inside.contains([')', '('])
            {
                text = inside.trim();
            }
        }
        if text == before {
            break;
        }
    }
    text
}

/// A text in the form for comparison: without case, extra white space, LaTeX and final period.
fn essence(text: &str) -> String {
    let plain = undress(text).trim_end_matches('.').to_lowercase();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The letter at the beginning of a text, and the rest: `b`, `B.`, `(B) Paris`, `B: Paris`, `option B`.
fn leading_letter(text: &str) -> Option<(char, &str)> {
    let mut rest = text.trim_start();
    for word in ["option", "choice", "answer"] {
        if let Some(head) = rest.get(..word.len())
            && head.eq_ignore_ascii_case(word)
        {
            rest = rest[word.len()..].trim_start();
            break;
        }
    }
    let rest = rest.trim_start_matches(['(', '*', '[', '$']);
    let mut chars = rest.chars();
    let first = chars.next().filter(char::is_ascii_alphabetic)?;
    match chars.next() {
        None => Some((first.to_ascii_uppercase(), "")),
        Some('.' | ')' | ':' | ']' | ',' | '*' | '$' | '\n') => {
            Some((first.to_ascii_uppercase(), chars.as_str()))
        }
        // `A dog` begins with an article, not with a letter of an option.
        Some(_) => None,
    }
}

/// The text after the last "answer is" or "answer:", up to the end of its line.
fn after_answer(response: &str) -> Option<&str> {
    let lower = response.to_ascii_lowercase();
    let (_, end) = ["answer is", "answer:"]
        .iter()
        .filter_map(|mark| lower.rfind(mark).map(|i| (i, i + mark.len())))
        .max()?;
    let said = response[end..].trim_start_matches([':', ' ', '*']);
    let line = said.lines().next().unwrap_or("");
    let line = line.trim_end_matches(['*', ' ', '.']);
    (!line.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(gold: &str, response: &str, compare: Match) -> (Verdict, String) {
        let options = ["London", "Paris", "Rome", "A dog"].map(str::to_owned);
        let outcome = Verifier::new(gold, &options, compare).unwrap().check(response);
        (outcome.verdict, outcome.reason.into_owned())
    }

    #[test]
    fn a_boxed_letter_is_compared_strictly() {
        use Verdict::{Correct, Unparsed, Wrong};
        for (response, expected) in [
            (r"So \boxed{B}", Correct),
            (r"\boxed{A} no, \boxed{ \text{B} }.", Correct),
            (r"\boxed{(B)}", Correct),
            (r"\boxed{\mathbf{B}}", Correct),
            (r"\boxed{C}", Wrong),
            (r"\boxed{b}", Wrong),
            (r"\boxed{Paris}", Wrong),
            (r"\boxed{B. Paris}", Wrong),
            (r"\boxed{AB}", Wrong),
            (r"\boxed{}", Unparsed),
            ("The answer is B", Unparsed),
            ("", Unparsed),
            (r"\boxed{B} and \boxed{C", Correct),
        ] {
            assert_eq!(verdict("B", response, Match::Letter).0, expected, "{response}");
        }
    }

    #[test]
    fn letter_or_content_also_reads_words() {
        use Verdict::{Correct, Unparsed, Wrong};
        for (gold, response, expected) in [
            ("B", r"\boxed{b}", Correct),
            ("B", r"\boxed{\text{Paris}}", Correct),
            ("B", r"\boxed{paris.}", Correct),
            ("B", r"\boxed{B) Paris}", Correct),
            ("B", r"\boxed{Option B}", Correct),
            ("B", r"\boxed{Rome}", Wrong),
            ("A", r"\boxed{A dog}", Wrong),
            ("D", r"\boxed{A dog}", Correct),
            ("A", r"\boxed{A cat}", Wrong),
            ("B", "**The answer is: (B).**", Correct),
            ("B", "Final Answer: Paris", Correct),
            ("B", "I would say B", Unparsed),
            // All letters at once are no choice.
            ("A", r"\boxed{A, B, C, D}", Wrong),
            ("A", r"\boxed{A,B}", Wrong),
            ("A", r"\boxed{A) or B)}", Wrong),
            ("A", r"\boxed{(A), (B)}", Wrong),
            ("A", r"\boxed{\text{A. B. C. D.}}", Wrong),
            ("A", r"\boxed{A: option B}", Wrong),
            ("A", "The answer is A, B, C and D", Wrong),
            ("D", r"\boxed{D. A dog}", Correct),
            ("B", r"\boxed{B, because it is Paris}", Correct),
        ] {
            assert_eq!(verdict(gold, response, Match::LetterOrContent).0, expected, "{response}");
        }
    }

    #[test]
    fn the_order_depends_on_the_question_alone_and_is_a_permutation() {
        let options = ["right", "w1", "w2", "w3"];
        let shown = show("Which?", &options).unwrap();
        assert_eq!(shown, show("Which?", &options).unwrap());
        let mut sorted = shown.order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3]);
        assert_eq!(shown.options[(shown.gold as u8 - b'A') as usize], "right");
        let mut places = [0usize; 4];
        for i in 0..4000 {
            let gold = show(&format!("question {i}"), &options).unwrap().gold;
            places[(gold as u8 - b'A') as usize] += 1;
        }
        // Each place is right 1,000 times in 4,000 but for chance (standard deviation 27).
        assert!(places.iter().all(|n| (890..=1110).contains(n)), "{places:?}");
    }

    #[test]
    fn a_gold_that_is_no_option_is_refused() {
        let options = ["x", "y"].map(str::to_owned);
        assert!(Verifier::new("C", &options, Match::Letter).is_err());
        assert!(Verifier::new("Paris", &[], Match::Letter).is_err());
        assert!(Verifier::new(" (B) ", &options, Match::Letter).is_ok());
        assert_eq!(show("q", &["one"]), Err(Error::Count { found: 1 }));
    }

    #[test]
    fn unclosed_boxes_cost_no_more_than_two_scans() {
        let response = "\\boxed{".repeat(200_000);
        assert_eq!(verdict("B", &response, Match::Letter).0, Verdict::Unparsed);
    }
}
