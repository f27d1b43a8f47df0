//! Sampling of a token from logits by inverse CDF, with temperature, top-k, top-p and min-p.

use super::simd;
use crate::error::Error;
use crate::executor::checks::non_finite;
use crate::sampling::{Draw, Drawn, Sampling};

#[derive(Default)]
pub(crate) struct Scratch {
    probabilities: Vec<f32>,
    order: Vec<u32>,
    cumulative: Vec<f64>,
}

/// Number of tokens per entry of the cumulative table.
const BLOCK: usize = 64;

/// Samples `draws` from one row of logits; `row` is only for the error message.
pub(crate) fn draw(
    logits: &[f32],
    row: usize,
    sampling: &Sampling,
    draws: &[Draw],
    drawn: &mut Vec<Drawn>,
    scratch: &mut Scratch,
) -> Result<(), Error> {
    if draws.is_empty() {
        return Ok(());
    }
    let greedy = sampling.temperature == 0.0;
    let factor = if greedy { 1.0 } else { 1.0 / sampling.temperature };
    let max = simd::max(logits) * factor;
    let [sum, weighted] = simd::entropy_sums(logits, factor, max);
    let lse = max + sum.ln();
    if !lse.is_finite() {
        return Err(non_finite(lse, row));
    }
    let entropy = (sum.ln() - weighted / sum).max(0.0);
    let result =
        |token: usize| Drawn { token: token as u32, logp: (logits[token] * factor - lse).min(0.0), entropy };
    if greedy {
        let token = logits.iter().position(|&logit| logit == max).expect("the maximum is one of the logits");
        drawn.extend(draws.iter().map(|_| result(token)));
        return Ok(());
    }
    let Scratch { probabilities, order, cumulative } = scratch;
    probabilities.clear();
    probabilities.extend_from_slice(logits);
    simd::exp_sum(probabilities, factor, max);
    if sampling.truncates() {
        truncate(probabilities, sampling, order);
    }
    cumulative.clear();
    let mut total = 0.0f64;
    for block in probabilities.chunks(BLOCK) {
        total += block.iter().map(|&p| f64::from(p)).sum::<f64>();
        cumulative.push(total);
    }
    for draw in draws {
        let target = draw.uniform * total;
        let block = cumulative.partition_point(|&mass| mass <= target).min(cumulative.len() - 1);
        let mut mass = if block == 0 { 0.0 } else { cumulative[block - 1] };
        let mut token = None;
        for (offset, &p) in probabilities[block * BLOCK..].iter().take(BLOCK).enumerate() {
            if p > 0.0 {
                // If rounding leaves a remainder, it counts for the last token with nonzero probability.
                token = Some(block * BLOCK + offset);
                mass += f64::from(p);
                if mass > target {
                    break;
                }
            }
        }
        drawn.push(result(token.unwrap_or_else(|| last_possible(probabilities))));
    }
    Ok(())
}

/// Returns the last token with nonzero probability.
fn last_possible(probabilities: &[f32]) -> usize {
    probabilities.iter().rposition(|&p| p > 0.0).expect("the most likely token has value 1")
}

/// Applies top-k, then top-p, then min-p: sets the probabilities of dropped tokens to 0. Lower ids win ties.
fn truncate(probabilities: &mut [f32], sampling: &Sampling, order: &mut Vec<u32>) {
    let n = probabilities.len();
    let more_likely = |p: &[f32], a: u32, b: u32| p[b as usize].total_cmp(&p[a as usize]).then(a.cmp(&b));
    order.clear();
    order.extend(0..n as u32);
    let mut kept = n;
    if sampling.top_k > 0 && sampling.top_k < n {
        kept = sampling.top_k;
        order.select_nth_unstable_by(kept - 1, |&a, &b| more_likely(probabilities, a, b));
    }
    if sampling.top_p < 1.0 {
        let total: f64 = order[..kept].iter().map(|&token| f64::from(probabilities[token as usize])).sum();
        let target = f64::from(sampling.top_p) * total;
        // Sort the most likely tokens in growing batches, because most distributions need few.
        let (mut mass, mut sorted, mut more) = (0.0, 0, 64);
        'search: while sorted < kept {
            let end = kept.min(sorted + more);
            if end < kept {
                let last = end - sorted - 1;
                order[sorted..kept].select_nth_unstable_by(last, |&a, &b| more_likely(probabilities, a, b));
            }
            order[sorted..end].sort_unstable_by(|&a, &b| more_likely(probabilities, a, b));
            for index in sorted..end {
                mass += f64::from(probabilities[order[index] as usize]);
                if mass >= target {
                    kept = index + 1;
                    break 'search;
                }
            }
            (sorted, more) = (end, 4 * more);
        }
    }
    for &token in &order[kept..] {
        probabilities[token as usize] = 0.0;
    }
    if sampling.min_p > 0.0 {
        // Probabilities are relative to the most likely token, whose value is 1.
        for p in probabilities {
            if *p < sampling.min_p {
                *p = 0.0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tokens(logits: &[f32], sampling: &Sampling, uniforms: &[f64]) -> Vec<Drawn> {
        let draws: Vec<Draw> = uniforms.iter().map(|&uniform| Draw { row: 0, uniform }).collect();
        let mut drawn = Vec::new();
        draw(logits, 0, sampling, &draws, &mut drawn, &mut Scratch::default()).unwrap();
        drawn
    }

    /// Returns the truncated distribution by definition: sort, cut, normalise.
    fn brute_force(logits: &[f32], sampling: &Sampling) -> Vec<f64> {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mass: Vec<f64> =
            logits.iter().map(|&z| (f64::from(z - max) / f64::from(sampling.temperature)).exp()).collect();
        let mut order: Vec<usize> = (0..mass.len()).collect();
        order.sort_by(|&a, &b| mass[b].total_cmp(&mass[a]).then(a.cmp(&b)));
        if sampling.top_k > 0 {
            order.truncate(sampling.top_k);
        }
        let total: f64 = order.iter().map(|&token| mass[token]).sum();
        let mut before = 0.0;
        order.retain(|&token| {
            let keep = before < f64::from(sampling.top_p) * total || before == 0.0;
            before += mass[token];
            keep
        });
        order.retain(|&token| mass[token] >= f64::from(sampling.min_p));
        let total: f64 = order.iter().map(|&token| mass[token]).sum();
        (0..mass.len()).map(|token| if order.contains(&token) { mass[token] / total } else { 0.0 }).collect()
    }

    proptest! {
        #[test]
        fn draws_over_a_grid_have_the_frequencies_of_the_truncated_softmax(
            logits in prop::collection::vec(-4.0f32..4.0, 2..40),
            temperature in 0.3f32..2.0,
            top_k in 0usize..12,
            top_p in prop_oneof![Just(1.0f32), 0.05f32..1.0],
            min_p in prop_oneof![Just(0.0f32), 0.01f32..0.9],
        ) {
            let sampling = Sampling { temperature, top_k, top_p, min_p, ..Sampling::default() };
            const GRID: usize = 4000;
            let uniforms: Vec<f64> = (0..GRID).map(|i| (i as f64 + 0.5) / GRID as f64).collect();
                let mut frequencies = vec![0.0; logits.len()];
                for drawn in tokens(&logits, &sampling, &uniforms) {
                    frequencies[drawn.token as usize] += 1.0 / GRID as f64;
                }
                let expected = brute_force(&logits, &sampling);
                for token in 0..logits.len() {
                    prop_assert!((frequencies[token] - expected[token]).abs() < 1.5 / GRID as f64 + 1e-6,
                        "token {token}: frequency {}, expected {}", frequencies[token], expected[token]);
            }
        }
    }

    #[test]
    fn temperature_zero_takes_the_lowest_id_of_the_most_likely_tokens() {
        let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
        let drawn = tokens(&[0.0, 3.0, 1.0, 3.0], &sampling, &[0.99, 0.0]);
        assert!(drawn.iter().all(|drawn| drawn.token == 1));
    }

    #[test]
    fn a_uniform_number_close_to_one_takes_the_last_possible_token() {
        let drawn = tokens(&[0.0, 0.0, -1e9], &Sampling { top_k: 2, ..Sampling::default() }, &[1.0 - 1e-17]);
        assert_eq!(drawn[0].token, 1);
    }

    #[test]
    fn logits_that_are_not_finite_are_an_error() {
        for bad in [f32::NAN, f32::INFINITY] {
            let mut drawn = Vec::new();
            let draws = [Draw { row: 0, uniform: 0.5 }];
            let result =
                draw(&[0.0, bad, 1.0], 0, &Sampling::default(), &draws, &mut drawn, &mut Scratch::default());
            assert!(matches!(result, Err(Error::NonFinite { .. })));
        }
    }
}
