//! Responses, and damaged problems, of every SynLogic task. The first byte chooses the task, the second whether the
//! rest is a response to a sound problem or a problem's data.
//!
//! `cargo +nightly fuzz run synlogic_check -- -max_total_time=660`
#![no_main]

use std::sync::LazyLock;

use fgrpo_verify::synlogic::{Mode, Options, Verifier, Task, generate};
use libfuzzer_sys::fuzz_target;

static PROBLEMS: LazyLock<Vec<(Task, Option<Verifier>)>> = LazyLock::new(|| {
    let mut state = 1_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state ^ (state >> 29)
    };
    let by_hand = |task: Task| {
        let answer = match task {
            Task::ArcAgi => "[[0, 1]]",
            Task::ZebraPuzzle => r#""{\"a\": 1}""#,
            _ => "\"[[A]]\"",
        };
        format!(r#"{{"question": "", "answer": {answer}, "difficulty": 1, "metadata": {{}}}}"#)
    };
    let verifier = |task| {
        let data =
            generate(task, 1, 0, &mut random).map_or_else(|_| by_hand(task), |made| made.game_data_str());
        (task, Verifier::parse(task, &data).ok())
    };
    Task::ALL.into_iter().map(verifier).collect()
});

fuzz_target!(|data: &[u8]| {
    let [choice, kind, rest @ ..] = data else { return };
    let text = String::from_utf8_lossy(rest);
    let (task, sound) = &PROBLEMS[usize::from(*choice) % PROBLEMS.len()];
    let read;
    let (verifier, response) = if kind % 4 == 0 {
        read = Verifier::parse(*task, &text).ok();
        (&read, "[[1 2,2 1]] ```python\n[[1, 2], [2, 1]]\n``` \\boxed{1} (1,2)")
    } else {
        (sound, &*text)
    };
    if let Some(verifier) = verifier {
        for mode in [Mode::Parity, Mode::Strict] {
            verifier.check(response, &Options { mode, format_gate: kind % 8 == 1 });
        }
    }
});
