//! Keywords as regular expressions: the bytes before the first NUL are the pattern, the rest is the response. Matching in linear
//! time and by backtracking must give the same result.
//!
//! `cargo +nightly fuzz run ifeval_pattern -- -max_total_time=660`
#![no_main]

use fgrpo_verify::ifeval::Verifier;
use fgrpo_verify::verdict::Verdict;
use libfuzzer_sys::fuzz_target;
use serde_json::json;

/// The verdict, or `None` if the pattern is refused or exceeds its budget.
fn verdict(pattern: &str, frequency: u32, response: &str) -> Option<Verdict> {
    let kwargs = json!({"keyword": pattern, "frequency": frequency, "relation": "at least"});
    let verifier = Verifier::new(&["keywords:frequency"], &[kwargs]).ok()?;
    let outcome = verifier.check(response);
    (outcome.reason != "budget").then_some(outcome.verdict)
}

fuzz_target!(|text: &str| {
    let (pattern, response) = text.split_once('\0').unwrap_or((text, "The cat sat, a1 _b\nééß İ"));
    for frequency in [1, 3] {
        let found = verdict(pattern, frequency, response);
        // The checker strips the keyword as Python does.
        let stripped =
            pattern.trim_matches(|c: char| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c));
        // A back-reference to an empty group only changes the method of matching.
        let by_backtracking = verdict(&format!("(?:{stripped})(?P<of_mine>)(?P=of_mine)"), frequency, response);
        if let (Some(found), Some(by_backtracking)) = (found, by_backtracking) {
            assert_eq!(found, by_backtracking, "{pattern:?} in {response:?}");
        }
    }
});
