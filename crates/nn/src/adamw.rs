//! AdamW with decoupled weight decay, as `torch.optim.AdamW` computes it.

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
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Weights shrink by `lr * weight_decay` each step, apart from the gradient.
    pub weight_decay: f64,
    /// Whether biases and norms shrink too, as with one parameter group over all parameters in PyTorch.
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

/// What an update did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UpdateReport {
    /// Norm of the whole gradient before clipping; not finite where the update was skipped.
    pub gradient_norm: f64,
    /// Whether the weights changed.
    pub applied: bool,
}

/// Factor that brings a gradient of norm `norm` to at most `max_norm`, as `torch.nn.utils.clip_grad_norm_`.
pub(crate) fn clip_factor(norm: f64, max_norm: Option<f64>) -> f64 {
    max_norm.map_or(1.0, |max_norm| (max_norm / (norm + 1e-6)).min(1.0))
}

/// Runs of the tensors' store with equal weight decay: (offset, length, decays).
pub(crate) fn decay_runs(tensors: &[TensorLayout], settings: &AdamW) -> Vec<(usize, usize, bool)> {
    let mut runs: Vec<(usize, usize, bool)> = Vec::new();
    for tensor in tensors {
        let decays = settings.decay_norms_and_biases || tensor.kind == Kind::Matrix;
        let end = tensor.span.offset + tensor.span.len;
        match runs.last_mut() {
            // Gaps between tensors hold zeros, which stay zeros.
            Some(run) if run.2 == decays => run.1 = end - run.0,
            _ => runs.push((tensor.span.offset, tensor.span.len, decays)),
        }
    }
    runs
}
