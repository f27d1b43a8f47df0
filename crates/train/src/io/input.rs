//! Reads files named by the user: only regular files, up to a size limit.

pub use fgrpo_nn::input::{SETTINGS, open, read, read_to_string};

/// Maximum bytes of one text for a model: about a million tokens, beyond any context.
pub const PROMPT: usize = 4 << 20;
