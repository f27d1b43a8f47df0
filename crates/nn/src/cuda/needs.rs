//! GPU memory requirements of the kinds of work, in bytes.

use super::lists::{ITEM_KEYS, PASS_PARTS, bucket};
use crate::cache::{PAGE, numbers_per_token, pages_of_keys, state_pages};
use crate::config::Config;
use crate::decoder::{Decoder, PassMemory};
use crate::families::Theta;
use crate::layout::Layout;
use crate::numbers::Precision;
use crate::quantized::{BaseFormat, NF4, dynamic_map};
use crate::sampling::Rollout;
use crate::segments::STRETCH;

/// Number of rows that one thread block sums, in kernels that sum columns.
pub(super) const SUMMED_ROWS: usize = 256;
/// Maximum number of logits that are sampled from at a time: 512 MiB.
pub(super) const LOGITS: usize = 1 << 27;
/// Maximum number of values that are moved at a time when rows are removed from a buffer.
pub(super) const MOVED: usize = 1 << 24;

/// Returns the bytes of `numbers` values of this number type.
pub(crate) fn bytes_of(precision: Precision, numbers: usize) -> u64 {
    (precision.bytes() * numbers) as u64
}

/// Returns the bytes of a quantized base: its matrices and maps, and scratch memory for the largest dequantized matrix, if one is needed.
pub(crate) fn quantized_bytes(layout: &Layout, precision: Precision) -> u64 {
    let Some(format) = layout.base else { return 0 };
    let stored: u64 = layout.quantized().map(|tensor| format.bytes(tensor.shape[0], tensor.shape[1])).sum();
    let largest = layout.quantized().map(|tensor| tensor.span.len).max().unwrap_or(0);
    let in_place = format == BaseFormat::Bf16 && precision == Precision::Bf16;
    let maps = 4 * (NF4.len() + dynamic_map().len()) as u64;
    stored + maps + if in_place { 0 } else { bytes_of(precision, largest) }
}

/// Returns the maximum number of logits that a pass stores, or computes at a time, on a GPU with `memory` bytes: a sixteenth of its memory, but at
/// least 512 MiB. Large tiles keep the number of passes over the head's gradient small.
pub(crate) fn pass_logits(memory: Option<u64>) -> usize {
    LOGITS.max((memory.unwrap_or(0) / 64) as usize)
}

/// Maximum number of f32 state values that a mixer's pass stores at a time: 256 MiB. Beyond it, heads take turns.
const MIXER_NUMBERS: usize = 1 << 26;

/// Returns how many of `heads` heads are computed at the same time if each needs `per_head` values of memory.
pub(crate) fn mixer_heads(heads: usize, per_head: usize) -> usize {
    (MIXER_NUMBERS / per_head.max(1)).clamp(1, heads)
}

/// Returns the number of values that recurrent mixers need besides activations in a pass over `rows` rows: for each stretch a state and, in the
/// backward pass, its derivative. (Runs are rarely much shorter than a stretch.)
pub(crate) fn mixer_numbers(config: &Config, rows: usize, trains: bool) -> usize {
    let Some(sizes) = config.linear_attention.filter(|_| config.is_recurrent() && rows > 0) else { return 0 };
    let stretches = rows.div_ceil(STRETCH);
    let (values, keys, state) =
        (sizes.linear_num_value_heads, sizes.linear_num_key_heads, sizes.head_state());
    let (heads, per_head) = if trains {
        (keys, state * (3 * stretches + 2) + rows * sizes.linear_value_head_dim)
    } else {
        (values, state * stretches.div_ceil(4))
    };
    // Also each row's gates, lengths and derivatives.
    mixer_heads(heads, per_head) * per_head + rows * (if trains { 6 } else { 2 } * values + 2 * keys)
}

/// Returns the maximum memory of a cache with `pages` pages and its recurrent states, in pages. Both parts are
/// allocated for their maximum.
pub(crate) fn pages_with_states(
    config: &Config,
    precision: Precision,
    rollout: &Rollout,
    pages: usize,
) -> usize {
    let state = state_pages(config, precision);
    let keys = pages_of_keys(pages, state, rollout.prompt_tokens + rollout.new_tokens);
    // Each sample has a sequence with at least one page, and each branching adds one.
    let sequences = (pages / (1 + state)).min(2 * rollout.samples + rollout.prompts);
    keys + sequences * state
}

/// Returns the bytes of the index lists of a pass over `rows` rows: about 20 words per row, and six more with recurrent mixers. Exact attention adds
/// about 4 words per part, for all layers but the last and again for the last.
pub(crate) fn listed(config: &Config, rows: usize, exact_parts: usize) -> u64 {
    let words = if config.is_recurrent() { 26 } else { 20 };
    4 * (words * rows + 2 * 4 * exact_parts).next_power_of_two() as u64
}

/// Rotary embeddings that layers can have. Layers without one rotate by the angle 0.
pub(super) const ROPES: [Option<Theta>; 3] = [Some(Theta::Global), Some(Theta::Local), None];

/// Returns whether a table of angles is needed for each of [`ROPES`].
pub(crate) fn rope_tables(config: &Config) -> [bool; 3] {
    ROPES.map(|rope| (0..config.num_hidden_layers).any(|layer| config.layer(layer).rope == rope))
}

/// Returns the number of attention parts of a pass over `rows` rows at positions below `longest`. 0 unless `exact`.
pub(crate) fn exact_parts(exact: bool, rows: usize, longest: usize) -> usize {
    if exact { rows * longest.div_ceil(ITEM_KEYS) } else { 0 }
}

/// Returns the bytes of `parts` attention parts.
fn part_bytes(config: &Config, parts: usize) -> u64 {
    4 * (parts * config.num_attention_heads * (config.head_dim + 2)) as u64
}

/// Returns the bytes of the parts of exact attention that are in memory at the same time.
pub(crate) fn exact_bytes(config: &Config, exact_parts: usize) -> u64 {
    part_bytes(config, exact_parts.min(PASS_PARTS))
}

/// Returns the number of parts of exact attention in a rollout's passes over its prompts.
pub(crate) fn prefilled_parts(exact: bool, rollout: &Rollout) -> usize {
    exact_parts(exact, rollout.prefilled(), rollout.prompt_tokens)
}

/// Adds a rollout's passes over its prompts, and its largest decoding step.
pub(crate) fn add_rollout(memory: &mut PassMemory<'_>, rollout: &Rollout) {
    memory.prompts(rollout);
    memory.step(bucket(rollout.samples));
}

/// Returns the bytes that a rollout needs besides keys and values.
pub(crate) fn rollout_bytes(decoder: &Decoder, precision: Precision, exact: bool, rollout: &Rollout) -> u64 {
    let (config, prefilled) = (&decoder.config, prefilled_parts(exact, rollout));
    let mut memory = PassMemory::new(decoder, precision);
    add_rollout(&mut memory, rollout);
    memory.bytes()
        + 4 * mixer_numbers(config, rollout.prefilled(), false) as u64
        + 4 * sampled_logits(config, rollout) as u64
        + listed(config, rollout.prefilled(), prefilled)
        + decoding(config, rollout, prefilled)
}

/// Returns the number of logits from which a rollout samples at a time.
pub(crate) fn sampled_logits(config: &Config, rollout: &Rollout) -> usize {
    (LOGITS / config.vocab_size).max(1).min(bucket(rollout.samples)) * config.vocab_size
}

/// Returns the bytes of a GPU's memory that are reserved for others (the driver, libraries, displays, other programs), which currently use `used`.
/// Rounded up to sixteenths of the total, so that the result seldom depends on when it is computed.
pub(crate) fn reserved(total: u64, used: u64) -> u64 {
    let part = (total / 16).max(1);
    (used + total / 64).div_ceil(part) * part
}

/// Returns the maximum number of pages of keys and values that fit in `room` bytes together with the rest of the rollout.
pub(crate) fn cached_pages(
    decoder: &Decoder,
    precision: Precision,
    exact: bool,
    rollout: &Rollout,
    room: u64,
) -> usize {
    let page = bytes_of(precision, PAGE * numbers_per_token(&decoder.config));
    // A row has at least one page.
    let fits = |pages: usize| {
        let rollout =
            Rollout { samples: rollout.samples.min(pages), cached_tokens: PAGE * pages, ..*rollout };
        let pages = pages_with_states(&decoder.config, precision, &rollout, pages);
        rollout_bytes(decoder, precision, exact, &rollout) + pages as u64 * page <= room
    };
    let (mut fitting, mut highest) = (0, usize::try_from(room / page).unwrap_or(usize::MAX));
    while fitting < highest {
        let middle = highest - (highest - fitting) / 2;
        if fits(middle) { fitting = middle } else { highest = middle - 1 }
    }
    fitting
}

/// Returns the bytes that only a GPU needs for a backward pass over `n` rows of which `m` predict.
pub(crate) fn backward(config: &Config, precision: Precision, n: usize, m: usize) -> u64 {
    let (d, f, v) = (config.hidden_size, config.intermediate_size, config.vocab_size);
    let q = config.num_attention_heads * config.head_dim;
    let kv = 2 * config.num_key_value_heads * config.head_dim;
    // Values that are moved when trees without a derivative are removed.
    let moved = (n * q.max(kv).max(d).max(2 * f)).min(MOVED);
    let logits = (m * v).min(MOVED);
    let (full, half) = match precision {
        Precision::F32 => (moved.max(logits), 0),
        Precision::Bf16 => (logits.max((n * config.num_attention_heads).min(MOVED)), moved),
    };
    // Each head's contribution to the derivative of its norm, and column sums over blocks of rows.
    let shares = if config.layer(0).qk_norm.is_some() { n * q.max(kv / 2) } else { 0 };
    let partials = n.div_ceil(SUMMED_ROWS) * d.max(q).max(kv);
    4 * (full + shares + partials) as u64 + 2 * half as u64
}

/// Returns the bytes that only a GPU needs for decoding: partial attention results, in the memory that passes use for
/// their `exact_parts`, and the lists of a step and its draws.
pub(crate) fn decoding(config: &Config, rollout: &Rollout, exact_parts: usize) -> u64 {
    let Rollout { prompts, prompt_tokens, samples, new_tokens, cached_tokens, .. } = *rollout;
    // One more part per sample, because the first tokens of a completion are often shared. The number of cached tokens bounds the other parts.
    let shared = samples * (prompt_tokens.div_ceil(ITEM_KEYS) + 1);
    let unshared = (samples * new_tokens.div_ceil(ITEM_KEYS)).min(samples + cached_tokens / ITEM_KEYS);
    let parts = (shared + unshared).next_power_of_two();
    let rows = bucket(samples);
    let pages = prompts * prompt_tokens.div_ceil(PAGE) + samples * new_tokens.div_ceil(PAGE);
    // The block in which a row's prompt ends has pages of both the prompt and the completion.
    let pages = pages.min(cached_tokens.div_ceil(PAGE)) + samples * (ITEM_KEYS / PAGE);
    // Words per row: token, position, slot, preceding draws and parts, uniform number. Per part, at most: an item with its first part and start, and the part's index.
    let words = (7 * rows + 7 * parts + 2 * pages).next_power_of_two() + (3 * rows).next_power_of_two();
    part_bytes(config, parts).max(exact_bytes(config, exact_parts)) + 4 * words as u64
}
