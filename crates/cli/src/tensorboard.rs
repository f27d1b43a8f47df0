//! TensorBoard event files: scalars only, written straight in the record format.
//!
//! A record is length, masked CRC-32C of the length, bytes, masked CRC-32C of the bytes; the bytes
//! are an `Event` protocol buffer. The file is flushed record by record, so a kill tears at most one.

use anyhow::Context;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

const CASTAGNOLI: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI);

/// An open event file.
#[derive(Debug)]
pub struct Events {
    path: PathBuf,
    file: File,
}

impl Events {
    /// Creates `events.out.tfevents.<name>` in `folder`, replacing one of that name. A resumed run
    /// writes its kept steps again, so that no step stands in the file twice.
    ///
    /// # Errors
    /// Naming the file.
    pub fn create(folder: &Path, name: &str) -> anyhow::Result<Self> {
        let path = folder.join(format!("events.out.tfevents.{name}"));
        let file = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
        let mut events = Self { path, file };
        let mut event = Vec::new();
        field_bytes(&mut event, 3, b"brain.Event:2");
        events.record(&event)?;
        Ok(events)
    }

    /// Writes scalars of one step.
    ///
    /// # Errors
    /// Naming the file, when the disk is full.
    pub fn scalars<'a>(
        &mut self,
        step: u64,
        values: impl IntoIterator<Item = (&'a str, f64)>,
    ) -> anyhow::Result<()> {
        let mut summary = Vec::new();
        for (tag, value) in values {
            let mut v = Vec::new();
            field_bytes(&mut v, 1, tag.as_bytes());
            v.push((2 << 3) | 5);
            v.extend((value as f32).to_le_bytes());
            field_bytes(&mut summary, 1, &v);
        }
        let mut event = vec![(1 << 3) | 1];
        // Wall time is left at the step, so that equal runs write equal files.
        event.extend((step as f64).to_le_bytes());
        event.push(2 << 3);
        varint(&mut event, step);
        field_bytes(&mut event, 5, &summary);
        self.record(&event)
    }

    fn record(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let length = (bytes.len() as u64).to_le_bytes();
        let mut out = Vec::with_capacity(bytes.len() + 16);
        out.extend(length);
        out.extend(masked(&length).to_le_bytes());
        out.extend(bytes);
        out.extend(masked(bytes).to_le_bytes());
        self.file.write_all(&out).with_context(|| format!("writing {}", self.path.display()))
    }
}

fn masked(bytes: &[u8]) -> u32 {
    CASTAGNOLI.checksum(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn varint(out: &mut Vec<u8>, mut x: u64) {
    while x >= 0x80 {
        out.push(x as u8 | 0x80);
        x >>= 7;
    }
    out.push(x as u8);
}

fn field_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push((field << 3) | 2);
    varint(out, bytes.len() as u64);
    out.extend(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masked_checksum_agrees_with_the_published_vector() {
        // CRC-32C of "123456789" is 0xe3069283 (RFC 3720, B.4 gives the polynomial).
        assert_eq!(CASTAGNOLI.checksum(b"123456789"), 0xe306_9283);
        assert_eq!(masked(b"123456789"), 0xe306_9283u32.rotate_right(15).wrapping_add(0xa282_ead8));
    }

    #[test]
    fn records_follow_each_other_with_their_lengths() {
        let folder = tempfile::tempdir().unwrap();
        let mut events = Events::create(folder.path(), "run").unwrap();
        events.scalars(300, [("reward_mean", 0.5)]).unwrap();
        let bytes = std::fs::read(folder.path().join("events.out.tfevents.run")).unwrap();
        let first = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        assert_eq!(&bytes[12..14], &[3 << 3 | 2, 13]);
        let second = &bytes[16 + first..];
        let length = u64::from_le_bytes(second[..8].try_into().unwrap()) as usize;
        assert_eq!(second.len(), 16 + length);
        assert!(second.windows(11).any(|w| w == b"reward_mean"));
        assert_eq!(&second[12 + 9..12 + 12], &[2 << 3, 0xac, 0x02], "step 300 as a varint");
    }
}
