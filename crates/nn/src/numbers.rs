//! Number types that a caller chooses: on a GPU, and of the products on the CPU.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The names of an enum's variants.
macro_rules! named {
    ($type:ident, $field:literal, $all:literal, $($variant:ident = $name:literal),*) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $($type::$variant => $name),* })
            }
        }

        impl FromStr for $type {
            type Err = Error;

            fn from_str(name: &str) -> Result<$type, Error> {
                match name {
                    $($name => Ok($type::$variant),)*
                    other => Err(Error::request($field, other, $all)),
                }
            }
        }
    };
}

/// Number type on a GPU: of weights and activations, or of AdamW's moments. The optimizer updates f32 weights in each, and statistics, sums, logits and
/// gradients of parameters are f32.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32 bits.
    #[default]
    F32,
    /// bfloat16. The 16 bits that rounding takes from each weight are kept beside it, so that no update is lost.
    Bf16,
}

impl Precision {
    /// Bytes of a number.
    pub const fn bytes(self) -> usize {
        if matches!(self, Precision::F32) { 4 } else { 2 }
    }
}

named!(Precision, "precision", "f32 or bf16", F32 = "f32", Bf16 = "bf16");

/// The CPU's products in linear maps and the vocabulary head, forward and backward. Weights, activations, gradients, sums, attention and the
/// optimizer are f32 in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Products {
    /// Numbers in f32.
    #[default]
    F32,
    /// Each number is the sum of two in bfloat16; the product of the two small parts is left out. A result is off by about 1e-5 of the size of its
    /// terms.
    Bf16x3,
    /// Numbers are rounded to bfloat16; a result is off by about 4e-3 of the size of its terms.
    Bf16,
}

named!(Products, "products", "f32, bf16x3 or bf16", F32 = "f32", Bf16x3 = "bf16x3", Bf16 = "bf16");
