//! `fgrpo compare`: tests whether model B is better than model A, by the paper's paired subsampling test and a bootstrap over
//! problems.

use crate::args::averages::AverageArgs;
use crate::args::named::named;
use crate::args::places;
use crate::output::table::{Format, FormatArgs, Render};
use crate::report::sampled::{Set, samples_page};
use fgrpo_core::stats::measure::Measure;
use fgrpo_eval::benchmarks;
use fgrpo_eval::clusters;
use fgrpo_eval::compare::{Comparison, Matched, Method, Settings, compare, list, matched};
use fgrpo_eval::dumps;
use fgrpo_eval::estimate::{Curve, powers_of_two, resamples};
use fgrpo_eval::folder::sampled_otherwise;
use fgrpo_eval::io::files::write_whole;
use fgrpo_eval::samples::MOST_UNSCORABLE;
use fgrpo_eval::table::{Cell, Part, Table, bound, p_value, percent, points};
use fgrpo_eval::verifier::Mode;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Compare two models' pass@k on the same problems.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    fgrpo compare grpo.jsonl f-grpo.jsonl -k 1,256\n  \
    fgrpo compare eval-grpo/ eval-f-grpo/ -k 1,256 --json      # several benchmarks with averages\n  \
    fgrpo compare grpo.jsonl f-grpo.jsonl --cover 50,90        # how many problems each solves reliably\n  \
    fgrpo compare a.jsonl b.jsonl -k 8 --method monte-carlo --iterations 50000\n\n\
    Differences are B - A. The test conditions on the problem set: it says whether the models differ on these \
    problems. The bootstrap beside it asks whether they would on other problems of the kind; its p is at least \
    2^(1 - problems), for an average that of its smallest benchmark.")]
pub(crate) struct Args {
    /// Samples of model A: a file, an evaluation folder, or a folder with a .jsonl per benchmark.
    a: PathBuf,
    /// Samples of model B.
    b: PathBuf,
    /// Values of k [default: 1 and the largest power of two up to 256 and the subsample's size].
    #[arg(short = 'k', long = "k", value_name = "K,...", value_delimiter = ',')]
    ks: Vec<u64>,
    /// Also compare cover@tau: the fraction of problems for which at least this percentage of the samples is correct.
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=100))]
    cover: Vec<u64>,
    /// Size m of a subsample [default: half of the samples, at most 256; or k if k is larger].
    #[arg(long, value_name = "M")]
    m: Option<u64>,
    /// Method of computing the test.
    #[arg(long, value_parser = named::<Method>(), default_value = "exact")]
    method: Method,
    /// Iterations of the simulation.
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    iterations: u64,
    /// Resamples of the problem bootstrap.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    resamples: u64,
    /// Field of the sample lines that groups problems into clusters. Intervals and the bootstrap draw whole clusters.
    #[arg(long, value_name = "FIELD")]
    cluster: Option<String>,
    /// Mode in which the responses of a dump are graded [default: the mode of the job, or else parity].
    #[arg(long, value_parser = named::<Mode>())]
    mode: Option<Mode>,
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    averages: AverageArgs,
    /// Allow problems with different numbers of samples.
    #[arg(long)]
    uneven: bool,
    /// Also write a page with both models' curves.
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
    /// Seed of the simulation and the bootstrap.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

pub(crate) fn run(mut args: Args) -> anyhow::Result<()> {
    (args.a, args.b) = (places::samples(args.a)?, places::samples(args.b)?);
    let args = &args;
    dumps::require_responses(&[args.a.clone(), args.b.clone()], args.mode)?;
    let (mut a, mut b) = (dumps::read(&args.a, args.mode)?, dumps::read(&args.b, args.mode)?);
    if let Some(field) = &args.cluster {
        clusters::assign(&mut a, std::slice::from_ref(&args.a), field)?;
        clusters::assign(&mut b, std::slice::from_ref(&args.b), field)?;
    }
    if !args.uneven {
        for benchmark in a.iter().chain(&b) {
            benchmark.require_equal_samples()?;
        }
    }
    let pairs = matched(a, b)?;
    if let Some(note) = sampled_otherwise(&args.a, &args.b)? {
        say!("note: A and B were sampled differently, A -> B: {note}");
    }
    let settings = Settings {
        ks: args.ks.clone(),
        cover: args.cover.clone(),
        m: args.m,
        method: args.method,
        iterations: args.iterations,
        resamples: args.resamples,
        seed: args.seed,
        level: 0.95,
        labels: labels(args),
    };
    let averages = args.averages.averages();
    let names: Vec<&str> = pairs.iter().map(|p| p.name.as_str()).collect();
    averages.require(&names)?;
    let averages = averages.all();
    benchmarks::incomplete(&averages, &names).iter().for_each(|note| say!("{note}"));
    let comparisons = compare(&pairs, &settings, &averages)?;
    let [a, b] = &settings.labels;
    for (label, benchmark) in pairs.iter().flat_map(|p| [(a, &p.a), (b, &p.b)]) {
        let share = benchmark.unscorable_share();
        if share > MOST_UNSCORABLE {
            let benchmark_name =
                if pairs.len() > 1 { format!(" of {}", benchmark.name) } else { String::new() };
            say!(
                "warning: {} % of {label}'s samples{benchmark_name} could not be graded and are left out; if they differ from the others, the comparison is biased",
                percent(share)
            );
        }
    }
    if let Some(path) = &args.html {
        write_whole(path, page(args, &pairs, &comparisons, [a, b])?.as_bytes())?;
    }
    let format = args.format.chosen();
    if format == Format::Json {
        outln!("{}", serde_json::to_string(&comparisons)?);
        return Ok(());
    }
    let several = pairs.len() > 1;
    let table = table(format, several, &comparisons);
    out!("{}", table.render(format));
    if format != Format::Text {
        return Ok(());
    }
    let significant = "p < 0.05 by the subsampling test";
    outln!("{}", table.legend(format, "the better of the two", significant));
    let sizes: BTreeSet<u64> = comparisons.iter().map(|c| c.m).collect();
    let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
    outln!("p: paired subsampling test, m = {}", sizes.join(" and "));
    for c in &comparisons {
        outln!("{}", c.verdict);
        if let Some((low, high)) = c.p_bounds.filter(|(low, high)| high - low > 1e-6) {
            outln!(
                "  ({} is computed on a grid: the exact p lies between {low:.5} and {high:.5})",
                c.measure
            );
        }
    }
    for (name, clusters) in pairs.iter().filter_map(|p| Some((&p.name, p.a.clusters()?))) {
        let prefix = if name.is_empty() { String::new() } else { format!("{name}, ") };
        outln!("{prefix}the bootstrap draws {clusters} clusters of problems");
    }
    for p in &pairs {
        let changes = comparisons.iter().find(|c| c.name == p.name).and_then(|c| c.scope.solved_by_one());
        let Some((gained, lost)) = changes.filter(|(gained, lost)| !gained.is_empty() || !lost.is_empty())
        else {
            continue;
        };
        let list = |ids: &[String]| match ids {
            [] => "0".to_owned(),
            some => format!("{} ({})", some.len(), list(some.iter())),
        };
        let name = if p.name.is_empty() { String::new() } else { format!("{}, ", p.name) };
        let samples = [&p.b, &p.a].map(|side| side.problems.iter().map(|p| p.samples).sum::<u64>());
        let uneven = match samples {
            [of_b, of_a] if of_b != of_a => format!(", of {of_b} and {of_a} samples: more solve more"),
            _ => String::new(),
        };
        outln!("{name}solved by {b} alone: {}; by {a} alone: {}{uneven}", list(gained), list(lost));
    }
    Ok(())
}

/// Renders a page with both models' curves and the test results of each benchmark.
fn page<'a>(
    args: &Args,
    pairs: &'a [Matched],
    comparisons: &[Comparison],
    [a, b]: [&str; 2],
) -> anyhow::Result<String> {
    let set = |(i, pair): (usize, &'a Matched)| {
        let ks = powers_of_two(pair.a.fewest().min(pair.b.fewest()));
        let key = resamples(args.seed, i as u64);
        let comparisons: Vec<&Comparison> = comparisons.iter().filter(|c| c.name == pair.name).collect();
        Set {
            name: if pair.name.is_empty() { "all".to_owned() } else { pair.name.clone() },
            models: [(&pair.a, a), (&pair.b, b)]
                .map(|(side, name)| (Curve::of(name, &side.problems, &ks, args.resamples, key), side))
                .into(),
            notes: Vec::new(),
            lead: comparisons.iter().map(|c| c.verdict.clone()).collect(),
            table: table(args.format.chosen(), pairs.len() > 1, comparisons),
            by_problem: None,
            examples: Vec::new(),
        }
    };
    let mut sets: Vec<Set<'_>> = pairs.iter().enumerate().map(set).collect();
    if let Some(first) = sets.first_mut() {
        // Averages don't belong to a single benchmark.
        let averages = comparisons.iter().filter(|c| c.scope.solved_by_one().is_none());
        first.notes.extend(averages.map(|c| c.verdict.clone()));
    }
    let sources = [args.a.display().to_string(), args.b.display().to_string()];
    samples_page(&format!("{a} and {b}"), &[], &sets, &sources.each_ref().map(String::as_str))
}

/// Makes the table of the comparisons, with plain numbers if it is printed as CSV. If `several`, there are several
/// benchmarks, and p-values are corrected for their number.
fn table<'a>(format: Format, several: bool, comparisons: impl IntoIterator<Item = &'a Comparison>) -> Table {
    let csv = format == Format::Csv;
    let header = "benchmark,measure,k,a,b,difference,p_value,holm_p_value,low,high,bootstrap_p_value,bootstrap_low,bootstrap_high,problems,gained,lost";
    let words = "benchmark,measure,A,B,B - A,95 %,p,p (Holm),bootstrap 95 %,p (bootstrap),gained,lost";
    let is_shown = |column: &&str| several || *column != "p (Holm)";
    let mut table = Table::new((if csv { header } else { words }).split(',').filter(is_shown));
    let interval = |i: (f64, f64)| format!("[{}, {}]", bound(i.0), bound(i.1));
    for c in comparisons {
        let changes = c.scope.solved_by_one();
        let counts = changes.map_or([0, 0], |(gained, lost)| [gained.len(), lost.len()]);
        let bootstrap = c.bootstrap;
        if csv {
            let (low, high) = c.interval.unzip();
            let test = [c.p_value, c.holm_p_value, low, high];
            let test = test.map(|value| value.map(|v| v.to_string()).unwrap_or_default());
            let bounds = [bootstrap.p_value, bootstrap.interval.0, bootstrap.interval.1];
            let counts = [c.problems, counts[0], counts[1]].map(|n| n.to_string());
            let numbers = [c.a, c.b, c.difference].map(|v| v.to_string()).into_iter().chain(test);
            let numbers = numbers.chain(bounds.map(|v| v.to_string())).chain(counts);
            let (measure, k) = match c.measure {
                Measure::PassAtK(k) => ("pass", k),
                Measure::Cover(percent) => ("cover", percent),
            };
            let head = [c.name.clone(), measure.to_owned(), k.to_string()];
            table.push(head.into_iter().chain(numbers));
            continue;
        }
        let part = |v: f64, better: bool| {
            let underline = better && c.significant();
            Cell { parts: vec![Part { text: percent(v), bold: better, underline }] }
        };
        // Values that print the same count as equal.
        let differ = percent(c.a) != percent(c.b);
        let p_text = |p: Option<f64>| p.map_or("-".to_owned(), |p| p_value(p, 4));
        // Averages don't have these columns.
        let single = |text: String| if changes.is_some() { text } else { String::new() };
        let mut cells: Vec<Cell> = vec![
            if c.name.is_empty() { "all".into() } else { c.name.clone().into() },
            c.measure.to_string().into(),
            part(c.a, differ && c.difference < 0.0),
            part(c.b, differ && c.difference > 0.0),
        ];
        let texts = [points(c.difference), c.interval.map_or("-".to_owned(), interval), p_text(c.p_value)];
        let corrected = several.then(|| single(p_text(c.holm_p_value)));
        let bootstrap = [interval(bootstrap.interval), p_value(bootstrap.p_value, 4)];
        let counts = counts.map(|n| single(n.to_string()));
        cells.extend(texts.into_iter().chain(corrected).chain(bootstrap).chain(counts).map(Cell::from));
        table.rows.push(cells);
    }
    table
}

/// Returns short names of the two sides: file stems or folder names if they differ, otherwise A and B.
fn labels(args: &Args) -> [String; 2] {
    let own_name = |p: &Path| {
        // A dot in a folder's name doesn't begin an extension.
        let name = if p.is_dir() { p.file_name() } else { p.file_stem() };
        name.map(|s| s.to_string_lossy().into_owned()).unwrap_or_default()
    };
    // The evaluation of a step is named after its run, if the runs differ.
    let run_name = |p: &Path| match p.parent().filter(|_| own_name(p).starts_with("step-")) {
        Some(all) if own_name(all).ends_with("evaluations") => own_name(all.parent().unwrap_or(all)),
        _ => own_name(p),
    };
    let both = |name: &dyn Fn(&Path) -> String| [name(&args.a), name(&args.b)];
    let names = [both(&run_name), both(&own_name)]
        .into_iter()
        .find(|[a, b]| a != b && !a.is_empty() && !b.is_empty());
    names.unwrap_or(["A", "B"].map(str::to_owned))
}
