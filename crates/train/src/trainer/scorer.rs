//! Policies that score the samples of the trained policy: the reference of the KL penalty, and the teacher.

use crate::config::{Config, TeacherConfig};
use crate::credit::Credited;
use crate::language::Language;
use crate::policy::{self, Policy, Sequence};
use crate::problem::{Prompt, Split, Task};
use anyhow::Context;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_nn::weights::Checkpoint;
use fgrpo_nn::{Completion, Device, Engine};
use std::sync::Arc;

/// Fails early if the teacher can't score the policy's samples.
///
/// # Errors
/// Bad input that names the key: `teacher.path` isn't a model, its tokenizer isn't the task's, or it has too few
/// positions; or a training problem lacks the text that `teacher.hint` adds.
pub fn check_teacher(config: &Config, task: &Task) -> anyhow::Result<()> {
    let Some(teacher) = &config.teacher else { return Ok(()) };
    let policy = policy::sizes(config, task)?;
    let model = match &teacher.path {
        Some(path) if !teacher.is_adapter() => {
            let tokens = Language::read(path, &[]).context("teacher.path").or_bad_input()?.tokens();
            if let Some((token, _)) = task.language.tokens().iter().find(|(t, id)| tokens.get(*t) != Some(id))
            {
                bad_input!(
                    "teacher.path: {} has another tokenizer than the task: the token {token:?} is missing there or has another id; use a teacher with the policy's tokenizer",
                    path.display()
                );
            }
            Checkpoint::open(path).or_bad_input()?.config().clone()
        }
        _ => policy.clone(),
    };
    let prompts = || (0..task.len(Split::Train)).map(|id| task.prompt(Split::Train, id));
    let new = config.rollout.max_new_tokens.unwrap_or(task.max_new_tokens()) * task.max_turns();
    let without_hint = policy.context().min(task.longest_prompt() + new);
    // A token has at least one byte, so most hints needn't be encoded.
    let mut hint = 0;
    if teacher.hint.is_some() {
        for of_policy in prompts() {
            hint = hint.max(teacher.hint_of(&of_policy.problem)?.map_or(0, |text| text.len()));
        }
        if without_hint + hint > model.context() {
            hint = 0;
            for of_policy in prompts() {
                let tokens = prompt(teacher, task, &of_policy)?.len();
                hint = hint.max(tokens.saturating_sub(of_policy.tokens.len()));
            }
        }
    }
    let needed = without_hint + hint;
    let words = task.language.vocab_size();
    if model.context() < needed || model.vocab_size < words {
        bad_input!(
            "teacher: it has {} positions and {} tokens, but scoring needs {needed} positions ({hint} of them for the hint) and {words} tokens; shorten rollout.max_new_tokens or the hint, or use another teacher",
            model.context(),
            model.vocab_size
        );
    }
    Ok(())
}

/// Returns the teacher's prompt of a problem.
fn prompt(teacher: &TeacherConfig, task: &Task, prompt: &Prompt) -> anyhow::Result<Vec<u32>> {
    match teacher.hint_of(&prompt.problem)? {
        Some(hint) => task.hinted(prompt, &hint),
        None => Ok(prompt.tokens.clone()),
    }
}

/// Returns the teacher's prompts of groups, or `None` if the teacher gets the same prompts as the policy.
pub(super) fn hinted(
    config: &Config,
    task: &Task,
    groups: &[&mut Credited],
) -> anyhow::Result<Option<Vec<Vec<u32>>>> {
    let teacher = config.teacher.as_ref().filter(|teacher| teacher.hint.is_some());
    let prompts =
        |teacher| groups.iter().map(|group| prompt(teacher, task, &group.rollouts.prompt)).collect();
    teacher.map(prompts).transpose()
}

/// A policy that scores sampled tokens.
pub(super) enum Scorer {
    /// The trained policy.
    Itself,
    /// The trained engine without its adapter.
    Base,
    /// The trained engine with other factors in its adapter.
    Adapter(Vec<Vec<f32>>),
    /// A separate policy.
    Policy(Box<Policy>),
}

impl Scorer {
    /// Returns the reference of the KL penalty, i.e. the policy that RL starts from, or `None` if interrupted.
    pub(super) fn reference(
        config: &Config,
        task: &Task,
        starting: &mut dyn FnMut() -> anyhow::Result<Option<Engine>>,
    ) -> anyhow::Result<Option<Self>> {
        // The base model is already in the engine: its weights without the adapter.
        if config.lora.is_some() && config.sft.is_none() {
            return Ok(Some(Self::Base));
        }
        Ok(starting()?.map(|engine| Self::separate(engine, task)))
    }

    /// Returns the teacher, or `None` if the configuration doesn't have one. `trained` is the trained engine, whose
    /// factors don't change.
    pub(super) fn teacher(
        config: &Config,
        task: &Task,
        trained: &mut Engine,
        device: &Device,
    ) -> anyhow::Result<Option<Self>> {
        let Some(teacher) = &config.teacher else { return Ok(None) };
        let Some(path) = &teacher.path else { return Ok(Some(Self::Itself)) };
        if teacher.shares_base(config) {
            let mut factors: Vec<Vec<f32>> =
                trained.adapter_tensors().map(|(_, _, values)| values.into_owned()).collect();
            trained.read_adapter(path).or_bad_input()?;
            trained.exchange_factors(&mut factors);
            return Ok(Some(Self::Adapter(factors)));
        }
        let engine = match (teacher.is_adapter(), &config.model.path) {
            (true, Some(base)) => policy::open(base, Some(path), device)?,
            _ => policy::open(path, None, device)?,
        };
        Ok(Some(Self::separate(engine, task)))
    }

    fn separate(engine: Engine, task: &Task) -> Self {
        Self::Policy(Box::new(Policy::new(engine, Arc::clone(&task.language))))
    }

    /// Returns the log-probability of each sampled token, indexed by group and completion. `prompts` replace the
    /// prompts of the groups.
    pub(super) fn logp(
        &mut self,
        trained: &mut Policy,
        groups: &[&mut Credited],
        prompts: Option<&[Vec<u32>]>,
        temperature: f32,
    ) -> anyhow::Result<Vec<Vec<Vec<f32>>>> {
        match self {
            Self::Itself => logp(trained, groups, prompts, temperature),
            Self::Base => {
                trained.engine_mut().set_adapter_applied(false);
                let scored = logp(trained, groups, prompts, temperature);
                trained.engine_mut().set_adapter_applied(true);
                scored
            }
            Self::Adapter(factors) => {
                trained.engine_mut().exchange_factors(factors);
                let scored = logp(trained, groups, prompts, temperature);
                trained.engine_mut().exchange_factors(factors);
                scored
            }
            Self::Policy(policy) => logp(policy, groups, prompts, temperature),
        }
    }
}

fn logp(
    policy: &mut Policy,
    groups: &[&mut Credited],
    prompts: Option<&[Vec<u32>]>,
    temperature: f32,
) -> anyhow::Result<Vec<Vec<Vec<f32>>>> {
    let group_sequences = |(g, group): (usize, &&mut Credited)| -> Vec<Vec<Sequence>> {
        let completions = group.rollouts.completions.iter().enumerate();
        let sequences = |(i, completion): (usize, &Completion)| match prompts {
            Some(prompts) => vec![Sequence::completion(&prompts[g], &completion.tokens)],
            None => group.rollouts.sequences(i),
        };
        completions.map(sequences).collect()
    };
    // All groups in one call: the engine distributes them over its threads.
    let sequences: Vec<Vec<Vec<Sequence>>> = groups.iter().enumerate().map(group_sequences).collect();
    let all: Vec<Sequence> = sequences.iter().flatten().flatten().cloned().collect();
    let mut scores = policy.score(&all, temperature)?.into_iter();
    let mut completion =
        |parts: Vec<Sequence>| scores.by_ref().take(parts.len()).flat_map(|s| s.logp).collect();
    Ok(sequences.into_iter().map(|group| group.into_iter().map(&mut completion).collect()).collect())
}
