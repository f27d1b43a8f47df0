//! Evaluates the paper's nine benchmarks with one command (`fgrpo eval --suite paper`).
//!
//! Each model and benchmark has an evaluation folder `OUT/MODEL/BENCHMARK`, which the same command resumes. All files are
//! checked before sampling starts, and all errors in them are reported together.

mod files;

use crate::args::named::named_path;
use crate::args::places;
use crate::commands::dry_run::rejected;
use crate::commands::eval;
use crate::output::table::{Format, Render};
use anyhow::Context;
use fgrpo_eval::benchmarks::canonical;
use fgrpo_eval::dataset;
use fgrpo_eval::dataset::presets::{Family, Prompting};
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::io::files::name;
use fgrpo_eval::io::json;
use fgrpo_eval::io::shell::quoted;
use fgrpo_eval::kind::TaskKind;
use fgrpo_eval::table::Table;
use fgrpo_nn::weights::Gguf;
use fgrpo_paper::data::{Benchmark, benchmarks};
use fgrpo_train::config::unknown_name;
use std::path::{Path, PathBuf};

use files::{Checked, check, check_training};

const SAMPLES: u64 = 1_024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Suite {
    /// AIME24, AIME25, AMC23, MATH500, Minerva Math, OlympiadBench, IFEval, SynLogic and GPQA Diamond.
    Paper,
}

#[derive(Debug, clap::Args)]
#[group(id = "suite-flags")]
pub(crate) struct Flags {
    /// Evaluate all benchmarks of the paper with its settings: 1,024 samples per problem and the family's prompts, unless -n or --preset changes them.
    #[arg(long, value_enum, requires = "data_root", help_heading = "Suite")]
    pub(crate) suite: Option<Suite>,
    /// Folder with the suite's files, which are detected by their usual names.
    #[arg(long, value_name = "DIR", requires = "suite", help_heading = "Suite")]
    pub(crate) data_root: Option<PathBuf>,
    /// A checkpoint and its name; repeatable. A name such as Qwen2.5-7B/F-GRPO is a row of the paper's tables.
    #[arg(long, value_name = "NAME=DIR", value_parser = named_path, requires = "suite", conflicts_with_all = ["model", "server"], help_heading = "Suite")]
    pub(crate) models: Vec<(String, PathBuf)>,
    /// Evaluate only this benchmark of the suite; repeatable.
    #[arg(long = "benchmark", value_name = "NAME", requires = "suite", help_heading = "Suite")]
    pub(crate) only: Vec<String>,
    /// Accept files whose number of problems differs from the paper's.
    #[arg(long, requires = "suite", help_heading = "Suite")]
    pub(crate) accept_counts: bool,
    /// Check which files are present, missing or of another size; sample nothing.
    #[arg(long, requires = "suite", help_heading = "Suite")]
    pub(crate) dry_run: bool,
    /// With --dry-run: write all rejected rows to this file of JSON lines, with file, row number, reason and value.
    #[arg(long, value_name = "FILE", requires = "dry_run", help_heading = "Suite")]
    pub(crate) rejected: Option<PathBuf>,
}

/// Evaluates every model on every benchmark, with the flags in `common`.
pub(crate) fn run(args: &Flags, common: &eval::Flags, root: &Path) -> anyhow::Result<()> {
    refuse_single(common)?;
    if !root.is_dir() {
        bad_input!("--data-root: {}: no such folder", root.display());
    }
    let chosen = chosen(&args.only)?;
    let models = models(args, common)?;
    let local = models.iter().find_map(|(_, path)| path.clone().filter(|_| common.server.is_none()));
    let family = family(args, common, &models)?;
    let mut checked: Vec<Checked> = chosen.iter().map(|b| check(b, root)).collect();
    if args.dry_run {
        checked.extend(check_training(root, local.as_deref(), family)?);
        return dry_run(args, common, &checked, &models, family);
    }
    let wrong: Vec<&str> = checked
        .iter()
        .filter(|c| !(args.accept_counts && c.file != "--"))
        .filter_map(|c| c.wrong.as_deref())
        .collect();
    if !wrong.is_empty() {
        bad_input!(
            "--suite paper: {} of {} files can't be used:\n  {}\n--benchmark NAME evaluates only some benchmarks, --accept-counts accepts files of other sizes",
            wrong.len(),
            checked.len(),
            wrong.join("\n  ")
        );
    }
    let Some(out) = &common.out else { bad_input!("--out is required: the folder of the evaluations") };
    if models.is_empty() {
        bad_input!(
            "a model is required: --models NAME=DIR for each checkpoint, or --model, or --server with --model"
        );
    }
    let kinds: Vec<TaskKind> = chosen.iter().map(|b| b.kind).collect();
    let total = models.len() * chosen.len();
    for (i, (name, path)) in models.iter().enumerate() {
        for (j, (benchmark, file)) in chosen.iter().zip(&checked).enumerate() {
            let folder = out.join(name).join(&benchmark.name);
            say!("[{}/{total}] {}", i * chosen.len() + j + 1, folder.display());
            let mut one = common.clone();
            one.data = Some(PathBuf::from(&file.file));
            one.task = Some(benchmark.kind);
            one.name = Some(benchmark.name.clone());
            one.n = one.n.or(Some(SAMPLES));
            one.preset = Some(family);
            if let Some(path) = path.as_ref().filter(|_| common.server.is_none()) {
                one.model = Some(path.display().to_string());
            }
            std::fs::create_dir_all(out.join(name)).with_context(|| format!("creating {}", out.display()))?;
            one.out = Some(folder);
            eval::one(&one, None, &kinds)?;
        }
    }
    say!("all {total} evaluations are done. Tables: fgrpo table {}", table_arguments(out, &models));
    Ok(())
}

fn table_arguments(out: &Path, models: &[(String, Option<PathBuf>)]) -> String {
    let one = |(name, _): &(String, Option<PathBuf>)| {
        let label = name.rsplit('/').next().unwrap_or(name);
        quoted(&format!("{label}={}", out.join(name).display())).to_string()
    };
    let arguments: Vec<String> = models.iter().map(one).collect();
    format!("{}, or fgrpo paper table-1 --from {}", arguments.join(" "), quoted(&out.display().to_string()))
}

/// Returns an error if a flag for a single data set is given.
fn refuse_single(args: &eval::Flags) -> anyhow::Result<()> {
    let options = [
        ("a configuration", args.config.is_some()),
        ("--data", args.data.is_some()),
        ("--task", args.task.is_some()),
        ("--name", args.name.is_some()),
        ("--columns", args.columns.is_some()),
        ("--samples", args.samples.is_some()),
        ("--adapter", args.adapter.is_some()),
    ];
    let names: Vec<&str> = options.iter().filter(|g| g.1).map(|g| g.0).collect();
    if !names.is_empty() {
        bad_input!(
            "--suite can't be used with {}, because the suite defines the data sets",
            names.join(", ")
        );
    }
    Ok(())
}

/// Returns the requested benchmarks in the paper's order.
fn chosen(only: &[String]) -> anyhow::Result<Vec<&'static Benchmark>> {
    for name in only {
        if !benchmarks().iter().any(|b| b.name == canonical(name)) {
            let names: Vec<&str> = benchmarks().iter().map(|b| b.name.as_str()).collect();
            bad_input!("--benchmark: {}", unknown_name(name, &names));
        }
    }
    let is = |b: &&Benchmark| only.is_empty() || only.iter().any(|name| canonical(name) == b.name);
    Ok(benchmarks().iter().filter(is).collect())
}

/// Returns the models' names with their checkpoints, or with `None` for a served model.
fn models(args: &Flags, common: &eval::Flags) -> anyhow::Result<Vec<(String, Option<PathBuf>)>> {
    let mut models: Vec<(String, Option<PathBuf>)> = Vec::new();
    for (name, path) in &args.models {
        let stays_below = !name.split('/').any(|part| part.is_empty() || part == "." || part == "..");
        if !stays_below {
            bad_input!(
                "--models: expected a name such as MODEL or MODEL/METHOD, which becomes a folder, found {name:?}"
            );
        }
        if models.iter().any(|m| m.0 == *name) {
            bad_input!("--models: {name} is listed twice");
        }
        models.push((name.clone(), Some(places::model("--models", path.clone())?)));
    }
    match (&common.server, &common.model) {
        (Some(_), Some(name)) => models.push((name.rsplit('/').next().unwrap_or(name).to_owned(), None)),
        (Some(_), None) => bad_input!("--model is required: the name of the served model"),
        (None, Some(path)) => {
            let path = PathBuf::from(path);
            models.push((name_of(&path), Some(path)));
        }
        (None, None) => {}
    }
    for (name, path) in &models {
        if let Some(path) = path
            && !(path.join("config.json").is_file() || Gguf::is(path))
        {
            bad_input!("{name}: {} is neither a folder with config.json nor a .gguf file", path.display());
        }
    }
    Ok(models)
}

/// Returns the name of a model: `RUN-step-000800` for `RUN/checkpoints/step-000800`, otherwise the folder's name.
fn name_of(path: &Path) -> String {
    let run = path.parent().filter(|p| name(p) == "checkpoints").and_then(Path::parent);
    match run.map(name) {
        Some(run) => format!("{run}-{}", name(path)),
        None => name(path),
    }
}

/// Returns the family whose prompts are used: `--preset`, or the family of the checkpoints' architecture.
fn family(
    args: &Flags,
    common: &eval::Flags,
    models: &[(String, Option<PathBuf>)],
) -> anyhow::Result<Family> {
    if let Some(family) = common.preset {
        return Ok(family);
    }
    let mut common: Option<(Family, &str)> = None;
    for (name, path) in models {
        let Some(path) = path else { continue };
        let config: serde_json::Value = if Gguf::is(path) {
            Gguf::open(path).and_then(|gguf| gguf.config()).or_bad_input()?.into()
        } else {
            json::read(&path.join("config.json"))?
        };
        let family = match config["model_type"].as_str() {
            Some("qwen2") => Family::Qwen25,
            Some("qwen3") => Family::Qwen3,
            Some("llama") => Family::Llama32,
            _ => bad_input!(
                "{name}: model_type: expected qwen2, qwen3 or llama, found {}; choose the prompts with --preset",
                config["model_type"]
            ),
        };
        if let Some((other, other_name)) = common.filter(|k| k.0 != family) {
            bad_input!(
                "--preset is required for models of several families: {other_name} is {other}, {name} is {family}"
            );
        }
        common = Some((family, name));
    }
    match common {
        Some((family, _)) => Ok(family),
        // A dry run doesn't need a model.
        None if args.dry_run => Ok(Family::Qwen25),
        None => bad_input!("--preset is required with --server: qwen2.5, qwen3 or llama3.2"),
    }
}

fn dry_run(
    args: &Flags,
    common: &eval::Flags,
    checked: &[Checked],
    models: &[(String, Option<PathBuf>)],
    family: Family,
) -> anyhow::Result<()> {
    let mut table = Table::new(["benchmark", "problems", "paper", "", "file"]).of_words();
    for c in checked {
        let verdict = match (&c.wrong, c.file == "--") {
            (None, _) => "ok",
            (Some(_), true) => "missing",
            (Some(_), false) => "differs",
        };
        table.push([c.name.as_str(), &c.problems, &c.expected, verdict, &c.file]);
    }
    out!("{}", table.render(Format::Text));
    let reports: Vec<&dataset::FilterReport> = checked.iter().filter_map(|c| c.report.as_ref()).collect();
    for c in checked {
        c.wrong.iter().for_each(|line| outln!("{line}"));
        c.report.iter().for_each(|report| out!("{}", rejected::explained(report)));
    }
    match &args.rejected {
        Some(out) => rejected::write(&reports, out)?,
        None if reports.iter().any(|report| !report.rejected.is_empty()) => {
            outln!("--rejected FILE writes all rejected rows as JSON lines");
        }
        None => {}
    }
    let n = common.n.unwrap_or(SAMPLES);
    outln!("{n} samples per problem; prompts of {family}:");
    let mut seen = Vec::new();
    for benchmark in benchmarks() {
        if seen.contains(&benchmark.kind) {
            continue;
        }
        seen.push(benchmark.kind);
        let prompt = Prompting { preset: Some(family), ..Prompting::default() }.of(benchmark.kind);
        let system = prompt.system.map_or_else(|| "no system prompt".to_owned(), |s| format!("system: {s}"));
        let thinking = prompt.thinking.map_or("", |on| if on { "; thinking on" } else { "; thinking off" });
        outln!("  {}: {system}{thinking}", benchmark.kind);
    }
    for (name, path) in models {
        let from = path.as_ref().map_or_else(|| "served".to_owned(), |p| p.display().to_string());
        outln!("model {name}: {from}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_of_a_run_is_named_by_both() {
        assert_eq!(name_of(Path::new("runs/focal/checkpoints/step-000800")), "focal-step-000800");
        assert_eq!(name_of(Path::new("models/Qwen2.5-7B")), "Qwen2.5-7B");
    }
}
