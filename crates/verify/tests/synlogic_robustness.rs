//! No response and no problem data makes a SynLogic verifier panic, hang or use unbounded memory: long adversarial
//! texts for every task, and random ones.
//! `cargo test --release -p fgrpo-verify --test synlogic_robustness -- --nocapture` prints the slowest.

use std::time::{Duration, Instant};

use fgrpo_verify::synlogic::{Mode, Options, Task, Verifier, generate, has_generator};
use proptest::prelude::*;

fn problems() -> Vec<(Task, String)> {
    let mut state = 0_u64;
    let mut random = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z ^ (z >> 31)
    };
    let by_hand = |task| {
        let answer = match task {
            Task::ArcAgi => "[[0, 1], [2, 3]]",
            Task::ZebraPuzzle => r#""{\"House 1\": {\"Name\": \"Eve\"}}""#,
            _ => "\"[[TEXT]]\"",
        };
        format!(r#"{{"question": "", "answer": {answer}, "difficulty": 1, "metadata": {{}}}}"#)
    };
    let one = |task| {
        let data = if has_generator(task) {
            generate(task, 2, 0, &mut random)
                .map(|made| made.game_data_str())
                .unwrap_or_else(|e| panic!("{e}"))
        } else {
            by_hand(task)
        };
        (task, data)
    };
    Task::ALL.into_iter().map(one).collect()
}

fn both_modes(verifier: &Verifier, response: &str) {
    for mode in [Mode::Parity, Mode::Strict] {
        verifier.check(response, &Options { mode, format_gate: false });
    }
    verifier.check(response, &Options { mode: Mode::Parity, format_gate: true });
}

#[test]
fn long_adversarial_responses_end() {
    const LENGTH: usize = 1 << 18;
    let fill = |unit: &str| unit.repeat(LENGTH / unit.len());
    let mut texts: Vec<String> = [
        "[",
        "(",
        "{",
        "[[",
        "]]",
        "((1,",
        "[[1,",
        "[[1 2,",
        "```python\n",
        "```python\n[[1]]\n```\n",
        "```",
        "\\boxed{",
        "}",
        "\\boxed{1}",
        "<think>",
        "</think>",
        "<answer>",
        "1",
        "9.99",
        "1 ",
        "1,",
        "1+",
        "1+1=2 ",
        "9**",
        "-",
        "not ",
        "(1,2),",
        "(1,2)(",
        "[(1,2),(3,4)],",
        "\"X\",",
        "[\"X\",",
        "['A','A'],",
        "yes, ",
        "yes no ",
        "答案是：**",
        "**a",
        "the answer is ",
        "\"",
        "'",
        "\\",
        "\n",
        " ",
        "\0",
        "是",
        "Row 1: 1 2 3\n",
        "第1行：1 2\n",
        "{\"a\":",
        "{1:2,",
        "*[1],",
        "a=b{",
        "[1,*",
        "if ",
    ]
    .into_iter()
    .map(fill)
    .collect();
    texts.push(format!("[[{}]]", fill("1 2,")));
    texts.push(format!("[{}[1]]", fill("[1, 2],")));
    texts.push(format!("```python\n{}\n```", fill("1+")));
    texts.push(format!("```python\n[[{}1]]\n```", fill("1,")));
    texts.push(format!("```python\n({}('a','b'))\n```", fill("('a','b'),")));
    texts.push(format!("```python\n({}(a,b))\n```", fill("(a,b),")));
    texts.push(format!("```json\n{{{}\"z\": 1}}\n```", fill("\"a\": 1,")));
    texts.push(format!(
        "```python\n{{{}1: 1}}\n```",
        (0..20_000).map(|i| format!("{i}: 1,")).collect::<String>()
    ));
    texts.push("[[9**9**9**9 = 1]]".to_owned());
    texts.push("```python\n9**9**9**9\n```".to_owned());
    texts.push(format!("[[{}1 = 1]]", "9**9999*".repeat(9999)));
    texts.push(format!("```python\n{}\n```", "[0]*1000 + ".repeat(9999)));
    let mut slowest: Vec<(Duration, Task, String)> = Vec::new();
    for (task, data) in problems() {
        let verifier = Verifier::parse(task, &data).unwrap_or_else(|e| panic!("{e}"));
        for text in &texts {
            let start = Instant::now();
            both_modes(&verifier, text);
            slowest.push((start.elapsed(), task, text.chars().take(24).collect()));
        }
    }
    slowest.sort_by_key(|(time, ..)| std::cmp::Reverse(*time));
    for (time, task, text) in slowest.iter().take(12) {
        println!("{time:>10.2?} for three checks of {} KiB: {task}: {text:?}...", LENGTH >> 10);
    }
}

#[test]
fn damaged_problems_are_refused_or_read_but_never_panic() {
    for (task, data) in problems() {
        let bytes = data.as_bytes();
        for cut in (0..bytes.len()).step_by(7) {
            let mut damaged = bytes.to_vec();
            match cut % 4 {
                0 => damaged.truncate(cut),
                1 => drop(damaged.drain(cut..(cut + 5).min(bytes.len()))),
                2 => damaged[cut] = b'9',
                _ => damaged.splice(cut..cut, *b"-1,[\"").for_each(drop),
            }
            if let Ok(verifier) = Verifier::parse(task, &String::from_utf8_lossy(&damaged)) {
                both_modes(&verifier, "[[1 2,2 1]] ```python\n[[1, 2], [2, 1]]\n``` \\boxed{1} (1,2)");
            }
        }
    }
}

/// Pieces of answers, so that random texts get past the extractors.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("```python\n".to_owned()),
        Just("\n```".to_owned()),
        Just("[[".to_owned()),
        Just("]]".to_owned()),
        Just("\\boxed{".to_owned()),
        Just("}".to_owned()),
        Just("(1,2)".to_owned()),
        Just("'X', ".to_owned()),
        Just("The answer is **".to_owned()),
        Just("{'A': [(1, 2)]}".to_owned()),
        Just("1 + 2 = 3".to_owned()),
        "[0-9XATC ,\\[\\](){}'\"*/%=+.:_-]{0,12}",
        "\\PC{0,6}",
    ];
    proptest::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn random_responses_never_panic(texts in proptest::collection::vec(pieces(), 4)) {
        for (task, data) in problems() {
            let verifier = Verifier::parse(task, &data).unwrap_or_else(|e| panic!("{e}"));
            for text in &texts {
                both_modes(&verifier, text);
            }
        }
    }
}
