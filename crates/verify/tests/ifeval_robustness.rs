//! IFEval's checkers on any string and any keyword: no panic, bounded work, and the same verdict twice.

use fgrpo_verify::ifeval::Verifier;
use fgrpo_verify::verdict::Verdict;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

/// IFBench's constraints with arguments of the fixture.
static IFBENCH: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/ifbench.jsonl");
    let text = std::fs::read_to_string(file).unwrap();
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    let of = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap();
        (row["instruction_id_list"][0].as_str().unwrap().to_owned(), row["kwargs"][0].clone())
    };
    rows.map(of).chain([("words:start_verb".to_owned(), json!({}))]).collect()
});

/// Every instruction type once.
fn everything(keyword: &str) -> Vec<(&'static str, Value)> {
    assert_eq!(IFBENCH.len(), 58);
    let ifbench = IFBENCH.iter().map(|(id, kwargs)| (&**id, kwargs.clone()));
    let mut all = vec![
        ("keywords:existence", json!({"keywords": [keyword, "the"]})),
        ("keywords:frequency", json!({"keyword": keyword, "frequency": 2, "relation": "at least"})),
        ("keywords:forbidden_words", json!({"forbidden_words": [keyword]})),
        (
            "keywords:letter_frequency",
            json!({"letter": "e", "let_frequency": 3, "let_relation": "less than"}),
        ),
        ("language:response_language", json!({"language": "de"})),
        ("length_constraints:number_sentences", json!({"num_sentences": 3, "relation": "at least"})),
        ("length_constraints:number_paragraphs", json!({"num_paragraphs": 2})),
        ("length_constraints:number_words", json!({"num_words": 5, "relation": "less than"})),
        (
            "length_constraints:nth_paragraph_first_word",
            json!({"num_paragraphs": 2, "nth_paragraph": 1, "first_word": "a"}),
        ),
        ("detectable_content:number_placeholders", json!({"num_placeholders": 1})),
        ("detectable_content:postscript", json!({"postscript_marker": "P.S."})),
        ("detectable_content:postscript", json!({"postscript_marker": keyword})),
        ("detectable_format:number_bullet_lists", json!({"num_bullets": 1})),
        ("detectable_format:constrained_response", json!({})),
        ("detectable_format:number_highlighted_sections", json!({"num_highlights": 1})),
        ("detectable_format:multiple_sections", json!({"section_spliter": keyword, "num_sections": 1})),
        ("detectable_format:json_format", json!({})),
        ("detectable_format:title", json!({})),
        ("combination:two_responses", json!({})),
        ("combination:repeat_prompt", json!({"prompt_to_repeat": keyword})),
        ("startend:end_checker", json!({"end_phrase": keyword})),
        ("startend:quotation", json!({})),
        (
            "change_case:capital_word_frequency",
            json!({"capital_frequency": 1, "capital_relation": "at least"}),
        ),
        ("change_case:english_capital", json!({})),
        ("change_case:english_lowercase", json!({})),
        ("punctuation:no_comma", json!({})),
    ];
    all.extend(ifbench);
    all
}

fn check_all(keyword: &str, response: &str) {
    for (id, kwargs) in everything(keyword) {
        let Ok(verifier) = Verifier::new(&[id], &[kwargs]) else { continue };
        let checked = verifier.check_both(response);
        assert_eq!(checked, verifier.check_both(response));
        assert_eq!(checked.outcome, verifier.check(response));
        // No response can exclude itself from its group.
        assert_ne!(checked.outcome.verdict, Verdict::Unscorable);
        // A response that follows an instruction strictly also follows it loosely.
        assert!(!checked.strict[0] || checked.loose[0]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_gets_a_verdict(response in "\\PC{0,200}|[ -~\n\r\t]{0,300}|[.?!\"'*\\[\\]<>{}`\n ,-]{0,200}") {
        check_all("the", &response);
    }

    #[test]
    fn any_bytes_get_a_verdict(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        check_all("a.b", &String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn any_keyword_is_refused_or_matched(
        keyword in "[ab.*+?|()\\[\\]{}^$\\\\0-9,:=!<>PidwsbB-]{1,24}|\\PC{1,20}",
        response in "[ab \n]{0,60}|\\PC{0,60}",
    ) {
        check_all(&keyword, &response);
    }
}

/// Number of cases per property; FGRPO_FUZZ_CASES sets another number.
fn cases() -> u32 {
    std::env::var("FGRPO_FUZZ_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(200)
}

#[test]
fn long_and_adversarial_responses_take_linear_work() {
    let n = 50_000;
    let repeated = |s: &str| s.repeat(n / s.len());
    for response in [
        repeated("a"),
        repeated("."),
        repeated(". "),
        repeated("! "),
        repeated("?!"),
        repeated("*"),
        repeated("* \n"),
        repeated("\n"),
        repeated(" "),
        repeated("["),
        repeated("[]"),
        repeated("-"),
        repeated("'"),
        repeated("\""),
        repeated("<<"),
        repeated("<<a>>\n"),
        repeated("{\"a\":"),
        repeated("p."),
        repeated("A."),
        repeated("\u{2019}"),
        repeated("`"),
        repeated(") "),
        repeated("a.b"),
        repeated("1,"),
        repeated("\\"),
        repeated("\u{0}"),
        repeated("***"),
        repeated("*a"),
        repeated("**a"),
        repeated("e.g. "),
        repeated("\u{1c}"),
        repeated("cannot "),
    ] {
        check_all("the", &response);
    }
}

#[test]
fn explosive_keywords_are_given_up_or_answered() {
    let response = "a".repeat(5_000) + "!";
    for keyword in [
        "(a+)+$",
        "(a|a)*b",
        "(a|aa)+$",
        "(a*)*b",
        "(.*)*x",
        "(a+)+\\1b",
        "(?=(a+))\\1b",
        "((a+)*)*c",
        "a{1,1000}b",
        "(?:a{1,50}){1,50}b",
        ".*.*.*.*.*.*b",
        "(?<=a)(?=a*b)",
        "(?:(?:(?:a*)*)*)*b",
        "(?>a+)+b",
        "(x?){500}b",
    ] {
        check_all(keyword, &response);
    }
}

fn check(id: &str, kwargs: Value, response: &str) -> (bool, bool) {
    let checked = Verifier::new(&[id], &[kwargs]).unwrap().check_both(response);
    (checked.strict[0], checked.loose[0])
}

#[test]
fn an_empty_response_follows_nothing() {
    assert_eq!(check("punctuation:no_comma", json!({}), " \n"), (false, false));
}

#[test]
fn loose_drops_lines_and_asterisks() {
    assert_eq!(check("startend:quotation", json!({}), "Sure:\n\"Yes.\""), (false, true));
    assert_eq!(check("startend:end_checker", json!({"end_phrase": "the end"}), "**The end**"), (false, true));
}

#[test]
fn an_outcome_names_the_first_instruction_not_followed() {
    let verifier = Verifier::new(
        &["punctuation:no_comma", "detectable_format:title"],
        &[json!({}), json!({"num_words": null})],
    )
    .unwrap();
    assert_eq!(verifier.check("no title here").reason, "detectable_format:title");
    assert!(verifier.check("<<A title>> and text").is_correct());
}

#[test]
fn what_the_reference_would_draw_at_random_is_refused() {
    let missing = Verifier::new(
        &["length_constraints:number_words"],
        &[json!({"num_words": 0, "relation": "at least"})],
    );
    assert_eq!(missing.unwrap_err().code(), "bad_arguments");
    let keyword = Verifier::new(&["keywords:existence"], &[json!({"keywords": ["a("]})]);
    assert_eq!(keyword.unwrap_err().code(), "bad_keyword");
    assert_eq!(Verifier::new(&["x:y"], &[json!({})]).unwrap_err().code(), "unknown_instruction");
}

#[test]
fn a_bullet_mark_may_stand_after_blank_lines() {
    let two = json!({"num_bullets": 2});
    assert!(check("detectable_format:number_bullet_lists", two.clone(), "\n\n  * a\n- b\n** c").0);
    assert!(!check("detectable_format:number_bullet_lists", two, "* a\n* b\n* c").0);
}

#[test]
fn double_stars_count_as_a_highlight_too() {
    assert!(
        check("detectable_format:number_highlighted_sections", json!({"num_highlights": 2}), "*a* **b** x").0
    );
}
