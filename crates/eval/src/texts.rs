//! The texts of an evaluation folder's correct samples, by data set and problem.

use super::folder::GENERATIONS;
use super::generations::Generation;
use crate::io::lines;
use crate::samples::{GradedSample, SCORED};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

/// One correct sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Correct {
    /// Its index among the problem's samples.
    pub sample: u64,
    /// The completion.
    pub text: String,
    /// Whether it ended by itself and not at the length limit.
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
            "{}: cannot open: {e}; wanted a folder that fgrpo eval made, or a run's evaluation with eval.keep_texts = true",
            path.display()
        );
    }
    let end = lines::each(path, &mut visit)?;
    if let Some(line) = end.torn {
        bad_input!("{} line {line}: found an incomplete line, wanted a finished evaluation", path.display());
    }
    Ok(())
}

/// Reads the correct samples of an evaluation folder.
/// Fails on a folder without samples or scores, a score given twice, or a correct sample without its text.
pub fn correct(folder: &Path) -> anyhow::Result<ByProblem> {
    // A problem may belong to several data sets.
    let mut wanted: HashMap<(String, u64), Vec<String>> = HashMap::new();
    let scores = folder.join(SCORED);
    each(&scores, |s: GradedSample| {
        if s.correct != Some(true) {
            return Ok(());
        }
        let GradedSample { benchmark, problem, sample, .. } = s;
        let benchmarks = wanted.entry((problem.clone(), sample)).or_default();
        if benchmarks.contains(&benchmark) {
            bad_input!(
                "{}: sample {sample} of problem {problem} of {benchmark} appears twice, wanted each once",
                scores.display()
            );
        }
        benchmarks.push(benchmark);
        Ok(())
    })?;
    let mut found = ByProblem::new();
    let mut seen: HashSet<(String, u64)> = HashSet::new();
    let generations = folder.join(GENERATIONS);
    each(&generations, |g: Generation| {
        let key = (g.problem, g.sample);
        let Some(benchmarks) = wanted.get(&key) else { return Ok(()) };
        if !seen.insert(key.clone()) {
            return Ok(());
        }
        let completed = g.finish.as_deref() != Some("length");
        for b in benchmarks {
            let one = Correct { sample: key.1, text: g.text.clone(), completed };
            found.entry(b.clone()).or_default().entry(key.0.clone()).or_default().push(one);
        }
        Ok(())
    })?;
    // Whatever is computed from the rest would look like a result of all.
    if let Some((problem, sample)) = wanted.keys().filter(|key| !seen.contains(*key)).min() {
        bad_input!(
            "{}: found no text of {} of the {} correct samples, for one of sample {sample} of problem {problem}; wanted all of them: restore the file, or evaluate into another folder",
            generations.display(),
            wanted.len() - seen.len(),
            wanted.len()
        );
    }
    for problem in found.values_mut().flat_map(BTreeMap::values_mut) {
        problem.sort_by_key(|c| c.sample);
    }
    Ok(found)
}
