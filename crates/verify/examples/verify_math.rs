//! Verdicts and processor time of the math verifier on a file of `{"gold", "response"}` (or `"pred"`) lines:
//! `cargo run --release -p fgrpo-verify --example verify_math -- FILE.jsonl [strict]`

use std::time::Duration;

use fgrpo_verify::math::{Mode, Options, Verifier};
use serde_json::Value;

/// Processor time of this thread, which doesn't include other work on the machine.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result, and the clock exists on every Linux and macOS.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0, "no clock of processor time");
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn main() {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: verify_math FILE.jsonl [strict]");
        std::process::exit(2);
    };
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| {
        eprintln!("{path}: {error}");
        std::process::exit(2);
    });
    let rows: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let pairs: Vec<(&str, &str)> = rows
        .iter()
        .filter_map(|row| {
            let response = row["response"].as_str().or_else(|| row["pred"].as_str())?;
            Some((row["gold"].as_str()?, response))
        })
        .collect();
    let mode = if std::env::args().nth(2).as_deref() == Some("strict") { Mode::Strict } else { Mode::Parity };
    let options = Options { mode, ..Options::default() };
    let start = processor_time();
    let mut correct = 0;
    for (gold, response) in &pairs {
        correct += usize::from(Verifier::new(gold, &options).check(response).is_correct());
    }
    let seconds = (processor_time() - start).as_secs_f64();
    println!(
        "{{\"checked\": {}, \"correct\": {correct}, \"seconds\": {seconds:.6}, \"per_second\": {:.0}}}",
        pairs.len(),
        pairs.len() as f64 / seconds
    );
}
