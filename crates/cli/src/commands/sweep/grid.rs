//! The runs of a sweep as changes of its configuration: `--grid` multiplies, `--alternative` adds.

use fgrpo_train::bad_input;

/// One run of a sweep.
#[derive(Debug, Clone, Default)]
pub(super) struct Combination {
    /// The name of its folder.
    pub(super) name: String,
    /// What distinguishes it in the table: the grid's keys with their values, and the alternative.
    pub(super) setting: Vec<(String, String)>,
    /// Its changes of the configuration, `KEY=VALUE`, each with the flag that it is from.
    pub(super) changes: Vec<(&'static str, String)>,
}

/// Keys with values that are set together.
type Change = Vec<(String, String)>;

/// Most combinations of a grid, each of which is a run.
const MOST_RUNS: usize = 10_000;

/// The run without an alternative: the name of its folder, and its row in the table.
const BASE: &str = "base";

/// The column of alternatives in the table.
const ALTERNATIVE: &str = "alternative";

const WANTED: &str = "wanted KEY=V1,V2, or KEY1,KEY2=A1:B1,A2:B2 for keys that vary together";

/// The values of one `--grid` or `--alternative`, in order.
///
/// `seed=1,2,3` has three values. `rollout.group_size,rollout.prompts=2:256,4:128` has two, and each sets both keys.
fn values(flag: &str, text: &str) -> anyhow::Result<Vec<Change>> {
    let Some((keys, values)) = text.split_once('=') else {
        bad_input!("{flag} {text}: found no =, {WANTED}")
    };
    let keys: Vec<&str> = keys.split(',').map(str::trim).collect();
    if keys.iter().any(|key| key.is_empty()) {
        bad_input!("{flag} {text}: found an empty key, {WANTED}");
    }
    if let Some((_, twice)) = keys.iter().enumerate().find(|(i, key)| keys[..*i].contains(*key)) {
        bad_input!("{flag} {text}: found {twice} twice, wanted each key once");
    }
    let change = |value: &str| {
        // The value of a single key may have colons in it.
        let parts: Vec<&str> = match keys.len() {
            1 => vec![value.trim()],
            _ => value.split(':').map(str::trim).collect(),
        };
        if parts.iter().any(|part| part.is_empty()) {
            bad_input!("{flag} {text}: found an empty value, {WANTED}");
        }
        if parts.len() != keys.len() {
            bad_input!(
                "{flag} {text}: found {} value{} in {:?}, wanted {} with : between them, for {}",
                parts.len(),
                if parts.len() == 1 { "" } else { "s" },
                value.trim(),
                keys.len(),
                keys.join(" and ")
            );
        }
        Ok(keys.iter().zip(parts).map(|(key, part)| ((*key).to_owned(), part.to_owned())).collect())
    };
    values.split(',').map(change).collect()
}

/// The part of a folder's name that a change stands for.
fn label(change: &Change) -> String {
    let part = |(key, value): &(String, String)| {
        format!("{}-{value}", key.rsplit('.').next().unwrap_or(key).replace('_', "-"))
    };
    change.iter().map(part).collect::<Vec<_>>().join("_").replace(['/', ' '], "-")
}

impl Combination {
    /// The same run with one change more.
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
        bad_input!("{flag} {text}: found more than {MOST_RUNS} combinations, wanted fewer");
    }
    Ok(())
}

/// Refuses an axis with a key of those that are `set` by another.
fn refuse_twice(set: &[String], axis: &[Change], flag: &str, text: &str) -> anyhow::Result<()> {
    if let Some((key, _)) = axis.iter().flatten().find(|(key, _)| set.contains(key)) {
        bad_input!("{flag} {text}: found {key}, which another --grid sets too, wanted it in one place");
    }
    Ok(())
}

/// All runs: the product of the grid's axes; with alternatives, each of these as it is and once with every alternative.
///
/// # Errors
/// Bad input for a text that is no axis, for a key that two axes set, and for too many runs.
pub(super) fn combinations(grid: &[String], alternatives: &[String]) -> anyhow::Result<Vec<Combination>> {
    let mut runs = vec![Combination::default()];
    let mut set: Vec<String> = Vec::new();
    for text in grid {
        let axis = values("--grid", text)?;
        refuse_twice(&set, &axis, "--grid", text)?;
        refuse_too_many(runs.len(), axis.len(), "--grid", text)?;
        set.extend(axis[0].iter().map(|(key, _)| key.clone()));
        let each = |run: &Combination| {
            let run = run.clone();
            axis.iter()
                .map(move |change| run.with("--grid", change, &label(change), change))
                .collect::<Vec<_>>()
        };
        runs = runs.iter().flat_map(each).collect();
    }
    if alternatives.is_empty() {
        return Ok(runs);
    }
    let mut axis = vec![(Change::new(), BASE.to_owned(), BASE.to_owned())];
    for text in alternatives {
        let changes = values("--alternative", text)?;
        refuse_twice(&set, &changes, "--alternative", text)?;
        for change in changes {
            let words: Vec<String> = change.iter().map(|(key, value)| format!("{key}={value}")).collect();
            axis.push((change.clone(), label(&change), words.join(" ")));
        }
        refuse_too_many(runs.len(), axis.len(), "--alternative", text)?;
    }
    let each = |run: &Combination| {
        let run = run.clone();
        let one = move |(change, label, words): &(Change, String, String)| {
            run.with("--alternative", change, label, &[(ALTERNATIVE.to_owned(), words.clone())])
        };
        axis.iter().map(one).collect::<Vec<_>>()
    };
    Ok(runs.iter().flat_map(each).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(grid: &[&str], alternatives: &[&str]) -> Vec<String> {
        let owned = |texts: &[&str]| texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
        combinations(&owned(grid), &owned(alternatives)).unwrap().into_iter().map(|c| c.name).collect()
    }

    #[test]
    fn a_grid_is_the_product_of_its_axes() {
        let all = names(&["rollout.group_size=8,32", "seed=1,2,3"], &[]);
        assert_eq!(all.len(), 6);
        assert_eq!(all[4], "group-size-32_seed-2");
    }

    #[test]
    fn keys_that_vary_together_are_one_axis() {
        let all = names(&["rollout.group_size,rollout.prompts=2:256,4:128", "seed=1,2"], &[]);
        assert_eq!(all.len(), 4);
        assert_eq!(all[2], "group-size-4_prompts-128_seed-1");
    }

    #[test]
    fn alternatives_add_where_axes_multiply() {
        let all = names(&["seed=1,2"], &["algorithm.kl_coef=0.1,0.2", "a.b,a.c=1:x"]);
        let of_1 = ["seed-1_base", "seed-1_kl-coef-0.1", "seed-1_kl-coef-0.2", "seed-1_b-1_c-x"];
        assert_eq!((all.len(), &all[..4]), (8, &of_1.map(str::to_owned)[..]));
    }

    #[test]
    fn a_grid_without_values_is_refused() {
        let refused = |grid: &[&str]| {
            combinations(&grid.iter().map(|g| (*g).to_owned()).collect::<Vec<_>>(), &[]).is_err()
        };
        for bad in ["seed", "seed=", "=1", "seed=1,,2", "a,=1:2", "a,b=1:", "a,b=1", "a,b=1:2:3", "a,a=1:2"] {
            assert!(refused(&[bad]), "{bad}");
        }
        assert!(refused(&["seed=1", "seed=2"]) && refused(&["a,seed=1:1", "seed=2"]));
    }
}
