//! `fgrpo sweep`: trains all combinations of a grid and prints a table of their pass@k.
//!
//! The combinations share a cached supervised stage. If seeds are in the grid, the table shows mean and standard deviation over
//! them.

mod grid;

use crate::args::places::{self, Loading};
use crate::commands::runs::{Jobs, train_unfinished};
use crate::commands::train::conclude;
use crate::output::table::{Format, Render};
use crate::report::is_setting;
use fgrpo_eval::estimate::mean_and_deviation;
use fgrpo_eval::io::files::write_whole;
use fgrpo_eval::io::shell::quoted;
use fgrpo_eval::record::{Counted, Evaluation};
use fgrpo_eval::table::Table;
use fgrpo_nn::DeviceName;
use fgrpo_train::config::{Config, Override};
use fgrpo_train::run::Run;
use fgrpo_train::run::state::{State, state};
use fgrpo_train::session::Ending;
use grid::{Combination, combinations};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Train every combination of a grid and print their pass@k.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fgrpo sweep configs/maze-compare.toml --grid rollout.group_size=8,32 --grid algorithm.focal_gamma=0,0.5,1 --grid seed=1,2,3 --out runs/sweep

Group sizes with equal samples per step:
  fgrpo sweep configs/maze-compare.toml --grid rollout.group_size,rollout.prompts=2:256,8:64,32:16 --out runs/sizes

Lists and tables are values too; a comma or colon inside brackets, braces or quotes separates nothing:
  fgrpo sweep configs/maze-compare.toml --grid 'algorithm.loss.clip=[0.2, 0.2],[0.2, 0.28]' --out runs/clip

GRPO without and with each of two controls, three seeds each:
  fgrpo sweep configs/maze-compare.toml --set algorithm.focal_gamma=0 --grid seed=1,2,3 --alternative algorithm.kl_coef=0.001 --alternative algorithm.entropy_coef=0.001 --out runs/controls")]
pub(crate) struct Args {
    /// Configuration file (TOML) that the grid varies.
    pub(crate) config: PathBuf,
    /// A key and its values; repeatable, to train all combinations. Keys that vary together: KEY1,KEY2=A1:B1,A2:B2.
    #[arg(long = "grid", value_name = "KEY=V1,V2", required_unless_present = "alternative")]
    grid: Vec<String>,
    /// A change to try separately; repeatable, and written like --grid. Every combination of the grid is trained without any
    /// alternative and once with each.
    #[arg(long = "alternative", value_name = "KEY=VALUE")]
    alternative: Vec<String>,
    /// Change a key for all runs; repeatable. An --alternative may change it again, but not a --grid.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Folder of the runs [default: runs/NAME-sweep for the configuration NAME.toml].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Continue a sweep: keep finished runs and resume unfinished ones.
    #[arg(long)]
    resume: bool,
    /// Device to compute on.
    #[arg(long, default_value = "cpu")]
    device: DeviceName,
    #[command(flatten)]
    jobs: Jobs,
    /// Check every combination and print its run folder; train nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Row of the table: a combination, averaged over its seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    /// Name of the method, such as `F-GRPO, gamma 0.5`.
    method: String,
    /// Values of the grid's keys, without seeds, and the alternative.
    setting: BTreeMap<String, String>,
    /// Number of finished runs.
    runs: usize,
    /// pass@k at the last evaluation, averaged over runs.
    pass_at_k: BTreeMap<usize, f64>,
    /// Standard deviation over runs, or 0 for a single run.
    deviation: BTreeMap<usize, f64>,
    /// Number of problems that pass@k leaves out, summed over runs, because they lack scored samples.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    left_out: BTreeMap<usize, usize>,
}

struct GridRun<'a> {
    combination: &'a Combination,
    config: Config,
    folder: PathBuf,
    state: State,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let combinations = combinations(&args.set, &args.grid, &args.alternative)?;
    let out = args.out.clone().unwrap_or_else(|| {
        let stem = args.config.file_stem().and_then(|s| s.to_str()).unwrap_or("sweep");
        PathBuf::from("runs").join(format!("{stem}-sweep"))
    });
    // All runs are checked before the first is trained.
    let mut runs: Vec<GridRun> = Vec::new();
    for combination in &combinations {
        let mut overrides = Override::all("--set", &args.set)?;
        for (flag, change) in &combination.changes {
            overrides.push(Override::parse(flag, change)?);
        }
        let mut config = Config::load_with(&args.config, &overrides)?;
        let folder = out.join(&combination.name);
        let loading = if args.dry_run { Loading::Nothing } else { Loading::All };
        places::configuration(&mut config, args.resume.then_some(&folder), loading)?;
        if let Some(same) = runs.iter().find(|r| r.config == config || r.folder == folder) {
            bad_input!(
                "{}: {} and {} have the same configuration or folder, so a run would count twice",
                if args.alternative.is_empty() { "--grid" } else { "--grid, --alternative" },
                same.combination.name,
                combination.name
            );
        }
        let state = state(&config, &folder)?;
        if state == State::Begun && !args.resume {
            bad_input!(
                "{} holds an unfinished run. Continue with --resume, or choose another folder with --out",
                folder.display()
            );
        }
        runs.push(GridRun { combination, config, folder, state });
    }
    if args.dry_run {
        for run in &runs {
            outln!("{}", run.folder.display());
        }
        return Ok(());
    }
    if args.resume && runs.iter().all(|run| run.state == State::Absent) {
        say!("nothing to resume in {}: starting with the first run", out.display());
    }
    let entries = runs.iter().map(|run| (&run.config, run.folder.as_path(), run.state));
    if !train_unfinished(entries, args.device, args.jobs)? {
        let folders: Vec<&Path> = runs.iter().map(|run| run.folder.as_path()).collect();
        return conclude(Ending::<String>::Interrupted, &folders);
    }
    let rows = table(&runs)?;
    write_whole(&out.join("sweep.json"), &serde_json::to_vec_pretty(&rows)?)?;
    let text = markdown(&rows);
    write_whole(&out.join("sweep.md"), text.as_bytes())?;
    let folders: Vec<PathBuf> = runs.iter().map(|r| r.folder.clone()).collect();
    let lead = crate::report::write_report(&folders, &out.join("report.html"))?;
    outln!("{text}");
    lead.iter().for_each(|sentence| outln!("{sentence}"));
    if rows.is_empty() {
        say!("no table: the runs have no evaluation after their last step (eval.every = 0)");
    }
    say!("report: {}", out.join("report.html").display());
    // The last run that differs from the first by neither its seed nor its problems.
    let first = &runs[0];
    let is_comparable = |run: &&GridRun| {
        run.folder != first.folder
            && run.config.seed == first.config.seed
            && run.config.task == first.config.task
    };
    if let (Some(last), false) = (runs.iter().rev().find(is_comparable), rows.is_empty()) {
        let [a, b] = [first, last].map(|run| quoted(&run.folder.display().to_string()));
        say!("next: fgrpo compare {a} {b}");
    }
    Ok(())
}

fn table(runs: &[GridRun]) -> anyhow::Result<Vec<Row>> {
    type Setting = BTreeMap<String, String>;
    type Seed<'a> = (&'a GridRun<'a>, Evaluation);
    let mut groups: Vec<(String, Setting, Vec<Seed<'_>>)> = Vec::new();
    let mut all: Vec<Run> = Vec::new();
    for run in runs {
        let read = Run::open(&run.folder)?;
        if let Some((other, why)) =
            all.iter().find_map(|other| Some((&other.folder, other.other_inputs(&read)?)))
        {
            bad_input!(
                "{} and {} can't be in one table: {why}. Run the sweep again with another --out",
                other.display(),
                run.folder.display()
            );
        }
        let method = read.config()?.method();
        let Some(last) = read.final_evaluation()?.cloned() else { continue };
        let setting: Setting =
            run.combination.setting.iter().filter(|(key, _)| is_setting(key)).cloned().collect();
        for (_, other_setting, seeds) in &groups {
            for (other, evaluation) in seeds {
                // Rows may differ in their problems, and in the grader if the grid varies it.
                let why = if other_setting == &setting {
                    evaluation.unlike(&last)
                } else {
                    evaluation.other_graders(&last).filter(|_| run.config.task == other.config.task)
                };
                if let Some(why) = why {
                    bad_input!(
                        "{} and {} can't be in one table: {why}. If the data or the grader has changed, run the sweep again with another --out",
                        other.folder.display(),
                        run.folder.display()
                    );
                }
            }
        }
        match groups.iter_mut().find(|(_, s, _)| *s == setting) {
            Some((_, _, seeds)) => seeds.push((run, last)),
            None => groups.push((method, setting, vec![(run, last)])),
        }
        all.push(read);
    }
    let curves = |seeds: Vec<Seed<'_>>| -> Vec<_> { seeds.into_iter().map(|(_, last)| last.all).collect() };
    Ok(groups.into_iter().map(|(method, setting, seeds)| row(method, setting, &curves(seeds))).collect())
}

/// Averages pass@k over runs, for each k that all runs have.
fn row(method: String, setting: BTreeMap<String, String>, runs: &[Counted]) -> Row {
    let mut pass_at_k = BTreeMap::new();
    let mut deviation = BTreeMap::new();
    let mut left_out = BTreeMap::new();
    for (k, few) in runs.iter().flat_map(|run| &run.left_out) {
        *left_out.entry(*k).or_default() += few;
    }
    for k in runs.iter().flat_map(|run| run.pass_at_k.keys()).collect::<BTreeSet<_>>() {
        let Some(p) = runs.iter().map(|run| run.pass_at_k.get(k).copied()).collect::<Option<Vec<f64>>>()
        else {
            continue;
        };
        let (mean, spread) = mean_and_deviation(&p);
        pass_at_k.insert(*k, mean);
        deviation.insert(*k, spread.unwrap_or(0.0));
    }
    Row { method, setting, runs: runs.len(), pass_at_k, deviation, left_out }
}

/// Formats the table as Markdown.
fn markdown(rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let ks: BTreeSet<usize> = rows.iter().flat_map(|row| row.pass_at_k.keys().copied()).collect();
    let header = std::iter::once("method".to_owned()).chain(first.setting.keys().cloned());
    let mut table =
        Table::new(header.chain(["runs".to_owned()]).chain(ks.iter().map(|k| format!("pass@{k}"))));
    for row in rows {
        let left_out = |k: &usize| {
            row.left_out.get(k).map_or_else(String::new, |few| format!(", {few} problems left out"))
        };
        let cell = |k: &usize| match (row.pass_at_k.get(k), row.runs) {
            // A value is missing if a verifier failed on too many samples of a run.
            (None, _) => "\u{2013}".to_owned(),
            (Some(p), 1) => format!("{:.1}{}", 100.0 * p, left_out(k)),
            (Some(p), _) => format!("{:.1} ± {:.1}{}", 100.0 * p, 100.0 * row.deviation[k], left_out(k)),
        };
        let names = std::iter::once(row.method.clone()).chain(row.setting.values().cloned());
        table.push(names.chain([row.runs.to_string()]).chain(ks.iter().map(cell)));
    }
    table.render(Format::Markdown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_k_that_a_run_lacks_is_no_mean_of_the_others_and_moves_no_column() {
        let setting = |gamma: &str| BTreeMap::from([("algorithm.focal_gamma".to_owned(), gamma.to_owned())]);
        let counted = |pass_at_k| Counted { pass_at_k, ..Counted::default() };
        let whole = counted(BTreeMap::from([(1, 0.5), (2, 0.6), (4, 0.9)]));
        let left_out = BTreeMap::from([(2, 9), (4, 3)]);
        let lacking = Counted { left_out, ..counted(BTreeMap::from([(1, 0.3), (4, 0.7)])) };
        let row_of = |method: &str, gamma, runs: &[_]| row(method.to_owned(), setting(gamma), runs);
        let rows = [row_of("GRPO", "0", &[whole.clone(), lacking]), row_of("F-GRPO, gamma 1", "1", &[whole])];
        let text = markdown(&rows);
        assert!(text.contains("| runs | pass@1 | pass@2 | pass@4 |"), "{text}");
        assert!(
            text.contains("| GRPO | 0 | 2 | 40.0 ± 14.1 | \u{2013} | 80.0 ± 14.1, 3 problems left out |"),
            "{text}"
        );
        assert!(text.contains("| F-GRPO, gamma 1 | 1 | 1 | 50.0 | 60.0 | 90.0 |"), "{text}");
    }
}
