//! Parses the command line, runs the command, and converts an error to a message and an exit code.

use clap::Parser;
use fgrpo::args::{self, Cli};
use fgrpo::output::{last_words, streams};
use fgrpo_eval::failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| args::with_tip(error).exit());
    match args::run(cli).and_then(|()| streams::check()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            streams::to_stderr(format_args!("{}\n", last_words(&error)));
            ExitCode::from(failure::exit_code(&error))
        }
    }
}
