//! The training loop: prompts -> rollout -> grade -> advantages -> update -> evaluate -> log and save.
//!
//! A step is one rollout batch. All randomness is a function of (seed, step, prompt, sample, position), so a
//! checkpoint only needs the weights, the optimizer state and the step, and a resumed run equals the uninterrupted
//! one. Difference from the usual loop: the embedded engine records log-probabilities during sampling. Sampler and
//! learner use the same weights, so the update needs no second forward pass for them.

use crate::config::{Config, Every};
use crate::credit::Credited;
use crate::device;
use crate::estimator::Estimator;
use crate::evaluation::exact::BeforeUpdate;
use crate::evaluation::in_training::{Series, check_held_out};
use crate::policy::Policy;
use crate::problem::{Prompt, Split, Task};
use crate::rollout::{Draws, Rollouts, ServerRollouts, grade, sample};
use crate::run::checkpoint::{Best, Stage, TrainerState};
use crate::run::folder::{CONFIGURATION, IfExists, RunDir};
use crate::run::metrics::{Metrics, SamplerMetrics, Seconds, TeacherMetrics};
use crate::run::needs;
use crate::run::seeds;
use crate::session::{Ending, Session};
use crate::update::{Sums, check_skipped, update};
use fgrpo_eval::events::Events;
use fgrpo_eval::io::interrupt;
use fgrpo_eval::record::{self, Evaluation};
use fgrpo_nn::DeviceName;
use log::Logs;
use method::Method;
use scorer::Scorer;
use stall::Stall;
use std::fmt;
use std::path::Path;
use std::time::Instant;

mod evaluate;
mod log;
mod method;
mod save;
mod scorer;
mod setup;
mod stall;

pub use scorer::check_teacher;
pub use setup::check_cache;

/// Results of a run: the first and last evaluation that can be compared, or `None` if the run has none. Displayed as
/// a summary.
#[derive(Debug, Clone, PartialEq)]
pub struct Trained(pub Option<Box<(Evaluation, Evaluation)>>);

impl fmt::Display for Trained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_deref().map_or(Ok(()), |(first, last)| f.write_str(&record::summary(first, last)))
    }
}

/// Rejects a configuration without RL steps.
///
/// # Errors
/// Bad input if the configuration has no steps.
pub fn has_steps(config: &Config) -> anyhow::Result<()> {
    if !config.has_steps() {
        bad_input!(
            "steps: requires at least 1 RL step, or epochs (`fgrpo sft` trains on demonstrations alone)"
        );
    }
    Ok(())
}

/// Trains `config` into the run folder `out`.
///
/// # Errors
/// Bad input: as [`RunDir::open`], or a configuration without RL steps. Otherwise the error that stopped
/// training.
pub fn train(
    config: &Config,
    out: &Path,
    if_exists: IfExists,
    name: DeviceName,
    events: &mut dyn Events,
) -> anyhow::Result<Ending<Trained>> {
    has_steps(config)?;
    let device = device::of_run(name, config)?;
    let task = Task::open(config)?;
    let resolved = config.resolved(task.len(Split::Train))?;
    let recorded = match if_exists {
        IfExists::Resume { .. } => std::fs::read_to_string(out.join(CONFIGURATION)).ok(),
        _ => None,
    };
    let recorded = recorded.and_then(|text| Config::parse(&text, &[]).ok());
    let (decided, warnings) = needs::decided(&resolved, &task, name, recorded.as_ref())?;
    check_held_out(&decided, &task)?;
    check_cache(&decided, &task, name)?;
    check_teacher(&decided, &task)?;
    let estimator = Estimator::of(&decided)?;
    let session = Session::begin((&decided, &task, Stage::Rl), out, if_exists, (name, device), events)?;
    let memory = |config: &Config| (config.update.micro_batch_tokens(), config.compute.checkpointing());
    if memory(&decided) != memory(&resolved) {
        let (tokens, checkpointing) = memory(&decided);
        events.say(&format!(
            "memory: update.micro_batch_tokens = {tokens}, compute.checkpoint_activations = {checkpointing}"
        ));
    }
    for warning in warnings {
        events.say(&format!("warning: {warning}"));
    }
    let result =
        Trainer::start(&decided, &task, estimator, &session, events).and_then(|trainer| match trainer {
            Some(mut trainer) => Ok(trainer.train()?.then_some(trainer)),
            None => Ok(None),
        });
    match session.end(result)? {
        Some(mut trainer) => Ok(Ending::Done(trainer.results()?)),
        None => Ok(Ending::Interrupted),
    }
}

struct Trainer<'a> {
    config: &'a Config,
    task: &'a Task,
    run: &'a RunDir,
    events: &'a mut dyn Events,
    policy: Policy,
    /// The policy from which RL started, if there is a KL penalty.
    reference: Option<Scorer>,
    teacher: Option<Scorer>,
    /// The server that samples instead of the engine, if there is one.
    server: Option<ServerRollouts>,
    state: TrainerState,
    draws: Draws,
    method: Method,
    /// The run's evaluation series. The last one decides which checkpoint is best.
    series: Vec<Series>,
    logs: Logs,
    /// Number of consecutive steps in which all completions of each group were identical.
    collapsed: u64,
    /// Counts of consecutive steps without a correct completion, or without any verdict.
    stall: Stall,
    /// Whether the warning about unreadable answers was already given.
    warned_unreadable: bool,
    /// Whether the warning about shortened hints was already given.
    warned_shortened: bool,
    /// Step of the newest checkpoint, and the best policy recorded in it.
    saved: Option<(u64, Option<Best>)>,
}

impl Trainer<'_> {
    /// Runs the remaining steps. Returns `false` if interrupted.
    fn train(&mut self) -> anyhow::Result<bool> {
        let config = self.config;
        self.events.begin("train", self.state.step, config.steps);
        if self.evaluate()?.is_none() {
            return self.interrupted();
        }
        self.save()?;
        // Progress starts again, so that the estimate of the remaining time doesn't include the first evaluation.
        self.events.end();
        self.events.begin("train", self.state.step, config.steps);
        while self.state.step < config.steps {
            let step = self.state.step + 1;
            let clock = Instant::now();
            let mut seconds = Seconds::default();

            let prompts = self.prompts(step);
            let sampled = timed(&mut seconds.rollout, || self.sample(step, prompts));
            let Some(rollouts) = self.saved_on_error(sampled)? else {
                return self.interrupted();
            };
            let Some(grades) = timed(&mut seconds.grade, || grade(self.task, &rollouts)) else {
                return self.interrupted();
            };
            let scheduled = self.method.advance(config, step);
            let credited = self.method.credit(rollouts, grades);
            let Some(mut credited) = self.saved_on_error(credited)? else {
                return self.interrupted();
            };
            let lr = config.update.lr_at(step, config.steps);
            let exact = self.series.iter().any(|s| s.eval.exact && self.evaluation_due(step, &s.eval));
            let before = exact
                .then(|| BeforeUpdate::new(&mut self.policy, &credited, config.rollout.temperature))
                .transpose()?;
            let scored = timed(&mut seconds.update, || self.score(&mut credited));
            self.saved_on_error(scored)?;
            let sums = timed(&mut seconds.update, || self.update(&credited, lr))?;
            self.state.step = step;

            let mut m = Metrics::of_step(step, lr, &credited, &sums, &seconds);
            m.sampler = SamplerMetrics::of_step(&credited, self.method.loss.objective.correction);
            m.teacher = TeacherMetrics::of_step(&credited);
            m.rewards = Metrics::named_rewards(&credited);
            if let Some(before) = before {
                m.masses = before.changes(&mut self.policy)?;
            }
            m.scheduled = scheduled;
            m.reward_by_part = Metrics::reward_by_part(self.task, &credited);
            m.daro_weights = self.state.update.daro_weights();
            // The method and the check for stalled training remember this step.
            m.difficulty_anchor = self.method.observe(&credited);
            self.stall.step(&m);
            self.log_rollouts(step, &credited)?;
            self.warn(&m, &credited);
            let evaluated = timed(&mut m.seconds.evaluate, || self.evaluate());
            let checkpoint = if self.due(config.save.every) {
                Some(timed(&mut m.seconds.save, || self.prepare_checkpoint())?)
            } else {
                None
            };
            m.seconds.total = clock.elapsed().as_secs_f64();
            // Log before the checkpoint gets its final name. If the run is killed in between, it resumes from the
            // previous checkpoint and drops this line.
            self.logs.step(&m, self.events)?;
            self.run.check_place()?;
            if let Some(checkpoint) = checkpoint {
                self.publish_checkpoint(checkpoint)?;
                self.notify_server()?;
            }
            self.stop_if_stalled(&m)?;
            self.events.progress(step, m.in_short());
            let evaluated = self.saved_on_error(evaluated)?;
            if evaluated.is_none() || (interrupt::requested() && step < config.steps) {
                return self.interrupted();
            }
        }
        self.events.end();
        self.save()?;
        for warning in self.stall.at_end()? {
            self.events.say(&warning);
        }
        Ok(true)
    }

    /// Returns whether an evaluation or checkpoint with the interval `every` is due after this step. Unless the
    /// interval is 0, one is always due after the last step.
    fn due(&self, every: Every) -> bool {
        self.due_at(self.state.step, every)
    }

    fn due_at(&self, step: u64, every: Every) -> bool {
        match every {
            Every::Steps(0) => false,
            Every::Steps(n) => step.is_multiple_of(n) || step == self.config.steps,
            Every::Epoch(_) => unreachable!("the configuration was resolved"),
        }
    }

    fn prompts(&self, step: u64) -> Vec<Prompt> {
        let batch = self.config.rollout.prompts as u64;
        let positions = (step - 1) * batch..step * batch;
        let ids = self.task.training(seeds::prompts(self.config.seed), positions);
        ids.into_iter().map(|id| self.task.prompt(Split::Train, id)).collect()
    }

    fn sample(&mut self, step: u64, prompts: Vec<Prompt>) -> anyhow::Result<Option<Vec<Rollouts>>> {
        let key = seeds::rollout(self.config.seed, step);
        let Some(server) = &mut self.server else {
            let go_on = || !interrupt::requested();
            return sample(&mut self.policy, self.task, prompts, &self.draws, key, &go_on);
        };
        server.sample(&mut self.policy, self.task, prompts, &self.draws, (step, key))
    }

    /// Returns `result`. If it is an error, first saves a checkpoint, so that no step is lost. The policy must be the
    /// one after the last logged step.
    fn saved_on_error<T>(&mut self, result: anyhow::Result<T>) -> anyhow::Result<T> {
        if result.is_err() {
            self.save()?;
        }
        result
    }

    /// Returns whether a group takes part in the update.
    fn is_learned(&self, group: &Credited) -> bool {
        group.has_mixed_rewards() || !self.config.algorithm.drop_inactive_groups
    }

    /// Stores the log-probabilities of the reference and the teacher, if there are any.
    fn score(&mut self, credited: &mut [Credited]) -> anyhow::Result<()> {
        let mut groups: Vec<&mut Credited> =
            credited.iter_mut().filter(|group| self.is_learned(group)).collect();
        let temperature = self.method.loss.temperature;
        if let Some(reference) = &mut self.reference {
            let scored = reference.logp(&mut self.policy, scorer::plain(&groups), temperature)?;
            groups.iter_mut().zip(scored).for_each(|(group, logp)| group.rollouts.ref_logp = Some(logp));
        }
        if let Some(teacher) = &mut self.teacher {
            let positions = teacher.positions(&self.policy);
            let (sequences, shortened) = scorer::hinted(self.config, self.task, &groups, positions)?;
            if shortened > 0 && !std::mem::replace(&mut self.warned_shortened, true) {
                self.events.say(&format!(
                    "warning: step {}: {shortened} episodes leave too few of the teacher's {positions} positions for their hints, so the end of the feedback is cut off, or else the hint is left out; this warning is given once after a start",
                    self.state.step + 1
                ));
            }
            let scored = teacher.logp(&mut self.policy, sequences, temperature)?;
            groups.iter_mut().zip(scored).for_each(|(group, logp)| group.rollouts.teacher_logp = Some(logp));
        }
        Ok(())
    }

    fn update(&mut self, credited: &[Credited], lr: f64) -> anyhow::Result<Sums> {
        let groups: Vec<&Credited> = credited.iter().filter(|group| self.is_learned(group)).collect();
        update(&mut self.policy, &groups, &self.method.loss, &self.config.update, lr, &mut self.state.update)
    }

    /// Saves and fails if the run can no longer learn.
    fn stop_if_stalled(&mut self, m: &Metrics) -> anyhow::Result<()> {
        check_skipped(self.state.update.skipped_in_a_row, self.config.update.max_skipped)
            .and_then(|()| self.stall.check(self.config.grade.max_unscorable, m))
            .or_else(|e| {
                self.save()?;
                self.events.note(&format!("stopped after step {}: {e:#}", m.step));
                Err(e)
            })
    }

    fn interrupted(&mut self) -> anyhow::Result<bool> {
        self.events.end();
        self.save()?;
        self.events.say(&format!("interrupted after step {}", self.state.step));
        Ok(false)
    }
}

fn timed<T>(seconds: &mut f64, work: impl FnOnce() -> T) -> T {
    let clock = Instant::now();
    let result = work();
    *seconds += clock.elapsed().as_secs_f64();
    result
}
