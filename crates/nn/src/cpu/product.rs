//! Matrix products on one thread or by a team, with panels or, for few rows, without packing.
//!
//! Products in bfloat16 always use panels, whatever the sizes, because sampling and scoring must round identically.

use std::ops::Range;

use super::blas::{self, Blas};
use super::format;
use super::microkernel::{self, Operand, Output};
use super::panels::{self, ColumnRange, Right};
use super::team::{Shared, Team};
use crate::layout::Write;
use crate::numbers::ProductFormat;

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
    /// Returns the view of a row-major matrix that starts at `offset` and has the row stride `stride`.
    pub(crate) fn rows(offset: usize, stride: usize) -> View {
        View { offset, row: stride, column: 1 }
    }

    pub(crate) fn transposed(self) -> View {
        View { row: self.column, column: self.row, ..self }
    }

    /// Returns the matrix that this view describes in `numbers`.
    pub(crate) fn of(self, numbers: &[f32]) -> Matrix<'_> {
        Matrix { numbers, view: self }
    }

    /// Returns the destination that this view describes in `numbers`, which `write` replaces or adds to.
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

pub(crate) struct Target<'a> {
    numbers: &'a mut [f32],
    view: View,
    write: Write,
}

/// Maximum number of rows of the left operand for which the right operand isn't packed, because it wouldn't pay off.
const FEW_ROWS: usize = 64;
/// Maximum number of rows for which a row-major right operand is read in place.
const FEW_READS: usize = 24;
/// Maximum number of terms of products in attention's blocks, whose operands are small.
const FEW_TERMS: usize = 64;

#[cfg(test)]
thread_local! {
    static COUNTED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Returns the number of floating-point operations of this thread's products so far.
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
enum Method {
    Dot,
    Tiles,
    Packing,
    /// The system's BLAS, which divides the product among its threads.
    Blas(&'static Blas),
    /// Uses the right operand's panels, which have this number of columns in total.
    Panels(usize),
}

/// A product that threads compute in parts: its operands and its method.
#[derive(Clone, Copy)]
struct DividedProduct<'a> {
    k: usize,
    a: Matrix<'a>,
    b: Matrix<'a>,
    products: ProductFormat,
    method: Method,
}

impl Method {
    fn choose(products: ProductFormat, [m, n, k]: [usize; 3], av: View, bv: View) -> Method {
        let large = products == ProductFormat::Blas && 2 * m * n * k >= WORTHWHILE;
        if large && let Ok(blas) = blas::library() {
            Method::Blas(blas)
        } else if !matches!(products, ProductFormat::F32 | ProductFormat::Blas) {
            Method::Packing
        } else if av.column == 1 && bv.row == 1 && (m <= FEW_ROWS || k <= FEW_TERMS && n <= 512) {
            Method::Dot
        } else if bv.column == 1 && (n <= 2 * FEW_TERMS && k <= 512 || m <= FEW_READS) {
            Method::Tiles
        } else {
            Method::Packing
        }
    }
}

impl DividedProduct<'_> {
    /// Computes the given rows and columns of the result, which has the view `cv` of `c`.
    ///
    /// # Safety
    /// The whole product's operands and result must be in bounds, and no other thread may access this part of the result.
    unsafe fn part(&self, rows: &Range<usize>, columns: &Range<usize>, c: *mut f32, cv: View, write: Write) {
        let DividedProduct {
            k,
            a: Matrix { numbers: a, view: av },
            b: Matrix { numbers: b, view: bv },
            products,
            ..
        } = *self;
        let (m, n) = (rows.len(), columns.len());
        // SAFETY: the part is inside the whole, which the caller has checked.
        unsafe {
            let first = a.as_ptr().add(av.offset + rows.start * av.row);
            let left = Operand { first, line: av.row, term: av.column };
            let first = b.as_ptr().add(bv.offset + columns.start * bv.column);
            let right = Operand { first, line: bv.column, term: bv.row };
            let first = c.add(cv.offset + rows.start * cv.row + columns.start * cv.column);
            let to = Output { first, stride: cv.row, add: write == Write::Add };
            match self.method {
                Method::Dot => microkernel::dot(m, n, k, left.lines(), right.lines(), to),
                Method::Tiles => microkernel::tiles([m, n, k], left, right.terms(), to, right.first),
                Method::Blas(blas) => blas.product([m, n, k], left, right, to),
                Method::Packing => {
                    panels::multiply(products, [m, k], ColumnRange::all(n), left, Right::Operand(right), to);
                }
                Method::Panels(total) => {
                    let columns = ColumnRange { first: columns.start, n, total };
                    panels::multiply(products, [m, k], columns, left, Right::Panels(b), to);
                }
            }
        }
    }

    /// Computes the whole product, `[m, n]`, on a team.
    ///
    /// # Safety
    /// See [`DividedProduct::part`].
    unsafe fn run(&self, team: Option<&Team>, m: usize, n: usize, to: Target<'_>) {
        let Target { numbers: c, view, write } = to;
        let size = team.map_or(1, |team| team.size().min(2 * m * n * self.k / WORTHWHILE));
        let Some(team) = team.filter(|_| size > 1 && !matches!(self.method, Method::Blas(_))) else {
            // SAFETY: the caller guarantees it.
            return unsafe { self.part(&(0..m), &(0..n), c.as_mut_ptr(), view, write) };
        };
        let f32 = matches!(self.products, ProductFormat::F32 | ProductFormat::Blas);
        let grain = if f32 { microkernel::TALL } else { BF16_ROWS };
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

/// Divides a result of `rows` by `columns` tiles among at most `size` threads. Returns the numbers of parts of rows and
/// columns. The largest part is as small as possible. Of these, rows have the fewest parts, because each packs columns.
fn grid(size: usize, rows: usize, columns: usize) -> (usize, usize) {
    (1..=size.min(rows))
        .map(|tall| (tall, (size / tall).min(columns)))
        .min_by_key(|&(tall, wide)| rows.div_ceil(tall) * columns.div_ceil(wide))
        .expect("at least one division")
}

/// The team that computes a product, or `None` for this thread alone; and the product's number format.
pub(crate) type Workers<'a> = (Option<&'a Team>, ProductFormat);

/// Computes `c = a b` or `c += a b` in f32 on this thread. `a` is `[m, k]` and `b` is `[k, n]`.
///
/// # Panics
/// If a view exceeds its slice, or `k` is 0.
pub(crate) fn product(sizes: [usize; 3], a: Matrix<'_>, b: Matrix<'_>, to: Target<'_>) {
    team_product((None, ProductFormat::F32), sizes, a, b, to);
}

/// Like [`product`], on a team and in any number format. The result doesn't depend on the team.
///
/// # Panics
/// See [`product`].
pub(crate) fn team_product(
    workers: Workers<'_>,
    sizes: [usize; 3],
    a: Matrix<'_>,
    b: Matrix<'_>,
    to: Target<'_>,
) {
    let method = Method::choose(workers.1, sizes, a.view, b.view);
    checked_product(method, workers, sizes, a, b, to);
}

fn checked_product(
    method: Method,
    workers: Workers<'_>,
    sizes: [usize; 3],
    a: Matrix<'_>,
    b: Matrix<'_>,
    to: Target<'_>,
) {
    let ((team, products), [m, n, k]) = (workers, sizes);
    if m == 0 || n == 0 {
        return;
    }
    count(m, n, k);
    assert!(k > 0, "the product has no terms");
    let contiguous = [a.view, b.view].iter().all(|view| view.row.min(view.column) <= 1);
    assert!(contiguous && to.view.column == 1, "a matrix is contiguous neither in rows nor in columns");
    let ends = |name: &str, view: View, rows: usize, columns: usize, len: usize| {
        let end = view.end(rows, columns);
        assert!(end <= len, "{name} [{rows}, {columns}] ends at {end} of {len}");
    };
    ends("left operand", a.view, m, k, a.numbers.len());
    ends("right operand", b.view, k, n, b.numbers.len());
    ends("result", to.view, m, n, to.numbers.len());
    // SAFETY: asserted above, and the result is borrowed uniquely.
    unsafe { DividedProduct { k, a, b, products, method }.run(team, m, n, to) }
}

/// Like [`team_product`], but always packs, whatever the sizes. An element has the same bits as in a product with
/// panels, so it depends neither on the number of rows nor on how the columns are divided into products.
///
/// # Panics
/// See [`product`].
pub(crate) fn packing_product(
    workers: Workers<'_>,
    sizes: [usize; 3],
    a: Matrix<'_>,
    b: Matrix<'_>,
    to: Target<'_>,
) {
    checked_product(Method::Packing, workers, sizes, a, b, to);
}

/// Computes `y = x wᵀ` or `y += x wᵀ` from the panels of `w`. `sizes` are `[m, n, k]`, and `x` is `[m, k]`.
///
/// # Panics
/// If a slice is too short.
pub(crate) fn product_with_panels(
    workers: Workers<'_>,
    sizes: [usize; 3],
    x: &[f32],
    panels: &[f32],
    y: Target<'_>,
) {
    let [_, n, k] = sizes;
    assert!(panels.len() == panels::len(workers.1, n, k), "panels of [{n}, {k}]: {}", panels.len());
    // The kernel finds rows in the panels by itself, so the view only has to pass the check of lengths.
    let b = View { offset: 0, row: 0, column: 0 }.of(panels);
    checked_product(Method::Panels(n), workers, sizes, View::rows(0, k).of(x), b, y);
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
        for (first, m) in [(0, 1), (7, 2), (13, 11), (59, 1)] {
            assert_eq!(rows(first, m), all[first * n..(first + m) * n]);
        }
    }
}
