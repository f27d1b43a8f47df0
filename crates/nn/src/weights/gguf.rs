//! GGUF files, the format of llama.cpp: metadata and tensors in one memory-mapped file.
//!
//! A file is presented as the Hugging Face folder that it was made from: the metadata as the fields of a `config.json` ([`Gguf::config`]), and the
//! tensors under their Hugging Face names, with the rows of q and k in that order. Versions 2 and 3 are supported, little-endian only. Opening a file
//! scans its header once and stores only the offsets of values, so a hostile header can't use more memory than a small multiple of its size.

pub(super) mod blocks;
mod layout;
mod names;
mod write;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use rayon::prelude::*;
use serde_json::{Value, json};

use self::blocks::Kind;
use self::layout::Layout;
pub use self::names::END_TOKENS;
pub use self::write::{GgufType, Item, write_gguf};
use super::file::release;
use crate::config::Config;
use crate::error::Error;
use fgrpo_files as input;

/// File name extension.
const EXTENSION: &str = "gguf";
const MAGIC: &[u8] = b"GGUF";
const ALIGNMENT: u64 = 32;
/// Maximum number of keys and of tensors in a file. Models have hundreds.
const MOST: u64 = 1 << 16;
/// Maximum length of an array that is read, more than any vocabulary has.
const ENTRIES: u64 = 1 << 24;
/// Maximum length in bytes of a key or a tensor's name.
const NAME: u64 = 256;
/// Maximum number of dimensions of a tensor.
const DIMENSIONS: u64 = 4;

/// A GGUF file. Its header is valid, and its tensors lie within the file.
#[derive(Debug)]
pub struct Gguf {
    path: PathBuf,
    map: Mmap,
    /// Type and byte offset of each value.
    metadata: BTreeMap<String, (u32, usize)>,
    tensors: BTreeMap<String, Tensor>,
}

/// A tensor of a file.
#[derive(Debug, Clone)]
struct Tensor {
    kind: Kind,
    /// Shape in Hugging Face's order: the length of a row comes last.
    shape: Vec<usize>,
    /// Range of bytes in the file: start, end.
    range: (usize, usize),
}

/// Invalid content: a value that the format doesn't allow, or missing bytes.
struct Fault {
    found: String,
    expected: String,
}

fn fault<T>(found: impl Into<String>, expected: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { found: found.into(), expected: expected.into() })
}

/// Reads a file's bytes in order.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, count: u64) -> Result<&'a [u8], Fault> {
        let end = usize::try_from(count).ok().and_then(|n| self.at.checked_add(n));
        let Some(slice) = end.and_then(|end| self.bytes.get(self.at..end)) else {
            return fault(
                format!("{} bytes, of which {count} are to follow byte {}", self.bytes.len(), self.at),
                "the whole file; it is truncated, copy it again",
            );
        };
        self.at += slice.len();
        Ok(slice)
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

    /// Skips a value of type `kind`.
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
                    None => fault(format!("an array of type {element}"), "an array of numbers or strings"),
                }
            }
            _ => fault(format!("a value of type {kind}"), "a type from 0 to 12"),
        }
    }

    /// Reads a value that [`Cursor::skip`] has accepted.
    fn value(&mut self, kind: u32) -> Result<Value, Fault> {
        Ok(match kind {
            0 => json!(self.array::<1>()?[0]),
            1 => json!(i8::from_le_bytes(self.array()?)),
            2 => json!(u16::from_le_bytes(self.array()?)),
            3 => json!(i16::from_le_bytes(self.array()?)),
            4 => json!(self.u32()?),
            5 => json!(i32::from_le_bytes(self.array()?)),
            // The shortest decimal that rounds to this f32: 1e-5 rather than 9.99999974737875e-6.
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

/// Metadata type of strings.
const TEXT: u32 = 8;
/// Metadata type of arrays.
const ARRAY: u32 = 9;

/// Returns the number of bytes of a number or Boolean, or `None` if the type's size varies.
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

/// Scans a file's header for the positions of all values and tensors.
fn header(bytes: &[u8]) -> Result<Header, Fault> {
    let mut cursor = Cursor { bytes, at: 0 };
    match cursor.take(4) {
        Ok(MAGIC) => {}
        _ if bytes.starts_with(b"version https://git-lfs") => {
            return fault("a Git LFS pointer", "the file itself; run git lfs pull");
        }
        _ => return fault("another format", "a GGUF file"),
    }
    match cursor.u32()? {
        2 | 3 => {}
        version => return fault(format!("version {version}"), "version 2 or 3, little-endian"),
    }
    let (tensors, keys) = (cursor.u64()?, cursor.u64()?);
    if tensors.max(keys) > MOST {
        return fault(format!("{tensors} tensors and {keys} keys"), format!("at most {MOST} of each"));
    }
    let mut metadata = BTreeMap::new();
    for _ in 0..keys {
        let (key, kind) = (cursor.name()?, cursor.u32()?);
        let position = (kind, cursor.at);
        cursor.skip(kind).map_err(|fault| Fault { found: format!("{key}: {}", fault.found), ..fault })?;
        if metadata.insert(key.clone(), position).is_some() {
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
    let mut located = BTreeMap::new();
    for (name, mut shape, kind, offset) in infos {
        let kind = match Kind::new(kind) {
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
            return fault(format!("{name} at byte {offset}"), "an offset within the file");
        };
        if to > bytes.len() as u64 {
            return fault(
                format!("{} bytes", bytes.len()),
                format!("at least {to} for {name}; the file is truncated, copy it again"),
            );
        }
        shape.reverse();
        let shape = shape.into_iter().map(|n| n as usize).collect();
        let tensor = Tensor { kind, shape, range: (from as usize, to as usize) };
        if located.insert(name.clone(), tensor).is_some() {
            return fault(format!("the tensor {name} twice"), "each tensor once");
        }
    }
    Ok((metadata, located))
}

impl Gguf {
    /// Returns whether a path is a GGUF file, judging by its extension.
    pub fn is(path: &Path) -> bool {
        path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(EXTENSION)) && !path.is_dir()
    }

    /// Maps a file and checks its header.
    /// Returns an error if the file can't be read, has another format or version, is truncated, or has a tensor of an unsupported type.
    pub fn open(path: &Path) -> Result<Gguf, Error> {
        let file = input::open(path).map_err(Error::io("open", path))?;
        // SAFETY: the file is opened for reading. As with safetensors files, only a process that truncates it can crash this one.
        let map = unsafe { Mmap::map(&file) }.map_err(Error::io("map", path))?;
        let (metadata, tensors) =
            header(&map).map_err(|fault| Error::file(path, fault.found, fault.expected))?;
        Ok(Gguf { path: path.into(), map, metadata, tensors })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the value of a metadata key, or `None` if the file doesn't have it.
    /// Returns an error if a string is not UTF-8.
    pub fn value(&self, key: &str) -> Result<Option<Value>, Error> {
        let Some(&(kind, at)) = self.metadata.get(key) else { return Ok(None) };
        let value = Cursor { bytes: &self.map, at }.value(kind);
        value.map(Some).map_err(|fault| self.refuse_key(key, fault.found, fault.expected))
    }

    /// Like [`Gguf::value`], for a string. Also returns an error if the value has another type.
    pub fn text(&self, key: &str) -> Result<Option<String>, Error> {
        match self.value(key)? {
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.refuse_key(key, other.to_string(), "a string")),
            None => Ok(None),
        }
    }

    /// Returns the error about the value of a metadata key.
    pub fn refuse_key(&self, key: &str, found: impl Into<String>, expected: impl Into<String>) -> Error {
        let (found, expected) = (found.into(), expected.into());
        Error::Config { place: self.path.display().to_string(), field: key.into(), found, expected }
    }

    /// Reads a tensor's values in `f32`, as a Hugging Face checkpoint has them. Returns an error if a value is not finite. Releases the mapped pages.
    ///
    /// # Panics
    /// If `out` is not as long as the tensor.
    pub(super) fn read_into(&self, name: &str, config: &Config, out: &mut [f32]) -> Result<(), Error> {
        let Tensor { kind, shape, range: (from, to) } = self.tensor(name, config)?;
        assert_eq!(out.len(), shape.iter().product::<usize>(), "{name} has shape {shape:?}");
        let layout = Layout::new(name, shape, config);
        let (block, size) = kind.block();
        let bytes = &self.map[*from..*to];
        let row_bytes = layout.width / block * size;
        out.par_chunks_mut(layout.width).enumerate().for_each(|(row, out)| {
            kind.decode(&bytes[layout.row(row) * row_bytes..][..row_bytes], out);
            layout.read(out);
        });
        release(&self.map, *from..*to);
        match out.iter().position(|x| !x.is_finite()) {
            Some(at) => Err(self.refuse(name, format!("{} at index {at}", out[at]), "finite values".into())),
            None => Ok(()),
        }
    }

    fn tensor(&self, name: &str, config: &Config) -> Result<&Tensor, Error> {
        let stored = layout::stored(name, config);
        let tensor = stored.as_ref().and_then(|stored| self.tensors.get(stored));
        tensor.ok_or_else(|| {
            let expected =
                stored.map_or("a tensor of the model".into(), |stored| format!("{stored} in this file"));
            self.refuse(name, "no such tensor".into(), expected)
        })
    }

    fn refuse(&self, tensor: &str, found: String, expected: String) -> Error {
        Error::tensor(self.path.clone(), tensor, found, expected)
    }
}
