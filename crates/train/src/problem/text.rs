//! Problems from files: read, split, and prompted through the chat template.
//!
//! Prompts are tokenized once, when the task opens, because the length filter needs it.

use crate::config::TextConfig;
use crate::language::Language;
use anyhow::Context;
use fgrpo_eval::dataset::presets::Preset;
use fgrpo_eval::dataset::{self, FilterReport, Problem};
use fgrpo_eval::row::shown_text;
use rayon::prelude::*;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// The paper's longest completion; `rollout.max_new_tokens` overrides it.
pub const MAX_NEW_TOKENS: usize = 8192;

/// Problems in memory.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) items: Vec<Item>,
    /// What happened to the rows of their file, if they come from one.
    pub(super) report: Option<FilterReport>,
}

/// A problem with its prompt as token ids.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) problem: Problem,
    /// Empty without a language.
    pub(super) tokens: Vec<u32>,
}

impl Listed {
    /// Problems with their prompts in a language.
    pub(super) fn of(
        problems: Vec<Problem>,
        language: Option<&Language>,
        prompt: &Preset,
    ) -> anyhow::Result<Self> {
        let item = |problem: Problem| {
            let messages = problem.conversation(prompt.system.as_deref());
            let tokens = language.map(|l| l.prompt(&messages, prompt.thinking)).transpose()?;
            Ok(Item { problem, tokens: tokens.unwrap_or_default() })
        };
        let items = problems.into_par_iter().map(item).collect::<anyhow::Result<_>>()?;
        Ok(Self { items, report: None })
    }

    pub(super) fn first(&self) -> Option<&Problem> {
        self.items.first().map(|item| &item.problem)
    }

    pub(super) fn longest(&self) -> usize {
        self.items.iter().map(|item| item.tokens.len()).max().unwrap_or(0)
    }

    /// Rejects the problems with these ids for `reason`; returns how many.
    pub(super) fn reject(&mut self, reason: &str, ids: &HashSet<String>) -> usize {
        let before = self.items.len();
        if let Some(report) = &mut self.report {
            for Item { problem, .. } in self.items.iter().filter(|i| ids.contains(&i.problem.id)) {
                report.reject(problem.row, reason, shown_text(problem.question()));
            }
        }
        self.items.retain(|i| !ids.contains(&i.problem.id));
        if let Some(report) = &mut self.report {
            report.kept = self.items.len();
        }
        before - self.items.len()
    }
}

/// The held-out problems of a configuration, and those to train on. Without `train`, all problems of `data` are held out
/// unless `held_out` names a file. With `only_held_out`, the others aren't wanted.
pub(super) fn open(
    config: &TextConfig,
    language: Option<&Language>,
    train: bool,
    only_held_out: bool,
) -> anyhow::Result<(Listed, Listed)> {
    let prompt = config.prompting().of(config.kind());
    let Files { held_out, train } = files(config, train)?;
    let held_out = match held_out.0.is_empty() {
        true => Listed::default(),
        false => short_enough(held_out, config, language, &prompt)?,
    };
    let Some(train) = train.filter(|_| !only_held_out) else { return Ok((held_out, Listed::default())) };
    if train.0.is_empty() {
        if let Some(path) = &config.held_out {
            bad_input!(
                "task.data: {}: all of its problems are also in task.held_out, {}; wanted some to train on: more problems, or a file of other problems in task.held_out",
                config.data.display(),
                path.display()
            );
        }
        bad_input!(
            "{}: all {} problems are held out, with task.held_out_share {}; wanted some to train on: a smaller share, more problems, or a file of its own in task.held_out",
            config.data.display(),
            held_out.items.len(),
            config.held_out_share
        );
    }
    Ok((held_out, short_enough(train, config, language, &prompt)?))
}

/// The name of a configuration's held-out problems: the `held_out` file, or `data`, with `-held-out` added if `train`
/// says that the rest of it is trained on.
pub fn held_out_name(config: &TextConfig, train: bool) -> String {
    match &config.held_out {
        Some(path) => dataset::name(path),
        None if config.owns_data() => "environment".to_owned(),
        None if train => format!("{}-held-out", dataset::name(&config.data)),
        None => dataset::name(&config.data),
    }
}

/// Problems of a file, and what happened to its rows.
pub(super) type Read = (Vec<Problem>, FilterReport);

/// The problems of a configuration's files, of any length.
pub(super) struct Files {
    pub(super) held_out: Read,
    pub(super) train: Option<Read>,
}

/// Reads a configuration's files and sets held-out problems apart.
pub(super) fn files(config: &TextConfig, train: bool) -> anyhow::Result<Files> {
    let read =
        |path: &Path, key: &'static str| dataset::load(path, config.kind(), &config.columns).context(key);
    let of_data = || match config.owns_data() {
        true => dataset::of_environment(),
        false => read(&config.data, "task.data"),
    };
    if let Some(path) = &config.held_out {
        let held_out = read(path, "task.held_out")?;
        let train = if train { Some(without(of_data()?, &held_out.0)) } else { None };
        return Ok(Files { held_out, train });
    }
    let (problems, mut report) = of_data()?;
    if !train {
        return Ok(Files { held_out: (problems, report), train: None });
    }
    let (rest, held_out): (Vec<_>, Vec<_>) =
        problems.into_iter().partition(|p| !is_held_out(p, config.held_out_share));
    let share = report.of_part(held_out.len());
    report.kept = rest.len();
    Ok(Files { held_out: (held_out, share), train: Some((rest, report)) })
}

/// The training problems that aren't held out.
fn without((mut problems, mut report): Read, held_out: &[Problem]) -> Read {
    let apart: HashMap<&str, usize> = held_out.iter().map(|p| (p.id.as_str(), p.row)).collect();
    report.retain(&mut problems, "also a held-out problem", |p| {
        apart
            .get(p.id.as_str())
            .map(|row| format!("row {row} of task.held_out: {}", shown_text(p.question())))
    });
    (problems, report)
}

/// Whether a problem is in the held-out share: its id, a hash, is read as a number in [0, 1).
fn is_held_out(problem: &Problem, share: f64) -> bool {
    let hash = u64::from_str_radix(&problem.id, 16).expect("an id is 16 hexadecimal digits");
    ((hash >> 11) as f64 / (1u64 << 53) as f64) < share
}

/// Tokenizes prompts, rejects those above the limit and reports it. Without a language, none is too long.
fn short_enough(
    (problems, mut report): Read,
    config: &TextConfig,
    language: Option<&Language>,
    prompt: &Preset,
) -> anyhow::Result<Listed> {
    let Listed { mut items, .. } = Listed::of(problems, language, prompt)?;
    let longest = config.max_prompt_tokens;
    let reason = format!("prompt longer than {longest} tokens");
    for item in items.iter().filter(|i| i.tokens.len() > longest) {
        let found = format!("{} tokens: {}", item.tokens.len(), shown_text(item.problem.question()));
        report.reject(item.problem.row, &reason, found);
    }
    items.retain(|i| i.tokens.len() <= longest);
    report.kept = items.len();
    report.log();
    if items.is_empty() {
        bad_input!(
            "{}: no problem is left: {report}. Raise task.max_prompt_tokens or change the data",
            report.source.display()
        );
    }
    Ok(Listed { items, report: Some(report) })
}
