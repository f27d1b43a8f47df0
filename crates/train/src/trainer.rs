//! The training loop: prompts -> rollout -> grade -> advantages -> update -> log -> evaluate -> save.
//!
//! A step is one rollout batch. Everything random is a function of (seed, step, prompt, sample,
//! position), so a checkpoint holds weights, optimizer and the step, and a resumed run equals the
//! uninterrupted one. Departure from the usual loop: the log-probabilities recorded while sampling
//! *are* `old_logp`; sampler and learner are the same weights, and no second forward pass is made.

use crate::amounts::{bytes, duration};
use crate::bad_input;
use crate::config::{Config, Every, TaskConfig};
use crate::credit::{Credited, credit, mean_logp, samples};
use crate::device;
use crate::evaluation::in_training::{Policy, check_held_out, evaluate};
use crate::evaluation::plan::Plan;
use crate::evaluation::record::{self, Evaluation};
use crate::events::Events;
use crate::io::files::{JsonLines, Prepared, read_lines, sync_folder};
use crate::io::interrupt;
use crate::io::machine::peak;
use crate::policy;
use crate::problem::{self, Prompt, Split, Task};
use crate::rollout::{Rollouts, ServerRollouts, grade, sample};
use crate::run::checkpoint::{self, Best, Contents, TrainerState};
use crate::run::folder::{EVALUATIONS, Held, RunDir};
use crate::run::metrics::{self, Metrics, SamplerMetrics, Seconds, not_finite};
use crate::run::rollouts::RolloutLine;
use crate::run::seeds;
use crate::run::tensorboard::TensorBoard;
use crate::update::{Carried, LossSettings, check_skipped, reference_logp, update};
use anyhow::Context;
use fgrpo_nn::{Device, DeviceName, Engine, Sampling};
use serde_json::Value;
use stall::Stall;
use std::path::Path;
use std::time::Instant;

mod stall;

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// All steps done; what was reached, in words.
    Done(String),
    /// Stopped on request; the state is saved.
    Interrupted,
}

/// Refuses a configuration without RL.
///
/// # Errors
/// Bad input where it has no steps.
pub fn has_steps(config: &Config) -> anyhow::Result<()> {
    if !config.has_steps() {
        bad_input!("steps: found none, wanted at least 1 RL step (`fgrpo sft` fits demonstrations alone)");
    }
    Ok(())
}

/// Trains `config` into the run folder `out`.
///
/// # Errors
/// Bad input as [`RunDir::open`], or a configuration without RL steps; otherwise what fails on the way.
pub fn train(
    config: &Config,
    out: &Path,
    held: Held,
    device: DeviceName,
    events: &mut dyn Events,
) -> anyhow::Result<Ending> {
    has_steps(config)?;
    let device = device::of_run(device, config)?;
    let task = problem::open(config)?;
    let config = &config.resolved(task.len(Split::Train))?;
    check_held_out(config, task.as_ref())?;
    let run = RunDir::open(out, config, held)?;
    events.opened(&run.path)?;
    let Some(mut trainer) = Trainer::start(config, task.as_ref(), device, run, events)? else {
        return Ok(Ending::Interrupted);
    };
    let done = match (trainer.train(), trainer.run.check_place()) {
        // Whatever failed in a folder that isn't where it was, that is the reason.
        (Err(error), Err(moved)) => return Err(error.context(moved.to_string())),
        (done, _) => done,
    };
    match done? {
        true => Ok(Ending::Done(trainer.summary()?)),
        false => Ok(Ending::Interrupted),
    }
}

struct Trainer<'a> {
    config: &'a Config,
    task: &'a dyn Task,
    run: RunDir,
    events: &'a mut dyn Events,
    engine: Engine,
    /// The policy RL started from, for the KL penalty.
    reference: Option<Engine>,
    /// The policy RL started from is the engine without its adapter.
    base_is_reference: bool,
    /// Samples in the engine's place.
    server: Option<ServerRollouts>,
    state: TrainerState,
    /// What its evaluations ask.
    plan: Plan,
    metrics: JsonLines,
    evaluations: JsonLines,
    rollouts: JsonLines,
    tensorboard: Option<TensorBoard>,
    /// Steps in a row in which each group's completions were all the same.
    collapsed: u64,
    /// Steps in a row without a correct completion, or without any verdict.
    stall: Stall,
    /// Whether a metric that isn't finite was spoken of.
    said_not_finite: bool,
    /// The newest checkpoint's step and what it says of the best policy.
    saved: Option<(u64, Option<Best>)>,
}

impl<'a> Trainer<'a> {
    /// A trainer at the run's last checkpoint, or at its beginning. `None` when interrupted before RL, with
    /// the supervised stage saved.
    fn start(
        config: &'a Config,
        task: &'a dyn Task,
        device: Device,
        run: RunDir,
        events: &'a mut dyn Events,
    ) -> anyhow::Result<Option<Self>> {
        let latest = run.latest()?;
        let penalised = config.algorithm.kl_coef != 0.0;
        let mut starting = || policy::starting(config, task, &device, &run, &mut *events);
        let (mut engine, mut state) = match &latest {
            Some((_, folder)) => {
                let fresh = || policy::fresh(config, task, &device);
                checkpoint::open(folder, checkpoint::Stage::Rl, config, &device, fresh)?
            }
            None => {
                let Some(start) = starting()? else { return Ok(None) };
                let state = TrainerState {
                    stage: checkpoint::Stage::Rl,
                    step: 0,
                    carried: Carried::default(),
                    best: None,
                    optimizer_step: 0,
                };
                (start, state)
            }
        };
        // The base model is in the engine: the weights without the adapter.
        let base_is_reference = penalised && config.lora.is_some() && config.sft.is_none();
        let reference = match (penalised && !base_is_reference).then(&mut starting).transpose()? {
            Some(None) => return Ok(None),
            reference => reference.flatten(),
        };
        let logged = run.logged()?;
        // Only now, when the checkpoint has proved usable.
        let wrong = run.rewind(latest.as_ref().map(|(step, _)| *step))?;
        match &latest {
            Some((step, folder)) => {
                events.say(&format!("resumed after step {step} from {}", folder.display()));
            }
            None if logged > 0 => events.say(&format!(
                "no checkpoint had been saved yet: the {logged} steps logged are made again from the start"
            )),
            None => {}
        }
        for wrong in wrong {
            events.say(&format!("warning: {wrong}"));
        }
        state.best = best(&read_lines(&run.file("eval.jsonl"))?, &state, &run.checkpoints());
        state.carried.prepare(config.algorithm.daro.then_some(config.rollout.group_size));
        engine.set_checkpointing(config.compute.checkpoint_activations);
        let reopened = || match &latest {
            Some((step, _)) => TensorBoard::resume(&run.path, "fgrpo", *step),
            None => TensorBoard::create(&run.path, "fgrpo"),
        };
        let lines: Vec<Value> = read_lines(&run.file("metrics.jsonl"))?;
        let mut tensorboard = config.log.tensorboard.then(reopened).transpose()?;
        // What a lost file held is written again as far as it is known.
        let there = tensorboard.as_ref().and_then(TensorBoard::last_step).unwrap_or(0);
        let mut stall = Stall::default();
        for line in &lines {
            let m = metrics::of_line(line.clone()).context("metrics.jsonl")?;
            stall.step(&m);
            if let Some(tensorboard) = tensorboard.as_mut().filter(|_| m.step > there) {
                write_scalars(tensorboard, line)?;
            }
        }
        if let Some(line) = lines.iter().find(|line| !not_finite(line).is_empty()) {
            events.say(&format!(
                    "warning: metrics.jsonl, step {}: {} is null, which stands for a number that wasn't finite; left out",
                    line["step"],
                    not_finite(line).join(", ")
                ),
            );
        }
        let server = config.rollout.server.as_ref();
        let server = server.map(|s| ServerRollouts::open(s, &run.path)).transpose()?;
        let mut trainer = Self {
            plan: Plan::of_run(config, task)?,
            server,
            metrics: JsonLines::append(&run.file("metrics.jsonl"))?,
            evaluations: JsonLines::append(&run.file("eval.jsonl"))?,
            rollouts: JsonLines::append(&run.file("rollouts.jsonl"))?,
            tensorboard,
            collapsed: 0,
            stall,
            said_not_finite: false,
            saved: latest.map(|(step, _)| (step, state.best)),
            config,
            task,
            run,
            events,
            engine,
            reference,
            base_is_reference,
            state,
        };
        if trainer.saved.is_some() {
            trainer.tell_server()?;
        }
        Ok(Some(trainer))
    }

    /// Returns whether all steps are done; an interruption leaves some.
    fn train(&mut self) -> anyhow::Result<bool> {
        let config = self.config;
        let how = config.algorithm.credit();
        let max_new_tokens = config.rollout.max_new_tokens.unwrap_or(self.task.max_new_tokens());
        let loss = LossSettings {
            objective: config.algorithm.objective(max_new_tokens),
            temperature: config.rollout.temperature,
            daro_lr: config.algorithm.daro.then_some(config.algorithm.daro_lr),
        };
        let sampling = self.sampling(max_new_tokens);
        self.events.begin("train", self.state.step, config.steps);
        if !self.evaluated(self.state.step)? {
            if self.evaluate()?.is_none() {
                return self.interrupted();
            }
            self.save()?;
        }
        while self.state.step < config.steps {
            let step = self.state.step + 1;
            let clock = Instant::now();
            let mut seconds = Seconds::default();

            let prompts = self.prompts(step);
            let Some(rollouts) = timed(&mut seconds.rollout, || self.sampled(step, prompts, &sampling))?
            else {
                return self.interrupted();
            };
            let Some(grades) = timed(&mut seconds.grade, || grade(self.task, Split::Train, &rollouts)) else {
                return self.interrupted();
            };
            let credited = credit(&how, rollouts, grades)?;
            let mut groups = samples(&credited, config.algorithm.drop_inactive_groups);
            let lr = config.update.peak_lr()
                * config.update.schedule.factor(step, config.update.warmup_steps, config.steps);
            let sums = timed(&mut seconds.update, || {
                if self.base_is_reference {
                    self.engine.set_adapter_applied(false);
                    let scored = reference_logp(&mut self.engine, &mut groups, config.rollout.temperature);
                    self.engine.set_adapter_applied(true);
                    scored?;
                }
                if let Some(reference) = &mut self.reference {
                    reference_logp(reference, &mut groups, config.rollout.temperature)?;
                }
                update(&mut self.engine, &groups, &loss, &config.update, lr, &mut self.state.carried)
            })?;
            self.state.step = step;

            let mut m = Metrics::of_step(step, lr, &credited, &sums, &seconds);
            m.sampler = SamplerMetrics::of_step(&credited, loss.objective.correction);
            m.reward_by_part = Metrics::reward_by_part(self.task, &credited);
            m.daro_weights = self.state.carried.daro_weights();
            self.log_rollouts(step, &credited)?;
            self.warn(&m);
            let stopped = {
                let done = timed(&mut m.seconds.evaluate, || match self.evaluation_due() {
                    true => self.evaluate().map(|e| e.is_some()),
                    false => Ok(true),
                })?;
                !done
            };
            let checkpoint = match self.due(config.save.every) {
                true => Some(timed(&mut m.seconds.save, || self.prepare_checkpoint())?),
                false => None,
            };
            m.seconds.total = clock.elapsed().as_secs_f64();
            // Before the checkpoint bears its name: a run killed in between goes on from the one before it and
            // drops the line.
            self.log(&m)?;
            if self.run.moved()?.is_some() {
                self.save()?;
                self.run.check_place()?;
            }
            if let Some(checkpoint) = checkpoint {
                self.publish_checkpoint(checkpoint)?;
                self.tell_server()?;
            }
            check_skipped(self.state.carried.skipped_in_a_row, config.update.max_skipped)
                .and_then(|()| self.stall.check(config.grade.max_unscorable, &m))
                .or_else(|e| {
                    self.save()?;
                    self.events.note(&format!("stopped after step {step}: {e:#}"));
                    Err(e)
                })?;
            let reached =
                format!("reward {:.3} entropy {:.3} |g| {:.2}", m.reward_mean, m.entropy, m.gradient_norm);
            self.events.progress(step, reached);
            if stopped || (interrupt::asked() && step < config.steps) {
                return self.interrupted();
            }
        }
        self.events.end();
        self.save()?;
        if let Some(warning) = self.stall.at_end()? {
            self.events.say(&warning);
        }
        Ok(true)
    }

    /// Whether something done every so many steps, and after the last, is due now.
    fn due(&self, every: Every) -> bool {
        match every {
            Every::Steps(0) => false,
            Every::Steps(n) => self.state.step.is_multiple_of(n) || self.state.step == self.config.steps,
            Every::Epoch => unreachable!("the configuration was resolved"),
        }
    }

    fn evaluation_due(&self) -> bool {
        let eval = &self.config.eval;
        self.due(eval.every) || (eval.at_checkpoints && self.due(self.config.save.every))
    }

    fn prompts(&self, step: u64) -> Vec<Prompt> {
        let batch = self.config.rollout.prompts as u64;
        let positions = (step - 1) * batch..step * batch;
        let ids = self.task.training(seeds::prompts(self.config.seed), positions);
        ids.into_iter().map(|id| self.task.prompt(Split::Train, id)).collect()
    }

    /// A step's completions, from the engine or from the server. `None` when asked to stop.
    fn sampled(
        &mut self,
        step: u64,
        prompts: Vec<Prompt>,
        sampling: &Sampling,
    ) -> anyhow::Result<Option<Vec<Rollouts>>> {
        let (key, group_size) = (seeds::rollout(self.config.seed, step), self.config.rollout.group_size);
        let Some(server) = &mut self.server else {
            let go_on = || !interrupt::asked();
            return sample(&mut self.engine, self.task, prompts, group_size, sampling, key, &go_on);
        };
        let sampled = server.sample(&mut self.engine, self.task, prompts, group_size, sampling, (step, key));
        // Whatever happened to the server, nothing learned is lost.
        if sampled.is_err() {
            self.save()?;
        }
        sampled
    }

    /// Hands the newest checkpoint to the user's command, while there are steps to come.
    fn tell_server(&mut self) -> anyhow::Result<()> {
        let (Some(server), true) = (&self.server, self.state.step < self.config.steps) else { return Ok(()) };
        let checkpoints = checkpoint::list(&self.run.checkpoints())?;
        // Older ones are kept to be compared: no run goes on from them.
        let resumable = &checkpoints[checkpoints.len().saturating_sub(checkpoint::RESUMABLE)..];
        if let (Some((oldest, _)), Some((_, newest))) = (resumable.first(), resumable.last()) {
            server.forget(*oldest)?;
            server.tell(newest)?;
        }
        Ok(())
    }

    fn sampling(&self, max_new_tokens: usize) -> Sampling {
        let r = &self.config.rollout;
        Sampling {
            temperature: r.temperature,
            top_p: r.top_p,
            top_k: r.top_k,
            min_p: r.min_p,
            max_new_tokens,
            stop_tokens: self.task.stop_tokens().to_vec(),
            max_cached_tokens: r.max_cached_tokens,
        }
    }

    fn evaluated(&self, step: u64) -> anyhow::Result<bool> {
        let wanted = self.config.eval.happens() && (step == 0 || self.evaluation_due());
        let done: Vec<Evaluation> = read_lines(&self.run.file("eval.jsonl"))?;
        Ok(!wanted || done.iter().any(|e| e.step == step))
    }

    /// Evaluates and logs; keeps the best policy. `None` when interrupted.
    fn evaluate(&mut self) -> anyhow::Result<Option<()>> {
        let config = self.config;
        let step = self.state.step;
        let mixed = matches!(config.task, TaskConfig::Mix(_));
        let Self { run, engine, plan, events, task, .. } = self;
        let evaluated = run.in_place(|home| {
            let policy = Policy {
                engine: &mut *engine,
                language: task.language(),
                max_cached_tokens: config.rollout.max_cached_tokens,
                step,
            };
            let folder = checkpoint::path(&home.join(EVALUATIONS), step);
            evaluate(policy, plan, &folder, &config.eval, mixed, *events)
        })?;
        let Some(e) = evaluated else { return Ok(None) };
        // The policy first: a line without it would be the best of nothing.
        if let (1.., Some(found)) = (step, best_of(&e))
            && self.state.best.is_none_or(|best| found.pass_at_1 > best.pass_at_1)
        {
            let contents = self.contents();
            self.run.in_place(|home| {
                checkpoint::save_best(&home.join("checkpoints"), step, &self.engine, &contents)
            })?;
            self.state.best = Some(found);
        }
        self.evaluations.push(&e)?;
        if let Some(tensorboard) = &mut self.tensorboard {
            let mut values: Vec<(String, f64)> =
                e.pass_at_k.iter().map(|(k, p)| (format!("held-out/pass@{k}"), *p)).collect();
            for (name, part) in &e.parts {
                values.extend(part.pass_at_k.iter().map(|(k, p)| (format!("{name}/pass@{k}"), *p)));
            }
            tensorboard.scalars(step, values.iter().map(|(n, v)| (n.as_str(), *v)))?;
        }
        // The smallest and the largest k, so that the line fits a terminal; eval.jsonl has them all.
        let mut ends: Vec<_> =
            e.pass_at_k.first_key_value().into_iter().chain(e.pass_at_k.last_key_value()).collect();
        ends.dedup();
        let mut line: Vec<String> =
            ends.iter().map(|(k, p)| format!("pass@{k} {:.1} %", 100.0 * **p)).collect();
        line.extend(e.parts.iter().filter_map(|(name, part)| {
            let (k, p) = part.pass_at_k.first_key_value()?;
            Some(format!("{name} pass@{k} {:.1} %", 100.0 * p))
        }));
        if e.pass_at_k.is_empty() {
            line.push(format!(
                "no pass@k, since {} of {} samples could not be graded",
                e.unscorable,
                e.problems * e.samples
            ));
        }
        line.extend(e.left_out.iter().map(|(k, few)| {
            format!("{few} of {} problems left out of pass@{k}, with fewer scored samples", e.problems)
        }));
        self.events.say(&format!("step {step}: held-out {}", line.join(", ")));
        if let Some(warning) = e.warning() {
            self.events.say(&format!("warning: step {step}: held-out: {warning}"));
        }
        Ok(Some(()))
    }

    fn log(&mut self, m: &Metrics) -> anyhow::Result<()> {
        let line = m.line();
        self.metrics.push(&line)?;
        if let Some(tensorboard) = &mut self.tensorboard {
            write_scalars(tensorboard, &line)?;
        }
        let lost = not_finite(&line);
        if !lost.is_empty() && !self.said_not_finite {
            self.said_not_finite = true;
            let text = format!(
                "warning: step {}: {} is not finite and logged as null; said once",
                m.step,
                lost.join(", ")
            );
            self.events.say(&text);
        }
        Ok(())
    }

    fn log_rollouts(&mut self, step: u64, groups: &[Credited]) -> anyhow::Result<()> {
        let key = seeds::logging(self.config.seed, step);
        for (g, group) in groups.iter().enumerate() {
            let prompt = &group.rollouts.prompt;
            for (i, c) in group.rollouts.completions.iter().enumerate() {
                if key.with(g as u64).uniform(i as u64) >= self.config.log.rollout_share {
                    continue;
                }
                self.rollouts.push(&RolloutLine {
                    step,
                    prompt_id: self.task.number(Split::Train, prompt.id),
                    part: self.task.part(Split::Train, prompt.id).map(str::to_owned),
                    sample: i as u64,
                    prompt: self.task.text(&prompt.tokens),
                    completion: self.task.text(&c.tokens),
                    target: self.task.target(Split::Train, prompt.id),
                    reward: Some(group.rewards[i]),
                    verdict: group.grades[i].verdict,
                    reason: group.grades[i].reason.to_string(),
                    advantage: Some(group.assigned.advantages[i]),
                    length: Some(c.tokens.len() as u64),
                    old_logp_mean: Some(mean_logp(c)),
                })?;
            }
        }
        Ok(())
    }

    /// Says once when the policy has become a constant, or when nothing has been correct for some steps.
    fn warn(&mut self, m: &Metrics) {
        self.stall.step(m);
        if let Some(warning) = self.stall.warning(m) {
            self.events.say(&warning);
        }
        let constant = m.distinct_fraction <= 1.0 / self.config.rollout.group_size as f64 + 1e-9;
        self.collapsed = if constant && m.reward_mean < 0.99 * self.config.algorithm.reward_correct {
            self.collapsed + 1
        } else {
            0
        };
        if self.collapsed == 5 {
            self.events.say(&format!(
                    "warning: for five steps every group's completions have been all the same (reward {:.3}): the policy has collapsed and can't learn. Lower update.lr (now {})",
                    m.reward_mean, self.config.update.lr
                ),
            );
        }
        if m.skipped_updates > 0 {
            self.events.say(&format!(
                "warning: step {}: {} updates skipped, their loss or gradient isn't finite",
                m.step, m.skipped_updates
            ));
        }
    }

    fn contents(&self) -> Contents<'a> {
        Contents::of(self.config, self.task)
    }

    /// Saves the state, unless it is saved already, in the folder that is the run's now.
    fn save(&mut self) -> anyhow::Result<()> {
        let step = self.state.step;
        if step == 0 || self.saved == Some((step, self.state.best)) {
            return Ok(());
        }
        match self.saved {
            // Stopped in this step's evaluation, resumed, and evaluated now.
            Some((saved, _)) if saved == step => {
                let checkpoints = self.sync_lines()?;
                checkpoint::write_state(&checkpoint::path(&checkpoints, step), &self.engine, &self.state)?;
                self.saved_now(&checkpoints)
            }
            _ => {
                let prepared = self.prepare_checkpoint()?;
                self.publish_checkpoint(prepared)
            }
        }
    }

    fn prepare_checkpoint(&self) -> anyhow::Result<Prepared> {
        let contents = self.contents();
        self.run.in_place(|home| {
            checkpoint::prepare_step(&home.join("checkpoints"), &self.engine, &contents, &self.state)
        })
    }

    fn publish_checkpoint(&mut self, prepared: Prepared) -> anyhow::Result<()> {
        let checkpoints = self.sync_lines()?;
        checkpoint::publish_step(&checkpoints, prepared, self.state.step, self.config.save.keep)?;
        self.saved_now(&checkpoints)
    }

    /// Brings the logged lines to the disk: what a resume keeps of them has to be there before the checkpoint it goes
    /// on from. Returns the folder of the checkpoints, where the run is now.
    fn sync_lines(&self) -> anyhow::Result<std::path::PathBuf> {
        let home = self.run.whereabouts()?;
        for lines in [&self.metrics, &self.evaluations, &self.rollouts] {
            lines.sync()?;
        }
        sync_folder(&home)?;
        Ok(home.join("checkpoints"))
    }

    fn saved_now(&mut self, checkpoints: &Path) -> anyhow::Result<()> {
        if let Some(best) = self.state.best {
            checkpoint::keep_best(checkpoints, best)?;
        }
        self.saved = Some((self.state.step, self.state.best));
        Ok(())
    }

    fn interrupted(&mut self) -> anyhow::Result<bool> {
        self.events.end();
        self.save()?;
        self.events.say(&format!("interrupted after step {}", self.state.step));
        Ok(false)
    }

    /// Says where things are, and returns what was reached.
    fn summary(&mut self) -> anyhow::Result<String> {
        let evaluations: Vec<Evaluation> = read_lines(&self.run.file("eval.jsonl"))?;
        let seconds: f64 =
            metrics::read(&self.run.file("metrics.jsonl"))?.iter().map(|m| m.seconds.total).sum();
        self.events.say(&format!("{} RL steps in {}", self.state.step, duration(seconds)));
        if let Some(peak) = peak() {
            self.events.say(&format!("memory: {} at most", bytes(peak)));
        }
        if let Some((_, folder)) = self.run.latest()? {
            self.events.say(&format!("policy: {}", folder.display()));
        }
        Ok(match (evaluations.first(), evaluations.last()) {
            (Some(first), Some(last)) => record::summary(first, last),
            _ => String::new(),
        })
    }
}

fn timed<T>(seconds: &mut f64, work: impl FnOnce() -> T) -> T {
    let clock = Instant::now();
    let result = work();
    *seconds += clock.elapsed().as_secs_f64();
    result
}

/// The best policy of those evaluated up to `state`'s step that are still there, the earliest among equals. The
/// lines say so and not the checkpoint alone, which may be of a moment before its own step's evaluation.
fn best(evaluations: &[Evaluation], state: &TrainerState, checkpoints: &Path) -> Option<Best> {
    let evaluated = evaluations.iter().filter_map(best_of);
    let known = state.best.into_iter().chain(evaluated);
    let mut known: Vec<Best> = known
        .filter(|b| (1..=state.step).contains(&b.step) && checkpoint::has_best(checkpoints, *b))
        .collect();
    known.sort_by_key(|b| b.step);
    known.into_iter().reduce(|best, b| if b.pass_at_1 > best.pass_at_1 { b } else { best })
}

/// How good a policy is by its evaluation. Without a grade there is nothing to prefer it for.
fn best_of(evaluation: &Evaluation) -> Option<Best> {
    Some(Best { step: evaluation.step, pass_at_1: evaluation.pass_at_1()? })
}

fn write_scalars(tensorboard: &mut TensorBoard, line: &Value) -> anyhow::Result<()> {
    let scalars = metrics::scalars(line);
    tensorboard.scalars(line["step"].as_u64().unwrap_or(0), scalars.iter().map(|(n, v)| (n.as_str(), *v)))
}
