//! A memory-mapped safetensors file.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use safetensors::tensor::{Metadata, SafeTensorError, SafeTensors, TensorInfo};

use super::Dtype;
use crate::error::Error;
use fgrpo_files as input;

/// A mapped safetensors file. Pages are loaded when their tensors are read.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    map: Mmap,
    /// Offset of the tensors' bytes in the file.
    start: usize,
    metadata: Metadata,
    /// Names in file order.
    names: Vec<String>,
    /// Renamed tensors: from the name in the program to the name in the file.
    stored: HashMap<String, String>,
}

impl TensorFile {
    /// Maps a file, and checks that its header is valid and covers the file to the last byte.
    pub fn open(path: &Path) -> Result<TensorFile, Error> {
        let file = input::open(path).map_err(Error::io("open", path))?;
        let length = file.metadata().map_err(Error::io("open", path))?.len();
        if length < 8 {
            return Err(Error::file(path, format!("{length} bytes"), "a safetensors file; copy it again"));
        }
        // SAFETY: the file is opened for reading. Another process that truncates it while it is mapped can crash this one, as it can
        // any mapped reader. Our own checkpoints are written under a temporary name and renamed, so they are never truncated.
        let map = unsafe { Mmap::map(&file) }.map_err(Error::io("map", path))?;
        if map.starts_with(b"version https://git-lfs") {
            return Err(Error::file(path, "a Git LFS pointer", "the file itself; run git lfs pull"));
        }
        let (header, metadata) =
            SafeTensors::read_metadata(&map).map_err(|error| header_error(path, &map, error))?;
        let names = metadata.offset_keys();
        Ok(TensorFile { path: path.into(), map, start: 8 + header, metadata, names, stored: HashMap::new() })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the tensors for which `renamed` returns a name. Returns whether there are any.
    pub(crate) fn rename(&mut self, renamed: impl Fn(&str) -> Option<String>) -> bool {
        for name in &mut self.names {
            if let Some(new) = renamed(name) {
                self.stored.insert(new.clone(), std::mem::replace(name, new));
            }
        }
        !self.stored.is_empty()
    }

    fn find(&self, name: &str) -> Option<&TensorInfo> {
        self.metadata.info(self.stored.get(name).map_or(name, String::as_str))
    }

    /// Returns the names of the tensors, in file order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Returns the header's `__metadata__`.
    pub fn metadata(&self) -> HashMap<String, String> {
        self.metadata.metadata().clone().unwrap_or_default()
    }

    /// Returns the shape of a tensor, or `None` if the file doesn't have it.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.find(name).map(|info| info.shape.as_slice())
    }

    /// Reads a tensor's values in `f32`. Returns an error if a value is not finite.
    pub fn tensor(&self, name: &str) -> Result<Vec<f32>, Error> {
        let mut out = vec![0.0; self.info(name)?.shape.iter().product()];
        self.read_into(name, &mut out)?;
        Ok(out)
    }

    /// Like [`TensorFile::tensor`], but reads into the caller's buffer. Releases the mapped pages, so memory holds each value only once.
    /// Also returns an error if `out` is not as long as the tensor.
    pub fn read_into(&self, name: &str, out: &mut [f32]) -> Result<(), Error> {
        let (bytes, dtype) = self.raw(name)?;
        let (from, to) = self.info(name)?.data_offsets;
        let values = bytes.len() / dtype.size();
        if out.len() != values {
            return Err(self.refuse(name, format!("{values} values"), format!("{} values", out.len())));
        }
        let decoded = dtype.decode(bytes, out);
        release(&self.map, self.start + from..self.start + to);
        decoded.map_err(|at| self.refuse(name, format!("{} at index {at}", out[at]), "finite values".into()))
    }

    /// Returns a tensor as stored: little-endian bytes and their type.
    pub fn raw(&self, name: &str) -> Result<(&[u8], Dtype), Error> {
        let info = self.info(name)?;
        let dtype = match info.dtype {
            safetensors::Dtype::F32 => Dtype::F32,
            safetensors::Dtype::BF16 => Dtype::BF16,
            safetensors::Dtype::F16 => Dtype::F16,
            other => return Err(self.refuse(name, format!("type {other}"), "F32, BF16 or F16".into())),
        };
        Ok((self.data(info), dtype))
    }

    fn data(&self, info: &TensorInfo) -> &[u8] {
        &self.map[self.start + info.data_offsets.0..self.start + info.data_offsets.1]
    }

    /// Returns the bytes of a U8 tensor.
    pub(super) fn bytes(&self, name: &str) -> Result<&[u8], Error> {
        let info = self.info(name)?;
        match info.dtype {
            safetensors::Dtype::U8 => Ok(self.data(info)),
            other => Err(self.refuse(name, format!("type {other}"), "U8".into())),
        }
    }

    /// Reads a U8, U32 or I64 tensor as `i64`; golden files store codes and token ids this way.
    pub fn integers(&self, name: &str) -> Result<Vec<i64>, Error> {
        let info = self.info(name)?;
        let bytes = self.data(info);
        match info.dtype {
            safetensors::Dtype::U8 => Ok(bytes.iter().map(|&b| i64::from(b)).collect()),
            safetensors::Dtype::I64 => {
                Ok(bytes.as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b)).collect())
            }
            safetensors::Dtype::U32 => {
                Ok(bytes.as_chunks::<4>().0.iter().map(|b| i64::from(u32::from_le_bytes(*b))).collect())
            }
            other => Err(self.refuse(name, format!("type {other}"), "U8, U32 or I64".into())),
        }
    }

    /// Returns an error if a tensor has another shape or an unsupported type.
    pub fn check(&self, name: &str, shape: &[usize]) -> Result<(), Error> {
        let actual = &self.info(name)?.shape;
        if actual != shape {
            return Err(self.refuse(name, format!("shape {actual:?}"), format!("shape {shape:?}")));
        }
        self.raw(name).map(|_| ())
    }

    fn info(&self, name: &str) -> Result<&TensorInfo, Error> {
        let missing = || self.refuse(name, "no such tensor".into(), "it in this file".into());
        self.find(name).ok_or_else(missing)
    }

    fn refuse(&self, tensor: &str, found: String, expected: String) -> Error {
        Error::tensor(self.path.clone(), tensor, found, expected)
    }
}

/// Releases mapped pages until they are read again, because they count as memory of this process.
pub(super) fn release(map: &Mmap, bytes: Range<usize>) {
    #[cfg(unix)]
    if !bytes.is_empty() {
        let advice = memmap2::UncheckedAdvice::DontNeed;
        // SAFETY: the map is of a file and never written to, so a dropped page is read again unchanged.
        let dropped = unsafe { map.unchecked_advise_range(advice, bytes.start, bytes.len()) };
        // If the system ignores the advice, the pages stay in memory longer.
        drop(dropped);
    }
}

/// Converts the error of a damaged header into a message for the user.
fn header_error(path: &Path, bytes: &[u8], error: SafeTensorError) -> Error {
    let header = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    match error {
        SafeTensorError::MetadataIncompleteBuffer => {
            let needed = declared_length(&bytes[8..], header).map(|n| n + 8 + header);
            let expected = match needed {
                Some(n) if n > bytes.len() as u64 => {
                    format!("{n} bytes as its header says; the file is truncated, copy it again")
                }
                Some(n) => format!("{n} bytes as its header says"),
                None => "the length its header says".into(),
            };
            Error::file(path, format!("{} bytes", bytes.len()), expected)
        }
        SafeTensorError::HeaderTooLarge | SafeTensorError::InvalidHeaderLength => Error::file(
            path,
            format!("{} bytes that announce a header of {header}", bytes.len()),
            "a safetensors file; it is truncated or of another format",
        ),
        other => {
            Error::file(path, format!("an invalid header ({other})"), "a safetensors file; copy it again")
        }
    }
}

/// Returns the end of the last tensor according to the header's JSON.
fn declared_length(bytes: &[u8], header: u64) -> Option<u64> {
    let text = bytes.get(..usize::try_from(header).ok()?)?;
    let value: serde_json::Value = serde_json::from_slice(text).ok()?;
    value.as_object()?.values().filter_map(|t| t.get("data_offsets")?.get(1)?.as_u64()).max()
}
