//! Training state in host memory, so that several models over one base can take turns in an engine.

use super::{Engine, find};
use crate::backend::Store;
use crate::error::Error;
use crate::layout::{Span, TensorLayout};
use crate::lora::LoraConfig;

/// Trained parameters, gradient and optimizer state of a model. With LoRA it contains only the factors' values, so it is small.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainingState {
    lora: Option<LoraConfig>,
    names: Vec<String>,
    /// Parameters, gradient, first moment and second moment of each tensor. The gradient is empty if it is 0, and moments before
    /// the first update.
    values: [Vec<Vec<f32>>; 4],
    step: u64,
}

impl Engine {
    fn trained_store(&self) -> Store {
        if self.adapters.is_some() { Store::Factors } else { Store::Weights }
    }

    /// Copies the trained parameters, the gradient and the optimizer state.
    pub fn training_state(&self) -> TrainingState {
        let read = |store: Store| -> Vec<Vec<f32>> {
            self.trained()
                .iter()
                .map(|tensor| self.runtime.backend().read(store, tensor.span).into_owned())
                .collect()
        };
        let mut gradient =
            if self.runtime.backend().has_gradient() { read(Store::Gradient) } else { Vec::new() };
        if gradient.iter().flatten().all(|&number| number == 0.0) {
            gradient.clear();
        }
        let moments = |store| if self.step > 0 { read(store) } else { Vec::new() };
        TrainingState {
            lora: self.lora().cloned(),
            names: self.trained().iter().map(|tensor| tensor.name.clone()).collect(),
            values: [
                read(self.trained_store()),
                gradient,
                moments(Store::FirstMoment),
                moments(Store::SecondMoment),
            ],
            step: self.step,
        }
    }

    /// Restores a result of [`Engine::training_state`]. Training continues bit for bit if [`Engine::gather_gradient`] was called before the state was taken.
    /// If the settings of the adapters differ, the engine's adapters are replaced.
    /// Returns an error if the state is of another model, or the device fails.
    pub fn set_training_state(&mut self, state: &TrainingState) -> Result<(), Error> {
        self.runtime.forget_prompts();
        if self.lora() != state.lora.as_ref() {
            self.remove_adapters();
            if let Some(lora) = &state.lora {
                self.adapt(lora, &mut || 0.5)?;
            }
        }
        let trained = self.trained();
        if trained.len() != state.names.len() {
            return Err(Error::request(
                "training state",
                format!("{} tensors", state.names.len()),
                format!("{} as in the engine", trained.len()),
            ));
        }
        let pairs = state.names.iter().zip(&state.values[0]);
        let find = |(name, values): (&String, &Vec<f32>)| Ok(find(trained, name, values.len())?.span);
        let spans: Vec<Span> = pairs.map(find).collect::<Result<_, Error>>()?;
        self.runtime.backend_mut().forget_moments();
        self.runtime.backend_mut().zero_gradient();
        let stores = [self.trained_store(), Store::Gradient, Store::FirstMoment, Store::SecondMoment];
        for (store, tensors) in stores.into_iter().zip(&state.values) {
            for (&span, values) in spans.iter().zip(tensors) {
                self.runtime.backend_mut().write(store, span, values);
            }
        }
        self.step = state.step;
        if let Some(adapters) = &mut self.adapters {
            adapters.applied = true;
        }
        self.merge();
        self.runtime.backend().check()
    }

    /// Restores the base weights, and removes the factors with their gradient and optimizer state. Does nothing without adapters.
    pub fn remove_adapters(&mut self) {
        self.runtime.forget_prompts();
        if let Some(adapters) = self.adapters.take() {
            if adapters.layout.merged {
                self.runtime.backend_mut().merge(&adapters.layout, false);
            }
            self.runtime.backend_mut().remove_adapters();
            self.step = 0;
        }
    }

    /// Replaces the executors' gradients by their sum, as saving and restoring does, so neither changes later sums.
    pub fn gather_gradient(&mut self) {
        if self.runtime.backend().executors().len() == 1 || !self.runtime.backend().has_gradient() {
            return;
        }
        let spans: Vec<Span> = self.trained().iter().map(|TensorLayout { span, .. }| *span).collect();
        for span in spans {
            let sum = self.runtime.backend().read(Store::Gradient, span).into_owned();
            self.runtime.backend_mut().write(Store::Gradient, span, &sum);
        }
    }
}
