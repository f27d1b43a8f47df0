//! Flags whose values are names of enum variants.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use fgrpo_eval::names::Named;
use std::path::PathBuf;

/// Parses a name of `T`.
pub(crate) fn named<T: Named>() -> impl TypedValueParser<Value = T> {
    named_with(|value: T| Some(value.about()))
}

/// Parses a name of `T`; only values with a help text are allowed.
pub(crate) fn named_with<T: Named>(
    help: impl Fn(T) -> Option<&'static str>,
) -> impl TypedValueParser<Value = T> {
    let values =
        T::NAMES.iter().filter_map(|(value, name, _)| Some(PossibleValue::new(*name).help(help(*value)?)));
    PossibleValuesParser::new(values.collect::<Vec<_>>())
        .map(|name| T::from_name(&name).expect("the parser accepts only names of T"))
}

/// Parses one of these names.
pub(crate) fn among<T: Copy + Send + Sync + 'static, const N: usize>(
    named: [(&'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(named.map(|(name, _)| name))
        .map(move |value| named.into_iter().find(|(name, _)| *name == value).expect("one of the names").1)
}

/// Parses NAME=PATH.
pub(crate) fn named_path(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok((name.to_owned(), path.into())),
        _ => Err("expected NAME=PATH".to_owned()),
    }
}
