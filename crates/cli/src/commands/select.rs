//! `fgrpo select`: chooses the checkpoints to compare, by the paper's rule.

use crate::args::named::named;
use crate::output::table::{Format, FormatArgs, Render};
use fgrpo_eval::table::{Table, percent};
use fgrpo_train::evaluation::select::{self, Chosen, Compute, Settings};
use std::path::PathBuf;

/// Find the best checkpoint of each run, at equal or less compute.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fgrpo select runs/grpo runs/f-grpo
  fgrpo select runs/grpo runs/f-grpo runs/f-dapo --part synlogic --json
  fgrpo select runs/grpo runs/f-grpo --evals evals/*      # by the average of math benchmarks, from fgrpo eval

Candidates are the checkpoints of save.every (\"epoch\": at epoch ends). To evaluate each while training: \
eval.at_checkpoints = true. Of equal values the earlier step is chosen.")]
pub(crate) struct Args {
    /// The base run, then the runs to compare with it.
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Choose by these evaluation folders of `fgrpo eval`, or folders of them. Each is matched with its checkpoint by the
    /// model's fingerprint, or by the checkpoint's path if that is the name of a served model.
    #[arg(long, value_name = "DIR", num_args = 1..)]
    evals: Vec<PathBuf>,
    /// Choose by pass@k at this k.
    #[arg(short = 'k', default_value_t = 1)]
    k: usize,
    /// Choose by this part of the held-out problems (task.parts), or by this benchmark of --evals.
    #[arg(long, value_name = "NAME")]
    part: Option<String>,
    /// Unit in which compute is counted.
    #[arg(long, value_parser = named::<Compute>(), default_value = "samples")]
    compute: Compute,
    /// Choose among all evaluations, even if their checkpoint doesn't exist. The best of many noisy values is biased
    /// upwards.
    #[arg(long, conflicts_with = "evals")]
    any_step: bool,
    #[command(flatten)]
    format: FormatArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let selection = select::select(&Settings {
        runs: args.runs.clone(),
        evals: args.evals.clone(),
        k: args.k,
        part: args.part.clone(),
        compute: args.compute,
        any_step: args.any_step,
    })?;
    if args.any_step {
        say!("note: chosen among all evaluations; the best of many noisy values is biased upwards");
    }
    selection.chosen.iter().filter_map(Chosen::warning).for_each(|warning| say!("{warning}"));
    if args.format.chosen() == Format::Json {
        outln!("{}", serde_json::to_string(&selection)?);
        return Ok(());
    }
    let metric = format!("{} %", selection.metric);
    let unit = selection.compute.to_string();
    let mut table = Table::new(["run", "step", &metric, "at step 0 %", "chosen from", &unit, "checkpoint"]);
    for c in &selection.chosen {
        table.push([
            c.run.display().to_string(),
            c.step.to_string(),
            percent(c.value),
            c.start.map_or("-".to_owned(), percent),
            c.candidates.to_string(),
            format!("{:.0}", c.compute),
            c.checkpoint.as_ref().map_or("gone".to_owned(), |p| p.display().to_string()),
        ]);
    }
    out!("{}", table.render(args.format.chosen()));
    Ok(())
}
