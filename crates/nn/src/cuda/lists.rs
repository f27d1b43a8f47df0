//! The index lists of a pass or of a decoding step.

use std::ops::Range;

use super::paths::Paths;
use super::stream::Stream;
use super::words::{List, Words};
use crate::decoding::Step;
use crate::executor::{DecodeChanges, Rows, StepTokens};
use crate::sampling::Draw;
use crate::segments::{AttentionPlan, Chunk, Piece};

/// Queries, or keys, of a tile of attention's plan.
pub(super) const TILE: usize = 64;
/// The bit of a causal piece, whose queries see keys only up to their own row.
const CAUSAL: u32 = 1 << 31;
/// The slot of a row that only fills up a bucket: its keys are not stored.
const NO_ROW: u32 = u32::MAX;
/// Tokens of an item of decoding.
pub(crate) const ITEM_KEYS: usize = 256;
/// Parts of a pass's attention that are in memory at the same time.
pub(crate) const PASS_PARTS: usize = 4096;
/// Rows of an item of a pass.
const PASS_ROWS: usize = 16;

/// Pieces by tile: the start of each tile's pieces, and the pieces, with four words each.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tiles {
    pub(super) first: List,
    pub(super) pieces: List,
}

/// Which query sees which keys.
#[derive(Debug, Clone, Default)]
pub(super) struct Plan {
    pub(super) rows: List,
    pub(super) by_query: Tiles,
    pub(super) by_key: Tiles,
    /// Positions of the queries.
    pub(super) positions: List,
    /// For attention in decoding's bits, one after another.
    pub(super) exact: Vec<PassItems>,
}

/// The lists of a pass. A decoding step has only tokens, positions and slots.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    pub(super) words: Words,
    pub(super) tokens: List,
    /// The draws of the last step that sample the tokens, if the host has not read them.
    pub(super) sampled: List,
    pub(super) positions: List,
    all: Plan,
    predicting: Plan,
    pub(super) pick_rows: List,
    pub(super) pick_tokens: List,
    /// The start of the picks of each predicting row, and the end.
    pub(super) pick_first: List,
    pub(super) slots: List,
    /// Each occurring token, the start of its rows in `order`, and the rows by token.
    pub(super) distinct: List,
    pub(super) starts: List,
    pub(super) order: List,
    /// For recurrent mixers, where there are any.
    pub(super) paths: Paths,
}

impl Lists {
    pub(super) fn plan(&self, rows: Rows) -> &Plan {
        if rows == Rows::All { &self.all } else { &self.predicting }
    }

    /// The lists of a pass over a chunk, with those of attention in decoding's bits if it is `exact`, and those of recurrent mixers whose convolution sees `taps` inputs.
    pub(super) fn stage(
        &mut self,
        stream: &Stream,
        chunk: &Chunk,
        slots: &[u32],
        exact: bool,
        taps: Option<usize>,
    ) {
        let words = &mut self.words;
        words.clear();
        self.tokens = words.put(chunk.tokens.iter().copied());
        self.positions = words.put(chunk.positions.iter().copied());
        let keys = chunk.tokens.len();
        self.all = plan(words, &chunk.all, &chunk.positions, keys, exact);
        self.predicting = plan(words, &chunk.predicting, &chunk.positions, keys, exact);
        self.pick_rows = words.put(chunk.picks.iter().map(|pick| pick.slot));
        self.pick_tokens = words.put(chunk.picks.iter().map(|pick| pick.token));
        let rows = chunk.predicting.rows.len() as u32;
        let before = |row: u32| chunk.picks.partition_point(|pick| pick.slot < row) as u32;
        self.pick_first = words.put((0..=rows).map(before));
        self.slots = words.put(slots.iter().copied());
        let mut order: Vec<u32> = (0..keys as u32).collect();
        order.sort_by_key(|&row| chunk.tokens[row as usize]);
        let token = |&row: &u32| chunk.tokens[row as usize];
        let mut starts: Vec<u32> = (0..keys)
            .filter(|&i| i == 0 || token(&order[i - 1]) != token(&order[i]))
            .map(|i| i as u32)
            .collect();
        self.distinct = words.put(starts.iter().map(|&start| token(&order[start as usize])));
        starts.push(keys as u32);
        self.starts = words.put(starts);
        self.order = words.put(order);
        self.paths = taps.map_or_else(Paths::default, |taps| Paths::put(words, chunk, taps));
        words.stage(stream);
    }
}

fn plan(words: &mut Words, plan: &AttentionPlan, positions: &[u32], keys: usize, exact: bool) -> Plan {
    let pieces: Vec<[u32; 4]> = plan.pieces.iter().map(piece).collect();
    let queries = |piece: &[u32; 4]| (piece[2], piece[3] & !CAUSAL);
    Plan {
        rows: words.put(plan.rows.iter().copied()),
        by_query: tiles(words, &pieces, plan.rows.len(), queries),
        by_key: tiles(words, &pieces, keys, |piece| (piece[0], piece[1])),
        positions: words.put(plan.rows.iter().map(|&row| positions[row as usize])),
        exact: if exact { pass_items(words, plan, positions) } else { Vec::new() },
    }
}

/// Some rows of a pass whose attention decoding's kernels compute: their parts are in memory at the same time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PassItems {
    /// The first row, and how many.
    pub(super) first: usize,
    pub(super) rows: usize,
    pub(super) parts: usize,
    /// Rows count from the first; slots are rows of the keys.
    pub(super) items: Items,
}

/// Items of a pass while they are collected.
#[derive(Default)]
struct Collected {
    first: usize,
    items: Vec<[u32; 4]>,
    place: Vec<u32>,
    starts: Vec<u32>,
    ranges: Vec<[u32; 2]>,
    of_row: Vec<Vec<u32>>,
    parts: usize,
}

impl Collected {
    /// Adds rows of one path, at these positions: they see the tokens of the path up to their own.
    fn add(&mut self, path: &[Range<usize>], positions: &[u32]) {
        let (first_row, last) = (self.of_row.len(), positions[positions.len() - 1] as usize);
        self.of_row.resize_with(first_row + positions.len(), Vec::new);
        for start in (0..=last).step_by(ITEM_KEYS) {
            let seeing = positions.partition_point(|&position| (position as usize) < start);
            let (mut before, end) = (0, (start + ITEM_KEYS).min(last + 1));
            let ranges = path.iter().map(|keys| {
                let within = |position: usize| keys.start + position.saturating_sub(before).min(keys.len());
                let own = within(start)..within(end);
                before += keys.len();
                own
            });
            self.push(ranges, first_row + seeing..first_row + positions.len(), start);
        }
    }

    /// Adds an item: the ranges of its keys, the rows that see them, and the position of its first token.
    fn push(&mut self, ranges: impl Iterator<Item = Range<usize>>, rows: Range<usize>, start: usize) {
        let first = self.ranges.len() as u32;
        let ranges = ranges.filter(|range| !range.is_empty());
        self.ranges.extend(ranges.map(|range| [range.start as u32, range.end as u32]));
        self.items.push([first, self.ranges.len() as u32, rows.start as u32, rows.end as u32]);
        self.place.push(self.parts as u32);
        self.starts.push(start as u32);
        for row in rows {
            self.of_row[row].push(self.parts as u32);
            self.parts += 1;
        }
    }

    /// Puts the lists, filled up to so many items, rows and parts.
    fn put(self, words: &mut Words, items: usize, rows: usize, parts: usize) -> Items {
        let first = self.of_row.iter().scan(0, |sum, parts| {
            *sum += parts.len() as u32;
            Some(*sum)
        });
        Items {
            items: words.put_padded(self.items.into_iter().flatten(), 4 * items, 0),
            place: words.put_padded(self.place, items, 0),
            starts: words.put_padded(self.starts, items, 0),
            row_first: words.put_padded(std::iter::once(0).chain(first), rows + 1, self.parts as u32),
            row_parts: words.put_padded(self.of_row.iter().flatten().copied(), parts, 0),
            // The last list: its length moves no other one.
            ranges: words.put(self.ranges.into_iter().flatten()),
        }
    }

    /// Puts the lists of some rows of a pass.
    fn put_pass(self, words: &mut Words) -> PassItems {
        let (first, items, rows, parts) = (self.first, self.items.len(), self.of_row.len(), self.parts);
        PassItems { first, rows, parts, items: self.put(words, items, rows, parts) }
    }
}

/// The items of a pass's rows. Rows of a segment share items with few others, so that there are many blocks.
fn pass_items(words: &mut Words, plan: &AttentionPlan, positions: &[u32]) -> Vec<PassItems> {
    let (mut built, mut collected) = (Vec::new(), Collected::default());
    // The pieces of the ancestors.
    let mut above: Vec<&Piece> = Vec::new();
    for piece in &plan.pieces {
        while above.last().is_some_and(|ancestor| ancestor.queries.end <= piece.queries.start) {
            above.pop();
        }
        if !piece.causal {
            above.push(piece);
            continue;
        }
        let path: Vec<Range<usize>> = above.iter().chain([&piece]).map(|piece| piece.keys.clone()).collect();
        let positions: Vec<u32> =
            piece.queries.clone().map(|query| positions[plan.rows[query] as usize]).collect();
        let blocks = 1 + positions[positions.len() - 1] as usize / ITEM_KEYS;
        for own in positions.chunks((PASS_PARTS / blocks).clamp(1, PASS_ROWS)) {
            if collected.parts > 0 && collected.parts + own.len() * blocks > PASS_PARTS {
                let first = collected.first + collected.of_row.len();
                let before = std::mem::replace(&mut collected, Collected { first, ..Collected::default() });
                built.push(before.put_pass(words));
            }
            collected.add(&path, own);
        }
    }
    if collected.parts > 0 {
        built.push(collected.put_pass(words));
    }
    built
}

/// A piece in the format of the kernels.
fn piece(piece: &Piece) -> [u32; 4] {
    let causal = if piece.causal { CAUSAL } else { 0 };
    let [first, last] = [piece.keys.start, piece.keys.end].map(|key| key as u32);
    [first, last, piece.queries.start as u32, piece.queries.end as u32 | causal]
}

/// The pieces of each tile of `count` queries or keys, in their order; `range` gives those of a piece.
fn tiles(
    words: &mut Words,
    pieces: &[[u32; 4]],
    count: usize,
    range: impl Fn(&[u32; 4]) -> (u32, u32),
) -> Tiles {
    let of = |piece: &[u32; 4]| {
        let (from, to) = range(piece);
        from as usize / TILE..(to as usize).div_ceil(TILE)
    };
    let mut first = vec![0u32; count.div_ceil(TILE) + 1];
    for piece in pieces {
        of(piece).for_each(|tile| first[tile + 1] += 1);
    }
    for tile in 1..first.len() {
        first[tile] += first[tile - 1];
    }
    let mut next = first.clone();
    let mut list = vec![[0; 4]; first[first.len() - 1] as usize];
    for piece in pieces {
        for tile in of(piece) {
            list[next[tile] as usize] = *piece;
            next[tile] += 1;
        }
    }
    Tiles { first: words.put(first), pieces: words.put(list.into_iter().flatten()) }
}

/// The lengths to which the lists of a decoding step are filled up. Launches and the places of all lists depend only on these, so that the work of
/// most steps is that of the step before. What fills a list up changes nothing: rows whose keys are not stored, whose attention has no parts and
/// that nobody draws from; items without rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Bucket {
    pub(super) rows: usize,
    /// Items of attention.
    items: usize,
    /// Their parts, one for each row of an item.
    pub(super) parts: usize,
    pub(super) draws: usize,
}

/// The length of the bucket for `len`: a power of two up to 64, because products read the same weights (and compute the same tile) for any number of
/// rows up to that; beyond, the next eighth between two powers of two, so that at most an eighth is added.
pub(crate) fn bucket(len: usize) -> usize {
    if len <= 64 {
        len.next_power_of_two()
    } else {
        len.next_multiple_of((len / 2 + 1).next_power_of_two() / 8)
    }
}

/// The work of a decoding step's attention: items of at most [`ITEM_KEYS`] tokens of a path with the rows that see them, and the ordered parts of each
/// row.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Items {
    /// Four words each: first and last range, first and last row.
    pub(super) items: List,
    /// The first part of each item; it has one for each of its rows.
    pub(super) place: List,
    /// The position of each item's first token.
    pub(super) starts: List,
    pub(super) row_first: List,
    pub(super) row_parts: List,
    /// The slots of an item's tokens: two words each, first and last slot.
    pub(super) ranges: List,
}

/// Draws: the two words of each one's uniform number, and the start of each row's draws, and the end.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DrawLists {
    pub(super) uniforms: List,
    pub(super) first: List,
}

impl DrawLists {
    /// Puts draws of `rows` rows, in buckets of `row_bucket` rows and `draw_bucket` draws.
    fn put(
        words: &mut Words,
        draws: &[Draw],
        rows: usize,
        row_bucket: usize,
        draw_bucket: usize,
    ) -> DrawLists {
        let before = |row: usize| draws.partition_point(|draw| draw.row < row) as u32;
        let first = words.put_padded((0..=rows).map(before), row_bucket + 1, draws.len() as u32);
        let halves = |draw: &Draw| {
            let bits = draw.uniform.to_bits();
            [bits as u32, (bits >> 32) as u32]
        };
        DrawLists { first, uniforms: words.put_padded(draws.iter().flat_map(halves), 2 * draw_bucket, 0) }
    }
}

impl Lists {
    /// The lists of a decoding step and its draws.
    pub(super) fn stage_step(
        &mut self,
        stream: &Stream,
        step: &Step,
        changes: &DecodeChanges,
        has_states: bool,
    ) -> (Bucket, Items, DrawLists) {
        let mut collected = Collected { of_row: vec![Vec::new(); step.rows()], ..Collected::default() };
        for (rows, slots) in step.blocks(ITEM_KEYS) {
            // The blocks before it have as many tokens.
            let start = collected.of_row[rows.start].len() * ITEM_KEYS;
            collected.push(slots.into_iter(), rows, start);
        }
        let bucket = Bucket {
            rows: bucket(step.rows()),
            items: bucket(collected.items.len()),
            // Only places in memory depend on them.
            parts: collected.parts.next_power_of_two(),
            draws: bucket(changes.draws.len()),
        };
        let (known, sampled): (&[u32], &[u32]) = match &changes.tokens {
            StepTokens::Known(tokens) => (tokens, &[]),
            StepTokens::Sampled(draws) => (&[], draws),
        };
        let words = &mut self.words;
        words.clear();
        self.tokens = words.put_padded(known.iter().copied(), bucket.rows, 0);
        self.positions = words.put_padded(step.positions.iter().copied(), bucket.rows, 0);
        self.all = Plan { positions: self.positions, ..Plan::default() };
        self.slots = words.put_padded(step.slots.iter().copied(), bucket.rows, NO_ROW);
        let draws = DrawLists::put(words, &changes.draws, step.rows(), bucket.rows, bucket.draws);
        self.paths =
            if has_states { Paths::put_step(words, &step.states, bucket.rows) } else { Paths::default() };
        let items = collected.put(words, bucket.items, bucket.rows, bucket.parts);
        self.sampled = words.put(sampled.iter().copied());
        words.stage(stream);
        (bucket, items, draws)
    }

    /// The lists of draws from rows that are no decoding step.
    pub(super) fn stage_draws(&mut self, stream: &Stream, rows: usize, draws: &[Draw]) -> DrawLists {
        self.words.clear();
        let lists = DrawLists::put(&mut self.words, draws, rows, rows, draws.len());
        self.words.stage(stream);
        lists
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_they_are_for_and_at_most_an_eighth_more_beyond_64() {
        let lengths: Vec<usize> = (1..=10_000).map(bucket).collect();
        assert!(lengths.is_sorted() && (1..).zip(&lengths).all(|(len, &bucket)| bucket >= len));
        assert!((65..).zip(&lengths[64..]).all(|(len, &bucket)| bucket <= len + len / 8));
        let mut different = lengths[..256].to_vec();
        different.dedup();
        assert_eq!(different[..9], [1, 2, 4, 8, 16, 32, 64, 72, 80]);
        assert_eq!((different.len(), different[14..17].to_vec()), (23, vec![128, 144, 160]));
        assert!(lengths.iter().all(|&len| bucket(len) == len));
    }

    #[test]
    fn a_piece_stands_in_every_tile_that_it_reaches_and_pieces_keep_their_order() {
        let mut words = Words::default();
        let pieces = [[0, 130, 0, 130 | CAUSAL], [0, 130, 130, 200], [130, 200, 130, 200 | CAUSAL]];
        let found = tiles(&mut words, &pieces, 200, |piece| (piece[2], piece[3] & !CAUSAL));
        assert_eq!(words.host(found.first), [0, 1, 2, 5, 7]);
        let list = words.host(found.pieces).as_chunks::<4>().0;
        assert_eq!(list[2..5], pieces, "the tile of queries 128 to 191");
        assert_eq!(list[5..], pieces[1..]);
        assert!(found.pieces.first.is_multiple_of(4));
    }
}
