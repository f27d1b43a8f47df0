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
    /// by the problem's reference answer, `{solution}` by its worked solution, and `{feedback}` by the string that the
    /// method `feedback()` of `task.environment` returns after an episode; at least one of them is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Whether advantages also come from rewards. If `false`, only the teacher decides, but completions are still
    /// graded: for the metrics and for the focal weight.
    #[serde(default = "defaults::yes")]
    pub rewards: bool,
}

/// Placeholders of a hint, which are replaced by strings from the problem or its episode.
const HINTS: [&str; 3] = ["{answer}", "{solution}", "{feedback}"];

impl TeacherConfig {
    /// Returns whether the teacher is an adapter.
    pub fn is_adapter(&self) -> bool {
        let is_adapter =
            |path: &Path| path.join("adapter_config.json").is_file() && !path.join("config.json").exists();
        self.path.as_deref().is_some_and(is_adapter)
    }

    /// Returns whether the hint has the environment's feedback on an episode.
    pub fn needs_feedback(&self) -> bool {
        self.hint.as_ref().is_some_and(|hint| hint.contains(HINTS[2]))
    }

    /// Returns the hint of a problem, or `None` if no hint is configured. `feedback` is the environment's feedback on
    /// an episode. Placeholders within the inserted strings stay as they are.
    ///
    /// # Errors
    /// Bad input that names the problem if it has no reference answer or solution, but the hint needs one.
    pub fn hint_of(&self, problem: &Problem, feedback: &str) -> anyhow::Result<Option<String>> {
        let Some(mut rest) = self.hint.as_deref() else { return Ok(None) };
        let values = [problem.truth.gold(), problem.solution.clone(), Some(feedback.to_owned())];
        let mut hint = String::new();
        let next = |rest: &str| (0..HINTS.len()).filter_map(|i| Some((rest.find(HINTS[i])?, i))).min();
        while let Some((at, i)) = next(rest) {
            let Some(value) = &values[i] else {
                bad_input!("teacher.hint: problem {} has nothing for {}", problem.id, HINTS[i])
            };
            hint = hint + &rest[..at] + value;
            rest = &rest[at + HINTS[i].len()..];
        }
        Ok(Some(hint + rest))
    }

    /// Returns whether the teacher and the policy are adapters of the same base.
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
            bad_input!(
                "teacher.hint: expected a text with {{answer}}, {{solution}} or {{feedback}}, found {hint:?}"
            )
        }
        Some(_) if matches!(config.task.kind(), "maze" | "mix") => {
            bad_input!(
                "teacher.hint: can't be combined with mazes or a mix; use one task with questions in text, or task.environment"
            )
        }
        Some(_) if teacher.needs_feedback() && !config.task.has_environment() => bad_input!(
            "teacher.hint: {{feedback}} requires task.environment; a grader gives no feedback, so use {{answer}} or {{solution}}"
        ),
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

#[cfg(test)]
mod tests {
    use super::*;
    use fgrpo_eval::kind::{Truth, math};

    #[test]
    fn placeholders_are_replaced_once_and_not_within_inserted_strings() {
        let truth = Truth::Math(math::Truth { gold: "{feedback} {solution}".into() });
        let mut problem = Problem::new("7".into(), Vec::new(), truth);
        let hint = |hint: &str, problem: &Problem| {
            let teacher = TeacherConfig { path: None, hint: Some(hint.into()), rewards: true };
            teacher.hint_of(problem, "{answer}").map(Option::unwrap).map_err(|error| error.to_string())
        };
        let all = hint("<{feedback}, {answer}, {answer}>", &problem);
        assert_eq!(all.unwrap(), "<{answer}, {feedback} {solution}, {feedback} {solution}>");
        assert_eq!(
            hint("{solution}", &problem).unwrap_err(),
            "teacher.hint: problem 7 has nothing for {solution}"
        );
        problem.solution = Some("s".into());
        assert_eq!(hint("{solution}!", &problem).unwrap(), "s!");
    }
}
