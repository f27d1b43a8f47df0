//! The sessions of a run: when, by which program and on which machine it was started or resumed, and what memory that took.

use super::checkpoint::Stage;
use super::fingerprint;
use crate::config::Config;
use crate::problem::Task;
use fgrpo_core::advantage::Advantage;
use fgrpo_eval::events::Events;
use fgrpo_eval::io::files::write_whole;
use fgrpo_eval::io::lines::{self, JsonLines};
use fgrpo_eval::io::machine::{peak, processor};
use fgrpo_eval::kind::python;
use fgrpo_eval::record::same_graders;
use fgrpo_nn::DeviceName;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The file of a run folder with a line per session.
pub const SESSIONS: &str = "sessions.jsonl";

/// A line of [`SESSIONS`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Start, in seconds since 1970 (UTC).
    pub started: u64,
    /// End; absent while it goes on, and after a failure or a kill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// The program's name and version.
    pub program: String,
    /// The device, as `--device` names it.
    pub device: String,
    /// The processor; absent where the system doesn't say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<String>,
    /// Threads that the run computes with.
    pub threads: usize,
    /// What it works on, besides its configuration.
    #[serde(flatten)]
    pub inputs: Inputs,
    /// Most memory that the process had by its end, in bytes; absent where the system doesn't say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_peak_bytes: Option<u64>,
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// What a session works on, besides its configuration. A field is empty in files that don't say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inputs {
    /// The graders, part by part; empty in a session of supervised fine-tuning.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub graders: Vec<String>,
    /// The user's own estimator of advantages, with a hash of its file; empty without one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub estimator: String,
    /// Identifies the problems, held out and trained on.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub problems: String,
    /// Identifies the weights that the run reads besides its own: an adapter's base, or the start as the reference of the KL
    /// penalty. Empty without such weights.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub beside: String,
}

impl Inputs {
    /// What a run of `stage` works on.
    /// Fails if the files of `model.path` can't be read.
    pub fn of(config: &Config, task: &Task, stage: Stage) -> anyhow::Result<Self> {
        let rl = stage == Stage::Rl;
        let path = config.model.path.as_deref();
        let read = path.filter(|_| config.lora.is_some() || (rl && config.algorithm.penalises_kl()));
        let beside = read.map(fingerprint::of_checkpoint).transpose()?;
        Ok(Self {
            graders: if rl { task.graders() } else { Vec::new() },
            estimator: if rl { estimator(config) } else { String::new() },
            problems: task.problem_set(),
            beside: beside.unwrap_or_default(),
        })
    }
}

/// The own estimator that a configuration names, with a hash of its file; empty without one.
pub fn estimator(config: &Config) -> String {
    match &config.algorithm.advantage {
        Advantage::Python { function } => python::identity(function),
        _ => String::new(),
    }
}

/// Refuses another estimator than the run in `folder` was trained with.
///
/// # Errors
/// Bad input if the file of its own estimator has changed since the last session. If the sessions can't be read.
pub fn same_estimator(folder: &Path, now: &str) -> anyhow::Result<()> {
    if differs(&lines::read(&folder.join(SESSIONS))?, |inputs| &inputs.estimator, now) {
        bad_input!(
            [OtherFolder, AcceptChanges],
            "{}: the file of algorithm.advantage has changed since the run's last session: found {now}. Put the old one back",
            folder.display()
        );
    }
    Ok(())
}

/// What graded in the last session that says so; empty if none does.
fn last_graders(sessions: &[Session]) -> &[String] {
    sessions.iter().rev().map(|s| s.inputs.graders.as_slice()).find(|g| !g.is_empty()).unwrap_or_default()
}

/// Whether the last of the sessions that says so has another value than this one's. One without has none to compare.
fn differs(before: &[Session], of: impl Fn(&Inputs) -> &String, now: &str) -> bool {
    let last = before.iter().rev().map(|session| of(&session.inputs)).find(|text| !text.is_empty());
    !now.is_empty() && last.is_some_and(|last| last != now)
}

/// Adds this session to the run's.
/// Fails if the session before had other problems, or other graders, whose verdicts these would mix with, unless
/// changes are accepted; and in any case if it had another adapter's base or reference. If the file can't be read or
/// written.
pub fn begin(
    folder: &Path,
    device: DeviceName,
    threads: usize,
    inputs: Inputs,
    accept_changes: bool,
    events: &dyn Events,
) -> anyhow::Result<()> {
    let path = folder.join(SESSIONS);
    let mut file = JsonLines::append(&path)?;
    let before: Vec<Session> = lines::read(&path)?;
    if differs(&before, |inputs| &inputs.beside, &inputs.beside) {
        bad_input!(
            "{}: the weights in model.path have changed since the run's last session, and the run reads them on: its adapter was trained on them, or its KL penalty compares with them. Put the old ones back, or start a new run in another folder",
            folder.display()
        );
    }
    if differs(&before, |inputs| &inputs.problems, &inputs.problems) && !accept_changes {
        bad_input!(
            [AcceptChanges],
            "{}: the problems have changed since the run's last session: other rows, answers or solutions in its data. Put the old data back",
            folder.display()
        );
    }
    if !accept_changes {
        same_estimator(folder, &inputs.estimator)?;
    }
    let theirs = last_graders(&before);
    if !same_graders(theirs, &inputs.graders) && !accept_changes {
        bad_input!(
            [AcceptChanges],
            "{}: the grader has changed since the run's last session: found {}, wanted {}. Put the old one back",
            folder.display(),
            inputs.graders.join(", "),
            theirs.join(", ")
        );
    }
    file.push(&Session {
        started: now(),
        ended: None,
        program: format!("fgrpo {}", events.version()),
        device: device.to_string(),
        processor: processor(),
        threads,
        inputs,
        memory_peak_bytes: None,
    })
}

/// Completes the line of this session.
pub fn end(folder: &Path) -> anyhow::Result<()> {
    let mut sessions: Vec<Session> = lines::read(&folder.join(SESSIONS))?;
    if let Some(session) = sessions.last_mut() {
        (session.ended, session.memory_peak_bytes) = (Some(now()), peak());
    }
    write_whole(&folder.join(SESSIONS), &lines::to_bytes(&sessions)?)
}
