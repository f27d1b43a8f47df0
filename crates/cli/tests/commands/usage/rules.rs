//! Answers that must fit a JSON schema or a pattern.

use super::{config, fgrpo, file, run};
use serde_json::{Value, json};

/// Returns the verdict and the reason of a line, which must come within a second.
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
        // A later block that looks like JSON replaces an earlier one, whatever its language. Other languages aren't answers.
        (age.clone(), "```json\n{\"age\": 3}\n```\nNo:\n```jsonc\n{}\n```", "unparsed no_json"),
        (age.clone(), "```json\n{\"age\": 3}\n```\nNo:\n```javascript\n{}\n```", "unparsed no_json"),
        (age.clone(), "```json\n{\"age\": 3}\n```\nIt is used so:\n```python\nshow(x)\n```", "correct valid"),
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
        (json!(5), "expected an object"),
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
        (r"^\d{4}$", "<think>?</think>\n\n2026\n", "correct match", 0),
        (r"^\d{4}$", "<think>?</think>\n 2026", "wrong no_match", 0),
        ("(a+)+$", &("a".repeat(100_000) + "b"), "wrong no_match", 0),
        ("(?=a)", "a", "unscorable bad_input: line 1: ", 2),
        ("(a{1000}){1000}", "a", "unscorable bad_input: line 1: ", 2),
    ] {
        let (found, ended) = verdict("regex", &json!({"pattern": pattern, "response": response}));
        assert!(found.starts_with(wanted) && ended == code, "wanted {wanted}, found {found}");
    }
}

/// The verdicts of many lines of a kind.
fn verdicts(kind: &str, lines: &[Value]) -> Vec<String> {
    let input: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let (out, _, _) = run(fgrpo().args(["verify", kind, "-"]).write_stdin(input));
    let verdict =
        |line: &str| serde_json::from_str::<Value>(line).unwrap()["verdict"].as_str().unwrap().to_owned();
    out.lines().map(verdict).collect()
}

#[test]
fn patterns_have_the_meaning_of_python() {
    // The verdict is that of `re.search` in CPython 3.11, or "unscorable" if `re` or this kind refuses the pattern.
    let cases = [
        (r"\<x\>", "<x>", "correct"),
        (r"\<x\>", "x", "wrong"),
        ("[a[b]]", "[]", "correct"),
        ("[a[b]]", "a", "wrong"),
        ("[a&&b]", "&", "correct"),
        ("[a&&b]", "b", "correct"),
        ("[a~~b]", "~", "correct"),
        ("[a--b]", "a", "unscorable"),
        ("[+--]", "-", "correct"),
        ("[[:alpha:]]", "z", "wrong"),
        ("[[:alpha:]]", "a]", "correct"),
        (r"a\Z", "a", "correct"),
        (r"a\z", "a", "unscorable"),
        (r"\w", "\u{93e}", "wrong"),
        (r"\p{L}", "a", "unscorable"),
        (r"\x{41}", "A", "unscorable"),
        (r"\x41", "A", "correct"),
        (r"\101", "A", "correct"),
        (r"\h", "h", "unscorable"),
        ("(?<n>a)", "a", "unscorable"),
        ("(?P<n>a)", "a", "correct"),
        ("(?x)a b", "ab", "unscorable"),
        ("(?U)a+", "a", "unscorable"),
        ("(?-u)a", "a", "unscorable"),
        ("(?R)a", "a", "unscorable"),
        ("a{,2}b", "aaab", "correct"),
        ("a{1,2", "a{1,2", "correct"),
        ("{", "{", "correct"),
        (r"\b{start}x", "x", "wrong"),
        (r"(a)\1", "aa", "unscorable"),
        ("a++", "aa", "unscorable"),
        ("(?m)^b$", "a\nb", "correct"),
        ("^b$", "a\nb", "wrong"),
        ("(?i)É", "é", "correct"),
        // White space around an answer counts.
        ("^.{1,3}$", "  ab  ", "wrong"),
        (r"\A\S", "\n\nx", "wrong"),
        (r"\S\Z", "x   ", "wrong"),
        ("^    return", "    return x", "correct"),
        (r"\n\Z", "a\n", "correct"),
        ("a$", "a\n", "correct"),
        ("a$", "a\n\n", "wrong"),
        // Blank lines after thoughts don't.
        (r"\Aa$", "<think>1</think>\n\na", "correct"),
        (r"\Aa$", "<think>1</think>\n a", "wrong"),
    ];
    let lines: Vec<Value> = cases.iter().map(|(p, r, _)| json!({"pattern": p, "response": r})).collect();
    for ((pattern, response, wanted), found) in cases.iter().zip(verdicts("regex", &lines)) {
        assert_eq!(&found, wanted, "{pattern} in {response}");
    }
}

#[test]
fn formats_are_asserted_in_every_draft_and_numbers_are_exact() {
    let draft_2020 = "https://json-schema.org/draft/2020-12/schema";
    let formats = [
        ("time", "25:00:00Z", "12:00:00Z"),
        ("date", "2024-02-30", "2024-02-29"),
        ("date-time", "2024-01-01", "2024-01-01T00:00:00Z"),
        ("email", "x", "a@b.co"),
        ("idn-email", "x", "ä@b.co"),
        ("ipv4", "300.1.1.1", "30.1.1.1"),
        ("ipv6", "1::2::3", "1::2"),
        ("uri", "nope", "https://a.b/"),
        ("uuid", "x", "2eb8aa08-aa98-11ea-b4aa-73b441d16380"),
        ("duration", "1 day", "P1D"),
        ("hostname", "-a-", "a.b"),
        ("json-pointer", "a", "/a"),
        ("regex", "(", "a+"),
    ];
    let of_formats = formats.iter().flat_map(|(format, bad, good)| {
        [
            (json!({"format": format}), *bad, false),
            (json!({"$schema": draft_2020, "format": format}), *good, true),
        ]
    });
    let (mut lines, mut wanted): (Vec<String>, Vec<bool>) = of_formats
        .map(|(schema, text, right)| {
            (json!({"schema": schema, "response": json!(text).to_string()}).to_string(), right)
        })
        .unzip();
    for (schema, response, right) in [
        (r#"{"const": 18446744073709551619}"#, "18446744073709551619", true),
        (r#"{"const": 18446744073709551619}"#, "18446744073709551616", false),
        (r#"{"const": 18446744073709551619}"#, "1.8446744073709551619e19", true),
        (r#"{"enum": [1, 18446744073709551619]}"#, "1.8446744073709552e19", false),
        (r#"{"const": {"n": [-9223372036854775809]}}"#, r#"{"n": [-9223372036854775809]}"#, true),
        (r#"{"const": {"n": [-9223372036854775809]}}"#, r#"{"n": [-9223372036854775808]}"#, false),
        (r#"{"minimum": 18446744073709551619}"#, "18446744073709551618", false),
        (r#"{"minimum": 18446744073709551619}"#, "1e30", true),
        (r#"{"exclusiveMaximum": 1}"#, "0.99999999999999999999999999", true),
        (r#"{"maximum": 100000000000000000000}"#, "100000000000000000001", false),
        (r#"{"maximum": 10}"#, "1e400", false),
        (r#"{"const": 0.1}"#, "0.10000000000000001", false),
        (r#"{"type": "integer"}"#, "1.00000000000000000000001", false),
        (r#"{"type": "integer"}"#, "100000000000000000000000000001", true),
        (r#"{"multipleOf": 10}"#, "100000000000000000000000010", true),
        (r#"{"multipleOf": 10}"#, "100000000000000000000000011", false),
        (r#"{"uniqueItems": true}"#, "[18446744073709551619, 18446744073709551620]", true),
        (r#"{"uniqueItems": true}"#, "[18446744073709551619, 18446744073709551619.0]", false),
        (r#"{"properties": {"const": {"minLength": 3}}}"#, r#"{"const": "ab", "n": 1e400}"#, false),
        (r#"{"properties": {"minimum": {"minLength": 2}}}"#, r#"{"minimum": "ab", "n": 1e400}"#, true),
        (r#"{"type": "integer"}"#, "\"\u{fdd0}number:5\"", false),
        (r#"{"type": "integer"}"#, r#""\uFDD0number:5""#, false),
    ] {
        // A schema may be a value or a string.
        for schema in [schema.to_owned(), json!(schema).to_string()] {
            lines.push(format!("{{\"schema\": {schema}, \"response\": {}}}", json!(response)));
            wanted.push(right);
        }
    }
    let (out, _, _) = run(fgrpo().args(["verify", "json-schema", "-"]).write_stdin(lines.join("\n")));
    for ((line, right), found) in lines.iter().zip(wanted).zip(out.lines()) {
        assert_eq!(found.contains(r#""verdict":"correct""#), right, "{line}: {found}");
        assert!(!found.contains("unscorable"), "{line}: {found}");
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
