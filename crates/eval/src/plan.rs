//! What an evaluation needs: problems, number of samples, and sampling settings.

use super::from_server::Api;
use super::generations::Generations;
use crate::dataset::Problem;
use crate::dataset::presets::Preset;
use crate::io::server::sampling::{RequestSampling, ServerApi};
use crate::kind::TaskKind;
use crate::problems::ProblemSet;
use serde_json::{Map, Value, json};

/// An evaluation.
pub struct Plan {
    /// The problems and their graders.
    pub parts: Vec<ProblemSet>,
    /// Samples per problem.
    pub n: u64,
    /// Requested values of k, in order; empty: the defaults.
    pub ks: Vec<u64>,
    /// Sampling settings.
    pub sampling: RequestSampling,
    /// Texts that end a response.
    pub stop: Vec<String>,
    /// Seed of the draws.
    pub seed: Option<u64>,
    /// Number format of the engine that samples, if it isn't f32.
    pub rounding: Option<String>,
}

/// The source of an evaluation's samples, as recorded in its folder.
#[derive(Debug, Clone, Copy)]
pub enum Origin {
    /// The policy of a run during training.
    Training,
    /// A checkpoint folder.
    Checkpoint,
    /// A server.
    Server(Api, Option<ServerApi>),
    /// A file.
    Samples,
}

impl Plan {
    /// Each problem with its prompt settings.
    pub fn problems(&self) -> Vec<(&Problem, &Preset)> {
        self.parts.iter().flat_map(|part| part.problems.iter().map(move |p| (p, &part.prompt))).collect()
    }

    /// Number of samples of all problems.
    pub fn samples(&self) -> u64 {
        self.n * self.parts.iter().map(|part| part.problems.len() as u64).sum::<u64>()
    }

    /// Number of samples that the store lacks.
    pub fn missing(&self, store: &Generations) -> u64 {
        let of_problem = |p: &Problem| store.missing(&p.id, self.n).len() as u64;
        self.parts.iter().flat_map(|part| &part.problems).map(of_problem).sum()
    }

    /// The names of the parts.
    pub fn title(&self) -> String {
        self.parts.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// The sampling settings that determine the samples, as given to the source.
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

    /// The settings that all samples of a folder share.
    pub fn identity(&self, origin: Origin, model: &str) -> Value {
        let source = match origin {
            Origin::Training => "training",
            Origin::Checkpoint => "checkpoint",
            Origin::Server(..) => "server",
            Origin::Samples => "samples",
        };
        let mut identity = json!({"format": 2, "source": source, "model": model});
        if matches!(origin, Origin::Samples) {
            // It isn't known how these samples were made.
            return identity;
        }
        identity["prompt"] = match self.parts.as_slice() {
            [maze] if maze.kind() == TaskKind::Maze => json!({"preset": "maze"}),
            // The preset depends on the task, so only overrides are part of the folder's identity.
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
        // Its answers are part of the samples.
        for part in self.parts.iter().filter(|part| part.grader.environment().is_some()) {
            identity["environment"][&part.name] = json!(part.grader.identity());
        }
        if let Origin::Server(api, _) = origin {
            identity["api"] = json!(api.to_string());
        }
        identity
    }
}
