//! `fgrpo paper`: reproduces any table or figure of the paper, and shows the paper's numbers next to the results.

use super::runs::{Jobs, stopped, train_unfinished};
use super::simulate;
use crate::args::named::named;
use crate::chart::alone;
use crate::output::table::{Format, Render};
use anyhow::Context;
use fgrpo_eval::io::files::write_whole;
use fgrpo_nn::DeviceName;
use fgrpo_paper::data::{self, Item};
use fgrpo_paper::made::{BOLD, Made};
use fgrpo_paper::plan::{self, Options, Plan, Scale, Training};
use fgrpo_paper::results::Results;
use fgrpo_paper::{SIMULATION, described, list, without_results};
use fgrpo_train::run::state::{State, state};
use std::path::{Path, PathBuf};

/// Reproduce any table or figure of the paper.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:\n  \
    fgrpo paper list                                              # every table and figure, and what makes it\n  \
    fgrpo paper figure-3                                          # theory: at once; figure-2 simulates for about 20 s\n  \
    fgrpo paper table-5 --scale laptop --out runs/paper           # small runs here, resumable\n  \
    fgrpo paper table-1 --from evaluations/                       # evaluations/Qwen2.5-7B/F-GRPO/..., as eval made them\n  \
    fgrpo paper table-4 --from GRPO-KL=eval-kl --from F-GRPO=eval-focal\n  \
    fgrpo paper table-1 --scale full --dry-run                    # what the paper's own setting needs")]
pub(crate) struct Args {
    /// `list`, or a name from the list: table-1 to table-17, notation, figure-1 to figure-10.
    name: String,
    /// `laptop`: small runs on maze and arithmetic; `full`: the paper's models and data [default: laptop, unless --from is given].
    #[arg(long, value_parser = named::<Scale>())]
    scale: Option<Scale>,
    /// Existing results: evaluation folders, run folders, sweeps, or a folder of them; NAME= is the
    /// row of the paper that the folder belongs to. nll=, embeddings= and judge= are files with the output of `fgrpo nll --json` and `fgrpo diversity --json`.
    #[arg(long, value_name = "[NAME=]PATH")]
    from: Vec<String>,
    /// Folder of the results, and of the runs of --scale laptop.
    #[arg(long, value_name = "DIR", default_value = "runs/paper")]
    out: PathBuf,
    /// Change a key of every run of --scale laptop, e.g. steps=100; this needs another --out; repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Folder that contains models/ and data/ (--scale full).
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,
    #[command(flatten)]
    jobs: Jobs,
    /// Print what would be done and how long it would take; do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print the list as it is in PAPER.md.
    #[arg(long)]
    markdown: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let options = Options { out: args.out.clone(), set: args.set.clone(), root: args.root.clone() };
    if args.name == "list" {
        return print_list(args, &options);
    }
    if args.markdown {
        bad_input!("--markdown is only for `list`, not for {}", args.name);
    }
    let item = data::item(&args.name)?;
    if !args.from.is_empty() && args.scale.is_some() {
        bad_input!("--scale can't be used with --from");
    }
    if !args.set.is_empty() && (!item.trains() || !args.from.is_empty() || args.scale == Some(Scale::Full)) {
        bad_input!("--set is only for the runs of --scale laptop");
    }
    if !item.trains() && !args.from.is_empty() {
        bad_input!("--from has no effect on {}, which is made without results", item.name);
    }
    match args.scale {
        _ if !item.trains() => untrained(item, args),
        _ if !args.from.is_empty() => {
            let results = Results::open(&args.from)?;
            if args.dry_run {
                described(item, results)?.iter().for_each(|line| outln!("{line}"));
                return Ok(());
            }
            show(&plan::from_results(item, results)?, &args.out)
        }
        Some(Scale::Full) => train(&Plan::of(item, Scale::Full, &options)?, args),
        _ => train(&Plan::of(item, Scale::Laptop, &options)?, args),
    }
}

fn print_list(args: &Args, options: &Options) -> anyhow::Result<()> {
    if args.markdown {
        out!("{}", list::markdown(options)?);
        return Ok(());
    }
    // Skips the header, because the columns are clear without it.
    let text = list::table(options)?.render(Format::Text);
    out!("{}", text.splitn(3, '\n').nth(2).unwrap_or_default());
    Ok(())
}

fn untrained(item: &'static Item, args: &Args) -> anyhow::Result<()> {
    if args.dry_run {
        outln!("{}: {}, {}", item.name, item.made_by, list::time_without_training(item));
        return Ok(());
    }
    let (file, folder) = (args.out.join("simulation.toml"), args.out.join("simulation"));
    if item.simulates() {
        create(&args.out)?;
        write_whole(&file, SIMULATION.as_bytes())?;
        simulate::run(&simulate::Args::of(file, folder.clone()))?;
    }
    show(&without_results(item, &folder)?, &args.out)
}

/// Trains the missing runs and makes the table or figure, unless the trained models must be evaluated first.
fn train(plan: &Plan, args: &Args) -> anyhow::Result<()> {
    if args.dry_run {
        plan.lines()?.iter().for_each(|line| outln!("{line}"));
        return Ok(());
    }
    let missing = plan.missing();
    if !missing.is_empty() {
        bad_input!(
            "{} --scale full: {} of {} files and folders are missing:\n  {}\nPut them there, or name another folder with --root. `--scale laptop` needs none of them; `--from` uses existing results",
            args.name,
            missing.len(),
            plan.paths.len(),
            missing.join("\n  ")
        );
    }
    train_all(&plan.runs, args.jobs)?;
    if plan.needs_evaluations() {
        let name = &args.name;
        say!(
            "trained; evaluate the chosen checkpoints with fgrpo eval --suite paper, then: fgrpo paper {name} --from DIR"
        );
        return Ok(());
    }
    show(&plan.make()?, &args.out)
}

/// Trains the unfinished runs; each resumes from its last checkpoint.
fn train_all(runs: &[Training], jobs: Jobs) -> anyhow::Result<()> {
    let states: Vec<State> =
        runs.iter().map(|r| state(&r.config, &r.folder)).collect::<anyhow::Result<_>>()?;
    let entries = runs.iter().zip(states).map(|(run, state)| (&run.config, run.folder.as_path(), state));
    train_unfinished(entries, DeviceName::Cpu, jobs)?.then_some(()).ok_or_else(stopped)
}

fn create(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))
}

/// Prints a table or figure and writes its files into `out`.
fn show(result: &Made, out: &Path) -> anyhow::Result<()> {
    create(out)?;
    let name = &result.item.name;
    let write = |file: String, text: String| {
        say!("written: {}", out.join(&file).display());
        write_whole(&out.join(file), text.as_bytes())
    };
    for (file, figure) in &result.figures {
        let file = out.join(format!("{file}.svg"));
        alone::write(figure, &file)?;
        say!("written: {}", file.display());
    }
    for (file, values) in &result.values {
        write(format!("{file}.csv"), values.render(Format::Csv))?;
    }
    write(format!("{name}.md"), rendered(result, Format::Markdown))?;
    write(format!("{name}.tex"), rendered(result, Format::Latex))?;
    out!("{}", rendered(result, Format::Text));
    Ok(())
}

fn rendered(result: &Made, format: Format) -> String {
    let (before, after) = match format {
        Format::Markdown => ("", "\n\n"),
        Format::Latex => ("% ", "\n"),
        _ => ("", "\n"),
    };
    let mut out = match format {
        Format::Markdown => format!("## {}\n\n", result.heading),
        Format::Latex => format!("% {}\n", result.heading),
        _ => format!("{}\n\n", result.heading),
    };
    for (file, _) in result.figures.iter().filter(|_| format == Format::Markdown) {
        out += &format!("![{}]({file}.svg)\n\n", result.item.title);
    }
    let marks = result.table.legend(format, BOLD, "");
    let tables = [&result.table, &result.effects]
        .map(|t| if t.rows.is_empty() { String::new() } else { t.render(format) });
    out += &tables[0];
    out += &format!("\n{before}{}{after}", result.legend);
    for note in result.notes.iter().chain([&marks]).filter(|note| !note.is_empty()) {
        out += &format!("{before}{note}{after}");
    }
    if !tables[1].is_empty() {
        out += &format!("\n{}", tables[1]);
    }
    out
}
