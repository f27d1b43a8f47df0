//! `fgrpo compare`: is model B better than model A? The paper's paired subsampling test, exact or
//! simulated, and beside it a bootstrap over problems, for one benchmark or many.

use crate::analysis::benchmarks::{self, Average, AverageArgs};
use crate::analysis::dumps;
use crate::analysis::pass_at_k::{choose_ks, powers_of_two};
use crate::output::table::{Format, Part, Row, Table, percent, points};
use crate::report::sampled;
use anyhow::Context;
use clap::ValueEnum;
use fgrpo_core::rng::Key;
use fgrpo_core::stats::bootstrap::{Simulated, resampled_mean};
use fgrpo_core::stats::holm::holm;
use fgrpo_core::stats::paired::{self, Difference, Pair, Subsampler};
use fgrpo_train::bad_input;
use fgrpo_train::evaluation::estimate::{Tables, measure};
use fgrpo_train::evaluation::folder::IDENTITY;
use fgrpo_train::evaluation::samples::{Benchmark, Problem};
use fgrpo_train::failure::OrBadInput;
use fgrpo_train::io::input;
use fgrpo_train::run::folder::differences;
use rayon::prelude::*;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Significance level of the paper and of this command.
pub const LEVEL: f64 = 0.05;

/// Compare two models' pass@k on the same problems.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    fgrpo compare grpo.jsonl f-grpo.jsonl -k 1,256\n  \
    fgrpo compare eval-grpo/ eval-f-grpo/ -k 1,256 --json      several benchmarks with averages\n  \
    fgrpo compare a.jsonl b.jsonl -k 8 --method monte-carlo --iterations 50000\n\n\
    Differences are B - A. The test conditions on the problem set: it says whether the models differ on these\n\
    problems. The bootstrap beside it asks whether they would on other problems of the kind.")]
pub struct Args {
    /// Samples of model A: a file, an evaluation folder, or a folder with a .jsonl per benchmark.
    pub a: PathBuf,
    /// Samples of model B.
    pub b: PathBuf,
    /// Values of k [default: 1 and the largest power of two up to 256 and the subsample's size].
    #[arg(short = 'k', long = "k", value_name = "K,...", value_delimiter = ',')]
    pub ks: Vec<u64>,
    /// Size m of a subsample [default: 256 from 512 samples on, else a quarter of the samples].
    #[arg(long, value_name = "M")]
    pub m: Option<u64>,
    /// How the test is computed.
    #[arg(long, value_enum, default_value = "exact")]
    pub method: Method,
    /// Iterations of the simulation.
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    pub iterations: u64,
    /// Resamples of the problem bootstrap.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    pub resamples: u64,
    /// Print one JSON value, fractions in place of percentages.
    #[arg(long)]
    pub json: bool,
    /// How to print.
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
    /// Averages over benchmarks.
    #[command(flatten)]
    pub averages: AverageArgs,
    /// Allow problems with different numbers of samples.
    #[arg(long)]
    pub uneven: bool,
    /// Write a page with both models' curves as well.
    #[arg(long, value_name = "FILE.html")]
    pub html: Option<PathBuf>,
    /// Seed of the simulation and the bootstrap.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

/// How the distribution of the difference is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Method {
    /// By convolution; what rounding can change is stated.
    Exact,
    /// By simulation, as the paper does.
    MonteCarlo,
}

/// Two models' samples of the same problems, in A's order.
pub struct Matched {
    /// Name of the benchmark.
    pub name: String,
    /// A's samples.
    pub a: Benchmark,
    /// B's samples, in A's order of problems.
    pub b: Benchmark,
}

/// The comparison of one benchmark, or of an average, at one k.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Benchmark or average.
    pub name: String,
    /// Members, if it's an average.
    pub average_of: Vec<String>,
    /// k of pass@k.
    pub k: u64,
    /// Size of a subsample.
    pub m: u64,
    /// Number of problems.
    pub problems: usize,
    /// Unbiased pass@k of A and B, fractions.
    pub values: (f64, f64),
    /// p-value of the paired subsampling test.
    pub p_value: f64,
    /// p-value after Holm's correction over the benchmarks at this k.
    pub holm: f64,
    /// Percentile interval of the difference, at the plan's level.
    pub interval: (f64, f64),
    /// Bounds of the exact p-value; none for a simulation.
    pub p_bounds: Option<(f64, f64)>,
    /// p-value and interval of the problem bootstrap.
    pub bootstrap: (f64, (f64, f64)),
    /// Problems that B solves at least once and A never, and the reverse.
    pub gained: Vec<String>,
    /// Problems that A solves at least once and B never.
    pub lost: Vec<String>,
}

impl Comparison {
    /// B - A.
    pub fn difference(&self) -> f64 {
        self.values.1 - self.values.0
    }

    /// Whether all subsamples are the same, so that the subsampling test has nothing to say.
    fn fixed(&self) -> bool {
        self.interval.0 == self.interval.1
    }

    /// The finding in words.
    pub fn verdict(&self, a: &str, b: &str) -> String {
        let d = self.difference();
        let size = format!("{:.1} points", 100.0 * d.abs());
        let (better, other) = if d >= 0.0 { (b, a) } else { (a, b) };
        let p = p_text(self.holm);
        let on_these = if self.fixed() {
            format!(
                "{better} is ahead of {other} by {size} on these samples, all of which every subsample holds"
            )
        } else if self.p_value < LEVEL && self.holm < LEVEL {
            format!("{better} is better than {other} by {size} on these problems ({p})")
        } else if self.p_value < LEVEL {
            format!(
                "{better} is ahead of {other} by {size} on these problems ({}), but not after correction for the number of benchmarks ({p})",
                p_text(self.p_value)
            )
        } else {
            format!("no difference shown on these problems: {size} in favour of {better} ({p})")
        };
        let (p, (low, high)) = self.bootstrap;
        let interval = format!("{} to {}, {}", points(low), points(high), p_text(p));
        let beyond = if self.problems < 2 {
            "one problem says nothing about others".to_owned()
        } else if p < LEVEL {
            format!("it holds for other problems of the kind too (bootstrap {interval})")
        } else {
            format!("whether it holds for other problems of the kind is open (bootstrap {interval})")
        };
        format!("{}, pass@{}: {on_these}; {beyond}", self.name, self.k)
    }
}

fn p_text(p: f64) -> String {
    if p < 1e-4 { "p < 0.0001".to_owned() } else { format!("p = {p:.4}") }
}

/// Pairs the benchmarks of two models and brings B's problems into A's order.
///
/// # Errors
/// Bad input that names what only one side has.
pub fn matched(a: Vec<Benchmark>, b: Vec<Benchmark>) -> anyhow::Result<Vec<Matched>> {
    // One benchmark on either side is the same one, whatever the files are called.
    if let ([only_a], [only_b]) = (a.as_slice(), b.as_slice()) {
        let [x, y] = [only_a, only_b].map(|side| benchmarks::canonical(&side.name));
        if x != y && benchmarks::is_known(&x) && benchmarks::is_known(&y) {
            bad_input!(
                "found samples of {} in A and of {} in B, wanted the same problems on both sides",
                only_a.name,
                only_b.name
            );
        }
        let name = if only_a.name == only_b.name { only_a.name.clone() } else { String::new() };
        return Ok(vec![align(name, only_a.clone(), only_b)?]);
    }
    let by_name: HashMap<String, &Benchmark> =
        b.iter().map(|x| (benchmarks::canonical(&x.name), x)).collect();
    let mut out = Vec::new();
    for x in &a {
        match by_name.get(&benchmarks::canonical(&x.name)) {
            Some(y) => out.push(align(x.name.clone(), x.clone(), y)?),
            None => {
                bad_input!("benchmark {} is in A but not in B ({})", x.name, list(b.iter().map(|y| &y.name)))
            }
        }
    }
    for y in &b {
        if !a.iter().any(|x| benchmarks::canonical(&x.name) == benchmarks::canonical(&y.name)) {
            bad_input!("benchmark {} is in B but not in A ({})", y.name, list(a.iter().map(|x| &x.name)));
        }
    }
    Ok(out)
}

/// The first few names, and how many more there are.
fn list<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.map(String::as_str).collect();
    let shown = names.iter().take(8).copied().collect::<Vec<_>>().join(", ");
    if names.len() > 8 { format!("{shown} and {} more", names.len() - 8) } else { shown }
}

fn align(name: String, a: Benchmark, b: &Benchmark) -> anyhow::Result<Matched> {
    let in_b: HashMap<&str, usize> = b.problems.iter().enumerate().map(|(i, p)| (p.id.as_str(), i)).collect();
    let in_a: HashMap<&str, usize> = a.problems.iter().enumerate().map(|(i, p)| (p.id.as_str(), i)).collect();
    let missing_b: Vec<&String> =
        a.problems.iter().map(|p| &p.id).filter(|id| !in_b.contains_key(id.as_str())).collect();
    let missing_a: Vec<&String> =
        b.problems.iter().map(|p| &p.id).filter(|id| !in_a.contains_key(id.as_str())).collect();
    if !missing_a.is_empty() || !missing_b.is_empty() {
        let mut parts = Vec::new();
        for (side, missing) in [(&a, &missing_b), (b, &missing_a)] {
            if !missing.is_empty() {
                parts.push(format!(
                    "{} only in {}: {}",
                    missing.len(),
                    side.path.display(),
                    list(missing.iter().copied())
                ));
            }
        }
        bad_input!("the two sides have different problems; {}", parts.join("; "));
    }
    let problems = a.problems.iter().map(|p| b.problems[in_b[p.id.as_str()]].clone()).collect();
    let b = Benchmark { name: b.name.clone(), path: b.path.clone(), problems };
    Ok(Matched { name, a, b })
}

/// What a comparison needs besides the samples.
pub struct Plan {
    /// Values of k.
    pub ks: Vec<u64>,
    /// Size of a subsample.
    pub m: u64,
    /// How the test is computed.
    pub method: Method,
    /// Iterations of a simulation.
    pub iterations: u64,
    /// Resamples of the bootstrap.
    pub resamples: u64,
    /// Seed of both.
    pub seed: u64,
    /// Share of the distribution that the intervals hold, such as 0.95.
    pub level: f64,
}

/// The subsample's size and the values of k, checked against the samples.
///
/// # Errors
/// Bad input: k > m, m > n.
pub fn plan_sizes(pairs: &[Matched], m: Option<u64>, ks: &[u64]) -> anyhow::Result<(u64, Vec<u64>)> {
    for p in pairs {
        p.a.require_scored()?;
        p.b.require_scored()?;
    }
    let fewest = pairs.iter().map(|p| p.a.fewest().min(p.b.fewest())).min().unwrap_or(0);
    let most_k = ks.iter().copied().max().unwrap_or(1);
    for &k in ks {
        for p in pairs {
            p.a.require_samples(k)?;
            p.b.require_samples(k)?;
        }
    }
    let m = match m {
        Some(m) => m,
        None if fewest >= 512 => most_k.max(256),
        None => most_k.max(fewest / 4).max(1),
    };
    if m == 0 || m > fewest {
        bad_input!(
            "--m: a subsample of {m} needs 1 <= m <= {fewest}, the fewest scored samples of a problem"
        );
    }
    let ks = if ks.is_empty() {
        let largest = (0..9).map(|i| 1 << i).filter(|&k| k <= m).max().unwrap_or(1);
        choose_ks(&[1, largest], fewest)?
    } else {
        choose_ks(ks, fewest)?
    };
    if let Some(k) = ks.iter().find(|&&k| k > m) {
        bad_input!("-k: pass@{k} cannot be formed from subsamples of --m {m}; wanted k <= m");
    }
    if m == fewest {
        say!(
            "note: subsamples of m = {m} take every sample of a problem, so they don't vary; take more samples or a smaller --m"
        );
    }
    Ok((m, ks))
}

/// A comparison with the distributions it came from: the test's and the bootstrap's.
type Evidence = (Comparison, Found, Vec<f64>);

/// One benchmark's distribution of the difference at one k, in whichever form.
enum Found {
    Exact(Difference),
    Simulated(Vec<f64>),
}

/// Compares every benchmark at every k, then the averages whose benchmarks are all there.
pub fn compare_all(pairs: &[Matched], plan: &Plan, averages: &[Average]) -> Vec<Comparison> {
    let mut out: Vec<Comparison> = Vec::new();
    for &k in &plan.ks {
        let results: Vec<Evidence> =
            pairs.iter().enumerate().map(|(i, pair)| compare_one(pair, k, plan, i as u64)).collect();
        let names: Vec<&str> = pairs.iter().map(|p| p.name.as_str()).collect();
        let adjusted = holm(&results.iter().map(|r| r.0.p_value).collect::<Vec<_>>());
        let averaged: Vec<Comparison> = averages
            .iter()
            .filter_map(|a| {
                let members: Vec<&Evidence> = a.among(&names)?.iter().map(|&i| &results[i]).collect();
                Some(average(&members, a.name.clone(), plan.level))
            })
            .collect();
        for ((mut c, _, _), p) in results.into_iter().zip(adjusted) {
            c.holm = p;
            out.push(c);
        }
        out.extend(averaged);
    }
    out
}

fn compare_one(pair: &Matched, k: u64, plan: &Plan, index: u64) -> Evidence {
    let mut tables = Tables::default();
    let both = || pair.a.problems.iter().zip(&pair.b.problems);
    let each: Vec<(f64, f64)> = both().map(|(a, b)| (tables.of(a, k), tables.of(b, k))).collect();
    let count = each.len() as f64;
    let differences: Vec<f64> = each.iter().map(|(a, b)| b - a).collect();
    let counts: Vec<Pair> = both().map(|(a, b)| Pair { a: a.counts(), b: b.counts() }).collect();
    let key = Key::new(plan.seed).with(index).with(k);
    let found = match plan.method {
        Method::Exact => Found::Exact(paired::exact(&counts, plan.m, k)),
        Method::MonteCarlo => {
            let sampler = Subsampler::new(&counts, plan.m, k);
            let key = key.with(0);
            Found::Simulated((0..plan.iterations).into_par_iter().map(|i| sampler.draw(key, i)).collect())
        }
    };
    // The same problems are drawn at every k, so that curves of k move together.
    let bootstrap_key = Key::new(plan.seed).with(index).with(u64::MAX);
    let resampled: Vec<f64> =
        (0..plan.resamples).into_par_iter().map(|i| resampled_mean(&differences, bootstrap_key, i)).collect();
    let only = |has: fn(u64, u64) -> bool| -> Vec<String> {
        both().filter(|(a, b)| has(a.correct, b.correct)).map(|(a, _)| a.id.clone()).collect()
    };
    let comparison = Comparison {
        name: pair.name.clone(),
        average_of: Vec::new(),
        k,
        m: plan.m,
        problems: each.len(),
        values: (
            each.iter().map(|e| e.0).sum::<f64>() / count,
            each.iter().map(|e| e.1).sum::<f64>() / count,
        ),
        gained: only(|a, b| a == 0 && b > 0),
        lost: only(|a, b| a > 0 && b == 0),
        ..summary(&found, &resampled, plan.level)
    };
    (comparison, found, resampled)
}

/// The parts of a comparison that come from distributions; the rest is left empty.
fn summary(found: &Found, resampled: &[f64], level: f64) -> Comparison {
    let (p_value, interval, p_bounds) = match found {
        Found::Exact(d) => (d.two_sided_p(), d.interval(level), Some(d.p_bounds())),
        Found::Simulated(values) => {
            let s = Simulated::new(values.clone());
            (s.two_sided_p(), s.interval(level), None)
        }
    };
    let bootstrap = Simulated::new(resampled.to_vec());
    Comparison {
        name: String::new(),
        average_of: Vec::new(),
        k: 0,
        m: 0,
        problems: 0,
        values: (0.0, 0.0),
        p_value,
        holm: p_value,
        interval,
        p_bounds,
        bootstrap: (bootstrap.two_sided_p(), bootstrap.interval(level)),
        gained: Vec::new(),
        lost: Vec::new(),
    }
}

fn average(parts: &[&Evidence], label: String, level: f64) -> Comparison {
    let count = parts.len() as f64;
    let mean = |of: &dyn Fn(&Evidence) -> f64| parts.iter().map(|p| of(p)).sum::<f64>() / count;
    let laws: Vec<Difference> = parts
        .iter()
        .filter_map(|p| match &p.1 {
            Found::Exact(d) => Some(d.clone()),
            Found::Simulated(_) => None,
        })
        .collect();
    let found = if laws.len() == parts.len() {
        Found::Exact(paired::average(&laws))
    } else {
        let simulated: Vec<&Vec<f64>> = parts
            .iter()
            .filter_map(|p| match &p.1 {
                Found::Simulated(v) => Some(v),
                Found::Exact(_) => None,
            })
            .collect();
        let iterations = simulated.first().map_or(0, |v| v.len());
        Found::Simulated(
            (0..iterations).map(|i| simulated.iter().map(|v| v[i]).sum::<f64>() / count).collect(),
        )
    };
    let resampled: Vec<f64> =
        (0..parts[0].2.len()).map(|i| parts.iter().map(|p| p.2[i]).sum::<f64>() / count).collect();
    Comparison {
        name: label,
        average_of: parts.iter().map(|p| p.0.name.clone()).collect(),
        k: parts[0].0.k,
        m: parts[0].0.m,
        problems: parts.iter().map(|p| p.0.problems).sum(),
        values: (mean(&|p| p.0.values.0), mean(&|p| p.0.values.1)),
        ..summary(&found, &resampled, level)
    }
}

/// Runs the command.
///
/// # Errors
/// Bad input in the samples, in k or in m.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let (a, b) = (dumps::read_said(&args.a)?, dumps::read_said(&args.b)?);
    if !args.uneven {
        for benchmark in a.iter().chain(&b) {
            benchmark.require_equal_samples()?;
        }
    }
    let pairs = matched(a, b)?;
    if let Some(note) = sampled_otherwise(&args.a, &args.b)? {
        say!("note: {note}");
    }
    let (m, ks) = plan_sizes(&pairs, args.m, &args.ks)?;
    let plan = Plan {
        ks,
        m,
        method: args.method,
        iterations: args.iterations,
        resamples: args.resamples,
        seed: args.seed,
        level: 0.95,
    };
    let averages = args.averages.all();
    let names: Vec<&str> = pairs.iter().map(|p| p.name.as_str()).collect();
    benchmarks::incomplete(&averages, &names).iter().for_each(|note| say!("{note}"));
    let comparisons = compare_all(&pairs, &plan, &averages);
    let (a, b) = labels(args);
    if let Some(path) = &args.html {
        let page = page(args, &pairs, &comparisons, (&a, &b));
        std::fs::write(path, page).with_context(|| format!("{}: cannot write", path.display()))?;
    }
    if args.json || args.format == Format::Json {
        let list: Vec<Value> = comparisons.iter().map(|c| comparison_json(c, &plan, &a, &b)).collect();
        outln!("{}", Value::Array(list));
        return Ok(());
    }
    let table = table(args, &comparisons);
    out!("{}", table.render(args.format));
    if args.format == Format::Text {
        outln!(
            "{}",
            table.legend(
                args.format,
                "the better of the two",
                "p < 0.05 by the subsampling test",
                "second best"
            )
        );
        for c in &comparisons {
            outln!("{}", c.verdict(&a, &b).trim_start_matches(", "));
            if let Some((low, high)) = c.p_bounds
                && high - low > 1e-6
            {
                outln!(
                    "  (k = {} is computed on a grid: the exact p lies between {low:.5} and {high:.5})",
                    c.k
                );
            }
        }
        for p in &pairs {
            let c = comparisons.iter().find(|c| c.name == p.name);
            let Some(c) = c.filter(|c| !c.gained.is_empty() || !c.lost.is_empty()) else { continue };
            let name = if p.name.is_empty() { String::new() } else { format!("{}, ", p.name) };
            outln!(
                "{name}solved by {b} alone: {}{}; by {a} alone: {}{}",
                c.gained.len(),
                named(&c.gained),
                c.lost.len(),
                named(&c.lost)
            );
        }
    }
    Ok(())
}

/// What two evaluation folders differ in beside the model: prompts and sampling belong to what is compared.
fn sampled_otherwise(a: &Path, b: &Path) -> anyhow::Result<Option<String>> {
    let identity = |folder: &Path| -> anyhow::Result<Option<toml::Table>> {
        let path = folder.join(IDENTITY);
        if !path.is_file() {
            return Ok(None);
        }
        let mut value: Value = input::read(&path, input::SETTINGS)
            .map_err(anyhow::Error::from)
            .and_then(|bytes| Ok(serde_json::from_slice(&bytes)?))
            .with_context(|| path.display().to_string())
            .or_bad_input()?;
        if let Some(map) = value.as_object_mut() {
            ["format", "source", "model", "api"].iter().for_each(|key| drop(map.remove(*key)));
        }
        without_nulls(&mut value);
        Ok(toml::Table::try_from(value).ok())
    };
    let (Some(a), Some(b)) = (identity(a)?, identity(b)?) else { return Ok(None) };
    let differing = differences(&a, &b);
    Ok((!differing.is_empty())
        .then(|| format!("A and B were sampled otherwise, A -> B: {}", differing.join("; "))))
}

/// TOML has no null.
fn without_nulls(value: &mut Value) {
    if let Some(map) = value.as_object_mut() {
        map.retain(|_, v| !v.is_null());
        map.values_mut().for_each(without_nulls);
    }
}

/// Both models' curves and what the tests say, benchmark by benchmark.
fn page(args: &Args, pairs: &[Matched], comparisons: &[Comparison], (a, b): (&str, &str)) -> String {
    let key = Key::new(args.seed);
    let mut sets: Vec<sampled::Set> = pairs
        .iter()
        .map(|pair| {
            let ks = powers_of_two(pair.a.fewest().min(pair.b.fewest()));
            let curve = |benchmark: &Benchmark, name: &str| {
                let problems: Vec<&Problem> = benchmark.problems.iter().collect();
                let measured = measure(name, &problems, &ks, args.resamples, key);
                let points = ks.iter().zip(&measured.values).zip(&measured.intervals);
                sampled::PassCurve {
                    name: name.to_owned(),
                    points: points.map(|((&k, &v), i)| (k as f64, v, i.0, i.1)).collect(),
                    rates: problems.iter().map(|p| p.correct as f64 / p.samples as f64).collect(),
                }
            };
            let own: Vec<Comparison> = comparisons.iter().filter(|c| c.name == pair.name).cloned().collect();
            sampled::Set {
                name: if pair.name.is_empty() { "all".to_owned() } else { pair.name.clone() },
                curves: vec![curve(&pair.a, a), curve(&pair.b, b)],
                notes: Vec::new(),
                lead: own.iter().map(|c| c.verdict(a, b).trim_start_matches(", ").to_owned()).collect(),
                table: table(args, &own),
                by_problem: None,
                examples: Vec::new(),
            }
        })
        .collect();
    if let Some(first) = sets.first_mut() {
        // Averages belong to no one benchmark.
        let averages: Vec<Comparison> =
            comparisons.iter().filter(|c| !c.average_of.is_empty()).cloned().collect();
        first.notes.extend(averages.iter().map(|c| c.verdict(a, b)));
    }
    let sources = [args.a.display().to_string(), args.b.display().to_string()];
    sampled::page(&format!("{a} and {b}"), &[], &sets, &sources.each_ref().map(String::as_str))
}

fn named(ids: &[String]) -> String {
    if ids.is_empty() { String::new() } else { format!(" ({})", list(ids.iter())) }
}

/// Short names of the two sides: file stems or folder names where they tell them apart.
fn labels(args: &Args) -> (String, String) {
    let name = |p: &PathBuf| {
        // A folder's name may have dots that begin no ending.
        let name = if p.is_dir() { p.file_name() } else { p.file_stem() };
        name.map(|s| s.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let (a, b) = (name(&args.a), name(&args.b));
    if a == b || a.is_empty() || b.is_empty() { ("A".to_owned(), "B".to_owned()) } else { (a, b) }
}

fn comparison_json(c: &Comparison, plan: &Plan, a: &str, b: &str) -> Value {
    let mut value = json!({
        "benchmark": c.name,
        "k": c.k,
        "a": c.values.0,
        "b": c.values.1,
        "difference": c.difference(),
        "p_value": c.p_value,
        "holm_p_value": c.holm,
        "interval": [c.interval.0, c.interval.1],
        "method": match plan.method { Method::Exact => "exact", Method::MonteCarlo => "monte-carlo" },
        "m": c.m,
        "problems": c.problems,
        "bootstrap": {"p_value": c.bootstrap.0, "interval": [c.bootstrap.1.0, c.bootstrap.1.1]},
        "verdict": c.verdict(a, b).trim_start_matches(", "),
    });
    if let Some((low, high)) = c.p_bounds {
        value["p_bounds"] = json!([low, high]);
    } else {
        value["iterations"] = plan.iterations.into();
    }
    if c.average_of.is_empty() {
        value["gained"] = json!(c.gained);
        value["lost"] = json!(c.lost);
    } else {
        value["average_of"] = json!(c.average_of);
    }
    value
}

fn table(args: &Args, comparisons: &[Comparison]) -> Table {
    if args.format == Format::Csv {
        let mut table = Table::new([
            "benchmark",
            "k",
            "a",
            "b",
            "difference",
            "p_value",
            "holm_p_value",
            "low",
            "high",
            "bootstrap_p_value",
            "bootstrap_low",
            "bootstrap_high",
            "problems",
            "gained",
            "lost",
        ]);
        for c in comparisons {
            let numbers =
                [c.values.0, c.values.1, c.difference(), c.p_value, c.holm, c.interval.0, c.interval.1];
            let bootstrap = [c.bootstrap.0, c.bootstrap.1.0, c.bootstrap.1.1];
            let counts = [c.problems, c.gained.len(), c.lost.len()];
            table.push(
                [c.name.clone(), c.k.to_string()]
                    .into_iter()
                    .chain(numbers.iter().chain(&bootstrap).map(ToString::to_string))
                    .chain(counts.map(|n| n.to_string())),
            );
        }
        return table;
    }
    let mut table = Table::new([
        "benchmark",
        "k",
        "A",
        "B",
        "B - A",
        "95 %",
        "p",
        "p (Holm)",
        "bootstrap 95 %",
        "p (bootstrap)",
        "gained",
        "lost",
    ]);
    let interval = |i: (f64, f64)| format!("[{}, {}]", points(i.0), points(i.1));
    for c in comparisons {
        let part = |v: f64, better: bool| Part {
            text: percent(v),
            bold: better,
            underline: better && !c.fixed() && c.p_value < LEVEL,
            dagger: false,
        };
        let d = c.difference();
        let holm = if c.average_of.is_empty() { format!("{:.4}", c.holm) } else { String::new() };
        let changed = |n: usize| if c.average_of.is_empty() { n.to_string() } else { String::new() };
        let name = if c.name.is_empty() { "all".to_owned() } else { c.name.clone() };
        let cell = |part: Part| crate::output::table::Cell { parts: vec![part] };
        table.rows.push(Row {
            cells: vec![
                name.into(),
                c.k.to_string().into(),
                cell(part(c.values.0, d < 0.0)),
                cell(part(c.values.1, d > 0.0)),
                points(d).into(),
                interval(c.interval).into(),
                format!("{:.4}", c.p_value).into(),
                holm.into(),
                interval(c.bootstrap.1).into(),
                format!("{:.4}", c.bootstrap.0).into(),
                changed(c.gained.len()).into(),
                changed(c.lost.len()).into(),
            ],
            ..Row::default()
        });
    }
    table
}
