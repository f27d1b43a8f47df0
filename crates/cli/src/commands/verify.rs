//! `fgrpo verify`: grades the input lines on all cores in bounded memory, and writes the verdicts in the order of the lines.
//!
//! A line that can't be read gets an unscorable verdict whose reason begins with `bad_input`, so that input and output lines
//! correspond; the command then exits with code 2. If a verifier panics, the line is unscorable and grading continues.

use crate::args::grading;
use crate::args::named::named_with;
use crate::args::overrides::{Kind, Place, of_task};
use crate::output::progress::bar;
use crate::output::streams;
use fgrpo_eval::dataset::rows;
use fgrpo_eval::graded::{Graded, guarded};
use fgrpo_eval::io::lines::{Lines, to_bytes};
use fgrpo_eval::io::{files, json};
use fgrpo_eval::kind::TaskKind;
use fgrpo_eval::verifier::Grading;
use fgrpo_train::config::{TextConfig, overridden};
use fgrpo_verify::verdict::Verdict;
use indicatif::ProgressBar;
use rayon::prelude::*;
use serde::Deserialize;
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::path::{Path, PathBuf};

/// Grade answers: one JSON line in, one JSON line out.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  echo '{\"gold\": \"1/2\", \"response\": \"so \\\\boxed{0.5}\"}' | fgrpo verify math -
  {\"verdict\":\"correct\",\"reason\":\"...\"}

  fgrpo verify ifeval responses.jsonl > verdicts.jsonl
  fgrpo verify python answers.jsonl --grader grade.py:reward
  fgrpo verify environment played.jsonl --grader env.py:Calculator    # rows with \"calls\" and \"response\"
  fgrpo verify command rows.jsonl --command 'python3 grade.py' --timeout-s 5

Exit code 2 if any input line is invalid or there is none, 1 if no line could be graded; the output lines give the reasons.")]
pub(crate) struct Args {
    /// Kind of the problems, which selects the verifier.
    #[arg(value_parser = named_with(TaskKind::line))]
    kind: TaskKind,
    /// JSON lines, CSV or Parquet, or a folder of such files; - reads JSON lines from standard input.
    input: PathBuf,
    #[command(flatten)]
    grading: grading::Flags,
    /// Number of threads [default: one per core; 1 for environments].
    #[arg(long, value_parser = fgrpo_train::config::threads)]
    threads: Option<usize>,
}

/// Number of lines that a thread grades between two writes.
const LINES_PER_THREAD: usize = 128;
/// Maximum size of a batch in bytes, unless a single line is larger.
const MOST_BYTES: usize = 1 << 26;

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let grading = grading(args)?;
    let threads = match args.threads {
        Some(0) => bad_input!("--threads: expected at least 1, found 0"),
        Some(n) => n,
        // A single child process runs the environments.
        None if args.kind == TaskKind::Environment => 1,
        // Each thread may have a child process with the user's grader.
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let (input, bytes) = open(&args.input)?;
    let mut input =
        Input { lines: Lines::new(input, &args.input), next: 1, limit: threads * LINES_PER_THREAD };
    let progress = progress(bytes);
    let mut total = Total::default();
    let result = grade_all(args.kind, &grading, threads, &mut input, &progress, &mut total);
    progress.finish_and_clear();
    if !result? {
        return Ok(());
    }
    if io::stderr().is_terminal() {
        say!("{total}");
    }
    if let Some((line, doubt)) = total.first_doubt {
        tracing::warn!(
            "{}: {} of {} lines are doubtful, first line {line}: {doubt}",
            args.input.display(),
            total.doubtful,
            total.lines()
        );
    }
    if let Some((line, why)) = &total.first_bad {
        bad_input!(
            "{}: {} of {} lines could not be read, first line {line}: {why}",
            args.input.display(),
            total.bad,
            total.lines()
        );
    }
    if total.lines() == 0 {
        bad_input!("{}: the input is empty", args.input.display());
    }
    if let (Some(reason), true) = (&total.first_unscorable, total.counts[3] == total.lines()) {
        anyhow::bail!(
            "{}: none of the {} lines could be graded; the first: {reason}",
            args.input.display(),
            total.lines()
        );
    }
    Ok(())
}

fn open(path: &Path) -> anyhow::Result<(Box<dyn BufRead + Send>, Option<u64>)> {
    if path == Path::new("-") {
        return Ok((Box::new(BufReader::with_capacity(1 << 16, io::stdin())), None));
    }
    if rows::is_table(path) {
        // A table is read as a whole, and each row becomes a line.
        let lines = to_bytes(rows::read(path)?)?;
        let bytes = lines.len() as u64;
        return Ok((Box::new(io::Cursor::new(lines)), Some(bytes)));
    }
    let file = match files::open(path) {
        Ok(file) => file,
        Err(error) => bad_input!("{}: {error}", path.display()),
    };
    // The uncompressed size of a compressed file is unknown.
    let plain = path.metadata().ok().filter(|m| m.is_file() && !files::is_compressed(path));
    let bytes = plain.map(|m| m.len());
    Ok((Box::new(BufReader::with_capacity(1 << 16, file)), bytes))
}

/// Returns a progress bar, which is hidden if the verdicts go to a terminal, or if stderr isn't a terminal.
fn progress(bytes: Option<u64>) -> ProgressBar {
    if io::stdout().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = match bytes {
        Some(_) => "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {left} left",
        None => "{spinner} {bytes} {bytes_per_sec}",
    };
    bar(bytes, template)
}

struct Input {
    lines: Lines<Box<dyn BufRead + Send>>,
    /// Line number of the next line.
    next: u64,
    /// Maximum number of lines in a batch.
    limit: usize,
}

impl Input {
    /// Reads the next lines into `batch`, with their numbers. If it fails, `batch` contains the lines before the error.
    fn read(&mut self, batch: &mut Vec<(u64, Vec<u8>)>) -> anyhow::Result<()> {
        batch.clear();
        let mut bytes = 0;
        while batch.len() < self.limit && bytes < MOST_BYTES {
            let Some(line) = self.lines.next_line()? else { break };
            let number = line.number as u64;
            // Blank lines get a verdict too.
            batch.extend((self.next..number).map(|blank| (blank, Vec::new())));
            self.next = number + 1;
            bytes += line.text.len();
            batch.push((number, line.text.to_vec()));
        }
        Ok(())
    }
}

/// Grades all lines on `threads` threads and writes the verdicts in input order. Returns `false` if the output was closed.
fn grade_all(
    kind: TaskKind,
    grading: &Grading,
    threads: usize,
    input: &mut Input,
    progress: &ProgressBar,
    total: &mut Total,
) -> anyhow::Result<bool> {
    // Verifiers are recursive, and a deeply nested answer must not overflow a small stack.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).stack_size(64 << 20).build()?;
    let mut batch = Vec::new();
    let mut read = input.read(&mut batch);
    // Fails for a broken grader before the first line is graded.
    let verifier = |(_, line): &(u64, Vec<u8>)| kind.verifier_of_line(line, grading).ok();
    batch.iter().find_map(verifier).map_or(Ok(()), |verifier| verifier.check_start())?;
    while !batch.is_empty() {
        let graded = || batch.par_iter().map(|(number, line)| grade(kind, grading, *number, line)).collect();
        let answers: Vec<Answer> = pool.install(graded);
        let mut text = String::new();
        for answer in answers {
            text += &serde_json::to_string(&answer.graded)?;
            text.push('\n');
            total.add(answer);
        }
        if !streams::stream(&text) {
            return Ok(false);
        }
        progress.inc(batch.iter().map(|(_, line)| line.len() as u64 + 1).sum());
        read?;
        read = input.read(&mut batch);
    }
    read.map(|()| true)
}

/// Result for a line.
struct Answer {
    number: u64,
    graded: Graded,
    /// Reason why the line can't be read.
    bad: Option<String>,
    doubt: Option<&'static str>,
}

/// Sums over the whole input.
#[derive(Default)]
struct Total {
    /// Number of lines for each verdict.
    counts: [u64; 4],
    bad: u64,
    first_bad: Option<(u64, String)>,
    first_unscorable: Option<String>,
    doubtful: u64,
    first_doubt: Option<(u64, &'static str)>,
}

impl Total {
    fn lines(&self) -> u64 {
        self.counts.iter().sum()
    }

    fn add(&mut self, Answer { number, graded, bad, doubt }: Answer) {
        self.counts[graded.verdict as usize] += 1;
        self.bad += u64::from(bad.is_some());
        self.first_bad = self.first_bad.take().or(bad.map(|why| (number, why)));
        self.doubtful += u64::from(doubt.is_some());
        self.first_doubt = self.first_doubt.or(doubt.map(|doubt| (number, doubt)));
        if graded.verdict == Verdict::Unscorable {
            self.first_unscorable.get_or_insert_with(|| graded.reason.to_string());
        }
    }
}

impl std::fmt::Display for Total {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [correct, wrong, unparsed, unscorable] = self.counts;
        write!(
            f,
            "{} lines: {correct} correct, {wrong} wrong, {unparsed} unparsed, {unscorable} unscorable",
            self.lines()
        )
    }
}

/// Response in a line.
#[derive(Deserialize)]
struct Response {
    #[serde(alias = "pred", alias = "completion")]
    response: String,
}

/// Returns the verifier settings for all lines.
fn grading(args: &Args) -> anyhow::Result<Grading> {
    let mut text = TextConfig::of(args.kind, Path::new("-"));
    if args.kind == TaskKind::SynLogic {
        // By default, the response is the answer itself, without format tags.
        text.verifier.format_gate = false;
    }
    let place = Place { prefix: String::new(), kind: Kind::Text(args.kind) };
    let text = overridden(&text, &of_task(&args.grading.of_task()?, &[place], &[])?)?;
    text.check()?;
    if args.kind == TaskKind::Math {
        args.grading.check_mode(text.verifier.mode)?;
    }
    args.kind.grading(text.grading())
}

fn grade(kind: TaskKind, grading: &Grading, number: u64, line: &[u8]) -> Answer {
    let (mut bad, mut doubt) = (None, None);
    let graded = guarded(|| {
        grade_line(kind, grading, line, &mut doubt).unwrap_or_else(|why| {
            let unscorable = Graded::unscorable(format!("bad_input: line {number}: {why}"));
            bad = Some(why);
            unscorable
        })
    });
    Answer { number, graded, bad, doubt }
}

/// Grades a line, or returns the reason why it can't be read. Sets `doubt` if the reference answer is doubtful.
fn grade_line(
    kind: TaskKind,
    grading: &Grading,
    line: &[u8],
    doubt: &mut Option<&'static str>,
) -> Result<Graded, String> {
    let verifier = kind.verifier_of_line(line, grading)?;
    *doubt = verifier.doubt();
    let Response { response } = json::parse(line).map_err(|why| why.to_string())?;
    Ok(grading.grade(&response, |response| verifier.explain(response)))
}
