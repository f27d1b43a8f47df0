//! Defaults of single keys in tables that have no overall default.

pub(super) fn seed() -> u64 {
    1
}

pub(super) fn part_weight() -> f64 {
    1.0
}

pub(super) fn maze_size() -> usize {
    17
}

pub(super) fn maze_train() -> u64 {
    1_000_000
}

pub(super) fn maze_held_out() -> u64 {
    256
}

pub(super) fn held_out_share() -> f64 {
    0.02
}

pub(super) fn max_prompt_tokens() -> usize {
    1024
}

pub(super) fn fewest_operations() -> usize {
    2
}

pub(super) fn most_operations() -> usize {
    4
}

pub(super) fn largest() -> u64 {
    99
}

pub(super) fn arithmetic_train() -> u64 {
    20_000
}

pub(super) fn vocabulary() -> usize {
    320
}

pub(super) fn architecture() -> fgrpo_nn::config::Architecture {
    fgrpo_nn::config::Architecture::Qwen2
}

pub(super) fn rope_theta() -> f64 {
    1e6
}

pub(super) fn yes() -> bool {
    true
}

pub(super) fn init_std() -> f32 {
    0.02
}

pub(super) fn sft_batch() -> usize {
    32
}

pub(super) fn sft_eval_every() -> u64 {
    50
}

pub(super) fn sft_eval_problems() -> usize {
    256
}

pub(super) fn sft_save_every() -> u64 {
    100
}

pub(super) fn sft_lr() -> f64 {
    5e-4
}

pub(super) fn sft_betas() -> [f64; 2] {
    [0.9, 0.95]
}

pub(super) fn weight_decay() -> f64 {
    0.01
}

pub(super) fn max_grad_norm() -> f64 {
    1.0
}
