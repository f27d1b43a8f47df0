//! The training configuration: TOML, typed, validated once, written resolved into the run folder.
//!
//! Each default lives here and nowhere else. `--set key=value` changes the TOML before it is typed,
//! so a wrong key or value is refused in the same words wherever it came from.

use crate::bad_input;
use crate::failure::OrBadInput;
use crate::io::input;
use anyhow::Context;
use fgrpo_nn::Products;
use ranges::{STEPS, THREADS, whole};
use serde::{Deserialize, Serialize};
use std::path::Path;

mod algorithm;
mod defaults;
mod eval;
mod every;
mod keep;
mod keys;
mod kind;
mod lora;
mod mix;
mod model;
mod pair;
pub mod ranges;
mod rollout;
mod server;
mod sft;
mod task;
mod text;
mod update;

pub use algorithm::{AggregationName, AlgorithmConfig, Loss};
pub use eval::{Average, EvalConfig, FullEvalConfig};
pub use every::Every;
pub use keep::Keep;
pub use keys::{Override, meant, typed};
pub use lora::{AllLinear, LoraTable, Targets};
pub use mix::{MixConfig, MixPart};
pub use model::{InitConfig, ModelConfig, SizeConfig};
pub use rollout::RolloutConfig;
pub use server::{LogprobsOf, ServerApi, ServerConfig};
pub use sft::{Schedule, SftConfig};
pub use task::{MazeConfig, MazeReward, TaskConfig};
pub use text::{ArithmeticConfig, TextConfig};
pub use update::UpdateConfig;

/// A whole run: task, model, supervised stage, reinforcement learning, evaluation, saving.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Seed of everything random: weights, data order, samples.
    #[serde(default = "defaults::seed")]
    pub seed: u64,
    /// RL steps. A step is one rollout batch, however many optimizer updates it is cut into. Absent or 0:
    /// no RL, which `fgrpo sft` doesn't need and `fgrpo train` refuses.
    #[serde(default)]
    pub steps: u64,
    /// Passes over the training problems, in place of `steps`; with `steps` too, whichever ends first. A
    /// pass is problems / `rollout.prompts` steps, rounded down; what is left over opens the next pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u64>,
    /// What is asked and how answers are graded.
    pub task: TaskConfig,
    /// Where the policy comes from.
    pub model: ModelConfig,
    /// Low-rank factors trained in place of the weights; absent: every weight is trained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora: Option<LoraTable>,
    /// Fitting demonstrations before RL; absent: RL starts from the model as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sft: Option<SftConfig>,
    /// Sampling of completions.
    #[serde(default)]
    pub rollout: RolloutConfig,
    /// Advantages, focal weight and policy loss.
    #[serde(default)]
    pub algorithm: AlgorithmConfig,
    /// The optimizer's side.
    #[serde(default)]
    pub update: UpdateConfig,
    /// When graders fail.
    #[serde(default)]
    pub grade: GradeConfig,
    /// Evaluation on held-out problems while training.
    #[serde(default)]
    pub eval: EvalConfig,
    /// Checkpoints.
    #[serde(default)]
    pub save: SaveConfig,
    /// What is logged beside the metrics.
    #[serde(default)]
    pub log: LogConfig,
    /// Where the work is done.
    #[serde(default)]
    pub compute: ComputeConfig,
}

/// When graders fail.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GradeConfig {
    /// Steps in a row in which no completion could be graded, after which the run stops.
    pub max_unscorable: u64,
}

impl Default for GradeConfig {
    fn default() -> Self {
        Self { max_unscorable: 3 }
    }
}

/// Checkpoints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SaveConfig {
    /// Every so many steps or `"epoch"`; the last step and an interruption always save. 0 is only then.
    pub every: Every,
    /// Checkpoints kept beside the best and the last: a number or `"all"`, which later comparisons choose from.
    pub keep: Keep,
}

/// What is logged beside the metrics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// Share of rollouts written to `rollouts.jsonl`.
    pub rollout_share: f64,
    /// TensorBoard events.
    pub tensorboard: bool,
}

/// Where the work is done.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ComputeConfig {
    /// Worker threads; 0 is one per core. Part of what makes a run repeatable bit for bit.
    pub threads: usize,
    /// Keep only each layer's input for the backward pass and compute the rest again.
    pub checkpoint_activations: bool,
    /// Number type of weights and activations on a GPU.
    pub precision: PrecisionName,
    /// How a CPU multiplies in linear maps and the vocabulary head. Part of what makes a run repeatable bit for bit.
    pub products: Products,
}

/// Number type of weights and activations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PrecisionName {
    /// 32 bits.
    #[default]
    F32,
    /// bfloat16, with exact f32 weights for the optimizer.
    Bf16,
}

impl Default for SaveConfig {
    fn default() -> Self {
        Self { every: Every::Steps(25), keep: Keep::All }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { rollout_share: 0.02, tensorboard: true }
    }
}

impl Config {
    /// Reads a TOML file, applies `--set key=value` overrides, checks types, names and ranges.
    ///
    /// # Errors
    /// [`crate::failure::BadInput`] naming the file, the key, what was found and what was wanted.
    pub fn load(path: &Path, overrides: &[String]) -> anyhow::Result<Self> {
        Self::load_with(path, &Override::of("--set", overrides))
    }

    /// [`Config::load`] with overrides of several flags.
    ///
    /// # Errors
    /// Same as [`Config::load`].
    pub fn load_with(path: &Path, overrides: &[Override<'_>]) -> anyhow::Result<Self> {
        read(path, |text| Self::parse_with(text, overrides))
    }

    /// [`Config::load`] on the text itself.
    ///
    /// # Errors
    /// Same as [`Config::load`].
    pub fn parse(text: &str, overrides: &[String]) -> anyhow::Result<Self> {
        Self::parse_with(text, &Override::of("--set", overrides))
    }

    fn parse_with(text: &str, overrides: &[Override<'_>]) -> anyhow::Result<Self> {
        let config: Self = typed(text, overrides, keys::meant)?;
        config.check()?;
        Ok(config)
    }

    /// The configuration in steps alone: epochs resolved for this number of training problems.
    ///
    /// # Errors
    /// Bad input where the steps or the problems come to nothing.
    pub fn resolved(&self, problems: u64) -> anyhow::Result<Self> {
        let epoch = problems / self.rollout.prompts as u64;
        let mut every = vec![self.eval.every, self.save.every];
        every.extend(self.eval.full.as_ref().map(|full| full.every));
        let mentions = self.epochs.is_some() || every.contains(&Every::Epoch);
        if mentions && epoch == 0 {
            bad_input!(
                "rollout.prompts: found {}, wanted at most the {problems} training problems, since an epoch is problems / prompts steps",
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

    /// Whether an evaluation follows the last step.
    pub fn evaluates_at_the_end(&self) -> bool {
        let ends = |e: &EvalConfig| !e.every.is_never() || (e.at_checkpoints && !self.save.every.is_never());
        self.eval.deciding().is_some_and(|e| ends(&e))
    }

    /// Whether there is reinforcement learning at all.
    pub fn has_steps(&self) -> bool {
        self.steps > 0 || self.epochs.is_some()
    }

    /// The resolved configuration as TOML, every default written out.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("a configuration is always TOML")
    }

    /// Seed of what RL starts from: fresh weights, adapters, and the order of the demonstrations.
    pub fn start_seed(&self) -> u64 {
        self.sft.as_ref().and_then(|s| s.seed).unwrap_or(self.seed)
    }

    /// Threads to work with.
    pub fn threads(&self) -> usize {
        match self.compute.threads {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
            n => n,
        }
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
                    "lora: found with [model.init], wanted model.path: an adapter's base is a checkpoint"
                );
            }
        }
        self.rollout.check()?;
        self.algorithm.check(self.rollout.group_size)?;
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
        if !(0.0..=1.0).contains(&self.log.rollout_share) {
            bad_input!("log.rollout_share: found {}, wanted 0 to 1", self.log.rollout_share);
        }
        Ok(())
    }
}

/// Reads a flag's number of threads.
///
/// # Errors
/// What was wanted, for a flag's message.
pub fn threads(text: &str) -> Result<usize, String> {
    match text.parse::<u64>() {
        Ok(n) if n <= THREADS => Ok(n as usize),
        _ => Err(format!("wanted a whole number of at most {THREADS}")),
    }
}

/// A configuration file, read and parsed.
///
/// # Errors
/// Bad input naming the file.
pub fn read<T>(path: &Path, parse: impl FnOnce(&str) -> anyhow::Result<T>) -> anyhow::Result<T> {
    input::read_to_string(path, input::SETTINGS)
        .map_err(anyhow::Error::from)
        .and_then(|text| parse(&text))
        .with_context(|| format!("configuration {}", path.display()))
        .or_bad_input()
}

/// Names the file in an error that is about a key and found only once the problems or the model are at hand.
pub fn in_file(error: anyhow::Error, path: &Path) -> anyhow::Error {
    const TABLES: [&str; 12] = [
        "algorithm.",
        "compute.",
        "eval.",
        "grade.",
        "log.",
        "lora.",
        "model.",
        "rollout.",
        "save.",
        "sft.",
        "task.",
        "update.",
    ];
    let said = error.to_string();
    if TABLES.iter().any(|table| said.starts_with(table)) {
        return error.context(format!("configuration {}", path.display()));
    }
    error
}

/// Applies `a.b.c=value`. The value is TOML where it parses as such, with or without a list's brackets, and a
/// string otherwise, so that `--set algorithm.loss=dapo` and `--set eval.k=1,8` need no quotes.
fn set(table: &mut toml::Table, change: &Override<'_>) -> anyhow::Result<()> {
    let Some((key, value)) = change.assignment.split_once('=') else {
        bad_input!("{change}: wanted key=value");
    };
    let value = value.trim();
    // One value and nothing behind it: a table would take a second line as another key.
    let parse = |text: &str| text.parse::<toml::Value>().ok();
    let list = || if value.contains(',') { parse(&format!("[{value}]")) } else { None };
    let value = parse(value).or_else(list).unwrap_or_else(|| toml::Value::String(value.to_owned()));
    let mut parts: Vec<&str> = key.trim().split('.').collect();
    let last = parts.pop().filter(|p| !p.is_empty());
    let Some(last) = last else { bad_input!("{change}: wanted key=value") };
    let mut here = table;
    let mut parts = parts.into_iter();
    while let Some(part) = parts.next() {
        let entry = here.entry(part).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        let table = match entry {
            toml::Value::Array(list) => {
                let place = parts.next().unwrap_or(last);
                let length = list.len();
                let Some(table) = place.parse().ok().and_then(|i: usize| list.get_mut(i)?.as_table_mut())
                else {
                    bad_input!(
                        "{change}: `{part}` is a list of {length}, and `{place}` is no place of a table in it; wanted {part}.0 to {part}.{}",
                        length.saturating_sub(1)
                    );
                };
                Some(table)
            }
            other => {
                if change.assignment.starts_with("algorithm.") {
                    kind::table_of(other);
                }
                other.as_table_mut()
            }
        };
        let Some(next) = table else {
            bad_input!("{change}: `{part}` is a value, not a table");
        };
        here = next;
    }
    // An integer where a float was meant is as good.
    let value = match (here.get(last), value) {
        (Some(toml::Value::Float(_)), toml::Value::Integer(i)) => toml::Value::Float(i as f64),
        (_, v) => v,
    };
    here.insert(last.to_owned(), value);
    Ok(())
}

#[cfg(test)]
mod tests;
