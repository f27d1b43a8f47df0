//! Matrix products on one thread or by a team. With AVX-512, AVX2 or NEON they use our kernels, with panels or, for few rows, without packing;
//! otherwise the `gemm` crate.
//!
//! Products in bfloat16 always use panels, whatever the sizes, because sampling and scoring must round identically.

use std::ops::Range;

use gemm_common::Parallelism;

use super::format::{self, Operand};
use super::microkernel::{self, Output, Rows};
use super::panels::{self, Columns, Right};
use super::team::{Shared, Team};
use crate::layout::Write;
use crate::numbers::Products;

/// A product is divided among threads at multiples of this number of columns.
const COLUMNS: usize = format::CUT;
/// A product in bfloat16 is divided at multiples of this number of rows.
const BF16_ROWS: usize = 32;
/// Minimum number of floating-point operations for which a second thread pays off.
const WORTHWHILE: usize = 1 << 19;

/// Position and strides of a matrix inside a slice: element `(r, c)` is `data[offset + r * row + c * column]`.
#[derive(Clone, Copy)]
pub(crate) struct View {
    pub(crate) offset: usize,
    pub(crate) row: usize,
    pub(crate) column: usize,
}

impl View {
    /// Rows of `stride` values, starting at `offset`.
    pub(crate) fn rows(offset: usize, stride: usize) -> View {
        View { offset, row: stride, column: 1 }
    }

    pub(crate) fn transposed(self) -> View {
        View { row: self.column, column: self.row, ..self }
    }

    /// The operand with this view of `numbers`.
    pub(crate) fn of(self, numbers: &[f32]) -> Matrix<'_> {
        Matrix { numbers, view: self }
    }

    /// The destination with this view of `numbers`.
    pub(crate) fn to(self, write: Write, numbers: &mut [f32]) -> Target<'_> {
        Target { numbers, view: self, write }
    }

    fn end(self, rows: usize, columns: usize) -> usize {
        self.offset + (rows - 1) * self.row + (columns - 1) * self.column + 1
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    numbers: &'a [f32],
    view: View,
}

impl Matrix<'_> {
    pub(crate) fn transposed(self) -> Self {
        Matrix { view: self.view.transposed(), ..self }
    }
}

/// Destination of a product.
pub(crate) struct Target<'a> {
    numbers: &'a mut [f32],
    view: View,
    write: Write,
}

/// Maximum number of rows of the left operand for which packing the right operand doesn't pay off.
const FEW_ROWS: usize = 64;
/// Maximum number of rows for which a row-major right operand is read in place.
const FEW_READS: usize = 24;
/// Maximum number of terms of products in attention's blocks, whose operands are small.
const FEW_TERMS: usize = 64;

#[cfg(test)]
thread_local! {
    static COUNTED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Number of floating-point operations of this thread's products so far.
#[cfg(test)]
pub(crate) fn counted() -> u64 {
    COUNTED.get()
}

fn count(m: usize, n: usize, k: usize) {
    #[cfg(test)]
    COUNTED.set(COUNTED.get() + (2 * m * n * k) as u64);
    #[cfg(not(test))]
    let _ = (m, n, k);
}

/// Method of a product. It is chosen from the sizes of the whole product, so that every part is computed in the same way.
#[derive(Clone, Copy)]
enum Kernel<'a> {
    Dot,
    Outer,
    Packing,
    /// Uses the right operand's panels, which have this number of columns in total.
    Panels(&'a [f32], usize),
    General,
}

/// Operands of a product, and its method.
#[derive(Clone, Copy)]
struct Operands<'a> {
    k: usize,
    a: Matrix<'a>,
    b: Matrix<'a>,
    products: Products,
    kernel: Kernel<'a>,
}

impl Kernel<'_> {
    fn choose(products: Products, [m, n, k]: [usize; 3], views: [View; 3]) -> Kernel<'static> {
        let [av, bv, cv] = views;
        let packable = (av.column == 1 || av.row == 1) && (bv.column == 1 || bv.row == 1);
        if products != Products::F32 {
            assert!(packable && cv.column == 1, "an operand is contiguous neither in rows nor in columns");
            Kernel::Packing
        } else if !microkernel::available() || cv.column != 1 {
            Kernel::General
        } else if av.column == 1 && bv.row == 1 && (m <= FEW_ROWS || k <= FEW_TERMS && n <= 512) {
            Kernel::Dot
        } else if bv.column == 1 && (n <= 2 * FEW_TERMS && k <= 512 || m <= FEW_READS) {
            Kernel::Outer
        } else if packable {
            Kernel::Packing
        } else {
            Kernel::General
        }
    }
}

impl Operands<'_> {
    /// Computes the given rows and columns of the result, which has the view `cv` of `c`.
    ///
    /// # Safety
    /// The whole product's operands and result must be in bounds, and no other thread may access this part of the result.
    unsafe fn part(&self, rows: &Range<usize>, columns: &Range<usize>, c: *mut f32, cv: View, write: Write) {
        let Operands {
            k,
            a: Matrix { numbers: a, view: av },
            b: Matrix { numbers: b, view: bv },
            products,
            ..
        } = *self;
        let (m, n) = (rows.len(), columns.len());
        let bv_offset = bv.offset + columns.start * bv.column;
        // SAFETY: the part is inside the whole, which the caller has checked.
        unsafe {
            let a = a.as_ptr().add(av.offset + rows.start * av.row);
            let first = c.add(cv.offset + rows.start * cv.row + columns.start * cv.column);
            let to = Output { first, stride: cv.row, add: write == Write::Add };
            let left = Rows { first: a, stride: av.row };
            let operand = Operand { first: a, line: av.row, term: av.column };
            match self.kernel {
                Kernel::Dot => {
                    let right = Rows { first: b.as_ptr().add(bv_offset), stride: bv.column };
                    microkernel::dot(m, n, k, left, right, to);
                }
                Kernel::Outer => {
                    let right = Rows { first: b.as_ptr().add(bv_offset), stride: bv.row };
                    microkernel::outer([m, n, k], left, av.column, right, to, right.first);
                }
                Kernel::Packing => {
                    let first = b.as_ptr().add(bv_offset);
                    let right = Right::Operand(Operand { first, line: bv.column, term: bv.row });
                    panels::product(products, [m, k], Columns::all(n), operand, right, to);
                }
                Kernel::Panels(packed, total) => {
                    let right = Right::Panels(packed);
                    let columns = Columns { first: columns.start, n, total };
                    panels::product(products, [m, k], columns, operand, right, to);
                }
                Kernel::General => {
                    let a = Strided { first: a, view: av };
                    let b = Strided { first: b.as_ptr().add(bv_offset), view: bv };
                    general([m, n, k], a, b, to.add, Strided { first: to.first, view: cv });
                }
            }
        }
    }

    /// Computes the whole product, `[m, n]`, on a team.
    ///
    /// # Safety
    /// See [`Operands::part`].
    unsafe fn run(&self, team: Option<&Team>, m: usize, n: usize, to: Target<'_>) {
        let Target { numbers: c, view, write } = to;
        let size = team.map_or(1, |team| team.size().min(2 * m * n * self.k / WORTHWHILE));
        let Some(team) = team.filter(|_| size > 1) else {
            // SAFETY: the caller guarantees it.
            return unsafe { self.part(&(0..m), &(0..n), c.as_mut_ptr(), view, write) };
        };
        let grain = if self.products == Products::F32 { microkernel::TALL } else { BF16_ROWS };
        let (tall, wide) = grid(size, m.div_ceil(grain), n.div_ceil(COLUMNS));
        let cut = |count: usize, grain: usize, parts: usize, part: usize| {
            let grains = count.div_ceil(grain);
            (grains * part / parts * grain).min(count)..(grains * (part + 1) / parts * grain).min(count)
        };
        let c = Shared::new(c);
        team.run(tall * wide, &|part| {
            let rows = cut(m, grain, tall, part / wide);
            let columns = cut(n, COLUMNS, wide, part % wide);
            // SAFETY: the caller guarantees it, and parts of the result are disjoint.
            unsafe { self.part(&rows, &columns, c.first(), view, write) };
        });
    }
}

/// Divides a result of `rows` by `columns` tiles among at most `size` threads, as (parts of the rows, parts of the columns). The largest part is
/// as small as possible. If tied, there are few parts of rows, because each part packs its own columns.
fn grid(size: usize, rows: usize, columns: usize) -> (usize, usize) {
    (1..=size.min(rows))
        .map(|tall| (tall, (size / tall).min(columns)))
        .min_by_key(|&(tall, wide)| rows.div_ceil(tall) * columns.div_ceil(wide))
        .expect("at least one division")
}

/// The team that multiplies, or `None` for this thread, and the number format.
pub(crate) type By<'a> = (Option<&'a Team>, Products);

/// `c = a b` or `c += a b` in f32 on this thread. `a` is `[m, k]` and `b` is `[k, n]`.
///
/// # Panics
/// If a view exceeds its slice, or `k` is 0.
pub(crate) fn product(sizes: [usize; 3], a: Matrix<'_>, b: Matrix<'_>, to: Target<'_>) {
    team_product((None, Products::F32), sizes, a, b, to);
}

/// Like [`product`], on a team and in any number format. The result doesn't depend on the team.
///
/// # Panics
/// See [`product`].
pub(crate) fn team_product(by: By<'_>, sizes: [usize; 3], a: Matrix<'_>, b: Matrix<'_>, to: Target<'_>) {
    let kernel = Kernel::choose(by.1, sizes, [a.view, b.view, to.view]);
    product_by(kernel, by, sizes, a, b, to);
}

fn product_by(
    kernel: Kernel<'_>,
    by: By<'_>,
    sizes: [usize; 3],
    a: Matrix<'_>,
    b: Matrix<'_>,
    to: Target<'_>,
) {
    let ((team, products), [m, n, k]) = (by, sizes);
    if m == 0 || n == 0 {
        return;
    }
    count(m, n, k);
    assert!(k > 0, "the product has no terms");
    let ends = |name: &str, view: View, rows: usize, columns: usize, len: usize| {
        let end = view.end(rows, columns);
        assert!(end <= len, "{name} [{rows}, {columns}] ends at {end} of {len}");
    };
    ends("left operand", a.view, m, k, a.numbers.len());
    ends("right operand", b.view, k, n, b.numbers.len());
    ends("result", to.view, m, n, to.numbers.len());
    // SAFETY: asserted above, and the result is borrowed uniquely.
    unsafe { Operands { k, a, b, products, kernel }.run(team, m, n, to) }
}

/// Like [`team_product`], but always packs if the processor supports it, whatever the sizes. An element has the same bits as in a product with
/// panels, so it depends neither on the number of rows nor on how the columns are divided into products.
///
/// # Panics
/// See [`product`].
pub(crate) fn packing_product(by: By<'_>, sizes: [usize; 3], a: Matrix<'_>, b: Matrix<'_>, to: Target<'_>) {
    let kernel = if microkernel::available() || by.1 != Products::F32 {
        Kernel::Packing
    } else {
        Kernel::choose(by.1, sizes, [a.view, b.view, to.view])
    };
    product_by(kernel, by, sizes, a, b, to);
}

/// `y = x wᵀ` or `y += x wᵀ` with `w`'s panels. Rows of `x` have `k` values.
///
/// # Panics
/// If a slice is too short, or the processor doesn't support panels.
pub(crate) fn product_with_panels(
    (team, products): By<'_>,
    [m, n, k]: [usize; 3],
    x: &[f32],
    panels: &[f32],
    y: Target<'_>,
) {
    if m == 0 || n == 0 {
        return;
    }
    count(m, n, k);
    assert!(
        panels::available(products) && k > 0,
        "this processor doesn't support panels, or the product has no terms"
    );
    assert!(panels.len() == panels::len(products, n, k), "panels of [{n}, {k}]: {}", panels.len());
    let (x_len, y_len) = (x.len(), y.numbers.len());
    assert!(x_len >= m * k && y_len >= y.view.end(m, n), "[{m}, {k}] of {x_len}, [{m}, {n}] of {y_len}");
    let (a, b) = (View::rows(0, k).of(x), View::rows(0, 0).of(&[]));
    // SAFETY: asserted above, and `y` is borrowed uniquely.
    unsafe { Operands { k, a, b, products, kernel: Kernel::Panels(panels, n) }.run(team, m, n, y) }
}

/// A matrix in memory: its first element and its strides.
#[derive(Clone, Copy)]
struct Strided<T> {
    first: T,
    view: View,
}

impl<T> Strided<T> {
    fn transposed(self) -> Strided<T> {
        Strided { view: self.view.transposed(), ..self }
    }
}

/// [`product`] with the `gemm-f32` crate.
///
/// # Safety
/// All three matrices must be in bounds, and the result must not overlap the others.
unsafe fn general(
    [m, n, k]: [usize; 3],
    a: Strided<*const f32>,
    b: Strided<*const f32>,
    add: bool,
    c: Strided<*mut f32>,
) {
    // The crate's kernels compute column-major results. For row-major results, compute the transposed product.
    if c.view.column < c.view.row {
        // SAFETY: the caller guarantees it.
        return unsafe { general([n, m, k], b.transposed(), a.transposed(), add, c.transposed()) };
    }
    // SAFETY: the caller guarantees it.
    unsafe {
        gemm_f32::gemm::f32::get_gemm_fn()(
            m,
            n,
            k,
            c.first,
            c.view.column as isize,
            c.view.row as isize,
            add,
            a.first,
            a.view.column as isize,
            a.view.row as isize,
            b.first,
            b.view.column as isize,
            b.view.row as isize,
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
            let write = if add { Write::Add } else { Write::Replace };
            product([m, n, k], av.of(&a), bv.of(&b), cv.to(write, &mut c));
            for (index, computed) in c.iter().enumerate() {
                let position = index.checked_sub(offset).map(|i| (i / cv.row, i % cv.row)).filter(|&(r, c)| r < m && c < n);
                let Some((row, column)) = position else {
                    prop_assert_eq!(*computed, before[index], "outside the result");
                    continue;
                };
                let sum: f64 = (0..k).map(|i| f64::from(a[av.offset + row * av.row + i * av.column]) * f64::from(b[bv.offset + i * bv.row + column * bv.column])).sum();
                let expected = sum + if add { f64::from(before[index]) } else { 0.0 };
                prop_assert!((f64::from(*computed) - expected).abs() < 1e-2, "[{row}, {column}] {computed}, expected {expected}");
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
            let (x, w) = (View::rows(first * k, k).of(&x), View::rows(0, k).transposed().of(&w));
            product([m, n, k], x, w, View::rows(0, n).to(Write::Replace, &mut y));
            y
        };
        let all = rows(0, 60);
        if microkernel::available() {
            for (first, m) in [(0, 1), (7, 2), (13, 11), (59, 1)] {
                assert_eq!(rows(first, m), all[first * n..(first + m) * n]);
            }
        }
    }
}
