//! A server that answers like the Hugging Face hub and its storage, for the tests of this crate and of the command line.

#![allow(dead_code, reason = "each of the two test programs uses a part")]

use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Faults of the next requests for a file's bytes.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Fault {
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
pub(crate) struct State {
    /// Files by kind and repository (`models/ORG/NAME`), and by path.
    repositories: Mutex<BTreeMap<String, BTreeMap<String, Vec<u8>>>>,
    faults: Mutex<Vec<Fault>>,
    requests: AtomicU64,
    /// Requests for bytes with a range.
    pub(crate) ranges: Mutex<Vec<u64>>,
    /// Tokens that were sent to the storage's host. There must be none.
    pub(crate) leaked: AtomicBool,
    stop: AtomicBool,
}

/// Hosts of the hub and of its storage for large files, which differ.
pub(crate) struct TestHub {
    pub(crate) state: Arc<State>,
    hub: SocketAddr,
    pub(crate) home: tempfile::TempDir,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Files in large-file storage have a sha256. The hub itself answers for the others.
fn is_large(path: &str) -> bool {
    path.ends_with(".safetensors") || path.ends_with(".parquet")
}

impl TestHub {
    pub(crate) fn start() -> Self {
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

    pub(crate) fn has(
        &self,
        repository: &str,
        files: impl IntoIterator<Item = (impl Into<String>, impl Into<Vec<u8>>)>,
    ) {
        let files = files.into_iter().map(|(name, bytes)| (name.into(), bytes.into())).collect();
        self.state.repositories.lock().unwrap().insert(repository.to_owned(), files);
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.hub)
    }

    pub(crate) fn with_data(self) -> Self {
        let rows = |from: u64| {
            (from..from + 12)
                .map(|i| format!("{{\"question\": \"{i} + 1 = ?\", \"answer\": \"{}\"}}\n", i + 1))
                .collect::<String>()
        };
        let card = "---\nconfigs:\n- config_name: main\n  data_files:\n  - split: train\n    path: main/train-*\n  - split: test\n    path: main/test-*\n- config_name: other\n  data_files:\n  - split: train\n    path: other/train.jsonl\n---\n";
        self.has(
            "datasets/Org/sums",
            [
                ("README.md", card.to_owned()),
                ("main/train-00000-of-00002.jsonl", rows(0)),
                ("main/train-00001-of-00002.jsonl", rows(12)),
                ("main/test-00000-of-00001.jsonl", rows(30)),
                ("other/train.jsonl", rows(60)),
            ],
        );
        self
    }

    pub(crate) fn meets(&self, faults: &[Fault]) {
        *self.state.faults.lock().unwrap() = faults.to_vec();
    }

    pub(crate) fn requests(&self) -> u64 {
        self.state.requests.load(Ordering::SeqCst)
    }

    /// The folder of a repository in the cache.
    pub(crate) fn cached(&self, name: &str) -> PathBuf {
        self.home.path().join("hub").join(name)
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
    let git = Sha1::new_with_prefix(format!("blob {}\0", body.len())).chain_update(body);
    let etag = format!("\"{}\"", hex(&git.finalize()));
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
