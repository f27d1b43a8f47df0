//! No response and no problem data makes a SynLogic verifier panic, hang or use unbounded memory: long adversarial
//! strings for every task, and random ones.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use fgrpo_verify::synlogic::{Mode, Options, Task, Verifier};
use proptest::prelude::*;
use serde_json::Value;

use crate::problems::problems;

static PROBLEMS: LazyLock<Vec<(Task, String)>> =
    LazyLock::new(|| Task::ALL.into_iter().map(|task| (task, problems(task).swap_remove(0).data)).collect());

fn both_modes(verifier: &Verifier, response: &str) {
    for mode in [Mode::Parity, Mode::Strict] {
        verifier.check(response, &Options { mode, format_gate: false });
    }
    verifier.check(response, &Options { mode: Mode::Parity, format_gate: true });
}

#[test]
fn long_adversarial_responses_end() {
    const LENGTH: usize = 1 << 17;
    let fill = |unit: &str| unit.repeat(LENGTH / unit.len());
    let listed: Value =
        serde_json::from_str(include_str!("../fixtures/adversarial.json")).expect("a table of texts");
    let of = |form: &str| listed["synlogic"][form].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let framed = |parts: &Value| format!("{}{}{}", text(&parts[0]), fill(&text(&parts[1])), text(&parts[2]));
    let mut texts: Vec<String> = of("repeated").iter().map(|unit| fill(&text(unit))).collect();
    texts.extend(of("framed").iter().map(framed));
    texts.extend(of("fixed").iter().map(text));
    texts.push(format!(
        "```python\n{{{}1: 1}}\n```",
        (0..20_000).map(|i| format!("{i}: 1,")).collect::<String>()
    ));
    let mut slowest: Vec<(Duration, Task, String)> = Vec::new();
    for (task, data) in &*PROBLEMS {
        let verifier = Verifier::parse(*task, data).unwrap_or_else(|e| panic!("{e}"));
        for text in &texts {
            let start = Instant::now();
            both_modes(&verifier, text);
            slowest.push((start.elapsed(), *task, text.chars().take(24).collect()));
        }
    }
    slowest.sort_by_key(|(time, ..)| std::cmp::Reverse(*time));
    for (time, task, text) in slowest.iter().take(12) {
        println!("{time:>10.2?} for three checks of {} KiB: {task}: {text:?}...", LENGTH >> 10);
        // Linear time takes a quarter of a second, quadratic time several seconds or minutes.
        assert!(time.as_secs() < 4, "{task}: {text:?} takes {time:?}");
    }
}

#[test]
fn damaged_problems_are_refused_or_read_but_never_panic() {
    for (task, data) in &*PROBLEMS {
        let bytes = data.as_bytes();
        for cut in (0..bytes.len()).step_by(7) {
            let mut damaged = bytes.to_vec();
            match cut % 4 {
                0 => damaged.truncate(cut),
                1 => drop(damaged.drain(cut..(cut + 5).min(bytes.len()))),
                2 => damaged[cut] = b'9',
                _ => damaged.splice(cut..cut, *b"-1,[\"").for_each(drop),
            }
            if let Ok(verifier) = Verifier::parse(*task, &String::from_utf8_lossy(&damaged)) {
                both_modes(&verifier, "[[1 2,2 1]] ```python\n[[1, 2], [2, 1]]\n``` \\boxed{1} (1,2)");
            }
        }
    }
}

/// Pieces of answers, so that random strings get past the extractors.
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
        for (task, data) in &*PROBLEMS {
            let verifier = Verifier::parse(*task, data).unwrap_or_else(|e| panic!("{e}"));
            for text in &texts {
                both_modes(&verifier, text);
            }
        }
    }
}
