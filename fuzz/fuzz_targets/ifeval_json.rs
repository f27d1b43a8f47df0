//! The recogniser of JSON as Python reads it. It must accept everything that serde_json accepts.
//!
//! `cargo +nightly fuzz run ifeval_json -- -max_total_time=660`
#![no_main]

use std::sync::LazyLock;

use fgrpo_verify::ifeval::Verifier;
use libfuzzer_sys::fuzz_target;
use serde::de::IgnoredAny;
use serde_json::json;

static PROBLEM: LazyLock<Option<Verifier>> =
    LazyLock::new(|| Verifier::new(&["detectable_format:json_format"], &[json!({})]).ok());

fuzz_target!(|text: &str| {
    let followed = PROBLEM.as_ref().expect("a known instruction").check(text).is_correct();
    // Python refuses longer integers.
    let digits = text.bytes().filter(u8::is_ascii_digit).count() <= 4300;
    if digits && serde_json::from_str::<IgnoredAny>(text).is_ok() {
        assert!(followed, "{text:?}");
    }
    for fenced in [format!("```json\n{text}\n```"), format!("```\n{text}```")] {
        PROBLEM.as_ref().expect("a known instruction").check_both(&fenced);
    }
});
