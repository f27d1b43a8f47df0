//! The trainings of an item: at the laptop's scale those of its substitute, in full the paper's own; how long they take, and
//! what is missing for them.

use super::data::{Item, Setting, Substitute, paper};
use super::settings;
use super::substitute::{MAZE, config_text};
use fgrpo_eval::amounts::duration;
use fgrpo_eval::io::shell::quoted;
use fgrpo_train::config::Config;
use fgrpo_train::run::duration::Estimator;
use fgrpo_train::run::state::{State, state};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Where trainings read and write, and what is changed of them.
#[derive(Debug, Clone)]
pub struct Options {
    /// Folder of the results and the runs.
    pub out: PathBuf,
    /// Changes of the laptop's runs, KEY=VALUE.
    pub set: Vec<String>,
    /// Folder that the paths of the paper's own configurations stand in.
    pub root: PathBuf,
}

/// How much is spent on a table or figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    Laptop,
    Full,
}

/// Training problems of DeepScaleR that the paper's filter leaves.
pub const DEEPSCALER: u64 = 39_202;

/// One training, made or to be made.
pub struct Training {
    /// The setting of the paper that it is of.
    pub(super) setting: Setting,
    /// Its configuration.
    pub config: Config,
    /// What is changed in the file.
    set: Vec<String>,
    /// The file under configs/.
    file: &'static str,
    /// Its run folder, which every item that needs this run shares.
    pub folder: PathBuf,
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
pub(super) fn of(item: &'static Item, scale: Scale, options: &Options) -> anyhow::Result<Vec<Training>> {
    let stand = Substitute::of(item);
    let settings = item.settings();
    let first = settings.iter().find_map(|s| s.model.clone());
    let mut runs = Vec::new();
    for setting in settings {
        let Some(own) = settings::overrides(&setting) else { continue };
        let model = setting.model.as_deref().and_then(|name| paper().model(name));
        let (file, folder) = match scale {
            Scale::Laptop if setting.model != first || !stand.has_size(setting.n) => continue,
            Scale::Laptop => (stand.config.as_str(), options.out.join("laptop").join(&stand.of)),
            Scale::Full => {
                let below = options.out.join("full").join(setting.model.as_deref().unwrap_or("maze-17"));
                (model.map_or(MAZE, |m| &m.config), below)
            }
        };
        let text = config_text(file);
        let set: Vec<String> = match scale {
            Scale::Laptop => {
                stand.set.iter().cloned().chain(own).chain(options.set.iter().cloned()).collect()
            }
            Scale::Full => own.into_iter().chain(places(&Config::parse(text, &[])?, &options.root)).collect(),
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

/// Seconds of each training on this machine; none of one that is finished on the laptop.
///
/// # Errors
/// A task or model that can't be read; a folder that holds another run.
pub(super) fn seconds(
    estimator: &mut Estimator,
    runs: &[Training],
    scale: Scale,
) -> anyhow::Result<Vec<Option<f64>>> {
    let mut starts = HashSet::new();
    let mut seconds = |run: &Training| {
        Ok(match scale {
            Scale::Laptop if state(&run.config, &run.folder)? == State::Finished => None,
            Scale::Laptop => Some(estimator.seconds(&run.config, &mut starts)?),
            Scale::Full => Some(estimator.seconds(&run.counted()?, &mut starts)?),
        })
    };
    runs.iter().map(&mut seconds).collect()
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
