//! A table of the paper from what is here: which rows and columns are shown, the value of each cell, its marks, and the
//! effects of the focal weight.

use super::data::{Fill, Item, Measure, Model, Quantity, Row, Substitute, paper, printed};
use super::measured::Matched;
use super::sheet::{Cell, Effect, Sheet, SheetLine};
use super::sources::Sources;
use super::substitute::config_text;
use fgrpo_eval::bad_input;
use fgrpo_eval::benchmarks::{canonical, paper as averages};
use fgrpo_eval::dataset::presets::{Family, Preset};
use fgrpo_eval::kind::TaskKind;
use fgrpo_eval::names::Named;
use fgrpo_eval::table::Part;
use fgrpo_train::config::Config;
use std::collections::{BTreeMap, BTreeSet};

/// The table from these results; `stand` is what stands in for the paper's models and benchmarks.
///
/// # Errors
/// Bad input where the results have nothing to do with the table.
pub(super) fn from_results(
    item: &'static Item,
    sources: &Sources,
    stand: Option<&Substitute>,
) -> anyhow::Result<Sheet> {
    let columns = columns(item, stand);
    let mut lines = lines(item, &columns, sources, stand);
    let mut settings = item.settings();
    for quantity in lines.iter().flat_map(|l| &l.cells).flatten().filter_map(|c| c.of.as_ref()) {
        if !settings.contains(&quantity.setting) {
            settings.push(quantity.setting.clone());
        }
    }
    let mut unused = sources.check(&settings, stand.is_some())?;
    let mut matched = Matched::new(item, settings, sources, stand);
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for cell in lines.iter_mut().flat_map(|l| &mut l.cells).flatten() {
        if let Err(why) = measure(cell, &mut matched, sources) {
            *reasons.entry(why).or_default() += 1;
        }
    }
    unused.extend(sources.left_out.iter().map(|why| format!("left out: {why}")));
    unused.extend(sources.others(&matched.settings, stand.is_some()).iter().map(|source| {
        format!("not used: {} ({}), which is no row of the table", source.name, source.path.display())
    }));
    unused.extend(unknown(item, &matched, stand));
    unused.extend(sources.reports.unused(&matched.settings));
    let cells = || lines.iter().flat_map(|l| &l.cells).flatten();
    if cells().all(|c| c.here.is_none()) {
        refuse(item, sources, &matched, &unused, &reasons)?;
    }
    let filled: BTreeSet<String> = cells()
        .filter(|c| c.here.is_some())
        .filter_map(|c| Some(matched.name(&c.of.as_ref()?.setting)))
        .collect();
    mark(item, &mut lines, &mut matched);
    for cell in lines.iter_mut().flat_map(|l| &mut l.cells).flatten() {
        if let (Some(of), Some(estimate), None) = (&cell.of, &cell.estimate, stand) {
            cell.on_others = matched.note_other_size(&of.setting, estimate);
        }
    }
    let effects = effects(item, &columns, &lines, &mut matched);
    let mut notes: Vec<String> = stand.map(|stand| stand.says(item)).into_iter().collect();
    notes.extend(matched.notes());
    notes.extend(empty(&reasons, &filled));
    notes.extend(unused);
    notes.extend(Sources::unscorable(matched.used()));
    let title = |&c: &usize| {
        let column = &item.columns[c];
        match (stand.filter(|_| !item.is_maze()), &column.fixed.of) {
            (Some(stand), Some(of)) => format!("{} (paper: {})", stand.place(of), column.title),
            _ => column.title.clone(),
        }
    };
    let columns = columns.iter().map(title).collect();
    Ok(Sheet { item, columns, lines, effects, same_measure: stand.is_none(), notes })
}

/// Which columns are shown: all, or those of the substitute: the one in domain, the average out of it if there is
/// something for it, and those that are of no benchmark.
fn columns(item: &Item, stand: Option<&Substitute>) -> Vec<usize> {
    let all = 0..item.columns.len();
    let Some(stand) = stand.filter(|_| !item.is_maze()) else { return all.collect() };
    let of = |c: usize| item.columns[c].fixed.of.as_deref();
    let main = ["Math", "synlogic", "math500"].into_iter().find(|m| all.clone().any(|c| of(c) == Some(m)));
    let is_shown = |&c: &usize| match of(c) {
        None => true,
        Some("OOD") => stand.out_of_domain.is_some(),
        own => own == main,
    };
    all.filter(|&c| is_own(item, item.columns[c].fixed.model.as_ref(), Some(stand)))
        .filter(is_shown)
        .collect()
}

/// Whether a model is shown: a substitute stands for the first one alone.
fn is_own(item: &Item, model: Option<&String>, stand: Option<&Substitute>) -> bool {
    let first = || item.settings().into_iter().find_map(|s| s.model);
    stand.is_none() || model.is_none() || model == first().as_ref()
}

/// The rows that are shown: all of the table, or what stands in for it with a row for every further setting that was
/// trained.
fn lines(item: &Item, columns: &[usize], sources: &Sources, stand: Option<&Substitute>) -> Vec<SheetLine> {
    let is_shown = |row: &&Row| {
        let size =
            stand.filter(|_| item.is_maze()).is_none_or(|s| row.fixed.n.is_some_and(|n| s.has_size(n)));
        // One benchmark stands for all rows of benchmarks, and so for their mean.
        let stands = stand.is_none() || row.fixed.of.as_deref().is_none_or(|of| of == "Math");
        is_own(item, row.fixed.model.as_ref(), stand) && size && stands
    };
    let line = |row: &Row| {
        let cell = |&c: &usize| {
            let all = item.quantities(row, &item.columns[c]).into_iter().zip(printed(&row.cells[c]));
            all.map(|(of, paper)| Cell { of: Some(of), paper, ..Cell::default() }).collect()
        };
        SheetLine { head: row.head.clone(), source: row.line, cells: columns.iter().map(cell).collect() }
    };
    let mut lines: Vec<SheetLine> = item.rows.iter().filter(is_shown).map(line).collect();
    if stand.is_none() || item.heads != ["Method"] || lines.is_empty() {
        return lines;
    }
    let mut all = item.settings();
    let further = sources.further(&all, all.iter().find_map(|s| s.model.as_ref()));
    all.extend(further.iter().cloned());
    for setting in further {
        let as_here = |cell: &Cell| Cell {
            of: cell.of.clone().map(|of| Quantity { setting: setting.clone(), ..of }),
            paper: Part { text: "--".to_owned(), ..Part::default() },
            ..Cell::default()
        };
        let cells = lines[0].cells.iter().map(|parts| parts.iter().map(as_here).collect()).collect();
        let head = vec![super::settings::name(&setting, &all)];
        lines.push(SheetLine { head, source: item.line, cells });
    }
    lines
}

/// Finds a cell's value; the reason where there is none.
fn measure(cell: &mut Cell, matched: &mut Matched<'_>, sources: &Sources) -> Result<(), String> {
    let Some(of) = &cell.of else { return Ok(()) };
    let (digits, value) = match of.measure {
        Measure::Pass => {
            let found = matched.pass(of)?;
            cell.estimate = Some(found.clone());
            (1, found.value())
        }
        measure => {
            let place = matched.place(&of.of);
            let value = sources.reports.value(measure, &of.setting, &matched.settings, place)?;
            (if measure == Measure::Nll { 2 } else { 4 }, value)
        }
    };
    cell.value = Some(value);
    // Without a negative zero.
    let text = format!("{value:.digits$}");
    let zero = text.strip_prefix('-').filter(|rest| rest.chars().all(|c| "0.".contains(c)));
    cell.here = Some(Part { text: zero.unwrap_or(&text).to_owned(), ..Part::default() });
    Ok(())
}

/// The marks of values, given as what they are of and as they are printed: the best bold, the second best with a dagger.
/// Values that print alike are equal. Values that are all equal stay plain; a dagger needs three to compare.
fn marks(item: &Item, values: &[(Quantity, String)]) -> Vec<(bool, bool)> {
    let mark = |(of, text): &(Quantity, String)| {
        let Ok(own) = text.parse::<f64>() else { return (false, false) };
        let others = values.iter().filter(|(other, _)| item.marks.compares(of, other));
        let mut all: Vec<f64> = others.filter_map(|(_, text)| text.parse().ok()).collect();
        let count = all.len();
        all.sort_by(f64::total_cmp);
        // A smaller increase of the NLL is the better one.
        if of.measure != Measure::Nll {
            all.reverse();
        }
        all.dedup();
        let is = |place: usize| all.get(place) == Some(&own);
        (all.len() > 1 && is(0), item.marks.second && count > 2 && is(1))
    };
    let none = |_| (false, false);
    if item.marks.best.is_some() {
        values.iter().map(mark).collect()
    } else {
        values.iter().map(none).collect()
    }
}

/// Marks the values, except among those on different problems: which of them is better can't be told. The better of a pair
/// is underlined if the paper's test agrees.
fn mark(item: &Item, lines: &mut [SheetLine], matched: &mut Matched<'_>) {
    let cells = lines.iter_mut().flat_map(|l| &mut l.cells).flatten();
    let mut cells: Vec<&mut Cell> = cells.filter(|c| c.of.is_some() && c.here.is_some()).collect();
    let text = |c: &&mut Cell| (c.of.clone().unwrap_or_default(), c.here.clone().unwrap_or_default().text);
    let values: Vec<(Quantity, String)> = cells.iter().map(text).collect();
    let estimates: Vec<_> = cells.iter().map(|c| c.estimate.clone()).collect();
    let ks: Vec<u64> = item.parts.iter().filter_map(|p| p.k).collect();
    for (i, (bold, dagger)) in marks(item, &values).into_iter().enumerate() {
        let (of, own) = (&values[i].0, &estimates[i]);
        let mut unlike = false;
        for ((other, _), estimate) in values.iter().zip(&estimates) {
            if let (Some(a), Some(b), true) = (own, estimate, item.marks.compares(of, other)) {
                unlike |= matched.note_unlike((&of.setting, a), (&other.setting, b));
            }
        }
        let Some(here) = cells[i].here.as_mut().filter(|_| !unlike) else { continue };
        (here.bold, here.dagger) = (bold, dagger);
        // The better of a pair may be its baseline; the test is of both.
        let pair = |s: &&super::data::Setting| s.gamma > 0.0 && s.baseline() == of.setting.baseline();
        if let Some(focal) = matched.settings.iter().find(pair).filter(|_| item.marks.tested && bold).cloned()
        {
            here.underline = matched.differs(&Quantity { setting: focal, ..of.clone() }, &ks);
        }
    }
}

/// What the focal weight changes: each focal setting against its baseline; where the paper's table has no baseline,
/// against every setting without a focal weight. Rows on different problems have none.
fn effects(item: &Item, columns: &[usize], lines: &[SheetLine], matched: &mut Matched<'_>) -> Vec<Effect> {
    let mut asked: Vec<&Quantity> = Vec::new();
    for line in lines {
        for (&column, cell) in columns.iter().zip(&line.cells) {
            let average = matches!(item.columns[column].fixed.of.as_deref(), Some("Math" | "OOD"));
            let passes = cell.iter().filter_map(|c| c.of.as_ref()).filter(|q| q.measure == Measure::Pass);
            if average || columns.len() <= 2 || item.is_maze() {
                asked.extend(passes.filter(|q| !asked.contains(q)).collect::<Vec<_>>());
            }
        }
    }
    let printed = item.settings();
    let mut all = Vec::new();
    for focal in asked.iter().filter(|q| q.setting.gamma > 0.0) {
        let baseline = focal.setting.baseline();
        let is_reference = |q: &&&Quantity| {
            let same = Quantity { setting: focal.setting.clone(), ..(**q).clone() } == **focal;
            let alone = !printed.contains(&baseline) && q.setting.gamma == 0.0 && q.setting.n == baseline.n;
            same && q.setting.method != "Base" && (q.setting == baseline || alone)
        };
        for reference in asked.iter().filter(is_reference) {
            let (Ok(a), Ok(b)) = (matched.pass(reference), matched.pass(focal)) else { continue };
            matched.note_unlike((&reference.setting, &a), (&focal.setting, &b));
            let Ok(difference) = b.minus(&a) else { continue };
            let rows = [&focal.setting, &reference.setting].map(|s| matched.name(s));
            all.push(Effect {
                what: rows.join(" against "),
                of: format!("{}, pass@{}", matched.place(&focal.of), focal.k),
                here: difference.value(),
                interval: difference.interval(),
                paper: item.value(focal).zip(item.value(reference)).map(|(f, r)| f - r),
            });
        }
    }
    all
}

/// How the reason of a row without results ends.
const WITHOUT: &str = ": no results";

/// Refuses results that fill nothing: what was found and not used, what rows with results lack, and otherwise that no row
/// has any.
fn refuse(
    item: &Item,
    sources: &Sources,
    matched: &Matched<'_>,
    unused: &[String],
    reasons: &BTreeMap<String, usize>,
) -> anyhow::Result<()> {
    let wanted: Vec<String> = matched.settings.iter().map(|s| matched.name(s)).collect();
    let found: Vec<&str> = sources.all.iter().map(|s| s.name.as_str()).collect();
    let mut lacking = reasons.clone();
    lacking.retain(|why, _| !why.ends_with(WITHOUT));
    let none = BTreeSet::new();
    let mut why: Vec<String> = unused.iter().cloned().chain(empty(&lacking, &none)).take(6).collect();
    if why.is_empty() {
        why = empty(reasons, &none);
    }
    bad_input!(
        "--from: none of the {} values of {} can be made. Found: {}; wanted folders named after its rows: {}. {}",
        reasons.values().sum::<usize>(),
        item.name,
        if found.is_empty() { "no samples".to_owned() } else { found.join(", ") },
        wanted.join(", "),
        why.join("; ")
    );
}

/// What stays empty and why: rows without any results together, and of the others what each lacks. Rows in `filled` have
/// other values.
fn empty(reasons: &BTreeMap<String, usize>, filled: &BTreeSet<String>) -> Vec<String> {
    const LACKING: &str = ": no samples of ";
    let (mut without, mut partly): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    let mut lacking: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut others = Vec::new();
    for (why, count) in reasons {
        match (why.strip_suffix(WITHOUT), why.split_once(LACKING)) {
            (Some(row), _) if filled.contains(row) => partly.push(row),
            (Some(row), _) => without.push(row),
            (None, Some((row, of))) => lacking.entry(row).or_default().push(of),
            _ => others
                .push(format!("{count} value{} empty: {why}", if *count == 1 { " stays" } else { "s stay" })),
        }
    }
    let mut all = Vec::new();
    if !without.is_empty() {
        all.push(format!("no results, so their rows stay empty: {}", without.join(", ")));
    }
    if !partly.is_empty() {
        all.push(format!("no samples, so their pass@k stays empty: {}", partly.join(", ")));
    }
    all.extend(lacking.iter().map(|(row, of)| format!("{row}{LACKING}{}", of.join(", "))));
    all.extend(others);
    all
}

/// Benchmarks in the results that the table has no column for.
fn unknown(item: &Item, matched: &Matched<'_>, stand: Option<&Substitute>) -> Vec<String> {
    let mut wanted: BTreeSet<String> =
        averages(item.trained_on).into_iter().flat_map(|a| a.members).collect();
    wanted.extend(item.columns.iter().map(|c| &c.fixed).chain([&item.fixed]).filter_map(|f| f.of.clone()));
    let own = stand.into_iter().flat_map(|s| std::iter::once(&s.of).chain(&s.out_of_domain));
    wanted.extend(own.map(|name| canonical(name)));
    let names = matched.used().flat_map(|s| &s.benchmarks).map(|b| b.name.clone());
    let names: BTreeSet<String> = names.filter(|n| !wanted.contains(&canonical(n))).collect();
    let said = |n| format!("not used: samples of {n}, which the table has no column for");
    names.into_iter().map(said).collect()
}

/// A table of constants or words, beside what the configurations and prompts here have.
///
/// # Errors
/// A configuration that can't be read.
pub(super) fn from_constants(item: &'static Item) -> anyhow::Result<Sheet> {
    let mut lines = Vec::new();
    for row in &item.rows {
        let mut cells = Vec::new();
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
            let part = |text: String| Part { text, ..Part::default() };
            cells.push(vec![Cell { here: here.map(part), paper: part(text.clone()), ..Cell::default() }]);
        }
        lines.push(SheetLine { head: row.head.clone(), source: row.line, cells });
    }
    let columns = item.columns.iter().map(|c| c.title.clone()).collect();
    let notes = item.note.iter().cloned().collect();
    Ok(Sheet { item, columns, lines, effects: Vec::new(), same_measure: true, notes })
}

/// What the models' configurations have for these keys: as the paper prints it where it is the same, else as they write
/// it, each with its model where they differ.
fn constant(models: &[&Model], keys: &[String], printed: &str) -> anyhow::Result<String> {
    // The one optimizer there is has no key.
    if keys.is_empty() {
        return Ok("AdamW".to_owned());
    }
    let mut found: Vec<(String, &str)> = Vec::new();
    for model in models {
        let table: toml::Table = Config::parse(config_text(&model.config), &[])?.to_toml().parse()?;
        let mut words = Vec::new();
        for key in keys {
            let of = |value: &'_ toml::Value, part: &str| value.get(part).cloned();
            let value = key.split('.').try_fold(toml::Value::Table(table.clone()), |v, part| of(&v, part));
            words.extend(match value {
                // Off, which the paper writes as -1.
                Some(toml::Value::Integer(0)) if key.ends_with("top_k") => vec!["-1".to_owned()],
                Some(toml::Value::Array(all)) => all.iter().map(ToString::to_string).collect(),
                Some(toml::Value::String(text)) => vec![text],
                Some(value) => vec![value.to_string()],
                None => vec!["--".to_owned()],
            });
        }
        let same = |(own, paper): (&String, &str)| match (own.parse::<f64>(), paper.parse::<f64>()) {
            (Ok(own), Ok(paper)) => own == paper,
            _ => own.eq_ignore_ascii_case(paper),
        };
        let wanted: Vec<&str> = printed.trim_matches(['(', ')']).split(", ").collect();
        let equal = words.len() == wanted.len() && words.iter().zip(wanted).all(same);
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

    /// The paper's values of a table by the rules and as it prints them, where the two differ.
    fn differing(table: &Item) -> Vec<String> {
        let cells =
            table.rows.iter().flat_map(|r| table.columns.iter().zip(&r.cells).map(move |(c, t)| (r, c, t)));
        let parts = cells.flat_map(|(r, c, text)| table.quantities(r, c).into_iter().zip(printed(text)));
        let (of, shown): (Vec<Quantity>, Vec<Part>) = parts.unzip();
        let values: Vec<_> = of.into_iter().zip(shown.iter().map(|p| p.text.clone())).collect();
        let marked = marks(table, &values).into_iter().zip(&values).zip(&shown);
        let differs = marked.filter(|((mark, _), part)| *mark != (part.bold, part.dagger));
        differs.map(|((mark, value), _)| format!("{}: {value:?}: {mark:?}", table.name)).collect()
    }

    #[test]
    fn the_rules_mark_the_papers_values_as_the_paper_does() {
        let tables = paper().items().filter(|i| i.is_table() && i.trains());
        assert_eq!(tables.flat_map(differing).collect::<Vec<_>>(), Vec::<String>::new());
    }

    #[test]
    fn configurations_and_prompts_have_the_papers_constants() {
        for name in ["table-6", "table-7", "table-8"] {
            for line in &from_constants(paper().item(name)).unwrap().lines {
                for cell in line.cells.iter().flatten() {
                    assert_eq!(
                        cell.here.as_ref().map(|h| &h.text),
                        Some(&cell.paper.text),
                        "{name}: {:?}",
                        line.head
                    );
                }
            }
        }
    }
}
