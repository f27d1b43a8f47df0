//! The trainings and evaluations that make an item: on a laptop those that stand in for the paper's models, at full scale the
//! paper's own; the files that they need, and how long training takes.

use super::data::{Benchmark, Fill, Item, Measure, Model, Setting, StandIn, paper};
use super::made::Made;
use super::results::Results;
use super::rows::{MAZE, Rows};
use super::{config_text, figures, settings, table};
use fgrpo_eval::amounts::duration;
use fgrpo_eval::benchmarks::canonical;
use fgrpo_eval::dataset::format::FileFormat;
use fgrpo_eval::dataset::presets::Family;
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
    /// What is changed in the file.
    set: Vec<String>,
    /// The file under configs/.
    file: &'static str,
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
    /// What is trained on a laptop.
    stand: StandIn,
    /// At full scale: files and folders with where they are found, each once.
    paths: Vec<(PathBuf, &'static str)>,
    /// At full scale: what the trained models are evaluated on. Training dynamics are of the evaluations while training.
    benchmarks: Vec<&'static Benchmark>,
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

fn quoted_path(path: &Path) -> String {
    quoted(&path.display().to_string())
}

/// Makes a table or figure of trained models from results.
pub fn from_results(item: &'static Item, results: Results) -> anyhow::Result<Made> {
    made(item, results, None)
}

fn made(item: &'static Item, results: Results, stand: Option<&StandIn>) -> anyhow::Result<Made> {
    let rows = Rows::of(item, results, stand)?;
    if item.is_table() { table::from_results(item, &rows) } else { figures::from_results(item, &rows) }
}

impl Training {
    fn command(&self) -> String {
        let sets: String = self.set.iter().map(|s| format!(" --set {}", quoted(s))).collect();
        format!("fgrpo train configs/{}{sets} --out {}", self.file, quoted_path(&self.folder))
    }

    /// The configuration in steps. The paper doesn't say how many problems of SynLogic it trains on; as many as of DeepScaleR
    /// are assumed.
    fn counted(&self) -> anyhow::Result<Config> {
        self.config.resolved(DEEPSCALER)
    }

    fn evaluation(&self, step: u64) -> PathBuf {
        checkpoint::path(&self.folder.join(EVALUATIONS), step)
    }

    /// The checkpoint that `fgrpo select` chooses.
    fn chosen(&self) -> PathBuf {
        self.folder.join("checkpoints/STEP")
    }

    fn last(&self) -> PathBuf {
        checkpoint::path(&self.folder.join("checkpoints"), self.config.steps)
    }
}

impl Plan {
    /// The plan of an item.
    /// Fails on changes that aren't settings, and on two files of one benchmark.
    pub fn of(item: &'static Item, scale: Scale, options: &Options) -> anyhow::Result<Self> {
        let mut stand = item.stand_in().clone();
        if !options.set.is_empty() {
            stand.what += &format!("; here with {}", options.set.join(", "));
        }
        let runs = trainings(item, scale, options)?;
        let mut plan = Self {
            item,
            scale,
            options: options.clone(),
            runs,
            stand,
            paths: Vec::new(),
            benchmarks: Vec::new(),
        };
        if scale == Scale::Full {
            let asked: Vec<&'static Benchmark> =
                paper().benchmarks.iter().filter(|b| item.benchmarks.contains(&b.name)).collect();
            for model in plan.models() {
                plan.need(options.root.join("models").join(&model.name), &model.home);
                plan.need(options.root.join(&model.data), &paper().data[&model.data].home);
            }
            let data = options.root.join("data");
            for benchmark in &asked {
                let file = locate(&data, &benchmark.files)?;
                let usual = || data.join(format!("{}.jsonl", benchmark.name));
                plan.need(file.unwrap_or_else(usual), &benchmark.home);
            }
            plan.benchmarks = asked.into_iter().filter(|_| item.fill != Fill::Training).collect();
        }
        Ok(plan)
    }

    fn need(&mut self, path: PathBuf, home: &'static str) {
        if !self.paths.iter().any(|p| p.0 == path) {
            self.paths.push((path, home));
        }
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
            return format!("{runs} runs of {}", self.stand.config);
        }
        if self.item.is_maze() {
            return format!("nothing but time: {runs} trainings of {MAZE}");
        }
        let models = self.models();
        let names: Vec<&str> = models.iter().map(|m| m.name.as_str()).collect();
        let benchmarks = match self.item.benchmarks.as_slice() {
            [_] => "AIME25".to_owned(),
            [_, _] => "AIME25 and IFEval".to_owned(),
            all => format!("{} benchmarks", all.len()),
        };
        let trained_on = &paper().data[&models[0].data].name;
        format!("{}; {trained_on}, {benchmarks}; {runs} trainings", names.join(", "))
    }

    /// Seconds of each training on this machine. On the laptop finished trainings are left out.
    pub(super) fn seconds(&self, estimator: &mut Estimator) -> anyhow::Result<Vec<Option<f64>>> {
        let mut starts = HashSet::new();
        let seconds = |run: &Training| {
            Ok(match self.scale {
                Scale::Laptop if state(&run.config, &run.folder)? == State::Finished => None,
                Scale::Laptop => Some(estimator.seconds(&run.config, &mut starts)?),
                Scale::Full => Some(estimator.seconds(&run.counted()?, &mut starts)?),
            })
        };
        self.runs.iter().map(seconds).collect()
    }

    /// What would be done as commands, what is needed, and how long the training takes, a line for each.
    /// Fails on a task or model that can't be read, and on a folder that holds another run.
    pub fn lines(&self) -> anyhow::Result<Vec<String>> {
        let all = self.seconds(&mut Estimator::default())?;
        let total = words(all.iter().flatten().sum());
        let mut lines = match self.scale {
            Scale::Laptop => Vec::new(),
            Scale::Full => vec![format!("{}: {}\n\ntrainings", self.item.numbered, self.item.title)],
        };
        for (run, seconds) in self.runs.iter().zip(&all) {
            let took = seconds.map_or_else(|| "done".to_owned(), words);
            lines.push(match self.scale {
                Scale::Laptop => format!("{}    # {took}", run.command()),
                Scale::Full => {
                    format!("  {}    # {} steps, {took} here", run.command(), run.counted()?.steps)
                }
            });
        }
        if self.scale == Scale::Laptop {
            if self.measures(Measure::Nll) {
                lines.push(
                    "fgrpo nll of the start's evaluation under each model, --leave-out-long".to_owned(),
                );
            }
            if self.measures(Measure::Embeddings) {
                lines.push("fgrpo diversity of the runs' last evaluations".to_owned());
            }
            lines.push(format!("{total} of training in all on this machine, when it does nothing else"));
            return Ok(lines);
        }
        let evaluations = match self.item.is_maze() {
            true => "with the evaluations",
            false => "without evaluations, every completion of the longest length",
        };
        lines.push(format!("  {total} in all on this machine, {evaluations}"));
        if self.runs.iter().any(|run| run.config.task.kind() == "synlogic") {
            lines.push(format!(
                "  steps and times are for {DEEPSCALER} training problems, DeepScaleR's: the paper doesn't say how many of SynLogic it has"
            ));
        }
        if let Some((commands, then)) = self.commands_after() {
            lines.push(
                "\nevaluations of each chosen checkpoint (`fgrpo select` has the paper's rule), 1,024 samples per problem"
                    .to_owned(),
            );
            lines.extend(commands.iter().map(|line| format!("  {line}")));
            lines.push(format!("  then: {then}"));
        }
        lines.push("\nfiles and folders".to_owned());
        let there = self.paths.iter().filter(|(p, _)| p.exists());
        lines.extend(there.map(|(path, _)| format!("  there: {}", path.display())));
        lines.extend(self.missing().iter().map(|line| format!("  missing: {line}")));
        if self.paths.is_empty() {
            lines.push("  none are needed".to_owned());
        }
        Ok(lines)
    }

    fn missing(&self) -> Vec<String> {
        let missing = self.paths.iter().filter(|(path, _)| !path.exists());
        missing.map(|(path, home)| format!("{} from {home}", path.display())).collect()
    }

    /// Refuses to train while files or folders are missing.
    pub fn require_files(&self) -> anyhow::Result<()> {
        let missing = self.missing();
        if !missing.is_empty() {
            bad_input!(
                "{} --scale full: {} of {} files and folders are missing:\n  {}\nPut them there, or name another folder with --root. `--scale laptop` needs none of them; `--from` takes results made elsewhere",
                self.item.name,
                missing.len(),
                self.paths.len(),
                missing.join("\n  ")
            );
        }
        Ok(())
    }

    /// Makes the item of its finished trainings.
    pub fn make(&self) -> anyhow::Result<Made> {
        let from: Vec<String> = self.runs.iter().map(|r| r.folder.display().to_string()).collect();
        let mut results = Results::open(&from)?;
        if self.scale == Scale::Full {
            return made(self.item, results, None);
        }
        if self.measures(Measure::Embeddings) {
            let folders = self.runs.iter().map(|run| run.evaluation(run.config.steps)).collect();
            let mut found = diversity::measure(&diversity::Settings::ngrams(folders))?;
            found.folders = self.runs.iter().map(|run| self.name(&run.setting)).collect();
            results.add_measured(Measure::Embeddings, &found)?;
        }
        if self.measures(Measure::Nll) {
            let models = self.runs.iter().map(|run| (self.name(&run.setting), run.last())).collect();
            let folder = self.runs[0].evaluation(0);
            let prompts = nll::prompts(&folder)?;
            let settings = nll::Settings::new(folder, self.start()?, models);
            let found = nll::measure(&nll::Settings { leave_out_long: true, ..settings }, &prompts)?;
            results.add_measured(Measure::Nll, &found)?;
        }
        made(self.item, results, Some(&self.stand))
    }

    fn name(&self, setting: &Setting) -> String {
        settings::name(setting, &self.item.settings())
    }

    fn measures(&self, measure: Measure) -> bool {
        let mut parts = self.item.columns.iter().flat_map(|c| &c.parts);
        parts.any(|f| f.measure == Some(measure))
    }

    /// The start of a laptop's runs, which share a supervised stage.
    fn start(&self) -> anyhow::Result<PathBuf> {
        let cache = self.runs[0].folder.with_file_name("sft-cache");
        let entries = std::fs::read_dir(&cache).into_iter().flatten();
        let mut found: Vec<PathBuf> = entries.filter_map(|e| e.ok().map(|e| e.path())).collect();
        found.retain(|p| p.join("model.safetensors").is_file());
        match found.as_slice() {
            [only] => Ok(only.clone()),
            all => {
                bad_input!("{}: found {} starts, wanted the one of these runs", cache.display(), all.len())
            }
        }
    }

    /// What the trained models are evaluated into at full scale. Where the rows don't name their model, the folder does.
    fn evaluations(&self) -> PathBuf {
        let all = self.options.out.join("full-evaluations");
        if let [only] = self.models().as_slice() { all.join(&only.name) } else { all }
    }

    fn base(&self, setting: &Setting) -> PathBuf {
        self.options.root.join("models").join(setting.model.as_deref().unwrap_or_default())
    }

    /// At full scale, the commands that evaluate the base and the trained models, and the one that makes the item from what
    /// they write; `None` if the trainings are enough.
    pub fn commands_after(&self) -> Option<(Vec<String>, String)> {
        if self.benchmarks.is_empty() {
            return None;
        }
        let (data, out) = (self.options.root.join("data"), self.evaluations());
        let family = |s: &Setting| {
            let model = s.model.as_deref().and_then(|name| paper().model(name));
            model.map_or(Family::Qwen25, |m| m.family)
        };
        let some: String = match self.benchmarks.len() < paper().benchmarks.len() {
            true => self.benchmarks.iter().map(|b| format!(" --benchmark {}", b.name)).collect(),
            false => String::new(),
        };
        let command = |s: &Setting, checkpoint: &Path| {
            let model = quoted(&format!("{}={}", self.name(s), checkpoint.display()));
            let (data, family, out) = (quoted_path(&data), family(s), quoted_path(&out));
            format!(
                "fgrpo eval --suite paper --data-root {data} --models {model} --preset {family}{some} --out {out}"
            )
        };
        let shown = self.item.settings();
        let bases = shown.iter().filter(|s| s.method == "Base");
        let mut lines: Vec<String> = bases.map(|s| command(s, &self.base(s))).collect();
        let trained = self.runs.iter().map(|run| command(&run.setting, &run.chosen()));
        lines.extend(trained);
        let checkpoint =
            |run: &Training| quoted(&format!("{}={}", self.name(&run.setting), run.chosen().display()));
        let models = self.runs.iter().map(|run| format!("--model {}", checkpoint(run)));
        let folders = self.runs.iter().map(|run| quoted_path(&out.join(self.name(&run.setting))));
        let places = [
            ("{base}", quoted_path(&self.base(&self.runs[0].setting))),
            ("{models}", models.collect::<Vec<_>>().join(" ")),
            ("{folders}", folders.collect::<Vec<_>>().join(" ")),
            ("{data}", quoted_path(&data)),
            ("{out}", quoted_path(&out)),
        ];
        let filled =
            |line: &String| places.iter().fold(line.clone(), |line, (place, with)| line.replace(place, with));
        lines.extend(self.item.after.iter().map(filled));
        let from = self.item.from.as_ref().map_or_else(|| quoted_path(&out), filled);
        Some((lines, format!("fgrpo paper {} --from {from}", self.item.name)))
    }
}

fn trainings(item: &'static Item, scale: Scale, options: &Options) -> anyhow::Result<Vec<Training>> {
    let stand = item.stand_in();
    let shown = item.settings();
    let first = shown.first().and_then(|s| s.model.clone());
    let mut runs = Vec::new();
    for setting in shown {
        let Some(own) = settings::overrides(&setting) else { continue };
        let model = setting.model.as_deref().and_then(|name| paper().model(name));
        let is_small = stand.group_sizes.as_ref().is_none_or(|sizes| sizes.contains(&setting.n));
        let (file, folder) = match scale {
            Scale::Laptop if setting.model != first || !is_small => continue,
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
        // Small groups are fast, so a mistake shows early.
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

#[cfg(test)]
mod tests {
    use super::*;
    use fgrpo_eval::io::files;

    #[test]
    fn files_are_found_by_their_usual_names_and_two_of_one_benchmark_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in
            ["aime_2024.parquet", "MATH-500.jsonl.gz", "gpqa_diamond.csv", "synlogic.parquet", "notes.txt"]
        {
            std::fs::write(at(name), "").unwrap();
        }
        std::fs::create_dir(at("OlympiadBench")).unwrap();
        let found = |name: &str| {
            let benchmark = paper().benchmarks.iter().find(|b| b.name == name).unwrap();
            locate(folder.path(), &benchmark.files).map(|p| p.map(|p| files::stem(&p)))
        };
        assert!(found("aime24").unwrap().is_some() && found("math500").unwrap().is_some());
        assert!(found("gpqa").unwrap().is_some() && found("olympiad").unwrap().is_some());
        // SynLogic's training problems are not its validation problems.
        assert_eq!(found("synlogic").unwrap(), None);
        assert_eq!(found("aime25").unwrap(), None);
        std::fs::write(at("aime24.jsonl"), "").unwrap();
        assert!(found("aime24").unwrap_err().to_string().contains("wanted one of them"));
    }
}
