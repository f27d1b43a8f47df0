//! What a server has: its base model, sessions, models, samplers, and the ids of these.

use crate::fields::{Refusal, check};
use fgrpo_nn::LoraConfig;
use fgrpo_train::policy::Bounds;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// LoRA's `alpha`, which the API doesn't set: the update's factor is 32 / rank.
const ALPHA: f64 = 32.0;

/// A model's id: its session and its number there.
pub(crate) type ModelId = String;

/// What the server has and how it is called.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    /// The base model's name.
    pub(crate) name: String,
    /// Its architecture, as `config.json` names it.
    pub(crate) architecture: String,
    /// Whether all weights are trained, without LoRA.
    pub(crate) full: bool,
    pub(crate) bounds: Bounds,
    /// Name and bounds of a second model, which is only sampled and scored.
    pub(crate) teacher: Option<(String, Bounds)>,
    pub(crate) folder: PathBuf,
    /// Maximum number of waiting requests.
    pub(crate) most_waiting: usize,
}

/// The sessions, models and samplers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Catalogue {
    /// Requests so far.
    pub(crate) requests: u64,
    /// Sessions so far; their ids count from 1.
    pub(crate) sessions: Vec<Session>,
    /// The requested models.
    pub(crate) models: BTreeMap<ModelId, ModelEntry>,
    pub(crate) samplers: BTreeMap<String, Sampler>,
}

/// What a client says of its session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Session {
    pub(crate) display_name: Option<String>,
    pub(crate) user_metadata: Option<Value>,
}

/// A requested model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ModelEntry {
    /// `None` if all weights are trained.
    pub(crate) lora: Option<LoraRequest>,
    pub(crate) user_metadata: Option<Value>,
    /// When a request for it was accepted last, in seconds since 1970.
    pub(crate) last_request: u64,
    /// The largest `seq_id` of an accepted request.
    #[serde(default)]
    pub(crate) last_seq: u64,
    /// `seq_id`s of refused requests. They stay free until a later one is accepted; then that is next.
    #[serde(default)]
    pub(crate) refused: BTreeSet<u64>,
}

impl ModelEntry {
    /// Whether a request's turn has passed.
    pub(crate) fn passed(&self, seq: u64) -> bool {
        self.refused.contains(&seq) && self.last_seq > seq
    }
}

/// A sampling session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sampler {
    pub(crate) id: String,
    pub(crate) source: Source,
}

/// Which weights are sampled from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Source {
    /// The base model.
    Base,
    /// The second model.
    Teacher,
    /// A model after this number of changes.
    Version { model: ModelId, version: u64 },
    /// A saved folder, as a path of the API.
    Saved(String),
}

/// LoRA as the API asks for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoraRequest {
    pub(crate) rank: usize,
    pub(crate) seed: Option<u64>,
    /// Accepted, but the vocabulary head stays as it is; sessions begin with a warning that says so.
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
    /// The engine's settings.
    pub(crate) fn config(&self) -> Result<LoraConfig, String> {
        let (attention, mlp) = LoraConfig::TARGETS.split_at(LoraConfig::MIXER.end);
        let wanted = [(self.train_attn, attention), (self.train_mlp, mlp)];
        let targets = wanted.iter().filter(|(wanted, _)| *wanted).flat_map(|(_, names)| names.iter());
        let config = LoraConfig {
            rank: self.rank,
            alpha: ALPHA,
            targets: targets.map(|name| (*name).to_owned()).collect(),
            use_rslora: false,
        };
        config.check().map_err(|error| format!("lora_config: {error}"))?;
        Ok(config)
    }

    /// The request that gives these settings.
    pub(crate) fn of(config: &LoraConfig) -> Self {
        let has = |name: &str| config.targets.iter().any(|target| target == name);
        let (train_mlp, train_attn) = (has("up_proj"), has("q_proj"));
        Self { rank: config.rank, seed: None, train_unembed: false, train_mlp, train_attn }
    }
}

/// The id of a session.
pub(crate) fn session_id(number: u64) -> String {
    format!("session-{number}")
}

/// The id of a session's model.
pub(crate) fn model_id(session: &str, number: u64) -> ModelId {
    format!("{session}:train:{number}")
}

/// The id of a session's sampler.
pub(crate) fn sampler_id(session: &str, number: u64) -> String {
    format!("{session}:sample:{number}")
}

/// The session of a model's id.
pub(crate) fn session_of(model: &str) -> &str {
    model.split(":train:").next().unwrap_or_default()
}

/// Looks up what requests name. Each method returns the named thing, or refuses the request.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) served: &'a Served,
    pub(crate) catalogue: &'a Catalogue,
    /// Whether the request comes from the journal; the weights that it names may have been removed since.
    pub(crate) replayed: bool,
    /// Whether the saved weights that the request names exist.
    pub(crate) saved: bool,
}

impl Served {
    /// The bounds of a sampler's model.
    pub(crate) fn bounds_of(&self, source: &Source) -> Bounds {
        match (source, &self.teacher) {
            (Source::Teacher, Some((_, bounds))) => *bounds,
            _ => self.bounds,
        }
    }
}

impl Known<'_> {
    /// The model of a name, to be sampled.
    pub(crate) fn source(&self, name: &str) -> Result<Source, Refusal> {
        match &self.served.teacher {
            Some((teacher, _)) if name == teacher => Ok(Source::Teacher),
            _ => self.base_model(name).map(|()| Source::Base),
        }
    }

    /// The number of a session.
    pub(crate) fn session(&self, id: &str) -> Result<u64, Refusal> {
        let number = id.strip_prefix("session-").and_then(|number| number.parse().ok());
        let most = self.catalogue.sessions.len() as u64;
        let known = number.filter(|number| (1..=most).contains(number));
        known.ok_or_else(|| Refusal::unknown("session_id", id, "a session of this server"))
    }

    /// The base model's name.
    pub(crate) fn base_model(&self, name: &str) -> Result<(), Refusal> {
        let own = &self.served.name;
        Ok(check(
            name == own,
            "base_model",
            format!("{name:?}"),
            format!("{own:?}, the model that this server has"),
        )?)
    }

    /// A model that was asked for.
    pub(crate) fn model(&self, id: &str) -> Result<&ModelEntry, Refusal> {
        let found = self.catalogue.models.get(id);
        found.ok_or_else(|| Refusal::unknown("model_id", id, "a model of this server"))
    }

    /// Weights and numbers (session, sampler) of a sampling session.
    pub(crate) fn sampler(&self, id: &str) -> Result<(Source, [u64; 2]), Refusal> {
        let find = || {
            let sampler = self.catalogue.samplers.get(id)?;
            let (session, number) = id.split_once(":sample:")?;
            Some((sampler.source.clone(), [self.session(session).ok()?, number.parse().ok()?]))
        };
        let wanted = "a sampling session of this server";
        find().ok_or_else(|| Refusal::unknown("sampling_session_id", id, wanted))
    }

    /// Saved weights under a path of the API.
    pub(crate) fn saved(&self, path: &str) -> Result<(), Refusal> {
        if self.replayed || self.saved {
            return Ok(());
        }
        Err(Refusal::Unknown(format!(
            "found {path:?}, wanted the path of saved weights, tinker://MODEL/weights/NAME"
        )))
    }
}
