//! Stores every accepted request and every result in a journal, in the order of acceptance and completion.
//!
//! A request is answered, and a result delivered, only after its record is on disk. So everything that was sent to a
//! client survives a kill. A kill may leave the last records incomplete, but no client knows of them, and the next start
//! removes them. A single thread writes, and syncs once for all waiting records.
//!
//! A record consists of its length and its CRC-32, four bytes each, and a protobuf message.

use anyhow::Context;
use fgrpo_eval::bad_input;
use fgrpo_eval::io::files;
use prost::Message;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

/// Name of the journal's file.
pub(crate) const FILE: &str = "journal";
/// Maximum length of a record: a request's body with its frame.
const LARGEST: u32 = 1 << 30;
const CRC: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC);

/// A record.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Record {
    #[prost(oneof = "Entry", tags = "1, 2, 3, 4")]
    pub(crate) entry: Option<Entry>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Entry {
    /// Sessions and samplers so far, in the first record of a shortened journal.
    #[prost(bytes, tag = "1")]
    Catalogue(Vec<u8>),
    #[prost(message, tag = "2")]
    Accepted(Accepted),
    #[prost(message, tag = "3")]
    Finished(Finished),
    #[prost(message, tag = "4")]
    Refused(Refused),
}

/// A rejected request for a model. Its `seq_id` may be used again until a later request is accepted.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Refused {
    #[prost(string, tag = "1")]
    pub(crate) model: String,
    #[prost(uint64, tag = "2")]
    pub(crate) seq: u64,
}

/// A request that was accepted.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Accepted {
    /// Sequence number of the request, from 1.
    #[prost(uint64, tag = "1")]
    pub(crate) number: u64,
    /// Name of the endpoint.
    #[prost(string, tag = "2")]
    pub(crate) endpoint: String,
    /// Key by which the client marks repetitions of a request, if it sent one.
    #[prost(string, optional, tag = "3")]
    pub(crate) key: Option<String>,
    /// The request's slot, such as a model's `seq_id`. No other request with the same slot is accepted.
    #[prost(string, optional, tag = "4")]
    pub(crate) slot: Option<String>,
    /// SHA-256 of the endpoint and the body.
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) digest: Vec<u8>,
    /// Body of the request, or `None` for a finished request in a shortened journal.
    #[prost(bytes = "vec", optional, tag = "6")]
    pub(crate) body: Option<Vec<u8>>,
    /// Time of acceptance, in seconds since 1970.
    #[prost(uint64, tag = "7")]
    pub(crate) time: u64,
}

impl Accepted {
    /// Returns the request without its body, as it is stored in memory and in a shortened journal.
    pub(crate) fn without_body(&self) -> Self {
        let Self { number, endpoint, key, slot, digest, body: _, time } = self;
        let (endpoint, key, slot, digest) = (endpoint.clone(), key.clone(), slot.clone(), digest.clone());
        Self { number: *number, endpoint, key, slot, digest, body: None, time: *time }
    }
}

/// The result of a request.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Finished {
    #[prost(uint64, tag = "1")]
    pub(crate) number: u64,
    #[prost(oneof = "Outcome", tags = "2, 3, 4")]
    pub(crate) outcome: Option<Outcome>,
    /// The sampler that the request created, as JSON.
    #[prost(bytes = "vec", optional, tag = "5")]
    pub(crate) sampler: Option<Vec<u8>>,
}

/// Result that a client receives.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Outcome {
    #[prost(bytes, tag = "2")]
    Json(Vec<u8>),
    #[prost(bytes, tag = "3")]
    Protobuf(Vec<u8>),
    #[prost(message, tag = "4")]
    Failed(Failed),
}

/// Reason why a request failed.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Failed {
    #[prost(string, tag = "1")]
    pub(crate) message: String,
    /// Whether the request caused the failure.
    #[prost(bool, tag = "2")]
    pub(crate) by_request: bool,
}

impl Outcome {
    /// Returns a failure that the request caused.
    pub(crate) fn refused(message: String) -> Self {
        Self::Failed(Failed { message, by_request: true })
    }

    /// Returns the approximate size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Json(bytes) | Self::Protobuf(bytes) => bytes.len(),
            Self::Failed(failed) => failed.message.len(),
        }
    }
}

fn frame(entry: Entry) -> Vec<u8> {
    let message = Record { entry: Some(entry) }.encode_to_vec();
    let mut bytes = Vec::with_capacity(message.len() + 8);
    bytes.extend((message.len() as u32).to_le_bytes());
    bytes.extend(CRC.checksum(&message).to_le_bytes());
    bytes.extend(message);
    bytes
}

/// Reads the journal of a folder and removes incomplete records at its end. Returns the records, or an empty list if
/// the file doesn't exist.
///
/// Returns a bad-input error if a damaged record precedes a complete one, or an I/O error that names the file.
pub(crate) fn read(folder: &Path) -> anyhow::Result<Vec<Entry>> {
    let path = folder.join(FILE);
    let context = || format!("reading {}", path.display());
    let mut bytes = Vec::new();
    match File::open(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file.and_then(|mut file| file.read_to_end(&mut bytes)).with_context(context)?,
    };
    let mut entries = Vec::new();
    let mut at = 0;
    while let Some((end, entry)) = record(&bytes, at) {
        match entry {
            Some(entry) => entries.push(entry),
            // After a kill, only other unsynced records can follow an incomplete record.
            None if (at + 1..bytes.len())
                .all(|later| record(&bytes, later).is_none_or(|(_, entry)| entry.is_none())) =>
            {
                break;
            }
            None => bad_input!(
                "{}: the record at byte {at} is damaged, but later ones are complete; the server can't continue from this journal",
                path.display()
            ),
        }
        at = end;
    }
    if at < bytes.len() {
        let file = File::options().write(true).open(&path).with_context(context)?;
        file.set_len(at as u64)
            .and_then(|()| file.sync_all())
            .with_context(|| format!("shortening {}", path.display()))?;
    }
    Ok(entries)
}

/// Decodes the record at a position. Returns the end of the record and its content, which is `None` if the record is
/// damaged. Returns `None` if the bytes end before the record does.
fn record(bytes: &[u8], at: usize) -> Option<(usize, Option<Entry>)> {
    let number = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().expect("four bytes")));
    let (length, sum) = (number(at)?, number(at + 4)?);
    if length > LARGEST || length == 0 {
        return Some((bytes.len(), None));
    }
    let end = at + 8 + length as usize;
    let message = bytes.get(at + 8..end)?;
    if CRC.checksum(message) != sum {
        return Some((end, None));
    }
    Some((end, Record::decode(message).ok().and_then(|record| record.entry)))
}

/// Function that is called when the earlier records are on disk.
type After = Box<dyn FnOnce() + Send>;

/// Function that converts all records so far to the records of a shortened journal.
type Shorten = Box<dyn FnOnce(Vec<Entry>) -> Vec<Entry> + Send>;

enum Order {
    Append(Vec<u8>, Option<After>),
    Shorten(Shorten),
}

/// The writing side of the journal. Dropping it ends the thread after everything is written.
pub(crate) struct Journal {
    orders: Option<Sender<Order>>,
    thread: Option<std::thread::JoinHandle<()>>,
    failure: Arc<Mutex<Option<String>>>,
}

impl Journal {
    /// Opens the journal of a folder for appending.
    pub(crate) fn open(folder: &Path) -> anyhow::Result<Self> {
        let file = append_to(folder)?;
        files::sync_folder(folder)?;
        let folder = folder.to_owned();
        let (orders, received) = channel();
        let failure = Arc::new(Mutex::new(None));
        let failed = Arc::clone(&failure);
        let thread = std::thread::Builder::new().name("journal".into()).spawn(move || {
            if let Err(error) = write_all(&folder, file, &received) {
                *failed.lock().unwrap_or_else(|e| e.into_inner()) = Some(format!("{error:#}"));
            }
        });
        let thread = thread.context("starting the journal's thread")?;
        Ok(Self { orders: Some(orders), thread: Some(thread), failure })
    }

    /// Appends a record. Calls `after` when the record is on disk, or never if the journal has failed.
    pub(crate) fn append(&self, entry: Entry, after: Option<After>) {
        self.order(Order::Append(frame(entry), after));
    }

    /// Calls `after` when all records so far are on disk.
    pub(crate) fn synced(&self, after: After) {
        self.order(Order::Append(Vec::new(), Some(after)));
    }

    /// Waits until all records so far are on disk. Returns whether that succeeded.
    pub(crate) fn sync(&self) -> bool {
        let (done, wait) = channel();
        self.synced(Box::new(move || {
            let _ = done.send(());
        }));
        wait.recv().is_ok()
    }

    /// Replaces all records so far by the result of `shorten`. The writing thread does this, so the call returns at
    /// once.
    pub(crate) fn shorten(&self, shorten: Shorten) {
        self.order(Order::Shorten(shorten));
    }

    fn order(&self, order: Order) {
        // If the journal has failed, the order is dropped.
        let _ = self.orders.as_ref().expect("open").send(order);
    }

    /// Returns the error that stopped the journal, if any. After an error, further records aren't written.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn append_to(folder: &Path) -> anyhow::Result<File> {
    let path = folder.join(FILE);
    File::options()
        .append(true)
        .create(true)
        .open(&path)
        .with_context(|| format!("opening {}", path.display()))
}

fn write_all(folder: &Path, mut file: File, orders: &Receiver<Order>) -> anyhow::Result<()> {
    let path = folder.join(FILE);
    let writing = || format!("writing {}", path.display());
    while let Ok(first) = orders.recv() {
        let mut bytes = Vec::new();
        let mut waiting = Vec::new();
        let mut next = Some(first);
        while let Some(order) = next {
            match order {
                Order::Append(record, after) => {
                    bytes.extend(record);
                    waiting.extend(after);
                }
                Order::Shorten(shorten) => {
                    file.write_all(&std::mem::take(&mut bytes)).with_context(writing)?;
                    let shorter: Vec<u8> = shorten(read(folder)?).into_iter().flat_map(frame).collect();
                    files::write_whole(&path, &shorter)?;
                    file = append_to(folder)?;
                }
            }
            next = orders.try_recv().ok();
        }
        if !bytes.is_empty() {
            file.write_all(&bytes).and_then(|()| file.sync_data()).with_context(writing)?;
        }
        waiting.into_iter().for_each(|after| after());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(number: u64) -> Entry {
        let outcome = Some(Outcome::Json(vec![b'x'; number as usize]));
        Entry::Finished(Finished { number, outcome, sampler: None })
    }

    fn written(folder: &Path) -> Vec<Entry> {
        let journal = Journal::open(folder).unwrap();
        (1..=5).for_each(|number| journal.append(finished(number), None));
        assert!(journal.sync() && journal.failure().is_none());
        drop(journal);
        read(folder).unwrap()
    }

    #[test]
    fn a_journal_cut_anywhere_gives_its_whole_records_and_continues() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let entries = written(folder.path());
        assert_eq!(entries, (1..=5).map(finished).collect::<Vec<_>>());
        let bytes = std::fs::read(&path).unwrap();
        let ends: Vec<usize> = (0..=5).map(|n| (1..=n).map(|i| frame(finished(i)).len()).sum()).collect();
        for cut in 0..bytes.len() {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let whole = ends.iter().filter(|&&end| end <= cut).count() - 1;
            assert_eq!(read(folder.path()).unwrap(), entries[..whole], "cut at {cut}");
            assert_eq!(std::fs::metadata(&path).unwrap().len() as usize, ends[whole]);
            let journal = Journal::open(folder.path()).unwrap();
            journal.append(finished(9), None);
            drop(journal);
            assert_eq!(read(folder.path()).unwrap()[whole..], [finished(9)]);
        }
    }

    #[test]
    fn damage_before_whole_records_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        written(folder.path());
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[frame(finished(1)).len() + 10] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let error = format!("{:#}", read(folder.path()).unwrap_err());
        assert!(error.contains("is damaged"), "{error}");
    }

    #[test]
    fn a_shortened_journal_has_what_was_made_of_all_earlier_records_and_grows_on() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path()).unwrap();
        (1..=3).for_each(|number| journal.append(finished(number), None));
        journal.shorten(Box::new(|mut all| vec![all.swap_remove(1), finished(all.len() as u64 + 5)]));
        journal.append(finished(8), None);
        drop(journal);
        assert_eq!(read(folder.path()).unwrap(), [finished(2), finished(7), finished(8)]);
    }
}
