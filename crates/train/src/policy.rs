//! A policy before any training: a checkpoint or new weights. It knows no supervised stage.

use crate::config::{Config, InitConfig};
use crate::problem::Task;
use crate::run::checkpoint;
use crate::run::seeds;
use anyhow::Context;
use fgrpo_eval::bad_input;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::io::machine::fits;
use fgrpo_nn::config::Config as ModelConfig;
use fgrpo_nn::weights::Checkpoint;
use fgrpo_nn::{Device, Engine, LoraConfig};
use std::path::Path;

/// The policy before any fitting: from a checkpoint, or with new weights.
///
/// # Errors
/// If the checkpoint can't be opened or its vocabulary is smaller than the task's.
pub fn fresh(config: &Config, task: &Task, device: &Device) -> anyhow::Result<Engine> {
    let mut engine = match (&config.model.path, &config.model.init) {
        (Some(path), _) => {
            let base = config.lora.as_ref().and_then(|lora| lora.base);
            Engine::open_with_base(&checkpoint_of(path)?, base, device).or_bad_input()?
        }
        (None, Some(init)) => {
            let key = seeds::weights(config.start_seed());
            let sizes = model_config(init, task);
            sizes.validate().or_bad_input()?;
            // Weights, gradient and two moments.
            fits("model.init", sizes.parameters(), 16)?;
            Engine::init(&sizes, init.std as f32, &|i| key.nth_normal(i), device)?
        }
        (None, None) => unreachable!("the configuration was checked"),
    };
    config.model.check_size(engine.config())?;
    if engine.config().vocab_size < task.language.vocab_size() {
        bad_input!(
            "model: vocab_size {} is smaller than the task's vocabulary of {}",
            engine.config().vocab_size,
            task.language.vocab_size()
        );
    }
    if let Some(lora) = &config.lora {
        let mut draws = seeds::adapter(config.start_seed()).stream();
        engine.adapt(&lora.engine(), &mut || draws.uniform())?;
    }
    config.compute.apply(&mut engine);
    Ok(engine)
}

/// A checkpoint's policy, with its adapter if there is one, on a base in the format that the adapter was trained on, else in that of the checkpoint.
///
/// # Errors
/// Bad input if the folder isn't a checkpoint, or the adapter doesn't belong to it.
pub fn open(folder: &Path, adapter: Option<&Path>, device: &Device) -> anyhow::Result<Engine> {
    let base = adapter.map(LoraConfig::trained_on).transpose().or_bad_input()?.flatten();
    let checkpoint = checkpoint_of(folder)?;
    let base = base.or(checkpoint.base());
    let mut engine = Engine::open_with_base(&checkpoint, base, device).or_bad_input()?;
    if let Some(adapter) = adapter {
        engine.read_adapter(adapter).or_bad_input()?;
    }
    Ok(engine)
}

/// The checkpoint of a folder.
fn checkpoint_of(folder: &Path) -> anyhow::Result<Checkpoint> {
    let checkpoint = Checkpoint::open(folder).with_context(|| {
        // This is the layout of a LoRA run's checkpoint without merged weights.
        match folder.join(checkpoint::ADAPTER).is_dir() && !folder.join("config.json").exists() {
            true => format!(
                "{} has only an adapter; pass its base model with --model, and {} with --adapter",
                folder.display(),
                folder.join(checkpoint::ADAPTER).display()
            ),
            false => folder.display().to_string(),
        }
    });
    checkpoint.or_bad_input()
}

/// The sizes of the policy, without its weights.
///
/// # Errors
/// If the checkpoint can't be opened.
pub fn sizes(config: &Config, task: &Task) -> anyhow::Result<ModelConfig> {
    match (&config.model.path, &config.model.init) {
        (Some(path), _) => Ok(Checkpoint::open(path).or_bad_input()?.config().clone()),
        (None, Some(init)) => Ok(model_config(init, task)),
        (None, None) => unreachable!("the configuration was checked"),
    }
}

/// The sizes of a new model for a task.
pub fn model_config(init: &InitConfig, task: &Task) -> ModelConfig {
    ModelConfig {
        rope_theta: init.rope_theta,
        max_position_embeddings: task.context(),
        bos_token_id: task.language.bos_token(),
        eos_token_id: task.language.stop_tokens().to_vec(),
        pad_token_id: task.language.pad_token(),
        ..init.size(task.language.vocab_size()).config()
    }
}
