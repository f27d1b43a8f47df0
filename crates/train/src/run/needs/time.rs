//! The time of a step: its floating-point operations divided by the matrix-product speed measured on this machine.

use super::Lengths;
use crate::config::{Config, EvalConfig};
use fgrpo_nn::Flops;
use fgrpo_nn::config::Config as ModelConfig;

/// Decoding is limited by memory bandwidth; it reaches about this fraction of the speed of large products.
const DECODING: f64 = 0.5;

/// Seconds by phase.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Time {
    /// Sampling in a step; with a server, computing the log-probabilities of its samples.
    pub rollout: f64,
    /// The optimizer updates of a step, including the reference model's log-probabilities if needed.
    pub update: f64,
    /// One evaluation; 0 if the held-out problems don't exist.
    pub evaluation: f64,
    /// One full evaluation; 0 if the held-out problems don't exist.
    pub full_evaluation: f64,
}

impl Time {
    /// The estimate for a configuration and a model at `rate` operations per second. It assumes that every group is
    /// active, that no prefixes are shared, and that completions have typical length.
    pub fn of(config: &Config, model: &ModelConfig, lengths: &Lengths, rate: f64) -> Self {
        let lora = config.lora.as_ref().map(|lora| lora.engine());
        let flops = Flops::of(model, config.compute.checkpoint_activations, lora.as_ref());
        let (p, c) = (lengths.prompt_mean, lengths.completion_likely);
        let r = &config.rollout;
        let (prompts, samples) = (r.prompts as f64, (r.prompts * r.group_size) as f64);
        // Number of keys attended by a prompt's tokens, and by a completion's.
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
