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
use fgrpo_verify::verdict::Verdict;
use serde::Serialize;

/// pass@k of a model, under its name or what else tells it apart, and the samples that it comes from.
pub(crate) type OfModel<'a> = (estimate::Curve, &'a Benchmark);

/// One data set.
pub(crate) struct Set<'a> {
    pub(crate) name: String,
    pub(crate) models: Vec<OfModel<'a>>,
    /// Sentences that open: what came out.
    pub(crate) lead: Vec<String>,
    /// Sentences under the plots: what belongs beside the numbers.
    pub(crate) notes: Vec<String>,
    /// The numbers of the plots.
    pub(crate) table: Table,
    /// A row per problem, folded away.
    pub(crate) by_problem: Option<Table>,
    pub(crate) examples: Vec<Example>,
}

pub(crate) struct Example {
    /// Title of its kind.
    pub(crate) kind: &'static str,
    pub(crate) verdict: Verdict,
    pub(crate) reason: String,
    /// What the problem is called.
    pub(crate) problem: String,
    /// Index among the problem's samples.
    pub(crate) sample: u64,
    /// What was asked; empty where it isn't at hand.
    pub(crate) prompt: String,
    /// The reference answer, where there is one.
    pub(crate) target: Option<String>,
    pub(crate) response: String,
}

/// What `samples.html` shows of a data set.
#[derive(Debug, Serialize)]
struct Content<'a> {
    lead: &'a [String],
    table: &'a Table,
    plots: Vec<Plot>,
    notes: &'a [String],
    by_problem: Option<&'a Table>,
    examples: Vec<(&'static str, Vec<Card>)>,
}

/// What `about.html` shows.
#[derive(Debug, Serialize)]
struct About<'a> {
    facts: &'a [(String, String)],
}

/// The page. `facts` are what all samples have in common; `sources` is where they were read.
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
    let examples = set.examples.chunk_by(|a, b| a.kind == b.kind);
    Content {
        lead: &set.lead,
        table: &set.table,
        plots: [pass_at_k(&set.models), by_success_rate(&set.models)].into_iter().flatten().collect(),
        notes: &set.notes,
        by_problem: set.by_problem.as_ref(),
        examples: examples.map(|e| (e[0].kind, e.iter().map(card).collect())).collect(),
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

/// The plot beside it names the colours.
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

fn card(example: &Example) -> Card {
    Card::new(example.verdict, &example.response)
        .fact(&example.reason)
        .value("reference", example.target.as_ref())
        .fact(format!("problem {}, sample {}", example.problem, example.sample))
        .folded("prompt", &example.prompt)
}
