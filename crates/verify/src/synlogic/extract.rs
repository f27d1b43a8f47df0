//! Finding the answer in a response: the format gate, boxes, code blocks and values in brackets.

use std::borrow::Cow;
use std::ops::Range;

use dashu_int::IBig;

use super::value::{Value, sequences};
use super::{Mode, python, unparsed, wrong};
use crate::boxed::{self, trimmed};
use crate::finder::{self, Candidate, Marker, Reason, Statement};
use crate::python_text::{is_space, plain_int, regex, strip};
use crate::statement::{self, Pieces, is_decoration};
use crate::verdict::Outcome;

/// Whether a response has the required form: it starts with `<think>`, ends with `</answer>`, and contains each of the
/// four tags once. In strict mode the tags must also be in this order, and a variant of a tag (in another case, with
/// white space or attributes) counts as the tag.
pub fn passes_format_gate(response: &str, mode: Mode) -> bool {
    const TAGS: [&str; 4] = ["<think>", "</think>", "<answer>", "</answer>"];
    let tag = regex!(r"(?i)<\s*/?\s*(?:think|answer)(?:\s[^<>]*=[^<>]*)?\s*/?\s*>");
    response.starts_with("<think>")
        && response.ends_with("</answer>")
        && match mode {
            Mode::Parity => TAGS.iter().all(|tag| response.matches(tag).count() == 1),
            Mode::Strict => tag.find_iter(response).map(|m| m.as_str()).eq(TAGS),
        }
}

/// Returns the stripped content of the first `<answer>` after `</think>`, or else all the text after `</think>`.
pub fn answer_text(response: &str) -> &str {
    let rest = match response.split_once("</think>") {
        Some((_, rest)) => rest.split_once("</think>").map_or(rest, |(first, _)| first),
        None => response,
    };
    let answer = rest.split_once("<answer>").and_then(|(_, tail)| tail.split_once("</answer>"));
    answer.map_or(rest, |(answer, _)| strip(answer))
}

/// Returns the stripped content of the last `\boxed{`, up to the brace that closes it. `None` without a closed box.
pub fn last_boxed(text: &str) -> Option<&str> {
    let open = text.rfind("\\boxed{")? + "\\boxed".len();
    boxed::closing(text, open, b"{}").map(|end| strip(&text[open + 1..end]))
}

/// Returns the stripped content of the last `\boxed{`, up to the first `}`. `None` without a closed box.
pub fn last_boxed_simple(text: &str) -> Option<&str> {
    let start = text.rfind("\\boxed{")? + "\\boxed{".len();
    text[start..].split_once('}').map(|(content, _)| strip(content))
}

/// Strict mode: returns the content of the answer tags and the text after them or, without tags, all of `text` and "".
/// Fails if tags contain different answers, or the text after them takes the answer back.
pub(crate) fn stated(text: &str) -> Result<(&str, &str), Outcome> {
    let tagged = finder::marked(text, Marker::Tag);
    let Some(tag) = tagged.last() else { return Ok((text, "")) };
    let (end, answer) = (tag.place.end, strip(tag.value));
    if answer.contains("<answer>") || tagged.iter().any(|other| strip(other.value) != answer) {
        return Err(Reason::Several.into());
    }
    let behind = &text[end..];
    let first = regex!(r"^\W*(\w+)\W+\w").captures(behind);
    if first.is_some_and(|first| finder::offers_choice(&first[1])) {
        return Err(Reason::Several.into());
    }
    last(text, tagged).map(|_| (answer, behind)).map_err(Outcome::from)
}

/// Whether the text after the answer tags may contain another answer, so that it must be checked too.
pub(crate) fn may_state(behind: &str) -> bool {
    regex!(r"(?i)[\[({`\\0-9]|\b(?:answer|solution|or)\b|^[^\w]*\w+[^\w]*$").is_match(behind)
}

/// Returns the last answer found in a string, for strict mode. Fails if no answer was found, if different answers are adjacent
/// at the end, or if the text around the answer doesn't state it.
pub(crate) fn only<T: PartialEq>(text: &str, mut found: Vec<Candidate<T>>) -> Result<T, Outcome> {
    found.iter_mut().for_each(|candidate| candidate.place = whole(text, &candidate.place));
    // `A: [[1, 2]]`, and on the next line `B: [[2, 1]]`
    let labelled = |at: &Candidate<T>| {
        regex!(r"(?:^|\n)[ *]*(?:\pL|\d+)[ *]*[:.)][\s*]*$").is_match(&text[..at.place.start])
    };
    if let [.., first, second] = &found[..]
        && first.value != second.value
        && labelled(first)
        && labelled(second)
    {
        return Err(Reason::Several.into());
    }
    Ok(last(text, found)?.only()?)
}

fn last<T: PartialEq>(text: &str, found: Vec<Candidate<T>>) -> Result<Statement<T>, Reason> {
    const OTHER: &str = r"(?i)(?:^|\n|_)(?:bad|wrong|incorrect|invalid|original|initial|given|question|puzzle|input|old|draft|example|attempt|guess)\w*\s*=\s*$";
    finder::last(text, found, |_, place| {
        let before = &text[..place.start];
        let hidden = before.rfind("<!--") > before.rfind("-->");
        let named = &before[statement::low_end(before)..];
        (!hidden && !regex!(OTHER).is_match(named) && finder::states(text, place)).then_some(())
    })
}

/// Returns the range of a value, including a call around it, `np.array(..)`, or a line `print(result)` after it.
fn whole(text: &str, value: &Range<usize>) -> Range<usize> {
    const CALL: &str = r"(?:\b(?:\w+\.)?(?:array|matrix|Matrix|list|tuple|print)(\()?|(\\left\W))\s*$";
    let before = |end: usize| &text[statement::low_end(&text[..end])..end];
    let mut whole = value.clone();
    // `print(np.array(..))`
    for _ in 0..2 {
        let Some(call) = regex!(CALL).captures(before(whole.start)) else { break };
        let closed = regex!(r"^\s*(?:(?:,\s*dtype=[\w.]+\s*)?\)|\\right\W)").find(&text[whole.end..]);
        let opens = call.get(1).or(call.get(2)).is_some();
        if opens && closed.is_none() {
            break;
        }
        whole = whole.start - call[0].len()..whole.end + closed.filter(|_| opens).map_or(0, |end| end.end());
    }
    let name = regex!(r"(?:^|\n)(\w+)\s*=\s*$").captures(before(whole.start));
    let printed = regex!(r"^\s*print\((\w+)\)").captures(&text[whole.end..]);
    let same = name.zip(printed).filter(|(name, printed)| name[1] == printed[1]);
    whole.start..whole.end + same.map_or(0, |(_, printed)| printed[0].len())
}

/// Strict mode: returns the content of the last box, or an error if it isn't closed. `None` without boxes.
fn only_box(text: &str) -> Option<Result<&str, Outcome>> {
    let boxes = finder::marked(text, Marker::Box);
    let found = (!boxes.is_empty()).then(|| last(text, boxes))?;
    Some(match found {
        Err(Reason::Missing | Reason::Unclosed) => Err(unparsed("no_box")),
        found => found.and_then(Statement::only).map_err(Outcome::from),
    })
}

/// Strict mode: returns the content of the last box or, without boxes, a stated value that `is_value` accepts. Removes
/// markup around it and a final period.
pub(crate) fn only_boxed(text: &str, is_value: impl Fn(&str) -> bool) -> Result<String, Outcome> {
    if let Some(found) = only_box(text) {
        return found.map(undressed);
    }
    let stated = only_statement(text, |_| false).map(undressed);
    stated.ok().filter(|stated| is_value(stated)).ok_or(unparsed("no_box"))
}

/// Maximum length in bytes of a value after other words in its line. Without a limit, the search takes quadratic time.
const LONGEST: usize = 2_048;

/// Returns the longest sequence of words at the end of a line that is a value, without the marks around it.
fn end(text: &str, line: &Range<usize>, is_value: impl Fn(&str) -> bool) -> Option<Range<usize>> {
    let bare = text[line.clone()]
        .trim_end_matches(|c: char| is_space(c) || ".。!*`\"'$".contains(c) || is_decoration(c));
    let close = line.start + bare.len();
    let spaces = bare.bytes().enumerate().skip(bare.len().saturating_sub(LONGEST));
    let starts = spaces.filter(|(_, byte)| *byte == b' ').map(|(at, _)| line.start + at + 1);
    let unmarked = |from: usize| text[from..close].trim_start_matches(['*', '`', '"', '\'', '$']).len();
    let mut ends = [line.start].into_iter().chain(starts).map(|from| close - unmarked(from)..close);
    ends.find(|end| is_value(&text[end.clone()]))
}

/// Maximum number of values in a line that are tried, starting from the last one.
const MOST_WORDS: usize = 64;

/// Number of lines at the end of a response that are searched for a statement of the answer.
const LINES: usize = 5;

/// Strict mode: returns the stated answer of a task. It is the last code block, or else the last box, or else a value
/// at the end of one of the last lines, or else the last line, from the words "answer is" on.
pub(crate) fn only_statement(text: &str, is_value: impl Fn(&str) -> bool) -> Result<&str, Outcome> {
    let blocks = finder::marked(text, Marker::Block);
    if !blocks.is_empty() {
        return only(text, blocks.into_iter().map(|block| block.map(strip)).collect());
    }
    if let Some(found) = only_box(text) {
        return found;
    }
    let lines: Vec<Range<usize>> = finder::last_lines(text).take(LINES).collect();
    let end = |line: &Range<usize>| self::end(text, line, &is_value);
    let found = lines.iter().enumerate().find_map(|(at, line)| Some((at, end(line)?)));
    // `10 is what I get.`
    let inner = || {
        let line = lines.first()?;
        let words = regex!("[^ ]+").find_iter(&text[line.clone()]);
        let words = words.map(|word| line.start + word.start()..line.start + word.end());
        let words: Vec<_> = words.map(|word| trimmed(text, word, |c| ".,!*`\"'$".contains(c))).collect();
        let values = words.into_iter().rev().filter(|word| is_value(&text[word.clone()]));
        // A number of things, as in `12 correct brackets`, is another value.
        let counts = |word: &Range<usize>| {
            let next = regex!(r"^\W* (\pL+)").captures(&text[word.end..line.end]);
            next.is_some_and(|next| {
                !regex!("^(?:is|was|it|because|since|as|where|which|in)$").is_match(&next[1])
            })
        };
        values.take(MOST_WORDS).find(|word| !counts(word) && finder::states(text, word.clone()))
    };
    let found = found.or_else(|| Some((0, inner()?)));
    let at = found.as_ref().map_or(0, |(at, _)| *at);
    let Some(line) = lines.get(at) else { return Ok("") };
    let offers = regex!(r"(?i)^(?:or|another|an? (?:second|alternative))\b[^.]*$");
    let item = |line: &Range<usize>| regex!(r"^(?:[-*•]|\d+[.)])\s").is_match(&text[line.clone()]);
    let said = regex!(r"(?i)(?:answer(?: is)?\s*[:：]|answer is|答案是?\s*[:：]|答案是)");
    let statements: Vec<_> = said.find_iter(&text[line.clone()]).collect();
    let place = found.map_or_else(
        || {
            let start = line.start + statements.last().map_or(0, |found| found.end());
            trimmed(text, start..line.end, is_space)
        },
        |(_, end)| end,
    );
    let answer = &text[place.clone()];
    let above = lines.get(at + 1).is_some_and(|above| {
        let other = || item(line) && item(above) && end(above).is_some_and(|other| text[other] != *answer);
        offers.is_match(&text[above.clone()]) || other()
    });
    // An earlier statement on the same line ends before the words that announce the last one.
    let earlier = statements.windows(2).any(|two| {
        let between = text[line.start + two[0].end()..line.start + two[1].start()].trim_start();
        !between.starts_with(answer.trim_end_matches(['.', '。'])) && !statement::is_introduction(between)
    });
    if above || earlier {
        return Err(Reason::Several.into());
    }
    only(text, vec![Candidate::new(place, answer)])
}

/// Rewords a response to a task that asks for the true or, if `wrong_asked`, the wrong items: names of these items
/// become "answer", and names of the others "wrong answer". So `The wrong thoughts are 6` becomes `The answer are 6`.
pub(super) fn named_answers(text: &str, wrong_asked: bool) -> Cow<'_, str> {
    const THINGS: &str = "(?:ones?|options?|expressions?|statements?|thoughts?|steps?)";
    const KINDS: &str =
        "(?:(true|correct|right|valid)|(?:false|untrue|wrong|incorrect|invalid|erroneous|mistaken|faulty))";
    let named = regex!(&format!(
        r"(?i)\b(?:(?:first )?{KINDS} {THINGS}|{THINGS} (?:that|which) (?:is|are) {KINDS})\b"
    ));
    named.replace_all(text, |found: &regex::Captures<'_>| {
        let right = found.get(1).or(found.get(2)).is_some();
        if right == wrong_asked { "wrong answer" } else { "answer" }
    })
}

/// Reads a whole number with thousands separators and the name of the counted things: `2{,}079`, `22 \text{ coats}`.
pub(super) fn whole_number(text: &str) -> Option<IBig> {
    let found = regex!(r"^([-−+]?[0-9]+)((?:(?:,|\{,\}|\\,)[0-9]{3}\b)*)(.*)$").captures(strip(text))?;
    let digits = format!("{}{}", &found[1], found[2].replace(|c: char| !c.is_ascii_digit(), ""));
    let counted = Pieces::new().read(&found[3], false);
    plain_int(&digits).filter(|_| statement::is_ended(&counted, 0, &digits, false))
}

/// Removes markup around a statement, and its final period.
pub(crate) fn undressed(text: &str) -> String {
    let text = strip(text).trim_end_matches(['.', '。']);
    let text = text.strip_suffix("**").filter(|text| !text.contains("**")).unwrap_or(text);
    boxed::plain(text).trim_end_matches(['.', '。']).to_owned()
}

/// Returns the stripped first group of the pattern's last match.
pub(super) fn last_group<'a>(pattern: &regex::Regex, text: &'a str) -> Option<&'a str> {
    Some(strip(pattern.captures_iter(text).last()?.get(1)?.as_str()))
}

/// Returns the content of the first Python code block, with its white space.
pub(super) fn first_block(text: &str) -> Result<&str, Outcome> {
    let block = regex!(r"(?s)```python\s*\n(.*?)\n\s*```").captures(text).and_then(|c| c.get(1));
    block.map(|m| m.as_str()).ok_or(unparsed("no_code_block"))
}

/// Returns the grid if it has `n` rows of `m` cells, and an error otherwise.
pub(super) fn shaped<T>(grid: Vec<Vec<T>>, (n, m): (usize, usize)) -> Result<Vec<Vec<T>>, Outcome> {
    let fits = grid.len() == n && grid.iter().all(|row| row.len() == m);
    if fits { Ok(grid) } else { Err(wrong("shape")) }
}

/// Builds the regular expression of a list of lists of cells that match `cell`.
pub(super) fn grid_pattern(cell: &str) -> String {
    let row = format!(r"\[(?:\s*{cell}\s*,\s*)*\s*{cell}\s*\]\s*");
    format!(r"\[\s*{row}(?:,\s*{row})*\]")
}

/// Strict mode: returns the values in brackets that `read` accepts, in order. Of nested values only the outermost
/// counts. Brackets with more than four levels aren't read, so that the work is linear.
pub(crate) fn bracketed<T>(text: &str, read: impl Fn(&str) -> Option<T>) -> Vec<Candidate<T>> {
    // Open brackets: the position, the character, and the depth of the brackets inside.
    let mut open: Vec<(usize, u8, usize)> = Vec::new();
    let mut found: Vec<Candidate<T>> = Vec::new();
    for (at, byte) in text.bytes().enumerate() {
        let opening = match byte {
            b'[' | b'(' | b'{' => {
                open.push((at, byte, 0));
                continue;
            }
            b']' => b'[',
            b')' => b'(',
            b'}' => b'{',
            _ => continue,
        };
        let Some((start, _, depth)) = open.pop_if(|top| top.1 == opening) else { continue };
        if let Some(outer) = open.last_mut() {
            outer.2 = outer.2.max(depth + 1);
        }
        if depth < 4
            && let Some(value) = read(&text[start..=at])
        {
            while found.pop_if(|inner| inner.place.start > start).is_some() {}
            found.push(Candidate::new(start..at + 1, value));
        }
    }
    found
}

/// Strict mode: returns the last grid: nested lists as in Python or JSON, or as in `[[1 2,3 4]]` or, without such
/// lists, lines of cells. A grid smaller than three by three is skipped unless it has the given size, because it may be
/// a list of cells.
pub(crate) fn only_grid<T: PartialEq>(
    text: &str,
    size: (usize, usize),
    cell: impl Fn(&Value) -> Option<T>,
) -> Result<Vec<Vec<T>>, Outcome> {
    let word = |word: &str| {
        let number = plain_int(word).filter(|_| !word.starts_with('+'));
        number.map_or_else(|| Value::Str(word.to_owned()), Value::Int)
    };
    let bare_lists = |source: &str| -> Option<Vec<Vec<T>>> {
        let plain = regex!(r"\\(?:[ ,;:]|q?quad\b)").replace_all(source, " ");
        let inside = &regex!(r"^\[\s*\[([^\[\]]+(?:\]\s*,\s*\[[^\[\]]+)*)\]\s*,?\s*\]$").captures(&plain)?[1];
        let lists = inside.contains(']');
        let rows = if lists { regex!(r"\]\s*,\s*\[") } else { regex!(",") }.split(inside);
        let words = |row| words_of(row, |c| is_space(c) || lists && c == ',');
        rows.map(|row| words(row).map(|found| cell(&word(found))).collect()).collect()
    };
    let read = |source: &str| {
        let grid = match python::plain(source) {
            Ok(value) => sequences(&value, &cell),
            Err(_) => bare_lists(source),
        }?;
        let columns = grid.first()?.len();
        let alike = grid.iter().all(|row| row.len() == columns);
        (alike && ((grid.len(), columns) == size || grid.len().min(columns) >= 3)).then_some(grid)
    };
    let short = |found: &str| plain_int(found).is_some() || found.chars().count() < 2;
    let row = |line: &str| -> Option<Vec<T>> {
        let dress = regex!(
            r#"(?i)^\W*(?:row|line|r|zeile|ligne|fila|第|行)\s*\d+\s*行?\W{0,3}[:：]|^\d+[.):]\s|\\(?:left|right|text|mathrm|q?quad)\b|\\[ ,;]|[\[\](){}"'`*$]"#
        );
        let line = dress.replace_all(line, " ");
        let mut cells: Vec<&str> = words_of(&line, |c| is_space(c) || "|│┃&,;".contains(c)).collect();
        if let [run] = cells[..] {
            cells = run.split("").filter(|c| !c.is_empty()).collect();
        } else if cells.len() == size.1 + 1 && !short(cells[0]) && strip(&line).starts_with('|') {
            // The name of the row.
            cells.remove(0);
        } else if cells.len() < size.1 {
            cells = strip(&line).trim_matches('|').split('|').map(strip).collect();
        }
        let fits = cells.len() == size.1 && cells.iter().copied().all(short);
        if fits { cells.into_iter().map(|found| cell(&word(found))).collect() } else { None }
    };
    let found = bracketed(text, read);
    // A list that is cut off isn't rows.
    let closes = |rows: &Candidate<_>| {
        let (before, rows) = (text[..rows.place.start].trim_end(), &text[rows.place.clone()]);
        let opens = before.ends_with(['[', '(']) && !regex!(r"\\(?:left)?\W$").is_match(before);
        !opens && rows.matches('[').count() == rows.matches(']').count()
    };
    let in_lines = || written(text, size.0, row).into_iter().filter(closes).collect();
    let found = if found.is_empty() { in_lines() } else { found };
    shaped(only(text, found)?, size)
}

/// Returns the parts of a string between separators that aren't empty.
fn words_of(text: &str, separates: impl Fn(char) -> bool) -> impl Iterator<Item = &str> {
    text.split(separates).filter(|word| !word.is_empty())
}

/// Finds every sequence of exactly `n` adjacent lines that `row` can read, as in a table, a matrix or a list. A table's
/// head and the lines that only draw its borders don't count.
pub(crate) fn written<R>(text: &str, n: usize, row: impl Fn(&str) -> Option<R>) -> Vec<Candidate<Vec<R>>> {
    let ends = regex!(r"\n|(?:[ \t]*(?:\\\\|\\begin\{\w+\*?\}(?:\{[^{}]*\})?|\\hline)\s*)+|\\end\{\w+\*?\}");
    let ends =
        ends.find_iter(text).map(|end| end.range()).chain(std::iter::repeat_n(text.len()..text.len(), 2));
    let mut found = Vec::new();
    let (mut place, mut rows, mut headed, mut last) = (None::<Range<usize>>, Vec::new(), false, 0..0);
    // An empty line ends the last rows.
    for end in ends {
        let line = trimmed(text, last.end..end.start, char::is_whitespace);
        let begin = text[last.clone()].find("\\begin").map_or(line.start, |at| last.start + at);
        let close = if text[end.clone()].starts_with("\\end") { end.end } else { line.end };
        last = end;
        let said = &text[line.clone()];
        let drawn = !said.is_empty()
            && said.chars().all(|c| " |+-:=".contains(c) || ('\u{2500}'..='\u{257f}').contains(&c));
        let read = if drawn { None } else { row(said) };
        if drawn || read.is_some() {
            place.get_or_insert(begin..close).end = close;
            headed |= drawn && rows.len() == 1;
            rows.extend(read);
            continue;
        }
        let head = usize::from(headed && rows.len() == n + 1);
        if rows.len() == n + head
            && let Some(place) = place
        {
            found.push(Candidate::new(place, rows.split_off(head)));
        }
        rows.clear();
        headed = false;
        place = said.starts_with('|').then_some(line.clone());
        // `The answer is 1 2 3`, and the other rows below it
        let words = regex!(r"^.*(?:\pL{2,}|[:：])\W*?\s")
            .find(said)
            .map_or(line.end, |words| line.start + words.end());
        if let Some(first) = row(&text[words..line.end]) {
            (place, rows) = (Some(words..line.end), vec![first]);
        }
    }
    found
}

/// Returns the grid in an answer, or an error unless it has the given size. Strict mode takes the last grid, parity
/// mode the grid that `lenient` reads.
pub(crate) fn grid<T: PartialEq>(
    text: &str,
    mode: Mode,
    size: (usize, usize),
    cell: impl Fn(&Value) -> Option<T>,
    lenient: impl FnOnce() -> Result<Vec<Vec<T>>, Outcome>,
) -> Result<Vec<Vec<T>>, Outcome> {
    match mode {
        Mode::Parity => shaped(lenient()?, size),
        Mode::Strict => only_grid(text, size, cell),
    }
}

/// Strict mode: returns the last list of items, in brackets or as adjacent items.
pub(crate) fn only_list<T: PartialEq>(
    text: &str,
    item: impl Fn(&Value) -> Option<T>,
) -> Result<Vec<T>, Outcome> {
    let read = |source: &str| {
        let value = python::plain(source).ok()?;
        match item(&value) {
            Some(item) => Some(Listed::Item(item)),
            None => value.as_sequence()?.iter().map(&item).collect::<Option<_>>().map(Listed::List),
        }
    };
    listed(text, bracketed(text, read))
}

/// A list, or an item outside of a list.
#[derive(PartialEq)]
pub(crate) enum Listed<T> {
    Item(T),
    List(Vec<T>),
}

/// Strict mode: returns the last list, or the last adjacent items.
pub(crate) fn listed<T: PartialEq>(text: &str, found: Vec<Candidate<Listed<T>>>) -> Result<Vec<T>, Outcome> {
    let statement = last(text, found)?;
    if statement.values.iter().all(|value| matches!(value, Listed::Item(_))) {
        if text[..statement.place.start].trim_end_matches(is_space).ends_with(['[', '(']) {
            return Err(unparsed("unclosed"));
        }
        if !statement.alternatives {
            let item = |value| if let Listed::Item(item) = value { Some(item) } else { None };
            return Ok(statement.values.into_iter().filter_map(item).collect());
        }
    }
    Ok(match statement.only()? {
        Listed::Item(item) => vec![item],
        Listed::List(list) => list,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_wants_each_tag_once_and_in_its_place() {
        let both = |response| [Mode::Parity, Mode::Strict].map(|mode| passes_format_gate(response, mode));
        assert_eq!(both("<think>a</think><answer>b</answer>"), [true, true]);
        for bad in [
            "",
            "a<think></think><answer></answer>",
            "<think></think><answer></answer> ",
            "<think></think><answer></answer><answer></answer>",
            "<think><think></think><answer></answer>",
            "<think></think></answer>",
        ] {
            assert_eq!(both(bad), [false, false], "{bad}");
        }
        for (quirk, strict) in [
            ("<think><answer></think>SOLUTION</answer>", false),
            ("<think><answer>SOLUTION</think></answer>", false),
            ("<think>a</think><Answer>b</Answer><answer>c</answer>", false),
            ("<think>a</think><answer >b</answer ><answer>c</answer>", false),
            ("<think>a</think>< answer>b< /answer><answer>c</answer>", false),
            ("<think>a</think><answer id=\"1\">b<answer>c</answer>", false),
            ("<think>a<THINK></think><answer>c</answer>", false),
            ("<think>a < b and think > c</think>\nSo <answer>c</answer>", true),
            ("<think></think><answer></answer>", true),
        ] {
            assert_eq!(both(quirk), [true, strict], "{quirk}");
        }
    }

    #[test]
    fn the_answer_is_read_after_the_thinking() {
        assert_eq!(answer_text("<think><answer>no</answer></think> <answer> yes </answer>"), "yes");
        assert_eq!(answer_text("<think>x</think> bare"), " bare");
        assert_eq!(answer_text("<answer>a</answer><answer>b</answer>"), "a");
    }

    #[test]
    fn boxes_balance_their_braces_or_stop_at_the_first() {
        let text = r"\boxed{a} then \boxed{ \text{b}, {c} } end";
        assert_eq!(last_boxed(text), Some(r"\text{b}, {c}"));
        assert_eq!(last_boxed_simple(text), Some(r"\text{b"));
        assert_eq!(last_boxed(r"\boxed{a"), None);
        assert_eq!(last_boxed_simple("none"), None);
    }
}
