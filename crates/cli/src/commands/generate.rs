//! `fgrpo generate`: samples answers to a prompt, to a file of prompts, or in a conversation.
//!
//! The prompt is rendered with the model's chat template, if it has one, unless `--raw` is given. The answer is streamed to
//! standard output. The seed determines all random draws.

use crate::args::compute;
use crate::args::grading::switch;
use crate::args::named::named;
use crate::args::places;
use crate::args::sampling;
use crate::output::streams;
use anyhow::Context;
use fgrpo_core::rng::Key;
use fgrpo_eval::dataset::Message;
use fgrpo_eval::dataset::{self, Problem, columns::Columns, format::FileFormat};
use fgrpo_eval::failure::{OrBadInput, Stopped};
use fgrpo_eval::io::interrupt;
use fgrpo_eval::io::server::sampling::RequestSampling;
use fgrpo_eval::kind::TaskKind;
use fgrpo_eval::names::Named;
use fgrpo_eval::problems::problem_key;
use fgrpo_files as input;
use fgrpo_nn::{Completion, Finish};
use fgrpo_train::language::Language;
use fgrpo_train::policy::{self, Policy, Request, Sampling};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, IsTerminal, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use stream::Stream;

mod conversation;
mod stream;

/// Ask a checkpoint: a prompt, a file of prompts, or a conversation.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fgrpo generate --model models/Qwen3-1.7B 'What is 7 * 8?'
  fgrpo generate --model runs/math/checkpoints/step-000100 --temperature 0 --system 'Be brief.' 'What is 7 * 8?'
  fgrpo generate --model models/base --raw 'Once upon a time' --max-tokens 64
  fgrpo generate --model models/Qwen3-1.7B problems.jsonl > answers.jsonl     # one line for each row
  fgrpo generate --model models/Qwen3-1.7B -i                                 # a conversation; Ctrl-D ends it

A file of rows (.jsonl, .csv, .parquet, ...) is a file of prompts; of any other file the text is the prompt.
A file of prompts gives one line for each row, with the row and its id. `fgrpo eval --samples` reads these lines.")]
pub(crate) struct Args {
    /// Prompt, file of prompts, or - to read the prompt from standard input.
    #[arg(value_name = "PROMPT|FILE")]
    prompt: Option<String>,
    /// Checkpoint folder with a tokenizer, or a .gguf file.
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// LoRA adapter for the model, in PEFT format.
    #[arg(long, value_name = "DIR")]
    adapter: Option<PathBuf>,
    /// Chat interactively; each line is a message.
    #[arg(short, long, conflicts_with = "raw")]
    interactive: bool,
    /// System prompt.
    #[arg(long, help_heading = "Prompt")]
    system: Option<String>,
    /// Thinking mode of the chat template [default: the template's own].
    #[arg(long, value_parser = switch(), help_heading = "Prompt")]
    thinking: Option<bool>,
    /// Continue the prompt as plain text, without the chat template.
    #[arg(long, conflicts_with_all = ["system", "thinking"], help_heading = "Prompt")]
    raw: bool,
    /// Names of the file's columns, if they can't be detected, e.g. prompt=question.
    #[arg(long, value_name = "WHAT=COLUMN,...", help_heading = "Prompt")]
    columns: Option<Columns>,
    /// Kind of the file's problems: its prompts are then those of `fgrpo eval` [default: prompts without answers].
    #[arg(long, value_parser = named::<TaskKind>(), help_heading = "Prompt")]
    task: Option<TaskKind>,
    #[command(flatten)]
    sampling: sampling::Flags,
    /// Maximum answer length in tokens; the model's context may end it earlier.
    #[arg(long, default_value_t = 1024, help_heading = "Sampling")]
    max_tokens: usize,
    /// String that ends an answer, in addition to the model's end tokens; repeatable.
    #[arg(long, help_heading = "Sampling")]
    stop: Vec<String>,
    /// Seed of the sampling.
    #[arg(long, default_value_t = 0, help_heading = "Sampling")]
    seed: u64,
    #[command(flatten)]
    compute: compute::Flags,
}

/// Number of prompts of a file that are sampled together.
const PROMPTS_AT_ONCE: usize = 256;

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let drawing = args.sampling.settings(args.max_tokens)?;
    let question = args.question()?;
    interrupt::listen();
    let mut generator = Generator::open(args, drawing)?;
    match question {
        Question::Conversation(first) => conversation::hold(&mut generator, first),
        Question::Text(text) => {
            let (completion, seconds) = generator.say(generator.encode_text(&text)?, Key::new(args.seed))?;
            generator.conclude(&completion, seconds);
            if interrupt::requested() {
                return Err(Stopped("stopped on request; the answer is incomplete".to_owned()).into());
            }
            Ok(())
        }
        Question::Rows(problems) => generator.rows(&problems),
    }
}

enum Question {
    Text(String),
    Rows(Vec<Problem>),
    /// A conversation, with its first message if it was given.
    Conversation(Option<String>),
}

impl Args {
    fn question(&self) -> anyhow::Result<Question> {
        let path = self.prompt.as_deref().map(Path::new);
        let text = match (&self.prompt, path) {
            (Some(_), Some(path)) if path.is_dir() || (path.is_file() && FileFormat::of(path).is_some()) => {
                if self.interactive {
                    bad_input!(
                        "--interactive: expected a first message or nothing, found the file of prompts {}",
                        path.display()
                    );
                }
                let problems = dataset::prompts(path, self.task, &self.columns.clone().unwrap_or_default())
                    .with_context(|| {
                    let kind = self.task.unwrap_or(TaskKind::Command).name();
                    format!("a file of prompts is read like data of kind {kind}")
                })?;
                return Ok(Question::Rows(problems));
            }
            (Some(_), Some(path)) if path.is_file() => Some(
                input::read_to_string(path, input::PROMPT as u64)
                    .with_context(|| path.display().to_string())
                    .or_bad_input()?,
            ),
            (Some(dash), _) if dash == "-" => Some(stdin()?),
            (None, _) if !self.interactive && !io::stdin().is_terminal() => Some(stdin()?),
            (prompt, _) => prompt.clone(),
        };
        match (self.interactive, text) {
            (true, first) => Ok(Question::Conversation(first)),
            (false, Some(text)) if !text.trim().is_empty() => Ok(Question::Text(text)),
            (false, _) => bad_input!(
                "a prompt is required: as an argument, in a file or on standard input (-i starts a conversation)"
            ),
        }
    }
}

/// Reads a prompt from standard input, up to a maximum size, because the input may be endless.
fn stdin() -> anyhow::Result<String> {
    let mut text = String::new();
    let limit = input::PROMPT as u64;
    let read =
        io::stdin().take(limit + 1).read_to_string(&mut text).context("standard input").or_bad_input()?;
    if read as u64 > limit {
        bad_input!("standard input: the prompt is longer than {limit} bytes");
    }
    Ok(text)
}

/// A model with the settings of its answers.
struct Generator<'a> {
    args: &'a Args,
    sampling: Sampling,
    policy: Policy,
}

impl<'a> Generator<'a> {
    fn open(args: &'a Args, drawing: RequestSampling) -> anyhow::Result<Self> {
        let model = places::model("--model", args.model.clone())?;
        let language = Language::read(&model, &args.stop)?;
        if args.interactive && !language.has_template() {
            bad_input!("--interactive: {} has no chat template; use a chat model", model.display());
        }
        let device = args.compute.device(None)?;
        let engine = policy::open(&model, args.adapter.as_deref(), &device)?;
        Ok(Self { args, sampling: Sampling::from(&drawing), policy: Policy::new(engine, Arc::new(language)) })
    }

    fn encode_text(&self, text: &str) -> anyhow::Result<Vec<u32>> {
        if self.args.raw {
            return self.policy.language().plain(text);
        }
        self.encode(&self.with_system([Message::new("user", text)]))
    }

    /// Puts the system prompt of `--system` before the messages.
    fn with_system(&self, messages: impl IntoIterator<Item = Message>) -> Vec<Message> {
        let system = self.args.system.as_ref().map(|s| Message::new("system", s.as_str()));
        system.into_iter().chain(messages).collect()
    }

    fn encode(&self, messages: &[Message]) -> anyhow::Result<Vec<u32>> {
        self.policy.language().prompt(messages, self.args.thinking)
    }

    /// Returns a request for one answer. `name` describes the prompt in an error.
    fn request(&self, name: &str, prompt: Vec<u32>, key: Key) -> anyhow::Result<Request> {
        self.policy.check_prompt(name, &prompt)?;
        Ok(Request::new(prompt).max_tokens(self.args.max_tokens).key(key))
    }

    /// Streams the answer to one prompt to standard output, then prints its length and speed.
    fn say(&mut self, prompt: Vec<u32>, key: Key) -> anyhow::Result<(Completion, f64)> {
        let request = self.request("the prompt", prompt, key)?;
        let clock = Instant::now();
        let language = Arc::clone(self.policy.language());
        let stream = Stream::new(&language);
        let mut answer = None;
        // `show` returns false if stdout was closed.
        let go_on = |_: usize, tokens: &[u32]| stream.show(tokens) && !interrupt::requested();
        self.policy.sample_with(&[request], &self.sampling, &go_on, &mut |completion| {
            answer = Some(completion);
            ControlFlow::Continue(())
        })?;
        let answer = answer.context("the engine gave no completion")?;
        stream.end(&answer.tokens);
        Ok((answer, clock.elapsed().as_secs_f64()))
    }

    fn conclude(&self, completion: &Completion, seconds: f64) {
        if io::stderr().is_terminal() {
            let n = completion.tokens.len();
            let why = match completion.finish {
                _ if interrupt::requested() => "stopped",
                Finish::Stop => "ended by itself",
                Finish::Length => "cut off by --max-tokens",
            };
            say!("\n[{n} tokens, {:.1} tokens/s, {why}]", n as f64 / seconds.max(1e-9));
        }
    }

    /// Answers a file of prompts with one JSON line for each row, in the same order.
    fn rows(&mut self, problems: &[Problem]) -> anyhow::Result<()> {
        let language = Arc::clone(self.policy.language());
        // Copies of a problem are its samples.
        let mut copies: HashMap<&str, u64> = HashMap::new();
        let samples: Vec<u64> = problems
            .iter()
            .map(|problem| {
                let next = copies.entry(&problem.id).or_default();
                *next += 1;
                *next - 1
            })
            .collect();
        let request = |(i, problem): (usize, &Problem)| {
            let prompt = if self.args.raw {
                language.plain(&problem.text(None))
            } else {
                self.encode(&problem.conversation(self.args.system.as_deref()))
            }?;
            let key = problem_key(self.args.seed, &problem.id);
            let key = if samples[i] > 0 { key.with(samples[i]) } else { key };
            self.request(&format!("prompt {}", i + 1), prompt, key)
        };
        let requests = problems.iter().enumerate().map(request).collect::<anyhow::Result<Vec<_>>>()?;
        let progress = crate::output::progress::bar(
            Some(problems.len() as u64),
            "{bar:32.cyan/238} {pos}/{len} prompts ({left} left)",
        );
        let mut next = 0;
        for requests in requests.chunks(PROMPTS_AT_ONCE) {
            let first = next;
            let mut waiting: BTreeMap<usize, Completion> = BTreeMap::new();
            let (mut failure, mut read_on) = (None, true);
            let go_on = |_: usize, _: &[u32]| !interrupt::requested();
            self.policy.sample_with(requests, &self.sampling, &go_on, &mut |completion| {
                // The completion may be incomplete.
                if interrupt::requested() {
                    return ControlFlow::Break(());
                }
                waiting.insert(first + completion.prompt, completion);
                while let Some(c) = waiting.remove(&next) {
                    let line = line(&language, &problems[next], samples[next], &c);
                    read_on = line.as_ref().is_ok_and(|line| streams::stream(&format!("{line}\n")));
                    failure = line.err();
                    if !read_on {
                        return ControlFlow::Break(());
                    }
                    next += 1;
                    progress.inc(1);
                }
                ControlFlow::Continue(())
            })?;
            match failure {
                Some(error) => return Err(error),
                // Standard output was closed, or failed. A failure is reported at the end.
                None if !read_on => return Ok(()),
                None => {}
            }
            if interrupt::requested() {
                progress.finish_and_clear();
                let words = format!("stopped on request after {next} of {} prompts", problems.len());
                return Err(Stopped(words).into());
            }
        }
        progress.finish_and_clear();
        Ok(())
    }
}

/// Formats an answer as a line of a samples file.
fn line(
    language: &Language,
    problem: &Problem,
    sample: u64,
    completion: &Completion,
) -> anyhow::Result<String> {
    let finish = match completion.finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
    };
    let text = language.answer(&completion.tokens)?;
    Ok(json!({
        "row": problem.row,
        "id": problem.source_id,
        "problem": problem.id,
        "sample": sample,
        "prompt": problem.question(),
        "text": text,
        "tokens": completion.tokens.len(),
        "finish": finish,
    })
    .to_string())
}
