//! User-supplied files: only regular files are opened, and only up to a size limit.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Size limit of a settings file (JSON or TOML), in bytes.
pub const SETTINGS: u64 = 64 << 20;

/// Size limit of one text for a model, in bytes: about a million tokens, beyond any context.
pub const PROMPT: usize = 4 << 20;

/// Opens a regular file. A pipe or terminal is accepted if the shell passed it (`/dev/stdin`, `<(command)`).
/// Fails with the system's error, and for a folder, a named pipe, a socket or a device, which may never end.
pub fn open(path: &Path) -> Result<File> {
    let metadata = std::fs::metadata(path)?;
    let passed_on = ["/dev/stdin", "/dev/fd", "/proc/self/fd"].iter().any(|place| path.starts_with(place));
    if metadata.is_file() || passed_on && !metadata.is_dir() {
        return File::open(path);
    }
    let found = found(&metadata);
    Err(Error::new(ErrorKind::InvalidInput, format!("found {found}, wanted a regular file")))
}

/// Reads a file of at most `most` bytes; see [`open`].
/// Fails as [`open`], and if the file is larger.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>> {
    let file = open(path)?;
    let too_large = |found: String| {
        let message = format!("found {found}, wanted at most {most} bytes");
        Err(Error::new(ErrorKind::InvalidData, message))
    };
    let length = file.metadata()?.len();
    if length > most {
        return too_large(format!("{length} bytes"));
    }
    let mut bytes = Vec::with_capacity(length as usize);
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return too_large("more".to_owned());
    }
    Ok(bytes)
}

/// [`read`] as text.
/// Fails as [`read`], and if the file isn't UTF-8, with the position.
pub fn read_to_string(path: &Path, most: u64) -> Result<String> {
    String::from_utf8(read(path, most)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Error::new(ErrorKind::InvalidData, format!("found a byte that isn't UTF-8 at {at}, wanted text"))
    })
}

/// The kind of a path that is not a regular file.
fn found(metadata: &std::fs::Metadata) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        let kind = metadata.file_type();
        if kind.is_fifo() {
            return "a named pipe";
        }
        if kind.is_socket() {
            return "a socket";
        }
        if kind.is_char_device() || kind.is_block_device() {
            return "a device";
        }
    }
    if metadata.is_dir() { "a folder" } else { "something else" }
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
        assert_eq!(says(folder.path()), "found a folder, wanted a regular file");
        assert_eq!(says(Path::new("/dev/zero")), "found a device, wanted a regular file");
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert_eq!(says(&socket), "found a socket, wanted a regular file");
        std::fs::write(&file, "12345").unwrap();
        assert_eq!(says(&file), "found 5 bytes, wanted at most 4 bytes");
        assert_eq!(read(&file, 5).unwrap(), b"12345");
        std::fs::write(&file, [b'a', 0xff]).unwrap();
        let error = read_to_string(&file, 5).unwrap_err().to_string();
        assert_eq!(error, "found a byte that isn't UTF-8 at 1, wanted text");
    }
}
