//! Distinguishes bad input (exit code 2) from failures of the work itself (exit code 1).

use thiserror::Error;

/// Bad input: a wrong flag, key, file or value. The program ends with exit code 2.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct BadInput(pub String);

/// Stopped on request with its state saved: neither bad input nor a failure, but not complete (exit code 1).
#[derive(Debug, Error)]
#[error("{0}")]
pub struct Stopped(pub String);

/// A choice that the user has after an error. The command line names its flags for it, and Python its keywords.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Resume the run.
    Resume,
    /// Delete the run and start again.
    Restart,
    /// Resume the run, although its settings, data or grader have changed.
    AcceptChanges,
    /// Write to another folder.
    OtherFolder,
    /// Resume the run at its new path after its folder was moved.
    NewPlace,
    /// Use the samples although problems have different numbers of them.
    Uneven,
    /// Choose among all evaluated steps.
    AnyStep,
}

/// An error whose message offers ways to go on. It is either bad input or a failure.
#[derive(Debug, Error)]
#[error("{text}")]
pub struct Advised {
    /// Message without the choices.
    pub text: String,
    /// Whether the error is bad input, like [`BadInput`].
    pub bad_input: bool,
    /// The user's choices, the usual one first.
    pub remedies: &'static [Remedy],
}

/// Formats an error in one line, with the user's choices as `name` words them.
pub fn with_advice(error: &anyhow::Error, name: fn(Remedy) -> &'static str) -> String {
    let line = in_one_line(error);
    let advised = error.chain().find_map(|cause| cause.downcast_ref::<Advised>());
    let names: Vec<&str> = advised.map_or(&[][..], |a| a.remedies).iter().copied().map(name).collect();
    match names.split_last() {
        None => line,
        Some((one, [])) => format!("{line}. To go on, {one}"),
        Some((last, before)) => format!("{line}. To go on, {}, or {last}", before.join(", ")),
    }
}

/// Formats an error and its causes in one line. A message that repeats the file or the cause next to it is shortened.
pub fn in_one_line(error: &anyhow::Error) -> String {
    let mut line: Vec<String> = Vec::new();
    for cause in error.chain().map(ToString::to_string) {
        match line.last() {
            Some(above) if above.ends_with(&cause) => continue,
            // The cause names the file too.
            Some(above) if cause.strip_prefix(above).is_some_and(|rest| rest.starts_with([':', '/'])) => {
                line.pop();
            }
            _ => {}
        }
        line.push(cause);
    }
    line.join(": ")
}

/// Returns a [`BadInput`] error from the function, with a message in the syntax of `format!`. After a list of
/// [`Remedy`] names, returns an [`Advised`] error.
#[macro_export]
macro_rules! bad_input {
    ([$($remedy:ident),+], $($arg:tt)*) => {
        return Err(anyhow::Error::new($crate::failure::Advised {
            text: format!($($arg)*),
            bad_input: true,
            remedies: &[$($crate::failure::Remedy::$remedy),+],
        }))
    };
    ($($arg:tt)*) => {
        return Err(anyhow::Error::new($crate::failure::BadInput(format!($($arg)*))))
    };
}

/// Marks an error as bad input.
pub trait OrBadInput<T> {
    /// Converts the error to [`BadInput`], with its chain of causes in one line. An error that is bad input already is
    /// unchanged.
    fn or_bad_input(self) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> OrBadInput<T> for Result<T, E> {
    fn or_bad_input(self) -> anyhow::Result<T> {
        self.map_err(|e| {
            let e: anyhow::Error = e.into();
            if exit_code(&e) == 2 { e } else { anyhow::Error::new(BadInput(in_one_line(&e))) }
        })
    }
}

/// Returns the exit code for an error: 2 for bad input, 1 for everything else.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    let is_bad = |c: &(dyn std::error::Error + 'static)| {
        c.is::<BadInput>() || c.downcast_ref().is_some_and(|a: &Advised| a.bad_input)
    };
    if error.chain().any(is_bad) { 2 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_or_a_file_is_said_once() {
        let line = |messages: &[&'static str]| {
            let (first, contexts) = messages.split_last().unwrap();
            let error = contexts.iter().rev().fold(anyhow::anyhow!(*first), |error, m| error.context(*m));
            in_one_line(&error)
        };
        assert_eq!(line(&["run", "cannot write x: full", "full"]), "run: cannot write x: full");
        assert_eq!(line(&["bad", "bad/config.json: no field"]), "bad/config.json: no field");
        assert_eq!(line(&["bad", "bad: no tensor"]), "bad: no tensor");
        assert_eq!(line(&["bad", "badly made", "found 1"]), "bad: badly made: found 1");
    }
}
