//! Checks the files of the paper's nine benchmarks and of its training data: whether they exist, and how many problems each has.

use fgrpo_eval::dataset;
use fgrpo_eval::dataset::presets::{Family, Prompting};
use fgrpo_eval::kind::TaskKind;
use fgrpo_paper::data::Benchmark;
use fgrpo_paper::plan::{DEEPSCALER, locate};
use fgrpo_train::language::Language;
use rayon::prelude::*;
use std::path::{Path, PathBuf};

/// Maximum number of tokens of a training prompt.
const LONGEST_PROMPT: usize = 1_024;
/// Possible names of the DeepScaleR file.
const DEEPSCALER_NAMES: [&str; 3] = ["deepscaler", "deepscalerpreviewdataset", "deepscalerpreview"];

pub(super) struct Checked {
    pub(super) name: String,
    pub(super) file: String,
    /// Number of problems in the file.
    pub(super) problems: String,
    /// Number of problems in the paper.
    pub(super) expected: String,
    /// Reason why the file can't be used.
    pub(super) wrong: Option<String>,
    /// Accepted and rejected rows, if the file can be read.
    pub(super) report: Option<dataset::FilterReport>,
}

impl Checked {
    /// Summarises the check of one file. `result` is the file, its number of problems and its report, or the reason why the file
    /// can't be used.
    fn of(
        name: &str,
        expected: Option<u64>,
        result: Result<(PathBuf, usize, dataset::FilterReport), String>,
    ) -> Self {
        let (file, problems, wrong, report) = match result {
            Err(why) => ("--".to_owned(), "--".to_owned(), Some(why), None),
            Ok((file, problems, report)) => {
                let file = file.display().to_string();
                let differs = expected.filter(|n| *n != problems as u64);
                let wrong =
                    differs.map(|n| format!("{file}: expected {n} problems, found {problems}; {report}"));
                (file, problems.to_string(), wrong, Some(report))
            }
        };
        let expected = expected.map_or_else(|| "not stated".to_owned(), |n| n.to_string());
        Self { name: name.to_owned(), file, problems, expected, wrong, report }
    }
}

/// Checks whether a benchmark's file exists, can be read, and has as many problems as the paper's.
pub(super) fn check(benchmark: &Benchmark, root: &Path) -> Checked {
    let read = || {
        let Some(file) = locate(root, &benchmark.files)? else {
            anyhow::bail!("not in {}; from {}", root.display(), benchmark.home);
        };
        let (problems, report) = dataset::load(&file, benchmark.kind, &Default::default())?;
        Ok((file, problems.len(), report))
    };
    let result = read().map_err(|why| format!("{}: {why:#}", benchmark.name));
    Checked::of(&benchmark.name, benchmark.problems, result)
}

/// Checks the paper's mathematical training data after the paper's length filter, which needs the model's tokenizer. Returns
/// `None` if the file doesn't exist.
pub(super) fn check_training(
    root: &Path,
    model: Option<&Path>,
    family: Family,
) -> anyhow::Result<Option<Checked>> {
    let Some(file) = locate(root, &DEEPSCALER_NAMES)? else { return Ok(None) };
    let (mut problems, mut report) = dataset::load(&file, TaskKind::Math, &Default::default())?;
    let prompt = Prompting { preset: Some(family), ..Prompting::default() }.of(TaskKind::Math);
    let mut name = "DeepScaleR (training)";
    match model {
        Some(model) => {
            let language = Language::read(model, &[])?;
            let length = |p: &dataset::Problem| {
                let conversation = p.conversation(prompt.system.as_deref());
                language.prompt(&conversation, prompt.thinking).map(|t| t.len())
            };
            let lengths: Vec<usize> = problems.par_iter().map(length).collect::<anyhow::Result<_>>()?;
            let mut lengths = lengths.into_iter();
            let reason = format!("prompt longer than {LONGEST_PROMPT} tokens");
            report.retain(&mut problems, &reason, |_| {
                lengths.next().filter(|n| *n > LONGEST_PROMPT).map(|n| format!("{n} tokens"))
            });
        }
        None => name = "DeepScaleR (training), long prompts not rejected without a --model",
    }
    Ok(Some(Checked::of(name, Some(DEEPSCALER), Ok((file, problems.len(), report)))))
}
