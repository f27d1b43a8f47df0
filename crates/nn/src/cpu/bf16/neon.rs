//! bfloat16 products with NEON and aarch64's bfloat16 extension. Rust's intrinsics for the extension aren't stable yet, so its two instructions
//! are written as assembly.

use std::arch::aarch64::*;
use std::arch::asm;

use super::super::microkernel::{self, Operand, Output, RowMajor};
use super::{BLOCK, Hand, SIDE, TILE, part_products, portable};

/// Number of values in a register.
const LANES: usize = 4;
/// Number of rows whose sums fit in the registers.
const ROWS: usize = 4;

/// Converts two registers of f32 values to one register of bfloat16 values, rounding to nearest even.
#[inline]
#[target_feature(enable = "neon,bf16")]
fn round(low: float32x4_t, high: float32x4_t) -> uint16x8_t {
    let both;
    // SAFETY: the instructions write one register, and the processor has them.
    unsafe {
        asm!(
            "bfcvtn {both:v}.4h, {low:v}.4s",
            "bfcvtn2 {both:v}.8h, {high:v}.4s",
            both = out(vreg) both, low = in(vreg) low, high = in(vreg) high,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    both
}

/// Adds to each of four sums the product of a pair of `columns` with the pair at `PAIR` of `row`.
#[inline]
#[target_feature(enable = "neon,bf16")]
fn add_products<const PAIR: usize>(sums: &mut float32x4_t, columns: float32x4_t, row: float32x4_t) {
    // SAFETY: the instruction changes one register, and the processor has it.
    unsafe {
        asm!(
            "bfdot {sums:v}.4s, {columns:v}.8h, {row:v}.2h[{pair}]",
            sums = inout(vreg) *sums, columns = in(vreg) columns, row = in(vreg) row, pair = const PAIR,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
}

/// Packs up to 16 lines (rows of the left operand, columns of the right one) of up to 32 terms into one tile for each of the `PARTS` bfloat16 values that
/// represent a value. The rest of each tile is 0.
///
/// # Safety
/// The processor must have the bfloat16 extension. `from` must be readable for `lines` lines of `terms` terms, and `to` writable for `PARTS` tiles.
#[target_feature(enable = "neon,bf16")]
pub(super) unsafe fn pack<const PARTS: usize>(
    hand: Hand,
    lines: usize,
    terms: usize,
    from: Operand,
    to: *mut f32,
) {
    let by_terms = from.line == 1;
    // Loads have no masks here, so the edges of an operand are left to the portable loops.
    if lines < SIDE || terms < BLOCK {
        // SAFETY: the caller guarantees it.
        return unsafe { portable::pack::<PARTS>(hand, lines, terms, from, to) };
    }
    // As for AVX-512, but a register has four pairs.
    let transposes = by_terms == (hand == Hand::Left);
    let mut scratch = [0.0f32; 2 * TILE];
    let packed = if transposes { scratch.as_mut_ptr() } else { to };
    // SAFETY: a whole tile is readable, and stores go to the tiles.
    unsafe {
        for at in (0..TILE).step_by(LANES) {
            let (i, pair) = (at / SIDE, at % SIDE);
            let (mut low, mut high) = if by_terms {
                (vld1q_f32(from.at(pair, 2 * i).first), vld1q_f32(from.at(pair, 2 * i + 1).first))
            } else {
                let line = from.at(i, 2 * pair).first;
                (vld1q_f32(line), vld1q_f32(line.add(LANES)))
            };
            for part in 0..PARTS {
                let both = round(low, high);
                let ordered = if by_terms {
                    vreinterpretq_f32_u16(vzip1q_u16(both, vextq_u16::<4>(both, both)))
                } else {
                    vreinterpretq_f32_u16(both)
                };
                vst1q_f32(packed.add(part * TILE + at), ordered);
                let widen = |half: uint16x4_t| vreinterpretq_f32_u32(vshll_n_u16::<16>(half));
                low = vsubq_f32(low, widen(vget_low_u16(both)));
                high = vsubq_f32(high, widen(vget_high_u16(both)));
            }
        }
        if transposes {
            for part in 0..PARTS {
                let (packed, to) = (packed.add(part * TILE), to.add(part * TILE));
                for row in (0..SIDE).step_by(LANES) {
                    for column in (0..SIDE).step_by(LANES) {
                        let square = RowMajor { first: packed.add(row * SIDE + column), stride: SIDE };
                        microkernel::transpose(LANES, LANES, square, to.add(column * SIDE + row), SIDE);
                    }
                }
            }
        }
    }
}

/// Computes 16 x 16 results, from one strip of each operand.
///
/// # Safety
/// The processor must have the bfloat16 extension. `blocks` blocks of `a` and `b` must be readable, and 16 rows of 16 values of `c` readable and
/// writable.
#[target_feature(enable = "neon,bf16")]
pub(super) unsafe fn tile<const PARTS: usize>(blocks: usize, a: *const f32, b: *const f32, c: Output) {
    for first_row in (0..SIDE).step_by(ROWS) {
        // SAFETY: the caller guarantees it.
        unsafe {
            let result = |row: usize, column: usize| c.at(first_row + row, LANES * column).first;
            let mut sums = [[vdupq_n_f32(0.0); SIDE / LANES]; ROWS];
            let places = || (0..ROWS).flat_map(|row| (0..SIDE / LANES).map(move |column| (row, column)));
            if c.add {
                places().for_each(|(row, column)| sums[row][column] = vld1q_f32(result(row, column)));
            }
            for block in 0..blocks {
                for &(a_part, b_part) in part_products(PARTS) {
                    let a = a.add((block * PARTS + a_part) * TILE + first_row * SIDE);
                    let b = b.add((block * PARTS + b_part) * TILE);
                    for pair in (0..SIDE).step_by(LANES) {
                        let rows: [_; ROWS] = std::array::from_fn(|row| vld1q_f32(a.add(row * SIDE + pair)));
                        macro_rules! products {
                            ($($at:literal)*) => {$(
                                let columns: [_; SIDE / LANES] =
                                    std::array::from_fn(|j| vld1q_f32(b.add((pair + $at) * SIDE + LANES * j)));
                                for (sums, row) in sums.iter_mut().zip(rows) {
                                    for (sums, columns) in sums.iter_mut().zip(columns) {
                                        add_products::<$at>(sums, columns, row);
                                    }
                                }
                            )*};
                        }
                        products!(0 1 2 3);
                    }
                }
            }
            places().for_each(|(row, column)| vst1q_f32(result(row, column), sums[row][column]));
        }
    }
}
