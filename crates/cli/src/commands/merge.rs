//! `fgrpo merge`: merges a LoRA adapter into its base model, or writes a model in another number format.

use crate::args::places;
use anyhow::Context;
use fgrpo_eval::bad_input;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::io::files::{Existing, publish};
use fgrpo_nn::Device;
use fgrpo_nn::weights::{Dtype, write_checkpoint};
use fgrpo_train::language::copy_files;
use fgrpo_train::policy;
use std::path::{Path, PathBuf};

/// Merge a LoRA adapter into its base model.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  fgrpo merge --model models/qwen2.5-7b --adapter runs/math/checkpoints/step-000100/adapter --out models/math

  fgrpo merge --model models/qwen2.5-7b --dtype nf4 --out models/qwen2.5-7b-nf4

The adapter is in PEFT's format: adapter_config.json and adapter_model.safetensors. One that was trained on a base in a
format (lora.base) is merged into the values of that format. nf4 is bitsandbytes' format of 4 bits for the layers'
matrices, with bfloat16 for the rest; transformers, PEFT and lora.base = \"nf4\" read it. It rounds the numbers, merged
ones too: an adapter of a base in nf4 is more exact beside that base.")]
pub struct Args {
    /// The base model's checkpoint folder.
    #[arg(long, value_name = "DIR")]
    pub model: PathBuf,
    /// The adapter's folder; without it, the model is written in the number format alone.
    #[arg(long, value_name = "DIR")]
    pub adapter: Option<PathBuf>,
    /// Checkpoint folder to create.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Number format of the weights.
    #[arg(long, value_enum, default_value_t = Format::F32)]
    pub dtype: Format,
    /// Threads; 0 is one per core.
    #[arg(long, default_value_t = 0, value_parser = fgrpo_train::config::threads)]
    pub threads: usize,
}

/// Number formats of a model.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
#[allow(missing_docs)]
pub enum Format {
    F32,
    Bf16,
    F16,
    Nf4,
}

/// Runs the command; the folder's path goes to stdout.
///
/// # Errors
/// Bad input: a folder that isn't a checkpoint, or isn't an adapter of it; an output folder that exists already.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.out.exists() {
        bad_input!("--out: {} exists already, wanted a new folder", args.out.display());
    }
    let Some(name) = args.out.file_name() else {
        bad_input!("--out: found {}, wanted the name of a folder", args.out.display())
    };
    let Some(name) = name.to_str() else {
        bad_input!("--out: found {name:?}, wanted a name in UTF-8");
    };
    let threads = match args.threads {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
        n => n,
    };
    let model = places::model("--model", args.model.clone())?;
    let engine = policy::open(&model, args.adapter.as_deref(), &Device::cpu(threads)).or_bad_input()?;
    let parent = args.out.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
    publish(parent, name, Existing::Replace, |dir| {
        let numbers = |dtype| write_checkpoint(dir, engine.config(), engine.tensors(), dtype, 5 << 30);
        match args.dtype {
            Format::F32 => numbers(Dtype::F32),
            Format::Bf16 => numbers(Dtype::BF16),
            Format::F16 => numbers(Dtype::F16),
            Format::Nf4 => engine.write_in_4_bits(dir, Dtype::BF16),
        }?;
        copy_files(&model, dir)
    })?;
    outln!("{}", args.out.display());
    Ok(())
}
