//! AdamW's two moments, in f32 or bf16, on the device or in page-locked host memory. In host memory, an update streams
//! them in parts through two slots of device buffers: while one part is updated, its neighbours are transferred.

use std::ops::Range;

use fgrpo_cuda::{Address, Pinned, Queue, Values};

use super::buffer::{Buffer, decode, encode};
use super::stream::{Purpose, Stream};
use crate::numbers::Precision;

/// For each slot of device buffers, index of the event after the upload.
const UPLOADED: [usize; 2] = [0, 1];
/// For each slot, index of the event after the update.
const UPDATED: [usize; 2] = [2, 3];
/// For each slot, index of the event after the download.
const DOWNLOADED: [usize; 2] = [4, 5];

/// Returns the number of values in each device buffer if the moments of `trained` parameters are in host memory: a
/// sixteenth of `trained`, at most 2^24.
pub(crate) fn part_len(trained: usize) -> usize {
    trained.div_ceil(16).min(1 << 24)
}

/// Returns the number of values in all device buffers: two of each moment.
pub(crate) fn staged_len(trained: usize) -> usize {
    4 * part_len(trained)
}

/// A moment in host memory.
struct Host {
    pinned: Pinned<u8>,
    precision: Precision,
}

impl Host {
    fn zeros(stream: &Stream, precision: Precision, len: usize) -> Option<Host> {
        Some(Host { pinned: stream.allocate_host(len * precision.bytes())?, precision })
    }

    fn len(&self) -> usize {
        self.pinned.len() / self.precision.bytes()
    }

    fn write(&mut self, stream: &Stream, first: usize, values: &[f32]) {
        let (first, bytes) = (first * self.precision.bytes(), encode(self.precision, values));
        stream.run(|| self.pinned.write(first, &bytes));
    }

    /// Reads a range of values. Returns zeros if something has failed.
    fn read(&self, stream: &Stream, span: Range<usize>) -> Vec<f32> {
        let (mut values, bytes) = (vec![0.0; span.len()], self.precision.bytes());
        stream.run(|| {
            decode(self.precision, &self.pinned.read()?[span.start * bytes..span.end * bytes], &mut values);
            Ok(())
        });
        values
    }

    /// Returns the offset and length of a part in bytes.
    fn bytes(&self, part: &Range<usize>) -> [usize; 2] {
        [part.start, part.len()].map(|values| values * self.precision.bytes())
    }

    fn upload(&mut self, stream: &Stream, part: &Range<usize>, to: Address) {
        let [first, len] = self.bytes(part);
        stream.run(|| self.pinned.upload(first, len, to));
    }

    fn download(&mut self, stream: &Stream, from: Address, part: &Range<usize>) {
        let [first, len] = self.bytes(part);
        stream.run(|| self.pinned.download(from, first, len));
    }
}

/// Both moments. They are allocated in the first step.
#[derive(Default)]
pub(super) struct Moments {
    pub(super) precision: Precision,
    offload: bool,
    device: [Buffer; 2],
    host: [Option<Host>; 2],
    /// Device buffers for offloaded moments: two slots, each with a buffer per moment.
    staged: [[Buffer; 2]; 2],
}

impl Moments {
    /// Creates moments of a number type, on the device.
    pub(super) fn new(precision: Precision) -> Moments {
        Moments { precision, ..Moments::default() }
    }

    /// Moves the moments to host memory or to the device.
    pub(super) fn set_offload(&mut self, stream: &Stream, offload: bool) {
        if offload == self.offload {
            return;
        }
        let before = std::mem::replace(self, Moments { offload, ..Moments::new(self.precision) });
        for moment in 0..2 {
            let len = before.len(moment);
            if len > 0 {
                let values = before.read(stream, moment, 0..len);
                self.make(stream, moment, len);
                self.write(stream, moment, 0, &values);
            }
        }
    }

    pub(super) fn forget(&mut self) {
        *self = Moments { offload: self.offload, ..Moments::new(self.precision) };
    }

    fn len(&self, moment: usize) -> usize {
        self.host[moment].as_ref().map_or(self.device[moment].len(), Host::len)
    }

    /// Allocates a moment of zeros, unless it exists.
    pub(super) fn make(&mut self, stream: &Stream, moment: usize, trained: usize) {
        if self.len(moment) > 0 {
            return;
        }
        if self.offload {
            self.host[moment] = Host::zeros(stream, self.precision, trained);
        } else {
            self.device[moment] = Buffer::zeros(stream, self.precision, trained, Purpose::Model);
        }
    }

    /// Returns the bytes that existing moments take on the device during a step.
    pub(super) fn bytes_on_device(&self, trained: usize) -> usize {
        let numbers = match (self.len(0), self.offload) {
            (0, _) => 0,
            (_, true) => staged_len(trained),
            (_, false) => 2 * trained,
        };
        self.precision.bytes() * numbers
    }

    /// Replaces values of an allocated moment, rounding to nearest in bf16.
    pub(super) fn write(&mut self, stream: &Stream, moment: usize, first: usize, values: &[f32]) {
        match &mut self.host[moment] {
            Some(host) => host.write(stream, first, values),
            None => self.device[moment].write(stream, first, values),
        }
    }

    /// Reads values, waiting for the device. Returns zeros if the moment isn't allocated, and unspecified values if something has failed.
    pub(super) fn read(&self, stream: &Stream, moment: usize, span: Range<usize>) -> Vec<f32> {
        if let Some(host) = &self.host[moment] {
            return host.read(stream, span);
        }
        let mut values = vec![0.0; span.len()];
        self.device[moment].read(stream, span.start, &mut values);
        values
    }

    /// Calls `update(range, moments)` for each part of the parameters, with the part of both moments on the device.
    pub(super) fn step(
        &mut self,
        stream: &Stream,
        trained: usize,
        mut update: impl FnMut(Range<usize>, [Values; 2]),
    ) {
        if !self.offload {
            return update(0..trained, self.device.each_ref().map(|moment| moment.at(0)));
        }
        let len = part_len(trained);
        for buffer in self.staged.iter_mut().flatten() {
            buffer.reserve(stream, self.precision, len, Purpose::Model);
        }
        // If host memory is missing, the stream has a failure.
        let [Some(first), Some(second)] = &mut self.host else { return };
        let mut host = [first, second];
        for (index, start) in (0..trained).step_by(len).enumerate() {
            let (slot, part) = (index % 2, start..trained.min(start + len));
            let at = self.staged[slot].each_ref().map(|buffer| buffer.at(0));
            stream.wait(Queue::Upload, DOWNLOADED[slot]);
            for (moment, to) in host.iter_mut().zip(at) {
                moment.upload(stream, &part, to.address());
            }
            stream.record_event(Queue::Upload, UPLOADED[slot]);
            stream.wait(Queue::Compute, UPLOADED[slot]);
            update(part.clone(), at);
            stream.record_event(Queue::Compute, UPDATED[slot]);
            stream.wait(Queue::Download, UPDATED[slot]);
            for (moment, from) in host.iter_mut().zip(at) {
                moment.download(stream, from.address(), &part);
            }
            stream.record_event(Queue::Download, DOWNLOADED[slot]);
        }
        // Later work of the compute queue waits until the moments are in host memory.
        DOWNLOADED.iter().for_each(|&event| stream.wait(Queue::Compute, event));
    }
}
