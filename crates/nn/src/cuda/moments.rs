//! AdamW's two moments: on the device, or in page-locked memory of the host. From there a step takes them in parts through two device buffers: while
//! one part is updated, the next one comes and the previous one leaves.

use std::borrow::Cow;
use std::ops::Range;

use fgrpo_cuda::{Address, Pinned, Queue};

use super::buffer::Buffer;
use super::stream::{Purpose, Stream};
use crate::engine::Precision;

/// Marks of the queues' work, by device buffer: its part came, was updated, and left.
const CAME: [usize; 2] = [0, 1];
const UPDATED: [usize; 2] = [2, 3];
const LEFT: [usize; 2] = [4, 5];

/// Numbers of a moment that a device buffer holds, if `trained` parameters have moments in host memory: a sixteenth, at most 64 MiB.
pub(crate) fn part_len(trained: usize) -> usize {
    trained.div_ceil(16).min(1 << 24)
}

/// Numbers of all device buffers: two of each moment.
pub(crate) fn staged_len(trained: usize) -> usize {
    4 * part_len(trained)
}

/// The moments. They are missing until the first step.
#[derive(Default)]
pub(super) struct Moments {
    offload: bool,
    device: [Buffer; 2],
    host: [Option<Pinned<f32>>; 2],
    /// Each holds a part of both moments.
    staged: [[Buffer; 2]; 2],
}

impl Moments {
    /// Keeps the moments in host memory, or on the device.
    pub(super) fn set_offload(&mut self, stream: &Stream, offload: bool) {
        if offload == self.offload {
            return;
        }
        let before = std::mem::replace(self, Moments { offload, ..Moments::default() });
        for moment in 0..2 {
            let len = before.len(moment);
            if len > 0 {
                let values = before.read(stream, moment, 0..len).into_owned();
                self.make(stream, moment, len);
                self.write(stream, moment, 0, &values);
            }
        }
    }

    /// Drops them.
    pub(super) fn forget(&mut self) {
        *self = Moments { offload: self.offload, ..Moments::default() };
    }

    fn len(&self, moment: usize) -> usize {
        self.host[moment].as_ref().map_or(self.device[moment].len(), Pinned::len)
    }

    /// Makes a moment of zeros, if it is missing.
    pub(super) fn make(&mut self, stream: &Stream, moment: usize, trained: usize) {
        if self.len(moment) > 0 {
            return;
        }
        if self.offload {
            self.host[moment] = stream.allocate_host(trained);
        } else {
            self.device[moment] = Buffer::zeros(stream, Precision::F32, trained, Purpose::Model);
        }
    }

    /// Numbers that a step has on the device, if there are moments.
    pub(super) fn len_on_device(&self, trained: usize) -> usize {
        match (self.len(0), self.offload) {
            (0, _) => 0,
            (_, true) => staged_len(trained),
            (_, false) => 2 * trained,
        }
    }

    /// Overwrites numbers of a moment that was made.
    pub(super) fn write(&mut self, stream: &Stream, moment: usize, first: usize, values: &[f32]) {
        match &mut self.host[moment] {
            Some(pinned) => stream.ask(|| pinned.write(first, values)),
            None => self.device[moment].write(stream, first, values),
        }
    }

    /// Waits. Zeros if the moment is missing, unspecified if something has failed.
    pub(super) fn read(&self, stream: &Stream, moment: usize, span: Range<usize>) -> Cow<'_, [f32]> {
        if let Some(pinned) = &self.host[moment] {
            let mut found: &[f32] = &[];
            stream.ask(|| {
                found = pinned.read()?;
                Ok(())
            });
            return Cow::Borrowed(found.get(span).unwrap_or_default());
        }
        let mut values = vec![0.0; span.len()];
        self.device[moment].read(stream, span.start, &mut values);
        Cow::Owned(values)
    }

    /// Calls `update` for all numbers: part by part, with the addresses of each moment's first number.
    pub(super) fn step(
        &mut self,
        stream: &Stream,
        trained: usize,
        mut update: impl FnMut(Range<usize>, [Address; 2]),
    ) {
        if !self.offload {
            return update(0..trained, self.device.each_ref().map(|moment| moment.at(0)));
        }
        let len = part_len(trained);
        for buffer in self.staged.iter_mut().flatten() {
            buffer.reserve(stream, Precision::F32, len, Purpose::Model);
        }
        // Missing: the stream has the failure.
        let [Some(first), Some(second)] = &mut self.host else { return };
        let mut host = [first, second];
        for (index, start) in (0..trained).step_by(len).enumerate() {
            let (slot, part) = (index % 2, start..trained.min(start + len));
            let at = self.staged[slot].each_ref().map(|buffer| buffer.at(0));
            stream.wait(Queue::Upload, LEFT[slot]);
            for (moment, to) in host.iter_mut().zip(at) {
                stream.ask(|| moment.upload(part.start, part.len(), to));
            }
            stream.record(Queue::Upload, CAME[slot]);
            stream.wait(Queue::Compute, CAME[slot]);
            update(part.clone(), at);
            stream.record(Queue::Compute, UPDATED[slot]);
            stream.wait(Queue::Download, UPDATED[slot]);
            for (moment, from) in host.iter_mut().zip(at) {
                stream.ask(|| moment.download(from, part.start, part.len()));
            }
            stream.record(Queue::Download, LEFT[slot]);
        }
        // Whoever waits for the computation finds the moments in their place.
        LEFT.iter().for_each(|&left| stream.wait(Queue::Compute, left));
    }
}
