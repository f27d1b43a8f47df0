//! Models and data sets of the Hugging Face hub: resolves a name to local files and downloads what is missing.
//!
//! The cache and its layout are those of Python's `huggingface_hub`, so each program finds the other's downloads:
//!
//! ```text
//! $HF_HUB_CACHE/models--ORG--NAME/refs/main                  commit of the branch main
//!                                 blobs/ETAG                 a file; ETAG.incomplete during its download
//!                                 snapshots/COMMIT/FILE      a link to it
//! $HF_HUB_CACHE/.locks/models--ORG--NAME/ETAG.lock           held by the process that downloads it
//! ```
//!
//! `HF_HOME`, `HF_HUB_CACHE`, `HF_ENDPOINT`, `HF_TOKEN`, `HF_TOKEN_PATH` and `HF_HUB_OFFLINE` have the same meaning as there,
//! and so have the older names `HUGGINGFACE_HUB_CACHE` and `TRANSFORMERS_OFFLINE`.
//! Nothing is uploaded, and nothing is removed from the cache.

mod download;
mod name;
mod sizes;
mod split;
#[cfg(test)]
mod tests;

pub use name::{Kind, Name};
pub use sizes::sizes;

use regex::{Captures, Regex};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

/// Reason why a name can't be resolved to files.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Wrong input: an unknown repository, revision or split, missing access, or nothing in the cache while offline.
    #[error("{0}")]
    Refused(String),
    /// The network or the disk failed.
    #[error("{0}")]
    Failed(String),
    /// The caller stopped the download. Downloaded bytes are kept.
    #[error("{0}")]
    Stopped(String),
}

/// Receives the progress of downloads.
pub trait Watch {
    /// Shows a message to the user.
    fn say(&mut self, line: &str);
    /// Begins the progress of a download of `length` bytes, `done` of which exist already.
    fn begin(&mut self, file: &str, done: u64, length: u64);
    /// Reports that `done` bytes have been downloaded.
    fn progress(&mut self, done: u64);
    /// Ends the progress: the download is complete, or was stopped.
    fn end(&mut self);
    /// Returns whether to stop the download.
    fn stop(&self) -> bool;
}

/// Files that a name was resolved to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Folder of the commit, or a path or pattern of data files in it.
    pub path: PathBuf,
    /// Commit hash.
    pub commit: String,
    /// Subset and split, if the name is a data set.
    pub part: Option<(String, String)>,
}

/// The hub and its local cache, configured by environment variables.
#[derive(Debug)]
pub struct Hub {
    cache: PathBuf,
    endpoint: String,
    token: Option<String>,
    offline: bool,
    weights: bool,
    agent: ureq::Agent,
}

/// Maximum size of the token file, in bytes.
const TOKEN: u64 = 1 << 16;

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().map(|v| v.trim().to_owned()).filter(|v| !v.is_empty())
}

/// Expands `~`, `$NAME` and `${NAME}` in a path, as Python's `expanduser` and `expandvars` do. Unset variables remain.
fn expanded(path: &str) -> PathBuf {
    static NAME: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\$(?:(\w+)|\{([^}]*)\})").expect("a pattern"));
    let home = path.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let path = match (home, std::env::var("HOME")) {
        (Some(rest), Ok(home)) => home + rest,
        _ => path.to_owned(),
    };
    let value = |name: &Captures<'_>| {
        let key = name.get(1).or(name.get(2)).map_or("", |m| m.as_str());
        std::env::var(key).unwrap_or_else(|_| name[0].to_owned())
    };
    NAME.replace_all(&path, value).into_owned().into()
}

impl Hub {
    /// Reads the environment variables.
    ///
    /// Returns an error if `HF_HOME`, `XDG_CACHE_HOME` and `HOME` are all unset, or if the token file can't be read.
    pub fn from_environment() -> Result<Self, Error> {
        let home = || -> Option<PathBuf> {
            let folder = |name: &str, rest: &str| variable(name).map(|v| expanded(&v).join(rest));
            folder("HF_HOME", "")
                .or_else(|| folder("XDG_CACHE_HOME", "huggingface"))
                .or_else(|| folder("HOME", ".cache/huggingface"))
        };
        let home = home().ok_or_else(|| {
            Error::Refused(
                "HF_HOME and HOME are not set, so the hub's cache has no folder; set HF_HOME".into(),
            )
        })?;
        let cache = variable("HF_HUB_CACHE").or_else(|| variable("HUGGINGFACE_HUB_CACHE"));
        let cache = cache.map_or_else(|| home.join("hub"), |v| expanded(&v));
        let file = variable("HF_TOKEN_PATH").map_or_else(|| home.join("token"), |v| expanded(&v));
        let token = match variable("HF_TOKEN") {
            None if file.is_file() => Some(
                fgrpo_files::read_to_string(&file, TOKEN)
                    .map_err(|e| Error::Refused(format!("{}: {e}", file.display())))?
                    .trim()
                    .to_owned(),
            ),
            other => other,
        };
        let offline = variable("HF_HUB_OFFLINE")
            .or_else(|| variable("TRANSFORMERS_OFFLINE"))
            .is_some_and(|v| ["1", "ON", "YES", "TRUE"].contains(&v.to_ascii_uppercase().as_str()));
        let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".into());
        let agent = ureq::Agent::config_builder()
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .accept_encoding("identity")
            .timeout_connect(Some(Duration::from_secs(15)))
            .timeout_recv_response(Some(Duration::from_secs(60)))
            .timeout_per_read(Some(Duration::from_secs(60)))
            .user_agent(concat!("fgrpo/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        Ok(Self { cache, endpoint, token: token.filter(|t| !t.is_empty()), offline, weights: true, agent })
    }

    /// Takes only the configuration and the tokenizer of a model that isn't a GGUF file, not its weights.
    #[must_use]
    pub fn without_weights(self) -> Self {
        Self { weights: false, ..self }
    }

    /// Returns the cache folder of a repository as an absolute path, because run configurations store it.
    fn folder(&self, name: &Name) -> PathBuf {
        let cache = std::path::absolute(&self.cache).unwrap_or_else(|_| self.cache.clone());
        cache.join(name.folder())
    }

    /// Resolves a name to the files of a model or of a split of a data set, and downloads those that aren't in the cache.
    ///
    /// If the name lacks a split, the split `usual` is taken or, if it doesn't exist and `or_only` is true, the only
    /// split. With `cached`, nothing is downloaded. If the network is unavailable, the files come from the cache.
    pub fn take(
        &self,
        name: &Name,
        (usual, or_only): (&str, bool),
        cached: bool,
        watch: &mut dyn Watch,
    ) -> Result<Taken, Error> {
        let folder = self.folder(name);
        let revision = name.revision.as_deref().unwrap_or("main");
        let local = self.offline || cached;
        let list = if local { None } else { self.list(name, revision, watch)? };
        let Some((commit, all)) = list else {
            let (commit, all) = self.in_cache(name, &folder, revision)?;
            return self.chosen(name, &folder, commit, &all, (usual, or_only), None);
        };
        let reference = folder.join("refs").join(revision);
        if revision != commit && std::fs::read_to_string(&reference).ok().as_ref() != Some(&commit) {
            download::whole(&reference, commit.as_bytes())?;
        }
        self.chosen(name, &folder, commit, &all, (usual, or_only), Some(watch))
    }

    /// Returns the commit of a name's revision as of the last download, from the cache. A commit hash is returned unchanged.
    pub fn commit_in_cache(&self, name: &Name) -> Option<String> {
        let revision = name.revision.as_deref().unwrap_or("main");
        let commit = std::fs::read_to_string(self.folder(name).join("refs").join(revision)).ok();
        commit.map(|text| text.trim().to_owned()).or(name::is_commit(revision).then(|| revision.to_owned()))
    }

    /// Returns the commit of a revision and its list of files, only from the cache.
    fn in_cache(&self, name: &Name, folder: &Path, revision: &str) -> Result<(String, Vec<String>), Error> {
        let commit = self.commit_in_cache(name).unwrap_or_else(|| revision.to_owned());
        let snapshot = folder.join("snapshots").join(&commit);
        let mut files = Vec::new();
        let mut waiting = vec![snapshot.clone()];
        while let Some(place) = waiting.pop() {
            for path in std::fs::read_dir(place).into_iter().flatten().flatten().map(|e| e.path()) {
                if path.is_dir() {
                    waiting.push(path);
                } else if path.exists() {
                    let file = path.strip_prefix(&snapshot).expect("it is below");
                    files.push(file.to_string_lossy().into_owned());
                }
            }
        }
        files.sort();
        if files.is_empty() {
            return Err(Error::Refused(format!(
                "{} at {revision}: not in the cache {}, and the hub was not asked{}",
                name.repository,
                self.cache.display(),
                if self.offline { ": HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set" } else { "" }
            )));
        }
        Ok((commit, files))
    }

    /// Selects a name's files from all files of the commit. Downloads them if `watch` is given. Returns their path.
    fn chosen(
        &self,
        name: &Name,
        folder: &Path,
        commit: String,
        all: &[String],
        (usual, or_only): (&str, bool),
        mut watch: Option<&mut dyn Watch>,
    ) -> Result<Taken, Error> {
        let snapshot = folder.join("snapshots").join(&commit);
        let refuse = |what: String| Error::Refused(format!("{}: {what}", name.repository));
        let local = watch.is_none();
        // An interrupted download may leave only some of a split's files.
        let whole = |files: &[String], what: &str| match split::incomplete(files).filter(|_| local) {
            Some(count) => Err(refuse(format!(
                "the cache has {} of {count} files of {what}; download the rest with a network",
                files.len()
            ))),
            None => Ok(()),
        };
        let mut load = |files: &[String]| -> Result<(), Error> {
            let Some(watch) = watch.as_deref_mut() else { return Ok(()) };
            files.iter().try_for_each(|file| self.load(name, folder, &commit, file, watch))
        };
        if name.kind == Kind::Model {
            if let Some(file) = name.files.as_ref().filter(|file| file.ends_with(name::GGUF)) {
                if !all.contains(file) {
                    return Err(refuse(format!("commit {commit} has no file {file}{}", gguf_files(all))));
                }
                load(std::slice::from_ref(file))?;
                return Ok(Taken { path: snapshot.join(file), commit, part: None });
            }
            let is_needed = |f: &&String| is_of_model(f) && (self.weights || !f.contains(".safetensors"));
            let mut files: Vec<String> = all.iter().filter(is_needed).cloned().collect();
            // Weights are downloaded last, so an interrupted download doesn't look like a complete model.
            files.sort_by_key(|f| f.ends_with(".safetensors"));
            let weights = files.iter().any(|f| f.ends_with(".safetensors"));
            if self.weights && !(weights && files.iter().any(|f| f == "config.json")) {
                return Err(refuse(format!(
                    "expected config.json and weights in .safetensors, found {}{}",
                    files.join(", "),
                    gguf_files(all)
                )));
            }
            load(&files)?;
            return Ok(Taken { path: snapshot, commit, part: None });
        }
        if let Some(pattern) = &name.files {
            let files: Vec<String> = all.iter().filter(|f| split::matches(pattern, f)).cloned().collect();
            if files.is_empty() {
                return Err(refuse(format!("commit {commit} has no file that matches {pattern}")));
            }
            whole(&files, pattern)?;
            load(&files)?;
            return Ok(Taken { path: snapshot.join(pattern), commit, part: None });
        }
        let card: Vec<String> = all.iter().filter(|f| *f == "README.md").cloned().collect();
        load(&card)?;
        let card = std::fs::read_to_string(snapshot.join("README.md")).unwrap_or_default();
        let subsets = split::subsets(all, &card).map_err(refuse)?;
        let (subset, split, files) =
            split::choose(&subsets, name.subset.as_deref(), name.split.as_deref(), usual, or_only)
                .map_err(refuse)?;
        let Some(pattern) = split::pattern(files, all) else {
            return Err(refuse(format!(
                "the files of split {split} are {}; expected one file, or files in one folder whose names differ in a number",
                files.join(", ")
            )));
        };
        whole(files, &format!("split {split}"))?;
        load(files)?;
        let part = Some((subset.to_owned(), split.to_owned()));
        Ok(Taken { path: snapshot.join(pattern), commit, part })
    }
}

/// Lists the GGUF files in `all` for the end of an error message. Returns an empty string if `all` lacks GGUF files.
fn gguf_files(all: &[String]) -> String {
    let there: Vec<&str> = all.iter().filter(|f| f.ends_with(name::GGUF)).map(String::as_str).collect();
    if there.is_empty() {
        String::new()
    } else {
        format!("; one of these can be named as ORG/NAME/FILE: {}", there.join(", "))
    }
}

/// Returns whether a model needs this file: not weights in other formats, and not files in subfolders.
fn is_of_model(file: &str) -> bool {
    const BESIDE: [&str; 9] = [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "merges.txt",
        "model.safetensors.index.json",
    ];
    let template = file.starts_with("chat_template.");
    let sharded = file.starts_with("model") && file.ends_with(".safetensors");
    !file.contains('/') && (template || sharded || BESIDE.contains(&file))
}
