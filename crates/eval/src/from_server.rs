//! Draws samples from an OpenAI-compatible server.
//!
//! Requests are sent in rounds. Each round requests all samples that are still missing, including those that an answer
//! of the previous round lacked.

mod choice;

use super::generations::{Generation, Generations};
use crate::events::Events;
use crate::io::interrupt;
use crate::io::server::{Failure, Server};
pub use choice::End;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow::{Break, Continue};
use std::sync::Arc;
use std::time::Instant;

named! {
    /// The server interface to use.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Api {
        Chat = "chat": "/v1/chat/completions: the server applies the chat template",
        Completions = "completions": "/v1/completions: the prompt is sent as text",
    }
}

/// A problem in the form in which it is sent.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Hash of the problem.
    pub problem: String,
    /// `messages` for the chat interface, or the prompt as a string.
    pub content: Value,
    /// Further fields of the request, such as `chat_template_kwargs`.
    pub extra: Map<String, Value>,
}

/// Options of the requests.
#[derive(Debug, Clone)]
pub struct RequestOptions {
    /// Interface of the server.
    pub api: Api,
    /// Name of the served model.
    pub model: String,
    /// Sampling fields of a request, such as `temperature`, `top_p` and `max_tokens`.
    pub sampling: Map<String, Value>,
    /// Seed from which each sample's seed is derived. If `None`, requests don't contain a seed.
    pub seed: Option<u64>,
    /// Maximum number of concurrent requests.
    pub concurrency: usize,
    /// Maximum number of samples per request. Servers that don't support `n` are detected.
    pub per_request: u64,
    /// Name of the model in the answers of earlier runs.
    pub served: Option<String>,
}

/// Result of sampling.
#[derive(Debug, Default)]
pub struct Received {
    /// Number of samples stored.
    pub stored: u64,
    /// Number of samples with an empty text.
    pub empty: u64,
    /// Problems that the server rejected, each with the error message.
    pub refused: Vec<(String, String)>,
    /// Error of the last request that failed after all retries.
    pub exhausted: Option<String>,
    /// Name of a different model that answered after the first one. Its answers aren't stored.
    pub other_model: Option<String>,
    /// Whether the program was asked to stop.
    pub stopped: bool,
}

/// A request for consecutive samples of one problem.
#[derive(Clone, Copy)]
struct Job {
    ask: usize,
    first: u64,
    count: u64,
}

/// Number of unusable answers after which a request counts as failed.
const TRIES: u32 = 6;

/// Splits `missing` into ranges of consecutive indices, each as its first index and its length.
pub fn runs(missing: &[u64]) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for &i in missing {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == i => *count += 1,
            _ => runs.push((i, 1)),
        }
    }
    runs
}

/// Generates the missing samples, up to `n` for each problem, and appends them as they arrive. If no earlier run has
/// recorded the model's name, `note_served` is called with the name in the first answer.
///
/// If the program is asked to stop, this doesn't wait for pending requests, since an answer may take as long as the
/// timeout.
///
/// Returns an error if the store can't be written, and the errors of `note_served`.
pub fn generate(
    server: &Server,
    asks: Vec<Ask>,
    n: u64,
    options: RequestOptions,
    store: &mut Generations,
    events: &mut dyn Events,
    mut note_served: impl FnMut(&str) -> anyhow::Result<()>,
) -> anyhow::Result<Received> {
    let mut received = Received::default();
    let missing: u64 = asks.iter().map(|a| store.missing(&a.problem, n).len() as u64).sum();
    if missing == 0 {
        return Ok(received);
    }
    let sampled = Sampled::new(missing, events);
    let work = Arc::new((asks, options));
    let (asks, options) = &*work;
    let mut served = options.served.clone();
    let mut per_request = options.per_request.max(1);
    // Whether the server has answered any request, and whether it has answered one for several samples.
    let (mut answered, mut takes_several) = (false, false);
    // Number of requests that failed since the last answer.
    let mut failures = 0;
    let mut useless: HashMap<(usize, u64), u32> = HashMap::new();
    // Not requested again in this run: rejected problems, and the samples of failed requests.
    let mut refused: HashSet<usize> = HashSet::new();
    let mut failed: HashSet<(usize, u64)> = HashSet::new();
    let mut over = false;
    while !over {
        let mut jobs = Vec::new();
        for (ask, a) in asks.iter().enumerate().filter(|(ask, _)| !refused.contains(ask)) {
            let mut missing = store.missing(&a.problem, n);
            missing.retain(|&sample| !failed.contains(&(ask, sample)));
            for (first, count) in runs(&missing) {
                let starts = (first..first + count).step_by(per_request as usize);
                jobs.extend(starts.map(|at| Job {
                    ask,
                    first: at,
                    count: per_request.min(first + count - at),
                }));
            }
        }
        if jobs.is_empty() {
            break;
        }
        let (make, jobs) = (Arc::clone(&work), Arc::new(jobs));
        let list = Arc::clone(&jobs);
        let request = move |at: usize| body(&make.0[list[at].ask], &make.1, list[at]);
        let ended = server.post_all(jobs.len(), request, options.concurrency, |at, answer| {
            let job = jobs[at];
            let failure = match answer {
                Ok(answer) => match samples(&asks[job.ask], options.api, job, &answer) {
                    Ok(samples) => {
                        // The name may differ from the requested one, but it must not change.
                        if let Some(name) = answer["model"].as_str().filter(|m| !m.is_empty()) {
                            if served.as_deref().is_some_and(|first| first != name) {
                                received.other_model = Some(name.to_owned());
                                anyhow::bail!("another model answers");
                            }
                            if served.is_none() {
                                served = Some(name.to_owned());
                                note_served(name)?;
                            }
                        }
                        (answered, failures) = (true, 0);
                        takes_several |= job.count > 1;
                        if (samples.len() as u64) < job.count {
                            per_request = per_request.min((samples.len() as u64).max(1));
                        }
                        received.empty += samples.iter().filter(|s| s.text.trim().is_empty()).count() as u64;
                        received.stored += store.append(&samples)? as u64;
                        sampled.show(received.stored, server.faults(), events);
                        return Ok(Continue(()));
                    }
                    Err(last) => {
                        let tries = useless.entry((job.ask, job.first)).or_default();
                        *tries += 1;
                        if *tries < TRIES {
                            return Ok(Continue(()));
                        }
                        let url = format!("{}/{}", server.base(), path(options.api));
                        let last = server.shown(&last).chars().take(300).collect();
                        Failure::Exhausted { url, attempts: TRIES, last, answered: true }
                    }
                },
                Err(failure) => failure,
            };
            match failure {
                Failure::Stopped => {
                    (received.stopped, over) = (true, true);
                    Ok(Continue(()))
                }
                // The server may have rejected the request because of `n`.
                Failure::Refused { .. } if job.count > 1 && !takes_several => {
                    per_request = 1;
                    Ok(Break(()))
                }
                Failure::Refused { .. } => {
                    if refused.insert(job.ask) {
                        received.refused.push((asks[job.ask].problem.clone(), failure.to_string()));
                    }
                    // If the server has never answered, the request itself is wrong, not this problem.
                    over |= !answered;
                    Ok(if over { Break(()) } else { Continue(()) })
                }
                Failure::Exhausted { .. } => {
                    failed.extend((job.first..job.first + job.count).map(|sample| (job.ask, sample)));
                    received.exhausted = Some(failure.to_string());
                    // After as many failures in a row as there are threads, the next run draws the remaining samples.
                    failures += 1;
                    over |= failures >= options.concurrency;
                    Ok(if over { Break(()) } else { Continue(()) })
                }
            }
        });
        if received.other_model.is_some() {
            break;
        }
        ended?;
        if interrupt::requested() {
            (received.stopped, over) = (true, true);
        }
    }
    store.sync()?;
    sampled.end(received.stored, server.faults(), events);
    Ok(received)
}

/// Returns the path of requests relative to the server's base address.
fn path(api: Api) -> &'static str {
    match api {
        Api::Chat => "chat/completions",
        Api::Completions => "completions",
    }
}

/// Returns the path and body of a request.
fn body(ask: &Ask, options: &RequestOptions, job: Job) -> (String, Value) {
    let mut body = options.sampling.clone();
    body.insert("model".into(), options.model.clone().into());
    body.extend(ask.extra.clone());
    let prompt = match options.api {
        Api::Chat => "messages",
        Api::Completions => "prompt",
    };
    body.insert(prompt.into(), ask.content.clone());
    if job.count > 1 {
        body.insert("n".into(), job.count.into());
    }
    if let Some(seed) = options.seed {
        body.insert("seed".into(), request_seed(seed, &ask.problem, job.first).into());
    }
    (path(options.api).to_owned(), Value::Object(body))
}

/// Extracts the samples in an answer, or returns the reason why the answer can't be used.
fn samples(ask: &Ask, api: Api, job: Job, answer: &Value) -> Result<Vec<Generation>, String> {
    let mut choices: Vec<&Value> = answer["choices"].as_array().into_iter().flatten().collect();
    if choices.is_empty() {
        return Err("the answer has no choices".to_owned());
    }
    // Servers may list the choices in any order.
    choices.sort_by_key(|choice| choice["index"].as_u64());
    choices.truncate(job.count as usize);
    // Servers report only the total number of tokens of all choices, so each gets an equal share.
    let (count, total) = (choices.len() as u64, answer["usage"]["completion_tokens"].as_u64());
    let generation = |(sample, choice): (u64, &Value)| {
        let end = End::of(choice)?;
        let (text, reasoning) = match api {
            Api::Completions => (choice["text"].as_str(), None),
            Api::Chat => spoken(&choice["message"], end),
        };
        Ok(Generation {
            problem: ask.problem.clone(),
            sample: job.first + sample,
            text: text.ok_or_else(|| format!("a choice has no text: {choice}"))?.to_owned(),
            reasoning: reasoning.map(str::to_owned),
            finish: Some(end.name().to_owned()),
            tokens: total.map(|t| (t + sample) / count),
            graded: None,
        })
    };
    (0..).zip(choices).map(generation).collect()
}

/// Returns the text of a chat's message, or `None` if it lacks one, and the reasoning. The text is empty if the message
/// has another field in its place, or if the model reasoned up to the length limit.
fn spoken(message: &Value, end: End) -> (Option<&str>, Option<&str>) {
    let reasoning = ["reasoning_content", "reasoning"].into_iter().find_map(|key| message[key].as_str());
    let text = match message.get("content") {
        Some(Value::Null) => Some(""),
        Some(content) => content.as_str(),
        None => {
            let other = ["tool_calls", "function_call", "refusal"].iter().any(|key| !message[*key].is_null());
            let cut = message.is_object() && matches!(end, End::Length | End::Filtered);
            (other || reasoning.is_some() || cut).then_some("")
        }
    };
    (text, reasoning)
}

/// Computes the seed of a request whose first sample is `first`. The server gives choice j the seed of sample `first + j`.
fn request_seed(seed: u64, problem: &str, first: u64) -> u64 {
    let key = crate::problems::problem_key(seed, problem);
    // The seed is below 2^31, because some servers store seeds in 32 bits.
    (key.bits(0) >> 34) + first
}

/// Progress of sampling, reported while samples arrive.
pub struct Sampled {
    missing: u64,
    start: Instant,
}

impl Sampled {
    /// Begins the stage of drawing `missing` samples.
    pub fn new(missing: u64, events: &mut dyn Events) -> Self {
        events.begin("sample", 0, missing);
        Self { missing, start: Instant::now() }
    }

    /// Reports the samples stored so far and the failures retried.
    pub fn show(&self, stored: u64, faults: u64, events: &mut dyn Events) {
        events.progress(stored, self.rate(stored, faults));
    }

    fn rate(&self, stored: u64, faults: u64) -> String {
        let rate = stored as f64 / self.start.elapsed().as_secs_f64().max(1e-9);
        let retried = if faults == 0 { String::new() } else { format!(", {faults} failures retried") };
        format!("{rate:.1} per second{retried}")
    }

    /// Ends the stage with a message.
    pub fn end(&self, stored: u64, faults: u64, events: &mut dyn Events) {
        events.end();
        events.say(&format!("{stored} of {} missing samples, {}", self.missing, self.rate(stored, faults)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_samples_are_asked_for_in_consecutive_runs() {
        assert_eq!(runs(&[0, 1, 2, 5, 7, 8]), vec![(0, 3), (5, 1), (7, 2)]);
        assert!(runs(&[]).is_empty());
    }

    /// Reads a chat's answer for the samples from 4 on.
    fn read(choices: Value) -> Result<Vec<(u64, String, String)>, String> {
        let ask = Ask { problem: "p".into(), content: Value::Null, extra: Map::new() };
        let answer = serde_json::json!({"choices": choices});
        let samples = samples(&ask, Api::Chat, Job { ask: 0, first: 4, count: 2 }, &answer)?;
        Ok(samples.into_iter().map(|s| (s.sample, s.text, s.finish.unwrap())).collect())
    }

    #[test]
    fn only_whole_generations_are_samples() {
        let one = |finish: &str, message: &str| {
            let message: Value = serde_json::from_str(message).unwrap();
            read(serde_json::json!([{"finish_reason": finish, "message": message}]))
        };
        for (finish, message, text) in [
            ("stop", r#"{"content": "x"}"#, "x"),
            ("eos_token", r#"{"content": ""}"#, ""),
            ("stop", r#"{"content": null}"#, ""),
            ("stop", r#"{"reasoning_content": "x"}"#, ""),
            ("stop", r#"{"refusal": "no"}"#, ""),
            ("tool_calls", r#"{"tool_calls": [{}]}"#, ""),
            ("length", "{}", ""),
        ] {
            let expected = if finish == "eos_token" { "stop" } else { finish };
            assert_eq!(one(finish, message).unwrap(), [(4, text.into(), expected.into())], "{message}");
        }
        for (finish, message) in [
            ("stop", r#"{"role": "assistant"}"#),
            ("stop", r#"{"content": 4}"#),
            ("stop", "null"),
            ("length", "null"),
            ("abort", r#"{"content": "x"}"#),
        ] {
            assert!(one(finish, message).is_err(), "{finish} {message}");
        }
    }

    #[test]
    fn choices_are_the_samples_of_their_indices() {
        let choice = |i: usize| serde_json::json!({"index": i, "finish_reason": "stop", "message": {"content": i.to_string()}});
        let found = read(serde_json::json!([choice(1), choice(0), choice(2)])).unwrap();
        let expected = [(4, "0"), (5, "1")].map(|(sample, text)| (sample, text.into(), "stop".into()));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_sample_has_the_same_seed_whatever_request_brings_it() {
        assert_eq!(request_seed(3, "a", 4) + 5, request_seed(3, "a", 9));
        assert_ne!(request_seed(3, "a", 0), request_seed(3, "b", 0));
        assert_ne!(request_seed(3, "a", 0), request_seed(4, "a", 0));
    }
}
