//! `fgrpo data arithmetic`: the problems of the arithmetic task as a data file.

use fgrpo_eval::io::files::write_whole;
use fgrpo_train::config::{ArithmeticConfig, Config, TaskConfig};
use fgrpo_train::problem;
use std::path::PathBuf;

/// `fgrpo data arithmetic`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    fgrpo data arithmetic configs/arithmetic-quick.toml --split held-out --out held-out.jsonl\n  \
    fgrpo data arithmetic configs/arithmetic-quick.toml --out train.jsonl --limit 5000\n\n\
    Columns: problem, answer, solution. The held-out problems are never among the training ones.")]
pub(crate) struct Arithmetic {
    /// A training configuration with an arithmetic task.
    config: PathBuf,
    /// Change a key of the configuration; repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Split to write.
    #[arg(long, value_enum, default_value_t = SplitName::Train)]
    split: SplitName,
    /// Write only this number of problems, from the first.
    #[arg(long, value_name = "PROBLEMS")]
    limit: Option<usize>,
    /// Output file of JSON lines.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SplitName {
    /// The training problems.
    Train,
    /// The held-out problems.
    HeldOut,
}

pub(super) fn run(args: &Arithmetic) -> anyhow::Result<()> {
    let TaskConfig::Arithmetic(config) = Config::load(&args.config, &args.set)?.task else {
        bad_input!("{}: task.kind: wanted \"arithmetic\"", args.config.display());
    };
    let lines = lines(&config, args.split, args.limit)?;
    write_whole(&args.out, lines.as_bytes())?;
    say!("{}: {} problems", args.out.display(), lines.lines().count());
    Ok(())
}

fn lines(config: &ArithmeticConfig, split: SplitName, limit: Option<usize>) -> anyhow::Result<String> {
    let (train, held_out) = problem::generated::problems(config)?;
    let problems = match split {
        SplitName::Train => train,
        SplitName::HeldOut => held_out,
    };
    Ok(super::lines(problems.iter().take(limit.unwrap_or(usize::MAX))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fgrpo_eval::dataset;
    use fgrpo_eval::kind::TaskKind;

    #[test]
    fn the_file_reads_back_as_the_problems_of_the_task() {
        let config: ArithmeticConfig = toml::from_str("train = 30\nheld_out = 5").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.jsonl");
        std::fs::write(&path, lines(&config, SplitName::Train, Some(20)).unwrap()).unwrap();
        let (read, _) = dataset::load(&path, TaskKind::Math, &Default::default()).unwrap();
        let (train, held_out) = problem::generated::problems(&config).unwrap();
        assert_eq!((read.len(), held_out.len()), (20, 5));
        for (a, b) in read.iter().zip(&train) {
            assert_eq!((&a.id, &a.truth, &a.solution), (&b.id, &b.truth, &b.solution));
        }
    }
}
