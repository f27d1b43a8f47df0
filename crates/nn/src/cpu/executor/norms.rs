//! RMSNorm of rows and of heads, and its derivatives.

use std::borrow::Cow;

use super::{Buffer, CpuExecutor, Weights, part, part_mut, simd};
use crate::executor::{HeadRows, Norm, NormOps};
use crate::layout::Span;

/// Returns the weights of a norm plus the offset.
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
        self.rows(rows, width, [(y, width), (scale, 1)], |range, [y, scale]| {
            let rows = x[range.start * width..].chunks_exact(width).zip(y.chunks_exact_mut(width));
            for ((x, y), scale) in rows.zip(scale) {
                *scale = simd::rms_norm(x, weight, eps, y);
            }
        });
    }

    fn rms_norm_again(&mut self, norm: Norm<'_, Weights>, x: &Buffer, scale: &Buffer, y: &mut Buffer) {
        let Norm { weights, weight, offset, rows, .. } = norm;
        let (weight, width) = (&*weight_of(weights, weight, offset), weight.len);
        self.rows(rows, width, [(y, width)], |range, [y]| {
            for (row, y) in range.zip(y.chunks_exact_mut(width)) {
                simd::rms_norm_again(&x[row * width..][..width], weight, scale[row], y);
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
            self.columns(rows, width, part_mut(gradient, weight), |range, mut dweight| {
                let dweight = dweight.row(0);
                for row in 0..rows {
                    let at = row * width + range.start..row * width + range.end;
                    simd::rms_norm_backward_weight(&x[at.clone()], scale[row], &dy[at], dweight);
                }
            });
        }
        let weight = &weight_of(weights, weight, offset);
        self.rows(rows, width, [(dx, width)], |range, [dx]| {
            for (row, dx) in range.zip(dx.chunks_exact_mut(width)) {
                let at = row * width..(row + 1) * width;
                simd::rms_norm_backward_input(&x[at.clone()], weight, scale[row], &dy[at], dx);
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
        let HeadRows { rows, first, stride, count, size } = heads;
        let outputs = [(&mut x[..], stride), (&mut raw[..], count * size), (&mut scale[..], count)];
        self.rows(rows, count * size, outputs, |_, [x, raw, scale]| {
            let heads =
                x.chunks_exact_mut(stride).flat_map(|x| x[first..].chunks_exact_mut(size).take(count));
            for ((x, raw), scale) in heads.zip(raw.chunks_exact_mut(size)).zip(scale) {
                raw.copy_from_slice(x);
                *scale = simd::rms_norm(raw, weight, eps, x);
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
        let HeadRows { rows, first, stride, count, size } = heads;
        if let Some(gradient) = gradient {
            let dx = &*dx;
            self.columns(rows * count, size, part_mut(gradient, weight), |range, mut dweight| {
                let dweight = dweight.row(0);
                let heads = dx.chunks_exact(stride).flat_map(|dx| dx[first..].chunks_exact(size).take(count));
                for ((dy, raw), &scale) in heads.zip(raw.chunks_exact(size)).zip(&scale[..rows * count]) {
                    simd::rms_norm_backward_weight(&raw[range.clone()], scale, &dy[range.clone()], dweight);
                }
            });
        }
        let weight = &weight_of(weights, weight, offset);
        self.rows(rows, count * size, [(dx, stride)], |range, [dx]| {
            let heads =
                dx.chunks_exact_mut(stride).flat_map(|dx| dx[first..].chunks_exact_mut(size).take(count));
            let saved =
                raw[range.start * count * size..].chunks_exact(size).zip(&scale[range.start * count..]);
            for (dx, (raw, &scale)) in heads.zip(saved) {
                simd::head_norm_backward_input(raw, weight, scale, dx);
            }
        });
    }
}
