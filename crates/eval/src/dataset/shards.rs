//! Resolves the path of a data set to files: a file, a pattern, a folder in Hugging Face's layout, or one split of it.
//!
//! ```text
//! gsm8k/main/train-00000-of-00002.parquet     the file
//! gsm8k/main/train-*.parquet                  all files that match
//! gsm8k/main/train                            the shards of a split, or train.jsonl
//! gsm8k                                       all files in it, if they belong to one split
//! ```

use super::format::{FORMATS, FileFormat};
use crate::failure::OrBadInput;
use crate::io::files;
use anyhow::Context;
use glob::Pattern;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Stems of file names that hold a whole split, such as `train.jsonl`, and not a shard of a split.
const SPLITS: [&str; 10] =
    ["train", "test", "validation", "valid", "val", "dev", "eval", "held-out", "held_out", "heldout"];

/// Files next to the data files that aren't data.
const BESIDE: [&str; 3] = ["dataset_info.json", "dataset_infos.json", "state.json"];

/// Folder inside a Hugging Face data set that may contain its files.
const DATA: &str = "data";

/// Lists the files of a data set in name order.
///
/// Returns an error if the file, folder or split doesn't exist, or if a shard is missing.
pub fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if path.is_dir() {
        return folder(path);
    }
    // Pipes and devices are rejected when they are opened.
    if path.exists() {
        return Ok(vec![path.to_owned()]);
    }
    let name = files::name(path);
    let parent = files::parent(path);
    if !parent.is_dir() {
        bad_input!("{}: no such file or folder", path.display());
    }
    let among = |accepts: &dyn Fn(&Path) -> bool| -> anyhow::Result<Vec<PathBuf>> {
        for folder in [parent.to_owned(), parent.join(DATA)] {
            let files: Vec<PathBuf> = data_files(&folder)?.into_iter().filter(|f| accepts(f)).collect();
            if !files.is_empty() {
                return Ok(files);
            }
        }
        Ok(Vec::new())
    };
    let selected = if name.contains('*') {
        let pattern = Pattern::new(&name).with_context(|| path.display().to_string()).or_bad_input()?;
        among(&|file| pattern.matches(&files::name(file)))?
    } else {
        among(&|file| split(&files::name(file)) == Some(&name))?
    };
    if selected.is_empty() {
        let names: BTreeSet<String> = among(&|_| true)?.iter().map(|f| files::name(f)).collect();
        let names: Vec<String> = names.into_iter().take(8).collect();
        bad_input!(
            "{}: no such file, folder or split; {} has {}",
            path.display(),
            parent.display(),
            if names.is_empty() { "no data file".to_owned() } else { names.join(", ") }
        );
    }
    require_all_shards(selected)
}

/// Lists the data files of a folder or else of its only subfolder with data. They must belong to one split.
fn folder(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let files = data_files(path)?;
    if files.is_empty() {
        let mut inner = Vec::new();
        for folder in folders(path)? {
            if holds_data(&folder)? {
                inner.push(folder);
            }
        }
        return match inner.as_slice() {
            [] => bad_input!("{}: there is no data file; a data set is {FORMATS}", path.display()),
            [only] => folder(only),
            several => {
                let names: Vec<String> = several.iter().map(|f| f.display().to_string()).collect();
                bad_input!(
                    "{}: several folders contain data; choose one: {}",
                    path.display(),
                    names.join(", ")
                )
            }
        };
    }
    let names: Vec<String> = files.iter().map(|f| files::name(f)).collect();
    let splits: BTreeSet<&str> = names.iter().filter_map(|n| split(n)).collect();
    if splits.len() > 1 {
        let names: Vec<String> = splits.iter().map(|s| path.join(s).display().to_string()).collect();
        bad_input!("{}: there are several splits; choose one: {}", path.display(), names.join(", "));
    }
    require_all_shards(files)
}

/// Returns an error if a shard of a split is missing.
fn require_all_shards(files: Vec<PathBuf>) -> anyhow::Result<Vec<PathBuf>> {
    let mut shards: BTreeMap<(String, usize), BTreeSet<usize>> = BTreeMap::new();
    for file in &files {
        if let Some((split, index, count)) = shard(&files::name(file)) {
            shards.entry((split.to_owned(), count)).or_default().insert(index);
        }
    }
    for ((split, count), present) in shards {
        if let Some(missing) = (0..count).find(|n| !present.contains(n)) {
            bad_input!(
                "{}: {split}-{missing:05}-of-{count:05} is missing; {} of {count} shards are there. Use a pattern such as '{split}-*' to read them",
                files[0].parent().unwrap_or(Path::new(".")).display(),
                present.len()
            );
        }
    }
    Ok(files)
}

/// Returns the name of a data set. For files in Hugging Face's cache (`datasets--openai--gsm8k/..`), it is the hub's name,
/// otherwise the file or folder name without extension and shard index.
pub fn name(path: &Path) -> String {
    let hub_name = |part: &str| Some(part.strip_prefix("datasets--")?.rsplit_once("--")?.1.to_owned());
    let mut parts = path.iter().filter_map(|part| part.to_str());
    parts.clone().find_map(hub_name).unwrap_or_else(|| {
        let last = parts.next_back().unwrap_or_default();
        shard(last).map_or_else(|| files::stem(path), |(split, _, _)| split.to_owned())
    })
}

/// Returns the split that a file name denotes, if any.
fn split(name: &str) -> Option<&str> {
    if let Some((split, _, _)) = shard(name) {
        return Some(split);
    }
    let stem = name.split('.').next()?;
    SPLITS.contains(&stem).then_some(stem)
}

/// Parses the split, shard index and number of shards in a name such as `train-00000-of-00005.parquet`.
fn shard(name: &str) -> Option<(&str, usize, usize)> {
    let (rest, count) = name.split('.').next()?.rsplit_once("-of-")?;
    let (split, index) = rest.rsplit_once('-')?;
    let digits = |s: &str| s.len() == 5 && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(index) || !digits(count) || split.is_empty() {
        return None;
    }
    Some((split, index.parse().ok()?, count.parse().ok()?))
}

/// Lists the entries of a folder in name order, without hidden files. The list is empty if the folder doesn't exist.
fn entries(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    Ok(files::listed(folder)?.into_iter().filter(|p| !files::name(p).starts_with('.')).collect())
}

fn data_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let is_data = |file: &PathBuf| {
        file.is_file() && FileFormat::of(file).is_some() && !BESIDE.contains(&&*files::name(file))
    };
    Ok(entries(folder)?.into_iter().filter(is_data).collect())
}

fn folders(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    Ok(entries(folder)?.into_iter().filter(|p| p.is_dir()).collect())
}

/// Returns whether a folder contains data files, itself or in its subfolders, as in data set repositories.
fn holds_data(folder: &Path) -> anyhow::Result<bool> {
    if !data_files(folder)?.is_empty() {
        return Ok(true);
    }
    for inner in folders(folder)? {
        if !data_files(&inner)?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_set_is_called_as_the_hub_or_its_file_calls_it() {
        let hub = "/home/hub/datasets--HuggingFaceH4--MATH-500/snapshots/0123/test.jsonl";
        for (path, expected) in [
            (hub, "MATH-500"),
            ("gsm8k/main/test-00000-of-00001.parquet", "test"),
            ("gsm8k/main/test", "test"),
            ("data/aime25.jsonl.gz", "aime25"),
        ] {
            assert_eq!(name(Path::new(path)), expected, "{path}");
        }
    }
}
