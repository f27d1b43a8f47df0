//! How operands lie in memory and how a number format packs them: what panels and the formats' kernels agree on.

use super::buffer::Buffer;
use super::microkernel::{self, Output, Rows};

/// The columns of every format's panels divide this: products are cut at its multiples.
pub(crate) const CUT: usize = 64;
/// Terms per block: a panel's block and the rows that pass it stay in the second-level cache.
pub(super) const DEEP: usize = 512;
/// Rows of the left operand per block.
pub(super) const BAND: usize = 32 * microkernel::TALL;
/// Distance of a packed left operand's columns: an odd number of cache lines, to avoid cache conflicts.
pub(super) const LEFT: usize = BAND + 16;
/// Largest buffer of a thread for a packed left operand, in numbers.
pub(crate) const LEFT_SCRATCH: usize = LEFT * DEEP;

/// An operand in place. Its lines, which are rows on the left and columns on the right, are `line` numbers apart, and the terms of a line are `term`
/// apart. One of the two is 1.
#[derive(Clone, Copy)]
pub(crate) struct Operand {
    pub(crate) first: *const f32,
    pub(crate) line: usize,
    pub(crate) term: usize,
}

impl Operand {
    /// The operand from a line and a term on. This is only an address, which may be out of bounds.
    pub(crate) fn at(self, line: usize, term: usize) -> Operand {
        Operand { first: self.first.wrapping_add(line * self.line + term * self.term), ..self }
    }

    /// By its lines, if their terms are next to each other.
    pub(super) fn lines(self) -> Rows {
        Rows { first: self.first, stride: self.line }
    }

    /// By its terms, if lines are next to each other.
    pub(super) fn terms(self) -> Rows {
        Rows { first: self.first, stride: self.term }
    }
}

/// The packing of operands, and the kernel that multiplies packed operands.
pub(crate) trait Format {
    /// Columns that the kernel processes together: a divisor of [`CUT`].
    fn columns() -> usize;

    /// Numbers in the panels of a right operand of `n` columns of `k` terms.
    fn len(n: usize, k: usize) -> usize;

    /// The start of the panel with column `column` of `of`, from term `term` of `k` on, and the stride for the kernel.
    fn panel(of: usize, k: usize, column: usize, term: usize) -> (usize, usize);

    /// Packs a right operand of `n` columns of `k` terms.
    ///
    /// # Safety
    /// The operand must be readable, [`Format::len`] numbers writable, and the processor must support the format.
    unsafe fn pack_right(n: usize, k: usize, b: Operand, to: *mut f32);

    /// `m` rows of `k` terms in the kernel's order: in place, or packed. There is at most one block.
    ///
    /// # Safety
    /// The operand must be readable, and the processor must support the format.
    unsafe fn left(m: usize, k: usize, a: Operand, packed: &mut Buffer) -> Operand;

    /// `c = a b` with one panel. The next panel begins at `ahead`.
    ///
    /// # Safety
    /// `a` must come from [`Format::left`], `b` from [`Format::panel`], `m` rows of `n` numbers of `c` be readable and writable.
    unsafe fn multiply(m: usize, n: usize, k: usize, a: Operand, b: Rows, c: Output, ahead: *const f32);
}
