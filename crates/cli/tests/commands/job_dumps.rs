//! verl's validation files of an exported job and of other programs beside an evaluation: how their problems are identified.

use crate::support::{ends, file, lines, tells};
use serde_json::{Value, json};
use std::path::Path;

fn text(rows: impl IntoIterator<Item = Value>) -> String {
    rows.into_iter().map(|row| format!("{row}\n")).collect()
}

/// A line that an exported job writes: the reference answer with its kind, and the verdict of its grader.
fn of_job(problem: &str, truth: &Value, output: &str, correct: bool, grader: &str) -> Value {
    json!({
        "input": format!("user: {problem}?"), "output": output, "gts": truth.to_string(), "step": 5,
        "score": f64::from(correct), "acc": f64::from(correct), "unparsed": 0.0, "unscorable": 0.0,
        "source": truth["kind"], "problem": problem, "grader": grader,
    })
}

/// A line of verl with the user's reward function. The prompt is as the chat template renders it.
fn of_verl(question: &str, gold: &str, output: &str) -> Value {
    json!({"input": format!("system\nBe brief.\nuser\n{question}\nassistant\n"), "output": output, "gts": gold, "score": 0.0, "step": 5})
}

/// An evaluation of "i + i" for three problems, of which the first is solved, and the hashes of the problems by question.
fn evaluation(folder: &Path) -> Vec<(String, String)> {
    let question = |i: usize| format!("What is {i} + {i}?");
    file(
        folder,
        "sums.jsonl",
        &text((0..3).map(|i| json!({"problem": question(i), "answer": (2 * i).to_string()}))),
    );
    let samples = (0..6).map(|i| json!({"problem": question(i / 2), "text": "\\boxed{0}"}));
    file(folder, "texts.jsonl", &text(samples));
    import(folder, "texts.jsonl", "laptop");
    let prompts = lines(&folder.join("laptop/prompts.jsonl"));
    let of = |line: &Value, key: &str| line.pointer(key).unwrap().as_str().unwrap().to_owned();
    prompts.iter().map(|line| (of(line, "/messages/0/content"), of(line, "/problem"))).collect()
}

/// `fgrpo eval --samples`: pass@1 and its stderr.
#[track_caller]
fn import(folder: &Path, samples: &str, out: &str) -> (f64, String) {
    let eval = "eval --data sums.jsonl --task math --json -n 2 --mode strict --samples";
    let mut command = command!(..eval.split(' '), samples, "--out", out);
    command.current_dir(folder);
    let (printed, said) = ends(0, command);
    let report: Value = serde_json::from_str(&printed).unwrap();
    (report["pass_at_k"]["1"].as_f64().unwrap(), said)
}

/// Writes the dump of a job and a dump of plain verl: two responses to each problem, all correct.
fn dumps(folder: &Path, problems: &[(String, String)]) {
    let gold = |i: usize| (2 * i).to_string();
    let answer = |i: usize| format!("so \\boxed{{{}}}", 2 * i);
    let twice = || problems.iter().enumerate().rev().flat_map(|pair| [pair, pair]);
    let of_job = |(i, (_, hash)): (usize, &(String, String))| {
        of_job(hash, &json!({"kind": "math", "gold": gold(i)}), &answer(i), true, "math in mode strict")
    };
    file(folder, "job.jsonl", &text(twice().map(of_job)));
    let of_verl = |(i, (question, _)): (usize, &(String, String))| of_verl(question, &gold(i), &answer(i));
    file(folder, "verl.jsonl", &text(twice().map(of_verl)));
    let of_lm_eval = |(i, (question, _)): (usize, &(String, String))| json!({"doc_id": 2 - i, "doc": {"question": question}, "target": gold(i), "resps": [[answer(i), answer(i)]], "filter": "f"});
    file(folder, "lm-eval.jsonl", &text(problems.iter().enumerate().map(of_lm_eval)));
}

#[test]
fn a_laptops_evaluation_stands_beside_a_dump_by_id_or_by_question() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    dumps(folder.path(), &evaluation(folder.path()));
    for dump in ["job.jsonl", "verl.jsonl", "lm-eval.jsonl"] {
        for (a, b, difference) in [("laptop", dump, 2.0 / 3.0), (dump, "laptop", -2.0 / 3.0)] {
            let (printed, said) = ends(0, command!("compare -k 1 --json", at(a), at(b)));
            let found: Value = serde_json::from_str(&printed).unwrap();
            let found = found[0]["difference"].as_f64().unwrap();
            assert!((found - difference).abs() < 1e-9, "{a} {b}: {found}");
            assert!(said.contains("mode"), "{said}");
        }
    }
    // Two problems with one prompt can't be distinguished, and different problems are still refused.
    let other = text((0..6).map(|i| of_verl(&format!("What is {} - 1?", i / 2), "0", "0")));
    file(folder.path(), "other.jsonl", &other);
    tells(2, command!("compare", at("laptop"), at("other.jsonl")), "different problems");
    // Samples with verdicts have no mode to choose.
    tells(2, command!("compare --mode strict", at("laptop"), at("laptop")), "graded already");
}

#[test]
fn eval_takes_the_responses_of_dumps() {
    let folder = tempfile::tempdir().unwrap();
    dumps(folder.path(), &evaluation(folder.path()));
    for dump in ["job.jsonl", "verl.jsonl", "lm-eval.jsonl"] {
        let (found, said) = import(folder.path(), dump, &format!("eval-{dump}"));
        assert_eq!(found, 1.0, "{dump}: {said}");
        assert!(said.contains("6 new samples") && said.contains("math in mode strict"), "{dump}: {said}");
    }
}
