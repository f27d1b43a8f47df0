//! The starting model: a checkpoint, or sizes for a new model.

use super::defaults;
use super::ranges::{positive, whole};
use super::schema;
use fgrpo_core::default::ratio;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_nn::config::Architecture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Maximum sizes of a decoder. The largest published models have a vocabulary of 262,144, a width of 53,248, 126
/// layers, and 128 heads of size 256.
const VOCABULARY: RangeInclusive<u64> = 1..=1 << 24;
const WIDTH: RangeInclusive<u64> = 1..=1 << 20;
const LAYERS: RangeInclusive<u64> = 1..=10_000;
const HEADS: RangeInclusive<u64> = 1..=1 << 16;

/// Maximum number of parameters: a hundred times the largest model.
const PARAMETERS: u64 = 1_000_000_000_000_000;

/// The starting model: a checkpoint folder, or sizes for a new model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// A Hugging Face checkpoint folder, a `.gguf` file, or a hub name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Sizes of a new model. The vocabulary size comes from the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<InitConfig>,
    /// Sizes of the checkpoint in `path`, for `--dry-run` without the checkpoint. If the checkpoint exists, its sizes
    /// must be equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<SizeConfig>,
}

/// Sizes of a checkpoint, named as in its `config.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SizeConfig {
    /// Family of the checkpoint.
    #[schemars(schema_with = "schema::word::<Architecture>")]
    pub architecture: Architecture,
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Inner width of the SwiGLU block.
    pub intermediate_size: usize,
    /// Decoder layers.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key/value heads.
    pub num_key_value_heads: usize,
    /// Size of a head, by default `hidden_size / num_attention_heads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_dim: Option<usize>,
    /// Value heads of recurrent layers, which are three of four layers in `qwen3_5_text`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linear_num_value_heads: Option<usize>,
    /// Whether the output layer shares the embedding's weights.
    pub tie_word_embeddings: bool,
}

impl SizeConfig {
    /// Returns the engine's configuration of a decoder with these sizes, without a limit on positions.
    pub fn config(&self) -> fgrpo_nn::config::Config {
        let config = fgrpo_nn::config::Config {
            architecture: self.architecture,
            vocab_size: self.vocab_size,
            hidden_size: self.hidden_size,
            intermediate_size: self.intermediate_size,
            num_hidden_layers: self.num_hidden_layers,
            num_attention_heads: self.num_attention_heads,
            num_key_value_heads: self.num_key_value_heads,
            head_dim: self.head_dim.unwrap_or(self.hidden_size / self.num_attention_heads),
            rms_norm_eps: 1e-6,
            rope_theta: 1e6,
            tie_word_embeddings: self.tie_word_embeddings,
            max_position_embeddings: usize::MAX,
            ..fgrpo_nn::config::Config::default()
        };
        match self.linear_num_value_heads {
            Some(heads) => config.with_recurrent_layers(heads),
            None => config,
        }
    }

    fn check(&self, table: &str) -> anyhow::Result<()> {
        whole(
            table,
            [
                ("vocab_size", self.vocab_size as u64, VOCABULARY),
                ("hidden_size", self.hidden_size as u64, WIDTH),
                ("intermediate_size", self.intermediate_size as u64, WIDTH),
                ("num_hidden_layers", self.num_hidden_layers as u64, LAYERS),
                ("num_attention_heads", self.num_attention_heads as u64, HEADS),
                ("num_key_value_heads", self.num_key_value_heads as u64, HEADS),
                ("head_dim", self.head_dim.unwrap_or(1) as u64, HEADS),
                ("linear_num_value_heads", self.linear_num_value_heads.unwrap_or(1) as u64, HEADS),
            ],
        )?;
        let head_dim = self.head_dim.unwrap_or(self.hidden_size / self.num_attention_heads);
        if head_dim == 0 {
            bad_input!(
                "{table}.num_attention_heads: expected at most hidden_size = {}, found {}",
                self.hidden_size,
                self.num_attention_heads
            );
        }
        let config = self.config();
        if self.linear_num_value_heads.is_some() {
            if !config.is_recurrent() {
                let family = self.architecture.model_type();
                bad_input!(
                    "{table}.linear_num_value_heads: remove this key; {family} has no recurrent layers"
                );
            }
            let sizes = fgrpo_nn::config::Config { max_position_embeddings: 1, ..config.clone() };
            sizes.validate_at(table).or_bad_input()?;
        }
        config.check_family(table).or_bad_input()?;
        if config.checked_parameters().is_none_or(|parameters| parameters > PARAMETERS) {
            bad_input!("{table}: these sizes have more than {PARAMETERS:e} parameters");
        }
        Ok(())
    }
}

impl ModelConfig {
    /// Fails if the sizes of a checkpoint differ from `[model.size]`.
    pub fn check_size(&self, checkpoint: &fgrpo_nn::config::Config) -> anyhow::Result<()> {
        let Some(size) = &self.size else { return Ok(()) };
        let expected = size.config();
        let sizes = |c: &fgrpo_nn::config::Config| {
            [
                ("vocab_size", c.vocab_size),
                ("hidden_size", c.hidden_size),
                ("intermediate_size", c.intermediate_size),
                ("num_hidden_layers", c.num_hidden_layers),
                ("num_attention_heads", c.num_attention_heads),
                ("num_key_value_heads", c.num_key_value_heads),
                ("head_dim", c.head_dim),
                ("linear_num_value_heads", c.linear_attention.map_or(0, |l| l.linear_num_value_heads)),
                ("tie_word_embeddings", usize::from(c.tie_word_embeddings)),
            ]
        };
        let folder = self.path.as_ref().map_or(String::new(), |p| p.display().to_string());
        if checkpoint.architecture != expected.architecture {
            bad_input!(
                "model.size.architecture: the checkpoint {folder} has {:?}, but [model.size] has {:?}",
                checkpoint.architecture,
                expected.architecture
            );
        }
        for ((name, actual), (_, value)) in sizes(checkpoint).into_iter().zip(sizes(&expected)) {
            if actual != value {
                bad_input!(
                    "model.size.{name}: the checkpoint {folder} has {actual}, but [model.size] has {value}"
                );
            }
        }
        Ok(())
    }

    pub(super) fn check(&self) -> anyhow::Result<()> {
        match (&self.path, &self.init) {
            (None, None) => bad_input!(
                "model: requires `path` (a Hugging Face checkpoint folder) or a table [model.init] with sizes"
            ),
            (Some(_), Some(_)) => bad_input!("model: `path` and [model.init] can't be combined"),
            (None, Some(init)) => {
                if self.size.is_some() {
                    bad_input!(
                        "model.size: can't be combined with [model.init]; it describes the checkpoint in `path`"
                    );
                }
                init.check()
            }
            (Some(_), None) => self.size.as_ref().map_or(Ok(()), |size| size.check("model.size")),
        }
    }
}

/// A randomly initialised decoder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InitConfig {
    /// Family of the decoder, which determines its biases and norms. `qwen3_5_text` and `lfm2` aren't supported, because
    /// only a `config.json` can describe their recurrent layers.
    #[serde(default = "defaults::architecture")]
    #[schemars(schema_with = "schema::word::<Architecture>")]
    pub architecture: Architecture,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Inner width of the SwiGLU block.
    pub intermediate_size: usize,
    /// Decoder layers.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key/value heads; must divide the number of query heads.
    pub num_key_value_heads: usize,
    /// Size of a head, by default `hidden_size / num_attention_heads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_dim: Option<usize>,
    /// Base of the rotary frequencies.
    #[serde(default = "ratio::<1_000_000, 1>")]
    pub rope_theta: f64,
    /// Whether the output layer shares the embedding's weights.
    #[serde(default = "defaults::yes")]
    pub tie_word_embeddings: bool,
    /// Standard deviation of the initial matrices.
    #[serde(default = "ratio::<1, 50>")]
    pub std: f64,
}

impl InitConfig {
    /// Returns the sizes with this vocabulary.
    pub fn size(&self, vocab_size: usize) -> SizeConfig {
        SizeConfig {
            architecture: self.architecture,
            vocab_size,
            hidden_size: self.hidden_size,
            intermediate_size: self.intermediate_size,
            num_hidden_layers: self.num_hidden_layers,
            num_attention_heads: self.num_attention_heads,
            num_key_value_heads: self.num_key_value_heads,
            head_dim: self.head_dim,
            linear_num_value_heads: None,
            tie_word_embeddings: self.tie_word_embeddings,
        }
    }

    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.size(1).check("model.init")?;
        if self.head_dim.is_none() && !self.hidden_size.is_multiple_of(self.num_attention_heads) {
            bad_input!(
                "model.init.num_attention_heads: expected a divisor of hidden_size = {} (or a head_dim), found {}",
                self.hidden_size,
                self.num_attention_heads
            );
        }
        let sizes = fgrpo_nn::config::Config { max_position_embeddings: 1, ..self.size(1).config() };
        sizes.validate_at("model.init").or_bad_input()?;
        positive("model.init.std", self.std)?;
        positive("model.init.rope_theta", self.rope_theta)
    }
}
