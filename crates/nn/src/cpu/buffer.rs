//! Cache-line-aligned arrays, whose pages the system allocates when a thread first writes them.

use std::ops::{Deref, DerefMut};

/// Number of values per cache line.
const LINE: usize = 16;

/// An array of `f32` that starts on a cache line. The system allocates its pages, zeroed, when they are first written.
#[derive(Default)]
pub(crate) struct Buffer {
    /// The values. This vector is never resized, so they never move.
    numbers: Vec<f32>,
    start: usize,
    len: usize,
}

impl Buffer {
    pub(crate) fn zeros(len: usize) -> Buffer {
        let numbers = vec![0.0f32; if len == 0 { 0 } else { len + LINE }];
        let start = if len == 0 { 0 } else { numbers.as_ptr().align_offset(4 * LINE) };
        Buffer { numbers, start, len }
    }

    /// Grows to at least `len`. If it grows, the content is lost.
    pub(crate) fn reserve(&mut self, len: usize) {
        if len > self.len {
            // Free the old memory first.
            *self = Buffer::default();
            *self = Buffer::zeros(len);
        }
    }

    /// Like [`Buffer::extend`], but grows by at least an eighth, to bound both the cost of copies and the unused memory.
    pub(crate) fn extend_by_eighths(&mut self, len: usize) {
        if len > self.len {
            self.extend(len.max(self.len + self.len / 8));
        }
    }

    /// Grows to at least `len`, and retains the content.
    pub(crate) fn extend(&mut self, len: usize) {
        if len > self.len {
            let mut longer = Buffer::zeros(len);
            longer[..self.len].copy_from_slice(self);
            *self = longer;
        }
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.numbers[self.start..self.start + self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.numbers[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_starts_on_a_cache_line_and_extend_retains_its_content() {
        let mut buffer = Buffer::zeros(5);
        buffer.fill(1.0);
        assert_eq!(buffer.as_ptr() as usize % 64, 0);
        buffer.extend(1000);
        assert_eq!((buffer[4], buffer[5], buffer.len()), (1.0, 0.0, 1000));
        buffer.reserve(10);
        assert_eq!((buffer[4], buffer.len()), (1.0, 1000));
        buffer.reserve(100_000);
        assert_eq!((buffer.len(), buffer.as_ptr() as usize % 64), (100_000, 0));
    }
}
