//! Attention of decoding on tensor cores: items of every length, and what a pair of a row and a query head must not depend on.

use super::*;

const KERNELS: [(&str, usize); 2] = [("decode_parts_mma_bf16_64", 64), ("decode_parts_mma_bf16_128", 128)];

/// One item per row, whose tokens are in these ranges of slots. The cache has all of them already.
fn rows_of(ranges: &[&[[u32; 2]]]) -> Step {
    let count = ranges.len() as u32;
    let mut first = 0;
    let item = |(row, ranges): (u32, &&[[u32; 2]])| {
        first += ranges.len() as u32;
        [first - ranges.len() as u32, first, row, row + 1]
    };
    Step {
        items: (0..).zip(ranges).map(item).collect(),
        ranges: ranges.concat(),
        place: (0..count).collect(),
        starts: vec![0; ranges.len()],
        row_first: (0..=count).collect(),
        row_parts: (0..count).collect(),
        positions: ranges
            .iter()
            .map(|ranges| ranges.iter().map(|[from, to]| to - from).sum::<u32>() - 1)
            .collect(),
        slots: vec![u32::MAX; ranges.len()],
    }
}

/// The heads of rows of attention, whose queries are `q`: no norm, no rotation.
fn attend(step: &Step, s: &Sizes, kernel: &'static str, q: &[u16], cache: &[u16]) -> Vec<u16> {
    let (row, own) = (s.heads * s.size, 2 * s.key_heads * s.size);
    let projections = q.chunks(row).flat_map(|q| q.iter().copied().chain(std::iter::repeat_n(0, own)));
    let rows = Rows {
        qkv: projections.collect(),
        q_norm: vec![0; s.size],
        k_norm: vec![0; s.size],
        normed: false,
        rotary: 0,
        angles: vec![0.0],
    };
    decode(step, s, kernel, "decode_merge_bf16", &rows, cache).0
}

#[test]
fn items_of_every_length_are_attention_by_definition() {
    let (kernel, size) = KERNELS[0];
    let s = Sizes { heads: 4, key_heads: 1, size };
    let ranges: Vec<[[u32; 2]; 1]> = (1..=256).map(|len| [[3, 3 + len]]).collect();
    let step = rows_of(&ranges.iter().map(|ranges| &ranges[..]).collect::<Vec<_>>());
    let (q, cache) = (to_bf16(&numbers(100, 256 * 4 * size)), to_bf16(&numbers(101, 259 * 2 * size)));
    let out = attend(&step, &s, kernel, &q, &cache);
    let laid = seeing(259, (1..=256).map(|len| (3..3 + len).collect()).collect());
    let (wanted, _) = reference(&laid, &s, &wide(&from_bf16(&q)), &wide(&from_bf16(&cache)));
    close(&from_bf16(&out), &wanted, 6e-3, kernel);
}

#[test]
fn a_pair_depends_neither_on_its_place_among_pairs_nor_on_the_others() {
    for (kernel, size) in KERNELS {
        let cache = to_bf16(&numbers(111, 150 * 2 * size));
        let one = to_bf16(&numbers(110, size));
        let out = |group: usize, rows: usize, place: usize| {
            let s = Sizes { heads: group, key_heads: 1, size };
            let mut q = to_bf16(&numbers(112 + place as u64, rows * group * size));
            q[place * size..][..size].copy_from_slice(&one);
            // All rows see one item.
            let mut step = rows_of(&vec![&[[5, 140]][..]; rows]);
            step.items = vec![[0, 1, 0, rows as u32]];
            (step.place, step.starts) = (vec![0], vec![0]);
            attend(&step, &s, kernel, &q, &cache)[place * size..][..size].to_vec()
        };
        let wanted = out(4, 1, 0);
        for (group, rows, place) in
            [(1, 1, 0), (4, 1, 3), (7, 1, 6), (8, 1, 4), (4, 3, 1), (7, 2, 9), (4, 5, 19), (20, 1, 16)]
        {
            assert_eq!(
                out(group, rows, place),
                wanted,
                "{kernel}: pair {place} of {rows} rows with {group} heads"
            );
        }
    }
}

#[test]
fn an_item_depends_on_its_tokens_and_not_on_where_they_lie() {
    for (kernel, size) in KERNELS {
        let s = Sizes { heads: 7, key_heads: 1, size };
        let (q, width) = (to_bf16(&numbers(120, 7 * size)), 2 * size);
        let cache = to_bf16(&numbers(121, 200 * width));
        let whole = attend(&rows_of(&[&[[10, 200]]]), &s, kernel, &q, &cache);
        // The same 190 tokens in four pages, in another order.
        let pages = [[30, 100], [29, 30], [150, 220], [230, 279]];
        let mut paged = vec![0; 280 * width];
        let mut next = 10 * width;
        for [from, to] in pages.map(|page| page.map(|slot| slot as usize * width)) {
            paged[from..to].copy_from_slice(&cache[next..][..to - from]);
            next += to - from;
        }
        assert_eq!(attend(&rows_of(&[&pages]), &s, kernel, &q, &paged), whole, "{kernel}");
    }
}
