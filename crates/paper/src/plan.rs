//! The trainings and evaluations that make an item: on a laptop those that stand in for the paper's models, at full scale the
//! paper's own; the files that they need, and how long training takes.

use super::data::{Fill, Item, Measure, Model, Setting, paper};
use super::made::Made;
use super::results::Results;
use super::rows::{MAZE, PLACES, Rows};
use super::{config_text, figures, settings, table};
use fgrpo_eval::amounts::duration;
use fgrpo_eval::benchmarks::canonical;
use fgrpo_eval::dataset::format::FileFormat;
use fgrpo_eval::diversity;
use fgrpo_eval::io::files;
use fgrpo_eval::io::shell::quoted;
use fgrpo_train::config::Config;
use fgrpo_train::evaluation::nll;
use fgrpo_train::run::checkpoint;
use fgrpo_train::run::duration::Estimator;
use fgrpo_train::run::folder::EVALUATIONS;
use fgrpo_train::run::state::{State, state};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Training problems of DeepScaleR that the paper's filter leaves.
pub const DEEPSCALER: u64 = 39_202;

fgrpo_eval::named! {
    /// How much is spent on a table or figure.
    pub enum Scale {
        Laptop = "laptop": "Runs on maze and arithmetic that end within about an hour on two cores",
        Full = "full": "The paper's own setting",
    }
}

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

/// One training, made or to be made.
pub struct Training {
    /// The setting of the paper that it is of.
    setting: Setting,
    /// Its configuration.
    pub config: Config,
    /// The command that trains it.
    command: String,
    /// Its run folder. Items that need the same run share it.
    pub folder: PathBuf,
}

/// What makes an item.
pub struct Plan {
    item: &'static Item,
    scale: Scale,
    options: Options,
    /// The trainings.
    pub runs: Vec<Training>,
    /// At full scale: the needed files and folders, each once, with their sources.
    pub paths: Vec<(PathBuf, &'static str)>,
}

/// The file or folder below `root` that has one of these names; several are refused.
pub fn locate<S: AsRef<str>>(root: &Path, names: &[S]) -> anyhow::Result<Option<PathBuf>> {
    let Ok(entries) = std::fs::read_dir(root) else { return Ok(None) };
    let mut found: Vec<PathBuf> = entries
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| p.is_dir() || FileFormat::of(p).is_some())
        .filter(|p| {
            let name = files::name(p);
            let stem = if p.is_dir() { &name } else { name.split('.').next().unwrap_or(&name) };
            names.iter().any(|name| name.as_ref() == canonical(stem))
        })
        .collect();
    found.sort();
    if let [first, second, ..] = found.as_slice() {
        bad_input!("found {} and {}, wanted one of them", first.display(), second.display());
    }
    Ok(found.pop())
}

/// A duration for people, also where it is beyond days.
pub fn words(seconds: f64) -> String {
    const DAY: f64 = 86_400.0;
    match seconds {
        s if s < 1.0 => "at once".to_owned(),
        s if s < 2.0 * DAY => format!("~{}", duration(s)),
        s if s < 730.0 * DAY => format!("~{:.0} days", s / DAY),
        s if s < 36_500.0 * DAY => format!("~{:.0} years", s / DAY / 365.0),
        _ => "more than 100 years".to_owned(),
    }
}

/// Makes a table or figure of trained models from results.
pub fn from_results(item: &'static Item, results: Results) -> anyhow::Result<Made> {
    made(item, results, None)
}

fn made(item: &'static Item, results: Results, trained: Option<&str>) -> anyhow::Result<Made> {
    let rows = Rows::of(item, results, trained)?;
    if item.is_table() { table::from_results(item, &rows) } else { figures::from_results(item, &rows) }
}

impl Training {
    fn evaluation(&self, step: u64) -> PathBuf {
        checkpoint::path(&self.folder.join(EVALUATIONS), step)
    }
}

impl Plan {
    /// The plan of an item.
    /// Fails on changes that aren't settings, and on two files of one benchmark.
    pub fn of(item: &'static Item, scale: Scale, options: &Options) -> anyhow::Result<Self> {
        let (runs, options) = (trainings(item, scale, options)?, options.clone());
        let mut plan = Self { item, scale, options, runs, paths: Vec::new() };
        if scale == Scale::Laptop {
            return Ok(plan);
        }
        let (root, data) = (&plan.options.root, plan.options.root.join("data"));
        for model in plan.models() {
            plan.paths.push((root.join("models").join(&model.name), &model.home));
            let trained_on = (root.join(&model.data), paper().data[&model.data].1.as_str());
            plan.paths.extend((!plan.paths.contains(&trained_on)).then_some(trained_on));
        }
        for benchmark in paper().benchmarks.iter().filter(|b| item.benchmarks.contains(&b.name)) {
            let usual = || data.join(format!("{}.jsonl", benchmark.name));
            let path = locate(&data, &benchmark.files)?.unwrap_or_else(usual);
            plan.paths.push((path, &benchmark.home));
        }
        Ok(plan)
    }

    fn models(&self) -> Vec<&'static Model> {
        let settings = self.item.settings();
        let is_of = |m: &&Model| settings.iter().any(|s| s.model.as_ref() == Some(&m.name));
        paper().models.iter().filter(is_of).collect()
    }

    /// What the list says the item needs.
    pub(super) fn in_words(&self) -> String {
        let runs = self.runs.len();
        if self.scale == Scale::Laptop {
            return format!("{runs} runs of {}", self.item.stand_in().config);
        }
        if self.item.is_maze() {
            return format!("nothing but time: {runs} trainings of {MAZE}");
        }
        let models = self.models();
        let names: Vec<&str> = models.iter().map(|m| m.name.as_str()).collect();
        let benchmarks = match self.item.benchmarks.as_slice() {
            few @ ([_] | [_, _]) => few.join(" and "),
            all => format!("{} benchmarks", all.len()),
        };
        let trained_on = &paper().data[&models[0].data].0;
        format!("{}; {trained_on}, {benchmarks}; {runs} trainings", names.join(", "))
    }

    /// What would be done as commands, what is needed, and how long the training takes, a line for each.
    /// Fails on a task or model that can't be read, and on a folder that holds another run.
    pub fn lines(&self) -> anyhow::Result<Vec<String>> {
        let laptop = self.scale == Scale::Laptop;
        let mut lines = vec![format!("{}: {}\n\ntrainings", self.item.numbered, self.item.title)];
        let (mut estimator, mut starts, mut total) = (Estimator::default(), HashSet::new(), 0.0);
        for run in &self.runs {
            let config = run.config.resolved(DEEPSCALER)?;
            let took = if laptop && state(&run.config, &run.folder)? == State::Finished {
                "done".to_owned()
            } else {
                let seconds = estimator.seconds(&config, &mut starts)?;
                total += seconds;
                format!("{} here", words(seconds))
            };
            lines.push(format!("  {}    # {} steps, {took}", run.command, config.steps));
        }
        let evaluations = match laptop || self.item.is_maze() {
            true => "with the evaluations",
            false => "without evaluations, every completion of the longest length",
        };
        lines.push(format!("  {} in all on this machine, {evaluations}", words(total)));
        let notes = if laptop { &self.item.laptop } else { &self.item.full };
        lines.extend(notes.iter().map(|note| format!("  {note}")));
        if laptop {
            return Ok(lines);
        }
        if self.needs_evaluations() {
            lines.push(format!(
                "\nthen `fgrpo eval --suite paper` with each chosen checkpoint (`fgrpo select` has the paper's rule), and `fgrpo paper {} --from` its results",
                self.item.name
            ));
        }
        lines.push("\nfiles and folders".to_owned());
        let there = self.paths.iter().filter(|(p, _)| p.exists());
        lines.extend(there.map(|(path, _)| format!("  there: {}", path.display())));
        lines.extend(self.missing().iter().map(|line| format!("  missing: {line}")));
        lines.extend(self.paths.is_empty().then(|| "  none are needed".to_owned()));
        Ok(lines)
    }

    /// The files and folders that are missing, with the sources of each.
    pub fn missing(&self) -> Vec<String> {
        let missing = self.paths.iter().filter(|(path, _)| !path.exists());
        missing.map(|(path, home)| format!("{} from {home}", path.display())).collect()
    }

    /// Makes the item of its finished trainings.
    pub fn make(&self) -> anyhow::Result<Made> {
        let from: Vec<String> = self.runs.iter().map(|r| r.folder.display().to_string()).collect();
        let mut results = Results::open(&from)?;
        if self.scale == Scale::Full {
            return from_results(self.item, results);
        }
        if self.measures(Measure::Embeddings) {
            let folders = self.runs.iter().map(|run| run.evaluation(run.config.steps)).collect();
            let mut found = diversity::measure(&diversity::Settings::ngrams(folders))?;
            found.folders = self.runs.iter().map(|run| self.name(&run.setting)).collect();
            results.add_measured(Measure::Embeddings, &found)?;
        }
        if self.measures(Measure::Nll) {
            let last = |run: &Training| checkpoint::path(&run.folder.join("checkpoints"), run.config.steps);
            let models = self.runs.iter().map(|run| (self.name(&run.setting), last(run))).collect();
            let folder = self.runs[0].evaluation(0);
            let prompts = nll::prompts(&folder)?;
            let settings = nll::Settings::new(folder, self.start()?, models);
            let found = nll::measure(&nll::Settings { leave_out_long: true, ..settings }, &prompts)?;
            results.add_measured(Measure::Nll, &found)?;
        }
        let mut what = self.item.stand_in().what.clone();
        if !self.options.set.is_empty() {
            what += &format!("; here with {}", self.options.set.join(", "));
        }
        made(self.item, results, Some(&what))
    }

    fn name(&self, setting: &Setting) -> String {
        settings::name(setting, &self.item.settings())
    }

    fn measures(&self, measure: Measure) -> bool {
        self.item.columns.iter().flat_map(|c| &c.parts).any(|f| f.measure == Some(measure))
    }

    /// The start of a laptop's runs, which share a supervised stage.
    fn start(&self) -> anyhow::Result<PathBuf> {
        let cache = self.runs[0].folder.with_file_name("sft-cache");
        let mut found = files::listed(&cache)?;
        found.retain(|p| p.join("model.safetensors").is_file());
        match found.as_slice() {
            [only] => Ok(only.clone()),
            all => {
                bad_input!("{}: found {} starts, wanted the one of these runs", cache.display(), all.len())
            }
        }
    }

    /// Whether the item needs evaluations of the trained models on the paper's benchmarks. Runs on a laptop, mazes and curves through training
    /// need none.
    pub fn needs_evaluations(&self) -> bool {
        self.scale == Scale::Full && !self.item.benchmarks.is_empty() && self.item.fill != Fill::Training
    }
}

fn trainings(item: &'static Item, scale: Scale, options: &Options) -> anyhow::Result<Vec<Training>> {
    let (stand, shown) = (item.stand_in(), item.settings());
    let mut runs = Vec::new();
    for setting in &shown {
        let Some(mut set) = settings::overrides(setting) else { continue };
        let is_small = stand.group_sizes.as_ref().is_none_or(|sizes| sizes.contains(&setting.n));
        let name = setting.model.as_deref();
        let (file, below) = match scale {
            Scale::Laptop if setting.model != shown[0].model || !is_small => continue,
            Scale::Laptop => (stand.config.as_str(), format!("laptop/{}", stand.of)),
            Scale::Full => {
                let model = name.and_then(|name| paper().model(name));
                (model.map_or(MAZE, |m| &m.config), format!("full/{}", name.unwrap_or("maze-17")))
            }
        };
        match scale {
            Scale::Laptop => set = [&stand.set, &set, &options.set].into_iter().flatten().cloned().collect(),
            Scale::Full => set.extend(places(config_text(file), &options.root)?),
        }
        let (config, folder) =
            (Config::parse(config_text(file), &set)?, options.out.join(below).join(setting.folder()));
        let sets: String = set.iter().map(|s| format!(" --set {}", quoted(s))).collect();
        let command =
            format!("fgrpo train configs/{file}{sets} --out {}", quoted(&folder.display().to_string()));
        runs.push(Training { setting: setting.clone(), config, command, folder });
    }
    if scale == Scale::Laptop {
        // Small groups are fast, so a mistake shows early.
        runs.sort_by_key(|r| r.setting.n);
    }
    Ok(runs)
}

/// What `--set` takes to read models and data below `--root`.
fn places(text: &str, root: &Path) -> anyhow::Result<Vec<String>> {
    let table: toml::Table = text.parse()?;
    let here = root == Path::new(".");
    let paths = PLACES.into_iter().filter_map(|(section, key)| {
        let path = root.join(table.get(section)?.get(key)?.as_str().filter(|_| !here)?);
        Some(format!("{section}.{key}={:?}", path.display().to_string()))
    });
    Ok(paths.collect())
}
