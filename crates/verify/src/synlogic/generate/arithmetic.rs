//! Generators of arithmetic problems: cryptarithm, game_of_24, math_path, operation.

use std::collections::BTreeSet;

use serde_json::json;

use super::super::rational;
use super::{Draft, Source, python_block, values};

pub(crate) fn cryptarithm(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let length = 3 + difficulty / 3;
    let (low, high) = (10_i64.pow(length as u32 - 1), 10_i64.pow(length as u32) - 1);
    let a = source.range(low, high);
    let b = if source.chance(1, 2) { source.range(low, high) } else { source.range(low / 10, high / 10) };
    // A subtraction is an addition whose sum is written first.
    let minus = source.chance(difficulty, 20);
    let (first, second, third, operator) = if minus { (a + b, b, a, "-") } else { (a, b, a + b, "+") };
    let mut letters: Vec<char> = ('A'..='Z').collect();
    source.shuffle(&mut letters);
    let word = |n: i64| n.to_string().bytes().map(|d| letters[usize::from(d - b'0')]).collect::<String>();
    let words = [word(a), word(b), word(a + b)];
    // If the equation has several solutions, some letters are given as clues.
    let mut clues: Vec<(char, u8)> = (0..10_u8)
        .map(|d| (letters[usize::from(d)], d))
        .filter(|(letter, _)| words.iter().any(|w| w.contains(*letter)))
        .collect();
    source.shuffle(&mut clues);
    let needed = (0..=3).find(|n| count_sums(&words, &clues[..*n.min(&clues.len())]) == 1)?;
    let clues = &clues[..needed];
    let shown = format!("{} {operator} {} = {}", word(first), word(second), word(third));
    let given = clues.iter().map(|(letter, d)| format!("{letter} = {d}")).collect::<Vec<_>>().join(", ");
    let given = if clues.is_empty() { given } else { format!(" Given are {given}.") };
    let answer = format!("{first} {operator} {second} = {third}");
    Some(Draft {
        values: values![shown, given],
        metadata: json!({"words": [word(first), word(second), word(third)], "operators": [operator], "equation": shown}),
        solution: format!("The answer is {answer}"),
        answer: json!(answer),
    })
}

/// Counts the assignments of digits to letters that agree with the `clues` and satisfy `a + b = c`. Stops at 2.
fn count_sums(words: &[String; 3], clues: &[(char, u8)]) -> usize {
    struct Letter {
        /// Factor of this letter's digit in `a + b - c`.
        factor: i64,
        leading: bool,
        /// Power of ten that must divide the sum once this letter has a digit. All letters to the right of the next
        /// letter's first column are known by then, so `a + b - c` must be 0 in those columns.
        divisor: i64,
    }
    fn count(letters: &[Letter], used: u16, sum: i64) -> usize {
        let Some((letter, rest)) = letters.split_first() else { return usize::from(sum == 0) };
        let mut found = 0;
        for digit in i64::from(letter.leading)..10 {
            let sum = sum + letter.factor * digit;
            if found < 2 && used >> digit & 1 == 0 && sum % letter.divisor == 0 {
                found += count(rest, used | 1 << digit, sum);
            }
        }
        found
    }
    let places = |word: &String, letter: char| -> i64 {
        let places = word.chars().rev().zip(0..).filter(|(c, _)| *c == letter);
        places.map(|(_, place)| 10_i64.pow(place)).sum()
    };
    let [a, b, c] = words;
    let factor = |letter: char| places(a, letter) + places(b, letter) - places(c, letter);
    let column =
        |letter: &char| words.iter().filter_map(|w| w.chars().rev().position(|c| c == *letter)).min();
    let is_known = |letter: &char| clues.iter().any(|(known, _)| known == letter);
    let unknown: BTreeSet<char> = words.concat().chars().filter(|letter| !is_known(letter)).collect();
    let mut unknown: Vec<char> = unknown.into_iter().collect();
    unknown.sort_by_key(column);
    let letter = |(at, letter): (usize, &char)| Letter {
        factor: factor(*letter),
        leading: words.iter().any(|word| word.starts_with(*letter)),
        divisor: 10_i64.pow(unknown.get(at + 1).and_then(column).unwrap_or(0) as u32),
    };
    let letters: Vec<Letter> = unknown.iter().enumerate().map(letter).collect();
    let sum = clues.iter().map(|(letter, digit)| factor(*letter) * i64::from(*digit)).sum();
    count(&letters, clues.iter().fold(0, |used, (_, digit)| used | 1_u16 << *digit), sum)
}

pub(crate) fn game_of_24(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let count = 3 + difficulty.div_ceil(3).min(3);
    let most = 9 + difficulty as i64;
    // About one draw in some dozens has the value 24.
    for _ in 0..500 {
        let numbers: Vec<i64> = (0..count).map(|_| source.range(1, most)).collect();
        let (value, expression) = combine(&numbers, source)?;
        // Up to difficulty 5, the target is 24.
        if (difficulty <= 5 && value != 24) || !(1..=1000).contains(&value) {
            continue;
        }
        let list = numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
        return Some(Draft::solved(
            python_block(&expression),
            values![list, value],
            json!({
                "numbers": numbers, "operators": ["+", "-", "*", "/"], "result": value, "num_of_numbers": count,
                "solution": expression,
            }),
        ));
    }
    None
}

/// Builds an expression of `numbers` by combining two random parts at a time with an operator. Returns its integer value and its text.
fn combine(numbers: &[i64], source: &mut Source<'_>) -> Option<(i64, String)> {
    let mut parts: Vec<(i64, String)> = numbers.iter().map(|n| (*n, n.to_string())).collect();
    while parts.len() > 1 {
        let (a, left) = parts.swap_remove(source.below(parts.len()));
        let (b, right) = parts.swap_remove(source.below(parts.len()));
        let mut options = vec![(a + b, '+'), (a - b, '-'), (a * b, '*')];
        if b != 0 && a % b == 0 {
            options.push((a / b, '/'));
        }
        let (value, op) = source.pick(&options);
        parts.push((value, format!("({left} {op} {right})")));
    }
    let (value, expression) = parts.pop()?;
    let bare = expression.strip_prefix('(').and_then(|e| e.strip_suffix(')')).map(str::to_owned);
    Some((value, bare.unwrap_or(expression)))
}

/// Makes a random expression of small numbers. Returns its text without outer parentheses, and its precedence level: 0 a number, 1 a
/// product, 2 a sum.
fn expression(terms: usize, source: &mut Source<'_>) -> (String, u8) {
    if terms == 1 {
        return (source.range(1, 9).to_string(), 0);
    }
    let left_terms = 1 + source.below(terms - 1);
    let (left, right) = (expression(left_terms, source), expression(terms - left_terms, source));
    let op = source.pick(&["+", "-", "*", "*", "/", "%"]);
    let level = if op == "+" || op == "-" { 2 } else { 1 };
    let wrap = |(text, binds): (String, u8), tight: bool| {
        if binds > level || (tight && binds == level) { format!("({text})") } else { text }
    };
    (format!("{} {op} {}", wrap(left, false), wrap(right, true)), level)
}

pub(crate) fn math_path(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let (text, _) = expression(3 + difficulty / 2, source);
    let value = i64::try_from(rational::evaluate(&text).ok()?).ok().filter(|v| v.abs() < 100_000)?;
    let mut hides = |c: char| c.is_ascii_digit() && source.chance(5 + difficulty, 20);
    let query: String = text.chars().map(|c| if hides(c) { '?' } else { c }).collect();
    if query == text {
        return None;
    }
    let (reference, query) = (format!("{text} = {value}"), format!("{query} = {value}"));
    Some(Draft {
        values: values![query],
        metadata: json!({"ref_expr": reference, "query_expr": query, "n": 3 + difficulty / 2, "x_prob": 0.25}),
        solution: format!("[[{reference}]]"),
        answer: json!(reference),
    })
}

/// A rule `x OP y`: a linear form of x, y and their product.
#[derive(Clone)]
struct Form {
    x: i64,
    y: i64,
    xy: i64,
    constant: i64,
}

impl Form {
    fn random(source: &mut Source<'_>) -> Self {
        let xy = if source.chance(1, 3) { source.range(1, 2) } else { 0 };
        Self { x: source.range(1, 4), y: source.range(-3, 3), xy, constant: source.range(-5, 5) }
    }

    fn apply(&self, x: i64, y: i64) -> Option<i64> {
        let product = self.xy.checked_mul(x.checked_mul(y)?)?;
        let linear = self.x.checked_mul(x)?.checked_add(self.y.checked_mul(y)?)?;
        linear.checked_add(product)?.checked_add(self.constant)
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (factor, name) in [(self.x, "x"), (self.y, "y"), (self.xy, "x * y"), (self.constant, "")] {
            if factor == 0 {
                continue;
            }
            let sign = match (text.is_empty(), factor < 0) {
                (true, false) => "",
                (true, true) => "-",
                (false, false) => " + ",
                (false, true) => " - ",
            };
            let term = match (factor.abs(), name) {
                (n, "") => n.to_string(),
                (1, name) => name.to_owned(),
                (n, name) => format!("{n} * {name}"),
            };
            text += sign;
            text += &term;
        }
        text
    }
}

struct Operator {
    symbol: &'static str,
    form: Form,
    /// A condition in words and as code, and the form that applies if the condition holds.
    special: Option<(&'static str, Condition, Form)>,
}

type Condition = fn(i64, i64) -> bool;

const CONDITIONS: [(&str, Condition); 4] = [
    ("x is even", |x, _| x % 2 == 0),
    ("y is a multiple of 3", |_, y| y % 3 == 0),
    ("x is greater than y", |x, y| x > y),
    ("x + y is odd", |x, y| (x + y) % 2 != 0),
];

impl Operator {
    fn apply(&self, x: i64, y: i64) -> Option<i64> {
        match &self.special {
            Some((_, holds, form)) if holds(x, y) => form.apply(x, y),
            _ => self.form.apply(x, y),
        }
    }

    fn rule(&self) -> String {
        let s = self.symbol;
        match &self.special {
            Some((condition, _, form)) => {
                format!("x {s} y = {} where {condition}, and otherwise {}", form.text(), self.form.text())
            }
            None => format!("x {s} y = {}", self.form.text()),
        }
    }
}

pub(crate) fn operation(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let count = 1 + difficulty.div_ceil(4);
    let operators: Vec<Operator> = source
        .sample(&["△", "▽", "♡", "♢", "◇", "⊙"], count)
        .into_iter()
        .map(|symbol| Operator {
            symbol,
            form: Form::random(source),
            special: source.chance(difficulty, 14).then(|| {
                let (text, holds) = source.pick(&CONDITIONS);
                (text, holds, Form::random(source))
            }),
        })
        .collect();
    // The first operator binds tightest; equal ones group from the left.
    let terms = 3 + difficulty / 3;
    let mut values: Vec<i64> = (0..terms).map(|_| source.range(1, 9)).collect();
    let mut chain: Vec<usize> = (0..terms - 1).map(|_| source.below(count)).collect();
    let mut shown = values[0].to_string();
    for (op, value) in chain.iter().zip(&values[1..]) {
        shown += &format!(" {} {value}", operators[*op].symbol);
    }
    for (level, operator) in operators.iter().enumerate() {
        let mut at = 0;
        while at < chain.len() {
            if chain[at] == level {
                values[at] = operator.apply(values[at], values[at + 1]).filter(|v| v.abs() < 100_000_000)?;
                values.remove(at + 1);
                chain.remove(at);
            } else {
                at += 1;
            }
        }
    }
    let rules = operators.iter().map(Operator::rule).collect::<Vec<_>>().join(";\n");
    let order = operators.iter().map(|o| o.symbol).collect::<Vec<_>>().join(" before ");
    let order =
        if count == 1 { "Do".to_owned() } else { format!("Operations are done in the order {order};") };
    let answer = values[0];
    Some(Draft::boxed(
        answer,
        values![rules, order, shown],
        json!({"expression": shown, "symbol_definitions": rules, "result": answer}),
    ))
}
