//! Requests to NVIDIA's libraries and the handling of their answers, on the fake driver.

use fgrpo_cuda::{
    Command, Driver, Error, Gpu, Launch, Matrix, Memory, Numbers, Product, Shape, fake, products_library,
};
use std::path::Path;
use std::sync::Arc;

const OUT_OF_MEMORY: i32 = 2;
const REFUSED: i32 = 999;
const LIBRARY_FAILED: i32 = 14;

fn open() -> Result<Arc<dyn Driver>, Error> {
    Gpu::open(0, None).map(|gpu| Arc::new(gpu) as Arc<dyn Driver>)
}

/// Maximum number of stored product plans.
const PLANS: usize = 1024;

/// 2 x 2 matrices: [[1, 2], [3, 4]] times itself.
fn product(driver: &Arc<dyn Driver>) -> Result<Vec<f32>, Error> {
    let [a, b, c] = [0; 3].map(|_| Memory::from(driver, &[1.0f32, 2.0, 3.0, 4.0]));
    let (a, b, c) = (a?, b?, c?);
    driver.submit(&Command::Product(Product {
        m: 2,
        n: 2,
        k: 2,
        a: Matrix::rows(a.address(), 2),
        b: Matrix::rows(b.address(), 2),
        c: c.address(),
        c_stride: 2,
        alpha: 1.0,
        onto: None,
        bias: None,
        numbers: Numbers::F32,
        exact: false,
    }))?;
    c.read()
}

#[track_caller]
fn nothing_lives(after: &str) {
    let report = fake::report();
    assert!(report.live.is_empty() && report.complaints.is_empty(), "after {after}: {report:?}");
}

#[test]
fn cublaslt_is_found_on_the_loaders_path_by_its_variable_and_in_a_python_or_products_are_computed_without() {
    const NAME: &str = "cublaslt_is_found_on_the_loaders_path_by_its_variable_and_in_a_python_or_products_are_computed_without";
    let file = fake::folder().join("cublaslt/libcublasLt.so.13");
    let file = file.to_str().unwrap();
    let python = tempfile::tempdir().unwrap();
    let packages = python.path().join("lib/python3.12/site-packages/nvidia/cu13/lib");
    std::fs::create_dir_all(&packages).unwrap();
    std::os::unix::fs::symlink(file, packages.join("libcublasLt.so.13")).unwrap();
    let venv = python.path().to_str().unwrap();
    for (on_path, variables) in [
        (true, vec![]),
        (false, vec![("FGRPO_CUBLASLT", file)]),
        (false, vec![("VIRTUAL_ENV", venv)]),
        (false, vec![("EXPECT", "not found")]),
        (false, vec![("EXPECT", "FGRPO_CUBLASLT"), ("FGRPO_CUBLASLT", "/no/such/file.so")]),
    ] {
        if !fake::is_here(NAME, on_path, &variables) {
            continue;
        }
        let used = |wanted: bool| {
            let calls = fake::report().calls;
            assert_eq!(calls.contains_key("cublasLtMatmul"), wanted, "{calls:?}");
        };
        match std::env::var("EXPECT") {
            Err(_) => {
                let found = products_library().unwrap();
                assert_eq!(
                    (Path::new(file).canonicalize().unwrap(), 130_000),
                    (found.path.canonicalize().unwrap(), found.version)
                );
                assert_eq!(product(&open().unwrap()).unwrap(), [7.0, 10.0, 15.0, 22.0]);
                used(true);
            }
            Ok(part) => {
                let why = products_library().unwrap_err().to_string();
                assert!(why.contains(&part), "{why}");
                // A library that is named must exist.
                match open() {
                    Ok(driver) => assert_eq!(product(&driver).unwrap(), [7.0, 10.0, 15.0, 22.0]),
                    Err(why) => assert!(why.to_string().contains("/no/such/file.so"), "{why}"),
                }
                used(false);
            }
        }
        nothing_lives("a product");
        return;
    }
}

#[test]
fn a_driver_that_is_too_old_and_kernels_that_it_refuses_are_named() {
    const NAME: &str = "a_driver_that_is_too_old_and_kernels_that_it_refuses_are_named";
    if fake::is_here(NAME, true, &[("FGRPO_FAKE_VERSION", "11080")]) {
        let version = std::env::var("FGRPO_FAKE_VERSION").unwrap();
        if version == "11080" {
            let why = open().unwrap_err().to_string();
            assert!(why.contains("11.8") && why.contains("12.0") && why.contains("update"), "{why}");
            return;
        }
        let why = Gpu::open(0, Some("//\n.version 9.9\n")).unwrap_err().to_string();
        assert!(why.contains("loading the kernels") && why.contains("Unsupported .version"), "{why}");
        fake::plant(Some(("cuModuleLoadDataEx", 0, 218)));
        let why = open().unwrap_err().to_string();
        assert!(
            why.contains("loading the kernels") && why.contains("ptxas") && why.contains("planted"),
            "{why}"
        );
        nothing_lives("kernels that are refused");
        return;
    }
    fake::is_here(NAME, true, &[("FGRPO_FAKE_VERSION", "12000")]);
}

#[test]
fn an_error_in_any_call_names_what_was_done_and_leaves_nothing_behind() {
    if !fake::is_here("an_error_in_any_call_names_what_was_done_and_leaves_nothing_behind", true, &[]) {
        return;
    }
    let work = || open().and_then(|driver| product(&driver));
    let before = fake::report().calls;
    work().unwrap();
    let calls: Vec<(String, u64)> = fake::report()
        .calls
        .into_iter()
        .map(|(call, count)| (call.clone(), count - before.get(&call).unwrap_or(&0)))
        .filter(|(call, _)| !["kernel", "fgrpo_fake_plant"].contains(&call.as_str()))
        .collect();
    nothing_lives("a product");
    assert!(calls.len() > 25, "{calls:?}");
    let mut left = 0;
    for (call, count) in calls {
        for number in 0..count {
            let code = match call.as_str() {
                "cuMemAlloc_v2" => OUT_OF_MEMORY,
                call if call.starts_with("cublasLt") => LIBRARY_FAILED,
                _ => REFUSED,
            };
            fake::plant(Some((&call, number, code)));
            let done = work();
            // A function that frees can't report an error, and hasn't freed.
            if ["Destroy", "Free", "Release", "Unload"].iter().any(|part| call.contains(part)) {
                assert!(done.is_ok(), "{call} {number}: {done:?}");
                left = fake::report().live.values().sum();
                continue;
            }
            // Waiting while the device is closed.
            if call == "cuStreamSynchronize" && done.is_ok() {
                continue;
            }
            let why = done.expect_err(&call).to_string();
            assert!(why.starts_with("CUDA: ") && why.len() > 20, "{call} {number}: {why}");
            // Memory that one object failed to free isn't counted again.
            let live = fake::report().live;
            assert!(live.values().sum::<u64>() <= left, "{call} {number}: {live:?}");
        }
    }
}

#[test]
fn waiting_for_every_launch_names_the_kernel_that_failed() {
    const NAME: &str = "waiting_for_every_launch_names_the_kernel_that_failed";
    for set in ["on", "off"] {
        if !fake::is_here(NAME, true, &[("FGRPO_CUDA_SYNC", set)]) {
            continue;
        }
        let driver = open().unwrap();
        let (x, rows) =
            (Memory::from(&driver, &[1.0f32; 32]).unwrap(), Memory::from(&driver, &[0u32]).unwrap());
        fake::plant(Some(("kernel", 0, 700)));
        let launched = driver.submit(&Command::Launch(Launch {
            kernel: "gather_f32",
            shape: Shape::of(1, 32, 0),
            arguments: vec![(&x).into(), (&rows).into(), (&x).into(), 32u32.into()],
        }));
        if std::env::var("FGRPO_CUDA_SYNC").unwrap() == "on" {
            let why = launched.unwrap_err().to_string();
            assert!(why.contains("gather_f32") && why.contains("700"), "{why}");
        } else {
            launched.unwrap();
            assert!(driver.synchronize().unwrap_err().to_string().contains("700"));
        }
        return;
    }
}

#[test]
fn an_algorithm_is_chosen_once_a_shape_and_of_many_shapes_the_least_recently_used_is_dropped() {
    const NAME: &str =
        "an_algorithm_is_chosen_once_a_shape_and_of_many_shapes_the_least_recently_used_is_dropped";
    if !fake::is_here(NAME, true, &[]) {
        return;
    }
    let driver = open().unwrap();
    let [a, b, c] = [PLANS + 1, 1, PLANS + 1].map(|len| Memory::from(&driver, &vec![1.0f32; len]).unwrap());
    let chosen = || fake::report().calls.get("cublasLtMatmulAlgoGetHeuristic").copied().unwrap_or(0);
    // Products with this many rows, and the number of algorithms that they chose.
    let multiply = |rows: &mut dyn Iterator<Item = usize>| {
        let before = chosen();
        for m in rows {
            let (a, b) = (Matrix::rows(a.address(), 1), Matrix::rows(b.address(), 1));
            let (c, numbers) = (c.address(), Numbers::F32);
            let product = Product {
                m,
                n: 1,
                k: 1,
                a,
                b,
                c,
                c_stride: 1,
                alpha: 1.0,
                onto: None,
                bias: None,
                numbers,
                exact: false,
            };
            driver.submit(&Command::Product(product)).unwrap();
        }
        chosen() - before
    };
    assert_eq!(multiply(&mut (1..=PLANS)), PLANS as u64);
    assert_eq!(multiply(&mut (1..=PLANS)), 0);
    assert_eq!(multiply(&mut [PLANS + 1].into_iter()), 1);
    let live = fake::report().live;
    assert_eq!((live["description"], live["layout"]), (PLANS as u64, 3 * PLANS as u64), "{live:?}");
    // The plan for a single row was the oldest.
    assert_eq!(multiply(&mut (2..=PLANS + 1)), 0);
    assert_eq!(multiply(&mut [1].into_iter()), 1);
    drop((a, b, c, driver));
    nothing_lives("a thousand shapes");
}

#[test]
fn an_exact_product_has_one_algorithm_and_a_row_the_same_bits_among_any_number_of_rows() {
    const NAME: &str = "an_exact_product_has_one_algorithm_and_a_row_the_same_bits_among_any_number_of_rows";
    if !fake::is_here(NAME, true, &[]) {
        return;
    }
    const ROWS: [usize; 6] = [1, 3, 64, 200, 256, 300];
    let (n, k) = (8, 40);
    let numbers =
        |len: usize| -> Vec<f32> { (0..len).map(|i| (i * 7919 % 1009) as f32 / 500.0 - 1.0).collect() };
    let driver = open().unwrap();
    let (a, b) =
        (Memory::from(&driver, &numbers(300 * k)).unwrap(), Memory::from(&driver, &numbers(n * k)).unwrap());
    // One value more than the product needs, so that it can begin at an unaligned one.
    let c = Memory::from(&driver, &vec![0.0f32; 300 * n + 1]).unwrap();
    let multiply = |m: usize, exact: bool, first: usize| {
        let (a, b) = (Matrix::rows(a.address(), k), Matrix::rows(b.address(), k).transposed());
        let (c, numbers) = (c.at(first), Numbers::F32);
        driver.submit(&Command::Product(Product {
            m,
            n,
            k,
            a,
            b,
            c,
            c_stride: n,
            alpha: 1.0,
            onto: None,
            bias: None,
            numbers,
            exact,
        }))
    };
    let first_row = |m, exact| -> Vec<u32> {
        multiply(m, exact, 0).unwrap();
        c.read().unwrap()[..n].iter().map(|v| v.to_bits()).collect()
    };
    let calls = |name: &str| fake::report().calls.get(name).copied().unwrap_or(0);
    let rows = ROWS.map(|m| first_row(m, true));
    assert!(rows.iter().all(|row| *row == rows[0]), "{rows:?}");
    assert_eq!(calls("cublasLtMatmulAlgoGetHeuristic"), 1);
    assert_eq!(calls("cublasLtMatmulAlgoCheck"), ROWS.len() as u64);
    let others = ROWS.map(|m| first_row(m, false));
    assert!(others.iter().any(|row| *row != others[0]), "the library sums by the number of rows");
    let refused = multiply(3, true, 1).unwrap_err().to_string();
    assert!(
        refused.contains("exact product of 3 x 8 x 40") && refused.contains("compute.exact"),
        "{refused}"
    );
    fake::plant(Some(("cublasLtMatmulAlgoCheck", 0, LIBRARY_FAILED)));
    let refused = multiply(5, true, 0).unwrap_err().to_string();
    assert!(refused.contains("exact product of 5 x 8 x 40") && refused.contains("256 rows"), "{refused}");
}
