//! Numbers on cache lines.

use std::ops::{Deref, DerefMut};

/// One cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// A growing run of `f32` that starts on a cache line.
#[derive(Clone, Default)]
pub(crate) struct Buffer {
    lines: Vec<Line>,
    len: usize,
}

impl Buffer {
    /// `len` zeros.
    pub(crate) fn zeros(len: usize) -> Buffer {
        Buffer { lines: vec![Line([0.0; 16]); len.div_ceil(16)], len }
    }

    /// At least `len` long, exactly where it has to grow; keeps what it holds.
    pub(crate) fn reserve(&mut self, len: usize) {
        if len > self.len {
            self.len = len;
            let lines = len.div_ceil(16);
            if lines > self.lines.len() {
                self.lines.reserve_exact(lines - self.lines.len());
                self.lines.resize(lines, Line([0.0; 16]));
            }
        }
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: a Line is 16 f32 without padding, and `len` never exceeds the lines.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above, and the borrow is unique.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}
