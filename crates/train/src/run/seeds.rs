//! Random keys of a run by purpose. Each key depends only on the run's seed, and on the step if it has one.

use fgrpo_core::rng::Key;

/// Returns the key of the initial weights.
pub fn weights(seed: u64) -> Key {
    Key::new(seed).with(1)
}

/// Returns the key of the order of the demonstrations.
pub fn demonstrations(seed: u64) -> Key {
    Key::new(seed).with(2)
}

/// Returns the key of the order of the training prompts.
pub fn prompts(seed: u64) -> Key {
    Key::new(seed).with(3)
}

/// Returns the key of the samples of a training step.
pub fn rollout(seed: u64, step: u64) -> Key {
    Key::new(seed).with(4).with(step)
}

/// Returns the key that selects the logged rollouts of a step.
pub fn logging(seed: u64, step: u64) -> Key {
    Key::new(seed).with(6).with(step)
}

/// Returns the key of the initial factors of an adapter.
pub fn adapter(seed: u64) -> Key {
    Key::new(seed).with(9)
}
