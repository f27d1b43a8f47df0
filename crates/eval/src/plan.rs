//! Plan of an evaluation: problems, number of samples, and sampling settings.

use super::from_server::Api;
use super::generations::Generations;
use crate::dataset::Problem;
use crate::dataset::presets::Preset;
use crate::io::server::sampling::{RequestSampling, ServerApi};
use crate::kind::TaskKind;
use crate::problems::ProblemSet;
use serde_json::{Map, Value, json};

/// The problems of an evaluation, and the settings with which samples of them are drawn.
pub struct Plan {
    /// The problems with their graders.
    pub parts: Vec<ProblemSet>,
    /// Number of samples per problem.
    pub n: u64,
    /// Requested values of k, in order. If empty, the default values are used.
    pub ks: Vec<u64>,
    /// Sampling settings.
    pub sampling: RequestSampling,
    /// Strings that end a response.
    pub stop: Vec<String>,
    /// Seed of the samples.
    pub seed: Option<u64>,
    /// Number format of the engine that samples, if it isn't f32.
    pub rounding: Option<String>,
}

/// Source of an evaluation's samples, which the evaluation folder records.
#[derive(Debug, Clone, Copy)]
pub enum Origin {
    /// The policy of a run during training.
    Training,
    /// A model read from a checkpoint folder.
    Checkpoint,
    /// A server, with its interface and software.
    Server(Api, Option<ServerApi>),
    /// A file of samples.
    Samples,
}

impl Plan {
    /// Returns each problem with its prompt settings.
    pub fn problems(&self) -> Vec<(&Problem, &Preset)> {
        self.parts.iter().flat_map(|part| part.problems.iter().map(move |p| (p, &part.prompt))).collect()
    }

    /// Returns the number of samples of all problems.
    pub fn samples(&self) -> u64 {
        self.n * self.parts.iter().map(|part| part.problems.len() as u64).sum::<u64>()
    }

    /// Returns the number of samples that are missing from the store.
    pub fn missing(&self, store: &Generations) -> u64 {
        let missing = |p: &Problem| store.missing(&p.id, self.n).len() as u64;
        self.parts.iter().flat_map(|part| &part.problems).map(missing).sum()
    }

    /// Returns the names of the parts, separated by commas.
    pub fn title(&self) -> String {
        self.parts.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Returns the settings that determine the samples, in the form that the source receives.
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

    /// Lists the settings with which the engine samples: "max_tokens 20, min_p 0.0, ...".
    pub fn sampling_in_words(&self) -> String {
        let fields = self.sampling_fields(Origin::Training).into_iter();
        fields.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
    }

    /// Returns the settings that all samples of an evaluation folder share.
    pub fn identity(&self, origin: Origin, model: &str) -> Value {
        let source = match origin {
            Origin::Training => "training",
            Origin::Checkpoint => "checkpoint",
            Origin::Server(..) => "server",
            Origin::Samples => "samples",
        };
        let mut identity = json!({"format": 2, "source": source, "model": model});
        if matches!(origin, Origin::Samples) {
            // The settings of samples from a file are unknown.
            return identity;
        }
        identity["prompt"] = match self.parts.as_slice() {
            [maze] if maze.kind() == TaskKind::Maze => json!({"preset": "maze"}),
            // The preset depends on the task, so only overrides are part of the identity.
            [only] => json!(only.prompting),
            several => {
                let parts = several.iter().map(|p| (p.name.clone(), json!(p.prompting)));
                json!({"parts": parts.collect::<Map<_, _>>()})
            }
        };
        let mut sampling = self.sampling_fields(origin);
        sampling.insert("seed".into(), json!(self.seed));
        identity["sampling"] = sampling.into();
        if let Some(rounding) = &self.rounding {
            identity["numbers"] = json!(rounding);
        }
        // The environment's messages are part of the samples, so its identity counts too.
        for part in self.parts.iter().filter(|part| part.grader.environment().is_some()) {
            identity["environment"][&part.name] = json!(part.grader.identity());
        }
        if let Origin::Server(api, _) = origin {
            identity["api"] = json!(api.to_string());
        }
        identity
    }
}
