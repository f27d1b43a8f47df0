//! Identifies a model by a hash of its weights, its configuration, and the files that determine tokenization and end
//! tokens.
//!
//! Blocks are hashed in parallel. An evaluation folder caches the result with each file's size, times and inode. A
//! file that was changed later has another status-change time, which programs can't set back.

use anyhow::Context;
use fgrpo_eval::bad_input;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::io::files::{self, write_whole};
use fgrpo_nn::weights::Gguf;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Files besides the weights that affect a model's answers.
const BESIDE: [&str; 6] = [
    "config.json",
    "generation_config.json",
    "adapter_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
];

const BLOCK: u64 = 4 << 20;

/// A file changed this shortly before it was hashed may change again within the same clock tick.
const SETTLED: i128 = 2_000_000_000;

/// The fingerprint of a checkpoint folder or GGUF file. `memory` is the cache file.
/// Fails on a folder without weights, or a file that can't be read.
pub fn of_checkpoint(dir: &Path, memory: Option<&Path>) -> anyhow::Result<String> {
    of(dir, "config.json", memory)
}

/// The fingerprint of an adapter folder in PEFT's layout.
pub fn of_adapter(dir: &Path) -> anyhow::Result<String> {
    of(dir, "adapter_config.json", None)
}

/// A file's metadata at the time it was hashed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    name: String,
    device: u64,
    inode: u64,
    size: u64,
    /// Time of the last content change and of the last status change, in nanoseconds since 1970; text, because JSON
    /// numbers are exact only up to 2^53.
    modified: String,
    changed: String,
}

#[derive(Serialize, Deserialize)]
struct Memory {
    files: Vec<Seen>,
    fingerprint: String,
}

fn of(dir: &Path, config: &str, memory: Option<&Path>) -> anyhow::Result<String> {
    let paths = files_of(dir, config)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as i128);
    let mut settled = true;
    let mut files = Vec::new();
    let mut seen = Vec::new();
    for path in &paths {
        let file =
            File::open(path).with_context(|| format!("{}: cannot open", path.display())).or_bad_input()?;
        let data = file.metadata().with_context(|| path.display().to_string())?;
        let nanoseconds = |s: i64, n: i64| i128::from(s) * 1_000_000_000 + i128::from(n);
        let modified = nanoseconds(data.mtime(), data.mtime_nsec());
        let changed = nanoseconds(data.ctime(), data.ctime_nsec());
        settled &= now - modified.max(changed) > SETTLED;
        seen.push(Seen {
            name: files::name(path),
            device: data.dev(),
            inode: data.ino(),
            size: data.len(),
            modified: modified.to_string(),
            changed: changed.to_string(),
        });
        files.push(file);
    }
    let remembered = memory.and_then(|m| serde_json::from_slice::<Memory>(&std::fs::read(m).ok()?).ok());
    if let Some(remembered) = remembered.filter(|m| m.files == seen) {
        return Ok(remembered.fingerprint);
    }
    let fingerprint = hash(&paths, &files, &seen)?;
    if let Some(path) = memory.filter(|_| settled) {
        let memory = Memory { files: seen, fingerprint: fingerprint.clone() };
        write_whole(path, (serde_json::to_string_pretty(&memory)? + "\n").as_bytes())?;
    }
    Ok(fingerprint)
}

/// The files of a model: a GGUF file alone, or a folder's weights and what lies beside them.
fn files_of(model: &Path, config: &str) -> anyhow::Result<Vec<PathBuf>> {
    if Gguf::is(model) {
        return Ok(vec![model.to_owned()]);
    }
    let list = std::fs::read_dir(model)
        .with_context(|| format!("{}: cannot list", model.display()))
        .or_bad_input()?;
    let mut paths: Vec<PathBuf> = list
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "safetensors"))
        .collect();
    paths.sort();
    if paths.is_empty() {
        bad_input!("{}: found no .safetensors file in the folder", model.display());
    }
    if !model.join(config).exists() {
        bad_input!("{}: found no {config} in the folder", model.display());
    }
    paths.extend(BESIDE.iter().map(|name| model.join(name)).filter(|p| p.exists()));
    Ok(paths)
}

/// A hash of the names, sizes and block hashes.
fn hash(paths: &[PathBuf], files: &[File], seen: &[Seen]) -> anyhow::Result<String> {
    let blocks: Vec<(usize, u64)> = seen
        .iter()
        .enumerate()
        .flat_map(|(f, s)| (0..s.size.div_ceil(BLOCK)).map(move |block| (f, block * BLOCK)))
        .collect();
    let digests: Vec<[u8; 32]> = blocks
        .into_par_iter()
        .map_init(Vec::new, |bytes, (f, at)| {
            bytes.resize(BLOCK.min(seen[f].size - at) as usize, 0);
            files[f]
                .read_exact_at(bytes, at)
                .with_context(|| format!("{}: cannot read", paths[f].display()))?;
            Ok(Sha256::digest(&*bytes).into())
        })
        .collect::<anyhow::Result<_>>()?;
    let mut whole = Sha256::new();
    for file in seen {
        whole.update((file.name.len() as u64).to_le_bytes());
        whole.update(file.name.as_bytes());
        whole.update(file.size.to_le_bytes());
    }
    digests.iter().for_each(|d| whole.update(d));
    Ok(whole.finalize().iter().take(12).map(|b| format!("{b:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_changed_byte_of_the_model_changes_the_fingerprint() {
        let dir = tempfile::tempdir().unwrap();
        let weights = dir.path().join("model.safetensors");
        let mut bytes: Vec<u8> = (0..(9u64 << 20)).map(|i| ((i * i) >> 7) as u8).collect();
        std::fs::write(&weights, &bytes).unwrap();
        std::fs::write(dir.path().join("config.json"), "{}").unwrap();
        let of = || of_checkpoint(dir.path(), None).unwrap();
        let first = of();
        assert_eq!(first, of());
        for at in [0, 100_000, (4 << 20) + 1, (5 << 20) + 77, bytes.len() - 1] {
            bytes[at] ^= 1;
            std::fs::write(&weights, &bytes).unwrap();
            assert_ne!(of(), first, "byte {at}");
            bytes[at] ^= 1;
        }
        std::fs::write(&weights, &bytes).unwrap();
        assert_eq!(of(), first);
        std::fs::write(dir.path().join("chat_template.jinja"), "{{ messages }}").unwrap();
        assert_ne!(of(), first, "the chat template");
    }

    #[test]
    fn what_is_remembered_holds_for_untouched_files_alone() {
        let dir = tempfile::tempdir().unwrap();
        let model = dir.path().join("model");
        std::fs::create_dir(&model).unwrap();
        std::fs::write(model.join("config.json"), "{}").unwrap();
        std::fs::write(model.join("model.safetensors"), "aaaa").unwrap();
        let memory = dir.path().join("fingerprint.json");
        let first = of_checkpoint(&model, Some(&memory)).unwrap();
        assert!(!memory.exists(), "files that were written just now are not settled");
        std::thread::sleep(std::time::Duration::from_millis(2100));
        assert_eq!(of_checkpoint(&model, Some(&memory)).unwrap(), first);
        assert!(memory.exists());
        // Same size, and a modification time that was set back.
        let path = model.join("model.safetensors");
        let before = std::fs::metadata(&path).unwrap().modified().unwrap();
        std::fs::write(&path, "bbbb").unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(before).unwrap();
        assert_ne!(of_checkpoint(&model, Some(&memory)).unwrap(), first);
    }
}
