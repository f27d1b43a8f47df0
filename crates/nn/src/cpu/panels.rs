//! Products whose right operand is packed into panels, in the order in which the kernel reads it.
//!
//! A [`Format`] defines the panels. Weights can be packed once for all products of a `generate` call; other operands are packed block by block.
//!
//! In f32, a panel has as many columns as a kernel's tile (the last panel may have fewer, in whole registers), row by row. An element of the
//! result is a sum of chains of [`DEEP`] multiply-adds each, in ascending order; a single chain over thousands of terms would lose three times
//! as many digits if a few terms are large, as in chat models. A row's result doesn't depend on the other rows or on how its operands were
//! packed, to the last bit. In the other formats too, the summation order of an element depends only on `k`.

use std::cell::RefCell;

use super::bf16::Bf16;
use super::buffer::Buffer;
use super::format::{BAND, CUT, DEEP, Format, LEFT, LEFT_SCRATCH};
use super::microkernel::{self, Operand, Output, RowMajor};
use crate::numbers::ProductFormat;

/// Number of columns that are packed at a time.
const COLUMNS: usize = 1024;

/// Size of a thread's largest packing buffer, in values.
pub(crate) const SCRATCH: usize = COLUMNS * DEEP + LEFT_SCRATCH;

thread_local! {
    /// Packed right and left operands of this thread's current block.
    static PACKED: RefCell<[Buffer; 2]> = RefCell::default();
}

#[derive(Clone, Copy)]
pub(crate) enum Right<'a> {
    Operand(Operand),
    Panels(&'a [f32]),
}

/// Calls a function that is generic over [`Format`], with the format that implements a [`ProductFormat`].
macro_rules! in_format {
    ($products:expr, $name:ident($($argument:expr),* $(,)?)) => {
        match $products {
            ProductFormat::F32 | ProductFormat::Blas => $name::<F32>($($argument),*),
            ProductFormat::Bf16x3 => $name::<Bf16<2>>($($argument),*),
            ProductFormat::Bf16 => $name::<Bf16<1>>($($argument),*),
        }
    };
}

/// Returns the number of values in the panels of a right operand `[k, n]`.
pub(crate) fn len(products: ProductFormat, n: usize, k: usize) -> usize {
    fn len<F: Format>(n: usize, k: usize) -> usize {
        F::len(n, k)
    }
    in_format!(products, len(n, k))
}

/// Packs the transpose of `w`: `[n, k]`, which is how the weights of a linear map are stored.
///
/// # Panics
/// If the length of a slice doesn't match the sizes.
pub(crate) fn pack_weights(products: ProductFormat, n: usize, k: usize, w: &[f32], to: &mut [f32]) {
    unsafe fn pack<F: Format>(n: usize, k: usize, b: Operand, to: *mut f32) {
        // SAFETY: the caller guarantees it.
        unsafe { F::pack_right(n, k, b, to) }
    }
    let len = len(products, n, k);
    assert!(w.len() == n * k && to.len() == len, "[{n}, {k}]: {} into {}", w.len(), to.len());
    let w = Operand { first: w.as_ptr(), line: k, term: 1 };
    // SAFETY: the lengths match.
    unsafe { in_format!(products, pack(n, k, w, to.as_mut_ptr())) }
}

/// Columns `first..first + n` of a right operand with `total` columns. `first` is a multiple of 64.
#[derive(Clone, Copy)]
pub(crate) struct ColumnRange {
    pub(crate) first: usize,
    pub(crate) n: usize,
    pub(crate) total: usize,
}

impl ColumnRange {
    pub(crate) fn all(n: usize) -> ColumnRange {
        ColumnRange { first: 0, n, total: n }
    }
}

/// Computes `c = a b` for a range of columns of `b`, over `m` rows and `k` terms. `c` starts at the first column of the range.
///
/// # Safety
/// The operands must be readable, and `m` rows of `n` values of `c` writable and disjoint from the operands.
pub(crate) unsafe fn multiply(
    products: ProductFormat,
    [m, k]: [usize; 2],
    columns: ColumnRange,
    a: Operand,
    b: Right<'_>,
    c: Output,
) {
    debug_assert!(columns.first.is_multiple_of(CUT) && columns.first + columns.n <= columns.total && k > 0);
    // SAFETY: the caller guarantees it.
    unsafe { in_format!(products, blocks([m, k], columns, a, b, c)) }
}

/// Runs [`multiply`] in one format, block by block.
///
/// # Safety
/// See [`multiply`].
unsafe fn blocks<F: Format>([m, k]: [usize; 2], columns: ColumnRange, a: Operand, b: Right<'_>, c: Output) {
    let ColumnRange { first, n, total } = columns;
    PACKED.with_borrow_mut(|[right, left]| {
        for term in (0..k).step_by(DEEP) {
            let deep = DEEP.min(k - term);
            let c = Output { add: c.add || term > 0, ..c };
            for start in (0..n).step_by(COLUMNS) {
                let columns = COLUMNS.min(n - start);
                // Panels with `total` columns and `depth` terms, and the position of this block in them.
                let (panels, total, depth, from_column, from_term) = match b {
                    Right::Panels(panels) => (panels.as_ptr(), total, k, first + start, term),
                    Right::Operand(b) => {
                        right.reserve(F::len(columns, deep));
                        // SAFETY: the columns and terms are in the operand, and the space is reserved.
                        unsafe {
                            F::pack_right(columns, deep, b.at(first + start, term), right.as_mut_ptr())
                        };
                        (right.as_ptr(), columns, deep, 0, 0)
                    }
                };
                for row in (0..m).step_by(BAND) {
                    let band = BAND.min(m - row);
                    // SAFETY: blocks are inside the operands and the result.
                    unsafe {
                        let a = F::left(band, deep, a.at(row, term), left);
                        for column in (0..columns).step_by(F::columns()) {
                            let (at, stride) = F::panel(total, depth, from_column + column, from_term);
                            let panel = RowMajor { first: panels.add(at), stride };
                            // Prefetch the next panel while this one is used.
                            let ahead = panel.first.wrapping_add(F::len(F::columns(), depth));
                            let wide = F::columns().min(columns - column);
                            F::multiply_panel(band, wide, deep, a, panel, c.at(row, start + column), ahead);
                        }
                    }
                }
            }
        }
    });
}

struct F32;

impl F32 {
    /// Returns the width of the panel that starts at `column` of `n`, in whole registers.
    fn width(n: usize, column: usize) -> usize {
        (n - column).next_multiple_of(microkernel::lanes()).min(microkernel::wide())
    }

    /// Packs an operand whose columns are contiguous.
    ///
    /// # Safety
    /// See [`Format::pack_right`].
    unsafe fn pack_columns(n: usize, k: usize, columns: RowMajor, to: *mut f32) {
        let lanes = microkernel::lanes();
        for column in (0..n).step_by(microkernel::wide()) {
            let wide = F32::width(n, column);
            for lane in (0..wide).step_by(lanes) {
                let rows = lanes.min(n - column - lane);
                for term in (0..k).step_by(lanes) {
                    // SAFETY: rows are less than `n` and terms less than `k`, and the panel has as many rows.
                    unsafe {
                        let first = columns.first.add((column + lane) * columns.stride + term);
                        let to = to.add(column * k + term * wide + lane);
                        microkernel::transpose(
                            rows,
                            lanes.min(k - term),
                            RowMajor { first, ..columns },
                            to,
                            wide,
                        );
                    }
                }
            }
        }
    }

    /// Packs an operand whose rows are contiguous.
    ///
    /// # Safety
    /// See [`Format::pack_right`].
    unsafe fn pack_rows(n: usize, k: usize, rows: RowMajor, to: *mut f32) {
        // Row by row, because the processor prefetches long contiguous reads, but not pieces of a panel's width.
        for term in 0..k {
            for column in (0..n).step_by(microkernel::wide()) {
                let (wide, filled) = (F32::width(n, column), microkernel::wide().min(n - column));
                // SAFETY: columns are less than `n`, and terms less than `k`.
                unsafe {
                    let to = to.add(column * k + term * wide);
                    std::ptr::copy_nonoverlapping(rows.first.add(term * rows.stride + column), to, filled);
                    std::ptr::write_bytes(to.add(filled), 0, wide - filled);
                }
            }
        }
    }
}

impl Format for F32 {
    fn columns() -> usize {
        microkernel::wide()
    }

    fn len(n: usize, k: usize) -> usize {
        n.next_multiple_of(microkernel::lanes()) * k
    }

    fn panel(total: usize, k: usize, column: usize, term: usize) -> (usize, usize) {
        let width = F32::width(total, column);
        (column * k + term * width, width)
    }

    unsafe fn pack_right(n: usize, k: usize, b: Operand, to: *mut f32) {
        // SAFETY: the caller guarantees it.
        unsafe {
            if b.line == 1 {
                F32::pack_rows(n, k, b.terms(), to)
            } else {
                F32::pack_columns(n, k, b.lines(), to)
            }
        }
    }

    /// Copies a column-major operand into columns with the distance [`LEFT`].
    unsafe fn left(m: usize, k: usize, a: Operand, packed: &mut Buffer) -> Operand {
        if a.term == 1 {
            return a;
        }
        packed.reserve(LEFT_SCRATCH);
        for term in 0..k {
            // SAFETY: columns are less than `k`.
            unsafe {
                let to = packed.as_mut_ptr().add(term * LEFT);
                std::ptr::copy_nonoverlapping(a.at(0, term).first, to, m);
            }
        }
        Operand { first: packed.as_ptr(), line: 1, term: LEFT }
    }

    unsafe fn multiply_panel(
        m: usize,
        n: usize,
        k: usize,
        a: Operand,
        b: RowMajor,
        c: Output,
        ahead: *const f32,
    ) {
        // SAFETY: the caller guarantees it.
        unsafe { microkernel::tiles([m, n, k], a, b, c, ahead) }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::level::{Level, level};
    use super::*;
    use proptest::prelude::*;

    pub(in crate::cpu) fn numbers(count: usize, seed: u64) -> Vec<f32> {
        let mut state = seed;
        (0..count)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as f32 / (1 << 23) as f32 - 1.0
            })
            .collect()
    }

    fn transposed(rows: usize, columns: usize, x: &[f32]) -> Vec<f32> {
        (0..rows * columns).map(|i| x[i % rows * columns + i / rows]).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn operands_in_any_layout_give_the_same_bits_and_f32_sums_are_chains_of_multiply_adds(
            m in prop_oneof![1usize..20, 190usize..200], n in prop_oneof![1usize..200, 1020usize..1100],
            k in prop_oneof![1usize..70, 510usize..530], add: bool, which in 0usize..3, seed in 0u64..1000,
        ) {
            let (x, w, before) = (numbers(m * k, seed), numbers(n * k, seed + 1), numbers(m * n, seed + 2));
            let (xt, wt) = (transposed(m, k, &x), transposed(n, k, &w));
            let products = [ProductFormat::F32, ProductFormat::Bf16x3, ProductFormat::Bf16][which];
            let mut panels = vec![f32::NAN; len(products, n, k)];
            pack_weights(products, n, k, &w, &mut panels);
            let lefts = [Operand { first: x.as_ptr(), line: k, term: 1 }, Operand { first: xt.as_ptr(), line: 1, term: m }];
            let columns = [Operand { first: wt.as_ptr(), line: 1, term: n }, Operand { first: w.as_ptr(), line: k, term: 1 }];
            let mut expected = before.clone();
            // SAFETY: the matrices have the given sizes.
            unsafe { multiply(products, [m, k], ColumnRange::all(n), lefts[0], Right::Panels(&panels), Output { first: expected.as_mut_ptr(), stride: n, add }) };
            // Rounding errors of each operand (2^-8 in one part, 2^-17 in two), the product of the second parts that Bf16x3 drops, and rounding of the
            // sum itself.
            let tolerance = [0.0, 2f64.powi(-15), 2f64.powi(-7) + 2f64.powi(-16)][which] + 3.0 * k as f64 * f64::from(f32::EPSILON);
            for row in 0..m {
                for column in 0..n {
                    let computed = expected[row * n + column];
                    let start = if add { before[row * n + column] } else { 0.0 };
                    let (x, w) = (&x[row * k..][..k], &w[column * k..][..k]);
                    if products == ProductFormat::F32 {
                        let chain = |(x, w): (&[f32], &[f32])| x.iter().zip(w).fold(0.0, |sum, (x, w)| if level() == Level::Plain { x * w + sum } else { x.mul_add(*w, sum) });
                        let chains = x.chunks(DEEP).zip(w.chunks(DEEP)).map(chain);
                        let sum = if add { chains.fold(start, |sum, chain| sum + chain) } else { chains.reduce(|sum, chain| sum + chain).unwrap() };
                        prop_assert_eq!(computed, sum);
                        continue;
                    }
                    let pairs = || x.iter().zip(w);
                    let exact = |(x, w): (&f32, &f32)| f64::from(*x) * f64::from(*w);
                    let sum = f64::from(start) + pairs().map(exact).sum::<f64>();
                    let size = f64::from(start).abs() + pairs().map(|pair| exact(pair).abs()).sum::<f64>();
                    prop_assert!((f64::from(computed) - sum).abs() <= tolerance * size, "[{row}, {column}] {computed}, expected {sum} of {size}");
                }
            }
            let rights = [Right::Panels(&panels), Right::Operand(columns[0]), Right::Operand(columns[1])];
            for left in lefts {
                for right in rights {
                    let mut c = before.clone();
                    // SAFETY: as above.
                    unsafe { multiply(products, [m, k], ColumnRange::all(n), left, right, Output { first: c.as_mut_ptr(), stride: n, add }) };
                    prop_assert_eq!(&c, &expected);
                    // A range of the columns.
                    let first = n / 128 * 64;
                    let part = (n - first).min(70);
                    let mut c = vec![0.0; m * part];
                    for row in 0..m {
                        c[row * part..][..part].copy_from_slice(&before[row * n + first..][..part]);
                    }
                    // SAFETY: as above.
                    unsafe { multiply(products, [m, k], ColumnRange { first, n: part, total: n }, left, right, Output { first: c.as_mut_ptr(), stride: part, add }) };
                    for row in 0..m {
                        prop_assert_eq!(&c[row * part..][..part], &expected[row * n + first..][..part]);
                    }
                }
            }
        }
    }
}
