//! The optimizer: one step over all that is trained, and its state.

use std::borrow::Cow;

use rayon::prelude::*;

use super::{BLOCK, Engine, OptimizerState, find};
use crate::adamw::{self, AdamW, UpdateReport};
use crate::cpu::buffer::Buffer;
use crate::cpu::simd;
use crate::error::Error;

impl Engine {
    /// Clips the gradient to `max_norm`, takes an AdamW step and zeroes the gradient. A gradient that isn't finite changes nothing but
    /// is zeroed as well, and the report says so.
    pub fn update(&mut self, adamw: &AdamW, max_norm: Option<f64>) -> UpdateReport {
        let len = self.trained().1;
        for moment in &mut self.moments {
            moment.reserve(len);
        }
        let (first, others) = self.workers.split_first_mut().expect("there is a worker");
        first.gradient.reserve(len);
        let gradient = &mut first.gradient;
        let others: Vec<&Buffer> =
            others.iter().map(|worker| &worker.gradient).filter(|gradient| !gradient.is_empty()).collect();
        let sums: Vec<f64> = self.pool.install(|| {
            gradient
                .par_chunks_mut(BLOCK)
                .enumerate()
                .map(|(block, sum)| {
                    for other in &others {
                        simd::add(&other[block * BLOCK..][..sum.len()], sum);
                    }
                    simd::square_sum(sum)
                })
                .collect()
        });
        let gradient_norm = sums.iter().sum::<f64>().sqrt();
        let applied = gradient_norm.is_finite();
        if applied {
            self.step += 1;
            self.copies.fresh = false;
            let clip = adamw::clip_factor(gradient_norm, max_norm) as f32;
            let step = self.step as f64;
            let rate = (adamw.lr / (1.0 - adamw.beta1.powf(step))) as f32;
            let root = (1.0 / (1.0 - adamw.beta2.powf(step)).sqrt()) as f32;
            let [m, v] = &mut self.moments;
            let (tensors, weights) = match &mut self.adapters {
                Some(adapters) => (&adapters.layout.tensors, &mut adapters.values),
                None => (&self.decoder.layout.tensors, &mut self.weights),
            };
            for (offset, len, decays) in adamw::decay_runs(tensors, adamw) {
                let decay = if decays { (1.0 - adamw.lr * adamw.weight_decay) as f32 } else { 1.0 };
                let range = offset..offset + len;
                let (w, g) = (&mut weights[range.clone()], &mut gradient[range.clone()]);
                let (m, v) = (&mut m[range.clone()], &mut v[range]);
                self.pool.install(|| {
                    w.par_chunks_mut(BLOCK)
                        .zip(g.par_chunks_mut(BLOCK))
                        .zip(m.par_chunks_mut(BLOCK).zip(v.par_chunks_mut(BLOCK)))
                        .for_each(|((w, g), (m, v))| {
                            let (take1, take2) = ((1.0 - adamw.beta1) as f32, (1.0 - adamw.beta2) as f32);
                            let (beta2, eps) = (adamw.beta2 as f32, adamw.eps as f32);
                            simd::adamw(w, g, m, v, clip, take1, beta2, take2, eps, decay, rate, root);
                        });
                });
            }
        }
        if applied {
            self.merge();
        }
        self.zero_gradient();
        UpdateReport { gradient_norm, applied }
    }

    /// What a resumed run needs beside the tensors (with LoRA: beside the adapter).
    pub fn optimizer_state(&self) -> OptimizerState<'_> {
        let mut tensors = Vec::new();
        if !self.moments[0].is_empty() {
            for tensor in self.trained().0 {
                let range = tensor.span.offset..tensor.span.offset + tensor.span.len;
                for (moment, suffix) in self.moments.iter().zip(["exp_avg", "exp_avg_sq"]) {
                    let name = format!("{}.{suffix}", tensor.name);
                    tensors.push((name, tensor.shape.clone(), Cow::Borrowed(&moment[range.clone()])));
                }
            }
        }
        OptimizerState { step: self.step, tensors }
    }

    /// Takes up a state that [`Engine::optimizer_state`] gave.
    ///
    /// # Errors
    /// If a tensor is missing, unknown, or of another length; nothing has changed then.
    pub fn load_state(&mut self, state: &OptimizerState<'_>) -> Result<(), Error> {
        let (tensors, len) = self.trained();
        let mut moments = [Buffer::default(), Buffer::default()];
        if !state.tensors.is_empty() {
            moments = [Buffer::zeros(len), Buffer::zeros(len)];
            let wanted = 2 * tensors.len();
            if state.tensors.len() != wanted {
                return Err(Error::Request {
                    field: "optimizer state",
                    found: format!("{} tensors", state.tensors.len()),
                    wanted: format!("{wanted}: two for each of the {} that are trained", tensors.len()),
                });
            }
            let mut seen = std::collections::HashSet::new();
            for (name, _, values) in &state.tensors {
                let (which, parameter) = if let Some(parameter) = name.strip_suffix(".exp_avg") {
                    (0, parameter)
                } else if let Some(parameter) = name.strip_suffix(".exp_avg_sq") {
                    (1, parameter)
                } else {
                    (0, name.as_str())
                };
                let span = find(tensors, parameter, values.len())?.span;
                if !seen.insert(name) {
                    return Err(Error::Request {
                        field: "optimizer state",
                        found: format!("{name} twice"),
                        wanted: "each tensor once".into(),
                    });
                }
                moments[which][span.offset..span.offset + span.len].copy_from_slice(values);
            }
        }
        self.moments = moments;
        self.step = state.step;
        Ok(())
    }
}
