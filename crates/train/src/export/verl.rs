//! A job for verl 0.9.1: the settings of `main_ppo`.

use super::mapping::{Mapping, Setting};
use super::{Cluster, Sizes};
use crate::config::{AlgorithmConfig, Config, Keep, Schedule};
use fgrpo_core::advantage::Advantage;
use fgrpo_core::loss::{Correction, Kl, PolicyLoss};
use fgrpo_eval::io::shell::quoted;
use fgrpo_eval::names::Named;
use serde_json::{Value, json};

/// A ratio that no token reaches: verl clamps its logarithm at 20.
const NO_DUAL_CLIP: f64 = 1e9;

/// Adds the settings that are computed, not copied from a key of the configuration.
pub(super) fn map(m: &mut Mapping, config: &Config, name: &str, cluster: &Cluster, sizes: &Sizes) {
    m.set("T.experiment_name", name, "");
    m.set("A.strategy", "fsdp2", "");
    for key in ["R.seed", "A.data_loader_seed", "A.fsdp_config.seed"] {
        m.set(key, config.seed, "seed");
    }
    data(m, config, sizes);
    sampling(m, cluster);
    batches(m, config, cluster, sizes);
    advantages(m, config);
    loss(m, &config.algorithm, sizes.limit);
    optimizer(m, config);
    if let Some(lora) = &config.lora {
        m.alpha(lora, "M.lora_alpha");
        // The sampler needs the weights of the base.
        m.set("R.load_format", "safetensors", "lora.rank");
    }
    run(m, config, sizes);
}

fn data(m: &mut Mapping, config: &Config, sizes: &Sizes) {
    m.set("data.shuffle", !sizes.listed, "task.data:order");
    // Prompts that are too long aren't in the file.
    m.set("data.filter_overlong_prompts", false, "task.max_prompt_tokens");
    m.set("data.truncation", "error", "");
    m.set("data.max_prompt_length", sizes.prompt_limit, "task.max_prompt_tokens");
    m.set("data.max_response_length", sizes.limit, "rollout.max_new_tokens");
    if let Some(thinking) = sizes.thinking {
        m.set(
            "+data.apply_chat_template_kwargs",
            json!({ "enable_thinking": thinking }),
            "task.enable_thinking",
        );
    }
    let checkpoint = config.compute.checkpoint_activations.unwrap_or(true);
    m.set("M.enable_gradient_checkpointing", checkpoint, "compute.checkpoint_activations");
}

fn sampling(m: &mut Mapping, cluster: &Cluster) {
    m.set("R.name", cluster.sampler.name(), "the inference engine");
    m.set("R.tensor_model_parallel_size", cluster.tensor_parallel, "GPUs of one copy of the sampler");
    m.set("R.gpu_memory_utilization", 0.6, "adjust to your GPUs");
}

fn batches(m: &mut Mapping, config: &Config, cluster: &Cluster, sizes: &Sizes) {
    let (prompts, group) = (config.rollout.prompts, config.rollout.group_size);
    let mini = config.update.mini_batch.unwrap_or(prompts);
    m.set("A.ppo_mini_batch_size", mini, "update.mini_batch");
    if !prompts.is_multiple_of(mini) {
        m.state("update.mini_batch:divisor");
    }
    cluster.divides(m, mini * group);
    if mini < prompts && cluster.processes() > 1 {
        m.state("update.mini_batch:split");
    }
    m.set("A.use_dynamic_bsz", true, "update.micro_batch_tokens");
    m.set("A.ppo_max_token_len_per_gpu", sizes.micro_batch(config), "update.micro_batch_tokens");
}

fn advantages(m: &mut Mapping, config: &Config) {
    let algorithm = &config.algorithm;
    let estimator = m.estimator(algorithm);
    let divides = !matches!(estimator, Advantage::DrGrpo);
    m.set("algorithm.adv_estimator", "fgrpo", "algorithm.advantage");
    let table = serde_json::to_value(estimator).expect("an estimator is JSON");
    m.set("+algorithm.focal_estimator", table, "algorithm.advantage");
    m.set("algorithm.norm_adv_by_std_in_grpo", divides, "algorithm.advantage");
    if let Some(threshold) = algorithm.credit(&config.task).rewards.threshold {
        m.set("+algorithm.reward_threshold", threshold, "algorithm.correct_threshold");
    }
    if algorithm.drop_inactive_groups {
        m.set("algorithm.filter_groups.metric", "acc", "algorithm.drop_inactive_groups");
    }
    let word = |level| serde_json::to_value(level).expect("a level is a word");
    let (level, threshold) = match algorithm.correction {
        Correction::Off => return m.state("algorithm.correction:off"),
        Correction::Tis { cap, level } => (word(level), json!(cap)),
        Correction::Mask { low, high, level } => (word(level), json!(format!("{low}_{high}"))),
    };
    m.set("algorithm.rollout_correction.rollout_is", level, "algorithm.correction");
    m.set("algorithm.rollout_correction.rollout_is_threshold", threshold, "algorithm.correction");
}

fn loss(m: &mut Mapping, algorithm: &AlgorithmConfig, limit: usize) {
    let mut clip = |[low, high]: [f64; 2]| {
        m.set("A.clip_ratio_low", low, "algorithm.loss");
        m.set("A.clip_ratio_high", high, "algorithm.loss");
    };
    let aggregation = serde_json::to_value(algorithm.aggregation()).expect("an aggregation is a word");
    let mode = match algorithm.loss {
        PolicyLoss::Grpo { clip: range, dual_clip } | PolicyLoss::Dapo { clip: range, dual_clip } => {
            clip(range);
            let ratio = if dual_clip == 0.0 { NO_DUAL_CLIP } else { dual_clip };
            m.set("A.clip_ratio_c", ratio, "algorithm.loss.dual_clip");
            "vanilla"
        }
        PolicyLoss::Cispo { clip: range } => {
            clip(range);
            "cispo"
        }
        PolicyLoss::CispoCap { cap } => {
            clip([1.0, cap - 1.0]);
            "cispo"
        }
        PolicyLoss::Gspo { clip: range } => {
            clip(range);
            "gspo"
        }
        PolicyLoss::Sapo { tau: [positive, negative] } => {
            m.set("A.tau_pos", positive, "algorithm.loss");
            m.set("A.tau_neg", negative, "algorithm.loss");
            if aggregation != "seq-mean-token-mean" {
                m.state("algorithm.aggregation:sapo");
            }
            "sapo"
        }
        PolicyLoss::Gmpo { clip: range } => {
            clip(range);
            m.state("algorithm.loss:gmpo");
            "geo_mean"
        }
        PolicyLoss::DppoTv { clip: range, cap } | PolicyLoss::DppoKl { clip: range, cap } => {
            clip(range);
            m.set("A.clip_ratio_c", cap, "algorithm.loss.cap");
            if matches!(algorithm.loss, PolicyLoss::DppoTv { .. }) { "dppo_tv" } else { "dppo_kl" }
        }
        PolicyLoss::KlCov { share, coef } => {
            m.set("A.policy_loss.kl_cov_ratio", share, "algorithm.loss");
            m.set("A.policy_loss.ppo_kl_coef", coef, "algorithm.loss.coef");
            m.state("algorithm.loss:covariance");
            "kl_cov"
        }
        PolicyLoss::ClipCov { clip: range, share, covariance: [low, high] } => {
            clip(range);
            m.set("A.policy_loss.clip_cov_ratio", share, "algorithm.loss");
            m.set("A.policy_loss.clip_cov_lb", low, "algorithm.loss");
            m.set("A.policy_loss.clip_cov_ub", high, "algorithm.loss");
            m.state("algorithm.loss:covariance");
            "clip_cov"
        }
    };
    m.set("A.policy_loss.loss_mode", mode, "algorithm.loss");
    if aggregation == "seq-mean-token-sum-norm" {
        m.set("A.loss_scale_factor", limit, "algorithm.aggregation:length");
    }
    m.set("A.use_kl_loss", algorithm.kl_coef > 0.0, "algorithm.kl_coef");
    m.set("algorithm.use_kl_in_reward", false, "algorithm.kl_coef");
    let kind = match algorithm.kl {
        Kl::K1 => "k1+",
        Kl::K2 => "k2",
        Kl::K3 => "k3",
    };
    m.set("A.kl_loss_type", kind, "algorithm.kl");
}

fn optimizer(m: &mut Mapping, config: &Config) {
    let update = &config.update;
    m.set("A.optim.lr", update.peak_lr(), "update.lr");
    if update.eps != 1e-8 {
        m.set("A.optim.override_optimizer_config", json!({ "eps": update.eps }), "update.eps");
    }
    let warms_up = update.warmup_steps > 0;
    let cosine = update.schedule == Schedule::Cosine;
    if update.schedule == Schedule::Linear {
        m.state("update.schedule:linear");
    }
    // verl's own constant schedule counts from 0, which gives step 1 a rate of 0 during warm-up. A cosine whose floor is 1
    // is constant, and its warm-up can count from 1.
    if !cosine && !warms_up {
        return m.set("A.optim.lr_scheduler_type", "constant", "update.schedule");
    }
    m.set("A.optim.lr_scheduler_type", "cosine", "update.schedule");
    m.set("A.optim.min_lr_ratio", if cosine { 0.0 } else { 1.0 }, "update.schedule");
    m.set("A.optim.zero_indexed_step", cosine && !warms_up, "update.schedule");
    if cosine && warms_up {
        m.state("update.schedule:cosine");
    }
}

fn run(m: &mut Mapping, config: &Config, sizes: &Sizes) {
    let (eval, save) = (&config.eval, &config.save);
    // Epochs were resolved to steps.
    let test = if sizes.held_out == 0 { 0 } else { eval.every.steps(0) };
    m.set("T.total_training_steps", sizes.steps, "steps");
    m.set("T.total_epochs", sizes.steps.div_ceil(sizes.pass), "steps");
    m.set("T.test_freq", if test == 0 { json!(-1) } else { json!(test) }, "eval.every");
    m.set("T.val_before_train", test > 0, "eval.every");
    m.set("R.val_kwargs.do_sample", eval.temperature > 0.0, "eval.temperature");
    m.set("T.save_freq", sizes.save_every, "save.every");
    if let Keep::Newest(newest) = save.keep {
        m.set("T.max_actor_ckpt_to_keep", newest + 1, "save.keep");
    }
}

/// Writes settings as the lines of a shell array, each after a comment with its origin.
pub(super) fn lines(settings: &[Setting]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut last = "";
    for Setting { key, value, origin } in settings {
        if !origin.is_empty() && origin != last {
            lines.push(format!("# {origin}"));
        }
        last = origin;
        lines.push(quoted(&format!("{key}={}", hydra(value))));
    }
    lines
}

/// Writes a value in the grammar of Hydra's command line.
fn hydra(value: &Value) -> String {
    let joined = |items: Vec<String>| items.join(",");
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Array(items) => format!("[{}]", joined(items.iter().map(hydra).collect())),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| format!("{key}:{}", hydra(value)));
            format!("{{{}}}", joined(fields.collect()))
        }
        Value::String(word)
            if word.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
                && word.starts_with(|c: char| c.is_ascii_alphabetic()) =>
        {
            word.clone()
        }
        Value::String(text) => format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'")),
    }
}
