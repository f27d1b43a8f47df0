//! The decoder by definition, in f64, one whole sequence at a time: the reference for the engine.

use std::collections::HashMap;

use fgrpo_nn::config::{Architecture, Config, GatedDeltaNet, Gemma4, LayerType, Multipliers, RopeScaling};
use fgrpo_nn::{BaseFormat, Batch, Device, Engine};

use crate::device::{device, is_emulated};

/// A small random-number generator for tests.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Numbers {
        Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.0 ^ (self.0 >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ (mixed >> 32)) >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn normal(&mut self) -> f64 {
        let (a, b) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * a.ln()).sqrt() * (2.0 * std::f64::consts::PI * b).cos()
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.uniform() * n as f64) as usize
    }

    pub(crate) fn tokens(&mut self, count: usize, vocabulary: usize) -> Vec<u32> {
        (0..count).map(|_| self.below(vocabulary) as u32).collect()
    }
}

/// Small configurations that together cover every setting.
pub(crate) fn configs() -> Vec<(&'static str, Config)> {
    let base = Config {
        architecture: Architecture::Qwen2,
        vocab_size: 23,
        hidden_size: 24,
        intermediate_size: 40,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 6,
        rms_norm_eps: 1e-6,
        rope_theta: 10_000.0,
        rope_scaling: RopeScaling::Default,
        tie_word_embeddings: true,
        max_position_embeddings: 64,
        bos_token_id: None,
        eos_token_id: vec![],
        pad_token_id: None,
        ..Config::default()
    };
    let llama3 = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 16,
    };
    let mut configs = vec![
        ("qwen2", base.clone()),
        (
            "qwen3, untied, odd head size",
            Config {
                architecture: Architecture::Qwen3,
                tie_word_embeddings: false,
                head_dim: 10,
                num_hidden_layers: 3,
                ..base.clone()
            },
        ),
        (
            "llama, llama3 rope, one kv head",
            Config {
                architecture: Architecture::Llama,
                rope_scaling: llama3,
                num_key_value_heads: 1,
                tie_word_embeddings: false,
                ..base.clone()
            },
        ),
        (
            "linear rope, no grouping, one layer",
            Config {
                rope_scaling: RopeScaling::Linear { factor: 3.0 },
                num_key_value_heads: 4,
                num_hidden_layers: 1,
                head_dim: 8,
                ..base.clone()
            },
        ),
        (
            "smollm3, no rotary embedding in a layer",
            Config { architecture: Architecture::SmolLM3, no_rope_layers: vec![1, 0], ..base.clone() },
        ),
        (
            "olmo2, norms after and of whole queries and keys",
            Config { architecture: Architecture::Olmo2, tie_word_embeddings: false, ..base.clone() },
        ),
    ];
    let multipliers = Multipliers {
        embedding_multiplier: 3.0,
        attention_multiplier: 0.3,
        residual_multiplier: 0.6,
        logits_scaling: 1.7,
    };
    let granite =
        Config { architecture: Architecture::Granite, multipliers: Some(multipliers), ..base.clone() };
    configs.push(("granite, four factors", granite));
    let scaling = RopeScaling::LongRope {
        short_factor: vec![1.0, 1.7],
        long_factor: vec![1.0, 9.0],
        original_max_position_embeddings: 64,
        attention_factor: 1.2,
    };
    let phi3 = Config {
        architecture: Architecture::Phi3,
        rope_scaling: scaling,
        head_dim: 8,
        partial_rotary_factor: Some(0.5),
        ..base.clone()
    };
    configs.push(("phi3, fused matrices, longrope, a part of each head", phi3));
    let window = Config { sliding_window: Some(5), ..base.clone() };
    let mistral = Config { architecture: Architecture::Mistral, ..window.clone() };
    configs.push(("mistral, a window of five tokens", mistral));
    let gemma = Config {
        architecture: Architecture::Gemma3Text,
        layer_types: vec![LayerType::SlidingAttention, LayerType::FullAttention],
        rope_local_base_freq: Some(30.0),
        query_pre_attn_scalar: Some(9),
        ..window.clone()
    };
    configs.push(("gemma3_text, a window in one layer", gemma));
    let (linear, full) = (LayerType::LinearAttention, LayerType::FullAttention);
    // GPUs support multiples of four.
    let [key, value] = if cfg!(feature = "cuda-emulator") { [12, 8] } else { [9, 7] };
    let sizes = GatedDeltaNet {
        linear_conv_kernel_dim: 4,
        linear_key_head_dim: key,
        linear_value_head_dim: value,
        linear_num_key_heads: 3,
        linear_num_value_heads: 6,
    };
    let qwen = Config {
        architecture: Architecture::Qwen3_5Text,
        sliding_window: None,
        // The norm of a nearly empty row would amplify rounding.
        rms_norm_eps: 5e-2,
        layer_types: vec![linear, full],
        head_dim: 8,
        partial_rotary_factor: Some(0.5),
        linear_attention: Some(sizes),
        ..window
    };
    if cfg!(feature = "cuda-emulator") {
        // One model with both, because the emulator is slow.
        let layers = Config { num_hidden_layers: 3, layer_types: vec![linear, full, linear], ..qwen };
        configs.push(("qwen3_5_text, recurrent layers first and last", layers));
        return configs;
    }
    configs.push(("qwen3_5_text, a recurrent layer first", qwen.clone()));
    let last = Config {
        layer_types: vec![full, linear],
        tie_word_embeddings: false,
        linear_attention: Some(GatedDeltaNet { linear_conv_kernel_dim: 2, linear_num_key_heads: 2, ..sizes }),
        ..qwen
    };
    configs.push(("qwen3_5_text, untied, a recurrent layer last", last));
    let lfm2 = Config {
        architecture: Architecture::Lfm2,
        layer_types: vec![LayerType::Conv, full],
        conv_l_cache: Some(3),
        // A product of three values amplifies rounding.
        rms_norm_eps: 5e-2,
        ..base
    };
    configs.push(("lfm2, a gated convolution first", lfm2.clone()));
    let last = Config { layer_types: vec![full, LayerType::Conv], conv_l_cache: Some(4), ..lfm2 };
    configs.push(("lfm2, a gated convolution last", last));
    let [k_eq_v, shared] = gemma4();
    configs.push(("gemma4_text, keys as values", k_eq_v));
    configs.push(("gemma4_text, borrowed keys and values, per-layer inputs", shared));
    configs
}

/// Gemma 4 as its dense sizes, and as E2B. GPUs don't support it.
fn gemma4() -> [Config; 2] {
    let (sliding, full) = (LayerType::SlidingAttention, LayerType::FullAttention);
    let gemma4 = Gemma4 {
        global_head_dim: 8,
        num_global_key_value_heads: 1,
        attention_k_eq_v: true,
        num_kv_shared_layers: 0,
        use_double_wide_mlp: true,
        hidden_size_per_layer_input: 0,
        vocab_size_per_layer_input: 23,
        final_logit_softcapping: Some(5.0),
    };
    let dense = Config {
        architecture: Architecture::Gemma4Text,
        vocab_size: 23,
        hidden_size: 24,
        intermediate_size: 20,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 6,
        rms_norm_eps: 5e-2,
        rope_theta: 10_000.0,
        rope_scaling: RopeScaling::Proportional { factor: 1.0, partial_rotary_factor: 0.5 },
        tie_word_embeddings: true,
        max_position_embeddings: 64,
        layer_types: vec![sliding, full],
        sliding_window: Some(5),
        rope_local_base_freq: Some(30.0),
        gemma4: Some(gemma4),
        ..Config::default()
    };
    let gemma4 = Gemma4 {
        num_global_key_value_heads: 2,
        attention_k_eq_v: false,
        num_kv_shared_layers: 2,
        hidden_size_per_layer_input: 4,
        ..gemma4
    };
    let shared = Config {
        num_hidden_layers: 4,
        layer_types: vec![sliding, full, sliding, full],
        gemma4: Some(gemma4),
        ..dense.clone()
    };
    [dense, shared]
}

/// The configuration with an index, including those with recurrent layers.
pub(crate) fn with_recurrent(index: usize) -> Vec<(&'static str, Config)> {
    let mut all = configs();
    let mut recurrent = all.split_off(all.iter().position(|(_, c)| c.is_recurrent()).unwrap_or(all.len()));
    recurrent.retain(|(_, config)| config.is_recurrent());
    [all.swap_remove(index)].into_iter().chain(recurrent).collect()
}

/// [`configs`], or on the emulated GPU, which is slow, those whose decoding steps differ most. All are compared there in
/// `cuda::steps_on_both_devices_are_equal_to_rounding_for_every_architecture_setting`.
pub(crate) fn configs_to_sample() -> Vec<(&'static str, Config)> {
    let few = [0, MISTRAL, GEMMA, QWEN3_5];
    let kept = |index: usize| !is_emulated() || few.contains(&index);
    configs().into_iter().enumerate().filter(|(index, _)| kept(*index)).map(|(_, config)| config).collect()
}

/// Indices of Mistral's, Gemma 3's and Qwen3.5's configurations.
pub(crate) const MISTRAL: usize = 8;
pub(crate) const GEMMA: usize = 9;
pub(crate) const QWEN3_5: usize = 10;

/// Seven query heads of width 64 per key head, for which tensor cores are used in bf16, in decoding too.
#[cfg(feature = "cuda-emulator")]
pub(crate) fn seven_heads() -> (&'static str, Config) {
    let (_, base) = configs().swap_remove(0);
    let config =
        Config { head_dim: 64, num_attention_heads: 7, num_key_value_heads: 1, num_hidden_layers: 1, ..base };
    ("seven heads of 64", config)
}

/// An engine with random weights, including norms and biases, on the tested device.
pub(crate) fn engine(config: &Config, seed: u64, threads: usize) -> Engine {
    engine_on(config, seed, &device(threads))
}

/// No format of the base, and each format.
pub(crate) const BASES: [Option<BaseFormat>; 4] =
    [None, Some(BaseFormat::Nf4), Some(BaseFormat::Int8), Some(BaseFormat::Bf16)];

/// The same engine on a given device.
pub(crate) fn engine_on(config: &Config, seed: u64, device: &Device) -> Engine {
    engine_with_base(config, seed, None, device)
}

/// The same engine with the layers' matrices in a format.
pub(crate) fn engine_with_base(
    config: &Config,
    seed: u64,
    base: Option<BaseFormat>,
    device: &Device,
) -> Engine {
    let mut numbers = Numbers::new(seed);
    let matrices = config.tensors().into_iter().filter(|(_, shape)| shape.len() >= 2);
    let count: usize = matrices.map(|(_, shape)| shape.iter().product::<usize>()).sum();
    let normals: Vec<f64> = (0..count).map(|_| numbers.normal()).collect();
    let mut engine = Engine::init_with_base(config, 0.2, &|i| normals[i as usize], base, device).unwrap();
    let names: Vec<(String, usize)> =
        engine.tensors().map(|(name, _, data)| (name.to_string(), data.len())).collect();
    for (name, len) in names {
        // A mixer that depends much on its convolution's inputs and retains much of its state.
        let mixer = [("conv1d.weight", 0.0, 0.6), ("conv.conv.weight", 0.0, 0.5), ("A_log", -2.0, 0.5)];
        if let Some((_, around, std)) = mixer.into_iter().find(|(end, ..)| name.ends_with(end)) {
            let values: Vec<f32> = (0..len).map(|_| (around + std * numbers.normal()) as f32).collect();
            engine.set_tensor(&name, &values).unwrap();
        }
        if name.ends_with("bias") || name.contains("norm") || name.ends_with("layer_scalar") {
            let around = if name.ends_with("bias") { 0.0 } else { 1.0 - offset(config, &name) };
            // Gemma 4's scores aren't divided by the root of the head size.
            let scores = config.architecture == Architecture::Gemma4Text && name.contains("q_norm");
            let scale = if scores { 1.0 / (len as f64).sqrt() } else { 1.0 };
            let value = |normal: f64| (scale * (around + 0.3 * normal)) as f32;
            let values: Vec<f32> = (0..len).map(|_| value(numbers.normal())).collect();
            engine.set_tensor(&name, &values).unwrap();
        }
    }
    engine
}

/// Offset that is added to the weights of a norm.
fn offset(config: &Config, name: &str) -> f64 {
    let all = matches!(config.architecture, Architecture::Gemma3Text | Architecture::Qwen3_5Text);
    if all && !name.contains("linear_attn") { 1.0 } else { 0.0 }
}

/// Weights by name, in f64.
pub(crate) type Weights = HashMap<String, Vec<f64>>;

pub(crate) fn weights(engine: &Engine) -> Weights {
    engine
        .tensors()
        .map(|(name, _, data)| (name.to_string(), data.iter().map(|&x| f64::from(x)).collect()))
        .collect()
}

fn linear(x: &[f64], weight: &[f64], bias: Option<&Vec<f64>>) -> Vec<f64> {
    let rows = weight.len() / x.len();
    (0..rows)
        .map(|row| {
            let dot: f64 = weight[row * x.len()..][..x.len()].iter().zip(x).map(|(w, x)| w * x).sum();
            dot + bias.map_or(0.0, |bias| bias[row])
        })
        .collect()
}

fn norm(x: &[f64], weight: &[f64], config: &Config) -> Vec<f64> {
    norm_by(x, weight, offset(config, ""), config)
}

fn norm_by(x: &[f64], weight: &[f64], offset: f64, config: &Config) -> Vec<f64> {
    let square = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    x.iter().zip(weight).map(|(x, w)| x / (square + config.rms_norm_eps).sqrt() * (offset + w)).collect()
}

fn frequency(config: &Config, pair: usize) -> f64 {
    let size = config.head_dim as f64 * config.partial_rotary_factor.unwrap_or(1.0);
    let plain = config.rope_theta.powf(-2.0 * pair as f64 / size);
    match config.rope_scaling {
        RopeScaling::Proportional { factor, partial_rotary_factor } => {
            let size = config.gemma4.unwrap().global_head_dim as f64;
            let rotates = ((pair + 1) as f64) <= partial_rotary_factor * size / 2.0;
            if rotates { config.rope_theta.powf(-2.0 * pair as f64 / size) / factor } else { 0.0 }
        }
        RopeScaling::Default => plain,
        RopeScaling::Linear { factor } => plain / factor,
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_max_position_embeddings,
        } => {
            let turns = original_max_position_embeddings as f64 * plain / (2.0 * std::f64::consts::PI);
            if turns < low_freq_factor {
                plain / factor
            } else if turns > high_freq_factor {
                plain
            } else {
                let smooth = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor);
                plain * (smooth + (1.0 - smooth) / factor)
            }
        }
        RopeScaling::LongRope { ref short_factor, .. } => plain / short_factor[pair],
        RopeScaling::Yarn { .. } => unreachable!("the golden files have it"),
    }
}

fn rotate(config: &Config, theta: Option<f64>, x: &mut [f64], position: usize) {
    let half = (x.len() as f64 * config.partial_rotary_factor.unwrap_or(1.0)) as usize / 2;
    for pair in 0..half {
        let frequency = match theta {
            Some(theta) => theta.powf(-2.0 * pair as f64 / config.head_dim as f64),
            None => frequency(config, pair),
        };
        let (sin, cos) = (position as f64 * frequency).sin_cos();
        let (a, b) = (x[pair], x[pair + half]);
        let factor = match config.rope_scaling {
            RopeScaling::LongRope { attention_factor, .. } => attention_factor,
            _ => 1.0,
        };
        x[pair] = (a * cos - b * sin) * factor;
        x[pair + half] = (b * cos + a * sin) * factor;
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// A recurrent mixer over a sequence, without its last map.
fn mix(
    config: &Config,
    sizes: GatedDeltaNet,
    get: &dyn Fn(&str) -> Vec<f64>,
    x: &[Vec<f64>],
) -> Vec<Vec<f64>> {
    let GatedDeltaNet {
        linear_conv_kernel_dim: kernel,
        linear_key_head_dim: e,
        linear_value_head_dim: width,
        linear_num_key_heads: keys,
        linear_num_value_heads: heads,
    } = sizes;
    let map = |name: &str| -> Vec<Vec<f64>> {
        let weight = get(&format!("linear_attn.{name}.weight"));
        x.iter().map(|x| linear(x, &weight, None)).collect()
    };
    let (qkv, z, b, a) = (map("in_proj_qkv"), map("in_proj_z"), map("in_proj_b"), map("in_proj_a"));
    let (filter, weight) = (get("linear_attn.conv1d.weight"), get("linear_attn.norm.weight"));
    let (a_log, dt_bias) = (get("linear_attn.A_log"), get("linear_attn.dt_bias"));
    let mut states = vec![vec![vec![0.0; width]; e]; heads];
    (0..x.len())
        .map(|t| {
            let channel = |c: usize| {
                let seen =
                    (0..kernel.min(t + 1)).map(|back| filter[(c + 1) * kernel - 1 - back] * qkv[t - back][c]);
                let sum: f64 = seen.sum();
                sum * sigmoid(sum)
            };
            let mixed: Vec<f64> = (0..qkv[t].len()).map(channel).collect();
            let unit = |part: &[f64]| -> Vec<f64> {
                let length = (part.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
                part.iter().map(|x| x / length).collect()
            };
            let mut out = Vec::new();
            for (head, state) in states.iter_mut().enumerate() {
                let key = head * keys / heads;
                let q = unit(&mixed[key * e..][..e]);
                let k = unit(&mixed[(keys + key) * e..][..e]);
                let v = &mixed[2 * keys * e + head * width..][..width];
                let keep = (-a_log[head].exp() * (1.0 + (a[t][head] + dt_bias[head]).exp()).ln()).exp();
                state.iter_mut().flatten().for_each(|s| *s *= keep);
                let said = |state: &[Vec<f64>], by: &[f64], i: usize| -> f64 {
                    by.iter().zip(state).map(|(by, row)| by * row[i]).sum()
                };
                let errors: Vec<f64> = (0..width).map(|i| v[i] - said(state, &k, i)).collect();
                for (row, k) in state.iter_mut().zip(&k) {
                    row.iter_mut().zip(&errors).for_each(|(s, error)| *s += k * sigmoid(b[t][head]) * error);
                }
                let read: Vec<f64> = (0..width).map(|i| said(state, &q, i) / (e as f64).sqrt()).collect();
                let gates = &z[t][head * width..][..width];
                let normed = norm_by(&read, &weight, 0.0, config);
                out.extend(normed.iter().zip(gates).map(|(x, z)| x * z * sigmoid(*z)));
            }
            out
        })
        .collect()
}

/// Gated short convolutions over a sequence, without their last map.
fn convolve(kernel: usize, get: &dyn Fn(&str) -> Vec<f64>, x: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let (weight, filter) = (get("conv.in_proj.weight"), get("conv.conv.weight"));
    let parts: Vec<Vec<f64>> = x.iter().map(|x| linear(x, &weight, None)).collect();
    let width = weight.len() / x[0].len() / 3;
    let channel = |t: usize, c: usize| -> f64 {
        let input = |t: usize| parts[t][c] * parts[t][2 * width + c];
        let sum: f64 =
            (0..kernel.min(t + 1)).map(|back| filter[(c + 1) * kernel - 1 - back] * input(t - back)).sum();
        parts[t][width + c] * sum
    };
    (0..x.len()).map(|t| (0..width).map(|c| channel(t, c)).collect()).collect()
}

/// LFM2's weights under Llama's names.
fn renamed(weights: &Weights) -> Weights {
    let names = [
        ("self_attn.out_proj", "self_attn.o_proj"),
        ("_layernorm", "_norm"),
        ("feed_forward.w1", "mlp.gate_proj"),
        ("feed_forward.w2", "mlp.down_proj"),
        ("feed_forward.w3", "mlp.up_proj"),
        ("operator_norm", "input_layernorm"),
        ("ffn_norm", "post_attention_layernorm"),
        ("embedding_norm", "norm"),
    ];
    let name = |name: &String| names.iter().fold(name.clone(), |name, (from, to)| name.replace(from, to));
    weights.iter().map(|(old, values)| (name(old), values.clone())).collect()
}

/// The weights with a matrix for each of queries, keys, values, gate and up.
fn unfused(config: &Config, weights: &Weights) -> Weights {
    let (e, f) = (config.head_dim, config.intermediate_size);
    let kv = ("k_proj", config.num_key_value_heads * e);
    let qkv = vec![("q_proj", config.num_attention_heads * e), kv, ("v_proj", kv.1)];
    let fused = [("qkv_proj", qkv), ("gate_up_proj", vec![("gate_proj", f), ("up_proj", f)])];
    let mut all = Weights::new();
    for (name, values) in weights {
        let parts = fused.iter().find(|(fused, _)| name.contains(fused));
        let Some((fused, parts)) = parts else {
            all.insert(name.clone(), values.clone());
            continue;
        };
        let mut rest = &values[..];
        for (part, rows) in parts {
            let (values, others) = rest.split_at(rows * config.hidden_size);
            all.insert(name.replace(fused, part), values.to_vec());
            rest = others;
        }
    }
    all
}

/// Logits after the last of `tokens`.
pub(crate) fn logits(config: &Config, weights: &Weights, tokens: &[u32]) -> Vec<f64> {
    let separate;
    let weights = if config.architecture == Architecture::Phi3 {
        separate = unfused(config, weights);
        &separate
    } else if config.architecture == Architecture::Lfm2 {
        separate = renamed(weights);
        &separate
    } else {
        weights
    };
    let d = config.hidden_size;
    let table = &weights["model.embed_tokens.weight"];
    let gemma = matches!(config.architecture, Architecture::Gemma3Text | Architecture::Gemma4Text);
    let inputs: Vec<Vec<f64>> =
        tokens.iter().map(|&token| per_layer_inputs(config, weights, token)).collect();
    // Keys and values of the last layer of each type that has them.
    let mut lent: HashMap<bool, [Vec<Vec<Vec<f64>>>; 2]> = HashMap::new();
    let factor =
        |value: fn(&Multipliers) -> f64, default: f64| config.multipliers.as_ref().map_or(default, value);
    let scale = factor(|m| m.embedding_multiplier, if gemma { (d as f64).sqrt() } else { 1.0 });
    let residual = factor(|m| m.residual_multiplier, 1.0);
    let row = |&token: &u32| table[token as usize * d..][..d].iter().map(|x| x * scale).collect();
    let mut x: Vec<Vec<f64>> = tokens.iter().map(row).collect();
    for layer in 0..config.num_hidden_layers {
        let get = |name: &str| &weights[&format!("model.layers.{layer}.{name}")];
        let maybe = |name: &str| weights.get(&format!("model.layers.{layer}.{name}"));
        let norm_if = |x: &[f64], weight: Option<&Vec<f64>>| match weight {
            Some(weight) => norm(x, weight, config),
            None => x.to_vec(),
        };
        // Norms come before attention and MLP, or after them, or both.
        let before = maybe("input_layernorm.weight");
        let between = maybe("post_attention_layernorm.weight");
        let (after, before_mlp) = match maybe("pre_feedforward_layernorm.weight") {
            Some(norm) => (between, Some(norm)),
            None if before.is_some() => (None, between),
            None => (between, None),
        };
        let slides = config.layer_types.get(layer) != Some(&LayerType::FullAttention);
        let [e, key_heads] = match config.gemma4 {
            Some(gemma4) if !slides => [gemma4.global_head_dim, gemma4.num_global_key_value_heads],
            _ => [config.head_dim, config.num_key_value_heads],
        };
        let theta = config.rope_local_base_freq.filter(|_| slides);
        let window = config.sliding_window.filter(|_| slides).unwrap_or(usize::MAX);
        let after_mlp = maybe("post_feedforward_layernorm.weight");
        let project = |x: &[f64], name: &str, norm_of: &str, position: Option<usize>| -> Vec<Vec<f64>> {
            let Some(weight) = maybe(&format!("self_attn.{name}.weight")) else { return Vec::new() };
            let mut all = linear(x, weight, maybe(&format!("self_attn.{name}.bias")));
            let weight = maybe(&format!("self_attn.{norm_of}.weight"));
            // Over all heads together, or over each head.
            let width = weight.map_or(e, Vec::len);
            all = all.chunks(width).flat_map(|part| norm_if(part, weight)).collect();
            all.chunks(e)
                .map(|head| {
                    let mut head = head.to_vec();
                    if let Some(position) = position {
                        rotate(config, theta, &mut head, position);
                    }
                    head
                })
                .collect()
        };
        let normed: Vec<Vec<f64>> = x.iter().map(|x| norm_if(x, before)).collect();
        let rotary = config.no_rope_layers.get(layer) != Some(&0);
        let each = |name: &str, norm_of: &str, rotary: bool| -> Vec<Vec<Vec<f64>>> {
            normed.iter().enumerate().map(|(t, x)| project(x, name, norm_of, rotary.then_some(t))).collect()
        };
        let recurrent = config.layer_types.get(layer) == Some(&LayerType::LinearAttention);
        let mixer = config.linear_attention.filter(|_| recurrent);
        let kernel = config.conv_l_cache.filter(|_| config.layer_types.get(layer) == Some(&LayerType::Conv));
        let get_copy = |name: &str| get(name).clone();
        let mixed = mixer.map(|sizes| mix(config, sizes, &get_copy, &normed));
        let mixed = mixed.or(kernel.map(|kernel| convolve(kernel, &get_copy, &normed)));
        let gated = config.architecture == Architecture::Qwen3_5Text;
        let [mut q, k, v] = match mixed {
            Some(_) => [const { Vec::new() }; 3],
            None => [
                each("q_proj", if gated { "" } else { "q_norm" }, rotary && !gated),
                each("k_proj", "k_norm", rotary),
                each(if maybe("self_attn.v_proj.weight").is_some() { "v_proj" } else { "k_proj" }, "", false),
            ],
        };
        let [k, mut v] = [k, v];
        if config.architecture == Architecture::Gemma4Text {
            for head in v.iter_mut().flatten() {
                *head = norm_by(head, &vec![1.0; e], 0.0, config);
            }
        }
        let [k, v] = if k.first().is_some_and(Vec::is_empty) {
            lent[&slides].clone()
        } else {
            lent.insert(slides, [k.clone(), v.clone()]);
            [k, v]
        };
        // For each head its query, then its gate.
        let mut gates: Vec<Vec<f64>> = Vec::new();
        if gated && mixed.is_none() {
            for (t, heads) in q.iter_mut().enumerate() {
                gates.push(heads.iter().skip(1).step_by(2).flatten().copied().collect());
                let queries =
                    heads.iter().step_by(2).map(|head| norm_if(head, maybe("self_attn.q_norm.weight")));
                *heads = queries.collect();
                heads.iter_mut().for_each(|head| rotate(config, theta, head, t));
            }
        }
        let last_map = match (mixer, kernel) {
            (Some(_), _) => "linear_attn.out_proj.weight",
            (_, Some(_)) => "conv.out_proj.weight",
            _ => "self_attn.o_proj.weight",
        };
        for t in 0..tokens.len() {
            let mut out = mixed.as_ref().map_or_else(Vec::new, |mixed| mixed[t].clone());
            for (head, query) in q.get(t).into_iter().flatten().enumerate() {
                let kv = head * key_heads / config.num_attention_heads;
                let from = (t + 1).saturating_sub(window);
                let root = (config.query_pre_attn_scalar.unwrap_or(e) as f64).sqrt();
                let root = if config.gemma4.is_some() { 1.0 } else { root };
                let scale = factor(|m| m.attention_multiplier, 1.0 / root);
                let scores: Vec<f64> = (from..=t)
                    .map(|s| query.iter().zip(&k[s][kv]).map(|(a, b)| a * b).sum::<f64>() * scale)
                    .collect();
                let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let mass: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
                let total: f64 = mass.iter().sum();
                out.extend((0..e).map(|i| {
                    mass.iter().zip(&v[from..]).map(|(mass, v)| mass * v[kv][i]).sum::<f64>() / total
                }));
            }
            if let Some(gates) = gates.get(t) {
                out.iter_mut().zip(gates).for_each(|(x, gate)| *x *= sigmoid(*gate));
            }
            let added = norm_if(&linear(&out, get(last_map), None), after);
            for (x, a) in x[t].iter_mut().zip(added) {
                *x += residual * a;
            }
            let normed = norm_if(&x[t], before_mlp);
            let gate = linear(&normed, get("mlp.gate_proj.weight"), None);
            let up = linear(&normed, get("mlp.up_proj.weight"), None);
            let silu = |g: f64| g / (1.0 + (-g).exp());
            let root = std::f64::consts::FRAC_2_PI.sqrt();
            let gelu = |g: f64| g / 2.0 * (1.0 + (root * (g + 0.044715 * g * g * g)).tanh());
            let act: Vec<f64> =
                gate.iter().zip(up).map(|(&g, u)| if gemma { gelu(g) } else { silu(g) } * u).collect();
            let added = norm_if(&linear(&act, get("mlp.down_proj.weight"), None), after_mlp);
            for (x, a) in x[t].iter_mut().zip(added) {
                *x += residual * a;
            }
            if let Some(weight) = maybe("per_layer_input_gate.weight") {
                let gate = linear(&x[t], weight, None);
                let input = &inputs[t][layer * gate.len()..];
                let act: Vec<f64> = gate.iter().zip(input).map(|(&g, input)| gelu(g) * input).collect();
                let added = linear(&act, get("per_layer_projection.weight"), None);
                let added = norm(&added, get("post_per_layer_input_norm.weight"), config);
                x[t].iter_mut().zip(added).for_each(|(x, a)| *x += a);
            }
            if let Some(scalar) = maybe("layer_scalar") {
                x[t].iter_mut().for_each(|x| *x *= scalar[0]);
            }
        }
    }
    let head = weights.get("lm_head.weight").unwrap_or(table);
    let last = norm(&x[x.len() - 1], &weights["model.norm.weight"], config);
    let divisor = factor(|m| m.logits_scaling, 1.0);
    let cap = config.gemma4.and_then(|gemma4| gemma4.final_logit_softcapping);
    let capped = |logit: f64| cap.map_or(logit, |cap| cap * (logit / cap).tanh());
    linear(&last, head, None).into_iter().map(|logit| capped(logit / divisor)).collect()
}

/// Inputs of all layers for a token, or nothing in models without them.
fn per_layer_inputs(config: &Config, weights: &Weights, token: u32) -> Vec<f64> {
    let Some(map) = weights.get("model.per_layer_model_projection.weight") else { return Vec::new() };
    let (d, size) = (config.hidden_size, config.gemma4.unwrap().hidden_size_per_layer_input);
    let width = map.len() / d;
    let row = |name: &str, width: usize| -> Vec<f64> {
        let scale = if width == d { d } else { size } as f64;
        weights[name][token as usize * width..][..width].iter().map(|x| x * scale.sqrt()).collect()
    };
    let mapped = linear(&row("model.embed_tokens.weight", d), map, None);
    let mapped: Vec<f64> = mapped.iter().map(|x| x / (d as f64).sqrt()).collect();
    let weight = &weights["model.per_layer_projection_norm.weight"];
    let normed = mapped.chunks(size).flat_map(|part| norm(part, weight, config));
    let of_token = row("model.embed_tokens_per_layer.weight", width);
    normed.zip(of_token).map(|(a, b)| (a + b) / 2f64.sqrt()).collect()
}

/// The sequence that ends with row `row` of the batch.
pub(crate) fn path(batch: &Batch, row: usize) -> Vec<u32> {
    let mut starts = vec![0];
    for segment in &batch.segments {
        starts.push(starts[starts.len() - 1] + segment.len);
    }
    let mut segment = starts.partition_point(|&start| start <= row) - 1;
    let mut tokens = batch.tokens[starts[segment]..=row].to_vec();
    while let Some(parent) = batch.segments[segment].parent {
        tokens.splice(0..0, batch.tokens[starts[parent]..starts[parent + 1]].iter().copied());
        segment = parent;
    }
    tokens
}

/// (log-probability, entropy) of each prediction in the batch.
pub(crate) fn score(config: &Config, weights: &Weights, batch: &Batch, temperature: f64) -> Vec<(f64, f64)> {
    let mut rows: HashMap<usize, Vec<f64>> = HashMap::new();
    batch
        .predictions
        .iter()
        .map(|prediction| {
            let logits = rows
                .entry(prediction.row)
                .or_insert_with(|| logits(config, weights, &path(batch, prediction.row)));
            let z: Vec<f64> = logits.iter().map(|logit| logit / temperature).collect();
            let max = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let lse = max + z.iter().map(|z| (z - max).exp()).sum::<f64>().ln();
            let entropy = z.iter().map(|z| (z - lse).exp() * (lse - z)).sum();
            (z[prediction.token as usize] - lse, entropy)
        })
        .collect()
}

/// A random forest with predictions on some rows, and several predictions on one row.
pub(crate) fn forest(
    numbers: &mut Numbers,
    vocabulary: usize,
    roots: usize,
    segments: usize,
    longest: usize,
) -> Batch {
    let mut batch = Batch::default();
    for index in 0..roots + segments {
        let len = 1 + numbers.below(longest);
        let tokens = numbers.tokens(len, vocabulary);
        let parent = (index >= roots).then(|| numbers.below(batch.segments.len()));
        batch.push_segment(&tokens, parent);
        for row in batch.tokens.len() - len..batch.tokens.len() {
            for _ in 0..numbers.below(3) {
                batch.predict(row, numbers.below(vocabulary) as u32);
            }
        }
    }
    if batch.predictions.is_empty() {
        batch.predict(0, 0);
    }
    batch
}
