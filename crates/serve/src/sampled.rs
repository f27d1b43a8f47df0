//! The samples of a request with their log-probabilities, for both APIs. Tinker's API sends them as a protobuf message.

use crate::wire::{self, DType, Encoding, SampleResponse, SampledSequence, StopReason, Tensor, TopkLogprobs};
use fgrpo_nn::Finish;
use prost::Message;

/// Token and log-probability in the unused cells of a top-k list.
const PADDING: (u32, f32) = (0, -99999.0);

/// The samples of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sampled {
    pub(crate) sequences: Vec<Sequence>,
    /// Number of prompt tokens that came from the cache.
    pub(crate) cached: usize,
    pub(crate) prompt: PromptScores,
    pub(crate) prompt_topk: Option<TopK>,
}

/// One sample.
#[derive(Debug, Clone)]
pub(crate) struct Sequence {
    pub(crate) tokens: Vec<u32>,
    /// Log-probability of each token.
    pub(crate) logp: Vec<f32>,
    pub(crate) finish: Finish,
    pub(crate) topk: Option<TopK>,
}

/// Log-probabilities of a prompt, as far as the request asks for them.
#[derive(Debug, Clone, Default)]
pub(crate) struct PromptScores {
    /// Log-probability of each prompt token, or NaN if it is unknown.
    pub(crate) tokens: Option<Vec<f32>>,
    /// Log-probabilities of the requested tokens.
    pub(crate) targets: Option<Targets>,
}

/// Log-probabilities of requested tokens, `[rows, columns]`.
#[derive(Debug, Clone)]
pub(crate) struct Targets {
    pub(crate) logp: Vec<f32>,
    pub(crate) shape: [usize; 2],
}

/// For each position, the most likely tokens, at most `k`, with their log-probabilities.
#[derive(Debug, Clone)]
pub(crate) struct TopK {
    pub(crate) k: usize,
    pub(crate) rows: Vec<Vec<(u32, f32)>>,
}

impl Sampled {
    /// Encodes the samples as Tinker's API sends them.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let sequence = |sequence: &Sequence| SampledSequence {
            stop_reason: match sequence.finish {
                Finish::Stop => StopReason::Stop,
                Finish::Length => StopReason::Length,
            } as i32,
            tokens: wire::tokens(&sequence.tokens),
            logprobs: Some(wire::floats(&sequence.logp)),
            topk_sampled_logprobs: sequence.topk.as_ref().map(TopK::message),
        };
        let targets = |targets: &Targets| Tensor {
            encoding: Some(Encoding::Dense(wire::floats(&targets.logp))),
            dtype: DType::Float32 as i32,
            shape: targets.shape.map(|size| size as i64).to_vec(),
        };
        let response = SampleResponse {
            sequences: self.sequences.iter().map(sequence).collect(),
            prompt_logprobs: self.prompt.tokens.as_deref().map(wire::floats),
            topk_prompt_logprobs: self.prompt_topk.as_ref().map(TopK::message),
            prompt_cache_hit_tokens: self.cached as i32,
            target_prompt_logprobs: self.prompt.targets.as_ref().map(targets),
        };
        response.encode_to_vec()
    }
}

impl TopK {
    fn message(&self) -> TopkLogprobs {
        let Self { k, rows } = self;
        let cells = rows.iter().flat_map(|row| (0..*k).map(|rank| row.get(rank).copied().unwrap_or(PADDING)));
        let (tokens, logp): (Vec<u32>, Vec<f32>) = cells.unzip();
        TopkLogprobs {
            token_ids: wire::tokens(&tokens),
            logprobs: wire::floats(&logp),
            k: *k as u32,
            length: rows.len() as u32,
        }
    }
}
