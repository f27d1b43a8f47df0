//! Several sources of problems, mixed by weight.

use super::defaults;
use super::task::TaskConfig;
use crate::bad_input;
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Several sources of problems, mixed by weight, with one model and one tokenizer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixConfig {
    /// Folder of the tokenizer and the chat template. If absent, `model.path`; if that is absent too, the tokenizer
    /// trained by the first arithmetic part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<PathBuf>,
    /// Texts that end a completion, for every part.
    #[serde(default)]
    pub stop: Vec<String>,
    /// The sources.
    pub parts: Vec<MixPart>,
}

/// One source of problems.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MixPart {
    /// Its name in evaluations; if absent, its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its share of the prompts, relative to the other parts. 0: only evaluated, with all its problems held out.
    #[serde(default = "defaults::part_weight")]
    pub weight: f64,
    /// The problems: any text task.
    #[serde(flatten)]
    pub task: TaskConfig,
}

impl MixPart {
    /// Its name in evaluations.
    pub fn name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.task.kind().to_owned())
    }
}

impl MixConfig {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let mut names = Vec::new();
        for (i, part) in self.parts.iter().enumerate() {
            let here = format!("task.parts, number {} ({})", i + 1, part.name());
            if matches!(part.task, TaskConfig::Maze(_) | TaskConfig::Mix(_)) {
                bad_input!("{here}: kind: found {}, wanted a task in text", part.task.kind());
            }
            if !(part.weight.is_finite() && part.weight >= 0.0) {
                bad_input!("{here}: weight: found {}, wanted a number of at least 0", part.weight);
            }
            if let Some((_, text)) = part.task.text() {
                if text.tokenizer.is_some() {
                    bad_input!("{here}: tokenizer: found one, wanted it as task.tokenizer, for all parts");
                }
                if !text.stop.is_empty() {
                    bad_input!(
                        "{here}: stop: found {:?}, wanted them as task.stop, for all parts",
                        text.stop
                    );
                }
            }
            part.task.check().with_context(|| here.clone())?;
            if names.contains(&part.name()) {
                bad_input!("{here}: name: found {:?} twice, wanted a name for each part", part.name());
            }
            names.push(part.name());
        }
        if !self.parts.iter().any(|p| p.weight > 0.0) {
            bad_input!("task.parts: found no part with a weight above 0, wanted something to train on");
        }
        Ok(())
    }

    pub(super) fn holds_out_nothing(&self) -> bool {
        self.parts.iter().all(|p| p.weight > 0.0 && p.task.holds_out_nothing())
    }
}
