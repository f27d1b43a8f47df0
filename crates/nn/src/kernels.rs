//! Single operations, for this crate's benchmarks alone: no part of its interface.

use crate::cpu::product::{Into, View, product as run};

/// Which of a linear map's three products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operands {
    /// `y = x wᵀ`.
    Forward,
    /// `dx = dy w`.
    BackwardInput,
    /// `dw = dyᵀ x`.
    BackwardWeight,
}

/// A product of a linear map from `k` inputs to `n` outputs over `m` rows, with its operands in the order of [`Operands`]' formulas.
///
/// # Panics
/// If a slice is too short.
pub fn product(operands: Operands, m: usize, n: usize, k: usize, a: &[f32], b: &[f32], c: &mut [f32]) {
    let (to_k, to_n) = (View::rows(0, k), View::rows(0, n));
    match operands {
        Operands::Forward => run(m, n, k, a, to_k, b, to_k.transposed(), Into::Replace, c, to_n),
        Operands::BackwardInput => run(m, k, n, a, to_n, b, to_k, Into::Replace, c, to_k),
        Operands::BackwardWeight => run(n, k, m, a, to_n.transposed(), b, to_k, Into::Add, c, to_k),
    }
}
