//! Switches for measuring and debugging: environment variables that are on or off. Results don't depend on them.

use crate::error::Error;

/// Whether the switch `variable` is on; `default` if it is not set.
/// Fails if it is neither `on` nor `off`.
pub(crate) fn is_on(variable: &'static str, default: bool) -> Result<bool, Error> {
    asked(variable, std::env::var(variable).ok().as_deref(), default)
}

fn asked(variable: &'static str, setting: Option<&str>, default: bool) -> Result<bool, Error> {
    match setting {
        None | Some("") => Ok(default),
        Some("on") => Ok(true),
        Some("off") => Ok(false),
        Some(other) => Err(Error::request(variable, other, "on, off, or no setting")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_on_off_or_at_its_default_and_other_settings_are_refused_by_name() {
        for default in [false, true] {
            let asked = |setting| asked("FGRPO_SWITCH", setting, default);
            assert_eq!([asked(None).unwrap(), asked(Some("")).unwrap()], [default; 2]);
            assert!(asked(Some("on")).unwrap() && !asked(Some("off")).unwrap());
            for other in ["1", "ON", "true"] {
                let message = asked(Some(other)).unwrap_err().to_string();
                assert!(
                    ["FGRPO_SWITCH", other, "on, off"].iter().all(|part| message.contains(part)),
                    "{message}"
                );
            }
        }
    }
}
