//! Plans the runs of an arena: a configuration and a folder for each task, method and seed, and for each trial of tuning.

use super::catalogue::Method;
use super::task;
use crate::args::places::{self, Loading};
use fgrpo_train::config::Config;
use fgrpo_train::run::Run;
use fgrpo_train::run::state::{State, state};
use std::path::{Path, PathBuf};

/// Seed of the tuning runs, which no table shows.
const TUNING_SEED: u64 = 1_000;

/// Prefix of the folder names of tuning runs.
pub(super) const TUNING: &str = "tuning_";

/// Prefix of the folder names of runs with tuned settings.
pub(super) const TUNED: &str = "tuned_";

/// Settings that all runs share.
pub(super) struct Shared<'a> {
    pub(super) tasks: &'a [String],
    pub(super) set: &'a [String],
    pub(super) out: &'a Path,
    pub(super) loading: Loading,
    /// Whether the settings are final, which they aren't before tuning has chosen them. Only final settings are compared with
    /// an existing run in the folder.
    pub(super) settled: bool,
}

pub(super) struct Planned {
    pub(super) config: Config,
    pub(super) folder: PathBuf,
    pub(super) state: State,
    /// The task, the method and the changes by tuning.
    pub(super) trial: Choice,
}

/// Changes by tuning for a method on a task.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Choice {
    pub(super) task: String,
    pub(super) method: String,
    pub(super) set: Vec<String>,
}

/// Round of tuning.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Round {
    /// Tries half, once and twice the task's learning rate.
    Rate,
    /// Tries three values of the method-specific parameter.
    Own,
}

fn plan(
    shared: &Shared<'_>,
    task: &str,
    method: &Method,
    seed: u64,
    folder: &str,
    tuned: &[String],
) -> anyhow::Result<Planned> {
    let mut method = method.clone();
    method.set.extend(tuned.iter().cloned());
    let mut config = method.config(&task::text(task)?, shared.set, seed)?;
    let folder = shared.out.join(task::name(task)).join(folder);
    places::configuration(&mut config, Some(&folder), shared.loading)?;
    let state = if shared.settled { state(&config, &folder)? } else { State::Absent };
    let trial = Choice { task: task.to_owned(), method: method.name, set: tuned.to_vec() };
    Ok(Planned { config, folder, state, trial })
}

/// Returns the changes that tuning chose for a method on a task, or an empty slice if tuning didn't choose any.
fn chosen_for<'a>(all: &'a [Choice], task: &str, method: &Method) -> &'a [String] {
    all.iter().find(|c| c.task == task && c.method == method.name).map_or(&[], |c| &c.set)
}

/// Plans the runs of the table, seed by seed, so that every method has one run before any has two.
pub(super) fn planned(
    shared: &Shared<'_>,
    methods: &[Method],
    seeds: u64,
    tuned: Option<&Vec<Choice>>,
) -> anyhow::Result<Vec<Planned>> {
    let mut runs: Vec<Planned> = Vec::new();
    for task in shared.tasks {
        for seed in 1..=seeds {
            for method in methods {
                let set = chosen_for(tuned.map_or(&[], |all| all), task, method);
                let label = if tuned.is_some() { TUNED } else { "" };
                let folder = format!("{label}{}_seed-{seed}", method.name);
                let run = plan(shared, task, method, seed, &folder, set)?;
                if runs.iter().any(|other| other.folder == run.folder) {
                    bad_input!("--tasks: {task} is listed twice");
                }
                runs.push(run);
            }
        }
    }
    Ok(runs)
}

/// Plans the runs of a round of tuning, on top of the choices of earlier rounds.
pub(super) fn trials(
    shared: &Shared<'_>,
    methods: &[Method],
    round: Round,
    chosen: &[Choice],
) -> anyhow::Result<Vec<Planned>> {
    let mut runs = Vec::new();
    for task in shared.tasks {
        for method in methods {
            let before = chosen_for(chosen, task, method);
            let changes: Vec<String> = match (round, &method.own) {
                (Round::Rate, _) => {
                    let lr = method.config(&task::text(task)?, shared.set, TUNING_SEED)?.update.lr;
                    [0.5, 1.0, 2.0].map(|factor| format!("update.lr={:e}", lr * factor)).to_vec()
                }
                (Round::Own, Some(parameter)) => {
                    parameter.values.iter().map(|v| format!("{}={v}", parameter.key)).collect()
                }
                // The method has no specific parameter, so the earlier choice stays.
                (Round::Own, None) => continue,
            };
            for (i, change) in changes.into_iter().enumerate() {
                let set: Vec<String> = before.iter().cloned().chain([change]).collect();
                let folder = format!("{TUNING}{}_{round:?}-{}", method.name, i + 1).to_lowercase();
                runs.push(plan(shared, task, method, TUNING_SEED, &folder, &set)?);
            }
        }
    }
    Ok(runs)
}

/// Chooses the best trial of each method, by the mean of pass@1 and the pass@k of the largest k. Methods without finished
/// trials keep their earlier choices.
pub(super) fn choices(trials: &[Planned], mut chosen: Vec<Choice>) -> anyhow::Result<Vec<Choice>> {
    let mut best: Vec<(f64, &Choice)> = Vec::new();
    for run in trials {
        let read = Run::open(&run.folder)?;
        let Some(last) = read.final_evaluation()? else { continue };
        let (Some(first), Some((_, largest))) = (last.pass_at_1(), last.all.pass_at_k.last_key_value())
        else {
            continue;
        };
        let value = f64::midpoint(first, *largest);
        say!("{}: {value:.4} with {}", run.folder.display(), run.trial.set.join(" "));
        match best.iter_mut().find(|(_, c)| (&c.task, &c.method) == (&run.trial.task, &run.trial.method)) {
            Some(there) if there.0 < value => *there = (value, &run.trial),
            Some(_) => {}
            None => best.push((value, &run.trial)),
        }
    }
    for (_, choice) in best {
        chosen.retain(|c| (&c.task, &c.method) != (&choice.task, &choice.method));
        chosen.push(choice.clone());
    }
    Ok(chosen)
}
