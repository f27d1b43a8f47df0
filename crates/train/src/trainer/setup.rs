//! Starts training from scratch, or from the run's last checkpoint.

use super::Trainer;
use super::evaluate::best;
use super::log::{Logs, write_scalars};
use super::method::Method;
use super::scorer::Scorer;
use super::stall::Stall;
use crate::config::{Config, RolloutConfig, TeacherConfig};
use crate::estimator::Estimator;
use crate::evaluation::in_training::Series;
use crate::policy::{self, Policy};
use crate::problem::Task;
use crate::rollout::{Draws, ServerRollouts};
use crate::run::checkpoint::{self, TrainerState};
use crate::run::metrics::{self, not_finite};
use crate::run::needs;
use crate::run::tensorboard::TensorBoard;
use crate::session::Session;
use crate::sft;
use anyhow::Context;
use fgrpo_core::credit::{Anchor, Overlong, Shaping};
use fgrpo_eval::events::Events;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::io::lines;
use fgrpo_eval::record::Evaluation;
use fgrpo_nn::{DeviceName, least_cached_tokens};
use serde_json::Value;
use std::sync::Arc;

/// Fails early if the key/value cache is too small for the longest prompt and completion.
///
/// # Errors
/// Bad input that names `rollout.max_cached_tokens` and its minimum.
pub fn check_cache(config: &Config, task: &Task, device: DeviceName) -> anyhow::Result<()> {
    let Some(tokens) = config.rollout.max_cached_tokens else { return Ok(()) };
    let batches = device.batches(config.compute.threads());
    let prompt = task.longest_prompt();
    let completion = config.rollout.max_new_tokens.unwrap_or(task.max_new_tokens());
    let model = needs::model(config, Some(task))?;
    let model = model.as_ref().map(|model| (model, config.compute.precision));
    let minimum = least_cached_tokens(model, prompt, completion, batches);
    if tokens < minimum {
        bad_input!(
            "rollout.max_cached_tokens: expected at least {minimum}, found {tokens}: each of {batches} parallel batches needs whole pages for a prompt of {prompt} tokens and a completion of {completion}, a spare page, and any recurrent states"
        );
    }
    Ok(())
}

impl<'a> Trainer<'a> {
    /// Starts at the run's last checkpoint, or at step 0. Returns `None` if interrupted before RL, after saving the
    /// supervised stage.
    pub(super) fn start(
        config: &'a Config,
        task: &'a Task,
        estimator: Option<Estimator>,
        Session { run, device }: &'a Session,
        events: &'a mut dyn Events,
    ) -> anyhow::Result<Option<Self>> {
        let latest = run.latest()?;
        // Makes the policy that RL starts from. For a given configuration, the policy is always the same, bit for bit.
        let mut starting = || match &config.sft {
            Some(sft) => sft::stage(config, sft, task, device, run, &mut *events),
            None => policy::fresh(config, task, device).map(Some),
        };
        let resumed = latest.as_ref().map(|(_, folder)| {
            let fresh = || policy::fresh(config, task, device);
            checkpoint::open(folder, checkpoint::Stage::Rl, config, device, fresh)
        });
        let resumed = resumed.transpose()?;
        run.adopt(config)?;
        let (mut engine, mut state) = match resumed {
            Some(resumed) => resumed,
            None => match starting()? {
                Some(engine) => (engine, TrainerState::default()),
                None => return Ok(None),
            },
        };
        let reference = if config.algorithm.penalises_kl() {
            let Some(reference) = Scorer::reference(config, task, &mut starting)? else { return Ok(None) };
            Some(reference)
        } else {
            None
        };
        let teacher = Scorer::teacher(config, task, &mut engine, device)?;
        let logged = run.logged()?;
        // Nothing is removed before the checkpoint has loaded without error.
        let damage = run.rewind(latest.as_ref().map(|(step, _)| *step))?;
        match &latest {
            Some((step, folder)) => {
                events.say(&format!("resumed after step {step} from {}", folder.display()));
            }
            None if logged > 0 => events.say(&format!(
                "the run stopped before its first checkpoint, so its {logged} logged steps are repeated"
            )),
            None => {}
        }
        for message in damage {
            events.say(&format!("warning: {message}"));
        }
        let series = Series::of_run(config, task);
        let evaluated: Vec<Evaluation> = lines::read(&run.file("eval.jsonl"))?;
        state.best = best(&evaluated, series.last(), &state, &run.checkpoints());
        state.update.prepare(config.algorithm.daro.then_some(config.rollout.group_size));
        let mut tensorboard = match (config.log.tensorboard, &latest) {
            (false, _) => None,
            (true, Some((step, _))) => Some(TensorBoard::resume(&run.path, "fgrpo", *step)?),
            (true, None) => Some(TensorBoard::create(&run.path, "fgrpo")?),
        };
        let logged = lines::read(&run.file("metrics.jsonl"))?;
        let (stall, anchor) = replay(config, &logged, tensorboard.as_mut(), events)?;
        let server = config.rollout.server.as_ref();
        let max_new_tokens = config.rollout.max_new_tokens.unwrap_or(task.max_new_tokens());
        let (prompt, positions) = (task.longest_prompt(), engine.config().context());
        if prompt < positions && positions - prompt < max_new_tokens {
            events.say(&format!(
                "note: the model's {positions} positions leave only {} tokens, instead of {max_new_tokens}, for a completion of the longest prompt",
                positions - prompt
            ));
        }
        if let Some(Overlong { length, cache }) = config.algorithm.overlong
            && length - cache >= max_new_tokens
            && !config.task.has_environment()
        {
            events.say(&format!(
                "warning: algorithm.overlong has no effect: it punishes completions of more than {} tokens, and the length limit (rollout.max_new_tokens) is {max_new_tokens}",
                length - cache
            ));
        }
        let mut trainer = Self {
            series,
            server: server.map(|s| ServerRollouts::open(s, &run.path)).transpose()?,
            draws: draws(config, max_new_tokens),
            method: Method::of(config, estimator, anchor, max_new_tokens),
            logs: Logs::append(run, evaluated, tensorboard)?,
            collapsed: 0,
            stall,
            warned_unreadable: false,
            warned_shortened: false,
            saved: latest.map(|(step, _)| (step, state.best)),
            config,
            task,
            run,
            events,
            policy: Policy::new(engine, Arc::clone(&task.language)),
            reference,
            teacher,
            state,
        };
        if trainer.saved.is_some() {
            trainer.notify_server()?;
        }
        Ok(Some(trainer))
    }
}

fn draws(config: &Config, max_new_tokens: usize) -> Draws {
    let &RolloutConfig { group_size, max_cached_tokens, .. } = &config.rollout;
    let feedback = config.teacher.as_ref().is_some_and(TeacherConfig::needs_feedback);
    Draws { group_size, sampling: config.rollout.sampling(max_new_tokens), max_cached_tokens, feedback }
}

/// Restores state from the logged steps: the count of stalled steps, HA-DW's estimate, and scalars missing from the
/// TensorBoard file.
fn replay(
    config: &Config,
    lines: &[Value],
    mut tensorboard: Option<&mut TensorBoard>,
    events: &mut dyn Events,
) -> anyhow::Result<(Stall, Anchor)> {
    let last = tensorboard.as_ref().and_then(|t| t.last_step()).unwrap_or(0);
    let (mut stall, mut anchor) = (Stall::default(), Anchor::default());
    for (i, line) in lines.iter().enumerate() {
        let place = || format!("metrics.jsonl line {}", i + 1);
        let m = metrics::of_line(line.clone()).with_context(place).or_bad_input()?;
        stall.step(&m);
        if let (Shaping::HaDw { .. }, Some(estimate)) = (config.algorithm.shaping, m.difficulty_anchor)
            && let Shaping::HaDw { window, .. } = config.algorithm.at(m.step).0.shaping
        {
            anchor.push(estimate, window);
        }
        if let Some(tensorboard) = tensorboard.as_mut().filter(|_| m.step > last) {
            write_scalars(tensorboard, line)?;
        }
    }
    if let Some(line) = lines.iter().find(|line| !not_finite(line).is_empty()) {
        events.say(&format!(
            "warning: metrics.jsonl, step {}: {} is left out, because its value is null, which means that it wasn't finite",
            line["step"],
            not_finite(line).join(", ")
        ));
    }
    Ok((stall, anchor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Request, Sampling};
    use fgrpo_nn::Engine;
    use fgrpo_nn::weights::Checkpoint;

    #[test]
    fn the_smallest_cache_is_the_one_that_the_engine_accepts() {
        // Qwen3.5's recurrent states are in the cache, too.
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../nn/tests/golden/qwen3_5_text");
        for (threads, path) in [(1, None), (2, None), (3, None), (2, Some(golden))] {
            let text = include_str!("../../../../configs/maze-quick.toml");
            let set = ["task.held_out=2", "rollout.max_new_tokens=20", "rollout.max_cached_tokens=1"];
            let mut set = set.map(str::to_owned).to_vec();
            set.push(format!("compute.threads={threads}"));
            let mut config = Config::parse(text, &set).unwrap();
            let task = Task::open(&config).unwrap();
            let open = path.map(|path| Checkpoint::open(path).unwrap());
            if path.is_some() {
                (config.model.path, config.model.init) = (path.map(Into::into), None);
            }
            let message = check_cache(&config, &task, DeviceName::Cpu).unwrap_err().to_string();
            let minimum = message.split("at least ").nth(1).and_then(|rest| rest.split(',').next());
            let minimum: usize = minimum.unwrap().parse().unwrap();
            config.rollout.max_cached_tokens = Some(minimum);
            check_cache(&config, &task, DeviceName::Cpu).unwrap();
            let device = DeviceName::Cpu.device(
                threads,
                config.compute.products,
                config.compute.precision,
                config.compute.moments,
                config.compute.exact,
            );
            let engine = match &open {
                Some(checkpoint) => Engine::open(checkpoint, &device).unwrap(),
                None => policy::fresh(&config, &task, &device).unwrap(),
            };
            let prompt = task.prompt(crate::problem::Split::Train, 0);
            let mut policy = Policy::new(engine, Arc::clone(&task.language));
            let mut generate = |tokens| {
                let sampling = Sampling::from(&draws(&config, 20).sampling);
                let sampling = Sampling { max_cached_tokens: Some(tokens), ..sampling };
                let request = Request::new(prompt.tokens.clone()).samples(4).max_tokens(20);
                policy.sample(&[request], &sampling)
            };
            assert!(
                generate(minimum - 1).is_err() && generate(minimum).is_ok(),
                "{threads} threads: {minimum}"
            );
        }
    }
}
