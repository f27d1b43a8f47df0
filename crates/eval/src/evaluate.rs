//! Runs one evaluation, whatever the source of its samples: problems -> missing samples -> verdicts -> counts.
//!
//! The trainer and `fgrpo eval` both run [`evaluate`]. The counts stay in memory. The folder's files are output, and
//! let a stopped evaluation continue: a sample is never drawn twice, and is graded again only if its verifier changed
//! or failed.

use super::folder::{Folder, GENERATIONS};
use super::generations::{Generation, Generations};
use crate::events::Events;
use crate::failure::Stopped;
use crate::graded::{Followed, FollowedShares, Graded};
use crate::io::{interrupt, lines};
use crate::plan::Plan;
use crate::prompts;
use crate::samples::{self, Benchmark, GradedSample, SCORED};
use crate::unreadable::Unreadable;
use anyhow::Context;
use fgrpo_verify::verdict::Verdict;
use rayon::prelude::*;
use std::collections::{HashMap, HashSet};
use std::fs::OpenOptions;
use std::io::Write;

/// Adds missing samples to the store. The second argument is their number. Returns the reason why some samples are still
/// missing, if it is known.
pub type Source<'a> =
    Box<dyn FnOnce(&mut Generations, u64, &mut dyn Events) -> anyhow::Result<Option<String>> + 'a>;

/// The result of an evaluation.
pub struct Evaluated {
    /// Counts of every data set in the folder. The plan's data sets come last, in order.
    pub counts: Vec<Benchmark>,
    /// The graded samples that were counted, in the same order.
    pub graded: Vec<GradedSample>,
    /// The store with the samples' texts.
    pub store: Generations,
    /// Number of stored samples of the plan's problems.
    pub samples: u64,
    /// Number of the plan's stored samples whose text is empty.
    pub empty: u64,
    /// Number of samples that are still missing.
    pub missing: u64,
    /// Reason why samples are missing, if known.
    pub failure: Option<String>,
}

/// Draws the missing samples from `source`, grades every sample without a valid verdict, and counts. Without a source,
/// only the stored samples are used. With `regrade`, every sample is graded again.
pub fn evaluate(
    plan: &Plan,
    folder: &Folder,
    source: Option<Source<'_>>,
    regrade: bool,
    events: &mut dyn Events,
) -> anyhow::Result<Evaluated> {
    prompts::record(&plan.parts, folder)?;
    let mut store = Generations::open(&folder.file(GENERATIONS))?;
    let (title, total, missing) = (plan.title(), plan.samples(), plan.missing(&store));
    events.say(&format!(
        "{title}: {} problems x {} samples, {} of {total} are stored",
        plan.problems().len(),
        plan.n,
        total - missing
    ));
    let failure = match source {
        Some(source) => source(&mut store, missing, events)?,
        None => None,
    };
    let (graded, tallies) = grade(plan, folder, &store, regrade)?;
    for (part, tally) in plan.parts.iter().zip(&tallies) {
        events.say(&format!("{}: {} samples graded, {} verdicts kept", part.name, tally.new, tally.kept));
    }
    let counts = samples::count(&graded, &folder.file(SCORED))?;
    for benchmark in &counts {
        let more = benchmark.problems.iter().filter(|problem| problem.planned() > plan.n).count();
        if more > 0 {
            events.say(&format!(
                "warning: {}: problems with more than {} samples, from earlier evaluations or the file of samples: {more} of {}. All samples count",
                benchmark.name,
                plan.n,
                benchmark.problems.len()
            ));
        }
    }
    Ok(Evaluated {
        counts,
        graded,
        samples: tallies.iter().map(|t| t.samples).sum(),
        empty: tallies.iter().map(|t| t.empty).sum(),
        missing: plan.missing(&store),
        store,
        failure,
    })
}

impl Evaluated {
    /// Returns the fractions of a data set's prompts and instructions that were followed, if it has instructions.
    pub fn followed(&self, benchmark: &str) -> Option<FollowedShares> {
        let samples = self.graded.iter().filter(|sample| sample.benchmark == benchmark);
        Followed::shares(samples.filter_map(|sample| sample.followed.as_ref()))
    }

    /// Returns the reasons why the answers of a data set's samples can't be read.
    pub fn unreadable(&self, benchmark: &str) -> Unreadable {
        let samples = self.graded.iter().filter(|s| s.benchmark == benchmark);
        Unreadable::of(samples.map(|s| (s.verdict, s.reason.as_str(), s.finish.as_deref() == Some("length"))))
    }
}

/// Counts of the samples of one problem set of the plan, by the origin of their verdicts.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    /// Number of samples whose stored verdict is still valid.
    kept: u64,
    /// Number of samples that were graded now.
    new: u64,
    /// Number of samples with an empty text.
    empty: u64,
    samples: u64,
}

/// Number of samples graded at a time.
const BATCH: usize = 2048;

/// Grades the stored samples of the plan's problems that lack a valid verdict, and counts the samples of each part.
///
/// Verdicts are appended to the file as they are made, so that grading can be interrupted. At the end, the file is
/// rewritten in order, so that it depends only on the samples.
fn grade(
    plan: &Plan,
    folder: &Folder,
    store: &Generations,
    regrade: bool,
) -> anyhow::Result<(Vec<GradedSample>, Vec<Tally>)> {
    let parts = &plan.parts;
    let mut place: HashMap<&str, (usize, usize)> = HashMap::new();
    for (part, set) in parts.iter().enumerate() {
        place.extend(set.problems.iter().enumerate().map(|(at, p)| (p.id.as_str(), (part, at))));
    }
    let tags: Vec<Vec<String>> =
        parts.iter().map(|set| set.problems.iter().map(|p| set.grader.tag(p)).collect()).collect();
    let ours: HashSet<&str> = parts.iter().map(|set| set.name.as_str()).collect();
    let mut tallies = vec![Tally::default(); parts.len()];
    // Keeps the valid verdicts: verdicts on other data sets, and verdicts by the plan's verifiers.
    let mut graded: Vec<GradedSample> = Vec::new();
    let mut keys: HashSet<((usize, usize), u64)> = HashSet::new();
    let path = folder.file(SCORED);
    lines::complete(&path, |line| {
        // A line that another version wrote is graded again.
        let Ok(old) = serde_json::from_slice::<GradedSample>(line.text) else { return Ok(()) };
        if !ours.contains(old.benchmark.as_str()) {
            graded.push(old);
            return Ok(());
        }
        let Some(&(part, at)) = place.get(old.problem.as_str()) else { return Ok(()) };
        // A sample whose verifier failed is graded again.
        let valid = !regrade
            && old.benchmark == parts[part].name
            && old.verifier == tags[part][at]
            && old.verdict != Verdict::Unscorable;
        if valid && keys.insert(((part, at), old.sample)) {
            // The subject and the id may come from other columns than before.
            let problem = &parts[part].problems[at];
            graded.push(GradedSample {
                subject: problem.subject.clone(),
                id: problem.source_id.clone(),
                ..old
            });
            tallies[part].kept += 1;
        }
        Ok(())
    })?;
    // Rewrites the valid verdicts first, so that nothing is appended to an incomplete last line.
    folder.write(SCORED, &lines::to_bytes(&graded)?)?;
    let mut file = OpenOptions::new()
        .append(true)
        .open(&path)
        .with_context(|| format!("{}: cannot append", path.display()))?;
    let verdict = |&(part, at): &(usize, usize), g: &Generation| {
        if interrupt::requested() {
            return None;
        }
        let problem = &parts[part].problems[at];
        // A text that the provider withheld isn't evidence about the model.
        let grade = match g.finish.as_deref() {
            Some("content_filter") => Graded::unscorable("content_filter"),
            _ => g.graded.clone().unwrap_or_else(|| parts[part].grader.grade_each(problem, &g.text)),
        };
        // A verifier that was interrupted hasn't judged the sample.
        if grade.verdict == Verdict::Unscorable && interrupt::requested() {
            return None;
        }
        Some(GradedSample {
            benchmark: parts[part].name.clone(),
            problem: g.problem.clone(),
            sample: g.sample,
            correct: (grade.verdict != Verdict::Unscorable).then_some(grade.verdict == Verdict::Correct),
            verdict: grade.verdict,
            reason: grade.reason.into_owned(),
            reward: grade.reward,
            answer: parts[part].grader.vote(problem, &g.text),
            subject: problem.subject.clone(),
            id: problem.source_id.clone(),
            tokens: g.tokens,
            finish: g.finish.clone(),
            verifier: tags[part][at].clone(),
            followed: grade.followed,
        })
    };
    let mut batch: Vec<((usize, usize), Generation)> = Vec::with_capacity(BATCH);
    let mut flush = |batch: &mut Vec<((usize, usize), Generation)>| -> anyhow::Result<()> {
        let new: Vec<GradedSample> = batch.par_iter().filter_map(|(at, g)| verdict(at, g)).collect();
        let done = new.len();
        file.write_all(&lines::to_bytes(&new)?)
            .with_context(|| format!("{}: cannot append", path.display()))?;
        graded.extend(new);
        if done < batch.len() {
            let words = format!(
                "{}: stopped on request while grading; the verdicts so far are stored, and the same command continues",
                plan.title()
            );
            return Err(Stopped(words).into());
        }
        batch.clear();
        Ok(())
    };
    store.each(|g| {
        let Some(&at) = place.get(g.problem.as_str()) else { return Ok(()) };
        let tally = &mut tallies[at.0];
        tally.samples += 1;
        tally.empty += u64::from(g.text.trim().is_empty());
        if !keys.contains(&(at, g.sample)) {
            tally.new += 1;
            batch.push((at, g));
            if batch.len() == BATCH {
                flush(&mut batch)?;
            }
        }
        Ok(())
    })?;
    flush(&mut batch)?;
    // Other data sets come first, in their previous order, and then the plan's data sets, in the order of its problems.
    graded.sort_by_key(|s| {
        let position = ours.contains(s.benchmark.as_str()).then(|| place[s.problem.as_str()]);
        position.map(|position| (position, s.sample))
    });
    folder.write(SCORED, &lines::to_bytes(&graded)?)?;
    Ok((graded, tallies))
}
