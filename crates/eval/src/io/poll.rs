//! Descriptors that are read and written without waiting.

use std::io::{self, ErrorKind};
use std::os::fd::RawFd;
use std::time::Duration;

/// Makes reads and writes of a descriptor return at once.
pub fn not_blocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: fcntl on a descriptor owned by the caller, with integer arguments only.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: as above.
    if flags < 0 || unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Waits until `input` is writable or `output` is readable. Returns (writable, readable); both are false after a
/// timeout.
pub fn wait(input: Option<RawFd>, output: RawFd, left: Duration) -> io::Result<(bool, bool)> {
    // poll ignores a negative descriptor.
    let mut watched = [
        libc::pollfd { fd: input.unwrap_or(-1), events: libc::POLLOUT, revents: 0 },
        libc::pollfd { fd: output, events: libc::POLLIN, revents: 0 },
    ];
    let milliseconds = i32::try_from(left.as_millis() + 1).unwrap_or(i32::MAX);
    // SAFETY: the pointer and the count are from an array that outlives the call.
    let n = unsafe { libc::poll(watched.as_mut_ptr(), watched.len() as libc::nfds_t, milliseconds) };
    if n < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == ErrorKind::Interrupted { Ok((false, false)) } else { Err(error) };
    }
    // Hang-ups and errors are detected by the next read or write.
    Ok((watched[0].revents != 0, watched[1].revents != 0))
}
