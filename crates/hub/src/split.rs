//! Finds the files of a split, as Python's `datasets` does: by `configs` in the data set card, otherwise by the names of
//! files and folders.

use glob::{MatchOptions, Pattern};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::{BTreeMap, BTreeSet};

/// Extensions of readable data files.
const DATA: [&str; 8] =
    [".parquet", ".jsonl", ".json", ".csv", ".jsonl.gz", ".json.gz", ".csv.gz", ".jsonl.zst"];
/// Splits, each with the words that mark it in names of files and folders.
const WORDS: [(&str, &[&str]); 3] = [
    ("train", &["train", "training"]),
    ("test", &["test", "testing", "eval", "evaluation"]),
    ("validation", &["validation", "valid", "val", "dev"]),
];
/// Patterns of files in a folder whose name contains a split's word (WORD), and of files whose name contains it.
const NAMED: [&[&str]; 2] = [
    &["**/WORD/**", "**/WORD[-._ 0-9]*/**", "**/*[-._ 0-9]WORD/**", "**/*[-._ 0-9]WORD[-._ 0-9]*/**"],
    &["**/WORD[-._ 0-9]*", "**/*[-._ 0-9]WORD[-._ 0-9]*"],
];
/// Parameters of a subset that change how `datasets` reads a file.
const READING: [&str; 11] = [
    "sep",
    "delimiter",
    "names",
    "column_names",
    "header",
    "skiprows",
    "quotechar",
    "encoding",
    "field",
    "columns",
    "filters",
];

/// Files of a split, or the reason why they can't be used.
type Files = Result<Vec<String>, String>;
/// Files by subset and split.
pub(crate) type Subsets = BTreeMap<String, BTreeMap<String, Files>>;

/// Metadata at the beginning of a data set card.
#[derive(Deserialize)]
struct Card {
    configs: Option<Vec<Config>>,
}

#[derive(Deserialize)]
struct Config {
    config_name: String,
    data_files: Option<DataFiles>,
    data_dir: Option<String>,
    default: Option<bool>,
    #[serde(flatten)]
    others: BTreeMap<String, IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected data_files as paths, as split: paths, or as a list of {split, path}")]
enum DataFiles {
    OfTrain(Paths),
    Listed(Vec<Split>),
    BySplit(BTreeMap<String, Paths>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Split {
    split: String,
    path: Paths,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Paths {
    One(String),
    Several(Vec<String>),
}

/// Groups the data files of a repository by subset and split. Also returns the default subset of the card.
///
/// Returns an error if the card can't be read.
pub(crate) fn subsets(files: &[String], card: &str) -> Result<(Subsets, Option<String>), String> {
    let data: Vec<&str> = files
        .iter()
        .map(String::as_str)
        .filter(|f| DATA.iter().any(|end| f.ends_with(end)) && !describes_data(f))
        .collect();
    let configs = configs(card).map_err(|why| format!("README.md: {why}"))?;
    let mut subsets = Subsets::new();
    if configs.is_empty() {
        let mut folders: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for file in data {
            let folder = file.split_once('/').map_or("default", |(folder, _)| folder);
            let is_split = NAMED[0].iter().any(|pattern| WORDS.iter().any(|w| is_named(w.1, pattern, file)));
            folders
                .entry(if folder == "data" || is_split { "default" } else { folder })
                .or_default()
                .push(file);
        }
        let named = folders.into_iter().map(|(subset, files)| (subset.to_owned(), by_name(&files, "")));
        return Ok((named.collect(), None));
    }
    let is_default =
        |c: &&Config| configs.len() == 1 || c.config_name == "default" || c.default == Some(true);
    let defaults: Vec<&Config> = configs.iter().filter(is_default).collect();
    if let [one, other, ..] = defaults[..] {
        return Err(format!("README.md: both {} and {} are the default", one.config_name, other.config_name));
    }
    let default = defaults.first().map(|c| c.config_name.clone());
    for config in configs {
        let name = config.config_name;
        let folder =
            config.data_dir.as_deref().unwrap_or_default().trim_start_matches("./").trim_matches('/');
        let folder = if ["", "."].contains(&folder) { String::new() } else { format!("{folder}/") };
        let listed = |paths: Paths| {
            let paths = match paths {
                Paths::One(path) => vec![path],
                Paths::Several(paths) => paths,
            };
            let mut found = BTreeSet::new();
            for path in paths {
                let path = format!("{}{}", Pattern::escape(&folder), path.trim_start_matches("./"));
                let matching: Vec<_> = data.iter().filter(|f| matches(&path, f)).collect();
                if matching.is_empty() {
                    return Err(format!("no data file matches {path}, which README.md names"));
                }
                found.extend(matching.into_iter().map(|f| (*f).to_owned()));
            }
            Ok(found.into_iter().collect())
        };
        let unread = config.others.keys().find(|key| READING.contains(&key.as_str()));
        let splits: Vec<(String, Files)> = match config.data_files {
            _ if unread.is_some() => {
                let unread = unread.map_or("", String::as_str);
                vec![("train".into(), Err(format!("README.md: {unread} of subset {name} isn't supported")))]
            }
            None => by_name(&data, &folder).into_iter().collect(),
            Some(DataFiles::OfTrain(paths)) => vec![("train".into(), listed(paths))],
            Some(DataFiles::BySplit(map)) => map.into_iter().map(|(s, paths)| (s, listed(paths))).collect(),
            Some(DataFiles::Listed(list)) => list.into_iter().map(|s| (s.split, listed(s.path))).collect(),
        };
        let count = splits.len();
        let splits: BTreeMap<_, _> = splits.into_iter().collect();
        if splits.len() < count || subsets.insert(name.clone(), splits).is_some() {
            return Err(format!("README.md: subset {name}, or a split of it, is listed twice"));
        }
    }
    Ok((subsets, default))
}

/// Groups the files in a folder by split: shards in `data`, otherwise files in folders named after splits, otherwise files
/// named after splits, otherwise all files as `train`.
fn by_name(files: &[&str], folder: &str) -> BTreeMap<String, Files> {
    let below: Vec<&str> = files.iter().filter_map(|f| f.strip_prefix(folder)).collect();
    let mut splits: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let digits = "[0-9]".repeat(5);
    let shard = format!("data/*-{digits}-of-{digits}*.*");
    for file in below.iter().filter(|f| matches(&shard, f)) {
        let split = file["data/".len()..].rsplit_once("-of-").and_then(|(start, _)| start.rsplit_once('-'));
        splits.entry(split.map_or("train", |s| s.0).into()).or_default().push(format!("{folder}{file}"));
    }
    for patterns in NAMED.iter().chain([&&["**"][..]]) {
        if !splits.is_empty() {
            break;
        }
        let words = if *patterns == ["**"] { &WORDS[..1] } else { &WORDS };
        for (split, words) in words {
            for file in below.iter().filter(|f| patterns.iter().any(|pattern| is_named(words, pattern, f))) {
                splits.entry((*split).into()).or_default().push(format!("{folder}{file}"));
            }
        }
    }
    splits.into_iter().map(|(split, files)| (split, Ok(files))).collect()
}

fn is_named(words: &[&str], pattern: &str, file: &str) -> bool {
    words.iter().any(|word| matches(&pattern.replace("WORD", word), file))
}

/// Returns whether the file describes the data set and isn't data.
fn describes_data(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    ["config", "dataset_dict", "dataset_info", "dataset_infos", "state"]
        .iter()
        .any(|n| name == format!("{n}.json"))
}

/// Reads `configs` of a card.
fn configs(card: &str) -> Result<Vec<Config>, String> {
    let card = card.replace("\r\n", "\n") + "\n";
    let yaml = card.trim_start().strip_prefix("---\n").and_then(|rest| rest.split_once("\n---\n"));
    let Some((yaml, _)) = yaml else { return Ok(Vec::new()) };
    let card: Option<Card> =
        serde_saphyr::from_str(yaml).map_err(|error| error.without_snippet().to_string())?;
    Ok(card.and_then(|card| card.configs).unwrap_or_default())
}

/// Returns whether a file is `pattern` or matches it. `*` doesn't match `/`, and nothing but a dot matches a leading dot.
pub(crate) fn matches(pattern: &str, file: &str) -> bool {
    let options = MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: true,
    };
    pattern == file || Pattern::new(pattern).is_ok_and(|p| p.matches_with(file, options))
}

/// Selects the files of `subset` and `split`, or of the defaults. If `split` is `None`, it is `usual` or, if that split
/// doesn't exist and `or_only` is true, the only split of the subset.
pub(crate) fn choose<'a>(
    (subsets, default): &'a (Subsets, Option<String>),
    subset: Option<&str>,
    split: Option<&str>,
    usual: &str,
    or_only: bool,
) -> Result<(&'a str, &'a str, &'a [String]), String> {
    let names = subsets.keys().map(String::as_str).collect::<Vec<_>>();
    let fallback = || {
        let usual = [default.as_deref().unwrap_or("default"), "default", "main"];
        usual
            .into_iter()
            .find(|n| subsets.contains_key(*n))
            .or(names.first().copied().filter(|_| names.len() == 1))
    };
    let Some((subset, splits)) = subset.or_else(fallback).and_then(|name| subsets.get_key_value(name)) else {
        if names.is_empty() {
            return Err("the data set has no data file".to_owned());
        }
        let unknown = subset.map_or_else(String::new, |name| format!("unknown subset {name}: "));
        let names = names.join(", ");
        return Err(format!(
            "{unknown}the data set has the subsets {names}; name one, as in hf:ORG/NAME/SUBSET"
        ));
    };
    let only = splits.len() == 1 && split.is_none() && or_only;
    let entry = splits.get_key_value(split.unwrap_or(usual)).or(splits.iter().next().filter(|_| only));
    let Some((split, files)) = entry else {
        let (missing, names) = (split.unwrap_or(usual), Vec::from_iter(splits.keys().map(String::as_str)));
        return Err(format!(
            "subset {subset} has no split {missing}, but {}; name one, as in hf:ORG/NAME:SPLIT",
            names.join(", ")
        ));
    };
    let files = files.as_ref().map_err(Clone::clone)?;
    let formats: BTreeSet<&str> = files.iter().filter_map(|f| format_of(f)).collect();
    if formats.len() > 1 {
        let formats = Vec::from_iter(formats).join(", ");
        return Err(format!("the files of split {split} have several formats: {formats}"));
    }
    Ok((subset, split, files))
}

/// Returns a data file's format, without the extension of its compression.
fn format_of(file: &str) -> Option<&str> {
    let end = DATA.iter().find(|end| file.ends_with(*end))?;
    end.split('.').nth(1)
}

/// Returns the number of files of the complete split, if names such as `train-00000-of-00002.parquet` show that some are
/// missing.
pub(crate) fn incomplete(files: &[String]) -> Option<usize> {
    let mut shards: BTreeMap<(&str, usize), usize> = BTreeMap::new();
    for file in files {
        let stem = file.rsplit('/').next().and_then(|name| name.split('.').next());
        let Some((rest, total)) = stem.and_then(|stem| stem.rsplit_once("-of-")) else { continue };
        if let (Some((split, _)), Ok(total)) = (rest.rsplit_once('-'), total.parse()) {
            *shards.entry((split, total)).or_default() += 1;
        }
    }
    let missing = |(&(_, total), &there): (&(&str, usize), &usize)| total.saturating_sub(there);
    let missing: usize = shards.iter().map(missing).sum();
    (missing > 0).then_some(files.len() + missing)
}

/// Returns one path for all files: the path of a single file, or a pattern. Returns `None` if a pattern would also match
/// other files.
pub(crate) fn pattern(files: &[String], all: &[String]) -> Option<String> {
    let [first, rest @ ..] = files else { return None };
    if rest.is_empty() {
        return Some(first.clone());
    }
    let same = |reversed: bool| {
        let chars =
            |s: &str| -> Vec<char> { if reversed { s.chars().rev().collect() } else { s.chars().collect() } };
        let mut common = chars(first);
        for other in rest {
            let n = common.iter().zip(chars(other)).take_while(|(a, b)| **a == *b).count();
            common.truncate(n);
        }
        if reversed {
            common.reverse();
        }
        common.into_iter().collect::<String>()
    };
    let pattern = format!("{}*{}", Pattern::escape(&same(false)), Pattern::escape(&same(true)));
    let one_folder = !pattern.split_once('*')?.1.contains('/')
        && files.iter().all(|f| f.rsplit_once('/').map(|p| p.0) == pattern.rsplit_once('/').map(|p| p.0));
    (one_folder && all.iter().filter(|f| matches(&pattern, f)).count() == files.len()).then_some(pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(files: &[&str]) -> Vec<String> {
        files.iter().map(|f| (*f).to_owned()).collect()
    }

    #[test]
    fn the_card_comes_before_names() {
        let card = "---\nlicense: mit\nconfigs:\n- config_name: main\n  data_files:\n  - split: train\n    path: main/a-*\n  - split: test\n    path:\n    - main/b.parquet\n- config_name: socratic\n  data_files:\n  - split: train\n    path: \"socratic/*\"\n---\n# Card";
        let files = owned(&[
            "main/a-1.parquet",
            "main/a-2.parquet",
            "main/b.parquet",
            "socratic/x.parquet",
            "README.md",
        ]);
        let by_subset = subsets(&files, card).unwrap();
        let pick = |subset, split| choose(&by_subset, subset, split, "train", false).map(|c| c.2.to_vec());
        assert_eq!(pick(None, None).unwrap(), files[..2]);
        assert_eq!(pick(None, Some("test")).unwrap(), files[2..3]);
        assert_eq!(pick(Some("socratic"), None).unwrap(), files[3..4]);
        assert!(pick(None, Some("dev")).unwrap_err().contains("no split dev, but test, train;"));
        assert!(
            pick(Some("x"), None)
                .unwrap_err()
                .contains("unknown subset x: the data set has the subsets main, socratic;")
        );
    }

    #[test]
    fn a_cards_split_is_not_that_of_the_next_subset() {
        let card = "---\nconfigs:\n- config_name: a\n  data_files:\n  - split: test\n    path: a.jsonl\n- config_name: b\n  data_files: b.jsonl\n---\n";
        let (by_subset, _) = subsets(&owned(&["a.jsonl", "b.jsonl"]), card).unwrap();
        assert_eq!(by_subset["a"].keys().collect::<Vec<_>>(), ["test"]);
        assert_eq!(by_subset["b"].keys().collect::<Vec<_>>(), ["train"]);
    }

    #[test]
    fn a_card_is_read_in_every_style_of_yaml() {
        let files =
            ["train.jsonl", "test.jsonl", "a/train.jsonl", "a/b/train.jsonl", "p-1.jsonl", "p-x.jsonl"];
        let files = owned(&files);
        let read = |configs: &str, subset, split| {
            let by_subset = subsets(&files, &format!("---\nlicense: mit\n{configs}\n---\n"))?;
            choose(&by_subset, subset, split, "train", false).map(|c| c.2.join(" "))
        };
        let sorted = "configs:\n- data_files:\n  - path: train.jsonl\n    split: train\n  - path: test.jsonl # held out\n    split: test\n  config_name: easy\n\n- data_files: p-1.jsonl\n  config_name: hard\n  default: true";
        assert_eq!(read(sorted, Some("easy"), None).unwrap(), "train.jsonl");
        assert_eq!(read(sorted, Some("easy"), Some("test")).unwrap(), "test.jsonl");
        assert_eq!(read(sorted, None, None).unwrap(), "p-1.jsonl");
        for (data_files, expected) in [
            ("[{split: train, path: p-1.jsonl}]", "p-1.jsonl"),
            ("'*.jsonl'", "p-1.jsonl p-x.jsonl test.jsonl train.jsonl"),
            ("'p-[0-9].jsonl'", "p-1.jsonl"),
            ("'**/train.jsonl'", "a/b/train.jsonl a/train.jsonl train.jsonl"),
            ("{train: [p-1.jsonl, ./train.jsonl]}", "p-1.jsonl train.jsonl"),
            ("\n  - p-1.jsonl\n# a comment\n  - p-x.jsonl\n  data_dir: .", "p-1.jsonl p-x.jsonl"),
            ("train.jsonl\n  data_dir: ./a/", "a/train.jsonl"),
            ("\n  data_dir: a/b", "a/b/train.jsonl"),
        ] {
            let card = format!("configs:\n- config_name: x\n  data_files: {data_files}");
            assert_eq!(read(&card, None, None).unwrap(), expected, "{data_files}");
        }
        for (rest, expected) in [
            ("data_files: gone-*.jsonl", "no data file matches gone-*.jsonl, which README.md names"),
            ("data_files: 'a**.jsonl'", "no data file matches a**.jsonl"),
            ("data_files: [{split: train, file: p-1.jsonl}]", "expected data_files as paths"),
            ("data_files: train.jsonl\n  sep: ;", "sep of subset x isn't supported"),
            ("data_files: train.jsonl\n- config_name: x\n  data_files: test.jsonl", "listed twice"),
            ("default: true\n- config_name: default", "both x and default are the default"),
            ("data_files: [train.jsonl", "README.md: "),
        ] {
            let error = read(&format!("configs:\n- config_name: x\n  {rest}"), None, None).unwrap_err();
            assert!(error.contains(expected), "{rest}: {error}");
        }
    }

    #[test]
    fn names_choose_the_files_that_datasets_chooses() {
        for (files, split, expected) in [
            (&["train.jsonl", "test.jsonl", "notes.jsonl"][..], "train", Ok("train.jsonl")),
            (&["train1.jsonl", "test1.jsonl"], "train", Ok("train1.jsonl")),
            (&["pretrain_test.jsonl"], "test", Ok("pretrain_test.jsonl")),
            (&["a.jsonl", "b.jsonl"], "train", Ok("a.jsonl b.jsonl")),
            (&["train/x.jsonl", "test/x.jsonl"], "test", Ok("test/x.jsonl")),
            (&["train.jsonl", "train.csv"], "train", Err("several formats: csv, jsonl")),
        ] {
            let by_subset = subsets(&owned(files), "").unwrap();
            let found = choose(&by_subset, None, Some(split), "train", false).map(|c| c.2.join(" "));
            match expected {
                Ok(files) => assert_eq!(found.unwrap(), files),
                Err(part) => assert!(found.unwrap_err().contains(part), "{files:?}"),
            }
        }
    }

    #[test]
    fn names_say_how_many_files_a_split_has() {
        for (files, expected) in [
            (&["data/test-00000-of-00002.parquet"][..], Some(2)),
            (&["test-00000-of-00002.parquet", "test-00001-of-00002.parquet"], None),
            (&["a-00000-of-00001.jsonl.gz", "b-00001-of-00003.jsonl.gz"], Some(4)),
            (&["test.jsonl", "one-of-a-kind.csv"], None),
        ] {
            assert_eq!(incomplete(&owned(files)), expected, "{files:?}");
        }
    }

    #[test]
    fn without_a_card_names_say_the_split() {
        let files = owned(&[
            "data/train-00000-of-00002.parquet",
            "data/train-00001-of-00002.parquet",
            "data/test-00000-of-00001.parquet",
        ]);
        let by_subset = subsets(&files, "").unwrap();
        let (_, _, train) = choose(&by_subset, None, None, "train", false).unwrap();
        assert_eq!(pattern(train, &files).unwrap(), "data/train-0000*-of-00002.parquet");
        assert_eq!(choose(&by_subset, None, None, "test", false).unwrap().2, &files[2..]);
        assert!(choose(&by_subset, None, Some("validation"), "train", false).is_err());
        let several = subsets(&owned(&["a/train.csv", "b/train.csv"]), "").unwrap();
        assert!(choose(&several, None, None, "train", false).unwrap_err().contains("the subsets a, b;"));
    }

    #[test]
    fn an_evaluation_takes_the_only_split_and_training_does_not() {
        let by_subset = subsets(&owned(&["train.jsonl"]), "").unwrap();
        assert_eq!(choose(&by_subset, None, None, "test", true).unwrap().1, "train");
        let by_subset = subsets(&owned(&["test.jsonl"]), "").unwrap();
        assert!(choose(&by_subset, None, None, "train", false).is_err());
    }
}
