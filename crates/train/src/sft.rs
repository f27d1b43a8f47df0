//! Supervised fine-tuning on demonstrations (SFT), as a separate run or as the first stage of training.
//!
//! The loss is the cross-entropy of the completion, computed with the same batches and engine as RL. Inside `train`, the
//! result is cached next to the run folders under a hash of its inputs, so runs with the same supervised stage share it.

mod demonstrations;
mod fit;

pub use demonstrations::Demonstrations;

use crate::config::{Config, Keep, SftConfig};
use crate::device;
use crate::policy;
use crate::problem::{Split, Task};
use crate::run::checkpoint::{self, Contents, Stage};
use crate::run::folder::{IfExists, RunDir};
use crate::run::tensorboard::TensorBoard;
use crate::session::{Ending, Session};
use anyhow::Context;
use fgrpo_eval::events::Events;
use fgrpo_eval::io::files::{Existing, clear_partial, copy, publish, write_whole};
use fgrpo_eval::io::lines;
use fgrpo_nn::config::Config as ModelConfig;
use fgrpo_nn::{Device, DeviceName, Engine};
use fit::{Fit, fit};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::path::{Path, PathBuf};

/// One line of `sft.jsonl`. Measured numbers are `f64` when written, and [`Number`](crate::run::metrics::Number) when read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SftLine<N = f64> {
    /// Optimizer step, from 1.
    pub step: u64,
    /// Mean cross-entropy of the completions' tokens, in nats.
    pub loss: N,
    /// Mean cross-entropy on held-out demonstrations after the step. Absent if this evaluation wasn't due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_out_loss: Option<f64>,
    /// Passes over the demonstrations so far.
    pub epoch: N,
    /// Learning rate.
    pub lr: N,
    /// Global gradient norm before clipping.
    pub gradient_norm: N,
    /// Tokens trained on per second, including prompts.
    pub tokens_per_second: N,
}

/// Trains on the demonstrations of `config` as a separate run, in the run folder `out`. Fails like [`RunDir::open`],
/// if the configuration has no `[sft]`, or with the error that stopped the run.
pub fn run(
    config: &Config,
    out: &Path,
    if_exists: IfExists,
    name: DeviceName,
    events: &mut dyn Events,
) -> anyhow::Result<Ending<Fitted>> {
    let sft = settings(config)?;
    let device = device::of_run(name, config)?;
    let task = Task::open(config)?;
    let session = Session::begin((config, &task, Stage::Sft), out, if_exists, (name, device), events)?;
    let Session { run, device } = &session;
    let keep = config.save.keep;
    let stage = Fit { config, sft, task: &task, device, run, checkpoints: "checkpoints", keep };
    let fitted = session.end(fit(&stage, events))?;
    let lines = lines(&run.path)?;
    match (fitted, run.latest()?, lines.first(), lines.last()) {
        (Some(_), Some((_, folder)), Some(first), Some(last)) => {
            events.say(&format!("policy: {}", folder.display()));
            Ok(Ending::Done(Fitted { first: first.clone(), last: last.clone() }))
        }
        _ => Ok(Ending::Interrupted),
    }
}

/// Results of a run on demonstrations. Displayed as a summary.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// Line of the first step.
    pub first: SftLine,
    /// Line of the last step.
    pub last: SftLine,
}

impl fmt::Display for Fitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last } = self;
        let held_out = last.held_out_loss.map(|l| format!(", held-out {l:.4}")).unwrap_or_default();
        write!(
            f,
            "sft: {} steps, {:.2} epochs, loss {:.4} -> {:.4}{held_out}",
            last.step, last.epoch, first.loss, last.loss
        )
    }
}

/// Returns the table `[sft]` of a configuration, or an error if it doesn't exist.
pub fn settings(config: &Config) -> anyhow::Result<&SftConfig> {
    match &config.sft {
        Some(sft) => Ok(sft),
        None => bad_input!("sft: the table [sft] is missing; it needs `steps` or `epochs`"),
    }
}

/// Trains on the demonstrations as the first stage of a training run, or loads the cached result of an identical
/// stage. Writes `sft.jsonl`. Returns `None` if interrupted, with a checkpoint for a resume. Fails if the task has no
/// demonstrations, the loss isn't finite, or with an I/O error.
pub fn stage(
    config: &Config,
    sft: &SftConfig,
    task: &Task,
    device: &Device,
    run: &RunDir,
    events: &mut dyn Events,
) -> anyhow::Result<Option<Engine>> {
    let folder = cache_folder(&run.path);
    let name = fingerprint(config, sft, task, device, &policy::sizes(config, task)?)?;
    let cached = folder.join(&name);
    let log = run.file("sft.jsonl");
    clear_partial(&folder);
    if cached.exists() {
        events.say(&format!("sft: taken from {}", cached.display()));
        let lines = cached.join("sft.jsonl");
        let bytes = std::fs::read(&lines).with_context(|| format!("reading {}", lines.display()))?;
        write_whole(&log, &bytes)?;
        if config.log.tensorboard {
            let mut tensorboard = TensorBoard::create(&run.path, "sft")?;
            for line in lines::read::<SftLine>(&log)? {
                line.write_to(&mut tensorboard)?;
            }
        }
    } else {
        remove_other_checkpoints(run, &name, events)?;
        let keep = Keep::Newest(0);
        let stage = Fit { config, sft, task, device, run, checkpoints: CHECKPOINTS, keep };
        let Some(engine) = fit(&stage, events).map_err(|error| run.blame(error))? else { return Ok(None) };
        // Runs that start at the same time compute the same result, so it doesn't matter which one is stored.
        publish(&folder, &name, Existing::Keep, |dir| {
            Contents::of(config, task).write(dir, &engine)?;
            copy(&log, &dir.join("sft.jsonl"))
        })?;
    }
    checkpoint::remove_all(&run.file(CHECKPOINTS))?;
    // In both cases, RL starts with a new optimizer and with the weights from the file.
    let engine = checkpoint::read_policy(&cached, config, device, || policy::fresh(config, task, device))
        .with_context(|| {
            format!("{} can't be used; remove it to compute the stage again", cached.display())
        })?;
    Ok(Some(engine))
}

/// Folder of the checkpoints from which a stage resumes, and of the fingerprint of its inputs. It is removed when the
/// stage is finished.
const CHECKPOINTS: &str = "sft";

/// Removes the checkpoints of a stage with other inputs, so that they can't be mistaken for checkpoints of this stage.
fn remove_other_checkpoints(run: &RunDir, fingerprint: &str, events: &mut dyn Events) -> anyhow::Result<()> {
    let folder = run.file(CHECKPOINTS);
    let inputs = folder.join("inputs");
    if std::fs::read(&inputs).is_ok_and(|stored| stored == fingerprint.as_bytes()) {
        return Ok(());
    }
    if let Some((step, _)) = checkpoint::list(&folder)?.pop() {
        events.say(&format!(
            "sft: starting again, because its data, model or settings have changed since the checkpoint of step {step}"
        ));
    }
    checkpoint::remove_all(&folder)?;
    std::fs::create_dir(&folder).with_context(|| format!("creating {}", folder.display()))?;
    write_whole(&inputs, fingerprint.as_bytes())
}

impl SftLine {
    fn write_to(&self, tensorboard: &mut TensorBoard) -> anyhow::Result<()> {
        let all = [
            ("sft/loss", Some(self.loss)),
            ("sft/held_out_loss", self.held_out_loss),
            ("sft/lr", Some(self.lr)),
            ("sft/gradient_norm", Some(self.gradient_norm)),
        ];
        tensorboard.scalars(self.step, all.into_iter().filter_map(|(name, value)| Some((name, value?))))
    }
}

fn cache_folder(run: &Path) -> PathBuf {
    run.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).join("sft-cache")
}

fn fingerprint(
    config: &Config,
    sft: &SftConfig,
    task: &Task,
    device: &Device,
    model: &ModelConfig,
) -> anyhow::Result<String> {
    // The model at this path may have changed.
    let weights = config.model.path.as_deref().map(crate::run::fingerprint::of_checkpoint).transpose()?;
    let seed = config.start_seed();
    let text = format!(
        "{}\n{seed}\n{}\n{}\n{:?}\n{:?}\n{weights:?}\n{model:?}\n{:?}\n{device:?}",
        env!("CARGO_PKG_VERSION"),
        task.fingerprint(),
        held_out_fingerprint(sft, task, model.context())?,
        sft,
        config.model,
        config.lora,
    );
    let digest = Sha256::digest(text.as_bytes());
    Ok(digest[..8].iter().map(|b| format!("{b:02x}")).collect())
}

/// Identifies the held-out demonstrations on which a stage is evaluated.
fn held_out_fingerprint(sft: &SftConfig, task: &Task, positions: usize) -> anyhow::Result<String> {
    let mut hash = Sha256::new();
    if sft.eval_every > 0 {
        let held_out = Demonstrations::of(task, Split::HeldOut, positions)?;
        for at in 0..held_out.len().min(sft.eval_problems as u64) {
            let prompt = task.prompt(Split::HeldOut, held_out.problem(at));
            let demonstration = task.demonstration(&prompt).unwrap_or_default();
            for tokens in [prompt.tokens, demonstration] {
                hash.update((tokens.len() as u64).to_le_bytes());
                tokens.iter().for_each(|token| hash.update(token.to_le_bytes()));
            }
        }
    }
    Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
}

/// Reads the lines of a stage.
pub fn lines(run: &Path) -> anyhow::Result<Vec<SftLine>> {
    lines::read(&run.join("sft.jsonl"))
}
