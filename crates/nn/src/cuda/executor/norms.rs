//! RMSNorm of rows and of heads, and its derivatives.

use super::{Buffer, CudaExecutor, FULL, Purpose, Weights, kernels, row_shape, warp_shape};
use crate::executor::{HeadRows, Norm, NormOps};

impl NormOps for CudaExecutor {
    fn rms_norm(&mut self, norm: Norm<'_, Weights>, x: &Buffer, y: &mut Buffer, scale: &mut Buffer) {
        let Norm { weights, weight, offset, eps, rows } = norm;
        let shape = row_shape(rows, self.lines(weight.len));
        let (width, weight) = (weight.len, weights.at(weight.offset));
        let (x, y, scale) = (x.at(0), y.at(0), scale.full(0));
        self.stream.launch(shape, kernels::RmsNorm { x, weight, offset, eps, y, scale, width });
    }

    fn rms_norm_again(&mut self, norm: Norm<'_, Weights>, x: &Buffer, scale: &Buffer, y: &mut Buffer) {
        let Norm { weights, weight, offset, rows, .. } = norm;
        let shape = row_shape(rows, self.lines(weight.len));
        let (width, weight) = (weight.len, weights.at(weight.offset));
        let (x, y, scale) = (x.at(0), y.at(0), scale.full(0));
        self.stream.launch(shape, kernels::RmsNormAgain { x, weight, offset, scale, y, width });
    }

    fn rms_norm_backward(
        &mut self,
        norm: Norm<'_, Weights>,
        gradient: Option<&mut Buffer>,
        x: &Buffer,
        scale: &Buffer,
        dy: &Buffer,
        dx: &mut Buffer,
    ) {
        let Norm { weights, weight, offset, rows, .. } = norm;
        let (width, x, scale, dy, dx) = (weight.len, x.at(0), scale.full(0), dy.at(0), dx.at(0));
        if let Some(gradient) = gradient {
            self.sum_columns([rows, width], gradient.full(weight.offset), |partial, rows_per_block| {
                kernels::RmsNormWeight { x, scale, dy, partial, rows, width, rows_per_block }
            });
        }
        let (shape, weight) = (row_shape(rows, self.lines(width)), weights.at(weight.offset));
        self.stream.launch(shape, kernels::RmsNormBackward { x, weight, offset, scale, dy, dx, width });
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
        let HeadRows { rows, first, stride, count: heads, size } = heads;
        let (count, weight) = (rows * heads, weights.at(weight.offset));
        let (x, raw, scale) = (x.at(first), raw.at(0), scale.full(0));
        let kernel = kernels::HeadNorm { weight, offset, eps, x, raw, scale, heads, stride, size, count };
        self.stream.launch(warp_shape(count), kernel);
    }

    fn head_norm_backward(
        &mut self,
        norm: Norm<'_, Weights>,
        gradient: Option<&mut Buffer>,
        heads: HeadRows,
        raw: &Buffer,
        scale: &Buffer,
        dx: &mut Buffer,
    ) {
        let Norm { weights, weight, offset, .. } = norm;
        let HeadRows { rows, first, stride, count: heads, size } = heads;
        let (count, at) = (rows * heads, weights.at(weight.offset));
        self.shares.reserve(&self.stream, FULL, count * size, Purpose::Pass);
        let (raw, scale, dx, share) = (raw.at(0), scale.full(0), dx.at(first), self.shares.full(0));
        let kernel = kernels::HeadNormBackward {
            weight: at,
            offset,
            raw,
            scale,
            dx,
            share,
            heads,
            stride,
            size,
            count,
        };
        self.stream.launch(warp_shape(count), kernel);
        if let Some(gradient) = gradient {
            self.add_columns([count, size], self.shares.at(0), gradient.full(weight.offset));
        }
    }
}
