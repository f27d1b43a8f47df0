//! RMSNorm, of rows and of heads, and its derivatives.

use std::borrow::Cow;
use std::ops::Range;

use super::super::buffer::Buffer;
use super::super::simd;
use super::super::team::Shared;
use super::super::weights::Weights;
use super::{CpuExecutor, part, part_mut};
use crate::executor::{HeadRows, Norm, NormOps};
use crate::layout::Span;

/// The weights of a norm, with what is added to them.
pub(super) fn weight_of(weights: &Weights, weight: Span, offset: f32) -> Cow<'_, [f32]> {
    match part(weights, weight) {
        weight if offset == 0.0 => weight.into(),
        weight => weight.iter().map(|weight| offset + weight).collect(),
    }
}

impl NormOps for CpuExecutor {
    fn rms_norm(&mut self, norm: Norm<'_, Weights>, x: &Buffer, y: &mut Buffer, scale: &mut Buffer) {
        let Norm { weights, weight, offset, eps, rows } = norm;
        let (weight, width) = (&*weight_of(weights, weight, offset), weight.len);
        let (y, scale) = (Shared::new(y), Shared::new(scale));
        self.rows(rows, width, |own| {
            // SAFETY: ranges of a split are apart.
            let scale = unsafe { scale.part(own.clone()) };
            for (row, scale) in own.zip(scale) {
                let at = row * width..(row + 1) * width;
                // SAFETY: as above.
                *scale = simd::rms_norm(&x[at.clone()], weight, eps, unsafe { y.part(at) });
            }
        });
    }

    fn rms_norm_again(&mut self, norm: Norm<'_, Weights>, x: &Buffer, scale: &Buffer, y: &mut Buffer) {
        let Norm { weights, weight, offset, rows, .. } = norm;
        let (weight, width) = (&*weight_of(weights, weight, offset), weight.len);
        let y = Shared::new(y);
        self.rows(rows, width, |own| {
            for row in own {
                let at = row * width..(row + 1) * width;
                // SAFETY: ranges of a split are apart.
                simd::rms_norm_again(&x[at.clone()], weight, scale[row], unsafe { y.part(at) });
            }
        });
    }

    fn rms_norm_backward(
        &mut self,
        norm: Norm<'_, Weights>,
        gradient: Option<&mut [f32]>,
        x: &Buffer,
        scale: &Buffer,
        dy: &Buffer,
        dx: &mut Buffer,
    ) {
        let Norm { weights, weight, offset, rows, .. } = norm;
        let width = weight.len;
        if let Some(gradient) = gradient {
            let dweight = Shared::new(part_mut(gradient, weight));
            self.columns(rows, width, |own| {
                // SAFETY: each column is one thread's.
                let dweight = unsafe { dweight.part(own.clone()) };
                for row in 0..rows {
                    let at = row * width + own.start..row * width + own.end;
                    simd::rms_norm_backward_weight(&x[at.clone()], scale[row], &dy[at], dweight);
                }
            });
        }
        let (weight, dx) = (&weight_of(weights, weight, offset), Shared::new(dx));
        self.rows(rows, width, |own| {
            for row in own {
                let at = row * width..(row + 1) * width;
                // SAFETY: ranges of a split are apart.
                let to = unsafe { dx.part(at.clone()) };
                simd::rms_norm_backward_input(&x[at.clone()], weight, scale[row], &dy[at], to);
            }
        });
    }

    fn head_norm(
        &mut self,
        norm: Norm<'_, Weights>,
        heads: HeadRows,
        x: &mut Buffer,
        raw: &mut Buffer,
        scale: &mut Buffer,
    ) {
        let Norm { weights, weight, offset, eps, .. } = norm;
        let weight = &weight_of(weights, weight, offset);
        let (x, raw, scale) = (Shared::new(x), Shared::new(raw), Shared::new(scale));
        self.rows(heads.rows, heads.count * heads.size, |own| {
            for row in own {
                for head in 0..heads.count {
                    let index = row * heads.count + head;
                    let at = row * heads.stride + heads.first + head * heads.size;
                    // SAFETY: ranges of a split are apart.
                    let (raw, x, scale) = unsafe {
                        (
                            raw.part(index * heads.size..(index + 1) * heads.size),
                            x.part(at..at + heads.size),
                            scale.part(index..index + 1),
                        )
                    };
                    raw.copy_from_slice(x);
                    scale[0] = simd::rms_norm(raw, weight, eps, x);
                }
            }
        });
    }

    fn head_norm_backward(
        &mut self,
        norm: Norm<'_, Weights>,
        gradient: Option<&mut [f32]>,
        heads: HeadRows,
        raw: &Buffer,
        scale: &Buffer,
        dx: &mut Buffer,
    ) {
        let Norm { weights, weight, offset, .. } = norm;
        let size = heads.size;
        let each = |own: Range<usize>, mut visit: Box<dyn FnMut(&[f32], f32, usize) + '_>| {
            for row in own {
                for head in 0..heads.count {
                    let index = row * heads.count + head;
                    visit(
                        &raw[index * size..][..size],
                        scale[index],
                        row * heads.stride + heads.first + head * size,
                    );
                }
            }
        };
        if let Some(gradient) = gradient {
            let (dweight, dx) = (Shared::new(part_mut(gradient, weight)), &*dx);
            self.columns(heads.rows * heads.count, size, |own| {
                // SAFETY: each column is one thread's.
                let dweight = unsafe { dweight.part(own.clone()) };
                let visit = |raw: &[f32], scale: f32, at: usize| {
                    let dy = &dx[at + own.start..at + own.end];
                    simd::rms_norm_backward_weight(&raw[own.clone()], scale, dy, dweight);
                };
                each(0..heads.rows, Box::new(visit));
            });
        }
        let (weight, dx) = (&weight_of(weights, weight, offset), Shared::new(dx));
        self.rows(heads.rows, heads.count * size, |own| {
            let visit = |raw: &[f32], scale: f32, at: usize| {
                // SAFETY: ranges of a split are apart.
                simd::head_norm_backward_input(raw, weight, scale, unsafe { dx.part(at..at + size) });
            };
            each(own, Box::new(visit));
        });
    }
}
