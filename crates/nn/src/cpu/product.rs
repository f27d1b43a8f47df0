//! Matrix products on one thread: with AVX-512 our own, in panels or, for few rows, without packing; elsewhere the `gemm` crate's.

use gemm::Parallelism;

use super::narrow;
use super::panels::{self, Left, Right};

/// A matrix inside a slice: element `(r, c)` is `data[offset + r * row + c * column]`.
#[derive(Clone, Copy)]
pub(crate) struct View {
    pub(crate) offset: usize,
    pub(crate) row: usize,
    pub(crate) column: usize,
}

impl View {
    /// Rows of `stride` numbers, from `offset`.
    pub(crate) fn rows(offset: usize, stride: usize) -> View {
        View { offset, row: stride, column: 1 }
    }

    pub(crate) fn transposed(self) -> View {
        View { row: self.column, column: self.row, ..self }
    }

    fn end(self, rows: usize, columns: usize) -> usize {
        self.offset + (rows - 1) * self.row + (columns - 1) * self.column + 1
    }
}

/// What a product does with what is in its result already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Into {
    Replace,
    Add,
}

/// Up to this many rows the left operand is too short for packing the right one to pay.
const FEW_ROWS: usize = 64;
/// Up to this many rows a right operand that lies in rows is read where it lies.
const FEW_READS: usize = 24;
/// Up to this many terms, sums are those of attention's blocks, whose operands are small.
const FEW_TERMS: usize = 64;

#[cfg(test)]
thread_local! {
    static COUNTED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Floating-point operations of this thread's products so far.
#[cfg(test)]
pub(crate) fn counted() -> u64 {
    COUNTED.get()
}

/// `c = a b`, or added to `c`; sizes `[m, k] [k, n]`.
///
/// # Panics
/// If a view leaves its slice, or `k` is 0.
pub(crate) fn product(
    m: usize,
    n: usize,
    k: usize,
    a: &[f32],
    av: View,
    b: &[f32],
    bv: View,
    into: Into,
    c: &mut [f32],
    cv: View,
) {
    if m == 0 || n == 0 {
        return;
    }
    #[cfg(test)]
    COUNTED.set(COUNTED.get() + (2 * m * n * k) as u64);
    assert!(k > 0, "a product over nothing");
    assert!(av.end(m, k) <= a.len(), "left operand [{m}, {k}] ends at {} of {}", av.end(m, k), a.len());
    assert!(bv.end(k, n) <= b.len(), "right operand [{k}, {n}] ends at {} of {}", bv.end(k, n), b.len());
    assert!(cv.end(m, n) <= c.len(), "result [{m}, {n}] ends at {} of {}", cv.end(m, n), c.len());
    let add = into == Into::Add;
    if narrow::available() && cv.column == 1 {
        // SAFETY: the processor can, all three matrices lie inside their slices, and `c` is borrowed uniquely.
        unsafe {
            let left = narrow::Rows { first: a.as_ptr().add(av.offset), stride: av.row };
            let to = c.as_mut_ptr().add(cv.offset);
            if av.column == 1 && bv.row == 1 && (m <= FEW_ROWS || k <= FEW_TERMS && n <= 512) {
                let right = narrow::Rows { first: b.as_ptr().add(bv.offset), stride: bv.column };
                return narrow::dot(m, n, k, left, right, add, to, cv.row);
            }
            if bv.column == 1 && (n <= 2 * FEW_TERMS && k <= 512 || m <= FEW_READS) {
                let right = narrow::Rows { first: b.as_ptr().add(bv.offset), stride: bv.row };
                return narrow::outer(m, n, k, left, av.column, right, add, to, cv.row, right.first);
            }
            if (av.column == 1 || av.row == 1) && (bv.column == 1 || bv.row == 1) {
                let left = Left { rows: left, column: av.column };
                let first = b.as_ptr().add(bv.offset);
                let right = if bv.column == 1 {
                    Right::Rows(narrow::Rows { first, stride: bv.row })
                } else {
                    Right::Columns(narrow::Rows { first, stride: bv.column })
                };
                return panels::product(m, n, k, left, right, 0, n, add, to, cv.row);
            }
        }
    }
    general(m, n, k, a, av, b, bv, add, c, cv);
}

/// `y = x wᵀ`, or added to `y`, over columns `first..first + n` of the `of` whose panels are `panels`; rows of `x` of `k`, of `y` of `n` numbers.
///
/// # Panics
/// If a slice is too short, or the processor can't.
pub(crate) fn product_with_panels(
    m: usize,
    n: usize,
    k: usize,
    x: &[f32],
    panels: &[f32],
    first: usize,
    of: usize,
    into: Into,
    y: &mut [f32],
) {
    if m == 0 || n == 0 {
        return;
    }
    #[cfg(test)]
    COUNTED.set(COUNTED.get() + (2 * m * n * k) as u64);
    assert!(narrow::available() && k > 0, "panels without AVX-512, or a product over nothing");
    assert!(first.is_multiple_of(64) && first + n <= of, "columns {first} to {} of {of}", first + n);
    assert!(panels.len() == panels::len(of, k), "panels of [{of}, {k}]: {}", panels.len());
    assert!(x.len() >= m * k && y.len() >= m * n, "[{m}, {k}] of {}, [{m}, {n}] of {}", x.len(), y.len());
    let left = Left { rows: narrow::Rows { first: x.as_ptr(), stride: k }, column: 1 };
    let (right, add) = (Right::Panels(panels), into == Into::Add);
    // SAFETY: asserted above, and `y` is borrowed uniquely.
    unsafe { panels::product(m, n, k, left, right, first, of, add, y.as_mut_ptr(), n) }
}

/// [`product`] by the `gemm` crate; the views have been checked.
fn general(
    m: usize,
    n: usize,
    k: usize,
    a: &[f32],
    av: View,
    b: &[f32],
    bv: View,
    add: bool,
    c: &mut [f32],
    cv: View,
) {
    // SAFETY: the caller has checked that all three matrices lie inside their slices, and `c` is borrowed uniquely.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.as_mut_ptr().add(cv.offset),
            cv.column as isize,
            cv.row as isize,
            add,
            a.as_ptr().add(av.offset),
            av.column as isize,
            av.row as isize,
            b.as_ptr().add(bv.offset),
            bv.column as isize,
            bv.row as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_layout_and_size_gives_the_sum_of_products(
            m in 1usize..80, n in 1usize..150, k in 1usize..90,
            left_transposed: bool, right_transposed: bool, add: bool, seed in 0u32..1000,
        ) {
            let mut state = seed;
            let mut numbers = |count: usize| -> Vec<f32> {
                (0..count).map(|_| { state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223); (state >> 24) as f32 / 16.0 - 8.0 }).collect()
            };
            let (pad, offset) = (3, 5);
            let view = |rows: usize, columns: usize, transposed: bool| {
                if transposed { (View::rows(offset, rows + pad).transposed(), offset + columns * (rows + pad)) }
                else { (View::rows(offset, columns + pad), offset + rows * (columns + pad)) }
            };
            let ((av, a_len), (bv, b_len), (cv, c_len)) = (view(m, k, left_transposed), view(k, n, right_transposed), view(m, n, false));
            let (a, b, before) = (numbers(a_len), numbers(b_len), numbers(c_len));
            let mut c = before.clone();
            product(m, n, k, &a, av, &b, bv, if add { Into::Add } else { Into::Replace }, &mut c, cv);
            for (index, found) in c.iter().enumerate() {
                let place = index.checked_sub(offset).map(|i| (i / cv.row, i % cv.row)).filter(|&(r, c)| r < m && c < n);
                let Some((row, column)) = place else {
                    prop_assert_eq!(*found, before[index], "outside the result");
                    continue;
                };
                let sum: f64 = (0..k).map(|i| f64::from(a[av.offset + row * av.row + i * av.column]) * f64::from(b[bv.offset + i * bv.row + column * bv.column])).sum();
                let wanted = sum + if add { f64::from(before[index]) } else { 0.0 };
                prop_assert!((f64::from(*found) - wanted).abs() < 1e-2, "[{row}, {column}] {found}, wanted {wanted}");
            }
        }
    }

    #[test]
    fn a_row_of_a_small_product_does_not_depend_on_its_neighbours() {
        let (n, k) = (37, 200);
        let x: Vec<f32> = (0..60 * k).map(|i| ((i * 7919) % 1013) as f32 / 500.0 - 1.0).collect();
        let w: Vec<f32> = (0..n * k).map(|i| ((i * 104_729) % 997) as f32 / 500.0 - 1.0).collect();
        let rows = |first: usize, m: usize| {
            let mut y = vec![0.0; m * n];
            let w_view = View::rows(0, k).transposed();
            product(
                m,
                n,
                k,
                &x,
                View::rows(first * k, k),
                &w,
                w_view,
                Into::Replace,
                &mut y,
                View::rows(0, n),
            );
            y
        };
        let all = rows(0, 60);
        if narrow::available() {
            for (first, m) in [(0, 1), (7, 2), (13, 11), (59, 1)] {
                assert_eq!(rows(first, m), all[first * n..(first + m) * n]);
            }
        }
    }
}
