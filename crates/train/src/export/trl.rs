//! A job for TRL 1.16: the arguments of `GRPOConfig`, of `fgrpo.trl.FGRPOTrainer` (`trainer.`) and of PEFT's `LoraConfig` (`lora.`).

use super::mapping::{Mapping, Setting};
use super::{Cluster, Sampler, Sizes};
use crate::config::{AlgorithmConfig, Config, Keep, Truncated, UpdateConfig};
use fgrpo_core::advantage::Advantage;
use fgrpo_core::loss::{Aggregation, Correction, Kl, PolicyLoss};
use serde_json::{Value, json};

/// Adds the settings that are computed, not copied from a key of the configuration.
pub(super) fn map(m: &mut Mapping, config: &Config, cluster: &Cluster, sizes: &Sizes) {
    if cluster.sampler != Sampler::Vllm {
        m.forbid("the inference engine", "TRL samples with vLLM alone".to_owned());
    }
    m.set("shuffle_dataset", !sizes.listed, "task.data:order");
    m.set("max_completion_length", sizes.limit, "rollout.max_new_tokens");
    if let Some(thinking) = sizes.thinking {
        m.set("chat_template_kwargs", json!({ "enable_thinking": thinking }), "task.enable_thinking");
    }
    let checkpoint = config.compute.checkpoint_activations.unwrap_or(true);
    m.set("gradient_checkpointing", checkpoint, "compute.checkpoint_activations");
    m.set("vllm_mode", "colocate", "the cluster");
    m.set("vllm_tensor_parallel_size", cluster.tensor_parallel, "the cluster");
    m.set("vllm_max_model_length", sizes.prompt_limit + sizes.limit, "the cluster");
    let updates = batches(m, config, cluster, sizes);
    m.set("max_steps", sizes.steps * updates, "steps");
    m.set("save_steps", sizes.save_every * updates, "save.every");
    if let Keep::Newest(newest) = config.save.keep {
        m.set("save_total_limit", newest + 1, "save.keep");
    }
    advantages(m, config);
    loss(m, &config.algorithm);
    optimizer(m, &config.update, updates);
}

/// Sets the sizes of batches, and returns the number of updates per step.
fn batches(m: &mut Mapping, config: &Config, cluster: &Cluster, sizes: &Sizes) -> u64 {
    let (prompts, group) = (config.rollout.prompts, config.rollout.group_size);
    let mut mini = config.update.mini_batch.unwrap_or(prompts);
    if !prompts.is_multiple_of(mini) {
        m.state("update.mini_batch:divisor");
        mini = prompts;
    }
    cluster.divides(m, mini * group);
    if mini < prompts {
        m.state("update.mini_batch:split");
    }
    let completions = mini * group / cluster.processes();
    let longest = sizes.prompt_limit + sizes.limit;
    let at_once = if config.update.micro_batch_tokens() >= 2 * longest && completions.is_multiple_of(2) {
        2
    } else {
        1
    };
    m.set("per_device_train_batch_size", at_once, "update.micro_batch_tokens");
    m.set("gradient_accumulation_steps", completions / at_once, "update.mini_batch");
    m.set("steps_per_generation", prompts / mini * completions / at_once, "update.mini_batch");
    (prompts / mini * config.update.epochs) as u64
}

fn advantages(m: &mut Mapping, config: &Config) {
    let algorithm = &config.algorithm;
    let scale = match algorithm.advantage {
        Advantage::Grpo { eps, ddof: 1 } => {
            if eps != 1e-4 {
                m.state("algorithm.advantage:eps");
            }
            "group"
        }
        Advantage::DrGrpo => "none",
        _ => {
            m.state("algorithm.advantage:other");
            "group"
        }
    };
    m.set("scale_rewards", scale, "algorithm.advantage");
    if let Some(threshold) = algorithm.credit(&config.task).rewards.threshold {
        m.set("trainer.reward_threshold", threshold, "algorithm.correct_threshold");
    }
    m.set("mask_truncated_completions", algorithm.truncated == Truncated::Mask, "algorithm.truncated");
    match algorithm.truncated {
        Truncated::Grade => {}
        Truncated::Mask if algorithm.aggregation() == Aggregation::TokenMean => {}
        Truncated::Mask => m.state("algorithm.truncated:mean"),
        Truncated::Reward { .. } => m.state("algorithm.truncated:reward"),
    }
    let word = |level: Value, suffix| format!("{}_{suffix}", level.as_str().expect("a level is a word"));
    let correction = match algorithm.correction {
        Correction::Off => None,
        Correction::Tis { cap, level } => Some((word(json!(level), "truncate"), None, cap)),
        Correction::Mask { low, high, level } => Some((word(json!(level), "mask"), Some(low), high)),
    };
    m.set("vllm_importance_sampling_correction", correction.is_some(), "algorithm.correction");
    match correction {
        None => m.state("algorithm.correction:off"),
        Some((mode, low, high)) => {
            m.set("vllm_importance_sampling_mode", mode, "algorithm.correction");
            m.set("vllm_importance_sampling_clip_min", low, "algorithm.correction");
            m.set("vllm_importance_sampling_clip_max", high, "algorithm.correction");
        }
    }
}

fn loss(m: &mut Mapping, algorithm: &AlgorithmConfig) {
    let mut aggregation = match algorithm.aggregation() {
        Aggregation::TokenMean => "dapo",
        Aggregation::SeqMeanTokenMean => "grpo",
        Aggregation::SeqMeanTokenSumNorm => "dr_grpo",
        Aggregation::SeqMeanTokenSum => {
            m.state("algorithm.aggregation:sum");
            "dapo"
        }
    };
    let mut whole = |m: &mut Mapping, name: &'static str, wanted: &str, reason: &str| {
        if aggregation != wanted {
            m.state(reason);
        }
        aggregation = name;
    };
    let clip = |m: &mut Mapping, [low, high]: [f64; 2]| {
        m.set("epsilon", low, "algorithm.loss");
        m.set("epsilon_high", high, "algorithm.loss");
    };
    let mut level = "token";
    match algorithm.loss {
        PolicyLoss::Grpo { clip: range, dual_clip } | PolicyLoss::Dapo { clip: range, dual_clip } => {
            clip(m, range);
            m.set("delta", Some(dual_clip).filter(|ratio| *ratio > 0.0), "algorithm.loss");
        }
        PolicyLoss::Gspo { clip: range } => {
            clip(m, range);
            level = "sequence";
        }
        PolicyLoss::Cispo { clip: [low, high] } => {
            if low < 1.0 {
                m.state("algorithm.loss:low");
            }
            m.set("epsilon_high", 1.0 + high, "algorithm.loss.cap");
            whole(m, "cispo", "dapo", "algorithm.aggregation:cispo");
        }
        PolicyLoss::CispoCap { cap } => {
            m.set("epsilon_high", cap, "algorithm.loss.cap");
            whole(m, "cispo", "dapo", "algorithm.aggregation:cispo");
        }
        PolicyLoss::Sapo { tau: [positive, negative] } => {
            m.set("sapo_temperature_pos", positive, "algorithm.loss");
            m.set("sapo_temperature_neg", negative, "algorithm.loss");
            whole(m, "sapo", "grpo", "algorithm.aggregation:sapo");
        }
        PolicyLoss::Gmpo { .. }
        | PolicyLoss::DppoTv { .. }
        | PolicyLoss::DppoKl { .. }
        | PolicyLoss::KlCov { .. }
        | PolicyLoss::ClipCov { .. } => m.state("algorithm.loss:other"),
    }
    m.set("importance_sampling_level", level, "algorithm.loss");
    m.set("loss_type", aggregation, "algorithm.aggregation");
    m.set("use_bias_correction_kl", false, "algorithm.kl");
    if algorithm.kl_coef > 0.0 && algorithm.kl != Kl::K3 {
        m.state("algorithm.kl:other");
    }
}

fn optimizer(m: &mut Mapping, update: &UpdateConfig, updates: u64) {
    m.set("learning_rate", update.peak_lr(), "update.lr");
    m.set("adam_beta1", update.betas[0], "update.betas");
    m.set("adam_beta2", update.betas[1], "update.betas");
    m.schedule(update, updates, ["lr_scheduler_type", "warmup_steps"]);
}

/// Writes the arguments of `owner` (`config`, `trainer` or `lora`) in Python. Each line has up to three arguments of
/// one section, with their origins as a comment.
pub(super) fn lines(settings: &[Setting], owner: &str) -> Vec<String> {
    let key = |setting: &Setting| match setting.key.split_once('.') {
        Some((prefix, key)) => (prefix == owner).then(|| key.to_owned()),
        None => (owner == "config").then(|| setting.key.clone()),
    };
    let mut owned: Vec<(String, &Setting)> =
        settings.iter().filter_map(|setting| Some((key(setting)?, setting))).collect();
    let section = |(_, setting): &(String, &Setting)| setting.origin.split('.').next().map(str::to_owned);
    owned.sort_by_key(section);
    let sections = owned.chunk_by(|one, next| section(one) == section(next));
    let lines = sections.flat_map(|section| section.chunks(3)).map(|line| {
        let arguments: String =
            line.iter().map(|(key, setting)| format!("{key}={}, ", python(&setting.value))).collect();
        let mut origins: Vec<&str> = line.iter().map(|(_, setting)| setting.origin.as_str()).collect();
        origins.dedup();
        format!("{arguments} # {}", origins.join(", "))
    });
    lines.collect()
}

/// Writes a value as a Python literal.
pub(super) fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Array(items) => format!("[{}]", items.iter().map(python).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| format!("{}: {}", json!(key), python(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        // Numbers and strings of JSON are also valid in Python.
        value => value.to_string(),
    }
}
