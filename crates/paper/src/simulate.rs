//! Runs the categorical simulation over group sizes, gammas and seeds for `fgrpo simulate`.
//!
//! Runs are independent and distributed over threads, the longest first. Each run depends only on the configuration, so
//! neither the number of threads nor an interruption changes a result.

mod config;
mod figures;
mod folder;
mod points;

pub use config::Config;
pub use points::{Point, Spread};

use anyhow::Context;
use fgrpo_core::sim::Simulation;
use fgrpo_eval::events::Events;
use fgrpo_eval::figure::Figure;
use fgrpo_eval::io::files::write_whole;
use fgrpo_eval::io::interrupt;
use folder::{Folder, Line, Run};
use points::points;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Instant;

/// A finished sweep.
pub struct Sweep {
    /// Configuration of the sweep.
    pub config: Config,
    /// The recorded steps of all runs.
    lines: Vec<Line>,
    /// The metrics at each recorded step, averaged over seeds.
    points: Vec<Point>,
}

impl Sweep {
    fn of(config: Config, lines: Vec<Line>) -> Self {
        let points = points(&config, &lines);
        Self { config, lines, points }
    }

    /// Reads the sweep in a folder.
    /// Fails if the folder doesn't contain a finished sweep.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let (config, lines) = folder::read(path)?;
        Ok(Self::of(config, lines))
    }

    /// Returns the metrics of every group size and gamma after a step.
    pub fn at(&self, step: u64) -> Vec<Point> {
        self.points.iter().filter(|point| point.step == step).copied().collect()
    }

    /// Returns the metrics after the last step.
    pub fn finals(&self) -> Vec<Point> {
        self.at(self.config.steps)
    }

    /// Draws the paper's figure.
    pub fn figure(&self) -> Figure {
        figures::panels(&self.config, &self.points, &self.finals())
    }

    /// Draws the theory's tail-miss probability at the sweep's group sizes.
    /// Fails if the theory doesn't cover the initial policy.
    pub fn tail_miss(&self) -> anyhow::Result<Figure> {
        Ok(figures::tail_miss(&self.config)?.0)
    }

    /// Writes the values as CSV into a folder.
    fn write(&self, out: &Path) -> anyhow::Result<()> {
        let ends = self.lines.iter().filter(|l| l.step == self.config.steps);
        write_whole(&out.join("final.csv"), folder::csv(ends).as_bytes())?;
        write_whole(&out.join("curves.csv"), folder::csv(self.lines.iter()).as_bytes())?;
        write_whole(&out.join("tail-miss.csv"), figures::tail_miss(&self.config)?.1.as_bytes())
    }
}

/// Simulates the runs that the folder doesn't contain yet, and writes all values to the folder. The inner error is the number
/// of saved runs, if the sweep was stopped on request.
/// Fails if the folder contains something else, if results can't be written, or if a policy diverges.
pub fn run(
    config: Config,
    out: &Path,
    threads: usize,
    events: &mut dyn Events,
) -> anyhow::Result<Result<Sweep, usize>> {
    let (mut folder, mut lines) = Folder::open(out, &config)?;
    let todo = missing(&config, &lines);
    let finished = sweep(threads, &config, &mut folder, &todo, &mut lines, events)?;
    if finished < todo.len() {
        return Ok(Err(config.runs() - todo.len() + finished));
    }
    folder.finish(&mut lines)?;
    let sweep = Sweep::of(config, lines);
    sweep.write(out)?;
    Ok(Ok(sweep))
}

/// Returns the runs that `lines` doesn't contain, the longest first.
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

/// Simulates the runs `todo`, adds them to the folder and to `lines`, and returns the number of finished runs.
fn sweep(
    threads: usize,
    config: &Config,
    folder: &mut Folder,
    todo: &[Run],
    lines: &mut Vec<Line>,
    events: &mut dyn Events,
) -> anyhow::Result<usize> {
    if todo.is_empty() {
        events.say(&format!("all {} runs are done already", config.runs()));
        return Ok(0);
    }
    let threads = threads.min(todo.len());
    let before = match config.runs() - todo.len() {
        0 => String::new(),
        done => format!(", {done} done before"),
    };
    let all = todo.len();
    events.say(&format!("{all} runs of {} steps on {threads} threads{before}", config.steps));
    events.begin("simulate", 0, all as u64 * config.steps);
    let (started, next) = (Instant::now(), AtomicUsize::new(0));
    let finished = std::thread::scope(|scope| {
        let (sender, results) = mpsc::channel();
        for _ in 0..threads {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                while let Some(&run) = todo.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // The receiver is gone if results can't be written.
                    let stepped = |n| sender.send(Ok((n, None))).is_ok() && !interrupt::requested();
                    let Some(result) = simulate(config, run, stepped).transpose() else { break };
                    if sender.send(result.map(|lines| (0, Some(lines)))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let (mut finished, mut steps) = (0, 0);
        for message in results {
            let (stepped, run): (u64, Option<Vec<Line>>) = message?;
            if let Some(run) = run {
                folder.append(&run)?;
                lines.extend(run);
                finished += 1;
            }
            steps += stepped;
            events.progress(steps, format!("{finished}/{all} runs"));
        }
        anyhow::Ok(finished)
    });
    events.end();
    let finished = finished?;
    folder.sync()?;
    events.say(&format!("{finished} runs in {:.1} s", started.elapsed().as_secs_f64()));
    Ok(finished)
}

/// Simulates a run and returns its recorded lines, or `None` if it was stopped. `stepped` is called with the number of steps
/// taken since the last call, and returns false to stop the run.
fn simulate(config: &Config, run: Run, stepped: impl Fn(u64) -> bool) -> anyhow::Result<Option<Vec<Line>>> {
    let Run { n, gamma, seed } = run;
    let mut policy = Simulation::new(&config.setup, n, gamma, seed)?;
    let mut lines = vec![Line::of(run, 0, policy.metrics())];
    for step in 1..=config.steps {
        policy.step().with_context(|| format!("group size {n}, gamma {gamma}, seed {seed}"))?;
        if config.records(step) {
            lines.push(Line::of(run, step, policy.metrics()));
        }
        let last = step == config.steps;
        if last || step % 16 == 0 {
            let goes_on = stepped((step - 1) % 16 + 1);
            if !goes_on && !last {
                return Ok(None);
            }
        }
    }
    Ok(Some(lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_runs_are_left_and_the_largest_groups_come_first() {
        let config = Config::parse("group_sizes = [2, 8]\ngammas = [0.0, 1.0]\nseeds = [3]", &[]).unwrap();
        let policy = Simulation::new(&config.setup, 8, 1.0, 3).unwrap();
        let line = Line::of(Run { n: 8, gamma: 1.0, seed: 3 }, 0, policy.metrics());
        let todo: Vec<(u64, f64)> = missing(&config, &[line]).iter().map(|r| (r.n, r.gamma)).collect();
        assert_eq!(todo, [(8, 0.0), (2, 0.0), (2, 1.0)]);
    }
}
