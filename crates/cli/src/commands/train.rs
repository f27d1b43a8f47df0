//! `fgrpo train`: trains a policy and writes the run folder with its report.

use crate::args::compute;
use crate::args::places::{self, Loading};
use crate::commands::dry_run;
use crate::output::progress::Console;
use crate::report::write_report;
use anyhow::Context;
use fgrpo_eval::amounts::counted;
use fgrpo_eval::events::Events;
use fgrpo_eval::failure::Stopped;
use fgrpo_eval::io::interrupt;
use fgrpo_eval::io::shell::quoted;
use fgrpo_nn::DeviceName;
use fgrpo_train::config::{Config, Override};
use fgrpo_train::estimator::Estimator;
use fgrpo_train::evaluation::in_training::check_held_out;
use fgrpo_train::problem::Task;
use fgrpo_train::run::checkpoint::{self, Stage};
use fgrpo_train::run::folder::{CONFIGURATION, IfExists, refuse_changes};
use fgrpo_train::run::metrics;
use fgrpo_train::session::Ending;
use fgrpo_train::trainer::{Trained, check_cache, check_teacher, has_steps, train};
use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Configuration file (TOML).
    pub(crate) config: PathBuf,
    /// Change a key of the configuration; repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Run folder [default: runs/NAME for the configuration NAME.toml, and runs/NAME-sft for `fgrpo sft`].
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Resume from the folder's last checkpoint.
    #[arg(long)]
    pub(crate) resume: bool,
    /// Delete the run in the folder and start over.
    #[arg(long, conflicts_with = "resume")]
    pub(crate) restart: bool,
    /// With --resume: accept that the configuration differs from the run's.
    #[arg(long, requires = "resume")]
    pub(crate) accept_changes: bool,
    #[command(flatten)]
    pub(crate) compute: compute::Flags,
    #[command(flatten)]
    pub(crate) dry_run: dry_run::Flags,
}

pub(crate) const EXAMPLES: &str = "Examples:
  fgrpo train configs/maze-quick.toml
  fgrpo train configs/maze-quick.toml --set algorithm.focal_gamma=0 --out runs/grpo
  fgrpo train configs/maze-quick.toml --out runs/grpo --resume
  fgrpo train configs/maze-quick.toml --device cuda
  fgrpo train math.toml --dry-run --rejected rejected.jsonl    # why rows of the data became no problem
  fgrpo train math.toml --dry-run --device cuda --gpu h200     # what fits on a GPU that isn't here";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut config = args.configuration()?;
    has_steps(&config)?;
    let out = args.out.clone().unwrap_or_else(|| {
        PathBuf::from("runs").join(args.config.file_stem().unwrap_or(args.config.as_os_str()))
    });
    args.take_places(&mut config, &out)?;
    if args.dry_run.enabled {
        let check = |config: &Config, task: &Task| {
            check_held_out(config, task)?;
            check_cache(config, task, args.device())?;
            check_teacher(config, task)?;
            Estimator::of(config)?;
            args.check_folder(&out, config, Stage::Rl)
        };
        dry_run::run(&config, args.device(), &args.dry_run, check)?;
        config.notes().iter().for_each(|note| say!("note: {note}"));
        return Ok(());
    }
    args.say_if_new(&out);
    interrupt::listen();
    let mut console = Console::new();
    conclude(run_and_report(&config, &out, args.if_exists(), args.device(), &mut console)?, &[&out])
}

/// Trains, and writes the run's report, even if the run was stopped.
pub fn run_and_report(
    config: &Config,
    out: &Path,
    if_exists: IfExists,
    device: DeviceName,
    console: &mut Console,
) -> anyhow::Result<Ending<Trained>> {
    let result = train(config, out, if_exists, device, console);
    // If the run folder was never opened, the report wouldn't change.
    if !console.opened_folder(out) {
        return result;
    }
    let page = out.join("report.html");
    let report = write_report(std::slice::from_ref(&out.to_owned()), &page);
    match result? {
        // An error of the report doesn't matter here: before the first step there is nothing to report.
        Ending::Interrupted => Ok(Ending::Interrupted),
        done => {
            report?;
            console.say(&format!("report: {}", page.display()));
            Ok(done)
        }
    }
}

impl Args {
    /// Returns the configuration with the changes by flags.
    pub(crate) fn configuration(&self) -> anyhow::Result<Config> {
        let mut overrides = Override::all("--set", &self.set)?;
        overrides.extend(self.compute.overrides());
        Config::load_with(&self.config, &overrides)
    }

    pub(crate) fn device(&self) -> DeviceName {
        self.compute.device.unwrap_or_default()
    }

    pub(crate) fn if_exists(&self) -> IfExists {
        match (self.resume, self.restart) {
            (true, _) => IfExists::Resume { accept_changes: self.accept_changes },
            (_, true) => IfExists::Restart,
            _ => IfExists::Refuse,
        }
    }

    /// Replaces hub names in the configuration by local paths. A dry run downloads nothing.
    pub(crate) fn take_places(&self, config: &mut Config, out: &Path) -> anyhow::Result<()> {
        let loading = if self.dry_run.enabled { Loading::Nothing } else { Loading::All };
        places::configuration(config, self.resume.then_some(out), loading)
    }

    /// Prints a note if the folder doesn't have a run to resume, because the folder may be misspelt. (The trainer
    /// reports logged steps without a checkpoint.)
    pub(crate) fn say_if_new(&self, out: &Path) {
        let logged = std::fs::metadata(out.join("metrics.jsonl")).is_ok_and(|file| file.len() > 0);
        if self.resume && !has_state(out) && !logged {
            say!("nothing to resume in {}: starting at step 0", out.display());
        }
    }

    /// For a dry run: prints what `--restart` would delete, or fails if `--resume` would fail.
    pub(crate) fn check_folder(&self, out: &Path, config: &Config, stage: Stage) -> anyhow::Result<()> {
        self.say_if_new(out);
        let file = out.join(CONFIGURATION);
        if !(self.resume || self.restart) || !file.exists() {
            return Ok(());
        }
        if self.restart {
            let logged = metrics::read(&out.join("metrics.jsonl")).unwrap_or_default();
            let checkpoints = checkpoint::list(&out.join("checkpoints"))?.len();
            say!(
                "--restart would delete the run in {}: {} RL steps, {}, with its evaluations, rollouts, logs and report",
                out.display(),
                logged.last().map_or(0, |m| m.step),
                counted(checkpoints, "checkpoint")
            );
            return Ok(());
        }
        let text = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        refuse_changes(out, &text, config, self.accept_changes, stage)
    }
}

/// Prints a finished command's summary, or returns an error that says how to continue a stopped one with the folders `runs`.
pub(crate) fn conclude<T: Display>(ending: Ending<T>, runs: &[&Path]) -> anyhow::Result<()> {
    match ending {
        Ending::Done(results) => {
            // The run folder has all results, so the command succeeds even if writing to stdout fails.
            let _ = writeln!(std::io::stdout(), "{results}");
            Ok(())
        }
        Ending::Interrupted => {
            let has_state = runs.iter().any(|run| has_state(run));
            let saved = if has_state { ", state saved" } else { " before the first checkpoint" };
            let words = format!("stopped on request{saved}. Continue with: {}", resuming_command());
            Err(Stopped(words).into())
        }
    }
}

/// Returns whether a run has a checkpoint of RL or of its supervised stage.
fn has_state(run: &Path) -> bool {
    let holds =
        |folder: &str| checkpoint::list(&run.join(folder)).is_ok_and(|checkpoints| !checkpoints.is_empty());
    holds("checkpoints") || holds("sft")
}

/// Returns the command line that continues this process: with `--resume`, and without `--restart`.
fn resuming_command() -> String {
    let arguments = std::env::args_os().map(|word| quoted(&word.to_string_lossy()));
    let mut words: Vec<String> = arguments.filter(|word| word != "--restart").collect();
    if !words.iter().any(|word| word == "--resume") {
        words.push("--resume".to_owned());
    }
    words.join(" ")
}
