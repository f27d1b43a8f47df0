//! AdamW in f32, with split weights and with rounded moments, and the norm of the gradient.

use super::*;
use fgrpo_cuda::Address;

#[test]
fn a_master_splits_into_two_halves_and_comes_back_bit_for_bit() {
    let mut values = numbers(20, 500);
    values.extend([
        0.0,
        -0.0,
        1.0,
        -1.5,
        3.0e38,
        1e-38,
        f32::MIN_POSITIVE,
        f32::from_bits(0x3f80_8000),
        f32::from_bits(0xbf81_8000),
    ]);
    let count = values.len();
    let (high, back) = in_every_order(|d| {
        let (w, high, low) = (
            memory(d, &values),
            Memory::<u16>::new(d, count).unwrap(),
            Memory::<u16>::new(d, count).unwrap(),
        );
        let back = Memory::<f32>::new(d, count).unwrap();
        let shape = Shape::covering(count, 64);
        launch(
            d,
            "split_master",
            shape,
            &[(&w).into(), (&high).into(), (&low).into(), (count as u64).into()],
        );
        launch(
            d,
            "join_master",
            shape,
            &[(&high).into(), (&low).into(), (&back).into(), (count as u64).into()],
        );
        (high.read().unwrap(), back.read().unwrap().iter().map(|v| v.to_bits()).collect::<Vec<u32>>())
    });
    assert_eq!(back, values.iter().map(|v| v.to_bits()).collect::<Vec<_>>());
    // The network reads the nearest 16-bit number.
    for (&h, &v) in high.iter().zip(&values) {
        let off = (f64::from(f32::from_bits(u32::from(h) << 16)) - f64::from(v)).abs();
        assert!(off <= f64::from(v).abs() / 256.0 + 1e-40, "{v}");
    }
}

#[test]
fn adamw_over_split_masters_takes_the_steps_of_f32() {
    let count = 300;
    let (w, g) = (numbers(21, count), numbers(22, 3 * count));
    let [lr, beta1, beta2, eps, decay, clip] = [1e-2f32, 0.9, 0.999, 1e-8, 0.01, 0.5];
    let (plain, split, rest) = in_every_order(|d| {
        let shape = Shape::covering(count, 64);
        let zero = vec![0.0f32; count];
        let (plain, m, v) = (memory(d, &w), memory(d, &zero), memory(d, &zero));
        let (high, low) = (Memory::<u16>::new(d, count).unwrap(), Memory::<u16>::new(d, count).unwrap());
        let (m16, v16, joined) = (memory(d, &zero), memory(d, &zero), Memory::<f32>::new(d, count).unwrap());
        let n = Argument::U64(count as u64);
        launch(d, "split_master", shape, &[(&plain).into(), (&high).into(), (&low).into(), n]);
        let mut rest = Vec::new();
        for step in 0..3 {
            let (g32, g16) = (memory(d, &g[step * count..][..count]), memory(d, &g[step * count..][..count]));
            let [left1, left2] = [beta1, beta2].map(|b| 1.0 - b.powi(step as i32 + 1));
            let (rate, root) = (lr / left1, 1.0 / left2.sqrt());
            let numbers = [clip, 1.0 - beta1, beta2, 1.0 - beta2, eps, 1.0 - lr * decay, rate, root];
            let numbers = numbers.map(Argument::F32);
            let mut arguments: Vec<Argument> = vec![(&plain).into(), (&g32).into(), (&m).into(), (&v).into()];
            arguments.extend(numbers);
            arguments.push(n);
            launch(d, "adamw_f32", shape, &arguments);
            let mut arguments: Vec<Argument> =
                vec![(&high).into(), (&low).into(), (&g16).into(), (&m16).into(), (&v16).into()];
            arguments.extend(numbers);
            arguments.push(n);
            launch(d, "adamw_bf16", shape, &arguments);
            rest = g16.read().unwrap();
        }
        launch(d, "join_master", shape, &[(&high).into(), (&low).into(), (&joined).into(), n]);
        (plain.read().unwrap(), joined.read().unwrap(), rest)
    });
    assert_eq!(plain, split);
    assert!(rest.iter().all(|&g| g == 0.0));
    for i in 0..count {
        let (mut x, mut m, mut v) = (f64::from(w[i]), 0.0, 0.0);
        for step in 0..3 {
            let g = f64::from(g[step * count + i]) * f64::from(clip);
            let (b1, b2) = (f64::from(beta1), f64::from(beta2));
            m = b1 * m + (1.0 - b1) * g;
            v = b2 * v + (1.0 - b2) * g * g;
            x *= 1.0 - f64::from(lr) * f64::from(decay);
            let t = step as i32 + 1;
            x -=
                f64::from(lr) * (m / (1.0 - b1.powi(t))) / ((v / (1.0 - b2.powi(t))).sqrt() + f64::from(eps));
        }
        close(&[plain[i]], &[x], 1e-5, "w");
    }
}

/// The numbers of a step in the form that kernels take.
struct Numbers {
    clip: f32,
    take1: f32,
    beta2: f32,
    take2: f32,
    rate: f32,
    root: f32,
}

/// A step on `count` values. `rounded` has the step and the first parameter, for moments in 16 bits.
fn adamw(
    d: &Arc<dyn Driver>,
    kernel: &'static str,
    (count, threads): (usize, u32),
    places: &[Address],
    numbers: &Numbers,
    rounded: Option<[u64; 2]>,
) {
    let Numbers { clip, take1, beta2, take2, rate, root } = *numbers;
    let (eps, decay) = (1e-8, 0.999);
    let mut arguments: Vec<Argument> = places.iter().map(|&place| place.into()).collect();
    arguments.extend([clip, take1, beta2, take2, eps, decay, rate, root].map(Argument::F32));
    arguments.push(Argument::U64(count as u64));
    arguments.extend(rounded.into_iter().flatten().map(Argument::U64));
    launch(d, kernel, Shape::covering(count, threads), &arguments);
}

/// The bits that round a parameter's moments in a step: the low 16 of the first one, the high 16 of the second.
fn random_bits(step: u64, parameter: u64) -> [u32; 2] {
    let mut z =
        step.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(parameter.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    [(z & 0xffff) as u32, (z >> 48) as u32]
}

fn round_stochastically(v: f32, random: u32) -> u16 {
    if !v.is_finite() {
        return to_bf16(&[v])[0];
    }
    let sum = f32::from_bits(v.to_bits() + random);
    ((if sum.is_finite() { sum } else { v }).to_bits() >> 16) as u16
}

#[test]
fn rounded_moments_are_those_of_f32_rounded_by_bits_of_step_and_parameter_in_every_launch() {
    let count = 300;
    let (w, g) = (numbers(31, count), numbers(32, 4 * count));
    for (first, split) in [(0, false), ((1 << 33) + 5, false), ((1 << 33) + 5, true)] {
        let found = in_every_order(|d| {
            let f32s = || memory(d, &vec![0.0f32; count]);
            let [m, v, m_parts, v_parts] = [0; 4].map(|_| memory(d, &vec![0u16; count]));
            let stores = [0; 3].map(|_| (memory(d, &w), memory(d, &vec![0u16; count])));
            let high = [0; 3].map(|_| memory(d, &vec![0u16; count]));
            let n = Argument::U64(count as u64);
            let shape = Shape::covering(count, 64);
            for ((full, low), high) in stores.iter().zip(&high) {
                launch(d, "split_master", shape, &[full.into(), high.into(), low.into(), n]);
            }
            let mut rounded = Vec::new();
            for step in 1..=4u64 {
                let [left1, left2] = [0.9f32, 0.999].map(|beta| 1.0 - beta.powi(step as i32));
                let numbers = Numbers {
                    clip: 0.5,
                    take1: 0.1,
                    beta2: 0.999,
                    take2: 1e-3,
                    rate: 1e-2 / left1,
                    root: 1.0 / left2.sqrt(),
                };
                let gradient = || memory(d, &g[(step as usize - 1) * count..][..count]);
                let of = |place: usize, from: usize| match split {
                    false => vec![stores[place].0.at(from)],
                    true => vec![high[place].at(from), stores[place].1.at(from)],
                };
                let [plain, kernel] = match split {
                    false => ["adamw_f32", "adamw_rounded_f32"],
                    true => ["adamw_bf16", "adamw_rounded_bf16"],
                };
                // In f32 from the same moments.
                let (m_full, v_full, g_full) = (f32s(), f32s(), gradient());
                m_full.write(0, &from_bf16(&m.read().unwrap())).unwrap();
                v_full.write(0, &from_bf16(&v.read().unwrap())).unwrap();
                let places = [of(0, 0), vec![g_full.at(0), m_full.at(0), v_full.at(0)]].concat();
                adamw(d, plain, (count, 64), &places, &numbers, None);
                // In one launch, and in two launches of other shapes.
                let (g_whole, g_parts) = (gradient(), gradient());
                let places = [of(1, 0), vec![g_whole.at(0), m.at(0), v.at(0)]].concat();
                adamw(d, kernel, (count, 64), &places, &numbers, Some([step, first]));
                for (from, part, threads) in [(0, 100, 32), (100, count - 100, 96)] {
                    let places = [of(2, from), vec![g_parts.at(from), m_parts.at(from), v_parts.at(from)]];
                    let rounded = Some([step, first + from as u64]);
                    adamw(d, kernel, (part, threads), &places.concat(), &numbers, rounded);
                }
                for gradient in [&g_whole, &g_parts] {
                    assert!(gradient.read().unwrap().iter().all(|&g| g == 0.0));
                }
                let exact = [m_full.read().unwrap(), v_full.read().unwrap()];
                let wanted = [0, 1].map(|moment| {
                    let bits = |i: usize| random_bits(step, first + i as u64)[moment];
                    (0..count).map(|i| round_stochastically(exact[moment][i], bits(i))).collect::<Vec<u16>>()
                });
                assert_eq!([m.read().unwrap(), v.read().unwrap()], wanted, "step {step}");
                assert_eq!([m_parts.read().unwrap(), v_parts.read().unwrap()], wanted, "step {step}");
                rounded.push(wanted);
                // The weights' step is computed before the moments are rounded.
                let weights = [0, 1, 2].map(|place| match split {
                    false => stores[place].0.read().unwrap().iter().map(|w| w.to_bits()).collect::<Vec<_>>(),
                    true => {
                        let halves = [high[place].read().unwrap(), stores[place].1.read().unwrap()];
                        halves.concat().into_iter().map(u32::from).collect()
                    }
                });
                assert!(weights[0] == weights[1] && weights[0] == weights[2], "step {step}");
            }
            rounded
        });
        // A moment is rounded up as often as down.
        assert!(found.iter().flatten().flatten().any(|&bits| bits != 0));
    }
}

/// Settings with which the first moment becomes the gradient and the second one its square.
const GRADIENT: Numbers = Numbers { clip: 1.0, take1: 1.0, beta2: 0.0, take2: 1.0, rate: 0.0, root: 1.0 };

/// The moments after a step from zeros by [`GRADIENT`].
fn rounded_gradient(d: &Arc<dyn Driver>, gradient: &[f32], step: u64) -> [Vec<u16>; 2] {
    let count = gradient.len();
    let [m, v] = [0; 2].map(|_| memory(d, &vec![0u16; count]));
    let (w, g) = (memory(d, &vec![0.0f32; count]), memory(d, gradient));
    let places = [w.at(0), g.at(0), m.at(0), v.at(0)];
    adamw(d, "adamw_rounded_f32", (count, 256), &places, &GRADIENT, Some([step, 0]));
    [m, v].map(|moment| moment.read().unwrap())
}

#[test]
fn stochastic_rounding_keeps_numbers_of_16_bits_signs_and_what_is_not_finite() {
    let most = f32::from_bits(0x7f7f_ffff);
    let values =
        [0.0, 1.0, -2.5, 1e-40, -1e-40, 3e-39, most, -most, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    let gradient: Vec<f32> = values.into_iter().flat_map(|value| [value; 100]).collect();
    let [m, _] = in_every_order(|d| rounded_gradient(d, &gradient, 3));
    for (i, (&found, &value)) in from_bf16(&m).iter().zip(&gradient).enumerate() {
        if value.is_nan() {
            assert!(found.is_nan(), "NaN became {found}");
            continue;
        }
        assert_eq!(m[i], round_stochastically(value, random_bits(3, i as u64)[0]), "{value}");
        if value.to_bits() & 0xffff == 0 {
            assert_eq!(found.to_bits(), value.to_bits());
        }
        assert_eq!(found.is_finite(), value.is_finite(), "{value}");
        assert_eq!(found.is_sign_positive(), value.is_sign_positive(), "{value}");
    }
}

#[test]
fn the_mean_of_stochastically_rounded_numbers_is_the_number() {
    let (count, steps) = (2048, 32);
    // Six standard deviations of the number of events with probability p. Pairs overlap, so each event is in two of them.
    let near = |found: usize, p: f64, of: usize, pairs: bool, what: &str| {
        let deviation = (of as f64 * p * (1.0 - p) * if pairs { 3.0 } else { 1.0 }).sqrt();
        let off = (found as f64 - p * of as f64).abs();
        assert!(off <= 6.0 * deviation, "{what}: {found} of {of}, wanted {p}");
    };
    for gradient in [1.000_1f32, 1.6, -0.7, 3.003e-3, -1.2e-20] {
        let exact = [gradient, gradient * gradient];
        let below = exact.map(|x| (x.to_bits() >> 16) as u16);
        let share = exact.map(|x| f64::from(x.to_bits() & 0xffff) / 65536.0);
        // Whether each was rounded away from 0, by moment, step and parameter.
        let mut away = [Vec::new(), Vec::new()];
        let d = device(0);
        for step in 1..=steps {
            let found = rounded_gradient(&d, &vec![gradient; count], step);
            for (moment, found) in found.into_iter().enumerate() {
                assert!(found.iter().all(|&x| x == below[moment] || x == below[moment] + 1));
                away[moment].extend(found.into_iter().map(|x| x != below[moment]));
            }
        }
        let pairs = |a: &[bool], b: &[bool]| a.iter().zip(b).filter(|(a, b)| **a && **b).count();
        for (moment, away) in away.iter().enumerate() {
            let (what, p, of) = (format!("moment {moment} of {gradient}"), share[moment], away.len());
            near(away.iter().filter(|&&away| away).count(), p, of, false, &what);
            // Independent of the next parameter, and of the next step.
            near(pairs(away, &away[1..]), p * p, of - 1, true, &what);
            near(pairs(away, &away[count..]), p * p, of - count, true, &what);
        }
        // Independent of each other.
        near(pairs(&away[0], &away[1]), share[0] * share[1], away[0].len(), false, "both moments");
    }
}

#[test]
fn a_rounded_second_moment_reaches_the_square_of_a_constant_gradient_where_rounding_to_nearest_stays_behind()
{
    let (count, steps) = (128, 5000);
    let (gradient, beta2, take2) = (0.95f32, 0.999f32, 1e-3f32);
    let square = f64::from(gradient).powi(2);
    // Distance between 16-bit numbers from 0.5 to 1, to which the second moment converges.
    let spacing = 2f64.powi(-8);
    let mut nearest = 0u16;
    for _ in 0..steps {
        nearest = to_bf16(&[gradient * take2 * gradient + from_bf16(&[nearest])[0] * beta2])[0];
    }
    let nearest = f64::from(from_bf16(&[nearest])[0]);
    assert!(nearest < square / 2.0, "to nearest: {nearest} of {square}");

    let d = device(0);
    let [m, v] = [0; 2].map(|_| memory(&d, &vec![0u16; count]));
    let (w, g) = (memory(&d, &vec![0.0f32; count]), memory(&d, &vec![gradient; count]));
    let settings = Numbers { clip: 1.0, take1: 0.1, beta2, take2, rate: 0.0, root: 1.0 };
    // The mean of rounding is the exact number, so the mean of v is that of f32. A change by x is rounded with a variance of at most x * spacing,
    // and v changes by take2 * |square - v|.
    let (mut mean, mut variance) = (0.0, 0.0f64);
    for step in 1..=steps {
        g.write(0, &vec![gradient; count]).unwrap();
        let places = [w.at(0), g.at(0), m.at(0), v.at(0)];
        adamw(&d, "adamw_rounded_f32", (count, 128), &places, &settings, Some([step, 0]));
        let (beta2, take2) = (f64::from(beta2), f64::from(take2));
        variance = beta2 * beta2 * variance + take2 * ((square - mean).abs() + variance.sqrt()) * spacing;
        mean = beta2 * mean + take2 * square;
    }
    let found: Vec<f64> = from_bf16(&v.read().unwrap()).into_iter().map(f64::from).collect();
    let off = found.iter().sum::<f64>() / count as f64 - mean;
    assert!(off.abs() <= 6.0 * (variance / count as f64).sqrt(), "{off} off {mean}");
    let error = (found.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count as f64).sqrt();
    assert!(error <= 1.5 * variance.sqrt(), "{error}, bound {}", variance.sqrt());
    assert!(mean > 0.99 * square && variance.sqrt() < 0.01 * square);
}

#[test]
fn rounding_moves_a_second_moment_of_random_gradients_by_less_than_5_percent_and_not_to_one_side() {
    let (count, steps) = (256, 4000);
    let (beta2, take2) = (0.999f32, 1e-3f32);
    let d = device(0);
    let [m, v] = [0; 2].map(|_| memory(&d, &vec![0u16; count]));
    let zeros = vec![0.0f32; count];
    let [w, m_full, v_full, g, g_full] = [0; 5].map(|_| memory(&d, &zeros));
    let settings = Numbers { clip: 1.0, take1: 0.1, beta2, take2, rate: 0.0, root: 1.0 };
    for step in 1..=steps {
        // Uniform in [-1, 1): the second moment converges to 1/3.
        let gradient = numbers(1000 + step, count);
        g.write(0, &gradient).unwrap();
        g_full.write(0, &gradient).unwrap();
        let places = [&w, &g].map(|numbers| numbers.at(0));
        let rounded = [&places[..], &[m.at(0), v.at(0)]].concat();
        adamw(&d, "adamw_rounded_f32", (count, 128), &rounded, &settings, Some([step, 0]));
        let full = [w.at(0), g_full.at(0), m_full.at(0), v_full.at(0)];
        adamw(&d, "adamw_f32", (count, 128), &full, &settings, None);
    }
    let (v, wanted) = (from_bf16(&v.read().unwrap()), v_full.read().unwrap());
    let off: Vec<f64> = v.iter().zip(&wanted).map(|(v, w)| f64::from(v / w) - 1.0).collect();
    let error = (off.iter().map(|off| off * off).sum::<f64>() / count as f64).sqrt();
    let mean = off.iter().sum::<f64>() / count as f64;
    // By the same reasoning the error is at most the square root of half of the spacing, 2^-9, times the mean of |g^2 - v|, 0.26: 0.016 of 0.33.
    assert!(error > 0.001 && error < 0.05, "{error}");
    assert!(mean.abs() <= 6.0 * error / (count as f64).sqrt(), "{mean}");
}

#[test]
fn squares_add_up_in_one_order() {
    let x = numbers(23, 1000);
    let partial = in_every_order(|d| {
        let (mx, out) = (memory(d, &x), Memory::<f64>::new(d, 3).unwrap());
        launch(d, "square_sum", Shape::of(3, 128, 1024), &[(&mx).into(), (&out).into(), 1000u64.into()]);
        out.read().unwrap()
    });
    let wanted: f64 = x.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
    assert!((partial.iter().sum::<f64>() - wanted).abs() < 1e-12 * wanted);
}

#[test]
fn numbers_of_the_host_go_there_and_back_while_the_device_computes() {
    // Two device buffers for six parts. Each part arrives, is gathered in reverse order, and leaves.
    let (parts, len) = (6, 64usize);
    let values = numbers(24, parts * len);
    let found = in_every_order(|d| {
        let reversed: Vec<u32> = (0..len as u32).rev().collect();
        let reversed = memory(d, &reversed);
        let (came, changed) = ([0; 2].map(|_| Memory::<f32>::new(d, len).unwrap()), [0; 2]);
        let changed = changed.map(|_: i32| Memory::<f32>::new(d, len).unwrap());
        let mut host = Pinned::<f32>::new(d, parts * len).unwrap();
        assert!(host.read().unwrap().iter().all(|&v| v == 0.0));
        host.write(0, &values).unwrap();
        // Several times, so that each queue is the first to run at some time.
        for _ in 0..6 {
            for part in 0..parts {
                let slot = part % 2;
                d.wait(Queue::Upload, 4 + slot).unwrap();
                host.upload(part * len, len, came[slot].address()).unwrap();
                d.record(Queue::Upload, slot).unwrap();
                d.wait(Queue::Compute, slot).unwrap();
                let arguments =
                    [(&came[slot]).into(), (&reversed).into(), (&changed[slot]).into(), 1u32.into()];
                launch(d, "gather_f32", Shape::of(len, 32, 0), &arguments);
                d.record(Queue::Compute, 2 + slot).unwrap();
                d.wait(Queue::Download, 2 + slot).unwrap();
                host.download(changed[slot].address(), part * len, len).unwrap();
                d.record(Queue::Download, 4 + slot).unwrap();
            }
            d.synchronize().unwrap();
        }
        // An odd number of times in total.
        for part in 0..parts {
            let (at, mut part) = (part * len, host.read().unwrap()[part * len..][..len].to_vec());
            part.reverse();
            host.write(at, &part).unwrap();
        }
        host.read().unwrap().to_vec()
    });
    let wanted: Vec<f32> = values.chunks(len).flat_map(|part| part.iter().rev().copied()).collect();
    assert_eq!(found, wanted);
}
