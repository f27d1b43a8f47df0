//! `fgrpo sft`: supervised fine-tuning on demonstrations.

use crate::commands::dry_run;
use crate::commands::train::{Args, conclude};
use crate::output::progress::Console;
use crate::report::write_report;
use anyhow::Context;
use fgrpo_eval::events::Events;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::io::interrupt;
use fgrpo_train::config::Config;
use fgrpo_train::problem::{Split, Task};
use fgrpo_train::run::checkpoint::Stage;
use fgrpo_train::run::needs;
use fgrpo_train::session::Ending;
use fgrpo_train::sft::{self, Demonstrations};
use std::path::PathBuf;

pub(crate) const EXAMPLES: &str = "Examples:
  fgrpo sft configs/arithmetic-quick.toml
  fgrpo sft math.toml --set sft.epochs=2 --out runs/sft
  fgrpo sft math.toml --set sft.epochs=2 --out runs/sft --resume

The configuration is the same as for `fgrpo train`: the table [sft] has the settings, and `steps` may be absent.
The last checkpoint under checkpoints/ is a Hugging Face folder. Use it as `model.path` of an RL run, or with \
`fgrpo eval --model`.";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut config = args.configuration()?;
    sft::settings(&config).with_context(|| args.config.display().to_string()).or_bad_input()?;
    let out = args.out.clone().unwrap_or_else(|| {
        let stem = args.config.file_stem().unwrap_or(args.config.as_os_str());
        PathBuf::from("runs").join(format!("{}-sft", stem.to_string_lossy()))
    });
    args.take_places(&mut config, &out)?;
    let settings = sft::settings(&config)?;
    if args.dry_run.enabled {
        // SFT runs store the unresolved configuration, including epochs.
        let check = |_: &Config, _: &Task| args.check_folder(&out, &config, Stage::Sft);
        if let Some(task) = dry_run::run(&config, args.device(), &args.dry_run, check)? {
            let positions = needs::model(&config, Some(&task))?.map_or(usize::MAX, |model| model.context());
            for (name, split) in [("demonstrations", Split::Train), ("held out", Split::HeldOut)] {
                let demonstrations = Demonstrations::of(&task, split, positions)?;
                let left_out =
                    demonstrations.left_out().map_or_else(String::new, |why| format!("; left out: {why}"));
                say!("{name:<22}{:>12}{left_out}", demonstrations.len());
                if split == Split::Train {
                    say!("sft                   {}", settings.in_words(demonstrations.len()));
                }
            }
        }
        return Ok(());
    }
    args.say_if_new(&out);
    interrupt::listen();
    let mut console = Console::new();
    let ending = sft::run(&config, &out, args.if_exists(), args.device(), &mut console)?;
    if !sft::lines(&out)?.is_empty() {
        let page = out.join("report.html");
        write_report(std::slice::from_ref(&out), &page)?;
        if matches!(ending, Ending::Done(_)) {
            console.say(&format!("report: {}", page.display()));
        }
    }
    conclude(ending, &[&out])
}
