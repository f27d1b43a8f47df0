//! Number types that a caller chooses: for storage on a GPU, and for the CPU's matrix products.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Implements `Display` and `FromStr` for an enum from its variants' names.
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

/// Number type on a GPU for weights and activations, or for AdamW's moments. With either, the optimizer updates f32 weights, and
/// statistics, sums, logits and parameter gradients are f32.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32 bits.
    #[default]
    F32,
    /// bfloat16. The low 16 bits of each f32 weight are stored separately, so no update is lost to rounding.
    Bf16,
}

impl Precision {
    /// Returns the number of bytes per value.
    pub const fn bytes(self) -> usize {
        if matches!(self, Precision::F32) { 4 } else { 2 }
    }
}

named!(Precision, "precision", "f32 or bf16", F32 = "f32", Bf16 = "bf16");

/// Number format of the CPU's matrix products in linear maps and in the vocabulary head, forward and backward. Weights, activations,
/// gradients, sums, attention and the optimizer are always f32.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProductFormat {
    /// Operands in f32.
    #[default]
    F32,
    /// Each operand is split into two bfloat16 values; the product of the two low parts is dropped. The error is about 1e-5 of the terms' size.
    Bf16x3,
    /// Operands rounded to bfloat16; the error is about 4e-3 of the terms' size.
    Bf16,
    /// Operands in f32. The large products of a gradient are computed by the system's BLAS, so their bits may depend on the library and its number of threads;
    /// sampling and scoring compute the same bits as with `F32`.
    Blas,
}

named!(
    ProductFormat,
    "products",
    "f32, bf16x3, bf16 or blas",
    F32 = "f32",
    Bf16x3 = "bf16x3",
    Bf16 = "bf16",
    Blas = "blas"
);
