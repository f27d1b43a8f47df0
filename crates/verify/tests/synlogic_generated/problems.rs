//! Problems of every SynLogic task with a right answer, for tests. They are generated if the task has a generator.

use fgrpo_verify::synlogic::{Task, generate, has_generator};

#[derive(Clone)]
pub(crate) struct Problem {
    /// The stored data.
    pub(crate) data: String,
    /// A correct response.
    pub(crate) solution: String,
}

/// Uniform 64-bit numbers (SplitMix64).
pub(crate) fn numbers(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// Four problems at each of the difficulties 1, 4, 7 and 10, or a few written by hand.
pub(crate) fn problems(task: Task) -> Vec<Problem> {
    let by_hand: Vec<(String, String)> = match task {
        Task::ArcAgi => [[[0, 1], [2, 3]], [[4, 0], [0, 7]], [[1, 1], [1, 0]]]
            .map(|grid| (format!("{grid:?}"), format!("```json\n{grid:?}\n```")))
            .to_vec(),
        Task::Cipher => ["ATTACK", "ENIGMA", "XRAY TEN"]
            .map(|text| (format!("\"[[{text}]]\""), format!("```python\n[[\"{text}\"]]\n```")))
            .to_vec(),
        Task::GpqaDiamond => ["A", "B", "C", "D"]
            .map(|letter| (format!("\"{letter}\""), format!("\\boxed{{{letter}}}")))
            .to_vec(),
        Task::ZebraPuzzle => ["Eve", "Bob", "Ann"]
            .map(|name| {
                let table = format!(r#"{{"House 1": {{"Name": "{name}", "Pet": "cat"}}}}"#);
                (format!("{table:?}"), format!("```json\n{table}\n```"))
            })
            .to_vec(),
        _ => Vec::new(),
    };
    let hand = |(answer, solution): (String, String)| Problem {
        data: format!(r#"{{"question": "", "answer": {answer}, "difficulty": 1, "metadata": {{}}}}"#),
        solution,
    };
    let mut made: Vec<Problem> = by_hand.into_iter().map(hand).collect();
    if has_generator(task) {
        for difficulty in [1, 4, 7, 10] {
            for index in 0..4 {
                let mut random = numbers(1000 * u64::from(difficulty) + index);
                let problem =
                    generate(task, difficulty, index, &mut random).unwrap_or_else(|e| panic!("{e}"));
                made.push(Problem { data: problem.game_data_str(), solution: problem.solution });
            }
        }
    }
    made
}
