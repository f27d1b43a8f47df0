//! Microkernels of matrix products: tiles of the result in registers, from one source for AVX-512, AVX2, NEON, and arrays on other processors.
//!
//! [`tiles`] reads its right operand by rows, from panels or in place; [`dot`] reads the rows of its transpose. A general product first copies
//! operands into panels, which pays off if each value is used hundreds of times. A generation packs the weights into panels once
//! (`packed_weights.rs`), and its products read them; attention reads operands in place. A kernel's order of summation depends only on the
//! length of the sum, so with one kernel a row's result doesn't depend on the other rows.

use super::level::{Level, level};

/// Maximum number of rows that [`tiles`] processes together.
pub(crate) const TALL: usize = 6;

/// Returns the number of values in a register.
pub(crate) fn lanes() -> usize {
    match level() {
        Level::Avx512 => 16,
        Level::Avx2 => 8,
        Level::Neon | Level::Plain => 4,
    }
}

/// Returns the maximum number of columns that [`tiles`] processes together: four registers of AVX-512 or NEON, two of others.
pub(crate) fn wide() -> usize {
    match level() {
        Level::Avx512 => 64,
        Level::Avx2 | Level::Neon => 16,
        Level::Plain => 8,
    }
}

/// A matrix, given by its first element and the distance between rows.
#[derive(Clone, Copy)]
pub(crate) struct RowMajor {
    pub(crate) first: *const f32,
    pub(crate) stride: usize,
}

/// An operand in memory. Its lines (rows on the left, columns on the right) have the stride `line`, and the terms of a line the stride `term`. One
/// of the two is 1.
#[derive(Clone, Copy)]
pub(crate) struct Operand {
    pub(crate) first: *const f32,
    pub(crate) line: usize,
    pub(crate) term: usize,
}

impl Operand {
    /// Returns the operand from a line and a term on. This only computes an address, which may be out of bounds.
    pub(crate) fn at(self, line: usize, term: usize) -> Operand {
        Operand { first: self.first.wrapping_add(line * self.line + term * self.term), ..self }
    }

    /// Returns the operand with one row per line. Each row must be contiguous: its stride `term` must be 1.
    pub(crate) fn lines(self) -> RowMajor {
        RowMajor { first: self.first, stride: self.line }
    }

    /// Returns the operand with one row per term. Each row must be contiguous: its stride `line` must be 1.
    pub(crate) fn terms(self) -> RowMajor {
        RowMajor { first: self.first, stride: self.term }
    }
}

/// Destination of a product: its first element, the distance between rows, and whether the product is added to it.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    pub(crate) first: *mut f32,
    pub(crate) stride: usize,
    pub(crate) add: bool,
}

impl Output {
    /// Returns the part of the destination that starts at a row and a column.
    ///
    /// # Safety
    /// The element must be inside the destination.
    pub(crate) unsafe fn at(self, row: usize, column: usize) -> Output {
        // SAFETY: the caller guarantees it.
        Output { first: unsafe { self.first.add(row * self.stride + column) }, ..self }
    }
}

/// Defines a function that calls its version for the instruction set in use.
macro_rules! at_level {
    ($(#[$meta:meta])* $name:ident($($arg:ident: $ty:ty),* $(,)?)) => {
        $(#[$meta])*
        pub(crate) unsafe fn $name($($arg: $ty),*) {
            // SAFETY: the processor supports the level, and the caller guarantees the rest.
            unsafe {
                match level() {
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx512 => avx512::$name($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx2 => avx2::$name($($arg),*),
                    #[cfg(target_arch = "aarch64")]
                    Level::Neon => neon::$name($($arg),*),
                    _ => plain::$name($($arg),*),
                }
            }
        }
    };
}

at_level! {
    /// Computes `y = x wᵀ` with `x`: `[m, k]`, `w`: `[n, k]`.
    ///
    /// # Safety
    /// All three matrices must be readable, and `y` writable and disjoint from the others.
    dot(m: usize, n: usize, k: usize, x: RowMajor, w: RowMajor, y: Output)
}

at_level! {
    /// Computes `y = a b` with `a`: `[m, k]`, and `b`: `[k, n]`. The first four tiles of [`TALL`] rows also prefetch
    /// `4 k` cache lines from `ahead` on into the second-level cache, a quarter each.
    ///
    /// # Safety
    /// Like [`dot`]; `ahead` may be any address.
    tiles(sizes: [usize; 3], a: Operand, b: RowMajor, y: Output, ahead: *const f32)
}

/// Transposes `rows` rows of `columns` values, both at most [`lanes`], and sets the rest of each row of [`lanes`] results to 0.
///
/// # Safety
/// `from` must be readable, and `columns` rows of [`lanes`] values writable.
pub(crate) unsafe fn transpose(rows: usize, columns: usize, from: RowMajor, to: *mut f32, to_stride: usize) {
    type Block = [[f32; 4]; 4];
    let transposed = |[a, b, c, d]: Block| [0, 1, 2, 3].map(|j| [a[j], b[j], c[j], d[j]]);
    for row in (0..lanes()).step_by(4) {
        for column in (0..columns).step_by(4) {
            let (tall, wide) = (rows.saturating_sub(row), columns - column);
            let first = from.first.wrapping_add(row * from.stride + column);
            // SAFETY: reads the caller's rows and columns, and writes to the first `columns` rows.
            unsafe {
                let to = to.add(column * to_stride + row);
                if tall >= 4 && wide >= 4 {
                    let line = |i: usize| first.add(i * from.stride).cast::<[f32; 4]>().read();
                    let [a, b, c, d] = transposed([line(0), line(1), line(2), line(3)]);
                    to.cast::<[f32; 4]>().write(a);
                    to.add(to_stride).cast::<[f32; 4]>().write(b);
                    to.add(2 * to_stride).cast::<[f32; 4]>().write(c);
                    to.add(3 * to_stride).cast::<[f32; 4]>().write(d);
                    continue;
                }
                let mut block = Block::default();
                for (i, line) in block.iter_mut().enumerate().take(tall) {
                    std::ptr::copy_nonoverlapping(first.add(i * from.stride), line.as_mut_ptr(), wide.min(4));
                }
                for (j, line) in transposed(block).into_iter().enumerate().take(wide) {
                    to.add(j * to_stride).cast::<[f32; 4]>().write(line);
                }
            }
        }
    }
}

/// Prefetches a cache line into the second-level cache.
#[inline(always)]
fn prefetch(line: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of the architecture has the instruction, and it reads nothing.
    unsafe {
        use std::arch::x86_64::*;
        _mm_prefetch::<_MM_HINT_T1>(line.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above. The intrinsic isn't stable.
    unsafe {
        std::arch::asm!("prfm pldl2keep, [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = line;
}

/// Prefetches `data` into the second-level cache.
pub(crate) fn fetch(data: &[f32]) {
    data.chunks(16).for_each(|line| prefetch(line.as_ptr()));
}

/// Calls `$tile` with the height and width as compile-time constants.
macro_rules! at_size {
    ($tile:ident, $tall:expr, $wide:expr, $arguments:tt) => {
        at_size!($tile, $tall, $wide, $arguments, 1 2 3 4 5 6)
    };
    ($tile:ident, $tall:expr, $wide:expr, $arguments:tt, $($t:literal)*) => {
        match ($tall, $wide) {
            $(($t, 4) => at_size!(@call $tile, $t, 4, $arguments),
            ($t, 3) => at_size!(@call $tile, $t, 3, $arguments),
            ($t, 2) => at_size!(@call $tile, $t, 2, $arguments),
            ($t, _) => at_size!(@call $tile, $t, 1, $arguments),)*
            (tall, _) => unreachable!("{tall} rows"),
        }
    };
    (@call $tile:ident, $t:literal, $w:literal, ($($argument:expr),*)) => {
        $tile::<$t, $w>($($argument),*)
    };
}

/// Register operations. Partial loads and stores access only the first `count` values, and `sums` returns the sum of the values of each of four
/// registers.
macro_rules! registers {
    (#[$features:meta] $($name:ident($($arg:ident: $ty:ty),*) $(-> $result:ty)? = $body:expr;)*) => {
        $(
            /// # Safety
            /// The processor must have the instructions, and the memory that they access must be valid.
            #[inline]
            #[$features]
            #[allow(unused_unsafe, reason = "some access no memory")]
            pub(super) unsafe fn $name($($arg: $ty),*) $(-> $result)? {
                // SAFETY: the caller guarantees it.
                unsafe { $body }
            }
        )*
    };
}

/// A left operand whose rows are contiguous.
const BY_ROWS: u8 = 0;
/// A left operand whose columns are contiguous.
const BY_COLUMNS: u8 = 1;
/// Any other left operand.
const ANY: u8 = 2;

/// The kernels for the registers of the module `r`.
macro_rules! kernels {
    (#[$features:meta]) => {
        /// Number of columns in a tile of [`dot`].
        const DOT_WIDE: usize = 4;
        /// Number of rows of `x` that are multiplied by all of `w` at once; they fit into the second-level cache.
        const BAND: usize = 96;

        #[$features]
        pub(super) unsafe fn dot(m: usize, n: usize, k: usize, x: RowMajor, w: RowMajor, y: Output) {
            let mut band = 0;
            while band < m {
                let end = (band + BAND).min(m);
                let mut column = 0;
                while column < n {
                    let wide = DOT_WIDE.min(n - column);
                    let mut row = band;
                    while row < end {
                        let tall = r::DOT_TALL.min(end - row);
                        // SAFETY: rows are less than m, and columns less than n.
                        unsafe {
                            let x = RowMajor { first: x.first.add(row * x.stride), ..x };
                            let w = RowMajor { first: w.first.add(column * w.stride), ..w };
                            let y = y.at(row, column);
                            at_size!(dot_tile, tall, wide, (k, x, w, y));
                        }
                        row += tall;
                    }
                    column += wide;
                }
                band = end;
            }
        }

        #[$features]
        unsafe fn dot_tile<const R: usize, const C: usize>(k: usize, x: RowMajor, w: RowMajor, y: Output) {
            // SAFETY: reads R rows of x and C rows of w with k values each; the end of k is masked.
            unsafe {
                let mut sums = [[r::zero(); DOT_WIDE]; R];
                let mut i = 0;
                while i + r::LANES <= k {
                    let mut ws = [r::zero(); C];
                    for c in 0..C {
                        ws[c] = r::load(w.first.add(c * w.stride + i));
                    }
                    for r in 0..R {
                        let xs = r::load(x.first.add(r * x.stride + i));
                        for c in 0..C {
                            sums[r][c] = r::fma(xs, ws[c], sums[r][c]);
                        }
                    }
                    i += r::LANES;
                }
                if i < k {
                    for r in 0..R {
                        let xs = r::load_part(k - i, x.first.add(r * x.stride + i));
                        for c in 0..C {
                            let ws = r::load_part(k - i, w.first.add(c * w.stride + i));
                            sums[r][c] = r::fma(xs, ws, sums[r][c]);
                        }
                    }
                }
                for r in 0..R {
                    let (to, all) = (y.first.add(r * y.stride), r::sums(sums[r]));
                    for c in 0..C {
                        let before = if y.add { *to.add(c) } else { 0.0 };
                        *to.add(c) = before + all[c];
                    }
                }
            }
        }

        #[$features]
        pub(super) unsafe fn tiles(
            [m, n, k]: [usize; 3],
            a: Operand,
            b: RowMajor,
            y: Output,
            ahead: *const f32,
        ) {
            let mut column = 0;
            while column < n {
                let wide = (r::LANES * r::WIDE).min(n - column);
                let (mut row, mut done) = (0, 0);
                while row < m {
                    // Tiles of about equal height, because a low tile has to wait for its operands.
                    let tall = (m - row).div_ceil((m - row).div_ceil(TALL));
                    // SAFETY: rows are less than m, and columns less than n.
                    unsafe {
                        let a = a.at(row, 0);
                        let b = RowMajor { first: b.first.add(column), ..b };
                        let y = y.at(row, column);
                        // An address only: nothing is read. Later tiles prefetch the last quarter again, which is already cached.
                        let ahead = ahead.wrapping_add(done.min(3) * k * 16);
                        let registers = wide.div_ceil(r::LANES);
                        at_size!(tile, tall, registers, (wide, k, a, b, y, ahead));
                    }
                    (row, done) = (row + tall, done + 1);
                }
                column += wide;
            }
        }

        #[$features]
        unsafe fn tile<const R: usize, const C: usize>(
            wide: usize,
            k: usize,
            a: Operand,
            b: RowMajor,
            y: Output,
            ahead: *const f32,
        ) {
            // SAFETY: the tile has R rows and `wide` columns.
            unsafe {
                if wide < r::LANES * C {
                    tile_sums::<R, C, false, ANY>(wide, k, a, b, y, ahead);
                } else if a.term == 1 {
                    tile_sums::<R, C, true, BY_ROWS>(wide, k, a, b, y, ahead);
                } else if a.line == 1 {
                    tile_sums::<R, C, true, BY_COLUMNS>(wide, k, a, b, y, ahead);
                } else {
                    tile_sums::<R, C, true, ANY>(wide, k, a, b, y, ahead);
                }
            }
        }

        /// Computes one tile. `FULL` means that the last register is completely within the matrix. `LEFT` is the layout of `a`.
        #[inline]
        #[$features]
        unsafe fn tile_sums<const R: usize, const C: usize, const FULL: bool, const LEFT: u8>(
            wide: usize,
            k: usize,
            a: Operand,
            b: RowMajor,
            y: Output,
            ahead: *const f32,
        ) {
            // Number of lanes of the last register that are within the matrix.
            let rest = wide - r::LANES * (C - 1);
            // SAFETY: the tile has R rows and `wide` columns; lanes beyond are masked.
            unsafe {
                let mut sums = [[r::zero(); C]; R];
                let row = if LEFT == BY_COLUMNS { 1 } else { a.line };
                let column = if LEFT == BY_ROWS { 1 } else { a.term };
                let (mut from, mut right, mut ahead) = (a.first, b.first, ahead);
                // Adds one term to all sums.
                macro_rules! term {
                    () => {
                        prefetch(ahead);
                        let mut bs = [r::zero(); C];
                        for c in 0..C {
                            let from = right.add(r::LANES * c);
                            let whole = FULL || c + 1 < C;
                            bs[c] = if whole { r::load(from) } else { r::load_part(rest, from) };
                        }
                        for r in 0..R {
                            let value = r::splat(*from.add(r * row));
                            for c in 0..C {
                                sums[r][c] = r::fma(value, bs[c], sums[r][c]);
                            }
                        }
                        (from, right) = (from.wrapping_add(column), right.wrapping_add(b.stride));
                        ahead = ahead.wrapping_add(16);
                    };
                }
                let mut left = k;
                while left >= 4 {
                    term!();
                    term!();
                    term!();
                    term!();
                    left -= 4;
                }
                while left > 0 {
                    term!();
                    left -= 1;
                }
                for r in 0..R {
                    for c in 0..C {
                        let to = y.first.add(r * y.stride + r::LANES * c);
                        let whole = FULL || c + 1 < C;
                        let mut sum = sums[r][c];
                        if y.add {
                            let before = if whole { r::load(to) } else { r::load_part(rest, to) };
                            sum = r::add(before, sum);
                        }
                        if whole {
                            r::store(to, sum);
                        } else {
                            r::store_part(rest, to, sum);
                        }
                    }
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{ANY, BY_COLUMNS, BY_ROWS, Operand, Output, RowMajor, TALL, prefetch};

    /// Registers of 16 values.
    mod r {
        use std::arch::x86_64::*;

        pub(super) const LANES: usize = 16;
        /// Registers per row of a tile of [`super::tiles`]: 24 sums with [`super::TALL`] rows.
        pub(super) const WIDE: usize = 4;
        /// Number of rows in a tile of [`super::dot`], which has 24 sums.
        pub(super) const DOT_TALL: usize = 6;

        registers! { #[target_feature(enable = "avx512f")]
            zero() -> __m512 = _mm512_setzero_ps();
            splat(value: f32) -> __m512 = _mm512_set1_ps(value);
            add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
            fma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
            load(from: *const f32) -> __m512 = _mm512_loadu_ps(from);
            load_part(count: usize, from: *const f32) -> __m512 = _mm512_maskz_loadu_ps(mask(count), from);
            store(to: *mut f32, value: __m512) = _mm512_storeu_ps(to, value);
            store_part(count: usize, to: *mut f32, value: __m512) = _mm512_mask_storeu_ps(to, mask(count), value);
            // By pairs, pairs of pairs, and then the four quarters.
            sums(all: [__m512; 4]) -> [f32; 4] = {
                let [a, b, c, d] = all;
                let ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
                let cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
                let (ab, cd) = (_mm512_castps_pd(ab), _mm512_castps_pd(cd));
                let low = _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd));
                let high = _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd));
                let all = _mm512_add_ps(low, high);
                std::mem::transmute::<__m128, [f32; 4]>(_mm_add_ps(
                    _mm_add_ps(_mm512_extractf32x4_ps::<0>(all), _mm512_extractf32x4_ps::<1>(all)),
                    _mm_add_ps(_mm512_extractf32x4_ps::<2>(all), _mm512_extractf32x4_ps::<3>(all)),
                ))
            };
        }

        /// Returns a mask with the first `count` lanes set.
        fn mask(count: usize) -> u16 {
            ((1u32 << count) - 1) as u16
        }
    }

    kernels!(#[target_feature(enable = "avx512f")]);
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{ANY, BY_COLUMNS, BY_ROWS, Operand, Output, RowMajor, TALL, prefetch};

    /// Registers of 8 values.
    mod r {
        use std::arch::x86_64::*;

        pub(super) const LANES: usize = 8;
        /// Registers per row of a tile of [`super::tiles`]: 12 sums with [`super::TALL`] rows, out of 16 registers.
        pub(super) const WIDE: usize = 2;
        /// Number of rows in a tile of [`super::dot`], which has 8 sums.
        pub(super) const DOT_TALL: usize = 2;

        registers! { #[target_feature(enable = "avx2,fma")]
            zero() -> __m256 = _mm256_setzero_ps();
            splat(value: f32) -> __m256 = _mm256_set1_ps(value);
            add(a: __m256, b: __m256) -> __m256 = _mm256_add_ps(a, b);
            fma(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fmadd_ps(a, b, c);
            load(from: *const f32) -> __m256 = _mm256_loadu_ps(from);
            load_part(count: usize, from: *const f32) -> __m256 = _mm256_maskload_ps(from, mask(count));
            store(to: *mut f32, value: __m256) = _mm256_storeu_ps(to, value);
            store_part(count: usize, to: *mut f32, value: __m256) = _mm256_maskstore_ps(to, mask(count), value);
            // Reads eight of the sixteen values, starting at most at index 8: a mask with the first `count` lanes set.
            mask(count: usize) -> __m256i = {
                const LANES_SET: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
                assert!(count <= LANES);
                _mm256_loadu_si256(LANES_SET.as_ptr().add(LANES - count).cast())
            };
            sums(all: [__m256; 4]) -> [f32; 4] = {
                let [a, b, c, d] = all;
                let all = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
                let halves = (_mm256_castps256_ps128(all), _mm256_extractf128_ps::<1>(all));
                std::mem::transmute::<__m128, [f32; 4]>(_mm_add_ps(halves.0, halves.1))
            };
        }
    }

    kernels!(#[target_feature(enable = "avx2,fma")]);
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use super::{ANY, BY_COLUMNS, BY_ROWS, Operand, Output, RowMajor, TALL, prefetch};

    /// Registers of 4 values.
    mod r {
        use std::arch::aarch64::*;

        pub(super) const LANES: usize = 4;
        /// Registers per row of a tile of [`super::tiles`]: 24 sums with [`super::TALL`] rows, out of 32 registers.
        pub(super) const WIDE: usize = 4;
        /// Number of rows in a tile of [`super::dot`], which has 24 sums.
        pub(super) const DOT_TALL: usize = 6;

        registers! { #[target_feature(enable = "neon")]
            zero() -> float32x4_t = vdupq_n_f32(0.0);
            splat(value: f32) -> float32x4_t = vdupq_n_f32(value);
            add(a: float32x4_t, b: float32x4_t) -> float32x4_t = vaddq_f32(a, b);
            fma(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t = vfmaq_f32(c, a, b);
            load(from: *const f32) -> float32x4_t = vld1q_f32(from);
            load_part(count: usize, from: *const f32) -> float32x4_t = {
                let mut part = zero();
                match count {
                    1 => part = vld1q_lane_f32::<0>(from, part),
                    2 | 3 => part = vcombine_f32(vld1_f32(from), vget_high_f32(part)),
                    _ => part = load(from),
                }
                if count == 3 { vld1q_lane_f32::<2>(from.add(2), part) } else { part }
            };
            store(to: *mut f32, value: float32x4_t) = vst1q_f32(to, value);
            store_part(count: usize, to: *mut f32, value: float32x4_t) = {
                match count {
                    1 => vst1q_lane_f32::<0>(to, value),
                    2 | 3 => vst1_f32(to, vget_low_f32(value)),
                    _ => store(to, value),
                }
                if count == 3 {
                    vst1q_lane_f32::<2>(to.add(2), value);
                }
            };
            // Neighbours, then pairs of them.
            sums(all: [float32x4_t; 4]) -> [f32; 4] = {
                let [a, b, c, d] = all;
                std::mem::transmute::<float32x4_t, [f32; 4]>(vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d)))
            };
        }
    }

    kernels!(#[target_feature(enable = "neon")]);
}

mod plain {
    use super::{ANY, BY_COLUMNS, BY_ROWS, Operand, Output, RowMajor, TALL, prefetch};

    /// Arrays of 4 values, which the compiler keeps in whatever registers the processor has.
    mod r {
        use std::array::from_fn;
        use std::ptr::copy_nonoverlapping;

        type Four = [f32; 4];

        pub(super) const LANES: usize = 4;
        pub(super) const WIDE: usize = 2;
        pub(super) const DOT_TALL: usize = 2;

        registers! { #[allow(clippy::missing_const_for_fn)]
            zero() -> Four = [0.0; 4];
            splat(value: f32) -> Four = [value; 4];
            add(a: Four, b: Four) -> Four = from_fn(|i| a[i] + b[i]);
            fma(a: Four, b: Four, c: Four) -> Four = from_fn(|i| a[i] * b[i] + c[i]);
            load(from: *const f32) -> Four = from.cast::<Four>().read();
            load_part(count: usize, from: *const f32) -> Four = {
                let mut part = zero();
                copy_nonoverlapping(from, part.as_mut_ptr(), count);
                part
            };
            store(to: *mut f32, value: Four) = to.cast::<Four>().write(value);
            store_part(count: usize, to: *mut f32, value: Four) = copy_nonoverlapping(value.as_ptr(), to, count);
            sums(all: [Four; 4]) -> [f32; 4] = all.map(|[a, b, c, d]| (a + b) + (c + d));
        }
    }

    kernels!(#[allow(clippy::missing_const_for_fn)]);
}
