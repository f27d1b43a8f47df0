//! Candidates from folders of `fgrpo eval`: which checkpoint each belongs to, and its average.

use super::recorded::is_regular;
use super::{Candidate, Candidates, Settings};
use crate::run::checkpoint::{self, ADAPTER};
use crate::run::{Run, fingerprint};
use fgrpo_eval::benchmarks::{self, Average, Domain, canonical};
use fgrpo_eval::estimate::mean_pass_at_k;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::folder::IDENTITY;
use fgrpo_eval::io::files;
use fgrpo_eval::io::json;
use fgrpo_eval::samples::{self, Benchmark};
use fgrpo_nn::weights::Gguf;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Evaluations of checkpoints, by the model that they name.
pub(super) struct Folders {
    /// Counted samples by model and benchmark.
    models: BTreeMap<String, BTreeMap<String, Benchmark>>,
    /// k of the metric.
    k: u64,
    /// Benchmarks whose mean is the metric.
    members: Vec<String>,
    /// What the metric is called.
    pub(super) metric: String,
}

impl Folders {
    /// Reads the evaluation folders. `None` if there are none.
    pub(super) fn read(settings: &Settings) -> anyhow::Result<Option<Self>> {
        if settings.evals.is_empty() {
            return Ok(None);
        }
        let (k, mut models) = (settings.k as u64, BTreeMap::<String, BTreeMap<String, Benchmark>>::new());
        for named in &settings.evals {
            let mut held = Vec::new();
            evaluation_folders(named, &mut held)?;
            if held.is_empty() {
                bad_input!(
                    "{}: found no evaluation.json in it, wanted folders that fgrpo eval made",
                    named.display()
                );
            }
            for folder in held {
                let own = models.entry(model_of(&folder)?).or_default();
                for benchmark in samples::read(&folder)? {
                    benchmark.require_samples(k)?;
                    let name = canonical(&benchmark.name);
                    if let Some(before) = own.get(&name) {
                        bad_input!(
                            "evaluations: found {name} of the same model in {} and {}, wanted it once",
                            folder_of(before),
                            folder_of(&benchmark)
                        );
                    }
                    own.insert(name, benchmark);
                }
            }
        }
        let names: BTreeSet<String> = models.values().flat_map(|m| m.keys().cloned()).collect();
        let (members, metric) = metric(&names, settings.part.as_deref())?;
        for (model, own) in &models {
            for member in &members {
                let Some(measured) = own.get(member) else {
                    bad_input!(
                        "evaluations: found no {member} of the model {model} (in {}), wanted the same benchmarks of every checkpoint",
                        own.values().next().map_or(String::new(), |b| folder_of(b).to_string())
                    );
                };
                let first = models.values().find_map(|m| m.get(member)).unwrap_or(measured);
                let ids = |b: &Benchmark| b.problems.iter().map(|p| p.id.clone()).collect::<BTreeSet<_>>();
                if ids(first) != ids(measured) {
                    bad_input!(
                        "evaluations: found different problems of {member} in {} and {}",
                        folder_of(first),
                        folder_of(measured)
                    );
                }
            }
        }
        Ok(Some(Self { models, k, members, metric }))
    }

    /// The evaluated checkpoints of a run.
    pub(super) fn candidates(&self, run: &Run) -> anyhow::Result<Candidates> {
        let config = run.config()?;
        let mut found = Candidates { others: self.models.len(), ..Candidates::default() };
        for (step, path) in checkpoint::list(&run.folder.join("checkpoints"))? {
            if !is_regular(config, step) {
                continue;
            }
            if let Some(value) = self.value_of(&path)? {
                found.others -= 1;
                found.all.push(Candidate { step, value, compute: 0.0, checkpoint: Some(path) });
            }
        }
        if let Some(base) = config.model.path.as_deref().filter(|p| p.exists() && config.sft.is_none()) {
            found.start = self.value_of(base)?;
        }
        Ok(found)
    }

    /// The metric of the model in a folder, if it was evaluated.
    fn value_of(&self, checkpoint: &Path) -> anyhow::Result<Option<f64>> {
        let adapter = checkpoint.join(ADAPTER);
        let whole = (Gguf::is(checkpoint) || checkpoint.join("config.json").is_file())
            .then(|| fingerprint::of_checkpoint(checkpoint))
            .transpose()?;
        let adapted = adapter.is_dir().then(|| fingerprint::of_adapter(&adapter)).transpose()?;
        let place = checkpoint.canonicalize().ok();
        let is_it = |model: &str| {
            whole.as_deref() == Some(model)
                || adapted.as_ref().is_some_and(|a| model.ends_with(&format!("+{a}")))
                || place.is_some() && Path::new(model).canonicalize().ok() == place
        };
        let mut named = self.models.iter().filter(|(model, _)| is_it(model));
        let Some((model, own)) = named.next() else { return Ok(None) };
        if let Some((other, _)) = named.next() {
            bad_input!(
                "evaluations: found evaluations of {} as {model} and as {other}, wanted those of one",
                checkpoint.display()
            );
        }
        let values = self.members.iter().filter_map(|m| mean_pass_at_k(&own[m].problems, self.k));
        Ok(Some(values.sum::<f64>() / self.members.len() as f64))
    }
}

/// The folder that a benchmark's samples were read from, as it is shown.
fn folder_of(benchmark: &Benchmark) -> std::path::Display<'_> {
    benchmark.path.parent().unwrap_or(&benchmark.path).display()
}

/// The benchmarks whose mean is the metric, and its name: the one asked for; else the paper's average of mathematics;
/// where that isn't whole, what there is of it, and without any the mean of everything.
fn metric(names: &BTreeSet<String>, part: Option<&str>) -> anyhow::Result<(Vec<String>, String)> {
    let all = names.iter().cloned().collect::<Vec<_>>().join(", ");
    if let Some(part) = part {
        let part = canonical(part);
        if !names.contains(&part) {
            bad_input!("part {part}: found the benchmarks {all}");
        }
        return Ok((vec![part.clone()], part));
    }
    let math: Average = benchmarks::paper(Domain::Math).swap_remove(0);
    let there: Vec<String> = math.members.iter().filter(|m| names.contains(*m)).cloned().collect();
    let label = |members: &[String]| match members {
        [one] => one.clone(),
        many => format!("mean of {}", many.join(", ")),
    };
    Ok(match there.len() {
        0 => (names.iter().cloned().collect(), label(&names.iter().cloned().collect::<Vec<_>>())),
        n if n == math.members.len() => (there, "Avg. Math".to_owned()),
        _ => {
            let name = label(&there);
            (there, name)
        }
    })
}

/// The folder itself if it is an evaluation's, else those that it holds, at any depth.
fn evaluation_folders(path: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if path.join(IDENTITY).is_file() {
        found.push(path.to_owned());
        return Ok(());
    }
    let entries = files::listed(path).or_bad_input()?;
    entries.iter().filter(|p| p.is_dir()).try_for_each(|folder| evaluation_folders(folder, found))
}

/// The model that an evaluation folder belongs to.
fn model_of(folder: &Path) -> anyhow::Result<String> {
    let path = folder.join(IDENTITY);
    let identity: serde_json::Value = json::read(&path)?;
    match identity["model"].as_str() {
        // A run's own evaluation, `evaluations/step-000200` beside `checkpoints/step-000200`.
        Some(model) if identity["source"] == "training" => {
            Ok(folder.join("../../checkpoints").join(model).display().to_string())
        }
        Some(model) => Ok(model.to_owned()),
        None => bad_input!("{}: found no \"model\"", path.display()),
    }
}
