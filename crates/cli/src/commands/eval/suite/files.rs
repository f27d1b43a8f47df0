//! The files of the paper's nine benchmarks and of its training data: whether they are there, and how many problems each has.

use fgrpo_eval::dataset;
use fgrpo_eval::dataset::presets::{Family, Prompting};
use fgrpo_eval::kind::TaskKind;
use fgrpo_paper::data::Benchmark;
use fgrpo_paper::plan::{DEEPSCALER, locate};
use fgrpo_train::language::Language;
use rayon::prelude::*;
use std::path::Path;

/// Tokens of the longest prompt that it leaves.
const LONGEST_PROMPT: usize = 1_024;
/// Names that the file of DeepScaleR may have.
const DEEPSCALER_NAMES: [&str; 3] = ["deepscaler", "deepscalerpreviewdataset", "deepscalerpreview"];

pub(super) struct Checked {
    pub(super) name: String,
    pub(super) file: String,
    pub(super) found: String,
    pub(super) wanted: String,
    pub(super) wrong: Option<String>,
    /// What happened to its rows, if it can be read.
    pub(super) report: Option<dataset::FilterReport>,
}

impl Checked {
    fn missing(name: &str, wanted: Option<u64>, why: String) -> Self {
        let wanted = wanted.map_or_else(|| "not stated".to_owned(), |n| n.to_string());
        let none = || "--".to_owned();
        Self { name: name.to_owned(), file: none(), found: none(), wanted, wrong: Some(why), report: None }
    }

    fn counted(
        name: &str,
        file: &Path,
        found: usize,
        wanted: Option<u64>,
        report: dataset::FilterReport,
    ) -> Self {
        let differs = wanted.is_some_and(|n| n != found as u64);
        Self {
            name: name.to_owned(),
            file: file.display().to_string(),
            found: found.to_string(),
            wanted: wanted.map_or_else(|| "not stated".to_owned(), |n| n.to_string()),
            wrong: differs.then(|| {
                format!(
                    "{}: found {found} problems, wanted {}; {report}",
                    file.display(),
                    wanted.unwrap_or(0)
                )
            }),
            report: Some(report),
        }
    }
}

/// Looks at a benchmark's file: whether it is there, can be read, and has as many problems as the paper's.
pub(super) fn check(benchmark: &Benchmark, root: &Path) -> Checked {
    let missing = |why: String| Checked::missing(&benchmark.name, benchmark.problems, why);
    let file = match locate(root, &benchmark.files) {
        Ok(Some(file)) => file,
        Ok(None) => {
            return missing(format!(
                "{}: not in {}; from {}",
                benchmark.name,
                root.display(),
                benchmark.home
            ));
        }
        Err(error) => return missing(format!("{}: {error:#}", benchmark.name)),
    };
    match dataset::load(&file, benchmark.kind, &Default::default()) {
        Ok((problems, report)) => {
            Checked::counted(&benchmark.name, &file, problems.len(), benchmark.problems, report)
        }
        Err(error) => missing(format!("{}: {error:#}", benchmark.name)),
    }
}

/// The training data of the paper's mathematics by the paper's filter, where its file is there. The filter needs the model's tokenizer.
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
            let mut each = lengths.into_iter();
            let reason = format!("prompt longer than {LONGEST_PROMPT} tokens");
            report.retain(&mut problems, &reason, |_| {
                each.next().filter(|n| *n > LONGEST_PROMPT).map(|n| format!("{n} tokens"))
            });
        }
        None => name = "DeepScaleR (training), long prompts not rejected without a --model",
    }
    Ok(Some(Checked::counted(name, &file, problems.len(), Some(DEEPSCALER), report)))
}
