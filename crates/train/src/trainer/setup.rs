//! How training starts: from scratch, or from the run's last checkpoint.

use super::evaluate::best;
use super::log::write_scalars;
use super::stall::Stall;
use super::{Reference, Trainer};
use crate::config::Config;
use crate::evaluation::in_training::Series;
use crate::evaluation::record::deciding;
use crate::events::Events;
use crate::failure::OrBadInput;
use crate::io::lines::{self, JsonLines};
use crate::policy;
use crate::problem::Task;
use crate::rollout::ServerRollouts;
use crate::run::checkpoint::{self, TrainerState};
use crate::run::folder::RunDir;
use crate::run::metrics::{self, not_finite};
use crate::run::tensorboard::TensorBoard;
use crate::sft;
use crate::update::{LossSettings, UpdateState};
use anyhow::Context;
use fgrpo_nn::{Device, Engine, Sampling};
use serde_json::Value;

impl<'a> Trainer<'a> {
    /// A trainer at the run's last checkpoint, or at step 0. `None` if interrupted before RL, with the supervised
    /// stage saved.
    pub(super) fn start(
        config: &'a Config,
        task: &'a dyn Task,
        device: Device,
        run: RunDir,
        events: &'a mut dyn Events,
    ) -> anyhow::Result<Option<Self>> {
        let latest = run.latest()?;
        // The policy that RL starts from. The same configuration gives the same one, bit for bit.
        let mut starting = || match &config.sft {
            Some(sft) => sft::stage(config, sft, task, &device, &run, &mut *events),
            None => policy::fresh(config, task, &device).map(Some),
        };
        let (engine, mut state) = match &latest {
            Some((_, folder)) => {
                let fresh = || policy::fresh(config, task, &device);
                checkpoint::open(folder, checkpoint::Stage::Rl, config, &device, fresh)?
            }
            None => match starting()? {
                Some(engine) => (engine, first_state()),
                None => return Ok(None),
            },
        };
        let Some(reference) = reference(config, &mut starting)? else { return Ok(None) };
        let logged = run.logged()?;
        // Only after the checkpoint has loaded without error.
        let wrong = run.rewind(latest.as_ref().map(|(step, _)| *step))?;
        match &latest {
            Some((step, folder)) => {
                events.say(&format!("resumed after step {step} from {}", folder.display()));
            }
            None if logged > 0 => events.say(&format!(
                "no checkpoint was saved before the stop: the {logged} logged steps are repeated from the start"
            )),
            None => {}
        }
        for wrong in wrong {
            events.say(&format!("warning: {wrong}"));
        }
        state.best = best(&deciding(&run.file("eval.jsonl"))?, &state, &run.checkpoints());
        state.update.prepare(config.algorithm.daro.then_some(config.rollout.group_size));
        let mut tensorboard = match (config.log.tensorboard, &latest) {
            (false, _) => None,
            (true, Some((step, _))) => Some(TensorBoard::resume(&run.path, "fgrpo", *step)?),
            (true, None) => Some(TensorBoard::create(&run.path, "fgrpo")?),
        };
        let stall = replay(&lines::read(&run.file("metrics.jsonl"))?, tensorboard.as_mut(), events)?;
        let server = config.rollout.server.as_ref();
        let max_new_tokens = config.rollout.max_new_tokens.unwrap_or(task.max_new_tokens());
        let mut trainer = Self {
            series: Series::of_run(config, task)?,
            server: server.map(|s| ServerRollouts::open(s, &run.path)).transpose()?,
            sampling: sampling(config, task, max_new_tokens),
            credit: config.algorithm.credit(),
            loss: LossSettings {
                objective: config.algorithm.objective(max_new_tokens),
                temperature: config.rollout.temperature,
                daro_lr: config.algorithm.daro.then_some(config.algorithm.daro_lr),
            },
            metrics: JsonLines::append(&run.file("metrics.jsonl"))?,
            evaluations: JsonLines::append(&run.file("eval.jsonl"))?,
            rollouts: JsonLines::append(&run.file("rollouts.jsonl"))?,
            tensorboard,
            collapsed: 0,
            stall,
            warned_not_finite: false,
            saved: latest.map(|(step, _)| (step, state.best)),
            config,
            task,
            run,
            events,
            engine,
            reference,
            state,
        };
        if trainer.saved.is_some() {
            trainer.notify_server()?;
        }
        Ok(Some(trainer))
    }
}

fn first_state() -> TrainerState {
    TrainerState {
        stage: checkpoint::Stage::Rl,
        step: 0,
        update: UpdateState::default(),
        best: None,
        optimizer_step: 0,
    }
}

/// The reference policy of the KL penalty. `None` if interrupted while making it.
fn reference(
    config: &Config,
    starting: &mut dyn FnMut() -> anyhow::Result<Option<Engine>>,
) -> anyhow::Result<Option<Reference>> {
    if config.algorithm.kl_coef == 0.0 {
        return Ok(Some(Reference::None));
    }
    // The base model is already in the engine: its weights without the adapter.
    if config.lora.is_some() && config.sft.is_none() {
        return Ok(Some(Reference::Base));
    }
    Ok(starting()?.map(|engine| Reference::Engine(Box::new(engine))))
}

fn sampling(config: &Config, task: &dyn Task, max_new_tokens: usize) -> Sampling {
    let r = &config.rollout;
    Sampling {
        temperature: r.temperature,
        top_p: r.top_p,
        top_k: r.top_k,
        min_p: r.min_p,
        max_new_tokens,
        stop_tokens: task.stop_tokens().to_vec(),
        max_cached_tokens: r.max_cached_tokens,
    }
}

/// Restores state from the logged steps: how long nothing has been correct, and scalars missing from the TensorBoard
/// file.
fn replay(
    lines: &[Value],
    mut tensorboard: Option<&mut TensorBoard>,
    events: &mut dyn Events,
) -> anyhow::Result<Stall> {
    let there = tensorboard.as_ref().and_then(|t| t.last_step()).unwrap_or(0);
    let mut stall = Stall::default();
    for (i, line) in lines.iter().enumerate() {
        let place = || format!("metrics.jsonl line {}", i + 1);
        let m = metrics::of_line(line.clone()).with_context(place).or_bad_input()?;
        stall.step(&m);
        if let Some(tensorboard) = tensorboard.as_mut().filter(|_| m.step > there) {
            write_scalars(tensorboard, line)?;
        }
    }
    if let Some(line) = lines.iter().find(|line| !not_finite(line).is_empty()) {
        events.say(&format!(
            "warning: metrics.jsonl, step {}: {} is null, which means that it was not finite; left out",
            line["step"],
            not_finite(line).join(", ")
        ));
    }
    Ok(stall)
}
