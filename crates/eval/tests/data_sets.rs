//! Data sets as users download them: formats, columns, conversations, and rows that are refused. In `samples`: samples of other
//! programs. In `verdicts`: answers to problems of every kind. In `estimates`: files of graded samples.

mod estimates;
mod files;
mod samples;
mod verdicts;

use fgrpo_eval::dataset::columns::Columns;
use fgrpo_eval::dataset::{Problem, load};
use fgrpo_eval::kind::TaskKind;
use fgrpo_eval::names::Named;
use fgrpo_eval::verifier::Settings;
use files::{gz, lines, rows, zst};
use serde_json::{Value, json};
use std::fmt::Display;
use std::path::{Path, PathBuf};

fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    path
}

/// A folder of files with samples.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        file(self.0.path(), name, text)
    }

    /// Writes JSON lines, compressed if the file name says so.
    fn lines(&self, name: &str, rows: impl IntoIterator<Item = impl Display>) -> PathBuf {
        let text = lines(rows);
        let path = self.write(name, &text);
        if path.extension().is_some_and(|e| e == "gz") {
            gz(&path, &text);
        }
        path
    }
}

fn read(path: &Path, kind: &str, columns: &str) -> Result<Vec<Problem>, String> {
    let (kind, columns): (_, Columns) = (TaskKind::from_name(kind).unwrap(), columns.parse().unwrap());
    load(path, kind, &columns).map(|(problems, _)| problems).map_err(|error| format!("{error:#}"))
}

/// Number of problems of mathematics in a file or folder, or the error.
fn found(path: &Path) -> Result<usize, String> {
    read(path, "math", "").map(|problems| problems.len())
}

/// The problems of a file with these lines.
fn shown(folder: &Path, lines: &str, kind: &str, columns: &str) -> Result<Vec<Problem>, String> {
    read(&file(folder, "rows.jsonl", lines), kind, columns)
}

fn prompts_of(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(|problem| problem.messages.last().unwrap().content.clone()).collect()
}

fn golds_of(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(|problem| problem.truth.gold().unwrap()).collect()
}

#[test]
fn options_and_tests_are_shown_below_the_question() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, row, expected) in [
        (
            "choice",
            r#"{"question": "Which? ", "choices": ["x", "y"], "answer": "B"}"#,
            "Which?\n\nA) x\nB) y\n\nAnswer with the letter of the correct option.",
        ),
        (
            "code",
            r#"{"question": "Double a number.", "test_list": ["assert dbl(1) == 2"]}"#,
            "Double a number.\n\nYour code should pass tests such as:\nassert dbl(1) == 2",
        ),
        (
            "code",
            r#"{"question": "Double a number.", "input_output": {"fn_name": "dbl", "inputs": [[1]], "outputs": [2]}}"#,
            "Double a number.\n\nThe function must be named dbl.",
        ),
        (
            "code",
            r#"{"question": "Write dbl.", "input_output": {"fn_name": "dbl", "inputs": [[1]], "outputs": [2]}}"#,
            "Write dbl.",
        ),
    ] {
        assert_eq!(prompts_of(&shown(folder.path(), row, kind, "").unwrap()), [expected], "{row}");
    }
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
    assert!(several.contains("several splits"), "{several}");
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
    assert!(found(&at("torn.jsonl.gz")).is_err());
}

#[test]
fn an_instruction_is_asked_with_its_input_and_two_possible_prompts_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let alpaca = "{\"instruction\": \"Add the numbers.\", \"input\": \"2 and 3\", \"answer\": \"5\"}\n\
                  {\"instruction\": \"What is 1 + 1?\", \"input\": \"\", \"answer\": \"2\"}\n";
    let rows = shown(folder.path(), alpaca, "math", "").unwrap();
    let prompts = prompts_of(&rows);
    assert_eq!(prompts.len(), 2);
    assert!(
        prompts[0].contains("Add the numbers.\n2 and 3") && prompts[1].contains("What is 1 + 1?"),
        "{prompts:?}"
    );
    let named = shown(folder.path(), alpaca, "math", "prompt=input").unwrap();
    assert!(!prompts_of(&named)[0].contains("Add"), "a named column stands alone");

    let two = "{\"problem\": \"What is 1 + 1?\", \"query\": \"Name a colour.\", \"answer\": \"2\"}\n";
    let said = shown(folder.path(), two, "math", "").unwrap_err();
    assert!(said.contains("the columns problem and query"), "{said}");
    assert!(said.contains("such as prompt=problem"), "{said}");
    assert!(shown(folder.path(), two, "math", "prompt=problem").is_ok());
    // One column contains the other, as in data sets with a conversation next to the problem.
    let same = "{\"problem\": \"What is 1 + 1?\", \"messages\": [{\"role\": \"user\", \"content\": \"What is 1 + 1? Think.\"}], \"answer\": \"2\"}\n";
    assert!(prompts_of(&shown(folder.path(), same, "math", "").unwrap())[0].ends_with("What is 1 + 1?"));
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
        let rows = shown(folder.path(), &line, "math", "").unwrap();
        assert!(prompts_of(&rows)[0].ends_with("Add these.\n2 and 3"), "{rows:?}");
    }
    let image = "{\"type\": \"image\", \"url\": \"x.png\"}";
    let line = format!(
        "{{\"prompt\": [{{\"role\": \"user\", \"content\": [{}, {image}]}}], \"answer\": \"5\"}}\n",
        part("What is this?")
    );
    let said = shown(folder.path(), &line, "math", "").unwrap_err();
    assert!(said.contains("parts that aren't text"), "{said}");
}

#[test]
fn what_a_question_is_about_stands_above_it_or_its_row_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let svamp = json!({"ID": "1", "Body": "Each pack costs 76 dollars, less 25.", "Question": "How much is a pack?", "Answer": 51.0});
    let prompts = prompts_of(&shown(folder.path(), &svamp.to_string(), "math", "").unwrap());
    assert!(
        prompts[0].ends_with("Each pack costs 76 dollars, less 25.\n\nHow much is a pack?"),
        "{prompts:?}"
    );
    let names = "article passage context Context paragraph story background document table text premise facts support \
                 CONTEXTS pre_text background_information";
    for name in names.split_whitespace() {
        let race = json!({"question": "What was there?", name: "Long ago there was a cat.", "options": ["dog", "cat"], "answer": "B"});
        let prompts = prompts_of(&shown(folder.path(), &race.to_string(), "choice", "").unwrap());
        assert!(prompts[0].contains("Long ago there was a cat.\n\nWhat was there?\n"), "{name}: {prompts:?}");
    }
    // A passage that the question already contains, an empty passage, a named prompt, and a late column.
    let lines = "{\"question\": \"A cat sat. Who sat?\", \"context\": \"A cat sat.\", \"answer\": \"1\"}\n\
                 {\"question\": \"Who?\", \"context\": null, \"answer\": \"1\"}\n";
    let prompts = prompts_of(&shown(folder.path(), lines, "math", "").unwrap());
    assert!(prompts[0] == "A cat sat. Who sat?" && prompts[1] == "Who?", "{prompts:?}");
    let rows = shown(folder.path(), &svamp.to_string(), "math", "prompt=Question").unwrap();
    assert!(prompts_of(&rows)[0].contains("76"), "{rows:?}");
    let plain = |i: i64| format!("{}\n", json!({"question": format!("Who is {i}?"), "answer": "1"}));
    let late = json!({"question": "Who?", "article": "A cat sat.", "answer": "1"}).to_string();
    let rows = shown(folder.path(), &((0..60).map(plain).collect::<String>() + &late), "math", "").unwrap();
    assert!(prompts_of(&rows)[60].contains("A cat sat."), "{rows:?}");
    for (name, value) in [
        ("context", json!({"title": ["A"]})),
        ("table", json!([[1, 2]])),
        ("image", json!({"bytes": "x"})),
        ("article", json!(null)),
        ("Body", json!(" ")),
        ("pre_text", json!(["x"])),
        ("CONTEXTS", json!(["x"])),
        ("images", json!(["x.png"])),
    ] {
        let row = json!({"question": "Who?", name: value, "answer": "1"});
        let said = shown(folder.path(), &row.to_string(), "math", "").unwrap_err();
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
        "array([{'role': 'user', 'content': 'x' or 'y'}], dtype=object)",
        "[Message(role='user', content='x' or 'y')]",
        "[{'role': 'user', 'text': 'x' or 'y'}]",
        "[OrderedDict([('role', 'user'), ('content', 'x' or 'y')])]",
    ] {
        let row = json!({"prompt": conversation, "answer": "2"}).to_string();
        match shown(folder.path(), &row, "math", "") {
            Ok(rows) => {
                let prompt = &prompts_of(&rows)[0];
                assert_eq!(prompt, "What is '1' + 1?", "{conversation}");
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
        let prompt = &prompts_of(&shown(folder.path(), &row, "math", "").unwrap())[0];
        assert_eq!(prompt, text);
    }
    let csv = "question,choices,answer\nWhich?,\"['x', \"\"it's\"\"]\",x\nSymbol?,\"['Na', 'NA']\",NA\n";
    let path = file(folder.path(), "lists.csv", csv);
    let lists = read(&path, "choice", "").unwrap();
    assert_eq!(golds_of(&lists), ["A", "B"]);
    assert!(prompts_of(&lists)[0].contains("B) it's"), "{lists:?}");
    let path = file(folder.path(), "semicolons.csv", "question;answer\n\"One; two?\";2\n");
    assert_eq!(found(&path), Ok(1));
}

#[test]
fn a_letter_is_an_option_of_a_column_of_letters_even_if_it_is_the_text_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let golds = |rows: &[Value]| {
        let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
        golds_of(&shown(folder.path(), &lines, "choice", "").unwrap()).join("")
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
        assert!(said.contains(wanted), "{name}: {said}");
    }
    assert!(found(&folder.path().join("missing.jsonl")).is_err());
    let line = "{\"problem\": \"a\", \"result\": \"1\"}\n";
    let said = shown(folder.path(), line, "math", "").unwrap_err();
    assert!(said.contains("problem, result") && said.contains("final_answer"), "{said}");
    assert_eq!(shown(folder.path(), line, "math", "answer=result").unwrap().len(), 1);
    assert!(shown(folder.path(), line, "math", "answer=reslt").is_err());
}

#[test]
fn parquet_is_read_in_every_compression_but_brotli_and_that_says_how_to_write_it_again() {
    // `pyarrow.parquet.write_table(table, "NAME.parquet", compression=NAME)` of pyarrow 21.0.0.
    let golden = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/golden").join(name);
    assert_eq!(found(&golden("lz4.parquet")), Ok(6));
    let refused = found(&golden("brotli.parquet")).unwrap_err();
    assert!(refused.contains("brotli.parquet: Brotli compression"), "{refused}");
}

#[test]
fn rows_with_a_schema_or_pattern_that_cannot_be_used_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, key, good, bad) in [
        ("json-schema", "schema", json!({"type": "object"}), json!({"type": "strin"})),
        ("regex", "pattern", json!("^[a-z]"), json!("(?=a)")),
    ] {
        let rows = [&good, &good, &bad].into_iter().enumerate();
        let rows = rows.map(|(i, rule)| format!("{}\n", json!({"prompt": format!("Say {i}."), key: rule})));
        let problems = shown(folder.path(), &rows.collect::<String>(), kind, "").unwrap();
        assert_eq!(prompts_of(&problems), ["Say 0.", "Say 1."], "{kind}");
    }
}

#[test]
fn answers_are_read_exactly_in_the_forms_that_people_write() {
    let folder = tempfile::tempdir().unwrap();
    let shown = |line: &str, columns: &str| shown(folder.path(), &format!("{line}\n"), "math", columns);
    let grading = TaskKind::Math.grading(Settings::default()).unwrap();
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
        let problems = shown(&format!("{{\"problem\": \"p\", \"answer\": {answer}}}"), "").unwrap();
        assert_eq!(golds_of(&problems), [gold], "{answer}");
        let line = format!("{{\"gold\": {answer}, \"response\": \"\\\\boxed{{{gold}}}\"}}");
        assert_eq!(verdicts::graded(TaskKind::Math, &grading, &line).0, "correct", "{answer}");
    }
    let two = "{\"problem\": \"p\", \"answer\": {\"value\": \"3\", \"unit\": \"cm\"}}";
    assert!(shown(two, "").unwrap_err().contains("unreadable answer"), "two fields");
    let solved = two.replace("\"p\",", "\"p\", \"solution\": \"\\\\boxed{4}\",");
    let said = shown(&solved, "").unwrap_err();
    assert!(said.contains("found an object of 2 fields (value, unit)"), "a solution hides no answer: {said}");
    assert_eq!(golds_of(&shown(two, "answer=answer.value").unwrap()), ["3"]);
    let alpaca = "{\"instruction\": \"Add.\", \"input\": \"1 and 2\", \"output\": \"3\"}\n\
                  {\"instruction\": \"Where?\", \"input\": \"\", \"output\": \"In Paris.\"}";
    assert_eq!(golds_of(&shown(alpaca, "").unwrap()), ["3"]);
}

#[test]
fn numbers_that_are_not_finite_spoil_no_file_and_are_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let lines = "{\"problem\": \"What is 1 + 1?\", \"answer\": 2, \"score\": NaN, \"range\": [-Infinity, Infinity]}\n\
                 {\"problem\": \"What is NaN, in words?\", \"answer\": NaN, \"score\": 1.0}\n";
    for kind in ["math", "python"] {
        assert_eq!(shown(folder.path(), lines, kind, "").unwrap().len(), 1, "{kind}");
    }
    assert_eq!(golds_of(&shown(folder.path(), lines, "math", "").unwrap()), ["2"]);
    let array = format!("[{}]", lines.trim_end().replace('\n', ","));
    assert_eq!(found(&file(folder.path(), "rows.json", &array)), Ok(1));
}
