//! `fgrpo serve`: the Tinker API over one model.

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

/// Serve a model: the Tinker API, and OpenAI's endpoints.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fgrpo serve --model Qwen/Qwen3-0.6B
  TINKER_BASE_URL=http://127.0.0.1:8000 TINKER_API_KEY=$(cat serve/key) python rl_loop.py   # in another terminal
  fgrpo serve --model Qwen/Qwen3-0.6B --resume                                              # after any end

A server that was stopped or killed continues with --resume, with the same bits; its clients only reconnect.")]
pub(crate) struct Args {
    /// The base model: a checkpoint folder, a .gguf file or a hub name.
    #[arg(long, value_name = "DIR|HUB-NAME")]
    model: PathBuf,
    /// The model's name for clients [default: --model as it is written].
    #[arg(long)]
    name: Option<String>,
    /// A second model, which is only sampled and scored: the teacher of a distillation.
    #[arg(long, value_name = "DIR|HUB-NAME")]
    teacher: Option<PathBuf>,
    /// The teacher's name for clients [default: --teacher as it is written].
    #[arg(long, value_name = "NAME", requires = "teacher")]
    teacher_name: Option<String>,
    /// Address to listen on. Others than 127.0.0.1 are reachable from elsewhere: the key is then all that protects the server, and it travels
    /// unencrypted.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
    /// The server's folder: journal, states, saved weights, key.
    #[arg(long, value_name = "DIR", default_value = "serve")]
    out: PathBuf,
    /// Continue the server of the folder.
    #[arg(long)]
    resume: bool,
    /// A file with the key that clients must show [default: one is made].
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Train all weights instead of LoRA's factors.
    #[arg(long)]
    full: bool,
    /// Seed of new adapters and of sampling requests that have none.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Sample each request by itself, so that a program's results are the same bits whenever its requests arrive, and over kills. Slower.
    #[arg(long)]
    repeatable: bool,
    /// Largest body of a request in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1024), help_heading = "Limits")]
    max_body: u64,
    /// Most requests that wait for the engine; more are told to come again.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..=1 << 20), help_heading = "Limits")]
    max_waiting: u64,
    /// Seconds of training after which a model's state is written. A restart does at most this much again.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, help_heading = "Limits")]
    save_every: f64,
    #[command(flatten)]
    compute: compute::Flags,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let Ok(save_every) = Duration::try_from_secs_f64(args.save_every) else {
        bad_input!("--save-every: found {}, wanted a number of seconds of at least 0", args.save_every);
    };
    let written = |path: &PathBuf| path.to_string_lossy().into_owned();
    let (name, teacher_name) = (written(&args.model), args.teacher.as_ref().map(written));
    let name = args.name.clone().unwrap_or(name);
    let teacher_name = args.teacher_name.clone().or(teacher_name);
    let place = |path: PathBuf| places::model("--teacher", path);
    let teacher = args.teacher.clone().map(place).transpose()?;
    let model = places::model("--model", args.model.clone())?;
    interrupt::listen();
    let compute = args.compute.settings(None);
    let device = args.compute.device(None)?;
    if teacher_name.as_ref() == Some(&name) {
        bad_input!("--teacher-name: found the name of --model, wanted another one");
    }
    // Elsewhere a hub name finds the tokenizer; here a folder does.
    let tokenizer = match args.model.exists() {
        true => written(&std::path::absolute(&args.model).unwrap_or_else(|_| args.model.clone())),
        false => written(&args.model),
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
            "warning: {} can be reached from elsewhere, without encryption; the key is all that protects it",
            args.listen
        );
    }
    fgrpo_serve::run(&settings, &mut Console::new()).map_err(with_flag)?;
    say!(
        "stopped; everything accepted is in {}. Continue with the same command and --resume",
        quoted(&args.out.to_string_lossy())
    );
    Ok(())
}

/// An error with the flag that mends it.
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
