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

/// Default length limit of a completion: the largest limit in the paper.
pub const MAX_NEW_TOKENS: usize = 8192;

/// Problems in memory.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) items: Vec<Item>,
    /// Report on the rows of the problems' file, if there is one.
    pub(super) report: Option<FilterReport>,
}

/// A problem with its prompt as token ids.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) problem: Problem,
    /// Token ids of the prompt. Empty without a tokenizer.
    pub(super) tokens: Vec<u32>,
}

impl Listed {
    /// Tokenizes the prompts of problems.
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

    pub(super) fn longest(&self) -> usize {
        self.items.iter().map(|item| item.tokens.len()).max().unwrap_or(0)
    }

    /// Rejects the problems with these ids for `reason`, and returns their number.
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

/// Opens the held-out problems and the training problems of a configuration. If `train` is `false`, all problems of
/// `data` are held out unless `held_out` names a file. If `only_held_out`, the training problems are left out.
pub(super) fn open(
    config: &TextConfig,
    language: Option<&Language>,
    train: bool,
    only_held_out: bool,
) -> anyhow::Result<(Listed, Listed)> {
    let prompt = config.prompting().of(config.kind());
    let Files { held_out, train } = files(config, train)?;
    let held_out = if held_out.0.is_empty() {
        Listed::default()
    } else {
        short_enough(held_out, config, language, &prompt)?
    };
    let Some(train) = train.filter(|_| !only_held_out) else { return Ok((held_out, Listed::default())) };
    if train.0.is_empty() {
        if let Some(path) = &config.held_out {
            bad_input!(
                "task.data: {}: all of its problems are also in task.held_out, {}, so there is nothing to train on; add problems, or name a file of other problems in task.held_out",
                config.data.display(),
                path.display()
            );
        }
        bad_input!(
            "{}: all {} problems are held out with task.held_out_share = {}, so there is nothing to train on; reduce the share, add problems, or name a file in task.held_out",
            config.data.display(),
            held_out.items.len(),
            config.held_out_share
        );
    }
    Ok((held_out, short_enough(train, config, language, &prompt)?))
}

/// Returns the name of a configuration's held-out problems: the name of the `held_out` file, `environment` if an
/// environment generates the problems, or the name of `data`, with `-held-out` added if `train`.
pub fn held_out_name(config: &TextConfig, train: bool) -> String {
    match &config.held_out {
        Some(path) => dataset::name(path),
        None if config.owns_data() => "environment".to_owned(),
        None if train => format!("{}-held-out", dataset::name(&config.data)),
        None => dataset::name(&config.data),
    }
}

/// Problems of a file, and a report on its rows.
pub(super) type Read = (Vec<Problem>, FilterReport);

/// Problems of a configuration's files, before the filter by length.
pub(super) struct Files {
    pub(super) held_out: Read,
    pub(super) train: Option<Read>,
}

/// Reads a configuration's files and separates the held-out problems.
pub(super) fn files(config: &TextConfig, train: bool) -> anyhow::Result<Files> {
    let read =
        |path: &Path, key: &'static str| dataset::load(path, config.kind(), &config.columns).context(key);
    let data = || {
        if config.owns_data() { dataset::of_environment() } else { read(&config.data, "task.data") }
    };
    if let Some(path) = &config.held_out {
        let held_out = read(path, "task.held_out")?;
        let train = if train { Some(without(data()?, &held_out.0)) } else { None };
        return Ok(Files { held_out, train });
    }
    let (problems, mut report) = data()?;
    if !train {
        return Ok(Files { held_out: (problems, report), train: None });
    }
    let (rest, held_out): (Vec<_>, Vec<_>) =
        problems.into_iter().partition(|p| !is_held_out(p, config.held_out_share));
    let held_out_report = report.of_part(held_out.len());
    report.kept = rest.len();
    Ok(Files { held_out: (held_out, held_out_report), train: Some((rest, report)) })
}

/// Removes held-out problems from the training problems.
fn without((mut problems, mut report): Read, held_out: &[Problem]) -> Read {
    let rows: HashMap<&str, usize> = held_out.iter().map(|p| (p.id.as_str(), p.row)).collect();
    report.retain(&mut problems, "also a held-out problem", |p| {
        rows.get(p.id.as_str()).map(|row| format!("row {row} of task.held_out: {}", shown_text(p.question())))
    });
    (problems, report)
}

/// Returns whether a problem is held out: whether its id, a hash read as a number in [0, 1), is less than `share`.
fn is_held_out(problem: &Problem, share: f64) -> bool {
    let hash = u64::from_str_radix(&problem.id, 16).expect("an id is 16 hexadecimal digits");
    ((hash >> 11) as f64 / (1u64 << 53) as f64) < share
}

/// Tokenizes prompts, and rejects and reports the problems whose prompts are above the length limit. Without a
/// tokenizer, the length isn't checked.
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
        let detail = format!("{} tokens: {}", item.tokens.len(), shown_text(item.problem.question()));
        report.reject(item.problem.row, &reason, detail);
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
