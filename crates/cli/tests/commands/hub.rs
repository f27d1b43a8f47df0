//! Names of the Hugging Face hub, with a server in this test that answers like the hub.

use crate::support::{fgrpo, file, lines, model, run, spawned};
use assert_cmd::Command;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Faults of the next requests for a file's bytes.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// Status 500.
    Error,
    /// The connection is cut in the middle.
    Cut,
    /// The connection is cut before the first byte.
    Nothing,
    /// A byte is wrong.
    Wrong,
    /// The bytes come slowly.
    Slow,
}

#[derive(Default)]
struct State {
    /// Files by kind and repository (`models/ORG/NAME`), and by path.
    repositories: Mutex<BTreeMap<String, BTreeMap<String, Vec<u8>>>>,
    faults: Mutex<Vec<Fault>>,
    requests: AtomicU64,
    /// Requests for bytes with a range.
    ranges: Mutex<Vec<u64>>,
    /// Tokens that were sent to the storage's host. There must be none.
    leaked: AtomicBool,
    stop: AtomicBool,
}

/// Hosts of the hub and of its storage for large files, which differ.
struct TestHub {
    state: Arc<State>,
    hub: SocketAddr,
    home: tempfile::TempDir,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Files in large-file storage have a sha256. The hub itself answers for the others.
fn is_large(path: &str) -> bool {
    path.ends_with(".safetensors") || path.ends_with(".parquet")
}

impl TestHub {
    fn start() -> Self {
        let state = Arc::new(State::default());
        let [hub, storage] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [at, storage_at] = [&hub, &storage].map(|l| l.local_addr().unwrap());
        for (listener, is_hub) in [(hub, true), (storage, false)] {
            let state = state.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    if state.stop.load(Ordering::SeqCst) {
                        return;
                    }
                    let state = state.clone();
                    std::thread::spawn(move || {
                        let _ = if is_hub {
                            of_hub(stream, &state, storage_at)
                        } else {
                            of_storage(stream, &state)
                        };
                    });
                }
            });
        }
        Self { state, hub: at, home: tempfile::tempdir().unwrap() }
    }

    fn has(&self, repository: &str, files: impl IntoIterator<Item = (String, Vec<u8>)>) {
        self.state.repositories.lock().unwrap().insert(repository.to_owned(), files.into_iter().collect());
    }

    /// The small model, and files that must not be downloaded.
    fn with_model(self) -> Self {
        let files = std::fs::read_dir(model()).unwrap().map(|entry| entry.unwrap().path());
        let files = files.filter(|p| p.is_file()).map(|path| {
            (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(&path).unwrap())
        });
        let others = ["pytorch_model.bin", "onnx/model.onnx", "README.md"];
        let others = others.map(|name| (name.to_owned(), b"unwanted".to_vec()));
        self.has("models/Org/Tiny", files.chain(others));
        self
    }

    fn with_data(self) -> Self {
        let rows = |from: u64| {
            (from..from + 12)
                .map(|i| format!("{{\"question\": \"{i} + 1 = ?\", \"answer\": \"{}\"}}\n", i + 1))
                .collect::<String>()
                .into_bytes()
        };
        let card = "---\nconfigs:\n- config_name: main\n  data_files:\n  - split: train\n    path: main/train-*\n  - split: test\n    path: main/test-*\n- config_name: other\n  data_files:\n  - split: train\n    path: other/train.jsonl\n---\n";
        self.has(
            "datasets/Org/sums",
            [
                ("README.md".to_owned(), card.as_bytes().to_vec()),
                ("main/train-00000-of-00002.jsonl".to_owned(), rows(0)),
                ("main/train-00001-of-00002.jsonl".to_owned(), rows(12)),
                ("main/test-00000-of-00001.jsonl".to_owned(), rows(30)),
                ("other/train.jsonl".to_owned(), rows(60)),
            ],
        );
        self
    }

    fn meets(&self, faults: &[Fault]) {
        *self.state.faults.lock().unwrap() = faults.to_vec();
    }

    fn requests(&self) -> u64 {
        self.state.requests.load(Ordering::SeqCst)
    }

    fn environment(&self) -> [(&'static str, String); 3] {
        [
            ("HF_HOME", self.home.path().display().to_string()),
            ("HF_ENDPOINT", format!("http://{}", self.hub)),
            ("HF_TOKEN", "secret".to_owned()),
        ]
    }

    fn fgrpo(&self, args: &[&str]) -> Command {
        let mut command = fgrpo();
        command.env_remove("HF_HUB_CACHE").envs(self.environment()).args(args);
        command
    }

    /// The folder of a repository in the cache.
    fn cached(&self, name: &str) -> PathBuf {
        self.home.path().join("hub").join(name)
    }

    fn score(&self) -> (String, String, i32) {
        let mut command = self.fgrpo(&["generate", "--model", "Org/Tiny", "--max-tokens", "2", "1 + 1"]);
        command.args(["--threads", "1"]);
        run(command)
    }
}

impl Drop for TestHub {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
    }
}

/// Method, path and header lines of a request.
fn request(stream: &TcpStream) -> Option<(String, String, BTreeMap<String, String>)> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    Some((method, path, headers))
}

fn answer(
    mut stream: &TcpStream,
    status: &str,
    headers: &[(&str, String)],
    body: &[u8],
) -> std::io::Result<()> {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    write!(stream, "HTTP/1.1 {status}\r\nConnection: close\r\n{headers}\r\n")?;
    stream.write_all(body)
}

fn of_hub(stream: TcpStream, state: &State, storage: SocketAddr) -> std::io::Result<()> {
    let Some((method, path, headers)) = request(&stream) else { return Ok(()) };
    state.requests.fetch_add(1, Ordering::SeqCst);
    let none = |status: &str, code: &str| {
        answer(&stream, status, &[("X-Error-Code", code.to_owned()), ("Content-Length", "0".to_owned())], b"")
    };
    if path.contains("Org/gated") {
        return none("403 Forbidden", "GatedRepo");
    }
    if path.contains("Org/private")
        && headers.get("authorization").map(String::as_str) != Some("Bearer right")
    {
        return none("401 Unauthorized", "RepoNotFound");
    }
    let repositories = state.repositories.lock().unwrap().clone();
    if let Some(rest) = path.strip_prefix("/api/") {
        let (repository, revision) = rest.split_once("/revision/").unwrap();
        let Some(files) = repositories.get(repository) else { return none("404 Not Found", "RepoNotFound") };
        if !["main", COMMIT].contains(&revision) {
            return none("404 Not Found", "RevisionNotFound");
        }
        let siblings: Vec<_> = files.keys().map(|f| serde_json::json!({"rfilename": f})).collect();
        let body = serde_json::json!({"sha": COMMIT, "siblings": siblings}).to_string();
        return answer(&stream, "200 OK", &[("Content-Length", body.len().to_string())], body.as_bytes());
    }
    let (repository, file) = path[1..].split_once(&format!("/resolve/{COMMIT}/")).unwrap();
    let repository = match repository.strip_prefix("datasets/") {
        Some(_) => repository.to_owned(),
        None => format!("models/{repository}"),
    };
    let body = &repositories[&repository][file];
    let commit = ("X-Repo-Commit", COMMIT.to_owned());
    if is_large(file) {
        let headers = [
            commit,
            ("Location", format!("http://{storage}/{repository}/{file}")),
            ("X-Linked-Etag", format!("\"{}\"", hex(&Sha256::digest(body)))),
            ("X-Linked-Size", body.len().to_string()),
            ("Content-Length", "0".to_owned()),
        ];
        return answer(&stream, "302 Found", &headers, b"");
    }
    // A name that depends only on the content, like git's.
    let etag = format!("\"{}\"", &hex(&Sha256::digest(body))[..40]);
    let headers = [commit, ("ETag", etag), ("Content-Length", body.len().to_string())];
    answer(&stream, "200 OK", &headers, if method == "HEAD" { b"" } else { body })
}

fn of_storage(stream: TcpStream, state: &State) -> std::io::Result<()> {
    let Some((_, path, headers)) = request(&stream) else { return Ok(()) };
    if headers.contains_key("authorization") {
        state.leaked.store(true, Ordering::SeqCst);
    }
    let (repository, file) = path[1..].rsplit_once('/').unwrap();
    let mut body = state.repositories.lock().unwrap()[repository][file].clone();
    let fault = {
        let mut faults = state.faults.lock().unwrap();
        if faults.is_empty() { None } else { Some(faults.remove(0)) }
    };
    match fault {
        Some(Fault::Error) => {
            return answer(&stream, "500 Internal Server Error", &[("Content-Length", "0".to_owned())], b"");
        }
        Some(Fault::Nothing) => return Ok(()),
        Some(Fault::Wrong) => *body.last_mut().unwrap() ^= 1,
        _ => {}
    }
    let from = headers
        .get("range")
        .map(|r| r.strip_prefix("bytes=").unwrap().trim_end_matches('-').parse().unwrap());
    state.ranges.lock().unwrap().extend(from);
    let start = from.unwrap_or(0) as usize;
    let mut sent = vec![("Content-Length", (body.len() - start).to_string())];
    if from.is_some() {
        sent.push(("Content-Range", format!("bytes {start}-{}/{}", body.len() - 1, body.len())));
    }
    let status = if from.is_some() { "206 Partial Content" } else { "200 OK" };
    match fault {
        Some(Fault::Cut) => answer(&stream, status, &sent, &body[start..][..(body.len() - start) / 2]),
        Some(Fault::Slow) => {
            answer(&stream, status, &sent, b"")?;
            // Four seconds for a file of any size, so that a signal comes before the end, even on a busy machine.
            for piece in body[start..].chunks(body.len().div_ceil(200)) {
                (&stream).write_all(piece)?;
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(())
        }
        _ => answer(&stream, status, &sent, &body[start..]),
    }
}

fn configuration(folder: &Path) -> PathBuf {
    file(
        folder,
        "run.toml",
        r#"
steps = 4
[task]
kind = "math"
data = "Org/sums"
held_out = "Org/sums"
[model]
path = "Org/Tiny"
[rollout]
prompts = 2
group_size = 2
max_new_tokens = 4
[eval]
every = 2
samples = 2
k = [1]
[save]
every = 2
[compute]
threads = 1
"#,
    )
}

#[test]
fn a_run_on_names_of_the_hub_resumes_without_it_at_the_same_commit() {
    let hub = TestHub::start().with_model().with_data();
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path());
    let config = config.to_str().unwrap();
    let out = folder.path().join("run");
    let out = out.to_str().unwrap();
    let (_, said, code) = run(hub.fgrpo(&["train", config, "--out", out, "--set", "steps=2"]));
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("model.path: Org/Tiny at 0123456 ("), "{said}");
    assert!(said.contains("task.data: Org/sums, subset main, split train, at 0123456"), "{said}");
    assert!(said.contains("task.held_out: Org/sums, subset main, split test, at 0123456"), "{said}");
    assert!(!hub.state.leaked.load(Ordering::SeqCst), "the token was sent to another host");
    let written = std::fs::read_to_string(Path::new(out).join("config.toml")).unwrap();
    assert_eq!(written.matches(&format!("/snapshots/{COMMIT}")).count(), 3, "{written}");
    let snapshot = hub.cached("models--Org--Tiny").join("snapshots").join(COMMIT);
    assert!(snapshot.join("config.json").is_symlink());
    for unwanted in ["pytorch_model.bin", "onnx", "README.md"] {
        assert!(!snapshot.join(unwanted).exists(), "{unwanted}");
    }
    // The branch main changes, and the hub can't be reached.
    for repository in ["models--Org--Tiny", "datasets--Org--sums"] {
        std::fs::write(hub.cached(repository).join("refs/main"), "f".repeat(40)).unwrap();
    }
    let before = hub.requests();
    let mut command = hub.fgrpo(&["train", config, "--out", out, "--resume", "--accept-changes"]);
    let (_, said, code) = run(command.env("HF_HUB_OFFLINE", "1"));
    assert_eq!(code, 0, "{said}");
    assert_eq!(lines(&Path::new(out).join("metrics.jsonl")).len(), 4);
    // The run's configuration repeats it.
    let own = Path::new(out).join("config.toml");
    let again = folder.path().join("again");
    let (_, said, code) = run(hub.fgrpo(&[
        "train",
        own.to_str().unwrap(),
        "--out",
        again.to_str().unwrap(),
        "--set",
        "steps=1",
    ]));
    assert_eq!(code, 0, "{said}");
    assert_eq!(hub.requests(), before);
}

#[test]
fn a_resume_with_a_revision_takes_that_one_and_not_the_runs_commit() {
    let hub = TestHub::start().with_model().with_data();
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path());
    let out = folder.path().join("run");
    let line = ["train", config.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let resumed = |model: &str, steps: &str, offline: bool| {
        let path = format!("model.path={model}");
        let more = ["--resume", "--accept-changes", "--set", &path, "--set", steps];
        let mut command = hub.fgrpo(&[&line[..], &more].concat());
        if offline {
            command.env("HF_HUB_OFFLINE", "1");
        }
        let (_, said, code) = run(command);
        (said, code)
    };
    let (_, said, code) = run(hub.fgrpo(&[&line[..], &["--set", "steps=2"]].concat()));
    assert_eq!(code, 0, "{said}");
    let (said, code) = resumed("hf:Org/Tiny@v9", "steps=3", false);
    assert!(code == 2 && said.contains("v9"), "{code}: {said}");
    let (said, code) = resumed("hf:Org/Tiny@main", "steps=3", true);
    assert_eq!(code, 0, "{said}");
    let (said, code) = resumed(&format!("hf:Org/Tiny@{COMMIT}"), "steps=4", true);
    assert_eq!(code, 0, "{said}");
}

#[test]
fn a_part_of_a_split_in_the_cache_is_no_split() {
    let hub = TestHub::start().with_model().with_data();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("eval");
    let eval = |offline: &str| {
        let mut command = hub.fgrpo(&["eval", "--model", "Org/Tiny", "--data", "hf:Org/sums:train"]);
        command.args(["--task", "math", "-n", "1", "--max-tokens", "2", "--threads", "1", "--out"]).arg(&out);
        run(command.env("HF_HUB_OFFLINE", offline))
    };
    let (_, said, code) = eval("0");
    assert_eq!(code, 0, "{said}");
    let snapshot = hub.cached("datasets--Org--sums").join("snapshots").join(COMMIT);
    std::fs::remove_file(snapshot.join("main/train-00001-of-00002.jsonl")).unwrap();
    let (_, said, code) = eval("1");
    assert!(code == 2 && said.contains("the cache has 1 of 2 files of split train"), "{code}: {said}");
}

#[test]
fn evaluation_takes_a_model_and_a_split_by_name() {
    let hub = TestHub::start().with_model().with_data();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("eval");
    let args = ["eval", "--model", "hf:Org/Tiny@main", "--task", "math", "-n", "1", "--max-tokens", "2"];
    let mut command = hub.fgrpo(&args);
    let (_, said, code) = run(command.args(["--data", "hf:Org/sums/other@main:train", "--out"]).arg(&out));
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("--data: Org/sums, subset other, split train, at 0123456"), "{said}");
    assert_eq!(lines(&out.join("samples.jsonl")).len(), 12);
    let (_, said, code) = run(hub.fgrpo(&args).args(["--data", "hf:Org/sums:dev", "--out"]).arg(&out));
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("no split dev, but test, train;"), "{said}");
}

#[test]
fn cut_and_failing_downloads_go_on_where_they_were() {
    let hub = TestHub::start().with_model();
    hub.meets(&[Fault::Error, Fault::Cut, Fault::Nothing, Fault::Cut]);
    let (_, said, code) = hub.score();
    assert_eq!(code, 0, "{said}");
    let ranges = hub.state.ranges.lock().unwrap().clone();
    assert!(ranges.len() == 2 && ranges[0] > 0 && ranges[1] > ranges[0], "{ranges:?}");
    assert!(
        hub.cached("models--Org--Tiny/blobs")
            .read_dir()
            .unwrap()
            .all(|entry| { !entry.unwrap().file_name().to_string_lossy().ends_with(".incomplete") })
    );
}

#[test]
fn a_download_that_stays_cut_names_its_bytes_and_the_next_call_goes_on() {
    let hub = TestHub::start().with_model();
    hub.meets(&[Fault::Cut, Fault::Nothing, Fault::Nothing, Fault::Nothing, Fault::Nothing, Fault::Nothing]);
    let (_, said, code) = hub.score();
    assert_eq!(code, 1, "{said}");
    let size = std::fs::metadata(model().join("model.safetensors")).unwrap().len();
    assert!(said.contains(&format!("{} of {size} bytes are kept", size / 2)), "{said}");
    hub.meets(&[]);
    assert_eq!(hub.score().2, 0);
    assert!(hub.state.ranges.lock().unwrap().contains(&(size / 2)));
}

#[test]
fn wrong_bytes_are_refused_and_removed() {
    let hub = TestHub::start().with_model();
    hub.meets(&[Fault::Wrong]);
    let (_, said, code) = hub.score();
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("damaged") && said.contains("SHA-256"), "{said}");
    let (_, said, code) = hub.score();
    assert_eq!(code, 0, "{said}");
}

#[test]
fn ctrl_c_keeps_what_is_loaded_and_says_so() {
    let hub = TestHub::start().with_model();
    hub.meets(&[Fault::Slow]);
    let args = ["score", "--model", "Org/Tiny", "none.jsonl"];
    let mut child = spawned(&args).envs(hub.environment()).spawn().unwrap();
    let begun = || {
        let blobs = hub.cached("models--Org--Tiny/blobs").read_dir().into_iter().flatten().flatten();
        // The weights, by their sha256. The small files before them come immediately.
        let weights = |name: &str| name.strip_suffix(".incomplete").is_some_and(|hash| hash.len() == 64);
        blobs
            .filter(|e| weights(&e.file_name().to_string_lossy()))
            .any(|e| e.metadata().is_ok_and(|m| m.len() > 0))
    };
    while !begun() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before the download");
        std::thread::sleep(Duration::from_millis(5));
    }
    // SAFETY: the child is this test's own and not waited for yet.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(!child.wait().unwrap().success());
    assert!(said.contains("bytes are kept, and the next call goes on with them"), "{said}");
    assert_eq!(hub.score().2, 0);
    assert!(!hub.state.ranges.lock().unwrap().is_empty());
}

#[test]
fn two_processes_load_a_file_once() {
    let hub = TestHub::start().with_model();
    hub.meets(&[Fault::Slow]);
    std::thread::scope(|scope| {
        let both = [(); 2].map(|()| scope.spawn(|| hub.score()));
        for one in both {
            let (_, said, code) = one.join().unwrap();
            assert_eq!(code, 0, "{said}");
        }
    });
    assert!(hub.state.ranges.lock().unwrap().is_empty());
}

#[test]
fn refusals_say_what_to_do() {
    let hub = TestHub::start().with_model();
    for (name, wanted) in [
        ("Org/gated", "accept its licence"),
        ("Org/private", "HF_TOKEN"),
        ("Org/nothing", "no such repository"),
        ("hf:Org/Tiny@v9", "no revision v9"),
        ("hf:Tiny", "expected hf:ORG/NAME"),
    ] {
        let (_, said, code) = run(hub.fgrpo(&["score", "--model", name, "none.jsonl"]));
        assert_eq!(code, 2, "{name}: {said}");
        assert!(said.contains("--model: ") && said.contains(wanted), "{name}: {said}");
    }
    let (_, said, code) =
        run(hub.fgrpo(&["score", "--model", "Org/Tiny", "none.jsonl"]).env("HF_HUB_OFFLINE", "1"));
    assert!(code == 2 && said.contains("HF_HUB_OFFLINE is set"), "{said}");
    // A split written as a path.
    let (_, said, code) = run(hub.fgrpo(&["data", "show", "Org/sums/main/train"]));
    assert!(
        code == 2 && said.contains("for the data set on the hub, write hf:Org/sums/main:train"),
        "{said}"
    );
}

#[test]
fn a_local_path_wins_and_a_dry_run_knows_sizes_without_a_request() {
    let hub = TestHub::start().with_model();
    let folder = tempfile::tempdir().unwrap();
    let local = folder.path().join("Org/Tiny");
    std::fs::create_dir_all(local.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(model(), &local).unwrap();
    let mut command = hub.fgrpo(&["generate", "--model", "Org/Tiny", "--max-tokens", "2", "1 + 1"]);
    let (_, said, code) = run(command.current_dir(folder.path()));
    assert_eq!(code, 0, "{said}");
    let config = configuration(folder.path());
    let mut command = hub.fgrpo(&["train", config.to_str().unwrap(), "--dry-run"]);
    let (_, said, code) = run(command.args(["--set", "model.path=Qwen/Qwen3-0.6B"]));
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("596049920"), "{said}");
    assert_eq!(hub.requests(), 0);
}
