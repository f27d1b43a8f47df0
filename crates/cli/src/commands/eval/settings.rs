//! The flags of one evaluation, and the configuration that they make or change.

use crate::args::grading::{self, switch};
use crate::args::named::{among, named};
use crate::args::overrides::{self, Has, OfTask, Place, given};
use crate::args::places::{self, Loading};
use crate::args::{compute, sampling};
use crate::output::table::Format;
use clap::Parser;
use fgrpo_core::maze::Scoring;
use fgrpo_eval::dataset::columns::Columns;
use fgrpo_eval::dataset::presets::Family;
use fgrpo_eval::from_server::Api;
use fgrpo_eval::io::server::RetryPolicy;
use fgrpo_eval::io::server::sampling::ServerApi;
use fgrpo_eval::kind::TaskKind;
use fgrpo_eval::names::Named;
use fgrpo_eval::samples::MOST_UNSCORABLE;
use fgrpo_train::config::{Config, MazeConfig, Override, TaskConfig, TextConfig};
use fgrpo_train::language::stop::StopTexts;
use fgrpo_train::problem::generated;
use std::path::{Path, PathBuf};

/// The configuration of flags without a training configuration, before its task is known.
const ALONE: &str = "steps = 1\n[task]\nkind = \"maze\"\n[model]\npath = \"model\"\n";

#[derive(Debug, Clone, Default, clap::Args)]
#[group(id = "evaluation")]
pub(crate) struct Flags {
    /// A training configuration: its held-out problems, with the prompts and the verifier of training; flags override it.
    #[arg(value_name = "CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Change a key of the training configuration; repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE")]
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
    pub(crate) columns: Option<Columns>,
    /// Problems with the same value of this field of `samples.jsonl`, such as `subject`, are a cluster: intervals are found
    /// by drawing whole clusters.
    #[arg(long, value_name = "FIELD")]
    pub(crate) cluster: Option<String>,
    /// Evaluate only this number of problems, from the first.
    #[arg(long, value_name = "PROBLEMS")]
    pub(crate) limit: Option<usize>,

    /// The paper's prompts for a model family [default: no system prompt].
    #[arg(long, value_parser = named::<Family>(), help_heading = "Prompt")]
    pub(crate) preset: Option<Family>,
    /// System prompt, instead of the preset's; empty for none.
    #[arg(long, help_heading = "Prompt")]
    pub(crate) system: Option<String>,
    /// Thinking mode of the chat template, instead of the preset's.
    #[arg(long, value_parser = switch(), help_heading = "Prompt")]
    pub(crate) thinking: Option<bool>,

    #[command(flatten)]
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
    #[arg(long, value_parser = among([("exact", Scoring::Exact), ("reaches-goal", Scoring::ReachesGoal)]), help_heading = "Maze")]
    pub(crate) maze_reward: Option<Scoring>,

    /// Values of k in the report [default: 1, 2, 4, ... up to 256 and the number of samples].
    #[arg(short = 'k', long = "k", value_name = "K,...", value_delimiter = ',', help_heading = "Report")]
    pub(crate) ks: Option<Vec<u64>>,
    /// Report cover@tau as well: the fraction of the problems of which at least this percentage of the samples is correct.
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=100), help_heading = "Report")]
    pub(crate) cover: Vec<u64>,
    /// Print one JSON value.
    #[arg(long, help_heading = "Report")]
    pub(crate) json: bool,
    /// How to print [default: text].
    #[arg(long, value_enum, help_heading = "Report")]
    pub(crate) format: Option<Format>,
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

impl Flags {
    /// Flags given as words, for commands that share some of them.
    pub(crate) fn of_words(words: &[String]) -> anyhow::Result<Self> {
        let line = std::iter::once("fgrpo eval").chain(words.iter().map(String::as_str));
        match Alone::try_parse_from(line) {
            Ok(parsed) => Ok(parsed.flags),
            Err(e) => bad_input!("{}", e.to_string().trim()),
        }
    }

    /// These flags with local paths in place of hub names, and the training configuration if they name one.
    pub(crate) fn resolved(&self) -> anyhow::Result<(Self, Option<Config>)> {
        let flags = self.clone().in_places()?;
        let Some(path) = &self.config else { return Ok((flags, None)) };
        let mut config = Config::load_with(path, &Override::all("--set", &self.set)?)?;
        // Of its model, only the tokenizer is of use, and the evaluated checkpoint has it too.
        places::configuration(&mut config, None, Loading::Data)?;
        Ok((flags, Some(config)))
    }

    /// The configuration of the evaluation: the training configuration, or one of the flags alone, with the values
    /// that the flags set. `beside` are the kinds of other evaluations that the flags are meant for too.
    /// Fails for a flag that would change nothing.
    pub(crate) fn configuration(
        &self,
        training: Option<&Config>,
        beside: &[TaskKind],
    ) -> anyhow::Result<Config> {
        self.check()?;
        let base = self.base(training)?;
        let overrides = self.overrides(&base, beside)?;
        let mut config = base.overridden(&overrides)?;
        config.check_evaluation()?;
        for text in config.task.texts_mut().iter().filter(|text| text.kind() == TaskKind::Math) {
            self.grading.check_mode(text.verifier.mode)?;
        }
        if let (TaskConfig::Text(text), Some(data)) = (&mut config.task, &self.data) {
            // A path may not be UTF-8, so it can't be an override.
            text.data.clone_from(data);
            text.held_out = Some(data.clone());
        }
        Ok(config)
    }

    /// The configuration without the values of single flags: with the task that `--data` and `--task` name, and the
    /// evaluation that `--full` chooses.
    fn base(&self, training: Option<&Config>) -> anyhow::Result<Config> {
        let mut config = match training {
            Some(config) => config.clone(),
            None => Config::parse(ALONE, &[])?,
        };
        config.task = self.task(training.map(|config| &config.task))?;
        if self.full {
            let Some(full) = config.eval.full() else {
                bad_input!("--full: requires a training configuration with the table [eval.full]")
            };
            config.eval = full;
        }
        if self.preset.is_some() {
            // The prompt of another family replaces all of it.
            for text in config.task.texts_mut() {
                (text.system, text.enable_thinking) = (None, None);
            }
        }
        Ok(config)
    }

    /// The task: that of the training configuration, or of `--task` and `--data`.
    fn task(&self, training: Option<&TaskConfig>) -> anyhow::Result<TaskConfig> {
        let own = training.and_then(generated::answers);
        let Some(kind) = self.task.or(own) else {
            return match training {
                Some(mix) if self.data.is_none() => Ok(mix.clone()),
                Some(_) => bad_input!(
                    "--data: with task.kind = \"mix\", requires --task, the kind of the file's problems"
                ),
                None => {
                    let names: Vec<&str> = TaskKind::NAMES.iter().map(|(_, name, _)| *name).collect();
                    bad_input!("--task: required; one of {}", names.join(", "))
                }
            };
        };
        match (training, &self.data) {
            (None, _) if kind == TaskKind::Maze => return Ok(TaskConfig::Maze(MazeConfig::default())),
            (Some(task @ TaskConfig::Maze(_)), _) if kind == TaskKind::Maze => return Ok(task.clone()),
            (Some(task), None) if own == Some(kind) => return Ok(task.clone()),
            (Some(task), None) => bad_input!(
                "--task: {kind} with task.kind = {:?} in the configuration requires --data, the file of other problems",
                task.kind()
            ),
            (None, None) => bad_input!(
                "--data: required with --task {kind}: the data set's file (a training configuration brings its held-out problems; `fgrpo data arithmetic` writes generated ones)"
            ),
            (Some(_), Some(_)) if kind == TaskKind::Maze => {
                bad_input!("--task: maze doesn't fit a configuration of another task")
            }
            _ => {}
        }
        // Another file, with the configuration's prompt and verifier, but not its columns.
        let mut text = match training.and_then(TaskConfig::text) {
            Some(text) => text.clone(),
            None => TextConfig::of(kind, Path::new("data")),
        };
        if text.kind() != kind {
            text.kind = kind;
        }
        // All of the file is held out.
        text.held_out = Some(PathBuf::from("data"));
        if let Some(TaskConfig::Mix(mix)) = training {
            text.stop.clone_from(&mix.stop);
        }
        text.columns = Columns::default();
        Ok(TaskConfig::Text(Box::new(text)))
    }

    /// The values that the flags set in a configuration.
    fn overrides(&self, base: &Config, beside: &[TaskKind]) -> anyhow::Result<Vec<Override>> {
        // With fewer samples than configured, the larger k of the configuration are left out.
        let fewer = |n: u64| {
            let (mut ks, beyond): (Vec<u64>, Vec<u64>) =
                base.eval.k.iter().map(|&k| k as u64).partition(|&k| k <= n);
            if self.config.is_some() && !beyond.is_empty() {
                let beyond: Vec<String> = beyond.iter().map(u64::to_string).collect();
                say!("note: no pass@{}, which needs more samples than -n {n}", beyond.join(", @"));
            }
            if ks.is_empty() {
                ks.push(1);
            }
            ks
        };
        let ks = self.ks.clone().or_else(|| self.n.map(fewer));
        let of_run = [
            given("-n", "eval.samples", &self.n),
            given("-k", "eval.k", &ks),
            given("--limit", "eval.problems", &self.limit),
            given("--max-tokens", "rollout.max_new_tokens", &self.max_tokens),
            given("--seed", "seed", &self.seed),
        ];
        let stops = matches!(base.task, TaskConfig::Mix(_) | TaskConfig::Text(_));
        let stop = given("--stop", "task.stop", &self.stop);
        if let (Some(stop), false) = (&stop, stops) {
            bad_input!("{}: changes nothing here; it is for problems from files", stop.source);
        }
        let mut of_task = self.grading.of_task()?;
        of_task.extend([
            OfTask::new("--preset", "preset", &self.preset, Has::Text),
            OfTask::new("--system", "system", &self.system, Has::Text),
            OfTask::new("--thinking", "enable_thinking", &self.thinking, Has::Text),
            OfTask::new("--columns", "columns", &self.columns, Has::Text),
            OfTask::new("--maze-size", "size", &self.maze_size, Has::Maze),
            OfTask::new("--maze-seed", "seed", &self.maze_seed, Has::Maze),
            OfTask::new("--maze-problems", "held_out", &self.maze_problems, Has::Maze),
            OfTask::new("--maze-reward", "reward", &self.maze_reward, Has::Maze),
        ]);
        let of_task = overrides::of_task(&of_task, &Place::all(&base.task), beside)?;
        let of_run = of_run.into_iter().flatten().chain(self.sampling.overrides()).chain(stop);
        Ok(of_run.chain(self.compute.overrides()).chain(of_task).collect())
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

    /// The first given flag that is about a checkpoint's computation.
    pub(crate) fn of_compute(&self) -> Option<String> {
        let device = self.compute.device.map(|_| "--device".to_owned());
        device.or_else(|| self.compute.overrides().next().map(|given| given.source))
    }

    /// The first given flag that is about a server's requests.
    pub(crate) fn of_server(&self) -> Option<&'static str> {
        let all = [
            ("--api", self.api.is_some()),
            ("--server-api", self.server_api.is_some()),
            ("--concurrency", self.concurrency.is_some()),
            ("--per-request", self.per_request.is_some()),
            ("--timeout", self.timeout.is_some()),
            ("--retries", self.retries.is_some()),
            ("--retry-wait", self.retry_wait.is_some()),
            ("--key-env", self.key_env.is_some()),
        ];
        all.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag)
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
        in_range("timeout", self.timeout, 0.001, 1e6)?;
        in_range("retry-wait", self.retry_wait, 0.0, 30.0)?;
        in_range("concurrency", self.concurrency.map(|n| n as f64), 1.0, 4096.0)?;
        in_range("max-unscorable", self.max_unscorable, 0.0, 1.0)?;
        if self.per_request == Some(0) {
            bad_input!("--per-request: found 0, wanted at least 1");
        }
        if self.limit == Some(0) {
            bad_input!("--limit: found 0, wanted at least 1 problem");
        }
        StopTexts::new("--stop", self.stop.clone().unwrap_or_default()).map(drop)
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use fgrpo_train::run::folder::{Change, differences};

    /// Flags of the command, whose values aren't in a configuration.
    const OF_COMMAND: [&str; 23] = [
        "set",
        "full",
        "model",
        "adapter",
        "server",
        "samples",
        "data",
        "task",
        "out",
        "name",
        "cluster",
        "device",
        "api",
        "server-api",
        "concurrency",
        "per-request",
        "timeout",
        "retries",
        "retry-wait",
        "key-env",
        "rescore",
        "score-only",
        "max-unscorable",
    ];
    const OF_REPORT: [&str; 3] = ["cover", "json", "format"];

    /// A training configuration with a task of this kind.
    fn training(kind: &str) -> Config {
        let task = match kind {
            "maze" | "arithmetic" => String::new(),
            "python" => "data = \"d\"\ngrader = \"g.py:f\"\n".to_owned(),
            "command" => "data = \"d\"\nverifier.command = \"x\"\n".to_owned(),
            "math" => "data = \"d\"\nverifier.mode = \"strict\"\n".to_owned(),
            _ => "data = \"d\"\n".to_owned(),
        };
        let text = format!(
            "steps = 1\n[task]\nkind = \"{kind}\"\n{task}[model]\npath = \"m\"\n[eval]\nk = [1, 8]\n"
        );
        Config::parse(&text, &[]).unwrap()
    }

    /// The flags' changes of a training configuration of this kind.
    fn changed(kind: &str, words: &[&str]) -> anyhow::Result<String> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let before = training(kind);
        let after = Flags::of_words(&words)?.configuration(Some(&before), &[])?;
        let table = |config: &Config| config.to_toml().parse().unwrap();
        Ok(Change::list(&differences(&table(&before), &table(&after))))
    }

    #[test]
    fn every_flag_of_a_setting_changes_its_key() {
        let table = [
            ("math", "n", "4", "eval.k: [1, 8] -> [1]; eval.samples: 64 -> 4"),
            ("math", "k", "2,64", "eval.k: [1, 8] -> [2, 64]"),
            ("math", "limit", "3", "eval.problems: absent -> 3"),
            ("math", "max-tokens", "7", "rollout.max_new_tokens: absent -> 7"),
            ("math", "seed", "9", "seed: 1 -> 9"),
            ("math", "temperature", "0.6", "eval.temperature: 1.0 -> 0.6"),
            ("math", "top-p", "0.5", "eval.top_p: 1.0 -> 0.5"),
            ("math", "top-k", "5", "eval.top_k: 0 -> 5"),
            ("math", "min-p", "0.1", "eval.min_p: 0.0 -> 0.1"),
            ("math", "threads", "3", "compute.threads: 0 -> 3"),
            ("math", "products", "bf16", "compute.products: \"f32\" -> \"bf16\""),
            ("math", "precision", "bf16", "compute.precision: \"f32\" -> \"bf16\""),
            ("math", "exact", "", "compute.exact: false -> true"),
            ("math", "stop", "Q:", "task.stop: [] -> [\"Q:\"]"),
            ("math", "preset", "qwen3", "task.preset: absent -> \"qwen3\""),
            ("math", "system", "Be brief.", "task.system: absent -> \"Be brief.\""),
            ("math", "thinking", "off", "task.enable_thinking: absent -> false"),
            ("math", "columns", "prompt=q", "task.columns.prompt: absent -> \"q\""),
            ("math", "mode", "parity", "task.verifier.mode: \"strict\" -> \"parity\""),
            ("arithmetic", "mode", "parity", "task.mode: \"strict\" -> \"parity\""),
            ("math", "reasoning", "keep", "task.reasoning: absent -> \"keep\""),
            ("synlogic", "format-gate", "off", "task.verifier.format_gate: true -> false"),
            ("math", "percent-as-number", "on", "task.verifier.percent_as_number: false -> true"),
            ("math", "accept-unfinished", "on", "task.verifier.accept_unfinished: false -> true"),
            (
                "choice",
                "choice",
                "letter-or-content",
                "task.verifier.choice: \"letter\" -> \"letter-or-content\"",
            ),
            (
                "command",
                "command",
                "y 'two words'",
                "task.verifier.command.command: [\"x\"] -> [\"y\", \"two words\"]",
            ),
            ("python", "grader", "h.py:g", "task.grader.function: \"g.py:f\" -> \"h.py:g\""),
            ("command", "timeout-s", "5", "task.verifier.command.timeout_s: 10.0 -> 5.0"),
            ("python", "timeout-s", "5", "task.grader.timeout_s: 10.0 -> 5.0"),
            ("python", "startup-s", "5", "task.grader.startup_s: 30.0 -> 5.0"),
            ("command", "correct-from", "0.5", "task.verifier.command.correct_from: 1.0 -> 0.5"),
            ("code", "memory-mb", "64", "task.verifier.code: absent -> "),
            ("maze", "maze-size", "9", "task.size: 17 -> 9"),
            ("maze", "maze-seed", "9", "task.seed: 0 -> 9"),
            ("maze", "maze-problems", "9", "task.held_out: 256 -> 9"),
            ("maze", "maze-reward", "reaches-goal", "task.reward: \"exact\" -> \"reaches_goal\""),
        ];
        for (kind, flag, value, change) in table {
            let flag = format!("--{flag}");
            let words = [flag.as_str(), value];
            let words = &words[..1 + usize::from(!value.is_empty())];
            let found = changed(kind, words).unwrap();
            assert!(found == change || found.starts_with(change) && change.ends_with(' '), "{flag}: {found}");
            // In another task, the flag is refused by its name.
            if change.starts_with("task.") && flag != "--mode" {
                let other = if kind == "maze" { "math" } else { "maze" };
                let refused = format!("{:#}", changed(other, words).unwrap_err());
                assert!(refused.starts_with(&flag), "{refused}");
            }
        }
        let command = Alone::command();
        for flag in command.get_arguments().filter_map(clap::Arg::get_long) {
            let of_setting = table.iter().any(|(_, known, ..)| *known == flag);
            let others = [&OF_COMMAND[..], &OF_REPORT, &["help"]].concat();
            assert!(of_setting != others.contains(&flag), "--{flag}");
        }
    }
}
