//! `fgrpo data arithmetic`: writes the problems of the arithmetic task to a data file.

use crate::args::named::among;
use fgrpo_eval::io::files::write_whole;
use fgrpo_train::config::{Config, TaskConfig};
use fgrpo_train::problem::{self, Split};
use std::path::PathBuf;

/// Arguments of `fgrpo data arithmetic`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    fgrpo data arithmetic configs/arithmetic-quick.toml --split held-out --out held-out.jsonl\n  \
    fgrpo data arithmetic configs/arithmetic-quick.toml --out train.jsonl --limit 5000\n\n\
    Columns: problem, answer, solution. The held-out problems are never among the training ones.")]
pub(crate) struct Arithmetic {
    /// A training configuration with an arithmetic task.
    config: PathBuf,
    /// Change a key of the configuration; repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Split to write.
    #[arg(long, value_parser = split(), default_value = "train")]
    split: Split,
    /// Write only the first problems, up to this number.
    #[arg(long, value_name = "PROBLEMS")]
    limit: Option<usize>,
    /// Output file of JSON lines.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Parses a split's name.
pub(super) fn split() -> impl clap::builder::TypedValueParser<Value = Split> {
    among([("train", Split::Train), ("held-out", Split::HeldOut)])
}

pub(super) fn run(args: &Arithmetic) -> anyhow::Result<()> {
    let TaskConfig::Arithmetic(config) = Config::load(&args.config, &args.set)?.task else {
        bad_input!("{}: task.kind must be \"arithmetic\"", args.config.display());
    };
    let (train, held_out) = problem::generated::problems(&config)?;
    let problems = match args.split {
        Split::Train => train,
        Split::HeldOut => held_out,
    };
    let problems = &problems[..problems.len().min(args.limit.unwrap_or(usize::MAX))];
    write_whole(&args.out, super::lines(problems).as_bytes())?;
    say!("{}: {} problems", args.out.display(), problems.len());
    Ok(())
}
