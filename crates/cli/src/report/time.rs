//! Time of the phases of training.

use super::input::{Metrics, Run};
use super::runs::{Group, Runs};
use crate::chart::page::{Labels, Lines, Part, Plot, stack};
use crate::output::format::date;
use fgrpo_eval::amounts::{bytes, counted};
use fgrpo_eval::figure::Colour;
use fgrpo_train::run::metrics::{Number, Seconds};
use fgrpo_train::run::sessions::Session;
use serde::Serialize;

/// Accessor for the seconds of a phase of a step.
type Phase = fn(&Seconds<Number>) -> Option<f64>;

/// The phases in the order of the loop, with their colours.
const PHASES: [(&str, Colour, Phase); 5] = [
    ("rollout", Colour::Series(0), |s| s.rollout.0),
    ("grade", Colour::Series(4), |s| s.grade.0),
    ("update", Colour::Series(1), |s| s.update.0),
    ("evaluate", Colour::Series(3), |s| s.evaluate.0),
    ("save", Colour::Series(2), |s| s.save.0),
];

/// Name of the time outside of all phases.
const OTHER: &str = "other";

/// Maximum number of groups for which stacks are drawn.
const SINGLE: usize = 6;

/// Data of `time.html`.
#[derive(Debug, Serialize)]
pub(super) struct Time<'a> {
    /// Names of the table's columns.
    phases: Vec<&'static str>,
    rows: Vec<Row<'a>>,
    sessions: Vec<SessionRow<'a>>,
    plots: Vec<Plot>,
}

#[derive(Debug, Serialize)]
struct SessionRow<'a> {
    group: &'a Group,
    run: &'a str,
    started: String,
    program: &'a str,
    machine: String,
    memory: Option<String>,
}

#[derive(Debug, Serialize)]
struct Row<'a> {
    group: &'a Group,
    run: &'a str,
    steps: usize,
    /// Total seconds of all steps.
    seconds: f64,
    /// Fraction of the time in each phase.
    shares: Vec<f64>,
}

/// Returns the section, or `None` if no step has a time.
pub(super) fn section(runs: &Runs) -> Option<Time<'_>> {
    let mut plots: Vec<Plot> =
        runs.groups.iter().take(SINGLE).filter_map(|group| stacked(runs, group)).collect();
    for (title, field) in [
        ("Rollout throughput", (|m| m.rollout_tokens_per_second.0) as fn(&Metrics) -> Option<f64>),
        ("Update throughput", |m| m.update_tokens_per_second.0),
    ] {
        let curves = runs.curves(|run| {
            run.files.metrics.iter().filter_map(|m| Some((m.step as f64, field(m)?))).collect()
        });
        let labels = Labels::new(title, "", "step", "tokens per second");
        plots.extend(Lines { labels, curves, show: vec![0.0], ..Lines::default() }.draw());
    }
    let phases: Vec<&str> = PHASES.iter().map(|p| p.0).chain([OTHER]).collect();
    let pairs = || runs.groups.iter().flat_map(|group| runs.of(group).map(move |run| (group, run)));
    let rows = pairs().filter_map(|(group, run)| row(group, run, &phases)).collect();
    let sessions =
        pairs().flat_map(|(group, run)| run.files.sessions.iter().map(move |s| session(group, run, s)));
    (!plots.is_empty()).then_some(Time { rows, sessions: sessions.collect(), phases, plots })
}

fn session<'a>(group: &'a Group, run: &'a Run, session: &'a Session) -> SessionRow<'a> {
    SessionRow {
        group,
        run: &run.name,
        started: date(session.started),
        program: &session.program,
        machine: machine(session),
        memory: session.memory_peak_bytes.map(bytes),
    }
}

/// Describes the device, processor and threads of a session.
fn machine(session: &Session) -> String {
    let threads = counted(session.threads, "thread");
    let device = Some(session.device.as_str()).filter(|device| *device != "cpu");
    [device, session.processor.as_deref(), Some(&threads)]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(", ")
}

/// Describes the last session of a run in a line: date, program version, machine and memory.
pub(super) fn origin(run: &Run) -> Option<String> {
    let last = run.files.sessions.last()?;
    let resumed = match run.files.sessions.len() {
        1 => String::new(),
        n => format!(" (the last of {n} sessions)"),
    };
    let memory =
        last.memory_peak_bytes.map_or(String::new(), |n| format!(", {} of memory at most", bytes(n)));
    Some(format!("{}{resumed}, {}, {}{memory}", date(last.started), last.program, machine(last)))
}

fn row<'a>(group: &'a Group, run: &'a Run, phases: &[&str]) -> Option<Row<'a>> {
    let seconds = total_seconds(run);
    let parts = parts(run);
    let share = |name: &&str| {
        let part = parts.iter().find(|p| p.name == **name).map_or(0.0, |p| p.values.iter().sum());
        (part / seconds * 1_000.0).round() / 1_000.0
    };
    (seconds > 0.0).then(|| Row {
        group,
        run: &run.name,
        steps: run.files.metrics.len(),
        seconds,
        shares: phases.iter().map(share).collect(),
    })
}

fn seconds(m: &Metrics, phase: Phase) -> f64 {
    phase(&m.seconds).unwrap_or(0.0)
}

/// Returns the sum of the known times of a step's phases.
fn known(m: &Metrics) -> f64 {
    PHASES.iter().map(|p| seconds(m, p.2)).sum()
}

/// Returns the time of a step: the recorded time, or the sum of its phases if that is larger.
fn total(m: &Metrics) -> f64 {
    seconds(m, |s| s.total.0).max(known(m))
}

/// Returns the total time of a run's RL steps.
pub(super) fn total_seconds(run: &Run) -> f64 {
    run.files.metrics.iter().map(total).sum()
}

/// Returns the times of each phase, and the time outside of all phases.
fn parts(run: &Run) -> Vec<Part> {
    let part = |name: &str, colour: Colour, value: &dyn Fn(&Metrics) -> f64| Part {
        name: name.into(),
        colour,
        values: run.files.metrics.iter().map(value).collect(),
    };
    let mut parts: Vec<Part> =
        PHASES.iter().map(|(name, colour, phase)| part(name, *colour, &|m| seconds(m, *phase))).collect();
    parts.push(part(OTHER, Colour::Muted, &|m| (total(m) - known(m)).max(0.0)));
    parts.retain(|p| p.values.iter().any(|v| *v > 0.0));
    parts
}

/// Plots the phases of the group's first run.
fn stacked(runs: &Runs, group: &Group) -> Option<Plot> {
    let run = runs.first(group);
    let steps: Vec<f64> = run.files.metrics.iter().map(|m| m.step as f64).collect();
    let title =
        if runs.several() { format!("Time of a step: {}", group.name) } else { "Time of a step".into() };
    let plot = stack(Labels::new(title, "", "step", "seconds"), &steps, &parts(run), false)?;
    Some(plot.of_group(group.colour))
}
