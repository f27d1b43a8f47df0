//! The time of a step: its floating-point operations over the speed of products that this machine shows now.

use super::Lengths;
use crate::config::{Config, EvalConfig};
use fgrpo_nn::Flops;
use fgrpo_nn::config::Config as ModelConfig;

/// Decoding, bound by memory more than by arithmetic, reaches about this share of the speed of large products.
const DECODING: f64 = 0.5;

/// Seconds by phase.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Time {
    /// Sampling of a step; with a server, scoring what it sampled.
    pub rollout: f64,
    /// The optimizer updates of a step, with the reference model's scores where there is one.
    pub update: f64,
    /// One evaluation; 0 where the held-out problems aren't there to be counted.
    pub evaluation: f64,
    /// One full evaluation, likewise.
    pub full_evaluation: f64,
}

impl Time {
    /// The time of a configuration for a model at `rate` operations a second: every group active, no beginnings
    /// shared, completions of the likely length.
    pub fn of(config: &Config, model: &ModelConfig, lengths: &Lengths, rate: f64) -> Self {
        let lora = config.lora.as_ref().map(|lora| lora.engine());
        let flops = Flops::of(model, config.compute.checkpoint_activations, lora.as_ref());
        let (p, c) = (lengths.prompt_mean, lengths.completion_likely);
        let r = &config.rollout;
        let (prompts, samples) = (r.prompts as f64, (r.prompts * r.group_size) as f64);
        // Keys seen by a prompt's tokens, and by a completion's.
        let (of_prompt, of_completion) = (p * (p + 1.0) / 2.0, c * p + c * (c + 1.0) / 2.0);
        let prefill = flops.forward_token * p + flops.forward_pair * of_prompt + flops.forward_prediction;
        let completion =
            flops.forward_token * c + flops.forward_pair * of_completion + flops.forward_prediction * c;
        let backward = |samples: f64| {
            let of_prompts = flops.backward_token * p + flops.backward_pair * of_prompt;
            let of_samples = flops.backward_token * c
                + flops.backward_pair * of_completion
                + flops.backward_prediction * c;
            prompts * of_prompts + samples * of_samples
        };
        let forward = prompts * prefill + samples * completion;
        let decoded = |prompts: f64, samples: f64| prompts * prefill + samples * completion / DECODING;
        let mut update = config.update.epochs as f64 * (forward + backward(samples));
        if config.algorithm.kl_coef != 0.0 {
            update += forward;
        }
        let evaluation = |eval: Option<EvalConfig>, problems: Option<usize>| match (eval, problems) {
            (Some(eval), Some(n)) => decoded(n as f64, (n * eval.samples) as f64) / rate,
            _ => 0.0,
        };
        Self {
            rollout: if r.server.is_some() { forward } else { decoded(prompts, samples) } / rate,
            update: update / rate,
            evaluation: evaluation(config.eval.usual(), lengths.held_out),
            full_evaluation: evaluation(config.eval.full(), lengths.held_out_in_full),
        }
    }
}
