//! A wrong value in any JSON file is refused with the file, line and field, the expected value and the one found. The messages
//! are tested where the files are read; here each file has a row, and whether a command reads it by that reader.

use crate::attacks::run;
use crate::confine::Ended;
use crate::inputs::{Inputs, VERIFY, copy, text_config};
use serde_json::{Value, json};
use std::path::Path;

/// Replaces the value at `pointer` in the file, or in this line of it (from 1), by `value`.
fn spoil(path: &Path, line: Option<usize>, pointer: &str, value: &Value) {
    let text = std::fs::read_to_string(path).unwrap();
    let changed = |text: &str| {
        let mut json: Value = serde_json::from_str(text).unwrap();
        *json.pointer_mut(pointer).unwrap_or_else(|| panic!("{}: no {pointer} in {text}", path.display())) =
            value.clone();
        json.to_string()
    };
    let spoiled = match line {
        None => changed(&text),
        Some(line) => {
            let lines = (1..).zip(text.lines());
            lines.map(|(i, l)| if i == line { changed(l) + "\n" } else { format!("{l}\n") }).collect()
        }
    };
    std::fs::write(path, spoiled).unwrap();
}

/// Runs a command, which must exit as for bad input.
fn refused(folder: &Path, line: &str, says: &[&str]) -> Ended {
    let ended = run(folder, line);
    assert_eq!(ended.code, Some(2), "{line}: {}", ended.stderr);
    for text in says {
        assert!(ended.stderr.contains(text), "{line}: wanted {text:?} in: {}", ended.stderr);
    }
    ended
}

const SCORE: &str = "score --model model tokens.jsonl --threads 1";
const TEXT: &str = "train text.toml --dry-run";
const COUNT: &str = "pass-at-k samples.jsonl --uneven --resamples 100";
const RESUME: &str = "train maze.toml --out run --resume --set steps=3 --accept-changes";
const NLL: &str = "nll evaluated --base model --model x=model";
const MAZES: &str = "eval --model model --task maze --data mazes.jsonl -n 1 --out new";
const AGAIN: &str = "eval --samples made.jsonl --data data.jsonl --task math -n 3 --out evaluated";
const VECTORS: &str = "diversity evaluated --by embeddings --embeddings vectors.jsonl";
const DIVERSITY: &str = "diversity evaluated";
const VERIFIED: &str = "verify math lines.jsonl";
const REPORT: &str = "report run";
const SELECT: &str = "select run";
const STATE: &str = "run/checkpoints/step-000002/trainer_state.json";

/// File with its line, if it has lines, and field; wrong value; the command that reads the file, and parts of its message.
type Case<'a> = (&'a str, Value, &'a str, &'a str);

#[test]
fn a_wrong_value_in_any_file_is_named_by_its_field() {
    let folder = tempfile::tempdir().unwrap();
    let good = folder.path().join("good");
    std::fs::create_dir(&good).unwrap();
    Inputs::make(&good);
    text_config(&good, "math", "data.jsonl", "model");
    std::fs::write(good.join("mazes.jsonl"), "{\"size\": 9, \"seed\": 0, \"index\": 3}\n").unwrap();
    std::fs::write(good.join("lines.jsonl"), format!("{}\n", VERIFY[0].1)).unwrap();
    let rollout = json!({"step": 1, "prompt_id": 0, "prompt": "p", "completion": "c", "verdict": "correct", "reason": "equal"});
    std::fs::write(good.join("run/rollouts.jsonl"), format!("{rollout}\n")).unwrap();
    let vectors = "{\"problem\": \"a\", \"sample\": 0, \"embedding\": [1, 2]}\n";
    std::fs::write(good.join("vectors.jsonl"), vectors).unwrap();

    let cases: &[Case<'_>] = &[
        ("model/config.json /hidden_size", json!("wide"), SCORE, "hidden_size: "),
        (
            "model/config.json /eos_token_id",
            json!("x"),
            TEXT,
            "eos_token_id: expected a token id|found \"x\"",
        ),
        ("model/tokenizer_config.json /eos_token", json!(5), TEXT, "eos_token: "),
        ("model/tokenizer_config.json ", json!(5), TEXT, ": expected an object, found 5"),
        (
            "samples.jsonl:1 /problem",
            json!([]),
            COUNT,
            "line 1: problem: expected a string or a whole number",
        ),
        (
            "samples.jsonl:2 /correct",
            json!("yes"),
            COUNT,
            "line 2: correct: expected true, false or a number",
        ),
        ("samples.jsonl:5 /n", json!(-4), COUNT, "line 5: n: |found -4|expected a whole number from 0 to "),
        ("run/eval.jsonl:1 /per_problem/2", json!("x"), REPORT, "line 1: per_problem[2]: "),
        ("run/eval.jsonl:2 /pass_at_k/4", json!("x"), SELECT, "line 2: pass_at_k.4: expected a number"),
        // A missing field, as after a rename: no empty plot, and no compute of 0.
        ("run/metrics.jsonl:1 ", json!({"step": 1}), REPORT, "line 1: reward_mean: missing"),
        ("run/metrics.jsonl:2 /seconds", json!({"rollout": 1.0}), SELECT, "line 2: seconds.grade: missing"),
        (
            "run/metrics.jsonl:2 /verdicts",
            json!([1]),
            RESUME,
            "verdicts: expected an object, found a list of 1",
        ),
        ("run/sft.jsonl:1 ", json!({"step": 1}), REPORT, "line 1: loss: missing"),
        ("run/rollouts.jsonl:1 /step", json!("x"), REPORT, "line 1: step: |found \"x\""),
        (&format!("{STATE} /step"), json!("x"), RESUME, "step: |found \"x\"|can't be used; move it away"),
        (&format!("{STATE} /best"), json!({"step": 1}), RESUME, "best.pass_at_1: missing"),
        ("tokens.jsonl:1 ", json!([[1, 2]]), SCORE, "line 1: expected an object, found a list of 1"),
        ("mazes.jsonl:1 ", json!([9, 0, 3]), MAZES, "line 1: expected an object, found a list of 3"),
        ("data.jsonl:2 ", json!(5), TEXT, "line 2: expected an object, found 5"),
        ("evaluated/prompts.jsonl:1 /messages/0", json!([]), NLL, "line 1: messages[0]: expected an object"),
        ("evaluated/generations.jsonl:1 /text", json!(5), NLL, "line 1: text: expected a string, found 5"),
        ("evaluated/generations.jsonl:2 /sample", json!("x"), AGAIN, "line 2: sample: |found \"x\""),
        ("evaluated/samples.jsonl:1 /verdict", json!("maybe"), DIVERSITY, "line 1: verdict: |\"maybe\""),
        ("lines.jsonl:1 /precision", json!("x"), VERIFIED, "line 1: precision: |found \"x\""),
        ("vectors.jsonl:1 /embedding/1", json!("x"), VECTORS, "line 1: embedding[1]: expected a number"),
    ];
    let place = folder.path().join("place");
    let fresh = || {
        let _ = std::fs::remove_dir_all(&place);
        copy(&good, &place);
    };
    for (field, value, command, says) in cases {
        fresh();
        let (of_file, pointer) = field.split_once(' ').unwrap();
        let (file, line) = of_file.split_once(':').unwrap_or((of_file, ""));
        spoil(&place.join(file), line.parse().ok(), pointer, value);
        let ended = refused(&place, command, &says.split('|').collect::<Vec<_>>());
        let name = Path::new(file).file_name().unwrap().to_str().unwrap();
        assert!(ended.stderr.contains(name), "{command}: wanted {file} in: {}", ended.stderr);
        assert!(ended.stderr.lines().count() <= 3, "{command}: {}", ended.stderr);
    }
    for (file, command, says) in [
        ("samples.jsonl", COUNT, "line 1: invalid JSON at byte 15"),
        ("run/metrics.jsonl", REPORT, "metrics.jsonl line 1: invalid JSON at byte 15"),
        ("evaluated/evaluation.json", AGAIN, "restore this file, or evaluate into another folder"),
        ("model/tokenizer_config.json", TEXT, "tokenizer_config.json: invalid JSON at "),
    ] {
        fresh();
        let text = std::fs::read_to_string(place.join(file)).unwrap();
        let rest = text.split_once('\n').map_or("", |(_, rest)| rest);
        std::fs::write(place.join(file), format!("{{\"problem\": 1,, }}\n{rest}")).unwrap();
        refused(&place, command, &[says]);
    }
}
