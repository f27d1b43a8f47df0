//! One test program at every instruction set, and some of its tests with every kind of products.

use std::process::Command;

/// Runs the tests of this program with these names and `products` at some levels: "" is what the processor has, "plain" what it would do without.
#[allow(dead_code, reason = "not every program has such tests")]
pub(crate) fn pass_with_products(products: &str, levels: &[&str], names: &[&str]) {
    if std::env::var_os("FGRPO_SIMD").is_some() || std::env::var_os("FGRPO_TEST_PRODUCTS").is_some() {
        return;
    }
    for level in levels {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(names).env("FGRPO_SIMD", level).env("FGRPO_TEST_PRODUCTS", products);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{products}, {level:?}: {text}");
        let passed = format!("test result: ok. {} passed", names.len());
        assert!(text.contains(&passed), "{products}, wanted {passed:?}: {text}");
    }
}

/// Runs all tests of this program but `name`, which is the one that asks, in a process held to each instruction set that the processor has beside its best, which
/// the program itself runs at. An unknown one must be refused by name.
pub(crate) fn pass_all_other_tests(name: &str) {
    if std::env::var_os("FGRPO_SIMD").is_some() || std::env::var_os("FGRPO_TEST_PRODUCTS").is_some() {
        return;
    }
    let program = std::env::current_exe().unwrap();
    let run = |level: &str| {
        let output = Command::new(&program).args(["--skip", name]).env("FGRPO_SIMD", level).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    };
    for level in ["plain", "avx2"].into_iter().filter(|&level| level != fgrpo_nn::kernels::simd()) {
        let (passed, text) = run(level);
        if text.contains("which this processor doesn't have") {
            assert_ne!(level, "plain", "{text}");
            println!("{level}: not on this processor");
            continue;
        }
        assert!(passed, "{level}: {text}");
    }
    let (passed, text) = run("sse9");
    assert!(!passed && text.contains("FGRPO_SIMD") && text.contains("sse9"), "{text}");
}
