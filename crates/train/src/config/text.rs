//! What a run on text is asked: files of problems, or generated arithmetic.

use super::defaults;
use super::ranges::{MANY, TOKENS, whole, within};
use crate::bad_input;
use crate::grade;
use crate::problem::dataset::columns::Columns;
use crate::problem::dataset::presets::{Family, Prompting};
use crate::problem::kind::TaskKind;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Problems from a file, put to a language model by its chat template.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextConfig {
    /// Problems to train on: JSON lines, a JSON array, CSV or Parquet, or a folder of such files.
    pub data: PathBuf,
    /// Held-out problems; without a file, `held_out_share` of `data` is held out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_out: Option<PathBuf>,
    /// Share of `data` that is held out where `held_out` names no file. Which problems is decided by
    /// a hash of the prompt, so that it stays when the file grows.
    #[serde(default = "defaults::held_out_share")]
    pub held_out_share: f64,
    /// Folder of the tokenizer and the chat template; `model.path` where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<PathBuf>,
    /// The paper's prompt for a model family (`qwen2.5`, `qwen3`, `llama3.2`) and this kind of task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<Family>,
    /// System prompt, in place of the preset's; an empty one sends none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// `enable_thinking` of the chat template, in place of the preset's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_thinking: Option<bool>,
    /// Problems whose prompt has more tokens are dropped, and counted.
    #[serde(default = "defaults::max_prompt_tokens")]
    pub max_prompt_tokens: usize,
    /// Texts that end a completion beside the model's own end tokens: an added token of the tokenizer by its
    /// name, any other text wherever token boundaries fall. What is graded ends before it.
    #[serde(default)]
    pub stop: Vec<String>,
    /// Names of columns, where they are not the usual ones.
    #[serde(default)]
    pub columns: Columns,
    /// How completions are graded.
    #[serde(default)]
    pub verifier: grade::Settings,
}

impl TextConfig {
    /// The problems of a data set with every default.
    pub fn of(data: &Path) -> Self {
        Self {
            data: data.to_owned(),
            held_out: None,
            held_out_share: defaults::held_out_share(),
            tokenizer: None,
            preset: None,
            system: None,
            enable_thinking: None,
            max_prompt_tokens: defaults::max_prompt_tokens(),
            stop: Vec::new(),
            columns: Columns::default(),
            verifier: grade::Settings::default(),
        }
    }

    /// What decides the prompts.
    pub fn prompting(&self) -> Prompting {
        Prompting { preset: self.preset, system: self.system.clone(), thinking: self.enable_thinking }
    }

    /// The folder of tokenizer and chat template.
    ///
    /// # Errors
    /// Bad input where neither the task nor the model names one.
    pub fn tokenizer_folder(&self, model: Option<&PathBuf>) -> anyhow::Result<PathBuf> {
        let Some(folder) = self.tokenizer.as_ref().or(model) else {
            bad_input!(
                "task.tokenizer: found nothing, wanted the folder of tokenizer.json and the chat template, since model.path names none"
            );
        };
        Ok(folder.clone())
    }

    pub(super) fn check(&self, kind: TaskKind) -> anyhow::Result<()> {
        within("task.max_prompt_tokens", self.max_prompt_tokens as u64, 1..=TOKENS)?;
        if !(0.0..1.0).contains(&self.held_out_share) {
            bad_input!(
                "task.held_out_share: found {}, wanted at least 0 and less than 1",
                self.held_out_share
            );
        }
        if kind == TaskKind::Command && self.verifier.command.is_none() {
            bad_input!(
                "task.verifier.command: found nothing, wanted a table with `command`, the program that grades"
            );
        }
        Ok(())
    }

    /// Whether nothing is held out.
    pub(super) fn holds_out_nothing(&self) -> bool {
        self.held_out.is_none() && self.held_out_share == 0.0
    }
}

/// Arithmetic in several steps, generated from (seed, index).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArithmeticConfig {
    /// Operations of a problem: the fewest.
    #[serde(default = "defaults::fewest_operations")]
    pub fewest_operations: usize,
    /// Operations of a problem: the most.
    #[serde(default = "defaults::most_operations")]
    pub most_operations: usize,
    /// No value on the way is larger; none is below 0.
    #[serde(default = "defaults::largest")]
    pub largest: u64,
    /// Training problems.
    #[serde(default = "defaults::arithmetic_train")]
    pub train: u64,
    /// Held-out problems; none of them is trained on.
    #[serde(default = "defaults::maze_held_out")]
    pub held_out: u64,
    /// Size of the tokenizer's vocabulary, which is trained on generated text: at least 300.
    #[serde(default = "defaults::vocabulary")]
    pub vocab_size: usize,
    /// Seed of the problems, apart from the run's seed so that runs share their problems.
    #[serde(default)]
    pub seed: u64,
}

impl ArithmeticConfig {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let fewest = self.fewest_operations as u64;
        whole(
            "task",
            [
                ("fewest_operations", fewest, 1..=64),
                ("most_operations", self.most_operations as u64, fewest..=64),
                ("largest", self.largest, 20..=1_000_000),
                ("train", self.train, 1..=1 << 24),
                ("held_out", self.held_out, 0..=MANY),
                ("vocab_size", self.vocab_size as u64, 300..=1 << 16),
            ],
        )?;
        Ok(())
    }
}
