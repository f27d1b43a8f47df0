//! Where a completion's answer stands, in strict mode: one answer a response.
//!
//! If there is a box, the last one alone is the answer, together with boxes in the same statement. Otherwise it is what
//! follows the last "answer is" or "answer:", and otherwise the last line if it is only mathematics, or the last formula
//! or number. If that can't be read, nothing before it is read instead.

use std::borrow::Cow;

use super::budget::MAX_CANDIDATES;
use super::candidate::Found;
use super::environments::{Ahead, environments, first};
use super::extract::{answer_ends, last_number};
use super::normal_strict;
use super::units;
use crate::python_text::regex;

/// Commands whose group is the answer.
const BOXES: &[&str] = &["\\boxed", "\\fbox", "\\framebox"];
/// Longest text between two boxes of one statement.
const STATEMENT: usize = 160;

/// The parts of an answer; all of them belong to it.
#[derive(Debug, Default)]
pub(super) struct Answer<'a> {
    pub(super) parts: Vec<Cow<'a, str>>,
    /// Another answer is offered beside it: `5 or 6`.
    pub(super) hedged: bool,
}

impl<'a> Answer<'a> {
    /// An answer of one part.
    pub(super) fn of(part: &'a str) -> Self {
        Self { parts: vec![part.into()], hedged: false }
    }
}

/// The answer of a completion; without parts if there is none.
pub(super) fn find(text: &str, latex: bool, plain: bool) -> Answer<'_> {
    let boxes = if latex { boxes(text) } else { Vec::new() };
    let Some(last) = boxes.last() else { return without_box(text, latex, plain) };
    // A statement of an answer behind the last box replaces it.
    for end in answer_ends(&text[last.end..]).into_iter().rev() {
        if let Some(segment) = announced(text, last.end + end)
            && let Some(answer) = segment_answer(text, segment, latex, plain)
        {
            return answer;
        }
    }
    last_statement(text, &boxes)
}

/// The answer of a completion without boxes.
fn without_box(text: &str, latex: bool, plain: bool) -> Answer<'_> {
    if let Some((before, after)) = text.rsplit_once("<answer>")
        && let Some((inside, _)) = after.split_once("</answer>")
        && !inside.trim().is_empty()
    {
        let from = before.len() + "<answer>".len();
        let answer = segment_answer(text, (from, from + inside.len()), latex, plain);
        return answer.unwrap_or_else(|| Answer::of(inside));
    }
    if let Some(bold) = last_bold(text).filter(|_| latex) {
        return bold;
    }
    for end in answer_ends(text).into_iter().rev() {
        if let Some(segment) = announced(text, end)
            && let Some(answer) = segment_answer(text, segment, latex, plain)
        {
            return answer;
        }
    }
    if let Some(at) = text.rfind("####") {
        let line = line_at(text, at + 4);
        if !text[line.0..line.1].trim().is_empty()
            && let Some(answer) = segment_answer(text, line, latex, plain)
        {
            return answer;
        }
    }
    let trimmed = text.trim_end();
    let start = trimmed.rfind('\n').map_or(0, |at| at + 1);
    if latex && is_mathematics(&trimmed[start..]) {
        return Answer::of(&trimmed[start..]);
    }
    let answer = last_formula(text, latex, plain);
    if answer.parts.is_empty() { last_words(text).unwrap_or(answer) } else { answer }
}

/// The words behind the last "answer is" or "answer:", or a text of few words, if there is neither a formula nor a number.
fn last_words(text: &str) -> Option<Answer<'_>> {
    const MOST: usize = 6;
    let said = answer_ends(text).into_iter().rev().find_map(|end| announced(text, end));
    let (from, to) = said.unwrap_or((0, text.len()));
    let words = text[from..to].trim().trim_matches(['*', '_', ':', ' ', '`']);
    let words = words.split_once(". ").map_or(words, |(first, _)| first).trim_end_matches('.');
    let fits = (1..=MOST).contains(&words.split_whitespace().count());
    let hedged = is_turned(&text[..from], "") || is_supposed(&text[..from]);
    fits.then(|| Answer { hedged, ..Answer::of(words) })
}

/// The bold words or formula that end a text.
fn last_bold(text: &str) -> Option<Answer<'_>> {
    let end = text.trim_end().trim_end_matches('.').strip_suffix("**")?;
    let start = end.rfind("**")? + 2;
    let bold = &end[start..];
    let words = bold.split_whitespace().count();
    // A heading says what follows, or follows nothing.
    let inline = text[..start].contains(|c: char| c.is_alphanumeric());
    let fits = (1..=3).contains(&words) && !bold.contains([':', '\n']) || is_mathematics(bold);
    (inline && fits).then(|| attached(text, bold, start - 2, text.len()))
}

/// Whether the clause before a value makes it a supposition.
fn is_supposed(before: &str) -> bool {
    const WORDS: &str = r"(?i)\b(?:suppos|assum|discard|reject|exclud|eliminat)\w*|\brul\w+ out\b|\b(?:try|nobody|wrong|incorrect|unless|not true|no way)\b";
    let clause = before.rsplit(['.', ',', ';', ':', '!', '?', '\n']).next().unwrap_or(before);
    regex!(WORDS).is_match(clause)
}

/// Whether the clause before a value says whose answer or which mistake it is, so that it isn't this response's answer.
fn is_disowned(before: &str) -> bool {
    const WORDS: &str = concat!(
        r"(?i)\b(?:mistake|fallacy|trap|tempted)\b|\b(?:previous|old|former|earlier|naive|tempting|another|his|her|their|wrong|incorrect|",
        r"false|\w+['’]s)\s+(?:answer|guess|result|solution)\b|\b(?:wrong|incorrect|false)\s+(?:value|choice)\b|",
        r"\b(?:many|most|some|people|one might|you (?:may|might)|every(?:one|body)|someone)\b.{0,30}?\b(?:thinks?|says?|claims?|believes?|guess(?:es)?)\b"
    );
    let clause = before.rsplit(['.', ',', ';', '!', '?', '\n']).next().unwrap_or(before);
    // Every word of these has more than six letters before it.
    clause.len() > 8 && regex!(WORDS).is_match(clause)
}

/// Whether a sentence behind an answer takes it back or offers another one.
fn is_withdrawn(behind: &str) -> bool {
    const OFFER: &str = concat!(
        r"(?i)^\W*(?:or|alternatively|maybe|perhaps|actually|wait|no|hmm|but|sorry|oops|correction|rather|instead|scratch that|i mean|",
        r"make that)\b.{0,60}?(?:\$|\\boxed|[0-9]|wrong|incorrect|mistake)|",
        r"^\W*(?:the\s+)?(?:correct|right|real|true|actual|new)\s+(?:one|answer|value|result)\s+(?:is|was|should)\b"
    );
    const DENIAL: &str = concat!(
        r"(?i)^\W*(?:(?:however|but|no|wait|though|yet|actually|sadly|unfortunately|oh|hold on|on second thought)\W+)*(?:",
        r"(?:this|that|it)\s+can(?:not|['’]t) be\W*$|",
        r"(?:this|that|it|which|the (?:answer|result|value)|my (?:answer|result))(?:\s+\w+){0,2}?",
        r"(?:['’]s|\s+(?:is|was|seems|can|cannot|must|could))?(?:n['’]t)?\s+(?:\w+\s+)??(?:be\s+)?",
        r"(?:wrong|incorrect|false|mistaken|(?:not\s+)(?:\w+\s+)?(?:right|correct|true|answer))\b|",
        r"(?:this|that|it)\s+(?:is|was|ca|can|could)(?:n['’]t|not)\s+(?:be\s+)?(?:the\s+)?(?:right|correct|true|answer)\b|",
        r"i\s+(?:made|have|was|am)\b.{0,30}\b(?:mistake|error|wrong)\b)"
    );
    // "I hope it is correct" is the commonest sentence behind an answer.
    let behind = clip(behind);
    if behind.trim_end().len() < 6 {
        return false;
    }
    // The rest of the answer's own sentence is read elsewhere.
    let rest =
        behind.trim_start_matches(|c: char| !c.is_alphanumeric() && !matches!(c, '.' | '!' | '?' | '\n'));
    let own = usize::from(rest.starts_with(|c: char| c.is_alphanumeric() && !c.is_uppercase()));
    let mut sentences = behind.split(['.', '!', '?', '\n']).skip(own).take(4);
    sentences.any(|sentence| {
        sentence.len() > 5
            && !sentence.trim_start().starts_with("I hope")
            && (regex!(OFFER).is_match(sentence) || regex!(DENIAL).is_match(sentence))
    })
}

/// Whether the words around a value make it no answer: `is not`, `at least`, `suppose that`, `twice`; `does not work`,
/// `or more`.
fn is_turned(before: &str, after: &str) -> bool {
    const BEFORE: &str = concat!(
        r"(?i)(?:\b(?:not|no|never|cannot|\w+n['’]t|hardly|least|most|than|than or equal to|up to|below|above|under|over|",
        r"beyond|exceeds|nearly|almost|except|anything but|differs from|different from|far from|close to|twice|nicht|pas|",
        r"times|plus|divided by|multiplied by|one over|",
        r"if (?:\S+ ){1,3}?(?:were|was|is|equals)|between \S+ and|(?:half|square|cube|root|reciprocal|inverse|log|logarithm|multiple|divisor|factor|power|opposite|negative) of)\b",
        r"(?:\W+(?:be|been|equal|equals|to|exactly|simply|just|the|value|es)\b)*|不是|\$ to|[±/~])\W*$",
    );
    const AFTER: &str = concat!(
        r"(?i)^[\s$*()\]}\\.]*(?:\?|(?:text\w*|mbox)\{\s*(?:or (?:more|less|fewer|greater|above|below)|is (?:not|wrong|incorrect))\b|(?:this|that|it) is (?:wrong|incorrect|false)\b|is what \w+ (?:first|initially|originally)\b|(?:wrong|incorrect|false)\b|or so\b|[/±→]|->|\.\.\s*\d|[<>≤≥≠]\s+[a-z]\b|[,;]\s*(?:maybe|perhaps|actually|sorry)\b|vs\b|versus\b|",
        r"(?:times|plus|minus|percent of|(?:out )?of|over|mod|divided by|multiplied by)\s+(?:[$\d\\(]|(?:one|two|three|four|five|six|seven|eight|nine|ten)\b)|",
        r"and (?:a|an|one|two|three|\d) (?:half|halves|thirds?|quarters?|fourths?|fifths?)\b|point (?:zero|one|two|three|four|five|six|seven|eight|nine|\d)|",
        r"(?:less|fewer|more|greater) than\b|short of\b|is (?:too|an? (?:upper|lower) bound)\b|would be (?:the answer|right|correct) if\b|",
        r",?\s*(?:which|but (?:this|that|it)) (?:is|was|seems) (?:wrong|incorrect|false|not)\b|",
        r"to the power\b|or (?:more|less|fewer|greater|above|below)\b|fails?\b|",
        r"(?:is|are|was|does|do|did|must|should|can|could|would|will)(?:n['’]t\b|\s+(?:\w+\s+){0,2}?",
        r"(?:not|wrong|incorrect|false|extraneous|spurious|rejected|discarded|excluded|invalid|impossible)\b))",
    );
    let clause = before.rsplit(['.', ',', ';', ':', '!', '?', '\n']).next().unwrap_or(before);
    let behind = &after[..after.char_indices().nth(80).map_or(after.len(), |c| c.0)];
    regex!(BEFORE).is_match(clause) || regex!(AFTER).is_match(behind)
}

/// A box: where its command, its content and its end are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    start: usize,
    from: usize,
    to: usize,
    end: usize,
}

/// The boxes that are in no other box, in order, in one pass. One that is not closed runs to the end of the text.
fn boxes(text: &str) -> Vec<Place> {
    let bytes = text.as_bytes();
    let mut found: Vec<Place> = Vec::new();
    // Open braces: where the content begins, and where the box's command is if it has one.
    let mut open: Vec<(usize, Option<usize>)> = Vec::new();
    let mut command = None;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => {
                let name = BOXES.iter().find(|name| {
                    text[at..].starts_with(**name)
                        && !bytes.get(at + name.len()).is_some_and(u8::is_ascii_alphabetic)
                });
                let Some(name) = name else {
                    // An escaped character is no brace.
                    at += 2;
                    continue;
                };
                let after = at + name.len();
                let skipped = text[after..].len() - text[after..].trim_start().len();
                match bytes.get(after + skipped) {
                    Some(b'{') => command = Some(at),
                    Some(byte) if byte.is_ascii_alphanumeric() || *byte == b'-' => {
                        let from = after + skipped;
                        let length = text[from..]
                            .find(|c: char| !c.is_ascii_alphanumeric() && c != '-')
                            .unwrap_or(text.len() - from);
                        found.push(Place { start: at, from, to: from + length, end: from + length });
                        at = from + length;
                        continue;
                    }
                    _ => {}
                }
                at = after + skipped;
                continue;
            }
            b'{' => open.push((at + 1, command.take())),
            b'}' => {
                if let Some((from, Some(start))) = open.pop() {
                    while found.last().is_some_and(|inner| inner.start > start) {
                        found.pop();
                    }
                    found.push(Place { start, from, to: at, end: at + 1 });
                }
            }
            _ => {}
        }
        at += 1;
    }
    let unclosed = open.iter().rev().find_map(|(from, start)| Some((*from, (*start)?)));
    if let Some((from, start)) =
        unclosed.filter(|(_, start)| found.last().is_none_or(|last| last.start < *start))
    {
        found.push(Place { start, from, to: text.len(), end: text.len() });
    }
    found
}

/// The last box, and those before it in the same statement.
fn last_statement<'a>(text: &'a str, boxes: &[Place]) -> Answer<'a> {
    let mut first = boxes.len() - 1;
    while first > 0
        && boxes.len() - first < MAX_CANDIDATES
        && same_statement(&text[boxes[first - 1].end..boxes[first].start])
    {
        first -= 1;
    }
    let last = boxes[boxes.len() - 1];
    let unclosed = last.end == text.len()
        && !text.ends_with('}')
        && last.to == last.end
        && text[last.start..].contains('{');
    if first + 1 == boxes.len() {
        let answer = attached(text, &text[last.from..last.to], last.start, last.end);
        return Answer { hedged: answer.hedged || unclosed, ..answer };
    }
    let mut answer = Answer::default();
    for place in &boxes[first..] {
        let content = &text[place.from..place.to];
        if !answer.parts.iter().any(|part| part == content) {
            answer.parts.push(content.into());
        }
    }
    let (before, after) = (&text[..boxes[first].start], &text[last.end..]);
    answer.hedged = unclosed || is_denied(before, after, after);
    answer
}

/// Reads an answer with the sign, percent sign, base or unit that is attached to it. `start..end` is its position.
///
/// It is hedged if an operation, a relation other than equality, a fraction, a denial or another value is attached.
fn attached<'a>(text: &'a str, content: &'a str, start: usize, end: usize) -> Answer<'a> {
    const DRESS: &str = concat!(
        r"\\(?:[,;:! ]|(?:display|text)style|[lL]arge|LARGE|[hH]uge|therefore|bf|color\{[^{}]*\}|q?quad|hline|",
        r"(?:begin|end)\{[a-z]+\*?\}(?:\{[lcr|]*\})?|(?:tag|label)\*?\{[^{}]*\}|blacksquare|square|checkmark|qed)"
    );
    let (before, after) = (&text[..start], &text[end..]);
    let (low, high) = formula_around(text, start, end);
    let inside = low < start || high > end;
    let line = before.rfind('\n').map_or(0, |at| at + 1);
    let head = if inside {
        before[low..].trim_start_matches(['$', '&', ' ', '\n'])
    } else {
        &before[line.max(low_end(before))..]
    };
    let Some(lead) = lead(head, inside) else { return Answer { hedged: true, ..Answer::of(content) } };
    let tail = if inside { &text[end..high] } else { &after[..after.find('\n').unwrap_or(after.len())] };
    let cleaned = match tail.contains('\\') {
        true => regex!(DRESS).replace_all(tail, " "),
        false => Cow::Borrowed(tail),
    };
    let behind = &text[high.max(end)..];
    let trail = trail(&cleaned, inside).and_then(|trail| match trail.is_empty() && inside {
        // What follows the formula's delimiter.
        true => self::trail(behind.trim_start_matches(['$', '\\', ')', ']']), false),
        false => Some(trail),
    });
    let Some(trail) = trail else { return Answer { hedged: true, ..Answer::of(content) } };
    let boxed = BOXES.iter().any(|command| text[start..].starts_with(command));
    let hedged = is_denied(before, after, behind)
        || !boxed && is_supposed(before)
        || regex!(r"(?i)\bor\s*\$?\s*[a-z](?:_\w)?\s*=\s*\$?$").is_match(before)
        || content.trim_end().ends_with([',', ';', '.']) && regex!(r"^\W*-?\d").is_match(tail)
        || !inside && tail.starts_with('!') && !head.contains(char::is_alphabetic);
    if lead.is_empty() && trail.is_empty() {
        return Answer { hedged, ..Answer::of(content) };
    }
    let plain = content.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let part = if plain { format!("{lead}{content}{trail}") } else { format!("{lead}{{{content}}}{trail}") };
    Answer { parts: vec![part.into()], hedged }
}

/// Beginning of a text, up to 300 characters, in which the next sentence is read.
fn clip(text: &str) -> &str {
    &text[..text.char_indices().nth(300).map_or(text.len(), |(at, _)| at)]
}

/// Range of the formula around `start..end`, inside its delimiters. Outside of a formula it is `start..end`.
fn formula_around(text: &str, start: usize, end: usize) -> (usize, usize) {
    let low = low_end(&text[..start]);
    let mut high = (end + FAR).min(text.len());
    while !text.is_char_boundary(high) {
        high -= 1;
    }
    let (before, after) = (&text[low..start], &text[end..high]);
    for (open, close) in [("\\[", "\\]"), ("\\(", "\\)")] {
        if let Some(from) = before.rfind(open).filter(|from| !before[*from..].contains(close))
            && let Some(to) = after.find(close)
        {
            return (low + from + open.len(), end + to);
        }
    }
    if let Some(from) = before.rfind("$$").filter(|_| before.matches("$$").count() % 2 == 1)
        && let Some(to) = after.find("$$")
    {
        return (low + from + 2, end + to);
    }
    let line = before.rfind('\n').map_or(0, |at| at + 1);
    let marks = before[line..].bytes().filter(|byte| *byte == b'$').count();
    if let Some(from) = before[line..].rfind('$').filter(|_| marks % 2 == 1)
        && let Some(to) = after.find(['$', '\n']).filter(|to| after[*to..].starts_with('$'))
    {
        return (low + line + from + 1, end + to);
    }
    (start, end)
}

/// Start of the last `FAR` bytes of a text.
fn low_end(text: &str) -> usize {
    (text.len().saturating_sub(FAR)..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len())
}

/// Farthest place from an answer, in bytes, at which its formula begins or ends.
const FAR: usize = 600;

/// Reads the sign before a value. `head` is the text before it, and `inside` is true in a formula.
///
/// Returns `None` if the value is an operand, or the right side of a relation other than equality.
fn lead(head: &str, inside: bool) -> Option<&'static str> {
    const WRAPS: &str = concat!(
        r"(?:\\(?:text(?:bf|it|rm|sf|tt|normal|up)?|math(?:bf|it|rm|sf|tt|normal)|boldsymbol|bm|bold|emph|underline|ensuremath|",
        r"[mh]box|boxed|fbox|(?:text)?color\{[^{}]*\}|colorbox\{[^{}]*\})\s*|(?:^|[\s$=({:&,])\s*)$"
    );
    // Braces that are open there: those that dress the value are passed over, and all others are a part of its formula.
    let mut open = Vec::new();
    let bytes = head.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            _ if at > 0 && bytes[at - 1] == b'\\' => {}
            b'{' => open.push(at),
            b'}' => drop(open.pop()),
            _ => {}
        }
    }
    let mut head = head.to_owned();
    for at in open.into_iter().rev() {
        let dressed = regex!(WRAPS).find(&head[..at]).map(|found| found.start());
        let start = dressed?;
        let within = head[at + 1..].trim();
        if !within.is_empty()
            && !regex!(r"^[-+−]$|^\\(?:color\{[^{}]*\}|[a-zA-Z]+)$|[a-zA-Z:]$").is_match(within)
        {
            return None;
        }
        let sign = if matches!(within, "-" | "−") { "-" } else { "" };
        head.truncate(if head[start..].starts_with('\\') { start } else { at });
        head.push_str(sign);
    }
    const SPACES: &str = r"(?:\\(?:[,;:! ]|(?:display|text)style|[lL]arge|LARGE|[hH]uge|left|color\{[^{}]*\})|[\s~$&]|\\[(\[])+$";
    let plain = head.trim_end_matches(|c: char| c.is_whitespace() || matches!(c, '~' | '$' | '&'));
    let end = match plain.contains('\\') {
        true => regex!(SPACES).find(&head).map_or(head.len(), |found| found.start()),
        false => plain.len(),
    };
    let gap = head.len() > end;
    let bold = head[..end].trim_end_matches('*');
    let marked = bold.len() < end;
    let rest = if marked && !bold.trim_end().ends_with(|c: char| c.is_ascii_digit()) {
        bold.trim_end()
    } else {
        &head[..end]
    };
    // Words that say nothing about the value.
    let word = rest.trim_end_matches(char::is_alphabetic);
    let command = word.ends_with('\\');
    if !inside
        && !command
        && rest.len() > word.len() + 1
        && !matches!(&rest[word.len()..], "minus" | "negative" | "Minus" | "Negative")
    {
        return Some("");
    }
    // The digits before a point, a comma or the sign of a ratio.
    if rest.ends_with(['.', ',', ':'])
        && (!gap && regex!(r"\d[.,]$|(?:^|[$=(,])\s*\d+:$").is_match(rest)
            || inside && regex!(r"\d\s*:$").is_match(rest))
    {
        return None;
    }
    if regex!(r"(?:=>|->|→|⇒|⟹|\\(?:Rightarrow|rightarrow|implies|to|iff|Longrightarrow|approx|therefore)|≈|[^!<>]=|^=|:)$").is_match(rest) {
        return Some("");
    }
    // Words that lead to the answer, and the beginning of an environment.
    if regex!(r"\\(?:text\w*|[mh]box|mathrm|mathbf|begin|end)\{[^{}]*\}$|<[^<>]{1,40}>$").is_match(rest) {
        return Some("");
    }
    if regex!(r"(?i)\b(?:minus|negative)$").is_match(rest) {
        return Some("-");
    }
    if let Some(left) = rest.strip_suffix(['-', '−', '–', '+', '>']) {
        let outer = left.trim_end_matches([' ', '\t']);
        let sign = &rest[left.len()..];
        let first = outer.is_empty() || outer.ends_with('\n');
        // A mark of a list or of a quotation, and a dash between words.
        if !inside
            && gap
            && (first
                || sign != ">"
                    && outer.len() < left.len()
                    && outer.ends_with(|c: char| c.is_alphabetic() || c == '*'))
        {
            return Some("");
        }
        let signed = first
            || regex!(r"(?:[=(:,]|\\approx|\\Rightarrow|\\quad|\\\\|&|≈)$").is_match(outer)
            || !inside
                && outer.len() < left.len()
                && outer.ends_with(|c: char| c.is_alphabetic() || c == '*' || c == '$')
            || !inside && outer.ends_with(['*', '$', ' ']);
        return match sign {
            ">" => None,
            "+" if signed => Some(""),
            _ if signed => Some("-"),
            _ => None,
        };
    }
    let sign = if inside { rest.ends_with(['*', '_', '|', '~']) } else { false };
    let operator = regex!(
        r"(?:[/^<>≤≥≠±×·÷√]|!=|\\(?:neq?|not|leq?|geq?|lt|gt|leqslant|geqslant|pm|mp|times|cdot|div|sqrt|sim|ll|gg|ln|log|sin|cos|tan|in|notin|cup|cap|circ|n?mid)|\\(?:ln|log|sin|cos|tan|arc\w+)\s*[_^]\s*(?:\{[^{}]*\}|\w))$"
    );
    let touching = !gap && rest.ends_with(|c: char| c.is_ascii_digit() || matches!(c, ')' | '}') && inside);
    let letter = inside && regex!(r"(?:^|[^\\A-Za-z])[A-Za-z]$").is_match(rest);
    let listed = inside && regex!(r"(?:^|[^=\d.])\s*-?(?:\d+|[a-z]\s*=\s*-?\d+)\s*[,;]$").is_match(rest);
    let number = inside && regex!(r"(?:^|[\s=+*-])\d+$").is_match(rest);
    let grouped = regex!(r"[A-Za-z0-9]\($").is_match(rest);
    if sign || operator.is_match(rest) || touching || letter || listed || number || grouped {
        None
    } else {
        Some("")
    }
}

/// Words behind a value that make it another one.
const SCALES: &[&str] = &[
    "hundred", "thousand", "million", "billion", "trillion", "dozen", "dozens", "squared", "cubed",
    "factorial",
];

/// Reads the percent sign, base or unit behind a value. `tail` is the text behind it, and `inside` is true in a formula.
///
/// Returns `None` if an operation or another value follows.
fn trail(tail: &str, inside: bool) -> Option<String> {
    let closed = tail.trim_start_matches(['}', '*', ')']);
    let rest = closed.trim_start();
    let touches = rest.len() == closed.len();
    if rest.is_empty() || rest == "." || rest == "$" || rest == "$." {
        return Some(String::new());
    }
    if regex!(r"^\$?\s*(?:\\?%|(?:\\text\{\s*)?(?i:percent|pct)\b)").is_match(rest) {
        return Some("\\%".to_owned());
    }
    if regex!(r"^\$?\s*(?:\^\s*\{?\s*\\circ\s*\}?|°)\s*\}?[\s.,;$]*(?:[A-Z]?\b|$)").is_match(rest) {
        return Some("^\\circ".to_owned());
    }
    if let Some(found) = regex!(r"^_\{?([0-9]+)\}?").captures(rest) {
        return Some(format!("_{{{}}}", &found[1]));
    }
    if touches && rest.starts_with(['^', '_', '{', '\'']) || inside && rest.starts_with('!') {
        return None;
    }
    if let Some(equal) = rest.strip_prefix('=') {
        let value = equal.split(['$', '\n']).next().unwrap_or_default().trim().trim_end_matches('.');
        return Some(format!(" = {value}"));
    }
    const UNIT: &str = r"^(?:\\(?:text|mathrm|mbox|textrm)\s*\{\s*|\$\s*)?\\?\s*([A-Za-z]+(?:\s*/\s*[A-Za-z]+)?(?:\}?\^\{?[23]\}?)?)";
    if let Some(found) = regex!(UNIT).captures(rest) {
        let words = found.get(1).map_or("", |words| words.as_str());
        let word = words.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        let common = matches!(word, "in" | "am" | "second");
        if !common && (units::is_unit(word) || units::denominator(word).is_some() || SCALES.contains(&word)) {
            return Some(format!("\\text{{ {}}}", words.replace(['{', '}'], "")));
        }
        if !inside && touches && matches!(word, "m" | "g" | "s" | "h" | "l") {
            return Some(String::new());
        }
    }
    // In a formula, whatever else follows is a part of it; words are not.
    const SAYS_NOTHING: &str = concat!(
        r"^\\(?:text\w*|math(?:rm|bf|it|sf)|[mh]box|right|end|begin|Rightarrow|implies|Longrightarrow|iff|because|therefore|pmod|",
        r"phantom|[hv]space|nonumber|notag)\b"
    );
    let command = regex!(r"^\\[A-Za-z]").is_match(rest) && !regex!(SAYS_NOTHING).is_match(rest);
    let goes_on = regex!(
        r"^(?:\d{3}(?:\D|$)|\.\d|:\s*\$?-?\d|\\text\{\s*(?:and|or|to)\s*\}\s*[-\d\\]|\.\s+-?\d[\d.,]*\s*$)"
    )
    .is_match(rest)
        || touches && rest.starts_with(|c: char| c == '|' || c.is_numeric());
    if goes_on || command && (inside || touches) || inside && rest.starts_with('|') {
        return None;
    }
    let operation = if inside {
        regex!(
            r"^(?:[-+*/<>≤≥≠±×·÷^A-Za-z0-9]|[,;(]\s*[^\s}.]|\\(?:neq?|leq?|geq?|lt|gt|pm|mp|times|cdot|div|sqrt|frac|boxed|cup|cap|lor|vee|pi|[lc]?dots)\b)"
        )
    } else {
        regex!(
            r"^(?:[+*/<>≤≥≠±×·÷]\s*(?:[\d(]|\$\s*[\d(\\-])|[-–−]\s*(?:\d|\$\s*\d)|to\s+\$?-?\d|\\(?:times|cdot|div|pm|neq?|[lc]?dots)\b|(?:[,;]\s*(?:and\s+|or\s+)?|and\s+)\$?-?\d[\d.,]*\$?\s*(?:[.*]|$))"
        )
    };
    if operation.is_match(rest) || touches && rest.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    Some(String::new())
}

/// Whether the boxes around a text belong to one statement: no sentence ends between them, unless only a connective
/// joins them.
fn same_statement(between: &str) -> bool {
    const HEDGE: &str = r"(?i)(?:^|\PL)(?:or|alternatively|maybe|perhaps|possibly|either|else)(?:\PL|$)";
    const JOINED: &str = r"^\PL*(?:(?:(?i:and)|text|quad)(?:\PL+|$))*$";
    between.len() <= STATEMENT
        && (regex!(HEDGE).is_match(between)
            || regex!(JOINED).is_match(between)
            || !between.contains(['.', '!', '?', '\n']))
}

/// Whether the text around an answer offers another one: `or 6` behind it, `5 or` before it.
fn offers_another(before: &str, after: &str) -> bool {
    const MARKS: &[char] = &['$', ')', ']', '}', '\\', '*', ',', ';', '(', '[', '{'];
    const FILLING: &[&str] =
        &["maybe", "perhaps", "possibly", "even", "else", "it", "could", "be", "is", "also", "the", "answer"];
    let behind = after.trim_start_matches(|c: char| c.is_whitespace() || c == '.' || MARKS.contains(&c));
    let behind = ["text{", "textrm{", "mathrm{", "mbox{"]
        .iter()
        .find_map(|command| behind.strip_prefix(command))
        .unwrap_or(behind);
    let mut words = behind.split_whitespace().filter(|word| *word != "}");
    if words.next().is_some_and(|word| word.trim_matches([',', '}']).eq_ignore_ascii_case("or")) {
        let value = words.find(|word| !FILLING.contains(&word.trim_matches(',')));
        if value.is_some_and(starts_value) {
            return true;
        }
    }
    let head = before.trim_end_matches(|c: char| c.is_whitespace() || MARKS.contains(&c));
    let head = FILLING.iter().fold(head, |head, word| head.strip_suffix(word).map_or(head, str::trim_end));
    match head.strip_suffix("or") {
        Some(head) => {
            head.ends_with([' ', '$', '\n'])
                && head.trim_end().ends_with(|c: char| c.is_ascii_digit() || MARKS.contains(&c))
        }
        None => false,
    }
}

fn starts_value(word: &str) -> bool {
    let word = word.trim_start_matches(['*', '(', '}']);
    word.starts_with(['$', '\\']) || word.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit())
}

/// The line from a position on.
fn line_at(text: &str, from: usize) -> (usize, usize) {
    let length = text[from..].find('\n').unwrap_or(text.len() - from);
    (from, from + length)
}

/// Where the answer is that an "answer" ending at `end` announces: the rest of its line, or the next line.
fn announced(text: &str, end: usize) -> Option<(usize, usize)> {
    let (from, to) = line_at(text, end);
    let line = &text[from..to];
    let window = &line[..line.char_indices().nth(120).map_or(line.len(), |(at, _)| at)];
    let plain = window.trim_start_matches(['*', '_', 's', ' ']);
    let direct = window.len() - plain.len();
    let start = if let Some(rest) = plain.strip_prefix([':', '=']) {
        Some(window.len() - rest.len())
    } else {
        // `answer to the question is 5`, not what another sentence says.
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
        return Some((from + start, to));
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
            return Some((next, next + open.len() + length + close.len()));
        }
    }
    Some(line_at(text, next))
}

/// The answer in an announced part of the text.
fn segment_answer(text: &str, (from, to): (usize, usize), latex: bool, plain: bool) -> Option<Answer<'_>> {
    let segment = &text[from..to];
    let body = unwrapped(segment.trim().trim_matches(['*', '_', ':', ' ', '`']));
    let body = without_number(body);
    let offset = body.as_ptr() as usize - text.as_ptr() as usize;
    if latex && is_mathematics(body) && !body.is_empty() {
        let (before, after) = (&text[..offset], &text[offset + body.len()..]);
        return Some(Answer { hedged: is_refused(before, after), ..Answer::of(body) });
    }
    if latex && let Some(first) = first(segment, 0, segment.len(), &mut Ahead::default()) {
        // Words may come before a formula, but numbers don't.
        let before = &segment[..first.start];
        let after = segment[first.end..].trim_start_matches(|c: char| !c.is_alphanumeric());
        if is_turned(&text[..from + first.start], "") && after.starts_with("but ") {
            return segment_answer(text, (to - after.len(), to), latex, plain);
        }
        if !before.contains(|c: char| c.is_ascii_digit()) {
            return Some(formula(text, &first.found, from + first.start, from + first.end));
        }
    }
    if plain {
        let sentence = body.find(". ").map_or(body, |at| &body[..at]);
        let words = sentence.trim_end_matches('.');
        if latex && words.len() < 200 && words.contains(|c: char| c.is_ascii_digit()) {
            let start = words.trim_start_matches(|c: char| {
                !c.is_ascii_digit() && !matches!(c, '-' | '−' | '(' | '$' | '\\' | '.')
            });
            let plain = words[..words.len() - start.len()].split_whitespace().all(is_plain_word);
            let said = if start.len() < words.len() && plain { start } else { words };
            let place = offset + words.len() - said.len();
            let said = without_reason(said);
            let (before, after) = (&text[..place], &text[place + said.len()..]);
            return Some(Answer { hedged: is_refused(before, after), ..Answer::of(said) });
        }
        if words.contains(|c: char| c.is_numeric()) || normal_strict::is_spoken(words) {
            let hedged = is_refused(&text[..from], &text[offset + words.len()..]);
            return Some(Answer { hedged, ..Answer::of(without_reason(words)) });
        }
    }
    None
}

/// Whether the text around an answer without a box refuses it or offers another one.
fn is_refused(before: &str, after: &str) -> bool {
    is_denied(before, after, after) || is_supposed(before)
}

/// Whether the text around an answer denies it, gives it to somebody else, takes it back or offers another one. `behind` is
/// the text after the formula that the answer stands in.
fn is_denied(before: &str, after: &str, behind: &str) -> bool {
    offers_another(before, after) || is_turned(before, after) || is_disowned(before) || is_withdrawn(behind)
}

/// An answer without the mark or bracket that closes what was opened before it: `8*.`, `45)`.
fn unwrapped(text: &str) -> &str {
    let bare = text.trim_end_matches(['.', ' ']);
    let inside = bare.trim_end_matches(['*', '_', '`']);
    let inside = match inside.strip_suffix([')', ']']) {
        Some(inside) if !inside.contains(['(', '[', '\\']) => inside.trim_end_matches(['.', ' ']),
        _ => inside,
    };
    if inside.len() < bare.len() { inside } else { text }
}

/// A sentence without the clause behind a comma that gives a reason for the answer.
fn without_reason(words: &str) -> &str {
    const REASON: &str = r"(?i),?\s+\(?(?:since|because|as|which|so|where|given|by|using|hence|thus|therefore|that is why)\s.*$|[,;]\s+(?:for|with|we|the|it|this|and (?:we|the|so|this))\s.*$";
    regex!(REASON).find(words).map_or(words, |found| &words[..found.start()])
}

/// A formula without the number that it has in a list: `2. $x$`.
fn without_number(text: &str) -> &str {
    let behind = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let formula = behind.strip_prefix(". ").or_else(|| behind.strip_prefix(") ")).map(str::trim_start);
    formula.filter(|rest| behind.len() < text.len() && rest.starts_with(['$', '\\'])).unwrap_or(text)
}

/// A word that says nothing about the number after it.
fn is_plain_word(word: &str) -> bool {
    [
        "the", "is", "are", "exactly", "equal", "equals", "to", "just", "simply", "thus", "therefore", "a",
        "value", "number", "**",
    ]
    .contains(&word.to_ascii_lowercase().as_str())
}

fn formula<'a>(text: &'a str, found: &Found<'a>, start: usize, end: usize) -> Answer<'a> {
    let Found::Latex(parts) = found else { return Answer::default() };
    if let [(part, false)] = parts[..] {
        return attached(text, part, start, end);
    }
    let (before, after) = (&text[..start], &text[end..]);
    let parts = parts.iter().map(|(part, percent)| if *percent { with_percent(text, part) } else { part });
    let hedged = is_refused(before, after) || regex!(r"^\s+of\s+[$\\0-9]").is_match(after);
    Answer { parts: parts.map(Cow::Borrowed).collect(), hedged }
}

/// A formula with the percent sign behind its delimiter.
fn with_percent<'a>(text: &'a str, part: &'a str) -> &'a str {
    let from = part.as_ptr() as usize - text.as_ptr() as usize;
    let behind = &text[from + part.len()..];
    let length = behind
        .find(|c: char| c.is_whitespace() || matches!(c, '.' | ','))
        .unwrap_or(behind.len())
        .max(behind.find('%').map_or(0, |at| at + 1));
    &text[from..from + part.len() + length]
}

/// Whether a line is a formula and nothing else: words of prose don't occur outside of text commands.
fn is_mathematics(line: &str) -> bool {
    let line = line.trim().trim_matches(['*', '_', '`']).trim();
    if line.is_empty()
        || line.len() > 2_000
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
            // The group of a text command is no prose.
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
            || length == 2
                && ["is", "so", "we", "it", "to", "of", "be", "in", "by", "at", "as", "if", "no"]
                    .contains(&word.to_ascii_lowercase().as_str())
        {
            return false;
        }
    }
    line.contains(|c: char| c.is_alphanumeric())
}

/// The last formula or number of the text, whichever comes later.
fn last_formula(text: &str, latex: bool, plain: bool) -> Answer<'_> {
    let formulas = if latex { environments(text) } else { Vec::new() };
    let last = formulas.last();
    let floor = last.map_or(0, |formula| formula.end);
    if plain && let Some((start, end)) = last_number(text, floor) {
        // All of a quotient.
        let start = text[..start].trim_end_matches(|c: char| c.is_ascii_digit() || c == '/').len();
        let end = end + regex!(r"^/[0-9]+").find(&text[end..]).map_or(0, |below| below.end());
        let strange = regex!(r"[≠≥≤<>~±^_/≈][\s*$]*$").is_match(&text[..start])
            || regex!(r"^(?:[\^/?]|!=)").is_match(&text[end..]);
        let answer = attached(text, &text[start..end], start, end);
        return Answer { hedged: answer.hedged || strange, ..answer };
    }
    if let Some(last) = last { formula(text, &last.found, last.start, last.end) } else { Answer::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_statement_is_the_answer() {
        for (text, wanted, hedged) in [
            ("\\boxed{1} and then a long way to \\boxed{2}", &["1", "2"][..], false),
            ("\\boxed{1}. It is wrong. So \\boxed{2}", &["2"], false),
            ("\\boxed{1}. \\boxed{", &["1", ""], true),
            ("\\boxed{a \\boxed{b} c}", &["a \\boxed{b} c"], false),
            ("\\boxed {5} or 6", &["5"], true),
            ("5 or $\\boxed{6}$", &["6"], true),
            ("\\fbox{3}", &["3"], false),
            ("\\boxed 3.", &["3"], false),
            ("\\boxed{\\left\\{1\\right.}", &["\\left\\{1\\right."], false),
            ("The answer is $5$ not 6", &["5"], false),
            ("The answer is not $5$.", &["5"], true),
            ("It can't be $5$", &["5"], true),
            ("The answer is at least $5$.", &["5"], true),
            ("The answer is not $5$ but $6$.", &["6"], false),
            ("No more than 7 fit, so the answer is $5$.", &["$5$."], false),
            ("Is the answer $5$?", &["5"], true),
            ("Answer: 2. $x$", &["$x$"], false),
            ("**Answer:** 7 apples", &["7 apples"], false),
            ("## Answer\n\n\\[\nx^2\n\\]\n", &["\\[\nx^2\n\\]"], false),
            ("so $x=3$ and 4", &["4"], false),
            ("It is $5$ or $6$.", &["5", "6"], false),
            ("x^2+1", &["x^2+1"], false),
            ("nothing", &["nothing"], false),
            ("There is no formula and no number in this text", &[], false),
        ] {
            let answer = find(text, true, true);
            let parts: Vec<&str> = answer.parts.iter().map(|part| &**part).collect();
            assert_eq!((&parts[..], answer.hedged), (wanted, hedged), "{text}");
        }
    }
}
