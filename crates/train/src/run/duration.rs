//! Estimates how long whole runs take on this machine.

use super::needs::{self, Lengths, Time};
use crate::config::{Config, EvalConfig, Every};
use crate::problem::Task;
use fgrpo_nn::ProductFormat;
use fgrpo_nn::config::Config as ModelConfig;
use std::collections::{HashMap, HashSet};

/// Estimates the time of runs as `--dry-run` does. The speed of the machine is measured once.
#[derive(Default)]
pub struct Estimator {
    rates: HashMap<(usize, ProductFormat), f64>,
    cache: HashMap<String, (Lengths, Option<ModelConfig>)>,
}

impl Estimator {
    /// Estimates the seconds of a run: its steps, its evaluations if its held-out problems are known, and its
    /// supervised stage. A supervised stage that several runs share counts only once: `starts` has the stages counted
    /// so far.
    pub fn seconds(&mut self, config: &Config, starts: &mut HashSet<String>) -> anyhow::Result<f64> {
        let seed = config.sft.as_ref().and_then(|sft| sft.seed).unwrap_or(config.seed);
        let start = format!("{:?} {:?} {:?} {seed}", config.task, config.model, config.sft);
        let Some(time) = self.time(config)? else { return Ok(0.0) };
        let sft = if starts.insert(start) { time.sft } else { 0.0 };
        let times = |eval: Option<EvalConfig>| match eval.map(|e| e.every) {
            None | Some(Every::Steps(0) | Every::Epoch(_)) => 0.0,
            Some(Every::Steps(every)) => (config.steps / every + 1) as f64,
        };
        let evaluations =
            time.evaluation * times(config.eval.usual()) + time.full_evaluation * times(config.eval.full());
        Ok(sft + (time.rollout + time.update) * config.steps as f64 + evaluations)
    }

    /// Estimates the time of a run's parts, or returns `None` if the size of the model is unknown.
    fn time(&mut self, config: &Config) -> anyhow::Result<Option<Time>> {
        let key = toml::to_string(&config.task)? + &toml::to_string(&config.model)?;
        if !self.cache.contains_key(&key) {
            let complete = needs::missing(config).is_empty();
            let task = complete.then(|| Task::open(config)).transpose()?;
            let lengths = Lengths::of(config, task.as_ref());
            let model = needs::model(config, task.as_ref())?;
            self.cache.insert(key.clone(), (lengths, model));
        }
        let (lengths, model) = &self.cache[&key];
        let Some(model) = model else { return Ok(None) };
        let (threads, products) = (config.compute.threads(), config.compute.products);
        let rate = self.rates.entry((threads, products));
        let rate = *rate.or_insert_with(|| fgrpo_nn::measure_flops(threads, products));
        Ok(Some(Time::of(config, model, lengths, rate)))
    }
}
