//! A table of the paper from results: every cell with its interval, and the effects of the focal weight.
//!
//! Values are means over problems and, where a setting was trained with several seeds, over seeds. Intervals are of a bootstrap that
//! draws problems and seeds again; two settings are compared on the same draws of problems.

use super::beside::{Beside, Cell, Effect, Here, Line};
use super::laptop::Stand;
use super::numbers::{Asked, Column, Measure, Printed, Row, Setting, number, printed};
use super::settings::name;
use super::sources::{Source, Sources};
use crate::analysis::benchmarks::{self, canonical};
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
}

impl<'a> Measured<'a> {
    pub(super) fn new(
        settings: Vec<Setting>,
        sources: &'a Sources,
        stand: Option<&'a Stand>,
        trained_on: benchmarks::Domain,
    ) -> Self {
        Self { settings, sources, stand, trained_on, known: HashMap::new() }
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

    fn measure(&self, asked: &Asked) -> Result<Resampled, String> {
        let who = name(&asked.setting, &self.settings);
        if asked.setting.method == "Base" && self.stand.is_some() {
            let start = self.sources.start().ok_or_else(|| format!("{who}: no run evaluated its start"))?;
            return pass_at_k(&[&start], asked.k);
        }
        let sources = self.found(&asked.setting);
        if sources.is_empty() {
            return Err(format!("{who}: no results"));
        }
        let of = self.stand.map_or(asked.of.as_str(), |s| s.of);
        let averages = benchmarks::paper(self.trained_on);
        let members: Vec<String> = match averages.iter().find(|a| a.name == of) {
            Some(average) => average.members.clone(),
            None => vec![of.to_owned()],
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

/// The rows and columns that are shown: all of the table, or what stands in for it.
fn layout<'t>(table: &'t Printed, stand: Option<&Stand>) -> (Vec<&'t Row>, Vec<&'t Column>) {
    let all = (table.rows.iter().collect(), table.columns.iter().collect());
    let Some(stand) = stand else { return all };
    let (rows, columns): (Vec<&Row>, Vec<&Column>) = all;
    if table.number == 5 {
        let shown = |r: &&Row| r.fixed.n.is_some_and(|n| stand.group_sizes.contains(&n));
        return (rows.into_iter().filter(shown).collect(), columns);
    }
    let model = table.settings().into_iter().find_map(|s| s.model);
    let own = |m: &Option<String>| m.is_none() || *m == model;
    let main = ["Math", "synlogic", "math500"]
        .into_iter()
        .find(|of| table.columns.iter().any(|c| c.fixed.of.as_deref() == Some(of)));
    let column = |c: &&Column| c.fixed.of.as_deref() == main && own(&c.fixed.model);
    (rows.into_iter().filter(|r| own(&r.fixed.model)).collect(), columns.into_iter().filter(column).collect())
}

fn text(measure: Measure, value: f64) -> String {
    match measure {
        Measure::Pass => format!("{value:.1}"),
        Measure::Nll => format!("{value:.2}"),
        Measure::Embeddings | Measure::Judge => format!("{value:.4}"),
    }
}

/// The table from these results, beside the paper's.
///
/// # Errors
/// Bad input where the results have nothing to do with the table.
pub(super) fn beside(table: &Printed, sources: &Sources, stand: Option<&Stand>) -> anyhow::Result<Beside> {
    let settings = table.settings();
    let mut measured = Measured::new(settings.clone(), sources, stand, table.trained_on);
    let (rows, columns) = layout(table, stand);
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let (mut lines, mut filled, mut words) = (Vec::new(), 0usize, Vec::new());
    for row in &rows {
        let mut cells = Vec::new();
        for column in &columns {
            let at = table.columns.iter().position(|c| std::ptr::eq(c, *column)).unwrap_or(0);
            let asked = table.asked(row, column);
            let mut parts = Vec::new();
            for (asked, paper) in asked.iter().zip(printed(&row.cells[at])) {
                let value = match asked.measure {
                    Measure::Pass => measured.pass(asked).map(|r| (r.value, Some(r.interval()))),
                    measure => sources
                        .reported(measure, &asked.setting, &settings, &asked.of)
                        .map(|v| (v, None))
                        .ok_or_else(|| match measure {
                            Measure::Nll => "no NLL: --from nll=FILE takes what `fgrpo nll --json` printed".to_owned(),
                            _ => "no diversity: --from embeddings=FILE and judge=FILE take what `fgrpo diversity --json` printed".to_owned(),
                        }),
                };
                let here = match value {
                    Ok((value, interval)) => {
                        filled += 1;
                        Some(Here { text: text(asked.measure, value), value: Some(value), interval })
                    }
                    Err(reason) => {
                        *reasons.entry(reason).or_default() += 1;
                        None
                    }
                };
                parts.push(Cell { here, value: number(&paper), paper });
            }
            cells.push(parts);
        }
        lines.push(Line { head: row.head.clone(), source: row.line, cells });
    }
    if filled == 0 {
        let wanted: Vec<String> = settings.iter().map(|s| name(s, &settings)).collect();
        let found: Vec<&str> = sources.all.iter().map(|s| s.name.as_str()).collect();
        let why: Vec<&String> = reasons.keys().collect();
        bad_input!(
            "--from: none of the {} values of {} can be made. Found: {}; wanted folders named after its rows: {}. {}",
            reasons.values().sum::<usize>(),
            table.name(),
            if found.is_empty() { "no samples".to_owned() } else { found.join(", ") },
            wanted.join(", "),
            why.iter().take(4).map(|r| r.as_str()).collect::<Vec<_>>().join("; ")
        );
    }
    if let Some(stand) = stand {
        words.push(stand.says(table));
    }
    let empty = |(reason, count): (&String, &usize)| {
        format!("{count} value{} empty: {reason}", if *count == 1 { " stays" } else { "s stay" })
    };
    words.extend(reasons.iter().map(empty));
    for source in sources.others(&settings, stand.is_some()) {
        words.push(format!(
            "not used: {} ({}), which is no row of the table",
            source.name,
            source.path.display()
        ));
    }
    words.extend(unknown(table, sources, &settings, stand));
    let effects = effects(table, &rows, &columns, &settings, &mut measured);
    let title = |c: &&Column| match stand {
        Some(stand) if table.number != 5 => format!("{} (paper: {})", stand.of, c.title),
        _ => c.title.clone(),
    };
    Ok(Beside {
        title: format!("Table {}: {}", table.number, table.title),
        source: table.line,
        heads: table.heads.clone(),
        columns: columns.iter().map(title).collect(),
        parts: part_names(table),
        lines,
        effects,
        notes: words,
    })
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
    wanted.extend(stand.map(|s| s.of.to_owned()));
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

/// Each focal setting against its baseline, or F-GRPO against each control where the table has no baseline.
fn effects(
    table: &Printed,
    rows: &[&Row],
    columns: &[&Column],
    settings: &[Setting],
    measured: &mut Measured<'_>,
) -> Vec<Effect> {
    let mut asked: Vec<Asked> = Vec::new();
    for row in rows {
        for column in columns {
            let average = ["Math", "OOD"].iter().any(|a| column.fixed.of.as_deref() == Some(a));
            let few = columns.len() <= 2 || matches!(table.number, 5);
            if average || few {
                let all = table.asked(row, column).into_iter().filter(|a| a.measure == Measure::Pass);
                asked.extend(all.filter(|a| !asked.contains(a)).collect::<Vec<_>>());
            }
        }
    }
    let mut all = Vec::new();
    for focal in asked.iter().filter(|a| a.setting.gamma > 0.0) {
        let baseline = Asked { setting: focal.setting.baseline(), ..focal.clone() };
        let references: Vec<Asked> = if asked.contains(&baseline) {
            vec![baseline]
        } else {
            let other = |a: &&Asked| {
                let same = Asked { setting: focal.setting.clone(), ..(*a).clone() } == *focal;
                same && a.setting.gamma == 0.0 && a.setting.method != "Base"
            };
            asked.iter().filter(other).cloned().collect()
        };
        for reference in references {
            let (Ok(a), Ok(b)) = (measured.pass(&reference), measured.pass(focal)) else { continue };
            let difference = b.minus(&a);
            let paper = table.value(focal).zip(table.value(&reference)).map(|(f, r)| f - r);
            let of = measured.stand.map_or(focal.of.as_str(), |s| s.of);
            all.push(Effect {
                what: format!(
                    "{} against {}",
                    name(&focal.setting, settings),
                    name(&reference.setting, settings)
                ),
                of: format!("{of}, pass@{}", focal.k),
                here: difference.value,
                interval: difference.interval(),
                paper,
            });
        }
    }
    all
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
