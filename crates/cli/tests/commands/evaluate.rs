//! `fgrpo eval` with a server that fails on purpose, over kills and restarts.

use crate::fault_server::{FaultServer, Manners, Policy, completion};
use crate::support::{self, count, ended, file, lines, signal, wait_until};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A folder with problems "What is A plus B?", each with four options.
struct Place {
    dir: tempfile::TempDir,
    data: PathBuf,
}

impl Place {
    fn new(problems: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let row = |i: usize| {
            let (a, b) = (3 + i, 10 * i + 1);
            let option = |i: usize| (a + b + i).to_string();
            let row = json!({
                "Question": format!("What is {a} plus {b}?"), "Correct Answer": option(0), "Incorrect Answer 1": option(1),
                "Incorrect Answer 2": option(2), "Incorrect Answer 3": option(3),
                "subject": if a.is_multiple_of(2) { "odd" } else { "even" },
            });
            format!("{row}\n")
        };
        let data = file(dir.path(), "sums.jsonl", &(0..problems).map(row).collect::<String>());
        Self { dir, data }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, url: &str, n: u64, out: &str, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fgrpo"));
        command
            .args(["eval", "--server", url, "--task", "choice", "--seed", "7", "-n", &n.to_string()])
            .args(["--retry-wait", "0.01", "--timeout", "2", "--max-tokens", "64"])
            .arg("--data")
            .arg(&self.data)
            .arg("--out")
            .arg(self.at(out))
            .args(more)
            .env_remove("OPENAI_API_KEY")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Evaluates into the folder `out`, which must end with `code`. Returns stdout and stderr.
    #[track_caller]
    fn eval(&self, code: i32, server: &FaultServer, n: u64, out: &str, more: &[&str]) -> (String, String) {
        let output = self.command(&server.url(), n, out, more).output().unwrap();
        let [out, said] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(output.status.code(), Some(code), "{more:?}: {said}");
        (out, said)
    }

    /// Number of stored samples.
    fn stored(&self, out: &str) -> usize {
        count(&self.at(out).join("generations.jsonl"))
    }

    /// Every (problem, sample) of the store must occur once.
    #[track_caller]
    fn check_store(&self, out: &str, problems: usize, n: u64) {
        let mut seen = HashSet::new();
        for line in lines(&self.at(out).join("generations.jsonl")) {
            let key = (line["problem"].as_str().unwrap().to_owned(), line["sample"].as_u64().unwrap());
            assert!(key.1 < n && seen.insert(key), "beyond n or stored twice: {line}");
        }
        assert_eq!(seen.len(), problems * n as usize);
    }
}

fn polite() -> FaultServer {
    FaultServer::start(Manners::default())
}

/// Kills the process with SIGKILL once `path` has `wanted` lines.
fn kill_after(mut child: Child, path: &Path, wanted: usize) {
    wait_until("lines", || {
        assert!(child.try_wait().unwrap().is_none(), "ended before it could be killed");
        count(path) >= wanted
    });
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn an_evaluation_through_a_thousand_faults_kills_and_restarts_ends_as_an_undisturbed_one() {
    let place = Place::new(30);
    let (undisturbed, _) = place.eval(0, &polite(), 128, "calm", &[]);
    place.check_store("calm", 30, 128);

    let manners = Manners { fault_percent: 25, ..Manners::default() };
    let mut server = FaultServer::start(manners.clone());
    let url = server.url();
    let store = place.at("rough/generations.jsonl");
    // A request for each sample, so that more than a thousand of them meet a fault. On a busy machine, the time without a
    // server uses up eight attempts of a request.
    let evaluate =
        || place.command(&url, 128, "rough", &["--per-request", "1", "--retries", "24"]).spawn().unwrap();
    for wanted in [400, 1_200] {
        kill_after(evaluate(), &store, wanted);
    }
    // The end of a file after a kill in the middle of a write.
    let mut torn = std::fs::read(&store).unwrap();
    torn.extend_from_slice(b"{\"problem\":\"0123456789abcdef\",\"sample\":5,\"te");
    std::fs::write(&store, torn).unwrap();
    // The server stops in the middle of a run and comes back.
    let child = evaluate();
    wait_until("samples", || count(&store) >= 2_000);
    server.stop();
    let mut faults = server.faults.load(Ordering::SeqCst);
    let port = server.address.port();
    drop(server);
    std::thread::sleep(Duration::from_millis(300));
    let server = FaultServer::start_at(manners, port);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("cut off an incomplete last line"), "{said}");
    faults += server.faults.load(Ordering::SeqCst);
    assert!(faults >= 1_000, "only {faults} faults");
    place.check_store("rough", 30, 128);
    assert_eq!(undisturbed, String::from_utf8_lossy(&output.stdout), "the two tables differ");
    support::assert_same_files(&place.at("calm"), &place.at("rough"), &["samples.jsonl"]);
    let [calm, rough] = ["calm", "rough"].map(|name| place.at(name).display().to_string());
    let list = support::json(&["compare", &calm, &rough, "-k", "1,64", "--json"]);
    assert_eq!((&list[0]["difference"], &list[1]["p_value"]), (&0.0.into(), &1.0.into()), "{list}");
    assert_eq!(list[1]["k"], 64);
}

#[test]
fn scores_agree_with_the_text_that_was_served() {
    let place = Place::new(4);
    let server = polite();
    let report = |more: &[&str]| -> Value {
        let more = [&["--json", "-k", "1,4"], more].concat();
        serde_json::from_str(&place.eval(0, &server, 16, "out", &more).0).unwrap()
    };
    let first = report(&[]);
    // The text contains its seed and sum, and therefore its problem.
    let is_right = |line: &Value| -> bool {
        let text = line["text"].as_str().unwrap();
        let Some((_, after)) = text.split_once("get ") else { return false };
        let got: usize = after.split('.').next().unwrap().parse().unwrap();
        let seed: u64 = text.split("draw ").nth(1).unwrap().split(')').next().unwrap().parse().unwrap();
        (0..4).map(|i| (3 + i, 10 * i + 1)).any(|(a, b)| {
            let answer = completion(&format!("What is {a} plus {b}?"), seed).0;
            a + b == got && answer.contains(&format!("get {got}."))
        })
    };
    let wanted = lines(&place.at("out/generations.jsonl")).iter().filter(|line| is_right(line)).count();
    let pass = first["pass_at_k"]["1"].as_f64().unwrap();
    assert!((pass - wanted as f64 / 64.0).abs() < 1e-12, "{pass} {wanted}");
    assert_eq!(first["subjects"]["odd"]["problems"], 2);
    assert!(first["maj_at_k"]["4"].is_number() && first["tokens_per_problem"] == 144.0, "{first}");
    // Samples that were already graded have the subjects of another column.
    let again = report(&["--columns", "subject=Correct Answer"]);
    assert!(again["subjects"]["4"]["problems"] == 1 && again["subjects"]["odd"].is_null(), "{again}");
}

#[test]
fn more_samples_add_to_the_old_nothing_is_asked_twice_and_other_settings_are_refused() {
    let place = Place::new(5);
    let server = polite();
    let store = || std::fs::read_to_string(place.at("out/generations.jsonl")).unwrap();
    place.eval(0, &server, 8, "out", &[]);
    let before = store();
    place.eval(0, &server, 8, "out", &[]);
    assert_eq!(server.requests.load(Ordering::SeqCst), 5, "a whole evaluation asks for nothing");
    place.eval(0, &server, 12, "out", &[]);
    place.check_store("out", 5, 12);
    assert!(store().starts_with(&before), "old samples were touched");
    for (flag, value, wanted) in [
        ("--temperature", "0.6", "sampling.temperature: the folder has 1.0, this command has 0.6"),
        ("--model", "other", "model: the folder has \"adder\", this command has \"other\""),
        ("--preset", "qwen3", "prompt.preset"),
        ("--system", "Be brief.", "prompt.system"),
    ] {
        let (_, said) = place.eval(2, &server, 12, "out", &[flag, value]);
        assert!(said.contains(wanted), "{said}");
    }
}

#[test]
fn a_changed_verifier_rescores_without_sampling() {
    let place = Place::new(2);
    let mut server = polite();
    place.eval(0, &server, 8, "out", &[]);
    // This needs no server.
    server.stop();
    let (again, said) = place.eval(0, &server, 8, "out", &[]);
    assert!(said.contains("0 samples graded, 16 verdicts kept"), "{said}");
    let (other, said) = place.eval(0, &server, 8, "out", &["--mode", "parity"]);
    assert!(said.contains("16 samples graded, 0 verdicts kept"), "{said}");
    assert_eq!(again, other);
}

#[test]
fn servers_that_grant_fewer_samples_or_know_other_names_are_found_out() {
    let place = Place::new(3);
    for (most_n, refuse_n) in [(1, true), (1, false), (3, false)] {
        let server = FaultServer::start(Manners { most_n, refuse_n, ..Manners::default() });
        let out = format!("{most_n} {refuse_n}");
        place.eval(0, &server, 10, &out, &["--api", "completions"]);
        place.check_store(&out, 3, 10);
    }
    let server = FaultServer::start(Manners { newer: true, ..Manners::default() });
    place.eval(0, &server, 4, "newer", &["--server-api", "openai", "--api", "chat"]);
    place.check_store("newer", 3, 4);
}

#[test]
fn refusals_missing_keys_and_wrong_addresses_end_with_two() {
    let place = Place::new(2);
    let nobody = place.command("http://127.0.0.1:9", 2, "out", &["--retries", "1"]).output().unwrap();
    let said = String::from_utf8_lossy(&nobody.stderr);
    assert!(nobody.status.code() == Some(2) && said.contains("127.0.0.1:9"), "{said}");
    let locked = FaultServer::start(Manners { key: Some("s3cret".into()), ..Manners::default() });
    assert!(place.eval(2, &locked, 2, "out", &[]).1.contains("requires a key"));
    let named = ["--key-env", "SUMS_KEY"];
    assert!(place.eval(2, &locked, 2, "out", &named).1.contains("SUMS_KEY"));
    let mut given = place.command(&locked.url(), 2, "out", &named);
    assert!(given.env("SUMS_KEY", "s3cret").output().unwrap().status.success());
    let refusing = FaultServer::start(Manners { refuse: Some("plus".into()), ..Manners::default() });
    assert!(place.eval(2, &refusing, 2, "refused", &[]).1.contains("the prompt is too long"));
}

#[test]
fn a_problem_that_the_server_refuses_is_missing_and_never_wrong() {
    let place = Place::new(6);
    let server = FaultServer::start(Manners { refuse: Some("What is 8 plus".into()), ..Manners::default() });
    let (_, said) = place.eval(1, &server, 4, "out", &["--concurrency", "1"]);
    assert!(said.contains("4 of 24 samples of sums are still missing"), "{said}");
    // The table isn't taken for the whole data set's.
    assert!(said.contains("sums: UNFINISHED: these values are of 5 of 6 problems"), "{said}");
    let summary = std::fs::read(place.at("out/summary.json")).unwrap();
    let summary: Value = serde_json::from_slice(&summary).unwrap();
    assert_eq!(summary[0]["problems_without_samples"], 1);
    assert_eq!(count(&place.at("out/samples.jsonl")), 20);
}

#[test]
fn a_model_without_a_word_is_bad_input_and_its_samples_are_kept() {
    let place = Place::new(2);
    let server = FaultServer::start(Manners { silent: true, ..Manners::default() });
    let (_, said) = place.eval(2, &server, 4, "out", &[]);
    assert!(said.contains("all 8 responses of sums are empty") && said.contains("another --out"), "{said}");
    assert_eq!(place.stored("out"), 8);
}

#[test]
fn samples_made_elsewhere_are_scored_by_problem_id_or_question() {
    let dir = tempfile::tempdir().unwrap();
    let rows: Vec<String> = (0..3)
        .map(|i| format!("{{\"key\":{},\"prompt\":\"Say something, number {i}.\",\"instruction_id_list\":[\"punctuation:no_comma\"],\"kwargs\":[{{}}]}}", 70 + i))
        .collect();
    let data = file(dir.path(), "plain.jsonl", &rows.join("\n"));
    let samples = file(
        dir.path(),
        "made.jsonl",
        "{\"problem\":70,\"sample\":0,\"text\":\"Plain.\"}\n{\"problem\":70,\"sample\":1,\"response\":\"One, two.\"}\n\
         {\"question\":\"Say something, number 1.\",\"responses\":[\"Good.\",\"Better.\"]}\n\
         {\"id\":72,\"completions\":[\"A, B\",\"C\"]}\n{\"problem\":\"elsewhere\",\"text\":\"x\"}\n",
    );
    let evaluate = |samples: &Path, out: &str| {
        let out = dir.path().join(out);
        support::run(command!(
            "eval --task ifeval -n 2 --json --samples",
            samples,
            "--data",
            &data,
            "--out",
            out
        ))
    };
    let (out, said, code) = evaluate(&samples, "out");
    assert_eq!(code, 0, "{said}");
    let report: Value = serde_json::from_str(&out).unwrap();
    // 1 of 2, 2 of 2, 1 of 2.
    assert!((report["pass_at_k"]["1"].as_f64().unwrap() - 2.0 / 3.0).abs() < 1e-12, "{report}");
    assert!(said.contains("1 of problems not in the data"), "{said}");
    // The first problem now has another answer: its samples are graded again, and the others' grades stay.
    let lowercase = rows.join("\n").replacen("punctuation:no_comma", "change_case:english_lowercase", 1);
    std::fs::write(&data, lowercase).unwrap();
    let (out, said, _) = evaluate(&samples, "out");
    assert!(said.contains("2 samples graded, 4 verdicts kept"), "{said}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert!((report["pass_at_k"]["1"].as_f64().unwrap() - 0.5).abs() < 1e-12, "{report}");
    let doubled =
        "{\"problem\":70,\"sample\":0,\"text\":\"a\"}\n{\"problem\":70,\"sample\":0,\"text\":\"b\"}\n";
    let (_, said, code) = evaluate(&file(dir.path(), "doubled.jsonl", doubled), "other");
    assert!(code == 2 && said.contains("line 2: sample 0 of problem 70 is also in line 1"), "{said}");
}

/// A server that answers each request as model `name(number of the request)`, and the requests.
fn recording(name: fn(usize) -> &'static str) -> (FaultServer, Arc<Mutex<Vec<Value>>>) {
    let asked = Arc::<Mutex<Vec<Value>>>::default();
    let bodies = asked.clone();
    let policy: Policy = Arc::new(move |body| {
        let mut bodies = bodies.lock().unwrap();
        bodies.push(body.clone());
        let choice = |i| json!({"index": i, "finish_reason": "stop", "message": {"content": "\\boxed{A}"}});
        let choices: Vec<Value> = (0..body["n"].as_u64().unwrap_or(1)).map(choice).collect();
        Some(json!({"model": name(bodies.len()), "choices": choices}))
    });
    (FaultServer::start(Manners { policy: Some(policy), ..Manners::default() }), asked)
}

#[test]
fn what_a_filter_withholds_is_no_wrong_answer() {
    let place = Place::new(2);
    let policy: Policy = Arc::new(|body| {
        let filtered =
            |i| json!({"index": i, "finish_reason": "content_filter", "message": {"content": null}});
        let given = |i| json!({"index": i, "finish_reason": "stop", "message": {"content": "\\boxed{A}"}});
        let choice = |i| if i % 2 == 0 { filtered(i) } else { given(i) };
        let choices: Vec<Value> = (0..body["n"].as_u64().unwrap_or(1)).map(choice).collect();
        Some(json!({"model": "adder", "choices": choices}))
    });
    let server = FaultServer::start(Manners { policy: Some(policy), ..Manners::default() });
    let (_, said) = place.eval(1, &server, 4, "out", &["--per-request", "4"]);
    assert!(said.contains("50.0 % of the samples of sums are unscorable"), "{said}");
    let samples = std::fs::read_to_string(place.at("out/samples.jsonl")).unwrap();
    assert_eq!(samples.matches("\"reason\":\"content_filter\"").count(), 4, "{samples}");
}

#[test]
fn a_generation_that_failed_is_missing_and_never_wrong() {
    let place = Place::new(1);
    let good = json!({"finish_reason": "stop", "message": {"content": "\\boxed{A}"}});
    for (key, value) in [
        ("message", json!({"role": "assistant"})),
        ("error", json!({"message": "upstream died", "code": 502})),
        ("finish_reason", json!("insufficient_system_resource")),
        ("finish_reason", json!("timeout")),
        ("finish_reason", Value::Null),
    ] {
        let broken = Arc::new(AtomicBool::new(true));
        let (is_broken, good) = (broken.clone(), good.clone());
        let (out, changed) = (format!("{key} {value}").replace('/', " "), value.clone());
        let server = FaultServer::start(Manners::of(move |_| {
            let mut second = good.clone();
            if is_broken.load(Ordering::SeqCst) {
                second[key] = changed.clone();
            }
            Some(json!({"model": "adder", "choices": [good, second]}))
        }));
        let more = ["--per-request", "2"];
        let (_, said) = place.eval(1, &server, 2, &out, &more);
        assert!(
            said.contains("2 of 2 samples of sums are still missing") && said.contains("a choice has"),
            "{said}"
        );
        broken.store(false, Ordering::SeqCst);
        place.eval(0, &server, 2, &out, &more);
        place.check_store(&out, 1, 2);
    }
}

#[test]
fn servers_are_told_every_sampling_setting_and_the_folder_says_what_they_were_told() {
    let place = Place::new(1);
    let (server, asked) = recording(|_| "adder");
    place.eval(0, &server, 1, "out", &[]);
    let body = asked.lock().unwrap().pop().unwrap();
    let identity = std::fs::read_to_string(place.at("out/evaluation.json")).unwrap();
    let identity: Value = serde_json::from_str(&identity).unwrap();
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
    place.eval(0, &server, 1, "standard", &["--server-api", "openai"]);
    let body = asked.lock().unwrap().pop().unwrap();
    assert!(body["top_k"].is_null() && body["top_p"] == 1.0, "{body}");
}

#[test]
fn another_model_in_an_answer_is_noticed_and_not_mixed_with_the_first_ones_samples() {
    let place = Place::new(6);
    let (server, _) = recording(|number| if number <= 4 { "first" } else { "second" });
    for _ in 0..2 {
        let (_, said) = place.eval(1, &server, 1, "out", &["--concurrency", "1"]);
        assert!(
            said.contains("the server now answers as model second, but answered as first before"),
            "{said}"
        );
        assert_eq!(place.stored("out"), 4);
    }
    let (_, said) = place.eval(0, &server, 1, "other", &[]);
    assert!(said.contains("requested model adder, but the server answers as second"), "{said}");
}

#[test]
fn an_interruption_does_not_wait_for_a_server_that_hangs() {
    let place = Place::new(3);
    let asked = Arc::<Mutex<usize>>::default();
    let requests = asked.clone();
    let policy: Policy = Arc::new(move |_| {
        *requests.lock().unwrap() += 1;
        std::thread::sleep(Duration::from_secs(600));
        None
    });
    let server = FaultServer::start(Manners { policy: Some(policy), ..Manners::default() });
    let child = place.command(&server.url(), 2, "out", &["--timeout", "600"]).spawn().unwrap();
    wait_until("the server to be asked", || *asked.lock().unwrap() >= 3);
    signal(&child, libc::SIGTERM);
    let started = Instant::now();
    let (code, said) = ended(child);
    assert!(started.elapsed() < Duration::from_secs(20), "{:?} to the end", started.elapsed());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("6 of 6 samples of sums are still missing (stopped)"), "{said}");
}

#[test]
fn a_stop_while_no_server_answers_is_no_error() {
    let place = Place::new(1);
    // No server is listening, and the wait for the next attempt is longer than this test.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let child = place.command(&url, 1, "out", &["--model", "m", "--timeout", "600"]).spawn().unwrap();
    let (_asked, _) = listener.accept().unwrap();
    signal(&child, libc::SIGINT);
    let (code, said) = ended(child);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("stopped on request while reaching") && !said.contains("error"), "{said}");
}
