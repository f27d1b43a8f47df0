//! `--dry-run`: the resolved configuration, the rejected rows of its data files, and what a run of it needs.

pub mod rejected;

use fgrpo_nn::{DeviceName, Gpus, Replicas};
use fgrpo_train::amounts::{bytes, duration};
use fgrpo_train::config::Config;
use fgrpo_train::device;
use fgrpo_train::io::machine::available;
use fgrpo_train::problem::dataset::FilterReport;
use fgrpo_train::problem::{self, Split, Task};
use fgrpo_train::run::needs::{
    ACTIVE, Disk, Lengths, Memory, Time, missing, model, parameters, tokens_per_step,
};
use std::path::Path;

/// Prints the resolved configuration to stdout, and to stderr the rejected rows and the needs, also those of a GPU that isn't
/// there. `all_rejected` is the file for all rejected rows. Returns the task where its files are there.
///
/// # Errors
/// For a checkpoint folder that is there and can't be read, or has other sizes than [model.size]; a file that can't be written.
pub fn run(
    config: &Config,
    device: DeviceName,
    all_rejected: Option<&Path>,
) -> anyhow::Result<Option<Box<dyn Task>>> {
    let missing = missing(config);
    for path in &missing {
        say!("not there yet: {}", path.display());
    }
    let task = missing.is_empty().then(|| problem::open(config)).transpose()?;
    match &task {
        Some(task) => say_rejected(&task.reports(), all_rejected)?,
        None => {
            // Only the filter by length needs the tokenizer.
            let reports = problem::reports(&config.task)?;
            reports.iter().for_each(FilterReport::log);
            say_rejected(&reports.iter().collect::<Vec<_>>(), all_rejected)?;
            if !reports.is_empty() {
                say!(
                    "the length of prompts is not known without the tokenizer; rows that are too long are not among the rejected ones"
                );
            }
        }
    }
    // Epochs become steps once the problems are counted.
    let resolved = task.as_ref().map(|task| config.resolved(task.len(Split::Train))).transpose()?;
    let config = resolved.as_ref().unwrap_or(config);
    out!("{}", config.to_toml());
    let lengths = Lengths::of(config, task.as_deref());
    let Some(model) = model(config, task.as_deref())? else {
        say!("the model's size is not known without these; a table [model.size] would say it");
        say_tokens(config, &lengths);
        return Ok(task);
    };
    fgrpo_train::run::needs::refuse_uncountable(config, &model, &lengths)?;
    say!("parameters            {:>12}", parameters(&model));
    device::check_formats(device, &config.compute)?;
    let precision = config.compute.precision;
    let found = match device {
        DeviceName::Cuda(gpus) => smallest(gpus),
        _ => Err("it is emulated".to_owned()),
    };
    let room = found.as_ref().ok().map(|gpu| gpu.memory as u64);
    let gpu = device.gpus().map(|gpus| Replicas { gpus: gpus.count(), precision, memory: room });
    let memory = Memory::of(config, &model, &lengths, gpu);
    say_memory(config, &memory, device, found);
    say_disk(config, &Disk::of(config, &model, &memory, &lengths));
    say_tokens(config, &lengths);
    if gpu.is_some() {
        say!("time                  not estimated: no speed of a GPU is measured here");
        return Ok(task);
    }
    let rate = fgrpo_nn::measure_flops(config.threads(), config.compute.products);
    say_time(config, &lengths, &Time::of(config, &model, &lengths, rate), rate);
    Ok(task)
}

/// The rejected rows of data files: the first ones, and a file with all of them.
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

fn say_memory(config: &Config, memory: &Memory, device: DeviceName, gpu: Result<fgrpo_nn::Gpu, String>) {
    let say = |name: &str, n: u64, note: &str| {
        say!("{}", format!("{name:<22}{:>12}  {note}", bytes(n)).trim_end());
    };
    let engine = &memory.engine;
    let several = device.gpus().is_some_and(|gpus| gpus.count() > 1);
    say(
        "weights",
        engine.weights,
        if several { "on each GPU, as all up to the key/value cache" } else { "" },
    );
    if engine.base_weights > 0 {
        say("base weights", engine.base_weights, "the adapted matrices without their adapters, at most");
    }
    let on_gpu = device.gpus().is_some();
    if !on_gpu {
        say("decode copies", engine.decode_copies, "the weights in the order in which decoding reads them");
    }
    let copies = if !on_gpu && config.threads() > 1 { "two copies, however many threads" } else { "" };
    say("gradient", engine.gradient, copies);
    match engine.offloaded {
        0 => say("optimizer", engine.optimizer, ""),
        _ => say("optimizer", engine.optimizer, "buffers; the moments are in this machine's memory"),
    }
    if memory.reference > 0 {
        say("reference", memory.reference, "the model that RL starts from, for the KL penalty");
    }
    let checkpointed =
        if config.compute.checkpoint_activations { "" } else { "; less with compute.checkpoint_activations" };
    say("activations", engine.activations, &format!("at most{checkpointed}"));
    let place = match engine.rollout {
        Some(_) => "; instead of gradient and activations if there is too little memory for both",
        None => "; rollout.max_cached_tokens bounds it",
    };
    say("key/value cache", engine.cache, &format!("at most{place}"));
    say("batch", memory.batch, "at most: completions on their way to the update");
    if memory.program > 0 {
        say("program and data", memory.program, "");
    }
    if on_gpu {
        return say_both_memories(memory, device, gpu);
    }
    let total = memory.total();
    match available().map(|left| left + memory.program) {
        None => say("memory", total, "at most"),
        Some(left) => {
            say("memory", total, &format!("at most, of {} that this machine has left", bytes(left)));
            if total > left {
                say!(
                    "warning: this doesn't fit: {} more is needed. Smaller: compute.threads, rollout.max_cached_tokens, update.micro_batch_tokens, rollout.prompts; compute.checkpoint_activations = true",
                    bytes(total - left)
                );
            }
        }
    }
}

/// The memory of the GPUs and of the machine, each against what is there.
fn say_both_memories(memory: &Memory, device: DeviceName, found: Result<fgrpo_nn::Gpu, String>) {
    let (needed, room) = (memory.on_device(), found.as_ref().map(|gpu| gpu.memory as u64));
    let several = device.gpus().is_some_and(|gpus| gpus.count() > 1);
    let note = match &found {
        Ok(gpu) if several => {
            format!("at most on each, of {} that the smallest has: {}", bytes(gpu.memory as u64), gpu.name)
        }
        Ok(gpu) => format!("at most, of {} that {} has", bytes(gpu.memory as u64), gpu.name),
        Err(why) => {
            format!("at most{}; not compared with a GPU: {why}", if several { " on each" } else { "" })
        }
    };
    say!("{:<22}{:>12}  {note}", "GPU memory", bytes(needed));
    if room.is_ok_and(|room| needed > room) {
        say!(
            "warning: this doesn't fit. Smaller: rollout.max_cached_tokens, update.micro_batch_tokens; compute.checkpoint_activations = true, compute.optimizer_offload = true, compute.precision = \"bf16\", [lora]"
        );
    }
    let note = match memory.engine.offloaded {
        0 => String::new(),
        moments => format!("; of it {} for the moments, page-locked", bytes(moments)),
    };
    say!("{:<22}{:>12}  at most, of this machine{note}", "memory", bytes(memory.on_host()));
}

/// The GPU with the least memory, or why it isn't known.
fn smallest(gpus: Gpus) -> Result<fgrpo_nn::Gpu, String> {
    let found = fgrpo_nn::gpus().map_err(|why| why.to_string())?;
    let one = |number: usize| found.get(number).ok_or_else(|| format!("no GPU with number {number}"));
    let all = gpus.numbers().map(one).collect::<Result<Vec<_>, _>>()?;
    Ok(all.into_iter().min_by_key(|gpu| gpu.memory).expect("a set of GPUs has one").clone())
}

fn say_disk(config: &Config, disk: &Disk) {
    say!(
        "{:<22}{:>12}  at most: {} checkpoints of {}, the best one, and the optimizer's state of the newest; fewer with save.keep",
        "disk",
        bytes(disk.total),
        disk.checkpoints,
        bytes(disk.policy)
    );
    if disk.evaluations > 0 {
        let what = match config.eval.keep_texts {
            true => "samples and scores; less with eval.keep_texts = false",
            false => "scores",
        };
        say!("{:<22}{:>12}  of it: {what}", "  evaluations", bytes(disk.evaluations));
    }
}

fn say_tokens(config: &Config, lengths: &Lengths) {
    say!(
        "tokens per step       {:>12}  prompts once per group, completions of full length at most",
        tokens_per_step(config, lengths)
    );
}

fn say_time(config: &Config, lengths: &Lengths, time: &Time, rate: f64) {
    let for_people = |s: f64| if s < 10.0 { format!("{s:.1}s") } else { duration(s) };
    let say = |name: &str, seconds: f64, note: &str| {
        say!("{name:<22}{:>12}  {note}", format!("~{}", for_people(seconds)));
    };
    if time.sft > 0.0 {
        say("time of sft", time.sft, "once; runs with the same start share it");
    }
    let step = time.rollout + time.update;
    let phases = format!("rollout {}, update {}", for_people(time.rollout), for_people(time.update));
    say("time per step", step, &phases);
    if time.evaluation > 0.0 {
        say("time per evaluation", time.evaluation, "");
    }
    if time.full_evaluation > 0.0 {
        say("time per full one", time.full_evaluation, "[eval.full]");
    }
    if config.steps > 0 {
        say(
            &format!("time of {} steps", config.steps),
            step * config.steps as f64,
            "without sft and evaluations",
        );
    }
    say!(
        "  from {:.0} GFLOP/s, measured now on {} threads, decoding at half of that; completions of {:.0} tokens, {}; {:.0} % of the groups active",
        rate / 1e9,
        config.threads(),
        lengths.completion_likely,
        lengths.likely_is,
        100.0 * ACTIVE
    );
}
