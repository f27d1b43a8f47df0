//! Settings of text tasks: problems from files, or generated ones.

use super::defaults;
use super::keys::unknown_name;
use super::ranges::{MANY, TOKENS, number, whole, within};
use super::schema;
use fgrpo_eval::dataset::columns::Columns;
use fgrpo_eval::dataset::presets::{Family, Prompting};
use fgrpo_eval::kind::TaskKind;
use fgrpo_eval::program;
use fgrpo_eval::verifier::{Mode, Reasoning, Settings};
use fgrpo_verify::synlogic::{Task, has_generator};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// Problems from a file, prompted through the model's chat template.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
#[schemars(extend("anyOf" = [{ "required": ["data"] }, { "required": ["environment"] }]))]
pub struct TextConfig {
    /// Kind of the problems, which selects the verifier.
    #[schemars(schema_with = "schema::text_kind")]
    pub kind: TaskKind,
    /// Training problems, required unless an environment generates its problems: JSON lines, a JSON array, CSV or
    /// Parquet, a folder of such files, or a split of a data set, such as `gsm8k/main/train`.
    #[serde(default, skip_serializing_if = "no_path")]
    pub data: PathBuf,
    /// File of held-out problems, which are never trained on. By default, `held_out_share` of `data` is held out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_out: Option<PathBuf>,
    /// Fraction of held-out problems. They are selected by a hash of the prompt, so the selection doesn't change when
    /// the file grows.
    #[serde(default = "defaults::held_out_share")]
    pub held_out_share: f64,
    /// Folder of the tokenizer and the chat template, by default `model.path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<PathBuf>,
    /// The paper's prompt for this kind of task and a model family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::word::<Family>")]
    pub preset: Option<Family>,
    /// System prompt instead of the preset's. If empty, no system prompt is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// `enable_thinking` of the chat template, instead of the preset's value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_thinking: Option<bool>,
    /// Maximum length of a prompt. Problems with a longer prompt are left out and counted.
    #[serde(default = "defaults::max_prompt_tokens")]
    pub max_prompt_tokens: usize,
    /// Strings that end a completion, besides the model's end tokens: the name of an added token, or any other
    /// string, regardless of token boundaries. The token that completes the string is the last one of the completion;
    /// the graded text ends before the string.
    #[serde(default)]
    pub stop: Vec<String>,
    /// Columns with unusual names.
    #[serde(default)]
    pub columns: Columns,
    /// `python`: the grading function, as its name or a table.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "program::Settings::read_function"
    )]
    #[schemars(schema_with = "program::schema::function")]
    pub grader: Option<program::Settings>,
    /// `python`: the environment that the policy talks to, as its name (`"env.py:Calculator"`) or a table, instead of
    /// a grader. Its `reset(**row)` begins an episode, its `get_reward()` or `reward()` grades, its `feedback()`, if it
    /// has one, returns a string for `teacher.hint`, and its other methods are tools. `rollout.max_new_tokens` is the
    /// limit of each turn.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "program::Settings::read_function"
    )]
    #[schemars(schema_with = "program::schema::function")]
    pub environment: Option<program::Settings>,
    /// With `environment`: maximum number of the policy's turns in an episode. The calls of the last one aren't made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<usize>,
    /// Handling of thoughts before an answer: `strip` grades the text after the last closing tag, `keep` the whole
    /// completion. `OPEN,CLOSE` strips thoughts between these tags, instead of the chat template's or `<think>` and
    /// `</think>`. The default is `strip`, or `keep` with `verifier.mode = "parity"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub reasoning: Option<Reasoning>,
    /// How completions are graded.
    #[serde(default)]
    pub verifier: Settings,
}

impl TextConfig {
    /// Returns the default settings for the data set `data`, whose verdicts are compared with published ones.
    pub fn of(kind: TaskKind, data: &Path) -> Self {
        Self {
            // A table with an environment has the kind `python`.
            kind: if kind == TaskKind::Environment { TaskKind::Python } else { kind },
            data: data.to_owned(),
            held_out: None,
            held_out_share: defaults::held_out_share(),
            tokenizer: None,
            preset: None,
            system: None,
            enable_thinking: None,
            max_prompt_tokens: defaults::max_prompt_tokens(),
            stop: Vec::new(),
            columns: Columns::default(),
            grader: None,
            environment: None,
            max_turns: None,
            reasoning: None,
            verifier: kind.reference_settings(),
        }
    }

    /// Returns the kind of the problems: `environment` if the settings name one, otherwise the configured kind.
    pub fn kind(&self) -> TaskKind {
        if self.environment.is_some() { TaskKind::Environment } else { self.kind }
    }

    /// Returns whether a custom grader gives scores instead of verdicts.
    pub(super) fn gives_scores(&self) -> bool {
        matches!(self.kind, TaskKind::Command | TaskKind::Python)
    }

    /// Returns the settings of grading, including the program of a custom grader or environment.
    pub fn grading(&self) -> Settings {
        let program = self.environment.as_ref().or(self.grader.as_ref());
        let command = program.or(self.verifier.command.as_ref()).cloned();
        Settings {
            command,
            reasoning: self.reasoning.clone(),
            max_turns: self.max_turns(),
            ..self.verifier.clone()
        }
    }

    /// Returns whether the environment generates its problems.
    pub fn owns_data(&self) -> bool {
        no_path(&self.data)
    }

    /// Returns the maximum number of the policy's turns in an episode with an environment.
    pub fn max_turns(&self) -> usize {
        self.max_turns.unwrap_or(8)
    }

    /// Returns the prompt settings.
    pub fn prompting(&self) -> Prompting {
        Prompting { preset: self.preset, system: self.system.clone(), thinking: self.enable_thinking }
    }

    /// Checks ranges, and that a required grader is configured.
    pub fn check(&self) -> anyhow::Result<()> {
        within("task.max_prompt_tokens", self.max_prompt_tokens as u64, 1..=TOKENS)?;
        let share = self.held_out_share;
        number("task.held_out_share", share, (0.0..1.0).contains(&share), "at least 0 and less than 1")?;
        if self.owns_data() && self.environment.is_none() {
            bad_input!("task.data: this key is missing; set the file or data set with the training problems");
        }
        let command = self.verifier.command.as_ref().is_some_and(|c| !c.command.is_empty());
        let grader = self.grader.as_ref().is_some_and(program::Settings::is_function);
        within("task.max_turns", self.max_turns() as u64, 1..=MANY)?;
        for (key, is_set) in [("grader", self.grader.is_some()), ("reasoning", self.reasoning.is_some())] {
            if is_set && self.environment.is_some() {
                bad_input!("task.{key}: can't be combined with task.environment, which grades its episodes");
            }
        }
        let Settings { mode, percent_as_number, accept_unfinished, .. } = self.verifier;
        let strict = [("percent_as_number", percent_as_number), ("accept_unfinished", accept_unfinished)];
        if let Some((key, _)) = strict.into_iter().find(|(_, on)| *on && mode == Mode::Parity) {
            bad_input!(
                "task.verifier.{key}: has no effect in mode parity; set task.verifier.mode = \"strict\""
            );
        }
        if let Some((key, kind)) = self.kind().ignored(&self.verifier) {
            bad_input!(
                "task.verifier.{key}: has no effect with task.kind = \"{}\"; it is for kind {kind}",
                self.kind
            );
        }
        match self.kind {
            TaskKind::Command if !command => bad_input!(
                "task.verifier.command: this key is missing; set the grading program, for example \"python3 grade.py\""
            ),
            TaskKind::Python if !grader && self.environment.is_none() => bad_input!(
                "task.grader: this key is missing; set the grading function, for example \"grade.py:reward\""
            ),
            TaskKind::Python => {}
            kind if self.grader.is_some() => {
                bad_input!("task.grader: expected task.kind = \"python\", found {kind}")
            }
            kind if self.environment.is_some() => {
                bad_input!("task.environment: expected task.kind = \"python\", found {kind}")
            }
            _ => {}
        }
        if self.max_turns.is_some() && self.environment.is_none() {
            bad_input!("task.max_turns: requires task.environment");
        }
        Ok(())
    }

    /// Returns whether nothing is held out.
    pub(super) fn holds_out_nothing(&self) -> bool {
        self.held_out.is_none() && self.held_out_share == 0.0
    }
}

fn no_path(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

/// Returns the range checks that all generated problems share.
fn amounts(train: u64, held_out: u64, vocab_size: usize) -> [(&'static str, u64, RangeInclusive<u64>); 3] {
    [
        ("train", train, 1..=1 << 24),
        ("held_out", held_out, 0..=MANY),
        ("vocab_size", vocab_size as u64, 300..=1 << 16),
    ]
}

/// Multi-step arithmetic, generated from (seed, index).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ArithmeticConfig {
    /// Minimum number of operations in a problem.
    pub fewest_operations: usize,
    /// Maximum number of operations in a problem.
    pub most_operations: usize,
    /// Maximum intermediate value, at least 20; the minimum is 0.
    pub largest: u64,
    /// Number of training problems.
    pub train: u64,
    /// Number of held-out problems, which are never trained on.
    pub held_out: u64,
    /// Size of the tokenizer's vocabulary, at least 300; the tokenizer is trained on generated text.
    pub vocab_size: usize,
    /// Seed of the problems, separate from the run's seed, so that runs can share problems.
    pub seed: u64,
    /// Rules of the verifier, like `task.verifier.mode`.
    #[schemars(schema_with = "schema::word::<Mode>")]
    pub mode: Mode,
}

impl Default for ArithmeticConfig {
    fn default() -> Self {
        Self {
            fewest_operations: 2,
            most_operations: 4,
            largest: 99,
            train: 20_000,
            held_out: 256,
            vocab_size: 320,
            seed: 0,
            mode: Mode::TRAINING,
        }
    }
}

impl ArithmeticConfig {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let fewest = self.fewest_operations as u64;
        whole(
            "task",
            [
                ("fewest_operations", fewest, 1..=64),
                ("most_operations", self.most_operations as u64, fewest..=64),
                ("largest", self.largest, 20..=1_000_000),
            ]
            .into_iter()
            .chain(amounts(self.train, self.held_out, self.vocab_size)),
        )
    }
}

/// Puzzles of a SynLogic task, generated from (seed, index).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PuzzlesConfig {
    /// The SynLogic task, one of those that `fgrpo data synlogic` generates.
    pub puzzle: String,
    /// Difficulty, from 1 (easy) to 10.
    pub difficulty: u32,
    /// Number of training problems.
    pub train: u64,
    /// Number of held-out problems, which are never trained on.
    pub held_out: u64,
    /// Size of the tokenizer's vocabulary, at least 300; the tokenizer is trained on generated text.
    pub vocab_size: usize,
    /// Seed of the problems, separate from the run's seed, so that runs can share problems.
    pub seed: u64,
    /// Rules of the verifier, like `task.verifier.mode`.
    #[schemars(schema_with = "schema::word::<Mode>")]
    pub mode: Mode,
}

impl Default for PuzzlesConfig {
    fn default() -> Self {
        let ArithmeticConfig { train, held_out, vocab_size, seed, mode, .. } = ArithmeticConfig::default();
        Self {
            puzzle: Task::MathPath.name().to_owned(),
            difficulty: 1,
            train,
            held_out,
            vocab_size,
            seed,
            mode,
        }
    }
}

impl PuzzlesConfig {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let named = self.puzzle.parse().ok().filter(|&task| has_generator(task));
        if named.is_none() {
            let known: Vec<&str> =
                Task::ALL.into_iter().filter(|&task| has_generator(task)).map(Task::name).collect();
            bad_input!("task.puzzle: {}", unknown_name(&self.puzzle, &known));
        }
        whole(
            "task",
            [("difficulty", self.difficulty.into(), 1..=10)].into_iter().chain(amounts(
                self.train,
                self.held_out,
                self.vocab_size,
            )),
        )
    }
}
