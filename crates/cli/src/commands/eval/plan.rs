//! Converts a configuration to the plan of an evaluation.

use super::flags::{Flags, Source};
use anyhow::Context;
use fgrpo_eval::dataset::presets::Family;
use fgrpo_eval::plan::Plan;
use fgrpo_train::config::{Config, TaskConfig};
use fgrpo_train::language::Language;
use fgrpo_train::language::chat::ChatTemplate;
use fgrpo_train::problem;
use fgrpo_train::problem::source::Elsewhere;
use std::path::{Path, PathBuf};

/// Returns the plan for a configuration from [`Flags::configuration`]. If the configuration's tokenizer isn't on this machine,
/// the tokenizer of the evaluated checkpoint is used.
pub(crate) fn plan(flags: &Flags, config: &Config, source: &Source) -> anyhow::Result<Plan> {
    let checkpoint = match source {
        Source::Checkpoint(dir) => Some(dir.as_path()),
        _ => None,
    };
    if let (None, Some(flag)) = (checkpoint, flags.of_compute()) {
        bad_input!("{flag} requires a checkpoint (--model DIR)");
    }
    if let (Some(flag), false) = (flags.of_server(), matches!(source, Source::Server(_))) {
        bad_input!("{flag} requires --server");
    }
    let whole = flags.config.is_none();
    if whole && flags.n.is_none() {
        bad_input!("-n is required: the number of samples per problem");
    }
    let eval = &config.eval;
    // A file is evaluated in full. A configuration's held-out problems are filtered by length, as in training.
    let from_config = !whole && flags.data.is_none();
    let language = if from_config { Some(language(config, checkpoint)?) } else { None };
    // The problems of a file don't need the tokenizer before sampling.
    let template = match (&language, checkpoint) {
        (None, Some(model)) if model.exists() => ChatTemplate::in_folder(model)?,
        _ => None,
    };
    let elsewhere = Elsewhere {
        mazes: flags.data.as_deref().filter(|_| matches!(config.task, TaskConfig::Maze(_))),
        template: template.as_ref(),
    };
    let mut parts =
        problem::held_out(&config.task, language.as_ref(), from_config, eval.problems, &elsewhere)?;
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
        // 4096 is the paper's limit for this family.
        if whole && flags.preset == Some(Family::Qwen3) { longest.min(4096) } else { longest }
    });
    let sampling = eval.sampling(max_tokens);
    sampling.check_api("--server-api", flags.server_api)?;
    // An evaluation of a run uses the run's seed. A server gets a seed only if the user sets one.
    let seeded = flags.seed.is_some() || (!whole && checkpoint.is_some());
    // Without values of k, the report chooses them from the number of samples.
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

/// Opens the tokenizer, which determines the problems that training drops for their length.
fn language(config: &Config, checkpoint: Option<&Path>) -> anyhow::Result<Language> {
    let local = config.model.path.clone().filter(|p| p.exists());
    let model = local.or(checkpoint.map(PathBuf::from)).or(config.model.path.clone());
    problem::language(&config.task, model.as_ref())
        .context("opening the tokenizer, which decides the problems that training drops for their length")
}
