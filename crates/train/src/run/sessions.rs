//! The sessions of a run: when, by which program and on which machine it was started or resumed, and what memory that took.

use fgrpo_eval::events::Events;
use fgrpo_eval::io::files::write_whole;
use fgrpo_eval::io::lines::{self, JsonLines};
use fgrpo_eval::io::machine::{peak, processor};
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
    /// Most memory that the process had by its end, in bytes; absent where the system doesn't say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_peak_bytes: Option<u64>,
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Adds this session to the run's.
///
/// # Errors
/// If the file can't be read or written.
pub fn begin(folder: &Path, device: DeviceName, threads: usize, events: &dyn Events) -> anyhow::Result<()> {
    let path = folder.join(SESSIONS);
    let mut file = JsonLines::append(&path)?;
    // A damaged file is refused now, and not once the work is done.
    lines::read::<Session>(&path)?;
    file.push(&Session {
        started: now(),
        ended: None,
        program: format!("fgrpo {}", events.version()),
        device: device.to_string(),
        processor: processor(),
        threads,
        memory_peak_bytes: None,
    })
}

/// Completes the line of this session.
///
/// # Errors
/// If the file can't be read or written.
pub fn end(folder: &Path) -> anyhow::Result<()> {
    let mut sessions: Vec<Session> = lines::read(&folder.join(SESSIONS))?;
    if let Some(session) = sessions.last_mut() {
        (session.ended, session.memory_peak_bytes) = (Some(now()), peak());
    }
    write_whole(&folder.join(SESSIONS), &lines::to_bytes(&sessions)?)
}
