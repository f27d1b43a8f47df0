//! IFEval's 25 instruction types: their arguments and their checks.

use super::arguments::{Arguments, Bound};
use super::characters::{is_lower, is_upper};
use super::ifbench::Constraint;
use super::pattern::{Pattern, PatternError};
use super::{Error, language, punkt, treebank};
use crate::python_text::{is_space, regex, strip};
use crate::synlogic::json;
use serde_json::{Map, Value};
use std::cell::OnceCell;

/// One instruction with its arguments.
#[derive(Debug, Clone)]
pub(super) enum Instruction {
    KeywordsExist(Vec<Pattern>),
    KeywordFrequency(Pattern, Bound),
    ForbiddenWords(Vec<Pattern>),
    LetterFrequency(char, Bound),
    Language(String),
    Sentences(Bound),
    Paragraphs(f64),
    Words(Bound),
    ParagraphFirstWord { paragraphs: f64, nth: usize, word: String },
    Placeholders(f64),
    Postscript(Postscript),
    Bullets(f64),
    ConstrainedResponse,
    Highlights(f64),
    Sections(Pattern, f64),
    Json,
    Title,
    TwoResponses,
    RepeatPrompt(String),
    EndPhrase(String),
    CapitalWords(Bound),
    AllCapital,
    AllLowercase,
    NoComma,
    Quotation,
    IfBench(Constraint),
}

/// The mark of a postscript.
#[derive(Debug, Clone)]
pub(super) enum Postscript {
    /// `P.P.S`
    Pps,
    /// `P.S.`
    Ps,
    /// Any other, as a pattern.
    Other(Box<Pattern>),
}

/// A response in the forms that the checks need, each computed once on first use.
pub(super) struct Response<'a> {
    text: &'a str,
    chars: OnceCell<Vec<char>>,
    lower: OnceCell<String>,
}

impl<'a> Response<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, chars: OnceCell::new(), lower: OnceCell::new() }
    }

    fn chars(&self) -> &[char] {
        self.chars.get_or_init(|| self.text.chars().collect())
    }

    fn lower(&self) -> &str {
        self.lower.get_or_init(|| self.text.to_lowercase())
    }
}

impl Instruction {
    /// Parses one instruction.
    pub(super) fn new(id: &str, given: &Map<String, Value>) -> Result<Self, Error> {
        let a = &Arguments { instruction: id, given };
        Ok(match id {
            "keywords:existence" => Self::KeywordsExist(
                a.keywords("keywords")?.iter().map(|k| a.pattern(k, true)).collect::<Result<_, _>>()?,
            ),
            "keywords:frequency" => Self::KeywordFrequency(
                a.pattern(strip(a.text("keyword")?), true)?,
                a.bound("frequency", "relation")?,
            ),
            "keywords:forbidden_words" => Self::ForbiddenWords(
                a.keywords("forbidden_words")?
                    .iter()
                    .map(|k| a.pattern(&format!(r"\b{k}\b"), true))
                    .collect::<Result<_, _>>()?,
            ),
            "keywords:letter_frequency" => {
                let letter = a.text("letter")?;
                let mut chars = letter.chars();
                let (Some(c), None) = (chars.next(), chars.next()) else {
                    return Err(a.error("letter", "one character"));
                };
                let lower = c.to_lowercase().next().unwrap_or(c);
                Self::LetterFrequency(lower, a.bound("let_frequency", "let_relation")?)
            }
            "language:response_language" => match a.text("language")? {
                code if language::is_known(code) => Self::Language(code.to_owned()),
                _ => return Err(a.error("language", "a code of langdetect, such as de, zh-cn or zh-tw")),
            },
            "length_constraints:number_sentences" => Self::Sentences(a.bound("num_sentences", "relation")?),
            "length_constraints:number_paragraphs" => Self::Paragraphs(a.count("num_paragraphs")?),
            "length_constraints:number_words" => Self::Words(a.bound("num_words", "relation")?),
            "length_constraints:nth_paragraph_first_word" => {
                let paragraphs = a.count("num_paragraphs")?;
                let nth = a.count("nth_paragraph")?;
                if nth > paragraphs || nth.fract() != 0.0 {
                    return Err(a.error("nth_paragraph", "a whole number up to num_paragraphs"));
                }
                Self::ParagraphFirstWord {
                    paragraphs,
                    nth: nth as usize,
                    word: a.text("first_word")?.to_lowercase(),
                }
            }
            "detectable_content:number_placeholders" => Self::Placeholders(a.count("num_placeholders")?),
            "detectable_content:postscript" => Self::Postscript(match strip(a.text("postscript_marker")?) {
                "P.P.S" => Postscript::Pps,
                "P.S." => Postscript::Ps,
                other => {
                    let pattern = format!(r"(?m)\s*{}.*$", other.to_lowercase());
                    Postscript::Other(Box::new(a.pattern(&pattern, false)?))
                }
            }),
            "detectable_format:number_bullet_lists" => Self::Bullets(a.count("num_bullets")?),
            "detectable_format:constrained_response" => Self::ConstrainedResponse,
            "detectable_format:number_highlighted_sections" => Self::Highlights(a.count("num_highlights")?),
            "detectable_format:multiple_sections" => {
                let splitter = strip(a.text("section_spliter")?);
                let pattern = format!(r"\s?{splitter}\s?\d+\s?");
                Self::Sections(a.pattern(&pattern, false)?, a.count("num_sections")?)
            }
            "detectable_format:json_format" => Self::Json,
            "detectable_format:title" => Self::Title,
            "combination:two_responses" => Self::TwoResponses,
            "combination:repeat_prompt" => {
                Self::RepeatPrompt(strip(a.text("prompt_to_repeat")?).to_lowercase())
            }
            "startend:end_checker" => Self::EndPhrase(strip(a.text("end_phrase")?).to_lowercase()),
            "startend:quotation" => Self::Quotation,
            "change_case:capital_word_frequency" => {
                Self::CapitalWords(a.bound("capital_frequency", "capital_relation")?)
            }
            "change_case:english_capital" => Self::AllCapital,
            "change_case:english_lowercase" => Self::AllLowercase,
            "punctuation:no_comma" => Self::NoComma,
            _ => match Constraint::new(id, a)? {
                Some(constraint) => Self::IfBench(constraint),
                None => return Err(Error::Unknown(id.to_owned())),
            },
        })
    }

    /// Whether a response that is not blank follows the instruction.
    pub(super) fn is_followed(&self, response: &Response<'_>) -> Result<bool, PatternError> {
        let text = response.text;
        Ok(match self {
            Self::KeywordsExist(keywords) => {
                for keyword in keywords {
                    if !keyword.is_found(text)? {
                        return Ok(false);
                    }
                }
                true
            }
            Self::KeywordFrequency(keyword, bound) => bound.holds(keyword.count(text, bound.most())?),
            Self::ForbiddenWords(words) => {
                for word in words {
                    if word.is_found(text)? {
                        return Ok(false);
                    }
                }
                true
            }
            Self::LetterFrequency(letter, bound) => {
                bound.holds(response.lower().chars().filter(|c| c == letter).count())
            }
            Self::Language(code) => is_language(text, code),
            Self::Sentences(bound) => bound.holds(punkt::sentences(response.chars()).len()),
            Self::Paragraphs(wanted) => paragraphs(text).is_some_and(|n| n as f64 == *wanted),
            Self::Words(bound) => bound.holds(regex!(r"\w+").find_iter(text).count()),
            Self::ParagraphFirstWord { paragraphs, nth, word } => {
                first_word_of_paragraph(text, *paragraphs, *nth, word)
            }
            Self::Placeholders(least) => regex!(r"\[.*?\]").find_iter(text).count() as f64 >= *least,
            Self::Postscript(mark) => match mark {
                Postscript::Pps => regex!(r"p\.\s?p\.\s?s").is_match(response.lower()),
                Postscript::Ps => regex!(r"p\.\s?s\.").is_match(response.lower()),
                Postscript::Other(pattern) => pattern.is_found(response.lower())?,
            },
            Self::Bullets(wanted) => bullets(text) as f64 == *wanted,
            Self::ConstrainedResponse => ["My answer is yes.", "My answer is no.", "My answer is maybe."]
                .iter()
                .any(|option| text.contains(option)),
            Self::Highlights(least) => highlights(text) as f64 >= *least,
            Self::Sections(pattern, least) => {
                // `re.split` returns the groups of the separator as pieces too.
                let pieces = pattern.count(text, least.ceil() as usize)? * (1 + pattern.groups());
                pieces as f64 >= *least
            }
            Self::Json => is_json_block(text),
            Self::Title => has_title(text),
            Self::TwoResponses => two_responses(text),
            Self::RepeatPrompt(prompt) => strip(text).to_lowercase().starts_with(prompt.as_str()),
            Self::EndPhrase(phrase) => {
                strip(text).trim_matches('"').to_lowercase().ends_with(phrase.as_str())
            }
            Self::CapitalWords(bound) => {
                let words = treebank::words(response.chars());
                bound.holds(words.iter().filter(|word| is_upper(word)).count())
            }
            Self::AllCapital => is_upper(text) && is_language(text, "en"),
            Self::AllLowercase => is_lower(text) && is_language(text, "en"),
            Self::NoComma => !text.contains(','),
            Self::IfBench(constraint) => constraint.is_followed(text)?,
            Self::Quotation => {
                let text = strip(text);
                text.len() > 1 && text.starts_with('"') && text.ends_with('"')
            }
        })
    }
}

/// A text whose language can't be detected counts as being in the language, as in the reference.
fn is_language(text: &str, code: &str) -> bool {
    language::detect(text).is_none_or(|found| found == code)
}

fn is_blank(text: &str) -> bool {
    text.chars().all(is_space)
}

/// Parts between `***`, without blank ones at the ends; `None` if a part in between is blank.
fn paragraphs(text: &str) -> Option<usize> {
    let parts: Vec<&str> = text.split("***").collect();
    let mut count = parts.len();
    for (i, part) in parts.iter().enumerate() {
        if is_blank(part) {
            if i != 0 && i + 1 != parts.len() {
                return None;
            }
            count -= 1;
        }
    }
    Some(count)
}

/// Whether the text has this number of parts between blank lines and the nth begins with the word. Blank parts are not
/// counted but still have a number, as in the reference.
fn first_word_of_paragraph(text: &str, wanted: f64, nth: usize, word: &str) -> bool {
    let parts: Vec<&str> = text.split("\n\n").collect();
    let count = parts.iter().filter(|part| !is_blank(part)).count();
    if nth > count {
        return false;
    }
    let Some(first) = parts[nth - 1].split(is_space).find(|w| !w.is_empty()) else { return false };
    let first = first.trim_start_matches('\'').trim_start_matches('"');
    let first: String = first
        .chars()
        .take_while(|c| !matches!(c, '.' | ',' | '?' | '!' | '\'' | '"'))
        .flat_map(char::to_lowercase)
        .collect();
    count as f64 == wanted && first == word
}

/// Lines that begin with `*` and another character, which may be a line feed, and lines that begin with `-`.
fn bullets(text: &str) -> usize {
    let (stars, dashes) = (regex!(r"(?m)^\s*\*[^*].*$"), regex!(r"(?m)^\s*-.*$"));
    stars.find_iter(text).count() + dashes.find_iter(text).count()
}

/// `*...*` and `**...**` within a line that contain more than stars and white space.
fn highlights(text: &str) -> usize {
    let (single, double) = (regex!(r"\*[^\n*]*\*"), regex!(r"\*\*[^\n*]*\*\*"));
    let marked = single.find_iter(text).chain(double.find_iter(text));
    marked.filter(|found| !is_blank(found.as_str().trim_matches('*'))).count()
}

/// Whether the response, without the fences of a Markdown block, is JSON.
fn is_json_block(text: &str) -> bool {
    let mut text = strip(text);
    for fence in ["```json", "```Json", "```JSON", "```"] {
        text = text.strip_prefix(fence).unwrap_or(text);
    }
    json::parse(strip(text.strip_suffix("```").unwrap_or(text))).is_some()
}

/// Whether a line contains `<<...>>` around more than white space and angle brackets.
fn has_title(text: &str) -> bool {
    let mut titles = regex!(r"<<[^\n]+>>").find_iter(text);
    titles.any(|title| !is_blank(title.as_str().trim_start_matches('<').trim_end_matches('>')))
}

/// Whether six stars separate the text into two different responses.
fn two_responses(text: &str) -> bool {
    let parts: Vec<&str> = text.split("******").collect();
    let mut found: Vec<&str> = Vec::new();
    for (i, part) in parts.iter().enumerate() {
        if !is_blank(part) {
            found.push(strip(part));
        } else if i != 0 && i + 1 != parts.len() {
            return false;
        }
    }
    found.len() == 2 && found[0] != found[1]
}
