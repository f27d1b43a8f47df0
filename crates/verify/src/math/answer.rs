//! Finds the answer of a completion in strict mode, which reads one answer per response.
//!
//! A tag, or else "answer is" or "answer:", states the answer if it follows the last box. Otherwise the last box does,
//! with other boxes in the same statement. Without boxes, the answer follows `####`, or is the last line if it is only
//! mathematics, or else the last formula or number. If it can't be read, earlier text isn't tried.

use std::borrow::Cow;
use std::ops::Range;

use super::candidate::Found;
use super::environments::{Ahead, environments, first};
use super::extract::{answer_ends, last_number};
use super::{units, words};
use crate::boxed::trimmed;
use crate::finder::{self, Candidate, Marker, Reason, after, formula_around, lead, line_at};
use crate::forms::form;
use crate::languages::{self, UNSPACED};
use crate::python_text::regex;
use crate::retraction::{Written, is_withdrawn};
use crate::statement::{self, Pieces};

/// Maximum number of words for "answer" whose sentences are read, starting from the last one.
const MOST_ANNOUNCED: usize = 64;

/// Parts that together are the answer, such as several boxes in one statement, or the reason why an answer is missing.
pub(super) type Stated<'a> = Result<Vec<Cow<'a, str>>, Reason>;

/// Returns an answer of one part, or [`Reason::Denied`] unless `is_stated`.
fn one<'a>(part: impl Into<Cow<'a, str>>, is_stated: bool) -> Stated<'a> {
    if is_stated { Ok(vec![part.into()]) } else { Err(Reason::Denied) }
}

/// Prepares a response: removes calculator marks (`<<10*5=50>>`) and last lines such as `Confidence: 90%` or `Hope this
/// helps`, puts spaces around numbers in Chinese, Japanese and Korean text, and escapes amounts of money.
pub(super) fn prepared(text: &str) -> Cow<'_, str> {
    let glued = regex!(&format!("([{UNSPACED}，。][:：]?)([-−]?[0-9$])|([0-9$%])([{UNSPACED}])"));
    let bold = regex!(&format!(r"\*\*([^*\n]{{1,60}})\*\*\s*([{UNSPACED}])"));
    const ABOUT: &str = r"(?i)(?:\s+\$\\(?:blacksquare|square|qed|Box)\s*\$|\n[\s*_]*(?:(?:confidence|certainty|time used)\b[^\n]*|(?:q\.?\s?e\.?\s?d|done|(?:i )?hope (?:this|that|it) helps(?: you)?|let me know if you (?:have|need)\b[^\n]*)[\s.!*_∎]*))+$";
    let text = regex!(ABOUT).find(text).map_or(text, |line| &text[..line.start()]);
    let mut text = regex!(r"<<[^<>\n]{1,80}>>").replace_all(text, "");
    for (written, spaced) in [(bold, "$1 $2"), (glued, "$1$3 $2$4")] {
        if let Cow::Owned(next) = written.replace_all(&text, spaced) {
            text = next.into();
        }
    }
    match with_money(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(escaped) => escaped.into(),
    }
}

/// Escapes dollar signs before amounts as `\$`, so that they don't open a formula, as in `It costs $5. The answer is $7$.`
fn with_money(text: &str) -> Cow<'_, str> {
    if !regex!(r"\$[0-9][^$\n]*\s\$\S").is_match(text) || text.contains("$$") {
        return Cow::Borrowed(text);
    }
    let mut written = String::with_capacity(text.len() + 8);
    // Whether a formula is open. It closes at the end of its line.
    let mut formula = false;
    for (at, c) in text.char_indices() {
        if c == '$' && !text[..at].ends_with('\\') {
            let amount = !formula && regex!(r"^\$[0-9][^$\n]*\s\$\S").is_match(&text[at..]);
            written.push_str(if amount { "\\" } else { "" });
            formula = !formula && !amount;
        }
        formula &= c != '\n';
        written.push(c);
    }
    written.into()
}

/// Finds the answer of a completion as this module describes. `latex` and `plain` select the notations.
pub(super) fn find(text: &str, latex: bool, plain: bool) -> Stated<'_> {
    let boxes = if latex { finder::marked(text, Marker::Box) } else { Vec::new() };
    // A later statement of an answer replaces the boxes.
    let floor = boxes.last().map_or(0, |last| last.place.end);
    let is_boxed = !boxes.is_empty();
    let segment = |segment| segment_answer(text, segment, latex, plain);
    let last_mark = |marker| {
        let found = finder::marked(text, marker).pop();
        found.filter(|found| found.place.start >= floor && !found.value.trim().is_empty())
    };
    let tagged =
        last_mark(Marker::Tag).map(|found| segment(found.content).unwrap_or_else(|| one(found.value, true)));
    let bold = || last_bold(text).filter(|_| latex);
    let worded = || last_verdict(unexplained(text)).or_else(bold).filter(|_| !is_boxed);
    let announced = || {
        let mut ends = answer_ends(&text[floor..]);
        ends.extend(languages::answers(&text[floor..]));
        ends.sort_unstable();
        let ends = ends.into_iter().rev().take(MOST_ANNOUNCED);
        ends.filter_map(|end| announced(text, floor + end)).find_map(segment)
    };
    let boxed = || is_boxed.then(|| last_boxes(text, boxes));
    let object = || in_object(text);
    let yes_or_no = || yes_or_no(text).filter(|_| !is_boxed);
    let hashes = || segment(last_mark(Marker::Hashes)?.content);
    let last = || {
        let text = unexplained(text);
        let line = last_line(text).filter(|_| latex);
        line.or_else(|| last_formula(text, latex, plain)).or_else(|| last_words(text))
    };
    let found = tagged.or_else(object).or_else(worded).or_else(announced).or_else(boxed).or_else(hashes);
    found.or_else(yes_or_no).or_else(last).unwrap_or(Err(Reason::Missing))
}

/// Removes a check or an explanation that ends a response.
fn unexplained(text: &str) -> &str {
    const EXPLAINS: &str = r"(?im)(?:^|[.!]\**\s)\W*(?:check|explanation|verification|this (?:makes sense|checks out|is because|follows))\b";
    let Some(found) = regex!(EXPLAINS).find_iter(text).last() else { return text };
    let (before, explanation) =
        text.split_at(found.start() + usize::from(found.as_str().starts_with(['.', '!'])));
    let concludes = regex!(r"(?i)\b(?:so|thus|hence|therefore|answer)\b").is_match(explanation);
    if !concludes && before.contains(|c: char| c.is_ascii_digit()) { before } else { text }
}

/// Reads a response that is a JSON object with an answer, unless another of its values is false or rejects the answer.
fn in_object(text: &str) -> Option<Stated<'_>> {
    let bare = regex!(r"(?s)^\s*(?:```(?:json)?\s*)?(\{.*\})\s*(?:```)?\s*$").captures(text)?;
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&bare[1]).ok()?;
    let value = ["answer", "final_answer", "result", "solution"].iter().find_map(|key| object.get(*key))?;
    let rejects = |value: &serde_json::Value| match value {
        serde_json::Value::Bool(holds) => !holds,
        other => other
            .as_str()
            .is_some_and(|word| regex!(r"(?i)^(?:reject|wrong|false|incorrect|invalid)").is_match(word)),
    };
    let stated = !object.values().any(rejects);
    Some(one(value.as_str().map_or_else(|| value.to_string(), str::to_owned), stated))
}

/// Returns the `yes` or `no` that begins a response and is followed by a reason.
fn yes_or_no(text: &str) -> Option<Stated<'_>> {
    const REASONED: &str =
        r"(?i)^\W*(yes|no)\b(?:[,;:—–-]*\s*(?:because|since|as|for)\b|[.!]\**\s+\pL)[^\n]*$";
    let text = text.trim_end();
    let reasoned =
        regex!(REASONED).captures(text).and_then(|found| found.get(1)).map(|word| (word, word.end()));
    let (word, end) = reasoned.or_else(|| affirmed(text).filter(|_| !text.contains('\n')))?;
    Some(one(word.as_str(), !is_withdrawn(&text[end..], Written::OTHER)))
}

/// Returns the `yes` or `no` that begins a string, and the sentence's end, if the sentence agrees: `No, it isn't`.
fn affirmed(text: &str) -> Option<(regex::Match<'_>, usize)> {
    const AGREES: &str = r"(?i)^\W*(yes|no)\W+(?:it|this|that|they|there|the|he|she|we|you|i)\s([^\n.!?]*)";
    const DENIES: &str = r"(?i)\b(?:not|cannot|never|no|none|impossible|false|fails?)\b|n['’]t\b";
    let found = regex!(AGREES).captures(text)?;
    let agrees = found[1].eq_ignore_ascii_case("no") == regex!(DENIES).is_match(&found[2]);
    found.get(1).filter(|_| agrees).map(|word| (word, found[0].len()))
}

/// Returns the verdict in a last line that calls a statement true or false, or a problem unsolvable.
fn last_verdict(text: &str) -> Option<Stated<'_>> {
    let line = finder::last_lines(text).next()?;
    let found = form!("verdict").captures(&text[line.clone()])?;
    let words = found.iter().skip(1).flatten().next()?;
    let end = line.start + words.end();
    let stated = lead(text, line.start, line.start, "").is_some()
        && statement::is_ended(&after(text, end, end), 0, "", true)
        && !is_withdrawn(&text[end..], Written::OTHER);
    Some(one(words.as_str(), stated))
}

/// Returns the last line if it is only mathematics.
fn last_line(text: &str) -> Option<Stated<'_>> {
    let trimmed = text.trim_end();
    let line = &trimmed[trimmed.rfind('\n').map_or(0, |at| at + 1)..];
    let line = line.trim_start_matches(|c: char| "•◦‣▪·→⇒∴⟹✅✔✓👉➡➜\u{fe0f} ".contains(c));
    let label = regex!(r"^(?:[=-]+>\s*|(?:[A-Z]|[A-Za-z;]{2,6}):\s+)").find(line);
    let line = &line[label.map_or(0, |label| label.end())..];
    let start = trimmed.len() - line.len();
    is_mathematics(line).then(|| one(line, lead(text, start, start, line).is_some()))
}

/// Returns the words after the last "answer is" or "answer:", or else the whole text, if these are few words. Tried if
/// there is neither a formula nor a number.
fn last_words(text: &str) -> Option<Stated<'_>> {
    const MOST: usize = 6;
    // Number of words of a number below a thousand million.
    const LONGEST: usize = 20;
    let said = answer_ends(text).into_iter().rev().find_map(|end| announced(text, end));
    let said = said.unwrap_or(0..text.len());
    let from = said.start;
    let words = text[said].trim().trim_matches(['*', '_', ':', ' ', '`']);
    let (words, behind) = words.split_at(words.find(". ").unwrap_or(words.len()));
    let kept = !is_withdrawn(behind, Written::OTHER);
    let words = words.trim_end_matches('.');
    let affirmed = affirmed(words).filter(|(_, end)| *end == words.len());
    let words = affirmed.map_or(words, |(word, _)| word.as_str());
    // `It comes to forty-five`, `The oldest is Alice`
    let name = regex!(r" is (\p{Lu}\pL+)$").captures(words).map(|found| found[1].len());
    let ends = words.rmatch_indices(' ').map(|(at, _)| &words[at + 1..]).take(LONGEST);
    let is_number =
        |end: &str| words::number_in_words(&end.trim_start_matches("minus ").to_lowercase()).is_some();
    let number = ends.filter(|end| name == Some(end.len()) || is_number(end)).last();
    if let Some(number) = number {
        let start = from + text[from..].find(words).unwrap_or(0) + words.len() - number.len();
        return Some(one(number, kept && lead(text, start, start, "").is_some()));
    }
    let fits = (1..=MOST).contains(&words.split_whitespace().count());
    fits.then(|| one(words, kept && lead(text, from, from, "").is_some()))
}

/// Returns the bold words or formula at the end of a string. Only a reason (`since ..`) may follow them.
fn last_bold(text: &str) -> Option<Stated<'_>> {
    let end = text.trim_end().trim_end_matches('.');
    let reason = regex!(r"(?i)\*\*,? +(?:since|because)\b[^\n]*$").find(end);
    let end = reason.map_or(end, |reason| &end[..reason.start() + 2]).strip_suffix("**")?;
    let start = end.rfind("**")? + 2;
    let bold = &end[start..];
    let words = bold.split_whitespace().count();
    // Bold text without words before it is a heading, which isn't an answer.
    let inline = text[..start].contains(|c: char| c.is_alphanumeric());
    let more = regex!(r"^\d+ (?:more|fewer|other|additional|extra|different|such)\b").is_match(bold);
    let fits = (1..=3).contains(&words) && !bold.contains([':', '\n']) && !more || is_mathematics(bold);
    (inline && fits).then(|| attached(text, start..end.len(), start - 2..end.len() + 2))
}

/// Returns the contents of the last boxes that are stated together, without repeats.
fn last_boxes<'a>(text: &'a str, boxes: Vec<Candidate<&'a str>>) -> Stated<'a> {
    let read = |last: &Candidate<&str>, place: Range<usize>| {
        if place == last.place {
            attached(text, last.content.clone(), place).ok()
        } else {
            finder::states(text, place).then(Vec::new)
        }
    };
    let statement = finder::last(text, boxes, read)?;
    if statement.values.len() == 1 {
        return Ok(statement.reading);
    }
    let mut parts: Vec<Cow<'_, str>> = Vec::new();
    for part in statement.values {
        if !parts.iter().any(|known| known == part) {
            parts.push(part.into());
        }
    }
    Ok(parts)
}

/// Reads an answer with the sign, percent sign, base or unit that is attached to it. `place` is its range including the
/// box or tag. Returns [`Reason::Denied`] unless the sentence around the answer states it (see `statement`).
fn attached(text: &str, content: Range<usize>, place: Range<usize>) -> Stated<'_> {
    let content = &text[content];
    let Range { start, end } = place;
    let (low, high) = formula_around(text, start, end);
    let sign = lead(text, low, start, content).ok_or(Reason::Denied)?;
    let congruent = text[low..start].contains("\\equiv");
    let (suffix, length) = suffix(&text[end..line_at(text, high).1], high > end, congruent);
    let suffix = suffix.unwrap_or_default();
    let unit = usize::from(suffix.starts_with("\\text"));
    let worded = statement::sentence_before(&text[..start]).contains(char::is_alphabetic);
    let end_of_value = end + length + again(&text[end + length..], content);
    let behind = after(text, end_of_value, high.max(end_of_value));
    let ends = statement::is_ended(&behind, unit, content, worded);
    let goes_on = content.trim_end().ends_with([',', ';', '.'])
        && text[end..].starts_with([' ', '-'])
        && regex!(r"^\W*-?\d").is_match(&text[end..]);
    // `$8k` is a number of thousands.
    let thousands = !matches!(sign, "" | "-") && regex!(r"^\\text\{ [A-Za-z]\}$").is_match(&suffix);
    if !ends || goes_on || thousands || is_withdrawn(&text[high.max(end_of_value)..], of(content)) {
        return Err(Reason::Denied);
    }
    if sign.is_empty() && suffix.is_empty() {
        return one(content, true);
    }
    let plain = content.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let part =
        if plain { format!("{sign}{content}{suffix}") } else { format!("{sign}{{{content}}}{suffix}") };
    one(part, true)
}

/// Returns a number or formula with the comparison of mathematical values.
fn of(text: &str) -> Written<'_> {
    Written { text, same: super::same_value }
}

/// Returns the length of the text that repeats a value in another form right after it: `, or 50%`, ` (eleven)`. Or 0.
fn again(behind: &str, value: &str) -> usize {
    const OTHER: &str = r"(?i)(?:(?:or|i\.?e\.|that is|equivalently|in other words|which (?:is|equals)|(?:in|as an?) (?:decimal|fraction|percent\w*|mixed|exact|simplified|lowest)(?: (?:form|number|notation|terms))?|exactly|approximately|approx\.|about|roughly|≈|\\approx|=),?[\s:]*)";
    const GAP: &str = r"[\s$)}\\\]*.,;]*(?:\\q?quad\s*)?(?:\\text\{\s*)?";
    const VALUE: &str = r"\}?(?:\s*\\q?quad)?\s*([^=\n]{1,80}?)";
    let bracketed = regex!(&format!(r"^[\s$}}\\\]*]*\(\s*{OTHER}*([^()\n]{{1,60}})\)"));
    let joined = regex!(&format!(r"^{GAP}{OTHER}+{VALUE}(?:[.;]?\**\s*(?:$|\n|\\\]|\$\$)|[.;,] )"));
    let same = |text: &str| {
        let bare = text.trim_matches(|c: char| c.is_whitespace() || "$*\\()".contains(c));
        let unit =
            || bare.strip_prefix(value).is_some_and(|unit| !unit.contains(|c: char| c.is_ascii_digit()));
        super::same_to(value, bare, 2) || unit() || words::spells(bare, value)
    };
    [bracketed, joined]
        .iter()
        .find_map(|form| {
            let found = form.captures(behind)?.get(1)?;
            same(found.as_str()).then_some(found.end())
        })
        .unwrap_or(0)
}

/// Whether an answer outside of a formula is stated, isn't negative, and is neither denied nor taken back.
fn is_stated(text: &str, start: usize, end: usize) -> bool {
    let value = &text[start..end];
    let end = end + again(&text[end..], value);
    lead(text, start, start, value).is_some_and(|sign| sign != "-")
        && statement::is_ended(&after(text, end, end), 0, value, true)
        && !is_withdrawn(&text[end..], of(value))
}

/// Returns, in LaTeX, the percent sign, base, unit or last value of a chain that follows a value, and the length of the
/// text up to its end. `formula` is whether the value is in a formula, `congruent` whether a congruence states it.
fn suffix(after: &str, formula: bool, congruent: bool) -> (Option<String>, usize) {
    let closed = after.trim_start_matches(['}', '*', ')']);
    let rest = closed.trim_start_matches(|c: char| c.is_whitespace() || c == '$');
    let rest = ["~", "\\,", "\\ ", "\\;", "\\:", "\\right)"]
        .iter()
        .fold(rest, |rest, space| rest.strip_prefix(space).unwrap_or(rest))
        .trim_start();
    let touches = rest.len() == closed.len();
    let from = after.len() - rest.len();
    if let Some(found) = regex!(r"^(?:\\?%|(?:\\text\{\s*)?(?i:percent|pct)\b)").find(rest) {
        return (Some("\\%".to_owned()), from + found.end());
    }
    if let Some(found) = regex!(r"^(?:\^\s*\{?\s*\\circ\s*\}?|°)").find(rest) {
        return (Some("^\\circ".to_owned()), from + found.end());
    }
    if let Some(found) = regex!(r"^(?:_\{?([0-9]+)\}?|\(?in base \$?([0-9]+)\$?\)?)").captures(rest) {
        let base = found.get(1).or(found.get(2)).map_or("", |base| base.as_str());
        return (Some(format!("_{{{base}}}")), from + found[0].len());
    }
    if let Some(equal) = rest.strip_prefix('=') {
        let value = equal.split(['$', '\n']).next().unwrap_or_default();
        let said = value.trim().trim_end_matches('.');
        return (Some(format!(" = {said}")), from + 1 + value.len());
    }
    if let Some(found) = regex!(r"^\\pmod\s*(?:\{[^{}]*\}|\d+)").find(rest).filter(|_| congruent) {
        return (Some(found.as_str().to_owned()), from + found.end());
    }
    const UNIT: &str = r"^(\\(?:text|mathrm|mbox|textrm)\s*\{[\s~]*(?:\\[,;: ])?\s*)?\\?\s*((?:(?:square|cubic|sq\.?|cu\.?)\s+)?[A-Za-z]+\b(?:\s*/\s*[A-Za-z]+\b)?(?:\}?\^\{?[23]\}?|[²³])?)";
    if let Some(found) = regex!(UNIT).captures(rest) {
        let words = found.get(2).map_or("", |words| words.as_str());
        let word = words.split_whitespace().last().unwrap_or_default();
        let word = word.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        let common = matches!(word, "in" | "am" | "second");
        let symbol = (found.get(1).is_some() || words.ends_with(['2', '3', '²', '³']))
            && units::canonical(&word.to_lowercase()).is_some();
        // `m/s`
        let rate = words.split_once('/').is_some_and(|(above, below)| {
            [above, below].iter().all(|word| units::canonical(&word.trim().to_lowercase()).is_some())
        });
        let unit = symbol
            || rate
            || units::is_unit(word)
            || units::denominator(word).is_some()
            || words::is_scale(word);
        if unit && !common {
            return (
                Some(format!(
                    "\\text{{ {}}}",
                    words.replace(['{', '}'], "").replace('²', "^2").replace('³', "^3")
                )),
                from + found[0].len(),
            );
        }
        // A symbol that the value touches, or that a dimension or the end follows: `8m`, `8 m long`
        let measured = || {
            let behind = &rest[found[0].len()..];
            regex!(r"^(?:\s+(?:long|tall|high|wide|deep|apart|away|above|below|in|per|each)\b|[\s$*]*[.,;)]|\W*$)").is_match(behind)
        };
        if !formula && (touches || measured()) && matches!(word, "m" | "g" | "s" | "h" | "l") {
            let unit = (!touches).then(|| format!("\\text{{ {word}}}"));
            return (unit, from + found[0].len());
        }
    }
    (None, 0)
}

/// Returns the range that the word "answer" before `end` announces: the rest of its line, or the next line or formula.
fn announced(text: &str, end: usize) -> Option<Range<usize>> {
    let (from, to) = line_at(text, end);
    let line = &text[from..to];
    let window = &line[..line.char_indices().nth(120).map_or(line.len(), |(at, _)| at)];
    let direct = window.len() - window.trim_start_matches(['*', '_', 's', ' ']).len();
    let mark = regex!(r"^[*_s ]*(?:应该|应)?(?:[是为為はが은는이]\s*[:：]?|[:：=|])").find(window);
    let start = if let Some(mark) = mark {
        Some(mark.end())
    } else {
        // The verb must be in the same sentence, as in `answer to the question is 5`.
        let sentence = &window[..window.find(". ").unwrap_or(window.len())];
        let verb = regex!(r" (?:is[ :]|are[ :]|equals |be |= )|: ").find(sentence).map(|verb| verb.end());
        verb.or_else(|| regex!(r"(?: is| are|:)\s*$").is_match(sentence).then_some(line.len()))
    };
    let start = match start {
        Some(start) => start,
        None if line[direct..].trim_matches(['*', '_', '#', ' ', ':', '\r']).is_empty() => line.len(),
        None => return None,
    };
    let rest = &line[start.min(line.len())..];
    if !rest.trim_matches(['*', '_', ':', ' ', '\r']).is_empty() {
        return Some(from + start..to);
    }
    // The next paragraph, which may be a displayed formula over several lines.
    let skipped = text[to..].len() - text[to..].trim_start().len();
    let next = to + skipped;
    if next >= text.len() {
        return None;
    }
    for (open, close) in [("$$", "$$"), ("\\[", "\\]")] {
        if let Some(inside) = text[next..].strip_prefix(open)
            && let Some(length) = inside.find(close)
        {
            return Some(next..next + open.len() + length + close.len());
        }
    }
    // The mark of an item: `- 8`.
    let item = regex!(r"^[-*•]\s+").find(&text[next..]).map_or(0, |mark| mark.end());
    let (from, to) = line_at(text, next + item);
    Some(from..to)
}

/// Finds the answer in the part of the text that the word "answer", a tag or `####` announces.
fn segment_answer(text: &str, place: Range<usize>, latex: bool, plain: bool) -> Option<Stated<'_>> {
    let Range { start: from, end: to } = place;
    let segment = &text[from..to];
    let bare = trimmed(text, place, char::is_whitespace);
    let bare = trimmed(text, bare, |c| matches!(c, '*' | '_' | ':' | ' ' | '`' | '。'));
    let start = bare.start + number_length(&text[bare.clone()]);
    let body = unwrapped(&text[start..bare.end]);
    if latex && is_mathematics(body) {
        return Some(one(body, is_stated(text, start, start + body.len())));
    }
    if latex && let Some(first) = first(segment, 0, segment.len(), &mut Ahead::default()) {
        // Words may come before a formula, but numbers don't.
        let before = &segment[..first.start];
        let after = segment[first.end..].trim_start_matches(|c: char| !c.is_alphanumeric());
        if after.starts_with("but ") && lead(text, from + first.start, from + first.start, "").is_none() {
            return segment_answer(text, to - after.len()..to, latex, plain);
        }
        if !before.contains(|c: char| c.is_ascii_digit()) {
            return Some(formula(text, &first.found, from + first.start..from + first.end).or_else(
                |reason| {
                    // A formula that the statement is about: `The maximum of $f$ is 5.`
                    let verb = regex!(r"(?:^|\s)(?:is|are|equals)\s")
                        .find(after)
                        .map_or(after.len(), |verb| verb.end());
                    segment_answer(text, to - after.len() + verb..to, latex, plain).unwrap_or(Err(reason))
                },
            ));
        }
    }
    let sentence = body.find(". ").or(body.find('。')).map_or(body, |at| &body[..at]);
    let words = sentence.trim_end_matches(['.', ' ']);
    if let Some(value) = in_prose(text, start..start + words.len()).filter(|_| plain) {
        return Some(attached(text, value.clone(), value));
    }
    if !plain || !latex || words.len() >= 200 || !words.contains(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let number = words.trim_start_matches(|c: char| {
        !c.is_ascii_digit() && !matches!(c, '-' | '−' | '(' | '$' | '\\' | '.')
    });
    const PLAIN: &str = r"^(?i:(?:(?:the|is|are|exactly|equals?|to|just|simply|thus|therefore|a|value|number|\*\*)(?:\s+|$))*)$";
    let plain = regex!(PLAIN).is_match(&words[..words.len() - number.len()]);
    let said = if number.len() < words.len() && plain { number } else { words };
    let start = start + words.len() - said.len();
    let said = without_reason(said);
    const VALUE: &str = r"^(?:-?[0-9][0-9.,]*|[(\[{][^()\[\]{}]*[)\]}])";
    let number = regex!(VALUE).find(said).map_or(said.len(), |number| number.end());
    let tail = said[number..].trim_start_matches(['*', '"', '”']);
    let number = if tail.starts_with([' ', ',', ';']) { number } else { said.len() };
    let remark = regex!(r"^\s*\(([^()]*)\)$").captures(&said[number..]);
    let is_stated = is_stated(text, start, start + said.len())
        && !statement::is_redirected(&Pieces::new().read(&said[number..], false))
        && !remark.is_some_and(|remark| statement::is_correction(&remark[1].to_lowercase()));
    Some(one(said, is_stated))
}

/// Returns the range of the number that a sentence states, if words precede or follow the number.
fn in_prose(text: &str, sentence: Range<usize>) -> Option<Range<usize>> {
    let said = &text[sentence.clone()];
    // A match of the number begins with the character before it.
    let number = last_number(&text[..sentence.end], sentence.start.saturating_sub(1));
    let (start, end) = number.filter(|(start, _)| *start >= sentence.start)?;
    // Words of a formula or of a number in words belong to the value.
    let bare = !regex!(r"[\\=^{\[]|\d\s*/\s*\d").is_match(said);
    let words = |said: &str| regex!(r"(?:^|[^\pL])\pL{2,}").is_match(said);
    let before = &text[sentence.start..start];
    let about =
        regex!(r"(?i)\b(?:about|approximately|around|roughly|nearly|almost|circa)\b").is_match(before);
    let before = words(before) && !about && !said.starts_with(|c: char| c.is_ascii_digit());
    let behind = regex!(r"^\**\s+\(").is_match(&text[end..sentence.end])
        || text[end..sentence.end].trim_start_matches(['*', ' ']).starts_with(languages::is_unspaced);
    (bare && (before || behind)).then_some(start..end)
}

/// Removes a closing mark or bracket whose opening one is before the answer, as in `8*.` and `45)`.
fn unwrapped(text: &str) -> &str {
    let bare = text.trim_end_matches(['.', ' ']);
    let inside = bare.trim_end_matches(['*', '_', '`']);
    let inside = match inside.strip_suffix([')', ']']) {
        Some(inside) if !inside.contains(['(', '[', '\\']) => inside.trim_end_matches(['.', ' ']),
        _ => inside,
    };
    if inside.len() < bare.len() { inside } else { text }
}

/// Removes from a sentence the clause that follows a comma and gives a reason for the answer.
fn without_reason(words: &str) -> &str {
    const REASON: &str = r"(?i),?\s+\(?(?:since|because|as|which|so|where|given|by|using|hence|thus|therefore|that is why|when|see|regardless|obtained|found|at [a-z] =|and (?:we|so|this|not))\s.*$|[,;]\s+(?:for|with|we|the|it|this|not|rounded to|and the)\s.*$|\s[—–]\s(?:since|because|as|there|the|each|we|it|this)\s.*$";
    regex!(REASON).find(words).map_or(words, |found| &words[..found.start()])
}

/// Returns the length of the list number before a formula, as in `2. $x$`.
fn number_length(text: &str) -> usize {
    regex!(r"^[0-9]+[.)] \s*[$\\]").find(text).map_or(0, |found| found.len() - 1)
}

fn formula<'a>(text: &'a str, found: &Found<'a>, place: Range<usize>) -> Stated<'a> {
    let Found::Latex(parts) = found else { return Err(Reason::Missing) };
    if let [(part, percent)] = parts[..] {
        let start = place.start + text[place.clone()].find(part).unwrap_or(0);
        let content = start..start + part.len();
        // A percent sign after the formula is read like any other suffix.
        let behind = &text[content.end..];
        let close = ["$$", "$", "\\)", "\\]"].iter().find(|close| behind.starts_with(**close));
        let end = if percent { content.end + close.map_or(0, |close| close.len()) } else { place.end };
        return attached(text, content, place.start..end);
    }
    if !is_stated(text, place.start, place.end) {
        return Err(Reason::Denied);
    }
    let parts = parts.iter().map(
        |(part, percent)| {
            if *percent { format!("{part}\\%").into() } else { Cow::Borrowed(*part) }
        },
    );
    Ok(parts.collect())
}

/// Whether a line is a formula and nothing else: words of prose don't occur outside of text commands.
fn is_mathematics(line: &str) -> bool {
    let line = line.trim().trim_matches(['*', '_', '`']).trim();
    if line.is_empty()
        || line.len() > 2_000
        || line.contains(languages::is_unspaced)
        || line.starts_with(['#', '-', '>']) && line[1..].starts_with(' ')
    {
        return false;
    }
    let mut outside = line;
    let mut delimited = 0;
    for (open, close) in [("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")] {
        if let Some(inside) = line.strip_prefix(open) {
            delimited = inside.find(close).map_or(0, |at| at + 2 * open.len());
        }
    }
    if delimited > 0 && delimited < line.trim_end_matches('.').len() {
        return false;
    }
    let mut rest = outside;
    while let Some(start) = rest.find(|c: char| c.is_alphabetic()) {
        let command = rest[..start].ends_with('\\');
        outside = &rest[start..];
        let length = outside.find(|c: char| !c.is_alphabetic()).unwrap_or(outside.len());
        let word = &outside[..length];
        rest = &outside[length..];
        if command {
            // The argument of a text command isn't prose.
            if (word.starts_with("text") || word.starts_with("math"))
                && let Some(close) = rest.starts_with('{').then(|| rest.find('}')).flatten()
            {
                rest = &rest[close..];
            }
            if word == "begin" || word == "end" {
                rest = rest.find('}').map_or(rest, |close| &rest[close..]);
            }
            continue;
        }
        let known = ["sqrt", "sin", "cos", "tan", "log", "ln", "exp", "pi", "or", "and"];
        if length > 2 && !known.contains(&word)
            || regex!("^(?i:is|so|we|it|to|of|be|in|by|at|as|if|no)$").is_match(word)
        {
            return false;
        }
    }
    line.contains(|c: char| c.is_alphanumeric()) && !line.contains(". ")
}

/// Finds the last formula or number of the text, whichever comes later.
fn last_formula(text: &str, latex: bool, plain: bool) -> Option<Stated<'_>> {
    // The place where a value is attained is not the value: `8 when x = 2`
    const CLAUSE: &str = r"\d[^\n]*?(,\s*(?:which (?:is |are )?(?:attained|achieved|reached|obtained|occurs?|happens?)|where|when|attained|achieved|occurring)|\s+\(?(?:when|where|attained|achieved)|\s+\(at)\b[^\n]*$";
    let main = regex!(CLAUSE).captures(text).and_then(|found| Some(found.get(1)?.start()));
    let value = |to: usize| {
        let mut formulas = if latex { environments(&text[..to]) } else { Vec::new() };
        // The unit of a number outside of it: `50 $m^2$`
        let is_unit = |formula: &mut super::candidate::Candidate<'_>| {
            regex!(r"^\$\\?(?:(?:text|mathrm)\{)?[a-z]{1,3}\}?(?:\^\{?[23]\}?)?\$$")
                .is_match(&text[formula.start..formula.end])
                && text[..formula.start].trim_end().ends_with(|c: char| c.is_ascii_digit())
        };
        while formulas.pop_if(is_unit).is_some() {}
        let last = formulas.last();
        let floor = last.map_or(0, |formula| formula.end);
        if plain && let Some((start, end)) = last_number(&text[..to], floor) {
            // Includes the whole quotient.
            let start = text[..start].trim_end_matches(|c: char| c.is_ascii_digit() || c == '/').len();
            let end = end + regex!(r"^/[0-9]+").find(&text[end..]).map_or(0, |below| below.end());
            return Some(attached(text, start..end, start..end));
        }
        last.map(|last| formula(text, &last.found, last.start..last.end))
    };
    main.and_then(value).filter(Result::is_ok).or_else(|| value(text.len()))
}
