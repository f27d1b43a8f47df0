//! Finds the files of a split: by `configs` in the data set card, otherwise by the names of files and folders.

use std::collections::BTreeMap;

/// Extensions of readable data files.
const DATA: [&str; 8] =
    [".parquet", ".jsonl", ".json", ".csv", ".jsonl.gz", ".json.gz", ".csv.gz", ".jsonl.zst"];
/// Splits, each with the words that mark it in names of files and folders.
const WORDS: [(&str, &[&str]); 3] = [
    ("train", &["train", "training"]),
    ("test", &["test", "testing", "eval", "evaluation"]),
    ("validation", &["validation", "valid", "val", "dev"]),
];

/// Files by subset and split.
pub(crate) type Subsets = BTreeMap<String, BTreeMap<String, Vec<String>>>;

/// Groups the data files of a repository by subset and split. Also returns the default subset of the card.
pub(crate) fn subsets(files: &[String], card: &str) -> (Subsets, Option<String>) {
    let data: Vec<&String> =
        files.iter().filter(|f| DATA.iter().any(|end| f.ends_with(end)) && !describes_data(f)).collect();
    let mut subsets = Subsets::new();
    let (patterns, default) = configs(card);
    for (subset, split, pattern) in patterns {
        let matching = data.iter().filter(|f| matches(&pattern, f)).map(|f| (*f).clone());
        let list = subsets.entry(subset).or_default().entry(split).or_default();
        list.extend(matching);
        list.sort();
        list.dedup();
    }
    for splits in subsets.values_mut() {
        splits.retain(|_, files| !files.is_empty());
    }
    subsets.retain(|_, splits| !splits.is_empty());
    if !subsets.is_empty() {
        return (subsets, default);
    }
    for file in data {
        let folder = file.split_once('/').map_or("default", |(folder, _)| folder);
        let subset = if folder == "data" || split_of(folder).is_some() { "default" } else { folder };
        let split = file.rsplit('/').find_map(split_of).unwrap_or("train");
        subsets.entry(subset.into()).or_default().entry(split.into()).or_default().push(file.clone());
    }
    (subsets, None)
}

/// Returns whether the file describes the data set and isn't data.
fn describes_data(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.starts_with('.')
        || ["dataset_info", "dataset_infos", "state"].iter().any(|n| name == format!("{n}.json"))
}

fn split_of(name: &str) -> Option<&'static str> {
    let words: Vec<String> =
        name.split(|c: char| !c.is_ascii_alphanumeric()).map(str::to_ascii_lowercase).collect();
    WORDS
        .iter()
        .find(|(_, synonyms)| words.iter().any(|w| synonyms.contains(&w.as_str())))
        .map(|(split, _)| *split)
}

/// Reads `configs` of a card: subset, split and file pattern of each entry, and the default subset. Reads the YAML block
/// style that the hub writes. Returns no entries for a card in another style.
fn configs(card: &str) -> (Vec<(String, String, String)>, Option<String>) {
    let card = card.replace("\r\n", "\n");
    let Some(yaml) = card.strip_prefix("---\n").and_then(|rest| rest.split("\n---").next()) else {
        return (Vec::new(), None);
    };
    let (mut patterns, mut default) = (Vec::new(), None);
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
                patterns.push((subset.clone(), split.clone(), value.trim_start_matches("./").to_owned()));
            }
            "default" if value == "true" => default = Some(subset.clone()),
            _ => {}
        }
    }
    (patterns, default)
}

/// Returns whether a file matches a pattern. `*` matches any text.
pub(crate) fn matches(pattern: &str, file: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == file,
        Some((before, after)) => file.strip_prefix(before).is_some_and(|rest| {
            let after = after.trim_start_matches('*');
            (0..=rest.len()).filter(|&i| rest.is_char_boundary(i)).any(|i| matches(after, &rest[i..]))
        }),
    }
}

/// Selects the files of `subset` and `split`, or of the defaults. `usual` is the split if `split` is `None`. With
/// `or_only`, the split of a data set that has only one is used instead.
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
    Ok((subset, split, files))
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
        let by_subset = subsets(&files, card);
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
        let (by_subset, _) = subsets(&owned(&["a.jsonl", "b.jsonl"]), card);
        assert_eq!(by_subset["a"].keys().collect::<Vec<_>>(), ["test"]);
        assert_eq!(by_subset["b"].keys().collect::<Vec<_>>(), ["train"]);
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
        let files =
            owned(&["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet", "test.jsonl"]);
        let by_subset = subsets(&files, "");
        let (_, _, train) = choose(&by_subset, None, None, "train", false).unwrap();
        assert_eq!(pattern(train, &files).unwrap(), "data/train-0000*-of-00002.parquet");
        assert_eq!(choose(&by_subset, None, None, "test", false).unwrap().2, &files[2..]);
        assert!(choose(&by_subset, None, Some("validation"), "train", false).is_err());
        let several = subsets(&owned(&["a/train.csv", "b/train.csv"]), "");
        assert!(choose(&several, None, None, "train", false).unwrap_err().contains("the subsets a, b;"));
    }

    #[test]
    fn an_evaluation_takes_the_only_split_and_training_does_not() {
        let by_subset = subsets(&owned(&["train.jsonl"]), "");
        assert_eq!(choose(&by_subset, None, None, "test", true).unwrap().1, "train");
        let by_subset = subsets(&owned(&["test.jsonl"]), "");
        assert!(choose(&by_subset, None, None, "train", false).is_err());
    }
}
