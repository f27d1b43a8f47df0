//! Sizes of the buffers of a pass.

use crate::config::Config;
use crate::families::{KeysValues, Layer, QkNorm, Recurrence};
use crate::sampling::Rollout;

/// Activations that the forward pass stores for the backward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Nothing, because no backward pass follows.
    Nothing,
    /// The input of each layer. The backward pass recomputes the other activations, one layer at a time.
    Inputs,
    /// All activations.
    Everything,
}

/// Lengths of one executor's buffers for a pass over `n` rows, `m` of which predict: first the buffers that all layers share, then the
/// inputs of the layers, then the saved activations of each layer.
pub(crate) fn activations(config: &Config, n: usize, m: usize, keep: Keep) -> Vec<usize> {
    let (d, f, layers) = (config.hidden_size, config.intermediate_size, config.num_hidden_layers);
    // Number of rows for which the largest layer computes more than keys and values. The last layer does so only for the predicting rows.
    let rows_computed = if layers > 1 { n } else { m };
    let heads = config.num_attention_heads;
    let backward = |len: usize| if keep == Keep::Nothing { 0 } else { len };
    let kinds: Vec<SavedSizes> =
        (0..layers).map(|layer| SavedSizes::new(config, config.layer(layer), keep)).collect();
    let largest_of = |width: fn(&SavedSizes) -> usize| kinds.iter().map(width).max().unwrap_or(0);
    let [q, dq, kv] = [largest_of(|k| k.result), largest_of(|k| k.queries), largest_of(|k| k.inputs)];
    let shared = rows_computed * largest_of(|k| k.of_rows_shared) + n * largest_of(|k| k.of_keys_shared);
    // All rows of a decoding step predict, and none of its activations are saved.
    let step = if keep == Keep::Nothing && m == n { n * largest_of(|k| k.step) } else { 0 };
    let mut buffers = vec![
        n * d,                                                                                // normed
        rows_computed * d,                                                                    // normed_rows
        rows_computed * kinds.iter().map(|kind| kind.intermediate).max().unwrap_or(0).max(f), // act
        m * d,                                                                                // hidden
        3 * m,                                   // hidden_scale, head_saved
        backward(2 * n * d),                     // dx, dnormed
        backward(if m < n { n * d } else { 0 }), // dx_rows
        backward(rows_computed * (q + dq)),      // dout, dq
        backward(n * kv),                        // dkv
        n * heads + backward(n * heads) + 3 * m, // sums of attention, of the head
        shared,                                  // halves, gated, mixed, and the buffers of recurrent mixers
        step,                                    // qkv
    ];
    // Per-layer inputs: the rows, their norm, the table's rows beyond `act`, and two columns; then keys and values that layers borrow.
    let size = config.layer(0).per_layer_input;
    let (width, widest) = (size * layers, kinds.iter().map(|kind| kind.intermediate).max().unwrap_or(0));
    let lent = kinds.iter().filter(|kind| kind.lends).map(|kind| kind.inputs).sum::<usize>();
    let doubled = if keep == Keep::Nothing { 1 } else { 2 };
    let of_inputs =
        if size > 0 { width * (doubled + 1) + layers + 2 * size + width.saturating_sub(widest) } else { 0 };
    buffers.push(n * (of_inputs + doubled * lent + largest_of(|k| k.from_keys)));
    let inputs = if keep == Keep::Nothing { 2 } else { layers };
    buffers.extend(std::iter::repeat_n(n * d, inputs));
    buffers.push(backward(m * d));
    buffers.resize(buffers.len().max(14 + layers), 0);
    let numbers = |rows: usize, kind: &SavedSizes| rows * (d + 1 + kind.of_rows) + n * (1 + kind.of_keys);
    if keep == Keep::Everything {
        let rows = |layer: usize| if layer + 1 == layers { m } else { n };
        buffers.extend(kinds.iter().enumerate().map(|(layer, kind)| numbers(rows(layer), kind)));
    } else {
        // All attention layers share one buffer, and so do all recurrent layers.
        for recurrent in [false, true] {
            let same_kind = kinds.iter().filter(|kind| kind.recurrent == recurrent);
            buffers.extend(same_kind.map(|kind| numbers(rows_computed, kind)).max());
        }
    }
    buffers
}

/// Number of values per row that a layer saves or computes.
struct SavedSizes {
    /// Whether the layer has a recurrent mixer in place of attention.
    recurrent: bool,
    /// Width of the queries, keys and values of a decoding step together.
    step: usize,
    /// Input width of the output projection.
    result: usize,
    /// Output width of the input map that is applied only to rows whose result is needed.
    queries: usize,
    /// Output width of the input map that is applied to all rows.
    inputs: usize,
    /// Values saved for each row whose result is needed.
    of_rows: usize,
    /// Values saved for every row.
    of_keys: usize,
    /// Values for each row whose result is needed, in buffers that all layers share.
    of_rows_shared: usize,
    /// Values for every row, in buffers that all layers share.
    of_keys_shared: usize,
    /// Whether other layers borrow the keys and values.
    lends: bool,
    /// Width of the derivatives of keys and values if values are computed from keys, otherwise 0.
    from_keys: usize,
    /// `F`, the width of the MLP.
    intermediate: usize,
}

impl SavedSizes {
    fn new(config: &Config, layer: Layer, keep: Keep) -> SavedSizes {
        let (d, f) = (config.hidden_size, layer.intermediate);
        let after = usize::from(layer.attention.after.is_some()) + usize::from(layer.mlp.after.is_some());
        if let Some(Recurrence::Convolution(sizes)) = layer.mixer {
            let (width, inputs) = (sizes.width, 3 * sizes.width);
            return SavedSizes {
                recurrent: true,
                step: 0,
                result: width,
                queries: 0,
                inputs,
                of_rows: width + 2 * f + after * (d + 1),
                of_keys: inputs,
                of_rows_shared: 0,
                // The inputs of the convolution.
                of_keys_shared: width,
                lends: false,
                from_keys: 0,
                intermediate: f,
            };
        }
        if let Some(Recurrence::DeltaRule(mixer)) = layer.mixer {
            let (width, heads, inputs) =
                (mixer.value_width(), mixer.linear_num_value_heads, mixer.input_width());
            let mixed = if keep == Keep::Nothing { 1 } else { 2 } * mixer.channels();
            return SavedSizes {
                recurrent: true,
                step: 0,
                result: width,
                queries: width,
                inputs,
                // The results before and after their norm, and the gate.
                of_rows: 3 * width + heads + 2 * f + after * (d + 1),
                of_keys: inputs,
                of_rows_shared: width,
                of_keys_shared: mixed + 2 * (heads + mixer.linear_num_key_heads),
                lends: false,
                from_keys: 0,
                intermediate: f,
            };
        }
        let q = config.num_attention_heads * layer.head_dim;
        let kv = 2 * layer.key_heads * layer.head_dim;
        // A norm saves its input, and one scale for each vector that it normalises.
        let [of_q, of_k] = match layer.qk_norm {
            None => [0, 0],
            Some(QkNorm::Head) => [q + config.num_attention_heads, kv / 2 + layer.key_heads],
            Some(QkNorm::Whole) => [q + 1, kv / 2 + 1],
        };
        let gate = if layer.output_gate { q } else { 0 };
        let of_v = if layer.value_norm { kv / 2 + layer.key_heads } else { 0 };
        // The sum after the MLP, gate and input, and the norm.
        let added = match layer.per_layer_input {
            0 => 0,
            size => 2 * d + 2 * size + 1,
        };
        SavedSizes {
            recurrent: false,
            step: q + kv,
            result: q,
            queries: q + gate,
            inputs: kv,
            of_rows: 2 * q + gate + config.num_attention_heads + 2 * f + of_q + after * (d + 1) + added,
            of_keys: kv + of_k + of_v,
            of_rows_shared: 3 * gate,
            of_keys_shared: 0,
            lends: matches!(layer.keys_values, KeysValues::Lent(_)),
            from_keys: if layer.values_from_keys { kv } else { 0 },
            intermediate: f,
        }
    }
}

/// Buffer lengths of a rollout's passes over its prompts.
pub(crate) fn prefill(config: &Config, rollout: &Rollout) -> Vec<usize> {
    let rows = rollout.prefilled();
    activations(config, rows, rollout.prompts.min(rows), Keep::Nothing)
}

/// Returns the larger of the two lengths of each buffer.
pub(crate) fn largest(mut buffers: Vec<usize>, others: Vec<usize>) -> Vec<usize> {
    buffers.resize(buffers.len().max(others.len()), 0);
    buffers.iter_mut().zip(others).for_each(|(buffer, other)| *buffer = other.max(*buffer));
    buffers
}
