//! Single operations and a small model, for this crate's benchmarks and `fgrpo devices --check`; not part of the public interface.

use crate::config::{Architecture, Config};
use crate::cpu::panels;
use crate::cpu::product::{View, team_product};
use crate::layout::Write;
use crate::numbers::ProductFormat;

/// Returns the name of the SIMD level in use: avx512, avx2, neon or plain.
pub fn simd() -> &'static str {
    crate::cpu::level::level().name()
}

/// One of the three products of a linear map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operands {
    /// `y = x wᵀ`.
    Forward,
    /// `dx = dy w`.
    BackwardInput,
    /// `dw = dyᵀ x`.
    BackwardWeight,
}

/// Computes one product of a linear map from `k` inputs to `n` outputs over `m` rows. `a`, `b` and `c` are the operands and the result in the
/// order of the formulas of [`Operands`].
///
/// # Panics
/// If a slice is too short.
pub fn product(
    products: ProductFormat,
    operands: Operands,
    [m, n, k]: [usize; 3],
    a: &[f32],
    b: &[f32],
    c: &mut [f32],
) {
    let (to_k, to_n) = (View::rows(0, k), View::rows(0, n));
    let (sizes, a, b, c) = match operands {
        Operands::Forward => ([m, n, k], to_k.of(a), to_k.transposed().of(b), to_n.to(Write::Replace, c)),
        Operands::BackwardInput => ([m, k, n], to_n.of(a), to_k.of(b), to_k.to(Write::Replace, c)),
        Operands::BackwardWeight => ([n, k, m], to_n.transposed().of(a), to_k.of(b), to_k.to(Write::Add, c)),
    };
    team_product((None, products), sizes, a, b, c);
}

/// Packs `w`, `[n, k]`, into panels.
pub fn panels(products: ProductFormat, n: usize, k: usize, w: &[f32]) -> Vec<f32> {
    let mut packed = vec![0.0; panels::len(products, n, k)];
    panels::pack_weights(products, n, k, w, &mut packed);
    packed
}

/// Computes `y = x wᵀ`, `y`: `[m, n]`, `x`: `[m, k]`, from the [`panels()`] of `w`: `[n, k]`.
///
/// # Panics
/// If a slice is too short.
pub fn product_with_panels(
    products: ProductFormat,
    m: usize,
    n: usize,
    k: usize,
    x: &[f32],
    panels: &[f32],
    y: &mut [f32],
) {
    let y = View::rows(0, n).to(Write::Replace, y);
    crate::cpu::product::product_with_panels((None, products), [m, n, k], x, panels, y);
}

/// Returns the configuration of a small Qwen2. With `intermediate_size` 1024 it is the maze's policy (3,944,704 parameters).
pub fn small_decoder(intermediate_size: usize) -> Config {
    Config {
        architecture: Architecture::Qwen2,
        vocab_size: 32,
        hidden_size: 256,
        intermediate_size,
        num_hidden_layers: 4,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 64,
        rms_norm_eps: 1e-6,
        rope_theta: 1e6,
        tie_word_embeddings: true,
        max_position_embeddings: 512,
        bos_token_id: Some(1),
        eos_token_id: vec![2],
        pad_token_id: Some(0),
        ..Config::default()
    }
}
