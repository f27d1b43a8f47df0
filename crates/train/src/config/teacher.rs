//! A teacher, whose log-probabilities of the policy's samples become advantages.

use super::{Config, defaults};
use fgrpo_core::advantage::Advantage;
use fgrpo_core::credit::Shaping;
use fgrpo_core::loss::{Correction, PolicyLoss};
use fgrpo_eval::dataset::Problem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A teacher (on-policy distillation): the policy samples, and the teacher scores the sampled tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TeacherConfig {
    /// The teacher: a checkpoint folder, a `.gguf` file, a hub name, or the folder of an adapter of `model.path`. It
    /// must have the tokenizer of the task. With `[lora]`, an adapter must have the settings of `[lora]`; it then
    /// shares the base with the policy and needs no memory for a second model. By default, the policy is its own
    /// teacher, which requires `hint`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// A sentence that only the teacher sees, added to the last user message of each problem. `{answer}` is replaced
    /// by the problem's reference answer, and `{solution}` by its worked solution; at least one of them is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Whether advantages also come from rewards. If `false`, only the teacher decides, but completions are still
    /// graded: for the metrics and for the focal weight.
    #[serde(default = "defaults::yes")]
    pub rewards: bool,
}

/// Placeholders of a hint, which are replaced by texts of the problem.
const HINTS: [&str; 2] = ["{answer}", "{solution}"];

impl TeacherConfig {
    /// Whether the teacher is an adapter.
    pub fn is_adapter(&self) -> bool {
        let is_adapter =
            |path: &Path| path.join("adapter_config.json").is_file() && !path.join("config.json").exists();
        self.path.as_deref().is_some_and(is_adapter)
    }

    /// The hint of a problem, or `None` if no hint is configured.
    ///
    /// # Errors
    /// Bad input that names the problem if it has no reference answer or solution, but the hint needs one.
    pub fn hint_of(&self, problem: &Problem) -> anyhow::Result<Option<String>> {
        let Some(mut hint) = self.hint.clone() else { return Ok(None) };
        for (name, value) in HINTS.iter().zip([problem.truth.gold(), problem.solution.clone()]) {
            if hint.contains(name) {
                let Some(value) = value else {
                    bad_input!("teacher.hint: problem {} has nothing for {name}", problem.id)
                };
                hint = hint.replace(name, &value);
            }
        }
        Ok(Some(hint))
    }

    /// Whether the teacher and the policy are adapters of the same base.
    pub fn shares_base(&self, config: &Config) -> bool {
        config.lora.is_some() && self.is_adapter()
    }
}

/// Rejects settings of `[algorithm]` that have no effect, or another meaning, with a teacher or without one.
pub(super) fn check(config: &Config) -> anyhow::Result<()> {
    let algorithm = &config.algorithm;
    let Some(teacher) = &config.teacher else {
        if algorithm.follows_teacher() {
            bad_input!("algorithm.teacher_coef: requires a teacher; set teacher.path");
        }
        return Ok(());
    };
    if !algorithm.follows_teacher() {
        bad_input!("teacher: has no effect with algorithm.teacher_coef = 0; set it to 1, for example");
    }
    if teacher.is_adapter() && config.model.path.is_none() {
        bad_input!("teacher.path: an adapter requires model.path as its base; set the path of a whole model");
    }
    match &teacher.hint {
        None if teacher.path.is_none() => bad_input!("teacher.path: required, unless teacher.hint is set"),
        Some(hint) if HINTS.iter().all(|hint_of| !hint.contains(hint_of)) => {
            bad_input!("teacher.hint: expected a text with {}, found {hint:?}", HINTS.join(" or "))
        }
        Some(_) if config.task.has_environment() || matches!(config.task.kind(), "maze" | "mix") => {
            bad_input!(
                "teacher.hint: can't be combined with mazes, a mix or task.environment; use one task with questions in text"
            )
        }
        _ => {}
    }
    use PolicyLoss::{ClipCov, Gmpo, Gspo, KlCov};
    let by_token = "can't be combined with [teacher], whose advantages differ by token; use the loss grpo, dapo or cispo without correction and daro";
    let unused = "remove this key; with teacher.rewards = false, advantages don't come from rewards";
    let alone = !teacher.rewards;
    let conflicts = [
        (
            "loss",
            matches!(algorithm.loss, Gspo { .. } | Gmpo { .. } | KlCov { .. } | ClipCov { .. }),
            by_token,
        ),
        ("correction", algorithm.correction != Correction::Off, by_token),
        ("daro", algorithm.daro, by_token),
        ("advantage", alone && algorithm.advantage != Advantage::default(), unused),
        ("shaping", alone && algorithm.shaping != Shaping::None, unused),
        ("overlong", alone && algorithm.overlong.is_some(), unused),
        ("reward_weights", alone && !algorithm.reward_weights.is_empty(), unused),
        ("drop_inactive_groups", alone && algorithm.drop_inactive_groups, unused),
    ];
    match conflicts.iter().find(|(_, is_set, _)| *is_set) {
        Some((key, _, why)) => bad_input!("algorithm.{key}: {why}"),
        None => Ok(()),
    }
}
