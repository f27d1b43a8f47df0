//! Multiple choice: the answer is a letter in a box or, with [`Match::LetterOrContent`], any statement of an option.
//!
//! The display order of the options depends only on a hash of the question, so it is the same in every run and on every
//! machine. The order is also stored with the problem.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::boxed::{self, trimmed};
use crate::finder::{self, Candidate, Marker, Reason, Statement};
use crate::forms;
use crate::languages::{self, ANSWER, ANSWER_IN_OTHER_SCRIPTS};
use crate::python_text::regex;
use crate::retraction::{self, Written};
use crate::statement;
use crate::verdict::{Outcome, Verdict};

/// Patterns of statements of a choice.
const CHOICES: &str = include_str!("../data/choices.txt");

/// Returns the pattern in a section of [`CHOICES`], with the words for "answer".
fn source(name: &str) -> String {
    let pattern = forms::source(CHOICES, name);
    format!("(?i){}", pattern.replace("ANSWER", ANSWER).replace("SCRIPTS", ANSWER_IN_OTHER_SCRIPTS))
}

/// Returns the compiled pattern in a section of [`CHOICES`], which is stored in a static.
macro_rules! form {
    ($name:literal) => {
        regex!(&source($name))
    };
}

/// Maximum number of options: one for each capital letter.
pub const MOST_OPTIONS: usize = 26;

/// Forms of an answer that are accepted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Match {
    /// The last box must contain only the letter, as in `B`, `(B)` and `\text{B}`.
    #[default]
    Letter,
    /// The last statement of a choice, in a box or in words, by letter or by the option's own words: `b`, `B) Paris`,
    /// "The answer is B", "I would choose (B)", `#### B`, a last line `**B**`.
    LetterOrContent,
}

/// Reason why a question can't be checked or shown.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// The reference answer isn't the letter of an option.
    #[error("gold: expected one capital letter from A to {last}, found {found:?}")]
    Gold {
        /// The reference answer.
        found: String,
        /// The last letter that has an option.
        last: char,
    },
    /// The number of options isn't between 2 and 26.
    #[error("options: expected 2 to {MOST_OPTIONS}, found {0}")]
    Count(usize),
}

/// Returns the letter of the option with this index, `A` for 0.
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
    /// The options in display order, starting with A.
    pub options: Vec<String>,
    /// `order[i]` is the index in [`show`]'s `options` of the option at position `i`.
    pub order: Vec<usize>,
    /// The letter of the correct option.
    pub gold: char,
}

/// Shuffles options by a hash of the question. `options[0]` is the correct one.
/// Fails if there are fewer than 2 or more than 26 options.
pub fn show(question: &str, options: &[&str]) -> Result<Shown, Error> {
    if !(2..=MOST_OPTIONS).contains(&options.len()) {
        return Err(Error::Count(options.len()));
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
    /// The options in display order, normalized by [`essence`]. Empty if unknown.
    options: Vec<String>,
    compare: Match,
}

impl Verifier {
    /// Creates a verifier from the reference answer and the options in display order. Without options only letters
    /// are recognised.
    /// Fails if the reference answer isn't the letter of an option.
    pub fn new(gold: &str, options: &[String], compare: Match) -> Result<Self, Error> {
        let last = match options.len() {
            0 => 'Z',
            n if n <= MOST_OPTIONS => letter(n - 1),
            n => return Err(Error::Count(n)),
        };
        let plain = boxed::plain(gold);
        let mut chars = unwrapped(&plain).chars();
        match (chars.next(), chars.next()) {
            (Some(c), None) if ('A'..=last).contains(&c) => {
                Ok(Self { gold: c, options: options.iter().map(|o| essence(o)).collect(), compare })
            }
            _ => Err(Error::Gold { found: gold.to_owned(), last }),
        }
    }

    /// Whether two options have the same text.
    pub fn has_equal_options(&self) -> bool {
        self.options.iter().enumerate().any(|(at, option)| self.options[..at].contains(option))
    }

    /// Checks a response. Reasons: `letter`, `content`, `not_a_letter`, `several_letters`, `no_box`, `empty_box`.
    pub fn check(&self, response: &str) -> Outcome {
        let response = &*boxed::halfwidth(response);
        let reading = self.last_statement(response);
        let judge = |found: char, how: &'static str| {
            let verdict = if found == self.gold { Verdict::Correct } else { Verdict::Wrong };
            Outcome::new(verdict, how)
        };
        match reading {
            None => Outcome::new(Verdict::Unparsed, "no_box"),
            Some(Reading::Empty) => Outcome::new(Verdict::Unparsed, "empty_box"),
            Some(Reading::Other) => Outcome::new(Verdict::Wrong, "not_a_letter"),
            Some(Reading::Several) => Outcome::new(Verdict::Wrong, "several_letters"),
            Some(Reading::Letter(found)) => judge(found, "letter"),
            Some(Reading::Content(found)) => judge(found, "content"),
        }
    }

    /// Reads the last statement of a choice, or returns `None` if there isn't one.
    fn last_statement(&self, response: &str) -> Option<Reading> {
        let boxes = finder::marked(response, Marker::Box);
        let candidates = match self.compare {
            Match::Letter => {
                let letter = |found: Candidate<&str>| found.map(boxed_letter);
                boxes.into_iter().map(letter).collect()
            }
            Match::LetterOrContent => self.candidates(response, boxes),
        };
        let read = |candidate: &Candidate<Reading>, place: Range<usize>| {
            let behind = &response[place.end..];
            let stated = (candidate.marker == Marker::Announcement || finder::is_stated(response, place))
                && candidate.value.option().is_none_or(|option| !self.is_taken_back(option, behind));
            stated.then_some(())
        };
        let only = |statement: Statement<Reading>| {
            let behind = response[statement.place.end..].lines().next().unwrap_or_default();
            let reading = statement.only()?;
            // `"B" stands for byte. The protocol is ICMP: C.`
            let behind = behind.trim_start_matches(['$', '*', ' ', '\\', '(', ')', '[', ']']);
            let another = reading.option().is_some_and(|option| self.names_another(option, "X", behind));
            if another { Err(Reason::Several) } else { Ok(reading) }
        };
        match finder::last(response, candidates, read).and_then(only) {
            Ok(reading) => Some(reading),
            Err(Reason::Unclosed) => None,
            // Words may announce an answer that names no option.
            Err(Reason::Missing) => {
                let announces = self.compare == Match::LetterOrContent && !announced(response).is_empty();
                announces.then_some(Reading::Other)
            }
            Err(Reason::Denied) => Some(Reading::Other),
            Err(Reason::Several) => Some(Reading::Several),
        }
    }

    /// Finds the statements of a choice in the order of their positions: by a mark, in words, or by a last line.
    fn candidates<'a>(
        &self,
        response: &'a str,
        mut marks: Vec<Candidate<&'a str>>,
    ) -> Vec<Candidate<Reading>> {
        marks.extend(finder::marked(response, Marker::Tag));
        marks.extend(finder::marked(response, Marker::Hashes));
        marks.sort_by_key(|mark| mark.place.end);
        let marks = marks.split_off(marks.len().saturating_sub(MOST_STATEMENTS));
        let mut announced = announced(response);
        announced.sort_by_key(|place| place.end);
        let mut candidates: Vec<_> = announced
            .split_off(announced.len().saturating_sub(MOST_STATEMENTS))
            .into_iter()
            .filter(|place| marks.iter().all(|mark| !place.contains(&mark.place.start)))
            .filter_map(|place| {
                let said = &response[place.clone()];
                let value = self.read(said);
                let line = said.lines().next().unwrap_or_default();
                let stated = match value.option() {
                    Some(option) => !self.is_qualified(option, line),
                    None => value == Reading::Several,
                };
                stated.then_some(Candidate { marker: Marker::Announcement, ..Candidate::new(place, value) })
            })
            .collect();
        candidates.extend(marks.into_iter().map(|mark| mark.map(|said| self.read_formal(said))));
        let last = self.last_line(response);
        let missing = candidates.is_empty() && last.is_none();
        candidates.extend(last);
        candidates.extend(self.apposed(response).filter(|found| missing || found.value == Reading::Several));
        // Of two that overlap, the one that begins first counts.
        candidates.sort_by_key(|candidate| (candidate.place.start, std::cmp::Reverse(candidate.place.end)));
        let mut end = 0;
        candidates.retain(|candidate| {
            let apart = candidate.place.start >= end;
            end = end.max(candidate.place.end);
            apart
        });
        candidates
    }

    /// Reads the content of a box, of tags or of a line after `####`, which may be a sentence.
    fn read_formal(&self, said: &str) -> Reading {
        let reading = self.read(said);
        if reading != Reading::Other {
            return reading;
        }
        let said = truncated(said, LONGEST_FORMAL);
        let announced = announced(said).pop().map(|inner| self.read(&said[inner]));
        announced.or_else(|| Some(self.last_line(said)?.value)).unwrap_or(reading)
    }

    /// Whether the sentences after a statement say that it is wrong. If the options are words such as "true" and
    /// "false", a sentence such as "It is not true" agrees with the statement "false" and contradicts the statement
    /// "true".
    fn is_taken_back(&self, option: char, rest: &str) -> bool {
        let rest = self.behind_words(option, rest).unwrap_or(rest);
        // The letter behind the words of an option.
        let labelled = form!("letter behind")
            .captures(rest)
            .filter(|label| label[1].eq_ignore_ascii_case(&option.to_string()));
        let rest = &rest[labelled.map_or(0, |label| label[0].len())..];
        let rest = &rest[form!("sure").find(rest).map_or(0, |sure| sure.end())..];
        let agrees = |sentence: &str| {
            let called = form!("called").captures(sentence)?;
            Some((self.alone(&called[2])? == option) == called.get(1).is_none())
        };
        let called = regex!(boxed::SENTENCE_END).split(truncated(rest, LONGEST_VALUE)).find_map(agrees);
        called.map_or_else(|| retraction::is_withdrawn(rest, Written::OTHER), |agrees| !agrees)
    }

    /// Returns the choice in the last line that states one, if the text around the line states it too. Later lines may
    /// only explain it. Returns `None` if the line belongs to a list of options.
    fn last_line(&self, response: &str) -> Option<Candidate<Reading>> {
        // A list of the options explains the answer above it.
        let labelled = |line: &Range<usize>| regex!(r"^\W*[A-Z][):.]\s").is_match(&response[line.clone()]);
        let listed = finder::last_lines(response).take_while(labelled).count();
        let lines = finder::last_lines(response).skip(if listed > 1 { listed } else { 0 });
        let lines: Vec<_> = lines.take(LINES_BEHIND + 1).map(|line| bare(response, line)).collect();
        let alone = |line: &Range<usize>| self.alone(&response[line.clone()]);
        let read = |place: &Range<usize>| match (self.read(&response[place.clone()]), alone(place)) {
            (Reading::Other, Some(option)) => Reading::Letter(option),
            (reading, _) => reading,
        };
        // `The temperature stays the same.`
        let is_predicate = |place: &Range<usize>| {
            let before = &response[..place.start];
            form!("predicate").is_match(&response[place.clone()])
                && form!("subject of a predicate").is_match(statement::sentence_before(before))
                && !statement::is_denied_before(before)
                && regex!(r"^[\s.!*_]*$").is_match(&response[place.end..])
        };
        let stated = |place: &Range<usize>| {
            let (before, behind) = (&response[..place.start], &response[place.end..]);
            let held = |option| !self.is_taken_back(option, behind);
            (finder::is_stated(response, place.clone()) || is_predicate(place))
                && !(is_of_others(before) || is_refused(behind))
                && read(place).option().is_none_or(held)
        };
        for (at, line) in lines.iter().take(LINES_BEHIND).enumerate() {
            let ends = regex!(boxed::SENTENCE_END).find_iter(&response[line.clone()]);
            let last = ends.map(|end| line.start + end.end()).filter(|end| *end < line.end).last();
            let last = last.unwrap_or(line.start)..line.end;
            // `**B**`, and below it `Mercury (A) is closer to the Sun`
            let chosen = lines[at + 1..].iter().filter(|above| alone(above).is_some()).count() == 1;
            let told = |place: &Range<usize>| {
                let behind = regex!(r"^\s*\([A-Z]\)").replace(&response[place.end..line.end], "");
                chosen && form!("subject").is_match(&behind) && !form!("praised").is_match(&behind)
            };
            let named = self.named_in(response, line.clone()).into_iter().rev().take(MOST_NAMED);
            let mut found = { named }.find(|place| stated(place) && !told(place));
            if let Some(single) = [line, &last].into_iter().find(|place| alone(place).is_some()) {
                let above =
                    if single == line { lines.get(at + 1).cloned() } else { Some(line.start..last.start) };
                let listed = above.as_ref().and_then(alone).is_some_and(|above| Some(above) != alone(single));
                let before = &response[line.start..single.start];
                let part = is_part(before, &response[single.clone()], "");
                found = Some(single.clone()).filter(|place| !(listed || part) && stated(place));
                found.as_ref()?;
            }
            if let Some(place) = found {
                let value = read(&place);
                // `(A) Paris`
                let label = form!("label").find(&response[line.start..place.start]);
                let label = label.filter(|_| matches!(value, Reading::Content(_)));
                let label = label.and_then(|label| label.as_str().chars().rfind(char::is_ascii_uppercase));
                let other = label.is_some_and(|label| self.letter(label) != value);
                let marker = if is_predicate(&place) { Marker::Announcement } else { Marker::Value };
                let value = if other { Reading::Several } else { value };
                return Some(Candidate { marker, ..Candidate::new(place, value) });
            }
        }
        None
    }

    /// Returns the ranges of the options that a line names by letter or in words, as in `I get B.`
    fn named_in(&self, response: &str, line: Range<usize>) -> Vec<Range<usize>> {
        let said = response[line.clone()].to_ascii_lowercase();
        let words = self.options.iter().filter(|words| words.len() > 1);
        let words = words
            .flat_map(|words| said.match_indices(&**words).map(|(at, words)| at..at + words.len()))
            .filter(|at| !is_part(&said[..at.start], &said[at.clone()], &said[at.end..]));
        let letters = form!("named").captures_iter(&response[line.clone()]).filter_map(|named| {
            let letter = named.get(1)?;
            let named = letter.as_str().chars().next().filter(|letter| self.place(*letter).is_some())?;
            // The words of the option can follow its letter.
            let rest = &response[line.start + letter.end()..line.end];
            let behind = self.behind_words(named, rest).unwrap_or(rest);
            // A parenthesis belongs to the letter.
            let start =
                letter.start() - usize::from(said[..letter.start()].ends_with('(') && rest.starts_with(')'));
            let end = line.len() - behind.len();
            Some(start..end + usize::from(start < letter.start() && behind.len() == rest.len()))
        });
        let touches = |at: &Range<usize>| {
            response[..at.start].ends_with(|c: char| c.is_alphanumeric() || "[{-−±".contains(c))
                || response[at.end..].starts_with(char::is_alphanumeric)
        };
        let places = words.chain(letters).map(|at| line.start + at.start..line.start + at.end);
        let mut places: Vec<Range<usize>> = places.filter(|at| !touches(at)).collect();
        places.sort_by_key(|at| at.end);
        places
    }

    /// Returns the option whose words end a string, and the position of its words, including an article.
    fn named_last(&self, text: &str) -> Option<(char, usize)> {
        let lower =
            text.trim_end_matches(|c: char| c.is_whitespace() || "*\"”)_`$".contains(c)).to_ascii_lowercase();
        let ends = |(at, words): (usize, &String)| {
            let bare = regex!(r"^(?:it|the|an?) ").replace(words, "");
            let forms = [&*bare, &bare.replace("cannot", "can't")];
            let head = forms.into_iter().find_map(|bare| lower.strip_suffix(bare))?;
            if bare.is_empty() || head.ends_with(char::is_alphanumeric) {
                return None;
            }
            let article = regex!(r"\b(?:it|the|an?)\s+\W*$").find(head);
            Some((letter(at), article.map_or(head.len(), |article| article.start()), bare.len()))
        };
        let found = self.options.iter().enumerate().filter_map(ends).max_by_key(|(.., length)| *length);
        found.map(|(option, start, _)| (option, start))
    }

    /// Returns the letter at the end of the last line that follows the words of its option, `Paris (B)`, or another
    /// statement, `P = 1/4 (option B)`.
    fn apposed(&self, response: &str) -> Option<Candidate<Reading>> {
        let line = bare(response, finder::last_lines(response).next()?);
        let sentence = statement::sentence(&response[line.clone()]);
        let from = line.end - sentence.len();
        let found = form!("apposed").captures(sentence)?;
        let option = found[2].chars().next().filter(|option| self.place(*option).is_some())?;
        let head = &sentence[..found.get(0)?.start()];
        let praise = regex!(r"\s+(?:is|must be) (?:right|correct|the answer)\W*$").find(head);
        let head = &head[..praise.map_or(head.len(), |praise| praise.start())];
        let named = self.named_last(head);
        let (start, end, value) = match named {
            Some((named, start)) if named == option => (start, start, Reading::Letter(option)),
            _ if form!("doubt").is_match(head) || form!("unapposed").is_match(head) => return None,
            Some(_) => (0, head.len(), Reading::Several),
            None => (0, head.len(), found.get(1).map(|_| Reading::Letter(option))?),
        };
        let before = &response[..from + end];
        let stated = !is_of_others(before) && !statement::is_denied_before(before);
        stated.then(|| Candidate::new(from + start..line.end, value))
    }

    /// Whether the rest of an announced option's sentence qualifies it, as in `B, but negated` and `B (pending)`.
    fn is_qualified(&self, option: char, said: &str) -> bool {
        let lower = said.to_ascii_lowercase();
        let own =
            self.place(option).and_then(|place| self.options.get(place)).filter(|words| words.len() > 1);
        let words = own.and_then(|words| Some(lower.find(&**words)? + words.len()));
        let is_own = |found: &regex::Match<'_>| found.as_str().eq_ignore_ascii_case(&option.to_string());
        let letter = || Some(form!("single").find_iter(said).find(is_own)?.end());
        let Some(rest) = words.or_else(letter).map(|end| &said[end..]).filter(|rest| rest.is_ascii()) else {
            return false;
        };
        let clause = form!("reasoned").find(rest).map_or(rest, |end| &rest[..end.start()]);
        let remark = form!("qualified").captures(clause).map(|remark| remark[1].trim().to_lowercase());
        statement::is_redirected(&statement::Pieces::new().read(clause, false))
            || remark.is_some_and(|remark| !remark.starts_with("not ") && statement::is_correction(&remark))
    }

    /// Returns the option of a line that contains nothing else: its letter, its words, or both ("Paris is option B").
    fn alone(&self, line: &str) -> Option<char> {
        let text = essence(truncated(line, LONGEST_VALUE));
        // A single letter is first compared with the letters of the options, and only then with their text.
        let text = text.strip_prefix("[x] ").unwrap_or(&text);
        if let [letter @ b'a'..=b'z'] | [letter @ b'a'..=b'z', b'!'] = text.as_bytes()
            && let letter = letter.to_ascii_uppercase().into()
            && self.place(letter).is_some()
        {
            return Some(letter);
        }
        if let Some(option) = self.labelled(text) {
            return Some(option);
        }
        let bare = form!("fillers").replace(text, "");
        let spaced = text[..text.len() - bare.len()].ends_with(' ');
        let named = |option: &usize| {
            let is_words = |said: &str| self.options.get(*option).is_some_and(|words| words == said);
            let labelled = || {
                let bare = bare.trim_start_matches(['(', '[', '"', '“', '⟨']);
                let rest = bare.strip_prefix(letter(*option).to_ascii_lowercase())?;
                let said = rest.trim_start_matches([')', ']', '.', ':', '*', ' ', '"', '”', '⟩']);
                Some(said.is_empty() || said.len() < rest.len() && is_words(unwrapped(said)))
            };
            is_words(text) || spaced && is_words(&bare) || labelled() == Some(true)
        };
        let mut found = (0..MOST_OPTIONS).filter(|at| self.place(letter(*at)).is_some() && named(at));
        found.next().filter(|_| found.next().is_none()).map(letter)
    }

    /// Returns the option that a string names by words and letter, as in "paris is option (b)", or by position: "the second option".
    fn labelled(&self, text: &str) -> Option<char> {
        const ORDINALS: [&str; 8] =
            ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"];
        if let Some(found) = form!("ordinal").captures(text) {
            let at = ORDINALS.iter().position(|ordinal| *ordinal == &found[1])?;
            let rest = &text[found[0].len()..];
            let named = rest.is_empty() || self.options.get(at).is_some_and(|words| words == rest);
            return Some(letter(at)).filter(|letter| named && self.place(*letter).is_some());
        }
        // Options are compared without parentheses around them.
        let texts = [text, text.trim_start_matches('(')];
        let named = self.options.iter().enumerate().find(|(at, words)| {
            let mut rests = texts.into_iter().filter_map(|text| text.strip_prefix(&***words));
            let letter = letter(*at).to_ascii_lowercase();
            rests.any(|rest| {
                form!("labelled").captures(rest).is_some_and(|found| found[1].starts_with(letter))
            })
        });
        named.map(|(at, _)| letter(at))
    }

    /// Reads the option in the first line of a stated value.
    fn read(&self, said: &str) -> Reading {
        let line = said.trim().lines().next().unwrap_or_default();
        let plain = boxed::plain(truncated(line, LONGEST_VALUE));
        let text = unwrapped(unmarked(&plain, ":*=-> "));
        if let [letter] = text.trim_end_matches(['.', '。']).as_bytes()
            && letter.is_ascii_alphabetic()
        {
            // A letter beyond the last option's letter may be the text of an option.
            let content = self.option_of(text).map(Reading::Content);
            return match (self.letter(char::from(*letter)), content) {
                (Reading::Other, Some(content)) => content,
                (letter, _) => letter,
            };
        }
        let content = |text: &str| {
            let found = self.option_of(text)?;
            let ends = [regex!(boxed::SENTENCE_END).find(text), form!("reason").find(text)];
            let end = ends.into_iter().flatten().map(|end| end.start()).min().unwrap_or(text.len());
            let rest = self.behind_words(found, text).unwrap_or(&text[end..]);
            Some(self.amended(Reading::Content(found), "X", rest))
        };
        if let Some(reading) = self.labelled(&essence(text)).map(Reading::Letter).or_else(|| content(text)) {
            return reading;
        }
        let text = form!("fillers").replace(text, "");
        let Some(found) = form!("letter").captures(&text) else {
            return content(&text).unwrap_or_else(|| Reading::other(&text));
        };
        let letter = self.letter(found[1].chars().next().unwrap_or_default());
        let rest = &text[found.get(1).map_or(0, |m| m.end())..];
        // A lower-case letter or "I" before a space is an article or a pronoun, not an option.
        if rest.starts_with(char::is_whitespace)
            && !found[1].starts_with(|c: char| c.is_uppercase() && c != 'I')
        {
            return Reading::Other;
        }
        let rest = rest.trim_start_matches(['\\', ')', ']', '*', '"', '”', '$']);
        self.amended(letter, &found[1], rest)
    }

    /// Changes the reading of an option if the text after it offers another option, denies it or takes it back.
    fn amended(&self, reading: Reading, letter: &str, rest: &str) -> Reading {
        match reading.option() {
            Some(option) if self.names_another(option, letter, rest) => Reading::Several,
            Some(option)
                if is_refused(self.behind_words(option, rest).unwrap_or(rest))
                    || self.is_taken_back(option, rest) =>
            {
                Reading::Other
            }
            _ => reading,
        }
    }

    fn letter(&self, letter: char) -> Reading {
        let letter = letter.to_ascii_uppercase();
        if self.place(letter).is_some() { Reading::Letter(letter) } else { Reading::Other }
    }

    /// Returns the index of the option with this letter, or `None` if there isn't one.
    fn place(&self, letter: char) -> Option<usize> {
        let options = if self.options.is_empty() { MOST_OPTIONS } else { self.options.len() };
        Some((letter as usize).checked_sub('A' as usize)?).filter(|place| *place < options)
    }

    /// Returns the text after the words of an option, if `text` begins with these words.
    fn behind_words<'a>(&self, option: char, text: &'a str) -> Option<&'a str> {
        let words = self.options.get(self.place(option)?)?;
        let bare = unmarked(text, " .:,;*\"”`')]–—=>$-");
        let article = regex!(r"^(?i:it|the|an?) ").replace(bare, "").len();
        let forms = [bare, bare.trim_start_matches('('), &bare[bare.len() - article..]];
        forms.into_iter().find_map(|bare| {
            let (head, behind) = bare.split_at_checked(words.len())?;
            let ends = !behind.starts_with(char::is_alphanumeric);
            (ends && head.to_lowercase() == *words).then_some(behind)
        })
    }

    /// Returns the letters of other options in a clause, each with the text before and after it. Only letters in the
    /// case of `letter` count.
    fn mentions<'a>(&self, option: char, letter: &str, clause: &'a str) -> Vec<(char, &'a str, &'a str)> {
        let lower = letter.starts_with(char::is_lowercase);
        let found = form!("single").find_iter(clause).filter_map(|found| {
            let named = found.as_str().chars().next().filter(|named| named.is_lowercase() == lower)?;
            let named = named.to_ascii_uppercase();
            let (before, behind) = (&clause[..found.start()], &clause[found.end()..]);
            let other = named != option && self.place(named).is_some() && !before.ends_with(['\'', '’']);
            other.then_some((named, before, behind))
        });
        found.collect()
    }

    /// Whether the text after a stated option offers another option, by letter or in words. Text that denies,
    /// describes or only mentions another option doesn't offer it. Other letters count only in the case of `letter`,
    /// the stated one.
    fn names_another(&self, option: char, letter: &str, rest: &str) -> bool {
        // Other options as the subject of a reason: `A, C and D are in other countries.`
        let offers = |said: &str| form!("agreeing").is_match(said) && !form!("denied").is_match(said);
        let kept =
            |said: &regex::Captures<'_>| if offers(&said[1]) { said[0].to_owned() } else { String::new() };
        let rest = form!("listed subject").replace_all(truncated(rest, LONGEST_FORMAL), kept);
        let rest = &*self.without_parentheses(&rest);
        let is_other = |named: Option<char>| named.is_some_and(|named| named != option);
        let words = unmarked(rest, " .:,;*\"”`')]–—=>$-").trim_end_matches(['*', '"', '”', '`']);
        let own = self.behind_words(option, rest);
        match self.option_of(words) {
            Some(named) if named != option => return true,
            Some(_) if own.is_none() => return false,
            _ => {}
        }
        regex!(boxed::SENTENCE_END).split(own.unwrap_or(rest)).any(|sentence| {
            let clauses: Vec<&str> =
                form!("clause").split(sentence).filter(|clause| !clause.trim().is_empty()).collect();
            let in_words = |text: &str| {
                let Some(joined) = form!("joined").find(text) else { return false };
                let behind = &text[joined.end()..];
                let praised = |option| {
                    self.behind_words(option, behind).is_some_and(|rest| form!("praised").is_match(rest))
                };
                let mut others = (0..self.options.len()).map(self::letter).filter(|other| *other != option);
                is_other(self.option_of(behind)) || others.any(praised)
            };
            let denied = |text: &str| form!("denied").is_match(text);
            // Another option's letter can be followed by its words, which may contain a denial themselves.
            let offers = |clause: &str, refuted: bool| {
                self.mentions(option, letter, clause).into_iter().any(|(named, before, behind)| {
                    let words = self.option_of(behind.trim_start_matches([')', ']', '.', ':', '*', ' ']));
                    let offered = if form!("subject").is_match(behind) {
                        form!("praised").is_match(behind)
                    } else {
                        form!("offers").is_match(before)
                            && form!("ended").is_match(behind)
                            && !form!("refused in other scripts").is_match(behind)
                    };
                    words == Some(named) && !denied(before) || offered && !refuted
                })
            };
            in_words(sentence)
                || clauses.iter().enumerate().any(|(at, clause)| {
                    let mut later = clauses[at + 1..].iter().take(2);
                    let refuted =
                        denied(clause) || later.any(|later| denied(later) && self.option_of(later).is_none());
                    offers(clause, refuted) || in_words(clause) && !refuted
                })
        })
    }

    /// Replaces a letter in parentheses, and the option's words before it, by the letter: `Paris (B)` by `B`.
    fn without_parentheses(&self, text: &str) -> String {
        let parts = text.split_inclusive(')').map(|part| {
            let Some(found) = regex!(r"^((?s:.*))\(([A-Z])\)$").captures(part) else {
                return part.to_owned();
            };
            let head = found[1].trim_end();
            let place = self.place(char::from(found[2].as_bytes()[0]));
            let words = place.and_then(|place| self.options.get(place));
            let bare = words.and_then(|words| head.to_ascii_lowercase().strip_suffix(&**words).map(str::len));
            format!("{} {}", &head[..bare.unwrap_or(head.len())], &found[2])
        });
        parts.collect()
    }

    /// Returns the letter of the only option with the given words, ignoring a reason after them.
    fn option_of(&self, said: &str) -> Option<char> {
        let sentence = regex!(boxed::SENTENCE_END).find(said).map_or(said, |end| &said[..end.start()]);
        let reason = form!("reason").find(sentence).map(|reason| &sentence[..reason.start()]);
        [Some(said), Some(sentence), reason].into_iter().flatten().find_map(|said| {
            let said = essence(said);
            let mut same = (0..self.options.len()).filter(|&i| self.options[i] == said);
            match (same.next(), same.next()) {
                (Some(i), None) => Some(letter(i)),
                _ => None,
            }
        })
    }
}

/// The option that a statement names, by letter or in words, or the reason why it names none.
#[derive(Debug, Clone, Copy)]
enum Reading {
    Letter(char),
    Content(char),
    Several,
    Other,
    Empty,
}

impl PartialEq for Reading {
    /// Whether both name the same option or fail in the same way.
    fn eq(&self, other: &Self) -> bool {
        self.option() == other.option()
            && (self.option().is_some() || std::mem::discriminant(self) == std::mem::discriminant(other))
    }
}

impl Reading {
    fn other(text: &str) -> Self {
        if text.is_empty() { Self::Empty } else { Self::Other }
    }

    fn option(self) -> Option<char> {
        if let Self::Letter(option) | Self::Content(option) = self { Some(option) } else { None }
    }
}

/// Characters that end a clause.
const CLAUSE_ENDS: [char; 12] = ['.', ',', ';', ':', '!', '?', '\n', '。', '、', '।', '؛', '،'];

/// Characters that end a sentence.
const SENTENCE_ENDS: [char; 4] = ['.', '!', '?', '\n'];

/// Maximum length in bytes of a stated value. The rest is ignored.
const LONGEST_VALUE: usize = 300;
/// Maximum number of bytes of a box or tag that are searched for a statement.
const LONGEST_FORMAL: usize = 4096;
/// Maximum number of lines after the line of the choice, which may explain it.
const LINES_BEHIND: usize = 4;
/// Maximum number of options in a line that are read, starting from the last one.
const MOST_NAMED: usize = 8;
/// Maximum number of announcements whose sentences are read, starting from the last one.
const MOST_ANNOUNCED: usize = 256;
/// Maximum number of marks, and of announcements, that are read, starting from the last one.
const MOST_STATEMENTS: usize = 64;

/// Reads the content of a box, which must be only a letter.
fn boxed_letter(said: &str) -> Reading {
    let plain = boxed::plain(said);
    let letter = unwrapped(plain.trim_end_matches('.'));
    match letter.as_bytes() {
        [letter @ b'A'..=b'Z'] => Reading::Letter(char::from(*letter)),
        _ => Reading::other(letter),
    }
}

/// Returns the ranges of the choices after announcements such as "the answer is", up to the end of the line or the next
/// announcement. Suppositions and denials don't count.
fn announced(text: &str) -> Vec<Range<usize>> {
    // Returns the text from the start of the clause around `from` up to `to`, and whether it is a statement.
    let clause = |from: usize, to: usize| {
        let before = text.floor_char_boundary(from.saturating_sub(60));
        let start = text[before..from].rfind(CLAUSE_ENDS);
        &text[start.map_or(before, |at| before + at)..to]
    };
    let states = |from: usize, to: usize| {
        !form!("doubt").is_match(clause(from, to)) && !statement::is_denied_before(&text[..to])
    };
    let elsewhere =
        form!("elsewhere").find_iter(text).filter(|m| !languages::doubts(clause(m.start(), m.end())));
    let by_writer = |verb: &regex::Match<'_>| {
        let is_verb = form!("verb of choosing").find(verb.as_str()).is_some_and(|found| found.start() == 0);
        !is_verb || is_chooser(&text[..verb.start()])
    };
    // `Option B is the capital.`
    let names = |m: &regex::Match<'_>| regex!(r"^\w+[\s*(]+[A-HJ-Z]\b").is_match(m.as_str());
    let announced: Vec<_> = form!("announcement").find_iter(text).filter(|m| !names(m)).collect();
    let earlier = announced.len().saturating_sub(MOST_ANNOUNCED);
    let announced = announced
        .into_iter()
        .skip(earlier)
        .filter(|m| by_writer(m) && states(m.start(), m.end()))
        .chain(elsewhere);
    let line = |from: usize| {
        let window = truncated(&text[from..], LONGEST_VALUE);
        from..from + window.find('\n').unwrap_or(window.len())
    };
    let correct = form!("called correct").captures_iter(text).filter_map(|found| {
        let (whole, letter) = (found.get(0)?, found.get(1).or(found.get(2))?);
        let asked = form!("asked").is_match(&text[whole.end()..]);
        (!asked && states(whole.start(), whole.end())).then_some(letter.range())
    });
    let mut places: Vec<_> = announced.map(|m| (m.start(), line(m.end()))).collect();
    places.sort_by_key(|(start, _)| *start);
    for at in 1..places.len() {
        let next = places[at].0;
        let place = &mut places[at - 1].1;
        if let Some(said) = text.get(place.start..next).filter(|_| next < place.end) {
            place.end = place.start + said.rfind(SENTENCE_ENDS).map_or(said.len(), |end| end + 1);
        }
    }
    places.into_iter().map(|(_, place)| place).chain(correct).collect()
}

/// Whether the text before a verb of choosing ends with the writer as its subject, as in `I would`.
fn is_chooser(before: &str) -> bool {
    let before = &before[before.floor_char_boundary(before.len().saturating_sub(120))..];
    let clause = before.rsplit(CLAUSE_ENDS).next().unwrap_or_default();
    let main =
        regex!(r"(?i)^.*\b(?:and|but|so|because|that)\b(\W+(?:i|we|you|let|lets|one)\b.*)$").captures(clause);
    form!("chooser").is_match(main.and_then(|main| main.get(1)).map_or(clause, |main| main.as_str()))
}

/// Whether the sentence before an option says that others chose it or that it lacks support.
fn is_of_others(before: &str) -> bool {
    let sentence = statement::sentence_before(before);
    let verb = form!("verb of choosing").find_iter(sentence).last();
    verb.is_some_and(|verb| !is_chooser(&sentence[..verb.start()])) || form!("baseless").is_match(sentence)
}

/// Whether the words of an option are only part of another statement, as `No` in `Is it B? No.` and in `No idea.`
fn is_part(before: &str, words: &str, behind: &str) -> bool {
    form!("common").is_match(words)
        && (before.trim_end().ends_with('?') || !form!("clause end").is_match(behind))
}

/// Whether the text after an option denies it.
fn is_refused(rest: &str) -> bool {
    form!("refused").is_match(rest) || form!("refused in other scripts").is_match(rest)
}

/// Returns the range of a line's content, without Markdown, tags and check marks around it.
fn bare(response: &str, line: Range<usize>) -> Range<usize> {
    let line = form!("tagged")
        .captures(&response[line.clone()])
        .and_then(|found| found.get(1))
        .map_or(line.clone(), |found| line.start + found.start()..line.start + found.end());
    let mark = |c: char| c.is_whitespace() || statement::is_decoration(c);
    let line = trimmed(response, line, mark);
    line.end - unmarked(&response[line.clone()], "-># ").len()..line.end
}

/// Strips the characters `marks` from the start, except a minus sign before a number or a formula.
fn unmarked<'a>(text: &'a str, marks: &str) -> &'a str {
    let bare = text.trim_start_matches(|c| marks.contains(c));
    let before = &text[..text.len() - bare.len()];
    let mut chars = bare.chars();
    let symbol =
        chars.next().is_some_and(|c| !c.is_alphabetic()) || !chars.next().is_some_and(char::is_alphabetic);
    if symbol && before.ends_with('-') { &text[before.len() - 1..] } else { bare }
}

fn truncated(text: &str, length: usize) -> &str {
    &text[..text.floor_char_boundary(length)]
}

/// Strips parentheses around the whole text.
fn unwrapped(text: &str) -> &str {
    let inside = text.strip_prefix('(').and_then(|t| t.strip_suffix(')'));
    inside.filter(|inside| !inside.contains(['(', ')'])).map_or(text, str::trim)
}

/// Normalizes a string for comparison: lower case, without formatting, extra white space or a final period.
fn essence(text: &str) -> String {
    let plain = boxed::plain(&boxed::halfwidth(text)).replace('$', "");
    let plain = unwrapped(plain.trim()).trim_end_matches(['.', '。', ' ']).to_lowercase();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}
