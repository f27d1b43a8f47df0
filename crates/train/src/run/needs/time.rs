//! The time of a run's parts: their floating-point operations divided by the matrix-product speed measured on this
//! machine.

use super::Lengths;
use crate::config::{Config, EvalConfig, SftConfig};
use fgrpo_nn::Flops;
use fgrpo_nn::config::Config as ModelConfig;

/// Decoding is limited by memory bandwidth; it reaches about this fraction of the speed of large products.
const DECODING: f64 = 0.5;

/// Share of groups with different rewards; the update computes only these. Our maze runs have 0.6 at the start and 0.2
/// to 0.4 later.
pub const ACTIVE: f64 = 0.5;

/// How fast samples of one prompt separate, per token: the first t tokens of N samples are N^(1 - exp(-t SEPARATION))
/// different texts. Equal beginnings are computed once.
///
/// In samples of our policies it is about half of the entropy per token: 0.1 for mazes (13 tokens), 0.055 for
/// arithmetic (38 tokens), each right within a third for 2 to 256 samples. A run's entropy isn't known before it
/// starts, so this lies between the two. After 100 tokens practically all samples differ, so it hardly matters for long
/// completions.
const SEPARATION: f64 = 0.07;

/// Tokens after which all samples differ.
const SEPARATE: f64 = 200.0;

/// Seconds by phase.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Time {
    /// The supervised stage; 0 if there is none, or if its number of steps isn't known.
    pub sft: f64,
    /// Sampling in a step; with a server, computing the log-probabilities of its samples.
    pub rollout: f64,
    /// The optimizer updates of a step, including the reference model's log-probabilities if needed.
    pub update: f64,
    /// One evaluation; 0 if the held-out problems don't exist.
    pub evaluation: f64,
    /// One full evaluation; 0 if the held-out problems don't exist.
    pub full_evaluation: f64,
}

/// Tokens of completions, and of the pairs of one with a token that it attends to.
#[derive(Clone, Copy)]
struct Size {
    tokens: f64,
    pairs: f64,
}

struct Costs {
    each: Flops,
    prompt: f64,
    completion: f64,
}

impl Costs {
    fn of(config: &Config, model: &ModelConfig, lengths: &Lengths) -> Self {
        let lora = config.lora.as_ref().map(|lora| lora.engine());
        let each = Flops::of(model, config.compute.checkpointing(), lora.as_ref());
        Self { each, prompt: lengths.prompt_mean, completion: lengths.completion_likely }
    }

    fn prompt_pairs(&self) -> f64 {
        self.prompt * (self.prompt + 1.0) / 2.0
    }

    /// Of the prompt itself.
    fn prefill(&self) -> f64 {
        let Self { each, prompt, .. } = self;
        each.forward_token * prompt + each.forward_pair * self.prompt_pairs() + each.forward_prediction
    }

    fn forward(&self, group: Size) -> f64 {
        self.each.forward_token * group.tokens
            + self.each.forward_pair * group.pairs
            + self.each.forward_prediction * group.tokens
    }

    fn backward(&self, group: Size) -> f64 {
        self.each.backward_token * (self.prompt + group.tokens)
            + self.each.backward_pair * (self.prompt_pairs() + group.pairs)
            + self.each.backward_prediction * group.tokens
    }

    fn group(&self, samples: usize) -> Size {
        distinct(samples, self.prompt, self.completion)
    }

    fn completions(&self, samples: usize) -> f64 {
        self.forward(self.group(samples))
    }

    /// Log-probabilities of a group.
    fn scored(&self, samples: usize) -> f64 {
        self.prefill() + self.completions(samples)
    }

    /// Scores and gradient of a group.
    fn trained(&self, samples: usize) -> f64 {
        self.scored(samples) + self.backward(self.group(samples))
    }

    /// All updates of a step, and the reference model's log-probabilities if needed.
    fn update(&self, config: &Config) -> f64 {
        let samples = config.rollout.group_size;
        let reference = if config.algorithm.penalises_kl() { self.scored(samples) } else { 0.0 };
        config.update.epochs as f64 * ACTIVE * self.trained(samples) + reference
    }
}

impl Time {
    /// The estimate for a configuration and a model at `rate` operations per second. It assumes completions of typical
    /// length, that half of the groups are active, and that samples share beginnings as those of our mazes do.
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
        let fitted = |sft: &SftConfig| {
            let steps = match (sft.epochs, lengths.train) {
                (Some(_), None) => return 0.0,
                (_, problems) => sft.optimizer_steps(problems.unwrap_or(0)),
            };
            let checks = steps.checked_div(sft.eval_every).unwrap_or(0);
            let checked = sft.eval_problems.min(lengths.held_out.unwrap_or(0)) as f64;
            let trained = (steps * sft.batch_size as u64) as f64 * costs.trained(1);
            (trained + checks as f64 * checked * costs.scored(1)) / rate
        };
        Self {
            sft: config.sft.as_ref().map_or(0.0, fitted),
            rollout: prompts * rollout / rate,
            update: prompts * costs.update(config) / rate,
            evaluation: evaluation(config.eval.usual(), lengths.held_out),
            full_evaluation: evaluation(config.eval.full(), lengths.held_out_in_full),
        }
    }
}

/// The different tokens of `samples` completions of `length` tokens behind a prompt of `prompt`.
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
        // Tokens of N samples for each different one, over 256 mazes and 128 problems of arithmetic.
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
