//! `--dry-run`: prints the resolved configuration, the rejected rows of data files, and the memory, disk and time of a run.

pub(crate) mod rejected;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use fgrpo_eval::amounts::{bytes, counted, duration};
use fgrpo_eval::dataset::FilterReport;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_nn::DeviceName;
use fgrpo_train::config::Config;
use fgrpo_train::device;
use fgrpo_train::problem::{self, Split, Task};
use fgrpo_train::run::needs::{
    ACTIVE, Disk, Fit, GPU_KINDS, Lengths, Memory, Room, Time, costly_evaluation, missing, model, teacher,
    token_bytes, tokens_per_step,
};
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Print the resolved configuration, the rejected rows of data files, and the required memory, disk and time; train
    /// nothing.
    #[arg(long = "dry-run", id = "dry_run")]
    pub(crate) enabled: bool,
    /// With --dry-run: write all rejected rows to this file of JSON lines, with file, row number, reason and value.
    #[arg(long, value_name = "FILE", requires = "dry_run")]
    pub(crate) rejected: Option<PathBuf>,
    /// With --dry-run --device cuda: check the memory of this kind of GPU instead of this machine's.
    #[arg(long, value_name = "KIND", requires = "dry_run", value_parser = gpu_kind())]
    pub(crate) gpu: Option<Room>,
    /// With --dry-run: mean number of tokens of a prompt and of a completion, for the time [default: from the data, or
    /// else the maximum].
    #[arg(long, value_name = "PROMPT,COMPLETION", requires = "dry_run", value_parser = mean_tokens)]
    pub(crate) mean_tokens: Option<[f64; 2]>,
}

fn gpu_kind() -> impl TypedValueParser<Value = Room> {
    let values = GPU_KINDS.map(|(name, memory)| PossibleValue::new(name).help(bytes(memory)));
    PossibleValuesParser::new(values).map(|name| {
        let (_, memory) = GPU_KINDS.into_iter().find(|kind| kind.0 == name).expect("one of the names");
        Room { memory, name }
    })
}

/// Parses two numbers of tokens.
fn mean_tokens(text: &str) -> Result<[f64; 2], String> {
    let number = |part: &str| part.trim().parse::<f64>().ok().filter(|n| (0.0..=1e9).contains(n));
    let numbers: Option<Vec<f64>> = text.split(',').map(number).collect();
    numbers
        .and_then(|numbers| numbers.try_into().ok())
        .ok_or_else(|| "expected two numbers of tokens, such as 150,1000".to_owned())
}

/// Prints the resolved configuration to stdout, and the rejected rows and requirements to stderr. The device may be a GPU that
/// this machine lacks. Returns the task if its files exist. `check` is called with the task and the configuration, whose
/// epochs are converted to steps.
pub(crate) fn run(
    config: &Config,
    device: DeviceName,
    flags: &Flags,
    check: impl FnOnce(&Config, &Task) -> anyhow::Result<()>,
) -> anyhow::Result<Option<Task>> {
    let all_rejected = flags.rejected.as_deref();
    if let Some(kind) = &flags.gpu
        && !matches!(device, DeviceName::Cuda(_))
    {
        bad_input!("--gpu {}: requires --device cuda, found --device {device}", kind.name);
    }
    let missing = missing(config);
    for path in &missing {
        say!("missing: {}", path.display());
    }
    let task = missing.is_empty().then(|| Task::open(config)).transpose()?;
    match &task {
        Some(task) => say_rejected(&task.reports(), all_rejected)?,
        None => {
            // Only the length filter needs the tokenizer.
            let reports = problem::reports(&config.task)?;
            reports.iter().for_each(FilterReport::log);
            say_rejected(&reports.iter().collect::<Vec<_>>(), all_rejected)?;
            if !reports.is_empty() {
                say!(
                    "without the tokenizer, prompt lengths are unknown, so the rejected rows don't include prompts that are too long"
                );
            }
        }
    }
    // Epochs become steps once the problems are counted.
    let resolved = task.as_ref().map(|task| config.resolved(task.len(Split::Train))).transpose()?;
    let config = resolved.as_ref().unwrap_or(config);
    if let Some(task) = &task {
        check(config, task)?;
    }
    let lengths = Lengths::of(config, task.as_ref());
    let lengths = flags.mean_tokens.map_or(lengths, |means| lengths.with_means(means));
    let Some(model) = model(config, task.as_ref())? else {
        out!("{}", config.to_toml());
        say!("the model's size is unknown without these files; add a table [model.size]");
        say_tokens(config, &lengths);
        return Ok(task);
    };
    fgrpo_train::run::needs::refuse_uncountable(config, &model, &lengths)?;
    say!("parameters            {:>12}", model.parameters());
    device::check_run(device, &config.compute)?;
    let room = flags.gpu.clone().map_or_else(|| Room::of(device), Ok);
    let teacher = teacher(config)?;
    let fit =
        Fit { model: &model, teacher: teacher.as_ref(), lengths: &lengths, device, room: room.as_ref().ok() };
    let config = &fit.decided(config);
    out!("{}", config.to_toml());
    let memory = fit.memory(config);
    let cached = memory.engine.cache / token_bytes(&model, config.compute.precision);
    let states = if model.is_recurrent() { ", or states in the place of some" } else { "" };
    let cached = &format!("{cached} tokens{states}");
    say_memory(config, &memory, cached, device, &room);
    let shortage = fit.shortage(config);
    if let Some(shortage) = &shortage {
        say!("warning: {shortage}");
    }
    // Without SFT, completions may be longer than the demonstrations.
    let has_mean = flags.mean_tokens.is_some() || config.sft.is_some();
    let longest = if has_mean { lengths } else { lengths.with_means([lengths.prompt_mean, f64::INFINITY]) };
    say_disk(config, &Disk::of(config, &model, &memory, &longest));
    say_tokens(config, &lengths);
    if let Some(costly) = costly_evaluation(config, &lengths) {
        say!("warning: {costly}");
    }
    if device.is_gpu() {
        // The requirements are printed even if GPUs don't support the model.
        model.check_on_gpus().or_bad_input()?;
        say!("time                  not estimated; the first steps of a run show it");
        // A shortage of memory is an error only on a GPU, because the free memory of a machine varies.
        if shortage.is_some() {
            anyhow::bail!("the run doesn't fit into the GPU's memory; see the warning above");
        }
        return Ok(task);
    }
    let rate = fgrpo_nn::measure_flops(config.compute.threads(), config.compute.products);
    let range = [lengths, longest];
    say_time(config, &range, &range.map(|lengths| Time::of(config, &model, &lengths, rate)), rate);
    Ok(task)
}

/// Prints the first rejected rows of data files, and writes all of them to `all_rejected`.
fn say_rejected(reports: &[&FilterReport], all_rejected: Option<&Path>) -> anyhow::Result<()> {
    let texts: Vec<String> = reports.iter().map(|report| rejected::explained(report)).collect();
    texts.iter().filter(|text| !text.is_empty()).for_each(|text| say!("{}", text.trim_end()));
    match all_rejected {
        Some(out) => rejected::write(reports, out),
        None => {
            if texts.iter().any(|text| !text.is_empty()) {
                say!("--rejected FILE writes all rejected rows as JSON lines");
            }
            Ok(())
        }
    }
}

/// Prints a row of the requirements.
fn say_row(name: &str, value: &str, note: &str) {
    say!("{}", format!("{name:<22}{value:>12}  {note}").trim_end());
}

/// Prints the memory. `cached` describes the capacity of the key/value cache.
fn say_memory(
    config: &Config,
    memory: &Memory,
    cached: &str,
    device: DeviceName,
    room: &Result<Room, String>,
) {
    let say = |name: &str, n: u64, note: &str| say_row(name, &bytes(n), note);
    let engine = &memory.engine;
    let base = config.lora.as_ref().and_then(|lora| lora.base);
    let about = base.map(|base| format!("the layers' matrices in {}", base.name()));
    say("weights", engine.weights, &about.unwrap_or_default());
    if engine.base_weights > 0 {
        say("base weights", engine.base_weights, "at most: the adapted matrices without their adapters");
    }
    let on_gpu = device.is_gpu();
    if !on_gpu {
        say("decode copies", engine.decode_copies, "the weights in the order in which decoding reads them");
    }
    let copies =
        if !on_gpu && config.compute.threads() > 1 { "two copies, however many threads" } else { "" };
    say("gradient", engine.gradient, copies);
    match engine.offloaded {
        0 => say("optimizer", engine.optimizer, ""),
        _ => say("optimizer", engine.optimizer, "buffers; the moments are in this machine's memory"),
    }
    if memory.reference > 0 {
        say("reference", memory.reference, "the model that RL starts from, for the KL penalty");
    }
    if memory.teacher > 0 {
        say("teacher", memory.teacher, "the model in teacher.path");
    }
    let checkpointed =
        if config.compute.checkpointing() { "" } else { "; less with compute.checkpoint_activations" };
    say("activations", engine.activations, &format!("at most{checkpointed}"));
    let place = match engine.rollout {
        Some(_) => "; instead of gradient and activations if there is too little memory for both",
        None => "; rollout.max_cached_tokens bounds it",
    };
    say("key/value cache", engine.cache, &format!("at most, {cached}{place}"));
    say("batch", memory.batch, "at most: completions on their way to the update");
    if memory.program > 0 {
        say("program and data", memory.program, "");
    }
    if on_gpu {
        return say_both_memories(memory, room);
    }
    let total = memory.total();
    let note = room
        .as_ref()
        .map_or(String::new(), |room| format!(", of {} that this machine has left", bytes(room.memory)));
    say("memory", total, &format!("at most{note}"));
}

/// Prints the required memory of the GPU and of the machine, and the GPU's capacity.
fn say_both_memories(memory: &Memory, room: &Result<Room, String>) {
    let need = memory.on_device();
    let note = match room {
        Ok(gpu) => format!("at most, of {} that {} has", bytes(gpu.memory), gpu.name),
        Err(why) => format!("at most; not compared with a GPU: {why}"),
    };
    say_row("GPU memory", &bytes(need), &note);
    let note = match memory.engine.offloaded {
        0 => String::new(),
        moments => format!("; of it {} for the moments, page-locked", bytes(moments)),
    };
    say_row("memory", &bytes(memory.on_host()), &format!("at most, of this machine{note}"));
}

fn say_disk(config: &Config, disk: &Disk) {
    let note = format!(
        "at most: {} of {}, the best one, and the optimizer's state of the newest; fewer with save.keep",
        counted(disk.checkpoints as usize, "checkpoint"),
        bytes(disk.policy)
    );
    say_row("disk", &bytes(disk.total), &note);
    if disk.evaluations > 0 {
        let what = if config.eval.keep_texts {
            "samples and scores; less with eval.keep_texts = false"
        } else {
            "scores"
        };
        say_row("  evaluations", &bytes(disk.evaluations), &format!("of it: {what}"));
    }
}

fn say_tokens(config: &Config, lengths: &Lengths) {
    let tokens = tokens_per_step(config, lengths).to_string();
    say_row("tokens per step", &tokens, "prompts once per group, completions of full length at most");
}

/// Prints the time of each part as a range, for likely and for longest completions.
fn say_time(config: &Config, [likely, longest]: &[Lengths; 2], [low, high]: &[Time; 2], rate: f64) {
    let range = |part: &dyn Fn(&Time) -> f64| {
        let both = [low, high].map(|time| duration(part(time)));
        if both[0] == both[1] { format!("~{}", both[0]) } else { format!("~{} to {}", both[0], both[1]) }
    };
    let step = |time: &Time| time.rollout + time.update;
    let steps = format!("time of {} steps", config.steps);
    let phases = format!("rollout {}, update {}", range(&|time| time.rollout), range(&|time| time.update));
    if low.sft > 0.0 {
        say_row("time of sft", &range(&|time| time.sft), "once; runs with the same start share it");
    }
    say_row("time per step", &range(&step), &phases);
    if config.steps > 0 {
        let all = range(&|time| step(time) * config.steps as f64);
        say_row(&steps, &all, "without sft and evaluations");
    }
    if low.evaluation > 0.0 {
        say_row("time per evaluation", &range(&|time| time.evaluation), "");
    }
    if low.full_evaluation > 0.0 {
        say_row("time per full one", &range(&|time| time.full_evaluation), "[eval.full]");
    }
    let longest = if longest.completion_likely > likely.completion_likely {
        format!(
            ", up to {:.0}, the longest allowed (--mean-tokens PROMPT,COMPLETION if you know them)",
            longest.completion_likely
        )
    } else {
        String::new()
    };
    say!(
        "  from {:.0} GFLOP/s, measured now on {} threads, decoding at half of that; completions of {:.0} tokens, {}{longest}; {:.0} % of the groups active",
        rate / 1e9,
        config.compute.threads(),
        likely.completion_likely,
        likely.likely_source,
        100.0 * ACTIVE
    );
}
