//! The files of a model besides configuration and weights: how programs tokenize, prompt and sample. A GGUF file has them in its metadata.

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

/// A file's contents, if there is such a file.
pub(super) fn optional(path: &Path, most: u64) -> anyhow::Result<Option<Vec<u8>>> {
    match input::read(path, most) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(e).with_context(|| format!("reading {}", path.display())).or_bad_input(),
    }
}

/// The files of a model, each with its name: those of a folder, or their equivalents from a GGUF file.
pub(super) fn files_of(model: &Path) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    if Gguf::is(model) {
        return gguf::files(model);
    }
    if !model.is_dir() {
        bad_input!(
            "{}: found no folder, wanted a model's with tokenizer.json and a chat template, or a .gguf file",
            model.display()
        );
    }
    let read = |name: &str| {
        let bytes = optional(&model.join(name), LARGEST_FILE).transpose()?;
        Some(bytes.map(|bytes| (name.to_owned(), bytes)))
    };
    FILES.into_iter().filter_map(read).collect()
}

/// Copies a model's files besides configuration and weights to a folder, those that are there.
pub fn copy_files(from: &Path, to: &Path) -> anyhow::Result<()> {
    if Gguf::is(from) {
        return gguf::files(from)?.iter().try_for_each(|(name, bytes)| write_whole(&to.join(name), bytes));
    }
    let there = FILES.iter().filter(|name| from.join(name).exists());
    there.into_iter().try_for_each(|name| copy(&from.join(name), &to.join(name)))
}
