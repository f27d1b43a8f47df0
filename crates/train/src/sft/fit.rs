//! The loop of the supervised stage: takes batches of demonstrations, and writes checkpoints and log lines.
//!
//! Everything except weights and optimizer is a function of the step, so a stage that was stopped or killed resumes
//! from its last checkpoint and has the same result, bit for bit.

use super::Demonstrations;
use super::SftLine;
use crate::config::{Config, Keep, SftConfig};
use crate::policy::{self, AdamW, Datum, Loss, Policy, Sequence};
use crate::problem::{Split, Task};
use crate::run::checkpoint::{self, Contents, Stage, TrainerState};
use crate::run::folder::RunDir;
use crate::run::seeds;
use crate::run::tensorboard::TensorBoard;
use anyhow::{Context, bail};
use fgrpo_eval::amounts::duration;
use fgrpo_eval::events::Events;
use fgrpo_eval::io::files::{clear_partial, sync_folder, write_whole};
use fgrpo_eval::io::interrupt;
use fgrpo_eval::io::lines::{self, JsonLines};
use fgrpo_nn::{CHECK_LAYERS, Device, Engine};
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
    /// Checkpoints to keep besides the last.
    pub(super) keep: Keep,
}

/// Trains on the demonstrations, starting from the last checkpoint, or from the policy before any training. Returns
/// `None` if interrupted, after saving the state.
pub(super) fn fit(stage: &Fit<'_>, events: &mut dyn Events) -> anyhow::Result<Option<Engine>> {
    let Fit { config, sft, task, run, .. } = *stage;
    let (folder, lines) = (run.file(stage.checkpoints), run.file("sft.jsonl"));
    let latest = checkpoint::list(&folder)?.pop();
    let fresh = || policy::fresh(config, task, stage.device);
    let (engine, mut done) = match &latest {
        Some((step, folder)) => {
            let (engine, _) = checkpoint::open(folder, Stage::Sft, config, stage.device, fresh)?;
            events.say(&format!("sft: resumed after step {step} from {}", folder.display()));
            (engine, *step)
        }
        None => (fresh()?, 0),
    };
    let positions = engine.config().context();
    let mut policy = Policy::new(engine, Arc::clone(&task.language));
    let demonstrations = Demonstrations::of(task, Split::Train, positions)?;
    let held_out = Demonstrations::of(task, Split::HeldOut, positions)?;
    let steps = sft.optimizer_steps(demonstrations.len());
    events.say(&format!(
        "sft: {} demonstrations, {} held out; {}",
        demonstrations.len(),
        held_out.len(),
        sft.in_words(demonstrations.len())
    ));
    for (split, demonstrations) in [("training", &demonstrations), ("held-out", &held_out)] {
        if let Some(left_out) = demonstrations.left_out() {
            events.say(&format!("sft: {split} problems left out: {left_out}"));
        }
    }
    let evaluates = |step: u64| {
        sft.eval_every > 0 && !held_out.is_empty() && (step.is_multiple_of(sft.eval_every) || step == steps)
    };
    run.adopt(config)?;
    lines::retain(&lines, |line| line["step"].as_u64().is_some_and(|s| s <= done))?;
    let mut logged: Vec<SftLine> = lines::read(&lines)?;
    // The evaluation after this step failed, so it is repeated.
    if let Some(line) = logged.last_mut().filter(|line| evaluates(line.step) && line.held_out_loss.is_none())
    {
        line.held_out_loss = Some(stage.held_out_loss(&mut policy, &held_out)?);
        write_whole(&lines, &lines::to_bytes(&logged)?)?;
    }
    let tensorboard = config.log.tensorboard.then(|| TensorBoard::resume(&run.path, "sft", done));
    let mut tensorboard = tensorboard.transpose()?;
    if let Some(tensorboard) = &mut tensorboard {
        let last = tensorboard.last_step().unwrap_or(0);
        for line in logged.iter().filter(|l| l.step > last) {
            line.write_to(tensorboard)?;
        }
    }
    clear_partial(&folder);
    let mut log = JsonLines::append(&lines)?;
    let mut saved = done;
    let order = seeds::demonstrations(config.start_seed());
    events.begin("sft", done, steps);
    let started = Instant::now();
    while done < steps {
        if interrupt::requested() {
            events.end();
            stage.save(policy.engine(), &log, done, &mut saved)?;
            events.say(&format!("sft: interrupted after step {done} of {steps}"));
            return Ok(None);
        }
        let mut line = match stage.step(&mut policy, &demonstrations, order, done + 1, steps) {
            Ok(line) => line,
            Err(e) => {
                // A failed step doesn't change the weights.
                stage.save(policy.engine(), &log, done, &mut saved)?;
                return Err(e);
            }
        };
        done += 1;
        let evaluated = evaluates(done).then(|| stage.held_out_loss(&mut policy, &held_out)).transpose();
        line.held_out_loss = evaluated.as_ref().ok().copied().flatten();
        log.push(&line)?;
        if let Err(e) = evaluated {
            stage.save(policy.engine(), &log, done, &mut saved)?;
            return Err(e);
        }
        if let Some(tensorboard) = &mut tensorboard {
            line.write_to(tensorboard)?;
        }
        if let Some(held_out) = line.held_out_loss {
            events.say(&format!("sft {done}: loss {:.4}, held-out loss {held_out:.4}", line.loss));
        }
        if sft.save_every > 0 && done.is_multiple_of(sft.save_every) && done < steps {
            stage.save(policy.engine(), &log, done, &mut saved)?;
        }
        run.check_place()?;
        events.progress(done, format!("loss {:.3}", line.loss));
    }
    events.end();
    stage.save(policy.engine(), &log, done, &mut saved)?;
    let seconds = duration(started.elapsed().as_secs_f64());
    events.say(&format!("sft: {steps} steps in {seconds}"));
    Ok(Some(policy.into_engine()))
}

impl Fit<'_> {
    fn save(&self, engine: &Engine, log: &JsonLines, done: u64, saved: &mut u64) -> anyhow::Result<()> {
        if done > *saved {
            log.sync()?;
            let state = TrainerState { stage: Stage::Sft, step: done, ..TrainerState::default() };
            let contents = Contents::of(self.config, self.task);
            sync_folder(&self.run.path)?;
            let folder = self.run.file(self.checkpoints);
            let prepared = checkpoint::prepare_step(&folder, engine, &contents, &state)?;
            checkpoint::publish_step(&folder, prepared, done, self.keep)?;
            *saved = done;
        }
        Ok(())
    }

    /// Makes an optimizer step. If it fails, the weights are unchanged.
    fn step(
        &self,
        policy: &mut Policy,
        demonstrations: &Demonstrations,
        order: fgrpo_core::rng::Key,
        step: u64,
        steps: u64,
    ) -> anyhow::Result<SftLine> {
        let (sft, task) = (self.sft, self.task);
        let clock = Instant::now();
        let size = sft.batch_size as u64;
        let first = (step - 1) * size;
        let sequences = demonstrations
            .sequences(task, (first..first + size).map(|at| demonstrations.problem_at(order, at)))?;
        // The model doesn't read the last token of a demonstration.
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
                "sft: step {step}: the loss ({loss}) or gradient norm ({norm}) isn't finite; stopped, and the state before this step is saved. Lower sft.lr, which is {}; set {CHECK_LAYERS}=on to find the first layer or tensor with such a number",
                sft.lr
            )
        };
        if !loss.is_finite() {
            let norm = policy.engine_mut().gradient_norm();
            policy.zero_gradient();
            bail!(not_finite(norm));
        }
        let SftConfig { betas: [beta1, beta2], weight_decay, .. } = *sft;
        let adamw = AdamW { lr, beta1, beta2, eps: 1e-8, weight_decay, ..AdamW::default() };
        let report = policy.step(&adamw, Some(sft.max_grad_norm))?;
        if !report.applied {
            bail!(not_finite(report.gradient_norm));
        }
        let tokens_per_second = tokens as f64 / clock.elapsed().as_secs_f64();
        Ok(SftLine {
            step,
            loss,
            held_out_loss: None,
            epoch: (step * size) as f64 / demonstrations.len() as f64,
            lr,
            gradient_norm: report.gradient_norm,
            tokens_per_second,
        })
    }

    /// Computes the mean cross-entropy per token of the first held-out demonstrations.
    fn held_out_loss(&self, policy: &mut Policy, held_out: &Demonstrations) -> anyhow::Result<f64> {
        let count = held_out.len().min(self.sft.eval_problems as u64);
        let (mut sum, mut tokens) = (0.0, 0);
        for first in (0..count).step_by(self.sft.batch_size) {
            let last = (first + self.sft.batch_size as u64).min(count);
            let sequences = held_out.sequences(self.task, (first..last).map(|at| held_out.problem(at)))?;
            let scores = policy.score(&sequences, 1.0).context("sft: held-out loss")?;
            sum -= scores.iter().flat_map(|s| &s.logp).map(|&l| f64::from(l)).sum::<f64>();
            tokens += scores.iter().map(|s| s.logp.len()).sum::<usize>();
        }
        Ok(sum / tokens as f64)
    }
}
