//! The command line: one variant per subcommand, each handing over to its module.

pub(crate) mod averages;
pub(crate) mod compute;
pub(crate) mod grading;
pub(crate) mod named;
pub(crate) mod overrides;
pub mod places;
pub(crate) mod sampling;

use crate::output::VERSION;
use clap::{CommandFactory, Parser, Subcommand};
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
    /// Train a policy: SFT on demonstrations where asked for, then RL.
    #[command(after_help = crate::commands::train::EXAMPLES)]
    Train(crate::commands::train::Args),
    /// Fit a policy to demonstrations alone.
    #[command(after_help = crate::commands::sft::EXAMPLES)]
    Sft(crate::commands::train::Args),
    /// Train every combination of a grid; a table of their pass@k.
    Sweep(crate::commands::sweep::Args),
    /// Train methods on the same small tasks and rank them.
    Arena(crate::commands::arena::Args),
    /// Write an HTML report of one or several runs.
    Report(crate::report::Args),
    /// List the built-in configurations, or print one.
    Configs(crate::commands::configs::Args),
    /// Make a randomly initialised Hugging Face checkpoint.
    Init(crate::commands::init::Args),
    /// Merge a LoRA adapter into its base model.
    Merge(crate::commands::merge::Args),
    /// Write the job of a configuration for a cluster's trainer (verl).
    Export(crate::commands::export::Args),
    /// Sample a model on a data set, grade, report pass@k.
    Eval(Box<crate::commands::eval::Args>),
    /// Ask a checkpoint: a prompt, a file of prompts, or a conversation.
    Generate(crate::commands::generate::Args),
    /// Serve a model: the Tinker API, and OpenAI's endpoints.
    Serve(Box<crate::commands::serve::Args>),
    /// Grade answers: one JSON line in, one JSON line out.
    Verify(crate::commands::verify::Args),
    /// Per-token log-probabilities and entropies under a checkpoint.
    Score(crate::commands::score::Args),
    /// Unbiased pass@k of graded samples.
    PassAtK(crate::commands::pass_at_k::Args),
    /// Compare two models' pass@k on the same problems.
    Compare(crate::commands::compare::Args),
    /// A table of methods by benchmarks, as the paper prints them.
    Table(crate::commands::table::Args),
    /// Choose checkpoints to compare, at equal or less compute.
    Select(crate::commands::select::Args),
    /// Group size and gamma suggested from samples.
    Plan(crate::commands::plan::Args),
    /// Likelihood of correct solutions that the base model rarely finds.
    Nll(crate::commands::nll::Args),
    /// Diversity of correct solutions.
    Diversity(crate::commands::diversity::Args),
    /// Generate problems, or show any as a model sees them.
    Data(crate::commands::data::Args),
    /// Draw a maze, its target and its tokens.
    Maze(crate::commands::maze::Args),
    /// Any table or figure of the paper, beside the paper's numbers.
    Paper(crate::commands::paper::Args),
    /// The paper's formulas: tail misses, mass terms, advantages.
    Theory(crate::commands::theory::Args),
    /// The paper's categorical simulation.
    Simulate(crate::commands::simulate::Args),
    /// What `--device` can be here, or why not.
    Devices(crate::commands::devices::Args),
    /// Shell completions and manual pages.
    Completions(crate::commands::completions::Args),
}

/// Runs the parsed command.
pub fn run(cli: Cli) -> anyhow::Result<()> {
    crate::output::notes::listen();
    match cli.command {
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
