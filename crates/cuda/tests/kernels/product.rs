//! Matrix products by the device's library and by our kernel.

use super::*;
use fgrpo_cuda::{Address, Command, Matrix, Numbers, Product};

/// Sizes that aren't multiples of the tiles.
const SIZES: [usize; 3] = [70, 65, 33];

#[test]
fn products_of_matrices_and_their_transposes_replace_or_add_to_the_result_another_matrix_and_a_bias() {
    let [m, n, k] = SIZES;
    // The distance between rows of the operands is larger than their length.
    let (a_stride, b_stride, c_stride) = (80, 72, 68);
    let (a, b, c) = (numbers(13, 80 * a_stride), numbers(14, 80 * b_stride), numbers(15, m * c_stride));
    let (base, bias) = (numbers(16, m * c_stride), numbers(17, n));
    for (a_transposed, b_transposed) in [(false, false), (false, true), (true, false), (true, true)] {
        for case in 0..12 {
            let (by_library, biased, onto) = (case % 2 == 0, case / 2 % 2 == 0, case / 4);
            let found = in_every_order(|d| {
                let [ma, mb, mc, m_base, m_bias] = [&a, &b, &c, &base, &bias].map(|v| memory(d, v));
                let product = Product {
                    m,
                    n,
                    k,
                    a: Matrix { at: ma.address(), stride: a_stride, transposed: a_transposed },
                    b: Matrix { at: mb.address(), stride: b_stride, transposed: b_transposed },
                    c: mc.address(),
                    c_stride,
                    alpha: 0.5,
                    onto: [None, Some(mc.address()), Some(m_base.address())][onto],
                    bias: biased.then(|| m_bias.address()),
                    numbers: Numbers::F32,
                    exact: false,
                };
                if by_library {
                    d.submit(&Command::Product(product)).unwrap();
                } else {
                    d.submit(&Command::Launch(product.launch())).unwrap();
                }
                mc.read().unwrap()
            });
            for row in 0..m {
                for column in 0..c_stride {
                    let at = row * c_stride + column;
                    let (before, base) = (f64::from(c[at]), f64::from(base[at]));
                    let term = |j: usize| {
                        let a = if a_transposed { a[j * a_stride + row] } else { a[row * a_stride + j] };
                        let b =
                            if b_transposed { b[column * b_stride + j] } else { b[j * b_stride + column] };
                        f64::from(a) * f64::from(b)
                    };
                    let wanted = if column < n {
                        let bias = if biased { f64::from(bias[column]) } else { 0.0 };
                        0.5 * (0..k).map(term).sum::<f64>() + [0.0, before, base][onto] + bias
                    } else {
                        before
                    };
                    close(&[found[row * c_stride + column]], &[wanted], 1e-5, "product");
                }
            }
        }
    }
}

#[test]
fn operands_that_the_library_refuses_are_refused_by_name() {
    let plain = Product {
        m: 8,
        n: 8,
        k: 8,
        a: Matrix::rows(Address(4096), 8),
        b: Matrix::rows(Address(8192), 8),
        c: Address(16384),
        c_stride: 8,
        alpha: 1.0,
        onto: None,
        bias: None,
        numbers: Numbers::F32,
        exact: false,
    };
    plain.check().unwrap();
    Product { onto: Some(Address(16384)), bias: Some(Address(16384 + 256)), ..plain }.check().unwrap();
    for (product, part) in [
        (Product { k: 0, ..plain }, "8 x 8 x 0"),
        (
            Product { a: Matrix::rows(Address(4096), 7), ..plain },
            "a has rows of 8 elements, but a stride of 7",
        ),
        (Product { b: Matrix::rows(Address(8194), 8), ..plain }, "b at 0x2002 is not aligned to 4 bytes"),
        (Product { c: Address(4096 + 252), ..plain }, "a overlaps the result"),
        (Product { onto: Some(Address(16384 + 32)), ..plain }, "onto overlaps the result"),
        (Product { bias: Some(Address(16384 + 252)), ..plain }, "bias overlaps the result"),
        (Product { bias: Some(Address(4097)), ..plain }, "bias at 0x1001 is not aligned to 4 bytes"),
    ] {
        let message = product.check().unwrap_err().to_string();
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

#[test]
fn copies_and_zeros_wait_their_turn_and_memory_is_bounded() {
    let values = numbers(16, 100);
    let found = in_every_order(|d| {
        let (from, to) = (memory(d, &values), memory(d, &values));
        d.submit(&Command::Zero { at: to.address(), bytes: 40 }).unwrap();
        d.submit(&Command::Copy { from: from.at(50), to: to.at(90), bytes: 40 }).unwrap();
        from.write(50, &[7.0; 10]).unwrap();
        to.read().unwrap()
    });
    assert_eq!(found[..10], [0.0; 10]);
    assert_eq!(found[10..90], values[10..90]);
    assert_eq!(found[90..], values[50..60]);

    let small: Arc<dyn Driver> = Arc::new(Emulated::with_memory(0, 1000));
    let kept = Memory::<u8>::new(&small, 700).unwrap();
    let message = Memory::<u8>::new(&small, 301).unwrap_err().to_string();
    assert!(message.contains("301 bytes requested, 300 of 1000 free"), "{message}");
    drop(kept);
    Memory::<u8>::new(&small, 1000).unwrap();
}
