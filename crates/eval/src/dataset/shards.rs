//! Resolves a data set's path to files: a file, a pattern, a folder in Hugging Face's layout, or one split of it.
//!
//! ```text
//! gsm8k/main/train-00000-of-00002.parquet     the file
//! gsm8k/main/train-*.parquet                  all that match
//! gsm8k/main/train                            the shards of a split, or train.jsonl
//! gsm8k                                       everything in it, where that is one split
//! ```

use super::format::{FORMATS, FileFormat};
use crate::io::files;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Split names that a file may have without being a shard.
const SPLITS: [&str; 10] =
    ["train", "test", "validation", "valid", "val", "dev", "eval", "held-out", "held_out", "heldout"];

/// Files found next to data that aren't data.
const BESIDE: [&str; 3] = ["dataset_info.json", "dataset_infos.json", "state.json"];

/// Folders inside a Hugging Face data set that contain its files.
const DATA: &str = "data";

/// The files of a data set, in name order.
/// Fails if the path names no file, folder or split, or a shard is missing.
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
    let among = |wanted: &dyn Fn(&Path) -> bool| -> anyhow::Result<Vec<PathBuf>> {
        for place in [parent.to_owned(), parent.join(DATA)] {
            let found: Vec<PathBuf> = data_files(&place)?.into_iter().filter(|f| wanted(f)).collect();
            if !found.is_empty() {
                return Ok(found);
            }
        }
        Ok(Vec::new())
    };
    let found = if name.contains('*') {
        among(&|file| matches(&name, &files::name(file)))?
    } else {
        among(&|file| split(&files::name(file)) == Some(&name))?
    };
    if found.is_empty() {
        let there: BTreeSet<String> = among(&|_| true)?.iter().map(|f| files::name(f)).collect();
        let there: Vec<String> = there.into_iter().take(8).collect();
        bad_input!(
            "{}: no such file, folder or split; {} has {}",
            path.display(),
            parent.display(),
            if there.is_empty() { "no data file".to_owned() } else { there.join(", ") }
        );
    }
    whole(found)
}

/// All files of a folder; they must belong to one split.
fn folder(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let found = data_files(path)?;
    if found.is_empty() {
        let mut inner = Vec::new();
        for folder in folders(path)? {
            if holds_data(&folder)? {
                inner.push(folder);
            }
        }
        return match inner.as_slice() {
            [] => bad_input!("{}: found no data file, wanted {FORMATS}", path.display()),
            [only] => folder(only),
            several => {
                let names: Vec<String> = several.iter().map(|f| f.display().to_string()).collect();
                bad_input!(
                    "{}: found data in several folders, wanted one of them: {}",
                    path.display(),
                    names.join(", ")
                )
            }
        };
    }
    let names: Vec<String> = found.iter().map(|f| files::name(f)).collect();
    let splits: BTreeSet<&str> = names.iter().filter_map(|n| split(n)).collect();
    if splits.len() > 1 {
        let names: Vec<String> = splits.iter().map(|s| path.join(s).display().to_string()).collect();
        bad_input!("{}: found several splits, wanted one of them: {}", path.display(), names.join(", "));
    }
    whole(found)
}

/// Fails if a shard of a split is missing.
fn whole(files: Vec<PathBuf>) -> anyhow::Result<Vec<PathBuf>> {
    let mut shards: BTreeMap<(String, usize), BTreeSet<usize>> = BTreeMap::new();
    for file in &files {
        if let Some((split, number, of)) = shard(&files::name(file)) {
            shards.entry((split.to_owned(), of)).or_default().insert(number);
        }
    }
    for ((split, of), there) in shards {
        if let Some(missing) = (0..of).find(|n| !there.contains(n)) {
            bad_input!(
                "{}: found {} of the {of} shards of {split}, without {split}-{missing:05}-of-{of:05}; name a pattern such as '{split}-*' to read what is there",
                files[0].parent().unwrap_or(Path::new(".")).display(),
                there.len()
            );
        }
    }
    Ok(files)
}

/// What a data set is called: by its name in the hub for files of the hub's cache (`datasets--openai--gsm8k/..`), else by
/// its file or folder, without ending and shard number.
pub fn name(path: &Path) -> String {
    let of_hub = |part: &str| Some(part.strip_prefix("datasets--")?.rsplit_once("--")?.1.to_owned());
    let mut parts = path.iter().filter_map(|part| part.to_str());
    parts.clone().find_map(of_hub).unwrap_or_else(|| {
        let last = parts.next_back().unwrap_or_default();
        shard(last).map_or_else(|| files::stem(path), |(split, _, _)| split.to_owned())
    })
}

/// The split of a file, by its name.
fn split(name: &str) -> Option<&str> {
    if let Some((split, _, _)) = shard(name) {
        return Some(split);
    }
    let stem = name.split('.').next()?;
    SPLITS.contains(&stem).then_some(stem)
}

/// Split, shard index and number of shards of a name such as `train-00000-of-00005.parquet`.
fn shard(name: &str) -> Option<(&str, usize, usize)> {
    let (rest, of) = name.split('.').next()?.rsplit_once("-of-")?;
    let (split, number) = rest.rsplit_once('-')?;
    let digits = |s: &str| s.len() == 5 && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(number) || !digits(of) || split.is_empty() {
        return None;
    }
    Some((split, number.parse().ok()?, of.parse().ok()?))
}

/// The entries of a folder without hidden files, in name order.
fn entries(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    Ok(files::listed(folder)?.into_iter().filter(|p| !files::name(p).starts_with('.')).collect())
}

fn data_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let own = |file: &PathBuf| {
        file.is_file() && FileFormat::of(file).is_some() && !BESIDE.contains(&&*files::name(file))
    };
    Ok(entries(folder)?.into_iter().filter(own).collect())
}

fn folders(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    Ok(entries(folder)?.into_iter().filter(|p| p.is_dir()).collect())
}

/// Whether a folder contains data, up to two levels deep as in data set repositories.
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

/// Whether a name matches a pattern; `*` matches any characters.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_set_is_called_as_the_hub_or_its_file_calls_it() {
        let hub = "/home/hub/datasets--HuggingFaceH4--MATH-500/snapshots/0123/test.jsonl";
        for (path, wanted) in [
            (hub, "MATH-500"),
            ("gsm8k/main/test-00000-of-00001.parquet", "test"),
            ("gsm8k/main/test", "test"),
            ("data/aime25.jsonl.gz", "aime25"),
        ] {
            assert_eq!(name(Path::new(path)), wanted, "{path}");
        }
    }

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, wanted) in [
            ("train-*.parquet", "train-00000-of-00001.parquet", true),
            ("*", "a", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b", "a-b-c", false),
            ("train-*", "test-0", false),
        ] {
            assert_eq!(matches(pattern, name), wanted, "{pattern} {name}");
        }
    }
}
