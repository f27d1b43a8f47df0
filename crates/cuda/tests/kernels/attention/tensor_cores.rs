//! Attention on tensor cores, forward and backward, over random forests, compared with its definition and the plain kernels.

use super::*;

/// Trees in depth-first order. Segments have 1 to `longest` tokens, and some of the rows are queries.
fn random_forest(seed: u64, longest: usize, window: u32, queries: f32) -> Laid {
    let mut drawn = numbers(seed, 2000).into_iter().map(|v| (v + 1.0) / 2.0);
    let mut below = |n: usize| (drawn.next().expect("enough of them") * n as f32) as usize;
    let (mut forest, mut path): (Vec<(Option<usize>, usize)>, Vec<usize>) = Default::default();
    for segment in 0..7 {
        // Back to an ancestor, or to the root level for a new tree.
        path.truncate(path.len().saturating_sub(below(3)));
        forest.push((path.last().copied(), 1 + below(longest)));
        path.push(segment);
    }
    let asks = numbers(seed + 1, forest.iter().map(|(_, len)| len).sum());
    lay_out(&forest, window, |row| (asks[row] + 1.0) / 2.0 < queries)
}

/// The results of kernels of one kind.
#[derive(Debug, PartialEq)]
struct Found {
    out: Vec<u16>,
    lse: Vec<f32>,
    dq: Vec<u16>,
    dkv: Vec<u16>,
}

/// (dq, dkv) by definition.
fn derivatives(laid: &Laid, s: &Sizes, q: &[f64], kv: &[f64], dout: &[f64]) -> [Vec<f64>; 2] {
    let (out, lse) = reference(laid, s, q, kv);
    let (mut dq, mut dkv) = (vec![0.0; q.len()], vec![0.0; kv.len()]);
    for (query, seen) in laid.seen.iter().enumerate() {
        for head in 0..s.heads {
            for &key in seen {
                let [at, k, v] = s.places(query, key, head);
                let (up, size) = (&dout[at..][..s.size], s.size);
                let p = (dot(&q[at..][..size], &kv[k..]) * s.scale() - lse[query * s.heads + head]).exp();
                let ds = p * (dot(up, &kv[v..]) - dot(up, &out[at..])) * s.scale();
                for e in 0..size {
                    dq[at + e] += ds * kv[k + e];
                    dkv[k + e] += ds * q[at + e];
                    dkv[v + e] += p * up[e];
                }
            }
        }
    }
    [dq, dkv]
}

/// Runs forward and backward. `tensor_cores` selects these kernels for forward, for dq, and for dkv; the others are the plain ones.
fn run(
    d: &Arc<dyn Driver>,
    laid: &Laid,
    s: &Sizes,
    [q, kv, dout]: [&[u16]; 3],
    tensor_cores: Option<[&'static str; 3]>,
) -> Found {
    let (queries, keys, plain) = (laid.rows.len(), laid.keys, tensor_cores.is_none());
    let [forward, for_dq, for_dkv] =
        tensor_cores.unwrap_or(["attention_bf16", "attention_dq_bf16", "attention_dkv_bf16"]);
    let [heads, key_heads, size] = [s.heads, s.key_heads, s.size].map(|n| n as u32);
    // Plain kernels have a warp for each row and head; the others have a block for each head and tile of 64 rows.
    let shape = |rows: usize, heads: usize, tiles: usize, more: usize| {
        if plain {
            return Shape::of((rows * heads).div_ceil(4), 128, 0);
        }
        let shared = (tiles * 64 * (s.size + 8) * 2 + more) as u32;
        Shape { grid: [rows.div_ceil(64) as u32, heads as u32, 1], threads: 128, shared }
    };
    let sizes = |count: usize| {
        let mut sizes = vec![Argument::U32(heads), Argument::U32(key_heads)];
        sizes.extend(plain.then_some(Argument::U32(size)));
        sizes.extend([Argument::U32(count as u32), Argument::F32(s.scale() as f32)]);
        sizes
    };
    let (rows, positions) = (memory(d, &laid.rows), memory(d, &laid.positions));
    let [by_query, by_key] = [false, true].map(|by_keys| {
        let (first, pieces) = tiles(laid, by_keys);
        (memory(d, &first), memory(d, &pieces))
    });
    let [mq, mkv, mdout] = [q, kv, dout].map(|v| memory(d, v));
    let [out, dq] = [0; 2].map(|_| Memory::<u16>::new(d, q.len()).unwrap());
    let [lse, delta] = [0; 2].map(|_| Memory::<f32>::new(d, queries * s.heads).unwrap());
    let dkv = Memory::<u16>::new(d, kv.len()).unwrap();
    let plan = |(first, pieces): &(Memory<u32>, Memory<[u32; 4]>)| -> Vec<Argument> {
        let (places, window) = ((&positions).into(), laid.window.into());
        vec![(&rows).into(), first.into(), pieces.into(), places, window, (&mq).into(), (&mkv).into()]
    };
    let results = [(&out).into(), (&lse).into()];
    let arguments = [plan(&by_query), results.to_vec(), sizes(queries)].concat();
    launch(d, forward, shape(queries, s.heads, 3, 0), &arguments);
    let count = queries * s.heads;
    let arguments = [(&out).into(), (&mdout).into(), (&delta).into(), size.into(), (count as u32).into()];
    launch(d, "attention_delta_bf16", Shape::of(count.div_ceil(4), 128, 0), &arguments);
    let saved = |to: &Memory<u16>| vec![(&lse).into(), (&delta).into(), (&mdout).into(), to.into()];
    let arguments = [plan(&by_query), saved(&dq), sizes(queries)].concat();
    launch(d, for_dq, shape(queries, s.heads, 4, 0), &arguments);
    let arguments = [plan(&by_key), saved(&dkv), sizes(keys)].concat();
    launch(d, for_dkv, shape(keys, s.key_heads, 4, 1024), &arguments);
    Found {
        out: out.read().unwrap(),
        lse: lse.read().unwrap(),
        dq: dq.read().unwrap(),
        dkv: dkv.read().unwrap(),
    }
}

/// Results in bf16 are off by a few roundings of 2^-9, in the mean and individually.
fn near(found: &[u16], wanted: &[f64], what: &str) {
    let found = wide(&from_bf16(found));
    assert_eq!(found.len(), wanted.len(), "{what}");
    let norm = dot(wanted, wanted).sqrt();
    let greatest = wanted.iter().fold(0.0f64, |most, w| most.max(w.abs()));
    let off: Vec<f64> = found.iter().zip(wanted).map(|(f, w)| f - w).collect();
    let whole = dot(&off, &off).sqrt() / norm;
    assert!(whole < 4e-3, "{what}: {whole:e} of its norm off");
    for (i, off) in off.iter().enumerate() {
        assert!(off.abs() < 1e-2 * greatest, "{what}[{i}]: found {}, wanted {}", found[i], wanted[i]);
    }
}

#[test]
fn tensor_cores_give_attention_and_its_derivatives_to_the_rounding_of_16_bits() {
    let of_64 = ["attention_bf16_64", "attention_dq_bf16_64", "attention_dkv_bf16_64"];
    let of_128 = ["attention_bf16_128", "attention_dq_bf16_128", "attention_dkv_bf16_128"];
    // Longest segment, window, fraction of rows that are queries.
    for (seed, heads, key_heads, kernels, longest, window, share) in [
        (50, 2, 2, of_64, 70, NO_WINDOW, 1.0),
        (60, 4, 1, of_64, 30, NO_WINDOW, 0.6),
        (70, 6, 2, of_64, 8, NO_WINDOW, 0.9),
        (80, 2, 1, of_128, 20, NO_WINDOW, 1.0),
        (90, 3, 1, of_128, 50, NO_WINDOW, 0.3),
        (55, 2, 1, of_64, 150, 40, 1.0),
        (65, 4, 2, of_64, 60, 90, 0.5),
        (75, 2, 1, of_128, 90, 2, 0.8),
    ] {
        let s = Sizes { heads, key_heads, size: if kernels == of_64 { 64 } else { 128 } };
        let laid = random_forest(seed, longest, window, share);
        let [queries, keys] = s.lengths(&laid);
        // Scores that are large enough for weights to differ.
        let draw = |seed: u64, count: usize, most: f32| {
            to_bf16(&numbers(seed, count).iter().map(|v| v * most).collect::<Vec<_>>())
        };
        let (q, kv, dout) =
            (draw(seed, queries, 3.0), draw(seed + 1, keys, 1.0), draw(seed + 2, queries, 1.0));
        let given = [&q[..], &kv, &dout];
        let found = in_every_order(|d| run(d, &laid, &s, given, Some(kernels)));
        let plain = run(&device(0), &laid, &s, given, None);
        let [q, kv, dout] = given.map(|v| wide(&from_bf16(v)));
        let (out, lse) = reference(&laid, &s, &q, &kv);
        let [dq, dkv] = derivatives(&laid, &s, &q, &kv, &dout);
        for (found, of) in [(&found, "tensor cores"), (&plain, "plain")] {
            let what =
                |name| format!("{of}, {heads} heads over {key_heads} of {}, window {window}: {name}", s.size);
            close(&found.lse, &lse, 1e-5, &what("lse"));
            near(&found.out, &out, &what("out"));
            near(&found.dq, &dq, &what("dq"));
            near(&found.dkv, &dkv, &what("dkv"));
        }
    }
}
