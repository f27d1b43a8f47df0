//! Reads the texts of an evaluation folder's correct samples, by data set and problem.

use super::folder::GENERATIONS;
use super::generations::Generation;
use crate::io::lines;
use crate::samples::{GradedSample, SCORED};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

/// A correct sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Correct {
    /// Index among the problem's samples.
    pub sample: u64,
    /// The completion.
    pub text: String,
    /// Whether the completion ended by itself, not at the length limit.
    pub completed: bool,
}

/// Correct samples by data set and problem, ordered by index.
pub type ByProblem = BTreeMap<String, BTreeMap<String, Vec<Correct>>>;

fn each<T: DeserializeOwned>(
    path: &Path,
    mut visit: impl FnMut(T) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if let Err(e) = fgrpo_files::open(path) {
        bad_input!(
            "{}: cannot open: {e}; name a folder made by fgrpo eval, or a run's evaluation with eval.keep_texts = true",
            path.display()
        );
    }
    let end = lines::each(path, &mut visit)?;
    if let Some(line) = end.torn {
        bad_input!("{} line {line}: the line is incomplete; finish the evaluation", path.display());
    }
    Ok(())
}

/// Reads the correct samples of an evaluation folder.
///
/// Returns bad input if the folder lacks samples or scores, if a sample has two scores, or if the text of a correct
/// sample is missing.
pub fn correct(folder: &Path) -> anyhow::Result<ByProblem> {
    // A problem may belong to several data sets.
    let mut correct: HashMap<(String, u64), Vec<String>> = HashMap::new();
    let scores = folder.join(SCORED);
    each(&scores, |s: GradedSample| {
        if s.correct != Some(true) {
            return Ok(());
        }
        let GradedSample { benchmark, problem, sample, .. } = s;
        let benchmarks = correct.entry((problem.clone(), sample)).or_default();
        if benchmarks.contains(&benchmark) {
            bad_input!(
                "{}: sample {sample} of problem {problem} of {benchmark} appears twice",
                scores.display()
            );
        }
        benchmarks.push(benchmark);
        Ok(())
    })?;
    let mut texts = ByProblem::new();
    let mut seen: HashSet<(String, u64)> = HashSet::new();
    let generations = folder.join(GENERATIONS);
    each(&generations, |g: Generation| {
        let key = (g.problem, g.sample);
        let Some(benchmarks) = correct.get(&key) else { return Ok(()) };
        if !seen.insert(key.clone()) {
            return Ok(());
        }
        let completed = g.finish.as_deref() != Some("length");
        for b in benchmarks {
            let one = Correct { sample: key.1, text: g.text.clone(), completed };
            texts.entry(b.clone()).or_default().entry(key.0.clone()).or_default().push(one);
        }
        Ok(())
    })?;
    // A result from the remaining samples would look like a result from all of them.
    if let Some((problem, sample)) = correct.keys().filter(|key| !seen.contains(*key)).min() {
        bad_input!(
            "{}: the texts of {} of the {} correct samples are missing, such as sample {sample} of problem {problem}; restore the file, or evaluate into another folder",
            generations.display(),
            correct.len() - seen.len(),
            correct.len()
        );
    }
    for problem in texts.values_mut().flat_map(BTreeMap::values_mut) {
        problem.sort_by_key(|c| c.sample);
    }
    Ok(texts)
}
