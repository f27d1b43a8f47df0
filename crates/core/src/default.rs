//! The defaults of settings, written beside their fields.

/// `A / B`.
pub(crate) fn ratio<const A: u32, const B: u32>() -> f64 {
    f64::from(A) / f64::from(B)
}

/// `N`.
pub(crate) fn whole<const N: usize>() -> usize {
    N
}
