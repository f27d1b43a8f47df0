//! Ctrl-C, termination and hang-up: the first signal asks the work to save and stop, the second ends the program.
//!
//! A hang-up signal that was ignored when the program started stays ignored, as with `nohup`. A lost terminal often
//! sends it twice, and `timeout` sends its signal twice. So a hang-up never counts as the second signal, nor does a
//! signal that immediately follows the first.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// Time of the first signal in milliseconds of the monotonic clock, or 0 before it.
static REQUESTED: AtomicU64 = AtomicU64::new(0);
static INSTALL: Once = Once::new();

/// A signal that is repeated within this number of milliseconds counts as the same request.
const SAME_REQUEST_MS: u64 = 100;

/// Installs the signal handlers. Later calls do nothing.
pub fn listen() {
    INSTALL.call_once(|| {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            // SAFETY: both structures are plain data and live through the calls; the handler does only what
            // a signal handler may do.
            unsafe {
                let mut before: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, std::ptr::null(), &mut before);
                if signal == libc::SIGHUP && before.sa_sigaction == libc::SIG_IGN {
                    continue;
                }
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
                action.sa_flags = libc::SA_RESTART;
                libc::sigemptyset(&mut action.sa_mask);
                libc::sigaction(signal, &action, std::ptr::null_mut());
            }
        }
    });
}

/// Requests a stop as the first signal does. With `false`, withdraws the request after the work has ended.
pub fn request(stop: bool) {
    REQUESTED.store(u64::from(stop), Ordering::SeqCst);
}

/// Returns whether a stop was requested.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::SeqCst) > 0
}

extern "C" fn on_signal(signal: libc::c_int) {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime, poll, write and _exit are allowed in a signal handler; the pointers are to locals and to
    // a constant.
    unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now);
        let now = (now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000).max(1);
        match REQUESTED.compare_exchange(0, now, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => {
                const TEXT: &[u8] = b"\nstopping after the current work; press Ctrl-C again to end at once\n";
                let errno = *errno();
                let mut stderr = libc::pollfd { fd: 2, events: libc::POLLOUT, revents: 0 };
                // If nobody reads stderr, a write would block and delay the stop.
                if libc::poll(&mut stderr, 1, 0) == 1 {
                    libc::write(2, TEXT.as_ptr().cast(), TEXT.len());
                }
                *self::errno() = errno;
            }
            Err(first) if signal != libc::SIGHUP && now.saturating_sub(first) > SAME_REQUEST_MS => {
                libc::_exit(130)
            }
            Err(_) => {}
        }
    }
}

/// Returns the address of this thread's errno, which a signal handler must preserve.
unsafe fn errno() -> *mut libc::c_int {
    #[cfg(target_os = "linux")]
    // SAFETY: always a valid pointer to this thread's errno.
    return unsafe { libc::__errno_location() };
    #[cfg(not(target_os = "linux"))]
    // SAFETY: as above.
    return unsafe { libc::__error() };
}
