//! Evaluations during training: a frequent one and, if `[eval.full]` is set, a full one.

use super::ranges::{MANY, within};
use super::schema;
use super::{Epoch, Every, TaskConfig};
use fgrpo_eval::io::server::sampling::RequestSampling;
use fgrpo_eval::record::{Average, FULL, USUAL};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Evaluation on held-out problems during training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EvalConfig {
    /// Evaluation interval in steps, or `"epoch"`. Evaluations also run before the first and after the last step; 0
    /// means never.
    pub every: Every,
    /// Also evaluate at every checkpoint of `save.every`, so that `fgrpo select` can choose among them; with
    /// `[eval.full]`, this is the full evaluation.
    pub at_checkpoints: bool,
    /// Samples per problem.
    pub samples: usize,
    /// Values of k in pass@k, at most `samples`. 1 is always evaluated, because it decides which checkpoint is best.
    pub k: Vec<usize>,
    /// Sampling temperature; 0 picks the likeliest token.
    pub temperature: f64,
    /// Nucleus sampling; 1 is off.
    pub top_p: f64,
    /// Sample from the k likeliest tokens; 0 is off.
    pub top_k: usize,
    /// Sample from tokens whose probability is at least this fraction of the likeliest one's; 0 is off.
    pub min_p: f64,
    /// Evaluate only the first problems, up to this number, of each part in a mix. By default, all are evaluated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problems: Option<usize>,
    /// With `task.kind = "mix"`: pass@k is the mean over all `problems`, or over the `parts`, like an average of
    /// benchmarks. The pass@1 that decides which checkpoint is best is averaged in the same way.
    #[schemars(schema_with = "schema::word::<Average>")]
    pub average: Average,
    /// Whether the completions' texts are stored in `evaluations/`, for `fgrpo nll` and `diversity`; verdicts are
    /// always stored.
    pub keep_texts: bool,
    /// With mazes: also compute the probability of every correct completion at temperature 1, and from it the mass on
    /// correct completions, the mass retained since the start of RL, and pass@k without samples.
    pub exact: bool,
    /// A larger, less frequent evaluation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full: Option<FullEvalConfig>,
}

/// A larger, less frequent evaluation, with more samples or more problems. Its other settings come from `[eval]`.
///
/// If present, it decides which checkpoint is best, and `eval.at_checkpoints` applies to it, because the best of many
/// small evaluations is often best by chance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FullEvalConfig {
    /// Like `eval.every`.
    pub every: Every,
    /// Samples per problem.
    pub samples: usize,
    /// Like `eval.k`.
    pub k: Vec<usize>,
    /// Like `eval.problems`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problems: Option<usize>,
}

impl Default for FullEvalConfig {
    fn default() -> Self {
        Self { every: Every::Epoch(Epoch::Epoch), samples: 256, k: vec![1, 4, 16, 64, 256], problems: None }
    }
}

impl EvalConfig {
    /// Returns the sampling settings, with this limit on a completion's length.
    pub fn sampling(&self, max_tokens: usize) -> RequestSampling {
        let &Self { temperature, top_p, top_k, min_p, .. } = self;
        RequestSampling { temperature, top_p, top_k, min_p, max_tokens }
    }

    /// Returns whether there is any evaluation during training.
    pub fn is_enabled(&self) -> bool {
        self.deciding().is_some()
    }

    /// Returns the evaluation of `[eval]` without `[eval.full]`, if it ever runs.
    pub fn usual(&self) -> Option<Self> {
        let at_checkpoints = self.at_checkpoints && self.full.is_none();
        let usual = Self { at_checkpoints, full: None, ..self.clone() };
        (at_checkpoints || !usual.every.is_never()).then_some(usual)
    }

    /// Returns the evaluation of `[eval.full]` with the other settings of `[eval]`, if it ever runs.
    pub fn full(&self) -> Option<Self> {
        let FullEvalConfig { every, samples, k, problems } = self.full.clone()?;
        let full = Self { every, samples, k, problems, full: None, ..self.clone() };
        (full.at_checkpoints || !every.is_never()).then_some(full)
    }

    /// Returns the evaluation that decides which checkpoint is best.
    pub fn deciding(&self) -> Option<Self> {
        self.full().or_else(|| self.usual())
    }

    /// Returns the name of the deciding evaluation's problems in `eval.jsonl`.
    pub fn deciding_set(&self) -> &'static str {
        if self.full().is_some() { FULL } else { USUAL }
    }

    pub(super) fn check(&self, task: &TaskConfig) -> anyhow::Result<()> {
        for (name, e) in [("eval", self.usual()), ("eval.full", self.full())] {
            e.map_or(Ok(()), |e| e.check_values(name, task))?;
        }
        Ok(())
    }

    pub(super) fn check_values(&self, name: &str, task: &TaskConfig) -> anyhow::Result<()> {
        within(&format!("{name}.samples"), self.samples as u64, 1..=MANY)?;
        within(&format!("number of {name}.k"), self.k.len() as u64, 0..=100)?;
        self.sampling(1).check(|field| format!("{name}.{field}"), 0.0)?;
        if self.k.is_empty() {
            bad_input!("{name}.k: the list is empty; it needs at least one k");
        }
        if let Some(k) = self.k.iter().find(|k| !(1..=self.samples).contains(*k)) {
            bad_input!("{name}.k: expected 1 to {name}.samples = {}, found {k}", self.samples);
        }
        if task.holds_out_nothing() || self.problems == Some(0) {
            bad_input!(
                "{name}: there are no held-out problems; set task.held_out to at least 1, or {name}.every = 0"
            );
        }
        if self.exact && !task.lists_solutions() {
            bad_input!(
                "eval.exact: requires task.kind = \"maze\" with task.reward = \"exact\", because all correct completions must be known"
            );
        }
        Ok(())
    }
}

impl Default for EvalConfig {
    fn default() -> Self {
        Self {
            every: Every::Steps(25),
            at_checkpoints: false,
            samples: 64,
            k: vec![1, 8, 64],
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            problems: None,
            average: Average::Problems,
            keep_texts: true,
            exact: false,
            full: None,
        }
    }
}
