//! What kinds of work take of a GPU's memory, in bytes.

use super::lists::{ITEM_KEYS, PASS_PARTS, bucket};
use crate::activations::Keep;
use crate::activations::{activations, largest, prefill};
use crate::cache::{PAGE, numbers_per_token, pages_of_keys, state_pages};
use crate::config::Config;
use crate::families::Theta;
use crate::layout::Layout;
use crate::numbers::Precision;
use crate::quantized::{BaseFormat, NF4, dynamic_map};
use crate::sampling::Rollout;
use crate::segments::STRETCH;

/// Rows of a column that a block sums.
pub(super) const SUMMED_ROWS: usize = 256;
/// Largest number of logits that are sampled from at a time: 512 MiB.
pub(super) const LOGITS: usize = 1 << 27;
/// Numbers that are moved at a time when rows of a buffer are left out.
pub(super) const MOVED: usize = 1 << 24;

/// Bytes of so many activations, or keys and values.
pub(crate) fn bytes_of(precision: Precision, numbers: usize) -> u64 {
    (precision.bytes() * numbers) as u64
}

/// Bytes of a base in a format: its matrices with their maps, and the values of the largest where those aren't in place.
pub(crate) fn quantized_bytes(layout: &Layout, precision: Precision) -> u64 {
    let Some(format) = layout.base else { return 0 };
    let stored: u64 = layout.apart().map(|tensor| format.bytes(tensor.shape[0], tensor.shape[1])).sum();
    let largest = layout.apart().map(|tensor| tensor.span.len).max().unwrap_or(0);
    let in_place = format == BaseFormat::Bf16 && precision == Precision::Bf16;
    let maps = 4 * (NF4.len() + dynamic_map().len()) as u64;
    stored + maps + if in_place { 0 } else { bytes_of(precision, largest) }
}

/// Logits that a pass keeps, or computes at a time, on a GPU of so many bytes: a sixteenth of its memory, so that few passes over the gradient of the head
/// add to it, and at least 512 MiB.
pub(crate) fn pass_logits(memory: Option<u64>) -> usize {
    LOGITS.max((memory.unwrap_or(0) / 64) as usize)
}

/// Numbers of states that a recurrent mixer's passes keep at the same time, in f32: 256 MiB. Heads whose states are more take turns.
const MIXER_NUMBERS: usize = 1 << 26;

/// How many of `heads` heads, of which each takes `each` numbers, are computed at the same time.
pub(crate) fn mixer_heads(heads: usize, each: usize) -> usize {
    (MIXER_NUMBERS / each.max(1)).clamp(1, heads)
}

/// Numbers that recurrent mixers take besides activations in passes over so many rows: a state, and in the backward pass its derivative, for each stretch, which no run is
/// shorter than by much.
pub(crate) fn mixer_numbers(config: &Config, rows: usize, trains: bool) -> usize {
    let Some(of) = config.linear_attention.filter(|_| config.is_recurrent() && rows > 0) else { return 0 };
    let stretches = rows.div_ceil(STRETCH);
    let (heads, each) = match trains {
        true => {
            (of.linear_num_key_heads, of.head_state() * (3 * stretches + 2) + rows * of.linear_value_head_dim)
        }
        false => (of.linear_num_value_heads, of.head_state() * stretches.div_ceil(4)),
    };
    // With each row's gates, lengths, and derivatives.
    let (values, keys) = (of.linear_num_value_heads, of.linear_num_key_heads);
    mixer_heads(heads, each) * each + rows * (if trains { 6 } else { 2 } * values + 2 * keys)
}

/// Pages of keys and values whose memory a cache of so many takes at most, with the recurrent states: both are made for the most that they can be.
pub(crate) fn pages_with_states(
    config: &Config,
    precision: Precision,
    rollout: &Rollout,
    pages: usize,
) -> usize {
    let state = state_pages(config, precision);
    let keys = pages_of_keys(pages, state, rollout.prompt_tokens + rollout.new_tokens);
    // A sequence has a page at least; each sample has one, and where two part there is another.
    let sequences = (pages / (1 + state)).min(2 * rollout.samples + rollout.prompts);
    keys + sequences * state
}

/// The index lists of a pass over so many rows: about 20 words a row, and six more for recurrent mixers. For exact attention of all layers but the last, and of that, `exact_parts` parts each:
/// its number and its share of an item, of its place and of its slots: about 4 words.
pub(crate) fn listed(config: &Config, rows: usize, exact_parts: usize) -> u64 {
    let words = if config.is_recurrent() { 26 } else { 20 };
    4 * (words * rows + 2 * 4 * exact_parts).next_power_of_two() as u64
}

/// What layers rotate by: without rotary embedding, by the angle 0.
pub(super) const ROPES: [Option<Theta>; 3] = [Some(Theta::Global), Some(Theta::Local), None];

/// For which of [`ROPES`] there is a table of angles: those that layers have.
pub(crate) fn rope_tables(config: &Config) -> [bool; 3] {
    ROPES.map(|of| (0..config.num_hidden_layers).any(|layer| config.layer(layer).rope == of))
}

/// Parts of exact attention of a pass over so many rows of paths of up to `longest` tokens; none if it isn't `exact`.
pub(crate) fn exact_parts(exact: bool, rows: usize, longest: usize) -> usize {
    if exact { rows * longest.div_ceil(ITEM_KEYS) } else { 0 }
}

/// Bytes of so many parts of attention.
fn part_bytes(config: &Config, parts: usize) -> u64 {
    4 * (parts * config.num_attention_heads * (config.head_dim + 2)) as u64
}

/// Bytes of those parts that are in memory at the same time.
pub(crate) fn exact_bytes(config: &Config, exact_parts: usize) -> u64 {
    part_bytes(config, exact_parts.min(PASS_PARTS))
}

/// Parts of exact attention of a rollout's passes over its prompts.
pub(crate) fn prefilled_parts(exact: bool, rollout: &Rollout) -> usize {
    exact_parts(exact, rollout.prefilled(), rollout.prompt_tokens)
}

/// All that a rollout takes besides keys and values.
pub(crate) fn rollout_bytes(config: &Config, precision: Precision, exact: bool, rollout: &Rollout) -> u64 {
    let prefilled = prefilled_parts(exact, rollout);
    bytes_of(precision, rollout_buffers(config, rollout).iter().sum())
        + 4 * mixer_numbers(config, rollout.prefilled(), false) as u64
        + 4 * sampled_logits(config, rollout) as u64
        + listed(config, rollout.prefilled(), prefilled)
        + decoding(config, rollout, prefilled)
}

/// The lengths of a rollout's buffers, for prompts and for decoding steps.
pub(crate) fn rollout_buffers(config: &Config, rollout: &Rollout) -> Vec<usize> {
    let rows = bucket(rollout.samples);
    largest(prefill(config, rollout), activations(config, rows, rows, Keep::Nothing))
}

/// Logits from which a rollout samples at a time.
pub(crate) fn sampled_logits(config: &Config, rollout: &Rollout) -> usize {
    (LOGITS / config.vocab_size).max(1).min(bucket(rollout.samples)) * config.vocab_size
}

/// Bytes of a GPU's memory that are left to others, who have taken `used` so far: the driver, its libraries, a screen, other programs. In sixteenths of
/// the total, so that it seldom depends on when it is asked for.
pub(crate) fn reserved(total: u64, used: u64) -> u64 {
    let part = (total / 16).max(1);
    (used + total / 64).div_ceil(part) * part
}

/// Pages of keys and values that find room in so many bytes beside the rest of the rollout.
pub(crate) fn cached_pages(
    config: &Config,
    precision: Precision,
    exact: bool,
    rollout: &Rollout,
    room: u64,
) -> usize {
    let page = bytes_of(precision, PAGE * numbers_per_token(config));
    // A row has at least one page.
    let fits = |pages: usize| {
        let rollout =
            Rollout { samples: rollout.samples.min(pages), cached_tokens: PAGE * pages, ..*rollout };
        let pages = pages_with_states(config, precision, &rollout, pages);
        rollout_bytes(config, precision, exact, &rollout) + pages as u64 * page <= room
    };
    let (mut fitting, mut most) = (0, usize::try_from(room / page).unwrap_or(usize::MAX));
    while fitting < most {
        let middle = most - (most - fitting) / 2;
        if fits(middle) { fitting = middle } else { most = middle - 1 }
    }
    fitting
}

/// What only a GPU takes for a backward pass over `n` rows of which `m` predict.
pub(crate) fn backward(config: &Config, precision: Precision, n: usize, m: usize) -> u64 {
    let (d, f, v) = (config.hidden_size, config.intermediate_size, config.vocab_size);
    let q = config.num_attention_heads * config.head_dim;
    let kv = 2 * config.num_key_value_heads * config.head_dim;
    // Numbers on their way when families without a derivative are left out.
    let moved = (n * q.max(kv).max(d).max(2 * f)).min(MOVED);
    let logits = (m * v).min(MOVED);
    let (full, half) = match precision {
        Precision::F32 => (moved.max(logits), 0),
        Precision::Bf16 => (logits.max((n * config.num_attention_heads).min(MOVED)), moved),
    };
    // Each head's part of its norm's derivative, and sums of columns over blocks of rows.
    let shares = if config.layer(0).qk_norm.is_some() { n * q.max(kv / 2) } else { 0 };
    let partials = n.div_ceil(SUMMED_ROWS) * d.max(q).max(kv);
    4 * (full + shares + partials) as u64 + 2 * half as u64
}

/// What only a GPU takes for decoding: results of attention over parts of a row's tokens, or of the `exact_parts` of passes that use the same memory; the lists
/// of a step and its draws.
pub(crate) fn decoding(config: &Config, rollout: &Rollout, exact_parts: usize) -> u64 {
    let Rollout { prompts, prompt_tokens, samples, new_tokens, cached_tokens, .. } = *rollout;
    // With one part more: the first tokens of a completion are often those of others, too. Own tokens are in the cache, so there are no more than fit.
    let shared = samples * (prompt_tokens.div_ceil(ITEM_KEYS) + 1);
    let own = (samples * new_tokens.div_ceil(ITEM_KEYS)).min(samples + cached_tokens / ITEM_KEYS);
    let parts = (shared + own).next_power_of_two();
    let rows = bucket(samples);
    let pages = prompts * prompt_tokens.div_ceil(PAGE) + samples * new_tokens.div_ceil(PAGE);
    // The block of a row's path in which its prompt ends has pages of both.
    let pages = pages.min(cached_tokens.div_ceil(PAGE)) + samples * (ITEM_KEYS / PAGE);
    // By row: token, position, slot, draws and parts before it, uniform number. By part at most: an item, its place and start, the part's number.
    let words = (7 * rows + 7 * parts + 2 * pages).next_power_of_two() + (3 * rows).next_power_of_two();
    part_bytes(config, parts).max(exact_bytes(config, exact_parts)) + 4 * words as u64
}
