//! The paper as data: every cell of every table, the statements about figures, and the method by which each item is made.
//! `numbers.toml` has the data and explains its fields. The code doesn't refer to any table or figure by number.

use fgrpo_eval::benchmarks::Domain;
use fgrpo_eval::kind::TaskKind;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Everything that the paper reports.
#[derive(Debug, Deserialize)]
pub(super) struct Paper {
    #[serde(rename = "table")]
    tables: Vec<Item>,
    #[serde(rename = "figure")]
    figures: Vec<Item>,
    #[serde(rename = "model")]
    pub(super) models: Vec<Model>,
    /// For each method, the change of a configuration that selects it, as KEY=VALUE.
    pub(super) methods: BTreeMap<String, String>,
    /// Files of training data, each with a short name and its source.
    pub(super) data: BTreeMap<String, (String, String)>,
    #[serde(rename = "benchmark")]
    pub(super) benchmarks: Vec<Benchmark>,
    /// The tasks that are trained on a laptop.
    #[serde(rename = "stand_in")]
    pub(super) stand_ins: Vec<StandIn>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Model {
    /// Name of the model in the paper, and of the folder under models/.
    pub(super) name: String,
    /// Configuration under configs/.
    pub(super) config: String,
    /// Source of the checkpoint.
    pub(super) home: String,
    /// File of the training data.
    pub(super) data: String,
}

/// A benchmark of the paper.
#[derive(Debug, Deserialize)]
pub struct Benchmark {
    /// Name in results.
    pub name: String,
    /// Kind of verifier.
    pub kind: TaskKind,
    /// Number of problems, if the paper or the data set states it.
    pub problems: Option<u64>,
    /// Source of the data.
    pub home: String,
    /// Names that the file or folder may have.
    pub files: Vec<String>,
}

/// A task that is trained on a laptop in place of the paper's models.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct StandIn {
    /// Name in results of the task's benchmark.
    pub(super) benchmark: String,
    /// Configuration under configs/.
    pub(super) config: String,
    /// Changes that shorten the training, KEY=VALUE.
    pub(super) set: Vec<String>,
    /// Group sizes of the paper that are trained. If `None`, all group sizes are trained.
    pub(super) group_sizes: Option<Vec<u64>>,
    /// Description of the training.
    pub(super) what: String,
}

/// Method by which a table or figure is made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Fill {
    /// A table of values from samples and reports.
    #[default]
    Samples,
    /// A table of constants or words.
    Words,
    /// Figures of the theory: this variant and the next two.
    TailMissPanels,
    AdvantageMagnitude,
    TailMissCurve,
    /// The figure of the simulation.
    Simulation,
    /// Figure of pass@k by group size.
    GroupSizes,
    /// Figure of rewards and pass@k by training step.
    Training,
}

/// A table or figure of the paper.
#[derive(Debug, Deserialize)]
pub struct Item {
    /// Name on the command line.
    pub name: String,
    /// Number in the paper, such as `Table 5`.
    pub(super) numbered: String,
    /// Label in the paper's source.
    pub(super) label: String,
    /// Line of the paper's source where the item begins.
    pub(super) line: u32,
    /// Short title.
    pub title: String,
    /// Other commands that make the item, without `fgrpo paper`.
    pub made_by: String,
    #[serde(default)]
    pub(super) fill: Fill,
    /// Titles of the columns that contain the rows' names.
    #[serde(default)]
    pub(super) heads: Vec<String>,
    /// Columns with values.
    #[serde(default)]
    pub(super) columns: Vec<Column>,
    #[serde(default)]
    pub(super) rows: Vec<Row>,
    /// Properties of each part of a cell such as `1.2/3.4`. For a figure, the settings that it shows.
    #[serde(default)]
    pub(super) parts: Vec<Fixed>,
    /// Domain of the models' training data, which averages out of domain exclude.
    #[serde(default)]
    pub(super) trained_on: Domain,
    /// Properties of all cells.
    #[serde(flatten)]
    pub(super) fixed: Fixed,
    /// Description of the parts of a cell.
    pub(super) legend: Option<String>,
    /// Note for the reader.
    pub(super) note: Option<String>,
    /// Note about the laptop runs.
    pub(super) laptop: Option<String>,
    /// Note about the full-scale runs.
    pub(super) full: Option<String>,
    /// The benchmarks that the item needs.
    #[serde(default)]
    pub(super) benchmarks: Vec<String>,
    /// The k of pass@k that a figure shows.
    #[serde(default)]
    pub(super) ks: Vec<u64>,
    /// The table whose settings a figure shows.
    settings_of: Option<String>,
    /// The paper's statements about a figure.
    #[serde(default)]
    pub(super) states: Vec<Statement>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Column {
    pub(super) title: String,
    /// Meaning of the parts of these cells, if it differs from the table's.
    #[serde(default)]
    pub(super) parts: Vec<Fixed>,
    #[serde(flatten)]
    pub(super) fixed: Fixed,
}

#[derive(Debug, Deserialize)]
pub(super) struct Row {
    /// Line of the paper's source.
    pub(super) line: u32,
    /// Names of the row, one for each of the table's heads.
    pub(super) head: Vec<String>,
    /// Cells as printed in the paper.
    pub(super) cells: Vec<String>,
    /// Meaning of the parts of these cells, if it differs from the table's.
    #[serde(default)]
    parts: Vec<Fixed>,
    #[serde(flatten)]
    pub(super) fixed: Fixed,
}

/// The properties of a value that an item, a column, a row or a part of a cell specifies.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Fixed {
    pub(super) model: Option<String>,
    method: Option<String>,
    gamma: Option<f64>,
    pub(super) n: Option<u64>,
    pub(super) benchmark: Option<String>,
    pub(super) k: Option<u64>,
    pub(super) measure: Option<Measure>,
}

fgrpo_eval::named! {
    /// The measure of a value, with the command whose output `--from NAME=FILE` reads for it.
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub(super) enum Measure {
        #[default]
        Pass = "pass": "samples",
        Nll = "nll": "`fgrpo nll --json`",
        Embeddings = "embeddings": "`fgrpo diversity --by embeddings --json`",
        Judge = "judge": "`fgrpo diversity --by judge --json`",
    }
}

/// The quantity that one value of the paper measures.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Quantity {
    /// The trained model.
    pub(super) setting: Setting,
    /// Name of the benchmark or average.
    pub(super) benchmark: String,
    pub(super) k: u64,
    pub(super) measure: Measure,
}

/// The setting of a trained model, as in a row of the paper.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Setting {
    /// The model, or `None` for mazes.
    pub(super) model: Option<String>,
    /// GRPO, DAPO, CISPO, or a control.
    pub(super) method: String,
    /// Focal exponent. 0 is the method without focal weight.
    pub(super) gamma: f64,
    pub(super) n: u64,
}

/// A statement of the paper about a figure.
#[derive(Debug, Deserialize)]
pub(super) struct Statement {
    /// Line of the paper's source.
    pub(super) line: u32,
    /// The difference that decides whether the statement holds.
    pub(super) compare: Option<Comparison>,
    /// Name of the check that decides the statement, if no difference does.
    #[serde(default)]
    pub(super) check: String,
    pub(super) says: String,
    /// The number in the statement, if any.
    pub(super) value: Option<f64>,
}

/// A statement about the difference of pass@k between two settings.
#[derive(Debug, Deserialize)]
pub(super) struct Comparison {
    pub(super) benchmark: String,
    pub(super) k: u64,
    pub(super) a: Side,
    pub(super) b: Side,
    /// The stated relation of `a` to `b`.
    pub(super) is: Relation,
}

/// One side of a comparison: focal exponent, group size (`None` for every group size), and evaluation during training.
#[derive(Debug, Deserialize)]
pub(super) struct Side {
    pub(super) gamma: f64,
    pub(super) n: Option<u64>,
    #[serde(default)]
    pub(super) at: At,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum At {
    First,
    Lowest,
    #[default]
    Last,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Relation {
    Higher,
    Lower,
    Same,
}

static PAPER: LazyLock<Paper> =
    LazyLock::new(|| toml::from_str(include_str!("numbers.toml")).expect("the paper's numbers are TOML"));

pub(super) fn paper() -> &'static Paper {
    &PAPER
}

/// Returns the paper's benchmarks.
pub fn benchmarks() -> &'static [Benchmark] {
    &PAPER.benchmarks
}

/// Returns the table or figure with this name: `table-5`, `figure 2`, `fig2`, `notation`, or the label in the paper's
/// source. The error suggests the nearest name.
pub fn item(name: &str) -> anyhow::Result<&'static Item> {
    let plain = |text: &str| -> String {
        let text = text.to_lowercase().replace(|c: char| !c.is_alphanumeric(), "");
        let cut = |(short, long): &(&str, &str)| text.starts_with(short) && !text.starts_with(long);
        let words = [("fig", "figure"), ("tab", "table")].into_iter().find(cut);
        words.map_or(text.clone(), |(short, long)| text.replacen(short, long, 1))
    };
    let query = plain(name);
    if let Some(item) = PAPER.items().find(|i| [&i.name, &i.label].iter().any(|n| plain(n) == query)) {
        return Ok(item);
    }
    let nearest = PAPER.items().min_by_key(|i| strsim::damerau_levenshtein(&plain(&i.name), &query));
    bad_input!(
        "{name}: unknown table or figure; did you mean {}? `fgrpo paper list` lists them all",
        nearest.map_or("", |i| &i.name)
    )
}

impl Paper {
    pub(super) fn items(&self) -> impl Iterator<Item = &Item> {
        self.tables.iter().chain(&self.figures)
    }

    pub(super) fn item(&self, name: &str) -> &Item {
        self.items().find(|i| i.name == name).expect("the paper has this item")
    }

    pub(super) fn model(&self, name: &str) -> Option<&Model> {
        self.models.iter().find(|m| m.name == name)
    }
}

impl Item {
    /// Whether the item needs trained models.
    pub fn trains(&self) -> bool {
        matches!(self.fill, Fill::Samples | Fill::GroupSizes | Fill::Training)
    }

    /// Whether the item is the figure of the simulation.
    pub fn simulates(&self) -> bool {
        self.fill == Fill::Simulation
    }

    /// Whether the item is a table.
    pub fn is_table(&self) -> bool {
        !self.columns.is_empty()
    }

    pub(super) fn is_maze(&self) -> bool {
        self.fixed.benchmark.as_deref() == Some("maze")
    }

    /// Returns the task that is trained on a laptop for the item.
    pub(super) fn stand_in(&self) -> &'static StandIn {
        let benchmark = if self.is_maze() { "maze" } else { "arithmetic" };
        paper().stand_ins.iter().find(|s| s.benchmark == benchmark).expect("the data has both")
    }

    /// Returns the benchmark or average in the domain of the training data. On a laptop, the task's benchmark replaces it.
    pub(super) fn in_domain(&self) -> &str {
        let columns = self.columns.iter().filter_map(|c| c.fixed.benchmark.as_deref());
        let rows = self.rows.iter().filter_map(|r| r.fixed.benchmark.as_deref());
        let all: Vec<&str> = columns.chain(rows).chain(self.benchmarks.iter().map(String::as_str)).collect();
        let benchmark = ["Math", "synlogic", "math500"].into_iter().find(|name| all.contains(name));
        if self.is_maze() { "maze" } else { benchmark.or(all.first().copied()).unwrap_or_default() }
    }

    /// Returns the table with the numbers that the item shows: another table for some figures, or else the item itself.
    pub(super) fn table(&self) -> &Self {
        self.settings_of.as_ref().map_or(self, |name| paper().item(name))
    }

    /// Returns the quantity of a part of a cell. Each property comes from the first of `from`, and then the item, that specifies
    /// it.
    fn quantity(&self, from: &[&Fixed]) -> Quantity {
        let all = || from.iter().copied().chain([&self.fixed]);
        let text = |field: fn(&Fixed) -> &Option<String>| all().find_map(|f| field(f).clone());
        Quantity {
            setting: Setting {
                model: text(|f| &f.model),
                method: text(|f| &f.method).unwrap_or_default(),
                gamma: all().find_map(|f| f.gamma).unwrap_or(0.0),
                n: all().find_map(|f| f.n).unwrap_or(8),
            },
            benchmark: text(|f| &f.benchmark).unwrap_or_default(),
            k: all().find_map(|f| f.k).unwrap_or(1),
            measure: all().find_map(|f| f.measure).unwrap_or_default(),
        }
    }

    /// Lists the printed values of the table, each with its row, column, quantity and text.
    pub(super) fn printed(&self) -> impl Iterator<Item = (usize, usize, Quantity, &str)> {
        let cells = self.rows.iter().enumerate().flat_map(move |(i, row)| {
            self.columns
                .iter()
                .zip(&row.cells)
                .enumerate()
                .map(move |(j, (column, cell))| (i, row, j, column, cell))
        });
        cells.flat_map(move |(i, row, j, column, cell)| {
            let parts =
                [&row.parts, &column.parts].into_iter().find(|p| !p.is_empty()).unwrap_or(&self.parts);
            let quantity = move |part: &Fixed| self.quantity(&[part, &row.fixed, &column.fixed]);
            parts.iter().zip(cell.split('/')).map(move |(part, text)| (i, j, quantity(part), text))
        })
    }

    /// Returns the settings that the item shows, each once, in the order of the rows.
    pub(super) fn settings(&self) -> Vec<Setting> {
        let table = self.table();
        let parts = table.parts.iter().map(|part| table.quantity(&[part])).filter(|_| table.rows.is_empty());
        let mut settings: Vec<Setting> = Vec::new();
        for quantity in table.printed().map(|p| p.2).chain(parts) {
            if !settings.contains(&quantity.setting) {
                settings.push(quantity.setting);
            }
        }
        settings
    }

    /// Returns the value that the paper prints for a quantity.
    pub(super) fn value(&self, quantity: &Quantity) -> Option<f64> {
        self.table().printed().find(|p| p.2 == *quantity)?.3.parse().ok()
    }
}

impl Setting {
    /// Returns the name of the run's folder.
    pub(super) fn folder(&self) -> String {
        let method = self.method.to_lowercase().replace(' ', "-");
        format!("{method}-gamma-{}-N{}", self.gamma, self.n)
    }

    /// Returns the name of the method as the paper prints it, which begins with F- if the setting has a focal weight.
    pub(super) fn method(&self) -> String {
        if self.gamma > 0.0 { format!("F-{}", self.method) } else { self.method.clone() }
    }

    /// Returns this setting without focal weight.
    pub(super) fn baseline(&self) -> Self {
        Self { gamma: 0.0, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fgrpo_eval::benchmarks::paper as averages;

    #[test]
    fn every_table_and_figure_stands_in_its_place_and_has_full_rows() {
        let names: Vec<&str> = paper().items().map(|i| i.name.as_str()).collect();
        let numbered = |kind: &'static str, n: u32| (1..=n).map(move |i| format!("{kind}-{i}"));
        let expected = numbered("table", 17).chain(["notation".to_owned()]).chain(numbered("figure", 10));
        assert_eq!(names, expected.collect::<Vec<_>>());
        for item in paper().items() {
            let lines = std::iter::once(item.line).chain(item.rows.iter().map(|r| r.line));
            assert!(lines.is_sorted_by(|a, b| a < b), "{}", item.label);
            for row in &item.rows {
                let sizes = (row.head.len(), row.cells.len());
                assert_eq!(sizes, (item.heads.len(), item.columns.len()), "{} line {}", item.label, row.line);
            }
            let values: usize =
                item.rows.iter().flat_map(|r| &r.cells).map(|cell| cell.split('/').count()).sum();
            assert!(!item.is_table() || !item.trains() || item.printed().count() == values, "{}", item.label);
            let is_benchmark = |b: &String| benchmarks().iter().any(|benchmark| benchmark.name == *b);
            assert!(item.benchmarks.iter().all(is_benchmark), "{}", item.label);
            assert_eq!(item.settings().is_empty(), !item.trains(), "{}", item.label);
        }
        let rows: Vec<usize> = paper().tables.iter().map(|t| t.rows.len()).collect();
        assert_eq!(rows, [18, 6, 6, 8, 6, 13, 4, 4, 4, 12, 12, 6, 8, 7, 27, 27, 27, 44]);
    }

    #[test]
    fn averages_are_means_tables_agree_and_pass_at_k_never_falls_with_k() {
        let values = |n| {
            let printed = paper().item(&format!("table-{n}")).printed();
            printed.filter_map(|p| Some((p.2, p.3.parse::<f64>().ok()?))).collect::<Vec<_>>()
        };
        let all: Vec<_> = (1..=17).map(values).collect();
        let (mut averaged, mut compared) = (0, 0);
        for number in [1, 11, 12, 13] {
            let values = &all[number - 1];
            let averages = averages(paper().item(&format!("table-{number}")).trained_on);
            for (quantity, value) in values {
                let Some(average) = averages.iter().find(|a| a.name == quantity.benchmark) else { continue };
                let member_value = |member: &String| {
                    let quantity = Quantity { benchmark: member.clone(), ..quantity.clone() };
                    values.iter().find(|(q, _)| *q == quantity).expect("the table has every benchmark").1
                };
                let mean =
                    average.members.iter().map(member_value).sum::<f64>() / average.members.len() as f64;
                // Both sides are rounded to one decimal.
                assert!((mean - value).abs() < 0.1 + 1e-9, "table {number}: {quantity:?}: {mean}, {value}");
                averaged += 1;
            }
        }
        let pairs = [(2, 12), (4, 13), (3, 11), (10, 1), (15, 1), (16, 1), (17, 1), (12, 1), (13, 1)];
        for (small, large) in pairs {
            for (quantity, value) in &all[small - 1] {
                for (_, other) in all[large - 1].iter().filter(|(q, _)| q == quantity) {
                    assert_eq!(value, other, "tables {small} and {large}: {quantity:?}");
                    compared += 1;
                }
                let next = Quantity { k: 2 * quantity.k, ..quantity.clone() };
                let more = all[small - 1].iter().find(|(q, _)| *q == next).map_or(*value, |(_, more)| *more);
                assert!(more >= *value || quantity.measure != Measure::Pass, "table {small}: {quantity:?}");
            }
        }
        assert_eq!(averaged, 2 * (2 * 18 + 12 + 2 * 6 + 2 * 8));
        // 2/12 24, 4/13 32, 3/11 24, 10/1 72, 15 to 17/1 324, 12/1 44, 13/1 22.
        assert_eq!(compared, 24 + 32 + 24 + 72 + 324 + 44 + 22);
    }
}
