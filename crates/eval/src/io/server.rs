//! Client for OpenAI-compatible servers (vLLM, SGLang, llama.cpp, transformers).
//!
//! Temporary failures are retried with exponential backoff and jitter: 408, 409, 425, 429 and 5xx, timeouts, refused or
//! lost connections, and answers that aren't JSON. Any other 4xx is returned at once as [`Failure::Refused`], because
//! the caller must fix the request. A failure is never treated as an answer.
//!
//! Servers aren't trusted. Redirects aren't followed, because another address would receive the prompts and the key.
//! The size of an answer is limited to what the request can produce. Messages from the server are printed without
//! control characters and without the key.

mod attempt;
pub mod sampling;

use crate::failure::Stopped;
use crate::io::harmless::harmless;
use crate::io::interrupt;
use attempt::Unanswered;
use fgrpo_core::rng::Key;
use serde_json::Value;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use ureq::Agent;

/// Timeout for listing the models, for which the server doesn't generate text.
const LIST_TIMEOUT: Duration = Duration::from_secs(20);

/// Retry policy of a request.
#[derive(Debug, Clone, Copy)]
pub struct RetryPolicy {
    /// Timeout of one attempt, from connecting to the last byte.
    pub timeout: Duration,
    /// Number of retries.
    pub retries: u32,
    /// Wait before the first retry, doubled for each further retry.
    pub first_wait: Duration,
    /// Maximum wait before a retry.
    pub longest_wait: Duration,
}

/// Reason why a request wasn't answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The server rejected this request and would reject it again.
    #[error("{url} answered {status}: {message}")]
    Refused {
        /// Address of the request.
        url: String,
        /// HTTP status.
        status: u16,
        /// The server's error message.
        message: String,
    },
    /// Every attempt failed.
    #[error("{url}: {last} (attempts: {attempts})")]
    Exhausted {
        /// Address of the request.
        url: String,
        /// Number of attempts.
        attempts: u32,
        /// Error of the last attempt.
        last: String,
        /// Whether the server answered the last attempt.
        answered: bool,
    },
    /// The program was asked to stop.
    #[error("stopped")]
    Stopped,
}

/// Maximum wait before a retry that [`RetryPolicy::of`] sets.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

impl RetryPolicy {
    /// Creates a policy of `retries` retries. `timeout` and `first_wait` are in seconds. Each wait is at most 30 s.
    pub fn of(timeout: f64, retries: u32, first_wait: f64) -> Self {
        Self {
            timeout: Duration::from_secs_f64(timeout),
            retries,
            first_wait: Duration::from_secs_f64(first_wait),
            longest_wait: LONGEST_WAIT,
        }
    }
}

/// A server's address and key, with the retry policy.
#[derive(Debug, Clone)]
pub struct Server {
    agent: Agent,
    base: String,
    key: Option<String>,
    retry: RetryPolicy,
    /// Number of failed attempts that were retried.
    faults: Arc<AtomicU64>,
    /// Fields that the server's model rejects. `max_tokens` is sent under its newer name, and other fields are left out.
    refused: Arc<Mutex<BTreeSet<&'static str>>>,
}

/// Fields that newer OpenAI models reject, each with the value at which it can be left out. These models expect
/// `max_tokens` under a newer name.
const REFUSED: [(&str, Option<f64>); 5] = [
    ("max_tokens", None),
    ("temperature", Some(1.0)),
    ("top_p", Some(1.0)),
    ("presence_penalty", Some(0.0)),
    ("frequency_penalty", Some(0.0)),
];
const NEWER_NAME: &str = "max_completion_tokens";

impl Server {
    /// Creates a client for the server at `url` (with or without `/v1`), with the API key in the environment variable
    /// `key_variable`, by default `OPENAI_API_KEY` if it is set.
    ///
    /// Returns bad input if the address isn't http or https, or if the named variable isn't set.
    pub fn new(url: &str, key_variable: Option<&str>, retry: RetryPolicy) -> anyhow::Result<Self> {
        check_address("server", url)?;
        let trimmed = url.trim_end_matches('/');
        let host = trimmed.split_once("://").map_or(trimmed, |(_, host)| host);
        let key = match key_variable {
            Some(name) => match std::env::var(name) {
                Ok(key) if !key.is_empty() => Some(key),
                _ => bad_input!(
                    "the environment variable {name} is unset or empty; it should contain the server's key"
                ),
            },
            None => std::env::var("OPENAI_API_KEY").ok().filter(|k| !k.is_empty()),
        };
        let base = if trimmed.ends_with("/v1") { trimmed.to_owned() } else { format!("{trimmed}/v1") };
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_global(Some(retry.timeout))
            .timeout_connect(Some(retry.timeout.min(Duration::from_secs(20))))
            .max_idle_connections(256)
            .max_idle_connections_per_host(256);
        if ["127.", "localhost", "[::1]"].iter().any(|local| host.starts_with(local)) {
            // A proxy from the environment can't reach servers on this machine.
            config = config.proxy(None);
        }
        Ok(Self {
            agent: config.build().new_agent(),
            base,
            key,
            retry,
            faults: Arc::default(),
            refused: Arc::default(),
        })
    }

    /// Returns the number of failed attempts that were retried so far.
    pub fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    /// Returns the base address, which ends in `/v1`.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Returns the names of the served models. Gives up after a few seconds if the server can't be reached.
    ///
    /// Returns an error if the server can't be reached, doesn't list its models, or needs another key.
    pub fn models(&self) -> anyhow::Result<Vec<String>> {
        self.list().or_else(|failure| self.unlisted(failure))
    }

    /// Checks that a server answers at the address, and returns the names of its models. The list is empty if the server
    /// doesn't list models, since some servers fail on this request but answer all others.
    ///
    /// Returns an error if the server can't be reached, or the key is missing or wrong.
    pub fn reach(&self) -> anyhow::Result<Vec<String>> {
        match self.list() {
            Ok(models) => Ok(models),
            Err(Failure::Exhausted { answered: true, .. }) => Ok(Vec::new()),
            Err(Failure::Refused { status, .. }) if !matches!(status, 0 | 401 | 403) => Ok(Vec::new()),
            Err(failure) => self.unlisted(failure),
        }
    }

    fn list(&self) -> Result<Vec<String>, Failure> {
        let url = format!("{}/models", self.base);
        let policy = RetryPolicy {
            retries: self.retry.retries.min(3),
            timeout: self.retry.timeout.min(LIST_TIMEOUT),
            ..self.retry
        };
        // Runs in a separate thread, so that a request to stop doesn't wait for a server that hangs.
        let (server, stop) = (self.clone(), Arc::new(AtomicBool::new(false)));
        let (send, receive) = mpsc::channel();
        let stopped = Arc::clone(&stop);
        std::thread::spawn(move || send.send(server.attempts(&url, None, &stopped, 0, policy)));
        let answer = loop {
            match receive.recv_timeout(Duration::from_millis(50)) {
                Ok(answer) => break answer?,
                Err(mpsc::RecvTimeoutError::Timeout) if !interrupt::requested() => {}
                Err(_) => {
                    stop.store(true, Ordering::Relaxed);
                    return Err(Failure::Stopped);
                }
            }
        };
        let names =
            |list: &Vec<Value>| list.iter().filter_map(|m| m["id"].as_str().map(str::to_owned)).collect();
        Ok(answer["data"].as_array().map(names).unwrap_or_default())
    }

    /// Makes a server's message safe for display: removes the key, and control characters, which could control a terminal.
    pub fn shown(&self, message: &str) -> String {
        harmless(&self.without_key(message)).replace(['\n', '\t'], " ")
    }

    fn without_key(&self, message: &str) -> String {
        self.key.as_ref().map_or_else(|| message.to_owned(), |key| message.replace(key.as_str(), "[key]"))
    }

    fn unlisted<T>(&self, failure: Failure) -> anyhow::Result<T> {
        match failure {
            Failure::Refused { status: 401 | 403, url, message } => bad_input!(
                "{url} requires a key ({message}); set OPENAI_API_KEY, or name the variable that holds it"
            ),
            Failure::Stopped => {
                Err(Stopped(format!("stopped on request while reaching {}; nothing was done", self.base))
                    .into())
            }
            failure => bad_input!("{failure}"),
        }
    }

    /// Posts `body` to `path` below the base address and returns the answer, with retries. `salt` makes this request's
    /// jitter differ from that of other requests.
    ///
    /// If the server's message rejects a field whose value doesn't have an effect, the field is left out of this request
    /// and later requests. `max_tokens` is sent under its newer name if the message asks for it.
    ///
    /// Returns an error if the server rejects the request, all retries fail, or `stop` is set.
    pub fn post(&self, path: &str, body: &Value, stop: &AtomicBool, salt: u64) -> Result<Value, Failure> {
        let url = format!("{}/{path}", self.base);
        loop {
            let accepted = self.accepted(body);
            match self.attempts(&url, Some(&accepted), stop, salt, self.retry) {
                Err(Failure::Refused { status: 400, message, .. }) if self.learn(&accepted, &message) => {
                    tracing::debug!("{url}: {message}; sending the request again without the field");
                }
                answer => return answer,
            }
        }
    }

    /// Returns the request without the fields that the server rejected.
    fn accepted(&self, body: &Value) -> Value {
        let mut body = body.clone();
        let refused = self.refused.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(fields) = body.as_object_mut() {
            for (name, neutral) in REFUSED.iter().filter(|(name, _)| refused.contains(name)) {
                let is_neutral = neutral.is_none() || fields.get(*name).and_then(Value::as_f64) == *neutral;
                if let Some(value) = is_neutral.then(|| fields.remove(*name)).flatten()
                    && *name == "max_tokens"
                {
                    fields.insert(NEWER_NAME.to_owned(), value);
                }
            }
        }
        body
    }

    /// Records the fields of `body` that the message rejects and that can be left out or renamed. Returns whether there are
    /// any.
    fn learn(&self, body: &Value, message: &str) -> bool {
        let unsupported = message.to_lowercase().contains("support");
        let names =
            |name: &str| message.contains(&format!("'{name}'")) || message.contains(&format!("\"{name}\""));
        let refused = REFUSED.iter().filter(|(name, neutral)| match neutral {
            None => body.get(*name).is_some() && message.contains(NEWER_NAME),
            Some(_) => body[*name].as_f64() == *neutral && unsupported && names(name),
        });
        let refused: Vec<&str> = refused.map(|(name, _)| *name).collect();
        let learned = !refused.is_empty();
        self.refused.lock().unwrap_or_else(|e| e.into_inner()).extend(refused);
        learned
    }

    /// Posts the requests 0 to `count`, at most `concurrency` at a time, and passes each answer to `done` in this
    /// thread, in order of arrival. `request` builds the path and the body of a request when it is sent.
    ///
    /// If `done` breaks, further requests aren't sent, but pending requests are waited for. If `done` fails or the program
    /// is asked to stop, pending requests aren't waited for, since an answer may take as long as all retries. In case of
    /// a stop, `done` gets [`Failure::Stopped`] for one of the unanswered requests.
    pub fn post_all(
        &self,
        count: usize,
        request: impl Fn(usize) -> (String, Value) + Send + Sync + 'static,
        concurrency: usize,
        mut done: impl FnMut(usize, Result<Value, Failure>) -> anyhow::Result<ControlFlow<()>>,
    ) -> anyhow::Result<()> {
        let work = Arc::new((self.clone(), request, AtomicUsize::new(0), AtomicBool::new(false)));
        let (send, receive) = mpsc::channel();
        for _ in 0..concurrency.max(1).min(count) {
            let (send, work) = (send.clone(), Arc::clone(&work));
            std::thread::spawn(move || {
                let (server, request, next, stop) = &*work;
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count || stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let (path, body) = request(at);
                    if send.send((at, server.post(&path, &body, stop, at as u64))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        let (next, stop) = (&work.2, &work.3);
        let mut answered = vec![false; count];
        loop {
            if interrupt::requested() {
                stop.store(true, Ordering::Relaxed);
                return match answered.iter().position(|a| !a) {
                    Some(at) => done(at, Err(Failure::Stopped)).map(drop),
                    None => Ok(()),
                };
            }
            let (at, answer) = match receive.recv_timeout(Duration::from_millis(100)) {
                Ok(answer) => answer,
                Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
                Err(mpsc::RecvTimeoutError::Timeout) => continue,
            };
            answered[at] = true;
            match done(at, answer) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => next.store(count, Ordering::Relaxed),
                Err(error) => {
                    stop.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
    }

    /// Sends a request until it is answered or rejected, or until all retries have failed.
    fn attempts(
        &self,
        url: &str,
        body: Option<&Value>,
        stop: &AtomicBool,
        salt: u64,
        retry: RetryPolicy,
    ) -> Result<Value, Failure> {
        let mut attempt = 0;
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(Failure::Stopped);
            }
            let (last, answered, wait) = match self.attempt(url, body, retry.timeout) {
                Ok(answer) => return Ok(answer),
                Err(Unanswered::Refused(status, message)) => {
                    return Err(Failure::Refused {
                        url: url.to_owned(),
                        status,
                        message: self.shown(&message),
                    });
                }
                Err(Unanswered::Lost(error)) => (self.shown(&error), false, None),
                Err(Unanswered::Fault(error, wait)) => (self.shown(&error), true, wait),
            };
            self.faults.fetch_add(1, Ordering::Relaxed);
            if attempt == retry.retries {
                return Err(Failure::Exhausted {
                    url: url.to_owned(),
                    attempts: attempt + 1,
                    last,
                    answered,
                });
            }
            tracing::debug!("{url}: {last} (attempt {})", attempt + 1);
            let wait = wait.unwrap_or_else(|| {
                let wait = retry.first_wait.saturating_mul(1 << attempt.min(20)).min(retry.longest_wait);
                wait.mul_f64(0.5 + Key::new(salt).uniform(u64::from(attempt)))
            });
            sleep(wait.min(retry.longest_wait), stop);
            attempt += 1;
        }
    }
}

/// Returns bad input unless `url` is a server's address without a password, since addresses are printed and stored.
/// `name` is the setting in the message.
pub fn check_address(name: &str, url: &str) -> anyhow::Result<()> {
    let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let host = host.map(|h| h.trim_end_matches('/'));
    let authority = host.and_then(|h| h.split('/').next()).unwrap_or(url);
    if authority.contains('@') {
        bad_input!(
            "{name}: the address contains a user name or password and would be printed; remove it, and put \"Basic \" and user:password in base64 into the key's environment variable"
        );
    }
    if host.is_none_or(|h| h.is_empty() || h.contains(|c: char| c.is_whitespace() || c.is_control())) {
        bad_input!("{name}: expected an address like http://localhost:8000, found {url:?}");
    }
    Ok(())
}

/// Waits in short intervals, so that a stop takes effect soon.
fn sleep(wait: Duration, stop: &AtomicBool) {
    let end = Instant::now() + wait;
    while !stop.load(Ordering::Relaxed) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::exit_code;
    use serde_json::json;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    fn retry() -> RetryPolicy {
        RetryPolicy {
            timeout: Duration::from_millis(300),
            retries: 3,
            first_wait: Duration::from_millis(1),
            longest_wait: Duration::from_millis(20),
        }
    }

    /// Serves these raw answers, one per connection, and then closes the listener.
    fn scripted(answers: Vec<String>) -> (String, std::thread::JoinHandle<usize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let thread = std::thread::spawn(move || {
            let mut served = 0;
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut buffer = [0; 65536];
                let mut seen = 0;
                // Reads the headers, and then the body, whose length the headers give.
                loop {
                    let got = stream.read(&mut buffer[seen..]).unwrap();
                    seen += got;
                    let text = String::from_utf8_lossy(&buffer[..seen]).to_lowercase();
                    let Some(end) = text.find("\r\n\r\n") else { continue };
                    let length = text
                        .lines()
                        .find_map(|l| l.strip_prefix("content-length: ").and_then(|v| v.trim().parse().ok()))
                        .unwrap_or(0usize);
                    if seen >= end + 4 + length || got == 0 {
                        break;
                    }
                }
                served += 1;
                // The client may already have closed the connection.
                let _ = stream.write_all(answer.as_bytes());
            }
            served
        });
        (url, thread)
    }

    /// Returns a raw HTTP answer.
    fn http(status: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
    }

    fn good() -> String {
        http("200 OK", "{\"x\": 7}")
    }

    /// Returns an address without a listener: a port that was just released.
    fn nobody() -> String {
        format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap())
    }

    fn post(server: &Server, path: &str, body: &Value) -> Result<Value, Failure> {
        server.post(path, body, &AtomicBool::new(false), 1)
    }

    #[test]
    fn fields_that_a_model_refuses_are_left_out_or_go_by_their_newer_name() {
        let refusal = |message: &str| http("400 No", &json!({"error": {"message": message}}).to_string());
        let newer = refusal(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        );
        let top_p = refusal("Unsupported parameter: 'top_p' is not supported with this model.");
        let heat = refusal(
            "Unsupported value: 'temperature' does not support 0.5 with this model. Only the default (1) value is supported.",
        );
        let body = json!({"max_tokens": 9, "top_p": 1.0, "temperature": 0.5, "messages": []});
        let (url, thread) = scripted(vec![newer, top_p, good(), good(), heat]);
        let server = Server::new(&url, None, retry()).unwrap();
        assert_eq!(post(&server, "x", &body), Ok(json!({"x": 7})));
        assert_eq!(
            server.accepted(&body),
            json!({"max_completion_tokens": 9, "temperature": 0.5, "messages": []})
        );
        assert_eq!(post(&server, "x", &body), Ok(json!({"x": 7})), "a later request needs no refusal");
        // A field whose value changes the answer is never left out.
        let failure = post(&server, "x", &body).unwrap_err().to_string();
        assert!(failure.contains("answered 400") && failure.contains("does not support 0.5"), "{failure}");
        assert_eq!((thread.join().unwrap(), server.faults()), (5, 0));
    }

    #[test]
    fn redirects_are_refused_and_nobody_else_is_asked() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        other.set_nonblocking(true).unwrap();
        let to = format!("http://{}/v1/completions", other.local_addr().unwrap());
        for status in [301, 302, 303, 307, 308] {
            let (url, thread) = scripted(vec![http(&format!("{status} Elsewhere\r\nlocation: {to}"), "")]);
            let server = Server::new(&url, None, retry()).unwrap();
            let failure = post(&server, "completions", &json!({"prompt": "a secret"})).unwrap_err();
            let Failure::Refused { status: found, message, .. } = &failure else { panic!("{failure}") };
            assert!(*found == status && message.contains(&to), "{failure}");
            assert_eq!(thread.join().unwrap(), 1);
        }
        assert!(other.accept().is_err(), "the other address was asked");
    }

    #[test]
    fn what_a_server_says_is_shown_without_the_key_and_without_control_characters() {
        let said = "{\"message\":\"\\u001b]0;title\\u0007\\u009b2J got s3cret key\"}";
        let (url, thread) = scripted(vec![http("400 No", said)]);
        let mut server = Server::new(&url, None, retry()).unwrap();
        server.key = Some("s3cret".into());
        let failure = post(&server, "x", &Value::Null).unwrap_err().to_string();
        assert!(failure.contains("got [key] key") && !failure.contains("s3cret"), "{failure:?}");
        assert!(!failure.contains(char::is_control), "{failure:?}");
        assert_eq!(thread.join().unwrap(), 1, "a refusal is not tried again");
    }

    #[test]
    fn an_answer_longer_than_the_request_explains_is_a_fault_that_says_so() {
        let (url, thread) =
            scripted(vec![http("200 OK", &format!("{{\"x\": \"{}\"}}", "y".repeat(2 << 20)))]);
        let server = Server::new(&url, None, RetryPolicy { retries: 0, ..retry() }).unwrap();
        let failure = post(&server, "x", &json!({"prompt": "x", "max_tokens": 4})).unwrap_err().to_string();
        assert!(failure.contains("more than the request can produce"), "{failure}");
        let _ = thread.join();
    }

    #[test]
    fn wrong_addresses_are_bad_input_and_a_password_is_not_repeated() {
        for url in ["localhost:8000", "http://", "http://me:hunter2@x"] {
            let error = Server::new(url, None, retry()).unwrap_err();
            assert_eq!(exit_code(&error), 2, "{error:#}");
            assert!(!format!("{error:#}").contains("hunter2"), "{error:#}");
        }
    }

    #[test]
    fn a_server_that_fails_over_its_list_of_models_is_reached_all_the_same() {
        let bad = || vec![http("500 Oops", "{}"); 4];
        let (url, thread) = scripted(bad());
        let server = Server::new(&url, None, retry()).unwrap();
        assert!(server.reach().unwrap().is_empty());
        assert_eq!((thread.join().unwrap(), server.faults()), (4, 4));
        let (url, thread) = scripted(bad());
        assert_eq!(exit_code(&Server::new(&url, None, retry()).unwrap().models().unwrap_err()), 2);
        thread.join().unwrap();
        let nobody = nobody();
        let server = Server::new(&nobody, None, retry()).unwrap();
        let failure = post(&server, "x", &Value::Null).unwrap_err();
        assert!(matches!(failure, Failure::Exhausted { attempts: 4, .. }), "{failure}");
        for error in [server.models().unwrap_err(), server.reach().unwrap_err()] {
            assert_eq!(exit_code(&error), 2);
            assert!(error.to_string().contains(&nobody), "{error:#}");
        }
    }

    #[test]
    fn a_stop_ends_the_waiting() {
        let server = Server::new(&nobody(), None, retry()).unwrap();
        assert_eq!(server.post("x", &Value::Null, &AtomicBool::new(true), 1), Err(Failure::Stopped));
    }
}
