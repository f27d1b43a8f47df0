//! Writing safetensors files. Tensors are converted one at a time directly into the file, so memory never holds a second copy of a model.
//!
//! Every file is written under a temporary name, synced and renamed. A file with its final name is therefore complete.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::gguf::blocks::{Q8, encode_q8};
use super::{Dtype, INDEX, SINGLE};
use crate::config::{Config, generation_config};
use crate::error::Error;

/// Number of values that are converted at a time. It bounds the writer's memory for tensors of any size.
const CHUNK: usize = 1 << 18;

/// Type of a tensor's values in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Numbers(Dtype),
    /// Unsigned 8-bit integers.
    Bytes,
    /// Blocks of GGUF's type Q8_0.
    Q8,
}

impl Content {
    /// Returns the number of bytes of `values` values.
    pub(super) fn bytes(self, values: u64) -> u64 {
        match self {
            Content::Numbers(dtype) => values * dtype.size() as u64,
            Content::Bytes => values,
            Content::Q8 => values / Q8.0 as u64 * Q8.1 as u64,
        }
    }

    /// Returns the name of the type in error messages.
    fn kind(self) -> &'static str {
        match self {
            Content::Numbers(dtype) => dtype.config_name(),
            other => other.name(),
        }
    }

    /// Returns the name in a safetensors header.
    fn name(self) -> &'static str {
        match self {
            Content::Numbers(Dtype::F32) => "F32",
            Content::Numbers(Dtype::BF16) => "BF16",
            Content::Numbers(Dtype::F16) => "F16",
            Content::Bytes => "U8",
            Content::Q8 => "Q8_0",
        }
    }
}

/// A tensor of a file being written.
#[derive(Debug)]
struct Declared {
    shape: Vec<usize>,
    content: Content,
    /// Byte offset in the file.
    offset: u64,
    written: bool,
}

/// A safetensors file being written. Its tensors are declared first, and are then written in any order, each once.
///
/// If it is dropped before [`TensorWriter::finish`], the file is removed.
#[derive(Debug)]
pub struct TensorWriter {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
    tensors: HashMap<String, Declared>,
    buffer: Vec<u8>,
    finished: bool,
}

impl TensorWriter {
    /// Creates a file with the declared tensors, all of type `dtype`. `metadata` becomes the header's `__metadata__`.
    pub fn create(
        path: &Path,
        tensors: &[(String, Vec<usize>)],
        dtype: Dtype,
        metadata: &[(&str, &str)],
    ) -> Result<TensorWriter, Error> {
        let typed =
            |(name, shape): &(String, Vec<usize>)| (name.clone(), shape.clone(), Content::Numbers(dtype));
        TensorWriter::create_mixed(path, tensors.iter().map(typed).collect(), metadata)
    }

    /// Creates a file with tensors of different types.
    pub(super) fn create_mixed(
        path: &Path,
        tensors: Vec<(String, Vec<usize>, Content)>,
        metadata: &[(&str, &str)],
    ) -> Result<TensorWriter, Error> {
        let mut header = Map::new();
        if !metadata.is_empty() {
            let text = metadata.iter().map(|(k, v)| (k.to_string(), json!(v))).collect();
            header.insert("__metadata__".into(), Value::Object(text));
        }
        let mut end = 0u64;
        let mut offsets = Vec::with_capacity(tensors.len());
        for (name, shape, content) in &tensors {
            let bytes = content.bytes(shape.iter().map(|&n| n as u64).product());
            header.insert(
                name.clone(),
                json!({"dtype": content.name(), "shape": shape, "data_offsets": [end, end + bytes]}),
            );
            offsets.push(end);
            end += bytes;
        }
        let mut text = serde_json::to_vec(&header).expect("a map of strings and numbers");
        // Readers expect the data aligned to eight bytes.
        text.resize(text.len().next_multiple_of(8), b' ');
        let start = 8 + text.len() as u64;

        let mut head = (text.len() as u64).to_le_bytes().to_vec();
        head.extend_from_slice(&text);
        let placed = tensors.into_iter().zip(offsets);
        let placed = placed.map(|((name, shape, content), offset)| (name, shape, content, start + offset));
        TensorWriter::create_after(path, &head, placed.collect(), start + end)
    }

    /// Creates a file of `length` bytes that begins with `head`. Each tensor comes with its offset in the file.
    pub(super) fn create_after(
        path: &Path,
        head: &[u8],
        tensors: Vec<(String, Vec<usize>, Content, u64)>,
        length: u64,
    ) -> Result<TensorWriter, Error> {
        let temporary = temporary_name(path);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&temporary)
            .map_err(Error::io("create", &temporary))?;
        let declared =
            |(name, shape, content, offset)| (name, Declared { shape, content, offset, written: false });
        let writer = TensorWriter {
            path: path.into(),
            temporary,
            file,
            tensors: tensors.into_iter().map(declared).collect(),
            buffer: Vec::new(),
            finished: false,
        };
        writer.write_at(head, 0)?;
        writer.file.set_len(length).map_err(Error::io("write", path))?;
        Ok(writer)
    }

    /// Writes a declared tensor of numbers.
    pub fn put(&mut self, name: &str, shape: &[usize], values: &[f32]) -> Result<(), Error> {
        let (content, mut offset) = self.begin(name, shape, values.len())?;
        let mut buffer = std::mem::take(&mut self.buffer);
        for (i, chunk) in values.chunks(CHUNK).enumerate() {
            let encoded = match content {
                Content::Numbers(dtype) => dtype.encode(chunk, &mut buffer),
                Content::Q8 => encode_q8(chunk, &mut buffer),
                Content::Bytes => panic!("{name} was declared as bytes"),
            };
            if let Err(at) = encoded {
                return Err(Error::tensor(
                    self.path.clone(),
                    name,
                    format!("{} at index {}", chunk[at], i * CHUNK + at),
                    format!("values that are finite in {}", content.kind()),
                ));
            }
            self.write_at(&buffer, offset)?;
            offset += buffer.len() as u64;
        }
        self.buffer = buffer;
        Ok(())
    }

    /// Writes a declared tensor of bytes.
    pub(super) fn put_bytes(&mut self, name: &str, shape: &[usize], bytes: &[u8]) -> Result<(), Error> {
        let (content, offset) = self.begin(name, shape, bytes.len())?;
        assert_eq!(content, Content::Bytes, "{name} was declared as numbers");
        self.write_at(bytes, offset)
    }

    /// Marks a declared tensor as written, and returns its type and its offset.
    fn begin(&mut self, name: &str, shape: &[usize], len: usize) -> Result<(Content, u64), Error> {
        let refuse =
            |found: String, expected: String| Err(Error::tensor(self.path.clone(), name, found, expected));
        let Some(declared) = self.tensors.get_mut(name) else {
            return refuse("an undeclared tensor".into(), "the tensors of the configuration".into());
        };
        if declared.shape != shape || len != shape.iter().product::<usize>() {
            let found = format!("shape {shape:?} and {len} values");
            let expected = format!("shape {:?}", declared.shape);
            return refuse(found, expected);
        }
        if std::mem::replace(&mut declared.written, true) {
            return refuse("it a second time".into(), "each tensor once".into());
        }
        Ok((declared.content, declared.offset))
    }

    /// Syncs the file and renames it to its final name.
    pub fn finish(mut self) -> Result<(), Error> {
        self.sync()?;
        self.rename()
    }

    /// Syncs the file. Returns an error if a tensor hasn't been written.
    fn sync(&mut self) -> Result<(), Error> {
        let mut missing: Vec<_> = self.tensors.iter().filter(|(_, declared)| !declared.written).collect();
        missing.sort_by_key(|(_, declared)| declared.offset);
        if let Some((name, Declared { shape, .. })) = missing.first() {
            return Err(Error::tensor(
                self.path.clone(),
                (*name).clone(),
                "no values",
                format!("shape {shape:?}, before the file is finished"),
            ));
        }
        self.file.sync_all().map_err(Error::io("sync", &self.path))
    }

    fn rename(&mut self) -> Result<(), Error> {
        std::fs::rename(&self.temporary, &self.path).map_err(Error::io("rename", &self.path))?;
        self.finished = true;
        sync_folder(&self.path)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), Error> {
        self.file.write_all_at(bytes, offset).map_err(Error::io("write", &self.path))
    }
}

impl Drop for TensorWriter {
    fn drop(&mut self) {
        if !self.finished {
            // A failure to remove the file is ignored, because the earlier error is reported.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

/// Writes a checkpoint folder: `config.json`, `generation_config.json` and the weights. The weights are in shards of at most
/// `max_shard_bytes` (a larger tensor gets its own shard), with an index if there is more than one shard.
///
/// `tensors` yields the name, shape and values of each tensor of [`Config::tensors`], in any order. The folder is created if necessary and
/// must not contain weights: nothing is overwritten. `config.json` is written last, so a folder that has it is complete. After an error,
/// no weights and no temporary files are left.
pub fn write_checkpoint<'a, N: AsRef<str>, S: AsRef<[usize]>>(
    dir: &Path,
    config: &Config,
    tensors: impl IntoIterator<Item = (N, S, impl Into<Cow<'a, [f32]>>)>,
    dtype: Dtype,
    max_shard_bytes: u64,
) -> Result<(), Error> {
    config.validate()?;
    make_folder(dir)?;
    let shards = shards(&config.tensors(), dtype, max_shard_bytes);
    let count = shards.len();
    let file_name = |i: usize| match count {
        1 => SINGLE.to_string(),
        _ => format!("model-{:05}-of-{count:05}.safetensors", i + 1),
    };
    let mut shard_of = HashMap::new();
    let mut writers = Vec::with_capacity(count);
    for (i, shard) in shards.iter().enumerate() {
        shard_of.extend(shard.iter().map(|(name, _)| (name.clone(), i)));
        writers.push(TensorWriter::create(&dir.join(file_name(i)), shard, dtype, &[("format", "pt")])?);
    }
    for (name, shape, values) in tensors {
        let name = name.as_ref();
        // An unknown name is an error in any of the writers.
        let writer = shard_of.get(name).copied().unwrap_or(0);
        writers[writer].put(name, shape.as_ref(), &values.into())?;
    }
    for writer in &mut writers {
        writer.sync()?;
    }
    let mut written = Written(Vec::new());
    for mut writer in writers {
        writer.rename()?;
        written.0.push(writer.path.clone());
    }
    if count > 1 {
        let map: Map<String, Value> = shards
            .iter()
            .enumerate()
            .flat_map(|(i, shard)| shard.iter().map(move |(name, _)| (i, name)))
            .map(|(i, name)| (name.clone(), json!(file_name(i))))
            .collect();
        let bytes = config.parameters() * dtype.size() as u64;
        let metadata = json!({"total_parameters": config.parameters(), "total_size": bytes});
        let index = json!({"metadata": metadata, "weight_map": map});
        let path = dir.join(INDEX);
        write_json(&path, &index)?;
        written.0.push(path);
    }
    written.0.extend(write_generation(dir, config)?);
    write_json(&dir.join("config.json"), &Value::Object(config.to_json(dtype)))?;
    written.0.clear();
    Ok(())
}

/// Creates a folder for weights, unless it exists. Returns an error if it already contains weights.
pub(super) fn make_folder(dir: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(dir).map_err(Error::io("create folder", dir))?;
    for name in [SINGLE, INDEX] {
        let path = dir.join(name);
        if path.exists() {
            let expected = "a folder without weights; remove them or choose another folder";
            return Err(Error::file(path, "a checkpoint", expected));
        }
    }
    Ok(())
}

/// Writes `generation_config.json` unless it exists. Returns its path if it was written.
pub(super) fn write_generation(dir: &Path, config: &Config) -> Result<Option<PathBuf>, Error> {
    let path = dir.join("generation_config.json");
    if path.exists() {
        return Ok(None);
    }
    write_json(&path, &generation_config(config))?;
    Ok(Some(path))
}

/// Files to remove if a later step fails.
struct Written(Vec<PathBuf>);

impl Drop for Written {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

type Named = (String, Vec<usize>);

/// Divides the list into shards, in order.
fn shards(tensors: &[Named], dtype: Dtype, max_bytes: u64) -> Vec<Vec<Named>> {
    let mut all: Vec<Vec<Named>> = vec![Vec::new()];
    let mut filled = 0;
    for tensor in tensors {
        let values = tensor.1.iter().map(|&n| n as u64).product();
        let bytes = Content::Numbers(dtype).bytes(values);
        if filled > 0 && filled + bytes > max_bytes {
            all.push(Vec::new());
            filled = 0;
        }
        all.last_mut().expect("never empty").push(tensor.clone());
        filled += bytes;
    }
    all
}

/// Writes a JSON file atomically.
pub(crate) fn write_json(path: &Path, value: &Value) -> Result<(), Error> {
    let temporary = temporary_name(path);
    let mut text = serde_json::to_vec_pretty(value).expect("a JSON value");
    text.push(b'\n');
    let write = || {
        let mut file = File::create(&temporary)?;
        file.write_all(&text)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    };
    write().map_err(|error| {
        let _ = std::fs::remove_file(&temporary);
        Error::io("write", path)(error)
    })?;
    sync_folder(path)
}

/// Returns a hidden name in the folder of `path`, unique to this process.
fn temporary_name(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.tmp", std::process::id()))
}

/// Syncs the folder of `path`, so that a rename survives a power failure.
fn sync_folder(path: &Path) -> Result<(), Error> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    File::open(folder).and_then(|f| f.sync_all()).map_err(Error::io("sync folder", folder))
}
