//! Generators of bracket sequences.

use serde_json::json;

use super::{Draft, Source, values};

const PAIRS: [(char, char); 4] = [('(', ')'), ('[', ']'), ('{', '}'), ('<', '>')];

fn closing(open: char) -> char {
    PAIRS.iter().find(|p| p.0 == open).map_or(open, |p| p.1)
}

/// Makes a balanced sequence of `length` brackets.
fn balanced(length: usize, types: usize, source: &mut Source<'_>) -> String {
    let mut out = String::new();
    let mut stack = Vec::new();
    for at in 0..length {
        let must_close = stack.len() >= length - at;
        if must_close || (!stack.is_empty() && source.chance(2, 5)) {
            out.extend(stack.pop());
        } else {
            let (open, close) = PAIRS[source.below(types)];
            out.push(open);
            stack.push(close);
        }
    }
    out
}

fn types(difficulty: usize) -> usize {
    (2 + difficulty / 3).min(4)
}

fn kinds(types: usize) -> String {
    PAIRS[..types].iter().map(|(a, b)| format!("{a}{b}")).collect::<Vec<_>>().join(" ")
}

pub(crate) fn dyck_language(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let types = types(difficulty);
    let open_length = 6 + 3 * difficulty;
    let mut prefix = String::new();
    let mut stack = Vec::new();
    while prefix.len() < open_length || stack.is_empty() {
        if !stack.is_empty() && source.chance(2, 5) {
            prefix.extend(stack.pop());
        } else {
            let (open, close) = PAIRS[source.below(types)];
            prefix.push(open);
            stack.push(close);
        }
    }
    let fill: String = stack.iter().rev().collect();
    let full = format!("{prefix}{fill}");
    Some(Draft::plain(
        &full,
        values![kinds = kinds(types), prefix],
        json!({
            "full_sequence": full, "question_sequence": prefix, "n_types": types, "total_length": full.len(),
            "fill_length": fill.len(), "nesting_depth": 0,
        }),
    ))
}

/// Returns the position, counted from 1, of the first closing bracket that doesn't match the last open one, or the
/// position after the end if brackets stay open. `None` if the sequence is valid.
fn first_error(sequence: &[char]) -> Option<usize> {
    let mut stack = Vec::new();
    for (at, c) in sequence.iter().enumerate() {
        if PAIRS.iter().any(|p| p.0 == *c) {
            stack.push(closing(*c));
        } else if stack.pop() != Some(*c) {
            return Some(at + 1);
        }
    }
    (!stack.is_empty()).then_some(sequence.len() + 1)
}

pub(crate) fn dyck_language_errors(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let types = types(difficulty);
    // The sequence is so long that every position of the error is unlikely. One sequence in sixty is valid, and one
    // in sixty is correct except for open brackets at its end.
    let length = 40 + 4 * difficulty;
    let sequence: Vec<char> = match source.below(60) {
        0 => balanced(length, types, source).chars().collect(),
        kind => {
            let wrong_at = if kind == 1 { length } else { source.below(length) };
            let mut sequence = Vec::new();
            let mut open = Vec::new();
            for at in 0..length {
                let (opening, close) = PAIRS[source.below(types)];
                let bracket = match open.last() {
                    // At `wrong_at`, a closing bracket that doesn't fit. After it, any brackets.
                    last if at == wrong_at && last != Some(&close) => close,
                    Some(last) if at == wrong_at => PAIRS[..types].iter().map(|p| p.1).find(|c| c != last)?,
                    Some(last) if at < wrong_at && source.chance(2, 5) => *last,
                    _ if at > wrong_at && source.chance(1, 2) => close,
                    _ => opening,
                };
                if open.last() == Some(&bracket) {
                    open.pop();
                } else if bracket == opening {
                    open.push(close);
                }
                sequence.push(bracket);
            }
            sequence
        }
    };
    let error = first_error(&sequence);
    let text: String = sequence.iter().collect();
    let answer = error.map_or("-1".to_owned(), |at| at.to_string());
    let pairs: Vec<_> =
        PAIRS[..types].iter().map(|(a, b)| json!({"open": a.to_string(), "close": b.to_string()})).collect();
    Some(Draft::plain(
        &answer,
        values![kinds = kinds(types), text, end = sequence.len() + 1],
        json!({
            "bracket_string": text, "first_error_pos": error, "is_valid": error.is_none(), "n_types": types,
            "total_length": sequence.len(), "bracket_pairs": pairs,
        }),
    ))
}

pub(crate) fn dyck_language_reasoning_errors(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let types = types(difficulty);
    let sequence = balanced(12 + 2 * difficulty, types, source);
    let mut stack = String::new();
    let mut stacks = Vec::new();
    for c in sequence.chars() {
        if PAIRS.iter().any(|p| p.0 == c) {
            stack.push(c);
        } else {
            stack.pop();
        }
        stacks.push(stack.clone());
    }
    // Thoughts 1 and 2 open the walk; bracket i is thought i + 3.
    // At least two steps are wrong, so that every answer is unlikely. For a problem without wrong steps, the
    // reference's verifier would accept any text without digits.
    let count = 2 + source.below(1 + difficulty / 2);
    let mut errors: Vec<usize> = source.sample(&(0..stacks.len()).collect::<Vec<_>>(), count);
    errors.sort_unstable();
    for &at in &errors {
        let right = stacks[at].clone();
        let (open, close) = PAIRS[source.below(types)];
        let mut mistaken = right.clone();
        match source.below(3) {
            0 => mistaken.push(open),
            1 => mistaken.push(close),
            _ => {
                mistaken.pop();
            }
        }
        if mistaken == right {
            mistaken.push(open);
        }
        stacks[at] = mistaken;
    }
    let show = |stack: &String| if stack.is_empty() { "empty".to_owned() } else { stack.clone() };
    let mut thoughts = vec![
        "Thought 1: We go through the brackets one by one and keep a stack of those still open.".to_owned(),
        "Thought 2: stack: empty".to_owned(),
    ];
    for (at, (c, stack)) in sequence.chars().zip(&stacks).enumerate() {
        thoughts.push(format!("Thought {}: {c} ; stack: {}", at + 3, show(stack)));
    }
    thoughts
        .push(format!("Thought {}: That was the last bracket, and the stack is empty.", thoughts.len() + 1));
    let numbers: Vec<usize> = errors.iter().map(|at| at + 3).collect();
    let answer = numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    Some(Draft::plain(
        &answer,
        values![sequence, thoughts = thoughts.join("\n")],
        json!({
            "dyck_sequence": sequence, "thoughts": thoughts, "error_indices": numbers, "n_types": types,
            "total_length": sequence.len(), "n_errors": numbers.len(),
        }),
    ))
}
