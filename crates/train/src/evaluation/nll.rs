//! Measures how likely trained models find correct solutions that were rare under the base model.
//!
//! The rare set consists of the base model's correct samples that are least likely by length-normalised NLL. Its
//! mean NLL under a trained model, compared with the base, shows how far training moved away from it. In addition,
//! for each problem with a large pool of distinct completed correct samples: the total probability of the least
//! likely ones, and their fraction of the pool's probability. Completions of language models are tokenised again from
//! their text; mazes are exact.

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

/// The models and the samples to score with them.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The base model's evaluation folder.
    pub folder: PathBuf,
    /// The base model's checkpoint.
    pub base: PathBuf,
    /// Trained models, each with its name. Later models are compared with the first one.
    pub models: Vec<(String, PathBuf)>,
    /// Fraction of the correct samples that is in the rare set, above 0 and at most 1.
    pub share: f64,
    /// Minimum number of distinct completed correct samples for which a problem has a rare subset.
    pub pool: usize,
    /// Number of samples in a problem's rare subset, the least likely ones under the base model.
    pub subset: usize,
    /// Whether to leave out samples that have more tokens than the base model has positions. Otherwise they are an
    /// error.
    pub leave_out_long: bool,
}

impl Settings {
    /// Returns the paper's settings, for these models.
    pub fn new(folder: PathBuf, base: PathBuf, models: Vec<(String, PathBuf)>) -> Self {
        Self { folder, base, models, share: 0.01, pool: 100, subset: 5, leave_out_long: false }
    }
}

/// Likelihood of the rare correct samples under each model.
#[derive(Debug, Clone, Serialize)]
pub struct Nll {
    /// Number of distinct correct samples.
    pub correct: usize,
    /// Number of these samples that are in the rare set: the least likely ones of all problems together.
    pub rare: usize,
    /// Mean length-normalised NLL of the rare set under the base model.
    pub base_nll: f64,
    /// Number of prompts with a rare subset.
    pub prompts: usize,
    /// Results of each trained model.
    pub models: Vec<Model>,
}

/// Results of a trained model.
#[derive(Debug, Clone, Serialize)]
pub struct Model {
    /// Name of the model.
    pub model: String,
    /// Mean length-normalised NLL of the rare set.
    pub nll: f64,
    /// Increase of the mean NLL over the base model.
    pub increase: f64,
    /// Number of prompts whose rare subset is more probable than under the first model. `None` for the first model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mass_higher: Option<usize>,
    /// Number of prompts whose rare subset has a larger fraction of its pool's probability than under the first model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_higher: Option<usize>,
}

/// The distinct correct samples of a problem, as tokens.
struct Pool {
    problem: String,
    prompt: Vec<u32>,
    /// Tokens of each completion, and whether it ended by itself.
    completions: Vec<(Vec<u32>, bool)>,
}

/// Number of completions scored at once.
const BATCH: usize = 32;

/// Computes the log-probability of each completion of each pool.
fn log_probabilities(dir: &Path, pools: &[Pool]) -> anyhow::Result<Vec<Vec<f64>>> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let engine = Engine::open(&Checkpoint::open(dir).or_bad_input()?, &Device::cpu(threads))?;
    let mut policy = Policy::of_tokens(engine);
    let (vocabulary, room) = (policy.engine().config().vocab_size, policy.positions());
    let mut all = Vec::new();
    for pool in pools {
        if pool
            .prompt
            .iter()
            .chain(pool.completions.iter().flat_map(|c| &c.0))
            .any(|&t| t as usize >= vocabulary)
        {
            bad_input!(
                "{}: the samples have tokens outside the model's vocabulary of {vocabulary}",
                dir.display()
            );
        }
        let longest = pool.completions.iter().map(|c| c.0.len()).max().unwrap_or(0) + pool.prompt.len();
        if longest > room {
            bad_input!(
                "{}: a sample of problem {} has {longest} tokens with its prompt, more than the model's {room} positions",
                dir.display(),
                pool.problem
            );
        }
        let mut sums = Vec::new();
        for part in pool.completions.chunks(BATCH) {
            let sequences: Vec<Sequence> =
                part.iter().map(|(tokens, _)| Sequence::completion(&pool.prompt, tokens)).collect();
            let scores = policy.score(&sequences, 1.0)?;
            sums.extend(scores.iter().map(|s| s.logp.iter().map(|&l| f64::from(l)).sum::<f64>()));
        }
        all.push(sums);
    }
    Ok(all)
}

/// Returns the rare set as (pool, index): the fraction `share` of all completions with the highest NLL, at least one.
fn rare_set(nll: &[Vec<f64>], share: f64) -> Vec<(usize, usize)> {
    let mut all: Vec<(usize, usize)> =
        nll.iter().enumerate().flat_map(|(p, n)| (0..n.len()).map(move |i| (p, i))).collect();
    all.sort_by(|a, b| nll[b.0][b.1].total_cmp(&nll[a.0][a.1]));
    let count = ((all.len() as f64 * share).ceil() as usize).clamp(1, all.len().max(1));
    all.truncate(count);
    all
}

fn log_sum(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let max = values.clone().fold(f64::NEG_INFINITY, f64::max);
    if max == f64::NEG_INFINITY { max } else { max + values.map(|v| (v - max).exp()).sum::<f64>().ln() }
}

/// Reads the prompts of an evaluation folder.
pub fn prompts(folder: &Path) -> anyhow::Result<Vec<PromptRecord>> {
    prompts::read(&folder.join(PROMPTS))
}

/// Reads the identity of an evaluation, which describes its samples. Returns null if the folder doesn't have one.
pub fn identity(folder: &Path) -> anyhow::Result<Value> {
    let path = folder.join(IDENTITY);
    if path.exists() { json::read(&path) } else { Ok(Value::Null) }
}

fn read_pools(settings: &Settings, records: &[PromptRecord]) -> anyhow::Result<Vec<Pool>> {
    let by_problem = texts::correct(&settings.folder)?;
    let samples: BTreeMap<&str, &Vec<texts::Correct>> =
        by_problem.values().flatten().map(|(id, list)| (id.as_str(), list)).collect();
    let mazes = records.iter().all(|r| r.task == TaskKind::Maze);
    let text = if mazes { None } else { Some(Language::read(&settings.base, &[])?) };
    // The token that ends the model's turn in its chat template.
    let end = text.as_ref().and_then(|t| t.stop_tokens().first().copied());
    let stops = &identity(&settings.folder)?["sampling"]["stop"];
    let end = if stops.as_array().is_some_and(|texts| !texts.is_empty()) {
        tracing::info!(
            "the ends of samples aren't scored, because it is unknown which ones ended at the stop strings {stops}"
        );
        None
    } else {
        end
    };
    let mut pools = Vec::new();
    let mut seen_problems = HashSet::new();
    for record in records {
        let Some(list) = samples.get(record.problem.as_str()) else { continue };
        // A problem that is in several data sets has one pool.
        if !seen_problems.insert(record.problem.as_str()) {
            continue;
        }
        let text = text.as_ref().filter(|_| record.task != TaskKind::Maze);
        let prompt = match text {
            Some(text) => text.prompt(&record.messages, record.thinking)?,
            None => record.messages.iter().flat_map(|m| tokens::read(&m.content)).collect(),
        };
        let problem = record.problem.clone();
        let mut pool = Pool { problem, prompt, completions: Vec::new() };
        let mut seen = HashSet::new();
        for c in *list {
            let mut ids = text.map_or_else(|| Ok(tokens::read(&c.text)), |text| text.encode(&c.text))?;
            ids.extend(end.filter(|_| text.is_some() && c.completed));
            if !ids.is_empty() && seen.insert(ids.clone()) {
                pool.completions.push((ids, c.completed));
            }
        }
        pools.push(pool);
    }
    if settings.leave_out_long {
        leave_out_long(settings, &mut pools)?;
    }
    if pools.iter().all(|p| p.completions.is_empty()) {
        bad_input!(
            "{}: no problem has a correct sample, so there is nothing to score; evaluate with more samples",
            settings.folder.display()
        );
    }
    Ok(pools)
}

/// Drops samples that have more tokens than the base model has positions.
fn leave_out_long(settings: &Settings, pools: &mut [Pool]) -> anyhow::Result<()> {
    let room = Checkpoint::open(&settings.base).or_bad_input()?.config().context();
    let mut dropped = 0;
    for pool in pools {
        let before = pool.completions.len();
        pool.completions.retain(|(tokens, _)| tokens.len() + pool.prompt.len() <= room);
        dropped += before - pool.completions.len();
    }
    if dropped > 0 {
        tracing::info!(
            "{dropped} samples are left out, because they have more tokens than the {room} positions of {}",
            settings.base.display()
        );
    }
    Ok(())
}

/// Scores the base model's rare correct samples under each model. `records` holds the problems and their prompts.
/// Reports the number of samples left out as a `tracing` event. Fails on bad input in folders and checkpoints, or
/// with an error from the engine.
pub fn measure(settings: &Settings, records: &[PromptRecord]) -> anyhow::Result<Nll> {
    let pools = read_pools(settings, records)?;
    let base = log_probabilities(&settings.base, &pools)?;
    let nll = |logp: &[Vec<f64>]| -> Vec<Vec<f64>> {
        let pool = |(p, sums): (&Pool, &Vec<f64>)| {
            sums.iter().zip(&p.completions).map(|(s, c)| -s / c.0.len() as f64).collect()
        };
        pools.iter().zip(logp).map(pool).collect()
    };
    let base_nll = nll(&base);
    let rare = rare_set(&base_nll, settings.share);
    let mean = |nll: &[Vec<f64>]| rare.iter().map(|&(p, i)| nll[p][i]).sum::<f64>() / rare.len() as f64;
    // For each problem with a large pool: the least likely of the completed samples under the base model, and all of
    // them.
    let subsets: Vec<(usize, Vec<usize>, Vec<usize>)> = pools
        .iter()
        .enumerate()
        .filter_map(|(p, pool)| {
            let mut whole: Vec<usize> =
                (0..pool.completions.len()).filter(|&i| pool.completions[i].1).collect();
            whole.sort_by(|&a, &b| base[p][a].total_cmp(&base[p][b]));
            (whole.len() >= settings.pool)
                .then(|| (p, whole[..settings.subset.min(whole.len())].to_vec(), whole.clone()))
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
            .map(|(p, subset, whole)| {
                let mass = log_sum(subset.iter().map(|&i| logp[*p][i]));
                (mass, mass - log_sum(whole.iter().map(|&i| logp[*p][i])))
            })
            .collect();
        let higher = |field: fn(&(f64, f64)) -> f64| {
            let first = first.as_ref()?;
            Some(masses.iter().zip(first).filter(|(a, b)| field(a) > field(b)).count())
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
        let sum = log_sum([-2000.0, -2000.0].into_iter());
        assert!((sum - (-2000.0 + 2f64.ln())).abs() < 1e-12);
        assert_eq!(log_sum(std::iter::empty()), f64::NEG_INFINITY);
    }
}
