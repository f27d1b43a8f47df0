//! The paper's own setting: which trainings and evaluations a table or figure needs, what is missing for them, and what they take.

use super::Args;
use super::estimate::{Estimator, words};
use super::items::Item;
use super::laptop;
use super::numbers::Setting;
use super::runs::Run;
use super::settings;
use super::suite::{self, BENCHMARKS, Benchmark, DEEPSCALER};
use crate::analysis::benchmarks::Domain;
use fgrpo_train::bad_input;
use fgrpo_train::config::Config;
use fgrpo_train::io::shell::quoted;
use fgrpo_train::problem::dataset::presets::Family;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A model of the paper.
pub(super) struct Model {
    /// Its name in the paper, and of its folder under models/.
    pub(super) name: &'static str,
    /// Its configuration under configs/.
    file: &'static str,
    /// The same.
    text: &'static str,
    /// Its prompts.
    pub(super) family: Family,
    /// Where its checkpoint is found.
    home: &'static str,
}

/// The four models.
pub(super) const MODELS: [Model; 4] = [
    Model {
        name: "Qwen2.5-7B",
        file: "qwen2.5-7b-math.toml",
        text: include_str!("../../../../configs/qwen2.5-7b-math.toml"),
        family: Family::Qwen25,
        home: "huggingface.co/Qwen/Qwen2.5-7B",
    },
    Model {
        name: "Qwen3-4B-Base",
        file: "qwen3-4b-base-math.toml",
        text: include_str!("../../../../configs/qwen3-4b-base-math.toml"),
        family: Family::Qwen3,
        home: "huggingface.co/Qwen/Qwen3-4B-Base",
    },
    Model {
        name: "Llama-3.2-3B-Instruct",
        file: "llama-3.2-3b-math.toml",
        text: include_str!("../../../../configs/llama-3.2-3b-math.toml"),
        family: Family::Llama32,
        home: "huggingface.co/meta-llama/Llama-3.2-3B-Instruct (asks for consent to its licence)",
    },
    Model {
        name: "Qwen3-1.7B",
        file: "qwen3-1.7b-synlogic.toml",
        text: include_str!("../../../../configs/qwen3-1.7b-synlogic.toml"),
        family: Family::Qwen3,
        home: "huggingface.co/Qwen/Qwen3-1.7B",
    },
];

impl Model {
    /// The model of this name.
    fn of(name: &str) -> Option<&'static Self> {
        MODELS.iter().find(|m| m.name == name)
    }

    /// Its configuration with changes.
    ///
    /// # Errors
    /// Changes that are no settings.
    pub(super) fn config(&self, set: &[String]) -> anyhow::Result<Config> {
        Config::parse(self.text, set)
    }
}

/// What an item needs at full scale.
struct Needs {
    /// The trainings.
    runs: Vec<Run>,
    /// Files and folders with where they are found, each once.
    paths: Vec<(PathBuf, &'static str)>,
    /// What the trained models are evaluated on.
    benchmarks: Vec<&'static Benchmark>,
}

/// Whether training through its steps is what an item shows.
fn is_dynamics(item: &Item) -> bool {
    matches!(item, Item::Figure(f) if f.number > 7)
}

/// The benchmarks that an item needs.
fn benchmarks(item: &Item) -> Vec<&'static Benchmark> {
    let needed = |name: &str| match item {
        _ if item.is_maze() => false,
        _ if is_dynamics(item) => name == "aime25",
        Item::Figure(_) => name == "aime25" || name == "ifeval",
        Item::Table(t) if t.trained_on == Domain::Synlogic => name != "minerva" && name != "olympiad",
        Item::Table(t) if t.number == 14 => !["ifeval", "synlogic", "gpqa"].contains(&name),
        Item::Table(_) => true,
    };
    BENCHMARKS.iter().filter(|b| needed(b.name)).collect()
}

fn needs(item: &Item, args: &Args) -> anyhow::Result<Needs> {
    let shown = settings::shown(item);
    let mut needs = Needs { runs: Vec::new(), paths: Vec::new(), benchmarks: Vec::new() };
    let folder = args.out.join("full");
    for setting in &shown {
        let Some(set) = settings::overrides(setting) else { continue };
        let (text, file) = match setting.model.as_deref().and_then(Model::of) {
            Some(model) => (model.text, model.file),
            None => (laptop::MAZE_17, "maze-17.toml"),
        };
        let set: Vec<String> = set.into_iter().chain(places(&Config::parse(text, &[])?, args)).collect();
        let config = Config::parse(text, &set)?;
        // Every item that needs this run finds it here.
        let folder = folder.join(setting.model.as_deref().unwrap_or("maze-17")).join(setting.folder());
        needs.runs.push(Run { setting: setting.clone(), config, set, file, folder });
    }
    let mut path = |path: PathBuf, home: &'static str| {
        if !needs.paths.iter().any(|p| p.0 == path) {
            needs.paths.push((path, home));
        }
    };
    for model in MODELS.iter().filter(|m| shown.iter().any(|s| s.model.as_deref() == Some(m.name))) {
        path(args.root.join("models").join(model.name), model.home);
        let (data, home) = match model.name {
            "Qwen3-1.7B" => ("data/synlogic.parquet", "huggingface.co/datasets/MiniMaxAI/SynLogic"),
            _ => ("data/deepscaler.json", "huggingface.co/datasets/agentica-org/DeepScaleR-Preview-Dataset"),
        };
        path(args.root.join(data), home);
    }
    let data = args.root.join("data");
    for benchmark in benchmarks(item) {
        let file = benchmark.locate(&data)?.unwrap_or_else(|| data.join(format!("{}.jsonl", benchmark.name)));
        path(file, benchmark.home);
    }
    // Training dynamics are of the evaluations while training.
    if !item.is_maze() && !is_dynamics(item) {
        needs.benchmarks = benchmarks(item);
    }
    Ok(needs)
}

/// What `--set` takes to read models and data below `--root`.
fn places(config: &Config, args: &Args) -> Vec<String> {
    if args.root == Path::new(".") {
        return Vec::new();
    }
    let text = config.task.text().map(|(_, text)| text);
    let paths = [
        ("model.path", config.model.path.as_ref()),
        ("task.data", text.map(|t| &t.data)),
        ("task.held_out", text.and_then(|t| t.held_out.as_ref())),
    ];
    let placed = |(key, path): (&str, Option<&PathBuf>)| {
        Some(format!("{key}={:?}", args.root.join(path?).display().to_string()))
    };
    paths.into_iter().filter_map(placed).collect()
}

/// What the list says an item needs.
pub(super) fn in_words(item: &Item) -> String {
    let shown = settings::shown(item);
    let runs = shown.iter().filter(|s| settings::overrides(s).is_some()).count();
    if item.is_maze() {
        return format!("nothing but time: {runs} trainings of maze-17.toml");
    }
    let models: Vec<&str> = MODELS
        .iter()
        .map(|m| m.name)
        .filter(|m| shown.iter().any(|s| s.model.as_deref() == Some(*m)))
        .collect();
    let trained_on = if models == ["Qwen3-1.7B"] { "SynLogic" } else { "DeepScaleR" };
    let benchmarks = match benchmarks(item).len() {
        1 => "AIME25".to_owned(),
        2 => "AIME25 and IFEval".to_owned(),
        n => format!("{n} benchmarks"),
    };
    format!("{}; {trained_on}, {benchmarks}; {runs} trainings", models.join(", "))
}

/// The seconds that its trainings would take on this machine; none where nothing is trained.
pub(super) fn seconds(item: &Item, args: &Args, estimator: &mut Estimator) -> anyhow::Result<f64> {
    let configs: Vec<Config> = needs(item, args)?.runs.iter().map(counted).collect::<anyhow::Result<_>>()?;
    Ok(estimator.seconds(&configs)?.into_iter().sum())
}

/// The configuration in steps. The paper doesn't say how many problems of SynLogic it trains on; as many as of DeepScaleR are assumed.
fn counted(run: &Run) -> anyhow::Result<Config> {
    run.config.resolved(DEEPSCALER)
}

/// Prints what is needed, and trains if nothing is missing.
///
/// # Errors
/// Bad input that lists everything that is missing; what a training fails with.
pub(super) fn run(item: &Item, args: &Args) -> anyhow::Result<()> {
    let needs = needs(item, args)?;
    let missing: Vec<String> = needs
        .paths
        .iter()
        .filter(|(path, _)| !path.exists())
        .map(|(path, home)| format!("{} from {home}", path.display()))
        .collect();
    if args.dry_run {
        return dry_run(item, &needs, &missing, args);
    }
    if !missing.is_empty() {
        bad_input!(
            "{} --scale full: {} of {} files and folders are missing:\n  {}\nPut them there, or name another folder with --root. `--scale laptop` needs none of them; `--from` takes results made elsewhere",
            item.name(),
            missing.len(),
            needs.paths.len(),
            missing.join("\n  ")
        );
    }
    laptop::train_all(&needs.runs)?;
    if !needs.benchmarks.is_empty() {
        for line in evaluations(&needs, args) {
            outln!("{line}");
        }
        say!(
            "trained; the commands above evaluate, then: fgrpo paper {} --from {}",
            item.name(),
            evaluated(&needs, args).display()
        );
        return Ok(());
    }
    let from: Vec<String> = needs.runs.iter().map(|r| r.folder.display().to_string()).collect();
    super::from_results(item, &super::Sources::open(&from)?, args, None)
}

/// The folder of an item's evaluations. Where its rows don't name their model, the folder does.
fn evaluated(needs: &Needs, args: &Args) -> PathBuf {
    let all = args.out.join("full-evaluations");
    let models: BTreeSet<Option<&str>> = needs.runs.iter().map(|run| run.setting.model.as_deref()).collect();
    match models.into_iter().collect::<Vec<_>>().as_slice() {
        [Some(only)] => all.join(only),
        _ => all,
    }
}

/// The commands that evaluate the trained models.
fn evaluations(needs: &Needs, args: &Args) -> Vec<String> {
    let shown: Vec<Setting> = needs.runs.iter().map(|r| r.setting.clone()).collect();
    let of = |run: &Run| {
        let family = run.setting.model.as_deref().and_then(Model::of).map_or(Family::Qwen25, |m| m.family);
        let name = settings::name(&run.setting, &shown);
        let checkpoint = run.folder.join("checkpoints/STEP");
        suite::command(
            &args.root.join("data"),
            &name,
            &checkpoint,
            family,
            &needs.benchmarks,
            &evaluated(needs, args),
        )
    };
    needs.runs.iter().map(of).collect()
}

fn dry_run(item: &Item, needs: &Needs, missing: &[String], args: &Args) -> anyhow::Result<()> {
    outln!("{}: {}", item.number(), item.title());
    outln!("\ntrainings");
    let configs: Vec<Config> = needs.runs.iter().map(counted).collect::<anyhow::Result<_>>()?;
    let all = Estimator::new().seconds(&configs)?;
    for ((run, config), seconds) in needs.runs.iter().zip(&configs).zip(&all) {
        let sets: Vec<String> = run.set.iter().map(|s| format!("--set {}", quoted(s))).collect();
        outln!(
            "  fgrpo train configs/{} {} --out {}    # {} steps, {} here",
            run.file,
            sets.join(" "),
            quoted(&run.folder.display().to_string()),
            config.steps,
            words(*seconds)
        );
    }
    outln!(
        "  {} in all on this machine, {}",
        words(all.iter().sum()),
        if item.is_maze() {
            "with the evaluations"
        } else {
            "without evaluations, every completion of the longest length"
        }
    );
    if needs.runs.iter().any(|run| run.config.task.kind() == "synlogic") {
        outln!(
            "  steps and times are for {DEEPSCALER} training problems, DeepScaleR's: the paper doesn't say how many of SynLogic it has"
        );
    }
    if !needs.benchmarks.is_empty() {
        outln!(
            "\nevaluations of each chosen checkpoint (`fgrpo select` has the paper's rule), 1,024 samples per problem"
        );
        for b in &needs.benchmarks {
            let count =
                b.problems.map_or_else(|| "the validation problems".to_owned(), |n| format!("{n} problems"));
            outln!("  {}: --task {}, {count}", b.name, b.kind);
        }
        for line in evaluations(needs, args) {
            outln!("  {line}");
        }
    }
    outln!("\nfiles and folders");
    for (path, _) in needs.paths.iter().filter(|(p, _)| p.exists()) {
        outln!("  there: {}", path.display());
    }
    for line in missing {
        outln!("  missing: {line}");
    }
    if needs.paths.is_empty() {
        outln!("  none are needed");
    }
    Ok(())
}
