//! Progress of a run: a bar with the remaining time on a terminal, otherwise an occasional line. All messages are also
//! written to the run's `log.txt`.

use anyhow::Context;
use fgrpo_eval::amounts::duration;
use fgrpo_eval::events::Events;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Cells of a bar, from full to empty.
const CHARACTERS: &str = "█▉▊▋▌▍▎▏░";

/// Without a terminal, progress is printed every 10 s, or after each tenth of the stage if that takes between 1 s and 10 s.
const BETWEEN_LINES: Duration = Duration::from_secs(10);
const BETWEEN_TENTHS: Duration = Duration::from_secs(1);

/// Prints the events of a run to stderr and writes them to its log.
#[derive(Debug)]
pub struct Console {
    log: Option<File>,
    folder: Option<PathBuf>,
    started: Instant,
    terminal: bool,
    /// Whether messages go only to the log.
    quiet: bool,
    stage: Option<Stage>,
}

#[derive(Debug)]
struct Stage {
    bar: ProgressBar,
    name: &'static str,
    /// Time at which the last line was printed, and the position that it reported.
    printed: Instant,
    printed_at: u64,
    started: Instant,
    /// Position at which this process started.
    from: u64,
}

impl Console {
    /// Prints to stderr, and also to a log as soon as a run folder is open.
    pub fn new() -> Self {
        Self {
            log: None,
            folder: None,
            started: Instant::now(),
            terminal: std::io::stderr().is_terminal(),
            quiet: false,
            stage: None,
        }
    }

    /// Writes only to the log, for one of several runs that train at the same time.
    pub fn quiet() -> Self {
        Self { terminal: false, quiet: true, ..Self::new() }
    }

    /// Returns whether the run that this console reports on has opened `folder`.
    pub fn opened_folder(&self, folder: &Path) -> bool {
        self.folder.as_deref() == Some(folder)
    }
}

impl Default for Console {
    fn default() -> Self {
        Self::new()
    }
}

impl Events for Console {
    fn opened(&mut self, folder: &Path) -> anyhow::Result<()> {
        let path = folder.join("log.txt");
        let log = File::options().create(true).append(true).open(&path);
        self.log = Some(log.with_context(|| format!("opening {}", path.display()))?);
        self.folder = Some(folder.to_owned());
        self.started = Instant::now();
        Ok(())
    }

    fn version(&self) -> &str {
        super::VERSION
    }

    fn say(&mut self, line: &str) {
        match &self.stage {
            Some(stage) if self.terminal => stage.bar.println(fgrpo_eval::io::harmless::harmless(line)),
            _ if self.quiet => {}
            _ => say!("{line}"),
        }
        self.note(line);
    }

    fn note(&mut self, line: &str) {
        if let Some(log) = &mut self.log {
            // If the disk is full, writing the results reports it.
            let _ = writeln!(log, "[{:>9.1}s] {line}", self.started.elapsed().as_secs_f64());
        }
    }

    fn begin(&mut self, stage: &'static str, done: u64, length: u64) {
        if self.quiet {
            return;
        }
        let bar = bar(Some(length), "{prefix:>6} {bar:14.cyan/238} {pos}/{len} {left:>3} left  {wide_msg}")
            .with_position(done);
        bar.set_prefix(stage);
        bar.reset_eta();
        let now = Instant::now();
        self.stage =
            Some(Stage { bar, name: stage, printed: now, printed_at: done, started: now, from: done });
    }

    fn progress(&mut self, position: u64, message: String) {
        let Some(stage) = &mut self.stage else { return };
        stage.bar.set_position(position);
        let length = stage.bar.length().unwrap_or(0);
        let between = if 10 * position.saturating_sub(stage.printed_at) < length {
            BETWEEN_LINES
        } else {
            BETWEEN_TENTHS
        };
        if self.terminal {
            stage.bar.set_message(message);
        } else if stage.printed.elapsed() > between {
            (stage.printed, stage.printed_at) = (Instant::now(), position);
            let per_step =
                stage.started.elapsed().as_secs_f64() / position.saturating_sub(stage.from).max(1) as f64;
            let remaining = duration(per_step * length.saturating_sub(position) as f64);
            let line = format!("{} {position}/{length} {message}, {remaining} left", stage.name);
            self.say(&line);
        }
    }

    fn doing(&mut self, what: &str) {
        if let Some(stage) = &self.stage {
            stage.bar.set_message(what.to_owned());
        }
    }

    fn end(&mut self) {
        if let Some(stage) = self.stage.take() {
            stage.bar.finish_and_clear();
        }
    }
}

/// Returns a progress bar, which is hidden unless stderr is a terminal. `length` is `None` for a stream.
pub fn bar(length: Option<u64>, template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(length, ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template(template).expect("the template is constant");
    let bar = length.map_or_else(ProgressBar::no_length, ProgressBar::new);
    // Before the first step, the remaining time is unknown.
    let remaining = |state: &ProgressState, to: &mut dyn std::fmt::Write| {
        let _ = match state.pos() {
            0 => to.write_str("?"),
            _ => to.write_str(&duration(state.eta().as_secs_f64())),
        };
    };
    bar.set_style(style.with_key("left", remaining).progress_chars(CHARACTERS));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
