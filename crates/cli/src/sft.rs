//! Supervised fitting of demonstrations: cross-entropy of the completion, in the same batches and
//! with the same engine as RL. The result is cached by content, so runs that differ only in what
//! comes after share it.

use crate::checkpoint::publish;
use crate::config::{Config, SftConfig};
use crate::files::{JsonLines, read_lines};
use crate::interrupt;
use crate::progress::{Narrator, duration};
use crate::run_dir::RunDir;
use crate::seeds;
use crate::task::{Split, Task};
use anyhow::{Context, bail};
use fgrpo_nn::Batch;
use fgrpo_nn::config::Config as ModelConfig;
use fgrpo_nn::weights::{Checkpoint, Dtype, write_checkpoint};
use fgrpo_nn::{AdamW, Device, Engine};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// One line of `sft.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SftLine {
    /// Optimizer step, from 1.
    pub step: u64,
    /// Mean cross-entropy of the completions' tokens, in nats.
    pub loss: f64,
    /// Learning rate.
    pub lr: f64,
    /// Global gradient norm before clipping.
    pub gradient_norm: f64,
    /// Tokens learned from a second, prompts included.
    pub tokens_per_second: f64,
}

/// Fits the demonstrations, or takes the result of an equal stage from `cache`. Writes `sft.jsonl`.
///
/// # Errors
/// A task without demonstrations, a loss that isn't finite, a file that can't be written, or an
/// interruption (nothing is kept of a stage that isn't done).
pub fn run(
    config: &Config,
    sft: &SftConfig,
    task: &dyn Task,
    start: Engine,
    device: &Device,
    run: &RunDir,
    narrator: &mut Narrator,
) -> anyhow::Result<Engine> {
    let folder = cache_folder(&run.path);
    let name = fingerprint(config, sft, task, start.config());
    let cached = folder.join(&name);
    let lines = run.file("sft.jsonl");
    if cached.exists() {
        narrator.say(None, &format!("sft: {} steps, taken from {}", sft.steps, cached.display()));
        std::fs::copy(cached.join("sft.jsonl"), &lines)
            .with_context(|| format!("copying {}", cached.join("sft.jsonl").display()))?;
    } else {
        let engine = fit(config, sft, task, start, &lines, narrator)?;
        publish(&folder, &name, |dir| {
            write_checkpoint(dir, engine.config(), engine.tensors(), Dtype::F32, 5 << 30)?;
            task.write_tokenizer(dir)?;
            std::fs::copy(&lines, dir.join("sft.jsonl"))
                .with_context(|| format!("copying {}", lines.display()))?;
            Ok(())
        })?;
    }
    // RL starts with an optimizer of its own, from the file in either case.
    Ok(Engine::open(&Checkpoint::open(&cached)?, device)?)
}

fn fit(
    config: &Config,
    sft: &SftConfig,
    task: &dyn Task,
    mut engine: Engine,
    lines: &Path,
    narrator: &mut Narrator,
) -> anyhow::Result<Engine> {
    let _ = std::fs::remove_file(lines);
    let mut log = JsonLines::append(lines)?;
    let order = seeds::demonstrations(sft.seed.unwrap_or(config.seed));
    let mut stage = narrator.stage("sft", 0, sft.steps);
    let started = Instant::now();
    let mut last = f64::NAN;
    for step in 1..=sft.steps {
        if interrupt::asked() {
            stage.finish();
            bail!(
                "interrupted at step {} of {} of the supervised stage, of which nothing is kept. Go on with --resume, which begins this stage again",
                step - 1,
                sft.steps
            );
        }
        let clock = Instant::now();
        let mut batch = Batch::default();
        for i in 0..sft.batch_size as u64 {
            let position = (step - 1) * sft.batch_size as u64 + i;
            let n = task.len(Split::Train);
            let id = order.with(position / n).permute(position % n, n);
            let Some(completion) = task.demonstration(id) else {
                bail!("sft: the task has no demonstration for problem {id}; leave [sft] out");
            };
            batch.push_group(&task.prompt(Split::Train, id).tokens, &[&completion]);
        }
        let tokens = batch.tokens.len();
        let share = 1.0 / batch.predictions.len() as f32;
        let scores = engine.accumulate(&batch, 1.0, &|_, _, _, dlogp, _| dlogp.fill(-share))?;
        last = -scores.logp.iter().map(|&l| f64::from(l)).sum::<f64>() * f64::from(share);
        let lr = sft.lr * sft.schedule.factor(step, sft.warmup_steps, sft.steps);
        let report = engine.update(
            &AdamW {
                lr,
                beta1: sft.betas[0],
                beta2: sft.betas[1],
                eps: 1e-8,
                weight_decay: sft.weight_decay,
                ..AdamW::default()
            },
            Some(sft.max_grad_norm),
        );
        if !report.applied || !last.is_finite() {
            bail!(
                "sft: step {step}: loss {last}, gradient norm {}: not finite. Lower sft.lr (now {})",
                report.gradient_norm,
                sft.lr
            );
        }
        log.push(&SftLine {
            step,
            loss: last,
            lr,
            gradient_norm: report.gradient_norm,
            tokens_per_second: tokens as f64 / clock.elapsed().as_secs_f64(),
        })?;
        stage.at(step, format!("loss {last:.3}"), narrator);
    }
    stage.finish();
    narrator.say(
        None,
        &format!("sft: {} steps in {}, loss {last:.3}", sft.steps, duration(started.elapsed().as_secs_f64())),
    );
    Ok(engine)
}

/// Where the results of supervised stages are kept: beside the runs.
fn cache_folder(run: &Path) -> PathBuf {
    run.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).join("sft-cache")
}

fn fingerprint(config: &Config, sft: &SftConfig, task: &dyn Task, model: &ModelConfig) -> String {
    let seed = sft.seed.unwrap_or(config.seed);
    let text = format!(
        "{}\n{seed}\n{}\n{:?}\n{:?}\n{model:?}\nthreads {}",
        env!("CARGO_PKG_VERSION"),
        task.fingerprint(),
        sft,
        config.model,
        config.threads(),
    );
    let digest = Sha256::digest(text.as_bytes());
    digest[..8].iter().map(|b| format!("{b:02x}")).collect()
}

/// The lines of a finished stage.
///
/// # Errors
/// As [`read_lines`].
pub fn lines(run: &RunDir) -> anyhow::Result<Vec<SftLine>> {
    read_lines(&run.file("sft.jsonl"))
}
