//! `fgrpo export`: writes the job of a configuration for a distributed trainer.

use crate::args::named::named;
use crate::args::places::{self, Loading};
use fgrpo_paper::plan::{Options, full_row};
use fgrpo_train::config::{Config, Override};
use fgrpo_train::export::{self, Cluster, Order, Sampler, Summary, Trainer};
use std::path::PathBuf;

/// Write a job for a trainer on a cluster: verl, TRL or SkyRL.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fgrpo export verl math.toml --out job --nodes 2 --gpus 8
  fgrpo export verl math.toml --out job --model Qwen/Qwen2.5-7B --set rollout.group_size=16
  fgrpo export trl math.toml --out job --gpus 8
  fgrpo export verl --paper table-1/Qwen2.5-7B/F-GRPO --out job --nodes 2 --engine sglang
  fgrpo export verl math.toml --out job --allow update.schedule    # accept that verl has no linear schedule

The job is one folder: run.sh trains with verl, or train.py with TRL or SkyRL; back.sh evaluates the result and compares it with \
the start. A setting that the trainer doesn't have is an error, with all of them in one message, unless --allow names it; the README of the job \
then lists the difference.")]
pub(crate) struct Args {
    /// Trainer that the job is for.
    #[arg(value_parser = named::<Trainer>())]
    trainer: Trainer,
    /// Training configuration, or the name of a built-in one.
    #[arg(required_unless_present = "paper")]
    config: Option<PathBuf>,
    /// Row of a table of the paper at its full scale, in place of a configuration: TABLE/MODEL/METHOD.
    #[arg(long, value_name = "ROW", conflicts_with = "config")]
    paper: Option<String>,
    /// Folder that contains models/ and data/ of the paper's row; what is missing comes from the Hugging Face hub.
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,
    /// Folder of the job, which must not exist.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Change a key of the configuration; repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Checkpoint folder or hub name on the cluster [default: model.path].
    #[arg(long, value_name = "DIR|NAME")]
    model: Option<String>,
    /// Number of machines.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    nodes: u16,
    /// GPUs of each machine.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    gpus: u16,
    /// GPUs that share one copy of the sampler's weights.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    tp: u16,
    /// Inference engine that samples.
    #[arg(long, default_value_t = Sampler::Vllm, value_parser = named::<Sampler>())]
    engine: Sampler,
    /// Order of the training problems: `listed` is the order of fgrpo train, and `shuffle` one that the trainer draws.
    #[arg(long, default_value_t = Order::Listed, value_parser = named::<Order>())]
    order: Order,
    /// Key of the configuration that the job may lack, `all` for every key; repeatable.
    #[arg(long, value_name = "KEY")]
    allow: Vec<String>,
}

/// Runs the command, and prints the folder's path to stdout.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (written, name, row) = match (&args.paper, &args.config) {
        (Some(row), _) => {
            let (set, root) = (args.set.clone(), args.root.clone());
            let row = full_row(row, &Options { out: args.out.clone(), set, root })?;
            let name = format!("{}-{}", row.item, row.name.replace('/', "-"));
            (row.config, name, Some((row.item.to_owned(), row.name)))
        }
        (None, Some(path)) => {
            let config = Config::load_with(path, &Override::all("--set", &args.set)?)?;
            (config, path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), None)
        }
        (None, None) => bad_input!("expected a configuration or --paper"),
    };
    let mut local = written.clone();
    // The tokenizer comes from the folder of the job's model if that exists on this machine.
    if let Some(model) = args.model.as_ref().map(PathBuf::from).filter(|model| model.exists()) {
        local.model.path = Some(model);
    }
    places::configuration(&mut local, None, Loading::Tokenizer)?;
    let cluster = Cluster {
        model: args.model.clone(),
        nodes: args.nodes.into(),
        gpus: args.gpus.into(),
        tensor_parallel: args.tp.into(),
        sampler: args.engine,
        order: args.order,
        allow: args.allow.iter().cloned().collect(),
        row,
    };
    let Summary { problems, held_out, steps, settings, differences } =
        export::write(args.trainer, (&written, &local), &name, &cluster, &args.out)?;
    say!(
        "{problems} problems to train on, {held_out} held out; {steps} steps; {settings} settings; {} differences, which README.md lists",
        differences.len()
    );
    outln!("{}", args.out.display());
    Ok(())
}
