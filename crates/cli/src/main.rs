//! Glue: parse, run, turn an error into a message and an exit code.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match fgrpo::cli::run(&fgrpo::cli::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(fgrpo::failure::exit_code(&error))
        }
    }
}
