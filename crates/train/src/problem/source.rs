//! A source of problems: mazes, generated problems, or files.

use super::text::{self, Item, Listed};
use super::{Split, generated};
use crate::config::{MazeConfig, TaskConfig};
use crate::language::Language;
use crate::language::chat::ChatTemplate;
use anyhow::Context;
use fgrpo_core::maze::{HeldOut, Maze, Solutions, tokens};
use fgrpo_eval::dataset::columns::Columns;
use fgrpo_eval::dataset::presets::Prompting;
use fgrpo_eval::dataset::{FilterReport, Problem};
use fgrpo_eval::grade::Grader;
use fgrpo_eval::io::files;
use fgrpo_eval::kind::TaskKind;
use fgrpo_eval::problems::{ProblemSet, mazes_of, of_maze};
use fgrpo_eval::verifier::Settings;
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::path::Path;

/// Length of the paper's longest path in mazes of size 17. Paths in smaller mazes are much shorter.
const LONGEST_PATH: usize = 180;

/// Number of training mazes that are compared with each other, to warn if too few are distinct.
const SOME_MAZES: u64 = 2000;

/// A source of a configuration's problems.
pub(super) struct Source<'a> {
    /// Name and weight of the source, if it is part of a mix.
    mix_part: Option<(String, f64)>,
    pub(super) task: &'a TaskConfig,
}

/// Additional inputs of an evaluation that isn't part of a training run.
pub struct Elsewhere<'a> {
    /// A file of mazes that replaces the generated ones.
    pub mazes: Option<&'a Path>,
    /// The model's chat template, if its [`Language`] isn't given.
    pub template: Option<&'a ChatTemplate>,
}

pub(super) struct Part {
    /// Weight of the part's prompts, relative to the other parts.
    pub(super) weight: f64,
    /// Settings for prompting and grading, without the problems.
    pub(super) set: ProblemSet,
    held_out: Listed,
    train: Training,
}

/// Training problems of a source.
enum Training {
    Listed(Listed),
    /// Mazes, which are generated on demand, because there may be any number of them.
    Mazes(MazeConfig, HeldOut),
}

impl Training {
    fn len(&self) -> u64 {
        match self {
            Self::Listed(listed) => listed.items.len() as u64,
            Self::Mazes(config, _) => config.train,
        }
    }

    /// Returns the length of the longest prompt in tokens.
    fn longest(&self) -> usize {
        match self {
            Self::Listed(listed) => listed.longest(),
            Self::Mazes(config, _) => tokens::prompt_len(config.size),
        }
    }
}

impl<'a> Source<'a> {
    /// Returns the sources of a task.
    pub(super) fn all(task: &'a TaskConfig) -> Vec<Self> {
        match task {
            TaskConfig::Mix(mix) => {
                let parts = mix.parts.iter();
                parts.map(|p| Self { mix_part: Some((p.name(), p.weight)), task: &p.task }).collect()
            }
            one => vec![Self { mix_part: None, task: one }],
        }
    }

    /// Returns the name of the source, its grader and the names of its columns. The tags around thoughts
    /// are those of `template`.
    ///
    /// Fails for mazes and generated problems, and if the task's program can't be started.
    pub(super) fn grader(
        &self,
        template: Option<&ChatTemplate>,
    ) -> anyhow::Result<(String, (Grader, Columns))> {
        let name =
            self.mix_part.as_ref().map_or_else(|| self.task.kind().to_owned(), |(name, _)| name.clone());
        let Some(text) = self.task.text() else {
            bad_input!("task.kind: {} doesn't read problems from files", self.task.kind())
        };
        let settings = with_tags(text.grading(), text.kind(), &text.prompting(), template)?;
        Ok((name, (Grader::new(text.kind(), settings)?, text.columns.clone())))
    }

    /// Opens the source. `train` is whether its problems are used for training; in a mix, the weight decides. With
    /// `elsewhere`, only the held-out problems are opened, for an evaluation.
    pub(super) fn open(
        &self,
        language: Option<&Language>,
        train: bool,
        elsewhere: Option<&Elsewhere<'_>>,
    ) -> anyhow::Result<Part> {
        let Some((name, weight)) = &self.mix_part else { return self.part(language, train, elsewhere) };
        let mut part =
            self.part(language, *weight > 0.0, elsewhere).with_context(|| format!("task.parts, {name}"))?;
        part.set.name.clone_from(name);
        part.weight = *weight;
        Ok(part)
    }

    fn part(
        &self,
        language: Option<&Language>,
        train: bool,
        elsewhere: Option<&Elsewhere<'_>>,
    ) -> anyhow::Result<Part> {
        let set = |name: String, kind, prompting: Prompting, settings: Settings, max_tokens| {
            let template =
                language.and_then(Language::template).or(elsewhere.and_then(|elsewhere| elsewhere.template));
            let settings = with_tags(settings, kind, &prompting, template)?;
            if let (Some(language), Some(tags)) = (language, settings.thoughts()) {
                language.check_tags(&tags)?;
            }
            anyhow::Ok(ProblemSet::new(name, prompting, Grader::new(kind, settings)?, max_tokens))
        };
        if let Some(generator) = generated::generator(self.task) {
            let (mut problems, held_out) = generated::problems(generator)?;
            if train && elsewhere.is_none() {
                warn_if_few(&problems.iter().map(|p| &p.id).collect(), problems.len() as u64);
            }
            if !train {
                problems.clear();
            }
            let limit = match language {
                Some(l) => generated::max_new_tokens(l, problems.iter().chain(&held_out))?,
                None => text::MAX_NEW_TOKENS,
            };
            let (kind, settings) = generator.grading();
            let set = set(generator.name().to_owned(), kind, Prompting::default(), settings, limit)?;
            if elsewhere.is_some() {
                problems.clear();
            }
            let held_out = Listed::of(held_out, language, &set.prompt)?;
            let train = Training::Listed(Listed::of(problems, language, &set.prompt)?);
            return Ok(Part { weight: 1.0, held_out, train, set });
        }
        match self.task {
            TaskConfig::Maze(config) => mazes(config, language, elsewhere),
            TaskConfig::Mix(_) => bad_input!("task.parts: a part can't be a mix"),
            TaskConfig::Arithmetic(_) | TaskConfig::Puzzles(_) => unreachable!("these are generated"),
            TaskConfig::Text(config) => {
                let only_held_out = elsewhere.is_some();
                let (held_out, train_problems) = text::open(config, language, train, only_held_out)?;
                let name = text::held_out_name(config, train);
                let (prompting, settings) = (config.prompting(), config.grading());
                let set = set(name, config.kind(), prompting, settings, text::MAX_NEW_TOKENS)?;
                if !only_held_out && let Some(item) = train_problems.items.first().or(held_out.items.first())
                {
                    set.grader.check_start(&item.problem)?;
                }
                Ok(Part { weight: 1.0, set, held_out, train: Training::Listed(train_problems) })
            }
        }
    }
}

/// Adds the chat template's tags for thoughts to settings.
fn with_tags(
    settings: Settings,
    kind: TaskKind,
    prompting: &Prompting,
    template: Option<&ChatTemplate>,
) -> anyhow::Result<Settings> {
    let template_tags = match template {
        Some(template) => template.thoughts(&prompting.of(kind))?,
        None => None,
    };
    Ok(Settings { template_tags, ..settings })
}

/// Returns the mazes of a configuration, or the mazes in a file.
fn mazes(
    config: &MazeConfig,
    language: Option<&Language>,
    elsewhere: Option<&Elsewhere<'_>>,
) -> anyhow::Result<Part> {
    let file = elsewhere.and_then(|elsewhere| elsewhere.mazes);
    let name = file.map_or_else(|| format!("maze-{}", config.size), files::stem);
    let grader = Grader::new(TaskKind::Maze, Settings { maze: config.reward, ..Settings::default() })?;
    let set = ProblemSet::new(name, Prompting::default(), grader, LONGEST_PATH);
    let (problems, train) = match file {
        Some(path) => (mazes_of(path)?, Training::Listed(Listed::default())),
        None => {
            let mazes = HeldOut::new(config.mazes(), config.held_out);
            if elsewhere.is_none() {
                let some = config.train.min(SOME_MAZES);
                let different: Option<HashSet<Maze>> =
                    (0..some).map(|i| mazes.training(i).map(|(_, maze)| maze)).collect();
                let Some(different) = different else {
                    bad_input!(
                        "task.held_out: {} is too many: there are so few mazes of size {} that none is left for training",
                        config.held_out,
                        config.size
                    )
                };
                warn_if_few(&different, some);
            }
            let problems: Vec<Problem> =
                mazes.mazes().iter().map(|(_, maze)| of_maze(maze.clone())).collect();
            if problems.len() as u64 != config.held_out {
                tracing::warn!(
                    "task.held_out: only {} of the {} mazes are distinct, and each is evaluated once (a larger task.size has more)",
                    problems.len(),
                    config.held_out
                );
            }
            (problems, Training::Mazes(config.clone(), mazes))
        }
    };
    let held_out = Listed::of(problems, language, &set.prompt)?;
    Ok(Part { weight: 1.0, held_out, set, train })
}

/// Warns if less than half of the first `total` training problems are distinct, because a policy could memorise them.
fn warn_if_few<T>(different: &HashSet<T>, total: u64) {
    if 2 * (different.len() as u64) < total {
        tracing::warn!(
            "task.train: only {} of the first {total} problems are distinct, so each is trained on many times (a larger task has more)",
            different.len()
        );
    }
}

impl Part {
    pub(super) fn len(&self, split: Split) -> u64 {
        match split {
            Split::HeldOut => self.held_out.items.len() as u64,
            Split::Train => self.train.len(),
        }
    }

    /// Returns problem `id` of a split with the tokens of its prompt, and the maze's index if it is generated on
    /// demand.
    pub(super) fn problem(
        &self,
        split: Split,
        id: u64,
        language: &Language,
    ) -> (Option<u64>, Problem, Vec<u32>) {
        let listed = match (split, &self.train) {
            (Split::HeldOut, _) => &self.held_out,
            (Split::Train, Training::Listed(listed)) => listed,
            (Split::Train, Training::Mazes(_, mazes)) => {
                let maze = mazes.training(id);
                let (index, maze) =
                    maze.expect("hundreds of held-out draws in a row were ruled out at the start");
                let problem = of_maze(maze);
                let tokens = language.plain(problem.question());
                return (Some(index), problem, tokens.expect("the language of mazes has all their words"));
            }
        };
        let item = &listed.items[id as usize];
        (None, item.problem.clone(), item.tokens.clone())
    }

    /// Returns whether the problems of a split are generated on demand.
    pub(super) fn generates(&self, split: Split) -> bool {
        split == Split::Train && matches!(self.train, Training::Mazes(..))
    }

    /// Returns the held-out problems with everything needed to prompt and grade them.
    pub(super) fn held_out(&self) -> ProblemSet {
        let problems = self.held_out.items.iter().map(|item| item.problem.clone()).collect();
        ProblemSet { problems, ..self.set.clone() }
    }

    pub(super) fn held_out_ids(&self) -> impl Iterator<Item = &str> {
        self.held_out.items.iter().map(|item| item.problem.id.as_str())
    }

    /// Rejects the training problems that another part holds out.
    pub(super) fn leave_out(&mut self, held_out: &HashSet<String>) -> anyhow::Result<()> {
        if let Training::Listed(listed) = &mut self.train {
            let reason = "held out by another part";
            let rejected = listed.reject(reason, held_out);
            if rejected > 0 {
                tracing::info!("{}: {rejected} training problems rejected: {reason}", self.set.name);
            }
        }
        if self.weight > 0.0 && self.len(Split::Train) == 0 {
            bad_input!("task.parts, {}: no problem is left to train on", self.set.name);
        }
        Ok(())
    }

    /// Returns the length of the longest prompt in tokens.
    pub(super) fn longest_prompt(&self) -> usize {
        self.held_out.longest().max(self.train.longest())
    }

    /// Reports on the rows of the part's files.
    pub(super) fn reports(&self) -> impl Iterator<Item = &FilterReport> {
        let train = match &self.train {
            Training::Listed(listed) => listed.report.as_ref(),
            Training::Mazes(..) => None,
        };
        self.held_out.report.iter().chain(train)
    }

    /// Adds the part's problems to a hash: first the held-out ones, then the training problems.
    pub(super) fn hash_problems(&self, hash: &mut Sha256) {
        let mut add = |listed: &Listed| {
            hash.update((listed.items.len() as u64).to_le_bytes());
            for Item { problem, .. } in &listed.items {
                let solution = problem.solution.as_deref().unwrap_or_default();
                for text in [&problem.id, &problem.truth.fingerprint(), solution] {
                    hash.update((text.len() as u64).to_le_bytes());
                    hash.update(text.as_bytes());
                }
            }
        };
        add(&self.held_out);
        match &self.train {
            Training::Listed(listed) => add(listed),
            Training::Mazes(config, _) => hash.update(maze_fingerprint(config).as_bytes()),
        }
    }

    /// Returns an identifier of the demonstrations: equal strings mean equal demonstrations.
    pub(super) fn fingerprint(&self, language: &Language) -> String {
        let listed = match &self.train {
            Training::Listed(listed) => listed,
            Training::Mazes(config, _) => return maze_fingerprint(config),
        };
        let mut hash = Sha256::new();
        for item in &listed.items {
            for token in &item.tokens {
                hash.update(token.to_le_bytes());
            }
            let solution = item.problem.solution.as_deref().unwrap_or_default();
            hash.update((solution.len() as u64).to_le_bytes());
            hash.update(solution.as_bytes());
        }
        let digest: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
        format!("text {digest} stop {:?} {:?}", language.stop_tokens(), language.stop_texts().texts())
    }
}

/// Returns an identifier of the mazes of a configuration: equal strings mean equal mazes.
fn maze_fingerprint(config: &MazeConfig) -> String {
    let MazeConfig { size, seed, train, held_out, .. } = config;
    let one = format!("maze {size} {seed} {train} {held_out}");
    match config.mazes().solutions {
        Solutions::One => one,
        many => format!("{one} {many:?}"),
    }
}
