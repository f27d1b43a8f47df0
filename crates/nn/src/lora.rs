//! LoRA: the adapted matrices, the layout of the factors, and PEFT's `adapter_config.json`.
//!
//! An adapted matrix is `W = W0 + scale · B A` with `A`: `[rank, inputs]` and `B`: `[outputs, rank]`. The engine stores the sum, so only the
//! weights' backward pass and the optimizer use the factors. A quantized base can't hold the sum, so every pass computes with base and factors.
//!
//! Differences from PEFT: there is no dropout, because sampler and learner must compute the same function. Tensors that an adapter trains
//! outside of the layers' matrices (whole modules, factors of embedding, head and Gemma 4's per-layer projection) are read for sampling, scoring and merging, but can't be trained further.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::config::Config;
use crate::config::fields::read_object;
use crate::error::Error;
use crate::families::is_left_out;
use crate::layout::{Kind, Layout, Linear, Span, TensorLayout};
use crate::quantized::BaseFormat;
use crate::weights::{TensorFile, text_name};

/// File names of an adapter in PEFT.
pub(crate) const ADAPTER_CONFIG: &str = "adapter_config.json";
pub(crate) const ADAPTER_WEIGHTS: &str = "adapter_model.safetensors";
/// Metadata key of an adapter's weights for the format of its base, for which PEFT's settings lack a field.
pub(crate) const BASE: &str = "fgrpo.base";

/// Opens the weights in an adapter folder. Names of a multimodal model's text part become those of the text model.
/// Returns an error if the folder doesn't contain weights. For weights in PyTorch's format, the error contains the command that converts them.
pub(crate) fn open_weights(dir: &Path) -> Result<TensorFile, Error> {
    let path = dir.join(ADAPTER_WEIGHTS);
    let pickled = dir.join("adapter_model.bin");
    if path.exists() {
        let mut file = TensorFile::open(&path)?;
        file.rename(|name| Some(format!("{PEFT}{}", text_name(name.strip_prefix(PEFT)?)?)));
        return Ok(file);
    }
    if pickled.exists() {
        let (from, to) = (pickled.display(), path.display());
        let expected = format!(
            "{ADAPTER_WEIGHTS}: python -c \"import torch, safetensors.torch as s; s.save_file(torch.load('{from}', weights_only=True), '{to}')\""
        );
        return Err(Error::file(pickled, "weights in PyTorch's format", expected));
    }
    Err(Error::file(path, "no such file", "an adapter's weights in safetensors"))
}

/// LoRA settings, with PEFT's names for settings that PEFT has too.
#[derive(Debug, Clone, PartialEq)]
pub struct LoraConfig {
    /// Number of rows of `A` and of columns of `B` (PEFT's `r`); at least 1.
    pub rank: usize,
    /// PEFT's `lora_alpha`. The update is multiplied by `alpha / rank`, or with `use_rslora` by `alpha / √rank`.
    pub alpha: f64,
    /// Adapted matrices, by the last part of their names: a subset of [`LoraConfig::TARGETS`] (PEFT's `target_modules`).
    pub targets: Vec<String>,
    /// Whether the scale is `alpha / √rank` instead of `alpha / rank`.
    pub use_rslora: bool,
}

impl Default for LoraConfig {
    /// Returns rank 16, alpha 32 and every matrix of the layers.
    fn default() -> Self {
        let targets = LoraConfig::TARGETS.map(str::to_string).to_vec();
        LoraConfig { rank: 16, alpha: 32.0, targets, use_rslora: false }
    }
}

impl LoraConfig {
    /// Matrices that can be adapted: those of attention, recurrent mixers, the MLP and per-layer inputs. A model need not have all of them.
    pub const TARGETS: [&str; 20] = [
        "q_proj",
        "k_proj",
        "v_proj",
        "qkv_proj",
        "o_proj",
        "in_proj_qkv",
        "in_proj_z",
        "in_proj_b",
        "in_proj_a",
        "in_proj",
        "out_proj",
        "gate_proj",
        "up_proj",
        "gate_up_proj",
        "down_proj",
        "w1",
        "w3",
        "w2",
        "per_layer_input_gate",
        "per_layer_projection",
    ];

    /// Range of the recurrent mixers' matrices in [`LoraConfig::TARGETS`]; attention's precede them, and the others follow.
    pub const MIXER: std::ops::Range<usize> = 5..11;

    /// Checks the settings. The error names the field if the rank is 0, alpha isn't a positive number, or the targets are empty, repeated or
    /// unknown.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |field: &'static str, found: String, expected: String| {
            Err(Error::request(field, found, expected))
        };
        if self.rank == 0 || self.rank > 1 << 16 {
            return refuse("lora.rank", self.rank.to_string(), "1 to 65536".into());
        }
        if !(self.alpha.is_finite() && self.alpha > 0.0) {
            return refuse("lora.alpha", self.alpha.to_string(), "a positive number".into());
        }
        if self.targets.is_empty() {
            return refuse("lora.targets", "none".into(), format!("some of {}", Self::TARGETS.join(", ")));
        }
        for (index, target) in self.targets.iter().enumerate() {
            if !Self::TARGETS.contains(&target.as_str()) {
                let is_outside = OUTSIDE.contains(&target.as_str());
                let why =
                    if is_outside { " (only matrices of the layers, not embedding and head)" } else { "" };
                let expected = format!("one of {}{why}", Self::TARGETS.join(", "));
                return refuse("lora.targets", target.clone(), expected);
            }
            if self.targets[..index].contains(target) {
                return refuse("lora.targets", format!("{target} twice"), "each target once".into());
            }
        }
        Ok(())
    }

    /// Restricts the targets to those that a model has. Returns an error if the model lacks all of them, or lacks one
    /// although the targets don't list all matrices of mixers, or all matrices that follow [`LoraConfig::MIXER`].
    pub(crate) fn of_model(&self, layout: &Layout) -> Result<LoraConfig, Error> {
        let has = |target: &String| {
            let single = LoraConfig { targets: vec![target.clone()], ..LoraConfig::default() };
            layout.tensors.iter().any(|tensor| single.adapts(&tensor.name))
        };
        let (targets, missing): (Vec<String>, Vec<String>) = self.targets.iter().cloned().partition(has);
        let lists =
            |names: &[&str]| names.iter().all(|name| self.targets.iter().any(|target| target == name));
        let general = lists(&Self::TARGETS[Self::MIXER]) || lists(&Self::TARGETS[Self::MIXER.end..]);
        if targets.is_empty() || !(missing.is_empty() || general) {
            return Err(Error::request("lora.targets", missing.join(", "), "matrices that the model has"));
        }
        Ok(LoraConfig { targets, ..self.clone() })
    }

    /// Returns the factor that multiplies `B A`.
    pub fn scale(&self) -> f64 {
        let rank = self.rank as f64;
        self.alpha / if self.use_rslora { rank.sqrt() } else { rank }
    }

    /// Returns the number of trained parameters for a model.
    pub fn parameters(&self, config: &Config) -> u64 {
        let adapted = config.tensors().into_iter().filter(|(name, _)| self.adapts(name));
        adapted.map(|(_, shape)| (shape.iter().sum::<usize>() * self.rank) as u64).sum()
    }

    /// Returns whether the tensor named `tensor` is adapted.
    pub(crate) fn adapts(&self, tensor: &str) -> bool {
        let module = tensor.strip_suffix(".weight").and_then(|name| name.rsplit('.').next());
        tensor.starts_with("model.layers.") && self.targets.iter().any(|target| Some(&**target) == module)
    }

    /// Reads the settings and the base model's name from an adapter folder in PEFT's layout, for an adapter that is to be trained further.
    /// The error names the field if the file is missing, isn't LoRA for a causal language model, uses an unsupported feature, or trains more
    /// than the layers' matrices.
    pub fn read(dir: &Path) -> Result<(LoraConfig, Option<String>), Error> {
        let (adapter, base) = Adapter::read(dir)?;
        let (field, found) = match (&adapter.saved[..], &adapter.outside[..]) {
            ([], []) => return Ok((adapter.lora, base)),
            ([], outside) => ("target_modules", outside),
            (saved, _) => ("modules_to_save", saved),
        };
        let expected = "only matrices of the layers; others can't be trained further, but `fgrpo merge` makes a model of this adapter, which can";
        let place = dir.join(ADAPTER_CONFIG).display().to_string();
        Err(Error::Config { place, field: field.into(), found: found.join(", "), expected: expected.into() })
    }

    /// Returns the format of the base that an adapter was trained on, from the metadata of its weights, or `None` if it isn't recorded, as in
    /// PEFT's files. Returns an error if the folder doesn't contain weights or the format is unknown.
    pub fn trained_on(dir: &Path) -> Result<Option<BaseFormat>, Error> {
        let file = open_weights(dir)?;
        let Some(name) = file.metadata().remove(BASE) else { return Ok(None) };
        let formats = BaseFormat::ALL.map(BaseFormat::name).join(", ");
        let unknown = || {
            Error::file(file.path(), format!("{BASE} {name:?} in its metadata"), format!("one of {formats}"))
        };
        BaseFormat::named(&name).map(Some).ok_or_else(unknown)
    }

    /// Writes the settings in PEFT's form.
    pub(crate) fn to_json(&self, base: &str) -> Value {
        let alpha = if self.alpha.fract() == 0.0 { json!(self.alpha as u64) } else { json!(self.alpha) };
        json!({
            "alpha_pattern": {}, "auto_mapping": null, "base_model_name_or_path": base, "bias": "none",
            "fan_in_fan_out": false, "inference_mode": true, "init_lora_weights": true, "layers_pattern": null,
            "layers_to_transform": null, "lora_alpha": alpha, "lora_dropout": 0.0, "modules_to_save": null,
            "peft_type": "LORA", "r": self.rank, "rank_pattern": {}, "revision": null,
            "target_modules": self.targets, "task_type": "CAUSAL_LM", "use_dora": false,
            "use_rslora": self.use_rslora,
        })
    }
}

/// Settings of an adapter folder, including the parts that this engine can't train further.
#[derive(Debug)]
pub(crate) struct Adapter {
    /// Settings of the factors. The targets are those in the layers, and may be empty.
    pub(crate) lora: LoraConfig,
    /// Suffixes of the names of modules that are trained whole (PEFT's `modules_to_save`).
    saved: Vec<String>,
    /// Members of [`OUTSIDE`] that have factors.
    outside: Vec<String>,
    /// Whether a head that is tied to the embedding stays tied (PEFT's `ensure_weight_tying`).
    ties: bool,
}

/// A tensor outside of the layers' matrices that an adapter trains.
pub(crate) struct Trained {
    pub(crate) values: Vec<f32>,
    /// Update to add to the values, or `None` if the adapter doesn't have factors of this tensor.
    pub(crate) update: Option<Update>,
}

/// The update `scale · B A` of a matrix: `A` is `[rank, inputs]`, `B` is `[outputs, rank]`.
pub(crate) struct Update {
    /// Outputs, inputs and rank.
    pub(crate) sizes: [usize; 3],
    pub(crate) a: Vec<f32>,
    pub(crate) b: Vec<f32>,
    pub(crate) scale: f32,
}

/// Matrices outside of the layers that may have factors.
const OUTSIDE: [&str; 3] = ["embed_tokens", "lm_head", "per_layer_model_projection"];
const EMBEDDING: &str = "model.embed_tokens";
const HEAD: &str = "lm_head";

impl Adapter {
    /// Reads the settings and the base model's name from a folder in PEFT's layout.
    pub(crate) fn read(dir: &Path) -> Result<(Adapter, Option<String>), Error> {
        let path = dir.join(ADAPTER_CONFIG);
        let mut fields = read_object(&path)?;
        // If the targets are a pattern, the file has the modules that matched it.
        if fields.get("target_modules").is_some_and(|targets| targets.is_string() && targets != "all-linear")
        {
            let file = open_weights(dir)?;
            let factors =
                file.names().filter_map(|name| name.strip_prefix(PEFT)?.strip_suffix(".lora_A.weight"));
            fields.insert("target_modules".into(), factors.collect());
        }
        from_fields(&fields, &path.display().to_string())
    }

    /// Returns whether the adapter makes embedding and head differ in a model that ties them.
    pub(crate) fn unties(&self) -> bool {
        [EMBEDDING, HEAD].iter().any(|module| self.saves(module, true) || self.has_factors(module, true))
    }

    fn saves(&self, module: &str, tied: bool) -> bool {
        let lists = |module: &str| self.saved.iter().any(|end| module.ends_with(end.as_str()));
        lists(module) || (tied && self.ties && tied_module(module).is_some_and(lists))
    }

    fn has_factors(&self, module: &str, tied: bool) -> bool {
        let lists = |module: &str| self.outside.iter().any(|end| module.ends_with(end.as_str()));
        lists(module) || (tied && self.ties && tied_module(module).is_some_and(lists))
    }

    /// Reads a tensor outside of the layers' factors as the adapter trains it, or returns `None` if the adapter doesn't train it.
    /// `tied` is whether the base model ties head and embedding, and `base` returns the tensor's values in the base model. The names that are
    /// read from the file are added to `used`.
    pub(crate) fn tensor(
        &self,
        name: &str,
        shape: &[usize],
        tied: bool,
        file: &TensorFile,
        base: &dyn Fn() -> Result<Vec<f32>, Error>,
        used: &mut BTreeSet<String>,
    ) -> Result<Option<Trained>, Error> {
        let (module, part) = name.rsplit_once('.').expect("a module and its parameter");
        let (saved, factors) = (self.saves(module, tied), self.has_factors(module, tied));
        let mut places = vec![format!("{PEFT}{name}")];
        if !saved && (factors || tied_module(module).is_some()) {
            // PEFT also writes the matrix beside its factors; if embedding and head are tied, it may write either of them.
            places.push(format!("{PEFT}{module}.base_layer.{part}"));
            if let Some(other) = tied_module(module).filter(|other| tied && !self.saves(other, true)) {
                places.extend(["", "base_layer."].map(|inner| format!("{PEFT}{other}.{inner}{part}")));
            }
        } else if !saved {
            return Ok(None);
        }
        let present: Vec<String> = places.into_iter().filter(|place| file.shape(place).is_some()).collect();
        let values = match present.first() {
            Some(place) => {
                file.check(place, shape)?;
                file.tensor(place)?
            }
            None if saved => {
                let expected = "it, as modules_to_save says";
                return Err(Error::tensor(file.path(), format!("{PEFT}{name}"), "no such tensor", expected));
            }
            None if !factors => return Ok(None),
            None => base()?,
        };
        used.extend(present);
        if !factors {
            return Ok(Some(Trained { values, update: None }));
        }
        let ([n, k], r) = ([shape[0], shape[1]], self.lora.rank);
        let mut factor = |name: &str, shape: [usize; 2]| {
            let name = format!("{PEFT}{module}.{name}");
            file.check(&name, &shape)?;
            let values = file.tensor(&name)?;
            used.insert(name);
            Ok(values)
        };
        let (a, b) = match module {
            // An embedding is a linear map of one-hot rows, with the weight transposed.
            EMBEDDING => (
                transposed(&factor("lora_embedding_B", [k, r])?, r),
                transposed(&factor("lora_embedding_A", [r, n])?, n),
            ),
            _ => (factor("lora_A.weight", [r, k])?, factor("lora_B.weight", [n, r])?),
        };
        let update = Update { sizes: [n, k, r], a, b, scale: self.lora.scale() as f32 };
        Ok(Some(Trained { values, update: Some(update) }))
    }

    /// Returns the first entry of `modules_to_save` that doesn't match a tensor.
    pub(crate) fn unknown<'a>(&'a self, config: &Config) -> Option<&'a String> {
        let mut names: Vec<String> = config.tensors().into_iter().map(|(name, _)| name).collect();
        names.push(format!("{HEAD}.weight"));
        let exists = |end: &String| {
            names.iter().any(|name| name.rsplit_once('.').is_some_and(|(module, _)| module.ends_with(&**end)))
        };
        self.saved.iter().find(|end| !exists(end))
    }
}

/// Returns the head's module name, given the embedding's, and vice versa. `None` for other modules.
fn tied_module(module: &str) -> Option<&'static str> {
    match module {
        EMBEDDING => Some(HEAD),
        HEAD => Some(EMBEDDING),
        _ => None,
    }
}

fn transposed(matrix: &[f32], columns: usize) -> Vec<f32> {
    (0..columns).flat_map(|column| matrix.iter().skip(column).step_by(columns).copied()).collect()
}

/// Prefix of the names in an adapter's file.
pub(crate) const PEFT: &str = "base_model.model.";

/// Returns the name of a factor in the adapter of a multimodal model, whose text part has the model with these layers.
pub(crate) fn name_in_whole(factor: &str) -> String {
    factor.replacen("model.layers.", "model.language_model.layers.", 1)
}

/// Settings of PEFT that are read elsewhere or don't affect the values.
const FREE: [&str; 15] = [
    "r",
    "lora_alpha",
    "target_modules",
    "use_rslora",
    "base_model_name_or_path",
    "revision",
    "inference_mode",
    "lora_dropout",
    "peft_version",
    "auto_mapping",
    "megatron_core",
    "qalora_group_size",
    "runtime_config",
    "ensure_weight_tying",
    "modules_to_save",
];

fn from_fields(fields: &Map<String, Value>, place: &str) -> Result<(Adapter, Option<String>), Error> {
    let refuse = |field: &str, expected: &str| -> Error {
        let found = fields.get(field).map_or("nothing".into(), Value::to_string);
        Error::Config { place: place.into(), field: field.into(), found, expected: expected.into() }
    };
    let neutral = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    for (field, value) in fields {
        let text = value.as_str();
        let (fine, expected) = match field.as_str() {
            "peft_type" => (text == Some("LORA"), "LORA"),
            "task_type" => (value.is_null() || text == Some("CAUSAL_LM"), "CAUSAL_LM"),
            "bias" => (text == Some("none"), "none"),
            // Other initial values change the base model's weights too.
            "init_lora_weights" => {
                (value.is_boolean() || text == Some("gaussian"), "true, false or gaussian")
            }
            name if FREE.contains(&name) => (true, ""),
            _ => (neutral(value), "nothing: this setting of PEFT is not supported"),
        };
        if !fine {
            return Err(refuse(field, expected));
        }
    }
    if !fields.contains_key("peft_type") {
        return Err(refuse("peft_type", "LORA"));
    }
    let rank = fields.get("r").and_then(Value::as_u64).ok_or_else(|| refuse("r", "a positive integer"))?;
    let alpha = fields.get("lora_alpha").and_then(Value::as_f64);
    let mut targets: Vec<String> = match fields.get("target_modules") {
        Some(Value::String(all)) if all == "all-linear" => LoraConfig::default().targets,
        Some(Value::Array(list)) => list
            .iter()
            .map(|target| target.as_str())
            .filter(|target| !target.is_some_and(is_left_out))
            .map(|target| target.map(module))
            .collect::<Option<BTreeSet<String>>>()
            .ok_or_else(|| refuse("target_modules", "a list of names"))?
            .into_iter()
            .collect(),
        _ => return Err(refuse("target_modules", "a list of names, or all-linear")),
    };
    let list = |field: &str| match fields.get(field) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => list
            .iter()
            .map(|name| name.as_str().filter(|name| !name.is_empty()).map(str::to_string))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| refuse(field, "a list of names")),
        _ => Err(refuse(field, "a list of names")),
    };
    let saved = list("modules_to_save")?;
    let outside: Vec<String> = targets.extract_if(.., |target| OUTSIDE.contains(&&**target)).collect();
    // PEFT writes a set in arbitrary order; sort as in the layer.
    let rank_of = |target: &String| LoraConfig::TARGETS.iter().position(|name| name == target);
    targets.sort_by_key(rank_of);
    let lora = LoraConfig {
        rank: usize::try_from(rank).map_err(|_| refuse("r", "1 to 65536"))?,
        alpha: alpha.ok_or_else(|| refuse("lora_alpha", "a positive number"))?,
        targets,
        use_rslora: fields.get("use_rslora") == Some(&Value::Bool(true)),
    };
    // If only embedding or head have factors, check the other settings with valid targets.
    let checked = if lora.targets.is_empty() && !outside.is_empty() {
        LoraConfig { targets: LoraConfig::default().targets, ..lora.clone() }
    } else {
        lora.clone()
    };
    checked.check().map_err(|error| match error {
        Error::Request { field, found, expected } => {
            let field = match field {
                "lora.rank" => "r",
                "lora.alpha" => "lora_alpha",
                _ => "target_modules",
            };
            Error::Config { place: place.into(), field: field.into(), found, expected }
        }
        other => other,
    })?;
    let base = fields.get("base_model_name_or_path").and_then(Value::as_str);
    let ties = fields.get("ensure_weight_tying") == Some(&Value::Bool(true));
    let adapter = Adapter { lora, saved, outside, ties };
    Ok((adapter, base.filter(|base| !base.is_empty()).map(str::to_string)))
}

/// Returns the last part of a target that is a full path, as PEFT writes targets for `all-linear`. Reading the factors checks that all layers are listed.
fn module(target: &str) -> String {
    let inner = text_name(target);
    let target = inner.as_deref().unwrap_or(target);
    if let Some(outside) = target.strip_prefix("model.").filter(|name| OUTSIDE.contains(name)) {
        return outside.into();
    }
    let path = target.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.'));
    match path.map(|(layer, module)| (layer.parse::<usize>(), module.split_once('.'))) {
        Some((Ok(_), Some(("self_attn" | "linear_attn" | "conv" | "mlp" | "feed_forward", module)))) => {
            module.into()
        }
        Some((Ok(_), None)) => path.map_or(target, |(_, module)| module).into(),
        _ => target.into(),
    }
}

/// An adapted matrix, which is a range of the outputs of a linear map, or the part of a matrix that belongs to one map. Parts share `a`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Adapted {
    /// Span in the weight store.
    pub(crate) weight: Span,
    /// Offset of the linear map's weight.
    pub(crate) linear: usize,
    /// Number of outputs of the linear map.
    pub(crate) stride: usize,
    /// First of the linear map's outputs that belongs to this matrix.
    pub(crate) first: usize,
    pub(crate) outputs: usize,
    pub(crate) inputs: usize,
    pub(crate) rank: usize,
    /// Span of `A` in the adapter store. `b` is the span of `B`.
    pub(crate) a: Span,
    pub(crate) b: Span,
}

impl Adapted {
    /// Returns the number of outputs, the number of inputs, and the rank.
    pub(crate) fn sizes(&self) -> [usize; 3] {
        [self.outputs, self.inputs, self.rank]
    }
}

/// Layout of a model's adapters in a separate store.
#[derive(Debug, Clone)]
pub(crate) struct AdapterLayout {
    /// Adapted matrices in the weight store's order, with two entries if a matrix's outputs belong to two linear maps.
    pub(crate) adapted: Vec<Adapted>,
    /// The factors under PEFT's names, `A` before `B`.
    pub(crate) tensors: Vec<TensorLayout>,
    pub(crate) len: usize,
    pub(crate) scale: f32,
    /// Whether the weights hold the sum of base and update. If not, passes add the update to each linear map's result.
    pub(crate) merged: bool,
}

impl AdapterLayout {
    pub(crate) fn new(layout: &Layout, lora: &LoraConfig) -> AdapterLayout {
        let mut linears: Vec<&Linear> = layout.layers.iter().flat_map(|layer| layer.linears()).collect();
        linears.sort_unstable_by_key(|linear| linear.weight.offset);
        let (mut adapted, mut tensors, mut len) = (Vec::new(), Vec::new(), 0usize);
        for tensor in layout.tensors.iter().filter(|tensor| lora.adapts(&tensor.name)) {
            let (outputs, inputs, rank) = (tensor.shape[0], tensor.shape[1], lora.rank);
            let module = tensor.name.strip_suffix(".weight").expect("a matrix's name");
            let mut put = |factor: &str, shape: [usize; 2]| {
                // Aligned to cache lines, like all parameters.
                let offset = len.next_multiple_of(16);
                let span = Span { offset, len: shape[0] * shape[1] };
                len = offset + span.len;
                let name = format!("{PEFT}{module}.lora_{factor}.weight");
                tensors.push(TensorLayout { name, shape: shape.to_vec(), span, kind: Kind::Matrix });
                span
            };
            let (a, b) = (put("A", [rank, inputs]), put("B", [outputs, rank]));
            for linear in &linears {
                let Some(weight) = linear.weight.intersection(tensor.span) else { continue };
                let (outputs, row) = (weight.len / inputs, (weight.offset - tensor.span.offset) / inputs);
                adapted.push(Adapted {
                    weight,
                    linear: linear.weight.offset,
                    stride: linear.outputs,
                    first: (weight.offset - linear.weight.offset) / inputs,
                    outputs,
                    inputs,
                    rank,
                    a,
                    b: Span { offset: b.offset + row * rank, len: outputs * rank },
                });
            }
        }
        AdapterLayout {
            adapted,
            tensors,
            len: len.next_multiple_of(16),
            scale: lora.scale() as f32,
            merged: layout.base.is_none(),
        }
    }

    /// Returns the adapted parts of a linear map.
    pub(crate) fn of(&self, linear: &Linear) -> &[Adapted] {
        let at = |offset: usize| self.adapted.partition_point(|adapted| adapted.linear < offset);
        &self.adapted[at(linear.weight.offset)..at(linear.weight.offset + 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_settings_are_refused_by_field() {
        let wrong = [
            (LoraConfig { rank: 0, ..LoraConfig::default() }, "lora.rank"),
            (LoraConfig { alpha: 0.0, ..LoraConfig::default() }, "lora.alpha"),
            (LoraConfig { targets: vec![], ..LoraConfig::default() }, "lora.targets"),
            (LoraConfig { targets: vec!["lm_head".into()], ..LoraConfig::default() }, "embedding and head"),
            (LoraConfig { targets: vec!["qproj".into()], ..LoraConfig::default() }, "qproj"),
            (LoraConfig { targets: vec!["q_proj".into(); 2], ..LoraConfig::default() }, "twice"),
        ];
        for (lora, part) in wrong {
            let message = lora.check().unwrap_err().to_string();
            assert!(message.contains(part), "{message:?} lacks {part:?}");
        }
        LoraConfig::default().check().unwrap();
    }

    fn read(change: impl FnOnce(&mut Map<String, Value>)) -> Result<(LoraConfig, Option<String>), Error> {
        let mut value = LoraConfig::default().to_json("some/base");
        change(value.as_object_mut().unwrap());
        from_fields(value.as_object().unwrap(), "adapter_config.json")
            .map(|(adapter, base)| (adapter.lora, base))
    }

    #[test]
    fn settings_round_trip_through_pefts_format() {
        assert_eq!(read(|_| {}).unwrap(), (LoraConfig::default(), Some("some/base".into())));
        let reordered = read(|fields| {
            fields.insert("target_modules".into(), json!(["v_proj", "q_proj"]));
            fields.insert("lora_dropout".into(), json!(0.05));
            fields.insert("use_rslora".into(), json!(true));
        });
        let (lora, _) = reordered.unwrap();
        assert_eq!((lora.targets, lora.use_rslora), (vec!["q_proj".to_string(), "v_proj".into()], true));
        let paths = read(|fields| {
            let paths = ["1.mlp.up_proj", "0.self_attn.k_proj", "0.mlp.up_proj"];
            let paths = paths.map(|path| format!("model.layers.{path}"));
            fields.insert("target_modules".into(), json!(paths));
        });
        assert_eq!(paths.unwrap().0.targets, ["k_proj", "up_proj"]);
        let all = read(|fields| drop(fields.insert("target_modules".into(), json!("all-linear"))));
        assert_eq!(all.unwrap().0.targets, LoraConfig::TARGETS);
    }

    #[test]
    fn unsupported_settings_of_peft_are_refused_by_name() {
        for (field, value) in [
            ("peft_type", json!("IA3")),
            ("task_type", json!("SEQ_CLS")),
            ("bias", json!("all")),
            ("use_dora", json!(true)),
            ("fan_in_fan_out", json!(true)),
            ("modules_to_save", json!("lm_head")),
            ("layers_to_transform", json!([0])),
            ("rank_pattern", json!({"q_proj": 4})),
            ("alpha_pattern", json!({"q_proj": 4})),
            ("init_lora_weights", json!("pissa")),
            ("target_modules", json!(".*proj")),
            ("target_modules", json!(["q_proj", "lm_heads"])),
            ("r", json!(-1)),
            ("lora_alpha", json!("much")),
            ("some_new_setting", json!(3)),
        ] {
            let message = read(|fields| drop(fields.insert(field.into(), value))).unwrap_err().to_string();
            assert!(message.contains(field), "{message:?} lacks {field:?}");
        }
        for field in ["peft_type", "r", "lora_alpha", "target_modules"] {
            let message = read(|fields| drop(fields.remove(field))).unwrap_err().to_string();
            assert!(message.contains(field), "{message:?} lacks {field:?}");
        }
    }
}
