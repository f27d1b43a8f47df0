//! `fgrpo configs`: lists and prints the built-in configurations.

use fgrpo_train::config::{Config, builtin, unknown_name};

/// List the built-in configurations, or print one.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fgrpo configs list
  fgrpo configs show maze-quick > mine.toml
  fgrpo configs schema > fgrpo.schema.json      # then, as the first line of a configuration: #:schema ./fgrpo.schema.json
  fgrpo train maze-quick")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum What {
    /// List the built-in configurations with their descriptions.
    List,
    /// Print a built-in configuration, as a start for your own.
    Show {
        /// Name of the configuration.
        name: String,
    },
    /// Print the JSON schema of configurations, with which editors complete and check them.
    Schema,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.what {
        What::List => {
            let widest = builtin::CONFIGS.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
            for (name, text) in builtin::CONFIGS {
                outln!("{name:widest$}  {}", builtin::about(text));
            }
        }
        What::Schema => outln!("{}", serde_json::to_string_pretty(&Config::schema())?),
        What::Show { name } => match builtin::builtin(name.trim_end_matches(".toml")) {
            Some(text) => out!("{text}"),
            None => {
                let names: Vec<&str> = builtin::CONFIGS.iter().map(|(name, _)| *name).collect();
                bad_input!("configs show: {}", unknown_name(name, &names))
            }
        },
    }
    Ok(())
}
