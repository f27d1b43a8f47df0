//! A job for SkyRL 0.3.0: keys of its configuration, and the arguments of `fgrpo.skyrl.register` (`register.`).

use super::mapping::{Mapping, Setting};
use super::{Cluster, Sampler, Sizes};
use crate::config::{AlgorithmConfig, Config, Keep, Truncated};
use fgrpo_core::loss::{Aggregation, Correction, Kl, Level, PolicyLoss};
use serde_json::{Value, json};

/// Adds the settings that are computed, not copied from a key of the configuration.
pub(super) fn map(m: &mut Mapping, config: &Config, name: &str, cluster: &Cluster, sizes: &Sizes) {
    m.set("T.run_name", name, "");
    placement(m, cluster);
    let updates = batches(m, config, cluster, sizes);
    m.set("T.max_prompt_length", sizes.prompt_limit, "task.max_prompt_tokens");
    let stop = config.task.stop();
    for key in ["S", "V"] {
        m.set(&format!("{key}.max_generate_length"), sizes.limit, "rollout.max_new_tokens");
        if !stop.is_empty() {
            m.set(&format!("{key}.stop"), json!(stop), "task.stop");
        }
    }
    if !stop.is_empty() {
        m.set("G.append_eos_token_after_stop_str_in_multi_turn", false, "task.stop");
    }
    if let Some(thinking) = sizes.thinking {
        m.set("G.chat_template_kwargs", json!({ "enable_thinking": thinking }), "task.enable_thinking");
    }
    credit(m, config);
    loss(m, &config.algorithm, sizes.limit);
    m.set("O.lr", config.update.peak_lr(), "update.lr");
    m.schedule(&config.update, updates, ["O.scheduler", "O.num_warmup_steps"]);
    if let Some(lora) = &config.lora {
        m.alpha(lora, "L.alpha");
    }
    let checkpoint = config.compute.checkpoint_activations.unwrap_or(true);
    m.set("T.gradient_checkpointing", checkpoint, "compute.checkpoint_activations");
    // Epochs were resolved to steps.
    let test = if sizes.held_out == 0 { 0 } else { config.eval.every.steps(0) };
    m.set("T.max_training_steps", sizes.steps, "steps");
    m.set("T.epochs", sizes.steps.div_ceil(sizes.pass), "steps");
    m.set("T.eval_interval", if test == 0 { json!(-1) } else { json!(test) }, "eval.every");
    m.set("T.ckpt_interval", sizes.save_every, "save.every");
    m.set("T.hf_save_interval", sizes.save_every, "save.every");
    if let Keep::Newest(newest) = config.save.keep {
        m.set("T.max_ckpts_to_keep", newest + 1, "save.keep");
    }
}

fn placement(m: &mut Mapping, cluster: &Cluster) {
    if cluster.sampler != Sampler::Vllm {
        m.forbid("the inference engine", "SkyRL samples with vLLM alone".to_owned());
    }
    for role in ["policy", "ref"] {
        m.set(&format!("P.{role}_num_nodes"), cluster.nodes, "the cluster");
        m.set(&format!("P.{role}_num_gpus_per_node"), cluster.gpus, "the cluster");
    }
    let (gpus, shared) = (cluster.processes(), cluster.tensor_parallel);
    if !gpus.is_multiple_of(shared) {
        m.forbid("the cluster", format!("{gpus} GPUs are no whole number of samplers of {shared}"));
    }
    m.set("I.num_engines", gpus / shared, "the cluster");
    m.set("I.tensor_parallel_size", shared, "GPUs of one copy of the sampler");
    m.set("I.gpu_memory_utilization", 0.6, "adjust to your GPUs");
}

/// Sets the sizes of batches, and returns the number of updates per step.
fn batches(m: &mut Mapping, config: &Config, cluster: &Cluster, sizes: &Sizes) -> u64 {
    let prompts = config.rollout.prompts;
    let mut mini = config.update.mini_batch.unwrap_or(prompts);
    if !prompts.is_multiple_of(mini) {
        m.state("update.mini_batch:divisor");
        mini = prompts;
    }
    cluster.divides(m, mini * config.rollout.group_size);
    m.set("T.policy_mini_batch_size", mini, "update.mini_batch");
    m.set("T.max_tokens_per_microbatch", sizes.micro_batch(config), "update.micro_batch_tokens");
    (prompts / mini * config.update.epochs) as u64
}

fn credit(m: &mut Mapping, config: &Config) {
    let algorithm = &config.algorithm;
    let table = serde_json::to_value(m.estimator(algorithm)).expect("an estimator is JSON");
    m.set("A.advantage_estimator", "fgrpo", "algorithm.advantage");
    m.set("register.estimator", table, "algorithm.advantage");
    if let Some(threshold) = algorithm.credit(&config.task).rewards.threshold {
        m.set("register.threshold", threshold, "algorithm.correct_threshold");
    }
    let mask = algorithm.truncated == Truncated::Mask;
    m.set("G.apply_overlong_filtering", mask, "algorithm.truncated");
    if mask && algorithm.aggregation() != Aggregation::TokenMean {
        m.state("algorithm.truncated:mean");
    }
    if mask && !config.task.stop().is_empty() {
        m.state("algorithm.truncated:stop");
    }
    if matches!(algorithm.truncated, Truncated::Reward { .. }) {
        m.state("algorithm.truncated:reward");
    }
    let (level, low, high) = match algorithm.correction {
        Correction::Off => return m.state("algorithm.correction:off"),
        Correction::Tis { cap, level } => (level, None, cap),
        Correction::Mask { low, high, level } => (level, Some(low), high),
    };
    let mut correct = |key: &str, value: Value| {
        m.set(&format!("A.off_policy_correction.{key}"), value, "algorithm.correction");
    };
    // SkyRL's masks alone leave the weights within the bounds at 1.
    let [name, lowest, highest] = match level {
        Level::Token => ["token", "token_mask_is_threshold_low", "token_mask_is_threshold_high"],
        Level::Sequence => ["sequence", "product_mask_low", "product_mask_high"],
    };
    correct("tis_ratio_type", json!(name));
    correct(&format!("{name}_tis_ratio_clip_high"), json!(high));
    if let Some(low) = low {
        correct(lowest, json!(low));
        correct(highest, json!(high));
        if level == Level::Sequence {
            correct("sequence_mask_metric", json!("product"));
        }
    }
}

fn loss(m: &mut Mapping, algorithm: &AlgorithmConfig, limit: usize) {
    let mut pair = |keys: [&str; 2], values: [f64; 2]| {
        for (key, value) in keys.into_iter().zip(values) {
            m.set(&format!("A.{key}"), value, "algorithm.loss");
        }
    };
    let clips = ["eps_clip_low", "eps_clip_high"];
    let weights = ["cispo.cispo_eps_clip_low", "cispo.cispo_eps_clip_high"];
    let loss = match algorithm.loss {
        PolicyLoss::Grpo { clip, dual_clip } | PolicyLoss::Dapo { clip, dual_clip } => {
            pair(clips, clip);
            if dual_clip > 0.0 {
                m.set("A.clip_ratio_c", dual_clip, "algorithm.loss");
            }
            if dual_clip > 0.0 { "dual_clip" } else { "regular" }
        }
        PolicyLoss::Gspo { clip } => {
            pair(clips, clip);
            "gspo"
        }
        PolicyLoss::Cispo { clip } => {
            pair(weights, clip);
            "cispo"
        }
        PolicyLoss::CispoCap { cap } => {
            pair(weights, [1.0, cap - 1.0]);
            "cispo"
        }
        PolicyLoss::Sapo { tau } => {
            pair(["sapo.tau_pos", "sapo.tau_neg"], tau);
            "sapo"
        }
        PolicyLoss::Gmpo { .. }
        | PolicyLoss::DppoTv { .. }
        | PolicyLoss::DppoKl { .. }
        | PolicyLoss::KlCov { .. }
        | PolicyLoss::ClipCov { .. } => {
            m.state("algorithm.loss:other");
            "regular"
        }
    };
    m.set("A.policy_loss_type", loss, "algorithm.loss");
    let (aggregation, divisor) = match algorithm.aggregation() {
        Aggregation::TokenMean => ("token_mean", None),
        Aggregation::SeqMeanTokenMean => ("sequence_mean", None),
        Aggregation::SeqMeanTokenSumNorm => ("seq_mean_token_sum_norm", Some(limit)),
        Aggregation::SeqMeanTokenSum => ("seq_mean_token_sum_norm", Some(1)),
    };
    m.set("A.loss_reduction", aggregation, "algorithm.aggregation");
    m.set("A.max_seq_len", divisor, "algorithm.aggregation");
    m.set("A.use_entropy_loss", algorithm.entropy_coef != 0.0, "algorithm.entropy_coef");
    m.set("A.use_kl_loss", algorithm.kl_coef > 0.0, "algorithm.kl_coef");
    m.set("A.kl_estimator_type", if algorithm.kl == Kl::K3 { "k3" } else { "k2" }, "algorithm.kl");
    if algorithm.kl_coef > 0.0 && algorithm.aggregation() != Aggregation::SeqMeanTokenMean {
        m.state("algorithm.kl_coef:mean");
    }
}

/// Writes the arguments of `register` in Python, or the entries of a dictionary of SkyRL's keys, each after its origin.
pub(super) fn lines(settings: &[Setting], owner: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for Setting { key, value, origin } in settings {
        let value = super::trl::python(value);
        match (key.strip_prefix("register."), owner) {
            (Some(argument), "trainer") => lines.push(format!("{argument}={value},  # {origin}")),
            (None, "config") if origin.is_empty() => lines.push(format!("{}: {value},", json!(key))),
            (None, "config") => lines.push(format!("{}: {value},  # {origin}", json!(key))),
            _ => {}
        }
    }
    lines
}
