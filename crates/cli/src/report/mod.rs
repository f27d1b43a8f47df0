//! `fgrpo report`: one HTML file about one or several runs.
//!
//! The page works offline: it contains its style, script and plots. It is made only from the files in the run folders. Except
//! for smoothing, it shows only statistics that `eval` and `compare` compute too.

pub(crate) mod card;
mod configuration;
mod difference;
mod evaluation;
mod findings;
mod input;
mod maze;
mod mazes;
mod page;
mod rollouts;
mod runs;
pub(crate) mod sampled;
mod summary;
mod templates;
mod time;
mod training;

use fgrpo_eval::io::files::{self, write_whole};
use fgrpo_eval::io::interrupt;
use fgrpo_train::run;
use input::Run;
use page::{Section, page};
use runs::Runs;
pub(crate) use runs::is_setting;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use templates::Templates;

/// Write an HTML report of one or several runs.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  fgrpo report runs/grpo runs/f-grpo --out compare.html\n  fgrpo report runs/maze-quick --watch\n\n\
    A folder that holds run folders (as `fgrpo sweep` makes them) stands for all of them."
)]
pub(crate) struct Args {
    /// Run folders.
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// File to write [default: report.html in the run folder, or in the current folder for several runs].
    #[arg(long, value_name = "FILE.html")]
    out: Option<PathBuf>,
    /// Update the page every 15 seconds while the runs continue; it reloads itself. Ctrl-C ends.
    #[arg(long)]
    watch: bool,
}

/// Seconds between two updates with `--watch`.
const WATCHED: u64 = 15;

/// Runs the command, and prints the path of the report to stdout.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let out = match (&args.out, args.runs.as_slice()) {
        (Some(out), _) => out.clone(),
        (None, [only]) => only.join("report.html"),
        (None, _) => PathBuf::from("report.html"),
    };
    if !args.watch {
        write_report(&args.runs, &out)?;
        outln!("{}", out.display());
        return Ok(());
    }
    interrupt::listen();
    let mut written = None;
    while !interrupt::requested() {
        if written.is_none_or(|last: Instant| last.elapsed().as_secs() >= WATCHED) {
            let is_first = written.is_none();
            written = write(&args.runs, &out, Some(WATCHED))?.map(|_| Instant::now());
            if is_first && written.is_some() {
                outln!("{}", out.display());
            }
        }
        std::thread::sleep(Duration::from_millis(if written.is_some() { 100 } else { 1000 }));
    }
    // The last page doesn't reload itself.
    write(&args.runs, &out, None)?;
    Ok(())
}

/// Writes the report of these runs to `out` atomically. Returns its opening sentences.
pub(crate) fn write_report(runs: &[PathBuf], out: &Path) -> anyhow::Result<Vec<String>> {
    match write(runs, out, None)? {
        Some(lead) => Ok(lead),
        None => bad_input!(
            "{}: nothing to report yet: metrics.jsonl, sft.jsonl and eval.jsonl are missing or empty",
            runs.iter().map(|run| run.display().to_string()).collect::<Vec<_>>().join(", ")
        ),
    }
}

/// Writes the report and returns its opening sentences, or returns `None` if no run has a line yet.
fn write(runs: &[PathBuf], out: &Path, refresh: Option<u64>) -> anyhow::Result<Option<Vec<String>>> {
    let mut all = Vec::new();
    for named in runs {
        let mut members =
            run_folders(named)?.iter().map(|f| Run::read(f)).collect::<anyhow::Result<Vec<_>>>()?;
        // In a sweep, the baseline comes first, because the other runs are compared with it.
        members.sort_by(|a, b| a.focal_gamma().total_cmp(&b.focal_gamma()));
        all.append(&mut members);
    }
    let runs = Runs::new(all);
    if runs.all.is_empty() {
        return Ok(None);
    }
    write_whole(out, html(&runs, refresh)?.as_bytes())?;
    Ok(Some(summary::lead(&runs)))
}

/// Returns the folder itself if it is a run folder, otherwise the run folders inside it, sorted by name.
fn run_folders(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        bad_input!("{}: no such folder", folder.display());
    }
    if run::Run::is_in(folder) {
        return Ok(vec![folder.to_path_buf()]);
    }
    let folders: Vec<PathBuf> =
        files::listed(folder)?.into_iter().filter(|path| run::Run::is_in(path)).collect();
    if folders.is_empty() {
        bad_input!(
            "{}: not a run folder: it has none of {}, and no run folders inside",
            folder.display(),
            run::FILES.join(", ")
        );
    }
    Ok(folders)
}

/// Renders all sections, and the page that contains them.
fn html(runs: &Runs, refresh: Option<u64>) -> anyhow::Result<String> {
    let templates = Templates::new()?;
    let mut sections = Vec::new();
    let mut add = |section: Option<Section>| sections.extend(section);
    add(section(&templates, "Summary", Some(summary::section(runs)))?);
    add(section(&templates, "Evaluation", evaluation::section(runs))?);
    add(section(&templates, "Training", training::section(runs))?);
    add(section(&templates, "Time", time::section(runs))?);
    add(section(&templates, "Mazes", mazes::section(runs))?);
    add(section(&templates, "Rollouts", rollouts::section(runs))?);
    add(section(&templates, "Configuration", configuration::section(runs))?);
    let title = match runs.all.as_slice() {
        [one] => one.name.clone(),
        _ => runs.groups.iter().map(|g| g.name.as_str()).collect::<Vec<_>>().join(" \u{b7} "),
    };
    let sources: Vec<&str> = runs.all.iter().map(|r| r.path.as_str()).collect();
    page(&templates, &title, &runs.groups, &sections, &sources, refresh)
}

/// Renders a section with the template and the anchor of its name, or returns `None` without content.
fn section(
    templates: &Templates,
    title: &str,
    content: Option<impl Serialize>,
) -> anyhow::Result<Option<Section>> {
    let Some(content) = content else { return Ok(None) };
    let anchor = title.to_lowercase();
    let content = templates.render(&format!("{anchor}.html"), &content)?;
    Ok(Some(Section { anchor, title: title.to_owned(), content }))
}
