//! Checkpoints of a run: a Hugging Face folder, plus the state for an exact resume.
//!
//! A checkpoint is written under a temporary name, synced and then renamed. Before it is deleted, it is renamed again.
//! So a folder with a checkpoint's name is always complete, and a kill at any moment leaves the last good checkpoint.

use crate::config::{Config, Keep};
use crate::problem::Task;
use crate::update::UpdateState;
use anyhow::Context;
use fgrpo_eval::failure::{BadInput, exit_code, in_one_line};
use fgrpo_eval::io::files::{Existing, Prepared, prepare, publish, remove_folder, sync_folder, write_whole};
use fgrpo_eval::io::json;
use fgrpo_nn::weights::{Checkpoint, Dtype, TensorFile, write_checkpoint};
use fgrpo_nn::{Device, Engine, OptimizerState};
use safetensors::tensor::{Dtype as StDtype, TensorView};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

const STATE: &str = "trainer_state.json";
/// The folder of a LoRA policy's adapter in its checkpoint, in PEFT's layout.
pub const ADAPTER: &str = "adapter";
/// The file of the optimizer's state in a checkpoint.
pub const OPTIMIZER: &str = "optimizer.safetensors";

/// The state for a resume, besides weights and optimizer. Everything else is a function of the step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainerState {
    /// The stage of these steps; a run resumes only from its own stage.
    #[serde(default)]
    pub stage: Stage,
    /// Steps done.
    pub step: u64,
    /// State carried from one update to the next.
    #[serde(flatten)]
    pub update: UpdateState,
    /// The best evaluation so far.
    pub best: Option<Best>,
    /// AdamW's own step count.
    pub optimizer_step: u64,
}

/// What the steps of a stage do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Reinforcement learning.
    #[default]
    Rl,
    /// Supervised fitting.
    Sft,
}

/// What a policy's checkpoints contain besides its trained parameters.
#[derive(Clone)]
pub struct Contents<'a> {
    task: &'a Task,
    /// The base model's path, for an adapter.
    base: String,
    /// Whether a policy with an adapter is also written as a merged model.
    merged: bool,
}

impl<'a> Contents<'a> {
    /// The contents that the configuration asks for.
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

/// Writes a policy's weights to `folder`: an adapter of the model `base`, or all weights. With `merged`, an adapter's merged
/// weights too.
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

/// Reads the policy that [`write_policy`] wrote to `folder` into an engine of its model. The gradient is then 0, and the
/// optimizer as before any update.
/// Fails if the folder is damaged or of another model; the engine's weights are then unknown.
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

/// Reads the policy that [`Contents::write`] wrote to `folder`. For an adapter, `base` makes the engine of the base
/// model.
/// Fails if only one of the configuration and the folder has an adapter; otherwise an error that names what can't be
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
        (true, false) => {
            bad_input!(
                "{}: found an adapter, wanted the table [lora] in the configuration that it was trained with",
                folder.display()
            )
        }
        (false, true) => {
            bad_input!("{}: found no adapter, wanted one: the configuration has [lora]", folder.display())
        }
    }
}

/// The best evaluation so far.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// The step of the evaluation.
    pub step: u64,
    /// pass@1.
    pub pass_at_1: f64,
}

/// The checkpoints of a run, oldest first.
pub fn list(folder: &Path) -> anyhow::Result<Vec<(u64, PathBuf)>> {
    numbered(folder, "step-")
}

/// Whether a run can resume from a checkpoint, i.e. whether it has the optimizer state.
pub fn is_resumable(checkpoint: &Path) -> bool {
    checkpoint.join(OPTIMIZER).exists()
}

/// The path of a step's checkpoint.
pub fn path(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!("step-{step:06}"))
}

fn numbered(folder: &Path, prefix: &str) -> anyhow::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    if !folder.exists() {
        return Ok(found);
    }
    for entry in std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let entry = entry?;
        if let Some(step) = entry.file_name().to_str().and_then(|n| n.strip_prefix(prefix)?.parse().ok()) {
            found.push((step, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

/// Number of newest checkpoints with the optimizer state, from which a run can resume: the newest, and one as a
/// backup. Older checkpoints are kept for comparison and have only the policy.
pub const RESUMABLE: usize = 2;

/// Writes weights, tokenizer, optimizer and state; the result later becomes `folder/step-NNNNNN`.
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
/// checkpoints.
/// Fails with an I/O error that names the file; earlier checkpoints remain.
pub fn publish_step(folder: &Path, prepared: Prepared, step: u64, keep: Keep) -> anyhow::Result<PathBuf> {
    let path = prepared.publish(Existing::Replace)?;
    write_whole(&record(folder), format!("{step}\n").as_bytes())?;
    thin_out(folder, keep)?;
    Ok(path)
}

/// [`prepare_step`] followed by [`publish_step`].
/// Fails with an I/O error that names the file; earlier checkpoints remain.
pub fn save(
    folder: &Path,
    engine: &Engine,
    contents: &Contents<'_>,
    state: &TrainerState,
    keep: Keep,
) -> anyhow::Result<PathBuf> {
    let prepared = prepare_step(folder, engine, contents, state)?;
    publish_step(folder, prepared, state.step, keep)
}

/// Deletes the checkpoints that `keep` doesn't cover, and the optimizer state of those older than the [`RESUMABLE`]
/// newest.
fn thin_out(folder: &Path, keep: Keep) -> anyhow::Result<()> {
    for (newer, (_, old)) in list(folder)?.iter().rev().enumerate() {
        let optimizer = old.join(OPTIMIZER);
        if !keep.keeps(newer) {
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

/// The file with the step of the newest checkpoint. It is next to the checkpoint folder, so that deleted checkpoints
/// can be distinguished from checkpoints that never existed.
fn record(folder: &Path) -> PathBuf {
    folder.with_extension("latest")
}

/// The step of the newest checkpoint ever saved in `folder`, even if it no longer exists.
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

/// Deletes every best policy except `best`. A checkpoint that records `best` must be saved first.
pub fn keep_best(folder: &Path, best: Best) -> anyhow::Result<()> {
    if has_best(folder, best) {
        for (_, old) in numbered(folder, "best-")?.into_iter().filter(|(s, _)| *s != best.step) {
            remove_folder(&old)?;
        }
    }
    Ok(())
}

/// Whether the policy of `best` exists.
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

/// The engine and the state of a checkpoint of `stage`, for a resume; `base` as in [`read_policy`].
/// Fails on a checkpoint that is damaged, of another stage or without optimizer state, naming the file and what is
/// wrong with it; otherwise the error of the device.
pub fn open(
    folder: &Path,
    stage: Stage,
    config: &Config,
    device: &Device,
    base: impl FnOnce() -> anyhow::Result<Engine>,
) -> anyhow::Result<(Engine, TrainerState)> {
    let state = read_state(folder).map_err(|error| unusable(folder, error))?;
    if state.stage != stage {
        let (found, wanted) = match stage {
            Stage::Rl => ("demonstrations (fgrpo sft)", "RL (fgrpo train)"),
            Stage::Sft => ("RL (fgrpo train)", "demonstrations (fgrpo sft)"),
        };
        bad_input!(
            [OtherFolder],
            "{}: found a checkpoint of {found}, wanted one of {wanted}",
            folder.display()
        );
    }
    if !is_resumable(folder) {
        bad_input!(
            "{}: found no {OPTIMIZER}, wanted one: only the newest {RESUMABLE} checkpoints keep the optimizer's state, and a run can't resume without it. Restore one of those, or start a new run from these weights in another folder, with model.path={}",
            folder.display(),
            folder.display()
        );
    }
    let mut engine = read_policy(folder, config, device, base).map_err(|error| unusable(folder, error))?;
    read_optimizer(&folder.join(OPTIMIZER), &mut engine, state.optimizer_step)
        .map_err(|error| unusable(folder, error))?;
    Ok((engine, state))
}

/// Bad input for a damaged newest checkpoint, with what can be done about it.
fn unusable(newest: &Path, error: anyhow::Error) -> anyhow::Error {
    let of_the_device =
        error.chain().any(|cause| matches!(cause.downcast_ref(), Some(fgrpo_nn::Error::Device { .. })));
    // The checkpoint is complete, but belongs to another configuration, or a GPU failed.
    if of_the_device || exit_code(&error) == 2 {
        return error;
    }
    let all = newest.parent().map(list).and_then(Result::ok).unwrap_or_default();
    let remedy = match all.iter().rfind(|(_, path)| path != newest && is_resumable(path)) {
        Some((step, _)) => format!("; move it away, and a resume continues from step {step}"),
        None => ", and no other checkpoint can be resumed".to_owned(),
    };
    BadInput(format!("{} can't be used{remedy}: {}", newest.display(), in_one_line(&error))).into()
}

/// Reads the state of a checkpoint folder.
fn read_state(folder: &Path) -> anyhow::Result<TrainerState> {
    let path = folder.join(STATE);
    let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    // An error in a flattened part doesn't name its field, unless the part is read by itself.
    json::parse::<UpdateState>(&bytes)
        .and_then(|_| json::parse(&bytes))
        .with_context(|| path.display().to_string())
}

/// Reads the optimizer state into the engine tensor by tensor, so it is in memory only once.
/// Fails with an error that names the file and what is wrong with it. Missing moments are an error, never zeros.
pub fn read_optimizer(path: &Path, engine: &mut Engine, step: u64) -> anyhow::Result<()> {
    let file = TensorFile::open(path)?;
    let tensors: Vec<(&str, usize)> =
        file.names().map(|name| (name, file.shape(name).unwrap_or_default().iter().product())).collect();
    if step > 0 && tensors.is_empty() {
        anyhow::bail!("{}: found no tensors, wanted the moments after {step} updates", path.display());
    }
    let mut read = |index: usize, out: &mut [f32]| file.read_into(tensors[index].0, out);
    engine.load_optimizer(step, &tensors, &mut read).with_context(|| format!("reading {}", path.display()))
}
