//! What an evaluation asks for: problems, how many samples of each, and how they are drawn.

use super::from_server::Api;
use crate::config::{Config, EvalConfig, ServerApi};
use crate::io::server::sampling::RequestSampling;
use crate::problem::Task;
use crate::problem::dataset::presets::Preset;
use crate::problem::held_out::{Part, Problem, keyed};
use crate::problem::kind::TaskKind;
use fgrpo_nn::Sampling;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// An evaluation.
pub struct Plan {
    /// What is asked, and who grades.
    pub parts: Vec<Part>,
    /// Samples per problem.
    pub n: u64,
    /// Values of k asked for, in order; empty: the usual ones.
    pub ks: Vec<u64>,
    /// How tokens are drawn.
    pub sampling: RequestSampling,
    /// Texts that end a response.
    pub stop: Vec<String>,
    /// Seed of the draws.
    pub seed: Option<u64>,
}

/// Where an evaluation's samples come from, as its folder says.
#[derive(Debug, Clone, Copy)]
pub enum Origin {
    /// The policy of a run while it trains.
    Training,
    /// A checkpoint folder.
    Checkpoint,
    /// A server.
    Server(Api, Option<ServerApi>),
    /// A file.
    Samples,
}

impl Plan {
    /// What one of a run's evaluations asks.
    ///
    /// # Errors
    /// Same as [`Task::held_out`].
    pub fn of_run(config: &Config, eval: &EvalConfig, task: &dyn Task) -> anyhow::Result<Self> {
        let mut parts = task.held_out()?;
        keyed(&mut parts, eval.problems);
        // pass@1 chooses the best policy, whatever else is asked for.
        let ks: BTreeSet<u64> = eval.k.iter().map(|&k| k as u64).chain([1]).collect();
        let sampling = RequestSampling {
            temperature: f64::from(eval.temperature),
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            max_tokens: config.rollout.max_new_tokens.unwrap_or(task.max_new_tokens()),
        };
        Ok(Self {
            parts,
            n: eval.samples as u64,
            ks: ks.into_iter().collect(),
            sampling,
            stop: config.task.stop().to_vec(),
            seed: Some(config.seed),
        })
    }

    /// Every problem with the prompt it is put with.
    pub fn posed(&self) -> Vec<(&Problem, &Preset)> {
        self.parts.iter().flat_map(|part| part.problems.iter().map(move |p| (p, &part.prompt))).collect()
    }

    /// The names of the parts.
    pub fn title(&self) -> String {
        self.parts.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Sampling for the embedded engine.
    pub fn engine_sampling(&self) -> Sampling {
        Sampling {
            temperature: self.sampling.temperature as f32,
            top_p: self.sampling.top_p as f32,
            top_k: self.sampling.top_k,
            min_p: self.sampling.min_p as f32,
            max_new_tokens: self.sampling.max_tokens,
            ..Sampling::default()
        }
    }

    /// Sampling as the source is told it, which decides the samples.
    pub fn sampling_fields(&self, origin: Origin) -> Map<String, Value> {
        let mut fields = match origin {
            Origin::Server(_, kind) => self.sampling.fields(kind),
            _ => self.sampling.own_fields(),
        };
        if !self.stop.is_empty() {
            fields.insert("stop".into(), json!(self.stop));
        }
        fields
    }

    /// What all samples of a folder have in common.
    pub fn identity(&self, origin: Origin, model: &str) -> Value {
        let source = match origin {
            Origin::Training => "training",
            Origin::Checkpoint => "checkpoint",
            Origin::Server(..) => "server",
            Origin::Samples => "samples",
        };
        let mut identity = json!({"format": 2, "source": source, "model": model});
        if matches!(origin, Origin::Samples) {
            // How they were made is not known here.
            return identity;
        }
        identity["prompt"] = match self.parts.as_slice() {
            [Part { kind: TaskKind::Maze, .. }] => json!({"preset": "maze"}),
            // The preset decides by task; only what replaces it is the folder's own.
            [only] => json!(only.prompting),
            several => {
                let parts = several.iter().map(|p| (p.name.clone(), json!(p.prompting)));
                json!({"parts": parts.collect::<Map<_, _>>()})
            }
        };
        let mut sampling = self.sampling_fields(origin);
        sampling.insert("seed".into(), json!(self.seed));
        identity["sampling"] = sampling.into();
        if let Origin::Server(api, _) = origin {
            identity["api"] = json!(api.to_string());
        }
        identity
    }
}
