//! Pages about samples rather than runs: an evaluation folder, or two models compared.

use super::card::Card;
use super::page::{Section, page};
use super::templates::Templates;
use crate::chart::page::{Labels, Lines, Plot, success_rates};
use fgrpo_core::stats::measure::Measure;
use fgrpo_eval::estimate::{self, measure_of_each};
use fgrpo_eval::figure::{Colour, Curve, Key, Notation, Scale};
use fgrpo_eval::samples::Benchmark;
use fgrpo_eval::table::Table;
use serde::Serialize;

/// pass@k of a model, with the model's name, and the samples.
pub(crate) type OfModel<'a> = (estimate::Curve, &'a Benchmark);

/// Results on one data set.
pub(crate) struct Set<'a> {
    pub(crate) name: String,
    pub(crate) models: Vec<OfModel<'a>>,
    /// Opening sentences: the results.
    pub(crate) lead: Vec<String>,
    /// Sentences under the plots: notes on the results.
    pub(crate) notes: Vec<String>,
    /// The plotted values.
    pub(crate) table: Table,
    /// Collapsed table with a row for each problem.
    pub(crate) by_problem: Option<Table>,
    /// Samples worth reading, by kind: its title, and a card for each.
    pub(crate) examples: Vec<(&'static str, Vec<Card>)>,
}

/// Data of `samples.html` for a data set.
#[derive(Debug, Serialize)]
struct Content<'a> {
    lead: &'a [String],
    table: &'a Table,
    plots: Vec<Plot>,
    notes: &'a [String],
    by_problem: Option<&'a Table>,
    examples: &'a [(&'static str, Vec<Card>)],
}

/// Data of `about.html`.
#[derive(Debug, Serialize)]
struct About<'a> {
    facts: &'a [(String, String)],
}

/// Renders the page. `facts` apply to all samples; `sources` are the files that were read.
pub(crate) fn samples_page(
    title: &str,
    facts: &[(String, String)],
    sets: &[Set<'_>],
    sources: &[&str],
) -> anyhow::Result<String> {
    let templates = Templates::new()?;
    let mut sections = Vec::new();
    for (i, set) in sets.iter().enumerate() {
        let content = templates.render("samples.html", &content(set))?;
        sections.push(Section { anchor: format!("set{i}"), title: set.name.clone(), content });
    }
    if !facts.is_empty() {
        let content = templates.render("about.html", &About { facts })?;
        sections.push(Section { anchor: "about".into(), title: "About the samples".into(), content });
    }
    page(&templates, title, &[], &sections, sources, None)
}

fn content<'a>(set: &'a Set<'_>) -> Content<'a> {
    Content {
        lead: &set.lead,
        table: &set.table,
        plots: [pass_at_k(&set.models), by_success_rate(&set.models)].into_iter().flatten().collect(),
        notes: &set.notes,
        by_problem: set.by_problem.as_ref(),
        examples: &set.examples,
    }
}

fn colour(i: usize) -> Colour {
    Colour::Series(i % 8)
}

fn pass_at_k(models: &[OfModel<'_>]) -> Option<Plot> {
    let note = "The chance that one of k samples is correct, mean over problems; shaded: the 95 % interval of the problem bootstrap.";
    let mut labels = Labels::new("pass@k", note, "k", "pass@k");
    if models.len() > 1 {
        let key = |(i, (curve, _)): (usize, &OfModel<'_>)| Key::new(&curve.name, colour(i), false);
        labels.legend = models.iter().enumerate().map(key).collect();
    }
    let curve = |(i, (curve, _)): (usize, &OfModel<'_>)| Curve {
        dots: true,
        band: curve.points.values().map(|m| m.interval.into()).collect(),
        ..Curve::new(&curve.name, colour(i), curve.points.iter().map(|(k, m)| (*k as f64, m.value)).collect())
    };
    let curves = models.iter().enumerate().map(curve).collect();
    Lines { labels, curves, x: Scale::Log2, format: Notation::Percent, ..Lines::default() }.draw()
}

/// Plots the distribution of success rates, without a legend, because the pass@k plot next to it has one.
fn by_success_rate(models: &[OfModel<'_>]) -> Option<Plot> {
    let labels = Labels::new(
        "Problems by success rate",
        "Share of the problems by the share of their samples that is correct.",
        "success rate",
        "share of problems",
    );
    let set = |(i, (curve, benchmark)): (usize, &OfModel<'_>)| {
        let rates = measure_of_each(&benchmark.problems, Measure::PassAtK(1)).into_iter().flatten();
        (curve.name.clone(), colour(i), rates.collect())
    };
    success_rates(labels, &models.iter().enumerate().map(set).collect::<Vec<_>>())
}
