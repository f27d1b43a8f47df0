//! A training job for a distributed trainer, written from the configuration of a run on one machine.
//!
//! The job has the problems in the order in which `fgrpo train` asks them, the trainer's settings, a reward function
//! and a way back. A setting that the trainer doesn't have is refused by name, unless the caller allows the
//! difference; the job's README then lists it. Nothing changes silently.

mod files;
mod mapping;
mod rows;
pub mod verl;

use crate::config::{Config, TaskConfig, TextConfig};
use std::collections::BTreeSet;
use std::path::Path;

named! {
    /// The inference engine that samples in the job.
    pub enum Sampler {
        Vllm = "vllm": "vLLM",
        Sglang = "sglang": "SGLang",
    }
}

named! {
    /// The order of the training problems.
    pub enum Order {
        Listed = "listed": "the order of `fgrpo train`: every step has the same prompts",
        Shuffle = "shuffle": "an order that the trainer draws",
    }
}

/// The cluster, and the differences from the run on one machine that are accepted.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// Path or hub name of the checkpoint on the cluster. If `None`, `model.path` of the configuration.
    pub model: Option<String>,
    /// Number of machines.
    pub nodes: usize,
    /// GPUs of each machine.
    pub gpus: usize,
    /// GPUs that share one copy of the sampler's weights.
    pub tensor_parallel: usize,
    /// The inference engine.
    pub sampler: Sampler,
    /// The order of the training problems.
    pub order: Order,
    /// Keys of the configuration that may differ; `all` allows every difference.
    pub allow: BTreeSet<String>,
}

/// Facts about a written job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Number of training problems.
    pub problems: u64,
    /// Number of held-out problems.
    pub held_out: usize,
    /// Number of steps.
    pub steps: u64,
    /// Number of the trainer's settings that the job sets.
    pub settings: usize,
    /// Differences from the run on one machine: the key, and the difference.
    pub differences: Vec<(String, String)>,
}

/// The checkpoint that the job trains.
///
/// Fails if the model is a GGUF file, or if the configuration makes the model itself (`[sft]`, `[model.init]`).
fn model(config: &Config, cluster: &Cluster) -> anyhow::Result<String> {
    let model = match (&cluster.model, &config.model.path) {
        (Some(model), _) => model.clone(),
        (None, _) if config.sft.is_some() => bad_input!(
            "[sft]: the job has no supervised stage; run `fgrpo sft` and name its checkpoint as the model"
        ),
        // run.sh and back.sh run in another folder.
        (None, Some(path)) => on_disk(path),
        (None, None) => bad_input!(
            "[model.init]: the job needs a checkpoint; make one with `fgrpo sft` or `fgrpo init` and name it as the model"
        ),
    };
    if model.ends_with(".gguf") {
        bad_input!(
            "model.path: {model}: the trainer reads checkpoint folders alone; `fgrpo merge` writes the model as a folder"
        );
    }
    Ok(model)
}

/// A path that exists as an absolute one; anything else is a name in the hub.
fn on_disk(path: &Path) -> String {
    let path = if path.exists() { std::path::absolute(path) } else { Ok(path.to_owned()) };
    path.unwrap_or_default().display().to_string()
}

/// The tasks with problems from files, by name: the task itself, or the parts of a mix.
///
/// Fails for mazes, generated problems and environments, because another trainer can't read their problems from a file.
fn texts(task: &TaskConfig) -> anyhow::Result<Vec<(String, &TextConfig)>> {
    let parts: Vec<(String, &TaskConfig)> = match task {
        TaskConfig::Mix(mix) => mix.parts.iter().map(|part| (part.name(), &part.task)).collect(),
        one => vec![(one.kind().to_owned(), one)],
    };
    let mut texts = Vec::new();
    for (name, task) in parts {
        match task.text() {
            None => bad_input!(
                "task.kind: {} has generated problems, which the job can't make; use a task with a data set",
                task.kind()
            ),
            Some(text) if text.environment.is_some() => bad_input!(
                "task.environment: the trainer would need an agent loop of its own; TRL plays the same class (docs/environments.md)"
            ),
            Some(text) => texts.push((name, text)),
        }
    }
    Ok(texts)
}
