//! Trains several runs, except those that are finished.

use crate::commands::train::run_and_report;
use crate::output::progress::Console;
use fgrpo_eval::events::Events;
use fgrpo_eval::failure::Stopped;
use fgrpo_eval::io::interrupt;
use fgrpo_nn::DeviceName;
use fgrpo_train::config::Config;
use fgrpo_train::run::folder::IfExists;
use fgrpo_train::run::state::State;
use fgrpo_train::session::Ending;
use std::path::Path;
use std::sync::Mutex;
use std::{thread, vec};

#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Jobs {
    /// Number of runs that train at the same time, each with compute.threads threads. Results don't depend on it.
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: u16,
}

/// Returns the error that a stopped command reports, which says that the command can be continued.
pub(crate) fn stopped() -> anyhow::Error {
    Stopped("stopped on request. The same command continues from the saved state".to_owned()).into()
}

/// A run that isn't finished.
struct Waiting<'a> {
    /// Position among all runs, and the folder, as printed: `[2/8] runs/a`.
    name: String,
    config: &'a Config,
    folder: &'a Path,
    if_exists: IfExists,
}

/// State that the workers share.
struct Queue<'a> {
    waiting: vec::IntoIter<Waiting<'a>>,
    finished: u64,
    /// Progress of all runs, if several train at the same time.
    console: Option<Console>,
    /// `Ok(true)` as long as no run was stopped, `Ok(false)` after a request to stop, or the first error.
    done: anyhow::Result<bool>,
}

/// Trains the unfinished runs and writes their reports. A started run resumes from its last checkpoint. Returns `false` if a
/// request to stop left some runs unfinished. After an error, no other run starts.
pub(crate) fn train_unfinished<'a>(
    runs: impl ExactSizeIterator<Item = (&'a Config, &'a Path, State)>,
    device: DeviceName,
    jobs: Jobs,
) -> anyhow::Result<bool> {
    interrupt::listen();
    let total = runs.len();
    let waiting = runs.enumerate().filter_map(|(i, (config, folder, state))| {
        let if_exists = match state {
            State::Finished => return None,
            State::Begun => IfExists::Resume { accept_changes: false },
            State::Absent => IfExists::Refuse,
        };
        Some(Waiting { name: format!("[{}/{total}] {}", i + 1, folder.display()), config, folder, if_exists })
    });
    let waiting: Vec<Waiting<'_>> = waiting.collect();
    let finished = (total - waiting.len()) as u64;
    if finished > 0 {
        say!("{finished} of {total} runs are finished");
    }
    let workers = usize::from(jobs.jobs).min(waiting.len());
    let console = (workers > 1).then(|| {
        let mut console = Console::new();
        console.begin("runs", finished, total as u64);
        console
    });
    let queue = Mutex::new(Queue { waiting: waiting.into_iter(), finished, console, done: Ok(true) });
    thread::scope(|scope| {
        for _ in 1..workers {
            scope.spawn(|| work(&queue, device));
        }
        work(&queue, device);
    });
    let mut queue = queue.into_inner().expect("a panic ends the program");
    if let Some(console) = &mut queue.console {
        console.end();
    }
    queue.done
}

/// Trains runs of the queue one after another, until it is empty or a run was stopped or failed.
fn work(queue: &Mutex<Queue<'_>>, device: DeviceName) {
    let locked = || queue.lock().expect("a panic ends the program");
    loop {
        let mut shared = locked();
        let (true, Some(run)) = (matches!(shared.done, Ok(true)), shared.waiting.next()) else { return };
        let mut console = match &mut shared.console {
            Some(together) => {
                together.say(&run.name);
                Console::quiet()
            }
            None => {
                say!("{}", run.name);
                Console::new()
            }
        };
        drop(shared);
        let result = run_and_report(run.config, run.folder, run.if_exists, device, &mut console);
        let mut shared = locked();
        match result {
            Ok(Ending::Done(results)) => shared.report(&run.name, &results.to_string()),
            Ok(Ending::Interrupted) => shared.stop(Ok(false)),
            Err(error) => shared.stop(Err(error)),
        }
    }
}

impl Queue<'_> {
    fn report(&mut self, name: &str, summary: &str) {
        self.finished += 1;
        let Some(together) = &mut self.console else { return say!("{summary}") };
        together.say(&format!("{name}: done. {}", summary.lines().last().unwrap_or_default()));
        together.progress(self.finished, String::new());
    }

    /// Prevents other runs from starting. If several runs fail, the first error is retained.
    fn stop(&mut self, because: anyhow::Result<bool>) {
        if self.done.is_ok() {
            self.done = because;
        }
    }
}
