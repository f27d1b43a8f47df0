//! Defaults of single keys in tables that have no overall default.

pub(super) fn seed() -> u64 {
    1
}

pub(super) fn held_out_share() -> f64 {
    0.02
}

pub(super) fn max_prompt_tokens() -> usize {
    1024
}

pub(super) fn architecture() -> fgrpo_nn::config::Architecture {
    fgrpo_nn::config::Architecture::Qwen2
}

pub(super) fn yes() -> bool {
    true
}
