//! Runs third-party code on files that may be damaged or hostile, in a separate thread. A panic, excessive memory and
//! endless work become errors, to which the caller adds the file name.
//!
//! Memory is measured for the whole process, every 20 ms, on Linux and macOS. Work that exceeds a limit isn't stopped: the
//! program ends soon afterwards, because it rejects the input.

use crate::io::machine::{available, resident};
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

#[cfg(not(panic = "unwind"))]
compile_error!("a panic on bad input must become an error, which needs panic = \"unwind\"");

/// Limits for a piece of work.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum number of bytes by which the process may grow.
    pub memory: u64,
    /// Time limit. Time during which the whole program is suspended doesn't count.
    pub time: Duration,
    /// Stack size in bytes. Only pages that are used take memory.
    pub stack: usize,
}

impl Limits {
    /// Returns the limits for a file of `bytes` bytes. Reading a valid file, compressed or not, takes about ten times its
    /// size in memory and less than a second per megabyte.
    pub fn for_file(bytes: u64) -> Self {
        let memory = bytes.saturating_mul(100).saturating_add(1 << 30);
        Self {
            memory: memory.min(available().unwrap_or(u64::MAX)),
            time: Duration::from_secs(10 + (bytes >> 20)),
            stack: 64 << 20,
        }
    }
}

/// Runs `work` in a separate thread within the limits.
///
/// Returns the error of `work`, or an error if it panics or exceeds a limit.
pub fn run<T: Send + 'static>(
    limits: Limits,
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let (sender, receiver) = channel();
    let builder = std::thread::Builder::new().name("confined".to_owned()).stack_size(limits.stack);
    let thread = builder.spawn(move || {
        // The caller may have stopped waiting.
        let _ = sender.send(catch(work));
    })?;
    const TICK: Duration = Duration::from_millis(20);
    let (before, mut left) = (resident(), limits.time);
    loop {
        match receiver.recv_timeout(TICK) {
            Ok(result) => {
                // Detaching a thread at the moment when it ends crashes with glibc before 2.41 (its bug 19951) if the
                // thread's stack is too large for the stack cache.
                let _ = thread.join();
                return result;
            }
            Err(RecvTimeoutError::Disconnected) => {
                anyhow::bail!("the thread that reads it ended without a result")
            }
            Err(RecvTimeoutError::Timeout) => left = left.saturating_sub(TICK),
        }
        let grown = before.zip(resident()).map_or(0, |(before, now)| now.saturating_sub(before));
        if grown > limits.memory {
            anyhow::bail!("reading it takes more than {} MB of memory", limits.memory >> 20);
        }
        if left.is_zero() {
            anyhow::bail!("reading it takes more than {} s", limits.time.as_secs());
        }
    }
}

/// Runs `work` in this thread. A panic becomes an error and isn't printed.
pub fn catch<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                print(info);
            }
        }));
    });
    let before = QUIET.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    QUIET.set(before);
    result.unwrap_or_else(|panic| Err(anyhow::anyhow!("it can't be processed ({})", panic_message(&*panic))))
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "no reason given".to_owned(),
    }
}

thread_local! {
    /// Whether this thread's panics are kept from being printed, because [`catch`] returns them.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Limits = Limits { memory: 1 << 28, time: Duration::from_secs(1), stack: 1 << 20 };

    /// Runs `work` without a memory limit, because the limit applies to the whole process, which other tests share.
    fn refusal<T: std::fmt::Debug + Send + 'static>(
        work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
    ) -> String {
        format!("{:#}", run(Limits { memory: u64::MAX, ..SMALL }, work).unwrap_err())
    }

    #[test]
    fn results_and_errors_come_back_as_they_are() {
        let limits = Limits { memory: u64::MAX, ..SMALL };
        assert_eq!(run(limits, || Ok(vec![1, 2])).unwrap(), [1, 2]);
        assert_eq!(refusal::<()>(|| anyhow::bail!("no row")), "no row");
    }

    #[test]
    fn a_panic_is_an_error_with_its_message() {
        let empty: Vec<u8> = Vec::new();
        assert!(refusal(move || Ok(empty[3])).contains("index out of bounds"));
        assert!(format!("{:#}", catch::<()>(|| panic!("odd {}", 3)).unwrap_err()).contains("odd 3"));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn more_memory_than_allowed_is_an_error() {
        let limits = Limits { time: Duration::from_secs(60), ..SMALL };
        let work = || {
            let held = vec![1u8; 3 << 28];
            loop {
                std::hint::black_box(&held);
                std::thread::park();
            }
            #[allow(unreachable_code)]
            Ok(())
        };
        let error = run(limits, work).unwrap_err().to_string();
        assert_eq!(error, "reading it takes more than 256 MB of memory");
    }

    #[test]
    fn work_without_end_is_an_error() {
        let slow = refusal(|| {
            loop {
                std::hint::spin_loop();
                if std::hint::black_box(false) {
                    return Ok(());
                }
            }
        });
        assert_eq!(slow, "reading it takes more than 1 s");
    }
}
