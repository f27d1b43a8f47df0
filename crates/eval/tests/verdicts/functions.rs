//! Verdicts of a user's Python function, and functions that cannot grade.

use fgrpo_eval::kind::TaskKind;
use fgrpo_eval::program;
use fgrpo_eval::verifier::{Grading, Settings};
use serde_json::{Value, json};
use std::path::Path;

const GRADE: &str = r#"
import os, time

def reward(completion, answer, **columns):
    if completion.startswith("do "):
        print("asked to", completion)
        exec(completion[3:])
    if completion.startswith("give "):
        return eval(completion[5:])
    return answer in completion

def trl(completions, prompts, answer, **kwargs):
    return [len(c[0]["content"]) if isinstance(p, list) else float(a in c) for c, p, a in zip(completions, prompts, answer)]

def gold(completion, gold):
    return True

def pair(completions, answer):
    return [1.0, 0.0]

def single(completions, answer):
    return 1.0

number = 7
"#;

/// Grading by a function of the file `grade.py`, which is written into the folder.
fn by(folder: &Path, name: &str, timeout_s: f64) -> anyhow::Result<Grading> {
    std::fs::write(folder.join("grade.py"), GRADE).unwrap();
    let function = format!("{}:{name}", folder.join("grade.py").display());
    let command = program::Settings { timeout_s, ..program::Settings::of_function(&function) };
    TaskKind::Python.grading(Settings { command: Some(command), ..Settings::default() })
}

/// Grades lines one after another.
fn graded(grading: &Grading, lines: &[Value]) -> Vec<Value> {
    let grade = |line: &Value| {
        let text = line.to_string();
        let verifier = TaskKind::Python.verifier_of_line(text.as_bytes(), grading).unwrap();
        let response = line["response"].as_str().unwrap();
        serde_json::to_value(grading.grade(response, |response| verifier.explain(response))).unwrap()
    };
    lines.iter().map(grade).collect()
}

fn answered(responses: &[&str]) -> Vec<Value> {
    responses.iter().map(|response| json!({"answer": "4", "response": response})).collect()
}

#[test]
fn results_of_every_form_are_rewards_or_unscorable() {
    let folder = tempfile::tempdir().unwrap();
    let given = [
        ("so 4", "correct 1.0 score"),
        ("so 5", "wrong 0.0 score"),
        ("give 0.25", "wrong 0.25 score"),
        ("give {'score': 2, 'more': 'x'}", "correct 2.0 score"),
        ("give {'reward': True}", "correct 1.0 score"),
        ("give None", "unscorable null the grader returned None"),
        ("give {'score': None, 'reason': 'no tests'}", "unscorable null no tests"),
        ("give float('nan')", "unscorable null the grader returned NaN"),
        ("give {'score': 1, 'rewards': {'short': 0.5}}", "correct 1.0 score"),
        ("give {'score': 1, 'rewards': {'short': float('nan')}}", "unscorable null the grader returned NaN"),
        (
            "give {'score': 1, 'rewards': {'short': 'x'}}",
            "unscorable null raised ValueError: could not convert string to float: 'x'",
        ),
        ("give '1.0'", "unscorable null raised TypeError: expected a number, returned the string '1.0'"),
        (
            "give {}",
            "unscorable null raised TypeError: expected a dict with the key score, returned a dict with nothing",
        ),
    ];
    let grading = by(folder.path(), "reward", 10.0).unwrap();
    for ((response, wanted), found) in
        given.iter().zip(graded(&grading, &answered(&given.each_ref().map(|g| g.0))))
    {
        let [verdict, reason] = ["verdict", "reason"].map(|key| found[key].as_str().unwrap());
        assert_eq!(format!("{verdict} {} {reason}", found["reward"]), *wanted, "{response}");
    }
}

#[test]
fn what_a_function_does_wrong_costs_its_own_completion_alone() {
    let folder = tempfile::tempdir().unwrap();
    let given = [
        ("do raise ValueError('bad thing')", "raised ValueError: bad thing"),
        ("so 4", "score"),
        ("do import sys; sys.exit(0)", "raised SystemExit: 0"),
        ("do os._exit(0)", "died"),
        ("so 4", "score"),
        ("do time.sleep(60)", "timeout"),
        // Neither printed output nor a child process gets between the answers.
        ("do print('{\"score\": 1}'); os.system('echo x'); os.write(1, b'y\\n')", "score"),
        ("so 4", "score"),
    ];
    let grading = by(folder.path(), "reward", 0.5).unwrap();
    let found = graded(&grading, &answered(&given.map(|g| g.0)));
    assert_eq!(found.iter().map(|f| f["reason"].as_str().unwrap()).collect::<Vec<_>>(), given.map(|g| g.1));
    let printed = found[0]["printed"].as_str().unwrap();
    assert!(printed.starts_with("asked to do raise") && printed.contains("in reward"), "{printed}");
    assert!(!printed.contains("in call"), "the worker's own frames say nothing to the user: {printed}");
    assert!(found[6]["printed"].as_str().unwrap().ends_with("{\"score\": 1}\n"));
}

#[test]
fn a_reward_function_of_trl_is_called_as_there() {
    let folder = tempfile::tempdir().unwrap();
    let messages = json!([{"role": "user", "content": "2+2"}]);
    let lines = [
        json!({"prompt": "2+2", "answer": "4", "response": "so 4"}),
        json!({"prompt": messages, "answer": "4", "response": "four"}),
    ];
    let found = graded(&by(folder.path(), "trl", 10.0).unwrap(), &lines);
    assert_eq!(found.iter().map(|f| f["reward"].as_f64().unwrap()).collect::<Vec<_>>(), [1.0, 4.0]);
}

#[test]
fn a_function_that_cannot_work_is_refused_before_any_work() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("broken.py"), "def reward(completion:\n").unwrap();
    let refused = |function: &str| {
        let command = program::Settings::of_function(&format!("{}/{function}", folder.path().display()));
        let settings = Settings { command: Some(command), ..Settings::default() };
        let line = json!({"prompt": "a", "answer": "b", "response": "x"}).to_string();
        let checked = TaskKind::Python.grading(settings).and_then(|grading| {
            TaskKind::Python.verifier_of_line(line.as_bytes(), &grading).unwrap().check_start()
        });
        checked.unwrap_err().to_string()
    };
    by(folder.path(), "reward", 1.0).unwrap();
    for (function, wanted) in [
        ("grade.py:gold", "missing 1 required positional argument: 'gold'"),
        ("grade.py:gold", "other arguments can be columns: prompt, answer"),
        (
            "grade.py:none",
            "found nothing callable that is called none; it defines reward, trl, gold, pair, single",
        ),
        ("grade.py:number", "found nothing callable that is called number; it defines"),
        ("broken.py:reward", "SyntaxError"),
        ("no.py:reward", "no.py: no such file"),
        ("grade.py", "expected FILE.py:NAME"),
        ("grade.py:pair", "returned 2 rewards for one completion"),
        ("grade.py:single", "expected a list with one reward for each completion, returned 1.0"),
    ] {
        let said = refused(function);
        assert!(said.contains(wanted), "wanted {wanted:?} in: {said}");
        assert!(said.matches("Traceback").count() <= 1 && !said.contains("<string>"), "{said}");
    }
    assert!(!refused("grade.py:none").contains("can be columns"));
}
