//! The engine of keywords as regular expressions: what stands before the first NUL is the pattern, the rest the response.
//! A pattern that remembers its failed states finds what the same pattern finds that cannot.
//!
//! `cargo +nightly fuzz run ifeval_pattern -- -max_total_time=660`
#![no_main]

use fgrpo_verify::ifeval::Verifier;
use fgrpo_verify::verdict::Verdict;
use libfuzzer_sys::fuzz_target;
use serde_json::json;

fn verdict(pattern: &str, frequency: u32, response: &str) -> Option<Verdict> {
    let kwargs = json!({"keyword": pattern, "frequency": frequency, "relation": "at least"});
    let verifier = Verifier::new(&["keywords:frequency"], &[kwargs]).ok()?;
    Some(verifier.check(response).verdict).filter(|verdict| *verdict != Verdict::Unscorable)
}

fuzz_target!(|text: &str| {
    let (pattern, response) = text.split_once('\0').unwrap_or((text, "The cat sat, a1 _b\nééß İ"));
    for frequency in [1, 3] {
        let found = verdict(pattern, frequency, response);
        // The checker strips the keyword as Python does.
        let stripped =
            pattern.trim_matches(|c: char| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c));
        // A back-reference to an empty group changes nothing but the way of working.
        let forgetful = verdict(&format!("(?:{stripped})(?P<of_mine>)(?P=of_mine)"), frequency, response);
        if let (Some(found), Some(forgetful)) = (found, forgetful) {
            assert_eq!(found, forgetful, "{pattern:?} in {response:?}");
        }
    }
});
