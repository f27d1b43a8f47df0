//! Training configurations: the bytes before the first NUL are the file; each part after a NUL is an assignment of `--set`. If the
//! configuration is accepted, its resolved form must be read as the same configuration.
//!
//! `cargo +nightly fuzz run configuration -- -max_total_time=660`
#![no_main]

use fgrpo_train::config::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let mut parts = text.split('\0');
    let file = parts.next().unwrap_or_default();
    let set: Vec<String> = parts.map(str::to_owned).collect();
    if let Ok(config) = Config::parse(file, &set) {
        let again = Config::parse(&config.to_toml(), &[]).expect("a resolved configuration is one");
        assert_eq!(again.to_toml(), config.to_toml());
    }
});
