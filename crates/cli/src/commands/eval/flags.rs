//! The flags of an evaluation, and the configuration that results from them.

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
use fgrpo_eval::verifier::Settings;
use fgrpo_train::config::{Config, MazeConfig, Override, TaskConfig, TextConfig};
use fgrpo_train::language::stop::StopTexts;
use fgrpo_train::problem::generated;
use std::path::{Path, PathBuf};

/// Configuration that is used without a `--config`. Its task is replaced by `--task` and `--data`.
const ALONE: &str = "steps = 1\n[task]\nkind = \"maze\"\n[model]\npath = \"model\"\n";

#[derive(Debug, Clone, Default, clap::Args)]
#[group(id = "evaluation")]
pub(crate) struct Flags {
    /// Training configuration: evaluate its held-out problems with its prompts and verifier; flags override it.
    #[arg(value_name = "CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Change a key of the training configuration; repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Use the configuration's table `eval.full` instead of `eval`.
    #[arg(long)]
    pub(crate) full: bool,
    /// Checkpoint, run folder or hub name; with --server, the served model's name; with --samples, the name of the model that
    /// made them.
    #[arg(long, value_name = "DIR|NAME")]
    pub(crate) model: Option<String>,
    /// LoRA adapter for the checkpoint, in PEFT format.
    #[arg(long, value_name = "DIR", requires = "model", conflicts_with_all = ["server", "samples"])]
    pub(crate) adapter: Option<PathBuf>,
    /// OpenAI-compatible server, e.g. http://localhost:8000.
    #[arg(long, value_name = "URL", conflicts_with = "samples")]
    pub(crate) server: Option<String>,
    /// File of existing samples: JSON lines {"problem": ..., "sample": i, "text": "..."}, or CSV or Parquet with these columns.
    #[arg(long, value_name = "FILE")]
    pub(crate) samples: Option<PathBuf>,
    /// Data set: JSON lines, JSON, CSV or Parquet. Mazes may be given as lines {"size", "seed", "index"}.
    #[arg(long, value_name = "FILE")]
    pub(crate) data: Option<PathBuf>,
    /// Kind of the problems, which selects the verifier.
    #[arg(long, value_parser = named::<TaskKind>())]
    pub(crate) task: Option<TaskKind>,
    /// Samples per problem [default: the configuration's eval.samples].
    #[arg(short = 'n', long = "n", value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) n: Option<u64>,
    /// The evaluation folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Name of the benchmark in tables [default: the data file's stem].
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Names of the columns, if they can't be detected, e.g. prompt=question,answer=final.
    #[arg(long, value_name = "WHAT=COLUMN,...")]
    pub(crate) columns: Option<Columns>,
    /// Field of `samples.jsonl` that groups problems into clusters, such as `subject`. The bootstrap draws whole clusters.
    #[arg(long, value_name = "FIELD")]
    pub(crate) cluster: Option<String>,
    /// Evaluate only the first problems, up to this number.
    #[arg(long, value_name = "PROBLEMS")]
    pub(crate) limit: Option<usize>,

    /// The paper's prompts for a model family [default: no system prompt].
    #[arg(long, value_parser = named::<Family>(), help_heading = "Prompt")]
    pub(crate) preset: Option<Family>,
    /// System prompt, instead of the preset's; an empty string for no system prompt.
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
    /// String that ends a response; repeatable.
    #[arg(long, help_heading = "Sampling")]
    pub(crate) stop: Option<Vec<String>>,
    /// Seed of the sampling [default: the training configuration's, or 0]. A server gets seeds, one for each sample, only if this flag is given.
    #[arg(long, help_heading = "Sampling")]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) compute: compute::Flags,

    /// API of the server [default: chat].
    #[arg(long, value_parser = named::<Api>(), help_heading = "Server")]
    pub(crate) api: Option<Api>,
    /// Server software, which decides the sampling fields of requests [default: all fields of vLLM, SGLang and llama.cpp].
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
    /// Grade all samples again.
    #[arg(long, help_heading = "Scoring")]
    pub(crate) rescore: bool,
    /// Grade and report only the stored samples: don't sample, and don't read --samples. A source isn't required.
    #[arg(long, help_heading = "Scoring")]
    pub(crate) score_only: bool,
    /// Maximum fraction of unscorable samples; above it, the exit code is 1 [default: 0.01].
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
    /// Criterion of a correct path [default: exact].
    #[arg(long, value_parser = among([("exact", Scoring::Exact), ("reaches-goal", Scoring::ReachesGoal)]), help_heading = "Maze")]
    pub(crate) maze_reward: Option<Scoring>,

    /// Values of k in the report [default: the configuration's eval.k, or 1, 2, 4, ... up to 256 and the number of samples].
    #[arg(short = 'k', long = "k", value_name = "K,...", value_delimiter = ',', help_heading = "Report")]
    pub(crate) ks: Option<Vec<u64>>,
    /// Also report cover@tau: the fraction of problems for which at least this percentage of the samples is correct.
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=100), help_heading = "Report")]
    pub(crate) cover: Vec<u64>,
    /// Print one JSON value.
    #[arg(long, help_heading = "Report")]
    pub(crate) json: bool,
    /// Output format [default: text].
    #[arg(long, value_enum, help_heading = "Report")]
    pub(crate) format: Option<Format>,
}

/// Source of the samples.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// URL of a server.
    Server(String),
    /// A checkpoint folder or a .gguf file.
    Checkpoint(PathBuf),
    /// A file of existing samples.
    Samples(PathBuf),
    /// The samples that `--out` already has, for `--score-only`.
    Stored,
}

#[derive(Parser)]
#[command(name = "fgrpo eval")]
struct Alone {
    #[command(flatten)]
    flags: Flags,
}

impl Flags {
    /// Parses command-line words, for commands that accept some of these flags.
    pub(crate) fn of_words(words: &[String]) -> anyhow::Result<Self> {
        let line = std::iter::once("fgrpo eval").chain(words.iter().map(String::as_str));
        match Alone::try_parse_from(line) {
            Ok(parsed) => Ok(parsed.flags),
            Err(e) => bad_input!("{}", e.to_string().trim()),
        }
    }

    /// Returns these flags with local paths instead of hub names, and the training configuration if there is one.
    pub(crate) fn resolved(&self) -> anyhow::Result<(Self, Option<Config>)> {
        let flags = self.clone().in_places()?;
        let Some(path) = &self.config else { return Ok((flags, None)) };
        let mut config = Config::load_with(path, &Override::all("--set", &self.set)?)?;
        // Only the tokenizer of the configuration's model is needed, and the evaluated checkpoint has it too.
        places::configuration(&mut config, None, Loading::Data)?;
        Ok((flags, Some(config)))
    }

    /// Returns the configuration of the evaluation: the training configuration, or a default one, with the values of the flags.
    /// `beside` are the kinds of other evaluations with the same flags. Fails for a flag that would have no effect.
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

    /// Returns the configuration with the task of `--data` and `--task` and the evaluation settings of `--full`. Other flags
    /// aren't applied yet.
    fn base(&self, training: Option<&Config>) -> anyhow::Result<Config> {
        let mut config = match training {
            Some(config) => config.clone(),
            None => Config::parse(ALONE, &[])?,
        };
        config.task = self.task(training.map(|config| &config.task))?;
        if self.full {
            let Some(full) = config.eval.full() else {
                bad_input!("--full requires a training configuration with the table [eval.full]")
            };
            config.eval = full;
        }
        if self.preset.is_some() {
            // A preset replaces the whole prompt.
            for text in config.task.texts_mut() {
                (text.system, text.enable_thinking) = (None, None);
            }
        }
        Ok(config)
    }

    /// Returns the task of the training configuration, or of `--task` and `--data`.
    fn task(&self, training: Option<&TaskConfig>) -> anyhow::Result<TaskConfig> {
        let training_kind = training.and_then(generated::answers);
        let Some(kind) = self.task.or(training_kind) else {
            return match training {
                Some(mix) if self.data.is_none() => Ok(mix.clone()),
                Some(_) => bad_input!(
                    "--data with task.kind = \"mix\" requires --task, the kind of the file's problems"
                ),
                None => {
                    let names: Vec<&str> = TaskKind::NAMES.iter().map(|(_, name, _)| *name).collect();
                    bad_input!("--task is required: one of {}", names.join(", "))
                }
            };
        };
        match (training, &self.data) {
            (None, _) if kind == TaskKind::Maze => return Ok(TaskConfig::Maze(MazeConfig::default())),
            (Some(task @ TaskConfig::Maze(_)), _) if kind == TaskKind::Maze => return Ok(task.clone()),
            (Some(task), None) if training_kind == Some(kind) => return Ok(task.clone()),
            (Some(task), None) => bad_input!(
                "--task {kind} requires --data, because the configuration has task.kind = {:?}",
                task.kind()
            ),
            (None, None) => bad_input!(
                "--task {kind} requires --data, the data set's file (a training configuration has its own held-out problems; `fgrpo data arithmetic` writes generated ones)"
            ),
            (Some(_), Some(_)) if kind == TaskKind::Maze => {
                bad_input!("--task maze isn't possible with a configuration of another task")
            }
            _ => {}
        }
        // The file is read with the configuration's prompt and mode and, for the same kind, its verifier, but not its columns.
        let mut text = match training.and_then(TaskConfig::text) {
            Some(text) => text.clone(),
            None => TextConfig::of(kind, Path::new("data")),
        };
        if text.kind() != kind {
            text.kind = kind;
            text.verifier = Settings { mode: text.verifier.mode, ..Settings::default() };
            (text.grader, text.environment, text.max_turns) = (None, None, None);
        }
        // The whole file is held out.
        text.held_out = Some(PathBuf::from("data"));
        if let Some(TaskConfig::Mix(mix)) = training {
            text.stop.clone_from(&mix.stop);
        }
        text.columns = Columns::default();
        Ok(TaskConfig::Text(Box::new(text)))
    }

    /// Returns the overrides of configuration keys by the flags.
    fn overrides(&self, base: &Config, beside: &[TaskKind]) -> anyhow::Result<Vec<Override>> {
        // With fewer samples than configured, the larger k of the configuration are left out.
        let fewer = |n: u64| {
            let (mut ks, beyond): (Vec<u64>, Vec<u64>) =
                base.eval.k.iter().map(|&k| k as u64).partition(|&k| k <= n);
            if self.config.is_some() && !beyond.is_empty() {
                let beyond: Vec<String> = beyond.iter().map(u64::to_string).collect();
                say!(
                    "note: pass@{} is left out, because it needs more samples than -n {n}",
                    beyond.join(", @")
                );
            }
            if ks.is_empty() {
                ks.push(1);
            }
            ks
        };
        let ks = self.ks.clone().or_else(|| self.n.map(fewer));
        let run_flags = [
            given("-n", "eval.samples", &self.n),
            given("-k", "eval.k", &ks),
            given("--limit", "eval.problems", &self.limit),
            given("--max-tokens", "rollout.max_new_tokens", &self.max_tokens),
            given("--seed", "seed", &self.seed),
        ];
        let stops = matches!(base.task, TaskConfig::Mix(_) | TaskConfig::Text(_));
        let stop = given("--stop", "task.stop", &self.stop);
        if let (Some(stop), false) = (&stop, stops) {
            bad_input!("{} has no effect here; it is for problems from files", stop.source);
        }
        let mut task_flags = self.grading.of_task()?;
        task_flags.extend([
            OfTask::new("--preset", "preset", &self.preset, Has::Text),
            OfTask::new("--system", "system", &self.system, Has::Text),
            OfTask::new("--thinking", "enable_thinking", &self.thinking, Has::Text),
            OfTask::new("--columns", "columns", &self.columns, Has::Text),
            OfTask::new("--maze-size", "size", &self.maze_size, Has::Maze),
            OfTask::new("--maze-seed", "seed", &self.maze_seed, Has::Maze),
            OfTask::new("--maze-problems", "held_out", &self.maze_problems, Has::Maze),
            OfTask::new("--maze-reward", "reward", &self.maze_reward, Has::Maze),
        ]);
        let task_overrides = overrides::of_task(&task_flags, &Place::all(&base.task), beside)?;
        let run_flags = run_flags.into_iter().flatten().chain(self.sampling.overrides()).chain(stop);
        Ok(run_flags.chain(self.compute.overrides()).chain(task_overrides).collect())
    }

    /// Replaces hub names by local paths.
    fn in_places(mut self) -> anyhow::Result<Self> {
        if let (None, None, Some(name)) = (&self.server, &self.samples, &self.model) {
            self.model = Some(places::model("--model", name.into())?.display().to_string());
        }
        self.data = self.data.map(|path| places::data("--data", path)).transpose()?;
        Ok(self)
    }

    /// Returns the source of the samples. Fails unless the flags name exactly one, or none with `--score-only`.
    pub(crate) fn source(&self) -> anyhow::Result<Source> {
        if self.server.is_some() && self.samples.is_some() {
            bad_input!("--server and --samples are both given; choose one source of samples");
        }
        if self.adapter.is_some() && (self.server.is_some() || self.samples.is_some()) {
            bad_input!("--adapter requires a checkpoint (--model DIR), not --server or --samples");
        }
        Ok(match (&self.server, &self.samples, &self.model) {
            (Some(url), _, _) => Source::Server(url.clone()),
            (None, Some(path), _) => Source::Samples(path.clone()),
            (None, None, Some(dir)) => Source::Checkpoint(PathBuf::from(dir)),
            (None, None, None) if self.score_only => Source::Stored,
            (None, None, None) => {
                bad_input!("a source of samples is required: --model DIR, --server URL or --samples FILE")
            }
        })
    }

    /// Returns the first given flag that needs a checkpoint.
    pub(crate) fn of_compute(&self) -> Option<String> {
        let device = self.compute.device.map(|_| "--device".to_owned());
        device.or_else(|| self.compute.overrides().next().map(|change| change.source))
    }

    /// Returns the first given flag that needs a server.
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
        all.into_iter().find(|(_, is_set)| *is_set).map(|(flag, _)| flag)
    }

    /// Checks the ranges of the values.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let in_range = |name: &str, value: Option<f64>, low: f64, high: f64| -> anyhow::Result<()> {
            match value {
                Some(value) if !(low..=high).contains(&value) => {
                    bad_input!("--{name}: expected {low} to {high}, found {value}")
                }
                _ => Ok(()),
            }
        };
        in_range("timeout", self.timeout, 0.001, 1e6)?;
        in_range("retry-wait", self.retry_wait, 0.0, 30.0)?;
        in_range("concurrency", self.concurrency.map(|n| n as f64), 1.0, 4096.0)?;
        in_range("max-unscorable", self.max_unscorable, 0.0, 1.0)?;
        if self.per_request == Some(0) {
            bad_input!("--per-request: expected at least 1, found 0");
        }
        if self.limit == Some(0) {
            bad_input!("--limit: expected at least 1 problem, found 0");
        }
        StopTexts::new("--stop", self.stop.clone().unwrap_or_default()).map(drop)
    }

    pub(crate) fn api(&self) -> Api {
        self.api.unwrap_or(Api::Chat)
    }

    pub(crate) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format.unwrap_or_default() }
    }

    /// Returns the maximum fraction of unscorable samples.
    pub(crate) fn max_unscorable(&self) -> f64 {
        self.max_unscorable.unwrap_or(MOST_UNSCORABLE)
    }

    /// Returns whether a flag changes the prompt.
    pub(crate) fn asks_for_a_prompt(&self) -> bool {
        self.preset.is_some() || self.system.is_some() || self.thinking.is_some()
    }

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

    /// Returns a training configuration with a task of this kind.
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

    /// Lists the keys that the flags `words` change in a training configuration whose task has the kind `kind`.
    fn changed(kind: &str, words: &[&str]) -> anyhow::Result<String> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let before = training(kind);
        let after = Flags::of_words(&words)?.configuration(Some(&before), &[])?;
        let table = |config: &Config| config.to_toml().parse().unwrap();
        Ok(Change::list(&differences(&table(&before), &table(&after))))
    }

    #[test]
    fn a_file_of_another_kind_gets_no_verifier_setting_of_the_configurations_kind() {
        let command = training("command");
        let flags = Flags::of_words(&["--data", "other", "--task", "choice"].map(str::to_owned)).unwrap();
        let config = flags.configuration(Some(&command), &[]).unwrap();
        let text = config.task.text().unwrap();
        assert_eq!((text.kind(), &text.verifier.command), (TaskKind::Choice, &None));
        assert_eq!(text.verifier.mode, command.task.text().unwrap().verifier.mode);
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
            let effect = changed(kind, words).unwrap();
            assert!(
                effect == change || effect.starts_with(change) && change.ends_with(' '),
                "{flag}: {effect}"
            );
            // In another task, the flag is refused by its name.
            if change.starts_with("task.") && flag != "--mode" {
                let other = if kind == "maze" { "math" } else { "maze" };
                let message = format!("{:#}", changed(other, words).unwrap_err());
                assert!(message.starts_with(&flag), "{message}");
            }
        }
        let command = Alone::command();
        for flag in command.get_arguments().filter_map(clap::Arg::get_long) {
            let is_setting = table.iter().any(|(_, name, ..)| *name == flag);
            let others = [&OF_COMMAND[..], &OF_REPORT, &["help"]].concat();
            assert!(is_setting != others.contains(&flag), "--{flag}");
        }
    }
}
