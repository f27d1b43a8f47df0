//! `fgrpo data show`: prints problems as a model sees them, and reference answers as the verifier reads them.

use crate::args::grading::switch;
use crate::args::named::named;
use crate::args::places::{self, Loading};
use fgrpo_eval::dataset;
use fgrpo_eval::dataset::columns::Columns;
use fgrpo_eval::dataset::presets::{Family, Prompting};
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::io::harmless::harmless;
use fgrpo_eval::kind::{TaskKind, Truth};
use fgrpo_train::config::{Config, builtin};
use fgrpo_train::episode;
use fgrpo_train::language::Language;
use fgrpo_train::language::chat::ChatTemplate;
use fgrpo_train::problem::{Split, Task};
use fgrpo_verify::verdict::Verdict;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Arguments of `fgrpo data show`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    fgrpo data show math.toml\n  \
    fgrpo data show math.toml --split held-out --limit 10\n  \
    fgrpo data show gsm8k/main/train --model models/Qwen3-1.7B --preset qwen3\n  \
    fgrpo data show problems.jsonl --columns answer=final            # no model: messages without their template\n\n\
    Prompts are rendered by the chat template, special tokens included, as training and evaluation send them,\n    \
    with an environment its tools and the text of reset too;\n    \
    control characters are shown as escapes; --json prints them exactly.")]
pub(crate) struct Show {
    /// A training configuration (.toml, or the name of a built-in one), or a data set: a file, a folder or a split of it.
    #[arg(value_name = "CONFIG|FILE")]
    source: PathBuf,
    /// Change a key of the configuration; repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Split of a configuration [default: train, or held-out if there is no training problem].
    #[arg(long, value_parser = super::arithmetic::split())]
    split: Option<Split>,
    /// Number of problems to show, from the first.
    #[arg(long, value_name = "PROBLEMS", default_value_t = 3)]
    limit: u64,
    /// Print one JSON line for each problem.
    #[arg(long)]
    json: bool,
    /// Folder of the tokenizer and the chat template.
    #[arg(long, value_name = "DIR", help_heading = "For a data set")]
    model: Option<PathBuf>,
    /// Kind of the problems.
    #[arg(long, value_parser = named::<TaskKind>(), default_value = "math", help_heading = "For a data set")]
    task: TaskKind,
    /// Names of the columns, if they can't be detected, e.g. prompt=question,answer=final.
    #[arg(long, value_name = "WHAT=COLUMN,...", help_heading = "For a data set")]
    columns: Option<Columns>,
    /// The paper's prompts for a model family.
    #[arg(long, value_parser = named::<Family>(), help_heading = "For a data set")]
    preset: Option<Family>,
    /// System prompt, instead of the preset's; an empty string for no system prompt.
    #[arg(long, help_heading = "For a data set")]
    system: Option<String>,
    /// Thinking mode of the chat template, instead of the preset's.
    #[arg(long, value_parser = switch(), help_heading = "For a data set")]
    thinking: Option<bool>,
}

#[derive(Debug, Serialize)]
struct Shown {
    /// Part of a mix that the problem belongs to.
    part: Option<String>,
    /// Rendered prompt, or the messages if there is no tokenizer.
    prompt: String,
    /// Length of the prompt in tokens, if there is a tokenizer.
    tokens: Option<usize>,
    /// Reference answer, or another criterion by which answers are graded.
    gold: Option<String>,
    /// Reference answer as the verifier reads it.
    read_as: Option<String>,
}

pub(super) fn run(args: &Show) -> anyhow::Result<()> {
    let builtin = args.source.to_str().is_some_and(|name| builtin::builtin(name).is_some());
    let (all, entries) = match args.source.extension() {
        Some(extension) if extension == "toml" => of_configuration(args)?,
        None if builtin && !dataset::exists(&args.source) => of_configuration(args)?,
        _ => of_data(args)?,
    };
    for (i, problem) in entries.iter().enumerate() {
        if args.json {
            outln!("{}", serde_json::to_string(problem)?);
        } else {
            out!("{}", problem.text(i, all));
        }
    }
    Ok(())
}

fn of_configuration(args: &Show) -> anyhow::Result<(u64, Vec<Shown>)> {
    let mut config = Config::load(&args.source, &args.set)?;
    places::configuration(&mut config, None, Loading::Tokenizer)?;
    let task = Task::open(&config)?;
    let split = match args.split {
        Some(split) => split,
        None if task.is_empty(Split::Train) => Split::HeldOut,
        None => Split::Train,
    };
    of_task(&task, split, args.limit)
}

fn of_data(args: &Show) -> anyhow::Result<(u64, Vec<Shown>)> {
    if !args.set.is_empty() || args.split.is_some() {
        bad_input!("--set and --split require a configuration (.toml), not a data set");
    }
    let columns = args.columns.clone().unwrap_or_default();
    let source = places::data("data show", args.source.clone())?;
    let (problems, report) = dataset::load(&source, args.task, &columns)?;
    let open = |model: &PathBuf| -> anyhow::Result<Language> {
        Language::open(&places::model("--model", model.clone())?, &[]).or_bad_input()
    };
    let language = args.model.as_ref().map(open).transpose()?;
    let prompting =
        Prompting { preset: args.preset, system: args.system.clone(), thinking: args.thinking }.of(args.task);
    report.log();
    let entries = problems.iter().take(args.limit as usize).map(|p| {
        let messages = p.conversation(prompting.system.as_deref());
        let (prompt, tokens) = match &language {
            Some(language) => {
                let tokens = language.prompt(&messages, prompting.thinking)?;
                (language.text(&tokens), Some(tokens.len()))
            }
            None => {
                let lines: Vec<String> =
                    messages.iter().map(|m| format!("{}: {}", m.role, m.content)).collect();
                (lines.join("\n"), None)
            }
        };
        Ok(Shown { part: None, prompt, tokens, gold: p.truth.gold(), read_as: p.truth.read_as() })
    });
    let entries = entries.collect::<anyhow::Result<Vec<_>>>()?;
    Ok((problems.len() as u64, entries))
}

fn of_task(task: &Task, split: Split, limit: u64) -> anyhow::Result<(u64, Vec<Shown>)> {
    let all = task.len(split);
    let language = &task.language;
    let entries = (0..all.min(limit)).map(|id| {
        let prompt = task.prompt(split, id);
        let truth = &prompt.problem.truth;
        let (gold, mut read_as) = (truth.gold(), truth.read_as());
        // Grade the reference answer with the configured verifier.
        let thoughts =
            language.template().and_then(ChatTemplate::tags).map_or(String::new(), |tags| tags.close);
        let boxed = gold.as_ref().and_then(|g| language.encode(&format!("{thoughts}\\boxed{{{g}}}")).ok());
        if let (Truth::Math(_) | Truth::Choice(_), Some(tokens)) = (truth, boxed) {
            let graded = task.grade(&prompt, &tokens);
            let verdict = match graded.verdict {
                Verdict::Correct => "correct",
                Verdict::Wrong => "WRONG",
                Verdict::Unparsed => "UNPARSED",
                Verdict::Unscorable => "UNSCORABLE",
            };
            let grade = format!("graded {verdict} when put in a box ({})", graded.reason);
            read_as = Some(read_as.map_or_else(|| grade.clone(), |r| format!("{r}; {grade}")));
        }
        let set = task.set(&prompt);
        let tokens = match set.grader.environment() {
            Some(_) => episode::first_prompt(language, set, &prompt.problem)?,
            None => prompt.tokens.to_vec(),
        };
        Ok(Shown {
            part: task.part(&prompt).map(str::to_owned),
            tokens: Some(tokens.len()),
            prompt: language.text(&tokens),
            gold,
            read_as,
        })
    });
    Ok((all, entries.collect::<anyhow::Result<_>>()?))
}

impl Shown {
    fn text(&self, number: usize, all: u64) -> String {
        let tokens = self.tokens.map_or_else(|| "no tokenizer".to_owned(), |n| format!("{n} tokens"));
        let part = self.part.as_ref().map(|p| format!(" of {p}")).unwrap_or_default();
        let mut text = format!("--- problem {} of {all}{part}, {tokens} ---\n{}\n", number + 1, self.prompt);
        for (name, value) in [("gold", &self.gold), ("read as", &self.read_as)] {
            if let Some(value) = value {
                let _ = writeln!(text, "--- {name}: {value}");
            }
        }
        text.push('\n');
        harmless(&text)
    }
}
