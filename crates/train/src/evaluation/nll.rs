//! How likely trained models find correct solutions that were rare under the base model.
//!
//! From the base model's correct samples the least likely by length-normalised NLL are the rare set; its mean NLL under
//! each model, and the increase over the base, say how far training moved away from them. Beside it, per problem with a
//! large pool of distinct completed correct samples: the summed probability of its least likely ones, and their
//! share of the pool's. Completions of language models are tokenised again from their text; mazes are exact.

use crate::language::Language;
use crate::policy::{Policy, Sequence};
use fgrpo_core::maze::tokens;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::folder::{IDENTITY, PROMPTS};
use fgrpo_eval::io::json;
use fgrpo_eval::kind::TaskKind;
use fgrpo_eval::prompts::{self, PromptRecord};
use fgrpo_eval::texts;
use fgrpo_nn::weights::Checkpoint;
use fgrpo_nn::{Device, Engine};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

/// Which models are asked about which samples.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The base model's evaluation folder.
    pub folder: PathBuf,
    /// The base model's checkpoint.
    pub base: PathBuf,
    /// Trained models by name. The others are compared with the first.
    pub models: Vec<(String, PathBuf)>,
    /// The rare share of the correct samples, above 0 and at most 1.
    pub share: f64,
    /// Smallest pool of distinct completed correct samples that a problem's rare subset is taken from.
    pub pool: usize,
    /// Size of a problem's rare subset.
    pub least: usize,
    /// Leave out samples that have more tokens than the base model has positions; else they are refused.
    pub leave_out_long: bool,
}

impl Settings {
    /// The paper's measure of these models.
    pub fn new(folder: PathBuf, base: PathBuf, models: Vec<(String, PathBuf)>) -> Self {
        Self { folder, base, models, share: 0.01, pool: 100, least: 5, leave_out_long: false }
    }
}

/// What became of the rare correct samples.
#[derive(Debug, Clone, Serialize)]
pub struct Nll {
    /// Distinct correct samples.
    pub correct: usize,
    /// The rare ones among them.
    pub rare: usize,
    /// Their mean length-normalised NLL under the base model.
    pub base_nll: f64,
    /// Prompts with a pool that is large enough.
    pub prompts: usize,
    /// Each trained model.
    pub models: Vec<Model>,
}

/// One trained model.
#[derive(Debug, Clone, Serialize)]
pub struct Model {
    /// Its name.
    pub model: String,
    /// Mean length-normalised NLL of the rare samples.
    pub nll: f64,
    /// The increase over the base model.
    pub increase: f64,
    /// Prompts whose rare subset is more probable than under the first model; none for that one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mass_higher: Option<usize>,
    /// Prompts whose rare subset has a larger share of its pool than under the first model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_higher: Option<usize>,
}

/// One problem's correct samples as tokens, equal ones once.
struct Pool {
    problem: String,
    prompt: Vec<u32>,
    completions: Vec<Vec<u32>>,
    /// Which of them ended by themselves.
    completed: Vec<bool>,
}

/// Completions scored at a time.
const BATCH: usize = 32;

/// Summed log-probability of each completion of each pool.
fn log_probabilities(dir: &Path, pools: &[Pool]) -> anyhow::Result<Vec<Vec<f64>>> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let engine = Engine::open(&Checkpoint::open(dir).or_bad_input()?, &Device::cpu(threads))?;
    let mut policy = Policy::of_tokens(engine);
    let (vocabulary, room) = (policy.engine().config().vocab_size, policy.positions());
    let mut all = Vec::new();
    for pool in pools {
        if pool.prompt.iter().chain(pool.completions.iter().flatten()).any(|&t| t as usize >= vocabulary) {
            bad_input!("{}: the samples' tokens leave its vocabulary of {vocabulary}", dir.display());
        }
        let longest = pool.completions.iter().map(Vec::len).max().unwrap_or(0) + pool.prompt.len();
        if longest > room {
            bad_input!(
                "{}: found a sample of {longest} tokens with its prompt (problem {}), wanted at most the model's {room} positions",
                dir.display(),
                pool.problem
            );
        }
        let mut sums = Vec::new();
        for part in pool.completions.chunks(BATCH) {
            let sequences: Vec<Sequence> =
                part.iter().map(|completion| Sequence::completion(&pool.prompt, completion)).collect();
            let scores = policy.score(&sequences, 1.0)?;
            sums.extend(scores.iter().map(|s| s.logp.iter().map(|&l| f64::from(l)).sum::<f64>()));
        }
        all.push(sums);
    }
    Ok(all)
}

/// The least likely completions by mean NLL, as (pool, index): the `share` of all, at least one.
fn rare_set(nll: &[Vec<f64>], share: f64) -> Vec<(usize, usize)> {
    let mut all: Vec<(usize, usize)> =
        nll.iter().enumerate().flat_map(|(p, n)| (0..n.len()).map(move |i| (p, i))).collect();
    all.sort_by(|a, b| nll[b.0][b.1].total_cmp(&nll[a.0][a.1]));
    let count = ((all.len() as f64 * share).ceil() as usize).clamp(1, all.len().max(1));
    all.truncate(count);
    all
}

fn log_sum(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let most = values.clone().fold(f64::NEG_INFINITY, f64::max);
    if most == f64::NEG_INFINITY { most } else { most + values.map(|v| (v - most).exp()).sum::<f64>().ln() }
}

/// The prompts of an evaluation folder, as its samples were made.
pub fn prompts(folder: &Path) -> anyhow::Result<Vec<PromptRecord>> {
    prompts::read(&folder.join(PROMPTS))
}

/// What all samples of the folder have in common; null in a folder that doesn't say.
pub fn identity(folder: &Path) -> anyhow::Result<Value> {
    let path = folder.join(IDENTITY);
    if path.exists() { json::read(&path) } else { Ok(Value::Null) }
}

fn read_pools(settings: &Settings, records: &[PromptRecord]) -> anyhow::Result<Vec<Pool>> {
    let by_problem = texts::correct(&settings.folder)?;
    let mut found: BTreeMap<&str, &Vec<texts::Correct>> = BTreeMap::new();
    for (id, list) in by_problem.values().flatten() {
        found.insert(id, list);
    }
    let mazes = records.iter().all(|r| r.task == TaskKind::Maze);
    let text = if mazes { None } else { Some(Language::read(&settings.base, &[])?) };
    // What ends the model's turn in its chat template.
    let end = text.as_ref().and_then(|t| t.stop_tokens().first().copied());
    let stops = &identity(&settings.folder)?["sampling"]["stop"];
    let end = match stops.as_array().is_some_and(|texts| !texts.is_empty()) {
        true => {
            tracing::info!(
                "the samples ended at the texts {stops} or by themselves, which isn't known of each: their ends are not scored"
            );
            None
        }
        false => end,
    };
    let mut pools = Vec::new();
    let mut seen_problems = HashSet::new();
    for record in records {
        let Some(list) = found.get(record.problem.as_str()) else { continue };
        // A problem of several data sets has one pool.
        if !seen_problems.insert(record.problem.as_str()) {
            continue;
        }
        let prompt = match &text {
            Some(text) if record.task != TaskKind::Maze => text.prompt(&record.messages, record.thinking)?,
            _ => record.messages.iter().flat_map(|m| tokens::read(&m.content)).collect(),
        };
        let problem = record.problem.clone();
        let mut pool = Pool { problem, prompt, completions: Vec::new(), completed: Vec::new() };
        let mut seen = HashSet::new();
        for c in *list {
            let ids = match &text {
                Some(text) if record.task != TaskKind::Maze => {
                    let mut ids = text.encode(&c.text)?;
                    if c.completed {
                        ids.extend(end);
                    }
                    ids
                }
                _ => tokens::read(&c.text),
            };
            if !ids.is_empty() && seen.insert(ids.clone()) {
                pool.completions.push(ids);
                pool.completed.push(c.completed);
            }
        }
        pools.push(pool);
    }
    if settings.leave_out_long {
        leave_out_long(settings, &mut pools)?;
    }
    if pools.iter().all(|p| p.completions.is_empty()) {
        bad_input!("{}: no problem of the data has a correct sample", settings.folder.display());
    }
    Ok(pools)
}

/// Drops the samples that don't fit the base model's positions.
fn leave_out_long(settings: &Settings, pools: &mut [Pool]) -> anyhow::Result<()> {
    let room = Checkpoint::open(&settings.base).or_bad_input()?.config().context();
    let mut dropped = 0;
    for pool in pools {
        let fits: Vec<bool> = pool.completions.iter().map(|c| c.len() + pool.prompt.len() <= room).collect();
        dropped += fits.iter().filter(|fits| !**fits).count();
        let (mut of_completions, mut of_ends) = (fits.iter(), fits.iter());
        pool.completions.retain(|_| *of_completions.next().unwrap_or(&true));
        pool.completed.retain(|_| *of_ends.next().unwrap_or(&true));
    }
    if dropped > 0 {
        tracing::info!(
            "left out: {dropped} samples of more tokens than the {room} positions of {}",
            settings.base.display()
        );
    }
    Ok(())
}

/// Measures the samples of the problems in `records`, which say how each was put to the base model. What is left out is a
/// `tracing` event.
/// Fails on bad input in folders and checkpoints, and with errors of the engine.
pub fn measure(settings: &Settings, records: &[PromptRecord]) -> anyhow::Result<Nll> {
    let pools = read_pools(settings, records)?;
    let base = log_probabilities(&settings.base, &pools)?;
    let nll = |logp: &[Vec<f64>]| -> Vec<Vec<f64>> {
        let of = |p: &Pool, sums: &Vec<f64>| {
            sums.iter().zip(&p.completions).map(|(s, c)| -s / c.len() as f64).collect()
        };
        pools.iter().zip(logp).map(|(p, sums)| of(p, sums)).collect()
    };
    let base_nll = nll(&base);
    let rare = rare_set(&base_nll, settings.share);
    let mean = |nll: &[Vec<f64>]| rare.iter().map(|&(p, i)| nll[p][i]).sum::<f64>() / rare.len() as f64;
    // Per problem with a large pool: the completed samples and the least likely of them under the base.
    let subsets: Vec<(usize, Vec<usize>, Vec<usize>)> = pools
        .iter()
        .enumerate()
        .filter_map(|(p, pool)| {
            let mut whole: Vec<usize> = (0..pool.completions.len()).filter(|&i| pool.completed[i]).collect();
            whole.sort_by(|&a, &b| base[p][a].total_cmp(&base[p][b]));
            (whole.len() >= settings.pool)
                .then(|| (p, whole[..settings.least.min(whole.len())].to_vec(), whole.clone()))
        })
        .collect();
    let base_mean = mean(&base_nll);
    let mut models = Vec::new();
    let mut first: Option<Vec<(f64, f64)>> = None;
    for (name, dir) in &settings.models {
        let logp = log_probabilities(dir, &pools)?;
        let value = mean(&nll(&logp));
        let masses: Vec<(f64, f64)> = subsets
            .iter()
            .map(|(p, least, whole)| {
                let mass = log_sum(least.iter().map(|&i| logp[*p][i]));
                (mass, mass - log_sum(whole.iter().map(|&i| logp[*p][i])))
            })
            .collect();
        let higher = |of: fn(&(f64, f64)) -> f64| {
            let first = first.as_ref()?;
            Some(masses.iter().zip(first).filter(|(a, b)| of(a) > of(b)).count())
        };
        models.push(Model {
            model: name.clone(),
            nll: value,
            increase: value - base_mean,
            mass_higher: higher(|m| m.0),
            share_higher: higher(|m| m.1),
        });
        first.get_or_insert(masses);
    }
    Ok(Nll {
        correct: base.iter().map(Vec::len).sum(),
        rare: rare.len(),
        base_nll: base_mean,
        prompts: subsets.len(),
        models,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_set_holds_the_least_likely_share() {
        let nll = vec![vec![0.1, 0.9], vec![0.5, 0.7, 0.2]];
        assert_eq!(rare_set(&nll, 0.4), vec![(0, 1), (1, 1)]);
        assert_eq!(rare_set(&nll, 0.001), vec![(0, 1)]);
        assert_eq!(rare_set(&nll, 1.0).len(), 5);
    }

    #[test]
    fn probabilities_add_up_in_logarithms_below_the_smallest_number() {
        let found = log_sum([-2000.0, -2000.0].into_iter());
        assert!((found - (-2000.0 + 2f64.ln())).abs() < 1e-12);
        assert_eq!(log_sum(std::iter::empty()), f64::NEG_INFINITY);
    }
}
