//! Rows, norms, rotary embedding, gated activations, products.

use super::*;

#[test]
fn rows_are_gathered_scattered_and_added() {
    // By 16 bytes, or value by value.
    [72, 70].into_iter().for_each(rows_of_a_width_are_gathered_scattered_and_added);
}

fn rows_of_a_width_are_gathered_scattered_and_added(width: usize) {
    let rows = [3u32, 0, 5];
    let x = numbers(1, 6 * width);
    let found = in_every_order(|d| {
        let (from, index) = (memory(d, &x), memory(d, &rows));
        // A row that is left out.
        let with_none = memory(d, &[rows[0], u32::MAX, rows[2]]);
        let (y, z) = (Memory::<f32>::new(d, 3 * width).unwrap(), memory(d, &x));
        let shape = Shape::of(3, 64, 0);
        launch(
            d,
            "gather_f32",
            shape,
            &[(&from).into(), (&index).into(), (&y).into(), (width as u32).into()],
        );
        launch(
            d,
            "scatter_add_f32",
            shape,
            &[(&y).into(), (&index).into(), (&z).into(), (width as u32).into()],
        );
        let back = memory(d, &vec![0.0f32; 6 * width]);
        launch(
            d,
            "scatter_f32",
            shape,
            &[(&y).into(), (&index).into(), (&back).into(), (width as u32).into()],
        );
        let fewer = memory(d, &vec![0.0f32; 6 * width]);
        let arguments = [(&y).into(), (&with_none).into(), (&fewer).into(), (width as u32).into()];
        launch(d, "scatter_f32", shape, &arguments);
        (y.read().unwrap(), z.read().unwrap(), back.read().unwrap(), fewer.read().unwrap())
    });
    for (i, &row) in rows.iter().enumerate() {
        assert_eq!(found.0[i * width..(i + 1) * width], x[row as usize * width..][..width]);
    }
    for (i, &x) in x.iter().enumerate() {
        let hit = rows.contains(&((i / width) as u32));
        assert_eq!(found.1[i], if hit { 2.0 * x } else { x });
        assert_eq!(found.2[i], if hit { x } else { 0.0 });
        assert_eq!(found.3[i], if hit && i / width != 0 { x } else { 0.0 });
    }
}

#[test]
fn equal_tokens_add_to_one_row_of_the_embedding() {
    let width = 33;
    let tokens = [4u32, 1, 4, 4, 2];
    let dx = numbers(2, tokens.len() * width);
    let found = in_every_order(|d| {
        let (distinct, starts, order) =
            (memory(d, &[1u32, 2, 4]), memory(d, &[0u32, 1, 2, 5]), memory(d, &[1u32, 4, 0, 2, 3]));
        let (from, gradient) = (memory(d, &dx), memory(d, &vec![1.0f32; 6 * width]));
        let arguments = [
            (&from).into(),
            (&distinct).into(),
            (&starts).into(),
            (&order).into(),
            (&gradient).into(),
            (width as u32).into(),
        ];
        launch(d, "embed_backward_f32", Shape::of(3, 32, 0), &arguments);
        gradient.read().unwrap()
    });
    let mut wanted = vec![1.0f64; 6 * width];
    for (t, &token) in tokens.iter().enumerate() {
        for i in 0..width {
            wanted[token as usize * width + i] += f64::from(dx[t * width + i]);
        }
    }
    close(&found, &wanted, 1e-6, "gradient");
}

/// Offset that is added to the weights of norms.
const OFFSET: f32 = 1.0;

fn norm(x: &[f64], weight: &[f64], eps: f64) -> Vec<f64> {
    let scale = 1.0 / (x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64 + eps).sqrt();
    x.iter().zip(weight).map(|(v, w)| v * scale * (f64::from(OFFSET) + w)).collect()
}

/// d (Σ dy f(x)) / dx by central differences.
fn derivative(x: &[f64], dy: &[f64], f: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    let loss = |x: &[f64]| f(x).iter().zip(dy).map(|(y, d)| y * d).sum::<f64>();
    (0..x.len())
        .map(|i| {
            let (mut up, mut down) = (x.to_vec(), x.to_vec());
            up[i] += 1e-5;
            down[i] -= 1e-5;
            (loss(&up) - loss(&down)) / 2e-5
        })
        .collect()
}

#[test]
fn rms_norm_and_its_derivatives_are_by_definition() {
    // By 16 bytes, or value by value.
    [100, 99].into_iter().for_each(rms_norm_of_rows_is_by_definition);
}

fn rms_norm_of_rows_is_by_definition(width: usize) {
    let (rows, eps) = (5, 1e-6f32);
    let (x, w, dy, before) =
        (numbers(3, rows * width), numbers(4, width), numbers(5, rows * width), numbers(6, rows * width));
    let (y, again, dx, dw) = in_every_order(|d| {
        let [mx, mw, mdy, mdx] = [&x, &w, &dy, &before].map(|v| memory(d, v));
        let [y, again] = [0; 2].map(|_| Memory::<f32>::new(d, rows * width).unwrap());
        let (scale, partial) =
            (Memory::<f32>::new(d, rows).unwrap(), Memory::<f32>::new(d, 2 * width).unwrap());
        let dw = memory(d, &vec![0.5f32; width]);
        let (n, shape) = (Argument::U32(width as u32), Shape::of(rows, 64, 8));
        launch(
            d,
            "rms_norm_f32",
            shape,
            &[(&mx).into(), (&mw).into(), OFFSET.into(), eps.into(), (&y).into(), (&scale).into(), n],
        );
        launch(
            d,
            "rms_norm_again_f32",
            shape,
            &[(&mx).into(), (&mw).into(), OFFSET.into(), (&scale).into(), (&again).into(), n],
        );
        launch(
            d,
            "rms_norm_backward_f32",
            shape,
            &[(&mx).into(), (&mw).into(), OFFSET.into(), (&scale).into(), (&mdy).into(), (&mdx).into(), n],
        );
        let columns = Shape { grid: [4, 2, 1], threads: 256, shared: 1024 };
        let arguments = [
            (&mx).into(),
            (&scale).into(),
            (&mdy).into(),
            (&partial).into(),
            (rows as u32).into(),
            n,
            3u32.into(),
        ];
        launch(d, "rms_norm_weight_f32", columns, &arguments);
        launch(
            d,
            "add_partials",
            Shape::covering(width, 64),
            &[(&partial).into(), (&dw).into(), 2u32.into(), n],
        );
        (y.read().unwrap(), again.read().unwrap(), mdx.read().unwrap(), dw.read().unwrap())
    });
    assert_eq!(y, again);
    let eps = f64::from(eps);
    let mut wanted_dw = vec![0.5; width];
    for r in 0..rows {
        let at = r * width..(r + 1) * width;
        let (row, up) = (wide(&x[at.clone()]), wide(&dy[at.clone()]));
        close(&y[at.clone()], &norm(&row, &wide(&w), eps), 1e-5, "y");
        let own = derivative(&row, &up, |x| norm(x, &wide(&w), eps));
        let wanted: Vec<f64> = own.iter().zip(&before[at.clone()]).map(|(d, b)| d + f64::from(*b)).collect();
        close(&dx[at], &wanted, 1e-4, "dx");
        let unit = norm(&row, &vec![1.0 - f64::from(OFFSET); width], eps);
        for i in 0..width {
            wanted_dw[i] += up[i] * unit[i];
        }
    }
    close(&dw, &wanted_dw, 1e-5, "dweight");
}

#[test]
fn heads_are_normed_inside_wider_rows() {
    let (rows, heads, size, stride) = (3usize, 2usize, 40usize, 120usize);
    let (x, w, dy) = (numbers(7, rows * stride), numbers(8, size), numbers(9, rows * stride));
    let count = rows * heads;
    let (y, dx, share) = in_every_order(|d| {
        let [mx, mw, mdy] = [&x, &w, &dy].map(|v| memory(d, v));
        let [raw, share] = [0; 2].map(|_| Memory::<f32>::new(d, count * size).unwrap());
        let scale = Memory::<f32>::new(d, count).unwrap();
        let sizes = [heads, stride, size, count].map(|v| Argument::U32(v as u32));
        let shape = Shape::of(count.div_ceil(4), 128, 0);
        let mut forward: Vec<Argument> =
            vec![(&mw).into(), OFFSET.into(), 1e-6f32.into(), (&mx).into(), (&raw).into(), (&scale).into()];
        forward.extend(sizes);
        launch(d, "head_norm_f32", shape, &forward);
        let mut backward: Vec<Argument> =
            vec![(&mw).into(), OFFSET.into(), (&raw).into(), (&scale).into(), (&mdy).into(), (&share).into()];
        backward.extend(sizes);
        launch(d, "head_norm_backward_f32", shape, &backward);
        (mx.read().unwrap(), mdy.read().unwrap(), share.read().unwrap())
    });
    for r in 0..rows {
        assert_eq!(
            y[r * stride + heads * size..(r + 1) * stride],
            x[r * stride + heads * size..(r + 1) * stride]
        );
        for h in 0..heads {
            let at = r * stride + h * size..r * stride + (h + 1) * size;
            let (head, up) = (wide(&x[at.clone()]), wide(&dy[at.clone()]));
            close(&y[at.clone()], &norm(&head, &wide(&w), 1e-6), 1e-5, "y");
            close(&dx[at], &derivative(&head, &up, |x| norm(x, &wide(&w), 1e-6)), 1e-4, "dx");
            let unit = norm(&head, &vec![1.0 - f64::from(OFFSET); size], 1e-6);
            let wanted: Vec<f64> = unit.iter().zip(&up).map(|(u, d)| u * d).collect();
            close(&share[(r * heads + h) * size..][..size], &wanted, 1e-5, "share");
        }
    }
}

#[test]
fn rotation_is_by_definition_and_goes_back() {
    // The whole head, or its first quarter.
    [16, 4].into_iter().for_each(rotation_of_so_many_numbers_is_by_definition);
}

fn rotation_of_so_many_numbers_is_by_definition(rotary: usize) {
    let (rows, heads, size, stride) = (4usize, 3usize, 16usize, 50usize);
    let x = numbers(10, rows * stride);
    let positions = [0u32, 7, 2, 9];
    let half = rotary / 2;
    let angle =
        |position: u32, pair: usize| f64::from(position) * 10_000f64.powf(-(pair as f64) / half as f64);
    let table: Vec<f32> = (0..10u32)
        .flat_map(|p| {
            let cosines = (0..half).map(move |i| angle(p, i).cos() as f32);
            cosines.chain((0..half).map(move |i| angle(p, i).sin() as f32))
        })
        .collect();
    let (turned, back) = in_every_order(|d| {
        let (mt, mp, mx) = (memory(d, &table), memory(d, &positions), memory(d, &x));
        let count = rows * heads * half;
        let arguments = |sign: f32| -> Vec<Argument> {
            vec![
                (&mt).into(),
                (&mp).into(),
                (&mx).into(),
                (heads as u32).into(),
                (stride as u32).into(),
                (size as u32).into(),
                (rotary as u32).into(),
                sign.into(),
                (count as u32).into(),
            ]
        };
        launch(d, "rotate_f32", Shape::covering(count, 64), &arguments(1.0));
        let turned = mx.read().unwrap();
        launch(d, "rotate_f32", Shape::covering(count, 64), &arguments(-1.0));
        (turned, mx.read().unwrap())
    });
    close(&back, &wide(&x), 1e-6, "back");
    for (r, &position) in positions.iter().enumerate() {
        for h in 0..heads {
            for i in 0..half {
                let at = r * stride + h * size + i;
                let (c, s) = (angle(position, i).cos(), angle(position, i).sin());
                let (low, high) = (f64::from(x[at]), f64::from(x[at + half]));
                close(
                    &[turned[at], turned[at + half]],
                    &[low * c - high * s, high * c + low * s],
                    1e-6,
                    "turned",
                );
            }
            let rest = r * stride + h * size + rotary..r * stride + (h + 1) * size;
            assert_eq!(turned[rest.clone()], x[rest]);
        }
    }
}

#[test]
fn gated_activations_and_their_derivatives_are_by_definition() {
    let silu = |g: f64| g / (1.0 + (-g).exp());
    let root = std::f64::consts::FRAC_2_PI.sqrt();
    let gelu = |g: f64| g / 2.0 * (1.0 + (root * (g + 0.044715 * g * g * g)).tanh());
    // By 16 bytes, or value by value.
    for width in [40, 37] {
        a_gated_activation_of_rows_is_by_definition(width, 0, silu);
        a_gated_activation_of_rows_is_by_definition(width, 1, gelu);
    }
}

fn a_gated_activation_of_rows_is_by_definition(width: usize, gelu: u32, activation: impl Fn(f64) -> f64) {
    let rows = 3;
    let (x, d) = (numbers(11, rows * 2 * width), numbers(12, rows * width));
    let x: Vec<f32> = x.iter().map(|x| 3.0 * x).collect();
    let count = rows * width;
    let (act, dx, again) = in_every_order(|driver| {
        let (mx, md, out) =
            (memory(driver, &x), memory(driver, &d), Memory::<f32>::new(driver, count).unwrap());
        let sizes = [width as u32, rows as u32, gelu].map(Argument::U32);
        let shape = Shape::covering(rows * width.div_ceil(4), 32);
        launch(driver, "gated_f32", shape, &[&[(&mx).into(), (&out).into()], &sizes[..]].concat());
        launch(driver, "gated_backward_f32", shape, &[&[(&mx).into(), (&md).into()], &sizes[..]].concat());
        (out.read().unwrap(), mx.read().unwrap(), md.read().unwrap())
    });
    let gated =
        |row: &[f64]| -> Vec<f64> { (0..width).map(|i| activation(row[i]) * row[width + i]).collect() };
    close(&again, &wide(&act), 1e-6, "act again");
    for r in 0..rows {
        let row = wide(&x[r * 2 * width..][..2 * width]);
        close(&act[r * width..][..width], &gated(&row), 1e-6, "act");
        let wanted = derivative(&row, &wide(&d[r * width..][..width]), gated);
        close(&dx[r * 2 * width..][..2 * width], &wanted, 1e-5, "dgate_up");
    }
}

#[test]
fn norms_and_gated_activations_in_16_bits_are_those_in_32_of_the_same_numbers_rounded() {
    for width in [40, 37] {
        let rows = 3;
        let narrow = |seed, count| to_bf16(&numbers(seed, count));
        let (x, w, dy) = (narrow(21, 2 * rows * width), narrow(22, width), narrow(23, rows * width));
        let [in_16, in_32] = [true, false].map(|half| {
            let memory = |d: &Arc<dyn Driver>, v: &[u16]| -> Memory<u8> {
                let wide: Vec<u8> = from_bf16(v).iter().flat_map(|v| v.to_ne_bytes()).collect();
                let narrow: Vec<u8> = v.iter().flat_map(|v| v.to_ne_bytes()).collect();
                super::memory(d, if half { &narrow } else { &wide })
            };
            in_every_order(|d| {
                let [gate_up, dact, act] = [&x, &dy, &dy].map(|v| memory(d, v));
                let [x, w, dx, dy, y] = [&x, &w, &x, &dy, &dy].map(|v| memory(d, v));
                let scale = Memory::<f32>::new(d, rows).unwrap();
                let name = |name: [&'static str; 2]| name[usize::from(half)];
                let (n, m) = (Argument::U32(width as u32), Argument::U32(rows as u32));
                let lines = Shape::covering(rows * width.div_ceil(if half { 8 } else { 4 }), 32);
                let norm = [
                    (&x).into(),
                    (&w).into(),
                    OFFSET.into(),
                    1e-6f32.into(),
                    (&y).into(),
                    (&scale).into(),
                    n,
                ];
                launch(d, name(["rms_norm_f32", "rms_norm_bf16"]), Shape::of(rows, 32, 8), &norm);
                let back =
                    [(&x).into(), (&w).into(), OFFSET.into(), (&scale).into(), (&dy).into(), (&dx).into(), n];
                let kernel = name(["rms_norm_backward_f32", "rms_norm_backward_bf16"]);
                launch(d, kernel, Shape::of(rows, 32, 8), &back);
                let arguments = [(&gate_up).into(), (&act).into(), n, m, 1u32.into()];
                launch(d, name(["gated_f32", "gated_bf16"]), lines, &arguments);
                let arguments = [(&gate_up).into(), (&dact).into(), n, m, 1u32.into()];
                launch(d, name(["gated_backward_f32", "gated_backward_bf16"]), lines, &arguments);
                [y, dx, act, gate_up, dact].map(|memory| {
                    let bytes = memory.read().unwrap();
                    let (words, halves) = (bytes.as_chunks::<4>().0, bytes.as_chunks::<2>().0);
                    if half {
                        from_bf16(&halves.iter().map(|v| u16::from_ne_bytes(*v)).collect::<Vec<_>>())
                    } else {
                        words.iter().map(|v| f32::from_ne_bytes(*v)).collect()
                    }
                })
            })
        });
        for (found, wanted) in in_16.iter().zip(&in_32) {
            close(found, &wide(wanted), 4e-3, "in 16 bits");
        }
    }
}
