//! `fgrpo serve`: serves a model through the Tinker API and OpenAI's endpoints.

use crate::args::compute;
use crate::args::places;
use crate::output::progress::Console;
use fgrpo_eval::failure::BadInput;
use fgrpo_eval::io::interrupt;
use fgrpo_eval::io::shell::quoted;
use fgrpo_serve::{Settings, StartError};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Serve a model through the Tinker API and OpenAI's endpoints.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fgrpo serve --model Qwen/Qwen3-0.6B
  TINKER_BASE_URL=http://127.0.0.1:8000 TINKER_API_KEY=$(cat serve/key) python rl_loop.py   # in another terminal
  fgrpo serve --model Qwen/Qwen3-0.6B --resume                                              # after any end

A server that was stopped or killed continues with --resume, with the same bits; its clients only reconnect.")]
pub(crate) struct Args {
    /// Base model: a checkpoint folder, a .gguf file or a hub name.
    #[arg(long, value_name = "DIR|HUB-NAME")]
    model: PathBuf,
    /// Name of the model for clients [default: the value of --model].
    #[arg(long)]
    name: Option<String>,
    /// Second model, for sampling and scoring only: the teacher of a distillation.
    #[arg(long, value_name = "DIR|HUB-NAME")]
    teacher: Option<PathBuf>,
    /// Name of the teacher for clients [default: the value of --teacher].
    #[arg(long, value_name = "NAME", requires = "teacher")]
    teacher_name: Option<String>,
    /// Address to listen on. If it isn't a loopback address, other machines can reach the server; only the key protects it,
    /// and it is sent unencrypted.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
    /// Folder for the server's journal, states, saved weights and key.
    #[arg(long, value_name = "DIR", default_value = "serve")]
    out: PathBuf,
    /// Continue the server in --out.
    #[arg(long)]
    resume: bool,
    /// File with the API key of clients [default: a new key is generated].
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Train all weights instead of LoRA adapters.
    #[arg(long)]
    full: bool,
    /// Seed of new adapters, and of sampling requests without a seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Sample each request separately, so that results are bit-identical whenever requests arrive, even after a kill. Slower.
    #[arg(long)]
    repeatable: bool,
    /// Maximum size of a request body in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1024), help_heading = "Limits")]
    max_body: u64,
    /// Maximum number of waiting requests; further ones are rejected with a request to retry.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..=1 << 20), help_heading = "Limits")]
    max_waiting: u64,
    /// Seconds of training between two saves of a model's state. A restart repeats at most this much work.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, help_heading = "Limits")]
    save_every: f64,
    #[command(flatten)]
    compute: compute::Flags,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let Ok(save_every) = Duration::try_from_secs_f64(args.save_every) else {
        bad_input!("--save-every: expected a number of seconds of at least 0, found {}", args.save_every);
    };
    let text = |path: &PathBuf| path.to_string_lossy().into_owned();
    let (name, teacher_name) = (text(&args.model), args.teacher.as_ref().map(text));
    let name = args.name.clone().unwrap_or(name);
    let teacher_name = args.teacher_name.clone().or(teacher_name);
    let place = |path: PathBuf| places::model("--teacher", path);
    let teacher = args.teacher.clone().map(place).transpose()?;
    let model = places::model("--model", args.model.clone())?;
    interrupt::listen();
    let compute = args.compute.settings(None);
    let device = args.compute.device(None)?;
    if teacher_name.as_ref() == Some(&name) {
        bad_input!("--teacher-name: the model has the same name; choose another");
    }
    // Clients load the tokenizer from a local folder or by its hub name.
    let tokenizer = if args.model.exists() {
        text(&std::path::absolute(&args.model).unwrap_or_else(|_| args.model.clone()))
    } else {
        text(&args.model)
    };
    let settings = Settings {
        model,
        name,
        tokenizer,
        teacher: teacher.zip(teacher_name),
        listen: args.listen,
        out: args.out.clone(),
        resume: args.resume,
        key_file: args.key_file.clone(),
        full: args.full,
        seed: args.seed,
        repeatable: args.repeatable,
        device,
        compute: (args.compute.device.unwrap_or_default().to_string(), compute),
        most_body: (args.max_body as usize) << 20,
        most_waiting: args.max_waiting as usize,
        save_every,
    };
    if !args.listen.ip().is_loopback() {
        say!(
            "warning: other machines can reach {} without encryption; only the key protects it",
            args.listen
        );
    }
    fgrpo_serve::run(&settings, &mut Console::new()).map_err(with_flag)?;
    say!(
        "stopped; all accepted work is saved in {}. Continue with the same command and --resume",
        quoted(&args.out.to_string_lossy())
    );
    Ok(())
}

/// Adds the flag that solves the problem to an error.
fn with_flag(error: anyhow::Error) -> anyhow::Error {
    let flag = match error.downcast_ref::<StartError>() {
        Some(StartError::Exists(_)) => "continue it with --resume",
        Some(StartError::Missing(_)) => "--resume needs the folder of a server as --out",
        Some(StartError::Stray(..)) => "name another folder with --out",
        Some(StartError::Changed(..)) => "give the earlier flags again",
        Some(StartError::Address(..)) => "name another address with --listen",
        Some(StartError::Key(..)) => "name another file with --key-file",
        None => return error,
    };
    BadInput(format!("{error}; {flag}")).into()
}
