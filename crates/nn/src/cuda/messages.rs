//! Messages between host and device. Two can be in flight: one of the running step, and one of the step submitted ahead.

use fgrpo_cuda::{Address, Message};

use super::stream::Stream;

/// Two message buffers, used alternately.
#[derive(Debug, Default)]
pub(super) struct Messages {
    both: [Option<Message<u32>>; 2],
    /// Index of the next message's buffer.
    next: usize,
}

impl Messages {
    /// Returns the index and buffer of the next message, of `len` words. After a failure the buffer is `None`.
    fn take(&mut self, stream: &Stream, len: usize) -> (usize, Option<&mut Message<u32>>) {
        let index = self.next;
        self.next = 1 - index;
        let message = &mut self.both[index];
        if message.as_ref().is_none_or(|message| message.room() < len) {
            *message = stream.allocate_message(len);
        }
        (index, message.as_mut())
    }

    /// Sends words to the device, in stream order.
    pub(super) fn send(&mut self, stream: &Stream, words: &[u32], to: Address) {
        if let (_, Some(message)) = self.take(stream, words.len()) {
            stream.run(|| message.send(words, to));
        }
    }

    /// Submits a copy of `len` words to the host, in stream order, and returns the index of the message.
    pub(super) fn receive(&mut self, stream: &Stream, from: Address, len: usize) -> usize {
        let (index, message) = self.take(stream, len);
        if let Some(message) = message {
            stream.run(|| message.receive(from, len));
        }
        index
    }

    /// Waits for a message and returns its words, or an empty slice if the device has failed.
    pub(super) fn read(&self, stream: &Stream, index: usize) -> &[u32] {
        let mut words: &[u32] = &[];
        if let Some(message) = &self.both[index] {
            stream.run(|| {
                words = message.read()?;
                Ok(())
            });
        }
        words
    }
}
