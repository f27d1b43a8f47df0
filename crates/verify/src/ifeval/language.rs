//! The language of a string according to the Python package langdetect 1.0.9 with seed 0.

use langdetect::{DetectorFactory, Seed};
use std::sync::OnceLock;

/// Returns whether the language with this code can be detected.
pub(crate) fn is_known(code: &str) -> bool {
    DetectorFactory::builtin().langlist().iter().any(|known| known == code)
}

/// Returns the language's code, or `None` if it can't be detected (IFEval's code then counts the instruction as followed).
pub(crate) fn detect(text: &str) -> Option<String> {
    static FACTORY: OnceLock<DetectorFactory> = OnceLock::new();
    let factory = FACTORY.get_or_init(|| {
        let mut factory = DetectorFactory::builtin().clone();
        // The seed is fixed, because the detector would otherwise use the operating system's random numbers.
        factory.seed = Seed::Int(0);
        factory
    });
    factory.detect(text).ok()
}
