//! A policy: a language model that can be sampled, scored and trained. It is the only door to the engine.
//!
//! Tokens go in and out; nothing that was sampled is decoded and encoded again.

mod open;
mod pack;
mod sample;

pub use open::{check, fresh, model_config, open, open_in, sizes};
pub use pack::{share, share_all};
pub use sample::{Arrivals, Request, Sampling, room};

use crate::config::{AlgorithmConfig, LoraTable};
use crate::language::Language;
use crate::run::checkpoint::{
    ADAPTER, OPTIMIZER, read_optimizer, reload_policy, write_optimizer, write_policy,
};
use crate::run::seeds;
use crate::update::TokenSums;
use anyhow::Context;
use fgrpo_core::loss::{Counts, Objective, PolicyLoss, Tokens, covariance};
use fgrpo_core::rng::Key;
use fgrpo_eval::failure::{BadInput, OrBadInput};
use fgrpo_eval::io::files::{Existing, publish, write_whole};
use fgrpo_eval::io::json;
use fgrpo_nn::{AdamW, Completion, Device, Engine, FamilyScores, LoraConfig, UpdateReport};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How [`Policy::open`] opens a model.
#[derive(Debug, Clone)]
pub struct PolicyOptions {
    /// Device to compute on. By default, all processors.
    pub device: Device,
    /// An adapter to load, in PEFT's format.
    pub adapter: Option<PathBuf>,
    /// Settings of a new adapter. If there is none and no adapter is loaded, all weights are trained.
    pub lora: Option<LoraTable>,
    /// Seed of a new adapter and of [`Policy::next_key`].
    pub seed: u64,
}

impl Default for PolicyOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { device: Device::cpu(threads), adapter: None, lora: None, seed: 0 }
    }
}

/// The file of a saved state besides weights and optimizer.
const STATE: &str = "state.json";

/// A model with its tokenizer, its optimizer and the counters that make its draws reproducible.
#[derive(Debug)]
pub struct Policy {
    engine: Engine,
    language: Arc<Language>,
    /// The base model's path, for an adapter.
    base: String,
    key: Key,
    state: State,
    /// Whether a gradient has been accumulated that no update has used.
    accumulated: bool,
}

/// What a resume needs besides weights and optimizer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    /// AdamW's own step count.
    optimizer_step: u64,
    /// Calls of [`Policy::next_key`].
    sampled: u64,
}

/// One sequence of a loss.
#[derive(Debug, Clone, PartialEq)]
pub struct Datum {
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Indices of the tokens in the loss, ascending, at least 1.
    pub sampled: Vec<usize>,
    /// Their log-probabilities under the policy that sampled them.
    pub logprobs: Vec<f32>,
    /// Their advantages.
    pub advantages: Vec<f64>,
}

/// What [`Policy::forward_backward`] differentiates.
#[derive(Debug, Clone)]
pub enum Loss {
    /// A policy loss of the tables `algorithm.loss`, `algorithm.aggregation` and `algorithm.entropy_coef`.
    Policy(Objective),
    /// The mean over tokens of `-advantage logp`: supervised learning, with the advantages as weights.
    CrossEntropy,
    /// The caller's own derivatives by `logp`, one for each token in the loss of each datum.
    Derivatives(Vec<Vec<f32>>),
}

impl Loss {
    /// A policy loss from keys of the configuration's table `algorithm`.
    pub fn policy(keys: serde_json::Value, max_len: usize) -> anyhow::Result<Self> {
        let algorithm: AlgorithmConfig = json::of_value(keys).or_bad_input()?;
        let objective = algorithm.objective(max_len);
        objective.check().map_err(anyhow::Error::from).or_bad_input()?;
        if objective.kl.is_some() {
            bad_input!("kl_coef: found a KL penalty, wanted none: add it to the advantages, or pass dlogp");
        }
        Ok(Self::Policy(objective))
    }

    /// Whether each token's loss depends on that token alone.
    fn by_token(&self) -> bool {
        !matches!(
            self,
            Self::Policy(Objective { policy: PolicyLoss::Gspo { .. } | PolicyLoss::Gmpo { .. }, .. })
        )
    }
}

/// The sequences that a model takes.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Token ids are below it.
    pub vocab_size: usize,
    /// Longest sequence in tokens.
    pub positions: usize,
}

impl Bounds {
    /// Those of a model.
    pub fn of(config: &fgrpo_nn::config::Config) -> Self {
        Self { vocab_size: config.vocab_size, positions: config.context() }
    }

    /// A token id, or what is wrong with it.
    pub fn token(self, id: i64) -> Result<u32, String> {
        let known = u32::try_from(id).ok().filter(|&token| (token as usize) < self.vocab_size);
        known.ok_or_else(|| {
            format!("found token {id}, wanted ids below {}, the model's vocabulary", self.vocab_size)
        })
    }

    /// Checks the number of tokens of a sequence.
    pub fn length(self, tokens: usize) -> Result<(), String> {
        if tokens == 0 || tokens > self.positions {
            let most = self.positions;
            return Err(format!("found {tokens} tokens, wanted 1 to {most}, the model's positions"));
        }
        Ok(())
    }
}

/// Log-probability and entropy of each token of a sequence but the first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SequenceScores {
    /// Log-probabilities.
    pub logp: Vec<f32>,
    /// Entropies of the distributions that predict the tokens, in nats.
    pub entropy: Vec<f32>,
}

impl Policy {
    /// A policy of an engine and the language of its model. The base model's path is unknown and the seed 0.
    pub fn new(engine: Engine, language: Arc<Language>) -> Self {
        Self {
            engine,
            language,
            base: String::new(),
            key: Key::new(0),
            state: State::default(),
            accumulated: false,
        }
    }

    /// Opens a model folder or GGUF file.
    ///
    /// ```no_run
    /// # use fgrpo_train::policy::{Policy, PolicyOptions};
    /// let policy = Policy::open("policy".as_ref(), &PolicyOptions::default())?;
    /// # anyhow::Ok(())
    /// ```
    ///
    /// # Errors
    /// Bad input: a folder that isn't a model's, an adapter of another model, or impossible settings of LoRA.
    pub fn open(model: &Path, options: &PolicyOptions) -> anyhow::Result<Self> {
        let PolicyOptions { device, adapter, lora, seed } = options;
        if adapter.is_some() && lora.is_some() {
            bad_input!(
                "lora: found settings and an adapter, wanted one of them: an adapter has its own settings"
            );
        }
        if let Some(adapter) = adapter {
            LoraConfig::read(adapter).or_bad_input()?;
        }
        let language = Arc::new(Language::read(model, &[])?);
        let mut engine = match lora.as_ref().and_then(|lora| lora.base) {
            Some(base) => open_in(model, Some(base), device)?,
            None => open(model, adapter.as_deref(), device)?,
        };
        if let Some(lora) = lora {
            let mut draws = seeds::adapter(*seed).stream();
            engine.adapt(&lora.engine(), &mut || draws.uniform()).or_bad_input()?;
        }
        let base = std::path::absolute(model).unwrap_or_else(|_| model.to_owned());
        let base = base.to_string_lossy().into_owned();
        Ok(Self { base, key: Key::new(*seed), ..Self::new(engine, language) })
    }

    /// The engine, for whatever isn't sampling, scoring or a gradient.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The engine, mutable. Sampling, scores and gradients go through the policy.
    pub fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// The engine alone.
    pub fn into_engine(self) -> Engine {
        self.engine
    }

    /// Tokenizer, chat template and end tokens of the model.
    pub fn language(&self) -> &Arc<Language> {
        &self.language
    }

    /// Number of positions of the model: the maximum number of tokens of a sequence.
    pub fn positions(&self) -> usize {
        self.engine.config().context()
    }

    /// Text of a completion: without end tokens and stop texts.
    ///
    /// # Errors
    /// Tokens that can't be decoded.
    pub fn text(&self, completion: &Completion) -> anyhow::Result<String> {
        self.language.answer(&completion.tokens)
    }

    /// Random key of the next call that samples without a seed: a function of the policy's seed and the number of such calls, which [`Policy::save_state`]
    /// stores.
    pub fn next_key(&mut self) -> Key {
        self.state.sampled += 1;
        self.key.with(self.state.sampled)
    }

    /// Checks a prompt, which `name` names in the error.
    ///
    /// # Errors
    /// Bad input: a prompt that is empty, leaves the vocabulary, or leaves no position for a completion.
    pub fn check_prompt(&self, name: &str, tokens: &[u32]) -> anyhow::Result<()> {
        let positions = self.positions();
        if tokens.len() >= positions {
            bad_input!(
                "{name} has {} tokens, wanted fewer than the model's {positions} positions",
                tokens.len()
            );
        }
        self.check(name, tokens)
    }

    fn check(&self, name: &str, tokens: &[u32]) -> anyhow::Result<()> {
        let bounds = Bounds::of(self.engine.config());
        let known = tokens.iter().try_for_each(|&token| bounds.token(token.into()).map(drop));
        known.and_then(|()| bounds.length(tokens.len())).or_else(|why| bad_input!("{name}: {why}"))
    }

    /// Log-probabilities and entropies of given tokens, of `softmax(logits / temperature)`.
    /// Fails on a token outside the vocabulary and on a sequence that is too long.
    pub fn score(&mut self, sequences: &[Vec<u32>], temperature: f32) -> anyhow::Result<Vec<SequenceScores>> {
        positive(temperature)?;
        for (index, tokens) in sequences.iter().enumerate() {
            self.check(&format!("sequences[{index}]"), tokens)?;
        }
        let mut shared = pack::share(&sequences.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let places: Vec<Vec<usize>> = sequences
            .iter()
            .enumerate()
            .map(|(i, tokens)| (1..tokens.len()).map(|t| shared.predict(i, t - 1, tokens[t])).collect())
            .collect();
        if places.iter().all(Vec::is_empty) {
            return Ok(vec![SequenceScores::default(); sequences.len()]);
        }
        let scores = self.engine.score(&shared.batch, temperature)?;
        let of = |values: &[f32], own: &[usize]| own.iter().map(|&place| values[place]).collect();
        let one = |own: &Vec<usize>| SequenceScores {
            logp: of(&scores.logp, own),
            entropy: of(&scores.entropy, own),
        };
        Ok(places.iter().map(one).collect())
    }

    /// Adds the gradient of a loss over these data to the one accumulated so far. Means are over all data of the call.
    /// The error names the datum. If the loss isn't finite, the accumulated gradient is 0 again.
    pub fn forward_backward(
        &mut self,
        data: &[Datum],
        loss: &Loss,
        temperature: f32,
    ) -> anyhow::Result<TokenSums> {
        positive(temperature)?;
        for (index, datum) in data.iter().enumerate() {
            self.check(&format!("data[{index}].tokens"), &datum.tokens)?;
            let constant = datum.advantages.windows(2).all(|pair| pair[0] == pair[1]);
            if !constant && !loss.by_token() {
                bad_input!(
                    "data[{index}].advantages: found different advantages, wanted one: this loss is of whole sequences"
                );
            }
        }
        let mut shared = pack::share(&data.iter().map(|datum| datum.tokens.as_slice()).collect::<Vec<_>>());
        let places: Vec<Vec<usize>> = data
            .iter()
            .enumerate()
            .map(|(i, datum)| {
                datum.sampled.iter().map(|&t| shared.predict(i, t - 1, datum.tokens[t])).collect()
            })
            .collect();
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); shared.batch.predictions.len()];
        for (index, own) in places.iter().enumerate() {
            // A sequence is in one tree, so its first prediction tells which.
            own.first().into_iter().for_each(|&place| members[place].push(index));
        }
        if shared.batch.predictions.is_empty() {
            return Ok(TokenSums::default());
        }
        let counts = Counts::of(data.iter().map(|datum| datum.sampled.len()).filter(|&n| n > 0));
        let selected = match loss {
            Loss::Policy(objective) => {
                let all: Vec<(f64, &[f32])> = data
                    .iter()
                    .map(|datum| {
                        (datum.advantages.first().copied().unwrap_or(0.0), datum.logprobs.as_slice())
                    })
                    .collect();
                covariance::selected(&objective.policy, &all)
            }
            _ => None,
        };
        let family = |family: FamilyScores<'_>| {
            let mut sums = TokenSums::default();
            let mut own: Vec<usize> =
                family.predictions.iter().flat_map(|&p| members[p].iter().copied()).collect();
            own.sort_unstable();
            let local: HashMap<usize, usize> =
                family.predictions.iter().enumerate().map(|(i, &p)| (p, i)).collect();
            for index in own {
                let at: Vec<usize> = places[index].iter().map(|place| local[place]).collect();
                let datum = Scored {
                    datum: &data[index],
                    logp: at.iter().map(|&i| family.logp[i]).collect(),
                    entropy: at.iter().map(|&i| family.entropy[i]).collect(),
                    selected: selected.as_ref().map(|all| all[index].as_slice()),
                };
                sums.add_logp(&datum.logp, &datum.datum.logprobs);
                datum.differentiate(loss, index, &counts, &mut sums, |t, dlogp, dentropy| {
                    family.dlogp[at[t]] += dlogp as f32;
                    family.dentropy[at[t]] += dentropy as f32;
                });
            }
            sums
        };
        self.accumulated = true;
        let families = self.engine.accumulate(&shared.batch, temperature, &family);
        let mut all = TokenSums::default();
        match families {
            Ok((_, families)) => families.iter().for_each(|family| all.add(family)),
            Err(error) => {
                self.zero_gradient();
                return Err(error.into());
            }
        }
        if !all.loss.is_finite() {
            self.zero_gradient();
            bad_input!("loss: found {}, wanted a finite number; the gradient is 0 again", all.loss);
        }
        self.engine.gather_gradient();
        Ok(all)
    }

    /// Drops the accumulated gradient.
    pub fn zero_gradient(&mut self) {
        self.engine.zero_gradient();
        self.accumulated = false;
    }

    /// Updates the weights by the accumulated gradient, which is then 0. A gradient that isn't finite changes nothing.
    /// Fails without a gradient, and with errors from the engine.
    pub fn update(&mut self, adamw: &AdamW, max_norm: Option<f64>) -> anyhow::Result<UpdateReport> {
        if !self.accumulated {
            bad_input!("optim_step: found no gradient, wanted a forward_backward before it");
        }
        self.accumulated = false;
        Ok(self.engine.update(adamw, max_norm)?)
    }

    /// Writes the policy as a Hugging Face folder, with LoRA as an adapter besides the merged weights.
    /// Fails if the folder has something else in it; otherwise an I/O error that names the file.
    pub fn save(&self, folder: &Path) -> anyhow::Result<()> {
        self.publish(folder, &|dir| {
            write_policy(dir, &self.engine, &self.base, true)?;
            self.language.write(dir)
        })
    }

    /// Writes weights, optimizer and draws for an exact resume by [`Policy::load_state`].
    /// Fails on a gradient that no update has used, or a folder with something else in it.
    pub fn save_state(&self, folder: &Path) -> anyhow::Result<()> {
        if self.accumulated {
            bad_input!(
                "save_state: found a gradient that no optim_step has used, wanted an optim_step or zero_grad before it"
            );
        }
        let optimizer = self.engine.optimizer_state();
        let state = State { optimizer_step: optimizer.step, ..self.state };
        self.publish(folder, &|dir| {
            write_policy(dir, &self.engine, &self.base, false)?;
            write_optimizer(&dir.join(OPTIMIZER), &optimizer)?;
            write_whole(&dir.join(STATE), &serde_json::to_vec_pretty(&state)?)
        })
    }

    /// Continues from a state of [`Policy::save_state`].
    /// Fails on a folder that isn't a state, or one of another model; after damage that is found late the weights are unknown, and the error says so.
    pub fn load_state(&mut self, folder: &Path) -> anyhow::Result<()> {
        let path = folder.join(STATE);
        let state: State = json::read(&path).or_bad_input()?;
        if folder.join(ADAPTER).is_dir() != self.engine.lora().is_some() {
            let names = ["all weights", "an adapter"];
            let found = usize::from(self.engine.lora().is_none());
            bad_input!(
                "{}: found {}, wanted {}, as this engine trains",
                folder.display(),
                names[found],
                names[1 - found]
            );
        }
        let read = reload_policy(folder, &mut self.engine)
            .and_then(|()| read_optimizer(&folder.join(OPTIMIZER), &mut self.engine, state.optimizer_step));
        read.with_context(|| {
            format!("{}: the engine's weights are no longer known; load another state", folder.display())
        })
        .or_bad_input()?;
        (self.state, self.accumulated) = (state, false);
        Ok(())
    }

    /// Fills a folder under a temporary name and renames it. What is replaced is a folder that a learner wrote.
    fn publish(&self, folder: &Path, fill: &dyn Fn(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let folder = std::path::absolute(folder).with_context(|| folder.display().to_string())?;
        let (Some(parent), Some(name)) = (folder.parent(), folder.file_name().and_then(|name| name.to_str()))
        else {
            bad_input!("{}: wanted the name of a folder", folder.display());
        };
        let own = |file: &str| folder.join(file).exists();
        let empty = std::fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_none());
        if folder.exists() && !empty && !["config.json", ADAPTER, STATE].into_iter().any(own) {
            bad_input!(
                "{}: found other files, wanted a new folder or a saved policy to replace",
                folder.display()
            );
        }
        std::fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
        publish(parent, name, Existing::Replace, fill).map(|_: PathBuf| ())
    }
}

/// A request that the engine refuses is bad input; its other errors aren't.
fn refused(error: fgrpo_nn::Error) -> anyhow::Error {
    match error {
        fgrpo_nn::Error::Request { .. } => BadInput(error.to_string()).into(),
        error => error.into(),
    }
}

fn positive(temperature: f32) -> anyhow::Result<()> {
    if !(temperature > 0.0 && temperature.is_finite()) {
        bad_input!("temperature: found {temperature}, wanted a finite number above 0");
    }
    Ok(())
}

/// A datum with its scores.
struct Scored<'a> {
    datum: &'a Datum,
    logp: Vec<f32>,
    entropy: Vec<f32>,
    selected: Option<&'a [bool]>,
}

impl Scored<'_> {
    /// Calls `each` with the derivatives of the loss by every token's log-probability and entropy.
    fn differentiate(
        &self,
        loss: &Loss,
        index: usize,
        counts: &Counts,
        sums: &mut TokenSums,
        mut each: impl FnMut(usize, f64, f64),
    ) {
        let Self { datum, logp, entropy, selected } = self;
        let objective = match loss {
            Loss::Derivatives(all) => {
                return all[index].iter().enumerate().for_each(|(t, &dlogp)| each(t, f64::from(dlogp), 0.0));
            }
            Loss::CrossEntropy => {
                for (t, (&weight, &logp)) in datum.advantages.iter().zip(logp).enumerate() {
                    let weight = weight / counts.tokens as f64;
                    sums.loss -= weight * f64::from(logp);
                    each(t, -weight, 0.0);
                }
                return;
            }
            Loss::Policy(objective) => objective,
        };
        let scale = objective.aggregation.weight(logp.len(), counts);
        // Runs of one advantage: all tokens of a sequence, or single ones for losses that take each by itself.
        let step = if loss.by_token() { 1 } else { logp.len() };
        for first in (0..logp.len()).step_by(step) {
            let part = first..first + step;
            let tokens = Tokens {
                logp: &logp[part.clone()],
                old_logp: &datum.logprobs[part.clone()],
                entropy: Some(&entropy[part.clone()]),
                ref_logp: None,
                rollout_logp: None,
                advantage: datum.advantages[first],
                selected: selected.map(|selected| &selected[part]),
                high_entropy: None,
            };
            objective.completion_scaled(&tokens, scale, scale, |t, term| {
                each(first + t, term.dlogp, term.dentropy);
                sums.add_term(&term, None);
            });
        }
    }
}
