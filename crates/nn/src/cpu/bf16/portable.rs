//! bfloat16 products in plain Rust.

use half::bf16;

use super::super::microkernel::{Operand, Output};
use super::super::simd;
use super::{BLOCK, Hand, SIDE, TILE, part_products};

/// Packs up to 16 lines (rows of the left operand, columns of the right one) of up to 32 terms into one tile for each of the `PARTS` bfloat16 values that
/// represent a value. The rest of each tile is 0.
///
/// # Safety
/// `from` must be readable for `lines` lines of `terms` terms, and `to` writable for `PARTS` tiles.
pub(super) unsafe fn pack<const PARTS: usize>(
    hand: Hand,
    lines: usize,
    terms: usize,
    from: Operand,
    to: *mut f32,
) {
    for line in 0..SIDE {
        for pair in 0..SIDE {
            let mut bits = [0u32; PARTS];
            for half in 0..2 {
                let term = 2 * pair + half;
                if line >= lines || term >= terms {
                    continue;
                }
                // SAFETY: the value is in the operand.
                let mut rest = unsafe { *from.at(line, term).first };
                for bits in &mut bits {
                    let part = bf16::from_f32(rest);
                    *bits |= u32::from(part.to_bits()) << (16 * half);
                    rest -= part.to_f32();
                }
            }
            let at = if hand == Hand::Left { line * SIDE + pair } else { pair * SIDE + line };
            for (part, bits) in bits.into_iter().enumerate() {
                // SAFETY: inside the part's tile.
                unsafe { *to.add(part * TILE + at) = f32::from_bits(bits) };
            }
        }
    }
}

/// Computes 16 x 16 results, from one strip of each operand.
///
/// # Safety
/// `blocks` blocks of `a` and `b` must be readable, and 16 rows of 16 values of `c` readable and writable.
pub(super) unsafe fn tile<const PARTS: usize>(blocks: usize, a: *const f32, b: *const f32, c: Output) {
    const { assert!(BLOCK == 2 * SIDE) };
    let mut sums = [0.0f32; TILE];
    // SAFETY: the caller guarantees it.
    unsafe {
        if c.add {
            for (i, sums) in sums.chunks_exact_mut(SIDE).enumerate() {
                std::ptr::copy_nonoverlapping(c.at(i, 0).first, sums.as_mut_ptr(), SIDE);
            }
        }
        for block in 0..blocks {
            for &(a_part, b_part) in part_products(PARTS) {
                let tile = |x: *const f32, part: usize| {
                    std::slice::from_raw_parts(x.add((block * PARTS + part) * TILE), TILE)
                };
                simd::bf16_tile(tile(a, a_part), tile(b, b_part), &mut sums);
            }
        }
        for (i, sums) in sums.chunks_exact(SIDE).enumerate() {
            std::ptr::copy_nonoverlapping(sums.as_ptr(), c.at(i, 0).first, SIDE);
        }
    }
}
