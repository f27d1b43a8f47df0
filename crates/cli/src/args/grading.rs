//! The settings of a verifier as flags, the same for every command that grades.

use crate::args::named::named;
use fgrpo_eval::kind::TaskKind;
use fgrpo_eval::program;
use fgrpo_eval::verifier::{Limits, Mode, Reasoning, Settings};
use fgrpo_verify::choice;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[value(rename_all = "lower")]
#[serde(rename_all = "lowercase")]
pub(crate) enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

impl Switch {
    pub(crate) fn on(self) -> bool {
        self == Self::On
    }
}

/// What counts as an answer to a multiple-choice question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ChoiceMatch {
    /// The boxed letter, strictly.
    Letter,
    /// A letter in other dress, or the option's own words.
    LetterOrContent,
}

/// The settings of a verifier as flags, the same for every command that grades.
#[derive(Debug, Clone, Default, clap::Args, Serialize, Deserialize)]
#[command(next_help_heading = "Grading")]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Flags {
    /// Math and SynLogic: judge as the reference does, quirks included, or by what is right [default: parity; with a training configuration, its own].
    #[arg(long, value_parser = named::<Mode>())]
    pub(crate) mode: Option<Mode>,
    /// Grade what follows the thoughts (strip), the whole text (keep), or what follows other tags than the template's, or
    /// `<think>` and `</think>` (OPEN,CLOSE) [default: strip; keep in mode parity].
    #[arg(long)]
    pub(crate) reasoning: Option<Reasoning>,
    /// SynLogic: demand `<think>...</think>...<answer>...</answer>` [default: on; off in fgrpo verify, where the response is the answer].
    #[arg(long, value_enum)]
    pub(crate) format_gate: Option<Switch>,
    /// Math, mode strict: whether 35% also equals 35, as it does in mode parity [default: off].
    #[arg(long, value_enum)]
    pub(crate) percent_as_number: Option<Switch>,
    /// Math, mode strict: whether an operation that is not carried out is an answer, as 12+17 for 29 [default: off].
    #[arg(long, value_enum)]
    pub(crate) accept_unfinished: Option<Switch>,
    /// Multiple choice: what counts as an answer [default: letter].
    #[arg(long, value_enum)]
    pub(crate) choice: Option<ChoiceMatch>,
    /// Kind command: the program that grades and its arguments; quotes keep white space together.
    #[arg(long, visible_alias = "verifier")]
    pub(crate) command: Option<String>,
    /// Kind python: the function that grades.
    #[arg(long, value_name = "FILE.py:FUNCTION", conflicts_with = "command")]
    pub(crate) grader: Option<String>,
    /// Kinds command and python: seconds for one answer [default: 10]; code: processor seconds for a test [default: 6].
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout_s: Option<f64>,
    /// Kind code: address space of a program in MB [default: 1024].
    #[arg(long, value_name = "MB")]
    pub(crate) memory_mb: Option<u32>,
    /// Kinds command and python: further seconds for a child's first answer [default: 30].
    #[arg(long, value_name = "SECONDS")]
    pub(crate) startup_s: Option<f64>,
    /// Kinds command and python: least score that counts as correct [default: 1].
    #[arg(long, value_name = "SCORE")]
    pub(crate) correct_from: Option<f64>,
}

impl Flags {
    /// Refuses flags of kinds that aren't among `kinds`: they would change nothing.
    pub(crate) fn for_kinds(&self, kinds: &[TaskKind]) -> anyhow::Result<()> {
        use TaskKind::{Choice, Code, Command, Math, Python, SynLogic};
        // Field by field and without `..`: a flag added later doesn't compile until it is decided about here.
        let Self {
            // Every kind has it; some verifiers judge alike in both modes.
            mode: _,
            reasoning: _,
            format_gate,
            percent_as_number,
            accept_unfinished,
            choice,
            command,
            grader,
            timeout_s,
            memory_mb,
            startup_s,
            correct_from,
        } = self;
        for (flag, given, of) in [
            ("--format-gate", format_gate.is_some(), &[SynLogic][..]),
            ("--percent-as-number", percent_as_number.is_some(), &[Math]),
            ("--accept-unfinished", accept_unfinished.is_some(), &[Math]),
            ("--choice", choice.is_some(), &[Choice]),
            ("--command", command.is_some(), &[Command]),
            ("--grader", grader.is_some(), &[Python]),
            ("--timeout-s", timeout_s.is_some(), &[Code, Command, Python]),
            ("--memory-mb", memory_mb.is_some(), &[Code]),
            ("--startup-s", startup_s.is_some(), &[Command, Python]),
            ("--correct-from", correct_from.is_some(), &[Command, Python]),
        ] {
            if given && !kinds.iter().any(|kind| of.contains(kind)) {
                let [of, found] = [of, kinds]
                    .map(|list| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or "));
                bad_input!("{flag}: found with {found}, wanted it with {of}: it would change nothing here");
            }
        }
        Ok(())
    }

    /// `settings` with what the flags say in place of it.
    pub(crate) fn over(&self, settings: Settings) -> anyhow::Result<Settings> {
        // Field by field and without `..`: a setting added later doesn't compile until it is decided about here.
        let Settings {
            mode,
            format_gate,
            percent_as_number,
            accept_unfinished,
            choice,
            command,
            code,
            maze,
            reasoning,
            max_turns,
            template_tags,
        } = settings;
        let mode = self.mode.unwrap_or(mode);
        let of_strict = [
            ("--percent-as-number", self.percent_as_number.is_some()),
            ("--accept-unfinished", self.accept_unfinished.is_some()),
        ];
        if let Some((flag, _)) =
            of_strict.into_iter().find(|(_, given)| *given && matches!(mode, Mode::Parity))
        {
            bad_input!(
                "{flag}: found with mode parity, wanted it with mode strict: it would change nothing here"
            );
        }
        let given = match &self.grader {
            Some(function) => Some(program::Settings::of_function(function)),
            None => self.command.as_deref().map(program::Settings::parse).transpose()?,
        };
        let command = match (command, given) {
            (Some(old), Some(given)) => Some(program::Settings {
                command: given.command,
                function: given.function,
                in_process: None,
                ..old
            }),
            (old, given) => given.or(old),
        };
        let of_command = [self.startup_s, self.correct_from];
        if command.is_none() && of_command.iter().any(Option::is_some) {
            bad_input!(
                "--startup-s, --correct-from: found without --command or --grader, whose answers they are about"
            );
        }
        let command = command.map(|c| program::Settings {
            timeout_s: self.timeout_s.unwrap_or(c.timeout_s),
            startup_s: self.startup_s.unwrap_or(c.startup_s),
            correct_from: self.correct_from.unwrap_or(c.correct_from),
            ..c
        });
        Ok(Settings {
            mode,
            format_gate: self.format_gate.map_or(format_gate, Switch::on),
            percent_as_number: self.percent_as_number.map_or(percent_as_number, Switch::on),
            accept_unfinished: self.accept_unfinished.map_or(accept_unfinished, Switch::on),
            choice: self.choice.map_or(choice, |c| match c {
                ChoiceMatch::Letter => choice::Match::Letter,
                ChoiceMatch::LetterOrContent => choice::Match::LetterOrContent,
            }),
            command,
            code: Limits {
                timeout_s: self.timeout_s.unwrap_or(code.timeout_s),
                memory_mb: self.memory_mb.unwrap_or(code.memory_mb),
            },
            maze,
            reasoning: self.reasoning.clone().or(reasoning),
            max_turns,
            template_tags,
        })
    }
}
