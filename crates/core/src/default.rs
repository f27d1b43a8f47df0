//! Functions that return default values for serde. Each field's attribute gives the constant parameters.

/// Returns `A / B`.
pub fn ratio<const A: u32, const B: u32>() -> f64 {
    f64::from(A) / f64::from(B)
}

/// Returns `N`.
pub fn whole<const N: usize>() -> usize {
    N
}
