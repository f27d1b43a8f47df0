//! The loop of the supervised stage: reads batches of demonstrations, writes checkpoints and log lines.
//!
//! Everything except weights and optimizer is a function of the step, so a stage that was stopped or killed resumes
//! from its last checkpoint and ends with the same result, bit for bit.

use super::Demonstrations;
use super::SftLine;
use crate::config::{Config, Keep, SftConfig};
use crate::policy::{AdamW, Datum, Loss, Policy, Sequence};
use crate::problem::{Split, Task};
use crate::run::checkpoint::{self, Contents, Stage, TrainerState};
use crate::run::folder::RunDir;
use crate::run::seeds;
use crate::run::tensorboard::TensorBoard;
use crate::update::UpdateState;
use anyhow::{Context, bail};
use fgrpo_eval::amounts::duration;
use fgrpo_eval::events::Events;
use fgrpo_eval::io::files::{clear_partial, sync_folder};
use fgrpo_eval::io::interrupt;
use fgrpo_eval::io::lines::{self, JsonLines};
use fgrpo_nn::{CHECK_LAYERS, Device, Engine};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// A stage and its output files.
pub(super) struct Fit<'a> {
    pub(super) config: &'a Config,
    pub(super) sft: &'a SftConfig,
    pub(super) task: &'a Task,
    pub(super) device: &'a Device,
    pub(super) run: &'a RunDir,
    pub(super) checkpoints: &'static str,
    /// Number of checkpoints kept besides the last.
    pub(super) keep: Keep,
    pub(super) lines: PathBuf,
    /// Folder of the TensorBoard file, if enabled.
    pub(super) tensorboard: Option<&'a Path>,
}

/// Fits the demonstrations, starting from the last checkpoint, or from `fresh` if there is none. `None` if
/// interrupted, with the state saved.
pub(super) fn fit(
    place: Fit<'_>,
    fresh: impl FnOnce() -> anyhow::Result<Engine>,
    events: &mut dyn Events,
) -> anyhow::Result<Option<Engine>> {
    let Fit { config, sft, task, .. } = place;
    let shown = Demonstrations::of(task, Split::Train)?;
    let held_out = Demonstrations::of(task, Split::HeldOut)?;
    let steps = sft.optimizer_steps(shown.len());
    let missing = match shown.missing() {
        0 => String::new(),
        n => format!("; {n} training problems have none and are left out"),
    };
    events.say(&format!(
        "sft: {} demonstrations, {} held out{missing}; {steps} steps",
        shown.len(),
        held_out.len()
    ));
    let latest = checkpoint::list(&place.run.file(place.checkpoints))?.pop();
    let (engine, mut done) = match &latest {
        Some((step, folder)) => {
            let (engine, _) = checkpoint::open(folder, Stage::Sft, config, place.device, fresh)?;
            events.say(&format!("sft: resumed after step {step} from {}", folder.display()));
            (engine, *step)
        }
        None => (fresh()?, 0),
    };
    let mut policy = Policy::new(engine, Arc::clone(&task.language));
    place.run.adopt(config)?;
    lines::retain(&place.lines, |line| line["step"].as_u64().is_some_and(|s| s <= done))?;
    let mut tensorboard =
        place.tensorboard.map(|folder| TensorBoard::resume(folder, "sft", done)).transpose()?;
    if let Some(tensorboard) = &mut tensorboard {
        let there = tensorboard.last_step().unwrap_or(0);
        for line in lines::read::<SftLine>(&place.lines)?.iter().filter(|l| l.step > there) {
            line.write_to(tensorboard)?;
        }
    }
    clear_partial(&place.run.file(place.checkpoints));
    let mut log = JsonLines::append(&place.lines)?;
    let mut saved = done;
    let order = seeds::demonstrations(config.start_seed());
    events.begin("sft", done, steps);
    let started = Instant::now();
    while done < steps {
        if interrupt::requested() {
            events.end();
            place.save(policy.engine(), &log, done, &mut saved)?;
            events.say(&format!("sft: interrupted after step {done} of {steps}"));
            return Ok(None);
        }
        let line = match place.step(&mut policy, &shown, &held_out, order, done + 1, steps) {
            Ok(line) => line,
            Err(e) => {
                // The weights are still those from the previous step.
                place.save(policy.engine(), &log, done, &mut saved)?;
                return Err(e);
            }
        };
        done += 1;
        log.push(&line)?;
        if let Some(tensorboard) = &mut tensorboard {
            line.write_to(tensorboard)?;
        }
        if let Some(held_out) = line.held_out_loss {
            events.say(&format!("sft {done}: loss {:.4}, held-out loss {held_out:.4}", line.loss));
        }
        if sft.save_every > 0 && done.is_multiple_of(sft.save_every) && done < steps {
            place.save(policy.engine(), &log, done, &mut saved)?;
        }
        place.run.check_place()?;
        events.progress(done, format!("loss {:.3}", line.loss));
    }
    events.end();
    place.save(policy.engine(), &log, done, &mut saved)?;
    let seconds = duration(started.elapsed().as_secs_f64());
    events.say(&format!("sft: {steps} steps in {seconds}"));
    Ok(Some(policy.into_engine()))
}

impl Fit<'_> {
    fn save(&self, engine: &Engine, log: &JsonLines, done: u64, saved: &mut u64) -> anyhow::Result<()> {
        if done > *saved {
            log.sync()?;
            let state = TrainerState {
                stage: Stage::Sft,
                step: done,
                update: UpdateState::default(),
                best: None,
                optimizer_step: done,
            };
            let contents = Contents::of(self.config, self.task);
            sync_folder(&self.run.path)?;
            checkpoint::save(&self.run.file(self.checkpoints), engine, &contents, &state, self.keep)?;
            *saved = done;
        }
        Ok(())
    }

    /// One optimizer step; on an error, the weights are unchanged.
    fn step(
        &self,
        policy: &mut Policy,
        shown: &Demonstrations,
        held_out: &Demonstrations,
        order: fgrpo_core::rng::Key,
        step: u64,
        steps: u64,
    ) -> anyhow::Result<SftLine> {
        let (sft, task) = (self.sft, self.task);
        let clock = Instant::now();
        let size = sft.batch_size as u64;
        let first = (step - 1) * size;
        let sequences = shown.sequences(task, (first..first + size).map(|at| shown.problem_at(order, at)))?;
        // The last token of a demonstration isn't read.
        let tokens: usize = sequences.iter().map(|sequence| sequence.tokens.len() - 1).sum();
        let targets: usize = sequences.iter().map(|sequence| sequence.targets.len()).sum();
        let weight = f64::from(1.0 / targets as f32);
        let datum = |sequence: Sequence| Datum {
            advantages: vec![weight; sequence.targets.len()],
            sequences: vec![sequence],
            ..Datum::default()
        };
        let data: Vec<Datum> = sequences.into_iter().map(datum).collect();
        let losses = policy
            .forward_backward(&data, &Loss::CrossEntropy, 1.0)
            .with_context(|| format!("sft: step {step}"))?;
        let loss = -losses.logp.iter().flatten().map(|&l| f64::from(l)).sum::<f64>() * weight;
        let lr = sft.lr * sft.schedule.factor(step, sft.warmup_steps, steps);
        let not_finite = |norm: f64| {
            format!(
                "sft: step {step}: loss {loss}, gradient norm {norm}: not finite; stopped, with the state before this step saved. Lower sft.lr (now {}); {CHECK_LAYERS}=on names the layer or tensor where the first such number is",
                sft.lr
            )
        };
        if !loss.is_finite() {
            let norm = policy.engine_mut().gradient_norm();
            policy.zero_gradient();
            bail!(not_finite(norm));
        }
        let report = policy.step(
            &AdamW {
                lr,
                beta1: sft.betas[0],
                beta2: sft.betas[1],
                eps: 1e-8,
                weight_decay: sft.weight_decay,
                ..AdamW::default()
            },
            Some(sft.max_grad_norm),
        )?;
        if !report.applied {
            bail!(not_finite(report.gradient_norm));
        }
        let tokens_per_second = tokens as f64 / clock.elapsed().as_secs_f64();
        let due = sft.eval_every > 0 && (step.is_multiple_of(sft.eval_every) || step == steps);
        let held_out_loss =
            (due && !held_out.is_empty()).then(|| self.loss_of(policy, held_out)).transpose()?;
        Ok(SftLine {
            step,
            loss,
            held_out_loss,
            epoch: (step * size) as f64 / shown.len() as f64,
            lr,
            gradient_norm: report.gradient_norm,
            tokens_per_second,
        })
    }

    /// Mean cross-entropy per token of the first held-out demonstrations.
    fn loss_of(&self, policy: &mut Policy, held_out: &Demonstrations) -> anyhow::Result<f64> {
        let count = held_out.len().min(self.sft.eval_problems as u64);
        let (mut sum, mut tokens) = (0.0, 0);
        let mut first = 0;
        while first < count {
            let last = (first + self.sft.batch_size as u64).min(count);
            let sequences = held_out.sequences(self.task, (first..last).map(|at| held_out.problem(at)))?;
            let scores = policy.score(&sequences, 1.0)?;
            sum -= scores.iter().flat_map(|s| &s.logp).map(|&l| f64::from(l)).sum::<f64>();
            tokens += scores.iter().map(|s| s.logp.len()).sum::<usize>();
            first = last;
        }
        Ok(sum / tokens as f64)
    }
}
