//! Invalid reference answers and graders.

use super::{config, fgrpo, file, model, run};
use serde_json::{Value, json};
use std::path::Path;

fn lines(rows: &[Value]) -> String {
    rows.iter().map(|row| format!("{row}\n")).collect()
}

fn gsm8k() -> String {
    lines(&[
        json!({"question": "Clips?", "answer": "Natalia sold 48/2 = <<48/2=24>>24 clips.\n#### 72"}),
        json!({"question": "Price?", "answer": "It costs 2 * 617.25.\n#### $1,234.50"}),
        json!({"question": "Loss?", "answer": "####-10"}),
    ])
}

#[test]
fn gsm8k_answers_are_read_behind_their_hashes_in_data_and_in_verify() {
    let folder = tempfile::tempdir().unwrap();
    let data = file(folder.path(), "gsm8k.jsonl", &gsm8k());
    let samples = file(
        folder.path(),
        "samples.jsonl",
        &lines(&[
            json!({"problem": "Clips?", "sample": 0, "text": "\\boxed{72}"}),
            json!({"problem": "Price?", "sample": 0, "text": "\\boxed{1234.5}"}),
            json!({"problem": "Loss?", "sample": 0, "text": "\\boxed{-10}"}),
        ]),
    );
    let mut eval = fgrpo();
    eval.args(["eval", "--task", "math", "-n", "1", "--json"]);
    eval.arg("--samples").arg(&samples).arg("--data").arg(&data).arg("--out").arg(folder.path().join("out"));
    let (out, said, code) = run(&mut eval);
    assert_eq!(code, 0, "{said}");
    let value: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(value["pass_at_k"]["1"], 1.0, "{out}");
    assert!(!said.contains("warning"), "{said}");

    let input = lines(&[
        json!({"gold": "24 + 48\n#### 72", "response": "\\boxed{72}"}),
        json!({"gold": "####72", "response": "\\boxed{72}"}),
        json!({"gold": "#### $1,234", "response": "\\boxed{1234}"}),
        json!({"gold": 72, "response": "\\boxed{72}"}),
        json!({"gold": 0.5, "response": "\\boxed{\\frac12}"}),
        json!({"gold": "#### 72", "response": "\\boxed{71}"}),
    ]);
    for mode in ["parity", "strict"] {
        let (out, said, code) =
            run(fgrpo().args(["verify", "math", "-", "--mode", mode]).write_stdin(&*input));
        let verdicts: Vec<Value> =
            out.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()["verdict"].clone()).collect();
        assert_eq!(code, 0, "{said}");
        assert_eq!(verdicts, ["correct", "correct", "correct", "correct", "correct", "wrong"], "{mode}");
    }
}

#[test]
fn reference_answers_that_read_as_text_are_warned_about_with_file_row_and_share() {
    let folder = tempfile::tempdir().unwrap();
    let rows = [
        json!({"problem": "a", "answer": "4"}),
        json!({"problem": "b", "answer": "First add the numbers, then take half of them: it is four"}),
        json!({"problem": "c", "answer": "You need to look at both sides of it"}),
    ];
    let data = file(folder.path(), "prose.jsonl", &lines(&rows));
    let config = config(folder.path(), "math", &data, "");
    let (_, said, code) = run(fgrpo().arg("train").arg(&config).arg("--out").arg(folder.path().join("run")));
    assert_eq!(code, 0, "{said}");
    for text in ["warning: ", "prose.jsonl: 2 of 3 reference answers (67 %)", "row 2: \"First add"] {
        assert!(said.contains(text), "wanted {text:?} in: {said}");
    }
    let samples =
        file(folder.path(), "s.jsonl", &lines(&[json!({"problem": "a", "sample": 0, "text": "4"})]));
    let mut eval = fgrpo();
    eval.args(["eval", "--task", "math", "-n", "1"]);
    eval.arg("--samples").arg(&samples).arg("--data").arg(&data).arg("--out").arg(folder.path().join("out"));
    assert!(run(&mut eval).1.contains("2 of 3 reference answers"));
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

/// The line `mode = ..` of a configuration.
fn mode_in(text: &str) -> &str {
    text.lines().find_map(|line| line.trim().strip_prefix("mode = ")).unwrap_or("none")
}

#[test]
fn training_is_strict_and_the_papers_configurations_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let data = file(folder.path(), "d.jsonl", &lines(&[json!({"problem": "a", "answer": "1"})]));
    let mode = |config: &Path, set: &[&str]| {
        let set: Vec<String> = set.iter().map(|&set| set.to_owned()).collect();
        mode_in(&fgrpo_train::config::Config::load(config, &set).unwrap().to_toml()).to_owned()
    };
    for (kind, other) in
        [("math", "task.verifier.accept_unfinished=true"), ("synlogic", "task.verifier.format_gate=false")]
    {
        let own = config(folder.path(), kind, &data, "");
        assert_eq!(mode(&own, &[]), "\"strict\"", "{kind}");
        assert_eq!(mode(&own, &[other]), "\"strict\"", "{kind}: beside another key");
    }
    let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
    let arithmetic = configs.join("arithmetic-quick.toml");
    assert_eq!(mode(&arithmetic, &[]), "\"strict\"");
    let (out, said, code) = run(fgrpo()
        .args(["train", "--dry-run", "--set=task.mode=parity", "--set=task.train=64"])
        .arg(arithmetic));
    assert_eq!((code, mode_in(&out)), (0, "\"parity\""), "{said}");
    for name in ["qwen2.5-7b-math", "qwen3-4b-base-math", "llama-3.2-3b-math", "qwen3-1.7b-synlogic"] {
        assert_eq!(mode(&configs.join(format!("{name}.toml")), &[]), "\"parity\"", "{name}");
    }
}

#[test]
fn a_restated_problem_counts_where_verdicts_are_compared_with_published_ones_and_on_demand() {
    let folder = tempfile::tempdir().unwrap();
    let data = file(folder.path(), "d.jsonl", &lines(&[json!({"problem": "a", "answer": "56088"})]));
    let answer = "\\boxed{123\\times 456}";
    let samples =
        file(folder.path(), "s.jsonl", &lines(&[json!({"problem": "a", "sample": 0, "text": answer})]));
    let config = config(folder.path(), "math", &data, "").display().to_string();
    let line = lines(&[json!({"gold": "56088", "response": answer})]);
    let verified = |line: &str, flags: &[&str]| {
        let (out, said, code) = run(fgrpo().args(["verify", "math", "-"]).args(flags).write_stdin(line));
        assert_eq!(code, 0, "{said}");
        serde_json::from_str::<Value>(&out).unwrap()["reason"].as_str().unwrap().to_owned()
    };
    assert_eq!(verified(&line, &[]), "exact");
    assert_eq!(verified(&line, &["--mode", "strict"]), "restated");
    assert_eq!(verified(&line, &["--mode", "strict", "--accept-unfinished", "on"]), "exact");
    let asked = lines(&[json!({"gold": "56088", "response": answer, "accept_unfinished": true})]);
    assert_eq!(verified(&asked, &["--mode", "strict"]), "exact");
    let mut number = 0;
    let mut evaluated = |arguments: &[&str]| {
        number += 1;
        let mut eval = fgrpo();
        eval.args(["eval", "-n", "1", "--json"]).args(arguments).arg("--samples").arg(&samples);
        eval.arg("--out").arg(folder.path().join(format!("out{number}")));
        let (out, said, code) = run(&mut eval);
        assert_eq!(code, 0, "{said}");
        serde_json::from_str::<Value>(&out).unwrap()["pass_at_k"]["1"].as_f64().unwrap()
    };
    let data = data.display().to_string();
    assert_eq!(evaluated(&["--task", "math", "--data", &data]), 1.0);
    assert_eq!(evaluated(&["--task", "math", "--data", &data, "--mode", "strict"]), 0.0);
    // A training configuration sets the verifier.
    assert_eq!(evaluated(&[&config, "--data", &data]), 0.0);
    assert_eq!(evaluated(&[&config, "--data", &data, "--accept-unfinished", "on"]), 1.0);
    let unfinished = "task.verifier.accept_unfinished=true";
    assert_eq!(evaluated(&[&config, "--data", &data, "--set", unfinished]), 1.0);
    assert_eq!(evaluated(&[&config, "--data", &data, "--mode", "parity"]), 1.0);
}

#[test]
fn a_run_of_an_older_version_is_not_resumed_in_another_mode() {
    let folder = tempfile::tempdir().unwrap();
    let data = file(folder.path(), "d.jsonl", &lines(&[json!({"problem": "a", "answer": "1"})]));
    let config = config(folder.path(), "math", &data, "");
    let out = folder.path().join("run");
    let train = |config: &Path, more: &[&str]| {
        run(fgrpo().arg("train").arg(config).arg("--out").arg(&out).args(["--set", "steps=1"]).args(more))
    };
    // If parity was the default, the run's configuration contains it.
    let (_, said, code) = train(&config, &["--set", "task.verifier.mode=parity"]);
    assert_eq!(code, 0, "{said}");
    let (_, said, code) = train(&config, &["--resume"]);
    assert!(code == 2 && said.contains("task.verifier.mode: \"parity\" -> \"strict\""), "{code}: {said}");
    let (_, said, code) = train(&out.join("config.toml"), &["--resume"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(mode_in(&std::fs::read_to_string(out.join("config.toml")).unwrap()), "\"parity\"");
}

/// A grader in Python: `body` answers the line `d`.
fn grader(folder: &Path, body: &str) -> String {
    let script = format!(
        "import sys, json\nfor line in sys.stdin:\n    d = json.loads(line)\n    {body}\n    sys.stdout.flush()\n"
    );
    format!("python3 {}", file(folder, "grade.py", &script).display())
}

#[test]
fn a_grader_that_cannot_start_or_always_crashes_is_refused_before_any_work() {
    let folder = tempfile::tempdir().unwrap();
    let data = file(folder.path(), "d.jsonl", &lines(&[json!({"prompt": "a"}), json!({"prompt": "b"})]));
    let input = file(folder.path(), "in.jsonl", &lines(&[json!({"problem": {}, "response": "x"})]));
    let samples =
        file(folder.path(), "s.jsonl", &lines(&[json!({"problem": "a", "sample": 0, "text": "x"})]));
    let crashing = grader(folder.path(), "undefined_name");
    let talkative = "echo ready".to_owned();
    for command in ["python3 no-such-grader.py".to_owned(), crashing, talkative] {
        let words: Vec<String> = command.split(' ').map(|w| format!("{w:?}")).collect();
        let verifier = format!("[task.verifier.command]\ncommand = [{}]", words.join(", "));
        let config = config(folder.path(), "command", &data, &verifier);
        let out = folder.path().join("never");
        let mut eval = fgrpo();
        eval.args(["eval", "--task", "command", "-n", "1", "--verifier", &command]);
        eval.arg("--samples")
            .arg(&samples)
            .arg("--data")
            .arg(&data)
            .arg("--out")
            .arg(folder.path().join("e"));
        let mut commands = [("train", fgrpo()), ("verify", fgrpo()), ("eval", eval)];
        commands[0].1.arg("train").arg(&config).arg("--out").arg(&out);
        commands[1].1.args(["verify", "command", "--command", &command]).arg(&input);
        for (name, process) in &mut commands {
            let (stdout, said, code) = run(process);
            assert_eq!(code, 2, "{name}, {command}: {said}");
            assert!(said.contains(&format!("`{command}`")), "{name}: {said}");
            assert!(stdout.is_empty(), "{name}: {stdout}");
        }
        assert!(!out.exists(), "a run folder without a grader");
    }
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
fn graded_scores_train_by_default_and_their_program_says_which_are_correct() {
    let folder = tempfile::tempdir().unwrap();
    let data = file(folder.path(), "d.jsonl", &lines(&[json!({"prompt": "a"}), json!({"prompt": "b"})]));
    let command =
        grader(folder.path(), "print(json.dumps({'score': sum(map(ord, d['completion'])) % 5 / 4}))");
    let words: Vec<String> = command.split(' ').map(|w| format!("{w:?}")).collect();
    let verifier = format!("[task.verifier.command]\ncommand = [{}]\ncorrect_from = 0.5", words.join(", "));
    let config = config(folder.path(), "command", &data, &verifier);
    let out = folder.path().join("run");
    let (_, said, code) = run(fgrpo().arg("train").arg(&config).arg("--out").arg(&out));
    assert_eq!(code, 0, "{said}");
    let metrics = std::fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    let steps: Vec<serde_json::Value> = metrics.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let groups = |m: &serde_json::Value| -> u64 {
        m["success_rate_histogram"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum()
    };
    assert!(steps.len() == 6 && steps.iter().all(|m| groups(m) == 2), "{metrics}");
}

#[test]
fn verify_ends_with_one_when_nothing_could_be_graded() {
    let folder = tempfile::tempdir().unwrap();
    let command = grader(folder.path(), "print(json.dumps({'unscorable': 'no tests'}))");
    let input = lines(&[json!({"problem": {}, "response": "x"}), json!({"problem": {}, "response": "y"})]);
    let (out, said, code) =
        run(fgrpo().args(["verify", "command", "-", "--command", &command]).write_stdin(&*input));
    assert_eq!((out.lines().count(), code), (2, 1), "{said}");
    assert!(said.contains("none of the 2 lines could be graded; the first: no tests"), "{said}");
}

#[test]
fn an_evaluation_in_which_nothing_could_be_graded_fails_whatever_share_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let command = grader(folder.path(), "print(json.dumps({'unscorable': 'no tests'}))");
    let data = file(folder.path(), "d.jsonl", &lines(&[json!({"prompt": "a"})]));
    let samples =
        file(folder.path(), "s.jsonl", &lines(&[json!({"problem": "a", "sample": 0, "text": "x"})]));
    let mut eval = fgrpo();
    eval.args(["eval", "--task", "command", "-n", "1", "--max-unscorable", "1", "--verifier", &command]);
    eval.arg("--samples").arg(&samples).arg("--data").arg(&data).arg("--out").arg(folder.path().join("e"));
    let (_, said, code) = run(&mut eval);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("could be graded"), "{said}");
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
    let words: Vec<String> = command.split(' ').map(|w| format!("{w:?}")).collect();
    let config = config(
        folder.path(),
        "command",
        &data,
        &format!("[task.verifier.command]\ncommand = [{}]", words.join(", ")),
    );
    let train = |more: &[&str], out: &Path| {
        let mut train = fgrpo();
        train.arg("train").arg(&config).args(more).arg("--out").arg(out);
        run(&mut train)
    };
    let out = folder.path().join("run");
    let evaluated =
        ["--set", "grade.max_unscorable=2", "--set", "task.held_out_share=0.5", "--set", "eval.every=1"];
    let (_, said, code) =
        train(&[&evaluated[..], &["--set", "eval.samples=1", "--set", "eval.k=[1]"]].concat(), &out);
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
    // A run that ended before the limit had no result either.
    let (_, said, code) = train(&["--set", "steps=2"], &folder.path().join("short"));
    assert_eq!(code, 1, "{said}");
    assert!(model().exists() && said.contains("in any of the 2 steps"), "{said}");
}

#[test]
fn a_percentage_is_a_number_by_one_setting_in_verify_eval_and_training() {
    let folder = tempfile::tempdir().unwrap();
    let answer = "so \\boxed{35\\%}";
    let input = lines(&[json!({"gold": "35", "response": answer})]);
    let verify =
        |flags: &[&str]| run(fgrpo().args(["verify", "math", "-"]).args(flags).write_stdin(&*input)).0;
    assert!(verify(&["--mode", "strict"]).contains("wrong"));
    assert!(verify(&["--mode", "strict", "--percent-as-number", "on"]).contains("correct"));
    let data = file(folder.path(), "d.jsonl", &lines(&[json!({"problem": "What share?", "answer": "35"})]));
    let samples = file(
        folder.path(),
        "s.jsonl",
        &lines(&[json!({"problem": "What share?", "sample": 0, "text": answer})]),
    );
    let share = |verifier: &str, flags: &[&str]| {
        let path = config(folder.path(), "math", &data, "").with_file_name("percent.toml");
        let text = std::fs::read_to_string(path.with_file_name("run.toml")).unwrap();
        let own = format!("held_out = {data:?}\n[task.verifier]\nmode = \"strict\"\n{verifier}");
        std::fs::write(&path, text.replace("held_out_share = 0\n", &format!("{own}\n"))).unwrap();
        let mut eval = fgrpo();
        eval.arg("eval").arg(&path).args(["-n", "1", "-k", "1", "--json", "--samples"]).arg(&samples);
        let (out, said, code) = run(eval.args(flags).arg("--out").arg(folder.path().join("e")));
        assert_eq!(code, 0, "{said}");
        serde_json::from_str::<Value>(&out).unwrap()["pass_at_k"]["1"].as_f64().unwrap()
    };
    assert_eq!(share("", &[]), 0.0);
    assert_eq!(share("percent_as_number = true", &[]), 1.0);
    assert_eq!(share("percent_as_number = true", &["--percent-as-number", "off"]), 0.0);
    assert_eq!(share("", &["--percent-as-number", "on"]), 1.0);
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
    let samples: Vec<Value> =
        (0..200).map(|i| json!({"problem": format!("Say {i}"), "sample": 0, "text": "x"})).collect();
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
    let started = std::time::Instant::now();
    while calls() < 4 {
        assert!(started.elapsed() < std::time::Duration::from_secs(60), "nothing is graded");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // SAFETY: sends a signal to the child started above, which has not been waited for.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
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
fn ifbench_is_verified_evaluated_with_its_four_accuracies_and_trained_on() {
    let folder = tempfile::tempdir().unwrap();
    let data = file(folder.path(), "ifbench.jsonl", &lines(&ifbench()));
    let responses = ["**I have 3 or 4.**", "Sure:\nMaybe.", "A Title in Case"];
    let mut rows = ifbench();
    let samples: Vec<Value> = rows
        .iter_mut()
        .zip(responses)
        .map(|(row, response)| {
            row["response"] = response.into();
            json!({"problem": row["prompt"], "sample": 0, "text": response})
        })
        .collect();
    let (out, said, code) = run(fgrpo().args(["verify", "ifeval", "-"]).write_stdin(lines(&rows)));
    assert_eq!(code, 0, "{said}");
    let labels = |name: &str| -> Vec<Value> {
        out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()[name][0].clone()).collect()
    };
    assert_eq!(
        (labels("strict"), labels("loose")),
        (vec![true.into(), false.into(), false.into()], vec![true.into(), true.into(), false.into()])
    );

    let samples = file(folder.path(), "samples.jsonl", &lines(&samples));
    let eval = |more: &[&str]| {
        let mut eval = fgrpo();
        eval.args(["eval", "--task", "ifeval", "-n", "1"]).args(more);
        eval.arg("--samples")
            .arg(&samples)
            .arg("--data")
            .arg(&data)
            .arg("--out")
            .arg(folder.path().join("out"));
        let (out, said, code) = run(&mut eval);
        assert_eq!(code, 0, "{said}");
        (out, said)
    };
    let third = 1.0 / 3.0;
    // The second time, from the scores in the folder.
    for _ in 0..2 {
        let value: Value = serde_json::from_str(&eval(&["--json"]).0).unwrap();
        let accuracies = json!({"prompt_strict": third, "prompt_loose": 2.0 * third, "instruction_strict": third, "instruction_loose": 2.0 * third});
        assert_eq!((&value["pass_at_k"]["1"], &value["instructions"]), (&json!(third), &accuracies));
    }
    let (_, said) = eval(&[]);
    assert!(said.contains("of 33.3 % of the samples followed (loosely 66.7 %)"), "{said}");

    // A log of lm-eval.
    let log: Vec<Value> = ifbench()
        .iter()
        .zip(responses)
        .enumerate()
        .map(|(i, (doc, response))| json!({"doc_id": i, "doc": doc, "target": 0, "resps": [[response]]}))
        .collect();
    let log = file(folder.path(), "samples_ifbench_2026-01-01T00-00-00.000000.jsonl", &lines(&log));
    let (out, said, code) = run(fgrpo().args(["pass-at-k", "--json"]).arg(&log));
    let value: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{code}: {said}"));
    assert_eq!(value["pass_at_k"]["1"], third, "{out}");

    let config = config(folder.path(), "ifeval", &data, "");
    let run_folder = folder.path().join("run");
    let (_, said, code) =
        run(fgrpo().arg("train").arg(&config).args(["--set", "steps=1", "--out"]).arg(&run_folder));
    assert_eq!(code, 0, "{said}");
    let rollouts = std::fs::read_to_string(run_folder.join("rollouts.jsonl")).unwrap();
    assert!(rollouts.contains("count:numbers") || rollouts.contains("format:"), "{rollouts}");
}
