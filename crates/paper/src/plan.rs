//! The plan of an item: its trainings and evaluations, the files that they need, and the time that training takes. On a
//! laptop, small runs replace the paper's models; at full scale, the paper's models are trained.

use super::data::{Fill, Item, Measure, Model, Setting, paper};
use super::made::Made;
use super::results::Results;
use super::rows::{MAZE, PLACES, Rows};
use super::{config_text, figures, settings, table};
use fgrpo_eval::amounts::duration;
use fgrpo_eval::benchmarks::canonical;
use fgrpo_eval::dataset;
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

/// Number of training problems of DeepScaleR after the paper's filter.
pub const DEEPSCALER: u64 = 39_202;

fgrpo_eval::named! {
    /// The size of the runs from which a table or figure is made.
    pub enum Scale {
        Laptop = "laptop": "Runs on maze and arithmetic that end within about an hour on two cores",
        Full = "full": "The paper's own setting",
    }
}

/// Paths of the trainings, and changes of their configuration.
#[derive(Debug, Clone)]
pub struct Options {
    /// Folder of the results and the runs.
    pub out: PathBuf,
    /// Changes of the configuration of laptop runs, KEY=VALUE.
    pub set: Vec<String>,
    /// Folder to which the paths in the full-scale configurations are relative.
    pub root: PathBuf,
}

/// One training, finished or not.
pub struct Training {
    /// The paper's setting that the run trains.
    setting: Setting,
    /// Configuration of the run.
    pub config: Config,
    /// Command that starts the training.
    command: String,
    /// Run folder. Items that need the same run share it.
    pub folder: PathBuf,
}

/// A row of a table, or a curve of a figure, at the paper's scale.
pub struct FullRow {
    /// Name of the table or figure.
    pub item: &'static str,
    /// Name of the row in it, such as `Qwen2.5-7B/F-GRPO`.
    pub name: String,
    /// Configuration of the training.
    pub config: Config,
}

/// The trainings and files that an item needs.
pub struct Plan {
    item: &'static Item,
    scale: Scale,
    options: Options,
    /// The trainings.
    pub runs: Vec<Training>,
    /// Files and folders that are needed at full scale, each once, with a description of the source. On a laptop, the list
    /// is empty.
    pub paths: Vec<(PathBuf, &'static str)>,
}

/// Finds the file or folder in `root` with one of these names. Fails if several names exist.
pub fn locate<S: AsRef<str>>(root: &Path, names: &[S]) -> anyhow::Result<Option<PathBuf>> {
    let Ok(entries) = std::fs::read_dir(root) else { return Ok(None) };
    let mut matches: Vec<PathBuf> = entries
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| p.is_dir() || FileFormat::of(p).is_some())
        .filter(|p| {
            let name = files::name(p);
            let stem = if p.is_dir() { &name } else { name.split('.').next().unwrap_or(&name) };
            names.iter().any(|name| name.as_ref() == canonical(stem))
        })
        .collect();
    matches.sort();
    if let [first, second, ..] = matches.as_slice() {
        bad_input!("{} and {} are the same data; keep one of them", first.display(), second.display());
    }
    Ok(matches.pop())
}

/// Formats a duration for people, up to years.
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

/// Makes a table or figure from results of trained models.
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
    /// Plans an item.
    /// Fails if a change isn't a setting, or if a benchmark has two files.
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

    /// Describes what the item needs, for the list.
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
        format!(
            "{}; {trained_on}, {benchmarks}; {runs} trainings, jobs by `fgrpo export verl --paper {}/ROW` if verl has the method",
            names.join(", "),
            self.item.name
        )
    }

    /// Describes the plan for a dry run: the commands with the time that each takes, notes, and the files that are needed.
    /// Fails if a task or model can't be read, or if a folder contains a different run.
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
        let evaluations = if laptop || self.item.is_maze() {
            "with the evaluations"
        } else {
            "without evaluations, if every completion has the maximum length"
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

    /// Lists the files and folders that are missing, each with its source.
    pub fn missing(&self) -> Vec<String> {
        let missing = self.paths.iter().filter(|(path, _)| !path.exists());
        missing.map(|(path, home)| format!("{} from {home}", path.display())).collect()
    }

    /// Makes the item from its finished trainings.
    pub fn make(&self) -> anyhow::Result<Made> {
        let from: Vec<String> = self.runs.iter().map(|r| r.folder.display().to_string()).collect();
        let mut results = Results::open(&from)?;
        if self.scale == Scale::Full {
            return from_results(self.item, results);
        }
        if self.measures(Measure::Embeddings) {
            let folders = self.runs.iter().map(|run| run.evaluation(run.config.steps)).collect();
            let mut report = diversity::measure(&diversity::Settings::ngrams(folders))?;
            report.folders = self.runs.iter().map(|run| self.name(&run.setting)).collect();
            results.add_measured(Measure::Embeddings, &report)?;
        }
        if self.measures(Measure::Nll) {
            let last = |run: &Training| checkpoint::path(&run.folder.join("checkpoints"), run.config.steps);
            let models = self.runs.iter().map(|run| (self.name(&run.setting), last(run))).collect();
            let folder = self.runs[0].evaluation(0);
            let prompts = nll::prompts(&folder)?;
            let settings = nll::Settings::new(folder, self.start()?, models);
            let report = nll::measure(&nll::Settings { leave_out_long: true, ..settings }, &prompts)?;
            results.add_measured(Measure::Nll, &report)?;
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

    /// Returns the checkpoint from which the laptop runs start, which is the end of their common SFT stage.
    fn start(&self) -> anyhow::Result<PathBuf> {
        let cache = self.runs[0].folder.with_file_name("sft-cache");
        let mut checkpoints = files::listed(&cache)?;
        checkpoints.retain(|p| p.join("model.safetensors").is_file());
        match checkpoints.as_slice() {
            [only] => Ok(only.clone()),
            all => {
                bad_input!(
                    "{}: expected one SFT checkpoint, found {}; remove the folder and train again",
                    cache.display(),
                    all.len()
                )
            }
        }
    }

    /// Whether the item needs evaluations of the trained models on the paper's benchmarks. Laptop runs, mazes and curves
    /// through training don't.
    pub fn needs_evaluations(&self) -> bool {
        self.scale == Scale::Full && !self.item.benchmarks.is_empty() && self.item.fill != Fill::Training
    }
}

/// Lists the rows of an item that are trained at full scale.
pub fn full_rows(item: &'static Item, options: &Options) -> anyhow::Result<Vec<FullRow>> {
    let settings = item.settings();
    let row = |run: Training| FullRow {
        item: &item.name,
        name: settings::name(&run.setting, &settings),
        config: run.config,
    };
    Ok(trainings(item, Scale::Full, options)?.into_iter().map(row).collect())
}

/// Finds the row with a name such as `table-1/Qwen2.5-7B/F-GRPO`. Models and data that aren't below the root are named as
/// on the Hugging Face hub.
/// Fails unless the name fits one row.
pub fn full_row(name: &str, options: &Options) -> anyhow::Result<FullRow> {
    let (item, row) = name.split_once('/').unwrap_or((name, ""));
    let item = super::data::item(item)?;
    let settings = item.settings();
    let fitting = settings::named(row, Path::new(""), &settings);
    let fitting: Vec<String> = fitting.iter().map(|setting| settings::name(setting, &settings)).collect();
    let rows = full_rows(item, options)?;
    let names: Vec<String> = rows.iter().map(|row| format!("{}/{}", item.name, row.name)).collect();
    let mut rows: Vec<FullRow> = rows.into_iter().filter(|row| fitting.contains(&row.name)).collect();
    match (rows.pop(), rows.is_empty()) {
        (Some(mut row), true) => {
            row.config = on_the_hub(row.config);
            Ok(row)
        }
        _ => {
            bad_input!("{name}: expected one of the trained rows of {}: {}", item.name, names.join(", "))
        }
    }
}

/// Replaces the paths of models and data that aren't on this machine by their names on the hub.
fn on_the_hub(mut config: Config) -> Config {
    let hub = |path: &Path| {
        // The name of a model may have a dot, as Qwen2.5-7B.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let names = [canonical(&files::stem(path)), canonical(&name)];
        let homes = paper().models.iter().map(|model| (canonical(&model.name), &model.home));
        let data =
            paper().data.iter().map(|(path, (_, home))| (canonical(&files::stem(Path::new(path))), home));
        let benchmarks = paper().benchmarks.iter().map(|b| (b.name.clone(), &b.home));
        let (_, home) = homes.chain(data).chain(benchmarks).find(|(name, _)| names.contains(name))?;
        let name = home.trim_start_matches("huggingface.co/").trim_start_matches("datasets/");
        Some(PathBuf::from(name.split([',', ' ']).next()?))
    };
    let place = |path: &mut PathBuf| {
        if !dataset::exists(path) {
            *path = hub(path).unwrap_or_else(|| path.clone());
        }
    };
    config.model.path.iter_mut().for_each(place);
    for text in config.task.texts_mut() {
        place(&mut text.data);
        text.held_out.iter_mut().for_each(place);
    }
    config
}

fn trainings(item: &'static Item, scale: Scale, options: &Options) -> anyhow::Result<Vec<Training>> {
    let (stand, settings) = (item.stand_in(), item.settings());
    let mut runs = Vec::new();
    for setting in &settings {
        let Some(mut set) = settings::overrides(setting) else { continue };
        let is_small = stand.group_sizes.as_ref().is_none_or(|sizes| sizes.contains(&setting.n));
        let name = setting.model.as_deref();
        let (file, below) = match scale {
            Scale::Laptop if setting.model != settings[0].model || !is_small => continue,
            Scale::Laptop => (stand.config.as_str(), format!("laptop/{}", stand.benchmark)),
            Scale::Full => {
                let model = name.and_then(|name| paper().model(name));
                (model.map_or(MAZE, |m| &m.config), format!("full/{}", name.unwrap_or("maze-17")))
            }
        };
        match scale {
            Scale::Laptop => set = [&stand.set, &set, &options.set].into_iter().flatten().cloned().collect(),
            Scale::Full => {
                set.extend(places(config_text(file), &options.root)?);
                set.extend(options.set.iter().cloned());
            }
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

/// Returns the values of `--set` with which a configuration reads models and data below `--root`.
fn places(text: &str, root: &Path) -> anyhow::Result<Vec<String>> {
    let table: toml::Table = text.parse()?;
    let here = root == Path::new(".");
    let paths = PLACES.into_iter().filter_map(|(section, key)| {
        let path = root.join(table.get(section)?.get(key)?.as_str().filter(|_| !here)?);
        Some(format!("{section}.{key}={:?}", path.display().to_string()))
    });
    Ok(paths.collect())
}
