//! The optimizer: a step on all trained parameters, and its state.

use super::{Engine, NamedTensor, OptimizerState, find};
use crate::adamw::{self, AdamW, AdamWStep, UpdateReport};
use crate::backend::Store;
use crate::error::Error;

/// Both moments, with the suffixes of their names in PyTorch's optimizer.
const MOMENTS: [(Store, &str); 2] = [(Store::FirstMoment, ".exp_avg"), (Store::SecondMoment, ".exp_avg_sq")];

impl Engine {
    /// Resets the gradient.
    pub fn zero_gradient(&mut self) {
        self.runtime.backend_mut().zero_gradient();
    }

    /// Returns the norm of the whole gradient.
    pub fn gradient_norm(&self) -> f64 {
        self.runtime.backend().gradient_norm()
    }

    /// Returns the gradients of the trained tensors: all, or LoRA's factors.
    pub fn gradients(&self) -> impl Iterator<Item = NamedTensor<'_>> {
        self.named(Store::Gradient, self.trained())
    }

    /// Clips the gradient to `max_norm`, takes an AdamW step and zeroes the gradient. If the gradient isn't finite, the weights don't change and the report
    /// says so, but the gradient is still zeroed.
    /// Returns an error if the device fails; the weights are then unspecified.
    pub fn update(&mut self, adamw: &AdamW, max_norm: Option<f64>) -> Result<UpdateReport, Error> {
        self.runtime.forget_prompts();
        let gradient_norm = self.runtime.backend_mut().reduce();
        self.runtime.backend().check()?;
        let applied = gradient_norm.is_finite();
        if applied {
            self.step += 1;
            let clip = adamw::clip_factor(gradient_norm, max_norm);
            let runs = adamw::decay_runs(self.trained(), adamw);
            self.runtime.backend_mut().adamw(&runs, &AdamWStep::new(adamw, self.step, clip));
            self.merge();
        } else {
            let checked = if self.decoder.check_layers { self.check_gradient() } else { Ok(()) };
            self.runtime.backend_mut().zero_gradient();
            checked?;
        }
        self.runtime.backend().check()?;
        Ok(UpdateReport { gradient_norm, applied })
    }

    /// Returns an error that names the first value of the gradient that is not finite.
    fn check_gradient(&self) -> Result<(), Error> {
        let Some((name, index, found)) = self.first_non_finite(Store::Gradient, self.trained()) else {
            return Ok(());
        };
        Err(Error::NonFinite {
            what: format!("update: gradient of {name}, index {index}"),
            found,
            remedy: "the derivatives of all passes are finite, so their sum has grown too large: return to an earlier checkpoint and lower the learning rate".into(),
        })
    }

    /// Returns the state that a resumed run needs in addition to the tensors or, with LoRA, to the adapter.
    pub fn optimizer_state(&self) -> OptimizerState<'_> {
        let mut tensors = Vec::new();
        if self.step > 0 {
            for tensor in self.trained() {
                for (store, suffix) in MOMENTS {
                    let values = self.runtime.backend().read(store, tensor.span);
                    tensors.push((format!("{}{suffix}", tensor.name), tensor.shape.clone(), values));
                }
            }
        }
        OptimizerState { step: self.step, tensors }
    }

    /// Loads an optimizer's state tensor by tensor, so that there is no second copy: `tensors` are the names and lengths of [`OptimizerState::tensors`], and
    /// `read` writes the values of the tensor with an index. A GPU with bf16 moments rounds them to nearest; values that were bf16 don't change.
    /// Returns an error, without a change, if a tensor is missing, unknown, or has another length. If `read` fails, the state is reset to that before the first
    /// update.
    pub fn load_optimizer(
        &mut self,
        step: u64,
        tensors: &[(&str, usize)],
        read: &mut dyn FnMut(usize, &mut [f32]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let refuse =
            |found: String, expected: String| Err(Error::request("optimizer state", found, expected));
        let trained = self.trained();
        let count = MOMENTS.len() * trained.len();
        if !tensors.is_empty() && tensors.len() != count {
            let expected = format!("{count}, two for each of the {} trained tensors", trained.len());
            return refuse(format!("{} tensors", tensors.len()), expected);
        }
        let mut seen = std::collections::HashSet::new();
        let mut destinations = Vec::with_capacity(tensors.len());
        for &(name, len) in tensors {
            let stripped = |&(store, suffix): &(Store, &str)| Some((store, name.strip_suffix(suffix)?));
            let (store, parameter) = MOMENTS.iter().find_map(stripped).unwrap_or((Store::FirstMoment, name));
            destinations.push((store, find(trained, parameter, len)?.span));
            if !seen.insert(name) {
                return refuse(format!("{name} twice"), "each tensor once".into());
            }
        }
        self.runtime.backend_mut().forget_moments();
        self.step = 0;
        for (index, (store, span)) in destinations.into_iter().enumerate() {
            if let Err(error) = self.runtime.backend_mut().fill(store, span, &mut |out| read(index, out)) {
                self.runtime.backend_mut().forget_moments();
                return Err(error);
            }
        }
        self.step = step;
        Ok(())
    }
}
