//! A table of the paper: each value found here beside the paper's, and the effects of the focal weight.

use super::config_text;
use super::data::{Fill, Item, Measure, Model, Quantity, Setting, paper, parts};
use super::made::{Made, signed};
use super::measured::Estimate;
use super::rows::Rows;
use fgrpo_eval::benchmarks::canonical;
use fgrpo_eval::compare::LEVEL;
use fgrpo_eval::dataset::presets::{Family, Preset};
use fgrpo_eval::kind::TaskKind;
use fgrpo_eval::names::Named;
use fgrpo_eval::table::{self, Part, Table};
use fgrpo_train::config::Config;
use std::collections::{BTreeMap, BTreeSet};

/// One value: what it measures, as the paper prints it, and as measured here.
struct Cell {
    of: Quantity,
    paper: String,
    here: Option<Value>,
}

/// A value found here.
struct Value {
    number: f64,
    /// Its resamples, if it is of samples.
    estimate: Option<Estimate>,
    /// The p-value of the paired test against the row's baseline.
    p_value: Option<f64>,
}

/// A row: its names, its line in the paper's source, and its cells by their parts.
struct Line {
    head: Vec<String>,
    source: u32,
    cells: Vec<Vec<Cell>>,
}

impl Value {
    fn text(&self, measure: Measure) -> String {
        let digits = match measure {
            Measure::Pass => 1,
            Measure::Nll => 2,
            Measure::Embeddings | Measure::Judge => 4,
        };
        signed(self.number, digits).trim_start_matches('+').to_owned()
    }
}

impl Cell {
    /// Here with the paper's in brackets; bold where the paired test tells the row from its baseline.
    fn part(&self) -> Part {
        let here = self.here.as_ref().map(|h| h.text(self.of.measure));
        let paper = Some(format!("({})", self.paper)).filter(|_| self.paper != "--");
        let both: Vec<String> = here.into_iter().chain(paper).collect();
        let text = if both.is_empty() { "--".to_owned() } else { both.join(" ") };
        let bold = self.here.as_ref().and_then(|h| h.p_value).is_some_and(|p| p < LEVEL);
        Part { text, bold, ..Part::default() }
    }
}

/// Whether a difference has the sign of the paper's.
fn same_sign((low, high): (f64, f64), paper: Option<f64>) -> &'static str {
    match paper {
        None => "--",
        _ if low <= 0.0 && high >= 0.0 => "open: the interval holds 0",
        // As the paper prints it, with one decimal.
        Some(paper) if paper.abs() < 0.05 => "the paper has none",
        Some(paper) if (low > 0.0) == (paper > 0.0) => "yes",
        Some(_) => "no",
    }
}

/// The table from these results.
pub(super) fn from_results(item: &'static Item, rows: &Rows) -> anyhow::Result<Made> {
    let mut lines = lines(item, rows);
    // By the reason, the rows that lack values; by row, the benchmarks with other problems than the paper's.
    let mut lacking: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut on_others: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for cell in cells(&mut lines) {
        let row = rows.name(&cell.of.setting);
        match measure(&cell.of, rows) {
            Err(why) => drop(lacking.entry(why).or_default().insert(row)),
            Ok(value) => {
                let other = value.estimate.as_ref().filter(|_| rows.replacement.is_none());
                let other = other.map(Estimate::of_other_size).unwrap_or_default();
                if !other.is_empty() {
                    on_others.entry(row).or_default().extend(other);
                }
                cell.here = Some(value);
            }
        }
    }
    let joined = |all: BTreeSet<String>| all.into_iter().collect::<Vec<_>>().join(", ");
    let lacking: Vec<String> =
        lacking.into_iter().map(|(why, rows)| format!("empty, because {why}: {}", joined(rows))).collect();
    if cells(&mut lines).all(|c| c.here.is_none()) {
        let names: Vec<String> = item.settings().iter().map(|s| rows.name(s)).collect();
        // That other rows have no results explains nothing, unless none has.
        let mut why: Vec<&String> = rows.notes.iter().chain(&lacking).collect();
        if why.len() > 1 {
            why.retain(|why| !why.starts_with("empty, because no results"));
        }
        let why: Vec<&str> = why.iter().take(6).map(|why| why.as_str()).collect();
        bad_input!(
            "--from: no value of {} can be made; wanted folders named after its rows: {}. {}",
            item.name,
            names.join(", "),
            why.join("; ")
        );
    }
    if rows.replacement.is_some() {
        lines.retain(|line| line.cells.iter().flatten().any(|c| c.here.is_some()));
    }
    let has_value = |&i: &usize| lines.iter().flat_map(|l| &l.cells[i]).any(|c| c.here.is_some());
    let columns: Vec<usize> =
        (0..item.columns.len()).filter(|i| rows.replacement.is_none() || has_value(i)).collect();
    let pairs = pairs(item, &mut lines, rows);
    let mut notes: Vec<String> = rows.replacement.iter().map(|own| own.note(item)).collect();
    let effects = effects(item, &columns, &lines, rows, &pairs, &mut notes);
    notes.extend(
        on_others
            .into_iter()
            .map(|(row, of)| format!("on other problems than the paper's values: {} of {row}", joined(of))),
    );
    notes.extend(lacking);
    notes.extend(rows.notes.iter().cloned());
    let title = |&c: &usize| {
        let column = &item.columns[c];
        let own = column.fixed.of.as_deref().and_then(|of| rows.replacement.as_ref()?.place(of));
        own.map_or_else(|| column.title.clone(), |own| format!("{own} ({})", column.title))
    };
    let titles: Vec<String> = columns.iter().map(title).collect();
    let mut table = Table::new(item.heads.iter().cloned().chain(titles.clone())).named_by(item.heads.len());
    for line in &lines {
        let values = columns.iter().map(|&i| line.cells[i].iter().map(Cell::part).collect());
        let heads = line.head.iter().map(|h| table::Cell::from(h.clone()));
        table.rows.push(heads.chain(values.map(|parts| table::Cell { parts })).collect());
    }
    Ok(Made {
        table,
        legend: legend(item),
        values: vec![(item.name.clone(), values(item, &columns, &titles, &lines))],
        effects,
        notes,
        ..Made::new(item)
    })
}

fn cells(lines: &mut [Line]) -> impl Iterator<Item = &mut Cell> {
    lines.iter_mut().flat_map(|l| &mut l.cells).flatten()
}

/// The table's rows, then one for each further setting that was trained in place of the paper's models.
fn lines(item: &Item, rows: &Rows) -> Vec<Line> {
    let line = |row: &super::data::Row| {
        let cell = |(column, text)| -> Vec<Cell> {
            let all = item.quantities(row, column).into_iter().zip(parts(text));
            all.map(|(of, paper)| Cell { of, paper: paper.to_owned(), here: None }).collect()
        };
        let cells = item.columns.iter().zip(row.cells.iter().map(String::as_str)).map(cell).collect();
        Line { head: row.head.clone(), source: row.line, cells }
    };
    let mut lines: Vec<Line> = item.rows.iter().map(line).collect();
    for setting in rows.settings.iter().skip(item.settings().len()).filter(|_| item.heads == ["Method"]) {
        let as_here = |cell: &Cell| {
            let of = Quantity { setting: setting.clone(), ..cell.of.clone() };
            Cell { of, paper: "--".to_owned(), here: None }
        };
        let cells = lines[0].cells.iter().map(|parts| parts.iter().map(as_here).collect()).collect();
        lines.push(Line { head: vec![rows.name(setting)], source: item.line, cells });
    }
    lines
}

/// A value, or why it is missing.
fn measure(of: &Quantity, rows: &Rows) -> Result<Value, String> {
    let (number, estimate) = match of.measure {
        Measure::Pass => rows.pass(of).map(|e| (e.value(), Some(e)))?,
        _ => (rows.reported(of)?, None),
    };
    Ok(Value { number, estimate, p_value: None })
}

/// A focal setting with what it is compared with, and the p-values of the paired test.
type Pair = (Setting, Setting, BTreeMap<(String, u64), f64>);

/// Each focal setting with its baseline; where the paper's table has no baseline, with every setting that has no focal
/// weight. The cells get the p-values against their baselines.
fn pairs(item: &Item, lines: &mut [Line], rows: &Rows) -> Vec<Pair> {
    let ks: BTreeSet<u64> = cells(lines).filter(|c| c.of.measure == Measure::Pass).map(|c| c.of.k).collect();
    let ks: Vec<u64> = ks.into_iter().collect();
    let (printed, mut all) = (item.settings(), Vec::new());
    for focal in rows.settings.iter().filter(|s| s.gamma > 0.0) {
        let baseline = focal.baseline();
        let alone = !printed.contains(&baseline);
        let is_other = |s: &&Setting| {
            let comparable =
                s.gamma == 0.0 && s.method != "Base" && (s.n, &s.model) == (focal.n, &focal.model);
            **s == baseline || alone && comparable
        };
        for other in rows.settings.iter().filter(is_other) {
            let found = rows.p_values(other, focal, &ks);
            for cell in cells(lines).filter(|c| c.of.setting == *focal && *other == baseline) {
                let p_value = found.get(&(canonical(&cell.of.of), cell.of.k)).copied();
                if let Some(here) = cell.here.as_mut().filter(|_| cell.of.measure == Measure::Pass) {
                    here.p_value = p_value;
                }
            }
            all.push((focal.clone(), other.clone(), found));
        }
    }
    all
}

/// What the focal weight changes, in the averages of a large table and in all columns of a small one. Rows on different
/// problems are noted instead.
fn effects(
    item: &Item,
    columns: &[usize],
    lines: &[Line],
    rows: &Rows,
    pairs: &[Pair],
    notes: &mut Vec<String>,
) -> Table {
    let is_average = |&&c: &&usize| matches!(item.columns[c].fixed.of.as_deref(), Some("Math" | "OOD"));
    let small = columns.len() <= 2 || item.is_maze();
    let columns = columns.iter().filter(|c| small || is_average(c));
    let asked: Vec<&Cell> = columns.flat_map(|&c| lines.iter().flat_map(move |l| &l.cells[c])).collect();
    let estimate = |of: &Quantity| asked.iter().find(|c| c.of == *of)?.here.as_ref()?.estimate.as_ref();
    let mut unlike = BTreeSet::new();
    let heads = ["effect", "on", "here", "95 % interval", "p", "paper", "same sign"];
    let mut table = Table::new(heads).named_by(2);
    for (focal, other, p_values) in pairs {
        let names = format!("{} against {}", rows.name(focal), rows.name(other));
        for of in asked.iter().map(|c| &c.of).filter(|of| of.setting == *focal) {
            let reference = Quantity { setting: other.clone(), ..of.clone() };
            let Some((a, b)) = estimate(&reference).zip(estimate(of)) else { continue };
            let place = rows.replacement.as_ref().and_then(|own| own.place(&of.of)).unwrap_or(&of.of);
            let difference = match b.minus(a) {
                Ok(difference) => difference,
                Err(why) => {
                    unlike.insert(format!("{names} is not compared: {why}"));
                    continue;
                }
            };
            let (low, high) = difference.interval();
            let p_value = p_values.get(&(canonical(&of.of), of.k));
            let papers = item.value(of).zip(item.value(&reference)).map(|(f, r)| f - r);
            let none = || "--".to_owned();
            table.push([
                names.clone(),
                format!("{place}, pass@{}", of.k),
                signed(difference.value(), 1),
                format!("{} to {}", signed(low, 1), signed(high, 1)),
                p_value
                    .map_or_else(none, |p| if *p < 0.001 { "<0.001".to_owned() } else { format!("{p:.3}") }),
                papers.map_or_else(none, |p| signed(p, 1)),
                same_sign((low, high), papers).to_owned(),
            ]);
        }
    }
    notes.extend(unlike);
    table
}

/// Every value in a line of its own.
fn values(item: &Item, columns: &[usize], titles: &[String], lines: &[Line]) -> Table {
    let own = ["line", "column", "part", "here", "low", "high", "p_value", "paper"];
    let mut table = Table::new(item.heads.iter().map(String::as_str).chain(own));
    let full = |v: Option<f64>| v.map_or_else(String::new, |v| format!("{v:.6}"));
    for line in lines {
        for (&column, title) in columns.iter().zip(titles) {
            for (i, cell) in line.cells[column].iter().enumerate() {
                let here = cell.here.as_ref();
                let interval = here.and_then(|h| Some(h.estimate.as_ref()?.interval()));
                let own = [
                    line.source.to_string(),
                    title.clone(),
                    (i + 1).to_string(),
                    full(here.map(|h| h.number)),
                    full(interval.map(|i| i.0)),
                    full(interval.map(|i| i.1)),
                    full(here.and_then(|h| h.p_value)),
                    cell.paper.clone(),
                ];
                table.push(line.head.iter().cloned().chain(own));
            }
        }
    }
    table
}

fn legend(item: &Item) -> String {
    let ks = item.parts.iter().filter_map(|p| p.k).map(|k| format!("pass@{k}"));
    let ks = ks.collect::<Vec<_>>().join("/");
    let parts = item.legend.clone().unwrap_or_else(|| format!("{ks} in percent"));
    format!("here (the paper): {parts}; the paper's source, line {}", item.line)
}

/// A table of constants or words, beside what the configurations and prompts here have.
pub(super) fn from_constants(item: &'static Item) -> anyhow::Result<Made> {
    let titles = item.columns.iter().map(|c| c.title.clone());
    let mut table = Table::new(item.heads.iter().cloned().chain(titles)).of_words();
    let (mut same, mut all) = (0, 0);
    for row in &item.rows {
        let mut cells = row.head.clone();
        for (column, text) in item.columns.iter().zip(&row.cells) {
            // The models of a column; all where it names none.
            let mut models: Vec<&Model> =
                paper().models.iter().filter(|m| column.title.contains(&m.name)).collect();
            if models.is_empty() {
                models.extend(&paper().models);
            }
            let here = match item.fill {
                Fill::Configuration => Some(constant(&models, &row.keys, text)?),
                Fill::Prompts => row.fixed.of.as_ref().and_then(|kind| prompt(kind, models[0].family)),
                _ => None,
            };
            all += usize::from(here.is_some());
            same += usize::from(here.as_ref() == Some(text));
            cells.push(match here.filter(|here| here != text) {
                Some(here) => format!("{here} (the paper: {text})"),
                None => text.clone(),
            });
        }
        table.push(cells);
    }
    let here = if all > 0 { format!("; {same} of {all} values here are the paper's") } else { String::new() };
    let legend = format!("the paper's source, line {}{here}", item.line);
    let values = vec![(item.name.clone(), table.clone())];
    Ok(Made { table, legend, values, notes: item.note.iter().cloned().collect(), ..Made::new(item) })
}

/// What the models' configurations have for these keys: as the paper prints it where it is the same, else as they write
/// it, each with its model where they differ.
fn constant(models: &[&Model], keys: &[String], printed: &str) -> anyhow::Result<String> {
    // There is one optimizer, so it has no key.
    if keys.is_empty() {
        return Ok("AdamW".to_owned());
    }
    let wanted: Vec<&str> = printed.trim_matches(['(', ')']).split(", ").collect();
    let same = |(own, paper): (&String, &str)| match (own.parse::<f64>(), paper.parse::<f64>()) {
        (Ok(own), Ok(paper)) => own == paper,
        _ => own.eq_ignore_ascii_case(paper),
    };
    let mut found: Vec<(String, &str)> = Vec::new();
    for model in models {
        let table: toml::Table = Config::parse(config_text(&model.config), &[])?.to_toml().parse()?;
        let mut words = Vec::new();
        for key in keys {
            let value =
                key.split('.').try_fold(toml::Value::Table(table.clone()), |v, part| v.get(part).cloned());
            words.extend(match value {
                // Off, which the paper writes as -1.
                Some(toml::Value::Integer(0)) if key.ends_with("top_k") => vec!["-1".to_owned()],
                Some(toml::Value::Array(all)) => all.iter().map(ToString::to_string).collect(),
                Some(toml::Value::String(text)) => vec![text],
                Some(value) => vec![value.to_string()],
                None => vec!["--".to_owned()],
            });
        }
        let equal = words.len() == wanted.len() && words.iter().zip(wanted.iter().copied()).all(same);
        found.push((if equal { printed.to_owned() } else { words.join(", ") }, &model.name));
    }
    Ok(match found.iter().all(|f| f.0 == found[0].0) {
        true => found.swap_remove(0).0,
        false => found.iter().map(|(v, m)| format!("{m}: {v}")).collect::<Vec<_>>().join("; "),
    })
}

/// A prompt in the words of the paper's table. Llama's chat template writes its header by itself.
fn prompt(kind: &str, family: Family) -> Option<String> {
    let preset = Preset::paper(family, TaskKind::NAMES.iter().find(|known| known.1 == kind)?.0);
    let system = preset.system.unwrap_or_default();
    let thinking = if preset.thinking == Some(true) { "Thinking: on." } else { "Thinking: off." };
    let header = r"Cutting Knowledge Date: December 2023\nToday Date: [date]";
    Some(match (family, system.as_str()) {
        (Family::Qwen25, _) => system,
        (Family::Qwen3, "") => format!("No system prompt. {thinking}"),
        (Family::Qwen3, _) => format!("System: {system} {thinking}"),
        (Family::Llama32, "") => header.to_owned(),
        (Family::Llama32, _) => format!(r"{header}\n{system}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_and_prompts_have_the_papers_constants() {
        for (name, values) in [("table-6", 13), ("table-7", 12), ("table-8", 12)] {
            let made = from_constants(paper().item(name)).unwrap();
            let wanted = format!("{values} of {values} values here are the paper's");
            assert!(made.legend.ends_with(&wanted), "{name}: {:?}", made.table);
        }
    }

    #[test]
    fn an_effect_is_open_while_its_interval_holds_zero() {
        assert_eq!(same_sign((0.5, 2.0), Some(3.0)), "yes");
        assert_eq!(same_sign((0.5, 2.0), Some(-3.0)), "no");
        assert_eq!(same_sign((0.5, 2.0), Some(0.0)), "the paper has none");
        assert!(same_sign((-0.5, 2.0), Some(3.0)).starts_with("open"));
        assert_eq!(same_sign((0.5, 2.0), None), "--");
    }
}
