//! Runs the program with limited time and address space, and reports how it ended.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How a run ended.
pub(crate) struct Ended {
    /// Exit code, or `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    /// Whether it was ended because of its time.
    pub(crate) too_long: bool,
    pub(crate) stderr: String,
    /// Processor time of all its threads.
    pub(crate) time: Duration,
    /// Peak memory in bytes.
    pub(crate) memory: u64,
}

/// Maximum ratio of wall-clock time to processor time of a run. Other programs may use the processors, so the wall-clock
/// time alone says little, but it still ends a program that waits or sleeps without working.
const WAITING: u32 = 6;

/// Runs the program in `folder`, for at most `time` of processor time.
pub(crate) fn run(arguments: &[OsString], folder: &Path, time: Duration, memory: u64) -> Ended {
    let said = folder.join("stderr.txt");
    let mut command = Command::new(env!("CARGO_BIN_EXE_fgrpo"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(std::fs::File::create(&said).unwrap()).env_remove("RUST_BACKTRACE");
    // SAFETY: setrlimit may be called between fork and exec.
    unsafe {
        command.pre_exec(move || {
            let limit = libc::rlimit { rlim_cur: memory, rlim_max: memory };
            let core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            libc::setrlimit(libc::RLIMIT_CORE, &core);
            match libc::setrlimit(libc::RLIMIT_AS, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        })
    };
    let start = Instant::now();
    #[expect(clippy::zombie_processes, reason = "wait4 below waits for it, and tells its memory")]
    let child = command.spawn().unwrap();
    let mut too_long = false;
    let (mut status, mut usage) = (0, unsafe_zeroed());
    // SAFETY: waits for our own child, into two places of our own.
    while unsafe { libc::wait4(child.id() as i32, &mut status, libc::WNOHANG, &mut usage) } == 0 {
        let worked = worked(child.id()) > time;
        if (worked || start.elapsed() > time * WAITING) && !too_long {
            too_long = true;
            // SAFETY: our own child, which has not been waited for.
            unsafe { libc::kill(child.id() as i32, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(if start.elapsed() < Duration::from_secs(1) {
            2
        } else {
            20
        }));
    }
    Ended {
        code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        too_long,
        stderr: String::from_utf8_lossy(&std::fs::read(&said).unwrap()).into_owned(),
        time: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        memory: usage.ru_maxrss as u64 * 1024,
    }
}

fn seconds(time: libc::timeval) -> Duration {
    Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
}

/// Processor time of a running child so far, or `None` if the system has no `/proc`.
fn worked(child: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
    // After the name, which may contain anything, the 12th and 13th fields are ticks of the program and of the system.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    // SAFETY: asks for a constant of the system.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    Duration::from_millis(ticks * 1000 / per_second)
}

fn unsafe_zeroed() -> libc::rusage {
    // SAFETY: a struct of numbers.
    unsafe { std::mem::zeroed() }
}
