//! Runs one test program with every instruction set, and some of its tests with every kind of products.

use std::process::Command;

/// Runs the tests of this program with these names and `products` at some levels: "" is the processor's level, "plain" the code without vector instructions.
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

/// Whether this processor has an instruction set, according to the standard library.
fn has(level: &str) -> bool {
    #[cfg(target_arch = "x86_64")]
    let here = level == "avx2" && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    let here = level == "neon" && cfg!(target_arch = "aarch64");
    here || level == "plain"
}

/// Runs all tests of this program except `name`, which calls this function. Each instruction set of the processor gets a process, except the best one, which this
/// program uses itself. An instruction set that the processor doesn't have, or that doesn't exist, must be refused by name.
pub(crate) fn pass_all_other_tests(name: &str) {
    if std::env::var_os("FGRPO_SIMD").is_some() || std::env::var_os("FGRPO_TEST_PRODUCTS").is_some() {
        return;
    }
    let program = std::env::current_exe().unwrap();
    for level in
        ["plain", "avx2", "neon", "sse9"].into_iter().filter(|&level| level != fgrpo_nn::kernels::simd())
    {
        let output = Command::new(&program).args(["--skip", name]).env("FGRPO_SIMD", level).output().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!(output.status.success(), has(level), "{level}: {text}");
        assert!(has(level) || text.contains("FGRPO_SIMD") && text.contains(level), "{level}: {text}");
    }
}
