//! The page around the sections, and what sections share: escaping, colours, groups of runs.

use super::chart::lines::{Curve, Stroke};
use super::input::Run;
use std::collections::BTreeMap;
use std::fmt::Write;

const STYLE: &str = include_str!("report.css");
const SCRIPT: &str = include_str!("report.js");

/// Text as HTML.
pub(super) fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c if c.is_control() && c != '\n' && c != '\t' => html.push('\u{fffd}'),
            c => html.push(c),
        }
    }
    html
}

/// Runs that differ only in their seed, or a run alone: one colour.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) name: String,
    /// Indices of the runs.
    pub(super) runs: Vec<usize>,
    pub(super) colour: usize,
}

impl Group {
    /// The class of the group's curves: its colour, and a name by which the page can hide them.
    pub(super) fn class(&self) -> String {
        format!("c{} g{}", self.colour % 8, self.colour)
    }
}

/// The groups, in order of their first run.
pub(super) fn groups(runs: &[Run]) -> Vec<Group> {
    let mut groups: Vec<(Option<BTreeMap<&str, &str>>, Group)> = Vec::new();
    for (i, run) in runs.iter().enumerate() {
        let key = (!run.config.is_empty()).then(|| without_seeds(run));
        match groups.iter_mut().find(|g| key.is_some() && g.0 == key) {
            Some((_, group)) => group.runs.push(i),
            None => groups.push((key, Group { name: run.name.clone(), runs: vec![i], colour: groups.len() })),
        }
    }
    let mut groups: Vec<Group> = groups.into_iter().map(|g| g.1).collect();
    let methods: Vec<Option<String>> = groups.iter().map(|g| runs[g.runs[0]].method()).collect();
    for (i, group) in groups.iter_mut().enumerate() {
        if group.runs.len() > 1 {
            // The runs' names carry their seeds; the method says what they share, where it is theirs alone.
            let alone = methods.iter().filter(|m| **m == methods[i]).count() == 1;
            group.name = match &methods[i] {
                Some(method) if alone => format!("{method} ({} seeds)", group.runs.len()),
                _ => format!("{} and {} more seeds", group.name, group.runs.len() - 1),
            };
        }
    }
    groups
}

fn without_seeds(run: &Run) -> BTreeMap<&str, &str> {
    run.config
        .iter()
        .filter(|(k, _)| !(k.as_str() == "seed" || k.ends_with(".seed") || k.as_str() == "out"))
        .map(|(k, v)| (k.as_str(), v.as_str()))
        .collect()
}

/// One curve per group of what `points` reads from a run; for several seeds their mean over the xs that
/// all have, with the single runs faint behind it.
pub(super) fn curves(runs: &[Run], groups: &[Group], points: impl Fn(&Run) -> Vec<(f64, f64)>) -> Vec<Curve> {
    let mut curves = Vec::new();
    for group in groups {
        let each: Vec<Vec<(f64, f64)>> =
            group.runs.iter().map(|&i| points(&runs[i])).filter(|p| !p.is_empty()).collect();
        let curve = |name: &str, stroke, points| Curve {
            name: name.into(),
            class: group.class(),
            stroke,
            points,
            band: Vec::new(),
        };
        if each.len() > 1 {
            for (&i, points) in group.runs.iter().zip(&each) {
                curves.push(curve(&runs[i].name, Stroke::Faint, points.clone()));
            }
        }
        let mean = mean_curve(&each);
        if !mean.is_empty() {
            curves.push(curve(&group.name, Stroke::Solid, mean));
        }
    }
    curves
}

/// The mean of curves over the xs that all of them have.
fn mean_curve(each: &[Vec<(f64, f64)>]) -> Vec<(f64, f64)> {
    let [first, rest @ ..] = each else { return Vec::new() };
    let rest: Vec<BTreeMap<u64, f64>> =
        rest.iter().map(|points| points.iter().map(|p| (p.0.to_bits(), p.1)).collect()).collect();
    let at = |&(x, y): &(f64, f64)| {
        let others = rest.iter().map(|r| r.get(&x.to_bits()).copied()).sum::<Option<f64>>()?;
        Some((x, (y + others) / each.len() as f64))
    };
    first.iter().filter_map(at).collect()
}

/// The legend of the groups, for a plot with curves of more than one.
pub(super) fn legend(groups: &[Group]) -> Vec<(String, String, bool)> {
    match groups {
        [_] => Vec::new(),
        _ => groups.iter().map(|g| (g.class(), g.name.clone(), false)).collect(),
    }
}

/// The page. A section is (anchor, title, content); empty ones are left out.
pub(super) fn page(runs: &[Run], sections: &[(&str, &str, String)]) -> String {
    let groups = groups(runs);
    let title = match runs {
        [one] => one.name.clone(),
        _ => groups.iter().map(|g| g.name.as_str()).collect::<Vec<_>>().join(" \u{b7} "),
    };
    let mut switches = String::new();
    if groups.len() > 1 {
        switches.push_str("<div class=\"runs\">");
        for group in &groups {
            let _ = write!(
                switches,
                "<label class=\"c{}\"><input type=\"checkbox\" checked data-hide=\"g{}\"><i class=\"key\"></i>{}</label>",
                group.colour % 8,
                group.colour,
                escape(&group.name)
            );
        }
        switches.push_str("</div>");
    }
    let sources: Vec<&str> = runs.iter().map(|r| r.path.as_str()).collect();
    frame(&title, &switches, sections, &sources)
}

/// What every page has around its sections: style, navigation, the script, where it was read from.
pub(super) fn frame(
    title: &str,
    switches: &str,
    sections: &[(&str, &str, String)],
    sources: &[&str],
) -> String {
    let sections: Vec<_> = sections.iter().filter(|s| !s.2.is_empty()).collect();
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{} \u{2013} fgrpo report</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n<div class=\"bar\"><span class=\"brand\">fgrpo</span><nav>",
        escape(title)
    );
    for (anchor, name, _) in &sections {
        let _ = write!(html, "<a href=\"#{anchor}\">{name}</a>");
    }
    let _ = write!(html, "</nav>{switches}</div>\n</header>\n<main>\n<h1>{}</h1>\n", escape(title));
    for (anchor, name, content) in &sections {
        let _ = write!(html, "<section id=\"{anchor}\">\n<h2>{name}</h2>\n{content}\n</section>\n");
    }
    let _ = write!(
        html,
        "</main>\n<footer>Written by fgrpo {} from {}.</footer>\n<div id=\"tip\" hidden></div>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION"),
        sources.iter().map(|s| format!("<code>{}</code>", escape(s))).collect::<Vec<_>>().join(", "),
    );
    html
}
