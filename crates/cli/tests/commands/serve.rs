//! `fgrpo serve` as a process: kills and restarts, its folder, and other commands as its clients. The server's rules are tested in
//! its crate.

#[path = "../../../serve/tests/client/mod.rs"]
mod client;

use crate::fault_server::{FaultServer, Manners, Policy};
use crate::support::{ends, ends_with, file, model, run, signal, spawned, wait_until};
use client::{Client, SEQUENCES, a_client, datum, floats, ints, next, pass, sampled, step, supervised};
use fgrpo_serve::wire::{ForwardBackwardOutput, SampleResponse};
use prost::Message;
use serde_json::{Value, json};
use std::collections::BTreeMap;
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

#[test]
fn saved_weights_are_listed_until_they_expire_or_are_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), &[]);
    let model = server.created();
    let api = |path: &str| server.get(&format!("/api/v1/{path}"));
    let save = |endpoint: &str, seq: u64, name: &str, more: Value| {
        let mut asked = json!({"model_id": model, "seq_id": seq, "path": name});
        asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.done(endpoint, asked)["path"].as_str().unwrap().to_owned()
    };
    let state = save("save_weights", 1, "state", json!({"user_metadata": {"step": "7"}}));
    let kept = save("save_weights_for_sampler", 2, "kept", json!({"ttl_seconds": 7200}));
    let short = save("save_weights_for_sampler", 3, "short", json!({"ttl_seconds": 1}));
    let zero = json!({"model_id": model, "seq_id": 4, "path": "x", "ttl_seconds": 0});
    assert!(server.post("save_weights", zero).refused(400).contains("ttl_seconds: expected at least 1"));
    std::thread::sleep(Duration::from_millis(2100));
    let listed = api(&format!("training_runs/{model}/checkpoints")).json()["checkpoints"].clone();
    let listed: BTreeMap<&str, &Value> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["tinker_path"].as_str().unwrap(), entry))
        .collect();
    assert_eq!(listed.keys().copied().collect::<Vec<_>>(), [kept.as_str(), state.as_str()]);
    assert_eq!(
        (&listed[&*state]["checkpoint_type"], &listed[&*state]["expires_at"]),
        (&json!("training"), &json!(null))
    );
    assert_eq!(listed[&*state]["user_metadata"], json!({"step": "7"}));
    assert_eq!(
        (&listed[&*kept]["checkpoint_type"], &listed[&*kept]["checkpoint_id"]),
        (&json!("sampler"), &json!("sampler_weights/kept"))
    );
    assert!(
        listed[&*kept]["size_bytes"].as_u64().unwrap() > 1000 && listed[&*kept]["expires_at"].is_string()
    );
    // Expired weights can't be loaded or sampled, and their name is free.
    let session = model.split(':').next().unwrap();
    let asked = json!({"session_id": session, "sampling_session_seq_id": 5, "model_path": short});
    assert!(server.post("create_sampling_session", asked).refused(404).contains("short"));
    save("save_weights_for_sampler", 4, "short", json!({}));
    // The same after a restart, with the contents of a session and a run.
    let server = server.killed(folder.path());
    let api = |path: &str| server.get(&format!("/api/v1/{path}"));
    let run = api("training_runs?limit=1").json();
    assert_eq!(run["cursor"], json!({"offset": 0, "limit": 1, "total_count": 1}));
    let run = &run["training_runs"][0];
    assert_eq!(
        (&run["training_run_id"], &run["lora_rank"], &run["base_model"]),
        (&json!(model), &json!(4), &json!("base"))
    );
    assert_eq!(run["last_checkpoint"]["tinker_path"], json!(state));
    assert!(run["last_request_time"].as_str().unwrap().starts_with("20"));
    assert_eq!(api(&format!("training_runs/{model}")).json(), *run);
    assert_eq!(api(&format!("sessions/{session}")).json()["training_run_ids"], json!([model]));
    assert_eq!(api("sessions").json()["sessions"], json!([session]));
    assert_eq!(api("training_runs/nobody:train:0").status, 404);
    let place = |path: &str| {
        path.replacen("tinker://", &format!("{}/api/v1/training_runs/", server.url), 1).replacen(
            ":train:0/",
            ":train:0/checkpoints/",
            1,
        )
    };
    let delete = |path: &str| {
        server.agent.delete(place(path)).header("X-API-Key", &server.key).call().unwrap().status().as_u16()
    };
    assert_eq!((delete(&kept), delete(&kept)), (204, 404));
    let ttl = server.agent.put(format!("{}/ttl", place(&state))).header("X-API-Key", &server.key);
    assert_eq!(ttl.send(&br#"{"ttl_seconds": 9000}"#[..]).unwrap().status(), 204);
    let left = api("checkpoints?limit=100").json()["checkpoints"].clone();
    let expires = |entry: &Value| {
        (entry["checkpoint_id"].as_str().unwrap().to_owned(), entry["expires_at"].is_string())
    };
    let mut left: Vec<(String, bool)> = left.as_array().unwrap().iter().map(expires).collect();
    left.sort();
    assert_eq!(left, [("sampler_weights/short".into(), false), ("weights/state".into(), true)]);
}

/// `importance_sampling` on the rollouts of `fgrpo train`'s first step, compared with that step's metrics.
#[test]
fn the_first_step_has_the_loss_and_the_gradient_of_train() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), &["--full"]);
    // Completions as the trainer gets them: (prompt, tokens, their log-probabilities).
    type Rollout = (Vec<u32>, Vec<u32>, Vec<f32>);
    let recorded: Arc<Mutex<Vec<Rollout>>> = Arc::default();
    let policy: Policy = {
        let (recorded, agent) = (Arc::clone(&recorded), server.agent.clone());
        let (url, bearer) = (format!("{}/v1/completions", server.url), format!("Bearer {}", server.key));
        Arc::new(move |body| {
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
        })
    };
    let proxy = FaultServer::start(Manners { policy: Some(policy), ..Manners::default() });
    // A model that solves nothing still gets advantages, because shaping gives likelier wrong answers less.
    let config = format!(
        "steps = 1\n[task]\nkind = \"arithmetic\"\ntrain = 8\nheld_out = 2\n[model]\npath = {:?}\n[rollout]\nprompts = 3\ngroup_size = 4\nmax_new_tokens = 10\n\
         [rollout.server]\nurl = \"{}\"\n[algorithm]\nadvantage = \"dr_grpo\"\nfocal_gamma = 0.0\nshaping = \"smoothing\"\naggregation = \"seq-mean-token-sum\"\n\
         [eval]\nevery = 0\n[compute]\nthreads = 2\n[log]\nrollout_share = 1.0\n",
        model(),
        proxy.url()
    );
    let config = file(folder.path(), "first.toml", &config);
    let out = folder.path().join("run");
    crate::support::done(&["train", config.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    let metrics = crate::support::lines(&out.join("metrics.jsonl")).remove(0);
    let logged = crate::support::lines(&out.join("rollouts.jsonl"));
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
        let sampler = server.snapshot(&model, 16, 3);
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
    samplers_over_kills(16, 2, &["--repeatable"]);
    samplers_over_kills(16, 2, &[]);
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
    let server = server.killed(folder.path());
    for key in ["k1", "k2", ""] {
        assert_eq!(send(&server, key, &body).json()["request_id"], id, "{key}");
    }
    // The pass was accumulated once, because the norm is that of one pass.
    let norm = server.done("optim_step", step(&model, 2, 1e-2));
    let (session, lora) = (model.split(':').next().unwrap(), json!({"rank": 4, "seed": 5}));
    let asked = json!({"session_id": session, "model_seq_id": 1, "base_model": "base", "lora_config": lora});
    let other = server.done("create_model", asked)["model_id"].as_str().unwrap().to_owned();
    server.passed(&pass(&other, 1, "cross_entropy", supervised()));
    assert_eq!(server.done("optim_step", step(&other, 2, 1e-2)), norm);
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
    let (path, base) = (out(folder.path()), crate::support::model().to_str().unwrap().to_owned());
    let args = |more: &[&str]| {
        let mut args =
            vec!["serve", "--model", &base, "--name", "base", "--listen", "127.0.0.1:0", "--threads", "2"];
        args.extend(["--out", path.to_str().unwrap()]);
        args.extend(more);
        args.into_iter().map(str::to_owned).collect::<Vec<String>>()
    };
    let refused = |more: &[&str]| {
        let args = args(more);
        ends_with(2, &args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    assert!(refused(&["--resume"]).contains("is in use by another process"));
    signal(&server.child, libc::SIGTERM);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    wait_until("the last words", || {
        server.said.lock().unwrap().contains("with the same command and --resume")
    });
    assert!(refused(&[]).contains("contains a server; continue it with --resume"));
    assert!(refused(&["--resume", "--seed", "3"]).contains("seed was 0 and is now 3"));
    // Another model under the same name is noticed.
    let settings = std::fs::read_to_string(path.join("serve.json")).unwrap();
    let files = settings.split("\"files\": \"").nth(1).unwrap().split('"').next().unwrap();
    std::fs::write(path.join("serve.json"), settings.replace(files, "0123456789abcdef")).unwrap();
    assert!(refused(&["--resume"]).contains("\"0123456789abcdef\""));
    std::fs::write(path.join("serve.json"), settings).unwrap();
    let server = serve(folder.path(), &["--resume"]);
    // The state was written at the stop, and the result still exists.
    let state = path.join("models").join(model.replace(':', "-")).join("state-00000003");
    assert!(state.join("optimizer.safetensors").exists());
    assert_eq!(server.done("optim_step", step(&model, 2, 1e-2)), update);
    let (_, said, code) =
        run(crate::support::fgrpo().args(["serve", "--model", &base, "--resume", "--out", "/nonexistent/x"]));
    assert!(code == 2 && said.contains("no serve.json"), "{code} {said}");
}

#[test]
fn eval_and_train_take_their_samples_from_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), &[]);
    let data = file(
        folder.path(),
        "sums.jsonl",
        "{\"problem\": \"1 + 1\", \"answer\": \"2\"}\n{\"problem\": \"2 + 3\", \"answer\": \"5\"}\n",
    );
    let results = folder.path().join("eval");
    let done = |mut command: assert_cmd::Command| {
        command.env("OPENAI_API_KEY", &server.key);
        ends(0, command);
    };
    let more = ["--server", &server.url, "--task", "math", "-n", "3", "--max-tokens", "20", "--seed", "1"];
    done(command!("eval", ..more, "--data", &data, "--out", &results));
    assert_eq!(crate::support::lines(&results.join("generations.jsonl")).len(), 6);
    // The sampler's weights are the trainer's, so their log-probabilities agree to rounding.
    let config = format!(
        "steps = 1\n[task]\nkind = \"arithmetic\"\ntrain = 8\nheld_out = 2\n[model]\npath = {:?}\n[rollout]\nprompts = 3\ngroup_size = 4\nmax_new_tokens = 10\n\
         [rollout.server]\nurl = \"{}\"\n[algorithm]\ncorrection = \"tis\"\n[eval]\nevery = 0\n[compute]\nthreads = 2\n",
        model(),
        server.url
    );
    let config = file(folder.path(), "served.toml", &config);
    let trained = folder.path().join("run");
    done(command!("train", &config, "--out", &trained));
    let metrics = crate::support::lines(&trained.join("metrics.jsonl"));
    let difference = metrics[0]["sampler_logp_difference_max"].as_f64().unwrap();
    assert!(difference < 1e-4, "{difference}");
}
