//! Mean pairwise cosine distance of vectors, and vectors of character n-gram counts.

use std::collections::HashMap;

/// Returns the mean pairwise cosine distance of vectors, computed from the sum of the normalised vectors. A zero vector
/// has distance 1 from every other vector. `None` for fewer than two vectors.
pub(super) fn mean_cosine_distance(vectors: &[HashMap<u64, f64>]) -> Option<f64> {
    let m = vectors.len() as f64;
    if vectors.len() < 2 {
        return None;
    }
    let mut sum: HashMap<u64, f64> = HashMap::new();
    let mut nonzero = 0.0;
    for v in vectors {
        let norm = v.values().map(|x| x * x).sum::<f64>().sqrt();
        if norm > 0.0 {
            nonzero += 1.0;
            for (&i, x) in v {
                *sum.entry(i).or_default() += x / norm;
            }
        }
    }
    // |sum|^2 is the number of nonzero vectors plus twice the sum of the cosines over pairs.
    let square: f64 = sum.values().map(|x| x * x).sum();
    Some((1.0 - (square - nonzero) / (m * (m - 1.0))).max(0.0))
}

/// Counts of the character n-grams of a text, by hash of the n-gram.
pub(super) fn ngrams(text: &str, n: usize) -> HashMap<u64, f64> {
    let characters: Vec<char> = text.chars().collect();
    let mut counts = HashMap::new();
    for window in characters.windows(n.min(characters.len()).max(1)) {
        // FNV-1a over the characters. Collisions of 64-bit hashes are too rare to matter.
        let hash = window
            .iter()
            .fold(0xcbf2_9ce4_8422_2325u64, |h, &c| (h ^ u64::from(c)).wrapping_mul(0x0100_0000_01b3));
        *counts.entry(hash).or_default() += 1.0;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(values: &[f64]) -> HashMap<u64, f64> {
        values.iter().enumerate().map(|(i, &x)| (i as u64, x)).collect()
    }

    #[test]
    fn mean_distance_equals_the_mean_over_pairs() {
        let vectors = [vector(&[1.0, 0.0]), vector(&[3.0, 3.0]), vector(&[0.0, 2.0]), vector(&[0.0, 0.0])];
        let cosine = |a: &HashMap<u64, f64>, b: &HashMap<u64, f64>| {
            let dot: f64 = a.iter().map(|(i, x)| x * b.get(i).unwrap_or(&0.0)).sum();
            let norm = |v: &HashMap<u64, f64>| v.values().map(|x| x * x).sum::<f64>().sqrt();
            if norm(a) * norm(b) > 0.0 { dot / (norm(a) * norm(b)) } else { 0.0 }
        };
        let (mut total, mut pairs) = (0.0, 0.0);
        for i in 0..vectors.len() {
            for j in 0..i {
                total += 1.0 - cosine(&vectors[i], &vectors[j]);
                pairs += 1.0;
            }
        }
        let distance = mean_cosine_distance(&vectors).unwrap();
        assert!((distance - total / pairs).abs() < 1e-12, "{distance} {}", total / pairs);
        assert_eq!(mean_cosine_distance(&vectors[..1]), None);
    }

    #[test]
    fn equal_texts_are_at_distance_zero_and_unrelated_ones_at_one() {
        let texts = |a: &str, b: &str| mean_cosine_distance(&[ngrams(a, 4), ngrams(b, 4)]).unwrap();
        assert!(texts("the same words", "the same words").abs() < 1e-12);
        assert!((texts("abcdefgh", "stuvwxyz") - 1.0).abs() < 1e-12);
        assert!(texts("", "something") > 0.99);
    }
}
