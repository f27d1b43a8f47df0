//! Which files of a data set are a split: by the card's `configs`, else by the names of files and folders.

use std::collections::BTreeMap;

/// Endings of data that can be read.
const DATA: [&str; 8] =
    [".parquet", ".jsonl", ".json", ".csv", ".jsonl.gz", ".json.gz", ".csv.gz", ".jsonl.zst"];
/// Words in names, and their split.
const WORDS: [(&str, &[&str]); 3] = [
    ("train", &["train", "training"]),
    ("test", &["test", "testing", "eval", "evaluation"]),
    ("validation", &["validation", "valid", "val", "dev"]),
];

/// Splits of subsets, each with its files.
pub(crate) type Subsets = BTreeMap<String, BTreeMap<String, Vec<String>>>;

/// The splits that a repository's files are, and the subset that its card calls the default.
pub(crate) fn subsets(files: &[String], card: &str) -> (Subsets, Option<String>) {
    let data: Vec<&String> =
        files.iter().filter(|f| DATA.iter().any(|end| f.ends_with(end)) && !beside(f)).collect();
    let mut found = Subsets::new();
    let (patterns, default) = configs(card);
    for (subset, split, pattern) in patterns {
        let matching = data.iter().filter(|f| matches(&pattern, f)).map(|f| (*f).clone());
        let list = found.entry(subset).or_default().entry(split).or_default();
        list.extend(matching);
        list.sort();
        list.dedup();
    }
    for splits in found.values_mut() {
        splits.retain(|_, files| !files.is_empty());
    }
    found.retain(|_, splits| !splits.is_empty());
    if !found.is_empty() {
        return (found, default);
    }
    for file in data {
        let folder = file.split_once('/').map_or("default", |(folder, _)| folder);
        let subset = if folder == "data" || split_of(folder).is_some() { "default" } else { folder };
        let split = file.rsplit('/').find_map(split_of).unwrap_or("train");
        found.entry(subset.into()).or_default().entry(split.into()).or_default().push(file.clone());
    }
    (found, None)
}

/// Whether this file stands beside data.
fn beside(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.starts_with('.')
        || ["dataset_info", "dataset_infos", "state"].iter().any(|n| name == format!("{n}.json"))
}

fn split_of(name: &str) -> Option<&'static str> {
    let words: Vec<String> =
        name.split(|c: char| !c.is_ascii_alphanumeric()).map(str::to_ascii_lowercase).collect();
    WORDS.iter().find(|(_, known)| words.iter().any(|w| known.contains(&w.as_str()))).map(|(split, _)| *split)
}

/// Subset, split and pattern of files for each entry under `configs` of a card, and the default subset. Reads the block
/// style that the hub writes; a card in another style has none.
fn configs(card: &str) -> (Vec<(String, String, String)>, Option<String>) {
    let card = card.replace("\r\n", "\n");
    let Some(yaml) = card.strip_prefix("---\n").and_then(|rest| rest.split("\n---").next()) else {
        return (Vec::new(), None);
    };
    let (mut found, mut default) = (Vec::new(), None);
    let (mut subset, mut split) = ("default".to_owned(), "train".to_owned());
    let mut lines = yaml.lines().skip_while(|l| l.trim_end() != "configs:").skip(1).peekable();
    while let Some(line) = lines.next_if(|l| l.starts_with([' ', '-'])) {
        let item = line.trim().trim_start_matches("- ");
        let (key, value) = item.split_once(':').unwrap_or(("path", item));
        let value = value.trim().trim_matches(['"', '\'']).to_owned();
        match key {
            "config_name" => (subset, split) = (value, "train".to_owned()),
            "split" => split = value,
            "path" | "data_files" if !value.is_empty() => {
                found.push((subset.clone(), split.clone(), value.trim_start_matches("./").to_owned()));
            }
            "default" if value == "true" => default = Some(subset.clone()),
            _ => {}
        }
    }
    (found, default)
}

/// Whether a file matches a pattern, in which `*` is any text.
pub(crate) fn matches(pattern: &str, file: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == file,
        Some((before, after)) => file.strip_prefix(before).is_some_and(|rest| {
            let after = after.trim_start_matches('*');
            (0..=rest.len()).filter(|&i| rest.is_char_boundary(i)).any(|i| matches(after, &rest[i..]))
        }),
    }
}

/// The files wanted of these subsets: those of `subset` and `split`, or of the defaults. `usual` is the split where
/// none is named; `or_only` takes a data set's only split in its place.
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
        let found = if names.is_empty() { "no data file".to_owned() } else { names.join(", ") };
        return Err(format!(
            "subset: found {found}; wanted {}, as in hf:ORG/NAME/SUBSET",
            subset.unwrap_or("one of them")
        ));
    };
    let only = splits.len() == 1 && split.is_none() && or_only;
    let taken = splits.get_key_value(split.unwrap_or(usual)).or(splits.iter().next().filter(|_| only));
    let Some((split, files)) = taken else {
        let found: Vec<&str> = splits.keys().map(String::as_str).collect();
        return Err(format!(
            "split of subset {subset}: found {}; wanted {}, as in hf:ORG/NAME:SPLIT",
            found.join(", "),
            split.unwrap_or(usual)
        ));
    };
    Ok((subset, split, files))
}

/// The number of files of which these are a part, where their names, as `train-00000-of-00002.parquet`, say that some are
/// missing.
pub(crate) fn incomplete(files: &[String]) -> Option<usize> {
    let mut shards: BTreeMap<(&str, usize), usize> = BTreeMap::new();
    for file in files {
        let stem = file.rsplit('/').next().and_then(|name| name.split('.').next());
        let Some((rest, of)) = stem.and_then(|stem| stem.rsplit_once("-of-")) else { continue };
        if let (Some((split, _)), Ok(of)) = (rest.rsplit_once('-'), of.parse()) {
            *shards.entry((split, of)).or_default() += 1;
        }
    }
    let missing = |(&(_, of), &there): (&(&str, usize), &usize)| of.saturating_sub(there);
    let missing: usize = shards.iter().map(missing).sum();
    (missing > 0).then_some(files.len() + missing)
}

/// One path that names all files: the only one, or a pattern. None if a pattern of these files would match others.
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
    let pattern = format!("{}*{}", same(false), same(true));
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
        let found = subsets(&files, card);
        let of = |subset, split| choose(&found, subset, split, "train", false).map(|c| c.2.to_vec());
        assert_eq!(of(None, None).unwrap(), files[..2]);
        assert_eq!(of(None, Some("test")).unwrap(), files[2..3]);
        assert_eq!(of(Some("socratic"), None).unwrap(), files[3..4]);
        assert!(of(None, Some("dev")).unwrap_err().contains("found test, train; wanted dev"));
        assert!(of(Some("x"), None).unwrap_err().contains("found main, socratic; wanted x"));
    }

    #[test]
    fn a_cards_split_is_not_that_of_the_next_subset() {
        let card = "---\nconfigs:\n- config_name: a\n  data_files:\n  - split: test\n    path: a.jsonl\n- config_name: b\n  data_files: b.jsonl\n---\n";
        let (found, _) = subsets(&owned(&["a.jsonl", "b.jsonl"]), card);
        assert_eq!(found["a"].keys().collect::<Vec<_>>(), ["test"]);
        assert_eq!(found["b"].keys().collect::<Vec<_>>(), ["train"]);
    }

    #[test]
    fn names_say_how_many_files_a_split_has() {
        for (files, wanted) in [
            (&["data/test-00000-of-00002.parquet"][..], Some(2)),
            (&["test-00000-of-00002.parquet", "test-00001-of-00002.parquet"], None),
            (&["a-00000-of-00001.jsonl.gz", "b-00001-of-00003.jsonl.gz"], Some(4)),
            (&["test.jsonl", "one-of-a-kind.csv"], None),
        ] {
            assert_eq!(incomplete(&owned(files)), wanted, "{files:?}");
        }
    }

    #[test]
    fn without_a_card_names_say_the_split() {
        let files =
            owned(&["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet", "test.jsonl"]);
        let found = subsets(&files, "");
        let (_, _, train) = choose(&found, None, None, "train", false).unwrap();
        assert_eq!(pattern(train, &files).unwrap(), "data/train-0000*-of-00002.parquet");
        assert_eq!(choose(&found, None, None, "test", false).unwrap().2, &files[2..]);
        assert!(choose(&found, None, Some("validation"), "train", false).is_err());
        let several = subsets(&owned(&["a/train.csv", "b/train.csv"]), "");
        assert!(choose(&several, None, None, "train", false).unwrap_err().contains("found a, b"));
    }

    #[test]
    fn an_evaluation_takes_the_only_split_and_training_does_not() {
        let found = subsets(&owned(&["train.jsonl"]), "");
        assert_eq!(choose(&found, None, None, "test", true).unwrap().1, "train");
        let found = subsets(&owned(&["test.jsonl"]), "");
        assert!(choose(&found, None, None, "train", false).is_err());
    }
}
