//! On/off environment variables for measuring and debugging. They don't change results.

use crate::error::Error;

/// Returns whether the environment variable `variable` is `on`, or `default` if it is unset or empty.
/// Returns an error for a value other than `on` and `off`.
pub(crate) fn is_on(variable: &'static str, default: bool) -> Result<bool, Error> {
    parse(variable, std::env::var(variable).ok().as_deref(), default)
}

fn parse(variable: &'static str, setting: Option<&str>, default: bool) -> Result<bool, Error> {
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
            let parse = |setting| parse("FGRPO_SWITCH", setting, default);
            assert_eq!([parse(None).unwrap(), parse(Some("")).unwrap()], [default; 2]);
            assert!(parse(Some("on")).unwrap() && !parse(Some("off")).unwrap());
            for other in ["1", "ON", "true"] {
                let message = parse(Some(other)).unwrap_err().to_string();
                assert!(
                    ["FGRPO_SWITCH", other, "on, off"].iter().all(|part| message.contains(part)),
                    "{message}"
                );
            }
        }
    }
}
