//! Sessions of a run: when, by which program and on which machine the run was started or resumed, and how much memory it used.

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

/// File of a run folder with a line per session.
pub const SESSIONS: &str = "sessions.jsonl";

/// A line of [`SESSIONS`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Start, in seconds since 1970 (UTC).
    pub started: u64,
    /// End, in seconds since 1970 (UTC). Absent while the session runs, and if it failed or was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// The program's name and version.
    pub program: String,
    /// The device, as `--device` names it.
    pub device: String,
    /// The processor, if the system reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<String>,
    /// Number of threads.
    pub threads: usize,
    /// Inputs besides the configuration.
    #[serde(flatten)]
    pub inputs: Inputs,
    /// Peak memory of the process in bytes, if the system reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_peak_bytes: Option<u64>,
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Inputs of a session besides its configuration. Fields that an older version did not write are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inputs {
    /// The graders of all parts. Empty for supervised fine-tuning.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub graders: Vec<String>,
    /// The custom estimator of advantages with a hash of its file. Empty without a custom estimator.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub estimator: String,
    /// Identifier of the training problems and the held-out problems.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub problems: String,
    /// Identifier of the weights in `model.path` at the start of the session. Empty for a new model, or if a resumed run no longer finds them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub start: String,
    /// Identifier of the weights in `model.path` if they are needed after the start: as an adapter's base, or as the
    /// reference of the KL penalty. Otherwise empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub beside: String,
    /// Identifier of the teacher's weights. Empty without a teacher.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub teacher: String,
}

impl Inputs {
    /// Identifies the inputs of a run of `stage`. Fails if files of `model.path` that are read after the start can't be read.
    pub fn of(config: &Config, task: &Task, stage: Stage) -> anyhow::Result<Self> {
        let rl = stage == Stage::Rl;
        let path = config.model.path.as_deref();
        let start = path.map(fingerprint::of_checkpoint).transpose();
        let is_read = config.lora.is_some() || (rl && config.algorithm.penalises_kl());
        let (start, beside) = match start {
            Ok(start) if is_read => (start.clone(), start),
            Ok(start) => (start, None),
            Err(error) if is_read => return Err(error),
            // The checkpoint of a resumed run has all weights.
            Err(_) => (None, None),
        };
        let teacher = config.teacher.as_ref().filter(|_| rl);
        let teacher = teacher.and_then(|teacher| Some((teacher.path.as_ref()?, teacher.is_adapter())));
        let teacher = teacher.map(|(path, is_adapter)| {
            if is_adapter { fingerprint::of_adapter(path) } else { fingerprint::of_checkpoint(path) }
        });
        Ok(Self {
            graders: if rl { task.graders() } else { Vec::new() },
            estimator: if rl { estimator(config) } else { String::new() },
            problems: task.problem_set(),
            start: start.unwrap_or_default(),
            beside: beside.unwrap_or_default(),
            teacher: teacher.transpose()?.unwrap_or_default(),
        })
    }
}

/// Returns the custom estimator of a configuration with a hash of its file, or an empty string if there is none.
pub fn estimator(config: &Config) -> String {
    match &config.algorithm.advantage {
        Advantage::Python { function } => python::identity(function),
        _ => String::new(),
    }
}

/// Checks that the estimator is the one with which the run in `folder` was trained.
///
/// # Errors
/// Bad input if the file of a custom estimator has changed since the last session; an I/O error if the sessions can't
/// be read.
pub fn same_estimator(folder: &Path, now: &str) -> anyhow::Result<()> {
    if differs(&lines::read(&folder.join(SESSIONS))?, |inputs| &inputs.estimator, now) {
        bad_input!(
            [OtherFolder, AcceptChanges],
            "{}: the file of algorithm.advantage has changed since the run's last session and is now {now}. Restore the old one",
            folder.display()
        );
    }
    Ok(())
}

/// Returns the graders of the last session that records graders, or an empty list if no session does.
fn last_graders(sessions: &[Session]) -> &[String] {
    sessions.iter().rev().map(|s| s.inputs.graders.as_slice()).find(|g| !g.is_empty()).unwrap_or_default()
}

/// Returns whether the last session that records a field has another value than `now`. An empty value isn't compared.
fn differs(before: &[Session], field: impl Fn(&Inputs) -> &String, now: &str) -> bool {
    let last = before.iter().rev().map(|session| field(&session.inputs)).find(|text| !text.is_empty());
    !now.is_empty() && last.is_some_and(|last| last != now)
}

/// Adds a session to the run. Fails if the problems, the graders, the estimator or the teacher have changed since the last
/// session, unless changes are accepted. A change of the adapter's base or of the reference is never accepted. Also
/// fails with an I/O error if the file can't be read or written.
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
            "{}: the weights in model.path have changed since the run's last session, but they are the base of its adapter or the reference of its KL penalty. Restore the old ones, or start a new run in another folder",
            folder.display()
        );
    }
    if differs(&before, |inputs| &inputs.teacher, &inputs.teacher) && !accept_changes {
        bad_input!(
            [AcceptChanges],
            "{}: the weights in teacher.path have changed since the run's last session. Restore the old ones",
            folder.display()
        );
    }
    if differs(&before, |inputs| &inputs.problems, &inputs.problems) && !accept_changes {
        bad_input!(
            [AcceptChanges],
            "{}: the problems have changed since the run's last session: its data have other rows, answers or solutions. Restore the old data",
            folder.display()
        );
    }
    if !accept_changes {
        same_estimator(folder, &inputs.estimator)?;
    }
    let last = last_graders(&before);
    if !same_graders(last, &inputs.graders) && !accept_changes {
        bad_input!(
            [AcceptChanges],
            "{}: the grader has changed since the run's last session, from {} to {}. Restore the old one",
            folder.display(),
            last.join(", "),
            inputs.graders.join(", ")
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

/// Adds the end and the peak memory to the line of this session.
pub fn end(folder: &Path) -> anyhow::Result<()> {
    let mut sessions: Vec<Session> = lines::read(&folder.join(SESSIONS))?;
    if let Some(session) = sessions.last_mut() {
        (session.ended, session.memory_peak_bytes) = (Some(now()), peak());
    }
    write_whole(&folder.join(SESSIONS), &lines::to_bytes(&sessions)?)
}
