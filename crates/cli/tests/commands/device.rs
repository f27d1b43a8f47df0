//! `--device`: refusals with their reasons, the needs on a GPU, and a run on the emulated GPU compared with the CPU.

use crate::support::{done, ends, ends_with, fgrpo, file, run, sets};
use serde_json::Value;
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

#[test]
fn a_gpu_that_is_not_there_is_refused_with_the_reason_before_anything_is_written() {
    if fgrpo_nn::gpus().is_ok_and(|found| found.len() > 99) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let config = "maze-quick";
    for command in ["train", "sft"] {
        let said = ends_with(2, &[command, config, "--out", out.to_str().unwrap(), "--device", "cuda:99"]);
        assert!(said.contains("device cuda:99") && said.contains("--device cpu"), "{said}");
        assert!(!out.exists());
    }
    let said = ends_with(2, &["score", "--model", "nowhere", "-", "--device", "cuda:99"]);
    assert!(said.contains("device cuda:99"), "{said}");
}

#[test]
fn names_that_are_no_device_and_precisions_that_a_device_lacks_are_refused() {
    let config = "maze-quick";
    let said = ends_with(2, &["train", config, "--dry-run", "--device", "gpu"]);
    assert!(said.contains("gpu") && said.contains("cuda:N"), "{said}");
    for device in ["cuda:0,1", "cuda:0-3", "cuda:all"] {
        let said = ends_with(2, &["train", config, "--dry-run", "--device", device, "--gpu", "h200"]);
        for part in ["--device", device, "one GPU, as in cuda:0", "CUDA_VISIBLE_DEVICES"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    let bf16 = ["--set", "compute.precision=bf16"];
    let said = ends_with(2, &[&["train", config, "--dry-run"][..], &bf16].concat());
    assert!(said.contains("compute.precision") && said.contains("the device cuda"), "{said}");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    for command in ["train", "sft"] {
        for how in [vec!["--dry-run"], vec!["--out", out.to_str().unwrap()]] {
            for (set, found) in [
                ("compute.moments=bf16", "compute.moments: expected \"f32\""),
                ("compute.exact=true", "compute.exact: "),
            ] {
                let said = ends_with(2, &[&[command, config, "--set", set][..], &how].concat());
                assert!(said.contains(found), "{said}");
                assert!(said.contains("the device cuda") && !out.exists(), "{said}");
            }
        }
    }
    let said = ends_with(2, &["score", "--model", "nowhere", "-", "--exact"]);
    assert!(said.contains("--exact requires a GPU"), "{said}");
    let said = ends_with(2, &["train", config, "--dry-run", "--set", "compute.moments=f16"]);
    assert!(said.contains("compute.moments") && said.contains("bf16"), "{said}");
}

#[test]
fn a_dry_run_says_what_a_gpu_needs_without_one() {
    let config = "maze-quick";
    let said = ends_with(0, &["train", config, "--dry-run", "--device", "cuda"]);
    assert!(said.contains("GPU memory") && !said.contains("decode copies"), "{said}");
    let line = |said: &str, name: &str| said.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    // Not all of the plan, because the program's own memory varies.
    let long = ["--set", "task.size=41", "--set", "rollout.max_new_tokens=3000"];
    let activations = |set: &str| {
        let plan = ["train", config, "--dry-run", "--device", "cuda", "--set", set];
        line(&ends_with(0, &[&plan[..], &long].concat()), "activations")
    };
    let full = activations("compute.exact=false");
    assert_ne!(full, activations("compute.precision=bf16"), "they take half");
    assert_ne!(full, activations("compute.exact=true"), "parts of attention");
    let offload = ["--dry-run", "--device", "cuda", "--set", "compute.optimizer_offload=true"];
    let said = ends_with(0, &[&["train", config][..], &offload].concat());
    assert!(said.contains("buffers; the moments are in this machine's memory"), "{said}");
    assert!(said.contains("for the moments, page-locked"), "{said}");
}

#[test]
fn a_base_of_4_bits_fits_7b_on_24_gb_and_3b_on_12_gb_with_a_context_of_4096_and_groups_of_8() {
    for (config, gpu) in [("qwen2.5-7b-math", "rtx-4090"), ("llama-3.2-3b-math", "rtx-4070")] {
        let plan = |code: i32, base: &[&str]| {
            let mut all = vec!["train", config, "--dry-run", "--device", "cuda", "--gpu", gpu];
            for set in [
                "lora.rank=16",
                "compute.precision=bf16",
                "compute.checkpoint_activations=true",
                "rollout.max_new_tokens=3072",
                "update.micro_batch_tokens=16384",
            ] {
                all.extend(["--set", set]);
            }
            ends_with(code, &[&all[..], base].concat())
        };
        let fits = plan(0, &["--set", "lora.base=nf4"]);
        assert!(!fits.contains("doesn't fit") && fits.contains("matrices in nf4"), "{fits}");
        assert!(!fits.contains("base weights"), "{fits}");
        assert!(plan(1, &[]).contains("doesn't fit"));
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
        let plan = ["train", config.to_str().unwrap(), "--dry-run"];
        let said = ends_with(code, &[&plan[..], &["--device", "cuda", "--gpu", "h100"]].concat());
        let refusal = "the GPU kernels don't support head_dim 512, only up to 256";
        assert_eq!(said.contains(refusal), code == 2, "{said}");
        // Its memory is reported anyway.
        assert!(said.lines().any(|line| line.starts_with("GPU memory")), "{said}");
        ends_with(0, &plan);
    }
    // From the table of common models: 4 bits per value of the layers, with a context of 4,096 tokens.
    let text = "steps = 1\n[task]\nkind = \"math\"\ndata = \"none.jsonl\"\nmax_prompt_tokens = 1024\n[model]\npath = \"Qwen/Qwen3.5-4B\"\n\
        [lora]\nrank = 16\nbase = \"nf4\"\n[rollout]\nmax_new_tokens = 3072\n[compute]\nprecision = \"bf16\"\n";
    let config = file(folder.path(), "qwen3.5.toml", text);
    let plan = ["train", config.to_str().unwrap(), "--dry-run", "--device", "cuda", "--gpu", "rtx-4090"];
    let said = ends_with(0, &plan);
    assert!(said.contains("parameters              4205751296"), "{said}");
    assert!(said.contains("matrices in nf4") && !said.contains("doesn't fit"), "{said}");
}

#[test]
fn a_dry_run_plans_for_a_gpu_that_is_not_there() {
    let plan = |code: i32, more: &[&str]| {
        let base = ["train", "qwen3-1.7b-synlogic", "--dry-run", "--set", "update.micro_batch_tokens=8192"];
        ends_with(code, &[&base[..], more].concat())
    };
    let bf16 = ["--device", "cuda", "--set", "compute.precision=bf16"];
    let with = |more: &[&str]| plan(0, &[&bf16[..], more].concat());
    let line = |said: &str, name: &str| said.lines().find(|line| line.starts_with(name)).unwrap().to_owned();

    let small = plan(1, &[&bf16[..], &["--gpu", "rtx-4090"]].concat());
    let large = with(&["--gpu", "h200"]);
    assert!(line(&small, "GPU memory").contains("of 24.00 GB that rtx-4090 has"), "{small}");
    assert!(small.contains("not enough memory") && !large.contains("not enough memory"), "{small}{large}");
    // The suggested settings fit.
    let proposed = small.split("--set ").skip(1).map(|set| set.split(' ').next().unwrap());
    let sets: Vec<&str> = proposed.flat_map(|set| ["--set", set]).collect();
    assert!(!sets.is_empty(), "{small}");
    assert!(!with(&[&["--gpu", "rtx-4090"], &sets[..]].concat()).contains("doesn't fit"), "{sets:?}");
    let cached = |said: &str| -> u64 {
        let line = line(said, "key/value cache");
        line.split("at most, ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
    };
    assert!(cached(&small) < 100_000 && cached(&large) > 500_000, "{small}{large}");
    assert!(line(&large, "time").contains("not estimated"), "{large}");

    let said = plan(2, &["--gpu", "h200"]);
    assert!(said.contains("--gpu h200: requires --device cuda"), "{said}");
    let said = plan(2, &["--device", "cuda", "--gpu", "h900"]);
    assert!(said.contains("h900") && said.contains("rtx-4090"), "{said}");
    for wrong in ["150", "150,", "150,-1", "1,2,3", "nan,1"] {
        let said = plan(2, &["--mean-tokens", wrong]);
        assert!(said.contains("--mean-tokens") && said.contains("150,1000"), "{wrong}: {said}");
    }
}

#[test]
fn a_dry_run_counts_4_bytes_per_parameter_for_moments_in_bf16_and_8_for_their_checkpoint() {
    let config = "maze-quick";
    let said = |more: &[&str]| {
        let set = ["--set", "compute.moments=bf16"];
        [&[][..], &set].map(|set| {
            ends_with(0, &[&["train", config, "--dry-run", "--device", "cuda"], more, set].concat())
        })
    };
    let line = |said: &str, name: &str| said.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    let [full, half] = said(&[]);
    for (set, resolved) in
        [(&[][..], "moments = \"f32\""), (&["--set", "compute.moments=bf16"], "moments = \"bf16\"")]
    {
        let words = [&["train", config, "--dry-run", "--device", "cuda"], set].concat();
        assert!(done(&words).lines().any(|line| line == resolved), "{resolved}");
    }
    // In f32 the moments take as much memory as two gradients, in bf16 as one.
    let size = |line: &str| line.split_whitespace().skip(1).take(2).collect::<Vec<_>>().join(" ");
    assert_eq!(size(&line(&half, "optimizer")), size(&line(&half, "gradient")), "{half}");
    assert_ne!(line(&half, "optimizer"), line(&full, "optimizer"));
    for name in ["weights", "gradient", "activations", "key/value cache", "disk"] {
        assert_eq!(line(&half, name), line(&full, name));
    }
    let [full, half] = said(&["--set", "compute.optimizer_offload=true"]);
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
    let (_, said, code) =
        run(fgrpo().args(["train", "maze-quick", "--dry-run", "--device", "cuda-emulated"]));
    assert!(code == 0 || code == 2 && said.contains("no emulator"), "{said}");
}

#[test]
#[ignore = "needs a build with the emulator: --features fgrpo-nn/cuda-emulator"]
fn a_run_on_the_emulated_gpu_has_the_processors_metrics_and_goes_on_there() {
    let config = "maze-quick";
    let folder = tempfile::tempdir().unwrap();
    let out = |device: &str| folder.path().join(device);
    for device in ["cpu", "cuda-emulated"] {
        let folder = out(device);
        let place = ["train", config, "--out", folder.to_str().unwrap(), "--device", device];
        ends(0, command!(..place, ..tiny()));
    }
    for file in ["sft.jsonl", "metrics.jsonl", "eval.jsonl"] {
        let (found, wanted) = (numbers(&out("cuda-emulated").join(file)), numbers(&out("cpu").join(file)));
        assert!(!wanted.is_empty());
        assert_eq!(found.len(), wanted.len());
        for (line, (found, wanted)) in found.into_iter().zip(wanted).enumerate() {
            near(&found.into(), &wanted.into(), &format!("{file}:{line}"));
        }
    }
    // It continues with the same bits, with the moments on the GPU and in host memory.
    let [kept, offloaded] = ["false", "true"].map(|offload| {
        let copy = out(offload);
        let copied = std::process::Command::new("cp").arg("-r").args([&out("cuda-emulated"), &copy]).status();
        assert!(copied.unwrap().success());
        let set = format!("compute.optimizer_offload={offload}");
        let more =
            ["--resume", "--accept-changes", "--device", "cuda-emulated", "--set", "steps=3", "--set", &set];
        ends(0, command!(..["train", config, "--out", copy.to_str().unwrap()], ..tiny(), ..more));
        let files =
            std::fs::read_dir(copy.join("checkpoints/step-000003")).unwrap().map(|e| e.unwrap().path());
        let mut files: Vec<_> =
            files.filter(|file| file.extension().is_some_and(|e| e == "safetensors")).collect();
        files.sort();
        files.iter().map(|file| std::fs::read(file).unwrap()).collect::<Vec<_>>()
    });
    assert!(kept.len() >= 2 && kept == offloaded, "weights and moments");
    // With moments in bf16 a resumed run ends in the bits of an uninterrupted one, and so does one with the moments in host memory.
    let rounded = |out: &Path, more: &[&str]| {
        let place = ["train", config, "--out", out.to_str().unwrap(), "--device", "cuda-emulated"];
        let set = ["--set", "compute.moments=bf16"];
        ends(0, command!(..place, ..tiny(), ..set, ..more));
    };
    let [whole, stopped, in_host] = ["whole", "stopped", "in-host"].map(out);
    rounded(&whole, &[]);
    rounded(&stopped, &["--set", "steps=1"]);
    rounded(&stopped, &["--resume", "--accept-changes"]);
    rounded(&in_host, &["--set", "compute.optimizer_offload=true"]);
    let [whole, stopped, in_host, in_f32] = [whole, stopped, in_host, out("cuda-emulated")].map(|out| {
        let step = out.join("checkpoints/step-000002");
        ["model.safetensors", "optimizer.safetensors"].map(|file| std::fs::read(step.join(file)).unwrap())
    });
    assert!(whole == stopped && whole == in_host && whole != in_f32, "weights and moments");
    // An evaluation has no optimizer, so the run's configuration also works on the CPU.
    let (evaluated, trained, resolved) = (out("evaluated"), out("whole"), out("whole").join("config.toml"));
    let last = trained.join("checkpoints/step-000002");
    let words = ["eval", resolved.to_str().unwrap(), "--model", last.to_str().unwrap(), "--device", "cpu"];
    done(&[&words[..], &["--out", evaluated.to_str().unwrap()]].concat());
    // A checkpoint of the GPU continues on the CPU, and both score it.
    let folder = out("cuda-emulated");
    let more = ["--resume", "--accept-changes", "--device", "cpu", "--set", "steps=3"];
    let place = ["train", config, "--out", folder.to_str().unwrap()];
    ends(0, command!(..place, ..tiny(), ..more));
    let policy = folder.join("checkpoints/step-000002");
    let scored = |device: &str| -> Value {
        let command = ["score", "--model", policy.to_str().unwrap(), "-", "--device", device];
        let (out, said, code) = run(fgrpo().args(command).write_stdin("{\"tokens\":[1,5,7,3]}"));
        assert_eq!(code, 0, "{said}");
        serde_json::from_str(&out).unwrap()
    };
    near(&scored("cuda-emulated"), &scored("cpu"), "score");
}

#[test]
#[ignore = "needs a build with the emulator: --features fgrpo-nn/cuda-emulator"]
fn an_exact_run_trains_on_the_very_log_probabilities_that_it_sampled() {
    let (config, folder) = ("maze-quick", tempfile::tempdir().unwrap());
    // With a KL term every token is trained on, and the step has one update.
    let sets = ["steps=1", "algorithm.kl_coef=0.01", "eval.every=0"].map(|set| ["--set", set]).concat();
    let [exact, plain] = [true, false].map(|exact| {
        let (out, exact) = (folder.path().join(exact.to_string()), format!("compute.exact={exact}"));
        let place = ["train", config, "--out", out.to_str().unwrap(), "--device", "cuda-emulated"];
        ends(0, command!(..place, ..tiny(), ..&sets, "--set", &exact));
        let line = numbers(&out.join("metrics.jsonl")).remove(0);
        ["logp_difference_max", "ratio_mean", "ratio_max"].map(|name| line[name].as_f64().unwrap())
    });
    assert_eq!(exact, [0.0, 1.0, 1.0]);
    assert!(plain[0] > 0.0 && plain[0] < 1e-5, "{plain:?}");
}
