//! Chat templates: the bytes before the first NUL are the template, the rest is the user's message.
//!
//! `cargo +nightly fuzz run template -- -max_total_time=660 -timeout=25 -rss_limit_mb=4096`
#![no_main]

use fgrpo_eval::dataset::Message;
use fgrpo_train::language::chat::{ChatOptions, ChatTemplate};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let (template, content) = text.split_once('\0').unwrap_or((&text, "2+2?"));
    let messages = [Message::new("system", "Answer."), Message::new("user", content)];
    let template = ChatTemplate::new(template, "<s>", "</s>");
    let _ = template.render(&messages, &ChatOptions::default());
});
