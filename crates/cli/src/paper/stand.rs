//! What stands in for the paper's models and benchmarks where small runs are shown: mazes or arithmetic in text, whose held-out
//! problems are the benchmark, and harder ones of the same kind what is out of domain.

use super::numbers::{Drawn, Printed};
use super::sources::Sources;
use fgrpo_train::config::{Config, TaskConfig};
use std::collections::BTreeSet;

/// What stands in for the paper's models and benchmarks.
pub(super) struct Stand {
    /// The benchmark in the domain of training, by its name in the results.
    pub(super) of: &'static str,
    /// The benchmark out of that domain.
    out_of_domain: Option<&'static str>,
    /// Group sizes of the maze that are shown; all where absent.
    group_sizes: Option<Vec<u64>>,
    /// What is trained, in words.
    what: String,
}

/// The paper's maze.
pub(super) const MAZE_17: &str = include_str!("../../../../configs/maze-17.toml");

/// The mazes of table 5 and figures 6 and 7.
const PAPERS_MAZES: &str = "17x17 mazes after 20,000 steps";

/// Problems out of the domain of the arithmetic policy, by their name in the results.
pub(super) const LARGER: &str = "arithmetic-larger";

impl Stand {
    /// The maze, for the paper's items on mazes.
    pub(super) fn maze() -> Self {
        Self {
            of: "maze",
            out_of_domain: None,
            group_sizes: Some(vec![4, 8, 16]),
            what: "9x9 mazes, 0.86M parameters, 1,500 steps, one seed".to_owned(),
        }
    }

    /// A language model on arithmetic in text.
    pub(super) fn arithmetic() -> Self {
        Self {
            of: "arithmetic",
            out_of_domain: Some(LARGER),
            group_sizes: None,
            what: "arithmetic in text, 0.83M parameters, 400 steps, one seed; out of domain are values up to 299, where training stays below 100"
                .to_owned(),
        }
    }

    /// The same, with changed settings.
    pub(super) fn changed(mut self, set: &[String]) -> Self {
        if !set.is_empty() {
            self.what += &format!("; here with {}", set.join(", "));
        }
        self
    }

    /// What runs of `fgrpo train` and `fgrpo sweep` on our own tasks stand in for; none where other results are among them.
    pub(super) fn of_runs(sources: &Sources) -> Option<Self> {
        let first = sources.all.iter().find_map(|s| s.run.as_ref().map(|_| s.benchmarks[0].name.as_str()))?;
        let of = ["maze", "arithmetic"].into_iter().find(|task| *task == first)?;
        let own = |name: &str| name == of || name == LARGER;
        let ours = sources.all.iter().all(|s| s.benchmarks.iter().all(|b| own(&b.name)));
        let runs = sources.all.iter().filter(|s| s.run.is_some()).count();
        let larger = sources.all.iter().flat_map(|s| &s.benchmarks).any(|b| b.name == LARGER);
        ours.then(|| Self {
            of,
            out_of_domain: larger.then_some(LARGER),
            group_sizes: None,
            what: format!("{runs} runs on {of}"),
        })
    }

    /// What runs on mazes stand in for whose mazes or steps aren't the paper's; none where all are.
    pub(super) fn of_mazes(sources: &Sources) -> anyhow::Result<Option<Self>> {
        let size = |config: &Config| match &config.task {
            TaskConfig::Maze(maze) => Some((maze.size, config.steps)),
            _ => None,
        };
        let paper = size(&Config::parse(MAZE_17, &[])?);
        let configs = sources.all.iter().filter_map(|s| s.run.as_ref()).map(|run| &run.config);
        let runs: Vec<(usize, u64)> = configs.filter_map(size).collect();
        if runs.iter().all(|run| Some(*run) == paper) {
            return Ok(None);
        }
        let listed = |all: BTreeSet<String>| all.into_iter().collect::<Vec<_>>().join(", ");
        let sizes = listed(runs.iter().map(|(size, _)| format!("{size}x{size}")).collect());
        let steps = listed(runs.iter().map(|(_, steps)| steps.to_string()).collect());
        let plural = if runs.len() == 1 { "" } else { "s" };
        let what = format!("{sizes} mazes, {steps} steps, {} run{plural}", runs.len());
        Ok(Some(Self { of: "maze", out_of_domain: None, group_sizes: None, what }))
    }

    /// The group sizes that are trained here, of those of an item.
    pub(super) fn has_size(&self, n: u64) -> bool {
        self.group_sizes.as_ref().is_none_or(|sizes| sizes.contains(&n))
    }

    /// What stands for a benchmark or an average of the paper.
    pub(super) fn place<'a>(&'a self, of: &'a str) -> &'a str {
        if of == "OOD" { self.out_of_domain.unwrap_or("OOD") } else { self.of }
    }

    /// Whether a column of the paper is shown: the one in domain, the average out of it where there is something for it, and those that
    /// are of no benchmark.
    pub(super) fn shows(&self, table: &Printed, of: Option<&str>) -> bool {
        let main = ["Math", "synlogic", "math500"]
            .into_iter()
            .find(|of| table.columns.iter().any(|c| c.fixed.of.as_deref() == Some(of)));
        match of {
            None => true,
            Some("OOD") => self.out_of_domain.is_some(),
            Some(of) => Some(of) == main,
        }
    }

    /// The title of a column, beside the paper's.
    pub(super) fn title(&self, of: Option<&str>, paper: &str) -> String {
        match of {
            None => paper.to_owned(),
            Some(of) => format!("{} (paper: {paper})", self.place(of)),
        }
    }

    /// Names of the benchmarks that stand in.
    pub(super) fn names(&self) -> Vec<String> {
        [Some(self.of), self.out_of_domain].into_iter().flatten().map(str::to_owned).collect()
    }

    /// A note for the reader of a table made here.
    pub(super) fn says(&self, table: &Printed) -> String {
        let paper = match table.number {
            5 => PAPERS_MAZES,
            _ => "language models and their benchmarks",
        };
        let diversity = match table.number {
            14 => {
                " The distance is that of character 4-grams, in place of embeddings; nothing judges strategies here."
            }
            _ => "",
        };
        format!(
            "here: {}; the paper: {paper}. Values differ in what they measure; compare the effects.{diversity}",
            self.what
        )
    }

    /// The same for a figure.
    pub(super) fn says_of(&self, figure: &Drawn) -> String {
        match figure.number {
            6 | 7 => {
                format!("here: {}; the paper: {PAPERS_MAZES}. Values differ in what they measure", self.what)
            }
            n => format!("here: {}; figure {n} of the paper is of language models", self.what),
        }
    }
}
