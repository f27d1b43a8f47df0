//! Agreement with the reference on our cases and on the corpora in `$FGRPO_PARITY_DATA/verifiers`, printed and asserted.
//!
//! `FGRPO_PARITY_DATA=.. cargo test --release -p fgrpo-verify --test math_parity -- --include-ignored --nocapture`
//! With `FGRPO_PARITY_LIST=1` it also prints the disagreements.

use std::collections::BTreeMap;
use std::path::PathBuf;

use fgrpo_verify::math::{MatchTypes, Options, Verifier};
use fgrpo_verify::verdict::Verdict;
use serde_json::Value;

fn rows(path: PathBuf) -> Vec<Value> {
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => panic!("{}: {error}", path.display()),
    };
    let rows =
        text.lines().filter(|line| !line.trim().is_empty()).map(|line| match serde_json::from_str(line) {
            Ok(row) => row,
            Err(error) => panic!("{}: {error} in {line}", path.display()),
        });
    rows.collect()
}

fn corpus(name: &str) -> Vec<Value> {
    let folder = std::env::var_os("FGRPO_PARITY_DATA").expect("FGRPO_PARITY_DATA names the corpora's folder");
    rows(PathBuf::from(folder).join("verifiers").join(name))
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_else(|| panic!("no text {key} in {row}"))
}

fn options(row: &Value) -> Options {
    let mut options = Options::default();
    if let Some(types) = row["match_types"].as_array() {
        let has = |name: &str| types.iter().any(|kind| kind == name);
        options.match_types = Some(MatchTypes { latex: has("latex"), expr: has("expr") });
    }
    if let Some(precision) = row["precision"].as_u64() {
        options.precision = precision as usize;
    }
    if let Some(strict) = row["strict"].as_bool() {
        options.strict = strict;
    }
    if let Some(allow) = row["allow_set_relation_comp"].as_bool() {
        options.allow_set_relation_comp = allow;
    }
    if let Some(priority) = row["boxed_match_priority"].as_i64() {
        options.boxed_match_priority = priority as i32;
    }
    options
}

/// Prints and returns the fraction of rows on which verdict and label agree.
fn agreement(name: &str, rows: &[Value], judge: impl Fn(&Value) -> (Verdict, bool)) -> f64 {
    let list = std::env::var_os("FGRPO_PARITY_LIST").is_some();
    let mut agreed = 0;
    let mut unscorable = 0;
    let mut by_kind: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for row in rows {
        let (verdict, wanted) = judge(row);
        let equal = (verdict == Verdict::Correct) == wanted;
        agreed += usize::from(equal);
        unscorable += usize::from(verdict == Verdict::Unscorable);
        let kind = row["variant"].as_str().unwrap_or("all").to_owned();
        let entry = by_kind.entry(kind).or_default();
        entry.0 += usize::from(equal);
        entry.1 += 1;
        if !equal && list {
            let shown = |key: &str| {
                let text = text(row, key).replace('\n', "\\n");
                let skipped = text.chars().count().saturating_sub(300);
                text.chars().skip(skipped).collect::<String>()
            };
            println!(
                "{name}\t{verdict:?}\twanted {wanted}\t{}\t{}\t{}",
                row["variant"],
                shown("gold"),
                shown("pred")
            );
        }
    }
    let share = agreed as f64 / rows.len() as f64;
    println!("{name}: {agreed} of {} agree ({:.2} %), {unscorable} unscorable", rows.len(), 100.0 * share);
    for (kind, (agreed, all)) in by_kind {
        if agreed < all {
            println!("  {kind}: {agreed} of {all}");
        }
    }
    share
}

#[test]
#[ignore = "needs the public corpora: FGRPO_PARITY_DATA names their folder"]
fn reference_suite_agrees_to_ninety_nine_percent() {
    let rows = corpus("math_verify_suite.jsonl");
    let share = agreement("math_verify_suite", &rows, |row| {
        let verifier = Verifier::new(text(row, "gold"), &options(row));
        (verifier.check(text(row, "pred")).verdict, row["math_verify"] == 1)
    });
    assert!(share >= 0.99, "{share}");
}

#[test]
#[ignore = "needs the public corpora: FGRPO_PARITY_DATA names their folder"]
fn labelled_pairs_agree_to_ninety_eight_percent() {
    let rows = corpus("math_pairs.jsonl");
    let share = agreement("math_pairs", &rows, |row| {
        let verifier = Verifier::new(text(row, "gold"), &options(row));
        (verifier.check(text(row, "pred")).verdict, row["expected"] == 1)
    });
    assert!(share >= 0.98, "{share}");
}

/// Answers with variations as in models' answers: boxes, units, words, spacing, equations, lists.
#[test]
#[ignore = "needs the public corpora: FGRPO_PARITY_DATA names their folder"]
fn natural_variants_agree_to_ninety_nine_point_three_percent() {
    let rows = corpus("math_natural.jsonl");
    let share = agreement("math_natural", &rows, |row| {
        let verifier = Verifier::new(text(row, "gold"), &options(row));
        (verifier.check(text(row, "pred")).verdict, row["expected"] == 1)
    });
    assert!(share >= 0.993, "{share}");
}

#[test]
#[ignore = "needs the public corpora: FGRPO_PARITY_DATA names their folder"]
fn other_suites_agree_with_the_reference() {
    let rows = corpus("math_other_suites.jsonl");
    let both = Options { match_types: Some(MatchTypes { latex: true, expr: true }), ..Options::default() };
    let share = agreement("math_other_suites", &rows, |row| {
        let verifier = Verifier::new(text(row, "mv_gold_input"), &both);
        (verifier.check(text(row, "mv_pred_input")).verdict, row["math_verify"] == 1)
    });
    assert!(share >= 0.97, "{share}");
}

/// `fixtures/math.jsonl`, made by `fixtures/label_math.py`, which names the versions.
#[test]
fn own_pairs_agree_with_the_reference_to_ninety_nine_percent() {
    let rows = rows(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/math.jsonl"));
    let share = agreement("math own cases", &rows, |row| {
        let verifier = Verifier::new(text(row, "gold"), &Options::default());
        (verifier.check(text(row, "pred")).verdict, row["expected"] == 1)
    });
    assert!(share >= 0.99, "{share}");
}
