//! `fgrpo devices`: lists the devices of this machine, and why some can't be used.

mod check;

use fgrpo_eval::amounts::bytes;
use fgrpo_eval::io::machine;
use fgrpo_nn::ProductFormat;
use serde_json::{Value, json};

/// List the values for `--device`, or check the results of the CPU.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  fgrpo devices\n  fgrpo devices --json\n  fgrpo devices --check")]
pub(crate) struct Args {
    /// Print one JSON value.
    #[arg(long)]
    json: bool,
    /// Also compare the CPU's results with PyTorch's and sampled with scored log-probabilities, and measure its speed. The
    /// output is a report for an issue; takes seconds.
    #[arg(long, conflicts_with = "json")]
    check: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut devices: Vec<(String, Result<Vec<String>, String>)> = vec![("cpu".to_owned(), Ok(processor()))];
    match fgrpo_nn::gpus() {
        Err(why) => devices.push(("cuda".to_owned(), Err(why.to_string()))),
        Ok(gpus) if gpus.is_empty() => {
            devices.push(("cuda".to_owned(), Err("the driver is installed, but there is no GPU".to_owned())));
        }
        Ok(gpus) => devices.extend(gpus.into_iter().map(|gpu| {
            let properties = properties(&gpu);
            let state = match gpu.unusable {
                Some(why) => Err(format!("{}: {why}", properties.join("; "))),
                None => Ok(properties),
            };
            (format!("cuda:{}", gpu.ordinal), state)
        })),
    }
    if args.json {
        let list: Vec<Value> = devices
            .iter()
            .map(|(name, state)| match state {
                Ok(properties) => json!({"device": name, "available": true, "properties": properties}),
                Err(why) => json!({"device": name, "available": false, "reason": why}),
            })
            .collect();
        outln!("{}", Value::Array(list));
        return Ok(());
    }
    if args.check {
        let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
        outln!("## fgrpo {} on {os} {arch}\n", env!("CARGO_PKG_VERSION"));
    }
    for (name, state) in devices {
        match state {
            Ok(properties) => outln!("{name:<6} yes  {}", properties.join("; ")),
            Err(why) => outln!("{name:<6} no   {why}"),
        }
    }
    if args.check {
        return check::run(machine::cores());
    }
    Ok(())
}

fn properties(gpu: &fgrpo_nn::Gpu) -> Vec<String> {
    let (major, minor) = gpu.capability;
    vec![
        gpu.name.clone(),
        format!("{} of memory", bytes(gpu.memory as u64)),
        format!("compute capability {major}.{minor}"),
        match fgrpo_nn::products_library() {
            Ok(library) => {
                format!("matrix products by cuBLASLt {} ({})", library.version, library.path.display())
            }
            Err(why) => format!("matrix products by a plain kernel, many times slower: {why}"),
        },
    ]
}

fn processor() -> Vec<String> {
    let threads = machine::cores();
    let mut facts: Vec<String> = machine::processor().into_iter().collect();
    facts.push(format!("{threads} threads"));
    let sets = instruction_sets();
    facts.push(if sets.is_empty() { "no vector instructions".to_owned() } else { sets.join(" ") });
    facts.push(match ProductFormat::F32.unit() {
        None | Some("plain") => "matrix products by plain kernels".to_owned(),
        Some(level) => format!("matrix products by kernels for {level}"),
    });
    facts.extend(machine::available().map(|n| format!("{} of memory free", bytes(n))));
    facts
}

#[cfg(target_arch = "x86_64")]
fn instruction_sets() -> Vec<&'static str> {
    [
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bf16", is_x86_feature_detected!("avx512bf16")),
        ("avx512vnni", is_x86_feature_detected!("avx512vnni")),
    ]
    .into_iter()
    .filter_map(|(name, there)| there.then_some(name))
    .collect()
}

#[cfg(target_arch = "aarch64")]
fn instruction_sets() -> Vec<&'static str> {
    let bf16 = std::arch::is_aarch64_feature_detected!("bf16");
    if bf16 { vec!["neon", "bf16"] } else { vec!["neon"] }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn instruction_sets() -> Vec<&'static str> {
    Vec::new()
}
