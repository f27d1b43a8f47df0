//! Names and layout of a Hugging Face checkpoint's tensors in a GGUF file, which llama.cpp's converter changes: orders of rows, values of norms, and
//! separate tensors for scalings of the rotary frequencies.

use std::borrow::Cow;

use crate::config::{Config, RopeScaling};
use crate::families::GgufRows;
use crate::rope::frequencies;

/// Names of tensors outside the layers: Hugging Face's, and GGUF's.
const OUTSIDE: [(&str, &str); 3] =
    [("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output")];
/// Names of a layer's tensors: Llama's, and GGUF's. Families with other names have a list of their own.
const OF_LAYER: [(&str, &str); 11] = [
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("self_attn.o_proj", "attn_output"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// Llama 3's divisors of the rotary frequencies. No key describes this scaling.
pub(super) const ROPE: &str = "rope_freqs.weight";
/// LongRoPE's divisors for sequences up to the original context length.
pub(super) const SHORT: &str = "rope_factors_short.weight";
/// LongRoPE's divisors for longer sequences.
pub(super) const LONG: &str = "rope_factors_long.weight";

/// Splits the name of a layer's tensor into the layer's index and the rest, or returns `None` for other tensors.
fn of_layer(name: &str) -> Option<(usize, &str)> {
    let (layer, rest) = name.strip_prefix("model.layers.")?.split_once('.')?;
    Some((layer.parse().ok()?, rest))
}

/// Returns the GGUF name of the tensor with a Hugging Face name, or `None` if GGUF doesn't have that tensor.
pub(super) fn stored(name: &str, config: &Config) -> Option<String> {
    let form = config.architecture.family().gguf?;
    let find = |module: &str, general: &'static [(&'static str, &'static str)]| {
        let all = form.names.iter().chain(general);
        all.into_iter().find(|(name, _)| *name == module).map(|(_, stored)| *stored)
    };
    let (prefix, rest, general) = match of_layer(name) {
        Some((layer, rest)) => (format!("blk.{layer}."), rest, &OF_LAYER[..]),
        None => (String::new(), name, &OUTSIDE[..]),
    };
    // The name of a bare tensor, or of a module.
    if let Some(stored) = find(rest, general) {
        return Some(format!("{prefix}{stored}"));
    }
    let (module, part) = rest.rsplit_once('.')?;
    let renamed = config.layer(0).renamed.iter().find(|(_, path)| *path == module);
    let stored = find(renamed.map_or(module, |(llama, _)| llama), general)?;
    Some(format!("{prefix}{stored}.{part}"))
}

/// Returns the shape of a tensor in a file. The filters of a convolution are the rows of a matrix.
pub(super) fn stored_shape(shape: &[usize]) -> Vec<usize> {
    match *shape {
        [channels, 1, inputs] => vec![channels, inputs],
        _ => shape.to_vec(),
    }
}

/// Order of rows or columns in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// As in a checkpoint.
    Same,
    /// The two halves of each head are interleaved.
    Interleaved { head: usize },
    /// From index `first` on, heads of `size` rows: the first value head of all `groups` key heads, then the second.
    /// (A checkpoint has all `ratio` value heads of the first key head, then those of the second.)
    Tiled { first: usize, size: usize, groups: usize, ratio: usize },
}

impl Order {
    /// Returns the position in the file of the row or column with this index in a checkpoint.
    fn position(self, index: usize) -> usize {
        match self {
            Order::Same => index,
            Order::Interleaved { head } => {
                let (start, at) = (index / head * head, index % head);
                start + at % (head / 2) * 2 + at / (head / 2)
            }
            Order::Tiled { first, .. } if index < first => index,
            Order::Tiled { first, size, groups, ratio } => {
                let (head, at) = ((index - first) / size, (index - first) % size);
                first + (head % ratio * groups + head / ratio) * size + at
            }
        }
    }
}

/// Values in a file.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Values {
    /// As in a checkpoint.
    Same,
    /// The checkpoint's values plus a number.
    Plus(f32),
    /// `-exp(value)`.
    NegativeExp,
}

/// How a GGUF file stores a tensor: in which order, and with which change of its values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    rows: Order,
    columns: Order,
    values: Values,
    /// Number of columns.
    pub(super) width: usize,
}

impl Layout {
    /// Returns the layout of the tensor with this Hugging Face name and shape.
    pub(super) fn new(name: &str, shape: &[usize], config: &Config) -> Layout {
        let family = config.architecture.family();
        let interleaved = family.gguf.is_some_and(|form| form.rows == GgufRows::Interleaved);
        let rest = of_layer(name).map_or(name, |(_, rest)| rest);
        let module = rest.rsplit_once('.').map_or(rest, |(module, _)| module);
        let tiled = |first, size| match config.linear_attention {
            Some(sizes) if sizes.linear_num_key_heads != sizes.linear_num_value_heads => {
                let groups = sizes.linear_num_key_heads;
                Order::Tiled { first, size, groups, ratio: sizes.linear_num_value_heads / groups }
            }
            _ => Order::Same,
        };
        let keys = config.linear_attention.map_or(0, |sizes| 2 * sizes.key_width());
        let value = config.linear_attention.map_or(1, |sizes| sizes.linear_value_head_dim);
        let rows = match (module, rest) {
            ("self_attn.q_proj" | "self_attn.k_proj", _) if interleaved => {
                Order::Interleaved { head: config.head_dim }
            }
            ("linear_attn.in_proj_qkv" | "linear_attn.conv1d", _) => tiled(keys, value),
            ("linear_attn.in_proj_z", _) => tiled(0, value),
            ("linear_attn.in_proj_a" | "linear_attn.in_proj_b", _)
            | (_, "linear_attn.A_log" | "linear_attn.dt_bias") => tiled(0, 1),
            _ => Order::Same,
        };
        let columns = if module == "linear_attn.out_proj" { tiled(0, value) } else { Order::Same };
        let values = match module.rsplit('.').next() {
            _ if rest == "linear_attn.A_log" => Values::NegativeExp,
            // The mixer's norm scales by the weight alone.
            Some(last)
                if last.ends_with("norm") && family.norm_offset != 0.0 && module != "linear_attn.norm" =>
            {
                Values::Plus(family.norm_offset)
            }
            _ => Values::Same,
        };
        // The values of a vector are its rows if their order differs.
        let width =
            if shape.len() == 1 && rows != Order::Same { 1 } else { *shape.last().expect("a dimension") };
        Layout { rows, columns, values, width }
    }

    /// Converts the index of a row in the checkpoint to its index in the file.
    pub(super) fn row(&self, row: usize) -> usize {
        self.rows.position(row)
    }

    /// Reorders the values of a row from the file's order to the checkpoint's.
    pub(super) fn read(&self, row: &mut [f32]) {
        if self.columns != Order::Same {
            let stored = row.to_vec();
            row.iter_mut().enumerate().for_each(|(at, x)| *x = stored[self.columns.position(at)]);
        }
        match self.values {
            Values::Same => {}
            Values::Plus(offset) => row.iter_mut().for_each(|x| *x -= offset),
            Values::NegativeExp => row.iter_mut().for_each(|x| *x = (-*x).ln()),
        }
    }

    /// Returns the values of a checkpoint's tensor as a file has them.
    pub(super) fn write<'a>(&self, values: Cow<'a, [f32]>) -> Cow<'a, [f32]> {
        if (self.rows, self.columns, self.values) == (Order::Same, Order::Same, Values::Same) {
            return values;
        }
        let mut stored = vec![0.0; values.len()];
        for (row, values) in values.chunks_exact(self.width).enumerate() {
            let out = &mut stored[self.row(row) * self.width..][..self.width];
            for (at, &x) in values.iter().enumerate() {
                out[self.columns.position(at)] = match self.values {
                    Values::Same => x,
                    Values::Plus(offset) => x + offset,
                    Values::NegativeExp => -x.exp(),
                };
            }
        }
        stored.into()
    }
}

/// Returns the tensors for the scaling of the rotary frequencies, which a checkpoint doesn't have.
pub(super) fn rope_tensors(config: &Config) -> Vec<(&'static str, Vec<f32>)> {
    let singles = |factors: &[f64]| factors.iter().map(|&factor| factor as f32).collect();
    match &config.rope_scaling {
        RopeScaling::Llama3 { .. } => {
            let plain = Config { rope_scaling: RopeScaling::Default, ..config.clone() };
            let plain = frequencies(&plain);
            let factors = plain.iter().zip(frequencies(config)).map(|(plain, scaled)| plain / scaled);
            vec![(ROPE, factors.collect())]
        }
        RopeScaling::LongRope { short_factor, long_factor, .. } => {
            vec![(SHORT, singles(short_factor)), (LONG, singles(long_factor))]
        }
        // llama.cpp rotates these pairs by almost nothing.
        RopeScaling::Proportional { factor, .. } => {
            let divisor = |&frequency: &f32| if frequency == 0.0 { 1e30 } else { *factor as f32 };
            vec![(ROPE, frequencies(config).iter().map(divisor).collect())]
        }
        RopeScaling::Default | RopeScaling::Linear { .. } | RopeScaling::Yarn { .. } => Vec::new(),
    }
}
