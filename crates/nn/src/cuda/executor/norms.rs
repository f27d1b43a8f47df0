//! RMSNorm of rows and of heads, and its derivatives.

use super::{Buffer, CudaExecutor, FULL, Purpose, Weights, args, kernel, row_shape, warp_shape};
use crate::executor::{HeadRows, Norm, NormOps};

impl NormOps for CudaExecutor {
    fn rms_norm(&mut self, norm: Norm<'_, Weights>, x: &Buffer, y: &mut Buffer, scale: &mut Buffer) {
        let Norm { weights, weight, offset, eps, rows } = norm;
        let arguments = args![x, weights.at(weight.offset), offset, eps, &*y, &*scale, weight.len];
        let shape = row_shape(rows, self.lines(weight.len));
        self.stream.launch(kernel!(self.precision, "rms_norm"), shape, arguments);
    }

    fn rms_norm_again(&mut self, norm: Norm<'_, Weights>, x: &Buffer, scale: &Buffer, y: &mut Buffer) {
        let Norm { weights, weight, offset, rows, .. } = norm;
        let arguments = args![x, weights.at(weight.offset), offset, scale, &*y, weight.len];
        let shape = row_shape(rows, self.lines(weight.len));
        self.stream.launch(kernel!(self.precision, "rms_norm_again"), shape, arguments);
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
        if let Some(gradient) = gradient {
            let (kernel, to) = (kernel!(self.precision, "rms_norm_weight"), gradient.at(weight.offset));
            let sizes = [rows, weight.len];
            self.sum_columns(kernel, args![x, scale, dy], &sizes, sizes, to);
        }
        let arguments = args![x, weights.at(weight.offset), offset, scale, dy, &*dx, weight.len];
        let shape = row_shape(rows, self.lines(weight.len));
        self.stream.launch(kernel!(self.precision, "rms_norm_backward"), shape, arguments);
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
        let HeadRows { rows, first, stride, count, size } = heads;
        let (vectors, weight) = (rows * count, weights.at(weight.offset));
        let arguments = args![weight, offset, eps, x.at(first), &*raw, &*scale, count, stride, size, vectors];
        self.stream.launch(kernel!(self.precision, "head_norm"), warp_shape(vectors), arguments);
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
        let HeadRows { rows, first, stride, count, size } = heads;
        let vectors = rows * count;
        let mut shares = std::mem::take(&mut self.shares);
        shares.reserve(&self.stream, FULL, vectors * size, Purpose::Pass);
        let (at, to) = (weights.at(weight.offset), dx.at(first));
        let arguments = args![at, offset, raw, scale, to, &shares, count, stride, size, vectors];
        self.stream.launch(kernel!(self.precision, "head_norm_backward"), warp_shape(vectors), arguments);
        if let Some(gradient) = gradient {
            let to = gradient.at(weight.offset);
            self.sum_columns(
                "column_partials_f32",
                args![shares.at(0)],
                &[vectors, size],
                [vectors, size],
                to,
            );
        }
        self.shares = shares;
    }
}
