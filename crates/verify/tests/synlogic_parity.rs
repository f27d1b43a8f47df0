//! Agreement with the Python reference, by task: `cargo test --release -p fgrpo-verify --test synlogic_parity -- --include-ignored --nocapture`.
//!
//! Reads `$FGRPO_PARITY_DATA/verifiers/synlogic.jsonl` and this repository's fixtures.

use std::collections::BTreeMap;
use std::path::Path;

use fgrpo_verify::synlogic::{Options, check};
use fgrpo_verify::verdict::Verdict;
use serde_json::Value;

struct Agreement {
    cases: usize,
    positives: usize,
    agreed: usize,
}

struct Case {
    line: usize,
    task: String,
    game_data_str: String,
    response: String,
    expected: bool,
}

fn lines(path: &Path) -> Vec<(usize, Value)> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let value = |(at, line): (usize, &str)| {
        (
            at + 1,
            serde_json::from_str(line).unwrap_or_else(|e| panic!("{}: line {}: {e}", path.display(), at + 1)),
        )
    };
    text.lines().enumerate().filter(|(_, line)| !line.is_empty()).map(value).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// One case per line, as in the corpus.
fn corpus(path: &Path) -> Vec<Case> {
    let case = |(line, v): (usize, Value)| Case {
        line,
        task: text(&v["task"]),
        game_data_str: text(&v["game_data_str"]),
        response: text(&v["response"]),
        expected: v["expected"].as_i64() == Some(1),
    };
    lines(path).into_iter().map(case).collect()
}

/// One problem per line with its cases; the first line names script and versions.
fn fixture(path: &Path) -> Vec<Case> {
    let mut cases = Vec::new();
    for (line, v) in lines(path).into_iter().skip(1) {
        for case in v["cases"].as_array().unwrap_or_else(|| panic!("line {line}: no cases")) {
            cases.push(Case {
                line,
                task: text(&v["task"]),
                game_data_str: text(&v["game_data_str"]),
                response: text(&case[0]),
                expected: case[1].as_i64() == Some(1),
            });
        }
    }
    cases
}

/// Prints the agreement per task and returns it with the disagreements.
fn agreement(path: &Path, cases: &[Case]) -> (BTreeMap<String, Agreement>, Vec<String>) {
    let mut tasks: BTreeMap<String, Agreement> = BTreeMap::new();
    let mut differences = Vec::new();
    for Case { line, task, game_data_str, response, expected } in cases {
        let outcome = check(task, game_data_str, response, &Options::default())
            .unwrap_or_else(|e| panic!("{}: line {line}: {e}", path.display()));
        let entry = tasks.entry(task.clone()).or_insert(Agreement { cases: 0, positives: 0, agreed: 0 });
        entry.cases += 1;
        entry.positives += usize::from(*expected);
        if (outcome.verdict == Verdict::Correct) == *expected {
            entry.agreed += 1;
        } else {
            let shown: String = response.chars().take(200).collect();
            differences.push(format!(
                "line {line}: {task}: expected {expected}, found {:?} {}: {shown:?}",
                outcome.verdict, outcome.reason
            ));
        }
    }
    println!("{}", path.display());
    println!("{:32} {:>6} {:>9} {:>7} {:>8}", "task", "cases", "positives", "agreed", "percent");
    let mut total = Agreement { cases: 0, positives: 0, agreed: 0 };
    let row = |name: &str, a: &Agreement| {
        let percent = 100.0 * a.agreed as f64 / a.cases as f64;
        println!("{name:32} {:6} {:9} {:7} {percent:8.2}", a.cases, a.positives, a.agreed);
    };
    for (task, a) in &tasks {
        row(task, a);
        total.cases += a.cases;
        total.positives += a.positives;
        total.agreed += a.agreed;
    }
    row("total", &total);
    for difference in &differences {
        println!("{difference}");
    }
    (tasks, differences)
}

#[test]
#[ignore = "needs the public corpora: FGRPO_PARITY_DATA names their folder"]
fn parity_mode_agrees_with_the_reference_on_the_corpus() {
    let folder = std::env::var_os("FGRPO_PARITY_DATA").expect("FGRPO_PARITY_DATA names the corpora's folder");
    let path = Path::new(&folder).join("verifiers/synlogic.jsonl");
    let (tasks, differences) = agreement(&path, &corpus(&path));
    let cases: usize = tasks.values().map(|a| a.cases).sum();
    assert!(
        differences.len() * 200 <= cases,
        "{} of {cases} disagree: wanted at least 99.5 %",
        differences.len()
    );
}

#[test]
fn parity_mode_agrees_with_the_reference_on_every_case_of_the_fixture() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/synlogic.jsonl");
    let (tasks, differences) = agreement(&path, &fixture(&path));
    assert_eq!(tasks.len(), 36, "35 tasks and gpqa_diamond");
    for (task, a) in &tasks {
        assert!(a.cases >= 20 && a.positives >= 5, "{task}: {} cases, {} positives", a.cases, a.positives);
    }
    assert!(differences.is_empty(), "{} disagree", differences.len());
}
