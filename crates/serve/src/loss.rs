//! Losses of a pass, which are sums over tokens in closed form.
//!
//! `l` is the learner's log-probability of a target token, `q` the sampler's, `A` the advantage, `w` the weight, and `r
//! = exp(l - q)`:
//!
//! | name | loss of a token |
//! |---|---|
//! | `cross_entropy` | `-w l` |
//! | `importance_sampling` | `-r A` |
//! | `ppo` | `-min(r A, clip(r, low, high) A)` |
//! | `cispo` | `-stopgrad(clip(r, low, high)) A l` |
//!
//! The bounds are absolute, 0.8 and 1.2 unless the configuration or the datum sets them. Departure from Tinker: `l - q`
//! is clamped to [-20, 20], beyond which the ratio is constant, as in every policy loss of fgrpo.

use crate::datum::{self, Matrix};
use crate::wire::{self, ForwardBackwardRequest, NumberOrText, Tensor};
use fgrpo_core::loss::PolicyLoss;
use fgrpo_train::policy::{self, Bounds, Datum, Loss};
use std::collections::BTreeMap;

/// Names of the losses.
const NAMES: [&str; 4] = ["cross_entropy", "importance_sampling", "ppo", "cispo"];
const BOUNDS: [&str; 2] = ["clip_low_threshold", "clip_high_threshold"];
const DEFAULT_BOUNDS: [f64; 2] = [0.8, 1.2];

/// A sequence with its targets and the inputs of its loss.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sequence {
    pub(crate) tokens: Vec<u32>,
    /// For each token of the sequence, a row of target tokens for the next position.
    pub(crate) targets: Matrix<i64>,
    terms: Terms,
}

/// Inputs of the loss for each target.
#[derive(Debug, Clone, PartialEq)]
enum Terms {
    /// Weights of `cross_entropy`.
    Weighted(Vec<f32>),
    /// Inputs of a policy loss: `old` is q, `advantages` is A, and `losses` has the loss with its bounds for each
    /// token, or a single one for all.
    Policy { old: Vec<f32>, advantages: Vec<f32>, losses: Vec<PolicyLoss> },
}

/// The data of a `forward_backward` request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pass {
    pub(crate) sequences: Vec<Sequence>,
    pub(crate) forward_only: bool,
}

impl Sequence {
    fn datum(&self) -> Datum {
        let select = |values: &[f32]| self.targets.indices().map(|at| values[at]).collect::<Vec<f32>>();
        let (logprobs, weights) = match &self.terms {
            Terms::Weighted(weights) => (Vec::new(), select(weights)),
            Terms::Policy { old, advantages, .. } => (select(old), select(advantages)),
        };
        Datum {
            sequences: vec![policy::Sequence {
                tokens: self.tokens.clone(),
                targets: self.targets.targets(),
            }],
            logprobs,
            advantages: weights.into_iter().map(f64::from).collect(),
            ..Datum::default()
        }
    }

    /// Returns the policy losses of the targets, either one for all or one for each, or `None` for cross-entropy.
    fn losses(&self) -> Option<Vec<PolicyLoss>> {
        match &self.terms {
            Terms::Weighted(_) => None,
            Terms::Policy { losses, .. } if losses.len() == 1 => Some(losses.clone()),
            Terms::Policy { losses, .. } => Some(self.targets.indices().map(|at| losses[at]).collect()),
        }
    }
}

/// Creates a policy loss with absolute bounds.
fn bounded(name: &str, [low, high]: [f64; 2]) -> Result<PolicyLoss, String> {
    if !(0.0..=1.0).contains(&low) {
        return Err(format!("{}: expected 0 to 1, found {low}", BOUNDS[0]));
    }
    if !(high >= 1.0 && high.is_finite()) {
        return Err(format!("{}: expected a finite number of at least 1, found {high}", BOUNDS[1]));
    }
    Ok(match name {
        "ppo" => PolicyLoss::Grpo { clip: [1.0 - low, high - 1.0], dual_clip: 0.0 },
        "cispo" => PolicyLoss::Cispo { clip: [1.0 - low, high - 1.0] },
        _ => PolicyLoss::Grpo { clip: [f64::INFINITY, f64::INFINITY], dual_clip: 0.0 },
    })
}

impl Pass {
    /// Converts the data and the loss to the policy's form.
    pub(crate) fn data(&self) -> (Vec<Datum>, Loss) {
        let losses: Option<Vec<Vec<PolicyLoss>>> = self.sequences.iter().map(Sequence::losses).collect();
        let data = self.sequences.iter().map(Sequence::datum).collect();
        (data, losses.map_or(Loss::CrossEntropy, Loss::TokenSum))
    }

    /// Reads a request and checks it completely.
    pub(crate) fn read(request: &ForwardBackwardRequest, bounds: Bounds) -> Result<Self, String> {
        let name = request.loss_fn.as_str();
        if !NAMES.contains(&name) {
            return Err(format!(
                "loss_fn: expected one of {}, found {name:?}; the client can compute other losses with forward_backward_custom",
                NAMES.join(", ")
            ));
        }
        let mut config: BTreeMap<&str, f64> =
            request.loss_fn_config.iter().map(|(name, &number)| (name.as_str(), number)).collect();
        for (key, value) in &request.loss_fn_config_v2 {
            match &value.value {
                Some(NumberOrText::Number(number)) => drop(config.insert(key, *number)),
                Some(NumberOrText::Text(text)) => {
                    return Err(format!("loss_fn_config.{key}: expected a number, found {text:?}"));
                }
                None => return Err(format!("loss_fn_config.{key}: the number is missing")),
            }
        }
        let clips = ["ppo", "cispo"].contains(&name);
        if let Some(key) = config.keys().find(|key| !clips || !BOUNDS.contains(key)) {
            let allowed = if clips { BOUNDS.join(" and ") } else { "nothing".into() };
            return Err(format!("loss_fn_config: {name} takes {allowed}, not {key}"));
        }
        let ranges = [0, 1].map(|i| config.get(BOUNDS[i]).copied().unwrap_or(DEFAULT_BOUNDS[i]));
        bounded(name, ranges).map_err(|why| format!("loss_fn_config.{why}"))?;
        if request.data.is_empty() {
            return Err("data: empty; send at least one datum".into());
        }
        let sequence = |(index, datum): (usize, &wire::Datum)| {
            Sequence::read(datum, name, ranges, bounds).map_err(|why| format!("data[{index}].{why}"))
        };
        Ok(Self {
            sequences: request.data.iter().enumerate().map(sequence).collect::<Result<_, _>>()?,
            forward_only: request.forward_only,
        })
    }
}

impl Sequence {
    fn read(datum: &wire::Datum, loss: &str, ranges: [f64; 2], bounds: Bounds) -> Result<Self, String> {
        let tokens =
            datum::model_input(bounds, &datum.model_input).map_err(|why| format!("model_input: {why}"))?;
        let inputs = &datum.loss_fn_inputs;
        let field = |name: &str| format!("loss_fn_inputs.{name}");
        let with_name = |name: &'static str| move |why: String| format!("loss_fn_inputs.{name}: {why}");
        let mut names = vec!["target_tokens"];
        names.extend(match loss {
            "cross_entropy" => &["weights"][..],
            "importance_sampling" => &["logprobs", "advantages"],
            _ => &["logprobs", "advantages", BOUNDS[0], BOUNDS[1]],
        });
        if let Some(name) = inputs.keys().find(|name| !names.contains(&name.as_str())) {
            return Err(format!("loss_fn_inputs: {loss} takes {}, not {name}", names.join(", ")));
        }
        let tensor = |name: &str| inputs.get(name).ok_or_else(|| format!("{}: missing", field(name)));
        let targets = datum::integers(tensor("target_tokens")?).map_err(with_name("target_tokens"))?;
        if targets.rows() != tokens.len() {
            return Err(format!(
                "{}: expected {} rows, one for each token of model_input, found {}",
                field("target_tokens"),
                tokens.len(),
                targets.rows()
            ));
        }
        for (index, &id) in targets.numbers.iter().enumerate() {
            if targets.is_present(index) {
                bounds.token(id).map_err(with_name("target_tokens"))?;
            }
        }
        let shape = (targets.rows(), targets.columns);
        // A vector has the shape of a matrix with one column.
        let floats = |name: &'static str, tensor: &Tensor| -> Result<Vec<f32>, String> {
            let matrix = datum::floats(tensor).map_err(with_name(name))?;
            if (matrix.rows(), matrix.columns) != shape {
                return Err(format!(
                    "{}: expected shape {shape:?} like target_tokens, found {:?}",
                    field(name),
                    (matrix.rows(), matrix.columns)
                ));
            }
            Ok(matrix.numbers)
        };
        let terms = if loss == "cross_entropy" {
            let mut weights = match inputs.get("weights") {
                Some(tensor) => floats("weights", tensor)?,
                None => vec![1.0; targets.numbers.len()],
            };
            for (index, weight) in weights.iter_mut().enumerate() {
                if !targets.is_present(index) {
                    *weight = 0.0;
                }
            }
            Terms::Weighted(weights)
        } else {
            if targets.two_dimensional && targets.columns != 1 {
                return Err(format!(
                    "{}: expected one token for each position, found shape {shape:?}",
                    field("target_tokens")
                ));
            }
            let limit = |i: usize| inputs.get(BOUNDS[i]).map(|tensor| floats(BOUNDS[i], tensor)).transpose();
            let losses = match (limit(0)?, limit(1)?) {
                (None, None) => vec![bounded(loss, ranges)?],
                (low, high) => (0..tokens.len())
                    .map(|t| {
                        let at = |bounds: &Option<Vec<f32>>, i: usize| {
                            bounds.as_ref().map_or(ranges[i], |bounds| f64::from(bounds[t]))
                        };
                        bounded(loss, [at(&low, 0), at(&high, 1)])
                            .map_err(|why| format!("loss_fn_inputs.{why} at index {t}"))
                    })
                    .collect::<Result<_, _>>()?,
            };
            Terms::Policy {
                old: floats("logprobs", tensor("logprobs")?)?,
                advantages: floats("advantages", tensor("advantages")?)?,
                losses,
            }
        };
        Ok(Self { tokens, targets, terms })
    }
}
