//! AdamW's two moments, in f32 or bf16: on the device, or in page-locked memory of the host. From there a step takes them in parts through two device
//! buffers: while one part is updated, the next one comes and the previous one leaves.

use std::borrow::Cow;
use std::ops::Range;

use fgrpo_cuda::{Address, Pinned, Queue};

use super::buffer::{Buffer, rounded, widened};
use super::stream::{Purpose, Stream};
use crate::numbers::Precision;

/// Marks of the queues' work, by device buffer: its part came, was updated, and left.
const CAME: [usize; 2] = [0, 1];
const UPDATED: [usize; 2] = [2, 3];
const LEFT: [usize; 2] = [4, 5];

/// Numbers of a moment that a device buffer holds, if `trained` parameters have moments in host memory: a sixteenth, at most 2^24.
pub(crate) fn part_len(trained: usize) -> usize {
    trained.div_ceil(16).min(1 << 24)
}

/// Numbers of all device buffers: two of each moment.
pub(crate) fn staged_len(trained: usize) -> usize {
    4 * part_len(trained)
}

/// A moment in host memory.
enum Host {
    Full(Pinned<f32>),
    Half(Pinned<u16>),
}

impl Host {
    /// `len` zeros.
    fn zeros(stream: &Stream, precision: Precision, len: usize) -> Option<Host> {
        match precision {
            Precision::F32 => stream.allocate_host(len).map(Host::Full),
            Precision::Bf16 => stream.allocate_host(len).map(Host::Half),
        }
    }

    fn len(&self) -> usize {
        match self {
            Host::Full(pinned) => pinned.len(),
            Host::Half(pinned) => pinned.len(),
        }
    }

    fn write(&mut self, stream: &Stream, first: usize, values: &[f32]) {
        stream.ask(|| match self {
            Host::Full(pinned) => pinned.write(first, values),
            Host::Half(pinned) => pinned.write(first, &rounded(values)),
        });
    }

    /// Empty if something has failed.
    fn read(&self, stream: &Stream, span: Range<usize>) -> Cow<'_, [f32]> {
        fn part<'a, T: Copy>(stream: &Stream, pinned: &'a Pinned<T>, span: Range<usize>) -> &'a [T] {
            let mut found: &[T] = &[];
            stream.ask(|| {
                found = pinned.read()?;
                Ok(())
            });
            found.get(span).unwrap_or_default()
        }
        match self {
            Host::Full(pinned) => Cow::Borrowed(part(stream, pinned, span)),
            Host::Half(pinned) => part(stream, pinned, span).iter().map(|&bits| widened(bits)).collect(),
        }
    }

    fn upload(&mut self, stream: &Stream, part: &Range<usize>, to: Address) {
        stream.ask(|| match self {
            Host::Full(pinned) => pinned.upload(part.start, part.len(), to),
            Host::Half(pinned) => pinned.upload(part.start, part.len(), to),
        });
    }

    fn download(&mut self, stream: &Stream, from: Address, part: &Range<usize>) {
        stream.ask(|| match self {
            Host::Full(pinned) => pinned.download(from, part.start, part.len()),
            Host::Half(pinned) => pinned.download(from, part.start, part.len()),
        });
    }
}

/// The moments. They are missing until the first step.
#[derive(Default)]
pub(super) struct Moments {
    pub(super) precision: Precision,
    offload: bool,
    device: [Buffer; 2],
    host: [Option<Host>; 2],
    /// Each holds a part of both moments.
    staged: [[Buffer; 2]; 2],
}

impl Moments {
    /// Moments of a number type, on the device.
    pub(super) fn new(precision: Precision) -> Moments {
        Moments { precision, ..Moments::default() }
    }

    /// Keeps the moments in host memory, or on the device.
    pub(super) fn set_offload(&mut self, stream: &Stream, offload: bool) {
        if offload == self.offload {
            return;
        }
        let before = std::mem::replace(self, Moments { offload, ..Moments::new(self.precision) });
        for moment in 0..2 {
            let len = before.len(moment);
            if len > 0 {
                let values = before.read(stream, moment, 0..len).into_owned();
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

    /// Makes a moment of zeros, if it is missing.
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

    /// Bytes that a step has on the device, if there are moments.
    pub(super) fn bytes_on_device(&self, trained: usize) -> usize {
        let numbers = match (self.len(0), self.offload) {
            (0, _) => 0,
            (_, true) => staged_len(trained),
            (_, false) => 2 * trained,
        };
        self.precision.bytes() * numbers
    }

    /// Overwrites numbers of a moment that was made; in bf16, rounded to nearest.
    pub(super) fn write(&mut self, stream: &Stream, moment: usize, first: usize, values: &[f32]) {
        match &mut self.host[moment] {
            Some(host) => host.write(stream, first, values),
            None => self.device[moment].write(stream, first, values),
        }
    }

    /// Waits. Zeros if the moment is missing, unspecified if something has failed.
    pub(super) fn read(&self, stream: &Stream, moment: usize, span: Range<usize>) -> Cow<'_, [f32]> {
        if let Some(host) = &self.host[moment] {
            return host.read(stream, span);
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
            buffer.reserve(stream, self.precision, len, Purpose::Model);
        }
        // Missing: the stream has the failure.
        let [Some(first), Some(second)] = &mut self.host else { return };
        let mut host = [first, second];
        for (index, start) in (0..trained).step_by(len).enumerate() {
            let (slot, part) = (index % 2, start..trained.min(start + len));
            let at = self.staged[slot].each_ref().map(|buffer| buffer.at(0));
            stream.wait(Queue::Upload, LEFT[slot]);
            for (moment, to) in host.iter_mut().zip(at) {
                moment.upload(stream, &part, to);
            }
            stream.record(Queue::Upload, CAME[slot]);
            stream.wait(Queue::Compute, CAME[slot]);
            update(part.clone(), at);
            stream.record(Queue::Compute, UPDATED[slot]);
            stream.wait(Queue::Download, UPDATED[slot]);
            for (moment, from) in host.iter_mut().zip(at) {
                moment.download(stream, from, &part);
            }
            stream.record(Queue::Download, LEFT[slot]);
        }
        // Whoever waits for the computation finds the moments in their place.
        LEFT.iter().for_each(|&left| stream.wait(Queue::Compute, left));
    }
}
