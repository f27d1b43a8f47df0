//! `fgrpo score`: computes per-token log-probabilities and entropies of token sequences under a checkpoint.

use crate::args::compute;
use crate::args::places;
use crate::output::streams;
use anyhow::Context;
use fgrpo_eval::dataset::rows;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::io::files;
use fgrpo_eval::io::lines::Lines;
use fgrpo_train::policy::{self, Policy, Sequence, SequenceScores};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

/// Print the log-probability of every token of the given sequences.
///
/// Each input line is `{"tokens":[...]}`, each output line `{"logp":[...],"entropy":[...]}`; `logp[t]` belongs to
/// `tokens[t+1]`, given those before it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  echo '{\"tokens\":[1,5,7]}' | fgrpo score --model runs/maze-quick/checkpoints/step-000100 -"
)]
pub(crate) struct Args {
    /// Checkpoint folder or .gguf file.
    #[arg(long)]
    model: PathBuf,
    /// LoRA adapter for the model, in PEFT format.
    #[arg(long, value_name = "DIR")]
    adapter: Option<PathBuf>,
    /// File of JSON lines, or `-` for standard input.
    input: PathBuf,
    /// Temperature of the distribution.
    #[arg(long, default_value_t = 1.0)]
    temperature: f32,
    #[command(flatten)]
    compute: compute::Flags,
}

#[derive(Deserialize)]
struct Line {
    tokens: Vec<u32>,
}

#[derive(Serialize)]
struct Output<'a> {
    logp: &'a [f32],
    entropy: &'a [f32],
}

/// Number of tokens scored together.
const AT_ONCE: usize = 1 << 14;

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if !(args.temperature.is_finite() && args.temperature > 0.0) {
        bad_input!("--temperature: expected a number above 0, found {}", args.temperature);
    }
    let model = places::model("--model", args.model.clone())?;
    let engine = policy::open(&model, args.adapter.as_deref(), &args.compute.device(None)?)?;
    let mut policy = Policy::of_tokens(engine);
    let input: Box<dyn BufRead> = if args.input.as_os_str() == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        rows::require_lines(&args.input)?;
        let file = files::open(&args.input)
            .with_context(|| format!("opening {}", args.input.display()))
            .or_bad_input()?;
        Box::new(BufReader::new(file))
    };
    let mut lines = Lines::new(input, &args.input);
    let (vocab, room) = (policy.engine().config().vocab_size, policy.positions());
    let mut waiting: Vec<Vec<u32>> = Vec::new();
    let mut any = false;
    while let Some(line) = lines.next_line()? {
        any = true;
        let Line { tokens } = line.parse()?;
        if tokens.len() < 2 {
            bad_input!("{line}: expected at least 2 tokens, found {}", tokens.len());
        }
        if let Some(t) = tokens.iter().find(|&&t| t as usize >= vocab) {
            bad_input!("{line}: expected tokens below {vocab} (vocab_size), found {t}");
        }
        if tokens.len() > room {
            bad_input!(
                "{line}: expected at most {room} tokens (the model's positions), found {}",
                tokens.len()
            );
        }
        waiting.push(tokens);
        if waiting.iter().map(Vec::len).sum::<usize>() >= AT_ONCE
            && !flush(&mut policy, &mut waiting, args.temperature)?
        {
            return Ok(());
        }
    }
    if !any {
        bad_input!("{}: the file is empty", args.input.display());
    }
    flush(&mut policy, &mut waiting, args.temperature).map(drop)
}

/// Scores the waiting sequences and writes the results. Returns `false` if the output was closed.
fn flush(policy: &mut Policy, waiting: &mut Vec<Vec<u32>>, temperature: f32) -> anyhow::Result<bool> {
    let sequences: Vec<Sequence> = waiting.drain(..).map(Sequence::new).collect();
    for SequenceScores { logp, entropy } in policy.score(&sequences, temperature)? {
        let line = serde_json::to_string(&Output { logp: &logp, entropy: &entropy })?;
        if !streams::stream(&format!("{line}\n")) {
            return Ok(false);
        }
    }
    Ok(true)
}
