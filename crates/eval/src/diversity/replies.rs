//! Requests replies from a server, and caches them in the evaluation folder.

use crate::failure::Stopped;
use crate::io::harmless::shortened;
use crate::io::lines::{self, JsonLines};
use crate::io::server::{Failure, Server, sampling};
use crate::kind::short_hash;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::PathBuf;

/// A server's reply as stored in the folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Reply {
    model: String,
    problem: String,
    /// Indices of the samples: one for an embedding, eight for a judgement.
    samples: Vec<u64>,
    #[serde(default)]
    asked: String,
    /// Sampling settings of the judge. The map is empty for embeddings.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    sampling: Map<String, Value>,
    value: Value,
}

/// Cached replies of one folder. New replies are appended as they arrive.
pub(super) struct Cache {
    path: PathBuf,
    /// The file, which is opened when the first new reply arrives.
    log: Option<JsonLines>,
    /// For each model, problem and samples, the hash of the request and the newest reply.
    replies: HashMap<(String, String, Vec<u64>), (String, Value)>,
}

impl Cache {
    pub(super) fn open(path: PathBuf) -> anyhow::Result<Self> {
        let mut replies = HashMap::new();
        // A reply in an incomplete last line is requested again.
        lines::each(&path, |r: Reply| {
            replies.insert((r.model, r.problem, r.samples), (r.asked, r.value));
            Ok(())
        })?;
        Ok(Self { path, log: None, replies })
    }

    /// Returns the newest reply about these samples of a problem.
    pub(super) fn value(&self, model: &str, problem: &str, samples: Vec<u64>) -> Option<&Value> {
        Some(&self.replies.get(&(model.to_owned(), problem.to_owned(), samples))?.1)
    }

    fn put(&mut self, reply: Reply) -> anyhow::Result<()> {
        let mut log = self.log.take().map_or_else(|| JsonLines::append(&self.path), Ok)?;
        log.push(&reply)?;
        self.log = Some(log);
        self.replies.insert((reply.model, reply.problem, reply.samples), (reply.asked, reply.value));
        Ok(())
    }
}

/// A request about samples of a problem.
pub(super) struct Question {
    pub(super) problem: String,
    pub(super) samples: Vec<u64>,
    pub(super) sampling: Map<String, Value>,
    pub(super) body: Value,
}

impl Question {
    fn hash(&self) -> String {
        short_hash(&self.body.to_string())
    }
}

/// Requests the replies that the cache lacks. `read` extracts the value from an answer. If `read` returns `None`, the
/// request is repeated up to three times.
pub(super) fn ask(
    server: &Server,
    path: &str,
    model: &str,
    questions: Vec<Question>,
    concurrency: usize,
    cache: &mut Cache,
    read: impl Fn(&Value) -> Option<Value>,
) -> anyhow::Result<()> {
    let is_cached = |cache: &Cache, q: &Question| {
        let reply = cache.replies.get(&(model.to_owned(), q.problem.clone(), q.samples.clone()));
        reply.is_some_and(|(hash, _)| *hash == q.hash())
    };
    let mut open: Vec<Question> = questions.into_iter().filter(|q| !is_cached(cache, q)).collect();
    for round in 0..4 {
        let requests: Vec<(String, Value)> = open.iter().map(|q| (path.to_owned(), q.body.clone())).collect();
        let mut useless = None;
        server.post_all(
            open.len(),
            move |at| requests[at].clone(),
            concurrency,
            |at, answer| {
                let answer = answer.map_err(given_up)?;
                match read(&answer) {
                    Some(value) => cache.put(Reply {
                        model: model.to_owned(),
                        problem: open[at].problem.clone(),
                        samples: open[at].samples.clone(),
                        asked: open[at].hash(),
                        sampling: open[at].sampling.clone(),
                        value,
                    })?,
                    None => useless = Some(server.shown(&shortened(&answer.to_string(), 300))),
                }
                Ok(ControlFlow::Continue(()))
            },
        )?;
        open.retain(|q| !is_cached(cache, q));
        match useless {
            Some(text) if round == 3 => {
                anyhow::bail!(
                    "after 3 attempts, {} replies of {model} can't be used, such as {text}; check that this model suits the measure",
                    open.len()
                )
            }
            _ if open.is_empty() => return Ok(()),
            _ => {}
        }
    }
    Ok(())
}

/// Returns the error for a request that wasn't answered, with advice.
fn given_up(failure: Failure) -> anyhow::Error {
    match failure {
        Failure::Stopped => Stopped(
            "stopped on request; the replies so far are stored, and the same command continues".to_owned(),
        )
        .into(),
        Failure::Refused { ref message, .. } => {
            let advice = sampling::advice(message);
            let error = anyhow::Error::new(failure);
            match advice {
                Some(advice) => error.context(format!("the judge's server rejects the request; {advice}")),
                None => error,
            }
        }
        other => anyhow::Error::new(other),
    }
}
