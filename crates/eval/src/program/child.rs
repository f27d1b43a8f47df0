//! Runs a child process that answers questions, one line for each question.

use super::settings::Settings;
use crate::graded::Graded;
use crate::io::interrupt;
use crate::io::poll::{set_nonblocking, wait};
use crate::io::process_group::ProcessGroup;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Maximum length of an answer line in bytes. A longer line is invalid.
const LONGEST_ANSWER: usize = 1 << 20;

/// Interval at which a wait for an answer checks for a request to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Reason why a question wasn't answered. The message becomes the reason of the unscorable grade.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoAnswer {
    /// The child has ended.
    #[error("died")]
    Died,
    /// The child wrote output before it received the whole question.
    #[error("bad_answer: before the question")]
    SpokeFirst,
    /// The line isn't a valid answer.
    #[error("bad_answer: {0}")]
    Bad(String),
    /// The time limit is exceeded.
    #[error("timeout")]
    Timeout,
    /// No child could be started.
    #[error("not_started: {0}")]
    NotStarted(String),
    /// The program was asked to stop.
    #[error("stopped")]
    Stopped,
}

impl From<NoAnswer> for Box<Graded> {
    fn from(why: NoAnswer) -> Self {
        Self::new(Graded::unscorable(why.to_string()))
    }
}

/// One child process. Dropping it kills its process group.
#[derive(Debug)]
pub(super) struct Child {
    _group: ProcessGroup,
    input: ChildStdin,
    output: ChildStdout,
    /// Part of the answer that has been read.
    read: Vec<u8>,
    /// Number of questions sent.
    pub(super) questions: u64,
    /// Number of answers received.
    pub(super) answers: u64,
}

impl Child {
    pub(super) fn start(settings: &Settings) -> Result<Self, NoAnswer> {
        Self::spawn(settings).map_err(|error| NoAnswer::NotStarted(error.to_string()))
    }

    fn spawn(settings: &Settings) -> io::Result<Self> {
        let mut command = Command::new(&settings.command[0]);
        command.args(&settings.command[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut group = ProcessGroup::spawn(&mut command)?;
        let child = group.child();
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("the child has no pipes"));
        };
        for fd in [input.as_raw_fd(), output.as_raw_fd()] {
            set_nonblocking(fd)?;
        }
        Ok(Self { _group: group, input, output, read: Vec::new(), questions: 0, answers: 0 })
    }

    /// Sends a question (its JSON without the opening brace) and waits for the line that answers it. Watches both pipes
    /// at once, because a child may fill its output pipe before it has read all of its input.
    pub(super) fn ask(&mut self, body: &str, settings: &Settings) -> Result<Vec<u8>, NoAnswer> {
        let startup = if self.answers == 0 { settings.startup_s } else { 0.0 };
        let deadline = Instant::now() + Duration::from_secs_f64(settings.timeout_s + startup);
        self.questions += 1;
        let request = format!("{{\"id\":{},{body}\n", self.questions);
        self.read.clear();
        if self.receive()? {
            return Err(NoAnswer::SpokeFirst);
        }
        let mut unsent = request.as_bytes();
        let mut searched = 0;
        loop {
            let line_feed = self.read[searched..].iter().position(|&b| b == b'\n');
            if let Some(end) = line_feed.map(|i| searched + i) {
                if !unsent.is_empty() {
                    return Err(NoAnswer::SpokeFirst);
                }
                if end + 1 != self.read.len() {
                    return Err(NoAnswer::Bad("more than a line".into()));
                }
                self.answers += 1;
                return Ok(self.read[..end].to_vec());
            }
            searched = self.read.len();
            if self.read.len() > LONGEST_ANSWER {
                return Err(NoAnswer::Bad("line too long".into()));
            }
            if interrupt::requested() {
                return Err(NoAnswer::Stopped);
            }
            let Some(remaining) = deadline.checked_duration_since(Instant::now()).filter(|d| !d.is_zero())
            else {
                return Err(NoAnswer::Timeout);
            };
            let input = (!unsent.is_empty()).then_some(self.input.as_raw_fd());
            let (writable, readable) = wait(input, self.output.as_raw_fd(), remaining.min(LOOK_EVERY))
                .map_err(|_| NoAnswer::Died)?;
            if writable {
                match self.input.write(unsent) {
                    Ok(n) => unsent = &unsent[n..],
                    Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                    Err(_) => return Err(NoAnswer::Died),
                }
            }
            if readable {
                self.receive()?;
            }
        }
    }

    /// Reads available output without waiting. Returns whether there was any.
    fn receive(&mut self) -> Result<bool, NoAnswer> {
        let mut buffer = [0u8; 8192];
        match self.output.read(&mut buffer) {
            Ok(0) => Err(NoAnswer::Died),
            Ok(n) => {
                self.read.extend_from_slice(&buffer[..n]);
                Ok(true)
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(_) => Err(NoAnswer::Died),
        }
    }
}
