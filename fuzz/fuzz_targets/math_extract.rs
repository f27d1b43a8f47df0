//! Positions of answers in long responses, with every combination of the mathematics verifier's options. The first byte chooses
//! the options and the gold, the rest is the response.
//!
//! `cargo +nightly fuzz run math_extract -- -max_total_time=660`
#![no_main]

use std::sync::LazyLock;

use fgrpo_verify::math::{MatchTypes, Mode, Options, Verifier};
use libfuzzer_sys::fuzz_target;

const GOLDS: [&str; 4] = ["42", "\\frac{1}{2}", "\\{1, 2, x\\}", "x^2 < \\sqrt{3}"];

static PROBLEMS: LazyLock<Vec<Verifier>> = LazyLock::new(|| (0..=255).map(verifier).collect());

fn verifier(choice: u8) -> Verifier {
    let types = |latex, expr| Some(MatchTypes { latex, expr });
    let options = Options {
        mode: if choice & 1 == 0 { Mode::Parity } else { Mode::Strict },
        match_types: match choice >> 1 & 3 {
            0 => None,
            1 => types(true, false),
            2 => types(false, true),
            _ => types(true, true),
        },
        precision: if choice & 8 == 0 { 6 } else { 2 },
        strict: choice & 16 == 0,
        allow_set_relation_comp: choice & 32 != 0,
        percent_as_number: choice & 64 != 0,
        accept_unfinished: choice & 32 != 0,
        boxed_match_priority: i32::from(choice >> 6) * 100 - 50,
    };
    // A gold between dollars is found whatever notation is searched; without LaTeX it is a plain string.
    let gold = GOLDS[choice.count_ones() as usize % GOLDS.len()];
    let wrapped = format!("${gold}$");
    Verifier::new(if options.match_types.is_some() { &wrapped } else { gold }, &options)
}

fuzz_target!(|data: &[u8]| {
    let [choice, rest @ ..] = data else { return };
    let verifier = &PROBLEMS[usize::from(*choice)];
    let response = String::from_utf8_lossy(rest);
    assert_eq!(verifier.check(&response), verifier.check(&response));
});
