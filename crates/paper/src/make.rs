//! A table or figure, from what is there.

use super::data::{Item, Substitute};
use super::made::Made;
use super::sources::Sources;
use super::{figures, fill};
use std::path::Path;

/// Makes a table or figure behind which there are no trained models; `simulated` is the folder of the finished simulation,
/// where it is one.
///
/// # Errors
/// A configuration or folder that can't be read.
pub fn without_results(item: &'static Item, simulated: &Path) -> anyhow::Result<Made> {
    if item.is_table() {
        Ok(fill::from_constants(item)?.made())
    } else {
        figures::from_theory(item, simulated)
    }
}

/// Makes a table or figure from results.
///
/// # Errors
/// Bad input where the results have nothing to do with it.
pub fn from_results(item: &'static Item, sources: &Sources) -> anyhow::Result<Made> {
    with_substitute(item, sources, Substitute::of_results(item, sources)?.as_ref())
}

/// Makes a table or figure from results; `stand` is what stands in for the paper's models and benchmarks.
pub(super) fn with_substitute(
    item: &'static Item,
    sources: &Sources,
    stand: Option<&Substitute>,
) -> anyhow::Result<Made> {
    match item.is_table() {
        true => Ok(fill::from_results(item, sources, stand)?.made()),
        false => figures::from_results(item, sources, stand),
    }
}

/// What was found, and which rows of the item it is of, a line for each.
///
/// # Errors
/// Bad input where the results don't fit the item's rows.
pub fn described(item: &Item, sources: &Sources) -> anyhow::Result<String> {
    sources.describe(item, Substitute::of_results(item, sources)?.is_some())
}
