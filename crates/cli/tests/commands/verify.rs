//! `fgrpo verify`, through the command line.

use assert_cmd::Command;
use serde_json::{Value, json};

fn verify(arguments: &[&str], input: &str) -> (Vec<Value>, i32, String) {
    let output = Command::cargo_bin("fgrpo")
        .unwrap()
        .arg("verify")
        .args(arguments)
        .write_stdin(input)
        .output()
        .unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let errors = String::from_utf8(output.stderr).unwrap();
    (lines, output.status.code().unwrap(), errors)
}

#[test]
fn math_reads_options_and_modes_of_a_line() {
    let line = |rest: Value| {
        let mut line = json!({"gold": "1/2", "response": "so \\boxed{0.5}"});
        line.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        line.to_string()
    };
    let input = [
        line(json!({})),
        line(json!({"response": "\\boxed{2}"})),
        json!({"gold": "x", "pred": "I think we should consider the case when n is even."}).to_string(),
        line(json!({"gold": "$0.333$", "response": "$1/3$", "match_types": ["latex"], "precision": 3})),
        line(json!({"match_types": ["latin"]})),
    ]
    .join("\n");
    for mode in ["parity", "strict"] {
        let (lines, code, _) = verify(&["math", "-", "--mode", mode], &input);
        let verdicts: Vec<&str> = lines.iter().map(|l| l["verdict"].as_str().unwrap()).collect();
        assert_eq!(verdicts, ["correct", "wrong", "unparsed", "correct", "unscorable"], "{mode}");
        assert_eq!(code, 2);
    }
}

#[test]
fn a_gold_may_be_a_json_number() {
    let line = |gold: Value, response: &str| json!({"gold": gold, "response": response}).to_string();
    let input = [
        line(json!(72), "so it is 72"),
        line(json!(-3), "\\boxed{3}"),
        line(json!(0.5), "\\boxed{\\frac12}"),
        line(json!(2.0), "\\boxed{2}"),
        line(json!(18446744073709551615u64), "\\boxed{18446744073709551615}"),
        line(json!({"value": "3", "unit": "cm"}), "\\boxed{1}"),
        line(json!(["72"]), "72"),
    ]
    .join("\n");
    let (lines, code, _) = verify(&["math", "-"], &input);
    let verdicts: Vec<&str> = lines.iter().map(|l| l["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["correct", "wrong", "correct", "correct", "correct", "unscorable", "correct"]);
    assert!(lines[5]["reason"].as_str().unwrap().contains("an object of 2 fields"), "{}", lines[5]);
    assert_eq!(code, 2);
}

#[test]
fn no_answer_makes_its_line_unscorable() {
    let math =
        ["\\boxed{\\int x dx}", "\\boxed{\\lim_{x\\to 0} g(x)}", "\\boxed{5!!!!}", "\\boxed{5^{5^{5^5}}}"];
    let input: Vec<String> = math.iter().map(|r| json!({"gold": "7", "response": r}).to_string()).collect();
    for mode in ["parity", "strict"] {
        let (lines, code, _) = verify(&["math", "-", "--mode", mode], &input.join("\n"));
        for (line, response) in lines.iter().zip(math) {
            assert_eq!(
                (line["verdict"].as_str(), line["reason"].as_str()),
                (Some("wrong"), Some("budget")),
                "{response}"
            );
        }
        assert_eq!(code, 0);
    }
    // The same holds for a gold that isn't computed here.
    let line = json!({"gold": "\\int_0^\\infty e^{-x^2} dx", "response": "\\boxed{1}"}).to_string();
    assert_eq!(verify(&["math", "-"], &line).0[0]["verdict"], "wrong");
    let game = json!({"question": "q", "answer": "x", "difficulty": 1, "metadata": {"numbers": [9, 9, 9, 9],
        "operators": ["+", "-", "*", "/", "**"], "result": 24}});
    let line = json!({"task": "game_of_24", "game_data_str": game.to_string(), "response": "```python\n9**9**9**9\n```"});
    let (lines, ..) = verify(&["synlogic", "-"], &line.to_string());
    assert_eq!(lines[0]["verdict"], "wrong", "{}", lines[0]);
}

#[test]
fn ifeval_adds_strict_and_loose_labels() {
    let line = json!({"key": 1, "prompt": "p", "instruction_id_list": ["punctuation:no_comma", "startend:quotation"],
        "kwargs": [{}, {"num_words": null}], "response": "Sure:\n\"no commas\""});
    let (lines, code, _) = verify(&["ifeval", "-"], &format!("{line}\n"));
    assert_eq!(code, 0);
    assert_eq!(
        lines,
        [
            json!({"verdict": "wrong", "reason": "startend:quotation", "strict": [true, false], "loose": [true, true]})
        ]
    );
}

#[test]
fn choice_compares_letters_and_on_demand_words() {
    let line = json!({"gold": "B", "options": ["x", "y"], "response": "\\boxed{y}"}).to_string();
    let (lines, ..) = verify(&["choice", "-"], &line);
    assert_eq!(lines, [json!({"verdict": "wrong", "reason": "not_a_letter"})]);
    let (lines, ..) = verify(&["choice", "-", "--choice", "letter-or-content"], &line);
    assert_eq!(lines, [json!({"verdict": "correct", "reason": "content"})]);
}

#[test]
fn synlogic_reads_the_game_and_the_gate() {
    let game =
        json!({"question": "q", "answer": "ab", "difficulty": 1, "metadata": {"full_sequence": "(())"}});
    let line = |response: &str| {
        json!({"task": "dyck_language", "game_data_str": game.to_string(), "response": response}).to_string()
    };
    let (lines, code, _) = verify(&["synlogic", "-"], &line("(())"));
    assert_eq!((lines[0]["verdict"].as_str(), code), (Some("correct"), 0));
    let (lines, ..) = verify(&["synlogic", "-", "--format-gate", "on"], &line("(())"));
    assert_eq!(lines[0]["verdict"], "wrong");
    let (lines, ..) =
        verify(&["synlogic", "-", "--format-gate", "on"], &line("<think>x</think><answer>(())</answer>"));
    assert_eq!(lines[0]["verdict"], "correct");
}

#[test]
fn bad_lines_keep_their_place_and_end_with_exit_code_two() {
    let good = json!({"gold": "A", "response": "\\boxed{A}"}).to_string();
    let input =
        format!("{good}\nnot json\n\n{{\"gold\": \"A\"}}\n{{\"gold\": \"?\", \"response\": \"\"}}\n{good}");
    let (lines, code, errors) = verify(&["choice", "-"], &input);
    let verdicts: Vec<&str> = lines.iter().map(|l| l["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["correct", "unscorable", "unscorable", "unscorable", "unscorable", "correct"]);
    let reason = |i: usize| lines[i]["reason"].as_str().unwrap().to_owned();
    assert!(reason(1).starts_with("bad_input: line 2: "), "{}", reason(1));
    assert!(reason(3).contains("line 4: response: missing"), "{}", reason(3));
    assert!(reason(4).contains("found \"?\""), "{}", reason(4));
    assert_eq!(code, 2);
    assert!(errors.contains("4 of 6 lines could not be read, first line 2"), "{errors}");
}

#[test]
fn order_is_kept_over_many_lines_and_threads() {
    let letters = ["A", "B", "C"];
    let input: String = (0..20_000)
        .map(|i| {
            json!({"gold": "B", "response": format!("\\boxed{{{}}}", letters[i % 3])}).to_string() + "\n"
        })
        .collect();
    for threads in ["1", "5"] {
        let (lines, code, _) = verify(&["choice", "-", "--threads", threads], &input);
        assert_eq!((lines.len(), code), (20_000, 0));
        let right =
            |(i, line): (usize, &Value)| line["verdict"] == if i % 3 == 1 { "correct" } else { "wrong" };
        assert!(lines.iter().enumerate().all(right));
    }
}

#[test]
fn a_command_scores_lines_and_its_failures_are_unscorable() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("grade.py");
    std::fs::write(
        &script,
        "import sys, json, time\nfor line in sys.stdin:\n    d = json.loads(line)\n    c = d['completion']\n    if c == 'hang': time.sleep(100)\n    if c == 'die': sys.exit(1)\n    print(json.dumps({'score': d['problem']['worth']}), flush=True)\n",
    )
    .unwrap();
    let line =
        |worth: f64, response: &str| json!({"problem": {"worth": worth}, "response": response}).to_string();
    let input =
        [line(1.0, "a"), line(0.5, "b"), line(1.0, "die"), line(1.0, "hang"), line(0.0, "c")].join("\n");
    let command = format!("python3 {}", script.display());
    let (lines, code, _) =
        verify(&["command", "-", "--command", &command, "--timeout-s", "3", "--threads", "1"], &input);
    assert_eq!(
        lines,
        [
            json!({"verdict": "correct", "reason": "score", "reward": 1.0}),
            json!({"verdict": "wrong", "reason": "score", "reward": 0.5}),
            json!({"verdict": "unscorable", "reason": "died"}),
            json!({"verdict": "unscorable", "reason": "timeout"}),
            json!({"verdict": "wrong", "reason": "score", "reward": 0.0}),
        ]
    );
    assert_eq!(code, 0);
}

#[test]
fn wrong_flags_and_missing_files_are_bad_input() {
    for arguments in [
        &["choice", "/no/such/file.jsonl"][..],
        &["command", "-"],
        &["choice", "-", "--command", "cat"],
        &["choice", "-", "--threads", "0"],
        &["command", "-", "--command", "/no/such/program"],
        &["chess", "-"],
    ] {
        assert_eq!(verify(arguments, "").1, 2, "{arguments:?}");
    }
}

#[test]
fn an_input_without_a_line_is_bad_input() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.jsonl");
    std::fs::write(&empty, "").unwrap();
    for input in ["-", empty.to_str().unwrap()] {
        let (lines, code, said) = verify(&["ifeval", input], "");
        assert_eq!((lines.len(), code), (0, 2), "{said}");
        assert!(said.contains(&format!("{input}: the input is empty")), "{said}");
    }
}
