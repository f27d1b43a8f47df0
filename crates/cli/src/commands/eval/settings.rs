//! The flags of one evaluation, on the command line or in a TOML file, and what follows from them.

use crate::args::grading::{self, Switch};
use crate::args::named::named;
use crate::args::places::{self, Loading};
use crate::args::{compute, sampling};
use crate::output::table::Format;
use anyhow::Context;
use clap::{CommandFactory, Parser, ValueEnum};
use fgrpo_eval::dataset::columns::Columns;
use fgrpo_eval::dataset::presets::{Family, Prompting};
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::from_server::Api;
use fgrpo_eval::io::server::RetryPolicy;
use fgrpo_eval::io::server::sampling::ServerApi;
use fgrpo_eval::kind::TaskKind;
use fgrpo_eval::samples::MOST_UNSCORABLE;
use fgrpo_train::config::{Config, builtin};
use fgrpo_train::language::stop::StopTexts;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use toml::{Table, Value};

#[derive(Debug, Clone, Default, clap::Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[group(id = "evaluation")]
pub(crate) struct Flags {
    /// A training configuration: its held-out problems, with the prompts and the verifier of training; flags override it. Or a TOML file with any of these flags by their long names, e.g. max-tokens = 4096.
    #[arg(value_name = "CONFIG")]
    #[serde(skip)]
    pub(crate) config: Option<PathBuf>,
    /// Change a key of the training configuration; repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    #[serde(skip)]
    pub(crate) set: Vec<String>,
    /// Use the configuration's table `eval.full` instead of `eval`.
    #[arg(long)]
    pub(crate) full: bool,
    /// A checkpoint or run folder, or a hub name; with --server, the served model's name; with --samples, the name of the
    /// model that made them.
    #[arg(long, value_name = "DIR|NAME")]
    pub(crate) model: Option<String>,
    /// A LoRA adapter for the checkpoint, in PEFT's format.
    #[arg(long, value_name = "DIR", requires = "model", conflicts_with_all = ["server", "samples"])]
    pub(crate) adapter: Option<PathBuf>,
    /// An OpenAI-compatible server, e.g. http://localhost:8000.
    #[arg(long, value_name = "URL", conflicts_with = "samples")]
    pub(crate) server: Option<String>,
    /// A file of samples made elsewhere: {"problem": ..., "sample": i, "text": "..."} per line of JSON, or these columns as CSV or Parquet.
    #[arg(long, value_name = "FILE")]
    pub(crate) samples: Option<PathBuf>,
    /// The data set: JSON lines, JSON, CSV or Parquet; mazes may come as {"size", "seed", "index"} lines.
    #[arg(long, value_name = "FILE")]
    pub(crate) data: Option<PathBuf>,
    /// Kind of the problems, which selects the verifier.
    #[arg(long, value_parser = named::<TaskKind>())]
    pub(crate) task: Option<TaskKind>,
    /// Samples per problem.
    #[arg(short = 'n', long = "n", value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) n: Option<u64>,
    /// The evaluation folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Name of the benchmark in tables [default: the data file's stem].
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Columns by name, if they aren't found by themselves, e.g. prompt=question,answer=final.
    #[arg(long, value_name = "WHAT=COLUMN,...")]
    #[serde(deserialize_with = "columns")]
    pub(crate) columns: Option<Columns>,
    /// Problems with the same value of this field of `samples.jsonl`, such as `subject`, are a cluster: intervals are found
    /// by drawing whole clusters.
    #[arg(long, value_name = "FIELD")]
    pub(crate) cluster: Option<String>,
    /// Evaluate only this number of problems, from the first.
    #[arg(long, value_name = "PROBLEMS")]
    pub(crate) limit: Option<usize>,

    /// The paper's prompts for a model family [default: the boxed prompt for math and choice, none elsewhere].
    #[arg(long, value_parser = named::<Family>(), help_heading = "Prompt")]
    pub(crate) preset: Option<Family>,
    /// System prompt, instead of the preset's; empty for none.
    #[arg(long, help_heading = "Prompt")]
    pub(crate) system: Option<String>,
    /// Thinking mode of the chat template, instead of the preset's.
    #[arg(long, value_enum, help_heading = "Prompt")]
    pub(crate) thinking: Option<Switch>,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) sampling: sampling::Flags,
    /// Maximum response length in tokens; a checkpoint's context may end it earlier [default: 8192; 4096
    /// with --preset qwen3; 180 for mazes].
    #[arg(long, help_heading = "Sampling")]
    pub(crate) max_tokens: Option<usize>,
    /// A text that ends a response; repeatable.
    #[arg(long, help_heading = "Sampling")]
    pub(crate) stop: Option<Vec<String>>,
    /// Seed of the sampling [default: the training configuration's, or 0]. A server gets seeds, one per sample, only with this flag.
    #[arg(long, help_heading = "Sampling")]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) compute: compute::Flags,

    /// The server's interface [default: chat].
    #[arg(long, value_parser = named::<Api>(), help_heading = "Server")]
    pub(crate) api: Option<Api>,
    /// The server software, which decides the sampling fields that it is sent [default: those of vLLM, SGLang and llama.cpp together].
    #[arg(long, value_parser = named::<ServerApi>(), help_heading = "Server")]
    pub(crate) server_api: Option<ServerApi>,
    /// Number of concurrent requests [default: 32].
    #[arg(long, help_heading = "Server")]
    pub(crate) concurrency: Option<usize>,
    /// Samples per request, if the server supports several [default: 8].
    #[arg(long, help_heading = "Server")]
    pub(crate) per_request: Option<u64>,
    /// Timeout of one attempt, in seconds [default: 1800].
    #[arg(long, value_name = "SECONDS", help_heading = "Server")]
    pub(crate) timeout: Option<f64>,
    /// Number of retries [default: 10].
    #[arg(long, help_heading = "Server")]
    pub(crate) retries: Option<u32>,
    /// Seconds before the first retry; doubles with each retry, up to 30 [default: 0.5].
    #[arg(long, value_name = "SECONDS", help_heading = "Server")]
    pub(crate) retry_wait: Option<f64>,
    /// Environment variable with the API key [default: OPENAI_API_KEY, if it is set].
    #[arg(long, value_name = "VARIABLE", help_heading = "Server")]
    pub(crate) key_env: Option<String>,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) grading: grading::Flags,
    /// Score all samples again.
    #[arg(long, help_heading = "Scoring")]
    pub(crate) rescore: bool,
    /// Don't sample, and don't read --samples; score and report the stored samples.
    #[arg(long, help_heading = "Scoring")]
    pub(crate) score_only: bool,
    /// Largest share of unscorable samples; with more, the exit code is 1 [default: 0.01].
    #[arg(long, value_name = "SHARE", help_heading = "Scoring")]
    pub(crate) max_unscorable: Option<f64>,

    /// Size of the mazes [default: 17].
    #[arg(long, help_heading = "Maze")]
    pub(crate) maze_size: Option<usize>,
    /// Seed of the mazes [default: 0].
    #[arg(long, help_heading = "Maze")]
    pub(crate) maze_seed: Option<u64>,
    /// Number of held-out mazes [default: 256].
    #[arg(long, help_heading = "Maze", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) maze_problems: Option<u64>,
    /// What counts as correct [default: exact].
    #[arg(long, value_enum, help_heading = "Maze")]
    pub(crate) maze_reward: Option<RewardFlag>,

    /// Values of k in the report [default: 1, 2, 4, ... up to 256 and the number of samples].
    #[arg(short = 'k', long = "k", value_name = "K,...", value_delimiter = ',', help_heading = "Report")]
    #[serde(rename = "k")]
    pub(crate) ks: Option<Vec<u64>>,
    /// Print one JSON value.
    #[arg(long, help_heading = "Report")]
    pub(crate) json: bool,
    /// How to print [default: text].
    #[arg(long, value_enum, help_heading = "Report")]
    pub(crate) format: Option<Format>,
}

/// When a maze completion is correct.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RewardFlag {
    /// It equals the shortest path.
    Exact,
    /// It walks to the goal.
    ReachesGoal,
}

/// Where samples come from.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// A server's address.
    Server(String),
    /// A checkpoint folder or a .gguf file.
    Checkpoint(PathBuf),
    /// A file.
    Samples(PathBuf),
}

#[derive(Parser)]
#[command(name = "fgrpo eval")]
struct Alone {
    #[command(flatten)]
    flags: Flags,
}

/// `prompt=question,answer=final` or a table.
fn columns<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Columns>, D::Error> {
    use serde::de::Error;
    match Value::deserialize(deserializer)? {
        Value::String(text) => text.parse().map(Some).map_err(D::Error::custom),
        table => table.try_into().map(Some).map_err(|e| D::Error::custom(e.message())),
    }
}

impl Flags {
    /// Flags given as words, for commands that share some of them.
    pub(crate) fn of_words(words: &[String]) -> anyhow::Result<Self> {
        let line = std::iter::once("fgrpo eval").chain(words.iter().map(String::as_str));
        match Alone::try_parse_from(line) {
            Ok(parsed) => Ok(parsed.flags),
            Err(e) => bad_input!("{}", e.to_string().trim()),
        }
    }

    /// These flags completed by those of a TOML file; or the training configuration, if the file is one. Hub names become
    /// local paths.
    pub(crate) fn resolved(&self) -> anyhow::Result<(Self, Option<Config>)> {
        let Some(path) = &self.config else { return Ok((self.clone().in_places()?, None)) };
        let text = builtin::text(path).with_context(|| path.display().to_string()).or_bad_input()?;
        let table: Table = match text.parse() {
            Ok(table) => table,
            Err(e) => bad_input!("{}: {e}", path.display()),
        };
        if !matches!(table.get("task"), Some(Value::Table(_))) {
            if !self.set.is_empty() {
                bad_input!(
                    "--set: found with {}, a file of flags; wanted a training configuration",
                    path.display()
                );
            }
            return Ok((self.over(table, path)?.in_places()?, None));
        }
        let mut config = Config::load(path, &self.set)?;
        let flags = self.clone().in_places()?;
        // Of its model, only the tokenizer is of use, and the evaluated checkpoint has it too.
        places::configuration(&mut config, None, Loading::Data)?;
        Ok((flags, Some(config)))
    }

    /// The flags of a file, and in their place those of the command line.
    fn over(&self, file: Table, path: &Path) -> anyhow::Result<Self> {
        let command = Alone::command();
        let known: Vec<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
        let mut flags = Table::new();
        for (key, value) in file {
            let key = key.replace('_', "-");
            if !known.contains(&key.as_str()) || key == "set" {
                bad_input!("{}: {key}: found no such flag of fgrpo eval", path.display());
            }
            // Alone, so that an error is one of this key.
            if let Err(e) = Table::from_iter([(key.clone(), value.clone())]).try_into::<Self>() {
                bad_input!("{}: {key}: {}", path.display(), e.message());
            }
            flags.insert(key, value);
        }
        flags.extend(self.given_as_table()?);
        let flags: Self = flags.try_into().context("flags of a table")?;
        Ok(Self {
            config: self.config.clone(),
            adapter: self.adapter.clone().or(flags.adapter),
            samples: self.samples.clone().or(flags.samples),
            data: self.data.clone().or(flags.data),
            out: self.out.clone().or(flags.out),
            ..flags
        })
    }

    /// The flags that are given, but for paths, which may not be text.
    fn given_as_table(&self) -> anyhow::Result<Table> {
        let rest = Self { adapter: None, samples: None, data: None, out: None, ..self.clone() };
        let all = Table::try_from(rest).context("flags as a table")?;
        Ok(all.into_iter().filter(|(_, value)| *value != Value::Boolean(false)).collect())
    }

    /// With local paths in place of hub names.
    fn in_places(mut self) -> anyhow::Result<Self> {
        if let (None, None, Some(name)) = (&self.server, &self.samples, &self.model) {
            self.model = Some(places::model("--model", name.into())?.display().to_string());
        }
        self.data = self.data.map(|path| places::data("--data", path)).transpose()?;
        Ok(self)
    }

    /// Where samples come from.
    pub(crate) fn source(&self) -> anyhow::Result<Source> {
        if self.server.is_some() && self.samples.is_some() {
            bad_input!("--server: found with --samples, wanted one source of samples");
        }
        if self.adapter.is_some() && (self.server.is_some() || self.samples.is_some()) {
            bad_input!(
                "--adapter: found with --server or --samples, wanted it with a checkpoint (--model DIR)"
            );
        }
        Ok(match (&self.server, &self.samples, &self.model) {
            (Some(url), _, _) => Source::Server(url.clone()),
            (None, Some(path), _) => Source::Samples(path.clone()),
            (None, None, Some(dir)) => Source::Checkpoint(PathBuf::from(dir)),
            (None, None, None) => {
                bad_input!("wanted a source of samples: --model DIR, --server URL or --samples FILE")
            }
        })
    }

    /// The first flag under a heading of `--help` that is given, as `--name`.
    pub(crate) fn given(&self, heading: &str) -> anyhow::Result<Option<String>> {
        let given = self.given_as_table()?;
        let command = Alone::command();
        let of_heading = command.get_arguments().filter(|arg| arg.get_help_heading() == Some(heading));
        Ok(of_heading
            .filter_map(clap::Arg::get_long)
            .find(|name| given.contains_key(*name))
            .map(|name| format!("--{name}")))
    }

    /// Checks the ranges of numbers.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let in_range = |name: &str, value: Option<f64>, low: f64, high: f64| -> anyhow::Result<()> {
            match value {
                Some(value) if !(low..=high).contains(&value) => {
                    bad_input!("--{name}: found {value}, wanted {low} to {high}")
                }
                _ => Ok(()),
            }
        };
        let whole = |n: Option<u64>| n.map(|n| n as f64);
        in_range("n", whole(self.n), 1.0, 1e6)?;
        in_range("timeout", self.timeout, 0.001, 1e6)?;
        in_range("retry-wait", self.retry_wait, 0.0, 30.0)?;
        in_range("concurrency", self.concurrency.map(|n| n as f64), 1.0, 4096.0)?;
        in_range("max-unscorable", self.max_unscorable, 0.0, 1.0)?;
        in_range("maze-problems", whole(self.maze_problems), 1.0, 1e5)?;
        if self.per_request == Some(0) {
            bad_input!("--per-request: found 0, wanted at least 1");
        }
        if self.limit == Some(0) {
            bad_input!("--limit: found 0, wanted at least 1 problem");
        }
        StopTexts::new("--stop", self.stop.clone().unwrap_or_default()).map(drop)
    }

    /// A prompt's settings, overridden by the flags.
    pub(crate) fn prompting(&self, base: Prompting) -> Prompting {
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

    /// The server's interface.
    pub(crate) fn api(&self) -> Api {
        self.api.unwrap_or(Api::Chat)
    }

    pub(crate) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format.unwrap_or_default() }
    }

    /// Largest share of unscorable samples.
    pub(crate) fn max_unscorable(&self) -> f64 {
        self.max_unscorable.unwrap_or(MOST_UNSCORABLE)
    }

    /// Whether any flag is about the prompt.
    pub(crate) fn asks_for_a_prompt(&self) -> bool {
        self.preset.is_some() || self.system.is_some() || self.thinking.is_some()
    }

    /// The retry policy of requests.
    pub(crate) fn retry(&self) -> RetryPolicy {
        RetryPolicy::of(
            self.timeout.unwrap_or(1800.0),
            self.retries.unwrap_or(10),
            self.retry_wait.unwrap_or(0.5),
        )
    }
}
