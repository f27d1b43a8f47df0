//! `fgrpo paper`: every table and figure of the paper by its name, made here and put beside the paper's numbers.

mod checks;
mod data;
mod figures;
mod fill;
mod full;
mod laptop;
mod list;
mod measured;
mod reports;
mod runs;
mod seeds;
mod settings;
mod sheet;
pub mod simulate;
mod sources;
mod substitute;
pub(crate) mod theory;

pub(crate) use data::{Benchmark, benchmarks};
pub(crate) use full::locate;
pub(crate) use runs::DEEPSCALER;

use data::{Item, Substitute, paper};
use fgrpo_eval::bad_input;
use sources::Sources;
use std::path::PathBuf;

/// A table or figure of the paper, made here and put beside the paper's numbers.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:\n  \
    fgrpo paper list                                              every table and figure, and what it needs\n  \
    fgrpo paper figure-3                                          theory: at once; figure-2 simulates for about 20 s\n  \
    fgrpo paper table-5 --scale laptop --out runs/paper           small runs here, resumable\n  \
    fgrpo paper table-1 --from evaluations/                       evaluations/Qwen2.5-7B/F-GRPO/..., as eval made them\n  \
    fgrpo paper table-4 --from GRPO-KL=eval-kl --from F-GRPO=eval-focal\n  \
    fgrpo paper table-1 --scale full --dry-run                    what the paper's own setting needs")]
pub struct Args {
    /// `list`, or a name from the list: table-1 to table-17, notation, figure-1 to figure-10.
    pub name: String,
    /// `laptop`: small runs on maze and arithmetic; `full`: the paper's models and data [default: laptop, where --from gives nothing].
    #[arg(long, value_enum)]
    pub scale: Option<Scale>,
    /// Results that are there: evaluation folders, run folders, sweeps, or a folder of them; NAME= says which row of the
    /// paper a folder is. nll=, embeddings= and judge= take what `fgrpo nll --json` and `fgrpo diversity --json` printed.
    #[arg(long, value_name = "[NAME=]PATH")]
    pub from: Vec<String>,
    /// Folder of the results, and of the runs of --scale laptop.
    #[arg(long, value_name = "DIR", default_value = "runs/paper")]
    pub out: PathBuf,
    /// Change a key of every run of --scale laptop, e.g. steps=100, in a folder --out of its own; repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Folder that the paths of the configurations, models/ and data/, stand in (--scale full).
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub root: PathBuf,
    /// Say what would be done and how long it takes; do nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Print the list as PAPER.md has it.
    #[arg(long)]
    pub markdown: bool,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            name: String::new(),
            scale: None,
            from: Vec::new(),
            out: "runs/paper".into(),
            set: Vec::new(),
            root: ".".into(),
            dry_run: false,
            markdown: false,
        }
    }
}

/// How much is spent on a table or figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Scale {
    /// Runs on maze and arithmetic that end within about an hour on two cores.
    Laptop,
    /// The paper's own setting.
    Full,
}

/// Runs the command.
///
/// # Errors
/// Bad input for an unknown name and for results that don't fit; what a run or a file fails with.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.name == "list" {
        return list::print(args.markdown);
    }
    if args.markdown {
        bad_input!("--markdown: found with {}, wanted with `list`", args.name);
    }
    let item = paper().find(&args.name)?;
    if !args.from.is_empty() && args.scale.is_some() {
        bad_input!(
            "--scale: found with --from, wanted one of them: results that are there have their own size"
        );
    }
    if !args.set.is_empty() && (!item.trains() || !args.from.is_empty() || args.scale == Some(Scale::Full)) {
        bad_input!("--set: found without runs of --scale laptop, wanted with them alone");
    }
    if !item.trains() && !args.from.is_empty() {
        bad_input!("--from: found with {}, which is made without results, wanted without", item.name);
    }
    if !item.trains() && args.dry_run {
        outln!("{}: {}, {}", item.name, item.made_by, list::time_without_training(item));
        return Ok(());
    }
    match args.scale {
        _ if !item.trains() && item.is_table() => fill::from_constants(item)?.write(&args.out),
        _ if !item.trains() => figures::from_theory(item, &args.out),
        _ if !args.from.is_empty() => {
            let sources = Sources::open(&args.from)?;
            let stand = Substitute::of_results(item, &sources)?;
            if args.dry_run {
                outln!("{}", sources.describe(item, stand.is_some())?);
                return Ok(());
            }
            from_results(item, &sources, args, stand.as_ref())
        }
        Some(Scale::Full) => full::run(item, args),
        _ => laptop::run(item, args),
    }
}

/// Makes a table or figure from results; `stand` is what stands in for the paper's models and benchmarks.
fn from_results(
    item: &'static Item,
    sources: &Sources,
    args: &Args,
    stand: Option<&Substitute>,
) -> anyhow::Result<()> {
    match item.is_table() {
        true => fill::from_results(item, sources, stand)?.write(&args.out),
        false => figures::from_results(item, sources, stand, &args.out),
    }
}
