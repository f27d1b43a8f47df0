//! Element-wise loops, compiled for AVX-512, AVX2 and the baseline (on aarch64 with NEON), and selected at run time.
//!
//! The bodies are plain Rust that the compiler vectorises: sums run in independent lanes, and `exp` is a polynomial. Results differ between
//! instruction sets only by rounding.

use super::level::{Level, level};
use crate::adamw::AdamWStep;

/// Number of independent partial sums: two AVX-512 registers, enough to hide the latency of an addition.
const LANES: usize = 32;

/// Returns `a * b + c`, fused if the instruction set supports it.
#[inline(always)]
fn fma<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// Inputs of one head for a token of the gated delta rule.
#[derive(Clone, Copy)]
pub(crate) struct Token<'a> {
    pub(crate) q: &'a [f32],
    pub(crate) k: &'a [f32],
    pub(crate) v: &'a [f32],
    pub(crate) write: f32,
    pub(crate) keep: f32,
}

macro_rules! vectorised {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => {$(
        $(#[$meta])*
        pub(crate) fn $name($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body<const FMA: bool>($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
                fn v4($($arg: $ty),*) $(-> $ret)? { body::<true>($($arg),*) }
                #[target_feature(enable = "avx2,fma")]
                fn v3($($arg: $ty),*) $(-> $ret)? { body::<true>($($arg),*) }
                match level() {
                    // SAFETY: the processor supports the level.
                    Level::Avx512 => return unsafe { v4($($arg),*) },
                    // SAFETY: as above.
                    Level::Avx2 => return unsafe { v3($($arg),*) },
                    Level::Plain | Level::Neon => {}
                }
            }
            if cfg!(target_arch = "aarch64") && level() == Level::Neon {
                return body::<true>($($arg),*);
            }
            body::<false>($($arg),*)
        }
    )*};
}

/// Returns `exp(x)` to 2 units in the last place, with `x` clamped to [-87.3, 88.3].
#[inline(always)]
fn exp<const FMA: bool>(x: f32) -> f32 {
    const MAGIC: f32 = 12_582_912.0; // 1.5 * 2^23: adding it rounds to an integer in the low bits
    let x = x.clamp(-87.3, 88.3);
    let shifted = fma::<FMA>(x, std::f32::consts::LOG2_E, MAGIC);
    let n = shifted - MAGIC;
    // ln 2 in two parts. The first has few bits, so its product with `n` is exact.
    let r = fma::<FMA>(n, -0.693_359_4, x);
    let r = fma::<FMA>(n, 2.121_944_4e-4, r);
    let mut p = 1.987_569_1e-4;
    p = fma::<FMA>(p, r, 1.398_199_9e-3);
    p = fma::<FMA>(p, r, 8.333_452e-3);
    p = fma::<FMA>(p, r, 4.166_579_6e-2);
    p = fma::<FMA>(p, r, 1.666_666_5e-1);
    p = fma::<FMA>(p, r, 5e-1);
    let e = fma::<FMA>(p * r, r, r) + 1.0;
    // 2^n, built from the exponent's bits.
    let power = f32::from_bits(shifted.to_bits().wrapping_sub(MAGIC.to_bits()).wrapping_add(127) << 23);
    e * power
}

/// Combines the lanes, always in the same order.
#[inline(always)]
fn fold<T: Copy, const N: usize>(mut lanes: [T; N], combine: impl Fn(T, T) -> T) -> T {
    let mut width = N / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] = combine(lanes[i], lanes[i + width]);
        }
        width /= 2;
    }
    lanes[0]
}

/// Sums a term over all indices below `$len`, in [`LANES`] independent partial sums.
macro_rules! lanes {
    ($len:expr, |$i:ident| $term:expr) => {{
        let len = $len;
        let whole = len / LANES * LANES;
        let mut sums = [0.0f32; LANES];
        let mut base = 0;
        while base < whole {
            for lane in 0..LANES {
                let $i = base + lane;
                sums[lane] += $term;
            }
            base += LANES;
        }
        for lane in 0..len - whole {
            let $i = whole + lane;
            sums[lane] += $term;
        }
        fold(sums, |a, b| a + b)
    }};
}

/// `2 √(2/π)`, a constant of [`geglu`].
const GELU: f32 = 1.595_769_2;
/// `2 √(2/π) · 0.044715`, a constant of [`geglu`].
const GELU_CUBE: f32 = 0.071_354_814;

vectorised! {
    /// Computes `y += x`.
    fn add(x: &[f32], y: &mut [f32]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y += x;
        }
    }

    /// Computes `y *= factor`.
    fn scale(y: &mut [f32], factor: f32) {
        for y in y {
            *y *= factor;
        }
    }

    /// Returns `Σ x y`.
    fn dot(x: &[f32], y: &[f32]) -> f32 {
        let n = x.len();
        let y = &y[..n];
        lanes!(n, |i| x[i] * y[i])
    }

    /// Computes `sums += a b`: `[16, 16]` each. Elements of `a` and `b` are bfloat16 pairs, multiplied pairwise.
    fn bf16_tile(a: &[f32], b: &[f32], sums: &mut [f32]) {
        let both = |pair: f32| {
            let bits = pair.to_bits();
            (f32::from_bits(bits << 16), f32::from_bits(bits & 0xffff_0000))
        };
        for (a, sums) in a.chunks_exact(16).zip(sums.chunks_exact_mut(16)) {
            for (&a, b) in a.iter().zip(b.chunks_exact(16)) {
                let (first, second) = both(a);
                for (sum, &b) in sums.iter_mut().zip(b) {
                    let b = both(b);
                    *sum = fma::<FMA>(second, b.1, fma::<FMA>(first, b.0, *sum));
                }
            }
        }
    }

    /// Returns `Σ x²` in double precision.
    fn square_sum(x: &[f32]) -> f64 {
        let mut sums = [0.0f64; 16];
        let mut chunks = x.chunks_exact(16);
        for chunk in &mut chunks {
            for lane in 0..16 {
                let value = f64::from(chunk[lane]);
                sums[lane] += value * value;
            }
        }
        let rest: f64 = chunks.remainder().iter().map(|&value| f64::from(value) * f64::from(value)).sum();
        fold(sums, |a, b| a + b) + rest
    }

    /// Returns the largest element, ignoring NaN. `-inf` if `x` is empty.
    fn max(x: &[f32]) -> f32 {
        let larger = |a: f32, b: f32| if b > a { b } else { a };
        let mut lanes = [f32::NEG_INFINITY; LANES];
        let mut chunks = x.chunks_exact(LANES);
        for chunk in &mut chunks {
            for lane in 0..LANES {
                lanes[lane] = larger(lanes[lane], chunk[lane]);
            }
        }
        for (lane, &value) in lanes.iter_mut().zip(chunks.remainder()) {
            *lane = larger(*lane, value);
        }
        fold(lanes, larger)
    }

    /// Computes the RMSNorm `y` of the row `x`. Returns `1 / rms`.
    fn rms_norm(x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) -> f32 {
        let n = x.len();
        let (weight, y) = (&weight[..n], &mut y[..n]);
        let sum = lanes!(n, |i| x[i] * x[i]);
        let scale = 1.0 / (sum / n as f32 + eps).sqrt();
        for i in 0..n {
            y[i] = x[i] * scale * weight[i];
        }
        scale
    }

    /// Recomputes a normalised row from its `1 / rms`.
    fn rms_norm_again(x: &[f32], weight: &[f32], scale: f32, y: &mut [f32]) {
        let n = x.len();
        let (weight, y) = (&weight[..n], &mut y[..n]);
        for i in 0..n {
            y[i] = x[i] * scale * weight[i];
        }
    }

    /// Adds the derivative with respect to one row `x` to `dx`.
    fn rms_norm_backward_input(x: &[f32], weight: &[f32], scale: f32, dy: &[f32], dx: &mut [f32]) {
        let n = x.len();
        let (weight, dy, dx) = (&weight[..n], &dy[..n], &mut dx[..n]);
        let sum = lanes!(n, |i| dy[i] * weight[i] * x[i]);
        let pull = sum * scale * scale * scale / n as f32;
        for i in 0..n {
            dx[i] += fma::<FMA>(dy[i] * weight[i], scale, -(x[i] * pull));
        }
    }

    /// Computes `dweight += dy * x / rms` for a range of columns.
    fn rms_norm_backward_weight(x: &[f32], scale: f32, dy: &[f32], dweight: &mut [f32]) {
        let n = x.len();
        let (dy, dweight) = (&dy[..n], &mut dweight[..n]);
        for i in 0..n {
            dweight[i] = fma::<FMA>(dy[i], x[i] * scale, dweight[i]);
        }
    }

    /// Like [`rms_norm_backward_input`], but replaces `dy`, passed in `dx`, by the derivative.
    fn head_norm_backward_input(x: &[f32], weight: &[f32], scale: f32, dx: &mut [f32]) {
        let n = x.len();
        let (weight, dx) = (&weight[..n], &mut dx[..n]);
        let sum = lanes!(n, |i| dx[i] * weight[i] * x[i]);
        let pull = sum * scale * scale * scale / n as f32;
        for i in 0..n {
            dx[i] = fma::<FMA>(dx[i] * weight[i], scale, -(x[i] * pull));
        }
    }

    /// Rotates the pairs `(low[i], high[i])` by the angles with cosine `cos[i]` and sine `sign * sin[i]`.
    fn rotate(low: &mut [f32], high: &mut [f32], cos: &[f32], sin: &[f32], sign: f32) {
        let n = low.len();
        let (high, cos, sin) = (&mut high[..n], &cos[..n], &sin[..n]);
        for i in 0..n {
            let (a, b, s) = (low[i], high[i], sin[i] * sign);
            low[i] = a * cos[i] - b * s;
            high[i] = b * cos[i] + a * s;
        }
    }

    /// Computes `act = silu(gate) * up`.
    fn swiglu(gate: &[f32], up: &[f32], act: &mut [f32]) {
        let n = gate.len();
        let (up, act) = (&up[..n], &mut act[..n]);
        for i in 0..n {
            act[i] = gate[i] / (1.0 + exp::<FMA>(-gate[i])) * up[i];
        }
    }

    /// Replaces `gate` and `up` by their derivatives, and `act`, the derivative with respect to the activation, by the activation.
    fn swiglu_backward(gate: &mut [f32], up: &mut [f32], act: &mut [f32]) {
        let n = gate.len();
        let (up, act) = (&mut up[..n], &mut act[..n]);
        for i in 0..n {
            let (g, u, d) = (gate[i], up[i], act[i]);
            let sigmoid = 1.0 / (1.0 + exp::<FMA>(-g));
            let silu = g * sigmoid;
            act[i] = silu * u;
            up[i] = d * silu;
            gate[i] = d * u * fma::<FMA>(silu, 1.0 - sigmoid, sigmoid);
        }
    }

    /// Computes `act = gelu(gate) * up`, where `gelu(x) = x · sigmoid(2 √(2/π) (x + 0.044715 x³))`, the tanh approximation.
    fn geglu(gate: &[f32], up: &[f32], act: &mut [f32]) {
        let n = gate.len();
        let (up, act) = (&up[..n], &mut act[..n]);
        for i in 0..n {
            let g = gate[i];
            act[i] = g / (1.0 + exp::<FMA>(-g * fma::<FMA>(GELU_CUBE, g * g, GELU))) * up[i];
        }
    }

    /// Like [`swiglu_backward`], for [`geglu`].
    fn geglu_backward(gate: &mut [f32], up: &mut [f32], act: &mut [f32]) {
        let n = gate.len();
        let (up, act) = (&mut up[..n], &mut act[..n]);
        for i in 0..n {
            let (g, u, d) = (gate[i], up[i], act[i]);
            let sigmoid = 1.0 / (1.0 + exp::<FMA>(-g * fma::<FMA>(GELU_CUBE, g * g, GELU)));
            let gelu = g * sigmoid;
            act[i] = gelu * u;
            up[i] = d * gelu;
            gate[i] = d * u * fma::<FMA>(gelu * fma::<FMA>(3.0 * GELU_CUBE, g * g, GELU), 1.0 - sigmoid, sigmoid);
        }
    }

    /// Computes `y = sigmoid(gate) * x`.
    fn sigmoid_gate(gate: &[f32], x: &[f32], y: &mut [f32]) {
        let n = gate.len();
        let (x, y) = (&x[..n], &mut y[..n]);
        for i in 0..n {
            y[i] = x[i] / (1.0 + exp::<FMA>(-gate[i]));
        }
    }

    /// Like [`swiglu_backward`], for [`sigmoid_gate`].
    fn sigmoid_gate_backward(gate: &mut [f32], x: &mut [f32], y: &mut [f32]) {
        let n = gate.len();
        let (x, y) = (&mut x[..n], &mut y[..n]);
        for i in 0..n {
            let d = y[i];
            let sigmoid = 1.0 / (1.0 + exp::<FMA>(-gate[i]));
            y[i] = x[i] * sigmoid;
            gate[i] = d * y[i] * (1.0 - sigmoid);
            x[i] = d * sigmoid;
        }
    }

    /// Computes `x = silu(x)`.
    fn silu(x: &mut [f32]) {
        for x in x {
            *x /= 1.0 + exp::<FMA>(-*x);
        }
    }

    /// Replaces `d`, the derivative with respect to `silu(x)`, by the derivative with respect to `x`.
    fn silu_backward(x: &[f32], d: &mut [f32]) {
        let n = x.len();
        let d = &mut d[..n];
        for i in 0..n {
            let sigmoid = 1.0 / (1.0 + exp::<FMA>(-x[i]));
            d[i] *= fma::<FMA>(x[i] * sigmoid, 1.0 - sigmoid, sigmoid);
        }
    }

    /// Computes `y += a * b`, element by element.
    fn multiply_add(a: &[f32], b: &[f32], y: &mut [f32]) {
        let n = a.len();
        let (b, y) = (&b[..n], &mut y[..n]);
        for i in 0..n {
            y[i] = fma::<FMA>(a[i], b[i], y[i]);
        }
    }

    /// Applies one token of the gated delta rule. Multiplies the state, `[keys, values]`, by `keep`, and then moves its value at `k` towards
    /// `v` by the fraction `write`. `error` receives the difference from `v` before the update, and `out` the state's value at `q` after it.
    fn delta_step(token: Token<'_>, state: &mut [f32], error: &mut [f32], out: &mut [f32]) {
        let Token { q, k, v, write, keep } = token;
        let n = v.len();
        let (error, out) = (&mut error[..n], &mut out[..n]);
        error.fill(0.0);
        for (state, &k) in state.chunks_exact_mut(n).zip(k) {
            for i in 0..n {
                state[i] *= keep;
                error[i] = fma::<FMA>(k, state[i], error[i]);
            }
        }
        for i in 0..n {
            error[i] = v[i] - error[i];
        }
        out.fill(0.0);
        for (state, (&k, &q)) in state.chunks_exact_mut(n).zip(k.iter().zip(q)) {
            let k = k * write;
            for i in 0..n {
                state[i] = fma::<FMA>(k, error[i], state[i]);
                out[i] = fma::<FMA>(q, state[i], out[i]);
            }
        }
    }

    /// Computes `x = exp(x * factor - offset)`. Returns the sum.
    fn exp_sum(x: &mut [f32], factor: f32, offset: f32) -> f32 {
        let mut sums = [0.0f32; LANES];
        let mut chunks = x.chunks_exact_mut(LANES);
        for chunk in &mut chunks {
            for lane in 0..LANES {
                chunk[lane] = exp::<FMA>(fma::<FMA>(chunk[lane], factor, -offset));
                sums[lane] += chunk[lane];
            }
        }
        // Compute the remainder as a full chunk: one exponential costs as much as a register of them.
        let rest = chunks.into_remainder();
        if !rest.is_empty() {
            let mut full = [0.0f32; LANES];
            full[..rest.len()].copy_from_slice(rest);
            for lane in 0..LANES {
                full[lane] = exp::<FMA>(fma::<FMA>(full[lane], factor, -offset));
                sums[lane] += if lane < rest.len() { full[lane] } else { 0.0 };
            }
            rest.copy_from_slice(&full[..rest.len()]);
        }
        fold(sums, |a, b| a + b)
    }

    /// Replaces a row's attention scores `s` by probabilities, and their derivatives `dp` by those of the scores.
    fn score_backward(s: &mut [f32], dp: &mut [f32], factor: f32, lse: f32, delta: f32) {
        let dp = &mut dp[..s.len()];
        let (mut s, mut dp) = (s.chunks_exact_mut(16), dp.chunks_exact_mut(16));
        for (s, dp) in (&mut s).zip(&mut dp) {
            for i in 0..16 {
                let p = exp::<FMA>(fma::<FMA>(s[i], factor, -lse));
                s[i] = p;
                dp[i] = p * (dp[i] - delta) * factor;
            }
        }
        let (s, dp) = (s.into_remainder(), dp.into_remainder());
        if !s.is_empty() {
            let (mut p, mut d) = ([0.0f32; 16], [0.0f32; 16]);
            p[..s.len()].copy_from_slice(s);
            d[..s.len()].copy_from_slice(dp);
            for i in 0..16 {
                p[i] = exp::<FMA>(fma::<FMA>(p[i], factor, -lse));
                d[i] = p[i] * (d[i] - delta) * factor;
            }
            s.copy_from_slice(&p[..s.len()]);
            dp.copy_from_slice(&d[..dp.len()]);
        }
    }

    /// Computes `Σ exp(z - max)` and `Σ exp(z - max) (z - max)` for `z = logits * factor`.
    fn entropy_sums(logits: &[f32], factor: f32, max: f32) -> [f32; 2] {
        let n = logits.len();
        let whole = n / LANES * LANES;
        let (mut sums, mut weighted) = ([0.0f32; LANES], [0.0f32; LANES]);
        let mut base = 0;
        while base < whole {
            for lane in 0..LANES {
                let z = fma::<FMA>(logits[base + lane], factor, -max);
                let e = exp::<FMA>(z);
                sums[lane] += e;
                weighted[lane] = fma::<FMA>(e, z, weighted[lane]);
            }
            base += LANES;
        }
        for lane in 0..n - whole {
            let z = fma::<FMA>(logits[whole + lane], factor, -max);
            let e = exp::<FMA>(z);
            sums[lane] += e;
            weighted[lane] = fma::<FMA>(e, z, weighted[lane]);
        }
        [fold(sums, |a, b| a + b), fold(weighted, |a, b| a + b)]
    }

    /// Replaces logits by their derivatives, without the target's term: `-p (a + b (log p + entropy)) * factor`.
    fn logit_backward(logits: &mut [f32], factor: f32, lse: f32, entropy: f32, a: f32, b: f32) {
        for logit in logits {
            let logp = fma::<FMA>(*logit, factor, -lse);
            *logit = -exp::<FMA>(logp) * fma::<FMA>(b, logp + entropy, a) * factor;
        }
    }

    /// Updates the parameters by one AdamW step and sets the gradient to 0.
    fn adamw(w: &mut [f32], g: &mut [f32], m: &mut [f32], v: &mut [f32], step: &AdamWStep) {
        let AdamWStep { number: _, clip, take1, beta2, take2, eps, decay, rate, root } = *step;
        let n = w.len();
        let (g, m, v) = (&mut g[..n], &mut m[..n], &mut v[..n]);
        for i in 0..n {
            let d = g[i] * clip;
            g[i] = 0.0;
            m[i] = fma::<FMA>(d - m[i], take1, m[i]);
            v[i] = fma::<FMA>(d * take2, d, v[i] * beta2);
            w[i] = fma::<FMA>(-rate, m[i] / fma::<FMA>(v[i].sqrt(), root, eps), w[i] * decay);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_units_in_the_last_place_over_its_range() {
        let mut worst = 0.0f64;
        for i in 0..400_000 {
            let x = -87.0 + i as f32 * (175.0 / 400_000.0);
            let mut y = [x];
            exp_sum(&mut y, 1.0, 0.0);
            let exact = f64::from(x).exp();
            worst = worst.max((f64::from(y[0]) - exact).abs() / exact);
        }
        assert!(worst < 2.0 * f64::from(f32::EPSILON), "relative error {worst:e}");
    }

    #[test]
    fn sums_and_maxima_cover_every_element_at_every_length() {
        for n in 0..100 {
            let x: Vec<f32> = (0..n).map(|i| (i * 7 % 13) as f32 - 6.0).collect();
            let exact: f32 = x.iter().map(|x| x * x).sum();
            assert_eq!(dot(&x, &x), exact);
            assert_eq!(square_sum(&x), f64::from(exact));
            assert_eq!(max(&x), x.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        }
    }
}
