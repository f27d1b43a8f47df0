//! The flags of `fgrpo eval`, on the command line or in a TOML file, and what follows from them.

use crate::args::compute;
use crate::args::grading::{Flags, Switch};
use crate::args::named::named;
use crate::args::places::{self, Loading};
use crate::output::table::Format;
use anyhow::Context;
use clap::parser::ValueSource;
use clap::{CommandFactory, Parser, ValueEnum};
use fgrpo_eval::bad_input;
use fgrpo_eval::dataset::columns::Columns;
use fgrpo_eval::dataset::presets::{Family, Prompting};
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::from_server::Api;
use fgrpo_eval::io::server::RetryPolicy;
use fgrpo_eval::io::server::sampling::ServerApi;
use fgrpo_eval::kind::TaskKind;
use fgrpo_eval::plan::Origin;
use fgrpo_eval::samples::MOST_UNSCORABLE;
use fgrpo_train::config::{Config, builtin};
use fgrpo_train::language::stop::StopTexts;
use std::ffi::OsString;
use std::path::PathBuf;

/// Sample a model on a data set, score the samples and report pass@k.
///
/// The folder --out keeps every sample. If the command is stopped, the same command continues. A larger -n adds samples.
/// After a change of the verifier, samples are scored again without sampling. A folder belongs to one model, prompt
/// preset and sampling setting.
#[derive(Debug, Clone, clap::Args)]
#[command(
    args_override_self = true,
    after_help = "Examples:\n  \
    fgrpo eval --server http://localhost:8000 --data aime25.jsonl --task math -n 1024 --preset qwen2.5 --out eval-base\n  \
    fgrpo eval --model run/checkpoints/step-000800 --task maze --maze-size 9 -n 64 --out eval-maze\n  \
    fgrpo eval --samples completions.jsonl --data math500.jsonl --task math -n 4 --out eval-elsewhere\n  \
    fgrpo eval aime.toml --out eval-b           # flags from a file, overridden by the command line\n  \
    fgrpo eval math.toml --model runs/math/checkpoints/step-000100 --out eval-math    # a training configuration's held-out problems\n\n\
    Then: fgrpo compare eval-base eval-b -k 1,256"
)]
pub struct Args {
    /// A training configuration: its held-out problems, with the prompts and the verifier of training; flags override it. Or a TOML file with any of these flags by their long names, e.g. max-tokens = 4096.
    #[arg(value_name = "CONFIG")]
    pub config: Option<PathBuf>,
    /// Change a key of the training configuration; repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Use the configuration's table `eval.full` instead of `eval`.
    #[arg(long)]
    pub full: bool,
    /// A checkpoint or run folder, or a hub name; with --server, the served model's name; with --samples, the name of the
    /// model that made them.
    #[arg(long, value_name = "DIR|NAME")]
    pub model: Option<String>,
    /// A LoRA adapter for the checkpoint, in PEFT's format.
    #[arg(long, value_name = "DIR", requires = "model", conflicts_with_all = ["server", "samples"])]
    pub adapter: Option<PathBuf>,
    /// An OpenAI-compatible server, e.g. http://localhost:8000.
    #[arg(long, value_name = "URL", conflicts_with = "samples")]
    pub server: Option<String>,
    /// A file of samples made elsewhere: {"problem": ..., "sample": i, "text": "..."} per line of JSON, or these columns as CSV or Parquet.
    #[arg(long, value_name = "FILE")]
    pub samples: Option<PathBuf>,
    /// The data set: JSON lines, JSON, CSV or Parquet; mazes may come as {"size", "seed", "index"} lines.
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// Kind of the problems, which selects the verifier.
    #[arg(long, value_parser = named::<TaskKind>())]
    pub task: Option<TaskKind>,
    /// Samples per problem.
    #[arg(short = 'n', long = "n", value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub n: Option<u64>,
    /// The evaluation folder.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Name of the benchmark in tables [default: the data file's stem].
    #[arg(long)]
    pub name: Option<String>,
    /// Columns by name, if they aren't found by themselves, e.g. prompt=question,answer=final.
    #[arg(long, value_name = "WHAT=COLUMN,...")]
    pub columns: Option<Columns>,
    /// Problems with the same value of this field of `samples.jsonl`, such as `subject`, are a cluster: intervals are found
    /// by drawing whole clusters.
    #[arg(long, value_name = "FIELD")]
    pub cluster: Option<String>,
    /// Evaluate only this number of problems, from the first.
    #[arg(long, value_name = "PROBLEMS")]
    pub limit: Option<usize>,

    /// The paper's prompts for a model family [default: the boxed prompt for math and choice, none elsewhere].
    #[arg(long, value_parser = named::<Family>(), help_heading = "Prompt")]
    pub preset: Option<Family>,
    /// System prompt, instead of the preset's; empty for none.
    #[arg(long, help_heading = "Prompt")]
    pub system: Option<String>,
    /// Thinking mode of the chat template, instead of the preset's.
    #[arg(long, value_enum, help_heading = "Prompt")]
    pub thinking: Option<Switch>,

    /// Sampling temperature [default: 1].
    #[arg(long, help_heading = "Sampling")]
    pub temperature: Option<f64>,
    /// Top-p (nucleus) sampling; 1 is off.
    #[arg(long, default_value_t = 1.0, help_heading = "Sampling")]
    pub top_p: f64,
    /// Top-k sampling; 0 is off.
    #[arg(long, default_value_t = 0, help_heading = "Sampling")]
    pub top_k: usize,
    /// Min-p sampling: tokens need at least this fraction of the most likely token's probability; 0 is off.
    #[arg(long, default_value_t = 0.0, help_heading = "Sampling")]
    pub min_p: f64,
    /// Maximum response length in tokens; a checkpoint's context may end it earlier [default: 8192; 4096
    /// with --preset qwen3; 180 for mazes].
    #[arg(long, help_heading = "Sampling")]
    pub max_tokens: Option<usize>,
    /// A text that ends a response; repeatable.
    #[arg(long, help_heading = "Sampling")]
    pub stop: Vec<String>,
    /// Seed of the sampling [default: the training configuration's, or 0]. A server gets seeds, one per sample, only with this flag.
    #[arg(long, help_heading = "Sampling")]
    pub seed: Option<u64>,
    /// Where the engine computes.
    #[command(flatten)]
    pub compute: compute::Flags,

    /// The server's interface.
    #[arg(long, value_parser = named::<Api>(), default_value = "chat", help_heading = "Server")]
    pub api: Api,
    /// The server software, which decides the sampling fields that it is sent [default: those of vLLM, SGLang and llama.cpp together].
    #[arg(long, value_parser = named::<ServerApi>(), help_heading = "Server")]
    pub server_api: Option<ServerApi>,
    /// Number of concurrent requests.
    #[arg(long, default_value_t = 32, help_heading = "Server")]
    pub concurrency: usize,
    /// Samples per request, if the server supports several.
    #[arg(long, default_value_t = 8, help_heading = "Server")]
    pub per_request: u64,
    /// Timeout of one attempt, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 1800.0, help_heading = "Server")]
    pub timeout: f64,
    /// Number of retries.
    #[arg(long, default_value_t = 10, help_heading = "Server")]
    pub retries: u32,
    /// Seconds before the first retry; doubles with each retry, up to 30.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5, help_heading = "Server")]
    pub retry_wait: f64,
    /// Environment variable with the API key [default: OPENAI_API_KEY, if it is set].
    #[arg(long, value_name = "VARIABLE", help_heading = "Server")]
    pub key_env: Option<String>,

    /// How to grade.
    #[command(flatten)]
    pub grading: Flags,
    /// Score all samples again.
    #[arg(long, help_heading = "Scoring")]
    pub rescore: bool,
    /// Don't sample, and don't read --samples; score and report the stored samples.
    #[arg(long, help_heading = "Scoring")]
    pub score_only: bool,
    /// Largest share of unscorable samples; with more, the exit code is 1.
    #[arg(long, value_name = "SHARE", default_value_t = MOST_UNSCORABLE, help_heading = "Scoring")]
    pub max_unscorable: f64,

    /// Size of the mazes [default: 17].
    #[arg(long, help_heading = "Maze")]
    pub maze_size: Option<usize>,
    /// Seed of the mazes [default: 0].
    #[arg(long, help_heading = "Maze")]
    pub maze_seed: Option<u64>,
    /// Number of held-out mazes [default: 256].
    #[arg(long, help_heading = "Maze", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub maze_problems: Option<u64>,
    /// What counts as correct [default: exact].
    #[arg(long, value_enum, help_heading = "Maze")]
    pub maze_reward: Option<RewardFlag>,

    /// Values of k in the report [default: 1, 2, 4, ... up to 256 and the number of samples].
    #[arg(short = 'k', long = "k", value_name = "K,...", value_delimiter = ',', help_heading = "Report")]
    pub ks: Vec<u64>,
    /// Print one JSON value.
    #[arg(long, help_heading = "Report")]
    pub json: bool,
    /// How to print.
    #[arg(long, value_enum, default_value = "text", help_heading = "Report")]
    pub format: Format,
}

/// When a maze completion is correct.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RewardFlag {
    /// It equals the shortest path.
    Exact,
    /// It walks to the goal.
    ReachesGoal,
}

/// Where samples come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// A server's address.
    Server(String),
    /// A checkpoint folder or a .gguf file.
    Checkpoint(PathBuf),
    /// A file.
    Samples(PathBuf),
}

#[derive(Parser)]
#[command(name = "fgrpo eval")]
struct Standalone {
    #[command(flatten)]
    args: Args,
}

impl Default for Args {
    /// Without any flag.
    fn default() -> Self {
        Standalone::parse_from(["fgrpo eval"]).args
    }
}

/// The flags of the command line, completed by those of a TOML file of flags; or the training configuration, if the file
/// is one.
///
/// # Errors
/// Bad input: a file that can't be read, isn't TOML, or has a key that is no flag.
pub fn with_file(args: &Args, words: &[OsString]) -> anyhow::Result<(Args, Option<Config>)> {
    let (mut args, mut training) = read(args, words)?;
    args.take_places()?;
    if let Some(config) = &mut training {
        // Of its model, only the tokenizer is of use, and the evaluated checkpoint has it too.
        places::configuration(config, None, Loading::Data)?;
    }
    Ok((args, training))
}

fn read(args: &Args, words: &[OsString]) -> anyhow::Result<(Args, Option<Config>)> {
    let Some(path) = &args.config else { return Ok((args.clone(), None)) };
    let text = builtin::text(path).with_context(|| path.display().to_string()).or_bad_input()?;
    let table: toml::Table = match text.parse() {
        Ok(table) => table,
        Err(e) => bad_input!("{}: {e}", path.display()),
    };
    if matches!(table.get("task"), Some(toml::Value::Table(_))) {
        return Ok((args.clone(), Some(Config::load(path, &args.set)?)));
    }
    if !args.set.is_empty() {
        bad_input!("--set: found with {}, a file of flags; wanted a training configuration", path.display());
    }
    let command = Standalone::command();
    let program = || std::iter::once(OsString::from("fgrpo eval"));
    let given = match command.clone().try_get_matches_from(program().chain(words.iter().cloned())) {
        Ok(given) => given,
        Err(e) => bad_input!("{}", e.to_string().trim()),
    };
    // A flag of the command line replaces that of the file; lists are replaced as a whole.
    let replaced = |flag: &str| {
        let arg = command.get_arguments().find(|a| a.get_long() == Some(flag));
        arg.is_some_and(|a| given.value_source(a.get_id().as_str()) == Some(ValueSource::CommandLine))
    };
    let mut line = vec![OsString::from("fgrpo eval")];
    for (key, value) in &table {
        let key = key.replace('_', "-");
        if replaced(&key) {
            continue;
        }
        let flag = format!("--{key}");
        let mut push = |value: &toml::Value| match value {
            toml::Value::Boolean(true) => line.push(flag.clone().into()),
            toml::Value::Boolean(false) => {}
            toml::Value::String(s) => line.push(format!("{flag}={s}").into()),
            other => line.push(format!("{flag}={other}").into()),
        };
        match value {
            toml::Value::Table(_) => {
                bad_input!("{}: {key}: found a table, wanted a flag of fgrpo eval", path.display())
            }
            toml::Value::Array(list) => list.iter().for_each(&mut push),
            single => push(single),
        }
    }
    if let Err(e) = Standalone::try_parse_from(&line) {
        bad_input!("{}: {}", path.display(), e.to_string().trim());
    }
    line.extend(words.iter().cloned());
    match Standalone::try_parse_from(&line) {
        Ok(parsed) => Ok((parsed.args, None)),
        Err(e) => bad_input!("{}", e.to_string().trim()),
    }
}

/// Flags given as words, for commands that share some of them.
///
/// # Errors
/// As [`with_file`]; a word that is no flag.
pub fn of_words(words: &[String]) -> anyhow::Result<(Args, Option<Config>)> {
    let line = std::iter::once("fgrpo eval").chain(words.iter().map(String::as_str));
    match Standalone::try_parse_from(line) {
        Ok(parsed) => {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            with_file(&parsed.args, &words)
        }
        Err(e) => bad_input!("{}", e.to_string().trim()),
    }
}

impl Args {
    /// Turns hub names of the model and the data into local paths.
    ///
    /// # Errors
    /// As [`places::model`] and [`places::data`].
    pub fn take_places(&mut self) -> anyhow::Result<()> {
        if let (None, None, Some(name)) = (&self.server, &self.samples, &mut self.model) {
            let mut path = PathBuf::from(&*name);
            places::model("--model", &mut path)?;
            *name = path.display().to_string();
        }
        self.data.iter_mut().try_for_each(|path| places::data("--data", path))
    }

    /// Where samples come from.
    ///
    /// # Errors
    /// Bad input: no source.
    pub fn source(&self) -> anyhow::Result<Source> {
        Ok(match (&self.server, &self.samples, &self.model) {
            (Some(url), _, _) => Source::Server(url.clone()),
            (None, Some(path), _) => Source::Samples(path.clone()),
            (None, None, Some(dir)) => Source::Checkpoint(PathBuf::from(dir)),
            (None, None, None) => {
                bad_input!("wanted a source of samples: --model DIR, --server URL or --samples FILE")
            }
        })
    }

    /// The source of the samples, as recorded in the folder.
    pub fn origin(&self, source: &Source) -> Origin {
        match source {
            Source::Server(_) => Origin::Server(self.api, self.server_api),
            Source::Checkpoint(_) => Origin::Checkpoint,
            Source::Samples(_) => Origin::Samples,
        }
    }

    /// The first flag of requests to a server that isn't as it is by default.
    pub fn of_server(&self) -> Option<&'static str> {
        let default = Standalone::parse_from(["fgrpo eval"]).args;
        let flags = [
            ("--api", self.api != default.api),
            ("--server-api", self.server_api != default.server_api),
            ("--concurrency", self.concurrency != default.concurrency),
            ("--per-request", self.per_request != default.per_request),
            ("--timeout", self.timeout != default.timeout),
            ("--retries", self.retries != default.retries),
            ("--retry-wait", self.retry_wait != default.retry_wait),
            ("--key-env", self.key_env != default.key_env),
        ];
        flags.into_iter().find(|f| f.1).map(|f| f.0)
    }

    /// Checks the ranges that clap can't.
    ///
    /// # Errors
    /// Bad input that names the flag.
    pub fn check(&self) -> anyhow::Result<()> {
        let in_range = |name: &str, value: f64, low: f64, high: f64| -> anyhow::Result<()> {
            if !(low..=high).contains(&value) {
                bad_input!("--{name}: found {value}, wanted {low} to {high}");
            }
            Ok(())
        };
        in_range("temperature", self.temperature.unwrap_or(1.0), 0.0, 100.0)?;
        in_range("top-p", self.top_p, f64::MIN_POSITIVE, 1.0)?;
        in_range("min-p", self.min_p, 0.0, 1.0 - f64::EPSILON)?;
        in_range("timeout", self.timeout, 0.001, 1e6)?;
        in_range("retry-wait", self.retry_wait, 0.0, 30.0)?;
        in_range("max-unscorable", self.max_unscorable, 0.0, 1.0)?;
        if self.concurrency == 0 || self.concurrency > 4096 {
            bad_input!("--concurrency: found {}, wanted 1 to 4096", self.concurrency);
        }
        if self.server_api == Some(ServerApi::Openai) && (self.top_k > 0 || self.min_p > 0.0) {
            bad_input!(
                "--server-api: found openai with --top-k or --min-p, which the standard doesn't know; wanted vllm, sglang or llama.cpp"
            );
        }
        if self.per_request == 0 {
            bad_input!("--per-request: found 0, wanted at least 1");
        }
        if self.limit == Some(0) {
            bad_input!("--limit: found 0, wanted at least 1 problem");
        }
        if self.max_tokens == Some(0) {
            bad_input!("--max-tokens: found 0, wanted at least 1");
        }
        StopTexts::new("--stop", self.stop.clone()).map(drop)
    }

    /// A prompt's settings, overridden by the flags.
    pub fn prompting(&self, base: Prompting) -> Prompting {
        // Another family's prompt replaces all of it.
        let base = match self.preset {
            Some(family) => Prompting { preset: Some(family), ..Prompting::default() },
            None => base,
        };
        Prompting {
            preset: base.preset,
            system: self.system.clone().or(base.system),
            thinking: self.thinking.map(Switch::on).or(base.thinking),
        }
    }

    /// Whether any flag is about the prompt.
    pub fn asks_for_a_prompt(&self) -> bool {
        self.preset.is_some() || self.system.is_some() || self.thinking.is_some()
    }

    /// The retry policy of requests.
    pub fn retry(&self) -> RetryPolicy {
        RetryPolicy::of(self.timeout, self.retries, self.retry_wait)
    }
}
