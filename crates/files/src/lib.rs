//! Reading of user-supplied files: only regular files are opened, and only up to a size limit.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Size limit of a settings file (JSON or TOML), in bytes.
pub const SETTINGS: u64 = 64 << 20;

/// Size limit of one prompt for a model, in bytes: about a million tokens, more than any context.
pub const PROMPT: usize = 4 << 20;

/// Opens a regular file. A pipe or terminal is accepted if the shell passed it (`/dev/stdin`, `<(command)`).
/// Fails with the system's error, or if the path is a folder, a named pipe, a socket or a device, which may never end.
pub fn open(path: &Path) -> Result<File> {
    let metadata = std::fs::metadata(path)?;
    let passed_on = ["/dev/stdin", "/dev/fd", "/proc/self/fd"].iter().any(|place| path.starts_with(place));
    if metadata.is_file() || passed_on && !metadata.is_dir() {
        return File::open(path);
    }
    Err(Error::new(ErrorKind::InvalidInput, format!("{} isn't a regular file", kind(&metadata))))
}

/// Reads a file of at most `limit` bytes.
/// Fails as [`open`] does, or if the file is larger.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let file = open(path)?;
    let too_large =
        || Err(Error::new(ErrorKind::InvalidData, format!("the file is larger than {limit} bytes")));
    let length = file.metadata()?.len();
    if length > limit {
        return too_large();
    }
    let mut bytes = Vec::with_capacity(length as usize);
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return too_large();
    }
    Ok(bytes)
}

/// Reads a file of at most `limit` bytes as a string.
/// Fails as [`read`] does, or if the file isn't UTF-8; the error states the position.
pub fn read_to_string(path: &Path, limit: u64) -> Result<String> {
    String::from_utf8(read(path, limit)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Error::new(ErrorKind::InvalidData, format!("the byte at {at} isn't UTF-8"))
    })
}

/// Describes a path that isn't a regular file.
fn kind(metadata: &std::fs::Metadata) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        let file_type = metadata.file_type();
        if file_type.is_fifo() {
            return "a named pipe";
        }
        if file_type.is_socket() {
            return "a socket";
        }
        if file_type.is_char_device() || file_type.is_block_device() {
            return "a device";
        }
    }
    if metadata.is_dir() { "a folder" } else { "the path" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_or_is_too_large_is_refused_with_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.json");
        let says = |path: &Path| read(path, 4).unwrap_err().to_string();
        assert_eq!(read(&file, 4).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(says(folder.path()), "a folder isn't a regular file");
        assert_eq!(says(Path::new("/dev/zero")), "a device isn't a regular file");
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert_eq!(says(&socket), "a socket isn't a regular file");
        std::fs::write(&file, "12345").unwrap();
        assert_eq!(says(&file), "the file is larger than 4 bytes");
        assert_eq!(read(&file, 5).unwrap(), b"12345");
        std::fs::write(&file, [b'a', 0xff]).unwrap();
        let error = read_to_string(&file, 5).unwrap_err().to_string();
        assert_eq!(error, "the byte at 1 isn't UTF-8");
    }
}
