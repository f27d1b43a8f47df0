//! `fgrpo plan`: suggests a group size for a model and problems, and computes which differences a comparison can detect.

use crate::args::places;
use crate::output::table::{Format, FormatArgs, Render};
use fgrpo_eval::dumps;
use fgrpo_eval::group_size;
use fgrpo_eval::power::{Power, power};
use fgrpo_eval::table::{Table, percent};
use std::path::PathBuf;

/// Suggest a group size and gamma for a model and problems.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  fgrpo plan samples.jsonl --group-sizes 2,4,8,16,32 --tail 0.1\n  fgrpo plan samples.jsonl --detect 1\n\n\
    The suggestion is a rule of thumb, stated with the numbers: the smallest group size that makes 90 % of the groups \
    active that the largest one listed does; gamma 1 where more than half of the updates miss the tail, 0 below 5 %, \
    else 0.5, where the paper advises to start."
)]
pub(crate) struct Args {
    /// Files of scored samples or evaluation folders.
    #[arg(required = true, value_name = "SAMPLES")]
    samples: Vec<PathBuf>,
    /// Group sizes N to compare.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [2, 4, 8, 16, 32, 64, 128])]
    group_sizes: Vec<u64>,
    /// Fraction of a problem's correct mass that is its rare tail: tau = fraction * mu.
    #[arg(long, value_name = "SHARE", default_value_t = 0.1)]
    tail: f64,
    /// Also print how many problems and samples are needed to detect this difference of pass@1, in percentage points.
    #[arg(long, value_name = "POINTS")]
    detect: Option<f64>,
    #[command(flatten)]
    format: FormatArgs,
}

/// Numbers of samples per problem in the table of `--detect`. The test needs at least two.
const SAMPLES: [u64; 5] = [2, 4, 16, 64, 256];

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    group_size::check(&args.group_sizes, args.tail)?;
    let samples: Vec<PathBuf> =
        args.samples.iter().cloned().map(places::samples).collect::<anyhow::Result<_>>()?;
    let samples = dumps::read_all(&samples, false, None)?;
    let power = args.detect.map(|points| power(&samples, points / 100.0, &SAMPLES)).transpose()?;
    let comparison = group_size::compare(&samples, &args.group_sizes, args.tail)?;
    let format = args.format.chosen();
    if format == Format::Json {
        let mut value = serde_json::to_value(&comparison)?;
        if let Some(power) = &power {
            value["power"] = serde_json::to_value(power)?;
        }
        outln!("{value}");
        return Ok(());
    }
    let mut table = Table::new(["N", "active groups %", "tail-miss %", "of active %"]);
    for o in &comparison.group_sizes {
        table.push([
            o.group_size.to_string(),
            if o.at_least { format!("\u{2265} {}", percent(o.active)) } else { percent(o.active) },
            percent(o.tail_miss),
            percent(o.missing_share),
        ]);
    }
    out!("{}", table.render(format));
    if format != Format::Text {
        return Ok(());
    }
    outln!(
        "\n{} problems: {} never solved, {} always. The tail is {} % of each problem's correct mass.",
        comparison.problems,
        comparison.never_solved,
        comparison.always_solved,
        percent(comparison.tail)
    );
    if comparison.group_sizes.iter().any(|o| o.at_least) {
        outln!(
            "\u{2265}: a problem has {} samples, fewer than N; they give only a lower bound for active groups.",
            comparison.fewest_samples
        );
    }
    match comparison.suggested {
        Some(s) => outln!(
            "Suggested: group_size = {}, focal_gamma = {} (a rule of thumb; see fgrpo plan --help)",
            s.group_size,
            s.focal_gamma
        ),
        None => outln!("No group of any size is active: these problems are all never or always solved."),
    }
    power.iter().for_each(print_power);
    Ok(())
}

fn print_power(power: &Power) {
    let points = percent(power.difference);
    let detectable = format!("detectable with {} problems", power.problems);
    let mut table = Table::new(["samples".to_owned(), format!("problems for {points} points"), detectable]);
    for need in &power.needs {
        table.push([need.samples.to_string(), need.problems.to_string(), percent(need.detectable)]);
    }
    outln!(
        "\nFour of five comparisons of two such models find a difference of pass@1 (two-sided paired test at 5 %, these \
         problems) with"
    );
    out!("{}", table.render(Format::Text));
}
