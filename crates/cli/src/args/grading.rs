//! Verifier flags, shared by all commands that grade.

use super::named::{among, named};
use super::overrides::Has::{self, Kinds};
use super::overrides::OfTask;
use fgrpo_eval::kind::TaskKind;
use fgrpo_eval::program;
use fgrpo_eval::verifier::{Mode, Reasoning};
use fgrpo_verify::choice::Match;

/// Parses `on` or `off`.
pub(crate) fn switch() -> impl clap::builder::TypedValueParser<Value = bool> {
    among([("on", true), ("off", false)])
}

/// Verifier settings.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Grading")]
pub(crate) struct Flags {
    /// Math and SynLogic: reproduce the reference grader, quirks included (parity), or grade correctly (strict) [default: the training configuration's, or parity].
    #[arg(long, value_parser = named::<Mode>())]
    pub(crate) mode: Option<Mode>,
    /// Part of a response to grade: the text after the thoughts (strip), the whole text (keep), or the text after these tags
    /// instead of the template's or `<think>` and `</think>` (OPEN,CLOSE) [default: strip; keep in mode parity].
    #[arg(long)]
    pub(crate) reasoning: Option<Reasoning>,
    /// SynLogic: require `<think>...</think>...<answer>...</answer>` [default: on; in fgrpo verify off, because the response is the answer].
    #[arg(long, value_parser = switch())]
    pub(crate) format_gate: Option<bool>,
    /// Math, mode strict: accept 35 for 35%, as mode parity does [default: off].
    #[arg(long, value_parser = switch())]
    pub(crate) percent_as_number: Option<bool>,
    /// Math, mode strict: accept an unevaluated expression, such as 12+17 for 29 [default: off].
    #[arg(long, value_parser = switch())]
    pub(crate) accept_unfinished: Option<bool>,
    /// Multiple choice: accepted form of an answer [default: letter].
    #[arg(long, value_parser = among([("letter", Match::Letter), ("letter-or-content", Match::LetterOrContent)]))]
    pub(crate) choice: Option<Match>,
    /// Kind command: the grading program and its arguments; quote arguments that contain spaces.
    #[arg(long, visible_alias = "verifier")]
    pub(crate) command: Option<String>,
    /// Kind python: the grading function; kind environment: the environment's class.
    #[arg(long, value_name = "FILE.py:FUNCTION", conflicts_with = "command")]
    pub(crate) grader: Option<String>,
    /// Time limit: for one answer with kinds command and python [default: 10], in CPU time for one test with kind code [default: 6].
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout_s: Option<f64>,
    /// Kind code: limit of a program's address space, in MB [default: 1024].
    #[arg(long, value_name = "MB")]
    pub(crate) memory_mb: Option<u32>,
    /// Kinds command and python: additional time for the first answer of a child process [default: 30].
    #[arg(long, value_name = "SECONDS")]
    pub(crate) startup_s: Option<f64>,
    /// Kinds command and python: lowest score that counts as correct [default: 1].
    #[arg(long, value_name = "SCORE")]
    pub(crate) correct_from: Option<f64>,
}

impl Flags {
    /// Returns the task keys that the flags set. Fails if `--command` can't be parsed.
    pub(crate) fn of_task(&self) -> anyhow::Result<Vec<OfTask>> {
        use TaskKind::{Choice, Code, Command, Environment, Math, Python, SynLogic};
        // Field by field and without `..`: a flag added later doesn't compile until it has a key.
        let Self {
            mode,
            reasoning,
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
        let command = command.as_deref().map(program::Settings::parse).transpose()?;
        let command = command.map(|program| program.command);
        let mut all = vec![
            OfTask::new("--mode", "verifier.mode", mode, Has::Text),
            OfTask::new("--mode", "mode", mode, Has::Generated),
            OfTask::new("--reasoning", "reasoning", reasoning, Has::Text),
            OfTask::new("--format-gate", "verifier.format_gate", format_gate, Kinds(&[SynLogic])),
            OfTask::new(
                "--percent-as-number",
                "verifier.percent_as_number",
                percent_as_number,
                Kinds(&[Math]),
            ),
            OfTask::new(
                "--accept-unfinished",
                "verifier.accept_unfinished",
                accept_unfinished,
                Kinds(&[Math]),
            ),
            OfTask::new("--choice", "verifier.choice", choice, Kinds(&[Choice])),
            OfTask::new("--command", "verifier.command.command", &command, Kinds(&[Command])),
            OfTask::new("--grader", "grader.function", grader, Kinds(&[Python])),
            OfTask::new("--grader", "environment.function", grader, Kinds(&[Environment])),
            OfTask::new("--timeout-s", "verifier.code.timeout_s", timeout_s, Kinds(&[Code])),
            OfTask::new("--memory-mb", "verifier.code.memory_mb", memory_mb, Kinds(&[Code])),
        ];
        for (program, kinds) in
            [("verifier.command", &[Command][..]), ("grader", &[Python]), ("environment", &[Environment])]
        {
            let program = |key: &str| format!("{program}.{key}");
            for (flag, key, seconds) in [
                ("--timeout-s", "timeout_s", timeout_s),
                ("--startup-s", "startup_s", startup_s),
                ("--correct-from", "correct_from", correct_from),
            ] {
                all.push(OfTask::new(flag, &program(key), seconds, Kinds(kinds)));
            }
        }
        Ok(all)
    }

    /// Fails for a flag of mode strict if `mode` is parity.
    pub(crate) fn check_mode(&self, mode: Mode) -> anyhow::Result<()> {
        let strict_flags = [
            ("--percent-as-number", self.percent_as_number.is_some()),
            ("--accept-unfinished", self.accept_unfinished.is_some()),
        ];
        match strict_flags.into_iter().find(|(_, is_set)| *is_set && mode == Mode::Parity) {
            Some((flag, _)) => bad_input!("{flag} has no effect in mode parity; add --mode strict"),
            None => Ok(()),
        }
    }
}
