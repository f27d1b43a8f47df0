//! `fgrpo verify`: lines and flags of every kind, bad lines, and the order of results. The verdicts are tested in their crates.

use crate::support::{ends, fgrpo, file, run};
use serde_json::{Value, json};

fn verify(arguments: &[&str], input: &str) -> (Vec<Value>, i32, String) {
    let (printed, said, code) = run(fgrpo().arg("verify").args(arguments).write_stdin(input));
    (printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), code, said)
}

fn verdicts(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["verdict"].as_str().unwrap()).collect()
}

#[test]
fn every_kind_reads_its_line_and_its_flags() {
    let math = |rest: Value| {
        let mut line = json!({"gold": "1/2", "response": "so \\boxed{0.5}"});
        line.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        line
    };
    let unclear = json!({"gold": "x", "pred": "I think we should consider the case when n is even."});
    let rounded = json!({"gold": "$0.333$", "response": "$1/3$", "match_types": ["latex"], "precision": 3});
    let choice = json!({"gold": "B", "options": ["x", "y"], "response": "\\boxed{y}"});
    let follow = json!({"key": 1, "prompt": "p", "instruction_id_list": ["punctuation:no_comma", "startend:quotation"],
        "kwargs": [{}, {"num_words": null}], "response": "Sure:\n\"no commas\""});
    let brackets = |response: &str| {
        let game =
            json!({"question": "q", "answer": "ab", "difficulty": 1, "metadata": {"full_sequence": "(())"}});
        json!({"task": "dyck_language", "game_data_str": game.to_string(), "response": response})
    };
    let labels = json!({"verdict": "wrong", "reason": "startend:quotation", "strict": [true, false], "loose": [true, true]});
    for (arguments, line, wanted) in [
        ("math -", math(json!({})), json!({"verdict": "correct"})),
        ("math - --mode strict", math(json!({})), json!({"verdict": "correct"})),
        ("math -", math(json!({"response": "\\boxed{2}"})), json!({"verdict": "wrong"})),
        ("math -", unclear, json!({"verdict": "unparsed"})),
        ("math -", rounded, json!({"verdict": "correct"})),
        // An answer whose value isn't computed is wrong, not unscorable.
        (
            "math -",
            math(json!({"response": "\\boxed{5!!!!}"})),
            json!({"verdict": "wrong", "reason": "budget"}),
        ),
        // The gold of a line may be a number.
        ("math -", math(json!({"gold": 0.5})), json!({"verdict": "correct"})),
        ("math -", math(json!({"gold": ["72"], "response": "72"})), json!({"verdict": "correct"})),
        ("choice -", choice.clone(), json!({"verdict": "wrong", "reason": "not_a_letter"})),
        ("choice - --choice letter-or-content", choice, json!({"verdict": "correct", "reason": "content"})),
        ("ifeval -", follow, labels),
        ("synlogic -", brackets("(())"), json!({"verdict": "correct"})),
        ("synlogic - --format-gate on", brackets("(())"), json!({"verdict": "wrong"})),
        (
            "synlogic - --format-gate on",
            brackets("<think>x</think><answer>(())</answer>"),
            json!({"verdict": "correct"}),
        ),
    ] {
        let (lines, code, said) = verify(&arguments.split(' ').collect::<Vec<_>>(), &line.to_string());
        assert_eq!(code, 0, "{said}");
        for (key, value) in wanted.as_object().unwrap() {
            assert_eq!(lines[0][key], *value, "{arguments} {line}: {}", lines[0]);
        }
    }
}

#[test]
fn bad_lines_keep_their_place_and_end_with_exit_code_two() {
    let good = json!({"gold": "A", "response": "\\boxed{A}"}).to_string();
    let input =
        format!("{good}\nnot json\n\n{{\"gold\": \"A\"}}\n{{\"gold\": \"?\", \"response\": \"\"}}\n{good}");
    let (lines, code, errors) = verify(&["choice", "-"], &input);
    assert_eq!(
        verdicts(&lines),
        ["correct", "unscorable", "unscorable", "unscorable", "unscorable", "correct"]
    );
    let reason = |i: usize| lines[i]["reason"].as_str().unwrap().to_owned();
    assert!(reason(1).starts_with("bad_input: line 2: "), "{}", reason(1));
    assert!(reason(3).contains("line 4: response: missing"), "{}", reason(3));
    assert!(reason(4).contains("found \"?\""), "{}", reason(4));
    assert_eq!(code, 2);
    assert!(errors.contains("4 of 6 lines could not be read, first line 2"), "{errors}");
    // Options and golds of a line.
    let wrong = json!({"gold": "1/2", "response": "0.5", "match_types": ["latin"]});
    let object = json!({"gold": {"value": "3", "unit": "cm"}, "response": "\\boxed{1}"});
    let (lines, code, _) = verify(&["math", "-"], &format!("{wrong}\n{object}\n"));
    assert_eq!((verdicts(&lines), code), (vec!["unscorable"; 2], 2));
    assert!(lines[1]["reason"].as_str().unwrap().contains("an object of 2 fields"), "{}", lines[1]);
}

#[test]
fn order_is_kept_over_many_lines_and_threads() {
    let letters = ["A", "B", "C"];
    let line = |i: usize| json!({"gold": "B", "response": format!("\\boxed{{{}}}", letters[i % 3])});
    let input: String = (0..5_000).map(|i| format!("{}\n", line(i))).collect();
    for threads in ["1", "5"] {
        let (lines, code, _) = verify(&["choice", "-", "--threads", threads], &input);
        assert_eq!((lines.len(), code), (5_000, 0));
        let right =
            |(i, line): (usize, &Value)| line["verdict"] == if i % 3 == 1 { "correct" } else { "wrong" };
        assert!(lines.iter().enumerate().all(right));
    }
}

#[test]
fn a_command_scores_lines_and_its_failures_are_unscorable() {
    let folder = tempfile::tempdir().unwrap();
    let script = file(
        folder.path(),
        "grade.py",
        "import sys, json, time\nfor line in sys.stdin:\n    d = json.loads(line)\n    c = d['completion']\n    if c == 'hang': time.sleep(100)\n    if c == 'die': sys.exit(1)\n    print(json.dumps({'score': d['problem']['worth']}), flush=True)\n",
    );
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
fn wrong_flags_and_missing_or_empty_files_are_bad_input() {
    for arguments in [
        "choice /no/such/file.jsonl",
        "command -",
        "choice - --command cat",
        "choice - --threads 0",
        "command - --command /no/such/program",
        "chess -",
    ] {
        ends(2, command!("verify", ..arguments.split(' ')));
    }
    let folder = tempfile::tempdir().unwrap();
    let empty = file(folder.path(), "empty.jsonl", "");
    for input in ["-", empty.to_str().unwrap()] {
        let (lines, code, said) = verify(&["ifeval", input], "");
        assert_eq!((lines.len(), code), (0, 2), "{said}");
        assert!(said.contains(&format!("{input}: the input is empty")), "{said}");
    }
}
