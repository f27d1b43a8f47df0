//! Reference answers and graders: warnings, refusals, stops, and runs in which nothing can be graded. Tests in crates/eval
//! have the verdicts.

use super::{config, fgrpo, file, run};
use crate::files::lines;
use crate::support::{ended, signal, wait_until};
use assert_cmd::Command;
use serde_json::{Value, json};
use std::path::Path;

/// Evaluates these samples, which other programs made. The arguments name the problems.
fn eval(folder: &Path, samples: &[Value], arguments: &[&str]) -> Command {
    let n = samples.iter().filter(|sample| sample["problem"] == samples[0]["problem"]).count();
    let samples = file(folder, "s.jsonl", &lines(samples));
    let mut eval = fgrpo();
    eval.args(["eval", "-n", &n.to_string()]).args(arguments).arg("--samples").arg(samples);
    eval.arg("--out").arg(folder.join("e"));
    eval
}

fn sample(problem: &str, text: &str) -> Value {
    json!({"problem": problem, "sample": 0, "text": text})
}

#[test]
fn doubtful_reference_answers_are_warned_about_with_file_row_and_share() {
    let folder = tempfile::tempdir().unwrap();
    let rows = [
        json!({"problem": "a", "answer": "4"}),
        json!({"problem": "b", "answer": "First add the numbers, then take half of them: it is four"}),
        json!({"problem": "c", "answer": "You need to look at both sides of it"}),
    ];
    let data = file(folder.path(), "prose.jsonl", &lines(&rows));
    let task = ["--task", "math", "--data", data.to_str().unwrap()];
    let (_, said, _) = run(eval(folder.path(), &[sample("a", "4")], &task));
    for text in ["warning: ", "prose.jsonl: 2 of 3 reference answers (67 %)", "row 2: \"First add"] {
        assert!(said.contains(text), "wanted {text:?} in: {said}");
    }
    let golds = [json!({"gold": "1", "response": "1"}), json!({"gold": "Monday @ noon", "response": "1"})];
    let (_, said, _) =
        run(fgrpo().args(["verify", "math", "-", "--mode", "strict"]).write_stdin(lines(&golds)));
    assert!(said.contains("1 of 2 lines are doubtful, first line 2: gold: no mathematics"), "{said}");
    let rows = [
        json!({"question": "q", "choices": ["x", "y"], "answer": "A"}),
        json!({"question": "r", "choices": ["x", "x "], "answer": "A"}),
    ];
    let data = file(folder.path(), "d.jsonl", &lines(&rows));
    let (_, said, code) = run(fgrpo().args(["data", "show"]).arg(&data).args(["--task", "choice"]));
    assert!(code == 0 && said.contains("1 of 2 rows have two equal options, the first is row 2"), "{said}");
}

#[test]
fn training_without_a_correct_completion_says_so_on_the_console_in_the_log_and_in_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let data = file(
        folder.path(),
        "d.jsonl",
        &lines(&[json!({"problem": "a", "answer": "123456"}), json!({"problem": "b", "answer": "654321"})]),
    );
    let config = config(folder.path(), "math", &data, "");
    let out = folder.path().join("run");
    let (_, said, code) = run(fgrpo().arg("train").arg(&config).arg("--out").arg(&out));
    assert_eq!(code, 0, "{said}");
    let log = std::fs::read_to_string(out.join("log.txt")).unwrap();
    for text in [&said, &log] {
        assert!(text.contains("no completion has been correct for 5 steps"), "{text}");
        assert!(text.contains("no completion was correct in any of the 6 steps"), "{text}");
    }
    assert!(said.contains("fgrpo data show"), "{said}");
    let html = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(html.contains("No completion was correct: first check how the reference answers are read"));
    assert!(!html.to_lowercase().contains("harder p"), "all wrong is not a reason for harder problems");
}

/// A grader in Python: `body` answers the line `d`.
fn grader(folder: &Path, body: &str) -> String {
    let script = format!(
        "import sys, json\nfor line in sys.stdin:\n    d = json.loads(line)\n    {body}\n    sys.stdout.flush()\n"
    );
    format!("python3 {}", file(folder, "grade.py", &script).display())
}

/// The key that sets a command in a configuration.
fn verifier(command: &str) -> String {
    let words: Vec<String> = command.split(' ').map(|word| format!("{word:?}")).collect();
    format!("[task.verifier.command]\ncommand = [{}]", words.join(", "))
}

#[test]
fn a_grader_that_cannot_start_or_always_crashes_is_refused_before_any_work() {
    let folder = tempfile::tempdir().unwrap();
    let data = file(folder.path(), "d.jsonl", &lines(&[json!({"prompt": "a"}), json!({"prompt": "b"})]));
    let input = lines(&[json!({"problem": {}, "response": "x"})]);
    let refused = |command: &str, mut process: Command| {
        let (stdout, said, code) = run(&mut process);
        assert_eq!((code, stdout.as_str()), (2, ""), "{process:?}: {said}");
        assert!(said.contains(&format!("`{command}`")), "{process:?}: {said}");
    };
    let crashing = grader(folder.path(), "undefined_name");
    for command in ["python3 no-such-grader.py", "echo ready", &crashing] {
        let mut verify = fgrpo();
        verify.args(["verify", "command", "-", "--command", command]).write_stdin(input.clone());
        refused(command, verify);
    }
    let task = ["--task", "command", "--data", data.to_str().unwrap(), "--verifier", &crashing];
    refused(&crashing, eval(folder.path(), &[sample("a", "x")], &task));
    let (config, out) =
        (config(folder.path(), "command", &data, &verifier(&crashing)), folder.path().join("never"));
    let mut train = fgrpo();
    train.arg("train").arg(&config).arg("--out").arg(&out);
    refused(&crashing, train);
    assert!(!out.exists(), "a run folder without a grader");
}

#[test]
fn a_grader_that_fails_on_empty_completions_alone_is_used_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let command = grader(folder.path(), "d['completion'][0]; print(json.dumps({'score': 1}))");
    let input = lines(&[json!({"problem": {}, "response": "x"})]);
    let (out, said, code) =
        run(fgrpo().args(["verify", "command", "-", "--command", &command]).write_stdin(&*input));
    assert_eq!((code, out.contains("correct")), (0, true), "{said}");
    assert!(said.contains("on an empty completion"), "{said}");
}

#[test]
fn a_command_in_which_nothing_could_be_graded_fails_whatever_share_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let command = grader(folder.path(), "print(json.dumps({'unscorable': 'no tests'}))");
    let input = lines(&[json!({"problem": {}, "response": "x"}), json!({"problem": {}, "response": "y"})]);
    let (out, said, code) =
        run(fgrpo().args(["verify", "command", "-", "--command", &command]).write_stdin(&*input));
    assert_eq!((out.lines().count(), code), (2, 1), "{said}");
    assert!(said.contains("none of the 2 lines could be graded; the first: no tests"), "{said}");
    let data = file(folder.path(), "d.jsonl", &lines(&[json!({"prompt": "a"})]));
    let task = ["--task", "command", "--data", data.to_str().unwrap(), "--verifier", &command];
    let (_, said, code) =
        run(eval(folder.path(), &[sample("a", "x")], &task).args(["--max-unscorable", "1"]));
    assert!(code == 1 && said.contains("could be graded"), "{code}: {said}");
}

#[test]
fn training_stops_with_its_state_saved_when_nothing_can_be_graded() {
    let folder = tempfile::tempdir().unwrap();
    let rows: Vec<Value> = (0..8).map(|i| json!({"prompt": format!("Say {i}")})).collect();
    let data = file(folder.path(), "d.jsonl", &lines(&rows));
    // Answers the first question, which comes before the run, and no later one.
    let command = grader(
        folder.path(),
        "import os; f = __file__ + '.asked'; gone = os.path.exists(f); open(f, 'w').close(); print(json.dumps({'unscorable': 'database gone'} if gone else {'score': 0}))",
    );
    let config = config(folder.path(), "command", &data, &verifier(&command));
    let out = folder.path().join("run");
    let evaluated = crate::support::sets(&[
        "grade.max_unscorable=2",
        "task.held_out_share=0.5",
        "eval.every=1",
        "eval.samples=1",
        "eval.k=[1]",
    ]);
    let (_, said, code) = run(fgrpo().arg("train").arg(&config).args(evaluated).arg("--out").arg(&out));
    assert_eq!(code, 1, "{said}");
    let mut kept = std::fs::read_dir(out.join("checkpoints")).unwrap().map(|e| e.unwrap().file_name());
    assert!(
        !kept.any(|name| name.to_string_lossy().starts_with("best")),
        "nothing was graded, so nothing is best"
    );
    for text in [
        "held-out no pass@k, since",
        "no completion could be graded for 2 steps",
        "database gone",
        "--resume",
    ] {
        assert!(said.contains(text), "wanted {text:?} in: {said}");
    }
    assert!(out.join("checkpoints/step-000002/config.json").exists() && out.join("report.html").exists());
    assert!(std::fs::read_to_string(out.join("log.txt")).unwrap().contains("stopped after step 2"));
}

#[test]
fn a_stop_while_grading_is_no_error_and_the_same_command_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    // The first call comes before the work. Later calls wait until a file appears.
    let command = grader(
        folder.path(),
        "import os, time; open(__file__ + '.asked', 'a').write('x'); time.sleep(0 if os.path.exists(__file__ + '.fast') or not d['completion'] else 0.2); print(json.dumps({'score': 1}))",
    );
    let rows: Vec<Value> = (0..200).map(|i| json!({"prompt": format!("Say {i}")})).collect();
    let data = file(folder.path(), "d.jsonl", &lines(&rows));
    let samples: Vec<Value> = (0..200).map(|i| sample(&format!("Say {i}"), "x")).collect();
    let samples = file(folder.path(), "s.jsonl", &lines(&samples));
    let words = |more: &mut std::process::Command| {
        more.args(["eval", "--task", "command", "-n", "1", "--command", &command, "--samples"]);
        more.arg(&samples).arg("--data").arg(&data).arg("--out").arg(folder.path().join("e"));
    };
    let mut eval = std::process::Command::new(env!("CARGO_BIN_EXE_fgrpo"));
    words(&mut eval);
    let child =
        eval.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let calls = || -> usize {
        let found = std::fs::read_dir(folder.path()).unwrap().flatten();
        found
            .filter(|e| e.path().extension().is_some_and(|x| x == "asked"))
            .map(|e| e.metadata().unwrap().len() as usize)
            .sum()
    };
    wait_until("four calls", || calls() >= 4);
    signal(&child, libc::SIGINT);
    let (code, said) = ended(child);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("stopped on request while grading") && said.contains("the same command continues"),
        "{said}"
    );
    assert!(!said.contains("error"), "{said}");
    let kept = std::fs::read_to_string(folder.path().join("e/samples.jsonl")).unwrap().lines().count();
    assert!(kept < 200, "{kept}");
    for program in std::fs::read_dir(folder.path()).unwrap().flatten() {
        if program.path().extension().is_some_and(|x| x == "py") {
            std::fs::write(format!("{}.fast", program.path().display()), "").unwrap();
        }
    }
    let mut again = std::process::Command::new(env!("CARGO_BIN_EXE_fgrpo"));
    words(&mut again);
    let output = again.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains(&format!("{} samples graded, {kept} verdicts kept", 200 - kept)), "{said}");
}

/// Rows as in IFBench's file: each has all names of arguments, most of them null.
fn ifbench() -> Vec<Value> {
    let row = |key: &str, prompt: &str, id: &str, given: Value| {
        let names = ["N", "keyword", "keyword1", "m", "n", "options", "percentage", "sep", "small_n", "word"];
        let mut kwargs: serde_json::Map<String, Value> =
            names.map(|name| (name.to_owned(), Value::Null)).into_iter().collect();
        kwargs.extend(given.as_object().unwrap().clone());
        json!({"key": key, "prompt": prompt, "instruction_id_list": [id], "kwargs": [kwargs]})
    };
    vec![
        row("0", "Two numbers, please.", "count:numbers", json!({"N": 2.0})),
        row("1", "Yes, no or maybe?", "format:options", json!({"options": "yes/no/maybe"})),
        row("2", "Title case.", "format:title_case", json!({})),
    ]
}

#[test]
fn ifbench_is_evaluated_with_its_four_accuracies() {
    let folder = tempfile::tempdir().unwrap();
    let data = file(folder.path(), "ifbench.jsonl", &lines(ifbench()));
    let responses = ["**I have 3 or 4.**", "Sure:\nMaybe.", "A Title in Case"];
    let prompts = ifbench().into_iter().zip(responses);
    let samples: Vec<Value> =
        prompts.map(|(row, response)| sample(row["prompt"].as_str().unwrap(), response)).collect();
    let task = ["--task", "ifeval", "--data", data.to_str().unwrap()];
    let third = 1.0 / 3.0;
    // The second time, from the scores in the folder.
    for _ in 0..2 {
        let (out, said, code) = run(eval(folder.path(), &samples, &task).arg("--json"));
        assert_eq!(code, 0, "{said}");
        let value: Value = serde_json::from_str(&out).unwrap();
        let accuracies = json!({"prompt_strict": third, "prompt_loose": 2.0 * third, "instruction_strict": third, "instruction_loose": 2.0 * third});
        assert_eq!((&value["pass_at_k"]["1"], &value["instructions"]), (&json!(third), &accuracies));
    }
    let (_, said, _) = run(eval(folder.path(), &samples, &task));
    assert!(said.contains("of 33.3 % of the samples followed (loosely 66.7 %)"), "{said}");
}

#[test]
fn an_evaluation_grades_the_answers_after_the_thoughts_and_configurations_and_flags_say_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let data = file(folder.path(), "d.jsonl", "{\"problem\": \"a\", \"answer\": \"13\"}\n");
    let texts = ["<think>\\boxed{12}</think> Then it follows that this is \\boxed{13}", "<think>\\boxed{13}"];
    let row = |i: usize| json!({"problem": "a", "sample": i, "text": texts[i]});
    let config = config(folder.path(), "math", &data, "").display().to_string();
    let evaluated = |arguments: &[&str]| -> Vec<String> {
        let (_, said, code) = run(eval(folder.path(), &[row(0), row(1)], arguments).arg("--data").arg(&data));
        assert_eq!(code, 0, "{said}");
        let scored = crate::support::lines(&folder.path().join("e/samples.jsonl"));
        std::fs::remove_dir_all(folder.path().join("e")).unwrap();
        scored.iter().map(|s| format!("{} {} {}", s["correct"], s["reason"], s["answer"])).collect()
    };
    let stripped = ["true \"exact\" \"13\"", "false \"unfinished_thoughts\" null"];
    assert_eq!(evaluated(&[&config]), stripped);
    assert_eq!(evaluated(&["--task", "math", "--reasoning", "strip"]), stripped);
    let kept = ["true \"exact\" \"13\""; 2];
    assert_eq!(evaluated(&["--task", "math"]), kept);
    assert_eq!(evaluated(&[&config, "--set", "task.verifier.mode=parity"]), kept);
    // In strict mode, a response with two different boxes has no answer.
    let strictly = ["false \"exact\" \"13\"", kept[1]];
    assert_eq!(evaluated(&[&config, "--set", "task.reasoning=keep"]), strictly);
}
