//! Names of repositories on the hub, with revision, subset, split or file, as users write them.

use std::path::Path;

/// Kind of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Model: configuration, tokenizer and weights.
    Model,
    /// Data set.
    Data,
}

impl Kind {
    /// Returns the prefix of the repository's folders in the cache, and its path segment in the hub's API.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Model => "models",
            Self::Data => "datasets",
        }
    }
}

/// Name of a repository on the hub, or of a part of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// Kind of the repository.
    pub kind: Kind,
    /// Organisation and name, `ORG/NAME`.
    pub repository: String,
    /// Branch, tag or commit. `None` is `main`.
    pub revision: Option<String>,
    /// Subset of a data set, such as `socratic` of gsm8k.
    pub subset: Option<String>,
    /// Split of a data set.
    pub split: Option<String>,
    /// File of the commit, or pattern of files: a model's GGUF file, or the data files of a path into the cache.
    pub(crate) files: Option<String>,
}

/// File extensions. A name with one of them is a local file and isn't looked up on the hub.
const FILES: [&str; 10] =
    [".jsonl", ".json", ".csv", ".tsv", ".parquet", ".toml", ".gz", ".zst", ".safetensors", GGUF];
/// Extension of a model in one file.
pub(crate) const GGUF: &str = ".gguf";

fn is_part(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// Returns whether the text is a full commit hash.
pub(crate) fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

impl Name {
    /// Reads `ORG/NAME`, `hf:ORG/NAME[/SUBSET][@REVISION][:SPLIT]`, a model's `[hf:]ORG/NAME/FILE.gguf[@REVISION]`, or a path
    /// into a Hugging Face cache, `.../models--ORG--NAME/snapshots/COMMIT`. Returns `None` for any other text, which is a
    /// local path. The caller has checked that no file or folder exists at `text`.
    ///
    /// Without `hf:`, a name is a missing local path if its first part is a local folder or if it has a file extension.
    pub fn read(text: &str, kind: Kind) -> Result<Option<Self>, String> {
        if let Some(name) = Self::of_snapshot(text, kind) {
            return Ok(Some(name));
        }
        let repository_name = |repository: &str| Self::of(kind, repository.to_owned());
        // In ORG/NAME/FILE.gguf, FILE may contain folders.
        let one_file = |text: &str| {
            let mut parts = text.splitn(3, '/');
            let (organisation, name, file) = (parts.next()?, parts.next()?, parts.next()?);
            let good = [organisation, name].into_iter().chain(file.split('/')).all(is_part);
            (kind == Kind::Model && good && file.ends_with(GGUF)).then(|| Self {
                files: Some(file.to_owned()),
                ..repository_name(&format!("{organisation}/{name}"))
            })
        };
        let Some(rest) = text.strip_prefix("hf:") else {
            let Some((organisation, name)) = text.split_once('/') else { return Ok(None) };
            if Path::new(organisation).exists() {
                return Ok(None);
            }
            let local = FILES.iter().any(|end| name.ends_with(end));
            let whole = (is_part(organisation) && is_part(name) && !local).then(|| repository_name(text));
            return Ok(whole.or(one_file(text)));
        };
        let (rest, split) = rest.split_once(':').map_or((rest, None), |(a, b)| (a, Some(b)));
        let (rest, revision) = rest.split_once('@').map_or((rest, None), |(a, b)| (a, Some(b)));
        if let Some(name) = one_file(rest).filter(|_| split.is_none() && revision != Some("")) {
            return Ok(Some(Self { revision: revision.map(str::to_owned), ..name }));
        }
        let parts: Vec<&str> = rest.split('/').collect();
        let is_data = parts.len() == 3 || split.is_some();
        let empty = [split, revision].contains(&Some(""));
        if !(2..=3).contains(&parts.len()) || !parts.iter().all(|p| is_part(p)) || empty {
            return Err(format!("expected hf:ORG/NAME[/SUBSET][@REVISION][:SPLIT], found {text:?}"));
        }
        if is_data && kind == Kind::Model {
            return Err(format!(
                "expected hf:ORG/NAME[@REVISION] or hf:ORG/NAME/FILE.gguf[@REVISION], because a model has no subset or split; found {text:?}"
            ));
        }
        Ok(Some(Self {
            revision: revision.map(str::to_owned),
            subset: parts.get(2).map(|&s| s.to_owned()),
            split: split.map(str::to_owned),
            ..repository_name(&parts[..2].join("/"))
        }))
    }

    /// Rewrites a missing path `ORG/NAME/SUBSET/SPLIT` or `ORG/NAME/SPLIT` as the name of a split.
    pub fn suggestion(text: &str) -> Option<String> {
        let parts: Vec<&str> = text.split('/').collect();
        let file = FILES.iter().any(|end| text.ends_with(end)) || Path::new(parts[0]).exists();
        let has_parts = parts.iter().all(|part| is_part(part)) && !file;
        match parts[..] {
            [organisation, name, split] if has_parts => Some(format!("hf:{organisation}/{name}:{split}")),
            [organisation, name, subset, split] if has_parts => {
                Some(format!("hf:{organisation}/{name}/{subset}:{split}"))
            }
            _ => None,
        }
    }

    /// Creates the name of a whole repository at `main`.
    fn of(kind: Kind, repository: String) -> Self {
        Self { kind, repository, revision: None, subset: None, split: None, files: None }
    }

    /// Returns the name of the repository of a path into a cache, on this or another machine.
    fn of_snapshot(text: &str, kind: Kind) -> Option<Self> {
        let (_, rest) = text.rsplit_once(&format!("/{}--", kind.plural()))?;
        let (folder, rest) = rest.split_once("/snapshots/")?;
        let (commit, files) = rest.split_once('/').map_or((rest, None), |(a, b)| (a, Some(b)));
        let (organisation, name) = folder.split_once("--")?;
        (is_commit(commit) && is_part(organisation) && is_part(name)).then(|| Self {
            revision: Some(commit.to_owned()),
            files: files.filter(|f| !f.is_empty()).map(str::to_owned),
            ..Self::of(kind, format!("{organisation}/{name}"))
        })
    }

    /// Returns the name of the repository's folder in the cache.
    pub(crate) fn folder(&self) -> String {
        format!("{}--{}", self.kind.plural(), self.repository.replace('/', "--"))
    }

    /// Finds the commit of this repository in the paths of `text`, a resolved run configuration.
    pub fn commit_in(&self, text: &str) -> Option<String> {
        let mut paths = text.split(['"', '\'', '\n']).filter_map(|part| Self::of_snapshot(part, self.kind));
        paths.find(|other| other.repository == self.repository)?.revision
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_with_subset_revision_and_split() {
        let name = Name::read("hf:openai/gsm8k/socratic@v1:test", Kind::Data).unwrap().unwrap();
        assert_eq!(name.repository, "openai/gsm8k");
        let parts = [name.subset, name.revision, name.split].map(Option::unwrap);
        assert_eq!(parts, ["socratic", "v1", "test"]);
        assert!(Name::read("hf:Qwen/Qwen3:test", Kind::Model).is_err());
        for wrong in ["hf:gsm8k", "hf:a/b@", "hf:a/b:", "hf:a/../b"] {
            assert!(Name::read(wrong, Kind::Data).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_path_that_could_be_a_part_of_a_repository_has_a_suggestion() {
        for (text, expected) in [
            ("acme/sums/main/train", Some("hf:acme/sums/main:train")),
            ("acme/sums/train", Some("hf:acme/sums:train")),
            ("acme/sums", None),
            ("acme/sums/train.jsonl", None),
            ("src/sums/train", None),
            ("/acme/sums/train", None),
        ] {
            assert_eq!(Name::suggestion(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn paths_and_missing_files_are_no_names() {
        for local in ["model", "./a/b", "../a", "/a/b", "a/b/c", "nowhere/data.jsonl", "src/nothing", "~/a"] {
            assert_eq!(Name::read(local, Kind::Data), Ok(None), "{local}");
        }
        assert_eq!(
            Name::read("Qwen/Qwen3-0.6B", Kind::Model).unwrap().unwrap().repository,
            "Qwen/Qwen3-0.6B"
        );
    }

    #[test]
    fn a_file_of_a_models_repository_is_named_with_its_revision() {
        for (text, repository, file, revision) in [
            ("Org/Tiny-GGUF/tiny.Q4_K.gguf", "Org/Tiny-GGUF", "tiny.Q4_K.gguf", None),
            ("hf:Org/Tiny/q8/a.gguf@v1", "Org/Tiny", "q8/a.gguf", Some("v1")),
        ] {
            let name = Name::read(text, Kind::Model).unwrap().unwrap();
            assert_eq!((&*name.repository, name.files.as_deref()), (repository, Some(file)));
            assert_eq!(name.revision.as_deref(), revision);
        }
        for local in ["nowhere/a.gguf", "src/b/a.gguf", "./a/b.gguf", "a/../b/c.gguf"] {
            assert_eq!(Name::read(local, Kind::Model), Ok(None), "{local}");
        }
        assert!(Name::read("hf:a/b/c.gguf:test", Kind::Model).is_err());
    }

    #[test]
    fn a_path_into_another_machines_cache_names_its_repository_and_commit() {
        let commit = "0123456789abcdef0123456789abcdef01234567";
        let path = format!("/home/a/hub/datasets--openai--gsm8k/snapshots/{commit}/main/train-*.parquet");
        let name = Name::read(&path, Kind::Data).unwrap().unwrap();
        assert_eq!(name.revision.as_deref(), Some(commit));
        assert_eq!(name.files.as_deref(), Some("main/train-*.parquet"));
        assert_eq!(name.commit_in(&format!("data = \"{path}\"\n")).unwrap(), commit);
        assert_eq!(Name::read(&path, Kind::Model), Ok(None));
    }
}
