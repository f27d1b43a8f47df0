//! Several runs: the training of what isn't finished.

use crate::commands::train::run_and_report;
use crate::output::progress::Console;
use fgrpo_eval::events::Events;
use fgrpo_eval::failure::Stopped;
use fgrpo_eval::io::interrupt;
use fgrpo_nn::DeviceName;
use fgrpo_train::config::Config;
use fgrpo_train::run::folder::IfExists;
use fgrpo_train::run::state::State;
use fgrpo_train::trainer::Ending;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

/// How many runs train at the same time.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Jobs {
    /// Runs at the same time, each with compute.threads threads; the results don't depend on it.
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub jobs: u64,
}

/// A run to train: its configuration, its folder and what is there.
pub type Planned<'a> = (&'a Config, &'a Path, State);

/// The error of a command that was stopped and that goes on if it is given again.
pub fn stopped() -> anyhow::Error {
    Stopped("stopped on request. The same command goes on with what is saved".to_owned()).into()
}

/// What several trainings share.
struct Queue<'a> {
    runs: Vec<Planned<'a>>,
    next: usize,
    ended: usize,
    /// Shows the runs together, if several train at the same time.
    console: Option<Console>,
    /// Whether all so far are done: not after a request to stop, nor after an error.
    done: anyhow::Result<bool>,
}

/// Trains the unfinished runs, each with its report; a run that was started resumes from its last checkpoint. Returns
/// whether all are done: after a request to stop, some are not. After an error no other run begins.
///
/// # Errors
/// The error of the first run that fails.
pub fn train_unfinished<'a>(
    runs: impl Iterator<Item = Planned<'a>>,
    device: DeviceName,
    jobs: Jobs,
) -> anyhow::Result<bool> {
    interrupt::listen();
    let runs: Vec<Planned<'_>> = runs.collect();
    let ended = runs.iter().filter(|(_, _, state)| *state == State::Finished).count();
    if ended > 0 {
        say!("{ended} of {} runs are done", runs.len());
    }
    let workers = usize::try_from(jobs.jobs)?.min(runs.len() - ended);
    let console = (workers > 1).then(|| {
        let mut console = Console::new();
        console.begin("runs", ended as u64, runs.len() as u64);
        console
    });
    let queue = Mutex::new(Queue { runs, next: 0, ended, console, done: Ok(true) });
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

/// Trains one run after another, as long as nothing stops it.
fn work(queue: &Mutex<Queue<'_>>, device: DeviceName) {
    let locked = || queue.lock().expect("a panic ends the program");
    loop {
        let (config, folder, if_exists, name, alone) = {
            let mut queue = locked();
            let Some(&(config, folder, state)) = queue.runs.get(queue.next) else { return };
            if !matches!(queue.done, Ok(true)) {
                return;
            }
            queue.next += 1;
            let name = format!("[{}/{}] {}", queue.next, queue.runs.len(), folder.display());
            let if_exists = match state {
                State::Finished => continue,
                State::Begun => IfExists::Resume { accept_changes: false },
                State::Absent => IfExists::Refuse,
            };
            queue.say(&name);
            (config, folder, if_exists, name, queue.console.is_none())
        };
        let mut console = if alone { Console::new() } else { Console::quiet() };
        let ended = run_and_report(config, folder, if_exists, device, &mut console);
        let mut queue = locked();
        queue.ended += 1;
        match ended {
            Ok(Ending::Done(summary)) if alone => say!("{summary}"),
            Ok(Ending::Done(summary)) => {
                queue.say(&format!("{name}: done. {}", summary.lines().last().unwrap_or_default()));
                let ended = queue.ended as u64;
                queue.console.iter_mut().for_each(|console| console.progress(ended, String::new()));
            }
            Ok(Ending::Interrupted) => queue.stop(Ok(false)),
            Err(error) => queue.stop(Err(error)),
        }
    }
}

impl Queue<'_> {
    fn say(&mut self, line: &str) {
        match &mut self.console {
            Some(console) => console.say(line),
            None => say!("{line}"),
        }
    }

    /// Begins no other run. The first error is the one to tell.
    fn stop(&mut self, because: anyhow::Result<bool>) {
        if self.done.is_ok() {
            self.done = because;
        }
    }
}
