//! What was probably meant by a flag that a command doesn't have.

use super::Cli;
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use fgrpo_train::config;

/// Commands whose configuration `--set` changes.
const WITH_CONFIGURATION: [&str; 3] = ["train", "sft", "sweep"];

/// The error with a tip, where one is known: the key for `--set`; or, for a number that
/// can't be read, with what was wanted.
pub fn with_tip(mut error: clap::Error) -> clap::Error {
    if error.kind() == ErrorKind::ValueValidation {
        return with_wanted(error);
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

/// Says what number was wanted, where the standard library says only what is wrong with the one found.
fn with_wanted(error: clap::Error) -> clap::Error {
    let wrong = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    let wanted = match wrong.as_str() {
        "invalid digit found in string" | "cannot parse integer from empty string" => "wanted a whole number",
        "number too large to fit in target type" => "wanted a smaller number",
        "number too small to fit in target type" => "wanted a larger number",
        "invalid float literal" | "cannot parse float from empty string" => "wanted a number",
        _ => return error,
    };
    let text = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let (found, flag) = (text(ContextKind::InvalidValue), text(ContextKind::InvalidArg));
    Cli::command()
        .error(ErrorKind::ValueValidation, format!("invalid value '{found}' for '{flag}': {wanted}"))
}

/// Names the arguments that are no UTF-8, which clap doesn't. Paths may be among them: those are taken as they are.
fn with_arguments(error: clap::Error) -> clap::Error {
    let found: Vec<String> = std::env::args_os()
        .skip(1)
        .filter(|word| word.to_str().is_none())
        .map(|word| format!("{word:?}"))
        .collect();
    if found.is_empty() {
        return error;
    }
    let what = format!("found {}, wanted UTF-8 in all arguments but paths", found.join(", "));
    Cli::command().error(ErrorKind::InvalidUtf8, what)
}

/// What to write in place of `flag` in a command line.
fn tip(words: &[String], flag: &str) -> Option<String> {
    // `--set key value`, of which the value is one argument too many.
    let apart = words.windows(3).find(|w| w[0] == "--set" && !w[1].contains('=') && !w[2].starts_with('-'));
    if let Some([_, key, value]) = apart {
        return Some(format!("one argument changes a key: '--set {key}={value}'"));
    }
    if words.first().is_some_and(|word| word == "serve") && ["--port", "--host"].contains(&flag) {
        return Some("one argument has both: '--listen 127.0.0.1:8000'".to_owned());
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
    Some(format!("keys of the configuration are changed by '--set {first}=VALUE'{others}"))
}
