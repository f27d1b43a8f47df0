//! Parses the command line and runs the command.

use clap::Parser;
use fgrpo::args::{self, Cli};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| args::with_tip(error).exit());
    ExitCode::from(args::run(cli))
}
