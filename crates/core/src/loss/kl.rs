//! Estimators of the KL divergence from a reference policy, from one sampled token.

/// An estimator of KL(policy || reference); `x = clamp(ref_logp - logp, -20, 20)` for `K3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Kl {
    /// `logp - ref_logp`: unbiased, may be negative.
    K1,
    /// `(logp - ref_logp)^2 / 2`.
    K2,
    /// `exp(x) - x - 1`, never negative, clamped to ±10: unbiased where the clamp has no effect.
    K3,
}

impl Kl {
    /// The estimate of one token and its derivative with respect to `logp`.
    ///
    /// The derivative is that of the formula above, and 0 beyond a clamp. As a gradient of the true KL, only that of
    /// `K2` is unbiased.
    pub fn token(&self, logp: f64, ref_logp: f64) -> (f64, f64) {
        let d = logp - ref_logp;
        match self {
            Self::K1 => (d, 1.0),
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
        close(Kl::K1.token(logp, reference), (-ln2, 1.0));
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
        for kl in [Kl::K1, Kl::K2, Kl::K3] {
            for d in [-8.0, -1.5, -0.1, 0.2, 1.0, 2.2] {
                let f = |logp: f64| kl.token(logp, -2.0).0;
                let wanted = (f(-2.0 - d + h) - f(-2.0 - d - h)) / (2.0 * h);
                let found = kl.token(-2.0 - d, -2.0).1;
                assert!(
                    (found - wanted).abs() < 1e-6 * (1.0 + wanted.abs()),
                    "{kl:?} at {d}: {found} {wanted}"
                );
            }
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
