//! The trainings of an item: at the laptop's scale those of its substitute, in full the paper's own; how long they take, and
//! what is missing for them.

use super::data::{Item, Setting, Substitute, paper};
use super::settings;
use super::substitute::{MAZE, config_text};
use super::{Args, Scale};
use crate::commands::runs::{State, state, train_unfinished};
use fgrpo_eval::amounts::duration;
use fgrpo_eval::failure::Stopped;
use fgrpo_eval::io::shell::quoted;
use fgrpo_nn::Products;
use fgrpo_nn::config::Config as ModelConfig;
use fgrpo_train::config::{Config, EvalConfig, Every};
use fgrpo_train::device::DeviceName;
use fgrpo_train::problem::Task;
use fgrpo_train::run::needs::{self, Lengths, Time};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Training problems of DeepScaleR that the paper's filter leaves.
pub(crate) const DEEPSCALER: u64 = 39_202;

/// One training, made or to be made.
pub(super) struct Training {
    /// The setting of the paper that it is of.
    pub(super) setting: Setting,
    pub(super) config: Config,
    /// What is changed in the file.
    set: Vec<String>,
    /// The file under configs/.
    file: &'static str,
    /// Its run folder, which every item that needs this run shares.
    pub(super) folder: PathBuf,
}

impl Training {
    /// The command that trains it.
    pub(super) fn command(&self) -> String {
        let sets: Vec<String> = self.set.iter().map(|s| format!("--set {}", quoted(s))).collect();
        let folder = self.folder.display().to_string();
        format!("fgrpo train configs/{} {} --out {}", self.file, sets.join(" "), quoted(&folder))
    }

    /// The configuration in steps. The paper doesn't say how many problems of SynLogic it trains on; as many as of DeepScaleR
    /// are assumed.
    pub(super) fn counted(&self) -> anyhow::Result<Config> {
        self.config.resolved(DEEPSCALER)
    }
}

/// The trainings of an item.
///
/// # Errors
/// Changes that are no settings.
pub(super) fn of(item: &'static Item, scale: Scale, args: &Args) -> anyhow::Result<Vec<Training>> {
    let stand = Substitute::of(item);
    let settings = item.settings();
    let first = settings.iter().find_map(|s| s.model.clone());
    let mut runs = Vec::new();
    for setting in settings {
        let Some(own) = settings::overrides(&setting) else { continue };
        let model = setting.model.as_deref().and_then(|name| paper().model(name));
        let (file, folder) = match scale {
            Scale::Laptop if setting.model != first || !stand.has_size(setting.n) => continue,
            Scale::Laptop => (stand.config.as_str(), args.out.join("laptop").join(&stand.of)),
            Scale::Full => {
                let below = args.out.join("full").join(setting.model.as_deref().unwrap_or("maze-17"));
                (model.map_or(MAZE, |m| &m.config), below)
            }
        };
        let text = config_text(file);
        let set: Vec<String> = match scale {
            Scale::Laptop => stand.set.iter().cloned().chain(own).chain(args.set.iter().cloned()).collect(),
            Scale::Full => own.into_iter().chain(places(&Config::parse(text, &[])?, &args.root)).collect(),
        };
        let (config, folder) = (Config::parse(text, &set)?, folder.join(setting.folder()));
        runs.push(Training { setting, config, set, file, folder });
    }
    if scale == Scale::Laptop {
        // A few steps of a small group first: what is wrong shows early.
        runs.sort_by_key(|r| r.setting.n);
    }
    Ok(runs)
}

/// What `--set` takes to read models and data below `--root`.
fn places(config: &Config, root: &Path) -> Vec<String> {
    let text = config.task.text().map(|(_, text)| text);
    let paths = [
        ("model.path", config.model.path.as_ref()),
        ("task.data", text.map(|t| &t.data)),
        ("task.held_out", text.and_then(|t| t.held_out.as_ref())),
    ];
    let here = root == Path::new(".");
    let paths = paths.into_iter().filter_map(|(key, path)| Some((key, path.filter(|_| !here)?)));
    paths.map(|(key, path)| format!("{key}={:?}", root.join(path).display().to_string())).collect()
}

/// Trains what isn't finished; an unfinished run resumes from its last checkpoint.
///
/// # Errors
/// Bad input for a folder that holds a run of another configuration; what a run fails with; a stop on request.
pub(super) fn train_all(runs: &[Training]) -> anyhow::Result<()> {
    let states: Vec<State> =
        runs.iter().map(|r| state(&r.config, &r.folder)).collect::<anyhow::Result<_>>()?;
    let planned = runs.iter().zip(states).map(|(run, state)| (&run.config, run.folder.as_path(), state));
    match train_unfinished(planned, DeviceName::Cpu)? {
        true => Ok(()),
        false => Err(Stopped("stopped on request, state saved. The same command goes on".to_owned()).into()),
    }
}

/// How long runs take on this machine, whose speed is measured once, by the same estimate as `--dry-run`.
#[derive(Default)]
pub(super) struct Estimator {
    rates: HashMap<(usize, Products), f64>,
    known: HashMap<String, (Lengths, Option<ModelConfig>)>,
}

impl Estimator {
    /// Seconds of each training; none of one that is finished on the laptop.
    ///
    /// # Errors
    /// A task or model that can't be read; a folder that holds another run.
    pub(super) fn seconds(&mut self, runs: &[Training], scale: Scale) -> anyhow::Result<Vec<Option<f64>>> {
        let mut starts = HashSet::new();
        let mut all = Vec::new();
        for run in runs {
            all.push(match scale {
                Scale::Laptop if state(&run.config, &run.folder)? == State::Finished => None,
                Scale::Laptop => Some(self.seconds_of(&run.config, &mut starts)?),
                Scale::Full => Some(self.seconds_of(&run.counted()?, &mut starts)?),
            });
        }
        Ok(all)
    }

    /// Its steps, its evaluations where its held-out problems are known, and its supervised stage with the first of the runs
    /// that share it.
    fn seconds_of(&mut self, config: &Config, starts: &mut HashSet<String>) -> anyhow::Result<f64> {
        let seed = config.sft.as_ref().and_then(|sft| sft.seed).unwrap_or(config.seed);
        let start = format!("{:?} {:?} {:?} {seed}", config.task, config.model, config.sft);
        let Some(time) = self.time(config)? else { return Ok(0.0) };
        let sft = if starts.insert(start) { time.sft } else { 0.0 };
        let times = |eval: Option<EvalConfig>| match eval.map(|e| e.every) {
            None | Some(Every::Steps(0) | Every::Epoch) => 0.0,
            Some(Every::Steps(every)) => (config.steps / every + 1) as f64,
        };
        let evaluations =
            time.evaluation * times(config.eval.usual()) + time.full_evaluation * times(config.eval.full());
        Ok(sft + (time.rollout + time.update) * config.steps as f64 + evaluations)
    }

    /// The time of a run's parts; none where its model's size isn't known.
    fn time(&mut self, config: &Config) -> anyhow::Result<Option<Time>> {
        let own = toml::to_string(&config.task)? + &toml::to_string(&config.model)?;
        if !self.known.contains_key(&own) {
            let there = needs::missing(config).is_empty();
            let task = there.then(|| Task::open(config)).transpose()?;
            let lengths = Lengths::of(config, task.as_ref());
            let model = needs::model(config, task.as_ref())?;
            self.known.insert(own.clone(), (lengths, model));
        }
        let (lengths, model) = &self.known[&own];
        let Some(model) = model else { return Ok(None) };
        let (threads, products) = (config.threads(), config.compute.products);
        let rate = self.rates.entry((threads, products));
        let rate = *rate.or_insert_with(|| fgrpo_nn::measure_flops(threads, products));
        Ok(Some(Time::of(config, model, lengths, rate)))
    }
}

/// A duration for people, also where it is beyond days.
pub(super) fn words(seconds: f64) -> String {
    const DAY: f64 = 86_400.0;
    match seconds {
        s if s < 1.0 => "at once".to_owned(),
        s if s < 2.0 * DAY => format!("~{}", duration(s)),
        s if s < 730.0 * DAY => format!("~{:.0} days", s / DAY),
        s if s < 36_500.0 * DAY => format!("~{:.0} years", s / DAY / 365.0),
        _ => "more than 100 years".to_owned(),
    }
}
