//! `fgrpo data`: generates training data (SynLogic, arithmetic, word problems), and shows any data set as a model sees it.
//!
//! A SynLogic problem depends only on seed, task, difficulty and index, so a longer file begins with the problems of a shorter
//! one, and the number of threads doesn't change the problems.

use anyhow::Context;
use fgrpo_core::rng::Key;
use fgrpo_eval::dataset::Problem;
use fgrpo_eval::dataset::verl_rows;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::io::files::{parent, partial_file};
use fgrpo_eval::io::lines::to_bytes;
use fgrpo_verify::synlogic::{Generated, Task, generate, has_generator};
use rayon::prelude::*;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::io::Write;
use std::path::{Path, PathBuf};

mod arithmetic;
mod show;
mod words;

/// Generate problems, or show problems as a model sees them.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Kind {
    /// Generate logic problems of the SynLogic tasks, in the columns of the public data.
    #[command(name = "synlogic")]
    SynLogic(SynLogic),
    /// Write the problems of an arithmetic configuration to a data file.
    Arithmetic(arithmetic::Arithmetic),
    /// Generate word problems in plain English with one or two steps and worked solutions.
    Words(words::Args),
    /// Show problems as a model sees them: rendered prompts, token counts, and reference answers as the verifier reads them.
    Show(show::Show),
}

/// Arguments of `fgrpo data synlogic`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    fgrpo data synlogic --task sudoku --n 1000 --difficulty 3 --seed 1 --out sudoku.jsonl\n  \
    fgrpo data synlogic --task all --n 33000 --difficulty 5 --seed 1 --ask-format --out train.parquet\n\n\
    Columns: data_source, prompt, ability, reward_model, extra_info.game_data_str.")]
pub(crate) struct SynLogic {
    /// Task, or several separated by commas, which alternate; or `all` for all tasks with a generator.
    #[arg(long, value_name = "TASK,...", value_delimiter = ',', required = true)]
    task: Vec<String>,
    /// Number of problems.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    n: u64,
    /// Difficulty, from 1 (easy) to 10 (hard).
    #[arg(long, value_name = "D", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10))]
    difficulty: u32,
    /// Seed of the problems.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Output file: .jsonl or .parquet.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Ask for `<think>` and `<answer>` tags in the prompt, as the verifier's format gate requires.
    #[arg(long)]
    ask_format: bool,
    /// Store a correct answer in reward_model.ground_truth (the verifiers don't read it).
    #[arg(long)]
    with_solution: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.kind {
        Kind::SynLogic(args) => synlogic(args),
        Kind::Arithmetic(args) => arithmetic::run(args),
        Kind::Words(args) => words::run(args),
        Kind::Show(args) => show::run(args),
    }
}

/// Formats problems as JSON lines with the columns problem, answer and solution.
fn lines<'a>(problems: impl IntoIterator<Item = &'a Problem>) -> String {
    let rows = problems.into_iter().map(|p| {
        let row = json!({"problem": p.question(), "answer": p.truth.gold(), "solution": p.solution});
        format!("{row}\n")
    });
    rows.collect()
}

/// Number of problems generated between two writes.
const CHUNK: u64 = 512;
/// Maximum number of redraws of a duplicate problem.
const REDRAWS: u64 = 20;

const FORMAT: &str = "\n\nThink first, between <think> and </think>. Then write your answer, in the form asked for, between \
    <answer> and </answer>, and nothing after it.";

fn tasks(names: &[String]) -> anyhow::Result<Vec<Task>> {
    if names.iter().any(|name| name == "all") {
        return Ok(Task::ALL.into_iter().filter(|task| has_generator(*task)).collect());
    }
    let tasks: Vec<Task> = names
        .iter()
        .map(|name| name.parse::<Task>())
        .collect::<Result<_, _>>()
        .context("--task")
        .or_bad_input()?;
    if let Some(task) = tasks.iter().find(|task| !has_generator(**task)) {
        bad_input!("--task: {task} has no generator; use its problems of the data set MiniMaxAI/SynLogic");
    }
    Ok(tasks)
}

fn draw(args: &SynLogic, task: Task, index: u64, attempt: u64) -> anyhow::Result<Generated> {
    let root = Key::new(args.seed).with(u64::from(args.difficulty));
    let key = task.name().bytes().fold(root, |key, byte| key.with(u64::from(byte))).with(index).with(attempt);
    let mut stream = key.stream();
    Ok(generate(task, args.difficulty, index, &mut || stream.bits())?)
}

fn row(args: &SynLogic, index: u64, problem: &Generated) -> Value {
    let content =
        if args.ask_format { format!("{}{FORMAT}", problem.question) } else { problem.question.clone() };
    let truth = if args.with_solution { problem.solution.as_str() } else { "" };
    json!({
        "data_source": problem.task.name(),
        "prompt": [{"role": "user", "content": content}],
        "ability": "logic",
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {"index": index, "split": "train", "game_data_str": problem.game_data_str()},
    })
}

enum Sink {
    Lines(std::fs::File),
    Parquet(Box<verl_rows::Writer>),
}

impl Sink {
    fn open(path: &Path, file: std::fs::File) -> anyhow::Result<Self> {
        match path.extension().and_then(|e| e.to_str()) {
            Some("jsonl" | "ndjson" | "json") => Ok(Self::Lines(file)),
            Some("parquet") => Ok(Self::Parquet(Box::new(verl_rows::Writer::new(file, "game_data_str")?))),
            _ => bad_input!(
                "--out: expected a file name ending in .jsonl or .parquet, found {}",
                path.display()
            ),
        }
    }

    fn write(&mut self, rows: &[Value]) -> anyhow::Result<()> {
        match self {
            Self::Lines(out) => Ok(out.write_all(&to_bytes(rows)?)?),
            Self::Parquet(out) => out.write(rows),
        }
    }

    fn close(self) -> anyhow::Result<std::fs::File> {
        Ok(match self {
            Self::Lines(out) => out,
            Self::Parquet(out) => out.close()?,
        })
    }
}

fn synlogic(args: &SynLogic) -> anyhow::Result<()> {
    let tasks = tasks(&args.task)?;
    let folder = parent(&args.out);
    // The file gets its name when it is complete.
    let temporary = partial_file(folder)
        .with_context(|| format!("--out: {}: the folder can't be written to", folder.display()))
        .or_bad_input()?;
    let mut sink = Sink::open(&args.out, temporary.reopen()?)?;
    let progress =
        crate::output::progress::bar(Some(args.n), "{bar:32.cyan/238} {pos}/{len} problems ({left} left)");
    let mut seen: HashSet<u64> = HashSet::new();
    let mut repeated = 0_u64;
    for start in (0..args.n).step_by(CHUNK as usize) {
        let indices = start..(start + CHUNK).min(args.n);
        let task = |index: u64| tasks[(index % tasks.len() as u64) as usize];
        let mut problems: Vec<(u64, Generated)> = indices
            .into_par_iter()
            .map(|index| Ok((index, draw(args, task(index), index, 0)?)))
            .collect::<anyhow::Result<_>>()?;
        for (index, problem) in &mut problems {
            let mut attempt = 0;
            while !seen.insert(fingerprint(problem)) {
                attempt += 1;
                if attempt > REDRAWS {
                    repeated += 1;
                    break;
                }
                *problem = draw(args, task(*index), *index, attempt)?;
            }
        }
        let rows: Vec<Value> =
            problems.par_iter().map(|(index, problem)| row(args, *index, problem)).collect();
        sink.write(&rows).with_context(|| args.out.display().to_string())?;
        progress.inc(rows.len() as u64);
    }
    sink.close()?.sync_all()?;
    temporary.persist(&args.out).with_context(|| args.out.display().to_string())?;
    progress.finish_and_clear();
    say!(
        "{}: {} problems of {} tasks, difficulty {}",
        args.out.display(),
        args.n,
        tasks.len(),
        args.difficulty
    );
    if repeated > 0 {
        say!(
            "{repeated} problems occur more than once, because difficulty {} has too few different ones",
            args.difficulty
        );
    }
    Ok(())
}

/// Returns a 64-bit hash of a problem.
fn fingerprint(problem: &Generated) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (problem.task.name(), &problem.question).hash(&mut hasher);
    hasher.finish()
}
