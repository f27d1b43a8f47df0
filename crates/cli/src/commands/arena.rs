//! `fgrpo arena`: methods as named settings, trained on the same small tasks and ranked.
//!
//! Methods and tasks are data: a task is a configuration, and a method is a list of changes to it. The runs of a task are in
//! one folder and share their supervised stage.

mod catalogue;
mod map;
mod plan;
mod standings;
mod task;

use crate::args::places::Loading;
use crate::chart::alone;
use crate::commands::runs::{Jobs, stopped, train_unfinished};
use crate::output::table::{Format, FormatArgs, Render};
use catalogue::{Method, add, catalogue};
use clap::Subcommand;
use fgrpo_eval::table::Table;
use fgrpo_nn::DeviceName;
use map::Grid;
use plan::{Planned, Round, Shared, planned};
use serde_json::json;
use standings::TableArgs;
use std::path::PathBuf;

/// Train methods on the same small tasks and rank them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fgrpo arena list
  fgrpo arena run --tasks maze --methods grpo,f-grpo-1,max-rl --seeds 2
  fgrpo arena add mine --set 'algorithm.advantage={ kind = \"power\", a = 0.5, b = -1 }'
  fgrpo arena add steep --advantage steep.py:steep
  fgrpo arena run --tasks maze --methods grpo,mine,steep --seeds 2
  fgrpo arena table --plot front.svg
  fgrpo arena map --a 0,0.5,1 --b -1,0,0.5 --plot map.svg")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
pub(crate) enum What {
    /// List the methods with their estimators, losses and sources.
    List {
        /// Print one JSON value.
        #[arg(long)]
        json: bool,
    },
    /// Train the runs that aren't finished yet, and print the table.
    Run(RunArgs),
    /// Save your own settings as a method.
    Add {
        /// Name of the method: lower-case letters, digits, `-`, `+` and `.`.
        name: String,
        /// Change a key of the task's configuration, whose method is GRPO; repeatable.
        #[arg(long = "set", value_name = "KEY=VALUE", required_unless_present = "advantage")]
        set: Vec<String>,
        /// An advantage estimator in Python: a function from a group's `rewards` to its advantages.
        #[arg(long, value_name = "FILE.py:FUNCTION")]
        advantage: Option<String>,
        /// Source of the method, for the list.
        #[arg(long, default_value = "your own")]
        source: String,
        /// Replace your own method of this name.
        #[arg(long)]
        replace: bool,
    },
    /// Print the table of finished runs.
    Table(TableArgs),
    /// Train the estimator `power` with every pair of exponents, and print pass@1 and pass@k of each.
    Map(MapArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Names of the methods to train, in addition to the baseline [default: all].
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    methods: Vec<String>,
    /// The tasks: maze, arithmetic, puzzles, or configuration files.
    #[arg(long, value_name = "TASK,...", value_delimiter = ',', default_value = "maze")]
    tasks: Vec<String>,
    /// Number of seeds, from 1 on.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// First choose each method's learning rate and its method-specific parameter, three values of each, by the mean of pass@1
    /// and pass@k after training. These runs have a seed that the table leaves out.
    #[arg(long)]
    tune: bool,
    /// Change a key for all runs; repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Device to compute on.
    #[arg(long, default_value = "cpu")]
    device: DeviceName,
    #[command(flatten)]
    jobs: Jobs,
    /// Check every run and print its folder; train nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    table: TableArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct MapArgs {
    /// Exponents of the success rate's inverse.
    #[arg(long, value_name = "A,...", value_delimiter = ',', allow_hyphen_values = true, default_values_t = [0.0, 0.5, 1.0, 1.5])]
    a: Vec<f64>,
    /// Exponents of the failure rate's inverse.
    #[arg(long, value_name = "B,...", value_delimiter = ',', allow_hyphen_values = true, default_values_t = [-3.0, -1.0, 0.0, 0.5, 1.0])]
    b: Vec<f64>,
    /// The task: maze, arithmetic, puzzles, or a configuration file.
    #[arg(long, default_value = "maze")]
    task: String,
    /// Number of seeds, from 1 on.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Change a key for all runs; repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Folder of the runs, or a file written with --json, from which the map is drawn without training.
    #[arg(long, value_name = "DIR", default_value = "runs/arena-map")]
    out: PathBuf,
    /// Device to compute on.
    #[arg(long, default_value = "cpu")]
    device: DeviceName,
    #[command(flatten)]
    jobs: Jobs,
    #[command(flatten)]
    format: FormatArgs,
    /// Draw the map to this .svg file.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.what {
        What::List { json } => list(*json),
        What::Add { name, set, advantage, source, replace } => {
            let mut set = set.clone();
            if let Some(function) = advantage {
                // Absolute, because the method may be trained from another folder.
                let function = std::path::absolute(function)?;
                let function = toml::Value::from(function.to_string_lossy().as_ref());
                set.insert(0, format!("algorithm.advantage={{ kind = \"python\", function = {function} }}"));
            }
            let method = Method { name: name.clone(), source: source.clone(), set, own: None };
            let path = add(method, *replace)?;
            say!("{name} is in {}", path.display());
            say!("next: fgrpo arena run --methods grpo,{name}");
            Ok(())
        }
        What::Run(args) => train(args),
        What::Table(args) => standings::print(args),
        What::Map(args) => draw_map(args),
    }
}

fn list(json: bool) -> anyhow::Result<()> {
    let mut table = Table::new(["method", "advantage", "loss", "source", "settings"]).of_words();
    let mut rows = Vec::new();
    for method in catalogue()? {
        let algorithm = method.config(&task::text("maze")?, &[], 1)?.algorithm;
        let loss = serde_json::to_value(algorithm.loss)?;
        let loss = loss["kind"].as_str().unwrap_or_default().to_owned();
        let advantage = algorithm.advantage.name();
        table.push([method.name.as_str(), advantage, &loss, &method.source, &method.set.join(" ")]);
        rows.push(json!({
            "name": method.name,
            "advantage": advantage,
            "loss": loss,
            "source": method.source,
            "set": method.set,
        }));
    }
    if json {
        outln!("{}", serde_json::to_string(&rows)?);
    } else {
        out!("{}", table.render(Format::Text));
    }
    Ok(())
}

fn train(args: &RunArgs) -> anyhow::Result<()> {
    if let Some(path) = &args.table.plot {
        alone::check_name(path)?;
    }
    let methods = catalogue::chosen(&args.methods, &args.table.baseline)?;
    let shared = Shared {
        tasks: &args.tasks,
        set: &args.set,
        out: &args.table.out,
        loading: if args.dry_run { Loading::Nothing } else { Loading::All },
        settled: !(args.tune && args.dry_run),
    };
    let list = |runs: &[Planned]| runs.iter().for_each(|run| outln!("{}", run.folder.display()));
    let mut tuned = Vec::new();
    let rounds: &[Round] = if args.tune { &[Round::Rate, Round::Own] } else { &[] };
    for &round in rounds {
        let trials = plan::trials(&shared, &methods, round, &tuned)?;
        if args.dry_run {
            list(&trials);
            continue;
        }
        finish(&trials, args.device, args.jobs)?;
        tuned = plan::choices(&trials, tuned)?;
    }
    let runs = planned(&shared, &methods, args.seeds, args.tune.then_some(&tuned))?;
    if args.dry_run {
        list(&runs);
        return Ok(());
    }
    finish(&runs, args.device, args.jobs)?;
    standings::print(&args.table)
}

fn draw_map(args: &MapArgs) -> anyhow::Result<()> {
    if let Some(path) = &args.plot {
        alone::check_name(path)?;
    }
    let grid = Grid { a: &args.a, b: &args.b };
    let methods = grid.methods()?;
    let tasks = [args.task.clone()];
    let shared =
        Shared { tasks: &tasks, set: &args.set, out: &args.out, loading: Loading::All, settled: true };
    if !args.out.is_file() {
        finish(&planned(&shared, &methods, args.seeds, None)?, args.device, args.jobs)?;
    }
    let all = standings::standings(&args.out, &grid.baseline().unwrap_or_default())?;
    let name = task::name(&args.task);
    let Some(standings) = all.iter().find(|s| s.task == name) else { return Ok(()) };
    if let Some(path) = &args.plot {
        alone::write(&grid.figure(standings), path)?;
    }
    if args.format.chosen() == Format::Json {
        outln!("{}", serde_json::to_string(&grid.rows(standings))?);
    } else {
        grid.print(standings, args.format.chosen());
    }
    Ok(())
}

fn finish(runs: &[Planned], device: DeviceName, jobs: Jobs) -> anyhow::Result<()> {
    let entries = runs.iter().map(|run| (&run.config, run.folder.as_path(), run.state));
    train_unfinished(entries, device, jobs)?.then_some(()).ok_or_else(stopped)
}
