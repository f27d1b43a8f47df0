//! Verdicts on lines of `fgrpo verify`, for all kinds.

mod functions;

use fgrpo_eval::io::json::parse;
use fgrpo_eval::kind::TaskKind;
use fgrpo_eval::names::Named;
use fgrpo_eval::program;
use fgrpo_eval::verifier::{Grading, Reasoning, Settings};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;

/// Lines with their verdicts. The head of the file explains them.
const LINES: &str = include_str!("lines.txt");

/// Returns the verdict and the reason of a line.
pub(super) fn graded(kind: TaskKind, grading: &Grading, line: &str) -> (&'static str, String) {
    #[derive(serde::Deserialize)]
    struct Line {
        response: String,
    }
    let Line { response } = parse(line.as_bytes()).unwrap();
    match kind.verifier_of_line(line.as_bytes(), grading) {
        Ok(verifier) => {
            let graded = grading.grade(&response, |response| verifier.explain(response));
            (graded.verdict.name(), graded.reason.into_owned())
        }
        Err(why) => ("unscorable", why),
    }
}

/// Returns the verdict of a line under the default settings.
fn verdict(kind: TaskKind, line: &Value) -> &'static str {
    graded(kind, &kind.grading(Settings::default()).unwrap(), &line.to_string()).0
}

/// Grading by a kind, which may be followed by settings.
fn grading(described: &str) -> Grading {
    let (kind, settings) = described.split_once(' ').unwrap_or((described, "{}"));
    let mut settings: Value = serde_json::from_str(settings).unwrap();
    let reasoning = settings.as_object_mut().unwrap().shift_remove("reasoning");
    let settings: Settings = serde_json::from_value(settings).unwrap();
    let reasoning = reasoning.map(|text| text.as_str().unwrap().parse().unwrap());
    TaskKind::from_name(kind).unwrap().grading(Settings { reasoning, ..settings }).unwrap()
}

/// Checks the lines whose kind is in `kinds`.
fn check(kinds: impl Fn(TaskKind) -> bool) {
    let mut gradings = HashMap::new();
    let mut off = Vec::new();
    for row in LINES.lines().filter(|row| !row.is_empty() && !row.starts_with('#')) {
        let [described, wanted, line]: [&str; 3] =
            row.splitn(3, " | ").collect::<Vec<_>>().try_into().unwrap();
        let kind = TaskKind::from_name(described.split(' ').next().unwrap()).unwrap();
        if !kinds(kind) {
            continue;
        }
        let grading = gradings.entry(described).or_insert_with(|| grading(described));
        let (verdict, reason) = graded(kind, grading, line);
        let found = match wanted.strip_prefix("not correct") {
            Some(_) if ["wrong", "unparsed"].contains(&verdict) => format!("not correct {reason}"),
            _ => format!("{verdict} {reason}"),
        };
        let mut parts = wanted.split(" … ");
        if !(found.starts_with(parts.next().unwrap()) && parts.all(|part| found.contains(part))) {
            off.push(format!("wanted {wanted}, found {found}: {line}"));
        }
    }
    assert!(off.is_empty(), "{}", off.join("\n"));
}

#[test]
fn answers_are_graded_as_their_kind_reads_them() {
    check(|kind| kind != TaskKind::Code);
}

#[test]
fn programs_are_graded_by_their_tests() {
    check(|kind| kind == TaskKind::Code);
}

#[test]
fn hostile_answers_take_linear_time() {
    let started = std::time::Instant::now();
    let almost = "a".repeat(50_000) + "b";
    let alternative = |a: &str| json!({"properties": {"x": {"$ref": "#"}, "a": {"type": a}}});
    let recursive = json!({"anyOf": [alternative("string"), alternative("null")]});
    let deep = |a: &str| (0..60).fold(format!("{{\"a\": {a}}}"), |inner, _| format!("{{\"x\": {inner}}}"));
    for (kind, line, wanted) in [
        (TaskKind::Regex, json!({"pattern": "(a+)+$", "response": almost}), "wrong"),
        (
            TaskKind::JsonSchema,
            json!({"schema": {"pattern": "(a+)+$"}, "response": json!(almost).to_string()}),
            "wrong",
        ),
        (TaskKind::JsonSchema, json!({"schema": true, "response": "[".repeat(100_000)}), "unparsed"),
        (TaskKind::JsonSchema, json!({"schema": recursive, "response": deep("1")}), "wrong"),
        (TaskKind::JsonSchema, json!({"schema": recursive, "response": deep("null")}), "correct"),
    ] {
        assert_eq!(verdict(kind, &line), wanted, "{kind}");
    }
    assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
}

#[test]
fn equal_options_and_a_reference_answer_that_is_no_mathematics_are_doubtful() {
    let doubt = |kind: TaskKind, line: Value| {
        let grading = kind.grading(Settings::default()).unwrap();
        kind.verifier_of_line(line.to_string().as_bytes(), &grading).unwrap().doubt()
    };
    assert_eq!(doubt(TaskKind::Math, json!({"gold": "1"})), None);
    assert!(
        doubt(TaskKind::Math, json!({"gold": "Monday @ noon"})).unwrap().starts_with("gold: no mathematics")
    );
    let options = doubt(TaskKind::Choice, json!({"gold": "A", "options": ["x", "x"]}));
    assert!(options.unwrap().starts_with("options: two are equal"));
}

#[test]
fn tags_that_cannot_be_told_apart_are_refused() {
    for tags in ["<think>", ",</think>", "##,##"] {
        let why = tags.parse::<Reasoning>().unwrap_err();
        assert!(why.starts_with("expected OPEN,CLOSE"), "{why}");
    }
}

/// A kind with its settings, the other fields of a line, a right and a wrong answer.
struct Kind(TaskKind, Settings, Value, &'static str, &'static str);

fn kinds(folder: &Path) -> Vec<Kind> {
    let write = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).unwrap();
        folder.join(name).display().to_string()
    };
    let grader = write(
        "grade.py",
        "def reward(completion, answer, answer_text, **columns):\n    return float(answer_text.split() == answer.split())\n\ndef trl(completions, answer, answer_text, **columns):\n    return [float(a in t) for a, t in zip(answer, answer_text)]\n",
    );
    let program = write(
        "answer.py",
        "import sys, json\nfor line in sys.stdin:\n    d = json.loads(line)\n    print(json.dumps({'score': int('yes' in d['answer_text'])}), flush=True)\n",
    );
    let command = program::Settings::parse(&format!("python3 {program}")).unwrap();
    let by = |command: program::Settings| Settings { command: Some(command), ..Settings::default() };
    let function = |name: &str| by(program::Settings::of_function(&format!("{grader}:{name}")));
    let own = |text: &str| serde_json::from_str::<Settings>(text).unwrap();
    let game = r#"{"question": "q", "answer": "ab", "difficulty": 1, "metadata": {"full_sequence": "(())"}}"#;
    vec![
        Kind(TaskKind::Math, own("{}"), json!({"gold": "13"}), "The answer is 13.", r"try \boxed{12}? no."),
        Kind(TaskKind::Math, own("{}"), json!({"gold": "x+1"}), r"So $\boxed{x+1}$.", r"\boxed{x}"),
        Kind(TaskKind::Choice, own("{}"), json!({"gold": "B"}), r"\boxed{B}", r"\boxed{A}"),
        Kind(
            TaskKind::Choice,
            own(r#"{"choice": "letter-or-content"}"#),
            json!({"gold": "B"}),
            "The answer is B.",
            "The answer is A.",
        ),
        Kind(
            TaskKind::IfEval,
            own("{}"),
            json!({"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}], "prompt": ""}),
            "no comma here",
            "one, comma",
        ),
        Kind(
            TaskKind::SynLogic,
            own(r#"{"format_gate": false}"#),
            json!({"task": "dyck_language", "game_data_str": game}),
            "(())",
            "(()",
        ),
        Kind(
            TaskKind::JsonSchema,
            own("{}"),
            json!({"schema": {"required": ["a"]}}),
            "{\"a\": 1}",
            "{\"b\": 1}",
        ),
        Kind(TaskKind::Regex, own("{}"), json!({"pattern": r"\b42\b"}), "it is 42", "it is 43"),
        Kind(
            TaskKind::Code,
            own("{}"),
            json!({"asserts": ["assert f() == 1"]}),
            "```python\ndef f(): return 1\n```",
            "def f(): return 2",
        ),
        Kind(TaskKind::Python, function("reward"), json!({"answer": "4"}), "4", "5"),
        Kind(TaskKind::Python, function("trl"), json!({"answer": "4"}), "4", "5"),
        Kind(TaskKind::Command, by(command), json!({"problem": {}}), "yes", "no"),
    ]
}

#[test]
fn no_kind_rewards_thoughts_and_every_kind_rewards_the_answer_after_them() {
    // O and C are the tags, c is a closing tag without its end, R is a right answer, W a wrong one, and F are words around them.
    const FORMS: [(&str, &str); 16] = [
        ("FOFWFC\nR", "correct"),
        ("FOFRFCFW", "not correct"),
        ("WFCR", "correct"),
        ("RFCW", "not correct"),
        ("R", "correct"),
        ("W", "not correct"),
        ("OFRF", "unfinished"),
        ("FOFW\nR", "unfinished"),
        ("RFOW", "unfinished"),
        ("ORCRFO", "unfinished"),
        ("ORcW", "unfinished"),
        ("ORC", "not correct"),
        ("ORC\n \n", "not correct"),
        ("OROWCW", "not correct"),
        ("OWORCWCR", "correct"),
        ("RCRCW", "not correct"),
    ];
    const TAGS: [[&str; 2]; 4] = [
        ["<think>", "</think>"],
        ["[THINK]", "[/THINK]"],
        ["<|begin_of_thought|>", "<|end_of_thought|>"],
        ["◁think▷", "◁/think▷"],
    ];
    const WORDS: [&str; 4] = ["\n", "\n\nHm.\n\n", " \t\n", "\nWait: \"so\" it is.\n"];
    let folder = tempfile::tempdir().unwrap();
    for Kind(kind, settings, fields, right, wrong) in kinds(folder.path()) {
        for [open, close] in TAGS {
            // A program takes its time, and the words don't depend on the tags.
            let all = kind != TaskKind::Code && open == "<think>";
            let reasoning = (open != "<think>").then(|| format!("{open},{close}").parse().unwrap());
            let grading = kind.grading(Settings { reasoning, ..settings.clone() }).unwrap();
            let words = WORDS.iter().take(if all { 4 } else { 1 });
            for (words, (form, wanted)) in words.flat_map(|words| FORMS.map(|form| (*words, form))) {
                let parts = form.chars().map(|c| match c {
                    'O' => open,
                    'C' => close,
                    'c' => &close[..close.len() - close.chars().next_back().unwrap().len_utf8()],
                    'R' => right,
                    'W' => wrong,
                    'F' => words,
                    '\n' => "\n",
                    _ => " ",
                });
                let mut line = fields.clone();
                line["response"] = json!(parts.collect::<String>());
                let (verdict, reason) = graded(kind, &grading, &line.to_string());
                let agrees = match wanted {
                    "unfinished" => (verdict, &*reason) == ("unparsed", "unfinished_thoughts"),
                    "correct" => verdict == "correct",
                    _ => ["wrong", "unparsed"].contains(&verdict),
                };
                assert!(agrees, "{kind}: {form}: wanted {wanted}, found {verdict} {reason}: {line}");
            }
        }
    }
}

#[test]
fn a_column_of_the_data_set_is_not_replaced_by_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let grader = folder.path().join("grade.py");
    std::fs::write(
        &grader,
        "def reward(completion, answer_text):\n    return float(answer_text in completion)\n",
    )
    .unwrap();
    let function = program::Settings::of_function(&format!("{}:reward", grader.display()));
    let grading = TaskKind::Python.grading(Settings { command: Some(function), ..Settings::default() });
    let line = r#"{"answer_text": "4", "response": "<think>4</think> 5"}"#;
    assert_eq!(graded(TaskKind::Python, &grading.unwrap(), line), ("correct", "score".to_owned()));
}
