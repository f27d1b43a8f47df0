//! The arena's table: the finished runs of each task, ranked.

use super::plan::{TUNED, TUNING};
use crate::chart::alone;
use crate::output::table::{Format, Render};
use fgrpo_eval::bad_input;
use fgrpo_eval::figure::{Axis, Colour, Curve, Figure, Notation, Panel, Scale};
use fgrpo_eval::io::files;
use fgrpo_eval::ranking::{Method, Ranked, TrainedRun, rank};
use fgrpo_eval::record::{self, Evaluation};
use fgrpo_eval::table::{Table, percent, points};
use fgrpo_train::config::Config;
use fgrpo_train::run::{metrics, sessions};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The flags of `arena table`.
#[derive(Debug, clap::Args)]
pub struct TableArgs {
    /// Folder of the runs, with a folder for each task.
    #[arg(long, value_name = "DIR", default_value = "runs/arena")]
    pub out: PathBuf,
    /// The method that the others are compared with.
    #[arg(long, value_name = "NAME", default_value = "grpo")]
    pub baseline: String,
    /// Print one JSON value, fractions in place of percentages.
    #[arg(long)]
    pub json: bool,
    /// How to print.
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
    /// Draw pass@k against pass@1 into this file, .svg.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// The runs of a task whose settings are all defaults, or all tuned.
pub(super) struct Standings {
    pub(super) task: String,
    tuned: bool,
    pub(super) k: u64,
    pub(super) ranked: Vec<Ranked>,
    costs: BTreeMap<String, Costs>,
    /// pass@1 and pass@k before training, mean over the baseline's runs.
    start: [f64; 2],
}

/// Means over a method's runs.
#[derive(Default)]
struct Costs {
    /// Entropy of the sampled tokens' distributions in the last step, in nats.
    entropy: f64,
    /// Duration of all steps.
    seconds: f64,
}

struct Run {
    method: String,
    seed: u64,
    start: Evaluation,
    end: Evaluation,
    /// What graded it, part by part; empty where its files don't say.
    graders: Vec<String>,
    costs: Costs,
}

/// Prints the table of every task in the folder.
pub(super) fn print(args: &TableArgs) -> anyhow::Result<()> {
    let all = standings(&args.out, &args.baseline)?;
    if let Some(path) = &args.plot {
        alone::write(&figure(&all, &args.baseline), path)?;
    }
    if args.json || args.format == Format::Json {
        let rows: Vec<Value> = all.iter().flat_map(|s| s.ranked.iter().map(|r| s.row(r))).collect();
        outln!("{}", serde_json::to_string(&rows)?);
        return Ok(());
    }
    for s in &all {
        if args.format == Format::Text {
            outln!("{}, {}; {}", s.task, s.settings(), s.start());
        }
        // As text, a line above says the task; elsewhere a column tells several apart.
        let named = args.format != Format::Text && all.len() > 1;
        out!("{}", s.table(&args.baseline, named).render(args.format));
        if args.format == Format::Text {
            outln!("{}", s.legend(&args.baseline));
        }
    }
    Ok(())
}

/// The folders in a folder, by name.
fn folders(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    Ok(files::listed(path)?.into_iter().filter(|path| path.is_dir()).collect())
}

/// What the finished runs in a folder say, task by task.
pub(super) fn standings(out: &Path, baseline: &str) -> anyhow::Result<Vec<Standings>> {
    let (mut all, mut without_baseline, mut unfinished) = (Vec::new(), Vec::new(), 0);
    for task in folders(out)? {
        let mut runs: [Vec<Run>; 2] = [Vec::new(), Vec::new()];
        for folder in folders(&task)? {
            let name = files::name(&folder);
            let Some((method, seed)) = name.rsplit_once("_seed-") else { continue };
            let Ok(seed) = seed.parse() else { continue };
            if method.starts_with(TUNING) {
                continue;
            }
            let tuned = method.strip_prefix(TUNED);
            match run(&folder, tuned.unwrap_or(method), seed)? {
                Some(run) => runs[usize::from(tuned.is_some())].push(run),
                None => unfinished += 1,
            }
        }
        for (tuned, runs) in [false, true].into_iter().zip(runs) {
            if runs.iter().any(|run| run.method == baseline) {
                all.push(ranked(files::name(&task), tuned, runs, baseline)?);
            } else if !runs.is_empty() {
                without_baseline.push(of_task(&files::name(&task), tuned));
            }
        }
    }
    if unfinished > 0 {
        say!("runs that aren't finished, left out: {unfinished}");
    }
    let lacking = without_baseline.join("; ");
    if all.is_empty() && !lacking.is_empty() {
        bad_input!(
            "--baseline: found no finished run of {baseline} on {lacking}, wanted one to compare with"
        );
    }
    if !lacking.is_empty() {
        say!("left out, without a finished run of {baseline}: {lacking}");
    }
    if all.is_empty() {
        bad_input!(
            "--out: found no finished run in {}, wanted a folder that `fgrpo arena run` filled",
            out.display()
        );
    }
    Ok(all)
}

/// The run in a folder; none if it isn't finished.
fn run(folder: &Path, method: &str, seed: u64) -> anyhow::Result<Option<Run>> {
    let config = folder.join("config.toml");
    if !config.exists() {
        return Ok(None);
    }
    let config = Config::load(&config, &[])?;
    let mut evaluations = record::of_set(&folder.join("eval.jsonl"), config.eval.deciding_set())?;
    let logged = metrics::read(&folder.join("metrics.jsonl"))?;
    let last = logged.last().filter(|m| m.step >= config.steps);
    let end = evaluations.iter().rposition(|e| e.step == config.steps);
    let (Some(last), Some(end)) = (last, end) else { return Ok(None) };
    let costs = Costs {
        entropy: last.entropy.0.unwrap_or(f64::NAN),
        seconds: logged.iter().filter_map(|m| m.seconds.total.0).sum(),
    };
    let end = evaluations.swap_remove(end);
    let Some(start) = evaluations.into_iter().find(|e| e.step == 0) else {
        bad_input!("{}: found no evaluation before training, wanted one", folder.join("eval.jsonl").display())
    };
    let graders = sessions::graders(folder)?;
    Ok(Some(Run { method: method.to_owned(), seed, start, end, graders, costs }))
}

fn ranked(task: String, tuned: bool, runs: Vec<Run>, baseline: &str) -> anyhow::Result<Standings> {
    let first = &runs[0];
    if let Some(other) = runs.iter().find(|r| r.end.problem_set != first.end.problem_set) {
        bad_input!(
            "{task}: found other problems in a run of {} than in one of {}, wanted the same",
            other.method,
            first.method
        );
    }
    // Files of older versions name none.
    let mut graded = runs.iter().filter(|r| !r.graders.is_empty());
    if let Some(one) = graded.next()
        && let Some(other) = graded.find(|r| r.graders != one.graders)
    {
        bad_input!(
            "{task}: {} (seed {}) was graded by {}, and {} (seed {}) by {}, wanted one grader for the table: move the folders of one of them away, and train these runs anew",
            one.method,
            one.seed,
            one.graders.join(", "),
            other.method,
            other.seed,
            other.graders.join(", ")
        );
    }
    let has = |k: &usize| {
        let both = |r: &Run| r.end.pass_at_k.contains_key(k) && r.start.pass_at_k.contains_key(k);
        runs.iter().all(|r| both(r) && r.end.left_out.is_empty())
    };
    let Some(k) = first.end.pass_at_k.keys().copied().filter(has).max() else {
        bad_input!("{task}: found no k that every run estimates, wanted one");
    };
    let began: Vec<&Evaluation> = runs.iter().filter(|r| r.method == baseline).map(|r| &r.start).collect();
    let mean = |k: usize| began.iter().map(|e| e.pass_at_k[&k]).sum::<f64>() / began.len() as f64;
    let start = [mean(1), mean(k)];
    let mut methods: Vec<Method> = Vec::new();
    let mut costs: BTreeMap<String, Costs> = BTreeMap::new();
    for run in runs {
        let sum = costs.entry(run.method.clone()).or_default();
        sum.entropy += run.costs.entropy;
        sum.seconds += run.costs.seconds;
        let trained = TrainedRun { seed: run.seed, start: run.start.counts(), end: run.end.counts() };
        match methods.iter_mut().find(|m| m.name == run.method) {
            Some(method) => method.runs.push(trained),
            None => methods.push(Method { name: run.method, runs: vec![trained] }),
        }
    }
    for method in &methods {
        let costs = costs.get_mut(&method.name).expect("its runs were added");
        costs.entropy /= method.runs.len() as f64;
        costs.seconds /= method.runs.len() as f64;
    }
    let k = k as u64;
    Ok(Standings { task, tuned, k, ranked: rank(&methods, baseline, &[1, k]), costs, start })
}

/// A task's runs, in words.
fn of_task(task: &str, tuned: bool) -> String {
    if tuned { format!("{task}, tuned") } else { task.to_owned() }
}

impl Standings {
    fn name(&self) -> String {
        of_task(&self.task, self.tuned)
    }

    fn settings(&self) -> &'static str {
        match self.tuned {
            true => "tuned: learning rate and own parameter, three values each, on a seed that isn't shown",
            false => "default settings: no method was tuned",
        }
    }

    fn start(&self) -> String {
        let [one, k] = self.start.map(|p| 100.0 * p);
        format!("before training pass@1 {one:.1} and pass@{} {k:.1}", self.k)
    }

    /// A method's row as JSON.
    pub(super) fn row(&self, ranked: &Ranked) -> Value {
        let mut row = Map::new();
        let mut put = |key: String, value: Value| {
            row.insert(key, value);
        };
        put("name".into(), json!(ranked.name));
        put("task".into(), json!(self.task));
        put("tuned".into(), json!(self.tuned));
        put("seeds".into(), json!(ranked.seeds));
        for (k, measured) in &ranked.pass_at_k {
            put(format!("pass_at_{k}"), json!(measured.value));
            put(format!("pass_at_{k}_interval"), json!(measured.interval));
        }
        for (k, paired) in &ranked.paired {
            put(
                format!("pass_at_{k}_difference"),
                json!({
                    "value": paired.difference.value,
                    "interval": paired.difference.interval,
                    "p_value": paired.p_value,
                    "holm_p_value": paired.holm_p_value,
                    "seeds": paired.seeds,
                }),
            );
        }
        let costs = &self.costs[&ranked.name];
        put("lost".into(), json!(ranked.lost));
        put("entropy".into(), json!(costs.entropy));
        put("seconds".into(), json!(costs.seconds));
        put("dominated_by".into(), json!(ranked.dominated_by));
        Value::Object(row)
    }

    fn table(&self, baseline: &str, named: bool) -> Table {
        let k = self.k;
        let task = named.then(|| self.name());
        let columns = [
            "method".to_owned(),
            "seeds".to_owned(),
            "pass@1".to_owned(),
            format!("pass@{k}"),
            format!("pass@1 - {baseline}"),
            "p".to_owned(),
            format!("pass@{k} - {baseline}"),
            "p".to_owned(),
            "lost".to_owned(),
            "entropy".to_owned(),
            "seconds".to_owned(),
            "front".to_owned(),
        ];
        let mut table = Table::new(named.then(|| "task".to_owned()).into_iter().chain(columns));
        for r in &self.ranked {
            let value = |k: u64| {
                let m = &r.pass_at_k[&k];
                format!("{} ({}, {})", percent(m.value), percent(m.interval[0]), percent(m.interval[1]))
            };
            let against = |k: u64| match r.paired.get(&k) {
                None => ["\u{2013}".to_owned(), "\u{2013}".to_owned()],
                Some(paired) => {
                    let d = &paired.difference;
                    [
                        format!("{} ({}, {})", points(d.value), points(d.interval[0]), points(d.interval[1])),
                        p_value(paired.holm_p_value),
                    ]
                }
            };
            let costs = &self.costs[&r.name];
            let ([d1, p1], [dk, pk]) = (against(1), against(k));
            let cells = [
                r.name.clone(),
                r.seeds.to_string(),
                value(1),
                value(k),
                d1,
                p1,
                dk,
                pk,
                format!("{:.1}", r.lost),
                format!("{:.3}", costs.entropy),
                format!("{:.0}", costs.seconds),
                r.dominated_by.as_ref().map_or_else(|| "yes".to_owned(), |by| format!("no: {by}")),
            ];
            table.push(task.clone().into_iter().chain(cells));
        }
        table
    }

    fn legend(&self, baseline: &str) -> String {
        let one = self.ranked.iter().all(|r| r.seeds == 1);
        let uneven = if self.ranked.iter().all(|r| r.seeds == self.ranked[0].seeds) {
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

/// A p-value of three decimals that never reads as 0.
fn p_value(p: f64) -> String {
    if p < 5e-4 { "<0.001".to_owned() } else { format!("{p:.3}") }
}

/// pass@k against pass@1: a point for each method, and the front through the named ones.
fn figure(all: &[Standings], baseline: &str) -> Figure {
    let panel = |s: &Standings| {
        let place = |r: &Ranked| (r.pass_at_k[&1].value, r.pass_at_k[&s.k].value);
        let places: Vec<(f64, f64)> = s.ranked.iter().map(place).collect();
        let mut front: Vec<(f64, f64)> =
            s.ranked.iter().filter(|r| r.dominated_by.is_none()).map(place).collect();
        front.sort_by(|a, b| a.0.total_cmp(&b.0));
        let axis = |label: String, of: fn(&(f64, f64)) -> f64| {
            let (low, high) =
                places.iter().map(of).fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(v), h.max(v)));
            let margin = ((high - low) * 0.08).max(0.01);
            let mut axis = Axis::new(label, Scale::Linear, low - margin, high + margin);
            axis.format = Notation::Percent;
            axis
        };
        let mut curves =
            vec![Curve { name: None, dashed: true, faint: true, ..Curve::new("", Colour::Muted, front) }];
        // A legend of thirty names would cover the points: those on the front and the baseline are named.
        let (named, others): (Vec<&Ranked>, Vec<&Ranked>) =
            s.ranked.iter().partition(|r| r.dominated_by.is_none() || r.name == baseline);
        let dot =
            |r: &Ranked, colour| Curve { dots: true, ..Curve::new(r.name.clone(), colour, vec![place(r)]) };
        curves.extend(others.iter().map(|r| Curve { name: None, faint: true, ..dot(r, Colour::Muted) }));
        curves.extend(named.iter().enumerate().map(|(i, r)| dot(r, Colour::Series(i))));
        let (x, y) = (axis("pass@1".into(), |p| p.0), axis(format!("pass@{}", s.k), |p| p.1));
        Panel::new(s.name(), x, y, curves)
    };
    Figure { panels: all.iter().map(panel).collect() }
}
