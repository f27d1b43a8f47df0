//! Random keys of a run by purpose. Each depends only on the run's seed.

use fgrpo_core::rng::Key;

/// Initial weights.
pub fn weights(seed: u64) -> Key {
    Key::new(seed).with(1)
}

/// Order of the demonstrations.
pub fn demonstrations(seed: u64) -> Key {
    Key::new(seed).with(2)
}

/// Order of the training prompts.
pub fn prompts(seed: u64) -> Key {
    Key::new(seed).with(3)
}

/// Samples of a training step.
pub fn rollout(seed: u64, step: u64) -> Key {
    Key::new(seed).with(4).with(step)
}

/// Selection of the logged rollouts.
pub fn logging(seed: u64, step: u64) -> Key {
    Key::new(seed).with(6).with(step)
}

/// Initial factors of an adapter.
pub fn adapter(seed: u64) -> Key {
    Key::new(seed).with(9)
}
