//! Agreement with the Python reference, per task: `cargo test --release -p fgrpo-verify --test synlogic_parity -- --nocapture`.
//!
//! Reads `$FGRPO_PARITY_DATA/verifiers/synlogic.jsonl` where the variable is set, and this repository's own fixtures.

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

/// Prints the agreement per task and returns it with the first disagreements.
fn agreement(path: &Path) -> (BTreeMap<String, Agreement>, Vec<String>) {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut tasks: BTreeMap<String, Agreement> = BTreeMap::new();
    let mut differences = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let case: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("line {}: {e}", number + 1));
        let field = |name: &str| case[name].as_str().unwrap_or_default();
        let expected = case["expected"].as_i64() == Some(1);
        let (task, response) = (field("task"), field("response"));
        let outcome = check(task, field("game_data_str"), response, &Options::default())
            .unwrap_or_else(|e| panic!("line {}: {e}", number + 1));
        let entry = tasks.entry(task.to_owned()).or_insert(Agreement { cases: 0, positives: 0, agreed: 0 });
        entry.cases += 1;
        entry.positives += usize::from(expected);
        if (outcome.verdict == Verdict::Correct) == expected {
            entry.agreed += 1;
        } else {
            let shown: String = response.chars().take(200).collect();
            differences.push(format!(
                "line {}: {task}: expected {expected}, found {:?} {}: {shown:?}",
                number + 1,
                outcome.verdict,
                outcome.reason
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
fn parity_mode_agrees_with_the_reference_on_the_corpus() {
    let Some(folder) = std::env::var_os("FGRPO_PARITY_DATA") else {
        println!("FGRPO_PARITY_DATA is not set: the corpus is not read");
        return;
    };
    let (tasks, differences) = agreement(&Path::new(&folder).join("verifiers/synlogic.jsonl"));
    let cases: usize = tasks.values().map(|a| a.cases).sum();
    assert!(
        differences.len() * 200 <= cases,
        "{} of {cases} disagree: wanted at least 99.5 %",
        differences.len()
    );
}
