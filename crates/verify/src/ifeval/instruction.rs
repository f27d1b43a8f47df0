//! IFEval's 25 instruction types: their arguments and their checks.

use super::arguments::{Arguments, Check};
use super::characters::{is_lower, is_upper};
use super::pattern::{Pattern, PatternError};
use super::{Error, ifbench, language, punkt, treebank};
use crate::python_text::{is_space, regex, strip};
use crate::synlogic::json;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Parses one instruction.
pub(super) fn parse(id: &str, given: &Map<String, Value>) -> Result<Check, Error> {
    let a = &Arguments { instruction: id, given };
    Ok(match id {
        "keywords:existence" => {
            let keywords = a.patterns("keywords", "")?;
            Arc::new(move |r| each(&keywords, r.text, true))
        }
        "keywords:frequency" => {
            let keyword = a.pattern(strip(a.text("keyword")?), true)?;
            let bound = a.bound("frequency", "relation")?;
            Arc::new(move |r| Ok(bound.holds(keyword.count(r.text, bound.most())?)))
        }
        "keywords:forbidden_words" => {
            let words = a.patterns("forbidden_words", r"\b")?;
            Arc::new(move |r| each(&words, r.text, false))
        }
        "keywords:letter_frequency" => {
            let letter = a.text("letter")?;
            let mut chars = letter.chars();
            let (Some(c), None) = (chars.next(), chars.next()) else {
                return Err(a.error("letter", "one character"));
            };
            let letter = c.to_lowercase().next().unwrap_or(c);
            let bound = a.bound("let_frequency", "let_relation")?;
            Arc::new(move |r| Ok(bound.holds(r.lower().chars().filter(|c| *c == letter).count())))
        }
        "language:response_language" => {
            let code = a.text("language")?.to_owned();
            if !language::is_known(&code) {
                return Err(a.error("language", "a code of langdetect, such as de, zh-cn or zh-tw"));
            }
            Arc::new(move |r| Ok(is_language(r.text, &code)))
        }
        "length_constraints:number_sentences" => {
            let bound = a.bound("num_sentences", "relation")?;
            Arc::new(move |r| Ok(bound.holds(punkt::sentences(r.chars()).len())))
        }
        "length_constraints:number_paragraphs" => {
            let wanted = a.count("num_paragraphs")?;
            Arc::new(move |r| Ok(parts(r.text, "***").is_some_and(|parts| parts.len() as f64 == wanted)))
        }
        "length_constraints:number_words" => {
            let bound = a.bound("num_words", "relation")?;
            Arc::new(move |r| Ok(bound.holds(regex!(r"\w+").find_iter(r.text).count())))
        }
        "length_constraints:nth_paragraph_first_word" => {
            let paragraphs = a.count("num_paragraphs")?;
            let nth = a.count("nth_paragraph")?;
            if nth > paragraphs || nth.fract() != 0.0 {
                return Err(a.error("nth_paragraph", "a whole number up to num_paragraphs"));
            }
            let word = a.text("first_word")?.to_lowercase();
            Arc::new(move |r| Ok(first_word_of_paragraph(r.text, paragraphs, nth as usize, &word)))
        }
        "detectable_content:number_placeholders" => {
            let least = a.count("num_placeholders")?;
            Arc::new(move |r| Ok(regex!(r"\[.*?\]").find_iter(r.text).count() as f64 >= least))
        }
        "detectable_content:postscript" => match strip(a.text("postscript_marker")?) {
            "P.P.S" => Arc::new(|r| Ok(regex!(r"p\.\s?p\.\s?s").is_match(r.lower()))),
            "P.S." => Arc::new(|r| Ok(regex!(r"p\.\s?s\.").is_match(r.lower()))),
            other => {
                let mark = a.pattern(&format!(r"(?m)\s*{}.*$", other.to_lowercase()), false)?;
                Arc::new(move |r| mark.is_found(r.lower()))
            }
        },
        "detectable_format:number_bullet_lists" => {
            let wanted = a.count("num_bullets")?;
            Arc::new(move |r| Ok(bullets(r.text) as f64 == wanted))
        }
        "detectable_format:constrained_response" => Arc::new(|r| {
            Ok(["yes", "no", "maybe"]
                .iter()
                .any(|option| r.text.contains(&format!("My answer is {option}."))))
        }),
        "detectable_format:number_highlighted_sections" => {
            let least = a.count("num_highlights")?;
            Arc::new(move |r| Ok(highlights(r.text) as f64 >= least))
        }
        "detectable_format:multiple_sections" => {
            let splitter = strip(a.text("section_spliter")?);
            let splitter = a.pattern(&format!(r"\s?{splitter}\s?\d+\s?"), false)?;
            let least = a.count("num_sections")?;
            // `re.split` also returns the groups of the separator as pieces.
            let pieces = 1 + splitter.groups();
            Arc::new(move |r| Ok((splitter.count(r.text, least.ceil() as usize)? * pieces) as f64 >= least))
        }
        "detectable_format:json_format" => Arc::new(|r| Ok(is_json_block(r.text))),
        "detectable_format:title" => Arc::new(|r| Ok(has_title(r.text))),
        "combination:two_responses" => Arc::new(|r| {
            Ok(parts(r.text, "******").is_some_and(|parts| matches!(parts[..], [one, other] if one != other)))
        }),
        "combination:repeat_prompt" => {
            let prompt = strip(a.text("prompt_to_repeat")?).to_lowercase();
            Arc::new(move |r| Ok(strip(r.text).to_lowercase().starts_with(&prompt)))
        }
        "startend:end_checker" => {
            let phrase = strip(a.text("end_phrase")?).to_lowercase();
            Arc::new(move |r| Ok(strip(r.text).trim_matches('"').to_lowercase().ends_with(&phrase)))
        }
        "startend:quotation" => Arc::new(|r| {
            let text = strip(r.text);
            Ok(text.len() > 1 && text.starts_with('"') && text.ends_with('"'))
        }),
        "change_case:capital_word_frequency" => {
            let bound = a.bound("capital_frequency", "capital_relation")?;
            let is_capital = |word: &&String| is_upper(word);
            Arc::new(move |r| Ok(bound.holds(treebank::words(r.chars()).iter().filter(is_capital).count())))
        }
        "change_case:english_capital" => Arc::new(|r| Ok(is_upper(r.text) && is_language(r.text, "en"))),
        "change_case:english_lowercase" => Arc::new(|r| Ok(is_lower(r.text) && is_language(r.text, "en"))),
        "punctuation:no_comma" => Arc::new(|r| Ok(!r.text.contains(','))),
        _ => ifbench::parse(id, a)?.ok_or_else(|| Error::Unknown(id.to_owned()))?,
    })
}

/// Returns whether every pattern is found (if `found` is true), or whether all patterns are absent (otherwise).
fn each(patterns: &[Pattern], text: &str, found: bool) -> Result<bool, PatternError> {
    for pattern in patterns {
        if pattern.is_found(text)? != found {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether the text is in a language. As in IFEval's code, this is true if its language can't be detected.
fn is_language(text: &str, code: &str) -> bool {
    language::detect(text).is_none_or(|found| found == code)
}

fn is_blank(text: &str) -> bool {
    text.chars().all(is_space)
}

/// Splits a string into stripped parts, and drops a blank first or last part. `None` if another part is blank.
fn parts<'a>(text: &'a str, separator: &str) -> Option<Vec<&'a str>> {
    let mut parts: Vec<&str> = text.split(separator).map(strip).collect();
    parts.pop_if(|part| part.is_empty());
    let first = usize::from(parts.first().is_some_and(|part| part.is_empty()));
    parts.drain(..first);
    parts.iter().all(|part| !part.is_empty()).then_some(parts)
}

/// Returns whether the text has this number of parts between blank lines and the nth begins with the word. Blank parts
/// are not counted but still have a number, as in IFEval's code.
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

/// Counts the lines that begin with `*` and another character, which may be a line feed, and the lines that begin
/// with `-`.
fn bullets(text: &str) -> usize {
    let (stars, dashes) = (regex!(r"(?m)^\s*\*[^*].*$"), regex!(r"(?m)^\s*-.*$"));
    stars.find_iter(text).count() + dashes.find_iter(text).count()
}

/// Counts the occurrences of `*...*` and `**...**` within a line that contain more than stars and white space.
fn highlights(text: &str) -> usize {
    let (single, double) = (regex!(r"\*[^\n*]*\*"), regex!(r"\*\*[^\n*]*\*\*"));
    let marked = single.find_iter(text).chain(double.find_iter(text));
    marked.filter(|found| !is_blank(found.as_str().trim_matches('*'))).count()
}

/// Returns whether the response, without the fences of a Markdown block, is JSON.
fn is_json_block(text: &str) -> bool {
    let mut text = strip(text);
    for fence in ["```json", "```Json", "```JSON", "```"] {
        text = text.strip_prefix(fence).unwrap_or(text);
    }
    json::parse(strip(text.strip_suffix("```").unwrap_or(text))).is_some()
}

/// Returns whether a line contains `<<...>>` around more than white space and angle brackets.
fn has_title(text: &str) -> bool {
    let mut titles = regex!(r"<<[^\n]+>>").find_iter(text);
    titles.any(|title| !is_blank(title.as_str().trim_start_matches('<').trim_end_matches('>')))
}
