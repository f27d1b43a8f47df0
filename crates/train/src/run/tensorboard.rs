//! TensorBoard event files with scalars, written directly in the record format.
//!
//! A record consists of a length, the masked CRC-32C of the length, bytes, and the masked CRC-32C of the bytes. The
//! bytes are an `Event` protocol buffer. Every record is written at once, so a kill damages at most the last one.

use anyhow::Context;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const CASTAGNOLI: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI);

/// An open event file.
#[derive(Debug)]
pub struct TensorBoard {
    path: PathBuf,
    file: File,
    last_step: Option<u64>,
}

impl TensorBoard {
    /// Creates `events.out.tfevents.<name>` in `folder`, replacing any file with that name.
    pub fn create(folder: &Path, name: &str) -> anyhow::Result<Self> {
        let path = folder.join(format!("events.out.tfevents.{name}"));
        let file = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
        let mut events = Self { path, file, last_step: None };
        let mut event = wall_time();
        field_bytes(&mut event, 3, b"brain.Event:2");
        events.record(&event)?;
        Ok(events)
    }

    /// Opens the file made by [`TensorBoard::create`] and drops everything after `step`, so that a resumed run
    /// doesn't write a step twice. Creates the file if it doesn't exist.
    pub fn resume(folder: &Path, name: &str, step: u64) -> anyhow::Result<Self> {
        let path = folder.join(format!("events.out.tfevents.{name}"));
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(e).with_context(|| format!("reading {}", path.display())),
        };
        let mut events = Self::create(folder, name)?;
        for event in records(&bytes) {
            if let Some(last) = step_of(event).filter(|last| *last <= step) {
                events.record(event)?;
                events.last_step = Some(last);
            }
        }
        Ok(events)
    }

    /// Returns the last step in the file.
    pub fn last_step(&self) -> Option<u64> {
        self.last_step
    }

    /// Writes scalars of one step.
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
        let mut event = wall_time();
        event.push(2 << 3);
        varint(&mut event, step);
        field_bytes(&mut event, 5, &summary);
        self.last_step = Some(step);
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

/// Returns the beginning of an event: the current time, in seconds since 1970.
fn wall_time() -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let mut event = vec![(1 << 3) | 1];
    event.extend(now.to_le_bytes());
    event
}

/// Returns the complete records at the beginning of a file.
fn records(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut events = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<8>() {
        let length = u64::from_le_bytes(*length);
        let Some(length) = usize::try_from(length).ok().filter(|l| *l <= rest.len()) else { break };
        // There is one checksum before the bytes and one after them.
        let Some(event) = rest.get(4..).and_then(|r| r.get(..length)) else { break };
        let Some(after) = rest.get(4 + length + 4..) else { break };
        if masked(event).to_le_bytes() != rest[4 + length..][..4] {
            break;
        }
        events.push(event);
        bytes = after;
    }
    events
}

/// Returns the step of an event written by [`TensorBoard::scalars`], or `None` for the file's first event.
fn step_of(event: &[u8]) -> Option<u64> {
    let mut rest = event.get(9..)?.strip_prefix(&[2 << 3])?.iter();
    let mut step = 0;
    for i in 0..10 {
        let byte = *rest.next()?;
        step |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            return Some(step);
        }
    }
    None
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
        let mut events = TensorBoard::create(folder.path(), "run").unwrap();
        events.scalars(300, [("reward_mean", 0.5)]).unwrap();
        let bytes = std::fs::read(folder.path().join("events.out.tfevents.run")).unwrap();
        let all = records(&bytes);
        assert_eq!(all.iter().map(|e| e.len() + 16).sum::<usize>(), bytes.len());
        assert_eq!(&all[0][9..11], &[3 << 3 | 2, 13]);
        assert!(all[1].windows(11).any(|w| w == b"reward_mean"));
        assert_eq!(&all[1][9..12], &[2 << 3, 0xac, 0x02], "step 300 as a varint");
    }

    fn time_and_step(event: &[u8]) -> (f64, Option<u64>) {
        (f64::from_le_bytes(event[1..9].try_into().unwrap()), step_of(event))
    }

    #[test]
    fn a_resumed_file_keeps_steps_and_their_times_and_drops_what_came_after_the_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.out.tfevents.run");
        let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let mut events = TensorBoard::create(folder.path(), "run").unwrap();
        for step in [0, 1, 2, 3] {
            events.scalars(step, [("reward_mean", step as f64)]).unwrap();
        }
        let whole = std::fs::read(&path).unwrap();
        let written: Vec<_> = records(&whole).into_iter().map(time_and_step).collect();
        assert!(written.iter().all(|w| w.0 >= before && w.0 < before + 600.0), "{before}: {written:?}");
        // A kill tears the last record.
        std::fs::write(&path, &whole[..whole.len() - 3]).unwrap();
        let mut events = TensorBoard::resume(folder.path(), "run", 1).unwrap();
        assert_eq!(events.last_step(), Some(1));
        events.scalars(2, [("reward_mean", 2.0)]).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let resumed: Vec<_> = records(&bytes).into_iter().map(time_and_step).collect();
        assert_eq!(resumed.iter().map(|r| r.1).collect::<Vec<_>>(), [None, Some(0), Some(1), Some(2)]);
        assert_eq!(resumed[1..3], written[1..3]);
        assert_eq!(TensorBoard::resume(folder.path(), "other", 7).unwrap().last_step(), None);
    }
}
