//! From stored samples to scores: grades the samples that aren't graded yet or were graded by another verifier.
//!
//! Scores are appended as they are computed, so interrupted scoring can continue. At the end the file is rewritten in
//! order, so it depends only on the samples.

use super::folder::Folder;
use super::generations::{Generation, Generations};
use crate::failure::Stopped;
use crate::graded::Graded;
use crate::io::{interrupt, lines};
use crate::problems::ProblemSet;
use crate::samples::{SCORED, present};
use anyhow::Context;
use fgrpo_verify::verdict::Verdict;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write;

/// One scored sample, a line of `samples.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scored {
    /// Data set.
    pub benchmark: String,
    /// The problem's hash.
    pub problem: String,
    /// Index among the problem's samples.
    pub sample: u64,
    /// Null when unscorable.
    pub correct: Option<bool>,
    /// The verifier's verdict.
    pub verdict: Verdict,
    /// Its reason code.
    pub reason: String,
    /// The reward, if the grader gives graded ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward: Option<f64>,
    /// The extracted answer, if this kind of problem has votes; `null` if there is no answer.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub answer: Option<Option<String>>,
    /// Subject, if the data has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The id in the data set's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Tokens generated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// The finish reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<String>,
    /// Verifier, version, settings and reference answer behind the verdict.
    pub verifier: String,
}

/// The result of scoring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Existing scores that are still valid.
    pub kept: u64,
    /// Scores computed now.
    pub made: u64,
    /// Samples of these problems with an empty text.
    pub empty: u64,
    /// Total samples of these problems.
    pub samples: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.kept += other.kept;
        self.made += other.made;
        self.empty += other.empty;
        self.samples += other.samples;
    }
}

/// Number of samples graded at a time.
const BATCH: usize = 2048;

/// Scores every stored sample of a part's problems and sorts the folder's scores. With `anew`, all existing scores are
/// recomputed.
///
/// # Errors
/// I/O errors; a stop on request.
pub fn score(folder: &Folder, store: &Generations, part: &ProblemSet, anew: bool) -> anyhow::Result<Tally> {
    let ProblemSet { name: benchmark, grader, problems, .. } = part;
    let place: HashMap<&str, usize> = problems.iter().enumerate().map(|(i, p)| (p.id.as_str(), i)).collect();
    let tags: Vec<String> = problems.iter().map(|p| grader.tag(p)).collect();
    let mut scores: Vec<Scored> = Vec::new();
    let mut tally = Tally::default();
    // Valid scores: those of other data sets, and those of this one that were made by this verifier.
    let mut held: HashMap<(usize, u64), ()> = HashMap::new();
    let path = folder.file(SCORED);
    lines::complete(&path, |line| {
        // A line written by another version is recomputed.
        let Ok(old) = serde_json::from_slice::<Scored>(line.text) else { return Ok(()) };
        if old.benchmark != *benchmark {
            scores.push(old);
            return Ok(());
        }
        let Some(&at) = place.get(old.problem.as_str()) else { return Ok(()) };
        // If the verifier failed, try again.
        let holds = !anew && old.verifier == tags[at] && old.verdict != Verdict::Unscorable;
        if holds && held.insert((at, old.sample), ()).is_none() {
            // Another column may be the subject or the id by now.
            let problem = &problems[at];
            scores.push(Scored { subject: problem.subject.clone(), id: problem.source_id.clone(), ..old });
            tally.kept += 1;
        }
        Ok(())
    })?;
    // Rewrite the valid scores first, so that nothing is appended to a torn last line.
    write_all(folder, &scores)?;
    let mut file = OpenOptions::new()
        .append(true)
        .open(&path)
        .with_context(|| format!("{}: cannot append", path.display()))?;
    let mut batch: Vec<(usize, Generation)> = Vec::with_capacity(BATCH);
    let mut grade = |batch: &mut Vec<(usize, Generation)>, scores: &mut Vec<Scored>| -> anyhow::Result<()> {
        let new: Vec<Scored> = batch
            .par_iter()
            .filter_map(|(at, g)| {
                if interrupt::requested() {
                    return None;
                }
                let problem = &problems[*at];
                // A text that the provider withheld says nothing of the model.
                let graded = match g.finish.as_deref() {
                    Some("content_filter") => Graded::unscorable("content_filter"),
                    _ => grader.grade(problem, &g.text),
                };
                // An interrupted verifier gives no verdict.
                if graded.verdict == Verdict::Unscorable && interrupt::requested() {
                    return None;
                }
                Some(Scored {
                    benchmark: benchmark.to_owned(),
                    problem: g.problem.clone(),
                    sample: g.sample,
                    correct: (graded.verdict != Verdict::Unscorable)
                        .then_some(graded.verdict == Verdict::Correct),
                    verdict: graded.verdict,
                    reason: graded.reason.into_owned(),
                    reward: graded.reward,
                    answer: grader.vote(problem, &g.text),
                    subject: problem.subject.clone(),
                    id: problem.source_id.clone(),
                    tokens: g.tokens,
                    finish: g.finish.clone(),
                    verifier: tags[*at].clone(),
                })
            })
            .collect();
        let done = new.len();
        file.write_all(&lines::to_bytes(&new)?)
            .with_context(|| format!("{}: cannot append", path.display()))?;
        scores.extend(new);
        if done < batch.len() {
            let words = format!(
                "{benchmark}: stopped on request while grading; the scores so far are kept, and the same command continues"
            );
            return Err(Stopped(words).into());
        }
        batch.clear();
        Ok(())
    };
    store.each(|g| {
        let Some(&at) = place.get(g.problem.as_str()) else { return Ok(()) };
        tally.samples += 1;
        tally.empty += u64::from(g.text.trim().is_empty());
        if !held.contains_key(&(at, g.sample)) {
            tally.made += 1;
            batch.push((at, g));
            if batch.len() == BATCH {
                grade(&mut batch, &mut scores)?;
            }
        }
        Ok(())
    })?;
    grade(&mut batch, &mut scores)?;
    // Other data sets come first, in their previous order; then this one, in the order of its problems.
    scores.sort_by_key(|s| {
        if s.benchmark == *benchmark { (1, place[s.problem.as_str()], s.sample) } else { (0, 0, 0) }
    });
    write_all(folder, &scores)?;
    Ok(tally)
}

/// Calls `visit` with each score in a folder, in order.
///
/// # Errors
/// A file that can't be read.
pub fn each(folder: &Folder, mut visit: impl FnMut(Scored)) -> anyhow::Result<()> {
    lines::each(&folder.file(SCORED), |score| {
        visit(score);
        Ok(())
    })?;
    Ok(())
}

fn write_all(folder: &Folder, scores: &[Scored]) -> anyhow::Result<()> {
    folder.write(SCORED, &lines::to_bytes(scores)?)
}
