//! Data sets as users download them, and `fgrpo data show`.

use super::{config, fgrpo, file, model, run};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;

fn rows(from: usize, to: usize) -> String {
    (from..to)
        .map(|i| format!("{}\n", json!({"problem": format!("What is {i} + 1?"), "answer": i + 1})))
        .collect()
}

fn gz(path: &Path, text: &str) {
    let file = std::fs::File::create(path).unwrap();
    let mut out = flate2::write::GzEncoder::new(file, flate2::Compression::default());
    out.write_all(text.as_bytes()).unwrap();
    out.finish().unwrap();
}

fn zst(path: &Path, text: &str) {
    let file = std::fs::File::create(path).unwrap();
    zstd::stream::copy_encode(text.as_bytes(), file, 3).unwrap();
}

/// Number of problems that `fgrpo data show` finds, or its message.
fn found(path: &Path) -> Result<usize, String> {
    let (out, said, code) = run(fgrpo().args(["data", "show", "--json", "--limit", "100"]).arg(path));
    if code == 0 { Ok(out.lines().count()) } else { Err(format!("{code}: {said}")) }
}

#[test]
fn compressed_files_and_shards_as_hugging_face_lays_them_out_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    gz(&at("a.jsonl.gz"), &rows(0, 5));
    zst(&at("b.jsonl.zst"), &rows(5, 8));
    gz(&at("c.csv.gz"), "problem,answer\nWhat?,1\n");
    assert_eq!(found(&at("a.jsonl.gz")), Ok(5));
    assert_eq!(found(&at("b.jsonl.zst")), Ok(3));
    assert_eq!(found(&at("c.csv.gz")), Ok(1));
    assert_eq!(found(folder.path()), Ok(9));

    let repository = at("repository");
    file(&repository, "README.md", "---\nlicense: mit\n---\n");
    file(&repository, "dataset_infos.json", "{\"default\": {}}");
    file(&repository, "data/train-00000-of-00002.jsonl", &rows(0, 4));
    file(&repository, "data/train-00001-of-00002.jsonl", &rows(4, 6));
    assert_eq!(found(&repository), Ok(6));
    file(&repository, "data/test-00000-of-00001.jsonl", &rows(6, 7));
    let several = found(&repository).unwrap_err();
    assert!(several.starts_with("2: ") && several.contains("several splits"), "{several}");
    for part in ["train", "data/train", "train-*", "data/train-*.jsonl"] {
        assert_eq!(found(&repository.join(part)), Ok(6), "{part}");
    }
    assert_eq!(found(&repository.join("test")), Ok(1));
    let none = found(&repository.join("dev")).unwrap_err();
    assert!(
        none.contains("no such file, folder or split") && none.contains("train-00000-of-00002"),
        "{none}"
    );
    std::fs::remove_file(repository.join("data/train-00000-of-00002.jsonl")).unwrap();
    let lacks = found(&repository.join("train")).unwrap_err();
    assert!(lacks.contains("train-00000-of-00002 is missing; 1 of 2 shards"), "{lacks}");

    let configurations = at("configurations");
    file(&configurations, "README.md", "");
    file(&configurations, "main/train-00000-of-00001.jsonl", &rows(0, 4));
    file(&configurations, "socratic/train-00000-of-00001.jsonl", &rows(4, 6));
    let several = found(&configurations).unwrap_err();
    assert!(several.contains("several folders") && several.contains("socratic"), "{several}");
    assert_eq!(found(&configurations.join("main")), Ok(4));
    gz(&file(&at("named"), "train.jsonl.gz", ""), &rows(0, 2));
    gz(&file(&at("named"), "test.jsonl.gz", ""), &rows(2, 3));
    assert_eq!(found(&at("named/train")), Ok(2));
    assert!(found(&at("nowhere/x")).unwrap_err().contains("no such file or folder"));

    let pointer = file(
        folder.path(),
        "p.parquet",
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    );
    assert!(found(&pointer).unwrap_err().contains("git lfs pull"));
    std::fs::write(at("torn.jsonl.gz"), &std::fs::read(at("a.jsonl.gz")).unwrap()[..40]).unwrap();
    assert!(found(&at("torn.jsonl.gz")).unwrap_err().starts_with("2: "));
}

#[test]
fn broken_files_are_refused_with_their_place_and_a_missing_column_with_those_there_are() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text, wanted) in [
        ("a.jsonl", "{\"problem\": 1}\n{oops\n", "line 2"),
        ("a.json", "[1]", "entry 1"),
        ("a.json", "[{]", "invalid JSON at byte 3"),
        ("a.jsonl", "\n\n", "no rows"),
        ("a.parquet", "nope", "Parquet"),
        ("a.txt", "x", "unknown format"),
        ("a.csv", "problem,answer\n1\n", "CSV error"),
        ("a.csv", "problem,answer\n\"a\n", "line 2: a quoted field"),
    ] {
        let said = found(&file(folder.path(), name, text)).unwrap_err();
        assert!(said.starts_with("2: ") && said.contains(wanted), "{name}: {said}");
    }
    assert!(found(&folder.path().join("missing.jsonl")).unwrap_err().starts_with("2: "));
    let line = "{\"problem\": \"a\", \"result\": \"1\"}\n";
    let said = shown(folder.path(), line, &[]).unwrap_err();
    assert!(said.contains("problem, result") && said.contains("final_answer"), "{said}");
    assert_eq!(shown(folder.path(), line, &["--columns", "answer=result"]).unwrap().len(), 1);
    assert!(shown(folder.path(), line, &["--columns", "answer=reslt"]).is_err());
}

#[test]
fn parquet_is_read_in_every_compression_but_brotli_and_that_says_how_to_write_it_again() {
    // `pyarrow.parquet.write_table(table, "NAME.parquet", compression=NAME)` of pyarrow 21.0.0.
    let golden = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    assert_eq!(found(&golden("lz4.parquet")), Ok(6));
    let refused = found(&golden("brotli.parquet")).unwrap_err();
    assert!(
        refused.starts_with("2: ") && refused.contains("brotli.parquet: Brotli compression"),
        "{refused}"
    );
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
fn an_instruction_is_asked_with_its_input_and_two_possible_prompts_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let alpaca = "{\"instruction\": \"Add the numbers.\", \"input\": \"2 and 3\", \"answer\": \"5\"}\n\
                  {\"instruction\": \"What is 1 + 1?\", \"input\": \"\", \"answer\": \"2\"}\n";
    let rows = shown(folder.path(), alpaca, &[]).unwrap();
    let prompts = column(&rows, "prompt");
    assert_eq!(prompts.len(), 2);
    assert!(
        prompts[0].contains("Add the numbers.\n2 and 3") && prompts[1].contains("What is 1 + 1?"),
        "{prompts:?}"
    );
    let named = shown(folder.path(), alpaca, &["--columns", "prompt=input"]).unwrap();
    assert!(!column(&named, "prompt")[0].contains("Add"), "a named column stands alone");

    let two = "{\"problem\": \"What is 1 + 1?\", \"query\": \"Name a colour.\", \"answer\": \"2\"}\n";
    let said = shown(folder.path(), two, &[]).unwrap_err();
    assert!(said.starts_with("2: ") && said.contains("the columns problem and query"), "{said}");
    assert!(said.contains("such as prompt=problem"), "{said}");
    assert!(shown(folder.path(), two, &["--columns", "prompt=problem"]).is_ok());
    // One column contains the other, as in data sets with a conversation next to the problem.
    let same = "{\"problem\": \"What is 1 + 1?\", \"messages\": [{\"role\": \"user\", \"content\": \"What is 1 + 1? Think.\"}], \"answer\": \"2\"}\n";
    assert!(column(&shown(folder.path(), same, &[]).unwrap(), "prompt")[0].ends_with("What is 1 + 1?"));
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
fn text_parts_are_one_prompt_and_parts_of_another_kind_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let part = |text: &str| format!("{{\"type\": \"text\", \"text\": \"{text}\"}}");
    for prompt in [
        format!("[{}, {}]", part("Add these."), part("2 and 3")),
        format!("[{{\"role\": \"user\", \"content\": [{}, {}]}}]", part("Add these."), part("2 and 3")),
    ] {
        let line = format!("{{\"prompt\": {prompt}, \"answer\": \"5\"}}\n");
        let rows = shown(folder.path(), &line, &[]).unwrap();
        assert!(column(&rows, "prompt")[0].ends_with("Add these.\n2 and 3"), "{rows:?}");
    }
    let image = "{\"type\": \"image\", \"url\": \"x.png\"}";
    let line = format!(
        "{{\"prompt\": [{{\"role\": \"user\", \"content\": [{}, {image}]}}], \"answer\": \"5\"}}\n",
        part("What is this?")
    );
    let said = shown(folder.path(), &line, &[]).unwrap_err();
    assert!(said.contains("parts that aren't text"), "{said}");
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
fn what_a_question_is_about_stands_above_it_or_its_row_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let svamp = json!({"ID": "1", "Body": "Each pack costs 76 dollars, less 25.", "Question": "How much is a pack?", "Answer": 51.0});
    let prompts = column(&shown(folder.path(), &svamp.to_string(), &[]).unwrap(), "prompt");
    assert!(
        prompts[0].ends_with("Each pack costs 76 dollars, less 25.\n\nHow much is a pack?"),
        "{prompts:?}"
    );
    for name in
        ["article", "passage", "context", "Context", "paragraph", "story", "background", "document", "table"]
    {
        let race = json!({"question": "What was there?", name: "Long ago there was a cat.", "options": ["dog", "cat"], "answer": "B"});
        let prompts =
            column(&shown(folder.path(), &race.to_string(), &["--task", "choice"]).unwrap(), "prompt");
        assert!(prompts[0].contains("Long ago there was a cat.\n\nWhat was there?\n"), "{name}: {prompts:?}");
    }
    // A passage that the question already contains, an empty passage, and a named prompt.
    let lines = "{\"question\": \"A cat sat. Who sat?\", \"context\": \"A cat sat.\", \"answer\": \"1\"}\n\
                 {\"question\": \"Who?\", \"context\": null, \"answer\": \"1\"}\n";
    let prompts = column(&shown(folder.path(), lines, &[]).unwrap(), "prompt");
    assert!(prompts[0].ends_with(": A cat sat. Who sat?") && prompts[1].ends_with(": Who?"), "{prompts:?}");
    let rows = shown(folder.path(), &svamp.to_string(), &["--columns", "prompt=Question"]).unwrap();
    assert!(!column(&rows, "prompt")[0].contains("76"), "{rows:?}");
    for (name, value) in [
        ("context", json!({"title": ["A"]})),
        ("table", json!([[1, 2]])),
        ("image", json!({"bytes": "x"})),
        ("images", json!(["x.png"])),
    ] {
        let row = json!({"question": "Who?", name: value, "answer": "1"});
        let said = shown(folder.path(), &row.to_string(), &[]).unwrap_err();
        assert!(said.contains("row 1: ") && said.contains(name), "{said}");
    }
}

#[test]
fn conversations_and_lists_are_read_as_python_prints_them() {
    let folder = tempfile::tempdir().unwrap();
    for conversation in [
        "[{'role': 'user', 'content': 'What is \\'1\\' + 1?'}]",
        "[{'content': \"What is '1' + 1?\", 'role': 'user'}]",
        "[{'role': 'system', 'content': None or 'x'}]",
        "[{'role': 'system', 'content': 'Be brief.'}\n {'role': 'user', 'content': \"What is '1' + 1?\"}]",
        "[{\"from\": \"human\", \"value\": \"What is '1' + 1?\"}]",
        "{'role': 'user', 'content': \"What is '1' + 1?\"}",
    ] {
        let row = json!({"prompt": conversation, "answer": "2"}).to_string();
        match shown(folder.path(), &row, &[]) {
            Ok(rows) => {
                let prompt = &column(&rows, "prompt")[0];
                assert!(prompt.ends_with("user: What is '1' + 1?"), "{conversation}: {prompt}");
            }
            // A conversation that can't be read is refused, and isn't shown to a model as a string.
            Err(said) => {
                assert!(conversation.contains(" or ") && said.contains("no prompt"), "{conversation}: {said}")
            }
        }
    }
    // A string that only resembles a conversation.
    for text in ["[1, 2] has how many items?", "{\"role\": \"user\", \"content\": \"x\"} has how many keys?"]
    {
        let row = json!({"prompt": text, "answer": "2"}).to_string();
        let prompt = &column(&shown(folder.path(), &row, &[]).unwrap(), "prompt")[0];
        assert!(prompt.ends_with(&format!("user: {text}")), "{prompt}");
    }
    let csv = "question,choices,answer\nWhich?,\"['x', \"\"it's\"\"]\",x\nSymbol?,\"['Na', 'NA']\",NA\n";
    let path = file(folder.path(), "lists.csv", csv);
    let (out, said, code) = run(fgrpo().args(["data", "show", "--task", "choice"]).arg(&path));
    assert!(code == 0 && out.contains("B) it's") && out.contains("the option \"NA\""), "{out}{said}");
    let path = file(folder.path(), "semicolons.csv", "question;answer\n\"One; two?\";2\n");
    assert_eq!(found(&path), Ok(1));
}

#[test]
fn a_letter_is_an_option_of_a_column_of_letters_even_if_it_is_the_text_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let golds = |rows: &[Value]| {
        let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
        column(&shown(folder.path(), &lines, &["--task", "choice"]).unwrap(), "gold").join("")
    };
    let row = |options: Value, answer: &str, more: Option<i64>| json!({"question": format!("{options} {answer}?"), "options": options, "answer": answer, "answer_index": more});
    let types = || json!(["B", "A", "AB", "O"]);
    assert_eq!(golds(&[row(types(), "A", None), row(json!(["x", "y"]), "B", None)]), "AB");
    assert_eq!(golds(&[row(types(), "A", Some(0)), row(types(), "B", Some(1))]), "AB");
    assert_eq!(golds(&[row(types(), "A", Some(1))]), "B");
    // A column of strings.
    assert_eq!(golds(&[row(types(), "A", None), row(types(), "AB", None)]), "BC");
    assert_eq!(golds(&[row(types(), "A", None), row(types(), "O", None)]), "BD");
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
