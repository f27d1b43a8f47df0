//! Chooses which checkpoints to compare, by the paper's rule. For the base run, this is the checkpoint with the best
//! held-out metric. For each other run, it is the best checkpoint that took at most as much compute.
//!
//! Candidates are the checkpoints of `save.every`. With `"epoch"`, as in the paper, these are the checkpoints at the
//! end of epochs. `best-N` and other evaluations aren't candidates, because they are maxima of many noisy values. The
//! metric was recorded during training, or comes from folders of `fgrpo eval`.

mod folders;
mod recorded;

use crate::run::Run;
use crate::run::folder::missing_steps;
use crate::run::metrics::Logged;
use anyhow::Context;
use fgrpo_eval::record::ranks_above;
use fgrpo_eval::table::percent;
use folders::Folders;
use recorded::recorded;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Settings of the choice.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The base run, then the runs compared with it.
    pub runs: Vec<PathBuf>,
    /// Folders of `fgrpo eval`, or folders that contain such folders, with the metric. If empty, the metric recorded
    /// in the runs is used.
    pub evals: Vec<PathBuf>,
    /// k of the pass@k by which checkpoints are chosen.
    pub k: usize,
    /// Part of the held-out problems, or benchmark of `evals`, by which to choose. If `None`, all are used.
    pub part: Option<String>,
    /// Unit in which compute is counted.
    pub compute: Compute,
    /// Whether to choose among all evaluations, including those without a checkpoint.
    pub any_step: bool,
}

fgrpo_eval::named! {
    /// Unit in which compute is counted.
    #[derive(Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Compute {
        Samples = "samples": "Sampled completions: steps, if all batches are equal",
        Tokens = "tokens": "Sampled completion tokens",
        Seconds = "seconds": "Seconds of sampling, grading and updating",
    }
}

/// An evaluation that may be chosen.
#[derive(Debug, Clone, PartialEq)]
struct Candidate {
    step: u64,
    value: f64,
    /// Number of problems without scored samples, which the metric leaves out.
    left_out: usize,
    checkpoint: Option<PathBuf>,
}

/// The candidates of one run.
#[derive(Debug, Default)]
struct Candidates {
    all: Vec<Candidate>,
    /// The metric before the first step, if known.
    start: Option<f64>,
    /// Number of evaluations that aren't candidates.
    others: usize,
}

/// The checkpoint chosen from a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Chosen {
    /// The run's folder.
    pub run: PathBuf,
    /// Whether this is the base run, with which the other runs are compared.
    pub base: bool,
    /// Step of the checkpoint.
    pub step: u64,
    /// Metric of the checkpoint, as a fraction.
    pub value: f64,
    /// Metric before the first step, if known.
    pub start: Option<f64>,
    /// Compute up to the step.
    pub compute: f64,
    /// Folder of the checkpoint.
    pub checkpoint: Option<PathBuf>,
    /// Number of checkpoints from which this checkpoint was chosen.
    pub candidates: usize,
    /// Number of problems that the metric leaves out, because they lack scored samples.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: usize,
    /// Steps that weren't chosen because their metric leaves out more problems.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub incomplete: Vec<u64>,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Chosen {
    /// Returns a warning if the checkpoint isn't better than the policy before training, or if evaluations leave out
    /// problems.
    pub fn warning(&self) -> Option<String> {
        let mut warnings = Vec::new();
        if let Some(start) = self.start.filter(|start| self.left_out == 0 && self.value <= *start) {
            warnings.push(format!(
                "no checkpoint is better than step 0: the best has {} % (step {}), and step 0 has {} %",
                percent(self.value),
                self.step,
                percent(start)
            ));
        }
        if !self.incomplete.is_empty() {
            let steps = self.incomplete.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
            warnings.push(format!(
                "not chosen, because problems without enough scored samples are left out: step {steps}"
            ));
        }
        if self.left_out > 0 {
            let (step, few) = (self.step, self.left_out);
            warnings.push(format!(
                "the metric of step {step} leaves out {few} problems, and others may leave out different ones"
            ));
        }
        (!warnings.is_empty()).then(|| format!("warning: {}: {}", self.run.display(), warnings.join("; ")))
    }
}

/// The choice.
#[derive(Debug, Clone, Serialize)]
pub struct Selection {
    /// k of the metric.
    pub k: usize,
    /// Part or benchmark of the metric, or `None` for all parts or benchmarks.
    pub part: Option<String>,
    /// The metric in words.
    pub metric: String,
    /// Unit in which compute is counted.
    pub compute: Compute,
    /// The checkpoint that the rule chooses from each run, in order.
    pub chosen: Vec<Chosen>,
}

/// Chooses a checkpoint from each run. Fails if a folder isn't a run, evaluations can't be compared, or a run lacks
/// candidates.
pub fn select(settings: &Settings) -> anyhow::Result<Selection> {
    let folders = Folders::read(settings)?;
    let Settings { k, part, compute, .. } = settings;
    let metric = match (&folders, part) {
        (Some(folders), _) => format!("{}, pass@{k}", folders.metric),
        (None, Some(part)) => format!("{part}, pass@{k}"),
        (None, None) => format!("pass@{k}"),
    };
    let chosen = choose(settings, folders.as_ref())?;
    Ok(Selection { k: *k, part: part.clone(), metric, compute: *compute, chosen })
}

fn choose(settings: &Settings, folders: Option<&Folders>) -> anyhow::Result<Vec<Chosen>> {
    let mut chosen: Vec<Chosen> = Vec::new();
    let mut evaluated = None;
    for run in &settings.runs {
        let here = || format!("run {}", run.display());
        let read = Run::open(run).with_context(here)?;
        let candidates = match folders {
            Some(folders) => folders.candidates(&read).with_context(here)?,
            None => recorded(settings, &read, &mut evaluated).with_context(here)?,
        };
        if candidates.all.is_empty() {
            let message = format!(
                "{}: no checkpoint of save.every is evaluated ({} other evaluations)",
                here(),
                candidates.others
            );
            match folders {
                Some(_) => bad_input!("{message}. Evaluate its checkpoints"),
                None => bad_input!(
                    [AnyStep],
                    "{message}. Train with eval.at_checkpoints = true and a larger save.keep"
                ),
            }
        }
        let last = candidates.all.iter().map(|c| c.step).max().unwrap_or(0);
        let costs = costs(settings, &read.metrics, last).with_context(here)?;
        let compute = |c: &Candidate| -> f64 {
            costs.iter().filter(|(step, _)| *step <= c.step).map(|(_, cost)| cost).sum()
        };
        let limit = chosen.first().map(|base| base.compute);
        let mut allowed = candidates.all;
        allowed.retain(|c| limit.is_none_or(|limit| compute(c) <= limit));
        let Some(first) = allowed.first() else {
            bad_input!(
                "{}: no checkpoint took at most as much compute as the base run's choice, {:.0}",
                here(),
                limit.unwrap_or_default()
            );
        };
        let beats =
            |c: &Candidate, best: &Candidate| ranks_above((c.left_out, c.value), (best.left_out, best.value));
        let best = allowed.iter().fold(first, |best, c| if beats(c, best) { c } else { best });
        let incomplete = allowed.iter().filter(|c| c.left_out > best.left_out).map(|c| c.step).collect();
        chosen.push(Chosen {
            run: run.clone(),
            base: limit.is_none(),
            step: best.step,
            value: best.value,
            start: candidates.start,
            compute: compute(best),
            checkpoint: best.checkpoint.clone(),
            candidates: allowed.len(),
            left_out: best.left_out,
            incomplete,
        });
    }
    Ok(chosen)
}

/// Returns the compute of each logged step. Fails if a step up to `last` is missing or logged twice.
fn costs(settings: &Settings, metrics: &[Logged], last: u64) -> anyhow::Result<Vec<(u64, f64)>> {
    let cost = |m: &Logged| {
        // The batch size is read from the log, because an earlier part of the run may have had another configuration.
        let batch = m.verdicts.values().sum::<u64>() as f64;
        match settings.compute {
            Compute::Samples => Some(batch),
            Compute::Tokens => Some(batch * m.completion_length_mean.0?),
            Compute::Seconds => Some(m.seconds.rollout.0? + m.seconds.grade.0? + m.seconds.update.0?),
        }
    };
    let step_cost = |m: &Logged| match cost(m) {
        Some(cost) => Ok((m.step, cost)),
        None => bad_input!("metrics.jsonl, step {}: a value that the compute depends on is null", m.step),
    };
    require_once("metrics.jsonl", metrics.iter().map(|m| m.step))?;
    let gaps = missing_steps(&metrics.iter().map(|m| m.step).collect::<Vec<_>>(), last);
    if !gaps.is_empty() {
        bad_input!("metrics.jsonl: the lines of steps {gaps} are missing, so compute can't be summed");
    }
    metrics.iter().map(step_cost).collect()
}

/// Fails if a file of the run has two lines for one step.
fn require_once(file: &str, steps: impl Iterator<Item = u64>) -> anyhow::Result<()> {
    let mut unique = BTreeSet::new();
    for step in steps {
        if !unique.insert(step) {
            bad_input!(
                "{file}, step {step}: there are two lines: two runs wrote into this folder, or the file was edited"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::run::metrics::Metrics;
    use fgrpo_eval::record::{Counted, Evaluation};
    use std::collections::BTreeMap;
    use std::path::Path;

    /// Writes a run with evaluations (step, pass@1, pass@1 of the part "logic") and the checkpoints that are retained.
    fn write(
        folder: &Path,
        name: &str,
        set: &str,
        evals: &[(u64, f64, f64)],
        checkpoints: &[&str],
    ) -> PathBuf {
        let run = folder.join(name);
        std::fs::create_dir_all(run.join("checkpoints")).unwrap();
        let text = include_str!("../../../../configs/maze-quick.toml");
        std::fs::write(
            run.join("config.toml"),
            Config::parse(text, &["save.every=10".to_owned(), "steps=40".to_owned(), set.to_owned()])
                .unwrap()
                .to_toml(),
        )
        .unwrap();
        let line = |&(step, p, part): &(u64, f64, f64)| {
            let counted = |pass_at_k| Counted { problems: 4, pass_at_k, ..Counted::default() };
            let e = Evaluation {
                step,
                set: "held-out".into(),
                samples: 8,
                all: counted(BTreeMap::from([(1, p), (8, 1.0 - p)])),
                completion_length_mean: 3.0,
                parts: BTreeMap::from([("logic".to_owned(), counted(BTreeMap::from([(1, part)])))]),
                ..Evaluation::default()
            };
            serde_json::to_string(&e).unwrap()
        };
        let evals: Vec<String> = evals.iter().map(line).collect();
        std::fs::write(run.join("eval.jsonl"), evals.join("\n") + "\n").unwrap();
        let rollout = Config::load(&run.join("config.toml"), &[]).unwrap().rollout;
        let metrics: Vec<String> = (1..=40)
            .map(|step| {
                let mut m = Metrics { step, completion_length_mean: 10.0, ..Metrics::default() };
                m.verdicts.insert("wrong".into(), (rollout.prompts * rollout.group_size) as u64);
                m.seconds.rollout = 2.0;
                serde_json::to_string(&m).unwrap()
            })
            .collect();
        std::fs::write(run.join("metrics.jsonl"), metrics.join("\n") + "\n").unwrap();
        for name in checkpoints {
            std::fs::create_dir(run.join("checkpoints").join(name)).unwrap();
        }
        run
    }

    fn args(runs: &[&PathBuf]) -> Settings {
        Settings {
            runs: runs.iter().map(|r| (*r).clone()).collect(),
            evals: Vec::new(),
            k: 1,
            part: None,
            compute: Compute::Samples,
            any_step: false,
        }
    }

    const ALL: [&str; 4] = ["step-000010", "step-000020", "step-000030", "step-000040"];

    #[test]
    fn base_is_chosen_by_its_metric_and_the_others_at_equal_or_less_compute() {
        let folder = tempfile::tempdir().unwrap();
        let base = [(0, 0.9, 0.0), (10, 0.3, 0.1), (20, 0.4, 0.1), (30, 0.5, 0.3), (40, 0.5, 0.4)];
        let focal = [(10, 0.45, 0.2), (20, 0.2, 0.9), (30, 0.44, 0.2), (40, 0.8, 0.0)];
        let a = write(folder.path(), "a", "seed=1", &base, &ALL);
        let b = write(folder.path(), "b", "seed=1", &focal, &ALL);
        let steps = |args: &Settings| select(args).unwrap().chosen.iter().map(|c| c.step).collect::<Vec<_>>();
        // Steps 30 and 40 are equal, so the earlier one is chosen. The other run's best step, 40, takes more compute
        // than step 30 of the base run.
        assert_eq!(steps(&args(&[&a, &b])), [30, 10]);
        let chosen = select(&args(&[&a, &b])).unwrap().chosen;
        assert_eq!(chosen[1].checkpoint, Some(b.join("checkpoints/step-000010")));
        assert_eq!((chosen[0].base, chosen[1].base, chosen[1].candidates), (true, false, 3));
        assert_eq!(steps(&Settings { part: Some("logic".into()), ..args(&[&a, &b]) }), [40, 20]);
        assert_eq!(steps(&Settings { k: 8, ..args(&[&a, &b]) }), [10, 10]);
        // The other run samples half as much per step, so all its steps are within the base run's compute.
        let half = write(folder.path(), "half", "rollout.group_size=4", &focal, &ALL);
        let whole = Config::load(&a.join("config.toml"), &[]).unwrap().rollout.group_size;
        assert!(whole >= 8, "maze-quick has groups of {whole}");
        assert_eq!(steps(&args(&[&a, &half])), [30, 40]);
        assert_eq!(steps(&Settings { compute: Compute::Seconds, ..args(&[&a, &half]) }), [30, 10]);
        assert_eq!(select(&args(&[&a])).unwrap().chosen[0].compute, 30.0 * chosen[0].compute / 30.0);
    }

    #[test]
    fn only_checkpoints_of_save_every_are_chosen_unless_asked_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        // Step 25 was saved by a stop, only the best policy of step 30 remains, and steps 15 and 20 have only an
        // evaluation.
        let evals =
            [(10, 0.3, 0.0), (15, 0.95, 0.0), (20, 0.9, 0.0), (25, 0.8, 0.0), (30, 0.7, 0.0), (40, 0.2, 0.0)];
        let checkpoints = ["step-000010", "step-000025", "best-000015", "best-000030", "step-000040"];
        let run = write(folder.path(), "a", "seed=1", &evals, &checkpoints);
        let chosen = select(&args(&[&run])).unwrap().chosen;
        assert_eq!((chosen[0].step, chosen[0].candidates), (10, 2));
        assert_eq!(chosen[0].checkpoint, Some(run.join("checkpoints/step-000010")));
        let any = select(&Settings { any_step: true, ..args(&[&run]) }).unwrap().chosen;
        assert_eq!((any[0].step, any[0].checkpoint.clone()), (15, None));
    }

    #[test]
    fn a_run_that_never_beats_its_start_gets_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let evals = [(0, 0.5, 0.0), (10, 0.3, 0.0), (20, 0.5, 0.0)];
        let run = write(folder.path(), "a", "seed=1", &evals, &ALL);
        let choice = &select(&args(&[&run])).unwrap().chosen[0];
        assert_eq!((choice.step, choice.start), (20, Some(0.5)));
        assert!(
            choice
                .warning()
                .unwrap()
                .contains("no checkpoint is better than step 0: the best has 50.0 % (step 20)")
        );
        let better = write(folder.path(), "b", "seed=1", &[(0, 0.5, 0.0), (10, 0.6, 0.0)], &ALL);
        assert_eq!(select(&args(&[&better])).unwrap().chosen[0].warning(), None);
    }

    #[test]
    fn what_cannot_be_chosen_from_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = |args: &Settings| format!("{:#}", select(args).unwrap_err());
        let torn = write(folder.path(), "torn", "seed=1", &[(10, 0.3, 0.0), (20, 0.4, 0.0)], &ALL);
        let lines = std::fs::read_to_string(torn.join("metrics.jsonl")).unwrap();
        let remaining: Vec<&str> =
            lines.lines().enumerate().filter(|(i, _)| *i != 4).map(|(_, line)| line).collect();
        std::fs::write(torn.join("metrics.jsonl"), remaining.join("\n") + "\n").unwrap();
        assert!(error(&args(&[&torn])).contains("metrics.jsonl: the lines of steps 5"));
        let none = write(folder.path(), "none", "seed=1", &[(10, 0.3, 0.0)], &[]);
        assert!(error(&args(&[&none])).contains("eval.at_checkpoints = true"));
        let late = write(folder.path(), "late", "seed=1", &[(20, 0.3, 0.0)], &ALL);
        let early = write(folder.path(), "early", "seed=1", &[(10, 0.3, 0.0)], &ALL);
        assert!(error(&args(&[&early, &late])).contains("no checkpoint took at most as much compute"));
        assert!(error(&Settings { k: 3, ..args(&[&early]) }).contains("k = [1, 8]"));
        let part = Settings { part: Some("maths".into()), ..args(&[&early]) };
        assert!(error(&part).contains("part: expected one of logic, found maths"));
        let lone = write(folder.path(), "lone", "seed=1", &[(15, 0.3, 0.0)], &["best-000015", "step-000015"]);
        assert!(error(&args(&[&lone])).contains("no checkpoint of save.every is evaluated (1 other"));
        let path = late.join("eval.jsonl");
        let other = std::fs::read_to_string(&path).unwrap().replace("\"problems\":4", "\"problems\":5");
        std::fs::write(&path, other).unwrap();
        assert!(error(&args(&[&early, &late])).contains("5 problems"));
        assert_eq!(select(&args(&[&late])).unwrap().chosen[0].step, 20);
        assert!(error(&args(&[&folder.path().join("nowhere")])).contains("nowhere"));
    }

    #[test]
    fn a_step_that_is_logged_twice_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = |args: &Settings| format!("{:#}", select(args).unwrap_err());
        let evals = [(10, 0.3, 0.0), (20, 0.4, 0.0), (10, 0.9, 0.0)];
        let run = write(folder.path(), "evals", "seed=1", &evals, &ALL);
        assert!(error(&args(&[&run])).contains("eval.jsonl, step 10: there are two lines"));
        let run = write(folder.path(), "metrics", "seed=1", &evals[..2], &ALL);
        let path = run.join("metrics.jsonl");
        let lines = std::fs::read_to_string(&path).unwrap();
        let fifth = lines.lines().nth(4).unwrap();
        std::fs::write(&path, format!("{lines}{fifth}\n")).unwrap();
        assert!(error(&args(&[&run])).contains("metrics.jsonl, step 5: there are two lines"));
    }

    #[test]
    fn candidates_evaluated_on_other_problems_or_samples_are_refused_by_step() {
        let folder = tempfile::tempdir().unwrap();
        let evals =
            [(0, 0.5, 0.0), (10, 0.3, 0.0), (15, 0.3, 0.0), (20, 0.4, 0.0), (30, 0.9, 0.0), (40, 0.3, 0.0)];
        let run = write(folder.path(), "a", "seed=1", &evals, &ALL);
        let path = run.join("eval.jsonl");
        let whole = std::fs::read_to_string(&path).unwrap();
        // Changes the evaluation at one step.
        let changed = |step: u64, from: &str, to: &str| {
            let is_it = |line: &&str| line.starts_with(&format!("{{\"step\":{step},"));
            let line = whole.lines().find(is_it).unwrap();
            assert!(line.contains(from), "{line}");
            std::fs::write(&path, whole.replace(line, &line.replace(from, to))).unwrap();
            select(&args(&[&run])).map(|s| s.chosen).map_err(|e| format!("{e:#}"))
        };
        for (from, to) in [
            ("\"problems\":4", "\"problems\":40"),
            ("\"samples\":8", "\"samples\":80"),
            ("\"set\":", "\"problem_set\":\"other\",\"set\":"),
            ("\"set\":", "\"average\":\"parts\",\"set\":"),
        ] {
            let error = changed(30, from, to).unwrap_err();
            assert!(error.contains("eval.jsonl, step 30: ") && error.contains("step 10"), "{error}");
        }
        // An evaluation between checkpoints isn't chosen. The evaluation before the first step doesn't count if it used
        // other problems.
        let chosen = changed(15, "\"problems\":4", "\"problems\":40").unwrap();
        assert_eq!((chosen[0].step, chosen[0].start), (30, Some(0.5)));
        let chosen = changed(0, "\"problems\":4", "\"problems\":40").unwrap();
        assert_eq!((chosen[0].step, chosen[0].start), (30, None));
    }

    #[test]
    fn an_evaluation_that_leaves_out_problems_is_not_chosen_over_a_whole_one() {
        let folder = tempfile::tempdir().unwrap();
        let run = write(folder.path(), "a", "seed=1", &[(0, 0.2, 0.0), (10, 0.3, 0.0), (20, 0.9, 0.0)], &ALL);
        let path = run.join("eval.jsonl");
        let whole = std::fs::read_to_string(&path).unwrap();
        let cut = whole.replace("\"step\":20,", "\"step\":20,\"left_out\":{\"1\":3},");
        std::fs::write(&path, &cut).unwrap();
        let chosen = &select(&args(&[&run])).unwrap().chosen[0];
        assert_eq!((chosen.step, &chosen.incomplete[..], chosen.left_out), (10, &[20][..], 0));
        assert!(chosen.warning().unwrap().contains("left out: step 20"), "{chosen:?}");
        // pass@8 leaves out nothing. If every evaluation leaves out as many problems, the best value is chosen.
        assert_eq!(select(&Settings { k: 8, ..args(&[&run]) }).unwrap().chosen[0].incomplete, [0; 0]);
        std::fs::write(&path, cut.replace("\"step\":10,", "\"step\":10,\"left_out\":{\"1\":3},")).unwrap();
        let chosen = &select(&args(&[&run])).unwrap().chosen[0];
        assert_eq!((chosen.step, chosen.left_out), (20, 3));
        assert!(chosen.warning().unwrap().contains("step 20 leaves out 3 problems"), "{chosen:?}");
        // Nothing was graded.
        std::fs::write(&path, cut.replace("\"1\":0.9,", "")).unwrap();
        assert_eq!(select(&args(&[&run])).unwrap().chosen[0].candidates, 1);
    }

    #[test]
    fn evaluations_with_other_sampling_settings_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let run = write(folder.path(), "a", "seed=1", &[(10, 0.3, 0.0), (20, 0.9, 0.0)], &ALL);
        let path = run.join("eval.jsonl");
        let sampled = |step, temperature: &str| {
            let from = format!("\"step\":{step},");
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(&path, text.replace(&from, &format!("{from}\"sampling\":\"{temperature}\",")))
                .unwrap();
            select(&args(&[&run])).map(|s| s.chosen[0].step).map_err(|e| format!("{e:#}"))
        };
        assert_eq!(sampled(20, "temperature 1.0"), Ok(20));
        let error = sampled(10, "temperature 0.5").unwrap_err();
        assert!(error.contains("temperature 1.0") && error.contains("temperature 0.5"), "{error}");
    }

    #[test]
    fn compute_is_what_each_step_sampled_also_under_an_earlier_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let run = write(folder.path(), "a", "seed=1", &[(20, 0.4, 0.0)], &ALL);
        let batch = select(&args(&[&run])).unwrap().chosen[0].compute / 20.0;
        let path = run.join("metrics.jsonl");
        let lines = std::fs::read_to_string(&path).unwrap();
        let (one, half) = (format!("\"wrong\":{batch}"), format!("\"wrong\":{}", batch / 2.0));
        let first: String = lines.lines().take(10).map(|l| l.replace(&one, &half) + "\n").collect();
        let rest: String = lines.lines().skip(10).map(|l| format!("{l}\n")).collect();
        std::fs::write(&path, first + &rest).unwrap();
        assert_eq!(select(&args(&[&run])).unwrap().chosen[0].compute, 15.0 * batch);
    }
}
