//! Makes the paper's figures: theory, simulation, and trained models by group size and by step.

use super::checks::{self, Finding};
use super::data::{At, Comparison, Fill, Item, Measure, Quantity, Relation, Setting, Side, Statement};
use super::made::{Made, signed};
use super::measured::{Estimate, Percent, pass_at_k};
use super::results::{Found, Run, counted};
use super::rows::Rows;
use super::simulate::Sweep;
use super::theory;
use fgrpo_core::theory::tail_miss;
use fgrpo_eval::figure::{Axis, Colour, Curve, Figure, PALETTE, Panel, Scale, ordered_colour, smoothed};
use fgrpo_eval::record::Evaluation;
use fgrpo_eval::samples::{Benchmark, ProblemCounts};
use fgrpo_eval::table::Table;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Configuration of the simulation that the paper's figure shows.
pub const SIMULATION: &str = include_str!("../../../configs/simulation.toml");
/// Fraction of a problem's correct probability mass that counts as its tail, as in `fgrpo plan`.
const TAIL: f64 = 0.1;
/// Maximum number of points of a curve of rewards, each the mean of a window of steps.
const VISIBLE: usize = 250;

/// Makes a figure that doesn't need trained models. `simulated` is the folder of the finished simulation.
pub(super) fn from_theory(item: &'static Item, simulated: &Path) -> anyhow::Result<Made> {
    let (mu, tau) = checks::SIMULATED;
    let (figure, findings) = match item.fill {
        Fill::TailMissPanels => (theory::tail_miss_panels(&checks::MU, &checks::RHO)?, checks::peaks()?),
        Fill::AdvantageMagnitude => {
            (theory::advantage_magnitude(&checks::GAMMAS, None)?, checks::attenuation()?)
        }
        Fill::TailMissCurve => (theory::tail_miss_curve(mu, tau)?, checks::one_action(mu, tau)?),
        _ => {
            let sweep = Sweep::read(simulated)?;
            (sweep.figure(), checks::simulation(&sweep))
        }
    };
    Ok(made(item, vec![(item.name.clone(), figure)], None, |s| findings.get(s.check.as_str()).cloned()))
}

/// Combines figures with their values and with the finding about each of the paper's statements.
fn made(
    item: &'static Item,
    figures: Vec<(String, Figure)>,
    values: Option<Table>,
    finding: impl Fn(&Statement) -> Option<Finding>,
) -> Made {
    let table = checks::table(item, finding);
    let mut files: Vec<(String, Table)> =
        values.into_iter().map(|rows| (format!("{}-values", item.name), rows)).collect();
    files.extend((!table.rows.is_empty()).then(|| (item.name.clone(), table.clone())));
    let legend = if table.rows.is_empty() {
        "the paper states no numbers of this figure".to_owned()
    } else {
        format!("the paper's source, line {}", item.line)
    };
    Made { figures, table, legend, values: files, ..Made::new(item) }
}

/// Measured pass@k of one setting, at the end of training or at a step, with the paper's value.
struct Point {
    quantity: Quantity,
    step: Option<u64>,
    seeds: usize,
    here: Result<Estimate, String>,
    paper: Option<f64>,
}

/// Makes a figure from results: pass@k by group size, or by step.
pub(super) fn from_results(item: &'static Item, rows: &Rows) -> anyhow::Result<Made> {
    let mut table = Table::new(["on", "N", "gamma", "k", "seeds", "here", "low", "high", "paper", "step"]);
    let method = &item.settings()[0].method;
    let mut settings: Vec<&Setting> = rows.settings.iter().filter(|s| s.method == *method).collect();
    let mut notes = Vec::new();
    let (ks, points) = match item.fill {
        Fill::GroupSizes => by_size(item, rows, &settings),
        _ => {
            settings.sort_by(|a, b| a.n.cmp(&b.n).then(a.gamma.total_cmp(&b.gamma)));
            by_step(item, rows, &settings, &mut notes)
        }
    };
    let title = |benchmark: &str| {
        let column = item.table().columns.iter().find(|c| c.fixed.benchmark.as_deref() == Some(benchmark));
        let replacement = rows.replacement.as_ref().and_then(|replacement| replacement.place(benchmark));
        replacement.or(column.map(|c| c.title.as_str())).unwrap_or(benchmark).to_owned()
    };
    let mut reasons = BTreeSet::new();
    for Point { quantity, step, seeds, here, paper } in &points {
        let Setting { n, gamma, .. } = &quantity.setting;
        if let Err(why) = here {
            reasons.insert(format!("left out: {}: {why}", rows.name(&quantity.setting)));
        }
        if here.is_err() && paper.is_none() {
            continue;
        }
        let head = [
            title(&quantity.benchmark),
            n.to_string(),
            gamma.to_string(),
            quantity.k.to_string(),
            seeds.to_string(),
        ];
        let values = here.as_ref().map_or_else(|_| Default::default(), |here| numbers(here.percent()));
        let last = [paper.map(|p| p.to_string()), step.map(|s| s.to_string())].map(Option::unwrap_or_default);
        table.push(head.into_iter().chain(values).chain(last));
    }
    if points.iter().all(|p| p.here.is_err()) {
        let reasons: Vec<String> = rows.notes.iter().cloned().chain(reasons).take(4).collect();
        bad_input!("nothing of {} can be made: {}", item.name, reasons.join("; "));
    }
    let select = |by: &dyn Fn(&Point) -> bool| points.iter().filter(|p| by(p)).collect::<Vec<&Point>>();
    let mut figures = Vec::new();
    if item.fill == Fill::Training {
        let trained = distinct(points.iter().filter(|p| p.here.is_ok()).map(|p| p.quantity.setting.n));
        for &n in &trained {
            let (name, before) = if item.is_maze() || trained.len() > 1 {
                (format!("{}-N{n}", item.name), format!("N = {n}: "))
            } else {
                (item.name.clone(), String::new())
            };
            let rewards = rewards(&settings, n, rows, format!("{before}training reward"))?;
            let k_panel = |&k: &u64| {
                panel(
                    format!("{before}pass@{k}"),
                    &select(&|p| (p.quantity.setting.n, p.quantity.k) == (n, k)),
                    false,
                )
            };
            figures.push((
                name,
                Figure { panels: rewards.into_iter().chain(ks.iter().filter_map(k_panel)).collect() },
            ));
        }
    } else if item.is_maze() {
        let k_panel = |&k: &u64| panel(format!("K = {k}"), &select(&|p| p.quantity.k == k), true);
        figures.push((item.name.clone(), Figure { panels: ks.iter().filter_map(k_panel).collect() }));
    } else {
        let mut panels = theory::tail_miss_panels(&[0.5], &[0.1, 0.01])?.panels;
        panels.extend(item.benchmarks.iter().filter_map(|benchmark| {
            panel(title(benchmark), &select(&|p| p.quantity.benchmark == *benchmark), false)
        }));
        panels.extend(rows.replacement.as_ref().and_then(|_| lost(&settings, rows, &mut table)));
        figures.push((item.name.clone(), Figure { panels }));
    }
    let peak = tail_miss::peak(0.5, 0.05)?;
    let finding = |s: &Statement| match &s.compare {
        // If there are too few samples for k, the largest possible k replaces it.
        Some(compare) => compared(compare, &points, *ks.iter().rfind(|k| **k <= compare.k)?),
        None => Some(Finding(format!("one peak, at N = {} for \u{3c4} = 0.05", peak.n), Some(peak.n > 2))),
    };
    let notes = rows.replacement.iter().map(|replacement| replacement.note(item)).chain(notes).chain(reasons);
    let notes = notes.chain(rows.notes.iter().cloned()).collect();
    Ok(Made { notes, ..made(item, figures, Some(table), finding) })
}

/// Returns the benchmarks of a figure.
fn benchmarks(item: &Item) -> Vec<String> {
    if item.is_maze() { vec!["maze".to_owned()] } else { item.benchmarks.clone() }
}

/// Returns the values of k that a figure shows, and its points at the end of training.
fn by_size(item: &Item, rows: &Rows, settings: &[&Setting]) -> (Vec<u64>, Vec<Point>) {
    let samples = settings.iter().flat_map(|s| rows.results(s)).filter_map(|f| f.benchmark.as_ref());
    let ks = allowed(&item.ks, samples.map(Benchmark::fewest).min().unwrap_or(u64::MAX));
    let mut points = Vec::new();
    for benchmark in benchmarks(item) {
        for (&k, &setting) in ks.iter().flat_map(|k| settings.iter().map(move |s| (k, s))) {
            let quantity = Quantity {
                setting: setting.clone(),
                benchmark: benchmark.clone(),
                k,
                measure: Measure::Pass,
            };
            let paper = item.value(&quantity).filter(|_| rows.replacement.is_none());
            let seeds = rows.seeds(setting, &quantity.benchmark).len();
            points.push(Point { step: None, seeds, here: rows.pass(&quantity), paper, quantity });
        }
    }
    (ks, points)
}

/// Returns the values of k that a figure shows, and its points through training, at the steps that all runs of a
/// setting evaluated. Uses the evaluations at `eval.every`, or the full ones if those have fewer samples than k.
fn by_step(
    item: &Item,
    rows: &Rows,
    settings: &[&Setting],
    notes: &mut Vec<String>,
) -> (Vec<u64>, Vec<Point>) {
    let fewest = |all: &[Evaluation]| all.iter().map(|e| e.samples as u64).min().unwrap_or(u64::MAX);
    let all = || settings.iter().flat_map(|s| runs(rows, s)).map(|(_, run)| run);
    let samples = all().map(|r| fewest(&r.frequent).max(fewest(&r.evaluations))).min().unwrap_or(1);
    let ks = allowed(&item.ks, samples);
    let mut points = Vec::new();
    for (&setting, &k) in settings.iter().flat_map(|s| ks.iter().map(move |k| (s, k))) {
        let runs = runs(rows, setting);
        let benchmark = benchmarks(item).swap_remove(0);
        let quantity = Quantity { setting: setting.clone(), benchmark, k, measure: Measure::Pass };
        let mut push = |step, here| {
            points.push(Point { quantity: quantity.clone(), step, seeds: runs.len(), here, paper: None });
        };
        let Some((_, first)) = runs.first() else {
            push(None, Err("no run folder".to_owned()));
            continue;
        };
        let frequent = runs.iter().all(|(_, run)| fewest(&run.frequent) >= k);
        let evaluations =
            |run: &'_ Run| if frequent { run.frequent.clone() } else { run.evaluations.clone() };
        for step in evaluations(first).iter().map(|e| e.step) {
            let counts = |(result, run): &(&Found, &Run)| {
                evaluations(run).iter().find(|e| e.step == step).map(|e| counted("x", &result.path, e))
            };
            if let Some(seeds) = runs.iter().map(counts).collect::<Option<Vec<Benchmark>>>() {
                push(Some(step), pass_at_k(&seeds.iter().collect::<Vec<_>>(), k, 0));
            }
        }
    }
    for k in &ks {
        if let Some(few) = all().map(|r| fewest(&r.frequent)).find(|few| few < k) {
            notes.push(format!(
                "pass@{k} is of the evaluations in full (eval.full), which are at fewer steps: those of eval.every have {few} samples"
            ));
        }
    }
    (ks, points)
}

/// Returns the run folders of a setting.
fn runs<'a>(rows: &'a Rows, setting: &Setting) -> Vec<(&'a Found, &'a Run)> {
    rows.results(setting).iter().filter_map(|f| Some((f, f.run.as_ref()?))).collect()
}

/// Returns the curve of values with their intervals as a band.
fn banded(name: impl Into<String>, colour: Colour, points: &[(f64, Percent)]) -> Curve {
    Curve {
        dots: true,
        band: points.iter().map(|(_, value)| value.1).collect(),
        ..Curve::new(name, colour, points.iter().map(|(x, value)| (*x, value.0)).collect())
    }
}

fn numbers((value, (low, high)): Percent) -> [String; 3] {
    [value, low, high].map(|v| format!("{v:.3}"))
}

/// Returns the horizontal axis that contains every point: steps, or group sizes on a logarithmic scale.
fn horizontal(curves: &[Curve], steps: bool) -> Axis {
    let xs = || curves.iter().flat_map(|c| &c.points).map(|p| p.0);
    if steps {
        return Axis::new("Step", Scale::Linear, 0.0, xs().fold(1.0, f64::max));
    }
    let (low, high) = (xs().fold(f64::INFINITY, f64::min), xs().fold(2.0, f64::max));
    Axis::new("Group size N", Scale::Log2, low.min(high) / 1.19, high * 1.19)
}

/// Returns a vertical axis that contains every point and band with a margin. It spans at least 2 % of the highest value, so
/// that rounding errors don't look like a curve.
fn around(label: impl Into<String>, curves: &[Curve], at_most: f64) -> Axis {
    let bands = curves.iter().flat_map(|c| &c.band).flat_map(|b| [b.0, b.1]);
    let all = curves.iter().flat_map(|c| &c.points).map(|p| p.1).chain(bands);
    let finite = all.filter(|v| v.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    let (height, least) = (high - low, (0.02 * high.abs()).max(1e-3));
    let room = (0.08 * height).max((least - height) / 2.0);
    Axis::new(label, Scale::Linear, (low - room).max(0.0), (high + room).min(at_most))
}

/// Returns the `i`-th of `n` colours: distinct colours if the palette has enough, otherwise a gradient.
fn colour(i: usize, n: usize) -> Colour {
    if n <= PALETTE.len() { PALETTE[i] } else { ordered_colour(i, n) }
}

fn curve_name(method: &str, gamma: f64) -> String {
    if gamma == 0.0 { method.to_owned() } else { format!("F-{method} \u{3b3} = {gamma}") }
}

/// Returns -ln of a percentage. Values below a tenth of a percent count as a tenth, so that 0 can be drawn.
fn minus_log(percent: f64) -> f64 {
    -(percent.max(0.1) / 100.0).ln()
}

/// Returns each k if there are enough samples, and otherwise the largest power of two that the samples allow.
fn allowed(ks: &[u64], samples: u64) -> Vec<u64> {
    distinct(ks.iter().map(|&k| if k <= samples { k } else { 1 << samples.max(1).ilog2() }))
}

fn distinct<T: Ord>(all: impl Iterator<Item = T>) -> Vec<T> {
    Vec::from_iter(all.collect::<BTreeSet<T>>())
}

/// Returns a panel with a curve for each k and focal exponent, or `None` without a measured point. `log` draws -log pass@k.
fn panel(title: String, points: &[&Point], log: bool) -> Option<Panel> {
    let scale = |(value, (low, high)): Percent| {
        if log { (minus_log(value), (minus_log(high), minus_log(low))) } else { (value, (low, high)) }
    };
    let here = points.iter().filter(|p| p.here.is_ok());
    let gammas = distinct(here.map(|p| p.quantity.setting.gamma.to_bits()));
    let ks = distinct(points.iter().map(|p| p.quantity.k));
    let mut curves = Vec::new();
    for (j, &k) in ks.iter().enumerate() {
        let gamma_points = |gamma: f64| {
            let points =
                points.iter().filter(move |p| (p.quantity.k, p.quantity.setting.gamma) == (k, gamma));
            points.map(|p| (p.step.unwrap_or(p.quantity.setting.n) as f64, p))
        };
        for (i, gamma) in gammas.iter().map(|&bits| f64::from_bits(bits)).enumerate() {
            let values =
                gamma_points(gamma).filter_map(|(x, p)| Some((x, scale(p.here.as_ref().ok()?.percent()))));
            let mut values: Vec<(f64, Percent)> = values.collect();
            values.sort_by(|a, b| a.0.total_cmp(&b.0));
            let name = curve_name(&points[0].quantity.setting.method, gamma);
            let name = if ks.len() == 1 { name } else { format!("{name} pass@{k}") };
            let curve = banded(name, colour(i * ks.len() + j, gammas.len() * ks.len()), &values);
            // As in the paper, a single point of a focal setting is drawn as a star.
            let star = curve.points.first().copied().filter(|_| gamma > 0.0 && values.len() == 1);
            curves.extend((!values.is_empty()).then_some(Curve { star, ..curve }));
        }
        let papers = gamma_points(0.0).filter_map(|(x, p)| Some((x, scale((p.paper?, (0.0, 0.0))).0)));
        let papers: Vec<(f64, f64)> = papers.collect();
        if !papers.is_empty() {
            let name = format!("paper, pass@{k}");
            curves.push(Curve { dashed: true, ..Curve::new(name, PALETTE[j], papers) });
        }
    }
    let (label, at_most) = match ks.as_slice() {
        [k] if log => (format!("-log pass@{k}"), f64::INFINITY),
        [k] => (format!("pass@{k}, %"), 105.0),
        _ => ("pass@k, %".to_owned(), 105.0),
    };
    let (x, y) = (horizontal(&curves, points[0].step.is_some()), around(label, &curves, at_most));
    curves.iter().any(|c| !c.dashed).then(|| Panel::new(title, x, y, curves))
}

/// Returns a panel of each setting's mean reward over its seeds, at a group size and at the steps that all seeds have, or
/// `None` without logged rewards. The smoothed curves are drawn over the faint values.
fn rewards(settings: &[&Setting], n: u64, rows: &Rows, title: String) -> anyhow::Result<Option<Panel>> {
    let mut all: Vec<(&Setting, Vec<(f64, f64)>)> = Vec::new();
    for &setting in settings.iter().filter(|s| s.n == n) {
        let runs = runs(rows, setting);
        let mut sums: BTreeMap<u64, (f64, usize)> = BTreeMap::new();
        for line in runs.iter().flat_map(|(_, run)| &run.metrics) {
            if let Some(value) = line.reward_mean.0 {
                let entry = sums.entry(line.step).or_default();
                *entry = (entry.0 + value, entry.1 + 1);
            }
        }
        sums.retain(|_, (_, count)| *count == runs.len());
        let means = sums.into_iter().map(|(step, (sum, count))| (step as f64, sum / count as f64)).collect();
        all.extend((!runs.is_empty()).then_some((setting, means)));
    }
    // Curves show means over windows, so that noise doesn't fill the panel.
    let window = all.iter().map(|a| a.1.len()).max().unwrap_or(0).div_ceil(VISIBLE).max(1);
    let mean = |window: &[(f64, f64)]| {
        let n = window.len() as f64;
        let (x, y) = window.iter().fold((0.0, 0.0), |(x, y), p| (x + p.0, y + p.1));
        (x / n, y / n)
    };
    let curve = |name: String, colour, points: &[(f64, f64)]| {
        Curve::new(name, colour, points.chunks(window).map(mean).collect())
    };
    let mut curves = Vec::new();
    for (i, (setting, points)) in all.iter().enumerate().filter(|(_, (_, points))| !points.is_empty()) {
        let colour = colour(i, all.len());
        let name = curve_name(&setting.method, setting.gamma);
        curves.insert(0, Curve { name: None, faint: true, ..curve(String::new(), colour, points) });
        curves.push(curve(name, colour, &smoothed(points)));
    }
    let (x, y) = (horizontal(&curves, true), around("mean reward, smoothed", &curves, f64::INFINITY));
    Ok((!curves.is_empty()).then(|| Panel::new(title, x, y, curves)))
}

/// Returns the finding about a stated difference, at its group size or, if the statement gives none, at every group size. The
/// statement fails if it fails at one size, and is undecided if it is undecided at one size and fails at none.
fn compared(comparison: &Comparison, points: &[Point], k: u64) -> Option<Finding> {
    let candidates =
        || points.iter().filter(|p| (&p.quantity.benchmark, p.quantity.k) == (&comparison.benchmark, k));
    let find = |Side { gamma, n: side_n, at }: &Side, n: u64| {
        let is = |s: &Setting| (s.gamma, s.n) == (*gamma, side_n.unwrap_or(n));
        let mut by_step =
            candidates().filter(|p| is(&p.quantity.setting)).filter_map(|p| p.here.as_ref().ok());
        match at {
            At::First => by_step.next(),
            At::Lowest => by_step.min_by(|a, b| a.value().total_cmp(&b.value())),
            At::Last => by_step.next_back(),
        }
    };
    let (mut words, mut all) = (Vec::new(), Vec::new());
    for n in comparison.a.n.map_or_else(|| distinct(candidates().map(|p| p.quantity.setting.n)), |n| vec![n])
    {
        let Some((a, b)) = find(&comparison.a, n).zip(find(&comparison.b, n)) else { continue };
        let (text, holds) = match a.minus(b) {
            Err(why) => (why, None),
            Ok(difference) => {
                let (value, (low, high)) = difference.percent();
                let [value, from, to] = [value, low, high].map(|v| signed(v, 1));
                let higher = (low > 0.0 || high < 0.0).then_some(low > 0.0);
                let holds = match comparison.is {
                    Relation::Higher => higher,
                    Relation::Lower => higher.map(|higher| !higher),
                    Relation::Same => Some(higher.is_none()),
                };
                (format!("{value} ({from} to {to})"), holds)
            }
        };
        words.push(if comparison.a.n.is_none() { format!("N = {n}: {text}") } else { text });
        all.push(holds);
    }
    let open = all.contains(&None) && !all.contains(&Some(false));
    let holds = (!open).then(|| !all.contains(&Some(false)));
    (!words.is_empty()).then(|| Finding(format!("pass@{k}: {}", words.join("; ")), holds))
}

/// Draws the fraction of lost problems by group size, for GRPO and F-GRPO. Lost problems are solved by every run at its
/// start, but not by any sample at the end. A further curve shows the theory: the probability that a group of N is active and
/// misses the tail, as a mean over the problems at their starting success rates.
///
/// Returns `None` unless every run evaluated its start, there are two group sizes, and all starts solve some problem in common.
fn lost(settings: &[&Setting], rows: &Rows, table: &mut Table) -> Option<Panel> {
    let results = settings.iter().filter(|s| [0.0, 0.5].contains(&s.gamma)).map(|&s| (s, rows.results(s)));
    let mut results: Vec<(&Setting, &[Found])> = results.filter(|(_, seeds)| !seeds.is_empty()).collect();
    results.sort_by_key(|(s, _)| s.n);
    let starts: Vec<Benchmark> = results.iter().flat_map(|s| s.1).filter_map(Found::start).collect();
    let sizes: Vec<u64> = results.iter().filter(|(s, _)| s.gamma == 0.0).map(|(s, _)| s.n).collect();
    if sizes.len() < 2 || starts.len() < results.iter().map(|s| s.1.len()).sum() {
        return None;
    }
    let solved = |b: &Benchmark| -> BTreeSet<String> {
        b.problems.iter().filter(|p| p.correct > 0).map(|p| p.id.clone()).collect()
    };
    let common = starts.iter().map(solved).reduce(|a, b| &a & &b).filter(|all| !all.is_empty())?;
    let mut push = |on: &str, n: u64, quantity: [String; 3], values: [String; 3]| {
        let head = [on.to_owned(), n.to_string()].into_iter().chain(quantity);
        table.push(head.chain(values).chain([String::new(), String::new()]));
    };
    let mut curves = Vec::new();
    for (gamma, colour) in [(0.0, PALETTE[1]), (0.5, PALETTE[3])] {
        let mut points = Vec::new();
        for (Setting { n, .. }, seeds) in results.iter().filter(|(s, _)| s.gamma == gamma) {
            let mut ends: Vec<Benchmark> = seeds.iter().filter_map(|f| f.benchmark.clone()).collect();
            ends.iter_mut().for_each(|end| end.problems.retain(|p| common.contains(&p.id)));
            let samples = ends.iter().map(Benchmark::fewest).min()?;
            let estimate = pass_at_k(&ends.iter().collect::<Vec<_>>(), samples, 0).ok()?;
            let (value, (low, high)) = estimate.percent();
            let lost = (100.0 - value, (100.0 - high, 100.0 - low));
            let quantity = [gamma.to_string(), samples.to_string(), seeds.len().to_string()];
            push("lost of the start", *n, quantity, numbers(lost));
            points.push((*n as f64, lost));
        }
        let curve = banded(format!("lost by {}", curve_name("GRPO", gamma)), colour, &points);
        curves.extend((!points.is_empty()).then_some(curve));
    }
    // A problem under several starts counts once for each. A problem that is always or never solved is never active.
    let rate = |p: &ProblemCounts| p.correct as f64 / (p.samples as f64).max(1.0);
    let rates = starts.iter().flat_map(|b| &b.problems).map(rate);
    let rates: Vec<f64> = rates.filter(|rate| *rate > 0.0 && *rate < 1.0).collect();
    let mut theory = Vec::new();
    for n in (1..=20).map(|i| 1u64 << i).filter(|n| (sizes[0]..=sizes[sizes.len() - 1]).contains(n)) {
        let misses = rates.iter().map(|&mu| tail_miss::tail_miss_probability(mu, TAIL * mu, n));
        let mean = 100.0 * misses.sum::<Result<f64, _>>().ok()? / rates.len() as f64;
        let number = [format!("{mean:.3}"), String::new(), String::new()];
        push("tail miss, theory", n, Default::default(), number);
        theory.push((n as f64, mean));
    }
    curves.push(Curve { dashed: true, dots: true, ..Curve::new("tail miss, theory", PALETTE[6], theory) });
    let y = around("probability, share of problems, %", &curves, 105.0);
    let title = format!("lost of {} problems solved at the start", common.len());
    Some(Panel::new(title, horizontal(&curves, false), Axis { range: (0.0, y.range.1), ..y }, curves))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_of_a_flat_curve_is_no_magnifier() {
        let height = |values: [f64; 2]| {
            let points = (0..).map(f64::from).zip(values).collect();
            let axis = around("y", &[Curve::new("", PALETTE[0], points)], 100.0);
            axis.range.1 - axis.range.0
        };
        assert!(height([50.0, 50.0]) >= 0.999 && height([100.0, 99.9999]) >= 0.999);
        assert!((height([10.0, 20.0]) - 11.6).abs() < 1e-9);
    }
}
