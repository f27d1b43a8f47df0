//! Non-blocking reads and writes of file descriptors.

use std::io::{self, ErrorKind};
use std::os::fd::RawFd;
use std::time::Duration;

/// Makes a descriptor non-blocking.
pub fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: fcntl on a descriptor owned by the caller, with integer arguments only.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: as above.
    if flags < 0 || unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Waits until `input` is writable or `output` is readable. Returns (writable, readable), both false after a timeout.
pub fn wait(input: Option<RawFd>, output: RawFd, timeout: Duration) -> io::Result<(bool, bool)> {
    // poll ignores a negative descriptor.
    let mut watched = [
        libc::pollfd { fd: input.unwrap_or(-1), events: libc::POLLOUT, revents: 0 },
        libc::pollfd { fd: output, events: libc::POLLIN, revents: 0 },
    ];
    let milliseconds = i32::try_from(timeout.as_millis() + 1).unwrap_or(i32::MAX);
    // SAFETY: the pointer and the length are those of an array that outlives the call.
    let n = unsafe { libc::poll(watched.as_mut_ptr(), watched.len() as libc::nfds_t, milliseconds) };
    if n < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == ErrorKind::Interrupted { Ok((false, false)) } else { Err(error) };
    }
    // The next read or write detects hang-ups and errors.
    Ok((watched[0].revents != 0, watched[1].revents != 0))
}
