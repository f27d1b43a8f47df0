//! Frame of a report page: style, navigation, script and list of sources, around the sections.

use super::runs::Group;
use super::templates::Templates;
use crate::output::VERSION;
use crate::output::format::Markup;
use serde::Serialize;

/// A section of a page, rendered.
#[derive(Debug, Serialize)]
pub(super) struct Section {
    /// HTML id of the section.
    pub(super) anchor: String,
    pub(super) title: String,
    pub(super) content: Markup,
}

/// Data of `page.html`.
#[derive(Debug, Serialize)]
struct Page<'a> {
    title: &'a str,
    /// Groups of runs that the reader can hide.
    groups: &'a [Group],
    sections: &'a [Section],
    sources: &'a [&'a str],
    version: &'static str,
    /// Seconds after which the page reloads itself.
    refresh: Option<u64>,
    style: Markup,
    script: Markup,
}

/// Renders the page with these sections. The reader can hide `groups`. `sources` are the folders or files that were read.
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

/// Number of colours in the style sheet.
const COLOURS: usize = 8;

/// Returns CSS rules for colours beyond those of the style sheet: their hues differ by the golden angle, and dark and light
/// alternate.
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
