//! A run's evaluations during training: the same stages as any evaluation, with the policy in memory as the model.

use super::exact::solution_logp;
use super::from_engine;
use crate::config::{Config, EvalConfig, TaskConfig};
use crate::policy::Policy;
use crate::problem::{Split, Task};
use crate::run::folder::{EVALUATIONS, FULL_EVALUATIONS};
use fgrpo_eval::evaluate::{Evaluated, Source, evaluate};
use fgrpo_eval::events::Events;
use fgrpo_eval::exact::Exact;
use fgrpo_eval::failure::Stopped;
use fgrpo_eval::folder::Folder;
use fgrpo_eval::plan::{Origin, Plan};
use fgrpo_eval::problems::keyed;
use fgrpo_eval::record::{self, Evaluation, Example};
use fgrpo_eval::unreadable::Remedies;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;

/// Number of completions shown in a line of `eval.jsonl`.
const EXAMPLES: usize = 8;

/// What a configuration changes where answers can't be read.
pub const REMEDIES: Remedies = Remedies {
    limit: "rollout.max_new_tokens",
    no_thinking: "task.enable_thinking = false",
    prompt: "task.preset or task.system, or show it by demonstrations, [sft]",
};

/// Fails before any work is done if the task lacks the problems for the configuration's evaluations.
/// The error has the split's size and says how to change it.
pub fn check_held_out(config: &Config, task: &Task) -> anyhow::Result<()> {
    if config.eval.is_enabled() && task.is_empty(Split::HeldOut) {
        bad_input!(
            "task.held_out: found 0 held-out problems beside {} to train on, wanted at least 1: a larger task.held_out_share, a file in task.held_out, more rows, or eval.every = 0",
            task.len(Split::Train)
        );
    }
    Ok(())
}

/// The plan of one of a run's evaluations.
fn plan(config: &Config, eval: &EvalConfig, task: &Task) -> Plan {
    let mut parts = task.held_out();
    keyed(&mut parts, eval.problems);
    // pass@1 decides the best policy, so k = 1 is always included.
    let ks: BTreeSet<u64> = eval.k.iter().map(|&k| k as u64).chain([1]).collect();
    let sampling = eval.sampling(config.rollout.max_new_tokens.unwrap_or(task.max_new_tokens()));
    Plan {
        parts,
        n: eval.samples as u64,
        ks: ks.into_iter().collect(),
        sampling,
        stop: config.task.stop().to_vec(),
        seed: Some(config.seed),
        rounding: config.compute.rounding(),
    }
}

/// A series of evaluations of one kind in a run.
pub struct Series {
    /// The name of its problems in `eval.jsonl`.
    pub set: &'static str,
    /// The folder in the run folder that contains one evaluation per step.
    pub folder: &'static str,
    /// Its interval, and how the results are stored and averaged.
    pub eval: EvalConfig,
    plan: Plan,
    /// What an evaluation of it is on.
    planned: Evaluation,
    /// Whether the problems come from several parts.
    mixed: bool,
}

impl Series {
    /// The series of a run; the one that decides the best checkpoint is last.
    pub fn of_run(config: &Config, task: &Task) -> Vec<Self> {
        let mixed = matches!(config.task, TaskConfig::Mix(_));
        let usual = config.eval.usual().map(|eval| (record::USUAL, EVALUATIONS, eval));
        let full = config.eval.full().map(|eval| (record::FULL, FULL_EVALUATIONS, eval));
        let series = usual.into_iter().chain(full).map(|(set, folder, eval)| {
            let plan = plan(config, &eval, task);
            Self { set, folder, planned: Evaluation::planned(&plan, eval.average), plan, eval, mixed }
        });
        series.collect()
    }

    /// Whether a logged evaluation is one of this series and the same measure as those to come: a resume may have
    /// changed problems, samples or graders.
    pub fn measures(&self, logged: &Evaluation) -> bool {
        logged.set == self.set && logged.is_comparable(&self.planned)
    }

    /// Computes the exact measures of the policy of a step. `earlier` are the run's evaluations so far, of which the one
    /// before RL says what is retained; after a resume with other problems, none does.
    ///
    /// # Errors
    /// Log-probabilities that aren't finite, and errors from the engine.
    pub fn exact(
        &self,
        step: u64,
        policy: &mut Policy,
        group_size: usize,
        earlier: &[Evaluation],
    ) -> anyhow::Result<Exact> {
        let logp = solution_logp(policy, &self.plan)?;
        let before = earlier.iter().find(|e| e.step == 0 && self.measures(e)).and_then(|e| e.exact.as_ref());
        let start = if step == 0 { Some(&logp) } else { before.map(|exact| &exact.logp) };
        Exact::of(&logp, start.map(Vec::as_slice), group_size as u64, &self.plan.ks)
    }

    /// Evaluates the policy of a step in the same folder layout as `fgrpo eval`. The problems of a mix are also counted by
    /// part. `None` if asked to stop; the next call continues from the stored samples.
    /// Fails on a folder that has another evaluation or can't be written, and errors from the engine.
    pub fn evaluate(
        &self,
        step: u64,
        (policy, max_cached_tokens): (&mut Policy, Option<usize>),
        folder: &Path,
        events: &mut dyn Events,
    ) -> anyhow::Result<Option<Evaluation>> {
        let plan = &self.plan;
        let folder = Folder::open(folder)?;
        let identity = plan.identity(Origin::Training, &format!("step-{step:06}"));
        // This evaluation started before a resume with other settings. The folder belongs to the run, so start over.
        if folder.identity()?.is_some_and(|found| found != identity) {
            folder.clear()?;
        }
        folder.claim(&identity)?;
        let source: Source<'_> = Box::new(|store, _, events| {
            from_engine::generate(policy, max_cached_tokens, plan, store, events)
        });
        let evaluated =
            match evaluate(plan, &folder, Some(source), false, &mut Within { events: &mut *events, of: 0 }) {
                Err(e) if e.is::<Stopped>() => return Ok(None),
                evaluated => evaluated?,
            };
        if evaluated.missing > 0 {
            return Ok(None);
        }
        for part in &plan.parts {
            if let Some(message) = evaluated.unreadable(&part.name).message(&REMEDIES) {
                events.say(&format!("warning: step {step}: {}: {message}", part.name));
            }
        }
        let mut evaluation = Evaluation::of(step, plan, &evaluated.counts, self.eval.average, self.mixed);
        self.set.clone_into(&mut evaluation.set);
        evaluation.examples = examples(plan, &evaluated)?;
        if !self.eval.keep_texts {
            evaluated.store.remove()?;
        }
        Ok(Some(evaluation))
    }
}

/// The first completion of each of the first problems.
fn examples(plan: &Plan, evaluated: &Evaluated) -> anyhow::Result<Vec<Example>> {
    let problems = plan.problems();
    let first: HashMap<&str, usize> =
        problems.iter().take(EXAMPLES).enumerate().map(|(i, (p, _))| (p.id.as_str(), i)).collect();
    let correct = evaluated.graded.iter().filter(|s| s.sample == 0 && s.correct == Some(true));
    let correct: HashSet<&str> = correct.map(|s| s.problem.as_str()).collect();
    let mut found = Vec::new();
    evaluated.store.each(|g| {
        if let (Some(&i), 0) = (first.get(g.problem.as_str()), g.sample) {
            found.push(Example {
                problem: i as u64,
                correct: correct.contains(g.problem.as_str()),
                completion: g.text,
                target: problems[i].0.truth.gold(),
            });
        }
        Ok(())
    })?;
    found.sort_by_key(|e| e.problem);
    Ok(found)
}

/// Progress of an evaluation inside a stage of the run: it is reported as an activity at a step, not as a stage.
struct Within<'a> {
    events: &'a mut dyn Events,
    of: u64,
}

impl Events for Within<'_> {
    fn say(&mut self, _: &str) {}

    fn begin(&mut self, _: &'static str, _: u64, length: u64) {
        self.of = length;
        self.events.doing("evaluating");
    }

    fn progress(&mut self, position: u64, _: String) {
        self.events.doing(&format!("evaluating, sample {position} of {}", self.of));
    }
}
