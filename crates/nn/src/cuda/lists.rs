//! Index lists of a pass or of a decoding step.

use std::ops::Range;

use super::paths::Paths;
use super::stream::Stream;
use super::words::{List, Words};
use crate::decoding::Step;
use crate::executor::{DecodeChanges, StepTokens, Subset};
use crate::sampling::Draw;
use crate::segments::{AttentionPlan, Chunk, Piece};

/// Number of queries, or of keys, in a tile of the attention plan.
pub(super) const TILE: usize = 64;
/// Flag of a causal piece, whose queries see keys only up to their own row.
const CAUSAL: u32 = 1 << 31;
/// Slot of a padding row, whose keys are not stored.
const NO_ROW: u32 = u32::MAX;
/// Maximum number of keys of a work item ([`Items`]) of decoding attention.
pub(crate) const ITEM_KEYS: usize = 256;
/// Maximum number of partial attention results of a pass in memory at the same time.
pub(crate) const PASS_PARTS: usize = 4096;
/// Maximum number of rows of a work item ([`PassItems`]) of a pass.
const PASS_ROWS: usize = 16;

/// Pieces of the attention plan, grouped by tile: index of each tile's first piece; and the pieces, four words each.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tiles {
    pub(super) first: List,
    pub(super) pieces: List,
}

/// Attention plan of a pass, with its pieces by tile of queries and by tile of keys.
#[derive(Debug, Clone, Default)]
pub(super) struct Plan {
    pub(super) rows: List,
    pub(super) by_query: Tiles,
    pub(super) by_key: Tiles,
    /// Positions of the queries.
    pub(super) positions: List,
    /// Work for attention that equals decoding bit for bit, processed one after another. Otherwise empty.
    pub(super) exact: Vec<PassItems>,
}

/// Lists of a pass. A decoding step uses only `tokens`, `sampled`, `positions`, `slots` and `paths`.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    pub(super) words: Words,
    pub(super) tokens: List,
    /// For each token that the host hasn't read yet, the index of the draw in the previous step that samples it.
    pub(super) sampled: List,
    pub(super) positions: List,
    all: Plan,
    predicting: Plan,
    pub(super) pick_rows: List,
    pub(super) pick_tokens: List,
    /// For each predicting row, the index of its first requested log-probability; then the number of requests.
    pub(super) pick_first: List,
    pub(super) slots: List,
    /// Distinct tokens. The rows of token `i` are `order[starts[i]..starts[i + 1]]`.
    pub(super) distinct: List,
    pub(super) starts: List,
    pub(super) order: List,
    /// Paths for recurrent mixers. Empty in models without such mixers.
    pub(super) paths: Paths,
}

impl Lists {
    pub(super) fn plan(&self, rows: Subset) -> &Plan {
        if rows == Subset::All { &self.all } else { &self.predicting }
    }

    /// Builds and uploads the lists of a pass over a chunk. `exact` adds the work for attention that equals decoding
    /// bit for bit. `taps`, the kernel size of the mixers' convolution, adds paths.
    pub(super) fn upload(
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
        words.upload(stream);
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

/// A range of a pass's rows, with the work items with which the decoding kernels compute their attention together.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PassItems {
    pub(super) first: usize,
    pub(super) rows: usize,
    pub(super) parts: usize,
    /// Work items, with row indices relative to `first`. Their slots are rows of the key buffer.
    pub(super) items: Items,
}

/// Builder of [`Items`].
#[derive(Default)]
struct Collected {
    first: usize,
    items: Vec<[u32; 4]>,
    first_part: Vec<u32>,
    starts: Vec<u32>,
    ranges: Vec<[u32; 2]>,
    parts_of_row: Vec<Vec<u32>>,
    parts: usize,
}

impl Collected {
    /// Adds attention for rows at these positions of a path. Each row sees the path's tokens up to its own.
    fn add(&mut self, path: &[Range<usize>], positions: &[u32]) {
        let (first_row, last) = (self.parts_of_row.len(), positions[positions.len() - 1] as usize);
        self.parts_of_row.resize_with(first_row + positions.len(), Vec::new);
        for start in (0..=last).step_by(ITEM_KEYS) {
            let blind = positions.partition_point(|&position| (position as usize) < start);
            let (mut before, end) = (0, (start + ITEM_KEYS).min(last + 1));
            let ranges = path.iter().map(|keys| {
                let slot = |position: usize| keys.start + position.saturating_sub(before).min(keys.len());
                let range = slot(start)..slot(end);
                before += keys.len();
                range
            });
            self.push(ranges, first_row + blind..first_row + positions.len(), start);
        }
    }

    /// Adds an item: the ranges of its keys, the rows that see them, and the position of its first token.
    fn push(&mut self, ranges: impl Iterator<Item = Range<usize>>, rows: Range<usize>, start: usize) {
        let first = self.ranges.len() as u32;
        let ranges = ranges.filter(|range| !range.is_empty());
        self.ranges.extend(ranges.map(|range| [range.start as u32, range.end as u32]));
        self.items.push([first, self.ranges.len() as u32, rows.start as u32, rows.end as u32]);
        self.first_part.push(self.parts as u32);
        self.starts.push(start as u32);
        for row in rows {
            self.parts_of_row[row].push(self.parts as u32);
            self.parts += 1;
        }
    }

    /// Appends the collected items to `words`, as lists padded to `items` items, `rows` rows and `parts` parts.
    fn put(self, words: &mut Words, items: usize, rows: usize, parts: usize) -> Items {
        let first = self.parts_of_row.iter().scan(0, |sum, parts| {
            *sum += parts.len() as u32;
            Some(*sum)
        });
        Items {
            items: words.put_padded(self.items.into_iter().flatten(), 4 * items, 0),
            first_part: words.put_padded(self.first_part, items, 0),
            starts: words.put_padded(self.starts, items, 0),
            row_first: words.put_padded(std::iter::once(0).chain(first), rows + 1, self.parts as u32),
            row_parts: words.put_padded(self.parts_of_row.iter().flatten().copied(), parts, 0),
            // `ranges` is the last list here, so that its length moves only `sampled`, which graphs don't read.
            ranges: words.put(self.ranges.into_iter().flatten()),
        }
    }

    /// Appends the collected items of a range of a pass's rows to `words`.
    fn put_pass(self, words: &mut Words) -> PassItems {
        let (first, items, rows, parts) = (self.first, self.items.len(), self.parts_of_row.len(), self.parts);
        PassItems { first, rows, parts, items: self.put(words, items, rows, parts) }
    }
}

/// Returns the work items of a pass's rows. Each item has few rows of a segment, so that a kernel has many blocks.
fn pass_items(words: &mut Words, plan: &AttentionPlan, positions: &[u32]) -> Vec<PassItems> {
    let (mut built, mut collected) = (Vec::new(), Collected::default());
    // Pieces of the ancestors.
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
        for rows in positions.chunks((PASS_PARTS / blocks).clamp(1, PASS_ROWS)) {
            if collected.parts > 0 && collected.parts + rows.len() * blocks > PASS_PARTS {
                let first = collected.first + collected.parts_of_row.len();
                let before = std::mem::replace(&mut collected, Collected { first, ..Collected::default() });
                built.push(before.put_pass(words));
            }
            collected.add(&path, rows);
        }
    }
    if collected.parts > 0 {
        built.push(collected.put_pass(words));
    }
    built
}

/// Encodes a piece for the kernels: first and end key, first and end query, the last with the causal flag.
fn piece(piece: &Piece) -> [u32; 4] {
    let causal = if piece.causal { CAUSAL } else { 0 };
    let [first, last] = [piece.keys.start, piece.keys.end].map(|key| key as u32);
    [first, last, piece.queries.start as u32, piece.queries.end as u32 | causal]
}

/// Lists the pieces that overlap each tile, in order. `range` returns a piece's queries (or keys), out of `count`.
fn tiles(
    words: &mut Words,
    pieces: &[[u32; 4]],
    count: usize,
    range: impl Fn(&[u32; 4]) -> (u32, u32),
) -> Tiles {
    let tiles_of = |piece: &[u32; 4]| {
        let (from, to) = range(piece);
        from as usize / TILE..(to as usize).div_ceil(TILE)
    };
    let mut first = vec![0u32; count.div_ceil(TILE) + 1];
    for piece in pieces {
        tiles_of(piece).for_each(|tile| first[tile + 1] += 1);
    }
    for tile in 1..first.len() {
        first[tile] += first[tile - 1];
    }
    let mut next = first.clone();
    let mut list = vec![[0; 4]; first[first.len() - 1] as usize];
    for piece in pieces {
        for tile in tiles_of(piece) {
            list[next[tile] as usize] = *piece;
            next[tile] += 1;
        }
    }
    Tiles { first: words.put(first), pieces: words.put(list.into_iter().flatten()) }
}

/// Lengths to which the lists of a decoding step are padded. The step's launches, and the positions of the lists that
/// they read, depend only on these, so most steps submit the same work as the step before. Padding doesn't change
/// results: padding rows don't store keys or have parts and aren't sampled from; padding items don't have rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Bucket {
    pub(super) rows: usize,
    items: usize,
    /// Number of partial attention results: one for each row of each item.
    pub(super) parts: usize,
    pub(super) draws: usize,
}

/// Rounds `len` up to a bucket length: up to 64 to a power of two, because products with up to 64 rows read the same
/// weights and compute the same tile; from a power of two P to 2P, to a multiple of P / 8.
pub(crate) fn bucket(len: usize) -> usize {
    if len <= 64 {
        len.next_power_of_two()
    } else {
        len.next_multiple_of((len / 2 + 1).next_power_of_two() / 8)
    }
}

/// Work items of decoding attention: at most [`ITEM_KEYS`] tokens of a path, and the rows that attend to them. An item
/// yields a partial result, or part, for each of its rows. The parts of each row are listed in order.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Items {
    /// Four words per item: first and end index into `ranges`, first and end row.
    pub(super) items: List,
    /// Index of the first part of each item. An item has one part for each of its rows.
    pub(super) first_part: List,
    /// Position of each item's first token.
    pub(super) starts: List,
    pub(super) row_first: List,
    pub(super) row_parts: List,
    /// Ranges of cache slots of the items' tokens: two words per range, first and end slot.
    pub(super) ranges: List,
}

/// Draws of tokens: the uniform random number of each draw as two words; and each row's first draw, then the total.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DrawLists {
    pub(super) uniforms: List,
    pub(super) first: List,
}

impl DrawLists {
    /// Appends the draws of `rows` rows, padded to `row_bucket` rows and `draw_bucket` draws.
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
    /// Builds and transfers the lists of a decoding step and its draws.
    pub(super) fn upload_step(
        &mut self,
        stream: &Stream,
        step: &Step,
        changes: &DecodeChanges,
        has_states: bool,
    ) -> (Bucket, Items, DrawLists) {
        let mut collected = Collected { parts_of_row: vec![Vec::new(); step.rows()], ..Collected::default() };
        for (rows, slots) in step.blocks(ITEM_KEYS) {
            // All earlier blocks of the path are full.
            let start = collected.parts_of_row[rows.start].len() * ITEM_KEYS;
            collected.push(slots.into_iter(), rows, start);
        }
        let bucket = Bucket {
            rows: bucket(step.rows()),
            items: bucket(collected.items.len()),
            // Only memory addresses depend on the number of parts.
            parts: collected.parts.next_power_of_two(),
            draws: bucket(changes.draws.len()),
        };
        let (tokens, sampled): (&[u32], &[u32]) = match &changes.tokens {
            StepTokens::Known(tokens) => (tokens, &[]),
            StepTokens::Sampled(draws) => (&[], draws),
        };
        let words = &mut self.words;
        words.clear();
        self.tokens = words.put_padded(tokens.iter().copied(), bucket.rows, 0);
        self.positions = words.put_padded(step.positions.iter().copied(), bucket.rows, 0);
        self.all = Plan { positions: self.positions, ..Plan::default() };
        self.slots = words.put_padded(step.slots.iter().copied(), bucket.rows, NO_ROW);
        let draws = DrawLists::put(words, &changes.draws, step.rows(), bucket.rows, bucket.draws);
        self.paths =
            if has_states { Paths::put_step(words, &step.states, bucket.rows) } else { Paths::default() };
        let items = collected.put(words, bucket.items, bucket.rows, bucket.parts);
        self.sampled = words.put(sampled.iter().copied());
        words.upload(stream);
        (bucket, items, draws)
    }

    /// Builds and transfers the lists of the draws for the first tokens of completions.
    pub(super) fn upload_draws(&mut self, stream: &Stream, rows: usize, draws: &[Draw]) -> DrawLists {
        self.words.clear();
        let lists = DrawLists::put(&mut self.words, draws, rows, rows, draws.len());
        self.words.upload(stream);
        lists
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_large_enough_and_at_most_an_eighth_larger_beyond_64() {
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
    fn a_piece_is_listed_in_every_tile_that_it_reaches_and_pieces_keep_their_order() {
        let mut words = Words::default();
        let pieces = [[0, 130, 0, 130 | CAUSAL], [0, 130, 130, 200], [130, 200, 130, 200 | CAUSAL]];
        let tiles = tiles(&mut words, &pieces, 200, |piece| (piece[2], piece[3] & !CAUSAL));
        assert_eq!(words.host(tiles.first), [0, 1, 2, 5, 7]);
        let list = words.host(tiles.pieces).as_chunks::<4>().0;
        assert_eq!(list[2..5], pieces, "the tile of queries 128 to 191");
        assert_eq!(list[5..], pieces[1..]);
        assert!(tiles.pieces.first.is_multiple_of(4));
    }
}
