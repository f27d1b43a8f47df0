//! Writing GGUF: a header from a configuration and the caller's metadata, then the tensors through [`TensorWriter`].

use std::borrow::Cow;
use std::path::Path;

use serde_json::{Map, Value};

use super::blocks::{Kind, Q8};
use super::layout::{Layout, rope_tensors, stored, stored_shape};
use super::names::{FIELDS, model_types, yarn_factor};
use super::{ALIGNMENT, ARRAY, MAGIC, TEXT};
use crate::config::{Config, RopeScaling};
use crate::error::Error;
use crate::families::GgufForm;
use crate::weights::Dtype;
use crate::weights::write::{Content, TensorWriter};

/// Number type of a file's matrices. Vectors and the filters of convolutions are always `f32`.
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
    Flags(Vec<bool>),
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
            Item::Flags(list) => self.list(7, list, |head, value| head.0.push(u8::from(*value))),
            Item::Reals(list) => self.list(6, list, |head, value| head.u32(value.to_bits())),
        }
    }
}

impl GgufType {
    /// Returns the type of a tensor with this shape: in the header, and for the writer.
    fn of(self, shape: &[usize]) -> (Kind, Content) {
        let numbers = |kind, dtype| (kind, Content::Numbers(dtype));
        match self {
            // llama.cpp requires filters of convolutions in f32 too.
            _ if shape.len() != 2 => numbers(Kind::F32, Dtype::F32),
            GgufType::F32 => numbers(Kind::F32, Dtype::F32),
            GgufType::BF16 => numbers(Kind::BF16, Dtype::BF16),
            GgufType::Q8_0 if shape[1].is_multiple_of(Q8.0) => (Kind::Q8_0, Content::Q8),
            GgufType::F16 | GgufType::Q8_0 => numbers(Kind::F16, Dtype::F16),
        }
    }
}

impl Item {
    /// Returns the item for a field of `config.json`, or `None` if it isn't a number, a Boolean, or a list of them.
    fn new(value: &Value) -> Option<Item> {
        Some(match value {
            Value::Number(n) => match n.as_u64() {
                Some(n) => Item::Number(n as u32),
                None => Item::Real(n.as_f64()? as f32),
            },
            Value::Bool(flag) => Item::Flag(*flag),
            Value::Array(list) => match list.iter().map(Value::as_bool).collect() {
                Some(flags) => Item::Flags(flags),
                None => Item::Numbers(list.iter().map(|x| Some(x.as_i64()? as i32)).collect::<Option<_>>()?),
            },
            _ => return None,
        })
    }
}

/// Returns the metadata for a configuration. `fields` are the fields of `config.json` as converted by `form.write`.
fn metadata(
    config: &Config,
    form: &GgufForm,
    fields: &Map<String, Value>,
    kind: GgufType,
) -> Vec<(String, Item)> {
    let architecture = form.architecture;
    let file_type = match kind {
        GgufType::F32 => 0,
        GgufType::F16 => 1,
        GgufType::Q8_0 => 7,
        GgufType::BF16 => 32,
    };
    let mut items = vec![
        ("general.architecture".to_string(), Item::Text(architecture.into())),
        ("general.type".into(), Item::Text("model".into())),
        ("general.file_type".into(), Item::Number(file_type)),
        ("general.quantization_version".into(), Item::Number(2)),
    ];
    let mut put = |name: &str, item: Item| items.push((format!("{architecture}.{name}"), item));
    let of_family = form.settings.iter().map(|(key, field, _)| (*key, *field));
    for (name, field) in FIELDS.into_iter().chain(of_family) {
        if let Some(item) = fields.get(field).and_then(Item::new) {
            put(name, item);
        }
    }
    let number = |size: usize| Item::Number(size as u32);
    let of_family = |name: &str| form.settings.iter().any(|(key, ..)| *key == name);
    put("vocab_size", number(config.vocab_size));
    for (name, size) in
        [("attention.value_length", config.head_dim), ("rope.dimension_count", config.rotary_dim())]
    {
        if !of_family(name) {
            put(name, number(size));
        }
    }
    put("rope.freq_base", Item::Real(config.rope_theta as f32));
    let kind = |name: &str| Item::Text(name.into());
    match config.rope_scaling {
        RopeScaling::Linear { factor } => {
            put("rope.scaling.type", kind("linear"));
            put("rope.scaling.factor", Item::Real(factor as f32));
        }
        RopeScaling::Llama3 { original_max_position_embeddings: context, .. } => {
            put("rope.scaling.original_context_length", number(context));
        }
        RopeScaling::Yarn {
            factor,
            original_max_position_embeddings: context,
            beta_fast,
            beta_slow,
            attention_factor,
            llama_4_scaling_beta,
            truncate: _,
        } => {
            put("rope.scaling.type", kind("yarn"));
            put("rope.scaling.factor", Item::Real(factor as f32));
            put("rope.scaling.original_context_length", number(context));
            if of_family("rope.scaling.yarn_beta_fast") {
                put("rope.scaling.yarn_beta_fast", Item::Real(beta_fast as f32));
                put("rope.scaling.yarn_beta_slow", Item::Real(beta_slow as f32));
            }
            let usual = yarn_factor(factor);
            let is = |other: f64| (attention_factor - other).abs() < 1e-6;
            if of_family("rope.scaling.yarn_log_multiplier") && is(1.0) {
                put("rope.scaling.yarn_log_multiplier", Item::Real(1.0));
            } else if !is(usual) {
                put("rope.scaling.attn_factor", Item::Real((attention_factor / usual) as f32));
            }
            if let Some(beta) = llama_4_scaling_beta {
                put("attention.temperature_scale", Item::Real(beta as f32));
            }
        }
        RopeScaling::LongRope { original_max_position_embeddings: context, attention_factor, .. } => {
            put("rope.scaling.type", kind("longrope"));
            if !of_family("rope.scaling.original_context_length") {
                put("rope.scaling.original_context_length", number(context));
            }
            put("rope.scaling.attn_factor", Item::Real(attention_factor as f32));
        }
        RopeScaling::Default | RopeScaling::Proportional { .. } => {}
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
    let Some(form) = config.architecture.family().gguf else {
        return Err(refuse("model_type", family.to_owned(), model_types()));
    };
    if let RopeScaling::Yarn { truncate, beta_fast, beta_slow, .. } = config.rope_scaling {
        if !truncate {
            return Err(refuse("truncate", "false".to_owned(), "true".to_owned()));
        }
        // llama.cpp reads them only for some architectures.
        let read = form.settings.iter().any(|(key, ..)| *key == "rope.scaling.yarn_beta_fast");
        for (field, value, expected) in [("beta_fast", beta_fast, 32.0), ("beta_slow", beta_slow, 1.0)] {
            if !read && value != expected {
                return Err(refuse(field, value.to_string(), expected.to_string()));
            }
        }
    }
    let mut fields = config.to_json(Dtype::F32);
    if let Err((field, found, expected)) = (form.write)(config, &mut fields) {
        return Err(refuse(field, found, expected));
    }
    let items = [metadata(config, &form, &fields, kind), about].concat();
    let more = rope_tensors(config);
    let mut declared = config.tensors();
    declared.extend(more.iter().map(|(name, factors)| (name.to_string(), vec![factors.len()])));
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
        let shape = stored_shape(&shape);
        head.text(&stored(&name, config).unwrap_or_else(|| name.clone()));
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
        let (name, shape) = (name.as_ref(), stored_shape(shape.as_ref()));
        let values = Layout::new(name, &shape, config).write(values.into());
        writer.put(name, &shape, &values)?;
    }
    for (name, factors) in more {
        writer.put(name, &[factors.len()], &factors)?;
    }
    writer.finish()
}
