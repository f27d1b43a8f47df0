//! Held-out problems with everything needed to prompt and grade them: one type for those of a run, a configuration or
//! a file.

use super::{arithmetic, maze as maze_task, text};
use crate::bad_input;
use crate::config::{MazeConfig, MazeReward, TaskConfig};
use crate::grade::{Grader, Settings};
use crate::io::files;
use crate::io::lines::Lines;
use crate::language::Language;
use crate::problem::dataset::presets::{Preset, Prompting};
use crate::problem::dataset::{self, Message, rows};
use crate::problem::kind::TaskKind;
use anyhow::Context;
use fgrpo_core::maze::{self, HeldOut, Maze, tokens};
use fgrpo_core::rng::Key;
use fgrpo_verify::verdict::Verdict;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

/// One problem to evaluate.
#[derive(Debug, Clone)]
pub struct Problem {
    /// Hash of the prompt; samples are keyed by it.
    pub id: String,
    /// The question.
    pub question: Question,
    /// Hash of the data that decides the verdict: a changed reference answer triggers rescoring.
    pub truth: String,
}

/// The content of a problem.
#[derive(Debug, Clone)]
pub enum Question {
    /// A row of a data set.
    Data(Box<dataset::Problem>),
    /// A maze.
    Maze(Maze),
}

impl Problem {
    /// Subject, if the data has one.
    pub fn subject(&self) -> Option<&str> {
        match &self.question {
            Question::Data(p) => p.subject.as_deref(),
            Question::Maze(_) => None,
        }
    }

    /// The id in the data set's file.
    pub fn source_id(&self) -> Option<&str> {
        match &self.question {
            Question::Data(p) => p.source_id.as_deref(),
            Question::Maze(_) => None,
        }
    }

    /// The reference answer as text, if there is one.
    pub fn target(&self) -> Option<String> {
        match &self.question {
            Question::Data(p) => p.truth.gold(),
            Question::Maze(maze) => maze.solve().map(|moves| tokens::spell(&tokens::completion(&moves))),
        }
    }

    /// The conversation up to the answer.
    pub fn conversation(&self, system: Option<&str>) -> Vec<Message> {
        match &self.question {
            Question::Data(p) => p.conversation(system),
            Question::Maze(maze) => vec![Message::new("user", tokens::spell(&tokens::prompt(maze)))],
        }
    }

    /// The prompt as plain text, for servers that take text and for checkpoints without a chat template.
    pub fn text(&self, system: Option<&str>) -> String {
        let messages = self.conversation(system);
        messages.iter().map(|m| m.content.as_str()).collect::<Vec<_>>().join("\n\n")
    }
}

/// The random key of a problem's draws in an evaluation. Evaluations use the run's seed, so the same command on a
/// checkpoint draws the same samples. The key is the same at every step, which makes steps comparable.
pub fn problem_key(seed: u64, problem: &str) -> Key {
    problem.bytes().fold(Key::new(seed), |key, byte| key.with(u64::from(byte)))
}

fn short_hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(8).map(|b| format!("{b:02x}")).collect()
}

/// One line of a file of mazes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct MazeLine {
    size: usize,
    seed: u64,
    index: u64,
}

fn maze_problem(maze: Maze) -> Problem {
    let prompt = tokens::spell(&tokens::prompt(&maze));
    Problem { id: short_hash(&prompt), truth: short_hash(&maze.ascii(&[])), question: Question::Maze(maze) }
}

/// Mazes from a file of `{"size": 17, "seed": 0, "index": 3}` lines.
///
/// # Errors
/// Bad input that names the line.
fn mazes_of(path: &Path) -> anyhow::Result<Vec<Problem>> {
    rows::require_lines(path)?;
    let mut problems = Vec::new();
    let mut lines = Lines::open(path)?;
    while let Some(line) = lines.next_line()? {
        let MazeLine { size, seed, index } = line.parse()?;
        if !maze::valid_size(size) {
            bad_input!("{line}: size: found {size}, wanted {}", maze::VALID_SIZES);
        }
        problems.push(maze_problem(maze::generate(size, seed, index)));
    }
    if problems.is_empty() {
        bad_input!("{}: found no mazes", path.display());
    }
    Ok(problems)
}

fn data_problem(problem: dataset::Problem) -> anyhow::Result<Problem> {
    let truth = serde_json::to_string(&problem.truth).context("a reference answer")?;
    let (id, truth) = (problem.id.clone(), short_hash(&truth));
    Ok(Problem { id, truth, question: Question::Data(Box::new(problem)) })
}

/// One source of problems.
pub struct Part {
    /// Name of the benchmark in tables.
    pub name: String,
    /// The kind of its problems.
    pub kind: TaskKind,
    /// Settings of its prompts.
    pub prompting: Prompting,
    /// The resolved prompt settings.
    pub prompt: Preset,
    /// Grades completions.
    pub judge: Judge,
    /// Its problems, in order.
    pub problems: Vec<Problem>,
    /// The default limit on completion length, in tokens.
    pub max_tokens: usize,
}

impl Part {
    /// A part with problems from a data set.
    ///
    /// # Errors
    /// A reference answer that can't be written as JSON.
    pub fn of_rows(
        name: String,
        prompting: Prompting,
        judge: Judge,
        rows: impl IntoIterator<Item = dataset::Problem>,
        max_tokens: usize,
    ) -> anyhow::Result<Self> {
        let kind = judge.kind;
        let problems = rows.into_iter().map(data_problem).collect::<anyhow::Result<_>>()?;
        Ok(Self { name, kind, prompt: prompting.of(kind), prompting, judge, problems, max_tokens })
    }

    /// A part with mazes.
    pub fn of_mazes(name: String, mazes: impl IntoIterator<Item = Maze>, reward: MazeReward) -> Self {
        Self::of_maze_problems(name, mazes.into_iter().map(maze_problem).collect(), reward)
    }

    fn of_maze_problems(name: String, problems: Vec<Problem>, reward: MazeReward) -> Self {
        Self {
            name,
            kind: TaskKind::Maze,
            prompting: Prompting::default(),
            prompt: Prompting::default().of(TaskKind::Maze),
            judge: Judge::of_mazes(reward),
            problems,
            max_tokens: maze_task::MAX_NEW_TOKENS,
        }
    }
}

/// Keeps the first `limit` problems of each part and gives each a unique id. A problem that occurs twice, as two equal
/// small mazes or in two parts, is sampled twice, because samples are keyed by this id.
pub fn keyed(parts: &mut Vec<Part>, limit: Option<usize>) {
    parts.retain(|p| !p.problems.is_empty());
    let mut seen = HashSet::new();
    for part in parts {
        if let Some(limit) = limit {
            part.problems.truncate(limit);
        }
        for problem in &mut part.problems {
            let mut copy = 1;
            let original = problem.id.clone();
            while !seen.insert(problem.id.clone()) {
                copy += 1;
                problem.id = short_hash(&format!("{original} {copy}"));
            }
        }
    }
}

/// Overrides of task settings.
pub struct Overrides<'a> {
    /// Overrides of the prompt.
    pub prompting: &'a dyn Fn(Prompting) -> Prompting,
    /// Overrides of the verifier.
    pub grading: &'a dyn Fn(Settings) -> anyhow::Result<Settings>,
    /// A file of mazes that replaces the generated ones.
    pub mazes: Option<&'a Path>,
    /// Use only the first problems of each part.
    pub limit: Option<usize>,
}

/// The held-out problems of a task, with everything needed to prompt and grade them. `language` measures the length of
/// prompts and demonstrations; without it, no problem is too long. If `train` is false, the task isn't trained on and
/// all problems of its data are held out.
///
/// # Errors
/// Bad input for invalid data and settings; a command that can't be started.
pub fn open(
    task: &TaskConfig,
    language: Option<&Language>,
    train: bool,
    overrides: &Overrides<'_>,
) -> anyhow::Result<Vec<Part>> {
    let mut parts = match task {
        TaskConfig::Mix(mix) => {
            let parts = mix.parts.iter().map(|part| {
                let opened = of_one(&part.task, language, part.weight > 0.0, overrides);
                let opened = opened.with_context(|| format!("task.parts, {}", part.name()))?;
                Ok(Part { name: part.name(), ..opened })
            });
            parts.collect::<anyhow::Result<Vec<_>>>()?
        }
        other => vec![of_one(other, language, train, overrides)?],
    };
    keyed(&mut parts, overrides.limit);
    for part in &parts {
        part.judge.check_start(&part.problems)?;
    }
    if parts.iter().all(|p| p.problems.is_empty()) {
        bad_input!("found no held-out problem to evaluate on");
    }
    Ok(parts)
}

fn of_one(
    task: &TaskConfig,
    language: Option<&Language>,
    train: bool,
    overrides: &Overrides<'_>,
) -> anyhow::Result<Part> {
    let part = |name: String, kind, prompting, settings, problems: Vec<dataset::Problem>, max_tokens| {
        let judge = Judge::new(Arc::new(Grader::new(kind, (overrides.grading)(settings)?)?))?;
        Part::of_rows(name, (overrides.prompting)(prompting), judge, problems, max_tokens)
    };
    match task {
        TaskConfig::Maze(config) => mazes(config, overrides.mazes),
        TaskConfig::Arithmetic(config) => {
            let (mut train_on, held_out) = arithmetic::problems(config)?;
            if !train {
                train_on.clear();
            }
            let limit = match language {
                Some(l) => arithmetic::max_new_tokens(l, train_on.iter().chain(&held_out))?,
                None => text::MAX_NEW_TOKENS,
            };
            let settings = Settings::default();
            part(arithmetic::NAME.into(), TaskKind::Math, Prompting::default(), settings, held_out, limit)
        }
        TaskConfig::Mix(_) => bad_input!("task.parts: found a mix within a mix"),
        from_file => {
            let (kind, config) = from_file.text().expect("every other task reads its problems from files");
            let problems = text::held_out(kind, config, language, train)?;
            let settings = config.verifier.clone();
            part(
                text::held_out_name(config, train),
                kind,
                config.prompting(),
                settings,
                problems,
                text::MAX_NEW_TOKENS,
            )
        }
    }
}

/// The held-out mazes of a configuration, or those in a file.
fn mazes(config: &MazeConfig, file: Option<&Path>) -> anyhow::Result<Part> {
    match file {
        Some(path) => Ok(Part::of_maze_problems(files::stem(path), mazes_of(path)?, config.reward)),
        None => {
            let held_out = HeldOut::new(config.size, config.seed, config.held_out);
            Ok(Part::of_mazes(maze_task::name(config.size), held_out.mazes().iter().cloned(), config.reward))
        }
    }
}

/// Grades completions of one part's problems.
#[derive(Clone)]
pub struct Judge {
    kind: TaskKind,
    by: By,
    tag: String,
}

/// The grader behind a judge.
#[derive(Clone)]
enum By {
    Grader(Arc<Grader>),
    Maze(MazeReward),
}

/// The grade of a completion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// The verdict.
    pub verdict: Verdict,
    /// Its reason code.
    pub reason: String,
    /// The answer, for majority votes; the outer option is `None` if this kind of problem has no votes.
    pub answer: Option<Option<String>>,
}

impl Judge {
    /// A judge that uses a grader, possibly shared with a trainer.
    ///
    /// # Errors
    /// Settings that can't be written as JSON.
    pub fn new(grader: Arc<Grader>) -> anyhow::Result<Self> {
        let how = serde_json::to_string(grader.settings()).context("settings of a verifier")?;
        Ok(Self { kind: grader.kind(), tag: tag(grader.kind(), &how), by: By::Grader(grader) })
    }

    /// A judge of mazes.
    pub fn of_mazes(reward: MazeReward) -> Self {
        Self { kind: TaskKind::Maze, tag: tag(TaskKind::Maze, &format!("{reward:?}")), by: By::Maze(reward) }
    }

    /// For `command`, asks the user's program to grade the first problem before anything is sampled.
    ///
    /// # Errors
    /// Same as [`Grader::check_start`].
    pub fn check_start(&self, problems: &[Problem]) -> anyhow::Result<()> {
        match (&self.by, problems.first().map(|p| &p.question)) {
            (By::Grader(grader), Some(Question::Data(problem))) => grader.check_start(problem),
            _ => Ok(()),
        }
    }

    /// What decides the verdicts on a problem: verifier, version, settings and reference answer.
    pub fn tag(&self, problem: &Problem) -> String {
        format!("{}/{}", self.tag, &problem.truth[..8])
    }

    /// Grades one completion.
    pub fn grade(&self, problem: &Problem, text: &str) -> Judged {
        let (graded, answer) = match (&problem.question, &self.by) {
            (Question::Maze(maze), By::Maze(reward)) => {
                (maze_task::graded(maze, &tokens::read(text), *reward), Some(Some(text.trim().to_owned())))
            }
            (Question::Data(data), By::Grader(grader)) => (grader.grade(data, text), data.truth.vote(text)),
            _ => (crate::grade::unscorable("no_grader"), None),
        };
        Judged { verdict: graded.verdict, reason: graded.reason.into_owned(), answer }
    }
}

/// What distinguishes judges: kind, version and settings.
fn tag(kind: TaskKind, how: &str) -> String {
    format!("{kind}/{}/{}", env!("CARGO_PKG_VERSION"), &short_hash(how)[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_out_mazes(size: usize, held_out: u64, reward: MazeReward) -> Part {
        mazes(&MazeConfig { size, train: 1, held_out, seed: 3, reward }, None).unwrap()
    }

    #[test]
    fn a_maze_is_solved_by_its_shortest_path_as_text() {
        let part = held_out_mazes(7, 4, MazeReward::Exact);
        for problem in &part.problems {
            let Question::Maze(maze) = &problem.question else { panic!("wanted a maze") };
            let path = tokens::spell(&tokens::completion(&maze.solve().unwrap()));
            assert_eq!(part.judge.grade(problem, &path).verdict, Verdict::Correct, "{path}");
            assert_ne!(part.judge.grade(problem, "UP DONE").verdict, Verdict::Correct);
            assert_eq!(problem.text(None), tokens::spell(&tokens::prompt(maze)));
        }
    }

    #[test]
    fn a_judge_of_other_settings_has_another_tag() {
        let tag = |reward| {
            let part = held_out_mazes(5, 1, reward);
            part.judge.tag(&part.problems[0])
        };
        assert_ne!(tag(MazeReward::Exact), tag(MazeReward::ReachesGoal));
        assert_eq!(tag(MazeReward::Exact), tag(MazeReward::Exact));
    }
}
