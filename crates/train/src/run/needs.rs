//! Estimates the memory, disk space and time that a run needs. The time is based on a speed measurement of a tenth of
//! a second. If the checkpoint doesn't exist yet, the table `[model.size]` gives the size of the model.

mod disk;
mod fit;
mod memory;
mod time;

pub use disk::Disk;
pub use fit::{Fit, GPU_KINDS, Room, costly_evaluation, decided};
pub use memory::{Memory, refuse_uncountable};
pub use time::{ACTIVE, Time};

use crate::config::{Config, EvalConfig};
use crate::policy::model_config;
use crate::problem::text::MAX_NEW_TOKENS;
use crate::problem::{Prompt, Split, Task};
use fgrpo_eval::dataset;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_nn::config::Config as ModelConfig;
use fgrpo_nn::weights::Checkpoint;
use fgrpo_nn::{Precision, numbers_per_token};
use std::collections::HashSet;
use std::path::PathBuf;

/// Number of problems sampled to estimate typical lengths.
const SAMPLE: u64 = 256;

/// Returns the sizes of the policy, or `None` if they are unknown.
pub fn model(config: &Config, task: Option<&Task>) -> anyhow::Result<Option<ModelConfig>> {
    match (&config.model.path, &config.model.init) {
        (_, Some(init)) => Ok(task.map(|task| model_config(init, task, config.rollout.max_new_tokens))),
        (Some(path), None) if path.exists() => {
            let sizes = Checkpoint::open(path).or_bad_input()?.config().clone();
            config.model.check_size(&sizes)?;
            Ok(Some(sizes))
        }
        _ => Ok(config.model.size.as_ref().map(|size| size.config())),
    }
}

/// Returns the sizes of a teacher that is a separate model. Returns `None` without such a teacher, or if it doesn't
/// exist yet.
pub fn teacher(config: &Config) -> anyhow::Result<Option<ModelConfig>> {
    let Some(teacher) = config.teacher.as_ref().filter(|teacher| !teacher.shares_base(config)) else {
        return Ok(None);
    };
    let path = if teacher.is_adapter() { config.model.path.as_ref() } else { teacher.path.as_ref() };
    let Some(path) = path.filter(|path| path.exists()) else { return Ok(None) };
    Ok(Some(Checkpoint::open(path).or_bad_input()?.config().clone()))
}

/// Returns the files and folders that the configuration names, but that don't exist, each once.
pub fn missing(config: &Config) -> Vec<PathBuf> {
    let mut paths: Vec<&PathBuf> = config.model.path.iter().collect();
    paths.extend(config.teacher.iter().filter_map(|teacher| teacher.path.as_ref()));
    paths.extend(config.task.paths());
    let mut seen = HashSet::new();
    paths.into_iter().filter(|p| seen.insert(*p) && !dataset::exists(p)).cloned().collect()
}

/// Lengths of prompts and completions, in tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lengths {
    /// Length of the longest prompt.
    pub prompt_longest: usize,
    /// Mean length of the prompts.
    pub prompt_mean: f64,
    /// Length of the longest completion.
    pub completion_longest: usize,
    /// Length of completions that is assumed to estimate the time.
    pub completion_likely: f64,
    /// Source of `completion_likely`, as a phrase.
    pub likely_source: &'static str,
    /// Number of training problems, if the data exists.
    pub train: Option<u64>,
    /// Number of held-out problems in one evaluation, if known.
    pub held_out: Option<usize>,
    /// Number of held-out problems in one full evaluation, if known.
    pub held_out_in_full: Option<usize>,
    /// Whether the data exists, in which case this process has loaded it.
    pub measured: bool,
}

impl Lengths {
    /// Measures the lengths of a task. Without a task, uses the configured limits.
    pub fn of(config: &Config, task: Option<&Task>) -> Self {
        let limit = config.rollout.max_new_tokens;
        let prompt_longest = match task {
            Some(task) => task.longest_prompt(),
            None => config.task.max_prompt_tokens().unwrap_or(0),
        };
        // The length of an environment's answers is unknown and isn't counted.
        let completion_longest = match task {
            Some(task) => limit.unwrap_or(task.max_new_tokens()) * task.max_turns(),
            None => limit.unwrap_or(MAX_NEW_TOKENS),
        };
        let mean = |length: &dyn Fn(&Task, &Prompt) -> Option<usize>| {
            let task = task?;
            let prompts = (0..task.len(Split::Train).min(SAMPLE)).map(|id| task.prompt(Split::Train, id));
            let lengths: Vec<usize> = prompts.filter_map(|prompt| length(task, &prompt)).collect();
            (!lengths.is_empty()).then(|| lengths.iter().sum::<usize>() as f64 / lengths.len() as f64)
        };
        let prompts = mean(&|_, prompt| Some(prompt.tokens.len()));
        let demonstrations = mean(&|task, prompt| task.demonstration(prompt).map(|tokens| tokens.len()));
        let parts = task.map(Task::held_out);
        let held_out = |limit: Option<usize>| match &parts {
            Some(parts) => {
                Some(parts.iter().map(|p| limit.unwrap_or(usize::MAX).min(p.problems.len())).sum())
            }
            None => limit,
        };
        let longest = completion_longest as f64;
        Self {
            prompt_longest,
            prompt_mean: prompts.unwrap_or(if task.is_some() { 0.0 } else { prompt_longest as f64 }),
            completion_longest,
            completion_likely: demonstrations.unwrap_or(longest).min(longest),
            likely_source: match demonstrations {
                Some(_) => "the mean of the demonstrations",
                None => "the longest allowed",
            },
            train: task.map(|task| task.len(Split::Train)),
            held_out: held_out(config.eval.problems),
            held_out_in_full: config.eval.full.as_ref().and_then(|full| held_out(full.problems)),
            measured: task.is_some(),
        }
    }

    /// Replaces the mean lengths of prompts and completions, in tokens. Means are at most the longest lengths.
    pub fn with_means(self, [prompt, completion]: [f64; 2]) -> Self {
        Self {
            prompt_mean: prompt.min(self.prompt_longest as f64),
            completion_likely: completion.min(self.completion_longest as f64),
            likely_source: "the given mean",
            ..self
        }
    }

    /// Returns the evaluations of a configuration, each with its number of problems.
    fn evaluations(&self, config: &Config) -> Vec<(EvalConfig, usize)> {
        let usual = config.eval.usual().map(|e| (e, self.held_out.unwrap_or(0)));
        let full = config.eval.full().map(|e| (e, self.held_out_in_full.unwrap_or(0)));
        usual.into_iter().chain(full).collect()
    }
}

/// Returns the maximum number of tokens in a rollout batch.
pub fn tokens_per_step(config: &Config, lengths: &Lengths) -> u64 {
    let r = &config.rollout;
    (r.prompts * (lengths.prompt_longest + r.group_size * lengths.completion_longest)) as u64
}

/// Returns the bytes of a token's keys and values in all layers.
pub fn token_bytes(c: &ModelConfig, precision: Precision) -> u64 {
    (numbers_per_token(c) * precision.bytes()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::parse;
    use crate::config::{Epoch, Every};
    use fgrpo_nn::DeviceName;

    #[test]
    fn the_paper_maze_model_has_the_parameters_we_say() {
        let text = include_str!("../../../../configs/maze-17.toml");
        let config = Config::parse(text, &[]).unwrap();
        let task = Task::open(&config).unwrap();
        let model = model_config(config.model.init.as_ref().unwrap(), &task, None);
        assert_eq!(model.parameters(), 3_944_704);
        assert_eq!(task.prompt(Split::Train, 0).tokens.len(), 310);
    }

    #[test]
    fn the_papers_configurations_are_read_with_the_papers_settings() {
        // The parameter counts of the published checkpoints.
        for (text, length, parameters) in [
            (include_str!("../../../../configs/qwen2.5-7b-math.toml"), 8192, 7_615_616_512),
            (include_str!("../../../../configs/qwen3-4b-base-math.toml"), 4096, 4_022_468_096),
            (include_str!("../../../../configs/llama-3.2-3b-math.toml"), 8192, 3_212_749_824),
            (include_str!("../../../../configs/qwen3-1.7b-synlogic.toml"), 4096, 1_720_574_976),
        ] {
            let config = Config::parse(text, &[]).unwrap();
            assert_eq!((config.rollout.prompts, config.rollout.group_size), (256, 8));
            assert_eq!((config.update.mini_batch, config.update.lr), (Some(64), 1e-6));
            assert_eq!(config.rollout.max_new_tokens, Some(length));
            // No files exist, so the missing ones are listed instead of an error.
            let synlogic = config.task.kind() == "synlogic";
            assert_eq!(missing(&config).len(), if synlogic { 2 } else { 3 });
            assert_eq!((config.epochs, config.save.every), (Some(10), Every::Epoch(Epoch::Epoch)));
            let lengths = Lengths::of(&config, None);
            assert_eq!(tokens_per_step(&config, &lengths), 256 * (1024 + 8 * length as u64));
            let model = model(&config, None).unwrap().unwrap();
            assert_eq!(model.parameters(), parameters);
            let memory = Memory::of(&config, &model, &lengths, None);
            assert!(memory.engine.weights >= 4 * parameters && memory.program == 0);
        }
    }

    #[test]
    fn a_checkpoint_of_another_size_than_the_table_says_is_refused() {
        let text = include_str!("../../../../configs/qwen3-1.7b-synlogic.toml");
        let config = Config::parse(text, &[]).unwrap();
        let right = config.model.size.as_ref().unwrap().config();
        config.model.check_size(&right).unwrap();
        let wrong = ModelConfig { num_hidden_layers: 36, ..right.clone() };
        let error = format!("{:#}", config.model.check_size(&wrong).unwrap_err());
        for fact in ["model.size.num_hidden_layers: ", "models/Qwen3-1.7B", "36", "28"] {
            assert!(error.contains(fact), "{error}");
        }
        let refusal = |set: &str| format!("{:#}", parse(text, &[set]).unwrap_err());
        assert!(refusal("model.size.vocab_size=0").contains("model.size.vocab_size: "));
        assert!(refusal("model.size.layers=3").contains("layers"));
        let recurrent = "model.size.linear_num_value_heads";
        assert!(refusal(&format!("{recurrent}=16")).contains("qwen3 has no recurrent layers"));
        let set = |heads: usize| {
            parse(text, &["model.size.architecture=\"qwen3_5_text\"", &format!("{recurrent}={heads}")])
        };
        assert!(format!("{:#}", set(17).unwrap_err()).contains("linear_num_value_heads"));
        let error = format!("{:#}", set(16).unwrap().model.check_size(&right).unwrap_err());
        assert!(error.contains("model.size.architecture"), "{error}");
        assert!(refusal("model.size.architecture=\"qwen3_5_text\"").contains("linear_num_value_heads"));
    }

    #[test]
    fn settings_are_proposed_that_make_a_model_fit_its_gpu() {
        let text = include_str!("../../../../configs/qwen3-1.7b-synlogic.toml");
        let config = Config::parse(text, &[]).unwrap();
        let lengths = Lengths::of(&config, None);
        let model = model(&config, None).unwrap().unwrap();
        let device = "cuda".parse().unwrap();
        let shortage = |gigabytes: u64, config: &Config| {
            let room = Room { memory: gigabytes * 1_000_000_000, name: "it".to_owned() };
            Fit { model: &model, teacher: None, lengths: &lengths, device, room: Some(&room) }
                .shortage(config)
        };
        assert_eq!(shortage(2000, &config), None);
        assert!(shortage(1, &config).unwrap().contains("no three settings make it fit"));
        let text = shortage(24, &config).unwrap();
        let sets: Vec<&str> =
            text.split("--set ").skip(1).map(|set| set.split(' ').next().unwrap()).collect();
        assert!((1..=3).contains(&sets.len()), "{text}");
        let changed = parse(&config.to_toml(), &sets).unwrap();
        assert_eq!(shortage(24, &changed), None, "{text}");
    }

    #[test]
    fn a_default_evaluation_that_costs_more_than_a_fifth_of_training_gets_a_warning() {
        // GSM8K's held-out part.
        let lengths = |config: &Config| Lengths { held_out: Some(1319), ..Lengths::of(config, None) };
        let warning = |set: &[&str]| {
            let text = "steps = 9\n[task]\nkind = \"math\"\ndata = \"x.jsonl\"\n[model]\npath = \"m\"\n[rollout]\nprompts = 256\ngroup_size = 8\n";
            let config = parse(text, set).unwrap();
            costly_evaluation(&config, &lengths(&config))
        };
        let text = warning(&[]).unwrap();
        let costs = "84416 completions (1319 problems x 64) every 25 steps, in which training samples 51200";
        assert!(text.contains(costs), "{text}");
        let set = text.split("--set ").nth(1).unwrap().split(' ').next().unwrap();
        assert_eq!(set, "eval.problems=160");
        assert_eq!(warning(&[set]), None);
        let text = warning(&["rollout.prompts=8"]).unwrap();
        let set = text.split("--set ").nth(1).unwrap().split(' ').next().unwrap();
        assert_eq!(set, "eval.every=6595");
        assert_eq!(warning(&["rollout.prompts=8", set]), None);
        // A configured evaluation doesn't cause a warning.
        assert_eq!(warning(&["eval.samples=256"]), None);
    }

    fn small(set: &[&str]) -> (Config, ModelConfig, Lengths) {
        let config = parse(include_str!("../../../../configs/maze-quick.toml"), set).unwrap();
        let task = Task::open(&config).unwrap();
        let model = model_config(config.model.init.as_ref().unwrap(), &task, None);
        let lengths = Lengths::of(&config, Some(&task));
        (config, model, lengths)
    }

    #[test]
    fn memory_follows_the_settings_that_decide_it() {
        let memory = |set: &[&str]| {
            let (config, model, lengths) = small(set);
            Memory { program: 0, ..Memory::of(&config, &model, &lengths, None) }
        };
        let base = memory(&["compute.threads=2"]);
        assert_eq!(2 * memory(&["compute.threads=1"]).engine.gradient, base.engine.gradient);
        assert_eq!(memory(&["compute.threads=16"]).engine.gradient, base.engine.gradient);
        assert_eq!(memory(&["compute.threads=2", "algorithm.kl_coef=0.1"]).reference, base.engine.weights);
        let checkpointed = memory(&["compute.threads=2", "compute.checkpoint_activations=true"]);
        assert!(checkpointed.engine.activations < base.engine.activations);
        let bounded = memory(&["compute.threads=2", "rollout.max_cached_tokens=1000"]);
        assert!(bounded.engine.cache < base.engine.cache);
        let cut = memory(&["compute.threads=2", "update.micro_batch_tokens=1"]);
        assert!(cut.engine.activations <= base.engine.activations);
    }

    #[test]
    fn memory_decides_the_settings_that_are_neither_configured_nor_recorded() {
        let (config, model, lengths) = small(&["compute.threads=2"]);
        // Leave out the memory of this process, because it changes while other tests run.
        let lengths = Lengths { measured: false, ..lengths };
        let decided = |config: &Config, memory: u64| {
            let room = Room { memory, name: "a test".to_owned() };
            let fit = Fit {
                model: &model,
                teacher: None,
                lengths: &lengths,
                device: DeviceName::Cpu,
                room: Some(&room),
            };
            let decided = fit.decided(config);
            let (tokens, checkpointing) =
                (decided.update.micro_batch_tokens(), decided.compute.checkpointing());
            (fit.shortage(&decided).is_none(), tokens, checkpointing)
        };
        assert_eq!(decided(&config, u64::MAX), (true, 1 << 16, false));
        let needed = |tokens: usize, checkpointing: bool| {
            let (tokens, checkpointing) = (
                format!("update.micro_batch_tokens={tokens}"),
                format!("compute.checkpoint_activations={checkpointing}"),
            );
            let config = small(&["compute.threads=2", &tokens, &checkpointing]).0;
            Memory::of(&config, &model, &lengths, None).total()
        };
        let minimum = lengths.prompt_longest + lengths.completion_longest;
        assert_eq!(decided(&config, needed(minimum, true)), (true, minimum, true));
        // If no settings fit, the defaults stay and the shortage is reported.
        assert_eq!(decided(&config, 1), (false, 1 << 16, false));
        let (configured, ..) = small(&["compute.threads=2", "compute.checkpoint_activations=false"]);
        assert!(!decided(&configured, needed(minimum, true)).2);
        let mut recorded = config.clone();
        (recorded.update.micro_batch_tokens, recorded.compute.checkpoint_activations) =
            (Some(77), Some(true));
        let resumed = config.decided_as(&recorded);
        assert_eq!((resumed.update.micro_batch_tokens(), resumed.compute.checkpointing()), (77, true));
        assert!(!configured.decided_as(&recorded).compute.checkpointing());
    }

    #[test]
    fn the_disk_holds_every_checkpoint_unless_save_keep_bounds_them() {
        let disk = |set: &[&str]| {
            let (config, model, lengths) = small(set);
            let disk = Disk::of(&config, &model, &Memory::of(&config, &model, &lengths, None), &lengths);
            (disk.checkpoints, disk.policy, disk.total - disk.evaluations)
        };
        let (_, model, _) = small(&[]);
        let policy = 4 * model.parameters();
        // 4 checkpoints and the best policy. An optimizer state is twice the size of the policy.
        assert_eq!(disk(&["steps=100", "save.every=30"]), (4, policy, (4 + 1 + 3 * 2) * policy));
        assert_eq!(
            disk(&["steps=100", "save.every=30", "save.keep=1"]),
            (2, policy, (2 + 1 + 3 * 2) * policy)
        );
        assert_eq!(disk(&["save.every=0", "eval.every=0"]), (1, policy, 3 * policy));
        let evaluations = |set: &[&str]| {
            let (config, model, lengths) = small(set);
            Disk::of(&config, &model, &Memory::of(&config, &model, &lengths, None), &lengths).evaluations
        };
        let all = evaluations(&["steps=100", "eval.every=10"]);
        assert_eq!(11 * evaluations(&["steps=100", "eval.every=100"]), 2 * all);
        assert!(evaluations(&["steps=100", "eval.every=10", "eval.keep_texts=false"]) < all);
        assert_eq!(evaluations(&["eval.every=0"]), 0);
    }

    #[test]
    fn adapters_spare_gradient_optimizer_reference_and_time() {
        let text = include_str!("../../../../configs/llama-3.2-3b-math.toml");
        let needs = |set: &[&str]| {
            let config = parse(text, set).unwrap();
            let lengths = Lengths::of(&config, None);
            let model = model(&config, None).unwrap().unwrap();
            (Memory::of(&config, &model, &lengths, None), Time::of(&config, &model, &lengths, 1e12))
        };
        let (whole, slow) = needs(&["algorithm.kl_coef=0.1"]);
        let (low, fast) = needs(&["algorithm.kl_coef=0.1", "lora.rank=16"]);
        assert!(low.engine.gradient * 50 < whole.engine.gradient);
        assert!(low.engine.optimizer * 20 < whole.engine.optimizer);
        assert!(low.engine.base_weights > 0 && whole.engine.base_weights == 0);
        assert_eq!((low.reference, whole.reference), (0, whole.engine.weights));
        assert!(fast.update < 0.9 * slow.update && fast.rollout == slow.rollout);
    }

    #[test]
    fn time_grows_with_the_work() {
        let time = |set: &[&str]| {
            let (config, model, lengths) = small(set);
            Time::of(&config, &model, &lengths, 1e9)
        };
        let base = time(&[]);
        let (config, ..) = small(&[]);
        let close = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
        let doubled = time(&[&format!("rollout.prompts={}", 2 * config.rollout.prompts)]);
        assert!(close(doubled.rollout, 2.0 * base.rollout) && close(doubled.update, 2.0 * base.update));
        assert!(close(time(&["update.epochs=3"]).update, 3.0 * base.update));
        assert!(time(&["algorithm.kl_coef=0.1"]).update > 1.2 * base.update);
        let samples = 2 * config.eval.samples;
        let more = time(&[&format!("eval.samples={samples}")]).evaluation;
        assert!(more > 1.1 * base.evaluation && more < 2.0 * base.evaluation);
        assert!(base.evaluation > 0.0 && base.rollout > 0.0 && base.sft > 0.0);
        let steps = 2 * config.sft.as_ref().and_then(|sft| sft.steps).unwrap();
        assert!(close(time(&[&format!("sft.steps={steps}")]).sft, 2.0 * base.sft));
    }
}
