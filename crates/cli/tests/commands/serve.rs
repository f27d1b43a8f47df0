//! `fgrpo serve` as a process: kills and restarts, its folder, and other commands as its clients. The server's rules are tested in
//! its crate.

#[path = "../../../serve/tests/client/mod.rs"]
mod client;

use crate::fault_server::{FaultServer, Manners};
use crate::support::{ends, file, lines, model, signal, spawned, sums_run, tells, wait_until};
use client::{Client, SEQUENCES, a_client, datum, floats, ints, next, pass, sampled, step, supervised};
use fgrpo_serve::wire::{ForwardBackwardOutput, SampleResponse};
use prost::Message;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A server in a separate process.
struct Server {
    child: Child,
    client: Client,
    said: Arc<Mutex<String>>,
}

impl Deref for Server {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn out(folder: &Path) -> PathBuf {
    folder.join("serve")
}

/// Starts a server in the folder `serve` of `folder`, with additional flags.
#[track_caller]
fn serve(folder: &Path, flags: &[&str]) -> Server {
    serve_at(folder, "127.0.0.1:0", flags)
}

/// Starts the server at an address.
#[track_caller]
fn serve_at(folder: &Path, address: &str, flags: &[&str]) -> Server {
    let mut command = spawned(&["serve", "--name", "base", "--threads", "2", "--listen", address, "--model"]);
    let mut child = command.arg(model()).arg("--out").arg(out(folder)).args(flags).spawn().unwrap();
    let said = Arc::new(Mutex::new(String::new()));
    let (stderr, kept) = (child.stderr.take().unwrap(), Arc::clone(&said));
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            kept.lock().unwrap().push_str(&format!("{line}\n"));
        }
    });
    let mut url = String::new();
    wait_until("the server's address", || {
        let said = said.lock().unwrap();
        assert!(child.try_wait().unwrap().is_none(), "the server has ended: {said}");
        let Some((_, after)) = said.split_once("serving base at ") else { return false };
        let Some((found, _)) = after.split_once('\n') else { return false };
        url = found.to_owned();
        true
    });
    let key = std::fs::read_to_string(out(folder).join("key")).unwrap().trim().to_owned();
    Server { child, client: Client::new(url, key), said }
}

impl Server {
    /// Kills the server (kill -9) and starts it again.
    fn killed(mut self, folder: &Path) -> Server {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        drop(self);
        serve(folder, &["--resume"])
    }
}

/// `importance_sampling` on the rollouts of `fgrpo train`'s first step, compared with that step's metrics.
#[test]
fn the_first_step_has_the_loss_and_the_gradient_of_train() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), &["--full"]);
    // Completions as the trainer gets them: (prompt, tokens, their log-probabilities).
    type Rollout = (Vec<u32>, Vec<u32>, Vec<f32>);
    let recorded: Arc<Mutex<Vec<Rollout>>> = Arc::default();
    let policy = {
        let (recorded, agent) = (Arc::clone(&recorded), server.agent.clone());
        let (url, bearer) = (format!("{}/v1/completions", server.url), format!("Bearer {}", server.key));
        move |body: &Value| {
            let mut body = body.clone();
            body["model"] = json!("base");
            let sent = agent.post(&url).header("Authorization", &bearer).send(body.to_string().as_bytes());
            let answer = sent.unwrap().body_mut().read_to_string().unwrap();
            let answer: Value = serde_json::from_str(&answer).unwrap();
            for choice in answer["choices"].as_array().unwrap() {
                let logp = serde_json::from_value(choice["logprobs"]["token_logprobs"].clone()).unwrap();
                let ids = |name: &str| -> Vec<u32> { serde_json::from_value(choice[name].clone()).unwrap() };
                recorded.lock().unwrap().push((ids("prompt_token_ids"), ids("token_ids"), logp));
            }
            Some(answer)
        }
    };
    let proxy = FaultServer::start(Manners::of(policy));
    // A model that solves nothing still gets advantages, because shaping gives likelier wrong answers less.
    let served = format!("rollout.server={{ url = {:?} }}", proxy.url());
    let algorithm = "algorithm={ advantage = \"dr_grpo\", focal_gamma = 0.0, shaping = \"smoothing\", aggregation = \"seq-mean-token-sum\" }";
    let changes = ["steps=1", "rollout.prompts=3", &served, algorithm, "log.rollout_share=1.0"];
    let config = sums_run(folder.path(), model(), &changes);
    let out = folder.path().join("run");
    ends(0, command!("train", config, "--out", &out));
    let metrics = lines(&out.join("metrics.jsonl")).remove(0);
    let logged = lines(&out.join("rollouts.jsonl"));
    // The sampler's weights are the trainer's, so their log-probabilities agree to rounding.
    let difference = metrics["sampler_logp_difference_max"].as_f64().unwrap();
    assert!(difference < 1e-4, "{difference}");
    let rollouts = recorded.lock().unwrap().clone();
    assert_eq!((rollouts.len(), logged.len()), (12, 12));
    let data = rollouts.iter().map(|(prompt, tokens, logp)| {
        // A completion is identified by its length and its mean log-probability.
        let mean = logp.iter().map(|&l| f64::from(l)).sum::<f64>() / logp.len() as f64;
        let off = |line: &Value| (line["old_logp_mean"].as_f64().unwrap() - mean).abs();
        let same = logged.iter().filter(|line| line["length"] == json!(tokens.len()) && off(line) < 1e-5);
        let advantages: Vec<f64> = same.map(|line| line["advantage"].as_f64().unwrap()).collect();
        assert!(
            advantages.windows(2).all(|pair| pair[0] == pair[1]) && advantages[0] < 0.0,
            "{advantages:?}"
        );
        let all = [&prompt[..], tokens].concat();
        let before = vec![0.0; prompt.len() - 1];
        let inputs = [
            ("target_tokens", ints(&next(&all))),
            ("logprobs", floats(&[&before[..], logp].concat())),
            ("advantages", floats(&[&before[..], &vec![advantages[0] as f32; tokens.len()]].concat())),
        ];
        datum(&all[..all.len() - 1], &inputs)
    });
    let model = server.created();
    let output = server.passed(&pass(&model, 1, "importance_sampling", data.collect()));
    let update = server.done("optim_step", step(&model, 2, 1e-3));
    // The server sums over tokens; the trainer takes the mean over sequences.
    let near = |found: f64, name: &str| {
        let wanted = 12.0 * metrics[name].as_f64().unwrap();
        assert!((found - wanted).abs() < 1e-4 * wanted.abs(), "{name}: {found} {wanted}");
    };
    near(output.metrics["loss:sum"], "policy_loss");
    near(update["metrics"]["grad_norm"].as_f64().unwrap(), "gradient_norm");
}

#[test]
fn a_killed_server_continues_with_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let whole = {
        let server = serve(folder.path(), &[]);
        let model = server.created();
        a_client(&server, &model, 0..6)
    };
    // With states of different age, and without a state.
    for save_every in ["0", "0.02", "1000"] {
        let folder = tempfile::tempdir().unwrap();
        let flags = ["--save-every", save_every];
        let server = serve(folder.path(), &flags);
        let model = server.created();
        let mut seen = a_client(&server, &model, 0..2);
        let server = server.killed(folder.path());
        seen.extend(a_client(&server, &model, 2..3));
        // Between a pass and its update, with requests that are accepted but not done.
        let half = server.passed(&pass(&model, 13, "cross_entropy", supervised()));
        let second = server.pass(&pass(&model, 14, "cross_entropy", supervised()));
        let third = server.accepted("optim_step", step(&model, 15, 1e-2));
        let server = server.killed(folder.path());
        // Sent again, as by a client that got no answer.
        assert_eq!(server.passed(&pass(&model, 13, "cross_entropy", supervised())), half);
        let second = server.retrieve(second.json()["request_id"].as_str().unwrap());
        let update = server.retrieve(&third).json();
        let server = server.killed(folder.path());
        // Clients count their failed attempts, so the sampler's number is another one than in an undisturbed run.
        let sampler = server.snapshot(&model, 16, 9);
        let sample = server.samples(&sampler, 0, SEQUENCES[0], json!({}));
        seen.push((ForwardBackwardOutput::decode(&second.body[..]).unwrap(), update, sample));
        seen.extend(a_client(&server, &model, 4..6));
        assert!(seen == whole, "--save-every {save_every}");
    }
}

/// Repeats a request until there is an answer, as a client does while its server is down.
fn insist(agent: &ureq::Agent, url: &str, key: &str, body: &Value) -> (u16, Vec<u8>) {
    for _ in 0..2000 {
        let asked = agent.post(url).header("X-API-Key", key).send(body.to_string().as_bytes());
        if let Ok(mut response) = asked {
            let mut bytes = Vec::new();
            let whole = response.body_mut().as_reader().read_to_end(&mut bytes).is_ok();
            if whole && response.status() != 503 {
                return (response.status().as_u16(), bytes);
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("no answer from {url}");
}

#[test]
fn many_samplers_lose_nothing_and_get_nothing_twice_over_kills() {
    samplers_over_kills(16, 1, &["--repeatable"]);
    samplers_over_kills(16, 1, &[]);
}

/// Duration in seconds: `FGRPO_SERVE_SOAK`, or ten minutes if it isn't set.
#[test]
#[ignore = "takes ten minutes"]
fn soak() {
    let seconds = std::env::var("FGRPO_SERVE_SOAK").map_or(600, |seconds| seconds.parse().unwrap());
    samplers_over_kills(64, seconds / 2, &["--repeatable"]);
    samplers_over_kills(64, seconds / 2, &[]);
}

/// Clients that sample one request after another, while their server is repeatedly killed and resumed.
fn samplers_over_kills(clients: u64, seconds: u64, flags: &[&str]) {
    let repeatable = flags.contains(&"--repeatable");
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), flags);
    let sampler = server.base_sampler();
    let (url, key, agent) = (server.url.clone(), server.key.clone(), server.agent.clone());
    let asked = |seq: u64| {
        json!({
            "sampling_session_id": sampler, "seq_id": seq, "num_samples": 2,
            "prompt": {"chunks": [{"tokens": SEQUENCES[seq as usize % 3], "type": "encoded_text"}]},
            "sampling_params": {"max_tokens": 12, "stop": []},
        })
    };
    let ask = |seq: u64| {
        let (status, body) = insist(&agent, &format!("{url}/api/v1/asample"), &key, &asked(seq));
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        let id: Value = serde_json::from_slice(&body).unwrap();
        let id = id["request_id"].as_str().unwrap().to_owned();
        let (status, body) =
            insist(&agent, &format!("{url}/api/v1/retrieve_future"), &key, &json!({"request_id": id}));
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        (seq, id, body)
    };
    let stop = std::sync::atomic::AtomicBool::new(false);
    let mut kills = 0;
    let (results, server) = std::thread::scope(|scope| {
        let (ask, stop) = (&ask, &stop);
        let own = |client: u64| {
            let rounds = (0..).take_while(|_| !stop.load(std::sync::atomic::Ordering::Relaxed));
            rounds.map(|round| ask(round * clients + client)).collect::<Vec<_>>()
        };
        let handles: Vec<_> = (0..clients).map(|client| scope.spawn(move || own(client))).collect();
        let address = url.strip_prefix("http://").unwrap();
        let started = std::time::Instant::now();
        let mut server = Some(server);
        while started.elapsed().as_secs() < seconds {
            std::thread::sleep(Duration::from_millis(500 + started.elapsed().as_millis() as u64 % 700));
            drop(server.take());
            kills += 1;
            server = Some(serve_at(folder.path(), address, &[flags, &["--resume"]].concat()));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let results: Vec<_> = handles.into_iter().flat_map(|client| client.join().unwrap()).collect();
        (results, server)
    });
    let ids: std::collections::HashSet<&String> = results.iter().map(|(_, id, _)| id).collect();
    assert_eq!(ids.len(), results.len(), "a request's id came twice");
    println!("{flags:?}: {} requests, {kills} kills", results.len());
    assert!(results.len() > 40 && kills > 0, "{} requests, {kills} kills", results.len());
    // Repeated requests from the whole time give their earlier results, so none runs twice.
    let some = || results.iter().step_by((results.len() / 60).max(1));
    for (seq, id, body) in some() {
        assert!(ask(*seq) == (*seq, id.clone(), body.clone()), "request {seq}");
    }
    drop(server);
    // Another server draws the same samples, without kills and one request at a time.
    let other = tempfile::tempdir().unwrap();
    let calm = serve(other.path(), &["--repeatable"]);
    calm.base_sampler();
    for (seq, _, body) in some() {
        let found = SampleResponse::decode(&body[..]).unwrap();
        let wanted = calm.retrieve(&calm.accepted("asample", asked(*seq)));
        let wanted = SampleResponse::decode(&wanted.body[..]).unwrap();
        assert!(sampled(&found) == sampled(&wanted) && (!repeatable || found == wanted), "request {seq}");
    }
}

#[test]
fn a_repeated_request_runs_once_before_and_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), &[]);
    let model = server.created();
    let body = pass(&model, 1, "cross_entropy", supervised()).encode_to_vec();
    let send = |server: &Server, key: &str, body: &[u8]| {
        server.send("/api/v1/forward_backward", "application/x-protobuf", &server.key, key, body)
    };
    let id = send(&server, "k1", &body).json()["request_id"].clone();
    // The same key, and another key for the same `seq_id`.
    for key in ["k1", "k2", ""] {
        assert_eq!(send(&server, key, &body).json()["request_id"], id, "{key}");
    }
    let other = pass(&model, 1, "cross_entropy", supervised()[..1].to_vec()).encode_to_vec();
    assert!(send(&server, "k3", &other).refused(400).contains("by another request"));
    assert!(send(&server, "k1", &other).refused(400).contains("by another request"));
    // A client that repeats a snapshot gives its sampler another number.
    let sampler = server.snapshot(&model, 2, 0);
    assert_eq!(server.snapshot(&model, 2, 1), sampler);
    server.samples(&sampler, 0, SEQUENCES[0], json!({}));
    let named = json!({"model_id": model, "seq_id": 2, "path": "final"});
    assert!(server.post("save_weights_for_sampler", named).refused(400).contains("by another request"));
    let runs = |server: &Server| server.get("/api/v1/training_runs").json()["training_runs"].clone();
    let (before, session) = (runs(&server), model.split(':').next().unwrap());
    let server = server.killed(folder.path());
    assert_eq!(runs(&server), before);
    assert_eq!(server.get(&format!("/api/v1/sessions/{session}")).json()["training_run_ids"], json!([model]));
    for key in ["k1", "k2", ""] {
        assert_eq!(send(&server, key, &body).json()["request_id"], id, "{key}");
    }
    // The pass was accumulated once, because the norm is that of one pass.
    let norm = server.done("optim_step", step(&model, 3, 1e-2));
    let lora = json!({"rank": 4, "seed": 5});
    let asked = json!({"session_id": session, "model_seq_id": 1, "base_model": "base", "lora_config": lora});
    let other = server.done("create_model", asked)["model_id"].as_str().unwrap().to_owned();
    server.passed(&pass(&other, 1, "cross_entropy", supervised()));
    assert_eq!(server.done("optim_step", step(&other, 2, 1e-2)), norm);
}

#[test]
fn requests_without_a_seed_have_new_samples_after_a_restart() {
    let draw = |server: &Server| {
        let asked = json!({"prompt": SEQUENCES[0], "max_tokens": 20, "ignore_eos": true});
        server.openai("completions", &asked).json()["choices"][0]["text"].clone()
    };
    let [folder, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let server = serve(folder.path(), &[]);
    let first = draw(&server);
    assert_ne!(draw(&server.killed(folder.path())), first);
    // A new server repeats them.
    assert_eq!(draw(&serve(other.path(), &[])), first);
}

#[test]
fn a_refused_request_holds_up_none_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), &[]);
    let model = server.created();
    let unknown = |seq: i32| pass(&model, seq, "gspo", supervised());
    let known = |seq: i32| pass(&model, seq, "cross_entropy", supervised());
    assert!(server.pass(&unknown(1)).refused(400).contains("loss_fn"));
    // Clients continue to count; a kill in between changes nothing.
    let server = server.killed(folder.path());
    let first = server.passed(&known(2));
    assert!(server.pass(&known(1)).refused(400).contains("seq_id: 1 was rejected"));
    // Or they send it again, corrected.
    assert!(server.pass(&unknown(3)).refused(400).contains("loss_fn"));
    assert_eq!(server.passed(&known(3)), first);
    // The later request may arrive first.
    let later = server.accepted("optim_step", step(&model, 5, 1e-2));
    let mut wrong = step(&model, 4, 1e-2);
    wrong["adam_params"]["beta1"] = json!(2);
    assert!(server.post("optim_step", wrong).refused(400).contains("beta1"));
    assert!(server.retrieve(&later).json()["metrics"]["grad_norm"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_stopped_server_says_how_to_continue_and_its_folder_is_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = serve(folder.path(), &[]);
    let model = server.created();
    server.passed(&pass(&model, 1, "cross_entropy", supervised()));
    let update = server.accepted("optim_step", step(&model, 2, 1e-2));
    let update = server.retrieve(&update).json();
    let path = out(folder.path());
    let refused = |more: &str, says: &str| {
        let flags = "serve --name base --listen 127.0.0.1:0 --threads 2 --model";
        tells(
            2,
            command!(..flags.split(' '), crate::support::model(), "--out", &path, ..more.split_whitespace()),
            says,
        );
    };
    refused("--resume", "is in use by another process");
    signal(&server.child, libc::SIGTERM);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    wait_until("the last words", || {
        server.said.lock().unwrap().contains("with the same command and --resume")
    });
    refused("", "contains a server; continue it with --resume");
    refused("--resume --seed 3", "seed was 0 and is now 3");
    // Another model under the same name is noticed.
    let settings = std::fs::read_to_string(path.join("serve.json")).unwrap();
    let files = settings.split("\"files\": \"").nth(1).unwrap().split('"').next().unwrap();
    std::fs::write(path.join("serve.json"), settings.replace(files, "0123456789abcdef")).unwrap();
    refused("--resume", "\"0123456789abcdef\"");
    std::fs::write(path.join("serve.json"), settings).unwrap();
    let server = serve(folder.path(), &["--resume"]);
    // The state was written at the stop, and the result still exists.
    let state = path.join("models").join(model.replace(':', "-")).join("state-00000003");
    assert!(state.join("optimizer.safetensors").exists());
    assert_eq!(server.done("optim_step", step(&model, 2, 1e-2)), update);
    tells(
        2,
        command!("serve --resume --out /nonexistent/x --model", crate::support::model()),
        "no serve.json",
    );
}

#[test]
fn an_evaluation_takes_its_samples_from_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), &[]);
    let rows = "{\"problem\": \"1 + 1\", \"answer\": \"2\"}\n{\"problem\": \"2 + 3\", \"answer\": \"5\"}\n";
    let (data, out) = (file(folder.path(), "sums.jsonl", rows), folder.path().join("eval"));
    let flags = "--task math -n 3 --max-tokens 20 --seed 1 --server";
    let mut eval = command!("eval", ..flags.split(' '), &server.url, "--data", data, "--out", &out);
    eval.env("OPENAI_API_KEY", &server.key);
    ends(0, eval);
    assert_eq!(lines(&out.join("generations.jsonl")).len(), 6);
}
