//! Grades a completion of a problem with a verdict and a reward. All callers use the verifiers through this module.

use crate::dataset::Problem;
use crate::graded::{Followed, Graded, Response};
use crate::kind::{self, TaskKind, Truth, short_hash};
use crate::program::Program;
use crate::verifier::{Grading, Settings, Verifier};
use fgrpo_verify::verdict::Verdict;
use std::collections::HashMap;
use std::sync::{Arc, RwLock};

type Prepared = (Truth, Arc<dyn Verifier>);

/// Grades completions of one kind of task. It can be used from any number of threads.
pub struct Grader {
    kind: TaskKind,
    grading: Grading,
    /// Hash of the settings.
    settings: String,
    prepared: RwLock<HashMap<String, Prepared>>,
}

impl Grader {
    /// Creates a grader for a kind of task. For `command`, starts the program.
    ///
    /// Returns an error if the settings don't suit the kind of task, such as `command` without a command, or if the
    /// program can't be started.
    pub fn new(kind: TaskKind, settings: Settings) -> anyhow::Result<Self> {
        let text = match kind {
            TaskKind::Maze => format!("{:?}", settings.maze),
            TaskKind::Environment => format!("{:?} {}", settings.command, settings.max_turns),
            _ => serde_json::to_string(&settings).expect("settings are JSON"),
        };
        let text = text + &kind::python::file_hash(&settings).unwrap_or_default();
        let text = format!("{text}{:?}", settings.thoughts());
        let grading = kind.grading(settings)?;
        Ok(Self { kind, grading, settings: short_hash(&text), prepared: RwLock::default() })
    }

    /// Returns the kind of task.
    pub fn kind(&self) -> TaskKind {
        self.kind
    }

    /// Describes the grader: the kind of task, and the verifier's mode if it has modes.
    pub fn described(&self) -> String {
        let mode = self.grading.settings.mode;
        if self.kind.has_modes() { format!("{} in mode {mode}", self.kind) } else { self.kind.to_string() }
    }

    /// Returns the program of the environments and the maximum number of turns, or `None` for other kinds of task.
    pub fn environment(&self) -> Option<(&Program, usize)> {
        let program = self.grading.program.as_deref().filter(|_| self.kind == TaskKind::Environment)?;
        Some((program, self.grading.settings.max_turns))
    }

    /// Asks the program that grades, if there is one, to grade a problem, so that a broken program fails before any
    /// other work is done.
    pub fn check_start(&self, problem: &Problem) -> anyhow::Result<()> {
        self.verifier(problem).check_start()
    }

    /// Identifies the grader: the kind of task and its settings, with the contents of a file of functions or of a
    /// command's files. Together with the problem and the verifier's version, it determines the verdicts.
    pub fn identity(&self) -> String {
        format!("{}/{}", self.kind, &self.settings[..8])
    }

    /// Identifies everything that determines the verdicts on a problem: the kind of task, the verifier's version, the
    /// settings and the reference answer. Stored verdicts remain valid in a release that doesn't change any of them.
    pub fn tag(&self, problem: &Problem) -> String {
        let truth = problem.truth.fingerprint();
        format!("{}/{}/{}/{}", self.kind, self.kind.version(), &self.settings[..8], &truth[..8])
    }

    /// Grades one completion. Never panics: if the verifier panics, the completion is unscorable.
    pub fn grade(&self, problem: &Problem, completion: &str) -> Graded {
        self.grading.grade(completion, |Response { text, answer }| {
            let answer = problem.truth.graded_part(answer, &self.grading.settings);
            self.verifier(problem).check(Response { text, answer })
        })
    }

    /// Grades like [`Grader::grade`] and reports the instructions that the completion follows, for problems that have
    /// instructions.
    pub fn grade_each(&self, problem: &Problem, completion: &str) -> Graded {
        let Truth::IfEval(truth) = &problem.truth else { return self.grade(problem, completion) };
        let mut graded = self.grading.grade(completion, |response| self.verifier(problem).explain(response));
        if graded.verdict != Verdict::Unscorable {
            let nothing = vec![false; truth.instruction_id_list.len()];
            graded.followed.get_or_insert(Followed { strict: nothing.clone(), loose: nothing });
        }
        graded
    }

    /// Returns the answer in a completion as a string, for majority votes ([`crate::verifier::Reference::vote`]).
    pub fn vote(&self, problem: &Problem, completion: &str) -> Option<Option<String>> {
        problem.truth.vote(self.grading.answer(completion).unwrap_or_default())
    }

    /// Returns the problem's verifier, from the cache if the same problem was graded before.
    fn verifier(&self, problem: &Problem) -> Arc<dyn Verifier> {
        let prepare = || -> Arc<dyn Verifier> {
            match problem.truth.verifier(&self.grading) {
                Ok(verifier) => verifier.into(),
                Err(why) => Arc::new(Unusable(format!("{}: {}", why.code, why.message))),
            }
        };
        // A maze's verifier is cheap to create, and a run may have more mazes than fit in memory.
        if self.kind == TaskKind::Maze {
            return prepare();
        }
        let cache = self.prepared.read().unwrap_or_else(|e| e.into_inner());
        if let Some((truth, prepared)) = cache.get(&problem.id)
            && *truth == problem.truth
        {
            return Arc::clone(prepared);
        }
        drop(cache);
        let prepared = prepare();
        let mut cache = self.prepared.write().unwrap_or_else(|e| e.into_inner());
        cache.insert(problem.id.clone(), (problem.truth.clone(), Arc::clone(&prepared)));
        prepared
    }
}

/// Verifier of a problem with invalid data. Every completion is unscorable for the given reason.
struct Unusable(String);

impl Verifier for Unusable {
    fn check(&self, _: Response<'_>) -> Graded {
        Graded::unscorable(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program;

    fn math_truth(gold: String) -> Truth {
        Truth::Math(kind::math::Truth { gold })
    }

    fn problem(truth: Truth) -> Problem {
        Problem::new("0".into(), Vec::new(), truth)
    }

    #[test]
    fn a_repeated_answer_gets_the_same_grade_from_every_thread() {
        let grader = Grader::new(TaskKind::Math, Settings::default()).unwrap();
        let problem = problem(math_truth("\\sin 2x".into()));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let right = grader.grade(&problem, "\\boxed{2 \\sin x \\cos x}");
                        let wrong = grader.grade(&problem, "\\boxed{2 \\sin x}");
                        assert_eq!((right.verdict, wrong.verdict), (Verdict::Correct, Verdict::Wrong));
                    }
                });
            }
        });
    }

    #[test]
    fn one_id_with_another_answer_is_another_problem() {
        let grader = Grader::new(TaskKind::Choice, Settings::default()).unwrap();
        let choice_problem = |gold: &str| {
            problem(Truth::Choice(kind::choice::Truth {
                gold: gold.to_owned(),
                options: vec!["x".into(), "y".into()],
                order: vec![0, 1],
            }))
        };
        assert!(grader.grade(&choice_problem("A"), "\\boxed{A}").verdict == Verdict::Correct);
        assert!(grader.grade(&choice_problem("B"), "\\boxed{A}").verdict == Verdict::Wrong);
    }

    #[test]
    fn bad_data_is_unscorable() {
        let grader = Grader::new(TaskKind::SynLogic, Settings::default()).unwrap();
        let bad = problem(Truth::SynLogic(kind::synlogic::Truth {
            task: "chess".into(),
            game_data_str: "{}".into(),
        }));
        let graded = grader.grade(&bad, "x");
        assert_eq!(graded.verdict, Verdict::Unscorable);
        assert!(graded.reason.starts_with("bad_puzzle: task"), "{}", graded.reason);
    }

    #[test]
    fn a_release_keeps_the_verdicts_of_a_verifier_with_the_same_version() {
        let grader = Grader::new(TaskKind::Math, Settings::default()).unwrap();
        let tag = grader.tag(&problem(math_truth("1".into())));
        let parts: Vec<&str> = tag.split('/').collect();
        assert_eq!(parts[..2], ["math", &TaskKind::Math.version().to_string()]);
        assert!(!tag.contains(env!("CARGO_PKG_VERSION")), "{tag}");
    }

    #[test]
    fn a_changed_script_is_another_grader() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("grade.py");
        let command = program::Settings::parse(&format!("python3 {}", script.display())).unwrap();
        let settings = Settings { command: Some(command), ..Settings::default() };
        let identity = |text: &str| {
            std::fs::write(&script, text).unwrap();
            Grader::new(TaskKind::Command, settings.clone()).unwrap().identity()
        };
        assert_eq!(identity("input()"), identity("input()"));
        assert_ne!(identity("input()"), identity("input() "));
    }
}
