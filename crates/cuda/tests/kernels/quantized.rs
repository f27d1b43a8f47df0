//! Values of quantized matrices, bit for bit.

use super::{in_every_order, launch, memory, numbers, to_bf16};
use fgrpo_cuda::{Argument, Driver, Memory, Shape};
use std::any::Any;
use std::sync::Arc;

/// Pseudorandom bytes.
fn bytes(seed: u64, count: usize) -> Vec<u8> {
    numbers(seed, count).iter().map(|&x| ((x + 1.0) * 128.0) as u8).collect()
}

/// Arguments of a kernel, and the memory that they point to.
type Arguments = (Vec<Argument>, Vec<Box<dyn Any>>);

/// The values of a kernel in f32 and in bf16; `arguments` gets the position of the results.
fn values(
    kernels: [&'static str; 2],
    shape: Shape,
    count: usize,
    arguments: &dyn Fn(&Arc<dyn Driver>, Argument) -> Arguments,
) -> (Vec<f32>, Vec<u16>) {
    let full = in_every_order(|d| {
        let out = memory(d, &vec![7.0f32; count + 1]);
        let (list, _held) = arguments(d, (&out).into());
        launch(d, kernels[0], shape, &list);
        out.read().unwrap()
    });
    let half = in_every_order(|d| {
        let out = memory(d, &vec![7u16; count + 1]);
        let (list, _held) = arguments(d, (&out).into());
        launch(d, kernels[1], shape, &list);
        out.read().unwrap()
    });
    assert_eq!((full[count], half[count]), (7.0, 7), "a number beyond the end");
    (full[..count].to_vec(), half[..count].to_vec())
}

#[test]
fn nf4_values_are_code_times_scale_each_rounded_once() {
    // Two blocks of scales, and a last block of 37 values.
    let count = 64usize * 300 + 37;
    let (codes, scales) = (bytes(1, count.div_ceil(2)), bytes(2, 301));
    let (nested, maps, offset) = (numbers(3, 2), numbers(4, 272), 0.731f32);
    let of = |i: usize, scale: f32| {
        let code = if i.is_multiple_of(2) { codes[i / 2] >> 4 } else { codes[i / 2] & 15 };
        maps[usize::from(code)] * scale
    };
    let wanted: Vec<f32> = (0..count)
        .map(|i| of(i, maps[16 + usize::from(scales[i / 64])] * nested[i / 64 / 256] + offset))
        .collect();
    let shape = Shape::covering(count.div_ceil(2), 256);
    let (full, half) = values(["nf4_values_f32", "nf4_values_bf16"], shape, count, &|d, out| {
        let (codes, scales, nested, maps) =
            (memory(d, &codes), memory(d, &scales), memory(d, &nested), memory(d, &maps));
        let list = vec![
            (&codes).into(),
            (&scales).into(),
            (&nested).into(),
            offset.into(),
            (&maps).into(),
            out,
            (count as u64).into(),
        ];
        (list, vec![Box::new(codes), Box::new(scales), Box::new(nested), Box::new(maps)])
    });
    assert!(full == wanted && half == to_bf16(&wanted));

    let plain = numbers(5, 301);
    let wanted: Vec<f32> = (0..count).map(|i| of(i, plain[i / 64])).collect();
    let kernels = ["nf4_plain_values_f32", "nf4_plain_values_bf16"];
    let (full, half) = values(kernels, shape, count, &|d, out| {
        let (codes, scales, maps) = (memory(d, &codes), memory(d, &plain), memory(d, &maps));
        let list = vec![(&codes).into(), (&scales).into(), (&maps).into(), out, (count as u64).into()];
        (list, vec![Box::new(codes), Box::new(scales), Box::new(maps)])
    });
    assert!(full == wanted && half == to_bf16(&wanted));
}

#[test]
fn eight_bit_values_are_code_times_scale_times_step() {
    let (rows, columns) = (5usize, 77usize);
    let count = rows * columns;
    let codes: Vec<i8> = bytes(6, count).into_iter().map(|byte| byte as i8).collect();
    let (absmax, step) = (numbers(7, rows), 0.007_874_016f32);
    let wanted: Vec<f32> = (0..count).map(|i| f32::from(codes[i]) * absmax[i / columns] * step).collect();
    let shape = Shape::covering(count, 256);
    let (full, half) = values(["int8_values_f32", "int8_values_bf16"], shape, count, &|d, out| {
        let (codes, absmax) = (memory(d, &codes), memory(d, &absmax));
        let list = vec![
            (&codes).into(),
            (&absmax).into(),
            step.into(),
            out,
            (columns as u32).into(),
            (count as u64).into(),
        ];
        (list, vec![Box::new(codes), Box::new(absmax)])
    });
    assert!(full == wanted && half == to_bf16(&wanted));
    let wide = in_every_order(|d| {
        let (x, out) = (memory(d, &half), Memory::<f32>::new(d, count).unwrap());
        launch(d, "widen", shape, &[(&x).into(), (&out).into(), (count as u64).into()]);
        out.read().unwrap()
    });
    assert!(
        to_bf16(&wide) == half && wide.iter().zip(&half).all(|(w, h)| w.to_bits() == u32::from(*h) << 16)
    );
}
