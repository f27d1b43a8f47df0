//! What stands in for the paper's models and benchmarks where small runs are shown: mazes or arithmetic in text, whose
//! held-out problems are the benchmark, and harder ones of the same kind what is out of domain.

use super::data::{Item, Substitute, paper};
use super::sources::Sources;
use fgrpo_train::config::builtin::builtin;
use fgrpo_train::config::{Config, TaskConfig};
use std::collections::BTreeSet;

/// The paper's maze.
pub(super) const MAZE: &str = "maze-17.toml";

/// The text of a configuration under configs/.
pub(super) fn config_text(file: &str) -> &'static str {
    builtin(file.trim_end_matches(".toml")).expect("the data names a configuration")
}

/// Problems out of the domain of the arithmetic policy, by their name in results.
pub(super) const LARGER: &str = "arithmetic-larger";

impl Substitute {
    /// What is trained on a laptop for an item.
    pub(super) fn of(item: &Item) -> &'static Self {
        let of = if item.is_maze() { "maze" } else { "arithmetic" };
        paper().substitutes.iter().find(|s| s.of == of).expect("the data has both substitutes")
    }

    /// What these results stand in for; none for the paper's own models or mazes.
    ///
    /// # Errors
    /// A configuration that can't be read.
    pub(super) fn of_results(item: &Item, sources: &Sources) -> anyhow::Result<Option<Self>> {
        if item.is_maze() { Self::of_mazes(sources) } else { Ok(Self::of_runs(sources)) }
    }

    /// What runs of `fgrpo train` and `fgrpo sweep` on our own tasks stand in for; none where other results are among them.
    fn of_runs(sources: &Sources) -> Option<Self> {
        let first = sources.all.iter().find(|s| s.run.is_some())?.benchmarks[0].name.as_str();
        let of = paper().substitutes.iter().map(|s| s.of.as_str()).find(|of| *of == first)?;
        let names = || sources.all.iter().flat_map(|s| &s.benchmarks).map(|b| b.name.as_str());
        let runs = sources.all.iter().filter(|s| s.run.is_some()).count();
        names().all(|name| name == of || name == LARGER).then(|| Self {
            of: of.to_owned(),
            out_of_domain: names().any(|name| name == LARGER).then(|| LARGER.to_owned()),
            what: format!("{runs} runs on {of}"),
            ..Self::default()
        })
    }

    /// What runs on mazes stand in for whose mazes or steps aren't the paper's; none where all are.
    fn of_mazes(sources: &Sources) -> anyhow::Result<Option<Self>> {
        let size = |config: &Config| match &config.task {
            TaskConfig::Maze(maze) => Some((maze.size, config.steps)),
            _ => None,
        };
        let papers = size(&Config::parse(config_text(MAZE), &[])?);
        let configs = sources.all.iter().filter_map(|s| s.run.as_ref()).map(|run| &run.config);
        let runs: Vec<(usize, u64)> = configs.filter_map(size).collect();
        if runs.iter().all(|run| Some(*run) == papers) {
            return Ok(None);
        }
        let listed = |all: BTreeSet<String>| all.into_iter().collect::<Vec<_>>().join(", ");
        let sizes = listed(runs.iter().map(|(size, _)| format!("{size}x{size}")).collect());
        let steps = listed(runs.iter().map(|(_, steps)| steps.to_string()).collect());
        let plural = if runs.len() == 1 { "" } else { "s" };
        let what = format!("{sizes} mazes, {steps} steps, {} run{plural}", runs.len());
        Ok(Some(Self { of: "maze".to_owned(), what, ..Self::default() }))
    }

    /// The same, with changed settings.
    pub(super) fn changed(&self, set: &[String]) -> Self {
        let changed = if set.is_empty() { String::new() } else { format!("; here with {}", set.join(", ")) };
        Self { what: format!("{}{changed}", self.what), ..self.clone() }
    }

    /// Whether a group size of the paper is shown.
    pub(super) fn has_size(&self, n: u64) -> bool {
        self.group_sizes.as_ref().is_none_or(|sizes| sizes.contains(&n))
    }

    /// What stands for a benchmark or an average of the paper.
    pub(super) fn place<'a>(&'a self, of: &'a str) -> &'a str {
        if of == "OOD" { self.out_of_domain.as_deref().unwrap_or("OOD") } else { &self.of }
    }

    /// A note for the reader of a table or figure made here.
    pub(super) fn says(&self, item: &Item) -> String {
        let mut papers = "language models and their benchmarks";
        if item.is_maze() {
            papers = "17x17 mazes after 20,000 steps";
        } else if !item.is_table() {
            return format!(
                "here: {}; {} of the paper is of language models",
                self.what,
                item.numbered.to_lowercase()
            );
        }
        let compare = if item.is_table() { "; compare the effects." } else { "" };
        let more = item.laptop.as_ref().map_or_else(String::new, |more| format!(" {more}"));
        format!("here: {}; the paper: {papers}. Values differ in what they measure{compare}{more}", self.what)
    }
}
