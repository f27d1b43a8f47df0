//! The arena's table: the finished runs of each task, ranked.

use super::plan::{TUNED, TUNING};
use crate::chart::alone;
use crate::output::table::{Format, FormatArgs, Render};
use anyhow::Context;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::figure::{Axis, Colour, Curve, Figure, Notation, Panel, Scale};
use fgrpo_eval::io::files;
use fgrpo_eval::ranking::{Ranked, TrainedRun, rank};
use fgrpo_eval::record::Evaluation;
use fgrpo_eval::table::{Table, percent, points};
use fgrpo_train::run::Run;
use fgrpo_train::run::folder::CONFIGURATION;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub(crate) struct TableArgs {
    /// Folder of the runs, with a folder for each task. `arena table` also reads a file written with --json.
    #[arg(long, value_name = "DIR", default_value = "runs/arena")]
    pub(crate) out: PathBuf,
    /// Method that the others are compared with.
    #[arg(long, value_name = "NAME", default_value = "grpo")]
    pub(crate) baseline: String,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    /// Draw pass@k against pass@1 to this .svg file.
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}

/// Results of a task, either of all runs with default settings or of all tuned runs.
pub(super) struct Standings {
    pub(super) task: String,
    tuned: bool,
    pub(super) k: u64,
    pub(super) rows: Vec<Row>,
    /// pass@1 and pass@k before training, averaged over the baseline's runs. `None` if read from a file of rows.
    start: Option<[f64; 2]>,
}

/// A method's row of the table, as JSON.
pub(super) struct Row(pub(super) Value);

impl Row {
    pub(super) fn name(&self) -> &str {
        self.0["name"].as_str().unwrap_or_default()
    }

    /// Returns the method that dominates this one, or `None` if it is on the Pareto front.
    fn dominated_by(&self) -> Option<&str> {
        self.0["dominated_by"].as_str()
    }

    /// Returns a number, or NaN if it is absent.
    fn number(&self, key: &str) -> f64 {
        self.0[key].as_f64().unwrap_or(f64::NAN)
    }

    pub(super) fn pass_at(&self, k: u64) -> f64 {
        self.number(&format!("pass_at_{k}"))
    }

    pub(super) fn interval(&self, k: u64) -> [f64; 2] {
        interval(&self.0[format!("pass_at_{k}_interval")])
    }

    /// Returns every k for which the row has pass@k.
    fn ks(&self) -> impl Iterator<Item = u64> {
        self.0
            .as_object()
            .into_iter()
            .flat_map(Map::keys)
            .filter_map(|key| key.strip_prefix("pass_at_")?.parse().ok())
    }
}

fn interval(value: &Value) -> [f64; 2] {
    [0, 1].map(|i| value[i].as_f64().unwrap_or(f64::NAN))
}

/// Prints the table of every task in the folder.
pub(super) fn print(args: &TableArgs) -> anyhow::Result<()> {
    let all = standings(&args.out, &args.baseline)?;
    if let Some(path) = &args.plot {
        alone::write(&figure(&all, &args.baseline), path)?;
    }
    let format = args.format.chosen();
    if format == Format::Json {
        let rows: Vec<Value> = all.iter().flat_map(|s| s.rows.iter().map(|row| row.0.clone())).collect();
        outln!("{}", serde_json::to_string(&rows)?);
        return Ok(());
    }
    for s in &all {
        if format == Format::Text {
            outln!("{}, {}{}", s.task, s.settings(), s.start());
        }
        // The text format names the task in a line above; other formats need a column if there are several tasks.
        let has_title = format != Format::Text && all.len() > 1;
        out!("{}", s.table(&args.baseline, has_title).render(format));
        if format == Format::Text {
            outln!("{}", s.legend(&args.baseline));
        }
    }
    Ok(())
}

/// Returns the folders in `path`, sorted by name.
fn folders(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    Ok(files::listed(path)?.into_iter().filter(|path| path.is_dir()).collect())
}

/// Ranks the finished runs in a folder, task by task.
pub(super) fn standings(out: &Path, baseline: &str) -> anyhow::Result<Vec<Standings>> {
    if out.is_file() {
        return published(out, baseline);
    }
    let (mut all, mut without_baseline, mut unfinished) = (Vec::new(), Vec::new(), 0);
    for task in folders(out)? {
        let mut runs: [Vec<TrainedRun>; 2] = [Vec::new(), Vec::new()];
        let mut read: Vec<Run> = Vec::new();
        for folder in folders(&task)? {
            let name = files::name(&folder);
            let Some((method, seed)) = name.rsplit_once("_seed-") else { continue };
            let Ok(seed) = seed.parse() else { continue };
            if method.starts_with(TUNING) {
                continue;
            }
            let tuned = method.strip_prefix(TUNED);
            let Some((run, trained)) = run(&folder, tuned.unwrap_or(method), seed)? else {
                unfinished += 1;
                continue;
            };
            if let Some((other, why)) = read.iter().find_map(|other| Some((other, other.other_inputs(&run)?)))
            {
                bad_input!(
                    "{} and {} can't be in one table: {why}. Move the folders of one of them away, and train those runs again",
                    other.folder.display(),
                    folder.display()
                );
            }
            read.push(run);
            runs[usize::from(tuned.is_some())].push(trained);
        }
        for (tuned, runs) in [false, true].into_iter().zip(runs) {
            if runs.iter().any(|run| run.method == baseline) {
                all.push(ranked(files::name(&task), tuned, &runs, baseline)?);
            } else if !runs.is_empty() {
                without_baseline.push(of_task(&files::name(&task), tuned));
            }
        }
    }
    if unfinished > 0 {
        say!("left out {unfinished} unfinished runs");
    }
    let lacking = without_baseline.join("; ");
    if all.is_empty() && !lacking.is_empty() {
        bad_input!(
            "--baseline: {baseline} has no finished run on {lacking}, so there is nothing to compare with"
        );
    }
    if !lacking.is_empty() {
        say!("left out, because they have no finished run of {baseline}: {lacking}");
    }
    if all.is_empty() {
        bad_input!("--out: {} has no finished run; train some with `fgrpo arena run`", out.display());
    }
    Ok(all)
}

/// Reads a file of rows: JSON lines, or the list that `--json` prints.
fn published(file: &Path, baseline: &str) -> anyhow::Result<Vec<Standings>> {
    let text = fgrpo_files::read_to_string(file, fgrpo_files::SETTINGS)?;
    let mut rows = Vec::new();
    for value in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
        match value.with_context(|| file.display().to_string()).or_bad_input()? {
            Value::Array(several) => rows.extend(several),
            one => rows.push(one),
        }
    }
    let mut all: Vec<Standings> = Vec::new();
    for (i, row) in rows.into_iter().enumerate() {
        let (task, tuned) = (row["task"].as_str().map(str::to_owned), row["tuned"].as_bool());
        let (Some(task), Some(tuned)) = (task, tuned) else {
            bad_input!(
                "{}: row {}: `task` or `tuned` is missing; expected a row of `arena table --json`",
                file.display(),
                i + 1
            );
        };
        let row = Row(row);
        let there = all.iter().position(|s| s.task == task && s.tuned == tuned);
        let k = there.map_or_else(|| row.ks().max(), |there| Some(all[there].k)).unwrap_or(1);
        let is_measured = |k| row.pass_at(k).is_finite() && row.interval(k).iter().all(|end| end.is_finite());
        if !row.0["name"].is_string() || !is_measured(1) || !is_measured(k) {
            bad_input!(
                "{}: row {}: the name, pass@1, pass@{k} or an interval is missing; expected a row of `arena table --json`",
                file.display(),
                i + 1
            );
        }
        match there {
            Some(there) => all[there].rows.push(row),
            None => all.push(Standings { task, tuned, k, rows: vec![row], start: None }),
        }
    }
    // Rows contain differences from the baseline, except for the baseline's row.
    let compared = |s: &Standings| {
        s.rows.iter().any(|row| row.name() == baseline && row.0["pass_at_1_difference"].is_null())
    };
    match all.iter().find(|s| !compared(s)) {
        Some(other) => bad_input!(
            "--baseline: the rows of {} in {} aren't compared with {baseline}",
            other.name(),
            file.display()
        ),
        None => Ok(all),
    }
}

/// Reads the run in a folder. Returns `None` if it isn't finished.
fn run(folder: &Path, method: &str, seed: u64) -> anyhow::Result<Option<(Run, TrainedRun)>> {
    if !folder.join(CONFIGURATION).exists() {
        return Ok(None);
    }
    let run = Run::open(folder)?;
    let steps = run.config()?.steps;
    let last = run.metrics.last().filter(|m| m.step >= steps);
    let (Some(last), Some(end)) = (last, run.final_evaluation()?) else { return Ok(None) };
    let Some(start) = run.deciding()?.into_iter().find(|e| e.step == 0) else {
        bad_input!(
            "{}: the evaluation before training (step 0) is missing",
            folder.join("eval.jsonl").display()
        )
    };
    let trained = TrainedRun {
        method: method.to_owned(),
        seed,
        start: start.clone(),
        end: end.clone(),
        entropy: last.entropy.0.unwrap_or(f64::NAN),
        seconds: run.metrics.iter().filter_map(|m| m.seconds.total.0).sum(),
    };
    Ok(Some((run, trained)))
}

fn ranked(task: String, tuned: bool, runs: &[TrainedRun], baseline: &str) -> anyhow::Result<Standings> {
    let pairs = runs.iter().enumerate().flat_map(|(i, b)| runs[..i].iter().map(move |a| (a, b)));
    let mut differences = pairs.filter_map(|(a, b)| Some((a, b, a.end.unlike(&b.end)?)));
    if let Some((a, b, why)) = differences.next() {
        let [a, b] = [a, b].map(|run| format!("{} (seed {})", run.method, run.seed));
        bad_input!(
            "{task}: {a} and {b} can't be in one table: {why}. Move the folders of one of them away, and train those runs again"
        );
    }
    let has = |k: &usize| {
        let both = |r: &TrainedRun| [&r.start, &r.end].iter().all(|e| e.all.pass_at_k.contains_key(k));
        runs.iter().all(|r| both(r) && r.end.all.left_out.is_empty())
    };
    let Some(k) = runs[0].end.all.pass_at_k.keys().copied().filter(has).max() else {
        bad_input!("{task}: the runs have no k of pass@k in common");
    };
    let began: Vec<&Evaluation> = runs.iter().filter(|r| r.method == baseline).map(|r| &r.start).collect();
    let before = |k: usize| began.iter().map(|e| e.all.pass_at_k[&k]).sum::<f64>() / began.len() as f64;
    let start = [before(1), before(k)];
    let k = k as u64;
    let ranking = rank(runs, baseline, &[1, k]);
    let rows = ranking.iter().map(|r| Row(row(&task, tuned, r))).collect();
    Ok(Standings { task, tuned, k, rows, start: Some(start) })
}

fn row(task: &str, tuned: bool, ranked: &Ranked) -> Value {
    let mut row = json!({"name": ranked.name, "task": task, "tuned": tuned, "seeds": ranked.seeds});
    for (k, measured) in &ranked.pass_at_k {
        row[format!("pass_at_{k}")] = json!(measured.value);
        row[format!("pass_at_{k}_interval")] = json!(measured.interval);
    }
    for (k, paired) in &ranked.paired {
        row[format!("pass_at_{k}_difference")] = json!({
            "value": paired.difference.value,
            "interval": paired.difference.interval,
            "p_value": paired.p_value,
            "holm_p_value": paired.holm_p_value,
            "seeds": paired.seeds,
        });
    }
    row["lost"] = json!(ranked.lost);
    row["entropy"] = json!(ranked.entropy);
    row["seconds"] = json!(ranked.seconds);
    row["dominated_by"] = json!(ranked.dominated_by);
    row
}

/// Returns the heading of a task's default or tuned runs.
fn of_task(task: &str, tuned: bool) -> String {
    if tuned { format!("{task}, tuned") } else { task.to_owned() }
}

impl Standings {
    fn name(&self) -> String {
        of_task(&self.task, self.tuned)
    }

    fn settings(&self) -> &'static str {
        if self.tuned {
            "tuned: learning rate and method-specific parameter, three values each, on a seed that isn't shown"
        } else {
            "default settings: no method was tuned"
        }
    }

    fn start(&self) -> String {
        let Some([one, k]) = self.start.map(|start| start.map(|p| 100.0 * p)) else { return String::new() };
        format!("; before training pass@1 {one:.1} and pass@{} {k:.1}", self.k)
    }

    fn table(&self, baseline: &str, named: bool) -> Table {
        let k = self.k;
        let task = named.then(|| self.name());
        // A file of rows may lack the times, if other work on the machine distorted them.
        let timed = self.rows.iter().all(|row| row.number("seconds").is_finite());
        let seconds = if timed { "|seconds" } else { "" };
        let columns = format!(
            "method|seeds|pass@1|pass@{k}|pass@1 - {baseline}|p|pass@{k} - {baseline}|p|lost|entropy{seconds}|front"
        );
        let mut table = Table::new(named.then_some("task").into_iter().chain(columns.split('|')));
        for row in &self.rows {
            let value = |k: u64| {
                let [from, to] = row.interval(k);
                format!("{} ({}, {})", percent(row.pass_at(k)), percent(from), percent(to))
            };
            let difference = |k: u64| match &row.0[format!("pass_at_{k}_difference")] {
                Value::Null => ["\u{2013}".to_owned(), "\u{2013}".to_owned()],
                paired => {
                    let number = |key: &str| paired[key].as_f64().unwrap_or(f64::NAN);
                    let [from, to] = interval(&paired["interval"]);
                    [
                        format!("{} ({}, {})", points(number("value")), points(from), points(to)),
                        p_value(number("holm_p_value")),
                    ]
                }
            };
            let ([d1, p1], [dk, pk]) = (difference(1), difference(k));
            let cells = [
                row.name().to_owned(),
                format!("{}", row.number("seeds")),
                value(1),
                value(k),
                d1,
                p1,
                dk,
                pk,
                format!("{:.1}", row.number("lost")),
                format!("{:.3}", row.number("entropy")),
            ];
            let front = row.dominated_by().map_or_else(|| "yes".to_owned(), |by| format!("no: {by}"));
            let last = timed.then(|| format!("{:.0}", row.number("seconds"))).into_iter().chain([front]);
            let cells = cells.into_iter().chain(last);
            table.push(task.clone().into_iter().chain(cells));
        }
        table
    }

    fn legend(&self, baseline: &str) -> String {
        let seeds = |count: f64| self.rows.iter().all(|row| row.number("seeds") == count);
        let one = seeds(1.0);
        let uneven = if seeds(self.rows[0].number("seeds")) {
            ""
        } else {
            "\nMethods with fewer seeds: only the differences compare the same seeds; ranks and front don't."
        };
        format!(
            "Percent, with 95 % intervals over problems{}. Differences are paired with {baseline} by {}; p after Holm's \
             correction over the methods.\nlost: problems solved before training and in none of the samples after it. \
             entropy: nats, in the last step. front: no other method is at least as good at both k.{uneven}",
            if one { " alone: one seed says nothing of others" } else { " and, with several, seeds" },
            if one { "problem" } else { "seed and problem" },
        )
    }
}

/// Formats a p-value with three decimals, and never as 0.
fn p_value(p: f64) -> String {
    if p < 5e-4 { "<0.001".to_owned() } else { format!("{p:.3}") }
}

/// Draws pass@k against pass@1: a point for each method, and the Pareto front.
fn figure(all: &[Standings], baseline: &str) -> Figure {
    let panel = |s: &Standings| {
        let place = |row: &Row| (row.pass_at(1), row.pass_at(s.k));
        let places: Vec<(f64, f64)> = s.rows.iter().map(place).collect();
        let mut front: Vec<(f64, f64)> =
            s.rows.iter().filter(|row| row.dominated_by().is_none()).map(place).collect();
        front.sort_by(|a, b| a.0.total_cmp(&b.0));
        let axis = |label: String, coordinate: fn(&(f64, f64)) -> f64| {
            let (low, high) =
                places.iter().map(coordinate).fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(v), h.max(v)));
            let margin = ((high - low) * 0.08).max(0.01);
            let mut axis = Axis::new(label, Scale::Linear, low - margin, high + margin);
            axis.format = Notation::Percent;
            axis
        };
        let mut curves =
            vec![Curve { name: None, dashed: true, faint: true, ..Curve::new("", Colour::Muted, front) }];
        // Many names would cover the points, so only the methods on the front and the baseline are named.
        let (named, others): (Vec<&Row>, Vec<&Row>) =
            s.rows.iter().partition(|row| row.dominated_by().is_none() || row.name() == baseline);
        let dot =
            |row: &Row, colour| Curve { dots: true, ..Curve::new(row.name(), colour, vec![place(row)]) };
        curves.extend(others.iter().map(|r| Curve { name: None, faint: true, ..dot(r, Colour::Muted) }));
        curves.extend(named.iter().enumerate().map(|(i, r)| dot(r, Colour::Series(i))));
        let (x, y) = (axis("pass@1".into(), |p| p.0), axis(format!("pass@{}", s.k), |p| p.1));
        Panel::new(s.name(), x, y, curves)
    };
    Figure { panels: all.iter().map(panel).collect() }
}
