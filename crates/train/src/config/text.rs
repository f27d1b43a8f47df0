//! Text tasks: problems from files, or generated ones.

use super::defaults;
use super::ranges::{MANY, TOKENS, whole, within};
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
    /// Training problems, required unless an environment makes up its problems: JSON lines, a JSON array, CSV or Parquet,
    /// a folder of such files, or a split of one, as `gsm8k/main/train`.
    #[serde(default, skip_serializing_if = "no_path")]
    pub data: PathBuf,
    /// File of held-out problems, which are never trained on. Without it, `held_out_share` of `data` is held out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_out: Option<PathBuf>,
    /// Share of held-out problems. A hash of the prompt selects them, so the selection stays the same when the file
    /// grows.
    #[serde(default = "defaults::held_out_share")]
    pub held_out_share: f64,
    /// Folder of the tokenizer and the chat template; without it, `model.path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<PathBuf>,
    /// The paper's prompt for this kind of task and a model family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::word::<Family>")]
    pub preset: Option<Family>,
    /// System prompt in place of the preset's; an empty one sends none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// `enable_thinking` of the chat template in place of the preset's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_thinking: Option<bool>,
    /// Problems with a longer prompt are rejected and counted.
    #[serde(default = "defaults::max_prompt_tokens")]
    pub max_prompt_tokens: usize,
    /// Texts that end a completion, besides the model's end tokens: an added token of the tokenizer by its name, or any
    /// other text, regardless of token boundaries. The token that completes the text is the last one; the graded text
    /// ends before it.
    #[serde(default)]
    pub stop: Vec<String>,
    /// Columns with unusual names.
    #[serde(default)]
    pub columns: Columns,
    /// `python`: the function that grades, by its name or as a table.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "program::Settings::read_function"
    )]
    #[schemars(schema_with = "program::schema::function")]
    pub grader: Option<program::Settings>,
    /// `python`: the environment that the policy talks to, `"env.py:Calculator"` or a table, in place of a grader. Its
    /// `reset(**row)` begins an episode, its `get_reward()` or `reward()` grades, and its other methods are tools.
    /// `rollout.max_new_tokens` is the limit of each turn.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "program::Settings::read_function"
    )]
    #[schemars(schema_with = "program::schema::function")]
    pub environment: Option<program::Settings>,
    /// With `environment`: the most turns of the policy in an episode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<usize>,
    /// Thoughts before an answer: `strip` grades what follows the last closing tag, `keep` the whole completion.
    /// `OPEN,CLOSE` are other tags than those of the chat template, or `<think>` and `</think>`. Without it `strip`, and
    /// `keep` with `verifier.mode = "parity"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub reasoning: Option<Reasoning>,
    /// How completions are graded.
    #[serde(default)]
    pub verifier: Settings,
}

impl TextConfig {
    /// The settings for a data set without a configuration, whose verdicts are compared with published ones.
    pub fn of(kind: TaskKind, data: &Path) -> Self {
        Self {
            // An environment stands in a table of the kind `python`.
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

    /// Kind of the problems: that of the configuration, or an environment if the settings name one.
    pub fn kind(&self) -> TaskKind {
        if self.environment.is_some() { TaskKind::Environment } else { self.kind }
    }

    /// Whether a grader of the user's own gives scores, in place of verdicts.
    pub(super) fn gives_scores(&self) -> bool {
        matches!(self.kind, TaskKind::Command | TaskKind::Python)
    }

    /// How completions are graded, with the function if one grades.
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

    /// Whether the environment makes up its problems itself.
    pub fn owns_data(&self) -> bool {
        no_path(&self.data)
    }

    /// The most turns of the policy in an episode with an environment.
    pub fn max_turns(&self) -> usize {
        self.max_turns.unwrap_or(8)
    }

    /// The prompt settings.
    pub fn prompting(&self) -> Prompting {
        Prompting { preset: self.preset, system: self.system.clone(), thinking: self.enable_thinking }
    }

    /// Checks ranges, and that what grades is there.
    pub fn check(&self) -> anyhow::Result<()> {
        within("task.max_prompt_tokens", self.max_prompt_tokens as u64, 1..=TOKENS)?;
        if !(0.0..1.0).contains(&self.held_out_share) {
            bad_input!(
                "task.held_out_share: found {}, wanted at least 0 and less than 1",
                self.held_out_share
            );
        }
        if self.owns_data() && self.environment.is_none() {
            bad_input!("task.data: it is missing; name the file or data set with the training problems");
        }
        let command = self.verifier.command.as_ref().is_some_and(|c| !c.command.is_empty());
        let grader = self.grader.as_ref().is_some_and(program::Settings::is_function);
        within("task.max_turns", self.max_turns() as u64, 1..=MANY)?;
        for (key, found) in [("grader", self.grader.is_some()), ("reasoning", self.reasoning.is_some())] {
            if found && self.environment.is_some() {
                bad_input!(
                    "task.{key}: found beside task.environment, wanted one of them: the environment grades its episodes"
                );
            }
        }
        let Settings { mode, percent_as_number, accept_unfinished, .. } = self.verifier;
        let of_strict = [("percent_as_number", percent_as_number), ("accept_unfinished", accept_unfinished)];
        if let Some((key, _)) = of_strict.into_iter().find(|(_, on)| *on && mode == Mode::Parity) {
            bad_input!(
                "task.verifier.{key}: changes nothing in mode parity; set task.verifier.mode = \"strict\""
            );
        }
        match self.kind {
            TaskKind::Command if !command => bad_input!(
                "task.verifier.command: found nothing, wanted the program that grades, for example \"python3 grade.py\""
            ),
            TaskKind::Python if !grader && self.environment.is_none() => bad_input!(
                "task.grader: found nothing, wanted the function that grades, for example \"grade.py:reward\""
            ),
            TaskKind::Python => {}
            kind if self.grader.is_some() => {
                bad_input!("task.grader: found with task.kind {kind}, wanted it with python")
            }
            kind if self.environment.is_some() => {
                bad_input!("task.environment: found with task.kind {kind}, wanted it with python")
            }
            _ => {}
        }
        if self.max_turns.is_some() && self.environment.is_none() {
            bad_input!("task.max_turns: found without task.environment, wanted both or neither");
        }
        Ok(())
    }

    /// Whether nothing is held out.
    pub(super) fn holds_out_nothing(&self) -> bool {
        self.held_out.is_none() && self.held_out_share == 0.0
    }
}

fn no_path(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

/// The ranges of what all generated problems have.
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
    /// Smallest number of operations in a problem.
    pub fewest_operations: usize,
    /// Largest number of operations in a problem.
    pub most_operations: usize,
    /// Largest intermediate value, at least 20; none is below 0.
    pub largest: u64,
    /// Training problems.
    pub train: u64,
    /// Held-out problems, which are never trained on.
    pub held_out: u64,
    /// Size of the tokenizer's vocabulary, at least 300; the tokenizer is trained on generated text.
    pub vocab_size: usize,
    /// Seed of the problems, separate from the run's, so that runs share them.
    pub seed: u64,
    /// Rules of the verifier, as `task.verifier.mode`.
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
    /// The SynLogic task; those of `fgrpo data synlogic`.
    pub puzzle: String,
    /// From 1 (easy) to 10.
    pub difficulty: u32,
    /// Training problems.
    pub train: u64,
    /// Held-out problems, which are never trained on.
    pub held_out: u64,
    /// Size of the tokenizer's vocabulary, at least 300; the tokenizer is trained on generated text.
    pub vocab_size: usize,
    /// Seed of the problems, separate from the run's, so that runs share them.
    pub seed: u64,
    /// Rules of the verifier, as `task.verifier.mode`.
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
            bad_input!("task.puzzle: found {:?}, wanted one of {}", self.puzzle, known.join(", "));
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
