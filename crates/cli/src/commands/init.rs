//! `fgrpo init`: writes a randomly initialised Hugging Face checkpoint, for tests and first steps.

use crate::args::named::among;
use crate::args::places;
use anyhow::Context;
use fgrpo_core::rng::Key;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::io::files::{Existing, publish};
use fgrpo_eval::io::machine::fits;
use fgrpo_nn::config::{Architecture, Config, RopeScaling};
use fgrpo_nn::weights::{Dtype, write_checkpoint};
use fgrpo_nn::{Device, Engine, Error};
use fgrpo_train::language::{Language, copy_files};
use std::path::{Path, PathBuf};

/// Make a randomly initialised Hugging Face checkpoint.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fgrpo init --arch qwen3 --vocab-size 512 --out models/tiny
  fgrpo init --arch llama --hidden-size 256 --layers 6 --heads 8 --kv-heads 2 --dtype bf16 --out models/small")]
pub(crate) struct Args {
    /// Model family.
    #[arg(long, value_parser = among(ARCHITECTURES))]
    arch: Architecture,
    /// Size of the vocabulary [default: the tokenizer's, or 512 without a tokenizer].
    #[arg(long)]
    vocab_size: Option<usize>,
    /// Width of the residual stream.
    #[arg(long, default_value_t = 128)]
    hidden_size: usize,
    /// Inner width of the SwiGLU block [default: 3 x hidden size].
    #[arg(long)]
    intermediate_size: Option<usize>,
    /// Number of decoder layers.
    #[arg(long, default_value_t = 4)]
    layers: usize,
    /// Number of query heads.
    #[arg(long, default_value_t = 4)]
    heads: usize,
    /// Number of key/value heads.
    #[arg(long, default_value_t = 2)]
    kv_heads: usize,
    /// Size of a head [default: hidden size / heads].
    #[arg(long)]
    head_dim: Option<usize>,
    /// Base of the rotary frequencies.
    #[arg(long, default_value_t = 1e6)]
    rope_theta: f64,
    /// Factor of Llama 3's scaling of rotary frequencies [default: no scaling].
    #[arg(long, value_name = "FACTOR")]
    pub llama3_scaling: Option<f64>,
    /// Maximum context length.
    #[arg(long, default_value_t = 4096)]
    context: usize,
    /// Don't share the weights of the embedding and the vocabulary head.
    #[arg(long)]
    untied: bool,
    /// Standard deviation of the initial weights.
    #[arg(long, default_value_t = 0.02)]
    std: f32,
    /// Number format of the weights.
    #[arg(long, default_value = "f32", value_parser = among(DTYPES))]
    dtype: Dtype,
    /// Seed of the weights.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Model whose tokenizer files are copied; its chat template determines the end tokens.
    #[arg(long, value_name = "DIR")]
    tokenizer: Option<PathBuf>,
    /// Checkpoint folder to create.
    #[arg(long)]
    out: PathBuf,
}

const ARCHITECTURES: [(&str, Architecture); 3] =
    [("qwen2", Architecture::Qwen2), ("qwen3", Architecture::Qwen3), ("llama", Architecture::Llama)];
const DTYPES: [(&str, Dtype); 3] = [("f32", Dtype::F32), ("bf16", Dtype::BF16), ("f16", Dtype::F16)];

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (parent, name) = places::new_place(&args.out, "folder")?;
    if args.heads == 0 {
        bad_input!("--heads: expected at least 1, found 0");
    }
    if args.head_dim.is_none() && !args.hidden_size.is_multiple_of(args.heads) {
        bad_input!(
            "--heads: expected a divisor of {} (--hidden-size), found {}; otherwise set --head-dim",
            args.hidden_size,
            args.heads
        );
    }
    if !(args.std.is_finite() && args.std >= 0.0) {
        bad_input!("--std: expected a number of at least 0, found {}", args.std);
    }
    let tokenizer = args.tokenizer.clone().map(|path| places::model("--tokenizer", path)).transpose()?;
    let (vocab_size, language) = vocabulary(args, tokenizer.as_deref())?;
    let config = Config {
        architecture: args.arch,
        vocab_size,
        hidden_size: args.hidden_size,
        intermediate_size: args.intermediate_size.unwrap_or(args.hidden_size.saturating_mul(3)),
        num_hidden_layers: args.layers,
        num_attention_heads: args.heads,
        num_key_value_heads: args.kv_heads,
        head_dim: args.head_dim.unwrap_or(args.hidden_size / args.heads),
        rms_norm_eps: 1e-6,
        rope_theta: args.rope_theta,
        rope_scaling: args.llama3_scaling.map_or(RopeScaling::Default, |factor| RopeScaling::Llama3 {
            factor,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position_embeddings: 8192,
        }),
        tie_word_embeddings: !args.untied,
        max_position_embeddings: args.context,
        bos_token_id: language.as_ref().and_then(Language::bos_token),
        eos_token_id: language.as_ref().map(|l| l.stop_tokens().to_vec()).unwrap_or_default(),
        pad_token_id: language.as_ref().and_then(Language::pad_token),
        ..Config::default()
    };
    config.validate().map_err(in_flags).or_bad_input()?;
    fits("the sizes of the model", config.parameters(), 4)?;
    let key = Key::new(args.seed);
    let threads = fgrpo_eval::io::machine::cores();
    let engine =
        Engine::init(&config, args.std, &|i| key.nth_normal(i), &Device::cpu(threads)).or_bad_input()?;
    std::fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
    publish(parent, name, Existing::Replace, |dir| {
        write_checkpoint(dir, &config, engine.tensors(), args.dtype, 5 << 30)?;
        if let Some(from) = &tokenizer {
            copy_files(from, dir)?;
        }
        Ok(())
    })?;
    let parameters: usize = engine.tensors().map(|t| t.1.iter().product::<usize>()).sum();
    say!("{}: {parameters} parameters", args.out.display());
    Ok(())
}

/// Replaces the name of a configuration field in an error by the flag.
fn in_flags(error: Error) -> Error {
    let Error::Config { field, found, expected, .. } = error else { return error };
    let flag = |field: &str| match field {
        "num_hidden_layers" => "--layers",
        "num_attention_heads" => "--heads",
        "num_key_value_heads" => "--kv-heads",
        "max_position_embeddings" => "--context",
        "hidden_size" => "--hidden-size",
        "head_dim" => "--head-dim",
        "vocab_size" => "--vocab-size",
        "intermediate_size" => "--intermediate-size",
        "rope_theta" => "--rope-theta",
        _ => "--llama3-scaling",
    };
    let expected = expected.replace("num_attention_heads", "--heads").replace("hidden_size", "--hidden-size");
    Error::Config { place: "fgrpo init".to_owned(), field: flag(&field).to_owned(), found, expected }
}

/// Returns the size of the vocabulary, and the tokenizer if there is one.
fn vocabulary(args: &Args, tokenizer: Option<&Path>) -> anyhow::Result<(usize, Option<Language>)> {
    let Some(folder) = tokenizer else { return Ok((args.vocab_size.unwrap_or(512), None)) };
    let language = Language::read(folder, &[]).context("--tokenizer")?;
    let minimum = language.vocab_size();
    let size = args.vocab_size.unwrap_or(minimum);
    if size < minimum {
        bad_input!("--vocab-size: expected at least {minimum}, the tokenizer's size, found {size}");
    }
    Ok((size, Some(language)))
}
