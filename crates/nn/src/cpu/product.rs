//! Matrix products on one thread, through the `gemm` crate.

use gemm::Parallelism;

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

/// `c = keep * c + a b`, sizes `[m, k] [k, n]`; `keep` 0 doesn't read `c`.
///
/// # Panics
/// If a view leaves its slice.
pub(crate) fn product(
    m: usize,
    n: usize,
    k: usize,
    a: &[f32],
    av: View,
    b: &[f32],
    bv: View,
    keep: f32,
    factor: f32,
    c: &mut [f32],
    cv: View,
) {
    if m == 0 || n == 0 {
        return;
    }
    assert!(k > 0, "a product over nothing");
    assert!(av.end(m, k) <= a.len(), "left operand [{m}, {k}] ends at {} of {}", av.end(m, k), a.len());
    assert!(bv.end(k, n) <= b.len(), "right operand [{k}, {n}] ends at {} of {}", bv.end(k, n), b.len());
    assert!(cv.end(m, n) <= c.len(), "result [{m}, {n}] ends at {} of {}", cv.end(m, n), c.len());
    // SAFETY: all three matrices lie inside their slices, as just checked, and `c` is borrowed uniquely.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.as_mut_ptr().add(cv.offset),
            cv.column as isize,
            cv.row as isize,
            keep != 0.0,
            a.as_ptr().add(av.offset),
            av.column as isize,
            av.row as isize,
            b.as_ptr().add(bv.offset),
            bv.column as isize,
            bv.row as isize,
            keep,
            factor,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}
