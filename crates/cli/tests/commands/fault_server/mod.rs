//! An OpenAI-compatible server that fails on purpose. Its successful answers depend only on prompt and seed.
//!
//! The prompt is "What is A plus B?" with lettered options. Whether the answer to seed s is right is a hash of both. Whether a
//! request meets a fault is a hash of its number, so a run has the same faults if its requests come in the same number.

use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The answer of a served policy to the body of a completion request, or `None` if it fails.
pub(crate) type Policy = Arc<dyn Fn(&Value) -> Option<Value> + Send + Sync>;

/// How the server behaves.
#[derive(Clone)]
pub(crate) struct Manners {
    /// Percentage of requests that meet a fault.
    pub(crate) fault_percent: u64,
    /// Largest `n` that is granted. A larger one is refused with 400 if `refuse_n` is set, and otherwise answered with this many.
    pub(crate) most_n: u64,
    pub(crate) refuse_n: bool,
    /// The key that a request must have.
    pub(crate) key: Option<String>,
    /// Every answer is empty.
    pub(crate) silent: bool,
    /// Prompts that contain this string are refused.
    pub(crate) refuse: Option<String>,
    /// Refuses `max_tokens` and `top_p`, as newer models of OpenAI do.
    pub(crate) newer: bool,
    /// Source of the answers, which replaces the adder. Faults stay the same.
    pub(crate) policy: Option<Policy>,
}

impl Default for Manners {
    fn default() -> Self {
        Self {
            fault_percent: 0,
            most_n: u64::MAX,
            refuse_n: false,
            key: None,
            silent: false,
            refuse: None,
            newer: false,
            policy: None,
        }
    }
}

impl Manners {
    /// A server whose answers come from a function.
    pub(crate) fn of(policy: impl Fn(&Value) -> Option<Value> + Send + Sync + 'static) -> Self {
        Self { policy: Some(Arc::new(policy)), ..Self::default() }
    }
}

pub(crate) struct FaultServer {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    pub(crate) requests: Arc<AtomicU64>,
    pub(crate) faults: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

fn hash(text: &str, seed: u64) -> u64 {
    text.bytes().fold(mix(seed.wrapping_add(0x9e37_79b9)), |h, b| mix(h ^ u64::from(b)))
}

/// The completion of a prompt with a seed, and its finish reason.
pub(crate) fn completion(prompt: &str, seed: u64) -> (String, &'static str) {
    let (question, options) = prompt.split_once('?').unwrap_or((prompt, ""));
    let sum: u64 = question.split(|c: char| !c.is_ascii_digit()).filter_map(|w| w.parse::<u64>().ok()).sum();
    let h = hash(question, seed);
    if h.is_multiple_of(97) {
        return (String::new(), "stop");
    }
    // Each problem has a separate success rate; two in nine are never solved.
    let right = (h >> 8) % 8 < (sum % 9).saturating_sub(1);
    let wanted = if right { sum } else { sum + 1 + (h >> 20) % 3 };
    let letter = options
        .lines()
        .find_map(|l| l.split_once(") ").filter(|(_, value)| value.parse() == Ok(wanted)))
        .map_or("?", |(letter, _)| letter);
    let finish = if h.is_multiple_of(31) { "length" } else { "stop" };
    (format!("I add the two (draw {seed}) and get {wanted}.\nSo it is \\boxed{{{letter}}}."), finish)
}

impl FaultServer {
    pub(crate) fn start(manners: Manners) -> Self {
        Self::start_at(manners, 0)
    }

    /// Starts at the port of an earlier server.
    pub(crate) fn start_at(manners: Manners, port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (requests, faults) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let thread = {
            let (stop, requests, faults) = (stop.clone(), requests.clone(), faults.clone());
            std::thread::spawn(move || {
                for stream in listener.incoming() {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    let Ok(stream) = stream else { continue };
                    let (manners, stop) = (manners.clone(), stop.clone());
                    let (requests, faults) = (requests.clone(), faults.clone());
                    std::thread::spawn(move || {
                        let _ = serve(stream, &manners, &requests, &faults, &stop);
                    });
                }
            })
        };
        Self { address, stop, requests, faults, thread: Some(thread) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stops listening and cuts the requests in progress.
    pub(crate) fn stop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for FaultServer {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Request {
    path: String,
    key: Option<String>,
    body: Value,
}

fn read_request(stream: &mut TcpStream) -> std::io::Result<Option<Request>> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 16384];
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break at;
        }
        match stream.read(&mut buffer)? {
            0 => return Ok(None),
            n => bytes.extend_from_slice(&buffer[..n]),
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let field = |name: &str| {
        head.lines().find_map(|l| {
            let (key, value) = l.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    };
    let length: usize = field("content-length").and_then(|v| v.parse().ok()).unwrap_or(0);
    while bytes.len() < end + 4 + length {
        match stream.read(&mut buffer)? {
            0 => return Ok(None),
            n => bytes.extend_from_slice(&buffer[..n]),
        }
    }
    let path = head.split_whitespace().nth(1).unwrap_or_default().to_owned();
    let body = serde_json::from_slice(&bytes[end + 4..end + 4 + length]).unwrap_or(Value::Null);
    Ok(Some(Request { path, key: field("authorization"), body }))
}

fn answer(stream: &mut TcpStream, status: &str, extra: &str, body: &str) -> std::io::Result<()> {
    let text = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n{extra}\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes())
}

/// Sends an error with a message, as OpenAI's server does.
fn refuse(stream: &mut TcpStream, status: &str, message: &str) -> std::io::Result<()> {
    answer(stream, status, "", &json!({"error": {"message": message}}).to_string())
}

fn serve(
    mut stream: TcpStream,
    manners: &Manners,
    requests: &AtomicU64,
    faults: &AtomicU64,
    stop: &AtomicBool,
) -> std::io::Result<()> {
    let Some(request) = read_request(&mut stream)? else { return Ok(()) };
    if let Some(key) = &manners.key
        && request.key.as_deref() != Some(&format!("Bearer {key}"))
    {
        return refuse(&mut stream, "401 Unauthorized", "no key");
    }
    if request.path == "/v1/models" {
        return answer(&mut stream, "200 OK", "", "{\"object\":\"list\",\"data\":[{\"id\":\"adder\"}]}");
    }
    let number = requests.fetch_add(1, Ordering::SeqCst);
    let chat = request.path == "/v1/chat/completions";
    if !chat && request.path != "/v1/completions" {
        return answer(&mut stream, "404 Not Found", "", "{\"detail\":\"no such path\"}");
    }
    let has = |name: &str| request.body.get(name).is_some();
    if manners.newer && (has("max_tokens") || has("top_p")) {
        let message = match has("max_tokens") {
            true => {
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
            }
            false => "Unsupported parameter: 'top_p' is not supported with this model.",
        };
        return refuse(&mut stream, "400 Bad Request", message);
    }
    if let Some(policy) = &manners.policy {
        return match policy(&request.body) {
            Some(good) => respond(&mut stream, manners, faults, stop, number, &good.to_string()),
            None => refuse(&mut stream, "500 Internal Server Error", "no policy"),
        };
    }
    let prompt = if chat {
        let messages = request.body["messages"].as_array().cloned().unwrap_or_default();
        messages.last().and_then(|m| m["content"].as_str()).unwrap_or_default().to_owned()
    } else {
        // The system prompt comes before the question.
        let text = request.body["prompt"].as_str().unwrap_or_default();
        text[text.find("What is").unwrap_or(0)..].to_owned()
    };
    if manners.refuse.as_ref().is_some_and(|r| prompt.contains(r.as_str())) {
        return refuse(&mut stream, "400 Bad Request", "the prompt is too long");
    }
    let n = request.body["n"].as_u64().unwrap_or(1);
    if n > manners.most_n && manners.refuse_n {
        return refuse(&mut stream, "400 Bad Request", "n must be 1");
    }
    let seed = request.body["seed"].as_u64().unwrap_or(number);
    let choices: Vec<Value> = (0..n.min(manners.most_n))
        .map(|j| {
            let (mut text, finish) = completion(&prompt, seed + j);
            if manners.silent {
                text.clear();
            }
            if chat {
                json!({"index": j, "finish_reason": finish, "message": {"role": "assistant", "content": text}})
            } else {
                json!({"index": j, "finish_reason": finish, "text": text})
            }
        })
        .collect();
    let good =
        json!({"model": "adder", "usage": {"completion_tokens": 9 * choices.len()}, "choices": choices})
            .to_string();
    respond(&mut stream, manners, faults, stop, number, &good)
}

/// Sends a successful answer, or the fault of the request's number.
fn respond(
    stream: &mut TcpStream,
    manners: &Manners,
    faults: &AtomicU64,
    stop: &AtomicBool,
    number: u64,
    good: &str,
) -> std::io::Result<()> {
    let h = mix(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    if h % 100 >= manners.fault_percent {
        return answer(stream, "200 OK", "", good);
    }
    faults.fetch_add(1, Ordering::SeqCst);
    match (h >> 32) % 64 {
        // A hang, which the client's timeout ends.
        0 => {
            for _ in 0..40 {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            Ok(())
        }
        1..=12 => answer(stream, "429 Too Many Requests", "retry-after: 0\r\n", "{\"detail\":\"slow down\"}"),
        13..=22 => refuse(stream, "500 Internal Server Error", "oops"),
        23..=30 => answer(stream, "503 Service Unavailable", "", "busy"),
        // The connection is cut before, within and after the head.
        31..=38 => Ok(()),
        39..=46 => {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", good.len());
            stream.write_all(head.as_bytes())?;
            stream.write_all(&good.as_bytes()[..good.len() / 2])
        }
        // A complete HTTP answer with incomplete JSON.
        47..=54 => answer(stream, "200 OK", "", &good[..good.len() - 3]),
        55..=58 => answer(stream, "200 OK", "", "{\"choices\":[]}"),
        _ => refuse(stream, "200 OK", "the engine died"),
    }
}
