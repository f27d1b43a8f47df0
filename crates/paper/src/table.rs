//! Makes a table of the paper, with each measured value next to the paper's, and a table of the focal weight's effects.

use super::data::{Item, Measure, Quantity, Row, Setting};
use super::made::{Made, signed};
use super::measured::Estimate;
use super::rows::Rows;
use fgrpo_eval::benchmarks::canonical;
use fgrpo_eval::compare::LEVEL;
use fgrpo_eval::table::{self, Part, Table};
use std::collections::{BTreeMap, BTreeSet};

/// One value: the quantity, the value as the paper prints it, and the measured value.
struct Cell {
    quantity: Quantity,
    paper: String,
    /// The measured value and, if it comes from samples, its estimate.
    here: Option<(f64, Option<Estimate>)>,
    /// The p-value of the paired test against the row's baseline.
    p_value: Option<f64>,
}

/// A row: its names, its line in the paper's source, and the values in each cell.
struct Line {
    head: Vec<String>,
    source: u32,
    cells: Vec<Vec<Cell>>,
}

impl Cell {
    fn new(quantity: Quantity, paper: &str) -> Self {
        Self { quantity, paper: paper.to_owned(), here: None, p_value: None }
    }

    /// Formats the measured value with the paper's in brackets, in bold if the paired test finds a difference from the
    /// baseline.
    fn part(&self) -> Part {
        let digits = match self.quantity.measure {
            Measure::Pass => 1,
            Measure::Nll => 2,
            Measure::Embeddings | Measure::Judge => 4,
        };
        let here = self.here.as_ref().map(|h| signed(h.0, digits).trim_start_matches('+').to_owned());
        let paper = Some(format!("({})", self.paper)).filter(|_| self.paper != "--");
        let both: Vec<String> = here.into_iter().chain(paper).collect();
        let text = if both.is_empty() { "--".to_owned() } else { both.join(" ") };
        Part { text, bold: self.p_value.is_some_and(|p| p < LEVEL), ..Part::default() }
    }
}

/// Describes whether a difference has the same sign as in the paper.
fn same_sign((low, high): (f64, f64), paper: Option<f64>) -> &'static str {
    match paper {
        None => "--",
        _ if low <= 0.0 && high >= 0.0 => "open: the interval holds 0",
        // The paper prints one decimal.
        Some(paper) if paper.abs() < 0.05 => "the paper has none",
        Some(paper) if (low > 0.0) == (paper > 0.0) => "yes",
        Some(_) => "no",
    }
}

/// Makes the table from these results.
pub(super) fn from_results(item: &'static Item, rows: &Rows) -> anyhow::Result<Made> {
    let mut lines = lines(item, rows);
    // Rows by the note about them.
    let mut rows_by_note: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for cell in cells(&mut lines) {
        let mut say = |what| rows_by_note.entry(what).or_default().insert(rows.name(&cell.quantity.setting));
        match rows.value(&cell.quantity) {
            Err(why) => drop(say(format!("empty, because {why}"))),
            Ok(value) => {
                let estimate = value.1.as_ref().filter(|_| rows.replacement.is_none());
                for benchmark in estimate.map(Estimate::of_other_size).unwrap_or_default() {
                    say(format!("measured on different problems than the paper's values: {benchmark}"));
                }
                cell.here = Some(value);
            }
        }
    }
    let join = |names: BTreeSet<String>| Vec::from_iter(names).join(", ");
    let details = rows_by_note.into_iter().map(|(what, rows)| format!("{what}: {}", join(rows)));
    let reasons: Vec<String> = rows.notes.iter().cloned().chain(details).collect();
    if cells(&mut lines).all(|c| c.here.is_none()) {
        let names: Vec<String> = item.settings().iter().map(|s| rows.name(s)).collect();
        // The reason of a row without results is omitted if there are other reasons.
        let explains = |why: &&String| reasons.len() < 2 || !why.starts_with("empty, because no results");
        let why: Vec<&str> = reasons.iter().filter(explains).take(6).map(String::as_str).collect();
        bad_input!(
            "no value of {} can be made; name the folders after its rows: {}. {}",
            item.name,
            names.join(", "),
            why.join("; ")
        );
    }
    let mut columns: Vec<usize> = (0..item.columns.len()).collect();
    if rows.replacement.is_some() {
        let is_here = |parts: &Vec<Cell>| parts.iter().any(|c| c.here.is_some());
        lines.retain(|line| line.cells.iter().any(is_here));
        columns.retain(|&i| lines.iter().any(|line| is_here(&line.cells[i])));
    }
    let mut notes: Vec<String> = rows.replacement.iter().map(|replacement| replacement.note(item)).collect();
    let effects = effects(item, &columns, &mut lines, rows, &mut notes);
    notes.extend(reasons);
    let title = |&c: &usize| {
        let column = &item.columns[c];
        let replacement = column
            .fixed
            .benchmark
            .as_deref()
            .and_then(|benchmark| rows.replacement.as_ref()?.place(benchmark));
        replacement
            .map_or_else(|| column.title.clone(), |replacement| format!("{replacement} ({})", column.title))
    };
    let titles: Vec<String> = columns.iter().map(title).collect();
    let mut table = Table::new(item.heads.iter().chain(&titles)).named_by(item.heads.len());
    for line in &lines {
        let values = columns.iter().map(|&i| line.cells[i].iter().map(Cell::part).collect());
        let heads = line.head.iter().map(|h| table::Cell::from(h.clone()));
        table.rows.push(heads.chain(values.map(|parts| table::Cell { parts })).collect());
    }
    let ks: Vec<String> = item.parts.iter().filter_map(|p| Some(format!("pass@{}", p.k?))).collect();
    let parts = item.legend.clone().unwrap_or_else(|| format!("{} in percent", ks.join("/")));
    Ok(Made {
        table,
        legend: format!("here (the paper): {parts}; the paper's source, line {}", item.line),
        values: vec![(item.name.clone(), values(item, &columns, &titles, &lines))],
        effects,
        notes,
        ..Made::new(item)
    })
}

fn cells(lines: &mut [Line]) -> impl Iterator<Item = &mut Cell> {
    lines.iter_mut().flat_map(|l| &mut l.cells).flatten()
}

/// Returns the table's rows, followed by a row for each setting with results that the paper's table lacks.
fn lines(item: &Item, rows: &Rows) -> Vec<Line> {
    let empty = |row: &Row| {
        let cells = item.columns.iter().map(|_| Vec::new()).collect();
        Line { head: row.head.clone(), source: row.line, cells }
    };
    let mut lines: Vec<Line> = item.rows.iter().map(empty).collect();
    for (row, column, quantity, text) in item.printed() {
        lines[row].cells[column].push(Cell::new(quantity, text));
    }
    for setting in rows.settings.iter().skip(item.settings().len()).filter(|_| item.heads == ["Method"]) {
        let blank = |c: &Cell| Cell::new(Quantity { setting: setting.clone(), ..c.quantity.clone() }, "--");
        let cells = lines[0].cells.iter().map(|parts| parts.iter().map(blank).collect()).collect();
        lines.push(Line { head: vec![rows.name(setting)], source: item.line, cells });
    }
    lines
}

/// Returns the effects of the focal weight: for the averages of a large table, for all columns of a small one. Compares
/// each focal setting with its baseline and stores the p-values in its cells. If the paper's table lacks the baseline,
/// compares it with each setting without focal weight. Results on different problems are noted instead.
fn effects(
    item: &Item,
    columns: &[usize],
    lines: &mut [Line],
    rows: &Rows,
    notes: &mut Vec<String>,
) -> Table {
    let is_average =
        |&&c: &&usize| matches!(item.columns[c].fixed.benchmark.as_deref(), Some("Math" | "OOD"));
    let small = columns.len() <= 2 || item.is_maze();
    let columns: Vec<usize> = columns.iter().filter(|c| small || is_average(c)).copied().collect();
    let ks: BTreeSet<u64> =
        cells(lines).filter(|c| c.quantity.measure == Measure::Pass).map(|c| c.quantity.k).collect();
    let (ks, printed, mut unlike) = (Vec::from_iter(ks), item.settings(), BTreeSet::new());
    let heads = ["effect", "on", "here", "95 % interval", "p", "paper", "same sign"];
    let mut table = Table::new(heads).named_by(2);
    for focal in rows.settings.iter().filter(|s| s.gamma > 0.0) {
        let baseline = focal.baseline();
        let alone = !printed.contains(&baseline);
        let is_other = |s: &&Setting| {
            let comparable =
                s.gamma == 0.0 && s.method != "Base" && (s.n, &s.model) == (focal.n, &focal.model);
            **s == baseline || alone && comparable
        };
        for other in rows.settings.iter().filter(is_other) {
            let p_values = rows.p_values(other, focal, &ks);
            let p_value =
                |quantity: &Quantity| p_values.get(&(canonical(&quantity.benchmark), quantity.k)).copied();
            for cell in cells(lines).filter(|c| c.quantity.setting == *focal && *other == baseline) {
                let has_test = cell.here.is_some() && cell.quantity.measure == Measure::Pass;
                cell.p_value = p_value(&cell.quantity).filter(|_| has_test);
            }
            let column_cells = || columns.iter().flat_map(|&c| lines.iter().flat_map(move |l| &l.cells[c]));
            let estimate = |quantity: &Quantity| {
                column_cells().find(|c| c.quantity == *quantity)?.here.as_ref()?.1.as_ref()
            };
            let names = format!("{} against {}", rows.name(focal), rows.name(other));
            for quantity in column_cells().map(|c| &c.quantity).filter(|quantity| quantity.setting == *focal)
            {
                let reference = Quantity { setting: other.clone(), ..quantity.clone() };
                let Some((a, b)) = estimate(&reference).zip(estimate(quantity)) else { continue };
                let (value, (low, high)) = match b.minus(a) {
                    Ok(difference) => difference.percent(),
                    Err(why) => {
                        unlike.insert(format!("{names} is not compared: {why}"));
                        continue;
                    }
                };
                let place = rows
                    .replacement
                    .as_ref()
                    .and_then(|replacement| replacement.place(&quantity.benchmark))
                    .unwrap_or(&quantity.benchmark);
                let papers = item.value(quantity).zip(item.value(&reference)).map(|(f, r)| f - r);
                table.push([
                    names.clone(),
                    format!("{place}, pass@{}", quantity.k),
                    signed(value, 1),
                    format!("{} to {}", signed(low, 1), signed(high, 1)),
                    p_value(quantity).map_or_else(|| "--".to_owned(), |p| table::p_value(p, 3)),
                    papers.map_or_else(|| "--".to_owned(), |p| signed(p, 1)),
                    same_sign((low, high), papers).to_owned(),
                ]);
            }
        }
    }
    notes.extend(unlike);
    table
}

/// Returns a table with one value in each line.
fn values(item: &Item, columns: &[usize], titles: &[String], lines: &[Line]) -> Table {
    let heads = ["line", "column", "part", "here", "low", "high", "p_value", "paper"];
    let mut table = Table::new(item.heads.iter().map(String::as_str).chain(heads));
    let full = |v: Option<f64>| v.map_or_else(String::new, |v| format!("{v:.6}"));
    for line in lines {
        for (&column, title) in columns.iter().zip(titles) {
            for (i, Cell { here, p_value, paper, .. }) in line.cells[column].iter().enumerate() {
                let interval = here.as_ref().and_then(|h| Some(h.1.as_ref()?.interval()));
                let number = full(here.as_ref().map(|h| h.0));
                let (low, high) = (full(interval.map(|i| i.0)), full(interval.map(|i| i.1)));
                let place = [line.source.to_string(), title.clone(), (i + 1).to_string()];
                let numbers = [number, low, high, full(*p_value), paper.clone()];
                table.push(line.head.iter().cloned().chain(place).chain(numbers));
            }
        }
    }
    table
}

/// Makes a table of constants or words.
pub(super) fn of_words(item: &'static Item) -> Made {
    let titles = item.columns.iter().map(|c| &c.title);
    let mut table = Table::new(item.heads.iter().chain(titles)).of_words();
    item.rows.iter().for_each(|row| table.push(row.head.iter().chain(&row.cells)));
    Made {
        legend: format!("the paper's source, line {}", item.line),
        values: vec![(item.name.clone(), table.clone())],
        table,
        notes: item.note.iter().cloned().collect(),
        ..Made::new(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_is_open_while_its_interval_holds_zero() {
        assert_eq!(same_sign((0.5, 2.0), Some(3.0)), "yes");
        assert_eq!(same_sign((0.5, 2.0), Some(-3.0)), "no");
        assert_eq!(same_sign((0.5, 2.0), Some(0.0)), "the paper has none");
        assert!(same_sign((-0.5, 2.0), Some(3.0)).starts_with("open"));
        assert_eq!(same_sign((0.5, 2.0), None), "--");
    }
}
