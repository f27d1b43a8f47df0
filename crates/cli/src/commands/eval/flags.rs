//! From a configuration to the plan of an evaluation.

use super::settings::{Flags, Source};
use anyhow::Context;
use fgrpo_eval::dataset::presets::Family;
use fgrpo_eval::plan::Plan;
use fgrpo_train::config::{Config, TaskConfig};
use fgrpo_train::language::Language;
use fgrpo_train::language::chat::ChatTemplate;
use fgrpo_train::problem;
use fgrpo_train::problem::source::Elsewhere;
use std::path::{Path, PathBuf};

/// The plan of a configuration of [`Flags::configuration`]. If the configuration's tokenizer isn't on this machine,
/// that of a checkpoint as the `source` is used.
pub(crate) fn plan(flags: &Flags, config: &Config, source: &Source) -> anyhow::Result<Plan> {
    let checkpoint = match source {
        Source::Checkpoint(dir) => Some(dir.as_path()),
        _ => None,
    };
    if let (None, Some(flag)) = (checkpoint, flags.of_compute()) {
        bad_input!("{flag}: requires a checkpoint (--model DIR): here nothing is computed");
    }
    if let (Some(flag), false) = (flags.of_server(), matches!(source, Source::Server(_))) {
        bad_input!("{flag}: requires --server, whose requests it is about");
    }
    let whole = flags.config.is_none();
    if whole && flags.n.is_none() {
        bad_input!("-n: required; the number of samples per problem");
    }
    let eval = &config.eval;
    // A file is evaluated in full. Of a configuration's own problems, those that training drops for their length are
    // dropped here too.
    let own = !whole && flags.data.is_none();
    let language = if own { Some(language(config, checkpoint)?) } else { None };
    // Without the problems of a configuration the tokenizer isn't needed before the samples are drawn.
    let template = match (&language, checkpoint) {
        (None, Some(model)) if model.exists() => ChatTemplate::in_folder(model)?,
        _ => None,
    };
    let elsewhere = Elsewhere {
        mazes: flags.data.as_deref().filter(|_| matches!(config.task, TaskConfig::Maze(_))),
        template: template.as_ref(),
    };
    let mut parts = problem::held_out(&config.task, language.as_ref(), own, eval.problems, &elsewhere)?;
    if let Some(name) = &flags.name {
        match parts.as_mut_slice() {
            [only] => only.name.clone_from(name),
            several => bad_input!(
                "--name: {name:?} can't be the name of the {} parts of a mix, which have their own names",
                several.len()
            ),
        }
    }
    let max_tokens = config.rollout.max_new_tokens.unwrap_or_else(|| {
        let longest = parts.iter().map(|p| p.max_tokens).max().unwrap_or(1);
        // The paper's limit of this family.
        if whole && flags.preset == Some(Family::Qwen3) { longest.min(4096) } else { longest }
    });
    let sampling = eval.sampling(max_tokens);
    sampling.check_api("--server-api", flags.server_api)?;
    // A run's evaluations have its seed; a server gets one only if the user names it.
    let seeded = flags.seed.is_some() || (!whole && checkpoint.is_some());
    // Without values of k, the report chooses them by the number of samples.
    let ks = if whole && flags.ks.is_none() { &[][..] } else { &eval.k };
    Ok(Plan {
        parts,
        n: eval.samples as u64,
        ks: ks.iter().map(|&k| k as u64).collect(),
        sampling,
        stop: config.task.stop().to_vec(),
        seed: seeded.then_some(config.seed),
        rounding: checkpoint.and_then(|_| config.compute.rounding()),
    })
}

/// The tokenizer that decides which problems training drops, and the maximum length of a completion.
fn language(config: &Config, checkpoint: Option<&Path>) -> anyhow::Result<Language> {
    let own = config.model.path.clone().filter(|p| p.exists());
    let model = own.or(checkpoint.map(PathBuf::from)).or(config.model.path.clone());
    problem::language(&config.task, model.as_ref())
        .context("the tokenizer decides which problems training drops for their length")
}
