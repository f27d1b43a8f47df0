//! Writing GGUF: a header from a configuration and the caller's metadata, then the tensors through [`TensorWriter`].

use std::borrow::Cow;
use std::path::Path;

use serde_json::Value;

use super::blocks::{Kind, Q8};
use super::names::{FIELDS, ROPE, families, interleaved, rope_factors, stored, stored_row};
use super::{ALIGNMENT, ARRAY, MAGIC, TEXT};
use crate::config::{Config, RopeScaling};
use crate::error::Error;
use crate::weights::Dtype;
use crate::weights::write::{Content, TensorWriter};

/// Number type of a file's matrices. Vectors are always `f32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum GgufType {
    F32,
    F16,
    BF16,
    /// Blocks of 32 8-bit values with a scale. A matrix whose rows don't divide into blocks is stored in F16.
    Q8_0,
}

/// A metadata value.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Item {
    Number(u32),
    Real(f32),
    Flag(bool),
    Text(String),
    Texts(Vec<String>),
    Numbers(Vec<i32>),
    Reals(Vec<f32>),
}

/// A header being written.
#[derive(Default)]
struct Head(Vec<u8>);

impl Head {
    fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.u64(text.len() as u64);
        self.0.extend(text.as_bytes());
    }

    fn list<T>(&mut self, kind: u32, list: &[T], put: impl Fn(&mut Self, &T)) {
        self.u32(ARRAY);
        self.u32(kind);
        self.u64(list.len() as u64);
        list.iter().for_each(|value| put(self, value));
    }

    /// Writes a value's type, then the value.
    fn item(&mut self, item: &Item) {
        match item {
            Item::Number(value) => {
                self.u32(4);
                self.u32(*value);
            }
            Item::Real(value) => {
                self.u32(6);
                self.u32(value.to_bits());
            }
            Item::Flag(value) => {
                self.u32(7);
                self.0.push(u8::from(*value));
            }
            Item::Text(text) => {
                self.u32(TEXT);
                self.text(text);
            }
            Item::Texts(list) => self.list(TEXT, list, |head, text| head.text(text)),
            Item::Numbers(list) => self.list(5, list, |head, value| head.u32(*value as u32)),
            Item::Reals(list) => self.list(6, list, |head, value| head.u32(value.to_bits())),
        }
    }
}

impl GgufType {
    /// Type of a tensor with this shape: in the header, and for the writer.
    fn of(self, shape: &[usize]) -> (Kind, Content) {
        let numbers = |kind, dtype| (kind, Content::Numbers(dtype));
        match self {
            _ if shape.len() == 1 => numbers(Kind::F32, Dtype::F32),
            GgufType::F32 => numbers(Kind::F32, Dtype::F32),
            GgufType::BF16 => numbers(Kind::BF16, Dtype::BF16),
            GgufType::Q8_0 if shape[1].is_multiple_of(Q8.0) => (Kind::Q8_0, Content::Q8),
            GgufType::F16 | GgufType::Q8_0 => numbers(Kind::F16, Dtype::F16),
        }
    }
}

/// Metadata for a configuration.
fn metadata(config: &Config, kind: GgufType) -> Vec<(String, Item)> {
    let family = config.architecture.model_type();
    let fields = config.to_json(Dtype::F32);
    let file_type = match kind {
        GgufType::F32 => 0,
        GgufType::F16 => 1,
        GgufType::Q8_0 => 7,
        GgufType::BF16 => 32,
    };
    let mut items = vec![
        ("general.architecture".to_string(), Item::Text(family.into())),
        ("general.type".into(), Item::Text("model".into())),
        ("general.file_type".into(), Item::Number(file_type)),
        ("general.quantization_version".into(), Item::Number(2)),
    ];
    let mut put = |name: &str, item: Item| items.push((format!("{family}.{name}"), item));
    for (name, field) in FIELDS {
        match &fields[field] {
            Value::Number(n) if n.is_u64() => {
                put(name, Item::Number(n.as_u64().expect("a whole number") as u32))
            }
            value => put(name, Item::Real(value.as_f64().expect("a number") as f32)),
        }
    }
    put("vocab_size", Item::Number(config.vocab_size as u32));
    put("attention.value_length", Item::Number(config.head_dim as u32));
    put("rope.dimension_count", Item::Number(config.head_dim as u32));
    put("rope.freq_base", Item::Real(config.rope_theta as f32));
    match config.rope_scaling {
        RopeScaling::Linear { factor } => {
            put("rope.scaling.type", Item::Text("linear".into()));
            put("rope.scaling.factor", Item::Real(factor as f32));
        }
        RopeScaling::Llama3 { original_max_position_embeddings: context, .. } => {
            put("rope.scaling.original_context_length", Item::Number(context as u32));
        }
        RopeScaling::Default
        | RopeScaling::Yarn { .. }
        | RopeScaling::LongRope { .. }
        | RopeScaling::Proportional { .. } => {}
    }
    items
}

/// Writes a GGUF file. `about` is metadata that the configuration doesn't determine: names, tokenizer, chat template.
///
/// `tensors` yields the name, shape and values of each tensor of [`Config::tensors`], in any order. After an error, no file is left.
/// Returns an error if GGUF doesn't support the family or the position scaling, if writing fails, or if a value is not finite in its type.
pub fn write_gguf<'a, N: AsRef<str>, S: AsRef<[usize]>>(
    path: &Path,
    config: &Config,
    about: Vec<(String, Item)>,
    tensors: impl IntoIterator<Item = (N, S, impl Into<Cow<'a, [f32]>>)>,
    kind: GgufType,
) -> Result<(), Error> {
    config.validate()?;
    let family = config.architecture.model_type();
    let refuse = |field: &str, found: String, expected: String| Error::Config {
        place: path.display().to_string(),
        field: field.to_owned(),
        found,
        expected: format!("{expected} in a .gguf file; a checkpoint folder supports any model"),
    };
    if !families().contains(&family) {
        return Err(refuse("model_type", family.to_owned(), families().join(", ")));
    }
    if let Some(kind @ ("yarn" | "longrope" | "proportional")) =
        serde_json::json!(config.rope_scaling)["rope_type"].as_str()
    {
        return Err(refuse("rope_type", kind.to_owned(), "default, linear or llama3".to_owned()));
    }
    let items = [metadata(config, kind), about].concat();
    let mut declared = config.tensors();
    let has_factors = matches!(config.rope_scaling, RopeScaling::Llama3 { .. });
    if has_factors {
        declared.push((ROPE.into(), vec![config.head_dim / 2]));
    }
    let mut head = Head(MAGIC.to_vec());
    head.u32(3);
    head.u64(declared.len() as u64);
    head.u64(items.len() as u64);
    for (key, item) in &items {
        head.text(key);
        head.item(item);
    }
    let mut end = 0;
    let mut placed = Vec::with_capacity(declared.len());
    for (name, shape) in declared {
        let (kind, content) = kind.of(&shape);
        head.text(&stored(&name).unwrap_or_else(|| name.clone()));
        head.u32(shape.len() as u32);
        shape.iter().rev().for_each(|&n| head.u64(n as u64));
        head.u32(kind as u32);
        head.u64(end);
        let bytes = content.bytes(shape.iter().map(|&n| n as u64).product());
        placed.push((name, shape, content, end));
        end = (end + bytes).next_multiple_of(ALIGNMENT);
    }
    let start = (head.0.len() as u64).next_multiple_of(ALIGNMENT);
    placed.iter_mut().for_each(|(.., offset)| *offset += start);
    let mut writer = TensorWriter::create_after(path, &head.0, placed, start + end)?;
    for (name, shape, values) in tensors {
        let (name, shape) = (name.as_ref(), shape.as_ref());
        let values: Cow<'a, [f32]> = values.into();
        let Some(head) = interleaved(name, config) else {
            writer.put(name, shape, &values)?;
            continue;
        };
        let columns = shape[1];
        let mut rows = vec![0.0; values.len()];
        for (row, values) in values.chunks_exact(columns).enumerate() {
            rows[stored_row(row, head) * columns..][..columns].copy_from_slice(values);
        }
        writer.put(name, shape, &rows)?;
    }
    if has_factors {
        writer.put(ROPE, &[config.head_dim / 2], &rope_factors(config))?;
    }
    writer.finish()
}
