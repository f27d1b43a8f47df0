//! HTTP requests to the hub, and downloads that resume after an interruption and are verified.
//!
//! This module follows redirects itself, so that the token is sent only to the hub's host.

use crate::{Error, Hub, Name, Watch, name};
use sha1::Sha1;
use sha2::digest::DynDigest;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::time::Duration;
use ureq::http::{Response, StatusCode};
use ureq::{Body, http};

/// Consecutive attempts without a new byte before the download fails.
const TRIES: u32 = 5;
/// Maximum number of redirects of one request.
const REDIRECTS: usize = 8;
/// Maximum size of the hub's list of files, in bytes.
const LIST: u64 = 256 << 20;
/// Size of a read, in bytes.
const PIECE: usize = 1 << 20;

fn failed(path: &Path) -> impl Fn(std::io::Error) -> Error + '_ {
    move |error| Error::Failed(format!("{}: {error}", path.display()))
}

/// Writes a file under a temporary name in the same folder and renames it.
pub(crate) fn whole(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.new", std::process::id()));
    let parent = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent)
        .and_then(|()| std::fs::write(&temporary, bytes))
        .and_then(|()| std::fs::rename(&temporary, path))
        .map_err(failed(path))
}

/// Percent-encodes a path or a revision for a URL. `slashes` is whether slashes remain unchanged.
fn escaped(text: &str, slashes: bool) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'/' if slashes => out.push('/'),
            b if b.is_ascii_alphanumeric() || b"-_.~".contains(&b) => out.push(char::from(b)),
            b => out.push_str(&format!("%{b:02X}")),
        }
    }
    out
}

/// Returns the scheme, host and port of a URL.
fn origin(url: &str) -> &str {
    let after = url.find("://").map_or(0, |at| at + 3);
    &url[..url[after..].find(['/', '?', '#']).map_or(url.len(), |at| after + at)]
}

fn header<'a>(response: &'a Response<Body>, name: &str) -> Option<&'a str> {
    response.headers().get(name).and_then(|v| v.to_str().ok())
}

/// Returns whether a request with this status may succeed if it is sent again.
fn is_passing(status: StatusCode) -> bool {
    status.is_server_error() || status == 429 || status == 408
}

impl Hub {
    /// Sends one request and follows its redirects. If `stay` is true, only redirects to the same host are followed.
    fn once(&self, method: http::Method, url: &str, from: u64, stay: bool) -> Result<Response<Body>, String> {
        let mut url = url.to_owned();
        for _ in 0..REDIRECTS {
            let mut request = http::Request::builder().method(method.clone()).uri(&url);
            if let Some(token) = self.token.as_ref().filter(|_| origin(&url) == origin(&self.endpoint)) {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            if from > 0 {
                request = request.header("range", format!("bytes={from}-"));
            }
            let request = request.body(()).map_err(|e| format!("{url}: {e}"))?;
            let response = self.agent.run(request).map_err(|e| format!("{url}: {e}"))?;
            let to = header(&response, "location").filter(|_| response.status().is_redirection());
            let Some(to) = to else { return Ok(response) };
            let next = if to.starts_with('/') { format!("{}{to}", origin(&url)) } else { to.to_owned() };
            if stay && origin(&next) != origin(&url) {
                return Ok(response);
            }
            url = next;
        }
        Err(format!("{url}: more than {REDIRECTS} redirects"))
    }

    /// Sends a request as [`Hub::once`] does, and repeats it after a temporary failure.
    fn asked(&self, method: &http::Method, url: &str, watch: &dyn Watch) -> Result<Response<Body>, Error> {
        let mut tries = 1;
        loop {
            let why = match self.once(method.clone(), url, 0, true) {
                Ok(response) if !is_passing(response.status()) => return Ok(response),
                Ok(response) => format!("{url}: status {}", response.status()),
                Err(why) => why,
            };
            pause(&mut tries, watch, || format!("{why}, {TRIES} times"))?;
        }
    }

    /// Requests the commit of a revision and its list of files from the hub. If the hub can't be reached but the
    /// repository is in the cache, reports this to `watch` and returns `None`.
    pub(crate) fn list(
        &self,
        name: &Name,
        revision: &str,
        watch: &mut dyn Watch,
    ) -> Result<Option<(String, Vec<String>)>, Error> {
        let place = format!("{}/{}", name.kind.plural(), name.repository);
        let url = format!("{}/api/{place}/revision/{}", self.endpoint, escaped(revision, false));
        let mut response = match self.asked(&http::Method::GET, &url, watch) {
            Err(Error::Failed(why)) if self.folder(name).join("snapshots").is_dir() => {
                watch.say(&format!("{why}; {} is taken from the cache", name.repository));
                return Ok(None);
            }
            other => other?,
        };
        self.refuse(name, revision, &url, &response)?;
        let list = response.body_mut().with_config().limit(LIST).read_to_vec();
        let list = list.map_err(|e| Error::Failed(format!("{url}: {e}")))?;
        let list: serde_json::Value = serde_json::from_slice(&list).unwrap_or_default();
        let commit = list["sha"].as_str().filter(|sha| name::is_commit(sha));
        let files = list["siblings"].as_array().map(|all| all.iter().filter_map(|f| f["rfilename"].as_str()));
        let (Some(commit), Some(files)) = (commit, files) else {
            return Err(Error::Failed(format!(
                "{url}: the answer has no `sha` and `siblings`; check that HF_ENDPOINT is a Hugging Face hub"
            )));
        };
        // File names from the hub become paths on this machine, so they must not lead out of the folder.
        let is_below =
            |f: &&str| Path::new(f).components().all(|part| matches!(part, std::path::Component::Normal(_)));
        Ok(Some((commit.to_owned(), files.filter(is_below).map(str::to_owned).collect())))
    }

    /// Returns an error that names the cause if the hub refused the request.
    fn refuse(&self, name: &Name, what: &str, url: &str, response: &Response<Body>) -> Result<(), Error> {
        let status = response.status();
        let code = header(response, "x-error-code").unwrap_or_default();
        let repository = &name.repository;
        let token = match &self.token {
            Some(_) => "the token has no access",
            None => "no token is set",
        };
        let page = match name.kind {
            name::Kind::Model => format!("{}/{repository}", self.endpoint),
            name::Kind::Data => format!("{}/datasets/{repository}", self.endpoint),
        };
        Err(Error::Refused(match (status.as_u16(), code) {
            (200..=399, _) => return Ok(()),
            (401 | 403, "GatedRepo") => format!(
                "{repository} is gated and {token}: accept its licence at {page} and set HF_TOKEN (or write {}/token)",
                "$HF_HOME"
            ),
            (401 | 403, _) => format!(
                "{repository}: the hub answers {status} and {token}: no such repository, or a private one, which wants HF_TOKEN ({url})"
            ),
            (404, "RevisionNotFound") => {
                format!("{repository}: the hub has no revision {what} of it ({url})")
            }
            (404, "EntryNotFound") => format!("{repository}: the hub has no file {what} of it ({url})"),
            (404, _) => format!(
                "{repository}: the hub has no such repository ({url}), and there is no such path here"
            ),
            _ => return Err(Error::Failed(format!("{url}: status {status}"))),
        }))
    }

    /// Downloads a file of a commit unless it is in the cache.
    pub(crate) fn load(
        &self,
        name: &Name,
        folder: &Path,
        commit: &str,
        file: &str,
        watch: &mut dyn Watch,
    ) -> Result<(), Error> {
        let link = folder.join("snapshots").join(commit).join(file);
        if link.exists() {
            return Ok(());
        }
        let prefix = if name.kind == name::Kind::Data { "datasets/" } else { "" };
        let place = format!("{prefix}{}/resolve/{commit}/{}", name.repository, escaped(file, true));
        let url = format!("{}/{place}", self.endpoint);
        let head = self.asked(&http::Method::HEAD, &url, watch)?;
        self.refuse(name, file, &url, &head)?;
        let etag = header(&head, "x-linked-etag").or(header(&head, "etag")).unwrap_or_default();
        let etag = etag.trim_start_matches("W/").trim_matches('"');
        if etag.is_empty() || !etag.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            return Err(Error::Failed(format!("{url}: the ETag {etag:?} isn't a hash")));
        }
        let size =
            header(&head, "x-linked-size").or(header(&head, "content-length")).and_then(|n| n.parse().ok());
        let Some(size) = size else {
            return Err(Error::Failed(format!("{url}: the answer has no X-Linked-Size or Content-Length")));
        };
        let locks = self.cache.join(".locks").join(name.folder());
        std::fs::create_dir_all(&locks).map_err(failed(&locks))?;
        let lock = locks.join(format!("{etag}.lock"));
        let guard = File::options().create(true).append(true).open(&lock).map_err(failed(&lock))?;
        if guard.try_lock().is_err() {
            watch.say(&format!("{file}: waiting for another process that is downloading it"));
            while guard.try_lock().is_err() {
                std::thread::sleep(Duration::from_millis(100));
                if watch.stop() {
                    return Err(Error::Stopped("stopped on request".into()));
                }
            }
        }
        let blob = folder.join("blobs").join(etag);
        if !blob.exists() {
            std::fs::create_dir_all(folder.join("blobs")).map_err(failed(&blob))?;
            self.fetch(&url, file, &blob, etag, size, watch)?;
        }
        std::fs::create_dir_all(link.parent().unwrap_or(folder)).map_err(failed(&link))?;
        let up = "../".repeat(file.matches('/').count() + 2);
        match std::os::unix::fs::symlink(format!("{up}blobs/{etag}"), &link) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(failed(&link)(error)),
            _ => Ok(()),
        }
    }

    /// Downloads `size` bytes from a URL into `blob` and verifies them. Continues an incomplete earlier download.
    ///
    /// The ETag of a file in large-file storage is its SHA-256. For any other file it is git's SHA-1 of the blob.
    fn fetch(
        &self,
        url: &str,
        file: &str,
        blob: &Path,
        etag: &str,
        size: u64,
        watch: &mut dyn Watch,
    ) -> Result<(), Error> {
        let incomplete = blob.with_file_name(format!("{etag}.incomplete"));
        let mut part = File::options().create(true).read(true).append(true).open(&incomplete);
        let part = part.as_mut().map_err(|e| Error::Failed(format!("{}: {e}", incomplete.display())))?;
        let new_hash = || -> Box<dyn DynDigest> {
            match etag.len() {
                40 => Box::new(Sha1::new_with_prefix(format!("blob {size}\0"))),
                _ => Box::new(Sha256::new()),
            }
        };
        let mut hash = new_hash();
        let mut piece = vec![0; PIECE];
        let mut done = 0;
        loop {
            match part.read(&mut piece).map_err(failed(&incomplete))? {
                0 => break,
                n => hash.update(&piece[..n]),
            }
            done = part.stream_position().map_err(failed(&incomplete))?;
        }
        let mut tries = 1;
        watch.begin(file, done, size);
        let result = loop {
            if done >= size {
                break Ok(());
            }
            let before = done;
            let why = match self.once(http::Method::GET, url, done, false) {
                Err(why) => why,
                Ok(response) if is_passing(response.status()) => {
                    format!("{url}: status {}", response.status())
                }
                Ok(response) if !response.status().is_success() => {
                    break Err(Error::Failed(format!("{url}: status {}", response.status())));
                }
                Ok(mut response) => {
                    let from = header(&response, "content-range").and_then(|r| r.strip_prefix("bytes "));
                    let from = from.and_then(|r| r.split_once('-')).and_then(|(from, _)| from.parse().ok());
                    if done > 0 && (response.status() != 206 || from != Some(done)) {
                        // The server sent the whole file, not the rest of it.
                        part.set_len(0).map_err(failed(&incomplete))?;
                        (done, hash) = (0, new_hash());
                        if response.status() == 206 {
                            continue;
                        }
                    }
                    let mut body = response.body_mut().as_reader();
                    loop {
                        if watch.stop() {
                            break;
                        }
                        match body.read(&mut piece) {
                            Ok(0) => break,
                            Ok(n) => {
                                let n = n.min((size - done) as usize);
                                part.write_all(&piece[..n]).map_err(failed(&incomplete))?;
                                hash.update(&piece[..n]);
                                done += n as u64;
                                watch.progress(done);
                                if done == size {
                                    break;
                                }
                            }
                            Err(_) => break,
                        }
                    }
                    format!("{url}: the connection was cut")
                }
            };
            if done > before {
                tries = 1;
            }
            let had =
                || format!("{why}; {done} of {size} bytes are kept, and the next call goes on with them");
            if done < size
                && let Err(error) = pause(&mut tries, watch, had)
            {
                break Err(error);
            }
        };
        watch.end();
        result?;
        part.sync_all().map_err(failed(&incomplete))?;
        let digest: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
        if done != size || ([40, 64].contains(&etag.len()) && digest != etag) {
            std::fs::remove_file(&incomplete).map_err(failed(&incomplete))?;
            return Err(Error::Failed(format!(
                "{url}: the download is damaged and was removed: expected {size} bytes with the hash {etag}, found {done} bytes with {digest}"
            )));
        }
        std::fs::rename(&incomplete, blob).map_err(failed(blob))
    }
}

/// Waits before the next attempt, longer after each. Returns an error after too many attempts, or if the user stops.
fn pause(tries: &mut u32, watch: &dyn Watch, why: impl Fn() -> String) -> Result<(), Error> {
    if watch.stop() {
        return Err(Error::Stopped(format!("stopped on request: {}", why())));
    }
    if *tries >= TRIES {
        return Err(Error::Failed(why()));
    }
    std::thread::sleep(Duration::from_millis(100 << *tries));
    *tries += 1;
    Ok(())
}
