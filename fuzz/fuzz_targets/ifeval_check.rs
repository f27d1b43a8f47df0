//! Every IFEval instruction type on any response. The first byte chooses the instruction; the bytes up to the first NUL are
//! its string argument (a keyword, a phrase, a marker), and the rest is the response.
//!
//! `cargo +nightly fuzz run ifeval_check -- -max_total_time=660`
#![no_main]

use fgrpo_verify::ifeval::Verifier;
use fgrpo_verify::verdict::Verdict;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

fn instruction(choice: u8, text: &str) -> (&'static str, Value) {
    let relation = if choice & 128 == 0 { "at least" } else { "less than" };
    let n = 1 + u32::from(choice >> 5 & 3);
    match choice % 26 {
        0 => ("keywords:existence", json!({"keywords": [text, "the"]})),
        1 => ("keywords:frequency", json!({"keyword": text, "frequency": n, "relation": relation})),
        2 => ("keywords:forbidden_words", json!({"forbidden_words": [text]})),
        3 => (
            "keywords:letter_frequency",
            json!({"letter": text.chars().next().map(String::from), "let_frequency": n, "let_relation": relation}),
        ),
        4 => ("language:response_language", json!({"language": if n == 1 { "en" } else { text }})),
        5 => ("length_constraints:number_sentences", json!({"num_sentences": n, "relation": relation})),
        6 => ("length_constraints:number_paragraphs", json!({"num_paragraphs": n})),
        7 => ("length_constraints:number_words", json!({"num_words": n, "relation": relation})),
        8 => (
            "length_constraints:nth_paragraph_first_word",
            json!({"num_paragraphs": n, "nth_paragraph": 1 + n / 3, "first_word": text}),
        ),
        9 => ("detectable_content:number_placeholders", json!({"num_placeholders": n})),
        10 => (
            "detectable_content:postscript",
            json!({"postscript_marker": if n == 1 { "P.S." } else { "P.P.S" }}),
        ),
        11 => ("detectable_content:postscript", json!({"postscript_marker": text})),
        12 => ("detectable_format:number_bullet_lists", json!({"num_bullets": n})),
        13 => ("detectable_format:constrained_response", json!({})),
        14 => ("detectable_format:number_highlighted_sections", json!({"num_highlights": n})),
        15 => ("detectable_format:multiple_sections", json!({"section_spliter": text, "num_sections": n})),
        16 => ("detectable_format:json_format", json!({})),
        17 => ("detectable_format:title", json!({})),
        18 => ("combination:two_responses", json!({})),
        19 => ("combination:repeat_prompt", json!({"prompt_to_repeat": text})),
        20 => ("startend:end_checker", json!({"end_phrase": text})),
        21 => ("startend:quotation", json!({})),
        22 => (
            "change_case:capital_word_frequency",
            json!({"capital_frequency": n, "capital_relation": relation}),
        ),
        23 => ("change_case:english_capital", json!({})),
        24 => ("change_case:english_lowercase", json!({})),
        _ => ("punctuation:no_comma", json!({})),
    }
}

/// Loads the language profiles once, because that is slow under a sanitizer.
fn read_profiles() {
    let (id, kwargs) = instruction(4, "en");
    Verifier::new(&[id], &[kwargs]).expect("sound arguments").check("A sentence in English.");
}

fuzz_target!(init: read_profiles(), |data: &[u8]| {
    let [choice, rest @ ..] = data else { return };
    let text = String::from_utf8_lossy(rest);
    let (argument, response) = text.split_once('\0').unwrap_or(("the", &text));
    let (id, kwargs) = instruction(*choice, argument);
    let Ok(verifier) = Verifier::new(&[id], &[kwargs]) else { return };
    let checked = verifier.check_both(response);
    assert_eq!(checked.outcome, verifier.check(response));
    if checked.outcome.verdict == Verdict::Unscorable {
        assert_eq!(checked.outcome.reason, "budget");
    } else {
        // A response that follows the instruction strictly also follows it loosely.
        assert!(!checked.strict[0] || checked.loose[0]);
    }
});
