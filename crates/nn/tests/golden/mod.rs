//! The golden cases that `make.py` writes: checkpoints saved by transformers, and PyTorch's results for them.

#![allow(dead_code, reason = "each test crate uses its part")]

use std::path::PathBuf;

use fgrpo_nn::weights::{Checkpoint, TensorFile};

/// The cases' folder names.
pub(crate) const CASES: [&str; 19] = [
    "qwen2_tied",
    "qwen2_odd_heads_sharded",
    "qwen3_ratio_4",
    "qwen3_tied_bf16",
    "llama3_scaled",
    "llama_linear",
    "mistral_window",
    "qwen3_yarn",
    "ministral3",
    "smollm3",
    "olmo2",
    "gemma3_text",
    "olmo3",
    "qwen3_5_text",
    "granite",
    "phi3",
    "lfm2",
    "gemma4_text",
    "gemma4_text_shared",
];

/// The folder of the golden files.
pub(crate) fn folder() -> PathBuf {
    // Works from this crate and from others whose tests use the files. Cargo sets the variable while tests run; if a test was moved to
    // another machine, its caller sets it.
    let crate_folder = std::env::var_os("CARGO_MANIFEST_DIR");
    let crate_folder = crate_folder.map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    crate_folder.join("../nn/tests/golden")
}

/// The checkpoint of a case.
pub(crate) fn checkpoint(case: &str) -> Checkpoint {
    Checkpoint::open(folder().join(case)).unwrap()
}

/// PyTorch's results for a case.
pub(crate) fn expected(case: &str) -> TensorFile {
    TensorFile::open(&folder().join(case).join("expected.safetensors")).unwrap()
}

/// One row of a golden file's `shape`, with its tokens.
#[derive(Debug, Clone)]
pub(crate) struct Sequence {
    /// Sequences of a group have the same prompt and are adjacent.
    pub(crate) group: usize,
    /// The prompt.
    pub(crate) prompt: Vec<u32>,
    /// The completion. Each of its tokens is a prediction.
    pub(crate) completion: Vec<u32>,
}

/// A golden file's sequences.
pub(crate) fn sequences(file: &TensorFile) -> Vec<Sequence> {
    let tokens: Vec<u32> = file.integers("tokens").unwrap().iter().map(|&t| t.try_into().unwrap()).collect();
    let mut rest = tokens.as_slice();
    let mut take = |n: i64| {
        let (head, tail) = rest.split_at(n as usize);
        rest = tail;
        head.to_vec()
    };
    let shape = file.integers("shape").unwrap();
    let rows = shape.as_chunks::<3>().0.iter();
    rows.map(|&[group, prompt, completion]| Sequence {
        group: group as usize,
        prompt: take(prompt),
        completion: take(completion),
    })
    .collect()
}

/// Numbers in a metadata field, separated by blanks.
pub(crate) fn numbers(file: &TensorFile, field: &str) -> Vec<f64> {
    file.metadata()[field].split(' ').map(|x| x.parse().unwrap()).collect()
}

/// The largest |found - wanted| / (1 + |wanted|), and its position.
pub(crate) fn distance(found: &[f32], wanted: &[f32]) -> (f32, usize) {
    assert_eq!(found.len(), wanted.len(), "numbers of values");
    let pairs = found.iter().zip(wanted).enumerate();
    pairs.fold((0.0, 0), |worst, (i, (f, w))| {
        let d = (f - w).abs() / (1.0 + w.abs());
        // A NaN must fail every comparison with the tolerance.
        if d <= worst.0 { worst } else { (if d.is_nan() { f32::INFINITY } else { d }, i) }
    })
}
