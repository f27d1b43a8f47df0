//! `fgrpo merge`: merges a LoRA adapter into its base model, or writes a model in another number format.

use crate::args::places;
use anyhow::Context;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::io::files::{Existing, publish};
use fgrpo_nn::Device;
use fgrpo_nn::weights::{Dtype, Gguf, GgufType, Item, write_checkpoint, write_gguf};
use fgrpo_train::language::{Language, copy_files};
use fgrpo_train::policy;
use std::path::PathBuf;

/// Merge a LoRA adapter into its model, or write a GGUF file.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  fgrpo merge --model models/qwen2.5-7b --adapter runs/math/checkpoints/step-000100/adapter --out models/math

  fgrpo merge --model models/qwen2.5-7b --dtype nf4 --out models/qwen2.5-7b-nf4

  fgrpo merge --model runs/math --dtype q8_0 --out math.gguf

The adapter is in PEFT's format: adapter_config.json and adapter_model.safetensors. One that was trained on a base in a \
format (lora.base) is merged into the values of that format. nf4 is bitsandbytes' format of 4 bits for the layers' \
matrices, with bfloat16 for the rest; transformers, PEFT and lora.base = \"nf4\" read it. It rounds the numbers, merged \
ones too: an adapter of a base in nf4 is more exact beside that base.

A name that ends in .gguf becomes one file for llama.cpp, Ollama and others, with tokenizer, chat template and end tokens; \
its matrices are in f32, f16, bf16 or q8_0.")]
pub(crate) struct Args {
    /// Checkpoint folder or .gguf file of the base model.
    #[arg(long, value_name = "DIR|FILE")]
    model: PathBuf,
    /// Folder of the adapter. Without it, only the number format of the model changes.
    #[arg(long, value_name = "DIR")]
    adapter: Option<PathBuf>,
    /// Checkpoint folder or .gguf file to create.
    #[arg(long, value_name = "DIR|FILE")]
    out: PathBuf,
    /// Number format of the weights.
    #[arg(long, value_enum, default_value_t = Format::F32)]
    dtype: Format,
    /// Number of threads, or 0 for one per core.
    #[arg(long, default_value_t = 0, value_parser = fgrpo_train::config::threads)]
    threads: usize,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Format {
    F32,
    Bf16,
    F16,
    Nf4,
    #[value(name = "q8_0")]
    Q8_0,
}

/// Runs the command, and prints the path of the new folder or file to stdout.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (parent, name) = places::new_place(&args.out, "folder or file")?;
    let threads = match args.threads {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
        n => n,
    };
    let model = places::model("--model", args.model.clone())?;
    let gguf = match (Gguf::is(&args.out), args.dtype) {
        (true, Format::F32) => Some(GgufType::F32),
        (true, Format::Bf16) => Some(GgufType::BF16),
        (true, Format::F16) => Some(GgufType::F16),
        (true, Format::Q8_0) => Some(GgufType::Q8_0),
        (true, Format::Nf4) => {
            bad_input!("--dtype: expected f32, f16, bf16 or q8_0 for a .gguf file, found nf4")
        }
        (false, Format::Q8_0) => {
            bad_input!("--dtype q8_0 requires an --out that ends in .gguf")
        }
        (false, _) => None,
    };
    let engine = policy::open(&model, args.adapter.as_deref(), &Device::cpu(threads)).or_bad_input()?;
    std::fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
    if let Some(kind) = gguf {
        let mut about = Language::read(&model, &[])?.gguf_metadata(engine.config().vocab_size)?;
        let stem = args.out.file_stem().unwrap_or_default().to_string_lossy();
        about.push(("general.name".into(), Item::Text(stem.into_owned())));
        write_gguf(&args.out, engine.config(), about, engine.tensors(), kind)?;
    } else {
        publish(parent, name, Existing::Replace, |dir| {
            let numbers = |dtype| write_checkpoint(dir, engine.config(), engine.tensors(), dtype, 5 << 30);
            match args.dtype {
                Format::F32 => numbers(Dtype::F32),
                Format::Bf16 => numbers(Dtype::BF16),
                Format::F16 => numbers(Dtype::F16),
                Format::Nf4 => engine.write_in_4_bits(dir, Dtype::BF16),
                Format::Q8_0 => unreachable!("refused above"),
            }?;
            copy_files(&model, dir)
        })?;
    }
    outln!("{}", args.out.display());
    Ok(())
}
