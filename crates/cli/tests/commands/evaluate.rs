//! `fgrpo eval` with a server that fails on purpose, over kills and restarts.

use crate::fault_server::{FaultServer, Manners, Policy, completion};
use crate::support::{signal, wait_until};
use serde_json::Value;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Writes `count` problems "What is A plus B?" with four options.
fn data(dir: &Path, count: usize) -> PathBuf {
    let lines: Vec<String> = (0..count).map(|i| row(3 + i, 10 * i + 1, 0)).collect();
    let path = dir.join("sums.jsonl");
    std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    path
}

/// One problem. With `off` another option is the right one.
fn row(a: usize, b: usize, off: usize) -> String {
    let option = |i: usize| (a + b + (i + off) % 4).to_string();
    serde_json::json!({
        "Question": format!("What is {a} plus {b}?"), "Correct Answer": option(0), "Incorrect Answer 1": option(1),
        "Incorrect Answer 2": option(2), "Incorrect Answer 3": option(3),
        "subject": if a.is_multiple_of(2) { "odd" } else { "even" },
    })
    .to_string()
}

fn command(url: &str, data: &Path, n: u64, out: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fgrpo"));
    command
        .args(["eval", "--server", url, "--task", "choice", "--seed", "7", "-n", &n.to_string()])
        .args(["--retry-wait", "0.01", "--retries", "12", "--timeout", "2", "--max-tokens", "64"])
        .arg("--data")
        .arg(data)
        .arg("--out")
        .arg(out)
        .env_remove("OPENAI_API_KEY")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn lines(path: &Path) -> usize {
    std::fs::read(path).map_or(0, |bytes| bytes.iter().filter(|&&b| b == b'\n').count())
}

/// Every (problem, sample) of the store. Each must occur once, with the text that its seed gives.
fn check_store(out: &Path, problems: usize, n: u64) {
    let text = std::fs::read_to_string(out.join("generations.jsonl")).unwrap();
    let mut seen = HashSet::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let key = (line["problem"].as_str().unwrap().to_owned(), line["sample"].as_u64().unwrap());
        assert!(key.1 < n, "{line}");
        assert!(seen.insert(key), "stored twice: {line}");
    }
    assert_eq!(seen.len(), problems * n as usize);
}

/// Kills the process with SIGKILL once `path` has `wanted` lines.
fn kill_after(mut child: Child, path: &Path, wanted: usize) {
    let start = Instant::now();
    while lines(path) < wanted {
        assert!(start.elapsed() < Duration::from_secs(120), "only {} lines", lines(path));
        assert!(child.try_wait().unwrap().is_none(), "ended before it could be killed");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn an_evaluation_through_a_thousand_faults_kills_and_restarts_ends_as_an_undisturbed_one() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(dir.path(), 30);
    let (calm, rough) = (dir.path().join("calm"), dir.path().join("rough"));
    let undisturbed = {
        let server = FaultServer::start(Manners::default());
        run(&mut command(&server.url(), &data, 128, &calm))
    };
    assert!(undisturbed.status.success(), "{}", stderr(&undisturbed));
    check_store(&calm, 30, 128);

    let manners = Manners { fault_percent: 25, ..Manners::default() };
    let mut server = FaultServer::start(manners.clone());
    let url = server.url();
    let store = rough.join("generations.jsonl");
    // A request for each sample, so that more than a thousand of them meet a fault.
    let evaluate = || {
        let mut command = command(&url, &data, 128, &rough);
        // On a busy machine, the time without a server uses up eight attempts of a request.
        command.args(["--per-request", "1", "--retries", "24"]);
        command
    };
    for wanted in [400, 1_200] {
        kill_after(evaluate().spawn().unwrap(), &store, wanted);
    }
    // The end of a file after a kill in the middle of a write.
    let mut torn = std::fs::read(&store).unwrap();
    torn.extend_from_slice(b"{\"problem\":\"0123456789abcdef\",\"sample\":5,\"te");
    std::fs::write(&store, torn).unwrap();
    // The server stops in the middle of a run and comes back.
    let child = evaluate().spawn().unwrap();
    while lines(&store) < 2_000 {
        std::thread::sleep(Duration::from_millis(5));
    }
    server.stop();
    let mut faults = server.faults.load(std::sync::atomic::Ordering::SeqCst);
    let port = server.address.port();
    drop(server);
    std::thread::sleep(Duration::from_millis(300));
    let server = FaultServer::start_at(manners, port);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("cut off an incomplete last line"), "{}", stderr(&output));
    faults += server.faults.load(std::sync::atomic::Ordering::SeqCst);
    assert!(faults >= 1_000, "only {faults} faults");
    check_store(&rough, 30, 128);
    assert_eq!(
        String::from_utf8_lossy(&undisturbed.stdout),
        String::from_utf8_lossy(&output.stdout),
        "the two tables differ"
    );
    let scores = |out: &Path| std::fs::read_to_string(out.join("samples.jsonl")).unwrap();
    assert!(scores(&calm) == scores(&rough), "the two scored files differ");

    let compared = Command::new(env!("CARGO_BIN_EXE_fgrpo"))
        .arg("compare")
        .args([&calm, &rough])
        .args(["-k", "1,64", "--json"])
        .output()
        .unwrap();
    let list: Value = serde_json::from_slice(&compared.stdout).unwrap();
    assert_eq!((&list[0]["difference"], &list[1]["p_value"]), (&0.0.into(), &1.0.into()), "{list}");
    assert_eq!(list[1]["k"], 64);
}

#[test]
fn scores_agree_with_the_text_that_was_served() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(dir.path(), 4);
    let out = dir.path().join("out");
    let server = FaultServer::start(Manners::default());
    let output = run(command(&server.url(), &data, 16, &out).args(["--json", "-k", "1,4"]));
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    // The text contains its seed and sum, and therefore its problem.
    let store = std::fs::read_to_string(out.join("generations.jsonl")).unwrap();
    let mut wanted = 0.0;
    for line in store.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let text = line["text"].as_str().unwrap();
        let Some((_, after)) = text.split_once("get ") else { continue };
        let got: usize = after.split('.').next().unwrap().parse().unwrap();
        let seed: u64 = text.split("draw ").nth(1).unwrap().split(')').next().unwrap().parse().unwrap();
        let right = (0..4usize).any(|i| {
            let (a, b) = (3 + i, 10 * i + 1);
            a + b == got
                && completion(&format!("What is {a} plus {b}?"), seed).0.contains(&format!("get {got}."))
        });
        wanted += f64::from(u8::from(right));
    }
    let pass = report["pass_at_k"]["1"].as_f64().unwrap();
    assert!((pass - wanted / 64.0).abs() < 1e-12, "{pass} {wanted}");
    assert_eq!(report["subjects"]["odd"]["problems"], 2);
    assert!(report["maj_at_k"]["4"].is_number() && report["tokens_per_problem"] == 144.0, "{report}");
    // Samples that were already graded have the subjects of another column.
    let mut again = command(&server.url(), &data, 16, &out);
    let output = run(again.args(["--json", "-k", "1,4", "--columns", "subject=Correct Answer"]));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["subjects"]["4"]["problems"], 1, "{report}");
    assert!(report["subjects"]["odd"].is_null(), "{report}");
}

#[test]
fn more_samples_add_to_the_old_and_nothing_is_asked_twice() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(dir.path(), 5);
    let out = dir.path().join("out");
    let server = FaultServer::start(Manners::default());
    let asked = || server.requests.load(std::sync::atomic::Ordering::SeqCst);
    assert!(run(&mut command(&server.url(), &data, 8, &out)).status.success());
    assert_eq!(asked(), 5);
    let before = std::fs::read_to_string(out.join("generations.jsonl")).unwrap();
    assert!(run(&mut command(&server.url(), &data, 8, &out)).status.success());
    assert_eq!(asked(), 5, "a whole evaluation asks for nothing");
    assert!(run(&mut command(&server.url(), &data, 12, &out)).status.success());
    check_store(&out, 5, 12);
    let after = std::fs::read_to_string(out.join("generations.jsonl")).unwrap();
    assert!(after.starts_with(&before), "old samples were touched");
}

#[test]
fn a_changed_verifier_rescores_without_sampling() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(dir.path(), 2);
    let out = dir.path().join("out");
    let mut server = FaultServer::start(Manners::default());
    let url = server.url();
    assert!(run(&mut command(&url, &data, 8, &out)).status.success());
    // This needs no server.
    server.stop();
    let again = run(&mut command(&url, &data, 8, &out));
    assert!(stderr(&again).contains("0 samples graded, 16 verdicts kept"), "{}", stderr(&again));
    let other = run(command(&url, &data, 8, &out).args(["--mode", "parity"]));
    assert!(other.status.success(), "{}", stderr(&other));
    assert!(stderr(&other).contains("16 samples graded, 0 verdicts kept"), "{}", stderr(&other));
    assert_eq!(again.stdout, other.stdout);
}

#[test]
fn servers_that_give_one_sample_at_a_time_are_found_out() {
    for (most_n, refuse_n) in [(1, true), (1, false), (3, false)] {
        let dir = tempfile::tempdir().unwrap();
        let data = data(dir.path(), 3);
        let out = dir.path().join("out");
        let server = FaultServer::start(Manners { most_n, refuse_n, ..Manners::default() });
        let output = run(command(&server.url(), &data, 10, &out).args(["--api", "completions"]));
        assert!(output.status.success(), "{}", stderr(&output));
        check_store(&out, 3, 10);
    }
}

#[test]
fn a_folder_refuses_other_settings_and_names_them() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(dir.path(), 2);
    let out = dir.path().join("out");
    let server = FaultServer::start(Manners::default());
    assert!(run(&mut command(&server.url(), &data, 2, &out)).status.success());
    for (flag, value, wanted) in [
        ("--temperature", "0.6", "sampling.temperature: the folder has 1.0, this command has 0.6"),
        ("--model", "other", "model: the folder has \"adder\", this command has \"other\""),
        ("--preset", "qwen3", "prompt.preset"),
        ("--system", "Be brief.", "prompt.system"),
    ] {
        let output = run(command(&server.url(), &data, 2, &out).args([flag, value]));
        assert_eq!(output.status.code(), Some(2), "{flag}");
        assert!(stderr(&output).contains(wanted), "{}", stderr(&output));
    }
}

#[test]
fn refusals_missing_keys_and_wrong_addresses_end_with_two() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(dir.path(), 2);
    let out = dir.path().join("out");
    let nobody = run(command("http://127.0.0.1:9", &data, 2, &out).args(["--retries", "1"]));
    assert_eq!(nobody.status.code(), Some(2), "{}", stderr(&nobody));
    assert!(stderr(&nobody).contains("127.0.0.1:9"), "{}", stderr(&nobody));
    let locked = FaultServer::start(Manners { key: Some("s3cret".into()), ..Manners::default() });
    let output = run(&mut command(&locked.url(), &data, 2, &out));
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("requires a key"), "{}", stderr(&output));
    let output = run(command(&locked.url(), &data, 2, &out).args(["--key-env", "SUMS_KEY"]));
    assert!(stderr(&output).contains("SUMS_KEY"), "{}", stderr(&output));
    let output =
        run(command(&locked.url(), &data, 2, &out).args(["--key-env", "SUMS_KEY"]).env("SUMS_KEY", "s3cret"));
    assert!(output.status.success(), "{}", stderr(&output));
    let refusing = FaultServer::start(Manners { refuse: Some("plus".into()), ..Manners::default() });
    let output = run(&mut command(&refusing.url(), &data, 2, &dir.path().join("refused")));
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("the prompt is too long"), "{}", stderr(&output));
}

#[test]
fn a_problem_that_the_server_refuses_is_missing_and_never_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(dir.path(), 6);
    let out = dir.path().join("out");
    let server = FaultServer::start(Manners { refuse: Some("What is 8 plus".into()), ..Manners::default() });
    let output = run(command(&server.url(), &data, 4, &out).args(["--concurrency", "1"]));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("4 of 24 samples of sums are still missing"), "{}", stderr(&output));
    // The table isn't taken for the whole data set's.
    assert!(
        stderr(&output).contains("sums: UNFINISHED: these values are of 5 of 6 problems"),
        "{}",
        stderr(&output)
    );
    let summary: Value = serde_json::from_slice(&std::fs::read(out.join("summary.json")).unwrap()).unwrap();
    assert_eq!(summary[0]["problems_without_samples"], 1);
    assert_eq!(lines(&out.join("samples.jsonl")), 20);
}

#[test]
fn a_model_without_a_word_is_bad_input_and_its_samples_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(dir.path(), 2);
    let out = dir.path().join("out");
    let server = FaultServer::start(Manners { silent: true, ..Manners::default() });
    let output = run(&mut command(&server.url(), &data, 4, &out));
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("all 8 responses of sums are empty"), "{}", stderr(&output));
    assert_eq!(lines(&out.join("generations.jsonl")), 8);
}

#[test]
fn samples_made_elsewhere_are_scored_by_problem_id_or_question() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("plain.jsonl");
    let rows: Vec<String> = (0..3)
        .map(|i| format!("{{\"key\":{},\"prompt\":\"Say something, number {i}.\",\"instruction_id_list\":[\"punctuation:no_comma\"],\"kwargs\":[{{}}]}}", 70 + i))
        .collect();
    std::fs::write(&data, rows.join("\n")).unwrap();
    let samples = dir.path().join("made.jsonl");
    std::fs::write(
        &samples,
        "{\"problem\":70,\"sample\":0,\"text\":\"Plain.\"}\n{\"problem\":70,\"sample\":1,\"response\":\"One, two.\"}\n\
         {\"question\":\"Say something, number 1.\",\"responses\":[\"Good.\",\"Better.\"]}\n\
         {\"id\":72,\"completions\":[\"A, B\",\"C\"]}\n{\"problem\":\"elsewhere\",\"text\":\"x\"}\n",
    )
    .unwrap();
    let evaluate = |samples: &Path, out: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fgrpo"));
        command.args(["eval", "--task", "ifeval", "-n", "2", "--json"]);
        command.arg("--samples").arg(samples).arg("--data").arg(&data).arg("--out").arg(dir.path().join(out));
        run(&mut command)
    };
    let output = evaluate(&samples, "out");
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    // 1 of 2, 2 of 2, 1 of 2.
    assert!((report["pass_at_k"]["1"].as_f64().unwrap() - 2.0 / 3.0).abs() < 1e-12, "{report}");
    assert!(stderr(&output).contains("1 of problems not in the data"), "{}", stderr(&output));
    // The first problem now has another answer: its samples are graded again, and the others' grades stay.
    std::fs::write(
        &data,
        rows.join("\n").replacen("punctuation:no_comma", "change_case:english_lowercase", 1),
    )
    .unwrap();
    let output = evaluate(&samples, "out");
    assert!(stderr(&output).contains("2 samples graded, 4 verdicts kept"), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!((report["pass_at_k"]["1"].as_f64().unwrap() - 0.5).abs() < 1e-12, "{report}");
    let doubled = dir.path().join("doubled.jsonl");
    std::fs::write(
        &doubled,
        "{\"problem\":70,\"sample\":0,\"text\":\"a\"}\n{\"problem\":70,\"sample\":0,\"text\":\"b\"}\n",
    )
    .unwrap();
    let output = evaluate(&doubled, "other");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("line 2: sample 0 of problem 70 is also in line 1"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_file_without_a_task_is_refused_as_a_training_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("eval.toml");
    std::fs::write(&config, "max-tokens = 32\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fgrpo"));
    let output = run(command.arg("eval").arg(&config).arg("--out").arg(dir.path().join("out")));
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(said.contains("eval.toml") && said.contains("max-tokens"), "{said}");
}

/// A policy that answers each request as model `name(number of the request)` and stores the requests.
fn recording(asked: &Arc<Mutex<Vec<Value>>>, name: fn(usize) -> &'static str) -> Policy {
    let asked = asked.clone();
    Arc::new(move |body| {
        let mut asked = asked.lock().unwrap();
        asked.push(body.clone());
        let choice = |i| serde_json::json!({"index": i, "finish_reason": "stop", "message": {"content": "\\boxed{A}"}});
        let choices: Vec<Value> = (0..body["n"].as_u64().unwrap_or(1)).map(choice).collect();
        Some(serde_json::json!({"model": name(asked.len()), "choices": choices}))
    })
}

#[test]
fn what_a_filter_withholds_is_no_wrong_answer() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(dir.path(), 2);
    let policy: Policy = Arc::new(|body| {
        let filtered = |i| serde_json::json!({"index": i, "finish_reason": "content_filter", "message": {"content": null}});
        let given = |i| serde_json::json!({"index": i, "finish_reason": "stop", "message": {"content": "\\boxed{A}"}});
        let choice = |i| if i % 2 == 0 { filtered(i) } else { given(i) };
        let choices: Vec<Value> = (0..body["n"].as_u64().unwrap_or(1)).map(choice).collect();
        Some(serde_json::json!({"model": "adder", "choices": choices}))
    });
    let server = FaultServer::start(Manners { policy: Some(policy), ..Manners::default() });
    let out = dir.path().join("out");
    let output = run(command(&server.url(), &data, 4, &out).args(["--per-request", "4"]));
    let said = stderr(&output);
    assert!(
        output.status.code() == Some(1) && said.contains("50.0 % of the samples of sums are unscorable"),
        "{said}"
    );
    let samples = std::fs::read_to_string(out.join("samples.jsonl")).unwrap();
    assert_eq!(samples.matches("\"reason\":\"content_filter\"").count(), 4, "{samples}");
}

#[test]
fn servers_are_told_every_sampling_setting_and_the_folder_says_what_they_were_told() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(dir.path(), 1);
    let asked = Arc::default();
    let server =
        FaultServer::start(Manners { policy: Some(recording(&asked, |_| "adder")), ..Manners::default() });
    let out = dir.path().join("out");
    assert!(run(&mut command(&server.url(), &data, 1, &out)).status.success());
    let body = asked.lock().unwrap().pop().unwrap();
    let identity: Value =
        serde_json::from_str(&std::fs::read_to_string(out.join("evaluation.json")).unwrap()).unwrap();
    for (name, wanted) in [
        ("temperature", 1.0),
        ("top_p", 1.0),
        ("top_k", -1.0),
        ("min_p", 0.0),
        ("repetition_penalty", 1.0),
        ("repeat_penalty", 1.0),
        ("presence_penalty", 0.0),
        ("frequency_penalty", 0.0),
        ("max_tokens", 64.0),
    ] {
        assert_eq!(body[name].as_f64(), Some(wanted), "{name}: {body}");
        assert_eq!(identity["sampling"][name].as_f64(), Some(wanted), "{name}: {identity}");
    }
    // Only the standard's fields, for servers that refuse others.
    let out = dir.path().join("standard");
    assert!(run(command(&server.url(), &data, 1, &out).args(["--server-api", "openai"])).status.success());
    let body = asked.lock().unwrap().pop().unwrap();
    assert!(body["top_k"].is_null() && body["top_p"] == 1.0, "{body}");
}

#[test]
fn another_model_in_an_answer_is_noticed_and_not_mixed_with_the_first_ones_samples() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(dir.path(), 6);
    let asked = Arc::default();
    let name = |number| if number <= 4 { "first" } else { "second" };
    let server = FaultServer::start(Manners { policy: Some(recording(&asked, name)), ..Manners::default() });
    let out = dir.path().join("out");
    for _ in 0..2 {
        let output = run(command(&server.url(), &data, 1, &out).args(["--concurrency", "1"]));
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(
            stderr(&output).contains("the server now answers as model second, but answered as first before"),
            "{}",
            stderr(&output)
        );
        assert_eq!(lines(&out.join("generations.jsonl")), 4);
    }
    let output = run(&mut command(&server.url(), &data, 1, &dir.path().join("other")));
    assert!(
        stderr(&output).contains("requested model adder, but the server answers as second"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn an_interruption_does_not_wait_for_a_server_that_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(dir.path(), 3);
    let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
    let policy: Policy = {
        let asked = asked.clone();
        Arc::new(move |body| {
            asked.lock().unwrap().push(body.clone());
            std::thread::sleep(Duration::from_secs(600));
            None
        })
    };
    let server = FaultServer::start(Manners { policy: Some(policy), ..Manners::default() });
    let mut command = command(&server.url(), &data, 2, &dir.path().join("out"));
    let child = command.args(["--timeout", "600"]).spawn().unwrap();
    wait_until("the server to be asked", || asked.lock().unwrap().len() >= 3);
    signal(&child, libc::SIGTERM);
    let asked = Instant::now();
    let output = child.wait_with_output().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?} from the signal to the end", asked.elapsed());
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("6 of 6 samples of sums are still missing (stopped)"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_stop_while_no_server_answers_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(dir.path(), 1);
    // No server is listening, and the wait for the next attempt is longer than this test.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut eval = command(&url, &data, 1, &dir.path().join("out"));
    let child = eval.args(["--model", "m", "--timeout", "600"]).spawn().unwrap();
    let (_asked, _) = listener.accept().unwrap();
    signal(&child, libc::SIGINT);
    let output = child.wait_with_output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("stopped on request while reaching") && !said.contains("error"), "{said}");
}

#[test]
fn a_newer_model_of_openais_is_asked_by_the_names_that_it_takes() {
    let dir = tempfile::tempdir().unwrap();
    let (data, out) = (data(dir.path(), 6), dir.path().join("eval"));
    let server = FaultServer::start(Manners { newer: true, ..Manners::default() });
    let output =
        run(command(&server.url(), &data, 4, &out).args(["--server-api", "openai", "--api", "chat"]));
    assert!(output.status.success(), "{}", stderr(&output));
    check_store(&out, 6, 4);
}
