//! Files of a model that determine how it is tokenized, prompted and sampled. A GGUF file has their contents in its
//! metadata.

use crate::language::gguf;
use anyhow::Context;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::io::files::{copy, write_whole};
use fgrpo_files as input;
use fgrpo_nn::weights::Gguf;
use std::io::ErrorKind;
use std::path::Path;

const FILES: [&str; 8] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "generation_config.json",
];

/// Maximum size of each of these files, in bytes.
const LARGEST_FILE: u64 = 1 << 30;

/// Reads a file of at most `limit` bytes. Returns `None` if it doesn't exist.
pub(super) fn optional(path: &Path, limit: u64) -> anyhow::Result<Option<Vec<u8>>> {
    match input::read(path, limit) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(e).with_context(|| format!("reading {}", path.display())).or_bad_input(),
    }
}

/// Reads the files of a model folder, or makes them from the metadata of a GGUF file. Returns names and contents.
pub(super) fn files_of(model: &Path) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    if Gguf::is(model) {
        return gguf::files(model);
    }
    if !model.is_dir() {
        bad_input!(
            "{}: no such file or folder; name a model folder with tokenizer.json and a chat template, or a .gguf file",
            model.display()
        );
    }
    let read = |name: &str| {
        let bytes = optional(&model.join(name), LARGEST_FILE).transpose()?;
        Some(bytes.map(|bytes| (name.to_owned(), bytes)))
    };
    FILES.into_iter().filter_map(read).collect()
}

/// Copies the files that exist, except for configuration and weights, from a model to a folder.
pub fn copy_files(from: &Path, to: &Path) -> anyhow::Result<()> {
    if Gguf::is(from) {
        return gguf::files(from)?.iter().try_for_each(|(name, bytes)| write_whole(&to.join(name), bytes));
    }
    let existing = FILES.iter().filter(|name| from.join(name).exists());
    existing.into_iter().try_for_each(|name| copy(&from.join(name), &to.join(name)))
}
