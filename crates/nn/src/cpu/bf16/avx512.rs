//! Products in bfloat16 by AVX-512 with its bfloat16 extension.

use std::arch::x86_64::*;

use super::super::format::Operand;
use super::super::microkernel::{self, Output, Rows};
use super::{Hand, SIDE, TILE, part_products};

/// Converts two registers of numbers to one register in bfloat16, rounded to even.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn rounded(low: __m512, high: __m512) -> __m512i {
    let both = _mm512_cvtne2ps_pbh(high, low);
    // SAFETY: both are 512 bits.
    unsafe { std::mem::transmute::<__m512bh, __m512i>(both) }
}

/// The first 16 of a register's numbers in bfloat16.
#[inline]
#[target_feature(enable = "avx512f")]
fn widened(half: __m256i) -> __m512 {
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(half)))
}

/// The mask of the first `count` of 16 numbers.
fn first(count: usize) -> u16 {
    ((1u32 << count.min(SIDE)) - 1) as u16
}

/// Packs one tile per part; elements beyond the lines and terms become 0.
///
/// # Safety
/// The processor must have AVX-512 and its extension; the lines and terms must be readable, `PARTS` tiles writable.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
pub(super) unsafe fn pack<const PARTS: usize>(
    hand: Hand,
    lines: usize,
    terms: usize,
    from: Operand,
    to: *mut f32,
) {
    // Pairs of a line lie together in the left operand, those of a pair of terms in the right one.
    let by_terms = from.line == 1;
    let turned = by_terms == (hand == Hand::Left);
    let mut own = [0.0f32; 2 * TILE];
    let place = if turned { own.as_mut_ptr() } else { to };
    // Of numbers of two terms, those of each line side by side.
    let mut pairs = [0u16; 2 * SIDE];
    pairs.iter_mut().zip(0..).for_each(|(from, i)| *from = i / 2 + i % 2 * SIDE as u16);
    // SAFETY: loads are masked to the operand's numbers, stores go to the tiles.
    unsafe {
        let pairs = _mm512_loadu_si512(pairs.as_ptr().cast());
        for i in 0..SIDE {
            let (mut low, mut high) = if by_terms {
                let of = |term: usize| if term < terms { first(lines) } else { 0 };
                let (even, odd) = (from.at(0, 2 * i).first, from.at(0, 2 * i + 1).first);
                (_mm512_maskz_loadu_ps(of(2 * i), even), _mm512_maskz_loadu_ps(of(2 * i + 1), odd))
            } else {
                let of = |terms: usize| if i < lines { first(terms) } else { 0 };
                let line = from.at(i, 0).first;
                let second = line.wrapping_add(SIDE);
                (
                    _mm512_maskz_loadu_ps(of(terms), line),
                    _mm512_maskz_loadu_ps(of(terms.saturating_sub(SIDE)), second),
                )
            };
            for part in 0..PARTS {
                let both = rounded(low, high);
                let ordered = if by_terms { _mm512_permutexvar_epi16(pairs, both) } else { both };
                _mm512_storeu_ps(place.add(part * TILE + i * SIDE), _mm512_castsi512_ps(ordered));
                if part + 1 < PARTS {
                    low = _mm512_sub_ps(low, widened(_mm512_castsi512_si256(both)));
                    high = _mm512_sub_ps(high, widened(_mm512_extracti64x4_epi64::<1>(both)));
                }
            }
        }
        if turned {
            for part in 0..PARTS {
                let own = Rows { first: place.add(part * TILE), stride: SIDE };
                microkernel::transpose(SIDE, SIDE, own, to.add(part * TILE), SIDE);
            }
        }
    }
}

/// 16 x 16 results of one strip each.
///
/// # Safety
/// The processor must have AVX-512 and its extension; `blocks` blocks of `a` and `b` must be readable, 16 rows of 16 numbers of `c` readable and writable.
#[target_feature(enable = "avx512f,avx512bf16")]
pub(super) unsafe fn tile<const PARTS: usize>(blocks: usize, a: *const f32, b: *const f32, c: Output) {
    // SAFETY: the caller's promises.
    unsafe {
        let pairs = |pairs: __m512| std::mem::transmute::<__m512, __m512bh>(pairs);
        let mut sums = [_mm512_setzero_ps(); SIDE];
        if c.add {
            for (i, sums) in sums.iter_mut().enumerate() {
                *sums = _mm512_loadu_ps(c.at(i, 0).first);
            }
        }
        for block in 0..blocks {
            for &(of_a, of_b) in part_products(PARTS) {
                let a = a.add((block * PARTS + of_a) * TILE);
                let b = b.add((block * PARTS + of_b) * TILE);
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
