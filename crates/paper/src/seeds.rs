//! Runs of one setting differ in their seeds alone.

use fgrpo_eval::bad_input;
use fgrpo_train::config::Config;
use fgrpo_train::run::folder::differences;
use std::path::Path;

/// Keys that may differ between the runs of one row: seeds, and what changes no result but its place, number or speed. A key stands for
/// those below it.
const FREE: [&str; 14] = [
    "seed",
    "sft.seed",
    "sft.eval_every",
    "sft.eval_problems",
    "sft.save_every",
    "rollout.max_cached_tokens",
    "rollout.server",
    "update.micro_batch_tokens",
    "update.max_skipped",
    "grade",
    "eval",
    "save",
    "log",
    "compute",
];
/// Below a free key, but what is measured depends on it.
const FIXED: &str = "eval.temperature";
/// Files and folders, which may stand elsewhere on another machine.
const PLACES: [(&str, &str); 3] = [("model", "path"), ("task", "data"), ("task", "held_out")];

fn is_free(key: &str) -> bool {
    let below =
        |free: &str| key.strip_prefix(free).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    key != FIXED && FREE.into_iter().any(below)
}

fn table(config: &Config) -> anyhow::Result<toml::Table> {
    let mut table: toml::Table = config.to_toml().parse()?;
    for (of, key) in PLACES {
        if let Some(toml::Value::String(path)) = table.get_mut(of).and_then(|t| t.get_mut(key)) {
            *path = Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        }
    }
    Ok(table)
}

/// Fails if runs of one row, of which the mean is shown, were trained by different configurations. Each has its folder.
///
/// # Errors
/// Bad input that names two run folders and the keys that differ.
pub(super) fn require_one_configuration(row: &str, runs: &[(&Path, &Config)]) -> anyhow::Result<()> {
    let Some(((first, config), others)) = runs.split_first() else { return Ok(()) };
    let wanted = table(config)?;
    for (other, config) in others {
        let differing = differences(&wanted, &table(config)?).into_iter();
        let differing: Vec<String> =
            differing.filter(|d| !is_free(d.split(':').next().unwrap_or_default())).collect();
        if !differing.is_empty() {
            bad_input!(
                "{row}: {} and {} would be seeds of one row, but their configurations differ in more than the seed: {}; give the runs of one configuration, or --from for each alone",
                first.display(),
                other.display(),
                differing.join(", ")
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_and_bookkeeping_may_differ_and_nothing_else() {
        for free in ["seed", "sft.seed", "eval.every", "eval.full.k", "save.keep", "compute.threads"] {
            assert!(is_free(free), "{free}");
        }
        for fixed in ["steps", "task.seed", "update.lr", "eval.temperature", "algorithm.aggregation"] {
            assert!(!is_free(fixed), "{fixed}");
        }
    }
}
