//! Training on completions that an OpenAI-compatible server sampled: the correction between two engines, faults,
//! resumes, and a server that follows the checkpoints.

use crate::fault_server::{FaultServer, Manners};
use crate::support::{
    assert_same_run, demonstrated, ended, ends, run, sets, signal, spawned, sums_run, tells, timeless,
    wait_until,
};
use fgrpo_core::rng::Key;
use fgrpo_nn::weights::Checkpoint;
use fgrpo_nn::{Device, Engine, Finish, Prompt, Sampling};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// A small model with a tokenizer that has seen a few demonstrations, made once.
fn base() -> &'static Path {
    static MODEL: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let made = MODEL.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let model = demonstrated(folder.path(), 3, &[]);
        (folder, model)
    });
    &made.1
}

/// Opens a checkpoint and answers requests as vLLM does. The checkpoint may be exchanged while it serves.
struct Served {
    engine: Mutex<(PathBuf, Engine)>,
    answered: AtomicU64,
}

impl Served {
    fn open(folder: &Path) -> Engine {
        Engine::open(&Checkpoint::open(folder).unwrap(), &Device::cpu(1)).unwrap()
    }

    fn new(folder: &Path) -> Arc<Self> {
        let engine = Mutex::new((folder.to_owned(), Self::open(folder)));
        Arc::new(Self { engine, answered: AtomicU64::new(0) })
    }

    /// Draws of a request depend only on its seed.
    fn answer(&self, body: &Value) -> Value {
        let tokens = |name: &str| -> Vec<u32> {
            body[name].as_array().unwrap().iter().map(|t| t.as_u64().unwrap() as u32).collect()
        };
        let prompt = tokens("prompt");
        let key = Key::new(body["seed"].as_u64().unwrap());
        let sampling = Sampling {
            temperature: body["temperature"].as_f64().unwrap() as f32,
            max_new_tokens: body["max_tokens"].as_u64().unwrap() as usize,
            stop_tokens: tokens("stop_token_ids"),
            ..Sampling::default()
        };
        let mut drawn = None;
        let prompts = [Prompt { tokens: &prompt, samples: 0..1 }];
        let mut engine = self.engine.lock().unwrap();
        engine
            .1
            .generate(&prompts, &sampling, &|_, _, position| key.uniform(position as u64), None, &mut |c| {
                drawn = Some(c);
                ControlFlow::Continue(())
            })
            .unwrap();
        let drawn = drawn.unwrap();
        self.answered.fetch_add(1, Ordering::SeqCst);
        let named: Vec<String> = drawn.tokens.iter().map(|t| format!("token_id:{t}")).collect();
        let finish = if drawn.finish == Finish::Stop { "stop" } else { "length" };
        json!({"choices": [{
            "index": 0, "text": "", "finish_reason": finish, "prompt_token_ids": prompt, "token_ids": drawn.tokens,
            "logprobs": {"tokens": named, "token_logprobs": drawn.logp},
        }]})
    }
}

fn config(folder: &Path, model: &Path, url: &str, more: &str) -> PathBuf {
    let server = format!(
        "rollout.server={{ url = {url:?}, concurrency = 3, timeout = 0.5, retry_wait = 0.001, {more} }}"
    );
    let algorithm = "algorithm={ correction = \"tis\", reward_wrong = -1, entropy_coef = 0.01 }";
    let own = ["rollout.prompts=3", &server, algorithm, "update.lr=5e-3", "log.rollout_share=1.0"];
    sums_run(folder, model, &own)
}

fn number(line: &Value, name: &str) -> f64 {
    line[name].as_f64().unwrap_or_else(|| panic!("{name} is missing: {line}"))
}

#[test]
fn the_same_weights_behind_a_server_need_no_correction_and_older_ones_do() {
    let folder = tempfile::tempdir().unwrap();
    let model = base();
    let served = Served::new(model);
    let manners = Manners::of(move |body| Some(served.answer(body)));
    let server = FaultServer::start(Manners { fault_percent: 30, ..manners });
    let out = folder.path().join("run");
    let config = config(folder.path(), model, &server.url(), "retries = 20");
    ends(0, command!("train", &config, "--out", &out));
    let (requests, faults) = (server.requests.load(Ordering::SeqCst), server.faults.load(Ordering::SeqCst));
    assert!(faults > 0 && requests == 48 + faults, "{requests} requests, {faults} faults");
    let metrics = timeless(&out.join("metrics.jsonl"));
    assert_eq!(metrics.len(), 4);
    // The server never learns, so its weights equal the trainer's only at the first step.
    let first = &metrics[0];
    assert!(number(first, "sampler_logp_difference_max") < 1e-4, "{first}");
    assert!((number(first, "correction_mean") - 1.0).abs() < 1e-5, "{first}");
    assert_eq!(number(first, "correction_bounded_fraction"), 0.0);
    let last = &metrics[3];
    assert!(number(last, "sampler_logp_difference_mean") > 1e-3, "{last}");
    assert!((number(last, "correction_mean") - 1.0).abs() > 1e-4, "{last}");
    // The ratio of the update refers to the trainer's score, so it is 1 in the only update of a step.
    assert!((number(last, "ratio_mean") - 1.0).abs() < 1e-4, "{last}");
    // A teacher scores a server's samples as well: here the starting policy, from which later ones differ.
    let taught = folder.path().join("taught");
    let teacher = format!("teacher.path={model:?}");
    let set = sets(&["algorithm.correction=off", "algorithm.teacher_coef=1", &teacher]);
    ends(0, command!("train", &config, ..set, "--out", &taught));
    let metrics = timeless(&taught.join("metrics.jsonl"));
    assert!(number(&metrics[0], "teacher_kl").abs() < 1e-5, "{}", metrics[0]);
    assert!(number(&metrics[3], "teacher_kl").abs() > 1e-4, "{}", metrics[3]);
}

#[test]
fn a_server_that_breaks_down_costs_nothing_and_no_sample_is_asked_for_twice() {
    let folder = tempfile::tempdir().unwrap();
    let model = base();
    // A server that answers some requests and then returns 500.
    let start = |left: &Arc<AtomicU64>| {
        let (served, left) = (Served::new(model), left.clone());
        let answered = served.clone();
        let server = FaultServer::start(Manners::of(move |body| {
            let one_less = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
            one_less.ok().map(|_| served.answer(body))
        }));
        (server, answered)
    };
    let config_of = |url: &str| config(folder.path(), model, url, "retries = 0, model = \"adder\"");
    let whole = folder.path().join("whole");
    let (server, served) = start(&Arc::new(AtomicU64::new(u64::MAX)));
    ends(0, command!("train", config_of(&server.url()), "--out", &whole));
    assert_eq!(served.answered.load(Ordering::SeqCst), 48);

    let broken = folder.path().join("broken");
    let left = Arc::new(AtomicU64::new(0));
    let (server, served) = start(&left);
    let config = config_of(&server.url());
    let resume = || command!("train", &config, "--resume --accept-changes --out", &broken);
    for (answers, steps) in [(17, 1), (9, 2), (15, 3)] {
        left.store(answers, Ordering::SeqCst);
        let (_, said) = ends(1, resume());
        assert!(said.contains("status 500: no policy") && said.contains("--resume"), "{said}");
        assert_eq!(timeless(&broken.join("metrics.jsonl")).len(), steps);
    }
    assert!(broken.join("checkpoints/step-000003").exists(), "the state at the breakdown is not saved");
    left.store(u64::MAX, Ordering::SeqCst);
    ends(0, resume());
    assert_same_run(&whole, &broken, &["metrics.jsonl", "rollouts.jsonl"], 4);
    // Requests in progress during a failure may be repeated, but not those whose answers are stored.
    let answered = served.answered.load(Ordering::SeqCst);
    assert!((48..48 + 9).contains(&answered), "{answered} answers for 48 samples");
    let kept = std::fs::read_dir(broken.join("server-rollouts")).unwrap().count();
    assert!(kept <= 2, "{kept} files of answers that no checkpoint asks for");
}

#[test]
fn a_server_that_follows_the_checkpoints_stays_the_trainers_policy() {
    let folder = tempfile::tempdir().unwrap();
    let model = base();
    let served = Served::new(model);
    // The hook writes the checkpoint's name, and the server opens the checkpoint of that name.
    let told = folder.path().join("told");
    let names = told.clone();
    let server = FaultServer::start(Manners::of(move |body| {
        let names = std::fs::read_to_string(&names).unwrap_or_default();
        if let Some(newest) = names.lines().last().map(Path::new) {
            let mut engine = served.engine.lock().unwrap();
            if engine.0 != newest {
                *engine = (newest.to_owned(), Served::open(newest));
            }
        }
        Some(served.answer(body))
    }));
    let hook = format!("on_checkpoint = \"echo {{checkpoint}} >> '{}'\"", told.display());
    let config = config(folder.path(), model, &server.url(), &hook);
    let out = folder.path().join("run it's");
    ends(0, command!("train", &config, "--set save.every=1 --out", &out));
    for line in timeless(&out.join("metrics.jsonl")) {
        assert!(number(&line, "sampler_logp_difference_max") < 1e-4, "{line}");
    }
    let names = std::fs::read_to_string(&told).unwrap();
    let last = format!("{}/checkpoints/step-000003", out.display());
    assert_eq!(names.lines().last(), Some(last.as_str()));

    // A hook that fails ends the run with its message, after the checkpoint was saved.
    let failing = folder.path().join("failing");
    let hook = "rollout.server.on_checkpoint=echo no such model >&2; exit 3 # {checkpoint}";
    let (_, said) = ends(1, command!("train", &config, "--set", hook, "--out", &failing));
    assert!(said.contains("exit status: 3") && said.contains("no such model"), "{said}");
    assert!(failing.join("checkpoints/step-000002").exists());
}

#[test]
fn servers_that_cannot_be_trained_on_are_refused_by_what_they_answer() {
    let folder = tempfile::tempdir().unwrap();
    let none = json!([]);
    let text = json!([{"text": "7", "finish_reason": "stop"}]);
    for (choices, code, says) in [
        (text, 2, "the server must return log-probabilities"),
        (none, 1, "are still missing after 5 answers each"),
    ] {
        let server = FaultServer::start(Manners::of(move |_| Some(json!({"choices": choices}))));
        let config = config(folder.path(), base(), &server.url(), "");
        let out = tempfile::tempdir().unwrap();
        tells(code, command!("train", config, "--out", out.path()), says);
    }
    // No server is listening.
    let config = config(folder.path(), base(), "http://127.0.0.1:9", "model = \"x\", retries = 1");
    tells(1, command!("train", &config, "--out", folder.path().join("nobody")), "attempts: 2");
}

#[test]
fn an_interruption_does_not_wait_for_a_server_that_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::new(base());
    let seen = served.clone();
    // The first step is answered, the second never is.
    let server = FaultServer::start(Manners::of(move |body| {
        let answer = served.answer(body);
        if served.answered.load(Ordering::SeqCst) > 12 {
            std::thread::sleep(Duration::from_secs(600));
        }
        Some(answer)
    }));
    let config = config(folder.path(), base(), &server.url(), "");
    let out = folder.path().join("run");
    let mut train = spawned(&["train", "--set", "rollout.server.timeout=600"]);
    let child = train.arg(&config).arg("--out").arg(&out).spawn().unwrap();
    wait_until("the second step", || seen.answered.load(Ordering::SeqCst) > 12);
    signal(&child, libc::SIGINT);
    let asked = Instant::now();
    let (code, said) = ended(child);
    assert!(asked.elapsed() < Duration::from_secs(60), "{:?} from the signal to the end", asked.elapsed());
    assert_eq!(code, Some(1));
    assert!(said.contains("Continue with:"), "{said}");
    assert!(out.join("checkpoints/step-000001").exists(), "the first step is not saved: {said}");
}

/// A process that ends with its test.
struct Process(std::process::Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// llama.cpp's server with the same weights as GGUF.
#[test]
#[ignore = "needs xllamacpp: FGRPO_LLAMA_PYTHON names a Python that has it"]
fn completions_of_a_real_llama_cpp_server_are_learned_from_or_refused() {
    let python =
        std::env::var_os("FGRPO_LLAMA_PYTHON").expect("FGRPO_LLAMA_PYTHON names a Python with xllamacpp");
    let folder = tempfile::tempdir().unwrap();
    let model = demonstrated(folder.path(), 60, &[]);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/llama_server.py");
    let mut command = std::process::Command::new(python);
    let file = folder.path().join("model.gguf");
    ends(0, command!("merge --dtype f32 --model", &model, "--out", &file));
    command.arg(script).arg(&file).arg(port.to_string());
    let quiet = std::process::Stdio::null;
    let mut server = Process(command.stdout(quiet()).stderr(quiet()).spawn().unwrap());
    let started = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(server.0.try_wait().unwrap().is_none(), "scripts/llama_server.py ended");
        assert!(started.elapsed() < Duration::from_secs(300), "the server doesn't come up");
        std::thread::sleep(Duration::from_millis(100));
    }
    let url = format!("http://127.0.0.1:{port}");
    let config = config(folder.path(), &model, &url, "api = \"llama.cpp\"");
    let train = |out: &str, more: &str| {
        let set = sets(&["steps=2", "rollout.server.timeout=120", "rollout.server.retry_wait=1", more]);
        command!("train", &config, ..set, "--out", folder.path().join(out))
    };
    // The most likely tokens are whole characters. The server stores keys and values in half precision.
    ends(0, train("likeliest", "rollout.top_k=1"));
    let metrics = timeless(&folder.path().join("likeliest/metrics.jsonl"));
    assert_eq!(metrics.len(), 2);
    assert!(number(&metrics[0], "sampler_logp_difference_max") < 0.02, "{}", metrics[0]);
    assert!((number(&metrics[0], "correction_mean") - 1.0).abs() < 1e-2, "{}", metrics[0]);
    // All tokens of such a small model, including bytes that aren't whole characters. The server leaves out the ids of these.
    let (_, said, code) = run(train("all", "rollout.max_new_tokens=64"));
    assert!(code != 0 && said.contains("some sampled tokens are missing"), "{said}");
}
