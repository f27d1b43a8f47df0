//! The figures: of the theory, of the simulation, and of trained models by group size and by step.

use super::checks::{self, Finding};
use super::data::{Comparison, Fill, Item, Measure, Quantity, Relation, Setting, Side, Statement};
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

/// The configuration of the simulation's figure.
pub const SIMULATION: &str = include_str!("../../../configs/simulation.toml");
/// The tail of a problem's correct mass, as `fgrpo plan` takes it.
const TAIL: f64 = 0.1;
/// Windows that can be told apart in a figure.
const VISIBLE: usize = 250;

/// Makes a figure that needs no trained model; `simulated` is the folder of the finished simulation.
pub(super) fn from_theory(item: &'static Item, simulated: &Path) -> anyhow::Result<Made> {
    let (drawn, found) = match item.fill {
        Fill::TailMissPanels => (theory::tail_miss_panels(&checks::MU, &checks::RHO)?, checks::peaks()?),
        Fill::AdvantageMagnitude => {
            (theory::advantage_magnitude(&checks::GAMMAS, None)?, checks::attenuation()?)
        }
        Fill::TailMissCurve => {
            (theory::tail_miss_curve(checks::SIMULATED.0, checks::SIMULATED.1)?, checks::one_action()?)
        }
        _ => {
            let sweep = Sweep::read(simulated)?;
            (sweep.figure(), checks::simulation(&sweep.config, &sweep.lines))
        }
    };
    Ok(made(item, vec![(item.name.clone(), drawn)], None, |s| found.get(s.check.as_str()).cloned()))
}

/// A figure with its values, and what was found of each statement of the paper.
fn made(
    item: &'static Item,
    figures: Vec<(String, Figure)>,
    values: Option<Table>,
    found: impl Fn(&Statement) -> Option<Finding>,
) -> Made {
    let table = checks::table(item, found);
    let mut files: Vec<(String, Table)> =
        values.into_iter().map(|rows| (format!("{}-values", item.name), rows)).collect();
    files.extend((!table.rows.is_empty()).then(|| (item.name.clone(), table.clone())));
    let legend = match table.rows.is_empty() {
        true => "the paper states no numbers of this figure".to_owned(),
        false => format!("the paper's source, line {}", item.line),
    };
    Made { figures, table, legend, values: files, ..Made::new(item) }
}

/// Makes a figure from results.
pub(super) fn from_results(item: &'static Item, rows: &Rows) -> anyhow::Result<Made> {
    let mut made = match item.fill {
        Fill::GroupSizes => by_size(item, rows)?,
        _ => by_step(item, rows)?,
    };
    let shown = rows.replacement.iter().map(|own| own.note(item));
    made.notes = shown.chain(made.notes).chain(rows.notes.iter().cloned()).collect();
    Ok(made)
}

/// Values by x with their band.
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

/// The axis of group sizes, in powers of two, that holds every point.
fn sizes_axis(curves: &[Curve]) -> Axis {
    let xs = || curves.iter().flat_map(|c| &c.points).map(|p| p.0);
    let (low, high) = (xs().fold(f64::INFINITY, f64::min), xs().fold(2.0, f64::max));
    Axis::new("Group size N", Scale::Log2, low.min(high) / 1.19, high * 1.19)
}

fn steps_axis(curves: &[Curve]) -> Axis {
    let last = curves.iter().flat_map(|c| &c.points).map(|p| p.0).fold(1.0, f64::max);
    Axis::new("Step", Scale::Linear, 0.0, last)
}

/// An axis that holds every point and band of the curves with some room, and at least 2 % of the highest value, so that
/// rounding isn't drawn as a curve.
fn around(label: impl Into<String>, curves: &[Curve], at_most: f64) -> Axis {
    let bands = curves.iter().flat_map(|c| &c.band).flat_map(|b| [b.0, b.1]);
    let all = curves.iter().flat_map(|c| &c.points).map(|p| p.1).chain(bands);
    let all: Vec<f64> = all.filter(|v| v.is_finite()).collect();
    let low = all.iter().copied().fold(f64::INFINITY, f64::min);
    let high = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let (height, least) = (high - low, (0.02 * high.abs()).max(1e-3));
    let room = (0.08 * height).max((least - height) / 2.0);
    Axis::new(label, Scale::Linear, (low - room).max(0.0), (high + room).min(at_most))
}

/// The `i`-th of `n` colours: apart for few, ordered for more than there are.
fn colour(i: usize, n: usize) -> Colour {
    if n <= PALETTE.len() { PALETTE[i] } else { ordered_colour(i, n) }
}

fn curve_name(gamma: f64) -> String {
    if gamma == 0.0 { "GRPO".to_owned() } else { format!("F-GRPO \u{3b3} = {gamma}") }
}

/// -ln of a percentage; pass@k of 0 is drawn as that of a tenth of a percent.
fn minus_log(percent: f64) -> f64 {
    -(percent.max(0.1) / 100.0).ln()
}

/// The largest k up to `k` that these numbers of samples allow: `k` itself, or a power of two.
fn allowed(k: u64, samples: u64) -> u64 {
    if k <= samples { k } else { 1 << samples.max(1).ilog2() }
}

fn distinct<T: Ord>(all: impl Iterator<Item = T>) -> Vec<T> {
    all.collect::<BTreeSet<T>>().into_iter().collect()
}

/// pass@k of GRPO at one setting, here and in the paper.
struct Point {
    of: Quantity,
    here: Result<Estimate, String>,
    paper: Option<f64>,
}

/// pass@k by group size, a panel for each benchmark, or of mazes for each k; beside the theory's curve and the paper's points.
fn by_size(item: &'static Item, rows: &Rows) -> anyhow::Result<Made> {
    let settings: Vec<&Setting> = rows.settings.iter().filter(|s| s.method == "GRPO").collect();
    let samples = settings.iter().flat_map(|s| rows.results(s)).flat_map(|f| &f.benchmarks);
    let samples = samples.map(Benchmark::fewest).min().unwrap_or(u64::MAX);
    let ks = distinct(item.ks.iter().map(|&k| allowed(k, samples)));
    let title = |of: &str| {
        let column = item.table().columns.iter().find(|c| c.fixed.of.as_deref() == Some(of));
        let own = rows.replacement.as_ref().and_then(|own| own.place(of));
        own.or(column.map(|c| c.title.as_str())).unwrap_or(of).to_owned()
    };
    let benchmarks = if item.is_maze() { vec!["maze".to_owned()] } else { item.benchmarks.clone() };
    let mut points = Vec::new();
    for of in &benchmarks {
        for (&k, setting) in ks.iter().flat_map(|k| settings.iter().map(move |s| (k, *s))) {
            let of = Quantity { setting: setting.clone(), of: of.clone(), k, measure: Measure::Pass };
            let paper = item.value(&of).filter(|_| rows.replacement.is_none());
            points.push(Point { here: rows.pass(&of), of, paper });
        }
    }
    let mut table = Table::new(["on", "N", "gamma", "k", "seeds", "here", "low", "high", "paper"]);
    let mut reasons = BTreeSet::new();
    for Point { of, here, paper } in &points {
        let Setting { n, gamma, .. } = &of.setting;
        let seeds = rows.results(&of.setting).len().to_string();
        let head = [title(&of.of), n.to_string(), gamma.to_string(), of.k.to_string(), seeds];
        if let Err(why) = here {
            reasons.insert(format!("left out: {}: {why}", rows.name(&of.setting)));
        }
        let found = here.as_ref().map_or_else(|_| Default::default(), |e| numbers(e.percent()));
        table.push(head.into_iter().chain(found).chain([paper.map_or_else(String::new, |p| p.to_string())]));
    }
    if points.iter().all(|p| p.here.is_err()) {
        let reasons: Vec<String> = rows.notes.iter().cloned().chain(reasons).take(4).collect();
        bad_input!("--from: nothing of {} can be made: {}", item.name, reasons.join("; "));
    }
    let mut panels = match item.is_maze() {
        true => ks
            .chunks(1)
            .filter_map(|k| size_panel(format!("K = {}", k[0]), "maze", k, &points, true))
            .collect(),
        false => theory::tail_miss_panels(&[0.5], &[0.1, 0.01])?.panels,
    };
    if !item.is_maze() {
        panels.extend(benchmarks.iter().filter_map(|of| size_panel(title(of), of, &ks, &points, false)));
        panels.extend(rows.replacement.as_ref().and_then(|_| lost(&settings, rows, &mut table)));
    }
    let peak = tail_miss::peak(0.5, 0.05)?;
    let found = |s: &Statement| match &s.compare {
        Some(compare) => compared(compare, &points, allowed(compare.k, samples)),
        None => Some(Finding(format!("one peak, at N = {} for \u{3c4} = 0.05", peak.n), Some(peak.n > 2))),
    };
    let figures = vec![(item.name.clone(), Figure { panels })];
    Ok(Made { notes: reasons.into_iter().collect(), ..made(item, figures, Some(table), found) })
}

/// A panel of one benchmark by group size, a curve for each k and focal exponent; `log` draws -log pass@k. None without a point.
fn size_panel(title: String, of: &str, ks: &[u64], points: &[Point], log: bool) -> Option<Panel> {
    let scale = |percent: f64| if log { minus_log(percent) } else { percent };
    let gammas = distinct(points.iter().map(|p| p.of.setting.gamma.to_bits()));
    let mut curves = Vec::new();
    for (j, &k) in ks.iter().enumerate() {
        let own: Vec<&Point> = points.iter().filter(|p| (p.of.of.as_str(), p.of.k) == (of, k)).collect();
        for (i, gamma) in gammas.iter().map(|&bits| f64::from_bits(bits)).enumerate() {
            let of_gamma = own.iter().filter(|p| p.of.setting.gamma == gamma);
            let mut values: Vec<(u64, Percent)> =
                of_gamma.filter_map(|p| Some((p.of.setting.n, p.here.as_ref().ok()?.percent()))).collect();
            values.sort_by_key(|v| v.0);
            let drawn: Vec<(f64, Percent)> = values
                .into_iter()
                .map(|(n, (value, (low, high)))| {
                    let (a, b) = (scale(low), scale(high));
                    (n as f64, (scale(value), (a.min(b), a.max(b))))
                })
                .collect();
            let name = curve_name(gamma);
            let name = if ks.len() == 1 { name } else { format!("{name} pass@{k}") };
            let curve = banded(name, colour(i * ks.len() + j, gammas.len() * ks.len()), &drawn);
            // A single point of a focal setting, as in the paper, has a star.
            let star = curve.points.first().copied().filter(|_| gamma > 0.0 && drawn.len() == 1);
            curves.extend((!drawn.is_empty()).then_some(Curve { star, ..curve }));
        }
        let papers = own.iter().filter(|p| p.of.setting.gamma == 0.0);
        let papers: Vec<_> = papers.filter_map(|p| Some((p.of.setting.n as f64, scale(p.paper?)))).collect();
        if !papers.is_empty() {
            let name = format!("paper, pass@{k}");
            curves.push(Curve { dashed: true, ..Curve::new(name, PALETTE[j], papers) });
        }
    }
    let label = if log { format!("-log pass@{}", ks[0]) } else { "pass@k, %".to_owned() };
    let y = around(label, &curves, if log { f64::INFINITY } else { 105.0 });
    let measured = curves.iter().any(|c| !c.dashed);
    measured.then(|| Panel::new(title, sizes_axis(&curves), y, curves))
}

/// What was found of a difference: at its group size, or at each where the statement gives none. It doesn't hold if it
/// fails at one size, and is open if it is open at one.
fn compared(asked: &Comparison, points: &[Point], k: u64) -> Option<Finding> {
    let own = || points.iter().filter(|p| (&p.of.of, p.of.k) == (&asked.of, k));
    let find = |side: &Side, n: u64| {
        let is = |s: &Setting| (s.gamma, s.n) == (side.gamma, side.n.unwrap_or(n));
        own().find(|p| is(&p.of.setting))?.here.as_ref().ok()
    };
    let sizes = match asked.a.n {
        Some(n) => vec![n],
        None => distinct(own().map(|p| p.of.setting.n)),
    };
    let (mut words, mut holds) = (Vec::new(), Some(true));
    for n in sizes {
        let Some((a, b)) = find(&asked.a, n).zip(find(&asked.b, n)) else { continue };
        let at = if asked.a.n.is_none() { format!("N = {n}: ") } else { String::new() };
        let here = match a.minus(b) {
            Err(why) => {
                words.push(format!("{at}{why}"));
                None
            }
            Ok(difference) => {
                let (low, high) = difference.interval();
                let numbers = [difference.value(), low, high].map(|v| signed(v, 1));
                words.push(format!("{at}{} ({} to {})", numbers[0], numbers[1], numbers[2]));
                let higher = (low > 0.0 || high < 0.0).then_some(low > 0.0);
                match asked.is {
                    Relation::Higher => higher,
                    Relation::Lower => higher.map(|higher| !higher),
                    Relation::Same => Some(higher.is_none()),
                }
            }
        };
        holds = if holds == Some(false) || here == Some(false) { Some(false) } else { holds.and(here) };
    }
    (!words.is_empty()).then(|| Finding(format!("pass@{k}: {}", words.join("; ")), holds))
}

/// Percent of the problems that every run solved at its start and no sample solves at the end, by group size, for GRPO and
/// F-GRPO; and the mean probability that a group of N is active and misses the tail, over the problems at their starting
/// success rates.
///
/// None unless every run evaluated its start, there are two group sizes, and every start solves some problem.
fn lost(settings: &[&Setting], rows: &Rows, table: &mut Table) -> Option<Panel> {
    let by_size = |gamma: f64| -> BTreeMap<u64, &[Found]> {
        let own = settings.iter().filter(|s| s.gamma == gamma).map(|s| (s.n, rows.results(s)));
        own.filter(|(_, found)| !found.is_empty()).collect()
    };
    let (plain, focal) = (by_size(0.0), by_size(0.5));
    let all = || plain.values().chain(focal.values()).copied().flatten();
    let starts: Vec<Benchmark> = all().filter_map(Found::start).collect();
    if plain.len() < 2 || starts.len() < all().count() {
        return None;
    }
    let solved = |b: &Benchmark| -> BTreeSet<String> {
        b.problems.iter().filter(|p| p.correct > 0).map(|p| p.id.clone()).collect()
    };
    let in_all = starts.iter().map(solved).reduce(|a, b| &a & &b).filter(|all| !all.is_empty())?;
    let mut push = |on: &str, n: u64, [gamma, k, seeds]: [String; 3], found: [String; 3]| {
        let head = [on.to_owned(), n.to_string(), gamma, k, seeds];
        table.push(head.into_iter().chain(found).chain([String::new()]));
    };
    let mut curves = Vec::new();
    for (gamma, colour, sizes) in [(0.0, PALETTE[1], &plain), (0.5, PALETTE[3], &focal)] {
        let mut points = Vec::new();
        for (&n, seeds) in sizes {
            let of_these = |found: &Found| {
                let all = &found.benchmarks[0];
                let kept = all.problems.iter().filter(|p| in_all.contains(&p.id)).cloned();
                Benchmark { problems: kept.collect(), ..all.clone() }
            };
            let ends: Vec<Benchmark> = seeds.iter().map(of_these).collect();
            let samples = ends.iter().map(Benchmark::fewest).min()?;
            let lost = pass_at_k(&ends.iter().collect::<Vec<_>>(), samples, 0).ok()?.lost();
            let of = [gamma.to_string(), samples.to_string(), seeds.len().to_string()];
            push("lost of the start", n, of, numbers(lost));
            points.push((n as f64, lost));
        }
        if !points.is_empty() {
            curves.push(banded(format!("lost by {}", curve_name(gamma)), colour, &points));
        }
    }
    // The same problem under several starts counts once for each. One that is always or never solved is never active.
    let rate = |p: &ProblemCounts| p.correct as f64 / (p.samples as f64).max(1.0);
    let rates = starts.iter().flat_map(|b| &b.problems).map(rate);
    let rates: Vec<f64> = rates.filter(|rate| *rate > 0.0 && *rate < 1.0).collect();
    let mut theory = Vec::new();
    let (smallest, largest) = (*plain.keys().next()?, *plain.keys().next_back()?);
    for n in (0..=20).map(|i| 1u64 << i).filter(|n| (smallest.max(2)..=largest).contains(n)) {
        let misses = rates.iter().map(|&mu| tail_miss::tail_miss_probability(mu, TAIL * mu, n));
        let mean = 100.0 * misses.sum::<Result<f64, _>>().ok()? / rates.len() as f64;
        push(
            "tail miss, theory",
            n,
            Default::default(),
            [format!("{mean:.3}"), String::new(), String::new()],
        );
        theory.push((n as f64, mean));
    }
    curves.push(Curve { dashed: true, dots: true, ..Curve::new("tail miss, theory", PALETTE[6], theory) });
    let y = around("probability, share of problems, %", &curves, 105.0);
    let title = format!("lost of {} problems solved at the start", in_all.len());
    Some(Panel::new(title, sizes_axis(&curves), Axis { range: (0.0, y.range.1), ..y }, curves))
}

/// Runs of one setting with their curve's name and colour.
struct Group<'a> {
    name: String,
    colour: Colour,
    runs: Vec<(&'a Found, &'a Run)>,
}

impl Group<'_> {
    /// The mean reward over seeds, at the steps that all have.
    fn reward(&self) -> Vec<(f64, f64)> {
        let mut sums: BTreeMap<u64, (f64, usize)> = BTreeMap::new();
        for line in self.runs.iter().flat_map(|(_, run)| &run.metrics) {
            if let Some(value) = line.reward_mean.0 {
                let entry = sums.entry(line.step).or_default();
                *entry = (entry.0 + value, entry.1 + 1);
            }
        }
        let full = sums.into_iter().filter(|(_, (_, n))| *n == self.runs.len());
        full.map(|(step, (sum, n))| (step as f64, sum / n as f64)).collect()
    }

    /// pass@k by step over seeds, at the steps that all evaluated: of the frequent evaluations, or of the full ones where
    /// the frequent ones have fewer samples than k.
    fn pass(&self, k: u64) -> Vec<(f64, Estimate)> {
        let frequent = self.runs.iter().all(|(_, run)| fewest(&run.frequent) >= k);
        let of = |run: &'_ Run| if frequent { run.frequent.clone() } else { run.evaluations.clone() };
        let Some((_, first)) = self.runs.first() else { return Vec::new() };
        let at = |step: u64| -> Option<(f64, Estimate)> {
            let each = self.runs.iter().map(|(found, run)| {
                of(run).iter().find(|e| e.step == step).map(|e| counted("x", &found.path, e))
            });
            let each: Vec<Benchmark> = each.collect::<Option<_>>()?;
            Some((step as f64, pass_at_k(&each.iter().collect::<Vec<_>>(), k, 0).ok()?))
        };
        of(first).iter().filter_map(|e| at(e.step)).collect()
    }
}

/// Samples of each problem in the evaluation with fewest.
fn fewest(evaluations: &[Evaluation]) -> u64 {
    evaluations.iter().map(|e| e.samples as u64).min().unwrap_or(u64::MAX)
}

/// Means over windows of an axis of `steps`, so that noise stays a line.
fn window_means(points: &[(f64, f64)], steps: usize) -> Vec<(f64, f64)> {
    let mean = |window: &[(f64, f64)]| {
        let n = window.len() as f64;
        let (x, y) = window.iter().fold((0.0, 0.0), |(x, y), p| (x + p.0, y + p.1));
        (x / n, y / n)
    };
    points.chunks(steps.div_ceil(VISIBLE).max(1)).map(mean).collect()
}

/// Reward, pass@1 and pass@k by step: one panel each, one curve for each group of runs. The reward has the paper's
/// smoothing over the values themselves.
fn training_panels(groups: &[Group<'_>], ks: &[u64], title: &str) -> Vec<Panel> {
    let all: Vec<Vec<(f64, f64)>> = groups.iter().map(Group::reward).collect();
    let steps = all.iter().map(Vec::len).max().unwrap_or(0);
    let mut rewards = Vec::new();
    for (group, raw) in groups.iter().zip(all) {
        let smooth = window_means(&smoothed(&raw), steps);
        let raw = Curve::new("", group.colour, window_means(&raw, steps));
        rewards.insert(0, Curve { name: None, faint: true, ..raw });
        rewards.push(Curve::new(group.name.clone(), group.colour, smooth));
    }
    let mut panels =
        vec![("training reward".to_owned(), "mean reward, smoothed".to_owned(), f64::INFINITY, rewards)];
    panels.extend(ks.iter().map(|&k| {
        let curve = |group: &Group<'_>| {
            let points: Vec<_> = group.pass(k).into_iter().map(|(step, e)| (step, e.percent())).collect();
            banded(group.name.clone(), group.colour, &points)
        };
        (format!("pass@{k}"), format!("pass@{k}, %"), 100.0, groups.iter().map(curve).collect())
    }));
    let drawn = panels.into_iter().filter_map(|(name, label, at_most, mut curves)| {
        curves.retain(|c| !c.points.is_empty());
        let y = (!curves.is_empty()).then(|| around(label, &curves, at_most))?;
        Some(Panel::new(format!("{title}{name}"), steps_axis(&curves), y, curves))
    });
    drawn.collect()
}

/// Training by step: of mazes a figure for each group size, its runs by gamma; of the others one figure.
fn by_step(item: &'static Item, rows: &Rows) -> anyhow::Result<Made> {
    let asked: Vec<Setting> = match item.is_maze() {
        true => rows.settings.iter().filter(|s| s.method == "GRPO").cloned().collect(),
        false => item.settings(),
    };
    let runs = |setting: &Setting| -> Vec<(&Found, &Run)> {
        rows.results(setting).iter().filter_map(|f| Some((f, f.run.as_ref()?))).collect()
    };
    let trained: Vec<&Setting> = asked.iter().filter(|s| !runs(s).is_empty()).collect();
    let untrained: Vec<String> =
        asked.iter().filter(|s| !trained.contains(s)).map(|s| rows.name(s)).collect();
    let mut notes: Vec<String> = untrained.iter().map(|name| format!("left out: no run of {name}")).collect();
    if trained.is_empty() {
        let (item, names) = (&item.name, untrained.join(" or "));
        bad_input!("--from: nothing of {item} can be made: found no run folder of {names}");
    }
    let all = || trained.iter().flat_map(|s| runs(s)).map(|(_, run)| run);
    let samples = all().map(|r| fewest(&r.frequent).max(fewest(&r.evaluations))).min().unwrap_or(1);
    let ks = distinct(item.ks.iter().map(|&k| allowed(k, samples)));
    for &k in &ks {
        if let Some(few) = all().map(|r| fewest(&r.frequent)).find(|&few| few < k) {
            notes.push(format!(
                "pass@{k} is of the evaluations in full (eval.full), which are at fewer steps: those of eval.every have {few} samples"
            ));
        }
    }
    let mut table = Table::new(["setting", "seeds", "step", "k", "here", "low", "high"]);
    let mut figures = Vec::new();
    let mut courses = Vec::new();
    for n in distinct(trained.iter().map(|s| s.n)) {
        let mut own: Vec<&Setting> = trained.iter().copied().filter(|s| s.n == n).collect();
        own.sort_by(|a, b| a.gamma.total_cmp(&b.gamma));
        let group = |(i, s): (usize, &&Setting)| {
            let name = if item.is_maze() { curve_name(s.gamma) } else { s.method() };
            Group { name, colour: colour(i, own.len()), runs: runs(s) }
        };
        let groups: Vec<Group<'_>> = own.iter().enumerate().map(group).collect();
        for (setting, group) in own.iter().zip(&groups) {
            for &k in &ks {
                for (step, e) in group.pass(k) {
                    let head =
                        [rows.name(setting), group.runs.len().to_string(), step.to_string(), k.to_string()];
                    table.push(head.into_iter().chain(numbers(e.percent())));
                }
            }
        }
        let (name, title) = match item.is_maze() {
            true => (format!("{}-N{n}", item.name), format!("N = {n}: ")),
            false => (item.name.clone(), String::new()),
        };
        figures.push((name, Figure { panels: training_panels(&groups, &ks, &title) }));
        courses.extend(course(n, &own, &groups, ks[ks.len() - 1]));
    }
    let large = ks[ks.len() - 1];
    let found = |s: &Statement| {
        let own: Vec<_> = courses.iter().filter(|c| c.0 == s.check).collect();
        let words: Vec<&str> = own.iter().map(|c| c.2.as_str()).collect();
        let words = format!("pass@{large}: {}", words.join("; "));
        (!own.is_empty()).then(|| Finding(words, Some(own.iter().all(|c| c.1))))
    };
    Ok(Made { notes, ..made(item, figures, Some(table), found) })
}

/// What runs of one group size, GRPO first, do by step: by the name of a check, whether it holds and in which words.
fn course(n: u64, settings: &[&Setting], groups: &[Group<'_>], k: u64) -> Vec<(&'static str, bool, String)> {
    // The lowest point below the start, and how much of that came back.
    let lowest = |curve: &[(f64, Estimate)]| {
        let low = curve.iter().min_by(|a, b| a.1.value().total_cmp(&b.1.value()))?;
        Some((low.1.minus(&curve.first()?.1).ok()?, curve.last()?.1.minus(&low.1).ok()?, low.0))
    };
    let mut found = Vec::new();
    let mut base: Option<Estimate> = None;
    for (setting, group) in settings.iter().zip(groups) {
        let Some((drop, back, step)) = lowest(&group.pass(k)) else { continue };
        if setting.gamma == 0.0 {
            let (down, up) = (signed(drop.value(), 1), signed(back.value(), 1));
            found.push(("early-drop", drop.interval().1 < 0.0, format!("N = {n}: {down} at step {step}")));
            found.push(("recovery", back.interval().0 > 0.0, format!("N = {n}: {up} by the end")));
            base = Some(drop);
        } else if let Some(less) = base.as_ref().and_then(|base| drop.minus(base).ok()) {
            let (gamma, points) = (setting.gamma, signed(less.value(), 1));
            let words = format!("N = {n}, \u{3b3} = {gamma}: {points} points less");
            found.push(("focal-softens", less.interval().0 > 0.0, words));
        }
    }
    found
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
