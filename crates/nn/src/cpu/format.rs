//! Memory layout of operands, and the interface between panels and the number formats' kernels.

use super::buffer::Buffer;
use super::microkernel::{self, Operand, Output, RowMajor};

/// Products are divided among threads at multiples of this number of columns, which is a multiple of the width of every format's panels.
pub(crate) const CUT: usize = 64;
/// Number of terms per block. A panel's block and the rows that it is multiplied by fit in the second-level cache.
pub(super) const DEEP: usize = 512;
/// Number of rows of the left operand per block.
pub(super) const BAND: usize = 32 * microkernel::TALL;
/// Distance of a packed left operand's columns: an odd number of cache lines, to avoid cache conflicts.
pub(super) const LEFT: usize = BAND + 16;
/// Size of a thread's buffer for a packed left operand, in values.
pub(crate) const LEFT_SCRATCH: usize = LEFT * DEEP;

/// The packing of operands, and the kernel that multiplies packed operands.
pub(crate) trait Format {
    /// Returns the number of columns that the kernel processes together: a divisor of [`CUT`].
    fn columns() -> usize;

    /// Returns the number of values in the panels of a right operand with `n` columns of `k` terms.
    fn len(n: usize, k: usize) -> usize;

    /// Returns the offset and stride of the panel at column `column` of `total`, from term `term` of `k` on.
    fn panel(total: usize, k: usize, column: usize, term: usize) -> (usize, usize);

    /// Packs a right operand with `n` columns of `k` terms.
    ///
    /// # Safety
    /// The operand must be readable, [`Format::len`] values writable, and the processor must support the format.
    unsafe fn pack_right(n: usize, k: usize, b: Operand, to: *mut f32);

    /// Returns a left operand of `m` rows of `k` terms, at most one block, as the kernel reads it: in place, or packed.
    ///
    /// # Safety
    /// The operand must be readable, and the processor must support the format.
    unsafe fn left(m: usize, k: usize, a: Operand, packed: &mut Buffer) -> Operand;

    /// Computes `c = a b` with one panel. `ahead` is the address of the next panel, which may be prefetched.
    ///
    /// # Safety
    /// `a` must come from [`Format::left`] and `b` from [`Format::panel`], and `m` rows of `n` values of `c` must be readable and writable.
    unsafe fn multiply_panel(
        m: usize,
        n: usize,
        k: usize,
        a: Operand,
        b: RowMajor,
        c: Output,
        ahead: *const f32,
    );
}
