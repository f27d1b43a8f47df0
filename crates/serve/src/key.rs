//! The key with which clients authenticate.

use crate::settings::StartError;
use anyhow::Context;
use fgrpo_files as input;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Name of the key's file in the server's folder.
pub(crate) const FILE: &str = "key";
/// Prefix that clients require of a key.
const PREFIX: &str = "tml-";
/// Minimum length of a key.
const SHORTEST: usize = 16;

/// An API key. It doesn't implement `Debug`, so that it can't be logged.
pub(crate) struct Key(String);

impl Key {
    /// Reads a key from a file.
    ///
    /// Returns an error if the file can't be read or doesn't contain a key.
    pub(crate) fn read(path: &Path) -> Result<Self, StartError> {
        let error = |why: String| StartError::Key(path.to_owned(), why);
        let text = input::read_to_string(path, 4096)
            .map_err(|why| error(format!("the key can't be read: {why}")))?;
        let key = text.trim();
        if !key.starts_with(PREFIX) || key.len() < SHORTEST || !key.chars().all(|c| c.is_ascii_graphic()) {
            return Err(error(format!(
                "the file doesn't contain a key, a line that begins with {PREFIX} and has at least {SHORTEST} characters without spaces"
            )));
        }
        Ok(Self(key.to_owned()))
    }

    /// Generates a key and writes it to a file that only its owner can read.
    ///
    /// Returns an error if the system can't provide random numbers, or an I/O error that names the file.
    pub(crate) fn make(path: &Path) -> anyhow::Result<Self> {
        let mut bytes = [0u8; 24];
        File::open("/dev/urandom")
            .and_then(|mut file| file.read_exact(&mut bytes))
            .context("reading /dev/urandom")?;
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let key = format!("{PREFIX}{digits}");
        let temporary = path.with_extension("new");
        let write = || {
            let _ = std::fs::remove_file(&temporary);
            let mut file = File::options().write(true).create_new(true).mode(0o600).open(&temporary)?;
            file.write_all(format!("{key}\n").as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&temporary, path)
        };
        write().with_context(|| format!("writing {}", path.display()))?;
        Ok(Self(key))
    }

    /// Returns the key as a string, for its owner.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// Returns whether `candidate` is the key. The time depends only on the lengths.
    pub(crate) fn is(&self, candidate: &[u8]) -> bool {
        let key = self.0.as_bytes();
        let mut different = u8::from(key.len() != candidate.len());
        for (index, &byte) in candidate.iter().enumerate() {
            different |= std::hint::black_box(byte ^ key[index % key.len()]);
        }
        different == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_made_key_is_private_read_again_and_told_from_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let key = Key::make(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(Key::read(&path).unwrap().is(key.text().as_bytes()));
        let text = key.text().to_owned();
        assert_ne!(Key::make(&path).unwrap().text(), text);
        for other in ["", "tml-", &text[1..], &format!("{text}{text}"), &text.to_uppercase()] {
            assert!(!key.is(other.as_bytes()), "{other}");
        }
    }
}
