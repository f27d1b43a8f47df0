//! The command line: one variant per subcommand, each run by its module.

pub(crate) mod averages;
pub(crate) mod compute;
pub(crate) mod grading;
pub(crate) mod named;
pub(crate) mod overrides;
pub mod places;
pub(crate) mod sampling;

use crate::output::{VERSION, last_words, streams};
use clap::{CommandFactory, Parser, Subcommand};
use fgrpo_eval::failure::exit_code;
use fgrpo_train::config::in_file;

mod tips;

pub use tips::with_tip;

mod groups;

/// Group-relative RL from verifiable rewards: train, evaluate and explain.
#[derive(Debug, Parser)]
#[command(name = "fgrpo", version = VERSION, propagate_version = true, help_template = groups::template())]
pub struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands, in the order of their groups.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train a policy: optional SFT on demonstrations, then RL.
    #[command(after_help = crate::commands::train::EXAMPLES)]
    Train(crate::commands::train::Args),
    /// Fit a policy to demonstrations, without RL.
    #[command(after_help = crate::commands::sft::EXAMPLES)]
    Sft(crate::commands::train::Args),
    Sweep(crate::commands::sweep::Args),
    Arena(crate::commands::arena::Args),
    Report(crate::report::Args),
    Configs(crate::commands::configs::Args),
    Init(crate::commands::init::Args),
    Merge(crate::commands::merge::Args),
    Export(crate::commands::export::Args),
    Eval(Box<crate::commands::eval::Args>),
    Generate(crate::commands::generate::Args),
    Serve(Box<crate::commands::serve::Args>),
    Verify(crate::commands::verify::Args),
    Score(crate::commands::score::Args),
    PassAtK(crate::commands::pass_at_k::Args),
    Compare(crate::commands::compare::Args),
    Table(crate::commands::table::Args),
    Select(crate::commands::select::Args),
    Plan(crate::commands::plan::Args),
    Nll(crate::commands::nll::Args),
    Diversity(crate::commands::diversity::Args),
    Data(crate::commands::data::Args),
    Maze(crate::commands::maze::Args),
    Paper(crate::commands::paper::Args),
    Theory(crate::commands::theory::Args),
    Simulate(crate::commands::simulate::Args),
    Devices(crate::commands::devices::Args),
    Completions(crate::commands::completions::Args),
}

/// Runs the parsed command, prints the message of its error, and returns the exit code.
pub fn run(cli: Cli) -> u8 {
    match execute(cli.command).and_then(|()| streams::check()) {
        Ok(()) => 0,
        Err(error) => {
            say!("{}", last_words(&error));
            exit_code(&error)
        }
    }
}

fn execute(command: Command) -> anyhow::Result<()> {
    crate::output::notes::listen();
    match command {
        Command::Verify(args) => crate::commands::verify::run(&args),
        Command::Train(args) => crate::commands::train::run(&args).map_err(|e| in_file(e, &args.config)),
        Command::Sft(args) => crate::commands::sft::run(&args).map_err(|e| in_file(e, &args.config)),
        Command::Sweep(args) => crate::commands::sweep::run(&args).map_err(|e| in_file(e, &args.config)),
        Command::Arena(args) => crate::commands::arena::run(&args),
        Command::Maze(args) => crate::commands::maze::run(&args),
        Command::Init(args) => crate::commands::init::run(&args),
        Command::Merge(args) => crate::commands::merge::run(&args),
        Command::Export(args) => crate::commands::export::run(&args),
        Command::Score(args) => crate::commands::score::run(&args),
        Command::Eval(args) => crate::commands::eval::run(&args),
        Command::PassAtK(args) => crate::commands::pass_at_k::run(args),
        Command::Compare(args) => crate::commands::compare::run(args),
        Command::Theory(args) => crate::commands::theory::run(&args),
        Command::Simulate(args) => crate::commands::simulate::run(&args),
        Command::Paper(args) => crate::commands::paper::run(&args),
        Command::Table(args) => crate::commands::table::run(&args),
        Command::Nll(args) => crate::commands::nll::run(&args),
        Command::Diversity(args) => crate::commands::diversity::run(&args),
        Command::Plan(args) => crate::commands::plan::run(&args),
        Command::Data(args) => crate::commands::data::run(&args),
        Command::Select(args) => crate::commands::select::run(&args),
        Command::Report(args) => crate::report::run(&args),
        Command::Generate(args) => crate::commands::generate::run(&args),
        Command::Serve(args) => crate::commands::serve::run(&args),
        Command::Configs(args) => crate::commands::configs::run(&args),
        Command::Devices(args) => crate::commands::devices::run(&args),
        Command::Completions(args) => crate::commands::completions::run(&args, Cli::command()),
    }
}
