use super::*;
use crate::kind;
use serde_json::Value;
use serde_json::json;
use std::path::PathBuf;

fn file(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

fn lines(rows: &[Value]) -> String {
    rows.iter().map(|row| format!("{row}\n")).collect()
}

fn loaded(kind: TaskKind, rows: &[Value]) -> (Vec<Problem>, FilterReport) {
    let (_folder, path) = file("rows.jsonl", &lines(rows));
    load(&path, kind, &Columns::default()).unwrap()
}

fn golds(problems: &[Problem]) -> Vec<String> {
    problems.iter().filter_map(|p| p.truth.gold()).collect()
}

#[test]
fn math_benchmarks_are_read_in_the_columns_people_download() {
    let (problems, report) = loaded(
        TaskKind::Math,
        &[
            json!({"problem": "a", "solution": "s", "answer": "\\frac{1}{2}", "subject": "Algebra", "level": 3, "unique_id": "test/1.json"}),
            json!({"problem": "b", "answer": "073"}),
            json!({"problem": "c", "answer": "27.0"}),
            json!({"problem": "d", "answer": 33.0}),
            json!({"problem": "e", "answer": ["9.6\n"]}),
            json!({"problem": "f", "answer": "[\"9.6\\n\"]"}),
            json!({"problem": "g", "answer": "['1', '-1']"}),
            json!({"problem": "h", "answer": "$2\\sqrt{3}$"}),
            json!({"problem": "i", "answer": "3.50"}),
        ],
    );
    assert_eq!(
        golds(&problems),
        ["\\frac{1}{2}", "73", "27", "33", "9.6", "9.6", "1, -1", "2\\sqrt{3}", "3.50"]
    );
    assert_eq!(problems[0].subject.as_deref(), Some("Algebra"));
    assert_eq!(problems[0].level.as_deref(), Some("3"));
    assert_eq!(problems[0].source_id.as_deref(), Some("test/1.json"));
    assert_eq!((report.read, report.kept), (9, 9));
}

#[test]
fn other_editions_spell_their_columns_otherwise() {
    let minerva = json!([{"problem": "p", "solution": "so $\\boxed{\\frac{1}{2}}$", "type": "t", "idx": 3}]);
    let olympiad = json!({"question": "q", "final_answer": ["$2$", "$3$"], "unit": null, "error": null});
    let verl = json!({"prompt": [{"role": "user", "content": "q"}], "reward_model": {"ground_truth": "5", "style": "rule"}});
    for (name, text, expected) in [
        ("aime.csv", "ID,Problem,Solution,Answer\n2024-I-1,\"Find x, y\",s,033\n".to_owned(), "33"),
        ("minerva.json", minerva.to_string(), "\\frac{1}{2}"),
        ("olympiad.jsonl", lines(&[olympiad]), "2, 3"),
        ("verl.jsonl", lines(&[verl]), "5"),
    ] {
        let (_folder, path) = file(name, &text);
        assert_eq!(golds(&load(&path, TaskKind::Math, &Columns::default()).unwrap().0), [expected], "{name}");
    }
}

#[test]
fn copies_for_the_users_grader_agree_if_only_their_id_differs() {
    for kind in [TaskKind::Python, TaskKind::Command] {
        let rows = [
            json!({"id": "a-1", "problem": "a", "limit": 1}),
            json!({"id": "a-2", "problem": "a", "limit": 1}),
            json!({"id": "b-1", "problem": "b", "limit": 1}),
            json!({"id": "b-2", "problem": "b", "limit": 2}),
        ];
        let (problems, report) = loaded(kind, &rows);
        assert_eq!(problems.iter().map(|p| p.row).collect::<Vec<_>>(), [1], "{kind}");
        let counts: Vec<_> =
            report.by_reason().into_iter().map(|(reason, rows)| (reason, rows.len())).collect();
        assert_eq!(counts, [("copies with conflicting answers", 2), ("copy of an earlier row", 1)], "{kind}");
    }
}

#[test]
fn copies_with_conflicting_answers_are_rejected_whole_and_explained() {
    let (problems, report) = loaded(
        TaskKind::Math,
        &[
            json!({"problem": "a", "answer": "1"}),
            json!({"problem": "b", "answer": "x + 1"}),
            json!({"problem": "a", "answer": "2"}),
            json!({"problem": "b", "answer": "x+1"}),
            json!({"problem": "c", "answer": ""}),
            json!({"problem": " ", "answer": "3"}),
            json!({"answer": "3"}),
        ],
    );
    assert_eq!(problems.len(), 1);
    let counts: Vec<(&str, usize)> =
        report.by_reason().into_iter().map(|(reason, rows)| (reason, rows.len())).collect();
    assert_eq!(
        counts,
        [
            ("copies with conflicting answers", 2),
            ("copy of an earlier row", 1),
            ("empty answer", 1),
            ("empty prompt", 1),
            ("no prompt", 1),
        ]
    );
    assert!(report.to_string().starts_with("7 rows read, 1 problems kept; 2 rejected: copies"));
    let mut rejected: Vec<(usize, &str)> =
        report.rejected.iter().map(|r| (r.row, r.found.as_str())).collect();
    rejected.sort_unstable();
    assert_eq!(
        rejected,
        [
            (1, "answer \"1\"; row 3 has answer \"2\""),
            (3, "answer \"2\"; row 1 has answer \"1\""),
            (4, "equals row 2: \"b\""),
            (5, "answer: \"\""),
            (6, "problem: \" \""),
            (7, "no column problem"),
        ]
    );
}

#[test]
fn gpqa_options_are_shuffled_by_the_question_and_the_order_is_stored() {
    let row = json!({"Question": "Q?", "Correct Answer": "right", "Incorrect Answer 1": "w1",
        "Incorrect Answer 2": "w2", "Incorrect Answer 3": "w3", "Subdomain": "Optics"});
    let (problems, _) = loaded(TaskKind::Choice, &[row]);
    let Truth::Choice(kind::choice::Truth { gold, options, order }) = &problems[0].truth else { panic!() };
    let place = usize::from(gold.as_bytes()[0] - b'A');
    assert_eq!((options[place].as_str(), order[place]), ("right", 0));
    assert!(problems[0].question().contains(&format!("{gold}) right")));
    assert_eq!(problems[0].subject.as_deref(), Some("Optics"));
}

#[test]
fn a_list_of_options_keeps_its_order() {
    let (problems, report) = loaded(
        TaskKind::Choice,
        &[
            json!({"question": "a", "choices": ["x", "y", "z"], "answer": 2}),
            json!({"question": "b", "choices": ["x", "y"], "answer": "B"}),
            json!({"question": "c", "choices": ["x", "y"], "answer": "x"}),
            json!({"question": "d", "choices": ["x", "y"], "answer": 7}),
        ],
    );
    assert_eq!(golds(&problems), ["C", "B", "A"]);
    assert_eq!(report.rejected[0].reason, "the answer is no option");
    assert_eq!(report.rejected[0].found, "answer \"7\" of 2 options");
}

#[test]
fn ifeval_drops_nulls_and_refuses_instructions_it_cannot_check() {
    let (problems, report) = loaded(
        TaskKind::IfEval,
        &[
            json!({"key": 1000, "prompt": "p", "instruction_id_list": ["punctuation:no_comma"],
                "kwargs": [{"num_words": null, "section_spliter": null}]}),
            json!({"key": 1001, "prompt": "q", "instruction_id_list": ["length_constraints:number_words"],
                "kwargs": [{"num_words": null}]}),
        ],
    );
    let Truth::IfEval(kind::ifeval::Truth { kwargs, .. }) = &problems[0].truth else { panic!() };
    assert_eq!(kwargs, &[json!({})]);
    assert_eq!(problems[0].source_id.as_deref(), Some("1000"));
    assert_eq!(report.rejected[0].reason, "instructions that cannot be checked");
    assert!(report.rejected[0].found.contains("num_words"), "{:?}", report.rejected);
}

#[test]
fn instructions_are_read_from_the_columns_of_other_trainers() {
    for column in ["metadata", "extra_info"] {
        let (problems, _) = loaded(
            TaskKind::IfEval,
            &[json!({"prompt": "p", "label": "",
                column: {"instruction_id_list": ["count:numbers"], "kwargs": [{"N": 2.0, "m": null}]}})],
        );
        let Truth::IfEval(truth) = &problems[0].truth else { panic!() };
        assert_eq!(
            (&*truth.instruction_id_list, &*truth.kwargs),
            (&["count:numbers".to_owned()][..], &[json!({"N": 2.0})][..])
        );
    }
}

#[test]
fn synlogic_reads_the_task_behind_the_split_and_the_nested_puzzle() {
    let (problems, _) = loaded(
        TaskKind::SynLogic,
        &[json!({"data_source": "val/sudoku", "prompt": [{"role": "user", "content": "solve"}],
            "ability": "logic", "reward_model": {"ground_truth": ""}, "extra_info": {"game_data_str": "{\"question\": \"\"}"}})],
    );
    assert_eq!(
        problems[0].truth,
        Truth::SynLogic(kind::synlogic::Truth {
            task: "sudoku".into(),
            game_data_str: "{\"question\": \"\"}".into()
        })
    );
}

#[test]
fn a_conversation_that_ends_with_an_answer_is_a_demonstration() {
    let (problems, _) = loaded(
        TaskKind::Math,
        &[json!({"messages": [{"role": "user", "content": "1+1"},
            {"role": "assistant", "content": "So \\boxed{2}."}]})],
    );
    assert_eq!(problems[0].solution.as_deref(), Some("So \\boxed{2}."));
    assert_eq!(problems[0].truth, Truth::Math(kind::math::Truth { gold: "2".into() }));
    assert_eq!(problems[0].messages.len(), 1);
}

#[test]
fn a_conversation_with_more_than_text_is_rejected() {
    let row = |more: (&str, Value), message: (&str, Value)| {
        let mut row = json!({"messages": [{"role": "user", "content": more.0}], "answer": "2"});
        row[more.0] = more.1;
        row["messages"][0][message.0] = message.1;
        row
    };
    let rows = [
        row(("none", json!(null)), ("name", json!("Ada"))),
        row(("tools", json!([])), ("tool_calls", json!([]))),
        row(("tools", json!([{"type": "function"}])), ("name", json!(null))),
        row(("chat_template_kwargs", json!({"enable_thinking": false})), ("name", json!(null))),
        row(("other", json!(1)), ("reasoning_content", json!("First"))),
    ];
    let (problems, report) = loaded(TaskKind::Math, &rows);
    assert_eq!(problems.len(), 2);
    let values: Vec<&str> = report.rejected.iter().map(|r| r.found.as_str()).collect();
    assert_eq!(values, ["tools", "chat_template_kwargs", "reasoning_content"]);
}

#[test]
fn the_id_is_of_the_prompt_alone() {
    let id = |row: Value| loaded(TaskKind::Math, &[row]).0[0].id.clone();
    let one = id(json!({"problem": "a", "answer": "1", "level": 1}));
    assert_eq!(one, id(json!({"question": "a", "gold": "2"})));
    assert_eq!(one.len(), 16);
}

#[test]
fn a_system_prompt_takes_the_place_of_the_files_own() {
    let messages = vec![Message::new("system", "old"), Message::new("user", "q")];
    let truth = Truth::Math(kind::math::Truth { gold: "1".into() });
    let problem = Problem::new(String::new(), messages, truth);
    assert_eq!(problem.conversation(Some("new")), [Message::new("system", "new"), Message::new("user", "q")]);
    assert_eq!(problem.conversation(None), problem.messages);
}

#[test]
fn parquet_with_nested_columns_is_read_like_json() {
    use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.parquet");
    let schema = parse_message_type(
        "message m { required binary data_source (UTF8); required group reward_model { required binary ground_truth (UTF8); }
         required group prompt (LIST) { repeated group list { required group element {
         required binary content (UTF8); required binary role (UTF8); } } } required int64 level; }",
    )
    .unwrap();
    let out = std::fs::File::create(&path).unwrap();
    let mut writer = SerializedFileWriter::new(out, schema.into(), Default::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let text = |values: &[&str]| values.iter().map(|v| ByteArray::from(*v)).collect::<Vec<_>>();
    for column in [vec!["math", "math"], vec!["4", "5"]] {
        let mut c = group.next_column().unwrap().unwrap();
        c.typed::<ByteArrayType>().write_batch(&text(&column), None, None).unwrap();
        c.close().unwrap();
    }
    for column in [vec!["be brief", "2+2", "2+3"], vec!["system", "user", "user"]] {
        let mut c = group.next_column().unwrap().unwrap();
        c.typed::<ByteArrayType>().write_batch(&text(&column), Some(&[1, 1, 1]), Some(&[0, 1, 0])).unwrap();
        c.close().unwrap();
    }
    let mut c = group.next_column().unwrap().unwrap();
    c.typed::<Int64Type>().write_batch(&[1, 2], None, None).unwrap();
    c.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();

    let (problems, _) = load(folder.path(), TaskKind::Math, &Columns::default()).unwrap();
    assert_eq!(problems.len(), 2);
    assert_eq!(problems[0].messages, [Message::new("system", "be brief"), Message::new("user", "2+2")]);
    assert_eq!(problems[1].truth, Truth::Math(kind::math::Truth { gold: "5".into() }));
    assert_eq!(problems[1].level.as_deref(), Some("2"));
}

#[test]
fn a_rejected_row_of_a_folder_is_named_by_its_file_and_long_values_are_shortened() {
    let (folder, _) = file(
        "train-00000-of-00002.jsonl",
        &lines(&[json!({"problem": "a", "answer": "1"}), json!({"problem": "b", "answer": "1"})]),
    );
    let long = "x".repeat(200);
    let rows = [
        json!({"problem": "c", "answer": null}),
        json!({"problem": "b", "answer": "1"}),
        json!({"problem": [long], "answer": "1"}),
    ];
    std::fs::write(folder.path().join("train-00001-of-00002.jsonl"), lines(&rows)).unwrap();
    let (_, report) = load(folder.path(), TaskKind::Math, &Columns::default()).unwrap();
    let second = folder.path().join("train-00001-of-00002.jsonl");
    assert!(report.rejected.iter().all(|r| r.file == second), "{report:?}");
    let rejected: Vec<(usize, &str)> = report.rejected.iter().map(|r| (r.row, r.found.as_str())).collect();
    let shortened = format!("problem: [\"{}...", "x".repeat(78));
    let first =
        format!("equals row 2 of {}: \"b\"", folder.path().join("train-00000-of-00002.jsonl").display());
    assert_eq!(rejected, [(1, "answer: null"), (3, shortened.as_str()), (2, first.as_str())]);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    #[test]
    fn no_file_makes_reading_panic(
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
        text in "(\\{\"(problem|prompt|answer|options|kwargs)\": ?(\"[a-z\\[\\{,'\\\\\\\\]{0,8}\"|\\[.{0,6}\\]|[0-9.e-]{1,6})\\}\n?){0,4}|[\\[\\{\",:a-z\n\\]\\}']{0,60}",
        name in "a\\.(jsonl|json|csv|tsv|parquet)",
    ) {
        for content in [bytes.as_slice(), text.as_bytes()] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(&name);
            std::fs::write(&path, content).unwrap();
            for kind in [TaskKind::Math, TaskKind::Choice, TaskKind::IfEval, TaskKind::SynLogic, TaskKind::Command] {
                let _ = load(&path, kind, &Columns::default());
            }
        }
    }
}
