//! Estimates the time of a run's parts: their floating-point operations, divided by the speed of matrix products
//! measured on this machine.

use super::Lengths;
use crate::config::{Config, EvalConfig, SftConfig};
use fgrpo_nn::Flops;
use fgrpo_nn::config::Config as ModelConfig;

/// Speed of decoding, which is limited by memory bandwidth, as a fraction of the speed of large products.
const DECODING: f64 = 0.5;

/// Fraction of groups whose rewards differ; the update computes only these. In runs on mazes, it is 0.6 at the start
/// and 0.2 to 0.4 later.
pub const ACTIVE: f64 = 0.5;

/// Rate per token at which samples of one prompt become different: the first t tokens of N samples are N^(1 - exp(-t
/// SEPARATION)) different sequences. Equal beginnings are computed once.
///
/// The rate was measured as about half of the entropy per token: 0.1 for mazes (13 tokens) and 0.055 for arithmetic (38
/// tokens), both accurate within a third for 2 to 256 samples. The entropy isn't known before a run starts, so the
/// constant is between the two. After 100 tokens nearly all samples differ, so the constant hardly matters for long
/// completions.
const SEPARATION: f64 = 0.07;

/// Number of tokens after which all samples are assumed to differ.
const SEPARATE: f64 = 200.0;

/// Seconds by phase.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Time {
    /// The supervised stage, or 0 if there is none or its number of steps is unknown.
    pub sft: f64,
    /// Sampling in a step; with a server, computing the log-probabilities of its samples.
    pub rollout: f64,
    /// The optimizer updates of a step, including the reference model's log-probabilities if needed.
    pub update: f64,
    /// One evaluation, or 0 if the held-out problems don't exist.
    pub evaluation: f64,
    /// One full evaluation, or 0 if the held-out problems don't exist.
    pub full_evaluation: f64,
}

/// Number of tokens of completions, and number of pairs of a token and a token to which it attends.
#[derive(Clone, Copy)]
struct Size {
    tokens: f64,
    pairs: f64,
}

struct Costs {
    flops: Flops,
    prompt: f64,
    completion: f64,
}

impl Costs {
    fn of(config: &Config, model: &ModelConfig, lengths: &Lengths) -> Self {
        let lora = config.lora.as_ref().map(|lora| lora.engine());
        let flops = Flops::of(model, config.compute.checkpointing(), lora.as_ref());
        Self { flops, prompt: lengths.prompt_mean, completion: lengths.completion_likely }
    }

    fn prompt_pairs(&self) -> f64 {
        self.prompt * (self.prompt + 1.0) / 2.0
    }

    /// Returns the number of operations for the prompt.
    fn prefill(&self) -> f64 {
        let Self { flops, prompt, .. } = self;
        flops.forward_token * prompt + flops.forward_pair * self.prompt_pairs() + flops.forward_prediction
    }

    fn backward(&self, group: Size) -> f64 {
        self.flops.backward_token * (self.prompt + group.tokens)
            + self.flops.backward_pair * (self.prompt_pairs() + group.pairs)
            + self.flops.backward_prediction * group.tokens
    }

    fn group(&self, samples: usize) -> Size {
        distinct(samples, self.prompt, self.completion)
    }

    /// Returns the number of operations for the completions of a group.
    fn completions(&self, samples: usize) -> f64 {
        let group = self.group(samples);
        self.flops.forward_token * group.tokens
            + self.flops.forward_pair * group.pairs
            + self.flops.forward_prediction * group.tokens
    }

    /// Returns the number of operations for the log-probabilities of a group.
    fn scored(&self, samples: usize) -> f64 {
        self.prefill() + self.completions(samples)
    }

    /// Returns the number of operations for the log-probabilities and the gradient of a group.
    fn trained(&self, samples: usize) -> f64 {
        self.scored(samples) + self.backward(self.group(samples))
    }

    /// Returns the number of operations for one prompt in all updates of a step. Includes the log-probabilities of the
    /// reference model and of the teacher, which is counted as if it had the policy's size.
    fn update(&self, config: &Config) -> f64 {
        let samples = config.rollout.group_size;
        let scorers = u8::from(config.algorithm.penalises_kl()) + u8::from(config.teacher.is_some());
        let reference = f64::from(scorers) * self.scored(samples);
        config.update.epochs as f64 * ACTIVE * self.trained(samples) + reference
    }
}

impl Time {
    /// Estimates the time for a configuration and a model at `rate` operations per second. Completions are assumed to
    /// have typical length, half of the groups to be active, and samples to share beginnings as `SEPARATION` describes.
    pub fn of(config: &Config, model: &ModelConfig, lengths: &Lengths, rate: f64) -> Self {
        let costs = Costs::of(config, model, lengths);
        let r = &config.rollout;
        let prompts = r.prompts as f64;
        let sampled = |samples: usize| costs.prefill() + costs.completions(samples) / DECODING;
        let rollout = if r.server.is_some() { costs.scored(r.group_size) } else { sampled(r.group_size) };
        let evaluation = |eval: Option<EvalConfig>, problems: Option<usize>| match (eval, problems) {
            (Some(eval), Some(n)) => n as f64 * sampled(eval.samples) / rate,
            _ => 0.0,
        };
        let sft_seconds = |sft: &SftConfig| {
            let steps = match (sft.epochs, lengths.train) {
                (Some(_), None) => return 0.0,
                (_, problems) => sft.optimizer_steps(problems.unwrap_or(0)),
            };
            let evaluations = steps.checked_div(sft.eval_every).unwrap_or(0);
            let problems = sft.eval_problems.min(lengths.held_out.unwrap_or(0)) as f64;
            let trained = (steps * sft.batch_size as u64) as f64 * costs.trained(1);
            (trained + evaluations as f64 * problems * costs.scored(1)) / rate
        };
        Self {
            sft: config.sft.as_ref().map_or(0.0, sft_seconds),
            rollout: prompts * rollout / rate,
            update: prompts * costs.update(config) / rate,
            evaluation: evaluation(config.eval.usual(), lengths.held_out),
            full_evaluation: evaluation(config.eval.full(), lengths.held_out_in_full),
        }
    }
}

/// Returns the distinct tokens of `samples` completions of `length` tokens that follow a prompt of `prompt` tokens.
fn distinct(samples: usize, prompt: f64, length: f64) -> Size {
    let n = samples as f64;
    let mut size = Size { tokens: 0.0, pairs: 0.0 };
    let mut add = |token: f64, share: f64| {
        let different = share * n.powf(1.0 - (-SEPARATION * token).exp());
        size.tokens += different;
        size.pairs += different * (prompt + token);
    };
    let near = length.min(SEPARATE);
    (1..=near as u64).for_each(|token| add(token as f64, 1.0));
    add(near.floor() + 1.0, near.fract());
    let far = length - near;
    size.tokens += n * far;
    size.pairs += n * far * (prompt + near + (far + 1.0) / 2.0);
    size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_that_separate_slowly_are_counted_as_measured_and_long_ones_are_all_computed() {
        // Number of tokens of N samples per distinct token, over 256 mazes and 128 arithmetic problems.
        let measured = [
            (94.0, 13.0, [(2, 1.34), (8, 2.68), (32, 5.43), (256, 13.19)]),
            (50.0, 38.0, [(2, 1.26), (8, 2.0), (32, 3.15), (256, 6.36)]),
        ];
        for (prompt, length, shares) in measured {
            for (samples, measured) in shares {
                let computed = samples as f64 * length / distinct(samples, prompt, length).tokens;
                let off = (computed / measured).ln().abs();
                assert!(off < 2f64.ln(), "{samples} of {length}: {computed}, measured {measured}");
            }
        }
        let long = distinct(8, 100.0, 8192.0);
        assert!((8.0 * 8192.0 * 0.99..=8.0 * 8192.0).contains(&long.tokens), "{}", long.tokens);
        let one = distinct(1, 5.0, 2.5);
        assert_eq!((one.tokens, one.pairs), (2.5, 6.0 + 7.0 + 0.5 * 8.0));
    }
}
