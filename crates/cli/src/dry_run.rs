//! `--dry-run`: the resolved configuration and what a run of it needs.

use crate::config::Config;
use crate::policy::model_config;
use crate::task::{self, Split};
use fgrpo_nn::config::Config as ModelConfig;
use std::path::PathBuf;

/// Prints the resolved configuration to stdout and the needs to stderr.
///
/// # Errors
/// For a checkpoint folder that is there and can't be read.
pub fn run(config: &Config) -> anyhow::Result<()> {
    let missing = missing(config);
    for path in &missing {
        eprintln!("not there yet: {}", path.display());
    }
    let task = missing.is_empty().then(|| task::open(config)).transpose()?;
    // Epochs become steps once the problems are counted.
    let resolved = task.as_ref().map(|task| config.resolved(task.len(Split::Train))).transpose()?;
    print!("{}", resolved.as_ref().unwrap_or(config).to_toml());
    let model = match (&config.model.path, &config.model.init) {
        (_, Some(init)) => task.as_ref().map(|task| model_config(init, task.as_ref())),
        (Some(path), None) if path.exists() => {
            Some(fgrpo_nn::weights::Checkpoint::open(path)?.config().clone())
        }
        _ => None,
    };
    let prompt = match &task {
        Some(task) => task.prompt(Split::Train, 0).tokens.len(),
        None => config.task.max_prompt_tokens().expect("only problems in files can be missing"),
    };
    let limit = task.as_ref().map_or(crate::task::text::MAX_NEW_TOKENS, |task| task.max_new_tokens());
    let Some(model) = model else {
        eprintln!("the model's size is not known without these");
        say_tokens(tokens_per_step(config, prompt, limit));
        return Ok(());
    };
    let needs = Needs::of(config, &model, prompt, limit);
    eprintln!("parameters            {:>12}", needs.parameters);
    eprintln!("weights               {:>12}", bytes(4 * needs.parameters));
    eprintln!(
        "gradient              {:>12}  one copy for each of {} threads",
        bytes(4 * needs.parameters * config.threads()),
        config.threads()
    );
    eprintln!("optimizer             {:>12}", bytes(8 * needs.parameters));
    eprintln!("key/value cache       {:>12}  at most", bytes(needs.cache));
    say_tokens(needs.tokens);
    Ok(())
}

fn say_tokens(tokens: usize) {
    eprintln!(
        "tokens per step       {tokens:>12}  prompts once per group, completions of full length at most"
    );
}

/// Files and folders that the configuration names and that aren't there.
pub fn missing(config: &Config) -> Vec<PathBuf> {
    let mut paths: Vec<&PathBuf> = config.model.path.iter().collect();
    paths.extend(config.task.paths());
    paths.into_iter().filter(|p| !p.exists()).cloned().collect()
}

fn tokens_per_step(config: &Config, prompt: usize, limit: usize) -> usize {
    let r = &config.rollout;
    r.prompts * (prompt + r.group_size * r.max_new_tokens.unwrap_or(limit))
}

/// What a run needs, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Parameters of the policy.
    pub parameters: usize,
    /// Bytes of the key/value cache at its fullest.
    pub cache: usize,
    /// Tokens of a rollout batch at most.
    pub tokens: usize,
}

impl Needs {
    /// For a model, a prompt length and a completion limit.
    pub fn of(config: &Config, model: &ModelConfig, prompt: usize, limit: usize) -> Self {
        let r = &config.rollout;
        let tokens = tokens_per_step(config, prompt, limit);
        let row = 2 * model.num_hidden_layers * model.num_key_value_heads * model.head_dim;
        let cached = tokens.min(r.max_cached_tokens.unwrap_or((1 << 30) / (4 * row)));
        Self { parameters: parameters(model), cache: 4 * cached * row, tokens }
    }
}

/// Number of parameters of a decoder.
pub fn parameters(c: &ModelConfig) -> usize {
    let (d, e) = (c.hidden_size, c.head_dim);
    let (q, kv) = (c.num_attention_heads * e, c.num_key_value_heads * e);
    let bias = if c.qkv_bias { q + 2 * kv } else { 0 };
    let norms = 2 * d + if c.qk_norm { 2 * e } else { 0 };
    let layer = d * q + 2 * d * kv + q * d + bias + 3 * d * c.intermediate_size + norms;
    let head = if c.tie_word_embeddings { 0 } else { c.vocab_size * d };
    c.vocab_size * d + c.num_hidden_layers * layer + d + head
}

fn bytes(n: usize) -> String {
    match n as f64 {
        n if n >= 1e9 => format!("{:.2} GB", n / 1e9),
        n if n >= 1e6 => format!("{:.1} MB", n / 1e6),
        n => format!("{:.1} kB", n / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Every;

    #[test]
    fn the_paper_maze_model_has_the_parameters_we_say() {
        let text = include_str!("../../../configs/maze-17.toml");
        let config = Config::parse(text, &[]).unwrap();
        let task = task::open(&config).unwrap();
        let model = model_config(config.model.init.as_ref().unwrap(), task.as_ref());
        assert_eq!(parameters(&model), 3_944_704);
        assert_eq!(task.prompt(Split::Train, 0).tokens.len(), 310);
    }

    #[test]
    fn the_papers_configurations_are_read_with_the_papers_settings() {
        for (text, length) in [
            (include_str!("../../../configs/qwen2.5-7b-math.toml"), 8192),
            (include_str!("../../../configs/qwen3-4b-base-math.toml"), 4096),
            (include_str!("../../../configs/llama-3.2-3b-math.toml"), 8192),
            (include_str!("../../../configs/qwen3-1.7b-synlogic.toml"), 4096),
        ] {
            let config = Config::parse(text, &[]).unwrap();
            assert_eq!((config.rollout.prompts, config.rollout.group_size), (256, 8));
            assert_eq!((config.update.mini_batch, config.update.lr), (Some(64), 1e-6));
            assert_eq!(config.rollout.max_new_tokens, Some(length));
            // Nothing of it is there, and what is missing is said instead of failing.
            let synlogic = config.task.kind() == "synlogic";
            assert_eq!(missing(&config).len(), if synlogic { 2 } else { 3 });
            assert_eq!((config.epochs, config.save.every), (Some(10), Every::Epoch));
            assert_eq!(tokens_per_step(&config, 1024, 1), 256 * (1024 + 8 * length));
        }
    }
}
