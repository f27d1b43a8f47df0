//! Convolution of two non-negative real sequences through one complex Fourier transform.

use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Transform {
    /// Roots of unity by half length h: real and imaginary parts of `exp(-pi i j / h)` for `j < h`.
    roots: HashMap<usize, (Vec<f64>, Vec<f64>)>,
}

impl Transform {
    fn prepare(&mut self, n: usize) {
        let mut half = 1;
        while half < n {
            self.roots.entry(half).or_insert_with(|| {
                (0..half)
                    .map(|j| (-std::f64::consts::PI * j as f64 / half as f64).sin_cos())
                    .map(|(s, c)| (c, s))
                    .unzip()
            });
            half *= 2;
        }
    }

    /// Transforms in place. The result is in bit-reversed order.
    fn forward(&self, re: &mut [f64], im: &mut [f64]) {
        let mut half = re.len() / 2;
        while half >= 1 {
            let (cos, sin) = &self.roots[&half];
            for (re, im) in re.chunks_exact_mut(2 * half).zip(im.chunks_exact_mut(2 * half)) {
                let ((ar, br), (ai, bi)) = (re.split_at_mut(half), im.split_at_mut(half));
                for i in 0..half {
                    let (dr, di) = (ar[i] - br[i], ai[i] - bi[i]);
                    ar[i] += br[i];
                    ai[i] += bi[i];
                    br[i] = dr * cos[i] - di * sin[i];
                    bi[i] = dr * sin[i] + di * cos[i];
                }
            }
            half /= 2;
        }
    }

    /// Inverts [`Self::forward`] in place, except that the result is multiplied by the length.
    fn inverse(&self, re: &mut [f64], im: &mut [f64]) {
        let mut half = 1;
        while half < re.len() {
            let (cos, sin) = &self.roots[&half];
            for (re, im) in re.chunks_exact_mut(2 * half).zip(im.chunks_exact_mut(2 * half)) {
                let ((ar, br), (ai, bi)) = (re.split_at_mut(half), im.split_at_mut(half));
                for i in 0..half {
                    let tr = br[i] * cos[i] + bi[i] * sin[i];
                    let ti = bi[i] * cos[i] - br[i] * sin[i];
                    br[i] = ar[i] - tr;
                    bi[i] = ai[i] - ti;
                    ar[i] += tr;
                    ai[i] += ti;
                }
            }
            half *= 2;
        }
    }

    /// Returns `out[i] = sum_j a[j] b[i - j]`. Small negative numbers from rounding are set to 0.
    ///
    /// The absolute error is about `1e-15` for sequences that sum to at most 1.
    pub(super) fn convolve(&mut self, a: &[f64], b: &[f64]) -> Vec<f64> {
        let length = a.len() + b.len() - 1;
        let n = length.next_power_of_two().max(2);
        self.prepare(n);
        // Real part a, imaginary part b: the imaginary part of the square is 2 a * b.
        let (mut re, mut im) = (vec![0.0; n], vec![0.0; n]);
        re[..a.len()].copy_from_slice(a);
        im[..b.len()].copy_from_slice(b);
        self.forward(&mut re, &mut im);
        for (x, y) in re.iter_mut().zip(&mut im) {
            (*x, *y) = (*x * *x - *y * *y, 2.0 * *x * *y);
        }
        self.inverse(&mut re, &mut im);
        let scale = 0.5 / n as f64;
        im.truncate(length);
        for z in &mut im {
            *z = (*z * scale).max(0.0);
        }
        im
    }
}
