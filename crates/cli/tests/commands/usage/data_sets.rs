//! Data sets as users download them, and `fgrpo data show`.

use super::{config, fgrpo, file, model, run};
use crate::files::{gz, rows, zst};
use serde_json::{Value, json};

#[test]
fn what_is_read_for_training_is_read_for_verifying_scoring_and_evaluating() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let data = at("data");
    std::fs::create_dir(&data).unwrap();
    gz(&data.join("train-00000-of-00001.jsonl.gz"), &rows(0, 3));
    let path = config(folder.path(), "math", &data.join("train"), "");
    let (_, said, code) =
        run(fgrpo().arg("train").arg(&path).args(["--set", "steps=1", "--out"]).arg(at("run")));
    assert_eq!(code, 0, "{said}");

    let samples: String = (0..3)
        .map(|i| format!("{}\n", json!({"problem": i, "sample": 0, "text": format!("\\boxed{{{}}}", i + 1)})))
        .collect();
    zst(&at("samples.jsonl.zst"), &samples);
    let mut eval = fgrpo();
    eval.args(["eval", "--task", "math", "-n", "1", "--json", "--samples"]).arg(at("samples.jsonl.zst"));
    eval.arg("--data").arg(data.join("train")).arg("--out").arg(at("eval"));
    let (out, said, code) = run(&mut eval);
    assert_eq!(code, 0, "{said}");
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["pass_at_k"]["1"], 1.0);

    gz(&at("v.jsonl.gz"), &format!("{}\n", json!({"gold": "1", "response": "\\boxed{1}"})));
    assert!(run(fgrpo().args(["verify", "math"]).arg(at("v.jsonl.gz"))).0.contains("correct"));
    gz(&at("t.jsonl.gz"), "{\"tokens\": [5, 6, 7]}\n");
    let (out, ..) = run(fgrpo().arg("score").arg("--model").arg(model()).arg(at("t.jsonl.gz")));
    assert!(out.contains("logp"), "{out}");
    gz(&at("s.jsonl.gz"), "{\"problem\": \"a\", \"n\": 4, \"c\": 1}\n");
    let (out, ..) = run(fgrpo().args(["pass-at-k", "-k", "1", "--json"]).arg(at("s.jsonl.gz")));
    let value: Value = serde_json::from_str(&out).unwrap();
    assert!((value["pass_at_k"]["1"].as_f64().unwrap() - 0.25).abs() < 1e-9, "{out}");
}

#[test]
fn data_show_prints_prompts_as_the_model_sees_them_and_golds_as_they_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let lines = format!(
        "{}\n{}\n",
        json!({"question": "How many?", "answer": "40 + 32 are 72.\n#### 72"}),
        json!({"question": "Which word?", "answer": "the one that stands at the end"})
    );
    let data = file(folder.path(), "d.jsonl", &lines);
    let path = config(folder.path(), "math", &data, "system = \"Think.\"");
    let (out, said, code) = run(fgrpo().args(["data", "show"]).arg(&path));
    assert_eq!(code, 0, "{said}");
    for wanted in [
        "problem 1 of 2, ",
        " tokens ---",
        "<|im_start|>system\nThink.<|im_end|>",
        "How many?<|im_end|>\n<|im_start|>assistant",
        "gold: 72\n--- read as: mathematics; graded correct when put in a box",
        "read as: plain text, which an answer has to repeat",
    ] {
        assert!(out.contains(wanted), "wanted {wanted:?} in: {out}");
    }
    // The same problems from the file, with the model's tokenizer and without it.
    let (with, ..) =
        run(fgrpo().args(["data", "show", "--system", "Think.", "--model"]).arg(model()).arg(&data));
    assert!(with.contains("<|im_start|>system\nThink.<|im_end|>") && with.contains("gold: 72"), "{with}");
    let (without, ..) = run(fgrpo().args(["data", "show", "--json"]).arg(&data));
    let first: Value = serde_json::from_str(without.lines().next().unwrap()).unwrap();
    assert_eq!((&first["tokens"], &first["gold"]), (&Value::Null, &json!("72")));
}

#[test]
fn data_show_prints_control_characters_as_escapes_and_as_they_are_in_json() {
    let folder = tempfile::tempdir().unwrap();
    let row = "{\"problem\": \"\\u001b[2Jclear\\r\\u001b]0;title\\u0007\", \"answer\": \"1\\u009b31m\"}\n";
    let data = file(folder.path(), "data.jsonl", row);
    for more in [&[][..], &["--model", model().to_str().unwrap()]] {
        let (shown, said, code) = run(fgrpo().args(["data", "show"]).arg(&data).args(more));
        assert_eq!(code, 0, "{said}");
        assert!(shown.contains(r"\u{1b}[2Jclear\r\u{1b}]0;title\u{7}"), "{shown}");
        assert!(!(shown + &said).contains(|c: char| c.is_control() && c != '\n'));
        let (json, ..) = run(fgrpo().args(["data", "show", "--json"]).arg(&data).args(more));
        let line: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert!(line["prompt"].as_str().unwrap().contains("\u{1b}[2Jclear\r"), "{json}");
    }
}

#[test]
fn samples_and_answers_to_verify_come_as_tables_too() {
    let folder = tempfile::tempdir().unwrap();
    let data = file(folder.path(), "d.jsonl", &rows(0, 3));
    let eval = |samples: &str| {
        let samples = file(folder.path(), "samples.csv", &format!("problem,sample,text,tokens\n{samples}"));
        let mut eval = fgrpo();
        eval.args(["eval", "--task", "math", "-n", "1", "--json", "--samples"]).arg(samples);
        run(eval.arg("--data").arg(&data).arg("--out").arg(folder.path().join("eval")))
    };
    // A name that isn't an index is refused, and so is an index that no folder has.
    for index in ["a", "-1", "1.5", "18446744073709551615"] {
        let (_, said, code) = eval(&format!("What is 0 + 1?,{index},x,7\n"));
        assert_eq!(code, 2, "{index}: {said}");
        assert!(said.contains("line 1: sample: ") && said.contains(index), "{said}");
    }
    let (out, said, code) =
        eval("What is 0 + 1?,0,\\boxed{1},7\nWhat is 1 + 1?,0,\\boxed{2},7\nWhat is 2 + 1?,0,\\boxed{0},7\n");
    assert_eq!(code, 0, "{said}");
    let share = serde_json::from_str::<Value>(&out).unwrap()["pass_at_k"]["1"].as_f64().unwrap();
    assert!((share - 2.0 / 3.0).abs() < 1e-12, "{out}");

    let answers = file(folder.path(), "v.csv", "gold,response\n1,\\boxed{1}\n2,\\boxed{3}\n");
    let (out, said, code) = run(fgrpo().args(["verify", "math"]).arg(&answers));
    assert_eq!(code, 0, "{said}");
    let verdicts: Vec<Value> = out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!((&verdicts[0]["verdict"], &verdicts[1]["verdict"]), (&"correct".into(), &"wrong".into()));
    // Commands that only read lines say so.
    for command in [&["pass-at-k", "-k", "1"][..], &["score", "--model", model().to_str().unwrap()]] {
        let (_, said, code) = run(fgrpo().args(command).arg(&answers));
        assert!(code == 2 && said.contains("reads files of JSON lines"), "{command:?}: {said}");
    }
}

#[test]
fn data_show_marks_equations_and_unusual_answers_are_named_with_their_row() {
    let folder = tempfile::tempdir().unwrap();
    let golds = ["17 * 20 = 340", "17 \\times 20", "340", "3.4 \\times 10^2", "x^2+1", "\\frac{1}{2}"];
    let row = |(i, gold)| format!("{}\n", json!({"question": format!("{i}?"), "answer": gold}));
    let data = file(folder.path(), "golds.jsonl", &golds.iter().enumerate().map(row).collect::<String>());
    let (out, said, code) = run(fgrpo().args(["data", "show", "--limit", "9"]).arg(&data));
    assert!(code == 0 && said.contains("2 of 6 reference answers are equations"), "{said}");
    assert!(out.contains("an equation: in mode strict \\boxed{17 * 20 = 340} is "), "{out}");
    assert_eq!(out.matches("\\boxed{340} is correct").count(), 2, "{out}");
    assert_eq!(out.matches("read as: mathematics\n").count(), 4, "{out}");
    let row = "{\"instruction\": \"Where?\", \"input\": \"\", \"output\": \"In Paris.\"}\n";
    let (_, said, code) = run(fgrpo().args(["data", "show"]).arg(file(folder.path(), "text.jsonl", row)));
    assert!(code == 2 && said.contains("In Paris.") && said.contains("task.columns.answer"), "{said}");
    let rows = "{\"problem\": \"1 + 1?\", \"answer\": 2}\n{\"problem\": \"What?\", \"answer\": NaN}\n";
    let path = config(folder.path(), "math", &file(folder.path(), "rows.jsonl", rows), "");
    let (out, said, code) = run(fgrpo().arg("train").arg(path).args(["--dry-run", "--set", "steps=1"]));
    let said = out + &said;
    assert!(code == 0 && said.contains("row 2") && said.contains("answer: null"), "{said}");
}

#[test]
fn the_time_of_a_dry_run_is_a_range_up_to_the_longest_completions_until_their_lengths_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let rows = (1..40).map(|i| {
        let answer = i + 1;
        format!("{{\"problem\": \"{i} + 1?\", \"solution\": \"It is \\\\boxed{{{answer}}}\", \"answer\": \"{answer}\"}}\n")
    });
    let data = file(folder.path(), "d.jsonl", &rows.collect::<String>());
    let config = config(folder.path(), "math", &data, "");
    let dry_run = |more: &[&str]| {
        let set = ["--dry-run", "--set", "steps=100000", "--set", "rollout.max_new_tokens=512"];
        let (_, said, code) = run(fgrpo().arg("train").arg(&config).args(set).args(more));
        assert_eq!(code, 0, "{said}");
        let time = |name: &str| said.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        (time("time of 100000 steps"), said)
    };
    let (range, said) = dry_run(&[]);
    assert!(range.contains(" to ") && said.contains("up to 512, the longest allowed"), "{said}");
    for known in [["--mean-tokens", "10,20"], ["--set", "sft.steps=1"]] {
        let (time, said) = dry_run(&known);
        assert!(!time.contains(" to ") && !said.contains("up to 512"), "{said}");
    }
}
