//! The optimizer: one step on all trained parameters, and its state.

use super::{Engine, NamedTensor, OptimizerState, find};
use crate::adamw::{self, AdamW, AdamWStep, UpdateReport};
use crate::backend::Store;
use crate::error::Error;

/// The moments under the names of PyTorch's optimizer.
const MOMENTS: [(Store, &str); 2] = [(Store::FirstMoment, ".exp_avg"), (Store::SecondMoment, ".exp_avg_sq")];

impl Engine {
    /// Resets the gradient.
    pub fn zero_gradient(&mut self) {
        self.device.backend_mut().zero_gradient();
    }

    /// Norm of the whole gradient.
    pub fn gradient_norm(&self) -> f64 {
        self.device.backend().gradient_norm()
    }

    /// The gradient of each tensor that is trained: all of them, or LoRA's factors.
    pub fn gradients(&self) -> impl Iterator<Item = NamedTensor<'_>> {
        self.named(Store::Gradient, self.trained())
    }

    /// Clips the gradient to `max_norm`, takes an AdamW step and zeroes the gradient. If the gradient isn't finite, the weights don't change, but the
    /// gradient is still zeroed, and the report says so.
    /// Fails if the device fails. The weights are then unknown.
    pub fn update(&mut self, adamw: &AdamW, max_norm: Option<f64>) -> Result<UpdateReport, Error> {
        self.device.forget_prompts();
        let gradient_norm = self.device.backend_mut().reduce();
        self.device.backend().check()?;
        let applied = gradient_norm.is_finite();
        if applied {
            self.step += 1;
            let clip = adamw::clip_factor(gradient_norm, max_norm);
            let runs = adamw::decay_runs(self.trained(), adamw);
            self.device.backend_mut().adamw(&runs, &AdamWStep::new(adamw, self.step, clip));
            self.merge();
        } else {
            let found = if self.decoder.check_layers { self.find_in_gradient() } else { Ok(()) };
            self.device.backend_mut().zero_gradient();
            found?;
        }
        self.device.backend().check()?;
        Ok(UpdateReport { gradient_norm, applied })
    }

    /// Fails with the first number of the gradient that is not finite.
    fn find_in_gradient(&self) -> Result<(), Error> {
        let Some((name, index, found)) = self.first_non_finite(Store::Gradient, self.trained()) else {
            return Ok(());
        };
        Err(Error::NonFinite {
            what: format!("update: gradient of {name}, index {index}"),
            found,
            remedy: "the derivatives of all passes are finite, so their sum has grown too large: go back to an earlier checkpoint, and lower the learning rate".into(),
        })
    }

    /// The state that a resumed run needs in addition to the tensors (with LoRA: in addition to the adapter).
    pub fn optimizer_state(&self) -> OptimizerState<'_> {
        let mut tensors = Vec::new();
        if self.step > 0 {
            for tensor in self.trained() {
                for (store, suffix) in MOMENTS {
                    let values = self.device.backend().read(store, tensor.span);
                    tensors.push((format!("{}{suffix}", tensor.name), tensor.shape.clone(), values));
                }
            }
        }
        OptimizerState { step: self.step, tensors }
    }

    /// Loads the state of an optimizer tensor by tensor, so that there is never a second copy: `tensors` are the names and lengths of
    /// [`OptimizerState::tensors`], and `read` writes the values of the one with an index.
    /// Fails if a tensor is missing, unknown, or of another length; nothing has changed then. If `read` fails: the state is then that of no update.
    pub fn load_optimizer(
        &mut self,
        step: u64,
        tensors: &[(&str, usize)],
        read: &mut dyn FnMut(usize, &mut [f32]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let refuse = |found: String, wanted: String| Err(Error::request("optimizer state", found, wanted));
        let trained = self.trained();
        let wanted = MOMENTS.len() * trained.len();
        if !tensors.is_empty() && tensors.len() != wanted {
            let wanted = format!("{wanted}: two for each of the {} that are trained", trained.len());
            return refuse(format!("{} tensors", tensors.len()), wanted);
        }
        let mut seen = std::collections::HashSet::new();
        let mut places = Vec::with_capacity(tensors.len());
        for &(name, len) in tensors {
            let stripped = |&(store, suffix): &(Store, &str)| Some((store, name.strip_suffix(suffix)?));
            let (store, parameter) = MOMENTS.iter().find_map(stripped).unwrap_or((Store::FirstMoment, name));
            places.push((store, find(trained, parameter, len)?.span));
            if !seen.insert(name) {
                return refuse(format!("{name} twice"), "each tensor once".into());
            }
        }
        self.device.backend_mut().forget_moments();
        self.step = 0;
        for (index, (store, span)) in places.into_iter().enumerate() {
            if let Err(error) = self.device.backend_mut().fill(store, span, &mut |out| read(index, out)) {
                self.device.backend_mut().forget_moments();
                return Err(error);
            }
        }
        self.step = step;
        Ok(())
    }

    /// Loads a state from [`Engine::optimizer_state`]. A GPU with moments in bf16 rounds them to nearest, which changes none that were bf16.
    /// Fails if a tensor is missing, unknown, or of another length; nothing has changed then.
    pub fn load_state(&mut self, state: &OptimizerState<'_>) -> Result<(), Error> {
        let tensors: Vec<(&str, usize)> =
            state.tensors.iter().map(|(name, _, values)| (name.as_str(), values.len())).collect();
        self.load_optimizer(state.step, &tensors, &mut |index, out| {
            out.copy_from_slice(&state.tensors[index].2);
            Ok(())
        })
    }
}
