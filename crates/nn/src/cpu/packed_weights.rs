//! Weights packed into panels for generation.
//!
//! Decoding multiplies few rows by every matrix in each step, and all steps of a request use the same matrices. Packing each matrix once avoids
//! copying it in every step. It takes as much memory as the matrices themselves, or half of it for bfloat16 with one part.

use std::sync::Mutex;

use super::buffer::Buffer;
use super::panels;
use super::team::Team;
use crate::executor::Head;
use crate::layout::{Layout, Linear};
use crate::numbers::ProductFormat;

/// A matrix and the position of its panels.
#[derive(Debug, Clone, Copy)]
struct Packed {
    /// Offset of the matrix in the store, which is its key.
    weight: usize,
    outputs: usize,
    inputs: usize,
    panels: usize,
    len: usize,
}

/// Panels of every linear map that isn't quantized, and of the vocabulary head.
pub(crate) struct PackedWeights {
    matrices: Vec<Packed>,
    panels: Buffer,
}

impl PackedWeights {
    /// Packs `weights`, reusing the memory of `old`.
    pub(crate) fn new(
        products: ProductFormat,
        layout: &Layout,
        head: Head,
        weights: &[f32],
        old: Option<PackedWeights>,
        team: &Team,
    ) -> PackedWeights {
        let sizes = layout
            .linears()
            .filter(|linear| !linear.weight.is_quantized())
            .map(|&Linear { weight, outputs, inputs, .. }| (weight.offset, outputs, inputs))
            .chain([(head.weight.offset, head.vocabulary, head.width)]);
        let (mut matrices, mut len) = (Vec::new(), 0);
        for (weight, outputs, inputs) in sizes {
            let size = panels::len(products, outputs, inputs);
            matrices.push(Packed { weight, outputs, inputs, panels: len, len: size });
            len += size;
        }
        let mut panels = old.map(|old| old.panels).unwrap_or_default();
        panels.reserve(len);
        let mut parts = Vec::with_capacity(matrices.len());
        let mut rest = &mut panels[..];
        for &matrix in &matrices {
            let (part, others) = rest.split_at_mut(matrix.len);
            parts.push(Mutex::new((matrix, part)));
            rest = others;
        }
        team.split(parts.len(), 1, len, |_, range| {
            for part in &parts[range] {
                let (matrix, part) = &mut *part.lock().expect("no panic");
                let w = &weights[matrix.weight..][..matrix.outputs * matrix.inputs];
                panels::pack_weights(products, matrix.outputs, matrix.inputs, w, part);
            }
        });
        drop(parts);
        matrices.sort_unstable_by_key(|matrix| matrix.weight);
        PackedWeights { matrices, panels }
    }

    /// Returns the panels of the matrix at offset `weight`.
    ///
    /// # Panics
    /// If the matrix isn't packed.
    pub(crate) fn at(&self, weight: usize) -> &[f32] {
        let index = self.matrices.binary_search_by_key(&weight, |matrix| matrix.weight);
        let matrix = self.matrices[index.expect("every matrix has its panels")];
        &self.panels[matrix.panels..][..matrix.len]
    }

    pub(crate) fn bytes(&self) -> usize {
        self.panels.len() * 4
    }
}
