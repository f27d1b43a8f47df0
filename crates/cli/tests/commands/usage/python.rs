//! A user's own Python function as the grader.

use super::{config, fgrpo, file, run};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

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

number = 7
"#;

/// Eight problems whose answer is 4.
fn problems(folder: &Path) -> PathBuf {
    let row = |i| format!("{}\n", json!({"question": format!("Say {i}"), "answer": "4"}));
    file(folder, "d.jsonl", &(0..8).map(row).collect::<String>())
}

/// Grades answers to the question whose answer is 4.
fn grade(folder: &Path, responses: &[&str], more: &[&str]) -> (Vec<Value>, String, i32) {
    let grader = format!("{}:reward", file(folder, "grade.py", GRADE).display());
    let input: String =
        responses.iter().map(|r| format!("{}\n", json!({"answer": "4", "response": r}))).collect();
    let mut command = fgrpo();
    command.args(["verify", "python", "-", "--grader", &grader]).args(more);
    let (out, said, code) = run(command.write_stdin(&*input));
    (out.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), said, code)
}

#[test]
fn results_of_every_form_are_rewards_or_unscorable() {
    let folder = tempfile::tempdir().unwrap();
    let given = [
        ("so 4", json!(["correct", 1.0, "score"])),
        ("so 5", json!(["wrong", 0.0, "score"])),
        ("give 0.25", json!(["wrong", 0.25, "score"])),
        ("give {'score': 2, 'more': 'x'}", json!(["correct", 2.0, "score"])),
        ("give {'reward': True}", json!(["correct", 1.0, "score"])),
        ("give None", json!(["unscorable", null, "the grader returned None"])),
        ("give {'score': None, 'reason': 'no tests'}", json!(["unscorable", null, "no tests"])),
        ("give float('nan')", json!(["unscorable", null, "the grader returned NaN"])),
        ("give {'score': 1, 'rewards': {'short': 0.5}}", json!(["correct", 1.0, "score"])),
        (
            "give {'score': 1, 'rewards': {'short': float('nan')}}",
            json!(["unscorable", null, "the grader returned NaN"]),
        ),
        (
            "give {'score': 1, 'rewards': {'short': 'x'}}",
            json!(["unscorable", null, "raised ValueError: could not convert string to float: 'x'"]),
        ),
        (
            "give '1.0'",
            json!(["unscorable", null, "raised TypeError: expected a number, returned the string '1.0'"]),
        ),
        (
            "give {}",
            json!([
                "unscorable",
                null,
                "raised TypeError: expected a dict with the key score, returned a dict with nothing"
            ]),
        ),
    ];
    let (answers, said, code) = grade(folder.path(), &given.each_ref().map(|g| g.0), &[]);
    assert_eq!(code, 0, "{said}");
    for ((response, wanted), found) in given.iter().zip(&answers) {
        assert_eq!(json!([found["verdict"], found["reward"], found["reason"]]), *wanted, "{response}");
    }
}

#[test]
fn several_rewards_are_normalised_apart_in_training() {
    let folder = tempfile::tempdir().unwrap();
    let data = problems(folder.path());
    let script = "def reward(completion, answer):\n    n = len(completion)\n    return {'score': n % 2, 'rewards': {'long': n, 'odd': n % 2, 'same': 1}}\n";
    let grader = format!("{}:reward", file(folder.path(), "own.py", script).display());
    let config = config(folder.path(), "python", &data, &format!("grader = {grader:?}"));
    let weights = "--set=algorithm.reward_weights={ long = 0.5, same = 3 }";
    let train = |out: &str, more: &[&str]| {
        let out = folder.path().join(out);
        let (_, said, code) = run(fgrpo().arg("train").arg(&config).args(more).arg("--out").arg(&out));
        (out, said, code)
    };
    let gdpo =
        ["--set=algorithm.advantage=gdpo", "--set=algorithm.focal_gamma=0", "--set=rollout.group_size=3"];
    let (out, said, code) = train("run", &[&gdpo[..], &[weights]].concat());
    assert_eq!(code, 0, "{said}");
    let rollouts = crate::support::lines(&out.join("rollouts.jsonl"));
    let steps = crate::support::lines(&out.join("metrics.jsonl"));
    let mut moved = 0;
    for step in &steps {
        let own: Vec<&Value> = rollouts.iter().filter(|r| r["step"] == step["step"]).collect();
        let part = |r: &Value, name: &str| r["rewards"][name].as_f64().unwrap();
        let mean = |name: &str| own.iter().map(|r| part(r, name)).sum::<f64>() / 6.0;
        assert!((step["rewards"]["long"].as_f64().unwrap() - mean("long")).abs() < 1e-9);
        let deviation = |x: &[f64]| {
            let mean = x.iter().sum::<f64>() / x.len() as f64;
            (x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (x.len() - 1) as f64).sqrt()
        };
        let mut sums = Vec::new();
        for group in own.chunks(3) {
            assert!(group.iter().all(|r| r["prompt_id"] == group[0]["prompt_id"]));
            let mut of_group = [0.0; 3];
            for (name, weight) in [("long", 0.5), ("odd", 1.0), ("same", 3.0)] {
                let values: Vec<f64> = group.iter().map(|r| part(r, name)).collect();
                let (mean, s) = (values.iter().sum::<f64>() / 3.0, deviation(&values));
                (0..3).for_each(|i| of_group[i] += weight * (values[i] - mean) / (s + 1e-4));
            }
            sums.extend(of_group);
        }
        let scale = deviation(&sums) + 1e-4;
        for (r, sum) in own.iter().zip(&sums) {
            let found = r["advantage"].as_f64().unwrap();
            assert!((found - sum / scale).abs() < 1e-9, "{r}: wanted {}", sum / scale);
            moved += usize::from(found != 0.0);
        }
    }
    assert!(moved > 0, "no completion had an advantage");
    for (more, says) in [
        (
            vec!["--set=algorithm.focal_gamma=0", weights],
            "algorithm.reward_weights.long: has no effect with the advantage grpo",
        ),
        (
            [&gdpo[..], &["--set=algorithm.reward_weights.short=2"]].concat(),
            "algorithm.reward_weights.short: the grader doesn't return this reward; it returns long, odd, same",
        ),
        (
            [&gdpo[..], &["--set=algorithm.shaping=unlikely"]].concat(),
            "algorithm.advantage: expected an estimator of a single reward",
        ),
    ] {
        let (_, said, code) = train("bad", &more);
        assert!(code == 2 && said.contains(says), "{code}: {said}");
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
    let more = ["--timeout-s", "0.5", "--threads", "1"];
    let (answers, said, code) = grade(folder.path(), &given.map(|g| g.0), &more);
    assert_eq!(code, 0, "{said}");
    assert_eq!(answers.iter().map(|a| a["reason"].as_str().unwrap()).collect::<Vec<_>>(), given.map(|g| g.1));
    let printed = answers[0]["printed"].as_str().unwrap();
    assert!(printed.starts_with("asked to do raise") && printed.contains("in reward"), "{printed}");
    assert!(!printed.contains("in call"), "the worker's own frames say nothing to the user: {printed}");
    assert!(answers[6]["printed"].as_str().unwrap().ends_with("{\"score\": 1}\n") && said.contains("x\ny"));
}

#[test]
fn a_reward_function_of_trl_is_called_as_there() {
    let folder = tempfile::tempdir().unwrap();
    let grader = format!("{}:trl", file(folder.path(), "grade.py", GRADE).display());
    let messages = json!([{"role": "user", "content": "2+2"}]);
    let input = format!(
        "{}\n{}\n",
        json!({"prompt": "2+2", "answer": "4", "response": "so 4"}),
        json!({"prompt": messages, "answer": "4", "completion": "four"}),
    );
    let (out, said, code) =
        run(fgrpo().args(["verify", "python", "-", "--grader", &grader]).write_stdin(&*input));
    let rewards: Vec<f64> =
        out.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()["reward"].as_f64().unwrap()).collect();
    assert_eq!((code, rewards), (0, vec![1.0, 4.0]), "{said}");
}

#[test]
fn a_grader_that_cannot_work_is_refused_before_any_work() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "grade.py", GRADE);
    let broken = file(folder.path(), "broken.py", "def reward(completion:\n");
    let data = file(folder.path(), "d.jsonl", "{\"prompt\": \"a\", \"answer\": \"b\"}\n");
    for (grader, wanted) in [
        (format!("{}:gold", path.display()), "missing 1 required positional argument: 'gold'"),
        (
            format!("{}:none", path.display()),
            "found nothing callable that is called none; it defines reward, trl, gold",
        ),
        (format!("{}:number", path.display()), "found nothing callable that is called number; it defines"),
        (format!("{}:reward", broken.display()), "SyntaxError"),
        (format!("{}:reward", folder.path().join("no.py").display()), "no.py: no such file"),
        (path.display().to_string(), "expected FILE.py:NAME"),
    ] {
        let config = config(folder.path(), "python", &data, &format!("grader = {grader:?}"));
        let out = folder.path().join("never");
        let mut verify = fgrpo();
        verify.args(["verify", "python", "-", "--grader", &grader]).write_stdin("{\"response\": \"x\"}\n");
        let mut train = fgrpo();
        train.arg("train").arg(&config).arg("--out").arg(&out);
        for command in [&mut verify, &mut train] {
            let (_, said, code) = run(command);
            assert_eq!(code, 2, "{said}");
            assert!(said.contains(wanted), "wanted {wanted:?} in: {said}");
            assert!(said.matches("Traceback").count() <= 1 && !said.contains("<string>"), "{said}");
        }
        let (_, said, _) = run(&mut train);
        assert_eq!(
            said.contains("other arguments can be columns: prompt, answer"),
            wanted.contains("positional"),
            "{said}"
        );
        assert!(!out.exists(), "a run folder without a grader");
    }
    for (kind, more, wanted) in [
        ("python", "", "task.grader: this key is missing"),
        ("math", "grader = \"grade.py:reward\"", "task.grader: expected task.kind"),
        ("command", "", "task.verifier.command: this key is missing"),
        ("python", "grader = { function = \"g.py:f\", timeout = 1 }", "timeout_s"),
    ] {
        let (_, said, code) = run(fgrpo().arg("train").arg(config(folder.path(), kind, &data, more)));
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(wanted), "wanted {wanted:?} in: {said}");
    }
}

#[test]
fn a_run_is_resumed_with_another_grader_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let data = problems(folder.path());
    let script = "def reward(completion, answer):\n    return len(completion) % 2\n";
    let grader = file(folder.path(), "own.py", script);
    let config = config(folder.path(), "python", &data, &format!("grader = \"{}:reward\"", grader.display()));
    let out = folder.path().join("run");
    let train = |steps: u64, more: &[&str]| {
        let mut train = fgrpo();
        train
            .arg("train")
            .arg(&config)
            .arg("--out")
            .arg(&out)
            .args(["--set", &format!("steps={steps}")])
            .args(more);
        run(&mut train)
    };
    assert_eq!(train(2, &[]).2, 0);
    std::fs::write(&grader, script.replace("% 2", "% 3 == 0")).unwrap();
    let (_, said, code) = train(2, &["--resume"]);
    assert!(
        code == 2 && said.contains("the grader has changed since the run's last session"),
        "{code}: {said}"
    );
    let (_, said, code) = train(3, &["--resume", "--accept-changes"]);
    assert_eq!(code, 0, "{said}");
    // The new function is now the run's function.
    assert_eq!(train(3, &["--resume"]).2, 0);
}

#[test]
fn a_list_of_rewards_for_one_completion_has_one() {
    let folder = tempfile::tempdir().unwrap();
    let script = "def reward(completions, answer):\n    return [1.0, 0.0]\n";
    let grader = format!("{}:reward", file(folder.path(), "own.py", script).display());
    let mut command = fgrpo();
    command.args(["verify", "python", "-", "--grader", &grader]);
    let (_, said, code) = run(command.write_stdin("{\"answer\": \"4\", \"response\": \"4\"}\n"));
    // The first call finds the mistake, before any work.
    assert!(code == 2 && said.contains("returned 2 rewards for one completion"), "{code}: {said}");
}

#[test]
fn a_function_of_trl_gets_the_messages_of_any_column() {
    let folder = tempfile::tempdir().unwrap();
    let of = |i: u32| json!({"messages": [{"role": "user", "content": format!("Say {i}")}], "answer": "4"});
    let data = file(folder.path(), "d.jsonl", &format!("{}\n{}\n", of(1), of(2)));
    let samples = "{\"problem\": \"Say 1\", \"text\": \"x\"}\n{\"problem\": \"Say 2\", \"text\": \"x\"}\n";
    let samples = file(folder.path(), "s.jsonl", samples);
    let grade = |script: &str, out: &str| {
        let grader = format!("{}:reward", file(folder.path(), "own.py", script).display());
        let mut eval = fgrpo();
        eval.args(["eval", "--task", "python", "-n", "1", "--grader", &grader, "--samples"]).arg(&samples);
        run(eval.arg("--data").arg(&data).arg("--out").arg(folder.path().join(out)))
    };
    let (out, said, code) = grade(
        "def reward(completions, prompts, **kw):\n    same = prompts[0][-1]['content'] == 'Say 1'\n    return [float(same and completions[0][0]['content'] == 'x')]\n",
        "messages",
    );
    assert!(code == 0 && out.contains("50.0"), "{out}{said}");
    // The run reports rewards without a correct completion, because all pass@k are 0.
    let (out, said, code) = grade("def reward(completion):\n    return 0.5\n", "graded");
    assert!(code == 0 && format!("{out}{said}").contains("no sample reaches correct_from"), "{out}{said}");
    let (_, said, code) = grade("def reward(completions):\n    return 1.0\n", "number");
    assert!(
        code == 2 && said.contains("expected a list with one reward for each completion, returned 1.0"),
        "{said}"
    );
}

#[test]
fn training_and_evaluation_call_the_function_with_the_columns_of_the_row() {
    let folder = tempfile::tempdir().unwrap();
    let rows: String = (0..8)
        .map(|i| format!("{}\n", json!({"question": format!("Say {i}"), "final": "4", "n": i})))
        .collect();
    let data = file(folder.path(), "d.jsonl", &rows);
    let script = "def reward(completion, answer, n):\n    print('row', n, answer)\n    return (len(completion) * 7 + n) % 4 / 3\n";
    let grader = format!("{}:reward", file(folder.path(), "own.py", script).display());
    let more =
        format!("grader = {{ function = {grader:?}, correct_from = 0.5 }}\ncolumns.answer = \"final\"");
    let config = config(folder.path(), "python", &data, &more);
    let out = folder.path().join("run");
    let (_, said, code) = run(fgrpo().arg("train").arg(&config).arg("--out").arg(&out));
    assert_eq!(code, 0, "{said}");
    let rollouts = std::fs::read_to_string(out.join("rollouts.jsonl")).unwrap();
    let lines: Vec<Value> = rollouts.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert!(lines.len() == 24 && lines.iter().all(|l| l["printed"].as_str().unwrap().ends_with(" 4\n")));
    assert!(lines.iter().any(|l| l["reward"] == 1.0 / 3.0), "graded scores: {rollouts}");
    let steps = crate::support::lines(&out.join("metrics.jsonl"));
    let groups = |step: &Value| -> u64 {
        let histogram = step["success_rate_histogram"].as_array().unwrap();
        histogram.iter().map(|n| n.as_u64().unwrap()).sum()
    };
    assert!(
        steps.len() == 6 && steps.iter().all(|step| groups(step) == 2),
        "graded groups are counted: {steps:?}"
    );
    assert!(lines.iter().all(|l| (l["verdict"] == "correct") == (l["reward"].as_f64() >= Some(0.5))));

    let samples: String = (0..8)
        .map(|i| format!("{}\n", json!({"problem": format!("Say {i}"), "sample": 0, "text": "x"})))
        .collect();
    let samples = file(folder.path(), "s.jsonl", &samples);
    let eval = |more: &[&str]| {
        let mut eval = fgrpo();
        eval.args(["eval", "--task", "python", "-n", "1", "--json", "--columns", "answer=final"]);
        eval.args(["--grader", &grader, "--correct-from", "0.5"]).args(more);
        eval.arg("--samples")
            .arg(&samples)
            .arg("--data")
            .arg(&data)
            .arg("--out")
            .arg(folder.path().join("e"));
        let (out, said, code) = run(&mut eval);
        assert_eq!(code, 0, "{said}");
        let page: Value = serde_json::from_str(&out).unwrap();
        (page["pass_at_k"]["1"].as_f64().unwrap(), page["mean_reward"].as_f64().unwrap())
    };
    assert_eq!(eval(&[]), (0.5, 0.5), "(7 + n) % 4 / 3 >= 0.5 holds for half of the rows; their mean");
    // The grader's file affects verdicts.
    file(folder.path(), "own.py", "def reward(completion):\n    return 1\n");
    assert_eq!(eval(&[]), (1.0, 1.0));
}
