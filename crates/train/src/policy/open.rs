//! Opens engines, from a checkpoint or with new weights.

use crate::config::{Config, InitConfig};
use crate::problem::Task;
use crate::run::checkpoint;
use crate::run::seeds;
use anyhow::Context;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::io::machine::fits;
use fgrpo_nn::config::Config as ModelConfig;
use fgrpo_nn::weights::Checkpoint;
use fgrpo_nn::{BaseFormat, Device, Engine, LoraConfig};
use std::path::Path;

/// Makes the policy before any training, from a checkpoint or with new weights. Fails if the checkpoint can't be
/// opened, or its vocabulary is smaller than the task's.
pub fn fresh(config: &Config, task: &Task, device: &Device) -> anyhow::Result<Engine> {
    let mut engine = match (&config.model.path, &config.model.init) {
        (Some(path), _) => {
            let base = config.lora.as_ref().and_then(|lora| lora.base);
            open_in(path, base, device)?
        }
        (None, Some(init)) => {
            let key = seeds::weights(config.start_seed());
            let sizes = sizes(config, task)?;
            // Weights, gradient and two moments.
            fits("model.init", sizes.parameters(), 16)?;
            Engine::init(&sizes, init.std as f32, &|i| key.nth_normal(i), device)?
        }
        (None, None) => unreachable!("the configuration was checked"),
    };
    check_sizes(config, task, engine.config())?;
    if let Some(lora) = &config.lora {
        let mut draws = seeds::adapter(config.start_seed()).stream();
        engine.adapt(&lora.engine(), &mut || draws.uniform())?;
    }
    config.compute.apply(&mut engine);
    Ok(engine)
}

/// Fails early if [`fresh`] can't make the policy, because the checkpoint is missing or doesn't fit the configuration
/// or the task.
pub fn check(config: &Config, task: &Task) -> anyhow::Result<()> {
    check_sizes(config, task, &sizes(config, task)?)
}

fn check_sizes(config: &Config, task: &Task, model: &ModelConfig) -> anyhow::Result<()> {
    config.model.check_size(model)?;
    if model.vocab_size < task.language.vocab_size() {
        bad_input!(
            "model: its vocabulary of {} tokens is smaller than the task's, which has {}",
            model.vocab_size,
            task.language.vocab_size()
        );
    }
    let (prompt, positions) = (task.longest_prompt(), model.context());
    if prompt >= positions {
        bad_input!(
            "task: the longest prompt has {prompt} tokens, which leaves no room for an answer in the model's {positions} positions; set task.max_prompt_tokens to leave out longer prompts"
        );
    }
    Ok(())
}

/// Opens a checkpoint, with an adapter if one is given. The base is in the format on which the adapter was trained,
/// otherwise in the checkpoint's format. Fails if the folder isn't a checkpoint, or the adapter doesn't belong to it.
pub fn open(folder: &Path, adapter: Option<&Path>, device: &Device) -> anyhow::Result<Engine> {
    let base = adapter.map(LoraConfig::trained_on).transpose().or_bad_input()?.flatten();
    let checkpoint = checkpoint_of(folder)?;
    let base = base.or(checkpoint.base());
    match adapter {
        Some(adapter) => Engine::open_adapted(checkpoint, base, adapter, device),
        None => Engine::open_with_base(&checkpoint, base, device),
    }
    .or_bad_input()
}

/// Opens a checkpoint without an adapter. If `base` is given, the matrices are converted to that format. Fails if the
/// folder isn't a checkpoint, or can't be opened in the format `base`.
pub fn open_in(folder: &Path, base: Option<BaseFormat>, device: &Device) -> anyhow::Result<Engine> {
    Engine::open_with_base(&checkpoint_of(folder)?, base, device).or_bad_input()
}

fn checkpoint_of(folder: &Path) -> anyhow::Result<Checkpoint> {
    let checkpoint = Checkpoint::open(folder).with_context(|| {
        // This is the layout of a LoRA run's checkpoint without merged weights.
        if folder.join(checkpoint::ADAPTER).is_dir() && !folder.join("config.json").exists() {
             format!(
                "{} has only an adapter. Merge it with its base model first, or give the base as the model and {} as the adapter",
                folder.display(),
                folder.join(checkpoint::ADAPTER).display()
             )
         } else {
             folder.display().to_string()
         }
     });
    checkpoint.or_bad_input()
}

/// Returns the sizes of the policy without reading its weights. Fails if the checkpoint can't be opened, or the sizes
/// of a new model are invalid.
pub fn sizes(config: &Config, task: &Task) -> anyhow::Result<ModelConfig> {
    match (&config.model.path, &config.model.init) {
        (Some(path), _) => Ok(checkpoint_of(path)?.config().clone()),
        (None, Some(init)) => {
            let sizes = model_config(init, task, config.rollout.max_new_tokens);
            sizes.validate().or_bad_input()?;
            Ok(sizes)
        }
        (None, None) => unreachable!("the configuration was checked"),
    }
}

/// Returns the sizes of a new model for a task. The model has positions for the longest prompt and a completion of
/// `max_new_tokens`, which is by default the task's limit.
pub fn model_config(init: &InitConfig, task: &Task, max_new_tokens: Option<usize>) -> ModelConfig {
    let sampled = task.longest_prompt() + max_new_tokens.unwrap_or(task.max_new_tokens());
    ModelConfig {
        rope_theta: init.rope_theta,
        max_position_embeddings: sampled.max(task.context()),
        bos_token_id: task.language.bos_token(),
        eos_token_id: task.language.stop_tokens().to_vec(),
        pad_token_id: task.language.pad_token(),
        ..init.size(task.language.vocab_size()).config()
    }
}
