//! bfloat16 products with AVX-512 and its bfloat16 extension.

use std::arch::x86_64::*;

use super::super::microkernel::{self, Operand, Output, RowMajor};
use super::{Hand, SIDE, TILE, part_products};

/// Converts two registers of f32 values to one register of bfloat16 values, rounding to nearest even.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn round(low: __m512, high: __m512) -> __m512i {
    let both = _mm512_cvtne2ps_pbh(high, low);
    // SAFETY: both are 512 bits.
    unsafe { std::mem::transmute::<__m512bh, __m512i>(both) }
}

/// Converts 16 bfloat16 values to f32.
#[inline]
#[target_feature(enable = "avx512f")]
fn widen(half: __m256i) -> __m512 {
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(half)))
}

/// Returns the mask of the first `count` of 16 values.
fn first(count: usize) -> u16 {
    ((1u32 << count.min(SIDE)) - 1) as u16
}

/// Packs up to 16 lines (rows of the left operand, columns of the right one) of up to 32 terms into one tile for each of the `PARTS` bfloat16 values that
/// represent a value. The rest of each tile is 0.
///
/// # Safety
/// The processor must have AVX-512 and its bfloat16 extension. `from` must be readable for `lines` lines of `terms` terms, and `to` writable for `PARTS`
/// tiles.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
pub(super) unsafe fn pack<const PARTS: usize>(
    hand: Hand,
    lines: usize,
    terms: usize,
    from: Operand,
    to: *mut f32,
) {
    // In the left operand, the pairs of a line are contiguous; in the right one, the lines of a pair. If the source's order differs, pack
    // into `scratch` and transpose.
    let by_terms = from.line == 1;
    let transposes = by_terms == (hand == Hand::Left);
    let mut scratch = [0.0f32; 2 * TILE];
    let packed = if transposes { scratch.as_mut_ptr() } else { to };
    // Indices that interleave two terms, so that each line's two values are adjacent.
    let mut pairs = [0u16; 2 * SIDE];
    pairs.iter_mut().zip(0..).for_each(|(from, i)| *from = i / 2 + i % 2 * SIDE as u16);
    // SAFETY: loads are masked to the operand's values, and stores go to the tiles.
    unsafe {
        let pairs = _mm512_loadu_si512(pairs.as_ptr().cast());
        for i in 0..SIDE {
            let (mut low, mut high) = if by_terms {
                let mask = |term: usize| if term < terms { first(lines) } else { 0 };
                let (even, odd) = (from.at(0, 2 * i).first, from.at(0, 2 * i + 1).first);
                (_mm512_maskz_loadu_ps(mask(2 * i), even), _mm512_maskz_loadu_ps(mask(2 * i + 1), odd))
            } else {
                let mask = |terms: usize| if i < lines { first(terms) } else { 0 };
                let line = from.at(i, 0).first;
                let second = line.wrapping_add(SIDE);
                (
                    _mm512_maskz_loadu_ps(mask(terms), line),
                    _mm512_maskz_loadu_ps(mask(terms.saturating_sub(SIDE)), second),
                )
            };
            for part in 0..PARTS {
                let both = round(low, high);
                let ordered = if by_terms { _mm512_permutexvar_epi16(pairs, both) } else { both };
                _mm512_storeu_ps(packed.add(part * TILE + i * SIDE), _mm512_castsi512_ps(ordered));
                if part + 1 < PARTS {
                    low = _mm512_sub_ps(low, widen(_mm512_castsi512_si256(both)));
                    high = _mm512_sub_ps(high, widen(_mm512_extracti64x4_epi64::<1>(both)));
                }
            }
        }
        if transposes {
            for part in 0..PARTS {
                let tile = RowMajor { first: packed.add(part * TILE), stride: SIDE };
                microkernel::transpose(SIDE, SIDE, tile, to.add(part * TILE), SIDE);
            }
        }
    }
}

/// Computes 16 x 16 results, from one strip of each operand.
///
/// # Safety
/// The processor must have AVX-512 and its bfloat16 extension. `blocks` blocks of `a` and `b` must be readable, and 16 rows of 16 values of `c`
/// readable and writable.
#[target_feature(enable = "avx512f,avx512bf16")]
pub(super) unsafe fn tile<const PARTS: usize>(blocks: usize, a: *const f32, b: *const f32, c: Output) {
    // SAFETY: the caller guarantees it.
    unsafe {
        let pairs = |pairs: __m512| std::mem::transmute::<__m512, __m512bh>(pairs);
        let mut sums = [_mm512_setzero_ps(); SIDE];
        if c.add {
            for (i, sums) in sums.iter_mut().enumerate() {
                *sums = _mm512_loadu_ps(c.at(i, 0).first);
            }
        }
        for block in 0..blocks {
            for &(a_part, b_part) in part_products(PARTS) {
                let a = a.add((block * PARTS + a_part) * TILE);
                let b = b.add((block * PARTS + b_part) * TILE);
                for pair in 0..SIDE {
                    let columns = pairs(_mm512_loadu_ps(b.add(pair * SIDE)));
                    for (i, sums) in sums.iter_mut().enumerate() {
                        let row = pairs(_mm512_set1_ps(*a.add(i * SIDE + pair)));
                        *sums = _mm512_dpbf16_ps(*sums, row, columns);
                    }
                }
            }
        }
        for (i, sums) in sums.iter().enumerate() {
            _mm512_storeu_ps(c.at(i, 0).first, *sums);
        }
    }
}
