//! A policy: a language model that can be sampled, scored and trained. Only this module samples
//! and computes gradients with the engine; others read logits or change adapters and state ([`Policy::engine_mut`]).
//! Input and output are tokens: sampled tokens are never decoded and encoded again.

mod loss;
mod open;
mod pack;
mod sample;
mod save;

pub use fgrpo_nn::{AdamW, Scores as SequenceScores};
pub use loss::{Datum, Loss, Losses, TokenSums, level_tokens};
pub use open::{check, fresh, model_config, open, open_in, sizes};
pub use pack::{Sequence, Target};
pub use sample::{Request, RequestQueue, Sampling, room};

use crate::config::LoraTable;
use crate::language::Language;
use crate::run::seeds;
use fgrpo_core::rng::Key;
use fgrpo_eval::failure::{BadInput, OrBadInput};
use fgrpo_nn::{COLDEST, Completion, Device, Engine, LoraConfig};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Default of [`Policy::set_pass_tokens`].
const PASS_TOKENS: usize = 8192;

/// Options of [`Policy::open`].
#[derive(Debug, Clone)]
pub struct PolicyOptions {
    /// Device to compute on, by default all processors.
    pub device: Device,
    /// An adapter to load, in PEFT's format.
    pub adapter: Option<PathBuf>,
    /// Settings of a new adapter. If this and `adapter` are `None`, all weights are trained.
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

/// File of a saved state with everything but the weights and the optimizer.
const STATE: &str = "state.json";

/// A model with its tokenizer, its optimizer and the counters that make its draws reproducible.
#[derive(Debug)]
pub struct Policy {
    engine: Engine,
    language: Arc<Language>,
    /// The base model's path, for an adapter.
    base: String,
    state: State,
    /// Whether a gradient has been accumulated that no update has used.
    accumulated: bool,
    /// Maximum number of tokens in a tree of several sequences.
    pass_tokens: usize,
}

/// State of a policy besides weights and optimizer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    /// Step count of AdamW.
    optimizer_step: u64,
    /// Number of calls of [`Policy::next_key`].
    sampled: u64,
    /// Seed of [`Policy::next_key`].
    #[serde(default)]
    seed: u64,
}

/// Limits of a model's sequences.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Token ids are less than this.
    pub vocab_size: usize,
    /// Maximum number of tokens of a sequence.
    pub positions: usize,
}

impl Bounds {
    /// Returns the limits of a model.
    pub fn of(config: &fgrpo_nn::config::Config) -> Self {
        Self { vocab_size: config.vocab_size, positions: config.context() }
    }

    /// Converts a token id. Fails if it isn't in the vocabulary.
    pub fn token(self, id: i64) -> Result<u32, String> {
        let token = u32::try_from(id).ok().filter(|&token| (token as usize) < self.vocab_size);
        token.ok_or_else(|| {
            format!("expected token ids from 0 to {}, found {id}", self.vocab_size.saturating_sub(1))
        })
    }

    /// Returns an error if a sequence of `tokens` tokens is empty or longer than the model's positions.
    pub fn length(self, tokens: usize) -> Result<(), String> {
        if tokens == 0 || tokens > self.positions {
            let positions = self.positions;
            return Err(format!("expected 1 to {positions} tokens (the model's positions), found {tokens}"));
        }
        Ok(())
    }
}

impl Policy {
    /// Makes a policy from an engine and its model's language. The seed is 0, and the path of the base model is
    /// unknown.
    pub fn new(engine: Engine, language: Arc<Language>) -> Self {
        Self {
            engine,
            language,
            base: String::new(),
            state: State::default(),
            accumulated: false,
            pass_tokens: PASS_TOKENS,
        }
    }

    /// Makes a policy without a tokenizer, which is used with token ids only.
    pub fn of_tokens(engine: Engine) -> Self {
        Self::new(engine, Arc::new(Language::mazes()))
    }

    /// Sets the maximum number of tokens per forward pass over sequences that share a prefix, which is computed once. A
    /// smaller maximum needs less memory and changes gradients only by rounding.
    pub fn set_pass_tokens(&mut self, tokens: usize) {
        self.pass_tokens = tokens;
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
            bad_input!("lora: can't be combined with an adapter, which has its own settings");
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
        let state = State { seed: *seed, ..State::default() };
        Ok(Self { base, state, ..Self::new(engine, language) })
    }

    /// Returns the engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the engine mutably. Use the policy itself for sampling, scores and gradients.
    pub fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Returns the engine and drops the other parts of the policy.
    pub fn into_engine(self) -> Engine {
        self.engine
    }

    /// Returns the tokenizer, chat template and end tokens of the model.
    pub fn language(&self) -> &Arc<Language> {
        &self.language
    }

    /// Returns the maximum number of tokens of a sequence.
    pub fn positions(&self) -> usize {
        self.engine.config().context()
    }

    /// Returns the text of a completion, without end tokens and stop strings.
    ///
    /// # Errors
    /// Tokens that can't be decoded.
    pub fn text(&self, completion: &Completion) -> anyhow::Result<String> {
        self.language.answer(&completion.tokens)
    }

    /// Returns the random key of the next call that samples without a seed. The key depends on the policy's seed and on
    /// the number of such calls so far. [`Policy::save_state`] stores both.
    pub fn next_key(&mut self) -> Key {
        self.state.sampled += 1;
        Key::new(self.state.seed).with(self.state.sampled)
    }

    /// Checks a prompt, which the error calls `name`.
    ///
    /// # Errors
    /// Bad input: a prompt that is empty, has tokens outside the vocabulary, or leaves no position for a completion.
    pub fn check_prompt(&self, name: &str, tokens: &[u32]) -> anyhow::Result<()> {
        let positions = self.positions();
        if tokens.len() >= positions {
            bad_input!(
                "{name}: the prompt has {} tokens, but must have fewer than the model's {positions} positions",
                tokens.len()
            );
        }
        self.check(name, tokens)
    }

    fn check(&self, name: &str, tokens: &[u32]) -> anyhow::Result<()> {
        let bounds = Bounds::of(self.engine.config());
        let result = tokens.iter().try_for_each(|&token| bounds.token(token.into()).map(drop));
        result.and_then(|()| bounds.length(tokens.len())).or_else(|error| bad_input!("{name}: {error}"))
    }
}

/// Marks an error as bad input if the engine rejected the request. Other errors of the engine aren't bad input.
fn refused(error: fgrpo_nn::Error) -> anyhow::Error {
    match error {
        fgrpo_nn::Error::Request { .. } => BadInput(error.to_string()).into(),
        error => error.into(),
    }
}

fn positive(temperature: f32) -> anyhow::Result<()> {
    if !(temperature >= COLDEST as f32 && temperature.is_finite()) {
        bad_input!("temperature: expected a finite number of at least {COLDEST:e}, found {temperature}");
    }
    Ok(())
}
