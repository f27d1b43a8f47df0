//! `fgrpo completions`: shell completions and manual pages.

use anyhow::Context;
use clap::Command;
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap_complete::aot::{Shell, generate, generate_to};
use clap_mangen::Man;
use std::path::PathBuf;

/// Write shell completions or manual pages.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fgrpo completions bash --out ~/.local/share/bash-completion/completions
  fgrpo completions zsh --out ~/.zfunc                   # with ~/.zfunc in fpath
  fgrpo completions fish --out ~/.config/fish/completions
  fgrpo completions man --out ~/.local/share/man/man1    # then: man fgrpo-train")]
pub(crate) struct Args {
    /// Shell, or `man` for manual pages.
    #[arg(value_parser = what())]
    what: String,
    /// Folder for the shell's file under its usual name, or for a manual page of each command [default: print the file, or the
    /// first manual page, to standard output].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

fn what() -> PossibleValuesParser {
    let shells = ["bash", "zsh", "fish", "elvish", "powershell"].map(PossibleValue::new).into_iter();
    PossibleValuesParser::new(shells.chain([PossibleValue::new("man").help("Manual pages")]))
}

/// Runs the command. `program` is the command line to complete and describe.
pub(crate) fn run(args: &Args, mut program: Command) -> anyhow::Result<()> {
    let shell = args.what.parse::<Shell>().ok();
    let Some(folder) = &args.out else {
        let mut text = Vec::new();
        match shell {
            Some(shell) => generate(shell, &mut program, NAME, &mut text),
            None => Man::new(program).render(&mut text)?,
        }
        out!("{}", String::from_utf8_lossy(&text));
        return Ok(());
    };
    std::fs::create_dir_all(folder).with_context(|| format!("--out: creating {}", folder.display()))?;
    let writing = || format!("--out: writing into {}", folder.display());
    match shell {
        Some(shell) => {
            let path = generate_to(shell, &mut program, NAME, folder).with_context(writing)?;
            say!("{}", path.display());
        }
        None => clap_mangen::generate_to(program, folder).with_context(writing)?,
    }
    Ok(())
}

const NAME: &str = "fgrpo";
