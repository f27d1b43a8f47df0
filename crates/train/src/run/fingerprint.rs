//! Identifies a model by a hash of its weights, its configuration, and the files that determine tokenization and end
//! tokens. Blocks are hashed in parallel.

use anyhow::Context;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::io::files;
use fgrpo_nn::weights::Gguf;
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Files besides the weights that affect a model's answers.
const OTHERS: [&str; 6] = [
    "config.json",
    "generation_config.json",
    "adapter_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
];

const BLOCK: u64 = 4 << 20;

/// Computes the fingerprint of a checkpoint folder or GGUF file. Fails if the folder has no weights, or a file can't
/// be read.
pub fn of_checkpoint(dir: &Path) -> anyhow::Result<String> {
    of(dir, "config.json")
}

/// Computes the fingerprint of an adapter folder in PEFT's layout.
pub fn of_adapter(dir: &Path) -> anyhow::Result<String> {
    of(dir, "adapter_config.json")
}

/// Hashes the names, sizes and block hashes of the files.
fn of(dir: &Path, config: &str) -> anyhow::Result<String> {
    let mut files = Vec::new();
    for path in files_of(dir, config)? {
        let open = || {
            let file = File::open(&path)?;
            let size = file.metadata()?.len();
            Ok::<_, std::io::Error>((file, size))
        };
        let (file, size) =
            open().with_context(|| format!("{}: cannot open", path.display())).or_bad_input()?;
        files.push((path, file, size));
    }
    let blocks: Vec<(usize, u64)> = files
        .iter()
        .enumerate()
        .flat_map(|(f, (.., size))| (0..size.div_ceil(BLOCK)).map(move |block| (f, block * BLOCK)))
        .collect();
    let digests: Vec<[u8; 32]> = blocks
        .into_par_iter()
        .map_init(Vec::new, |bytes, (f, at)| {
            let (path, file, size) = &files[f];
            bytes.resize(BLOCK.min(size - at) as usize, 0);
            file.read_exact_at(bytes, at).with_context(|| format!("{}: cannot read", path.display()))?;
            Ok(Sha256::digest(&*bytes).into())
        })
        .collect::<anyhow::Result<_>>()?;
    let mut whole = Sha256::new();
    for (path, _, size) in &files {
        let name = files::name(path);
        whole.update((name.len() as u64).to_le_bytes());
        whole.update(name.as_bytes());
        whole.update(size.to_le_bytes());
    }
    digests.iter().for_each(|d| whole.update(d));
    Ok(whole.finalize().iter().take(12).map(|b| format!("{b:02x}")).collect())
}

/// Returns the files of a model: a GGUF file, or the weights in a folder and the other files that matter.
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
        bad_input!("{}: the folder has no .safetensors file", model.display());
    }
    if !model.join(config).exists() {
        bad_input!("{}: the folder has no {config}", model.display());
    }
    paths.extend(OTHERS.iter().map(|name| model.join(name)).filter(|p| p.exists()));
    Ok(paths)
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
        let fingerprint = || of_checkpoint(dir.path()).unwrap();
        let first = fingerprint();
        assert_eq!(first, fingerprint());
        for at in [0, 100_000, (4 << 20) + 1, (5 << 20) + 77, bytes.len() - 1] {
            bytes[at] ^= 1;
            std::fs::write(&weights, &bytes).unwrap();
            assert_ne!(fingerprint(), first, "byte {at}");
            bytes[at] ^= 1;
        }
        std::fs::write(&weights, &bytes).unwrap();
        assert_eq!(fingerprint(), first);
        std::fs::write(dir.path().join("chat_template.jinja"), "{{ messages }}").unwrap();
        assert_ne!(fingerprint(), first, "the chat template");
    }
}
