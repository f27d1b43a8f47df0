//! Answers that must fit a JSON schema or a pattern.

use super::{config, fgrpo, file, run};
use serde_json::{Value, json};

/// The verdict and the reason of a line, within a second.
fn verdict(kind: &str, line: &Value) -> (String, i32) {
    let start = std::time::Instant::now();
    let (out, _, code) = run(fgrpo().args(["verify", kind, "-"]).write_stdin(line.to_string()));
    assert!(start.elapsed().as_secs() < 10, "{line}");
    let found: Value = serde_json::from_str(&out).unwrap();
    (format!("{} {}", found["verdict"].as_str().unwrap(), found["reason"].as_str().unwrap()), code)
}

#[test]
fn json_is_judged_by_its_schema() {
    let age = json!({"required": ["age"], "properties": {"age": {"type": "integer", "minimum": 0}}});
    for (schema, response, wanted) in [
        (age.clone(), "{\"age\": 3}", "correct valid"),
        (json!(age.to_string()), "<think>{}</think>\nSo:\n```json\n{\"age\": 3}\n```", "correct valid"),
        (age.clone(), "{\"age\": -3}", "wrong invalid: /age: -3 is less than the minimum of 0"),
        (age.clone(), "```\n{}\n```", "wrong invalid: : \"age\" is a required property"),
        (age.clone(), "The age is 3.", "unparsed no_json"),
        (age.clone(), "{\"age\": 3} {\"age\": 4}", "unparsed no_json"),
        (age, &"[".repeat(100_000), "unparsed no_json"),
        (json!({"pattern": "(a+)+$"}), &format!("{:?}", "a".repeat(50_000) + "b"), "wrong invalid: "),
    ] {
        let (found, code) = verdict("json-schema", &json!({"schema": schema, "response": response}));
        assert!(found.starts_with(wanted) && code == 0, "wanted {wanted}, found {found}");
    }
    for (schema, wanted) in [
        (json!({"type": "strin"}), "/type"),
        (json!({"pattern": "(?=a)"}), "/pattern"),
        (json!({"$ref": "file:///etc/passwd"}), "retriev"),
        (json!(5), "wanted an object"),
    ] {
        let (found, code) = verdict("json-schema", &json!({"schema": schema, "response": "{}"}));
        assert!(found.starts_with("unscorable") && found.contains(wanted) && code == 2, "{found}");
    }
}

#[test]
fn alternatives_that_refer_to_each_other_take_linear_time() {
    let alternative = |a: &str| json!({"properties": {"x": {"$ref": "#"}, "a": {"type": a}}});
    let schema = json!({"anyOf": [alternative("string"), alternative("null")]});
    let deep = |a: &str| (0..60).fold(format!("{{\"a\": {a}}}"), |inner, _| format!("{{\"x\": {inner}}}"));
    for (a, wanted) in [("1", "wrong invalid"), ("null", "correct valid")] {
        let line = json!({"schema": schema, "response": deep(a)});
        assert_eq!(verdict("json-schema", &line), (wanted.to_owned(), 0));
    }
}

#[test]
fn texts_are_judged_by_their_pattern() {
    for (pattern, response, wanted, code) in [
        (r"\b42\b", "it is 42.", "correct match", 0),
        (r"\b42\b", "<think>42</think> 43", "wrong no_match", 0),
        (r"^\d{4}$", "<think>?</think>\n 2026 \n", "correct match", 0),
        ("(a+)+$", &("a".repeat(100_000) + "b"), "wrong no_match", 0),
        ("(?=a)", "a", "unscorable bad_input: line 1: regex parse error", 2),
        ("(a{1000}){1000}", "a", "unscorable bad_input: line 1: Compiled regex exceeds size limit", 2),
    ] {
        let (found, ended) = verdict("regex", &json!({"pattern": pattern, "response": response}));
        assert!(found.starts_with(wanted) && ended == code, "wanted {wanted}, found {found}");
    }
}

#[test]
fn a_data_set_of_schemas_or_patterns_trains_and_rows_with_bad_ones_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let rows = |key: &str, good: Value, bad: Value| {
        let row = |i: usize, rule: &Value| json!({"prompt": format!("Say {i}."), key: rule}).to_string();
        let good = (0..8).map(|i| row(i, &good));
        good.chain([row(8, &bad)]).map(|row| row + "\n").collect::<String>()
    };
    for (kind, data) in [
        ("json-schema", rows("schema", json!({"type": "object"}), json!({"type": "strin"}))),
        ("json_schema", rows("schema", json!({"type": "object"}), json!({"type": "strin"}))),
        ("regex", rows("pattern", json!("^[a-z]"), json!("(?=a)"))),
    ] {
        let data = file(folder.path(), "rules.jsonl", &data);
        let path = config(folder.path(), kind, &data, "max_prompt_tokens = 64");
        let out = folder.path().join(kind);
        let (_, said, code) = run(fgrpo().arg("train").arg(&path).arg("--out").arg(&out));
        assert_eq!(code, 0, "{kind}: {said}");
        assert!(said.contains("9 rows read, 8 problems kept"), "{said}");
    }
}
