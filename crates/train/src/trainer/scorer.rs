//! Policies that score the samples of the trained policy: the reference of the KL penalty, and the teacher.

use crate::config::{Config, TeacherConfig};
use crate::credit::Credited;
use crate::episode::{self, Episode, Rules};
use crate::language::Language;
use crate::policy::{self, Policy, Sequence};
use crate::problem::{Prompt, Split, Task};
use anyhow::Context;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::kind::Truth;
use fgrpo_nn::weights::Checkpoint;
use fgrpo_nn::{Device, Engine};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Fails early if the teacher can't score the policy's samples.
///
/// # Errors
/// Bad input that names the key: `teacher.path` isn't a model, its tokenizer isn't the task's, or it has too few
/// positions; a training problem lacks the text that `teacher.hint` adds; or its environment gives no feedback.
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
    let new = config.rollout.max_new_tokens.unwrap_or(task.max_new_tokens());
    let plays = config.task.has_environment();
    // An episode that doesn't fit is scored with less feedback, or without the hint.
    let without_hint =
        if plays { task.longest_prompt() } else { policy.context().min(task.longest_prompt() + new) };
    // A token has at least one byte, so most hints needn't be encoded.
    let mut hint = 0;
    if teacher.hint.is_some() {
        for of_policy in prompts() {
            hint = hint.max(teacher.hint_of(&of_policy.problem, "")?.map_or(0, |text| text.len()));
        }
        if without_hint + hint > model.context() {
            hint = 0;
            for of_policy in prompts() {
                // The environment makes the prompt of an episode.
                let tokens = match teacher.hint_of(&of_policy.problem, "")? {
                    Some(text) if plays => task.language.encode(&text)?.len(),
                    _ => prompt(teacher, task, &of_policy)?.len().saturating_sub(of_policy.tokens.len()),
                };
                hint = hint.max(tokens);
            }
        }
    }
    let words = task.language.vocab_size();
    if model.vocab_size < words {
        bad_input!(
            "teacher: it has {} tokens, but the task has {words}; use another teacher",
            model.vocab_size
        );
    }
    let needed = (without_hint + hint).max(if plays { policy.context() } else { 0 });
    if model.context() < needed {
        bad_input!(
            "teacher: it has {} positions, but a prompt, its hint and a completion need up to {needed}; shorten rollout.max_new_tokens or the hint, or use another teacher",
            model.context()
        );
    }
    // One problem of each class of environments.
    let mut classes = BTreeSet::new();
    for prompt in prompts().take_while(|_| plays && teacher.hint.is_some()) {
        if let Truth::Environment(truth) = &prompt.problem.truth
            && classes.insert(truth.columns.get("environment").map(ToString::to_string))
        {
            episode::check_hint(
                &task.language,
                task.set(&prompt),
                &prompt.problem,
                teacher.needs_feedback(),
            )?;
        }
    }
    Ok(())
}

/// Returns the teacher's prompt of a problem.
fn prompt(teacher: &TeacherConfig, task: &Task, prompt: &Prompt) -> anyhow::Result<Vec<u32>> {
    match teacher.hint_of(&prompt.problem, "")? {
        Some(hint) => task.hinted(prompt, &hint),
        None => Ok(prompt.tokens.clone()),
    }
}

/// The sequences of each completion, indexed by group and completion.
pub(super) type Sequences = Vec<Vec<Vec<Sequence>>>;

/// Returns the sequences of groups as the policy sampled them.
pub(super) fn plain(groups: &[&mut Credited]) -> Sequences {
    let group = |group: &&mut Credited| {
        (0..group.rollouts.completions.len()).map(|i| group.rollouts.sequences(i)).collect()
    };
    groups.iter().map(group).collect()
}

/// Returns the sequences of groups with the teacher's prompts, and the number of completions whose hint was shortened.
/// `positions` are the teacher's.
pub(super) fn hinted(
    config: &Config,
    task: &Task,
    groups: &[&mut Credited],
    positions: usize,
) -> anyhow::Result<(Sequences, usize)> {
    let mut shortened = 0;
    let Some(teacher) = config.teacher.as_ref().filter(|teacher| teacher.hint.is_some()) else {
        return Ok((plain(groups), shortened));
    };
    let mut sequences = Sequences::new();
    for group in groups {
        let (of_policy, mut of_group) = (&group.rollouts.prompt, Vec::new());
        match &group.rollouts.episodes {
            Some(episodes) => {
                let rules = Rules::new(&task.language, task.set(of_policy).prompt.thinking)?;
                for (i, episode) in episodes.iter().enumerate() {
                    // An unscorable episode has no feedback.
                    let lacks_feedback = teacher.needs_feedback() && episode.graded.feedback.is_none();
                    let hinted = if lacks_feedback {
                        None
                    } else {
                        of_episode(teacher, of_policy, &rules, episode, positions)?
                    };
                    let (parts, whole) =
                        hinted.unwrap_or_else(|| (group.rollouts.sequences(i), lacks_feedback));
                    shortened += usize::from(!whole);
                    of_group.push(parts);
                }
            }
            None => {
                let prompt = prompt(teacher, task, of_policy)?;
                let completions = group.rollouts.completions.iter();
                of_group.extend(completions.map(|c| vec![Sequence::completion(&prompt, &c.tokens)]));
            }
        }
        sequences.push(of_group);
    }
    Ok((sequences, shortened))
}

/// Returns the sequences of an episode with the teacher's prompt, and whether they have all of the feedback. The end of
/// the feedback is cut off if the sequences are longer than `positions`. `None` if they don't fit without feedback.
fn of_episode(
    teacher: &TeacherConfig,
    prompt: &Prompt,
    rules: &Rules<'_>,
    episode: &Episode,
    positions: usize,
) -> anyhow::Result<Option<(Vec<Sequence>, bool)>> {
    let feedback = episode.graded.feedback.as_deref().unwrap_or_default();
    let hinted = |end: usize| -> anyhow::Result<Option<Vec<Sequence>>> {
        let hint = teacher.hint_of(&prompt.problem, &feedback[..end])?.unwrap_or_default();
        let sequences = episode.hinted(rules, &hint)?;
        Ok(Some(sequences).filter(|all| all.iter().all(|one| one.tokens.len() <= positions)))
    };
    if let Some(sequences) = hinted(feedback.len())? {
        return Ok(Some((sequences, true)));
    }
    // Finds a length that fits although one more character doesn't; the number of tokens doesn't always grow with it.
    let ends: Vec<usize> = feedback.char_indices().map(|(at, _)| at).collect();
    let (mut fits, mut low, mut high) = (None, 0, ends.len());
    while low < high {
        let middle = (low + high) / 2;
        match hinted(ends[middle])? {
            Some(sequences) => (fits, low) = (Some((sequences, false)), middle + 1),
            None => high = middle,
        }
    }
    Ok(fits)
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

    /// Returns the maximum number of tokens of a sequence that this policy scores.
    pub(super) fn positions(&self, trained: &Policy) -> usize {
        match self {
            Self::Policy(policy) => policy.positions(),
            _ => trained.positions(),
        }
    }

    /// Returns the log-probability of each sampled token, indexed by group and completion.
    pub(super) fn logp(
        &mut self,
        trained: &mut Policy,
        sequences: Sequences,
        temperature: f32,
    ) -> anyhow::Result<Vec<Vec<Vec<f32>>>> {
        match self {
            Self::Itself => logp(trained, sequences, temperature),
            Self::Base => {
                trained.engine_mut().set_adapter_applied(false);
                let scored = logp(trained, sequences, temperature);
                trained.engine_mut().set_adapter_applied(true);
                scored
            }
            Self::Adapter(factors) => {
                trained.engine_mut().exchange_factors(factors);
                let scored = logp(trained, sequences, temperature);
                trained.engine_mut().exchange_factors(factors);
                scored
            }
            Self::Policy(policy) => logp(policy, sequences, temperature),
        }
    }
}

fn logp(policy: &mut Policy, sequences: Sequences, temperature: f32) -> anyhow::Result<Vec<Vec<Vec<f32>>>> {
    // All groups in one call: the engine distributes them over its threads.
    let all: Vec<Sequence> = sequences.iter().flatten().flatten().cloned().collect();
    let mut scores = policy.score(&all, temperature)?.into_iter();
    let mut completion =
        |parts: Vec<Sequence>| scores.by_ref().take(parts.len()).flat_map(|s| s.logp).collect();
    Ok(sequences.into_iter().map(|group| group.into_iter().map(&mut completion).collect()).collect())
}
