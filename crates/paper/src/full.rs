//! The paper's own setting: which trainings and evaluations a table or figure needs, what is missing for them, and what they
//! take.

use super::data::{Benchmark, Fill, Item, Measure, Model, Quantity, Setting, paper};
use super::made::Made;
use super::make::with_substitute;
use super::runs::{self, DEEPSCALER, Options, Scale, Training, words};
use super::settings;
use super::sources::Sources;
use fgrpo_eval::bad_input;
use fgrpo_eval::benchmarks::canonical;
use fgrpo_eval::dataset::format::FileFormat;
use fgrpo_eval::dataset::presets::Family;
use fgrpo_eval::io::shell::quoted;
use fgrpo_train::run::duration::Estimator;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The paper's samples of the base model behind the NLL: training prompts, and rollouts of each.
const RARE: (u64, u64) = (256, 800);

/// What makes an item at full scale.
pub struct Plan {
    item: &'static Item,
    options: Options,
    /// The trainings.
    pub runs: Vec<Training>,
    /// Files and folders with where they are found, each once.
    paths: Vec<(PathBuf, &'static str)>,
    /// What the trained models are evaluated on; training dynamics are of the evaluations while training.
    benchmarks: Vec<&'static Benchmark>,
}

/// The file or folder below `root` that has one of these names; several are refused.
///
/// # Errors
/// Bad input: several.
pub fn locate<S: AsRef<str>>(root: &Path, names: &[S]) -> anyhow::Result<Option<PathBuf>> {
    let Ok(entries) = std::fs::read_dir(root) else { return Ok(None) };
    let mut found: Vec<PathBuf> = entries
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| p.is_dir() || FileFormat::of(p).is_some())
        .filter(|p| {
            let name = p.file_name().unwrap_or_default().to_string_lossy().into_owned();
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

fn benchmarks(item: &Item) -> impl Iterator<Item = &'static Benchmark> {
    paper().benchmarks.iter().filter(|b| item.benchmarks.contains(&b.name))
}

fn models(item: &Item) -> Vec<&'static Model> {
    let settings = item.settings();
    let models = paper().models.iter();
    models.filter(|m| settings.iter().any(|s| s.model.as_ref() == Some(&m.name))).collect()
}

/// What the list says an item needs.
pub(super) fn in_words(item: &'static Item, options: &Options) -> anyhow::Result<String> {
    let runs = runs::of(item, Scale::Full, options)?.len();
    if item.is_maze() {
        return Ok(format!("nothing but time: {runs} trainings of maze-17.toml"));
    }
    let models = models(item);
    let names: Vec<&str> = models.iter().map(|m| m.name.as_str()).collect();
    let benchmarks = match benchmarks(item).count() {
        1 => "AIME25".to_owned(),
        2 => "AIME25 and IFEval".to_owned(),
        n => format!("{n} benchmarks"),
    };
    let trained_on = &paper().data[&models[0].data].name;
    Ok(format!("{}; {trained_on}, {benchmarks}; {runs} trainings", names.join(", ")))
}

fn path(path: &Path) -> String {
    quoted(&path.display().to_string()).to_string()
}

impl Plan {
    /// The plan of an item.
    ///
    /// # Errors
    /// Bad input for two files of one benchmark.
    pub fn of(item: &'static Item, options: &Options) -> anyhow::Result<Self> {
        let mut paths: Vec<(PathBuf, &'static str)> = Vec::new();
        let mut add = |path: PathBuf, home: &'static str| {
            if !paths.iter().any(|p| p.0 == path) {
                paths.push((path, home));
            }
        };
        for model in models(item) {
            add(options.root.join("models").join(&model.name), &model.home);
            add(options.root.join(&model.data), &paper().data[&model.data].home);
        }
        let data = options.root.join("data");
        for benchmark in benchmarks(item) {
            let file = locate(&data, &benchmark.files)?;
            add(file.unwrap_or_else(|| data.join(format!("{}.jsonl", benchmark.name))), &benchmark.home);
        }
        let after = benchmarks(item).filter(|_| item.fill != Fill::Training).collect();
        let runs = runs::of(item, Scale::Full, options)?;
        Ok(Self { item, options: options.clone(), runs, paths, benchmarks: after })
    }

    /// Files and folders that are missing, with where they are found.
    fn missing(&self) -> Vec<String> {
        let missing = self.paths.iter().filter(|(path, _)| !path.exists());
        missing.map(|(path, home)| format!("{} from {home}", path.display())).collect()
    }

    /// Refuses to train while files or folders are missing.
    ///
    /// # Errors
    /// Bad input that lists them all.
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

    /// Makes the item of its finished trainings; where evaluations are needed first, their commands and the one that then
    /// makes it.
    ///
    /// # Errors
    /// What results are refused for.
    pub fn make(&self) -> anyhow::Result<Result<Made, (Vec<String>, String)>> {
        if !self.benchmarks.is_empty() {
            return Ok(Err(self.evaluations()));
        }
        let from: Vec<String> = self.runs.iter().map(|r| r.folder.display().to_string()).collect();
        Ok(Ok(with_substitute(self.item, &Sources::open(&from)?, None)?))
    }

    /// The folder of an item's evaluations. Where its rows don't name their model, the folder does.
    fn evaluated(&self) -> PathBuf {
        let all = self.options.out.join("full-evaluations");
        let models: BTreeSet<Option<&str>> = self.runs.iter().map(|r| r.setting.model.as_deref()).collect();
        match models.into_iter().collect::<Vec<_>>().as_slice() {
            [Some(only)] => all.join(only),
            _ => all,
        }
    }

    /// The commands that evaluate the base and the trained models, and the one that makes the item from what they write.
    fn evaluations(&self) -> (Vec<String>, String) {
        let shown = self.item.settings();
        let (out, data) = (self.evaluated(), self.options.root.join("data"));
        let name = |setting: &Setting| settings::name(setting, &shown);
        let base =
            |s: &Setting| self.options.root.join("models").join(s.model.as_deref().unwrap_or_default());
        let checkpoint = |run: &Training| run.folder.join("checkpoints/STEP");
        let family = |s: &Setting| {
            let model = s.model.as_deref().and_then(|name| paper().model(name));
            model.map_or(Family::Qwen25, |m| m.family)
        };
        let command = |s: &Setting, checkpoint: &Path| {
            let model = quoted(&format!("{}={}", name(s), checkpoint.display())).to_string();
            let some = self.benchmarks.iter().map(|b| format!(" --benchmark {}", b.name));
            let some: String = some.filter(|_| self.benchmarks.len() < paper().benchmarks.len()).collect();
            let (data, family, out) = (path(&data), family(s), path(&out));
            format!(
                "fgrpo eval --suite paper --data-root {data} --models {model} --preset {family}{some} --out {out}"
            )
        };
        let mut lines: Vec<String> =
            shown.iter().filter(|s| s.method == "Base").map(|s| command(s, &base(s))).collect();
        lines.extend(self.runs.iter().map(|run| command(&run.setting, &checkpoint(run))));
        let mut from = Vec::new();
        let prints = |of: &str, measure: Measure| {
            let quantity = |s: &Setting| Quantity { setting: s.clone(), of: of.to_owned(), k: 1, measure };
            shown.iter().any(|s| self.item.value(&quantity(s)).is_some())
        };
        let names = self.benchmarks.iter().map(|b| b.name.as_str());
        if !self.item.is_table() || names.chain(["Math", "OOD"]).any(|of| prints(of, Measure::Pass)) {
            from.push(path(&out));
        }
        if let Some(first) = self.runs.first().filter(|_| prints("", Measure::Nll)) {
            let (of, samples) =
                (path(&base(&first.setting)), path(&self.options.out.join("full-training-samples")));
            lines.push(format!(
                "fgrpo eval --model {of} --data {} --task math --preset {} --limit {} -n {} --name deepscaler --out {samples}",
                path(&data.join("deepscaler.json")),
                family(&first.setting),
                RARE.0,
                RARE.1
            ));
            let model = |run: &Training| {
                let model = format!("{}={}", name(&run.setting), checkpoint(run).display());
                format!(" --model {}", quoted(&model))
            };
            let models: String = self.runs.iter().map(model).collect();
            let file = out.join("nll.json");
            lines.push(format!("fgrpo nll {samples} --base {of}{models} --json > {}", path(&file)));
            from.push(quoted(&format!("nll={}", file.display())).to_string());
        }
        for (measure, by, flags) in [
            (Measure::Embeddings, "embeddings", "--model Qwen3-Embedding-8B --max-tokens 8192"),
            (Measure::Judge, "judge", "--model JUDGE"),
        ] {
            for benchmark in self.benchmarks.iter().filter(|b| prints(&b.name, measure)) {
                let folder = |run: &Training| path(&out.join(name(&run.setting)).join(&benchmark.name));
                let folders: Vec<String> = self.runs.iter().map(folder).collect();
                let file = out.join(format!("{by}-{}.json", benchmark.name));
                // A judge sees the problems.
                let asked = match self.paths.iter().find(|(_, home)| *home == benchmark.home) {
                    Some((data, _)) if measure == Measure::Judge => format!(" --data {}", path(data)),
                    _ => String::new(),
                };
                lines.push(format!(
                    "fgrpo diversity {} --by {by} --server URL {flags}{asked} --json > {}",
                    folders.join(" "),
                    path(&file)
                ));
                from.push(quoted(&format!("{by}={}", file.display())).to_string());
            }
        }
        let from: String = from.iter().map(|f| format!(" --from {f}")).collect();
        (lines, format!("fgrpo paper {}{from}", self.item.name))
    }

    /// What is needed, a line for each thing.
    ///
    /// # Errors
    /// A task or model that can't be read.
    pub fn lines(&self) -> anyhow::Result<Vec<String>> {
        let mut lines = vec![format!("{}: {}\n\ntrainings", self.item.numbered, self.item.title)];
        let all = runs::seconds(&mut Estimator::default(), &self.runs, Scale::Full)?;
        for (run, seconds) in self.runs.iter().zip(all.iter().flatten()) {
            let (steps, time) = (run.counted()?.steps, words(*seconds));
            lines.push(format!("  {}    # {steps} steps, {time} here", run.command()));
        }
        let evaluations = match self.item.is_maze() {
            true => "with the evaluations",
            false => "without evaluations, every completion of the longest length",
        };
        let total = words(all.iter().flatten().sum());
        lines.push(format!("  {total} in all on this machine, {evaluations}"));
        if self.runs.iter().any(|run| run.config.task.kind() == "synlogic") {
            lines.push(format!(
                "  steps and times are for {DEEPSCALER} training problems, DeepScaleR's: the paper doesn't say how many of SynLogic it has"
            ));
        }
        if !self.benchmarks.is_empty() {
            lines.push(
                "\nevaluations of each chosen checkpoint (`fgrpo select` has the paper's rule), 1,024 samples per problem"
                    .to_owned(),
            );
            for b in &self.benchmarks {
                let count = b.problems.map(|n| format!("{n} problems"));
                let count = count.as_deref().unwrap_or("the validation problems");
                lines.push(format!("  {}: --task {}, {count}", b.name, b.kind));
            }
            let (commands, then) = self.evaluations();
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
