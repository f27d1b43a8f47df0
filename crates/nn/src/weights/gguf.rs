//! GGUF files, as llama.cpp has them: metadata and tensors in one file, memory-mapped.
//!
//! A file is read and written as the Hugging Face folder that it was made from: its metadata as the fields of a `config.json` ([`Gguf::config`]), its tensors by
//! their names there, with the rows of q and k in the order they have there. Versions 2 and 3 are read, little end first. Opening a file walks its
//! header once and keeps the places of values, so a hostile header takes no more memory than a small multiple of its own bytes.

pub(super) mod blocks;
mod names;
mod write;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use rayon::prelude::*;
use serde_json::{Value, json};

use self::blocks::Kind;
pub use self::names::END_TOKENS;
pub use self::write::{GgufType, Item, write_gguf};
use super::file::release;
use crate::config::Config;
use crate::error::Error;
use fgrpo_files as input;

/// The file name's ending.
const ENDING: &str = "gguf";
const MAGIC: &[u8] = b"GGUF";
const ALIGNMENT: u64 = 32;
/// The most keys or tensors of a file. Models have hundreds.
const MOST: u64 = 1 << 16;
/// The most entries of an array that is read: no vocabulary has as many.
const ENTRIES: u64 = 1 << 24;
/// The most bytes of a key or of a tensor's name, and the most dimensions of a tensor.
const NAME: u64 = 256;
const DIMENSIONS: u64 = 4;

/// A GGUF file, after a check that its header is valid and its tensors lie within the file.
#[derive(Debug)]
pub struct Gguf {
    path: PathBuf,
    map: Mmap,
    /// The type and place of each value.
    metadata: BTreeMap<String, (u32, usize)>,
    tensors: BTreeMap<String, Tensor>,
}

/// A tensor of a file.
#[derive(Debug, Clone)]
struct Tensor {
    kind: Kind,
    /// As Hugging Face has it: the length of a row comes last.
    shape: Vec<usize>,
    /// Its bytes: from, to.
    place: (usize, usize),
}

/// A value or count that the format doesn't allow, or bytes that are missing.
struct Fault {
    found: String,
    wanted: String,
}

fn fault<T>(found: impl Into<String>, wanted: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { found: found.into(), wanted: wanted.into() })
}

/// Reads a file's bytes in order.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, count: u64) -> Result<&'a [u8], Fault> {
        let end = usize::try_from(count).ok().and_then(|n| self.at.checked_add(n));
        let Some(taken) = end.and_then(|end| self.bytes.get(self.at..end)) else {
            return fault(
                format!("{} bytes, of which {count} are to follow byte {}", self.bytes.len(), self.at),
                "the whole file: it is truncated, copy it again",
            );
        };
        self.at += taken.len();
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        Ok(self.take(N as u64)?.try_into().expect("as many bytes"))
    }

    fn u32(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Fault> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Result<&'a str, Fault> {
        let length = self.u64()?;
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).or_else(|_| {
            let start = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
            fault(format!("{start:?}, which is not UTF-8"), "text")
        })
    }

    fn name(&mut self) -> Result<String, Fault> {
        let at = self.at;
        let _ = match self.u64()? {
            length @ 1..=NAME => self.take(length)?,
            length => return fault(format!("a name of {length} bytes"), format!("1 to {NAME} bytes")),
        };
        Ok(Cursor { bytes: self.bytes, at }.text()?.into())
    }

    /// Walks over a value of a type.
    fn skip(&mut self, kind: u32) -> Result<(), Fault> {
        match (kind, size(kind)) {
            (_, Some(size)) => self.take(size).map(drop),
            (TEXT, _) => {
                let length = self.u64()?;
                self.take(length).map(drop)
            }
            (ARRAY, _) => {
                let (element, count) = (self.u32()?, self.u64()?);
                match size(element) {
                    Some(size) => self.take(size.saturating_mul(count)).map(drop),
                    None if element == TEXT => (0..count).try_for_each(|_| self.skip(TEXT)),
                    None => fault(format!("an array of type {element}"), "numbers or texts"),
                }
            }
            _ => fault(format!("a value of type {kind}"), "a type from 0 to 12"),
        }
    }

    /// Reads a value that was walked over before.
    fn value(&mut self, kind: u32) -> Result<Value, Fault> {
        Ok(match kind {
            0 => json!(self.array::<1>()?[0]),
            1 => json!(i8::from_le_bytes(self.array()?)),
            2 => json!(u16::from_le_bytes(self.array()?)),
            3 => json!(i16::from_le_bytes(self.array()?)),
            4 => json!(self.u32()?),
            5 => json!(i32::from_le_bytes(self.array()?)),
            // The shortest decimal number, as people write it: 1e-5 rather than 9.99999974737875e-6.
            6 => json!(f32::from_le_bytes(self.array()?).to_string().parse::<f64>().expect("a number")),
            7 => json!(self.array::<1>()?[0] != 0),
            TEXT => json!(self.text()?),
            ARRAY => {
                let (element, count) = (self.u32()?, self.u64()?);
                if count > ENTRIES {
                    return fault(format!("{count} entries"), format!("at most {ENTRIES}"));
                }
                Value::Array((0..count).map(|_| self.value(element)).collect::<Result<_, _>>()?)
            }
            10 => json!(self.u64()?),
            11 => json!(i64::from_le_bytes(self.array()?)),
            _ => json!(f64::from_le_bytes(self.array()?)),
        })
    }
}

/// The types of metadata without a fixed size.
const TEXT: u32 = 8;
const ARRAY: u32 = 9;

/// The bytes of a number or truth value.
fn size(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

type Header = (BTreeMap<String, (u32, usize)>, BTreeMap<String, Tensor>);

/// The places of all values and tensors of a file's bytes.
fn header(bytes: &[u8]) -> Result<Header, Fault> {
    let mut cursor = Cursor { bytes, at: 0 };
    match cursor.take(4) {
        Ok(MAGIC) => {}
        _ if bytes.starts_with(b"version https://git-lfs") => {
            return fault("a Git LFS pointer", "the file itself; run git lfs pull");
        }
        _ => return fault("another kind of file", "a GGUF file"),
    }
    match cursor.u32()? {
        2 | 3 => {}
        version => return fault(format!("version {version}"), "version 2 or 3, little end first"),
    }
    let (tensors, keys) = (cursor.u64()?, cursor.u64()?);
    if tensors.max(keys) > MOST {
        return fault(format!("{tensors} tensors and {keys} keys"), format!("at most {MOST} of each"));
    }
    let mut metadata = BTreeMap::new();
    for _ in 0..keys {
        let (key, kind) = (cursor.name()?, cursor.u32()?);
        let place = (kind, cursor.at);
        cursor.skip(kind).map_err(|fault| Fault { found: format!("{key}: {}", fault.found), ..fault })?;
        if metadata.insert(key.clone(), place).is_some() {
            return fault(format!("the key {key} twice"), "each key once");
        }
    }
    let alignment = match metadata.get("general.alignment") {
        Some(&(kind, at)) => {
            let value = Cursor { bytes, at }.value(kind)?;
            match value.as_u64().filter(|n| n.is_power_of_two() && *n <= 1 << 20) {
                Some(n) => n,
                None => return fault(format!("general.alignment {value}"), "a power of two"),
            }
        }
        None => ALIGNMENT,
    };
    let mut infos = Vec::new();
    for _ in 0..tensors {
        let name = cursor.name()?;
        let dimensions = match cursor.u32()? {
            n @ 1.. if u64::from(n) <= DIMENSIONS => n,
            n => return fault(format!("{name} of {n} dimensions"), format!("1 to {DIMENSIONS}")),
        };
        let shape: Vec<u64> = (0..dimensions).map(|_| cursor.u64()).collect::<Result<_, _>>()?;
        infos.push((name, shape, cursor.u32()?, cursor.u64()?));
    }
    let start = (cursor.at as u64).next_multiple_of(alignment);
    let mut places = BTreeMap::new();
    for (name, mut shape, kind, offset) in infos {
        let kind = match Kind::of(kind) {
            Ok(kind) => kind,
            Err(other) => return fault(format!("{name} in {other}"), Kind::names()),
        };
        let values = shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
        let (block, size) = kind.block();
        let length = values.filter(|n| *n > 0 && shape[0].is_multiple_of(block as u64));
        let Some(length) = length.and_then(|n| (n / block as u64).checked_mul(size as u64)) else {
            return fault(format!("{name} of shape {shape:?}"), format!("rows in blocks of {block}"));
        };
        if !offset.is_multiple_of(alignment) {
            return fault(format!("{name} at byte {offset}"), format!("a multiple of {alignment}"));
        }
        let from = start.checked_add(offset);
        let Some((from, to)) = from.and_then(|from| Some((from, from.checked_add(length)?))) else {
            return fault(format!("{name} at byte {offset}"), "a place within the file");
        };
        if to > bytes.len() as u64 {
            return fault(
                format!("{} bytes", bytes.len()),
                format!("at least {to} for {name}: it is truncated, copy it again"),
            );
        }
        shape.reverse();
        let shape = shape.into_iter().map(|n| n as usize).collect();
        let tensor = Tensor { kind, shape, place: (from as usize, to as usize) };
        if places.insert(name.clone(), tensor).is_some() {
            return fault(format!("the tensor {name} twice"), "each tensor once");
        }
    }
    Ok((metadata, places))
}

impl Gguf {
    /// Whether a path is a GGUF file, by its ending.
    pub fn is(path: &Path) -> bool {
        path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case(ENDING)) && !path.is_dir()
    }

    /// Maps a file and checks its header.
    /// Fails if it can't be read, is of another kind or version, is truncated, or has a tensor of a type that isn't supported.
    pub fn open(path: &Path) -> Result<Gguf, Error> {
        let file = input::open(path).map_err(Error::io("open", path))?;
        // SAFETY: as for a safetensors file: it is opened for reading, and only a process that shortens it meanwhile can crash this one.
        let map = unsafe { Mmap::map(&file) }.map_err(Error::io("map", path))?;
        let (metadata, tensors) =
            header(&map).map_err(|fault| Error::file(path, fault.found, fault.wanted))?;
        Ok(Gguf { path: path.into(), map, metadata, tensors })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A value of the metadata; `None` if the file has no such key.
    /// Fails if a text is not UTF-8.
    pub fn value(&self, key: &str) -> Result<Option<Value>, Error> {
        let Some(&(kind, at)) = self.metadata.get(key) else { return Ok(None) };
        let value = Cursor { bytes: &self.map, at }.value(kind);
        value.map(Some).map_err(|fault| self.refuse_key(key, fault.found, fault.wanted))
    }

    /// [`Gguf::value`] as a text.
    /// Fails as [`Gguf::value`], and if it is something else.
    pub fn text(&self, key: &str) -> Result<Option<String>, Error> {
        match self.value(key)? {
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.refuse_key(key, other.to_string(), "a text")),
            None => Ok(None),
        }
    }

    /// The error of a value of the metadata.
    pub fn refuse_key(&self, key: &str, found: impl Into<String>, wanted: impl Into<String>) -> Error {
        let (found, wanted) = (found.into(), wanted.into());
        Error::Config { place: self.path.display().to_string(), field: key.into(), found, wanted }
    }

    /// Whether the file has a tensor of a Hugging Face name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.tensor(name).is_ok()
    }

    /// A tensor's values in `f32`, the rows of q and k as Hugging Face has them. Refuses a value that is not finite. The mapped pages are released.
    ///
    /// # Panics
    /// If `out` is not as long as the tensor.
    pub(super) fn read_into(&self, name: &str, config: &Config, out: &mut [f32]) -> Result<(), Error> {
        let Tensor { kind, shape, place: (from, to) } = self.tensor(name)?;
        assert_eq!(out.len(), shape.iter().product::<usize>(), "{name} has shape {shape:?}");
        let columns = *shape.last().expect("a dimension");
        let (block, size) = kind.block();
        let bytes = &self.map[*from..*to];
        let row_bytes = columns / block * size;
        let head = names::interleaved(name, config);
        out.par_chunks_mut(columns).enumerate().for_each(|(row, out)| {
            let stored = head.map_or(row, |head| names::stored_row(row, head));
            kind.decode(&bytes[stored * row_bytes..][..row_bytes], out);
        });
        release(&self.map, *from..*to);
        match out.iter().position(|x| !x.is_finite()) {
            Some(at) => Err(self.refuse(name, format!("{} at index {at}", out[at]), "finite values".into())),
            None => Ok(()),
        }
    }

    fn tensor(&self, name: &str) -> Result<&Tensor, Error> {
        let stored = names::stored(name);
        let found = stored.as_ref().and_then(|stored| self.tensors.get(stored));
        found.ok_or_else(|| {
            let wanted =
                stored.map_or("a tensor of the model".into(), |stored| format!("{stored} in this file"));
            self.refuse(name, "no such tensor".into(), wanted)
        })
    }

    fn refuse(&self, tensor: &str, found: String, wanted: String) -> Error {
        Error::tensor(self.path.clone(), tensor, found, wanted)
    }
}
