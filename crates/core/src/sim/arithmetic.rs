//! The inner loops of the simulation: one optimizer step and one exponential per slot, and the sums for the metrics.
//!
//! Every loop runs over whole blocks of [`BLOCK`] slots in a fixed order, with sums in eight lanes, and
//! is compiled for AVX-512, AVX2 and the baseline. No multiplication is fused with an addition, and
//! division and root are exact by IEEE 754, so all three give the same bits.

/// Number of slots in a block. The length of every array is a multiple of it.
pub(super) const BLOCK: usize = 64;
const LANES: usize = 8;

/// Returns `e^x` with an error of about one unit in the last place. Returns 0 below -708 and infinity above 709.
///
/// Range reduction by multiples of ln 2 in two parts, then Taylor's polynomial of degree 13 on
/// `[-ln 2 / 2, ln 2 / 2]`, whose remainder is below 2^-57.
#[inline(always)]
pub(super) fn exp(x: f64) -> f64 {
    // Adding 1.5 * 2^52 rounds to an integer and leaves that integer in the low bits.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    const LN2_HIGH: f64 = 6.931_471_803_691_238e-1;
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    let shifted = x * std::f64::consts::LOG2_E + ROUND;
    let k = shifted - ROUND;
    let r = (x - k * LN2_HIGH) - k * LN2_LOW;
    let r2 = r * r;
    let r4 = r2 * r2;
    // sum of r^i / (i + 2)! for i in 0..=11, in independent pieces.
    let a = (0.5 + r * (1.0 / 6.0)) + r2 * (1.0 / 24.0 + r * (1.0 / 120.0));
    let b = (1.0 / 720.0 + r * (1.0 / 5_040.0)) + r2 * (1.0 / 40_320.0 + r * (1.0 / 362_880.0));
    let c = (1.0 / 3_628_800.0 + r * (1.0 / 39_916_800.0))
        + r2 * (1.0 / 479_001_600.0 + r * (1.0 / 6_227_020_800.0));
    let tail = a + r4 * (b + r4 * c);
    let power = f64::from_bits((shifted.to_bits() << 52).wrapping_add(1023 << 52));
    let y = power + power * (r + r2 * tail);
    if x < -708.0 {
        0.0
    } else if x > 709.0 {
        f64::INFINITY
    } else {
        y
    }
}

/// Returns `w e^d` for `|d| <= MAX_MOVE`, by Taylor's polynomial of degree 9, whose remainder is below 2^-54.
#[inline(always)]
fn grown(w: f64, d: f64) -> f64 {
    let d2 = d * d;
    let d4 = d2 * d2;
    let low = (0.5 + d * (1.0 / 6.0)) + d2 * (1.0 / 24.0 + d * (1.0 / 120.0));
    let high = (1.0 / 720.0 + d * (1.0 / 5_040.0)) + d2 * (1.0 / 40_320.0 + d * (1.0 / 362_880.0));
    w + w * (d + d2 * (low + d4 * high))
}

/// Largest change of a logit for which [`grown`] may update its weight.
pub(super) const MAX_MOVE: f64 = 0.08;

/// The values of one step that all slots of a class share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rates {
    /// Gradient of an action per draw of it: focal weight * advantage / N.
    pub(super) per_draw: f64,
    /// Value subtracted from every action's gradient under the probability surrogate, or 0 under the ratio surrogate.
    pub(super) baseline: f64,
    /// 1 / total weight, which converts weights to probabilities.
    pub(super) per_weight: f64,
    /// Factor of the logit: 1 - lr * weight decay.
    pub(super) decay: f64,
    /// AdamW: lr / (1 - beta1^t); SGD: lr.
    pub(super) rate: f64,
    pub(super) beta1: f64,
    pub(super) beta2: f64,
    /// sqrt(beta2).
    pub(super) root_beta2: f64,
    /// 1 / sqrt(1 - beta2^t).
    pub(super) root: f64,
    pub(super) eps: f64,
    /// Weights are exp(logit - shift).
    pub(super) shift: f64,
    /// Whether this step computes weights from the logits. Otherwise it updates them from the changes of the logits, which are
    /// at most [`MAX_MOVE`].
    pub(super) exact: bool,
}

/// State of an action: logit `z`, running mean `m` and root mean square `s` of the gradient, and weight `w`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct State {
    pub(super) z: f64,
    pub(super) m: f64,
    pub(super) s: f64,
    pub(super) w: f64,
}

impl State {
    /// Takes one step after `count` draws.
    #[inline(always)]
    pub(super) fn step<const PROBABILITY: bool, const ADAM: bool, const EXACT: bool>(
        self,
        count: f64,
        r: &Rates,
    ) -> Self {
        let Self { z, mut m, mut s, w } = self;
        let mut g = count * r.per_draw;
        if PROBABILITY {
            g = (g - r.baseline) * (w * r.per_weight);
        }
        let d = if ADAM {
            m = r.beta1 * m + (1.0 - r.beta1) * g;
            s = (r.beta2 * (s * s) + (1.0 - r.beta2) * (g * g)).sqrt();
            r.rate * m / (s * r.root + r.eps)
        } else {
            r.rate * g
        };
        if EXACT {
            let z = z * r.decay + d;
            Self { z, m, s, w: exp(z - r.shift) }
        } else {
            Self { z: z + d, m, s, w: grown(w, d) }
        }
    }

    /// Takes one step without a draw under the ratio surrogate. The gradient is 0, so both moments only shrink, which
    /// doesn't need a square root.
    #[inline(always)]
    fn coast<const EXACT: bool>(self, r: &Rates) -> Self {
        let Self { z, m, s, w } = self;
        let (m, s) = (r.beta1 * m, r.root_beta2 * s);
        let d = r.rate * m / (s * r.root + r.eps);
        let z = if EXACT { z * r.decay + d } else { z + d };
        Self { z, m, s, w: if EXACT { exp(z - r.shift) } else { grown(w, d) } }
    }
}

/// Slot arrays, all of the same length, which is a multiple of [`BLOCK`]. `block` and `drawn` have one entry per block.
pub(super) struct Arrays<'a> {
    pub(super) z: &'a mut [f64],
    pub(super) m: &'a mut [f64],
    pub(super) s: &'a mut [f64],
    pub(super) w: &'a mut [f64],
    pub(super) count: &'a [u32],
    pub(super) block: &'a mut [f64],
    /// For each block, a bit mask of the slots that may have been drawn.
    pub(super) drawn: &'a [u64],
}

/// Maximum number of drawn slots in a block that are stepped one by one, separately from the other slots.
const FEW: u32 = 6;

/// Sums that the metrics need, over slots with weight `w = exp(logit - shift)`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Sums {
    /// Sum of w.
    pub(super) weight: f64,
    /// Sum of w (z - shift).
    pub(super) energy: f64,
    /// Lost weight: the sum of max(0, start - w), where `start` is an action's weight before training.
    pub(super) lost: f64,
}

#[inline(always)]
fn lanes(x: &[f64; BLOCK]) -> f64 {
    let mut sum = [0.0; LANES];
    for row in x.chunks_exact(LANES) {
        for (s, x) in sum.iter_mut().zip(row) {
            *s += x;
        }
    }
    ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]))
}

#[inline(always)]
fn update_blocks<const PROBABILITY: bool, const ADAM: bool>(a: Arrays<'_>, r: &Rates) {
    if r.exact {
        update_all::<PROBABILITY, ADAM, true>(a, r);
    } else {
        update_all::<PROBABILITY, ADAM, false>(a, r);
    }
}

#[inline(always)]
fn update_all<const PROBABILITY: bool, const ADAM: bool, const EXACT: bool>(a: Arrays<'_>, r: &Rates) {
    let z = a.z.as_chunks_mut::<BLOCK>().0;
    let m = a.m.as_chunks_mut::<BLOCK>().0;
    let s = a.s.as_chunks_mut::<BLOCK>().0;
    let w = a.w.as_chunks_mut::<BLOCK>().0;
    let count = a.count.as_chunks::<BLOCK>().0;
    let sums = a.block.iter_mut().zip(a.drawn);
    for (((((z, m), s), w), count), (sum, &drawn)) in z.iter_mut().zip(m).zip(s).zip(w).zip(count).zip(sums) {
        let state = |z: &[f64; BLOCK], m: &[f64; BLOCK], s: &[f64; BLOCK], w: &[f64; BLOCK], i: usize| {
            State { z: z[i], m: m[i], s: s[i], w: w[i] }
        };
        if ADAM && !PROBABILITY && drawn.count_ones() <= FEW {
            let mut stepped = [(0, State { z: 0.0, m: 0.0, s: 0.0, w: 0.0 }); FEW as usize];
            let mut bits = drawn;
            for slot in &mut stepped[..drawn.count_ones() as usize] {
                let i = bits.trailing_zeros() as usize;
                bits &= bits - 1;
                *slot = (i, state(z, m, s, w, i).step::<false, true, EXACT>(f64::from(count[i]), r));
            }
            for i in 0..BLOCK {
                let new = state(z, m, s, w, i).coast::<EXACT>(r);
                (z[i], m[i], s[i], w[i]) = (new.z, new.m, new.s, new.w);
            }
            for &(i, new) in &stepped[..drawn.count_ones() as usize] {
                (z[i], m[i], s[i], w[i]) = (new.z, new.m, new.s, new.w);
            }
        } else {
            for i in 0..BLOCK {
                let new = state(z, m, s, w, i).step::<PROBABILITY, ADAM, EXACT>(f64::from(count[i]), r);
                (z[i], w[i]) = (new.z, new.w);
                if ADAM {
                    (m[i], s[i]) = (new.m, new.s);
                }
            }
        }
        *sum = lanes(w);
    }
}

#[inline(always)]
fn sum_blocks(z: &[f64], w: &[f64], shift: f64, start: f64) -> Sums {
    let (mut weight, mut energy, mut lost) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
    let rows = z.as_chunks::<LANES>().0.iter().zip(w.as_chunks::<LANES>().0);
    for (z, w) in rows {
        for i in 0..LANES {
            weight[i] += w[i];
            // Padding has weight 0 and a logit of minus infinity, so it adds nothing to either sum.
            energy[i] += if w[i] > 0.0 { w[i] * (z[i] - shift) } else { 0.0 };
            lost[i] += if w[i] < start && z[i] > f64::NEG_INFINITY { start - w[i] } else { 0.0 };
        }
    }
    let sum = |x: [f64; LANES]| ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
    Sums { weight: sum(weight), energy: sum(energy), lost: sum(lost) }
}

/// Returns the sum over slots of count * w.
#[inline(always)]
fn drawn_blocks(w: &[f64], count: &[u32]) -> f64 {
    let mut sum = [0.0; LANES];
    for (w, count) in w.as_chunks::<LANES>().0.iter().zip(count.as_chunks::<LANES>().0) {
        for i in 0..LANES {
            sum[i] += w[i] * f64::from(count[i]);
        }
    }
    sum.iter().sum()
}

/// Compiles a function for three instruction sets and uses the widest that this processor supports.
macro_rules! for_every_processor {
    ($(#[$doc:meta])* $name:ident $([$($c:ident),*])? ($($arg:ident : $ty:ty),*) $(-> $ret:ty)? = $body:ident) => {
        $(#[$doc])*
        pub(super) fn $name $(<$(const $c: bool),*>)? ($($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
                fn avx512 $(<$(const $c: bool),*>)? ($($arg: $ty),*) $(-> $ret)? { $body $(::<$($c),*>)? ($($arg),*) }
                #[target_feature(enable = "avx2")]
                fn avx2 $(<$(const $c: bool),*>)? ($($arg: $ty),*) $(-> $ret)? { $body $(::<$($c),*>)? ($($arg),*) }
                if is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                {
                    // SAFETY: the condition above checks that the processor has the instructions.
                    return unsafe { avx512 $(::<$($c),*>)? ($($arg),*) };
                }
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: as above.
                    return unsafe { avx2 $(::<$($c),*>)? ($($arg),*) };
                }
            }
            $body $(::<$($c),*>)? ($($arg),*)
        }
    };
}

for_every_processor! {
    /// Takes one step of every slot: updates moments, logit, weight, and the blocks' sums of weights.
    update [PROBABILITY, ADAM] (a: Arrays<'_>, r: &Rates) = update_blocks
}
for_every_processor! {
    /// Returns the metrics' sums over slots; `start` is the weight below which an action has lost mass.
    sums (z: &[f64], w: &[f64], shift: f64, start: f64) -> Sums = sum_blocks
}
for_every_processor! {
    /// Returns the sum over slots of draws times weight.
    drawn_weight (w: &[f64], count: &[u32]) -> f64 = drawn_blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn exponential_is_the_libraries_to_two_units_in_the_last_place(x in -708.0..709.0f64) {
            let (actual, expected) = (exp(x), x.exp());
            prop_assert!((actual - expected).abs() <= 2.0 * f64::EPSILON * expected, "exp({x}): {actual} {expected}");
        }
    }

    proptest! {
        #[test]
        fn a_weight_follows_small_movements_to_two_units_in_the_last_place(d in -MAX_MOVE..MAX_MOVE) {
            prop_assert!((grown(3.0, d) - 3.0 * d.exp()).abs() <= 2.0 * f64::EPSILON * 3.0 * d.exp());
        }
    }

    #[test]
    fn exponential_has_the_right_ends() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f64::NEG_INFINITY), 0.0);
        assert_eq!(exp(-800.0), 0.0);
        assert_eq!(exp(800.0), f64::INFINITY);
        assert!(exp(f64::NAN).is_nan());
    }

    #[test]
    fn every_instruction_set_gives_the_same_bits() {
        let n = 4 * BLOCK;
        let start: Vec<f64> = (0..n).map(|i| (i as f64 * 0.37).sin() * 5.0).collect();
        let counts: Vec<u32> = (0..n as u32).map(|i| i * i % 7).collect();
        let rates = Rates {
            per_draw: 0.013,
            baseline: 0.002,
            per_weight: 0.01,
            decay: 0.999,
            rate: 0.07,
            beta1: 0.9,
            beta2: 0.999,
            root_beta2: 0.999f64.sqrt(),
            root: 3.1,
            eps: 1e-8,
            shift: 1.5,
            exact: false,
        };
        let drawn = [0, 0b1010, u64::MAX, 0];
        let run = |fast: bool| {
            let (mut z, mut m, mut s) = (start.clone(), vec![0.0; n], vec![0.0; n]);
            let mut w: Vec<f64> = z.iter().map(|z| exp(z - 1.5)).collect();
            let mut block = vec![0.0; n / BLOCK];
            for step in 0..20 {
                let rates = Rates { exact: step % 4 == 0, ..rates };
                let a = Arrays {
                    z: &mut z,
                    m: &mut m,
                    s: &mut s,
                    w: &mut w,
                    count: &counts,
                    block: &mut block,
                    drawn: &drawn,
                };
                match (fast, step % 2) {
                    (true, 0) => update::<true, true>(a, &rates),
                    (true, _) => update::<false, true>(a, &rates),
                    (false, 0) => update_blocks::<true, true>(a, &rates),
                    (false, _) => update_blocks::<false, true>(a, &rates),
                }
            }
            let metrics = if fast { sums(&z, &w, 1.5, 0.1) } else { sum_blocks(&z, &w, 1.5, 0.1) };
            (z, m, s, w, block, metrics)
        };
        assert_eq!(run(true), run(false));
    }
}
