//! Attention over a forest: forward, backward, on tensor cores, and in decoding.

mod decoding_mma;
mod tensor_cores;

use super::*;

const CAUSAL: u32 = 1 << 31;

/// A prompt with two continuations, one of which has two continuations, and a second tree: (parent, length).
const FOREST: [(Option<usize>, usize); 6] =
    [(None, 70), (Some(0), 9), (Some(1), 5), (Some(1), 30), (Some(0), 40), (None, 12)];

/// A forest in the form that the kernels take. Some of its rows are queries, all are keys.
struct Laid {
    keys: usize,
    /// The row of each query, ascending.
    rows: Vec<u32>,
    /// The position of each row.
    positions: Vec<u32>,
    /// Number of the latest keys of its path that a query sees.
    window: u32,
    /// (first key, last key, first query, last query, causal), ordered by ancestor.
    pieces: Vec<[u32; 4]>,
    /// The keys of each query.
    seen: Vec<Vec<usize>>,
}

/// All keys.
const NO_WINDOW: u32 = u32::MAX;

/// Segments are in depth-first order. A row is a query if `asks` returns true.
fn lay_out(forest: &[(Option<usize>, usize)], window: u32, asks: impl Fn(usize) -> bool) -> Laid {
    let mut first = Vec::new();
    let mut keys = 0;
    for (_, len) in forest {
        first.push(keys);
        keys += len;
    }
    let depth = |mut s: usize| {
        let mut d = 0;
        while let Some(parent) = forest[s].0 {
            d += 1;
            s = parent;
        }
        d
    };
    let rows: Vec<u32> = (0..keys).filter(|&row| asks(row)).map(|row| row as u32).collect();
    let query = |row: usize| rows.partition_point(|&other| (other as usize) < row);
    let (mut pieces, mut seen) = (Vec::new(), vec![Vec::new(); rows.len()]);
    for s in 0..forest.len() {
        let own = first[s]..first[s] + forest[s].1;
        let end = (s + 1..forest.len()).find(|&o| depth(o) <= depth(s)).map_or(keys, |o| first[o]);
        let (from, to, after) = (query(own.start), query(own.end), query(end));
        for (from, to, causal) in [(from, to, CAUSAL), (to, after, 0)] {
            if from < to {
                pieces.push([own.start as u32, own.end as u32, from as u32, to as u32 | causal]);
            }
        }
        for q in from..to {
            seen[q].extend(own.start..=rows[q] as usize);
        }
        for below in &mut seen[to..after] {
            below.extend(own.clone());
        }
    }
    let before = |s: usize| -> usize {
        std::iter::successors(forest[s].0, |&above| forest[above].0).map(|above| forest[above].1).sum()
    };
    let positions = (0..forest.len()).flat_map(|s| (before(s)..before(s) + forest[s].1).map(|p| p as u32));
    let latest = |seen: &Vec<usize>| seen[seen.len().saturating_sub(window as usize)..].to_vec();
    Laid {
        keys,
        rows,
        positions: positions.collect(),
        window,
        pieces,
        seen: seen.iter().map(latest).collect(),
    }
}

/// The pieces of each tile of 64 queries (or keys), in their order.
fn tiles(laid: &Laid, by_keys: bool) -> (Vec<u32>, Vec<[u32; 4]>) {
    let (mut first, mut list) = (vec![0], Vec::new());
    let count = if by_keys { laid.keys } else { laid.rows.len() };
    for tile in 0..count.div_ceil(64) as u32 {
        let (from, to) = (tile * 64, tile * 64 + 64);
        for piece in &laid.pieces {
            let (a, b) = if by_keys { (piece[0], piece[1]) } else { (piece[2], piece[3] & !CAUSAL) };
            if a < to && b > from {
                list.push(*piece);
            }
        }
        first.push(list.len() as u32);
    }
    (first, list)
}

/// The queries that see these keys.
fn seeing(keys: usize, seen: Vec<Vec<usize>>) -> Laid {
    let queries = seen.len();
    Laid { seen, ..lay_out(&[(None, keys)], NO_WINDOW, |row| row < queries) }
}

struct Sizes {
    heads: usize,
    key_heads: usize,
    size: usize,
}

impl Sizes {
    fn scale(&self) -> f64 {
        1.0 / (self.size as f64).sqrt()
    }

    /// Number of values in q of all queries, and in the keys and values of all rows.
    fn lengths(&self, laid: &Laid) -> [usize; 2] {
        [laid.rows.len() * self.heads * self.size, laid.keys * 2 * self.key_heads * self.size]
    }

    /// Positions at which q, k and v of a (query, key, head) begin.
    fn places(&self, query: usize, key: usize, head: usize) -> [usize; 3] {
        let key_head = head / (self.heads / self.key_heads);
        let k = (key * 2 * self.key_heads + key_head) * self.size;
        [(query * self.heads + head) * self.size, k, k + self.key_heads * self.size]
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// (out, lse) of every query by definition.
fn reference(laid: &Laid, s: &Sizes, q: &[f64], kv: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let (mut out, mut lse) = (Vec::new(), Vec::new());
    for (query, seen) in laid.seen.iter().enumerate() {
        for head in 0..s.heads {
            let weight = |key: usize| {
                let [q_at, k, _] = s.places(query, key, head);
                (dot(&q[q_at..][..s.size], &kv[k..]) * s.scale()).exp()
            };
            let weights: Vec<f64> = seen.iter().map(|&key| weight(key)).collect();
            let total: f64 = weights.iter().sum();
            lse.push(total.ln());
            for e in 0..s.size {
                let value = |key: usize| kv[s.places(query, key, head)[2] + e];
                out.push(seen.iter().zip(&weights).map(|(&key, w)| w / total * value(key)).sum());
            }
        }
    }
    (out, lse)
}

#[test]
fn attention_and_its_derivatives_are_by_definition() {
    [NO_WINDOW, 33, 1].into_iter().for_each(attention_with_a_window_is_by_definition);
}

fn attention_with_a_window_is_by_definition(window: u32) {
    let laid = lay_out(&FOREST, window, |_| true);
    let tokens = laid.keys;
    let s = Sizes { heads: 4, key_heads: 2, size: 20 };
    let (q, kv) = (numbers(40, tokens * 4 * 20), numbers(41, tokens * 4 * 20));
    let dout = numbers(42, tokens * 4 * 20);
    let (by_query, by_key) = (tiles(&laid, false), tiles(&laid, true));
    let scale = 1.0 / 20f32.sqrt();
    let (out, lse, dq, dkv) = in_every_order(|d| {
        let (rows, positions) = (memory(d, &laid.rows), memory(d, &laid.positions));
        let (places, window) = (Argument::from(&positions), Argument::from(window));
        let [mq, mkv, mdout] = [&q, &kv, &dout].map(|v| memory(d, v));
        let [first_q, first_k] = [&by_query.0, &by_key.0].map(|v| memory(d, v));
        let [pieces_q, pieces_k] = [&by_query.1, &by_key.1].map(|v| memory(d, v));
        let (out, lse) =
            (Memory::<f32>::new(d, q.len()).unwrap(), Memory::<f32>::new(d, tokens * 4).unwrap());
        let delta = Memory::<f32>::new(d, tokens * 4).unwrap();
        let (dq, dkv) = (Memory::<f32>::new(d, q.len()).unwrap(), Memory::<f32>::new(d, kv.len()).unwrap());
        let sizes: [Argument; 5] =
            [4u32.into(), 2u32.into(), 20u32.into(), (tokens as u32).into(), scale.into()];
        let shape = Shape::of((tokens * 4).div_ceil(4), 128, 0);
        let [q, kv] = [&mq, &mkv].map(Argument::from);
        let plan = [(&rows).into(), (&first_q).into(), (&pieces_q).into(), places, window, q, kv];
        launch(d, "attention_f32", shape, &[&plan[..], &[(&out).into(), (&lse).into()], &sizes].concat());
        let count = Argument::U32((tokens * 4) as u32);
        launch(
            d,
            "attention_delta_f32",
            shape,
            &[(&out).into(), (&mdout).into(), (&delta).into(), 20u32.into(), count],
        );
        let saved: [Argument; 3] = [(&lse).into(), (&delta).into(), (&mdout).into()];
        launch(d, "attention_dq_f32", shape, &[&plan[..], &saved, &[(&dq).into()], &sizes].concat());
        let plan = [(&rows).into(), (&first_k).into(), (&pieces_k).into(), places, window, q, kv];
        let shape = Shape::of((tokens * 2).div_ceil(4), 128, 0);
        launch(d, "attention_dkv_f32", shape, &[&plan[..], &saved, &[(&dkv).into()], &sizes].concat());
        (out.read().unwrap(), lse.read().unwrap(), dq.read().unwrap(), dkv.read().unwrap())
    });
    let (wanted, wanted_lse) = reference(&laid, &s, &wide(&q), &wide(&kv));
    close(&out, &wanted, 1e-5, "out");
    close(&lse, &wanted_lse, 1e-5, "lse");
    // Derivatives by central differences, at some positions.
    let up = wide(&dout);
    let loss = |q: &[f64], kv: &[f64]| {
        reference(&laid, &s, q, kv).0.iter().zip(&up).map(|(o, d)| o * d).sum::<f64>()
    };
    let shifted = |x: &[f32], i: usize, by: f64| {
        let mut x = wide(x);
        x[i] += by;
        x
    };
    for i in (0..q.len()).step_by(4001) {
        let wanted =
            (loss(&shifted(&q, i, 1e-4), &wide(&kv)) - loss(&shifted(&q, i, -1e-4), &wide(&kv))) / 2e-4;
        close(&[dq[i]], &[wanted], 1e-4, "dq");
        let wanted =
            (loss(&wide(&q), &shifted(&kv, i, 1e-4)) - loss(&wide(&q), &shifted(&kv, i, -1e-4))) / 2e-4;
        close(&[dkv[i]], &[wanted], 1e-4, "dkv");
    }
}

/// The work of a decoding step: items, the ranges of slots that they name, the positions of their parts, and for each row its parts, and the position and
/// slot of its newest token.
struct Step {
    items: Vec<[u32; 4]>,
    ranges: Vec<[u32; 2]>,
    place: Vec<u32>,
    /// The position of each item's first token.
    starts: Vec<u32>,
    row_first: Vec<u32>,
    row_parts: Vec<u32>,
    positions: Vec<u32>,
    slots: Vec<u32>,
}

/// Slots of the cache, and the ranges of `Step::items`. One page of row 1's 290 tokens is at another position.
const SLOTS: usize = 700;
const RANGES: [[u32; 2]; 7] =
    [[0, 256], [256, 300], [300, 305], [310, 400], [416, 582], [582, 616], [650, 660]];

/// Three rows. The first two share 300 slots and then have 5 and 290 separate ones; the third has 10. Items are cut at every 256th token: (first range, last range,
/// first row, last row). The last two items and the fourth row are padding of a bucket.
fn three_rows() -> Step {
    Step {
        items: vec![
            [0, 1, 0, 2],
            [1, 2, 0, 2],
            [2, 3, 0, 1],
            [3, 5, 1, 2],
            [5, 6, 1, 2],
            [6, 7, 2, 3],
            [0, 0, 0, 0],
            [0, 0, 0, 0],
        ],
        ranges: RANGES.to_vec(),
        place: vec![0, 2, 4, 5, 6, 7, 0, 0],
        starts: vec![0, 256, 300, 300, 556, 0, 0, 0],
        row_first: vec![0, 3, 7, 8, 8],
        row_parts: vec![0, 2, 4, 1, 3, 5, 6, 7],
        positions: POSITIONS.to_vec(),
        slots: OWN.to_vec(),
    }
}

/// Only row 1.
fn second_row() -> Step {
    Step {
        items: vec![[0, 1, 1, 2], [1, 2, 1, 2], [3, 5, 1, 2], [5, 6, 1, 2]],
        place: vec![0, 1, 2, 3],
        starts: vec![0, 256, 300, 556],
        row_first: vec![0, 0, 4, 4, 4],
        row_parts: vec![0, 1, 2, 3],
        ..three_rows()
    }
}

/// The slots of the rows' newest tokens, of which only the projections exist, and the rows' positions. Row 3 is padding of a bucket.
const OWN: [u32; 4] = [304, 615, 659, u32::MAX];
const POSITIONS: [u32; 4] = [304, 589, 9, 0];

/// Rows of a step before attention: projections, norms of heads, and the table of angles.
struct Rows<T> {
    qkv: Vec<T>,
    q_norm: Vec<T>,
    k_norm: Vec<T>,
    normed: bool,
    /// The values of a head that are rotated, by these angles.
    rotary: usize,
    angles: Vec<f32>,
}

const EPS: f32 = 1e-5;
/// Offset that is added to the weights of norms.
const OFFSET: f32 = 0.25;

impl Rows<f32> {
    /// The final value of head `from` of row `row`, with `round` applied after each operation.
    fn place(&self, row: usize, from: &[f32], norm: &[f32], round: &dyn Fn(f32) -> f32) -> Vec<f32> {
        let size = from.len();
        let squares: f64 = from.iter().map(|&v| f64::from(v).powi(2)).sum();
        let scale = 1.0 / (squares / size as f64 + f64::from(EPS)).sqrt();
        let normed = |(v, w): (&f32, &f32)| {
            if self.normed { round((f64::from(*v) * scale * f64::from(*w + OFFSET)) as f32) } else { *v }
        };
        let head: Vec<f32> = from.iter().zip(norm).map(normed).collect();
        let (turned, half) = (self.rotary, self.rotary / 2);
        let (cos, sin) = self.angles[POSITIONS[row] as usize * turned..][..turned].split_at(half);
        let turned = |i: usize| {
            if i >= 2 * half {
                return head[i];
            }
            let pair = i % half;
            let (c, s) = (cos[pair], sin[pair]);
            round(if i < half { head[i] * c - head[i + half] * s } else { head[i] * c + head[pair] * s })
        };
        (0..size).map(turned).collect()
    }

    /// The queries of three rows, and the cache with the keys and values of these rows.
    fn placed(&self, s: &Sizes, cache: &[f32], round: &dyn Fn(f32) -> f32) -> (Vec<f32>, Vec<f32>) {
        let (mut q, mut cache) = (Vec::new(), cache.to_vec());
        let (keys, width) = (s.key_heads * s.size, (s.heads + 2 * s.key_heads) * s.size);
        for row in 0..3 {
            let (queries, kv) = self.qkv[row * width..][..width].split_at(s.heads * s.size);
            for head in queries.chunks(s.size) {
                q.extend(self.place(row, head, &self.q_norm, round));
            }
            let slot = &mut cache[OWN[row] as usize * 2 * keys..][..2 * keys];
            for (from, to) in kv[..keys].chunks(s.size).zip(slot.chunks_mut(s.size)) {
                to.copy_from_slice(&self.place(row, from, &self.k_norm, round));
            }
            slot[keys..].copy_from_slice(&kv[keys..]);
        }
        (q, cache)
    }

    fn in_16_bits(&self) -> Rows<u16> {
        let [qkv, q_norm, k_norm] = [&self.qkv, &self.q_norm, &self.k_norm].map(|v| to_bf16(v));
        Rows { qkv, q_norm, k_norm, normed: self.normed, rotary: self.rotary, angles: self.angles.clone() }
    }
}

/// Bytes of shared memory of a block that computes parts.
fn shared(parts: &str, size: usize) -> u32 {
    let words = match parts.contains("mma") {
        true => 256 + 4 * 264 + 8 * 8 + 9 * (size + 4),
        false => 4 * 2 * (size + 2) + 3 * size,
    };
    4 * words as u32
}

/// Attention of the step's rows by the kernels for this head size and number type, in every order of threads, and the cache after it.
fn decode<T: Copy + Default + PartialEq + std::fmt::Debug>(
    step: &Step,
    s: &Sizes,
    parts: &'static str,
    merge: &'static str,
    rows: &Rows<T>,
    cache: &[T],
) -> (Vec<T>, Vec<T>) {
    let Sizes { heads, key_heads, size } = *s;
    in_every_order(|d| {
        let (items, ranges) = (memory(d, &step.items), memory(d, &step.ranges));
        let [place, positions, starts, slots] =
            [&step.place, &step.positions, &step.starts, &step.slots].map(|v| memory(d, v));
        let angles = memory(d, &rows.angles);
        let [q_norm, k_norm, qkv, cache] =
            [&rows.q_norm, &rows.k_norm, &rows.qkv, cache].map(|v| memory(d, v));
        let between = Memory::<f32>::new(d, step.row_parts.len() * heads * (size + 2)).unwrap();
        let count = step.positions.len();
        let out = Memory::<T>::new(d, count * heads * size).unwrap();
        let sizes: [Argument; 3] = [(heads as u32).into(), (key_heads as u32).into(), (size as u32).into()];
        let grid = [step.items.len() as u32, key_heads as u32, 1];
        let shape = Shape { grid, threads: 128, shared: shared(parts, size) };
        let before: [Argument; 17] = [
            (&items).into(),
            (&place).into(),
            (&ranges).into(),
            (&positions).into(),
            (&starts).into(),
            NO_WINDOW.into(),
            (&slots).into(),
            (&angles).into(),
            (rows.rotary as u32).into(),
            (&q_norm).into(),
            (&k_norm).into(),
            u32::from(rows.normed).into(),
            OFFSET.into(),
            EPS.into(),
            (&qkv).into(),
            (&cache).into(),
            (&between).into(),
        ];
        let scale = Argument::F32(s.scale() as f32);
        launch(d, parts, shape, &[&before[..], &sizes, &[scale]].concat());
        let (first, list) = (memory(d, &step.row_first), memory(d, &step.row_parts));
        let arguments = [
            (&first).into(),
            (&list).into(),
            (&positions).into(),
            NO_WINDOW.into(),
            (&between).into(),
            (&out).into(),
            (&between).into(),
            0u32.into(),
            sizes[0],
            sizes[2],
            (count as u32).into(),
        ];
        launch(d, merge, Shape::of(count * heads, 32, 0), &arguments);
        (out.read().unwrap(), cache.read().unwrap())
    })
}

/// Kernels for f32 and bf16, with head sizes that they support, and the number of query heads per key head: mostly odd, so that the number of pairs of row and head is odd.
const DECODE_PARTS: [(&str, &str, &[[usize; 2]]); 6] = [
    ("decode_parts_8_f32", "decode_parts_8_bf16", &[[8, 3], [24, 3], [64, 3]]),
    ("decode_parts_16_f32", "decode_parts_16_bf16", &[[80, 3], [128, 3]]),
    ("decode_parts_32_f32", "decode_parts_32_bf16", &[[192, 3], [256, 3]]),
    ("decode_parts_f32", "decode_parts_bf16", &[[20, 3], [250, 3]]),
    ("decode_parts_8_f32", "decode_parts_mma_bf16_64", &[[64, 7], [64, 8]]),
    ("decode_parts_16_f32", "decode_parts_mma_bf16_128", &[[128, 4], [128, 7], [128, 11]]),
];

#[test]
fn decoding_in_parts_of_a_tree_equals_attention_over_all_keys_and_stores_the_rows_own() {
    let seen: [Vec<usize>; 3] = [
        (0..300).chain(300..305).collect(),
        (0..300).chain(310..400).chain(416..616).collect(),
        (650..660).collect(),
    ];
    let laid = seeing(SLOTS, seen.to_vec());
    let in_16_bits = |values: &[f32]| from_bf16(&to_bf16(values));
    for (f32_kernel, bf16_kernel, sizes) in DECODE_PARTS {
        for (index, &[size, group]) in sizes.iter().enumerate() {
            let s = Sizes { heads: 2 * group, key_heads: 2, size };
            let weights = |seed| numbers(seed, size).iter().map(|v| 1.0 + 0.5 * v).collect::<Vec<f32>>();
            let rotary = if index % 2 == 0 { size } else { size / 4 * 2 };
            let angle = |i: usize| (i / rotary % 7) as f32 * 0.3 / (1.0 + (i % (rotary / 2)) as f32);
            let turn = |i: usize| if i % rotary < rotary / 2 { angle(i).cos() } else { angle(i).sin() };
            let rows = Rows {
                qkv: in_16_bits(&numbers(45, 4 * (s.heads + 2 * s.key_heads) * size)),
                q_norm: in_16_bits(&weights(47)),
                k_norm: in_16_bits(&weights(48)),
                normed: index % 2 == 0,
                rotary,
                angles: (0..590 * rotary).map(turn).collect(),
            };
            let row = s.heads * size;
            let width = 2 * s.key_heads * size;
            let mut cache = in_16_bits(&numbers(46, SLOTS * width));
            for own in &OWN[..3] {
                cache[*own as usize * width..][..width].fill(1e3);
            }
            let (q, stored) = rows.placed(&s, &cache, &|v| v);
            let (wanted, _) = reference(&laid, &s, &wide(&q), &wide(&stored));
            let (out, after) = decode(&three_rows(), &s, f32_kernel, "decode_merge_f32", &rows, &cache);
            close(&out[..3 * row], &wanted, 2e-5, f32_kernel);
            close(&after, &wide(&stored), 1e-5, "keys and values");
            assert!(out[3 * row..].iter().all(|&v| v == 0.0));
            let (alone, _) = decode(&second_row(), &s, f32_kernel, "decode_merge_f32", &rows, &cache);
            assert_eq!(alone[row..2 * row], out[row..2 * row], "{f32_kernel}: a row depends on the others");
            let (q, stored) = rows.placed(&s, &cache, &|v| in_16_bits(&[v])[0]);
            let (wanted, _) = reference(&laid, &s, &wide(&q), &wide(&stored));
            let (rows, cache) = (rows.in_16_bits(), to_bf16(&cache));
            let (out, after) = decode(&three_rows(), &s, bf16_kernel, "decode_merge_bf16", &rows, &cache);
            close(&from_bf16(&out[..3 * row]), &wanted, 8e-3, bf16_kernel);
            close(&from_bf16(&after), &wide(&stored), 8e-3, "keys and values");
            let (alone, _) = decode(&second_row(), &s, bf16_kernel, "decode_merge_bf16", &rows, &cache);
            assert_eq!(alone[row..2 * row], out[row..2 * row], "{bf16_kernel}: a row depends on the others");
        }
    }
}

/// Attention of a pass by decoding's kernels, and log Σ exp, in every order of threads. The rows are those of one path, whose tokens are in two ranges of rows of keys.
fn pass<T: Copy + Default + PartialEq + std::fmt::Debug>(
    s: &Sizes,
    parts: &'static str,
    merge: &'static str,
    (positions, window): (&[u32], u32),
    (q, kv): (&[T], &[T]),
) -> (Vec<T>, Vec<f32>) {
    let Sizes { heads, key_heads, size } = *s;
    in_every_order(|d| {
        let items = memory(d, &[[0u32, 2, 0, 5], [2, 3, 3, 5]]);
        let (place, starts) = (memory(d, &[0u32, 5]), memory(d, &[0u32, 256]));
        let ranges = memory(d, &PASS_RANGES.map(|[first, last]| [first as u32, last as u32]));
        let (positions, q, kv) = (memory(d, positions), memory(d, q), memory(d, kv));
        let between = Memory::<f32>::new(d, 7 * heads * (size + 2)).unwrap();
        let (out, lse) =
            (Memory::<T>::new(d, 5 * heads * size).unwrap(), Memory::<f32>::new(d, 5 * heads).unwrap());
        let [h, k, e] = [heads, key_heads, size].map(|n| Argument::U32(n as u32));
        let shape = Shape { grid: [2, key_heads as u32, 1], threads: 128, shared: shared(parts, size) };
        let before: [Argument; 9] = [
            (&items).into(),
            (&place).into(),
            (&ranges).into(),
            (&positions).into(),
            (&starts).into(),
            window.into(),
            (&q).into(),
            (&kv).into(),
            (&between).into(),
        ];
        launch(d, parts, shape, &[&before[..], &[h, k, e, Argument::F32(s.scale() as f32)]].concat());
        let (first, list) = (memory(d, &[0u32, 1, 2, 3, 5, 7]), memory(d, &[0u32, 1, 2, 3, 5, 4, 6]));
        let arguments: [Argument; 11] = [
            (&first).into(),
            (&list).into(),
            (&positions).into(),
            window.into(),
            (&between).into(),
            (&out).into(),
            (&lse).into(),
            1u32.into(),
            h,
            e,
            5u32.into(),
        ];
        launch(d, merge, Shape::of((5 * heads).div_ceil(4), 128, 0), &arguments);
        (out.read().unwrap(), lse.read().unwrap())
    })
}

/// The rows of keys of a path: 256 of its tokens in two ranges, and the others.
const PASS_RANGES: [[usize; 2]; 3] = [[10, 200], [300, 366], [366, 400]];

#[test]
fn a_pass_by_decodings_kernels_equals_attention_over_the_keys_up_to_each_row() {
    let positions = [3u32, 200, 255, 256, 289];
    let path: Vec<usize> = PASS_RANGES.iter().flat_map(|&[first, last]| first..last).collect();
    let windows =
        PASS_PARTS.into_iter().flat_map(|kernels| [NO_WINDOW, 100, 7].map(|window| (kernels, window)));
    for ((f32_kernel, bf16_kernel, sizes), window) in windows {
        let latest = |position: u32| (position + 1).saturating_sub(window) as usize..=position as usize;
        let laid = seeing(400, positions.map(|position| path[latest(position)].to_vec()).to_vec());
        let positions = (&positions[..], window);
        let s = Sizes { heads: 6, key_heads: 2, size: sizes };
        let lengths = s.lengths(&laid);
        let [q, kv] = [0, 1].map(|i| from_bf16(&to_bf16(&numbers(60 + i as u64, lengths[i]))));
        let (wanted, wanted_lse) = reference(&laid, &s, &wide(&q), &wide(&kv));
        let (out, lse) = pass(&s, f32_kernel, "decode_merge_f32", positions, (&q, &kv));
        close(&out, &wanted, 2e-5, f32_kernel);
        close(&lse, &wanted_lse, 1e-5, f32_kernel);
        let halves = (&to_bf16(&q)[..], &to_bf16(&kv)[..]);
        let (out, lse) = pass(&s, bf16_kernel, "decode_merge_bf16", positions, halves);
        close(&from_bf16(&out), &wanted, 8e-3, bf16_kernel);
        close(&lse, &wanted_lse, 1e-5, bf16_kernel);
    }
}

/// A kernel for each number of values per lane, with a head size that it supports.
const PASS_PARTS: [(&str, &str, usize); 6] = [
    ("attention_parts_8_f32", "attention_parts_8_bf16", 24),
    ("attention_parts_16_f32", "attention_parts_16_bf16", 80),
    ("attention_parts_32_f32", "attention_parts_32_bf16", 256),
    ("attention_parts_f32", "attention_parts_bf16", 20),
    ("attention_parts_8_f32", "attention_parts_mma_bf16_64", 64),
    ("attention_parts_16_f32", "attention_parts_mma_bf16_128", 128),
];
