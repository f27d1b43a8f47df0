//! A table of the paper from results: every cell with its interval, and the effects of the focal weight.
//!
//! Values are means over problems and, where a setting was trained with several seeds, over seeds. Intervals are of a bootstrap that
//! draws problems and seeds again; two settings are compared on the same draws of problems.

use super::beside::{Beside, Cell, Here, Line};
use super::effects::{effects, is_significant, p_values};
use super::marks::{Mark, marks};
use super::numbers::{Asked, Measure, Printed, Setting, number, printed};
use super::settings::name;
use super::sources::{Source, Sources};
use super::stand::Stand;
use crate::analysis::benchmarks::{self, canonical};
use crate::output::table::Part;
use fgrpo_core::rng::Key;
use fgrpo_core::stats::bootstrap::{Simulated, resample};
use fgrpo_train::bad_input;
use fgrpo_train::evaluation::estimate::Tables;
use fgrpo_train::evaluation::samples::{Benchmark, Problem};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Resamples of the bootstrap.
const RESAMPLES: u64 = 2_000;
/// Its seed.
const SEED: u64 = 0;

/// A value and what it is in each resample, in percent.
#[derive(Debug, Clone)]
pub(super) struct Resampled {
    /// Mean over problems and seeds.
    pub(super) value: f64,
    draws: Vec<f64>,
}

impl Resampled {
    /// The 95 % interval.
    pub(super) fn interval(&self) -> (f64, f64) {
        Simulated::new(self.draws.clone()).interval(0.95)
    }

    /// This minus another, resample by resample.
    pub(super) fn minus(&self, other: &Self) -> Self {
        Self {
            value: self.value - other.value,
            draws: self.draws.iter().zip(&other.draws).map(|(a, b)| a - b).collect(),
        }
    }

    /// What is left to 100.
    pub(super) fn lost(&self) -> Self {
        Self { value: 100.0 - self.value, draws: self.draws.iter().map(|d| 100.0 - d).collect() }
    }

    fn mean(all: &[Self]) -> Self {
        let count = all.len() as f64;
        let draw = |i: usize| all.iter().map(|r| r.draws[i]).sum::<f64>() / count;
        Self {
            value: all.iter().map(|r| r.value).sum::<f64>() / count,
            draws: (0..RESAMPLES as usize).map(draw).collect(),
        }
    }
}

/// pass@k of one benchmark over seeds, in percent; the reason where there is none.
pub(super) fn pass_at_k(seeds: &[&Benchmark], k: u64) -> Result<Resampled, String> {
    let Some(first) = seeds.first() else { return Err("no samples".to_owned()) };
    let sorted = |b: &Benchmark| -> BTreeMap<String, Problem> {
        b.problems.iter().map(|p| (p.id.clone(), p.clone())).collect()
    };
    let problems: Vec<BTreeMap<String, Problem>> = seeds.iter().map(|b| sorted(b)).collect();
    let ids = |m: &BTreeMap<String, Problem>| m.keys().cloned().collect::<BTreeSet<_>>();
    if let Some(at) = problems.iter().position(|m| ids(m) != ids(&problems[0])) {
        return Err(format!(
            "{} and {} hold different problems",
            first.path.display(),
            seeds[at].path.display()
        ));
    }
    let fewest = problems.iter().flat_map(BTreeMap::values).map(|p| p.samples).min().unwrap_or(0);
    if fewest < k {
        return Err(format!("pass@{k} needs {k} scored samples of every problem, found {fewest}"));
    }
    let mut tables = Tables::default();
    let values: Vec<Vec<f64>> =
        problems.iter().map(|m| m.values().map(|p| 100.0 * tables.of(p, k)).collect()).collect();
    let count = values[0].len();
    let mean = |v: &[f64]| v.iter().sum::<f64>() / count as f64;
    let value = values.iter().map(|v| mean(v)).sum::<f64>() / values.len() as f64;
    // The same problems are drawn for every setting, so that differences are of pairs.
    let of_problems = Key::new(SEED).with(0).with(count as u64);
    let of_seeds = Key::new(SEED).with(1);
    let (mut times, mut seed_times) = (vec![0u32; count], vec![0u32; values.len()]);
    let draws = (0..RESAMPLES).map(|i| {
        resample(of_problems, i, &mut times);
        resample(of_seeds, i, &mut seed_times);
        let drawn = |v: &Vec<f64>| v.iter().zip(&times).map(|(x, &t)| x * f64::from(t)).sum::<f64>();
        let total: f64 = values.iter().zip(&seed_times).map(|(v, &t)| drawn(v) * f64::from(t)).sum();
        total / (count * values.len()) as f64
    });
    Ok(Resampled { value, draws: draws.collect() })
}

/// What the cells of a table are made of.
pub(super) struct Measured<'a> {
    settings: Vec<Setting>,
    sources: &'a Sources,
    stand: Option<&'a Stand>,
    trained_on: benchmarks::Domain,
    known: HashMap<String, Result<Resampled, String>>,
    tested: HashMap<String, HashMap<(String, u64), f64>>,
}

impl<'a> Measured<'a> {
    pub(super) fn new(
        settings: Vec<Setting>,
        sources: &'a Sources,
        stand: Option<&'a Stand>,
        trained_on: benchmarks::Domain,
    ) -> Self {
        Self { settings, sources, stand, trained_on, known: HashMap::new(), tested: HashMap::new() }
    }

    /// The results of a setting.
    fn found(&self, setting: &Setting) -> Vec<&'a Source> {
        self.sources.of(setting, &self.settings, self.stand.is_some())
    }

    /// pass@k of what is asked, or why there is none.
    pub(super) fn pass(&mut self, asked: &Asked) -> Result<Resampled, String> {
        let key = format!("{asked:?}");
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let found = self.measure(asked);
        self.known.insert(key, found.clone());
        found
    }

    /// The benchmark or average that stands for the paper's.
    pub(super) fn place<'b>(&'b self, of: &'b str) -> &'b str {
        self.stand.map_or(of, |stand| stand.place(of))
    }

    /// Whether a focal setting differs from its baseline, both trained once, by the paper's test.
    fn differs(&mut self, focal: &Asked, ks: &[u64]) -> bool {
        let key = format!("{:?}", focal.setting);
        if !self.tested.contains_key(&key) {
            let of = |setting: &Setting| -> Vec<Benchmark> {
                let all: Vec<&Benchmark> = self.found(setting).iter().flat_map(|s| &s.benchmarks).collect();
                let once = |b: &&&Benchmark| {
                    all.iter().filter(|o| canonical(&o.name) == canonical(&b.name)).count() == 1
                };
                all.iter().filter(once).map(|b| (*b).clone()).collect()
            };
            let averages = benchmarks::paper(self.trained_on);
            let found = p_values(of(&focal.setting.baseline()), of(&focal.setting), ks, &averages);
            self.tested.insert(key.clone(), found);
        }
        let averages = ["Math", "OOD"];
        let of = self.place(&focal.of);
        let of = if averages.contains(&of) { of.to_owned() } else { canonical(of) };
        let p = self.tested[&key].get(&(of, focal.k));
        p.is_some_and(|&p| is_significant(p))
    }

    fn measure(&self, asked: &Asked) -> Result<Resampled, String> {
        let who = name(&asked.setting, &self.settings);
        if asked.setting.method == "Base" && self.stand.is_some() {
            let start = self.sources.start().ok_or_else(|| format!("{who}: no run evaluated its start"))?;
            if canonical(&start.name) != self.place(&asked.of) {
                return Err(format!("{who}: the start was evaluated on {} alone", start.name));
            }
            return pass_at_k(&[&start], asked.k);
        }
        let sources = self.found(&asked.setting);
        if sources.is_empty() {
            return Err(format!("{who}: no results"));
        }
        let of = self.place(&asked.of);
        let averages = benchmarks::paper(self.trained_on);
        let members: Vec<String> = match averages.iter().find(|a| a.name == of) {
            Some(average) => average.members.clone(),
            None => vec![canonical(of)],
        };
        let mut each = Vec::new();
        for member in &members {
            let seeds: Vec<&Benchmark> = sources
                .iter()
                .filter_map(|s| s.benchmarks.iter().find(|b| canonical(&b.name) == *member))
                .collect();
            if seeds.is_empty() {
                return Err(format!("{who}: no samples of {member}"));
            }
            each.push(pass_at_k(&seeds, asked.k).map_err(|why| format!("{who}, {member}: {why}"))?);
        }
        Ok(Resampled::mean(&each))
    }
}

/// A row that is shown.
pub(super) struct Shown {
    pub(super) head: Vec<String>,
    pub(super) source: u32,
    /// Which of the table's columns its cells stand in.
    pub(super) columns: Vec<usize>,
    /// What each part of its cells is of, and as the paper prints it.
    pub(super) cells: Vec<Vec<(Asked, Part)>>,
}

/// The rows and columns that are shown: all of the table, or what stands in for it with a row for every further setting that was trained.
fn layout(table: &Printed, sources: &Sources, stand: Option<&Stand>) -> Vec<Shown> {
    let model = table.settings().into_iter().find_map(|s| s.model);
    let own = |m: &Option<String>| stand.is_none() || m.is_none() || *m == model;
    let is_shown = |column: usize| {
        let fixed = &table.columns[column].fixed;
        match stand {
            Some(stand) if table.number != 5 => own(&fixed.model) && stand.shows(table, fixed.of.as_deref()),
            _ => true,
        }
    };
    let columns: Vec<usize> = (0..table.columns.len()).filter(|&c| is_shown(c)).collect();
    let mut rows: Vec<Shown> = Vec::new();
    for row in &table.rows {
        let size =
            stand.filter(|_| table.number == 5).is_none_or(|s| row.fixed.n.is_some_and(|n| s.has_size(n)));
        // One benchmark stands for all rows of benchmarks, and so for their mean.
        let stands = stand.is_none() || row.fixed.of.as_deref().is_none_or(|of| of == "Math");
        if !own(&row.fixed.model) || !size || !stands {
            continue;
        }
        let cell = |&c: &usize| {
            let asked = table.asked(row, &table.columns[c]).into_iter();
            asked.zip(printed(&row.cells[c])).collect::<Vec<_>>()
        };
        let cells = columns.iter().map(cell).collect();
        rows.push(Shown { head: row.head.clone(), source: row.line, columns: columns.clone(), cells });
    }
    if stand.is_some() && table.heads == ["Method"] {
        let known = table.settings();
        let further = sources.further(&known, model.as_ref());
        let all: Vec<Setting> = known.into_iter().chain(further.iter().cloned()).collect();
        for setting in &further {
            let as_here = |(asked, _): &(Asked, Part)| {
                let part = Part { text: "--".to_owned(), ..Part::default() };
                (Asked { setting: setting.clone(), ..asked.clone() }, part)
            };
            let Some(first) = rows.first() else { break };
            let cells = first.cells.iter().map(|cell| cell.iter().map(as_here).collect()).collect();
            let head = vec![name(setting, &all)];
            rows.push(Shown { head, source: table.line, columns: columns.clone(), cells });
        }
    }
    rows
}

fn text(measure: Measure, value: f64) -> String {
    let text = match measure {
        Measure::Pass => format!("{value:.1}"),
        Measure::Nll => format!("{value:.2}"),
        Measure::Embeddings | Measure::Judge => format!("{value:.4}"),
    };
    // Without a negative zero.
    match text.strip_prefix('-') {
        Some(rest) if rest.chars().all(|c| "0.".contains(c)) => rest.to_owned(),
        _ => text,
    }
}

/// The table from these results, beside the paper's.
///
/// # Errors
/// Bad input where the results have nothing to do with the table.
pub(super) fn beside(table: &Printed, sources: &Sources, stand: Option<&Stand>) -> anyhow::Result<Beside> {
    let rows = layout(table, sources, stand);
    let mut settings = table.settings();
    for (asked, _) in rows.iter().flat_map(|r| &r.cells).flatten() {
        if !settings.contains(&asked.setting) {
            settings.push(asked.setting.clone());
        }
    }
    let mut measured = Measured::new(settings.clone(), sources, stand, table.trained_on);
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut values: Vec<(Asked, Option<Here>)> = Vec::new();
    for (asked, _) in rows.iter().flat_map(|r| &r.cells).flatten() {
        let value = match asked.measure {
            Measure::Pass => measured.pass(asked).map(|r| (r.value, Some(r.interval()))),
            measure => sources
                .reported(measure, &asked.setting, &settings, measured.place(&asked.of))
                .map(|v| (v, None)),
        };
        let here = value.map(|(value, interval)| Here {
            text: text(asked.measure, value),
            value: Some(value),
            interval,
            mark: Mark::default(),
            significant: false,
        });
        values.push((asked.clone(), here.map_err(|why| *reasons.entry(why).or_default() += 1).ok()));
    }
    if values.iter().all(|v| v.1.is_none()) {
        refuse(table, sources, &settings, &reasons)?;
    }
    let texts: Vec<_> = values.iter().map(|(a, h)| (a.clone(), h.as_ref().map(|h| h.text.clone()))).collect();
    let ks: Vec<u64> = table.parts.iter().filter_map(|p| p.k).collect();
    for ((asked, here), mark) in values.iter_mut().zip(marks(table, &texts)) {
        if let Some(here) = here {
            here.mark = mark;
            let focal = table.marks.tested && mark.bold;
            // The better of a pair may be its baseline; the test is of both.
            let pair = settings.iter().find(|s| s.gamma > 0.0 && s.baseline() == asked.setting.baseline());
            if let Some(setting) = pair.filter(|_| focal) {
                here.significant =
                    measured.differs(&Asked { setting: setting.clone(), ..asked.clone() }, &ks);
            }
        }
    }
    let mut notes: Vec<String> = stand.map(|stand| stand.says(table)).into_iter().collect();
    notes.extend(empty(&reasons));
    notes.extend(sources.left_out.iter().map(|why| format!("left out: {why}")));
    for source in sources.others(&settings, stand.is_some()) {
        notes.push(format!(
            "not used: {} ({}), which is no row of the table",
            source.name,
            source.path.display()
        ));
    }
    notes.extend(unknown(table, sources, &settings, stand));
    let effects = effects(table, &rows, &settings, &mut measured);
    let title = |&c: &usize| {
        let column = &table.columns[c];
        match stand {
            Some(stand) if table.number != 5 => stand.title(column.fixed.of.as_deref(), &column.title),
            _ => column.title.clone(),
        }
    };
    let columns = rows.first().into_iter().flat_map(|r| &r.columns).map(title).collect();
    let mut found = values.into_iter().map(|(_, here)| here);
    let mut lines = Vec::new();
    for row in rows {
        let mut cell =
            |(_, paper): (Asked, Part)| Cell { here: found.next().flatten(), value: number(&paper), paper };
        let cells = row.cells.into_iter().map(|parts| parts.into_iter().map(&mut cell).collect()).collect();
        lines.push(Line { head: row.head, source: row.source, cells });
    }
    Ok(Beside {
        title: format!("Table {}: {}", table.number, table.title),
        source: table.line,
        heads: table.heads.clone(),
        columns,
        parts: part_names(table),
        lines,
        effects,
        same_measure: stand.is_none(),
        marking: table.marks,
        notes,
    })
}

/// Refuses results that fill nothing.
fn refuse(
    table: &Printed,
    sources: &Sources,
    settings: &[Setting],
    reasons: &BTreeMap<String, usize>,
) -> anyhow::Result<()> {
    let wanted: Vec<String> = settings.iter().map(|s| name(s, settings)).collect();
    let found: Vec<&str> = sources.all.iter().map(|s| s.name.as_str()).collect();
    let why: Vec<&str> = sources.left_out.iter().chain(reasons.keys()).take(4).map(String::as_str).collect();
    bad_input!(
        "--from: none of the {} values of {} can be made. Found: {}; wanted folders named after its rows: {}. {}",
        reasons.values().sum::<usize>(),
        table.name(),
        if found.is_empty() { "no samples".to_owned() } else { found.join(", ") },
        wanted.join(", "),
        why.join("; ")
    );
}

/// What stays empty and why: rows without any results together, and of the others what each lacks.
fn empty(reasons: &BTreeMap<String, usize>) -> Vec<String> {
    const WITHOUT: &str = ": no results";
    const LACKING: &str = ": no samples of ";
    let mut without: Vec<&str> = Vec::new();
    let mut lacking: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut others = Vec::new();
    for (why, count) in reasons {
        match (why.strip_suffix(WITHOUT), why.split_once(LACKING)) {
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
    all.extend(lacking.iter().map(|(row, of)| format!("{row}{LACKING}{}", of.join(", "))));
    all.extend(others);
    all
}

fn part_names(table: &Printed) -> String {
    let parts = table.parts.iter().filter_map(|p| p.k).map(|k| format!("pass@{k}"));
    match table.number {
        15..=17 => "baseline/focal, pass@k in percent".to_owned(),
        14 => "distances and scores".to_owned(),
        5 => "percent".to_owned(),
        _ => format!("{} in percent", parts.collect::<Vec<_>>().join("/")),
    }
}

/// Benchmarks in the results that the table has no column for.
fn unknown(table: &Printed, sources: &Sources, settings: &[Setting], stand: Option<&Stand>) -> Vec<String> {
    let averages = benchmarks::paper(table.trained_on);
    let mut wanted: BTreeSet<String> = averages.iter().flat_map(|a| a.members.clone()).collect();
    wanted.extend(table.columns.iter().filter_map(|c| c.fixed.of.clone()));
    wanted.extend(table.fixed.of.clone());
    wanted.extend(stand.into_iter().flat_map(Stand::names).map(|n| canonical(&n)));
    let used = settings.iter().flat_map(|s| sources.of(s, settings, stand.is_some()));
    let names: BTreeSet<String> = used
        .flat_map(|s| &s.benchmarks)
        .map(|b| b.name.clone())
        .filter(|n| !wanted.contains(&canonical(n)))
        .collect();
    names
        .into_iter()
        .map(|n| format!("not used: samples of {n}, which the table has no column for"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn benchmark(correct: &[u64]) -> Benchmark {
        let problem = |(i, &c): (usize, &u64)| Problem::counted(i.to_string(), 10, c);
        let problems = correct.iter().enumerate().map(problem).collect();
        Benchmark { name: "x".into(), path: "x".into(), problems }
    }

    #[test]
    fn values_are_means_over_problems_and_seeds() {
        let (a, b) = (benchmark(&[0, 10]), benchmark(&[5, 5]));
        let found = pass_at_k(&[&a, &b], 1).unwrap();
        assert!((found.value - 50.0).abs() < 1e-9);
        let (low, high) = found.interval();
        assert!(low < 50.0 && high > 50.0);
    }

    #[test]
    fn a_difference_is_of_the_same_draws() {
        // Each problem is better by one sample of ten: the difference has no spread, though the values have.
        let (a, b) = (benchmark(&[0, 4, 9]), benchmark(&[1, 5, 10]));
        let difference = pass_at_k(&[&b], 1).unwrap().minus(&pass_at_k(&[&a], 1).unwrap());
        let (low, high) = difference.interval();
        assert!(
            (difference.value - 10.0).abs() < 1e-9 && (low - 10.0).abs() < 1e-9 && (high - 10.0).abs() < 1e-9
        );
    }

    #[test]
    fn too_few_samples_and_other_problems_are_said() {
        let a = benchmark(&[1, 2]);
        assert!(pass_at_k(&[&a], 11).unwrap_err().contains("needs 11 scored samples"));
        assert!(pass_at_k(&[&a, &benchmark(&[1])], 1).unwrap_err().contains("different problems"));
    }
}
