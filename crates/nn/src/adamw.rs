//! AdamW with decoupled weight decay, as in `torch.optim.AdamW`.

use crate::layout::{Kind, TensorLayout};

/// Settings of one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Constant that is added to the square root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay: weights shrink by the factor `1 - lr * weight_decay` in each step.
    pub weight_decay: f64,
    /// Whether biases and norms decay too, as they do with a single parameter group in PyTorch.
    pub decay_norms_and_biases: bool,
}

impl Default for AdamW {
    fn default() -> Self {
        AdamW {
            lr: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.01,
            decay_norms_and_biases: true,
        }
    }
}

/// The result of an update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UpdateReport {
    /// Norm of the whole gradient before clipping; not finite if the update was skipped.
    pub gradient_norm: f64,
    /// Whether the weights changed.
    pub applied: bool,
}

/// Returns the factor that scales a gradient of norm `norm` to at most `max_norm`, as PyTorch's `clip_grad_norm_` does.
pub(crate) fn clip_factor(norm: f64, max_norm: Option<f64>) -> f64 {
    max_norm.map_or(1.0, |max_norm| (max_norm / (norm + 1e-6)).min(1.0))
}

/// Returns the ranges of the parameter store with equal weight decay: (offset, length, whether the weights decay).
pub(crate) fn decay_runs(tensors: &[TensorLayout], settings: &AdamW) -> Vec<(usize, usize, bool)> {
    let mut runs: Vec<(usize, usize, bool)> = Vec::new();
    for tensor in tensors {
        let decays = settings.decay_norms_and_biases
            || matches!(tensor.kind, Kind::Matrix | Kind::Filter | Kind::Rates);
        let end = tensor.span.offset + tensor.span.len;
        match runs.last_mut() {
            // Gaps between tensors hold zeros, which stay zeros.
            Some(run) if run.2 == decays => run.1 = end - run.0,
            _ => runs.push((tensor.span.offset, tensor.span.len, decays)),
        }
    }
    runs
}

/// Values of one step that are the same for every parameter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdamWStep {
    /// Step number, from 1. It seeds the stochastic rounding of 16-bit moments.
    pub(crate) number: u64,
    /// Factor that multiplies the gradient.
    pub(crate) clip: f32,
    /// `1 - beta1`, the weight of the gradient in the first moment.
    pub(crate) take1: f32,
    pub(crate) beta2: f32,
    /// `1 - beta2`, the weight of the squared gradient in the second moment.
    pub(crate) take2: f32,
    pub(crate) eps: f32,
    /// `1 - lr * weight_decay`, the factor of weights that decay.
    pub(crate) decay: f32,
    /// `lr / (1 - beta1^t)`, the learning rate with the first moment's bias correction.
    pub(crate) rate: f32,
    /// `1 / sqrt(1 - beta2^t)`, the bias correction of the second moment's root.
    pub(crate) root: f32,
}

impl AdamWStep {
    /// Computes the values of step `number`, which counts from 1, for a gradient that is multiplied by `clip`.
    pub(crate) fn new(settings: &AdamW, number: u64, clip: f64) -> AdamWStep {
        let step = number as f64;
        AdamWStep {
            number,
            clip: clip as f32,
            take1: (1.0 - settings.beta1) as f32,
            beta2: settings.beta2 as f32,
            take2: (1.0 - settings.beta2) as f32,
            eps: settings.eps as f32,
            decay: (1.0 - settings.lr * settings.weight_decay) as f32,
            rate: (settings.lr / (1.0 - settings.beta1.powf(step))) as f32,
            root: (1.0 / (1.0 - settings.beta2.powf(step)).sqrt()) as f32,
        }
    }
}
