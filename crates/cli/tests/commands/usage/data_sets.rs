//! Data sets as users download them, and `fgrpo data show`.

#[path = "../../../../eval/tests/files/mod.rs"]
mod files;

use super::{config, fgrpo, file, model, run};
use files::{gz, rows, zst};
use serde_json::{Value, json};
use std::path::Path;

/// Number of problems that `fgrpo data show` finds, or its message.
fn found(path: &Path) -> Result<usize, String> {
    let (out, said, code) = run(fgrpo().args(["data", "show", "--json", "--limit", "100"]).arg(path));
    if code == 0 { Ok(out.lines().count()) } else { Err(format!("{code}: {said}")) }
}

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
fn data_show_works_for_every_shipped_configuration_that_needs_no_file() {
    for (name, wanted) in [("maze-quick", "gold"), ("arithmetic-quick", "graded correct when put in a box")] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../configs/{name}.toml"));
        let (out, said, code) =
            run(fgrpo().args(["data", "show", "--limit", "1", "--set", "task.train=64"]).arg(path));
        assert_eq!(code, 0, "{said}");
        assert!(out.contains("problem 1 of") && out.contains(wanted), "{out}");
    }
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

/// Problems, samples and texts as a Parquet file.
fn parquet(path: &Path, columns: [&str; 2], rows: &[(&str, &str)]) {
    use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
    use parquet::file::writer::SerializedFileWriter;
    let schema = format!(
        "message row {{ required binary {} (STRING); required binary {} (STRING); required int64 sample; }}",
        columns[0], columns[1]
    );
    let schema = std::sync::Arc::new(parquet::schema::parser::parse_message_type(&schema).unwrap());
    let file = std::fs::File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, std::sync::Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for pick in [|row: &(&str, &str)| row.0.to_owned(), |row: &(&str, &str)| row.1.to_owned()] {
        let mut column = group.next_column().unwrap().unwrap();
        let values: Vec<ByteArray> = rows.iter().map(|row| pick(row).as_str().into()).collect();
        column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
    }
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&vec![0; rows.len()], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
}

#[test]
fn samples_and_answers_to_verify_come_as_parquet_and_csv_too() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let data = file(folder.path(), "d.jsonl", &rows(0, 3));
    let questions = [0, 1, 2].map(|i| format!("What is {i} + 1?"));
    let answers = ["\\boxed{1}", "\\boxed{2}", "\\boxed{0}"];
    let pairs: Vec<(&str, &str)> = questions.iter().map(String::as_str).zip(answers).collect();
    parquet(&at("samples.parquet"), ["problem", "text"], &pairs);
    let csv: String = pairs.iter().map(|(q, a)| format!("\"{q}\",0,\"{a}\",7\n")).collect();
    file(folder.path(), "samples.csv", &format!("problem,sample,text,tokens\n{csv}"));
    for name in ["samples.parquet", "samples.csv"] {
        let mut eval = fgrpo();
        eval.args(["eval", "--task", "math", "-n", "1", "--json", "--samples"]).arg(at(name));
        eval.arg("--data").arg(&data).arg("--out").arg(at(&format!("{name}.eval")));
        let (out, said, code) = run(&mut eval);
        assert_eq!(code, 0, "{name}: {said}");
        let share = serde_json::from_str::<Value>(&out).unwrap()["pass_at_k"]["1"].as_f64().unwrap();
        assert!((share - 2.0 / 3.0).abs() < 1e-12, "{name}: {out}");
    }
    // A name that isn't an index is refused, and so is an index that no folder has.
    for index in ["a", "-1", "1.5", "18446744073709551615"] {
        let path =
            file(folder.path(), "bad.csv", &format!("problem,sample,text\n{},{index},x\n", questions[0]));
        let mut eval = fgrpo();
        eval.args(["eval", "--task", "math", "-n", "1", "--samples"]).arg(&path);
        let (_, said, code) = run(eval.arg("--data").arg(&data).arg("--out").arg(at("bad")));
        assert_eq!(code, 2, "{index}: {said}");
        assert!(said.contains("line 1: sample: ") && said.contains(index), "{said}");
    }

    let gold = [("1", "\\boxed{1}"), ("2", "\\boxed{3}")];
    parquet(&at("v.parquet"), ["gold", "response"], &gold);
    file(folder.path(), "v.csv", "gold,response\n1,\\boxed{1}\n2,\\boxed{3}\n");
    for name in ["v.parquet", "v.csv"] {
        let (out, said, code) = run(fgrpo().args(["verify", "math"]).arg(at(name)));
        assert_eq!(code, 0, "{name}: {said}");
        let verdicts: Vec<Value> = out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(
            (verdicts.len(), &verdicts[0]["verdict"], &verdicts[1]["verdict"]),
            (2, &"correct".into(), &"wrong".into())
        );
    }
    // Commands that only read lines say so.
    for command in [&["pass-at-k", "-k", "1"][..], &["score", "--model", model().to_str().unwrap()]] {
        let (_, said, code) = run(fgrpo().args(command).arg(at("v.parquet")));
        assert_eq!(code, 2, "{command:?}: {said}");
        assert!(said.contains("reads files of JSON lines"), "{command:?}: {said}");
    }
}

/// Output of `fgrpo data show --json` for a file with these lines, or else its exit code and message.
fn shown(folder: &Path, lines: &str, more: &[&str]) -> Result<Vec<Value>, String> {
    let path = file(folder, "rows.jsonl", lines);
    let (out, said, code) =
        run(fgrpo().args(["data", "show", "--json", "--limit", "100"]).args(more).arg(path));
    let lines = || out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    if code == 0 { Ok(lines()) } else { Err(format!("{code}: {said}")) }
}

fn column(rows: &[Value], name: &str) -> Vec<String> {
    rows.iter().map(|row| row[name].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn answers_are_read_exactly_in_the_forms_that_people_write() {
    let folder = tempfile::tempdir().unwrap();
    for (answer, gold) in [
        (
            "1606938044258990275541962092341162602522202993782792835301376",
            "1606938044258990275541962092341162602522202993782792835301376",
        ),
        ("-18446744073709551617", "-18446744073709551617"),
        ("18446744073709551615", "18446744073709551615"),
        ("0.1234567890123456789012", "0.1234567890123456789012"),
        ("1e30", "1000000000000000000000000000000"),
        ("2.5E-7", "0.00000025"),
        ("27.0", "27"),
        ("{\"value\": \"3\"}", "3"),
        ("{\"value\": 100000000000000000000000, \"unit\": null}", "100000000000000000000000"),
    ] {
        let line = format!("{{\"problem\": \"p\", \"answer\": {answer}}}\n");
        assert_eq!(column(&shown(folder.path(), &line, &[]).unwrap(), "gold"), [gold], "{answer}");
        let verified = format!("{{\"gold\": {answer}, \"response\": \"\\\\boxed{{{gold}}}\"}}\n");
        let verified = file(folder.path(), "verify.jsonl", &verified);
        let (out, ..) = run(fgrpo().args(["verify", "math", "--mode", "strict"]).arg(verified));
        assert!(out.contains("\"correct\""), "{answer}: {out}");
    }
    let said =
        shown(folder.path(), "{\"problem\": \"p\", \"answer\": {\"value\": \"3\", \"unit\": \"cm\"}}\n", &[]);
    assert!(said.unwrap_err().contains("unreadable answer"), "two fields");
    let said = shown(
        folder.path(),
        "{\"problem\": \"p\", \"answer\": {\"value\": \"3\", \"unit\": \"cm\"}, \"solution\": \"\\\\boxed{4}\"}\n",
        &[],
    );
    assert!(
        said.unwrap_err().contains("found an object of 2 fields (value, unit)"),
        "a solution hides no answer"
    );
    let named = "{\"problem\": \"p\", \"answer\": {\"value\": \"3\", \"unit\": \"cm\"}}\n";
    assert_eq!(
        column(&shown(folder.path(), named, &["--columns", "answer=answer.value"]).unwrap(), "gold"),
        ["3"]
    );
}

#[test]
fn numbers_that_are_not_finite_spoil_no_file_and_are_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let lines = "{\"problem\": \"What is 1 + 1?\", \"answer\": 2, \"score\": NaN, \"range\": [-Infinity, Infinity]}\n\
                 {\"problem\": \"What is NaN, in words?\", \"answer\": NaN, \"score\": 1.0}\n";
    for kind in [&[][..], &["--task", "python"]] {
        assert_eq!(shown(folder.path(), lines, kind).unwrap().len(), 1, "{kind:?}");
    }
    assert_eq!(column(&shown(folder.path(), lines, &[]).unwrap(), "gold"), ["2"]);
    let array = format!("[{}]", lines.trim_end().replace('\n', ","));
    let path = file(folder.path(), "rows.json", &array);
    assert_eq!(found(&path), Ok(1));
    // The answer that isn't a number is named with its row and column.
    let path = file(folder.path(), "rows.jsonl", lines);
    let path = config(folder.path(), "math", &path, "");
    let (out, said, code) = run(fgrpo().arg("train").arg(path).args(["--dry-run", "--set", "steps=1"]));
    assert_eq!(code, 0, "{said}");
    assert!(
        format!("{out}{said}").contains("row 2") && format!("{out}{said}").contains("answer: null"),
        "{out}{said}"
    );
}

#[test]
fn an_answer_in_alpacas_output_and_one_that_is_an_equation_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let alpaca = "{\"instruction\": \"Add.\", \"input\": \"1 and 2\", \"output\": \"3\"}\n\
                  {\"instruction\": \"Where?\", \"input\": \"\", \"output\": \"In Paris.\"}\n";
    let rows = shown(folder.path(), alpaca, &[]).unwrap();
    assert_eq!(column(&rows, "gold"), ["3"]);
    let path = file(folder.path(), "text.jsonl", alpaca.lines().last().unwrap());
    let said = found(&path).unwrap_err();
    assert!(said.contains("In Paris.") && said.contains("task.columns.answer"), "{said}");
    let golds = ["17 * 20 = 340", "17 \\times 20", "340", "3.4 \\times 10^2", "x^2+1", "\\frac{1}{2}"];
    let lines: String = golds
        .iter()
        .enumerate()
        .map(|(i, gold)| format!("{}\n", json!({"question": format!("{i}?"), "answer": gold})))
        .collect();
    let path = file(folder.path(), "golds.jsonl", &lines);
    let (out, said, code) = run(fgrpo().args(["data", "show", "--limit", "9"]).arg(&path));
    assert!(code == 0 && said.contains("2 of 6 reference answers are equations"), "{said}");
    assert!(out.contains("an equation: in mode strict \\boxed{17 * 20 = 340} is "), "{out}");
    assert_eq!(out.matches("\\boxed{340} is correct").count(), 2, "{out}");
    assert_eq!(out.matches("read as: mathematics\n").count(), 4, "{out}");
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
