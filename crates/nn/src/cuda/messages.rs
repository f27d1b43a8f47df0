//! Messages between host and device of which two are under way at the same time: one of the step that runs, one of the step ahead of it.

use fgrpo_cuda::{Address, Message};

use super::stream::Stream;

/// Room for two messages in turn.
#[derive(Debug, Default)]
pub(super) struct Messages {
    both: [Option<Message<u32>>; 2],
    /// The room of the next message.
    next: usize,
}

impl Messages {
    /// The room for the next message, of `len` words, and its number; no room if the device has failed.
    fn take(&mut self, stream: &Stream, len: usize) -> (usize, Option<&mut Message<u32>>) {
        let place = self.next;
        self.next = 1 - place;
        let message = &mut self.both[place];
        if message.as_ref().is_none_or(|message| message.room() < len) {
            *message = stream.allocate_message(len);
        }
        (place, message.as_mut())
    }

    /// Sends words to the device, in order with launches.
    pub(super) fn send(&mut self, stream: &Stream, words: &[u32], to: Address) {
        if let (_, Some(message)) = self.take(stream, words.len()) {
            stream.ask(|| message.send(words, to));
        }
    }

    /// Submits that words of the device are sent, in order with launches, and returns the number of the message.
    pub(super) fn receive(&mut self, stream: &Stream, from: Address, len: usize) -> usize {
        let (place, message) = self.take(stream, len);
        if let Some(message) = message {
            stream.ask(|| message.receive(from, len));
        }
        place
    }

    /// The words of a message. It waits for them; none if the device has failed.
    pub(super) fn read(&self, stream: &Stream, place: usize) -> &[u32] {
        let mut words: &[u32] = &[];
        if let Some(message) = &self.both[place] {
            stream.ask(|| {
                words = message.read()?;
                Ok(())
            });
        }
        words
    }
}
