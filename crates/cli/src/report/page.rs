//! The page around its sections: style, navigation, script, and where it was read from.

use super::runs::Group;
use super::templates::Templates;
use crate::output::VERSION;
use crate::output::format::Markup;
use serde::Serialize;

/// A section of a page, rendered.
#[derive(Debug, Serialize)]
pub(super) struct Section {
    /// Its name in the address.
    pub(super) anchor: String,
    pub(super) title: String,
    pub(super) content: Markup,
}

/// What `page.html` shows.
#[derive(Debug, Serialize)]
struct Page<'a> {
    title: &'a str,
    /// Groups of runs that can be hidden.
    groups: &'a [Group],
    sections: &'a [Section],
    sources: &'a [&'a str],
    version: &'static str,
    /// Seconds after which it reloads itself.
    refresh: Option<u64>,
    style: Markup,
    script: Markup,
}

/// The page of these sections. `groups` are the runs that can be hidden on it; `sources` is where it was read from.
pub(super) fn page(
    templates: &Templates,
    title: &str,
    groups: &[Group],
    sections: &[Section],
    sources: &[&str],
    refresh: Option<u64>,
) -> anyhow::Result<String> {
    let page = Page {
        title,
        groups: if groups.len() > 1 { groups } else { &[] },
        sections,
        sources,
        version: VERSION,
        refresh,
        style: Markup(include_str!("report.css").to_owned() + &further_colours(groups.len())),
        script: Markup(include_str!("report.js").to_owned()),
    };
    Ok(templates.render("page.html", &page)?.0)
}

/// Colours of the style sheet.
const COLOURS: usize = 8;

/// Classes for the colours of groups beyond those of the style sheet: hues a golden angle apart, dark and light in turn.
fn further_colours(groups: usize) -> String {
    let rule = |i: usize| {
        let hue = (40.0 + 137.508 * i as f64) % 360.0;
        let light = if i.is_multiple_of(2) { (48, 78) } else { (64, 66) };
        format!(
            ".c{i} {{ --c: light-dark(oklch({}% .15 {hue:.0}), oklch({}% .13 {hue:.0})) }}\n",
            light.0, light.1
        )
    };
    (COLOURS..groups).map(rule).collect()
}
