//! The instruction set of element-wise loops and products, chosen once per process.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::error::Error;

/// Environment variable that forces a level.
const VARIABLE: &str = "FGRPO_SIMD";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Level {
    Plain = 1,
    /// AVX2 with fused multiply-add.
    Avx2 = 2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512 = 3,
    /// NEON, which every aarch64 processor has.
    Neon = 4,
}

impl Level {
    const ALL: [(&'static str, Level); 4] =
        [("avx512", Level::Avx512), ("avx2", Level::Avx2), ("neon", Level::Neon), ("plain", Level::Plain)];

    /// Returns whether a processor whose best level is `self` supports `other`.
    fn has(self, other: Level) -> bool {
        self == other || other == Level::Plain || (self, other) == (Level::Avx512, Level::Avx2)
    }

    /// Returns the name of the level in `FGRPO_SIMD`.
    pub(crate) fn name(self) -> &'static str {
        Level::ALL.iter().find(|level| level.1 == self).expect("every level has a name").0
    }
}

fn best() -> Level {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        let wide = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        return if wide { Level::Avx512 } else { Level::Avx2 };
    }
    if cfg!(target_arch = "aarch64") { Level::Neon } else { Level::Plain }
}

/// Returns the level for a value of `FGRPO_SIMD` on a processor whose best level is `best`.
fn choose(setting: Option<&str>, best: Level) -> Result<Level, Error> {
    let Some(name) = setting.filter(|name| !name.is_empty()) else { return Ok(best) };
    match Level::ALL.iter().find(|level| level.0 == name) {
        Some(&(_, level)) if best.has(level) => Ok(level),
        Some(_) => Err(Error::request(
            VARIABLE,
            format!("{name}, which this processor doesn't support"),
            format!("{} or lower, or no setting", best.name()),
        )),
        None => Err(Error::request(VARIABLE, name, "avx512, avx2, neon, plain, or no setting")),
    }
}

/// Returns the level in use: the processor's best, or the one set by the environment variable `FGRPO_SIMD`.
/// Returns an error if the variable is not a level or the processor doesn't support it.
pub(crate) fn check() -> Result<Level, Error> {
    choose(std::env::var(VARIABLE).ok().as_deref(), best())
}

/// Returns the cached result of [`check`], because many loops are short. Ignores an invalid setting, for which creating an engine fails.
#[inline(always)]
pub(crate) fn level() -> Level {
    static LEVEL: AtomicU8 = AtomicU8::new(0);
    #[cold]
    fn detect() -> Level {
        let level = check().unwrap_or_else(|_| best());
        LEVEL.store(level as u8, Ordering::Relaxed);
        level
    }
    match LEVEL.load(Ordering::Relaxed) {
        0 => detect(),
        1 => Level::Plain,
        2 => Level::Avx2,
        3 => Level::Avx512,
        _ => Level::Neon,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_supported_level_is_chosen_and_others_are_errors() {
        assert_eq!(choose(None, Level::Avx2).unwrap(), Level::Avx2);
        assert_eq!(choose(Some(""), Level::Avx512).unwrap(), Level::Avx512);
        assert_eq!(choose(Some("plain"), Level::Avx512).unwrap(), Level::Plain);
        let message = choose(Some("avx512"), Level::Avx2).unwrap_err().to_string();
        assert!(message.contains("FGRPO_SIMD") && message.contains("avx2 or lower"), "{message}");
        for (name, best) in [("neon", Level::Avx512), ("avx2", Level::Neon), ("avx512", Level::Neon)] {
            assert!(choose(Some(name), best).is_err(), "{name} on {best:?}");
        }
        let message = choose(Some("sse9"), Level::Avx2).unwrap_err().to_string();
        assert!(message.contains("sse9") && message.contains("avx512, avx2, neon, plain"), "{message}");
    }
}
