//! GGUF: a file's header, configuration and tokenizer, and the values of its tensors.
//!
//! `cargo +nightly fuzz run gguf -- -max_total_time=660 -timeout=25 -rss_limit_mb=4096`
#![no_main]

use fgrpo_nn::weights::Checkpoint;
use fgrpo_train::language::Language;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, data).unwrap();
    if let Ok(checkpoint) = Checkpoint::open(&path) {
        for name in checkpoint.names() {
            let _ = checkpoint.tensor(&name);
        }
    }
    if let Ok(language) = Language::read(&path, &[]) {
        let _ = language.encode("2 + 2 = 4.");
    }
});
