//! From flags, with or without a training configuration, to the plan of an evaluation.

use super::settings::{Flags, RewardFlag, Source};
use crate::args::sampling;
use anyhow::Context;
use fgrpo_core::maze::Scoring;
use fgrpo_eval::dataset::presets::{Family, Prompting};
use fgrpo_eval::kind::TaskKind;
use fgrpo_eval::names::Named;
use fgrpo_eval::plan::Plan;
use fgrpo_train::config::{Config, MazeConfig, TaskConfig, TextConfig};
use fgrpo_train::language::Language;
use fgrpo_train::language::chat::ChatTemplate;
use fgrpo_train::problem;
use fgrpo_train::problem::generated::generator;
use fgrpo_train::problem::source::Overrides;
use std::path::{Path, PathBuf};

/// The plan of the flags, or of a training configuration, overridden by the flags. If the configuration's tokenizer
/// isn't on this machine, that of a checkpoint as the `source` is used.
pub(crate) fn plan(flags: &Flags, training: Option<&Config>, source: &Source) -> anyhow::Result<Plan> {
    let checkpoint = match source {
        Source::Checkpoint(dir) => Some(dir.as_path()),
        _ => None,
    };
    flags.check()?;
    if let (None, Some(flag)) = (checkpoint, flags.given("Compute")?) {
        bad_input!(
            "{flag}: found with --server or --samples, wanted it with a checkpoint (--model DIR): here nothing is computed"
        );
    }
    let eval = match (training, flags.full) {
        (Some(config), true) => match config.eval.full() {
            Some(full) => Some(full),
            None => {
                bad_input!("--full: found a configuration without [eval.full], wanted one with that table")
            }
        },
        (None, true) => bad_input!("--full: found no training configuration, wanted one with [eval.full]"),
        (training, false) => training.map(|config| config.eval.clone()),
    };
    let eval = eval.as_ref();
    let n = flags.n.or(eval.map(|e| e.samples as u64));
    let Some(n) = n else { bad_input!("-n: wanted the number of samples per problem") };
    if let Some(k) = flags.ks.iter().flatten().find(|&&k| k == 0 || k > n) {
        bad_input!("-k: found {k}, wanted 1 to the {n} samples of -n");
    }
    let ks = match (&flags.ks, eval) {
        (Some(ks), _) => ks.clone(),
        // With fewer samples than configured, the larger k of the configuration are left out.
        (None, Some(e)) => e.k.iter().map(|&k| k as u64).filter(|&k| k <= n).collect(),
        (None, None) => Vec::new(),
    };
    let task = task_of(flags, training.map(|c| &c.task))?;
    // A file is evaluated in full. Of a configuration's own problems, those that training drops for their length are
    // dropped here too.
    let own = training.is_some() && flags.data.is_none();
    let language = match training {
        Some(config) if own => Some(language(config, &task, checkpoint)?),
        _ => None,
    };
    let whole = training.is_none();
    // Without the problems of a configuration the tokenizer isn't needed before the samples are drawn.
    let template = match (&language, checkpoint) {
        (None, Some(model)) if model.exists() => ChatTemplate::in_folder(model)?,
        _ => None,
    };
    let overrides = Overrides {
        prompting: &|base| {
            // Without a family: the boxed prompt for the kinds where the paper uses it, otherwise no system prompt.
            let base = match whole {
                true => Prompting { preset: Some(Family::Llama32), ..base },
                false => base,
            };
            flags.prompting(base)
        },
        grading: &|settings| flags.grading.over(settings),
        mazes: flags.data.as_deref().filter(|_| matches!(task, TaskConfig::Maze(_))),
        template: template.as_ref(),
        limit: flags.limit.or(eval.and_then(|e| e.problems)),
    };
    let mut parts = problem::held_out(&task, language.as_ref(), own, &overrides)?;
    if let Some(name) = &flags.name {
        match parts.as_mut_slice() {
            [only] => only.name.clone_from(name),
            several => bad_input!(
                "--name: found {name:?} for the {} parts of a mix, which have names of their own",
                several.len()
            ),
        }
    }
    let stop = flags.stop.clone().unwrap_or_else(|| task.stop().to_vec());
    if !stop.is_empty() && matches!(task, TaskConfig::Maze(_)) {
        bad_input!("--stop: found texts, wanted none with mazes, which end at their own token");
    }
    let of_training = training.and_then(|c| c.rollout.max_new_tokens);
    let max_tokens = flags.max_tokens.or(of_training).unwrap_or_else(|| {
        let longest = parts.iter().map(|p| p.max_tokens).max().unwrap_or(1);
        // The paper's limit of this family.
        if whole && flags.preset == Some(Family::Qwen3) { longest.min(4096) } else { longest }
    });
    let temperature = flags.sampling.temperature.or(eval.map(|e| f64::from(e.temperature)));
    let sampling = sampling::Flags { temperature, ..flags.sampling }.settings(max_tokens)?;
    sampling.check_api("--server-api", flags.server_api)?;
    // A run's evaluations have its seed; a server gets one only with --seed.
    let seed = flags.seed.or(training.filter(|_| checkpoint.is_some()).map(|c| c.seed));
    let rounding = checkpoint.and_then(|_| flags.compute.settings(training).rounding());
    Ok(Plan { parts, n, ks, sampling, stop, seed, rounding })
}

/// Refuses flags that would change nothing, with these problems, those `beside` them, and this source.
pub(crate) fn require_used(
    flags: &Flags,
    plan: &Plan,
    source: &Source,
    beside: &[TaskKind],
) -> anyhow::Result<()> {
    let mut kinds: Vec<TaskKind> = plan.parts.iter().map(|part| part.kind()).collect();
    kinds.extend(beside);
    kinds.dedup();
    flags.grading.for_kinds(&kinds)?;
    if let (Some(flag), false) = (flags.given("Maze")?, kinds.contains(&TaskKind::Maze)) {
        bad_input!("{flag}: found without mazes, wanted it with --task maze");
    }
    if let (Some(flag), [TaskKind::Maze]) = (flags.given("Prompt")?, kinds.as_slice()) {
        bad_input!("{flag}: found with mazes, which have no such prompt");
    }
    if let (Some(flag), false) = (flags.given("Server")?, matches!(source, Source::Server(_))) {
        bad_input!("{flag}: found without --server, whose requests it is about");
    }
    Ok(())
}

/// The tokenizer that decides which problems training drops, and the maximum length of a completion.
fn language(config: &Config, task: &TaskConfig, checkpoint: Option<&Path>) -> anyhow::Result<Language> {
    let own = config.model.path.clone().filter(|p| p.exists());
    let model = own.or(checkpoint.map(PathBuf::from)).or(config.model.path.clone());
    problem::language(task, model.as_ref())
        .context("the tokenizer decides which problems training drops for their length")
}

/// The task: the configuration's, overridden by the flags, or the flags' own.
fn task_of(flags: &Flags, training: Option<&TaskConfig>) -> anyhow::Result<TaskConfig> {
    let kind_of = |task: &TaskConfig| match task {
        TaskConfig::Maze(_) => Some(TaskKind::Maze),
        TaskConfig::Mix(_) => None,
        other => generator(other)
            .map(|generator| generator.grading().0)
            .or_else(|| other.text().map(TextConfig::kind)),
    };
    let known = training.and_then(kind_of);
    let Some(kind) = flags.task.or(known) else {
        return match training {
            Some(mix) if flags.data.is_none() => Ok(mix.clone()),
            Some(_) => bad_input!(
                "--data: found with task.kind = \"mix\", wanted --task with it, the kind of the file's problems"
            ),
            None => {
                let names: Vec<&str> = TaskKind::NAMES.iter().map(|(_, name, _)| *name).collect();
                bad_input!("--task: found none, wanted one of {}", names.join(", "))
            }
        };
    };
    match (training, kind) {
        (Some(TaskConfig::Maze(config)), TaskKind::Maze) => {
            return Ok(TaskConfig::Maze(maze(flags, config)?));
        }
        (None, TaskKind::Maze) => {
            let config = MazeConfig { size: 17, train: 1, held_out: 256, seed: 0, reward: Scoring::Exact };
            return Ok(TaskConfig::Maze(maze(flags, &config)?));
        }
        _ => {}
    }
    let own = training.filter(|t| kind_of(t) == Some(kind));
    let Some(data) = &flags.data else {
        return match (own, training) {
            (Some(own), _) => Ok(with_columns(own, flags)),
            (None, Some(other)) => bad_input!(
                "--task: found {kind} with task.kind = {:?} in the configuration, wanted --data with it, the file of other problems",
                other.kind()
            ),
            (None, None) => bad_input!(
                "--data: wanted the data set's file for --task {kind} (a training configuration brings its held-out problems; `fgrpo data arithmetic` writes generated ones)"
            ),
        };
    };
    // Another file, with the configuration's prompt and verifier.
    let text = training.and_then(TaskConfig::text).cloned();
    let stop = match training {
        Some(TaskConfig::Mix(mix)) => mix.stop.clone(),
        _ => text.as_ref().map_or_else(Vec::new, |t| t.stop.clone()),
    };
    let base =
        text.unwrap_or_else(|| TextConfig { max_prompt_tokens: usize::MAX, ..TextConfig::of(kind, data) });
    // The configuration's columns are those of its own files.
    let columns = flags.columns.clone().unwrap_or_default();
    let text =
        TextConfig { kind, data: data.clone(), held_out: None, held_out_share: 0.0, stop, columns, ..base };
    if kind == TaskKind::Maze {
        bad_input!("--task: found maze with a configuration of another task, wanted none");
    }
    Ok(TaskConfig::Text(Box::new(text)))
}

/// A task with the flags' columns.
fn with_columns(task: &TaskConfig, flags: &Flags) -> TaskConfig {
    match (&flags.columns, task) {
        (Some(columns), TaskConfig::Text(text)) => {
            let text = TextConfig::clone(text);
            TaskConfig::Text(Box::new(TextConfig { columns: columns.clone(), ..text }))
        }
        _ => task.clone(),
    }
}

fn maze(flags: &Flags, base: &MazeConfig) -> anyhow::Result<MazeConfig> {
    let config = MazeConfig {
        size: flags.maze_size.unwrap_or(base.size),
        train: base.train,
        held_out: flags.maze_problems.unwrap_or(base.held_out),
        seed: flags.maze_seed.unwrap_or(base.seed),
        reward: flags.maze_reward.map_or(base.reward, |r| match r {
            RewardFlag::Exact => Scoring::Exact,
            RewardFlag::ReachesGoal => Scoring::ReachesGoal,
        }),
    };
    if !fgrpo_core::maze::valid_size(config.size) {
        bad_input!("--maze-size: found {}, wanted {}", config.size, fgrpo_core::maze::VALID_SIZES);
    }
    Ok(config)
}
