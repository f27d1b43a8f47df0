//! `fgrpo completions`: shell completions and manual pages.

use anyhow::Context;
use clap::Command;
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap_complete::{Generator, Shell, generate};
use clap_mangen::Man;
use fgrpo_eval::io::files::write_whole;
use std::path::{Path, PathBuf};

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
pub(crate) fn run(args: &Args, program: Command) -> anyhow::Result<()> {
    let shell = args.what.parse::<Shell>().ok();
    let Some(folder) = &args.out else {
        let text = match shell {
            Some(shell) => script(shell, program),
            None => page(program)?,
        };
        out!("{}", String::from_utf8_lossy(&text));
        return Ok(());
    };
    std::fs::create_dir_all(folder).with_context(|| format!("--out: creating {}", folder.display()))?;
    match shell {
        Some(shell) => {
            let path = folder.join(shell.file_name(NAME));
            write_whole(&path, &script(shell, program))?;
            say!("{}", path.display());
        }
        None => {
            let mut program = program.disable_help_subcommand(true);
            program.build();
            write_pages(&program, folder)?;
        }
    }
    Ok(())
}

const NAME: &str = "fgrpo";

fn script(shell: Shell, mut program: Command) -> Vec<u8> {
    let mut text = Vec::new();
    generate(shell, &mut program, NAME, &mut text);
    text
}

fn page(command: Command) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::new();
    Man::new(command).render(&mut text)?;
    Ok(text)
}

fn write_pages(command: &Command, folder: &Path) -> anyhow::Result<()> {
    for subcommand in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        write_pages(subcommand, folder)?;
    }
    let name = Man::new(command.clone()).get_filename();
    write_whole(&folder.join(name), &page(command.clone())?)
}
