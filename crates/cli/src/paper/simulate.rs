//! `fgrpo simulate`: the categorical simulation over group sizes, gammas and seeds.
//!
//! Runs are independent and go over the threads one by one, the longest first. Each is a function of
//! the configuration alone, so neither threads nor interruptions change a result.

mod config;
mod figures;
mod folder;

pub use config::Config;
pub use folder::Line;

use crate::chart::alone::write_both;
use crate::output::progress;
use crate::output::table::{Format, Render};
use anyhow::Context;
use fgrpo_core::sim::Simulation;
use fgrpo_eval::failure::Stopped;
use fgrpo_eval::io::files::write_whole;
use fgrpo_eval::io::interrupt;
use fgrpo_eval::io::shell::quoted;
use fgrpo_eval::table::Table;
use folder::Folder;
use indicatif::ProgressBar;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The paper's categorical simulation: a sweep over group sizes, gammas and seeds.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  fgrpo simulate configs/simulation.toml --out runs/simulation\n  \
    fgrpo simulate configs/simulation.toml --set surrogate=probability --set group_sizes=2,32,1024 --out runs/printed\n\n\
    An interrupted sweep goes on with the same command. The folder holds config.toml, curves.jsonl and curves.csv\n\
    (every recorded step), final.csv, tail-miss.csv, and the figures as .svg and .png.")]
pub struct Args {
    /// Configuration, TOML.
    pub config: PathBuf,
    /// Change a setting: key=value.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Folder of the results; `runs/<name of the configuration>` when left out.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Draw this sweep's final values beside those of other sweeps' folders, into beside.svg and .png.
    #[arg(long, value_name = "DIR")]
    pub beside: Vec<PathBuf>,
    /// Threads; one per processor when left out. Results don't depend on it.
    #[arg(long)]
    pub threads: Option<std::num::NonZeroUsize>,
    /// Print the final values as JSON.
    #[arg(long)]
    pub json: bool,
    /// Print the resolved configuration and stop.
    #[arg(long)]
    pub dry_run: bool,
}

impl Args {
    /// A sweep of this configuration into this folder.
    pub(super) fn of(config: PathBuf, out: PathBuf) -> Self {
        let (set, beside, out) = (Vec::new(), Vec::new(), Some(out));
        Self { config, set, out, beside, threads: None, json: false, dry_run: false }
    }
}

/// One run of the sweep.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Run {
    n: u64,
    gamma: f64,
    seed: u64,
}

/// Runs `fgrpo simulate`.
///
/// # Errors
/// Bad input for a configuration that can't be simulated or a folder that holds something else; a
/// failure where results can't be written, a policy diverges, or the sweep was interrupted.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let config = Config::load(&args.config, &args.set)?;
    if args.dry_run {
        out!("{}", config.to_toml());
        return Ok(());
    }
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| Path::new("runs").join(args.config.file_stem().unwrap_or("simulation".as_ref())));
    let mut others = Vec::new();
    for path in &args.beside {
        let (config, lines) = folder::read(path)?;
        others.push((path.clone(), final_values(&config, &lines), config));
    }
    let (folder, mut lines) = Folder::open(&out, &config)?;
    let todo = missing(&config, &lines);
    let finished = sweep(args, &config, &folder, &todo, &mut lines)?;
    if finished < todo.len() {
        return Err(anyhow::Error::new(Stopped(format!(
            "stopped with {} of {} runs done and saved in {}; go on with\n  {}",
            config.runs() - todo.len() + finished,
            config.runs(),
            out.display(),
            again(args, &out)
        ))));
    }
    folder.finish(&mut lines)?;
    let finals = final_values(&config, &lines);
    write_whole(&out.join("final.csv"), table(&lines_at_end(&config, &lines), Line::csv).as_bytes())?;
    write_figures(&out, &config, &lines, &finals)?;
    if !others.is_empty() {
        others.insert(0, (out.clone(), finals.clone(), config));
        write_both(&figures::beside(&others), &out.join("beside"))?;
    }
    report(args, &out, &finals);
    Ok(())
}

/// The runs that `lines` doesn't hold, those that take longest first.
fn missing(config: &Config, lines: &[Line]) -> Vec<Run> {
    let mut todo = Vec::with_capacity(config.runs());
    for &n in &config.group_sizes {
        for &gamma in &config.gammas {
            for &seed in &config.seeds {
                if !lines.iter().any(|l| (l.n, l.gamma, l.seed) == (n, gamma, seed)) {
                    todo.push(Run { n, gamma, seed });
                }
            }
        }
    }
    todo.sort_by_key(|r| std::cmp::Reverse(r.n));
    todo
}

/// Simulates `todo`, adding to the folder and to `lines`; returns how many runs were finished.
fn sweep(
    args: &Args,
    config: &Config,
    folder: &Folder,
    todo: &[Run],
    lines: &mut Vec<Line>,
) -> anyhow::Result<usize> {
    if todo.is_empty() {
        say!("all {} runs are done already", config.runs());
        return Ok(0);
    }
    interrupt::listen();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.map_or(cores, usize::from).min(todo.len());
    let done_before = config.runs() - todo.len();
    say!(
        "{} runs of {} steps on {threads} threads{}",
        todo.len(),
        config.steps,
        if done_before > 0 { format!(", {done_before} done before") } else { String::new() }
    );
    let bar = progress::bar(
        Some(todo.len() as u64 * config.steps),
        "{wide_bar:.cyan/238} {percent:>3}% {msg} {per_sec} steps, {elapsed} so far, {eta} left",
    );
    let (started, mut spoken) = (Instant::now(), Instant::now());
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let stop = || interrupt::requested() || failed.load(Ordering::Relaxed);
    let finished = std::thread::scope(|scope| {
        let (sender, results) = mpsc::channel();
        for _ in 0..threads {
            let (sender, next, bar, stop) = (sender.clone(), &next, &bar, &stop);
            scope.spawn(move || {
                while let Some(&run) = todo.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Some(result) = simulate(config, run, bar, stop).transpose() else { break };
                    if sender.send(result).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let mut finished = 0;
        for result in results {
            let kept = result.and_then(|run: Vec<Line>| {
                folder.append(&run)?;
                lines.extend(run);
                finished += 1;
                Ok(())
            });
            if let Err(error) = kept {
                failed.store(true, Ordering::Relaxed);
                return Err(error);
            }
            bar.set_message(format!("{finished}/{} runs", todo.len()));
            if bar.is_hidden() && spoken.elapsed() > Duration::from_secs(10) {
                spoken = Instant::now();
                say!("{finished}/{} runs, {:.0} s", todo.len(), started.elapsed().as_secs_f64());
            }
        }
        Ok(finished)
    })?;
    bar.finish_and_clear();
    folder.sync()?;
    say!("{finished} runs in {:.1} s", started.elapsed().as_secs_f64());
    Ok(finished)
}

/// One run's recorded lines; nothing if it was stopped.
fn simulate(
    config: &Config,
    run: Run,
    bar: &ProgressBar,
    stop: &dyn Fn() -> bool,
) -> anyhow::Result<Option<Vec<Line>>> {
    let Run { n, gamma, seed } = run;
    let mut policy = Simulation::new(&config.setup(), n, gamma, seed)?;
    let mut lines = vec![Line::of(run, 0, policy.metrics())];
    let mut shown = 0;
    for step in 1..=config.steps {
        policy.step().with_context(|| format!("group size {n}, gamma {gamma}, seed {seed}"))?;
        if config.records(step) {
            lines.push(Line::of(run, step, policy.metrics()));
        }
        if step % 16 == 0 || step == config.steps {
            bar.inc(step - shown);
            shown = step;
            if stop() && step < config.steps {
                return Ok(None);
            }
        }
    }
    Ok(Some(lines))
}

/// The command that continues.
fn again(args: &Args, out: &Path) -> String {
    let mut words = vec!["fgrpo simulate".to_owned(), quoted(&args.config.display().to_string())];
    words.extend(args.set.iter().map(|s| format!("--set {}", quoted(s))));
    words.push(format!("--out {}", quoted(&out.display().to_string())));
    words.join(" ")
}

/// Mean and standard deviation over the seeds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    mean: f64,
    /// 0 for a single seed.
    deviation: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let square = values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>();
        Self { mean, deviation: (square / (n - 1.0).max(1.0)).sqrt() }
    }

    fn text(self, digits: usize) -> String {
        format!("{:.digits$} \u{b1} {:.digits$}", self.mean, self.deviation)
    }
}

/// The policies of one group size and gamma after the last step.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Final {
    n: u64,
    gamma: f64,
    q_pos: Spread,
    retained: Spread,
    entropy: Spread,
}

fn lines_at_end(config: &Config, lines: &[Line]) -> Vec<Line> {
    lines.iter().filter(|l| l.step == config.steps).copied().collect()
}

fn final_values(config: &Config, lines: &[Line]) -> Vec<Final> {
    let ends = lines_at_end(config, lines);
    let mut finals = Vec::new();
    for &n in &config.group_sizes {
        for &gamma in &config.gammas {
            let seeds: Vec<&Line> = ends.iter().filter(|l| (l.n, l.gamma) == (n, gamma)).collect();
            let spread =
                |value: fn(&Line) -> f64| Spread::of(&seeds.iter().map(|l| value(l)).collect::<Vec<_>>());
            finals.push(Final {
                n,
                gamma,
                q_pos: spread(|l| l.q_pos),
                retained: spread(|l| l.retained),
                entropy: spread(|l| l.entropy),
            });
        }
    }
    finals
}

fn table(lines: &[Line], row: fn(&Line) -> String) -> String {
    lines.iter().fold(format!("{}\n", Line::HEADER), |text, l| text + &row(l) + "\n")
}

fn write_figures(out: &Path, config: &Config, lines: &[Line], finals: &[Final]) -> anyhow::Result<()> {
    write_whole(&out.join("curves.csv"), table(lines, Line::csv).as_bytes())?;
    let (tail, rows) = figures::tail_miss(config)?;
    let mut values = "n,active,tail_miss\n".to_owned();
    for r in rows {
        values += &format!("{},{},{}\n", r.n, r.active, r.tail_miss);
    }
    write_whole(&out.join("tail-miss.csv"), values.as_bytes())?;
    write_both(&figures::panels(config, lines, finals), &out.join("figure"))?;
    write_both(&tail, &out.join("tail-miss"))
}

fn report(args: &Args, out: &Path, finals: &[Final]) {
    if args.json {
        let all = finals.iter().map(|f| {
            let spread = |s: Spread| json!({"mean": s.mean, "sd": s.deviation});
            json!({
                "n": f.n, "gamma": f.gamma, "q_pos": spread(f.q_pos), "retained": spread(f.retained),
                "entropy": spread(f.entropy),
            })
        });
        outln!("{}", Value::Array(all.collect()));
    } else {
        let mut table = Table::new(["n", "gamma", "Q_pos", "M_ret", "entropy"]);
        for f in finals {
            table.push([
                f.n.to_string(),
                f.gamma.to_string(),
                f.q_pos.text(4),
                f.retained.text(4),
                f.entropy.text(2),
            ]);
        }
        out!("{}", table.render(Format::Text));
    }
    say!("results in {}", out.display());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_is_the_sample_deviation() {
        let found = Spread::of(&[1.0, 2.0, 3.0, 6.0]);
        assert_eq!((found.mean, found.deviation), (3.0, (14.0f64 / 3.0).sqrt()));
        assert_eq!(Spread::of(&[5.0]), Spread { mean: 5.0, deviation: 0.0 });
    }

    #[test]
    fn only_missing_runs_are_left_and_the_largest_groups_come_first() {
        let config = Config::parse("group_sizes = [2, 8]\ngammas = [0.0, 1.0]\nseeds = [3]", &[]).unwrap();
        let policy = Simulation::new(&config.setup(), 8, 1.0, 3).unwrap();
        let line = Line::of(Run { n: 8, gamma: 1.0, seed: 3 }, 0, policy.metrics());
        let todo: Vec<(u64, f64)> = missing(&config, &[line]).iter().map(|r| (r.n, r.gamma)).collect();
        assert_eq!(todo, [(8, 0.0), (2, 0.0), (2, 1.0)]);
    }
}
