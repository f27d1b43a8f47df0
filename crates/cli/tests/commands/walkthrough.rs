//! The steps of docs/gsm8k.md, from a checkpoint folder and a file of problems to the report, with a model that is small
//! enough for seconds.

use crate::support::{count, ended, ends, fgrpo, lines, prints, sets, signal, spawned, tells, wait_until};
use serde_json::Value;
use std::path::{Path, PathBuf};

const SIZES: [&str; 6] = [
    "task.train=64",
    "task.held_out=6",
    "model.init.hidden_size=16",
    "model.init.intermediate_size=32",
    "model.init.num_hidden_layers=1",
    "sft.steps=8",
];

/// Problems in files and a model folder with tokenizer and template, as the walk-through makes them.
fn materials(folder: &Path) -> PathBuf {
    for (split, file) in [("train", "problems.jsonl"), ("held-out", "held-out.jsonl")] {
        let mut data = fgrpo();
        data.args(["data", "arithmetic"])
            .arg("arithmetic-quick")
            .args(["--split", split])
            .args(sets(&SIZES[..2]));
        data.arg("--out").arg(folder.join(file)).assert().success();
    }
    ends(0, command!("sft arithmetic-quick", ..sets(&SIZES), "--out", folder.join("base")));
    folder.join("base/checkpoints/step-000008")
}

fn interrupted(config: &Path, out: &Path, more: &[&str]) -> String {
    let child = spawned(&["train"]).arg(config).args(more).arg("--out").arg(out).spawn().unwrap();
    wait_until("three steps", || count(&out.join("metrics.jsonl")) >= 3);
    signal(&child, libc::SIGINT);
    let (code, said) = ended(child);
    assert_eq!(code, Some(1));
    said
}

#[test]
fn a_user_trains_stops_resumes_evaluates_compares_and_reads_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let base = materials(folder.path());
    let path = |name: &str| folder.path().join(name);
    std::fs::write(
        path("math.toml"),
        format!(
            "steps = 12\n[task]\nkind = \"math\"\ndata = {:?}\nheld_out = {:?}\n[model]\npath = {base:?}\n\
             [rollout]\nprompts = 4\ngroup_size = 4\nmax_new_tokens = 24\n[algorithm]\nfocal_gamma = 0.5\nreward_wrong = -1\n\
             [update]\nlr = 1e-4\n[eval]\nevery = 6\nsamples = 4\nk = [1, 4]\n[save]\nevery = 5\n",
            path("problems.jsonl"),
            path("held-out.jsonl"),
        ),
    )
    .unwrap();
    let (config, run) = (path("math.toml"), path("math"));

    // Prompts as the model sees them, and answers as the verifier reads them.
    let shown = fgrpo().args(["data", "show"]).arg(&config).assert().success();
    let shown = String::from_utf8(shown.get_output().stdout.clone()).unwrap();
    assert!(shown.contains("<|im_start|>assistant") && shown.contains("graded correct"), "{shown}");

    // Train, press Ctrl-C, and run the command that is printed.
    let said = interrupted(&config, &run, &[]);
    assert!(said.contains("Continue with:") && said.contains("--resume"), "{said}");
    assert!(!said.contains("error"), "a stop on request is no error: {said}");
    prints(0, command!("train", &config, "--resume --out", &run), "pass@1 changed by");
    let steps: Vec<u64> =
        lines(&run.join("metrics.jsonl")).iter().map(|m| m["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, (1..=12).collect::<Vec<u64>>());

    // Evaluate two checkpoints on the held-out problems, with the configuration of their training.
    let evaluate = |model: &Path, out: &str| {
        let mut eval = fgrpo();
        eval.arg("eval").arg(&config).args(["-n", "6", "-k", "1", "-k", "6", "--model"]).arg(model);
        eval.arg("--out").arg(path(out)).assert().success();
        let generations = lines(&path(out).join("generations.jsonl"));
        assert_eq!(generations.len(), 36, "6 problems x 6 samples");
        for g in &generations {
            assert!(g["problem"].is_string() && g["sample"].as_u64().unwrap() < 6, "{g}");
            let (tokens, finish) = (g["tokens"].as_u64().unwrap(), g["finish"].as_str().unwrap());
            assert!((1..=24).contains(&tokens) && ["stop", "length"].contains(&finish), "{g}");
            assert!(!g["text"].as_str().unwrap().contains("<|im_end|>"), "{g}");
        }
        let samples = lines(&path(out).join("samples.jsonl"));
        assert!(samples.len() == 36 && samples.iter().all(|s| s["correct"].is_boolean()), "{samples:?}");
    };
    evaluate(&base, "eval-base");
    evaluate(&run.join("checkpoints/step-000012"), "eval-math");
    // The configured values of k, as far as there are enough samples.
    let fewer = command!("eval", &config, "-n 2 --limit 2 --model", &base, "--out", path("fewer"));
    tells(0, fewer, "note: pass@4 is left out, because it needs more samples than -n 2");

    let compared = fgrpo()
        .arg("compare")
        .args([path("eval-base"), path("eval-math")])
        .args(["-k", "1,6", "--json"])
        .assert()
        .success();
    let rows: Value = serde_json::from_slice(&compared.get_output().stdout).unwrap();
    let ks: Vec<u64> = rows.as_array().unwrap().iter().map(|r| r["k"].as_u64().unwrap()).collect();
    assert_eq!(ks, [1, 6]);
    assert!(rows[0]["p_value"].is_number() && rows[0]["bootstrap"]["interval"].is_array(), "{rows}");

    let mut generate = fgrpo();
    generate.args(["generate", "--max-tokens", "8", "--model"]).arg(run.join("checkpoints/step-000012"));
    generate.arg("Start with 2. Add 3. What is the result?").assert().success();

    // A run folder as a model means its newest checkpoint; a resumed evaluation keeps the one that it started with.
    let (other, from_run) = (path("other"), format!("model.path={}", path("base").display()));
    let train_from_run = |more: &[&str]| {
        let mut train = fgrpo();
        train.arg("train").arg(&config).args(["--set", "steps=1", "--set", &from_run]).args(more);
        train.arg("--out").arg(&other).assert().success();
        std::fs::read_to_string(other.join("config.toml")).unwrap()
    };
    let resolved = train_from_run(&[]);
    assert!(resolved.contains("base/checkpoints/step-000008"), "{resolved}");
    std::fs::create_dir(path("base/checkpoints/step-000009")).unwrap();
    for file in
        std::fs::read_dir(&base).unwrap().map(|file| file.unwrap().path()).filter(|file| file.is_file())
    {
        std::fs::copy(&file, path("base/checkpoints/step-000009").join(file.file_name().unwrap())).unwrap();
    }
    assert_eq!(train_from_run(&["--resume"]), resolved);

    let page = path("page.html");
    ends(0, command!("report", &run, "--out", &page));
    let html = std::fs::read_to_string(page).unwrap();
    assert!(
        html.contains("Start with") || html.contains("Begin with") || html.contains("Take"),
        "no rollout"
    );
    // Evaluation and training have the same prompt, without a system prompt.
    let rollouts = lines(&run.join("rollouts.jsonl"));
    assert!(rollouts.iter().all(|r| !r["prompt"].as_str().unwrap().contains("boxed")), "{:?}", rollouts[0]);
}

#[test]
fn a_training_configuration_without_a_held_out_file_says_what_evaluation_needs() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("math.toml");
    std::fs::write(
        &config,
        "steps = 1\n[task]\nkind = \"math\"\ndata = \"d.jsonl\"\n[model]\npath = \"nowhere\"\n[eval]\nsamples = 2\nk = [1]\n",
    )
    .unwrap();
    tells(
        2,
        command!("eval", &config, "--model nowhere --out", folder.path().join("out")),
        "nowhere: no such file or folder",
    );
}
