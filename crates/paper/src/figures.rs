//! The figures: of the theory, of the simulation, and of trained models by group size and through their steps.

use super::checks::{self, Finding, Findings};
use super::data::{Fill, Item, Measure, Quantity, Setting, Substitute};
use super::made::Made;
use super::measured::{Estimate, Matched, Percent, columns, pass_at_k};
use super::settings;
use super::sheet::signed;
use super::simulate::Sweep;
use super::sources::{Run, Source, Sources, counted};
use super::theory;
use fgrpo_core::theory::tail_miss;
use fgrpo_eval::bad_input;
use fgrpo_eval::figure::{Axis, Colour, Curve, Figure, Legend, PALETTE, Panel, Scale, ordered_colour};
use fgrpo_eval::record::Evaluation;
use fgrpo_eval::samples::{Benchmark, ProblemCounts};
use fgrpo_eval::table::Table;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The configuration of the simulation's figure.
pub const SIMULATION: &str = include_str!("../../../configs/simulation.toml");
/// k of the maze's figures in the paper; the largest that the samples allow stand in for what they don't.
const MAZE_KS: [u64; 4] = [1, 128, 1024, 2048];
/// The tail of a problem's correct mass, as `fgrpo plan` takes it.
const TAIL: f64 = 0.1;
/// Weight of the newest value in a smoothed reward, the paper's.
const EMA: f64 = 0.08;
/// Windows that can be told apart in a figure.
const VISIBLE: usize = 250;

/// Makes a figure that needs no trained model; `simulated` is the folder of the finished simulation.
///
/// # Errors
/// A folder that can't be read.
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
    Ok(made(item, vec![(item.name.clone(), drawn)], None, Some((&found, true))))
}

/// A figure with its values, and what was found of what the paper states; all statements or those alone of which something
/// was found.
fn made(
    item: &'static Item,
    figures: Vec<(String, Figure)>,
    values: Option<Table>,
    found: Option<(&Findings, bool)>,
) -> Made {
    let page = found.and_then(|(found, all)| checks::page(item, found, all));
    let mut values: Vec<(String, Table)> =
        values.into_iter().map(|rows| (format!("{}-values", item.name), rows)).collect();
    values.extend(page.iter().map(|page| (item.name.clone(), page.table.clone())));
    Made { item, said: Vec::new(), figures, values, page }
}

/// Makes a figure from results.
///
/// # Errors
/// Bad input where the results have nothing to do with it; a file that can't be written.
pub(super) fn from_results(
    item: &'static Item,
    sources: &Sources,
    stand: Option<&Substitute>,
) -> anyhow::Result<Made> {
    sources.left_out.iter().for_each(|why| tracing::info!("left out: {why}"));
    let settings = sources.settings(item, stand.is_some());
    sources.check(&settings, stand.is_some())?.iter().for_each(|why| tracing::info!("{why}"));
    let mut matched = Matched::new(item, settings, sources, stand);
    Sources::unscorable(matched.used()).iter().for_each(|said| tracing::info!("{said}"));
    let mut made = match item.fill {
        Fill::MazeSizes => maze_sizes(item, sources, stand)?,
        Fill::MazeTraining => maze_training(item, sources)?,
        Fill::GroupSizes => {
            matched.settings.retain(|s| s.method == "GRPO");
            let settings = matched.settings;
            group_sizes(item, Matched::new(item, settings, sources, stand), sources, stand)?
        }
        _ => training(item, &matched)?,
    };
    let at = made.said.len().min(1);
    made.said.splice(at..at, stand.map(|stand| stand.says(item)));
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

/// A panel whose legend covers least of its curves.
fn panel(title: impl Into<String>, x: Axis, y: Axis, curves: Vec<Curve>) -> Panel {
    theory::panel(title, x, y, curves, Legend::Free)
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

/// Whether a difference is above 0; none while its interval holds 0.
fn above((low, high): (f64, f64)) -> Option<bool> {
    (low > 0.0 || high < 0.0).then_some(low > 0.0)
}

/// What decides a statement on group sizes: its name, k, two settings as focal or not with their group sizes, and what the
/// interval of their difference says.
type Check = (&'static str, u64, [(bool, u64); 2], fn((f64, f64)) -> Option<bool>);

/// A difference with its interval, and whether it is as `holds` says.
fn told(on: &str, d: &Estimate, holds: Option<bool>) -> Finding {
    let (low, high) = d.interval();
    let [value, low, high] = [d.value(), low, high].map(|v| signed(v, 1));
    Finding(format!("{on}{value} points, {low} to {high}"), holds)
}

/// (a) the theory's curve, (b) and (c) pass@1 and pass@256 by group size, beside the paper's points.
fn group_sizes(
    item: &'static Item,
    mut matched: Matched<'_>,
    sources: &Sources,
    stand: Option<&Substitute>,
) -> anyhow::Result<Made> {
    let mut panels = theory::tail_miss_panels(&[0.5], &[0.1, 0.01])?.panels;
    panels[0].title = "(a) Tail-miss probability, \u{3bc} = 0.5".to_owned();
    let peak = tail_miss::peak(0.5, 0.05)?;
    let words = format!("one peak, at N = {} for \u{3c4} = 0.05", peak.n);
    let mut found = Findings::from([("single-peak".to_owned(), Finding(words, Some(peak.n > 2)))]);
    let mut rows = Table::new(["benchmark", "setting", "k", "here", "low", "high", "paper"]);
    let mut reasons = BTreeSet::new();
    // Runs of our own may have fewer samples than the paper's k.
    let fewest = || sources.all.iter().flat_map(|s| &s.benchmarks).map(Benchmark::fewest).min().unwrap_or(1);
    let large = if stand.is_some() { 1u64 << fewest().clamp(1, 256).ilog2() } else { 256 };
    let mut any = false;
    // One benchmark stands for all of the paper's.
    let shown = if stand.is_some() { 1 } else { item.benchmarks.len() };
    for (letter, of) in ["b", "c"].into_iter().zip(&item.benchmarks[..shown]) {
        let mut curves = Vec::new();
        let mut values: BTreeMap<(bool, u64, u64), Estimate> = BTreeMap::new();
        for (j, k) in [1, large].into_iter().enumerate() {
            let mut paper = Vec::new();
            for setting in matched.settings.clone() {
                let focal = setting.gamma > 0.0;
                let name = matched.name(&setting);
                let quantity = Quantity { setting, of: of.clone(), k, measure: Measure::Pass };
                let (setting, printed) =
                    (&quantity.setting, item.value(&quantity).filter(|_| stand.is_none()));
                let value = matched.pass(&quantity);
                if let (Ok(value), None) = (&value, stand) {
                    matched.note_other_size(setting, value);
                }
                let numbers = value.as_ref().map_or_else(|_| Default::default(), |e| columns(e.percent()));
                let head = [matched.place(of).to_owned(), name, k.to_string()];
                let printed_text = printed.map_or_else(String::new, |p| p.to_string());
                rows.push(head.into_iter().chain(numbers).chain([printed_text]));
                paper.extend(printed.filter(|_| !focal).map(|p| (setting.n as f64, p)));
                any |= value.is_ok();
                match value {
                    Ok(e) if [0.0, 0.5].contains(&setting.gamma) => {
                        values.insert((focal, setting.n, k), (*e).clone());
                    }
                    Ok(_) => {}
                    Err(why) => drop(reasons.insert(why)),
                }
            }
            for (focal, name, colour) in [(false, "GRPO", PALETTE[j]), (true, "F-GRPO", PALETTE[j + 2])] {
                let own = values.iter().filter(|(key, _)| (key.0, key.2) == (focal, k));
                let points: Vec<_> = own.map(|(key, e)| (key.1 as f64, e.percent())).collect();
                // The paper has one group size with a focal weight, which a star marks.
                let star =
                    points.first().filter(|_| focal && points.len() == 1).map(|(n, value)| (*n, value.0));
                if !points.is_empty() {
                    curves.push(Curve { star, ..banded(format!("{name} pass@{k}"), colour, &points) });
                }
            }
            if stand.is_none() {
                let name = format!("paper, pass@{k}");
                curves.push(Curve { dashed: true, ..Curve::new(name, PALETTE[j], paper) });
            }
        }
        let column = item.table().columns.iter().find(|c| c.fixed.of.as_ref() == Some(of));
        let title = stand.map_or_else(|| column.map_or("", |c| &c.title), |stand| &stand.of);
        if curves.iter().any(|c| !c.points.is_empty()) {
            let y = around("pass@k, %", &curves, 105.0);
            panels.push(panel(format!("({letter}) {title}"), sizes_axis(&curves), y, curves));
        }
        let checks: [Check; 3] = [
            ("pass1-rises", 1, [(false, 8), (false, 2)], above),
            ("pass256-falls", large, [(false, 8), (false, 2)], |i| above(i).map(|rises| !rises)),
            ("focal-matches", large, [(true, 8), (false, 32)], |(low, high)| Some(low <= 0.0 && high >= 0.0)),
        ];
        for (check, k, [a, b], holds) in checks {
            let (Some(a), Some(b)) = (values.get(&(a.0, a.1, k)), values.get(&(b.0, b.1, k))) else {
                continue;
            };
            let on = stand.map_or_else(String::new, |stand| format!("pass@{k} on {}: ", stand.of));
            let finding = match a.minus(b) {
                Ok(d) => told(&on, &d, holds(d.interval())),
                Err(why) => Finding(why, None),
            };
            found.insert(format!("{check}-{of}"), finding);
        }
    }
    if stand.is_some() {
        panels.extend(lost(sources, &mut rows));
    }
    if !any {
        let reasons: Vec<String> = reasons.into_iter().take(4).collect();
        bad_input!("--from: nothing of {} can be made: {}", item.name, reasons.join("; "));
    }
    reasons.iter().for_each(|reason| tracing::info!("left out: {reason}"));
    matched.notes().iter().for_each(|note| tracing::info!("{note}"));
    let drawn = vec![(item.name.clone(), Figure { panels })];
    Ok(made(item, drawn, Some(rows), Some((&found, stand.is_none()))))
}

/// Percent of the problems that every run solved at its start and no sample solves at the end, by group size, for GRPO and
/// F-GRPO; and the mean probability that a group of N is active and misses the tail, over the problems at their starting
/// success rates.
///
/// None unless every run evaluated its start, there are two group sizes, and every start solves some problem.
fn lost(sources: &Sources, rows: &mut Table) -> Option<Panel> {
    let by_size = |gamma: f64| {
        let mut sizes: BTreeMap<u64, Vec<&Source>> = BTreeMap::new();
        for (source, s) in sources.all.iter().filter_map(|s| Some((s, &s.run.as_ref()?.setting))) {
            if s.method == "GRPO" && s.gamma == gamma {
                sizes.entry(s.n).or_default().push(source);
            }
        }
        sizes
    };
    let (plain, focal) = (by_size(0.0), by_size(0.5));
    let runs = || plain.values().chain(focal.values()).flatten();
    let start = |source: &&Source| {
        let first = source.run.as_ref()?.evaluations.first().filter(|e| e.step == 0)?;
        Some(counted(&source.benchmarks[0].name, &source.path, first))
    };
    let starts: Vec<Benchmark> = runs().filter_map(start).collect();
    if plain.len() < 2 || starts.len() < runs().count() {
        return None;
    }
    let solved = |b: &Benchmark| -> BTreeSet<String> {
        b.problems.iter().filter(|p| p.correct > 0).map(|p| p.id.clone()).collect()
    };
    let in_all = starts.iter().map(solved).reduce(|a, b| &a & &b).filter(|all| !all.is_empty())?;
    let mut curves = Vec::new();
    for (name, colour, sizes) in [("GRPO", PALETTE[1], &plain), ("F-GRPO", PALETTE[3], &focal)] {
        let mut points = Vec::new();
        for (n, seeds) in sizes {
            // What no sample solves at the end.
            let of_these = |source: &&Source| {
                let all = &source.benchmarks[0];
                let kept = all.problems.iter().filter(|p| in_all.contains(&p.id)).cloned();
                Benchmark { problems: kept.collect(), ..all.clone() }
            };
            let ends: Vec<Benchmark> = seeds.iter().map(of_these).collect();
            let samples = ends.iter().map(Benchmark::fewest).min()?;
            let lost = pass_at_k(&ends.iter().collect::<Vec<_>>(), samples, 0).ok()?.lost();
            let head = ["lost of the start".to_owned(), format!("{name} N={n}"), samples.to_string()];
            rows.push(head.into_iter().chain(columns(lost)).chain([String::new()]));
            points.push((*n as f64, lost));
        }
        if !points.is_empty() {
            curves.push(banded(format!("lost by {name}"), colour, &points));
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
        rows.push(["tail miss, theory", &format!("N={n}"), "", &format!("{mean:.3}"), "", "", ""]);
        theory.push((n as f64, mean));
    }
    curves.push(Curve { dashed: true, dots: true, ..Curve::new("tail miss, theory", PALETTE[6], theory) });
    let highest = curves.iter().flat_map(|c| c.points.iter().map(|p| p.1).chain(c.band.iter().map(|b| b.1)));
    let top = (1.1 * highest.fold(1.0, f64::max)).min(105.0);
    let y = Axis::new("probability, share of problems, %", Scale::Linear, 0.0, top);
    let title = format!("(c) lost of {} problems solved at the start", in_all.len());
    Some(panel(title, sizes_axis(&curves), y, curves))
}

/// Runs of GRPO on mazes by group size and the bits of gamma, whatever their method's other settings; the seeds in order.
type MazeRuns<'a> = BTreeMap<(u64, u64), Vec<&'a Source>>;

/// The runs, and the k that are shown: the paper's where the samples allow, 1, 16, 64 and 256 otherwise.
fn maze_runs(sources: &Sources) -> anyhow::Result<(MazeRuns<'_>, Vec<u64>)> {
    let mut runs = MazeRuns::new();
    for source in &sources.all {
        let Some(run) = &source.run else { continue };
        if run.setting.method == "GRPO" && source.benchmarks[0].name == "maze" {
            runs.entry((run.setting.n, run.setting.gamma.to_bits())).or_default().push(source);
        }
    }
    if runs.is_empty() {
        bad_input!(
            "--from: found no run of GRPO on mazes, wanted run folders of `fgrpo train` or `fgrpo sweep`"
        );
    }
    runs.values_mut().for_each(|seeds| seeds.sort_by_key(|s| s.run.as_ref().map(|r| r.config.seed)));
    let fewest = runs.values().flatten().map(|s| s.benchmarks[0].fewest()).min().unwrap_or(1);
    let ks = if fewest >= MAZE_KS[3] { MAZE_KS } else { [1, 16, 64, 256] };
    Ok((runs, ks.into_iter().filter(|&k| k <= fewest).collect()))
}

/// A setting of mazes as a curve's name.
fn maze_name(gamma: f64) -> String {
    if gamma == 0.0 { "GRPO".to_owned() } else { format!("F-GRPO \u{3b3} = {gamma}") }
}

/// -ln of a percentage; pass@k of 0 is drawn as that of a tenth of a percent.
fn minus_log(percent: f64) -> f64 {
    -(percent.max(0.1) / 100.0).ln()
}

/// -log pass@K at the end of training by group size, one panel for each K.
fn maze_sizes(item: &'static Item, sources: &Sources, stand: Option<&Substitute>) -> anyhow::Result<Made> {
    let (runs, ks) = maze_runs(sources)?;
    let gammas: Vec<u64> = runs.keys().map(|k| k.1).collect::<BTreeSet<_>>().into_iter().collect();
    let mut panels = Vec::new();
    let heads = ["N", "gamma", "K", "runs", "pass@K", "low", "high", "-log pass@K", "paper's pass@K"];
    let mut rows = Table::new(heads);
    let mut values: BTreeMap<(u64, u64, u64), Estimate> = BTreeMap::new();
    for &k in &ks {
        let mut curves = Vec::new();
        for (i, &bits) in gammas.iter().enumerate() {
            let (gamma, mut points, mut band) = (f64::from_bits(bits), Vec::new(), Vec::new());
            for (&(n, _), seeds) in runs.iter().filter(|(key, _)| key.1 == bits) {
                let benchmarks: Vec<&Benchmark> = seeds.iter().map(|s| &s.benchmarks[0]).collect();
                let value = match pass_at_k(&benchmarks, k, 0) {
                    Ok(value) => value,
                    Err(why) => bad_input!("N = {n}, gamma {gamma}: {why}"),
                };
                let setting = Setting { model: None, method: "GRPO".into(), gamma, n };
                let quantity = Quantity { setting, of: "maze".into(), k, measure: Measure::Pass };
                let printed = item.value(&quantity).filter(|_| stand.is_none());
                let head = [n.to_string(), gamma.to_string(), k.to_string(), seeds.len().to_string()];
                let printed = printed.map_or_else(String::new, |v| v.to_string());
                let last = [format!("{:.5}", minus_log(value.value())), printed];
                rows.push(head.into_iter().chain(columns(value.percent())).chain(last));
                let (low, high) = value.interval();
                points.push((n as f64, minus_log(value.value())));
                band.push((minus_log(high), minus_log(low)));
                values.insert((n, bits, k), value);
            }
            let curve = Curve::new(maze_name(gamma), colour(i, gammas.len()), points);
            curves.push(Curve { dots: true, band, ..curve });
        }
        let y = around(format!("-log pass@{k}"), &curves, f64::INFINITY);
        panels.push(panel(format!("K = {k}"), sizes_axis(&curves), y, curves));
    }
    let drawn = vec![(item.name.clone(), Figure { panels })];
    let sizes: BTreeSet<u64> = runs.keys().map(|k| k.0).collect();
    let mut found = Findings::new();
    for (check, k) in [("focal-pass1", 1), ("focal-pass256", 256)] {
        let mut words = Vec::new();
        let mut holds = Some(true);
        for &n in &sizes {
            let of = |gamma: f64| values.get(&(n, gamma.to_bits(), k));
            let Some((focal, base)) = of(0.5).zip(of(0.0)) else { continue };
            let (word, here) = match focal.minus(base) {
                Err(why) => (why, None),
                Ok(d) => {
                    let (low, high) = d.interval();
                    let [value, low, high] = [d.value(), low, high].map(|v| signed(v, 1));
                    (format!("{value} ({low} to {high})"), above(d.interval()))
                }
            };
            words.push(format!("N = {n}: {word}"));
            // One that doesn't hold decides; one that is open leaves it open.
            holds = if holds == Some(false) || here == Some(false) { Some(false) } else { holds.and(here) };
        }
        if !words.is_empty() {
            found.insert(check.to_owned(), Finding(words.join("; "), holds));
        }
    }
    Ok(made(item, drawn, Some(rows), Some((&found, true))))
}

/// Runs of one setting with their curve's name and colour.
type Group<'a> = (String, Colour, Vec<&'a Source>);

/// Means over windows of an axis of `steps`, so that noise stays a line.
fn window_means(points: &[(f64, f64)], steps: usize) -> Vec<(f64, f64)> {
    let mean = |window: &[(f64, f64)]| {
        let n = window.len() as f64;
        let (x, y) = window.iter().fold((0.0, 0.0), |(x, y), p| (x + p.0, y + p.1));
        (x / n, y / n)
    };
    points.chunks(steps.div_ceil(VISIBLE).max(1)).map(mean).collect()
}

/// The mean reward over seeds, at the steps that all have.
fn reward(seeds: &[&Source]) -> Vec<(f64, f64)> {
    let mut sums: BTreeMap<u64, (f64, usize)> = BTreeMap::new();
    let runs: Vec<&Run> = seeds.iter().filter_map(|s| s.run.as_ref()).collect();
    for line in runs.iter().flat_map(|r| &r.metrics) {
        if let Some(value) = line.reward_mean.0 {
            let entry = sums.entry(line.step).or_default();
            *entry = (entry.0 + value, entry.1 + 1);
        }
    }
    let full = sums.into_iter().filter(|(_, (_, n))| *n == runs.len());
    full.map(|(step, (sum, n))| (step as f64, sum / n as f64)).collect()
}

/// Samples of each problem in the evaluation with fewest.
fn fewest(evaluations: &[Evaluation]) -> u64 {
    evaluations.iter().map(|e| e.samples as u64).min().unwrap_or(u64::MAX)
}

/// pass@k by step over seeds, at the steps that all evaluated: of the frequent evaluations, or of the full ones where the
/// frequent ones have fewer samples than k.
fn evaluated<'s>(seeds: &[&'s Source], k: u64) -> Vec<(f64, Estimate)> {
    let runs: Vec<&'s Run> = seeds.iter().filter_map(|s| s.run.as_ref()).collect();
    let Some(first) = runs.first() else { return Vec::new() };
    let frequent = runs.iter().all(|r| fewest(&r.frequent) >= k);
    let of = |run: &'s Run| if frequent { &run.frequent } else { &run.evaluations };
    let at = |step: u64| -> Option<(f64, Estimate)> {
        let of_run =
            |r: &&'s Run| of(r).iter().find(|e| e.step == step).map(|e| counted("x", &seeds[0].path, e));
        let each: Vec<Benchmark> = runs.iter().map(of_run).collect::<Option<_>>()?;
        Some((step as f64, pass_at_k(&each.iter().collect::<Vec<_>>(), k, 0).ok()?))
    };
    of(first).iter().filter_map(|e| at(e.step)).collect()
}

/// Says which of these k are of full evaluations, which are at fewer steps.
fn say_full<'s>(sources: impl Iterator<Item = &'s Source> + Clone, ks: &[u64]) {
    for &k in ks {
        let mut samples = sources.clone().filter_map(|s| s.run.as_ref()).map(|r| fewest(&r.frequent));
        if let Some(samples) = samples.find(|&samples| samples < k) {
            tracing::info!(
                "pass@{k} is of the evaluations in full (eval.full), which are at fewer steps: those of eval.every have {samples} samples"
            );
        }
    }
}

/// Reward, pass@1 and pass@k by step: one panel each, one curve for each group of runs. The reward has the paper's
/// smoothing, `y = 0.08 x + 0.92 y` from the first value, over the values themselves.
fn training_panels(groups: &[Group<'_>], ks: &[u64], title: &str) -> Vec<Panel> {
    let all: Vec<Vec<(f64, f64)>> = groups.iter().map(|group| reward(&group.2)).collect();
    let steps = all.iter().map(Vec::len).max().unwrap_or(0);
    let mut rewards = Vec::new();
    for ((name, colour, _), raw) in groups.iter().zip(all) {
        let mut mean = raw.first().map_or(0.0, |p| p.1);
        let smooth: Vec<(f64, f64)> = raw
            .iter()
            .enumerate()
            .map(|(i, &(x, value))| {
                mean = if i == 0 { value } else { EMA * value + (1.0 - EMA) * mean };
                (x, mean)
            })
            .collect();
        rewards.insert(
            0,
            Curve { name: None, faint: true, ..Curve::new("", *colour, window_means(&raw, steps)) },
        );
        rewards.push(Curve::new(name.clone(), *colour, window_means(&smooth, steps)));
    }
    let mut panels =
        vec![("training reward".to_owned(), "mean reward, smoothed".to_owned(), f64::INFINITY, rewards)];
    panels.extend(ks.iter().map(|&k| {
        let curve = |(name, colour, seeds): &Group<'_>| {
            let points = evaluated(seeds, k).into_iter().map(|(step, e)| (step, e.percent()));
            banded(name.clone(), *colour, &points.collect::<Vec<_>>())
        };
        (format!("pass@{k}"), format!("pass@{k}, %"), 100.0, groups.iter().map(curve).collect())
    }));
    let drawn = panels.into_iter().filter_map(|(name, label, at_most, mut curves)| {
        curves.retain(|c| !c.points.is_empty());
        let y = (!curves.is_empty()).then(|| around(label, &curves, at_most))?;
        Some(panel(format!("{title}{name}"), steps_axis(&curves), y, curves))
    });
    drawn.collect()
}

/// Mazes through training: a figure for each group size, its runs by gamma.
fn maze_training(item: &'static Item, sources: &Sources) -> anyhow::Result<Made> {
    let (runs, ks) = maze_runs(sources)?;
    let shown = [ks[0], ks[ks.len() - 1]];
    say_full(runs.values().flatten().copied(), &ks);
    let sizes: BTreeSet<u64> = runs.keys().map(|k| k.0).collect();
    let (mut drawn, mut drops, mut recoveries, mut softer) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut rows = Table::new(["N", "gamma", "runs", "step", "k", "pass@k", "low", "high"]);
    for &n in &sizes {
        let own: Vec<(f64, &Vec<&Source>)> =
            runs.iter().filter(|(k, _)| k.0 == n).map(|(k, seeds)| (f64::from_bits(k.1), seeds)).collect();
        let groups = own.iter().enumerate();
        let groups: Vec<Group<'_>> =
            groups.map(|(i, (g, seeds))| (maze_name(*g), colour(i, own.len()), (*seeds).clone())).collect();
        let panels = training_panels(&groups, &shown, &format!("N = {n}: "));
        drawn.push((format!("{}-N{n}", item.name), Figure { panels }));
        // The lowest point, what it is below the start, and how much of it came back.
        let lowest = |curve: &[(f64, Estimate)]| {
            let low = curve.iter().min_by(|a, b| a.1.value().total_cmp(&b.1.value()))?;
            Some((low.1.minus(&curve.first()?.1).ok()?, curve.last()?.1.minus(&low.1).ok()?, low.0))
        };
        let mut base = None;
        for (gamma, seeds) in &own {
            for &k in &ks {
                for (step, e) in evaluated(seeds, k) {
                    let head = [n.to_string(), gamma.to_string(), seeds.len().to_string()];
                    rows.push(
                        head.into_iter().chain([step.to_string(), k.to_string()]).chain(columns(e.percent())),
                    );
                }
            }
            let Some((drop, back, step)) = lowest(&evaluated(seeds, shown[1])) else { continue };
            if *gamma == 0.0 {
                let (down, up) = (signed(drop.value(), 1), signed(back.value(), 1));
                drops.push((drop.interval().1 < 0.0, format!("N = {n}: {down} at step {step}")));
                recoveries.push((back.interval().0 > 0.0, format!("N = {n}: {up} by the end")));
                base = Some(drop);
            } else if let Some(base) = &base {
                match drop.minus(base) {
                    Ok(d) => softer.push((
                        d.interval().0 > 0.0,
                        format!("N = {n}, \u{3b3} = {gamma}: {} points less", signed(d.value(), 1)),
                    )),
                    Err(why) => tracing::info!("N = {n}, \u{3b3} = {gamma} and GRPO are not compared: {why}"),
                }
            }
        }
    }
    let mut found = Findings::new();
    for (check, all) in [("early-drop", drops), ("recovery", recoveries), ("focal-softens", softer)] {
        let words: Vec<&str> = all.iter().map(|a| a.1.as_str()).collect();
        if !words.is_empty() {
            let words = format!("pass@{}: {}", shown[1], words.join("; "));
            found.insert(check.to_owned(), Finding(words, Some(all.iter().all(|a| a.0))));
        }
    }
    Ok(made(item, drawn, Some(rows), Some((&found, true))))
}

/// One method and its focal form through training.
fn training(item: &'static Item, matched: &Matched<'_>) -> anyhow::Result<Made> {
    let shown = item.settings();
    let mut groups: Vec<Group<'_>> = Vec::new();
    for (setting, colour) in shown.iter().zip(PALETTE) {
        let seeds: Vec<&Source> = matched.of(setting).iter().copied().filter(|s| s.run.is_some()).collect();
        if seeds.is_empty() {
            tracing::info!("left out: no run of {}", settings::name(setting, &shown));
        } else {
            groups.push((setting.method(), colour, seeds));
        }
    }
    if groups.is_empty() {
        let names: Vec<String> = shown.iter().map(|s| settings::name(s, &shown)).collect();
        let (item, names) = (&item.name, names.join(" or "));
        bad_input!("--from: nothing of {item} can be made: found no run folder of {names}");
    }
    let runs = groups.iter().flat_map(|g| &g.2).copied();
    let largest = |r: &Run| fewest(&r.frequent).max(fewest(&r.evaluations));
    let allowed = runs.clone().filter_map(|s| s.run.as_ref()).map(largest).min().unwrap_or(1);
    let large = [64, 16, 8, 4, 2].into_iter().find(|&k| k <= allowed).unwrap_or(1);
    say_full(runs, &[1, large]);
    let drawn = Figure { panels: training_panels(&groups, &[1, large], "") };
    let mut rows = Table::new(["method", "step", "k", "pass@k", "low", "high"]);
    for (name, _, seeds) in &groups {
        for k in [1, large] {
            for (step, e) in evaluated(seeds, k) {
                rows.push(
                    [name.clone(), step.to_string(), k.to_string()].into_iter().chain(columns(e.percent())),
                );
            }
        }
    }
    let without = format!("the paper states no numbers of this figure; values in {}-values.csv", item.name);
    let said = vec![item.heading(), without];
    Ok(Made { said, ..made(item, vec![(item.name.clone(), drawn)], Some(rows), None) })
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
