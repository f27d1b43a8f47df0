//! The optimizer: one step on all trained parameters, and its state.

use super::{EngineOn, OptimizerState, find};
use crate::adamw::{self, AdamW, AdamWStep, UpdateReport};
use crate::backend::{Backend, Store};
use crate::error::Error;

/// The moments under the names of PyTorch's optimizer.
const MOMENTS: [(Store, &str); 2] = [(Store::FirstMoment, ".exp_avg"), (Store::SecondMoment, ".exp_avg_sq")];

impl<D: Backend> EngineOn<D> {
    pub(crate) fn update(&mut self, adamw: &AdamW, max_norm: Option<f64>) -> Result<UpdateReport, Error> {
        self.forget_prompts();
        let gradient_norm = self.backend.reduce();
        self.backend.check()?;
        let applied = gradient_norm.is_finite();
        if applied {
            self.step += 1;
            let clip = adamw::clip_factor(gradient_norm, max_norm);
            let runs = adamw::decay_runs(self.trained(), adamw);
            self.backend.adamw(&runs, &AdamWStep::new(adamw, self.step, clip));
            self.merge();
        } else {
            let found = if self.decoder.check_layers { self.find_in_gradient() } else { Ok(()) };
            self.backend.zero_gradient();
            found?;
        }
        self.backend.check()?;
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

    pub(crate) fn optimizer_state(&self) -> OptimizerState<'_> {
        let mut tensors = Vec::new();
        if self.step > 0 {
            for tensor in self.trained() {
                for (store, suffix) in MOMENTS {
                    let values = self.backend.read(store, tensor.span);
                    tensors.push((format!("{}{suffix}", tensor.name), tensor.shape.clone(), values));
                }
            }
        }
        OptimizerState { step: self.step, tensors }
    }

    pub(crate) fn load_optimizer(
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
        self.backend.forget_moments();
        self.step = 0;
        for (index, (store, span)) in places.into_iter().enumerate() {
            if let Err(error) = self.backend.fill(store, span, &mut |out| read(index, out)) {
                self.backend.forget_moments();
                return Err(error);
            }
        }
        self.step = step;
        Ok(())
    }
}
