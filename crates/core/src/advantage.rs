//! Computes group advantages: one number per completion, which later applies to each of its tokens.
//!
//! [`Advantage`] has one variant per estimator. Estimators don't depend on the loss, and the focal weight
//! ([`crate::focal`]) and the shaping of rewards and advantages ([`crate::credit`]) can be combined with any estimator.
//!
//! Most estimators compare a completion only with its group. Some also read the batch, which is all groups of a step. So
//! each estimator has a formula within a group (`within`), and some also have a formula across the batch (`across`).

#[cfg(feature = "serde")]
use crate::default::{ratio, whole};
use crate::error::{Error, require};
use crate::group::{Group, Part, Rewards};

/// An estimator, which compares a completion's reward with the rewards of its group.
///
/// Below, `R` is a completion's reward, `u` is 1 if it is correct and else 0, `T` is its length in tokens, `mu` and `s`
/// are the mean and standard deviation of the group's `n` scored rewards, `c` of which are correct, and `p = c / n`.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "snake_case"))]
pub enum Advantage {
    /// `(R - mu) / (s + eps)`. Source: F-GRPO, equation "GRPO advantage".
    Grpo {
        /// Added to the standard deviation.
        #[cfg_attr(feature = "serde", serde(default = "ratio::<1, 1_000_000>"))]
        eps: f64,
        /// Delta degrees of freedom: 1 divides by n - 1, 0 by n.
        #[cfg_attr(feature = "serde", serde(default = "whole::<1>"))]
        ddof: usize,
    },
    /// `R - mu`. Source: Dr. GRPO (arXiv 2503.20783).
    DrGrpo,
    /// `(R - mu) n / (n - 1)`, which is `R` minus the mean of the other rewards. Source: RLOO (arXiv 2402.14740).
    Rloo,
    /// `(u - p) / (p + 1e-6)`. All are 0 if no completion is correct. For rewards 1 and 0, `u` is the reward. Source:
    /// MaxRL (arXiv 2602.02710).
    MaxRl,
    /// `C(n-c, k-1) / C(n-1, k-1)` for correct completions, 0 for wrong ones: the leave-one-out gradient weight of
    /// pass@k. A group with fewer than `k` scored completions has no estimate and gets 0. Source: PKPO
    /// (arXiv 2505.15201).
    Pkpo {
        /// The k of pass@k, from 1 to the group size.
        #[cfg_attr(feature = "serde", serde(default = "whole::<4>"))]
        k: usize,
    },
    /// `(u - p) p^-a (1 - p)^-b`; the advantage of a wrong completion is divided by `delta`. All are 0 if all or none
    /// are correct.
    ///
    /// For `delta` 1 and rewards 1 and 0, `(a, b)` gives these estimators: Dr. GRPO (0, 0); GRPO with the population's standard deviation (1/2, 1/2), and with
    /// the focal weight of exponent gamma (1/2, 1/2 - gamma); MaxRL (1, 0); twice DGPO's normalised advantage (1, 1);
    /// and, for many completions, PKPO less its group's mean (0, 1 - k).
    Power {
        /// Exponent of the success rate's inverse, -1024 to 8.
        #[cfg_attr(feature = "serde", serde(default = "ratio::<1, 2>"))]
        a: f64,
        /// Exponent of the failure rate's inverse, -1024 to 8.
        #[cfg_attr(feature = "serde", serde(default = "ratio::<1, 2>"))]
        b: f64,
        /// Total weight of a group's correct completions divided by the total weight of its wrong ones, above 0.
        #[cfg_attr(feature = "serde", serde(default = "ratio::<1, 1>"))]
        delta: f64,
    },
    /// GRPO on groups of `k` of the `n` completions, in expectation over all such groups, where a group is rewarded if
    /// any of its completions is correct. With `q = C(n-c, k) / C(n, k)` and `s = sqrt(q (1 - q))` it is `q / (s + 1e-6)`
    /// for correct and `(q - C(n-c-1, k-1) / C(n-1, k-1)) / (s + 1e-6)` for wrong completions. A group with fewer than
    /// `k` scored completions gets 0. Source: pass@k training (arXiv 2508.10751), the analytical form, and
    /// `code/passk_adv.py` of RUCAIBox/Passk_Training.
    PasskTraining {
        /// The k of pass@k, from 1 to the group size.
        #[cfg_attr(feature = "serde", serde(default = "whole::<4>"))]
        k: usize,
    },
    /// `(R - R2) / (s + eps)` for the completion with the largest reward, where `R2` is the second largest; 0 for the others,
    /// and for all if several completions share the largest reward. Source: arXiv 2503.19595, as verl implements it
    /// (`compute_grpo_passk_outcome_advantage`), normalised.
    GrpoPassk {
        /// Added to the standard deviation.
        #[cfg_attr(feature = "serde", serde(default = "ratio::<1, 1_000_000>"))]
        eps: f64,
    },
    /// `positive` for correct and `-negative` for wrong completions, without a baseline. The values 0.1 and 1 give
    /// W-REINFORCE, 0 and 1 NSR, 1 and 0 PSR. Source: arXiv 2506.01347, `compute_psr_nsr_outcome_advantage` of
    /// TianHongZXY/RLVR-Decomposed. There, PSR and NSR leave the other completions out of the batch; here their tokens
    /// count in the denominator of a mean.
    WReinforce {
        /// Advantage of a correct completion.
        #[cfg_attr(feature = "serde", serde(default = "ratio::<1, 10>"))]
        positive: f64,
        /// Advantage of a wrong completion, negated.
        #[cfg_attr(feature = "serde", serde(default = "ratio::<1, 1>"))]
        negative: f64,
    },
    /// `(exp(beta R) / mean exp(beta R) - 1) / beta`: risk-seeking for `beta > 0`; `R - mu` for `beta = 0`. Source: RS-GRPO
    /// (arXiv 2509.24261), `codes/risk_sensitive_adv.py` of Jackory/RS-GRPO.
    RsGrpo {
        /// Sensitivity to risk.
        #[cfg_attr(feature = "serde", serde(default = "ratio::<2, 1>"))]
        beta: f64,
    },
    /// `n (R - mu) / (sum |R - mu| + 1e-4)`, times the group's weight in the batch: the number of groups with unequal
    /// rewards times the softmax over them of `-p / temperature`. Source: DGPO (arXiv 2601.20614), `grpo_trainer.py` of
    /// AMAP-ML/MathForge. There, a mean over tokens leaves out groups with equal rewards; here that is the setting
    /// `drop_inactive_groups`.
    Dgpo {
        /// Temperature of the group weights. 0 turns the weights off.
        #[cfg_attr(feature = "serde", serde(default = "ratio::<2, 1>"))]
        temperature: f64,
    },
    /// `R - sum(T R) / sum(T)`. Source: OPO (arXiv 2505.23585).
    Opo,
    /// `(R - mu) / (s + 1e-6)` with the standard deviation `s` (ddof 1) of all rewards of the batch. Source: Lite PPO
    /// (arXiv 2508.08221), `reward_norm` of alibaba/ROLL.
    LitePpo,
    /// `(x - m) / sqrt(v + 1e-8)`, where `x = R - mu`, and `m` and `v` are the mean and variance (ddof 1) of `x` over all
    /// tokens of the batch. Source: REINFORCE++ (arXiv 2501.03262), as verl implements it.
    ReinforcePlusPlusBaseline,
    /// `(R - mu) g / m`, where `g` is the number of groups of the batch and `m` the number of groups with unequal rewards.
    /// Source: GPG (arXiv 2504.02546), `grpo_trainer.py` of AMAP-ML/GPG. verl instead counts all completions and the
    /// completions with a nonzero reward.
    Gpg,
    /// `w (x - mean x) / (s + 1e-6)` with the standard deviation `s` (ddof 1) of `x`, where `x` is `exp(-alpha z)` for
    /// correct and -1 for wrong completions, and `z` is a correct completion's length, standardised among the correct ones
    /// of its group. `w` is `0.4 + 1.1 / (1 + exp(10 (q - 0.75)))` with `q = p` for positive and `q = 1 - p` for other
    /// advantages. Source: GRPO-LEAD (arXiv 2504.09696), `core_algos.py` and `main_ppo.py` of aeroplanepaper/GRPO-LEAD.
    /// There, lengths count only in groups whose three shortest completions have more than 4,000 tokens on average.
    GrpoLead {
        /// Strength of the preference for short correct completions, 0 to 10.
        #[cfg_attr(feature = "serde", serde(default = "ratio::<1, 20>"))]
        alpha: f64,
    },
    /// `(u - p) m / M`, where `m` counts the groups of the batch with the same success rate and `M` those with at most
    /// this rate. All-correct and all-wrong groups get 0 and don't count. Rates are compared in steps of `1 / (N + 1)`
    /// for the largest group size `N`. Source: CurveRL (arXiv 2605.24331), `compute_curverl_outcome_advantage` of
    /// zhyzmath/CurveRL with `curverl_pool_num = 0`; its runs count the groups of the last ten batches.
    CurveRl,
    /// `w positive` for correct and `-w` for wrong completions, where `w = k (n-c+1) ... (n-c+k-1) / ((n+2) ... (n+k))` is
    /// the mean of pass@k's derivative `k (1 - x)^(k - 1)` over the posterior of the success probability `x`, given `c`
    /// correct of `n` and a uniform prior. All are 0 if `w < tau (n + 1)`. Source: BBG (arXiv 2606.15455), equations 8 and 9.
    Bbg {
        /// The k of pass@k, from 1 to 65536. It may exceed the group size.
        #[cfg_attr(feature = "serde", serde(default = "whole::<16>"))]
        k: usize,
        /// Fraction of `n + 1` below which a weight is 0, from 0 to 1.
        #[cfg_attr(feature = "serde", serde(default = "ratio::<1, 100>"))]
        tau: f64,
        /// Advantage of a correct completion with weight 1.
        #[cfg_attr(feature = "serde", serde(default = "ratio::<1, 1>"))]
        positive: f64,
    },
    /// GRPO's advantages, where those of correct completions are multiplied by `m |C|^-alpha / sum |C|^-alpha`. The sum is over
    /// the group's `m` correct completions, and `|C|` is the number of correct completions in the same cluster. Source: Cue-GRPO (arXiv 2608.03467), equation 3, without
    /// the stabilisation of equation 8 and with the caller's clusters.
    CueGrpo {
        /// Exponent of rarity, from 0 (GRPO) to 1 (every cluster has the same total weight).
        #[cfg_attr(feature = "serde", serde(default = "ratio::<4, 5>"))]
        alpha: f64,
    },
    /// GRPO's advantages (eps 1e-8, ddof 1), where those of correct completions are multiplied by
    /// `1 - tau + tau m v / sum v`. The sum is over the group's `m` correct completions, `v = 1 / max(q, 1e-6)`, and `q` is the softmax over them of the mean log-probability
    /// per token. Source: UCPO (arXiv 2605.00365), `compute_dgrpo_advantage_outcome_invq_l` of AnamikaLochab/UCPO.
    Ucpo {
        /// Fraction of the credit that is distributed in proportion to `1 / q`, from 0 (GRPO) to 1.
        #[cfg_attr(feature = "serde", serde(default = "ratio::<1, 5>"))]
        tau: f64,
    },
    /// For completions with several rewards: the weighted sum of each reward's `(R - mu) / (s + eps)` within the group,
    /// divided by `eps` plus the standard deviation (ddof 1) of these sums in the batch. A single reward is normalised
    /// twice. Source: GDPO (arXiv 2601.05242), as TRL implements it (`normalize_then_sum`).
    Gdpo {
        /// Added to the standard deviation.
        #[cfg_attr(feature = "serde", serde(default = "ratio::<1, 10_000>"))]
        eps: f64,
    },
    /// `(R - mu) / (s + eps)` with ddof 1. If all completions of a group are correct, `mu` and `s` include one additional
    /// reward of a wrong completion; if all are wrong, one of a correct completion. So these groups have nonzero advantages,
    /// about `1 / sqrt(n + 1)` and `-1 / sqrt(n + 1)`. Source: AVSPO (arXiv 2605.21125), `grpo_trainer.py` of hexixiang/ACR,
    /// which always adds one reward. The paper adds up to `n`, depending on how many groups have equal rewards.
    Avspo {
        /// Added to the standard deviation.
        #[cfg_attr(feature = "serde", serde(default = "ratio::<1, 10_000>"))]
        eps: f64,
    },
    /// The advantages that a Python function of the user returns for a group. The training run calls the function, which this
    /// crate can't, and passes its advantages to [`crate::credit::Credit::weigh_batch`].
    Python {
        /// The function, as `"steep.py:steep"`.
        function: String,
    },
}

/// Properties of completions that an estimator reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reads {
    /// Whether the estimator reads the values of rewards.
    pub rewards: bool,
    /// Whether the estimator reads whether each completion is correct.
    pub correct: bool,
    /// Whether the estimator reads the completions' lengths in tokens.
    pub lengths: bool,
    /// Whether the estimator reads the mean log-probabilities per token.
    pub logp: bool,
    /// Whether the estimator reads the completions' clusters.
    pub clusters: bool,
    /// Whether the estimator reads the separate rewards of completions with several.
    pub parts: bool,
}

impl Default for Advantage {
    fn default() -> Self {
        Self::GRPO
    }
}

impl Advantage {
    /// The GRPO estimator with the constants of the paper's trainer: eps 1e-6, ddof 1.
    pub const GRPO: Self = Self::Grpo { eps: 1e-6, ddof: 1 };

    /// Every estimator that this crate computes, once, with settings that are valid for all groups of at least 2.
    pub const ALL: [Self; 22] = [
        Self::GRPO,
        Self::DrGrpo,
        Self::Rloo,
        Self::MaxRl,
        Self::Pkpo { k: 2 },
        Self::Power { a: 0.5, b: 0.5, delta: 1.0 },
        Self::PasskTraining { k: 2 },
        Self::GrpoPassk { eps: 1e-6 },
        Self::WReinforce { positive: 0.1, negative: 1.0 },
        Self::RsGrpo { beta: 2.0 },
        Self::Dgpo { temperature: 2.0 },
        Self::Opo,
        Self::LitePpo,
        Self::ReinforcePlusPlusBaseline,
        Self::Gpg,
        Self::GrpoLead { alpha: 0.05 },
        Self::CurveRl,
        Self::Bbg { k: 16, tau: 0.01, positive: 1.0 },
        Self::CueGrpo { alpha: 0.8 },
        Self::Ucpo { tau: 0.2 },
        Self::Gdpo { eps: 1e-4 },
        Self::Avspo { eps: 1e-4 },
    ];

    /// Returns the estimator's name in a configuration.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Grpo { .. } => "grpo",
            Self::DrGrpo => "dr_grpo",
            Self::Rloo => "rloo",
            Self::MaxRl => "max_rl",
            Self::Pkpo { .. } => "pkpo",
            Self::Power { .. } => "power",
            Self::PasskTraining { .. } => "passk_training",
            Self::GrpoPassk { .. } => "grpo_passk",
            Self::WReinforce { .. } => "w_reinforce",
            Self::RsGrpo { .. } => "rs_grpo",
            Self::Dgpo { .. } => "dgpo",
            Self::Opo => "opo",
            Self::LitePpo => "lite_ppo",
            Self::ReinforcePlusPlusBaseline => "reinforce_plus_plus_baseline",
            Self::Gpg => "gpg",
            Self::GrpoLead { .. } => "grpo_lead",
            Self::CurveRl => "curve_rl",
            Self::Bbg { .. } => "bbg",
            Self::CueGrpo { .. } => "cue_grpo",
            Self::Ucpo { .. } => "ucpo",
            Self::Gdpo { .. } => "gdpo",
            Self::Avspo { .. } => "avspo",
            Self::Python { .. } => "python",
        }
    }

    /// Returns the properties of completions that the estimator reads.
    pub const fn reads(&self) -> Reads {
        const NOTHING: Reads = Reads {
            rewards: false,
            correct: false,
            lengths: false,
            logp: false,
            clusters: false,
            parts: false,
        };
        const REWARDS: Reads = Reads { rewards: true, ..NOTHING };
        const CORRECT: Reads = Reads { correct: true, ..NOTHING };
        match self {
            Self::Grpo { .. } | Self::DrGrpo | Self::Rloo | Self::GrpoPassk { .. } => REWARDS,
            Self::RsGrpo { .. } | Self::LitePpo | Self::Gpg => REWARDS,
            Self::Opo | Self::ReinforcePlusPlusBaseline => Reads { lengths: true, ..REWARDS },
            Self::Dgpo { temperature } => Reads { correct: *temperature > 0.0, ..REWARDS },
            Self::Avspo { .. } => Reads { correct: true, ..REWARDS },
            Self::CueGrpo { .. } => Reads { correct: true, clusters: true, ..REWARDS },
            Self::Ucpo { .. } => Reads { correct: true, logp: true, ..REWARDS },
            Self::Gdpo { .. } => Reads { parts: true, ..REWARDS },
            Self::MaxRl | Self::Pkpo { .. } | Self::Power { .. } => CORRECT,
            Self::PasskTraining { .. } | Self::WReinforce { .. } => CORRECT,
            Self::CurveRl | Self::Bbg { .. } => CORRECT,
            Self::GrpoLead { .. } => Reads { lengths: true, ..CORRECT },
            Self::Python { .. } => NOTHING,
        }
    }

    /// Returns an error if the settings don't work with groups of `group_size`: if a group has one completion, which can't
    /// be compared, if k is outside `1..=group_size`, or if a number isn't finite or is out of its range.
    pub fn check(&self, group_size: usize) -> Result<(), Error> {
        let expected = format_args!("at least 2 ({} compares the completions of a group)", self.name());
        require(group_size > 1, "group_size", group_size, expected)?;
        let require_range = |name, x: f64, low: f64, high: f64| {
            let expected = if high == f64::MAX {
                format!("a finite number of at least {low}")
            } else {
                format!("a number from {low} to {high}")
            };
            require(x.is_finite() && low <= x && x <= high, name, x, expected)
        };
        let at_least_0 = |name, x| require_range(name, x, 0.0, f64::MAX);
        match *self {
            Self::Grpo { eps, ddof } => {
                at_least_0("advantage.eps", eps)?;
                require(ddof < 2, "advantage.ddof", ddof, "0 or 1")
            }
            Self::Pkpo { k } | Self::PasskTraining { k } => {
                let expected = format_args!("1 to {group_size} (the group size)");
                require((1..=group_size).contains(&k), "advantage.k", k, expected)
            }
            // Above 8, rare successes in large groups would overflow.
            Self::Power { a, b, delta } => {
                require_range("advantage.a", a, -1024.0, 8.0)?;
                require_range("advantage.b", b, -1024.0, 8.0)?;
                let holds = delta.is_finite() && delta > 0.0;
                require(holds, "advantage.delta", delta, "a finite number above 0")
            }
            Self::GrpoPassk { eps } | Self::Gdpo { eps } | Self::Avspo { eps } => {
                at_least_0("advantage.eps", eps)
            }
            Self::WReinforce { positive, negative } => {
                at_least_0("advantage.positive", positive)?;
                at_least_0("advantage.negative", negative)?;
                let expected = "a number above 0 if advantage.negative is 0";
                require(positive + negative > 0.0, "advantage.positive", positive, expected)
            }
            Self::RsGrpo { beta } => require_range("advantage.beta", beta, -100.0, 100.0),
            Self::Dgpo { temperature } => at_least_0("advantage.temperature", temperature),
            Self::GrpoLead { alpha } => require_range("advantage.alpha", alpha, 0.0, 10.0),
            Self::Bbg { k, tau, positive } => {
                require_range("advantage.k", k as f64, 1.0, 65536.0)?;
                require_range("advantage.tau", tau, 0.0, 1.0)?;
                at_least_0("advantage.positive", positive)
            }
            Self::CueGrpo { alpha } => require_range("advantage.alpha", alpha, 0.0, 1.0),
            Self::Ucpo { tau } => require_range("advantage.tau", tau, 0.0, 1.0),
            Self::DrGrpo | Self::Rloo | Self::MaxRl | Self::Opo | Self::LitePpo | Self::Gpg => Ok(()),
            Self::ReinforcePlusPlusBaseline | Self::CurveRl | Self::Python { .. } => Ok(()),
        }
    }

    /// Returns the advantages of a batch of one group. Fails as [`Advantage::of_batch`] does.
    ///
    /// # Panics
    /// If the group's slices differ in length.
    pub fn advantages(&self, group: &Group<'_>, rewards: &Rewards) -> Result<Vec<f64>, Error> {
        self.of_batch(&[*group], rewards).map(|mut batch| batch.swap_remove(0)).map_err(|(_, e)| e)
    }

    /// Returns the advantages of all groups of a batch. Unscorable completions get 0. All completions of a group with fewer
    /// than two scored completions get 0 too, and statistics of the batch leave such a group out.
    /// Fails with the index of the first bad group and the error if a reward isn't finite, if it is neither correct nor
    /// wrong and the estimator needs to know which, or if clusters are missing that the estimator needs.
    ///
    /// # Panics
    /// If a group's slices differ in length.
    pub fn of_batch(&self, groups: &[Group<'_>], rewards: &Rewards) -> Result<Vec<Vec<f64>>, (usize, Error)> {
        let within = |(g, group): (usize, &Group<'_>)| self.within(group, rewards).map_err(|e| (g, e));
        let mut batch: Vec<Vec<f64>> = groups.iter().enumerate().map(within).collect::<Result<_, _>>()?;
        self.across(groups, rewards, &mut batch)?;
        Ok(batch)
    }

    /// Computes the part of the formula that reads only the group.
    fn within(&self, group: &Group<'_>, rewards: &Rewards) -> Result<Vec<f64>, Error> {
        group.check()?;
        let n = group.scored_len();
        if n < 2 {
            return Ok(vec![0.0; group.len()]);
        }
        // Whether each completion is correct, and the number of correct completions.
        let judged = || {
            let correct = rewards.correct(group)?;
            let c = correct.iter().filter(|&&u| u).count();
            Ok::<_, Error>((correct, c))
        };
        Ok(match *self {
            Self::Grpo { eps, ddof } => {
                let scale = deviation(group, ddof) + eps;
                centred(group, mean(group), |x| x / scale)
            }
            Self::DrGrpo | Self::LitePpo | Self::ReinforcePlusPlusBaseline | Self::Gpg => {
                centred(group, mean(group), |x| x)
            }
            Self::Rloo => {
                let factor = n as f64 / (n - 1) as f64;
                centred(group, mean(group), |x| x * factor)
            }
            Self::MaxRl => {
                let (correct, c) = judged()?;
                let mean = c as f64 / n as f64;
                spread(group, |i| {
                    if c == 0 { 0.0 } else { (f64::from(u8::from(correct[i])) - mean) / (mean + 1e-6) }
                })
            }
            Self::Pkpo { k } => {
                let (correct, c) = judged()?;
                let weight = if k > n || c == 0 { 0.0 } else { share(n - c, n - 1, k - 1) };
                spread(group, |i| if correct[i] { weight } else { 0.0 })
            }
            Self::Power { a, b, delta } => {
                let (correct, c) = judged()?;
                if c == 0 || c == n {
                    return Ok(vec![0.0; group.len()]);
                }
                let p = c as f64 / n as f64;
                let q = (n - c) as f64 / n as f64;
                let scale = p.powf(-a) * q.powf(-b);
                spread(group, |i| if correct[i] { q * scale } else { -p * scale / delta })
            }
            Self::CurveRl => {
                let (correct, c) = judged()?;
                let p = c as f64 / n as f64;
                spread(group, |i| if correct[i] { 1.0 - p } else { -p })
            }
            Self::Bbg { k, tau, positive } => {
                let (correct, c) = judged()?;
                let factors = (1..k).map(|j| (n - c + j) as f64 / (n + 1 + j) as f64);
                let weight = k as f64 * factors.product::<f64>();
                let weight = if weight < tau * (n + 1) as f64 { 0.0 } else { weight };
                spread(group, |i| if correct[i] { positive * weight } else { -weight })
            }
            Self::CueGrpo { alpha } => {
                let correct = rewards.correct(group)?;
                if group.clusters.len() != group.len() {
                    return Err(Error::NoClusters);
                }
                let in_cluster = |i: usize, j: usize| correct[j] && group.clusters[j] == group.clusters[i];
                let size = |i| (0..group.len()).filter(|&j| in_cluster(i, j)).count() as f64;
                shared(Self::GRPO.within(group, rewards)?, &correct, 1.0, |i| size(i).powf(-alpha))
            }
            Self::Ucpo { tau } => {
                let correct = rewards.correct(group)?;
                let base = Self::Grpo { eps: 1e-8, ddof: 1 }.within(group, rewards)?;
                let correct_logps = (0..group.len()).filter(|&i| correct[i]).map(|i| group.mean_old_logp[i]);
                let largest = correct_logps.clone().fold(f64::NEG_INFINITY, f64::max);
                let total: f64 = correct_logps.map(|logp| (logp - largest).exp()).sum();
                let q = |i: usize| (group.mean_old_logp[i] - largest).exp() / total;
                shared(base, &correct, tau, |i| 1.0 / q(i).max(1e-6))
            }
            Self::PasskTraining { k } => {
                let (correct, c) = judged()?;
                if k > n || c == 0 || c == n {
                    return Ok(vec![0.0; group.len()]);
                }
                let fails = share(n - c, n, k);
                let scale = (fails * (1.0 - fails)).sqrt() + 1e-6;
                let fails_with_wrong = share(n - c - 1, n - 1, k - 1);
                spread(group, |i| (if correct[i] { fails } else { fails - fails_with_wrong }) / scale)
            }
            Self::GrpoPassk { eps } => {
                let mut sorted: Vec<f64> = group.scored().map(|i| group.rewards[i]).collect();
                sorted.sort_by(|x, y| y.total_cmp(x));
                let (first, second) = (sorted[0], sorted[1]);
                let scale = deviation(group, 1) + eps;
                let lead = if first > second { (first - second) / scale } else { 0.0 };
                spread(group, |i| if group.rewards[i] == first { lead } else { 0.0 })
            }
            Self::WReinforce { positive, negative } => {
                let correct = rewards.correct(group)?;
                spread(group, |i| if correct[i] { positive } else { -negative })
            }
            Self::RsGrpo { beta: 0.0 } => centred(group, mean(group), |x| x),
            Self::RsGrpo { beta } => {
                // Relative to the largest exponent, so that no exponential overflows.
                let largest =
                    group.scored().map(|i| beta * group.rewards[i]).fold(f64::NEG_INFINITY, f64::max);
                let total: f64 = group.scored().map(|i| (beta * group.rewards[i] - largest).exp()).sum();
                let soft = (largest + (total / n as f64).ln()) / beta;
                centred(group, soft, |x| (beta * x).exp_m1() / beta)
            }
            Self::Gdpo { eps } => {
                let only = [Part { rewards: group.rewards, weight: 1.0 }];
                let mut sums = vec![0.0; group.len()];
                for part in if group.parts.is_empty() { &only } else { group.parts } {
                    let part_group = Group { rewards: part.rewards, ..*group };
                    part_group.check()?;
                    let scale = part.weight / (deviation(&part_group, 1) + eps);
                    let terms = centred(&part_group, mean(&part_group), |x| x * scale);
                    sums.iter_mut().zip(terms).for_each(|(sum, x)| *sum += x);
                }
                sums
            }
            Self::Avspo { eps } => {
                let extra = match rewards.count(group)? {
                    0 => Some(rewards.correct),
                    c if c == n => Some(rewards.wrong),
                    _ => None,
                };
                let all: Vec<f64> = group.scored().map(|i| group.rewards[i]).chain(extra).collect();
                let (mean, deviation) = moments(all.iter().copied(), 1);
                let scale = deviation + eps;
                spread(group, |i| (group.rewards[i] - mean) / scale)
            }
            Self::Python { ref function } => {
                return Err(Error::setting("advantage.function", function, "a training run, which calls it"));
            }
            Self::Dgpo { .. } => {
                let mean = mean(group);
                let extent: f64 = group.scored().map(|i| (group.rewards[i] - mean).abs()).sum();
                centred(group, mean, |x| n as f64 * x / (extent + 1e-4))
            }
            Self::Opo => {
                let tokens: f64 = group.scored().map(|i| length(group, i)).sum();
                let weighted: f64 = group.scored().map(|i| length(group, i) * group.rewards[i]).sum();
                centred(group, weighted / tokens, |x| x)
            }
            Self::GrpoLead { alpha } => {
                let (correct, c) = judged()?;
                let lengths: Vec<f64> = (0..group.len()).map(|i| length(group, i)).collect();
                let lengths_group = Group { rewards: &lengths, scored: &correct, ..*group };
                let (centre, width) =
                    (mean(&lengths_group), if c > 1 { deviation(&lengths_group, 1) } else { 1.0 });
                let brevity = |i: usize| (-alpha * (lengths[i] - centre) / (width + 1e-6)).exp();
                let shaped = spread(group, |i| if correct[i] { brevity(i) } else { -1.0 });
                let shaped = Group { rewards: &shaped, ..*group };
                let scale = deviation(&shaped, 1) + 1e-6;
                let p = c as f64 / n as f64;
                let weight = |q: f64| 0.4 + 1.1 / (1.0 + (10.0 * (q - 0.75)).exp());
                centred(&shaped, mean(&shaped), |x| x / scale * weight(if x > 0.0 { p } else { 1.0 - p }))
            }
        })
    }

    /// Computes the part of the formula that reads the whole batch, for estimators that have such a part.
    fn across(
        &self,
        groups: &[Group<'_>],
        rewards: &Rewards,
        batch: &mut [Vec<f64>],
    ) -> Result<(), (usize, Error)> {
        let compared: Vec<usize> = (0..groups.len()).filter(|&g| groups[g].scored_len() > 1).collect();
        let unequal: Vec<usize> = compared.iter().copied().filter(|&g| !equal(&groups[g])).collect();
        let mut factors = vec![1.0; groups.len()];
        match *self {
            Self::Dgpo { temperature } if temperature > 0.0 => {
                let rate = |&g: &usize| {
                    let correct = rewards.count(&groups[g]).map_err(|e| (g, e))?;
                    Ok(correct as f64 / groups[g].scored_len() as f64)
                };
                let rates: Vec<f64> = unequal.iter().map(rate).collect::<Result<_, (usize, Error)>>()?;
                let total: f64 = rates.iter().map(|p| (-p / temperature).exp()).sum();
                for (&g, p) in unequal.iter().zip(&rates) {
                    factors[g] = unequal.len() as f64 * (-p / temperature).exp() / total;
                }
            }
            Self::LitePpo => {
                let all: Vec<f64> = compared
                    .iter()
                    .flat_map(|&g| groups[g].scored().map(move |i| groups[g].rewards[i]))
                    .collect();
                let (_, deviation) = moments(all.iter().copied(), 1);
                unequal.iter().for_each(|&g| factors[g] = 1.0 / (deviation + 1e-6));
            }
            Self::ReinforcePlusPlusBaseline => {
                let places = || compared.iter().flat_map(|&g| groups[g].scored().map(move |i| (g, i)));
                let over_tokens = |value: &dyn Fn(f64) -> f64| -> f64 {
                    places().map(|(g, i)| length(&groups[g], i) * value(batch[g][i])).sum()
                };
                let tokens = over_tokens(&|_| 1.0);
                let mean = over_tokens(&|x| x) / tokens;
                let variance = over_tokens(&|x| (x - mean).powi(2)) / (tokens - 1.0);
                let scale = (variance + 1e-8).sqrt();
                places().for_each(|(g, i)| batch[g][i] = (batch[g][i] - mean) / scale);
            }
            Self::Gdpo { eps } => {
                let all = compared.iter().flat_map(|&g| groups[g].scored().map(move |i| (g, i)));
                // The mean of all sums is 0, because it is 0 within each group.
                let (squares, n) = all.fold((0.0, 0usize), |(s, n), (g, i)| (s + batch[g][i].powi(2), n + 1));
                let deviation = (squares / (n.max(2) - 1) as f64).sqrt();
                factors.fill(if squares > 0.0 { 1.0 / (deviation + eps) } else { 1.0 });
            }
            Self::CurveRl => {
                let largest = compared.iter().map(|&g| groups[g].scored_len()).max().unwrap_or(0);
                // Each group's success rate in steps of 1 / (largest + 1), or 0 for a group that doesn't count.
                let mut steps = vec![0; groups.len()];
                for &g in &compared {
                    let (c, n) = (rewards.count(&groups[g]).map_err(|e| (g, e))?, groups[g].scored_len());
                    steps[g] = if c < n { c * (largest + 1) / n } else { 0 };
                }
                let count =
                    |from: usize, to: usize| steps.iter().filter(|s| (from..=to).contains(*s)).count() as f64;
                let factor = |&s: &usize| if s == 0 { 0.0 } else { count(s, s) / count(1, s) };
                factors = steps.iter().map(factor).collect();
            }
            Self::Gpg => {
                let factor = compared.len() as f64 / unequal.len() as f64;
                unequal.iter().for_each(|&g| factors[g] = factor);
            }
            Self::Dgpo { .. } | Self::Grpo { .. } | Self::DrGrpo | Self::Rloo | Self::MaxRl => return Ok(()),
            Self::Pkpo { .. } | Self::Power { .. } | Self::PasskTraining { .. } => return Ok(()),
            Self::GrpoPassk { .. } | Self::WReinforce { .. } | Self::RsGrpo { .. } => return Ok(()),
            Self::Opo | Self::GrpoLead { .. } | Self::Avspo { .. } => return Ok(()),
            Self::Bbg { .. } | Self::CueGrpo { .. } | Self::Ucpo { .. } => return Ok(()),
            Self::Python { .. } => return Ok(()),
        }
        for (advantages, factor) in batch.iter_mut().zip(factors) {
            advantages.iter_mut().for_each(|a| *a *= factor);
        }
        Ok(())
    }
}

pub(crate) fn moments(values: impl Iterator<Item = f64> + Clone, ddof: usize) -> (f64, f64) {
    let n = values.clone().count();
    let mean = values.clone().sum::<f64>() / n as f64;
    let squares: f64 = values.map(|x| (x - mean).powi(2)).sum();
    (mean, (squares / (n.max(ddof + 1) - ddof) as f64).sqrt())
}

fn mean(group: &Group<'_>) -> f64 {
    moments(group.scored().map(|i| group.rewards[i]), 0).0
}

fn deviation(group: &Group<'_>, ddof: usize) -> f64 {
    moments(group.scored().map(|i| group.rewards[i]), ddof).1
}

/// Returns a completion's length in tokens. An empty completion counts as one token, so that every completion has a weight.
fn length(group: &Group<'_>, completion: usize) -> f64 {
    group.lengths[completion].max(1) as f64
}

fn equal(group: &Group<'_>) -> bool {
    let mut rewards = group.scored().map(|i| group.rewards[i]);
    let first = rewards.next();
    rewards.all(|r| Some(r) == first)
}

fn spread(group: &Group<'_>, value: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut all = vec![0.0; group.len()];
    for i in group.scored() {
        all[i] = value(i);
    }
    all
}

/// Returns `f(R - mean)` of each completion, or exactly 0 if all rewards are equal, because the mean of equal rewards may
/// have a rounding error, which a small `eps` would amplify.
fn centred(group: &Group<'_>, mean: f64, f: impl Fn(f64) -> f64) -> Vec<f64> {
    if equal(group) { vec![0.0; group.len()] } else { spread(group, |i| f(group.rewards[i] - mean)) }
}

/// Redistributes advantages among a group's `m` correct completions in proportion to `v`: multiplies each by
/// `1 - share + share m v / sum v`.
fn shared(mut advantages: Vec<f64>, correct: &[bool], share: f64, v: impl Fn(usize) -> f64) -> Vec<f64> {
    let correct_indices = || (0..correct.len()).filter(|&i| correct[i]);
    let mean = correct_indices().map(&v).sum::<f64>() / correct_indices().count() as f64;
    correct_indices().for_each(|i| advantages[i] *= 1.0 - share + share * v(i) / mean);
    advantages
}

/// Returns `C(a, k) / C(n, k)` for `a <= n` and `k <= n`, the probability that `k` draws without replacement from `n`
/// things are all from a subset of `a` things.
fn share(a: usize, n: usize, k: usize) -> f64 {
    if a < k {
        return 0.0;
    }
    (0..k).map(|j| (a - j) as f64 / (n - j) as f64).product()
}

#[cfg(test)]
mod tests;
