//! Checkpoints of a run: a Hugging Face folder, plus the state for an exact resume.
//!
//! A checkpoint is written under a temporary name, synced and then renamed. Before it is deleted, it is renamed
//! again. Therefore, a folder with a checkpoint's name is always complete, and a run killed at any moment leaves a
//! valid checkpoint.

use crate::config::{Config, Keep};
use crate::problem::Task;
use crate::update::UpdateState;
use anyhow::Context;
use fgrpo_eval::failure::{BadInput, exit_code, in_one_line};
use fgrpo_eval::io::files::{Existing, Prepared, prepare, publish, remove_folder, sync_folder, write_whole};
use fgrpo_eval::io::json;
use fgrpo_eval::record::ranks_above;
use fgrpo_nn::weights::{Checkpoint, Dtype, TensorFile, write_checkpoint};
use fgrpo_nn::{Device, Engine, OptimizerState};
use safetensors::tensor::{Dtype as StDtype, TensorView};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

const STATE: &str = "trainer_state.json";
/// Folder of the adapter in a LoRA policy's checkpoint, in PEFT's layout.
pub const ADAPTER: &str = "adapter";
/// File of the optimizer's state in a checkpoint.
pub const OPTIMIZER: &str = "optimizer.safetensors";

/// State for a resume, besides weights and optimizer. Everything else is a function of the step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainerState {
    /// Stage of the steps. A run resumes only from a checkpoint of the same stage.
    #[serde(default)]
    pub stage: Stage,
    /// Number of completed steps.
    pub step: u64,
    /// State carried from one update to the next.
    #[serde(flatten)]
    pub update: UpdateState,
    /// The best evaluation so far.
    pub best: Option<Best>,
    /// Step count of AdamW.
    pub optimizer_step: u64,
}

/// Stage of training.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Reinforcement learning.
    #[default]
    Rl,
    /// Supervised fine-tuning.
    Sft,
}

/// The parts of a policy's checkpoints besides the trained parameters.
#[derive(Clone)]
pub struct Contents<'a> {
    task: &'a Task,
    /// The base model's path, for an adapter.
    base: String,
    /// Whether the merged model is written in addition to an adapter.
    merged: bool,
}

impl<'a> Contents<'a> {
    /// Returns the contents according to the configuration.
    pub fn of(config: &Config, task: &'a Task) -> Self {
        let path = config.model.path.as_deref();
        let absolute = path.map(|p| std::path::absolute(p).unwrap_or_else(|_| p.to_owned()));
        Self {
            task,
            base: absolute.map(|p| p.to_string_lossy().into_owned()).unwrap_or_default(),
            merged: config.lora.as_ref().is_none_or(|l| l.save_merged),
        }
    }

    /// Writes a policy to `folder`: weights, adapter, tokenizer.
    pub fn write(&self, folder: &Path, engine: &Engine) -> anyhow::Result<()> {
        write_policy(folder, engine, &self.base, self.merged)?;
        self.task.language.write(folder)
    }
}

/// Writes a policy's weights to `folder`: all weights, or an adapter of the model `base`. If `merged`, the merged
/// weights are written too.
pub fn write_policy(folder: &Path, engine: &Engine, base: &str, merged: bool) -> anyhow::Result<()> {
    if engine.lora().is_some() {
        engine.write_adapter(&folder.join(ADAPTER), base)?;
        sync_folder(&folder.join(ADAPTER))?;
    }
    if engine.lora().is_none() || merged {
        write_checkpoint(folder, engine.config(), engine.tensors(), Dtype::F32, 5 << 30)?;
    }
    Ok(())
}

/// Loads the policy that [`write_policy`] wrote to `folder` into an engine of the same model. Resets the gradient and
/// the optimizer. If the folder is damaged or of another model, fails and leaves the engine's weights undefined.
pub fn reload_policy(folder: &Path, engine: &mut Engine) -> anyhow::Result<()> {
    let adapter = folder.join(ADAPTER);
    engine.remove_adapters();
    if adapter.is_dir() {
        engine.read_adapter(&adapter)?;
    } else {
        engine.reload(&Checkpoint::open(folder)?)?;
    }
    engine.zero_gradient();
    Ok(engine.load_optimizer(0, &[], &mut |_, _| Ok(()))?)
}

/// Reads the policy that [`Contents::write`] wrote to `folder`. For an adapter, `base` opens the base model. Fails if
/// only one of the configuration and the folder has an adapter, or with an error that names the file that can't be
/// read.
pub fn read_policy(
    folder: &Path,
    config: &Config,
    device: &Device,
    base: impl FnOnce() -> anyhow::Result<Engine>,
) -> anyhow::Result<Engine> {
    let adapter = folder.join(ADAPTER);
    match (adapter.is_dir(), config.lora.is_some()) {
        (true, true) => {
            let mut engine = base()?;
            engine.read_adapter(&adapter)?;
            Ok(engine)
        }
        (false, false) => {
            let mut engine = Engine::open(&Checkpoint::open(folder)?, device)?;
            config.compute.apply(&mut engine);
            Ok(engine)
        }
        (saved, _) => {
            let (saved, configured) = if saved { ("an", "no ") } else { ("no", "") };
            bad_input!(
                "{}: the checkpoint has {saved} adapter, but the configuration has {configured}[lora]",
                folder.display()
            )
        }
    }
}

/// The best evaluation so far.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// The step of the evaluation.
    pub step: u64,
    /// pass@1 of the evaluation, as a fraction.
    pub pass_at_1: f64,
    /// Number of problems that pass@1 leaves out, because none of their samples could be scored.
    #[serde(default)]
    pub left_out: usize,
}

impl Best {
    /// Returns whether this evaluation is better than `other` (see [`ranks_above`]).
    pub fn beats(&self, other: &Self) -> bool {
        ranks_above((self.left_out, self.pass_at_1), (other.left_out, other.pass_at_1))
    }
}

/// Lists the checkpoints of a run, oldest first.
pub fn list(folder: &Path) -> anyhow::Result<Vec<(u64, PathBuf)>> {
    numbered(folder, "step-")
}

/// Returns whether a run can resume from a checkpoint, i.e. whether the checkpoint has the optimizer state.
pub fn is_resumable(checkpoint: &Path) -> bool {
    checkpoint.join(OPTIMIZER).exists()
}

/// Returns the path of a step's checkpoint.
pub fn path(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!("step-{step:06}"))
}

fn numbered(folder: &Path, prefix: &str) -> anyhow::Result<Vec<(u64, PathBuf)>> {
    let mut folders = Vec::new();
    if !folder.exists() {
        return Ok(folders);
    }
    for entry in std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let entry = entry?;
        if let Some(step) = entry.file_name().to_str().and_then(|n| n.strip_prefix(prefix)?.parse().ok()) {
            folders.push((step, entry.path()));
        }
    }
    folders.sort();
    Ok(folders)
}

/// Number of checkpoints with the optimizer state, from which a run can resume: the newest, and one as a backup.
/// Older checkpoints have only the policy.
pub const RESUMABLE: usize = 2;

/// Writes weights, tokenizer, optimizer and state. [`publish_step`] later renames the result to `folder/step-NNNNNN`.
pub fn prepare_step(
    folder: &Path,
    engine: &Engine,
    contents: &Contents<'_>,
    state: &TrainerState,
) -> anyhow::Result<Prepared> {
    prepare(folder, &format!("step-{:06}", state.step), |dir| {
        contents.write(dir, engine)?;
        write_optimizer(&dir.join(OPTIMIZER), &engine.optimizer_state())?;
        write_state(dir, engine, state)
    })
}

/// Renames a prepared checkpoint to its final name, records its step next to the folder, and deletes older
/// checkpoints. If it fails with an I/O error, which names the file, earlier checkpoints remain.
pub fn publish_step(folder: &Path, prepared: Prepared, step: u64, keep: Keep) -> anyhow::Result<PathBuf> {
    let path = prepared.publish(Existing::Replace)?;
    write_whole(&record(folder), format!("{step}\n").as_bytes())?;
    thin_out(folder, keep)?;
    Ok(path)
}

/// Deletes the checkpoints that `keep` doesn't cover, and the optimizer state of all but the newest [`RESUMABLE`]
/// checkpoints.
fn thin_out(folder: &Path, keep: Keep) -> anyhow::Result<()> {
    for (newer, (_, old)) in list(folder)?.iter().rev().enumerate() {
        let optimizer = old.join(OPTIMIZER);
        if matches!(keep, Keep::Newest(n) if newer > n) {
            remove_folder(old)?;
        } else if newer >= RESUMABLE && optimizer.exists() {
            std::fs::remove_file(&optimizer).with_context(|| format!("removing {}", optimizer.display()))?;
        }
    }
    Ok(())
}

/// Rewrites the state of an existing checkpoint atomically.
pub fn write_state(checkpoint: &Path, engine: &Engine, state: &TrainerState) -> anyhow::Result<()> {
    let state = TrainerState { optimizer_step: engine.optimizer_state().step, ..state.clone() };
    write_whole(&checkpoint.join(STATE), &serde_json::to_vec_pretty(&state)?)
}

/// Returns the path of the file with the step of the newest checkpoint. The file is next to the checkpoint folder, so
/// that a deleted checkpoint can be distinguished from one that never existed.
fn record(folder: &Path) -> PathBuf {
    folder.with_extension("latest")
}

/// Returns the step of the newest checkpoint ever saved in `folder`, even if it no longer exists.
pub fn recorded(folder: &Path) -> Option<u64> {
    std::fs::read_to_string(record(folder)).ok()?.trim().parse().ok()
}

/// Deletes all checkpoints in `folder`, the folder itself and the record of the newest step.
pub fn remove_all(folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        remove_folder(folder)?;
    }
    match std::fs::remove_file(record(folder)) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("removing {}", record(folder).display()))
        }
        _ => Ok(()),
    }
}

/// Writes weights and tokenizer as `folder/best-NNNNNN`. The previous best policy remains, because a resume may start
/// before this step; [`keep_best`] deletes it when no resume can need it.
pub fn save_best(
    folder: &Path,
    step: u64,
    engine: &Engine,
    contents: &Contents<'_>,
) -> anyhow::Result<PathBuf> {
    publish(folder, &best_name(step), Existing::Replace, |dir| contents.write(dir, engine))
}

/// Deletes every best policy except `best`, if the policy of `best` exists. A checkpoint that records `best` must be
/// saved first.
pub fn keep_best(folder: &Path, best: Best) -> anyhow::Result<()> {
    if has_best(folder, best) {
        for (_, old) in numbered(folder, "best-")?.into_iter().filter(|(s, _)| *s != best.step) {
            remove_folder(&old)?;
        }
    }
    Ok(())
}

/// Returns whether the policy of `best` exists.
pub fn has_best(folder: &Path, best: Best) -> bool {
    folder.join(best_name(best.step)).is_dir()
}

fn best_name(step: u64) -> String {
    format!("best-{step:06}")
}

/// Writes the optimizer's state, synced.
pub fn write_optimizer(path: &Path, state: &OptimizerState<'_>) -> anyhow::Result<()> {
    let views = state
        .tensors
        .iter()
        .map(|(name, shape, values)| {
            Ok((name.clone(), TensorView::new(StDtype::F32, shape.clone(), bytemuck::cast_slice(values))?))
        })
        .collect::<Result<Vec<_>, safetensors::SafeTensorError>>()?;
    let write = || {
        // The library makes the file private to its owner; use the umask's permissions instead.
        let permissions = std::fs::File::create(path)?.metadata()?.permissions();
        safetensors::serialize_to_file(views, None, path)?;
        std::fs::set_permissions(path, permissions)?;
        Ok::<_, anyhow::Error>(std::fs::File::open(path)?.sync_all()?)
    };
    write().with_context(|| format!("writing {}", path.display()))
}

/// Opens a checkpoint of `stage` for a resume, with `base` as in [`read_policy`]. Fails if the checkpoint is damaged,
/// of another stage or without optimizer state, or if the device fails.
pub fn open(
    folder: &Path,
    stage: Stage,
    config: &Config,
    device: &Device,
    base: impl FnOnce() -> anyhow::Result<Engine>,
) -> anyhow::Result<(Engine, TrainerState)> {
    let state = read_state(folder).map_err(|error| unusable(folder, error))?;
    if state.stage != stage {
        let (actual, expected) = match stage {
            Stage::Rl => ("demonstrations (fgrpo sft)", "RL (fgrpo train)"),
            Stage::Sft => ("RL (fgrpo train)", "demonstrations (fgrpo sft)"),
        };
        bad_input!(
            [OtherFolder],
            "{}: this is a checkpoint of {actual}, not of {expected}",
            folder.display()
        );
    }
    if !is_resumable(folder) {
        bad_input!(
            "{}: a run can't resume from this checkpoint, because it has no {OPTIMIZER}: only the newest {RESUMABLE} checkpoints keep the optimizer's state. Restore one of those, or start a new run from these weights in another folder, with model.path={}",
            folder.display(),
            folder.display()
        );
    }
    let mut engine = read_policy(folder, config, device, base).map_err(|error| unusable(folder, error))?;
    read_optimizer(&folder.join(OPTIMIZER), &mut engine, state.optimizer_step)
        .map_err(|error| unusable(folder, error))?;
    Ok((engine, state))
}

/// Returns an error for a damaged newest checkpoint, which suggests an older one.
fn unusable(newest: &Path, error: anyhow::Error) -> anyhow::Error {
    let device_failed =
        error.chain().any(|cause| matches!(cause.downcast_ref(), Some(fgrpo_nn::Error::Device { .. })));
    // The device failed, or the checkpoint is fine but belongs to another configuration.
    if device_failed || exit_code(&error) == 2 {
        return error;
    }
    let all = newest.parent().map(list).and_then(Result::ok).unwrap_or_default();
    let remedy = match all.iter().rfind(|(_, path)| path != newest && is_resumable(path)) {
        Some((step, _)) => format!("; move it away to resume from step {step}"),
        None => ", and no other checkpoint can be resumed".to_owned(),
    };
    BadInput(format!("{} can't be used{remedy}: {}", newest.display(), in_one_line(&error))).into()
}

/// Reads the state of a checkpoint folder.
fn read_state(folder: &Path) -> anyhow::Result<TrainerState> {
    let path = folder.join(STATE);
    let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    // serde names the field of an error in a flattened part only if that part is read separately.
    json::parse::<UpdateState>(&bytes)
        .and_then(|_| json::parse(&bytes))
        .with_context(|| path.display().to_string())
}

/// Reads the optimizer state into the engine tensor by tensor, so that it is in memory only once. Fails with an error
/// that names the file, also if moments are missing.
pub fn read_optimizer(path: &Path, engine: &mut Engine, step: u64) -> anyhow::Result<()> {
    let file = TensorFile::open(path)?;
    let tensors: Vec<(&str, usize)> =
        file.names().map(|name| (name, file.shape(name).unwrap_or_default().iter().product())).collect();
    if step > 0 && tensors.is_empty() {
        anyhow::bail!(
            "{}: there are no moments, although the optimizer has made {step} updates",
            path.display()
        );
    }
    let mut read = |index: usize, out: &mut [f32]| file.read_into(tensors[index].0, out);
    engine.load_optimizer(step, &tensors, &mut read).with_context(|| format!("reading {}", path.display()))
}
