//! The sizes of a pass's buffers.

use crate::config::Config;
use crate::families::{Layer, QkNorm};
use crate::sampling::Rollout;

/// The activations that the forward pass keeps for the backward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Nothing: no backward pass follows.
    Nothing,
    /// The input of each layer; the backward pass recomputes each layer.
    Inputs,
    /// All activations.
    Everything,
}

/// Lengths of one executor's buffers for a pass over `n` rows of which `m` predict: shared ones, inputs of layers, then
/// what each layer keeps.
pub(crate) fn activations(config: &Config, n: usize, m: usize, keep: Keep) -> Vec<usize> {
    let (d, f, layers) = (config.hidden_size, config.intermediate_size, config.num_hidden_layers);
    // Rows beyond the keys: those of every layer but the last, if there is another.
    let most = if layers > 1 { n } else { m };
    let heads = config.num_attention_heads;
    let backward = |len: usize| if keep == Keep::Nothing { 0 } else { len };
    let kinds: Vec<Kept> = (0..layers).map(|layer| Kept::of(config, config.layer(layer), keep)).collect();
    let largest_of = |width: fn(&Kept) -> usize| kinds.iter().map(width).max().unwrap_or(0);
    let [q, dq, kv] = [largest_of(|k| k.result), largest_of(|k| k.queries), largest_of(|k| k.inputs)];
    let beside = most * largest_of(|k| k.of_rows_shared) + n * largest_of(|k| k.of_keys_shared);
    // Decoding steps keep nothing, and all their rows predict.
    let step = if keep == Keep::Nothing && m == n { n * largest_of(|k| k.step) } else { 0 };
    let mut buffers = vec![
        n * d,                                   // normed
        most * d,                                // normed_rows
        most * f,                                // act
        m * d,                                   // hidden
        3 * m,                                   // hidden_scale, head_saved
        backward(2 * n * d),                     // dx, dnormed
        backward(if m < n { n * d } else { 0 }), // dx_rows
        backward(most * (q + dq)),               // dout, dq
        backward(n * kv),                        // dkv
        n * heads + backward(n * heads) + 3 * m, // sums of attention, of the head
        beside,                                  // halves, gated, mixed, and the mixer's own
        step,                                    // qkv
    ];
    let inputs = if keep == Keep::Nothing { 2 } else { layers };
    buffers.extend(std::iter::repeat_n(n * d, inputs));
    buffers.push(backward(m * d));
    buffers.resize(buffers.len().max(13 + layers), 0);
    let numbers = |rows: usize, kind: &Kept| rows * (d + 1 + kind.of_rows) + n * (1 + kind.of_keys);
    if keep == Keep::Everything {
        let rows = |layer: usize| if layer + 1 == layers { m } else { n };
        buffers.extend(kinds.iter().enumerate().map(|(layer, kind)| numbers(rows(layer), kind)));
    } else {
        // Layers of a kind share their buffers.
        for recurrent in [false, true] {
            let alike = kinds.iter().filter(|kind| kind.recurrent == recurrent);
            buffers.extend(alike.map(|kind| numbers(most, kind)).max());
        }
    }
    buffers
}

/// What a layer keeps of a row, in numbers.
struct Kept {
    /// Whether the layer has a mixer in place of attention.
    recurrent: bool,
    /// Queries, keys and values of a decoding step.
    step: usize,
    /// Widths of what the last map of attention, or of a mixer, reads; of the first for rows whose results are needed; of that for all rows.
    result: usize,
    queries: usize,
    inputs: usize,
    /// Of rows whose results are needed, and of all rows.
    of_rows: usize,
    of_keys: usize,
    /// Likewise, but for all layers alike.
    of_rows_shared: usize,
    of_keys_shared: usize,
}

impl Kept {
    fn of(config: &Config, layer: Layer, keep: Keep) -> Kept {
        let (d, f) = (config.hidden_size, config.intermediate_size);
        let after = usize::from(layer.attention.after.is_some()) + usize::from(layer.mlp.after.is_some());
        if let Some(mixer) = layer.mixer {
            let (width, heads, inputs) =
                (mixer.value_width(), mixer.linear_num_value_heads, mixer.input_width());
            let mixed = if keep == Keep::Nothing { 1 } else { 2 } * mixer.channels();
            return Kept {
                recurrent: true,
                step: 0,
                result: width,
                queries: width,
                inputs,
                // Results before and after their norm, and the gate.
                of_rows: 3 * width + heads + 2 * f + after * (d + 1),
                of_keys: inputs,
                of_rows_shared: width,
                of_keys_shared: mixed + 2 * (heads + mixer.linear_num_key_heads),
            };
        }
        let q = config.num_attention_heads * config.head_dim;
        let kv = 2 * config.num_key_value_heads * config.head_dim;
        // Norms keep what they replace, and a number for each of what they are taken over.
        let [of_q, of_k] = match layer.qk_norm {
            None => [0, 0],
            Some(QkNorm::Head) => [q + config.num_attention_heads, kv / 2 + config.num_key_value_heads],
            Some(QkNorm::Whole) => [q + 1, kv / 2 + 1],
        };
        let gate = if layer.output_gate { q } else { 0 };
        Kept {
            recurrent: false,
            step: q + kv,
            result: q,
            queries: q + gate,
            inputs: kv,
            of_rows: 2 * q + gate + config.num_attention_heads + 2 * f + of_q + after * (d + 1),
            of_keys: kv + of_k,
            of_rows_shared: 3 * gate,
            of_keys_shared: 0,
        }
    }
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
