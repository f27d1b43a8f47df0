//! Settings of LoRA, which trains low-rank factors instead of the weights.

use super::schema;
use anyhow::Context;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_nn::{BaseFormat, LoraConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Low-rank factors, trained instead of the weights of `model.path`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LoraTable {
    /// Rank of the factors (PEFT's `r`).
    pub rank: usize,
    /// The product of the factors is scaled by `alpha / rank` (PEFT's `lora_alpha`).
    pub alpha: f64,
    /// Matrices of every layer that get factors: a list of `q_proj`, `k_proj`, `v_proj`, `o_proj`, `gate_proj`,
    /// `up_proj`, `down_proj`, for Qwen3.5 `in_proj_qkv`, `in_proj_z`, `in_proj_b`, `in_proj_a`, `out_proj`, and for LFM2
    /// `in_proj`, `out_proj`, `w1`, `w3`, `w2`; or `"all-linear"` for all of them.
    pub targets: Targets,
    /// Scale by `alpha / sqrt(rank)` instead (rsLoRA).
    pub use_rslora: bool,
    /// Format of the base's matrices in memory: `nf4` (4 bits), `int8` or `bf16`. By default, the matrices are loaded
    /// as usual and the factors are merged into them.
    #[schemars(schema_with = "schema::word::<BaseFormat>")]
    pub base: Option<BaseFormat>,
    /// Also write the merged weights into each checkpoint, so that `fgrpo merge` isn't needed.
    pub save_merged: bool,
}

/// Names of matrices, or `all-linear`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a list of matrices or \"all-linear\"")]
pub enum Targets {
    /// All linear layers.
    All(AllLinear),
    /// Matrices with these names.
    Some(Vec<String>),
}

/// The word `all-linear`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AllLinear {
    /// `"all-linear"`.
    #[serde(rename = "all-linear")]
    AllLinear,
}

impl Default for LoraTable {
    fn default() -> Self {
        Self {
            rank: 16,
            alpha: 32.0,
            targets: Targets::All(AllLinear::AllLinear),
            use_rslora: false,
            base: None,
            save_merged: true,
        }
    }
}

impl LoraTable {
    /// Returns the engine's LoRA settings.
    pub fn engine(&self) -> LoraConfig {
        LoraConfig {
            rank: self.rank,
            alpha: self.alpha,
            targets: match &self.targets {
                Targets::All(_) => LoraConfig::TARGETS.map(str::to_owned).to_vec(),
                Targets::Some(names) => names.clone(),
            },
            use_rslora: self.use_rslora,
        }
    }

    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.engine().check().context("[lora]").or_bad_input()
    }
}
