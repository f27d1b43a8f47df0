//! `tokenizer.json`: a tokenizer that can be read must encode and decode a string without a panic.
//!
//! `cargo +nightly fuzz run tokenizer -- -max_total_time=660 -timeout=25 -rss_limit_mb=4096`
#![no_main]

use fgrpo_train::language::Language;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let files = vec![("tokenizer.json".to_owned(), data.to_vec())];
    let Ok(language) = Language::from_files(files, None, vec![0], &[]) else { return };
    for text in ["", "2 + 2 = 4.\n\nSo it is.", " \u{df}\u{6f22}\u{1f642}\0"] {
        if let Ok(tokens) = language.encode(text) {
            language.text(&tokens);
            let _ = language.answer(&tokens);
        }
    }
});
