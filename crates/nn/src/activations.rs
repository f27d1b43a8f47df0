//! The sizes of a pass's buffers.

use crate::backend::Rollout;
use crate::config::Config;
use crate::decoder::Keep;
use crate::families::QkNorm;

/// Lengths of one executor's buffers for a pass over `n` rows of which `m` predict: shared ones, inputs of layers, then
/// what each layer keeps.
pub(crate) fn activations(config: &Config, n: usize, m: usize, keep: Keep) -> Vec<usize> {
    let (d, f, layers) = (config.hidden_size, config.intermediate_size, config.num_hidden_layers);
    let q = config.num_attention_heads * config.head_dim;
    let kv = 2 * config.num_key_value_heads * config.head_dim;
    let layer = config.layer(0);
    // Norms keep what they replace, and a number for each of what they are taken over.
    let [of_q, of_k] = match layer.qk_norm {
        None => [0, 0],
        Some(QkNorm::Head) => [q + config.num_attention_heads, kv / 2 + config.num_key_value_heads],
        Some(QkNorm::Whole) => [q + 1, kv / 2 + 1],
    };
    let after = usize::from(layer.attention.after.is_some()) + usize::from(layer.mlp.after.is_some());
    // Rows beyond the keys: those of every layer but the last, if there is another.
    let most = if layers > 1 { n } else { m };
    let heads = config.num_attention_heads;
    let backward = |len: usize| if keep == Keep::Nothing { 0 } else { len };
    let mut buffers = vec![
        n * d,                                   // normed
        most * d,                                // normed_rows
        most * f,                                // act
        m * d,                                   // hidden
        3 * m,                                   // hidden_scale, head_saved
        backward(2 * n * d),                     // dx, dnormed
        backward(if m < n { n * d } else { 0 }), // dx_rows
        backward(2 * most * q),                  // dout, dq
        backward(n * kv),                        // dkv
        n * heads + backward(n * heads) + 3 * m, // sums of attention, of the head
    ];
    let inputs = if keep == Keep::Nothing { 2 } else { layers };
    buffers.extend(std::iter::repeat_n(n * d, inputs));
    buffers.push(backward(m * d));
    buffers.resize(buffers.len().max(11 + layers), 0);
    let kept = if keep == Keep::Everything { layers } else { 1 };
    for layer in 0..kept {
        let rows = if layer + 1 == layers { m } else { n };
        // A decoding step has queries, keys and values where gate and up come later.
        let gate_up = if keep == Keep::Nothing { (2 * f).max(q + kv) } else { 2 * f };
        let of_rows = 2 * q + heads + d + 1 + gate_up + of_q + after * (d + 1);
        let of_keys = 1 + kv + of_k;
        buffers.push(rows * of_rows + n * of_keys);
    }
    buffers
}

/// Those of a rollout's passes over its prompts.
pub(crate) fn prefill(config: &Config, rollout: &Rollout) -> Vec<usize> {
    let rows = rollout.prefilled();
    activations(config, rows, rollout.prompts.min(rows), Keep::Nothing)
}

/// The lengths of buffers that serve both kinds of passes.
pub(crate) fn largest(mut buffers: Vec<usize>, others: Vec<usize>) -> Vec<usize> {
    buffers.resize(buffers.len().max(others.len()), 0);
    buffers.iter_mut().zip(others).for_each(|(buffer, other)| *buffer = other.max(*buffer));
    buffers
}
