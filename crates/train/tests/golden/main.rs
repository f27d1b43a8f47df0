//! Comparisons with golden files, which transformers and PyTorch made.

#[path = "../../../nn/tests/golden/mod.rs"]
mod golden;

mod chat;
mod gguf;
mod rl;
