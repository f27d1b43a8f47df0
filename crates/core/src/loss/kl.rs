//! Estimators of the KL divergence from a reference policy, computed from one sampled token.

/// An estimator of KL(policy || reference) that serves as a penalty in the loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum Kl {
    /// `logp - ref_logp`, which is unbiased and may be negative. Its derivative is 1 for every token, which averages to no
    /// effect over the policy's samples, so the penalty uses the derivative of `K2` (a straight-through estimator, `k1+` in
    /// verl).
    K1,
    /// `(logp - ref_logp)^2 / 2`.
    K2,
    /// `exp(x) - x - 1` with `x = clamp(ref_logp - logp, -20, 20)`: never negative, at most 10, and unbiased if no clamp
    /// applies.
    K3,
}

impl Kl {
    /// Returns one token's estimate and the penalty's derivative with respect to `logp`.
    ///
    /// Averaged over the policy's samples, the derivative of `K2` gives the gradient of KL(policy || reference), and the
    /// derivative of `K3` the gradient of KL(reference || policy). The derivative of `K3` is 0 if a clamp applies.
    pub fn token(&self, logp: f64, ref_logp: f64) -> (f64, f64) {
        let d = logp - ref_logp;
        match self {
            Self::K1 => (d, d),
            Self::K2 => (0.5 * d * d, d),
            Self::K3 => {
                let x = super::log_ratio(ref_logp, logp);
                let value = x.exp_m1() - x;
                let idle = value <= 10.0 && !super::beyond(ref_logp, logp);
                (value.clamp(-10.0, 10.0), if idle { -x.exp_m1() } else { 0.0 })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_match_values_worked_by_hand() {
        let (logp, reference) = (0.25f64.ln(), 0.5f64.ln());
        let ln2 = std::f64::consts::LN_2;
        let close = |a: (f64, f64), b: (f64, f64)| {
            assert!((a.0 - b.0).abs() < 1e-14 && (a.1 - b.1).abs() < 1e-14, "{a:?} {b:?}")
        };
        close(Kl::K1.token(logp, reference), (-ln2, -ln2));
        close(Kl::K2.token(logp, reference), (0.5 * ln2 * ln2, -ln2));
        close(Kl::K3.token(logp, reference), (2.0 - ln2 - 1.0, -1.0));
    }

    #[test]
    fn k3_is_clamped_to_ten_with_derivative_zero() {
        assert_eq!(Kl::K3.token(-5.0, -1.0), (10.0, 0.0));
        assert_eq!(Kl::K3.token(-1.0, -31.0), (10.0, 0.0), "beyond the clamp of x");
        let (value, derivative) = Kl::K3.token(-1.0, -9.0);
        assert!(value < 10.0 && derivative > 0.99);
        assert_eq!(Kl::K3.token(-2.0, -2.0), (0.0, 0.0));
    }

    #[test]
    fn derivatives_match_finite_differences() {
        let h = 1e-6;
        for kl in [Kl::K2, Kl::K3] {
            for d in [-8.0, -1.5, -0.1, 0.2, 1.0, 2.2] {
                let f = |logp: f64| kl.token(logp, -2.0).0;
                let expected = (f(-2.0 - d + h) - f(-2.0 - d - h)) / (2.0 * h);
                let derivative = kl.token(-2.0 - d, -2.0).1;
                assert!(
                    (derivative - expected).abs() < 1e-6 * (1.0 + expected.abs()),
                    "{kl:?} at {d}: {derivative} {expected}"
                );
            }
        }
    }

    /// Follows the exact gradient of the penalty for a softmax policy, without sampling.
    #[test]
    fn the_penalty_of_every_estimator_pulls_the_policy_back_to_the_reference() {
        let softmax = |z: &[f64; 3]| {
            let sum: f64 = z.iter().map(|z| z.exp()).sum();
            z.map(|z| z.exp() / sum)
        };
        let reference = softmax(&[0.0, 0.5, -0.5]);
        let divergence =
            |p: &[f64; 3]| -> f64 { p.iter().zip(reference).map(|(p, q)| p * (p / q).ln()).sum() };
        for kl in [Kl::K1, Kl::K2, Kl::K3] {
            let mut z = [2.0, -1.0, 0.0];
            let start = divergence(&softmax(&z));
            for _ in 0..200 {
                let p = softmax(&z);
                let dlogp: Vec<f64> = (0..3).map(|i| kl.token(p[i].ln(), reference[i].ln()).1).collect();
                let mean: f64 = (0..3).map(|i| p[i] * dlogp[i]).sum();
                for i in 0..3 {
                    z[i] -= 0.2 * p[i] * (dlogp[i] - mean);
                }
            }
            let end = divergence(&softmax(&z));
            assert!(start > 0.5 && end < 0.01 * start, "{kl:?}: {start} to {end}");
        }
    }

    /// Over a whole distribution, K1 and K3 have the true KL as their mean.
    #[test]
    fn k1_and_k3_are_unbiased() {
        let (p, q) = ([0.5f64, 0.3, 0.2], [0.2f64, 0.3, 0.5]);
        let truth: f64 = p.iter().zip(q).map(|(p, q)| p * (p / q).ln()).sum();
        for kl in [Kl::K1, Kl::K3] {
            let mean: f64 = p.iter().zip(q).map(|(p, q)| p * kl.token(p.ln(), q.ln()).0).sum();
            assert!((mean - truth).abs() < 1e-14, "{kl:?}");
        }
    }
}
