//! Thoughts before an answer: every kind grades the text after them.

use super::{config, fgrpo, file, run};
use serde_json::{Value, json};
use std::path::Path;

/// The verdicts and reasons of lines.
fn verify(arguments: &[&str], lines: &[Value]) -> Vec<(String, String)> {
    let input: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let (out, said, code) = run(fgrpo().arg("verify").args(arguments).write_stdin(input));
    assert_eq!(code, 0, "{arguments:?}: {said}");
    let text = |line: &Value, key: &str| line[key].as_str().unwrap().to_owned();
    let read = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        (text(&line, "verdict"), text(&line, "reason"))
    };
    out.lines().map(read).collect()
}

fn reasons(arguments: &[&str], lines: &[Value]) -> Vec<String> {
    verify(arguments, lines).into_iter().map(|(verdict, reason)| format!("{verdict} {reason}")).collect()
}

/// A kind with its flags, the other fields of a line, a right and a wrong answer.
struct Kind {
    flags: Vec<String>,
    line: Value,
    right: &'static str,
    wrong: &'static str,
}

fn kinds(folder: &Path) -> Vec<Kind> {
    let grader = "def reward(completion, answer, answer_text, **columns):\n    return float(answer_text.split() == answer.split())\n\ndef trl(completions, answer, answer_text, **columns):\n    return [float(a in t) for a, t in zip(answer, answer_text)]\n";
    let grader = file(folder, "grade.py", grader).display().to_string();
    let program = "import sys, json\nfor line in sys.stdin:\n    d = json.loads(line)\n    print(json.dumps({'score': int('yes' in d['answer_text'])}), flush=True)\n";
    let program = format!("python3 {}", file(folder, "answer.py", program).display());
    let game =
        json!({"question": "q", "answer": "ab", "difficulty": 1, "metadata": {"full_sequence": "(())"}});
    let kind = |flags: &[&str], line, right, wrong| Kind {
        flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        line,
        right,
        wrong,
    };
    vec![
        kind(
            &["math", "--mode", "strict"],
            json!({"gold": "13"}),
            "The answer is 13.",
            r"try \boxed{12}? no.",
        ),
        kind(&["math", "--mode", "strict"], json!({"gold": "x+1"}), r"So $\boxed{x+1}$.", r"\boxed{x}"),
        kind(&["choice"], json!({"gold": "B"}), r"\boxed{B}", r"\boxed{A}"),
        kind(
            &["choice", "--choice", "letter-or-content"],
            json!({"gold": "B"}),
            "The answer is B.",
            "The answer is A.",
        ),
        kind(
            &["ifeval"],
            json!({"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}], "prompt": ""}),
            "no comma here",
            "one, comma",
        ),
        kind(
            &["synlogic", "--mode", "strict"],
            json!({"task": "dyck_language", "game_data_str": game.to_string()}),
            "(())",
            "(()",
        ),
        kind(&["json-schema"], json!({"schema": {"required": ["a"]}}), "{\"a\": 1}", "{\"b\": 1}"),
        kind(&["regex"], json!({"pattern": r"\b42\b"}), "it is 42", "it is 43"),
        kind(
            &["code"],
            json!({"asserts": ["assert f() == 1"]}),
            "```python\ndef f(): return 1\n```",
            "def f(): return 2",
        ),
        kind(&["python", "--grader", &format!("{grader}:reward")], json!({"answer": "4"}), "4", "5"),
        kind(&["python", "--grader", &format!("{grader}:trl")], json!({"answer": "4"}), "4", "5"),
        kind(&["command", "--command", &program], json!({"problem": {}}), "yes", "no"),
    ]
}

#[test]
fn no_kind_rewards_thoughts_and_every_kind_rewards_the_answer_after_them() {
    // O and C are the tags, R is a right answer, W a wrong one, and F are words around them.
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
    let folder = tempfile::tempdir().unwrap();
    let tags = [
        ("<think>", "</think>"),
        ("[THINK]", "[/THINK]"),
        ("<|begin_of_thought|>", "<|end_of_thought|>"),
        ("◁think▷", "◁/think▷"),
    ];
    let words = ["\n", "\n\nHm.\n\n", " \t\n", "\nWait: \"so\" it is.\n"];
    let mut cases = 0;
    for kind in kinds(folder.path()) {
        for (open, close) in tags {
            // A program takes its time, and the words don't depend on the tags.
            let all = kind.flags[0] != "code" && open == "<think>";
            let words = if all { &words[..] } else { &words[..1] };
            let made = words.iter().flat_map(|words| FORMS.map(|form| (form, *words)));
            let (forms, lines): (Vec<_>, Vec<_>) = made
                .map(|((form, wanted), words)| {
                    // Words before a tag are thoughts only there. IFEval's answer is everything that follows.
                    let parts = form.chars().map(|c| match c {
                        'O' => open,
                        'C' => close,
                        // A closing tag whose end is missing.
                        'c' => &close[..close.len() - close.chars().next_back().unwrap().len_utf8()],
                        'R' => kind.right,
                        'W' => kind.wrong,
                        'F' => words,
                        '\n' => "\n",
                        _ => " ",
                    });
                    let mut line = kind.line.clone();
                    line["response"] = json!(parts.collect::<String>());
                    ((form, wanted), line)
                })
                .unzip();
            let reasoning = format!("{open},{close}");
            let mut arguments: Vec<&str> = kind.flags.iter().map(String::as_str).collect();
            arguments.insert(1, "-");
            if open != "<think>" {
                arguments.extend(["--reasoning", &reasoning]);
            }
            let found = verify(&arguments, &lines);
            for (((form, wanted), line), (verdict, reason)) in forms.into_iter().zip(&lines).zip(found) {
                let right = match wanted {
                    "unfinished" => (&*verdict, &*reason) == ("unparsed", "unfinished_thoughts"),
                    "correct" => verdict == "correct",
                    _ => verdict == "wrong" || verdict == "unparsed",
                };
                assert!(right, "{arguments:?}: {form}: wanted {wanted}, found {verdict} {reason}: {line}");
                cases += 1;
            }
        }
    }
    assert!(cases > 1000, "{cases}");
}

#[test]
fn the_whole_text_is_graded_in_parity_mode_and_on_demand() {
    let line = json!({"gold": "12", "response": "<think>try \\boxed{12}? no.</think> The answer is 13."});
    let graded =
        |more: &[&str]| reasons(&[&["math", "-"], more].concat(), std::slice::from_ref(&line))[0].clone();
    assert_eq!(graded(&[]), "correct exact");
    assert_eq!(graded(&["--mode", "parity"]), "correct exact");
    assert_eq!(graded(&["--mode", "strict"]), "wrong exact");
    assert_eq!(graded(&["--reasoning", "strip"]), "wrong exact");
    let line =
        json!({"gold": "12", "response": "<think>So \\boxed{12}.</think> I have no time to check this now."});
    let graded =
        |more: &[&str]| reasons(&[&["math", "-"], more].concat(), std::slice::from_ref(&line))[0].clone();
    assert_eq!(graded(&["--mode", "strict"]), "unparsed none");
    assert_eq!(graded(&["--mode", "strict", "--reasoning", "keep"]), "correct exact");
    assert_eq!(graded(&["--mode", "strict", "--reasoning", "[A],[B]"]), "correct exact");
    let comma = json!({"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}], "prompt": "", "response": "<think>a, b</think> c"});
    let graded =
        |more: &[&str]| reasons(&[&["ifeval", "-"], more].concat(), std::slice::from_ref(&comma))[0].clone();
    assert_eq!(graded(&[]), "correct followed");
    assert_eq!(graded(&["--mode", "parity"]), "wrong punctuation:no_comma");
}

#[test]
fn tags_that_cannot_be_told_apart_are_refused_with_what_was_wanted() {
    for tags in ["<think>", ",</think>", "##,##"] {
        let (_, said, code) = run(fgrpo().args(["verify", "math", "-", "--reasoning", tags]).write_stdin(""));
        assert!(code == 2 && said.contains("OPEN,CLOSE"), "{said}");
    }
}

#[test]
fn the_format_gate_is_about_the_whole_response() {
    let game =
        json!({"question": "q", "answer": "ab", "difficulty": 1, "metadata": {"full_sequence": "(())"}});
    let line = |response: &str| json!({"task": "dyck_language", "game_data_str": game.to_string(), "response": response});
    let lines = [
        line("<think>x</think><answer>(())</answer>"),
        line("x</think><answer>(())</answer>"),
        line("<answer>(())</answer>"),
        line("<think><answer>(())</answer></think><answer>((</answer>"),
        line("<think>x</think><answer>(())</answer><answer>((</answer>"),
    ];
    for mode in ["parity", "strict"] {
        let found = reasons(&["synlogic", "-", "--format-gate", "on", "--mode", mode], &lines);
        assert!(found[0].starts_with("correct"), "{found:?}");
        for refused in &found[1..] {
            assert!(refused.contains("wrong format"), "{mode}: {found:?}");
        }
    }
}

#[test]
fn a_column_of_the_data_set_is_not_replaced_by_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let grader = "def reward(completion, answer_text):\n    return float(answer_text in completion)\n";
    let grader = format!("{}:reward", file(folder.path(), "grade.py", grader).display());
    let line = json!({"answer_text": "4", "response": "<think>4</think> 5"});
    assert_eq!(reasons(&["python", "-", "--grader", &grader], &[line]), ["correct score"]);
}

#[test]
fn an_evaluation_and_its_votes_read_the_answers_alone_and_configurations_say_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let data = file(folder.path(), "d.jsonl", "{\"problem\": \"a\", \"answer\": \"13\"}\n");
    let text = "<think>\\boxed{12}</think> Then it follows that this is \\boxed{13}";
    let unfinished = "<think>\\boxed{13}";
    let samples: String = [text, unfinished]
        .iter()
        .enumerate()
        .map(|(i, text)| format!("{}\n", json!({"problem": "a", "sample": i, "text": text})))
        .collect();
    let samples = file(folder.path(), "s.jsonl", &samples);
    let config = config(folder.path(), "math", &data, "").display().to_string();
    let mut number = 0;
    let mut evaluated = |arguments: &[&str]| {
        number += 1;
        let out = folder.path().join(format!("out{number}"));
        let mut eval = fgrpo();
        eval.args(["eval", "-n", "2", "-k", "1", "--json"]).args(arguments).arg("--samples").arg(&samples);
        let (_, said, code) = run(eval.arg("--data").arg(&data).arg("--out").arg(&out));
        assert_eq!(code, 0, "{said}");
        let scored = std::fs::read_to_string(out.join("samples.jsonl")).unwrap();
        scored
            .lines()
            .map(|line| {
                let line: Value = serde_json::from_str(line).unwrap();
                format!("{} {} {}", line["correct"], line["reason"].as_str().unwrap(), line["answer"])
            })
            .collect::<Vec<String>>()
    };
    let stripped = ["true exact \"13\"", "false unfinished_thoughts null"];
    assert_eq!(evaluated(&[&config]), stripped);
    assert_eq!(evaluated(&["--task", "math", "--reasoning", "strip"]), stripped);
    let kept = ["true exact \"13\"", "true exact \"13\""];
    assert_eq!(evaluated(&["--task", "math"]), kept);
    // In strict mode, a response with two different boxes has no answer.
    let strictly = ["false exact \"13\"", "true exact \"13\""];
    assert_eq!(evaluated(&[&config, "--set", "task.reasoning=keep"]), strictly);
    assert_eq!(evaluated(&[&config, "--set", "task.verifier.mode=parity"]), kept);
    assert_eq!(evaluated(&[&config, "--set", "task.reasoning=[A],[B]"]), strictly);
}

#[test]
fn logs_of_lm_eval_and_verl_are_graded_by_the_answers_after_the_thoughts() {
    let folder = tempfile::tempdir().unwrap();
    let texts =
        ["<think>\\boxed{12}</think> \\boxed{13}", "<think>\\boxed{13}", "\\boxed{13}</think> \\boxed{12}"];
    let lm_eval: String = texts
        .iter()
        .enumerate()
        .map(|(i, text)| {
            format!("{}\n", json!({"doc_id": i, "doc": {}, "target": "13", "resps": [[text]], "filter": "f"}))
        })
        .collect();
    let verl: String = texts
        .iter()
        .enumerate()
        .map(|(i, text)| {
            format!(
                "{}\n",
                json!({"input": format!("q{i}"), "output": text, "gts": "13", "score": 0.0, "step": 1})
            )
        })
        .collect();
    for (name, log) in [("samples_a_2026-01-01T00-00-00.000000.jsonl", lm_eval), ("1.jsonl", verl)] {
        let path = file(folder.path(), name, &log);
        let (out, said, code) = run(fgrpo().arg("pass-at-k").arg(&path).args(["-k", "1", "--json"]));
        assert_eq!(code, 0, "{said}");
        let found: Value = serde_json::from_str(&out).unwrap();
        assert!((found["pass_at_k"]["1"].as_f64().unwrap() - 1.0 / 3.0).abs() < 1e-9, "{name}: {out}");
    }
}
