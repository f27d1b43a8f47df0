//! The resolved configurations, and the keys in which runs differ.

use super::input::Run;
use super::runs::{Runs, differing};
use serde::Serialize;

/// Data of `configuration.html`.
#[derive(Debug, Serialize)]
pub(super) struct Configuration<'a> {
    runs: Vec<Text<'a>>,
    /// Keys that differ, each with its value in every run.
    differing: Vec<(String, Vec<Option<&'a str>>)>,
}

#[derive(Debug, Serialize)]
struct Text<'a> {
    run: &'a str,
    toml: &'a str,
}

/// Returns the section, or `None` if no run has a configuration.
pub(super) fn section(runs: &Runs) -> Option<Configuration<'_>> {
    let configured: Vec<&Run> = runs.all.iter().filter(|r| !r.files.text.is_empty()).collect();
    let values = |key: String| {
        let values = configured.iter().map(|r| r.setting(&key)).collect();
        (key, values)
    };
    let differing = differing(&configured).into_iter().map(values).collect();
    let texts = configured.iter().map(|r| Text { run: &r.name, toml: r.files.text.trim_end() }).collect();
    (!configured.is_empty()).then_some(Configuration { runs: texts, differing })
}
