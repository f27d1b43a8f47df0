//! Microkernels of matrix products: tiles of the result in registers, from one source for AVX-512, AVX2 and NEON.
//!
//! [`outer`] reads its right operand by rows, from panels or in place; [`dot`] reads the rows of its transpose. A general product first copies
//! operands into panels, which pays off if each value is used hundreds of times; decoding and attention read them in place. The summation
//! order of an element depends only on the length of the sum, so a row's result doesn't depend on the other rows.

use super::level::{Level, level};

/// Whether this processor supports the kernels.
pub(crate) fn available() -> bool {
    level() != Level::Plain
}

/// Maximum number of rows that [`outer`] processes together.
pub(crate) const TALL: usize = 6;

/// Number of values in a register.
pub(crate) fn lanes() -> usize {
    match level() {
        Level::Avx512 => 16,
        Level::Neon => 4,
        Level::Avx2 | Level::Plain => 8,
    }
}

/// Maximum number of columns that [`outer`] processes together: four registers of AVX-512 or NEON, two of AVX2.
pub(crate) fn wide() -> usize {
    if level() == Level::Avx512 { 64 } else { 16 }
}

/// A matrix, given by its first element and the distance between rows.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) first: *const f32,
    pub(crate) stride: usize,
}

/// Destination of a product: its first element, the distance between rows, and whether the product is added to it.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    pub(crate) first: *mut f32,
    pub(crate) stride: usize,
    pub(crate) add: bool,
}

impl Output {
    /// The part of the destination that starts at a row and a column.
    ///
    /// # Safety
    /// The element must be inside the destination.
    pub(crate) unsafe fn at(self, row: usize, column: usize) -> Output {
        // SAFETY: the caller guarantees it.
        Output { first: unsafe { self.first.add(row * self.stride + column) }, ..self }
    }
}

/// Dispatches a public function to the level in use.
macro_rules! at_level {
    ($(#[$meta:meta])* $name:ident($($arg:ident: $ty:ty),* $(,)?)) => {
        $(#[$meta])*
        pub(crate) unsafe fn $name($($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the processor supports the level, and the caller guarantees the rest.
            unsafe {
                match level() {
                    Level::Avx512 => avx512::$name($($arg),*),
                    Level::Avx2 => avx2::$name($($arg),*),
                    Level::Plain | Level::Neon => unreachable!("not available"),
                }
            }
            #[cfg(target_arch = "aarch64")]
            // SAFETY: every aarch64 processor has NEON, and the caller guarantees the rest.
            unsafe {
                neon::$name($($arg),*);
            }
            #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
            {
                $(let _ = $arg;)*
                unreachable!("not available")
            }
        }
    };
}

at_level! {
    /// `y = x wᵀ` with `x`: `[m, k]`, `w`: `[n, k]`.
    ///
    /// # Safety
    /// [`available`] must be true, all three matrices must be readable, and `y` writable and disjoint from the others.
    dot(m: usize, n: usize, k: usize, x: Rows, w: Rows, y: Output)
}

at_level! {
    /// `y = a b` with `a`: `[m, k]`, whose columns are `a_column` apart, and `b`: `[k, n]`. The first four tiles of [`TALL`] rows also prefetch
    /// `4 k` cache lines from `ahead` on into the second-level cache, a quarter each.
    ///
    /// # Safety
    /// Like [`dot`]; `ahead` may be any address.
    outer(sizes: [usize; 3], a: Rows, a_column: usize, b: Rows, y: Output, ahead: *const f32)
}

at_level! {
    /// `to[i * to_stride + j] = from[j][i]` for `rows` rows and `columns` columns, both at most [`lanes`]. Sets the rest of each row of [`lanes`] values to 0.
    ///
    /// # Safety
    /// [`available`] must be true, `from` readable, and `columns` rows of [`lanes`] values writable.
    transpose(rows: usize, columns: usize, from: Rows, to: *mut f32, to_stride: usize)
}

/// Prefetches `data` into the second-level cache.
pub(crate) fn fetch(data: &[f32]) {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    for line in data.chunks(16) {
        // SAFETY: every processor has the instruction, and it reads nothing.
        unsafe { four::prefetch(line.as_ptr()) };
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = data;
}

/// Calls `$tile` with the height and width as compile-time constants.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! tiles {
    ($tile:ident, $tall:expr, $wide:expr, $arguments:tt) => {
        tiles!($tile, $tall, $wide, $arguments, 1 2 3 4 5 6)
    };
    ($tile:ident, $tall:expr, $wide:expr, $arguments:tt, $($t:literal)*) => {
        match ($tall, $wide) {
            $(($t, 4) => tiles!(@call $tile, $t, 4, $arguments),
            ($t, 3) => tiles!(@call $tile, $t, 3, $arguments),
            ($t, 2) => tiles!(@call $tile, $t, 2, $arguments),
            ($t, _) => tiles!(@call $tile, $t, 1, $arguments),)*
            (tall, _) => unreachable!("{tall} rows"),
        }
    };
    (@call $tile:ident, $t:literal, $w:literal, ($($argument:expr),*)) => {
        $tile::<$t, $w>($($argument),*)
    };
}

/// Register operations of one instruction each. Partial loads and stores access only the first `count` values.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! registers {
    ($features:literal; $($name:ident($($arg:ident: $ty:ty),*) $(-> $result:ty)? = $body:expr;)*) => {
        $(
            /// # Safety
            /// The processor must have the instruction, and the memory that it accesses must be valid.
            #[inline]
            #[target_feature(enable = $features)]
            #[allow(unused_unsafe, reason = "some access no memory")]
            pub(super) unsafe fn $name($($arg: $ty),*) $(-> $result)? {
                // SAFETY: the caller guarantees it.
                unsafe { $body }
            }
        )*
    };
}

/// Registers of four values, which every processor of the architecture has.
#[cfg(target_arch = "x86_64")]
mod four {
    use std::arch::x86_64::*;

    registers! { "sse";
        zero() -> __m128 = _mm_setzero_ps();
        add(a: __m128, b: __m128) -> __m128 = _mm_add_ps(a, b);
        load(from: *const f32) -> __m128 = _mm_loadu_ps(from);
        store(to: *mut f32, value: __m128) = _mm_storeu_ps(to, value);
        prefetch(line: *const f32) = _mm_prefetch::<_MM_HINT_T1>(line.cast());
    }
}

#[cfg(target_arch = "aarch64")]
mod four {
    use std::arch::aarch64::*;

    registers! { "neon";
        zero() -> float32x4_t = vdupq_n_f32(0.0);
        add(a: float32x4_t, b: float32x4_t) -> float32x4_t = vaddq_f32(a, b);
        load(from: *const f32) -> float32x4_t = vld1q_f32(from);
        store(to: *mut f32, value: float32x4_t) = vst1q_f32(to, value);
        // The intrinsic isn't stable.
        prefetch(line: *const f32) = std::arch::asm!("prfm pldl2keep, [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
}

/// A left operand with contiguous columns.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const BY_ROWS: u8 = 0;
/// A left operand with contiguous rows.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const BY_COLUMNS: u8 = 1;
/// Any other left operand.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const ANY: u8 = 2;

/// The kernels for the registers of the module `r`.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! kernels {
    ($features:literal) => {
        /// Columns of a tile of [`dot`].
        const DOT_WIDE: usize = 4;
        /// Rows of `x` that are multiplied by all of `w` at once, few enough to stay in the second-level cache.
        const BAND: usize = 96;

        #[target_feature(enable = $features)]
        pub(super) unsafe fn dot(m: usize, n: usize, k: usize, x: Rows, w: Rows, y: Output) {
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
                            let x = Rows { first: x.first.add(row * x.stride), ..x };
                            let w = Rows { first: w.first.add(column * w.stride), ..w };
                            let y = y.at(row, column);
                            tiles!(dot_tile, tall, wide, (k, x, w, y));
                        }
                        row += tall;
                    }
                    column += wide;
                }
                band = end;
            }
        }

        #[target_feature(enable = $features)]
        unsafe fn dot_tile<const R: usize, const C: usize>(k: usize, x: Rows, w: Rows, y: Output) {
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
                    let all = r::sums(sums[r]);
                    let to = y.first.add(r * y.stride);
                    if C == DOT_WIDE {
                        let before = if y.add { four::load(to) } else { four::zero() };
                        four::store(to, four::add(before, all));
                    } else {
                        let mut parts = [0.0f32; 4];
                        four::store(parts.as_mut_ptr(), all);
                        for (c, sum) in parts.iter().enumerate().take(C) {
                            let before = if y.add { *to.add(c) } else { 0.0 };
                            *to.add(c) = before + sum;
                        }
                    }
                }
            }
        }

        #[target_feature(enable = $features)]
        pub(super) unsafe fn outer(
            [m, n, k]: [usize; 3],
            a: Rows,
            a_column: usize,
            b: Rows,
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
                        let a = Rows { first: a.first.add(row * a.stride), ..a };
                        let b = Rows { first: b.first.add(column), ..b };
                        let y = y.at(row, column);
                        // An address only: nothing is read. Later tiles prefetch the last quarter again, which is already cached.
                        let ahead = ahead.wrapping_add(done.min(3) * k * 16);
                        let registers = wide.div_ceil(r::LANES);
                        tiles!(outer_tile, tall, registers, (wide, k, a, a_column, b, y, ahead));
                    }
                    (row, done) = (row + tall, done + 1);
                }
                column += wide;
            }
        }

        #[target_feature(enable = $features)]
        unsafe fn outer_tile<const R: usize, const C: usize>(
            wide: usize,
            k: usize,
            a: Rows,
            a_column: usize,
            b: Rows,
            y: Output,
            ahead: *const f32,
        ) {
            // SAFETY: the tile has R rows and `wide` columns.
            unsafe {
                if wide < r::LANES * C {
                    outer_sums::<R, C, false, ANY>(wide, k, a, a_column, b, y, ahead);
                } else if a_column == 1 {
                    outer_sums::<R, C, true, BY_ROWS>(wide, k, a, a_column, b, y, ahead);
                } else if a.stride == 1 {
                    outer_sums::<R, C, true, BY_COLUMNS>(wide, k, a, a_column, b, y, ahead);
                } else {
                    outer_sums::<R, C, true, ANY>(wide, k, a, a_column, b, y, ahead);
                }
            }
        }

        /// Computes one tile. `FULL` means that the last register is completely within the matrix. `LEFT` is the layout of `a`.
        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn outer_sums<const R: usize, const C: usize, const FULL: bool, const LEFT: u8>(
            wide: usize,
            k: usize,
            a: Rows,
            a_column: usize,
            b: Rows,
            y: Output,
            ahead: *const f32,
        ) {
            // Number of lanes of the last register that are within the matrix.
            let rest = wide - r::LANES * (C - 1);
            // SAFETY: the tile has R rows and `wide` columns; lanes beyond are masked.
            unsafe {
                let mut sums = [[r::zero(); C]; R];
                let row = if LEFT == BY_COLUMNS { 1 } else { a.stride };
                let column = if LEFT == BY_ROWS { 1 } else { a_column };
                let (mut from, mut right, mut ahead) = (a.first, b.first, ahead);
                // Adds one term to all sums.
                macro_rules! term {
                    () => {
                        four::prefetch(ahead);
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
#[expect(clippy::needless_range_loop, reason = "indices into registers, unrolled")]
mod avx512 {
    use super::{ANY, BY_COLUMNS, BY_ROWS, Output, Rows, TALL, four};
    use std::arch::x86_64::*;

    /// Registers of 16 values.
    mod r {
        use std::arch::x86_64::*;

        pub(super) const LANES: usize = 16;
        /// Registers per row of a tile of [`super::outer`]: 24 sums with [`super::TALL`] rows.
        pub(super) const WIDE: usize = 4;
        /// Rows of a tile of [`super::dot`]: 24 sums.
        pub(super) const DOT_TALL: usize = 6;

        registers! { "avx512f";
            zero() -> __m512 = _mm512_setzero_ps();
            splat(value: f32) -> __m512 = _mm512_set1_ps(value);
            add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
            fma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
            load(from: *const f32) -> __m512 = _mm512_loadu_ps(from);
            load_part(count: usize, from: *const f32) -> __m512 = _mm512_maskz_loadu_ps(mask(count), from);
            store(to: *mut f32, value: __m512) = _mm512_storeu_ps(to, value);
            store_part(count: usize, to: *mut f32, value: __m512) = _mm512_mask_storeu_ps(to, mask(count), value);
        }

        /// A mask with the first `count` lanes set.
        fn mask(count: usize) -> u16 {
            ((1u32 << count) - 1) as u16
        }

        /// Sums each of four registers: by pairs, pairs of pairs, and then the four quarters.
        #[inline]
        #[target_feature(enable = "avx512f")]
        pub(super) fn sums([a, b, c, d]: [__m512; 4]) -> __m128 {
            let ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
            let cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
            let (ab, cd) = (_mm512_castps_pd(ab), _mm512_castps_pd(cd));
            let low = _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd));
            let high = _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd));
            let all = _mm512_add_ps(low, high);
            _mm_add_ps(
                _mm_add_ps(_mm512_extractf32x4_ps::<0>(all), _mm512_extractf32x4_ps::<1>(all)),
                _mm_add_ps(_mm512_extractf32x4_ps::<2>(all), _mm512_extractf32x4_ps::<3>(all)),
            )
        }
    }

    kernels!("avx512f");

    /// See [`super::transpose`]; `rows` and `columns` are at most 16.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn transpose(rows: usize, columns: usize, from: Rows, to: *mut f32, to_stride: usize) {
        let mask = ((1u32 << columns) - 1) as u16;
        // SAFETY: loads are masked to the caller's rows and columns, and stores go to the first `columns` rows.
        unsafe {
            let mut r = [_mm512_setzero_ps(); 16];
            for j in 0..rows {
                r[j] = _mm512_maskz_loadu_ps(mask, from.first.add(j * from.stride));
            }
            // Transpose pairs of rows, then groups of four: quarter q of b[4g + j] holds column 4q + j of rows 4g to 4g + 3.
            let mut a = r;
            for i in 0..8 {
                a[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
                a[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
            }
            let mut b = r;
            for g in 0..4 {
                for half in 0..2 {
                    let low = _mm512_castps_pd(a[4 * g + half]);
                    let high = _mm512_castps_pd(a[4 * g + 2 + half]);
                    b[4 * g + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
                    b[4 * g + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
                }
            }
            for j in 0..4 {
                let even = _mm512_shuffle_f32x4::<0x88>(b[j], b[4 + j]);
                let odd = _mm512_shuffle_f32x4::<0xdd>(b[j], b[4 + j]);
                let even_below = _mm512_shuffle_f32x4::<0x88>(b[8 + j], b[12 + j]);
                let odd_below = _mm512_shuffle_f32x4::<0xdd>(b[8 + j], b[12 + j]);
                for (column, value) in [
                    (j, _mm512_shuffle_f32x4::<0x88>(even, even_below)),
                    (4 + j, _mm512_shuffle_f32x4::<0x88>(odd, odd_below)),
                    (8 + j, _mm512_shuffle_f32x4::<0xdd>(even, even_below)),
                    (12 + j, _mm512_shuffle_f32x4::<0xdd>(odd, odd_below)),
                ] {
                    if column < columns {
                        _mm512_storeu_ps(to.add(column * to_stride), value);
                    }
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[expect(clippy::needless_range_loop, reason = "indices into registers, unrolled")]
mod avx2 {
    use super::{ANY, BY_COLUMNS, BY_ROWS, Output, Rows, TALL, four};
    use std::arch::x86_64::*;

    /// Registers of 8 values.
    mod r {
        use std::arch::x86_64::*;

        pub(super) const LANES: usize = 8;
        /// Registers per row of a tile of [`super::outer`]: 12 sums with [`super::TALL`] rows, out of 16 registers.
        pub(super) const WIDE: usize = 2;
        /// Rows of a tile of [`super::dot`]: 8 sums.
        pub(super) const DOT_TALL: usize = 2;

        /// A mask with the first `count` lanes set.
        #[inline]
        #[target_feature(enable = "avx2,fma")]
        fn mask(count: usize) -> __m256i {
            const LANES_SET: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
            assert!(count <= LANES);
            // SAFETY: reads eight of the sixteen values, starting at most at index 8.
            unsafe { _mm256_loadu_si256(LANES_SET.as_ptr().add(LANES - count).cast()) }
        }

        registers! { "avx2,fma";
            zero() -> __m256 = _mm256_setzero_ps();
            splat(value: f32) -> __m256 = _mm256_set1_ps(value);
            add(a: __m256, b: __m256) -> __m256 = _mm256_add_ps(a, b);
            fma(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fmadd_ps(a, b, c);
            load(from: *const f32) -> __m256 = _mm256_loadu_ps(from);
            load_part(count: usize, from: *const f32) -> __m256 = _mm256_maskload_ps(from, mask(count));
            store(to: *mut f32, value: __m256) = _mm256_storeu_ps(to, value);
            store_part(count: usize, to: *mut f32, value: __m256) = _mm256_maskstore_ps(to, mask(count), value);
        }

        /// Sums each of four registers.
        #[inline]
        #[target_feature(enable = "avx2,fma")]
        pub(super) fn sums([a, b, c, d]: [__m256; 4]) -> __m128 {
            let all = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
            _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps::<1>(all))
        }
    }

    kernels!("avx2,fma");

    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn transpose(rows: usize, columns: usize, from: Rows, to: *mut f32, to_stride: usize) {
        // SAFETY: loads are masked to the caller's rows and columns, and stores go to the first `columns` rows.
        unsafe {
            let mut x = [_mm256_setzero_ps(); 8];
            for j in 0..rows {
                x[j] = r::load_part(columns, from.first.add(j * from.stride));
            }
            // Transpose pairs of rows, then groups of four: b[4g + j] holds columns j and 4 + j of rows 4g to 4g + 3.
            let mut a = x;
            for i in 0..4 {
                a[2 * i] = _mm256_unpacklo_ps(x[2 * i], x[2 * i + 1]);
                a[2 * i + 1] = _mm256_unpackhi_ps(x[2 * i], x[2 * i + 1]);
            }
            let mut b = x;
            for g in 0..2 {
                for half in 0..2 {
                    let low = _mm256_castps_pd(a[4 * g + half]);
                    let high = _mm256_castps_pd(a[4 * g + 2 + half]);
                    b[4 * g + 2 * half] = _mm256_castpd_ps(_mm256_unpacklo_pd(low, high));
                    b[4 * g + 2 * half + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low, high));
                }
            }
            for j in 0..4 {
                for (column, value) in [
                    (j, _mm256_permute2f128_ps::<0x20>(b[j], b[4 + j])),
                    (4 + j, _mm256_permute2f128_ps::<0x31>(b[j], b[4 + j])),
                ] {
                    if column < columns {
                        _mm256_storeu_ps(to.add(column * to_stride), value);
                    }
                }
            }
        }
    }
}

#[cfg(target_arch = "aarch64")]
#[expect(clippy::needless_range_loop, reason = "indices into registers, unrolled")]
mod neon {
    use super::{ANY, BY_COLUMNS, BY_ROWS, Output, Rows, TALL, four};
    use std::arch::aarch64::*;

    /// Registers of 4 values.
    mod r {
        pub(super) use super::four::{add, load, store, zero};
        use std::arch::aarch64::*;

        pub(super) const LANES: usize = 4;
        /// Registers per row of a tile of [`super::outer`]: 24 sums with [`super::TALL`] rows, out of 32 registers.
        pub(super) const WIDE: usize = 4;
        /// Rows of a tile of [`super::dot`]: 24 sums.
        pub(super) const DOT_TALL: usize = 6;

        registers! { "neon";
            splat(value: f32) -> float32x4_t = vdupq_n_f32(value);
            fma(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t = vfmaq_f32(c, a, b);
            load_part(count: usize, from: *const f32) -> float32x4_t = {
                let mut part = zero();
                match count {
                    1 => part = vld1q_lane_f32::<0>(from, part),
                    2 | 3 => part = vcombine_f32(vld1_f32(from), vget_high_f32(part)),
                    _ => part = load(from),
                }
                if count == 3 { vld1q_lane_f32::<2>(from.add(2), part) } else { part }
            };
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
        }

        /// Sums each of four registers: neighbours, then pairs of them.
        #[inline]
        #[target_feature(enable = "neon")]
        pub(super) fn sums([a, b, c, d]: [float32x4_t; 4]) -> float32x4_t {
            vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d))
        }
    }

    kernels!("neon");

    #[target_feature(enable = "neon")]
    pub(super) unsafe fn transpose(rows: usize, columns: usize, from: Rows, to: *mut f32, to_stride: usize) {
        // SAFETY: loads cover the caller's rows and columns, and stores go to the first `columns` rows.
        unsafe {
            let mut x = [r::zero(); 4];
            for j in 0..rows {
                x[j] = r::load_part(columns, from.first.add(j * from.stride));
            }
            // Even and odd columns of each pair of rows, then whole columns.
            let pair = |a, b| [vtrn1q_f32(a, b), vtrn2q_f32(a, b)].map(|half| vreinterpretq_f64_f32(half));
            let (top, bottom) = (pair(x[0], x[1]), pair(x[2], x[3]));
            for column in 0..columns {
                let (top, bottom) = (top[column % 2], bottom[column % 2]);
                let value = if column < 2 { vtrn1q_f64(top, bottom) } else { vtrn2q_f64(top, bottom) };
                r::store(to.add(column * to_stride), vreinterpretq_f32_f64(value));
            }
        }
    }
}
