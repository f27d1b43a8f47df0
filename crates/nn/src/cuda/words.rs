//! Lists of words that are built on the host and transferred to the device in one copy.

use fgrpo_cuda::{Memory, Pointer};

use super::messages::Messages;
use super::stream::{Purpose, Stream};

/// A list: the index of its first word, and its length.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct List {
    pub(super) first: usize,
    pub(super) len: usize,
}

/// Words on the host and, after the transfer, on the device.
#[derive(Debug, Default)]
pub(super) struct Words {
    host: Vec<u32>,
    device: Option<Memory<u32>>,
    messages: Messages,
}

impl Words {
    pub(super) fn clear(&mut self) {
        self.host.clear();
    }

    /// Appends a list, aligned to 16 bytes.
    pub(super) fn put(&mut self, words: impl IntoIterator<Item = u32>) -> List {
        self.host.resize(self.host.len().next_multiple_of(4), 0);
        let first = self.host.len();
        self.host.extend(words);
        List { first, len: self.host.len() - first }
    }

    /// Appends a list, padded to `len` words with `fill`.
    ///
    /// # Panics
    /// If the list is longer than `len`.
    pub(super) fn put_padded(&mut self, words: impl IntoIterator<Item = u32>, len: usize, fill: u32) -> List {
        let list = self.put(words);
        assert!(list.len <= len, "{} words in a bucket of {len}", list.len);
        self.host.resize(list.first + len, fill);
        List { len, ..list }
    }

    /// Transfers all lists to the device.
    pub(super) fn upload(&mut self, stream: &Stream) {
        if self.device.as_ref().is_none_or(|device| device.len() < self.host.len()) {
            self.device = None;
            self.device = stream.allocate(self.host.len().next_power_of_two(), Purpose::Pass);
        }
        if let Some(device) = &self.device {
            self.messages.send(stream, &self.host, device.at(0));
        }
    }

    /// Returns the device address of word `index` of a list.
    pub(super) fn at(&self, list: List, index: usize) -> Pointer<u32> {
        self.device.as_ref().map_or(Pointer::NULL, |device| device.pointer(list.first + index))
    }

    /// Returns the content of a list on the host.
    pub(super) fn host(&self, list: List) -> &[u32] {
        &self.host[list.first..list.first + list.len]
    }
}
