//! The figures of trained models: pass@k by group size, and training through its steps.

use super::beside::signed;
use super::figures::write_both;
use super::measured::{Measured, Resampled, pass_at_k};
use super::numbers::{Asked, Drawn, Measure, NUMBERS, Setting};
use super::panels::{banded, panel, sizes_axis};
use super::settings;
use super::sources::{Run, Source, Sources, counted};
use super::stand::Stand;
use super::statements::{Found, write};
use crate::output::plot::{Axis, Curve, Figure, Legend, PALETTE, Panel, Scale, ordered_colour};
use crate::output::table::{Format, Table};
use crate::paper::theory::figures as theory;
use anyhow::Context;
use fgrpo_core::theory::tail_miss;
use fgrpo_train::bad_input;
use fgrpo_train::evaluation::samples::Benchmark;
use fgrpo_train::io::files::write_whole;
use plotters::style::RGBColor;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Weight of the newest value in a smoothed reward, the paper's.
const EMA: f64 = 0.08;
/// k of the maze's figures in the paper; the largest that the samples allow stand in for what they don't.
const MAZE_KS: [u64; 4] = [1, 128, 1024, 2048];

type Findings = BTreeMap<&'static str, Found>;

/// Makes a figure from results.
///
/// # Errors
/// Bad input where the results have nothing to do with it; a file that can't be written.
pub(super) fn make(
    figure: &Drawn,
    sources: &Sources,
    stand: Option<&Stand>,
    out: &Path,
) -> anyhow::Result<()> {
    std::fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
    match figure.number {
        1 => group_sizes(figure, sources, stand, out),
        6 => maze_by_size(figure, sources, out),
        7 => maze_dynamics(figure, sources, out),
        _ => dynamics(figure, sources, stand, out),
    }
}

/// An axis that holds every point and band of the curves with some room.
fn around(label: impl Into<String>, curves: &[Curve], at_most: f64) -> Axis {
    let bands = curves.iter().flat_map(|c| &c.band).flat_map(|b| [b.0, b.1]);
    let all: Vec<f64> =
        curves.iter().flat_map(|c| &c.points).map(|p| p.1).chain(bands).filter(|v| v.is_finite()).collect();
    let low = all.iter().copied().fold(f64::INFINITY, f64::min);
    let high = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let room = 0.08 * (high - low).max(1e-3);
    Axis::new(label, Scale::Linear, (low - room).max(0.0), (high + room).min(at_most))
}

/// (a) the theory's curve, (b) and (c) pass@1 and pass@256 by group size, beside the paper's points.
fn group_sizes(figure: &Drawn, sources: &Sources, stand: Option<&Stand>, out: &Path) -> anyhow::Result<()> {
    let table = NUMBERS.table(12);
    let mut all = settings::shown(&super::items::Item::Figure(NUMBERS.figure(1)));
    if stand.is_some() {
        let model = all.first().and_then(|s| s.model.clone());
        all.extend(sources.further(&all, model.as_ref()).into_iter().filter(|s| s.method == "GRPO"));
    }
    let mut measured = Measured::new(all.clone(), sources, stand, table.trained_on);
    let mut found = Findings::new();
    let mut panels = theory::tail_miss_panels(&[0.5], &[0.1, 0.01])?.panels;
    panels[0].title = "(a) Tail-miss probability, \u{3bc} = 0.5".to_owned();
    let peak = tail_miss::peak(0.5, 0.05)?;
    found.insert(
        "single-peak",
        Found::new(format!("one peak, at N = {} for \u{3c4} = 0.05", peak.n), peak.n > 2),
    );
    let mut rows = Table::new(["benchmark", "setting", "k", "here", "low", "high", "paper"]);
    let (mut made, mut reasons) = (0, BTreeSet::new());
    let benchmarks: &[(&str, &str, [&'static str; 3])] = &[
        ("aime25", "AIME25", ["pass1-rises-aime25", "pass256-falls-aime25", "focal-matches-aime25"]),
        ("ifeval", "IFEval", ["pass1-rises-ifeval", "pass256-falls-ifeval", "focal-matches-ifeval"]),
    ];
    for (i, (of, title, checks)) in benchmarks.iter().enumerate() {
        if stand.is_some() && i > 0 {
            break;
        }
        let mut curves = Vec::new();
        let mut values: BTreeMap<(bool, u64, u64), Resampled> = BTreeMap::new();
        for (j, k) in [1, 256].into_iter().enumerate() {
            let asked =
                |s: &Setting| Asked { setting: s.clone(), of: (*of).to_owned(), k, measure: Measure::Pass };
            let (mut here, mut paper) = (Vec::new(), Vec::new());
            for setting in &all {
                let focal = setting.gamma > 0.0;
                let printed = table.value(&asked(setting)).filter(|_| stand.is_none());
                let value = measured.pass(&asked(setting));
                let numbers = match &value {
                    Ok(r) => [r.value, r.interval().0, r.interval().1].map(|v| format!("{v:.3}")),
                    Err(_) => [const { String::new() }; 3],
                };
                let name = settings::name(setting, &all);
                let printed_text = printed.map_or_else(String::new, |p| p.to_string());
                let head = [measured.place(of).to_owned(), name, k.to_string()];
                rows.push(head.into_iter().chain(numbers).chain([printed_text]));
                match value {
                    Ok(r) => {
                        made += 1;
                        if !focal {
                            here.push((setting.n as f64, r.clone()));
                        }
                        if !focal || setting.gamma == 0.5 {
                            values.insert((focal, setting.n, k), r);
                        }
                    }
                    Err(why) => drop(reasons.insert(why)),
                }
                if let (false, Some(p)) = (focal, printed) {
                    paper.push((setting.n as f64, p));
                }
            }
            let colour = PALETTE[j];
            here.sort_by(|a, b| a.0.total_cmp(&b.0));
            if !here.is_empty() {
                curves.push(banded(format!("GRPO pass@{k}"), colour, &here));
            }
            if let Some(r) = values.get(&(true, 8, k)) {
                let focal = [(8.0, r.clone())];
                curves.push(Curve {
                    star: Some((8.0, r.value)),
                    ..banded(format!("F-GRPO pass@{k}"), PALETTE[j + 2], &focal)
                });
            }
            if stand.is_none() {
                curves.push(Curve { dashed: true, ..Curve::new(format!("paper, pass@{k}"), colour, paper) });
            }
        }
        let xs: Vec<f64> = curves.iter().flat_map(|c| &c.points).map(|p| p.0).collect();
        let title = match stand {
            Some(stand) => format!("(b) {}", stand.of),
            None => format!("({}) {title}", ["b", "c"][i]),
        };
        if !xs.is_empty() {
            let y = around("pass@k, %", &curves, 105.0);
            panels.push(panel(title, sizes_axis(&xs), y, curves, Legend::Right));
        }
        let told = |a: (bool, u64, u64), b: (bool, u64, u64), wanted: fn(f64, f64, f64) -> Option<bool>| {
            let d = values.get(&a)?.minus(values.get(&b)?);
            let (low, high) = d.interval();
            let words = format!("{} points, {} to {}", signed(d.value, 1), signed(low, 1), signed(high, 1));
            Some(wanted(d.value, low, high).map_or(Found::open(words.clone()), |h| Found::new(words, h)))
        };
        let rises: fn(f64, f64, f64) -> Option<bool> =
            |_, low, high| (low > 0.0 || high < 0.0).then_some(low > 0.0);
        let falls: fn(f64, f64, f64) -> Option<bool> =
            |_, low, high| (low > 0.0 || high < 0.0).then_some(high < 0.0);
        let same: fn(f64, f64, f64) -> Option<bool> = |_, low, high| Some(low <= 0.0 && high >= 0.0);
        for (check, found_here) in [
            (checks[0], told((false, 8, 1), (false, 2, 1), rises)),
            (checks[1], told((false, 8, 256), (false, 2, 256), falls)),
            (checks[2], told((true, 8, 256), (false, 32, 256), same)),
        ] {
            found.extend(found_here.map(|f| (check, f)));
        }
    }
    if let Some(stand) = stand {
        outln!("{}", stand.says_of(figure));
        panels.extend(super::retention::lost(sources, &mut rows));
    }
    if made == 0 {
        let reasons: Vec<String> = reasons.into_iter().take(4).collect();
        bad_input!("--from: nothing of {} can be made: {}", figure.name(), reasons.join("; "));
    }
    for reason in &reasons {
        say!("left out: {reason}");
    }
    write_both(&Figure { panels }, &out.join(figure.name()))?;
    write_whole(&out.join(format!("{}-values.csv", figure.name())), rows.render(Format::Csv).as_bytes())?;
    write(figure, &found, out)
}

/// The runs of each group size and gamma, whatever their method's other settings.
fn maze_runs(sources: &Sources) -> anyhow::Result<BTreeMap<(u64, u64), Vec<&Source>>> {
    let mut runs: BTreeMap<(u64, u64), Vec<&Source>> = BTreeMap::new();
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
    for seeds in runs.values_mut() {
        seeds.sort_by_key(|s| s.run.as_ref().map(|r| r.seed));
    }
    Ok(runs)
}

fn gamma(bits: u64) -> f64 {
    f64::from_bits(bits)
}

/// The k of a maze figure: the paper's where the samples allow, 1, 16, 64 and 256 otherwise.
fn maze_ks(runs: &BTreeMap<(u64, u64), Vec<&Source>>) -> Vec<u64> {
    let fewest = runs.values().flatten().map(|s| s.benchmarks[0].fewest()).min().unwrap_or(1);
    if fewest >= MAZE_KS[3] {
        MAZE_KS.to_vec()
    } else {
        [1, 16, 64, 256].into_iter().filter(|&k| k <= fewest).collect()
    }
}

/// -log pass@K at the end of training by group size, one panel for each K.
fn maze_by_size(figure: &Drawn, sources: &Sources, out: &Path) -> anyhow::Result<()> {
    let runs = maze_runs(sources)?;
    let gammas: Vec<u64> = runs.keys().map(|k| k.1).collect::<BTreeSet<_>>().into_iter().collect();
    let sizes: Vec<f64> = runs.keys().map(|k| k.0 as f64).collect();
    let table = NUMBERS.table(5);
    let mut panels = Vec::new();
    let mut rows =
        Table::new(["N", "gamma", "K", "runs", "pass@K", "low", "high", "-log pass@K", "paper's pass@K"]);
    let mut values: BTreeMap<(u64, u64, u64), Resampled> = BTreeMap::new();
    for &k in &maze_ks(&runs) {
        let mut curves = Vec::new();
        for (i, &g) in gammas.iter().enumerate() {
            let mut points = Vec::new();
            for (&(n, _), seeds) in runs.iter().filter(|(key, _)| key.1 == g) {
                let benchmarks: Vec<&Benchmark> = seeds.iter().map(|s| &s.benchmarks[0]).collect();
                let value = match pass_at_k(&benchmarks, k) {
                    Ok(value) => value,
                    Err(why) => bad_input!("N = {n}, gamma {}: {why}", gamma(g)),
                };
                let (low, high) = value.interval();
                let asked = Asked {
                    setting: Setting { model: None, method: "GRPO".into(), gamma: gamma(g), n },
                    of: "maze".into(),
                    k,
                    measure: Measure::Pass,
                };
                rows.push([
                    n.to_string(),
                    gamma(g).to_string(),
                    k.to_string(),
                    seeds.len().to_string(),
                    format!("{:.3}", value.value),
                    format!("{low:.3}"),
                    format!("{high:.3}"),
                    format!("{:.5}", minus_log(value.value)),
                    table.value(&asked).map_or_else(String::new, |v| v.to_string()),
                ]);
                points.push((n as f64, value.clone()));
                values.insert((n, g, k), value);
            }
            let band = points.iter().map(|(_, r)| r.interval());
            curves.push(Curve {
                dots: true,
                band: band.map(|(low, high)| (minus_log(high), minus_log(low))).collect(),
                ..Curve::new(
                    name(gamma(g)),
                    colour(i, gammas.len()),
                    points.iter().map(|(n, r)| (*n, minus_log(r.value))).collect(),
                )
            });
        }
        let y = around(format!("-log pass@{k}"), &curves, f64::INFINITY);
        panels.push(panel(format!("K = {k}"), sizes_axis(&sizes), y, curves, Legend::UpperRight));
    }
    write_both(&Figure { panels }, &out.join(figure.name()))?;
    write_whole(&out.join(format!("{}-values.csv", figure.name())), rows.render(Format::Csv).as_bytes())?;
    let by_size = |k: u64| {
        let mut words = Vec::new();
        let mut holds = Some(true);
        for &n in &sizes.iter().map(|n| *n as u64).collect::<BTreeSet<_>>() {
            let pair = values.get(&(n, 0.5f64.to_bits(), k)).zip(values.get(&(n, 0f64.to_bits(), k)));
            let Some((focal, base)) = pair else { continue };
            let d = focal.minus(base);
            let (low, high) = d.interval();
            words.push(format!(
                "N = {n}: {} ({} to {})",
                signed(d.value, 1),
                signed(low, 1),
                signed(high, 1)
            ));
            holds = match holds {
                Some(true) if low > 0.0 => Some(true),
                Some(true) if high >= 0.0 => None,
                None if high >= 0.0 => None,
                _ => Some(false),
            };
        }
        (!words.is_empty()).then(|| match holds {
            Some(h) => Found::new(words.join("; "), h),
            None => Found::open(words.join("; ")),
        })
    };
    let mut found = Findings::new();
    found.extend(by_size(1).map(|f| ("focal-pass1", f)));
    found.extend(by_size(256).map(|f| ("focal-pass256", f)));
    write(figure, &found, out)
}

/// -ln of a percentage; pass@k of 0 is drawn as that of a tenth of a percent.
fn minus_log(percent: f64) -> f64 {
    -(percent.max(0.1) / 100.0).ln()
}

fn name(gamma: f64) -> String {
    if gamma == 0.0 { "GRPO".to_owned() } else { format!("F-GRPO \u{3b3} = {gamma}") }
}

/// The `i`-th of `n` colours: apart for few, ordered for more than there are.
fn colour(i: usize, n: usize) -> RGBColor {
    if n <= PALETTE.len() { PALETTE[i] } else { ordered_colour(i, n) }
}

/// `y = 0.08 x + 0.92 y`, from the first value.
fn smoothed(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut mean = None;
    let next = |&(x, value): &(f64, f64)| {
        let smooth = mean.map_or(value, |m: f64| EMA * value + (1.0 - EMA) * m);
        mean = Some(smooth);
        (x, smooth)
    };
    points.iter().map(next).collect()
}

/// Points of a curve that can be told apart in a figure.
const VISIBLE: usize = 250;

/// Means over windows of steps, so that a long run's noise stays a line.
fn window_means(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mean = |window: &[(f64, f64)]| {
        let n = window.len() as f64;
        let (x, y) = window.iter().fold((0.0, 0.0), |(x, y), p| (x + p.0, y + p.1));
        (x / n, y / n)
    };
    points.chunks(points.len().div_ceil(VISIBLE).max(1)).map(mean).collect()
}

/// The mean over seeds of what each logs at a step, at the steps that all have.
fn mean_over(runs: &[&Run], of: impl Fn(&Run) -> Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let mut sums: BTreeMap<u64, (f64, usize)> = BTreeMap::new();
    for run in runs {
        for (step, value) in of(run) {
            let entry = sums.entry(step as u64).or_default();
            *entry = (entry.0 + value, entry.1 + 1);
        }
    }
    let full = sums.into_iter().filter(|(_, (_, n))| *n == runs.len());
    full.map(|(step, (sum, n))| (step as f64, sum / n as f64)).collect()
}

fn reward(runs: &[&Run]) -> Vec<(f64, f64)> {
    mean_over(runs, |r| r.metrics.iter().map(|m| (m.step as f64, m.reward_mean)).collect())
}

/// pass@k by step over seeds, at the steps that all evaluated.
fn evaluated(seeds: &[&Source], k: u64) -> Vec<(f64, Resampled)> {
    let runs: Vec<&Run> = seeds.iter().filter_map(|s| s.run.as_ref()).collect();
    let Some(first) = runs.first() else { return Vec::new() };
    let at = |step: u64| -> Option<(f64, Resampled)> {
        let each: Option<Vec<Benchmark>> = runs
            .iter()
            .map(|r| r.evaluations.iter().find(|e| e.step == step).map(|e| counted("x", &seeds[0].path, e)))
            .collect();
        let each = each?;
        Some((step as f64, pass_at_k(&each.iter().collect::<Vec<_>>(), k).ok()?))
    };
    first.evaluations.iter().filter_map(|e| at(e.step)).collect()
}

fn steps_axis(curves: &[Curve]) -> Axis {
    let last = curves.iter().flat_map(|c| &c.points).map(|p| p.0).fold(1.0, f64::max);
    Axis::new("Step", Scale::Linear, 0.0, last)
}

/// Reward, pass@1 and pass@k by step: one panel each, one curve for each group of runs. The paper's smoothing.
fn training_panels(groups: &[(String, RGBColor, Vec<&Source>)], ks: &[u64], title: &str) -> Vec<Panel> {
    let mut rewards = Vec::new();
    for (name, colour, seeds) in groups {
        let runs: Vec<&Run> = seeds.iter().filter_map(|s| s.run.as_ref()).collect();
        let raw = reward(&runs);
        let faint = RGBColor(lighter(colour.0), lighter(colour.1), lighter(colour.2));
        let smooth = smoothed(&raw);
        rewards.insert(0, Curve { name: None, ..Curve::new("", faint, window_means(&raw)) });
        rewards.push(Curve::new(name.clone(), *colour, window_means(&smooth)));
    }
    rewards.retain(|c| !c.points.is_empty());
    let mut panels = Vec::new();
    if !rewards.is_empty() {
        let (x, y) = (steps_axis(&rewards), around("mean reward, smoothed", &rewards, f64::INFINITY));
        panels.push(panel(format!("{title}training reward"), x, y, rewards, Legend::LowerRight));
    }
    for &k in ks {
        let curves: Vec<Curve> = groups
            .iter()
            .map(|(name, colour, seeds)| banded(name.clone(), *colour, &evaluated(seeds, k)))
            .filter(|c| !c.points.is_empty())
            .collect();
        if curves.is_empty() {
            continue;
        }
        let (x, y) = (steps_axis(&curves), around(format!("pass@{k}, %"), &curves, 100.0));
        panels.push(panel(format!("{title}pass@{k}"), x, y, curves, Legend::LowerRight));
    }
    panels
}

fn lighter(channel: u8) -> u8 {
    (u16::from(channel) / 3 + 170) as u8
}

/// Mazes through training: a figure for each group size, its runs by gamma.
fn maze_dynamics(figure: &Drawn, sources: &Sources, out: &Path) -> anyhow::Result<()> {
    let runs = maze_runs(sources)?;
    let ks = maze_ks(&runs);
    let shown = [ks[0], ks[ks.len() - 1]];
    let sizes: BTreeSet<u64> = runs.keys().map(|k| k.0).collect();
    let (mut drops, mut recoveries, mut softer) = (Vec::new(), Vec::new(), Vec::new());
    let mut rows = Table::new(["N", "gamma", "runs", "step", "k", "pass@k", "low", "high"]);
    for &n in &sizes {
        let own: Vec<(u64, &Vec<&Source>)> =
            runs.iter().filter(|(k, _)| k.0 == n).map(|(k, s)| (k.1, s)).collect();
        let groups: Vec<(String, RGBColor, Vec<&Source>)> = own
            .iter()
            .enumerate()
            .map(|(i, (g, seeds))| (name(gamma(*g)), colour(i, own.len()), seeds.to_vec()))
            .collect();
        let panels = training_panels(&groups, &shown, &format!("N = {n}: "));
        write_both(&Figure { panels }, &out.join(format!("{}-N{n}", figure.name())))?;
        let large = shown[1];
        let mut curves: BTreeMap<u64, Vec<(f64, Resampled)>> = BTreeMap::new();
        for (g, seeds) in &own {
            for &k in &ks {
                for (step, r) in evaluated(seeds, k) {
                    let (low, high) = r.interval();
                    let numbers = [r.value, low, high].map(|v| format!("{v:.3}"));
                    let head = [
                        n.to_string(),
                        gamma(*g).to_string(),
                        seeds.len().to_string(),
                        step.to_string(),
                        k.to_string(),
                    ];
                    rows.push(head.into_iter().chain(numbers));
                }
            }
            curves.insert(*g, evaluated(seeds, large));
        }
        // The lowest point, what it is below the start, and how much of it came back.
        let lowest = |curve: &[(f64, Resampled)]| {
            let start = curve.first()?.1.clone();
            let low = curve.iter().min_by(|a, b| a.1.value.total_cmp(&b.1.value))?.clone();
            Some((low.1.minus(&start), curve.last()?.1.minus(&low.1), low.0))
        };
        let base = curves.get(&0f64.to_bits()).and_then(|c| lowest(c));
        if let Some((drop, back, step)) = &base {
            drops.push((
                drop.interval().1 < 0.0,
                format!("N = {n}: {} at step {step}", signed(drop.value, 1)),
            ));
            recoveries
                .push((back.interval().0 > 0.0, format!("N = {n}: {} by the end", signed(back.value, 1))));
            for (g, curve) in curves.iter().filter(|(g, _)| gamma(**g) > 0.0) {
                let Some((own, _, _)) = lowest(curve) else { continue };
                let d = own.minus(drop);
                softer.push((
                    d.interval().0 > 0.0,
                    format!("N = {n}, \u{3b3} = {}: {} points less", gamma(*g), signed(d.value, 1)),
                ));
            }
        }
    }
    write_whole(&out.join(format!("{}-values.csv", figure.name())), rows.render(Format::Csv).as_bytes())?;
    let mut found = Findings::new();
    for (check, all) in [("early-drop", drops), ("recovery", recoveries), ("focal-softens", softer)] {
        if !all.is_empty() {
            let words = format!(
                "pass@{}: {}",
                shown[1],
                all.iter().map(|a| a.1.as_str()).collect::<Vec<_>>().join("; ")
            );
            found.insert(check, Found::new(words, all.iter().all(|a| a.0)));
        }
    }
    write(figure, &found, out)
}

/// One method and its focal form through training.
fn dynamics(figure: &Drawn, sources: &Sources, stand: Option<&Stand>, out: &Path) -> anyhow::Result<()> {
    let shown = settings::shown(&super::items::Item::Figure(NUMBERS.figure(figure.number)));
    let mut groups = Vec::new();
    for (i, setting) in shown.iter().enumerate() {
        let seeds: Vec<&Source> =
            sources.of(setting, &shown, stand.is_some()).into_iter().filter(|s| s.run.is_some()).collect();
        if seeds.is_empty() {
            say!("left out: no run of {}", settings::name(setting, &shown));
        } else {
            groups.push((setting.method(), PALETTE[i], seeds));
        }
    }
    if groups.is_empty() {
        bad_input!(
            "--from: nothing of {} can be made: found no run folder of {}",
            figure.name(),
            shown.iter().map(|s| settings::name(s, &shown)).collect::<Vec<_>>().join(" or ")
        );
    }
    let fewest = groups.iter().flat_map(|g| &g.2).map(|s| s.benchmarks[0].fewest()).min().unwrap_or(1);
    let large = [64, 16, 8, 4, 2].into_iter().find(|&k| k <= fewest).unwrap_or(1);
    let panels = training_panels(&groups, &[1, large], "");
    write_both(&Figure { panels }, &out.join(figure.name()))?;
    let mut rows = Table::new(["method", "step", "k", "pass@k", "low", "high"]);
    for (name, _, seeds) in &groups {
        for k in [1, large] {
            for (step, r) in evaluated(seeds, k) {
                let (low, high) = r.interval();
                let numbers = [r.value, low, high].map(|v| format!("{v:.3}"));
                rows.push([name.clone(), step.to_string(), k.to_string()].into_iter().chain(numbers));
            }
        }
    }
    write_whole(&out.join(format!("{}-values.csv", figure.name())), rows.render(Format::Csv).as_bytes())?;
    outln!("Figure {}: {}", figure.number, figure.title);
    if let Some(stand) = stand {
        outln!("{}", stand.says_of(figure));
    }
    outln!("the paper states no numbers of this figure; values in {}-values.csv", figure.name());
    Ok(())
}
