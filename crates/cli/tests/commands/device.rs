//! `--device`: refusals with their reasons, the needs on a GPU, and a run on the emulated GPU compared with the CPU.

use crate::support::{ends, file, run, sets, tells};
use assert_cmd::Command;
use serde_json::Value;
use std::ffi::OsStr;
use std::path::Path;

/// A maze run of a few steps that takes seconds on the emulator.
fn tiny() -> Vec<&'static str> {
    sets(&[
        "steps=2",
        "task.size=5",
        "task.train=64",
        "task.held_out=4",
        "model.init.hidden_size=16",
        "model.init.intermediate_size=32",
        "model.init.num_hidden_layers=2",
        "model.init.num_attention_heads=2",
        "model.init.num_key_value_heads=1",
        "sft.steps=2",
        "sft.batch_size=4",
        "rollout.prompts=3",
        "rollout.group_size=4",
        "update.lr=1e-3",
        "eval.every=2",
        "eval.samples=4",
        "eval.k=[1,4]",
        "save.every=1",
        "compute.threads=1",
    ])
}

/// A dry run of a configuration with these flags.
fn plan(config: impl AsRef<OsStr>, flags: &str) -> Command {
    command!("train --dry-run", config.as_ref(), ..flags.split_whitespace())
}

/// The plan that a dry run prints.
#[track_caller]
fn planned(config: impl AsRef<OsStr>, flags: &str) -> String {
    ends(0, plan(config, flags)).1
}

fn line(said: &str, name: &str) -> String {
    said.lines().find(|line| line.starts_with(name)).unwrap().to_owned()
}

#[test]
fn a_gpu_that_is_not_there_is_refused_with_the_reason_before_anything_is_written() {
    if fgrpo_nn::gpus().is_ok_and(|found| found.len() > 99) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    for command in ["train", "sft"] {
        let (_, said) = ends(2, command!(command, "maze-quick --device cuda:99 --out", &out));
        assert!(said.contains("device cuda:99") && said.contains("--device cpu"), "{said}");
        assert!(!out.exists());
    }
    tells(2, command!("score --model nowhere - --device cuda:99"), "device cuda:99");
    tells(2, command!("score --model nowhere - --exact"), "--exact requires a GPU");
    let moments = command!("sft maze-quick --set compute.moments=bf16 --out", &out);
    tells(2, moments, "compute.moments: expected \"f32\"");
    assert!(!out.exists());
}

#[test]
fn devices_and_numbers_that_do_not_exist_or_fit_are_refused() {
    for (flags, words) in [
        ("--device gpu", "gpu|cuda:N"),
        ("--device cuda:0,1 --gpu h200", "--device|cuda:0,1|one GPU, as in cuda:0|CUDA_VISIBLE_DEVICES"),
        ("--device cuda:0-3 --gpu h200", "--device|cuda:0-3|one GPU, as in cuda:0|CUDA_VISIBLE_DEVICES"),
        ("--device cuda:all --gpu h200", "--device|cuda:all|one GPU, as in cuda:0|CUDA_VISIBLE_DEVICES"),
        ("--set compute.precision=bf16", "compute.precision|the device cuda"),
        ("--set compute.moments=bf16", "compute.moments: expected \"f32\"|the device cuda"),
        ("--set compute.exact=true", "compute.exact: |the device cuda"),
        ("--set compute.moments=f16", "compute.moments|bf16"),
        ("--gpu h200", "--gpu h200: requires --device cuda"),
        ("--device cuda --gpu h900", "h900|rtx-4090"),
        ("--mean-tokens 150", "--mean-tokens|150,1000"),
        ("--mean-tokens 150,", "--mean-tokens|150,1000"),
        ("--mean-tokens 150,-1", "--mean-tokens|150,1000"),
        ("--mean-tokens 1,2,3", "--mean-tokens|150,1000"),
        ("--mean-tokens nan,1", "--mean-tokens|150,1000"),
    ] {
        let (_, said) = ends(2, plan("maze-quick", flags));
        assert!(words.split('|').all(|word| said.contains(word)), "{flags}: {said}");
    }
}

#[test]
fn a_dry_run_says_what_a_gpu_needs_without_one() {
    let said = planned("maze-quick", "--device cuda");
    assert!(said.contains("GPU memory") && !said.contains("decode copies"), "{said}");
    // Not all of the plan, because the program's own memory varies.
    let activations = |set: &str| {
        let long = "--device cuda --set task.size=41 --set rollout.max_new_tokens=3000 --set";
        line(&planned("maze-quick", &format!("{long} {set}")), "activations")
    };
    let full = activations("compute.exact=false");
    assert_ne!(full, activations("compute.precision=bf16"), "they take half");
    assert_ne!(full, activations("compute.exact=true"), "parts of attention");
    let said = planned("maze-quick", "--device cuda --set compute.optimizer_offload=true");
    assert!(said.contains("buffers; the moments are in this machine's memory"), "{said}");
    assert!(said.contains("for the moments, page-locked"), "{said}");
}

#[test]
fn a_base_of_4_bits_fits_7b_on_24_gb_and_3b_on_12_gb_with_a_context_of_4096_and_groups_of_8() {
    for (config, gpu) in [("qwen2.5-7b-math", "rtx-4090"), ("llama-3.2-3b-math", "rtx-4070")] {
        let set = "--device cuda --set lora.rank=16 --set compute.precision=bf16 --set compute.checkpoint_activations=true \
            --set rollout.max_new_tokens=3072 --set update.micro_batch_tokens=16384 --gpu";
        let fits = planned(config, &format!("{set} {gpu} --set lora.base=nf4"));
        assert!(!fits.contains("doesn't fit") && fits.contains("matrices in nf4"), "{fits}");
        assert!(!fits.contains("base weights"), "{fits}");
        tells(1, plan(config, &format!("{set} {gpu}")), "doesn't fit");
    }
}

#[test]
fn a_dry_run_refuses_a_model_that_gpus_do_not_compute() {
    let folder = tempfile::tempdir().unwrap();
    let text = "steps = 1\n[task]\nkind = \"math\"\ndata = \"none.jsonl\"\n[model]\n";
    let golden = format!("{}/../nn/tests/golden/qwen3_5_text", env!("CARGO_MANIFEST_DIR"));
    let wide = "path = \"some/one\"\n[model.size]\narchitecture = \"qwen3\"\nvocab_size = 1000\nhidden_size = 1024\n\
        intermediate_size = 2048\nnum_hidden_layers = 2\nnum_attention_heads = 2\nnum_key_value_heads = 2\nhead_dim = 512\n\
        tie_word_embeddings = true\n";
    for (name, model, code) in [("qwen3.5", format!("path = {golden:?}\n"), 0), ("wide", wide.to_owned(), 2)]
    {
        let config = file(folder.path(), &format!("{name}.toml"), &format!("{text}{model}"));
        let (_, said) = ends(code, plan(&config, "--device cuda --gpu h100"));
        let refusal = "the GPU kernels don't support head_dim 512, only up to 256";
        assert_eq!(said.contains(refusal), code == 2, "{said}");
        // Its memory is reported anyway.
        assert!(said.lines().any(|line| line.starts_with("GPU memory")), "{said}");
        planned(&config, "");
    }
    // From the table of common models: 4 bits per value of the layers, with a context of 4,096 tokens.
    let text = "steps = 1\n[task]\nkind = \"math\"\ndata = \"none.jsonl\"\nmax_prompt_tokens = 1024\n[model]\npath = \"Qwen/Qwen3.5-4B\"\n\
        [lora]\nrank = 16\nbase = \"nf4\"\n[rollout]\nmax_new_tokens = 3072\n[compute]\nprecision = \"bf16\"\n";
    let config = file(folder.path(), "qwen3.5.toml", text);
    let said = planned(config, "--device cuda --gpu rtx-4090");
    assert!(said.contains("parameters              4205751296"), "{said}");
    assert!(said.contains("matrices in nf4") && !said.contains("doesn't fit"), "{said}");
}

#[test]
fn a_dry_run_plans_for_a_gpu_that_is_not_there() {
    let flags = "--set update.micro_batch_tokens=8192 --device cuda --set compute.precision=bf16 --gpu";
    let with = |code: i32, more: &str| ends(code, plan("qwen3-1.7b-synlogic", &format!("{flags} {more}"))).1;
    let (small, large) = (with(1, "rtx-4090"), with(0, "h200"));
    assert!(line(&small, "GPU memory").contains("of 24.00 GB that rtx-4090 has"), "{small}");
    assert!(small.contains("not enough memory") && !large.contains("not enough memory"), "{small}{large}");
    // The suggested settings fit.
    let proposed = small.split("--set ").skip(1).map(|set| set.split(' ').next().unwrap());
    let sets: String = proposed.map(|set| format!(" --set {set}")).collect();
    assert!(!sets.is_empty(), "{small}");
    assert!(!with(0, &format!("rtx-4090{sets}")).contains("doesn't fit"), "{sets:?}");
    let cached = |said: &str| -> u64 {
        let line = line(said, "key/value cache");
        line.split("at most, ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
    };
    assert!(cached(&small) < 100_000 && cached(&large) > 500_000, "{small}{large}");
    assert!(line(&large, "time").contains("not estimated"), "{large}");
}

#[test]
fn a_dry_run_counts_4_bytes_per_parameter_for_moments_in_bf16_and_8_for_their_checkpoint() {
    let said = |more: &str| {
        ["f32", "bf16"].map(|moments| {
            let flags = format!("--device cuda --set compute.moments={moments} {more}");
            let (printed, said) = ends(0, plan("maze-quick", &flags));
            assert!(printed.lines().any(|line| line == format!("moments = \"{moments}\"")), "{printed}");
            said
        })
    };
    let [full, half] = said("");
    // In f32 the moments take as much memory as two gradients, in bf16 as one.
    let size = |line: &str| line.split_whitespace().skip(1).take(2).collect::<Vec<_>>().join(" ");
    assert_eq!(size(&line(&half, "optimizer")), size(&line(&half, "gradient")), "{half}");
    assert_ne!(line(&half, "optimizer"), line(&full, "optimizer"));
    for name in ["weights", "gradient", "activations", "key/value cache", "disk"] {
        assert_eq!(line(&half, name), line(&full, name));
    }
    let [full, half] = said("--set compute.optimizer_offload=true");
    assert_ne!(line(&half, "optimizer"), line(&full, "optimizer"));
    assert_ne!(line(&half, "memory"), line(&full, "memory"));
}

/// The lines of a file without what depends on the machine.
fn numbers(file: &Path) -> Vec<serde_json::Map<String, Value>> {
    let machine = ["seconds", "per_second", "time", "memory", "bytes", "threads"];
    let text = std::fs::read_to_string(file).unwrap();
    let lines =
        text.lines().map(|line| serde_json::from_str::<serde_json::Map<String, Value>>(line).unwrap());
    lines
        .map(|line| line.into_iter().filter(|(key, _)| machine.iter().all(|m| !key.contains(m))).collect())
        .collect()
}

#[track_caller]
fn near(found: &Value, wanted: &Value, place: &str) {
    match (found, wanted) {
        (Value::Number(f), Value::Number(w)) => {
            let (f, w) = (f.as_f64().unwrap(), w.as_f64().unwrap());
            assert!((f - w).abs() <= 2e-3 * (0.1 + w.abs()), "{place}: found {f}, wanted {w}");
        }
        (Value::Array(f), Value::Array(w)) => {
            assert_eq!(f.len(), w.len(), "{place}");
            f.iter().zip(w).for_each(|(f, w)| near(f, w, place));
        }
        (Value::Object(f), Value::Object(w)) => {
            assert_eq!(f.keys().collect::<Vec<_>>(), w.keys().collect::<Vec<_>>(), "{place}");
            f.iter().for_each(|(key, f)| near(f, &w[key], &format!("{place}.{key}")));
        }
        _ => assert_eq!(found, wanted, "{place}"),
    }
}

#[test]
fn a_build_without_the_emulator_says_so() {
    let (_, said, code) = run(plan("maze-quick", "--device cuda-emulated"));
    assert!(code == 0 || code == 2 && said.contains("no emulator"), "{said}");
}

#[test]
#[ignore = "needs a build with the emulator: --features fgrpo-nn/cuda-emulator"]
fn a_run_on_the_emulated_gpu_has_the_processors_metrics_and_goes_on_there() {
    let folder = tempfile::tempdir().unwrap();
    let out = |device: &str| folder.path().join(device);
    for device in ["cpu", "cuda-emulated"] {
        ends(0, command!("train maze-quick --out", out(device), "--device", device, ..tiny()));
    }
    for file in ["sft.jsonl", "metrics.jsonl", "eval.jsonl"] {
        let (found, wanted) = (numbers(&out("cuda-emulated").join(file)), numbers(&out("cpu").join(file)));
        assert!(!wanted.is_empty());
        assert_eq!(found.len(), wanted.len());
        for (line, (found, wanted)) in found.into_iter().zip(wanted).enumerate() {
            near(&found.into(), &wanted.into(), &format!("{file}:{line}"));
        }
    }
    // An evaluation needs no GPU, and a checkpoint of the GPU continues on the CPU, and both score it.
    let trained = out("cuda-emulated");
    let policy = trained.join("checkpoints/step-000002");
    let resolved = trained.join("config.toml");
    ends(0, command!("eval", resolved, "--device cpu --model", &policy, "--out", out("evaluated")));
    let more = "--resume --accept-changes --device cpu --set steps=3";
    ends(0, command!("train maze-quick --out", &trained, ..tiny(), ..more.split(' ')));
    let scored = |device: &str| -> Value {
        let mut score = command!("score - --model", &policy, "--device", device);
        score.write_stdin("{\"tokens\":[1,5,7,3]}");
        serde_json::from_str(&ends(0, score).0).unwrap()
    };
    near(&scored("cuda-emulated"), &scored("cpu"), "score");
}

#[test]
#[ignore = "needs a build with the emulator: --features fgrpo-nn/cuda-emulator"]
fn an_exact_run_trains_on_the_very_log_probabilities_that_it_sampled() {
    let folder = tempfile::tempdir().unwrap();
    // With a KL term every token is trained on, and the step has one update.
    let sets = ["steps=1", "algorithm.kl_coef=0.01", "eval.every=0"].map(|set| ["--set", set]).concat();
    let [exact, plain] = [true, false].map(|exact| {
        let (out, exact) = (folder.path().join(exact.to_string()), format!("compute.exact={exact}"));
        let train = "train maze-quick --device cuda-emulated --out";
        ends(0, command!(..train.split(' '), &out, ..tiny(), ..&sets, "--set", &exact));
        let line = numbers(&out.join("metrics.jsonl")).remove(0);
        ["logp_difference_max", "ratio_mean", "ratio_max"].map(|name| line[name].as_f64().unwrap())
    });
    assert_eq!(exact, [0.0, 1.0, 1.0]);
    assert!(plain[0] > 0.0 && plain[0] < 1e-5, "{plain:?}");
}
