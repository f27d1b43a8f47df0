//! A training job for a distributed trainer, written from the configuration of a run on one machine.
//!
//! The job has the problems in the order in which `fgrpo train` uses them, the trainer's settings, a reward function,
//! and a script that converts the result back. If the trainer lacks a setting, the export fails and names the setting,
//! unless the caller allows the difference. The job's README lists all differences.

mod files;
mod mapping;
mod rows;
mod skyrl;
mod trl;
mod verl;

use crate::config::{Config, TaskConfig, TextConfig};
use crate::problem::{Split, Task};
use crate::run::seeds;
use anyhow::Context;
use fgrpo_eval::io::files::{Existing, parent, publish};
use fgrpo_eval::io::shell::quoted;
use fgrpo_eval::names::Named;
use fgrpo_eval::problems::keyed;
use mapping::Mapping;
use minijinja::{Environment, UndefinedBehavior, context};
use rows::row;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

named! {
    /// A trainer that a job can be written for.
    pub enum Trainer {
        Verl = "verl": "verl 0.9.1: Ray, FSDP2, and vLLM or SGLang",
        Trl = "trl": "TRL 1.16: Accelerate, FSDP2 and vLLM",
        Skyrl = "skyrl": "SkyRL 0.3.0: Ray, FSDP2 and vLLM",
    }
}

impl Trainer {
    /// Returns the version of the trainer with which the mapping was checked.
    fn version(self) -> &'static str {
        match self {
            Self::Verl => "0.9.1",
            Self::Trl => "1.16.0",
            Self::Skyrl => "0.3.0",
        }
    }

    /// Returns the trainer's `keys.toml`, which maps each key of our configuration to the trainer's key.
    fn table(self) -> &'static str {
        match self {
            Self::Verl => include_str!("export/verl/keys.toml"),
            Self::Trl => include_str!("export/trl/keys.toml"),
            Self::Skyrl => include_str!("export/skyrl/keys.toml"),
        }
    }

    /// Returns the files of the job, each as a name and a template. Files whose names end in `.sh` are programs.
    fn files(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Verl => &[
                ("run.sh", include_str!("export/verl/run.sh")),
                ("reward.py", include_str!("export/reward.py")),
                ("back.sh", include_str!("export/verl/back.sh")),
                ("README.md", include_str!("export/README.md")),
            ],
            Self::Trl => &[
                ("train.py", include_str!("export/trl/train.py")),
                ("accelerate.yaml", include_str!("export/trl/accelerate.yaml")),
                ("reward.py", include_str!("export/reward.py")),
                ("back.sh", include_str!("export/back.sh")),
                ("README.md", include_str!("export/README.md")),
            ],
            Self::Skyrl => &[
                ("train.py", include_str!("export/skyrl/train.py")),
                ("reward.py", include_str!("export/reward.py")),
                ("back.sh", include_str!("export/back.sh")),
                ("README.md", include_str!("export/README.md")),
            ],
        }
    }
}

named! {
    /// The inference engine that samples in the job.
    pub enum Sampler {
        Vllm = "vllm": "vLLM",
        Sglang = "sglang": "SGLang",
    }
}

named! {
    /// The order of the training problems.
    pub enum Order {
        Listed = "listed": "the order of `fgrpo train`: every step has the same prompts",
        Shuffle = "shuffle": "an order that the trainer draws",
    }
}

/// The cluster, and the differences from the run on one machine that are accepted.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// Path or hub name of the checkpoint on the cluster. If `None`, `model.path` of the configuration is used.
    pub model: Option<String>,
    /// Number of machines.
    pub nodes: usize,
    /// Number of GPUs of each machine.
    pub gpus: usize,
    /// Number of GPUs that share one copy of the sampler's weights.
    pub tensor_parallel: usize,
    /// The inference engine.
    pub sampler: Sampler,
    /// The order of the training problems.
    pub order: Order,
    /// Keys of the configuration that may differ; `all` allows every difference.
    pub allow: BTreeSet<String>,
    /// Table and row of the paper that the job trains.
    pub row: Option<(String, String)>,
}

impl Cluster {
    /// Returns the number of GPUs, each of which has one process.
    fn processes(&self) -> usize {
        self.nodes * self.gpus
    }

    /// Refuses a mini-batch if its number of completions isn't divisible by the number of GPUs.
    fn divides(&self, m: &mut Mapping, completions: usize) {
        let gpus = self.processes();
        if !completions.is_multiple_of(gpus) {
            let why = format!("a mini-batch has {completions} completions, which {gpus} GPUs don't divide");
            m.forbid("update.mini_batch", why);
        }
    }
}

/// Facts about a written job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Number of training problems.
    pub problems: u64,
    /// Number of held-out problems.
    pub held_out: usize,
    /// Number of steps.
    pub steps: u64,
    /// Number of the trainer's settings that the job sets.
    pub settings: usize,
    /// Differences from the run on one machine: the key, and the difference.
    pub differences: Vec<(String, String)>,
}

/// Sizes of a run that its problems decide.
struct Sizes {
    steps: u64,
    /// Number of steps in a pass over the file of training problems.
    pass: u64,
    /// Whether that file has the problems of every step, in order.
    listed: bool,
    held_out: usize,
    /// Number of steps from one checkpoint to the next.
    save_every: u64,
    /// Maximum number of tokens of a prompt.
    prompt_limit: usize,
    /// Maximum number of tokens of a completion.
    limit: usize,
    /// Value of `enable_thinking` for the chat template, if the task sets it.
    thinking: Option<bool>,
}

impl Sizes {
    /// Returns the maximum number of tokens of a micro-batch on one GPU. At least one completion fits in it.
    fn micro_batch(&self, config: &Config) -> usize {
        let longest = self.prompt_limit + self.limit;
        config.update.micro_batch_tokens().clamp(longest, 2 * longest)
    }
}

/// Writes the job of a configuration into the folder `out`. If this fails, `out` isn't created.
///
/// `written` has the paths and hub names that the user wrote; `local` has the files on this machine, where the problems
/// are read and counted. `name` is the name of the experiment.
///
/// Fails, with every cause in one message, if the trainer lacks a setting that `cluster.allow` doesn't name. Also fails
/// if the task doesn't have a data set, or `out` exists.
pub fn write(
    trainer: Trainer,
    (written, local): (&Config, &Config),
    name: &str,
    cluster: &Cluster,
    out: &Path,
) -> anyhow::Result<Summary> {
    let model = model(written, cluster)?;
    let listed = cluster.order == Order::Listed;
    let thinking = thinking(&local.task)?;
    let mixed = matches!(local.task, TaskConfig::Mix(_));
    if mixed && !listed {
        bad_input!("task.kind: {trainer} doesn't support a mix by weight; set the order to listed");
    }
    let task = Task::open(local)?;
    let config = local.resolved(task.len(Split::Train))?;
    let mut sets = task.held_out();
    keyed(&mut sets, None);

    let prompts = config.rollout.prompts as u64;
    let problems = task.len(Split::Train);
    let sizes = Sizes {
        steps: config.steps,
        pass: if listed { config.steps } else { problems / prompts },
        listed,
        held_out: sets.iter().map(|set| set.problems.len()).sum(),
        save_every: Some(config.save.every.steps(0)).filter(|every| *every > 0).unwrap_or(config.steps),
        prompt_limit: config.task.max_prompt_tokens().unwrap_or(1024),
        limit: config.rollout.max_new_tokens.unwrap_or(task.max_new_tokens()),
        thinking,
    };
    if sizes.steps == 0 {
        bad_input!("steps: the job needs a number of steps, or epochs");
    }
    if sizes.pass == 0 {
        bad_input!("rollout.prompts: expected at most the {problems} training problems, found {prompts}");
    }
    let mut mapping = Mapping::new(trainer.table(), &config, cluster.allow.clone());
    if !listed {
        mapping.state("task.data:order");
    }
    if trainer != Trainer::Skyrl && !config.task.stop().is_empty() {
        mapping.state("task.stop");
    }
    match trainer {
        Trainer::Verl => verl::map(&mut mapping, &config, name, cluster, &sizes),
        Trainer::Trl => trl::map(&mut mapping, &config, cluster, &sizes),
        Trainer::Skyrl => skyrl::map(&mut mapping, &config, name, cluster, &sizes),
    }
    let Mapping { settings, differences, .. } = mapping.finished()?;
    let lines = |owner| match trainer {
        Trainer::Verl => verl::lines(&settings),
        Trainer::Trl => trl::lines(&settings, owner),
        Trainer::Skyrl => skyrl::lines(&settings, owner),
    };

    let folder =
        out.file_name().context("the folder of the job needs a name")?.to_string_lossy().into_owned();
    if out.exists() {
        bad_input!("{} exists; name a new folder for the job", out.display());
    }
    publish(parent(out), &folder, Existing::Keep, |folder| {
        let copied = files::copy(folder, (written, local), &model)?;
        fs::write(folder.join("config.toml"), copied.to_toml())?;
        let order = seeds::prompts(config.seed);
        let ids =
            if listed { task.training(order, 0..sizes.steps * prompts) } else { (0..problems).collect() };
        let asked = |id| {
            let prompt = task.prompt(Split::Train, id);
            row(task.part(&prompt), task.set(&prompt), &prompt.problem)
        };
        rows::write(&folder.join("train.parquet"), "train", ids.into_iter().map(asked))?;
        let limit = config.eval.problems.unwrap_or(usize::MAX);
        let held_out = sets.iter().flat_map(|set| {
            let part = mixed.then_some(set.name.as_str());
            set.problems.iter().take(limit).map(move |problem| row(part, set, problem))
        });
        // verl reads this file even if it doesn't validate, and ends if the file has no row.
        let filler = (trainer == Trainer::Verl && sizes.held_out == 0).then(|| asked(0));
        rows::write(&folder.join("held-out.parquet"), "held-out", held_out.chain(filler))?;
        let job = json!({
            "trainer": trainer.name(), "version": trainer.version(), "fgrpo": env!("CARGO_PKG_VERSION"),
            "name": name, "model": model, "problems": problems, "held_out": sizes.held_out,
            "steps": sizes.steps, "settings": settings, "differences": differences,
        });
        fs::write(folder.join("job.json"), serde_json::to_string_pretty(&job)?)?;
        let values = context! {
            trainer => trainer.name(), version => trainer.version(), name,
            model_literal => json!(model).to_string(), model => quoted(&model), settings => lines("config"),
            trainer_settings => lines("trainer"), adapter_settings => lines("lora"),
            differences => &differences, nodes => cluster.nodes, gpus => cluster.gpus,
            problems, held_out => sizes.held_out, steps => sizes.steps, prompts,
            group_size => config.rollout.group_size, listed, lora => config.lora.is_some(), sampler => cluster.sampler.name(),
            full => config.eval.full.is_some(), row => &cluster.row,
            grader => folder.join(files::GRADER).exists(),
            k => config.eval.full.as_ref().map_or(&config.eval.k, |full| &full.k),
        };
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        for (name, template) in trainer.files() {
            let path = folder.join(name);
            fs::write(&path, environment.render_str(template, &values)? + "\n")?;
            if name.ends_with(".sh") {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
            }
        }
        Ok(())
    })?;
    Ok(Summary {
        problems,
        held_out: sizes.held_out,
        steps: sizes.steps,
        settings: settings.len(),
        differences,
    })
}

/// Returns the value of `enable_thinking` for the chat template.
///
/// Fails for a mix whose parts have different values, and for tasks without a data set.
fn thinking(task: &TaskConfig) -> anyhow::Result<Option<bool>> {
    let mut thinking: Vec<Option<bool>> =
        texts(task)?.iter().map(|(_, text)| text.prompting().of(text.kind()).thinking).collect();
    thinking.dedup();
    if thinking.len() > 1 {
        bad_input!(
            "task.parts: some parts set enable_thinking and others don't; the trainer has one setting for all problems"
        );
    }
    Ok(thinking[0])
}

/// Returns the checkpoint that the job trains.
///
/// Fails if the model is a GGUF file, or if `cluster` doesn't name a model and the configuration makes its model itself
/// (`[sft]`, `[model.init]`).
fn model(config: &Config, cluster: &Cluster) -> anyhow::Result<String> {
    let model = match (&cluster.model, &config.model.path) {
        (Some(model), _) => model.clone(),
        (None, _) if config.sft.is_some() => bad_input!(
            "[sft]: the job has no supervised stage; run `fgrpo sft` and name its checkpoint as the model"
        ),
        // A relative path would be wrong, because run.sh and back.sh run in another folder.
        (None, Some(path)) => on_disk(path),
        (None, None) => bad_input!(
            "[model.init]: the job needs a checkpoint; make one with `fgrpo sft` or `fgrpo init` and name it as the model"
        ),
    };
    if model.ends_with(".gguf") {
        bad_input!(
            "model.path: {model}: the trainer only reads checkpoint folders; convert the model with `fgrpo merge`"
        );
    }
    Ok(model)
}

/// Makes an existing path absolute. Other strings are names in the hub and stay unchanged.
fn on_disk(path: &Path) -> String {
    let path = if path.exists() { std::path::absolute(path) } else { Ok(path.to_owned()) };
    path.unwrap_or_default().display().to_string()
}

/// Returns the tasks with problems from files, by name: the task itself, or the parts of a mix.
///
/// Fails for mazes, generated problems and environments, because another trainer can't read their problems from a file.
fn texts(task: &TaskConfig) -> anyhow::Result<Vec<(String, &TextConfig)>> {
    let parts: Vec<(String, &TaskConfig)> = match task {
        TaskConfig::Mix(mix) => mix.parts.iter().map(|part| (part.name(), &part.task)).collect(),
        one => vec![(one.kind().to_owned(), one)],
    };
    let mut texts = Vec::new();
    for (name, task) in parts {
        match task.text() {
            None => bad_input!(
                "task.kind: {} generates its problems, which the job can't do; use a task with a data set",
                task.kind()
            ),
            Some(text) if text.environment.is_some() => bad_input!(
                "task.environment: environments can't be exported to this trainer, which would need an agent loop of its own; use TRL with the same class (docs/environments.md)"
            ),
            Some(text) => texts.push((name, text)),
        }
    }
    Ok(texts)
}
