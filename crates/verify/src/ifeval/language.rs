//! The language of a string according to the Python package langdetect 1.0.9 with seed 0.

use langdetect::{DetectorFactory, Seed};
use std::sync::OnceLock;

/// Whether a language can be detected, by its code.
pub(crate) fn is_known(code: &str) -> bool {
    DetectorFactory::builtin().langlist().iter().any(|known| known == code)
}

/// The language code, or `None` if it can't be detected (the reference then counts the instruction as followed).
pub(crate) fn detect(text: &str) -> Option<String> {
    static FACTORY: OnceLock<DetectorFactory> = OnceLock::new();
    let factory = FACTORY.get_or_init(|| {
        let mut factory = DetectorFactory::builtin().clone();
        // A fixed seed: without one the detector would draw from the operating system.
        factory.seed = Seed::Int(0);
        factory
    });
    factory.detect(text).ok()
}
