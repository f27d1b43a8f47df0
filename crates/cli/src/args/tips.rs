//! Better messages for wrong command lines: suggestions for unknown flags, and the expected kind of number.

use super::Cli;
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use fgrpo_train::config;

/// Commands whose configuration `--set` changes.
const WITH_CONFIGURATION: [&str; 3] = ["train", "sft", "sweep"];

/// Adds a tip to an error: the key for `--set` in place of an unknown flag, or the expected kind for a malformed number.
pub fn with_tip(mut error: clap::Error) -> clap::Error {
    if error.kind() == ErrorKind::ValueValidation {
        return with_expected(error);
    }
    if error.kind() == ErrorKind::InvalidUtf8 {
        return with_arguments(error);
    }
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return error };
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(tip) = tip(&words, flag) {
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// Adds the expected kind of number, because the standard library's message says only what is wrong.
fn with_expected(error: clap::Error) -> clap::Error {
    let wrong = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    let expected = match wrong.as_str() {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            "expected a whole number"
        }
        "number too large to fit in target type" => "expected a smaller number",
        "number too small to fit in target type" => "expected a larger number",
        "invalid float literal" | "cannot parse float from empty string" => "expected a number",
        _ => return error,
    };
    let text = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let (value, flag) = (text(ContextKind::InvalidValue), text(ContextKind::InvalidArg));
    Cli::command()
        .error(ErrorKind::ValueValidation, format!("invalid value '{value}' for '{flag}': {expected}"))
}

/// Lists the arguments that aren't UTF-8, because clap doesn't name them. Some of them may be paths, which needn't be UTF-8.
fn with_arguments(error: clap::Error) -> clap::Error {
    let invalid: Vec<String> = std::env::args_os()
        .skip(1)
        .filter(|word| word.to_str().is_none())
        .map(|word| format!("{word:?}"))
        .collect();
    if invalid.is_empty() {
        return error;
    }
    let message = format!("not UTF-8: {}; only paths may contain other bytes", invalid.join(", "));
    Cli::command().error(ErrorKind::InvalidUtf8, message)
}

/// Suggests a replacement for `flag`.
fn tip(words: &[String], flag: &str) -> Option<String> {
    // `--set key value` has one argument too many.
    let split = words.windows(3).find(|w| w[0] == "--set" && !w[1].contains('=') && !w[2].starts_with('-'));
    if let Some([_, key, value]) = split {
        return Some(format!("write key and value as one argument: '--set {key}={value}'"));
    }
    let is_number = |word: &str| word.parse::<f64>().is_ok();
    let list = words.windows(2).find(|w| w[1] == flag && is_number(&w[1]) && w[0].split(',').all(is_number));
    if let Some([before, _]) = list {
        return Some(format!("separate the values of a list by commas: '{before},{flag}'"));
    }
    if words.first().is_some_and(|word| word == "serve") && ["--port", "--host"].contains(&flag) {
        return Some("use '--listen 127.0.0.1:8000'".to_owned());
    }
    let command = words.first().filter(|word| WITH_CONFIGURATION.contains(&word.as_str()))?;
    let mut keys = config::suggestions(flag.trim_start_matches('-'));
    if command == "sft" {
        keys.sort_by_key(|key| !key.starts_with("sft."));
    }
    let (first, others) = keys.split_first()?;
    let others = match others {
        [] => String::new(),
        others => format!(" (or {})", others.join(", ")),
    };
    Some(format!("to change a key of the configuration, use '--set {first}=VALUE'{others}"))
}
