//! The training loop: prompts -> rollout -> grade -> advantages -> update -> log -> evaluate -> save.
//!
//! A step is one rollout batch. All randomness is a function of (seed, step, prompt, sample, position), so a
//! checkpoint only needs the weights, the optimizer state and the step, and a resumed run equals the uninterrupted
//! one. Difference from the usual loop: `old_logp` *is* the log-probabilities recorded during sampling. Sampler and
//! learner use the same weights, so there is no second forward pass.

use crate::config::{Config, Every, Truncated};
use crate::credit::{Credited, credit};
use crate::device;
use crate::estimator::Estimator;
use crate::evaluation::in_training::{Series, check_held_out};
use crate::policy::{self, Policy};
use crate::problem::{Prompt, Split, Task};
use crate::rollout::{Draws, Rollouts, ServerRollouts, grade, sample};
use crate::run::checkpoint::{Best, Stage, TrainerState};
use crate::run::folder::{CONFIGURATION, IfExists, RunDir};
use crate::run::metrics::{Metrics, SamplerMetrics, Seconds};
use crate::run::needs;
use crate::run::seeds;
use crate::run::sessions::{self, Inputs};
use crate::run::tensorboard::TensorBoard;
use crate::update::{LossSettings, Sums, check_skipped, reference_logp, update};
use fgrpo_core::credit::{Anchor, Credit, Shaping};
use fgrpo_eval::events::Events;
use fgrpo_eval::io::interrupt;
use fgrpo_eval::io::lines::JsonLines;
use fgrpo_eval::record::Evaluation;
use fgrpo_nn::DeviceName;
use stall::Stall;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

mod evaluate;
mod log;
mod save;
mod setup;
mod stall;

pub use setup::check_cache;

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// All steps are done; a summary of the results as text.
    Done(String),
    /// Stopped on request; the state was saved.
    Interrupted,
}

/// Rejects a configuration without RL steps.
///
/// # Errors
/// Bad input if the configuration has no steps.
pub fn has_steps(config: &Config) -> anyhow::Result<()> {
    if !config.has_steps() {
        bad_input!("steps: found none, wanted at least 1 RL step (`fgrpo sft` fits demonstrations alone)");
    }
    Ok(())
}

/// Trains `config` into the run folder `out`.
///
/// # Errors
/// Bad input as in [`RunDir::open`], or a configuration without RL steps; otherwise the error that stopped training.
pub fn train(
    config: &Config,
    out: &Path,
    if_exists: IfExists,
    device: DeviceName,
    events: &mut dyn Events,
) -> anyhow::Result<Ending> {
    has_steps(config)?;
    let name = device;
    let device = device::of_run(name, config)?;
    let task = &Task::open(config)?;
    let config = &config.resolved(task.len(Split::Train))?;
    let recorded = std::fs::read_to_string(out.join(CONFIGURATION)).ok();
    let recorded = recorded.filter(|_| matches!(if_exists, IfExists::Resume { .. }));
    let recorded = recorded.and_then(|text| Config::parse(&text, &[]).ok());
    let open = config;
    let (config, warnings) = &needs::decided(config, task, name, recorded.as_ref())?;
    check_held_out(config, task)?;
    check_cache(config, task, name)?;
    let own = Estimator::of(config)?;
    // Before an old run is deleted. One that is resumed has its policy in a checkpoint.
    if !matches!(if_exists, IfExists::Resume { .. }) {
        policy::check(config, task)?;
    }
    let run = RunDir::open(out, config, if_exists, Stage::Rl)?;
    events.opened(&run.path)?;
    events.say(&format!("method: {}", config.algorithm.method()));
    let inputs = Inputs::of(config, task, Stage::Rl)?;
    sessions::begin(&run.path, name, config.threads(), inputs, if_exists.accepts_changes(), events)?;
    device::announce(&device, events);
    let of = |config: &Config| (config.update.micro_batch_tokens(), config.compute.checkpointing());
    if of(config) != of(open) {
        let (tokens, checkpointing) = of(config);
        events.say(&format!(
            "memory: update.micro_batch_tokens = {tokens}, compute.checkpoint_activations = {checkpointing}"
        ));
    }
    for warning in warnings {
        events.say(&format!("warning: {warning}"));
    }
    let Some(mut trainer) = Trainer::start(config, task, own, device, run, events)? else {
        sessions::end(out)?;
        return Ok(Ending::Interrupted);
    };
    let done = trainer.train().map_err(|error| trainer.run.blame(error))?;
    sessions::end(out)?;
    match done {
        true => Ok(Ending::Done(trainer.summary()?)),
        false => Ok(Ending::Interrupted),
    }
}

/// The reference policy for the KL penalty: the one RL started from.
enum Reference {
    /// No penalty.
    None,
    /// The trained engine without its adapter.
    Base,
    /// A separate policy.
    Policy(Box<Policy>),
}

struct Trainer<'a> {
    config: &'a Config,
    task: &'a Task,
    run: RunDir,
    events: &'a mut dyn Events,
    policy: Policy,
    reference: Reference,
    /// If set, samples instead of the engine.
    server: Option<ServerRollouts>,
    state: TrainerState,
    draws: Draws,
    credit: Credit,
    /// The user's own estimator.
    own: Option<Estimator>,
    truncated: Truncated,
    reward_weights: BTreeMap<String, f64>,
    loss: LossSettings,
    /// The run's evaluation series. The one that decides the best checkpoint is last.
    series: Vec<Series>,
    metrics: JsonLines,
    evaluations: JsonLines,
    /// The evaluations so far, which are the lines of `eval.jsonl`.
    evaluated: Vec<Evaluation>,
    rollouts: JsonLines,
    tensorboard: Option<TensorBoard>,
    /// Consecutive steps in which all completions of each group were identical.
    collapsed: u64,
    /// Consecutive steps without a correct completion, or without any verdict.
    stall: Stall,
    /// HA-DW's estimate of the policy's success rate.
    anchor: Anchor,
    /// Whether the warning about answers that can't be read was already given.
    warned_unreadable: bool,
    /// Whether the warning about a non-finite metric was already given.
    warned_not_finite: bool,
    /// Step of the newest checkpoint, and the best policy recorded in it.
    saved: Option<(u64, Option<Best>)>,
}

impl Trainer<'_> {
    /// Returns whether all steps are done; `false` after an interruption.
    fn train(&mut self) -> anyhow::Result<bool> {
        let config = self.config;
        self.events.begin("train", self.state.step, config.steps);
        if self.evaluate()?.is_none() {
            return self.interrupted();
        }
        self.save()?;
        // The time left is that of steps: the evaluation before the first is none.
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
            let scheduled = self.apply_schedule(step);
            let (weights, own) = (&self.reward_weights, self.own.as_ref());
            let credited = credit(&self.credit, self.truncated, weights, own, rollouts, grades);
            let Some(mut credited) = self.saved_on_error(credited)? else {
                return self.interrupted();
            };
            let lr = config.update.lr_at(step, config.steps);
            let sums = timed(&mut seconds.update, || self.update(&mut credited, lr))?;
            self.state.step = step;

            let mut m = Metrics::of_step(step, lr, &credited, &sums, &seconds);
            m.sampler = SamplerMetrics::of_step(&credited, self.loss.objective.correction);
            m.rewards = Metrics::named_rewards(&credited);
            m.scheduled = scheduled;
            observe(&mut self.anchor, self.credit.shaping, &credited);
            m.difficulty_anchor = self.anchor.value();
            m.reward_by_part = Metrics::reward_by_part(self.task, &credited);
            m.daro_weights = self.state.update.daro_weights();
            self.log_rollouts(step, &credited)?;
            self.warn(&m, &credited);
            let evaluated = timed(&mut m.seconds.evaluate, || self.evaluate())?;
            let checkpoint = match self.due(config.save.every) {
                true => Some(timed(&mut m.seconds.save, || self.prepare_checkpoint())?),
                false => None,
            };
            m.seconds.total = clock.elapsed().as_secs_f64();
            // Log before the checkpoint gets its name. If the run is killed in between, it resumes from the previous
            // checkpoint and drops this line.
            self.log(&m)?;
            self.run.check_place()?;
            if let Some(checkpoint) = checkpoint {
                self.publish_checkpoint(checkpoint)?;
                self.notify_server()?;
            }
            self.stop_if_stalled(&m)?;
            self.events.progress(step, m.in_short());
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

    /// Takes the settings in force at a step, and returns the scheduled values among them.
    fn apply_schedule(&mut self, step: u64) -> BTreeMap<String, f64> {
        let config = self.config;
        let (algorithm, scheduled) = config.algorithm.at(step);
        self.credit = algorithm.credit(&config.task);
        if let Shaping::HaDw { anchor: anchor @ None, .. } = &mut self.credit.shaping {
            *anchor = self.anchor.value();
        }
        self.truncated = algorithm.truncated;
        self.reward_weights.clone_from(&algorithm.reward_weights);
        self.loss = LossSettings::of(&algorithm, self.draws.max_new_tokens, self.loss.temperature);
        scheduled
    }

    /// Whether an action with this interval is due now. After the last step it always is.
    fn due(&self, every: Every) -> bool {
        match every {
            Every::Steps(0) => false,
            Every::Steps(n) => self.state.step.is_multiple_of(n) || self.state.step == self.config.steps,
            Every::Epoch => unreachable!("the configuration was resolved"),
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

    /// Saves if a part of a step has failed that left the policy as it was, so that the steps before it aren't lost.
    fn saved_on_error<T>(&mut self, result: anyhow::Result<T>) -> anyhow::Result<T> {
        if result.is_err() {
            self.save()?;
        }
        result
    }

    fn update(&mut self, credited: &mut [Credited], lr: f64) -> anyhow::Result<Sums> {
        let drop_inactive = self.config.algorithm.drop_inactive_groups;
        let learned = credited.iter_mut().filter(|group| group.has_mixed_rewards() || !drop_inactive);
        let mut groups: Vec<&mut Credited> = learned.collect();
        let temperature = self.loss.temperature;
        match &mut self.reference {
            Reference::None => {}
            Reference::Base => {
                self.policy.engine_mut().set_adapter_applied(false);
                let scored = reference_logp(&mut self.policy, &mut groups, temperature);
                self.policy.engine_mut().set_adapter_applied(true);
                scored?;
            }
            Reference::Policy(reference) => reference_logp(reference, &mut groups, temperature)?,
        }
        let groups: Vec<&Credited> = groups.into_iter().map(|group| &*group).collect();
        update(&mut self.policy, &groups, &self.loss, &self.config.update, lr, &mut self.state.update)
    }

    /// Saves and stops if the run can't learn any more.
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

/// Takes a step's success rate into HA-DW's estimate, if that is the shaping.
fn observe(anchor: &mut Anchor, shaping: Shaping, credited: &[Credited]) {
    let Shaping::HaDw { eta, window, .. } = shaping else { return };
    let of = |group: &Credited| Some((group.assigned.success_rate?, group.scored().count() as f64));
    let (mut correct, mut scored) = (0.0, 0.0);
    for (rate, completions) in credited.iter().filter_map(of) {
        correct += (rate * completions).round();
        scored += completions;
    }
    anchor.update((scored > 0.0).then(|| correct / scored), eta, window);
}

fn timed<T>(seconds: &mut f64, work: impl FnOnce() -> T) -> T {
    let clock = Instant::now();
    let result = work();
    *seconds += clock.elapsed().as_secs_f64();
    result
}
