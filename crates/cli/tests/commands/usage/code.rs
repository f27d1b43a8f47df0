//! Python programs judged by tests in a sandbox.

use super::{config, fgrpo, file, run};
use crate::support::ends;
use serde_json::{Value, json};

/// Right, wrong and hostile programs. `wanted` is a verdict with its reason and test, or the beginning of it.
const CASES: &str = include_str!("code.jsonl");

/// Verdicts that differ from the expected ones, with one mechanism of the sandbox or (`""`) with both.
fn differing(only: &str, except: &str) -> Vec<String> {
    let mut command = fgrpo();
    command.args(["verify", "code", "-", "--timeout-s", "2"]).env("FGRPO_SANDBOX", only);
    let (out, said, code) = run(command.write_stdin(CASES));
    assert_eq!(code, 0, "{said}");
    let lines: Vec<(&str, &str)> = CASES.lines().zip(out.lines()).collect();
    assert_eq!(lines.len(), CASES.lines().count());
    let differs = |(case, found): &(&str, &str)| {
        let [case, found]: [Value; 2] = [case, found].map(|line| serde_json::from_str(line).unwrap());
        let test = found.get("test").map_or(String::new(), Value::to_string);
        let [verdict, reason] = ["verdict", "reason"].map(|key| found[key].as_str().unwrap());
        let found_ = format!("{verdict} {reason} {test}");
        let (wanted, response) = (case["wanted"].as_str().unwrap(), case["response"].as_str().unwrap());
        let agrees = found_.starts_with(wanted) || (!except.is_empty() && response.contains(except));
        (!agrees).then(|| format!("wanted {wanted}, found {found}: {response}"))
    };
    lines.iter().filter_map(differs).collect()
}

#[test]
fn attacks_end_as_failures_with_their_reasons() {
    assert_eq!(differing("", ""), Vec::<String>::new());
    let failing = CASES.lines().filter(|line| line.contains(r#""wanted": "wrong"#)).count();
    assert_eq!((CASES.lines().count(), failing), (53, 36));
}

#[test]
fn each_mechanism_confines_without_the_other() {
    // Without namespaces there is no scratch folder.
    assert_eq!(differing("landlock", "open('a.txt','w')"), Vec::<String>::new());
    assert_eq!(differing("namespaces", ""), Vec::<String>::new());
    let (_, said, code) = run(fgrpo()
        .args(["verify", "code", "-"])
        .env("FGRPO_SANDBOX", "")
        .env("FGRPO_PYTHON", "/none/python")
        .write_stdin(CASES));
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("/none/python"), "{said}");
}

#[test]
fn programs_see_the_packages_of_a_python_that_lies_below_the_scratch_folders_usual_place() {
    // As here: a temporary folder.
    let folder = tempfile::tempdir().unwrap();
    let environment = folder.path().join("environment");
    let made = std::process::Command::new("python3")
        .args(["-m", "venv", "--without-pip"])
        .arg(&environment)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let library = std::fs::read_dir(environment.join("lib")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(library.join("site-packages/own_package.py"), "three = 3\n").unwrap();
    let program = "```python\nimport own_package, tempfile\ndef f(x):\n  return x + own_package.three\n```";
    let case = json!({"asserts": ["assert f(1) == 4"], "entry": "f", "response": program}).to_string();
    for only in ["", "landlock", "namespaces"] {
        let (out, said, code) = run(fgrpo()
            .args(["verify", "code", "-"])
            .env("FGRPO_SANDBOX", only)
            .env("FGRPO_PYTHON", environment.join("bin/python"))
            .write_stdin(case.clone()));
        assert!(code == 0 && out.contains("correct"), "{only}: {out}{said}");
    }
}

#[test]
fn a_data_set_with_tests_is_shown_and_trained_on() {
    let folder = tempfile::tempdir().unwrap();
    let rows: String = (0..4)
        .map(|i| {
            format!(
                "{}\n",
                json!({"prompt": format!("Add {i}."), "test_list": [format!("assert add(1) == {}", i + 1)]})
            )
        })
        .collect();
    let data = file(folder.path(), "data.jsonl", &rows);
    let shown = fgrpo().args(["data", "show"]).arg(&data).args(["--task", "code"]).assert().success();
    let shown = String::from_utf8_lossy(&shown.get_output().stdout).into_owned();
    assert!(shown.contains("assert add(1) == 1") && shown.contains("1 asserts"), "{shown}");
    let config = config(
        folder.path(),
        "code",
        &data,
        "max_prompt_tokens = 9000\n[task.verifier.code]\nmemory_mb = 512",
    );
    let out = folder.path().join("run");
    ends(0, command!("train", &config, "--out", &out, "--set steps=1"));
    let rollouts = std::fs::read_to_string(out.join("rollouts.jsonl")).unwrap();
    // An untrained model writes no Python.
    assert!(rollouts.lines().count() == 4 && !rollouts.contains("unscorable"), "{rollouts}");
    assert!(rollouts.contains(r#""reason":"no_code""#), "{rollouts}");
}

#[test]
fn rows_without_tests_are_bad_input() {
    let line = json!({"response": "x"}).to_string();
    let (out, said, code) = run(fgrpo().args(["verify", "code", "-"]).write_stdin(line));
    assert_eq!(code, 2, "{said}");
    assert!(out.contains("expected tests"), "{out}");
}
