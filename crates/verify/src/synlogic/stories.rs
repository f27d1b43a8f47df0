//! Tasks as stories: goods_exchange, web_of_lies, time_sequence, wordscapes.

use std::collections::{HashMap, HashSet};

use super::extract::{
    Listed, bracketed, last_group, listed, only, only_grid, only_statement, undressed, written,
};
use super::game::{self, Game};
use super::value::Value;
use super::{Error, Mode, Rules, correct, exact, json, python, unparsed, wrong};
use crate::finder::Candidate;
use crate::python_text::{regex, strip, words};
use crate::verdict::Outcome;

/// Rules for goods_exchange: the answer lists who owns what at the end of the story.
pub(crate) fn goods_exchange(game: &Game) -> Result<Rules, Error> {
    let owns = ownership(&game.text("owns_after")?);
    if owns.is_empty() {
        return Err(game.error("owns_after", "pairs of a person and a thing"));
    }
    let owns: Vec<_> = owns.into_iter().map(lowered).collect();
    Ok(Box::new(move |text, mode| {
        let found = match mode {
            Mode::Parity => {
                let answer = last_group(regex!(r"(?s)```python\s*\n(.*?)\n```"), text);
                let answer = answer.filter(|a| a.starts_with('(') && a.ends_with(')'));
                ownership(answer.ok_or(unparsed("no_tuple"))?)
            }
            Mode::Strict => {
                let pair = |line: &str| {
                    let pair = regex!(r"^\W*(\w[^:：|→]*?)[\s*]*(?:[:：|→]|[=-]>)[\s*]*(\w.*?)\W*$")
                        .captures(line)?;
                    Some((pair[1].to_owned(), pair[2].to_owned()))
                };
                let found = bracketed(text, plain_pairs);
                only(text, if found.is_empty() { written(text, owns.len(), pair) } else { found })?
            }
        };
        if found.is_empty() {
            return Err(unparsed("no_pairs"));
        }
        if found.len() != owns.len() {
            return Err(wrong("count"));
        }
        let found: HashMap<String, String> = found.into_iter().map(lowered).collect();
        Ok(exact(owns.iter().all(|(person, thing)| found.get(person) == Some(thing))))
    }))
}

fn lowered((person, thing): (String, String)) -> (String, String) {
    (person.to_lowercase(), thing.to_lowercase())
}

/// Strict mode: reads pairs of strings in brackets, with or without quotes.
fn plain_pairs(source: &str) -> Option<Vec<(String, String)>> {
    let pair = regex!(r"^\s*[(\[]([^()\[\],]+),([^()\[\],]+)[)\]]\s*(?:,|$)");
    let bare = |part: &str| strip(strip(part).trim_matches(['\'', '"'])).to_owned();
    let mut rest = &source[1..source.len() - 1];
    let mut pairs = Vec::new();
    while !strip(rest).is_empty() {
        let found = pair.captures(rest)?;
        pairs.push((bare(&found[1]), bare(&found[2])));
        rest = &rest[found[0].len()..];
    }
    (!pairs.is_empty()).then_some(pairs)
}

/// Reads pairs of a person and a thing: a Python tuple of tuples of strings, with or without quotes. If a person is
/// named twice, the first position and the last thing count.
fn ownership(text: &str) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    let text = strip(text);
    match python::evaluate(text) {
        Ok(Value::Tuple(items)) => {
            for item in &items {
                let Value::Tuple(pair) = item else { continue };
                let [person, thing] = pair.as_slice() else { continue };
                let (Some(person), Some(thing)) = (person.as_str(), thing.as_str()) else {
                    // Like the reference, continue with `by_hand`, and retain the pairs found so far.
                    by_hand(text, &mut pairs);
                    break;
                };
                pairs.push((strip(person).to_owned(), strip(thing).to_owned()));
            }
        }
        Ok(_) => {}
        Err(_) => by_hand(text, &mut pairs),
    }
    let last: HashMap<String, String> = pairs.iter().cloned().collect();
    let mut named = HashSet::new();
    pairs.retain(|(person, _)| named.insert(person.clone()));
    pairs.iter_mut().for_each(|(person, thing)| thing.clone_from(&last[&*person]));
    pairs
}

/// Reads pairs without evaluating them: splits at the outermost parentheses, and then at commas outside of quotes.
fn by_hand(text: &str, pairs: &mut Vec<(String, String)>) {
    let text = text.strip_prefix('(').unwrap_or(text);
    let text = text.strip_suffix(')').unwrap_or(text);
    let mut depth = 0_i64;
    let mut current = String::new();
    for c in text.chars() {
        match c {
            '(' => {
                depth += 1;
                current.push(c);
            }
            ')' => {
                depth -= 1;
                current.push(c);
                if depth == 0 {
                    pair_by_hand(&current, pairs);
                    current.clear();
                }
            }
            ',' if depth == 0 => {}
            c => current.push(c),
        }
    }
}

fn pair_by_hand(pair: &str, pairs: &mut Vec<(String, String)>) {
    let pair = strip(pair);
    let pair = pair.strip_prefix('(').unwrap_or(pair);
    let pair = pair.strip_suffix(')').unwrap_or(pair);
    let mut parts: Vec<String> = Vec::new();
    let mut quoted = false;
    let mut current = String::new();
    for c in pair.chars() {
        if (c == '"' || c == '\'') && !current.ends_with('\\') {
            quoted = !quoted;
        }
        if c == ',' && !quoted {
            parts.push(std::mem::take(&mut current));
        } else {
            current.push(c);
        }
    }
    if !current.is_empty() {
        parts.push(current);
    }
    let bare = |s: &str| strip(s).trim_matches(['\'', '"']).to_owned();
    if let [person, thing, ..] = parts.as_slice() {
        pairs.push((bare(person), bare(thing)));
    }
}

/// Rules for web_of_lies: the answer says for each question whether the person tells the truth.
/// Quirk: in parity mode yes and no count inside other words too ("know" contains "no"), in strict mode only as
/// words.
pub(crate) fn web_of_lies(game: &Game) -> Result<Rules, Error> {
    let wanted = truths(&game.answer_text()?.to_lowercase());
    Ok(Box::new(move |text, mode| {
        let found = match mode {
            Mode::Parity => truths(&truth_text(text).ok_or(unparsed("no_answer"))?.to_lowercase()),
            Mode::Strict => only_truths(text)?,
        };
        let same = found == wanted;
        Ok(if found.is_empty() && !same { unparsed("no_truths") } else { exact(same) })
    }))
}

fn truths(text: &str) -> Vec<bool> {
    let pattern = regex!(r"(yes|true|truth|是|真话|真)|(no|false|lie|否|假话|假|谎)");
    pattern.captures_iter(text).map(|c| c.get(1).is_some()).collect()
}

/// Strict mode: reads a list that consists only of yes and no.
fn plain_truths(text: &str) -> Option<Vec<bool>> {
    let lower = undressed(text).to_lowercase();
    let words = lower
        .split([',', '，', '、', ';', ' ', '\n', '[', ']'])
        .filter(|word| !word.is_empty() && *word != "and");
    // `1. yes`, and on the next line `2. no`
    let mut item = 1;
    let words = words.filter(|word| {
        let numbered = word.strip_suffix(['.', ')']) == Some(&*item.to_string());
        item += usize::from(numbered);
        !numbered
    });
    let truth = |word: &str| match word.trim_matches(['*', '"', '\'']) {
        "yes" | "true" | "是" | "真话" | "真" => Some(true),
        "no" | "false" | "不是" | "否" | "假话" | "假" => Some(false),
        _ => None,
    };
    words.map(truth).collect::<Option<Vec<_>>>().filter(|truths| !truths.is_empty())
}

/// Strict mode: reads the last list in bold type or, without bold lists, the last statement.
fn only_truths(text: &str) -> Result<Vec<bool>, Outcome> {
    if let Some(truths) = plain_truths(text) {
        return Ok(truths);
    }
    let bold = regex!(r"\*\*([^*]+)\*\*").captures_iter(text).filter_map(|c| {
        let list = match plain_truths(c.get(1)?.as_str())?.as_slice() {
            [truth] => Listed::Item(*truth),
            truths => Listed::List(truths.to_vec()),
        };
        Some(Candidate::new(c.get(0)?.range(), list))
    });
    let bold: Vec<_> = bold.collect();
    if bold.is_empty() {
        plain_truths(only_statement(text, |part| plain_truths(part).is_some())?).ok_or(unparsed("no_truths"))
    } else {
        listed(text, bold)
    }
}

/// Finds the answer: bold after "the answer is", bold or plain on the last line, or the last run of yes and no.
fn truth_text(text: &str) -> Option<String> {
    let owned = |m: regex::Match<'_>| strip(m.as_str()).to_owned();
    for pattern in [
        regex!(r"答案是[：:]\s*\*\*([^*]+)\*\*[.。]*\n?\z"),
        regex!(r"[Tt]he answer is[：:=]\s*\*\*([^*]+)\*\*[.。]*\n?\z"),
    ] {
        if let Some(found) = pattern.captures_iter(text).last() {
            return found.get(1).map(owned);
        }
    }
    let last_line = strip(strip(text).rsplit('\n').next().unwrap_or_default());
    if let Some(found) = regex!(r"\*\*([^*]+)\*\*").captures(last_line) {
        return found.get(1).map(owned);
    }
    if let Some(found) = regex!(r"(?:答案是|[Tt]he answer is)[：:=]?\s*(.*?)(?:[.。]|\z)").captures(last_line)
    {
        return found.get(1).map(owned);
    }
    let lower = text.to_lowercase();
    regex!(r"(?:\b(?:yes|no|是|否)\b[,，\s]*)+").find_iter(&lower).last().map(owned)
}

/// Rules for time_sequence: the answer is the length of the longest meeting, and the number of meetings of that length.
pub(crate) fn time_sequence(game: &Game) -> Result<Rules, Error> {
    let answers = game.field("records")?.get("answers");
    let field = |name: &str| answers.and_then(|a| a.get(name)).cloned();
    let wanted = field("answer_maxLen").zip(field("answer_nums"));
    let (longest, count) =
        wanted.ok_or_else(|| game.error("records", "answers with answer_maxLen and answer_nums"))?;
    Ok(Box::new(move |text, mode| {
        let list = match mode {
            Mode::Parity => {
                let found = regex!(r"(?s)\[.*?\]").find_iter(text).last();
                let value = found.and_then(|m| json::parse(&m.as_str().replace('，', ",")));
                value.ok_or(unparsed("no_list"))?
            }
            Mode::Strict => {
                let read = |source: &str| {
                    let value = python::plain(source).ok()?;
                    (value.as_list()?.len() == 2).then_some(value)
                };
                let found = bracketed(text, read);
                if found.is_empty() {
                    let listed = |part: &str| format!("[{}]", part.replace('，', ","));
                    let stated = only_statement(text, |part| read(&listed(part)).is_some())?;
                    read(&listed(&undressed(stated))).ok_or(unparsed("no_list"))?
                } else {
                    only(text, found)?
                }
            }
        };
        Ok(match list.as_list() {
            Some([first, second, ..]) => exact(*first == longest && *second == count),
            _ => wrong("shape"),
        })
    }))
}

/// Rules for wordscapes: crossing words fill a grid.
/// Quirk: in parity mode a word may be part of a longer run of letters and a cell may hold several; the first grid counts.
/// In strict mode each word must be a whole run, each cell one letter, and the last grid counts.
pub(crate) fn wordscapes(game: &Game) -> Result<Rules, Error> {
    // For each cell, whether it contains a letter, or `None` if unknown.
    let grid = game.grid("grid", "a grid of X and 0", |v| {
        Some(match v.as_str()? {
            "X" => Some(true),
            "0" => Some(false),
            _ => None,
        })
    })?;
    let list = |field: &'static str| game.list(field, "words", |v| game::cell(v).map(|w| w.to_lowercase()));
    let (across, down) = (list("across_words")?, list("down_words")?);
    Ok(Box::new(move |text, mode| {
        let cells = match mode {
            Mode::Parity => extract_cells(text).ok_or(unparsed("no_grid"))?,
            Mode::Strict => only_grid(text, (grid.len(), grid.first().map_or(0, Vec::len)), |cell| {
                let blank = cell.number() == Some(0);
                let letter = if blank { "0" } else { strip(cell.as_str()?) };
                (letter.chars().count() <= 1)
                    .then(|| if letter.is_empty() || letter == "0" { " " } else { letter }.to_owned())
            })?,
        };
        if cells.len() != grid.len() || cells.iter().zip(&grid).any(|(a, b)| a.len() != b.len()) {
            return Err(wrong("shape"));
        }
        for (cell, letter) in cells.iter().flatten().zip(grid.iter().flatten()) {
            let filled = !strip(cell).is_empty();
            if letter.is_some_and(|l| l != filled) {
                return Err(wrong("cells"));
            }
        }
        let width = cells.first().map_or(0, Vec::len);
        let column = |c: usize| cells.iter().filter_map(|row| row.get(c).cloned()).collect::<Vec<_>>();
        let columns: Vec<Vec<String>> = (0..width).map(column).collect();
        let has = |lines: &[String], word: &String| match mode {
            Mode::Parity => lines.iter().any(|line| line.contains(word.as_str())),
            Mode::Strict => lines.iter().any(|line| words(line).any(|run| run == word)),
        };
        let join = |line: &Vec<String>| {
            let line = line.concat().to_lowercase();
            if mode == Mode::Parity { line.replace(' ', "") } else { line }
        };
        let (rows, columns): (Vec<String>, Vec<String>) =
            (cells.iter().map(join).collect(), columns.iter().map(join).collect());
        Ok(if !across.iter().filter(|w| !w.is_empty()).all(|word| has(&rows, word)) {
            wrong("across")
        } else if !down.iter().filter(|w| !w.is_empty()).all(|word| has(&columns, word)) {
            wrong("down")
        } else {
            correct("rules")
        })
    }))
}

/// Reads the cells of the first grid.
fn extract_cells(text: &str) -> Option<Vec<Vec<String>>> {
    let text = match text.rfind("</think>") {
        Some(at) if text.contains("<think>") => &text[at + "</think>".len()..],
        _ => text,
    };
    let found = regex!(r"(?s)\[\s*\[(?:\s*\[)?(.+?)(?:\]\s*)?\]\s*\]").captures(text);
    let inner = found?.get(1)?.as_str();
    let mut rows = Vec::new();
    for row in regex!(r"\],\s*\[").split(inner) {
        let row = strip(row).trim_matches(['[', ']', ',']);
        let cell = |c: regex::Captures<'_>| {
            let text =
                (1..=3).filter_map(|i| c.get(i)).map(|m| m.as_str()).find(|t| !t.is_empty()).unwrap_or("");
            if text.is_empty() || text == "0" { " ".to_owned() } else { text.to_owned() }
        };
        let cells: Vec<String> =
            regex!(r#""([^"]*)"|'([^']*)'|([^,\s]+)"#).captures_iter(row).map(cell).collect();
        if !cells.is_empty() {
            rows.push(cells);
        }
    }
    (!rows.is_empty()).then_some(rows)
}
