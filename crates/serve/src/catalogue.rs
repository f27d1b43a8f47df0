//! The server's base model, sessions, models and samplers, and their ids.

use crate::fields::{Refusal, check};
use fgrpo_nn::LoraConfig;
use fgrpo_train::policy::Bounds;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// LoRA's `alpha`, which the API doesn't set. The update is scaled by 32 / rank.
const ALPHA: f64 = 32.0;

/// Id of a model: `SESSION:train:INDEX`, with the session's id and the model's index in the session.
pub(crate) type ModelId = String;

/// The served models, their names and limits.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    /// Name of the base model.
    pub(crate) name: String,
    /// Architecture of the base model, as in `config.json`.
    pub(crate) architecture: String,
    /// Whether all weights are trained, instead of LoRA's factors.
    pub(crate) full: bool,
    pub(crate) bounds: Bounds,
    /// Name and bounds of a second model, which is only used for sampling and scoring.
    pub(crate) teacher: Option<(String, Bounds)>,
    pub(crate) folder: PathBuf,
    /// Maximum number of waiting requests.
    pub(crate) most_waiting: usize,
    /// Time at which the server was continued, in nanoseconds since 1970, or 0 if it is new.
    pub(crate) resumed: u64,
}

/// The sessions, models and samplers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Catalogue {
    /// Number of requests so far.
    pub(crate) requests: u64,
    /// Sessions so far, with ids from 1.
    pub(crate) sessions: Vec<Session>,
    /// The models that clients have created.
    pub(crate) models: BTreeMap<ModelId, ModelEntry>,
    pub(crate) samplers: BTreeMap<String, Sampler>,
}

/// Description of a session by its client.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Session {
    pub(crate) display_name: Option<String>,
    pub(crate) user_metadata: Option<Value>,
}

/// A model that a client has created.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ModelEntry {
    /// LoRA settings, or `None` if all weights are trained.
    pub(crate) lora: Option<LoraRequest>,
    pub(crate) user_metadata: Option<Value>,
    /// Time of the last accepted request for the model, in seconds since 1970.
    pub(crate) last_request: u64,
    /// Largest `seq_id` of an accepted request.
    #[serde(default)]
    pub(crate) last_seq: u64,
    /// `seq_id`s of rejected requests. Each may be used again until a request with a later `seq_id` is accepted.
    #[serde(default)]
    pub(crate) refused: BTreeSet<u64>,
}

impl ModelEntry {
    /// Returns whether request `seq` was rejected and a later request was accepted, so that `seq` can't be used again.
    pub(crate) fn passed(&self, seq: u64) -> bool {
        self.refused.contains(&seq) && self.last_seq > seq
    }
}

/// A client's sampling session, which always samples from the same weights.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sampler {
    pub(crate) id: String,
    pub(crate) source: Source,
    /// `seq_id` of the request that stored the weights for this session, or `None` for other sessions.
    #[serde(default)]
    pub(crate) seq: Option<u64>,
}

/// Weights to sample from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Source {
    /// The base model.
    Base,
    /// The second model.
    Teacher,
    /// A client's model after `version` changes.
    Version { model: ModelId, version: u64 },
    /// Weights saved under a path of the API.
    Saved(String),
}

/// LoRA settings in the form of the API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoraRequest {
    pub(crate) rank: usize,
    pub(crate) seed: Option<u64>,
    /// Accepted without effect: the vocabulary head isn't adapted, and a warning at the start of the session says so.
    #[serde(default = "yes")]
    pub(crate) train_unembed: bool,
    #[serde(default = "yes")]
    pub(crate) train_mlp: bool,
    #[serde(default = "yes")]
    pub(crate) train_attn: bool,
}

fn yes() -> bool {
    true
}

impl LoraRequest {
    /// Converts the request to the engine's settings.
    pub(crate) fn config(&self) -> Result<LoraConfig, String> {
        let (attention, mlp) = LoraConfig::TARGETS.split_at(LoraConfig::MIXER.end);
        let parts = [(self.train_attn, attention), (self.train_mlp, mlp)];
        let targets = parts.iter().filter(|(selected, _)| *selected).flat_map(|(_, names)| names.iter());
        let config = LoraConfig {
            rank: self.rank,
            alpha: ALPHA,
            targets: targets.map(|name| (*name).to_owned()).collect(),
            use_rslora: false,
        };
        config.check().map_err(|error| format!("lora_config: {error}"))?;
        Ok(config)
    }

    /// Converts the engine's settings to a request.
    pub(crate) fn of(config: &LoraConfig) -> Self {
        let (attention, mlp) = LoraConfig::TARGETS.split_at(LoraConfig::MIXER.end);
        let has = |names: &[&str]| config.targets.iter().any(|target| names.contains(&&**target));
        let (train_mlp, train_attn) = (has(mlp), has(attention));
        Self { rank: config.rank, seed: None, train_unembed: false, train_mlp, train_attn }
    }
}

/// Returns the id of session `number`.
pub(crate) fn session_id(number: u64) -> String {
    format!("session-{number}")
}

/// Returns the id of model `number` of a session.
pub(crate) fn model_id(session: &str, number: u64) -> ModelId {
    format!("{session}:train:{number}")
}

/// Returns the id of sampler `number` of a session.
pub(crate) fn sampler_id(session: &str, number: u64) -> String {
    format!("{session}:sample:{number}")
}

/// Returns the session id that a model id begins with.
pub(crate) fn session_of(model: &str) -> &str {
    model.split(":train:").next().unwrap_or_default()
}

/// Returns the numbers in an id.
pub(crate) fn numbers(id: &str) -> impl Iterator<Item = u64> {
    id.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok())
}

/// Looks up the objects that requests name. Each method rejects the request if the object doesn't exist.
#[derive(Clone, Copy)]
pub(crate) struct Registry<'a> {
    pub(crate) served: &'a Served,
    pub(crate) catalogue: &'a Catalogue,
    /// Whether the request comes from the journal, so that the weights that it names may have been removed since.
    pub(crate) replayed: bool,
    /// Whether the saved weights that the request names exist.
    pub(crate) saved: bool,
}

impl Served {
    /// Returns the bounds of a sampler's model.
    pub(crate) fn bounds_of(&self, source: &Source) -> Bounds {
        match (source, &self.teacher) {
            (Source::Teacher, Some((_, bounds))) => *bounds,
            _ => self.bounds,
        }
    }
}

impl Registry<'_> {
    /// Returns the weights to sample from, given the name of the base model or of the second model.
    pub(crate) fn source(&self, name: &str) -> Result<Source, Refusal> {
        match &self.served.teacher {
            Some((teacher, _)) if name == teacher => Ok(Source::Teacher),
            _ => self.base_model(name).map(|()| Source::Base),
        }
    }

    /// Returns the number of the session with this id, from 1.
    pub(crate) fn session(&self, id: &str) -> Result<u64, Refusal> {
        let number = id.strip_prefix("session-").and_then(|number| number.parse().ok());
        let count = self.catalogue.sessions.len() as u64;
        let session = number.filter(|number| (1..=count).contains(number));
        session.ok_or_else(|| Refusal::unknown("session_id", id, "a session of this server"))
    }

    /// Checks the name of the base model.
    pub(crate) fn base_model(&self, name: &str) -> Result<(), Refusal> {
        let expected = &self.served.name;
        Ok(check(
            name == expected,
            "base_model",
            format!("{name:?}"),
            format!("{expected:?}, the model of this server"),
        )?)
    }

    /// Returns the model with this id.
    pub(crate) fn model(&self, id: &str) -> Result<&ModelEntry, Refusal> {
        let model = self.catalogue.models.get(id);
        model.ok_or_else(|| Refusal::unknown("model_id", id, "a model of this server"))
    }

    /// Returns a sampler's weights and the numbers that identify it. A client that repeats a request for a snapshot gives
    /// the sampler another number, so a snapshot is identified by its model and `seq_id`.
    pub(crate) fn sampler(&self, id: &str) -> Result<(Source, Vec<u64>), Refusal> {
        let description = "a sampling session of this server";
        let sampler = self.catalogue.samplers.get(id);
        let Sampler { source, seq, .. } =
            sampler.ok_or_else(|| Refusal::unknown("sampling_session_id", id, description))?;
        let name = match (source, seq) {
            (Source::Version { model, .. }, Some(_)) => model,
            _ => id,
        };
        Ok((source.clone(), numbers(name).chain(*seq).collect()))
    }

    /// Checks that weights are saved under a path of the API.
    pub(crate) fn saved(&self, path: &str) -> Result<(), Refusal> {
        if self.replayed || self.saved {
            return Ok(());
        }
        Err(Refusal::Unknown(format!(
            "{path:?} isn't the path of saved weights, tinker://MODEL/weights/NAME"
        )))
    }
}
