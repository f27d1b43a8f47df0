//! Candidates from folders of `fgrpo eval`, which are matched with checkpoints and averaged.

use super::recorded::is_regular;
use super::{Candidate, Candidates, Settings};
use crate::config::unknown_name;
use crate::run::checkpoint::{self, ADAPTER};
use crate::run::{Run, fingerprint};
use fgrpo_eval::benchmarks::{self, Average, Domain, canonical};
use fgrpo_eval::estimate::mean_pass_at_k;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::folder::{IDENTITY, sampled_otherwise};
use fgrpo_eval::io::files;
use fgrpo_eval::io::json;
use fgrpo_eval::samples::{self, Benchmark};
use fgrpo_nn::weights::Gguf;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Evaluations of checkpoints, indexed by model.
pub(super) struct Folders {
    /// Counted samples, indexed by model and benchmark.
    models: BTreeMap<String, BTreeMap<String, Benchmark>>,
    /// k of the metric.
    k: u64,
    /// Benchmarks whose mean is the metric.
    members: Vec<String>,
    /// Name of the metric.
    pub(super) metric: String,
}

impl Folders {
    /// Reads the evaluation folders. Returns `None` if none are given.
    pub(super) fn read(settings: &Settings) -> anyhow::Result<Option<Self>> {
        if settings.evals.is_empty() {
            return Ok(None);
        }
        let (k, mut models) = (settings.k as u64, BTreeMap::<String, BTreeMap<String, Benchmark>>::new());
        for named in &settings.evals {
            let mut folders = Vec::new();
            evaluation_folders(named, &mut folders)?;
            if folders.is_empty() {
                bad_input!("{}: contains no folder made by fgrpo eval", named.display());
            }
            for folder in folders {
                let benchmarks = models.entry(model_of(&folder)?).or_default();
                for benchmark in samples::read(&folder)? {
                    benchmark.require_samples(k)?;
                    let name = canonical(&benchmark.name);
                    if let Some(other) = benchmarks.get(&name) {
                        bad_input!(
                            "evaluations: {} and {} both have {name} of the same model",
                            folder_of(other).display(),
                            folder_of(&benchmark).display()
                        );
                    }
                    benchmarks.insert(name, benchmark);
                }
            }
        }
        let names: BTreeSet<String> = models.values().flat_map(|m| m.keys().cloned()).collect();
        let (members, metric) = metric(&names, settings.part.as_deref())?;
        for (model, benchmarks) in &models {
            for member in &members {
                let Some(measured) = benchmarks.get(member) else {
                    bad_input!(
                        "evaluations: {member} is missing for the model {model} (in {}); every checkpoint needs the same benchmarks",
                        benchmarks
                            .values()
                            .next()
                            .map_or(String::new(), |b| folder_of(b).display().to_string())
                    );
                };
                let first = models.values().find_map(|m| m.get(member)).unwrap_or(measured);
                let ids = |b: &Benchmark| b.problems.iter().map(|p| p.id.clone()).collect::<BTreeSet<_>>();
                if ids(first) != ids(measured) {
                    bad_input!(
                        "evaluations: {member} has different problems in {} and {}",
                        folder_of(first).display(),
                        folder_of(measured).display()
                    );
                }
                if let Some(how) = sampled_otherwise(folder_of(first), folder_of(measured))? {
                    bad_input!(
                        "evaluations: {} and {} were sampled differently: {how}",
                        folder_of(first).display(),
                        folder_of(measured).display()
                    );
                }
            }
        }
        Ok(Some(Self { models, k, members, metric }))
    }

    /// Returns the evaluated checkpoints of a run.
    pub(super) fn candidates(&self, run: &Run) -> anyhow::Result<Candidates> {
        let config = run.config()?;
        let mut candidates = Candidates { others: self.models.len(), ..Candidates::default() };
        for (step, path) in checkpoint::list(&run.folder.join("checkpoints"))? {
            if !is_regular(config, step) {
                continue;
            }
            if let Some(value) = self.value_of(&path)? {
                candidates.others -= 1;
                candidates.all.push(Candidate { step, value, left_out: 0, checkpoint: Some(path) });
            }
        }
        if let Some(base) = config.model.path.as_deref().filter(|p| p.exists() && config.sft.is_none()) {
            candidates.start = self.value_of(base)?;
        }
        Ok(candidates)
    }

    /// Returns the metric of the model in a folder, or `None` if it wasn't evaluated.
    fn value_of(&self, checkpoint: &Path) -> anyhow::Result<Option<f64>> {
        let adapter = checkpoint.join(ADAPTER);
        let whole = (Gguf::is(checkpoint) || checkpoint.join("config.json").is_file())
            .then(|| fingerprint::of_checkpoint(checkpoint))
            .transpose()?;
        let adapted = adapter.is_dir().then(|| fingerprint::of_adapter(&adapter)).transpose()?;
        let path = checkpoint.canonicalize().ok();
        let is_it = |model: &str| {
            whole.as_deref() == Some(model)
                || adapted.as_ref().is_some_and(|a| model.ends_with(&format!("+{a}")))
                || path.is_some() && Path::new(model).canonicalize().ok() == path
        };
        let mut matching = self.models.iter().filter(|(model, _)| is_it(model));
        let Some((model, benchmarks)) = matching.next() else { return Ok(None) };
        if let Some((other, _)) = matching.next() {
            bad_input!(
                "evaluations: {} is evaluated under two names, {model} and {other}; name only one of them",
                checkpoint.display()
            );
        }
        let values = self.members.iter().filter_map(|m| mean_pass_at_k(&benchmarks[m].problems, self.k));
        Ok(Some(values.sum::<f64>() / self.members.len() as f64))
    }
}

/// Returns the folder from which a benchmark's samples were read.
fn folder_of(benchmark: &Benchmark) -> &Path {
    benchmark.path.parent().unwrap_or(&benchmark.path)
}

/// Returns the benchmarks whose mean is the metric, and the name of the metric. By default, the benchmarks are the
/// available ones of the paper's average for mathematics, or all benchmarks if none of the average's is available.
fn metric(names: &BTreeSet<String>, part: Option<&str>) -> anyhow::Result<(Vec<String>, String)> {
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    if let Some(part) = part {
        let part = canonical(part);
        if !names.contains(&part) {
            bad_input!("part: {}", unknown_name(&part, &all));
        }
        return Ok((vec![part.clone()], part));
    }
    let math: Average = benchmarks::paper(Domain::Math).swap_remove(0);
    let available: Vec<String> = math.members.iter().filter(|m| names.contains(*m)).cloned().collect();
    let label = |members: &[String]| match members {
        [name] => name.clone(),
        names => format!("mean of {}", names.join(", ")),
    };
    Ok(match available.len() {
        0 => (names.iter().cloned().collect(), label(&names.iter().cloned().collect::<Vec<_>>())),
        n if n == math.members.len() => (available, "Avg. Math".to_owned()),
        _ => {
            let name = label(&available);
            (available, name)
        }
    })
}

/// Collects the evaluation folders at a path: the folder itself, or evaluation folders in it, at any depth.
fn evaluation_folders(path: &Path, folders: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if path.join(IDENTITY).is_file() {
        folders.push(path.to_owned());
        return Ok(());
    }
    let entries = files::listed(path).or_bad_input()?;
    entries.iter().filter(|p| p.is_dir()).try_for_each(|folder| evaluation_folders(folder, folders))
}

/// Returns the path of the model that an evaluation folder belongs to. Fails if the folder doesn't name a model.
fn model_of(folder: &Path) -> anyhow::Result<String> {
    let path = folder.join(IDENTITY);
    let identity: serde_json::Value = json::read(&path)?;
    match identity["model"].as_str() {
        // An evaluation during training: `evaluations/step-000200` belongs to `checkpoints/step-000200`.
        Some(model) if identity["source"] == "training" => {
            Ok(folder.join("../../checkpoints").join(model).display().to_string())
        }
        Some(model) => Ok(model.to_owned()),
        None => bad_input!("{}: \"model\" is missing", path.display()),
    }
}
