//! Merging of LoRA updates.

use super::product::{View, product};
use super::simd;
use crate::layout::Write;

/// Adds `scale · B A` to `w`: `[n, k]`, with `A`: `[r, k]` and `B`: `[n, r]`.
pub(crate) fn add_update([n, k, r]: [usize; 3], [a, b]: [&[f32]; 2], scale: f32, w: &mut [f32]) {
    let mut b = b.to_vec();
    simd::scale(&mut b, scale);
    product([n, k, r], View::rows(0, r).of(&b), View::rows(0, k).of(a), View::rows(0, k).to(Write::Add, w));
}
