//! The run folder: used by one process at a time, with files that a resume continues without gaps or duplicates.

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

/// What to do if the folder already has a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfExists {
    /// Fail.
    Refuse,
    /// Resume it; with a different configuration only if `accept_changes`.
    Resume {
        /// Accept the changed configuration.
        accept_changes: bool,
    },
    /// Delete it and start from scratch.
    Restart,
}

impl IfExists {
    /// Whether a run may go on in another way than it began.
    pub fn accepts_changes(self) -> bool {
        self == Self::Resume { accept_changes: true }
    }
}

/// The file in a run folder with the run's own configuration.
pub const CONFIGURATION: &str = "config.toml";
/// The folder of a run's evaluations, with a folder per step such as `step-000200`, in the layout of `fgrpo eval`.
pub const EVALUATIONS: &str = "evaluations";

/// The folder of the full evaluations (`[eval.full]`), in the same layout.
pub const FULL_EVALUATIONS: &str = "full-evaluations";

/// The folder of a server's answers that no checkpoint has made unnecessary yet.
pub const ANSWERS: &str = "server-rollouts";

/// What a run writes to its folder besides `config.toml`, the lock and the checkpoints. `--restart` deletes these.
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
    /// Opens the folder for a new run of `stage`. `if_exists` says what to do if it already has one. A run that is
    /// resumed keeps its configuration until [`RunDir::adopt`].
    /// Fails if the folder has another run, is in use by another process, or has a run to resume whose checkpoints are
    /// gone; or as [`refuse_changes`]. I/O errors if it can't be written.
    pub fn open(path: &Path, config: &Config, if_exists: IfExists, stage: Stage) -> anyhow::Result<Self> {
        std::fs::create_dir_all(path).with_context(|| format!("creating run folder {}", path.display()))?;
        let lock = lock(path)?;
        let run = Self { path: path.to_owned(), lock };
        let written = run.file(CONFIGURATION);
        let before = std::fs::read_to_string(&written);
        let is_new = !(before.is_ok() && matches!(if_exists, IfExists::Resume { .. }));
        match (before, if_exists) {
            (Ok(_), IfExists::Refuse) => {
                bad_input!([Resume, Restart, OtherFolder], "{} already holds a run", path.display())
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
                        "{} is not empty and holds no run (found {})",
                        path.display(),
                        stray.display()
                    );
                }
            }
            (Err(e), _) => return Err(e).with_context(|| format!("reading {}", written.display())),
        }
        clear_partial(path);
        clear_partial(&run.checkpoints());
        if is_new {
            write_whole(&written, config.to_toml().as_bytes())?;
        }
        Ok(run)
    }

    /// Writes the configuration that a resumed run goes on with, after everything that may refuse it. Answers that a server
    /// gave by other settings are forgotten.
    pub fn adopt(&self, config: &Config) -> anyhow::Result<()> {
        let written = self.file(CONFIGURATION);
        let text =
            std::fs::read_to_string(&written).with_context(|| format!("reading {}", written.display()))?;
        let changed = changed_keys(&written, &text, config)?;
        let keeps_answers =
            |change: &Change| ["steps", "epochs", "eval", "save", "log"].iter().any(|key| change.is_in(key));
        let answers = self.file(ANSWERS);
        if !changed.iter().all(keeps_answers) && answers.exists() {
            tracing::info!("{}: removed: the settings have changed since", answers.display());
            remove_folder(&answers)?;
        }
        write_whole(&written, config.to_toml().as_bytes())
    }

    /// Fails if the checkpoints of the run to resume were deleted: it would start from scratch and drop its logs. A
    /// run that was killed before its first checkpoint has nothing to lose.
    fn refuse_lost_checkpoints(&self) -> anyhow::Result<()> {
        if self.latest()?.is_some() {
            return Ok(());
        }
        let logged = self.logged()?;
        let Some(saved) = checkpoint::recorded(&self.checkpoints()) else { return Ok(()) };
        bad_input!(
            [Restart],
            "{}: no checkpoint of step {saved} or before it is in {}. Restore it, or lose the run's metrics, evaluations and rollouts ({logged} steps)",
            self.path.display(),
            self.checkpoints().display()
        )
    }

    /// The last RL step in `metrics.jsonl`, among the lines that can be read; 0 if there is none.
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
        let there: Vec<&str> = OUTPUTS.into_iter().filter(|name| self.file(name).exists()).collect();
        let checkpoints = checkpoint::list(&self.checkpoints())?.len();
        tracing::info!(
            "deleting the run in {}: {} RL steps, {checkpoints} checkpoints, {}",
            self.path.display(),
            self.logged()?,
            there.join(", ")
        );
        // Checkpoints first: if this is killed, a resume must not start from one of them.
        checkpoint::remove_all(&self.checkpoints())?;
        for name in there {
            let path = self.file(name);
            match path.is_dir() {
                true => remove_folder(&path)?,
                false => {
                    std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?
                }
            }
        }
        Ok(())
    }

    /// Fails if the run's folder was moved or removed. The run doesn't follow it: two folders with half a run each
    /// would be worse.
    /// Fails if it isn't there; the message says how to continue.
    pub fn check_place(&self) -> anyhow::Result<()> {
        if !is_lock_of(&self.lock, &self.path) {
            return Err(Advised {
                text: format!(
                    "{}: the run folder was moved or removed while the run wrote to it; stopped without another checkpoint",
                    self.path.display()
                ),
                bad_input: false,
                remedies: &[Remedy::NewPlace],
            }
            .into());
        }
        Ok(())
    }

    /// The error of work in the folder; if the folder was moved, with that as its cause.
    pub fn blame(&self, error: anyhow::Error) -> anyhow::Error {
        match self.check_place() {
            Ok(()) => error,
            Err(moved) => moved.context(in_one_line(&error)),
        }
    }

    /// The path of a file of the run.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The path of the checkpoint folder.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// The newest checkpoint, if any.
    pub fn latest(&self) -> anyhow::Result<Option<(u64, PathBuf)>> {
        Ok(checkpoint::list(&self.checkpoints())?.pop())
    }

    /// Drops every logged line and every evaluation after `step`, so that a resumed run has no duplicates. Without a
    /// checkpoint (`None`) nothing is kept. Returns messages about damaged or missing earlier lines.
    pub fn rewind(&self, step: Option<u64>) -> anyhow::Result<Vec<String>> {
        let mut wrong = Vec::new();
        for name in ["metrics.jsonl", "eval.jsonl", "rollouts.jsonl"] {
            let unreadable = lines::retain(&self.file(name), |line| {
                step.is_some_and(|step| line["step"].as_u64().is_some_and(|s| s <= step))
            })?;
            if let (Some(first), Some(_)) = (unreadable.first(), step) {
                wrong.push(format!(
                    "{name}: {} lines that aren't JSON were dropped, the first of them line {first}",
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
                wrong.push(format!(
                    "metrics.jsonl: no lines of steps {gaps}: they were lost, as after a power failure"
                ));
            }
        }
        Ok(wrong)
    }
}

/// The steps from 1 to `last` that aren't in `found`, as `3, 5-6`.
pub fn missing_steps(found: &[u64], last: u64) -> String {
    let mut found = found.to_vec();
    found.sort_unstable();
    let (mut gaps, mut next) = (Vec::new(), 1);
    for step in found.into_iter().filter(|&s| s <= last).chain([last.saturating_add(1)]) {
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
    /// The full key, as `update.lr`.
    pub key: String,
    /// The value before, or `None` if the key is absent.
    pub before: Option<Value>,
    /// The value after, or `None` if the key is absent.
    pub after: Option<Value>,
}

impl Change {
    /// Whether the key is `name`, or is in the table of that name.
    fn is_in(&self, name: &str) -> bool {
        self.key.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }

    /// Changes as one string, `key: before -> after`.
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

/// The keys in which `config` differs from the `text` of a run's `config.toml`. A key that isn't in the text has its
/// default.
/// Fails if the text isn't TOML.
pub fn changed_keys(path: &Path, text: &str, config: &Config) -> anyhow::Result<Vec<Change>> {
    let written: Table =
        text.parse().with_context(|| format!("reading {}", path.display())).or_bad_input()?;
    match Config::parse(&written.to_string(), &[]) {
        Ok(before) => {
            let config = config.decided_as(&before);
            Ok(differences(&before.to_toml().parse()?, &config.to_toml().parse()?))
        }
        Err(_) => Ok(differences(&written, &config.to_toml().parse()?)),
    }
}

/// Whether a change is of what a run of `stage` starts from. After a checkpoint it has no effect, or replaces the reference
/// of the KL penalty.
fn is_of_the_start(change: &Change, config: &Config, stage: Stage) -> bool {
    let drawn = config.sft.is_some() || config.model.init.is_some();
    let reference = config.algorithm.penalises_kl() && drawn && config.start_seed() == config.seed;
    change.is_in("model.init")
        || (change.is_in("lora") && !change.is_in("lora.save_merged"))
        || (stage == Stage::Rl && (change.is_in("sft") || (change.is_in("seed") && reference)))
}

/// Fails if the run of `stage` in `folder`, whose configuration is `text`, would be resumed with another one, unless
/// changes are accepted; and in any case if the run has a checkpoint and would start otherwise.
/// The error names the keys that differ; it fails too if the text isn't TOML.
pub fn refuse_changes(
    folder: &Path,
    text: &str,
    config: &Config,
    accept_changes: bool,
    stage: Stage,
) -> anyhow::Result<()> {
    let differing = changed_keys(&folder.join(CONFIGURATION), text, config)?;
    let of_start: Vec<&Change> =
        differing.iter().filter(|change| is_of_the_start(change, config, stage)).collect();
    if let (Some((_, newest)), false) =
        (checkpoint::list(&folder.join("checkpoints"))?.pop(), of_start.is_empty())
    {
        bad_input!(
            "{} holds a run that has started otherwise, there -> here: {}. Resume with the old values, or start a new run from its checkpoint with model.path={} in another folder",
            folder.display(),
            Change::list(of_start),
            newest.display()
        );
    }
    if !differing.is_empty() && !accept_changes {
        bad_input!(
            [AcceptChanges, OtherFolder],
            "{} holds a run of another configuration. Different, there -> here: {}",
            folder.display(),
            Change::list(&differing)
        );
    }
    Ok(())
}

/// The keys in which two configurations differ.
pub fn differences(before: &Table, after: &Table) -> Vec<Change> {
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let of_key = |key: &String| match (before.get(key), after.get(key)) {
        (Some(Value::Table(b)), Some(Value::Table(a))) => {
            let inner = differences(b, a).into_iter();
            inner.map(|change| Change { key: format!("{key}.{}", change.key), ..change }).collect()
        }
        (b, a) if b == a => Vec::new(),
        (b, a) => vec![Change { key: key.clone(), before: b.cloned(), after: a.cloned() }],
    };
    keys.into_iter().flat_map(of_key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_a_server_are_kept_only_by_a_resume_that_would_ask_alike() {
        let text = include_str!("../../../../configs/maze-quick.toml");
        let config = |set: &str| Config::parse(text, &[set.to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let open = |config: &Config, if_exists| {
            RunDir::open(folder.path(), config, if_exists, Stage::Rl).unwrap().adopt(config).unwrap();
        };
        open(&config("steps=4"), IfExists::Refuse);
        let answers = folder.path().join(ANSWERS);
        std::fs::create_dir(&answers).unwrap();
        let changed = IfExists::Resume { accept_changes: true };
        for set in ["steps=8", "eval.samples=128", "save.every=3", "log.tensorboard=false"] {
            open(&config(set), changed);
            assert!(answers.exists(), "{set}");
        }
        open(&config("update.lr=0.5"), changed);
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
