//! The weights in panels, for generation.
//!
//! Decoding multiplies few rows by every matrix in each step, and all steps of a request use the same matrices. Packing each matrix once avoids
//! copying it in every step. It needs as much memory as the matrices themselves, or half of that for products in bfloat16 without second parts.

use std::sync::Mutex;

use super::buffer::Buffer;
use super::panels;
use super::team::Team;
use crate::executor::Head;
use crate::layout::{Layout, Linear};
use crate::numbers::Products;

/// A matrix and the location of its panels.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Offset of the matrix in the store, which is its key.
    weight: usize,
    outputs: usize,
    inputs: usize,
    panels: usize,
    len: usize,
}

/// Panels of every linear map that isn't quantized, and of the output layer.
pub(crate) struct PackedWeights {
    places: Vec<Place>,
    panels: Buffer,
}

impl PackedWeights {
    /// The panels of `weights`, into the memory of `old` ones; `None` where the processor has no use for them.
    pub(crate) fn of(
        products: Products,
        layout: &Layout,
        head: Head,
        weights: &[f32],
        old: Option<PackedWeights>,
        team: &Team,
    ) -> Option<PackedWeights> {
        if !panels::available(products) {
            return None;
        }
        let linears = layout.layers.iter().flat_map(|layer| layer.linears());
        let sizes = linears
            .filter(|linear| !linear.weight.is_apart())
            .map(|&Linear { weight, outputs, inputs, .. }| (weight.offset, outputs, inputs))
            .chain([(head.weight.offset, head.vocabulary, head.width)]);
        let (mut places, mut len) = (Vec::new(), 0);
        for (weight, outputs, inputs) in sizes {
            let own = panels::len(products, outputs, inputs);
            places.push(Place { weight, outputs, inputs, panels: len, len: own });
            len += own;
        }
        let mut panels = old.map(|old| old.panels).unwrap_or_default();
        panels.reserve(len);
        let mut parts = Vec::with_capacity(places.len());
        let mut rest = &mut panels[..];
        for &place in &places {
            let (part, others) = rest.split_at_mut(place.len);
            parts.push(Mutex::new((place, part)));
            rest = others;
        }
        team.split(parts.len(), 1, len, |_, own| {
            for part in &parts[own] {
                let (place, part) = &mut *part.lock().expect("no panic");
                let w = &weights[place.weight..][..place.outputs * place.inputs];
                panels::pack_weights(products, place.outputs, place.inputs, w, part);
            }
        });
        drop(parts);
        places.sort_unstable_by_key(|place| place.weight);
        Some(PackedWeights { places, panels })
    }

    /// The panels of the matrix at `weight`.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn at(&self, weight: usize) -> &[f32] {
        let found = self.places.binary_search_by_key(&weight, |place| place.weight);
        let place = self.places[found.expect("every matrix has its panels")];
        &self.panels[place.panels..][..place.len]
    }

    pub(crate) fn bytes(&self) -> usize {
        self.panels.len() * 4
    }
}
