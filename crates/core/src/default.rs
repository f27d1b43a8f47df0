//! Default values for serde, as functions whose constant parameters are written beside each field.

/// Returns `A / B`.
pub fn ratio<const A: u32, const B: u32>() -> f64 {
    f64::from(A) / f64::from(B)
}

/// Returns `N`.
pub fn whole<const N: usize>() -> usize {
    N
}
