//! Parses the runs of a sweep: `--grid` multiplies them, and `--alternative` adds to them.

/// One run of a sweep.
#[derive(Debug, Clone, Default)]
pub(super) struct Combination {
    /// Name of the run's folder.
    pub(super) name: String,
    /// Columns of the table: the grid's keys with their values, and the alternative.
    pub(super) setting: Vec<(String, String)>,
    /// Changes to the configuration, each a flag and its `KEY=VALUE`.
    pub(super) changes: Vec<(&'static str, String)>,
}

/// Keys with values that are set together.
type Change = Vec<(String, String)>;

/// Maximum number of combinations.
const MOST_RUNS: usize = 10_000;

/// Name of the run without an alternative, in its folder and in the table.
const BASE: &str = "base";

/// Title of the table's column of alternatives.
const ALTERNATIVE: &str = "alternative";

const SYNTAX: &str = "expected KEY=V1,V2, or KEY1,KEY2=A1:B1,A2:B2 for keys that vary together";

/// Splits a string at separators, except inside brackets, braces or quotes, as in `[1,8],"a,b"`.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut start) = (Vec::new(), 0);
    let (mut depth, mut quote) = (0usize, None);
    for (i, c) in text.char_indices() {
        // An apostrophe inside a word doesn't begin a quotation.
        let begins =
            || text[start..i].trim_end().is_empty() || text[..i].trim_end().ends_with(['[', '{', ',', '=']);
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') if begins() => quote = Some(c),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            _ if c == separator && depth == 0 => {
                parts.push(&text[start..i]);
                start = i + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// Parses the values of one `--grid` or `--alternative`.
///
/// `seed=1,2,3` has three values. `rollout.group_size,rollout.prompts=2:256,4:128` has two values, each of which sets
/// both keys. `eval.k=[1,8],[1,64]` has two values, which are lists.
fn values(flag: &str, text: &str) -> anyhow::Result<Vec<Change>> {
    let Some((keys, values)) = text.split_once('=') else {
        bad_input!("{flag} {text}: `=` is missing; {SYNTAX}")
    };
    let keys: Vec<&str> = keys.split(',').map(str::trim).collect();
    if keys.iter().any(|key| key.is_empty()) {
        bad_input!("{flag} {text}: a key is empty; {SYNTAX}");
    }
    if let Some((_, twice)) = keys.iter().enumerate().find(|(i, key)| keys[..*i].contains(*key)) {
        bad_input!("{flag} {text}: {twice} is listed twice");
    }
    let change = |value: &str| {
        // The value of a single key may contain colons.
        let parts: Vec<&str> = match keys.len() {
            1 => vec![value.trim()],
            _ => split(value, ':').into_iter().map(str::trim).collect(),
        };
        if parts.iter().any(|part| part.is_empty()) {
            bad_input!("{flag} {text}: a value is empty; {SYNTAX}");
        }
        if parts.len() != keys.len() {
            bad_input!(
                "{flag} {text}: expected {} values with : between them, for {}, found {:?}",
                keys.len(),
                keys.join(" and "),
                value.trim()
            );
        }
        Ok(keys.iter().zip(parts).map(|(key, part)| ((*key).to_owned(), part.to_owned())).collect())
    };
    split(values, ',').into_iter().map(change).collect()
}

/// Returns the part of a folder's name for a change.
fn label(change: &Change) -> String {
    let part = |(key, value): &(String, String)| {
        let value = value.replace(['[', ']', '{', '}', '"', '\''], "").replace(", ", ",").replace(" = ", "=");
        let key = key.rsplit('.').next().unwrap_or(key).replace('_', "-");
        format!("{key}-{}", value.trim().replace(['/', ' ', ',', '='], "-"))
    };
    change.iter().map(part).collect::<Vec<_>>().join("_")
}

impl Combination {
    /// Returns this run with an additional change.
    fn with(&self, flag: &'static str, change: &Change, label: &str, setting: &[(String, String)]) -> Self {
        let mut all = self.clone();
        if !all.name.is_empty() {
            all.name.push('_');
        }
        all.name += label;
        all.setting.extend_from_slice(setting);
        all.changes.extend(change.iter().map(|(key, value)| (flag, format!("{key}={value}"))));
        all
    }
}

fn refuse_too_many(runs: usize, by: usize, flag: &str, text: &str) -> anyhow::Result<()> {
    if runs.saturating_mul(by) > MOST_RUNS {
        bad_input!("{flag} {text}: there are more than {MOST_RUNS} combinations");
    }
    Ok(())
}

/// Returns an error if a key of `axis`, or a key inside it, is also `set` by another flag, because one of the two
/// values would be ignored. `set` contains keys with their flags.
fn refuse_twice(set: &[(String, &str)], axis: &[Change], flag: &str, text: &str) -> anyhow::Result<()> {
    let replaces = |key: &str, other: &str| {
        other.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    for (key, _) in axis.iter().flatten() {
        if let Some((other, by)) = set.iter().find(|(other, _)| replaces(key, other)) {
            let part = if other == key { String::new() } else { format!(" (as {other})") };
            bad_input!("{flag} {text}: {key} is also set{part} by {by}; set it in one place");
        }
    }
    Ok(())
}

/// Returns all runs: each combination of the grid's axes, once without an alternative and once with each alternative.
pub(super) fn combinations(
    fixed: &[String],
    grid: &[String],
    alternatives: &[String],
) -> anyhow::Result<Vec<Combination>> {
    let mut runs = vec![Combination::default()];
    let fixed: Vec<(String, &str)> =
        fixed.iter().filter_map(|set| Some((set.split_once('=')?.0.trim().to_owned(), "--set"))).collect();
    let mut set: Vec<(String, &str)> = Vec::new();
    for text in grid {
        let axis = values("--grid", text)?;
        refuse_twice(&fixed, &axis, "--grid", text)?;
        refuse_twice(&set, &axis, "--grid", text)?;
        refuse_too_many(runs.len(), axis.len(), "--grid", text)?;
        set.extend(axis[0].iter().map(|(key, _)| (key.clone(), "another --grid")));
        let expand = |run: &Combination| {
            let run = run.clone();
            axis.iter()
                .map(move |change| run.with("--grid", change, &label(change), change))
                .collect::<Vec<_>>()
        };
        runs = runs.iter().flat_map(expand).collect();
    }
    if alternatives.is_empty() {
        return Ok(runs);
    }
    let mut axis = vec![(Change::new(), BASE.to_owned(), BASE.to_owned())];
    for text in alternatives {
        // An alternative may change a key of --set.
        let changes = values("--alternative", text)?;
        refuse_twice(&set, &changes, "--alternative", text)?;
        for change in changes {
            let words: Vec<String> = change.iter().map(|(key, value)| format!("{key}={value}")).collect();
            axis.push((change.clone(), label(&change), words.join(" ")));
        }
        refuse_too_many(runs.len(), axis.len(), "--alternative", text)?;
    }
    let expand = |run: &Combination| {
        let run = run.clone();
        let one = move |(change, label, words): &(Change, String, String)| {
            run.with("--alternative", change, label, &[(ALTERNATIVE.to_owned(), words.clone())])
        };
        axis.iter().map(one).collect::<Vec<_>>()
    };
    Ok(runs.iter().flat_map(expand).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(grid: &[&str], alternatives: &[&str]) -> Vec<String> {
        let owned = |texts: &[&str]| texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
        combinations(&[], &owned(grid), &owned(alternatives)).unwrap().into_iter().map(|c| c.name).collect()
    }

    #[test]
    fn lists_tables_and_quoted_texts_are_values() {
        let values = |text: &str| -> Vec<String> {
            values("--grid", text).unwrap().into_iter().flatten().map(|(_, value)| value).collect()
        };
        assert_eq!(values("eval.k=[1, 8],[1,[64]]"), ["[1, 8]", "[1,[64]]"]);
        assert_eq!(
            values("algorithm.loss=grpo,{ kind = \"dapo\", clip = [0.1, 0.3] }"),
            ["grpo", "{ kind = \"dapo\", clip = [0.1, 0.3] }"]
        );
        assert_eq!(values("task.system=\"a,b\",'c:d, [e',don't,do"), ["\"a,b\"", "'c:d, [e'", "don't", "do"]);
        assert_eq!(values("eval.k,task.system=[1,8]:\"a:b\",[1]:c"), ["[1,8]", "\"a:b\"", "[1]", "c"]);
        let loss = "algorithm.loss=grpo,{ kind = \"dapo\", clip = [0.1, 0.3] }";
        assert_eq!(names(&["eval.k=[1, 8]", loss], &[])[1], "k-1-8_loss-kind-dapo-clip-0.1-0.3");
    }
}
