//! Chooses responses that are worth reading: they show errors of the verifier and lucky guesses of the model.

use crate::report::card::Card;
use fgrpo_eval::dataset::Problem;
use fgrpo_eval::evaluate::Evaluated;
use fgrpo_eval::samples::{Benchmark, GradedSample};
use fgrpo_verify::verdict::Verdict;
use std::collections::{BTreeMap, HashMap, HashSet};

const EACH: usize = 4;

/// Returns a few responses of `benchmark`: wrong responses to problems that the model usually solves, correct responses
/// to problems that it rarely solves, and responses whose answer can't be read or scored. `problems` provides the
/// prompts.
pub(super) fn of(
    evaluated: &Evaluated,
    benchmark: &Benchmark,
    problems: &[Problem],
) -> anyhow::Result<Vec<(&'static str, Vec<Card>)>> {
    let rate = |i: usize| benchmark.problems[i].correct as f64 / benchmark.problems[i].samples.max(1) as f64;
    let mut by_rate: Vec<usize> =
        (0..benchmark.problems.len()).filter(|&i| benchmark.problems[i].samples > 0).collect();
    by_rate.sort_by(|&a, &b| rate(a).total_cmp(&rate(b)));
    let id = |i: &usize| benchmark.problems[*i].id.clone();
    let hard: Vec<String> = by_rate.iter().filter(|&&i| rate(i) > 0.0).take(EACH).map(id).collect();
    let easy: Vec<String> = by_rate.iter().rev().filter(|&&i| rate(i) < 1.0).take(EACH).map(id).collect();

    let mut chosen: HashMap<(&str, u64), (&'static str, &GradedSample)> = HashMap::new();
    let mut seen: HashSet<(&'static str, &str)> = HashSet::new();
    let mut unread = 0;
    for graded in evaluated.graded.iter().filter(|graded| graded.benchmark == benchmark.name) {
        let kind = match graded.verdict {
            Verdict::Correct if hard.contains(&graded.problem) => RARE,
            Verdict::Wrong if easy.contains(&graded.problem) => SLIP,
            Verdict::Unparsed | Verdict::Unscorable if unread < EACH => {
                unread += 1;
                UNREAD
            }
            _ => continue,
        };
        if seen.insert((kind, &graded.problem)) {
            chosen.insert((&graded.problem, graded.sample), (kind, graded));
        }
    }
    let by_id: HashMap<&str, &Problem> = problems.iter().map(|p| (p.id.as_str(), p)).collect();
    let mut examples: BTreeMap<&'static str, BTreeMap<(&str, u64, &str), Card>> = BTreeMap::new();
    evaluated.store.each(|generation| {
        let Some(&(kind, graded)) = chosen.get(&(generation.problem.as_str(), generation.sample)) else {
            return Ok(());
        };
        let problem = by_id.get(graded.problem.as_str());
        let id = graded.id.as_ref().unwrap_or(&graded.problem);
        let card = Card::new(graded.verdict, &generation.text)
            .fact(&graded.reason)
            .value("reference", problem.and_then(|p| p.truth.gold()))
            .fact(format!("problem {id}, sample {}", graded.sample))
            .folded("prompt", &problem.map(|p| p.text(None)).unwrap_or_default());
        examples.entry(kind).or_default().insert((id, graded.sample, &graded.problem), card);
        Ok(())
    })?;
    Ok(examples.into_iter().map(|(kind, cards)| (kind, cards.into_values().collect())).collect())
}

/// Headings of the three kinds of responses.
const SLIP: &str = "Wrong where the model is usually right: slips, and errors of the verifier";
const RARE: &str = "Correct where the model rarely is: rare solutions, and lucky guesses";
const UNREAD: &str = "No answer could be read, or none could be scored";
