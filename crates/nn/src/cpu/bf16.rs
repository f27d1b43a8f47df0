//! Products in bfloat16 with sums in f32: splitting of values, memory layout of operands, and the units that multiply.
//!
//! A strip is 16 lines of an operand (rows of the left one, columns of the right one), in blocks of 32 terms. A block is a tile of 16 x 16 pairs
//! of terms, 1 KiB: `[row][pair]` on the left and `[pair][column]` on the right, the layout that AMX reads. If values have two parts, a block's
//! tile of first parts is followed by its tile of second parts, and the product of two values is the sum of the three products that contain a
//! first part.
//!
//! The unit is AMX if the processor has it, otherwise the bfloat16 instruction of AVX-512 or NEON, otherwise loops in Rust. The loops are slow, but they let
//! every machine compute the same products up to the rounding of sums (the instructions also flush values below 1e-38 to 0).

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;

use std::sync::OnceLock;

use super::blas;
use super::buffer::Buffer;
use super::format::{Format, LEFT_SCRATCH};
use super::level::level;
use super::microkernel::{Operand, Output, RowMajor};
use crate::error::Error;
use crate::numbers::ProductFormat;

/// Number of lines (rows or columns) in a strip of an operand, and number of pairs of terms in a block.
const SIDE: usize = 16;
/// Number of terms in a block.
const BLOCK: usize = 2 * SIDE;
/// Number of pairs in a tile. A pair has the size of an `f32`.
const TILE: usize = SIDE * SIDE;

/// Instructions that multiply bfloat16 values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    #[cfg(target_arch = "x86_64")]
    Amx,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "aarch64")]
    Neon,
    Portable,
}

impl Unit {
    /// Returns the name of the instruction set, or `None` for portable Rust loops.
    fn name(self) -> Option<&'static str> {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Amx => Some("AMX"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => Some("AVX-512 BF16"),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => Some("NEON BF16"),
            Self::Portable => None,
        }
    }
}

/// Returns the best unit that the processor and the SIMD level support. Asks the system for permission to use AMX.
pub(crate) fn unit() -> Unit {
    static UNIT: OnceLock<Unit> = OnceLock::new();
    *UNIT.get_or_init(|| {
        #[cfg(target_arch = "x86_64")]
        if level() == super::level::Level::Avx512 && is_x86_feature_detected!("avx512bf16") {
            return if amx::permitted() { Unit::Amx } else { Unit::Avx512 };
        }
        #[cfg(target_arch = "aarch64")]
        if level() == super::level::Level::Neon && std::arch::is_aarch64_feature_detected!("bf16") {
            return Unit::Neon;
        }
        Unit::Portable
    })
}

impl ProductFormat {
    /// Returns an error if products are left to the system's BLAS and no library can be loaded.
    pub fn check(self) -> Result<(), Error> {
        if self == ProductFormat::Blas { blas::library().map(drop) } else { Ok(()) }
    }

    /// Returns the name of the instructions that multiply in this format on this processor, or for `Blas` the library. `None` if bfloat16 is
    /// emulated, which is much slower than f32, or if no library can be loaded.
    pub fn unit(self) -> Option<&'static str> {
        match self {
            ProductFormat::Blas => blas::library().ok().map(|blas| blas.name.as_str()),
            ProductFormat::F32 => Some(level().name()),
            _ => unit().name(),
        }
    }
}

/// Side of an operand in a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hand {
    Left,
    Right,
}

/// Panels of values as `PARTS` bfloat16 values each: 1 rounds a value, 2 also stores the rounding error.
pub(crate) struct Bf16<const PARTS: usize>;

/// Returns the pairs of parts (of the left and the right value) that are multiplied, in the order of summation.
const fn part_products(parts: usize) -> &'static [(usize, usize)] {
    if parts == 1 { &[(0, 0)] } else { &[(1, 0), (0, 0), (0, 1)] }
}

/// Returns the packed size of a row (or column) of `k` terms, as a number of f32 values.
fn depth<const PARTS: usize>(k: usize) -> usize {
    k.next_multiple_of(BLOCK) / 2 * PARTS
}

/// Packs `lines` lines of `terms` terms into strips.
///
/// # Safety
/// The processor must have the unit, the lines must be readable, and whole strips writable.
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
        // SAFETY: the tile's lines and terms are in the operand, and its position is in the strips.
        unsafe {
            let (from, to) = (from.at(line, term), to.add(line * depth + term / BLOCK * PARTS * TILE));
            match unit {
                #[cfg(target_arch = "x86_64")]
                Unit::Amx | Unit::Avx512 => avx512::pack::<PARTS>(hand, lines, block, from, to),
                #[cfg(target_arch = "aarch64")]
                Unit::Neon => neon::pack::<PARTS>(hand, lines, block, from, to),
                Unit::Portable => portable::pack::<PARTS>(hand, lines, block, from, to),
            }
        }
    };
    // In the order of memory, because the processor prefetches long contiguous reads.
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

/// Covers an `m` by `n` result with squares of size `side`, or of size [`SIDE`] at the edges if they suffice, and calls
/// `square(side, row, column, c)` for each. A square that exceeds the result is computed in scratch memory and copied.
///
/// # Safety
/// `m` rows of `n` values of `c` must be readable and writable.
unsafe fn squares(side: usize, m: usize, n: usize, c: Output, square: &dyn Fn(usize, usize, usize, Output)) {
    for row in (0..m).step_by(side) {
        for column in (0..n).step_by(side) {
            let (tall, wide) = (side.min(m - row), side.min(n - column));
            // SAFETY: inside the result.
            let to = unsafe { c.at(row, column) };
            if side > SIDE && (tall <= SIDE || wide <= SIDE) {
                let part = |side, i, j, c| square(side, row + i, column + j, c);
                // SAFETY: as above.
                unsafe { squares(SIDE, tall, wide, to, &part) };
            } else if tall < side || wide < side {
                let mut whole = [0.0f32; 4 * TILE];
                // SAFETY: `tall` rows of `wide` values are inside the result.
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

/// Computes `c = a b` for packed operands. Their strips have the distances `a.stride` and `b.stride`, in values.
///
/// # Safety
/// The processor must have the unit, the strips must hold `m` rows and `n` columns of `k` terms, and `m` rows of `n` values of `c` must be
/// readable and writable.
unsafe fn multiply_strips<const PARTS: usize>(
    unit: Unit,
    m: usize,
    n: usize,
    k: usize,
    a: RowMajor,
    b: RowMajor,
    c: Output,
) {
    let blocks = k.div_ceil(BLOCK);
    // SAFETY: strips are of rows below `m` and columns below `n`; the caller guarantees the result.
    unsafe {
        let left = |row: usize| RowMajor { first: a.first.add(row / SIDE * a.stride), ..a };
        let right = |column: usize| RowMajor { first: b.first.add(column / SIDE * b.stride), ..b };
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
            #[cfg(target_arch = "aarch64")]
            Unit::Neon => squares(SIDE, m, n, c, &|_, row, column, c| {
                neon::tile::<PARTS>(blocks, left(row).first, right(column).first, c);
            }),
            Unit::Portable => squares(SIDE, m, n, c, &|_, row, column, c| {
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
        // SAFETY: the caller guarantees it.
        unsafe { pack::<PARTS>(unit(), Hand::Right, n, k, b, to) }
    }

    unsafe fn left(m: usize, k: usize, a: Operand, packed: &mut Buffer) -> Operand {
        packed.reserve(LEFT_SCRATCH);
        // SAFETY: the caller guarantees it, and a block fits in the reserved space.
        unsafe { pack::<PARTS>(unit(), Hand::Left, m, k, a, packed.as_mut_ptr()) };
        Operand { first: packed.as_ptr(), line: SIDE * depth::<PARTS>(k), term: 1 }
    }

    unsafe fn multiply_panel(
        m: usize,
        n: usize,
        k: usize,
        a: Operand,
        b: RowMajor,
        c: Output,
        _: *const f32,
    ) {
        // SAFETY: the caller guarantees it.
        unsafe {
            let a = RowMajor { first: a.first, stride: a.line };
            multiply_strips::<PARTS>(unit(), m, n, k, a, b, c);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::panels;
    use proptest::prelude::*;

    /// Returns the units that this processor supports, the portable one first.
    fn units() -> Vec<Unit> {
        match unit() {
            Unit::Portable => vec![Unit::Portable],
            #[cfg(target_arch = "x86_64")]
            Unit::Amx => vec![Unit::Portable, Unit::Avx512, Unit::Amx],
            unit => vec![Unit::Portable, unit],
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
        // SAFETY: the slices have the given sizes.
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
                let strips = |numbers: &[f32]| RowMajor { first: numbers.as_ptr(), stride: strip };
                let one = packed::<PARTS>(unit, Hand::Left, rows, k, operand(&a, m).at(row, 0));
                assert!(row > 0 || rows < m || bits(&one) == bits(&left));
                let to = Output { first: to.as_mut_ptr(), stride: n, add };
                // SAFETY: the slices have the given sizes.
                unsafe { multiply_strips::<PARTS>(unit, rows, n, k, strips(&one), strips(&right), to) };
            };
            let mut c = before.clone();
            run(0, m, &mut c);
            for row in [0, m / 2, m - 1] {
                let mut alone = before[row * n..][..n].to_vec();
                run(row, 1, &mut alone);
                assert_eq!(bits(&alone), bits(&c[row * n..][..n]), "{unit:?}: row {row} by itself");
            }
            let Some(expected) = &first else {
                first = Some(c);
                continue;
            };
            for (hand, numbers, (lines, source)) in
                [(Hand::Left, &left, (m, &a)), (Hand::Right, &right, (n, &b))]
            {
                let portable = packed::<PARTS>(Unit::Portable, hand, lines, k, operand(source, lines));
                assert_eq!(bits(numbers), bits(&portable), "{unit:?}, {hand:?}");
            }
            let size = |i: usize| -> f32 {
                let element = |numbers: &[f32], lines: usize, line: usize, term: usize| {
                    if by_lines { numbers[line * k + term] } else { numbers[term * lines + line] }
                };
                let pairs = (0..k).map(|t| (element(&a, m, i / n, t) * element(&b, n, i % n, t)).abs());
                before[i].abs() + pairs.sum::<f32>()
            };
            for (i, (computed, expected)) in c.iter().zip(expected).enumerate() {
                assert!(
                    (computed - expected).abs() <= 3e-6 * size(i),
                    "{unit:?}, {i}: {computed}, expected {expected}"
                );
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn units_pack_the_same_bits_and_agree_on_sums_and_a_row_does_not_depend_on_its_neighbours(
            m in 1usize..80, n in 1usize..=32, k in 1usize..130, by_lines: bool, add: bool, seed in 0u64..1000,
        ) {
            compare::<1>(m, n, k, by_lines, add, seed);
            compare::<2>(m, n, k, by_lines, add, seed);
        }
    }

    #[test]
    fn two_parts_keep_sixteen_bits_and_values_that_are_not_finite_stay_so() {
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
