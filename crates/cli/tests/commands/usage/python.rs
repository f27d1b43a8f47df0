//! A user's own Python function as the grader, from the command line to the run folder. Tests in crates/eval have its
//! verdicts.

use super::{config, fgrpo, file, run};
use crate::support::lines;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Writes a file with functions. Returns the name of its function `reward`.
fn grader(folder: &Path, script: &str) -> String {
    format!("{}:reward", file(folder, "own.py", script).display())
}

/// Eight problems whose answer is 4.
fn problems(folder: &Path) -> PathBuf {
    let row = |i| format!("{}\n", json!({"question": format!("Say {i}"), "answer": "4"}));
    file(folder, "d.jsonl", &(0..8).map(row).collect::<String>())
}

#[test]
fn several_rewards_are_normalised_apart_in_training() {
    let folder = tempfile::tempdir().unwrap();
    let data = problems(folder.path());
    let script = "def reward(completion, answer):\n    n = len(completion)\n    return {'score': n % 2, 'rewards': {'long': n, 'odd': n % 2, 'same': 1}}\n";
    let grader = grader(folder.path(), script);
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
    let rollouts = lines(&out.join("rollouts.jsonl"));
    let steps = lines(&out.join("metrics.jsonl"));
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
    let short = [&gdpo[..], &["--set=algorithm.reward_weights.short=2"]].concat();
    let (_, said, code) = train("bad", &short);
    let says =
        "algorithm.reward_weights.short: the grader doesn't return this reward; it returns long, odd, same";
    assert!(code == 2 && said.contains(says), "{code}: {said}");
}

#[test]
fn a_grader_that_cannot_work_is_refused_before_any_work() {
    let folder = tempfile::tempdir().unwrap();
    let data = file(folder.path(), "d.jsonl", "{\"prompt\": \"a\", \"answer\": \"b\"}\n");
    let grader = grader(folder.path(), "def reward(completion, gold):\n    return True\n");
    let config = config(folder.path(), "python", &data, &format!("grader = {grader:?}"));
    let out = folder.path().join("never");
    let mut verify = fgrpo();
    verify.args(["verify", "python", "-", "--grader", &grader]).write_stdin("{\"response\": \"x\"}\n");
    let mut train = fgrpo();
    train.arg("train").arg(&config).arg("--out").arg(&out);
    for (command, columns) in [(verify, ""), (train, "other arguments can be columns: prompt, answer")] {
        let (_, said, code) = run(command);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains("missing 1 required positional argument: 'gold'"), "{said}");
        assert!(said.contains(columns) && !said.contains("<string>"), "{said}");
    }
    assert!(!out.exists(), "a run folder without a grader");
}

#[test]
fn a_run_is_resumed_with_another_grader_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let data = problems(folder.path());
    let script = "def reward(completion, answer):\n    return len(completion) % 2\n";
    let config =
        config(folder.path(), "python", &data, &format!("grader = {:?}", grader(folder.path(), script)));
    let out = folder.path().join("run");
    let train = |steps: u64, more: &[&str]| {
        let steps = format!("--set=steps={steps}");
        run(fgrpo().arg("train").arg(&config).arg("--out").arg(&out).arg(steps).args(more))
    };
    assert_eq!(train(2, &[]).2, 0);
    grader(folder.path(), &script.replace("% 2", "% 3 == 0"));
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
fn a_function_of_trl_gets_the_messages_of_any_column() {
    let folder = tempfile::tempdir().unwrap();
    let of = |i: u32| json!({"messages": [{"role": "user", "content": format!("Say {i}")}], "answer": "4"});
    let data = file(folder.path(), "d.jsonl", &format!("{}\n{}\n", of(1), of(2)));
    let samples = "{\"problem\": \"Say 1\", \"text\": \"x\"}\n{\"problem\": \"Say 2\", \"text\": \"x\"}\n";
    let samples = file(folder.path(), "s.jsonl", samples);
    let grade = |script: &str, out: &str| {
        let mut eval = fgrpo();
        eval.args(["eval", "--task", "python", "-n", "1", "--grader", &grader(folder.path(), script)]);
        eval.arg("--samples").arg(&samples).arg("--data").arg(&data);
        run(eval.arg("--out").arg(folder.path().join(out)))
    };
    let (out, said, code) = grade(
        "def reward(completions, prompts, **kw):\n    same = prompts[0][-1]['content'] == 'Say 1'\n    return [float(same and completions[0][0]['content'] == 'x')]\n",
        "messages",
    );
    assert!(code == 0 && out.contains("50.0"), "{out}{said}");
    // The run reports rewards without a correct completion, because all pass@k are 0.
    let (out, said, code) = grade("def reward(completion):\n    return 0.5\n", "graded");
    assert!(code == 0 && format!("{out}{said}").contains("no sample reaches correct_from"), "{out}{said}");
}

#[test]
fn training_and_evaluation_call_the_function_with_the_columns_of_the_row() {
    let folder = tempfile::tempdir().unwrap();
    let rows: String = (0..8)
        .map(|i| format!("{}\n", json!({"question": format!("Say {i}"), "final": "4", "n": i})))
        .collect();
    let data = file(folder.path(), "d.jsonl", &rows);
    let script = "def reward(completion, answer, n):\n    print('row', n, answer)\n    return (len(completion) * 7 + n) % 4 / 3\n";
    let grader = grader(folder.path(), script);
    let more =
        format!("grader = {{ function = {grader:?}, correct_from = 0.5 }}\ncolumns.answer = \"final\"");
    let config = config(folder.path(), "python", &data, &more);
    let out = folder.path().join("run");
    let (_, said, code) = run(fgrpo().arg("train").arg(&config).arg("--out").arg(&out));
    assert_eq!(code, 0, "{said}");
    let rollouts = lines(&out.join("rollouts.jsonl"));
    assert!(
        rollouts.len() == 24 && rollouts.iter().all(|l| l["printed"].as_str().unwrap().ends_with(" 4\n"))
    );
    assert!(rollouts.iter().any(|l| l["reward"] == 1.0 / 3.0), "graded scores: {rollouts:?}");
    let steps = lines(&out.join("metrics.jsonl"));
    let groups = |step: &Value| -> u64 {
        let histogram = step["success_rate_histogram"].as_array().unwrap();
        histogram.iter().map(|n| n.as_u64().unwrap()).sum()
    };
    assert!(
        steps.len() == 6 && steps.iter().all(|step| groups(step) == 2),
        "graded groups are counted: {steps:?}"
    );
    assert!(rollouts.iter().all(|l| (l["verdict"] == "correct") == (l["reward"].as_f64() >= Some(0.5))));

    let samples: String = (0..8)
        .map(|i| format!("{}\n", json!({"problem": format!("Say {i}"), "sample": 0, "text": "x"})))
        .collect();
    let samples = file(folder.path(), "s.jsonl", &samples);
    let eval = || {
        let mut eval = fgrpo();
        eval.args(["eval", "--task", "python", "-n", "1", "--json", "--columns", "answer=final"]);
        eval.args(["--grader", &grader, "--correct-from", "0.5"]);
        eval.arg("--samples").arg(&samples).arg("--data").arg(&data);
        let (out, said, code) = run(eval.arg("--out").arg(folder.path().join("e")));
        assert_eq!(code, 0, "{said}");
        let page: Value = serde_json::from_str(&out).unwrap();
        (page["pass_at_k"]["1"].as_f64().unwrap(), page["mean_reward"].as_f64().unwrap())
    };
    assert_eq!(eval(), (0.5, 0.5), "(7 + n) % 4 / 3 >= 0.5 holds for half of the rows; their mean");
    // The grader's file affects verdicts.
    self::grader(folder.path(), "def reward(completion):\n    return 1\n");
    assert_eq!(eval(), (1.0, 1.0));
}
