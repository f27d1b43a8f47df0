//! The search for numbers that are not finite.

use super::*;

/// The first index that the kernels find, in values of both types.
fn found(x: &[f32]) -> [usize; 2] {
    let (blocks, threads) = (3, 64);
    let partials = in_every_order(|d| {
        let (full, half) = (memory(d, x), memory(d, &to_bf16(x)));
        let shape = Shape::of(blocks, threads, 8 * threads as usize);
        [("first_non_finite_f32", Argument::from(&full)), ("first_non_finite_bf16", (&half).into())].map(
            |(kernel, x_at)| {
                let partial = Memory::<u64>::new(d, blocks).unwrap();
                launch(d, kernel, shape, &[x_at, (&partial).into(), (x.len() as u64).into()]);
                partial.read().unwrap()
            },
        )
    });
    partials.map(|partial| *partial.iter().min().unwrap() as usize)
}

#[test]
fn the_first_number_that_is_not_finite_is_found() {
    let mut x = numbers(30, 1000);
    (x[0], x[1], x[2]) = (0.0, -0.0, f32::MIN_POSITIVE);
    assert_eq!(found(&x), [1000; 2], "finite numbers");
    for (index, value) in [(999, f32::NAN), (700, f32::INFINITY), (192, -f32::NAN), (3, f32::NEG_INFINITY)] {
        x[index] = value;
        assert_eq!(found(&x), [index; 2], "{value}");
    }
}
