//! A decoder and its engine: forward, backward, sampling and AdamW over token ids. Knows no RL.
//!
//! Shapes in these docs: `T` tokens, `D` hidden, `H` heads, `K` KV heads, `E` head size,
//! `F` intermediate, `V` vocabulary, `L` layers.

pub mod config;
pub mod error;
pub mod weights;

pub use error::Error;
