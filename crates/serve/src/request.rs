//! What clients ask for: requests read from their bodies and checked, before they are accepted.

use crate::datum::Bounds;
use crate::loss::Pass;
use crate::wire::ForwardBackwardRequest;
use fgrpo_eval::io::json;
use fgrpo_nn::{AdamW, LoraConfig};
use prost::Message;
use serde::{Deserialize, Serialize};

/// Most samples of one request.
const SAMPLES: usize = 4096;
/// Most tokens of a top-k list.
const TOPK: usize = 1024;
/// LoRA's `alpha`, which the API doesn't set: the update's factor is 32 / rank.
const ALPHA: f64 = 32.0;

/// A POST that the engine's queue takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    CreateModel,
    ForwardBackward,
    OptimStep,
    SaveWeights,
    SaveWeightsForSampler,
    LoadWeights,
    Sample,
}

impl Endpoint {
    /// All of them.
    pub(crate) const ALL: [Self; 7] = [
        Self::CreateModel,
        Self::ForwardBackward,
        Self::OptimStep,
        Self::SaveWeights,
        Self::SaveWeightsForSampler,
        Self::LoadWeights,
        Self::Sample,
    ];

    /// Its name in the API.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::CreateModel => "create_model",
            Self::ForwardBackward => "forward_backward",
            Self::OptimStep => "optim_step",
            Self::SaveWeights => "save_weights",
            Self::SaveWeightsForSampler => "save_weights_for_sampler",
            Self::LoadWeights => "load_weights",
            Self::Sample => "asample",
        }
    }

    /// The endpoint of a name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|endpoint| endpoint.name() == name)
    }
}

/// A model's id: its session and its number there.
pub(crate) type ModelId = String;

/// A request for the engine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Work {
    /// A new model.
    Create { model: ModelId, lora: LoraRequest },
    /// A new model from a checkpoint.
    CreateFrom { model: ModelId, path: String, optimizer: bool },
    /// The next operation on a model.
    Train { model: ModelId, seq: u64, op: Op },
    /// Samples and log-probabilities.
    Sample(Sample),
}

/// An operation on a model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Op {
    Pass(Pass),
    Update {
        adamw: AdamW,
        max_norm: Option<f64>,
    },
    /// A checkpoint with the optimizer's state.
    Save {
        name: String,
        overwrite: bool,
    },
    /// Weights to sample from, under a name.
    SaveForSampler {
        name: String,
    },
    /// Weights to sample from, for a new sampling session.
    Snapshot {
        sampler: String,
    },
    Load {
        path: String,
        optimizer: bool,
    },
}

impl Op {
    /// Whether it changes the model, so that it is done again after a kill.
    pub(crate) fn changes(&self) -> bool {
        match self {
            Self::Pass(pass) => !pass.forward_only,
            Self::Update { .. } | Self::Load { .. } => true,
            Self::Save { .. } | Self::SaveForSampler { .. } | Self::Snapshot { .. } => false,
        }
    }
}

/// LoRA as the API asks for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoraRequest {
    pub(crate) rank: usize,
    #[serde(default)]
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

/// The matrices of attention, the first of [`LoraConfig::TARGETS`].
const ATTENTION: usize = 4;

impl LoraRequest {
    /// The engine's settings.
    pub(crate) fn config(&self) -> Result<LoraConfig, String> {
        let (attention, mlp) = LoraConfig::TARGETS.split_at(ATTENTION);
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
        Self {
            rank: config.rank,
            seed: None,
            train_unembed: false,
            train_mlp: has("up_proj"),
            train_attn: has("q_proj"),
        }
    }
}

/// Samples of one prompt.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    pub(crate) sampler: Source,
    pub(crate) prompt: Vec<u32>,
    pub(crate) samples: usize,
    /// `None`: as many as the model has positions for.
    pub(crate) max_tokens: Option<usize>,
    /// `None`: drawn from the server's seed and the request's place.
    pub(crate) seed: Option<u64>,
    /// Numbers of the session, the sampler and the request, which distinguish requests without a seed. `None` outside of a sampling session.
    pub(crate) place: Option<[u64; 3]>,
    pub(crate) stop: Stop,
    pub(crate) temperature: f32,
    pub(crate) top_k: usize,
    pub(crate) top_p: f32,
    pub(crate) min_p: f32,
    /// The number of last prompt tokens whose log-probabilities are wanted.
    pub(crate) prompt_logprobs: usize,
    pub(crate) topk_prompt: usize,
    pub(crate) topk_sample: usize,
    /// Token ids for each position after the first whose log-probabilities are wanted.
    pub(crate) targets: Option<crate::datum::Matrix<i64>>,
}

/// Which weights are sampled from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Source {
    /// The base model.
    Base,
    /// A model as it was after so many changes.
    Version { model: ModelId, version: u64 },
    /// A saved folder, as a path of the API.
    Saved(String),
}

/// What ends a sample besides its length.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Stop {
    /// The model's end tokens.
    Default,
    /// These tokens alone.
    Tokens(Vec<u32>),
    /// These texts alone.
    Texts(Vec<String>),
    /// The model's end tokens and these texts.
    DefaultAnd(Vec<String>),
}

/// A request as it arrives: what it is for, and its own place, at which it can't come twice.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Asked {
    pub(crate) work: Work,
    /// As `train:MODEL:SEQ`.
    pub(crate) slot: String,
}

/// What reading a request needs to know.
pub(crate) trait Known {
    /// Limits of the model.
    fn bounds(&self) -> Bounds;
    /// The base model's name.
    fn base(&self) -> &str;
    /// Whether all weights are trained, without LoRA.
    fn full(&self) -> bool;
    /// Whether there is a session of this id.
    fn session(&self, id: &str) -> Option<u64>;
    /// Whether there is a model of this id.
    fn model(&self, id: &str) -> bool;
    /// Weights and numbers (session, sampler) of a sampling session.
    fn sampler(&self, id: &str) -> Option<(Source, [u64; 2])>;
    /// Whether there are saved weights under a path of the API.
    fn saved(&self, path: &str) -> bool;
}

/// Why a request is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It can't be done.
    Bad(String),
    /// It names something that isn't there.
    Unknown(String),
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self::Bad(why)
    }
}

fn bad<T>(why: String) -> Result<T, Refusal> {
    Err(Refusal::Bad(why))
}

fn body<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Refusal> {
    json::parse(bytes).map_err(|misfit| Refusal::Bad(misfit.to_string()))
}

impl Asked {
    /// Reads a request.
    pub(crate) fn read(endpoint: Endpoint, bytes: &[u8], known: &dyn Known) -> Result<Self, Refusal> {
        match endpoint {
            Endpoint::CreateModel => create_model(body(bytes)?, known),
            Endpoint::ForwardBackward => forward_backward(bytes, known),
            Endpoint::OptimStep => optim_step(body(bytes)?, known),
            Endpoint::SaveWeights => save(body(bytes)?, known),
            Endpoint::SaveWeightsForSampler => save_for_sampler(body(bytes)?, known),
            Endpoint::LoadWeights => load(body(bytes)?, known),
            Endpoint::Sample => sample(body(bytes)?, known),
        }
    }
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

fn session(known: &dyn Known, id: &str) -> Result<u64, Refusal> {
    known
        .session(id)
        .ok_or_else(|| Refusal::Unknown(format!("session_id: found {id:?}, wanted a session of this server")))
}

pub(crate) fn base_model(known: &dyn Known, name: &str) -> Result<(), Refusal> {
    if name == known.base() {
        return Ok(());
    }
    bad(format!("base_model: found {name:?}, wanted {:?}, the model that this server has", known.base()))
}

fn optimizer(config: Option<&serde_json::Value>) -> Result<(), Refusal> {
    match config.and_then(|config| config.get("type")).and_then(|kind| kind.as_str()) {
        None if config.is_none() => Ok(()),
        Some("adamw") => Ok(()),
        _ => bad(format!(
            "optimizer_config: found {}, wanted type \"adamw\"",
            config.unwrap_or(&serde_json::Value::Null)
        )),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateModel {
    session_id: String,
    model_seq_id: u64,
    base_model: String,
    #[serde(default)]
    lora_config: Option<LoraRequest>,
    #[serde(default)]
    optimizer_config: Option<serde_json::Value>,
    #[serde(default, rename = "user_metadata")]
    _user_metadata: Option<serde_json::Value>,
    #[serde(default, rename = "type")]
    _type: Option<String>,
}

fn create_model(asked: CreateModel, known: &dyn Known) -> Result<Asked, Refusal> {
    session(known, &asked.session_id)?;
    base_model(known, &asked.base_model)?;
    optimizer(asked.optimizer_config.as_ref())?;
    let Some(lora) = asked.lora_config else {
        return bad("lora_config: found none, wanted one".into());
    };
    if !known.full() {
        lora.config()?;
    }
    let model = model_id(&asked.session_id, asked.model_seq_id);
    Ok(Asked { slot: format!("model:{model}"), work: Work::Create { model, lora } })
}

/// An operation's model and number.
fn train(known: &dyn Known, model: String, seq: Option<i64>, op: Op) -> Result<Asked, Refusal> {
    if !known.model(&model) {
        return Err(Refusal::Unknown(format!("model_id: found {model:?}, wanted a model of this server")));
    }
    match seq.map(u64::try_from) {
        Some(Ok(seq)) if seq > 0 => {
            Ok(Asked { slot: format!("train:{model}:{seq}"), work: Work::Train { model, seq, op } })
        }
        _ => bad(format!("seq_id: found {}, wanted 1 for a model's first request, then 2, ...", shown(seq))),
    }
}

fn shown(number: Option<i64>) -> String {
    number.map_or("none".into(), |number| number.to_string())
}

fn forward_backward(bytes: &[u8], known: &dyn Known) -> Result<Asked, Refusal> {
    let request = ForwardBackwardRequest::decode(bytes).map_err(|error| {
        Refusal::Bad(format!("found {} bytes that are no ForwardBackwardRequest ({error})", bytes.len()))
    })?;
    let pass = Pass::read(&request, known.bounds())?;
    train(known, request.model_id, Some(request.seq_id.into()), Op::Pass(pass))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OptimStep {
    model_id: String,
    #[serde(default)]
    seq_id: Option<i64>,
    #[serde(default)]
    adam_params: Option<AdamParams>,
    #[serde(default)]
    optimizer_params: Option<serde_json::Value>,
    #[serde(default, rename = "type")]
    _type: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AdamParams {
    learning_rate: f64,
    beta1: f64,
    beta2: f64,
    eps: f64,
    weight_decay: f64,
    grad_clip_norm: f64,
}

impl Default for AdamParams {
    fn default() -> Self {
        Self {
            learning_rate: 1e-4,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-12,
            weight_decay: 0.0,
            grad_clip_norm: 0.0,
        }
    }
}

fn optim_step(asked: OptimStep, known: &dyn Known) -> Result<Asked, Refusal> {
    if let Some(other) = asked.optimizer_params {
        return bad(format!(
            "optimizer_params: found {other}, wanted adam_params: AdamW is the only optimizer here"
        ));
    }
    let Some(params) = asked.adam_params else {
        return bad("adam_params: found none, wanted AdamW's settings".into());
    };
    let range = |name: &str, found: f64, fine: bool, wanted: &str| match fine {
        true => Ok(()),
        false => Err(Refusal::Bad(format!("adam_params.{name}: found {found}, wanted {wanted}"))),
    };
    let AdamParams { learning_rate: lr, beta1, beta2, eps, weight_decay, grad_clip_norm } = params;
    let not_negative = |x: f64| x.is_finite() && x >= 0.0;
    range("learning_rate", lr, not_negative(lr), "a finite number of at least 0")?;
    range("beta1", beta1, (0.0..1.0).contains(&beta1), "at least 0 and less than 1")?;
    range("beta2", beta2, (0.0..1.0).contains(&beta2), "at least 0 and less than 1")?;
    range("eps", eps, eps.is_finite() && eps > 0.0, "a finite number above 0")?;
    range("weight_decay", weight_decay, not_negative(weight_decay), "a finite number of at least 0")?;
    range(
        "grad_clip_norm",
        grad_clip_norm,
        grad_clip_norm.is_finite(),
        "a finite number, 0 for no clipping",
    )?;
    let adamw = AdamW { lr, beta1, beta2, eps, weight_decay, decay_norms_and_biases: true };
    let op = Op::Update { adamw, max_norm: (grad_clip_norm > 0.0).then_some(grad_clip_norm) };
    train(known, asked.model_id, asked.seq_id, op)
}

/// The name of saved weights: a folder's name.
fn name(path: Option<String>) -> Result<String, Refusal> {
    let name = path.unwrap_or_default();
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 128 || name.starts_with('.') || !name.chars().all(fine) {
        return bad(format!(
            "path: found {name:?}, wanted a name of at most 128 letters, digits, -, _ and ."
        ));
    }
    Ok(name)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SaveWeights {
    model_id: String,
    #[serde(default)]
    seq_id: Option<i64>,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    overwrite: bool,
    #[serde(default, rename = "ttl_seconds")]
    _ttl_seconds: Option<u64>,
    #[serde(default, rename = "user_metadata")]
    _user_metadata: Option<serde_json::Value>,
    #[serde(default, rename = "type")]
    _type: Option<String>,
}

fn save(asked: SaveWeights, known: &dyn Known) -> Result<Asked, Refusal> {
    let op = Op::Save { name: name(asked.path)?, overwrite: asked.overwrite };
    train(known, asked.model_id, asked.seq_id, op)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SaveWeightsForSampler {
    model_id: String,
    #[serde(default)]
    seq_id: Option<i64>,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    sampling_session_seq_id: Option<u64>,
    #[serde(default)]
    kind: Option<String>,
    #[serde(default, rename = "ttl_seconds")]
    _ttl_seconds: Option<u64>,
    #[serde(default, rename = "user_metadata")]
    _user_metadata: Option<serde_json::Value>,
    #[serde(default, rename = "type")]
    _type: Option<String>,
}

fn save_for_sampler(asked: SaveWeightsForSampler, known: &dyn Known) -> Result<Asked, Refusal> {
    if let Some(kind) = asked.kind.filter(|kind| kind != "snapshot") {
        return bad(format!(
            "kind: found {kind:?}, wanted \"snapshot\": weights that change while they are sampled from aren't offered"
        ));
    }
    let op = match (asked.path, asked.sampling_session_seq_id) {
        (None, Some(number)) => Op::Snapshot { sampler: sampler_id(session_of(&asked.model_id), number) },
        (Some(path), None) => Op::SaveForSampler { name: name(Some(path))? },
        _ => {
            return bad(
                "found neither or both of path and sampling_session_seq_id, wanted one of them".into()
            );
        }
    };
    train(known, asked.model_id, asked.seq_id, op)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadWeights {
    path: String,
    optimizer: bool,
    #[serde(default)]
    model_id: Option<String>,
    #[serde(default)]
    seq_id: Option<i64>,
    #[serde(default)]
    session_id: Option<String>,
    #[serde(default)]
    model_seq_id: Option<u64>,
    #[serde(default)]
    base_model: Option<String>,
    #[serde(default)]
    optimizer_config: Option<serde_json::Value>,
    #[serde(default)]
    weights_access_token: Option<String>,
    #[serde(default, rename = "user_metadata")]
    _user_metadata: Option<serde_json::Value>,
    #[serde(default, rename = "type")]
    _type: Option<String>,
}

fn load(asked: LoadWeights, known: &dyn Known) -> Result<Asked, Refusal> {
    optimizer(asked.optimizer_config.as_ref())?;
    if asked.weights_access_token.is_some() {
        return bad("weights_access_token: found one, wanted none: this server has one account".into());
    }
    if let Some(base) = &asked.base_model {
        base_model(known, base)?;
    }
    saved(known, &asked.path)?;
    let (path, optimizer) = (asked.path, asked.optimizer);
    match (asked.session_id, asked.model_seq_id, asked.model_id) {
        (Some(id), Some(number), None) => {
            session(known, &id)?;
            let model = model_id(&id, number);
            Ok(Asked { slot: format!("model:{model}"), work: Work::CreateFrom { model, path, optimizer } })
        }
        (None, None, Some(model)) => train(known, model, asked.seq_id, Op::Load { path, optimizer }),
        _ => {
            bad("found neither or both of model_id and session_id with model_seq_id, wanted one of them"
                .into())
        }
    }
}

/// Refuses a path that is not there.
pub(crate) fn saved(known: &dyn Known, path: &str) -> Result<(), Refusal> {
    if known.saved(path) {
        return Ok(());
    }
    Err(Refusal::Unknown(format!(
        "found {path:?}, wanted the path of saved weights, tinker://MODEL/weights/NAME"
    )))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SampleRequest {
    #[serde(default)]
    sampling_session_id: Option<String>,
    #[serde(default)]
    seq_id: Option<i64>,
    #[serde(default)]
    base_model: Option<String>,
    #[serde(default)]
    model_path: Option<String>,
    #[serde(default = "one")]
    num_samples: usize,
    prompt: ModelInput,
    sampling_params: SamplingParams,
    #[serde(default)]
    prompt_logprobs: Option<bool>,
    #[serde(default)]
    topk_prompt_logprobs: usize,
    #[serde(default)]
    topk_sample_logprobs: usize,
    #[serde(default)]
    target_prompt_logprobs: Option<TensorData>,
    #[serde(default)]
    prompt_alt_tokens_k: usize,
    #[serde(default)]
    prompt_logprobs_last_n: Option<usize>,
    #[serde(default)]
    record_stability_info: Option<bool>,
    #[serde(default, rename = "type")]
    _type: Option<String>,
}

fn one() -> usize {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelInput {
    chunks: Vec<InputChunk>,
}

#[derive(Deserialize)]
struct InputChunk {
    #[serde(default)]
    tokens: Vec<i64>,
    #[serde(default = "encoded_text", rename = "type")]
    kind: String,
}

fn encoded_text() -> String {
    "encoded_text".into()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TensorData {
    data: Vec<i64>,
    dtype: String,
    shape: Vec<usize>,
    #[serde(default)]
    sparse_crow_indices: Option<Vec<usize>>,
    #[serde(default)]
    sparse_col_indices: Option<Vec<usize>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SamplingParams {
    #[serde(default)]
    max_tokens: Option<i64>,
    #[serde(default)]
    seed: Option<i64>,
    #[serde(default)]
    stop: Option<StopField>,
    #[serde(default = "unit")]
    temperature: f32,
    #[serde(default = "no_limit")]
    top_k: i64,
    #[serde(default = "unit")]
    top_p: f32,
}

fn unit() -> f32 {
    1.0
}

fn no_limit() -> i64 {
    -1
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "wanted a text, a list of texts or a list of token ids")]
enum StopField {
    Text(String),
    Tokens(Vec<i64>),
    Texts(Vec<String>),
}

/// Checks the settings that both APIs have.
pub(crate) fn check_sampling(sample: &Sample, bounds: Bounds) -> Result<(), String> {
    bounds.length(sample.prompt.len()).map_err(|why| format!("prompt: {why}"))?;
    if !(1..=SAMPLES).contains(&sample.samples) {
        return Err(format!("num_samples: found {}, wanted 1 to {SAMPLES}", sample.samples));
    }
    if let Some(0) = sample.max_tokens {
        return Err("max_tokens: found 0, wanted at least 1".into());
    }
    let room = bounds.positions - sample.prompt.len();
    if room == 0 {
        return Err(format!(
            "prompt: found {} tokens, wanted fewer than the model's positions",
            sample.prompt.len()
        ));
    }
    if !(sample.temperature.is_finite() && sample.temperature >= 0.0) {
        return Err(format!(
            "temperature: found {}, wanted a finite number of at least 0",
            sample.temperature
        ));
    }
    if !(sample.top_p > 0.0 && sample.top_p <= 1.0) {
        return Err(format!("top_p: found {}, wanted more than 0 and at most 1", sample.top_p));
    }
    if !(0.0..1.0).contains(&sample.min_p) {
        return Err(format!("min_p: found {}, wanted at least 0 and less than 1", sample.min_p));
    }
    for (name, k) in
        [("topk_prompt_logprobs", sample.topk_prompt), ("topk_sample_logprobs", sample.topk_sample)]
    {
        if k > TOPK {
            return Err(format!("{name}: found {k}, wanted at most {TOPK}"));
        }
    }
    let texts = match &sample.stop {
        Stop::Texts(texts) | Stop::DefaultAnd(texts) => &texts[..],
        _ => &[],
    };
    if texts.iter().any(String::is_empty) {
        return Err("stop: found an empty text, wanted texts of at least one character".into());
    }
    Ok(())
}

fn sample(asked: SampleRequest, known: &dyn Known) -> Result<Asked, Refusal> {
    let bounds = known.bounds();
    let (sampler, numbers, slot) = match (&asked.sampling_session_id, &asked.model_path, &asked.base_model) {
        (Some(id), None, None) => {
            let Some((source, numbers)) = known.sampler(id) else {
                return Err(Refusal::Unknown(format!(
                    "sampling_session_id: found {id:?}, wanted a sampling session of this server"
                )));
            };
            let Some(seq) = asked.seq_id.and_then(|seq| u64::try_from(seq).ok()) else {
                return bad(format!(
                    "seq_id: found {}, wanted the request's number in its sampling session",
                    shown(asked.seq_id)
                ));
            };
            (source, Some([numbers[0], numbers[1], seq]), format!("sample:{id}:{seq}"))
        }
        (None, Some(path), _) => {
            saved(known, path)?;
            (Source::Saved(path.clone()), None, String::new())
        }
        (None, None, Some(base)) => {
            base_model(known, base)?;
            (Source::Base, None, String::new())
        }
        _ => return bad(
            "found neither or several of sampling_session_id, model_path and base_model, wanted one of them"
                .into(),
        ),
    };
    if asked.record_stability_info == Some(true) {
        return bad("record_stability_info: found true, wanted false: the loss stable_reinforce isn't offered; importance_sampling, ppo and cispo are".into());
    }
    if asked.prompt_alt_tokens_k > 0 {
        return bad(format!(
            "prompt_alt_tokens_k: found {}, wanted 0: it isn't offered",
            asked.prompt_alt_tokens_k
        ));
    }
    let mut prompt = Vec::new();
    for chunk in &asked.prompt.chunks {
        if chunk.kind != "encoded_text" {
            return bad(format!(
                "prompt.chunks: found type {:?}, wanted \"encoded_text\": models here read text alone",
                chunk.kind
            ));
        }
        for &id in &chunk.tokens {
            prompt.push(bounds.token(id).map_err(|why| format!("prompt: {why}"))?);
        }
    }
    let params = asked.sampling_params;
    let stop = match params.stop {
        None => Stop::Default,
        Some(StopField::Text(text)) => Stop::Texts(vec![text]),
        Some(StopField::Texts(texts)) => Stop::Texts(texts),
        Some(StopField::Tokens(ids)) => {
            let tokens = ids.into_iter().map(|id| bounds.token(id).map_err(|why| format!("stop: {why}")));
            Stop::Tokens(tokens.collect::<Result<_, _>>()?)
        }
    };
    let scored = asked.prompt_logprobs == Some(true);
    let most = prompt.len().saturating_sub(1);
    let prompt_logprobs = match asked.prompt_logprobs_last_n {
        Some(n) if !scored || n == 0 || n > most => {
            return bad(format!(
                "prompt_logprobs_last_n: found {n}, wanted 1 to {most}, and prompt_logprobs"
            ));
        }
        Some(n) => n,
        None if scored => most,
        None => 0,
    };
    let targets = asked.target_prompt_logprobs.map(|tensor| target_ids(tensor, most, bounds)).transpose()?;
    let sample = Sample {
        sampler,
        samples: asked.num_samples,
        max_tokens: match params.max_tokens.map(usize::try_from) {
            None => None,
            Some(Ok(n)) => Some(n),
            Some(Err(_)) => {
                return bad(format!("max_tokens: found {}, wanted at least 1", shown(params.max_tokens)));
            }
        },
        seed: params.seed.map(|seed| seed as u64),
        place: numbers,
        stop,
        temperature: params.temperature,
        top_k: match params.top_k {
            -1 | 0 => 0,
            k => usize::try_from(k)
                .map_err(|_| format!("top_k: found {k}, wanted at least 1, or -1 for no limit"))?,
        },
        top_p: params.top_p,
        min_p: 0.0,
        prompt_logprobs,
        topk_prompt: asked.topk_prompt_logprobs,
        topk_sample: asked.topk_sample_logprobs,
        targets,
        prompt,
    };
    check_sampling(&sample, bounds)?;
    Ok(Asked { work: Work::Sample(sample), slot })
}

/// The ids of `target_prompt_logprobs`; -1 asks for nothing.
fn target_ids(tensor: TensorData, rows: usize, bounds: Bounds) -> Result<crate::datum::Matrix<i64>, Refusal> {
    let place = "target_prompt_logprobs";
    if tensor.dtype != "int64" {
        return bad(format!("{place}: found {}, wanted int64", tensor.dtype));
    }
    if tensor.sparse_crow_indices.is_some() || tensor.sparse_col_indices.is_some() {
        return bad(format!("{place}: found a sparse tensor, wanted a dense one with -1 for nothing"));
    }
    let &[found, columns] = &tensor.shape[..] else {
        return bad(format!("{place}: found shape {:?}, wanted two dimensions", tensor.shape));
    };
    if found != rows || columns == 0 || found.checked_mul(columns) != Some(tensor.data.len()) {
        return bad(format!(
            "{place}: found shape {:?}, wanted [{rows}, K] for the prompt's positions after the first",
            tensor.shape
        ));
    }
    for &id in tensor.data.iter().filter(|&&id| id != -1) {
        bounds.token(id).map_err(|why| format!("{place}: {why}"))?;
    }
    let given = tensor.data.iter().map(|&id| id != -1).collect();
    Ok(crate::datum::Matrix { columns, numbers: tensor.data, given, two_dimensional: true })
}
