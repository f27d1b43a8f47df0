//! `fgrpo simulate`: runs the categorical simulation over group sizes, gammas and seeds.

use crate::chart::alone;
use crate::output::progress::Console;
use crate::output::table::{Format, Render};
use fgrpo_eval::failure::Stopped;
use fgrpo_eval::io::interrupt;
use fgrpo_eval::io::shell::quoted;
use fgrpo_eval::table::Table;
use fgrpo_paper::simulate::{self, Config, Sweep};
use std::path::{Path, PathBuf};

/// Run the paper's categorical simulation.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  fgrpo simulate configs/simulation.toml --out runs/simulation\n  \
    fgrpo simulate configs/simulation.toml --set surrogate=probability --set group_sizes=2,32,1024 --out runs/printed\n\n\
    An interrupted sweep goes on with the same command. The folder holds config.toml, curves.jsonl and curves.csv \
    (every recorded step), final.csv, tail-miss.csv, and the figures as .svg.")]
pub(crate) struct Args {
    /// Configuration file (TOML).
    config: PathBuf,
    /// Change a key of the configuration; repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Folder of the results [default: runs/NAME for the configuration NAME.toml].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Number of threads [default: one per core]. Results don't depend on it.
    #[arg(long)]
    threads: Option<std::num::NonZeroUsize>,
    /// Print the final values as JSON.
    #[arg(long)]
    json: bool,
    /// Print the resolved configuration; simulate nothing.
    #[arg(long)]
    dry_run: bool,
}

impl Args {
    pub(super) fn of(config: PathBuf, out: PathBuf) -> Self {
        Self { config, set: Vec::new(), out: Some(out), threads: None, json: false, dry_run: false }
    }

    fn again(&self, out: &Path) -> String {
        let mut words = vec!["fgrpo simulate".to_owned(), quoted(&self.config.display().to_string())];
        words.extend(self.set.iter().map(|s| format!("--set {}", quoted(s))));
        words.push(format!("--out {}", quoted(&out.display().to_string())));
        words.join(" ")
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let config = Config::load(&args.config, &args.set)?;
    if args.dry_run {
        out!("{}", config.to_toml());
        return Ok(());
    }
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| Path::new("runs").join(args.config.file_stem().unwrap_or("simulation".as_ref())));
    interrupt::listen();
    let threads = args.threads.or_else(|| std::thread::available_parallelism().ok()).map_or(1, usize::from);
    let runs = config.runs();
    let sweep = match simulate::run(config, &out, threads, &mut Console::new())? {
        Ok(sweep) => sweep,
        Err(done) => {
            let (folder, again) = (out.display(), args.again(&out));
            let words = format!(
                "stopped on request; {done} of {runs} runs are saved in {folder}. Continue with:\n  {again}"
            );
            return Err(Stopped(words).into());
        }
    };
    alone::write(&sweep.figure(), &out.join("figure.svg"))?;
    alone::write(&sweep.tail_miss()?, &out.join("tail-miss.svg"))?;
    print(&sweep, args.json)?;
    say!("results in {}", out.display());
    Ok(())
}

fn print(sweep: &Sweep, json: bool) -> anyhow::Result<()> {
    if json {
        outln!("{}", serde_json::to_string(&sweep.finals())?);
        return Ok(());
    }
    let mut table = Table::new(["n", "gamma", "Q_pos", "M_ret", "entropy"]);
    for f in sweep.finals() {
        let [q_pos, retained] = [f.q_pos, f.retained].map(|s| s.text(4));
        table.push([f.n.to_string(), f.gamma.to_string(), q_pos, retained, f.entropy.text(2)]);
    }
    out!("{}", table.render(Format::Text));
    Ok(())
}
