//! `fgrpo pass-at-k`: unbiased pass@k of graded samples, with intervals by a bootstrap over problems.

use crate::args::averages::AverageArgs;
use crate::args::named::named;
use crate::args::places;
use crate::commands::eval::report::{cell, header, row, row_with_cover};
use crate::output::table::{Format, FormatArgs, Render};
use fgrpo_eval::clusters;
use fgrpo_eval::dumps;
use fgrpo_eval::estimate::{Curve, PassAtK, RESAMPLES, Settings};
use fgrpo_eval::table::{Table, percent};
use fgrpo_eval::verifier::Mode;
use std::path::PathBuf;

/// Estimate pass@k of graded samples, without bias.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    fgrpo pass-at-k samples.jsonl -k 1,8,256\n  \
    fgrpo pass-at-k eval/ --json\n  \
    fgrpo pass-at-k aime24.jsonl aime25.jsonl math500.jsonl --format latex\n\n\
    Lines are {\"problem\": id, \"sample\": i, \"correct\": bool} or {\"problem\": id, \"n\": 1024, \"c\": 17}.")]
pub(crate) struct Args {
    /// Files of scored samples, evaluation folders, or folders with a .jsonl per benchmark.
    #[arg(required = true, value_name = "SAMPLES")]
    samples: Vec<PathBuf>,
    /// Values of k [default: 1, 2, 4, ... up to 256 and the number of samples].
    #[arg(short = 'k', long = "k", value_name = "K,...", value_delimiter = ',')]
    ks: Vec<u64>,
    /// Mode in which the responses of a dump are graded [default: the mode of the job, or else parity].
    #[arg(long, value_parser = named::<Mode>())]
    mode: Option<Mode>,
    #[command(flatten)]
    format: FormatArgs,
    /// Also print a row for each subject, if the samples have subjects.
    #[arg(long)]
    by_subject: bool,
    /// Also print pass@k of every problem.
    #[arg(long)]
    by_problem: bool,
    /// Also estimate pass^k: the probability that k samples are all correct.
    #[arg(long)]
    hat: bool,
    /// Also estimate cover@tau: the fraction of problems for which at least this percentage of the samples is correct.
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=100))]
    cover: Vec<u64>,
    #[command(flatten)]
    averages: AverageArgs,
    /// Treat the files as parts of one set of samples, not as separate benchmarks.
    #[arg(long)]
    merge: bool,
    /// Allow problems with different numbers of samples.
    #[arg(long)]
    uneven: bool,
    /// Resamples of the problem bootstrap.
    #[arg(long, value_name = "N", default_value_t = RESAMPLES, value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    resamples: u64,
    /// Field of the sample lines that groups problems into clusters. Intervals and the bootstrap draw whole clusters.
    #[arg(long, value_name = "FIELD")]
    cluster: Option<String>,
    /// Seed of the bootstrap and of majority votes.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

pub(crate) fn run(mut args: Args) -> anyhow::Result<()> {
    args.samples = args.samples.into_iter().map(places::samples).collect::<anyhow::Result<_>>()?;
    let args = &args;
    let mut benchmarks = dumps::read_all(&args.samples, args.merge, args.mode)?;
    if let Some(field) = &args.cluster {
        clusters::assign(&mut benchmarks, &args.samples, field)?;
    }
    if !args.uneven {
        for b in &benchmarks {
            b.require_equal_samples()?;
        }
    }
    let averages = args.averages.averages();
    let (ks, hat, cover) = (args.ks.clone(), args.hat, args.cover.clone());
    let settings = Settings { ks, resamples: args.resamples, seed: args.seed, averages, hat, cover };
    let mut result = PassAtK::of(&benchmarks, &settings)?;
    if !args.by_problem {
        result.benchmarks.iter_mut().for_each(|b| b.by_problem.clear());
    }
    let format = args.format.chosen();
    if format == Format::Json {
        let json = match result.benchmarks.as_slice() {
            [only] => serde_json::to_string(only)?,
            _ => serde_json::to_string(&result)?,
        };
        outln!("{json}");
        return Ok(());
    }
    if format == Format::Csv {
        out!("{}", csv(args, &result).render(format));
        return Ok(());
    }
    out!("{}", table(args, &result).render(format));
    Ok(())
}

fn csv(args: &Args, result: &PassAtK) -> Table {
    let mut table = Table::new(["benchmark", "problems", "measure", "k", "value", "low", "high"]);
    let mut add = |curve: &Curve, name: String, measure: &str| {
        for (k, m) in &curve.points {
            let numbers = [m.value, m.interval[0], m.interval[1]].map(|v| v.to_string());
            let head = [name.clone(), m.problems.to_string(), measure.to_owned(), k.to_string()];
            table.push(head.into_iter().chain(numbers));
        }
    };
    for r in &result.benchmarks {
        r.pass_hat_k.iter().for_each(|hat| add(hat, r.benchmark.clone(), "pass^"));
        r.cover.iter().for_each(|cover| add(cover, r.benchmark.clone(), "cover"));
    }
    let mut push = |curve: &Curve, name: String| add(curve, name, "pass");
    for r in &result.benchmarks {
        push(&r.all, r.benchmark.clone());
        for s in r.subjects.iter().filter(|_| args.by_subject) {
            push(s, format!("{}/{}", r.benchmark, s.name));
        }
    }
    result.averages.iter().for_each(|a| push(a, a.name.clone()));
    for r in &result.benchmarks {
        for (k, v) in r.maj_at_k.iter().flatten() {
            let head = [r.benchmark.clone(), r.all.problems().to_string(), "maj".into(), k.to_string()];
            table.push(head.into_iter().chain([v.to_string(), String::new(), String::new()]));
        }
    }
    table
}

fn table(args: &Args, result: &PassAtK) -> Table {
    let intervals = args.format.chosen() != Format::Latex;
    let mut table = header("benchmark", "pass@", result.benchmarks[0].all.points.keys(), &args.cover);
    for r in &result.benchmarks {
        table.push(row_with_cover(r.benchmark.clone(), r, intervals));
        for s in r.subjects.iter().filter(|_| args.by_subject) {
            table.push(row(format!("  {}", s.name), s, intervals));
        }
        for p in &r.by_problem {
            let cells = p.pass_at_k.values().map(|&v| cell(v, intervals.then_some([v, v])));
            let head = [format!("  {} ({} of {})", p.problem, p.c, p.n), "1".to_owned()];
            table.push(head.into_iter().chain(cells));
        }
    }
    for a in &result.averages {
        table.push(row(a.name.clone(), a, intervals));
    }
    for r in &result.benchmarks {
        r.pass_hat_k
            .iter()
            .for_each(|hat| table.push(row(format!("{}, pass^k", r.benchmark), hat, intervals)));
    }
    for r in &result.benchmarks {
        let Some(majority) = &r.maj_at_k else { continue };
        let head = [format!("{}, maj@k", r.benchmark), r.all.problems().to_string()];
        table.push(head.into_iter().chain(majority.values().map(|&v| percent(v))));
    }
    table.fill();
    table
}
