//! Comparisons with golden files, which transformers and PyTorch made.

mod chat;
mod rl;
