//! Runs the user's programs, each in its own process group, and kills them when this process ends.
//!
//! Dropping a group kills it with all its children. If this process is itself killed, a watchdog kills them: a small
//! shell that receives the id of each group through a pipe and acts when the pipe closes. A program that moves its
//! children into other sessions must end them itself.

use crate::io::interrupt;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::Duration;

/// Script of the watchdog. Each input line is the id of a group to watch, or the negative id of a group that has ended.
/// The end of the input means that this process has ended. The watchdog ignores signals that are sent to a whole job,
/// such as from a terminal.
const WATCH: &str = r#"
trap '' HUP INT TERM QUIT
groups=
while read -r line; do
  case $line in
    -*) kept=; for g in $groups; do [ "$g" = "${line#-}" ] || kept="$kept $g"; done; groups=$kept ;;
    *) groups="$groups $line" ;;
  esac
done
for g in $groups; do kill -s KILL -- "-$g"; done
"#;

/// Pipe to this process's watchdog.
static WATCHDOG: Mutex<Option<ChildStdin>> = Mutex::new(None);

/// A program and its children. Dropping it kills them all.
#[derive(Debug)]
pub struct ProcessGroup {
    child: Child,
    ended: bool,
}

impl ProcessGroup {
    /// Starts the program in a new process group.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        let mut watchdog = WATCHDOG.lock().unwrap_or_else(|e| e.into_inner());
        // An empty line has no effect, but writing it detects a watchdog that was killed.
        let mut running = watchdog.take();
        let pipe = match running.take_if(|pipe| pipe.write_all(b"\n").is_ok()) {
            Some(pipe) => pipe,
            None => start_watchdog()?,
        };
        let fd = pipe.as_raw_fd();
        // SAFETY: between fork and exec an id is formatted and written, and nothing is allocated. The pipe stays
        // open until the lock is released, after the exec.
        unsafe { command.process_group(0).pre_exec(move || announce(fd)) };
        let child = command.spawn();
        *watchdog = Some(pipe);
        Ok(Self { child: child?, ended: false })
    }

    /// Returns the program's process.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Waits until the program ends. Background processes that it started keep running. Returns `None` if this process is
    /// asked to stop first.
    pub fn wait(mut self) -> io::Result<Option<ExitStatus>> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.ended = true;
                return Ok(Some(status));
            }
            if interrupt::requested() {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let group = self.child.id().cast_signed();
        if !self.ended {
            // SAFETY: kill doesn't take pointers. The child leads a separate group and hasn't been waited for, so its id
            // still denotes that group.
            unsafe { libc::kill(-group, libc::SIGKILL) };
            let _ = self.child.wait();
        }
        if let Some(pipe) = WATCHDOG.lock().unwrap_or_else(|e| e.into_inner()).as_mut() {
            let _ = pipe.write_all(format!("-{group}\n").as_bytes());
        }
    }
}

fn start_watchdog() -> io::Result<ChildStdin> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", WATCH]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // The watchdog gets a separate group, so that killing this process's group doesn't kill it.
    let mut child = shell.process_group(0).spawn()?;
    child.stdin.take().ok_or_else(|| io::Error::other("the watchdog has no pipe"))
}

/// Sends this process's id to the watchdog as a line.
fn announce(watchdog: RawFd) -> io::Result<()> {
    let mut line = [0; 12];
    let mut rest = &mut line[..];
    writeln!(rest, "{}", std::process::id())?;
    let length = 12 - rest.len();
    // SAFETY: the pointer and the length are those of the written part of the array.
    let written = unsafe { libc::write(watchdog, line.as_ptr().cast(), length) };
    if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
