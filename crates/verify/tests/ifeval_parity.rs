//! Agreement with the reference checkers (lm-eval with NLTK and langdetect) on GPT-4's responses
//! and on this project's cases.

use fgrpo_verify::ifeval::Verifier;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Number of labels compared and of equal labels, by instruction.
fn compare(file: &Path) -> BTreeMap<String, (usize, usize)> {
    let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let case: Value = serde_json::from_str(line).unwrap();
        let list = |name: &str| case[name].as_array().unwrap().clone();
        let ids: Vec<String> =
            list("instruction_id_list").iter().map(|v| v.as_str().unwrap().to_owned()).collect();
        let found = Verifier::new(&ids, &list("kwargs"))
            .unwrap_or_else(|e| panic!("{}: {e}", case["key"]))
            .check_both(case["response"].as_str().unwrap());
        for (how, found) in [("strict", &found.strict), ("loose", &found.loose)] {
            let wanted = list(how);
            for (i, id) in ids.iter().enumerate() {
                let count = counts.entry(id.clone()).or_default();
                count.0 += 1;
                let agree = found.get(i).copied() == wanted[i].as_bool();
                count.1 += usize::from(agree);
                if !agree {
                    println!(
                        "  {}: {id} {how}: found {:?}, reference {}; kwargs {}",
                        case["key"],
                        found.get(i),
                        wanted[i],
                        case["kwargs"][i]
                    );
                }
            }
        }
    }
    counts
}

fn report(name: &str, counts: &BTreeMap<String, (usize, usize)>) -> f64 {
    for (id, (all, equal)) in counts {
        println!("  {id:<45} {equal:>5} of {all}");
    }
    let all: usize = counts.values().map(|c| c.0).sum();
    let equal: usize = counts.values().map(|c| c.1).sum();
    let share = equal as f64 / all as f64;
    println!("ifeval {name}: {equal} of {all} labels agree ({:.2} %)", 100.0 * share);
    share
}

#[test]
#[ignore = "needs the public corpora: FGRPO_PARITY_DATA names their folder"]
fn labels_of_gpt4_responses_agree_with_the_reference() {
    let folder = std::env::var("FGRPO_PARITY_DATA").expect("FGRPO_PARITY_DATA names the corpora's folder");
    let counts = compare(&Path::new(&folder).join("verifiers/ifeval_gpt4.jsonl"));
    assert!(report("gpt4", &counts) >= 0.995);
}

#[test]
fn labels_of_our_own_awkward_cases_agree_with_the_reference() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/ifeval.jsonl");
    let counts = compare(&file);
    assert_eq!(report("own cases", &counts), 1.0);
    assert_eq!(counts.len(), 25, "every instruction type has cases");
}

/// `fixtures/ifbench.jsonl`: made by `peers/ifbench_reference.py`, see there for the versions.
#[test]
fn labels_of_responses_to_ifbenchs_constraints_agree_with_its_checkers() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/ifbench.jsonl");
    let counts = compare(&file);
    assert_eq!(report("ifbench", &counts), 1.0);
    assert_eq!(counts.len(), 57, "every constraint but that of the first verb has cases");
}

/// The same for a file of responses to IFBench's own prompts, which the script labels too, if `FGRPO_IFBENCH` names one.
#[test]
fn labels_of_responses_to_ifbenchs_prompts_agree_with_its_checkers() {
    if let Ok(file) = std::env::var("FGRPO_IFBENCH") {
        assert!(report("ifbench prompts", &compare(Path::new(&file))) >= 0.99);
    }
}

/// A constraint without labels: a verb at the beginning, found by a list and its regular endings.
#[test]
fn a_first_word_is_a_verb_by_its_form() {
    for (response, wanted) in [
        ("Imagine a city.", true),
        ("Conceive an empire.", true),
        ("running is fun", true),
        ("Stopped at noon.", true),
        ("Tries hard.", true),
        ("Lying down, he slept.", true),
        ("Was it you?", true),
        ("The city sleeps.", false),
        ("Sing-song voices", false),
        ("**Imagine** it", false),
        ("Sure! Write it down.", false),
        ("Quickly go.", false),
    ] {
        let verifier = Verifier::new(&["words:start_verb"], &[serde_json::json!({})]).unwrap();
        assert_eq!(verifier.check(response).is_correct(), wanted, "{response}");
    }
}

#[test]
fn arguments_that_ifbench_would_draw_at_random_or_fail_on_are_refused() {
    for (id, kwargs, part) in [
        ("count:numbers", "{}", "N: expected"),
        ("count:numbers", r#"{"N": -1}"#, "N: expected"),
        ("count:words_japanese", r#"{"N": 0}"#, "N: expected"),
        ("sentence:keyword", r#"{"N": 1.5, "word": "x"}"#, "N: expected"),
        ("repeat:repeat_span", r#"{"prompt_to_repeat": "x", "n_start": 0}"#, "n_end: expected"),
        ("count:keywords_multiple", r#"{"keyword1": "x"}"#, "keyword2: expected"),
        ("count:nothing", "{}", "IFBench's 58"),
    ] {
        let kwargs: Value = serde_json::from_str(kwargs).unwrap();
        let message = Verifier::new(&[id], &[kwargs]).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
}
