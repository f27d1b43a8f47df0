//! The training configuration: TOML, typed, validated once, written resolved into the run folder.
//!
//! Each default lives here and nowhere else. `--set key=value` changes the TOML before it is typed,
//! so a wrong key or value is refused in the same words wherever it came from.

use crate::bad_input;
use crate::dataset::TaskKind;
use crate::failure::OrBadInput;
use anyhow::Context;
use fgrpo_core::advantage::Advantage;
use fgrpo_core::credit::{Credit, Shaping};
use fgrpo_core::group::Rewards;
use fgrpo_core::loss::{Aggregation, CispoBounds, Correction, Kl, Objective, PolicyLoss};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

mod text;

pub use text::{ArithmeticConfig, TextConfig};

/// A whole run: task, model, supervised stage, reinforcement learning, evaluation, saving.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Seed of everything random: weights, data order, samples.
    #[serde(default = "defaults::seed")]
    pub seed: u64,
    /// RL steps. A step is one rollout batch, however many optimizer updates it is cut into.
    pub steps: u64,
    /// What is asked and how answers are graded.
    pub task: TaskConfig,
    /// Where the policy comes from.
    pub model: ModelConfig,
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

/// What is asked and how answers are graded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum TaskConfig {
    /// The single-solution maze.
    Maze(MazeConfig),
    /// Arithmetic in several steps, in text.
    Arithmetic(ArithmeticConfig),
    /// A mathematical answer in a box.
    Math(TextConfig),
    /// The letter of an option.
    Choice(TextConfig),
    /// Instructions that a program can check.
    IfEval(TextConfig),
    /// The logic tasks of SynLogic.
    SynLogic(TextConfig),
    /// Whatever the user's own program grades.
    Command(TextConfig),
}

impl TaskConfig {
    /// The kind and settings of a task that reads its problems from files.
    pub fn text(&self) -> Option<(TaskKind, &TextConfig)> {
        match self {
            Self::Maze(_) | Self::Arithmetic(_) => None,
            Self::Math(c) => Some((TaskKind::Math, c)),
            Self::Choice(c) => Some((TaskKind::Choice, c)),
            Self::IfEval(c) => Some((TaskKind::IfEval, c)),
            Self::SynLogic(c) => Some((TaskKind::SynLogic, c)),
            Self::Command(c) => Some((TaskKind::Command, c)),
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        match self {
            Self::Maze(maze) => maze.check(),
            Self::Arithmetic(arithmetic) => arithmetic.check(),
            text => text.text().map_or(Ok(()), |(kind, c)| c.check(kind)),
        }
    }

    fn holds_out_nothing(&self) -> bool {
        match self {
            Self::Maze(maze) => maze.held_out == 0,
            Self::Arithmetic(arithmetic) => arithmetic.held_out == 0,
            text => text.text().is_some_and(|(_, c)| c.holds_out_nothing()),
        }
    }
}

/// Mazes, generated from (seed, index).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MazeConfig {
    /// Cells along an edge: odd, at least 5.
    #[serde(default = "defaults::maze_size")]
    pub size: usize,
    /// Number of training mazes.
    #[serde(default = "defaults::maze_train")]
    pub train: u64,
    /// Number of held-out mazes; their indices never overlap with training.
    #[serde(default = "defaults::maze_held_out")]
    pub held_out: u64,
    /// Seed of the mazes, apart from the run's seed so that runs share their problems.
    #[serde(default)]
    pub seed: u64,
    /// `exact`: the completion equals the shortest path; `reaches_goal`: it walks to the goal.
    #[serde(default)]
    pub reward: MazeReward,
}

/// How a maze completion is graded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MazeReward {
    /// The paper's: equal to the unique shortest action sequence.
    #[default]
    Exact,
    /// MaxRL's: valid moves only, and the walk touches the goal.
    ReachesGoal,
}

/// Where the policy comes from: a folder, or sizes for a new one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// A Hugging Face checkpoint folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Sizes of a randomly initialised model. The vocabulary is the task's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<InitConfig>,
}

/// A randomly initialised decoder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InitConfig {
    /// `qwen2` (QKV bias), `qwen3` (QK-norm) or `llama`.
    #[serde(default = "defaults::architecture")]
    pub architecture: fgrpo_nn::config::Architecture,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Inner width of the SwiGLU block.
    pub intermediate_size: usize,
    /// Decoder layers.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key/value heads; divides the query heads.
    pub num_key_value_heads: usize,
    /// Size of a head; `hidden_size / num_attention_heads` where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_dim: Option<usize>,
    /// Base of the rotary frequencies.
    #[serde(default = "defaults::rope_theta")]
    pub rope_theta: f64,
    /// Whether the head shares the embedding's weights.
    #[serde(default = "defaults::yes")]
    pub tie_word_embeddings: bool,
    /// Standard deviation of the initial matrices.
    #[serde(default = "defaults::init_std")]
    pub std: f32,
}

/// Supervised fitting of demonstrations; loss on the completion only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SftConfig {
    /// Optimizer steps.
    pub steps: u64,
    /// Demonstrations per step.
    #[serde(default = "defaults::sft_batch")]
    pub batch_size: usize,
    /// Peak learning rate.
    #[serde(default = "defaults::sft_lr")]
    pub lr: f64,
    /// Adam's betas.
    #[serde(default = "defaults::sft_betas")]
    pub betas: [f64; 2],
    /// Decoupled weight decay.
    #[serde(default = "defaults::weight_decay")]
    pub weight_decay: f64,
    /// Largest global gradient norm.
    #[serde(default = "defaults::max_grad_norm")]
    pub max_grad_norm: f64,
    /// Steps of linear warm-up.
    #[serde(default)]
    pub warmup_steps: u64,
    /// What the learning rate does after warm-up.
    #[serde(default)]
    pub schedule: Schedule,
    /// Seed of the demonstrations' order and of the initial weights; the run's own where absent.
    /// Runs that differ in seed but share this one share the cached result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// What the learning rate does after warm-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// Stays.
    #[default]
    Constant,
    /// Falls linearly to 0 at the last step.
    Linear,
    /// Falls as a half cosine to 0 at the last step.
    Cosine,
}

impl Schedule {
    /// The factor on the learning rate at `step` (from 1) of `steps`.
    pub fn factor(self, step: u64, warmup_steps: u64, steps: u64) -> f64 {
        if step <= warmup_steps {
            return step as f64 / warmup_steps as f64;
        }
        let done = (step - warmup_steps - 1) as f64 / (steps.saturating_sub(warmup_steps)).max(1) as f64;
        match self {
            Self::Constant => 1.0,
            Self::Linear => (1.0 - done).max(0.0),
            Self::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * done.min(1.0)).cos()),
        }
    }
}

/// Sampling of completions for training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RolloutConfig {
    /// Prompts per step (the paper's global batch).
    pub prompts: usize,
    /// Completions per prompt, `N`.
    pub group_size: usize,
    /// Sampling temperature; log-probabilities in the loss are of the tempered policy.
    pub temperature: f32,
    /// Nucleus sampling; 1 is off.
    pub top_p: f32,
    /// Sampling among the `k` likeliest; 0 is off.
    pub top_k: usize,
    /// Sampling among tokens at least this share as likely as the likeliest; 0 is off.
    pub min_p: f32,
    /// Longest completion in tokens; the task's own limit where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_new_tokens: Option<usize>,
    /// Tokens the key/value cache may hold at once, over all threads; as many as fit in 1 GiB where
    /// absent. Fewer run at once when it is full; the samples stay the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cached_tokens: Option<usize>,
}

/// Advantages, focal weight and policy loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AlgorithmConfig {
    /// `grpo`, `dr_grpo`, `rloo`, `max_rl` or `pkpo`.
    pub advantage: AdvantageName,
    /// Added to the standard deviation (`grpo`).
    pub advantage_eps: f64,
    /// Delta degrees of freedom of the standard deviation (`grpo`).
    pub ddof: usize,
    /// The k of `pkpo`.
    pub pkpo_k: usize,
    /// Exponent of the focal weight `(1 - X/N)^gamma`; 0 is the estimator alone.
    pub focal_gamma: f64,
    /// Reward of a correct completion, `R_c`.
    pub reward_correct: f64,
    /// Reward of a wrong completion, `R_w`.
    pub reward_wrong: f64,
    /// For graded rewards: what counts as correct for the focal weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correct_threshold: Option<f64>,
    /// `grpo`, `dapo`, `cispo` or `gspo`.
    pub loss: LossName,
    /// Lower clip width; the loss's own default where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_low: Option<f64>,
    /// Upper clip width; the loss's own default where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_high: Option<f64>,
    /// Dual clip's constant for negative advantages (`grpo`, `dapo`), above 1; 0 is off.
    pub dual_clip: f64,
    /// Read CISPO's `clip_high` as an absolute cap on the ratio, without lower bound.
    pub cispo_absolute_cap: bool,
    /// `token-mean`, `seq-mean-token-sum`, `seq-mean-token-sum-norm` or `seq-mean-token-mean`.
    pub aggregation: AggregationName,
    /// Coefficient of the entropy bonus.
    pub entropy_coef: f64,
    /// Coefficient of the KL penalty against the model RL started from.
    pub kl_coef: f64,
    /// `k1`, `k2` or `k3`.
    pub kl: KlName,
    /// Drop groups whose rewards are all equal before counting tokens (DAPO's dynamic sampling,
    /// without drawing replacements).
    pub drop_inactive_groups: bool,
}

/// Names of the advantage estimators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum AdvantageName {
    Grpo,
    DrGrpo,
    Rloo,
    MaxRl,
    Pkpo,
}

/// Names of the policy losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum LossName {
    Grpo,
    Dapo,
    Cispo,
    Gspo,
}

/// Names of the aggregation modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum AggregationName {
    TokenMean,
    SeqMeanTokenSum,
    SeqMeanTokenSumNorm,
    SeqMeanTokenMean,
}

/// Names of the KL estimators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum KlName {
    K1,
    K2,
    K3,
}

/// The optimizer's side of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UpdateConfig {
    /// Peak learning rate.
    pub lr: f64,
    /// Prompts per optimizer update; the whole rollout batch where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mini_batch: Option<usize>,
    /// Passes over each rollout batch.
    pub epochs: usize,
    /// AdamW's betas.
    pub betas: [f64; 2],
    /// AdamW's epsilon.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Largest global gradient norm.
    pub max_grad_norm: f64,
    /// Steps (rollout batches) of linear warm-up.
    pub warmup_steps: u64,
    /// What the learning rate does after warm-up.
    pub schedule: Schedule,
    /// Tokens that one prompt and its completions may take together in one piece of work; a larger
    /// group is cut. Bounds memory, never changes the gradient beyond rounding.
    pub micro_batch_tokens: usize,
    /// Updates skipped in a row for a gradient that isn't finite, after which the run stops.
    pub max_skipped: u64,
}

/// Evaluation on held-out problems while training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvalConfig {
    /// Every so many steps, and before the first and after the last; 0 is never.
    pub every: u64,
    /// Samples per problem.
    pub samples: usize,
    /// The k of pass@k; those above `samples` are refused.
    pub k: Vec<usize>,
    /// Sampling temperature.
    pub temperature: f32,
    /// Problems used, from the first; all where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problems: Option<usize>,
}

/// Checkpoints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SaveConfig {
    /// Every so many steps; the last step and an interruption always save. 0 is only then.
    pub every: u64,
    /// Checkpoints kept beside the best and the last.
    pub keep: usize,
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
}

mod defaults {
    pub(super) fn seed() -> u64 {
        1
    }
    pub(super) fn maze_size() -> usize {
        17
    }
    pub(super) fn maze_train() -> u64 {
        1_000_000
    }
    pub(super) fn maze_held_out() -> u64 {
        256
    }
    pub(super) fn held_out_share() -> f64 {
        0.02
    }
    pub(super) fn max_prompt_tokens() -> usize {
        1024
    }
    pub(super) fn fewest_operations() -> usize {
        2
    }
    pub(super) fn most_operations() -> usize {
        4
    }
    pub(super) fn largest() -> u64 {
        99
    }
    pub(super) fn arithmetic_train() -> u64 {
        20_000
    }
    pub(super) fn vocabulary() -> usize {
        320
    }
    pub(super) fn architecture() -> fgrpo_nn::config::Architecture {
        fgrpo_nn::config::Architecture::Qwen2
    }
    pub(super) fn rope_theta() -> f64 {
        1e6
    }
    pub(super) fn yes() -> bool {
        true
    }
    pub(super) fn init_std() -> f32 {
        0.02
    }
    pub(super) fn sft_batch() -> usize {
        32
    }
    pub(super) fn sft_lr() -> f64 {
        5e-4
    }
    pub(super) fn sft_betas() -> [f64; 2] {
        [0.9, 0.95]
    }
    pub(super) fn weight_decay() -> f64 {
        0.01
    }
    pub(super) fn max_grad_norm() -> f64 {
        1.0
    }
}

impl Default for RolloutConfig {
    fn default() -> Self {
        Self {
            prompts: 256,
            group_size: 8,
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            max_new_tokens: None,
            max_cached_tokens: None,
        }
    }
}

impl Default for AlgorithmConfig {
    fn default() -> Self {
        Self {
            advantage: AdvantageName::Grpo,
            advantage_eps: 1e-6,
            ddof: 1,
            pkpo_k: 4,
            focal_gamma: 0.0,
            reward_correct: 1.0,
            reward_wrong: 0.0,
            correct_threshold: None,
            loss: LossName::Grpo,
            clip_low: None,
            clip_high: None,
            dual_clip: 3.0,
            cispo_absolute_cap: false,
            aggregation: AggregationName::TokenMean,
            entropy_coef: 0.0,
            kl_coef: 0.0,
            kl: KlName::K3,
            drop_inactive_groups: false,
        }
    }
}

impl Default for UpdateConfig {
    fn default() -> Self {
        Self {
            lr: 1e-6,
            mini_batch: None,
            epochs: 1,
            betas: [0.9, 0.999],
            eps: 1e-8,
            weight_decay: 0.01,
            max_grad_norm: 1.0,
            warmup_steps: 0,
            schedule: Schedule::Constant,
            micro_batch_tokens: 1 << 16,
            max_skipped: 5,
        }
    }
}

impl Default for EvalConfig {
    fn default() -> Self {
        Self { every: 25, samples: 64, k: vec![1, 8, 64], temperature: 1.0, problems: None }
    }
}

impl Default for SaveConfig {
    fn default() -> Self {
        Self { every: 25, keep: 1 }
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
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("configuration {}", path.display()))
            .or_bad_input()?;
        Self::parse(&text, overrides)
            .with_context(|| format!("configuration {}", path.display()))
            .or_bad_input()
    }

    /// [`Config::load`] on the text itself.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(text: &str, overrides: &[String]) -> anyhow::Result<Self> {
        // Typed once from the text as written, for messages with line and column.
        let mut table: toml::Table = toml::from_str(text)?;
        let config: Self = if overrides.is_empty() {
            toml::from_str(text)?
        } else {
            for o in overrides {
                set(&mut table, o)?;
            }
            toml::from_str(&toml::to_string(&table)?)
                .with_context(|| format!("after --set {}", overrides.join(" --set ")))?
        };
        config.check()?;
        Ok(config)
    }

    /// The resolved configuration as TOML, every default written out.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("a configuration is always TOML")
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
        match (&self.model.path, &self.model.init) {
            (None, None) => bad_input!(
                "model: wanted `path` (a Hugging Face checkpoint folder) or a table [model.init] with sizes"
            ),
            (Some(_), Some(_)) => bad_input!("model: found both `path` and [model.init], wanted one of them"),
            (None, Some(init)) => init.check()?,
            (Some(_), None) => {}
        }
        if let Some(sft) = &self.sft {
            at_least("sft.steps", sft.steps, 1)?;
            at_least("sft.batch_size", sft.batch_size as u64, 1)?;
            learning_rate("sft.lr", sft.lr)?;
            betas("sft.betas", sft.betas)?;
            positive("sft.max_grad_norm", sft.max_grad_norm)?;
            not_negative("sft.weight_decay", sft.weight_decay)?;
        }
        let r = &self.rollout;
        at_least("rollout.prompts", r.prompts as u64, 1)?;
        if r.group_size < 2 {
            bad_input!(
                "rollout.group_size: found {}, wanted at least 2: the group-relative advantage of a single completion is always 0",
                r.group_size
            );
        }
        sampling("rollout", r.temperature, r.top_p, r.min_p)?;
        if r.max_cached_tokens == Some(0) {
            bad_input!("rollout.max_cached_tokens: found 0, wanted at least 1");
        }
        if r.max_new_tokens == Some(0) {
            bad_input!("rollout.max_new_tokens: found 0, wanted at least 1");
        }
        let a = &self.algorithm;
        a.credit().check(r.group_size).context("algorithm")?;
        a.objective(1).check().context("algorithm")?;
        not_negative("algorithm.entropy_coef", a.entropy_coef)?;
        not_negative("algorithm.kl_coef", a.kl_coef)?;
        let u = &self.update;
        learning_rate("update.lr", u.lr)?;
        betas("update.betas", u.betas)?;
        positive("update.eps", u.eps)?;
        positive("update.max_grad_norm", u.max_grad_norm)?;
        not_negative("update.weight_decay", u.weight_decay)?;
        at_least("update.epochs", u.epochs as u64, 1)?;
        at_least("update.micro_batch_tokens", u.micro_batch_tokens as u64, 1)?;
        at_least("update.max_skipped", u.max_skipped, 1)?;
        if let Some(m) = u.mini_batch
            && (m == 0 || m > r.prompts)
        {
            bad_input!("update.mini_batch: found {m}, wanted 1 to rollout.prompts = {}", r.prompts);
        }
        let e = &self.eval;
        if e.every > 0 {
            at_least("eval.samples", e.samples as u64, 1)?;
            sampling("eval", e.temperature, 1.0, 0.0)?;
            if e.k.is_empty() {
                bad_input!("eval.k: found an empty list, wanted at least one k");
            }
            for &k in &e.k {
                if k == 0 || k > e.samples {
                    bad_input!("eval.k: found {k}, wanted 1 to eval.samples = {}", e.samples);
                }
            }
            if self.task.holds_out_nothing() || e.problems == Some(0) {
                bad_input!("task.held_out: found 0, wanted at least 1 held-out problem (or eval.every = 0)");
            }
        }
        if !(0.0..=1.0).contains(&self.log.rollout_share) {
            bad_input!("log.rollout_share: found {}, wanted 0 to 1", self.log.rollout_share);
        }
        Ok(())
    }
}

impl MazeConfig {
    fn check(&self) -> anyhow::Result<()> {
        if self.size < 5 || self.size.is_multiple_of(2) {
            bad_input!("task.size: found {}, wanted an odd number of at least 5", self.size);
        }
        if self.train == 0 {
            bad_input!("task.train: found 0, wanted at least 1 maze");
        }
        Ok(())
    }
}

impl InitConfig {
    fn check(&self) -> anyhow::Result<()> {
        for (name, value) in [
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.num_key_value_heads),
        ] {
            at_least(&format!("model.init.{name}"), value as u64, 1)?;
        }
        if !self.num_attention_heads.is_multiple_of(self.num_key_value_heads) {
            bad_input!(
                "model.init.num_key_value_heads: found {}, wanted a divisor of num_attention_heads = {}",
                self.num_key_value_heads,
                self.num_attention_heads
            );
        }
        match self.head_dim {
            None if !self.hidden_size.is_multiple_of(self.num_attention_heads) => bad_input!(
                "model.init.num_attention_heads: found {}, wanted a divisor of hidden_size = {} (or a head_dim)",
                self.num_attention_heads,
                self.hidden_size
            ),
            None if !(self.hidden_size / self.num_attention_heads).is_multiple_of(2) => bad_input!(
                "model.init: head size hidden_size / num_attention_heads = {} is odd, wanted an even one (rotary embedding turns pairs)",
                self.hidden_size / self.num_attention_heads
            ),
            Some(e) if e == 0 || !e.is_multiple_of(2) => {
                bad_input!("model.init.head_dim: found {e}, wanted an even number of at least 2")
            }
            _ => {}
        }
        positive("model.init.std", f64::from(self.std))?;
        positive("model.init.rope_theta", self.rope_theta)
    }
}

impl AlgorithmConfig {
    /// From rewards to advantages, focal weight included.
    pub fn credit(&self) -> Credit {
        Credit {
            advantage: match self.advantage {
                AdvantageName::Grpo => Advantage::Grpo { eps: self.advantage_eps, ddof: self.ddof },
                AdvantageName::DrGrpo => Advantage::DrGrpo,
                AdvantageName::Rloo => Advantage::Rloo,
                AdvantageName::MaxRl => Advantage::MaxRl,
                AdvantageName::Pkpo => Advantage::Pkpo { k: self.pkpo_k },
            },
            rewards: Rewards {
                correct: self.reward_correct,
                wrong: self.reward_wrong,
                threshold: self.correct_threshold,
            },
            focal_gamma: self.focal_gamma,
            shaping: Shaping::None,
        }
    }

    /// From log-probabilities to the loss and its derivative.
    pub fn objective(&self, max_new_tokens: usize) -> Objective {
        let low = |default| self.clip_low.unwrap_or(default);
        let high = |default| self.clip_high.unwrap_or(default);
        let dual = (self.dual_clip != 0.0).then_some(self.dual_clip);
        Objective {
            policy: match self.loss {
                LossName::Grpo => PolicyLoss::Clip { low: low(0.2), high: high(0.2), dual },
                LossName::Dapo => PolicyLoss::Clip { low: low(0.2), high: high(0.28), dual },
                LossName::Cispo if self.cispo_absolute_cap => {
                    PolicyLoss::Cispo(CispoBounds::Cap { high: high(5.0) })
                }
                LossName::Cispo => PolicyLoss::Cispo(CispoBounds::Around { low: low(1.0), high: high(5.0) }),
                LossName::Gspo => PolicyLoss::Gspo { low: low(3e-4), high: high(4e-4) },
            },
            aggregation: match self.aggregation {
                AggregationName::TokenMean => Aggregation::TokenMean,
                AggregationName::SeqMeanTokenSum => Aggregation::SeqMeanTokenSum,
                AggregationName::SeqMeanTokenSumNorm => {
                    Aggregation::SeqMeanTokenSumNorm { max_len: max_new_tokens }
                }
                AggregationName::SeqMeanTokenMean => Aggregation::SeqMeanTokenMean,
            },
            entropy_coef: self.entropy_coef,
            kl: (self.kl_coef != 0.0).then_some((
                match self.kl {
                    KlName::K1 => Kl::K1,
                    KlName::K2 => Kl::K2,
                    KlName::K3 => Kl::K3,
                },
                self.kl_coef,
            )),
            correction: Correction::Off,
        }
    }
}

fn at_least(name: &str, found: u64, least: u64) -> anyhow::Result<()> {
    if found < least {
        bad_input!("{name}: found {found}, wanted at least {least}");
    }
    Ok(())
}

fn positive(name: &str, found: f64) -> anyhow::Result<()> {
    if !(found.is_finite() && found > 0.0) {
        bad_input!("{name}: found {found}, wanted a number above 0");
    }
    Ok(())
}

fn not_negative(name: &str, found: f64) -> anyhow::Result<()> {
    if !(found.is_finite() && found >= 0.0) {
        bad_input!("{name}: found {found}, wanted a number of at least 0");
    }
    Ok(())
}

fn learning_rate(name: &str, found: f64) -> anyhow::Result<()> {
    if !(found > 0.0 && found < 1.0) {
        bad_input!("{name}: found {found}, wanted a number between 0 and 1");
    }
    Ok(())
}

fn betas(name: &str, found: [f64; 2]) -> anyhow::Result<()> {
    if found.iter().any(|b| !(0.0..1.0).contains(b)) {
        bad_input!("{name}: found {found:?}, wanted two numbers in [0, 1)");
    }
    Ok(())
}

fn sampling(table: &str, temperature: f32, top_p: f32, min_p: f32) -> anyhow::Result<()> {
    positive(&format!("{table}.temperature"), f64::from(temperature))?;
    if !(top_p > 0.0 && top_p <= 1.0) {
        bad_input!("{table}.top_p: found {top_p}, wanted a number above 0 and at most 1");
    }
    if !(0.0..1.0).contains(&min_p) {
        bad_input!("{table}.min_p: found {min_p}, wanted a number in [0, 1)");
    }
    Ok(())
}

/// Applies `a.b.c=value`. The value is TOML where it parses as such, and a string otherwise, so
/// that `--set algorithm.loss=dapo` needs no quotes.
pub fn set(table: &mut toml::Table, assignment: &str) -> anyhow::Result<()> {
    let Some((key, value)) = assignment.split_once('=') else {
        bad_input!("--set {assignment}: wanted key=value");
    };
    let value = format!("x = {value}")
        .parse::<toml::Table>()
        .ok()
        .and_then(|mut t| t.remove("x"))
        .unwrap_or_else(|| toml::Value::String(value.to_owned()));
    let mut parts: Vec<&str> = key.trim().split('.').collect();
    let last = parts.pop().filter(|p| !p.is_empty());
    let Some(last) = last else { bad_input!("--set {assignment}: wanted key=value") };
    let mut here = table;
    for part in parts {
        let entry = here.entry(part).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        let Some(next) = entry.as_table_mut() else {
            bad_input!("--set {assignment}: `{part}` is a value, not a table");
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
