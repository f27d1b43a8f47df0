//! Evaluations during training. They work like `fgrpo eval`, with the policy in memory as the model.

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
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// Number of completions shown in a line of `eval.jsonl`.
const EXAMPLES: usize = 8;

/// Returns the settings of a configuration that help if answers can't be read. Only tasks of text have a prompt to change.
pub fn remedies(config: &Config) -> Remedies {
    Remedies {
        limit: "rollout.max_new_tokens",
        no_thinking: "task.enable_thinking = false",
        form: if config.task.texts().is_empty() {
            "show it by demonstrations, [sft]"
        } else {
            "ask for it with task.preset or task.system, or show it by demonstrations, [sft]"
        },
    }
}

/// Fails early if the configuration has evaluations, but the task doesn't have held-out problems.
pub fn check_held_out(config: &Config, task: &Task) -> anyhow::Result<()> {
    if config.eval.is_enabled() && task.is_empty(Split::HeldOut) {
        bad_input!(
            "task.held_out: there are {} training problems, but no held-out problems; set a larger task.held_out_share, a file in task.held_out, or eval.every = 0, or add rows",
            task.len(Split::Train)
        );
    }
    Ok(())
}

/// Returns the plan of an evaluation of a run.
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
    /// Name of the problems in `eval.jsonl`.
    pub set: &'static str,
    /// Folder in the run folder with one evaluation per step.
    pub folder: &'static str,
    /// Settings of the evaluations.
    pub eval: EvalConfig,
    plan: Plan,
    /// An evaluation of the plan without results, to compare with logged ones.
    planned: Evaluation,
    /// Whether the problems come from several parts.
    mixed: bool,
    remedies: Remedies,
}

impl Series {
    /// Returns the evaluation series of a run. The last one decides which checkpoint is best.
    pub fn of_run(config: &Config, task: &Task) -> Vec<Self> {
        let mixed = matches!(config.task, TaskConfig::Mix(_));
        let usual = config.eval.usual().map(|eval| (record::USUAL, EVALUATIONS, eval));
        let full = config.eval.full().map(|eval| (record::FULL, FULL_EVALUATIONS, eval));
        let series = usual.into_iter().chain(full).map(|(set, folder, eval)| {
            let plan = plan(config, &eval, task);
            Self {
                set,
                folder,
                planned: Evaluation::planned(&plan, eval.average),
                plan,
                eval,
                mixed,
                remedies: remedies(config),
            }
        });
        series.collect()
    }

    /// Returns whether a logged evaluation belongs to this series and can be compared with later ones. A resume may
    /// have changed problems, samples or graders.
    pub fn measures(&self, logged: &Evaluation) -> bool {
        logged.set == self.set && logged.is_comparable(&self.planned)
    }

    /// Computes the exact measures of the policy of a step. `earlier` are the run's evaluations so far. Retained mass is
    /// relative to the mass at step 0, and isn't computed if step 0 was evaluated on other problems, before a resume.
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
        let of_start = |e: &&Evaluation| {
            e.step == 0 && e.set == self.set && e.unlike(&self.planned).is_none() && e.exact.is_some()
        };
        let before = earlier.iter().find(of_start).and_then(|e| e.exact.as_ref());
        let start = if step == 0 { Some(&logp) } else { before.map(|exact| &exact.logp) };
        Exact::of(&logp, start.map(Vec::as_slice), group_size as u64, &self.plan.ks)
    }

    /// Evaluates the policy of a step, in the folder layout of `fgrpo eval`. The problems of a mix are also counted
    /// by part. Returns `None` if interrupted. The next call continues from the stored samples. Fails with an I/O
    /// error, or an error from the engine.
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
        // The evaluation in the folder started before a resume with other settings.
        if folder.identity()?.is_some_and(|stored| stored != identity) {
            folder.clear()?;
        }
        folder.claim(&identity)?;
        let source: Source<'_> = Box::new(|store, _, events| {
            from_engine::generate(policy, max_cached_tokens, plan, store, events)
        });
        let evaluated = match evaluate(
            plan,
            &folder,
            Some(source),
            false,
            &mut Within { events: &mut *events, total: 0 },
        ) {
            Err(e) if e.is::<Stopped>() => return Ok(None),
            evaluated => evaluated?,
        };
        if evaluated.missing > 0 {
            return Ok(None);
        }
        for part in &plan.parts {
            if let Some(message) = evaluated.unreadable(&part.name).message(&self.remedies) {
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

/// Returns the first completion of each of the first [`EXAMPLES`] problems.
fn examples(plan: &Plan, evaluated: &Evaluated) -> anyhow::Result<Vec<Example>> {
    let problems = plan.problems();
    let first: HashMap<&str, usize> =
        problems.iter().take(EXAMPLES).enumerate().map(|(i, (p, _))| (p.id.as_str(), i)).collect();
    let graded = evaluated.graded.iter().filter(|s| s.sample == 0);
    let correct: HashMap<&str, Option<bool>> = graded.map(|s| (s.problem.as_str(), s.correct)).collect();
    let mut examples = Vec::new();
    evaluated.store.each(|g| {
        if let (Some(&i), 0) = (first.get(g.problem.as_str()), g.sample) {
            examples.push(Example {
                problem: i as u64,
                correct: correct.get(g.problem.as_str()).copied().flatten(),
                completion: g.text,
                target: problems[i].0.truth.gold(),
            });
        }
        Ok(())
    })?;
    examples.sort_by_key(|e| e.problem);
    Ok(examples)
}

/// Reports the progress of an evaluation as an activity within a step, not as a stage.
struct Within<'a> {
    events: &'a mut dyn Events,
    total: u64,
}

impl Events for Within<'_> {
    fn say(&mut self, _: &str) {}

    fn begin(&mut self, _: &'static str, _: u64, length: u64) {
        self.total = length;
        self.events.doing("evaluating");
    }

    fn progress(&mut self, position: u64, _: String) {
        self.events.doing(&format!("evaluating, sample {position} of {}", self.total));
    }
}
