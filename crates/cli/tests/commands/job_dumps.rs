//! verl's validation files of an exported job and of other programs: how they are graded, and how their problems are identified.

use crate::support::{ends, fgrpo, file, lines, run};
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

/// pass@1 of `fgrpo pass-at-k`, and its stderr.
#[track_caller]
fn rate(path: &Path, more: &[&str]) -> (f64, String) {
    let mut command = fgrpo();
    command.arg("pass-at-k").arg(path).args(["-k", "1", "--json"]).args(more);
    let (printed, said) = ends(0, command);
    let report: Value = serde_json::from_str(&printed).unwrap();
    (report["pass_at_k"]["1"].as_f64().unwrap(), said)
}

#[test]
fn a_jobs_verdicts_count_whatever_its_grader_is() {
    let folder = tempfile::tempdir().unwrap();
    let truth = json!({"kind": "python", "columns": {"question": "?"}});
    let rows = (0..4).map(|i| of_job(&format!("p{}", i / 2), &truth, "anything", i != 3, "python"));
    let (found, said) = rate(&file(folder.path(), "5.jsonl", &text(rows)), &[]);
    assert_eq!(found, 0.75);
    assert!(said.contains("python"), "{said}");
    // A response that could not be graded isn't a wrong one.
    let mut broken = of_job("p", &truth, "?", false, "python");
    broken["unscorable"] = json!(1.0);
    let rows = [broken, of_job("p", &truth, "!", true, "python")];
    assert_eq!(rate(&file(folder.path(), "6.jsonl", &text(rows)), &[]).0, 1.0);
}

#[test]
fn the_mode_of_a_job_is_said_and_another_one_grades_again() {
    let folder = tempfile::tempdir().unwrap();
    // An unevaluated expression, which is correct only in mode parity.
    let unworked =
        of_job("p", &json!({"kind": "math", "gold": "29"}), "\\boxed{12+17}", false, "math in mode strict");
    let dump = file(folder.path(), "5.jsonl", &text([unworked]));
    let (found, said) = rate(&dump, &[]);
    assert_eq!(found, 0.0);
    assert!(said.contains("math in mode strict"), "{said}");
    let (found, said) = rate(&dump, &["--mode", "parity"]);
    assert_eq!(found, 1.0);
    assert!(said.contains("math in mode parity"), "{said}");
    // Other dumps have no mode. They get the mode of published results.
    let mut other = of_verl("What is 12 + 17?", "29", "\\boxed{12+17}");
    other["acc"] = json!(0.0);
    let dump = file(folder.path(), "verl.jsonl", &text([other]));
    let (found, said) = rate(&dump, &[]);
    assert_eq!(found, 1.0);
    assert!(said.contains("mode parity") && said.contains("0.0 % by the dump's own `acc`"), "{said}");
    assert_eq!(rate(&dump, &["--mode", "strict"]).0, 0.0);
    // Samples with verdicts have no mode to choose.
    let graded = file(folder.path(), "graded.jsonl", &text([json!({"problem": "p", "n": 2, "c": 1})]));
    let mut command = fgrpo();
    command.arg("pass-at-k").arg(&graded).args(["--mode", "strict"]);
    ends(2, command);
    let mut command = fgrpo();
    command.arg("compare").args([&graded, &graded]).args(["--mode", "strict"]);
    ends(2, command);
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
    let mut command = fgrpo();
    command.current_dir(folder).args(["eval", "--data", "sums.jsonl", "--task", "math", "--json", "-n", "2"]);
    command.args(["--samples", samples, "--out", out, "--mode", "strict"]);
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
            let mut command = fgrpo();
            command.arg("compare").args([at(a), at(b)]).args(["-k", "1", "--json"]);
            let (printed, said) = ends(0, command);
            let found: Value = serde_json::from_str(&printed).unwrap();
            let found = found[0]["difference"].as_f64().unwrap();
            assert!((found - difference).abs() < 1e-9, "{a} {b}: {found}");
            assert!(said.contains("mode"), "{said}");
        }
    }
    // Two problems with one prompt can't be distinguished, and different problems are still refused.
    let other = text((0..6).map(|i| of_verl(&format!("What is {} - 1?", i / 2), "0", "0")));
    file(folder.path(), "other.jsonl", &other);
    let (_, said, code) = run(fgrpo().arg("compare").args([at("laptop"), at("other.jsonl")]));
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("different problems"), "{said}");
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
