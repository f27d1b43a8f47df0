//! Reads requests from their bodies and checks them before they are accepted.

use crate::catalogue::{
    LoraRequest, ModelId, Registry, Sampler, Served, Session, Source, model_id, sampler_id, session_of,
};
use crate::datum::Matrix;
use crate::fields::{Fields, Refusal, check};
use crate::loss::Pass;
use crate::storage::{self, Kind};
use crate::wire::ForwardBackwardRequest;
use fgrpo_nn::{AdamW, COLDEST};
use fgrpo_train::policy::Bounds;
use prost::Message;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Maximum number of samples per request.
const SAMPLES: usize = 4096;
/// Maximum length of a top-k list.
const TOPK: usize = 1024;
/// Maximum length of all top-k lists of a request, which bounds the memory for its result.
const LISTED: usize = 1 << 24;

/// An incoming request whose body is hashed and parsed, which takes a while for a large body, but doesn't need a lock.
pub(crate) struct Incoming {
    pub(crate) endpoint: &'static str,
    pub(crate) body: Vec<u8>,
    /// SHA-256 of the endpoint and the body, without the fields that a client changes when it repeats a request.
    pub(crate) digest: Vec<u8>,
    pub(crate) content: Result<Content, Refusal>,
    /// Whether weights are saved under the path that the request names, if it names one.
    pub(crate) saved: bool,
}

/// A parsed body.
pub(crate) enum Content {
    Fields(Fields),
    Pass { model: ModelId, seq: i64, pass: Result<Pass, Refusal> },
}

/// A checked request: its work, and its slot, which must be unique.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Asked {
    pub(crate) work: Work,
    /// Slot such as `train:MODEL:SEQ`, if the request has one.
    pub(crate) slot: Option<String>,
}

/// Work of a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Work {
    /// Create a session.
    Session(Session),
    /// Create a sampling session.
    Sampler(Sampler),
    /// Create a model.
    Create { model: ModelId, lora: LoraRequest, user_metadata: Option<Value> },
    /// Create a model from a checkpoint.
    CreateFrom { model: ModelId, path: String, optimizer: bool, user_metadata: Option<Value> },
    /// Perform an operation on a model.
    Train { model: ModelId, seq: u64, op: Op },
    /// Sample, and compute log-probabilities.
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
    /// Save weights under a name: a checkpoint with the optimizer's state, or weights for sampling.
    Save {
        kind: Kind,
        name: String,
        overwrite: bool,
        /// Seconds until the saved weights expire.
        ttl: Option<u64>,
        user_metadata: Option<Value>,
    },
    /// Store the weights for a new sampling session.
    Snapshot {
        sampler: String,
    },
    Load {
        path: String,
        optimizer: bool,
    },
}

impl Op {
    /// Returns whether the operation changes the model, so that a restart must repeat it.
    pub(crate) fn changes(&self) -> bool {
        match self {
            Self::Pass(pass) => !pass.forward_only,
            Self::Update { .. } | Self::Load { .. } => true,
            Self::Save { .. } | Self::Snapshot { .. } => false,
        }
    }
}

/// A request for samples of one prompt.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    pub(crate) sampler: Source,
    pub(crate) prompt: Vec<u32>,
    pub(crate) samples: usize,
    /// Maximum number of tokens of each sample. If `None`, only the model's positions limit it.
    pub(crate) max_tokens: Option<usize>,
    /// Seed. If `None`, it is derived from the server's seed and `place`.
    pub(crate) seed: Option<u64>,
    /// Numbers that distinguish requests without a seed: the numbers in the sampling session's id, then the request's
    /// `seq_id`. `None` outside a sampling session.
    pub(crate) place: Option<Vec<u64>>,
    pub(crate) stop: Stop,
    pub(crate) temperature: f32,
    pub(crate) top_k: usize,
    pub(crate) top_p: f32,
    pub(crate) min_p: f32,
    /// Number of last prompt tokens whose log-probabilities are requested, or `None` if they aren't requested.
    pub(crate) prompt_logprobs: Option<usize>,
    pub(crate) topk_prompt: usize,
    pub(crate) topk_sample: usize,
    /// For each position after the first, token ids whose log-probabilities are requested.
    pub(crate) targets: Option<Matrix<i64>>,
}

impl Sample {
    /// Returns the maximum number of tokens of each sample, so that prompt and sample fit into the model's positions.
    pub(crate) fn longest(&self, bounds: Bounds) -> usize {
        let room = bounds.positions - self.prompt.len();
        self.max_tokens.map_or(room, |limit| limit.min(room))
    }
}

/// Stop conditions of a sample, besides its maximum length.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Stop {
    /// Tokens that end a sample and are part of it. If `None`, these are the model's end tokens.
    pub(crate) tokens: Option<Vec<u32>>,
    /// Strings that end a sample.
    pub(crate) texts: Vec<String>,
}

/// Reads the fields of a request.
type Read = fn(&mut Fields, Registry<'_>) -> Result<Asked, Refusal>;

/// Endpoints whose requests are JSON objects and have results.
const READERS: [(&str, Read); 8] = [
    (CREATE_SESSION, create_session),
    (CREATE_SAMPLING_SESSION, create_sampling_session),
    ("create_model", create_model),
    ("optim_step", optim_step),
    ("save_weights", save),
    (SAVE_FOR_SAMPLER, save_for_sampler),
    ("load_weights", load),
    (SAMPLE, sample),
];
pub(crate) const CREATE_SESSION: &str = "create_session";
pub(crate) const CREATE_SAMPLING_SESSION: &str = "create_sampling_session";
pub(crate) const SAMPLE: &str = "asample";
const SAVE_FOR_SAMPLER: &str = "save_weights_for_sampler";
const FORWARD_BACKWARD: &str = "forward_backward";

/// Field with a sampler's number in its session.
const SAMPLER_NUMBER: &str = "sampling_session_seq_id";

/// Returns all endpoints whose requests have results.
pub(crate) fn endpoints() -> impl Iterator<Item = &'static str> {
    READERS.iter().map(|(name, _)| *name).chain([FORWARD_BACKWARD])
}

impl Incoming {
    /// Hashes and parses the body of a request to an endpoint.
    pub(crate) fn new(endpoint: &'static str, body: Vec<u8>, served: &Served) -> Self {
        let mut hash = Sha256::new();
        hash.update(endpoint.as_bytes());
        hash.update([0]);
        let content = if endpoint == FORWARD_BACKWARD {
            let message = ForwardBackwardRequest::decode(&body[..]).map_err(|error| {
                format!("the body of {} bytes isn't a ForwardBackwardRequest: {error}", body.len()).into()
            });
            message.map(|request| {
                // When a client repeats a message, it may write the message's maps in another order.
                hash.update(request.encode_to_vec());
                let pass = Pass::read(&request, served.bounds).map_err(Refusal::from);
                Content::Pass { model: request.model_id, seq: request.seq_id.into(), pass }
            })
        } else {
            Fields::read(&body).map(Content::Fields)
        };
        match &content {
            Ok(Content::Pass { .. }) => {}
            Ok(Content::Fields(fields))
                if endpoint == SAVE_FOR_SAMPLER && fields.rest.contains_key(SAMPLER_NUMBER) =>
            {
                // When a client repeats a request for a snapshot, it gives the sampler another number.
                let mut fields = fields.rest.clone();
                fields.insert(SAMPLER_NUMBER.into(), Value::Null);
                hash.update(Value::Object(fields).to_string());
            }
            _ => hash.update(&body),
        }
        let path_in = |name: &str| match &content {
            Ok(Content::Fields(fields)) => fields.rest.get(name)?.as_str(),
            _ => None,
        };
        let path = path_in("model_path").or(path_in("path"));
        let saved = path.is_some_and(|path| storage::saved(&served.folder, path).is_some());
        Self { endpoint, digest: hash.finalize().to_vec(), content, saved, body }
    }

    /// Returns the model and the `seq_id` of the request, even if the request is invalid otherwise.
    pub(crate) fn place(&self) -> Option<(ModelId, u64)> {
        let (model, seq) = match self.content.as_ref().ok()? {
            Content::Pass { model, seq, .. } => (model.as_str(), *seq),
            Content::Fields(fields) => {
                (fields.rest.get("model_id")?.as_str()?, fields.rest.get("seq_id")?.as_i64()?)
            }
        };
        Some((model.to_owned(), u64::try_from(seq).ok().filter(|seq| *seq > 0)?))
    }

    /// Returns the number of samples that the request is for.
    pub(crate) fn samples(&self) -> usize {
        let Ok(Content::Fields(fields)) = &self.content else { return 0 };
        fields.rest.get("num_samples").map_or(1, |count| count.as_u64().unwrap_or(0) as usize)
    }
}

impl Content {
    /// Checks the request against the existing objects.
    ///
    /// # Panics
    /// If the endpoint is unknown.
    pub(crate) fn read(self, endpoint: &str, registry: Registry<'_>) -> Result<Asked, Refusal> {
        match self {
            Self::Pass { model, seq, pass } => train(registry, model, Some(seq), Op::Pass(pass?)),
            Self::Fields(mut fields) => {
                let (_, read) = READERS.iter().find(|(name, _)| *name == endpoint).expect("an endpoint");
                let request = read(&mut fields, registry)?;
                fields.end()?;
                Ok(request)
            }
        }
    }
}

fn bad<T>(why: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Bad(why.into()))
}

fn create_session(fields: &mut Fields, _: Registry<'_>) -> Result<Asked, Refusal> {
    let about =
        Session { display_name: fields.take("display_name")?, user_metadata: fields.take("user_metadata")? };
    // The remaining fields, such as tags, client version and project, have no effect here.
    fields.rest.clear();
    Ok(Asked { slot: None, work: Work::Session(about) })
}

fn create_sampling_session(fields: &mut Fields, registry: Registry<'_>) -> Result<Asked, Refusal> {
    let session: String = fields.need("session_id")?;
    registry.session(&session)?;
    let id = sampler_id(&session, fields.need(SAMPLER_NUMBER)?);
    let Some(source) = source(fields, registry)? else {
        return bad("base_model or model_path is missing");
    };
    Ok(Asked { slot: Some(format!("sampler:{id}")), work: Work::Sampler(Sampler { id, source, seq: None }) })
}

/// Returns the weights that `model_path` or `base_model` name.
fn source(fields: &mut Fields, registry: Registry<'_>) -> Result<Option<Source>, Refusal> {
    let base: Option<String> = fields.take("base_model")?;
    if let Some(path) = fields.take::<String>("model_path")? {
        registry.saved(&path)?;
        return Ok(Some(Source::Saved(path)));
    }
    base.map(|base| registry.source(&base)).transpose()
}

fn optimizer(fields: &mut Fields) -> Result<(), Refusal> {
    let config: Option<Value> = fields.take("optimizer_config")?;
    let config = config.unwrap_or_else(|| serde_json::json!({"type": "adamw"}));
    Ok(check(config["type"] == "adamw", "optimizer_config", &config, "type \"adamw\"")?)
}

fn create_model(fields: &mut Fields, registry: Registry<'_>) -> Result<Asked, Refusal> {
    let session: String = fields.need("session_id")?;
    registry.session(&session)?;
    registry.base_model(&fields.need::<String>("base_model")?)?;
    optimizer(fields)?;
    let lora: LoraRequest = fields.need("lora_config")?;
    if !registry.served.full {
        lora.config()?;
    }
    let user_metadata = fields.take("user_metadata")?;
    let model = model_id(&session, fields.need("model_seq_id")?);
    let slot = Some(format!("model:{model}"));
    Ok(Asked { slot, work: Work::Create { model, lora, user_metadata } })
}

/// Returns the slot of an operation on a model.
pub(crate) fn train_slot(model: &str, seq: u64) -> String {
    format!("train:{model}:{seq}")
}

/// Checks an operation's model and `seq_id`.
fn train(registry: Registry<'_>, model: String, seq: Option<i64>, op: Op) -> Result<Asked, Refusal> {
    let entry = registry.model(&model)?;
    match seq.map(u64::try_from) {
        Some(Ok(seq)) if entry.passed(seq) && !registry.replayed => {
            bad(format!("seq_id: {seq} was rejected before a later one was accepted; use a later one"))
        }
        Some(Ok(seq)) if seq > 0 => {
            Ok(Asked { slot: Some(train_slot(&model, seq)), work: Work::Train { model, seq, op } })
        }
        _ => {
            bad(format!("seq_id: expected 1 for a model's first request, then 2, ..., found {}", shown(seq)))
        }
    }
}

fn shown(number: Option<i64>) -> String {
    number.map_or("none".into(), |number| number.to_string())
}

/// AdamW's settings: name, default, whether a value is valid, and description of valid values.
type Setting = (&'static str, f64, fn(f64) -> bool, &'static str);
const ADAM: [Setting; 6] = [
    ("learning_rate", 1e-4, not_negative, "a finite number of at least 0"),
    ("beta1", 0.9, |x| (0.0..1.0).contains(&x), "at least 0 and less than 1"),
    ("beta2", 0.95, |x| (0.0..1.0).contains(&x), "at least 0 and less than 1"),
    ("eps", 1e-12, |x| x.is_finite() && x > 0.0, "a finite number above 0"),
    ("weight_decay", 0.0, not_negative, "a finite number of at least 0"),
    ("grad_clip_norm", 0.0, f64::is_finite, "a finite number, 0 for no clipping"),
];

fn not_negative(x: f64) -> bool {
    x.is_finite() && x >= 0.0
}

fn optim_step(fields: &mut Fields, registry: Registry<'_>) -> Result<Asked, Refusal> {
    if let Some(other) = fields.take::<Value>("optimizer_params")? {
        return bad(format!(
            "optimizer_params: {other} isn't supported; AdamW is the only optimizer, with adam_params"
        ));
    }
    if fields.rest.get("adam_params").is_none_or(Value::is_null) {
        return bad("adam_params: missing");
    }
    let mut params = fields.inner("adam_params.")?;
    let mut numbers = [0.0; ADAM.len()];
    for ((name, default, is_valid, expected), number) in ADAM.into_iter().zip(&mut numbers) {
        *number = params.or(name, default)?;
        check(is_valid(*number), format!("adam_params.{name}"), *number, expected)?;
    }
    params.end()?;
    let [lr, beta1, beta2, eps, weight_decay, norm] = numbers;
    let adamw = AdamW { lr, beta1, beta2, eps, weight_decay, decay_norms_and_biases: true };
    let op = Op::Update { adamw, max_norm: (norm > 0.0).then_some(norm) };
    train(registry, fields.need("model_id")?, fields.take("seq_id")?, op)
}

/// Checks the name of saved weights, which is used as a folder's name.
fn name(path: Option<String>) -> Result<String, Refusal> {
    let name = path.unwrap_or_default();
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let fine = !name.is_empty() && name.len() <= 128 && !name.starts_with('.') && name.chars().all(fine);
    check(fine, "path", format!("{name:?}"), "a name of at most 128 letters, digits, -, _ and .")?;
    Ok(name)
}

fn save(fields: &mut Fields, registry: Registry<'_>) -> Result<Asked, Refusal> {
    let (name, overwrite) = (name(fields.take("path")?)?, fields.or("overwrite", false)?);
    let op = saving(fields, Kind::Checkpoint, name, overwrite)?;
    train(registry, fields.need("model_id")?, fields.take("seq_id")?, op)
}

fn saving(fields: &mut Fields, kind: Kind, name: String, overwrite: bool) -> Result<Op, Refusal> {
    let (ttl, user_metadata) = (time_to_live(fields)?, fields.take("user_metadata")?);
    Ok(Op::Save { kind, name, overwrite, ttl, user_metadata })
}

/// Reads the seconds after which saved weights expire, or `None` if they don't expire.
pub(crate) fn time_to_live(fields: &mut Fields) -> Result<Option<u64>, String> {
    let ttl: Option<u64> = fields.take("ttl_seconds")?;
    check(ttl != Some(0), "ttl_seconds", 0, "at least 1")?;
    Ok(ttl)
}

fn save_for_sampler(fields: &mut Fields, registry: Registry<'_>) -> Result<Asked, Refusal> {
    let kind: String = fields.or("kind", "snapshot".into())?;
    let expected = "\"snapshot\" (sampling from weights that still change isn't supported)";
    check(kind == "snapshot", "kind", format!("{kind:?}"), expected)?;
    let model: Value = fields.rest.get("model_id").cloned().unwrap_or_default();
    let session = session_of(model.as_str().unwrap_or_default());
    let op = match (fields.take("path")?, fields.take(SAMPLER_NUMBER)?) {
        (None, Some(number)) => Op::Snapshot { sampler: sampler_id(session, number) },
        (Some(path), None) => saving(fields, Kind::Sampler, name(Some(path))?, true)?,
        _ => return bad("send exactly one of path and sampling_session_seq_id"),
    };
    // A snapshot exists as long as the version of the model.
    for name in ["ttl_seconds", "user_metadata"] {
        fields.rest.remove(name);
    }
    train(registry, fields.need("model_id")?, fields.take("seq_id")?, op)
}

fn load(fields: &mut Fields, registry: Registry<'_>) -> Result<Asked, Refusal> {
    optimizer(fields)?;
    if fields.take::<Value>("weights_access_token")?.is_some() {
        return bad("weights_access_token isn't supported, since this server has one account");
    }
    if let Some(base) = fields.take::<String>("base_model")? {
        registry.base_model(&base)?;
    }
    let path: String = fields.need("path")?;
    registry.saved(&path)?;
    let optimizer = fields.need("optimizer")?;
    let user_metadata = fields.take("user_metadata")?;
    match (fields.take::<String>("session_id")?, fields.take("model_seq_id")?, fields.take("model_id")?) {
        (Some(session), Some(number), None) => {
            registry.session(&session)?;
            let model = model_id(&session, number);
            let slot = Some(format!("model:{model}"));
            Ok(Asked { slot, work: Work::CreateFrom { model, path, optimizer, user_metadata } })
        }
        (None, None, Some(model)) => {
            train(registry, model, fields.take("seq_id")?, Op::Load { path, optimizer })
        }
        _ => bad("send either model_id, or session_id with model_seq_id"),
    }
}

/// Checks the sampling settings that both APIs have. `count` is the API's name of the number of samples.
pub(crate) fn check_sampling(sample: &Sample, bounds: Bounds, count: &str) -> Result<(), String> {
    let length = sample.prompt.len();
    bounds.length(length).map_err(|why| format!("prompt: {why}"))?;
    let expected = format!("fewer tokens than the model's {} positions", bounds.positions);
    check(length < bounds.positions, "prompt", length, expected)?;
    let expected = format!("1 to {SAMPLES}");
    check((1..=SAMPLES).contains(&sample.samples), count, sample.samples, expected)?;
    check(sample.max_tokens != Some(0), "max_tokens", 0, "at least 1")?;
    let temperature = sample.temperature;
    let fine = temperature == 0.0 || (temperature >= COLDEST as f32 && temperature.is_finite());
    check(fine, "temperature", temperature, format!("0 or a finite number of at least {COLDEST:e}"))?;
    let fine = sample.top_p > 0.0 && sample.top_p <= 1.0;
    check(fine, "top_p", sample.top_p, "more than 0 and at most 1")?;
    check((0.0..1.0).contains(&sample.min_p), "min_p", sample.min_p, "at least 0 and less than 1")?;
    let drawn = sample.samples * sample.longest(bounds);
    for (name, k, lists) in [
        ("topk_prompt_logprobs", sample.topk_prompt, length),
        ("topk_sample_logprobs", sample.topk_sample, drawn),
    ] {
        let most = TOPK.min(LISTED / lists);
        check(k <= most, name, k, format!("at most {most} for {lists} tokens"))?;
    }
    let fine = !sample.stop.texts.iter().any(String::is_empty);
    check(fine, "stop", "an empty string", "strings of at least one character")
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string, a list of strings or a list of token ids")]
enum StopField {
    Text(String),
    Tokens(Vec<i64>),
    Texts(Vec<String>),
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

fn sample(fields: &mut Fields, registry: Registry<'_>) -> Result<Asked, Refusal> {
    let seq: Option<i64> = fields.take("seq_id")?;
    let (sampler, place, slot) =
        match (fields.take::<String>("sampling_session_id")?, source(fields, registry)?) {
            (Some(id), None) => {
                let (source, mut place) = registry.sampler(&id)?;
                let Some(seq) = seq.and_then(|seq| u64::try_from(seq).ok()) else {
                    let seq_id = shown(seq);
                    return bad(format!(
                        "seq_id: expected the request's number in its sampling session, found {seq_id}"
                    ));
                };
                place.push(seq);
                (source, Some(place), Some(format!("sample:{id}:{seq}")))
            }
            (None, Some(source)) => (source, None, None),
            _ => {
                return bad("send exactly one of sampling_session_id, model_path and base_model");
            }
        };
    let bounds = registry.served.bounds_of(&sampler);
    if fields.or("record_stability_info", false)? {
        return bad(
            "record_stability_info isn't supported: it is for the loss stable_reinforce, whose formula isn't published; use importance_sampling, ppo or cispo as loss_fn",
        );
    }
    let alternatives: usize = fields.or("prompt_alt_tokens_k", 0)?;
    check(alternatives == 0, "prompt_alt_tokens_k", alternatives, "0 (other values aren't supported)")?;
    let mut input = fields.inner("prompt.")?;
    let mut prompt = Vec::new();
    for InputChunk { tokens, kind } in input.need::<Vec<_>>("chunks")? {
        let expected = "type \"encoded_text\" (models read only text)";
        check(kind == "encoded_text", "prompt.chunks", format!("type {kind:?}"), expected)?;
        for id in tokens {
            prompt.push(bounds.token(id).map_err(|why| format!("prompt: {why}"))?);
        }
    }
    input.end()?;
    let mut params = fields.inner("sampling_params.")?;
    let stop = match params.take("stop")? {
        None => Stop::default(),
        Some(StopField::Text(text)) => Stop { tokens: Some(Vec::new()), texts: vec![text] },
        Some(StopField::Texts(texts)) => Stop { tokens: Some(Vec::new()), texts },
        Some(StopField::Tokens(ids)) => {
            let tokens = ids.into_iter().map(|id| bounds.token(id).map_err(|why| format!("stop: {why}")));
            Stop { tokens: Some(tokens.collect::<Result<_, _>>()?), texts: Vec::new() }
        }
    };
    let top_k: i64 = params.or("top_k", -1)?;
    check(top_k >= -1, "top_k", top_k, "at least 1, or -1 for no limit")?;
    let scorable = prompt.len().saturating_sub(1);
    let scored: bool = fields.or("prompt_logprobs", false)?;
    let last: Option<usize> = fields.take("prompt_logprobs_last_n")?;
    if let Some(n) = last {
        let expected = format!("1 to {scorable} with prompt_logprobs");
        check(scored && (1..=scorable).contains(&n), "prompt_logprobs_last_n", n, expected)?;
    }
    let sample = Sample {
        sampler,
        samples: fields.or("num_samples", 1)?,
        max_tokens: params.take("max_tokens")?,
        seed: params.take::<i64>("seed")?.map(|seed| seed as u64),
        place,
        stop,
        temperature: params.or("temperature", 1.0)?,
        top_k: top_k.max(0) as usize,
        top_p: params.or("top_p", 1.0)?,
        min_p: 0.0,
        prompt_logprobs: scored.then_some(last.unwrap_or(scorable)),
        topk_prompt: fields.or("topk_prompt_logprobs", 0)?,
        topk_sample: fields.or("topk_sample_logprobs", 0)?,
        targets: target_ids(&mut fields.inner("target_prompt_logprobs.")?, scorable, bounds)?,
        prompt,
    };
    params.end()?;
    check_sampling(&sample, bounds, "num_samples")?;
    Ok(Asked { work: Work::Sample(sample), slot })
}

/// Reads the ids of `target_prompt_logprobs`, a dense tensor in which -1 means no target.
fn target_ids(tensor: &mut Fields, rows: usize, bounds: Bounds) -> Result<Option<Matrix<i64>>, Refusal> {
    if tensor.rest.is_empty() {
        return Ok(None);
    }
    let place = "target_prompt_logprobs";
    let dtype: String = tensor.need("dtype")?;
    check(dtype == "int64", place, dtype, "int64")?;
    for name in ["sparse_crow_indices", "sparse_col_indices"] {
        let sparse = tensor.take::<Value>(name)?.is_some();
        check(!sparse, place, "a sparse tensor", "a dense tensor with -1 for no target")?;
    }
    let (shape, numbers): (Vec<usize>, Vec<i64>) = (tensor.need("shape")?, tensor.need("data")?);
    let columns = shape.get(1).copied().unwrap_or(0);
    let fine = shape.len() == 2 && shape[0] == rows && columns > 0;
    let fine = fine && rows.checked_mul(columns) == Some(numbers.len());
    let expected = format!("[{rows}, K] for the prompt's positions after the first");
    check(fine, place, format!("shape {shape:?}"), expected)?;
    let present: Vec<bool> = numbers.iter().map(|&id| id != -1).collect();
    for (&id, _) in numbers.iter().zip(&present).filter(|(_, present)| **present) {
        bounds.token(id).map_err(|why| format!("{place}: {why}"))?;
    }
    Ok(Some(Matrix { columns, numbers, present, two_dimensional: true }))
}
