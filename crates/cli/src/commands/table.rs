//! `fgrpo table`: prints pass@k of methods (rows) on benchmarks (columns), marked as in the paper's tables.
//!
//! With `--pair`, bold is the better value of a pair, and it is underlined if the paired test finds the difference significant.
//! Otherwise, bold is the best value of a column. Values that print the same count as equal.

use crate::args::averages::AverageArgs;
use crate::args::named::named_path;
use crate::args::places;
use crate::output::table::{Format, Render};
use fgrpo_core::stats::measure::Measure;
use fgrpo_eval::benchmarks::{self, Average, canonical, is_known};
use fgrpo_eval::compare::{self, Comparison, Settings};
use fgrpo_eval::dumps;
use fgrpo_eval::estimate::{mean_pass_at_k, powers_of_two};
use fgrpo_eval::samples::Benchmark;
use fgrpo_eval::table::{Cell, Part, Table, percent};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;

/// Print a table of methods by benchmarks, in the style of the paper.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:\n  \
    fgrpo table GRPO=eval-grpo F-GRPO=eval-f-grpo --pair GRPO,F-GRPO -k 1,256 --format latex\n  \
    fgrpo table base=b.jsonl grpo=g.jsonl low-lr=l.jsonl --format markdown\n\n\
    Bold: better of a pair, or best of a column. Underlined: p < 0.05 by the paired subsampling test.\n\
    LaTeX needs booktabs.")]
pub(crate) struct Args {
    /// Methods in the order of their rows: a name, and a samples file, evaluation folder or folder of files.
    #[arg(required = true, value_name = "NAME=SAMPLES", value_parser = named_path)]
    methods: Vec<(String, PathBuf)>,
    /// Names of a baseline and the method to compare with it.
    #[arg(long = "pair", value_name = "BASE,FOCAL", value_parser = pair)]
    pairs: Vec<(String, String)>,
    /// Values of k in a cell [default: 1 and the largest power of two for which all problems have samples, up to 256].
    #[arg(short = 'k', long = "k", value_name = "K,...", value_delimiter = ',')]
    ks: Vec<u64>,
    /// Size m of the test's subsamples [default: as in fgrpo compare].
    #[arg(long)]
    m: Option<u64>,
    #[command(flatten)]
    averages: AverageArgs,
    /// Allow problems with different numbers of samples.
    #[arg(long)]
    uneven: bool,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once(',') {
        Some((a, b)) if !a.is_empty() && !b.is_empty() && a != b => Ok((a.to_owned(), b.to_owned())),
        _ => Err("expected BASE,FOCAL".to_owned()),
    }
}

/// pass@k, indexed by method, column and k.
type Values = Vec<Vec<Vec<Option<f64>>>>;

/// Column of the table: a benchmark, or an average over benchmarks.
struct Column {
    title: String,
    key: String,
    /// Canonical names of the benchmarks in the average, or only the benchmark itself.
    members: Vec<String>,
}

/// Returns the columns in the paper's order: each average before its members, and then all other benchmarks.
fn columns(methods: &[(String, Vec<Benchmark>)], averages: &[Average]) -> Vec<Column> {
    let mut names: Vec<&str> = Vec::new();
    for b in methods.iter().flat_map(|m| &m.1) {
        if !names.iter().any(|n| canonical(n) == canonical(&b.name)) {
            names.push(&b.name);
        }
    }
    let mut columns: Vec<Column> = Vec::new();
    let benchmark = |columns: &mut Vec<Column>, name: &str| {
        let key = canonical(name);
        if !columns.iter().any(|c| c.key == key) {
            columns.push(Column { title: name.to_owned(), members: vec![key.clone()], key });
        }
    };
    for average in averages {
        // If only some of an average's benchmarks exist, its column has no value: see [`lacking`].
        if average.among(&names).is_none() && average.lacking(&names).is_none() {
            continue;
        }
        columns.push(Column {
            title: format!("Avg. {}", average.name),
            key: average.name.clone(),
            members: average.members.clone(),
        });
        for member in &average.members {
            if let Some(name) = names.iter().find(|n| canonical(n) == *member) {
                benchmark(&mut columns, name);
            }
        }
    }
    names.iter().for_each(|n| benchmark(&mut columns, n));
    columns
}

/// If every method has a single benchmark, gives them the same name, unless the names are different benchmarks of the paper.
/// [`same_problems`] checks that the problems are the same.
fn one_name(methods: &mut [(String, Vec<Benchmark>)]) {
    let names: BTreeSet<String> = methods.iter().flat_map(|m| &m.1).map(|b| canonical(&b.name)).collect();
    let benchmarks: Vec<&String> = names.iter().filter(|name| is_known(name)).collect();
    if methods.iter().all(|m| m.1.len() == 1) && names.len() > 1 && benchmarks.len() < 2 {
        let name = benchmarks.first().map_or("all", |name| name.as_str());
        methods.iter_mut().flat_map(|m| &mut m.1).for_each(|b| name.clone_into(&mut b.name));
    }
}

/// Returns an error if a column has different problems or graders.
fn same_problems(methods: &[(String, Vec<Benchmark>)]) -> anyhow::Result<()> {
    let mut by_name: HashMap<String, &Benchmark> = HashMap::new();
    for b in methods.iter().flat_map(|m| &m.1) {
        match by_name.get(&canonical(&b.name)) {
            Some(first) => drop(compare::align(b.name.clone(), (*first).clone(), b)?),
            None => drop(by_name.insert(canonical(&b.name), b)),
        }
    }
    Ok(())
}

/// Returns a sentence for each method and average whose benchmarks are incomplete.
fn lacking(methods: &[(String, Vec<Benchmark>)], averages: &[Average]) -> Vec<String> {
    let sentences = |(method, benchmarks): &(String, Vec<Benchmark>)| {
        let names: Vec<&str> = benchmarks.iter().map(|b| b.name.as_str()).collect();
        let sentences = benchmarks::incomplete(averages, &names);
        sentences.into_iter().map(|s| format!("{method}: {s}")).collect::<Vec<_>>()
    };
    methods.iter().flat_map(sentences).collect()
}

/// Returns pass@k of a method for each column and k.
fn values(benchmarks: &[Benchmark], columns: &[Column], ks: &[u64]) -> Vec<Vec<Option<f64>>> {
    let value = |name: &String, k| {
        let benchmark = benchmarks.iter().find(|b| canonical(&b.name) == *name)?;
        mean_pass_at_k(&benchmark.problems, k)
    };
    let value = |column: &Column, k| {
        let members = column.members.iter().map(|name| value(name, k));
        Some(members.sum::<Option<f64>>()? / column.members.len() as f64)
    };
    columns.iter().map(|column| ks.iter().map(|&k| value(column, k)).collect()).collect()
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut read: Vec<(String, Vec<Benchmark>)> = Vec::new();
    for (name, path) in &args.methods {
        if read.iter().any(|r| r.0 == *name) {
            bad_input!("the method {name} is listed twice");
        }
        let benchmarks = dumps::read(&places::samples(path.clone())?, None)?;
        for b in &benchmarks {
            if !args.uneven {
                b.require_equal_samples()?;
            }
            b.require_scored()?;
            args.ks.iter().try_for_each(|&k| b.require_samples(k.max(1)))?;
        }
        read.push((name.clone(), benchmarks));
    }
    if args.ks.contains(&0) {
        bad_input!("-k: expected at least 1, found 0");
    }
    let mut args = args.clone();
    if args.ks.is_empty() {
        let fewest = read.iter().flat_map(|(_, all)| all).map(Benchmark::fewest).min().unwrap_or(0);
        let usual = powers_of_two(fewest);
        args.ks = match (usual.first(), usual.last()) {
            (Some(&first), Some(&last)) if first < last => vec![first, last],
            (Some(&first), _) => vec![first],
            _ => bad_input!("all samples of a problem are unscorable"),
        };
    }
    let args = &args;
    for name in args.pairs.iter().flat_map(|p| [&p.0, &p.1]) {
        if !read.iter().any(|r| r.0 == *name) {
            bad_input!(
                "--pair: unknown method {name}; the methods are {}",
                read.iter().map(|r| r.0.as_str()).collect::<Vec<_>>().join(", ")
            );
        }
    }
    one_name(&mut read);
    same_problems(&read)?;
    let averaging = args.averages.averages();
    let averages = averaging.all();
    let mut names: Vec<&str> = read.iter().flat_map(|m| &m.1).map(|b| b.name.as_str()).collect();
    names.sort_unstable_by_key(|name| canonical(name));
    names.dedup_by_key(|name| canonical(name));
    averaging.require(&names)?;
    let columns = columns(&read, &averages);
    lacking(&read, &averages).iter().for_each(|note| say!("{note}"));
    let values: Values = read.iter().map(|method| values(&method.1, &columns, &args.ks)).collect();
    let part = |value: &Option<f64>| Part { text: value.map_or("--".to_owned(), percent), ..Part::default() };
    let cells =
        |of_method: &Vec<Vec<_>>| of_method.iter().map(|of_k| of_k.iter().map(part).collect()).collect();
    let mut parts: Parts = values.iter().map(cells).collect();
    if args.pairs.is_empty() {
        mark_columns(&values, &mut parts);
    }
    for (a, b) in &args.pairs {
        let [a, b] = [a, b].map(|name| read.iter().position(|m| m.0 == *name).unwrap_or_default());
        let pairs = compare::matched(read[a].1.clone(), read[b].1.clone())?;
        let settings = Settings::test_alone(args.ks.clone(), args.m);
        let comparisons = compare::compare(&pairs, &settings, &averages)?;
        mark_pair(&values, (a, b), &columns, &args.ks, comparisons, &mut parts);
    }
    let titles = columns.iter().map(|c| c.title.clone());
    let mut table = Table::new(std::iter::once("Method".to_owned()).chain(titles));
    for ((name, _), row) in read.iter().zip(parts) {
        let cells = row.into_iter().map(|parts| Cell { parts });
        table.rows.push(std::iter::once(Cell::from(name.clone())).chain(cells).collect());
    }
    out!("{}", table.render(args.format));
    if args.format == Format::Text {
        let bold = if args.pairs.is_empty() { "best of the column" } else { "better of its pair" };
        let ks = args.ks.iter().map(|k| format!("pass@{k}")).collect::<Vec<_>>().join("/");
        let legend = table.legend(args.format, bold, "p < 0.05 by the subsampling test");
        outln!("{ks} in percent{}{legend}", if legend.is_empty() { "" } else { "; " });
    }
    Ok(())
}

/// Printed values, indexed by method, column and k.
type Parts = Vec<Vec<Vec<Part>>>;

/// Makes the best value of each column bold. Values that print the same are equal.
fn mark_columns(values: &Values, parts: &mut Parts) {
    for c in 0..values[0].len() {
        for k in 0..values[0][c].len() {
            let best = values.iter().filter_map(|m| m[c][k]).max_by(f64::total_cmp).map(percent);
            for row in parts.iter_mut() {
                row[c][k].bold = values.len() > 1 && best.as_ref() == Some(&row[c][k].text);
            }
        }
    }
}

/// Makes the better value of a pair bold, and underlines it if the paired test finds the difference significant.
fn mark_pair(
    values: &Values,
    (a, b): (usize, usize),
    columns: &[Column],
    ks: &[u64],
    tested: Vec<Comparison>,
    parts: &mut Parts,
) {
    let significant: HashSet<(String, Measure)> = tested
        .into_iter()
        .filter(Comparison::significant)
        .map(|c| (if c.scope.solved_by_one().is_some() { canonical(&c.name) } else { c.name }, c.measure))
        .collect();
    for (c, column) in columns.iter().enumerate() {
        for (i, &k) in ks.iter().enumerate() {
            let (Some(x), Some(y)) = (values[a][c][i], values[b][c][i]) else { continue };
            if percent(x) == percent(y) {
                continue;
            }
            let better = &mut parts[if x > y { a } else { b }][c][i];
            (better.bold, better.underline) =
                (true, significant.contains(&(column.key.clone(), Measure::PassAtK(k))));
        }
    }
}
