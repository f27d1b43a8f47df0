//! Products in bfloat16 with sums in f32: the split of numbers, the memory layout of operands, and the units that multiply them.
//!
//! A strip has 16 lines of an operand (rows of the left one, columns of the right one) in blocks of 32 terms. A block is a tile of 16 x 16 pairs of
//! terms, one KiB: `[row][pair]` on the left, `[pair][column]` on the right, as AMX reads them. If a number has two parts, a block's tile of first
//! parts is followed by a tile of second parts, and a product of two numbers is the sum of the three products that contain a first part.
//!
//! The units are AMX if the processor has it, otherwise AVX-512's bfloat16 instruction, otherwise loops in Rust. The loops are slow; with them, every
//! machine can compute the same products, up to the rounding of sums (the instructions also treat numbers below 1e-38 as 0).

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use std::sync::OnceLock;

use super::buffer::Buffer;
use super::format::{Format, LEFT_SCRATCH, Operand};
use super::level::{Level, level};
use super::microkernel::{Output, Rows};
use crate::numbers::Products;

/// Lines of a strip, and pairs of terms of a block.
const SIDE: usize = 16;
const BLOCK: usize = 2 * SIDE;
/// Pairs in a tile. A pair has the size of an `f32`.
const TILE: usize = SIDE * SIDE;

/// The unit that multiplies numbers in bfloat16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "other processors have only the portable unit")
)]
pub(crate) enum Unit {
    /// AMX, by tiles.
    Amx,
    /// AVX-512 with its extension for bfloat16.
    Avx512,
    /// Loops in Rust.
    Portable,
}

/// The best unit that the processor and the instruction set in use allow. AMX needs the system's permission, which this function requests.
pub(crate) fn unit() -> Unit {
    static UNIT: OnceLock<Unit> = OnceLock::new();
    *UNIT.get_or_init(|| {
        #[cfg(target_arch = "x86_64")]
        if level() == Level::Avx512 && is_x86_feature_detected!("avx512bf16") {
            return if amx::permitted() { Unit::Amx } else { Unit::Avx512 };
        }
        Unit::Portable
    })
}

impl Products {
    /// Name of the instructions that multiply these numbers on this processor, or `None` if bfloat16 is emulated, which is much slower than f32.
    pub fn unit(self) -> Option<&'static str> {
        match (self, unit()) {
            (Products::F32, _) => Some(level().name()),
            (_, Unit::Amx) => Some("AMX"),
            (_, Unit::Avx512) => Some("AVX-512 BF16"),
            (_, Unit::Portable) => None,
        }
    }
}

/// The side of an operand in a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hand {
    Left,
    Right,
}

/// Each number as `PARTS` numbers in bfloat16: 1 rounds it, 2 keeps the rounding error as a second number.
pub(crate) struct Bf16<const PARTS: usize>;

/// The pairs of parts of a left and a right number that are multiplied, small ones first.
const fn part_products(parts: usize) -> &'static [(usize, usize)] {
    if parts == 1 { &[(0, 0)] } else { &[(1, 0), (0, 0), (0, 1)] }
}

/// Memory of `k` terms of a line, in numbers.
fn depth<const PARTS: usize>(k: usize) -> usize {
    k.next_multiple_of(BLOCK) / 2 * PARTS
}

/// Packs `lines` lines of `terms` terms into strips.
///
/// # Safety
/// The unit must be this processor's, the lines readable, and whole strips writable.
unsafe fn pack<const PARTS: usize>(
    unit: Unit,
    hand: Hand,
    lines: usize,
    terms: usize,
    from: Operand,
    to: *mut f32,
) {
    let depth = depth::<PARTS>(terms);
    let tile = |line: usize, term: usize| {
        let (lines, block) = (SIDE.min(lines - line), BLOCK.min(terms - term));
        // SAFETY: the tile's lines and terms are the operand's, and its place is in the strips.
        unsafe {
            let (from, to) = (from.at(line, term), to.add(line * depth + term / BLOCK * PARTS * TILE));
            match unit {
                #[cfg(target_arch = "x86_64")]
                Unit::Amx | Unit::Avx512 => avx512::pack::<PARTS>(hand, lines, block, from, to),
                _ => portable::pack::<PARTS>(hand, lines, block, from, to),
            }
        }
    };
    // Along what lies together: the processor fetches long runs ahead.
    if from.line == 1 {
        for term in (0..terms).step_by(BLOCK) {
            (0..lines).step_by(SIDE).for_each(|line| tile(line, term));
        }
    } else {
        for line in (0..lines).step_by(SIDE) {
            (0..terms).step_by(BLOCK).for_each(|term| tile(line, term));
        }
    }
}

/// Covers a result of `m` by `n` by squares of `side`, of [`SIDE`] where a part is no larger: `square(side, row, column, c)`. A square that
/// exceeds the result is computed in scratch memory and copied.
///
/// # Safety
/// `m` rows of `n` numbers of `c` must be readable and writable.
unsafe fn squares(side: usize, m: usize, n: usize, c: Output, square: &dyn Fn(usize, usize, usize, Output)) {
    for row in (0..m).step_by(side) {
        for column in (0..n).step_by(side) {
            let (tall, wide) = (side.min(m - row), side.min(n - column));
            // SAFETY: a part of the result.
            let to = unsafe { c.at(row, column) };
            if side > SIDE && (tall <= SIDE || wide <= SIDE) {
                let part = |side, i, j, c| square(side, row + i, column + j, c);
                // SAFETY: as above.
                unsafe { squares(SIDE, tall, wide, to, &part) };
            } else if tall < side || wide < side {
                let mut whole = [0.0f32; 4 * TILE];
                // SAFETY: `tall` rows of `wide` numbers of the result.
                unsafe {
                    let rows = |i: usize| (to.at(i, 0).first, i * side);
                    if to.add {
                        (0..tall).map(rows).for_each(|(c, at)| {
                            std::ptr::copy_nonoverlapping(c, whole.as_mut_ptr().add(at), wide);
                        });
                    }
                    square(side, row, column, Output { first: whole.as_mut_ptr(), stride: side, ..to });
                    (0..tall).map(rows).for_each(|(c, at)| {
                        std::ptr::copy_nonoverlapping(whole.as_ptr().add(at), c, wide);
                    });
                }
            } else {
                square(side, row, column, to);
            }
        }
    }
}

/// `c = a b` over strips that are `a_strip` and `b_strip` numbers apart.
///
/// # Safety
/// The unit must be this processor's, the strips those of `m` rows and `n` columns of `k` terms, `m` rows of `n` numbers of `c` readable and writable.
unsafe fn multiply<const PARTS: usize>(
    unit: Unit,
    m: usize,
    n: usize,
    k: usize,
    a: Rows,
    b: Rows,
    c: Output,
) {
    let blocks = k.div_ceil(BLOCK);
    // SAFETY: strips of rows below `m` and columns below `n`; the result is the caller's promise.
    unsafe {
        let left = |row: usize| Rows { first: a.first.add(row / SIDE * a.stride), ..a };
        let right = |column: usize| Rows { first: b.first.add(column / SIDE * b.stride), ..b };
        match unit {
            #[cfg(target_arch = "x86_64")]
            Unit::Amx => {
                amx::begin();
                squares(2 * SIDE, m, n, c, &|side, row, column, c| {
                    let (a, b) = (left(row), right(column));
                    if side == SIDE {
                        amx::tile::<PARTS>(blocks, a.first, b.first, c);
                    } else {
                        amx::four_tiles::<PARTS>(blocks, a, b, c);
                    }
                });
                amx::end();
            }
            #[cfg(target_arch = "x86_64")]
            Unit::Avx512 => squares(SIDE, m, n, c, &|_, row, column, c| {
                avx512::tile::<PARTS>(blocks, left(row).first, right(column).first, c);
            }),
            _ => squares(SIDE, m, n, c, &|_, row, column, c| {
                portable::tile::<PARTS>(blocks, left(row).first, right(column).first, c);
            }),
        }
    }
}

impl<const PARTS: usize> Format for Bf16<PARTS> {
    fn columns() -> usize {
        2 * SIDE
    }

    fn len(n: usize, k: usize) -> usize {
        n.next_multiple_of(SIDE) * depth::<PARTS>(k)
    }

    fn panel(_: usize, k: usize, column: usize, term: usize) -> (usize, usize) {
        (column * depth::<PARTS>(k) + SIDE * depth::<PARTS>(term), SIDE * depth::<PARTS>(k))
    }

    unsafe fn pack_right(n: usize, k: usize, b: Operand, to: *mut f32) {
        // SAFETY: the caller's promises.
        unsafe { pack::<PARTS>(unit(), Hand::Right, n, k, b, to) }
    }

    unsafe fn left(m: usize, k: usize, a: Operand, packed: &mut Buffer) -> Operand {
        packed.reserve(LEFT_SCRATCH);
        // SAFETY: the caller's promises; blocks are no larger than the space.
        unsafe { pack::<PARTS>(unit(), Hand::Left, m, k, a, packed.as_mut_ptr()) };
        Operand { first: packed.as_ptr(), line: SIDE * depth::<PARTS>(k), term: 1 }
    }

    unsafe fn multiply(m: usize, n: usize, k: usize, a: Operand, b: Rows, c: Output, _: *const f32) {
        // SAFETY: the caller's promises.
        unsafe {
            let a = Rows { first: a.first, stride: a.line };
            multiply::<PARTS>(unit(), m, n, k, a, b, c);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::panels;
    use proptest::prelude::*;

    /// The units that this processor has, the portable one first.
    fn units() -> Vec<Unit> {
        match unit() {
            Unit::Portable => vec![Unit::Portable],
            Unit::Avx512 => vec![Unit::Portable, Unit::Avx512],
            Unit::Amx => vec![Unit::Portable, Unit::Avx512, Unit::Amx],
        }
    }

    fn numbers(count: usize, seed: u64) -> Vec<f32> {
        let pairs = panels::tests::numbers(2 * count, seed);
        pairs.as_chunks::<2>().0.iter().map(|[a, b]| a * (8.0 * b).exp2()).collect()
    }

    fn packed<const PARTS: usize>(
        unit: Unit,
        hand: Hand,
        lines: usize,
        terms: usize,
        from: Operand,
    ) -> Vec<f32> {
        let mut to = vec![f32::NAN; Bf16::<PARTS>::len(lines, terms)];
        // SAFETY: all of the sizes they were made with.
        unsafe { pack::<PARTS>(unit, hand, lines, terms, from, to.as_mut_ptr()) };
        to
    }

    fn bits(numbers: &[f32]) -> Vec<u32> {
        numbers.iter().map(|number| number.to_bits()).collect()
    }

    fn compare<const PARTS: usize>(m: usize, n: usize, k: usize, by_lines: bool, add: bool, seed: u64) {
        let (a, b, before) = (numbers(m * k, seed), numbers(n * k, seed + 1), numbers(m * n, seed + 2));
        let operand = |numbers: &[f32], lines: usize| {
            let (line, term) = if by_lines { (k, 1) } else { (1, lines) };
            Operand { first: numbers.as_ptr(), line, term }
        };
        let mut first: Option<Vec<f32>> = None;
        for unit in units() {
            let left = packed::<PARTS>(unit, Hand::Left, m, k, operand(&a, m));
            let right = packed::<PARTS>(unit, Hand::Right, n, k, operand(&b, n));
            let strip = SIDE * depth::<PARTS>(k);
            let run = |row: usize, rows: usize, to: &mut [f32]| {
                let of = |numbers: &[f32]| Rows { first: numbers.as_ptr(), stride: strip };
                let one = packed::<PARTS>(unit, Hand::Left, rows, k, operand(&a, m).at(row, 0));
                assert!(row > 0 || rows < m || bits(&one) == bits(&left));
                let to = Output { first: to.as_mut_ptr(), stride: n, add };
                // SAFETY: all of the sizes they were made with.
                unsafe { multiply::<PARTS>(unit, rows, n, k, of(&one), of(&right), to) };
            };
            let mut c = before.clone();
            run(0, m, &mut c);
            for row in [0, m / 2, m - 1] {
                let mut alone = before[row * n..][..n].to_vec();
                run(row, 1, &mut alone);
                assert_eq!(bits(&alone), bits(&c[row * n..][..n]), "{unit:?}: row {row} by itself");
            }
            let Some(wanted) = &first else {
                first = Some(c);
                continue;
            };
            for (hand, numbers, of) in [(Hand::Left, &left, (m, &a)), (Hand::Right, &right, (n, &b))] {
                let portable = packed::<PARTS>(Unit::Portable, hand, of.0, k, operand(of.1, of.0));
                assert_eq!(bits(numbers), bits(&portable), "{unit:?}, {hand:?}");
            }
            let size = |i: usize| -> f32 {
                let element = |numbers: &[f32], of: usize, line: usize, term: usize| {
                    if by_lines { numbers[line * k + term] } else { numbers[term * of + line] }
                };
                let pairs = (0..k).map(|t| (element(&a, m, i / n, t) * element(&b, n, i % n, t)).abs());
                before[i].abs() + pairs.sum::<f32>()
            };
            for (i, (found, wanted)) in c.iter().zip(wanted).enumerate() {
                assert!((found - wanted).abs() <= 3e-6 * size(i), "{unit:?}, {i}: {found}, wanted {wanted}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn every_unit_packs_the_same_bits_sums_alike_and_a_row_does_not_depend_on_its_neighbours(
            m in 1usize..80, n in 1usize..=32, k in 1usize..130, by_lines: bool, add: bool, seed in 0u64..1000,
        ) {
            compare::<1>(m, n, k, by_lines, add, seed);
            compare::<2>(m, n, k, by_lines, add, seed);
        }
    }

    #[test]
    fn two_parts_keep_sixteen_bits_and_what_is_no_number_stays_none() {
        for unit in units() {
            for x in [1.0f32, -1.000_123_4, 3.141_592_7e20, 2.7e-20, 0.0, f32::INFINITY, f32::NAN] {
                let from = Operand { first: &x, line: 1, term: 1 };
                let both = packed::<2>(unit, Hand::Left, 1, 1, from);
                let part = |part: usize| f32::from_bits(both[part * TILE].to_bits() << 16);
                let sum = part(0) + part(1);
                let near = (sum - x).abs() <= x.abs() / f32::from(1u16 << 15) / 2.0;
                assert!(near || !x.is_finite() && !sum.is_finite(), "{unit:?}: {x} as {sum}");
                assert_eq!(both.iter().filter(|pair| pair.to_bits() != 0).count(), {
                    usize::from(part(0) != 0.0) + usize::from(part(1) != 0.0)
                });
            }
        }
    }
}
