//! The runs of an arena: for each task, method and seed a configuration and a folder; and those that tuning tries.

use super::catalogue::Method;
use super::task;
use crate::args::places::{self, Loading};
use fgrpo_train::config::Config;
use fgrpo_train::run::Run;
use fgrpo_train::run::state::{State, state};
use std::path::{Path, PathBuf};

/// The seed of the runs that tuning tries, which no table shows.
const TUNING_SEED: u64 = 1_000;

/// What the name of a tuning run's folder begins with.
pub(super) const TUNING: &str = "tuning_";

/// What the name of the folder of a run with tuned settings begins with.
pub(super) const TUNED: &str = "tuned_";

/// Which tasks are trained, how and where.
pub(super) struct Wanted<'a> {
    pub(super) tasks: &'a [String],
    pub(super) set: &'a [String],
    pub(super) out: &'a Path,
    pub(super) loading: Loading,
    /// Whether the settings are final: tuning has chosen them, or wasn't asked for. Only then is a folder's run compared with
    /// them.
    pub(super) settled: bool,
}

pub(super) struct Planned {
    pub(super) config: Config,
    pub(super) folder: PathBuf,
    pub(super) state: State,
    /// The task, the method, and what tuning changes.
    pub(super) trial: Choice,
}

/// What tuning chose for a method on a task.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Choice {
    pub(super) task: String,
    pub(super) method: String,
    pub(super) set: Vec<String>,
}

/// What a round of tuning tries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Round {
    /// Half, once and twice the task's learning rate.
    Rate,
    /// The three values of the method's own parameter.
    Own,
}

fn plan(
    wanted: &Wanted<'_>,
    task: &str,
    method: &Method,
    seed: u64,
    (folder, tuned): (&str, &[String]),
) -> anyhow::Result<Planned> {
    let mut method = method.clone();
    method.set.extend(tuned.iter().cloned());
    let mut config = method.config(&task::text(task)?, wanted.set, seed)?;
    let folder = wanted.out.join(task::name(task)).join(folder);
    places::configuration(&mut config, Some(&folder), wanted.loading)?;
    let state = if wanted.settled { state(&config, &folder)? } else { State::Absent };
    let trial = Choice { task: task.to_owned(), method: method.name, set: tuned.to_vec() };
    Ok(Planned { config, folder, state, trial })
}

/// What tuning chose for a method on a task; nothing where it didn't.
fn chosen_for<'a>(all: &'a [Choice], task: &str, method: &Method) -> &'a [String] {
    all.iter().find(|c| c.task == task && c.method == method.name).map_or(&[], |c| &c.set)
}

/// The reported runs, seed by seed, so that every method has a run before one has two.
pub(super) fn planned(
    wanted: &Wanted<'_>,
    methods: &[Method],
    seeds: u64,
    tuned: Option<&Vec<Choice>>,
) -> anyhow::Result<Vec<Planned>> {
    let mut runs: Vec<Planned> = Vec::new();
    for task in wanted.tasks {
        for seed in 1..=seeds {
            for method in methods {
                let set = chosen_for(tuned.map_or(&[], |all| all), task, method);
                let label = if tuned.is_some() { TUNED } else { "" };
                let folder = format!("{label}{}_seed-{seed}", method.name);
                let run = plan(wanted, task, method, seed, (&folder, set))?;
                if runs.iter().any(|other| other.folder == run.folder) {
                    bad_input!("--tasks: found {task} twice, wanted each task once");
                }
                runs.push(run);
            }
        }
    }
    Ok(runs)
}

/// The runs of a round of tuning, from what the rounds before chose.
pub(super) fn trials(
    wanted: &Wanted<'_>,
    methods: &[Method],
    round: Round,
    chosen: &[Choice],
) -> anyhow::Result<Vec<Planned>> {
    let mut runs = Vec::new();
    for task in wanted.tasks {
        for method in methods {
            let before = chosen_for(chosen, task, method);
            let changes: Vec<String> = match (round, &method.own) {
                (Round::Rate, _) => {
                    let lr = method.config(&task::text(task)?, wanted.set, TUNING_SEED)?.update.lr;
                    [0.5, 1.0, 2.0].map(|factor| format!("update.lr={:e}", lr * factor)).to_vec()
                }
                (Round::Own, Some(own)) => own.values.iter().map(|v| format!("{}={v}", own.key)).collect(),
                // The method has no parameter of its own: what was chosen stays.
                (Round::Own, None) => continue,
            };
            for (i, change) in changes.into_iter().enumerate() {
                let set: Vec<String> = before.iter().cloned().chain([change]).collect();
                let folder = format!("{TUNING}{}_{round:?}-{}", method.name, i + 1).to_lowercase();
                runs.push(plan(wanted, task, method, TUNING_SEED, (&folder, &set))?);
            }
        }
    }
    Ok(runs)
}

/// For each method of the finished trials the best one, by the mean of pass@1 and the pass@k of the largest k; the choices
/// before it stay for methods without trials.
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
