//! The run folder. One process uses it at a time, and a resume continues its files without gaps or duplicates.

use crate::config::Config;
use crate::run::checkpoint::{self, Stage};
use crate::run::sessions::SESSIONS;
use anyhow::Context;
use fgrpo_eval::failure::{Advised, OrBadInput, Remedy, in_one_line};
use fgrpo_eval::io::files::{clear_partial, is_lock_of, lock, remove_folder, stray_file, write_whole};
use fgrpo_eval::io::lines;
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// A run folder that this process has locked.
#[derive(Debug)]
pub struct RunDir {
    /// The folder's path.
    pub path: PathBuf,
    /// The folder's lock file, kept open for its lock.
    lock: File,
}

/// Action if the folder already has a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfExists {
    /// Fail.
    Refuse,
    /// Resume the run. A different configuration is refused unless `accept_changes`.
    Resume {
        /// Whether to accept a changed configuration.
        accept_changes: bool,
    },
    /// Delete the run and start from scratch.
    Restart,
}

/// File with the run's configuration.
pub const CONFIGURATION: &str = "config.toml";
/// Folder of the run's evaluations: one folder per step, such as `step-000200`, in the layout of `fgrpo eval`.
pub const EVALUATIONS: &str = "evaluations";

/// Folder of the full evaluations (`[eval.full]`), in the same layout.
pub const FULL_EVALUATIONS: &str = "full-evaluations";

/// Folder of a server's answers that a resume may still need.
pub const ANSWERS: &str = "server-rollouts";

/// Outputs of a run besides `config.toml`, the lock and the checkpoints. `--restart` deletes them.
const OUTPUTS: [&str; 14] = [
    "metrics.jsonl",
    "eval.jsonl",
    EVALUATIONS,
    FULL_EVALUATIONS,
    "rollouts.jsonl",
    SESSIONS,
    "sft.jsonl",
    "log.txt",
    "report.html",
    "events.out.tfevents.fgrpo",
    "events.out.tfevents.sft",
    "sft.latest",
    "sft",
    ANSWERS,
];

impl RunDir {
    /// Opens and locks the folder for a run of `stage`, new or resumed. A resumed run's `config.toml` doesn't change
    /// until [`RunDir::adopt`]. Fails if `if_exists` refuses the run in the folder, the folder has other files but no
    /// run, another process uses the folder, the checkpoints of the run to resume are gone, [`refuse_changes`] fails,
    /// or with an I/O error.
    pub fn open(path: &Path, config: &Config, if_exists: IfExists, stage: Stage) -> anyhow::Result<Self> {
        std::fs::create_dir_all(path).with_context(|| format!("creating run folder {}", path.display()))?;
        let lock = lock(path)?;
        let run = Self { path: path.to_owned(), lock };
        let file = run.file(CONFIGURATION);
        let before = std::fs::read_to_string(&file);
        let is_new = !(before.is_ok() && matches!(if_exists, IfExists::Resume { .. }));
        match (before, if_exists) {
            (Ok(_), IfExists::Refuse) => {
                bad_input!([Resume, Restart, OtherFolder], "{} already has a run", path.display())
            }
            (Ok(text), IfExists::Resume { accept_changes }) => {
                refuse_changes(path, &text, config, accept_changes, stage)?;
                run.refuse_lost_checkpoints()?;
            }
            (Ok(_), IfExists::Restart) => run.clear()?,
            (Err(e), _) if e.kind() == std::io::ErrorKind::NotFound => {
                if let Some(stray) = stray_file(path)? {
                    bad_input!(
                        [OtherFolder],
                        "{} isn't a run folder, and it isn't empty: it has {}",
                        path.display(),
                        stray.display()
                    );
                }
            }
            (Err(e), _) => return Err(e).with_context(|| format!("reading {}", file.display())),
        }
        for folder in [path.to_owned(), run.checkpoints(), run.file(EVALUATIONS), run.file(FULL_EVALUATIONS)]
        {
            clear_partial(&folder);
        }
        if is_new {
            write_whole(&file, config.to_toml().as_bytes())?;
        }
        Ok(run)
    }

    /// Writes the configuration of a resumed run, once nothing can fail any more because of it. Deletes stored
    /// answers of a server if they depend on a setting that has changed.
    pub fn adopt(&self, config: &Config) -> anyhow::Result<()> {
        let file = self.file(CONFIGURATION);
        let text = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        let changed = changed_keys(&file, &text, config)?;
        let is_irrelevant =
            |change: &Change| ["steps", "epochs", "eval", "save", "log"].iter().any(|key| change.is_in(key));
        let answers = self.file(ANSWERS);
        if !changed.iter().all(is_irrelevant) && answers.exists() {
            tracing::info!("{}: removed, because settings have changed", answers.display());
            remove_folder(&answers)?;
        }
        write_whole(&file, config.to_toml().as_bytes())
    }

    /// Fails if the checkpoints of the run to resume were deleted, because the run would then start from scratch and
    /// drop its logs. A run that was killed before its first checkpoint may start from scratch.
    fn refuse_lost_checkpoints(&self) -> anyhow::Result<()> {
        if self.latest()?.is_some() {
            return Ok(());
        }
        let logged = self.logged()?;
        let Some(saved) = checkpoint::recorded(&self.checkpoints()) else { return Ok(()) };
        bad_input!(
            [Restart],
            "{}: the checkpoint of step {saved} is missing in {}, and there is no earlier one. Restore it; otherwise the run's metrics, evaluations and rollouts ({logged} steps) are lost",
            self.path.display(),
            self.checkpoints().display()
        )
    }

    /// Returns the last RL step in the readable lines of `metrics.jsonl`, or 0 if no step is logged.
    pub fn logged(&self) -> anyhow::Result<u64> {
        let mut last = 0;
        lines::complete(&self.file("metrics.jsonl"), |line| {
            let step = serde_json::from_slice(line.text)
                .ok()
                .and_then(|line: serde_json::Value| line["step"].as_u64());
            last = last.max(step.unwrap_or(0));
            Ok(())
        })?;
        Ok(last)
    }

    /// Deletes the files that the run wrote, and logs their names.
    fn clear(&self) -> anyhow::Result<()> {
        let outputs: Vec<&str> = OUTPUTS.into_iter().filter(|name| self.file(name).exists()).collect();
        let checkpoints = checkpoint::list(&self.checkpoints())?.len();
        tracing::info!(
            "deleting the run in {}: {} RL steps, {checkpoints} checkpoints, {}",
            self.path.display(),
            self.logged()?,
            outputs.join(", ")
        );
        // Checkpoints first, so that a resume can't start from one of them if the deletion is interrupted.
        checkpoint::remove_all(&self.checkpoints())?;
        for name in outputs {
            let path = self.file(name);
            if path.is_dir() {
                remove_folder(&path)?;
            } else {
                std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
            }
        }
        Ok(())
    }

    /// Fails if the run's folder was moved or removed, because the run must not be split between two folders. The
    /// message says how to continue.
    pub fn check_place(&self) -> anyhow::Result<()> {
        if !is_lock_of(&self.lock, &self.path) {
            return Err(Advised {
                text: format!(
                    "{}: the run folder was moved or removed while the run wrote to it; the run stopped without another checkpoint",
                    self.path.display()
                ),
                bad_input: false,
                remedies: &[Remedy::NewPlace],
            }
            .into());
        }
        Ok(())
    }

    /// Adds the cause to an error if the folder was moved.
    pub fn blame(&self, error: anyhow::Error) -> anyhow::Error {
        match self.check_place() {
            Ok(()) => error,
            Err(moved) => moved.context(in_one_line(&error)),
        }
    }

    /// Returns the path of a file of the run.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Returns the path of the checkpoint folder.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// Returns the newest checkpoint, if any.
    pub fn latest(&self) -> anyhow::Result<Option<(u64, PathBuf)>> {
        Ok(checkpoint::list(&self.checkpoints())?.pop())
    }

    /// Drops all logged lines and evaluations after `step`, so that a resumed run doesn't have duplicates. If `step` is
    /// `None`, because no checkpoint exists, drops all. Returns messages about damaged or missing earlier lines.
    pub fn rewind(&self, step: Option<u64>) -> anyhow::Result<Vec<String>> {
        let mut damage = Vec::new();
        for name in ["metrics.jsonl", "eval.jsonl", "rollouts.jsonl"] {
            let unreadable = lines::retain(&self.file(name), |line| {
                step.is_some_and(|step| line["step"].as_u64().is_some_and(|s| s <= step))
            })?;
            if let (Some(first), Some(_)) = (unreadable.first(), step) {
                damage.push(format!(
                    "{name}: {} lines that aren't JSON were dropped; the first is line {first}",
                    unreadable.len()
                ));
            }
        }
        for series in [EVALUATIONS, FULL_EVALUATIONS] {
            for (evaluated, folder) in checkpoint::list(&self.file(series))? {
                if step.is_none_or(|step| evaluated > step) {
                    remove_folder(&folder)?;
                }
            }
        }
        if let Some(step) = step {
            let lines = lines::read::<serde_json::Value>(&self.file("metrics.jsonl"))?;
            let logged: Vec<u64> = lines.iter().filter_map(|line| line["step"].as_u64()).collect();
            let gaps = missing_steps(&logged, step);
            if !gaps.is_empty() {
                damage.push(format!(
                    "metrics.jsonl: the lines of steps {gaps} are missing; a power failure can cause this"
                ));
            }
        }
        Ok(damage)
    }
}

/// Returns the steps from 1 to `last` that aren't in `logged`, written like `3, 5-6`.
pub fn missing_steps(logged: &[u64], last: u64) -> String {
    let mut logged = logged.to_vec();
    logged.sort_unstable();
    let (mut gaps, mut next) = (Vec::new(), 1);
    for step in logged.into_iter().filter(|&s| s <= last).chain([last.saturating_add(1)]) {
        match step.saturating_sub(next) {
            0 => {}
            1 => gaps.push(next.to_string()),
            _ => gaps.push(format!("{next}-{}", step - 1)),
        }
        next = next.max(step.saturating_add(1));
    }
    gaps.join(", ")
}

/// A key that two configurations have with different values, or that only one of them has.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The full key, such as `update.lr`.
    pub key: String,
    /// The value before, or `None` if the key is absent.
    pub before: Option<Value>,
    /// The value after, or `None` if the key is absent.
    pub after: Option<Value>,
}

impl Change {
    /// Returns whether the key is `name`, or is in the table `name`.
    fn is_in(&self, name: &str) -> bool {
        self.key.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }

    /// Lists changes, each as `key: before -> after`.
    pub fn list<'a>(changes: impl IntoIterator<Item = &'a Self>) -> String {
        changes.into_iter().map(Self::to_string).collect::<Vec<_>>().join("; ")
    }
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = |v: &Option<Value>| v.as_ref().map_or("absent".to_owned(), Value::to_string);
        write!(f, "{}: {} -> {}", self.key, value(&self.before), value(&self.after))
    }
}

/// Compares the `text` of a run's `config.toml` with `config`. A key that isn't in the text has its default. Fails if
/// the text isn't TOML.
pub fn changed_keys(path: &Path, text: &str, config: &Config) -> anyhow::Result<Vec<Change>> {
    let table: Table = text.parse().with_context(|| format!("reading {}", path.display())).or_bad_input()?;
    match Config::parse(&table.to_string(), &[]) {
        Ok(before) => {
            let config = config.decided_as(&before);
            Ok(differences(&before.to_toml().parse()?, &config.to_toml().parse()?))
        }
        Err(_) => Ok(differences(&table, &config.to_toml().parse()?)),
    }
}

/// Returns whether a change affects the policy from which a run of `stage` starts. In a resumed run, such a change
/// would be ignored, or would change the reference of the KL penalty.
fn changes_start(change: &Change, config: &Config, stage: Stage) -> bool {
    let uses_seed = config.sft.is_some() || config.model.init.is_some();
    let reference = config.algorithm.penalises_kl() && uses_seed && config.start_seed() == config.seed;
    change.is_in("model.init")
        || (change.is_in("lora") && !change.is_in("lora.save_merged"))
        || (stage == Stage::Rl && (change.is_in("sft") || (change.is_in("seed") && reference)))
}

/// Compares the configuration `text` of the run of `stage` in `folder` with the `config` to resume it with. Fails if
/// they differ, unless changes are accepted. If the run has a checkpoint, a change of the policy from which it started
/// is never accepted. The error names the keys that differ. Also fails if the text isn't TOML.
pub fn refuse_changes(
    folder: &Path,
    text: &str,
    config: &Config,
    accept_changes: bool,
    stage: Stage,
) -> anyhow::Result<()> {
    let differing = changed_keys(&folder.join(CONFIGURATION), text, config)?;
    let start: Vec<&Change> =
        differing.iter().filter(|change| changes_start(change, config, stage)).collect();
    if let (Some((_, newest)), false) =
        (checkpoint::list(&folder.join("checkpoints"))?.pop(), start.is_empty())
    {
        bad_input!(
            "{} has a run that started from another policy (old -> new): {}. Resume with the old values, or start a new run from its checkpoint in another folder, with model.path={}",
            folder.display(),
            Change::list(start),
            newest.display()
        );
    }
    if !differing.is_empty() && !accept_changes {
        bad_input!(
            [AcceptChanges, OtherFolder],
            "{} has a run with another configuration (old -> new): {}",
            folder.display(),
            Change::list(&differing)
        );
    }
    Ok(())
}

/// Lists the keys in which two configurations differ.
pub fn differences(before: &Table, after: &Table) -> Vec<Change> {
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let changes = |key: &String| match (before.get(key), after.get(key)) {
        (Some(Value::Table(b)), Some(Value::Table(a))) => {
            let inner = differences(b, a).into_iter();
            inner.map(|change| Change { key: format!("{key}.{}", change.key), ..change }).collect()
        }
        (b, a) if b == a => Vec::new(),
        (b, a) => vec![Change { key: key.clone(), before: b.cloned(), after: a.cloned() }],
    };
    keys.into_iter().flat_map(changes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_a_server_are_deleted_if_a_resume_changes_a_setting_that_they_depend_on() {
        let text = include_str!("../../../../configs/maze-quick.toml");
        let config = |set: &str| Config::parse(text, &[set.to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let open = |config: &Config, if_exists| {
            RunDir::open(folder.path(), config, if_exists, Stage::Rl).unwrap().adopt(config).unwrap();
        };
        open(&config("steps=4"), IfExists::Refuse);
        let answers = folder.path().join(ANSWERS);
        std::fs::create_dir(&answers).unwrap();
        let accept = IfExists::Resume { accept_changes: true };
        for set in ["steps=8", "eval.samples=128", "save.every=3", "log.tensorboard=false"] {
            open(&config(set), accept);
            assert!(answers.exists(), "{set}");
        }
        open(&config("update.lr=0.5"), accept);
        assert!(!answers.exists());
    }

    #[test]
    fn missing_steps_are_named_as_ranges() {
        assert_eq!(missing_steps(&[1, 2, 3], 3), "");
        assert_eq!(missing_steps(&[1, 2, 3, 4, 7, 8], 8), "5-6");
        assert_eq!(missing_steps(&[2, 4], 6), "1, 3, 5-6");
        assert_eq!(missing_steps(&[1, 1, 2, 9], 3), "3");
    }

    #[test]
    fn a_kill_while_the_configuration_is_first_written_leaves_a_folder_that_starts() {
        let text = include_str!("../../../../configs/maze-quick.toml");
        let config = Config::parse(text, &[]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(format!("{}abc", fgrpo_eval::io::files::PARTIAL)), "seed").unwrap();
        let resume = IfExists::Resume { accept_changes: false };
        RunDir::open(folder.path(), &config, resume, Stage::Rl).unwrap();
        let other = tempfile::tempdir().unwrap();
        std::fs::write(other.path().join("thesis.tex"), "x").unwrap();
        assert!(RunDir::open(other.path(), &config, resume, Stage::Rl).is_err());
    }
}
