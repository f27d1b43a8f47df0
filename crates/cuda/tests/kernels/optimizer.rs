//! AdamW in f32 and over split masters, and the norm of the gradient.

use super::*;

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
    // What the network reads is the nearest number of 16 bits.
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
    // Two device buffers for six parts: each comes, is gathered in reverse order, and leaves.
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
        // Again and again, so that each queue is the first to run at some time.
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
        // An odd number of times in all.
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
