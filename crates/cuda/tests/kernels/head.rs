//! Log-probabilities, entropies, their derivatives, and sampling of tokens.

use super::*;

/// Shared memory of a block that samples.
const SAMPLE_SHARED: usize = 768 * 8 + (4 * 2048 + 2) * 4;

fn softmax(logits: &[f64]) -> (Vec<f64>, f64) {
    let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|z| (z - most).exp()).sum();
    (logits.iter().map(|z| z - most - sum.ln()).collect(), most + sum.ln())
}

fn entropy(log_p: &[f64]) -> f64 {
    -log_p.iter().map(|l| l.exp() * l).sum::<f64>()
}

#[test]
fn scores_and_their_derivatives_are_those_of_softmax() {
    // Read by 16 bytes, or value by value; derivatives in 32 and in 16 bits; more than one round of a block's threads.
    for (vocabulary, half) in [(300, false), (301, false), (300, true), (2301, true), (2300, true)] {
        scores_of_rows_are_those_of_softmax(vocabulary, half);
    }
}

fn scores_of_rows_are_those_of_softmax(vocabulary: usize, half: bool) {
    let (rows, factor) = (3usize, 1.25f32);
    let logits: Vec<f32> = numbers(30, rows * vocabulary).iter().map(|z| 4.0 * z).collect();
    // Row 0 predicts one token twice and another once, row 1 no token, row 2 one.
    let (pick_first, pick_rows, tokens) = ([0u32, 3, 3, 4], [0u32, 0, 0, 2], [5u32, 5, 299, 7]);
    let (dlogp, dentropy) = ([0.5f32, -0.25, 1.0, -2.0], [0.1f32, 0.0, -0.3, 0.7]);
    let (logp, h, derivative) = in_every_order(|d| {
        let z = memory(d, &logits);
        let (saved, lp, en) = (
            Memory::<f32>::new(d, 2 * rows).unwrap(),
            Memory::<f32>::new(d, 4).unwrap(),
            Memory::<f32>::new(d, 4).unwrap(),
        );
        let [first, at, picked] = [&pick_first[..], &pick_rows, &tokens].map(|v| memory(d, v));
        let (v, f) = (Argument::U32(vocabulary as u32), Argument::F32(factor));
        launch(d, "head_scores", Shape::of(rows, 128, 16), &[(&z).into(), (&saved).into(), v, f]);
        let arguments = [
            (&z).into(),
            (&saved).into(),
            (&at).into(),
            (&picked).into(),
            (&lp).into(),
            (&en).into(),
            4u32.into(),
            0u32.into(),
            v,
            f,
        ];
        launch(d, "head_picks", Shape::covering(4, 32), &arguments);
        let (dl, de) = (memory(d, &dlogp), memory(d, &dentropy));
        let arguments = [
            (&z).into(),
            (&saved).into(),
            (&first).into(),
            (&picked).into(),
            (&dl).into(),
            (&de).into(),
            v,
            f,
        ];
        let values = (lp.read().unwrap(), en.read().unwrap());
        let kernel = if half { "head_backward_bf16" } else { "head_backward_f32" };
        launch(d, kernel, Shape::of(rows, 128, 0), &arguments);
        let mut derivatives = z.read().unwrap();
        if half {
            for row in derivatives.chunks_mut(vocabulary) {
                let halves: Vec<u16> =
                    row.iter().flat_map(|v| [v.to_bits() as u16, (v.to_bits() >> 16) as u16]).collect();
                row.copy_from_slice(&from_bf16(&halves[..vocabulary]));
            }
        }
        (values.0, values.1, derivatives)
    });
    let loss = |row: usize, logits: &[f64]| -> f64 {
        let (log_p, _) = softmax(&logits.iter().map(|z| z * f64::from(factor)).collect::<Vec<_>>());
        let picks = pick_first[row] as usize..pick_first[row + 1] as usize;
        picks
            .map(|i| {
                f64::from(dlogp[i]) * log_p[tokens[i] as usize] + f64::from(dentropy[i]) * entropy(&log_p)
            })
            .sum()
    };
    for row in 0..rows {
        let z: Vec<f64> = logits[row * vocabulary..][..vocabulary].iter().map(|&z| f64::from(z)).collect();
        let (log_p, _) = softmax(&z.iter().map(|z| z * f64::from(factor)).collect::<Vec<_>>());
        for i in pick_first[row] as usize..pick_first[row + 1] as usize {
            close(&[logp[i], h[i]], &[log_p[tokens[i] as usize], entropy(&log_p)], 1e-5, "score");
        }
        for v in (0..vocabulary).step_by(7).chain([5, 299]) {
            let (mut up, mut down) = (z.clone(), z.clone());
            up[v] += 1e-4;
            down[v] -= 1e-4;
            let wanted = (loss(row, &up) - loss(row, &down)) / 2e-4;
            let tolerance = if half { 4e-3 * wanted.abs() + 1e-5 } else { 1e-5 };
            close(&[derivative[row * vocabulary + v]], &[wanted], tolerance, "derivative");
        }
    }
}

/// The remaining tokens by definition: sort, then cut.
fn kept(p: &[f32], top_k: usize, top_p: f32, min_p: f32) -> Vec<bool> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[b].total_cmp(&p[a]).then(a.cmp(&b)));
    let mut count = if top_k > 0 { top_k.min(p.len()) } else { p.len() };
    if top_p < 1.0 {
        let total: f64 = order[..count].iter().map(|&t| f64::from(p[t])).sum();
        let mut mass = 0.0;
        let enough = |&t: &usize| {
            mass += f64::from(p[t]);
            mass >= f64::from(top_p) * total
        };
        count = 1 + order[..count].iter().position(enough).unwrap_or(count - 1);
    }
    let mut kept = vec![false; p.len()];
    for &t in &order[..count] {
        kept[t] = p[t] >= min_p;
    }
    kept
}

#[test]
fn draws_follow_the_truncated_distribution_in_the_order_of_ids() {
    // Wide: probabilities of many magnitudes, including 0 and subnormal numbers. Narrow: a bin of the search's histogram has more tokens than it lists.
    for (vocabulary, width) in [(1000, 5.0), (1003, 5.0), (400, 70.0), (6001, 0.01), (3000, 2e-5)] {
        let mut logits: Vec<f32> = numbers(31, vocabulary).iter().map(|z| width * z).collect();
        // Ties, at the top and in the middle.
        logits[vocabulary * 9 / 10] = 1.1 * width;
        logits[17] = 1.1 * width;
        for v in [3, 50, vocabulary * 2 / 5, vocabulary * 7 / 9] {
            logits[v] = 0.4 * width;
        }
        draws_of_a_row_follow_the_truncated_distribution(&logits);
    }
}

fn draws_of_a_row_follow_the_truncated_distribution(logits: &[f32]) {
    let vocabulary = logits.len();
    let most = logits.iter().copied().fold(0.0f32, f32::max);
    let uniforms: Vec<f64> = (0..40).map(|i| (f64::from(i) + 0.5) / 40.0).chain([0.0, 1.0 - 1e-12]).collect();
    for (top_k, top_p, min_p) in [
        (0, 1.0f32, 0.0f32),
        (1, 1.0, 0.0),
        (100, 1.0, 0.0),
        (0, 0.9, 0.0),
        (0, 0.05, 0.0),
        (60, 0.8, 0.0),
        (0, 1.0, 0.1),
        (200, 0.95, 0.02),
        // Only the most likely tokens, at any temperature.
        (0, 1.0, 1.0),
    ] {
        // A temperature at which products of logits are rounded.
        let factor = 1.0 / 0.7f32;
        let (tokens, logp, entropies) = in_every_order(|d| {
            let (z, first, u) =
                (memory(d, logits), memory(d, &[0u32, uniforms.len() as u32]), memory(d, &uniforms));
            let out = Memory::<u32>::new(d, uniforms.len()).unwrap();
            let [lp, en] = [0; 2].map(|_| Memory::<f32>::new(d, uniforms.len()).unwrap());
            let arguments = [
                (&z).into(),
                (&first).into(),
                (&u).into(),
                (&out).into(),
                (&lp).into(),
                (&en).into(),
                (vocabulary as u32).into(),
                factor.into(),
                (top_k as u32).into(),
                top_p.into(),
                min_p.into(),
                0u32.into(),
            ];
            launch(d, "sample", Shape::of(1, 256, SAMPLE_SHARED), &arguments);
            (out.read().unwrap(), lp.read().unwrap(), en.read().unwrap())
        });
        let z: Vec<f64> = logits.iter().map(|&z| f64::from(z) * f64::from(factor)).collect();
        let (log_p, _) = softmax(&z);
        let p: Vec<f32> = logits.iter().map(|z| (z * factor - most * factor).exp()).collect();
        let kept = kept(&p, top_k, top_p, min_p);
        let total: f64 = (0..vocabulary).filter(|&v| kept[v]).map(|v| f64::from(p[v])).sum();
        for (i, &uniform) in uniforms.iter().enumerate() {
            let mut mass = 0.0;
            let mut wanted = 0;
            for v in (0..vocabulary).filter(|&v| kept[v]) {
                wanted = v;
                mass += f64::from(p[v]);
                if mass > uniform * total {
                    break;
                }
            }
            assert_eq!(
                tokens[i] as usize, wanted,
                "top_k {top_k} top_p {top_p} min_p {min_p} uniform {uniform}"
            );
            close(&[logp[i], entropies[i]], &[log_p[wanted], entropy(&log_p)], 1e-5, "score of a draw");
        }
    }
}

#[test]
fn greedy_takes_the_lowest_id_of_the_most_likely() {
    let mut logits = numbers(32, 500);
    logits[400] = 3.0;
    logits[123] = 3.0;
    let tokens = in_every_order(|d| {
        // A second row without draws, whose logits (poison) must not be read.
        let z = Memory::<f32>::new(d, 1000).unwrap();
        z.write(0, &logits).unwrap();
        let (first, u) = (memory(d, &[0u32, 1, 1]), memory(d, &[0.9f64]));
        let out = Memory::<u32>::new(d, 1).unwrap();
        let [lp, en] = [0; 2].map(|_| Memory::<f32>::new(d, 1).unwrap());
        let arguments = [
            (&z).into(),
            (&first).into(),
            (&u).into(),
            (&out).into(),
            (&lp).into(),
            (&en).into(),
            500u32.into(),
            1.0f32.into(),
            0u32.into(),
            1.0f32.into(),
            0.0f32.into(),
            1u32.into(),
        ];
        launch(d, "sample", Shape::of(2, 256, SAMPLE_SHARED), &arguments);
        out.read().unwrap()
    });
    assert_eq!(tokens, [123]);
}
