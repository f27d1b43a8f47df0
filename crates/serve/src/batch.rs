//! Runs a pass of the API on the policy and encodes its result.

use crate::loss::{Pass, Sequence};
use crate::wire::{ArrayRecord, BatchedTensor, DType, ForwardBackwardOutput, floats};
use fgrpo_train::policy::Policy;
use std::collections::BTreeMap;

/// Runs a pass. Unless it is `forward_only`, its gradient is added to the engine's.
pub(crate) fn run(pass: &Pass, policy: &mut Policy) -> anyhow::Result<ForwardBackwardOutput> {
    let (data, loss) = pass.data();
    let losses = if pass.forward_only {
        policy.forward(&data, &loss, 1.0)?
    } else {
        policy.forward_backward(&data, &loss, 1.0)?
    };
    Ok(ForwardBackwardOutput {
        loss_fn_output_type: "ArrayRecord".into(),
        loss_fn_outputs: records(&pass.sequences, &losses.logp),
        metrics: BTreeMap::from([("loss:sum".into(), losses.sums.loss)]),
    })
}

/// Encodes the log-probability of each target. In a sparse tensor, cells without a target get 0.
fn records(sequences: &[Sequence], logp: &[Vec<f32>]) -> Vec<ArrayRecord> {
    let trailing = |index: usize| {
        let targets = &sequences[index].targets;
        targets.two_dimensional.then_some(targets.columns as i64)
    };
    let mut records = Vec::new();
    let mut first = 0;
    while first < sequences.len() {
        let shape = trailing(first);
        let end = (first..sequences.len()).find(|&i| trailing(i) != shape).unwrap_or(sequences.len());
        let mut data = Vec::new();
        let mut offsets = vec![0i64];
        for (sequence, logp) in sequences[first..end].iter().zip(&logp[first..end]) {
            data.extend(floats(&sequence.targets.filled(logp)));
            offsets.push(data.len() as i64);
        }
        let tensor = BatchedTensor {
            data,
            offsets: offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect(),
            dtype: DType::Float32 as i32,
            trailing_shape: shape.into_iter().collect(),
        };
        records.push(ArrayRecord {
            type_tag: String::new(),
            fields: BTreeMap::from([("logprobs".into(), tensor)]),
            num_datums: (end - first) as i64,
        });
        first = end;
    }
    records
}
