//! `fgrpo generate`, and inputs that it refuses.

use crate::support::{self, ends, fgrpo, file, model, run};
use assert_cmd::Command;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

fn generate(words: &[&str]) -> Command {
    let mut command = fgrpo();
    command.arg("generate").arg("--model").arg(model()).args(words);
    command
}

#[test]
fn a_prompt_is_answered_the_same_from_every_source() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["--max-tokens", "12", "--seed", "3"];
    let (direct, said, code) = run(generate(&words).arg("What is 2 + 2?"));
    assert_eq!(code, 0, "{said}");
    assert!(direct.ends_with('\n'), "{direct:?}");
    let text = file(folder.path(), "prompt.txt", "What is 2 + 2?");
    assert_eq!(run(generate(&words).arg(text)).0, direct);
    assert_eq!(run(generate(&words).arg("-").write_stdin("What is 2 + 2?")).0, direct);
    assert_eq!(run(generate(&words).write_stdin("What is 2 + 2?")).0, direct);
    let (other, ..) = run(generate(&["--max-tokens", "12", "--seed", "4"]).arg("What is 2 + 2?"));
    assert_ne!(other, direct, "another seed, another answer");
    let (_, said, code) = run(generate(&words).args(["--raw", "What is 2 + 2?"]));
    assert_eq!(code, 0, "{said}");
    let (greedy, ..) = run(generate(&["--max-tokens", "12", "--temperature", "0", "x"]));
    assert_eq!(run(generate(&["--max-tokens", "12", "--temperature", "0", "--seed", "9", "x"])).0, greedy);
}

#[test]
fn what_is_streamed_is_the_answer_that_a_file_of_prompts_gets() {
    let folder = tempfile::tempdir().unwrap();
    let prompts: String = (0..5).map(|i| format!("{}\n", json!({"prompt": format!("Say {i}.")}))).collect();
    let prompts = file(folder.path(), "prompts.jsonl", &prompts);
    let greedy = ["--max-tokens", "20", "--temperature", "0"];
    let (out, said, code) = run(generate(&greedy).arg(&prompts));
    assert_eq!(code, 0, "{said}");
    let lines: Vec<Value> = out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines.len(), 5);
    for (i, line) in lines.iter().enumerate() {
        assert_eq!(line["prompt"], format!("Say {i}."));
        let (streamed, ..) = run(generate(&greedy).arg(format!("Say {i}.")));
        assert_eq!(streamed, format!("{}\n", line["text"].as_str().unwrap()));
    }
    // A string that ends an answer is cut from the stream too.
    let text = lines[0]["text"].as_str().unwrap();
    if let Some((before, rest)) = text.char_indices().nth(3).map(|(at, _)| text.split_at(at)) {
        let stop: String = rest.chars().take(2).collect();
        let (cut, ..) = run(generate(&greedy).args(["--stop", &stop, "Say 0."]));
        let first = text.find(&stop).unwrap();
        assert_eq!(cut, format!("{}\n", &text[..first]), "{before:?} {stop:?}");
    }
}

#[test]
fn a_file_asks_the_questions_of_eval_and_every_row_has_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let answers = |name: &str, rows: &str, words: &[&str]| {
        let (out, said, code) = run(generate(words).arg(file(folder.path(), name, rows)));
        assert_eq!(code, 0, "{said}");
        std::fs::write(folder.path().join(format!("{name}.out")), &out).unwrap();
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    let graded = |name: &str| {
        let at = |name: String| folder.path().join(name);
        let mut eval = fgrpo();
        eval.args(["eval", "-n", "1", "--task", "math", "--data"]).arg(at(name.to_owned()));
        eval.arg("--samples").arg(at(format!("{name}.out"))).arg("--out").arg(at(format!("{name}.eval")));
        ends(0, eval);
    };
    let passage = json!({"id": "q7", "Body": "Ann has 3 apples.", "Question": "How many?", "Answer": 3});
    let lines = answers("passage.jsonl", &format!("{passage}\n"), &["--max-tokens", "8"]);
    assert_eq!(lines[0]["prompt"], "Ann has 3 apples.\n\nHow many?");
    assert_eq!((&lines[0]["row"], &lines[0]["id"]), (&json!(1), &json!("q7")));
    graded("passage.jsonl");
    let choice = format!("{}\n", json!({"question": "A fruit?", "choices": ["car", "apple"], "answer": 1}));
    let lines = answers("choice.jsonl", &choice, &["--max-tokens", "2", "--task", "choice"]);
    assert!(lines[0]["prompt"].as_str().unwrap().contains("B) apple"), "{lines:?}");
    let unnamed = generate(&[]).arg(folder.path().join("choice.jsonl")).assert().code(2);
    assert!(
        String::from_utf8_lossy(&unnamed.get_output().stderr)
            .contains("the column choices could be the options")
    );
    // Copies are samples of one problem, with answers of their own.
    let lines =
        answers("copies.jsonl", &"{\"prompt\": \"a\", \"answer\": 1}\n".repeat(3), &["--max-tokens", "20"]);
    assert_eq!(
        lines.iter().map(|line| line["sample"].as_u64()).collect::<Vec<_>>(),
        [Some(0), Some(1), Some(2)]
    );
    assert_ne!(lines[0]["text"], lines[1]["text"]);
    let empty = file(folder.path(), "empty.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": \"\"}\n");
    let refused = generate(&[]).arg(empty).assert().code(2);
    assert!(String::from_utf8_lossy(&refused.get_output().stderr).contains("every row needs a prompt"));
}

#[test]
fn an_answer_depends_on_no_other_row_and_is_to_the_whole_conversation() {
    let folder = tempfile::tempdir().unwrap();
    let small = folder.path().join("small");
    let mut init = fgrpo();
    init.args(["init", "--arch", "qwen3", "--context", "64", "--tokenizer"]);
    init.arg(model()).arg("--out").arg(&small).assert().success();
    let answers = |rows: &[Value]| -> Vec<Value> {
        let rows: String = rows.iter().map(|row| format!("{row}\n")).collect();
        let mut command = fgrpo();
        command
            .args(["generate", "--raw", "--temperature", "0", "--max-tokens", "40", "--model"])
            .arg(&small);
        let (out, said, code) = run(command.arg(file(folder.path(), "rows.jsonl", &rows)));
        assert_eq!(code, 0, "{said}");
        out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["text"].clone()).collect()
    };
    let short = json!({"prompt": "Add 1."});
    let alone = answers(std::slice::from_ref(&short));
    // The answer to the short prompt has more tokens than would fit after the long one.
    assert!(alone[0].as_str().unwrap().len() > 30, "{alone:?}");
    assert_eq!(answers(&[short, json!({"prompt": "1 ".repeat(20)})])[0], alone[0]);
    let message = |role: &str, content: &str| json!({"role": role, "content": content});
    let turns =
        [message("system", "2 + 3"), message("user", "1"), message("assistant", "2"), message("user", "3")];
    let joined = answers(&[json!({"prompt": "2 + 3\n\n1\n\n2\n\n3"})]);
    assert_eq!(answers(&[json!({ "messages": turns })]), joined);
    assert_ne!(answers(&[json!({"prompt": "3"})]), joined);
}

#[test]
fn a_conversation_remembers_and_ends_with_its_input() {
    let (out, said, code) = run(generate(&["-i", "--max-tokens", "6", "--temperature", "0"])
        .write_stdin("Hello\n\nAgain\n/reset\nHello"));
    assert_eq!(code, 0, "{said}");
    let (hello, ..) = run(generate(&["--max-tokens", "6", "--temperature", "0", "Hello"]));
    assert!(out.starts_with(&hello) && out.ends_with(&hello), "{hello:?} in {out:?}");
    assert!(out.len() > 2 * hello.len(), "the second message was answered too: {out:?}");
}

#[test]
fn a_signal_ends_a_conversation_and_answers_cleanly() {
    // A model that is slow enough to be stopped.
    let folder = tempfile::tempdir().unwrap();
    let slow = folder.path().join("slow");
    let init = "init --arch qwen3 --hidden-size 256 --layers 8 --std 0.001 --context 100000 --tokenizer";
    ends(0, command!(..init.split(' '), model(), "--out", &slow));
    let prompts = file(folder.path(), "prompts.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": \"b\"}\n");
    let long = ["--max-tokens", "90000", "--temperature", "0"];
    for (words, number) in [
        (vec!["-i", "--max-tokens", "4"], libc::SIGINT),
        ([&long[..], &["Go"]].concat(), libc::SIGINT),
        ([&long[..], &[prompts.to_str().unwrap()]].concat(), libc::SIGTERM),
    ] {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_fgrpo"))
            .args(["generate", "--model"])
            .arg(&slow)
            .args(&words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut input = child.stdin.take().unwrap();
        let talks = words[0] == "-i";
        if talks {
            input.write_all(b"Hello\n").unwrap();
            let mut line = Vec::new();
            out.read_until(b'\n', &mut line).unwrap();
        } else if number == libc::SIGINT {
            let mut first = [0];
            // Streaming: there is output before the end.
            out.read_exact(&mut first).unwrap();
        } else {
            std::thread::sleep(Duration::from_millis(1000));
        }
        support::signal(&child, number);
        let started = Instant::now();
        let (code, said) = support::ended(child);
        assert!(started.elapsed() < Duration::from_secs(10), "{words:?} goes on after the signal");
        // An answer that is cut short is an error; a conversation ends normally.
        assert_eq!(code, Some(i32::from(!talks)), "{words:?}: {said}");
        assert!(!said.contains("error") && (talks || said.contains("stopped on request")), "{said}");
        drop(input);
    }
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let empty = file(folder.path(), "empty.txt", " \n");
    for (words, wanted) in [
        (vec!["--temperature=-1", "x"], "--temperature"),
        (vec!["--top-p", "0", "x"], "--top-p"),
        (vec!["--max-tokens", "0", "x"], "--max-tokens"),
        (vec![empty.to_str().unwrap()], "a prompt is required"),
        (vec!["--adapter", "/no/such", "x"], "/no/such"),
    ] {
        let (_, said, code) = run(&mut generate(&words));
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(wanted), "wanted {wanted:?} in: {said}");
    }
    let (_, said, code) = run(fgrpo().args(["generate", "--model", "/no/such/model", "x"]));
    assert_eq!((code, said.contains("/no/such/model")), (2, true), "{said}");
    let long = "Add 1. ".repeat(4000);
    let (_, said, code) = run(generate(&[]).write_stdin(long));
    assert_eq!((code, said.contains("positions")), (2, true), "{said}");
}

#[test]
fn an_answer_that_nobody_reads_is_no_failure_and_one_that_is_lost_is() {
    let folder = tempfile::tempdir().unwrap();
    let prompts = file(folder.path(), "prompts.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": \"b\"}\n");
    for prompt in ["What is 2 + 2?", prompts.to_str().unwrap()] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_fgrpo"));
        command.args(["generate", "--max-tokens", "8", prompt, "--model"]).arg(model());
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = command.stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("writing to standard output"), "{said}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command.stdout(writer).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
    }
}

#[test]
fn input_without_an_end_and_more_threads_than_there_are_are_refused() {
    let (_, said, code) = run(generate(&["--threads", "1000000000", "x"]));
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("--threads") && said.contains("at most"), "{said}");
    let folder = tempfile::tempdir().unwrap();
    let long = file(folder.path(), "long.txt", &"x ".repeat(3 << 20));
    let (_, said, code) = run(generate(&[long.to_str().unwrap()]));
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("long.txt") && said.contains("larger than 4194304 bytes"), "{said}");
    for words in [&["-"][..], &["-i"]] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_fgrpo"));
        command.args(["generate", "--max-tokens", "8"]).args(words).arg("--model").arg(model());
        let output = command.stdin(std::fs::File::open("/dev/zero").unwrap()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("standard input: ") && said.contains("4194304 bytes"), "{said}");
    }
}
