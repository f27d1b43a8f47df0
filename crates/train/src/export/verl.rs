//! A job for verl 0.9.1: `run.sh`, Parquet files, a reward function, and a way back.
//!
//! Tables are taken apart field by field and without `..`, so a key that is added later doesn't compile until it is
//! mapped here.

use super::mapping::{Mapping, Setting, decimal};
use super::rows::{self, row};
use super::{Cluster, Order, Summary, files, model, texts};
use crate::config::{
    AlgorithmConfig, ComputeConfig, Config, EvalConfig, GradeConfig, Keep, LogConfig, LoraTable,
    RolloutConfig, SaveConfig, Schedule, TaskConfig, Truncated, UpdateConfig,
};
use crate::problem::{Split, Task};
use crate::run::seeds;
use anyhow::Context;
use fgrpo_core::advantage::Advantage;
use fgrpo_core::credit::Shaping;
use fgrpo_core::loss::{Correction, Kl, PolicyLoss};
use fgrpo_eval::io::files::{Existing, parent, publish};
use fgrpo_eval::io::shell::quoted;
use fgrpo_eval::names::Named;
use fgrpo_eval::problems::keyed;
use minijinja::{Environment, UndefinedBehavior, context};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The version that the mapping was checked with.
pub const VERSION: &str = "0.9.1";

/// A ratio that no token reaches: verl clamps its logarithm at 20.
const NO_DUAL_CLIP: f64 = 1e9;

/// Files of the job: the name, its template, and whether it is a program.
const FILES: [(&str, &str, bool); 4] = [
    ("run.sh", include_str!("verl/run.sh"), true),
    ("reward.py", include_str!("verl/reward.py"), false),
    ("back.sh", include_str!("verl/back.sh"), true),
    ("README.md", include_str!("verl/README.md"), false),
];

/// Writes the job of a configuration into the folder `out`, whole or not at all.
///
/// `written` has the paths and hub names that the user wrote; `local` has the files on this machine, where the problems
/// are read and counted. `name` is the name of the experiment.
///
/// Fails, with every cause in one message, if verl lacks a setting and `cluster.allow` doesn't name it; for tasks without
/// a data set; and if `out` exists.
pub fn write(
    (written, local): (&Config, &Config),
    name: &str,
    cluster: &Cluster,
    out: &Path,
) -> anyhow::Result<Summary> {
    let model = model(written, cluster)?;
    texts(&local.task)?;
    let mixed = matches!(local.task, TaskConfig::Mix(_));
    if mixed && cluster.order == Order::Shuffle {
        bad_input!("task.kind: a mix by weight needs the order listed, since verl has no weights");
    }
    let task = Task::open(local)?;
    let config = local.resolved(task.len(Split::Train))?;
    let mut sets = task.held_out();
    keyed(&mut sets, None);
    let held_out: usize = sets.iter().map(|set| set.problems.len()).sum();

    let prompts = config.rollout.prompts as u64;
    let problems = task.len(Split::Train);
    let listed = cluster.order == Order::Listed;
    let sizes = Sizes {
        steps: config.steps,
        // Steps of a pass over train.parquet.
        pass: if listed { config.steps } else { problems / prompts },
        listed,
        held_out,
        limit: config.rollout.max_new_tokens.unwrap_or(task.max_new_tokens()),
    };
    if sizes.steps == 0 {
        bad_input!("steps: the job needs a number of steps, or epochs");
    }
    if sizes.pass == 0 {
        bad_input!("rollout.prompts: expected at most the {problems} training problems, found {prompts}");
    }
    let mapping = mapping(&config, name, cluster, &sizes)?;

    let folder =
        out.file_name().context("the folder of the job needs a name")?.to_string_lossy().into_owned();
    if out.exists() {
        bad_input!("{} exists; name a new folder for the job", out.display());
    }
    publish(parent(out), &folder, Existing::Keep, |folder| {
        let copied = files::copy(folder, (written, local), &model)?;
        fs::write(folder.join("config.toml"), copied.to_toml())?;
        let order = seeds::prompts(config.seed);
        let ids = match listed {
            true => task.training(order, 0..sizes.steps * prompts),
            false => (0..problems).collect(),
        };
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
        rows::write(&folder.join("held-out.parquet"), "held-out", held_out)?;
        let job = json!({
            "verl": VERSION, "fgrpo": env!("CARGO_PKG_VERSION"), "name": name, "model": model,
            "problems": problems, "held_out": sizes.held_out, "steps": sizes.steps,
            "settings": mapping.settings, "differences": mapping.differences,
        });
        fs::write(folder.join("job.json"), serde_json::to_string_pretty(&job)?)?;
        let values = context! {
            version => VERSION, name, model => quoted(&model), settings => settings(&mapping.settings),
            differences => &mapping.differences, nodes => cluster.nodes, gpus => cluster.gpus,
            problems, held_out => sizes.held_out, steps => sizes.steps, prompts,
            group_size => config.rollout.group_size, listed, lora => config.lora.is_some(),
            full => config.eval.full.is_some(),
            k => config.eval.full.as_ref().map_or(&config.eval.k, |full| &full.k),
        };
        for (name, template, program) in FILES {
            let mut environment = Environment::new();
            environment.set_undefined_behavior(UndefinedBehavior::Strict);
            let path = folder.join(name);
            fs::write(&path, environment.render_str(template, &values)? + "\n")?;
            if program {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
            }
        }
        Ok(())
    })?;
    Ok(Summary {
        problems,
        held_out: sizes.held_out,
        steps: sizes.steps,
        settings: mapping.settings.len(),
        differences: mapping.differences,
    })
}

/// Sizes of a run that its problems decide.
struct Sizes {
    steps: u64,
    /// Steps of a pass over the file of training problems.
    pass: u64,
    /// Whether that file has the problems of every step, in order.
    listed: bool,
    held_out: usize,
    /// Maximum number of tokens of a completion.
    limit: usize,
}

/// The mapping of a configuration whose epochs are steps.
fn mapping(config: &Config, name: &str, cluster: &Cluster, sizes: &Sizes) -> anyhow::Result<Mapping> {
    let Config {
        seed,
        steps: _,
        epochs: _,
        task,
        model: _,
        lora,
        // An SFT stage is run first: the job begins with its checkpoint.
        sft: _,
        rollout,
        algorithm,
        update,
        grade: GradeConfig { max_unscorable: _ },
        eval,
        save,
        log: LogConfig { rollout_share: _, tensorboard: _ },
        compute,
    } = config;
    let mut m = Mapping::new(cluster.allow.clone());
    m.set("trainer.experiment_name", name, "");
    m.set("actor_rollout_ref.actor.strategy", "fsdp2", "");
    data(&mut m, task, sizes)?;
    sampling(&mut m, rollout, cluster);
    batches(&mut m, update, rollout, task, cluster, sizes);
    advantages(&mut m, algorithm, task);
    loss(&mut m, algorithm, sizes.limit);
    optimizer(&mut m, update);
    weights(&mut m, lora.as_ref(), compute);
    run(&mut m, eval, save, sizes);
    for key in [
        "data.seed",
        "actor_rollout_ref.rollout.seed",
        "actor_rollout_ref.actor.data_loader_seed",
        "actor_rollout_ref.actor.fsdp_config.seed",
    ] {
        m.set(key, *seed, "seed");
    }
    m.differ("seed", "verl's samples differ from run to run, even with seeds, unless `actor_rollout_ref.rollout.full_determinism=True`");
    m.differ("update.max_skipped", "verl skips updates that aren't finite without a limit");
    m.differ("grade.max_unscorable", "verl goes on when nothing can be graded; `critic/score` is then NaN");
    m.differ("grade", "an unscorable completion has advantage 0 in both, but in verl its tokens stay in the denominator of the loss");
    m.finished()
}

fn data(m: &mut Mapping, task: &TaskConfig, sizes: &Sizes) -> anyhow::Result<()> {
    m.set("data.shuffle", !sizes.listed, "the file has the order of the problems");
    if !sizes.listed {
        m.differ("task.data", "verl draws the order of the problems, and drops those that don't fill the last step of a pass; `fgrpo train` begins the next pass with them");
    }
    // Prompts that are too long were left out when the file was written.
    m.set("data.filter_overlong_prompts", false, "task.max_prompt_tokens: the file has no longer prompts");
    m.set("data.truncation", "error", "");
    m.set("data.max_prompt_length", task.max_prompt_tokens().unwrap_or(1024), "task.max_prompt_tokens");
    m.set("data.max_response_length", sizes.limit, "rollout.max_new_tokens");
    let thinking: Vec<Option<bool>> =
        texts(task)?.iter().map(|(_, text)| text.prompting().of(text.kind()).thinking).collect();
    match thinking.as_slice() {
        [first, rest @ ..] if rest.iter().any(|other| other != first) => bad_input!(
            "task.parts: some parts set enable_thinking and others don't; verl has one setting for all problems"
        ),
        [Some(thinking), ..] => m.set(
            "+data.apply_chat_template_kwargs",
            json!({ "enable_thinking": thinking }),
            "task.enable_thinking, or that of task.preset",
        ),
        _ => {}
    }
    if !task.stop().is_empty() {
        m.refuse(
            "task.stop",
            "verl's agent loop passes no stop texts",
            "completions end at the model's end tokens",
        );
    }
    Ok(())
}

fn sampling(m: &mut Mapping, rollout: &RolloutConfig, cluster: &Cluster) {
    let RolloutConfig {
        prompts,
        group_size,
        temperature,
        top_p,
        top_k,
        min_p,
        max_new_tokens: _,
        max_cached_tokens: _,
        server,
    } = rollout;
    let to = |key: &str| format!("actor_rollout_ref.rollout.{key}");
    m.set("data.train_batch_size", *prompts, "rollout.prompts");
    m.set(to("n"), *group_size, "rollout.group_size");
    m.set(to("temperature"), decimal(*temperature), "rollout.temperature");
    m.set(to("top_p"), decimal(*top_p), "rollout.top_p");
    m.set(to("top_k"), if *top_k == 0 { json!(-1) } else { json!(top_k) }, "rollout.top_k; -1 is off");
    if *min_p > 0.0 {
        m.refuse("rollout.min_p", "verl has no such setting", "it is off");
    }
    if *top_p < 1.0 || *top_k > 0 {
        m.differ("rollout.top_p", "the loss has log-probabilities of the whole distribution in both; vLLM reports those of the truncated one, which only a correction reads");
    }
    if server.is_some() {
        m.differ("rollout.server", "left out: verl has its own servers");
    }
    m.set(to("name"), cluster.sampler.name(), "the inference engine");
    m.set(
        to("tensor_model_parallel_size"),
        cluster.tensor_parallel,
        "GPUs of one copy of the sampler; verl's own default is 2",
    );
    m.set(to("gpu_memory_utilization"), 0.6, "adjust to your GPUs");
}

fn batches(
    m: &mut Mapping,
    update: &UpdateConfig,
    rollout: &RolloutConfig,
    task: &TaskConfig,
    cluster: &Cluster,
    sizes: &Sizes,
) {
    let to = |key: &str| format!("actor_rollout_ref.actor.{key}");
    let mini = update.mini_batch.unwrap_or(rollout.prompts);
    m.set(to("ppo_mini_batch_size"), mini, "update.mini_batch; both count prompts");
    m.set(to("ppo_epochs"), update.epochs, "update.epochs");
    if !rollout.prompts.is_multiple_of(mini) {
        m.refuse(
            "update.mini_batch",
            "verl needs a divisor of rollout.prompts: it fills the last mini-batch with empty completions",
            "the mini-batches differ",
        );
    }
    let gpus = cluster.nodes * cluster.gpus;
    if !(mini * rollout.group_size).is_multiple_of(gpus) {
        let completions = mini * rollout.group_size;
        m.forbid(
            "update.mini_batch",
            format!("a mini-batch has {completions} completions, which {gpus} GPUs don't divide"),
        );
    }
    if mini < rollout.prompts && gpus > 1 {
        m.differ(
            "update.mini_batch",
            "verl balances lengths over GPUs before it cuts mini-batches, so a group may be in two of them",
        );
    }
    let longest = task.max_prompt_tokens().unwrap_or(1024) + sizes.limit;
    let tokens = update.micro_batch_tokens().clamp(longest, 2 * longest);
    m.set(to("use_dynamic_bsz"), true, "update.micro_batch_tokens: micro-batches by tokens");
    m.set(to("ppo_max_token_len_per_gpu"), tokens, "update.micro_batch_tokens, and at least one completion");
}

fn advantages(m: &mut Mapping, algorithm: &AlgorithmConfig, task: &TaskConfig) {
    let AlgorithmConfig {
        advantage,
        focal_gamma: _,
        reward_correct,
        reward_wrong,
        correct_threshold: _,
        reward_weights: _,
        shaping,
        truncated,
        overlong,
        drop_inactive_groups,
        correction,
        // The loss has the others.
        loss: _,
        aggregation: _,
        entropy_coef: _,
        kl_coef: _,
        kl: _,
        daro: _,
        daro_lr: _,
        top_entropy_quantile: _,
        schedule: _,
    } = algorithm;
    let reads = advantage.reads();
    let absent = match advantage {
        Advantage::Python { .. } => Some("it is a function of yours, which verl would have to register"),
        _ if reads.logp => Some("it reads log-probabilities, which verl doesn't pass to estimators"),
        _ if reads.clusters => {
            Some("it reads clusters of equal completions, which verl doesn't pass to estimators")
        }
        _ if reads.parts => Some("it reads several rewards, and verl passes one to estimators"),
        _ => None,
    };
    let estimator = match absent {
        Some(why) => {
            m.refuse("algorithm.advantage", why, "the estimator is grpo");
            Advantage::GRPO
        }
        None => advantage.clone(),
    };
    let divides = !matches!(estimator, Advantage::DrGrpo);
    let table = serde_json::to_value(&estimator).expect("an estimator is JSON");
    m.set("algorithm.adv_estimator", "fgrpo", "the estimator of this package");
    m.set("+algorithm.focal_gamma", algorithm.focal_gamma(), "algorithm.focal_gamma");
    m.set("+algorithm.focal_estimator", table, "algorithm.advantage");
    m.set(
        "algorithm.norm_adv_by_std_in_grpo",
        divides,
        "algorithm.advantage; only verl's own estimators read it",
    );
    m.set("+algorithm.reward_correct", *reward_correct, "algorithm.reward_correct");
    m.set("+algorithm.reward_wrong", *reward_wrong, "algorithm.reward_wrong");
    if let Some(threshold) = algorithm.credit(task).rewards.threshold {
        m.set(
            "+algorithm.reward_threshold",
            threshold,
            "algorithm.correct_threshold, or the grader's correct_from",
        );
    }
    if *shaping != Shaping::None {
        m.refuse(
            "algorithm.shaping",
            "verl passes estimators no log-probabilities, and keeps no state between batches",
            "there is no shaping",
        );
    }
    m.set("algorithm.filter_groups.enable", *drop_inactive_groups, "algorithm.drop_inactive_groups");
    if *drop_inactive_groups {
        m.set("algorithm.filter_groups.metric", "acc", "algorithm.drop_inactive_groups");
        m.refuse(
            "algorithm.drop_inactive_groups",
            "verl replaces the dropped groups by new prompts",
            "dropped groups are replaced, so a step takes more prompts",
        );
    }
    if *truncated != Truncated::Grade {
        m.refuse(
            "algorithm.truncated",
            "verl's reward function doesn't see whether a completion was cut off",
            "such completions are graded as they are",
        );
    }
    if overlong.is_some() {
        m.refuse(
            "algorithm.overlong",
            "verl adds the punishment before correct completions are counted",
            "there is no punishment",
        );
    }
    let to = |key: &str| format!("algorithm.rollout_correction.{key}");
    let word = |level| serde_json::to_value(level).expect("a level is a word");
    match *correction {
        Correction::Off => m.differ("algorithm.correction", "off is exact with one engine; verl samples in bf16 with another engine than it learns with. Watch `training/rollout_probs_diff_mean`, and consider `algorithm.correction = \"tis\"`"),
        Correction::Tis { cap, level } => {
            m.set(to("rollout_is"), word(level), "algorithm.correction.level");
            m.set(to("rollout_is_threshold"), cap, "algorithm.correction.cap");
        }
        Correction::Mask { low, high, level } => {
            m.set(to("rollout_is"), word(level), "algorithm.correction.level");
            m.set(to("rollout_is_threshold"), format!("{low}_{high}"), "algorithm.correction.low, high");
        }
    }
}

fn loss(m: &mut Mapping, algorithm: &AlgorithmConfig, limit: usize) {
    let to = |key: &str| format!("actor_rollout_ref.actor.{key}");
    let clip = |m: &mut Mapping, [low, high]: [f64; 2], origin: &str| {
        m.set(to("clip_ratio_low"), low, origin);
        m.set(to("clip_ratio_high"), high, origin);
    };
    let dual = |m: &mut Mapping, ratio: f64| {
        let ratio = if ratio == 0.0 { NO_DUAL_CLIP } else { ratio };
        m.set(
            to("clip_ratio_c"),
            ratio,
            "algorithm.loss.dual_clip; verl can't turn it off, so off is a ratio that no token has",
        );
    };
    let by_covariance = "verl selects tokens by covariance within a micro-batch, `fgrpo` within a mini-batch";
    let aggregation = serde_json::to_value(algorithm.aggregation).expect("an aggregation is a word");
    let mode = match algorithm.loss {
        PolicyLoss::Grpo { clip: range, dual_clip } | PolicyLoss::Dapo { clip: range, dual_clip } => {
            clip(m, range, "algorithm.loss.clip");
            dual(m, dual_clip);
            "vanilla"
        }
        PolicyLoss::Cispo { clip: range } => {
            clip(m, range, "algorithm.loss.clip");
            "cispo"
        }
        PolicyLoss::CispoCap { cap } => {
            clip(m, [1.0, cap - 1.0], "algorithm.loss.cap: 0 to cap, as distances from 1");
            "cispo"
        }
        PolicyLoss::Gspo { clip: range } => {
            clip(m, range, "algorithm.loss.clip");
            "gspo"
        }
        PolicyLoss::Sapo { tau: [positive, negative] } => {
            m.set(to("tau_pos"), positive, "algorithm.loss.tau");
            m.set(to("tau_neg"), negative, "algorithm.loss.tau");
            if aggregation != "seq-mean-token-mean" {
                m.refuse(
                    "algorithm.aggregation",
                    "verl's SAPO has seq-mean-token-mean alone",
                    "verl takes seq-mean-token-mean",
                );
            }
            "sapo"
        }
        PolicyLoss::Gmpo { clip: range } => {
            clip(m, range, "algorithm.loss.clip");
            m.refuse("algorithm.loss", "verl's geo_mean is a mean over a micro-batch, so its gradient grows with the number of micro-batches", "the loss is geo_mean");
            "geo_mean"
        }
        PolicyLoss::DppoTv { clip: range, cap } | PolicyLoss::DppoKl { clip: range, cap } => {
            clip(m, range, "algorithm.loss.clip");
            m.set(to("clip_ratio_c"), cap, "algorithm.loss.cap; verl's own default is 3");
            if matches!(algorithm.loss, PolicyLoss::DppoTv { .. }) { "dppo_tv" } else { "dppo_kl" }
        }
        PolicyLoss::KlCov { share, coef } => {
            m.set(to("policy_loss.kl_cov_ratio"), share, "algorithm.loss.share");
            m.set(to("policy_loss.ppo_kl_coef"), coef, "algorithm.loss.coef; verl's own default is 0.1");
            m.refuse("algorithm.loss", by_covariance, "the loss is verl's");
            "kl_cov"
        }
        PolicyLoss::ClipCov { clip: range, share, covariance: [low, high] } => {
            clip(m, range, "algorithm.loss.clip");
            m.set(to("policy_loss.clip_cov_ratio"), share, "algorithm.loss.share");
            m.set(to("policy_loss.clip_cov_lb"), low, "algorithm.loss.covariance");
            m.set(to("policy_loss.clip_cov_ub"), high, "algorithm.loss.covariance");
            m.refuse("algorithm.loss", by_covariance, "the loss is verl's");
            "clip_cov"
        }
    };
    m.set(to("policy_loss.loss_mode"), mode, "algorithm.loss");
    if aggregation == "seq-mean-token-sum-norm" {
        m.set(
            to("loss_scale_factor"),
            limit,
            "rollout.max_new_tokens; without it verl divides by the longest completion of each micro-batch",
        );
    }
    m.set(to("loss_agg_mode"), aggregation, "algorithm.aggregation");
    m.set(to("entropy_coeff"), algorithm.entropy_coef, "algorithm.entropy_coef");
    m.set(to("use_kl_loss"), algorithm.kl_coef > 0.0, "algorithm.kl_coef");
    m.set("algorithm.use_kl_in_reward", false, "the penalty is in the loss");
    if algorithm.kl_coef > 0.0 {
        m.set(to("kl_loss_coef"), algorithm.kl_coef, "algorithm.kl_coef");
        let kind = match algorithm.kl {
            Kl::K1 => "k1+",
            Kl::K2 => "k2",
            Kl::K3 => "k3",
        };
        m.set(to("kl_loss_type"), kind, "algorithm.kl; k1+ has the gradient of k2, as k1 has here");
    }
    if algorithm.top_entropy_quantile < 1.0 {
        m.refuse("algorithm.top_entropy_quantile", "verl has no such mask", "all tokens count");
    }
    if algorithm.daro {
        m.refuse("algorithm.daro", "verl has no learned weights of success rates", "the loss has none");
    }
    if !algorithm.schedule.is_empty() {
        m.refuse("algorithm.schedule", "verl's settings are constant", "they keep their values of step 1");
    }
}

fn optimizer(m: &mut Mapping, update: &UpdateConfig) {
    let UpdateConfig {
        lr: _,
        low_lr_gamma,
        // `batches` has these.
        mini_batch: _,
        epochs: _,
        micro_batch_tokens: _,
        betas,
        eps,
        weight_decay,
        max_grad_norm,
        warmup_steps,
        schedule,
        max_skipped: _,
    } = update;
    let to = |key: &str| format!("actor_rollout_ref.actor.optim.{key}");
    let lowered = *low_lr_gamma != 0.0;
    m.set(
        to("lr"),
        update.peak_lr(),
        if lowered { "update.lr times the factor of update.low_lr_gamma" } else { "update.lr" },
    );
    m.set(to("betas"), json!(betas), "update.betas");
    m.set(to("weight_decay"), *weight_decay, "update.weight_decay");
    m.set(to("clip_grad"), *max_grad_norm, "update.max_grad_norm; nothing reads actor.grad_clip");
    if *eps != 1e-8 {
        m.set(to("override_optimizer_config"), json!({ "eps": eps }), "update.eps");
    }
    let warmup = if *warmup_steps == 0 { json!(-1) } else { json!(warmup_steps) };
    m.set(to("lr_warmup_steps"), warmup, "update.warmup_steps; both count steps");
    let mut schedule = *schedule;
    if schedule == Schedule::Linear {
        m.refuse(
            "update.schedule",
            "verl's FSDP optimizer has constant and cosine alone",
            "the rate is constant after warm-up",
        );
        schedule = Schedule::Constant;
    }
    // verl's own constant schedule counts from 0, which gives step 1 a rate of 0 during warm-up. A cosine whose floor is 1
    // is constant, and its warm-up can count from 1.
    let cosine = schedule == Schedule::Cosine;
    if !cosine && *warmup_steps == 0 {
        m.set(to("lr_scheduler_type"), "constant", "update.schedule");
        return;
    }
    m.set(to("lr_scheduler_type"), "cosine", "update.schedule; with a floor of 1 a cosine is constant");
    m.set(to("min_lr_ratio"), if cosine { 0.0 } else { 1.0 }, "update.schedule");
    m.set(
        to("zero_indexed_step"),
        cosine && *warmup_steps == 0,
        "update.schedule: steps count from 1 during warm-up",
    );
    if cosine && *warmup_steps > 0 {
        m.differ(
            "update.schedule",
            "the cosine decays one step earlier, because verl counts warm-up and decay from one origin",
        );
    }
}

fn weights(m: &mut Mapping, lora: Option<&LoraTable>, compute: &ComputeConfig) {
    let ComputeConfig {
        threads: _,
        checkpoint_activations,
        precision: _,
        moments: _,
        optimizer_offload: _,
        exact: _,
        products: _,
    } = compute;
    let to = |key: &str| format!("actor_rollout_ref.model.{key}");
    m.set(
        to("enable_gradient_checkpointing"),
        checkpoint_activations.unwrap_or(true),
        "compute.checkpoint_activations",
    );
    m.differ(
        "compute",
        "verl learns in bf16 with f32 weights and AdamW in f32 (FSDP's mixed precision), and samples in bf16",
    );
    let Some(LoraTable { rank, alpha, targets, use_rslora, base, save_merged: _ }) = lora else { return };
    let mut alpha = *alpha;
    if *use_rslora {
        m.refuse(
            "lora.use_rslora",
            "verl scales by alpha / rank",
            "alpha is the nearest whole number with the same scale",
        );
        alpha = (alpha * (*rank as f64).sqrt()).round();
    }
    if alpha.fract() != 0.0 {
        m.refuse("lora.alpha", "verl's checkpoint keeps whole numbers alone", "it is rounded");
        alpha = alpha.round();
    }
    if base.is_some() {
        m.refuse(
            "lora.base",
            "verl trains beside a base in its own number format alone",
            "the base isn't quantised",
        );
    }
    m.set(to("lora_rank"), *rank, "lora.rank");
    m.set(to("lora_alpha"), alpha as i64, "lora.alpha");
    m.set(to("target_modules"), serde_json::to_value(targets).expect("names of matrices"), "lora.targets");
    m.set(
        "actor_rollout_ref.rollout.load_format",
        "safetensors",
        "lora: the sampler needs the weights of the base",
    );
}

fn run(m: &mut Mapping, eval: &EvalConfig, save: &SaveConfig, sizes: &Sizes) {
    let EvalConfig {
        every,
        at_checkpoints,
        samples,
        k: _,
        temperature,
        top_p,
        top_k,
        min_p,
        // Only generated mazes have it.
        exact: _,
        // The file of held-out problems has this many.
        problems: _,
        average: _,
        keep_texts: _,
        full,
    } = eval;
    let SaveConfig { every: save_every, keep } = save;
    // Epochs were resolved to steps.
    let steps = |every: &crate::config::Every| every.steps(0);
    let (test, saved) = (if sizes.held_out == 0 { 0 } else { steps(every) }, steps(save_every));
    m.set("trainer.total_training_steps", sizes.steps, "steps, or epochs");
    m.set(
        "trainer.total_epochs",
        sizes.steps.div_ceil(sizes.pass),
        "steps: verl ends at whichever comes first",
    );
    m.set("trainer.test_freq", if test == 0 { json!(-1) } else { json!(test) }, "eval.every");
    m.set("trainer.val_before_train", test > 0, "eval.every: the evaluation before the first step");
    m.set(
        "trainer.save_freq",
        if saved == 0 { sizes.steps } else { saved },
        "save.every; both save the last step",
    );
    if let Keep::Newest(newest) = keep {
        m.set("trainer.max_actor_ckpt_to_keep", newest + 1, "save.keep, and the last");
        m.differ("save.keep", "verl keeps the newest checkpoints; `fgrpo train` also keeps the best");
    }
    if *at_checkpoints {
        m.differ("eval.at_checkpoints", "verl validates by steps alone; back.sh evaluates the checkpoints");
    }
    if full.is_some() {
        m.differ("eval.full", "verl has one validation, that of [eval]; back.sh runs the full one");
    }
    let to = |key: &str| format!("actor_rollout_ref.rollout.val_kwargs.{key}");
    m.set(to("n"), *samples, "eval.samples");
    m.set(to("temperature"), *temperature, "eval.temperature; verl's own default is 0");
    m.set(to("do_sample"), *temperature > 0.0, "eval.temperature; verl's own default is greedy");
    m.set(to("top_p"), *top_p, "eval.top_p");
    m.set(to("top_k"), if *top_k == 0 { json!(-1) } else { json!(top_k) }, "eval.top_k; -1 is off");
    if *min_p > 0.0 {
        m.refuse("eval.min_p", "verl has no such setting", "it is off in verl's validation");
    }
}

/// Settings as the lines of a shell array, each after a comment with its origin.
fn settings(settings: &[Setting]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut last = "";
    for Setting { key, value, origin } in settings {
        if !origin.is_empty() && origin != last {
            lines.push(format!("# {origin}"));
        }
        last = origin;
        let setting = format!("{key}={}", hydra(value));
        lines.push(quoted(&setting));
    }
    lines
}

/// A value in the grammar of Hydra's command line.
fn hydra(value: &Value) -> String {
    let list = |items: Vec<String>| items.join(",");
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Array(items) => format!("[{}]", list(items.iter().map(hydra).collect())),
        Value::Object(fields) => {
            format!(
                "{{{}}}",
                list(fields.iter().map(|(key, value)| format!("{key}:{}", hydra(value))).collect())
            )
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
