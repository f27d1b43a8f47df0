//! Gated short convolutions. [`Config::check_on_gpus`](crate::config::Config::check_on_gpus) refuses models that have them, so these functions are never called.

use super::{Buffer, Cache, CudaExecutor, Decoding, Lists, Weights};
use crate::executor::{ConvolutionOps, Memory, Mixer};
use crate::layout::ConvolutionLayout;

const REFUSED: &str = "GPUs refuse models with gated short convolutions";

type Convolution<'a> = Mixer<'a, Weights, Lists, ConvolutionLayout>;

impl ConvolutionOps for CudaExecutor {
    fn short_convolution(&mut self, _: Convolution<'_>, _: Option<&mut Cache>, _: &Buffer, _: &mut Buffer) {
        unreachable!("{REFUSED}");
    }

    fn short_convolution_backward(
        &mut self,
        _: Convolution<'_>,
        _: Option<&mut <Self as Memory>::Gradient>,
        _: &Buffer,
        _: &Buffer,
        _: &mut Buffer,
    ) {
        unreachable!("{REFUSED}");
    }

    fn step_convolution(
        &mut self,
        _: Convolution<'_>,
        _: &Decoding,
        _: &mut Cache,
        _: &Buffer,
        _: &mut Buffer,
    ) {
        unreachable!("{REFUSED}");
    }
}
