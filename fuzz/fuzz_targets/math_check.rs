//! Golds and responses of the mathematics verifier, in both modes: the bytes before the first NUL are the gold, the rest is the
//! response, which is also graded inside a box. Whether the verdict is unscorable must depend on the gold only.
//!
//! `cargo +nightly fuzz run math_check -- -max_total_time=660`
#![no_main]

use fgrpo_verify::math::{Mode, Options, Verifier};
use fgrpo_verify::verdict::Verdict;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let (gold, response) = text.split_once('\0').unwrap_or((&text, &text));
    for mode in [Mode::Parity, Mode::Strict] {
        let verifier = Verifier::new(gold, &Options { mode, ..Options::default() });
        let first = verifier.check(response);
        assert_eq!(first, verifier.check(response));
        let boxed = verifier.check(&format!("\\boxed{{{response}}}"));
        let gold_alone = verifier.is_too_expensive() || !verifier.is_parsed();
        for outcome in [&first, &boxed] {
            assert!(outcome.verdict != Verdict::Unscorable || gold_alone, "{gold} | {response}: {outcome:?}");
        }
    }
});
