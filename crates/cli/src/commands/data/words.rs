//! `fgrpo data words`: generates word problems in plain English as data files.

use anyhow::Context;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::io::files::write_whole;
use fgrpo_train::problem::words::Words;
use std::path::PathBuf;

/// Arguments of `fgrpo data words`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    fgrpo data words --out words\n  \
    fgrpo data words --steps 2 --n 5000 --held-out 256 --seed 7 --out two-steps\n\n\
    Writes DIR/train.jsonl and DIR/held-out.jsonl, all problems different. Columns: problem, answer, solution.")]
pub(crate) struct Args {
    /// Number of steps in a solution.
    #[arg(long, value_name = "1|2", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    steps: u8,
    /// Number of training problems.
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    n: u64,
    /// Number of held-out problems.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    held_out: u64,
    /// Seed of the problems.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Output folder.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let words = Words { steps: args.steps.into(), problems: args.n + args.held_out, seed: args.seed };
    let mut held_out = words.draw()?;
    let train = held_out.split_off(args.held_out as usize);
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("--out: {}", args.out.display()))
        .or_bad_input()?;
    for (name, problems) in [("train.jsonl", train), ("held-out.jsonl", held_out)] {
        let path = args.out.join(name);
        write_whole(&path, super::lines(&problems).as_bytes())?;
        say!("{}: {} problems", path.display(), problems.len());
    }
    Ok(())
}
