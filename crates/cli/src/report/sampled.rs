//! Pages about samples rather than runs: an evaluation folder, or two models compared.

use super::card::Card;
use super::page::{Section, page};
use super::templates::Templates;
use crate::chart::page::{Labels, Lines, Plot, success_rates};
use fgrpo_core::rng::Key as RandomKey;
use fgrpo_eval::estimate::{self, Measured};
use fgrpo_eval::figure::{Colour, Curve, Key, Notation, Scale};
use fgrpo_eval::samples::{Benchmark, ProblemCounts};
use fgrpo_eval::table::Table;
use fgrpo_verify::verdict::Verdict;
use serde::Serialize;

/// One model's pass@k on a data set.
pub(crate) struct PassCurve {
    /// pass@k, by the name of the model or what else tells it apart.
    curve: estimate::Curve,
    /// Success rate of each problem with a scored sample.
    rates: Vec<f64>,
}

impl PassCurve {
    pub(crate) fn of(model: &str, benchmark: &Benchmark, ks: &[u64], resamples: u64, key: RandomKey) -> Self {
        let problems: Vec<&ProblemCounts> = benchmark.problems.iter().collect();
        let scored = problems.iter().filter(|p| p.samples > 0);
        Self {
            curve: estimate::Curve::of(model, &problems, ks, resamples, key),
            rates: scored.map(|p| p.correct as f64 / p.samples as f64).collect(),
        }
    }

    /// The parts of each point that `of` picks.
    fn points<T>(&self, of: fn(f64, &Measured) -> T) -> Vec<T> {
        self.curve.points.iter().map(|(&k, m)| of(k as f64, m)).collect()
    }
}

/// One data set.
pub(crate) struct Set {
    pub(crate) name: String,
    pub(crate) curves: Vec<PassCurve>,
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
    sets: &[Set],
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

fn content(set: &Set) -> Content<'_> {
    let examples = set.examples.chunk_by(|a, b| a.kind == b.kind);
    Content {
        lead: &set.lead,
        table: &set.table,
        plots: [pass_at_k(&set.curves), by_success_rate(&set.curves)].into_iter().flatten().collect(),
        notes: &set.notes,
        by_problem: set.by_problem.as_ref(),
        examples: examples.map(|e| (e[0].kind, e.iter().map(card).collect())).collect(),
    }
}

fn colour(i: usize) -> Colour {
    Colour::Series(i % 8)
}

fn pass_at_k(models: &[PassCurve]) -> Option<Plot> {
    let note = "The chance that one of k samples is correct, mean over problems; shaded: the 95 % interval of the problem bootstrap.";
    let mut labels = Labels::new("pass@k", note, "k", "pass@k");
    if models.len() > 1 {
        let key = |(i, c): (usize, &PassCurve)| Key::new(&c.curve.name, colour(i), false);
        labels.legend = models.iter().enumerate().map(key).collect();
    }
    let curve = |(i, c): (usize, &PassCurve)| Curve {
        dots: true,
        band: c.points(|_, m| (m.interval[0], m.interval[1])),
        ..Curve::new(&c.curve.name, colour(i), c.points(|k, m| (k, m.value)))
    };
    let curves = models.iter().enumerate().map(curve).collect();
    Lines { labels, curves, x: Scale::Log2, format: Notation::Percent, ..Lines::default() }.draw()
}

/// The plot beside it names the colours.
fn by_success_rate(models: &[PassCurve]) -> Option<Plot> {
    let labels = Labels::new(
        "Problems by success rate",
        "Share of the problems by the share of their samples that is correct.",
        "success rate",
        "share of problems",
    );
    let set = |(i, c): (usize, &PassCurve)| (c.curve.name.clone(), colour(i), c.rates.clone());
    success_rates(labels, &models.iter().enumerate().map(set).collect::<Vec<_>>())
}

fn card(example: &Example) -> Card {
    Card::new(example.verdict, &example.response)
        .fact(&example.reason)
        .value("reference", example.target.as_ref())
        .fact(format!("problem {}, sample {}", example.problem, example.sample))
        .folded("prompt", &example.prompt)
}
