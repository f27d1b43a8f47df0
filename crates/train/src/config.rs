//! The training configuration: read from TOML, validated once, written resolved into the run folder.
//!
//! Each default is defined only here. An [`Override`] changes the TOML before it is parsed into types, so an invalid
//! key or value gives the same error message wherever it came from.

use anyhow::Context;
use fgrpo_eval::failure::{OrBadInput, in_one_line};
use fgrpo_nn::{Engine, Precision, ProductFormat};
use ranges::{STEPS, THREADS, number, whole};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;

mod algorithm;
pub mod builtin;
mod defaults;
mod eval;
mod keys;
mod kind;
mod lora;
mod maze;
mod method;
mod model;
mod number_or_word;
pub mod ranges;
mod rollout;
mod scheduled;
mod schema;
mod server;
mod sft;
mod task;
mod teacher;
mod text;
mod update;

pub use algorithm::{AlgorithmConfig, Truncated};
pub use eval::{EvalConfig, FullEvalConfig};
pub use keys::{Override, overridden, suggestions, typed, unknown_name};
pub use lora::{AllLinear, LoraTable, Targets};
pub use maze::{MazeConfig, SolutionsName};
pub use model::{InitConfig, ModelConfig, SizeConfig};
pub use number_or_word::{All, Epoch, Every, Keep};
pub use rollout::RolloutConfig;
pub use scheduled::{Goal, ScheduledKey};
pub use server::{LogprobsOf, ServerConfig};
pub use sft::{Schedule, SftConfig};
pub use task::{MixConfig, MixPart, TaskConfig};
pub use teacher::TeacherConfig;
pub use text::{ArithmeticConfig, PuzzlesConfig, TextConfig};
pub use update::UpdateConfig;

/// A whole run: task, model, supervised stage, RL, evaluation, checkpoints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Seed of all random numbers: weights, order of the prompts, samples.
    #[serde(default = "defaults::seed")]
    pub seed: u64,
    /// RL steps. A step is one rollout batch, however many optimizer updates it has. `fgrpo train` requires at least
    /// 1, or `epochs`; `fgrpo sft` ignores it.
    #[serde(default)]
    pub steps: u64,
    /// Passes over the training problems, instead of `steps`. If both are set, training ends with the earlier one. A
    /// pass has problems / `rollout.prompts` steps, rounded down: 39,202 problems at 256 prompts are 153 steps. The
    /// remaining problems start the next pass. The run folder's `config.toml` has `steps` instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u64>,
    /// The problems, and how answers are graded.
    pub task: TaskConfig,
    /// Where the policy comes from.
    pub model: ModelConfig,
    /// Train low-rank factors instead of the weights; without this table, all weights are trained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora: Option<LoraTable>,
    /// Supervised fine-tuning before RL; without this table, RL starts from the model as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sft: Option<SftConfig>,
    /// Sampling of completions.
    #[serde(default)]
    pub rollout: RolloutConfig,
    /// Advantages, focal weight and policy loss.
    #[serde(default)]
    pub algorithm: AlgorithmConfig,
    /// A teacher that scores the policy's samples; without this table, advantages come from rewards alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teacher: Option<TeacherConfig>,
    /// Optimizer settings.
    #[serde(default)]
    pub update: UpdateConfig,
    /// Limits on grader failures.
    #[serde(default)]
    pub grade: GradeConfig,
    /// Evaluation on held-out problems while training.
    #[serde(default)]
    pub eval: EvalConfig,
    /// Checkpoints.
    #[serde(default)]
    pub save: SaveConfig,
    /// Additional logs.
    #[serde(default)]
    pub log: LogConfig,
    /// Device settings.
    #[serde(default)]
    pub compute: ComputeConfig,
}

/// Limits on grader failures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GradeConfig {
    /// Save the state and stop with exit code 1 after this many steps in a row in which no completion could be
    /// graded.
    pub max_unscorable: u64,
}

impl Default for GradeConfig {
    fn default() -> Self {
        Self { max_unscorable: 3 }
    }
}

/// Checkpoints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SaveConfig {
    /// Checkpoint interval in steps, or `"epoch"`. A run also saves after the last step and when it is interrupted;
    /// with 0, only then.
    pub every: Every,
    /// Checkpoints kept in addition to the best and the last: a number, or `"all"`, so that `fgrpo select` and later
    /// evaluations can use them. Only the newest two contain the optimizer state.
    pub keep: Keep,
}

/// Logs besides the metrics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// Fraction of rollouts written to `rollouts.jsonl`. Completions include special tokens, which verifiers don't
    /// see.
    pub rollout_share: f64,
    /// Write TensorBoard events.
    pub tensorboard: bool,
}

/// Device settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ComputeConfig {
    /// Worker threads; 0 means one per core. Results are identical bit for bit only with the same number of threads.
    pub threads: usize,
    /// Keep only each layer's input for the backward pass and recompute the rest. By default, a run decides when it
    /// starts, based on the available memory, and records the decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_activations: Option<bool>,
    /// Number type of weights and activations on a GPU: `f32` or `bf16`. The optimizer uses f32 weights in both
    /// cases.
    #[schemars(schema_with = "schema::word::<Precision>")]
    pub precision: Precision,
    /// Number type of AdamW's two moments on a GPU: `f32`, or `bf16` with stochastic rounding, which saves 4 bytes
    /// per trained parameter and changes the results, though they stay reproducible bit for bit. Only `f32` on a CPU.
    #[schemars(schema_with = "schema::word::<Precision>")]
    pub moments: Precision,
    /// Keep AdamW's moments of a run on a GPU in host memory. This saves 8 bytes of GPU memory per trained parameter
    /// (4 with moments in bf16) and makes updates slower; results are identical bit for bit. No effect on a CPU.
    pub optimizer_offload: bool,
    /// On a GPU, compute bit for bit the same log-probability of a token when it is sampled, scored and trained on.
    /// Sampler and learner then don't differ by rounding, but passes are slower. Training on a CPU doesn't support
    /// it.
    pub exact: bool,
    /// How the CPU multiplies matrices in linear maps and the vocabulary head: in `f32`, in `bf16x3` (each number as
    /// the sum of two bfloat16 numbers; the error is about 1e-5 of the terms, at most 3e-5), in `bf16`, or as `blas`:
    /// in f32, but the system's BLAS (Accelerate on macOS, else OpenBLAS or BLIS) multiplies in updates. `bf16x3` and
    /// `bf16` need AMX or AVX-512 BF16 to be fast.
    #[schemars(schema_with = "schema::word::<ProductFormat>")]
    pub products: ProductFormat,
}

impl ComputeConfig {
    /// Returns the number of threads to use.
    pub fn threads(&self) -> usize {
        match self.threads {
            0 => fgrpo_eval::io::machine::cores(),
            n => n,
        }
    }

    /// Returns whether activations are recomputed in the backward pass; `false` if neither configured nor decided yet.
    pub fn checkpointing(&self) -> bool {
        self.checkpoint_activations.unwrap_or(false)
    }

    /// Returns the name of the number format to which results are rounded, or `None` for f32. The same seed draws other
    /// samples in another format. `exact` isn't a format: like another device, it only changes the order of sums.
    pub fn rounding(&self) -> Option<String> {
        match (self.products, self.precision) {
            (ProductFormat::F32 | ProductFormat::Blas, Precision::F32) => None,
            (ProductFormat::F32 | ProductFormat::Blas, precision) => Some(precision.to_string()),
            (products, _) => Some(format!("{products} products")),
        }
    }

    /// Applies these settings to an engine. Call it before an optimizer's state is loaded, so that the state is put
    /// into the right memory.
    pub fn apply(&self, engine: &mut Engine) {
        engine.set_checkpointing(self.checkpointing());
        engine.set_optimizer_offload(self.optimizer_offload);
    }
}

impl Default for SaveConfig {
    fn default() -> Self {
        Self { every: Every::Steps(25), keep: Keep::All(All::All) }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { rollout_share: 0.02, tensorboard: true }
    }
}

impl Config {
    /// Reads a TOML file, applies `key=value` assignments, and checks types, names and ranges. Fails with
    /// [`fgrpo_eval::failure::BadInput`], which names the file and the key.
    pub fn load(path: &Path, assignments: &[String]) -> anyhow::Result<Self> {
        Self::load_with(path, &Override::all("", assignments)?)
    }

    /// Like [`Config::load`], with overrides from any source.
    pub fn load_with(path: &Path, overrides: &[Override]) -> anyhow::Result<Self> {
        read(path, |text| Self::parse_with(text, overrides))
    }

    /// Like [`Config::load`], for a configuration given as a string.
    pub fn parse(text: &str, assignments: &[String]) -> anyhow::Result<Self> {
        Self::parse_with(text, &Override::all("", assignments)?)
    }

    /// Applies overrides to this configuration and checks the result.
    pub fn overridden(&self, overrides: &[Override]) -> anyhow::Result<Self> {
        Self::parse_with(&self.to_toml(), overrides)
    }

    /// Like [`Config::parse`], with overrides from any source.
    pub fn parse_with(text: &str, overrides: &[Override]) -> anyhow::Result<Self> {
        let parse = |overrides: &[Override]| -> anyhow::Result<Self> {
            let mut config: Self = typed(text, overrides, keys::suggestions)?;
            config.algorithm.focal_gamma = Some(config.algorithm.focal_gamma());
            config.algorithm.aggregation = Some(config.algorithm.aggregation());
            Ok(config)
        };
        let config = parse(overrides)?;
        config.check().or_else(|error| {
            // An override is the cause if the error disappears without it.
            let is_cause = |i: &usize| {
                let others = [&overrides[..*i], &overrides[i + 1..]].concat();
                parse(&others).is_ok_and(|config| config.check().is_ok())
            };
            match (0..overrides.len()).find(is_cause) {
                Some(cause) if overrides[cause].source != overrides[cause].key => {
                    bad_input!("{}: {}", overrides[cause].source, in_one_line(&error))
                }
                _ => Err(error),
            }
        })?;
        Ok(config)
    }

    /// Fills in the settings that a run decides when it starts, from the recorded configuration of an earlier run.
    #[must_use]
    pub fn decided_as(&self, recorded: &Self) -> Self {
        let mut config = self.clone();
        let (update, compute) = (&mut config.update, &mut config.compute);
        update.micro_batch_tokens = update.micro_batch_tokens.or(recorded.update.micro_batch_tokens);
        compute.checkpoint_activations =
            compute.checkpoint_activations.or(recorded.compute.checkpoint_activations);
        config
    }

    /// Converts all epochs to steps, for this number of training problems. Fails if an epoch has less than one step.
    pub fn resolved(&self, problems: u64) -> anyhow::Result<Self> {
        let epoch = problems / self.rollout.prompts as u64;
        if self.counts_epochs() && epoch == 0 {
            bad_input!(
                "rollout.prompts: expected at most {problems}, the number of training problems, found {}: an epoch has problems / prompts steps",
                self.rollout.prompts
            );
        }
        let mut config = self.clone();
        if let Some(epochs) = config.epochs.take() {
            let steps = epochs.saturating_mul(epoch);
            config.steps = if self.steps == 0 { steps } else { steps.min(self.steps) };
        }
        config.eval.every = Every::Steps(self.eval.every.steps(epoch));
        if let Some(full) = &mut config.eval.full {
            full.every = Every::Steps(full.every.steps(epoch));
        }
        config.save.every = Every::Steps(self.save.every.steps(epoch));
        Ok(config)
    }

    /// Returns whether anything is counted in epochs, so that the number of training problems must be known to convert
    /// it to steps.
    pub fn counts_epochs(&self) -> bool {
        let full = self.eval.full.as_ref().map(|full| full.every);
        let every = [self.eval.every, self.save.every].into_iter();
        self.epochs.is_some() || every.chain(full).any(|every| every == Every::Epoch(Epoch::Epoch))
    }

    /// Returns whether an evaluation follows the last step.
    pub fn evaluates_at_the_end(&self) -> bool {
        let ends = |e: &EvalConfig| !e.every.is_never() || (e.at_checkpoints && !self.save.every.is_never());
        self.eval.deciding().is_some_and(|e| ends(&e))
    }

    /// Returns whether the run has RL steps.
    pub fn has_steps(&self) -> bool {
        self.steps > 0 || self.epochs.is_some()
    }

    /// Returns the resolved configuration as TOML, including every default.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("a configuration is always TOML")
    }

    /// Returns the JSON schema of a configuration, for editors.
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(Self).to_value()
    }

    /// Returns the seed of the starting policy: new weights, adapters, and the order of the demonstrations.
    pub fn start_seed(&self) -> u64 {
        self.sft.as_ref().and_then(|s| s.seed).unwrap_or(self.seed)
    }

    /// Checks the table `[eval]` for an evaluation outside a run, even if the run itself is never evaluated.
    pub fn check_evaluation(&self) -> anyhow::Result<()> {
        self.eval.check_values("eval", &self.task)
    }

    fn check(&self) -> anyhow::Result<()> {
        self.task.check()?;
        self.model.check()?;
        if let Some(sft) = &self.sft {
            sft.check()?;
        }
        if let Some(lora) = &self.lora {
            lora.check()?;
            if self.model.path.is_none() {
                bad_input!(
                    "lora: requires model.path, because an adapter's base is a checkpoint; [model.init] makes a new model"
                );
            }
        }
        self.rollout.check()?;
        if self.task.has_environment() && self.rollout.server.is_some() {
            bad_input!(
                "rollout.server: can't be combined with task.environment: episodes use the run's own engine"
            );
        }
        if self.task.has_environment() && self.sft.is_some() && !matches!(self.task, TaskConfig::Mix(_)) {
            bad_input!(
                "sft: can't be combined with task.environment, which has no demonstrations; use `fgrpo sft` first, or a mix with a part that has demonstrations"
            );
        }
        self.algorithm.check(self.rollout.group_size, &self.task)?;
        teacher::check(self)?;
        self.update.check(self.rollout.prompts)?;
        whole(
            "",
            [
                ("steps", self.steps, 0..=STEPS),
                ("epochs", self.epochs.unwrap_or(1), 1..=STEPS),
                ("grade.max_unscorable", self.grade.max_unscorable, 1..=u64::MAX),
                ("compute.threads", self.compute.threads as u64, 0..=THREADS),
            ],
        )?;
        if self.has_steps() {
            self.eval.check(&self.task)?;
        }
        let share = self.log.rollout_share;
        number("log.rollout_share", share, (0.0..=1.0).contains(&share), "0 to 1")
    }
}

/// Parses the number of threads from a flag.
pub fn threads(text: &str) -> Result<usize, String> {
    match text.parse::<u64>() {
        Ok(n) if n <= THREADS => Ok(n as usize),
        _ => Err(format!("expected a whole number of at most {THREADS}")),
    }
}

/// Reads and parses a configuration file or a built-in configuration.
pub fn read<T>(path: &Path, parse: impl FnOnce(&str) -> anyhow::Result<T>) -> anyhow::Result<T> {
    builtin::text(path)
        .and_then(|text| parse(&text))
        .with_context(|| format!("configuration {}", path.display()))
        .or_bad_input()
}

/// Adds the file name to an error about a key that was only checked after the problems or the model were loaded.
pub fn in_file(error: anyhow::Error, path: &Path) -> anyhow::Error {
    let message = error.to_string();
    let table = message.split_once('.').map(|(table, _)| table);
    if table.is_some_and(|table| !Config::schema()["properties"][table].is_null()) {
        return error.context(format!("configuration {}", path.display()));
    }
    error
}

#[cfg(test)]
pub(crate) mod tests;
