//! `fgrpo diversity`: measures how much a model's correct solutions of a problem differ.

use crate::args::averages::AverageArgs;
use crate::args::named::named;
use crate::args::places;
use crate::output::table::{Format, FormatArgs, Render};
use fgrpo_eval::dataset::columns::Columns;
use fgrpo_eval::diversity::{Measure, Settings, measure, statements};
use fgrpo_eval::io::server::sampling::ServerApi;
use fgrpo_eval::kind::TaskKind;
use fgrpo_eval::table::Table;
use std::collections::HashMap;
use std::path::PathBuf;

/// Measure how much the correct solutions of models differ.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    fgrpo diversity eval-grpo eval-f-grpo                         # character n-grams, offline\n  \
    fgrpo diversity eval-grpo eval-f-grpo --by embeddings --server http://localhost:8000 --model Qwen3-Embedding-8B\n  \
    fgrpo diversity eval-grpo eval-f-grpo --by judge --server https://api.example.com --model judge --data aime24.jsonl --benchmark aime24")]
pub(crate) struct Args {
    /// Evaluation folders, one per model.
    #[arg(required = true, value_name = "EVAL")]
    folders: Vec<PathBuf>,
    /// Measure of diversity.
    #[arg(long, value_parser = named::<Measure>(), default_value = "ngram")]
    by: Measure,
    /// OpenAI-compatible server for embeddings or the judge.
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Name of the served model.
    #[arg(long)]
    model: Option<String>,
    /// Files of existing embeddings, one per folder, with lines {"problem", "sample", "embedding": [...]}.
    #[arg(long = "embeddings", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Value of truncate_prompt_tokens in embedding requests, if the server supports it (the paper: 8192).
    #[arg(long, value_name = "TOKENS")]
    max_tokens: Option<u64>,
    /// Benchmarks to measure [default: all].
    #[arg(long = "benchmark", value_name = "NAME")]
    only: Vec<String>,
    #[command(flatten)]
    averages: AverageArgs,
    /// Length of the character n-grams.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=16))]
    ngram: u64,
    /// Number of concurrent requests.
    #[arg(long, default_value_t = 16)]
    concurrency: usize,
    /// Data set files that were given to `fgrpo eval`. They contain the problems, which a judge needs.
    #[arg(long, value_name = "FILE")]
    data: Vec<PathBuf>,
    /// Kind of the problems in --data.
    #[arg(long, value_parser = named::<TaskKind>(), default_value = "math")]
    task: TaskKind,
    /// Names of the columns of --data, if they can't be detected, e.g. prompt=question,answer=final.
    #[arg(long, value_name = "WHAT=COLUMN,...")]
    columns: Option<Columns>,
    /// Server software of the judge, which decides the sampling fields of requests [default: all fields of vLLM, SGLang and llama.cpp].
    #[arg(long, value_parser = named::<ServerApi>())]
    server_api: Option<ServerApi>,
    /// Environment variable with the API key [default: OPENAI_API_KEY, if it is set].
    #[arg(long, value_name = "VARIABLE")]
    key_env: Option<String>,
    #[command(flatten)]
    format: FormatArgs,
}

impl Args {
    fn settings(&self) -> anyhow::Result<Settings> {
        let data = |path| places::data("--data", path);
        let data: Vec<PathBuf> = self.data.iter().cloned().map(data).collect::<anyhow::Result<_>>()?;
        let columns = self.columns.clone().unwrap_or_default();
        Ok(Settings {
            folders: self.folders.clone(),
            by: self.by,
            server: self.server.clone(),
            model: self.model.clone(),
            files: self.files.clone(),
            max_tokens: self.max_tokens,
            only: self.only.clone(),
            averages: self.averages.averages(),
            ngram: self.ngram as usize,
            concurrency: self.concurrency,
            problems: if self.by == Measure::Judge {
                statements(&data, self.task, &columns)?
            } else {
                HashMap::new()
            },
            server_api: self.server_api,
            key_env: self.key_env.clone(),
        })
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let report = measure(&args.settings()?)?;
    if args.format.chosen() == Format::Json {
        outln!("{}", serde_json::to_string(&report)?);
        return Ok(());
    }
    let header = ["benchmark", "problems"].map(str::to_owned).into_iter().chain(report.folders);
    let mut table = Table::new(header);
    for row in report.diversity {
        let cells = row.values.iter().map(|v| format!("{v:.4}"));
        table.push([row.benchmark, row.problems.to_string()].into_iter().chain(cells));
    }
    out!("{}", table.render(args.format.chosen()));
    if args.by == Measure::Ngram {
        say!("distances of character {}-grams measure wording, not ideas", args.ngram);
    }
    Ok(())
}
