//! Reads files named by the user: only regular files, up to a size limit, line by line within limits.

use anyhow::Context;
pub use fgrpo_nn::input::{SETTINGS, open, read, read_to_string};
use std::io::{BufRead, Read};

/// Maximum bytes of one line. A file with longer lines isn't JSON lines.
pub const LINE: u64 = 256 << 20;

/// Maximum bytes of one text for a model: about a million tokens, beyond any context.
pub const PROMPT: usize = 4 << 20;

/// Reads the next line into `line`, including its line end; `false` at the end of the file.
///
/// # Errors
/// I/O errors, or a line of more than [`LINE`] bytes.
pub fn next_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> anyhow::Result<bool> {
    line.clear();
    let read = reader.by_ref().take(LINE).read_until(b'\n', line).context("cannot read")?;
    if read as u64 == LINE && line.last() != Some(&b'\n') {
        crate::bad_input!("found a line of more than {LINE} bytes, wanted JSON lines");
    }
    Ok(read > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_one_by_one_and_one_without_end_is_refused() {
        let mut reader = &b"a\n\nb"[..];
        let mut line = Vec::new();
        let mut lines = Vec::new();
        while next_line(&mut reader, &mut line).unwrap() {
            lines.push(String::from_utf8(line.clone()).unwrap());
        }
        assert_eq!(lines, ["a\n", "\n", "b"]);
        let mut endless = std::io::BufReader::new(std::io::repeat(0));
        let error = next_line(&mut endless, &mut line).unwrap_err();
        assert!(format!("{error:#}").contains("a line of more than"), "{error:#}");
    }
}
