//! Checkpoints: Hugging Face folders (`config.json`, `generation_config.json` and safetensors weights, in one file or in shards), and GGUF files.
//!
//! Reading maps the files and converts tensors on request; writing streams tensors into shards. Tokenizers and chat templates are the caller's job.

pub(crate) mod bitsandbytes;
mod file;
mod gguf;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

pub use crate::dtype::Dtype;
pub use file::TensorFile;
pub use gguf::{END_TOKENS, Gguf, GgufType, Item, write_gguf};
pub(crate) use write::write_json;
pub use write::{TensorWriter, write_checkpoint};

use crate::config::fields::read_object;
use crate::config::{Config, end_tokens};
use crate::error::Error;
use crate::families::{LEFT_OUT, is_layer_matrix};
use crate::quantized::{BaseFormat, Quantized};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Returns the text model's name for a tensor of a multimodal model, or `None` if its name doesn't change: in transformers the text model is
/// `model.language_model`, and in some files `language_model` with its head.
pub(crate) fn text_name(name: &str) -> Option<String> {
    let inner = name.strip_prefix("model.language_model.").map(|rest| format!("model.{rest}"));
    inner.or_else(|| name.strip_prefix("language_model.").map(str::to_string))
}

/// An opened checkpoint. All tensors exist, with the right shape and a supported type.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    config: Config,
    source: Source,
    /// Whether a tied head became separate by [`Checkpoint::untied`]. The file then lacks `lm_head.weight`, which is read from the embedding instead.
    untied: bool,
    /// Whether the tensors are named as the text part of a multimodal model.
    pub(crate) inner: bool,
}

/// Location of the tensors.
#[derive(Debug)]
enum Source {
    Folder {
        files: Vec<TensorFile>,
        /// Index into `files` of each tensor's file.
        file_of: BTreeMap<String, usize>,
    },
    Gguf(Gguf),
}

impl Checkpoint {
    /// Opens a folder or a GGUF file, and checks the names, shapes and types of its tensors against `config.json` or the metadata. No values are read.
    ///
    /// The end-of-sequence tokens in `generation_config.json` take precedence, as in transformers' `generate`.
    pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint, Error> {
        let dir = path.as_ref();
        if Gguf::is(dir) {
            let gguf = Gguf::open(dir)?;
            let config = Config::from_json(&gguf.config()?, &dir.display().to_string())?;
            gguf.check(&config)?;
            return Ok(Checkpoint {
                path: dir.into(),
                config,
                source: Source::Gguf(gguf),
                untied: false,
                inner: false,
            });
        }
        check_folder(dir)?;
        let mut config = Config::read(&dir.join("config.json"))?;
        if let Some(ids) = end_tokens(&dir.join("generation_config.json"))? {
            config.eos_token_id = ids;
        }
        let (mut files, mut file_of) = open_files(dir)?;
        let mut inner = false;
        if config.architecture.family().whole.is_some() {
            file_of.clear();
            for (i, file) in files.iter_mut().enumerate() {
                inner |= file.rename(text_name);
                file_of.extend(file.names().map(|name| (name.to_string(), i)));
            }
        }
        let source = Source::Folder { files, file_of };
        let checkpoint = Checkpoint { path: dir.into(), config, source, untied: false, inner };
        checkpoint.check_tensors()?;
        Ok(checkpoint)
    }

    /// Turns a checkpoint with a tied head into one with a separate head that has the embedding's values.
    pub(crate) fn untied(mut self) -> Checkpoint {
        self.config.tie_word_embeddings = false;
        self.untied = true;
        self
    }

    /// Returns the configuration of the model.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the path of the folder or file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the names of the model's tensors, in the order of [`Config::tensors`].
    pub fn names(&self) -> Vec<String> {
        self.config.tensors().into_iter().map(|(name, _)| name).collect()
    }

    /// Returns the number type that most bytes of the weights have. Use it to write the weights back.
    pub fn dtype(&self) -> Dtype {
        let mut bytes = BTreeMap::new();
        for name in self.stored() {
            if let Ok((data, dtype)) = self.raw(name) {
                *bytes.entry(dtype).or_insert(0) += data.len();
            }
        }
        bytes.into_iter().max_by_key(|(_, n)| *n).map_or(Dtype::F32, |(dtype, _)| dtype)
    }

    /// Returns the format of the layers' matrices if bitsandbytes has quantized all of them, otherwise `None`.
    pub fn base(&self) -> Option<BaseFormat> {
        let (matrices, quantized) = self.layer_matrices();
        (quantized == matrices).then_some(BaseFormat::Nf4)
    }

    /// Returns the number of matrices of the layers, and the number of quantized matrices.
    pub(crate) fn layer_matrices(&self) -> (usize, usize) {
        let tensors = self.config.tensors();
        let is_matrix = |(name, shape): &&(String, Vec<usize>)| is_layer_matrix(name, shape);
        let matrices = tensors.iter().filter(is_matrix);
        (matrices.clone().count(), matrices.filter(|(name, _)| self.is_quantized(name)).count())
    }

    /// Reads a tensor's values in `f32`, in row-major order. Returns an error if a value is not finite.
    pub fn tensor(&self, name: &str) -> Result<Vec<f32>, Error> {
        let tensors = self.config.tensors();
        let shape = tensors.iter().find(|(other, _)| other == name).map(|(_, shape)| shape);
        let mut values = vec![0.0; shape.ok_or_else(|| self.missing(name))?.iter().product()];
        self.read_into(name, &mut values)?;
        Ok(values)
    }

    /// Reads a matrix that bitsandbytes has quantized; `None` for other tensors.
    pub(crate) fn quantized(&self, name: &str) -> Result<Option<Quantized>, Error> {
        if !self.is_quantized(name) {
            return Ok(None);
        }
        let tensors = self.config.tensors();
        let (_, shape) = tensors.iter().find(|(other, _)| other == name).expect("a tensor of the model");
        bitsandbytes::read(name, shape, &|tensor| self.file(tensor)).map(Some)
    }

    fn is_quantized(&self, name: &str) -> bool {
        match &self.source {
            Source::Folder { file_of, .. } => file_of.contains_key(&bitsandbytes::state_name(name)),
            Source::Gguf(_) => false,
        }
    }

    /// Like [`Checkpoint::tensor`], but reads into the caller's buffer.
    ///
    /// # Panics
    /// If `out` is not as long as the tensor.
    pub fn read_into(&self, name: &str, out: &mut [f32]) -> Result<(), Error> {
        let name = if self.untied && name == "lm_head.weight" { "model.embed_tokens.weight" } else { name };
        if let Source::Gguf(gguf) = &self.source {
            return gguf.read_into(name, &self.config, out);
        }
        if let Some(matrix) = self.quantized(name)? {
            matrix.write_rows(0..matrix.rows, out);
            return Ok(());
        }
        self.file(name)?.read_into(name, out)
    }

    /// Returns a folder's tensor as stored: little-endian bytes and their type.
    fn raw(&self, name: &str) -> Result<(&[u8], Dtype), Error> {
        self.file(name)?.raw(name)
    }

    /// Returns the names of all tensors in a folder's files.
    fn stored(&self) -> impl Iterator<Item = &String> {
        let file_of = match &self.source {
            Source::Folder { file_of, .. } => Some(file_of),
            Source::Gguf(_) => None,
        };
        file_of.into_iter().flat_map(BTreeMap::keys)
    }

    fn file(&self, name: &str) -> Result<&TensorFile, Error> {
        let file = match &self.source {
            Source::Folder { files, file_of } => file_of.get(name).map(|&i| &files[i]),
            Source::Gguf(_) => None,
        };
        file.ok_or_else(|| self.missing(name))
    }

    fn missing(&self, name: &str) -> Error {
        Error::tensor(self.path.clone(), name, "no such tensor", "a tensor of the checkpoint")
    }

    fn check_tensors(&self) -> Result<(), Error> {
        let expected = self.config.tensors();
        let missing: Vec<_> = expected.iter().filter(|(name, _)| self.file(name).is_err()).collect();
        if let Some((name, shape)) = missing.first() {
            let remedy = match (name.as_str(), missing.len()) {
                ("lm_head.weight", 1) => {
                    "; set tie_word_embeddings to true in config.json if the head shares the embedding".into()
                }
                (_, 1) => String::new(),
                (_, n) => format!(" ({} more are missing)", n - 1),
            };
            return Err(Error::tensor(
                self.path.clone(),
                name.clone(),
                "no such tensor",
                format!("shape {shape:?}{remedy}"),
            ));
        }
        for (name, shape) in &expected {
            if is_layer_matrix(name, shape) && self.is_quantized(name) {
                bitsandbytes::check(name, shape, &|tensor| self.file(tensor))?;
            } else {
                self.file(name)?.check(name, shape)?;
            }
        }
        let names: BTreeSet<&str> = expected.iter().map(|(name, _)| name.as_str()).collect();
        let parts = if self.config.architecture.family().whole.is_some() { &LEFT_OUT[..] } else { &[] };
        for part in parts {
            let count = self.stored().filter(|name| name.starts_with(part)).count();
            if count > 0 {
                let path = self.path.display();
                tracing::warn!(
                    "{path}: ignoring {count} tensors {part}*, which are not part of the text model"
                );
            }
        }
        for name in self.stored().filter(|name| !names.contains(name.as_str())) {
            // Old Llama files contain rotary tables, which the configuration determines.
            let is_unused = self.config.architecture.family().is_unused;
            if name.ends_with(".rotary_emb.inv_freq")
                || parts.iter().any(|part| name.starts_with(part))
                || is_unused(&self.config, name)
            {
                continue;
            }
            if bitsandbytes::matrix_of(name)
                .is_some_and(|name| names.contains(name) && self.is_quantized(name))
            {
                continue;
            }
            let (found, expected) = if name == "lm_head.weight" {
                if self.raw(name)? == self.raw("model.embed_tokens.weight")? {
                    continue;
                }
                let found = "values that differ from the embedding's, although tie_word_embeddings is true";
                (found, "no separate head, or tie_word_embeddings false in config.json".to_string())
            } else {
                let class = self.config.architecture.class_name();
                ("a tensor that config.json does not account for", format!("only the tensors of {class}"))
            };
            let path = self.file(name)?.path().to_path_buf();
            return Err(Error::tensor(path, name.clone(), found, expected));
        }
        Ok(())
    }
}

/// Returns an error for a path that isn't a checkpoint folder; the error says what it is instead.
fn check_folder(dir: &Path) -> Result<(), Error> {
    let refuse = |found: &str, expected: &str| Err(Error::file(dir, found, expected));
    let expected = "a Hugging Face checkpoint folder (config.json and model.safetensors) or a .gguf file";
    let metadata = std::fs::metadata(dir).map_err(Error::io("open checkpoint folder", dir))?;
    if !metadata.is_dir() {
        return refuse("a file", expected);
    }
    let has = |name: &str| dir.join(name).exists();
    if !has("config.json") {
        if has("adapter_config.json") {
            return refuse("a LoRA adapter without its base model", expected);
        }
        return refuse("no config.json", expected);
    }
    if !has(SINGLE) && !has(INDEX) {
        if has("pytorch_model.bin") || has("pytorch_model.bin.index.json") {
            return refuse(
                "pickled weights (pytorch_model.bin)",
                "safetensors; save it with save_pretrained first",
            );
        }
        return refuse(&format!("neither {SINGLE} nor {INDEX}"), expected);
    }
    Ok(())
}

/// Opens the single file or all shards. If both exist, the single file is used, as in transformers.
fn open_files(dir: &Path) -> Result<(Vec<TensorFile>, BTreeMap<String, usize>), Error> {
    let single = dir.join(SINGLE);
    if single.exists() {
        let file = TensorFile::open(&single)?;
        let file_of = file.names().map(|name| (name.to_string(), 0)).collect();
        return Ok((vec![file], file_of));
    }
    let index = dir.join(INDEX);
    let map = weight_map(&index)?;
    let shards: BTreeSet<&String> = map.values().collect();
    let mut files = Vec::with_capacity(shards.len());
    let mut file_of = BTreeMap::new();
    for (i, shard) in shards.into_iter().enumerate() {
        let path = dir.join(shard);
        if !path.exists() {
            let count = map.values().filter(|s| *s == shard).count();
            return Err(Error::file(
                path,
                "no such file",
                format!("a shard with {count} tensors, which {INDEX} lists"),
            ));
        }
        let file = TensorFile::open(&path)?;
        for name in file.names() {
            if map.get(name) != Some(shard) {
                return Err(Error::tensor(
                    file.path(),
                    name,
                    format!("it in this shard, while {INDEX} says {:?}", map.get(name)),
                    "shards that match their index",
                ));
            }
            file_of.insert(name.to_string(), i);
        }
        files.push(file);
    }
    if let Some((name, shard)) = map.iter().find(|(name, _)| !file_of.contains_key(*name)) {
        return Err(Error::tensor(
            dir.join(shard),
            name.clone(),
            "no such tensor",
            format!("it in this shard, as {INDEX} says"),
        ));
    }
    Ok((files, file_of))
}

fn weight_map(index: &Path) -> Result<BTreeMap<String, String>, Error> {
    let bad = |found: String, expected: &str| Error::file(index, found, expected);
    let fields = read_object(index)?;
    let Some(map) = fields.get("weight_map").and_then(Value::as_object) else {
        return Err(bad("no weight_map".into(), "an object that maps each tensor to its file"));
    };
    let mut result = BTreeMap::new();
    for (tensor, file) in map {
        let name = file.as_str().unwrap_or_default();
        let mut parts = Path::new(name).components();
        let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
        if !plain {
            return Err(bad(format!("{file} for {tensor}"), "the name of a file in the same folder"));
        }
        result.insert(tensor.clone(), name.to_string());
    }
    Ok(result)
}
